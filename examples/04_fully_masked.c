/* 04_fully_masked.c

   The question: What is the output of a row that sees no key, and why is -1e9 not -inf?
   What you will see: the outputs of empty rows, and of rows masked with -1e9.

   Run:  cc -O2 -I. examples/04_fully_masked.c && ./a.out

   Where people go wrong: -1e9 is a number, and the softmax depends on differences only. It loses against a
   better score, but a row in which everything is -1e9 is a row in which everything is equally good, the hidden
   keys included.

   Further reading: github.com/pytorch/pytorch/issues/41508, a layer that makes NaN of such a row.

   Output:
         mask    weights of the 4 keys            out        lse  masked_rows
       one key of four hidden: no difference to see
         -inf    0.665  0.245  0.090  0.000     14.25       2.41            0
         -1e9    0.665  0.245  0.090  0.000     14.25       2.41            0
       all four hidden: -inf gives zeros and counts the row; -1e9 gives the mean of the hidden values
         -inf    0.000  0.000  0.000  0.000      0.00       -inf            1
         -1e9    0.250  0.250  0.250  0.250     25.00     -1e+09            0
       one key hidden, its value was never written (NaN): a weight of 0 does not protect, 0 * NaN is NaN
         -inf    0.665  0.245  0.090  0.000     14.25       2.41            0
         -1e9    0.665  0.245  0.090  0.000       nan       2.41            0
       nothing hidden, the same NaN: it is visible, so the result is NaN
         none    0.237  0.087  0.032  0.644       nan       3.44            0
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <math.h>                                              /* INFINITY, NAN */
#include <stdio.h>
#include <stdlib.h>

enum { N = 4 };

static const float key[N] = { 2, 1, 0, 3 };                    /* with the query 1: the scores */

static void show(const char *what, const float *mask, const float *value)
{
    static const float query[1] = { 1 };
    float w[N], out, lse;
    size_t empty;
    attn_args a = attn_args_for(1, 1, N, 1, 1);                 /* batch, n_q, n_k, heads, head_dim */
    a.out = &out;
    a.q = query;
    a.k = key;
    a.v = value;
    a.mask = mask;
    a.weights = w;
    a.lse = &lse;
    a.masked_rows = &empty;
    if (attn_sdpa(&a)) exit(1);                                  /* ATTN_DEBUG prints the reason */

    printf("  %-6s", what);
    for (int j = 0; j < N; j++) printf("  %.3f", (double)w[j]);
    if (out != out) printf("  %8s", "nan"); else printf("  %8.2f", (double)out);
    if (lse < -1e30f) printf("  %9s", "-inf"); else printf("  %9.3g", (double)lse);
    printf("  %11d\n", (int)empty);
}

int main(void)
{
    static const float inf = INFINITY, big = 1e9f;
    const float value[N] = { 10, 20, 30, 40 }, broken[N] = { 10, 20, 30, NAN };
    const float some_inf[N] = { 0, 0, 0, -inf },       some_big[N] = { 0, 0, 0, -big };
    const float all_inf[N]  = { -inf, -inf, -inf, -inf }, all_big[N] = { -big, -big, -big, -big };

    printf("  %-6s  %-26s  %8s  %9s  %11s\n", "mask", "weights of the 4 keys", "out", "lse", "masked_rows");

    puts("one key of four hidden: no difference to see");
    show("-inf", some_inf, value);
    show("-1e9", some_big, value);

    puts("all four hidden: -inf gives zeros and counts the row; -1e9 gives the mean of the hidden values");
    show("-inf", all_inf, value);
    show("-1e9", all_big, value);

    puts("one key hidden, its value was never written (NaN): a weight of 0 does not protect, 0 * NaN is NaN");
    show("-inf", some_inf, broken);
    show("-1e9", some_big, broken);

    puts("nothing hidden, the same NaN: it is visible, so the result is NaN");
    show("none", NULL, broken);
    return 0;
}
