/* 21_rejected_draft.c

   The question: Guesses of the next words are checked in one call. What happens to the wrong ones?
   What you will see: the guesses that are accepted, and the same text as word by word.

   Run:  cc -O2 -I. examples/21_rejected_draft.c && ./a.out

   Where people go wrong: a rejected guess stays in the cache, and every later word attends to it. Checking appends the
   keys of all guesses; attn_kv_truncate removes those after the first wrong one.
   Positions of the rotary embedding follow from the length of the cache, so they are right again.

   A tree of guesses instead of one line: 23_tree_of_guesses.c.

   Further reading: Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding,
   arxiv.org/abs/2211.17192; the guess here, the word that followed the last time, is known as prompt lookup. Su and
   others, RoFormer, arxiv.org/abs/2104.09864.

   Output:
       word by word            60 calls
       with guesses of four    ## calls: ## guesses right, ## taken back
       the same words; outputs: the same bits
       keys of wrong guesses left in: other words from word ## on
       a second sentence after attn_kv_reset, and in a new cache: the same bits
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 60, GUESSES = 4, D = 64, HEADS = 4, WORDS = 24, ROOM = STEPS + GUESSES };

static float w_q[D * D], w_k[D * D], w_v[D * D], w_o[D * D], words[WORDS * D], rope[(STEPS + GUESSES) * (D / HEADS)];
static attn_mha layer;

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

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

/* Returns the word after the previous occurrence of the last word; if there is none, the last word itself. */
static int guess(const int *said, int n)
{
    for (int i = n - 2; i >= 0; i--) if (said[i] == said[n - 1]) return said[i + 1];
    return said[n - 1];
}

enum kind { WORD_BY_WORD, GUESSING, FORGETFUL };

/* Generates STEPS words after `first`, which is said[0], and stores the output from which each word follows. */
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
        /* A row is valid while the word before it was right: then its word is the one that word-by-word generation
           gives. */
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
    shape.d_model = D;
    shape.heads = HEADS;
    shape.w_q = w_q;
    shape.w_k = w_k;
    shape.w_v = w_v;
    shape.w_o = w_o;
    shape.rope_table = rope;
    shape.positions = STEPS + GUESSES;
    if (attn_mha_init(&layer, &shape)) return 1;                /* ATTN_DEBUG prints the reason */

    attn_kv caches[3];
    attn_kv_args room = {0};
    room.batch = 1;
    room.kv_heads = HEADS;
    room.head_dim = D / HEADS;
    room.capacity = ROOM;
    for (int i = 0; i < 3; i++) ok(attn_kv_init(&caches[i], &room));

    speak(WORD_BY_WORD, &caches[0], 3, said[0], out[0], &calls, &right, &wrong);
    printf("word by word            %d calls\n", calls);
    speak(GUESSING, &caches[1], 3, said[1], out[1], &calls, &right, &wrong);
    printf("with guesses of four    %d calls: %d guesses right, %d taken back\n", calls, right, wrong);
    printf("the same words%s; outputs: %s\n", memcmp(said[0], said[1], (STEPS + 1) * sizeof(int)) ? ": NO" : "",
           memcmp(out[0], out[1], sizeof out[0]) ? "DIFFERENT" : "the same bits");

    speak(FORGETFUL, &caches[2], 3, said[2], out[2], &calls, &right, &wrong);
    while (differs < STEPS && said[0][differs] == said[2][differs]) differs++;
    printf("keys of wrong guesses left in: other words from word %d on\n", differs);

    /* The next sentence: caches are emptied, not made again. */
    attn_kv fresh;
    ok(attn_kv_init(&fresh, &room));
    ok(attn_kv_reset(&caches[1], 0));
    speak(GUESSING, &caches[1], 7, said[1], out[1], &calls, &right, &wrong);
    speak(WORD_BY_WORD, &fresh, 7, said[0], out[0], &calls, &right, &wrong);
    printf("a second sentence after attn_kv_reset, and in a new cache: %s\n",
           memcmp(out[0], out[1], sizeof out[0]) ? "DIFFERENT" : "the same bits");

    for (int i = 0; i < 3; i++) attn_kv_free(&caches[i]);
    attn_kv_free(&fresh);
    attn_mha_free(&layer);
    return 0;
}
