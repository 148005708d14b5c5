/* 12_padded_batch.c

   The question: Is the result of a sentence in a padded batch the same as alone?
   What you will see: the same bits, although every pad is NaN.

   Run:  cc -O2 -I. examples/12_padded_batch.c && ./a.out

   Where people go wrong: a result that is almost the same is the sign of a padding bug. Here it is the same to the
   last bit, with pads at the end (lengths) or at the front (k_starts), and with NaN in every pad to prove that pads
   are never read.

   Further reading: the paragraph POSITIONS at the top of attn.h; He, Defeating Nondeterminism in LLM Inference, 2025,
   on how other libraries can give one answer for any batch.

   Output:
       self-attention (encoder)
         sentence of 7 in a batch of 7:  pads after:  the same bits   pads before: the same bits
         sentence of 3 in a batch of 7:  pads after:  the same bits   pads before: the same bits
         sentence of 5 in a batch of 7:  pads after:  the same bits   pads before: the same bits
       causal self-attention (decoder)
         sentence of 7 in a batch of 7:  pads after:  the same bits   pads before: the same bits
         sentence of 3 in a batch of 7:  pads after:  the same bits   pads before: the same bits
         sentence of 5 in a batch of 7:  pads after:  the same bits   pads before: the same bits
       numbers in the padded rows of the second sentence: 256, of them zero: 256
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <math.h>                                              /* NAN */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, N = 7, HEADS = 4, DIM = 16, W = HEADS * DIM };

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

/* Pseudo-random numbers in -1 .. 1 in place of a model's; the same on every machine. */
static void fill(float *x, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static const char *verdict(const float *a, const float *b, int rows)
{
    return memcmp(a, b, (size_t)rows * W * sizeof *a) == 0 ? "the same bits" : "DIFFERENT";
}

int main(void)
{
    static const int lengths[BATCH] = { 7, 3, 5 };
    static float alone[BATCH][N * W], right[BATCH * N * W], left[BATCH * N * W];
    static float alone_out[BATCH][N * W], right_out[BATCH * N * W], left_out[BATCH * N * W];
    int starts[BATCH];

    /* The same sentences three times: alone, in a batch padded on the right, in a batch padded on the left. */
    for (int i = 0; i < BATCH * N * W; i++) right[i] = left[i] = NAN;
    for (int b = 0; b < BATCH; b++) {
        size_t bytes = (size_t)lengths[b] * W * sizeof(float);
        starts[b] = N - lengths[b];
        fill(alone[b], lengths[b] * W, (unsigned)b + 1);
        memcpy(right + b * N * W, alone[b], bytes);
        memcpy(left + (b * N + starts[b]) * W, alone[b], bytes);
    }

    for (int causal = 0; causal < 2; causal++) {
        for (int b = 0; b < BATCH; b++)
            ok(attn_self(alone_out[b], alone[b], alone[b], alone[b], 1, lengths[b], HEADS, DIM, causal, NULL, NULL));

        ok(attn_self(right_out, right, right, right, BATCH, N, HEADS, DIM, causal, lengths, NULL));

        attn_args a = attn_args_for(BATCH, N, N, HEADS, DIM);
        a.out = left_out;
        a.q = a.k = a.v = left;
        a.k_starts = starts;
        a.causal = causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
        ok(attn_sdpa(&a));

        printf("%s\n", causal ? "causal self-attention (decoder)" : "self-attention (encoder)");
        for (int b = 0; b < BATCH; b++)
            printf("  sentence of %d in a batch of %d:  pads after:  %s   pads before: %s\n", lengths[b], N,
                   verdict(right_out + b * N * W, alone_out[b], lengths[b]),
                   verdict(left_out + (b * N + starts[b]) * W, alone_out[b], lengths[b]));
    }

    /* Rows of padded queries: lengths make them zeros. */
    int zeros = 0;
    for (int i = lengths[1] * W; i < N * W; i++) zeros += right_out[N * W + i] == 0;
    printf("numbers in the padded rows of the second sentence: %d, of them zero: %d\n", (N - lengths[1]) * W, zeros);
    return 0;
}
