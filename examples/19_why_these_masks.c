/* 19_why_these_masks.c

   The question: 01 shows the three masks of a translator. Why these and no others?
   What you will see: seven reasons, in numbers.

   Run:  cc -O2 -I. examples/19_why_these_masks.c && ./a.out

   Where people go wrong: they add a causal part to the cross-attention, hide the rows of padding instead of its
   columns, and trust a causal mask to hide the pads.

   Further reading: Vaswani and others, Attention Is All You Need, arxiv.org/abs/1706.03762, 3.2.1 (why scores are
   divided by the root of head_dim) and 3.2.3; The Annotated Transformer, nlp.seas.harvard.edu/annotated-transformer.

   Output:
       M_x with a causal part as well. This one is wrong:
              <s>   Mi chiamo Luke </s> <pad>
       <s>      0 -inf   -inf -inf -inf  -inf
       My       0    0   -inf -inf -inf  -inf
       name     0    0      0 -inf -inf  -inf
       is       0    0      0    0 -inf  -inf
       Luke     0    0      0    0    0  -inf
       </s>     0    0      0    0    0  -inf
       <pad>    0    0      0    0    0  -inf
       <pad>    0    0      0    0    0  -inf

       1. Cross-attention: changing query row i changes output row i only. No word of the target can learn of
          another one through the source, so there is no future to hide.
            row 3 (is) gets another query: row 3 moves by 0.1
            largest change in any other row: 0
       2. A causal M_x only makes blind: the row of <s>, which has to come up with 'My', sees nothing but <s>.
            weights of its first head, padding:             0.23 0.14 0.24 0.19 0.19 0.00
            weights of its first head, causal and padding:  1.00 0.00 0.00 0.00 0.00 0.00
       3. Decoder self-attention is where the future leaks: there the later words are keys.
            row 4 (Luke) gets another word, largest change in rows 0..3:  no mask 0.27, M_d 0
       4. A causal mask hides pads at the end, but not pads at the front.
            the pads get other numbers, largest change in the rows of words:
            pads at the end    causal alone 0, causal and padding 0
            pads at the front  causal alone 0.44, causal and padding 0
       5. Padding hides columns, never rows. Hiding the rows of the pads leaves the pads visible to the words.
            the pads get other numbers, largest change in the rows of words:  columns 0, rows 0.36
       6. The rows of padded queries do not matter: as keys they are hidden, so no other row reads them.
            rows 6 and 7 get other queries: they move by 0.19, rows 0..5 by 0
       7. Scores are divided by sqrt(head_dim), never by the root of the length: else padding changes the result.
            5 tokens padded to 9 and to 16, divided by sqrt(head_dim): largest difference 0
            5 tokens padded to 9 and to 16, divided by sqrt(length)  : largest difference 0.045
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>

enum { PAD, BOS, EOS, MI, CHIAMO, LUKE, MY, NAME, IS };
enum { S = 6, T = 8, HEADS = 2, DIM = 4, W = HEADS * DIM };           /* source and target tokens, floats in a row */

static const int source[S] = { BOS, MI, CHIAMO, LUKE, EOS, PAD };
static const int target[T] = { BOS, MY, NAME, IS, LUKE, EOS, PAD, PAD };
static const int target_left[T] = { PAD, PAD, BOS, MY, NAME, IS, LUKE, EOS };
static const char *const source_names[S] = { "<s>", "Mi", "chiamo", "Luke", "</s>", "<pad>" };
static const char *const target_names[T] = { "<s>", "My", "name", "is", "Luke", "</s>", "<pad>", "<pad>" };

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

/* The same numbers on every machine, between -1 and 1. They represent projected queries, keys and values. */
static void fill(float *x, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

/* The largest difference between two outputs in rows first..end-1. */
static double moved(const float *a, const float *b, int first, int end)
{
    float most = 0;
    for (int i = first * W; i < end * W; i++) {
        float d = a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];
        if (d > most) most = d;
    }
    return (double)most;
}

/* Self-attention over the target before and after rows at..at+count-1 of x (query, key and value at once) changed. */
static double effect(const float *mask, int at, int count, int first, int end)
{
    float x[T * W], before[T * W], after[T * W];
    fill(x, T * W, 1);
    ok(attn_self(before, x, x, x, 1, T, HEADS, DIM, 0, NULL, mask));
    fill(x + at * W, count * W, 99);
    ok(attn_self(after, x, x, x, 1, T, HEADS, DIM, 0, NULL, mask));
    return moved(before, after, first, end);
}

int main(void)
{
    float M_d[T * T], M_x[T * S], M_x_causal[T * S], causal[T * T], causal_x[T * S], none[T * T] = {0};
    ok(attn_mask_causal(causal, T, T, 0));
    ok(attn_mask_padding(M_d, target, PAD, 1, T));
    ok(attn_mask_merge(M_d, 1, causal, 1, T, T));
    ok(attn_mask_cross(M_x, source, PAD, 1, T, S));
    ok(attn_mask_cross(M_x_causal, source, PAD, 1, T, S));
    ok(attn_mask_causal(causal_x, T, S, 0));
    ok(attn_mask_merge(M_x_causal, 1, causal_x, 1, T, S));

    puts("M_x with a causal part as well. This one is wrong:");
    attn_mask_print(M_x_causal, T, S, target_names, source_names);

    float q[T * W], k[S * W], v[S * W], a[T * W], b[T * W], weights[HEADS * T * S];
    fill(q, T * W, 1);
    fill(k, S * W, 2);
    fill(v, S * W, 3);

    puts("\n1. Cross-attention: changing query row i changes output row i only. No word of the target can learn of");
    puts("   another one through the source, so there is no future to hide.");
    ok(attn_cross(a, q, k, v, 1, T, S, HEADS, DIM, NULL, M_x));
    fill(q + 3 * W, W, 99);
    ok(attn_cross(b, q, k, v, 1, T, S, HEADS, DIM, NULL, M_x));
    double other = moved(a, b, 0, 3), below = moved(a, b, 4, T);
    printf("     row 3 (is) gets another query: row 3 moves by %.2g\n", moved(a, b, 3, 4));
    printf("     largest change in any other row: %.2g\n", other > below ? other : below);

    puts("2. A causal M_x only makes blind: the row of <s>, which has to come up with 'My', sees nothing but <s>.");
    attn_args args = {0};
    args.out = a;
    args.q = q;
    args.k = k;
    args.v = v;
    args.batch = 1;
    args.n_q = T;
    args.n_k = S;
    args.heads = HEADS;
    args.head_dim = DIM;
    args.weights = weights;
    for (int wrong = 0; wrong < 2; wrong++) {
        args.mask = wrong ? M_x_causal : M_x;
        ok(attn_sdpa(&args));
        printf("     weights of its first head, %s", wrong ? "causal and padding: " : "padding:            ");
        for (int j = 0; j < S; j++) printf(" %.2f", (double)weights[j]);
        puts("");
    }

    puts("3. Decoder self-attention is where the future leaks: there the later words are keys.");
    printf("     row 4 (Luke) gets another word, largest change in rows 0..3:  no mask %.2g, M_d %.2g\n",
           effect(none, 4, 1, 0, 4), effect(M_d, 4, 1, 0, 4));

    puts("4. A causal mask hides pads at the end, but not pads at the front.");
    float left[T * T];
    ok(attn_mask_padding(left, target_left, PAD, 1, T));
    ok(attn_mask_merge(left, 1, causal, 1, T, T));
    printf("     the pads get other numbers, largest change in the rows of words:\n");
    printf("     pads at the end    causal alone %.2g, causal and padding %.2g\n",
           effect(causal, 6, 2, 0, 6), effect(M_d, 6, 2, 0, 6));
    printf("     pads at the front  causal alone %.2g, causal and padding %.2g\n",
           effect(causal, 0, 2, 2, T), effect(left, 0, 2, 2, T));

    puts("5. Padding hides columns, never rows. Hiding the rows of the pads leaves the pads visible to the words.");
    float columns[T * T], rows[T * T];
    ok(attn_mask_padding(columns, target, PAD, 1, T));
    for (int i = 0; i < T; i++) for (int j = 0; j < T; j++) rows[i * T + j] = columns[j * T + i];
    printf("     the pads get other numbers, largest change in the rows of words:  columns %.2g, rows %.2g\n",
           effect(columns, 6, 2, 0, 6), effect(rows, 6, 2, 0, 6));

    puts("6. The rows of padded queries do not matter: as keys they are hidden, so no other row reads them.");
    fill(q, T * W, 1);
    ok(attn_cross(a, q, k, v, 1, T, S, HEADS, DIM, NULL, M_x));
    fill(q + 6 * W, 2 * W, 99);
    ok(attn_cross(b, q, k, v, 1, T, S, HEADS, DIM, NULL, M_x));
    printf("     rows 6 and 7 get other queries: they move by %.2g, rows 0..5 by %.2g\n",
           moved(a, b, 6, T), moved(a, b, 0, 6));

    puts("7. Scores are divided by sqrt(head_dim), never by the root of the length: else padding changes the result.");
    float x[16 * W], few[16 * W], many[16 * W];
    int five = 5;                                      /* tokens, in a buffer of 9 and in one of 16 */
    fill(x, 16 * W, 4);
    for (int wrong = 0; wrong < 2; wrong++) {
        attn_args s = {0};
        s.q = s.k = s.v = x;
        s.batch = 1;
        s.heads = HEADS;
        s.head_dim = DIM;
        s.k_lengths = s.q_lengths = &five;
        s.out = few;
        s.n_q = s.n_k = 9;
        s.scale = wrong ? 1 / 3.0f : 0;  /* 0: 1/sqrt(head_dim) */
        ok(attn_sdpa(&s));
        s.out = many;
        s.n_q = s.n_k = 16;
        s.scale = wrong ? 1 / 4.0f : 0;
        ok(attn_sdpa(&s));
        printf("     5 tokens padded to 9 and to 16, divided by %s: largest difference %.2g\n",
               wrong ? "sqrt(length)  " : "sqrt(head_dim)", moved(few, many, 0, 5));
    }
    return 0;
}
