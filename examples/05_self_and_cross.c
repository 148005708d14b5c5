/* 05_self_and_cross.c

   The question: Self-attention and cross-attention are the same function. What differs, shape by shape?
   What you will see: the shape of every tensor in both, and a table of what differs.

   Run:  cc -O2 -I. examples/05_self_and_cross.c && ./a.out

   Where people go wrong: the output has as many rows as there are QUERIES. The keys decide only how wide the
   weights are, and they disappear in the sum over them: source and target may have any two lengths.

   Further reading: Vaswani and others, arxiv.org/abs/1706.03762, 3.2.2 and figure 2; Alammar, The Illustrated
   Transformer, jalammar.github.io/illustrated-transformer.

   Output:
       SELF: 10 words of the target look at themselves
         query    from the target           [2, 10, 512]
         key      from the target           [2, 10, 512]
         value    from the target           [2, 10, 512]
         query    seen as 8 heads           [2, 8, 10, 64]
         key      seen as 8 heads           [2, 8, 10, 64]
         scores   query . key / sqrt(64)    [2, 8, 10, 10]
         mask     causal          + scores  [1, 1, 10, 10]
         weights  softmax of each row       [2, 8, 10, 10]   every row sums to 1: yes
         mixed    weights . value           [2, 8, 10, 64]
         out      heads side by side        [2, 10, 512]

       CROSS: the same 10 words look at 8 of the source
         query    from the target           [2, 10, 512]
         key      from the source           [2, 8, 512]
         value    from the source           [2, 8, 512]
         query    seen as 8 heads           [2, 8, 10, 64]
         key      seen as 8 heads           [2, 8, 8, 64]
         scores   query . key / sqrt(64)    [2, 8, 10, 8]
         mask     source padding  + scores  [2, 1, 1, 8]
         weights  softmax of each row       [2, 8, 10, 8]   every row sums to 1: yes
         mixed    weights . value           [2, 8, 10, 64]
         out      heads side by side        [2, 10, 512]

                       rows, keys  visible pairs of a head     row 0 depends on      one more word
                                   sentence 0    sentence 1    the last key          of the target
       encoder, self    8 x 8      64            48            yes                    8 x 8
       decoder, self   10 x 10     55            55            no                    11 x 11
       decoder, cross  10 x 8      80            60            yes                   11 x 8
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 2, T = 10, S = 8, D = 512, HEADS = 8, DIM = D / HEADS };

static float target[BATCH * T * D], memory[BATCH * S * D];     /* decoder states; the output of the encoder */
static float out[BATCH * T * D];
static float weights[BATCH * HEADS * T * T];                   /* large enough for both */

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

/* Pseudo-random numbers in -1 .. 1 in place of a model's; the same on every machine. */
static void fill(float *x, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

typedef struct kind {                                          /* of attention */
    const char *name, *from, *mask_name;
    const float *q, *kv;
    int n_q, n_k;
    const float *mask;
    int mask_batch, mask_rows;
} kind;

/* Attends and writes `weights`. Projections are left out: they keep every shape. */
static void attend(const kind *k)
{
    attn_args a = attn_args_for(BATCH, k->n_q, k->n_k, HEADS, DIM);
    a.out = out;
    a.q = k->q;
    a.k = k->kv;
    a.v = k->kv;
    a.mask = k->mask;
    a.mask_shape[0] = k->mask_batch;
    a.mask_shape[1] = 1;
    a.mask_shape[2] = k->mask_rows;
    a.weights = weights;
    ok(attn_sdpa(&a));
}

/* One attention; prints the shapes of all inputs, intermediate results and outputs. */
static void step_by_step(const char *title, const kind *k)
{
    attend(k);
    double worst = 0;
    for (int r = 0; r < BATCH * HEADS * k->n_q; r++) {
        double sum = -1;
        for (int j = 0; j < k->n_k; j++) sum += (double)weights[r * k->n_k + j];
        if (sum > worst) worst = sum;
        if (-sum > worst) worst = -sum;
    }
    printf("%s\n", title);
    printf("  query    from the target           [%d, %d, %d]\n", BATCH, k->n_q, D);
    printf("  key      from the %s           [%d, %d, %d]\n", k->from, BATCH, k->n_k, D);
    printf("  value    from the %s           [%d, %d, %d]\n", k->from, BATCH, k->n_k, D);
    printf("  query    seen as %d heads           [%d, %d, %d, %d]\n", HEADS, BATCH, HEADS, k->n_q, DIM);
    printf("  key      seen as %d heads           [%d, %d, %d, %d]\n", HEADS, BATCH, HEADS, k->n_k, DIM);
    printf("  scores   query . key / sqrt(%d)    [%d, %d, %d, %d]\n", DIM, BATCH, HEADS, k->n_q, k->n_k);
    printf("  mask     %-15s + scores  [%d, 1, %d, %d]\n", k->mask_name, k->mask_batch, k->mask_rows, k->n_k);
    printf("  weights  softmax of each row       [%d, %d, %d, %d]   every row sums to 1: %s\n", BATCH, HEADS, k->n_q,
           k->n_k, worst < 1e-6 ? "yes" : "NO");
    printf("  mixed    weights . value           [%d, %d, %d, %d]\n", BATCH, HEADS, k->n_q, DIM);
    printf("  out      heads side by side        [%d, %d, %d]\n\n", BATCH, k->n_q, D);
}

/* Returns the pairs of row and key with a weight above 0, in one head of a sentence. */
static int visible(const kind *k, int sentence)
{
    int count = 0;
    for (int i = 0; i < k->n_q * k->n_k; i++) count += weights[sentence * HEADS * k->n_q * k->n_k + i] > 0;
    return count;
}

int main(void)
{
    static const int source[BATCH * S] = { 1, 2, 3, 4, 5, 6, 7, 8,   1, 2, 3, 4, 5, 6, 0, 0 };     /* 0: padding */
    float causal[T * T], padding[BATCH * S];
    ok(attn_mask_causal(causal, T, T, 0));
    ok(attn_mask_cross(padding, source, 0, BATCH, 1, S));

    fill(target, BATCH * T * D, 1);
    fill(memory, BATCH * S * D, 2);
    const kind encoder = { "encoder, self", "source", "source padding", memory, memory, S, S, padding, BATCH, 1 };
    const kind decoder = { "decoder, self", "target", "causal", target, target, T, T, causal, 1, T };
    const kind cross = { "decoder, cross", "source", "source padding", target, memory, T, S, padding, BATCH, 1 };
    step_by_step("SELF: 10 words of the target look at themselves", &decoder);
    step_by_step("CROSS: the same 10 words look at 8 of the source", &cross);

    /* A real program is shorter. With lengths[] = { 8, 6 } the three calls are
           attn_self (out, q, k, v, BATCH, S,    HEADS, DIM, 0, lengths, NULL);
           attn_self (out, q, k, v, BATCH, T,    HEADS, DIM, 1, NULL, NULL);
           attn_cross(out, q, k, v, BATCH, T, S, HEADS, DIM, lengths, NULL);
       The last table is computed from the weights: a pair is visible if its weight is above 0. One more word of the
       target adds a row, and a key only if keys come from the target. So the cache of the decoder's self-attention
       grows with each word; the cache of cross-attention is filled once per sentence. */
    const kind *const kinds[] = { &encoder, &decoder, &cross };
    printf("%-16s%-12s%-28s%-22s%s\n", "", "rows, keys", "visible pairs of a head", "row 0 depends on",
           "one more word");
    printf("%-16s%-12s%-14s%-14s%-22s%s\n", "", "", "sentence 0", "sentence 1", "the last key", "of the target");
    for (int i = 0; i < 3; i++) {
        const kind *k = kinds[i];
        attend(k);
        const int more_q = k->q == target, more_k = k->kv == target;
        printf("%-16s%2d x %-7d%-14d%-14d%-22s%2d x %d\n", k->name, k->n_q, k->n_k, visible(k, 0), visible(k, 1),
               weights[k->n_k - 1] > 0 ? "yes" : "no", k->n_q + more_q, k->n_k + more_k);
    }
    return 0;
}
