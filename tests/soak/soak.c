/* soak.c: a long run, and many concurrent callers. A separate program with its own implementation, whose allocations
 * are counted and sometimes fail.
 *
 *   build/soak               10 minutes of random work in one process, after 200000 calls by many threads
 *   build/soak 60            minutes; 0: none
 *   build/soak -q            the quick form: 12 seconds and 100000 calls
 *   build/soak -c 1000000    number of concurrent calls; 0: none
 *   build/soak -s 7          another seed; it is printed. Round n of a seed is always the same work:
 *   build/soak -s 7 -r n     only that round
 *
 * at once   Threads share caches, layers and a pool that are only read. Every result must have the bits of the serial
 *           run. The threads run first, so that even CPU detection is called by many at once.
 * life      Every round draws one of: attention with any features, a cache with its history, a layer, masks as
 *           matrices, wrong calls, allocations that fail. The host's control word and exception flags are drawn as
 *           well, and so is the executor: none, threads of the harness, a pool that lives through some rounds. Answers
 *           are compared bit for bit with another backend and form, samples also with the oracle.
 *           After every round nothing may be allocated that was not before.
 * memory    Resident memory of the last third of the life against that of the first; no thread is left.
 *
 * Last line: "soak: N passed, M failed". */
#if !defined(_WIN32) && !defined(__wasm__)
#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#define SOAK_THREADS 1
#define ATTN_THREADS
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#else
#define SOAK_THREADS 0
#include <stdio.h>
#include <stdlib.h>
#endif

/* ---- allocations, counted ----------------------------------------------------------------------------------- */
static struct { long live, calls; int refuse, refused; } heap;         /* refuse: the n-th from now, 0: none */

static void *heap_get(size_t n)
{
    void *p;
    __atomic_fetch_add(&heap.calls, 1, __ATOMIC_RELAXED);
    if (heap.refuse && --heap.refuse == 0) {
        heap.refused = 1;
        return NULL;
    }
    p = malloc(n ? n : 1);
    if (p) __atomic_fetch_add(&heap.live, 1, __ATOMIC_RELAXED);
    return p;
}

static void heap_put(void *p)
{
    if (p) __atomic_fetch_sub(&heap.live, 1, __ATOMIC_RELAXED);
    free(p);
}

#define ATTN_MALLOC(user, n) ((void)(user), heap_get(n))
#define ATTN_FREE(user, p)   ((void)(user), heap_put(p))
#define ATTN_IMPLEMENTATION
#include "hide.h"
#include "cases.h"
#include "control.h"
#include "harness.h"
#include "kv_model.h"

#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <time.h>

/* Returns a number from /proc/self/status; 0 if it is missing. */
static long own_status(const char *name)
{
    char line[256];
    long n = 0;
    const size_t length = strlen(name);
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, name, length) && line[length] == ':') {
            n = strtol(line + length + 1, NULL, 10);
            break;
        }
    if (f) (void)fclose(f);
    return n;
}

static float *room(size_t n)
{
    float *x = (float *)malloc((n + 1) * sizeof *x);
    if (!x) {
        printf("no memory for a test\n");
        exit(3);
    }
    return x;
}

static float *filled(rng *r, size_t n)
{
    float *x = room(n);
    rng_fill(r, x, n);
    return x;
}

static int chance(rng *r, int percent) { return rng_int(r, 0, 99) < percent; }

/* a signal ends a call that hangs */
static void no_longer_than(unsigned seconds)
{
#if SOAK_THREADS
    (void)alarm(seconds);
#else
    (void)seconds;
#endif
}

/* ---- inputs of one round ------------------------------------------------------------------------------------ */
static long first_round, cases, judged, sequences, histories;
static double life_seconds = 600.0;
static attn_backend all[16], one[16];
static int n_all, n_one;

static struct { control_word word; int lost; attn_exec exec; int threads; } host;
#if SOAK_THREADS
static attn_pool *pool;
static int pool_threads;
#endif

static attn_backend any_backend(rng *r) { return all[rng_int(r, 0, n_all - 1)]; }
static attn_backend fma_backend(rng *r) { return one[rng_int(r, 0, n_one - 1)]; }
/* Linears use the best backend. If it has no fma, a layer has the bits of its parts only on that backend. */
static attn_backend layer_backend(rng *r) { return all[0] == one[0] ? fma_backend(r) : all[0]; }

/* an executor for the next call, or NULL */
static const attn_exec *draw_exec(rng *r)
{
    static const int widths[] = {1, 2, 3, 5, 8, 64};
    const int kind = rng_int(r, 0, 9);
    if (kind < 5) return NULL;
    if (kind < 6) host.exec = test_exec(widths[rng_int(r, 0, 5)]);
#if SOAK_THREADS
    else if (pool) host.exec = attn_pool_exec(pool);
#endif
    else return NULL;
    return &host.exec;
}

/* Between host_enters and host_leaves the control word is that of the host, so tests do no arithmetic there. */
#ifdef HAVE_CONTROL
static control_word host_usual;
static void host_enters(rng *r)
{
    const int kind = rng_int(r, -4, CONTROL_HOSTILE - 1);
    host_usual = control_all();
    host.word = kind < 0 ? host_usual & ~CONTROL_FLAGS : control_hostile[kind];
#if defined(__SSE__) || defined(_M_X64)
    host.word |= (control_word)rng_int(r, 0, 0x3F) & CONTROL_FLAGS;
#endif
    control_set(host.word);
}
static void host_leaves(const char *call)
{
    const control_word after = control_all();
    control_set(host_usual);
    CHECKF(after == host.word, "%s leaves the control word %lx, it was %lx", call, (unsigned long)after,
           (unsigned long)host.word);
}
#else
static void host_enters(rng *r) { (void)rng_int(r, -4, 4), (void)rng_int(r, 0, 0x3F); }
static void host_leaves(const char *call) { (void)call; }
#endif

#define HOSTED(r, status, call) (host_enters(r), (status) = (call), host_leaves(#call))

/* ---- attention with any features ---------------------------------------------------------------------------- */
typedef struct prints { uint64_t out, weights, lse; size_t masked; } prints;

static prints prints_of(const sdpa_case *c)
{
    prints p;
    p.out = hash_bits(0, c->out, c->out_size);
    p.weights = c->a.weights ? hash_bits(0, c->weights, c->weights_size) : 0;
    p.lse = c->a.lse ? hash_bits(0, c->lse, c->lse_size) : 0;
    p.masked = c->a.masked_rows ? *c->masked_rows : 0;
    return p;
}

static int prints_same(const prints *a, const prints *b)
{
    return a->out == b->out && a->weights == b->weights && a->lse == b->lse && a->masked == b->masked;
}

/* Puts NaN, infinities, huge and tiny numbers somewhere in q, k and v. */
static void season(rng *r, sdpa_case *c)
{
    static const uint32_t bad[] = {0x7FC00000u, 0xFFC54321u, 0x7F800000u, 0xFF800000u, 0x7FA00001u, 0x7149F2CAu,
                                   0xFF7FFFFFu, 0x00000001u, 0x80000000u};
    float *place[3];
    const size_t size[3] = {c->q_size, c->k_size, c->v_size};
    int n;
    place[0] = c->q, place[1] = c->k, place[2] = c->v;
    for (n = rng_int(r, 1, 6); n > 0; n--) {
        const int where = rng_int(r, 0, 2);
        if (size[where])
            memcpy(place[where] + rng_int(r, 0, (int)size[where] - 1), &bad[rng_int(r, 0, 8)], sizeof(float));
    }
}

static void round_attention(rng *r)
{
    sdpa_case c;
    attn_status status;
    const attn_exec *e;
    prints first, second;
    const int ask_oracle = chance(r, 15);
    case_random_upto(r, &c, chance(r, 10) ? 1e6 : 6e4);
    if (!ask_oracle && chance(r, 25)) season(r, &c);
    cases++;
    e = draw_exec(r);
    c.a.exec = e;
    if (e) c.exec = *e;
    HOSTED(r, status, case_run(&c, ask_oracle ? any_backend(r) : fma_backend(r)));
    CHECKF(status == ATTN_OK, "%s: %s", attn_status_str(status), case_text(&c));
    first = prints_of(&c);
    if (ask_oracle) {
        oracle o;
        oracle_run(&o, &c.a);
        (void)oracle_check(&o, &c.a, case_text(&c));
        oracle_free(&o);
        judged++;
        c.a.backend = c.a.backend == ATTN_SSE2 || c.a.backend == ATTN_WASM ? c.a.backend : fma_backend(r);
    } else {
        c.a.backend = fma_backend(r);
    }
    c.a.exec = NULL;
    HOSTED(r, status, case_run(&c, c.a.backend));
    CHECKF(status == ATTN_OK, "%s: %s", attn_status_str(status), case_text(&c));
    second = prints_of(&c);
    CHECKF(prints_same(&first, &second), "two forms of the same call have other bits: %s", case_text(&c));
    case_free(&c);
}

/* ---- a cache and its history -------------------------------------------------------------------------------- */
typedef struct book { attn_kv kv; kv_model m; } book;

/* The same call over the cache and over plain rows. */
static void book_read(rng *r, const book *b)
{
    const attn_kv_args *s = &b->m.shape;
    const int group = rng_int(r, 1, 3), n_q = chance(r, 70) ? rng_int(r, 1, 3) : rng_int(r, 4, 24), batch = s->batch;
    const int heads = s->kv_heads * group, fma = fma_backend(r);
    const size_t n_lse = (size_t)(batch * heads * n_q), n_w = n_lse * (size_t)s->capacity;
    const size_t n_out = n_lse * (size_t)s->v_head_dim;
    float *q = filled(r, n_lse * (size_t)s->head_dim), *out = room(2 * n_out), *w = room(2 * n_w);
    float *lse = room(2 * n_lse);
    unsigned char *keep = (unsigned char *)room((size_t)(batch * s->capacity));
    int map[KV_MODEL_BATCH], lengths[KV_MODEL_BATCH], plain_lengths[KV_MODEL_BATCH], i;
    attn_args a, p;
    attn_status status;
    memset(&a, 0, sizeof a);
    memset(out, 0x5A, 2 * n_out * sizeof *out);
    memset(w, 0x5A, 2 * n_w * sizeof *w);
    for (i = 0; i < batch * s->capacity; i++) keep[i] = (unsigned char)rng_int(r, 0, 3);
    a.q = q, a.kv = &b->kv, a.batch = batch, a.n_q = n_q, a.n_k = s->capacity;
    a.heads = heads, a.kv_heads = s->kv_heads, a.head_dim = s->head_dim, a.v_head_dim = s->v_head_dim;
    a.causal = rng_int(r, 0, 2);
    a.window_left = chance(r, 25) ? rng_int(r, 1, 200) : 0;
    a.softcap = chance(r, 20) ? 5.0f : 0.0f;
    if (chance(r, 30)) a.keep = keep, a.keep_shape[0] = batch, a.keep_shape[1] = a.keep_shape[2] = 1;
    for (i = 0; i < batch; i++) map[i] = chance(r, 40) ? rng_int(r, 0, batch - 1) : i;
    for (i = 0; i < batch; i++)
        lengths[i] = chance(r, 20) ? rng_int(r, 0, b->m.length[map[i]]) : b->m.length[map[i]];
    a.k_map = map, a.k_lengths = lengths;
    a.out = out, a.weights = w, a.lse = lse, a.backend = fma, a.exec = draw_exec(r);
    HOSTED(r, status, attn_sdpa(&a));
    CHECKF(status == ATTN_OK, "a cache: %s", attn_status_str(status));
    p = kv_model_args(&b->m, &a, plain_lengths);
    p.out = out + n_out, p.weights = w + n_w, p.lse = lse + n_lse, p.backend = fma_backend(r), p.exec = NULL;
    CHECK(attn_sdpa(&p) == ATTN_OK);
    CHECKF(same_bits(out, out + n_out, n_out) && same_bits(w, w + n_w, n_w) && same_bits(lse, lse + n_lse, n_lse),
           "cache (%s) and plain rows (%s) differ: batch %d, %d/%d heads, head_dim %d/%d, n_q %d, capacity %d, causal %d",
           attn_backend_name(a.backend), attn_backend_name(p.backend), batch, heads, s->kv_heads, s->head_dim,
           s->v_head_dim, n_q, s->capacity, a.causal);
    if (chance(r, 15)) {
        oracle o;
        oracle_run(&o, &p);
        p.out = out, p.weights = w, p.lse = lse;
        (void)oracle_check(&o, &p, "read from a cache");
        oracle_free(&o);
        judged++;
    }
    free(q), free(out), free(w), free(lse), free(keep);
}

/* new rows, by attn_kv_append or by a step, which attends as well */
static void book_append(rng *r, book *b)
{
    const attn_kv_args *s = &b->m.shape;
    const int n = chance(r, 25) ? rng_int(r, 0, s->capacity) : rng_int(r, 0, 20);
    const size_t rows = (size_t)(s->batch * n);
    float *k = filled(r, rows * b->m.k_row), *v = filled(r, rows * b->m.v_row), *out = room(rows * b->m.v_row);
    const int entry = rng_int(r, -1, s->batch - 1);
    int counts[KV_MODEL_BATCH] = {0}, i;
    attn_status status, want;
    attn_args a;
    if (chance(r, 30)) {
        for (i = 0; i < s->batch; i++) counts[i] = rng_int(r, 0, n);
        want = kv_model_step(&b->m, k, v, n, counts);
        memset(&a, 0, sizeof a);
        a.q = a.k = k, a.v = v, a.out = out;
        a.batch = s->batch, a.n_q = n, a.heads = s->kv_heads, a.q_lengths = counts;
        a.exec = draw_exec(r);
        HOSTED(r, status, attn_self_step(&b->kv, &a));
    } else {
        want = kv_model_append(&b->m, entry, k, v, n, 0);
        HOSTED(r, status, attn_kv_append(&b->kv, entry, k, v, n, 0));
    }
    CHECKF(status == want, "append says %s", attn_status_str(status));
    free(k), free(v), free(out);
}

static void round_cache(rng *r)
{
    static const int dims[] = {1, 3, 8, 15, 16, 17, 40, 64};
    attn_kv_args s;
    book b;
    int op, i;
    memset(&s, 0, sizeof s);
    s.batch = rng_int(r, 1, 4), s.kv_heads = rng_int(r, 1, 3), s.head_dim = dims[rng_int(r, 0, 7)];
    s.v_head_dim = chance(r, 50) ? dims[rng_int(r, 0, 7)] : s.head_dim;
    s.capacity = chance(r, 60) ? rng_int(r, 1, 70) : rng_int(r, 100, 400);
    CHECK(attn_kv_init(&b.kv, &s) == ATTN_OK);
    kv_model_make(&b.m, &s);
    histories++;
    for (op = rng_int(r, 3, 12); op > 0 && !test_failed(); op--) {
        const int kind = rng_int(r, 0, 9), entry = rng_int(r, 0, s.batch - 1), from = rng_int(r, 0, s.batch - 1);
        const int length = rng_int(r, 0, b.m.length[kind == 8 ? from : entry]);
        int map[KV_MODEL_BATCH] = {0};
        attn_status status = ATTN_OK, want = ATTN_OK;
        if (kind < 5) {
            book_append(r, &b);
        } else if (kind < 7) {                              /* a cut */
            want = kv_model_truncate(&b.m, entry, length);
            HOSTED(r, status, attn_kv_truncate(&b.kv, entry, length));
        } else if (kind < 8) {
            for (i = 0; i < s.batch; i++) map[i] = rng_int(r, 0, s.batch - 1);
            want = kv_model_reorder(&b.m, map);
            HOSTED(r, status, attn_kv_reorder(&b.kv, map));
        } else if (kind < 9) {
            want = kv_model_copy(&b.m, entry, from, length);
            HOSTED(r, status, attn_kv_copy(&b.kv, entry, from, length));
        } else {
            want = kv_model_truncate(&b.m, entry, 0);
            HOSTED(r, status, attn_kv_reset(&b.kv, entry));
        }
        CHECK(status == want && kv_model_same_lengths(&b.m, &b.kv));
        book_read(r, &b);
    }
    attn_kv_free(&b.kv);
    kv_model_free(&b.m);
}

/* ---- layers ------------------------------------------------------------------------------------------------- */
/* A layer with weights drawn from r. If it rotates, *table is its table, to be freed after the layer. */
static attn_mha layer_draw(rng *r, int rotates, float **table)
{
    static const int dims[] = {2, 8, 16, 40, 64};
    attn_mha_args a;
    attn_mha m;
    float *w[4], *bias;
    int i, widest;
    memset(&a, 0, sizeof a);
    a.kv_heads = rng_int(r, 1, 2), a.heads = a.kv_heads * rng_int(r, 1, 3), a.head_dim = dims[rng_int(r, 0, 4)];
    a.d_model = rng_int(r, 1, 90);
    widest = a.heads * a.head_dim > a.d_model ? a.heads * a.head_dim : a.d_model;
    bias = filled(r, (size_t)widest);
    for (i = 0; i < 4; i++) w[i] = filled(r, (size_t)(a.heads * a.head_dim * a.d_model));
    a.w_q = w[0], a.w_k = w[1], a.w_v = w[2], a.w_o = w[3];
    if (chance(r, 50)) a.b_q = a.b_k = a.b_v = a.b_o = bias;
    *table = NULL;
    if (rotates) {
        attn_status status;
        *table = room((size_t)(256 * a.head_dim));
        HOSTED(r, status, attn_rope_table(*table, 256, a.head_dim, NULL, 0.0));
        CHECK(status == ATTN_OK);
        a.rope_table = *table, a.positions = 256, a.rope_interleaved = rng_int(r, 0, 1);
    }
    CHECK(attn_mha_init(&m, &a) == ATTN_OK);
    for (i = 0; i < 4; i++) free(w[i]);
    free(bias);
    return m;
}

/* y must be the product of a packed linear, to the rounding of a chain: each of n_in + 1 sums rounds by 2^-24 of at
   most the sum of magnitudes, and without fma each product also rounds */
static void judge_linear(const float *y, const float *x, const float *w, const float *b, int rows, int n_in, int n_out)
{
    int i, o, t;
    for (i = 0; i < rows; i++)
        for (o = 0; o < n_out; o++) {
            double sum = (double)b[o], size = fabs(sum);
            for (t = 0; t < n_in; t++) {
                const double product = (double)x[i * n_in + t] * (double)w[o * n_in + t];
                sum += product, size += fabs(product);
            }
            CHECKF(fabs((double)y[i * n_out + o] - sum) <= size * (n_in + 1) / 16777216.0 * 1.02,
                   "row %d, output %d of a linear %d to %d: %.9g, not %.9g", i, o, n_in, n_out,
                   (double)y[i * n_out + o], sum);
        }
    judged++;
}

static void round_linear(rng *r)
{
    const int n_in = rng_int(r, 1, 150), n_out = rng_int(r, 1, 100), rows = rng_int(r, 0, 40);
    float *w = filled(r, (size_t)(n_in * n_out)), *b = filled(r, (size_t)n_out), *x = filled(r, (size_t)(rows * n_in));
    float *y = room((size_t)(rows * n_out));
    attn_linear_args la;
    attn_linear l;
    attn_status status;
    memset(&la, 0, sizeof la);
    la.n_in = n_in, la.n_out = n_out, la.w = w, la.b = b;
    CHECK(attn_linear_init(&l, &la) == ATTN_OK);
    HOSTED(r, status, attn_linear_run(&l, y, x, rows, 0, draw_exec(r)));
    CHECK(status == ATTN_OK);
    if (status == ATTN_OK) judge_linear(y, x, w, b, rows, n_in, n_out);
    attn_linear_free(&l);
    free(w), free(b), free(x), free(y);
}

/* A whole sequence; the same through a cache in steps; and, without a rotation, the same from its parts. */
static void round_layer(rng *r)
{
    const int batch = rng_int(r, 1, 3), n = rng_int(r, 2, 180), rotates = chance(r, 40);
    float *table, *x, *part, *whole, *out;
    attn_mha m = layer_draw(r, rotates, &table);
    const attn_mha_args *s = &m.shape;
    const size_t d = (size_t)s->d_model, all_rows = (size_t)(batch * n);
    attn_mha_opts o;
    attn_kv_args shape;
    attn_kv kv;
    attn_status status;
    int t, step, b;
    memset(&o, 0, sizeof o);
    memset(&shape, 0, sizeof shape);
    shape.batch = batch, shape.kv_heads = s->kv_heads, shape.head_dim = s->head_dim, shape.capacity = n;
    CHECK(attn_kv_init(&kv, &shape) == ATTN_OK);
    x = filled(r, all_rows * d), part = room(all_rows * d), whole = room(all_rows * d), out = room(all_rows * d);
    o.attn.backend = layer_backend(r), o.attn.causal = ATTN_CAUSAL_TOP_LEFT, o.attn.exec = draw_exec(r);
    o.attn.window_left = chance(r, 30) ? rng_int(r, 1, 60) : 0;
    HOSTED(r, status, attn_mha_self(&m, whole, x, batch, n, &o));
    CHECK(status == ATTN_OK);
    sequences++;
    o.attn.causal = ATTN_CAUSAL_NONE;                       /* a step is causal by itself */
    for (t = 0; t < n && !test_failed(); t += step) {
        step = t == 0 ? rng_int(r, 1, n) : chance(r, 80) ? 1 : rng_int(r, 1, n - t);
        for (b = 0; b < batch; b++)
            memcpy(part + (size_t)(b * step) * d, x + (size_t)(b * n + t) * d, (size_t)step * d * sizeof *x);
        o.attn.backend = layer_backend(r), o.attn.exec = draw_exec(r);
        HOSTED(r, status, attn_mha_self_step(&m, out, part, batch, step, &kv, &o));
        CHECKF(status == ATTN_OK, "step at %d of %d: %s", t, n, attn_status_str(status));
        for (b = 0; b < batch; b++)
            CHECKF(same_bits(out + (size_t)(b * step) * d, whole + (size_t)(b * n + t) * d, (size_t)step * d),
                   "token %d of %d differs from the whole sequence (%s, d_model %d, %d/%d heads of %d)", t, n,
                   attn_backend_name(o.attn.backend), s->d_model, s->heads, s->kv_heads, s->head_dim);
    }
    HOSTED(r, status, attn_mha_self_step(&m, out, part, batch, 1, &kv, &o));
    CHECK(status == ATTN_E_FULL || test_failed());
    if (!rotates) {
        const int rows = batch * n, width = s->heads * s->head_dim, group = s->kv_heads * s->head_dim;
        float *q = room((size_t)(rows * width)), *k = room((size_t)(rows * group)), *v = room((size_t)(rows * group));
        float *heads = room((size_t)(rows * width));
        attn_args a;
        memset(&a, 0, sizeof a);
        CHECK(attn_linear_run(&m.q, q, x, rows, 0, NULL) == ATTN_OK && attn_linear_run(&m.k, k, x, rows, 0, NULL) == ATTN_OK);
        CHECK(attn_linear_run(&m.v, v, x, rows, 0, NULL) == ATTN_OK);
        a.out = heads, a.q = q, a.k = k, a.v = v, a.batch = batch, a.n_q = a.n_k = n, a.heads = s->heads;
        a.kv_heads = s->kv_heads, a.head_dim = s->head_dim, a.causal = ATTN_CAUSAL_TOP_LEFT, a.backend = layer_backend(r);
        a.window_left = o.attn.window_left;
        HOSTED(r, status, attn_sdpa(&a));
        CHECK(status == ATTN_OK && attn_linear_run(&m.o, out, heads, rows, 0, NULL) == ATTN_OK);
        CHECKF(same_bits(out, whole, all_rows * d), "a layer is not its parts (d_model %d)", s->d_model);
        if (chance(r, 30)) {
            oracle judge;
            oracle_run(&judge, &a);
            (void)oracle_check(&judge, &a, "the attention of a layer");
            oracle_free(&judge);
            judged++;
        }
        free(q), free(k), free(v), free(heads);
    }
    free(x), free(part), free(whole), free(out);
    attn_kv_free(&kv);
    attn_mha_free(&m);
    free(table);
}

/* a memory projected on the fly, and filled into a cache once */
static void round_cross(rng *r)
{
    const int batch = rng_int(r, 1, 3), n_k = rng_int(r, 1, 200), n_q = rng_int(r, 1, 20);
    float *table, *x, *memory, *out[2];
    attn_mha m = layer_draw(r, 0, &table);
    const size_t d = (size_t)m.shape.d_model, n = (size_t)(batch * n_q) * d;
    attn_mha_opts o;
    attn_kv_args shape;
    attn_kv kv;
    attn_status status;
    int lengths[3], b, i;
    memset(&o, 0, sizeof o);
    memset(&shape, 0, sizeof shape);
    shape.batch = batch, shape.kv_heads = m.shape.kv_heads, shape.head_dim = m.shape.head_dim, shape.capacity = n_k;
    CHECK(attn_kv_init(&kv, &shape) == ATTN_OK);
    for (b = 0; b < batch; b++) lengths[b] = rng_int(r, 0, n_k);
    x = filled(r, n), memory = filled(r, (size_t)(batch * n_k) * d), out[0] = room(n), out[1] = room(n);
    for (i = 0; i < 2; i++) {                               /* filled twice: the second time over the first */
        o.attn.backend = layer_backend(r), o.attn.exec = draw_exec(r);
        HOSTED(r, status, attn_mha_cross_fill(&m, &kv, memory, batch, n_k, lengths, &o));
        CHECK(status == ATTN_OK);
    }
    HOSTED(r, status, attn_mha_cross_step(&m, out[0], x, batch, n_q, &kv, &o));
    CHECK(status == ATTN_OK);
    o.attn.k_lengths = lengths, o.attn.backend = layer_backend(r), o.attn.exec = draw_exec(r);
    HOSTED(r, status, attn_mha_cross(&m, out[1], x, batch, n_q, memory, n_k, &o));
    CHECK(status == ATTN_OK);
    CHECKF(same_bits(out[0], out[1], n), "a filled memory differs from a projected one (%d x %d keys)", batch, n_k);
    sequences++;
    free(x), free(memory), free(out[0]), free(out[1]);
    attn_kv_free(&kv);
    attn_mha_free(&m);
}

/* ---- masks as matrices, and levels 1 and 2 ------------------------------------------------------------------- */
static void round_masks(rng *r)
{
    enum { PAD = 0 };
    const int batch = rng_int(r, 1, 3), n = rng_int(r, 1, 60), heads = rng_int(r, 1, 3), head_dim = rng_int(r, 1, 20);
    const int window = rng_int(r, 1, n), causal = rng_int(r, 0, 1);
    const size_t size = (size_t)(batch * n * heads * head_dim), square = (size_t)(n * n);
    float *q = filled(r, size), *k = filled(r, size), *v = filled(r, size), *out[2];
    float *mask = room((size_t)batch * square), *by = room(square);
    int *ids = (int *)room((size_t)(batch * n)), lengths[3], found[3], b, i;
    char text[2000];
    attn_args a;
    attn_status status;
    memset(&a, 0, sizeof a);
    out[0] = room(size), out[1] = room(size);
    for (b = 0; b < batch; b++) {
        lengths[b] = rng_int(r, 0, n);
        for (i = 0; i < n; i++) ids[b * n + i] = i < lengths[b] ? rng_int(r, 1, 9) : PAD;
    }
    HOSTED(r, status, attn_lengths(found, ids, PAD, batch, n));
    CHECK(status == ATTN_OK && !memcmp(found, lengths, (size_t)batch * sizeof(int)));
    HOSTED(r, status, attn_mask_padding(mask, ids, PAD, batch, n));
    CHECK(status == ATTN_OK);
    HOSTED(r, status, attn_mask_window(by, n, n, window, 0, 0));
    CHECK(status == ATTN_OK);
    HOSTED(r, status, attn_mask_merge(mask, batch, by, 1, n, n));
    CHECK(status == ATTN_OK);
    if (causal) {
        CHECK(attn_mask_causal(by, n, n, 0) == ATTN_OK);
        HOSTED(r, status, attn_mask_merge(mask, batch, by, 1, n, n));
        CHECK(status == ATTN_OK);
    }
    HOSTED(r, status, attn_self(out[0], q, k, v, batch, n, heads, head_dim, 0, NULL, mask));
    CHECK(status == ATTN_OK);
    a.out = out[1], a.q = q, a.k = k, a.v = v, a.batch = batch, a.n_q = a.n_k = n, a.heads = heads, a.head_dim = head_dim;
    a.k_lengths = lengths, a.window_left = window, a.causal = causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    HOSTED(r, status, attn_sdpa(&a));
    CHECK(status == ATTN_OK);
    CHECKF(same_bits(out[0], out[1], size), "flags and matrix differ: batch %d, n %d, window %d, causal %d", batch, n,
           window, causal);
    (void)attn_mask_format(text, sizeof text, mask, n, n, NULL, NULL);
    (void)attn_check(&a, text, sizeof text);
    free(q), free(k), free(v), free(out[0]), free(out[1]), free(mask), free(by), free(ids);
}

/* ---- calls that must be refused, and leave no trace ---------------------------------------------------------- */
static void round_wrong(rng *r)
{
    sdpa_case c;
    attn_status status, wanted = ATTN_OK;
    prints wiped, after;
    char why[200];
    case_random_upto(r, &c, 3e4);
    case_wipe(&c);
    wiped = prints_of(&c);
    c.a.exec = NULL;
    switch (rng_int(r, 0, 7)) {
    case 0: c.a.n_q = -1; wanted = ATTN_E_SIZE; break;
    case 1: c.a.head_dim = 0; wanted = ATTN_E_SIZE; break;
    case 2: c.a.causal = 99; wanted = ATTN_E_OPTION; break;
    case 3: c.a.softcap = bits_float(0x7FC00000u); wanted = ATTN_E_OPTION; break;
    case 4: c.a.scale = bits_float(0x7F800000u); wanted = ATTN_E_OPTION; break;
    case 5: c.a.heads = -3; wanted = ATTN_E_SIZE; break;
    case 6: c.a.backend = 99; wanted = ATTN_E_OPTION; break;
    default:                                                /* allocations that fail */
        heap.refused = 0, heap.refuse = rng_int(r, 1, 2);
    }
    HOSTED(r, status, attn_sdpa(&c.a));
    heap.refuse = 0;
    if (wanted == ATTN_OK && heap.refused) wanted = ATTN_E_MEMORY;
    heap.refused = 0;
    CHECKF(status == wanted, "%s, not %s: %s", attn_status_str(status), attn_status_str(wanted), case_text(&c));
    after = prints_of(&c);
    if (status != ATTN_OK) CHECKF(prints_same(&wiped, &after), "written before it was refused: %s", case_text(&c));
    if (status != ATTN_OK && status != ATTN_E_MEMORY) CHECK(attn_check(&c.a, why, sizeof why) == status);
    case_free(&c);
}

/* a layer and a cache whose allocations fail, one after the other */
static void round_refused(rng *r)
{
    float *table, *x, *out;
    attn_mha m = layer_draw(r, 0, &table);
    attn_kv_args shape;
    attn_kv kv;
    attn_status status;
    const int n = rng_int(r, 2, 40);
    const size_t size = (size_t)(n * m.shape.d_model);
    uint64_t before;
    memset(&shape, 0, sizeof shape);
    shape.batch = 1, shape.kv_heads = m.shape.kv_heads, shape.head_dim = m.shape.head_dim, shape.capacity = n;
    x = filled(r, size), out = filled(r, size);
    before = hash_bits(0, out, size);
    heap.refuse = 1;
    CHECK(attn_kv_init(&kv, &shape) == ATTN_E_MEMORY);
    attn_kv_free(&kv);
    heap.refuse = 0;
    CHECK(attn_kv_init(&kv, &shape) == ATTN_OK);
    heap.refuse = 1;
    HOSTED(r, status, attn_mha_self_step(&m, out, x, 1, n, &kv, NULL));
    CHECK(status == ATTN_E_MEMORY && hash_bits(0, out, size) == before && kv.lengths[0] == 0);
    heap.refuse = 0;
    HOSTED(r, status, attn_mha_self_step(&m, out, x, 1, n, &kv, NULL));
    CHECK(status == ATTN_OK && hash_bits(0, out, size) != before && kv.lengths[0] == n);
    heap.refused = 0;
    free(x), free(out);
    attn_kv_free(&kv);
    attn_mha_free(&m);
}

/* ---- the life ------------------------------------------------------------------------------------------------ */
enum { SAMPLES = 30 };
static long resident[SAMPLES + 1];
static int samples;

static void pool_change(long round)
{
    no_longer_than(600);
#if SOAK_THREADS
    rng r = rng_make(test_seed + 77u * (uint64_t)round);
    attn_pool_destroy(pool);
    pool_threads = rng_int(&r, 0, 6);
    pool = pool_threads ? attn_pool_create(pool_threads) : NULL;
    CHECKF(pool || !pool_threads, "no pool of %d threads", pool_threads);
#else
    (void)round;
#endif
}

static void one_round(long round)
{
    rng r = rng_make(test_seed * UINT64_C(1000003) + (uint64_t)round);
    const int kind = rng_int(&r, 0, 99);
    const long live = heap.live;
    static char note[120];
    (void)snprintf(note, sizeof note, "round %ld of seed %llu", round, (unsigned long long)test_seed);
    test_note = note;
    if (kind < 62) round_attention(&r);
    else if (kind < 72) round_cache(&r);
    else if (kind < 78) round_layer(&r);
    else if (kind < 84) round_cross(&r);
    else if (kind < 88) round_linear(&r);
    else if (kind < 94) round_masks(&r);
    else if (kind < 98) round_wrong(&r);
    else round_refused(&r);
    CHECKF(heap.live == live, "%ld allocations are left over", heap.live - live);
    if (test_failed()) printf("  in %s: build/soak -s %llu -r %ld\n", note, (unsigned long long)test_seed, round);
}

static void life(void)
{
    const double start = test_seconds();
    long round = first_round;
    if (round > 0) {                                         /* repeats one round */
        pool_change(round / 500 * 500);
        one_round(round);
    }
    for (round = 1; first_round == 0 && samples <= SAMPLES && !test_failed(); round++) {
        if (round % 500 == 1) pool_change(round / 500 * 500);
        one_round(round);
        while (samples <= SAMPLES && test_seconds() - start >= life_seconds * samples / SAMPLES) {
#ifdef __GLIBC__
            (void)malloc_trim(0);                            /* free memory is not resident */
#endif
            resident[samples++] = own_status("VmRSS");
        }
    }
#if SOAK_THREADS
    attn_pool_destroy(pool);
    pool = NULL;
#endif
    no_longer_than(0);
    CHECKF(heap.live == 0, "%ld allocations are left at the end", heap.live);
    printf("  %ld rounds in %.0f s: %ld cases of attention, %ld histories of caches, %ld sequences through layers; %ld "
           "answers"
           " judged by the oracle, %ld allocations\n",
           round - 1, test_seconds() - start, cases, histories, sequences, judged, heap.calls);
}

static void memory(void)
{
    long early = 0, late = LONG_MAX;
    const long threads = own_status("Threads");
    int i;
    if (samples <= SAMPLES || resident[SAMPLES] == 0) {
        test_skip("nothing was measured (no /proc/self/status, or the life was cut short)");
        return;
    }
    for (i = 1; i <= SAMPLES / 3; i++) if (resident[i] > early) early = resident[i];
    for (i = SAMPLES - SAMPLES / 3; i <= SAMPLES; i++) if (resident[i] < late) late = resident[i];
    printf("  resident at most %ld kB in the first third, at least %ld kB in the last, %ld kB at the end\n", early,
           late, resident[SAMPLES]);
    /* The memory that the C library retains after large cases varies by this much. Eight bytes leaked by each round
       show after 10 minutes; what the header allocates and does not free shows at once, in `life`. */
    CHECKF(late <= early + 512, "memory grows: %ld kB, then %ld kB", early, late);
    CHECKF(threads == 1, "%ld threads are left", threads);
}

/* ---- many at once --------------------------------------------------------------------------------------------- */
static long wanted_calls = 200000;
#if SOAK_THREADS
enum {
    JOBS = 241 /* prime: every job meets every kind of caller */,
    CALLERS = 8,
    MOST_OUT = 8192,
    SHARED_BATCH = 3,
    NUMBERS = 60000
};

static struct { attn_mha self, cross; attn_kv self_kv, cross_kv; attn_linear linear; float *x, *tables[2]; } shared;
static attn_exec shared_exec;
static long next_call, n_calls, words_lost;
static uint64_t *answers;

/* Job j, by any thread and with any executor: the same inputs, and separate outputs. Returns 1 if it was rejected. */
static uint64_t job(int j, const attn_exec *exec)
{
    static const int steps[] = {1, 1, 2, 1, 5};
    float out[MOST_OUT], lse[1024];
    attn_args a;
    attn_mha_opts o;
    const int kind = j % 10, rows = steps[j / 10 % 5], other = j / 50 & 1;
    const attn_mha *m = other ? &shared.cross : &shared.self;
    const attn_kv *kv = other ? &shared.cross_kv : &shared.self_kv;
    const attn_mha_args *s = &m->shape;
    const float *x = shared.x + 8 * j;
    const int map[SHARED_BATCH] = {0, 1, 0};
    attn_backend backends[16];
    size_t n = 0, n_lse = 0;
    attn_status status = ATTN_OK;
    memset(&a, 0, sizeof a);
    memset(&o, 0, sizeof o);
    a.batch = SHARED_BATCH, a.n_q = rows, a.exec = o.attn.exec = exec;
    a.backend = o.attn.backend = backends[j / 40 % attn_backends(backends, 16)];   /* a sixth of the jobs each */
    if (j % 3 == 0) a.k_map = o.attn.k_map = map;
    switch (kind) {
    case 0: case 1: case 2:                                  /* a cache, read at once by all */
        a.kv = kv, a.heads = s->heads, a.kv_heads = s->kv_heads, a.head_dim = s->head_dim, a.q = x, a.out = out, a.lse = lse;
        a.causal = kind == 1 ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
        a.window_left = kind == 2 ? 30 : 0;
        a.align = kind == 2 ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
        n = (size_t)(SHARED_BATCH * rows * s->heads * s->head_dim), n_lse = (size_t)(SHARED_BATCH * rows * s->heads);
        if (n <= MOST_OUT && n_lse <= 1024) status = attn_check(&a, NULL, 0) != ATTN_OK ? ATTN_E_SIZE : attn_sdpa(&a);
        break;
    case 3: case 4:                                          /* a layer and its cache */
        n = (size_t)(SHARED_BATCH * rows * s->d_model);
        if (n <= MOST_OUT) status = attn_mha_cross_step(m, out, x, SHARED_BATCH, rows, kv, &o);
        break;
    case 5:                                                  /* a layer alone */
        o.attn.k_map = NULL, o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
        n = (size_t)(SHARED_BATCH * rows * s->d_model);
        if (n <= MOST_OUT) status = attn_mha_self(m, out, x, SHARED_BATCH, rows, &o);
        break;
    case 6:                                                  /* a layer, with a separate cache */
        n = (size_t)(rows * s->d_model);
        if (n <= MOST_OUT) {
            attn_kv_args shape;
            attn_kv mine;
            memset(&shape, 0, sizeof shape);
            shape.batch = 1, shape.kv_heads = s->kv_heads, shape.head_dim = s->head_dim, shape.capacity = 2 * rows;
            o.attn.k_map = NULL;
            status = attn_kv_init(&mine, &shape);
            if (status == ATTN_OK) status = attn_mha_self_step(m, out, x + 500, 1, rows, &mine, &o);
            if (status == ATTN_OK) status = attn_mha_self_step(m, out, x, 1, rows, &mine, &o);
            attn_kv_free(&mine);
        }
        break;
    case 7:                                                  /* level 2, which works on the caller's stack */
        n = (size_t)(SHARED_BATCH * (rows + 3) * 2 * 12);
        if (other) status = attn_self(out, x, x + 7, x + 900, SHARED_BATCH, rows + 3, 2, 12, j & 1, NULL, NULL);
        else status = attn_cross(out, x, x + 7, x + 900, SHARED_BATCH, rows + 3, 40, 2, 12, NULL, NULL);
        break;
    case 8: {                                                /* masks, and a rotation */
        float mask[12 * 12], by[12 * 12], table[24 * 8];
        const int lengths[1] = {9};
        attn_rope_args ra;
        status = attn_mask_causal(mask, 12, 12, rows - 3);
        if (status == ATTN_OK) status = attn_mask_lengths(by, lengths, 1, 12, 12);
        if (status == ATTN_OK) status = attn_mask_merge(mask, 1, by, 1, 12, 12);
        if (status == ATTN_OK) status = attn_self(out, x, x + 3, x + 400, 1, 12, 3, 8, 0, NULL, mask);
        if (status == ATTN_OK) status = attn_rope_table(table, 24, 8, NULL, 0.0);
        memset(&ra, 0, sizeof ra);
        ra.x = out, ra.batch = 1, ra.n = 12, ra.heads = 3, ra.head_dim = 8, ra.rope_table = table, ra.positions = 24;
        ra.rope_interleaved = (int)(j & 1), ra.pos = (int)rows;
        if (status == ATTN_OK) status = attn_rope(&ra);
        n = 12 * 3 * 8;
        break;
    }
    default:
        n = (size_t)(rows * shared.linear.n_out);
        if (n <= MOST_OUT) status = attn_linear_run(&shared.linear, out, x, rows, 0, exec);
    }
    if (n > MOST_OUT || n_lse > 1024) abort();               /* fixed_layer chooses sizes that fit */
    if (status != ATTN_OK) return 1;
    return hash_bits(hash_bits(0, out, n), lse, n_lse);
}

static void *caller(void *arg)
{
    (void)arg;
    for (;;) {
        enum { PORTION = 16 };
        const long at = __atomic_fetch_add(&next_call, PORTION, __ATOMIC_RELAXED);
        long i;
        if (at >= n_calls) return NULL;
        for (i = at; i < at + PORTION && i < n_calls; i++) {
#ifdef HAVE_CONTROL
            const control_word usual = control_all();
            const long kind = i % (CONTROL_HOSTILE + 3);
            const control_word word = kind < CONTROL_HOSTILE ? control_hostile[kind] : usual;
            control_set(word);
#endif
            answers[i] = job((int)(i * 7 % JOBS), i % 8 == 0 ? &shared_exec : NULL);
#ifdef HAVE_CONTROL
            if (control_all() != word) __atomic_fetch_add(&words_lost, 1, __ATOMIC_RELAXED);
            control_set(usual);
#endif
        }
    }
}

/* A layer that fits the buffers of job(), and its cache. */
static void fixed_layer(uint64_t seed, int n_k, attn_mha *m, attn_kv *kv, float **table)
{
    rng r = rng_make(seed);
    attn_kv_args shape;
    int counts[SHARED_BATCH], tries = 1;
    memset(&shape, 0, sizeof shape);
    for (*m = layer_draw(&r, 0, table);
         m->shape.d_model < 20 || m->shape.d_model > 50 || m->shape.heads * m->shape.head_dim > 64; tries++) {
        attn_mha_free(m);
        free(*table);
        *m = layer_draw(&r, 0, table);
    }
    shape.batch = SHARED_BATCH, shape.kv_heads = m->shape.kv_heads, shape.head_dim = m->shape.head_dim, shape.capacity = n_k;
    counts[0] = n_k, counts[1] = n_k / 2, counts[2] = n_k - 1;
    CHECK(attn_kv_init(kv, &shape) == ATTN_OK);
    CHECK(append_counts(kv, shared.x, shared.x + 100, n_k, counts, 0) == ATTN_OK);
}

static void at_once(void)
{
    rng r = rng_make(test_seed);
    pthread_t threads[CALLERS];
    uint64_t serial[JOBS];
    float *w = filled(&r, 61 * 33);
    attn_pool *shared_pool;
    attn_linear_args la;
    int i, started = 0;
    long wrong = 0, refused = 0, c;
    const double start = test_seconds();
    shared.x = filled(&r, NUMBERS * 4);
    fixed_layer(test_seed, 40, &shared.self, &shared.self_kv, &shared.tables[0]);
    fixed_layer(test_seed + 1, 150, &shared.cross, &shared.cross_kv, &shared.tables[1]);
    memset(&la, 0, sizeof la);
    la.n_in = 33, la.n_out = 61, la.w = w;
    CHECK(attn_linear_init(&shared.linear, &la) == ATTN_OK);
    shared_pool = attn_pool_create(3);
    CHECK(shared_pool != NULL);
    shared_exec = attn_pool_exec(shared_pool);
    n_calls = wanted_calls, next_call = words_lost = 0;
    answers = (uint64_t *)calloc((size_t)n_calls, sizeof *answers);
    if (!answers) exit(3);
#ifdef ATTN__X86
    attn__cpu_word = 0;                       /* packing has detected the processor: lets all of them detect it again */
#endif
    no_longer_than(600);
    while (started < CALLERS && pthread_create(&threads[started], NULL, caller, NULL) == 0) started++;
    for (i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
    no_longer_than(0);
    for (i = 0; i < JOBS; i++) serial[i] = job(i, NULL), refused += serial[i] == 1;
    for (c = 0; c < n_calls; c++) wrong += answers[c] != serial[c * 7 % JOBS];
    CHECK(started == CALLERS);
    CHECKF(refused == 0, "%ld of %d jobs were refused", refused, (int)JOBS);
    CHECKF(wrong == 0, "%ld of %ld concurrent calls have other bits than the serial run", wrong, n_calls);
    CHECKF(words_lost == 0, "%ld calls did not put the control word back", words_lost);
    attn_pool_destroy(shared_pool);
    free(answers), free(w), free(shared.x), free(shared.tables[0]), free(shared.tables[1]);
    attn_mha_free(&shared.self), attn_mha_free(&shared.cross);
    attn_kv_free(&shared.self_kv), attn_kv_free(&shared.cross_kv);
    attn_linear_free(&shared.linear);
    CHECKF(heap.live == 0, "%ld allocations are left over", heap.live);
    printf("  %ld calls by %d threads, every eighth on one pool, in %.0f s\n", n_calls, started,
           test_seconds() - start);
}
#else
static void at_once(void) { test_skip("no threads here"); }
#endif

static const test_case at_once_test = {"at once", at_once,
                                       "anything shared that is written; a pool that mixes up its callers"};
static const test_case life_test = {"life", life, "what shows once in a million calls; memory not given back"};
static const test_case memory_test = {"memory", memory, "memory that grows, threads that stay"};

static int usage(int asked)
{
    (void)fprintf(asked ? stdout : stderr, "usage: soak [-q] [-s seed] [-r round] [-c concurrent calls] [minutes]\n");
    return asked ? 0 : 2;
}

int main(int argc, char **argv)
{
    int counts[3] = {0, 0, 0}, i;
    for (i = 1; i < argc; i++) {
        char *end = NULL;
        if (!strcmp(argv[i], "-q")) life_seconds = 12.0, wanted_calls = 100000;
        else if (!strcmp(argv[i], "-s") && i + 1 < argc) test_seed = (uint64_t)strtoull(argv[++i], &end, 0);
        else if (!strcmp(argv[i], "-c") && i + 1 < argc) wanted_calls = strtol(argv[++i], &end, 10);
        else if (!strcmp(argv[i], "-r") && i + 1 < argc) first_round = strtol(argv[++i], &end, 10), wanted_calls = 0;
        else if (argv[i][0] != '-') life_seconds = 60.0 * strtod(argv[i], &end);
        else return usage(!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help"));
        if (end && (end == argv[i] || *end)) return usage(0);
    }
    (void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    printf("soak: seed %llu, %.0f s, %ld concurrent calls\n", (unsigned long long)test_seed, life_seconds,
           wanted_calls);
    if (wanted_calls > 0) counts[test_run("soak", &at_once_test)]++;
    n_all = test_all_backends(all, 16), n_one = test_one_answer_backends(one, 16);
    if (life_seconds > 0 || first_round) counts[test_run("soak", &life_test)]++;
    if (life_seconds > 0 && !first_round) counts[test_run("soak", &memory_test)]++;
    printf("soak: %d passed, %d failed", counts[TEST_PASSED], counts[TEST_FAILED]);
    if (counts[TEST_SKIPPED]) printf(", %d skipped", counts[TEST_SKIPPED]);
    printf("\n");
    return counts[TEST_FAILED] != 0 || counts[TEST_PASSED] == 0;
}
