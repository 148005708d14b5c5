/* test_families.c: a layer of each family of models, set up as in examples/PORTING.md, against the attention of the
 * family in double. The references follow the formulas of transformers' modelling code, independent of attn.h's
 * members. Each is repeated without each feature of its family, and must then differ clearly, so that ignoring a
 * member is detected. And each layer gives the same bits alone, in a batch and step by step. */
#include "layer.h"

enum { D = 24, MOST_HEADS = 4, N = 37, BATCH = 3, MOST = 64 };

/* The attention of a family, in its own terms. */
typedef struct family {
    const char *name;
    int heads, kv_heads, head_dim, v_dim; /* v_dim: of a head of the values */
    int rotary, interleaved;              /* components that rotate, 0: none; pairs (2i, 2i + 1) */
    double freq[32], rope_factor;         /* inv_freq, "attention_scaling" */
    int norm;                             /* of q and k: 1 of each head, 2 of the whole row, 3 without weights, */
                                          /* 4 of each head with its own weights */
    int layer_norm, norm_bias;            /* LayerNorm instead of RMS; with a bias */
    int norm_plus_one, norm_after;        /* weights are 1 + w; after the rotation */
    int v_norm, k_is_v;                   /* no weights; values are the keys before norm and rotation */
    int causal, window, chunk;            /* keys of the last `window` rows; of the same chunk of `chunk` rows */
    double scale, temper;                 /* of scores; queries times log(floor((pos + 1) / 4) + 1) * temper + 1 */
    int gate;                             /* 1 a number for each head, 2 for each component */
    int bias, sinks, k_unbiased;
    const double *pos_bias;               /* [heads][n][n] */
    const float *rel_bias;                /* the same table in the form of the layer */
    int extent;
} family;

typedef struct weights {
    float *q, *k, *v, *o, *g, *bq, *bk, *bv, *bo, *q_norm, *k_norm, *q_norm_b, *k_norm_b, *sinks;
} weights;

static weights weights_draw(const family *f, rng *r)
{
    const int wide = f->heads * f->head_dim, narrow = f->kv_heads * f->head_dim;
    const int v_wide = f->heads * f->v_dim, v_narrow = f->kv_heads * f->v_dim;
    weights w;
    w.q = normal(r, (size_t)(wide * D), 1.4 / sqrt(D));
    w.k = normal(r, (size_t)(narrow * D), 1.4 / sqrt(D));
    w.v = normal(r, (size_t)(v_narrow * D), 1.0 / sqrt(D));
    w.o = normal(r, (size_t)(D * v_wide), 1.0 / sqrt(v_wide));
    w.g = normal(r, (size_t)(v_wide * D), 1.5 / sqrt(D));
    w.bq = normal(r, (size_t)wide, 0.5);
    w.bk = normal(r, (size_t)narrow, 0.5);
    w.bv = normal(r, (size_t)v_narrow, 0.5);
    w.bo = normal(r, D, 0.5);
    w.q_norm = normal(r, (size_t)wide, 0.7);
    w.k_norm = normal(r, (size_t)narrow, 0.7);
    w.q_norm_b = normal(r, (size_t)wide, 0.5);
    w.k_norm_b = normal(r, (size_t)narrow, 0.5);
    w.sinks = normal(r, MOST_HEADS, 1.0);
    return w;
}

static void weights_free(weights *w)
{
    free(w->q); free(w->k); free(w->v); free(w->o); free(w->g); free(w->bq); free(w->bk); free(w->bv); free(w->bo);
    free(w->q_norm); free(w->k_norm); free(w->q_norm_b); free(w->k_norm_b); free(w->sinks);
}

/* ---- the reference ------------------------------------------------------------------------------------------ */
static double *doubles(size_t n)
{
    double *p = calloc(n + 1, sizeof *p);
    if (!p) abort();
    return p;
}

static double *project(const float *x, int n, const float *w, const float *b, int out)
{
    double *y = doubles((size_t)(n * out));
    for (int i = 0; i < n * out; i++) {
        y[i] = b ? b[i % out] : 0.0;
        for (int c = 0; c < D; c++) y[i] += (double)x[i / out * D + c] * w[i % out * D + c];
    }
    return y;
}

static void rms(double *x, int n, const float *w, int plus_one)
{
    double mean = 1e-6;
    for (int i = 0; i < n; i++) mean += x[i] * x[i] / n;
    for (int i = 0; i < n; i++) x[i] *= (w ? (double)w[i] + plus_one : 1.0) / sqrt(mean);
}

static void layer_norm(double *x, int n, const float *w, const float *b)
{
    double mean = 0.0, variance = 1e-6;
    for (int i = 0; i < n; i++) mean += x[i] / n;
    for (int i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++) x[i] = (x[i] - mean) / sqrt(variance) * w[i] + (b ? (double)b[i] : 0.0);
}

static void norm_all(const family *f, double *x, int rows, int heads, const float *w, const float *b)
{
    const int d = f->head_dim;
    if (!f->norm_bias) b = NULL;
    for (int i = 0; i < rows * heads; i++) {
        const int own = f->norm == 4 ? i % heads * d : 0;
        if (f->layer_norm && (f->norm == 1 || f->norm == 4)) {
            layer_norm(x + i * d, d, w + own, b ? b + own : NULL);
            continue;
        }
        if (f->norm == 4) rms(x + i * d, d, w + own, 0);
        if (f->norm == 1) rms(x + i * d, d, w, f->norm_plus_one);
        if (f->norm == 3) rms(x + i * d, d, NULL, 0);
        if (f->norm == 2 && i % heads == 0) rms(x + i * d, heads * d, w, f->norm_plus_one);
    }
}

static void turn_all(const family *f, double *x, int rows, int heads)
{
    for (int i = 0; i < rows * heads; i++)
        for (int c = 0; c < f->rotary / 2; c++) {
            double *a = x + i * f->head_dim + (f->interleaved ? 2 * c : c);
            double *b = f->interleaved ? a + 1 : a + f->rotary / 2;
            const int row = i / heads;
            const double angle = row * f->freq[c];
            const double co = cos(angle) * f->rope_factor, si = sin(angle) * f->rope_factor;
            const double first = *a * co - *b * si, second = *b * co + *a * si;
            *a = first, *b = second;
        }
}

static void prepare(const family *f, double *x, int rows, int heads, const float *norm, const float *bias)
{
    if (!f->norm_after) norm_all(f, x, rows, heads, norm, bias);
    turn_all(f, x, rows, heads);
    if (f->norm_after) norm_all(f, x, rows, heads, norm, bias);
}

/* out [n][D]; keys and values are computed from memory by other weights if they have another source */
static void reference(const family *f, double *out, const float *x, int n, const weights *w, const float *memory,
                      int n_k, const weights *kw)
{
    const int d = f->head_dim, wide = f->heads * d, narrow = f->kv_heads * d;
    const int vd = f->v_dim, v_wide = f->heads * vd, v_narrow = f->kv_heads * vd;
    double *q = project(x, n, w->q, f->bias ? w->bq : NULL, wide);
    double *k = project(memory, n_k, kw->k, f->bias && !f->k_unbiased ? kw->bk : NULL, narrow);
    double *v = project(memory, n_k, f->k_is_v ? kw->k : kw->v, f->bias ? kw->bv : NULL, v_narrow);
    double *g = project(x, n, w->g, NULL, f->gate == 1 ? f->heads : v_wide), *heads = doubles((size_t)(n * v_wide));
    prepare(f, q, n, f->heads, w->q_norm, w->q_norm_b);
    prepare(f, k, n_k, f->kv_heads, kw->k_norm, kw->k_norm_b);
    for (int i = 0; f->v_norm && i < n_k * f->kv_heads; i++) rms(v + i * vd, vd, NULL, 0);
    for (int i = 0; i < n; i++)
        for (int h = 0; h < f->heads; h++) {
            const double *qi = q + i * wide + h * d, temper = f->temper * log(floor((i + 1.0) / 4.0) + 1.0) + 1.0;
            double s[MOST + 1], top = f->sinks ? w->sinks[h] : -INFINITY, sum = 0.0;
            for (int j = 0; j < n_k; j++) {
                const double *kj = k + j * narrow + h / (f->heads / f->kv_heads) * d;
                s[j] = f->pos_bias ? f->pos_bias[(h * n + i) * n_k + j] : 0.0;
                for (int c = 0; c < d; c++) s[j] += qi[c] * temper * kj[c] * f->scale;
                if (f->causal && j > i) s[j] = -INFINITY;
                if (f->window && j <= i - f->window) s[j] = -INFINITY;
                if (f->chunk && j / f->chunk != i / f->chunk) s[j] = -INFINITY;
                top = fmax(top, s[j]);
            }
            if (f->sinks) sum = exp(w->sinks[h] - top);
            for (int j = 0; j < n_k; j++) sum += s[j] = exp(s[j] - top);
            for (int c = 0; c < vd; c++) {
                const double *vc = v + h / (f->heads / f->kv_heads) * vd + c;
                double *y = heads + i * v_wide + h * vd + c;
                for (int j = 0; j < n_k; j++) *y += s[j] / sum * vc[j * v_narrow];
                if (f->gate) *y /= 1.0 + exp(-g[f->gate == 1 ? i * f->heads + h : i * v_wide + h * vd + c]);
            }
        }
    for (int i = 0; i < n * D; i++) {
        out[i] = f->bias ? w->bo[i % D] : 0.0;
        for (int c = 0; c < v_wide; c++) out[i] += heads[i / D * v_wide + c] * w->o[i % D * v_wide + c];
    }
    free(q); free(k); free(v); free(g); free(heads);
}

/* Numbers around 1, four consecutive sums of at most 64 products: 1e-5 is ten times the observed error, and a missing
   feature changes a hundred times as much. */
static double farthest(const float *got, const double *want, int n)
{
    double most = 0.0;
    for (int i = 0; i < n; i++) most = fmax(most, fabs(got[i] - want[i]));
    return most;
}

static void agrees(const family *f, const float *got, const float *x, int n, const weights *w, const float *memory,
                   int n_k, const weights *kw)
{
    double *want = doubles((size_t)(n * D));
    reference(f, want, x, n, w, memory, n_k, kw);
    CHECKF(farthest(got, want, n * D) < 1e-5, "%s: off by %g", f->name, farthest(got, want, n * D));
    for (int what = 0; what < 16; what++) {                               /* without one feature */
        family less = *f;
        int had = 1;
        switch (what) {
        case 0: had = less.norm, less.norm = 0; break;
        case 1: had = less.v_norm, less.v_norm = 0; break;
        case 2: had = less.gate, less.gate = 0; break;
        case 3: had = less.sinks, less.sinks = 0; break;
        case 4: had = less.window, less.window = 0; break;
        case 5: had = less.chunk, less.chunk = 0; break;
        case 6: had = less.rotary, less.rotary = 0; break;
        case 7: had = less.temper > 0.0, less.temper = 0.0; break;
        case 8: had = less.k_is_v, less.k_is_v = 0; break;
        case 9: had = less.norm_plus_one, less.norm_plus_one = 0; break;
        case 10: had = less.rope_factor > 1.0 && less.rotary, less.rope_factor = 1.0; break;
        case 11: had = less.pos_bias != NULL, less.pos_bias = NULL; break;
        case 12: had = less.layer_norm, less.layer_norm = 0; break;
        case 13: had = less.norm_bias, less.norm_bias = 0; break;
        case 14: had = less.norm == 4, less.norm = had ? 1 : less.norm; break;
        default: had = less.bias, less.bias = 0;
        }
        if (!had) continue;
        reference(&less, want, x, n, w, memory, n_k, kw);
        CHECKF(farthest(got, want, n * D) > 1e-3, "%s: feature %d makes no difference", f->name, what);
    }
    free(want);
}

/* ---- the layer -------------------------------------------------------------------------------------------------- */
/* All members of attn_mha_args for a family. norms: room for weights in the layer's format. */
static attn_mha_args layer_args(const family *f, const weights *w, float *norms, const float *table,
                                const float *factors)
{
    const int wide = f->heads * f->head_dim, narrow = f->kv_heads * f->head_dim;
    attn_mha_args a = {0};
    a.d_model = D;
    a.heads = f->heads;
    a.kv_heads = f->kv_heads;
    a.head_dim = f->head_dim;
    a.v_head_dim = f->v_dim;
    a.w_q = w->q, a.w_k = w->k, a.w_v = f->k_is_v ? w->k : w->v, a.w_o = w->o;
    if (f->bias) a.b_q = w->bq, a.b_k = f->k_unbiased ? NULL : w->bk, a.b_v = w->bv, a.b_o = w->bo;
    for (int i = 0; i < wide; i++) norms[i] = f->norm == 3 ? 1.0f : w->q_norm[i] + (float)f->norm_plus_one;
    for (int i = 0; i < narrow; i++) norms[wide + i] = f->norm == 3 ? 1.0f : w->k_norm[i] + (float)f->norm_plus_one;
    if (f->norm) a.q_norm = norms, a.k_norm = norms + wide;
    if (f->norm_bias) a.q_norm_b = w->q_norm_b, a.k_norm_b = w->k_norm_b;
    if (f->layer_norm) a.qk_norm = ATTN_NORM_LAYER;
    a.norm_row = f->norm == 2 ? 1 : f->norm == 4 ? 2 : 0;
    a.norm_after_rope = f->norm_after;
    a.v_norm = f->v_norm;
    if (f->rotary) a.rope_table = table;
    a.rotary_dim = f->rotary;
    a.rope_interleaved = f->interleaved;
    a.positions = MOST;
    if (f->temper > 0.0) a.q_factors = factors;
    if (f->gate) a.w_gate = w->g, a.gate_rows = f->gate == 1 ? f->heads : 0;
    return a;
}

static attn_mha_opts layer_opts(const family *f, const weights *w)
{
    attn_mha_opts o;
    memset(&o, 0, sizeof o);
    o.attn.scale = (float)f->scale;
    o.attn.window_left = f->window;
    o.attn.rel_bias = f->rel_bias;
    o.attn.rel_extent = f->extent;
    o.attn.sinks = f->sinks ? w->sinks : NULL;
    return o;
}

static void cache_make(attn_kv *c, const family *f, int batch)
{
    attn_kv_args s = {0};
    s.batch = batch;
    s.kv_heads = f->kv_heads;
    s.head_dim = f->head_dim;
    s.v_head_dim = f->v_dim;
    s.capacity = MOST;
    CHECK(attn_kv_init(c, &s) == ATTN_OK);
}

static void ascending(int *pos, int n) { for (int i = 0; i < n; i++) pos[i] = i; }

/* The whole prompt in one call. Chunks are entries of a ragged batch; rows keep their positions. */
static void at_once(const family *f, const weights *w, const attn_mha *m, float *out, const float *x, int n)
{
    attn_mha_opts o = layer_opts(f, w);
    int cum[MOST + 1] = {0}, pos[MOST], entries = 1;
    ascending(pos, n);
    if (f->causal) o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
    if (f->chunk) {
        for (entries = 0; cum[entries] < n; entries++)
            cum[entries + 1] = cum[entries] + f->chunk < n ? cum[entries] + f->chunk : n;
        o.attn.q_cum = cum;
        o.rope_pos = pos;
    }
    CHECKF(attn_mha_self(m, out, x, entries, f->chunk ? 0 : n, &o) == ATTN_OK, "%s: %s", f->name, refusal_text());
}

/* Three sentences, the first of them x; shorter ones are padded. */
static void in_a_batch(const family *f, const weights *w, const attn_mha *m, const float *want, const float *x, rng *r)
{
    float *all = normal(r, BATCH * N * D, 1.0), *out = floats(BATCH * N * D);
    const int lengths[BATCH] = {N, 9, 20};
    attn_mha_opts o = layer_opts(f, w);
    if (f->causal) o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
    o.attn.q_lengths = o.attn.k_lengths = lengths;
    memcpy(all, x, N * D * sizeof *x);
    CHECK(attn_mha_self(m, out, all, BATCH, N, &o) == ATTN_OK);
    CHECKF(same_bits(out, want, N * D), "%s: other bits in a batch", f->name);
    free(all); free(out);
}

/* Some rows at a time, the last ones one by one; a chunk begins with an empty cache. The cache also has an unrelated
   entry. */
static void step_by_step(const family *f, const weights *w, const attn_mha *m, const float *want, const float *x,
                         rng *r)
{
    float *in = normal(r, 2 * N * D, 1.0), *out = floats(2 * N * D);
    attn_kv c;
    cache_make(&c, f, 2);
    for (int at = 0, rows; at < N; at += rows) {
        attn_mha_opts o = layer_opts(f, w);
        int pos[2 * N], counts[2];
        rows = at < 20 ? rng_int(r, 1, 9) : 1;
        if (f->chunk && at % f->chunk == 0) CHECK(attn_kv_reset(&c, 0) == ATTN_OK);
        if (f->chunk && rows > f->chunk - at % f->chunk) rows = f->chunk - at % f->chunk;
        counts[0] = rows;
        counts[1] = 1;
        for (int i = 0; i < 2 * rows; i++) pos[i] = at + i % rows;
        if (f->chunk) o.rope_pos = pos;
        o.attn.q_lengths = counts;
        memcpy(in, x + at * D, (size_t)(rows * D) * sizeof *x);
        CHECKF(attn_mha_self_step(m, out, in, 2, rows, &c, &o) == ATTN_OK, "%s: %s", f->name, refusal_text());
        CHECKF(same_bits(out, want + at * D, (size_t)(rows * D)), "%s: other bits in step %d", f->name, at);
    }
    attn_kv_free(&c);
    free(in); free(out);
}

/* Weights in 16 bits: the layer of the rounded weights. */
static void in_half(const family *f, attn_mha_args a, const weights *w, const float *x)
{
    const int wide = f->heads * f->head_dim, narrow = f->kv_heads * f->head_dim;
    const int v_wide = f->heads * f->v_dim, v_narrow = f->kv_heads * f->v_dim;
    const void **each[5] = {&a.w_q, &a.w_k, &a.w_v, &a.w_o, &a.w_gate};
    const int sizes[5] = {wide * D, narrow * D, v_narrow * D, D * v_wide, (f->gate == 1 ? f->heads : v_wide) * D};
    float got[N * D], want[N * D], *copy[5] = {0};
    uint16_t *half;
    attn_mha m;
    a.storage = ATTN_F16;
    CHECK(attn_mha_init(&m, &a) == ATTN_OK);
    at_once(f, w, &m, got, x, N);
    attn_mha_free(&m);
    a.storage = ATTN_F32;
    for (int i = 0; i < 5; i++) {
        if (!*each[i]) continue;
        half = malloc((size_t)sizes[i] * sizeof *half);
        copy[i] = floats((size_t)sizes[i]);
        if (!half) abort();
        CHECK(attn_narrow(half, (const float *)*each[i], (size_t)sizes[i], ATTN_F16) == ATTN_OK);
        CHECK(attn_widen(copy[i], half, (size_t)sizes[i], ATTN_F16) == ATTN_OK);
        *each[i] = copy[i];
        free(half);
    }
    CHECK(attn_mha_init(&m, &a) == ATTN_OK);
    at_once(f, w, &m, want, x, N);
    attn_mha_free(&m);
    CHECKF(same_bits(got, want, N * D), "%s: weights in 16 bits are not the rounded ones", f->name);
    for (int i = 0; i < 5; i++) free(copy[i]);
}

/* Queries of another layer (Gemma 3n and 4) attend to the keys that the first layer has appended. */
static void looking(const family *f, const weights *w, const attn_mha *m, const float *x, const float *table, rng *r)
{
    weights own = weights_draw(f, r);
    float norms[2 * MOST * MOST_HEADS], *y = normal(r, N * D, 1.0), at_end[N * D], one[9 * D], trash[N * D];
    attn_mha_args a = layer_args(f, &own, norms, table, NULL);
    attn_mha_opts o = layer_opts(f, w);
    attn_mha second;
    attn_kv c;
    int pos[N];
    a.q_only = 1;
    a.k_norm_b = NULL;
    a.w_k = a.w_v = a.b_k = a.b_v = a.k_norm = NULL;
    a.v_norm = 0;
    CHECKF(attn_mha_init(&second, &a) == ATTN_OK, "%s", refusal_text());
    cache_make(&c, f, 1);
    CHECK(attn_mha_self_step(m, trash, x, 1, N, &c, &o) == ATTN_OK);
    CHECKF(attn_mha_self_look(&second, at_end, y, 1, N, &c, &o) == ATTN_OK, "%s", refusal_text());
    agrees(f, at_end, y, N, &own, x, N, w);
    ascending(pos, N);                                                    /* the same as a cross step */
    o.rope_pos = pos;
    o.attn.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    CHECKF(attn_mha_cross_step(&second, trash, y, 1, N, &c, &o) == ATTN_OK, "%s", refusal_text());
    CHECKF(same_bits(trash, at_end, N * D), "%s: a cross step that says where rows stand", f->name);
    o = layer_opts(f, w);
    CHECK(attn_kv_reset(&c, 0) == ATTN_OK);
    for (int at = 0, rows; at < N; at += rows) {
        rows = N - at < 9 ? 1 : rng_int(r, 1, 9);
        CHECK(attn_mha_self_step(m, trash, x + at * D, 1, rows, &c, &o) == ATTN_OK);
        CHECK(attn_mha_self_look(&second, one, y + at * D, 1, rows, &c, &o) == ATTN_OK);
        CHECKF(same_bits(one, at_end + at * D, (size_t)(rows * D)), "%s: who looks sees other bits in step %d", f->name,
               at);
    }
    attn_mha_free(&second);
    attn_kv_free(&c);
    weights_free(&own);
    free(y);
}

/* freqs: as attn_rope_freqs made them, or NULL where the family does not rotate */
static void check_family(const family *given, const attn_rope_freqs_args *rope, int shares)
{
    rng r = rng_make(test_seed + 60);
    family f = *given;
    weights w = weights_draw(&f, &r);
    float *x = normal(&r, N * D, 1.0), *out = floats(N * D), norms[2 * MOST * MOST_HEADS], factors[MOST], freqs[32];
    float *table = floats(MOST * MOST), attention = 1.0f;
    attn_mha_args a;
    attn_mha m;
    f.rope_factor = 1.0;
    if (rope) {
        CHECKF(attn_rope_freqs(freqs, &attention, rope) == ATTN_OK, "%s", refusal_text());
        CHECK(attn_rope_table(table, MOST, f.rotary, freqs, 0.0) == ATTN_OK);
        for (int i = 0; i < MOST * f.rotary; i++) table[i] *= attention;
        for (int i = 0; i < f.rotary / 2; i++) f.freq[i] = freqs[i];    /* test_rope.c holds these to their formulas */
        f.rope_factor = attention;
    }
    for (int p = 0; p < MOST; p++) factors[p] = (float)(log(floor((p + 1.0) / 4.0) + 1.0) * f.temper + 1.0);
    a = layer_args(&f, &w, norms, table, factors);
    CHECKF(attn_mha_init(&m, &a) == ATTN_OK, "%s: %s", f.name, refusal_text());
    at_once(&f, &w, &m, out, x, N);
    agrees(&f, out, x, N, &w, x, N, &w);
    if (!f.chunk) in_a_batch(&f, &w, &m, out, x, &r);
    if (f.causal) step_by_step(&f, &w, &m, out, x, &r);
    in_half(&f, a, &w, x);
    if (shares) looking(&f, &w, &m, x, table, &r);
    attn_mha_free(&m);
    weights_free(&w);
    free(x); free(out); free(table);
}

/* ---- the families ---------------------------------------------------------------------------------------------- */
static family usual(const char *name, int heads, int kv_heads, int head_dim)
{
    family f = {0};
    f.name = name;
    f.heads = heads;
    f.kv_heads = kv_heads;
    f.head_dim = f.v_dim = f.rotary = head_dim;
    f.causal = 1;
    f.scale = 1.0 / sqrt(head_dim);
    return f;
}

static void llama(void)
{
    attn_rope_freqs_args rope = {.kind = ATTN_ROPE_LLAMA3, .rotary_dim = 12, .base = 500000.0, .factor = 8.0,
                                 .original = 64};
    family f = usual("Llama 3", 4, 2, 12);
    check_family(&f, &rope, 0);
    f = usual("Llama 4, chunked", 4, 2, 12);
    f.interleaved = 1;
    f.norm = 3, f.norm_after = 1;
    f.chunk = 16;
    check_family(&f, &rope, 0);
    f = usual("Llama 4, without rotation", 4, 2, 12);
    f.rotary = 0;
    f.temper = 0.1;
    check_family(&f, NULL, 0);
}

static void qwen(void)
{
    attn_rope_freqs_args rope = {.rotary_dim = 12, .base = 1e6};
    family f = usual("Qwen3", 4, 2, 12);
    f.norm = 1;
    check_family(&f, &rope, 0);
    f = usual("Qwen3.5", 4, 1, 16);
    f.norm = f.norm_plus_one = 1;
    f.rotary = rope.rotary_dim = 4;                                   /* partial_rotary_factor 0.25 */
    rope.base = 1e7;
    f.gate = 2;
    check_family(&f, &rope, 0);
    f.name = "a gate for each head";
    f.gate = 1;
    check_family(&f, &rope, 0);
}

static void gemma(void)
{
    attn_rope_freqs_args rope = {.rotary_dim = 12, .base = 10000.0};
    family f = usual("Gemma 3, sliding", 4, 2, 12);
    f.norm = f.norm_plus_one = 1;
    f.scale = 1.0 / sqrt(18);                                         /* query_pre_attn_scalar */
    f.window = 11;
    check_family(&f, &rope, 0);
    f.name = "Gemma 3, full";
    f.window = 0;
    rope.kind = ATTN_ROPE_LINEAR, rope.base = 1e6, rope.factor = 8.0;
    check_family(&f, &rope, 0);
    f = usual("Gemma 3n", 4, 2, 12);
    f.norm = f.v_norm = 1;
    f.scale = 1.0;
    f.window = 11;
    rope.kind = ATTN_ROPE_DEFAULT, rope.base = 10000.0;
    check_family(&f, &rope, 1);
    f = usual("Gemma 4, full", 4, 1, 16);
    f.norm = f.v_norm = f.k_is_v = 1;
    f.scale = 1.0;
    rope.kind = ATTN_ROPE_PROPORTIONAL, rope.rotary_dim = 16, rope.base = 1e6, rope.factor = 0.0, rope.rotated = 4;
    check_family(&f, &rope, 1);
}

static void olmo(void)
{
    attn_rope_freqs_args rope = {.kind = ATTN_ROPE_YARN, .rotary_dim = 12, .base = 500000.0, .factor = 8.0,
                                 .original = 8192};
    family f = usual("OLMo 3", 4, 2, 12);
    f.norm = 2;
    check_family(&f, &rope, 0);
}

/* LayerNorm of q and k: with one set of weights for all heads (Phi), or with one for each */
static void layer_norms(void)
{
    attn_rope_freqs_args rope = {.rotary_dim = 4, .base = 10000.0};
    family f = usual("Phi 1.5 with qk_layernorm", 4, 4, 12);
    f.rotary = 4;                                                     /* partial_rotary_factor */
    f.norm = f.layer_norm = f.norm_bias = f.bias = 1;
    check_family(&f, &rope, 1);
    f = usual("StableLM 2 12B", 4, 2, 12);
    f.rotary = 4;
    f.norm = 4;
    f.layer_norm = 1;
    check_family(&f, &rope, 0);
    f = usual("Chameleon", 4, 2, 12);
    rope.rotary_dim = 12;
    f.norm = 4;
    f.layer_norm = f.norm_bias = 1;
    check_family(&f, &rope, 1);
    f.name = "RMS of each head with its own weights";
    f.layer_norm = f.norm_bias = 0;
    check_family(&f, &rope, 0);
}

static void gpt_oss(void)
{
    attn_rope_freqs_args rope = {.kind = ATTN_ROPE_YARN, .rotary_dim = 12, .base = 150000.0, .factor = 32.0,
                                 .original = 4096, .untruncated = 1};
    family f = usual("gpt-oss", 4, 2, 12);
    f.bias = f.sinks = 1;
    f.window = 13;
    check_family(&f, &rope, 0);
}

/* Heads of 192 for queries and keys and 128 for values, of which 64 rotate: here 12, 8 and 4. */
static void mimo(void)
{
    attn_rope_freqs_args rope = {.rotary_dim = 4, .base = 10000.0};
    family f = usual("MiMo V2, sliding", 4, 2, 12);
    f.v_dim = 8;
    f.rotary = 4;
    f.sinks = 1;
    f.window = 13;
    check_family(&f, &rope, 0);
    f.name = "values wider than keys, a gate for each component";
    f.sinks = 0;
    f.v_dim = 16;
    f.v_norm = 1;
    f.gate = 2;
    check_family(&f, &rope, 1);
    f.name = "values wider than keys, a gate for each head";
    f.gate = 1;
    check_family(&f, &rope, 0);
}

/* transformers' _relative_position_bucket, in double: its quotients of these sizes are never near an integer. */
static int t5_bucket(int relative, int both_ways, int buckets, int max_distance)
{
    int first = 0, exact, large;
    if (both_ways) {
        buckets /= 2;
        if (relative > 0) first = buckets;
        relative = abs(relative);
    } else relative = relative < 0 ? -relative : 0;
    exact = buckets / 2;
    if (relative < exact) return first + relative;
    large = exact + (int)(log((double)relative / exact) / log((double)max_distance / exact) * (buckets - exact));
    return first + (large < buckets - 1 ? large : buckets - 1);
}

/* Biases by distance: T5's buckets (Chronos, MADLAD), in encoder and decoder; and a table whose ends are 0, so that
   farther keys get nothing (Inkling). In the batch, and row by row out of a cache, one table serves every call. */
static void by_distance(void)
{
    enum { H = 4, BUCKETS = 10, MAX = 21, EXTENT = 9 };
    rng r = rng_make(test_seed + 64);
    float *table = normal(&r, BUCKETS * H, 1.5), *near = normal(&r, H * (2 * EXTENT + 1), 1.5);
    float rel_bias[H * (2 * MAX + 1)];
    double *pos_bias = doubles(H * N * N);
    for (int way = 0; way < 3; way++) {
        static const char *const names[] = {"T5, encoder", "T5, decoder", "zero beyond the extent"};
        family f = usual(names[way], H, 2, 12);
        f.rotary = 0;
        f.causal = way > 0;
        f.scale = way < 2 ? 1.0 : f.scale;
        f.pos_bias = pos_bias;
        f.rel_bias = way < 2 ? rel_bias : near;
        f.extent = way < 2 ? MAX : EXTENT;
        if (way < 2) CHECK(attn_bias_t5(rel_bias, table, BUCKETS, MAX, way, H, MAX) == ATTN_OK);
        for (int h = 0; h < H; h++) near[h * (2 * EXTENT + 1)] = near[(h + 1) * (2 * EXTENT + 1) - 1] = 0.0f;
        for (int x = 0; x < H * N * N; x++) {
            const int h = x / N / N, d = x % N - x / N % N;
            pos_bias[x] = way < 2 ? table[t5_bucket(d, !way, BUCKETS, MAX) * H + h]
                                  : abs(d) < EXTENT ? near[h * (2 * EXTENT + 1) + EXTENT + d] : 0.0;
        }
        check_family(&f, NULL, 0);
    }
    free(table); free(near); free(pos_bias);
}

/* The encoder sees everything; the decoder attends to its output, which fills a cache once, one token at a time. */
static void whisper(void)
{
    rng r = rng_make(test_seed + 61);
    family f = usual("Whisper", 2, 2, 12);
    weights w;
    float *x = normal(&r, 5 * D, 1.0), *memory = normal(&r, 2 * N * D, 1.0), norms[2 * MOST * MOST_HEADS];
    float out[5 * D], batch[2 * D], all[2 * 5 * D];
    const int lengths[2] = {N, 11};
    attn_mha_args a;
    attn_mha m;
    attn_kv c;
    f.rotary = f.causal = 0;
    f.bias = f.k_unbiased = 1;                                        /* k_proj has no bias */
    check_family(&f, NULL, 0);
    w = weights_draw(&f, &r);
    a = layer_args(&f, &w, norms, NULL, NULL);
    CHECK(attn_mha_init(&m, &a) == ATTN_OK);
    CHECK(attn_mha_cross(&m, out, x, 1, 5, memory, N, NULL) == ATTN_OK);
    f.rope_factor = 1.0;
    agrees(&f, out, x, 5, &w, memory, N, &w);
    cache_make(&c, &f, 2);
    CHECK(attn_mha_cross_fill(&m, &c, memory, 2, N, lengths, NULL) == ATTN_OK);
    for (int i = 0; i < 5; i++) {
        memcpy(all, x + i * D, D * sizeof *x);
        memcpy(all + D, x, D * sizeof *x);
        CHECK(attn_mha_cross_step(&m, batch, all, 2, 1, &c, NULL) == ATTN_OK);
        CHECKF(same_bits(batch, out + i * D, D), "Whisper: other bits in step %d", i);
    }
    attn_kv_free(&c);
    attn_mha_free(&m);
    weights_free(&w);
    free(x); free(memory);
}

/* Conformer: scores are (q + u) . k + (q + v) . r, with r of the distance between row and key; u and v are of the
   heads. (q + u) is the layer, with u in its bias; the rest is a bias: raw scores of attention over r, shifted. */
static void conformer(void)
{
    enum { H = 4, HD = 8, W = H * HD, C = 2 * N - 1 };
    rng r = rng_make(test_seed + 62);
    family f = usual("Conformer", H, H, HD);
    weights w = weights_draw(&f, &r);
    float *x = normal(&r, 2 * N * D, 1.0), *u = normal(&r, W, 0.5), *v = normal(&r, W, 0.5);
    float *rel = normal(&r, C * W, 1.0);
    float *q = floats(N * W), *scores = floats(H * N * C), *bias = floats(2 * H * N * N), *trash = floats(N * W);
    float *out = floats(2 * N * D), *alone = floats(N * D), norms[2 * MOST * MOST_HEADS], with_u[W], with_v[W];
    double *pos_bias = doubles(H * N * N), *qd;
    attn_mha_args a;
    attn_mha_opts o;
    attn_mha m;
    attn_linear lq;
    f.rotary = f.causal = 0;
    f.bias = 1;
    for (int i = 0; i < W; i++) with_u[i] = w.bq[i] + u[i], with_v[i] = w.bq[i] + v[i];
    a = layer_args(&f, &w, norms, NULL, NULL);
    a.b_q = with_u;
    CHECK(attn_mha_init(&m, &a) == ATTN_OK && linear_make(&lq, w.q, with_v, D, W) == ATTN_OK);
    for (int b = 0; b < 2; b++) {
        attn_args s = attn_args_for(1, N, C, H, HD);
        CHECK(attn_linear_run(&lq, q, x + b * N * D, N, 0, NULL) == ATTN_OK);
        s.out = trash, s.q = q, s.k = s.v = rel;
        s.weights = scores;
        s.weights_stage = ATTN_SCORES_RAW;                            /* scaled as the others are */
        CHECK(attn_sdpa(&s) == ATTN_OK);
        CHECK(attn_bias_shift(bias + b * H * N * N, scores, C, N - 1, H, N, N, 0) == ATTN_OK);
    }
    memset(&o, 0, sizeof o);
    o.attn.bias = bias;
    CHECK(attn_mha_self(&m, alone, x, 1, N, &o) == ATTN_OK);
    o.attn.bias_shape[0] = 2, o.attn.bias_shape[1] = H, o.attn.bias_shape[2] = N;
    CHECK(attn_mha_self(&m, out, x, 2, N, &o) == ATTN_OK);
    CHECKF(same_bits(out, alone, N * D), "Conformer: other bits in a batch");
    qd = project(x, N, w.q, with_v, W);
    for (int h = 0; h < H; h++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                for (int c = 0; c < HD; c++)                              /* rel: the largest distance first */
                    pos_bias[(h * N + i) * N + j] +=
                        qd[i * W + h * HD + c] * rel[(N - 1 - (i - j)) * W + h * HD + c] * f.scale;
    f.pos_bias = pos_bias;
    f.rope_factor = 1.0;
    {
        weights shifted = w;
        shifted.bq = with_u;
        agrees(&f, alone, x, N, &shifted, x, N, &shifted);
    }
    attn_mha_free(&m);
    attn_linear_free(&lq);
    weights_free(&w);
    free(x); free(u); free(v); free(rel); free(q); free(scores); free(bias); free(trash); free(out); free(alone);
    free(pos_bias); free(qd);
}

/* DeepSeek's MLA: keys and values of all heads are computed from one latent row; absorbed, the latent row is the only
   key, and its front is the value. Both against double; absorbed: rows in place, V the front of K. */
static void deepseek(void)
{
    enum { H = 4, NOPE = 16, ROPE = 8, V = 12, LATENT = 32, KEY = LATENT + ROPE, QK = NOPE + ROPE };
    rng r = rng_make(test_seed + 63);
    float *q = normal(&r, N * H * QK, 1.0), *rows = normal(&r, N * KEY, 1.0);      /* rotated already */
    float *up_k = normal(&r, H * NOPE * LATENT, 0.3), *up_v = normal(&r, H * V * LATENT, 0.3);
    float *k = floats(N * H * QK), *v = floats(N * H * V), *out = floats(N * H * V), *q_in = floats(N * H * KEY);
    float *latents = floats(N * H * LATENT), *again = floats(H * LATENT);
    attn_args a = attn_args_for(1, N, N, H, QK);
    attn_kv c;
    attn_kv_args s = {.batch = 1, .kv_heads = 1, .head_dim = KEY, .v_head_dim = LATENT, .capacity = N};
    const double scale = 1.0 / sqrt(QK);
    for (int i = 0; i < N * H; i++) {                                 /* unabsorbed: k and v of each head */
        for (int x = 0; x < QK; x++) {
            double sum = x < NOPE ? 0.0 : rows[i / H * KEY + LATENT + x - NOPE];
            for (int l = 0; x < NOPE && l < LATENT; l++)
                sum += (double)up_k[(i % H * NOPE + x) * LATENT + l] * rows[i / H * KEY + l];
            k[i * QK + x] = (float)sum;
        }
        for (int x = 0; x < V; x++) {
            double sum = 0.0;
            for (int l = 0; l < LATENT; l++)
                sum += (double)up_v[(i % H * V + x) * LATENT + l] * rows[i / H * KEY + l];
            v[i * V + x] = (float)sum;
        }
        for (int l = 0; l < KEY; l++) {                               /* absorbed: q through up_k */
            double sum = l < LATENT ? 0.0 : q[i * QK + NOPE + l - LATENT];
            for (int x = 0; l < LATENT && x < NOPE; x++)
                sum += (double)q[i * QK + x] * up_k[(i % H * NOPE + x) * LATENT + l];
            q_in[i * KEY + l] = (float)sum;
        }
    }
    a.out = out, a.q = q, a.k = k, a.v = v, a.v_head_dim = V;
    a.causal = ATTN_CAUSAL_TOP_LEFT;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    a = attn_args_for(1, N, N, H, KEY);
    a.kv_heads = 1;
    a.v_head_dim = LATENT;
    a.out = latents, a.q = q_in, a.k = rows, a.v = rows;              /* the same rows */
    a.k_stride[1] = a.v_stride[1] = KEY;
    a.scale = (float)scale;
    a.causal = ATTN_CAUSAL_TOP_LEFT;
    CHECKF(attn_sdpa(&a) == ATTN_OK, "%s", refusal_text());
    for (int i = 0; i < N; i++)
        for (int h = 0; h < H; h++) {
            double p[N], sum = 0.0;
            for (int j = 0; j <= i; j++) {
                p[j] = 0.0;
                for (int x = 0; x < QK; x++)
                    p[j] += (double)q[(i * H + h) * QK + x] * k[(j * H + h) * QK + x] * scale;
                sum += p[j] = exp(p[j]);
            }
            for (int x = 0; x < V; x++) {
                double want = 0.0, absorbed = 0.0;
                for (int j = 0; j <= i; j++) want += p[j] / sum * v[(j * H + h) * V + x];
                for (int l = 0; l < LATENT; l++)
                    absorbed += (double)up_v[(h * V + x) * LATENT + l] * latents[(i * H + h) * LATENT + l];
                CHECKF(fabs(out[(i * H + h) * V + x] - want) < 1e-5, "unabsorbed: row %d head %d", i, h);
                CHECKF(fabs(absorbed - want) < 2e-5, "absorbed: row %d head %d: %g, not %g", i, h, absorbed, want);
            }
        }
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);                           /* step by step, from a cache */
    for (int i = 0; i < N; i++) {
        attn_args one = attn_args_for(1, 1, 0, H, KEY);
        CHECK(attn_kv_append(&c, -1, rows + i * KEY, rows + i * KEY, 1, KEY) == ATTN_OK);
        one.kv = &c;
        one.kv_heads = 1;
        one.v_head_dim = LATENT;
        one.out = again, one.q = q_in + i * H * KEY;
        one.scale = (float)scale;
        CHECK(attn_sdpa(&one) == ATTN_OK);
        CHECKF(same_bits(again, latents + i * H * LATENT, H * LATENT), "MLA: other bits in step %d", i);
    }
    attn_kv_free(&c);
    free(q); free(rows); free(up_k); free(up_v); free(k); free(v); free(out); free(q_in); free(latents); free(again);
}

extern const test_case suite_families[];
SUITE(families) = {
    {"llama", llama, "llama3's frequencies, pairs side by side, a norm after the rotation, chunks, a temperature"},
    {"qwen", qwen, "norms of heads, a rotation of a quarter, a gate from x on the wrong number or side"},
    {"gemma", gemma, "1 + weight, another scale, norms of values, K that is V, layers that share a cache"},
    {"olmo", olmo, "a norm of the whole row taken for one of each head; the attention factor of YaRN"},
    {"layer norms", layer_norms,
     "RMS in place of LayerNorm, a missing bias, a bias or weights of another head"},
    {"gpt-oss", gpt_oss, "sinks, biases and windows together; YaRN that is not truncated"},
    {"mimo", mimo, "a width of the keys taken for the values, their norm, their gate or what w_o reads"},
    {"whisper", whisper, "a key with a bias; cross-attention that differs from call to call"},
    {"relative bias", by_distance, "a table by distance mirrored, cut off at its ends, or counted from another row"},
    {"conformer", conformer, "a relative position mirrored, shifted, or scaled twice"},
    {"deepseek", deepseek, "an absorbed product that is not the unabsorbed one; V that is not the front of K"},
    {0}};
