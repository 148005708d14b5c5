/* test_kv.c: the K/V cache against a model that keeps plain rows. What a cache holds is seen through attention: reading
 * it must give the bits that the plain rows give. */
#include "kv_model.h"

enum { MOST_BATCH = 5 };

static float *floats(size_t n)
{
    float *p = malloc((n + 1) * sizeof(float));
    if (!p) abort();
    return p;
}

/* ---- reading: from the cache and from the model's rows, bit for bit ----------------------------------------- */
typedef struct reading { int group, n_q, causal, backend, width, window; } reading;

static int same_reading(const attn_kv *c, const kv_model *m, const reading *how, rng *r)
{
    const attn_kv_args *s = &m->shape;
    const int heads = s->kv_heads * how->group;
    const size_t n_rows = (size_t)(s->batch * how->n_q * heads);
    const size_t n_out = n_rows * (size_t)s->v_head_dim, n_w = n_rows * (size_t)s->capacity;
    float *q = floats(n_rows * (size_t)s->head_dim), *out = floats(2 * n_out), *weights = floats(2 * n_w);
    attn_exec exec = test_exec(how->width > 0 ? how->width : 1);
    attn_args a = {0}, plain;
    int same, lengths[KV_MODEL_BATCH];
    rng_fill(r, q, n_rows * (size_t)s->head_dim);
    memset(out, 0, 2 * n_out * sizeof(float));
    memset(weights, 0, 2 * n_w * sizeof(float));
    a.out = out;
    a.q = q;
    a.batch = s->batch;
    a.n_q = how->n_q;
    a.n_k = s->capacity;
    a.heads = heads;
    a.causal = how->causal;
    a.window_left = how->window;
    a.backend = how->backend;
    a.weights = weights;
    a.exec = how->width > 0 ? &exec : NULL;
    a.kv = c;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    plain = kv_model_args(m, &a, lengths);
    plain.out = out + n_out;
    plain.weights = weights + n_w;
    plain.exec = NULL;
    CHECK(attn_sdpa(&plain) == ATTN_OK);
    same = same_bits(out, out + n_out, n_out) && same_bits(weights, weights + n_w, n_w) && kv_model_same_lengths(m, c);
    free(q); free(out); free(weights);
    return same;
}

static reading reading_draw(rng *r)
{
    static const int causal[] = {ATTN_CAUSAL_NONE, ATTN_CAUSAL_TOP_LEFT, ATTN_CAUSAL_BOTTOM_RIGHT};
    attn_backend backends[16];
    int n = test_all_backends(backends, 16);
    reading how;
    how.group = rng_int(r, 1, 3);
    how.n_q = rng_int(r, 0, 3) ? rng_int(r, 1, 3) : rng_int(r, 4, 30);
    how.causal = causal[rng_int(r, 0, 2)];
    how.backend = backends[rng_int(r, 0, n - 1)];
    how.width = rng_int(r, 0, 3);
    how.window = rng_int(r, 0, 3) ? 0 : rng_int(r, 1, 200);
    return how;
}

static attn_kv_args shape_draw(rng *r)
{
    static const int dims[] = {1, 3, 8, 15, 16, 17, 32, 40};
    attn_kv_args a = {0};
    a.batch = rng_int(r, 1, MOST_BATCH);
    a.kv_heads = rng_int(r, 1, 3);
    a.head_dim = dims[rng_int(r, 0, 7)];
    a.v_head_dim = rng_int(r, 0, 1) ? dims[rng_int(r, 0, 7)] : 0;
    a.capacity = rng_int(r, 0, 2) ? rng_int(r, 1, 70) : rng_int(r, 100, 400);
    return a;
}

/* memory from the caller at every alignment, filled with NaN, with a guard page behind it */
static float *cache_memory(attn_kv_args *a, rng *r)
{
    const size_t size = attn_kv_size(a), shift = (size_t)rng_int(r, 0, 16) * 4;
    unsigned char *mem = guard_alloc(attn_kv_size(a) + shift);
    CHECK(size != (size_t)-1);
    memset(mem, 0xFF, size + shift);
    a->mem = mem + shift;
    a->mem_size = size;
    return (float *)(void *)mem;
}

/* ---- random histories --------------------------------------------------------------------------------------- */
/* Rows for an append, n for each entry and `stride` floats from one to the next, that end at a guard page. k and v lie
   side by side in one buffer when the stride says so, as in packed QKV. */
typedef struct new_rows { float *mem, *k, *v; ptrdiff_t stride; } new_rows;

static new_rows rows_draw(rng *r, const kv_model *m, int n)
{
    const size_t rows = (size_t)m->shape.batch * (size_t)n, both = m->k_row + m->v_row;
    new_rows x = {0};
    if (rng_int(r, 0, 1)) {               /* before, behind: q, or whatever else a row holds */
        const int before = rng_int(r, 0, 9), behind = rng_int(r, 0, 1) ? 0 : rng_int(r, 1, 9);
        x.stride = (ptrdiff_t)both + before + behind;
        x.mem = guard_floats(rows > 0 ? rows * (size_t)x.stride - (size_t)behind : 0);
        rng_fill(r, x.mem, rows > 0 ? rows * (size_t)x.stride - (size_t)behind : 0);
        x.k = x.mem + before;
        x.v = x.k + m->k_row;
        return x;
    }
    x.mem = guard_floats(rows * both);
    rng_fill(r, x.mem, rows * both);
    x.k = x.mem + rows * m->v_row;
    x.v = x.mem;
    return x;
}

static void append_both(attn_kv *c, kv_model *m, rng *r, int most)
{
    const int n = rng_int(r, 0, most), all = rng_int(r, 0, 1);
    int counts[MOST_BATCH] = {0};
    new_rows x = rows_draw(r, m, n);
    attn_status want, got;
    for (int b = 0; b < m->shape.batch; b++) counts[b] = rng_int(r, 0, n);
    want = kv_model_append(m, x.k, x.v, n, all ? NULL : counts, x.stride);
    got = attn_kv_append(c, x.k, x.v, n, all ? NULL : counts, x.stride);
    CHECKF(got == want, "append of %d rows, stride %d, says %d, not %d", n, (int)x.stride, (int)got, (int)want);
    guard_free(x.mem);
}

static void operate(int what, attn_kv *c, kv_model *m, rng *r)
{
    const int batch = m->shape.batch, entry = rng_int(r, 0, batch - 1), from = rng_int(r, 0, batch - 1);
    int map[MOST_BATCH] = {0};
    if (what == 0) append_both(c, m, r, m->shape.capacity);       /* sometimes more than there is room for */
    else if (what <= 4) append_both(c, m, r, 20);
    else if (what == 5) {
        const int length = rng_int(r, 0, m->length[entry]);
        CHECK(attn_kv_truncate(c, entry, length) == kv_model_truncate(m, entry, length));
    } else if (what == 6) {
        for (int b = 0; b < batch; b++) map[b] = rng_int(r, 0, batch - 1);
        CHECK(attn_kv_reorder(c, map) == kv_model_reorder(m, map));
    } else if (what == 7) {
        const int length = rng_int(r, 0, m->length[from]);
        CHECK(attn_kv_copy(c, entry, from, length) == kv_model_copy(m, entry, from, length));
    } else if (what == 8 && rng_int(r, 0, 3) == 0)
        CHECK(attn_kv_reset(c, entry) == kv_model_truncate(m, entry, 0));
}

static void random_histories(void)
{
    rng seeds = rng_make(test_seed);
    for (int i = 0; i < 150 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        attn_kv_args a = shape_draw(&r);
        attn_kv c;
        kv_model m;
        float *mem = rng_int(&r, 0, 1) ? cache_memory(&a, &r) : NULL;
        CHECK(attn_kv_init(&c, &a) == ATTN_OK);
        kv_model_make(&m, &a);
        for (int op = 0; op < 25 && !test_failed(); op++) {
            const int what = rng_int(&r, 0, 9);
            operate(what, &c, &m, &r);
            reading how = reading_draw(&r);
            CHECKF(same_reading(&c, &m, &how, &r),
                   "seed %llu op %d (kind %d): the cache (batch %d, %d heads, head_dim %d/%d, capacity "
                   "%d) is not what was put in; n_q %d causal %d backend %d width %d",
                   seed, op, what, a.batch, a.kv_heads, a.head_dim, a.v_head_dim, a.capacity, how.n_q, how.causal,
                   how.backend, how.width);
        }
        attn_kv_free(&c);
        guard_free(mem);
        kv_model_free(&m);
    }
}

/* ---- one token at a time, or in any pieces ------------------------------------------------------------------ */
static void steps_are_prefill(void)
{
    rng seeds = rng_make(test_seed + 1);
    for (int i = 0; i < 12 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n = rng_int(&r, 1, 300), kv_heads = rng_int(&r, 1, 2), heads = kv_heads * rng_int(&r, 1, 3);
        const int head_dim = rng_int(&r, 1, 24);
        attn_backend backends[16];
        attn_backend backend = backends[rng_int(&r, 0, test_all_backends(backends, 16) - 1)];
        float *q = floats((size_t)(n * heads * head_dim)), *k = floats((size_t)(n * kv_heads * head_dim));
        float *v = floats((size_t)(n * kv_heads * head_dim)), *whole = floats((size_t)(n * heads * head_dim));
        float *steps = floats((size_t)(n * heads * head_dim));
        attn_kv c;
        attn_kv_args shape = {0};
        attn_args a = {0};
        rng_fill(&r, q, (size_t)(n * heads * head_dim));
        rng_fill(&r, k, (size_t)(n * kv_heads * head_dim));
        rng_fill(&r, v, (size_t)(n * kv_heads * head_dim));
        a.out = whole;
        a.q = q;
        a.k = k;
        a.v = v;
        a.batch = 1;
        a.n_q = a.n_k = n;
        a.heads = heads;
        a.kv_heads = kv_heads;
        a.head_dim = head_dim;
        a.causal = ATTN_CAUSAL_TOP_LEFT;
        a.backend = backend;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        shape.batch = 1;
        shape.kv_heads = kv_heads;
        shape.head_dim = head_dim;
        shape.capacity = n;
        CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
        a.k = a.v = NULL;
        a.kv = &c;
        a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        for (int at = 0, rows; at < n; at += rows) {
            rows = rng_int(&r, 0, 2) ? 1 : rng_int(&r, 1, 50);
            if (rows > n - at) rows = n - at;
            CHECK(attn_kv_append(&c, k + at * kv_heads * head_dim, v + at * kv_heads * head_dim, rows, NULL, 0) ==
                  ATTN_OK);
            a.q = q + at * heads * head_dim;
            a.out = steps + at * heads * head_dim;
            a.n_q = rows;
            a.n_k = 0;
            CHECK(attn_sdpa(&a) == ATTN_OK);
        }
        CHECKF(same_bits(whole, steps, (size_t)(n * heads * head_dim)),
               "seed %llu: %d rows in steps differ from all at once", seed, n);
        attn_kv_free(&c);
        free(q); free(k); free(v); free(whole); free(steps);
    }
}

/* ---- an encoder memory read by several queries -------------------------------------------------------------- */
static void shared_memory(void)
{
    enum { B = 4, M = 2, H = 2, D = 16, NK = 150 };
    const int map[B] = {1, 0, 1, 1}, lengths[M] = {150, 97};
    rng r = rng_make(test_seed + 2);
    float *k = floats(M * NK * H * D), *v = floats(M * NK * H * D), q[B * H * D], out[2][B * H * D];
    attn_kv shared, copied;
    attn_kv_args s = {0};
    attn_args a = {0};
    rng_fill(&r, k, M * NK * H * D);
    rng_fill(&r, v, M * NK * H * D);
    rng_fill(&r, q, B * H * D);
    s.batch = M;
    s.kv_heads = H;
    s.head_dim = D;
    s.capacity = NK;
    CHECK(attn_kv_init(&shared, &s) == ATTN_OK);
    CHECK(attn_kv_append(&shared, k, v, NK, lengths, 0) == ATTN_OK);
    s.batch = B;
    CHECK(attn_kv_init(&copied, &s) == ATTN_OK);
    {   /* the same memory once per query: filled twice, then spread by reorder */
        float *kk = floats(B * NK * H * D), *vv = floats(B * NK * H * D);
        int counts[B];
        for (int b = 0; b < B; b++) {
            memcpy(kk + b * NK * H * D, k + b % M * NK * H * D, NK * H * D * sizeof(float));
            memcpy(vv + b * NK * H * D, v + b % M * NK * H * D, NK * H * D * sizeof(float));
            counts[b] = lengths[b % M];
        }
        CHECK(attn_kv_append(&copied, kk, vv, NK, counts, 0) == ATTN_OK);
        CHECK(attn_kv_reorder(&copied, map) == ATTN_OK);
        free(kk);
        free(vv);
    }
    a.q = q;
    a.batch = B;
    a.n_q = 1;
    a.heads = H;
    a.kv = &shared;
    a.k_map = map;
    a.out = out[0];
    CHECK(attn_sdpa(&a) == ATTN_OK);
    a.kv = &copied;
    a.k_map = NULL;
    a.out = out[1];
    CHECK(attn_sdpa(&a) == ATTN_OK);
    CHECK(same_bits(out[0], out[1], B * H * D));
    attn_kv_free(&shared);
    attn_kv_free(&copied);
    free(k);
    free(v);
}

/* ---- truncation, reorder: as if it had always been so ------------------------------------------------------- */
static void beams_alone(void)
{
    enum { BEAMS = 3, H = 2, D = 8, STEPS = 40 };
    rng r = rng_make(test_seed + 3);
    attn_kv beams, alone;
    attn_kv_args s = {0};
    static float history_k[BEAMS][STEPS][H * D], history_v[BEAMS][STEPS][H * D], old_k[BEAMS][STEPS][H * D],
                 old_v[BEAMS][STEPS][H * D];
    s.batch = BEAMS;
    s.kv_heads = H;
    s.head_dim = D;
    s.capacity = STEPS;
    CHECK(attn_kv_init(&beams, &s) == ATTN_OK);
    for (int t = 0; t < STEPS; t++) {
        float k[BEAMS][H * D], v[BEAMS][H * D], q[BEAMS][H * D], got[BEAMS][H * D], want[H * D];
        int map[BEAMS];
        attn_args a = {0};
        rng_fill(&r, k[0], BEAMS * H * D);
        rng_fill(&r, v[0], BEAMS * H * D);
        rng_fill(&r, q[0], BEAMS * H * D);
        for (int b = 0; b < BEAMS; b++) map[b] = rng_int(&r, 0, BEAMS - 1);
        memcpy(old_k, history_k, sizeof old_k);
        memcpy(old_v, history_v, sizeof old_v);
        for (int b = 0; b < BEAMS; b++) {
            memcpy(history_k[b], old_k[map[b]], sizeof old_k[0]);
            memcpy(history_v[b], old_v[map[b]], sizeof old_v[0]);
            memcpy(history_k[b][t], k[b], sizeof k[b]);
            memcpy(history_v[b][t], v[b], sizeof v[b]);
        }
        CHECK(attn_kv_reorder(&beams, map) == ATTN_OK);
        CHECK(attn_kv_append(&beams, k[0], v[0], 1, NULL, 0) == ATTN_OK);
        a.q = q[0];
        a.out = got[0];
        a.batch = BEAMS;
        a.n_q = 1;
        a.heads = H;
        a.kv = &beams;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        for (int b = 0; b < BEAMS; b++) { /* this beam decoded alone, by a cache of its own */
            s.batch = 1;
            CHECK(attn_kv_init(&alone, &s) == ATTN_OK);
            CHECK(attn_kv_append(&alone, history_k[b][0], history_v[b][0], t + 1, NULL, 0) == ATTN_OK);
            a.q = q[b];
            a.out = want;
            a.batch = 1;
            a.kv = &alone;
            CHECK(attn_sdpa(&a) == ATTN_OK);
            CHECKF(same_bits(want, got[b], H * D), "step %d beam %d differs from decoding it alone", t, b);
            attn_kv_free(&alone);
        }
    }
    attn_kv_free(&beams);
}

static void truncate_all(void)
{
    float k[4 * 10 * 4], v[4 * 10 * 4];
    const int counts[4] = {10, 7, 3, 5};
    attn_kv c;
    attn_kv_args s = {0};
    memset(k, 0, sizeof k);
    memset(v, 0, sizeof v);
    s.batch = 4;
    s.kv_heads = 1;
    s.head_dim = 4;
    s.capacity = 12;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(attn_kv_append(&c, k, v, 10, counts, 0) == ATTN_OK);
    CHECK(attn_kv_truncate(&c, -1, 4) == ATTN_E_LENGTHS);              /* entry 2 has 3 */
    for (int b = 0; b < 4; b++) CHECK(c.lengths[b] == counts[b]);
    CHECK(attn_kv_truncate(&c, -1, 3) == ATTN_OK);
    for (int b = 0; b < 4; b++) CHECK(c.lengths[b] == 3);
    CHECK(attn_kv_copy(&c, 1, 1, 2) == ATTN_OK);                       /* onto itself: truncate, and nobody else */
    for (int b = 0; b < 4; b++) CHECK(c.lengths[b] == (b == 1 ? 2 : 3));
    REFUSED(attn_kv_copy(&c, 1, 1, 3), ATTN_E_LENGTHS, "attn_kv_copy: length is 3 but entry 1 holds 2 keys");
    CHECK(attn_kv_reset(&c, -1) == ATTN_OK);
    for (int b = 0; b < 4; b++) CHECK(c.lengths[b] == 0);
    attn_kv_free(&c);
}

/* ---- wrong calls: the status, the sentence, and nothing changed ---------------------------------------------- */
static void wrong_calls(void)
{
    enum { N = 40, K_ROW = 2 * 5, V_ROW = 2 * 3 };
    rng r = rng_make(test_seed + 4);
    attn_kv_args s = {0};
    attn_kv c, before, zero = {0};
    float k[2 * N * K_ROW], v[2 * N * V_ROW], *mem;
    size_t size;
    unsigned char *copy;
    int user;
    const int over[2] = {1, 31}, negative[2] = {0, -1}, more[2] = {1, 5}, map_low[2] = {0, -1}, map_high[2] = {2, 0};
    rng_fill(&r, k, sizeof k / sizeof *k);
    rng_fill(&r, v, sizeof v / sizeof *v);
    s.batch = 2;
    s.kv_heads = 2;
    s.head_dim = 5;
    s.v_head_dim = 3;
    s.capacity = N;
    s.user = &user;
    mem = cache_memory(&s, &r);
    size = s.mem_size;
    copy = malloc(size);
    if (!copy) abort();
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(attn_kv_append(&c, k, v, 10, NULL, 0) == ATTN_OK);
    memcpy(copy, s.mem, size);
    before = c;
#define REFUSES(call, status, words) do { REFUSED(call, status, words); \
        CHECKF(refusal_user() == &user, "%s: told another user", #call); \
        CHECKF(!memcmp(copy, s.mem, size) && !memcmp(&before, &c, sizeof c), "%s changed the cache", #call); } while (0)
    REFUSES(attn_kv_append(&c, k, v, 31, NULL, 0), ATTN_E_FULL,
            "attn_kv_append: entry 0 of the cache holds 10 of 40 keys, no room for 31 more");
    REFUSES(attn_kv_append(&c, k, v, 31, over, 0), ATTN_E_FULL,
            "attn_kv_append: entry 1 of the cache holds 10 of 40 keys, no room for 31 more");
    REFUSES(attn_kv_append(&c, k, v, 2147483647, NULL, 0), ATTN_E_FULL, "no room for 2147483647 more");
    REFUSES(attn_kv_append(&c, k, v, -1, NULL, 0), ATTN_E_SIZE, "attn_kv_append: n is -1 but cannot be negative");
    REFUSES(attn_kv_append(&c, k, v, 3, negative, 0), ATTN_E_LENGTHS, "attn_kv_append: counts[1] is -1 but n is 3");
    REFUSES(attn_kv_append(&c, k, v, 3, more, 0), ATTN_E_LENGTHS, "attn_kv_append: counts[1] is 5 but n is 3");
    REFUSES(attn_kv_append(&c, NULL, v, 3, NULL, 0), ATTN_E_NULL, "attn_kv_append: k is NULL");
    REFUSES(attn_kv_append(&c, k, NULL, 3, NULL, 0), ATTN_E_NULL, "attn_kv_append: v is NULL");
    REFUSES(attn_kv_append(&c, k, v, 3, NULL, -1), ATTN_E_STRIDE, "attn_kv_append: row_stride is -1 but cannot");
    REFUSES(attn_kv_append(&c, k, v, 0, NULL, -1), ATTN_E_STRIDE, "row_stride is -1");
    REFUSES(attn_kv_append(&c, k, v, 3, NULL, K_ROW - 1), ATTN_E_STRIDE,
            "attn_kv_append: row_stride is 9 but a row of k has 10 floats");
    REFUSES(attn_kv_append(&c, k, v, 3, NULL, PTRDIFF_MAX), ATTN_E_OVERFLOW, "attn_kv_append: k is too large: 2 x 3");
    REFUSES(attn_kv_append(&c, k, v, 3, NULL, PTRDIFF_MAX / 6), ATTN_E_OVERFLOW, "attn_kv_append: k is too large");
    if (sizeof(size_t) == 4)
        REFUSES(attn_kv_append(&c, k, v, 2147483647, (const int[]){0, 0}, 0), ATTN_E_OVERFLOW, "k is too large");
    for (int batch = 3; batch <= 4; batch++) {  /* in 32 bits, 2 x 2147483647 rows and 2 more wrap, and so do 3 x */
        attn_kv_args few = {.batch = batch, .kv_heads = 1, .head_dim = 1, .capacity = 3};
        const int counts[4] = {0, 0, 3, 0};
        attn_kv many;
        CHECK(attn_kv_init(&many, &few) == ATTN_OK);
        REFUSED(attn_kv_append(&many, k, v, 2147483647, counts, PTRDIFF_MAX), ATTN_E_OVERFLOW, "k is too large");
        CHECK(many.lengths[2] == 0);
        attn_kv_free(&many);
    }
    /* what is in front of the last row has every byte there is: a row more wraps around */
    REFUSES(attn_kv_append(&c, k, v, 3, NULL, (ptrdiff_t)(SIZE_MAX / 5)), ATTN_E_OVERFLOW, "k is too large: 2 x 3");
    REFUSES(attn_kv_append(&c, c.k_panels, v, 1, NULL, 0), ATTN_E_OVERLAP,
            "attn_kv_append: the memory of c overlaps k");
    REFUSES(attn_kv_append(&c, k, c.v_panels + 5, 1, NULL, 0), ATTN_E_OVERLAP, "overlaps v");
    REFUSES(attn_kv_append(&c, k, v, 1, c.lengths, 0), ATTN_E_LENGTHS, "counts[0] is 10");
    REFUSES(attn_kv_append(&c, k, v, 10, c.lengths, 0), ATTN_E_OVERLAP, "overlaps counts");
    REFUSES(attn_kv_append(&c, (float *)(void *)((char *)k + 2), v, 1, NULL, 0), ATTN_E_ALIGN, "k is not aligned");
    REFUSES(attn_kv_append(&c, k, (float *)(void *)((char *)v + 1), 1, NULL, 0), ATTN_E_ALIGN, "v is not aligned");
    REFUSES(attn_kv_append(&c, k, v, 1, (const int *)(const void *)((const char *)more + 1), 0), ATTN_E_ALIGN,
            "attn_kv_append: counts is not aligned");
    REFUSES(attn_kv_reorder(&c, (const int *)(const void *)((const char *)more + 2)), ATTN_E_ALIGN, "map is not");
    REFUSED(attn_kv_append(NULL, k, v, 1, NULL, 0), ATTN_E_NULL, "attn_kv_append: c is NULL");
    REFUSES(attn_kv_truncate(&c, 0, 11), ATTN_E_LENGTHS, "attn_kv_truncate: length is 11 but entry 0 holds 10 keys");
    REFUSES(attn_kv_truncate(&c, 0, -1), ATTN_E_LENGTHS, "attn_kv_truncate: length is -1 but entry 0");
    REFUSES(attn_kv_truncate(&c, 2, 0), ATTN_E_MAP, "attn_kv_truncate: entry is 2 but must be 0..1, or -1 for all");
    REFUSES(attn_kv_truncate(&c, -2, 0), ATTN_E_MAP, "entry is -2");
    REFUSED(attn_kv_truncate(NULL, 0, 0), ATTN_E_NULL, "attn_kv_truncate: c is NULL");
    REFUSES(attn_kv_reset(&c, 2), ATTN_E_MAP, "attn_kv_reset: entry is 2");
    REFUSED(attn_kv_reset(NULL, 0), ATTN_E_NULL, "attn_kv_reset: c is NULL");
    REFUSES(attn_kv_reorder(&c, NULL), ATTN_E_NULL, "attn_kv_reorder: map is NULL");
    REFUSED(attn_kv_reorder(NULL, map_low), ATTN_E_NULL, "attn_kv_reorder: c is NULL");
    REFUSES(attn_kv_reorder(&c, map_low), ATTN_E_MAP, "attn_kv_reorder: map[1] is -1 but must be 0..1");
    REFUSES(attn_kv_reorder(&c, map_high), ATTN_E_MAP, "attn_kv_reorder: map[0] is 2");
    REFUSES(attn_kv_reorder(&c, c.slots), ATTN_E_OVERLAP, "attn_kv_reorder: the memory of c overlaps map");
    REFUSES(attn_kv_copy(&c, 2, 0, 1), ATTN_E_MAP, "attn_kv_copy: to is 2 but must be 0..1");
    REFUSES(attn_kv_copy(&c, 0, -1, 1), ATTN_E_MAP, "attn_kv_copy: from is -1");
    REFUSES(attn_kv_copy(&c, -1, 0, 1), ATTN_E_MAP, "to is -1");
    REFUSES(attn_kv_copy(&c, 0, 2, 1), ATTN_E_MAP, "from is 2");
    REFUSES(attn_kv_copy(&c, 0, 1, 11), ATTN_E_LENGTHS, "attn_kv_copy: length is 11 but entry 1 holds 10 keys");
    REFUSES(attn_kv_copy(&c, 0, 1, -1), ATTN_E_LENGTHS, "length is -1");
    REFUSED(attn_kv_copy(NULL, 0, 0, 0), ATTN_E_NULL, "attn_kv_copy: c is NULL");
#undef REFUSES
    CHECK(attn_kv_append(&c, NULL, NULL, 0, NULL, 0) == ATTN_OK && !memcmp(copy, s.mem, size));
    attn_kv_free(&c);
    attn_kv_free(&c);                                                  /* a freed one, a zeroed one, none: fine */
    attn_kv_free(&zero);
    attn_kv_free(NULL);
    REFUSED(attn_kv_append(&c, k, v, 1, NULL, 0), ATTN_E_NULL, "attn_kv_append: c is not a cache");
    REFUSED(attn_kv_truncate(&c, -1, 0), ATTN_E_NULL, "attn_kv_truncate: c is not a cache");
    REFUSED(attn_kv_reset(&c, -1), ATTN_E_NULL, "attn_kv_reset: c is not a cache");
    REFUSED(attn_kv_reorder(&c, over), ATTN_E_NULL, "attn_kv_reorder: c is not a cache");
    REFUSED(attn_kv_copy(&c, 0, 0, 0), ATTN_E_NULL, "attn_kv_copy: c is not a cache");
    guard_free(mem);
    free(copy);
}

/* Rows right before and right behind the cache in one block of memory are nobody's overlap. */
static void neighbours(void)
{
    enum { ROW = 4 };
    attn_kv_args s = {0};
    attn_kv c;
    float *k, *v;
    unsigned char *block;
    s.batch = 1;
    s.kv_heads = 1;
    s.head_dim = ROW;
    s.capacity = 3;
    s.mem_size = attn_kv_size(&s);
    block = calloc(1, s.mem_size + 2 * ROW * sizeof(float) + 128);
    if (!block) abort();
    s.mem = block + 64 + ROW * sizeof(float);
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    k = c.k_panels - ROW;                                              /* ends where the panels begin */
    v = (float *)(void *)(c.slots + 5);                                /* begins where the scratch ends */
    CHECK(attn_kv_append(&c, k, v, 1, NULL, 0) == ATTN_OK);
    REFUSED(attn_kv_append(&c, k + 1, v, 1, NULL, 0), ATTN_E_OVERLAP, "overlaps k");
    REFUSED(attn_kv_append(&c, k, v - 1, 1, NULL, 0), ATTN_E_OVERLAP, "overlaps v");
    REFUSED(attn_kv_append(&c, k - ROW, v, 2, NULL, 2 * ROW - 1), ATTN_E_OVERLAP, "overlaps k");
    CHECK(c.lengths[0] == 1);
    attn_kv_free(&c);
    free(block);
}

static void wrong_shapes(void)
{
    attn_kv_args good = {0}, a;
    attn_kv c;
    char room[64];
    int user;
    good.batch = 2;
    good.kv_heads = 2;
    good.head_dim = 8;
    good.capacity = 16;
    good.user = &user;
#define REFUSES(field, value, status, words) do { a = good; a.field = value; memset(&c, 0x55, sizeof c); \
        REFUSED(attn_kv_init(&c, &a), status, "attn_kv_init: " words); \
        CHECK(refusal_user() == &user); \
        REFUSED_SIZE(attn_kv_size(&a), status, "attn_kv_size: " words); \
        CHECK(refusal_user() == &user); \
        CHECKF(!c.lengths && attn_kv_append(&c, NULL, NULL, 0, NULL, 0) == ATTN_E_NULL, "usable after an error"); \
        attn_kv_free(&c); } while (0)
    REFUSES(batch, 0, ATTN_E_SIZE, "batch is 0 but must be at least 1");
    REFUSES(batch, -1, ATTN_E_SIZE, "batch is -1");
    REFUSES(kv_heads, 0, ATTN_E_SIZE, "kv_heads is 0");
    REFUSES(head_dim, 0, ATTN_E_SIZE, "head_dim is 0");
    REFUSES(v_head_dim, -1, ATTN_E_SIZE, "v_head_dim is -1");
    REFUSES(capacity, 0, ATTN_E_SIZE, "capacity is 0");
    REFUSES(capacity, -5, ATTN_E_SIZE, "capacity is -5");
    REFUSES(capacity, 2147483647, ATTN_E_OVERFLOW, "capacity is 2147483647");
    good.batch = good.kv_heads = good.head_dim = 1 << 20;
    REFUSES(capacity, 1 << 20, ATTN_E_OVERFLOW,
            "batch 1048576 x kv_heads 1048576 x capacity 1048576, head_dim 1048576");
    REFUSES(capacity, 16, ATTN_E_OVERFLOW, "batch 1048576");           /* batch * kv_heads does not fit an int */
    good.batch = good.kv_heads = 1 << 15;
    good.head_dim = 1 << 10;
    REFUSES(capacity, 1 << 30, ATTN_E_OVERFLOW, "batch 32768");        /* 2^72 bytes of keys */
    good.head_dim = 1;
    good.capacity = 1 << 20;
    REFUSES(v_head_dim, 1 << 30, ATTN_E_OVERFLOW, "batch 32768");      /* 2^82 bytes of values */
    if (sizeof(size_t) == 8) {
        good.batch = 1 << 10;
        good.capacity = 1 << 20;
        good.head_dim = 1 << 14;
        REFUSES(v_head_dim, 1 << 14, ATTN_E_OVERFLOW, "batch 1024");   /* 2^61 of either, and a little more */
        good.batch = 6361;                                             /* 6361 * 69431 * 20394401 = 2^53 - 1: */
        good.kv_heads = 1;
        good.head_dim = 20394401 - 16;
        good.v_head_dim = 16;
        REFUSES(capacity, 128 * 69431, ATTN_E_OVERFLOW, "batch 6361"); /* 2^62 - 512, and the lengths */
        good.v_head_dim = 0;
    }
#undef REFUSES
    good.batch = good.kv_heads = 1;
    good.head_dim = 8;
    REFUSED(attn_kv_init(NULL, &good), ATTN_E_NULL, "attn_kv_init: c is NULL");
    REFUSED(attn_kv_init(&c, NULL), ATTN_E_NULL, "attn_kv_init: the attn_kv_args are NULL");
    REFUSED_SIZE(attn_kv_size(NULL), ATTN_E_NULL, "attn_kv_size: the attn_kv_args are NULL");
    {   /* lengths alone do not make a cache */
        int lengths[1] = {0};
        memset(&c, 0, sizeof c);
        c.shape = good;
        c.lengths = lengths;
        CHECK(attn_kv_append(&c, (float *)(void *)room, (float *)(void *)room, 1, NULL, 0) == ATTN_E_NULL);
        CHECK(attn_kv_truncate(&c, 0, 0) == ATTN_E_NULL && lengths[0] == 0);
    }
    good.batch = good.kv_heads = 1;
    good.head_dim = 8;
    good.capacity = 16;
    good.mem = room;
    good.mem_size = sizeof room;
    REFUSED(attn_kv_init(&c, &good), ATTN_E_WORK, "attn_kv_init: mem_size is 64 but attn_kv_size asks for 8787");
    CHECK(attn_kv_size(&good) == 8787);
    good.mem = malloc(attn_kv_size(&good));
    good.mem_size = attn_kv_size(&good) - 1;
    CHECK(attn_kv_init(&c, &good) == ATTN_E_WORK);
    good.mem_size++;
    CHECK(attn_kv_init(&c, &good) == ATTN_OK);
    attn_kv_free(&c);
    free(good.mem);
}

/* attention refuses a cache that does not fit, and says what does not */
static void wrong_readers(void)
{
    float q[2 * 4 * 8], out[2 * 4 * 8], k[2 * 3 * 2 * 8];
    const int map[2] = {0, 2}, lengths[2] = {3, 4};
    attn_kv_args s = {0};
    attn_kv c, zero;
    attn_args good = {0}, a;
    char why[200];
    memset(k, 0, sizeof k);
    memset(q, 0, sizeof q);
    memset(&zero, 0, sizeof zero);
    s.batch = 2;
    s.kv_heads = 2;
    s.head_dim = 8;
    s.capacity = 16;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(attn_kv_append(&c, k, k, 3, NULL, 0) == ATTN_OK);
    good.q = q;
    good.out = out;
    good.batch = 2;
    good.n_q = 1;
    good.heads = 4;
    good.kv = &c;
    CHECK(attn_sdpa(&good) == ATTN_OK);
#define REFUSES(field, value, status, word) do { a = good; a.field = value; memset(out, 0x77, sizeof out); \
        CHECKF(attn_check(&a, why, sizeof why) == (status), "%s = %s: %s", #field, #value, why); \
        CHECKF(strstr(why, word) != NULL, "%s = %s does not speak of %s: %s", #field, #value, word, why); \
        CHECKF(attn_sdpa(&a) == (status), "%s = %s", #field, #value); \
        for (size_t at = 0; at < sizeof out; at++) if (((unsigned char *)out)[at] != 0x77) { \
            CHECKF(0, "%s = %s wrote", #field, #value); break; } } while (0)
    REFUSES(kv, &zero, ATTN_E_NULL, "kv");
    REFUSES(kv_heads, 4, ATTN_E_SIZE, "kv_heads");
    REFUSES(head_dim, 16, ATTN_E_SIZE, "head_dim");
    REFUSES(v_head_dim, 4, ATTN_E_SIZE, "v_head_dim");
    REFUSES(k, k, ATTN_E_CONFLICT, "k");
    REFUSES(n_k, 2, ATTN_E_SIZE, "n_k");
    REFUSES(batch, 3, ATTN_E_SIZE, "batch");
    REFUSES(k_map, map, ATTN_E_MAP, "k_map");
    REFUSES(k_lengths, lengths, ATTN_E_LENGTHS, "k_lengths");
    REFUSES(heads, 3, ATTN_E_HEADS, "heads");
#undef REFUSES
    attn_kv_free(&c);
}

void kv_allocation(void);                 /* layers_memory.c: these need an implementation of their own */

extern const test_case suite_kv[];
SUITE(kv) = {
    {"random histories", random_histories, "a key or value that lands, moves or is cut off wrongly in the panels"},
    {"steps are prefill", steps_are_prefill, "decoding in pieces that gives other bits than the whole prompt"},
    {"shared memory", shared_memory, "k_map over a cache reading another entry than a copy would hold"},
    {"beams alone", beams_alone, "a beam that keeps something of another one after reorder"},
    {"truncate all", truncate_all, "entry -1 going half way before it meets an entry that is too short"},
    {"wrong calls", wrong_calls, "an error that has changed the cache already, or no error at all"},
    {"neighbours", neighbours, "rows beside the cache taken for rows inside it, or the other way round"},
    {"wrong shapes", wrong_shapes,
     "sizes that overflow or vanish, memory that is too small, an unusable cache that crashes"},
    {"allocation", kv_allocation, "an allocation after init, or one that fails and is used all the same"},
    {"wrong readers", wrong_readers, "attention over a cache of other heads, dims or entries"},
    {0}};
