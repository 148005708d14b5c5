/* 27_explained_mistakes.c

   The question: Why was my call rejected? And if it was accepted, is it the call that I meant?
   What you will see: five mistakes and a correct call, explained by attn_check, which runs all checks but not the call.

   Run:  cc -O2 -I. examples/27_explained_mistakes.c && ./a.out

   Where people go wrong: a call that returns ATTN_OK may still have another meaning than intended. Before you search
   for a wrong number in the model, print the sentence of attn_check, and masked_rows after the call.

   Further reading: TRAPS at the top of attn.h; the section "Errors" of README.md.

   Output:
       a length that counts more than the keys
         rejected: k_lengths[1] is 9 but n_k is 6
       3 K/V heads for 4 heads
         rejected: heads is 4 but kv_heads is 3; kv_heads must divide heads
       the result in place of the queries
         rejected: out overlaps q
       rows of keys as far apart as heads
         rejected: k_stride[1] is 8 but must be 0, or at least 32
       new rows over a cache, top-left
         accepted: these arguments are fine: scalar, 1 at once, batch 2, heads 4, kv_heads 4, n_q
           4, n_k 6, head_dim 8, v_head_dim 8, K/V from a cache, causal top-left, ### bytes to be
           allocated; causal is top-left: keys 4..5 of entry 0 are hidden from every row (new
           rows of a sequence: bottom-right)
       new rows over a cache, bottom-right
         accepted: these arguments are fine: scalar, 1 at once, batch 2, heads 4, kv_heads 4, n_q
           4, n_k 6, head_dim 8, v_head_dim 8, K/V from a cache, causal bottom-right, ### bytes
           to be allocated
*/
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <string.h>

enum { BATCH = 2, N_Q = 4, N_K = 6, HEADS = 4, DIM = 8, ROW = HEADS * DIM };

static float q[BATCH * N_Q * ROW], k[BATCH * N_K * ROW], v[BATCH * N_K * ROW], out[BATCH * N_Q * ROW];

static attn_args correct(void)
{
    attn_args a = attn_args_for(BATCH, N_Q, N_K, HEADS, DIM);
    a.out = out;
    a.q = q;
    a.k = k;
    a.v = v;
    a.backend = ATTN_SCALAR;                                     /* the output is the same on every machine */
    return a;
}

/* Prints the sentence of attn_check, in lines of at most 90 characters. */
static void explain(const char *title, const attn_args *a)
{
    char why[600];
    const attn_status status = attn_check(a, why, sizeof why);
    int column = printf("%s\n  %s:", title, status ? "rejected" : "accepted") - (int)strlen(title) - 1;
    for (const char *word = strtok(why, " "); word; word = strtok(NULL, " ")) {
        if (column + (int)strlen(word) >= 90) column = printf("\n   ") - 1;
        column += printf(" %s", word);
    }
    puts("");
}

int main(void)
{
    const int lengths[BATCH] = { 6, 9 };
    attn_args a = correct();
    a.k_lengths = lengths;
    explain("a length that counts more than the keys", &a);

    a = correct();
    a.kv_heads = 3;
    explain("3 K/V heads for 4 heads", &a);

    a = correct();
    a.out = q;
    explain("the result in place of the queries", &a);

    a = correct();
    a.k_stride[1] = DIM;
    explain("rows of keys as far apart as heads", &a);

    attn_kv cache;
    attn_kv_args room = { .batch = BATCH, .kv_heads = HEADS, .head_dim = DIM, .capacity = 16 };
    if (attn_kv_init(&cache, &room) || attn_kv_append(&cache, -1, k, v, N_K, 0)) return 1;
    a = correct();
    a.k = a.v = NULL;
    a.kv = &cache;
    a.causal = ATTN_CAUSAL_TOP_LEFT;
    explain("new rows over a cache, top-left", &a);

    a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    explain("new rows over a cache, bottom-right", &a);
    attn_kv_free(&cache);
    return 0;
}
