/* test_stored.c: a cache in 16 bits, K and V each in a separate storage, against a cache of floats filled with the
 * rounded values: every operation leaves the same bits. */
#include "test.h"

enum { MOST_ROWS = 70 };

typedef struct pair { attn_kv stored, floats; attn_kv_args shape; float *k, *v; size_t k_row, v_row; } pair;

static float *room(size_t n)
{
    float *p = malloc((n + 1) * sizeof(float));
    if (!p) abort();
    return p;
}

static void pair_make(pair *p, rng *r)
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
    round_all(p->k, ks, p->shape.head_dim, p->shape.k_storage);
    if (p->shape.v_in_k) fronts(p, (size_t)batch * (size_t)n);
    else round_all(p->v, vs, p->shape.v_head_dim, p->shape.v_storage);
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
        pair_make(&p, &r);
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
    for (int i = 0; i < 20; i++) {
        pair p;
        attn_kv other;
        attn_kv_args a;
        pair_make(&p, &r);
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
    a.k_storage = (attn_storage)3;
    REFUSED(attn_kv_init(&c, &a), ATTN_E_OPTION, "attn_kv_init: k_storage is 3 but its values are 0..2");
    REFUSED_SIZE(attn_kv_size(&a), ATTN_E_OPTION, "attn_kv_size: k_storage is 3");
    a.k_storage = (attn_storage)-1;
    REFUSED(attn_kv_init(&c, &a), ATTN_E_OPTION, "attn_kv_init: k_storage is -1 but its values are 0..2");
    a.k_storage = ATTN_F16;
    a.v_storage = (attn_storage)3;
    REFUSED(attn_kv_init(&c, &a), ATTN_E_OPTION, "attn_kv_init: v_storage is 3 but its values are 0..2");
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
    for (int i = 0; i < N; i++) memcpy(v + i * V_DIM, k + i * DIM, V_DIM * sizeof *v);
    for (int storage = 0; storage < 3; storage++) {
        attn_kv_args shape = {.batch = 1, .kv_heads = 1, .head_dim = DIM, .v_head_dim = V_DIM, .capacity = N};
        attn_kv two, one;
        shape.k_storage = shape.v_storage = (attn_storage)storage;
        CHECK(attn_kv_init(&two, &shape) == ATTN_OK);
        shape.v_in_k = 1;
        CHECK(attn_kv_init(&one, &shape) == ATTN_OK);
        CHECK(one.page_size * (DIM + V_DIM) == two.page_size * DIM);
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
    for (int storage = 0; storage < 3; storage++)
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

extern const test_case suite_stored[];
SUITE(stored) = {
    {"mixed storage", one_side, "float keys with 16-bit values, or the reverse, of which one is not widened"},
    {"histories", histories, "a 16-bit cache that differs from a float cache of the rounded values"},
    {"saved", saved, "values that are saved or loaded in another order, or as floats"},
    {"rejected storage", refused, "an invalid storage; 16 bits that take the memory of 32"},
    {"v in k", v_in_k, "values that are not the front of their keys, or take separate memory"},
    {"many heads", many_heads, "K that is packed where its block has no room for it"},
    {"v in k rejected", v_in_k_refused,
     "values given to a cache without them; a front that its storage cannot share"},
    {0}};
