/* golden.c: fixed cases whose results are kept as hashes in golden.h. Suite bits compares every backend that promises
 * one answer with the table; golden.sh builds this file alone with many compilers and options and does the same.
 *
 *   cc -O2 -DGOLDEN_MAIN -I. tests/support/golden.c -o build/golden
 *   build/golden                                compare, exit 1 on a difference
 *   build/golden -p > tests/support/golden.h    a fresh table
 *
 * Inputs come from integer hashing and powers of two, exact on every machine: no libm, no rounding. */
#include <stdint.h>
#ifdef GOLDEN_MAIN
#define ATTN_IMPLEMENTATION
#include "hide.h"
#endif
#include "attn.h"
#include "golden.h"
#include "golden_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------------------- */

static uint32_t mix(uint32_t stream, uint32_t i)
{
    uint32_t x = stream * 0x9E3779B9u + i * 0x85EBCA6Bu + 0x165667B1u;
    x ^= x >> 16; x *= 0x7FEB352Du;
    x ^= x >> 15; x *= 0x846CA68Bu;
    x ^= x >> 16;
    return x;
}

static float from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static float power_of_two(int e) { return from_bits((uint32_t)(e + 127) << 23); }

/* about N(0, 1): four 16-bit digits summed as integers, 18 bits, exact in a float */
static float bell(uint32_t stream, uint32_t i)
{
    uint32_t a = mix(stream, 2 * i), b = mix(stream, 2 * i + 1);
    int32_t sum = (int32_t)((a & 0xFFFFu) + (a >> 16) + (b & 0xFFFFu) + (b >> 16)) - 131070;
    return (float)sum * power_of_two(-15);
}

/* stream: which tensor */
static float number(const golden_case *c, uint32_t stream, uint32_t i)
{
    float x = bell(stream, i);
    switch (c->data) {
    case GOLDEN_LOUD: return stream <= 2 ? x * 8.0f : x;         /* one key gets all the weight, most others
                                                                    underflow */
    case GOLDEN_HUGE: return stream <= 2 ? x * power_of_two(62) : x;  /* scores overflow to both infinities */
    case GOLDEN_TINY: return x * power_of_two(-70);                   /* products are denormal */
    case GOLDEN_SMALL: return x * power_of_two(-16);                  /* denormal in half */
    case GOLDEN_FLAT: return stream == 1 ? 0.0f : x;                  /* all scores equal */
    case GOLDEN_DENORMAL: return stream == 3 ? from_bits(mix(stream, i) & 0x807FFFFFu) : x;
    case GOLDEN_NEGATIVE:                                             /* V tiny and negative: p * v underflows to -0 */
        return stream == 3 ? from_bits(0x80000000u | (1u + mix(stream, i) % 9u)) : stream <= 2 ? x * 4.0f : x;
    case GOLDEN_MIDPOINT: {    /* q0 k0 + q1 k1 is 2^-70 from the middle of two floats, which double cannot represent */
        const float tiny = power_of_two(-23), sign = mix(stream, i) & 1u ? -1.0f : 1.0f;
        if (i % 2 == 0) return stream == 1 ? 1.0f : from_bits(0x3F800000u | mix(stream, i) >> 9);
        return (1.0f + sign * tiny) * (stream == 1 ? 1.0f : power_of_two(-24)); }
    case GOLDEN_WILD: {                                               /* scattered NaN, infinities and large numbers */
        uint32_t r = mix(stream + 100u, i);
        if (r % 97u == 0) return from_bits(0x7FC00000u);
        if (r % 97u == 1) return from_bits(0x7F800000u);
        if (r % 97u == 2) return from_bits(0xFF800000u);
        if (r % 97u == 3) return x * power_of_two(100);
        return x; }
    default: return x;
    }
}

/* ---- one case -------------------------------------------------------------------------------------------- */

static uint64_t fnv_word(uint64_t h, uint32_t w)
{
    int i;
    for (i = 0; i < 4; i++) h = (h ^ (w >> 8 * i & 0xFFu)) * UINT64_C(0x100000001B3);
    return h;
}

static uint64_t fnv_floats(uint64_t h, const float *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        h = fnv_word(h, u);
    }
    return h;
}

static void *room(size_t bytes)
{
    void *p = malloc(bytes + 16);
    if (!p) exit(3);
    return p;
}

static float *filled(const golden_case *c, uint32_t stream, size_t n)
{
    float *x = (float *)room(n * sizeof *x);
    size_t i;
    for (i = 0; i < n; i++) x[i] = number(c, stream, (uint32_t)i);
    return x;
}

static float *blank(size_t n)
{
    float *x = (float *)room(n * sizeof *x);
    size_t i;
    for (i = 0; i < n; i++) x[i] = from_bits(0x4B123456u);            /* values that are not written must stay */
    return x;
}

enum { STREAM_Q = 1, STREAM_K, STREAM_V, STREAM_MASK, STREAM_BIAS, STREAM_SINK, STREAM_KEEP, STREAM_LENGTHS,
       STREAM_REL };

/* Additive cells: every third one hidden, the others small numbers. */
static float *mask_cells(const golden_case *c, uint32_t stream, size_t n)
{
    float *m = (float *)room(n * sizeof *m);
    size_t i;
    for (i = 0; i < n; i++) {
        uint32_t r = mix(stream + 50u, (uint32_t)i);
        m[i] = r % 3u == 0 ? from_bits(0xFF800000u) : bell(stream, (uint32_t)i);
        if (c->flags & GOLDEN_FLT_MAX && r % 3u == 1) m[i] = from_bits(0xFF7FFFFFu);
    }
    return m;
}

/* Layers: head_dim is the width of a head, the model is heads * head_dim wide, the memory 5 more. Steps: one token at a
   time through a cache. v_head_dim: number of rotated components of a head. GOLDEN_SINKS: heads are normed, after the
   rotation with GOLDEN_BHSD. */
static uint64_t run_layer(const golden_case *c, attn_backend backend, const attn_exec *exec)
{
    attn_mha_args make;
    attn_mha_opts o;
    attn_mha m;
    attn_kv kv;
    attn_kv_args size;
    const int cross = c->call == GOLDEN_MHA_CROSS, kvh = c->kv_heads ? c->kv_heads : c->heads;
    const int model = c->heads * c->head_dim, source = cross ? model + 5 : model, n_k = cross ? c->n_k : c->n_q;
    const size_t B = (size_t)c->batch, N = (size_t)c->n_q, D = (size_t)model, S = (size_t)source;
    const size_t kw = (size_t)kvh * (size_t)c->head_dim;
    float *w_q = filled(c, 11, D * D), *w_k = filled(c, 12, kw * S), *w_v = filled(c, 13, kw * S);
    float *w_o = filled(c, 14, D * D), *bias = filled(c, 15, D), *x = filled(c, 16, B * N * D);
    float *memory = filled(c, 17, B * (size_t)n_k * S), *out = blank(B * N * D), *rope = NULL;
    const int rotary_dim = c->v_head_dim ? c->v_head_dim : c->head_dim;
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    attn_status status;
    int i, b;
    memset(&make, 0, sizeof make);
    memset(&o, 0, sizeof o);
    memset(&size, 0, sizeof size);
    make.d_model = model, make.heads = c->heads, make.kv_heads = c->kv_heads, make.d_key = cross ? source : 0;
    make.w_q = w_q, make.w_k = w_k, make.w_v = w_v, make.w_o = w_o, make.b_q = bias, make.b_o = bias;
    if (!cross) {
        rope = blank(N * (size_t)rotary_dim);
        if (attn_rope_table(rope, c->n_q, rotary_dim, NULL, 10000.0) != ATTN_OK) exit(3);
        h = fnv_floats(h, rope, N * (size_t)rotary_dim);
        make.rope_table = rope, make.positions = c->n_q, make.rope_interleaved = c->flags & GOLDEN_BHSD;
        make.rotary_dim = c->v_head_dim;
    }
    if (c->flags & GOLDEN_SINKS) {
        make.q_norm = bias, make.k_norm = bias + 1, make.norm_after_rope = c->flags & GOLDEN_BHSD;
    }
    make.storage = c->storage;
    if (attn_mha_init(&m, &make) != ATTN_OK) exit(3);
    o.attn.backend = backend, o.attn.exec = exec, o.attn.causal = cross ? 0 : ATTN_CAUSAL_TOP_LEFT;
    o.attn.scale = c->scale;
    if (c->call == GOLDEN_MHA_STEPS) {
        o.attn.causal = 0;
        size.batch = c->batch, size.kv_heads = kvh, size.head_dim = c->head_dim, size.capacity = c->n_q;
        size.k_storage = size.v_storage = c->storage;
        status = attn_kv_init(&kv, &size);
        for (i = 0; i < c->n_q && status == ATTN_OK; i++) {
            for (b = 0; b < c->batch; b++)                            /* the tokens of this step, one for each entry */
                memcpy(memory + (size_t)b * D, x + ((size_t)b * N + (size_t)i) * D, D * sizeof *x);
            status = attn_mha_self_step(&m, out, memory, c->batch, 1, &kv, &o);
            h = fnv_floats(h, out, B * D);
        }
        attn_kv_free(&kv);
    } else {
        status = cross ? attn_mha_cross(&m, out, x, c->batch, c->n_q, memory, n_k, &o)
                       : attn_mha_self(&m, out, x, c->batch, c->n_q, &o);
        h = fnv_floats(h, out, B * N * D);
    }
    attn_mha_free(&m);
    free(w_q), free(w_k), free(w_v), free(w_o), free(bias), free(x), free(memory), free(out), free(rope);
    return status == ATTN_OK ? h : 0;
}

static uint64_t run_t5(const golden_case *c)
{
    enum { EXTENT = 128, WIDTH = 2 * EXTENT + 1 };          /* farther keys have the numbers of the ends */
    const size_t n = (size_t)c->heads * (size_t)c->n_q * (size_t)c->n_k;
    float *table = filled(c, 18, 32 * (size_t)c->heads), *rel = blank((size_t)c->heads * WIDTH), *bias = blank(n);
    const attn_status status = attn_bias_t5(rel, table, 32, 128, c->causal != 0, c->heads, EXTENT);
    uint64_t h;
    for (size_t x = 0; x < n; x++) {                        /* as the matrix [heads][n_q][n_k] */
        const int row = (int)(x / (size_t)c->n_k), d = (int)(x % (size_t)c->n_k) - (row % c->n_q + c->q_pos);
        bias[x] = rel[row / c->n_q * WIDTH + EXTENT + (d < -EXTENT ? -EXTENT : d > EXTENT ? EXTENT : d)];
    }
    h = fnv_floats(UINT64_C(0xCBF29CE484222325), bias, n);
    free(table), free(rel), free(bias);
    return status == ATTN_OK ? h : 0;
}

/* All values of a format as floats, and floats of all sizes rounded to it. */
static uint64_t run_convert(const golden_case *c)
{
    enum { ALL = 65536 };
    unsigned short *h16 = (unsigned short *)room(ALL * sizeof *h16);
    float *x = blank(ALL);
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    attn_status status;
    int i;
    for (i = 0; i < ALL; i++) h16[i] = (unsigned short)i;
    status = attn_widen(x, h16, ALL, c->storage);
    h = fnv_floats(h, x, ALL);
    for (i = 0; i < ALL; i++) {                                       /* a third with an exponent that half has */
        const uint32_t r = mix(19, (uint32_t)i);
        x[i] = i % 3 ? from_bits(r) : from_bits((r & 0x807FFFFFu) | (100u + mix(20, (uint32_t)i) % 45u) << 23);
    }
    if (status == ATTN_OK) status = attn_narrow(h16, x, ALL, c->storage);
    for (i = 0; i < ALL; i++) h = fnv_word(h, h16[i]);
    free(h16), free(x);
    return status == ATTN_OK ? h : 0;
}

/* n_q rows of head_dim floats, n_k floats apart: RMS, then LayerNorm, with a weight; GOLDEN_BIAS: and with a bias.
   GOLDEN_SINKS: two values of each row cancel and hide others, so the mean depends on the order of the sum. */
static uint64_t run_norm(const golden_case *c, attn_backend backend, const attn_exec *exec)
{
    const size_t rows = (size_t)c->n_q, n = (size_t)c->head_dim, all = rows * (size_t)c->n_k;
    float *x = filled(c, STREAM_K, all), *weight = filled(c, 22, n), *bias = filled(c, 23, n), *y = blank(all);
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    attn_status status = ATTN_OK;
    attn_norm_args a;
    size_t i;
    int kind;
    memset(&a, 0, sizeof a);
    a.y = y, a.x = x, a.rows = c->n_q, a.n = c->head_dim, a.y_stride = a.x_stride = c->n_k;
    a.weight = weight, a.bias = c->flags & GOLDEN_BIAS ? bias : NULL;
    a.eps = c->scale, a.backend = backend, a.exec = exec;
    for (i = 0; c->flags & GOLDEN_SINKS && i < rows; i++) {
        x[i * (size_t)c->n_k + i % n] = power_of_two(60);
        x[i * (size_t)c->n_k + (3 * i + 8) % n] = -power_of_two(60);
    }
    for (kind = 0; kind < 2 && status == ATTN_OK; kind++) {
        a.kind = (attn_norm_kind)kind;
        status = attn_norm(&a);
        h = fnv_floats(h, y, all);
    }
    free(x), free(weight), free(bias), free(y);
    return status == ATTN_OK ? h : 0;
}

/* An activation of n_k floats, without a gate and with one. Every third float has random bits. attn_activate runs on
   the best backend here; the hash is not compared if that backend has no fma. */
static uint64_t run_activate(const golden_case *c, attn_activation kind, const attn_exec *exec)
{
    const size_t n = (size_t)c->n_k;
    float *x = filled(c, 24, n), *gate = filled(c, 25, n), *y = blank(n);
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    attn_backend best;
    attn_status status;
    size_t i;
    for (i = 0; i < n; i += 3) x[i] = from_bits(mix(26, (uint32_t)i));
    for (i = 1; i < n; i += 3) x[i] *= 8.0f;
    status = attn_activate(y, x, NULL, n, kind, exec);
    h = fnv_floats(h, y, n);
    if (status == ATTN_OK) status = attn_activate(y, x, gate, n, kind, exec);
    h = fnv_floats(h, y, n);
    free(x), free(gate), free(y);
    attn_backends(&best, 1);
    if (best == ATTN_SSE2 || best == ATTN_WASM) h = golden_expected(c->name);
    return status == ATTN_OK ? h : 0;
}

/* The call in parts: the first 128 keys of an entry carried, each later chunk separate, then folded and finished. All
   states are hashed. */
static attn_status run_carried(const attn_args *whole, uint64_t *h)
{
    const size_t rows = (size_t)whole->batch * (size_t)whole->heads * (size_t)whole->n_q;
    const size_t all = rows * ATTN_STATE(whole->v_head_dim ? whole->v_head_dim : whole->head_dim);
    const int n = whole->n_k / 128 + 1;
    float *states = blank(all), *parts = blank((size_t)n * all);
    int start[8], length[8], b;
    attn_args a = *whole;
    attn_status status;
    a.out = NULL, a.lse = NULL, a.masked_rows = NULL, a.sinks = NULL;
    a.k_starts = start, a.k_lengths = length;
    for (b = 0; b < a.batch; b++) {
        const int keys = whole->k_lengths ? whole->k_lengths[b] : whole->n_k;
        start[b] = whole->k_starts ? whole->k_starts[b] : 0;
        length[b] = keys < 128 ? keys : 128;
    }
    a.carry_out = states;
    status = attn_sdpa(&a);
    *h = fnv_floats(*h, states, all);
    for (b = 0; b < a.batch; b++) {
        const int keys = whole->k_lengths ? whole->k_lengths[b] : whole->n_k;
        start[b] += length[b];
        length[b] = keys - length[b];
    }
    a.carry_out = parts, a.parts = n;
    if (status == ATTN_OK) status = attn_sdpa(&a);
    *h = fnv_floats(*h, parts, (size_t)n * all);
    a.carry_in = a.carry_out = states;
    if (status == ATTN_OK) status = attn_fold(&a, parts, n);
    *h = fnv_floats(*h, states, all);
    a = *whole;
    a.carry_in = states;
    a.n_k = 0, a.k_starts = a.k_lengths = NULL;
    if (status == ATTN_OK) status = attn_sdpa(&a);
    free(states), free(parts);
    return status;
}

/* The tensors and lists of one call of attention; tensors that the case does not have are NULL. */
typedef struct golden_call {
    attn_args a;
    int q_len[8], k_len[8], k_start[8], q_cum[9], k_cum[9], map[8], pos[8];
    float *q, *k, *v, *out, *weights, *lse, *mask, *bias, *slopes, *sinks, *rel;
    unsigned char *keep;
    size_t rows_q, rows_k, cells, n_lse, n_out, masked;
} golden_call;

static void golden_sizes(golden_call *g, const golden_case *c)
{
    attn_args *const a = &g->a;
    memset(g, 0, sizeof *g);
    a->batch = c->batch, a->heads = c->heads, a->kv_heads = c->kv_heads, a->n_q = c->n_q, a->n_k = c->n_k;
    a->head_dim = c->head_dim, a->v_head_dim = c->v_head_dim;
    a->scale = c->scale, a->softcap = c->softcap, a->causal = c->causal, a->align = c->align, a->q_pos = c->q_pos;
    a->window_left = c->window_left, a->window_right = c->window_right;
    a->weights_stage = c->stage;
    a->layout = c->flags & GOLDEN_BHSD ? ATTN_BHSD : ATTN_BSHD;
    g->rows_q = (size_t)c->batch * (size_t)c->n_q, g->rows_k = (size_t)c->batch * (size_t)c->n_k;
    g->n_lse = (size_t)c->heads * g->rows_q, g->cells = g->n_lse * (size_t)c->n_k;
    g->masked = 12345;
}

static void golden_lists(golden_call *g, const golden_case *c)
{
    const int f = c->flags;
    attn_args *const a = &g->a;
    int b;
    for (b = 0; b < c->batch; b++) {
        uint32_t r = mix(STREAM_LENGTHS, (uint32_t)b);
        g->q_len[b] = b == 0 ? c->n_q : (int)(r % (uint32_t)(c->n_q + 1));
        g->k_len[b] = b == 0 ? c->n_k : (int)((r >> 8) % (uint32_t)(c->n_k + 1));
        g->k_start[b] = (int)((r >> 16) % (uint32_t)(g->k_len[b] + 1)) / 2;
        g->q_cum[b + 1] = g->q_cum[b] + g->q_len[b];
        g->k_cum[b + 1] = g->k_cum[b] + g->k_len[b];
        g->map[b] = c->batch - 1 - b;
        g->pos[b] = (int)(r % 7u) - 2;
    }
    if (f & GOLDEN_Q_LENGTHS) a->q_lengths = g->q_len;
    if (f & GOLDEN_K_STARTS)
        for (b = 0; b < c->batch; b++) g->k_len[b] -= g->k_start[b];
    if (f & GOLDEN_K_LENGTHS) a->k_lengths = g->k_len;
    if (f & GOLDEN_K_STARTS) a->k_starts = g->k_start;
    if (f & GOLDEN_K_MAP) a->k_map = g->map;
    if (f & GOLDEN_POS_EACH) a->q_pos_each = g->pos;
    if (f & GOLDEN_RAGGED) {
        a->q_cum = g->q_cum, a->k_cum = g->k_cum;
        g->rows_q = (size_t)g->q_cum[c->batch], g->rows_k = (size_t)g->k_cum[c->batch];
    }
}

static void golden_tensors(golden_call *g, const golden_case *c)
{
    attn_args *const a = &g->a;
    const size_t H = (size_t)c->heads, kvh = (size_t)(c->kv_heads ? c->kv_heads : c->heads);
    const size_t d = (size_t)c->head_dim, dv = (size_t)(c->v_head_dim ? c->v_head_dim : c->head_dim);
    const size_t gap = c->flags & GOLDEN_STRIDED ? 3 : 0;
    const size_t row_q = H * d + gap, row_k = kvh * d + gap, row_v = kvh * dv + gap, row_o = H * dv + gap;
    if (c->flags & GOLDEN_STRIDED) {
        a->q_stride[1] = (ptrdiff_t)row_q, a->k_stride[1] = (ptrdiff_t)row_k;
        a->v_stride[1] = (ptrdiff_t)row_v, a->out_stride[1] = (ptrdiff_t)row_o;
    }
    g->n_out = g->rows_q * row_o;
    a->q = g->q = filled(c, STREAM_Q, g->rows_q * row_q);
    a->k = g->k = filled(c, STREAM_K, g->rows_k * row_k);
    a->v = g->v = filled(c, STREAM_V, g->rows_k * row_v);
    a->out = g->out = blank(g->n_out);
    if (c->flags & GOLDEN_WEIGHTS) a->weights = g->weights = blank(g->cells);
    if (c->flags & GOLDEN_LSE) a->lse = g->lse = blank(g->n_lse);
    a->masked_rows = &g->masked;
}

static void golden_masks(golden_call *g, const golden_case *c)
{
    const int f = c->flags;
    const size_t NQ = (size_t)c->n_q, NK = (size_t)c->n_k;
    attn_args *const a = &g->a;
    size_t i;
    if (f & GOLDEN_MASK_FULL) {
        g->mask = mask_cells(c, STREAM_MASK, g->cells);
        a->mask_shape[0] = c->batch, a->mask_shape[1] = c->heads, a->mask_shape[2] = c->n_q;
    } else if (f & GOLDEN_MASK_KEY) {
        g->mask = mask_cells(c, STREAM_MASK, (size_t)c->batch * NK);
        a->mask_shape[0] = c->batch, a->mask_shape[1] = a->mask_shape[2] = 1;
    } else if (f & GOLDEN_MASK_ROWS) g->mask = mask_cells(c, STREAM_MASK, NQ * NK);
    if (f & (GOLDEN_KEEP | GOLDEN_FIRST_CHUNKS_HIDDEN)) g->keep = (unsigned char *)room(NQ * NK);
    if (f & GOLDEN_KEEP)
        for (i = 0; i < NQ * NK; i++) g->keep[i] = (unsigned char)(mix(STREAM_KEEP, (uint32_t)i) % 4u);
    if (f & GOLDEN_FIRST_CHUNKS_HIDDEN)                               /* keys before 256 and at the end */
        for (i = 0; i < NQ * NK; i++)
            g->keep[i] = i % NK >= 256 && i % NK < (NK - 1) / 128 * 128 && mix(STREAM_KEEP, (uint32_t)i) % 4u == 0;
    a->mask = g->mask;
    a->keep = g->keep;
}

static void golden_biases(golden_call *g, const golden_case *c)
{
    const int f = c->flags;
    const size_t H = (size_t)c->heads;
    attn_args *const a = &g->a;
    int h;
    if (f & GOLDEN_BIAS) a->bias = g->bias = mask_cells(c, STREAM_BIAS, H * (size_t)c->n_q * (size_t)c->n_k);
    if (f & GOLDEN_ALIBI) {
        g->slopes = (float *)room(H * sizeof *g->slopes);
        for (h = 0; h < c->heads; h++) g->slopes[h] = power_of_two(-1 - h) * 1.25f;
        a->alibi_slopes = g->slopes;
    }
    if (f & GOLDEN_REL) {                                             /* causal with -inf; one end is 0 */
        const size_t width = (size_t)(2 * (a->rel_extent = 21) + 1);
        g->rel = c->causal ? mask_cells(c, STREAM_REL, H * width) : filled(c, STREAM_REL, H * width);
        for (h = 0; h < c->heads; h++) g->rel[(size_t)h * width + (h % 2 ? width - 1 : 0)] = 0.0f;
        a->rel_bias = g->rel;
    }
    if (f & GOLDEN_SINKS) a->sinks = g->sinks = filled(c, STREAM_SINK, H);
}

static uint64_t run_attention(const golden_case *c, attn_backend backend, const attn_exec *exec)
{
    golden_call g;
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    attn_status status;
    golden_sizes(&g, c);
    golden_lists(&g, c);
    golden_tensors(&g, c);
    golden_masks(&g, c);
    golden_biases(&g, c);
    g.a.backend = backend, g.a.exec = exec;
    status = c->call == GOLDEN_CARRY ? run_carried(&g.a, &h) : attn_sdpa(&g.a);
    h = fnv_word(h, (uint32_t)status);
    h = fnv_floats(h, g.out, g.n_out);
    if (g.weights) h = fnv_floats(h, g.weights, g.cells);
    if (g.lse) h = fnv_floats(h, g.lse, g.n_lse);
    h = fnv_word(h, (uint32_t)g.masked);
    free(g.q), free(g.k), free(g.v), free(g.out), free(g.weights), free(g.lse), free(g.mask), free(g.bias);
    free(g.slopes), free(g.sinks), free(g.keep), free(g.rel);
    return status == ATTN_OK ? h : 0;                                 /* 0 is not in the table */
}

uint64_t golden_run(const golden_case *c, attn_backend backend, const attn_exec *exec)
{
    switch (c->call) {
    case GOLDEN_T5: return run_t5(c);
    case GOLDEN_CONVERT: return run_convert(c);
    case GOLDEN_NORM: return run_norm(c, backend, exec);
    case GOLDEN_ACTIVATE: return run_activate(c, (attn_activation)c->stage, exec);
    case GOLDEN_SDPA: case GOLDEN_CARRY: return run_attention(c, backend, exec);
    default: return run_layer(c, backend, exec);
    }
}

/* ---- the cases ------------------------------------------------------------------------------------------- */

#define ALL_MASKS (GOLDEN_MASK_FULL | GOLDEN_KEEP | GOLDEN_BIAS | GOLDEN_ALIBI | GOLDEN_SINKS)
#define SEE (GOLDEN_WEIGHTS | GOLDEN_LSE)
#define SIZE(b, h, g, q, k, d) .batch = b, .heads = h, .kv_heads = g, .n_q = q, .n_k = k, .head_dim = d
#define LAST(e) .causal = ATTN_CAUSAL_##e

const golden_case golden_cases[] = {
    {"one", SIZE(1, 1, 0, 1, 1, 1), .flags = SEE},
    {"toy", SIZE(1, 1, 0, 5, 6, 4), .flags = SEE},
    {"toy causal", SIZE(2, 2, 0, 16, 16, 16), LAST(TOP_LEFT)},
    {"no keys", SIZE(2, 2, 0, 3, 0, 8), .flags = SEE},
    {"head_dim 1", SIZE(1, 2, 1, 7, 19, 1), .flags = SEE},
    {"head_dim 3, v_head_dim 1", SIZE(2, 4, 2, 7, 31, 3), .v_head_dim = 1, .flags = SEE},
    {"head_dim 8, v_head_dim 33", SIZE(1, 2, 0, 15, 65, 8), .v_head_dim = 33, .flags = SEE},
    {"head_dim 15", SIZE(1, 3, 0, 17, 127, 15), .flags = SEE},
    {"head_dim 40, one key over a chunk", SIZE(1, 2, 0, 9, 129, 40), .flags = SEE},
    {"head_dim 64, a chunk", SIZE(1, 2, 0, 25, 128, 64), .flags = SEE},
    {"head_dim 64, two chunks less one", SIZE(1, 1, 0, 24, 255, 64)},
    {"head_dim 80", SIZE(1, 2, 0, 6, 257, 80)},
    {"head_dim 128", SIZE(1, 1, 0, 31, 300, 128)},
    {"head_dim 256, v_head_dim 48", SIZE(1, 1, 0, 4, 70, 256), .v_head_dim = 48},
    {"head_dim 67, long", SIZE(1, 1, 0, 50, 700, 67)},
    {"one row, many keys", SIZE(1, 2, 1, 1, 1500, 64), .flags = GOLDEN_LSE},
    {"one row, batch", SIZE(4, 8, 2, 1, 400, 32), .flags = GOLDEN_LSE},
    {"groups of 8", SIZE(2, 8, 1, 3, 150, 24), .flags = SEE},
    {"groups of 2, causal", SIZE(1, 8, 4, 33, 33, 16), LAST(TOP_LEFT), .flags = SEE},
    {"causal long", SIZE(1, 2, 0, 200, 200, 32), LAST(TOP_LEFT)},
    {"causal bottom right", SIZE(1, 2, 0, 40, 170, 24), LAST(BOTTOM_RIGHT), .flags = SEE},
    {"causal, rows before the first key", SIZE(1, 2, 0, 40, 17, 12), LAST(BOTTOM_RIGHT), .flags = SEE},
    {"causal with lengths", SIZE(4, 2, 0, 30, 140, 16), LAST(BOTTOM_RIGHT),
     .flags = SEE | GOLDEN_Q_LENGTHS | GOLDEN_K_LENGTHS},
    {"causal, position", SIZE(3, 2, 0, 20, 90, 16), LAST(TOP_LEFT), .q_pos = 65, .flags = SEE | GOLDEN_POS_EACH},
    {"window left", SIZE(1, 2, 0, 150, 150, 16), LAST(TOP_LEFT), .window_left = 20, .flags = SEE},
    {"window both", SIZE(1, 2, 0, 30, 300, 16), .window_left = 9, .window_right = 5, .q_pos = 120, .flags = SEE},
    {"window aligned", SIZE(1, 1, 0, 10, 290, 16), .window_left = 140, .window_right = 2,
     .align = ATTN_ALIGN_BOTTOM_RIGHT, .flags = SEE},
    {"window right of everything", SIZE(1, 1, 0, 4, 20, 8), .window_left = 3, .q_pos = 50, .flags = SEE},
    {"lengths", SIZE(6, 2, 0, 9, 200, 16), .flags = SEE | GOLDEN_Q_LENGTHS | GOLDEN_K_LENGTHS},
    {"starts", SIZE(6, 2, 0, 9, 200, 16), .flags = SEE | GOLDEN_K_LENGTHS | GOLDEN_K_STARTS},
    {"starts, causal", SIZE(4, 2, 1, 40, 40, 8), LAST(TOP_LEFT), .flags = SEE | GOLDEN_K_LENGTHS | GOLDEN_K_STARTS},
    {"ragged", SIZE(5, 2, 0, 23, 180, 16), .flags = SEE | GOLDEN_RAGGED},
    {"ragged, heads outside, causal", SIZE(5, 4, 2, 23, 40, 16), LAST(BOTTOM_RIGHT),
     .flags = SEE | GOLDEN_RAGGED | GOLDEN_BHSD},
    {"map", SIZE(4, 2, 0, 5, 60, 16), .flags = SEE | GOLDEN_K_MAP | GOLDEN_K_LENGTHS},
    {"heads outside", SIZE(2, 3, 0, 19, 133, 20), .flags = SEE | GOLDEN_BHSD},
    {"strided", SIZE(2, 3, 0, 19, 133, 20), .flags = SEE | GOLDEN_STRIDED},
    {"mask of rows", SIZE(2, 2, 0, 30, 150, 16), .flags = SEE | GOLDEN_MASK_ROWS},
    {"mask of keys", SIZE(3, 2, 0, 30, 150, 16), .flags = SEE | GOLDEN_MASK_KEY},
    {"mask full", SIZE(2, 2, 0, 13, 270, 16), .flags = SEE | GOLDEN_MASK_FULL},
    {"mask of -FLT_MAX", SIZE(2, 2, 0, 13, 33, 16), .flags = SEE | GOLDEN_MASK_FULL | GOLDEN_FLT_MAX},
    {"keep", SIZE(2, 2, 0, 27, 190, 16), .flags = SEE | GOLDEN_KEEP},
    {"first and last chunks hidden", SIZE(1, 2, 0, 14, 650, 16), .flags = SEE | GOLDEN_FIRST_CHUNKS_HIDDEN},
    {"bias", SIZE(2, 2, 0, 27, 190, 16), .flags = SEE | GOLDEN_BIAS},
    {"alibi", SIZE(1, 4, 0, 40, 190, 16), .flags = SEE | GOLDEN_ALIBI},
    {"alibi, causal bottom right", SIZE(1, 4, 0, 40, 190, 16), LAST(BOTTOM_RIGHT), .flags = SEE | GOLDEN_ALIBI},
    {"rel_bias", SIZE(2, 6, 3, 40, 290, 16), .q_pos = 140, .flags = SEE | GOLDEN_REL},
    {"rel_bias, causal bottom right", SIZE(1, 4, 0, 40, 190, 16), LAST(BOTTOM_RIGHT), .flags = SEE | GOLDEN_REL},
    {"sinks", SIZE(2, 4, 2, 10, 140, 16), .flags = SEE | GOLDEN_SINKS},
    {"softcap", SIZE(1, 2, 0, 20, 140, 32), .softcap = 1.5f, .flags = SEE},
    {"softcap, alibi, bias, mask", SIZE(2, 2, 0, 20, 140, 32), .softcap = 30.0f, .flags = SEE | ALL_MASKS},
    {"scale", SIZE(1, 2, 0, 20, 140, 32), .scale = 1.0f, .flags = SEE},
    {"scale negative", SIZE(1, 2, 0, 20, 140, 32), .scale = -0.3f, .flags = SEE},
    {"stage raw", SIZE(2, 2, 0, 12, 140, 24), LAST(TOP_LEFT), .stage = ATTN_SCORES_RAW, .softcap = 2.0f,
     .flags = SEE | ALL_MASKS | GOLDEN_K_LENGTHS | GOLDEN_Q_LENGTHS},
    {"stage capped", SIZE(2, 2, 0, 12, 140, 24), LAST(TOP_LEFT), .stage = ATTN_SCORES_CAPPED, .softcap = 2.0f,
     .flags = SEE | ALL_MASKS | GOLDEN_K_LENGTHS | GOLDEN_Q_LENGTHS},
    {"stage biased", SIZE(2, 2, 0, 12, 140, 24), LAST(TOP_LEFT), .stage = ATTN_SCORES_BIASED, .softcap = 2.0f,
     .flags = SEE | ALL_MASKS | GOLDEN_K_LENGTHS | GOLDEN_Q_LENGTHS},
    {"saturated", SIZE(1, 2, 0, 29, 260, 32), .data = GOLDEN_LOUD, .scale = 1.0f, .flags = SEE},
    {"saturated, causal, capped", SIZE(1, 2, 0, 140, 140, 16), LAST(TOP_LEFT), .data = GOLDEN_LOUD, .scale = 1.0f,
     .softcap = 50.0f, .flags = SEE},
    {"overflow", SIZE(1, 2, 0, 29, 260, 12), .data = GOLDEN_HUGE, .flags = SEE | GOLDEN_KEEP},
    {"overflow, capped", SIZE(1, 2, 0, 29, 140, 12), .data = GOLDEN_HUGE, .softcap = 20.0f, .flags = SEE | GOLDEN_BIAS},
    {"denormal products", SIZE(1, 2, 0, 29, 140, 12), .data = GOLDEN_TINY, .flags = SEE},
    {"denormal V", SIZE(1, 2, 0, 29, 140, 12), .data = GOLDEN_DENORMAL, .flags = SEE},
    {"underflow to -0", SIZE(1, 2, 0, 29, 260, 12), .data = GOLDEN_NEGATIVE, .scale = 1.0f,
     .flags = SEE | GOLDEN_MASK_ROWS},
    {"flat", SIZE(1, 2, 0, 29, 260, 12), .data = GOLDEN_FLAT, .flags = SEE},
    {"fma beside the middle", SIZE(1, 1, 0, 9, 150, 2), .data = GOLDEN_MIDPOINT, .scale = 1.0f,
     .stage = ATTN_SCORES_RAW, .flags = SEE},
    {"wild", SIZE(2, 2, 0, 29, 140, 12), .data = GOLDEN_WILD, .flags = SEE | GOLDEN_KEEP},
    {"wild, causal, few visible", SIZE(2, 2, 1, 40, 300, 3), LAST(BOTTOM_RIGHT), .data = GOLDEN_WILD, .window_left = 9,
     .flags = SEE},
    {"wild decode", SIZE(2, 2, 1, 1, 300, 3), .data = GOLDEN_WILD, .window_left = 20, .align = ATTN_ALIGN_BOTTOM_RIGHT,
     .flags = SEE},
    {"everything", SIZE(4, 4, 2, 37, 310, 20), LAST(BOTTOM_RIGHT), .v_head_dim = 28, .scale = 0.5f, .softcap = 9.0f,
     .q_pos = 3, .window_left = 200, .window_right = 4,
     .flags = SEE | ALL_MASKS | GOLDEN_Q_LENGTHS | GOLDEN_K_LENGTHS | GOLDEN_K_STARTS | GOLDEN_POS_EACH | GOLDEN_K_MAP |
              GOLDEN_STRIDED},
    {"everything ragged", SIZE(4, 4, 2, 37, 310, 20), LAST(BOTTOM_RIGHT), .v_head_dim = 28, .scale = 0.5f,
     .softcap = 9.0f, .q_pos = 3, .window_left = 200, .window_right = 4,
     .flags = SEE | ALL_MASKS | GOLDEN_RAGGED | GOLDEN_POS_EACH | GOLDEN_STRIDED},
    {"layer, self", SIZE(2, 4, 0, 21, 0, 6), .call = GOLDEN_MHA_SELF},
    {"layer, self, grouped, other rotation", SIZE(1, 4, 2, 150, 0, 8), .call = GOLDEN_MHA_SELF, .flags = GOLDEN_BHSD},
    {"layer, one token", SIZE(1, 3, 1, 1, 0, 32), .call = GOLDEN_MHA_SELF},
    {"layer, cross", SIZE(2, 2, 0, 13, 140, 20), .call = GOLDEN_MHA_CROSS},
    {"layer, steps", SIZE(2, 4, 2, 140, 0, 8), .call = GOLDEN_MHA_STEPS},
    {"layer, self, chains", SIZE(1, 2, 1, 30, 0, 150), .call = GOLDEN_MHA_SELF},
    {"layer, cross, chains", SIZE(2, 3, 0, 4, 9, 200), .call = GOLDEN_MHA_CROSS},
    {"layer, steps, chains", SIZE(1, 2, 0, 5, 0, 133), .v_head_dim = 66, .call = GOLDEN_MHA_STEPS},
    {"layer, norms, half rotated", SIZE(2, 3, 0, 17, 0, 12), .v_head_dim = 6, .call = GOLDEN_MHA_SELF,
     .flags = GOLDEN_SINKS},
    {"layer, steps, norms after the rotation", SIZE(2, 4, 2, 20, 0, 8), .call = GOLDEN_MHA_STEPS,
     .flags = GOLDEN_SINKS | GOLDEN_BHSD},
    {"layer, cross, norms", SIZE(2, 2, 0, 13, 40, 20), .call = GOLDEN_MHA_CROSS, .flags = GOLDEN_SINKS},
    {"layer, wild", SIZE(1, 2, 0, 40, 0, 24), .call = GOLDEN_MHA_SELF, .scale = 1.0f, .data = GOLDEN_WILD},
    {"half", SIZE(1, 1, 0, 1, 1, 1), .call = GOLDEN_CONVERT, .storage = ATTN_F16},
    {"bfloat16", SIZE(1, 1, 0, 1, 1, 1), .call = GOLDEN_CONVERT, .storage = ATTN_BF16},
    {"layer, self, half", SIZE(2, 4, 2, 21, 0, 22), .call = GOLDEN_MHA_SELF, .storage = ATTN_F16},
    {"layer, self, bfloat16", SIZE(2, 4, 2, 21, 0, 22), .call = GOLDEN_MHA_SELF, .storage = ATTN_BF16},
    {"layer, cross, half", SIZE(2, 3, 0, 2, 9, 100), .call = GOLDEN_MHA_CROSS, .storage = ATTN_F16},
    {"layer, cross, bfloat16", SIZE(2, 3, 0, 2, 9, 100), .call = GOLDEN_MHA_CROSS, .storage = ATTN_BF16},
    {"layer, steps, half", SIZE(3, 2, 1, 9, 0, 70), .call = GOLDEN_MHA_STEPS, .storage = ATTN_F16},
    {"layer, steps, bfloat16", SIZE(3, 2, 1, 9, 0, 70), .call = GOLDEN_MHA_STEPS, .storage = ATTN_BF16},
    {"layer, wild, half", SIZE(1, 2, 0, 4, 0, 24), .call = GOLDEN_MHA_SELF, .data = GOLDEN_WILD, .storage = ATTN_F16},
    {"layer, denormal, half", SIZE(1, 2, 0, 4, 0, 24), .call = GOLDEN_MHA_SELF, .data = GOLDEN_SMALL,
     .storage = ATTN_F16},
    {"t5 bias", SIZE(1, 4, 0, 60, 300, 1), .call = GOLDEN_T5},
    {"t5 bias, one way", SIZE(1, 4, 0, 60, 300, 1), .call = GOLDEN_T5, LAST(TOP_LEFT), .q_pos = 240},
    {"carried", SIZE(3, 4, 2, 19, 400, 20), LAST(TOP_LEFT), .v_head_dim = 21, .q_pos = 370, .call = GOLDEN_CARRY,
     .flags = GOLDEN_LSE | GOLDEN_SINKS | GOLDEN_KEEP | GOLDEN_Q_LENGTHS | GOLDEN_K_LENGTHS | GOLDEN_K_STARTS |
              GOLDEN_STRIDED},
    {"carried, one row, wild", SIZE(1, 4, 1, 1, 700, 12), .data = GOLDEN_WILD, .flags = GOLDEN_LSE | GOLDEN_KEEP,
     .call = GOLDEN_CARRY},
    {"carried, first chunks hidden", SIZE(1, 2, 0, 60, 650, 16), .flags = GOLDEN_FIRST_CHUNKS_HIDDEN | GOLDEN_LSE,
     .call = GOLDEN_CARRY},
    {"norm", SIZE(1, 1, 0, 39, 83, 77), .call = GOLDEN_NORM},
    {"norm, bias", SIZE(1, 1, 0, 43, 384, 384), .scale = 1e-5f, .flags = GOLDEN_BIAS, .call = GOLDEN_NORM},
    {"norm, order", SIZE(1, 1, 0, 30, 90, 75), .flags = GOLDEN_SINKS, .call = GOLDEN_NORM},
    {"norm, one value", SIZE(1, 1, 0, 5, 2, 1), .flags = GOLDEN_BIAS, .call = GOLDEN_NORM},
    {"norm, denormal products", SIZE(1, 1, 0, 9, 40, 33), .data = GOLDEN_TINY, .call = GOLDEN_NORM},
    {"norm, huge", SIZE(1, 1, 0, 9, 40, 33), .data = GOLDEN_HUGE, .flags = GOLDEN_BIAS, .call = GOLDEN_NORM},
    {"norm, wild", SIZE(1, 1, 0, 70, 40, 33), .data = GOLDEN_WILD, .flags = GOLDEN_BIAS, .call = GOLDEN_NORM},
    {"gelu", SIZE(1, 1, 0, 1, 30011, 1), .stage = ATTN_GELU, .call = GOLDEN_ACTIVATE},
    {"gelu, wild", SIZE(1, 1, 0, 1, 4001, 1), .stage = ATTN_GELU, .data = GOLDEN_WILD, .call = GOLDEN_ACTIVATE},
    {"gelu by tanh", SIZE(1, 1, 0, 1, 30011, 1), .stage = ATTN_GELU_TANH, .call = GOLDEN_ACTIVATE},
    {"gelu by tanh, wild", SIZE(1, 1, 0, 1, 4001, 1), .stage = ATTN_GELU_TANH, .data = GOLDEN_WILD,
     .call = GOLDEN_ACTIVATE},
    {"silu", SIZE(1, 1, 0, 1, 30011, 1), .stage = ATTN_SILU, .call = GOLDEN_ACTIVATE},
    {"silu, wild", SIZE(1, 1, 0, 1, 4001, 1), .stage = ATTN_SILU, .data = GOLDEN_WILD, .call = GOLDEN_ACTIVATE},
};
const int golden_count = (int)(sizeof golden_cases / sizeof golden_cases[0]);

uint64_t golden_expected(const char *name)
{
    size_t i;
    for (i = 0; i < sizeof golden_table / sizeof golden_table[0]; i++)
        if (!strcmp(golden_table[i].name, name)) return golden_table[i].hash;
    return 0;
}

#ifdef GOLDEN_MAIN /* ---- the separate program ----------------------------------------------------------- */

int main(int argc, char **argv)
{
    const int print = argc > 1 && !strcmp(argv[1], "-p");
    attn_backend list[16];
    int n = attn_backends(list, 16), i, j, bad = 0, runs = 0;
    if (print)
        printf("/* golden.h: printed by `build/golden -p` from the scalar backend. A hash changes only when the one\n"
               " * arithmetic changes, which changes every user's bits: say so in the commit. */\n"
               "static const struct { const char *name; uint64_t hash; } golden_table[] = {\n");
    for (i = 0; i < golden_count; i++) {
        const golden_case *c = &golden_cases[i];
        const uint64_t h = golden_run(c, ATTN_SCALAR, NULL), want = golden_expected(c->name);
        if (print) printf("    { \"%s\", UINT64_C(0x%08lX%08lX) },\n", c->name, (unsigned long)(h >> 32),
                          (unsigned long)(h & 0xFFFFFFFFu));
        for (j = 0; j < n; j++) {                                     /* SSE2 and WASM have their own bits */
            uint64_t g = h;
            if (list[j] == ATTN_SSE2 || list[j] == ATTN_WASM) continue;
            if (list[j] != ATTN_SCALAR) g = golden_run(c, list[j], NULL);
            runs++;
            if (g && g == (print ? h : want)) continue;
            fprintf(stderr, "  \"%s\" on %s: %08lX%08lX\n", c->name, attn_backend_name(list[j]),
                    (unsigned long)(g >> 32), (unsigned long)(g & 0xFFFFFFFFu));
            bad++;
        }
    }
    if (print) printf("};\n");
    else printf("%d hashes, %d differ\n", runs, bad);
    return bad != 0;
}

#endif
