/* test_sparse.c: masks that hide most keys. The driver leaves out panels, chunks and bands of rows without a visible
 * key (section 8 of attn.h), and takes a few visible keys one by one; bits must be those of the scalar specification,
 * which tests every key. NaN and infinities are placed where no row, or not every row, sees them. */
#include "test.h"

enum { MOST_K = 400, MOST_Q = 130, MOST_CELLS = 2 * 4 * MOST_Q * MOST_K };
typedef struct sparse_world {
    attn_args a;
    attn_kv kv;
    int batch, heads, kv_heads, n_q, n_k, head_dim, v_head_dim;
    float *q, *k, *v, *out, *expected, *own, *weights;      /* own: expected of a backend without fma */
    float *mask, *bias;
    unsigned char *keep, *visible;        /* visible: [batch][heads][n_q][n_k], by arrays and positions */
    int starts[2], lengths[2];
    int few;                              /* few rows, up to 20 heads, single keys, many of them odd */
    char what[160];
} sparse_world;

static int pick(rng *r, const int *from, int n) { return from[rng_int(r, 0, n - 1)]; }

/* One matrix of cells: 1 visible. Kinds: panels of 16, chunks of 128, single keys, documents, a band, nothing, all but
 * one row, mixed rows. */
static void draw_cells(rng *r, int kind, unsigned char *cell, int rows, int n_k)
{
    const int document = rng_int(r, 5, 90), reach = rng_int(r, 1, 40), start = rng_int(r, 0, rows);
    int i, j;
    for (i = 0; i < rows; i++)
        for (j = 0; j < n_k; j++) {
            const int old = j > 0 ? cell[i * n_k + j - 1] : 0;
            int x = 0;
            switch (kind) {
            case 0: x = j % 16 ? old : rng_int(r, 0, 9) == 0; break;
            case 1: x = j % 128 ? old : rng_int(r, 0, 2) == 0; break;
            case 2: x = rng_int(r, 0, 60) == 0; break;
            case 3: x = i / document == j / document; break;
            case 4: x = j <= i + start && j > i + start - reach; break;
            case 5: x = 0; break;
            case 6: x = i == start; break;
            default: x = (i + start) % 3 == 0 ? 1 : rng_int(r, 0, 15) == 0; break;
            }
            cell[i * n_k + j] = (unsigned char)x;
        }
}

/* Draws one of the three arrays, with a shape that batch, heads and rows may share, and removes the hidden keys from
 * `visible`. */
static void draw_array(sparse_world *w, rng *r, int which)
{
    const int each = rng_int(r, 0, 1), by_head = rng_int(r, 0, 2) == 0, by_row = rng_int(r, 0, 3) > 0;
    const int shape[3] = { each ? w->batch : 1, by_head ? w->heads : 1, by_row ? w->n_q : 1 };
    const int kind = w->few ? 2 : rng_int(r, 0, 7), per = shape[2] * w->n_k, matrices = shape[0] * shape[1];
    unsigned char *cell = (unsigned char *)guard_alloc((size_t)matrices * (size_t)per);
    int m, b, h, i, j;
    for (m = 0; m < matrices; m++) draw_cells(r, kind, cell + m * per, shape[2], w->n_k);
    for (b = 0; b < w->batch; b++)
        for (h = 0; h < w->heads; h++)
            for (i = 0; i < w->n_q; i++)
                for (j = 0; j < w->n_k; j++) {
                    const int at = ((shape[0] > 1 ? b : 0) * shape[1] + (shape[1] > 1 ? h : 0)) * per +
                                   (shape[2] > 1 ? i : 0) * w->n_k + j;
                    if (!cell[at]) w->visible[((b * w->heads + h) * w->n_q + i) * w->n_k + j] = 0;
                }
    if (which == 0) {
        w->keep = cell;
        for (i = 0; i < matrices * per; i++) cell[i] = (unsigned char)(cell[i] ? rng_int(r, 1, 255) : 0);
        w->a.keep = cell;
        memcpy(w->a.keep_shape, shape, sizeof shape);
    } else {
        float *x = guard_floats((size_t)matrices * (size_t)per);
        for (i = 0; i < matrices * per; i++) x[i] = cell[i] ? rng_normal(r) : -INFINITY;
        guard_free(cell);
        if (which == 1) {
            w->a.mask = w->mask = x;
            memcpy(w->a.mask_shape, shape, sizeof shape);
        } else {
            w->a.bias = w->bias = x;
            memcpy(w->a.bias_shape, shape, sizeof shape);
        }
    }
    snprintf(w->what + strlen(w->what), sizeof w->what - strlen(w->what), ", %s kind %d of %d,%d,%d",
             which == 0 ? "keep" : which == 1 ? "mask" : "bias", kind, shape[0], shape[1], shape[2]);
}

/* Values that no row sees are arbitrary; a few infinities and NaN are placed where only some rows see them. */
static void plant(sparse_world *w, rng *r)
{
    const int group = w->heads / w->kv_heads, odd = rng_int(r, 0, 2);
    int b, g, h, i, j, x;
    for (b = 0; b < w->batch; b++)
        for (g = 0; g < w->kv_heads; g++)
            for (j = 0; j < w->n_k; j++) {
                float *k = w->k + (size_t)((b * w->n_k + j) * w->kv_heads + g) * (size_t)w->head_dim;
                float *v = w->v + (size_t)((b * w->n_k + j) * w->kv_heads + g) * (size_t)w->v_head_dim;
                int seen = 0;
                for (h = g * group; h < (g + 1) * group; h++)
                    for (i = 0; i < w->n_q; i++) seen |= w->visible[((b * w->heads + h) * w->n_q + i) * w->n_k + j];
                if (!seen) {
                    for (x = 0; x < w->head_dim; x++) k[x] = j % 2 ? NAN : INFINITY;
                    for (x = 0; x < w->v_head_dim; x++) v[x] = j % 3 ? NAN : -INFINITY;
                } else if (odd == 1 && rng_int(r, 0, w->few ? 3 : 40) == 0) {
                    v[rng_int(r, 0, w->v_head_dim - 1)] = j % 2 ? NAN : INFINITY;
                } else if (odd == 2 && rng_int(r, 0, 60) == 0) {
                    k[rng_int(r, 0, w->head_dim - 1)] = j % 2 ? NAN : -INFINITY;
                }
            }
}

static void draw_positions(sparse_world *w, rng *r)
{
    int b, h, i, j;
    w->a.causal = rng_int(r, 0, 2) ? ATTN_CAUSAL_NONE : ATTN_CAUSAL_TOP_LEFT;
    w->a.window_left = rng_int(r, 0, 2) ? 0 : pick(r, (const int[]){ 1, 2, 7, 30, 150 }, 5);
    w->a.window_right = rng_int(r, 0, 3) ? 0 : pick(r, (const int[]){ 1, 5, 100 }, 3);
    w->a.q_pos = rng_int(r, 0, 1) ? 0 : rng_int(r, -20, w->n_k);
    for (b = 0; b < 2; b++) {
        w->starts[b] = rng_int(r, 0, w->n_k / 2);
        w->lengths[b] = rng_int(r, w->n_k / 3, w->n_k / 2);
    }
    if (!w->a.kv && rng_int(r, 0, 3) == 0) w->a.k_starts = w->starts;
    if (rng_int(r, 0, 3) == 0) w->a.k_lengths = w->lengths;
    for (b = 0; b < w->batch; b++)
        for (h = 0; h < w->heads; h++)
            for (i = 0; i < w->n_q; i++)
                for (j = 0; j < w->n_k; j++) {
                    const int p = w->a.q_pos + i, start = w->a.k_starts ? w->starts[b] : 0;
                    if (j < start || (w->a.k_lengths && j >= start + w->lengths[b]) ||
                        (w->a.causal != ATTN_CAUSAL_NONE && j > p) ||
                        (w->a.window_left && j <= p - w->a.window_left) ||
                        (w->a.window_right && j >= p + w->a.window_right))
                        w->visible[((b * w->heads + h) * w->n_q + i) * w->n_k + j] = 0;
                }
}

static void sparse_open(sparse_world *w, rng *r, int few)
{
    size_t k_rows;
    int cached = rng_int(r, 0, 2) == 0, arrays = rng_int(r, 1, 7);
    memset(w, 0, sizeof *w);
    w->few = few;
    w->batch = rng_int(r, 1, 2);
    w->kv_heads = few ? pick(r, (const int[]){ 1, 3, 9, 20 }, 4) : rng_int(r, 1, 3);
    w->heads = w->kv_heads * pick(r, (const int[]){ 1, 1, 1, 2 }, 4);
    w->n_q = pick(r, (const int[]){ 1, 2, 3, 4, 5, 13, 42, 75, MOST_Q }, few ? 4 : 9);
    w->n_k = pick(r, (const int[]){ 3, 40, 128, 200, 300, MOST_K }, 6);
    w->head_dim = pick(r, (const int[]){ 1, 3, 8, 20 }, 4);
    w->v_head_dim = pick(r, (const int[]){ 1, 8, 16, 33 }, 4);
    if (w->n_q > 40 && w->heads > 3) w->heads = w->kv_heads;
    w->a = attn_args_for(w->batch, w->n_q, w->n_k, w->heads, w->head_dim);
    w->a.kv_heads = w->kv_heads;
    w->a.v_head_dim = w->v_head_dim;
    k_rows = (size_t)(w->batch * w->n_k * w->kv_heads);
    w->q = guard_floats((size_t)(w->batch * w->n_q * w->heads * w->head_dim));
    w->k = guard_floats(k_rows * (size_t)w->head_dim);
    w->v = guard_floats(k_rows * (size_t)w->v_head_dim);
    w->out = guard_floats((size_t)(w->batch * w->n_q * w->heads * w->v_head_dim));
    w->expected = guard_floats((size_t)(w->batch * w->n_q * w->heads * w->v_head_dim));
    w->own = guard_floats((size_t)(w->batch * w->n_q * w->heads * w->v_head_dim));
    w->weights = guard_floats((size_t)(w->batch * w->heads * w->n_q * w->n_k));
    w->visible = (unsigned char *)guard_alloc((size_t)(w->batch * w->heads * w->n_q * w->n_k));
    memset(w->visible, 1, (size_t)(w->batch * w->heads * w->n_q * w->n_k));
    rng_fill(r, w->q, (size_t)(w->batch * w->n_q * w->heads * w->head_dim));
    rng_fill(r, w->k, k_rows * (size_t)w->head_dim);
    rng_fill(r, w->v, k_rows * (size_t)w->v_head_dim);
    snprintf(w->what, sizeof w->what, "batch %d, %d x %d, %d on %d x %d/%d%s", w->batch, w->n_q, w->n_k, w->heads,
             w->kv_heads, w->head_dim, w->v_head_dim, cached ? ", cache" : "");
    if (cached) w->a.kv = &w->kv;
    draw_positions(w, r);
    for (int which = 0; which < 3; which++)
        if (arrays >> which & 1 && (which == 0 || rng_int(r, 0, 1))) draw_array(w, r, which);
    if (rng_int(r, 0, 5) == 0) w->a.softcap = 5;
    plant(w, r);
    w->a.q = w->q;
    w->a.k = cached ? NULL : w->k;
    w->a.v = cached ? NULL : w->v;
    if (cached) {
        attn_kv_args shape = { 0 };
        shape.batch = w->batch;
        shape.kv_heads = w->kv_heads;
        shape.head_dim = w->head_dim;
        shape.v_head_dim = w->v_head_dim;
        shape.capacity = w->n_k;
        shape.k_storage = shape.v_storage = (attn_storage)rng_int(r, 0, 3);
        CHECK(attn_kv_init(&w->kv, &shape) == ATTN_OK);
        CHECK(attn_kv_append(&w->kv, -1, w->k, w->v, w->n_k, 0) == ATTN_OK);
    }
}

static void sparse_close(sparse_world *w)
{
    attn_kv_free(&w->kv);
    guard_free(w->q);
    guard_free(w->k);
    guard_free(w->v);
    guard_free(w->out);
    guard_free(w->expected);
    guard_free(w->own);
    guard_free(w->weights);
    guard_free(w->visible);
    guard_free(w->keep);
    guard_free(w->mask);
    guard_free(w->bias);
}

/* The driver against the scalar specification; and against itself with nothing left out, because raw scores of hidden
 * keys are requested: this also tests backends without fma. */
static void same_as_all_keys(void)
{
    attn_backend list[16], one[16];
    const int n = test_all_backends(list, 16), ones = test_one_answer_backends(one, 16);
    int round, i;
    for (round = 0; round < 260 * test_scale && !test_failed(); round++) {
        const uint64_t seed = test_seed * 1000003u + (uint64_t)round;
        rng r = rng_make(seed);
        sparse_world w;
        size_t floats, emptied, empty = 0;
        int b, q, j;
        sparse_open(&w, &r, round % 3 == 0);
        floats = (size_t)(w.batch * w.n_q * w.heads * w.v_head_dim);
        for (b = 0; b < w.batch * w.heads; b++)
            for (q = 0; q < w.n_q; q++) {
                for (j = 0; j < w.n_k && !w.visible[(b * w.n_q + q) * w.n_k + j];) j++;
                empty += j == w.n_k;
            }
        w.a.out = w.expected;
        w.a.backend = ATTN_SCALAR;
        CHECKF(attn_sdpa(&w.a) == ATTN_OK, "scalar: %s", w.what);
        for (i = 0; i < n; i++) {
            int t, as_scalar = 0;
            for (t = 0; t < ones; t++) as_scalar |= one[t] == list[i];
            w.a.backend = list[i];
            if (!as_scalar) {
                w.a.weights = w.weights;
                w.a.weights_stage = ATTN_SCORES_RAW;
                w.a.out = w.own;
                CHECK(attn_sdpa(&w.a) == ATTN_OK);
                w.a.weights = NULL;
                w.a.weights_stage = ATTN_PROBABILITIES;
            }
            for (t = 1; t <= 3; t += 2) {
                attn_exec exec = test_exec(t);
                w.a.exec = t > 1 ? &exec : NULL;
                w.a.out = w.out;
                w.a.masked_rows = &emptied;
                CHECK(attn_sdpa(&w.a) == ATTN_OK);
                CHECKF(same_bits(w.out, as_scalar ? w.expected : w.own, floats), "%s, %d threads, seed %llu: %s",
                       attn_backend_name(list[i]), t, (unsigned long long)seed, w.what);
                CHECKF(emptied == empty, "%lu rows are empty, not %lu: %s", (unsigned long)empty,
                       (unsigned long)emptied, w.what);
            }
            w.a.exec = NULL;
            w.a.masked_rows = NULL;
        }
        sparse_close(&w);
    }
}

/* Cells of hidden keys keep their previous contents; the others have the bits of the specification. */
static void weights_of_sparse_rows(void)
{
    static const attn_stage stages[] = { ATTN_PROBABILITIES, ATTN_SCORES_BIASED };
    attn_backend list[16];
    const int n = test_one_answer_backends(list, 16);
    int round, i, s;
    for (round = 0; round < 60 * test_scale && !test_failed(); round++) {
        const uint64_t seed = test_seed * 2000003u + (uint64_t)round;
        rng r = rng_make(seed);
        sparse_world w;
        size_t cells;
        float *expected;
        sparse_open(&w, &r, round % 3 == 0);
        cells = (size_t)(w.batch * w.heads * w.n_q * w.n_k);
        expected = guard_floats(cells);
        w.a.out = w.out;
        for (s = 0; s < 2; s++) {
            w.a.weights_stage = stages[s];
            w.a.weights = expected;
            w.a.backend = ATTN_SCALAR;
            CHECKF(attn_sdpa(&w.a) == ATTN_OK, "%s: %s", refusal_text(), w.what);
            w.a.weights = w.weights;
            for (i = 0; i < n; i++) {
                w.a.backend = list[i];
                CHECK(attn_sdpa(&w.a) == ATTN_OK);
                CHECKF(same_bits(expected, w.weights, cells), "%s, seed %llu: %s", attn_backend_name(list[i]),
                       (unsigned long long)seed, w.what);
            }
        }
        guard_free(expected);
        sparse_close(&w);
    }
}

extern SUITE(sparse);
SUITE(sparse) = {
    {"all keys", same_as_all_keys, "a visible panel left out, its V never packed, a chain cut at a hole"},
    {"weights", weights_of_sparse_rows, "weights of a panel that was left out, or never written"},
    {0}};
