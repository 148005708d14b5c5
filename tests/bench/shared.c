/* shared.c: what is the cost of several entries that read the same keys? Beams that share one memory by k_map, and
 * entries of a cache that share pages, against the same rows as one entry, which reads the keys once; and against
 * entries with separate copies of the keys. Measured alternately; medians.
 *
 *   build/bench/shared                one thread          build/bench/shared -t 2 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { ENTRIES = 32, ROUNDS = 41, WAYS = 6 };
enum { ROWS_ONE, ROWS_MAP, CACHE_ONE, CACHE_MAP, PAGES, COPIES };   /* the ways */

/* entries x shared keys, further keys of each entry, heads */
static const struct { int entries, keys, own, heads, kv_heads, head_dim; } cases[] = {
    { 4, 512, 0, 8, 8, 64 },    { 5, 1500, 0, 6, 6, 64 },    { 8, 512, 0, 8, 8, 64 },  { 32, 2048, 0, 8, 8, 64 },
    { 32, 2048, 0, 32, 8, 128 }, { 4, 512, 17, 8, 8, 64 },    { 32, 2048, 1, 8, 8, 64 }, { 32, 2048, 128, 8, 8, 64 },
    { 16, 1024, 5, 8, 1, 128 },
};

static void must(int fine)
{
    if (!fine) { fprintf(stderr, "shared: a call was refused, or memory is missing\n"); exit(1); }
}

static float *floats(size_t n, unsigned seed)
{
    float *x = (float *)bench_alloc(n * sizeof(float));
    bench_fill(x, n, seed);
    return x;
}

static void call(void *job) { must(attn_sdpa((const attn_args *)job) == ATTN_OK); }

/* Microseconds of each form, measured alternately. */
static void measure(attn_args *way, double *us)
{
    static bench_turn turns[WAYS];
    for (int w = 0; w < WAYS; w++) turns[w].run = call, turns[w].job = way + w;
    bench_turns(turns, WAYS, ROUNDS, 1.5e-3, NULL);
    for (int w = 0; w < WAYS; w++) us[w] = turns[w].median * 1e6;
}

static void cache(attn_kv *c, int entries, int keys, int kv_heads, int head_dim)
{
    attn_kv_args how;
    memset(&how, 0, sizeof how);
    how.batch = entries, how.capacity = keys, how.kv_heads = kv_heads, how.head_dim = head_dim;
    must(attn_kv_init(c, &how) == ATTN_OK);
}

static void one(int i, const attn_exec *exec)
{
    static const int map[ENTRIES];                          /* all read entry 0 */
    const int entries = cases[i].entries, keys = cases[i].keys, own = cases[i].own, heads = cases[i].heads;
    const int kv_heads = cases[i].kv_heads, dim = cases[i].head_dim;
    const size_t rows = (size_t)entries * (size_t)heads * (size_t)dim, kv_row = (size_t)kv_heads * (size_t)dim;
    float *q = floats(rows, 1), *k = floats((size_t)keys * kv_row, 2), *v = floats((size_t)keys * kv_row, 3);
    float *more = floats((size_t)entries * (size_t)(own + 1) * kv_row, 4), *out[WAYS];
    float *all_k = floats((size_t)entries * (size_t)keys * kv_row, 5);
    float *all_v = floats((size_t)entries * (size_t)keys * kv_row, 6);
    attn_args way[WAYS];
    attn_kv single, pages, copies;
    double us[WAYS];
    for (int b = 0; b < entries; b++) {
        memcpy(all_k + (size_t)(b * keys) * kv_row, k, (size_t)keys * kv_row * sizeof *k);
        memcpy(all_v + (size_t)(b * keys) * kv_row, v, (size_t)keys * kv_row * sizeof *v);
    }
    cache(&single, 1, keys, kv_heads, dim);
    cache(&pages, entries, keys + own, kv_heads, dim);
    cache(&copies, entries, keys + own, kv_heads, dim);
    must(attn_kv_append(&single, -1, k, v, keys, 0) == ATTN_OK);
    must(attn_kv_append(&pages, 0, k, v, keys, 0) == ATTN_OK && attn_kv_reorder(&pages, map) == ATTN_OK);
    must(attn_kv_append(&copies, -1, all_k, all_v, keys, 0) == ATTN_OK);
    must(attn_kv_append(&pages, -1, more, more, own, 0) == ATTN_OK);
    must(attn_kv_append(&copies, -1, more, more, own, 0) == ATTN_OK);
    for (int w = 0; w < WAYS; w++) {
        const int together = w == ROWS_ONE || w == CACHE_ONE;
        way[w] = attn_args_for(together ? 1 : entries, together ? entries : 1, 0, heads, dim);
        way[w].kv_heads = kv_heads, way[w].q = q, way[w].out = out[w] = floats(rows, 7), way[w].exec = exec;
        if (w == ROWS_MAP || w == CACHE_MAP) way[w].k_map = map;
        if (w <= ROWS_MAP) way[w].k = k, way[w].v = v, way[w].n_k = keys, way[w].k_batch = 1;
        else way[w].kv = w == PAGES ? &pages : w == COPIES ? &copies : &single;
    }
    measure(way, us);
    for (int w = 0; w < WAYS; w++) {                        /* separate keys give other results */
        const int like = own && w >= PAGES ? PAGES : ROWS_ONE;
        must(memcmp(out[w], out[like], rows * sizeof *q) == 0);
    }
    printf("| %d x %d%s", entries, keys, own ? " + " : "");
    if (own) printf("%d", own);
    printf(", %d on %d x %d | %.1f | %.2f | %.1f | %.2f | %.2f | %.2f |\n", heads, kv_heads, dim, us[ROWS_ONE],
           us[ROWS_MAP] / us[ROWS_ONE], us[CACHE_ONE], us[CACHE_MAP] / us[CACHE_ONE], us[PAGES] / us[CACHE_ONE],
           us[COPIES] / us[CACHE_ONE]);
    attn_kv_free(&single), attn_kv_free(&pages), attn_kv_free(&copies);
    free(q), free(k), free(v), free(more), free(all_k), free(all_v);
    for (int w = 0; w < WAYS; w++) free(out[w]);
}

int main(int argc, char **argv)
{
    const int threads = argc > 2 && !strcmp(argv[1], "-t") ? atoi(argv[2]) : 1;
    attn_pool *pool;
    attn_exec exec;
    if (threads < 1 || (argc != 1 && argc != 3)) {
        fprintf(stderr, "usage: build/bench/shared [-t threads]\n");
        return 2;
    }
    bench_cpu_time = threads == 1;                          /* not affected by other programs */
    pool = attn_pool_create(threads);
    exec = attn_pool_exec(pool);
    printf("| entries x shared keys + own | one entry, rows: us | k_map | one entry, cache: us | k_map | shared pages |"
           " own copies |\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) one(i, threads > 1 ? &exec : NULL);
    attn_pool_destroy(pool);
    return 0;
}
