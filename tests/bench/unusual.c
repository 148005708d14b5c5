/* unusual.c: calls whose masks hide most keys, and other unusual calls: compares the time with that of a plain loop
 * over visible keys only. A loop skips hidden keys, and so must a library.
 *
 *   build/bench/bench --unusual           AVX2 alone: --unusual -i avx2
 *   build/bench/bench --unusual --count 3 runs line 3 once, untimed, for valgrind, which counts its instructions;
 *                                         --loop 3: the same for the loop
 * One thread, medians; the loop and attn.h take turns. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum unusual_mask { NO_MASK, SINGLE, RUNS, DOCUMENTS, DOCUMENTS_ADDED, NOTHING, BAND_ADDED, DENORMAL };
static const struct unusual {
    const char *text;
    int batch, n_q, n_k, heads, head_dim, window;           /* window: causal, this many keys to the left */
    enum unusual_mask mask;
} unusual[] = {
    { "1 x 8192, 8 x 64, keep leaves 1 %", 1, 1, 8192, 8, 64, 0, SINGLE },
    { "1 x 8192, 8 x 64, keep leaves 1 % in runs of 16", 1, 1, 8192, 8, 64, 0, RUNS },
    { "1024 x 1024, 2 x 64, keep leaves 1 % in runs of 16", 1, 1024, 1024, 2, 64, 0, RUNS },
    { "1024 x 1024, 2 x 64, keep leaves nothing", 1, 1024, 1024, 2, 64, 0, NOTHING },
    { "2048 x 2048, 2 x 64, no mask", 1, 2048, 2048, 2, 64, 0, NO_MASK },
    { "2048 x 2048, 2 x 64, keep: 16 documents", 1, 2048, 2048, 2, 64, 0, DOCUMENTS },
    { "2048 x 2048, 2 x 64, mask: 16 documents", 1, 2048, 2048, 2, 64, 0, DOCUMENTS_ADDED },
    { "4096 x 4096, 2 x 64, causal, window_left 1", 1, 4096, 4096, 2, 64, 1, NO_MASK },
    { "4096 x 4096, 2 x 64, causal, window_left 2", 1, 4096, 4096, 2, 64, 2, NO_MASK },
    { "2048 x 2048, 2 x 64, mask: a window of 16", 1, 2048, 2048, 2, 64, 0, BAND_ADDED },
    { "batch 20000 of 1 x 1, 1 x 16", 20000, 1, 1, 1, 16, 0, NO_MASK },
    { "batch 20000 of 1 x 4, 1 x 16", 20000, 1, 4, 1, 16, 0, NO_MASK },
    { "batch 20000 of 1 x 4, 1 x 1", 20000, 1, 4, 1, 1, 0, NO_MASK },
    { "1 x 1048576, 1 x 1", 1, 1, 1 << 20, 1, 1, 0, NO_MASK },
    { "4 x 1024, 32 x 128", 1, 4, 1024, 32, 128, 0, NO_MASK },
    { "5 x 1024, 32 x 128", 1, 5, 1024, 32, 128, 0, NO_MASK },
    { "256 x 256, 8 x 64", 1, 256, 256, 8, 64, 0, NO_MASK },
    { "256 x 256, 8 x 64, K denormal", 1, 256, 256, 8, 64, 0, DENORMAL },
};
enum { LINES = sizeof unusual / sizeof *unusual };

/* Returns 1 if row i sees key j. Runs and single keys are drawn by a multiplicative hash. */
static int sees(const struct unusual *o, int i, int j)
{
    const unsigned per = o->mask == RUNS ? 16 : 1;
    const unsigned draw = ((unsigned)i * 2654435761u + (unsigned)j / per * 2246822519u + 12345u) * 3266489917u;
    const int document = o->n_q / 16;
    switch (o->mask) {
    case SINGLE: case RUNS: return (draw >> 8) % 100 == 0;
    case DOCUMENTS: case DOCUMENTS_ADDED: return i / document == j / document;
    case BAND_ADDED: return j <= i && j > i - 16;
    default: return 0;
    }
}

typedef struct unusual_job {
    attn_args a;
    float *x, *mask;                      /* q, k, v and out; NULL: keep bytes */
    unsigned char *keep;
    size_t out_floats;
} unusual_job;

static void unusual_open(unusual_job *job, const struct unusual *o)
{
    const size_t row = (size_t)(o->heads * o->head_dim), q = (size_t)(o->batch * o->n_q) * row;
    const size_t k = (size_t)(o->batch * o->n_k) * row, cells = (size_t)o->n_q * (size_t)o->n_k;
    memset(job, 0, sizeof *job);
    job->a = attn_args_for(o->batch, o->n_q, o->n_k, o->heads, o->head_dim);
    job->x = (float *)bench_alloc((2 * q + 2 * k) * sizeof(float));
    bench_fill(job->x, 2 * q + 2 * k, 1);
    job->a.q = job->x;
    job->a.k = job->x + q;
    job->a.v = job->x + q + k;
    job->a.out = job->x + q + 2 * k;
    job->out_floats = q;
    if (o->window) job->a.causal = ATTN_CAUSAL_TOP_LEFT;
    job->a.window_left = o->window;
    for (size_t i = 0; o->mask == DENORMAL && i < k; i++) job->x[q + i] *= 1e-40f;
    if (o->mask == NO_MASK || o->mask == DENORMAL) return;
    if (o->mask == DOCUMENTS_ADDED || o->mask == BAND_ADDED) {
        job->a.mask = job->mask = (float *)bench_alloc(cells * sizeof(float));
        job->a.mask_shape[0] = job->a.mask_shape[1] = 1;
        job->a.mask_shape[2] = o->n_q;
    } else {
        job->a.keep = job->keep = (unsigned char *)bench_alloc(cells);
        job->a.keep_shape[0] = job->a.keep_shape[1] = 1;
        job->a.keep_shape[2] = o->n_q;
    }
    for (int i = 0; i < o->n_q; i++)
        for (int j = 0; j < o->n_k; j++) {
            const size_t at = (size_t)i * (size_t)o->n_k + (size_t)j;
            if (job->mask) job->mask[at] = sees(o, i, j) ? 0.0f : -INFINITY;
            else job->keep[at] = (unsigned char)sees(o, i, j);
        }
}

static void unusual_close(unusual_job *job)
{
    free(job->x);
    free(job->mask);
    free(job->keep);
}

static void run_ours(void *job)
{
    const attn_status status = attn_sdpa(&((unusual_job *)job)->a);
    if (status == ATTN_OK) return;
    fprintf(stderr, "unusual: %s\n", attn_status_str(status));
    exit(1);
}

static void run_loop(void *job) { bench_loops_now->sparse(&((unusual_job *)job)->a); }

int bench_unusual_run(int line, int loop, attn_backend backend)
{
    const bench_setup avx2 = { 1, 1, NULL, "." };           /* valgrind has no AVX-512, so the loop uses none */
    unusual_job job;
    if (backend == ATTN_AVX2) peer_plain.open(&peer_plain, &avx2);
    if (line < 1 || line > LINES) return 0;
    unusual_open(&job, unusual + line - 1);
    job.a.backend = backend;
    if (loop) run_loop(&job);
    else run_ours(&job);
    unusual_close(&job);
    return 1;
}

void bench_unusual_print(const bench_setup *s, int rounds)
{
    printf("\nCalls with little to do, one thread, medians of %d, microseconds:\n\n"
           "| line | rows x keys, heads x head_dim | the loop | attn.h | times the loop's |\n|---|---|---|---|---|\n",
           rounds);
    for (int i = 0; i < LINES; i++) {
        static bench_turn t[2];
        unusual_job job;
        float *expected;
        unusual_open(&job, unusual + i);
        job.a.backend = s->avx2 ? ATTN_AVX2 : ATTN_AUTO;
        memset(t, 0, sizeof t);
        t[0].run = run_loop;
        t[1].run = run_ours;
        t[0].job = t[1].job = &job;
        expected = (float *)bench_alloc(job.out_floats * sizeof(float));
        run_loop(&job);
        memcpy(expected, job.a.out, job.out_floats * sizeof(float));
        run_ours(&job);
        if (bench_difference(expected, job.a.out, job.out_floats) > 1e-4) {
            printf("%s: attn.h differs from the loop\n", unusual[i].text);
            exit(1);
        }
        bench_turns(t, 2, rounds, 0.5e-3, NULL);
        printf("| %d | %s | %.1f | %.1f | %.2f |\n", i + 1, unusual[i].text, t[0].median * 1e6, t[1].median * 1e6,
               t[1].median / t[0].median);
        fflush(stdout);
        free(expected);
        unusual_close(&job);
    }
}
