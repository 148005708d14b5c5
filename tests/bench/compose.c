/* compose.c: attention built on a library's matrix product, as a careful user would write it: for every head, blocks of
 * 128 rows; scores only of the keys that the block can see; a vectorised softmax; the result is divided by the sum,
 * not each probability. Blocks are distributed to threads; each product runs on one thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { ROWS = 128 };

typedef struct attend_job {
    const bench_gemm *g;
    const attn_args *a;
    int group, blocks;                    /* heads that share one product; row blocks of a head */
} attend_job;

static void attend_task(void *arg, int t)
{
    const attend_job *job = (const attend_job *)arg;
    const bench_gemm *g = job->g;
    const attn_args *a = job->a;
    const int heads = a->heads / job->group, head_dim = a->head_dim, block = t % job->blocks;
    const int h = t / job->blocks % heads * job->group, b = t / job->blocks / heads;
    const int kv_heads = a->kv_heads ? a->kv_heads : a->heads, kv = h / (a->heads / kv_heads);
    const int q_row = a->heads * head_dim, k_row = kv_heads * head_dim, first = block * ROWS;
    const int rows = job->group > 1 ? job->group : a->n_q - first < ROWS ? a->n_q - first : ROWS;
    const int step = job->group > 1 ? head_dim : q_row;          /* one row a head: the heads of a group are the rows */
    const size_t q_at = ((size_t)b * (size_t)a->n_q + (size_t)first) * (size_t)q_row + (size_t)(h * head_dim);
    const size_t k_at = (size_t)b * (size_t)a->n_k * (size_t)k_row + (size_t)(kv * head_dim);
    const float scale = a->scale != 0.0f ? a->scale : 1.0f / sqrtf((float)head_dim);
    float sums[ROWS], *s;
    int lo, hi, last_lo, last_hi, n;

    bench_range(a, b, first, &lo, &hi);
    bench_range(a, b, first + (job->group > 1 ? 0 : rows - 1), &last_lo, &last_hi);
    if (last_lo < lo) lo = last_lo;
    if (last_hi > hi) hi = last_hi;
    n = hi - lo;
    s = bench_scratch((size_t)rows * (size_t)n);
    g->nt(g, rows, n, head_dim, scale, a->q + q_at, step, a->k + k_at + (size_t)lo * (size_t)k_row, k_row, 0.0f, s, n);
    for (int r = 0; r < rows; r++) {
        float *row = s + (size_t)r * (size_t)n;
        const int i = job->group > 1 ? 0 : first + r;
        const float *mask = NULL;
        int from, to;
        bench_range(a, b, i, &from, &to);
        if (a->mask) {
            const size_t entry = a->mask_shape[0] > 1 ? (size_t)b : 0;
            mask = a->mask + (entry * (size_t)a->n_q + (size_t)i) * (size_t)a->n_k + from;
        }
        memset(row, 0, (size_t)(from - lo) * sizeof *row);
        sums[r] = bench_loops_now->softmax(row + (from - lo), mask, to - from);
        memset(row + (to - lo), 0, (size_t)(hi - to) * sizeof *row);
    }
    g->nn(g, rows, head_dim, n, 1.0f, s, n, a->v + k_at + (size_t)lo * (size_t)k_row, k_row, 0.0f, a->out + q_at, step);
    for (int r = 0; r < rows; r++) {
        float *o = a->out + q_at + (size_t)r * (size_t)step;
        const float by = 1.0f / sums[r];
        for (int c = 0; c < head_dim; c++) o[c] *= by;
    }
}

void compose_attend(const bench_gemm *g, const attn_args *a)
{
    attend_job job;
    job.g = g;
    job.a = a;
    job.group = a->n_q == 1 && a->kv_heads ? a->heads / a->kv_heads : 1;
    job.blocks = (a->n_q + ROWS - 1) / ROWS;
    bench_parallel(a->exec, a->batch * (a->heads / job.group) * job.blocks, attend_task, &job);
}

/* ---- y = x W^T + b: blocks of 64 rows, or of 256 outputs if there is only one row ----------------------------- */
typedef struct linear_job {
    const bench_gemm *g;
    float *y;
    const float *x, *w, *b;
    int rows, n_in, n_out, y_row;
} linear_job;

static void linear_task(void *arg, int t)
{
    const linear_job *l = (const linear_job *)arg;
    const int few = l->rows < 64, step = few ? 256 : 64, all = few ? l->n_out : l->rows, first = t * step;
    const int n = all - first < step ? all - first : step, rows = few ? l->rows : n, out = few ? n : l->n_out;
    const float *x = l->x + (few ? 0 : (size_t)first * (size_t)l->n_in), *b = l->b + (few ? first : 0);
    const float *w = l->w + (few ? (size_t)first * (size_t)l->n_in : 0);
    float *y = l->y + (few ? (size_t)first : (size_t)first * (size_t)l->y_row);
    for (int r = 0; r < rows; r++) memcpy(y + (size_t)r * (size_t)l->y_row, b, (size_t)out * sizeof *b);
    l->g->nt(l->g, rows, out, l->n_in, 1.0f, x, l->n_in, w, l->n_in, 1.0f, y, l->y_row);
}

static void linear(const bench_gemm *g, float *y, int y_row, const float *x, const float *w, const float *b, int rows,
                   int n_in, int n_out, const attn_exec *exec)
{
    linear_job l;
    l.g = g;
    l.y = y;
    l.y_row = y_row;
    l.x = x;
    l.w = w;
    l.b = b;
    l.rows = rows;
    l.n_in = n_in;
    l.n_out = n_out;
    bench_parallel(exec, rows < 64 ? (n_out + 255) / 256 : (rows + 63) / 64, linear_task, &l);
}

/* g NULL: the plain loop */
typedef struct compose_job {
    const bench_gemm *g;
    const bench_case *c;
    attn_args a;
    float *q, *k, *v, *o;                 /* layers: [n_q][d_model] each */
} compose_job;

void *compose_prepare(const bench_gemm *g, const bench_case *c)
{
    compose_job *job = (compose_job *)calloc(1, sizeof *job);
    if (!job) exit(1);
    job->g = g;
    job->c = c;
    job->a = c->a;
    if (c->layer) {
        const size_t n = (size_t)c->a.n_q * (size_t)c->d_model;
        job->q = (float *)bench_alloc(4 * n * sizeof(float));
        job->k = job->q + n;
        job->v = job->k + n;
        job->o = job->v + n;
        job->a.q = job->q;
        job->a.out = job->o;
        if (c->layer == LAYER_SELF) {
            job->a.k = job->k;
            job->a.v = job->v;
        } else if (c->layer == LAYER_SELF_STEP) {           /* the new row is written in place */
            job->k = (float *)(size_t)c->a.k + (size_t)(c->a.n_k - 1) * (size_t)c->d_model;
            job->v = (float *)(size_t)c->a.v + (size_t)(c->a.n_k - 1) * (size_t)c->d_model;
        }
    }
    return job;
}

void compose_run(void *arg)
{
    compose_job *job = (compose_job *)arg;
    const bench_case *c = job->c;
    const attn_exec *exec = c->a.exec;
    const int d = c->d_model, n = c->a.n_q;
    const float *const w = c->w_in, *const b = c->b_in;
    if (!c->layer) {
        if (job->g) compose_attend(job->g, &job->a);
        else bench_loops_now->attend(&job->a);
        return;
    }
    for (int part = 0; part < (c->layer == LAYER_CROSS_STEP ? 1 : 3); part++) {
        float *y = part == 0 ? job->q : part == 1 ? job->k : job->v;
        const float *wp = w + (size_t)part * (size_t)d * (size_t)d, *bp = b + (size_t)part * (size_t)d;
        if (job->g) linear(job->g, y, d, c->x, wp, bp, n, d, d, exec);
        else bench_loops_now->linear(y, c->x, wp, bp, n, d, d, exec);
    }
    if (job->g) compose_attend(job->g, &job->a);
    else bench_loops_now->attend(&job->a);
    if (job->g) linear(job->g, c->a.out, d, job->o, c->w_o, c->b_o, n, d, d, exec);
    else bench_loops_now->linear(c->a.out, job->o, c->w_o, c->b_o, n, d, d, exec);
}

void compose_release(void *arg)
{
    compose_job *job = (compose_job *)arg;
    free(job->q);
    free(job);
}

/* ---- the plain loop as a peer -------------------------------------------------------------------------------- */
const bench_loops *bench_loops_now = &bench_loops_native;

static const char *plain_open(const bench_peer *p, const bench_setup *s)
{
    (void)p;
#if defined(__x86_64__)
    bench_loops_now = s->avx2 ? &bench_loops_avx2 : &bench_loops_native;
#else
    (void)s;
#endif
    return NULL;
}

static void *plain_prepare(const bench_peer *p, const bench_case *c)
{
    (void)p;
    return compose_prepare(NULL, c);
}

const bench_peer peer_plain = {"plain loop", plain_open,      plain_prepare, compose_run, NULL,
                               NULL,         compose_release, NULL,          NULL};
