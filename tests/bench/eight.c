/* eight.c: what do 8 bits gain? Caches and linears of floats, half and 8 bits, on each backend, measured alternately in
 * processor time; medians.
 *
 *   build/bench/eight                 one thread, hot: each call finds what the last one left in the caches
 *   build/bench/eight cold            everything is read from memory */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { FORMATS = 3, ROUNDS = 21 };
static const attn_storage formats[FORMATS] = { ATTN_F32, ATTN_F16, ATTN_Q8 };

static const struct { int rows, keys, heads, kv_heads, head_dim; } caches[] = {
    { 1, 256, 8, 8, 64 },    { 1, 1500, 8, 8, 64 },   { 1, 65536, 8, 8, 64 },   { 1, 4096, 32, 8, 128 },
    { 1, 4096, 16, 8, 128 }, { 16, 1024, 8, 8, 64 },  { 512, 1024, 8, 8, 64 },
};
static const struct { int rows, n_in, n_out; } linears[] = {
    { 1, 4096, 4096 }, { 5, 4096, 4096 }, { 64, 4096, 4096 }, { 512, 4096, 4096 }, { 1, 384, 1536 }, { 1, 1536, 384 },
};

static void must(int fine)
{
    if (!fine) { fprintf(stderr, "eight: a call was refused, or memory is missing\n"); exit(1); }
}

static float *floats(size_t n, unsigned seed)
{
    float *x = (float *)bench_alloc(n * sizeof(float));
    bench_fill(x, n, seed);
    return x;
}

static void chill(void)                                    /* 128 MB, more than the caches hold */
{
    enum { MANY = 1 << 25 };
    static float *x;
    if (!x) x = floats(MANY, 9);
    (void)yard_read(x, MANY, 1);
}

/* One row of the table: microseconds of floats, half and 8 bits, then ratios. */
static void measure(bench_turn *turns, int cold)
{
    double us[FORMATS];
    bench_turns(turns, FORMATS, ROUNDS, 0.004, cold ? chill : NULL);
    for (int f = 0; f < FORMATS; f++) us[f] = turns[f].median * 1e6;
    printf(" | %.1f | %.1f | %.1f | %.2f | %.2f |\n", us[0], us[1], us[2], us[0] / us[2], us[1] / us[2]);
    fflush(stdout);
}

static void attend(void *job) { must(attn_sdpa((const attn_args *)job) == ATTN_OK); }

static void cache(int i, int cold)
{
    const int rows = caches[i].rows, keys = caches[i].keys, heads = caches[i].heads, dim = caches[i].head_dim;
    const size_t q_size = (size_t)rows * (size_t)heads * (size_t)dim;
    const size_t kv_size = (size_t)keys * (size_t)caches[i].kv_heads * (size_t)dim;
    float *q = floats(q_size, 1), *k = floats(kv_size, 2), *v = floats(kv_size, 3), *out = floats(q_size, 4);
    static bench_turn turns[FORMATS];
    attn_args call[FORMATS];
    attn_kv kv[FORMATS];
    for (int f = 0; f < FORMATS; f++) {
        attn_kv_args how;
        memset(&how, 0, sizeof how);
        how.batch = 1, how.capacity = keys, how.kv_heads = caches[i].kv_heads, how.head_dim = dim;
        how.k_storage = how.v_storage = formats[f];
        must(attn_kv_init(&kv[f], &how) == ATTN_OK && attn_kv_append(&kv[f], -1, k, v, keys, 0) == ATTN_OK);
        call[f] = attn_args_for(1, rows, 0, heads, dim);
        call[f].kv_heads = caches[i].kv_heads, call[f].q = q, call[f].out = out, call[f].kv = &kv[f];
        turns[f].run = attend, turns[f].job = &call[f];
    }
    printf("| cache, %d x %d, %d on %d x %d", rows, keys, heads, caches[i].kv_heads, dim);
    measure(turns, cold);
    for (int f = 0; f < FORMATS; f++) attn_kv_free(&kv[f]);
    free(q), free(k), free(v), free(out);
}

struct product { attn_linear linear; float *y; const float *x; int rows; };

static void multiply(void *job)
{
    const struct product *p = (const struct product *)job;
    must(attn_linear_run(&p->linear, p->y, p->x, p->rows, 0, NULL) == ATTN_OK);
}

static void linear(int i, int cold)
{
    const int rows = linears[i].rows, n_in = linears[i].n_in, n_out = linears[i].n_out;
    float *w = floats((size_t)n_in * (size_t)n_out, 1), *x = floats((size_t)rows * (size_t)n_in, 2);
    float *y = floats((size_t)rows * (size_t)n_out, 3);
    static bench_turn turns[FORMATS];
    struct product product[FORMATS];
    for (int f = 0; f < FORMATS; f++) {
        attn_linear_args how;
        memset(&how, 0, sizeof how);
        how.n_in = n_in, how.n_out = n_out, how.w = w, how.storage = formats[f];
        must(attn_linear_init(&product[f].linear, &how) == ATTN_OK);
        product[f].x = x, product[f].y = y, product[f].rows = rows;
        turns[f].run = multiply, turns[f].job = &product[f];
    }
    printf("| linear, %d rows, %d to %d", rows, n_in, n_out);
    measure(turns, cold);
    for (int f = 0; f < FORMATS; f++) attn_linear_free(&product[f].linear);
    free(w), free(x), free(y);
}

int main(int argc, char **argv)
{
    const int cold = argc == 2 && !strcmp(argv[1], "cold");
    attn_backend best;
    if (argc > 2 || (argc == 2 && !cold)) {
        fprintf(stderr, "usage: build/bench/eight [cold]\n");
        return 2;
    }
    must(attn_backends(&best, 1) > 0);
    bench_cpu_time = 1;                                     /* not affected by other programs */
    printf("| %s, %s | floats: us | half: us | 8 bits: us | floats / 8 bits | half / 8 bits |\n|---|---|---|---|---|---|\n",
           attn_backend_name(best), cold ? "cold" : "hot");
    for (int i = 0; i < (int)(sizeof caches / sizeof *caches); i++) cache(i, cold);
    for (int i = 0; i < (int)(sizeof linears / sizeof *linears); i++) linear(i, cold);
    return 0;
}
