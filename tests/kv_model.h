/* kv_model.h: the one model of a cache: rows as they came, entry by entry, NaN where no key is. Plain C and obvious.
 *
 * Every operation of attn_kv has its twin here. The twin returns the status that the cache must return, and like it
 * changes nothing where it refuses:
 *
 *     CHECK(attn_kv_append(&c, k, v, n, counts, 0) == kv_model_append(&m, k, v, n, counts, 0));
 *
 * What a cache holds is seen through attention: reading it must give the bits that the rows of the model give.
 *
 *     int lengths[KV_MODEL_BATCH];
 *     attn_args plain = kv_model_args(&m, &a, lengths);        a reads the cache, plain reads the model */
#ifndef KV_MODEL_H
#define KV_MODEL_H

#include "test.h"

#if defined(__GNUC__) || defined(__clang__)
#define KV_MODEL static inline __attribute__((unused))
#else
#define KV_MODEL static inline
#endif

enum { KV_MODEL_BATCH = 8,                /* most entries */
       KV_MODEL_SPARE = 2 };              /* rows behind the capacity: a mask may be wider than the cache */

typedef struct kv_model {
    attn_kv_args shape;                   /* v_head_dim resolved; mem, user: none */
    int rows;                             /* of an entry: capacity + KV_MODEL_SPARE */
    size_t k_row, v_row;                  /* floats of a key and of a value, all heads */
    float *k, *v;                         /* [batch][rows][k_row], [batch][rows][v_row] */
    int length[KV_MODEL_BATCH];
} kv_model;

KV_MODEL float *kv_model_k(const kv_model *m, int b, int j)
{
    return m->k + ((size_t)b * (size_t)m->rows + (size_t)j) * m->k_row;
}

KV_MODEL float *kv_model_v(const kv_model *m, int b, int j)
{
    return m->v + ((size_t)b * (size_t)m->rows + (size_t)j) * m->v_row;
}

/* Entry b holds its first `length` keys and nothing behind them. */
KV_MODEL void kv_model_cut(kv_model *m, int b, int length)
{
    float *k = kv_model_k(m, b, length), *k_end = kv_model_k(m, b, m->rows);
    float *v = kv_model_v(m, b, length), *v_end = kv_model_v(m, b, m->rows);
    while (k < k_end) *k++ = bits_float(0x7FC0BAD0u);
    while (v < v_end) *v++ = bits_float(0x7FC0BAD0u);
    m->length[b] = length;
}

KV_MODEL void kv_model_make(kv_model *m, const attn_kv_args *a)
{
    memset(m, 0, sizeof *m);
    m->shape = *a;
    m->shape.v_head_dim = a->v_head_dim ? a->v_head_dim : a->head_dim;
    m->shape.mem = m->shape.user = NULL;
    m->rows = a->capacity + KV_MODEL_SPARE;
    m->k_row = (size_t)a->kv_heads * (size_t)a->head_dim;
    m->v_row = (size_t)a->kv_heads * (size_t)m->shape.v_head_dim;
    m->k = (float *)malloc((size_t)a->batch * (size_t)m->rows * m->k_row * sizeof(float));
    m->v = (float *)malloc((size_t)a->batch * (size_t)m->rows * m->v_row * sizeof(float));
    if (!m->k || !m->v || a->batch > KV_MODEL_BATCH) abort();
    for (int b = 0; b < a->batch; b++) kv_model_cut(m, b, 0);
}

KV_MODEL void kv_model_free(kv_model *m)
{
    free(m->k);
    free(m->v);
    memset(m, 0, sizeof *m);
}

KV_MODEL kv_model kv_model_clone(const kv_model *from)
{
    kv_model m;
    const size_t keys = (size_t)from->shape.batch * (size_t)from->rows;
    kv_model_make(&m, &from->shape);
    memcpy(m.k, from->k, keys * m.k_row * sizeof(float));
    memcpy(m.v, from->v, keys * m.v_row * sizeof(float));
    memcpy(m.length, from->length, sizeof m.length);
    return m;
}

/* ---- the operations ------------------------------------------------------------------------------------------- */
KV_MODEL attn_status kv_model_append(kv_model *m, const float *k, const float *v, int n, const int *counts,
                                     ptrdiff_t row_stride)
{
    const size_t k_step = row_stride ? (size_t)row_stride : m->k_row,
                 v_step = row_stride ? (size_t)row_stride : m->v_row;
    if (n < 0) return ATTN_E_SIZE;
    if (row_stride < 0) return ATTN_E_STRIDE;
    for (int b = 0; counts && b < m->shape.batch; b++)
        if (counts[b] < 0 || counts[b] > n) return ATTN_E_LENGTHS;
    for (int b = 0; b < m->shape.batch; b++)
        if ((counts ? counts[b] : n) > m->shape.capacity - m->length[b]) return ATTN_E_FULL;
    if (n > 0 && (k_step < m->k_row || v_step < m->v_row)) return ATTN_E_STRIDE;
    for (int b = 0; b < m->shape.batch; b++)
        for (int i = 0; i < (counts ? counts[b] : n); i++, m->length[b]++) {
            const size_t row = (size_t)b * (size_t)n + (size_t)i;
            memcpy(kv_model_k(m, b, m->length[b]), k + row * k_step, m->k_row * sizeof(float));
            memcpy(kv_model_v(m, b, m->length[b]), v + row * v_step, m->v_row * sizeof(float));
        }
    return ATTN_OK;
}

/* attn_kv_reset is this to 0 */
KV_MODEL attn_status kv_model_truncate(kv_model *m, int entry, int length)
{
    if (entry < -1 || entry >= m->shape.batch) return ATTN_E_MAP;
    for (int b = 0; b < m->shape.batch; b++)
        if ((entry == -1 || entry == b) && (length < 0 || length > m->length[b])) return ATTN_E_LENGTHS;
    for (int b = 0; b < m->shape.batch; b++)
        if (entry == -1 || entry == b) kv_model_cut(m, b, length);
    return ATTN_OK;
}

/* Entry `to` becomes the first `length` keys of an entry of another model, or of this one. */
KV_MODEL void kv_model_take(kv_model *m, int to, const kv_model *from, int entry, int length)
{
    memmove(kv_model_k(m, to, 0), kv_model_k(from, entry, 0), (size_t)length * m->k_row * sizeof(float));
    memmove(kv_model_v(m, to, 0), kv_model_v(from, entry, 0), (size_t)length * m->v_row * sizeof(float));
    kv_model_cut(m, to, length);
}

KV_MODEL attn_status kv_model_copy(kv_model *m, int to, int from, int length)
{
    if (to < 0 || to >= m->shape.batch || from < 0 || from >= m->shape.batch) return ATTN_E_MAP;
    if (length < 0 || length > m->length[from]) return ATTN_E_LENGTHS;
    kv_model_take(m, to, m, from, length);
    return ATTN_OK;
}

KV_MODEL attn_status kv_model_reorder(kv_model *m, const int *map)
{
    kv_model old;
    if (!map) return ATTN_E_NULL;
    for (int b = 0; b < m->shape.batch; b++)
        if (map[b] < 0 || map[b] >= m->shape.batch) return ATTN_E_MAP;
    old = kv_model_clone(m);
    for (int b = 0; b < m->shape.batch; b++) kv_model_take(m, b, &old, map[b], old.length[map[b]]);
    kv_model_free(&old);
    return ATTN_OK;
}

/* ---- reading -------------------------------------------------------------------------------------------------- */
KV_MODEL int kv_model_same_lengths(const kv_model *m, const attn_kv *c)
{
    return memcmp(m->length, c->lengths, (size_t)m->shape.batch * sizeof(int)) == 0;
}

/* The same question to the model: plain rows, and their lengths by entry of the QUERIES. */
KV_MODEL attn_args kv_model_args(const kv_model *m, const attn_args *a, int *lengths)
{
    attn_args p = *a;
    int longest = 0;
    for (int b = 0; b < a->batch; b++) {
        lengths[b] = a->k_lengths ? a->k_lengths[b] : m->length[a->k_map ? a->k_map[b] : b];
        if (lengths[b] > longest) longest = lengths[b];
    }
    p.kv = NULL;
    p.k = m->k;
    p.v = m->v;
    p.n_k = a->n_k ? a->n_k : longest;
    p.k_lengths = lengths;
    p.k_batch = m->shape.batch;
    p.kv_heads = m->shape.kv_heads;
    p.head_dim = m->shape.head_dim;
    p.v_head_dim = m->shape.v_head_dim;
    p.k_stride[0] = m->rows * (ptrdiff_t)m->k_row, p.k_stride[1] = (ptrdiff_t)m->k_row;
    p.v_stride[0] = m->rows * (ptrdiff_t)m->v_row, p.v_stride[1] = (ptrdiff_t)m->v_row;
    p.k_stride[2] = m->shape.head_dim, p.v_stride[2] = m->shape.v_head_dim;
    return p;
}

#endif
