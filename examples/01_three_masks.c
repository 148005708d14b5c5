/* 01_three_masks.c

   The question: A translator has three attentions. Which mask does each of them need, and why?
   What you will see: the three masks as matrices of 0 and -inf, and what the causal mask alone leaves
   visible.

   Run:  cc -O2 -I. examples/01_three_masks.c && ./a.out

   Where people go wrong: the mask of the cross-attention is NOT causal. Causality hides words that have not been
   generated yet, and the source sentence is complete before the first word of the target is. Seven reasons for these
   masks, in numbers: 19_why_these_masks.c.

   Further reading: Vaswani and others, Attention Is All You Need, arxiv.org/abs/1706.03762, 3.2.3.

   Output:
       M_e, encoder self-attention: padding
               <s>   Mi chiamo Luke </s> <pad>
       <s>       0    0      0    0    0  -inf
       Mi        0    0      0    0    0  -inf
       chiamo    0    0      0    0    0  -inf
       Luke      0    0      0    0    0  -inf
       </s>      0    0      0    0    0  -inf
       <pad>     0    0      0    0    0  -inf

       the causal mask alone: it hides later words, not padding
              <s>   My name   is Luke </s> <pad> <pad>
       <s>      0 -inf -inf -inf -inf -inf  -inf  -inf
       My       0    0 -inf -inf -inf -inf  -inf  -inf
       name     0    0    0 -inf -inf -inf  -inf  -inf
       is       0    0    0    0 -inf -inf  -inf  -inf
       Luke     0    0    0    0    0 -inf  -inf  -inf
       </s>     0    0    0    0    0    0  -inf  -inf
       <pad>    0    0    0    0    0    0     0  -inf
       <pad>    0    0    0    0    0    0     0     0

       M_d, decoder self-attention: causal and padding
              <s>   My name   is Luke </s> <pad> <pad>
       <s>      0 -inf -inf -inf -inf -inf  -inf  -inf
       My       0    0 -inf -inf -inf -inf  -inf  -inf
       name     0    0    0 -inf -inf -inf  -inf  -inf
       is       0    0    0    0 -inf -inf  -inf  -inf
       Luke     0    0    0    0    0 -inf  -inf  -inf
       </s>     0    0    0    0    0    0  -inf  -inf
       <pad>    0    0    0    0    0    0  -inf  -inf
       <pad>    0    0    0    0    0    0  -inf  -inf

       M_x, cross-attention: the padding of the source, nothing else
              <s>   Mi chiamo Luke </s> <pad>
       <s>      0    0      0    0    0  -inf
       My       0    0      0    0    0  -inf
       name     0    0      0    0    0  -inf
       is       0    0      0    0    0  -inf
       Luke     0    0      0    0    0  -inf
       </s>     0    0      0    0    0  -inf
       <pad>    0    0      0    0    0  -inf
       <pad>    0    0      0    0    0  -inf

       M_x as a matrix and as source_lengths = {5}: the same bits
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAD, BOS, EOS, MI, CHIAMO, LUKE, MY, NAME, IS };
enum { S = 6, T = 8, HEADS = 2, DIM = 4, W = HEADS * DIM };           /* source and target tokens, floats in a row */

static const int source[S] = { BOS, MI, CHIAMO, LUKE, EOS, PAD };
static const int target[T] = { BOS, MY, NAME, IS, LUKE, EOS, PAD, PAD };
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

int main(void)
{
    float M_e[S * S], M_d[T * T], M_x[T * S], causal[T * T];

    /* ---- the masks: 0 = visible, -inf = hidden; rows are queries, columns are keys ------------------------- */
    ok(attn_mask_padding(M_e, source, PAD, 1, S));

    ok(attn_mask_padding(M_d, target, PAD, 1, T));
    ok(attn_mask_causal(causal, T, T, 0));
    ok(attn_mask_merge(M_d, 1, causal, 1, T, T));

    ok(attn_mask_cross(M_x, source, PAD, 1, T, S));

    puts("M_e, encoder self-attention: padding");
    attn_mask_print(M_e, S, S, source_names, source_names);
    puts("\nthe causal mask alone: it hides later words, not padding");
    attn_mask_print(causal, T, T, target_names, target_names);
    puts("\nM_d, decoder self-attention: causal and padding");
    attn_mask_print(M_d, T, T, target_names, target_names);
    puts("\nM_x, cross-attention: the padding of the source, nothing else");
    attn_mask_print(M_x, T, S, target_names, source_names);
    /* In practice no matrix is needed: one number per sentence has the same effect. */
    float q[T * W], k[S * W], v[S * W], a[T * W], b[T * W];
    int length;
    fill(q, T * W, 1);
    fill(k, S * W, 2);
    fill(v, S * W, 3);
    ok(attn_lengths(&length, source, PAD, 1, S));
    ok(attn_cross(a, q, k, v, 1, T, S, HEADS, DIM, NULL, M_x));
    ok(attn_cross(b, q, k, v, 1, T, S, HEADS, DIM, &length, NULL));
    printf("\nM_x as a matrix and as source_lengths = {%d}: %s\n", length,
           memcmp(a, b, sizeof a) == 0 ? "the same bits" : "DIFFERENT");
    return 0;
}
