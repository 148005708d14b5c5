/* test_pool.c: the small pool behind the executor (ATTN_THREADS), and the floating-point environment of tasks. This
 * file holds an implementation of its own: the pool is not in the one that the other tests share.
 *
 * make test CC=clang CFLAGS='-O1 -g -fsanitize=thread' ARGS=pool      must stay silent */
#undef ATTN_COUNTERS                      /* the counters belong to attn_impl.c */
#define ATTN_THREADS
#define ATTN_STATIC
#define ATTN_IMPLEMENTATION
#include "test.h"

#if !defined(_WIN32)
#include <pthread.h>
#define HAVE_CALLERS 1
#else
#define HAVE_CALLERS 0
#endif
#include <fenv.h>

/* ---- every task once ---------------------------------------------------------------------------------------- */
typedef struct count { int n, task[1000]; } count;

static void count_task(void *arg, int i)
{
    count *c = arg;
    if (i >= 0 && i < 1000) __atomic_fetch_add(&c->task[i], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&c->n, 1, __ATOMIC_RELAXED);
}

static int counts_are(const count *c, int n)
{
    int same = c->n == n;
    for (int i = 0; i < 1000; i++) same = same && c->task[i] == (i < n);
    return same;
}

static void every_task_once(void)
{
    static const int threads[] = {1, 2, 3, 7, 16}, tasks[] = {0, 1, 2, 3, 8, 17, 100, 1000};
    for (int t = 0; t < 5; t++) {
        attn_pool *p = attn_pool_create(threads[t]);
        attn_exec e = attn_pool_exec(p);
        CHECK(p != NULL && e.width == threads[t] && e.pool == p && e.run != NULL);
        for (int round = 0; round < 20; round++)
            for (int k = 0; k < 8; k++) {
                count c = {0};
                e.run(e.pool, tasks[k], count_task, &c);
                CHECKF(counts_are(&c, tasks[k]), "%d tasks on %d threads, round %d: %d done", tasks[k], threads[t],
                       round, c.n);
            }
        attn_pool_destroy(p);
    }
}

static void how_many(void)
{
    attn_pool *p = attn_pool_create(0);
    CHECK(p != NULL && attn_pool_exec(p).width >= 1 && attn_pool_exec(p).width <= 256);
    attn_pool_destroy(p);
    CHECK(attn_pool_create(-1) == NULL);
    CHECK(attn_pool_create(257) == NULL);
    attn_pool_destroy(NULL);
    CHECK(attn_pool_exec(NULL).width == 1);
    {
        count c = {0};
        attn_exec e = attn_pool_exec(NULL);
        e.run(e.pool, 5, count_task, &c);
        CHECK(counts_are(&c, 5));
    }
    p = attn_pool_create(256); /* some systems do not give so many: NULL then, and no crash */
    if (p) {
        count c = {0};
        attn_exec e = attn_pool_exec(p);
        e.run(e.pool, 1000, count_task, &c);
        CHECK(counts_are(&c, 1000));
        attn_pool_destroy(p);
    }
}

static void create_and_destroy(void)
{
    for (int i = 0; i < 200; i++) {                           /* with and without work between, at once or not */
        attn_pool *p = attn_pool_create(1 + i % 5);
        CHECK(p != NULL);
        if (i % 3) {
            count c = {0};
            attn_exec e = attn_pool_exec(p);
            e.run(e.pool, i % 7, count_task, &c);
            CHECK(counts_are(&c, i % 7));
        }
        attn_pool_destroy(p);
    }
}

/* ---- a task that uses the pool ------------------------------------------------------------------------------ */
typedef struct nest { attn_exec *e; int depth; count c; } nest;

static void nest_task(void *arg, int i)
{
    nest *n = arg;
    if (n->depth > 0) {
        nest deeper;
        memset(&deeper, 0, sizeof deeper);
        deeper.e = n->e;
        deeper.depth = n->depth - 1;
        n->e->run(n->e->pool, 4, nest_task, &deeper);
        if (counts_are(&deeper.c, 4)) count_task(&n->c, i);
    } else {
        count_task(&n->c, i);
    }
}

static void nested(void)
{
    attn_pool *p = attn_pool_create(4);
    attn_exec e = attn_pool_exec(p);
    for (int depth = 0; depth < 4; depth++) {
        nest n;
        memset(&n, 0, sizeof n);
        n.e = &e;
        n.depth = depth;
        e.run(e.pool, 9, nest_task, &n);
        CHECKF(counts_are(&n.c, 9), "depth %d", depth);
    }
    attn_pool_destroy(p);
}

/* ---- the same bits ------------------------------------------------------------------------------------------ */
enum { N = 70, HEADS = 3, DIM = 12 };                        /* 1/sqrt(12) is rounded: also outside tasks? */
typedef struct problem {
    float q[N * HEADS * DIM], k[N * HEADS * DIM], v[N * HEADS * DIM], want[N * HEADS * DIM];
} problem;

static attn_status solve(const problem *p, float *out, const attn_exec *e, int backend)
{
    attn_args a = {0};
    a.out = out;
    a.q = p->q;
    a.k = p->k;
    a.v = p->v;
    a.batch = 1;
    a.n_q = a.n_k = N;
    a.heads = HEADS;
    a.dim = DIM;
    a.causal = ATTN_CAUSAL_TOP_LEFT;
    a.exec = e;
    a.backend = backend;
    return attn_sdpa(&a);
}

static problem *problem_make(uint64_t seed)
{
    problem *p = malloc(sizeof *p);
    rng r = rng_make(seed);
    if (!p) abort();
    rng_fill(&r, p->q, N * HEADS * DIM);
    rng_fill(&r, p->k, N * HEADS * DIM);
    rng_fill(&r, p->v, N * HEADS * DIM);
    CHECK(solve(p, p->want, NULL, 0) == ATTN_OK);
    return p;
}

static void same_as_serial(void)
{
    problem *p = problem_make(test_seed);
    float *out = malloc(sizeof p->want), w[HEADS * DIM * 4 * DIM], b[HEADS * DIM], y[2][N * HEADS * DIM];
    rng r = rng_make(test_seed + 1);
    attn_linear l;
    if (!out) abort();
    rng_fill(&r, w, sizeof w / sizeof *w);
    rng_fill(&r, b, HEADS * DIM);
    CHECK(attn_linear_init(&l, w, b, 4 * DIM, HEADS * DIM, NULL, 0, NULL) == ATTN_OK);
    CHECK(attn_linear_run(&l, y[0], p->q, N * HEADS / 4, NULL) == ATTN_OK);
    for (int threads = 1; threads <= 9; threads += 2) {
        attn_pool *pool = attn_pool_create(threads);
        attn_exec e = attn_pool_exec(pool);
        for (int round = 0; round < 10; round++) {
            memset(out, 0x77, sizeof p->want);
            CHECK(solve(p, out, &e, 0) == ATTN_OK);
            CHECKF(same_bits(out, p->want, N * HEADS * DIM), "attention on %d threads", threads);
            CHECK(attn_linear_run(&l, y[1], p->q, N * HEADS / 4, &e) == ATTN_OK);
            CHECKF(same_bits(y[0], y[1], (size_t)(N * HEADS / 4 * HEADS * DIM)), "linear on %d threads", threads);
        }
        attn_pool_destroy(pool);
    }
    attn_linear_free(&l);
    free(out);
    free(p);
}

#if HAVE_CALLERS
typedef struct caller { attn_exec *e; problem *p; int wrong; } caller;

static void *caller_run(void *arg)
{
    caller *c = arg;
    float *out = malloc(sizeof c->p->want);
    for (int i = 0; i < 40 && out; i++) {
        memset(out, 0x77, sizeof c->p->want);
        if (solve(c->p, out, c->e, 0) != ATTN_OK || !same_bits(out, c->p->want, N * HEADS * DIM)) c->wrong++;
    }
    free(out);
    return NULL;
}

static void several_callers(void)
{
    enum { CALLERS = 5 };
    attn_pool *pool = attn_pool_create(3);
    attn_exec e = attn_pool_exec(pool);
    pthread_t thread[CALLERS];
    caller c[CALLERS];
    int started = 0;
    for (int i = 0; i < CALLERS; i++) {
        c[i].e = &e;
        c[i].p = problem_make(test_seed + 10 + (uint64_t)i);
        c[i].wrong = 0;
    }
    for (; started < CALLERS; started++)
        if (pthread_create(thread + started, NULL, caller_run, c + started)) break;
    for (int i = 0; i < started; i++) (void)pthread_join(thread[i], NULL);
    CHECK(started == CALLERS);
    for (int i = 0; i < CALLERS; i++) {
        CHECKF(c[i].wrong == 0, "caller %d got %d wrong answers of 40", i, c[i].wrong);
        free(c[i].p);
    }
    attn_pool_destroy(pool);
}
#else
static void several_callers(void) { test_skip("no pthreads here to call from"); }
#endif

/* ---- the environment ---------------------------------------------------------------------------------------- */

/* Rounding upward, flags of its own: the host must get the same bits and find both as it left them. */
static void environment(void)
{
#if (defined(__GNUC__) && (defined(__x86_64__) || defined(__aarch64__))) || defined(_M_X64)
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
    int backends[16], n_backends = test_one_answer_backends(backends, 16);
    problem *p = problem_make(test_seed + 20);
    float *out = malloc(sizeof p->want);
    attn_pool *pool = attn_pool_create(3);
    attn_exec e = attn_pool_exec(pool);
    if (!out) abort();
    for (int i = 0; i < 4; i++)
        for (int b = 0; b < n_backends; b++)
            for (int flags = 0; flags < 2; flags++)
                for (int width = 0; width < 2; width++) {
                    int mode, raised, wanted = flags ? FE_DIVBYZERO | FE_INEXACT : 0;
                    attn_status status;
                    memset(out, 0x77, sizeof p->want);
                    feclearexcept(FE_ALL_EXCEPT);
                    fesetround(modes[i]);
                    if (flags) feraiseexcept(wanted);
                    wanted = fetestexcept(FE_ALL_EXCEPT);
                    status = solve(p, out, width ? &e : NULL, backends[b]);
                    raised = fetestexcept(FE_ALL_EXCEPT);
                    mode = fegetround();
                    fesetround(FE_TONEAREST);
                    CHECK(status == ATTN_OK);
                    CHECKF(mode == modes[i], "the rounding mode of the caller was changed");
                    CHECKF((raised & ~wanted) == 0 && (wanted & ~raised) == 0,
                           "exception flags of the caller: %x, were %x", (unsigned)raised, (unsigned)wanted);
                    CHECKF(same_bits(out, p->want, N * HEADS * DIM), "%s: other bits in another rounding mode",
                           attn_backend_name(backends[b]));
                }
    attn_pool_destroy(pool);
    free(out);
    free(p);
#else
    test_skip("no control word is known for this machine");
#endif
}

/* tasks see denormals although the host flushes them, and the host flushes them again afterwards */
#if defined(__GNUC__) && defined(__x86_64__)
typedef unsigned word;
static const word FLUSH = 0x8040u, CONTROL = 0xFFC0u;                      /* MXCSR: FTZ and DAZ; not the flags */
static word word_get(void) { word w = 0; __asm__ __volatile__("stmxcsr %0" : "=m"(w) : : "memory"); return w; }
static void word_set(word w) { __asm__ __volatile__("ldmxcsr %0" : : "m"(w) : "memory"); }
#define HAVE_WORD 1
#elif defined(__GNUC__) && defined(__aarch64__)
typedef unsigned long long word;
static const word FLUSH = 1ull << 24, CONTROL = ~0ull;                     /* FPCR: FZ */
static word word_get(void) { word w = 0; __asm__ __volatile__("mrs %0, fpcr" : "=r"(w) : : "memory"); return w; }
static void word_set(word w) { __asm__ __volatile__("msr fpcr, %0" : : "r"(w) : "memory"); }
#define HAVE_WORD 1
#else
#define HAVE_WORD 0
#endif

#if HAVE_WORD
static void denormal_task(void *arg, int i)
{
    volatile float *x = arg;
    (void)i;
    x[1] = x[0] * 0.5f;
}

static void denormals(void)
{
    volatile float x[3] = {1e-39f, 0.0f, 0.0f};
    word before = word_get(), after;
    word_set(before | FLUSH);
    x[2] = x[0] * 0.5f;
    attn__run(NULL, 1, denormal_task, (void *)(uintptr_t)x);
    after = word_get();
    word_set(before);
    CHECK(float_bits(x[2]) == 0);                             /* the host does flush: the test tests something */
    CHECK(float_bits(x[1]) == float_bits(x[0]) / 2);
    CHECK((after & CONTROL) == ((before | FLUSH) & CONTROL));
}
#else
static void denormals(void) { test_skip("no control word is known for this machine"); }
#endif

extern const test_case suite_pool[];
SUITE(pool) = {
    {"every task once", every_task_once, "a task lost, done twice, or still running when run() returns"},
    {"how many", how_many, "a number of threads that is out of range, or taken literally where it means: all"},
    {"create and destroy", create_and_destroy, "a worker that misses the end, or is not there yet"},
    {"nested", nested, "a task that waits for its own pool"},
    {"same as serial", same_as_serial, "bits that depend on the pool"},
    {"several callers", several_callers, "two jobs mixed up"},
    {"environment", environment, "rounding mode or flags of the host that leak in or out"},
    {"denormals", denormals, "flushing of the host that leaks in, or is forgotten"},
    {0}
};
