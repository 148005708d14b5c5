/* 02_batch_masks.c

   The question: Two sentences of different length are in one batch. What does the cross-attention mask look
   like?
   What you will see: the mask of each sentence, additive and as keep bytes, with its shape.

   Run:  cc -O2 -I. examples/02_batch_masks.c && ./a.out

   Where people go wrong: the padding of the source makes all rows of a sentence equal, because it hides columns.
   A mask of shape [2, 1, 1, 6], or two lengths, means the same as [2, 1, 5, 6]. And 1 and 0 are not for adding:
   a 1/0 matrix that is added to the scores hides nothing (it makes the pads e times lighter than the words).

   Further reading: the ONNX operator Attention, onnx.ai/onnx/operators/onnx__Attention.html: a boolean and an additive
   attn_mask in one place; PORTING.md beside this has tables for other libraries.

   Output:
       mask, shape [2, 1, 5, 6]: batch, heads (1: all heads share it), queries, keys
       added to the scores                         the same as 1 = attend, 0 = hide: keep bytes
       [[[[   0,    0,    0,    0, -inf, -inf],    [[[[1, 1, 1, 1, 0, 0],
          [   0,    0,    0,    0, -inf, -inf],       [1, 1, 1, 1, 0, 0],
          [   0,    0,    0,    0, -inf, -inf],       [1, 1, 1, 1, 0, 0],
          [   0,    0,    0,    0, -inf, -inf],       [1, 1, 1, 1, 0, 0],
          [   0,    0,    0,    0, -inf, -inf]]],     [1, 1, 1, 1, 0, 0]]],

        [[[   0,    0,    0, -inf, -inf, -inf],     [[[1, 1, 1, 0, 0, 0],
          [   0,    0,    0, -inf, -inf, -inf],       [1, 1, 1, 0, 0, 0],
          [   0,    0,    0, -inf, -inf, -inf],       [1, 1, 1, 0, 0, 0],
          [   0,    0,    0, -inf, -inf, -inf],       [1, 1, 1, 0, 0, 0],
          [   0,    0,    0, -inf, -inf, -inf]]]]     [1, 1, 1, 0, 0, 0]]]]

       lengths counted from the tokens: {4, 3}
       output with the [2, 1, 5, 6] mask, as 1 and 0, with a [2, 1, 1, 6] mask and with the lengths: the same bits
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAD = 0, BATCH = 2, T = 5, S = 6, HEADS = 8, DIM = 64, W = HEADS * DIM };

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

int main(void)
{
    static const int source[BATCH * S] = { 11, 12, 13, 14, PAD, PAD,          /* 4 real tokens of 6 */
                                           21, 22, 23, PAD, PAD, PAD };       /* 3 real tokens of 6 */
    float mask[BATCH * T * S], key_only[BATCH * S];
    unsigned char keep[BATCH * T * S];
    ok(attn_mask_cross(mask, source, PAD, BATCH, T, S));
    ok(attn_mask_cross(key_only, source, PAD, BATCH, 1, S));

    printf("mask, shape [%d, 1, %d, %d]: batch, heads (1: all heads share it), queries, keys\n", BATCH, T, S);
    puts("added to the scores                         the same as 1 = attend, 0 = hide: keep bytes");
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < T; i++) {
            const char *open = b + i == 0 ? "[[[[" : i == 0 ? " [[[" : "   [";
            const char *close = i < T - 1 ? "]," : b < BATCH - 1 ? "]]]," : "]]]]";
            for (int j = 0; j < S; j++)
                printf("%s%4s", j == 0 ? open : ", ", mask[(b * T + i) * S + j] < 0 ? "-inf" : "0");
            printf("%-6s", close);
            for (int j = 0; j < S; j++) {
                keep[(b * T + i) * S + j] = !(mask[(b * T + i) * S + j] < 0);
                printf("%s%d", j == 0 ? open : ", ", keep[(b * T + i) * S + j]);
            }
            printf("%s%s", close, i == T - 1 && b < BATCH - 1 ? "\n\n" : "\n");
        }

    /* Four forms of this mask. */
    static float q[BATCH * T * W], k[BATCH * S * W], v[BATCH * S * W];
    static float by_mask[BATCH * T * W], by_key_mask[BATCH * T * W], by_lengths[BATCH * T * W], by_keep[BATCH * T * W];
    for (int i = 0; i < BATCH * T * W; i++) q[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < BATCH * S * W; i++) k[i] = (float)(i * 53 % 103) / 50 - 1;
    for (int i = 0; i < BATCH * S * W; i++) v[i] = (float)(i * 71 % 107) / 50 - 1;

    ok(attn_cross(by_mask, q, k, v, BATCH, T, S, HEADS, DIM, NULL, mask));          /* [2][5][6] floats */

    attn_args a = attn_args_for(BATCH, T, S, HEADS, DIM);
    a.out = by_key_mask;
    a.q = q;
    a.k = k;
    a.v = v;
    a.mask = key_only;
    a.mask_shape[0] = BATCH;
    a.mask_shape[1] = 1;
    a.mask_shape[2] = 1;
    ok(attn_sdpa(&a));                                                              /* [2][6] floats */

    attn_args c = attn_args_for(BATCH, T, S, HEADS, DIM);
    c.out = by_keep;
    c.q = q;
    c.k = k;
    c.v = v;
    c.keep = keep;
    c.keep_shape[0] = BATCH;
    c.keep_shape[1] = 1;
    c.keep_shape[2] = T;
    ok(attn_sdpa(&c));                                                              /* [2][5][6] bytes */

    int lengths[BATCH];
    ok(attn_lengths(lengths, source, PAD, BATCH, S));
    ok(attn_cross(by_lengths, q, k, v, BATCH, T, S, HEADS, DIM, lengths, NULL));    /* 2 numbers */

    printf("\nlengths counted from the tokens: {%d, %d}\n", lengths[0], lengths[1]);
    printf("output with the [2, 1, 5, 6] mask, as 1 and 0, with a [2, 1, 1, 6] mask and with the lengths: %s\n",
           !memcmp(by_mask, by_keep, sizeof by_mask) && !memcmp(by_mask, by_key_mask, sizeof by_mask) &&
           !memcmp(by_mask, by_lengths, sizeof by_mask) ? "the same bits" : "DIFFERENT");
    return 0;
}
