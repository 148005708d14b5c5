/* 21_rejected_draft.c

   The question: Guesses of the next words are checked in one call. What happens to the wrong ones?
   What you will see: the guesses that are accepted, and the same text as word by word.

   Run:  cc -O2 -I. examples/21_rejected_draft.c && ./a.out

   Where people go wrong: a rejected guess stays in the cache, and every later word attends to it. Checking appends the
   keys of all guesses; attn_kv_truncate removes those after the first wrong one.
   Positions of the rotary embedding follow from the length of the cache, so they are right again.

   Two guesses for the same word make a tree. Its rows are consecutive in the cache, but not in the text: a
   mask shows each row its ancestors only, and rope_pos holds its depth. Of the tree one path is right;
   attn_kv_keep keeps the keys of that path and drops the rest. Rows of a second branch see their keys at other places
   than word by word, so sums are cut elsewhere: their numbers are the same to rounding.

   Further reading: Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding,
   arxiv.org/abs/2211.17192; the guess here, what followed the last time, is known as prompt lookup. Su and others,
   RoFormer, arxiv.org/abs/2104.09864.

   Output:
       word by word            60 calls
       with guesses of four    ## calls: ## guesses right, ## taken back
       the same words; outputs: the same bits
       keys of wrong guesses left in: other words from word ## on
       with a tree of guesses  ## calls: ## guesses right; the same words, the same cache
       a second sentence after attn_kv_reset, and in a new cache: the same bits
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 60, GUESSES = 4, D = 64, HEADS = 4, WORDS = 24, TREE = 1 + 2 * GUESSES, ROOM = STEPS + TREE };

static float w_q[D * D], w_k[D * D], w_v[D * D], w_o[D * D], words[WORDS * D], rope[(STEPS + GUESSES) * (D / HEADS)];
static attn_mha layer;

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG has said why on stderr */

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
        if (w == 0 || fit > most) { best = w;  most = fit; }
    }
    return best;
}

/* What followed the last word the last time it was there; the last word again where there was no last time. */
static int guess(const int *said, int n)
{
    for (int i = n - 2; i >= 0; i--) if (said[i] == said[n - 1]) return said[i + 1];
    return said[n - 1];
}

enum kind { WORD_BY_WORD, GUESSING, FORGETFUL };

/* Says STEPS words behind `first`, said[0], and keeps the output behind which each was found. */
static void speak(enum kind kind, attn_kv *c, int first, int *said, float *out, int *calls, int *right, int *wrong)
{
    float x[(1 + GUESSES) * D], y[(1 + GUESSES) * D];
    int n = 1;
    *calls = *right = *wrong = 0;
    for (said[0] = first; n <= STEPS;) {
        int rows = 1, kept = 1;
        if (kind != WORD_BY_WORD) {
            for (; rows <= GUESSES && n + rows <= STEPS; rows++) said[n + rows - 1] = guess(said, n + rows - 1);
        }
        for (int r = 0; r < rows; r++) memcpy(x + r * D, words + said[n - 1 + r] * D, D * sizeof *x);
        ok(attn_mha_self_step(&layer, y, x, 1, rows, c, NULL));          /* all rows in one call, causal */
        ++*calls;
        /* A row counts while the word before it was right: then its own word is what would have come one by one. */
        for (int r = 0; r < rows; r++) {
            const int word = best_word(y + r * D), guessed = said[n];
            memcpy(out + (n - 1) * D, y + r * D, D * sizeof *y);
            said[n++] = word;
            kept = r + 1;
            if (r + 1 < rows && word != guessed) break;
            *right += r + 1 < rows;
        }
        *wrong += rows - kept;
        if (kind == GUESSING) ok(attn_kv_truncate(c, 0, n - 1));         /* the last word has no key yet */
        if (kind == FORGETFUL && c->lengths[0] > STEPS - 1 - GUESSES) return;
    }
}

/* A tree of guesses: row 0 is the last word said, each other row goes on behind its parent. */
typedef struct tree { int rows, word[TREE], parent[TREE], depth[TREE]; } tree;

static int grow(tree *t, int parent, int word)
{
    t->word[t->rows] = word;
    t->parent[t->rows] = parent;
    t->depth[t->rows] = parent < 0 ? 0 : t->depth[parent] + 1;
    return t->rows++;
}

/* Two branches of GUESSES words: one begins with the guess for the next word, the other with what also followed. */
static tree guess_tree(const int *said, int n)
{
    tree t = {0};
    int text[ROOM + 1], begin[2], branches = n < STEPS;
    memcpy(text, said, (size_t)n * sizeof *text);
    begin[0] = guess(said, n);
    for (int i = n - 2; i >= 0 && branches == 1; i--)
        if (said[i] == said[n - 1] && said[i + 1] != begin[0]) begin[branches++] = said[i + 1];
    grow(&t, -1, said[n - 1]);
    for (int b = 0; b < branches; b++)
        for (int g = 0, parent = 0; g < GUESSES && n + g < STEPS; g++) {
            text[n + g] = g == 0 ? begin[b] : guess(text, n + g);
            parent = grow(&t, parent, text[n + g]);
        }
    return t;
}

static void speak_tree(attn_kv *c, int first, int *said, int *calls, int *right)
{
    int n = 1;
    *calls = *right = 0;
    for (said[0] = first; n <= STEPS; ++*calls) {
        const tree t = guess_tree(said, n);
        const int past = c->lengths[0], width = past + t.rows;
        float x[TREE * D], y[TREE * D], mask[TREE * ROOM];
        int pos[TREE], path[TREE], kept = 0;
        attn_mha_opts o = {0};
        for (int r = 0; r < t.rows; r++) {
            memcpy(x + r * D, words + t.word[r] * D, D * sizeof *x);
            pos[r] = past + t.depth[r];                                  /* where it would stand in the text */
            for (int j = 0; j < width; j++) mask[r * width + j] = j < past ? 0 : -INFINITY;
            for (int up = r; up >= 0; up = t.parent[up]) mask[r * width + past + up] = 0;
        }
        o.attn.mask = mask;
        o.rope_pos = pos;
        ok(attn_mha_self_step(&layer, y, x, 1, t.rows, c, &o));
        /* From the last word said along the guesses that are right. */
        for (int r = 0, next; r >= 0; r = next) {
            path[kept++] = past + r;
            said[n++] = best_word(y + r * D);
            next = -1;
            for (int child = 1; child < t.rows; child++)
                if (t.parent[child] == r && t.word[child] == said[n - 1]) next = child;
            *right += next >= 0;
        }
        ok(attn_kv_keep(c, 0, past, path, kept));
    }
}

int main(void)
{
    static float out[3][STEPS * D];
    static int said[3][STEPS + GUESSES + 1];
    int calls, right, wrong, differs = 0;
    fill(w_q, D * D, 0.35f, 1);
    fill(w_k, D * D, 0.35f, 2);
    fill(w_v, D * D, 0.2f, 3);
    fill(w_o, D * D, 0.2f, 4);
    fill(words, WORDS * D, 1, 5);
    ok(attn_rope_table(rope, STEPS + GUESSES, D / HEADS, NULL, 10000));

    attn_mha_args shape = {0};
    shape.d_model = D;  shape.heads = HEADS;
    shape.w_q = w_q;  shape.w_k = w_k;  shape.w_v = w_v;  shape.w_o = w_o;
    shape.rope_table = rope;  shape.rope_positions = STEPS + GUESSES;
    if (attn_mha_init(&layer, &shape)) return 1;                /* ATTN_DEBUG says why */

    attn_kv caches[4];
    attn_kv_args room = {0};
    room.batch = 1;  room.kv_heads = HEADS;  room.head_dim = D / HEADS;  room.capacity = ROOM;
    for (int i = 0; i < 4; i++) ok(attn_kv_init(&caches[i], &room));

    speak(WORD_BY_WORD, &caches[0], 3, said[0], out[0], &calls, &right, &wrong);
    printf("word by word            %d calls\n", calls);
    speak(GUESSING, &caches[1], 3, said[1], out[1], &calls, &right, &wrong);
    printf("with guesses of four    %d calls: %d guesses right, %d taken back\n", calls, right, wrong);
    printf("the same words%s; outputs: %s\n", memcmp(said[0], said[1], (STEPS + 1) * sizeof(int)) ? ": NO" : "",
           memcmp(out[0], out[1], sizeof out[0]) ? "DIFFERENT" : "the same bits");

    speak(FORGETFUL, &caches[2], 3, said[2], out[2], &calls, &right, &wrong);
    while (differs < STEPS && said[0][differs] == said[2][differs]) differs++;
    printf("keys of wrong guesses left in: other words from word %d on\n", differs);

    static int in_tree[ROOM];
    static float keys[2][STEPS * D], values[2][STEPS * D];
    speak_tree(&caches[3], 3, in_tree, &calls, &right);
    for (int i = 0; i < 2; i++) ok(attn_kv_read(&caches[i ? 3 : 0], 0, 0, STEPS, keys[i], values[i]));
    printf("with a tree of guesses  %d calls: %d guesses right; the same words%s, the same cache%s\n", calls, right,
           memcmp(said[0], in_tree, (STEPS + 1) * sizeof(int)) ? ": NO" : "",
           memcmp(keys[0], keys[1], sizeof keys[0]) || memcmp(values[0], values[1], sizeof values[0]) ? ": NO" : "");

    /* The next sentence: the caches are emptied, not made again. */
    attn_kv fresh;
    ok(attn_kv_init(&fresh, &room));
    ok(attn_kv_reset(&caches[1], 0));
    speak(GUESSING, &caches[1], 7, said[1], out[1], &calls, &right, &wrong);
    speak(WORD_BY_WORD, &fresh, 7, said[0], out[0], &calls, &right, &wrong);
    printf("a second sentence after attn_kv_reset, and in a new cache: %s\n",
           memcmp(out[0], out[1], sizeof out[0]) ? "DIFFERENT" : "the same bits");

    for (int i = 0; i < 4; i++) attn_kv_free(&caches[i]);
    attn_kv_free(&fresh);
    attn_mha_free(&layer);
    return 0;
}
