/* test_kv.c: the K/V cache: keys in pieces, shared, truncated, and rejected calls. Random histories of all operations
 * are in test_pages.c, saved entries in test_saved.c. */
#include "kv_look.h"

static float *floats(size_t n) { return look_floats(n); }

/* ---- one token at a time, or in any pieces ------------------------------------------------------------------ */
/* The stride of a single row is not used, not even to compute an address. */
static void one_row(void)
{
    rng r = rng_make(test_seed);
    for (int format = 0; format < 8; format++) {
        attn_kv_args s = {.batch = 1, .kv_heads = 2, .head_dim = 5, .v_head_dim = 3, .capacity = 200,
                          .k_storage = (attn_storage)(format % 4), .v_storage = (attn_storage)(format % 4),
                          .v_in_k = format / 4};
        float k[10], v[6];
        attn_kv near, far;
        CHECK(attn_kv_init(&near, &s) == ATTN_OK && attn_kv_init(&far, &s) == ATTN_OK);
        for (int i = 0; i < 140; i++) {
            rng_fill(&r, k, 10); rng_fill(&r, v, 6);
            CHECK(attn_kv_append(&near, 0, k, s.v_in_k ? NULL : v, 1, 0) == ATTN_OK);
            CHECK(attn_kv_append(&far, i % 2 ? -1 : 0, k, s.v_in_k ? NULL : v, 1, PTRDIFF_MAX) == ATTN_OK);
        }
        size_t size = attn_kv_saved(&near, 0);
        unsigned char *a = malloc(size), *b = malloc(size);
        if (!a || !b) abort();
        CHECK(attn_kv_save(&near, 0, a, size) == ATTN_OK && attn_kv_save(&far, 0, b, size) == ATTN_OK);
        CHECKF(!memcmp(a, b, size), "format %d", format);
        free(a); free(b);
        attn_kv_free(&near); attn_kv_free(&far);
    }
}

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
            CHECK(attn_kv_append(&c, -1, k + at * kv_heads * head_dim, v + at * kv_heads * head_dim, rows, 0) ==
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
    CHECK(append_counts(&shared, k, v, NK, lengths, 0) == ATTN_OK);
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
        CHECK(append_counts(&copied, kk, vv, NK, counts, 0) == ATTN_OK);
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
        CHECK(attn_kv_append(&beams, -1, k[0], v[0], 1, 0) == ATTN_OK);
        a.q = q[0];
        a.out = got[0];
        a.batch = BEAMS;
        a.n_q = 1;
        a.heads = H;
        a.kv = &beams;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        for (int b = 0; b < BEAMS; b++) { /* this beam decoded separately, with another cache */
            s.batch = 1;
            CHECK(attn_kv_init(&alone, &s) == ATTN_OK);
            CHECK(attn_kv_append(&alone, -1, history_k[b][0], history_v[b][0], t + 1, 0) == ATTN_OK);
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
    CHECK(append_counts(&c, k, v, 10, counts, 0) == ATTN_OK);
    CHECK(attn_kv_truncate(&c, -1, 4) == ATTN_E_LENGTHS);              /* entry 2 has 3 */
    for (int b = 0; b < 4; b++) CHECK(c.lengths[b] == counts[b]);
    CHECK(attn_kv_truncate(&c, -1, 3) == ATTN_OK);
    for (int b = 0; b < 4; b++) CHECK(c.lengths[b] == 3);
    CHECK(attn_kv_copy(&c, 1, 1, 2) == ATTN_OK);                      /* onto itself: truncate, no new holder */
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
    attn_kv c, zero = {0};
    float k[2 * N * K_ROW], v[2 * N * V_ROW];
    unsigned char *mem;
    size_t size;
    unsigned char *copy;
    int user;
    const int map_low[2] = {0, -1}, map_high[2] = {2, 0};
    rng_fill(&r, k, sizeof k / sizeof *k);
    rng_fill(&r, v, sizeof v / sizeof *v);
    s.batch = 2;
    s.kv_heads = 2;
    s.head_dim = 5;
    s.v_head_dim = 3;
    s.capacity = N;
    s.user = &user;
    mem = look_memory(&s, &r);
    size = s.mem_size;
    copy = malloc(size);
    if (!copy) abort();
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(attn_kv_append(&c, -1, k, v, 10, 0) == ATTN_OK && attn_kv_append(&c, 1, k, v, 1, 0) == ATTN_OK);
    memcpy(copy, s.mem, size);
    refusal_tells(&user);
    refusal_keeps(s.mem, size);
    refusal_keeps(&c, sizeof c);
    REFUSED(attn_kv_append(&c, -1, k, v, 31, 0), ATTN_E_FULL,
            "attn_kv_append: entry 0 of the cache holds 10 of 40 keys, no room for 31 more");
    REFUSED(attn_kv_append(&c, -1, k, v, 30, 0), ATTN_E_FULL,
            "attn_kv_append: entry 1 of the cache holds 11 of 40 keys, no room for 30 more");
    REFUSED(attn_kv_append(&c, 1, k, v, 30, 0), ATTN_E_FULL,
            "attn_kv_append: entry 1 of the cache holds 11 of 40 keys, no room for 30 more");
    REFUSED(attn_kv_append(&c, 2, k, v, 1, 0), ATTN_E_MAP,
            "attn_kv_append: entry is 2 but must be 0..1, or -1 for all");
    REFUSED(attn_kv_append(&c, -2, k, v, 1, 0), ATTN_E_MAP, "attn_kv_append: entry is -2");
    REFUSED(attn_kv_append(&c, -1, k, v, 2147483647, 0), ATTN_E_FULL, "no room for 2147483647 more");
    REFUSED(attn_kv_append(&c, -1, k, v, -1, 0), ATTN_E_SIZE, "attn_kv_append: n is -1 but cannot be negative");
    REFUSED(attn_kv_append(&c, -1, NULL, v, 3, 0), ATTN_E_NULL, "attn_kv_append: k is NULL");
    REFUSED(attn_kv_append(&c, -1, k, NULL, 3, 0), ATTN_E_NULL, "attn_kv_append: v is NULL");
    REFUSED(attn_kv_append(&c, -1, k, v, 3, -1), ATTN_E_STRIDE, "attn_kv_append: row_stride is -1 but cannot");
    REFUSED(attn_kv_append(&c, -1, k, v, 0, -1), ATTN_E_STRIDE, "row_stride is -1");
    REFUSED(attn_kv_append(&c, -1, k, v, 3, K_ROW - 1), ATTN_E_STRIDE,
            "attn_kv_append: row_stride is 9 but a row of k has 10 floats");
    REFUSED(attn_kv_append(&c, -1, k, v, 3, PTRDIFF_MAX), ATTN_E_OVERFLOW, "attn_kv_append: k is too large: 2 x 3");
    REFUSED(attn_kv_append(&c, -1, k, v, 3, PTRDIFF_MAX / 6), ATTN_E_OVERFLOW, "attn_kv_append: k is too large");
    REFUSED(attn_kv_append(&c, 0, k, v, 3, PTRDIFF_MAX), ATTN_E_OVERFLOW, "attn_kv_append: k is too large: 1 x 3");
    /* the rows before the last one span the whole address space: one row more wraps around */
    REFUSED(attn_kv_append(&c, -1, k, v, 3, (ptrdiff_t)(SIZE_MAX / 5)), ATTN_E_OVERFLOW, "k is too large: 2 x 3");
    REFUSED(attn_kv_append(&c, 0, k, v, 3, (ptrdiff_t)(SIZE_MAX / 2)), ATTN_E_OVERFLOW, "k is too large: 1 x 3");
    REFUSED(attn_kv_append(&c, -1, c.memory, v, 1, 0), ATTN_E_OVERLAP,
            "attn_kv_append: the memory of c overlaps k");
    REFUSED(attn_kv_append(&c, -1, k, c.memory + c.page_v / sizeof(float) + 5, 1, 0), ATTN_E_OVERLAP, "overlaps v");
    REFUSED(attn_kv_append(&c, -1, (float *)(void *)((char *)k + 2), v, 1, 0), ATTN_E_ALIGN, "k is not aligned");
    REFUSED(attn_kv_append(&c, -1, k, (float *)(void *)((char *)v + 1), 1, 0), ATTN_E_ALIGN, "v is not aligned");
    REFUSED(attn_kv_reorder(&c, (const int *)(const void *)((const char *)map_low + 2)), ATTN_E_ALIGN, "map is not");
    REFUSED(attn_kv_truncate(&c, 0, 11), ATTN_E_LENGTHS, "attn_kv_truncate: length is 11 but entry 0 holds 10 keys");
    REFUSED(attn_kv_truncate(&c, 0, -1), ATTN_E_LENGTHS, "attn_kv_truncate: length is -1 but entry 0");
    REFUSED(attn_kv_truncate(&c, 2, 0), ATTN_E_MAP, "attn_kv_truncate: entry is 2 but must be 0..1, or -1 for all");
    REFUSED(attn_kv_truncate(&c, -2, 0), ATTN_E_MAP, "entry is -2");
    REFUSED(attn_kv_reset(&c, 2), ATTN_E_MAP, "attn_kv_reset: entry is 2");
    REFUSED(attn_kv_reorder(&c, NULL), ATTN_E_NULL, "attn_kv_reorder: map is NULL");
    REFUSED(attn_kv_reorder(&c, map_low), ATTN_E_MAP, "attn_kv_reorder: map[1] is -1 but must be 0..1");
    REFUSED(attn_kv_reorder(&c, map_high), ATTN_E_MAP, "attn_kv_reorder: map[0] is 2");
    REFUSED(attn_kv_reorder(&c, c.holders), ATTN_E_OVERLAP, "attn_kv_reorder: the memory of c overlaps map");
    REFUSED(attn_kv_copy(&c, 2, 0, 1), ATTN_E_MAP, "attn_kv_copy: to is 2 but must be 0..1");
    REFUSED(attn_kv_copy(&c, 0, -1, 1), ATTN_E_MAP, "attn_kv_copy: from is -1");
    REFUSED(attn_kv_copy(&c, -1, 0, 1), ATTN_E_MAP, "to is -1");
    REFUSED(attn_kv_copy(&c, 0, 2, 1), ATTN_E_MAP, "from is 2");
    REFUSED(attn_kv_copy(&c, 0, 1, 12), ATTN_E_LENGTHS, "attn_kv_copy: length is 12 but entry 1 holds 11 keys");
    REFUSED(attn_kv_copy(&c, 0, 1, -1), ATTN_E_LENGTHS, "length is -1");
    refusal_forget();
    REFUSED(attn_kv_append(NULL, -1, k, v, 1, 0), ATTN_E_NULL, "attn_kv_append: c is NULL");
    REFUSED(attn_kv_truncate(NULL, 0, 0), ATTN_E_NULL, "attn_kv_truncate: c is NULL");
    REFUSED(attn_kv_reset(NULL, 0), ATTN_E_NULL, "attn_kv_reset: c is NULL");
    REFUSED(attn_kv_reorder(NULL, map_low), ATTN_E_NULL, "attn_kv_reorder: c is NULL");
    REFUSED(attn_kv_copy(NULL, 0, 0, 0), ATTN_E_NULL, "attn_kv_copy: c is NULL");
    CHECK(attn_kv_append(&c, -1, NULL, NULL, 0, 0) == ATTN_OK && !memcmp(copy, s.mem, size));
    attn_kv_free(&c);
    attn_kv_free(&c);                                                 /* freed, zeroed or NULL: allowed */
    attn_kv_free(&zero);
    attn_kv_free(NULL);
    REFUSED(attn_kv_append(&c, -1, k, v, 1, 0), ATTN_E_NULL, "attn_kv_append: c is not a cache");
    REFUSED(attn_kv_truncate(&c, -1, 0), ATTN_E_NULL, "attn_kv_truncate: c is not a cache");
    REFUSED(attn_kv_reset(&c, -1), ATTN_E_NULL, "attn_kv_reset: c is not a cache");
    REFUSED(attn_kv_reorder(&c, map_high), ATTN_E_NULL, "attn_kv_reorder: c is not a cache");
    REFUSED(attn_kv_copy(&c, 0, 0, 0), ATTN_E_NULL, "attn_kv_copy: c is not a cache");
    guard_free(mem);
    free(copy);
}

/* Rows directly before and after the cache in one block of memory are no overlap. */
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
    k = c.memory - ROW;                                              /* ends where the panels begin */
    v = (float *)(void *)((char *)c.memory + c.bytes);
    CHECK(attn_kv_append(&c, -1, k, v, 1, 0) == ATTN_OK);
    REFUSED(attn_kv_append(&c, -1, k + 1, v, 1, 0), ATTN_E_OVERLAP, "overlaps k");
    REFUSED(attn_kv_append(&c, -1, k, v - 1, 1, 0), ATTN_E_OVERLAP, "overlaps v");
    REFUSED(attn_kv_append(&c, -1, k - ROW, v, 2, 2 * ROW - 1), ATTN_E_OVERLAP, "overlaps k");
    CHECK(c.lengths[0] == 1);
    attn_kv_free(&c);
    free(block);
}

/* For refusal_around: memory that is no cache, and after an error of attn_kv_init still is not; attn_kv_size agrees. */
typedef struct made { attn_kv *c; const attn_kv_args *a; } made;

static void spoil_cache(void *it) { memset(((const made *)it)->c, 0x55, sizeof(attn_kv)); }

static void no_cache(void *it)
{
    const made *const m = (const made *)it;
    const attn_status status = refusal_status();
    char reason[256];
    strcpy(reason, strchr(refusal_text(), ':'));
    REFUSED_SIZE(attn_kv_size(m->a), status, reason);
    CHECKF(!m->c->lengths && attn_kv_append(m->c, -1, NULL, NULL, 0, 0) == ATTN_E_NULL, "usable after an error");
    attn_kv_free(m->c);
}

static void wrong_shapes(void)
{
    attn_kv_args good = {0}, a;
    attn_kv c;
    const made it = {&c, &a};
    char room[64];
    int user;
    good.batch = 2;
    good.kv_heads = 2;
    good.head_dim = 8;
    good.capacity = 16;
    good.user = &user;
    refusal_tells(&user);
    refusal_around(spoil_cache, no_cache, (void *)(uintptr_t)&it);
#define CALL attn_kv_init(&c, &a)
    REFUSES(a.batch = 0, ATTN_E_SIZE, "batch is 0 but must be at least 1");
    REFUSES(a.batch = -1, ATTN_E_SIZE, "batch is -1");
    REFUSES(a.kv_heads = 0, ATTN_E_SIZE, "kv_heads is 0");
    REFUSES(a.head_dim = 0, ATTN_E_SIZE, "head_dim is 0");
    REFUSES(a.v_head_dim = -1, ATTN_E_SIZE, "v_head_dim is -1");
    REFUSES(a.capacity = 0, ATTN_E_SIZE, "capacity is 0");
    REFUSES(a.capacity = -5, ATTN_E_SIZE, "capacity is -5");
    REFUSES(a.capacity = 2147483647, ATTN_E_OVERFLOW, "capacity is 2147483647");
    good.batch = good.kv_heads = good.head_dim = 1 << 20;
    REFUSES(a.capacity = 1 << 20, ATTN_E_OVERFLOW,
            "batch 1048576 x kv_heads 1048576 x capacity 1048576, head_dim 1048576");
    REFUSES(a.capacity = 16, ATTN_E_OVERFLOW, "batch 1048576");           /* batch * kv_heads does not fit an int */
    good.batch = good.kv_heads = 1 << 15;
    good.head_dim = 1 << 10;
    REFUSES(a.capacity = 1 << 30, ATTN_E_OVERFLOW, "batch 32768");        /* 2^72 bytes of keys */
    good.batch = 1;
    good.kv_heads = good.head_dim = 1 << 29;
    REFUSES(a.capacity = 128, ATTN_E_OVERFLOW, "batch 1 x kv_heads 536870912");    /* 2^65 numbers of K in a page, */
    good.head_dim = 1;
    good.v_head_dim = 1 << 29;
    REFUSES(a.capacity = 128, ATTN_E_OVERFLOW, "batch 1 x kv_heads 536870912");    /* or of V */
    good.v_head_dim = 0;
    good.kv_heads = 1 << 26;
    good.head_dim = 1 << 28;
    REFUSES(a.capacity = 128, ATTN_E_OVERFLOW, "batch 1 x kv_heads 67108864");     /* 2^62 numbers of both, in floats */
    good.batch = good.kv_heads = 1 << 15;
    good.head_dim = 1;
    good.capacity = 1 << 20;
    REFUSES(a.v_head_dim = 1 << 30, ATTN_E_OVERFLOW, "batch 32768");      /* 2^82 bytes of values */
    if (sizeof(size_t) == 8) {
        good.batch = 1 << 10;
        good.capacity = 1 << 20;
        good.head_dim = 1 << 14;
        REFUSES(a.v_head_dim = 1 << 14, ATTN_E_OVERFLOW, "batch 1024");   /* 2^61 of either, and a little more */
        good.batch = 6361;                                             /* 6361 * 69431 * 20394401 = 2^53 - 1: */
        good.kv_heads = 1;
        good.head_dim = 20394401 - 16;
        good.v_head_dim = 16;
        REFUSES(a.capacity = 128 * 69431, ATTN_E_OVERFLOW, "batch 6361"); /* 2^62 - 512, and the lengths */
        good.v_head_dim = 0;
    }
#undef CALL
    refusal_forget();
    good.batch = good.kv_heads = 1;
    good.head_dim = 8;
    REFUSED(attn_kv_init(NULL, &good), ATTN_E_NULL, "attn_kv_init: c is NULL");
    REFUSED(attn_kv_init(&c, NULL), ATTN_E_NULL, "attn_kv_init: the attn_kv_args are NULL");
    REFUSED_SIZE(attn_kv_size(NULL), ATTN_E_NULL, "attn_kv_size: the attn_kv_args are NULL");
    {   /* lengths without a table are no cache */
        int lengths[1] = {0};
        memset(&c, 0, sizeof c);
        c.shape = good;
        c.lengths = lengths;
        CHECK(attn_kv_append(&c, -1, (float *)(void *)room, (float *)(void *)room, 1, 0) == ATTN_E_NULL);
        CHECK(attn_kv_truncate(&c, 0, 0) == ATTN_E_NULL && lengths[0] == 0);
    }
    good.batch = good.kv_heads = 1;
    good.head_dim = 8;
    good.capacity = 16;
    good.mem = room;
    good.mem_size = sizeof room;
    REFUSED(attn_kv_init(&c, &good), ATTN_E_WORK, "attn_kv_init: mem_size is 64 but attn_kv_size asks for 1639");
    CHECK(attn_kv_size(&good) == 1639);
    good.mem = malloc(attn_kv_size(&good));
    good.mem_size = attn_kv_size(&good) - 1;
    CHECK(attn_kv_init(&c, &good) == ATTN_E_WORK);
    good.mem_size++;
    CHECK(attn_kv_init(&c, &good) == ATTN_OK);
    attn_kv_free(&c);
    free(good.mem);
}

/* For refusal_around: attn_check finds what attn_sdpa has found. */
static void check_agrees(void *a)
{
    const attn_status status = refusal_status();
    char sentence[256], why[200];
    strcpy(sentence, refusal_text());
    CHECK(attn_check((const attn_args *)a, why, sizeof why) == status);
    CHECKF(strstr(sentence, why) != NULL, "attn_sdpa: %s; attn_check: %s", sentence, why);
}

/* attention rejects a cache that does not fit, and the sentence names the difference */
static void wrong_readers(void)
{
    float q[2 * 4 * 8], out[2 * 4 * 8], k[2 * 3 * 2 * 8];
    const int map[2] = {0, 2}, lengths[2] = {3, 4};
    attn_kv_args s = {0};
    attn_kv c, zero;
    attn_args good = {0}, a;
    memset(k, 0, sizeof k);
    memset(q, 0, sizeof q);
    memset(&zero, 0, sizeof zero);
    s.batch = 2;
    s.kv_heads = 2;
    s.head_dim = 8;
    s.capacity = 16;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(attn_kv_append(&c, -1, k, k, 3, 0) == ATTN_OK);
    good.q = q;
    good.out = out;
    good.batch = 2;
    good.n_q = 1;
    good.heads = 4;
    good.kv = &c;
    CHECK(attn_sdpa(&good) == ATTN_OK);
    refusal_keeps(out, sizeof out);
    refusal_around(NULL, check_agrees, &a);
#define CALL attn_sdpa(&a)
    REFUSES(a.kv = &zero, ATTN_E_NULL, "kv");
    REFUSES(a.kv_heads = 4, ATTN_E_SIZE, "kv_heads");
    REFUSES(a.head_dim = 16, ATTN_E_SIZE, "head_dim");
    REFUSES(a.v_head_dim = 4, ATTN_E_SIZE, "v_head_dim");
    REFUSES(a.k = k, ATTN_E_CONFLICT, "k");
    REFUSES(a.n_k = 2, ATTN_E_SIZE, "n_k");
    REFUSES(a.batch = 3, ATTN_E_SIZE, "batch");
    REFUSES(a.k_map = map, ATTN_E_MAP, "k_map");
    REFUSES(a.k_lengths = lengths, ATTN_E_LENGTHS, "k_lengths");
    REFUSES(a.heads = 3, ATTN_E_HEADS, "heads");
#undef CALL
    attn_kv_free(&c);
}

/* causal = 1 over a cache is bottom-right: the newest row sees every key. attn_check doubts top-left rows from
 * position 0 over a longer cache, and nothing else. */
static void causal_of_a_step(void)
{
    enum { KEYS = 9, D = 4 };
    static const int pos[2] = {0, 7}, one_row[2] = {0, 1};
    float q[2 * KEYS * D], k[KEYS * D], v[KEYS * D], one[D], all[D], out[2 * KEYS * D], states[ATTN_STATE(D)];
    char why[512];
    attn_kv_args s = {0};
    attn_kv c;
    attn_args a = attn_args_for(1, 1, 0, 1, D), row = attn_args_for(1, 1, KEYS, 1, D);
    rng r = rng_make(test_seed);
    rng_fill(&r, q, 2 * KEYS * D);
    rng_fill(&r, k, KEYS * D);
    rng_fill(&r, v, KEYS * D);
    s.batch = 2, s.kv_heads = 1, s.head_dim = D, s.capacity = 16;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(attn_kv_append(&c, 0, k, v, KEYS, 0) == ATTN_OK);
    CHECK(attn_kv_append(&c, 1, k, v, 2, 0) == ATTN_OK);
    row.q = q, row.k = k, row.v = v, row.out = all;
    CHECK(attn_sdpa(&row) == ATTN_OK);
    a.q = q, a.kv = &c, a.out = one, a.causal = (attn_causal)1;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    CHECKF(same_bits(one, all, D), "causal 1 hides keys of a cache from its newest row");
#define DOUBTS(change, text) do { attn_args saved = a; change; CHECK(attn_check(&a, why, sizeof why) == ATTN_OK); \
        const char *found = strstr(why, "; "); \
        CHECKF(strcmp(found ? found : "", text) == 0, "%s", why); a = saved; } while (0)
#define SENTENCE "..8 of entry 0 are hidden from every row (new rows of a sequence: bottom-right)"
    DOUBTS(a.n_q = 1, "");
    a.causal = (attn_causal)2, a.out = out;
    DOUBTS(a.n_q = 1, "; causal is top-left: keys 1" SENTENCE);
    DOUBTS(a.n_q = 2; a.batch = 2, "; causal is top-left: keys 2" SENTENCE);
    DOUBTS(a.n_q = KEYS, "");
    DOUBTS(a.n_q = 1; a.batch = 2; a.q_lengths = one_row, "; causal is top-left: keys 1..1 of entry 1 are hidden from "
           "every row (new rows of a sequence: bottom-right)");
    DOUBTS(a.q_pos = 8, "");
    DOUBTS(a.batch = 2; a.q_pos_each = pos, "");
    DOUBTS(a.carry_in = states, "");
    DOUBTS(a.carry_out = states, "");
    DOUBTS(a.causal = ATTN_CAUSAL_NONE, "");
    DOUBTS(a.kv = NULL; a.n_k = KEYS; a.k = k; a.v = v, "");
#undef DOUBTS
#undef SENTENCE
    attn_kv_free(&c);
}

void kv_allocation(void);                 /* private/layers_memory.h */

extern const test_case suite_kv[];
SUITE(kv) = {
    {"steps equal prefill", steps_are_prefill, "decoding in pieces that gives other bits than the whole prompt"},
    {"one row", one_row, "an address after the only row, which a large stride makes undefined"},
    {"k_map", shared_memory, "k_map over a cache that reads another entry than a copy would have"},
    {"beams independent", beams_alone, "a beam that keeps data of another one after reorder"},
    {"truncate all", truncate_all, "entry -1 that truncates some entries before it finds one that is too short"},
    {"rejected calls", wrong_calls, "an error after the cache has changed, or no error"},
    {"rows beside the cache", neighbours,
     "rows next to the memory of the cache rejected as an overlap, or rows inside it accepted"},
    {"rejected shapes", wrong_shapes,
     "sizes that overflow or wrap, memory that is too small, an invalid cache that crashes"},
    {"causal of a step", causal_of_a_step,
     "causal = 1, which a caller of attn_self knows, that hides the keys of a cache; a doubt about the wrong calls"},
    {"allocation", kv_allocation, "an allocation after init, or a failed one that is used"},
    {"rejected readers", wrong_readers, "attention over a cache with other heads, dims or entries"},
    {0}};
