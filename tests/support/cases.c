/* cases.c: draws random attn_args. cases.h documents the guarantees. */
#include "cases.h"
#include "harness.h"

#define CASE_NAME(name) #name,
static const char *const feature_names[] = {CASE_FEATURES(CASE_NAME)};

const char *case_feature_name(int feature) { return feature_names[feature]; }

/* ---- which features go together -------------------------------------------------------------------------- */

static int excludes(int one, int other)
{
    static const int rules[][2] = {
        {CASE_CAUSAL_TOP_LEFT, CASE_CAUSAL_BOTTOM_RIGHT},
        {CASE_ALIGN, CASE_CAUSAL_TOP_LEFT},   {CASE_ALIGN, CASE_CAUSAL_BOTTOM_RIGHT},
        {CASE_Q_CUM, CASE_Q_LENGTHS},         {CASE_K_CUM, CASE_K_LENGTHS},
        {CASE_K_CUM, CASE_K_STARTS},          {CASE_K_CUM, CASE_K_MAP},
        {CASE_PACKED, CASE_Q_CUM},            {CASE_PACKED, CASE_K_CUM},
        {CASE_PACKED, CASE_K_MAP},            {CASE_PACKED, CASE_BHSD},
        {CASE_PACKED, CASE_STRIDES},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i][0] == one && rules[i][1] == other) return 1;
    return 0;
}

int case_possible(int one, int other) { return !excludes(one, other) && !excludes(other, one); }

/* Draws every feature independently; of two exclusive features a random one is dropped. */
static uint64_t draw_features(rng *r)
{
    uint64_t f = 0;
    int per_mille = rng_int(r, 100, 450);                   /* some cases are plain, some have everything */
    for (int i = 0; i < CASE_FEATURE_COUNT; i++)
        if (rng_int(r, 0, 999) < per_mille) f |= UINT64_C(1) << i;
    for (int i = 0; i < CASE_FEATURE_COUNT; i++)
        for (int j = 0; j < i; j++)
            if ((f >> i & 1) && (f >> j & 1) && !case_possible(i, j))
                f &= ~(UINT64_C(1) << (rng_int(r, 0, 1) ? i : j));
    return f;
}

#define HAS(name) ((c->features & CASE_BIT(name)) != 0)

/* ---- small draws ----------------------------------------------------------------------------------------- */

static int chance(rng *r, int percent) { return rng_int(r, 0, 99) < percent; }

/* Returns an element of an ascending list, small ones more often */
static int draw_size(rng *r, const int *list, int n)
{
    int one = rng_int(r, 0, n - 1), other = rng_int(r, 0, n - 1);
    return list[one < other ? one : other];
}

/* Returns a number lo..hi; the ends are more likely than the others */
static int draw_edge(rng *r, int lo, int hi)
{
    switch (rng_int(r, 0, 19)) {
    case 0: return lo;
    case 1: return lo < hi ? lo + 1 : lo;
    case 2: return lo < hi ? hi - 1 : hi;
    case 3:
    case 4:
    case 5: return hi;
    default: return rng_int(r, lo, hi);
    }
}

void *case_own(sdpa_case *c, size_t bytes)
{
    void *p = guard_alloc(bytes);
    if (c->n_owned == CASE_OWNED) {
        printf("cases.c: CASE_OWNED is too small\n");
        exit(3);
    }
    return c->owned[c->n_owned++] = p;
}

static float *own_floats(sdpa_case *c, size_t n) { return (float *)case_own(c, n * sizeof(float)); }
static int *own_ints(sdpa_case *c, int n) { return (int *)case_own(c, (size_t)n * sizeof(int)); }

/* ---- sizes ----------------------------------------------------------------------------------------------- */

static void draw_sizes(rng *r, sdpa_case *c, double most)
{
    static const int lengths[] = {1, 2, 5, 6, 7, 15, 16, 17, 31, 127, 128, 129, 255, 257, 600};
    static const int dims[] = {1, 3, 8, 15, 16, 40, 64, 80, 128, 256};
    static const int groups[] = {2, 4, 8};
    enum { LENGTHS = 15, DIMS = 10 };
    attn_args *a = &c->a;

    a->batch = rng_int(r, 1, 3);
    a->n_q = chance(r, 20) ? 1 : draw_size(r, lengths, LENGTHS);
    a->n_k = chance(r, 20) ? a->n_q : lengths[rng_int(r, 0, LENGTHS - 1)];      /* chunks matter for many keys */
    a->head_dim = draw_size(r, dims, DIMS);
    int v_head_dim = HAS(DIM_V) ? draw_size(r, dims, DIMS) : a->head_dim;
    int kv_heads = rng_int(r, 1, 3), group = HAS(GROUPS) ? groups[rng_int(r, 0, 2)] : 1;

    /* If there is too much work, removes features at random until it fits */
    while ((double)a->batch * kv_heads * group * a->n_q * a->n_k * (a->head_dim + v_head_dim) > most) {
        switch (rng_int(r, 0, 12)) {
        case 0: a->n_k = (a->n_k + 1) / 2; break;
        case 1: a->batch = (a->batch + 1) / 2; break;
        case 2: kv_heads = (kv_heads + 1) / 2; break;
        case 3: group = group > 2 ? group / 2 : group; break;
        case 4:
        case 5: v_head_dim = draw_size(r, dims, DIMS); break;
        case 6:
        case 7: a->head_dim = draw_size(r, dims, DIMS); break;
        default: a->n_q = draw_size(r, lengths, LENGTHS); break;
        }
        if (!HAS(DIM_V)) v_head_dim = a->head_dim;
    }
    if (HAS(PACKED)) {                                      /* one buffer, so one number of rows: the smaller one */
        a->n_q = a->n_q < a->n_k ? a->n_q : a->n_k;
        a->n_k = a->n_q;
    }
    if (chance(r, 2)) {                                     /* one size is 0 */
        int which = rng_int(r, 0, 2);
        if (which == 0) a->batch = 0;
        if (which == 1 || HAS(PACKED)) a->n_q = 0;
        if (which == 2 || HAS(PACKED)) a->n_k = 0;
    }
    a->heads = kv_heads * group;
    a->kv_heads = group > 1 || chance(r, 30) ? kv_heads : 0;
    a->v_head_dim = v_head_dim != a->head_dim || chance(r, 30) ? v_head_dim : 0;
}

/* ---- which rows and keys exist, and their positions -------------------------------------------------------------- */

/* Draws lengths that sum up to the ragged total; some entries are empty, and the first need not begin at row 0 */
static int *draw_cum(rng *r, sdpa_case *c, int longest)
{
    int *cum = own_ints(c, c->a.batch + 1);
    cum[0] = chance(r, 20) ? rng_int(r, 1, 3) : 0;
    for (int b = 0; b < c->a.batch; b++) cum[b + 1] = cum[b] + draw_edge(r, 0, longest);
    return cum;
}

static int *draw_ints(rng *r, sdpa_case *c, int lo, int hi)
{
    int *x = own_ints(c, c->a.batch);
    for (int b = 0; b < c->a.batch; b++) x[b] = draw_edge(r, lo, hi);
    return x;
}

static void draw_existence(rng *r, sdpa_case *c)
{
    attn_args *a = &c->a;
    if (HAS(Q_LENGTHS)) a->q_lengths = c->q_lengths = draw_ints(r, c, 0, a->n_q);
    if (HAS(K_LENGTHS)) a->k_lengths = c->k_lengths = draw_ints(r, c, 0, a->n_k);
    if (HAS(K_STARTS)) {                                    /* unless k_lengths no longer fit after it */
        a->k_starts = c->k_starts = own_ints(c, a->batch);
        for (int b = 0; b < a->batch; b++)
            c->k_starts[b] = draw_edge(r, 0, a->n_k - (c->k_lengths ? c->k_lengths[b] : 0));
    }
    if (HAS(Q_CUM)) {
        a->q_cum = c->q_cum = draw_cum(r, c, a->n_q);
        if (chance(r, 50)) a->n_q = 0;                      /* 0: the longest */
    }
    if (HAS(K_CUM)) {
        a->k_cum = c->k_cum = draw_cum(r, c, a->n_k);
        if (chance(r, 50)) a->n_k = 0;
    }
    if (HAS(K_MAP)) {
        int entries = chance(r, 40) ? 0 : rng_int(r, 1, 4), most = (entries ? entries : a->batch) - 1;
        a->k_batch = entries;
        a->k_map = c->k_map = own_ints(c, a->batch);
        for (int b = 0; b < a->batch; b++) c->k_map[b] = rng_int(r, 0, most);
    }
}

static void draw_positions(rng *r, sdpa_case *c)
{
    attn_args *a = &c->a;
    int n_q = c->s.n_q, n_k = c->s.n_k;
    if (HAS(CAUSAL_TOP_LEFT)) a->causal = ATTN_CAUSAL_TOP_LEFT;
    if (HAS(CAUSAL_BOTTOM_RIGHT)) a->causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    if (HAS(ALIGN)) a->align = ATTN_ALIGN_BOTTOM_RIGHT;
    if (HAS(Q_POS)) a->q_pos = rng_int(r, -n_q / 2 - 1, n_k);
    if (HAS(Q_POS_EACH)) a->q_pos_each = c->q_pos_each = draw_ints(r, c, -n_q / 2 - 1, n_k);
    if (HAS(WINDOW_LEFT)) a->window_left = chance(r, 30) ? rng_int(r, 1, 20) : rng_int(r, 1, n_k + 2);
    if (HAS(WINDOW_RIGHT)) a->window_right = chance(r, 30) ? rng_int(r, 1, 20) : rng_int(r, 1, n_k + 2);
}

/* ---- strides --------------------------------------------------------------------------------------------- */

/* Sets some of the three strides explicitly, wider than needed; leaves others 0. */
static void draw_stride(rng *r, ptrdiff_t stride[3], int layout, int heads, int rows, int width)
{
    ptrdiff_t full[3] = {0, 0, 0};
    int inner = layout == ATTN_BSHD ? 2 : 1, outer = 3 - inner;
    ptrdiff_t count[3];
    count[1] = rows > 0 ? rows : 1, count[2] = heads;

    full[inner] = width + (chance(r, 50) ? rng_int(r, 0, 9) : 0);
    if (full[inner] != width || chance(r, 30)) stride[inner] = full[inner];
    full[outer] = count[inner] * full[inner] + (chance(r, 50) ? rng_int(r, 0, 9) : 0);
    if (full[outer] != count[inner] * full[inner] || chance(r, 30)) stride[outer] = full[outer];
    full[0] = count[outer] * full[outer] + (chance(r, 50) ? rng_int(r, 0, 9) : 0);
    if (full[0] != count[outer] * full[outer] || chance(r, 30)) stride[0] = full[0];
}

static void draw_strides(rng *r, sdpa_case *c)
{
    attn_args *a = &c->a;
    const oracle_shape s = oracle_shape_of(a);
    int q_rows = a->q_cum ? a->q_cum[a->batch] : s.n_q, k_rows = a->k_cum ? a->k_cum[a->batch] : s.n_k;
    a->layout = HAS(BHSD) ? ATTN_BHSD : ATTN_BSHD;
    if (HAS(PACKED))
        a->q_stride[1] = a->k_stride[1] = a->v_stride[1] =
            s.heads * s.head_dim + s.kv_heads * (s.head_dim + s.v_head_dim);
    if (HAS(STRIDES)) {
        draw_stride(r, a->q_stride, a->layout, s.heads, q_rows, s.head_dim);
        draw_stride(r, a->k_stride, a->layout, s.kv_heads, k_rows, s.head_dim);
        draw_stride(r, a->v_stride, a->layout, s.kv_heads, k_rows, s.v_head_dim);
        draw_stride(r, a->out_stride, a->layout, s.heads, q_rows, s.v_head_dim);
    }
    c->s = oracle_shape_of(a);
}

/* ---- tensors --------------------------------------------------------------------------------------------- */

/* elements from the first to the last of a tensor, 0 if it has no row */
static size_t extent(const ptrdiff_t stride[3], int ragged, int batch, int rows, int heads, int width)
{
    if (rows == 0 || batch == 0) return 0;
    return (size_t)((ragged ? 0 : (batch - 1) * stride[0]) + (rows - 1) * stride[1] + (heads - 1) * stride[2] + width);
}

static void fill_nan(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = bits_float(0x7FC0BAD0u);
}

static void fill_row(rng *r, float *x, int n, float amplitude)
{
    for (int i = 0; i < n; i++) x[i] = amplitude * rng_normal(r);
}

static int entries_of(const attn_args *a) { return a->k_map && a->k_batch ? a->k_batch : a->batch; }

static void draw_tensors(rng *r, sdpa_case *c)
{
    attn_args *a = &c->a;
    const oracle_shape *s = &c->s;
    int q_rows = a->q_cum ? a->q_cum[a->batch] : s->n_q, k_rows = a->k_cum ? a->k_cum[a->batch] : s->n_k;
    int entries = a->batch ? entries_of(a) : 0;
    c->q_size = extent(s->q, a->q_cum != NULL, a->batch, q_rows, s->heads, s->head_dim);
    c->k_size = extent(s->k, a->k_cum != NULL, entries, k_rows, s->kv_heads, s->head_dim);
    c->v_size = extent(s->v, a->k_cum != NULL, entries, k_rows, s->kv_heads, s->v_head_dim);
    c->out_size = extent(s->out, a->q_cum != NULL, a->batch, q_rows, s->heads, s->v_head_dim);
    if (HAS(PACKED)) {
        ptrdiff_t k_at = s->heads * s->head_dim, v_at = k_at + s->kv_heads * s->head_dim;
        size_t all = c->v_size ? c->v_size + (size_t)v_at : 0;
        c->q = own_floats(c, all);
        fill_nan(c->q, all);
        c->k = all ? c->q + k_at : c->q;
        c->v = all ? c->q + v_at : c->q;
    } else {
        c->q = own_floats(c, c->q_size);
        c->k = own_floats(c, c->k_size);
        c->v = own_floats(c, c->v_size);
        fill_nan(c->q, c->q_size);
        fill_nan(c->k, c->k_size);
        fill_nan(c->v, c->v_size);
    }
    c->out = own_floats(c, c->out_size);
    a->q = c->q;
    a->k = c->k;
    a->v = c->v;
    a->out = c->out;

    float amplitude = chance(r, 80) ? 1.0f : chance(r, 50) ? 3.0f : 0.1f;
    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < s->heads; h++) {
            int rows = oracle_rows(a, b), start = oracle_start(a, b), end = oracle_end(a, b);
            for (int i = 0; i < rows; i++) fill_row(r, c->q + oracle_q_at(a, s, b, h, i), s->head_dim, amplitude);
            for (int j = start; j < end && h % (s->heads / s->kv_heads) == 0; j++) {
                fill_row(r, c->k + oracle_k_at(a, s, b, h, j), s->head_dim, amplitude);
                fill_row(r, c->v + oracle_v_at(a, s, b, h, j), s->v_head_dim, 1.0f);
            }
        }
}

void case_fill(sdpa_case *c, rng *r)
{
    const attn_args *a = &c->a;
    const oracle_shape *s = &c->s;
    int q_rows = a->q_cum ? a->q_cum[a->batch] : s->n_q, k_rows = a->k_cum ? a->k_cum[a->batch] : s->n_k;
    int q_batch = a->q_cum ? a->batch > 0 : a->batch;
    int k_batch = a->k_cum ? a->batch > 0 : a->batch ? entries_of(a) : 0;
    for (int b = 0; b < q_batch; b++)
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < q_rows; i++) fill_row(r, c->q + oracle_row_at(s->q, NULL, b, h, i), s->head_dim, 1.0f);
    for (int b = 0; b < k_batch; b++)
        for (int h = 0; h < s->kv_heads; h++)
            for (int j = 0; j < k_rows; j++) {
                fill_row(r, c->k + oracle_row_at(s->k, NULL, b, h, j), s->head_dim, 1.0f);
                fill_row(r, c->v + oracle_row_at(s->v, NULL, b, h, j), s->v_head_dim, 1.0f);
            }
}

/* ---- masks and biases ------------------------------------------------------------------------------------ */

/* {batch, heads, rows} each shared or not; all zero is the default, resolved into full[] */
static void draw_shape(rng *r, const sdpa_case *c, int shape[3], int heads_by_default, int full[3])
{
    full[0] = 1, full[1] = heads_by_default, full[2] = c->s.n_q;
    if (chance(r, 25)) return;
    full[0] = chance(r, 50) ? c->a.batch : 1;
    full[1] = chance(r, 50) ? c->s.heads : 1;
    full[2] = chance(r, 60) ? c->s.n_q : 1;
    for (int i = 0; i < 3; i++) {
        if (full[i] == 0) full[i] = 1;                      /* a dimension of size 0 cannot be shared */
        shape[i] = full[i];
    }
}

/* Strides {batch, head, row} of such a matrix: packed, rows with a gap, or a gap in every dimension and any order.
 * step: the resolved strides. Returns the number of elements from the first to the last. */
static size_t draw_cell_strides(rng *r, const sdpa_case *c, const int full[3], ptrdiff_t stride[3], ptrdiff_t step[3])
{
    int order[3] = {2, 1, 0}, heads = full[1];
    ptrdiff_t last = 0;
    if (full[0] * full[1] * full[2] == 0 || c->s.n_k == 0) return 0;
    if (chance(r, 30)) {
        ptrdiff_t reach = c->s.n_k;
        int dims = chance(r, 50) ? 1 : 3;
        for (int i = 2; dims == 3 && i > 0; i--) {
            int j = rng_int(r, 0, i), d = order[i];
            order[i] = order[j], order[j] = d;
        }
        for (int i = 0; i < dims; i++) {
            stride[order[i]] = reach + (chance(r, 70) ? rng_int(r, 1, 9) : 0);
            reach += (full[order[i]] - 1) * stride[order[i]];
        }
    }
    oracle_steps(step, full, stride, heads, &c->s);
    for (int i = 0; i < 3; i++) last += (full[i] - 1) * step[i];
    return (size_t)(last + c->s.n_k);
}

/* Fills typical additive matrices: random holes, blocks of hidden keys, empty rows, plain biases */
static void draw_additive(rng *r, float *cells, const int full[3], const ptrdiff_t step[3], int n_k)
{
    int kind = rng_int(r, 0, 4), holes = rng_int(r, 0, 2) * 40 + 10;
    for (int i = 0; i < full[0] * full[1] * full[2]; i++) {
        float *m = cells + oracle_cell_at(step, i / full[2] / full[1], i / full[2] % full[1], i % full[2], 0);
        int from = rng_int(r, 0, n_k), to = rng_int(r, from, n_k), whole = chance(r, 10);
        for (int j = 0; j < n_k; j++) {
            float value = chance(r, 50) ? 0.0f : rng_normal(r);
            switch (kind) {
            case 0: m[j] = value; break;
            case 1: m[j] = chance(r, holes) ? -INFINITY : value; break;
            case 2: m[j] = j >= from && j < to ? -INFINITY : value; break;      /* the middle, or first, or last */
            case 3: m[j] = j >= from && j < to ? value : -INFINITY; break;      /* all but the middle */
            default: m[j] = chance(r, holes) ? -1e9f : value; break;            /* an ordinary number */
            }
            if (whole && kind != 0) m[j] = kind == 4 ? -1e9f : -INFINITY;
        }
    }
}

static float *draw_matrix(rng *r, sdpa_case *c, int shape[3], ptrdiff_t stride[3], int heads_by_default, size_t *size)
{
    int full[3];
    ptrdiff_t step[3];
    draw_shape(r, c, shape, heads_by_default, full);
    *size = draw_cell_strides(r, c, full, stride, step);
    float *m = own_floats(c, *size);
    fill_nan(m, *size);
    if (*size) draw_additive(r, m, full, step, c->s.n_k);
    return m;
}

static unsigned char *draw_keep(rng *r, sdpa_case *c)
{
    attn_args *a = &c->a;
    int full[3], percent = rng_int(r, 0, 2) * 40 + 10;
    ptrdiff_t step[3];
    draw_shape(r, c, a->keep_shape, 1, full);
    c->keep_size = draw_cell_strides(r, c, full, a->keep_stride, step);
    unsigned char *keep = (unsigned char *)case_own(c, c->keep_size);
    int block = chance(r, 40);
    for (int i = 0; i < full[0] * full[1] * full[2] && c->keep_size; i++) {
        unsigned char *row = keep + oracle_cell_at(step, i / full[2] / full[1], i / full[2] % full[1], i % full[2], 0);
        int from = rng_int(r, 0, c->s.n_k), to = rng_int(r, from, c->s.n_k);
        for (int j = 0; j < c->s.n_k; j++) {
            int attend = block ? j >= from && j < to : chance(r, percent);
            row[j] = (unsigned char)(!attend ? 0 : chance(r, 50) ? 1 : rng_int(r, 1, 255));
        }
    }
    return keep;
}

/* Tables that end inside a chunk, and tables as wide as all keys. Some have -inf at a few distances; in some the ends
   are 0 or -inf, so that keys farther away get nothing or are hidden. */
static void draw_rel_bias(rng *r, sdpa_case *c)
{
    attn_args *a = &c->a;
    const int holes = chance(r, 25), ends = chance(r, 50), hidden_ends = chance(r, 50);
    a->rel_extent = rng_int(r, 0, chance(r, 60) ? 40 : 300);
    const int width = 2 * a->rel_extent + 1;
    c->rel_size = (size_t)a->heads * (size_t)width;
    a->rel_bias = c->rel_bias = own_floats(c, c->rel_size);
    for (size_t i = 0; i < c->rel_size; i++)
        c->rel_bias[i] = holes && chance(r, 12) ? -INFINITY : rng_normal(r);
    for (int i = 0; i < 2 * a->heads && ends; i++)
        c->rel_bias[i / 2 * width + i % 2 * (width - 1)] = hidden_ends && chance(r, 50) ? -INFINITY : 0.0f;
}

static void draw_hiding(rng *r, sdpa_case *c)
{
    attn_args *a = &c->a;
    if (HAS(MASK)) a->mask = c->mask = draw_matrix(r, c, a->mask_shape, a->mask_stride, 1, &c->mask_size);
    if (HAS(BIAS)) a->bias = c->bias = draw_matrix(r, c, a->bias_shape, a->bias_stride, a->heads, &c->bias_size);
    if (HAS(KEEP)) a->keep = c->keep = draw_keep(r, c);
    if (HAS(ALIBI)) {
        a->alibi_slopes = c->alibi_slopes = own_floats(c, (size_t)a->heads);
        for (int h = 0; h < a->heads; h++)
            c->alibi_slopes[h] = chance(r, 10) ? 0.0f : ldexpf((float)rng_int(r, -20, 99) / 100.0f, -rng_int(r, 0, 8));
    }
    if (HAS(REL)) draw_rel_bias(r, c);
    if (HAS(SINKS)) {
        a->sinks = c->sinks = own_floats(c, (size_t)a->heads);
        for (int h = 0; h < a->heads; h++) c->sinks[h] = chance(r, 5) ? -INFINITY : 2.0f * rng_normal(r);
    }
    if (HAS(SCALE)) {
        a->scale = (0.1f + 0.01f * (float)rng_int(r, 0, 190)) / sqrtf((float)a->head_dim);
        if (chance(r, 10)) a->scale = -a->scale;
    }
    if (HAS(SOFTCAP)) a->softcap = chance(r, 30) ? 0.5f : 0.5f * (float)rng_int(r, 1, 60);
}

/* ---- outputs and how ------------------------------------------------------------------------------------- */

static void draw_outputs(rng *r, sdpa_case *c)
{
    static const int stages[] = {ATTN_PROBABILITIES, ATTN_SCORES_RAW, ATTN_SCORES_CAPPED, ATTN_SCORES_BIASED};
    static const int widths[] = {1, 2, 3, 7};
    attn_args *a = &c->a;
    size_t rows = (size_t)a->batch * (size_t)a->heads * (size_t)c->s.n_q;
    if (HAS(WEIGHTS)) {
        c->weights_size = rows * (size_t)c->s.n_k;
        a->weights = c->weights = own_floats(c, c->weights_size);
        a->weights_stage = chance(r, 40) ? ATTN_PROBABILITIES : stages[rng_int(r, 0, 3)];
    }
    if (HAS(LSE)) {
        c->lse_size = rows;
        a->lse = c->lse = own_floats(c, rows);
    }
    if (HAS(MASKED_ROWS)) a->masked_rows = c->masked_rows = (size_t *)case_own(c, sizeof(size_t));
    if (HAS(EXEC)) {
        c->exec = test_exec(widths[rng_int(r, 0, 3)]);
        a->exec = &c->exec;                                 /* case_run updates it when the case has been copied */
    }
    if (HAS(WORK)) c->work_shift = chance(r, 50) ? 0 : rng_int(r, 1, 63);
}

/* ---- the whole ------------------------------------------------------------------------------------------- */

void case_random_upto(rng *r, sdpa_case *c, double work)
{
    memset(c, 0, sizeof *c);
    c->seed = r->s;
    c->features = draw_features(r);
    draw_sizes(r, c, ldexp(work, -rng_int(r, 0, 4)));
    draw_existence(r, c);
    draw_strides(r, c);
    draw_positions(r, c);
    draw_tensors(r, c);
    draw_hiding(r, c);
    draw_outputs(r, c);
    c->s = oracle_shape_of(&c->a);
}

void case_random(rng *r, sdpa_case *c) { case_random_upto(r, c, 524288.0); }

void case_replay(sdpa_case *c, uint64_t seed)
{
    rng r;
    r.s = seed;
    case_random(&r, c);
}

void case_free(sdpa_case *c)
{
    if (test_note == c->text) test_note = NULL;
    for (int i = 0; i < c->n_owned; i++) guard_free(c->owned[i]);
    memset(c, 0, sizeof *c);
}

void case_wipe(sdpa_case *c)
{
    memset(c->out, 0xA5, c->out_size * sizeof(float));
    if (c->weights) memset(c->weights, 0xA5, c->weights_size * sizeof(float));
    if (c->lse) memset(c->lse, 0xA5, c->lse_size * sizeof(float));
    if (c->masked_rows) memset(c->masked_rows, 0xA5, sizeof(size_t));
}

/* Checks that elements of out outside of all rows still have the value that case_wipe wrote. */
static void check_gaps(sdpa_case *c)
{
    const attn_args *a = &c->a;
    const oracle_shape s = oracle_shape_of(a);
    if (a->out != c->out || c->out_size == 0) return;
    unsigned char *inside = (unsigned char *)calloc(c->out_size, 1);
    if (!inside) exit(3);
    for (int b = 0; b < s.batch; b++)
        for (int h = 0; h < s.heads; h++)
            for (int i = 0; i < (a->q_cum ? oracle_rows(a, b) : s.n_q); i++)
                memset(inside + oracle_out_at(a, &s, b, h, i), 1, (size_t)s.v_head_dim);
    size_t touched = 0;
    for (size_t i = 0; i < c->out_size; i++) touched += !inside[i] && float_bits(c->out[i]) != 0xA5A5A5A5u;
    CHECKF(touched == 0, "%lu floats between the rows of out were written; %s", (unsigned long)touched, case_text(c));
    free(inside);
}

attn_status case_run(sdpa_case *c, attn_backend backend)
{
    c->a.backend = backend;
    if (c->a.exec) c->a.exec = &c->exec;
    case_wipe(c);
    unsigned char *work = NULL;
    size_t size = 0, shift = (size_t)c->work_shift;
    if (HAS(WORK)) {
        size = attn_sdpa_workspace(&c->a);
        CHECKF(size != SIZE_MAX, "attn_sdpa_workspace refuses; %s", case_text(c));
        if (size == SIZE_MAX) return ATTN_E_SIZE;
        work = (unsigned char *)guard_alloc(size + shift);
        c->a.work = work;
        c->a.work_size = size;
    }
    test_note = case_text(c);
    attn_status status = attn_sdpa(&c->a);
    if (work) {
        size_t touched = 0;
        for (size_t i = size; i < size + shift; i++) touched += work[i] != 0xA5;
        CHECKF(touched == 0, "the workspace was left at its end; %s", case_text(c));
        guard_free(work);
        c->a.work = NULL;
        c->a.work_size = 0;
    }
    check_gaps(c);
    return status;
}

const char *case_text(sdpa_case *c)
{
    const attn_args *a = &c->a;
    int n =
        snprintf(c->text, sizeof c->text,
                 "case seed 0x%llx backend %s: batch %d heads %d/%d n_q %d n_k %d head_dim %d/%d q_pos %d window %d,%d "
                 "stage %d width %d;",
                 (unsigned long long)c->seed, attn_backend_name(a->backend), a->batch, c->s.heads, c->s.kv_heads,
                 c->s.n_q, c->s.n_k, c->s.head_dim, c->s.v_head_dim, a->q_pos, a->window_left, a->window_right,
                 a->weights_stage, a->exec ? a->exec->width : 0);
    for (int f = 0; f < CASE_FEATURE_COUNT; f++)
        if ((c->features >> f & 1) && n > 0 && (size_t)n < sizeof c->text)
            n += snprintf(c->text + n, sizeof c->text - (size_t)n, " %s", feature_names[f]);
    return c->text;
}

/* ---- pairs ----------------------------------------------------------------------------------------------- */

void case_pairs_add(case_pairs *p, const sdpa_case *c)
{
    for (int i = 0; i < CASE_FEATURE_COUNT; i++)
        for (int j = 0; j <= i; j++)
            if ((c->features >> i & 1) && (c->features >> j & 1)) p->met[i][j]++;
}

int case_pairs_print(const case_pairs *p, int table)
{
    int missing = 0;
    for (int i = 0; i < CASE_FEATURE_COUNT; i++) {
        if (table) printf("  %-20s", feature_names[i]);
        for (int j = 0; j <= i; j++) {
            if (i != j && !case_possible(i, j)) {
                if (table) printf("    -");
                continue;
            }
            if (table) printf(" %4ld", p->met[i][j]);
            if (p->met[i][j] == 0) {
                missing++;
                if (!table) printf("  never met: %s and %s\n", feature_names[i], feature_names[j]);
            }
        }
        if (table) printf("\n");
    }
    return missing;
}
