/* answer.h: all outputs of one call, independent of strides. For the tests that compare bits. */
#ifndef ANSWER_H
#define ANSWER_H

#include "oracle.h"

typedef struct answer {
    attn_status status;
    size_t masked, n_out, n_weights, n_lse;
    float *out;                               /* [batch][heads][n_q][v_head_dim]; rows that do not exist are +0 */
    float *weights, *lse;    /* [batch][heads or n_weights_heads][n_q][n_k], [batch][heads][n_q]; NULL: not requested */
} answer;

ORACLE float *answer_floats(size_t n)
{
    float *x = (float *)malloc(n * sizeof *x + 4);
    if (!x) exit(3);
    memset(x, 0xA5, n * sizeof *x);
    return x;
}

ORACLE void answer_free(answer *r)
{
    free(r->out);
    free(r->weights);
    free(r->lse);
    memset(r, 0, sizeof *r);
}

/* floats from the first to the last of a tensor; cum has the rows of ragged tensors */
ORACLE size_t answer_extent(const ptrdiff_t stride[3], const int *cum, int batch, int rows, int heads, int width)
{
    if (batch < 1) return 0;
    if (cum) rows = cum[batch], batch = 1;
    if (rows < 1) return 0;
    return (size_t)((batch - 1) * stride[0] + (rows - 1) * stride[1] + (heads - 1) * stride[2] + width);
}

/* the longest entry of a cache, and the shape of arguments that may read one */
ORACLE oracle_shape answer_shape(const attn_args *a)
{
    attn_args plain = *a;
    if (a->kv && !a->n_k)
        for (int b = 0; b < a->batch; b++) {
            int n = a->kv->lengths[a->k_map ? a->k_map[b] : b];
            if (n > plain.n_k) plain.n_k = n;
        }
    return oracle_shape_of(&plain);
}

/* Calls with separate outputs: weights, lse and masked_rows of `a` only select which are requested. Checks that nothing
   is written between the rows, and nothing at all if the call fails. */
ORACLE answer answer_by(const attn_args *a, attn_status (*call)(const attn_args *))
{
    const oracle_shape s = answer_shape(a);
    size_t rows = (size_t)s.batch * (size_t)s.heads * (size_t)s.n_q, width = (size_t)s.v_head_dim, foreign = 0;
    size_t extent = answer_extent(s.out, a->q_cum, s.batch, s.n_q, s.heads, s.v_head_dim);
    attn_args mine = *a;
    answer r;
    memset(&r, 0, sizeof r);
    r.n_out = rows * width, r.n_lse = rows, r.masked = (size_t)-7;
    r.n_weights = (size_t)s.batch * (size_t)oracle_planes(a, s.heads) * (size_t)s.n_q * (size_t)s.n_k;
    r.out = answer_floats(r.n_out);
    r.weights = a->weights ? answer_floats(r.n_weights) : NULL;
    r.lse = a->lse ? answer_floats(r.n_lse) : NULL;
    float *raw = guard_floats(extent);
    mine.out = raw, mine.weights = r.weights, mine.lse = r.lse, mine.masked_rows = a->masked_rows ? &r.masked : NULL;
    r.status = call(&mine);
    for (int b = 0; b < s.batch; b++)
        for (int h = 0; h < s.heads; h++)
            for (int i = 0; i < s.n_q; i++) {
                float *to = r.out + (((size_t)b * (size_t)s.heads + (size_t)h) * (size_t)s.n_q + (size_t)i) * width;
                if (a->q_cum && i >= oracle_rows(a, b)) {
                    memset(to, 0, width * sizeof *to);
                    continue;
                }
                float *from = raw + oracle_out_at(a, &s, b, h, i);
                memcpy(to, from, width * sizeof *to);
                if (r.status == ATTN_OK) memset(from, 0xA5, width * sizeof *from);
            }
    for (size_t x = 0; x < extent; x++) foreign += float_bits(raw[x]) != 0xA5A5A5A5u;
    CHECKF(foreign == 0, "%lu floats of out were written that belong to no row", (unsigned long)foreign);
    guard_free(raw);
    return r;
}

ORACLE answer answer_of(const attn_args *a) { return answer_by(a, attn_sdpa); }

/* Returns 1 if a equals b bit for bit, in the outputs that both calls have. */
ORACLE int answer_same(const answer *a, const answer *b)
{
    return a->status == b->status && a->n_out == b->n_out && same_bits(a->out, b->out, a->n_out) &&
           (!a->weights || !b->weights || same_bits(a->weights, b->weights, a->n_weights)) &&
           (!a->lse || !b->lse || same_bits(a->lse, b->lse, a->n_lse)) &&
           (a->masked == (size_t)-7 || b->masked == (size_t)-7 || a->masked == b->masked);
}

#endif
