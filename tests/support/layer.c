/* layer.c: see layer.h. */
#include "layer.h"

float *floats(size_t n)
{
    float *p = malloc((n + 1) * sizeof(float));
    if (!p) abort();
    return p;
}

float *normal(rng *r, size_t n, double scale)
{
    float *p = floats(n);
    rng_fill(r, p, n);
    for (size_t i = 0; i < n; i++) p[i] = (float)(p[i] * scale);
    return p;
}

int untouched(const void *p, size_t bytes)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < bytes; i++) if (c[i] != 0x77) return 0;
    return 1;
}

/* ---- numbers in double with the error they may have --------------------------------------------------------- */

numbers numbers_make(size_t n)
{
    numbers x;
    x.value = calloc(n + 1, sizeof(double));
    x.error = calloc(n + 1, sizeof(double));
    if (!x.value || !x.error) abort();
    return x;
}

void numbers_free(numbers x) { free(x.value); free(x.error); }

numbers numbers_of(const float *x, size_t n)
{
    numbers y = numbers_make(n);
    for (size_t i = 0; i < n; i++) y.value[i] = x[i];
    return y;
}

/* y = x W^T + b. A sum of n_in fmas from the bias errs by at most n_in u times the sum of the magnitudes, plus the
   error of x; cut into chains of 256 it errs by 256 u and one u for each chain. The factor 1.01 covers the second
   order. If the best backend has no fma, a product is also rounded separately before its sums. */
numbers linear_oracle(numbers x, size_t rows, const float *w, const float *b, int n_in, int n_out)
{
    numbers y = numbers_make(rows * (size_t)n_out);
    attn_backend best = ATTN_SCALAR;
    attn_backends(&best, 1);
    const int roundings = (n_in < 256 ? n_in : 256 + (n_in + 255) / 256) + (best == ATTN_SSE2 || best == ATTN_WASM);
    for (size_t r = 0; r < rows; r++)
        for (int o = 0; o < n_out; o++) {
            double sum = b ? b[o] : 0.0, size = fabs(sum), error = 0.0;
            for (int i = 0; i < n_in; i++) {
                const double wi = w[(size_t)o * (size_t)n_in + (size_t)i];
                sum += wi * x.value[r * (size_t)n_in + (size_t)i];
                size += fabs(wi * x.value[r * (size_t)n_in + (size_t)i]);
                error += fabs(wi) * x.error[r * (size_t)n_in + (size_t)i];
            }
            y.value[r * (size_t)n_out + (size_t)o] = sum;
            y.error[r * (size_t)n_out + (size_t)o] = 1.01 * (error + roundings * U * size) + 1e-44;
        }
    return y;
}

int within(const float *got, numbers want, size_t n, const char *what, unsigned long long seed)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want.value[i]) <= want.error[i])) {
            CHECKF(0, "%s, seed %llu: number %zu is %.9g but should be %.9g +- %.2g", what, seed, i, (double)got[i],
                   want.value[i], want.error[i]);
            return 0;
        }
    return 1;
}

/* ---- linears and layers ------------------------------------------------------------------------------------- */
attn_status linear_make(attn_linear *l, const float *w, const float *b, int n_in, int n_out)
{
    return linear_make_as(l, w, b, n_in, n_out, ATTN_F32);
}

attn_status linear_make_as(attn_linear *l, const float *w, const float *b, int n_in, int n_out, attn_storage kept)
{
    attn_linear_args a = {0};
    a.n_in = n_in;
    a.n_out = n_out;
    a.w = w;
    a.b = b;
    a.storage = kept;
    return attn_linear_init(l, &a);
}

void norm_by_hand(float *x, int rows, int head_dim, const float *weight, double eps)
{
    for (; rows > 0; rows--, x += head_dim) {
        double sum = 0.0;
        float root;
        for (int i = 0; i < head_dim; i++) sum += (double)x[i] * (double)x[i];
        root = (float)(1.0 / sqrt(sum / head_dim + eps));
        for (int i = 0; i < head_dim; i++) {
            volatile float product = x[i] * root;
            if (weight) product *= weight[i];
            x[i] = product + 0.0f;
        }
    }
}

/* Rounds w in place and returns the same values in 16 bits. For free() */
static unsigned short *in_16_bits(float *w, size_t n, attn_storage storage)
{
    unsigned short *h = malloc((n + 1) * sizeof *h);
    if (!h) abort();
    CHECK(attn_narrow(h, w, n, storage) == ATTN_OK && attn_widen(w, h, n, storage) == ATTN_OK);
    return h;
}

/* Makes the layer again, from packed memory only. */
static void layer_from_packed(layer *l, const attn_mha_args *given)
{
    attn_mha_args a = *given;
    const size_t size = attn_mha_size(&a), used = size - 64;
    unsigned char *mem = guard_alloc(size);
    CHECK(size % 64 == 0);
    memset(mem, 0x77, size);
    a.mem = mem;
    a.mem_size = size;
    attn_mha_free(&l->m);
    if (given->w_storage == ATTN_F32) CHECKF(attn_mha_init(&l->m, &a) == ATTN_OK, "%s", refusal_text());
    else {                                                                 /* the weights of 16 bits have been
                                                                              freed */
        a.w_storage = ATTN_F32;
        a.w_q = l->w[0]; a.w_k = l->w[1]; a.w_v = l->w[2]; a.w_o = l->w[3]; a.w_gate = l->w[4];
        CHECKF(attn_mha_init(&l->m, &a) == ATTN_OK, "%s", refusal_text());
    }
    attn_mha_free(&l->m);
    l->packed = guard_alloc(used);                                         /* all but the zeros at the end */
    memcpy(l->packed, mem, used);
    guard_free(mem);
    a.mem = NULL;
    a.w_q = a.w_k = a.w_v = a.w_o = a.w_gate = NULL;
    a.b_q = a.b_k = a.b_v = a.b_o = a.b_gate = NULL;
    a.q_norm = a.k_norm = a.q_norm_b = a.k_norm_b = NULL;
    a.packed = l->packed;
    a.packed_size = used;
    CHECK(attn_mha_size(&a) == size);
    CHECKF(attn_mha_init(&l->m, &a) == ATTN_OK && !l->m.own && !l->m.shape.packed, "%s", refusal_text());
}

void layer_make(layer *l, rng *r, int what)
{
    static const int dims[] = {1, 2, 4, 7, 8, 16, 20};
    const attn_storage kept = what & IN_EIGHT ? ATTN_Q8 : ATTN_F32;
    int n_in[5], n_out[5], more = 0;
    attn_mha_args *a = &l->a;
    memset(l, 0, sizeof *l);
    a->kv_heads = rng_int(r, 1, 3);
    a->heads = a->kv_heads * rng_int(r, 1, 3);
    a->head_dim = a->v_head_dim = dims[rng_int(r, 0, 6)];
    a->d_model = rng_int(r, 0, 1) ? a->heads * a->head_dim : rng_int(r, 1, 60);
    a->d_key = a->d_value = a->d_model;
    if ((what & CROSSING) && rng_int(r, 0, 1)) {
        a->d_key = rng_int(r, 1, 50);
        a->d_value = rng_int(r, 0, 1) ? a->d_key : rng_int(r, 1, 50);
    }
    if (what & WITH_ROPE) {
        if (a->head_dim % 2) a->v_head_dim = ++a->head_dim;
        a->positions = 400;
        a->rope_interleaved = rng_int(r, 0, 1);
        a->rotary_dim = rng_int(r, 0, 1) ? a->head_dim : 2 * rng_int(r, 1, a->head_dim / 2);
        l->table = floats((size_t)(a->positions * a->rotary_dim));
        CHECK(attn_rope_table(l->table, a->positions, a->rotary_dim, NULL, 100.0) == ATTN_OK);
        a->rope_table = l->table;
    }
    if (rng_int(r, 0, 2) == 0) a->v_head_dim = dims[rng_int(r, 0, 6)];
    if (what & WITH_MORE) {
        a->norm_eps = 1e-6f;
        a->norm_row = rng_int(r, 0, 2);
        a->v_norm = rng_int(r, 0, 1);
        more = rng_int(r, 0, 2);
        a->gate_rows = more == 1 ? a->heads : a->heads * a->v_head_dim;
        if ((what & WITH_ROPE) && rng_int(r, 0, 1)) {
            a->q_factors = l->factors = normal(r, (size_t)a->positions, 1.0);
            if (rng_int(r, 0, 1)) a->rope_table = NULL;                   /* a layer without rotation */
        }
    }
    if (what & WITH_NORM) {
        for (int i = 0; i < 2; i++) {
            const size_t width = (size_t)(a->head_dim * (!a->norm_row ? 1 : i ? a->kv_heads : a->heads));
            if (rng_int(r, 0, 1)) l->norm[i] = normal(r, width, 1.0);
            if (l->norm[i] && rng_int(r, 0, 2) == 0) l->norm[2 + i] = normal(r, width, 1.0);
        }
        a->q_norm = l->norm[0];
        a->k_norm = l->norm[1];
        a->q_norm_b = l->norm[2];
        a->k_norm_b = l->norm[3];
        a->qk_norm = (attn_norm_kind)rng_int(r, 0, 1);
        a->norm_eps = rng_int(r, 0, 1) ? 1e-6f : 0.01f;
        a->norm_after_rope = rng_int(r, 0, 1);
    }
    n_in[0] = a->d_model;
    n_in[1] = a->d_key;
    n_in[2] = a->d_value;
    n_out[0] = a->heads * a->head_dim;
    n_out[1] = a->kv_heads * a->head_dim;
    n_out[2] = a->kv_heads * a->v_head_dim;
    n_in[3] = a->heads * a->v_head_dim;
    n_out[3] = n_in[4] = a->d_model;
    n_out[4] = a->gate_rows;
    for (int i = 0; i < (more ? 5 : 4); i++) {
        l->w[i] = normal(r, (size_t)(n_in[i] * n_out[i]), 1.0 / sqrt(n_in[i]));
        if (rng_int(r, 0, 2)) l->b[i] = normal(r, (size_t)n_out[i], 0.5);
    }
    {
        attn_mha_args given = *a;
        unsigned short *h[5] = {0};
        const void *w[5];
        given.w_storage = (attn_storage)rng_int(r, 0, 2);
        given.storage = kept;
        for (int i = 0; i < 5; i++)
            w[i] = given.w_storage == ATTN_F32 || !l->w[i]
                       ? (const void *)l->w[i]
                       : (h[i] = in_16_bits(l->w[i], (size_t)(n_in[i] * n_out[i]), given.w_storage));
        given.w_q = w[0]; given.w_k = w[1]; given.w_v = w[2]; given.w_o = w[3];
        given.b_q = l->b[0]; given.b_k = l->b[1]; given.b_v = l->b[2]; given.b_o = l->b[3];
        given.w_gate = w[4]; given.b_gate = l->b[4];
        if (a->gate_rows == a->heads * a->v_head_dim) given.gate_rows = 0; /* the default */
        if (a->v_head_dim == a->head_dim) given.v_head_dim = 0;            /* the default */
        if (given.norm_eps == 1e-6f) given.norm_eps = 0.0f;                /* the default */
        CHECKF(attn_mha_init(&l->m, &given) == ATTN_OK, "%s", refusal_text());
        for (int i = 0; i < 5; i++) free(h[i]);                            /* the layer has copied them */
        if (rng_int(r, 0, 1)) layer_from_packed(l, &given);
    }
    CHECK(linear_make_as(&l->q, l->w[0], l->b[0], n_in[0], n_out[0], kept) == ATTN_OK);
    CHECK(linear_make_as(&l->k, l->w[1], l->b[1], n_in[1], n_out[1], kept) == ATTN_OK);
    CHECK(linear_make_as(&l->v, l->w[2], l->b[2], n_in[2], n_out[2], kept) == ATTN_OK);
    CHECK(linear_make_as(&l->o, l->w[3], l->b[3], n_in[3], n_out[3], kept) == ATTN_OK);
    if (more) CHECK(linear_make_as(&l->gate, l->w[4], l->b[4], n_in[4], n_out[4], kept) == ATTN_OK);
}

void layer_free(layer *l)
{
    attn_mha_free(&l->m);
    guard_free(l->packed);
    attn_linear_free(&l->q);
    attn_linear_free(&l->k);
    attn_linear_free(&l->v);
    attn_linear_free(&l->o);
    attn_linear_free(&l->gate);
    for (int i = 0; i < 5; i++) { free(l->w[i]); free(l->b[i]); }
    free(l->table);
    free(l->factors);
    for (int i = 0; i < 4; i++) free(l->norm[i]);
}

void masks_draw(masks *s, rng *r, attn_args *a, int batch, int heads, int n_q, int n_k)
{
    memset(s, 0, sizeof *s);
    for (int b = 0; b < batch; b++) {
        s->q_lengths[b] = rng_int(r, 0, n_q);
        s->k_lengths[b] = rng_int(r, 0, n_k);
        s->k_starts[b] = rng_int(r, 0, n_k - s->k_lengths[b]);
    }
    if (rng_int(r, 0, 2) == 0) a->causal = rng_int(r, 1, 2);
    if (rng_int(r, 0, 3) == 0) a->window_left = rng_int(r, 1, 20);
    if (rng_int(r, 0, 3) == 0) a->window_right = rng_int(r, 1, 20);
    if (rng_int(r, 0, 3) == 0) a->q_lengths = s->q_lengths;
    if (rng_int(r, 0, 3) == 0) a->k_lengths = s->k_lengths;
    if (a->k_lengths && rng_int(r, 0, 1)) a->k_starts = s->k_starts;
    if (rng_int(r, 0, 3) == 0) a->scale = 0.3f;
    if (rng_int(r, 0, 5) == 0) a->softcap = 2.0f;
    if (rng_int(r, 0, 3) == 0) {
        const size_t n = (size_t)(batch * n_q * n_k);
        s->mask = normal(r, n, 1.0);
        for (size_t i = 0; i < n; i++) if (rng_int(r, 0, 4) == 0) s->mask[i] = -INFINITY;
        a->mask = s->mask;
        a->mask_shape[0] = batch;
        a->mask_shape[1] = 1;
        a->mask_shape[2] = n_q;
    }
    if (rng_int(r, 0, 3) == 0) {
        const size_t n = (size_t)(batch * n_k);
        s->keep = malloc(n + 1);
        if (!s->keep) abort();
        for (size_t i = 0; i < n; i++) s->keep[i] = (unsigned char)(rng_int(r, 0, 4) > 0);
        a->keep = s->keep;
        a->keep_shape[0] = batch;
        a->keep_shape[1] = a->keep_shape[2] = 1;
    }
    if (rng_int(r, 0, 3) == 0) a->bias = s->bias = normal(r, (size_t)(heads * n_q * n_k), 1.0);
    rng_fill(r, s->slopes, 16);
    rng_fill(r, s->sinks, 16);
    rng_fill(r, s->rel, 16 * 15);
    if (rng_int(r, 0, 4) == 0) a->rel_bias = s->rel, a->rel_extent = rng_int(r, 0, 7);
    if (rng_int(r, 0, 4) == 0) a->alibi_slopes = s->slopes;
    if (rng_int(r, 0, 4) == 0) a->sinks = s->sinks;
}

void masks_free(masks *s) { free(s->mask); free(s->bias); free(s->keep); }

static void rotate(const layer *l, float *x, int batch, int n, int heads, const int *pos_each, const int *rope_pos)
{
    attn_rope_args a = {0};
    a.x = x;
    a.batch = batch;
    a.n = n;
    a.heads = heads;
    a.head_dim = l->a.head_dim;
    a.rotary_dim = l->a.rotary_dim;
    a.rope_table = l->table;
    a.positions = l->a.positions;
    a.rope_interleaved = l->a.rope_interleaved;
    if (rope_pos) a.rope_pos = rope_pos;
    else a.pos_each = pos_each;
    CHECKF(attn_rope(&a) == ATTN_OK, "%s", refusal_text());
}

/* Normalises each head with separate weights: one norm per head, over rows whose stride is that of x. LayerNorm
   and biases are those of attn_norm. */
static void norm_rows(const layer *l, float *x, int rows, int heads, const float *norm, const float *bias, int backend)
{
    const int d = l->a.head_dim, own = l->a.norm_row == 2, width = l->a.norm_row == 1 ? heads * d : d;
    const ptrdiff_t stride = own ? heads * d : width;
    attn_norm_args a = {0};
    a.rows = own ? rows : rows * heads * d / width;
    a.n = width;
    a.x_stride = a.y_stride = stride;
    a.kind = l->a.qk_norm;
    a.eps = l->a.norm_eps;
    a.backend = (attn_backend)backend;
    for (int h = 0; h < (own ? heads : 1); h++) {
        a.x = a.y = x + h * d;
        a.weight = norm + h * d;
        a.bias = bias ? bias + h * d : NULL;
        if (a.kind == ATTN_NORM_LAYER || bias) CHECKF(attn_norm(&a) == ATTN_OK, "%s", refusal_text());
        else
            for (int row = 0; row < a.rows; row++)
                norm_by_hand(a.y + row * stride, 1, width, a.weight, l->a.norm_eps);
    }
}

/* Normalises and rotates the queries (0) or keys (1). */
static void heads_by_hand(const layer *l, float *x, int batch, int n, int which, const int *pos_each,
                          const attn_mha_opts *o)
{
    const attn_mha_args *s = &l->a;
    const int heads = which ? s->kv_heads : s->heads, backend = (int)o->attn.backend;
    const float *norm = l->norm[which], *bias = l->norm[2 + which];
    if (norm && !s->norm_after_rope) norm_rows(l, x, batch * n, heads, norm, bias, backend);
    if (s->rope_table) rotate(l, x, batch, n, heads, pos_each, o->rope_pos);
    if (norm && s->norm_after_rope) norm_rows(l, x, batch * n, heads, norm, bias, backend);
}

/* the factors by position */
static void scale_by_hand(const layer *l, float *q, int batch, int n, const int *pos_each, const int *rope_pos)
{
    const int width = l->a.heads * l->a.head_dim;
    for (int row = 0; l->factors && row < batch * n; row++) {
        const int pos = rope_pos ? rope_pos[row] : pos_each[row / n] + row % n;
        for (int i = 0; pos >= 0 && i < width; i++) {
            volatile float product = q[row * width + i] * l->factors[pos];
            q[row * width + i] = product + 0.0f;
        }
    }
}

/* 1/(1 + exp(-g)) in the bits of the library: the gate of a layer whose attention gives 1. */
static float sigmoid_by_hand(float g)
{
    static const float zero[1] = {0.0f}, one[1] = {1.0f};
    attn_mha_args a = {0};
    attn_mha m;
    float y = 0.0f;
    a.d_model = a.heads = 1;
    a.w_q = a.w_k = a.w_v = a.w_gate = zero;
    a.w_o = a.b_v = one;
    a.b_gate = &g;
    CHECK(attn_mha_init(&m, &a) == ATTN_OK && attn_mha_self(&m, &y, zero, 1, 1, NULL) == ATTN_OK);
    attn_mha_free(&m);
    return y;
}

/* heads [rows][gates][width] times the sigmoid of each gate */
static void gate_by_hand(const layer *l, float *heads, const float *x, int rows)
{
    const int n = l->a.gate_rows, width = l->a.heads * l->a.v_head_dim / n;
    float *g = floats((size_t)(rows * n));
    CHECK(attn_linear_run(&l->gate, g, x, rows, 0, NULL) == ATTN_OK);
    for (int i = 0; i < rows * n; i++) {
        const float by = sigmoid_by_hand(g[i]);
        for (int c = 0; c < width; c++) {
            volatile float product = heads[i * width + c] * by;
            heads[i * width + c] = product != product ? bits_float(0x7FC00000u) : product;
        }
    }
    free(g);
}

void by_parts(const layer *l, float *out, const float *x, int batch, int n_q, const float *memory,
              const float *memory_v, int n_k, const attn_mha_opts *o)
{
    const attn_mha_args *s = &l->a;
    const size_t rows = (size_t)(batch * n_q);
    float *q = floats(rows * (size_t)l->q.n_out), *k = floats((size_t)(batch * n_k * l->k.n_out));
    float *v = floats((size_t)(batch * n_k * l->v.n_out)), *heads = floats(rows * (size_t)l->o.n_in);
    int pos[4] = {0, 0, 0, 0};
    attn_args a = o->attn;
    for (int b = 0; a.k_starts && b < batch; b++)
        pos[b] = -a.k_starts[b]; /* positions count from the first key that exists */
    CHECK(attn_linear_run(&l->q, q, x, batch * n_q, 0, NULL) == ATTN_OK);
    CHECK(attn_linear_run(&l->k, k, memory, batch * n_k, 0, NULL) == ATTN_OK);
    CHECK(attn_linear_run(&l->v, v, memory_v, batch * n_k, 0, NULL) == ATTN_OK);
    heads_by_hand(l, q, batch, n_q, 0, pos, o);
    heads_by_hand(l, k, batch, n_k, 1, pos, o);
    scale_by_hand(l, q, batch, n_q, pos, o->rope_pos);
    if (s->v_norm) norm_by_hand(v, batch * n_k * s->kv_heads, s->v_head_dim, NULL, s->norm_eps);
    a.out = heads;
    a.q = q;
    a.k = k;
    a.v = v;
    a.batch = batch;
    a.n_q = n_q;
    a.n_k = n_k;
    a.heads = s->heads;
    a.kv_heads = s->kv_heads;
    a.head_dim = s->head_dim;
    a.v_head_dim = s->v_head_dim;
    a.work = NULL;
    a.exec = NULL;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    if (l->w[4]) gate_by_hand(l, heads, x, batch * n_q);
    CHECK(attn_linear_run(&l->o, out, heads, (int)rows, 0, NULL) == ATTN_OK);
    for (int b = 0; a.q_lengths && b < batch; b++)
        for (int i = a.q_lengths[b]; i < n_q; i++)
            memset(out + (b * n_q + i) * s->d_model, 0, (size_t)s->d_model * sizeof(float));
    free(q); free(k); free(v); free(heads);
}

