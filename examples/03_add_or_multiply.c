/* 03_add_or_multiply.c

   The question: There are seven ways to switch a padded key off. Which of them work?
   What you will see: the weights and the output of each way, compared with the three words alone.

   Run:  cc -O2 -I. examples/03_add_or_multiply.c && ./a.out

   Where people go wrong: a score of 0 does not hide a key. exp(0) = 1, so a key with score 0 counts like any other.
   Only adding -inf to the score, after the division and before the softmax, takes a key out.

   Further reading: Vaswani and others, arxiv.org/abs/1706.03762, 3.2.3: "masking out (setting to -inf) all values in
   the input of the softmax".

   Output:
                                                 Mi chiamo   Luke  <pad>    sum      out
       the three words alone                  0.665  0.245  0.090  0.000   1.00    14.25  the truth
       no mask                                0.007  0.002  0.001  0.990   1.00   990.12  the pad decides
       weight * 0, after the softmax          0.007  0.002  0.001  0.000   0.01     0.14  99 % of the answer is gone
       score * 0, before the softmax          0.610  0.225  0.083  0.083   1.00    95.67  a score of 0 votes
         of a pad that fits badly: no mask    0.662  0.244  0.090  0.004   1.00    18.65  its score is -3
         score * 0                            0.610  0.225  0.083  0.083   1.00    95.67  no: 18 times as much
       key and value * 0                      0.610  0.225  0.083  0.083   1.00    13.07  a vote for nothing: diluted
       score - 10, before the division by 8   0.023  0.008  0.003  0.966   1.00   966.34  the pad still decides
       score - 10, after it                   0.662  0.244  0.090  0.004   1.00    18.65  0.4 % of it is left, and shows
       score - inf, before the division       0.665  0.245  0.090  0.000   1.00    14.25  right: -inf / 8 is -inf
       score - inf, after the division        0.665  0.245  0.090  0.000   1.00    14.25  right, to the last bit
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <math.h>                                              /* INFINITY */
#include <stdio.h>
#include <stdlib.h>

enum { N = 4, DIM = 64 };

static void run(const attn_args *a)
{
    if (attn_sdpa(a)) exit(1);                                   /* ATTN_DEBUG prints the reason */
}

static void row(const char *what, const float *w, float out, const char *verdict)
{
    printf("%-37s", what);
    for (int j = 0; j < N; j++) printf("%7.3f", (double)w[j]);
    printf("%7.2f%9.2f  %s\n", (double)(w[0] + w[1] + w[2] + w[3]), (double)out, verdict);
}

int main(void)
{
    /* One query, three words and a padded key that happens to fit it best. A score is q.k / sqrt(64). */
    static const float score[N] = { 2, 1, 0, 7 };
    static const float keep[N] = { 1, 1, 1, 0 };
    static const float zero[DIM];
    float q[DIM], k[N * DIM], v[N] = { 10, 20, 30, 1000 };     /* one value per key, which shows the visible keys */
    float w[N], out, mask[N] = {0}, scores[N];
    for (int c = 0; c < DIM; c++) q[c] = 1;
    for (int j = 0; j < N; j++) for (int c = 0; c < DIM; c++) k[j * DIM + c] = score[j] / 8;

    attn_args a = attn_args_for(1, 1, N, 1, DIM);               /* batch, n_q, n_k, heads, head_dim */
    a.out = &out;
    a.q = q;
    a.k = k;
    a.v = v;
    a.v_head_dim = 1;
    a.weights = w;

    printf("%-37s%7s%7s%7s%7s%7s%9s\n", "", "Mi", "chiamo", "Luke", "<pad>", "sum", "out");
    a.n_k = 3;
    w[3] = 0;
    run(&a);
    const float truth = out;
    row("the three words alone", w, out, "the truth");
    a.n_k = N;
    run(&a);
    row("no mask", w, out, "the pad decides");

    /* Multiplied after the softmax: the pad has taken its share already, and the rest does not sum to 1. */
    out = 0;
    for (int j = 0; j < N; j++) {
        w[j] *= keep[j];
        out += w[j] * v[j];
    }
    row("weight * 0, after the softmax", w, out, "99 % of the answer is gone");

    /* Multiplied before the softmax. (Attention with q = 0 and a bias is the softmax of the bias.) */
    attn_args b = a;
    b.weights_stage = ATTN_SCORES_RAW;
    run(&b);
    for (int j = 0; j < N; j++) scores[j] = w[j] * keep[j];
    b.weights_stage = ATTN_PROBABILITIES;
    b.q = zero;
    b.bias = scores;
    run(&b);
    row("score * 0, before the softmax", w, out, "a score of 0 votes");

    /* Where the score was negative, multiplying it by 0 raises it: the key gains by being "masked". */
    scores[3] = -3;
    run(&b);
    const float before = w[3];
    row("  of a pad that fits badly: no mask", w, out, "its score is -3");
    scores[3] *= keep[3];
    run(&b);
    row("  score * 0", w, out, w[3] > 18 * before ? "no: 18 times as much" : "hidden");

    /* The vectors of the pad set to zero: its score is q.0 = 0, which is a vote again, now for a value of 0. */
    float k_zero[N * DIM], v_zero[N];
    for (int j = 0; j < N; j++) {
        for (int c = 0; c < DIM; c++) k_zero[j * DIM + c] = k[j * DIM + c] * keep[j];
        v_zero[j] = v[j] * keep[j];
    }
    attn_args z = a;
    z.k = k_zero;
    z.v = v_zero;
    run(&z);
    row("key and value * 0", w, out, "a vote for nothing: diluted");

    /* Added, but before the division by sqrt(64) = 8: that adds an eighth of the mask. An eighth of -inf is -inf. */
    a.mask = mask;
    mask[3] = -10.0f / 8;
    run(&a);
    row("score - 10, before the division by 8", w, out, "the pad still decides");
    mask[3] = -10;
    run(&a);
    row("score - 10, after it", w, out, "0.4 % of it is left, and shows");
    mask[3] = -INFINITY / 8;
    run(&a);
    row("score - inf, before the division", w, out, out == truth ? "right: -inf / 8 is -inf" : "wrong");
    mask[3] = -INFINITY;
    run(&a);
    row("score - inf, after the division", w, out, out == truth ? "right, to the last bit" : "wrong");
    return 0;
}
