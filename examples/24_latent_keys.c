/* 24_latent_keys.c

   The question: DeepSeek stores one row of 576 numbers per token (MLA). How do 16 heads get keys and values
   from it?
   What you will see: the bytes per token, and how far the two forms of the computation differ.

   Run:  cc -O2 -I. examples/24_latent_keys.c && ./a.out

   The model stores a latent row of 512 numbers per token, and 64 that are rotated, for all heads together. Keys and
   values of each head are computed from the latent row by two matrices (kv_b_proj): W_k and W_v. Computed directly,
   they take 16 heads of 192 and 128 numbers for every visible token. But q . (W_k c) = (W_k^T q) . c, so the query
   may go through W_k once; then the latent rows are the keys, their first 512 numbers are the values too, and the
   result goes through W_v once. This is called absorbed. A cache with v_in_k keeps each row once: half of what an
   ordinary one takes. Without a cache no member is needed: k and v are the same rows, one K/V head, v_head_dim less
   than head_dim.

   Where people go wrong: the scale. It is that of the heads, 1/sqrt(128 + 64), not that of rows of 576.

   Further reading: DeepSeek-AI, DeepSeek-V2, arxiv.org/abs/2405.04434, section 2.1.

   Output:
       a token leaves 2304 bytes in the cache; keys and values of all heads would take 20480
       64 tokens one by one, absorbed and not: outputs of size 1 differ by less than 1e-5
       the same 64 tokens in one call, from the cache or from plain rows: the same bits
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 64, HEADS = 16, NOPE = 128, ROPE = 64, V = 128, LATENT = 512, ROW = LATENT + ROPE, QK = NOPE + ROPE };

/* The results of projections and rotation for N tokens: queries and latent rows; and kv_b_proj in two halves. */
static float q[N][HEADS][QK], rows[N][ROW], w_k[HEADS][NOPE][LATENT], w_v[HEADS][V][LATENT];
static float absorbed[N][HEADS][ROW], latents[N][HEADS][LATENT], k[N][HEADS][QK], v[N][HEADS][V];

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

/* Pseudo-random numbers in -size .. size in place of a model's; the same on every machine. */
static void fill(float *x, int n, float size, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = size * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
}

/* Attention of n rows from token t on, in one call, over all tokens so far. c: their cache; NULL: plain rows */
static void look(float *out, const attn_kv *c, int t, int n)
{
    attn_args a = attn_args_for(1, n, c ? 0 : t + n, HEADS, ROW);
    a.kv_heads = 1;
    a.v_head_dim = LATENT;
    a.q = absorbed[t][0];
    a.kv = c;
    if (!c) a.k = a.v = rows[0];                                 /* V is the front of K */
    if (!c) a.k_stride[1] = a.v_stride[1] = ROW;
    a.scale = 0.0721687836f;                                     /* 1/sqrt(QK) */
    a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    a.out = out;
    ok(attn_sdpa(&a));
}

int main(void)
{
    static float one[HEADS][LATENT], plain[HEADS][V], again[N][HEADS][LATENT], plain_rows[N][HEADS][LATENT];
    const attn_kv_args shape = {
        .batch = 1, .kv_heads = 1, .head_dim = ROW, .v_head_dim = LATENT, .capacity = N, .v_in_k = 1};
    attn_kv c;
    float most = 0;
    ok(attn_kv_init(&c, &shape));
    fill(q[0][0], N * HEADS * QK, 1, 1);
    fill(rows[0], N * ROW, 1, 2);
    fill(w_k[0][0], HEADS * NOPE * LATENT, 0.1f, 3);
    fill(w_v[0][0], HEADS * V * LATENT, 0.1f, 4);

    for (int t = 0; t < N; t++) {
        for (int h = 0; h < HEADS; h++) {
            /* absorbed: the query through W_k; its rotated part is unchanged */
            for (int x = 0; x < NOPE; x++)
                for (int l = 0; l < LATENT; l++) absorbed[t][h][l] += q[t][h][x] * w_k[h][x][l];
            memcpy(absorbed[t][h] + LATENT, q[t][h] + NOPE, ROPE * sizeof(float));
            /* not absorbed: a key and a value of each head, from the latent row */
            for (int x = 0; x < NOPE; x++)
                for (int l = 0; l < LATENT; l++) k[t][h][x] += w_k[h][x][l] * rows[t][l];
            memcpy(k[t][h] + NOPE, rows[t] + LATENT, ROPE * sizeof(float));
            for (int x = 0; x < V; x++)
                for (int l = 0; l < LATENT; l++) v[t][h][x] += w_v[h][x][l] * rows[t][l];
        }
        ok(attn_kv_append(&c, -1, rows[t], NULL, 1, 0));
        look(one[0], &c, t, 1);
        memcpy(latents[t], one, sizeof one);

        attn_args a = attn_args_for(1, 1, t + 1, HEADS, QK);
        a.v_head_dim = V;
        a.q = q[t][0];
        a.k = k[0][0];
        a.v = v[0][0];
        a.out = plain[0];
        ok(attn_sdpa(&a));
        for (int h = 0; h < HEADS; h++)
            for (int x = 0; x < V; x++) {
                float value = 0;                                 /* the result through W_v */
                for (int l = 0; l < LATENT; l++) value += w_v[h][x][l] * one[h][l];
                value -= plain[h][x];
                if (value < 0) value = -value;
                if (!(value <= most)) most = value;
            }
    }
    printf("a token leaves %d bytes in the cache; keys and values of all heads would take %d\n", (int)c.page_size / N,
           (int)(sizeof k[0] + sizeof v[0]));
    printf("%d tokens one by one, absorbed and not: outputs of size 1 differ by %s\n", N,
           most < 1e-5f ? "less than 1e-5" : "MORE");
    look(again[0][0], &c, 0, N);
    look(plain_rows[0][0], NULL, 0, N);
    printf("the same %d tokens in one call, from the cache or from plain rows: %s\n", N,
           memcmp(again, latents, sizeof again) || memcmp(plain_rows, latents, sizeof again) ? "OTHER BITS"
                                                                                             : "the same bits");
    attn_kv_free(&c);
    return 0;
}
