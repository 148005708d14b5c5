/* fuzz_mha.c: layers from bytes. An accepted layer must give the bits of its parts called one after the other
 * (linears, rotation, attn_sdpa), in one call or in steps through a cache. Linears must be correct to the rounding of
 * their sums. Weights in blocks of 8 bits must have the values of their definition. Invalid layers and calls must be
 * rejected and write nothing. */
#include "fuzz.h"
#include "q8_0.h"

typedef struct layer {
    attn_mha_args a;
    attn_mha m;
    float *w[10], *rope;                      /* w_q w_k w_v w_o b_q b_k b_v b_o w_in b_in */
    unsigned char *mem;
} layer;

static size_t product(int a, int b) { return (size_t)a * (size_t)b; }

/* Compares y with sums in double: at most one rounding per step. */
static void check_linear(const attn_linear *l, const float *y, const float *x, int rows, const float *w, const float *b)
{
    int r, o, i;
    for (r = 0; r < rows; r++)
        for (o = 0; o < l->n_out; o++) {
            double sum = b ? (double)b[o] : 0.0, error = 0.0, got = (double)y[r * l->n_out + o];
            for (i = 0; i < l->n_in; i++) {
                const double term = (double)x[r * l->n_in + i] * (double)w[o * l->n_in + i];
                sum += term, error += fabs(sum) + fabs(term);
            }
            if (fabs(got - sum) > 6.1e-8 * error + 1e-30) DIE("linear[%d][%d] is %g, not %g", r, o, got, sum);
        }
}

/* Damaged packed memory is rejected or accepted; unchanged memory gives the same linear. */
static void from_packed(input *in, const attn_linear_args *made, const float *want, const float *x, int rows)
{
    const size_t need = attn_linear_size(made);
    unsigned char *base = (unsigned char *)malloc(need + 63), *mem = base + (64 - (size_t)base % 64) % 64;
    float *y = floats(product(rows, made->n_out));
    attn_linear_args a = *made;
    attn_linear l;
    attn_status s;
    const unsigned at = u8(in), change = u8(in), cut = u8(in);
    MUST(base);
    a.mem = mem, a.mem_size = need;
    MUST(attn_linear_init(&l, &a) == ATTN_OK);
    attn_linear_free(&l);
    mem[at % 64] ^= (unsigned char)change;
    a.w = NULL, a.b = NULL, a.mem = NULL;
    a.packed = mem, a.packed_size = cut & 1u ? need * cut / 256 : need;
    s = attn_linear_init(&l, &a);
    MUST(s == ATTN_OK || s == ATTN_E_BYTES || s == ATTN_E_SIZE);
    if (!change && !(cut & 1u)) MUST(s == ATTN_OK);
    if (s == ATTN_OK && rows > 0) {
        MUST(attn_linear_run(&l, y, x, rows, 0, NULL) == ATTN_OK);
        MUST(same_bits(y, want, product(rows, made->n_out)));
    }
    attn_linear_free(&l);
    free(base), free(y);
}

static void linear_alone(input *in)
{
    const int n_in = from_to(in, 1, 40), n_out = from_to(in, 1, 40), rows = from_to(in, 0, 9);
    const unsigned how = u8(in);
    float *w = normals(in, product(n_in, n_out)), *b = how & 1u ? normals(in, (size_t)n_out) : NULL;
    float *x = normals(in, product(rows, n_in)), *y = floats(product(rows, n_out));
    float *z = floats(product(rows, n_out));
    attn_linear_args a;
    size_t need, shift = how >> 4;
    unsigned char *mem;
    attn_exec exec;
    attn_linear l;
    int width = from_to(in, 1, 5);
    exec.pool = &width, exec.width = width, exec.run = scrambled;
    memset(&a, 0, sizeof a);
    a.n_in = n_in, a.n_out = n_out, a.w = w, a.b = b, a.user = &the_heap;
    MUST(attn_linear_init(&l, &a) == ATTN_OK);
    MUST(attn_linear_run(&l, z, x, rows, 0, how & 8u ? NULL : &exec) == ATTN_OK);
    attn_linear_free(&l);
    need = attn_linear_size(&a);
    mem = how & 2u ? (unsigned char *)malloc(need + shift) : NULL;
    if (mem) a.mem = mem + shift, a.mem_size = need - 1;
    if (mem) MUST(attn_linear_init(&l, &a) == ATTN_E_WORK);
    a.mem_size = need;
    if (how & 4u) {
        a.n_in = odd_size(in) & INT_MIN;
        MUST(attn_linear_init(&l, &a) == ATTN_E_SIZE);
        a.n_in = n_in;
    }
    MUST(attn_linear_init(&l, &a) == ATTN_OK);
    MUST(attn_linear_run(&l, y, x, rows, 0, how & 8u ? &exec : NULL) == ATTN_OK);
    check_linear(&l, y, x, rows, w, b);
    if (mem) from_packed(in, &a, y, x, rows);
    if (rows > 0) MUST(same_bits(y, z, product(rows, n_out)));
    if (rows > 0) MUST(attn_linear_run(&l, y, NULL, rows, 0, NULL) == ATTN_E_NULL && attn_linear_run(&l, y, x, -1, 0, NULL) == ATTN_E_SIZE);
    attn_linear_free(&l);
    attn_linear_free(&l);
    free(w), free(b), free(x), free(y), free(z), free(mem);
}

/* Returns 1 if a layer was made. */
static int make(input *in, layer *l, int cross)
{
    attn_mha_args *a = &l->a;
    const unsigned f = u8(in), wrong = u8(in);
    const int kvh = from_to(in, 1, 2), group = from_to(in, 1, 3);
    attn_status s;
    size_t need, rows[4], cols[4];
    int hd, vd, kv, dk, dv, i, packed;
    memset(l, 0, sizeof *l);
    a->heads = kvh * group, a->kv_heads = group > 1 || f & 1u ? kvh : 0;
    hd = from_to(in, 1, 9);
    if (f & 2u && !cross) hd += hd & 1;
    a->d_model = f & 4u ? from_to(in, 1, 20) : hd * a->heads;
    if (f & 4u || f & 8u) a->head_dim = hd;
    if (f & 8u) a->v_head_dim = from_to(in, 1, 9);
    if (cross && f & 16u) a->d_key = from_to(in, 1, 20);
    if (cross && f & 32u) a->d_value = from_to(in, 1, 20);
    packed = f & 64u && !a->d_key && !a->d_value;
    a->user = &the_heap;
    if (wrong > 200) {
        int *const field[9] = {&a->d_model, &a->heads, &a->kv_heads, &a->head_dim, &a->d_key, &a->d_value, &a->positions,
                               &a->rope_interleaved, &a->v_head_dim};
        *field[u8(in) % 9u] = odd_size(in);
    }
    need = attn_mha_size(a);
    if (need != SIZE_MAX && (need > (size_t)1 << 20 || a->heads > 64)) return 0;      /* too large to allocate
                                                                                         weights */
    hd = a->head_dim ? a->head_dim : a->heads > 0 ? a->d_model / a->heads : 0;
    vd = a->v_head_dim ? a->v_head_dim : hd;
    kv = a->kv_heads ? a->kv_heads : a->heads;
    dk = a->d_key ? a->d_key : a->d_model, dv = a->d_value ? a->d_value : dk;
    if (need == SIZE_MAX) hd = vd = kv = dk = dv = 1;                          /* rejected before a weight is read */
    rows[0] = need == SIZE_MAX ? 1 : product(a->heads, hd), cols[0] = need == SIZE_MAX ? 1 : (size_t)a->d_model;
    rows[1] = product(kv, hd), cols[1] = (size_t)dk, rows[2] = product(kv, vd), cols[2] = (size_t)dv;
    rows[3] = cols[0], cols[3] = need == SIZE_MAX ? 1 : product(a->heads, vd);
    for (i = 0; i < 4; i++) {
        if (i == 3 || !packed) l->w[i] = normals(in, rows[i] * cols[i]);
        if (f & 128u && (i == 3 || !packed)) l->w[4 + i] = normals(in, rows[i]);
    }
    if (packed) {
        l->w[8] = normals(in, (rows[0] + rows[1] + rows[2]) * cols[0]);
        if (f & 128u) l->w[9] = normals(in, rows[0] + rows[1] + rows[2]);
    }
    a->w_q = l->w[0], a->w_k = l->w[1], a->w_v = l->w[2], a->w_o = l->w[3];
    a->b_q = l->w[4], a->b_k = l->w[5], a->b_v = l->w[6], a->b_o = l->w[7], a->w_in = l->w[8], a->b_in = l->w[9];
    if (f & 2u && !cross && hd % 2 == 0 && hd > 0) {
        const int positions = from_to(in, 150, 160);
        l->rope = floats(product(positions, hd));
        MUST(attn_rope_table(l->rope, positions, hd, NULL, coin(in) ? 500.0 : 0.0) == ATTN_OK);
        a->rope_table = l->rope, a->positions = positions, a->rope_interleaved = coin(in);
    }
    if (wrong < 8) {                          /* a missing weight, or one too many */
        const float *one = l->w[3];
        if (wrong & 4) a->w_o = NULL;
        else if (packed && wrong & 1 && f & 128u) *(wrong & 2 ? &a->b_k : &a->b_q) = one;       /* beside b_in */
        else if (packed) a->w_q = one;
        else *(wrong & 1 ? &a->w_q : wrong & 2 ? &a->w_k : &a->w_v) = NULL;
    }
    if (need != SIZE_MAX && wrong & 32) {
        const size_t shift = wrong & 7;
        need = attn_mha_size(a);
        if (need == SIZE_MAX) return 0;       /* a rotation with an odd d_key or d_value */
        l->mem = (unsigned char *)malloc(need + shift);
        if (!l->mem) abort();
        a->mem = l->mem + shift, a->mem_size = need - 1;
        MUST(attn_mha_init(&l->m, a) != ATTN_OK);
        a->mem_size = need;
    } else if (wrong & 64) {
        the_heap.fail_at = the_heap.calls + 1;
        MUST(attn_mha_init(&l->m, a) != ATTN_OK);
        the_heap.fail_at = 0;
    }
    s = attn_mha_init(&l->m, a);
    if (s != ATTN_OK) {
        static const attn_mha zero = {0};
        MUST(memcmp(&l->m, &zero, sizeof zero) == 0);
        if (wrong >= 8 && wrong <= 200) DIE("a valid layer is refused: %d", (int)s);
        return 0;
    }
    MUST(wrong >= 8);
    return 1;
}

static void drop(layer *l)
{
    int i;
    attn_mha_free(&l->m);
    attn_mha_free(&l->m);
    for (i = 0; i < 10; i++) free(l->w[i]);
    free(l->rope);
    free(l->mem);
}

/* Computes the layer by public functions: projections, rotation, attention, projection; weights may be NULL. */
static void by_hand(const layer *l, float *out, float *weights, const float *x, int batch, int n_q, const float *memory,
                    const float *memory_v, int n_k, const attn_mha_opts *how)
{
    const attn_mha_args *s = &l->m.shape;
    const int wide = s->heads * s->head_dim, kw = s->kv_heads * s->head_dim, vw = s->kv_heads * s->v_head_dim;
    float *q = floats(product(batch * n_q, wide)), *k = floats(product(batch * n_k, kw)), *v = floats(product(batch * n_k, vw));
    float *o = floats(product(batch * n_q, s->heads * s->v_head_dim)), *all = floats(weights ? product(batch * s->heads, n_q * n_k) : 1);
    attn_args a = how->attn;
    int b, h, i, row = n_q * n_k;
    MUST(attn_linear_run(&l->m.q, q, x, batch * n_q, 0, NULL) == ATTN_OK);
    MUST(attn_linear_run(&l->m.k, k, memory, batch * n_k, 0, NULL) == ATTN_OK);
    MUST(attn_linear_run(&l->m.v, v, memory_v, batch * n_k, 0, NULL) == ATTN_OK);
    if (l->w[0]) check_linear(&l->m.q, q, x, batch * n_q, l->w[0], l->w[4] ? l->w[4] : NULL);
    if (l->rope) {
        attn_rope_args ra;
        memset(&ra, 0, sizeof ra);
        ra.x = q, ra.batch = batch, ra.n = n_q, ra.heads = s->heads, ra.head_dim = s->head_dim;
        ra.rope_table = l->rope, ra.positions = s->positions, ra.rope_interleaved = s->rope_interleaved;
        MUST(attn_rope(&ra) == ATTN_OK);
        ra.x = k, ra.n = n_k, ra.heads = s->kv_heads;
        MUST(attn_rope(&ra) == ATTN_OK);
    }
    a.batch = batch, a.n_q = n_q, a.n_k = n_k, a.heads = s->heads, a.kv_heads = s->kv_heads, a.head_dim = s->head_dim;
    a.v_head_dim = s->v_head_dim;
    a.q = q, a.k = k, a.v = v, a.out = o, a.weights = weights ? all : NULL;
    MUST(attn_sdpa(&a) == ATTN_OK);
    if (weights && !how->weights_mean) memcpy(weights, all, product(batch * s->heads, row) * sizeof *all);
    for (b = 0; weights && how->weights_mean && b < batch; b++)
        for (i = 0; i < row; i++) {
            float sum = all[b * s->heads * row + i];
            for (h = 1; h < s->heads; h++) sum += all[(b * s->heads + h) * row + i];
            sum = sum / (float)s->heads + 0.0f;
            weights[b * row + i] = sum == sum ? sum : bits_float(0x7FC00000u);
        }
    MUST(attn_linear_run(&l->m.o, out, o, batch * n_q, 0, NULL) == ATTN_OK);
    for (b = 0; how->attn.q_lengths && b < batch; b++)
        for (i = how->attn.q_lengths[b] * s->d_model; i < n_q * s->d_model; i++) out[b * n_q * s->d_model + i] = 0.0f;
    free(q), free(k), free(v), free(o), free(all);
}

typedef struct wishes { float slopes[64], sinks[64], rel[64 * 9], *weights; int q_lengths[3], k_lengths[3]; } wishes;

/* Draws the options of a call; weights has room for n_weights per head. Lengths are drawn, but not set. */
static void options(input *in, attn_mha_opts *o, const layer *l, wishes *w, attn_exec *exec, int batch, int n_q, int n_k)
{
    const unsigned f = u8(in), g = u8(in);
    attn_args *a = &o->attn;
    attn_backend list[16];
    int n = attn_backends(list, 16), h;
    memset(o, 0, sizeof *o);
    memset(w, 0, sizeof *w);
    for (h = 0; h < l->m.shape.heads; h++) w->slopes[h] = number(in), w->sinks[h] = number(in);
    if (f & 1u) a->softcap = 2.0f;
    if (f & 2u) a->window_left = from_to(in, 1, 9);
    if (f & 4u) a->alibi_slopes = w->slopes;
    if (f & 8u) a->sinks = w->sinks;
    if (f & 128u) {
        const unsigned hidden = u8(in) % 40u;              /* index of the table's number that hides; larger: no
                                                              number hides */
        a->rel_bias = w->rel, a->rel_extent = from_to(in, 0, 4);
        for (h = 0; h < l->m.shape.heads * (2 * a->rel_extent + 1); h++)
            w->rel[h] = (unsigned)h == hidden ? -INFINITY : w->slopes[h % l->m.shape.heads] * (float)(h % 5);
    }
    if (f & 16u) a->exec = exec;
    if (f & 32u) a->scale = 0.75f;
    a->backend = f & 64u ? list[u8(in) % (unsigned)n] : ATTN_AUTO;
    a->user = &the_heap;
    if (g & 8u) {
        w->weights = a->weights = floats(product(batch * l->m.shape.heads, n_q * n_k));
        if (g & 16u) a->weights_stage = from_to(in, 0, 3);
        o->weights_mean = g >> 5 & 1;
    }
    for (h = 0; h < batch; h++) w->q_lengths[h] = from_to(in, 0, n_q), w->k_lengths[h] = from_to(in, 0, n_k);
    if (g & 64u) a->q_lengths = w->q_lengths;
}

/* x [batch][n][width] without the rows after lengths; cum: where each entry begins then */
static float *without_padding(int *cum, const float *x, int batch, int n, int width, const int *lengths)
{
    float *y = floats(product(batch * n, width));
    int b;
    for (b = 0, cum[0] = 0; b < batch; b++) {
        memcpy(y + cum[b] * width, x + b * n * width, product(lengths[b], width) * sizeof *y);
        cum[b + 1] = cum[b] + lengths[b];
    }
    return y;
}

/* The call that `again` repeats: with failing allocations, and with slightly too little work memory. */
#define STARVE(again, need, out, n_out)                                                                        \
    do {                                                                                                       \
        if (starve & 1u) {                                                                                     \
            o.attn.work = NULL, the_heap.calls = 0, the_heap.fail_at = 1 + (starve >> 6);                      \
            if ((again) != ATTN_OK) MUST(the_heap.calls >= the_heap.fail_at && wiped(out, (n_out) * 4));       \
            the_heap.fail_at = 0;                                                                              \
        }                                                                                                      \
        if (starve & 2u && (need) > 0) {                                                                       \
            unsigned char *work_ = (unsigned char *)malloc((need) + 7);                                        \
            if (!work_) abort();                                                                               \
            o.attn.work = work_ + (starve >> 2 & 7u), o.attn.work_size = (need) - 1;                           \
            work = work_;                                                                                      \
            o.attn.work_size = (need);                                                                         \
        }                                                                                                      \
    } while (0)

/* Compares the result of a layer with the one computed by its parts (attn_linear_run cannot choose a backend without
 * fma, so then `want` is the layer's result); frees the workspace and the weights. */
static void judge(attn_mha_opts *o, const float *out, float *want, size_t n_out, const float *weights, size_t n_weights)
{
    const int comparable = one_answer(o->attn.backend);
    if (!comparable) memcpy(want, out, n_out * sizeof *out);
    MUST(same_bits(out, want, n_out));
    if (weights && comparable) MUST(same_bits(weights, o->attn.weights, n_weights));
    o->attn.work = NULL, o->attn.work_size = 0;
    o->attn.weights = NULL, o->attn.weights_stage = 0, o->weights_mean = 0;
}

static void self(input *in, layer *l)
{
    const attn_mha_args *s = &l->m.shape;
    const int batch = from_to(in, 1, 3), n = coin(in) ? from_to(in, 1, 8) : u8(in) > 220 ? 140 : from_to(in, 1, 20);
    const size_t n_x = product(batch * n, s->d_model), entry = product(n, s->d_model);
    const unsigned starve = u8(in);
    float *x = normals(in, n_x), *out = floats(n_x), *want = floats(n_x), *part, *part_out, *ragged, *first = NULL;
    unsigned char *work = NULL;
    attn_mha_opts o;
    attn_kv_args ka;
    attn_kv c;
    attn_exec exec;
    wishes w;
    size_t need, n_w = 0;
    int width = from_to(in, 1, 4), at = 0, b, step, cum[4], counts[3];
    if (n == 140 && batch > 1) { free(x), free(out), free(want); return; }
    exec.pool = &width, exec.width = width, exec.run = scrambled;
    options(in, &o, l, &w, &exec, batch, n, n);
    o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
    o.attn.k_lengths = o.attn.q_lengths;
    if (w.weights) n_w = product(batch * (o.weights_mean ? 1 : s->heads), n * n), first = floats(n_w);
    by_hand(l, want, first, x, batch, n, x, x, n, &o);
    need = attn_mha_workspace(&l->m, ATTN_MHA_SELF, batch, n, n, &o);
    MUST(need != SIZE_MAX);
    STARVE(attn_mha_self(&l->m, out, x, batch, n, &o), need, out, n_x);
    MUST(attn_mha_self(&l->m, out, x, batch, n, &o) == ATTN_OK);
    judge(&o, out, want, n_x, first, n_w);
    free(work), free(first), free(w.weights);

    if (o.attn.q_lengths) {                   /* the same rows, ragged */
        ragged = without_padding(cum, x, batch, n, s->d_model, w.q_lengths), part = floats(n_x);
        o.attn.q_cum = cum, o.attn.q_lengths = o.attn.k_lengths = NULL;
        MUST(attn_mha_self(&l->m, part, ragged, batch, starve & 16u ? n : 0, &o) == ATTN_OK);
        for (b = 0; b < batch; b++)
            MUST(same_bits(part + cum[b] * s->d_model, want + (size_t)b * entry, product(w.q_lengths[b], s->d_model)));
        if (starve & 32u && batch > 1) {      /* rejected, and nothing is written */
            memset(part, 0xA5, n_x * sizeof *part);
            cum[1] = cum[2] + 1;
            MUST(attn_mha_self(&l->m, part, ragged, batch, 0, &o) == ATTN_E_LENGTHS && wiped(part, n_x * sizeof *part));
        }
        o.attn.q_cum = NULL, o.attn.q_lengths = counts;
        free(ragged), free(part);
    }

    /* In steps of any size through a cache; some calls between the steps are rejected. */
    memset(&ka, 0, sizeof ka);
    ka.batch = batch, ka.kv_heads = s->kv_heads, ka.head_dim = s->head_dim, ka.v_head_dim = s->v_head_dim, ka.capacity = n, ka.user = &the_heap;
    MUST(attn_kv_init(&c, &ka) == ATTN_OK);
    o.attn.causal = 0;
    for (; at < n; at += step) {
        step = n > 20 ? from_to(in, 30, 80) : from_to(in, 1, 4);
        if (step > n - at) step = n - at;
        for (b = 0; b < batch; b++) counts[b] = w.q_lengths[b] < at ? 0 : w.q_lengths[b] - at < step ? w.q_lengths[b] - at : step;
        part = floats(product(batch * step, s->d_model)), part_out = floats(product(batch * step, s->d_model));
        for (b = 0; b < batch; b++)
            memcpy(part + b * step * s->d_model, x + (size_t)b * entry + at * s->d_model, product(step, s->d_model) * sizeof *x);
        if (starve & 4u) {
            int e;
            the_heap.calls = 0, the_heap.fail_at = 1;
            MUST(attn_mha_self_step(&l->m, part_out, part, batch, step, &c, &o) == ATTN_E_MEMORY);
            the_heap.fail_at = 0;
            if (!o.attn.q_lengths) MUST(attn_mha_self_step(&l->m, part_out, part, batch, n - at + 1, &c, &o) == ATTN_E_FULL);
            else counts[0] += step + 1, MUST(attn_mha_self_step(&l->m, part_out, part, batch, step, &c, &o) != ATTN_OK), counts[0] -= step + 1;
            MUST(attn_mha_self_step(&l->m, part_out, NULL, batch, step, &c, &o) == ATTN_E_NULL);
            for (e = 0; e < batch; e++) MUST(c.lengths[e] == (o.attn.q_lengths && w.q_lengths[e] < at ? w.q_lengths[e] : at));
            MUST(wiped(part_out, product(batch * step, s->d_model) * sizeof *part_out));
        }
        MUST(attn_mha_self_step(&l->m, part_out, part, batch, step, &c, &o) == ATTN_OK);
        for (b = 0; b < batch; b++)
            MUST(same_bits(part_out + b * step * s->d_model, want + (size_t)b * entry + at * s->d_model, product(step, s->d_model)));
        {                                     /* self_look for these rows sees the same keys */
            float *seen = floats(product(batch * step, s->d_model));
            MUST(attn_mha_self_look(&l->m, seen, part, batch, step, &c, &o) == ATTN_OK);
            MUST(same_bits(seen, part_out, product(batch * step, s->d_model)));
            if (!o.attn.q_lengths) MUST(attn_mha_self_look(&l->m, seen, part, batch, n + 1, &c, &o) == ATTN_E_LENGTHS);
            free(seen);
        }
        free(part), free(part_out);
    }
    attn_kv_free(&c);
    free(x), free(out), free(want);
}

static void cross(input *in, layer *l)
{
    const attn_mha_args *s = &l->m.shape;
    const int batch = from_to(in, 1, 3), n_q = from_to(in, 0, 5), n_k = u8(in) > 240 ? 131 : from_to(in, 0, 12);
    const size_t n_x = product(batch * n_q, s->d_model), n_m = product(batch * n_k, s->d_key);
    const int apart = s->d_value != s->d_key || coin(in);
    const unsigned starve = u8(in);
    float *x = normals(in, n_x), *out = floats(n_x), *want = floats(n_x), *memory = normals(in, n_m), *first = NULL;
    float *memory_v = apart ? normals(in, product(batch * n_k, s->d_value)) : memory;
    unsigned char *work = NULL;
    attn_mha_opts o;
    attn_kv_args ka;
    attn_kv c;
    attn_exec exec;
    wishes w;
    size_t need, n_w = 0;
    int width = from_to(in, 1, 4), b;
    exec.pool = &width, exec.width = width, exec.run = scrambled;
    options(in, &o, l, &w, &exec, batch, n_q, n_k);
    if (coin(in)) o.attn.k_lengths = w.k_lengths;
    if (w.weights) n_w = product(batch * (o.weights_mean ? 1 : s->heads), n_q * n_k), first = floats(n_w);
    by_hand(l, want, first, x, batch, n_q, memory, memory_v, n_k, &o);
    o.memory_v = apart ? memory_v : NULL;
    need = attn_mha_workspace(&l->m, ATTN_MHA_CROSS, batch, n_q, n_k, &o);
    MUST(need != SIZE_MAX);
    STARVE(attn_mha_cross(&l->m, out, x, batch, n_q, memory, n_k, &o), need, out, n_x);
    MUST(attn_mha_cross(&l->m, out, x, batch, n_q, memory, n_k, &o) == ATTN_OK);
    judge(&o, out, want, n_x, first, n_w);
    free(work), free(first), free(w.weights);

    if (o.attn.q_lengths && o.attn.k_lengths && !apart) {         /* the same rows, ragged */
        int q_cum[4], k_cum[4];
        float *rx = without_padding(q_cum, x, batch, n_q, s->d_model, w.q_lengths), *part = floats(n_x);
        float *rm = without_padding(k_cum, memory, batch, n_k, s->d_key, w.k_lengths);
        attn_mha_opts r = o;
        r.attn.q_lengths = r.attn.k_lengths = NULL, r.attn.q_cum = q_cum, r.attn.k_cum = k_cum;
        MUST(attn_mha_cross(&l->m, part, rx, batch, 0, rm, starve & 16u ? n_k : 0, &r) == ATTN_OK);
        for (b = 0; b < batch; b++)
            MUST(same_bits(part + q_cum[b] * s->d_model, want + b * n_q * s->d_model, product(w.q_lengths[b], s->d_model)));
        free(rx), free(rm), free(part);
    }

    memset(&ka, 0, sizeof ka);
    ka.batch = batch, ka.kv_heads = s->kv_heads, ka.head_dim = s->head_dim, ka.v_head_dim = s->v_head_dim;
    ka.capacity = n_k > 0 ? n_k : 1, ka.user = &the_heap;
    MUST(attn_kv_init(&c, &ka) == ATTN_OK);
    {
        const int *source = o.attn.k_lengths;
        attn_mha_opts fill;
        memset(&fill, 0, sizeof fill);
        fill.memory_v = o.memory_v, fill.attn.user = &the_heap, fill.attn.exec = o.attn.exec, fill.attn.backend = o.attn.backend;
        if (starve & 8u) {
            the_heap.calls = 0, the_heap.fail_at = 1;
            (void)attn_mha_cross_fill(&l->m, &c, memory, batch, n_k, source, &fill);
            the_heap.fail_at = 0;
            MUST(attn_mha_cross_fill(&l->m, &c, memory, batch, ka.capacity + 1, NULL, &fill) != ATTN_OK);
        }
        MUST(attn_mha_cross_fill(&l->m, &c, memory, batch, n_k, source, &fill) == ATTN_OK);
        for (b = 0; b < batch; b++) MUST(c.lengths[b] == (source ? source[b] : n_k));
    }
    o.attn.k_lengths = NULL, o.memory_v = NULL;
    memset(out, 0xA5, n_x * sizeof *out);
    MUST(attn_mha_cross_step(&l->m, out, x, batch, n_q, &c, &o) == ATTN_OK);
    if (n_x) MUST(same_bits(out, want, n_x));
    attn_kv_free(&c);
    if (apart) free(memory_v);
    free(x), free(out), free(want), free(memory);
}

/* Invalid calls, each with one mistake. */
static void broken(input *in, layer *l)
{
    const attn_mha_args *s = &l->m.shape;
    const size_t n_x = product(2 * 3, s->d_model);
    float *x = normals(in, n_x), *out = floats(n_x), *memory = normals(in, product(2 * 3, s->d_key));
    attn_mha_opts o;
    attn_mha zero;
    attn_kv c, none;
    attn_kv_args ka;
    int bad = odd_size(in);
    memset(&o, 0, sizeof o);
    memset(&zero, 0, sizeof zero);
    memset(&none, 0, sizeof none);
    memset(&ka, 0, sizeof ka);
    ka.batch = 2, ka.kv_heads = s->kv_heads, ka.head_dim = s->head_dim + 1, ka.capacity = 4, ka.user = &the_heap;
    MUST(attn_kv_init(&c, &ka) == ATTN_OK);
    o.attn.user = &the_heap;
    o.memory_v = s->d_value != s->d_key ? memory : NULL;
    MUST(attn_mha_self(&zero, out, x, 2, 3, NULL) != ATTN_OK && attn_mha_self(NULL, out, x, 2, 3, NULL) != ATTN_OK);
    MUST(attn_mha_self_step(&l->m, out, x, 2, 3, &none, &o) != ATTN_OK);
    MUST(attn_mha_self_step(&l->m, out, x, 2, 3, &c, &o) != ATTN_OK && c.lengths[0] == 0);      /* another width */
    MUST(attn_mha_cross_step(&l->m, out, x, 2, 3, &none, &o) != ATTN_OK);
    MUST(attn_mha_cross_fill(&l->m, &c, memory, 2, 3, NULL, &o) != ATTN_OK);
    MUST(attn_mha_cross(&l->m, out, NULL, 2, 3, memory, 3, &o) != ATTN_OK);
    MUST(attn_mha_cross(&l->m, NULL, x, 2, 3, memory, 3, &o) != ATTN_OK);
    MUST(attn_mha_cross(&l->m, out, x, 2, 3, NULL, 3, &o) != ATTN_OK);
    if (s->d_model == s->d_key) MUST(attn_mha_cross(&l->m, x, x, 2, 3, memory, 3, &o) != ATTN_OK);
    if (bad < 0) {
        MUST(attn_mha_cross(&l->m, out, x, bad, 3, memory, 3, &o) != ATTN_OK);
        MUST(attn_mha_cross(&l->m, out, x, 2, bad, memory, 3, &o) != ATTN_OK);
        MUST(attn_mha_cross(&l->m, out, x, 2, 3, memory, bad, &o) != ATTN_OK);
        MUST(attn_mha_workspace(&l->m, ATTN_MHA_CROSS, bad, 3, 3, &o) == SIZE_MAX);
    }
    switch (u8(in) % 10u) {
    case 0: o.attn.q = x; break;
    case 1: o.attn.out = out; break;
    case 2: o.attn.batch = 1; break;
    case 3: o.attn.heads = s->heads; break;
    case 4: o.attn.kv = &c; break;
    case 5: o.attn.q_stride[1] = 4; break;
    case 6: o.attn.layout = 1; break;
    case 7: o.attn.softcap = -1.0f; break;
    case 8: o.attn.backend = 99; break;
    default: o.attn.mask = x, o.attn.mask_shape[0] = 7, o.attn.mask_shape[1] = 1, o.attn.mask_shape[2] = 1;
    }
    MUST(attn_mha_cross(&l->m, out, x, 2, 3, memory, 3, &o) != ATTN_OK);
    MUST(wiped(out, n_x * sizeof *out));
    attn_kv_free(&c);
    free(x), free(out), free(memory);
}

/* Blocks of 8 bits: any integers; the input chooses some scales, so they may be NaN, infinite or negative. Their values
 * are in w. */
static unsigned char *blocks_of(input *in, size_t n, float *w)
{
    unsigned char *to = (unsigned char *)malloc(n / 32 * Q8_0_BYTES);
    size_t i, k;
    if (!to) abort();
    for (i = 0; i < n / 32; i++) {
        unsigned char *block = to + i * Q8_0_BYTES;
        const unsigned chosen = i < 4 ? u8(in) : 0u, scale = chosen & 1u ? u16(in) : 0x2000u + (chosen << 2);
        const unsigned short half = (unsigned short)scale;
        memcpy(block, &half, sizeof half);
        for (k = 2; k < Q8_0_BYTES; k++) {
            in->noise = in->noise * 1664525u + 1013904223u;
            block[k] = (unsigned char)(in->noise >> 24);
        }
        q8_0_values(w + 32 * i, block);
    }
    return to;
}

/* A linear of blocks: its weights, and the bits of the linear of floats unless both round them. */
static void linear_of_blocks(input *in)
{
    const int n_in = 32 * from_to(in, 1, 10), n_out = from_to(in, 1, 40), storage = from_to(in, 0, 3);
    const size_t n = product(n_in, n_out);
    float *w = floats(n), *x = normals(in, (size_t)n_in), *out = floats(n), *y = floats((size_t)n_out);
    float *z = floats((size_t)n_out), row[32];
    unsigned char *blocks = blocks_of(in, n, w);
    union { float scale; char bytes[36]; } eight;
    attn_linear_args a;
    attn_linear l;
    size_t i;
    memset(&a, 0, sizeof a);
    a.n_in = n_in, a.n_out = n_out, a.w = w, a.storage = (attn_storage)storage, a.user = &the_heap;
    MUST(attn_linear_init(&l, &a) == ATTN_OK && attn_linear_run(&l, z, x, 1, 0, NULL) == ATTN_OK);
    attn_linear_free(&l);
    a.w = blocks, a.w_storage = ATTN_Q8_0, a.n_in = n_in - from_to(in, 1, 31);
    MUST(attn_linear_init(&l, &a) == ATTN_E_SIZE);
    a.n_in = n_in;
    MUST(attn_linear_init(&l, &a) == ATTN_OK && attn_linear_run(&l, y, x, 1, 0, NULL) == ATTN_OK);
    MUST(attn_linear_read(&l, 0, n_out, out) == ATTN_OK);
    for (i = 0; i < n && storage == ATTN_Q8; i += 32) {
        if (!q8_0_values(row, blocks + i / 32 * Q8_0_BYTES))
            MUST(attn_narrow(eight.bytes, w + i, 32, ATTN_Q8) == ATTN_OK && attn_widen(row, eight.bytes, 32, ATTN_Q8) == ATTN_OK);
        MUST(same_bits(out + i, row, 32));
    }
    if (storage == ATTN_F32) MUST(same_bits(out, w, n));
    if (storage != ATTN_Q8) MUST(same_bits(y, z, (size_t)n_out));
    attn_linear_free(&l);
    free(w), free(x), free(out), free(y), free(z), free(blocks);
}

/* A layer of blocks, with w_in or separate weights, has the bits of its parts. */
static void layer_of_blocks(input *in)
{
    const int heads = from_to(in, 1, 3), d = from_to(in, 1, 9), dv = 32 * from_to(in, 1, 2), dm = 32 * from_to(in, 1, 2);
    const int q = heads * d, v = heads * dv;
    const size_t n = product(2 * q + v, dm);
    float *w = floats(n), *w_o = floats(product(dm, v)), *got = floats(n);
    unsigned char *blocks = blocks_of(in, n, w), *o = blocks_of(in, product(dm, v), w_o);
    layer l;
    memset(&l, 0, sizeof l);
    l.a.d_model = dm, l.a.heads = heads, l.a.head_dim = d, l.a.v_head_dim = dv, l.a.user = &the_heap;
    l.a.w_storage = ATTN_Q8_0, l.a.storage = (attn_storage)from_to(in, 0, 3), l.a.w_o = o;
    if (coin(in)) l.a.w_in = blocks;
    else {
        l.a.w_q = blocks, l.a.w_k = blocks + product(q, dm) / 32 * Q8_0_BYTES;
        l.a.w_v = blocks + product(2 * q, dm) / 32 * Q8_0_BYTES;
    }
    MUST(attn_mha_init(&l.m, &l.a) == ATTN_OK);
    free(blocks), free(o);
    MUST(attn_linear_read(&l.m.q, 0, q, got) == ATTN_OK && attn_linear_read(&l.m.k, 0, q, got + product(q, dm)) == ATTN_OK);
    MUST(attn_linear_read(&l.m.v, 0, v, got + product(2 * q, dm)) == ATTN_OK);
    if (l.a.storage == ATTN_F32) MUST(same_bits(got, w, n));
    self(in, &l);
    drop(&l);
    free(w), free(w_o), free(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in;
    layer l;
    unsigned kind;
    in.at = data, in.end = data + size, in.noise = (uint32_t)size;
    memset(&the_heap, 0, sizeof the_heap);
    kind = u8(&in);
    if (kind > 224) {
        linear_alone(&in);
        if (coin(&in)) linear_of_blocks(&in);
    } else {
        if (make(&in, &l, kind & 1)) {
            if (kind < 32 || (!(kind & 1) && (l.m.shape.d_key != l.m.shape.d_model || l.m.shape.d_value != l.m.shape.d_model)))
                broken(&in, &l);
            else if (kind & 1) cross(&in, &l);
            else self(&in, &l);
        }
        drop(&l);
        if (coin(&in)) layer_of_blocks(&in);
    }
    MUST(the_heap.live == 0);
    return 0;
}
