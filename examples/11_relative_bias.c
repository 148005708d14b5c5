/* 11_relative_bias.c: the source has the same word twice. How can cross-attention distinguish the two?

   Run:  cc -O2 -I. examples/11_relative_bias.c && ./a.out

   Where people go wrong: attention ignores order. Two equal keys get equal weights at any position; only something that
   depends on the POSITIONS can distinguish them, and a bias is added to the scores before the softmax.

   Further reading: Raffel and others, T5, arxiv.org/abs/1910.10683, 2.1; Shaw, Uszkoreit and Vaswani,
   arxiv.org/abs/1803.02155.

   Output:
       without a bias both heads are torn between the two articles:
       head 0       die   Katze   sieht     die    Maus
            the    0.42    0.06    0.06    0.42    0.06
            cat    0.09    0.65    0.09    0.09    0.09
           sees    0.09    0.09    0.65    0.09    0.09
            the    0.42    0.06    0.06    0.42    0.06
          mouse    0.09    0.09    0.09    0.09    0.65

       with the bias, head 0 takes the near one:
       head 0       die   Katze   sieht     die    Maus
            the    0.89    0.04    0.02    0.04    0.00
            cat    0.04    0.89    0.04    0.02    0.01
           sees    0.02    0.04    0.88    0.04    0.02
            the    0.04    0.02    0.04    0.86    0.04
          mouse    0.00    0.01    0.02    0.05    0.93

       and head 1 still cannot tell:
       head 1       die   Katze   sieht     die    Maus
            the    0.42    0.06    0.06    0.42    0.06
            cat    0.09    0.65    0.09    0.09    0.09
           sees    0.09    0.09    0.65    0.09    0.09
            the    0.42    0.06    0.06    0.42    0.06
          mouse    0.09    0.09    0.09    0.09    0.65
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>

enum { T = 5, S = 5, HEADS = 2, DIM = 4, BUCKETS = 32, EXTENT = 128 };

static const char *const source[S] = { "die", "Katze", "sieht", "die", "Maus" };
static const char *const target[T] = { "the", "cat", "sees", "the", "mouse" };

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

static void table(const char *title, const float *weights)
{
    printf("%-8s", title);
    for (int j = 0; j < S; j++) printf("%8s", source[j]);
    puts("");
    for (int i = 0; i < T; i++) {
        printf("%8s", target[i]);
        for (int j = 0; j < S; j++) printf("%8.2f", (double)weights[i * S + j]);
        puts("");
    }
}

int main(void)
{
    /* Four meanings, so four columns: article, cat, to see, mouse. A query looks for its own meaning. */
    static const int meaning[S] = { 0, 1, 2, 0, 3 };
    float q[T * HEADS * DIM] = {0}, k[S * HEADS * DIM] = {0}, out[T * HEADS * DIM], weights[HEADS * T * S];
    for (int i = 0; i < S; i++)
        for (int h = 0; h < HEADS; h++) {
            int at = (i * HEADS + h) * DIM + meaning[i];
            q[at] = k[at] = 2;
        }

    /* Relative positions in T5's format: [buckets][heads]. The first half of the buckets is for keys at or before the
       query, the second for keys after it; distances 0 to 7 have a bucket each, longer ones share. Head 0 prefers near
       keys: it loses 1 per step. Head 1 ignores positions. */
    float learned[BUCKETS * HEADS], rel_bias[HEADS * (2 * EXTENT + 1)];
    for (int b = 0; b < BUCKETS; b++) {
        learned[b * HEADS + 0] = -1.0f * (float)(b % (BUCKETS / 2));
        learned[b * HEADS + 1] = 0;
    }
    ok(attn_bias_t5(rel_bias, learned, BUCKETS, 128, 0, HEADS, EXTENT));        /* a number per head and distance */

    attn_args a = attn_args_for(1, T, S, HEADS, DIM);
    a.out = out;
    a.q = q;
    a.k = a.v = k;
    a.weights = weights;
    ok(attn_sdpa(&a));
    puts("without a bias both heads are torn between the two articles:");
    table("head 0", weights);

    a.rel_bias = rel_bias;
    a.rel_extent = EXTENT;
    ok(attn_sdpa(&a));
    puts("\nwith the bias, head 0 takes the near one:");
    table("head 0", weights);
    puts("\nand head 1 still cannot tell:");
    table("head 1", weights + T * S);
    return 0;
}
