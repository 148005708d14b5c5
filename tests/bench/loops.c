/* loops.c: attention as it is usually written, a loop over rows that the compiler optimises. Compiled with
 * -O3 -march=native -ffast-math (BENCH_LOOPS = native) and, on x86, with AVX2 alone (BENCH_LOOPS = avx2).
 * Also the softmax of compose.c, which any compiler vectorises. */
#include <math.h>
#include <string.h>

#include "bench.h"

#define GLUE2(a, b) a##b
#define GLUE(a, b) GLUE2(a, b)

/* With -ffast-math a compiler may ignore infinities, so hidden cells are recognised by their bits. */
static int hidden(float x)
{
    unsigned u;
    memcpy(&u, &x, sizeof u);
    return u == 0xFF800000u;
}

typedef struct plain_job {
    const attn_args *a;
    int blocks;                           /* of 64 rows, per entry and head */
    void (*row)(const attn_args *a, int b, int h, int i, float *s);
} plain_job;

static void plain_row(const attn_args *a, int b, int h, int i, float *s)
{
    const int kv_heads = a->kv_heads ? a->kv_heads : a->heads, head_dim = a->head_dim, g = h / (a->heads / kv_heads);
    const int ragged = a->q_cum != NULL;
    const size_t q_first = ragged ? (size_t)a->q_cum[b] : (size_t)b * (size_t)a->n_q;
    const size_t k_first = a->k_cum ? (size_t)a->k_cum[b] : (size_t)b * (size_t)a->n_k;
    const size_t k_row = (size_t)(kv_heads * head_dim);
    const float *q = a->q + ((q_first + (size_t)i) * (size_t)a->heads + (size_t)h) * (size_t)head_dim;
    const float *k = a->k + k_first * k_row + g * head_dim, *v = a->v + k_first * k_row + g * head_dim;
    const float scale = a->scale != 0.0f ? a->scale : 1.0f / sqrtf((float)head_dim);
    const size_t cell = ((size_t)b * (size_t)a->heads + (size_t)h) * (size_t)a->n_q + (size_t)i;
    float *out = a->out + ((q_first + (size_t)i) * (size_t)a->heads + (size_t)h) * (size_t)head_dim;
    float *w = a->weights ? a->weights + cell * (size_t)a->n_k : NULL;
    float max = -1e38f, sum = 0;
    int lo, hi;

    bench_range(a, b, i, &lo, &hi);
    for (int j = lo; j < hi; j++) {
        float dot = 0;
        for (int c = 0; c < head_dim; c++) dot += q[c] * k[(size_t)j * k_row + (size_t)c];
        s[j] = dot * scale;
    }
    if (a->softcap > 0)
        for (int j = lo; j < hi; j++) s[j] = a->softcap * tanhf(s[j] / a->softcap);
    if (a->alibi_slopes) {
        const int p = i + bench_position(a, b);
        for (int j = lo; j < hi; j++) s[j] -= a->alibi_slopes[h] * fabsf((float)(p - j));
    }
    if (a->bias) {
        const float *bias = a->bias + ((size_t)h * (size_t)a->n_q + (size_t)i) * (size_t)a->n_k;
        for (int j = lo; j < hi; j++) s[j] += bias[j];
    }
    if (a->mask) {
        const size_t entry = a->mask_shape[0] > 1 ? (size_t)b : 0, head = a->mask_shape[1] > 1 ? (size_t)h : 0;
        const size_t heads = a->mask_shape[1] > 1 ? (size_t)a->heads : 1,
                     rows = a->mask_shape[2] == 1 ? 1 : (size_t)a->n_q;
        const float *m = a->mask + ((entry * heads + head) * rows + (rows > 1 ? (size_t)i : 0)) * (size_t)a->n_k;
        for (int j = lo; j < hi; j++) s[j] = hidden(m[j]) ? -1e38f : s[j] + m[j];
    }
    if (a->keep) {
        const size_t entry = a->keep_shape[0] > 1 ? (size_t)b : 0, rows = a->keep_shape[2] == 1 ? 1 : (size_t)a->n_q;
        const unsigned char *keep = a->keep + (entry * rows + (rows > 1 ? (size_t)i : 0)) * (size_t)a->n_k;
        for (int j = lo; j < hi; j++) s[j] = keep[j] ? s[j] : -1e38f;
    }
    for (int j = lo; j < hi; j++) max = s[j] > max ? s[j] : max;
    for (int c = 0; c < head_dim; c++) out[c] = 0;
    if (w) memset(w, 0, (size_t)a->n_k * sizeof *w);
    if (max <= -1e37f) {                                    /* an empty row */
        if (a->lse) a->lse[cell] = -1e38f;
        return;
    }
    for (int j = lo; j < hi; j++) sum += s[j] = expf(s[j] - max);
    for (int j = lo; j < hi; j++)
        for (int c = 0; c < head_dim; c++) out[c] += s[j] * v[(size_t)j * k_row + (size_t)c];
    for (int c = 0; c < head_dim; c++) out[c] /= sum;
    if (w) for (int j = lo; j < hi; j++) w[j] = s[j] / sum;
    if (a->lse) a->lse[cell] = max + logf(sum);
}

static void plain_task(void *arg, int t)
{
    const plain_job *p = (const plain_job *)arg;
    const attn_args *a = p->a;
    const int b = t / p->blocks / a->heads, h = t / p->blocks % a->heads, first = t % p->blocks * 64;
    const int rows = bench_rows(a, b), all = a->q_cum ? rows : a->n_q, last = first + 64 < all ? first + 64 : all;
    float *s = bench_scratch(2 * (size_t)a->n_k);
    for (int i = first; i < last; i++) {
        if (i < rows) p->row(a, b, h, i, s);
        else
            memset(a->out + (((size_t)b * (size_t)a->n_q + (size_t)i) * (size_t)a->heads + (size_t)h) * (size_t)a->head_dim,
                   0, (size_t)a->head_dim * sizeof(float));
    }
}

static void attend_by(const attn_args *a, void (*row)(const attn_args *a, int b, int h, int i, float *s))
{
    plain_job p;
    p.a = a;
    p.row = row;
    p.blocks = (a->n_q + 63) / 64;
    bench_parallel(a->exec, a->batch * a->heads * p.blocks, plain_task, &p);
}

static void attend(const attn_args *a) { attend_by(a, plain_row); }

/* For masks that hide most keys: lists the visible keys, then reads only these. One matrix of mask
 * or keep bytes for all entries and heads, one K/V head for each head, nothing ragged. */
static void sparse_row(const attn_args *a, int b, int h, int i, float *s)
{
    const int head_dim = a->head_dim;
    const size_t row = (size_t)(a->heads * head_dim), first = (size_t)b * (size_t)a->n_k;
    const size_t cell = (size_t)(a->n_q > 1 ? i : 0) * (size_t)a->n_k;
    const size_t at = ((size_t)b * (size_t)a->n_q + (size_t)i) * row + (size_t)(h * head_dim);
    const float *q = a->q + at, *k = a->k + first * row + h * head_dim, *v = a->v + first * row + h * head_dim;
    const float scale = 1.0f / sqrtf((float)head_dim);
    float *out = a->out + at, max = -1e38f, sum = 0;
    int *list = (int *)(void *)(s + a->n_k), n = 0, lo, hi;
    bench_range(a, b, i, &lo, &hi);
    if (a->keep) { for (int j = lo; j < hi; j++) if (a->keep[cell + (size_t)j]) list[n++] = j; }
    else if (a->mask) { for (int j = lo; j < hi; j++) if (!hidden(a->mask[cell + (size_t)j])) list[n++] = j; }
    else for (int j = lo; j < hi; j++) list[n++] = j;
    for (int t = 0; t < n; t++) {
        const float *x = k + (size_t)list[t] * row;
        float dot = 0;
        for (int c = 0; c < head_dim; c++) dot += q[c] * x[c];
        s[t] = dot * scale + (a->mask ? a->mask[cell + (size_t)list[t]] : 0.0f);
    }
    for (int t = 0; t < n; t++) max = s[t] > max ? s[t] : max;
    for (int c = 0; c < head_dim; c++) out[c] = 0;
    for (int t = 0; t < n; t++) sum += s[t] = expf(s[t] - max);
    for (int t = 0; t < n; t++) {
        const float *x = v + (size_t)list[t] * row;
        for (int c = 0; c < head_dim; c++) out[c] += s[t] * x[c];
    }
    for (int c = 0; c < head_dim && n > 0; c++) out[c] /= sum;
}

static void attend_sparse(const attn_args *a) { attend_by(a, sparse_row); }

typedef struct linear_job {
    float *y;
    const float *x, *w, *b;
    int rows, n_in, n_out;
} linear_job;

static void linear_task(void *arg, int t)
{
    const linear_job *l = (const linear_job *)arg;
    const int first = t * 64, last = first + 64 < l->n_out ? first + 64 : l->n_out;
    for (int i = 0; i < l->rows; i++)
        for (int o = first; o < last; o++) {
            const float *x = l->x + (size_t)i * (size_t)l->n_in, *w = l->w + (size_t)o * (size_t)l->n_in;
            float sum = l->b[o];
            for (int c = 0; c < l->n_in; c++) sum += x[c] * w[c];
            l->y[(size_t)i * (size_t)l->n_out + (size_t)o] = sum;
        }
}

static void linear(float *y, const float *x, const float *w, const float *b, int rows, int n_in, int n_out,
                   const attn_exec *exec)
{
    linear_job l;
    l.y = y;
    l.x = x;
    l.w = w;
    l.b = b;
    l.rows = rows;
    l.n_in = n_in;
    l.n_out = n_out;
    bench_parallel(exec, (n_out + 63) / 64, linear_task, &l);
}

/* exp by 2^n * polynomial, in a form that every vectoriser takes; relative error 2e-7, 0 or tiny below -87 */
static inline float quick_exp(float x)
{
    float n, y;
    int i;
    x = x < -87.0f ? -87.0f : x;
    n = x * 1.44269504f + 12582912.0f;                      /* 1.5 * 2^23: rounds to an integer in the low bits */
    memcpy(&i, &n, sizeof i);
    i = (int)((unsigned)i << 23) + 0x3F800000;
    memcpy(&y, &i, sizeof y);
    /* not by subtracting 12582912 again: -ffast-math would cancel it */
    x -= (float)((i >> 23) - 127) * 0.693147181f;
    return y * (1.0f + x * (0.99999994f + x * (0.50000012f + x * (0.16666552f + x * (0.041664604f + x * (0.0083690523f +
           x * 0.0013930512f))))));
}

static float softmax(float *s, const float *mask, int n)
{
    float max = -1e38f, sum = 0;
    if (mask) for (int j = 0; j < n; j++) s[j] += mask[j];
    for (int j = 0; j < n; j++) max = s[j] > max ? s[j] : max;
    for (int j = 0; j < n; j++) sum += s[j] = quick_exp(s[j] - max);
    return sum;
}

const bench_loops GLUE(bench_loops_, BENCH_LOOPS) = { attend, linear, softmax, attend_sparse };
