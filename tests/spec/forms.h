/* forms.h: the same call of attention in another form, which must give the same bits (tests/SPEC.md, section 12).
 * Included by vectors.c, whose cases are computed in the plain form. Random calls (random_calls.py) also have
 *
 *   form=NAME      a form of spec_forms below        piece=n    number of keys in one append
 *   backend=n      number n of those usable here     threads=n  an executor of this width
 *
 * A form writes out, lse and masked_rows of the plain call; the weights are those of the plain call, unless the form
 * can return them. */

/* An executor that runs its tasks in the wrong order, in this thread. */
static void spec_backwards(void *pool, int n, void (*task)(void *, int), void *arg)
{
    (void)pool;
    while (n-- > 0) task(arg, n);
}

static attn_exec spec_exec = { NULL, 1, spec_backwards };

/* The executor that the case has, or NULL. */
static const attn_exec *spec_executor(void)
{
    spec_exec.width = spec_int("threads", 0);
    return spec_exec.width > 0 ? &spec_exec : NULL;
}

/* Rows of an array [batch][rows][heads][dim] in another order, with a gap of NaN after each. Sets the strides. */
static float *spec_spread(const float *x, int batch, int rows, int heads, int dim, int heads_first, ptrdiff_t *stride)
{
    const int each = dim + 3;
    const size_t n = (size_t)(batch * rows * heads * each);
    float *to = spec_room(n);
    int b, i, h;
    stride[1] = (ptrdiff_t)each * (heads_first ? 1 : batch * heads);
    stride[2] = (ptrdiff_t)each * (heads_first ? rows : 1);
    stride[0] = (ptrdiff_t)each * heads * (heads_first ? rows : 1);
    memset(to, 0xFF, n * sizeof *to);
    for (b = 0; b < batch; b++)
        for (i = 0; i < rows; i++)
            for (h = 0; h < heads; h++)
                memcpy(to + b * stride[0] + i * stride[1] + h * stride[2],
                       x + (size_t)((b * rows + i) * heads + h) * (size_t)dim, (size_t)dim * sizeof *to);
    return to;
}

static void spec_gather(float *to, const float *x, int batch, int rows, int heads, int dim, const ptrdiff_t *stride)
{
    int b, i, h;
    for (b = 0; b < batch; b++)
        for (i = 0; i < rows; i++)
            for (h = 0; h < heads; h++)
                memcpy(to + (size_t)((b * rows + i) * heads + h) * (size_t)dim,
                       x + b * stride[0] + i * stride[1] + h * stride[2], (size_t)dim * sizeof *to);
}

/* Floats of a row of K and of V of all heads. */
static size_t spec_k_row(const attn_args *a) { return (size_t)(a->kv_heads * a->head_dim); }
static size_t spec_v_row(const attn_args *a) { return (size_t)(a->kv_heads * a->v_head_dim); }
static int spec_start(const attn_args *a, int b) { return a->k_starts ? a->k_starts[b] : 0; }
static int spec_keys(const attn_args *a, int b) { return a->k_lengths ? a->k_lengths[b] : a->n_k - spec_start(a, b); }
static int spec_rows(const attn_args *a, int b) { return a->q_lengths ? a->q_lengths[b] : a->n_q; }

/* ---- forms ----------------------------------------------------------------------------------- */

static void spec_plain(attn_args *a) { spec_ok(attn_sdpa(a)); }

/* Rows apart, [batch][head][row] or [row][batch][head]. */
static void spec_apart(attn_args *a, int heads_first)
{
    attn_args c = *a;
    const size_t n = (size_t)(a->batch * a->n_q * a->heads * a->v_head_dim);
    float *out;
    memset(a->out, 0, n * sizeof *out);
    c.q = spec_spread(a->q, a->batch, a->n_q, a->heads, a->head_dim, heads_first, c.q_stride);
    c.k = spec_spread(a->k, a->batch, a->n_k, a->kv_heads, a->head_dim, heads_first, c.k_stride);
    c.v = spec_spread(a->v, a->batch, a->n_k, a->kv_heads, a->v_head_dim, heads_first, c.v_stride);
    c.out = out = spec_spread(a->out, a->batch, a->n_q, a->heads, a->v_head_dim, heads_first, c.out_stride);
    c.layout = heads_first ? ATTN_BHSD : ATTN_BSHD;
    spec_ok(attn_sdpa(&c));
    spec_gather(a->out, out, a->batch, a->n_q, a->heads, a->v_head_dim, c.out_stride);
}

static void spec_heads_first(attn_args *a) { spec_apart(a, 1); }
static void spec_strides(attn_args *a) { spec_apart(a, 0); }

/* Keys of the entries in reverse order, found by k_map. */
static void spec_map(attn_args *a)
{
    const size_t k = spec_k_row(a) * (size_t)a->n_k, v = spec_v_row(a) * (size_t)a->n_k, batch = (size_t)a->batch;
    float *to_k = spec_room(k * batch), *to_v = spec_room(v * batch);
    int map[8], b;
    for (b = 0; b < a->batch; b++) {
        map[b] = a->batch - 1 - b;
        memcpy(to_k + k * (size_t)map[b], a->k + k * (size_t)b, k * sizeof *to_k);
        memcpy(to_v + v * (size_t)map[b], a->v + v * (size_t)b, v * sizeof *to_v);
    }
    a->k = to_k;  a->v = to_v;  a->k_map = map;
    spec_ok(attn_sdpa(a));
    a->k_map = NULL;
}

/* Entries one after the other, without the rows and keys that do not exist. */
static void spec_ragged(attn_args *a)
{
    const size_t q = (size_t)(a->heads * a->head_dim), o = (size_t)(a->heads * a->v_head_dim);
    const size_t n = (size_t)(a->batch * a->n_q) * o;
    attn_args c = *a;
    float *to_q = spec_room((size_t)(a->batch * a->n_q) * q), *to_o = spec_room(n);
    float *to_k = spec_room((size_t)(a->batch * a->n_k) * spec_k_row(a));
    float *to_v = spec_room((size_t)(a->batch * a->n_k) * spec_v_row(a));
    int q_cum[9] = { 0 }, k_cum[9] = { 0 }, b;
    for (b = 0; b < a->batch; b++) {
        const size_t rows = (size_t)spec_rows(a, b), keys = (size_t)spec_keys(a, b), i = (size_t)(b * a->n_q);
        const size_t j = (size_t)(b * a->n_k), i_to = (size_t)q_cum[b], j_to = (size_t)k_cum[b];
        memcpy(to_q + i_to * q, a->q + i * q, rows * q * sizeof *to_q);
        memcpy(to_k + j_to * spec_k_row(a), a->k + j * spec_k_row(a), keys * spec_k_row(a) * sizeof *to_k);
        memcpy(to_v + j_to * spec_v_row(a), a->v + j * spec_v_row(a), keys * spec_v_row(a) * sizeof *to_v);
        q_cum[b + 1] = q_cum[b] + (int)rows;
        k_cum[b + 1] = k_cum[b] + (int)keys;
    }
    c.q = to_q;  c.k = to_k;  c.v = to_v;  c.out = to_o;
    c.q_cum = q_cum;  c.k_cum = k_cum;  c.q_lengths = c.k_lengths = NULL;
    spec_ok(attn_sdpa(&c));
    memset(a->out, 0, n * sizeof *a->out);
    for (b = 0; b < a->batch; b++)
        memcpy(a->out + (size_t)(b * a->n_q) * o, to_o + (size_t)q_cum[b] * o,
               (size_t)(q_cum[b + 1] - q_cum[b]) * o * sizeof *to_o);
}

/* Appends n keys to entry b in pieces, then more keys that are truncated again. */
static void spec_append(attn_kv *c, const attn_args *a, int to, int b, int n)
{
    const size_t row = (size_t)(b * a->n_k);
    const float *v = c->shape.v_in_k ? NULL : a->v;
    const int most = spec_int("piece", 1 << 20);
    int j = 0, piece;
    for (; j < n; j += piece) {
        const size_t at = row + (size_t)j;
        piece = n - j < most ? n - j : most;
        spec_ok(attn_kv_append(c, to, a->k + at * spec_k_row(a), v ? v + at * spec_v_row(a) : NULL, piece, 0));
    }
    spec_ok(attn_kv_append(c, to, a->k + row * spec_k_row(a), v ? v + row * spec_v_row(a) : NULL,
                           a->n_k < 5 ? a->n_k : 5, 0));
    spec_ok(attn_kv_truncate(c, to, n));
}

static void spec_kv_open(attn_kv *c, const attn_args *a)
{
    attn_kv_args shape;
    memset(&shape, 0, sizeof shape);
    shape.batch = a->batch;  shape.kv_heads = a->kv_heads;
    shape.head_dim = a->head_dim;  shape.v_head_dim = a->v_head_dim;  shape.capacity = a->n_k + 6;
    shape.k_storage = (attn_storage)spec_int("k_storage", 0);
    shape.v_in_k = spec_int("v_in_k", 0);
    shape.v_storage = shape.v_in_k ? shape.k_storage : (attn_storage)spec_int("v_storage", 0);
    spec_ok(attn_kv_init(c, &shape));
}

/* From a cache, of which k_lengths selects a part. It may have forgotten keys, or have V inside K. */
static void spec_cache(attn_args *a)
{
    const int *forgotten = spec_list("forgotten");
    attn_kv c;
    int b;
    spec_kv_open(&c, a);
    for (b = 0; b < a->batch; b++) spec_append(&c, a, b, b, a->k_lengths ? a->n_k : spec_keys(a, b));
    if (forgotten) spec_ok(attn_kv_forget(&c, -1, forgotten[0], forgotten[1]));
    a->kv = &c;  a->k = a->v = NULL;
    spec_ok(attn_sdpa(a));
    attn_kv_free(&c);
}

/* Appended to other entries, then reordered, and the last one saved, dropped and loaded. */
static void spec_cache_moved(attn_args *a)
{
    attn_kv c;
    void *bytes;
    size_t n;
    int map[8], b;
    spec_kv_open(&c, a);
    for (b = 0; b < a->batch; b++) {
        map[b] = a->batch - 1 - b;
        spec_append(&c, a, map[b], b, spec_keys(a, b));
    }
    spec_ok(attn_kv_reorder(&c, map));
    n = attn_kv_saved(&c, a->batch - 1);
    bytes = spec_room(n / sizeof(float) + 1);
    spec_ok(attn_kv_save(&c, a->batch - 1, bytes, n));
    spec_ok(attn_kv_truncate(&c, a->batch - 1, 0));
    spec_ok(attn_kv_load(&c, a->batch - 1, bytes, n));
    a->kv = &c;  a->k = a->v = NULL;  a->k_lengths = NULL;
    spec_ok(attn_sdpa(a));
    attn_kv_free(&c);
}

/* The last n_q keys of each entry are appended by the step. */
static void spec_step(attn_args *a)
{
    attn_args c = *a;
    attn_kv kv;
    const int past = a->n_k - a->n_q;
    int b;
    spec_kv_open(&kv, a);
    for (b = 0; b < a->batch; b++) spec_append(&kv, a, b, b, past);
    c.k += (size_t)past * spec_k_row(a);  c.v += (size_t)past * spec_v_row(a);
    c.k_stride[0] = (ptrdiff_t)spec_k_row(a) * a->n_k;  c.v_stride[0] = (ptrdiff_t)spec_v_row(a) * a->n_k;
    spec_ok(attn_self_step(&kv, &c));
    attn_kv_free(&kv);
}

/* Bottom-right as positions of each entry, counted from key 0 and row 0. */
static void spec_positions(attn_args *a, int *each)
{
    int b;
    const int right = a->causal == ATTN_CAUSAL_BOTTOM_RIGHT || a->align == ATTN_ALIGN_BOTTOM_RIGHT;
    for (b = 0; b < a->batch; b++)
        each[b] = (a->q_pos_each ? a->q_pos_each[b] : 0) +
                  (right ? spec_start(a, b) + spec_keys(a, b) - spec_rows(a, b) : 0);
    if (a->causal) a->causal = ATTN_CAUSAL_TOP_LEFT;
    a->align = ATTN_ALIGN_TOP_LEFT;
    a->q_pos_each = each;
}

/* Row by row. */
static void spec_row_by_row(attn_args *a)
{
    const size_t heads = (size_t)(a->batch * a->heads), n_q = (size_t)a->n_q, n_k = (size_t)a->n_k;
    float *lse = spec_room(heads), *weights = spec_room(heads * n_k);
    size_t masked = 0, all = 0, h;
    int each[8], i, b;
    attn_args c = *a;
    spec_positions(&c, each);
    c.n_q = 1;  c.lse = lse;  c.masked_rows = &masked;
    if (a->weights) c.weights = weights;
    c.q_stride[0] = (ptrdiff_t)a->n_q * a->heads * a->head_dim;
    c.out_stride[0] = (ptrdiff_t)a->n_q * a->heads * a->v_head_dim;
    for (i = 0; i < a->n_q; i++) {
        int exists[8];
        c.q = a->q + (ptrdiff_t)i * a->heads * a->head_dim;
        c.out = a->out + (ptrdiff_t)i * a->heads * a->v_head_dim;
        c.q_pos = a->q_pos + i;
        for (b = 0; b < a->batch; b++) exists[b] = i < spec_rows(a, b);
        if (a->q_lengths) c.q_lengths = exists;
#define SPEC_ROW(x) \
        if (a->x) c.x = a->x + (a->x##_shape[2] > 1 ? i * a->n_k : 0); \
        c.x##_shape[2] = 1; \
        c.x##_stride[1] = a->x##_shape[2] * a->n_k; \
        c.x##_stride[0] = a->x##_shape[1] * c.x##_stride[1];
        SPEC_ROW(mask)
        SPEC_ROW(bias)
        SPEC_ROW(keep)
#undef SPEC_ROW
        spec_ok(attn_sdpa(&c));
        all += masked;
        for (h = 0; h < heads; h++) a->lse[h * n_q + (size_t)i] = lse[h];
        for (h = 0; a->weights && h < heads; h++)
            memcpy(a->weights + (h * n_q + (size_t)i) * n_k, weights + h * n_k, n_k * sizeof *weights);
    }
    *a->masked_rows = all;
}

/* Weights of every other head alone. */
static void spec_some_heads(attn_args *a)
{
    const size_t plane = (size_t)(a->n_q * a->n_k);
    float *some = spec_room(plane * (size_t)(a->batch * a->heads)), *all = a->weights;
    int list[16], n = 0, h, b;
    spec_ok(attn_sdpa(a));
    for (h = 0; h < a->heads; h += 2) list[n++] = h;
    a->weights = some;  a->weights_heads = list;  a->n_weights_heads = n;
    spec_ok(attn_sdpa(a));
    for (b = 0; all && b < a->batch; b++)
        for (h = 0; h < n; h++)
            memcpy(all + plane * (size_t)(b * a->heads + list[h]), some + plane * (size_t)(b * n + h), plane * sizeof *all);
}

/* In pieces of one chunk and then two, of which each leaves states to the next. */
static void spec_cuts(attn_args *a)
{
    attn_args c = *a;
    int each[8], from[8], keys[8], x = 0, n = 128, b;
    float *states = spec_room((size_t)(a->batch * a->heads * a->n_q) * ATTN_STATE(a->v_head_dim));
    spec_positions(&c, each);
    c.k_starts = from;  c.k_lengths = keys;  c.weights = c.lse = NULL;  c.masked_rows = NULL;
    c.sinks = NULL;  c.out = NULL;  c.carry_out = states;
    for (; x == 0 || x < a->n_k; x += n, n = 384 - n) {
        for (b = 0; b < a->batch; b++) {
            const int left = spec_keys(a, b) - x;
            keys[b] = left < 0 ? 0 : left < n ? left : n;
            from[b] = keys[b] ? spec_start(a, b) + x : 0;
        }
        spec_ok(attn_sdpa(&c));
        c.carry_in = states;
    }
    c = *a;
    c.n_k = 0;  c.k_starts = c.k_lengths = NULL;  c.carry_in = states;
    c.mask = c.bias = NULL;  c.keep = NULL;  c.weights = NULL;
    spec_ok(attn_sdpa(&c));
}

/* Each chunk separately, then a fold. */
static void spec_fold(attn_args *a)
{
    const size_t n = (size_t)(a->batch * a->heads * a->n_q) * ATTN_STATE(a->v_head_dim);
    attn_args c = *a;
    c.parts = a->n_k / 128 + 1;
    c.weights = c.lse = NULL;  c.masked_rows = NULL;  c.sinks = NULL;  c.out = NULL;
    c.carry_out = spec_room(n * (size_t)c.parts);
    spec_ok(attn_sdpa(&c));
    a->carry_out = spec_room(n);
    spec_ok(attn_fold(a, c.carry_out, c.parts));
    c = *a;
    c.n_k = 0;  c.k_starts = c.k_lengths = NULL;  c.carry_in = a->carry_out;  c.carry_out = NULL;
    c.mask = c.bias = NULL;  c.keep = NULL;  c.weights = NULL;
    spec_ok(attn_sdpa(&c));
}

/* causal, windows and lengths as a matrix of the builders; for calls that have no mask. */
static void spec_matrix(attn_args *a)
{
    const size_t n = (size_t)(a->n_q * a->n_k);
    float *m = spec_room(n * (size_t)a->batch), *by = spec_room(n);
    int each[8], b;
    spec_positions(a, each);
    for (b = 0; b < a->batch; b++) {
        const int pos = a->q_pos + each[b], keys = spec_keys(a, b);
        float *cells = m + n * (size_t)b;
        spec_ok(attn_mask_lengths(cells, &keys, 1, a->n_q, a->n_k));
        if (a->causal) {
            spec_ok(attn_mask_causal(by, a->n_q, a->n_k, pos));
            spec_ok(attn_mask_merge(cells, 1, by, 1, a->n_q, a->n_k));
        }
        spec_ok(attn_mask_window(by, a->n_q, a->n_k, a->window_left, a->window_right, pos));
        spec_ok(attn_mask_merge(cells, 1, by, 1, a->n_q, a->n_k));
    }
    a->mask = m;
    a->mask_shape[0] = a->batch;  a->mask_shape[1] = 1;  a->mask_shape[2] = a->n_q;
    a->causal = ATTN_CAUSAL_NONE;  a->window_left = a->window_right = 0;  a->k_lengths = NULL;
    spec_ok(attn_sdpa(a));
}

static const struct { const char *name; void (*run)(attn_args *); int weights; } spec_forms[] = {
    { "plain", spec_plain, 1 }, { "heads_first", spec_heads_first, 1 }, { "strides", spec_strides, 1 },
    { "map", spec_map, 1 }, { "ragged", spec_ragged, 1 }, { "cache", spec_cache, 1 },
    { "cache_moved", spec_cache_moved, 1 }, { "step", spec_step, 1 }, { "rows", spec_row_by_row, 1 },
    { "some_heads", spec_some_heads, 1 },
    { "cuts", spec_cuts, 0 }, { "fold", spec_fold, 0 }, { "matrix", spec_matrix, 0 }
};
enum { SPEC_FORMS = sizeof spec_forms / sizeof *spec_forms };

/* Only caches store 8 bits. */
static int spec_eight(void)
{
    return spec_int("k_storage", 0) == ATTN_Q8 || spec_int("v_storage", 0) == ATTN_Q8;
}

/* Runs the call in the form of the case. The arguments may have changed afterwards. */
static void spec_call(attn_args *a)
{
    const char *name = spec_find("form");
    size_t n;
    int i = 0;
    a->exec = spec_executor();
    if (!name && (spec_find("forgotten") || spec_find("v_in_k") || spec_eight())) name = "cache";
    if (!name) {
        spec_ok(attn_sdpa(a));
        return;
    }
    n = strcspn(name, " ");
    while (i < SPEC_FORMS && (strlen(spec_forms[i].name) != n || strncmp(spec_forms[i].name, name, n))) i++;
    if (i == SPEC_FORMS) exit(2);
    if (!spec_forms[i].weights && a->weights) {
        spec_ok(attn_sdpa(a));
        a->weights = NULL;
    }
    spec_forms[i].run(a);
}
