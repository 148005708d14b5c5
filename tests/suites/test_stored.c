/* test_stored.c: a cache in 16 bits, K and V each in a separate storage, against a cache of floats filled with the
 * rounded values: every operation leaves the same bits. */
#include "test.h"

enum { MOST_ROWS = 70 };

/* Of 8 bits, `floats` has the values before they are rounded. */
typedef struct pair { attn_kv stored, floats; attn_kv_args shape; float *k, *v; size_t k_row, v_row; } pair;

static float *room(size_t n)
{
    float *p = malloc((n + 1) * sizeof(float));
    if (!p) abort();
    return p;
}

static void pair_make(pair *p, rng *r, int eight)
{
    static const int dims[] = {1, 3, 8, 15, 16, 17, 32, 40, 64, 520};
    static const int capacity[] = {7, 16, 100, 128, 129, 300, 520};
    attn_kv_args a = {0};
    a.batch = rng_int(r, 1, 3);
    a.kv_heads = rng_int(r, 1, 3);
    a.head_dim = dims[rng_int(r, 0, rng_int(r, 0, 5) ? 8 : 9)];
    a.v_head_dim = rng_int(r, 0, 1) ? dims[rng_int(r, 0, 8)] : 0;
    a.capacity = capacity[rng_int(r, 0, 6)];
    a.k_storage = a.v_storage = (attn_storage)rng_int(r, 1, 2);
    /* many narrow heads: a block has more rows than a band */
    if (rng_int(r, 0, 3) == 0) {
        a.kv_heads = rng_int(r, 4, 40);
        a.head_dim = rng_int(r, 1, 8);
        a.v_head_dim = 0;
    }
    if (rng_int(r, 0, 2) == 0) a.k_storage = (attn_storage)rng_int(r, 0, 2);
    if (rng_int(r, 0, 2) == 0) a.v_storage = (attn_storage)rng_int(r, 0, 2);
    if (rng_int(r, 0, 2) == 0) {
        a.v_in_k = 1;
        a.k_storage = a.v_storage = (attn_storage)rng_int(r, 0, 2);
        if (a.v_head_dim > a.head_dim) a.v_head_dim = rng_int(r, 1, a.head_dim);
    }
    if (eight && (a.v_in_k || rng_int(r, 0, 3))) a.k_storage = ATTN_Q8;
    if (eight && (a.k_storage != ATTN_Q8 || a.v_in_k || rng_int(r, 0, 2))) a.v_storage = ATTN_Q8;
    p->shape = a;
    CHECK(attn_kv_init(&p->stored, &a) == ATTN_OK);
    p->shape = p->stored.shape;
    a.k_storage = a.v_storage = ATTN_F32;
    a.v_in_k = 0;
    CHECK(attn_kv_init(&p->floats, &a) == ATTN_OK);
    p->k_row = (size_t)a.kv_heads * (size_t)a.head_dim;
    p->v_row = (size_t)a.kv_heads * (size_t)p->stored.shape.v_head_dim;
    p->k = room((size_t)a.batch * MOST_ROWS * p->k_row);
    p->v = room((size_t)a.batch * MOST_ROWS * p->v_row);
}

static void pair_free(pair *p)
{
    attn_kv_free(&p->stored);
    attn_kv_free(&p->floats);
    free(p->k); free(p->v);
}

static void fill_wild(rng *r, float *x, size_t n, int wild)
{
    static const float odd[] = {65504.0f, 65520.0f, 1e-7f, -6e-8f, 0.0f, -0.0f, 1e38f, 3e-41f};
    rng_fill(r, x, n);
    for (size_t i = 0; wild && i < n; i++)
        if (rng_int(r, 0, 40) == 0) x[i] = odd[rng_int(r, 0, 7)];
        else if (rng_int(r, 0, 400) == 0) x[i] = rng_int(r, 0, 1) ? bits_float(0x7F800000u) : bits_float(0x7FC12345u);
}

/* The rounded values of rows, as floats. */
static void round_all(float *x, size_t n, int row, attn_storage storage)
{
    void *narrow = malloc(attn_stored_bytes((size_t)row, storage));
    if (!narrow) abort();
    for (size_t i = 0; i < n; i += (size_t)row) {
        CHECK(attn_narrow(narrow, x + i, (size_t)row, storage) == ATTN_OK);
        CHECK(attn_widen(x + i, narrow, (size_t)row, storage) == ATTN_OK);
    }
    free(narrow);
}

/* V of n rows is the front of K, head by head. */
static void fronts(pair *p, size_t n)
{
    const size_t k_dim = (size_t)p->shape.head_dim, v_dim = (size_t)p->shape.v_head_dim;
    for (size_t i = 0; i < n * (size_t)p->shape.kv_heads; i++)
        memcpy(p->v + i * v_dim, p->k + i * k_dim, v_dim * sizeof *p->v);
}

static void pair_append(pair *p, rng *r, int wild)
{
    const int batch = p->shape.batch;
    int n = rng_int(r, 0, 3) ? rng_int(r, 1, 5) : rng_int(r, 1, MOST_ROWS), counts[3], b;
    const size_t ks = (size_t)batch * (size_t)n * p->k_row, vs = (size_t)batch * (size_t)n * p->v_row;
    for (b = 0; b < batch; b++) counts[b] = rng_int(r, 0, n);
    fill_wild(r, p->k, ks, p->shape.v_in_k && wild && rng_int(r, 0, 3) == 0);
    fill_wild(r, p->v, vs, wild);
    const attn_status status = append_counts(&p->stored, p->k, p->shape.v_in_k ? NULL : p->v, n, counts, 0);
    if (p->shape.k_storage != ATTN_Q8) round_all(p->k, ks, p->shape.head_dim, p->shape.k_storage);
    if (p->shape.v_in_k) fronts(p, (size_t)batch * (size_t)n);
    else if (p->shape.v_storage != ATTN_Q8) round_all(p->v, vs, p->shape.v_head_dim, p->shape.v_storage);
    CHECK(append_counts(&p->floats, p->k, p->v, n, counts, 0) == status);
}

static void pair_operate(pair *p, rng *r, int what, int wild)
{
    const int b = rng_int(r, 0, p->shape.batch - 1), other = rng_int(r, 0, p->shape.batch - 1);
    const int length = rng_int(r, 0, p->floats.lengths[b]);
    if (what < 5) pair_append(p, r, wild);
    else if (what == 5) CHECK(attn_kv_truncate(&p->stored, b, length) == attn_kv_truncate(&p->floats, b, length));
    else if (what == 6) CHECK(attn_kv_copy(&p->stored, other, b, length) == attn_kv_copy(&p->floats, other, b, length));
    else if (what == 7) {
        const int pinned = rng_int(r, 0, length);
        CHECK(attn_kv_forget(&p->stored, b, pinned, length) == attn_kv_forget(&p->floats, b, pinned, length));
    } else if (what == 8) {
        int rows[64], n = 0;
        for (int j = length; j < p->floats.lengths[b] && n < 64; j++) if (rng_int(r, 0, 1)) rows[n++] = j;
        CHECK(attn_kv_keep(&p->stored, b, length, rows, n) == attn_kv_keep(&p->floats, b, length, rows, n));
    } else {
        int map[3];
        for (int i = 0; i < 3; i++) map[i] = rng_int(r, 0, p->shape.batch - 1);
        CHECK(attn_kv_reorder(&p->stored, map) == ATTN_OK && attn_kv_reorder(&p->floats, map) == ATTN_OK);
    }
}

/* Attention over both, with all optional outputs. */
static int same_attention(pair *p, rng *r, char *words, size_t size)
{
    static const int rows[] = {1, 1, 2, 3, 4, 5, 7, 16, 41, 60};
    attn_backend backends[16];
    const int n_backends = test_all_backends(backends, 16), batch = p->shape.batch;
    attn_exec exec = test_exec(rng_int(r, 1, 4));
    attn_args a = {0};
    int longest = 0, same;
    size_t masked[2] = {0, 0};
    for (int b = 0; b < batch; b++) if (p->floats.lengths[b] > longest) longest = p->floats.lengths[b];
    a.batch = batch;
    a.n_q = rows[rng_int(r, 0, 9)];
    a.heads = p->shape.kv_heads * rng_int(r, 1, 5);
    a.causal = rng_int(r, 0, 1) ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
    a.window_left = rng_int(r, 0, 2) ? 0 : rng_int(r, 1, 200);
    a.backend = backends[rng_int(r, 0, n_backends - 1)];
    if (a.backend == ATTN_SCALAR && a.n_q > 7) a.n_q = 7;   /* slow, and one row at a time */
    a.exec = rng_int(r, 0, 1) ? &exec : NULL;
    a.weights_stage = (attn_stage)rng_int(r, 0, 3);
    const size_t all = (size_t)batch * (size_t)a.n_q * (size_t)a.heads;
    const size_t n_out = all * (size_t)p->stored.shape.v_head_dim, n_w = all * (size_t)longest;
    float *q = room(all * (size_t)p->shape.head_dim), *out = room(2 * n_out), *w = room(2 * n_w), *lse = room(2 * all);
    unsigned char *keep = malloc((size_t)longest + 1);
    if (!keep) abort();
    rng_fill(r, q, all * (size_t)p->shape.head_dim);
    for (int j = 0; j < longest; j++) keep[j] = (unsigned char)(rng_int(r, 0, 3) > 0);
    if (rng_int(r, 0, 1)) { a.keep = keep; a.keep_shape[0] = a.keep_shape[1] = a.keep_shape[2] = 1; }
    memset(out, 0, 2 * n_out * sizeof(float));
    memset(w, 0, 2 * n_w * sizeof(float));
    a.q = q;
    for (int i = 0; i < 2; i++) {
        a.kv = i ? &p->floats : &p->stored;
        a.out = out + (size_t)i * n_out;
        a.weights = longest > 0 && rng_int(r, 0, 1) ? w + (size_t)i * n_w : NULL;
        if (i) a.weights = w != NULL && a.weights ? w + n_w : NULL;
        a.lse = lse + (size_t)i * all;
        a.masked_rows = &masked[i];
        CHECK(attn_sdpa(&a) == ATTN_OK);
    }
    same = same_bits(out, out + n_out, n_out) && same_bits(lse, lse + all, all) && masked[0] == masked[1];
    (void)snprintf(words, size, "%d rows, %d heads, backend %s, causal %d, window %d, %s", a.n_q, a.heads,
                   attn_backend_name(a.backend), a.causal, a.window_left, a.keep ? "keep" : "no keep");
    free(q); free(out); free(w); free(lse); free(keep);
    return same;
}

static int same_inside(pair *p)
{
    int same = memcmp(p->stored.lengths, p->floats.lengths, (size_t)p->shape.batch * sizeof(int)) == 0;
    for (int b = 0; b < p->shape.batch; b++)
        for (int j = 0; j < p->floats.lengths[b]; j++) {
            const attn_status status = attn_kv_read(&p->floats, b, j, 1, p->k, p->v);
            CHECK(attn_kv_read(&p->stored, b, j, 1, p->k + p->k_row, p->v + p->v_row) == status);
            if (status == ATTN_OK)
                same = same && same_bits(p->k, p->k + p->k_row, p->k_row) &&
                       same_bits(p->v, p->v + p->v_row, p->v_row);
        }
    return same;
}

static void histories(void)
{
    rng seeds = rng_make(test_seed);
    for (int i = 0; i < 60 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int wild = rng_int(&r, 0, 2) == 0;
        pair p;
        char words[200];
        pair_make(&p, &r, 0);
        for (int op = 0; op < 20 && !test_failed(); op++) {
            const int what = rng_int(&r, 0, 9);
            pair_operate(&p, &r, what, wild);
            CHECKF(same_inside(&p), "seed %llu op %d (kind %d): rows read back differ", seed, op, what);
            CHECKF(same_attention(&p, &r, words, sizeof words),
                   "seed %llu op %d (kind %d): storage %d/%d%s, batch %d, %d heads, head_dim %d/%d, capacity %d: %s",
                   seed, op, what, p.shape.k_storage, p.shape.v_storage, p.shape.v_in_k ? " in K" : "",
                   p.shape.batch, p.shape.kv_heads,
                   p.shape.head_dim, p.shape.v_head_dim, p.shape.capacity, words);
        }
        pair_free(&p);
    }
}

/* Saved in half the bytes; loaded unchanged; a cache of other storage rejects them. */
static void saved(void)
{
    rng r = rng_make(test_seed + 1);
    for (int i = 0; i < 30; i++) {
        pair p;
        attn_kv other;
        attn_kv_args a;
        pair_make(&p, &r, i % 2);
        for (int op = 0; op < 4; op++) pair_append(&p, &r, 1);
        for (int b = 0; b < p.shape.batch; b++) {
            const size_t size = attn_kv_saved(&p.stored, b), wide = attn_kv_saved(&p.floats, b);
            unsigned char *bytes = malloc(size), *again = malloc(size);
            if (!bytes || !again) abort();
            const size_t row = (size_t)p.shape.kv_heads *
                (attn_stored_bytes((size_t)p.shape.head_dim, p.shape.k_storage) +
                 (p.shape.v_in_k ? 0 : attn_stored_bytes((size_t)p.shape.v_head_dim, p.shape.v_storage)));
            const size_t keys = (wide - 64) / ((p.k_row + p.v_row) * sizeof(float));
            CHECK(size == 64 + (keys * row + 3) / 4 * 4);
            CHECK(attn_kv_save(&p.stored, b, bytes, size) == ATTN_OK);
            if (p.shape.k_storage)
                REFUSED(attn_kv_load(&p.floats, b, bytes, size), ATTN_E_SIZE, "attn_kv_load: k_storage is ");
            else if (p.shape.v_storage)
                REFUSED(attn_kv_load(&p.floats, b, bytes, size), ATTN_E_SIZE, "attn_kv_load: v_storage is ");
            else if (p.shape.v_in_k)
                REFUSED(attn_kv_load(&p.floats, b, bytes, size), ATTN_E_SIZE,
                        "attn_kv_load: v_in_k is 1 in the bytes but 0 in the cache");
            a = p.shape;
            a.capacity = p.stored.lengths[b] > 0 ? p.stored.lengths[b] : 1;
            CHECK(attn_kv_init(&other, &a) == ATTN_OK && attn_kv_load(&other, b, bytes, size) == ATTN_OK);
            CHECK(attn_kv_saved(&other, b) == size && attn_kv_save(&other, b, again, size) == ATTN_OK);
            CHECK(memcmp(bytes, again, size) == 0);
            attn_kv_free(&other);
            free(bytes); free(again);
        }
        pair_free(&p);
    }
}

static void refused(void)
{
    attn_kv_args a = {0};
    attn_kv c;
    a.batch = a.kv_heads = a.head_dim = a.capacity = 1;
    a.k_storage = (attn_storage)4;
    REFUSED(attn_kv_init(&c, &a), ATTN_E_OPTION, "attn_kv_init: k_storage is 4 but its values are 0..3");
    REFUSED_SIZE(attn_kv_size(&a), ATTN_E_OPTION, "attn_kv_size: k_storage is 4");
    a.k_storage = (attn_storage)-1;
    REFUSED(attn_kv_init(&c, &a), ATTN_E_OPTION, "attn_kv_init: k_storage is -1 but its values are 0..3");
    a.k_storage = ATTN_F16;
    a.v_storage = (attn_storage)4;
    REFUSED(attn_kv_init(&c, &a), ATTN_E_OPTION, "attn_kv_init: v_storage is 4 but its values are 0..3");
    a.k_storage = a.v_storage = ATTN_BF16;
    a.head_dim = 64;
    a.capacity = 1280;
    const size_t narrow = attn_kv_size(&a);
    a.k_storage = a.v_storage = ATTN_F32;
    CHECK(narrow * 2 > attn_kv_size(&a) && narrow * 2 < attn_kv_size(&a) + 1024);
}

/* The same call over two caches, n numbers each: the same bits? */
static int same_over(attn_args *a, const attn_kv *x, float *from_x, const attn_kv *y, float *from_y, size_t n)
{
    a->kv = x;
    a->out = from_x;
    CHECK(attn_sdpa(a) == ATTN_OK);
    a->kv = y;
    a->out = from_y;
    CHECK(attn_sdpa(a) == ATTN_OK);
    return same_bits(from_x, from_y, n);
}

/* One side as floats and the other not, over rows in place, widened, and packed. */
static void one_side(void)
{
    enum { N = 300, DIM = 24, V_DIM = 20, ROWS = 60 };
    static const attn_storage side[][2] = {{ATTN_F32, ATTN_F16}, {ATTN_BF16, ATTN_F32}, {ATTN_F32, ATTN_BF16},
                                           {ATTN_F16, ATTN_F32}};
    static const int rows[] = {1, 2, 3, 16, 17, 41, ROWS};
    attn_backend backends[16];
    const int n_backends = attn_backends(backends, 16);
    rng r = rng_make(test_seed);
    float *k = room(N * DIM), *v = room(N * V_DIM), *q = room(ROWS * DIM);
    float *got = room(ROWS * V_DIM), *want = room(ROWS * V_DIM);
    for (size_t i = 0; i < sizeof side / sizeof *side; i++) {
        attn_kv_args shape = {.batch = 1, .kv_heads = 1, .head_dim = DIM, .v_head_dim = V_DIM, .capacity = N};
        attn_kv stored, floats;
        CHECK(attn_kv_init(&floats, &shape) == ATTN_OK);
        shape.k_storage = side[i][0];
        shape.v_storage = side[i][1];
        CHECK(attn_kv_init(&stored, &shape) == ATTN_OK);
        rng_fill(&r, k, N * DIM);
        rng_fill(&r, v, N * V_DIM);
        rng_fill(&r, q, ROWS * DIM);
        CHECK(attn_kv_append(&stored, -1, k, v, N, 0) == ATTN_OK);
        CHECK(attn_kv_read(&stored, 0, 0, N, k, v) == ATTN_OK);
        CHECK(attn_kv_append(&floats, -1, k, v, N, 0) == ATTN_OK);
        for (size_t x = 0; x < sizeof rows / sizeof *rows; x++)
            for (int turn = 0; turn < 2 * n_backends; turn++) {
                const int causal = turn & 1;
                attn_args a = attn_args_for(1, rows[x], 0, 1, DIM);
                a.backend = backends[turn / 2];
                a.q = q;
                a.v_head_dim = V_DIM;
                a.causal = causal ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
                CHECKF(same_over(&a, &stored, got, &floats, want, (size_t)rows[x] * V_DIM),
                       "storage %d and %d, %d rows, causal %d", (int)side[i][0], (int)side[i][1], rows[x], causal);
            }
        attn_kv_free(&stored);
        attn_kv_free(&floats);
    }
    free(k); free(v); free(q); free(got); free(want);
}

/* DeepSeek's shape: rows of 576, values 512 of them, against an ordinary cache, in each storage. */
static void v_in_k(void)
{
    enum { N = 300, DIM = 576, V_DIM = 512, HEADS = 64 };
    static const int heads[] = {1, 4, 5, 16, 41, HEADS};
    rng r = rng_make(test_seed);
    float *k = room(N * DIM), *v = room(N * V_DIM), *q = room(HEADS * DIM);
    float *got = room(HEADS * V_DIM), *want = room(HEADS * V_DIM);
    rng_fill(&r, k, N * DIM);
    rng_fill(&r, q, HEADS * DIM);
    for (int i = 0; i < N; i++) k[i * DIM] = 9.0f;        /* in 8 bits: the scale of a key is that of its front */
    for (int i = 0; i < N; i++) memcpy(v + i * V_DIM, k + i * DIM, V_DIM * sizeof *v);
    for (int storage = 0; storage < 4; storage++) {
        attn_kv_args shape = {.batch = 1, .kv_heads = 1, .head_dim = DIM, .v_head_dim = V_DIM, .capacity = N};
        attn_kv two, one;
        shape.k_storage = shape.v_storage = (attn_storage)storage;
        CHECK(attn_kv_init(&two, &shape) == ATTN_OK);
        shape.v_in_k = 1;
        CHECK(attn_kv_init(&one, &shape) == ATTN_OK);
        const attn_storage format = (attn_storage)storage;
        const size_t both = attn_stored_bytes(DIM, format) + attn_stored_bytes(V_DIM, format);
        CHECK(one.page_size * both == two.page_size * attn_stored_bytes(DIM, (attn_storage)storage));
        CHECK(attn_kv_append(&two, -1, k, v, N, 0) == ATTN_OK);
        CHECK(attn_kv_append(&one, -1, k, NULL, N, 0) == ATTN_OK);
        for (size_t x = 0; x < sizeof heads / sizeof *heads; x++) {
            attn_args a = attn_args_for(1, 1, 0, heads[x], DIM);
            a.kv_heads = 1;
            a.v_head_dim = V_DIM;
            a.q = q;
            CHECKF(same_over(&a, &one, got, &two, want, (size_t)heads[x] * V_DIM), "storage %d, %d heads", storage,
                   heads[x]);
        }
        attn_kv_free(&one);
        attn_kv_free(&two);
    }
    free(k); free(v); free(q); free(got); free(want);
}

/* Many narrow K/V heads: blocks with more rows than a band. K that is read in place has no room in
 * the work memory; an earlier version packed it anyway, and wrote past its end. */
static void many_heads(void)
{
    enum { MOST = 40, DIM = 8, N = 128, ROWS = 5 };
    static const int heads[] = {12, 13, 16, 24, 25, 32, 33, MOST};
    rng r = rng_make(test_seed);
    float *k = room(N * MOST * DIM), *q = room(ROWS * MOST * DIM);
    float *got = room(ROWS * MOST * DIM), *want = room(ROWS * MOST * DIM);
    rng_fill(&r, k, N * MOST * DIM);
    rng_fill(&r, q, ROWS * MOST * DIM);
    for (int storage = 0; storage < 4; storage++)
        for (int dim = 1; dim <= DIM; dim++)
            for (size_t x = 0; x < sizeof heads / sizeof *heads; x++) {
                attn_kv_args shape = {.batch = 1, .kv_heads = heads[x], .head_dim = dim, .capacity = N, .v_in_k = 1};
                attn_kv one, two;
                shape.k_storage = shape.v_storage = (attn_storage)storage;
                CHECK(attn_kv_init(&one, &shape) == ATTN_OK && attn_kv_append(&one, -1, k, NULL, N, 0) == ATTN_OK);
                shape.v_in_k = 0;
                CHECK(attn_kv_init(&two, &shape) == ATTN_OK && attn_kv_append(&two, -1, k, k, N, 0) == ATTN_OK);
                for (int rows = 1; rows <= ROWS; rows++) {
                    attn_args a = attn_args_for(1, rows, 0, heads[x], dim);
                    a.q = q;
                    CHECKF(same_over(&a, &one, got, &two, want, (size_t)(rows * heads[x] * dim)),
                           "storage %d, head_dim %d, %d heads, %d rows", storage, dim, heads[x], rows);
                }
                attn_kv_free(&one);
                attn_kv_free(&two);
            }
    free(k); free(q); free(got); free(want);
}

static void v_in_k_refused(void)
{
    attn_kv_args s = {.batch = 1, .kv_heads = 1, .head_dim = 48, .v_head_dim = 33, .capacity = 4, .v_in_k = 2};
    float rows[96] = {0}, out[96];
    attn_args a = attn_args_for(1, 1, 0, 1, 48);
    attn_kv c;
    REFUSED(attn_kv_init(&c, &s), ATTN_E_OPTION, "attn_kv_init: v_in_k is 2 but its values are 0..1");
    s.v_in_k = 1;
    s.v_head_dim = 49;
    REFUSED(attn_kv_init(&c, &s), ATTN_E_SIZE, "attn_kv_init: v_head_dim is 49 but head_dim is 48: with v_in_k it");
    REFUSED_SIZE(attn_kv_size(&s), ATTN_E_SIZE, "attn_kv_size: v_head_dim is 49 but head_dim is 48");
    s.v_head_dim = 33;
    s.k_storage = ATTN_F16;
    REFUSED(attn_kv_init(&c, &s), ATTN_E_CONFLICT, "v_storage is 0 but k_storage is 1: with v_in_k they are the same");
    s.v_storage = ATTN_F16;
    s.v_head_dim = 48;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    REFUSED(attn_kv_append(&c, -1, rows, rows, 1, 0), ATTN_E_CONFLICT,
            "attn_kv_append: v is set, but c has v_in_k: its values are the front of k");
    REFUSED(attn_kv_append(&c, -1, NULL, NULL, 1, 0), ATTN_E_NULL, "k is NULL");
    a.q = a.k = a.v = rows;
    a.out = out;
    REFUSED(attn_self_step(&c, &a), ATTN_E_CONFLICT, "attn_self_step: v is set, but c has v_in_k");
    REFUSED(attn_kv_append(&c, 0, NULL, a.v, 0, 0), ATTN_E_CONFLICT, "attn_kv_append: v is set, but c has v_in_k");
    a.v = NULL;
    for (int d = 0; d < 3; d++) {
        a.v_stride[d] = 48;
        REFUSED(attn_self_step(&c, &a), ATTN_E_CONFLICT, "attn_self_step: v_stride is set, but c has v_in_k");
        a.v_stride[d] = 0;
    }
    CHECK(c.lengths[0] == 0);
    CHECK(attn_self_step(&c, &a) == ATTN_OK && c.lengths[0] == 1);
    attn_kv_free(&c);
}

/* ---- 8 bits ---------------------------------------------------------------------------------- */
/* The definition in double: integers, and the scale of a row. */
static float eight_row(const float *x, int n, int *to)
{
    float most = 0;
    int odd = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i])) odd = 1;
        if (fabsf(x[i]) > most) most = fabsf(x[i]);
    }
    const int none = odd || (double)most < ldexp(1, -119);
    const float by = none ? 0 : 127 / most;
    for (int i = 0; i < n; i++) {         /* to nearest even, without a rounding mode */
        const double y = none ? 0 : (double)x[i] * (double)by, down = floor(y), rest = y - down;
        to[i] = (int)down + (rest > 0.5 || (rest == 0.5 && fmod(down, 2) != 0));
    }
    return odd ? NAN : none ? 0 : most / 127;
}

/* One row through attn_narrow, attn_widen and a cache, against the definition. */
static void eight_check(const float *x, int n, const char *what)
{
    const int keys = n <= 1040;           /* as keys and values; longer rows only as values */
    int want[1100];
    float stored[276], wide[1100], read[1100];
    const float scale = eight_row(x, n, want);
    const signed char *bytes = (const signed char *)(stored + 1);
    attn_kv_args shape = {.batch = 1, .kv_heads = 1, .head_dim = keys ? n : 1, .v_head_dim = n, .capacity = 1,
                          .k_storage = ATTN_Q8, .v_storage = ATTN_Q8};
    attn_kv c;
    int same = 1;
    CHECK(attn_stored_bytes((size_t)n, ATTN_Q8) == (size_t)n + 4);
    CHECK(attn_narrow(stored, x, (size_t)n, ATTN_Q8) == ATTN_OK);
    CHECK(attn_widen(wide, stored, (size_t)n, ATTN_Q8) == ATTN_OK);
    same = isnan(scale) ? isnan(stored[0]) : same_bits(stored, &scale, 1);
    for (int i = 0; i < n; i++) {
        const float value = (float)want[i] * scale;
        same = same && bytes[i] == want[i] && (isnan(scale) ? float_bits(wide[i]) == 0x7FC00000u : wide[i] == value);
        if (scale > 0 && isfinite(value)) same = same &&   /* the largest float is read as Inf */
                               fabs((double)wide[i] - (double)x[i]) <= (double)scale * 0.50001;
    }
    CHECKF(same, "%s: %d values, %.9g first, scale %.9g not %.9g", what, n, (double)x[0], (double)stored[0],
           (double)scale);
    CHECK(attn_kv_init(&c, &shape) == ATTN_OK && attn_kv_append(&c, 0, x, x, 1, 0) == ATTN_OK);
    if (keys) CHECK(attn_kv_read(&c, 0, 0, 1, read, NULL) == ATTN_OK && same_bits(read, wide, (size_t)n));
    CHECK(attn_kv_read(&c, 0, 0, 1, NULL, read) == ATTN_OK && same_bits(read, wide, (size_t)n));
    attn_kv_free(&c);
}

static void eight_bits(void)
{
    static const float ends[] = {0.0f, -0.0f, 1e-45f, -1.17549435e-38f, 1.50463267e-36f /* just below 2^-119 */,
                                 1.50463277e-36f /* 2^-119 */, 3.40282347e38f, -3.40282347e38f, 1.0f, -127.0f};
    static const uint32_t odd[] = {0x7F800000u, 0xFF800000u, 0x7FC12345u, 0xFFA00001u};
    rng r = rng_make(test_seed);
    float x[1100];
    for (int i = 0; i < 400 * test_scale && !test_failed(); i++) {
        const int n = rng_int(&r, 0, 9) ? rng_int(&r, 1, 300) : rng_int(&r, 1030, 1100);
        const float size = ldexpf(1, rng_int(&r, 0, 3) ? rng_int(&r, -3, 3) : rng_int(&r, -148, 125));
        rng_fill(&r, x, (size_t)n);
        for (int j = 0; j < n; j++) x[j] *= size;
        if (rng_int(&r, 0, 5) == 0) x[rng_int(&r, 0, n - 1)] = bits_float(odd[rng_int(&r, 0, 3)]);
        eight_check(x, n, "random");
    }
    for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
        x[0] = ends[e];
        x[1] = ends[e] / 2;
        eight_check(x, 1, "an end");
        eight_check(x, 2, "an end and its half");
    }
    /* ties: with the maximum 127 every value is kept or rounded to even */
    for (int j = 0; j < 255; j++) x[j] = (float)(j - 127) + (j == 0 || j == 254 ? 0.0f : j < 127 ? -0.5f : 0.5f);
    eight_check(x, 255, "ties");
}

/* The largest product of two rows: its sum is an exact float. */
static void eight_largest(void)
{
    static float k[2 * 1040], q[1040];
    attn_kv_args shape = {.batch = 1, .kv_heads = 1, .head_dim = 1041, .capacity = 2, .k_storage = ATTN_Q8};
    attn_backend list[16];
    const int n = test_all_backends(list, 16);
    attn_kv c;
    REFUSED(attn_kv_init(&c, &shape), ATTN_E_SIZE,
            "attn_kv_init: head_dim is 1041 but keys in 8 bits (k_storage 3) have at most 1040");
    shape.v_storage = ATTN_Q8, shape.v_in_k = 1, shape.v_head_dim = 8;
    REFUSED(attn_kv_init(&c, &shape), ATTN_E_SIZE, "attn_kv_init: head_dim is 1041 but keys in 8 bits");
    shape.v_in_k = 0, shape.k_storage = ATTN_F32, shape.v_head_dim = 0;
    CHECK(attn_kv_init(&c, &shape) == ATTN_OK);       /* values in 8 bits may be wider */
    attn_kv_free(&c);
    shape.head_dim = 1040, shape.k_storage = ATTN_Q8, shape.v_head_dim = 1;
    CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
    for (int i = 0; i < 1040; i++) q[i] = k[i] = k[1040 + i] = i % 2 ? -2.0f : 2.0f;
    k[1040 + 7] = 2.0f * 126 / 127;
    CHECK(attn_kv_append(&c, -1, k, k, 2, 0) == ATTN_OK);
    for (int i = 0; i < n; i++)
        for (int rows = 1; rows < 50; rows += 12) {
            static float qs[50 * 1040], out[50], w[100];
            const float scale = 2.0f / 127, by = scale * scale;
            attn_args a = attn_args_for(1, rows, 0, 1, 1040);
            for (int x = 0; x < rows; x++) memcpy(qs + 1040 * x, q, sizeof q);
            a.q = qs, a.kv = &c, a.out = out, a.weights = w, a.weights_stage = ATTN_SCORES_RAW, a.v_head_dim = 1;
            a.scale = 1, a.backend = list[i];
            CHECK(attn_sdpa(&a) == ATTN_OK);
            CHECKF(w[2 * rows - 2] == 16774160.0f * by && w[2 * rows - 1] == 16742029.0f * by,
                   "%s, %d rows: %.9g and %.9g", attn_backend_name(list[i]), rows, (double)w[2 * rows - 2],
                   (double)w[2 * rows - 1]);
        }
    attn_kv_free(&c);
}

/* One row in double, by the formula of the manual, from what the cache was given. */
static void eight_answer(const attn_args *a, const float *k, const float *v, int n_k, int h, int i,
                         double *out, double *raw, double *bound)
{
    enum { WIDEST = 64 };
    const attn_kv_args *s = &a->kv->shape;
    const int dim = s->head_dim, v_dim = s->v_head_dim, g = h / (a->heads / s->kv_heads);
    int nq[WIDEST], nk[WIDEST], nv[WIDEST];
    float q[WIDEST];
    double top = -INFINITY, sum = 0, size = 0, most = 0;
    double score[300];
    for (int c = 0; c < dim; c++) q[c] = a->q[(i * a->heads + h) * dim + c] * a->scale;
    const double sq = s->k_storage == ATTN_Q8 ? (double)eight_row(q, dim, nq) : 1;
    for (int j = 0; j < n_k; j++) {
        const float *row = k + (j * s->kv_heads + g) * dim;
        double t = 0, sk = 1;
        if (s->k_storage == ATTN_Q8) sk = (double)eight_row(row, dim, nk);
        for (int c = 0; c < dim; c++)
            t += s->k_storage == ATTN_Q8 ? (double)nq[c] * nk[c] : (double)q[c] * (double)row[c];
        raw[j] = t * sq * sk;
        size = fmax(size, fabs(raw[j]));
        score[j] = a->softcap > 0 ? (double)a->softcap * tanh(raw[j] / (double)a->softcap) : raw[j];
        if ((a->keep && !a->keep[j]) || (a->causal && j > i + n_k - a->n_q)) score[j] = -INFINITY;
        top = fmax(top, score[j]);
    }
    memset(out, 0, (size_t)v_dim * sizeof *out);
    for (int j = 0; j < n_k && top > -INFINITY; j++) {
        const float *row = v + (j * s->kv_heads + g) * v_dim;
        const double p = exp(score[j] - top);
        double sv = 1;
        if (p == 0) continue;
        if (s->v_storage == ATTN_Q8) sv = (double)eight_row(row, v_dim, nv);
        sum += p;
        for (int x = 0; x < v_dim; x++) {
            const double value = s->v_storage == ATTN_Q8 ? nv[x] * sv : (double)row[x];
            out[x] += p * value;
            most = fmax(most, fabs(value));
        }
    }
    for (int x = 0; x < v_dim && sum > 0; x++) out[x] /= sum;
    /* Float keys: a chain over dim products. Scores: three roundings, softcap and their difference;
       exp 2 ulp; chains of up to 128 keys, twice. Each rounding is at most 2^-24. */
    *bound = ldexp(1, -24) * ((dim + 20) * (size + 1) + 2 * 128 + 30) * 2 * most;
}

/* Every backend against the formula, and the same bits from those that have one answer: any mix of formats, rows in one
   block and in several, masks, capped scores. */
static void eight_formula(void)
{
    static const int rows[] = {1, 2, 3, 4, 5, 16, 17, 41, 60}, dims[] = {1, 3, 4, 8, 17, 32, 64};
    attn_backend list[16], one[16];
    const int n_list = test_all_backends(list, 16), ones = test_one_answer_backends(one, 16);
    rng r = rng_make(test_seed + 5);
    for (int round = 0; round < 120 * test_scale && !test_failed(); round++) {
        const int n_k = rng_int(&r, 1, 290), kv_heads = rng_int(&r, 1, 3);
        const int n_q = rows[rng_int(&r, 0, 8)], group = rng_int(&r, 1, n_q > 17 ? 1 : 3);
        attn_kv_args shape = {.batch = 1, .kv_heads = kv_heads, .head_dim = dims[rng_int(&r, 0, 6)], .capacity = n_k};
        attn_kv c;
        unsigned char keep[300];
        shape.v_head_dim = dims[rng_int(&r, 0, 6)];
        shape.k_storage = rng_int(&r, 0, 3) ? ATTN_Q8 : ATTN_F32;
        shape.v_storage = shape.k_storage == ATTN_F32 || rng_int(&r, 0, 2) ? ATTN_Q8 : ATTN_F32;
        const int k_row = kv_heads * shape.head_dim, v_row = kv_heads * shape.v_head_dim, heads = kv_heads * group;
        float *k = room((size_t)(n_k * k_row)), *v = room((size_t)(n_k * v_row));
        float *q = room((size_t)(n_q * heads * shape.head_dim)), *out[2], *w = room((size_t)(n_q * heads * n_k));
        const size_t n_out = (size_t)(n_q * heads * shape.v_head_dim);
        attn_args a = attn_args_for(1, n_q, 0, heads, shape.head_dim);
        out[0] = room(n_out), out[1] = room(n_out);
        rng_fill(&r, k, (size_t)(n_k * k_row));
        rng_fill(&r, v, (size_t)(n_k * v_row));
        rng_fill(&r, q, (size_t)(n_q * heads * shape.head_dim));
        if (rng_int(&r, 0, 3) == 0) k[0] = 40, v[v_row - 1] = 70;                /* outliers */
        CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
        for (int at = 0, some; at < n_k; at += some) {
            some = rng_int(&r, 1, rng_int(&r, 0, 1) ? 3 : 60);
            if (some > n_k - at) some = n_k - at;
            CHECK(attn_kv_append(&c, -1, k + at * k_row, v + at * v_row, some, 0) == ATTN_OK);
        }
        a.q = q, a.kv = &c, a.kv_heads = kv_heads, a.v_head_dim = shape.v_head_dim;
        a.scale = rng_int(&r, 0, 1) ? 0.25f : 1.0f;
        if (rng_int(&r, 0, 2) == 0) a.softcap = 3;
        if (rng_int(&r, 0, 1)) a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        for (int j = 0; j < n_k; j++) keep[j] = (unsigned char)(rng_int(&r, 0, 3) > 0);
        if (rng_int(&r, 0, 2) == 0) a.keep = keep, a.keep_shape[0] = a.keep_shape[1] = a.keep_shape[2] = 1;
        a.weights = w, a.weights_stage = ATTN_SCORES_RAW;
        for (int i = 0; i < n_list && !test_failed(); i++) {
            a.out = out[0], a.backend = list[i];
            CHECKF(attn_sdpa(&a) == ATTN_OK, "%s", refusal_text());
            for (int row = 0; row < 4; row++) {
                const int h = rng_int(&r, 0, heads - 1), x = rng_int(&r, 0, n_q - 1);
                double want[64], raw[300], bound, worst = 0, off = 0;
                eight_answer(&a, k, v, n_k, h, x, want, raw, &bound);
                for (int y = 0; y < shape.v_head_dim; y++)
                    worst = fmax(worst, fabs(want[y] - (double)out[0][(x * heads + h) * shape.v_head_dim + y]));
                for (int j = 0; j < n_k; j++)
                    off = fmax(off, fabs(raw[j] - (double)w[(h * n_q + x) * n_k + j]) -
                               fabs(raw[j]) * ldexp(1, -22) - (shape.k_storage ? 0 : 1e-4));
                CHECKF(worst <= bound && off <= 0, "%s, %d rows, %d keys, head_dim %d/%d, storage %d/%d: off by %g, "
                       "more than %g; scores by %g", attn_backend_name(list[i]), n_q, n_k, shape.head_dim,
                       shape.v_head_dim, (int)shape.k_storage, (int)shape.v_storage, worst, bound, off);
            }
        }
        a.weights = NULL;
        for (int i = 0; i < ones; i++) {
            attn_exec exec = test_exec(3);
            a.out = out[i > 0], a.backend = one[i], a.exec = i % 2 ? &exec : NULL;
            CHECK(attn_sdpa(&a) == ATTN_OK);
            if (i) CHECKF(same_bits(out[0], out[1], n_out), "%s differs from %s", attn_backend_name(one[i]),
                          attn_backend_name(one[0]));
        }
        attn_kv_free(&c);
        free(k); free(v); free(q); free(out[0]); free(out[1]); free(w);
    }
}

/* Hidden keys whose rows are not finite change no bit; a visible one makes its rows NaN. */
static void eight_hidden(void)
{
    enum { N = 200, DIM = 12, HEADS = 2, MOST = 45 };
    static const uint32_t odd[] = {0x7F800000u, 0xFF800000u, 0x7FC12345u};
    static const int rows[] = {1, 2, 4, 7, 17, MOST};
    static float k[N * DIM * HEADS], v[N * DIM * HEADS], q[MOST * DIM * HEADS], out[2][MOST * DIM * HEADS];
    attn_backend list[16];
    const int n = test_all_backends(list, 16);
    rng r = rng_make(test_seed + 6);
    for (int round = 0; round < 60 * test_scale && !test_failed(); round++) {
        attn_kv_args shape = {.batch = 1, .kv_heads = HEADS, .head_dim = DIM, .capacity = N};
        unsigned char keep[N];
        attn_kv c[2];
        const int how = round % 3, n_q = rows[rng_int(&r, 0, 5)], bad = rng_int(&r, N - MOST + 10, N - 1);
        shape.k_storage = round % 4 == 1 ? ATTN_F16 : ATTN_Q8, shape.v_storage = round % 4 == 2 ? ATTN_BF16 : ATTN_Q8;
        shape.v_in_k = round % 4 == 3;
        rng_fill(&r, k, N * DIM * HEADS);
        rng_fill(&r, v, N * DIM * HEADS);
        rng_fill(&r, q, MOST * DIM * HEADS);
        memset(keep, 1, sizeof keep);
        keep[bad] = 0;
        for (int i = 0; i < 2; i++) {
            CHECK(attn_kv_init(&c[i], &shape) == ATTN_OK);
            CHECK(attn_kv_append(&c[i], -1, k, shape.v_in_k ? NULL : v, N, 0) == ATTN_OK);
            k[bad * DIM * HEADS + rng_int(&r, 0, DIM * HEADS - 1)] = bits_float(odd[rng_int(&r, 0, 2)]);
            v[bad * DIM * HEADS + rng_int(&r, 0, DIM - 1)] = bits_float(odd[rng_int(&r, 0, 2)]);
            v[bad * DIM * HEADS + DIM + rng_int(&r, 0, DIM - 1)] = bits_float(odd[rng_int(&r, 0, 2)]);
        }
        for (int b = 0; b < n; b++) {
            attn_args a = attn_args_for(1, n_q, 0, HEADS, DIM);
            int same = 1;
            a.q = q, a.backend = list[b];
            if (how == 1) a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
            if (how == 0) a.keep = keep, a.keep_shape[0] = a.keep_shape[1] = a.keep_shape[2] = 1;
            if (how == 2) a.causal = ATTN_CAUSAL_BOTTOM_RIGHT, a.window_left = 30;
            for (int i = 0; i < 2; i++) {
                a.kv = &c[i], a.out = out[i];
                CHECK(attn_sdpa(&a) == ATTN_OK);
            }
            for (int i = 0; i < n_q; i++) {
                const int p = i + N - n_q, sees = how && p >= bad && (how == 1 || p < bad + 30);
                for (int x = 0; x < DIM * HEADS; x++) {
                    const float was = out[0][i * DIM * HEADS + x], is = out[1][i * DIM * HEADS + x];
                    if (!sees) same = same && same_bits(&was, &is, 1);
                    else if (shape.v_storage == ATTN_Q8 && !shape.v_in_k) same = same && isnan(is);
                }
            }
            CHECKF(same, "%s, %d rows, key %d, way %d, storage %d/%d", attn_backend_name(list[b]), n_q, bad, how,
                   (int)shape.k_storage, (int)shape.v_storage);
        }
        attn_kv_free(&c[0]);
        attn_kv_free(&c[1]);
    }
}

/* A cache with the keys that p->floats has, appended at once. */
static attn_kv eight_again(const pair *p)
{
    attn_kv_args shape = p->shape;
    attn_kv c;
    shape.pages = 0;
    CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
    for (int b = 0; b < shape.batch; b++) {
        const int n = p->floats.lengths[b], *gap = p->floats.gaps + 2 * b;
        float *k = room((size_t)n * p->k_row), *v = room((size_t)n * p->v_row);
        memset(k, 0, (size_t)n * p->k_row * sizeof *k);
        memset(v, 0, (size_t)n * p->v_row * sizeof *v);
        for (int j = 0; j < n; j++)
            if (j < gap[0] || j >= gap[1])
                CHECK(attn_kv_read(&p->floats, b, j, 1, k + (size_t)j * p->k_row, v + (size_t)j * p->v_row) == ATTN_OK);
        CHECK(attn_kv_append(&c, b, k, shape.v_in_k ? NULL : v, n, 0) == ATTN_OK || n > shape.capacity);
        CHECK(attn_kv_forget(&c, b, gap[0], gap[1]) == ATTN_OK);
        free(k); free(v);
    }
    return c;
}

/* As `histories`, with the original values in the float cache. */
static void eight_histories(void)
{
    rng seeds = rng_make(test_seed + 7);
    for (int i = 0; i < 60 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int wild = rng_int(&r, 0, 2) == 0;
        pair p;
        char words[200];
        pair_make(&p, &r, 1);
        for (int op = 0; op < 16 && !test_failed(); op++) {
            const int what = rng_int(&r, 0, 9);
            int most = 0;
            pair_operate(&p, &r, what, wild);
            for (int b = 0; b < p.shape.batch; b++) if (p.floats.lengths[b] > most) most = p.floats.lengths[b];
            if (most > p.shape.capacity) continue;               /* more than one entry holds at once */
            pair again = p;
            again.floats = eight_again(&p);
            CHECKF(same_inside(&again), "seed %llu op %d (kind %d): rows read back differ", seed, op, what);
            CHECKF(same_attention(&again, &r, words, sizeof words),
                   "seed %llu op %d (kind %d): storage %d/%d%s, batch %d, %d heads, head_dim %d/%d, capacity %d: %s",
                   seed, op, what, p.shape.k_storage, p.shape.v_storage, p.shape.v_in_k ? " in K" : "",
                   p.shape.batch, p.shape.kv_heads, p.shape.head_dim, p.shape.v_head_dim, p.shape.capacity, words);
            attn_kv_free(&again.floats);
        }
        pair_free(&p);
    }
}

extern const test_case suite_stored[];
SUITE(stored) = {
    {"mixed storage", one_side, "float keys with 16-bit values, or the reverse, of which one is not widened"},
    {"histories", histories, "a 16-bit cache that differs from a float cache of the rounded values"},
    {"saved", saved, "values that are saved or loaded in another order, or as floats"},
    {"rejected storage", refused, "an invalid storage; 16 bits that take the memory of 32"},
    {"eight bits", eight_bits,
     "a row of 8 bits with another scale or another integer than the definition, or a NaN lost"},
    {"eight, largest", eight_largest, "a sum that is no exact float, a wider head that is accepted"},
    {"eight, formula", eight_formula,
     "scores or outputs of 8 bits that are not those of the formula, or differ by backend"},
    {"eight, hidden", eight_hidden, "a scale that is not finite and reaches a row that does not see its key"},
    {"eight, histories", eight_histories, "scales that do not follow their keys through the operations of a cache"},
    {"v in k", v_in_k, "values that are not the front of their keys, or take separate memory"},
    {"many heads", many_heads, "K that is packed where its block has no room for it"},
    {"v in k rejected", v_in_k_refused,
     "values given to a cache without them; a front that its storage cannot share"},
    {0}};
