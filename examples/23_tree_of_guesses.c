/* 23_tree_of_guesses.c

   The question: There are two good guesses for the next word. How are both checked in one call?
   What you will see: the same text and the same cache as word by word, in fewer calls.

   Run:  cc -O2 -I. examples/23_tree_of_guesses.c && ./a.out

   Guesses for the same word make a tree. Its rows are consecutive in the cache, but not in the text: a mask
   shows each row its ancestors only, and rope_pos holds its position in the text. One path of the tree turns
   out to be right: attn_kv_keep keeps the keys of that path and drops the rest.

   Where people go wrong: without rope_pos, rows of the second branch are rotated for the index of their key in the
   cache; with a causal mask alone, they see the first branch. Rows of the second branch have their keys at other
   indices than word-by-word generation, so sums are cut elsewhere and outputs agree to rounding.

   Further reading: Miao and others, SpecInfer, arxiv.org/abs/2305.09781. One line of guesses: 21_rejected_draft.c.

   Output:
       word by word            60 calls
       with a tree of guesses  ## calls: ## guesses right
       the same words, the same cache
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 60, GUESSES = 4, D = 64, HEADS = 4, WORDS = 24, TREE = 1 + 2 * GUESSES, ROOM = STEPS + TREE };

static float w_q[D * D], w_k[D * D], w_v[D * D], w_o[D * D], words[WORDS * D], rope[ROOM * (D / HEADS)];
static attn_mha layer;

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG has printed the reason */

/* Pseudo-random numbers in -size .. size in place of a model's; the same on every machine. */
static void fill(float *x, int n, float size, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = size * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
}

static int best_word(const float *y)
{
    int best = 0;
    float most = 0;
    for (int w = 0; w < WORDS; w++) {
        float fit = 0;
        for (int i = 0; i < D; i++) fit += words[w * D + i] * y[i];
        if (w == 0 || fit > most) {
            best = w;
            most = fit;
        }
    }
    return best;
}

static void word_by_word(attn_kv *c, int *text)
{
    float y[D];
    for (int n = 0; n < STEPS; n++) {
        ok(attn_mha_self_step(&layer, y, words + text[n] * D, 1, 1, c, NULL));
        text[n + 1] = best_word(y);
    }
}

/* Returns the word after the previous occurrence of the last word; if there is none, the last word itself. */
static int guess(const int *text, int n)
{
    for (int i = n - 2; i >= 0; i--)
        if (text[i] == text[n - 1]) return text[i + 1];
    return text[n - 1];
}

/* A tree of guesses: row 0 is the last word of the text, each other row follows its parent. */
typedef struct tree { int rows, word[TREE], parent[TREE], depth[TREE]; } tree;

static int grow(tree *t, int parent, int word)
{
    t->word[t->rows] = word;
    t->parent[t->rows] = parent;
    t->depth[t->rows] = parent < 0 ? 0 : t->depth[parent] + 1;
    return t->rows++;
}

/* Two branches of GUESSES words: one begins with the guess for the next word, the other with another word that has
   also followed the last word. */
static tree guess_tree(const int *text, int n)
{
    tree t = {0};
    int draft[ROOM + 1], begin[2], branches = n < STEPS;
    memcpy(draft, text, (size_t)n * sizeof *draft);
    begin[0] = guess(text, n);
    for (int i = n - 2; i >= 0 && branches == 1; i--)
        if (text[i] == text[n - 1] && text[i + 1] != begin[0]) begin[branches++] = text[i + 1];
    grow(&t, -1, text[n - 1]);
    for (int b = 0; b < branches; b++) {
        int parent = 0;
        for (int g = 0; g < GUESSES && n + g < STEPS; g++) {
            draft[n + g] = g == 0 ? begin[b] : guess(draft, n + g);
            parent = grow(&t, parent, draft[n + g]);
        }
    }
    return t;
}

/* One call for all rows of the tree: each row sees the text and its own ancestors. */
static void run_tree(const tree *t, attn_kv *c, float *y)
{
    const int past = c->lengths[0], width = past + t->rows;
    float x[TREE * D], mask[TREE * ROOM];
    int positions[TREE];
    attn_mha_opts o = {0};
    for (int r = 0; r < t->rows; r++) {
        memcpy(x + r * D, words + t->word[r] * D, D * sizeof *x);
        positions[r] = past + t->depth[r];                       /* the position in the text */
        for (int j = 0; j < width; j++) mask[r * width + j] = j < past ? 0 : -INFINITY;
        for (int up = r; up >= 0; up = t->parent[up]) mask[r * width + past + up] = 0;
    }
    o.attn.mask = mask;
    o.rope_pos = positions;
    ok(attn_mha_self_step(&layer, y, x, 1, t->rows, c, &o));
}

/* Generates the text with trees; counts the calls and the right guesses. */
static void by_trees(attn_kv *c, int *text, int *calls, int *right)
{
    *calls = *right = 0;
    for (int n = 1; n <= STEPS; ++*calls) {
        const tree t = guess_tree(text, n);
        const int past = c->lengths[0];
        float y[TREE * D];
        int path[TREE], kept = 0, row = 0;
        run_tree(&t, c, y);
        /* Follows the right guesses, from the last word of the text on. */
        while (row >= 0) {
            int next = -1;
            path[kept++] = past + row;
            text[n++] = best_word(y + row * D);
            for (int child = 1; child < t.rows; child++)
                if (t.parent[child] == row && t.word[child] == text[n - 1]) next = child;
            *right += next >= 0;
            row = next;
        }
        ok(attn_kv_keep(c, 0, past, path, kept));
    }
}

int main(void)
{
    static int text[2][ROOM];
    static float keys[2][STEPS * D], values[2][STEPS * D];
    attn_kv caches[2];
    attn_kv_args room = {0};
    attn_mha_args shape = {0};
    int calls, right;
    fill(w_q, D * D, 0.35f, 1);
    fill(w_k, D * D, 0.35f, 2);
    fill(w_v, D * D, 0.2f, 3);
    fill(w_o, D * D, 0.2f, 4);
    fill(words, WORDS * D, 1, 5);
    ok(attn_rope_table(rope, ROOM, D / HEADS, NULL, 10000));

    shape.d_model = D;
    shape.heads = HEADS;
    shape.w_q = w_q;
    shape.w_k = w_k;
    shape.w_v = w_v;
    shape.w_o = w_o;
    shape.rope_table = rope;
    shape.positions = ROOM;
    ok(attn_mha_init(&layer, &shape));
    room.batch = 1;
    room.kv_heads = HEADS;
    room.head_dim = D / HEADS;
    room.capacity = ROOM;
    for (int i = 0; i < 2; i++) ok(attn_kv_init(&caches[i], &room));

    text[0][0] = text[1][0] = 3;
    word_by_word(&caches[0], text[0]);
    by_trees(&caches[1], text[1], &calls, &right);
    for (int i = 0; i < 2; i++) ok(attn_kv_read(&caches[i], 0, 0, STEPS, keys[i], values[i]));
    printf("word by word            %d calls\n", STEPS);
    printf("with a tree of guesses  %d calls: %d guesses right\n", calls, right);
    printf("the same words%s, the same cache%s\n",
           memcmp(text[0], text[1], (STEPS + 1) * sizeof(int)) ? ": NO" : "",
           memcmp(keys[0], keys[1], sizeof keys[0]) || memcmp(values[0], values[1], sizeof values[0]) ? ": NO" : "");
    attn_kv_free(&caches[0]);
    attn_kv_free(&caches[1]);
    attn_mha_free(&layer);
    return 0;
}
