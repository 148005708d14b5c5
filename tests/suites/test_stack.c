/* test_stack.c: the stack use of every public function, compared with the table of the manual (attn.h, STACK), and all
 * of them in threads of 16 KB. It has a separate implementation: the build for small stacks, ATTN_STACK 2048.
 * STACK_PRINT=1 prints the measurements.
 *
 * A call runs on a known stack that was painted before; the deepest byte that has lost its paint gives its depth. It is
 * counted from the frame of the caller, so it includes the C library only where attn.h calls it (memcpy, malloc).
 *
 * Of the 16 KB of a thread the C library uses the part above its first function: with glibc 2.3 KB for its
 * description of the thread and the thread's own variables, and 0.2 KB for its start function. A first call of
 * memcpy through a lazily bound table takes 3 KB more on processors with AVX-512, so a few calls on a deep stack come
 * first. */
#if !defined(_WIN32) && !defined(__wasm__)
#define _DEFAULT_SOURCE
#define STACK_THREADS
#endif

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(memory_sanitizer) || __has_feature(thread_sanitizer)
#define STACK_SKIP "a sanitizer makes frames of its own size"
#elif defined(__AVX__)
#define STACK_SKIP "the figures are those of -O2 alone: with -march frames of the driver are vectors, too"
#elif !defined(__GNUC__) || !defined(__OPTIMIZE__)
#define STACK_SKIP "the figures are those of -O2: without it every variable has a place of its own"
#elif !defined(STACK_THREADS)
#define STACK_SKIP "no threads whose stack can be brought along"
#endif

#ifdef STACK_SKIP                         /* no measurement, and no implementation */
#include "test.h"
static void figures(void) { test_skip("stack of public functions: %s", STACK_SKIP); }
static void small(void) { test_skip("calls in threads of 16 KB: %s", STACK_SKIP); }
#else
#define ATTN_STATIC
#if defined(__GNUC__)
#define ATTNDEF static __attribute__((noinline, unused))        /* nothing is inlined, as in a library */
#endif
#define ATTN_STACK 2048
#define ATTN_IMPLEMENTATION
#include "hide.h"
#include "attn.h"
#undef ATTN_REFUSED
#include "cases.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

enum { KB = 1024, BYTES_MORE = 34 * KB / 10, MOST = 8 * KB, SMALL = 16 * KB, LARGE = 64 * KB };

/* ---- the calls: arguments are static, so that a call needs no additional stack -------------------------------- */
static struct {
    attn_args a;
    attn_kv kv;
    attn_kv_args kv_args;
    attn_linear linear;
    attn_linear_args linear_args;
    attn_mha mha;
    attn_mha_args mha_args;
    attn_mha_call mha_call;
    attn_mha_opts opts;
    attn_rope_args rope;
    attn_norm_args norm;
    attn_rope_freqs_args freqs;
#ifndef ATTN_NO_DELTA
    attn_delta_args delta;
    attn_conv_args conv;
#endif
    const attn_exec *exec;
    size_t more;                          /* what the manual adds for weights in 8 bits */
    float *to, *x, *y, *z;
    void *bytes;
    const int *ints;
    const unsigned char *keep;
    char *text;
    size_t size, result;
    int batch, n, n_k, heads, head_dim, k, causal, slow, scalar;       /* scalar: single heads */
    attn_storage storage;
} now;

#ifndef ATTN_NO_DELTA
#define DELTA_CALLS(X)                                                                                                 \
    X(attn_delta, attn_delta(&now.delta))                                                                              \
    X(attn_delta_workspace, (now.delta.work_size = attn_delta_workspace(&now.delta)) == SIZE_MAX)                      \
    X(attn_conv, attn_conv(&now.conv))
#else
#define DELTA_CALLS(X)
#endif
#define CALLS(X)                                                                                                       \
    X(attn_self, attn_self(now.to, now.x, now.y, now.z, now.batch, now.n, now.heads, now.head_dim, now.causal,         \
                           now.ints, now.a.mask))                                                                      \
    X(attn_cross, attn_cross(now.to, now.x, now.y, now.z, now.batch, now.n, now.n_k, now.heads, now.head_dim,          \
                             now.ints, now.a.mask))                                                                    \
    X(attn_sdpa, attn_sdpa(&now.a))                                                                                    \
    X(attn_sdpa_workspace, attn_sdpa_workspace(&now.a))                                                                \
    X(attn_check, attn_check(&now.a, now.text, now.size))                                                              \
    X(attn_fold, attn_fold(&now.a, now.x, now.n))                                                                      \
    X(attn_merge, attn_merge(now.to, now.x, now.size, now.n))                                                          \
    X(attn_narrow, attn_narrow(now.bytes, now.x, now.size, now.storage))                                               \
    X(attn_widen, attn_widen(now.to, now.bytes, now.size, now.storage))                                                \
    X(attn_kv_init, attn_kv_init(&now.kv, &now.kv_args))                                                               \
    X(attn_kv_append, attn_kv_append(&now.kv, -1, now.x, now.y, now.n, 0))                                           \
    X(attn_self_step, attn_self_step(&now.kv, &now.a))                                                                 \
    X(attn_kv_truncate, attn_kv_truncate(&now.kv, now.k, now.n))                                                       \
    X(attn_kv_keep, attn_kv_keep(&now.kv, now.k, now.n, now.ints, 3))                                                  \
    X(attn_kv_forget, attn_kv_forget(&now.kv, now.k, 0, now.n))                                                        \
    X(attn_kv_reorder, attn_kv_reorder(&now.kv, now.ints))                                                             \
    X(attn_kv_copy, attn_kv_copy(&now.kv, now.k, 0, now.n))                                                            \
    X(attn_kv_read, attn_kv_read(&now.kv, now.k, 0, now.n, now.to, now.to + now.size))                                 \
    X(attn_kv_save, attn_kv_save(&now.kv, now.k, now.bytes, now.size))                                                 \
    X(attn_kv_load, attn_kv_load(&now.kv, now.k, now.bytes, now.size))                                                 \
    X(attn_linear_init, attn_linear_init(&now.linear, &now.linear_args))                                               \
    X(attn_linear_run, attn_linear_run(&now.linear, now.to, now.x, now.n, 0, now.exec))                                \
    X(attn_linear_read, attn_linear_read(&now.linear, 0, 1, now.to))                                                   \
    X(attn_norm, attn_norm(&now.norm))                                                                                 \
    X(attn_activate, attn_activate(now.to, now.x, now.y, now.size, (attn_activation)now.k, now.exec))                  \
    X(attn_rope_table, attn_rope_table(now.to, now.n, now.k, NULL, 0.0))                                               \
    X(attn_rope_freqs, attn_rope_freqs(now.to, NULL, &now.freqs))                                                      \
    X(attn_rope, attn_rope(&now.rope))                                                                                 \
    DELTA_CALLS(X)                                                                                                     \
    X(attn_mha_init, attn_mha_init(&now.mha, &now.mha_args))                                                           \
    X(attn_mha_self, attn_mha_self(&now.mha, now.to, now.x, now.batch, now.n, &now.opts))                              \
    X(attn_mha_cross, attn_mha_cross(&now.mha, now.to, now.x, now.batch, now.n, now.y, now.n_k, &now.opts))            \
    X(attn_mha_self_step, attn_mha_self_step(&now.mha, now.to, now.x, now.batch, now.n, &now.kv, &now.opts))           \
    X(attn_mha_self_look, attn_mha_self_look(&now.mha, now.to, now.x, now.batch, now.n, &now.kv, &now.opts))           \
    X(attn_mha_cross_fill, attn_mha_cross_fill(&now.mha, &now.kv, now.y, now.batch, now.n_k, now.ints, &now.opts))     \
    X(attn_mha_cross_step, attn_mha_cross_step(&now.mha, now.to, now.x, now.batch, now.n, &now.kv, &now.opts))         \
    X(attn_mha_workspace, attn_mha_workspace(&now.mha, now.mha_call, now.batch, now.n, now.n_k, &now.opts))            \
    X(attn_mask_causal, attn_mask_causal(now.to, now.n, now.n_k, 0))                                                   \
    X(attn_mask_window, attn_mask_window(now.to, now.n, now.n_k, 3, 2, 0))                                             \
    X(attn_mask_padding, attn_mask_padding(now.to, now.ints, 0, now.batch, now.n))                                     \
    X(attn_mask_cross, attn_mask_cross(now.to, now.ints, 0, now.batch, now.n, now.n_k))                                \
    X(attn_mask_lengths, attn_mask_lengths(now.to, now.ints, now.batch, now.n, now.n_k))                               \
    X(attn_mask_keep, attn_mask_keep(now.to, now.keep, now.size))                                                      \
    X(attn_mask_merge, attn_mask_merge(now.to, now.batch, now.x, 1, now.n, now.n_k))                                   \
    X(attn_mask_format, attn_mask_format(now.text, now.size, now.x, now.n, now.n_k, NULL, NULL))                       \
    X(attn_lengths, attn_lengths((int *)now.bytes, now.ints, 0, now.batch, now.n))                                     \
    X(attn_bias_shift, attn_bias_shift(now.to, now.x, 99, 49, now.heads, now.n, now.n_k, 0))                           \
    X(attn_bias_t5, attn_bias_t5(now.to, now.x, 32, 128, 0, now.heads, now.n))                                        \
    X(attn_kv_size, attn_kv_size(&now.kv_args))                                                                        \
    X(attn_kv_saved, attn_kv_saved(&now.kv, now.k))                                                                    \
    X(attn_linear_size, attn_linear_size(&now.linear_args))                                                            \
    X(attn_mha_size, attn_mha_size(&now.mha_args))

#define CALL_NAME(name, call) C_##name,
#define CALL_RUN(name, call) static void run_##name(void) { now.result = (size_t)(call); }
#define CALL_ENTRY(name, call) { #name, run_##name, 0 },
enum { CALLS(CALL_NAME) CALL_COUNT };
CALLS(CALL_RUN)
static struct { const char *name; void (*run)(void); size_t deepest; } calls[] = { CALLS(CALL_ENTRY) };

/* ---- a call on a painted stack ------------------------------------------------------------------------------- */
#define PAINT UINT64_C(0xA5A5A5A5A5A5A5A5)
enum { NEAR = 256 };                      /* bytes below the caller's frame that belong to the painting function */
static size_t where;                      /* bytes of stack of the threads that call */

typedef struct trip { void (*run)(void); unsigned char *low; size_t depth; } trip;

/* Painted and scanned word by word, because every call of this file waits for both. */
static __attribute__((noinline)) void paint(unsigned char *low)
{
    const unsigned char *const end = (unsigned char *)__builtin_frame_address(0) - NEAR;
    volatile uint64_t *p = (volatile uint64_t *)(void *)low;
    for (; (const volatile unsigned char *)(p + 1) <= end; p++) *p = PAINT;
}

static __attribute__((noinline)) size_t look(const unsigned char *low)
{
    const unsigned char *const end = (const unsigned char *)__builtin_frame_address(0);
    const volatile uint64_t *p = (const volatile uint64_t *)(const void *)low;
    while ((const volatile unsigned char *)p < end && *p == PAINT) p++;
    return (size_t)(end - (const unsigned char *)p);
}

static void *go(void *arg)
{
    trip *t = (trip *)arg;
    paint(t->low);
    t->run();
    t->depth = look(t->low);
    return NULL;
}

/* A thread on a stack of this size with a guard page below it. */
static size_t go_there(void (*run)(void), size_t size)
{
    static unsigned char *stack;          /* LARGE bytes, allocated once */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    pthread_attr_t attr;
    pthread_t thread;
    trip t = { run, NULL, 0 };
    if (!stack) {
        void *map = mmap(NULL, LARGE + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED) abort();
        stack = (unsigned char *)map + page;
    }
    t.low = stack + LARGE - size;
    if (mprotect(t.low - page, page, PROT_NONE) || pthread_attr_init(&attr) ||
        pthread_attr_setstack(&attr, t.low, size) || pthread_create(&thread, &attr, go, &t)) {
        printf("no thread with %lu bytes of stack\n", (unsigned long)size);
        exit(3);
    }
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    if (mprotect(t.low - page, page, PROT_READ | PROT_WRITE)) abort();
    return t.depth;
}

static int call(int which)
{
    size_t depth = go_there(calls[which].run, where);
    depth -= depth < now.more ? depth : now.more;
    if (depth > calls[which].deepest) calls[which].deepest = depth;
    return (int)now.result;
}
#define FINE(name) CHECKF(call(C_##name) == ATTN_OK, #name " says %d", (int)now.result)

/* Runs tasks one after the other on the caller's stack, which uses as much as in a thread of a pool. */
static void in_turn(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    (void)pool;
    for (int i = 0; i < n; i++) task(arg, i);
}
static const attn_exec exec_of_3 = { NULL, 3, in_turn };

/* ---- calls of many shapes ------------------------------------------------------------------------------------ */
enum { ROOM = 1 << 20 };
static float *pool[4];                    /* ROOM normal numbers each; the last one is written */
static unsigned short *pool16;            /* and 16 bits of them */

static void pools_make(rng *r)
{
    enum { DRAWN = 65521 };               /* the rest are copies of these, out of step with every power of two */
    for (int i = 0; i < 4; i++) {
        if (!pool[i] && !(pool[i] = malloc(ROOM * sizeof(float)))) abort();
        rng_fill(r, pool[i], DRAWN);
        for (int j = DRAWN; j < ROOM; j++) pool[i][j] = pool[i][j - DRAWN];
    }
    if (!pool16 && !(pool16 = malloc(ROOM * sizeof *pool16))) abort();
    CHECK(attn_narrow(pool16, pool[0], ROOM, ATTN_BF16) == ATTN_OK);
    memset(&now, 0, sizeof now);
}

static void pools_free(void)
{
    for (int i = 0; i < 4; i++) { free(pool[i]); pool[i] = NULL; }
    free(pool16);
    pool16 = NULL;
}

/* Rows of a call. The scalar backend is slow, and computes one row after the other in the same frames. */
static int few(int rows) { return now.scalar && rows > 5 ? 5 : rows; }

/* Random calls of attn_sdpa with all features. */
static void sdpa_calls(rng *r, attn_backend backend)
{
    for (int i = now.slow ? 20 : 0; i < 50 * test_scale; i++) {
        sdpa_case c;
        case_random_upto(r, &c, 65536.0);
        now.a = c.a;
        now.a.backend = backend;
        now.a.work = NULL;
        if (now.a.exec) now.a.exec = &exec_of_3;
        now.text = (char *)pool[3];
        now.size = 500;
        FINE(attn_sdpa);
        FINE(attn_check);
        call(C_attn_sdpa_workspace);
        case_free(&c);
    }
}

/* A cache in every storage, filled in many ways; rows, masks with holes over values that are not finite. */
static void cache_calls(rng *r, attn_backend backend)
{
    static const int dims[] = { 1, 16, 64, 72, 97, 128, 200, 256, 300, 512, 520 };
    static const int rows[] = { 1, 3, 4, 8, 12, 16, 24, 41, 60 };
    for (int i = 0; i < 11 * 9; i += now.slow ? 14 : 4) {
        attn_kv_args *k = &now.kv_args;
        const int heads = rng_int(r, 1, now.scalar ? 1 : 3), what = rng_int(r, 0, 15), n_q = few(rows[i / 11]);
        memset(k, 0, sizeof *k);
        k->batch = 2;
        k->kv_heads = rng_int(r, 1, now.scalar ? 1 : 2);
        k->head_dim = dims[i % 11];
        k->v_head_dim = rng_int(r, 0, 1) ? 0 : dims[rng_int(r, 0, 10)];
        k->capacity = rows[i / 11] > 24 || rng_int(r, 0, 3) ? 300 : 100;
        k->k_storage = k->v_storage = (attn_storage)rng_int(r, 0, 3);
        FINE(attn_kv_init);
        now.x = pool[0];
        now.y = pool[1];
        for (now.n = 1; now.kv.lengths[0] < 18;) FINE(attn_kv_append);
        now.n = n_q;
        FINE(attn_kv_append);
        if (what & 1) { pool[1][7] = INFINITY; pool[1][300] = NAN; }
        for (now.n = 20; now.kv.lengths[0] < k->capacity - n_q - 40; ) FINE(attn_kv_append);
        memset(&now.a, 0, sizeof now.a);
        now.a = attn_args_for(2, n_q, now.kv.lengths[0], heads * k->kv_heads, k->head_dim);
        now.a.kv_heads = k->kv_heads;
        now.a.v_head_dim = now.kv.shape.v_head_dim;
        now.a.kv = &now.kv;
        now.a.q = pool[2];
        now.a.out = pool[3];
        now.a.backend = backend;
        now.a.causal = what & 2 ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
        if (what & 8) now.a.exec = &exec_of_3;
        FINE(attn_sdpa);
        if (what & 4) {
            unsigned char *keep = malloc((size_t)n_q * (size_t)now.a.n_k);
            if (!keep) abort();
            for (int j = 0; j < n_q * now.a.n_k; j++) keep[j] = (unsigned char)(rng_int(r, 0, 5) == 0);
            now.a.keep = keep;
            FINE(attn_sdpa);
            free(keep);
            now.a.keep = NULL;
        }
        now.a.k = pool[0];
        now.a.v = pool[1];
        now.a.causal = ATTN_CAUSAL_NONE;
        now.a.n_k = 0;
        FINE(attn_self_step);
        now.n = 20;
        now.k = 1;
        now.to = pool[3];
        now.size = (size_t)(20 * k->kv_heads * k->head_dim);
        FINE(attn_kv_read);
        now.bytes = pool[3];
        call(C_attn_kv_saved);
        now.size = now.result;
        FINE(attn_kv_save);
        FINE(attn_kv_load);
        FINE(attn_kv_copy);
        { const int map[2] = { 1, 0 }; now.ints = map; FINE(attn_kv_reorder); }
        { const int kept[3] = { 6, 8, 11 }; now.n = 5; now.ints = kept; FINE(attn_kv_keep); }
        now.n = 5;
        FINE(attn_kv_truncate);
        now.n = 1;
        FINE(attn_kv_append);             /* a page that two entries share, a panel that was truncated */
        FINE(attn_kv_forget);
        call(C_attn_kv_size);
        attn_kv_free(&now.kv);
        pool[1][7] = pool[1][300] = 1.0f;
    }
}

static void linear_calls(rng *r)
{
    static const int ins[] = { 1, 16, 80, 256, 257, 600 }, outs[] = { 1, 16, 17, 32, 40, 100, 160 };
    static const int rows[] = { 1, 4, 12, 13, 40, 97 };
    for (int i = rng_int(r, 0, 1); i < 7 * 6; i += now.scalar ? 5 : 2)
        for (int kind = 0; kind < 12; kind++) {         /* every format given, and kept */
            attn_linear_args *l = &now.linear_args;
            memset(l, 0, sizeof *l);
            l->n_in = ins[i / 7];
            l->n_out = outs[i % 7];
            l->storage = (attn_storage)(kind / 3);
            l->w_storage = (attn_storage)(kind % 3);
            l->w = kind % 3 ? (const void *)pool16 : pool[0];
            l->b = rng_int(r, 0, 1) ? pool[1] : NULL;
            FINE(attn_linear_init);
            call(C_attn_linear_size);
            now.to = pool[3];
            FINE(attn_linear_read);
            now.x = pool[2];
            now.more = l->storage == ATTN_Q8 ? BYTES_MORE : 0;
            for (int k = 0; k < (now.scalar ? 4 : now.slow ? 5 : 6); k++) {
                now.n = rows[k];
                now.exec = rng_int(r, 0, 1) ? &exec_of_3 : NULL;
                FINE(attn_linear_run);
            }
            now.more = 0;
            attn_linear_free(&now.linear);
        }
}

static void mha_calls(rng *r, attn_backend backend)
{
    static const int dims[] = { 4, 16, 20, 64, 72, 128, 160, 256 }, rows[] = { 1, 2, 5, 12, 13, 16, 40, 60 };
    float *const table = malloc(400 * 256 * sizeof(float));
    if (!table) abort();
    for (int i = 0; i < 8 * 8; i += now.slow ? 13 : 3) {
        attn_mha_args *m = &now.mha_args;
        attn_kv_args *k = &now.kv_args;
        const int rope = rng_int(r, 0, 1);
        memset(m, 0, sizeof *m);
        memset(k, 0, sizeof *k);
        memset(&now.opts, 0, sizeof now.opts);
        m->kv_heads = rng_int(r, 1, now.scalar ? 1 : 2);
        m->heads = m->kv_heads * rng_int(r, 1, now.scalar ? 1 : 2);
        m->head_dim = dims[i % 8];
        m->v_head_dim = rng_int(r, 0, 1) ? 0 : dims[rng_int(r, 0, 7)];
        m->d_model = rng_int(r, 1, 300);
        m->w_q = m->w_k = m->w_v = m->w_o = pool[0];
        m->b_o = pool[1];
        m->storage = (attn_storage)rng_int(r, 0, 3);
        m->w_storage = (attn_storage)rng_int(r, 0, 2);
        if (rng_int(r, 0, 1)) m->q_norm = m->k_norm = pool[1];
        m->norm_row = rng_int(r, 0, 2);
        m->qk_norm = (attn_norm_kind)rng_int(r, 0, 1);
        m->v_norm = rng_int(r, 0, 1);
        if (rng_int(r, 0, 1)) m->w_gate = pool[0];
        now.to = table;
        now.n = 400;
        now.k = m->head_dim;
        FINE(attn_rope_table);
        if (rope) {
            m->rope_table = table;
            m->positions = 400;
        }
        FINE(attn_mha_init);
        call(C_attn_mha_size);
        now.more = m->storage == ATTN_Q8 ? BYTES_MORE : 0;
        now.to = pool[3];
        now.x = pool[2];
        now.y = pool[1];
        now.batch = 2;
        now.n = few(rows[i / 8]);
        now.n_k = few(rng_int(r, 1, 150));
        now.ints = NULL;
        now.opts.attn.backend = backend;
        if (rng_int(r, 0, 1)) now.opts.attn.exec = &exec_of_3;
        if (rng_int(r, 0, 3) == 0) {
            now.opts.attn.weights = pool[3] + ROOM / 2;
            now.opts.weights_mean = rng_int(r, 0, 1);
        }
        for (now.mha_call = ATTN_MHA_SELF; now.mha_call <= ATTN_MHA_SELF_LOOK; now.mha_call++)
            call(C_attn_mha_workspace);
        FINE(attn_mha_self);
        k->batch = 2;
        k->kv_heads = m->kv_heads;
        k->head_dim = m->head_dim;
        k->v_head_dim = m->v_head_dim;
        k->capacity = 300;
        k->k_storage = k->v_storage = (attn_storage)rng_int(r, 0, 3);
        CHECK(attn_kv_init(&now.kv, k) == ATTN_OK);
        for (int step = 0; step < 3; step++) FINE(attn_mha_self_step);
        now.n = 1;
        for (int step = 0; step < 17; step++) FINE(attn_mha_self_step);
        FINE(attn_mha_self_look);
        now.n = few(rows[i / 8]);
        if (!rope) {
            FINE(attn_mha_cross);
            FINE(attn_mha_cross_fill);
            FINE(attn_mha_cross_step);
        }
        now.more = 0;
        attn_kv_free(&now.kv);
        attn_mha_free(&now.mha);
    }
    free(table);
}

static void line_calls(rng *r)
{
    for (int i = now.slow ? 45 : 0; i < 60; i++) {
        const int n = few(rng_int(r, 0, 2) ? rng_int(r, 1, 20) : rng_int(r, 1, 150));
        now.to = pool[3];
        now.x = pool[0];
        now.y = pool[1];
        now.z = pool[2];
        now.ints = NULL;
        now.batch = rng_int(r, 1, 3);
        now.n = n;
        now.n_k = rng_int(r, 1, 150);
        now.heads = rng_int(r, 1, 4);
        now.head_dim = rng_int(r, 1, 200);
        now.causal = rng_int(r, 0, 1);
        now.a.mask = rng_int(r, 0, 2) ? NULL : pool[2];
        FINE(attn_self);
        FINE(attn_cross);
        now.a.mask = NULL;
    }
}

/* The remaining functions: masks, states, conversions, rotations. */
#ifndef ATTN_NO_DELTA
/* Whole slices and a part of one, with and without threads; wide and narrow convolutions. */
static void delta_calls(rng *r, attn_backend backend)
{
    for (int i = 0; i < 12; i++) {
        static float state[2 * 4 * 20 * 70];
        memset(&now.delta, 0, sizeof now.delta);
        now.delta.out = pool[3], now.delta.state = state;
        now.delta.q = pool[0], now.delta.k = pool[1], now.delta.v = pool[2];
        now.delta.g = pool[1];
        now.delta.batch = 2, now.delta.n = i < 10 ? rng_int(r, 1, 5) : 34;
        now.delta.heads = 4, now.delta.head_dim = 1 + rng_int(r, 0, 19), now.delta.v_head_dim = rng_int(r, 1, 70);
        now.delta.qk_norm = i & 1, now.delta.rule = (attn_rule)(i >> 1 & 1), now.delta.g_per_component = i >> 2 & 1;
        now.delta.backend = backend;
        if (rng_int(r, 0, 1)) now.delta.exec = &exec_of_3;
        memset(state, 0, sizeof state);
        FINE(attn_delta_workspace);
        now.delta.work = i & 1 ? pool[3] + ROOM / 2 : NULL;
        now.delta.work_size = ROOM / 2 * sizeof(float);
        FINE(attn_delta);
        memset(&now.conv, 0, sizeof now.conv);
        now.conv.y = pool[3], now.conv.state = state, now.conv.x = pool[0], now.conv.w = pool[1];
        now.conv.bias = i & 1 ? pool[2] : NULL;
        now.conv.batch = 2, now.conv.n = now.delta.n, now.conv.channels = rng_int(r, 1, 100);
        now.conv.width = rng_int(r, 1, 16), now.conv.silu = i >> 1 & 1;
        now.conv.exec = now.delta.exec, now.conv.backend = backend;
        FINE(attn_conv);
    }
}
#endif

static void other_calls(rng *r)
{
    float ones[64];
    int ids[200];
    for (int i = 0; i < 64; i++) ones[i] = 1.0f;
    for (int i = 0; i < 200; i++) ids[i] = i % 50 < 40;
    for (int i = 0; i < 30; i++) {
        const int n = rng_int(r, 1, 50), n_k = rng_int(r, 1, 50);
        memset(&now.a, 0, sizeof now.a);
        now.to = pool[3];
        now.x = pool[0];
        now.n = n;
        now.n_k = n_k;
        now.batch = 2;
        now.heads = 3;
        now.ints = ids;
        now.keep = (const unsigned char *)pool[1];
        now.bytes = now.text = (char *)pool[3] + ROOM;
        now.size = 1000;
        FINE(attn_mask_causal);
        FINE(attn_mask_window);
        FINE(attn_mask_padding);
        FINE(attn_mask_cross);
        FINE(attn_mask_lengths);
        FINE(attn_mask_keep);
        FINE(attn_mask_merge);
        call(C_attn_mask_format);
        call(C_attn_lengths);
        FINE(attn_bias_t5);
        FINE(attn_bias_shift);
        now.storage = (attn_storage)rng_int(r, 0, 3);
        FINE(attn_narrow);
        FINE(attn_widen);
        now.rope.x = pool[3];
        now.rope.batch = 2;
        now.rope.n = n;
        now.rope.heads = 3;
        now.rope.head_dim = now.k = 2 * rng_int(r, 1, 64);
        now.rope.rope_table = pool[0];
        now.rope.positions = 50;
        now.rope.rope_interleaved = rng_int(r, 0, 1);
        FINE(attn_rope);
        memset(&now.norm, 0, sizeof now.norm);
        now.norm.y = now.to = pool[3];
        now.norm.x = now.x = pool[0];
        now.norm.rows = n;
        now.norm.n = 20;
        now.norm.kind = (attn_norm_kind)rng_int(r, 0, 1);
        FINE(attn_norm);
        {
            const int of_rope = now.k;
            now.k = rng_int(r, 0, 2);
            now.y = pool[1];
            FINE(attn_activate);
            now.k = of_rope;
        }
        memset(&now.freqs, 0, sizeof now.freqs);
        now.freqs.kind = (attn_rope_kind)rng_int(r, 0, (int)ATTN_ROPE_PROPORTIONAL);
        now.freqs.rotary_dim = now.k;
        now.freqs.factor = 8.0;
        now.freqs.original = 4096;
        now.freqs.factors = ones;
        FINE(attn_rope_freqs);
        now.a = attn_args_for(2, n, n_k, 3, 1 + 10 * i);
        for (size_t j = 0; j < 3 * 6 * (size_t)n; j++) pool[0][j * ATTN_STATE(now.a.head_dim) + 2] = 1.0f;
        now.a.carry_out = pool[3];
        now.n = 3;
        if (rng_int(r, 0, 1)) now.a.exec = &exec_of_3;
        FINE(attn_fold);
        now.a.carry_in = pool[0];
        now.a.carry_out = NULL;
        now.a.out = pool[3];
        now.a.lse = pool[2];
        now.a.sinks = rng_int(r, 0, 1) ? pool[1] : NULL;
        now.a.q = pool[0];
        now.a.n_k = 0;
        FINE(attn_sdpa);
        now.n = now.a.head_dim;
        FINE(attn_merge);
    }
}

/* ---- on every backend ---------------------------------------------------------------------------------------- */
/* Calls every function of the C library that is used, on a deep stack, so that it is bound; its stack use is not
   counted. */
static void warm(void)
{
    rng r = rng_make(test_seed);
    where = LARGE;
    pools_make(&r);
    now.slow = 1;
    sdpa_calls(&r, ATTN_AUTO);
    line_calls(&r);
    other_calls(&r);
    pools_free();
    for (int i = 0; i < CALL_COUNT; i++) calls[i].deepest = 0;
}

/* AUTO becomes the backend (linears, attn_self and attn_cross have no option for it). */
static void every_call(size_t bytes)
{
    attn_backend backends[16];
    const int n = attn_backends(backends, 16);
    warm();
    for (int i = 0; i <= n; i++) {
        const attn_backend backend = i < n ? backends[i] : ATTN_AVX2;
        rng r = rng_make(test_seed);
#ifdef ATTN__X86
        const unsigned before = attn__cpu_word, f16c = before & 1u << ATTN__CPU_F16C;
        if (i == n && !(before >> ATTN_AVX2 & 1u)) break;
        attn__cpu_word = 1u | 1u << ATTN_SCALAR | 1u << backend | (i < n ? f16c : 0);   /* the last time without F16C */
#else
        if (i == n) break;
#endif
        where = bytes;
        pools_make(&r);
        now.scalar = backend == ATTN_SCALAR;
        now.slow = now.scalar || bytes == SMALL;
        sdpa_calls(&r, backend);
        cache_calls(&r, backend);
        linear_calls(&r);
        mha_calls(&r, backend);
        line_calls(&r);
        other_calls(&r);
#ifndef ATTN_NO_DELTA
        delta_calls(&r, backend);
#endif
        pools_free();
        where = 0;
#ifdef ATTN__X86
        attn__cpu_word = before;
#endif
    }
}

/* Returns the KB of "attn_xyz" in the manual's table, in tenths; if it is not listed, that of "all others"; 0: no
   table. */
static int manual_tenths(const char *name)
{
    FILE *f = fopen("attn.h", "r");
    char line[200];
    int whole, tenth, inside = 0, others = 0, found = 0;
    if (!f) return 0;
    while (fgets(line, sizeof line, f) && !found) {
        const char *at = strstr(line, name);
        if (strstr(line, "   STACK, in KB")) inside = 1;
        else if (inside && strlen(line) < 3) break;
        if (!inside) continue;
        if (at && (at[strlen(name)] == ' ') && sscanf(at + strlen(name), "%d.%d", &whole, &tenth) == 2)
            found = 10 * whole + tenth;
        at = strstr(line, "all others");
        if (at && sscanf(at + 10, "%d.%d", &whole, &tenth) == 2) others = 10 * whole + tenth;
    }
    fclose(f);
    return found ? found : others;
}

static void figures(void)
{
    /* The manual measures 64 bits: with the eight registers of i686 more is spilled. */
    const int compared = sizeof(void *) == 8;
    every_call(LARGE);
    for (int i = 0; i < CALL_COUNT; i++) {
        const int tenths = compared ? manual_tenths(calls[i].name) : 0;
        const int beside = i == C_attn_self || i == C_attn_cross ? ATTN_STACK : 0;
        CHECKF(calls[i].deepest > 0, "%s was never called", calls[i].name);
        CHECKF(calls[i].deepest <= (size_t)(MOST + beside), "%s takes %lu bytes of stack: more than %d KB",
               calls[i].name, (unsigned long)calls[i].deepest, MOST / KB);
        if (compared && tenths == 0 && i == 0) test_skip("the table of the manual: attn.h is not in this folder");
        if (tenths > 0)
            CHECKF(calls[i].deepest * 10 <= (size_t)(tenths * KB + 10 * beside),
                   "%s takes %lu bytes of stack, the manual says %d.%d KB", calls[i].name,
                   (unsigned long)calls[i].deepest, tenths / 10, tenths % 10);
        if (getenv("STACK_PRINT")) printf("%6lu %s\n", (unsigned long)calls[i].deepest, calls[i].name);
    }
}

/* A guard page is below these stacks: overflow ends the program. */
static void small(void)
{
    every_call(SMALL);
    CHECK(calls[C_attn_mha_self].deepest > 1000);
}
#endif

extern SUITE(stack);
SUITE(stack) = {
    { "manual table", figures, "a function that takes more stack than the manual states, or than 8 KB" },
    { "small threads", small, "a call that crashes in a thread of 16 KB, built with a small ATTN_STACK" },
    { 0 }
};
