/* 05_self_and_cross.c

   The question: Self-attention and cross-attention are the same function. What differs, shape by shape?
   What you will see: the shape of every tensor in both.

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

                               self (encoder)    self (decoder)         cross
       query from              source            target                 target
       key and value from      source            target                 source, through the encoder
       weights                 [S, S]            [T, T]                 [T, S]
       mask                    source padding    causal, own padding    source padding
       may see the future      yes               no                     there is none: S is complete
       keys while generating   all there         one more a word        all there, always the same
       so its cache            none needed       grows: append          filled once a sentence
       scores for each head    S * S = 64        T * (T + 1) / 2 = 55   T * S = 80
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

static void fill(float *x, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

/* One attention; prints the shapes of all inputs, intermediate results and outputs. */
static void step_by_step(const char *title, const float *q, int n_q, const float *kv, int n_k,
                         const char *mask_name, const float *mask, int mask_batch, int mask_rows)
{
    attn_args a = attn_args_for(BATCH, n_q, n_k, HEADS, DIM);
    a.out = out;
    a.q = q;
    a.k = kv;
    a.v = kv;  /* projections left out: they keep every shape */
    a.mask = mask;
    a.mask_shape[0] = mask_batch;
    a.mask_shape[1] = 1;
    a.mask_shape[2] = mask_rows;
    a.weights = weights;
    ok(attn_sdpa(&a));

    double worst = 0;
    for (int r = 0; r < BATCH * HEADS * n_q; r++) {
        double sum = -1;
        for (int j = 0; j < n_k; j++) sum += (double)weights[r * n_k + j];
        if (sum > worst) worst = sum;
        if (-sum > worst) worst = -sum;
    }
    const char *from = kv == q ? "target" : "source";
    printf("%s\n", title);
    printf("  query    from the target           [%d, %d, %d]\n", BATCH, n_q, D);
    printf("  key      from the %s           [%d, %d, %d]\n", from, BATCH, n_k, D);
    printf("  value    from the %s           [%d, %d, %d]\n", from, BATCH, n_k, D);
    printf("  query    seen as %d heads           [%d, %d, %d, %d]\n", HEADS, BATCH, HEADS, n_q, DIM);
    printf("  key      seen as %d heads           [%d, %d, %d, %d]\n", HEADS, BATCH, HEADS, n_k, DIM);
    printf("  scores   query . key / sqrt(%d)    [%d, %d, %d, %d]\n", DIM, BATCH, HEADS, n_q, n_k);
    printf("  mask     %-15s + scores  [%d, 1, %d, %d]\n", mask_name, mask_batch, mask_rows, n_k);
    printf("  weights  softmax of each row       [%d, %d, %d, %d]   every row sums to 1: %s\n", BATCH, HEADS, n_q, n_k,
           worst < 1e-6 ? "yes" : "NO");
    printf("  mixed    weights . value           [%d, %d, %d, %d]\n", BATCH, HEADS, n_q, DIM);
    printf("  out      heads side by side        [%d, %d, %d]\n\n", BATCH, n_q, D);
}

int main(void)
{
    static const int source[BATCH * S] = { 1, 2, 3, 4, 5, 6, 7, 8,   1, 2, 3, 4, 5, 6, 0, 0 };     /* 0: padding */
    float causal[T * T], padding[BATCH * S];
    ok(attn_mask_causal(causal, T, T, 0));
    ok(attn_mask_cross(padding, source, 0, BATCH, 1, S));

    fill(target, BATCH * T * D, 1);
    fill(memory, BATCH * S * D, 2);
    step_by_step("SELF: 10 words of the target look at themselves", target, T, target, T, "causal", causal, 1, T);
    step_by_step("CROSS: the same 10 words look at 8 of the source", target, T, memory, S, "source padding", padding,
                 BATCH, 1);

    /* A real program is shorter. With lengths[] = { 8, 6 } the two calls are
           attn_self (out, q, k, v, BATCH, T,    HEADS, DIM, 1, NULL, NULL);
           attn_cross(out, q, k, v, BATCH, T, S, HEADS, DIM, lengths, NULL);
           */;

    puts("                        self (encoder)    self (decoder)         cross");
    puts("query from              source            target                 target");
    puts("key and value from      source            target                 source, through the encoder");
    puts("weights                 [S, S]            [T, T]                 [T, S]");
    puts("mask                    source padding    causal, own padding    source padding");
    puts("may see the future      yes               no                     there is none: S is complete");
    puts("keys while generating   all there         one more a word        all there, always the same");
    puts("so its cache            none needed       grows: append          filled once a sentence");
    printf("scores for each head    S * S = %d        T * (T + 1) / 2 = %d   T * S = %d\n",
           S * S, T * (T + 1) / 2, T * S);
    return 0;
}
