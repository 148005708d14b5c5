/* stories_loop.c: the plain step, compiled with -O3 -march=native -ffast-math and OpenMP: the best code that a
 * compiler makes of simple loops. A library's sgemv uses its own threads. */
#include "stories.h"

#include <math.h>
#include <string.h>

enum { ROW_MAJOR = 101, PLAIN = 111, TURNED = 112 };

/* y = W x */
static void matmul(const plain_teller *t, float *y, const float *x, const float *w, int n_in, int n_out, int threads)
{
    (void)threads;
    if (t->gemv) {
        t->gemv(ROW_MAJOR, PLAIN, n_out, n_in, 1, w, n_in, x, 1, 0, y, 1);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for if (threads > 1) num_threads(threads)
#endif
    for (int i = 0; i < n_out; i++) {
        float sum = 0;
        for (int j = 0; j < n_in; j++) sum += w[(long)i * n_in + j] * x[j];
        y[i] = sum;
    }
}

static void rms_norm(float *y, const float *x, const float *weight, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    const float by = 1 / sqrtf(sum / (float)n + 1e-5f);
    for (int i = 0; i < n; i++) y[i] = weight[i] * (by * x[i]);
}

/* Rotates pairs of neighbours by the angle of their position. */
static void rotate(float *x, int width, int head, int position)
{
    for (int i = 0; i < width; i += 2) {
        const float angle = (float)position * powf(10000, -(float)(i % head) / (float)head);
        const float c = cosf(angle), s = sinf(angle), x0 = x[i], x1 = x[i + 1];
        x[i] = x0 * c - x1 * s;
        x[i + 1] = x0 * s + x1 * c;
    }
}

static void attend(const plain_teller *t, float *out, const float *q, const float *keys, const float *values,
                   float *scores, int n, int row, int head)
{
    float most = -INFINITY, sum = 0;
    if (t->gemv) t->gemv(ROW_MAJOR, PLAIN, n, head, 1 / sqrtf((float)head), keys, row, q, 1, 0, scores, 1);
    for (int j = 0; j < n; j++) {
        float s = 0;
        for (int i = 0; i < head && !t->gemv; i++) s += q[i] * keys[(long)j * row + i];
        if (!t->gemv) scores[j] = s / sqrtf((float)head);
        if (scores[j] > most) most = scores[j];
    }
    for (int j = 0; j < n; j++) sum += scores[j] = expf(scores[j] - most);
    if (t->gemv) {
        t->gemv(ROW_MAJOR, TURNED, n, head, 1 / sum, values, row, scores, 1, 0, out, 1);
        return;
    }
    memset(out, 0, (size_t)head * sizeof *out);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < head; i++) out[i] += scores[j] / sum * values[(long)j * row + i];
}

void plain_step(plain_teller *t, int token, int position, int threads)
{
    const int dim = t->dim, head = dim / t->heads, row = t->kv_heads * head, group = t->heads / t->kv_heads;
    memcpy(t->x, t->embedding + (long)token * dim, (size_t)dim * sizeof *t->x);
    for (int l = 0; l < t->layers; l++) {
        float *keys = t->keys + (long)l * t->positions * row, *values = t->values + (long)l * t->positions * row;
        float *k = keys + (long)position * row;
        rms_norm(t->y, t->x, t->norm + (long)l * dim, dim);
        matmul(t, t->z, t->y, t->q + (long)l * dim * dim, dim, dim, threads);
        matmul(t, k, t->y, t->k + (long)l * dim * row, dim, row, threads);
        matmul(t, values + (long)position * row, t->y, t->v + (long)l * dim * row, dim, row, threads);
        rotate(t->z, dim, head, position);
        rotate(k, row, head, position);
#ifdef _OPENMP
#pragma omp parallel for if (threads > 1 && !t->gemv) num_threads(threads)
#endif
        for (int h = 0; h < t->heads; h++)
            attend(t, t->y + h * head, t->z + h * head, keys + h / group * head, values + h / group * head,
                   t->scores + (long)h * t->positions, position + 1, row, head);
        matmul(t, t->z, t->y, t->o + (long)l * dim * dim, dim, dim, threads);
        for (int i = 0; i < dim; i++) t->x[i] += t->z[i];
        rms_norm(t->y, t->x, t->ff_norm + (long)l * dim, dim);
        matmul(t, t->a, t->y, t->w1 + (long)l * dim * t->hidden, dim, t->hidden, threads);
        matmul(t, t->b, t->y, t->w3 + (long)l * dim * t->hidden, dim, t->hidden, threads);
        for (int i = 0; i < t->hidden; i++) t->a[i] *= t->b[i] / (1 + expf(-t->a[i]));
        matmul(t, t->z, t->a, t->w2 + (long)l * dim * t->hidden, t->hidden, dim, threads);
        for (int i = 0; i < dim; i++) t->x[i] += t->z[i];
    }
    rms_norm(t->y, t->x, t->last_norm, dim);
    matmul(t, t->logits, t->y, t->classifier, dim, t->words, threads);
}
