/* 09_beam_search.c

   The question: How does a beam search keep three sentences and one cache consistent?
   What you will see: the beams step by step, and their parents.

   Run:  cc -O2 -I. examples/09_beam_search.c && ./a.out

   Where people go wrong: when two of the three best continue the same beam, one beam dies and another one lives twice.
   The cache has to follow (reorder by the parents) BEFORE the next token is appended.

   Further reading: Sutskever, Vinyals and Le, Sequence to Sequence Learning, arxiv.org/abs/1409.3215, 3.2.

   Output:
       step  best words   their beams   beams that die
          1     9 12 16      { 0, 0, 0 }   1 2
          2     6 12 18      { 0, 2, 0 }   1
          3    12 13  1      { 0, 2, 1 }
          4    13 12 12      { 0, 0, 1 }   2
          5    13 17 12      { 1, 0, 0 }   2
          6    17 13 18      { 0, 2, 1 }
          7    17 18 13      { 1, 0, 2 }
          8    13 18  6      { 1, 0, 1 }   2

       beam 0: 0 9 6 12 12 13 17 18 13, log p -12.74, decoded alone: the same bits
       beam 1: 0 9 6 12 13 12 13 17 18, log p -13.02, decoded alone: the same bits
       beam 2: 0 9 6 12 12 13 17 18 6, log p -13.04, decoded alone: the same bits
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEAMS = 3, STEPS = 8, D = 32, HEADS = 4, WORDS = 20 };

static float w_q[D * D], w_k[D * D], w_v[D * D], w_o[D * D], words[WORDS * D], speech[WORDS * D];
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

static void cache_init(attn_kv *c, int batch)
{
    attn_kv_args room = {0};
    room.batch = batch;
    room.kv_heads = HEADS;
    room.head_dim = D / HEADS;
    room.capacity = STEPS;
    ok(attn_kv_init(c, &room));
}

/* One token for each entry of the batch: appends to the cache, writes y = x + attention(x), [batch][D]. */
static void step(float *y, const int *tokens, int batch, attn_kv *c)
{
    float x[BEAMS * D];
    for (int b = 0; b < batch; b++) memcpy(x + b * D, words + tokens[b] * D, D * sizeof *x);
    ok(attn_mha_self_step(&layer, y, x, batch, 1, c, NULL));
    for (int i = 0; i < batch * D; i++) y[i] += x[i];
}

/* log p[batch][WORDS] of the next word. Rows against a table of words is attention once more: the raw scores are the
   logits, and lse is the logarithm of the sum that a softmax divides by. */
static void log_p(float *p, const float *y, int batch)
{
    float out[BEAMS * D], lse[BEAMS];
    attn_args a = attn_args_for(1, batch, WORDS, 1, D);
    a.out = out;
    a.q = y;
    a.k = a.v = speech;
    a.scale = 1;
    a.weights = p;
    a.weights_stage = ATTN_SCORES_RAW;
    a.lse = lse;
    ok(attn_sdpa(&a));
    for (int b = 0; b < batch; b++) for (int w = 0; w < WORDS; w++) p[b * WORDS + w] -= lse[b];
}

/* Finds the best three continuations: the parent beam, the word and the sum of each. Reads `beams` rows of p. */
static void best_three(int *parent, int *word, float *sum, const float *total, const float *p, int beams)
{
    for (int n = 0; n < BEAMS; n++) {
        int best = -1;
        for (int i = 0; i < beams * WORDS; i++) {
            int taken = 0;
            for (int m = 0; m < n; m++) taken |= parent[m] * WORDS + word[m] == i;
            const float s = total[i / WORDS] + p[i];
            if (!taken && (best < 0 || s > sum[n])) {
                best = i;
                sum[n] = s;
            }
        }
        parent[n] = best / WORDS;
        word[n] = best % WORDS;
    }
}

int main(void)
{
    fill(w_q, D * D, 0.4f, 1);
    fill(w_k, D * D, 0.4f, 2);
    fill(w_v, D * D, 0.4f, 3);
    fill(w_o, D * D, 0.4f, 4);
    fill(words, WORDS * D, 1, 5);
    fill(speech, WORDS * D, 0.4f, 26);

    attn_mha_args shape = {0};
    shape.d_model = D;
    shape.heads = HEADS;
    shape.w_q = w_q;
    shape.w_k = w_k;
    shape.w_v = w_v;
    shape.w_o = w_o;
    if (attn_mha_init(&layer, &shape)) return 1;                /* ATTN_DEBUG prints the reason */

    attn_kv cache;
    cache_init(&cache, BEAMS);
    int sentence[BEAMS][STEPS] = {{0}}, token[BEAMS] = {0};                 /* all three start with word 0 */
    float total[BEAMS] = {0}, y[BEAMS * D], kept[BEAMS * D], p[BEAMS * WORDS];

    puts("step  best words   their beams   beams that die");
    for (int t = 0; t < STEPS; t++) {
        step(y, token, BEAMS, &cache);
        log_p(p, y, BEAMS);

        /* at the first step all beams are equal: only one of them is continued */
        int parent[BEAMS], word[BEAMS], old[BEAMS][STEPS];
        float sum[BEAMS];
        best_three(parent, word, sum, total, p, t == 0 ? 1 : BEAMS);

        /* Everything that belongs to a beam moves with it: the cache, the sentence, the sum. Beams share the whole
           pages (128 keys) that they have in common, and a step reads those once for all of them. */
        ok(attn_kv_reorder(&cache, parent));
        memcpy(old, sentence, sizeof old);
        for (int n = 0; n < BEAMS; n++) {
            memcpy(sentence[n], old[parent[n]], sizeof old[0]);
            memcpy(kept + n * D, y + parent[n] * D, D * sizeof *y);
            token[n] = sentence[n][t] = word[n];
            total[n] = sum[n];
        }
        printf("%4d  %4d %2d %2d      { %d, %d, %d }  ",
               t + 1, word[0], word[1], word[2], parent[0], parent[1], parent[2]);
        for (int n = 0; n < BEAMS; n++)
            if (parent[0] != n && parent[1] != n && parent[2] != n) printf(" %d", n);
        puts("");
    }

    /* The proof: decodes each survivor separately, in another cache that was never reordered. */
    puts("");
    for (int n = 0; n < BEAMS; n++) {
        attn_kv alone;
        int next = 0;
        cache_init(&alone, 1);
        for (int t = 0; t < STEPS; t++) {
            step(y, &next, 1, &alone);
            next = sentence[n][t];
        }
        printf("beam %d: 0", n);
        for (int t = 0; t < STEPS; t++) printf(" %d", sentence[n][t]);
        printf(", log p %.2f, decoded alone: %s\n", (double)total[n],
               memcmp(y, kept + n * D, D * sizeof *y) == 0 ? "the same bits" : "DIFFERENT");
        attn_kv_free(&alone);
    }
    attn_kv_free(&cache);
    attn_mha_free(&layer);
    return 0;
}
