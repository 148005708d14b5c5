/* test_kv.c: the K/V cache against a model that keeps plain rows. What a cache holds is seen through attention: reading
 * it must give the bits that the plain rows give. */
#include "test.h"

enum { MOST = 600, MOST_BATCH = 5, MOST_WIDTH = 3 * 40 };

/* ---- the model: rows as they came, one list per entry ------------------------------------------------------- */
typedef struct model {
    attn_kv_args shape;
    int v_head_dim, length[MOST_BATCH];
    float *k[MOST_BATCH], *v[MOST_BATCH];                     /* [capacity][kv_heads][head_dim or v_head_dim] */
} model;

static size_t k_row(const model *m) { return (size_t)m->shape.kv_heads * (size_t)m->shape.head_dim; }
static size_t v_row(const model *m) { return (size_t)m->shape.kv_heads * (size_t)m->v_head_dim; }

static float *floats(size_t n)
{
    float *p = malloc((n + 1) * sizeof(float));
    if (!p) abort();
    return p;
}

static void model_make(model *m, const attn_kv_args *a)
{
    memset(m, 0, sizeof *m);
    m->shape = *a;
    m->v_head_dim = a->v_head_dim ? a->v_head_dim : a->head_dim;
    for (int b = 0; b < a->batch; b++) {
        m->k[b] = floats((size_t)a->capacity * k_row(m));
        m->v[b] = floats((size_t)a->capacity * v_row(m));
    }
}

static void model_free(model *m)
{
    for (int b = 0; b < m->shape.batch; b++) { free(m->k[b]); free(m->v[b]); }
}

static void model_append(model *m, const float *k, const float *v, int n, const int *counts)
{
    for (int b = 0; b < m->shape.batch; b++) {
        size_t rows = (size_t)(counts ? counts[b] : n), at = (size_t)m->length[b];
        memcpy(m->k[b] + at * k_row(m), k + (size_t)b * (size_t)n * k_row(m), rows * k_row(m) * sizeof(float));
        memcpy(m->v[b] + at * v_row(m), v + (size_t)b * (size_t)n * v_row(m), rows * v_row(m) * sizeof(float));
        m->length[b] += (int)rows;
    }
}

static void model_copy(model *m, int to, const model *from, int entry, int length)
{
    memcpy(m->k[to], from->k[entry], (size_t)length * k_row(m) * sizeof(float));
    memcpy(m->v[to], from->v[entry], (size_t)length * v_row(m) * sizeof(float));
    m->length[to] = length;
}

static void model_reorder(model *m, const int *map)
{
    model old;
    model_make(&old, &m->shape);
    for (int b = 0; b < m->shape.batch; b++) model_copy(&old, b, m, b, m->length[b]);
    for (int b = 0; b < m->shape.batch; b++) model_copy(m, b, &old, map[b], old.length[map[b]]);
    model_free(&old);
}

/* ---- reading: from the cache and from the model's rows, bit for bit ----------------------------------------- */
typedef struct reading { int group, n_q, causal, backend, width, window; } reading;

static int same_reading(const attn_kv *c, const model *m, const reading *how, rng *r)
{
    const attn_kv_args *s = &m->shape;
    const int heads = s->kv_heads * how->group, n_k = s->capacity;
    const size_t n_out = (size_t)(s->batch * how->n_q * heads * m->v_head_dim),
                 n_w = (size_t)(s->batch * heads * how->n_q * n_k);
    float *q = floats((size_t)(s->batch * how->n_q * heads * s->head_dim));
    float *k = floats((size_t)(s->batch * n_k) * k_row(m)), *v = floats((size_t)(s->batch * n_k) * v_row(m));
    float *out = floats(2 * n_out), *weights = floats(2 * n_w);
    attn_exec exec = test_exec(how->width > 0 ? how->width : 1);
    attn_args a = {0};
    int same;
    rng_fill(r, q, (size_t)(s->batch * how->n_q * heads * s->head_dim));
    for (size_t i = 0; i < (size_t)(s->batch * n_k) * k_row(m); i++) k[i] = NAN;          /* behind the end: nothing */
    for (size_t i = 0; i < (size_t)(s->batch * n_k) * v_row(m); i++) v[i] = NAN;
    for (int b = 0; b < s->batch; b++) {
        memcpy(k + (size_t)(b * n_k) * k_row(m), m->k[b], (size_t)m->length[b] * k_row(m) * sizeof(float));
        memcpy(v + (size_t)(b * n_k) * v_row(m), m->v[b], (size_t)m->length[b] * v_row(m) * sizeof(float));
    }
    memset(out, 0, 2 * n_out * sizeof(float));
    memset(weights, 0, 2 * n_w * sizeof(float));
    a.out = out;
    a.q = q;
    a.batch = s->batch;
    a.n_q = how->n_q;
    a.n_k = n_k;
    a.heads = heads;
    a.kv_heads = s->kv_heads;
    a.head_dim = s->head_dim;
    a.v_head_dim = m->v_head_dim;
    a.causal = how->causal;
    a.window_left = how->window;
    a.backend = how->backend;
    a.weights = weights;
    a.exec = how->width > 0 ? &exec : NULL;
    a.kv = c;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    a.kv = NULL;
    a.k = k;
    a.v = v;
    a.k_lengths = m->length;
    a.out = out + n_out;
    a.weights = weights + n_w;
    a.exec = NULL;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    same = same_bits(out, out + n_out, n_out) && same_bits(weights, weights + n_w, n_w);
    for (int b = 0; b < s->batch; b++) same = same && c->lengths[b] == m->length[b];
    free(q); free(k); free(v); free(out); free(weights);
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
static void random_histories(void)
{
    rng seeds = rng_make(test_seed);
    for (int i = 0; i < 150 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        attn_kv_args a = shape_draw(&r);
        attn_kv c;
        model m;
        float *mem = rng_int(&r, 0, 1) ? cache_memory(&a, &r) : NULL;
        CHECK(attn_kv_init(&c, &a) == ATTN_OK);
        model_make(&m, &a);
        for (int op = 0; op < 25 && !test_failed(); op++) {
            int what = rng_int(&r, 0, 9), entry = rng_int(&r, 0, a.batch - 1);
            if (what <= 4) { /* append, sometimes more than there is room for */
                int n = what == 0 ? rng_int(&r, 0, a.capacity) : rng_int(&r, 0, 20), counts[MOST_BATCH] = {0}, full = 0;
                const int all = rng_int(&r, 0, 1);
                float *k = floats((size_t)(a.batch * n) * k_row(&m)), *v = floats((size_t)(a.batch * n) * v_row(&m));
                rng_fill(&r, k, (size_t)(a.batch * n) * k_row(&m));
                rng_fill(&r, v, (size_t)(a.batch * n) * v_row(&m));
                for (int b = 0; b < a.batch; b++) {
                    counts[b] = all ? n : rng_int(&r, 0, n);
                    full |= m.length[b] + counts[b] > a.capacity;
                }
                attn_status status = attn_kv_append(&c, k, v, n, all ? NULL : counts);
                CHECKF(status == (full ? ATTN_E_FULL : ATTN_OK), "seed %llu op %d: append says %d", seed, op,
                       (int)status);
                if (!full) model_append(&m, k, v, n, counts);
                free(k);
                free(v);
            } else if (what == 5) {
                int length = rng_int(&r, 0, m.length[entry]);
                CHECK(attn_kv_truncate(&c, entry, length) == ATTN_OK);
                m.length[entry] = length;
            } else if (what == 6) {
                int map[MOST_BATCH] = {0};
                for (int b = 0; b < a.batch; b++) map[b] = rng_int(&r, 0, a.batch - 1);
                CHECK(attn_kv_reorder(&c, map) == ATTN_OK);
                model_reorder(&m, map);
            } else if (what == 7) {
                int from = rng_int(&r, 0, a.batch - 1), length = rng_int(&r, 0, m.length[from]);
                CHECK(attn_kv_copy(&c, entry, from, length) == ATTN_OK);
                if (entry != from) model_copy(&m, entry, &m, from, length);
                m.length[entry] = length;
            } else if (what == 8 && rng_int(&r, 0, 3) == 0) {
                CHECK(attn_kv_reset(&c, entry) == ATTN_OK);
                m.length[entry] = 0;
            }
            reading how = reading_draw(&r);
            CHECKF(same_reading(&c, &m, &how, &r),
                   "seed %llu op %d (kind %d): the cache (batch %d, %d heads, head_dim %d/%d, capacity "
                   "%d) is not what was put in; n_q %d causal %d backend %d width %d",
                   seed, op, what, a.batch, a.kv_heads, a.head_dim, a.v_head_dim, a.capacity, how.n_q, how.causal, how.backend,
                   how.width);
        }
        attn_kv_free(&c);
        guard_free(mem);
        model_free(&m);
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
            CHECK(attn_kv_append(&c, k + at * kv_heads * head_dim, v + at * kv_heads * head_dim, rows, NULL) == ATTN_OK);
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
    CHECK(attn_kv_append(&shared, k, v, NK, lengths) == ATTN_OK);
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
        CHECK(attn_kv_append(&copied, kk, vv, NK, counts) == ATTN_OK);
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
        CHECK(attn_kv_append(&beams, k[0], v[0], 1, NULL) == ATTN_OK);
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
            CHECK(attn_kv_append(&alone, history_k[b][0], history_v[b][0], t + 1, NULL) == ATTN_OK);
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
    CHECK(attn_kv_append(&c, k, v, 10, counts) == ATTN_OK);
    CHECK(attn_kv_truncate(&c, -1, 4) == ATTN_E_LENGTHS);              /* entry 2 has 3 */
    for (int b = 0; b < 4; b++) CHECK(c.lengths[b] == counts[b]);
    CHECK(attn_kv_truncate(&c, -1, 3) == ATTN_OK);
    for (int b = 0; b < 4; b++) CHECK(c.lengths[b] == 3);
    CHECK(attn_kv_reset(&c, -1) == ATTN_OK);
    for (int b = 0; b < 4; b++) CHECK(c.lengths[b] == 0);
    attn_kv_free(&c);
}

/* ---- wrong calls: the status, and nothing changed ----------------------------------------------------------- */
static void wrong_calls(void)
{
    rng r = rng_make(test_seed + 4);
    attn_kv_args s = {0};
    attn_kv c, before;
    model m;
    float k[2 * 40 * 2 * 5], v[2 * 40 * 2 * 3], *mem;
    size_t size;
    unsigned char *copy;
    const int over[2] = {1, 31}, negative[2] = {0, -1}, more[2] = {1, 5}, map_low[2] = {0, -1}, map_high[2] = {2, 0};
    rng_fill(&r, k, sizeof k / sizeof *k);
    rng_fill(&r, v, sizeof v / sizeof *v);
    s.batch = 2;
    s.kv_heads = 2;
    s.head_dim = 5;
    s.v_head_dim = 3;
    s.capacity = 40;
    mem = cache_memory(&s, &r);
    size = s.mem_size;
    copy = malloc(size);
    if (!copy) abort();
    model_make(&m, &s);
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(attn_kv_append(&c, k, v, 10, NULL) == ATTN_OK);
    model_append(&m, k, v, 10, NULL);
    memcpy(copy, s.mem, size);
    before = c;
#define REFUSES(call, status) do { CHECKF((call) == (status), "%s is %d", #call, (int)(call)); \
        CHECKF(!memcmp(copy, s.mem, size) && !memcmp(&before, &c, sizeof c), "%s changed the cache", #call); } while (0)
    REFUSES(attn_kv_append(&c, k, v, 31, NULL), ATTN_E_FULL);
    REFUSES(attn_kv_append(&c, k, v, 31, over), ATTN_E_FULL);
    REFUSES(attn_kv_append(&c, k, v, 2147483647, NULL), ATTN_E_FULL);
    REFUSES(attn_kv_append(&c, k, v, -1, NULL), ATTN_E_SIZE);
    REFUSES(attn_kv_append(&c, k, v, 3, negative), ATTN_E_LENGTHS);
    REFUSES(attn_kv_append(&c, k, v, 3, more), ATTN_E_LENGTHS);
    REFUSES(attn_kv_append(&c, NULL, v, 3, NULL), ATTN_E_NULL);
    REFUSES(attn_kv_append(&c, k, NULL, 3, NULL), ATTN_E_NULL);
    REFUSES(attn_kv_append(&c, NULL, NULL, 0, NULL), ATTN_OK);
    REFUSES(attn_kv_append(NULL, k, v, 1, NULL), ATTN_E_NULL);
    REFUSES(attn_kv_truncate(&c, 0, 11), ATTN_E_LENGTHS);
    REFUSES(attn_kv_truncate(&c, 0, -1), ATTN_E_LENGTHS);
    REFUSES(attn_kv_truncate(&c, 2, 0), ATTN_E_MAP);
    REFUSES(attn_kv_truncate(&c, -2, 0), ATTN_E_MAP);
    REFUSES(attn_kv_truncate(NULL, 0, 0), ATTN_E_NULL);
    REFUSES(attn_kv_reset(&c, 2), ATTN_E_MAP);
    REFUSES(attn_kv_reorder(&c, NULL), ATTN_E_NULL);
    REFUSES(attn_kv_reorder(NULL, map_low), ATTN_E_NULL);
    REFUSES(attn_kv_reorder(&c, map_low), ATTN_E_MAP);
    REFUSES(attn_kv_reorder(&c, map_high), ATTN_E_MAP);
    REFUSES(attn_kv_copy(&c, 2, 0, 1), ATTN_E_MAP);
    REFUSES(attn_kv_copy(&c, 0, -1, 1), ATTN_E_MAP);
    REFUSES(attn_kv_copy(&c, -1, 0, 1), ATTN_E_MAP);
    REFUSES(attn_kv_copy(&c, 0, 2, 1), ATTN_E_MAP);
    REFUSES(attn_kv_copy(&c, 0, 1, 11), ATTN_E_LENGTHS);
    REFUSES(attn_kv_copy(&c, 0, 1, -1), ATTN_E_LENGTHS);
    REFUSES(attn_kv_copy(NULL, 0, 0, 0), ATTN_E_NULL);
    REFUSES(attn_kv_copy(&c, 1, 1, 10), ATTN_OK);                      /* onto itself, whole: the cache stays as it is */
#undef REFUSES
    attn_kv_free(&c);
    attn_kv_free(&c);                                                  /* a freed one, a zeroed one, none: fine */
    attn_kv_free(NULL);
    CHECK(attn_kv_append(&c, k, v, 1, NULL) == ATTN_E_NULL);
    CHECK(attn_kv_truncate(&c, -1, 0) == ATTN_E_NULL);
    CHECK(attn_kv_reset(&c, -1) == ATTN_E_NULL);
    CHECK(attn_kv_reorder(&c, over) == ATTN_E_NULL);
    CHECK(attn_kv_copy(&c, 0, 0, 0) == ATTN_E_NULL);
    model_free(&m);
    guard_free(mem);
    free(copy);
}

static void wrong_shapes(void)
{
    attn_kv_args good = {0}, a;
    attn_kv c;
    char room[64];
    good.batch = 2;
    good.kv_heads = 2;
    good.head_dim = 8;
    good.capacity = 16;
#define REFUSES(field, value, status) do { a = good; a.field = value; memset(&c, 0x55, sizeof c); \
        CHECKF(attn_kv_init(&c, &a) == (status), "%s = %s", #field, #value); \
        CHECKF(attn_kv_size(&a) == (size_t)-1, "size of %s = %s", #field, #value); \
        CHECKF(!c.lengths && attn_kv_append(&c, NULL, NULL, 0, NULL) == ATTN_E_NULL, "usable after an error"); \
        attn_kv_free(&c); } while (0)
    REFUSES(batch, 0, ATTN_E_SIZE);
    REFUSES(batch, -1, ATTN_E_SIZE);
    REFUSES(kv_heads, 0, ATTN_E_SIZE);
    REFUSES(head_dim, 0, ATTN_E_SIZE);
    REFUSES(v_head_dim, -1, ATTN_E_SIZE);
    REFUSES(capacity, 0, ATTN_E_SIZE);
    REFUSES(capacity, -5, ATTN_E_SIZE);
    REFUSES(capacity, 2147483647, ATTN_E_OVERFLOW);
    good.batch = good.kv_heads = good.head_dim = 1 << 20;
    REFUSES(capacity, 1 << 20, ATTN_E_OVERFLOW);
    REFUSES(capacity, 16, ATTN_E_OVERFLOW);                            /* batch * kv_heads alone does not fit an int */
    good.batch = good.kv_heads = 1 << 15;
    good.head_dim = 1 << 10;
    REFUSES(capacity, 1 << 30, ATTN_E_OVERFLOW);                       /* 2^72 bytes of keys */
    good.head_dim = 1;
    good.capacity = 1 << 20;
    REFUSES(v_head_dim, 1 << 30, ATTN_E_OVERFLOW);                          /* 2^82 bytes of values */
    if (sizeof(size_t) == 8) {
        good.batch = 1 << 10;
        good.capacity = 1 << 20;
        good.head_dim = 1 << 14;
        REFUSES(v_head_dim, 1 << 14, ATTN_E_OVERFLOW);                      /* 2^61 of either, and a little more */
        good.batch = 6361;                                             /* 6361 * 69431 * 20394401 = 2^53 - 1: */
        good.kv_heads = 1;
        good.head_dim = 20394401 - 16;
        good.v_head_dim = 16;
        REFUSES(capacity, 128 * 69431, ATTN_E_OVERFLOW);               /* 2^62 - 512, and the lengths */
        good.v_head_dim = 0;
    }
#undef REFUSES
    good.batch = good.kv_heads = 1;
    good.head_dim = 8;
    CHECK(attn_kv_init(NULL, &good) == ATTN_E_NULL);
    CHECK(attn_kv_init(&c, NULL) == ATTN_E_NULL);
    CHECK(attn_kv_size(NULL) == (size_t)-1);
    {   /* lengths alone do not make a cache */
        int lengths[1] = {0};
        memset(&c, 0, sizeof c);
        c.shape = good;
        c.lengths = lengths;
        CHECK(attn_kv_append(&c, (float *)(void *)room, (float *)(void *)room, 1, NULL) == ATTN_E_NULL);
        CHECK(attn_kv_truncate(&c, 0, 0) == ATTN_E_NULL && lengths[0] == 0);
    }
    good.batch = good.kv_heads = 1;
    good.head_dim = 8;
    good.capacity = 16;
    good.mem = room;
    good.mem_size = sizeof room;
    CHECK(attn_kv_init(&c, &good) == ATTN_E_WORK);
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
    CHECK(attn_kv_append(&c, k, k, 3, NULL) == ATTN_OK);
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
    {"wrong shapes", wrong_shapes,
     "sizes that overflow or vanish, memory that is too small, an unusable cache that crashes"},
    {"allocation", kv_allocation, "an allocation after init, or one that fails and is used all the same"},
    {"wrong readers", wrong_readers, "attention over a cache of other heads, dims or entries"},
    {0}};
