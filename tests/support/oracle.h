/* oracle.h: computes in double what attn_sdpa must write, directly from the definition of every field of attn_args.
 *
 * Simple, and independent of the header: no chunks, no blocks, no running maximum, libm for exp and
 * tanh. Section 1 is the geometry (positions, visible keys), useful to every test. Section 2 is the oracle.
 * Section 3 bounds the distance of a float result from it: derived from the arithmetic, not a tolerance.
 *
 *     oracle o;
 *     oracle_run(&o, &args);               out, weights, lse, masked_rows in double
 *     oracle_check(&o, &args, "seed 7");   CHECKs what attn_sdpa(&args) wrote against them, within the bound
 *     oracle_free(&o);
 *
 * Supports all fields of attn_args except kv (see kv_model.h); ignores work, exec and backend. The arguments must be
 * valid: call attn_check first. */
#ifndef ORACLE_H
#define ORACLE_H

#include "test.h"

#if defined(__GNUC__) || defined(__clang__)
#define ORACLE static inline __attribute__((unused))
#else
#define ORACLE static inline
#endif

/* ---- 1  geometry ----------------------------------------------------------------------------------------- */

typedef struct oracle_shape {
    int batch, heads, kv_heads, n_q, n_k, head_dim, v_head_dim;
    ptrdiff_t q[3], k[3], v[3], out[3];       /* strides {batch, row, head} in floats */
    ptrdiff_t mask[3], keep[3], bias[3];      /* steps {batch, head, row} in cells; 0 if one is shared */
} oracle_shape;

ORACLE int oracle_longest(const int *cum, int batch)
{
    int most = 0;
    for (int b = 0; b < batch; b++)
        if (cum[b + 1] - cum[b] > most) most = cum[b + 1] - cum[b];
    return most;
}

ORACLE void oracle_strides(ptrdiff_t to[3], const ptrdiff_t given[3], int layout, int heads, int rows, int width)
{
    ptrdiff_t row = given[1], head = given[2];
    if (layout == ATTN_BSHD) {
        if (!head) head = width;
        if (!row) row = heads * head;
        to[0] = given[0] ? given[0] : rows * row;
    } else {
        if (!row) row = width;
        if (!head) head = rows * row;
        to[0] = given[0] ? given[0] : heads * head;
    }
    to[1] = row;
    to[2] = head;
}

ORACLE ptrdiff_t oracle_larger(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }

/* mask, keep or bias: shape and given are {batch, head, row} */
ORACLE void oracle_steps(ptrdiff_t to[3], const int shape[3], const ptrdiff_t given[3], int heads_by_default,
                         const oracle_shape *s)
{
    int shaped = shape[0] || shape[1] || shape[2];
    int batch = shaped ? shape[0] : 1, heads = shaped ? shape[1] : heads_by_default, rows = shaped ? shape[2] : s->n_q;
    ptrdiff_t row = given[2] ? given[2] : s->n_k, matrix = oracle_larger(rows * row, s->n_k);
    ptrdiff_t head = given[1] ? given[1] : matrix, whole = oracle_larger(heads * head, matrix);
    to[2] = rows > 1 ? row : 0;
    to[1] = heads > 1 ? head : 0;
    to[0] = batch < 2 ? 0 : given[0] ? given[0] : whole;
}

ORACLE oracle_shape oracle_shape_of(const attn_args *a)
{
    oracle_shape s;
    s.batch = a->batch;
    s.heads = a->heads;
    s.kv_heads = a->kv_heads ? a->kv_heads : a->heads;
    s.head_dim = a->head_dim;
    s.v_head_dim = a->v_head_dim ? a->v_head_dim : a->head_dim;
    s.n_q = a->q_cum && !a->n_q ? oracle_longest(a->q_cum, a->batch) : a->n_q;
    s.n_k = a->k_cum && !a->n_k ? oracle_longest(a->k_cum, a->batch) : a->n_k;
    int q_rows = a->q_cum ? a->q_cum[a->batch] : s.n_q, k_rows = a->k_cum ? a->k_cum[a->batch] : s.n_k;
    oracle_strides(s.q, a->q_stride, a->layout, s.heads, q_rows, s.head_dim);
    oracle_strides(s.out, a->out_stride, a->layout, s.heads, q_rows, s.v_head_dim);
    oracle_strides(s.k, a->k_stride, a->layout, s.kv_heads, k_rows, s.head_dim);
    oracle_strides(s.v, a->v_stride, a->layout, s.kv_heads, k_rows, s.v_head_dim);
    oracle_steps(s.mask, a->mask_shape, a->mask_stride, 1, &s);
    oracle_steps(s.keep, a->keep_shape, a->keep_stride, 1, &s);
    oracle_steps(s.bias, a->bias_shape, a->bias_stride, s.heads, &s);
    return s;
}

/* rows that exist in entry b; keys that exist are start <= j < end */
ORACLE int oracle_rows(const attn_args *a, int b)
{
    return a->q_cum ? a->q_cum[b + 1] - a->q_cum[b] : a->q_lengths ? a->q_lengths[b] : a->n_q;
}
ORACLE int oracle_start(const attn_args *a, int b) { return a->k_starts ? a->k_starts[b] : 0; }
ORACLE int oracle_end(const attn_args *a, int b)
{
    if (a->k_cum) return a->k_cum[b + 1] - a->k_cum[b];
    return a->k_lengths ? oracle_start(a, b) + a->k_lengths[b] : a->n_k;
}

/* Position of row 0 of entry b among the keys. */
ORACLE long long oracle_pos(const attn_args *a, int b)
{
    long long pos = a->q_pos;
    if (a->q_pos_each) pos += a->q_pos_each[b];
    if (a->causal == ATTN_CAUSAL_BOTTOM_RIGHT || a->align == ATTN_ALIGN_BOTTOM_RIGHT)
        pos += oracle_end(a, b) - oracle_rows(a, b);
    return pos;
}

/* offsets in elements: row i of head h of entry b in q and out; key j for (QUERY) head h of b in k and v */
ORACLE ptrdiff_t oracle_row_at(const ptrdiff_t stride[3], const int *cum, int b, int h, int i)
{
    return (cum ? cum[b] * stride[1] : b * stride[0]) + i * stride[1] + h * stride[2];
}
ORACLE ptrdiff_t oracle_q_at(const attn_args *a, const oracle_shape *s, int b, int h, int i)
{
    return oracle_row_at(s->q, a->q_cum, b, h, i);
}
ORACLE ptrdiff_t oracle_out_at(const attn_args *a, const oracle_shape *s, int b, int h, int i)
{
    return oracle_row_at(s->out, a->q_cum, b, h, i);
}
ORACLE ptrdiff_t oracle_k_at(const attn_args *a, const oracle_shape *s, int b, int h, int j)
{
    return oracle_row_at(s->k, a->k_cum, a->k_map ? a->k_map[b] : b, h / (s->heads / s->kv_heads), j);
}
ORACLE ptrdiff_t oracle_v_at(const attn_args *a, const oracle_shape *s, int b, int h, int j)
{
    return oracle_row_at(s->v, a->k_cum, a->k_map ? a->k_map[b] : b, h / (s->heads / s->kv_heads), j);
}
/* step is s->mask, s->keep or s->bias */
ORACLE ptrdiff_t oracle_cell_at(const ptrdiff_t step[3], int b, int h, int i, int j)
{
    return b * step[0] + h * step[1] + i * step[2] + j;
}
ORACLE size_t oracle_weight_at(const oracle_shape *s, int b, int h, int i, int j)
{
    return (((size_t)b * (size_t)s->heads + (size_t)h) * (size_t)s->n_q + (size_t)i) * (size_t)s->n_k + (size_t)j;
}

/* rel_bias for key j and row i of head h of entry b: its index, and its value, 0 without rel_bias. */
ORACLE size_t oracle_rel_at(const attn_args *a, int b, int h, int i, int j)
{
    const long long extent = a->rel_extent, width = 2 * extent + 1;
    long long d = j - (oracle_pos(a, b) + i);
    if (d < -extent) d = -extent;
    if (d > extent) d = extent;
    return (size_t)(h * width + extent + d);
}

ORACLE double oracle_rel(const attn_args *a, int b, int h, int i, int j)
{
    return a->rel_bias ? (double)a->rel_bias[oracle_rel_at(a, b, h, i, j)] : 0.0;
}

/* Returns 1 if row i of head h of entry b sees key j: the intersection of all masks. */
ORACLE int oracle_sees(const attn_args *a, const oracle_shape *s, int b, int h, int i, int j)
{
    long long p = oracle_pos(a, b) + i;
    if (i >= oracle_rows(a, b)) return 0;
    if (j < oracle_start(a, b) || j >= oracle_end(a, b)) return 0;
    if (a->causal != ATTN_CAUSAL_NONE && j > p) return 0;
    if (a->window_left > 0 && j <= p - a->window_left) return 0;
    if (a->window_right > 0 && j >= p + a->window_right) return 0;
    if (a->keep && !a->keep[oracle_cell_at(s->keep, b, h, i, j)]) return 0;
    if (a->mask && a->mask[oracle_cell_at(s->mask, b, h, i, j)] == -INFINITY) return 0;
    if (a->bias && a->bias[oracle_cell_at(s->bias, b, h, i, j)] == -INFINITY) return 0;
    if (a->rel_bias && oracle_rel(a, b, h, i, j) == -INFINITY) return 0;
    return 1;
}

/* ---- 2  the oracle --------------------------------------------------------------------------------------- */

typedef struct oracle {
    oracle_shape shape;
    double *out;                  /* [batch][heads][n_q][v_head_dim], whatever the layout of the arguments */
    double *weights;              /* [batch][heads][n_q][n_k], at the requested stage */
    double *probabilities;        /* [batch][heads][n_q][n_k] */
    double *scores;               /* [batch][heads][n_q][n_k], biased: input of the softmax; hidden: -inf */
    double *lse;                  /* [batch][heads][n_q] */
    size_t masked_rows;
} oracle;

ORACLE double *oracle_room(size_t a, size_t b, size_t c, size_t d)
{
    double *x = (double *)calloc(a * b * c * d + 1, sizeof(double));
    if (!x) abort();
    return x;
}

ORACLE void oracle_free(oracle *o)
{
    free(o->out);
    free(o->weights);
    free(o->probabilities);
    free(o->scores);
    free(o->lse);
    memset(o, 0, sizeof *o);
}

ORACLE double oracle_scale(const attn_args *a) { return a->scale != 0.0f ? (double)a->scale : 1.0 / sqrt(a->head_dim); }

ORACLE double oracle_capped(const attn_args *a, double raw)
{
    return a->softcap > 0.0f ? (double)a->softcap * tanh(raw / (double)a->softcap) : raw;
}

/* One row: probabilities and lse from the scores of its visible keys, in two simple passes. Returns their number. */
ORACLE int oracle_softmax(const double *score, const int *sees, int n_k, const float *sink, double *probability,
                          double *lse)
{
    int visible = 0;
    double most = -INFINITY, sum = 0.0;
    for (int j = 0; j < n_k; j++) {
        probability[j] = 0.0;
        if (!sees[j]) continue;
        visible++;
        if (score[j] > most) most = score[j];
    }
    *lse = -INFINITY;
    if (!visible) return 0;
    if (sink && (double)*sink > most) most = (double)*sink;
    double from = most == -INFINITY ? 0.0 : most;          /* the sum of only exp(-inf) is 0, and 0/0 is NaN */
    for (int j = 0; j < n_k; j++)
        if (sees[j]) sum += probability[j] = exp(score[j] - from);
    if (sink) sum += exp((double)*sink - from);
    for (int j = 0; j < n_k; j++)
        if (sees[j]) probability[j] /= sum;
    *lse = most + log(sum);
    return visible;
}

ORACLE void oracle_run(oracle *o, const attn_args *a)
{
    const oracle_shape s = oracle_shape_of(a);
    const size_t batch = (size_t)s.batch, heads = (size_t)s.heads, n_q = (size_t)s.n_q, n_k = (size_t)s.n_k;
    o->shape = s;
    o->out = oracle_room(batch, heads, n_q, (size_t)s.v_head_dim);
    o->weights = oracle_room(batch, heads, n_q, n_k);
    o->probabilities = oracle_room(batch, heads, n_q, n_k);
    o->scores = oracle_room(batch, heads, n_q, n_k);
    o->lse = oracle_room(batch, heads, n_q, 1);
    o->masked_rows = 0;

    int *sees = (int *)calloc(n_k + 1, sizeof(int));
    if (!sees) abort();
    const double scale = oracle_scale(a);
    for (int b = 0; b < s.batch; b++)
        for (int h = 0; h < s.heads; h++)
            for (int i = 0; i < s.n_q; i++) {
                size_t row = ((size_t)b * heads + (size_t)h) * n_q + (size_t)i;
                double *score = o->scores + row * n_k, *weight = o->weights + row * n_k;
                double *probability = o->probabilities + row * n_k, *out = o->out + row * (size_t)s.v_head_dim;
                int rows = oracle_rows(a, b), start = oracle_start(a, b), end = oracle_end(a, b);
                double at = (double)(oracle_pos(a, b) + i);

                for (int j = 0; j < s.n_k; j++) {
                    int exists = i < rows && j >= start && j < end;
                    sees[j] = exists && oracle_sees(a, &s, b, h, i, j);
                    score[j] = -INFINITY;
                    weight[j] = -INFINITY;
                    if (!exists) continue;
                    const float *q = a->q + oracle_q_at(a, &s, b, h, i), *k = a->k + oracle_k_at(a, &s, b, h, j);
                    double dot = 0.0;
                    for (int c = 0; c < s.head_dim; c++) dot += (double)q[c] * (double)k[c];
                    double raw = dot * scale, capped = oracle_capped(a, raw), biased = capped;
                    if (a->alibi_slopes) biased -= (double)a->alibi_slopes[h] * fabs(at - (double)j);
                    if (a->rel_bias) biased += oracle_rel(a, b, h, i, j);
                    if (a->bias) biased += (double)a->bias[oracle_cell_at(s.bias, b, h, i, j)];
                    if (a->mask) biased += (double)a->mask[oracle_cell_at(s.mask, b, h, i, j)];
                    if (sees[j]) score[j] = biased;                     /* selected: a hidden NaN is gone */
                    weight[j] = a->weights_stage == ATTN_SCORES_RAW      ? raw
                                : a->weights_stage == ATTN_SCORES_CAPPED ? capped
                                                                         : score[j];
                }

                const float *sink = a->sinks ? a->sinks + h : NULL;
                int visible = oracle_softmax(score, sees, s.n_k, sink, probability, o->lse + row);
                if (!visible && i < rows) o->masked_rows++;
                for (int j = 0; j < s.n_k; j++) {
                    if (a->weights_stage == ATTN_PROBABILITIES) weight[j] = probability[j];
                    if (!sees[j]) continue;
                    const float *v = a->v + oracle_v_at(a, &s, b, h, j);
                    for (int x = 0; x < s.v_head_dim; x++) out[x] += probability[j] * (double)v[x];
                }
            }
    free(sees);
}

/* ---- 3 the allowed error of a float result ------------------------------------------------------------------
 *
 * u = 2^-24 bounds the relative error of one rounding. What follows is a first-order running error analysis of the
 * arithmetic in the documentation of attn.h (a chain rounds once per step, by at most u times the sum so far), made
 * rigorous by a last factor SLACK of 1.02 for the terms in u*u. Nothing in it was fitted to results.
 *
 * score    q' = q*scale rounds once per element, the default scale is off by one ulp (2u), the chain rounds each sum:
 *              e_raw    = u * (sum_c |partial sum c|  +  2 * sum_c |q'_c k_c|  +  2 |s|)
 *          (a backend without fma rounds the product too: the second |q'k|; all backends are given it)
 *          softcap divides (u, times |s| because tanh' <= 1), tanh has 3 ulp = 6u, the product u:
 *              e_capped = e_raw + u * (|s| + 7 |capped|)
 *          ALiBi, rel_bias, bias and mask are one rounding of their sum each, ALiBi a second one for its product
 *          without fma:
 *              e_score  = e_capped + u * (slope |p-j| + |after alibi| + |after rel_bias| + |after bias| + |after mask|)
 * weight   exp has 1.5 ulp = 3u and its argument one rounding. A chunk's p is exp(s-m), and every fold multiplies by
 *          another exp; the arguments telescope to M-s, so with C chunks the relative error of a key's weight is
 *              eta_j    = e_score + u * (M - s_j) + 3u (C + 1) + 2u C
 *          The sum of weights adds 16 lanes of at most 8 terms, 4 levels of a tree, and C folds of two roundings:
 *              e_sum    = u * (12 + 2C)
 * out      Sums of p*v are chains of 128 keys, then folds; with S the sum so far inside the chunk (all in final units)
 *              e_chain  = u * (sum_j |S_j| + sum_j |w_j v_j| + sum_chunks (|S_chunk| + |O so far|))
 *          and out = sum w_j v_j / sum w_j moves by at most sum w_j |v_j - out| (exp(eta_j) - 1) exp(max eta):
 *              e_out    = that + e_chain + (e_sum + 2u) |out|
 *          but never out of the hull of the visible values. A sink is a key of value 0 whose score is exact.
 * lse      e_lse = sum w_j (exp(eta_j) - 1) + e_sum + 3u |log L| + u |lse|
 * A row that sees nothing and everything that does not exist is exact: the bound there is 0.
 * tiny     exp is +0 below ln(FLT_MIN): every key may lose FLT_MIN, absolutely. */

typedef struct oracle_bound {
    double *out, *weights, *lse;  /* sizes as in the oracle; the error allowed to each element */
} oracle_bound;

ORACLE void oracle_bound_free(oracle_bound *e)
{
    free(e->out);
    free(e->weights);
    free(e->lse);
    memset(e, 0, sizeof *e);
}

/* e_raw, e_capped and e_score of one existing key */
ORACLE void oracle_score_bound(const attn_args *a, const oracle_shape *s, int b, int h, int i, int j, double e[3])
{
    const double u = ldexp(1.0, -24), scale = oracle_scale(a);
    const float *q = a->q + oracle_q_at(a, s, b, h, i), *k = a->k + oracle_k_at(a, s, b, h, j);
    double sum = 0.0, partial = 0.0, magnitude = 0.0;
    for (int c = 0; c < s->head_dim; c++) {
        double term = (double)q[c] * (double)k[c];
        sum += term;
        partial += fabs(sum);
        magnitude += fabs(term);
    }
    double raw = sum * scale, at = (double)(oracle_pos(a, b) + i), t = oracle_capped(a, raw);
    e[0] = u * ((partial + 2.0 * magnitude) * fabs(scale) + 2.0 * fabs(raw));
    e[1] = e[0] + (a->softcap > 0.0f ? u * (fabs(raw) + 7.0 * fabs(t)) : 0.0);
    e[2] = e[1];
    if (a->alibi_slopes) {
        double add = (double)a->alibi_slopes[h] * fabs(at - (double)j);
        t -= add;
        e[2] += u * (fabs(add) + fabs(t));
    }
    if (a->rel_bias) e[2] += u * fabs(t += oracle_rel(a, b, h, i, j));
    if (a->bias) e[2] += u * fabs(t += (double)a->bias[oracle_cell_at(s->bias, b, h, i, j)]);
    if (a->mask) e[2] += u * fabs(t + (double)a->mask[oracle_cell_at(s->mask, b, h, i, j)]);
}

ORACLE void oracle_bound_run(oracle_bound *e, const oracle *o, const attn_args *a)
{
    enum { CHUNK = 128 };
    const oracle_shape s = o->shape;
    const size_t batch = (size_t)s.batch, heads = (size_t)s.heads, n_q = (size_t)s.n_q, n_k = (size_t)s.n_k;
    const size_t v_head_dim = (size_t)s.v_head_dim;
    const double u = ldexp(1.0, -24), tiny = ldexp(1.0, -126), slack = 1.02;
    e->out = oracle_room(batch, heads, n_q, v_head_dim);
    e->weights = oracle_room(batch, heads, n_q, n_k);
    e->lse = oracle_room(batch, heads, n_q, 1);
    double *eta = oracle_room(n_k, 1, 1, 1), *chain = oracle_room(v_head_dim, 1, 1, 1);
    double *in_chunk = oracle_room(v_head_dim, 1, 1, 1), *so_far = oracle_room(v_head_dim, 1, 1, 1);
    double *most_v = oracle_room(v_head_dim, 1, 1, 1);

    for (int b = 0; b < s.batch; b++)
        for (int h = 0; h < s.heads; h++)
            for (int i = 0; i < oracle_rows(a, b); i++) {
                const size_t row = ((size_t)b * heads + (size_t)h) * n_q + (size_t)i;
                const double *score = o->scores + row * n_k, *w = o->probabilities + row * n_k;
                const double *out = o->out + row * v_head_dim;
                double *e_weight = e->weights + row * n_k, *e_out = e->out + row * v_head_dim;
                const int start = oracle_start(a, b), end = oracle_end(a, b);
                const int whole = (end - start + CHUNK - 1) / CHUNK;      /* the last one may be short */
                const double chunks = (double)whole, e_sum = u * (12.0 + 2.0 * chunks);
                const double sink = a->sinks ? (double)a->sinks[h] : -INFINITY;

                int visible = 0;
                double most = sink, largest = 0.0, moved = 0.0;
                for (int j = start; j < end; j++)
                    if (score[j] > most) most = score[j];
                for (int j = start; j < end; j++) {
                    double part[3];
                    eta[j] = 0.0;
                    int sees = oracle_sees(a, &s, b, h, i, j);
                    if (!sees && (a->weights_stage == ATTN_PROBABILITIES || !a->weights)) continue;
                    oracle_score_bound(a, &s, b, h, i, j, part);
                    e_weight[j] = slack * part[a->weights_stage == ATTN_SCORES_RAW      ? 0
                                               : a->weights_stage == ATTN_SCORES_CAPPED ? 1
                                                                                        : 2];
                    if (!sees) continue;
                    visible++;
                    eta[j] = slack * (part[2] + u * (most - score[j]) + u * (5.0 * chunks + 3.0));
                    if (eta[j] > largest) largest = eta[j];
                    if (eta[j] > 20.0) eta[j] = 20.0;                     /* avoids overflow; the hull decides */
                    moved += w[j] * expm1(eta[j]);
                }
                if (!visible) continue;                                   /* an empty row is exact */
                const double w_sink = sink > -INFINITY ? exp(sink - o->lse[row]) : 0.0;
                const double eta_sink = w_sink > 0.0 ? slack * u * (most - sink + 5.0 * chunks + 3.0) : 0.0;
                const double grown = largest < 1.0 ? exp(largest) : 1e30;     /* then only the hull is a useful bound */
                moved += w_sink * expm1(eta_sink);

                memset(chain, 0, v_head_dim * sizeof *chain);
                memset(so_far, 0, v_head_dim * sizeof *so_far);
                memset(in_chunk, 0, v_head_dim * sizeof *in_chunk);
                memset(most_v, 0, v_head_dim * sizeof *most_v);
                for (int j = start; j < end; j++) {
                    if (oracle_sees(a, &s, b, h, i, j)) {
                        const float *v = a->v + oracle_v_at(a, &s, b, h, j);
                        const double shift = w[j] * expm1(eta[j]) * grown;
                        for (size_t x = 0; x < v_head_dim; x++) {
                            double value = (double)v[x];
                            in_chunk[x] += w[j] * value;
                            chain[x] += u * (fabs(in_chunk[x]) + fabs(w[j] * value));
                            e_out[x] += shift * fabs(value - out[x]);
                            if (fabs(value) > most_v[x]) most_v[x] = fabs(value);
                        }
                    }
                    if ((j - start + 1) % CHUNK == 0 || j + 1 == end)
                        for (size_t x = 0; x < v_head_dim; x++) {
                            so_far[x] += in_chunk[x];
                            chain[x] += u * (fabs(in_chunk[x]) + fabs(so_far[x]));
                            in_chunk[x] = 0.0;
                        }
                }
                for (size_t x = 0; x < v_head_dim; x++) {
                    e_out[x] += chain[x] + (w_sink * expm1(eta_sink) * grown + e_sum + 2.0 * u) * fabs(out[x]);
                    e_out[x] = slack * e_out[x] + tiny * (double)(end - start + 4) * (1.0 + most_v[x]);
                    if (e_out[x] > 2.01 * most_v[x]) e_out[x] = 2.01 * most_v[x] + tiny;
                }
                if (!a->weights || a->weights_stage == ATTN_PROBABILITIES)
                    for (int j = start; j < end; j++) {
                        e_weight[j] = slack * w[j] * (grown * (expm1(eta[j]) + moved) + e_sum + 2.0 * u) + 4.0 * tiny;
                        if (e_weight[j] > 1.0) e_weight[j] = 1.0;
                    }
                e->lse[row] = slack * ((largest < 1.0 ? grown * moved : largest) + e_sum +
                                       3.0 * u * fabs(o->lse[row] - most) + u * fabs(o->lse[row])) + tiny;
            }
    free(eta);
    free(chain);
    free(so_far);
    free(in_chunk);
    free(most_v);
}

/* The a priori bound of the manual (PRECISION): the error of a row of out is at most V times this, with
 * V the largest |v| of a column among visible keys. 2.01 if the sum of all relative errors is not small, INFINITY
 * if a score is not finite. It follows from the bound above. S = sum_c |scale q_c k_c| of the worst visible key,
 * with n keys in C chunks every weight is right to
 *     (head_dim + 4) S u                   scale (2), q*scale, head_dim sums, a separate product without fma
 *     + 8 S u                              softcap: |s| + 7 |capped| <= 8 S
 *     + (3 S + 4 A) u                      ALiBi's product and three sums, A = |ALiBi| + |bias| + |mask|
 *     + u (M - s_j)                        of which the mean over the weights is at most u ln n: the entropy
 *     + (5C + 3) u                         exp of a chunk and of C folds, two roundings a fold
 * A common factor of all weights is divided out, so errors eta_j of the weights move out by at most
 * max eta * sum_j w_j |v_j - out| <= max eta * V; the term of the entropy, of which the mean is known, by 2 V times it.
 * The sum of weights adds (12 + 2C) u, chains of at most 128 keys and C folds min(n, 128) + 1 + 2C, out 2. */
ORACLE double oracle_a_priori(const oracle_shape *s, const attn_args *a, int b, int h, int i)
{
    const int start = oracle_start(a, b), end = oracle_end(a, b), keys = end - start;
    const int whole_chunks = (keys + 127) / 128;
    const double chunks = whole_chunks, u = ldexp(1.0, -24), scale = fabs(oracle_scale(a));
    const float *q = a->q + oracle_q_at(a, s, b, h, i);
    double most = 0.0, added = 0.0, n = a->sinks ? 1.0 : 0.0;
    for (int j = start; j < end; j++) {
        if (!oracle_sees(a, s, b, h, i, j)) continue;
        const float *k = a->k + oracle_k_at(a, s, b, h, j);
        double sum = 0.0, more = 0.0;
        for (int c = 0; c < s->head_dim; c++) sum += fabs(scale * (double)q[c] * (double)k[c]);
        if (a->alibi_slopes) more += fabs((double)a->alibi_slopes[h] * ((double)(oracle_pos(a, b) + i) - (double)j));
        if (a->rel_bias) more += fabs(oracle_rel(a, b, h, i, j));
        if (a->bias) more += fabs((double)a->bias[oracle_cell_at(s->bias, b, h, i, j)]);
        if (a->mask) more += fabs((double)a->mask[oracle_cell_at(s->mask, b, h, i, j)]);
        if (!(sum <= most)) most = sum;
        if (!(more <= added)) added = more;
        n += 1.0;
    }
    double counts = (s->head_dim + 4 + (a->softcap > 0.0f ? 8 : 0)) * most + 9.0 * chunks + fmin(keys, 128.0) + 18.0;
    if (n > 1.0) counts += 2.0 * log(n);
    if (a->alibi_slopes || a->rel_bias || a->bias || a->mask) counts += 3.0 * most + 4.0 * added;
    if (!(counts < 1e30)) return INFINITY;
    return u * counts < 0.01 ? 1.02 * u * counts : 2.01;
}

/* CHECKs that every element of out is within its bound; returns the largest error in units of the bound. */
ORACLE double oracle_check_a_priori(const oracle *o, const attn_args *a, const char *what)
{
    const oracle_shape s = o->shape;
    const double tiny = ldexp(1.0, -126);
    double worst = 0.0;
    int reported = 0;
    for (int b = 0; b < s.batch; b++)
        for (int h = 0; h < s.heads; h++)
            for (int i = 0; i < oracle_rows(a, b); i++) {
                const size_t row = ((size_t)b * (size_t)s.heads + (size_t)h) * (size_t)s.n_q + (size_t)i;
                const double relative = oracle_a_priori(&s, a, b, h, i);
                const int start = oracle_start(a, b), end = oracle_end(a, b);
                for (int x = 0; x < s.v_head_dim && relative < INFINITY; x++) {
                    const double want = o->out[row * (size_t)s.v_head_dim + (size_t)x];
                    const double error = fabs((double)a->out[oracle_out_at(a, &s, b, h, i) + x] - want);
                    double most = 0.0;
                    for (int j = start; j < end; j++) {
                        if (!oracle_sees(a, &s, b, h, i, j)) continue;
                        const double v = fabs((double)a->v[oracle_v_at(a, &s, b, h, j) + x]);
                        if (!(v <= most)) most = v;
                    }
                    if (!(most < INFINITY) || want != want) continue;
                    const double allowed = relative * most + tiny * (double)(end - start + 4) * (1.0 + most);
                    test_checks++;
                    if (error > worst * allowed) worst = error / allowed;
                    if (error <= allowed || reported++) continue;
                    test_fail(__FILE__, __LINE__, "out of entry %d head %d row %d column %d is %.3g away, allowed are"
                              " %.3g; %s", b, h, i, x, error, allowed, what);
                }
            }
    return worst;
}

/* Returns 1 if a float result agrees with the oracle: NaN if it is NaN (the only stored NaN), the same infinity, never
   -0, otherwise within `allowed`. */
ORACLE int oracle_agrees(float got, double want, double allowed)
{
    if (want != want) return float_bits(got) == 0x7FC00000u;
    if (float_bits(got) == 0x80000000u) return 0;
    if (want == INFINITY || want == -INFINITY) return (double)got == want;
    return fabs((double)got - want) <= allowed;
}

/* Returns the error in units of the allowed error, to measure how sharp the bound is; 0 if nothing is allowed. */
ORACLE double oracle_ratio(float got, double want, double allowed)
{
    double error = fabs((double)got - want);
    return allowed > 0.0 && error < INFINITY ? error / allowed : 0.0;
}

/* the plane of head h in weights; -1: it has none */
ORACLE int oracle_plane(const attn_args *a, int h)
{
    if (!a->weights_heads) return h;
    for (int i = 0; i < a->n_weights_heads; i++)
        if (a->weights_heads[i] == h) return i;
    return -1;
}

ORACLE int oracle_planes(const attn_args *a, int heads) { return a->weights_heads ? a->n_weights_heads : heads; }

/* CHECKs everything attn_sdpa(a) wrote: out with its padded rows, weights, lse, masked_rows. `what` names the case in
   a message. Returns the largest error in units of the bound. */
ORACLE double oracle_check_within(const oracle *o, const oracle_bound *e, const attn_args *a, const char *what)
{
    const oracle_shape s = o->shape;
    double worst = 0.0;
    int reported = 0;                     /* reports one element of each kind per case */
    for (int b = 0; b < s.batch; b++)
        for (int h = 0; h < s.heads; h++)
            for (int i = 0; i < s.n_q; i++) {
                size_t row = ((size_t)b * (size_t)s.heads + (size_t)h) * (size_t)s.n_q + (size_t)i;
                int stored = !a->q_cum || i < oracle_rows(a, b);          /* ragged out has no padded rows */
                const float *out = stored ? a->out + oracle_out_at(a, &s, b, h, i) : NULL;
                for (int x = 0; stored && x < s.v_head_dim; x++) {
                    size_t at = row * (size_t)s.v_head_dim + (size_t)x;
                    double ratio = oracle_ratio(out[x], o->out[at], e->out[at]);
                    if (ratio > worst) worst = ratio;
                    test_checks++;
                    if (oracle_agrees(out[x], o->out[at], e->out[at]) || (reported & 1)) continue;
                    reported |= 1;
                    test_fail(__FILE__, __LINE__, "out of entry %d head %d row %d column %d is %.9g, not %.9g +- %.2g;"
                              " %s", b, h, i, x, (double)out[x], o->out[at], e->out[at], what);
                }
                const int plane = oracle_plane(a, h), planes = oracle_planes(a, s.heads);
                for (int j = 0; a->weights && plane >= 0 && j < s.n_k; j++) {
                    size_t at = row * (size_t)s.n_k + (size_t)j, above = (size_t)(b * planes + plane);
                    float got = a->weights[(above * (size_t)s.n_q + (size_t)i) * (size_t)s.n_k + (size_t)j];
                    double ratio = oracle_ratio(got, o->weights[at], e->weights[at]);
                    if (ratio > worst) worst = ratio;
                    test_checks++;
                    if (oracle_agrees(got, o->weights[at], e->weights[at]) || (reported & 2)) continue;
                    reported |= 2;
                    test_fail(__FILE__, __LINE__, "weights[%d][%d][%d][%d] is %.9g, not %.9g +- %.2g; %s", b, h, i, j,
                              (double)got, o->weights[at], e->weights[at], what);
                }
                if (a->lse) {
                    double ratio = oracle_ratio(a->lse[row], o->lse[row], e->lse[row]);
                    if (ratio > worst) worst = ratio;
                    test_checks++;
                    if (oracle_agrees(a->lse[row], o->lse[row], e->lse[row]) || (reported & 4)) continue;
                    reported |= 4;
                    test_fail(__FILE__, __LINE__, "lse[%d][%d][%d] is %.9g, not %.9g +- %.2g; %s", b, h, i,
                              (double)a->lse[row], o->lse[row], e->lse[row], what);
                }
            }
    if (a->masked_rows)
        CHECKF(*a->masked_rows == o->masked_rows, "masked_rows is %lu, not %lu; %s", (unsigned long)*a->masked_rows,
               (unsigned long)o->masked_rows, what);
    return worst;
}

ORACLE double oracle_check(const oracle *o, const attn_args *a, const char *what)
{
    oracle_bound e;
    oracle_bound_run(&e, o, a);
    double worst = oracle_check_within(o, &e, a, what);
    oracle_bound_free(&e);
    return worst;
}

#endif
