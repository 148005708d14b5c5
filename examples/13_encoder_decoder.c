/* 13_encoder_decoder.c

   The question: Which call belongs where in a whole translation model? (Two layers, random weights.)
   What you will see: the steps of a decoder, and the same words from one call without a cache.

   Run:  cc -O2 -I. examples/13_encoder_decoder.c && ./a.out

   Where people go wrong: every decoder layer has its own projections, so one encoder output fills as many caches as
   there are layers; and the self-attention caches grow while the cross-attention caches are only read.

   Further reading: Vaswani and others, arxiv.org/abs/1706.03762, figure 1; Xiong and others, On Layer Normalization
   in the Transformer Architecture, arxiv.org/abs/2002.04745 (norms first, as here).

   Output:
       encode   2 sentences of 6 and 4 words, 2 layers: self-attention, feed-forward
       fill     2 caches from one memory: every decoder layer projects it in its own way
       step 1   2 layers: self-attention over  1 keys, cross-attention over 6 and 4, feed-forward
       step 10  2 layers: self-attention over 10 keys, cross-attention over 6 and 4, feed-forward
       says 1   39 7 5 7 9 39 7 5 35 48
       says 2   43 6 43 43 35 35 43 35 35 35
       the same words all at once, causal, without a cache: the same bits
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, D = 64, HEADS = 4, FF = 4 * D, WORDS = 50, BATCH = 2, S = 6, T = 10, PAD = 0, BOS = 1 };

typedef struct layer { attn_mha self, cross; attn_linear up, down; } layer;

static layer encoder[LAYERS], decoder[LAYERS];
static float words[WORDS * D], places[T * D], speech[WORDS * D];

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

/* ---- weights: in real life from a file, here from a small generator ------------------------------------------ */
static float *noise(float *x, int n, float size)
{
    static unsigned seed = 1;
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = size * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
    return x;
}

static void load_attention(attn_mha *m)
{
    static float w_in[3 * D * D], w_o[D * D];
    attn_mha_args a = {0};
    a.d_model = D;
    a.heads = HEADS;
    a.w_in = noise(w_in, 3 * D * D, 0.25f);                    /* query, key and value in one, as in_proj_weight */
    a.w_o = noise(w_o, D * D, 0.25f);
    ok(attn_mha_init(m, &a));
}

static void load_linear(attn_linear *l, int n_in, int n_out)
{
    static float w[FF * D];
    attn_linear_args a = {0};
    a.n_in = n_in;
    a.n_out = n_out;
    a.w = noise(w, n_in * n_out, 0.15f);
    ok(attn_linear_init(l, &a));
}

/* ---- between the attentions -------------------------------------------------------------------------------------- */
static float *norm(float *y, const float *x, int rows)         /* each row divided by its root mean square */
{
    attn_norm_args a = {0};
    a.y = y;
    a.x = x;
    a.rows = rows;
    a.n = D;
    ok(attn_norm(&a));
    return y;
}

static void add(float *x, const float *y, int rows) { for (int i = 0; i < rows * D; i++) x[i] += y[i]; }

static void feed_forward(const layer *l, float *x, int rows)
{
    static float a[BATCH * T * D], b[BATCH * T * FF];
    ok(attn_linear_run(&l->up, b, norm(a, x, rows), rows, 0, NULL));
    for (int i = 0; i < rows * FF; i++) if (b[i] < 0) b[i] = 0;
    ok(attn_linear_run(&l->down, a, b, rows, 0, NULL));
    add(x, a, rows);
}

/* x [BATCH][n][D]: the word and its position, counted from `first`. */
static void embed(float *x, const int *tokens, int n, int first)
{
    for (int i = 0; i < BATCH * n; i++)
        for (int c = 0; c < D; c++) x[i * D + c] = words[tokens[i] * D + c] + places[(first + i % n) * D + c];
}

static int best_word(const float *x)
{
    int best = 0;
    float most = 0;
    for (int w = 2; w < WORDS; w++) {                          /* not <pad> and not <s> */
        float fit = 0;
        for (int i = 0; i < D; i++) fit += speech[w * D + i] * x[i];
        if (best == 0 || fit > most) {
            best = w;
            most = fit;
        }
    }
    return best;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */
static void encode(float *x, const int *source, const int *lengths)                    /* x [BATCH][S][D] */
{
    static float a[BATCH * S * D], y[BATCH * S * D];
    embed(x, source, S, 0);
    for (int l = 0; l < LAYERS; l++) {
        attn_mha_opts o = {0};
        o.attn.k_lengths = lengths;                                                    /* M_e: padding */
        ok(attn_mha_self(&encoder[l].self, y, norm(a, x, BATCH * S), BATCH, S, &o));
        add(x, y, BATCH * S);
        feed_forward(&encoder[l], x, BATCH * S);
    }
}

/* One token for every sentence. x [BATCH][D] */
static void decode_step(float *x, const int *tokens, attn_kv *own, const attn_kv *source)
{
    float a[BATCH * D], y[BATCH * D];
    embed(x, tokens, 1, own[0].lengths[0]);                /* the cache has the position */
    for (int l = 0; l < LAYERS; l++) {
        ok(attn_mha_self_step(&decoder[l].self, y, norm(a, x, BATCH), BATCH, 1, &own[l], NULL));       /* M_d */
        add(x, y, BATCH);
        ok(attn_mha_cross_step(&decoder[l].cross, y, norm(a, x, BATCH), BATCH, 1, &source[l], NULL));  /* M_x */
        add(x, y, BATCH);
        feed_forward(&decoder[l], x, BATCH);
    }
}

/* All T tokens at once without any cache, as in training: the same function, so it must be the same bits. */
static void decode_all(float *x, const int *tokens, const float *memory, const int *lengths)
{
    static float a[BATCH * T * D], y[BATCH * T * D];
    attn_mha_opts causal = {0}, padding = {0};
    causal.attn.causal = ATTN_CAUSAL_TOP_LEFT;                                         /* M_d */
    padding.attn.k_lengths = lengths;                                                  /* M_x */
    embed(x, tokens, T, 0);
    for (int l = 0; l < LAYERS; l++) {
        ok(attn_mha_self(&decoder[l].self, y, norm(a, x, BATCH * T), BATCH, T, &causal));
        add(x, y, BATCH * T);
        ok(attn_mha_cross(&decoder[l].cross, y, norm(a, x, BATCH * T), BATCH, T, memory, S, &padding));
        add(x, y, BATCH * T);
        feed_forward(&decoder[l], x, BATCH * T);
    }
}

/* An empty cache for the words of each decoder layer, and one with the projected memory. */
static void make_caches(attn_kv *own, attn_kv *cross, const float *memory, const int *lengths)
{
    for (int l = 0; l < LAYERS; l++) {
        attn_kv_args room = {0};
        room.batch = BATCH;
        room.kv_heads = HEADS;
        room.head_dim = D / HEADS;
        room.capacity = T;
        ok(attn_kv_init(&own[l], &room));
        room.capacity = S;
        ok(attn_kv_init(&cross[l], &room));
        ok(attn_mha_cross_fill(&decoder[l].cross, &cross[l], memory, BATCH, S, lengths, NULL));
    }
}

static void free_layers(void)
{
    for (int l = 0; l < LAYERS; l++) {
        attn_mha_free(&encoder[l].self);
        attn_linear_free(&encoder[l].up);
        attn_linear_free(&encoder[l].down);
        attn_mha_free(&decoder[l].self);
        attn_linear_free(&decoder[l].up);
        attn_linear_free(&decoder[l].down);
        attn_mha_free(&decoder[l].cross);
    }
}

int main(void)
{
    static const int source[BATCH * S] = { 7, 8, 9, 10, 11, 12,   21, 22, 23, 24, PAD, PAD };
    static float memory[BATCH * S * D], steps[BATCH * T * D], at_once[BATCH * T * D];
    int lengths[BATCH], tokens[BATCH * T], next[BATCH] = { BOS, BOS };

    for (int l = 0; l < LAYERS; l++) {
        load_attention(&encoder[l].self);
        load_linear(&encoder[l].up, D, FF);
        load_linear(&encoder[l].down, FF, D);
        load_attention(&decoder[l].self);
        load_attention(&decoder[l].cross);
        load_linear(&decoder[l].up, D, FF);
        load_linear(&decoder[l].down, FF, D);
    }
    noise(words, WORDS * D, 1);
    noise(places, T * D, 1);
    noise(speech, WORDS * D, 1);

    /* The source, once. */
    ok(attn_lengths(lengths, source, PAD, BATCH, S));
    encode(memory, source, lengths);
    printf("encode   %d sentences of %d and %d words, %d layers: self-attention, feed-forward\n",
           BATCH, lengths[0], lengths[1], LAYERS);

    attn_kv own[LAYERS], cross[LAYERS];
    make_caches(own, cross, memory, lengths);
    printf("fill     %d caches from one memory: every decoder layer projects it in its own way\n", LAYERS);

    /* The target, word by word. */
    for (int t = 0; t < T; t++) {
        float x[BATCH * D];
        decode_step(x, next, own, cross);
        for (int b = 0; b < BATCH; b++) {
            tokens[b * T + t] = next[b];
            memcpy(steps + (b * T + t) * D, x + b * D, D * sizeof *x);
            next[b] = best_word(x + b * D);
        }
        if (t == 0 || t == T - 1)
            printf("step %-2d  %d layers: self-attention over %2d keys, cross-attention over %d and %d, feed-forward\n",
                   t + 1, LAYERS, own[0].lengths[0], cross[0].lengths[0], cross[0].lengths[1]);
    }
    for (int b = 0; b < BATCH; b++) {
        printf("says %d  ", b + 1);
        for (int t = 1; t < T; t++) printf(" %d", tokens[b * T + t]);
        printf(" %d\n", next[b]);
    }

    decode_all(at_once, tokens, memory, lengths);
    printf("the same words all at once, causal, without a cache: %s\n",
           memcmp(steps, at_once, sizeof steps) == 0 ? "the same bits" : "DIFFERENT");

    for (int l = 0; l < LAYERS; l++) {
        attn_kv_free(&own[l]);
        attn_kv_free(&cross[l]);
    }
    free_layers();
    return 0;
}
