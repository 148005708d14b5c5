/* 08_cached_cross.c

   The question: How much does it save to project the encoder's output once instead of once per token?
   What you will see: the same tokens both ways, and the multiplications and time that the cache saves.

   Run:  cc -O2 -I. examples/08_cached_cross.c && ./a.out

   Where people go wrong: keys and values of the cross-attention do not depend on the target at all. A program that
   projects them for every token repeats the same work n times, and this work is by far the largest part of the layer.

   Further reading: Shazeer, Fast Transformer Decoding, arxiv.org/abs/1911.02150, on why decoding is limited by bytes
   read, and not by arithmetic.

   Output:
       tokens without a cache:
       40 9 64 6 47 84 52 1 59 91 14 14 48 44 52 88 25 37 19 50
       8 52 48 83 26 55 22 72 10 11 77 49 38 53 49 92 83 99 16 46
       tokens with it:
       40 9 64 6 47 84 52 1 59 91 14 14 48 44 52 88 25 37 19 50
       8 52 48 83 26 55 22 72 10 11 77 49 38 53 49 92 83 99 16 46
       all 40 outputs: the same bits
       to project the source: 1258 million multiplications without a cache, 31 million with it
       the whole layer:       1282 million against 55 million, 23.4 times fewer
       without a cache ##.## ms, with it #.## ms (#.## of them to fill it): #.# times faster
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKENS = 40, SOURCE = 60, D = 512, HEADS = 8, WORDS = 100 };

static float w_q[D * D], w_k[D * D], w_v[D * D], w_o[D * D], words[WORDS * D], memory[SOURCE * D];
static float without[TOKENS * D], with[TOKENS * D];

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

/* Pseudo-random numbers in -size .. size in place of a model's; the same on every machine. */
static void fill(float *x, int n, float size, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = size * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
}

static double milliseconds(void) { return (double)clock() * 1000 / CLOCKS_PER_SEC; }

/* A toy decoder: the next token is the word closest to the output of the cross-attention, and the next query is that
   word plus a decaying sum of the previous ones. Prints the tokens, stores all outputs in out, and returns the time
   of the attention. c NULL: without a cache. */
static double generate(const attn_mha *layer, const attn_kv *c, float *out)
{
    float x[D];
    double time = 0;
    memcpy(x, words, sizeof x);
    for (int t = 0; t < TOKENS; t++) {
        float *y = out + t * D;
        time -= milliseconds();
        if (c) ok(attn_mha_cross_step(layer, y, x, 1, 1, c, NULL));
        else   ok(attn_mha_cross(layer, y, x, 1, 1, memory, SOURCE, NULL));
        time += milliseconds();

        int best = 0;
        float most = 0;
        for (int w = 0; w < WORDS; w++) {
            float fit = 0;
            for (int i = 0; i < D; i++) fit += words[w * D + i] * y[i];
            if (w == 0 || fit > most) {
                best = w;
                most = fit;
            }
        }
        printf("%d%c", best, t % 20 == 19 ? '\n' : ' ');
        for (int i = 0; i < D; i++) x[i] = words[best * D + i] + x[i] / 2;
    }
    return time;
}

int main(void)
{
    fill(w_q, D * D, 0.2f, 1);
    fill(w_k, D * D, 0.2f, 2);
    fill(w_v, D * D, 0.1f, 3);
    fill(w_o, D * D, 0.1f, 4);
    fill(words, WORDS * D, 1, 5);
    fill(memory, SOURCE * D, 1, 6);

    attn_mha layer;
    attn_mha_args shape = {0};
    shape.d_model = D;
    shape.heads = HEADS;
    shape.w_q = w_q;
    shape.w_k = w_k;
    shape.w_v = w_v;
    shape.w_o = w_o;
    if (attn_mha_init(&layer, &shape)) return 1;                /* ATTN_DEBUG prints the reason */

    puts("tokens without a cache:");
    double slow = generate(&layer, NULL, without);

    puts("tokens with it:");
    attn_kv cache;
    attn_kv_args room = {0};
    room.batch = 1;
    room.kv_heads = HEADS;
    room.head_dim = D / HEADS;
    room.capacity = SOURCE;
    ok(attn_kv_init(&cache, &room));
    double filling = -milliseconds();
    ok(attn_mha_cross_fill(&layer, &cache, memory, 1, SOURCE, NULL, NULL));            /* once a sentence */
    filling += milliseconds();
    double fast = filling + generate(&layer, &cache, with);

    printf("all %d outputs: %s\n", TOKENS, memcmp(without, with, sizeof with) == 0 ? "the same bits" : "DIFFERENT");
    /* Multiplications: k and v of the source; q and the output of each token; its scores and weighted sum */
    const double project = 2.0 * SOURCE * D * D, token = 2.0 * D * D + 2.0 * SOURCE * D;
    const double all = TOKENS * (project + token), cached = project + TOKENS * token;
    printf("to project the source: %.0f million multiplications without a cache, %.0f million with it\n",
           TOKENS * project / 1e6, project / 1e6);
    printf("the whole layer:       %.0f million against %.0f million, %.1f times fewer\n", all / 1e6, cached / 1e6,
           all / cached);
    printf("without a cache %.2f ms, with it %.2f ms (%.2f of them to fill it): %.1f times faster\n",
           slow, fast, filling, slow / fast);

    attn_kv_free(&cache);
    attn_mha_free(&layer);
    return 0;
}
