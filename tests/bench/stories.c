/* stories.c: tokens per second of whole models: examples/14_stories.c against a plain step, that step with the sgemv of
 * OpenBLAS and of MKL instead of its loops, and ONNX Runtime with an equivalent model, measured alternately.
 *
 *   build/bench/stories                    stories260K (../shared/models, or MODELS=folder), random 15M and 110M
 *   build/bench/stories 15M 110M           these
 *   build/bench/stories --busy             CPU time instead of time, with one thread: on shared machines
 *
 * Weights of the large ones are random, which does not affect speed. One and two threads; medians of rounds with one
 * turn each; logits must agree. tests/bench/build.sh builds this program. */
#define _POSIX_C_SOURCE 200809L
#ifndef ATTN_THREADS
#define ATTN_THREADS
#endif
#define main stories_main
#include "../../examples/14_stories.c"
#undef main
#include "bench.h"
#include <math.h>
#include "stories.h"

enum { LOOP, OPENBLAS, MKL, ORT, OURS, HALF, EIGHT, WAYS, ROUNDS = 5 };
static const char *const ways[WAYS] = { "plain loop", "OpenBLAS", "MKL", "ONNX Runtime", "attn.h", "attn.h, half",
                                         "attn.h, 8 bits" };
static char folder_of_program[1024] = ".";

/* The libraries of a plain step; gemv is NULL where one is missing. */
static struct library {
    gemv_function *gemv;
    void (*set_threads)(int);
} libraries[ORT];

static void libraries_open(const char *folder)
{
    static const char *const mkl[] = { "mkl/*/data/lib/libmkl_rt.so.*", "libmkl_rt.so", NULL };
    void *l;
    setenv("MKL_THREADING_LAYER", "GNU", 1);
    setenv("MKL_INTERFACE_LAYER", "LP64", 1);
    l = bench_load_openblas(folder, 0);
    if (l) {
        bench_symbol(l, "cblas_sgemv", &libraries[OPENBLAS].gemv);
        bench_symbol(l, "openblas_set_num_threads", &libraries[OPENBLAS].set_threads);
    }
    l = bench_load(folder, mkl);
    if (l) {
        bench_symbol(l, "cblas_sgemv", &libraries[MKL].gemv);
        bench_symbol(l, "MKL_Set_Num_Threads", &libraries[MKL].set_threads);
    }
    for (int w = OPENBLAS; w < ORT; w++)
        if (!libraries[w].gemv) printf("SKIPPED: %s is not here (make bench-peers)\n", ways[w]);
}

static int is_here(int way, const ort_teller *o)
{
    return way == LOOP || way >= OURS || (way == ORT ? o != NULL : libraries[way].gemv != NULL);
}

/* A checkpoint of these sizes in memory, N(0, 1/width)-like weights, norms of 1. */
static unsigned char *random_checkpoint(const int h[7], size_t *size)
{
    const size_t dim = (size_t)h[0], hidden = (size_t)h[1], layers = (size_t)h[2], words = (size_t)h[5];
    const size_t kv = dim / (size_t)h[3] * (size_t)h[4], angles = (size_t)h[6] * (dim / (size_t)h[3]);
    const size_t n = words * dim + 2 * layers * dim + layers * dim * (2 * dim + 2 * kv + 3 * hidden) + dim + angles;
    unsigned char *bytes = (unsigned char *)room(28 + 4 * n, 1);
    float *w = (float *)(void *)(bytes + 28);
    const float by = (float)(2 / sqrt((double)dim));
    unsigned state = 1;
    model m;
    memcpy(bytes, h, 28);
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        w[i] = ((float)(state >> 8) / 8388608.0f - 1) * by;
    }
    *size = 28 + 4 * n;
    if (model_parse(&m, bytes, *size)) exit(3);
    for (size_t i = 0; i < layers * dim; i++) w[m.norm - w + (ptrdiff_t)i] = w[m.ff_norm - w + (ptrdiff_t)i] = 1;
    for (size_t i = 0; i < dim; i++) w[m.last_norm - w + (ptrdiff_t)i] = 1;
    return bytes;
}

static void plain_init(plain_teller *t, const model *m)
{
    const size_t cache = (size_t)m->layers * (size_t)m->positions * (size_t)m->kv_dim;
    t->dim = m->dim, t->hidden = m->hidden, t->layers = m->layers, t->heads = m->heads, t->kv_heads = m->kv_heads;
    t->words = m->words, t->positions = m->positions;
    t->embedding = m->embedding, t->norm = m->norm, t->q = m->q, t->k = m->k, t->v = m->v, t->o = m->o;
    t->ff_norm = m->ff_norm, t->w1 = m->w1, t->w2 = m->w2, t->w3 = m->w3, t->last_norm = m->last_norm;
    t->classifier = m->classifier;
    t->keys = (float *)room(cache, 4), t->values = (float *)room(cache, 4);
    t->x = (float *)room((size_t)m->dim, 4), t->y = (float *)room((size_t)m->dim, 4);
    t->z = (float *)room((size_t)m->dim, 4);
    t->a = (float *)room((size_t)m->hidden, 4), t->b = (float *)room((size_t)m->hidden, 4);
    t->scores = (float *)room((size_t)m->heads * (size_t)m->positions, 4);
    t->logits = (float *)room((size_t)m->words, 4);
}

static void plain_free(plain_teller *t)
{
    free(t->keys), free(t->values), free(t->x), free(t->y), free(t->z), free(t->a), free(t->b), free(t->scores);
    free(t->logits);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The largest difference of logits, in parts of the largest logit. */
static double difference(const float *a, const float *b, int n)
{
    double most = 0, apart = 0;
    for (int i = 0; i < n; i++) {
        const double x = a[i] < 0 ? -a[i] : a[i], d = a[i] < b[i] ? b[i] - a[i] : a[i] - b[i];
        if (x > most) most = x;
        if (!(d <= apart)) apart = d;
    }
    return apart / most;
}

/* Seconds that one way takes for n tokens from an empty cache on. */
static double run(int way, plain_teller *p, ort_teller *o, teller *t, int n, int threads)
{
    double begin;
    if (way < ORT) {
        p->gemv = libraries[way].gemv;
        if (libraries[way].set_threads) libraries[way].set_threads(threads);
    } else if (way >= OURS)
        for (int l = 0; l < t->m.layers; l++) ok(attn_kv_truncate(&t->cache[l], -1, 0));
    begin = bench_clock();
    for (int i = 0; i < n; i++) {
        const int token = (int)((unsigned)i * 2654435761u >> 8) % p->words;
        if (way < ORT) plain_step(p, token, i, threads);
        else if (way == ORT) ort_teller_step(o, token, i);
        else step(t, &token, 1);
    }
    return bench_clock() - begin;
}

static void compare(const char *name, const unsigned char *bytes, size_t size, int n, int threads)
{
    static double took[WAYS][ROUNDS];
    double apart[WAYS] = { 0 };
    attn_pool *pool = attn_pool_create(threads);
    const attn_exec exec = attn_pool_exec(pool);
    plain_teller p;
    teller t[WAYS];
    ort_teller *o;
    const char *without = NULL;
    memset(t, 0, sizeof t);
    for (int w = OURS; w < WAYS; w++) {
        const char *why = model_parse(&t[w].m, bytes, size);
        if (why) refuse(name, why);
        const attn_storage kept = w == EIGHT ? ATTN_Q8 : w == HALF ? ATTN_F16 : ATTN_F32;
        const formats all = { kept, kept, kept };
        teller_init(&t[w], n, all, &exec);
    }
    plain_init(&p, &t[OURS].m);
    o = ort_teller_open(&p, folder_of_program, threads, &without);
    for (int r = 0; r < ROUNDS; r++)
        for (int w = WAYS; w-- > 0;) {                      /* attn.h first: the logits of all plain steps are
                                                               compared with its logits */
            if (!is_here(w, o)) continue;
            took[w][r] = run(w, &p, o, &t[w], n, threads);
            if (w < OURS) apart[w] = difference(p.logits, t[OURS].logits, p.words);
            for (int h = HALF; w == LOOP && h <= EIGHT; h++) apart[h] = difference(p.logits, t[h].logits, p.words);
        }
    printf("| %s, %d thread%s |", name, threads, threads > 1 ? "s" : "");
    for (int w = 0; w < WAYS; w++) {
        qsort(took[w], ROUNDS, sizeof took[w][0], by_value);
        if (is_here(w, o)) printf(" %.0f |", n / took[w][ROUNDS / 2]);
        else printf(" |");
    }
    printf(" %.2f | %.2f | %.2f |\n", took[LOOP][ROUNDS / 2] / took[OURS][ROUNDS / 2],
           took[LOOP][ROUNDS / 2] / took[HALF][ROUNDS / 2], took[LOOP][ROUNDS / 2] / took[EIGHT][ROUNDS / 2]);
    for (int w = 0; w < WAYS; w++)
        if (!(apart[w] < (w == EIGHT ? 0.5 : w == HALF ? 2e-2 : 1e-4)))
            printf("  WRONG: logits of %s differ by %.1g\n", ways[w], apart[w]);
    if (!o) printf("  SKIPPED: ONNX Runtime: %s\n", without);
    fflush(stdout);
    ort_teller_close(o);
    for (int w = OURS; w < WAYS; w++) teller_free(&t[w]);
    plain_free(&p);
    attn_pool_destroy(pool);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int header[7], tokens; } sizes[] = {
        { "260K", { 0 }, 256 },
        { "15M", { 288, 768, 6, 6, 6, 32000, 256 }, 128 },
        { "110M", { 768, 2048, 12, 12, 12, 32000, 1024 }, 32 }
    };
    const char *folder = getenv("MODELS") ? getenv("MODELS") : "../shared/models";
    const char *slash = strrchr(argv[0], '/');
    char path[1024];
    if (slash) snprintf(folder_of_program, sizeof folder_of_program, "%.*s", (int)(slash - argv[0]), argv[0]);
    for (int a = 1; a < argc; a++) {
        const int asked = !strcmp(argv[a], "-h") || !strcmp(argv[a], "--help");
        int known = !strcmp(argv[a], "--busy");
        bench_cpu_time |= known;
        for (int i = 0; i < 3; i++) known |= !strcmp(argv[a], sizes[i].name);
        if (!known) return fprintf(asked ? stdout : stderr, "usage: stories [--busy] [260K] [15M] [110M]\n"), asked ? 0 : 2;
    }
    bench_environment_clear();
    libraries_open(folder_of_program);
    printf("\n| tokens a second |");
    for (int w = 0; w < WAYS; w++) printf(" %s |", ways[w]);
    printf(" times the loop | half | 8 bits |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < 3; i++) {
        unsigned char *made = NULL;
        file f = { NULL, 0, 0, NULL };
        int wanted = argc < 2 + bench_cpu_time;
        for (int a = 1; a < argc; a++) wanted |= !strcmp(argv[a], sizes[i].name);
        if (!wanted) continue;
        if (i == 0) {
            FILE *there;
            snprintf(path, sizeof path, "%s/stories260K/stories260K.bin", folder);
            there = fopen(path, "rb");
            if (!there) { printf("SKIPPED: there is no %s; set MODELS\n", path); continue; }
            fclose(there);
            file_open(&f, path);
        } else {
            f.bytes = made = random_checkpoint(sizes[i].header, &f.size);
        }
        compare(sizes[i].name, f.bytes, f.size, sizes[i].tokens, 1);
        if (!bench_cpu_time) compare(sizes[i].name, f.bytes, f.size, sizes[i].tokens, 2);
        if (made) free(made);
        else file_close(&f);
    }
    return 0;
}
