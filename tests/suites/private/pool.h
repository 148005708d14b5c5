/* pool.h: the small pool that the executor uses (ATTN_THREADS), the floating-point environment of tasks, and hardware
 * detection. They are in private.c, because there system calls can fail and processor features can be missing.
 *
 * make test CC=clang CFLAGS='-O1 -g -fsanitize=thread' ARGS=pool      must stay silent */
#ifdef ATTN_THREADS
#include <fenv.h>
#include <stdarg.h>
#if HAVE_SHAKING || HAVE_CALLERS
#include <sched.h>
#endif
#include "harness.h"

/* ---- a system that refuses --------------------------------------------------------------------------------- */

#if HAVE_CALLERS
static int sys_mutex(pthread_mutex_t *m) { return sys_grants() ? pthread_mutex_init(m, NULL) : -1; }
static int sys_mutex_end(pthread_mutex_t *m) { sys_returned(); return pthread_mutex_destroy(m); }
static int sys_cond(pthread_cond_t *c) { return sys_grants() ? pthread_cond_init(c, NULL) : -1; }
static int sys_cond_end(pthread_cond_t *c) { sys_returned(); return pthread_cond_destroy(c); }
static int sys_thread_end(pthread_t t) { sys_returned(); return pthread_join(t, NULL); }
static long sys_processors(void) { return sys.processors ? sys.processors : sysconf(_SC_NPROCESSORS_ONLN); }

/* The clock of spins: `us` while `set`. */
static struct { int set; long long us; } sys_time;

static int sys_clock(struct timeval *t)
{
    if (!sys_time.set) return gettimeofday(t, NULL);
    t->tv_sec = (time_t)(sys_time.us / 1000000);
    t->tv_usec = (suseconds_t)(sys_time.us % 1000000);
    return 0;
}

static int sys_thread(pthread_t *t, void *(*run)(void *), void *arg)
{
    return sys_grants() ? pthread_create(t, NULL, run, arg) : -1;
}
#endif

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

/* The end of a job of INT_MAX tasks on two threads, which would take a minute from its beginning. */
static attn_pool long_pool;
static void long_task(void *arg, int i)
{
    ++*(int *)arg;
    if (i < 0) long_pool.n = INT_MIN;             /* fails: 4 billion tasks would follow */
}

static void long_job(void)
{
    int done = 0;
    long_pool.n = INT_MAX;
    long_pool.next = INT_MAX - 2;
    long_pool.task = long_task;
    long_pool.arg = &done;
    attn__pool_work(&long_pool);
    CHECK(done == 2);
    attn__pool_work(&long_pool);
    CHECK(done == 2 && long_pool.n == INT_MAX);
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
    p = attn_pool_create(256); /* some systems allow fewer threads: then NULL, and no crash */
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
    for (int i = 0; i < 200; i++) {                           /* with and without work and pauses between the jobs */
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

/* If memory, the lock, a condition variable or a thread is refused, no pool is made and everything is released. */
static void creation_fails(void)
{
#if HAVE_CALLERS
    static const int threads[] = {1, 2, 6};
    for (int t = 0; t < 3; t++) {
        const int things = 1 + 1 + 3 + threads[t] - 1;
        for (int fail = 0; fail <= things; fail++) {
            attn_pool *p;
            memset(&sys, 0, sizeof sys);
            sys.armed = 1;
            sys.fail_at = fail;
            p = attn_pool_create(threads[t]);
            CHECKF((p == NULL) == (fail < things), "%d threads, refusal %d", threads[t], fail);
            if (p) {
                count c = {0};
                attn_exec e = attn_pool_exec(p);
                e.run(e.pool, 9, count_task, &c);
                CHECK(counts_are(&c, 9) && sys.live == things);
                attn_pool_destroy(p);
            }
            CHECKF(sys.live == 0, "%d threads, refusal %d: %d things were not given back", threads[t], fail, sys.live);
            memset(&sys, 0, sizeof sys);
        }
    }
#else
    test_skip("no pthreads here that could refuse");
#endif
}

/* 0 threads: as many as processors, at least one and at most 256, for any number that the system reports */
static void processors(void)
{
#if HAVE_CALLERS
    static const long says[] = {-1, 1, 3, 1000000};
    static const int want[] = {1, 1, 3, 256};
    for (int i = 0; i < 4; i++) {
        attn_pool *p;
        sys.processors = says[i];
        p = attn_pool_create(0);
        sys.processors = 0;
        CHECKF(want[i] == 256 ? !p || attn_pool_exec(p).width == 256 : p && attn_pool_exec(p).width == want[i],
               "%ld processors: %d threads", says[i], p ? attn_pool_exec(p).width : 0);
        attn_pool_destroy(p);
    }
#else
    test_skip("the number of processors is not asked for by sysconf here");
#endif
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

/* Two tasks that wait for each other run on two threads: one of them is a worker, which uses its own pool. */
typedef struct meeting { attn_exec *e; int there; count c; } meeting;

static void meeting_task(void *arg, int i)
{
    meeting *m = arg;
    count inner = {0};
    __atomic_fetch_add(&m->there, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&m->there, __ATOMIC_SEQ_CST) < 2) continue;
    m->e->run(m->e->pool, 6, count_task, &inner);
    if (counts_are(&inner, 6)) count_task(&m->c, i);
}

static void nested(void)
{
    attn_pool *p = attn_pool_create(4);
    attn_exec e = attn_pool_exec(p);
    for (int round = 0; round < 20; round++) {
        meeting m;
        memset(&m, 0, sizeof m);
        m.e = &e;
        e.run(e.pool, 2, meeting_task, &m);
        CHECKF(counts_are(&m.c, 2), "meeting %d", round);
    }
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

/* Pool A, whose tasks use pool B, whose tasks use pool A. The first task of B gives a second thread 10 ms to take the
 * other task: that thread does not belong to A and must not wait for A. */
typedef struct chain { attn_exec a, b; int there, done; count outer, middle, inner; } chain;

static void chain_inner(void *arg, int i)
{
    chain *c = arg;
    (void)i;
    __atomic_fetch_add(&c->inner.n, 1, __ATOMIC_RELAXED);
}

static void chain_middle(void *arg, int i)
{
    chain *c = arg;
    const double end = test_seconds() + 0.01;
    __atomic_fetch_add(&c->there, 1, __ATOMIC_SEQ_CST);
    while (i == 0 && __atomic_load_n(&c->there, __ATOMIC_SEQ_CST) < 2 && test_seconds() < end) continue;
    c->a.run(c->a.pool, 3, chain_inner, c);
    __atomic_fetch_add(&c->middle.n, 1, __ATOMIC_RELAXED);
}

static void chain_outer(void *arg, int i)
{
    chain *c = arg;
    c->b.run(c->b.pool, 2, chain_middle, c);
    count_task(&c->outer, i);
}

#if HAVE_CALLERS
static void *chain_run(void *arg)
{
    chain *c = arg;
    for (int round = 0; round < 5; round++) {
        c->there = 0;
        memset(&c->outer, 0, sizeof c->outer);
        c->middle.n = c->inner.n = 0;
        c->a.run(c->a.pool, 2, chain_outer, c);
        if (!counts_are(&c->outer, 2) || c->middle.n != 4 || c->inner.n != 12) break;
        __atomic_fetch_add(&c->done, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void two_pools(void)
{
    static chain c;                                           /* outlives a deadlock */
    attn_pool *a = attn_pool_create(3), *b = attn_pool_create(3);
    const double end = test_seconds() + 30;
    pthread_t thread;
    memset(&c, 0, sizeof c);
    c.a = attn_pool_exec(a);
    c.b = attn_pool_exec(b);
    const int created = pthread_create(&thread, NULL, chain_run, &c);
    CHECK(created == 0);
    if (created != 0) return;
    while (__atomic_load_n(&c.done, __ATOMIC_SEQ_CST) < 5 && test_seconds() < end) (void)sched_yield();
    CHECKF(c.done == 5, "after 30 seconds %d of 5 rounds are done: it waits, or tasks are lost", c.done);
    if (c.done < 5) return;                                   /* there are no threads to join */
    (void)pthread_join(thread, NULL);
    attn_pool_destroy(a);
    attn_pool_destroy(b);
}

/* ---- a child of fork() ---------------------------------------------------------------------------------------- */

/* A caller that keeps the pool busy, so that it is forked with its lock held and a job half done. */
typedef struct busy { attn_exec e; int stop; } busy;

static void *busy_run(void *arg)
{
    busy *u = arg;
    while (!__atomic_load_n(&u->stop, __ATOMIC_RELAXED)) {
        count c = {0};
        u->e.run(u->e.pool, 8, count_task, &c);
    }
    return NULL;
}

static void forked(void)
{
    attn_pool *p = attn_pool_create(4);
    busy u = { attn_pool_exec(p), 0 };
    pthread_t thread;
    const int created = pthread_create(&thread, NULL, busy_run, &u);
    CHECK(created == 0);
    if (created != 0) return;
    for (int i = 0; i < 20; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            count c = {0};
            alarm(20);                                        /* a signal ends a process that waits for a thread */
            u.e.run(u.e.pool, 100, count_task, &c);
            attn_pool_destroy(p);
            _exit(counts_are(&c, 100) ? 0 : 1);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %d: status %x", i, (unsigned)status);
        if (test_failed()) break;
    }
    __atomic_store_n(&u.stop, 1, __ATOMIC_RELAXED);
    (void)pthread_join(thread, NULL);
    {
        count c = {0};                                        /* unused so far in the child */
        u.e.run(u.e.pool, 100, count_task, &c);
        CHECK(counts_are(&c, 100));
    }
    attn_pool_destroy(p);
}
#else
static void two_pools(void) { (void)chain_outer; test_skip("no pthreads here to wait beside"); }
static void forked(void) { test_skip("nothing forks here"); }
#endif

/* ---- the same bits ------------------------------------------------------------------------------------------ */
/* 1/sqrt(12) is rounded: also outside tasks? */
enum { P_ROWS = 70, P_HEADS = 3, P_DIM = 12, CELLS = P_ROWS * P_HEADS * P_DIM };
typedef struct problem {
    float q[CELLS], k[CELLS], v[CELLS], want[CELLS];
} problem;

static attn_status solve(const problem *p, float *out, const attn_exec *e, attn_backend backend)
{
    attn_args a = {0};
    a.out = out;
    a.q = p->q;
    a.k = p->k;
    a.v = p->v;
    a.batch = 1;
    a.n_q = a.n_k = P_ROWS;
    a.heads = P_HEADS;
    a.head_dim = P_DIM;
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
    rng_fill(&r, p->q, CELLS);
    rng_fill(&r, p->k, CELLS);
    rng_fill(&r, p->v, CELLS);
    CHECK(solve(p, p->want, NULL, 0) == ATTN_OK);
    return p;
}

static void same_as_serial(void)
{
    problem *p = problem_make(test_seed);
    float *out = malloc(sizeof p->want), w[P_HEADS * P_DIM * 4 * P_DIM], b[P_HEADS * P_DIM], y[2][CELLS];
    rng r = rng_make(test_seed + 1);
    attn_linear_args la = {0};
    attn_linear l;
    if (!out) abort();
    rng_fill(&r, w, sizeof w / sizeof *w);
    rng_fill(&r, b, P_HEADS * P_DIM);
    la.n_in = 4 * P_DIM, la.n_out = P_HEADS * P_DIM, la.w = w, la.b = b;
    CHECK(attn_linear_init(&l, &la) == ATTN_OK);
    CHECK(attn_linear_run(&l, y[0], p->q, P_ROWS * P_HEADS / 4, 0, NULL) == ATTN_OK);
    for (int threads = 1; threads <= 9; threads += 2) {
        attn_pool *pool = attn_pool_create(threads);
        attn_exec e = attn_pool_exec(pool);
        for (int round = 0; round < 10; round++) {
            memset(out, 0x77, sizeof p->want);
            CHECK(solve(p, out, &e, 0) == ATTN_OK);
            CHECKF(same_bits(out, p->want, CELLS), "attention on %d threads", threads);
            CHECK(attn_linear_run(&l, y[1], p->q, P_ROWS * P_HEADS / 4, 0, &e) == ATTN_OK);
            CHECKF(same_bits(y[0], y[1], P_ROWS * P_HEADS / 4 * P_HEADS * P_DIM), "linear on %d threads", threads);
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
        if (solve(c->p, out, c->e, 0) != ATTN_OK || !same_bits(out, c->p->want, CELLS)) c->wrong++;
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

/* ---- idle workers -------------------------------------------------------------------------------------------- */
#if HAVE_CALLERS
static int all_sleep(attn_pool *p)
{
    const double end = test_seconds() + 20;
    int sleeping = 0;
    while (test_seconds() < end && sleeping < p->workers) {
        attn__lock_take(&p->lock);
        sleeping = p->sleeping;
        attn__lock_drop(&p->lock);
        (void)sched_yield();
    }
    return sleeping == p->workers;
}

/* Simulates that the latest job ended `us` microseconds ago. */
static void pause_of(attn_pool *p, long long us)
{
    attn__lock_take(&p->lock);
    p->ended = attn__microseconds() - us;
    attn__lock_drop(&p->lock);
}

typedef struct who { pthread_t caller; int others; } who;

static void who_task(void *arg, int i)
{
    who *w = arg;
    (void)i;
    if (!pthread_equal(pthread_self(), w->caller)) __atomic_fetch_add(&w->others, 1, __ATOMIC_SEQ_CST);
}

/* Runs tasks as attn__run does. wake 0: a short job. */
static void run_job(attn_pool *p, int n, void (*task)(void *arg, int i), void *arg, int wake)
{
    attn__job job = { task, arg, wake };
    attn__pool_run(p, n, attn__run_one, &job);
}

/* Two tasks that wait for each other, at most 20 s: each has its own thread, or this fails. */
static void together_task(void *arg, int i)
{
    meeting *m = arg;
    const double end = test_seconds() + 20;
    __atomic_fetch_add(&m->there, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&m->there, __ATOMIC_SEQ_CST) < 2 && test_seconds() < end) (void)sched_yield();
    if (__atomic_load_n(&m->there, __ATOMIC_SEQ_CST) >= 2) count_task(&m->c, i);
}

static int together(attn_pool *p, int wake)
{
    meeting m;
    memset(&m, 0, sizeof m);
    run_job(p, 2, together_task, &m, wake);
    return counts_are(&m.c, 2);
}

static void short_jobs(void)
{
    attn_pool *p;
    sys.processors = 4;
    p = attn_pool_create(2);
    CHECK(p != NULL && all_sleep(p));
    for (int round = 0; round < 20 && all_sleep(p); round++) {
        who w = { pthread_self(), 0 };
        pause_of(p, 1000000);
        run_job(p, 64, who_task, &w, 0);
        CHECKF(w.others == 0 && p->sleeping == 1, "round %d: a short job after a pause woke a worker", round);
        for (int job = 1; job < 5; job++) {                   /* a layer's call makes a few jobs */
            pause_of(p, 0);
            run_job(p, 64, who_task, &w, 0);
            CHECKF(w.others == 0 && p->sleeping == 1, "round %d: job %d of a call after a pause woke a worker", round,
                   job);
        }
    }
    /* In quick succession a worker is worth waking: it will be awake for the next jobs. */
    for (int job = 5; job < ATTN__STREAK; job++) {
        who w = { pthread_self(), 0 };
        pause_of(p, 0);
        run_job(p, 64, who_task, &w, 0);
    }
    pause_of(p, 0);
    CHECK(together(p, 0));
    CHECK(all_sleep(p));
    pause_of(p, 1000000);
    CHECK(together(p, 1));                                    /* a long job wakes it after any pause */
    attn_pool_destroy(p);
    sys.processors = 0;
}

static void spin_adapts(void)
{
    attn_pool *p;
    sys.processors = 2;
    p = attn_pool_create(2);
    CHECK(p != NULL);
    attn__lock_take(&p->lock);
    for (int i = 1; i < 12; i++) {
        p->ended = attn__microseconds();
        CHECK(attn__pool_adapt(p) == (i >= ATTN__STREAK) && p->spin == ATTN_POOL_SPIN);
    }
    for (int i = 1; i < 12; i++) {
        p->ended = attn__microseconds() - ATTN_POOL_SPIN - 100000;
        CHECK(attn__pool_adapt(p) == 0);
        CHECKF(p->spin == ATTN_POOL_SPIN >> (i < 6 ? i : 6), "%d long pauses: %d us", i, p->spin);
    }
    p->ended = attn__microseconds();
    CHECK(attn__pool_adapt(p) == 0 && p->spin == ATTN_POOL_SPIN);
    /* preempted: no spinning, and twice as long the next time, up to a limit */
    for (int i = 0; i < 12; i++) {
        const long long now = attn__microseconds();
        const int most = ATTN__CROWDED_MOST, want = i < 7 ? ATTN__CROWDED << i : most;
        attn__pool_crowd(p, now);
        CHECKF(p->crowded_for == (want < most ? want : most), "preemption %d: %d us", i, p->crowded_for);
        p->ended = now;
        CHECK(attn__pool_adapt(p) == 0 && p->spin == 0);
    }
    attn__pool_crowd(p, attn__microseconds() + 100000000);
    CHECK(p->crowded_for == ATTN__CROWDED);
    attn__lock_drop(&p->lock);
    attn_pool_destroy(p);

    sys.processors = 1;                                       /* more threads than processors */
    p = attn_pool_create(2);
    attn__lock_take(&p->lock);
    p->ended = attn__microseconds();
    CHECK(attn__pool_adapt(p) == 0 && p->spin == 0);
    attn__lock_drop(&p->lock);
    attn_pool_destroy(p);
    sys.processors = 0;
}

/* Returns the number of pauses until the spin ends if each reading of the clock is `step` us later. */
static int spin_pauses(int us, long long step, int *preempted)
{
    attn__spin s;
    int n = 1;
    sys_time.set = 1;
    sys_time.us = 5000000;
    s = attn__spin_make(NULL, us);
    while (sys_time.us += n % ATTN__SPIN_STEP == 0 ? step : 0, attn__spin_more(&s) && n < 1000000) n++;
    sys_time.set = 0;
    *preempted = s.preempted;
    return n;
}

static void spin_ends(void)
{
    int preempted;
    CHECK(spin_pauses(1000, 10, &preempted) == 100 * ATTN__SPIN_STEP && !preempted);
    CHECK(spin_pauses(0, 10, &preempted) == ATTN__SPIN_STEP && !preempted);
    CHECK(spin_pauses(1000, ATTN__PREEMPTED, &preempted) == 4 * ATTN__SPIN_STEP && !preempted);
    CHECK(spin_pauses(100000, ATTN__PREEMPTED + 1, &preempted) == ATTN__SPIN_STEP && preempted);
    CHECK(spin_pauses(1000, -1, &preempted) == ATTN__SPIN_STEP && !preempted);
}
#else
static void short_jobs(void) { test_skip("no pthreads here to put to sleep"); }
static void spin_adapts(void) { test_skip("no pthreads here to put to sleep"); }
static void spin_ends(void) { test_skip("the clock of spins is not gettimeofday here"); }
#endif

/* ---- placement ----------------------------------------------------------------------------------------------- */
#if HAVE_PLACEMENT
/* A machine of 64 CPUs, while `on`: the caller runs on `cpu`, workers on 63. */
static struct {
    int on, cpu, refuse, sets;
    unsigned long mask, set[8];           /* of the worker; new masks, by caller: 0 is the worker itself */
    long by[8];
} place;
static __thread int is_caller;

long syscall(long number, ...);           /* unistd.h hides it under -std=c99 */

long sys_call(long number, ...)
{
    va_list list;
    long a[3], got = 0;
    va_start(list, number);
    for (int i = 0; i < 3; i++) a[i] = number == SYS_gettid ? 0 : va_arg(list, long);
    va_end(list);
    if (number == SYS_gettid) return syscall(SYS_gettid);
    if (!__atomic_load_n(&place.on, __ATOMIC_SEQ_CST)) return syscall(number, a[0], a[1], a[2]);
    if (number == SYS_getcpu) {
        *(unsigned *)a[0] = is_caller ? (unsigned)place.cpu : 63u;
    } else if (number == SYS_sched_getaffinity) {
        memcpy((void *)a[2], &place.mask, sizeof place.mask);
        got = place.refuse ? -1 : 8;
    } else if (place.sets < 8) {
        CHECK(number == SYS_sched_setaffinity && a[1] == 8);
        memcpy(&place.mask, (void *)a[2], sizeof place.mask);
        place.set[place.sets] = place.mask;
        place.by[place.sets++] = a[0];
    }
    return got;
}

typedef struct placed { attn_pool *p; meeting m; unsigned long then; } placed;

/* The worker's task records its mask, and may change it, like taskset. */
static void placed_task(void *arg, int i)
{
    placed *d = arg;
    if (!is_caller) d->then = place.mask;
    together_task(&d->m, i);
}

/* One job with a worker that sleeps, on a machine with this mask. Returns the mask during the worker's task. */
static unsigned long one_job(attn_pool *p, int cpu, unsigned long mask)
{
    placed d;
    memset(&d, 0, sizeof d);
    CHECK(all_sleep(p));
    memset(&place, 0, sizeof place);
    place.cpu = cpu;
    place.mask = mask;
    __atomic_store_n(&place.on, 1, __ATOMIC_SEQ_CST);
    run_job(p, 2, placed_task, &d, 1);
    CHECK(counts_are(&d.m.c, 2) && all_sleep(p));
    __atomic_store_n(&place.on, 0, __ATOMIC_SEQ_CST);
    return d.then;
}

static void kept_off(void)
{
    attn_pool *p;
    is_caller = 1;
    sys.processors = 4;
    p = attn_pool_create(2);
    CHECK(p != NULL);
    CHECK(one_job(p, 0, 0xF) == 0xF && place.sets == 2);      /* without CPU 0, by the caller; then restored */
    CHECK(place.set[0] == 0xE && place.by[0] != 0 && place.set[1] == 0xF && place.by[1] == 0);
    CHECK(one_job(p, 2, 0x6) == 0x6 && place.sets == 2 && place.set[0] == 0x2);
    CHECK(one_job(p, 1, 0x2) == 0x2 && place.sets == 0);      /* one CPU: the worker stays on it */
    CHECK(one_job(p, 0, 0xC) == 0xC && place.sets == 0);      /* the caller is on another CPU */
    attn_pool_destroy(p);
    sys.processors = 0;
}

/* The mask that attn__move_off set is another one when the worker wakes: it stays. */
static void users_masks(void)
{
    attn_pool *p;
    is_caller = 1;
    p = attn_pool_create(2);
    CHECK(p != NULL && all_sleep(p));
    memset(&place, 0, sizeof place);
    place.mask = 0xF;
    __atomic_store_n(&place.on, 1, __ATOMIC_SEQ_CST);
    attn__lock_take(&p->lock);
    attn__move_off(p->worker, 0);
    CHECK(place.sets == 1 && place.mask == 0xE);
    attn__move_off(p->worker, 1);                             /* not woken: the caller has moved on */
    CHECK(place.sets == 2 && place.mask == 0xD);
    place.mask = 0x4;                                         /* taskset */
    attn__move_off(p->worker, 3);
    CHECK(place.sets == 2 && place.mask == 0x4);
    attn__lock_drop(&p->lock);
    attn__move_back(p->worker);
    CHECK(place.sets == 2 && place.mask == 0x4);
    place.refuse = 1;
    attn__lock_take(&p->lock);
    attn__move_off(p->worker, 0);
    attn__lock_drop(&p->lock);
    CHECK(place.sets == 2);
    __atomic_store_n(&place.on, 0, __ATOMIC_SEQ_CST);
    attn_pool_destroy(p);
}

/* On the real machine: after many jobs and pauses all masks of this process are restored. */
static void masks_stay(void)
{
    unsigned long before[128] = {0}, after[128];
    attn_pool *p = attn_pool_create(3);
    CHECK(p != NULL && syscall(SYS_sched_getaffinity, 0, sizeof before, before) > 0);
    for (int round = 0; round < 50; round++) {
        count c = {0};
        if (round % 5 == 0) CHECK(all_sleep(p));
        attn__pool_run(p, 8, count_task, &c);
        CHECK(counts_are(&c, 8));
    }
    CHECK(all_sleep(p));
    attn__lock_take(&p->lock);
    for (int i = -1; i < p->workers; i++) {
        memset(after, 0, sizeof after);
        if (i >= 0) attn__atomic_set(&p->worker[i].cpu, -1);  /* a sleeping worker's CPU may still be removed */
        if (i >= 0 && p->worker[i].removed) continue;
        CHECK(syscall(SYS_sched_getaffinity, i < 0 ? 0L : (long)p->worker[i].thread_id, sizeof after, after) > 0);
        CHECKF(memcmp(before, after, sizeof before) == 0, "the mask of thread %d changed", i);
    }
    attn__lock_drop(&p->lock);
    attn_pool_destroy(p);
}
#else
static void kept_off(void) { test_skip("the pool places its threads on Linux alone"); }
static void users_masks(void) { test_skip("the pool places its threads on Linux alone"); }
static void masks_stay(void) { test_skip("the pool places its threads on Linux alone"); }
#endif

/* ---- any order of things ------------------------------------------------------------------------------------- */
#if HAVE_SHAKING
static int shaking;

/* Another thread may run before every access to an atomic of a pool; shaking forces this by pauses of up to some 10 us
   and up to three yields. Every yield costs a time slice where other programs run. */
static void shake(void)
{
    static __thread uint32_t dice;
    if (!shaking) return;
    if (!dice) dice = (uint32_t)test_seed + (uint32_t)((uintptr_t)&dice >> 6);
    dice = dice * 1664525u + 1013904223u;
    if (dice >> 29) return;
    for (volatile unsigned n = 100 * (dice >> 20 & 63); n > 0;) n--;
    for (unsigned n = dice >> 26 & 3; n > 0; n--) (void)sched_yield();
}

static void *caller_shaken(void *arg)
{
    const attn_exec *e = arg;
    for (int n = 2; n < 600; n++) {
        count c = {0};
        e->run(e->pool, n % 7 + 2, count_task, &c);
        if (!counts_are(&c, n % 7 + 2)) return NULL;
    }
    return arg;
}

static void shaken(void)
{
    static const int threads[] = {2, 3, 4};
    for (int t = 0; t < 3; t++)
        for (int callers = 1; callers <= 2; callers++) {
            attn_pool *pool;
            attn_exec e;
            pthread_t other;
            void *right = NULL;
            shaking = 1;
            alarm(300);                   /* a signal ends a deadlock; a busy machine takes a minute */
            pool = attn_pool_create(threads[t]);
            e = attn_pool_exec(pool);
            if (callers > 1 && pthread_create(&other, NULL, caller_shaken, &e)) abort();
            CHECKF(caller_shaken(&e) != NULL, "%d threads, %d callers: a task lost, or done twice", threads[t],
                   callers);
            if (callers > 1) (void)pthread_join(other, &right);
            CHECK(callers == 1 || right != NULL);
            attn_pool_destroy(pool);
            alarm(0);
            shaking = 0;
        }
}
#else
static void shaken(void) { test_skip("the atomics of this compiler cannot be shaken"); }
#endif

/* ---- the environment ---------------------------------------------------------------------------------------- */

/* Rounding upward, with flags set: the host must get the same bits and find both unchanged. */
static void environment(void)
{
#if defined(_M_X64) || (defined(__GNUC__) && (defined(__x86_64__) || defined(__SSE_MATH__) || \
    defined(__aarch64__) || defined(__ARM_FP) || defined(__riscv_flen) || defined(__s390x__) || defined(__powerpc64__)))
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
    attn_backend backends[16];
    int n_backends = test_one_answer_backends(backends, 16);
    problem *p = problem_make(test_seed + 20);
    float *out = malloc(sizeof p->want);
    attn_pool *pool = attn_pool_create(3);
    attn_exec e = attn_pool_exec(pool);
    if (!out) abort();
    CHECK(solve(p, p->want, NULL, ATTN_SCALAR) == ATTN_OK);   /* the best backend may have other bits: SSE2 */
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
                    CHECKF(same_bits(out, p->want, CELLS), "%s: other bits in another rounding mode",
                           attn_backend_name(backends[b]));
                }
    attn_pool_destroy(pool);
    free(out);
    free(p);
#elif defined(__i386__)
    test_skip("x87 arithmetic: its control word stays the host's, who must call in the default mode");
#else
    test_skip("no control word is known for this machine");
#endif
}

/* tasks see denormals although the host flushes them, and the host flushes them again afterwards */
#ifdef HAVE_FLUSH
static void denormal_task(void *arg, int i)
{
    volatile float *x = arg;
    (void)i;
    x[1] = x[0] * 0.5f;
}

static void denormals(void)
{
    volatile float x[3] = {1e-39f, 0.0f, 0.0f};
    const control_word before = control_all(), flush = control_hostile[0];
    control_word after;
    control_set(flush);
    x[2] = x[0] * 0.5f;
    attn__run(NULL, 1, 0, denormal_task, (void *)(uintptr_t)x);
    after = control_get();
    control_set(before);
    CHECK(float_bits(x[2]) == 0);                             /* the host really flushes */
    CHECK(float_bits(x[1]) == float_bits(x[0]) / 2);
    CHECK(after == flush);
}
#else
static void denormals(void) { test_skip("no way to flush denormals is known for this machine"); }
#endif

/* ---- every public call under a hostile host ------------------------------------------------------------------ */

#ifdef HAVE_CONTROL
/* One hash per call of its outputs. Between ENTER and LEAVE is one call and no arithmetic of this test. */
enum { MOST_CALLS = 256 };
typedef struct record {
    control_word word;
    const attn_exec *exec;
    attn_backend backend;
    int n, lost;
    uint64_t print[MOST_CALLS];
    const char *name[MOST_CALLS];
} record;

static void recorded(record *r, const char *name, attn_status status, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = UINT64_C(14695981039346656037) + (uint64_t)(int64_t)status;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(1099511628211);
    if (r->n >= MOST_CALLS) abort();
    r->name[r->n] = name, r->print[r->n++] = h;
}

#define ENV_CALL(call, bytes, size)                                       \
    do {                                                              \
        const control_word usual_ = control_all();                    \
        attn_status status_;                                          \
        control_set(r->word);                                         \
        status_ = (call);                                             \
        if (control_all() != r->word) {                               \
            control_set(usual_);                                      \
            test_fail(__FILE__, __LINE__, "control word: %s", #call); \
        }                                                             \
        control_set(usual_);                                          \
        recorded(r, #call, status_, bytes, size);                     \
    } while (0)

enum { EN = 24, EH = 2, ED = 12, EM = EH * ED };
static struct {
    float x[4 * EN * EM], w[EM * EM], b[EM], table[2 * EN * ED], mask[EN * EN], by[EN * EN], bias[EH * EN * EN];
    float freqs[ED / 2], t5[32 * EH], slopes[EH], sinks[EH];
} given;

/* normal numbers, denormals (that flushing would change) and a few NaN and infinities */
static void given_fill(void)
{
    rng s = rng_make(test_seed + 30);
    float *const all[] = {given.x, given.w, given.b, given.mask, given.by, given.bias, given.t5};
    const size_t n[] = {4 * EN * EM, EM * EM, EM, EN * EN, EN * EN, EH * EN * EN, 32 * EH};
    for (int a = 0; a < 7; a++) {
        rng_fill(&s, all[a], n[a]);
        for (size_t i = 0; i < n[a]; i += 7) all[a][i] = bits_float(rng_u32(&s) & 0x807FFFFFu);
    }
    for (int i = 0; i < EN * EN; i += 5) given.mask[i] = -INFINITY;
    for (int i = 0; i < EN * EN; i += 11) given.by[i] = -INFINITY, given.mask[(i + 3) % (EN * EN)] = INFINITY;
    for (int i = 2; i < EN * EN; i += 67) given.by[i] = bits_float(0x7FA00001u);            /* a signalling NaN */
    given.x[3 * EN * EM + 5] = bits_float(0xFFA12345u), given.x[3 * EN * EM + 99] = 3e38f;
    for (int i = 0; i < ED / 2; i++) given.freqs[i] = i == 3 ? 1e-40f : 1.0f / (float)(1 + i * i);
    given.slopes[0] = 0.3f, given.slopes[1] = 1e-39f, given.sinks[0] = 0.1f, given.sinks[1] = 1e-41f;
}

static void mask_and_attention_calls(record *r)
{
    static float out[4 * EN * EM], weights[EH * EN * EN], lse[EH * EN];
    static float *const q = given.x, *const k = given.x + EN * EM, *const v = given.x + 2 * EN * EM;
    const int ids[EN] = {1, 2, 3, 4, 0, 0}, lengths[1] = {EN - 5};
    char text[2000];
    int list[8];
    attn_args a = {0};
    attn_status done = ATTN_OK;

    /* level 1 */
    ENV_CALL(attn_mask_causal(out, EN, EN, 2), out, sizeof given.mask);
    ENV_CALL(attn_mask_window(out, EN, EN, 3, 4, 1), out, sizeof given.mask);
    ENV_CALL(attn_mask_padding(out, ids, 0, 1, EN), out, sizeof given.mask);
    ENV_CALL(attn_mask_cross(out, ids, 0, 1, EN, EN), out, sizeof given.mask);
    ENV_CALL(attn_mask_lengths(out, lengths, 1, EN, EN), out, sizeof given.mask);
    ENV_CALL(attn_mask_keep(out, (const unsigned char *)given.x, EN * EN), out, sizeof given.mask);
    memcpy(out, given.mask, sizeof given.mask);
    ENV_CALL(attn_mask_merge(out, 1, given.by, 1, EN, EN), out, sizeof given.mask);
    ENV_CALL(attn_lengths(list, ids, 0, 1, 6), list, sizeof *list);
    ENV_CALL(attn_bias_t5(out, given.t5, 32, 128, 0, EH, EN), out, (2 * EN + 1) * EH * sizeof *out);
    ENV_CALL((attn_mask_format(text, sizeof text, given.by, 8, 8, NULL, NULL), done), text, strlen(text) + 1);

    /* levels 2 and 3; 3e38 and a NaN among the numbers in one of them */
    memset(out, 0, sizeof out);
    ENV_CALL(attn_self(out, q, k, v, 1, EN, EH, ED, 1, lengths, given.bias), out, EN * EM * sizeof *out);
    ENV_CALL(attn_cross(out, q, k, v, 1, EN, EN, EH, ED, lengths, given.mask), out, EN * EM * sizeof *out);
    a.out = out, a.q = q, a.k = k, a.v = v + EN * EM, a.batch = 1, a.n_q = a.n_k = EN, a.heads = EH, a.head_dim = ED;
    a.mask = given.mask, a.bias = given.bias, a.alibi_slopes = given.slopes, a.sinks = given.sinks, a.softcap = 1e-39f;
    a.weights = weights, a.lse = lse, a.exec = r->exec, a.backend = r->backend, a.scale = 1e-40f;
    for (int at = ATTN_PROBABILITIES; at <= ATTN_SCORES_BIASED; at++) {
        a.weights_stage = (attn_stage)at;
        ENV_CALL(attn_sdpa(&a), out, EN * EM * sizeof *out);
        recorded(r, "weights", ATTN_OK, weights, sizeof weights);
        recorded(r, "lse", ATTN_OK, lse, sizeof lse);
        a.softcap = 5.0f, a.scale = at ? 0.0f : 3e38f;
    }
    a.exec = NULL;                                          /* attn_check names its width */
    ENV_CALL(attn_check(&a, text, sizeof text), text, strlen(text) + 1);
    a.softcap = bits_float(0x7FA00001u);
    ENV_CALL(attn_check(&a, text, sizeof text), text, strlen(text) + 1);
    a.softcap = 1e-39f;
    ENV_CALL(attn_check(&a, text, sizeof text), text, strlen(text) + 1);
    ENV_CALL((list[0] = attn_sdpa_workspace(&a) < 1 << 20, done), list, sizeof *list);
}

static void cache_and_layer_calls(record *r)
{
    static float out[4 * EN * EM], weights[EH * EN * EN];
    static float *const x = given.x, *const q = given.x, *const v = given.x + 2 * EN * EM;
    const int map[2] = {1, 0};
    char text[8] = "";
    attn_mha_args args = {0};
    attn_kv_args shape = {0};
    attn_mha_opts o = {0};
    attn_args a = {0};
    attn_linear_args la = {0};
    attn_norm_args na = {0};
    attn_rope_args ra = {0};
    attn_linear l;
    attn_mha m;
    attn_kv c;
    const attn_status done = ATTN_OK;
    shape.batch = 2, shape.kv_heads = EH, shape.head_dim = ED, shape.capacity = EN;
    ENV_CALL(attn_kv_init(&c, &shape), &shape, 0);
    ENV_CALL(attn_kv_append(&c, 0, x, x + 3, EN / 2, 0), c.lengths, 2 * sizeof(int));
    ENV_CALL(attn_kv_append(&c, 1, x + EN / 2 * EM, x + EN / 2 * EM + 3, 7, 0), c.lengths, 2 * sizeof(int));
    ENV_CALL(attn_kv_reorder(&c, map), c.lengths, 2 * sizeof(int));
    ENV_CALL(attn_kv_truncate(&c, 0, 5), c.lengths, 2 * sizeof(int));
    ENV_CALL(attn_kv_copy(&c, 0, 1, 6), c.lengths, 2 * sizeof(int));
    a.out = out, a.q = q, a.kv = &c, a.batch = 2, a.n_q = 5, a.heads = EH, a.head_dim = ED, a.exec = r->exec;
    a.causal = ATTN_CAUSAL_BOTTOM_RIGHT, a.backend = r->backend;
    ENV_CALL(attn_sdpa(&a), out, 10 * EM * sizeof *out);
    ENV_CALL(attn_kv_reset(&c, -1), c.lengths, 2 * sizeof(int));

    /* projections, rotation, layers */
    la.n_in = la.n_out = EM, la.w = given.w, la.b = given.b;
    ENV_CALL(attn_linear_init(&l, &la), &l, 0);
    ENV_CALL(attn_linear_run(&l, out, x + EN * EM, 3 * EN, 0, r->exec), out, 3 * EN * EM * sizeof *out);
    ENV_CALL((attn_linear_free(&l), done), out, 0);
    for (int s = ATTN_F16; s <= ATTN_BF16; s++) {
        unsigned short h[EM * EM];
        ENV_CALL(attn_narrow(h, given.w, EM * EM, (attn_storage)s), h, sizeof h);
        ENV_CALL(attn_widen(out, h, EM * EM, (attn_storage)s), out, EM * EM * sizeof *out);
        la.storage = (attn_storage)s;
        ENV_CALL(attn_linear_init(&l, &la), &l, 0);
        ENV_CALL(attn_linear_run(&l, out, x + EN * EM, 3 * EN, 0, r->exec), out, 3 * EN * EM * sizeof *out);
        ENV_CALL(attn_linear_run(&l, out, x + EN * EM, 3, 0, r->exec), out, 3 * EM * sizeof *out);
        attn_linear_free(&l);
    }
    na.y = out, na.x = x, na.rows = 4 * EN, na.n = EM, na.weight = given.w, na.exec = r->exec, na.backend = r->backend;
    na.eps = 1e-40f;
    ENV_CALL(attn_norm(&na), out, sizeof out);
    na.kind = ATTN_NORM_LAYER, na.bias = given.b;
    ENV_CALL(attn_norm(&na), out, sizeof out);
    for (int kind = ATTN_GELU; kind <= ATTN_SILU; kind++)
        ENV_CALL(attn_activate(out, x, kind ? v : NULL, EN * EM, (attn_activation)kind, r->exec), out,
             EN * EM * sizeof *out);
    ENV_CALL(attn_rope_table(out, EN, ED, given.freqs, 0.0), out, EN * ED * sizeof *out);
    ENV_CALL(attn_rope_table(given.table, 2 * EN, ED, NULL, 12345.678), given.table, sizeof given.table);
    memcpy(out, x, sizeof out);
    ra.x = out, ra.batch = 1, ra.n = EN, ra.heads = EH, ra.head_dim = ED, ra.rope_table = given.table;
    ra.positions = 2 * EN, ra.pos = 3;
    ENV_CALL(attn_rope(&ra), out, EN * EM * sizeof *out);
    args.d_model = EM, args.heads = EH, args.w_q = args.w_k = args.w_v = args.w_o = given.w, args.b_q = given.b;
    args.b_o = given.b, args.w_gate = given.w, args.b_gate = given.sinks, args.gate_rows = EH;
    ENV_CALL(attn_mha_init(&m, &args), text, 0);
    o.attn.exec = r->exec, o.attn.backend = r->backend, o.weights_mean = 1;
    o.attn.weights = weights;
    ENV_CALL(attn_mha_self(&m, out, x, 1, EN, &o), out, EN * EM * sizeof *out);
    recorded(r, "mean weights", ATTN_OK, weights, EN * EN * sizeof *weights);
    ENV_CALL(attn_mha_cross(&m, out, x, 1, EN, x + 3 * EN * EM, EN, &o), out, EN * EM * sizeof *out);
    o.attn.weights = NULL, o.weights_mean = 0;
    ENV_CALL(attn_mha_cross_fill(&m, &c, x, 2, EN, NULL, &o), c.lengths, 2 * sizeof(int));
    ENV_CALL(attn_mha_cross_step(&m, out, x, 2, 4, &c, &o), out, 8 * EM * sizeof *out);
    ENV_CALL((attn_mha_free(&m), done), out, 0);
    args.rope_table = given.table, args.positions = 2 * EN, args.q_norm = given.b, args.k_norm = given.w;
    ENV_CALL(attn_mha_init(&m, &args), text, 0);
    ENV_CALL(attn_kv_reset(&c, -1), c.lengths, 2 * sizeof(int));
    ENV_CALL(attn_mha_self_step(&m, out, x, 2, EN / 2, &c, &o), out, EN * EM * sizeof *out);
    ENV_CALL(attn_mha_self_step(&m, out, x, 2, 1, &c, &o), out, 2 * EM * sizeof *out);
    attn_mha_free(&m);
    attn_kv_free(&c);
}

static void every_call(record *r)
{
    mask_and_attention_calls(r);
    cache_and_layer_calls(r);
}

#define FINE(call, bytes, size) do { ENV_CALL(done = (call), bytes, size); CHECK(done == ATTN_OK); } while (0)

/* Functions that make tables, move keys or return a number. */
static void every_other_call(record *r)
{
    static const attn_rope_kind kinds[] = {ATTN_ROPE_DEFAULT, ATTN_ROPE_LINEAR, ATTN_ROPE_LLAMA3, ATTN_ROPE_YARN,
                                           ATTN_ROPE_LONGROPE, ATTN_ROPE_PROPORTIONAL};
    static const float factors[ED / 2] = {1.0f, 1.5f, 2.0f, 3.1f, 4.7f, 8.3f};
    static const int kept[3] = {2, 4, 7};
    static float out[EN * EM], freqs[ED / 2 + 1], table[200 * ED];
    attn_rope_freqs_args rope = {0};
    attn_linear_args la = {0};
    attn_mha_args args = {0};
    attn_kv_args shape = {0};
    attn_mha_opts o = {0};
    attn_status done = ATTN_OK;
    attn_args a = {0};
    attn_mha m;
    attn_kv c;
    size_t n = 0;

    rope.rotary_dim = ED, rope.factor = 7.3, rope.original = 1000, rope.factors = factors, rope.rotated = ED - 2;
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) {
        rope.kind = kinds[i];
        for (int base = 0; base < 2; base++) {
            rope.base = base ? 12345.678 : 0.0;
            memset(freqs, 0, sizeof freqs);
            FINE(attn_rope_freqs(freqs, freqs + ED / 2, &rope), freqs, sizeof freqs);
        }
    }
    FINE(attn_bias_shift(out, given.x, 2 * EN - 1, EN - 1, 2, EN, EN, 0), out, 2 * EN * EN * sizeof *out);

    shape.batch = 2, shape.kv_heads = EH, shape.head_dim = ED, shape.capacity = 300;
    ENV_CALL((n = attn_kv_size(&shape), done), &n, sizeof n);
    CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
    for (int i = 0; i < 15; i++) CHECK(attn_kv_append(&c, -1, given.x, given.x + EM, EN / 2, 0) == ATTN_OK);
    FINE(attn_kv_keep(&c, 0, 1, kept, 3), c.lengths, 2 * sizeof(int));
    FINE(attn_kv_read(&c, 0, 0, 4, out, NULL), out, 4 * EM * sizeof *out);
    FINE(attn_kv_forget(&c, 1, 0, 150), c.lengths, 2 * sizeof(int));
    ENV_CALL((n = attn_kv_saved(&c, 1), done), &n, sizeof n);

    la.n_in = la.n_out = EM, la.w = given.w;
    ENV_CALL((n = attn_linear_size(&la), done), &n, sizeof n);
    ENV_CALL((n = attn_stored_bytes(EM, ATTN_BF16), done), &n, sizeof n);
    args.d_model = EM, args.heads = EH, args.w_q = args.w_o = given.w, args.q_only = 1;
    CHECK(attn_rope_table(table, 200, ED, NULL, 0.0) == ATTN_OK);
    args.rope_table = table, args.positions = 200, args.q_norm = given.b;
    ENV_CALL((n = attn_mha_size(&args), done), &n, sizeof n);
    CHECK(attn_mha_init(&m, &args) == ATTN_OK);
    o.attn.exec = r->exec, o.attn.backend = r->backend;
    ENV_CALL((n = attn_mha_workspace(&m, ATTN_MHA_SELF_STEP, 2, 3, 8, &o) > 0, done), &n, sizeof n);
    FINE(attn_mha_self_look(&m, out, given.x, 2, 3, &c, &o), out, 6 * EM * sizeof *out);
    ENV_CALL((a = attn_args_for(1, 2, 3, EH, ED), done), &a, sizeof a);
    attn_mha_free(&m);
    attn_kv_free(&c);
}

/* ---- every float of the arguments as a denormal: it is no zero, and looking at it raises no flag -------------- */
static float tiny[EH] = {1e-40f, 1e-45f};

static void tiny_attention(record *r)
{
    static const struct { int n_q, n_k; } size[] = {{1, 1}, {2, 7}, {EN, EN}};          /* small calls, and in blocks */
    static float out[EN * EM];
    const attn_exec others = test_exec(3);
    attn_status done = ATTN_OK;
    size_t n = 0;
    attn_args a = {0};
    a.out = out, a.q = given.x, a.k = given.x + EN * EM, a.v = given.x + 2 * EN * EM, a.batch = 1, a.heads = EH;
    a.head_dim = ED, a.exec = r->exec, a.backend = r->backend, a.masked_rows = &n;
    for (int i = 0; i < 3; i++)
        for (int number = 0; number < 6; number++) {
            a.n_q = size[i].n_q, a.n_k = size[i].n_k;
            a.softcap = number == 0 ? 1e-40f : number == 1 ? 1e-45f : 0.0f;
            a.scale = number == 2 ? 1e-40f : number == 3 ? -1e-45f : 0.0f;
            a.alibi_slopes = number == 4 ? tiny : NULL, a.sinks = number == 5 ? tiny : NULL;
            memset(out, 0, sizeof out);
            ENV_CALL(attn_sdpa(&a), out, sizeof out);
            recorded(r, "masked_rows", ATTN_OK, &n, sizeof n);
        }
    a.n_q = a.n_k = 99999999, a.batch = 1001, a.heads = 9, a.exec = &others;            /* their product is no double */
    ENV_CALL((n = attn_sdpa_workspace(&a), done), &n, sizeof n);
}

static void tiny_states(record *r)
{
    enum { SIZE = ED + 4 };                                 /* M, L, seen, spare, O */
    static float states[3][EH * SIZE], out[EH * SIZE], lse[EH];
    size_t empty = 0;
    attn_args a = {0};
    for (int p = 0; p < 3; p++)
        for (int h = 0; h < EH; h++) {
            float *state = states[p] + h * SIZE;
            state[0] = p ? 1e-40f : -1e-41f, state[1] = h ? 1e-40f : 1.0f;
            state[2] = p == 2 && h ? 0.0f : 1e-45f;         /* seen: any value other than 0 */
            for (int c = 4; c < SIZE; c++) state[c] = given.x[c];
        }
    a.out = out, a.batch = a.n_q = 1, a.heads = EH, a.head_dim = ED, a.exec = r->exec, a.backend = r->backend;
    a.carry_in = states[2], a.lse = lse, a.sinks = tiny, a.masked_rows = &empty;
    a.q = given.x;
    ENV_CALL(attn_sdpa(&a), out, EM * sizeof *out);
    recorded(r, "lse", ATTN_OK, lse, sizeof lse);
    recorded(r, "masked_rows", ATTN_OK, &empty, sizeof empty);
    CHECK(empty == 1);
    a.sinks = NULL, a.lse = NULL, a.masked_rows = NULL, a.carry_out = out;
    ENV_CALL(attn_fold(&a, states[0], 2), out, sizeof out);
    memcpy(out, states[2], sizeof out);
    ENV_CALL(attn_merge(out, states[0], EH, ED), out, sizeof out);
}

static void tiny_caches(record *r)
{
    static unsigned char bytes[1 << 16];
    static float out[EN * EM];
    float *const x = given.x, *const k = x + EN * EM, *const v = x + 2 * EN * EM;
    for (int s = ATTN_F32; s <= ATTN_Q8; s++) {
        attn_kv_args shape = {0};
        attn_args a = {0};
        attn_kv c;
        size_t n;
        shape.batch = 1, shape.kv_heads = EH, shape.head_dim = ED, shape.capacity = EN;
        shape.k_storage = shape.v_storage = (attn_storage)s;
        CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
        ENV_CALL(attn_kv_append(&c, -1, k, v, EN - 3, 0), c.lengths, sizeof(int));
        a.out = out, a.q = x, a.k = k, a.v = v, a.batch = 1, a.n_q = 1, a.heads = EH, a.head_dim = ED;
        a.softcap = 1e-40f, a.exec = r->exec, a.backend = r->backend;
        ENV_CALL(attn_self_step(&c, &a), out, EM * sizeof *out);
        ENV_CALL(attn_kv_read(&c, 0, 0, EN - 2, out, NULL), out, (EN - 2) * EM * sizeof *out);
        ENV_CALL(attn_kv_read(&c, 0, 0, EN - 2, NULL, out), out, (EN - 2) * EM * sizeof *out);
        n = attn_kv_saved(&c, 0);
        CHECK(n <= sizeof bytes);
        ENV_CALL(attn_kv_save(&c, 0, bytes, sizeof bytes), bytes, n);
        ENV_CALL(attn_kv_load(&c, 0, bytes, n), c.lengths, sizeof(int));
        attn_kv_free(&c);
    }
}

static void tiny_layers(record *r)
{
    static const float freqs[2] = {1e-40f, -1e-45f};
    static float out[3 * EM];
    attn_mha_args args = {0};
    attn_mha_opts o = {0};
    attn_mha m;
    args.d_model = EM, args.heads = EH, args.w_q = args.w_k = args.w_v = args.w_o = given.w;
    args.q_norm = args.k_norm = given.b, args.norm_eps = 1e-40f;
    args.w_gate = given.w, args.b_gate = tiny, args.gate_rows = EH;
    ENV_CALL(attn_mha_init(&m, &args), out, 0);
    o.attn.exec = r->exec, o.attn.backend = r->backend, o.attn.softcap = 1e-40f;
    ENV_CALL(attn_mha_self(&m, out, given.x, 1, 3, &o), out, 3 * EM * sizeof *out);
    o.attn.softcap = 0.0f, o.attn.scale = 1e-40f;
    ENV_CALL(attn_mha_cross(&m, out, given.x, 1, 2, given.x + EM, 5, &o), out, 2 * EM * sizeof *out);
    attn_mha_free(&m);
    args.norm_eps = -1e-40f;                                /* rejected because it is negative */
    ENV_CALL(attn_mha_init(&m, &args), out, 0);
    ENV_CALL(attn_rope_table(out, 9, 4, freqs, 0.0), out, 9 * 4 * sizeof *out);
    ENV_CALL(attn_rope_table(out, 9, 4, NULL, 4.9406564584124654e-324), out, 0);
    ENV_CALL(attn_rope_table(out, 9, 4, NULL, -0.0), out, 9 * 4 * sizeof *out);
}

static void every_number(record *r)
{
    tiny_attention(r);
    tiny_states(r);
    tiny_caches(r);
    tiny_layers(r);
}

/* Alone, on threads that are hostile too, and on a pool whose workers have inherited the host's word. */
static void hostile_host(void)
{
    static record usual, now;
    attn_backend backends[16];
    int n_backends = test_all_backends(backends, 16);
    const control_word before = control_get();
    given_fill();
    for (int b = 0; b < n_backends; b++) {
        memset(&usual, 0, sizeof usual);
        usual.word = before, usual.backend = backends[b];
        every_call(&usual);
        every_other_call(&usual);
        every_number(&usual);
        for (int x = 0; x < 3 * CONTROL_HOSTILE; x++) {
            control_pool others;
            attn_exec e = control_exec(&others, control_hostile[x / 3]);
            attn_pool *pool = NULL;
            if (x % 3 == 2) {
                control_set(control_hostile[x / 3]);
                pool = attn_pool_create(3);
                control_set(before);
                CHECK(pool != NULL);
                e = attn_pool_exec(pool);
            }
            memset(&now, 0, sizeof now);
            now.word = control_hostile[x / 3], now.backend = backends[b], now.exec = x % 3 ? &e : NULL;
            every_call(&now);
            every_other_call(&now);
            every_number(&now);
            attn_pool_destroy(pool);
            CHECKF(!others.lost, "%d tasks did not put the control word back", others.lost);
            CHECK(now.n == usual.n);
            for (int i = 0; i < now.n; i++)
                CHECKF(now.print[i] == usual.print[i], "%s: other bits under control word %lx, executor %d (%s)",
                       now.name[i], (unsigned long)now.word, x % 3, attn_backend_name(backends[b]));
        }
    }
    CHECK(control_get() == before);
}
#else
static void hostile_host(void) { test_skip("no way to set the floating-point control word is known here"); }
#endif

/* ---- the processor ------------------------------------------------------------------------------------------- */
#if HAVE_CPUID
static struct { int faked; unsigned most, leaf1, leaf7, os; } cpu;

static unsigned cpu_leaf(unsigned leaf, int reg)              /* reg 0: eax .. 3: edx */
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (cpu.faked) return leaf == 0 ? cpu.most : leaf == 1 ? cpu.leaf1 : cpu.leaf7;
    if (!__get_cpuid_count(leaf, 0, &a, &b, &c, &d)) return 0;
    return reg == 0 ? a : reg == 1 ? b : reg == 2 ? c : d;
}

static unsigned cpu_os(unsigned real) { return cpu.faked ? cpu.os : real; }

/* Every combination of features that a processor and a system may lack: a backend is usable if both have all of its
   features. Without the flag for xgetbv (27) the system is not queried; without leaf 7 its contents are ignored. */
static void cpu_lacks(void)
{
    enum { OSXSAVE = 1, AVX = 2, FMA = 4, AVX2 = 8, AVX512 = 16, LEAF7 = 32, F16C = 64, BW = 128, VNNI = 256,
           ALL = 512 };
    static const unsigned saved[] = {0u, 2u, 4u, 6u, 7u, 0x66u, 0xa6u, 0xc6u, 0xe2u, 0xe6u, 0xe7u, 0xffu};
    problem *p = problem_make(test_seed + 30);
    float *out = malloc(2 * sizeof p->want);
    attn_backend best;
    if (!out) abort();
    if (!(cpu_leaf(1, 2) >> 27 & 1u)) {
        test_skip("xgetbv does not run on this processor");
        free(out);
        free(p);
        return;
    }
    cpu.faked = hide_off = 1;
    for (int has = 0; has < ALL; has++)
        for (int i = 0; i < (int)(sizeof saved / sizeof *saved); i++) {
            const int avx2 = (has & OSXSAVE) && (has & AVX) && (has & FMA) && (has & AVX2) && (has & LEAF7) &&
                             (saved[i] & 6u) == 6u;
            const int avx512 = avx2 && (has & AVX512) && (saved[i] & 0xe0u) == 0xe0u;
            attn_backend list[16], want[4];
            int n = 0, n_list = 0, all;
            attn_args a = {0};
            cpu.most = has & LEAF7 ? 7 : 6;
            cpu.leaf1 = (has & OSXSAVE ? 1u << 27 : 0) | (has & AVX ? 1u << 28 : 0) | (has & FMA ? 1u << 12 : 0) |
                        (has & F16C ? 1u << 29 : 0);
            cpu.leaf7 = (has & AVX2 ? 1u << 5 : 0) | (has & AVX512 ? 1u << 16 : 0) | (has & BW ? 1u << 30 : 0) |
                        (has & VNNI ? 1u << 11 : 0);          /* in another register, where 11 is VNNI */
            cpu.os = saved[i];
            attn__cpu_word = 0;
            all = attn_backends(list, 16);
            for (int b = 0; b < all; b++)                     /* except those with other detection */
                if (list[b] <= ATTN_AVX512) list[n_list++] = list[b];
            if (avx512) want[n++] = ATTN_AVX512;
            if (avx2) want[n++] = ATTN_AVX2;
            want[n++] = ATTN_SSE2;
            want[n++] = ATTN_SCALAR;
            CHECKF(n_list == n && !memcmp(list, want, (size_t)n * sizeof *want),
                   "has %x, saves %x: %d backends, first %s", (unsigned)has, saved[i], n_list,
                   attn_backend_name(list[0]));
            a.batch = a.heads = a.n_q = a.n_k = a.head_dim = 1;
            a.out = out;
            a.q = a.k = a.v = p->q;
            a.backend = ATTN_AVX2;
            CHECK(attn_check(&a, NULL, 0) == (avx2 ? ATTN_OK : ATTN_E_BACKEND));
            a.backend = ATTN_AVX512;
            CHECK(attn_check(&a, NULL, 0) == (avx512 ? ATTN_OK : ATTN_E_BACKEND));
            CHECK((attn__cpu() >> ATTN__CPU_F16C & 1u) == (unsigned)(avx2 && (has & F16C)));
            CHECK((attn__cpu() >> ATTN__CPU_VNNI & 1u) == (unsigned)(avx512 && (has & BW) && (has & VNNI)));
        }
    cpu.most = 1;                                             /* the oldest processor: the default is SSE2 then */
    cpu.leaf1 = cpu.leaf7 = cpu.os = 0;
    attn__cpu_word = 0;
    CHECK(attn_backends(&best, 1) >= 2 && (best == ATTN_SSE2 || best > ATTN_AVX512));
    CHECK(solve(p, out, NULL, best) == ATTN_OK && solve(p, out + CELLS, NULL, ATTN_AUTO) == ATTN_OK);
    CHECK(same_bits(out, out + CELLS, CELLS));
    cpu.faked = hide_off = 0;
    attn__cpu_word = 0;
    free(out);
    free(p);
}
#else
static void cpu_lacks(void) { test_skip("nothing is asked of this processor"); }
#endif

SUITE(pool) = {
    {"every task once", every_task_once, "a task lost, done twice, or still running when run() returns"},
    {"long job", long_job, "a counter of tasks that wraps, so that negative tasks run"},
    {"thread counts", how_many, "a number of threads that is out of range, or 0 not taken for all processors"},
    {"create and destroy", create_and_destroy, "a worker that misses the end, or has not started yet"},
    {"creation fails", creation_fails, "a resource that is leaked, or used although its creation failed"},
    {"processors", processors, "an unchecked number of processors: unknown, or thousands"},
    {"nested", nested, "a task that waits for its own pool"},
    {"two pools", two_pools, "a task that waits for its own pool through another one: a deadlock of two pools"},
    {"forked", forked, "a child of fork() that waits for, or joins, threads that only its parent has"},
    {"same as serial", same_as_serial, "bits that depend on the pool"},
    {"several callers", several_callers, "two jobs mixed up"},
    {"short jobs", short_jobs, "a short call that waits for a worker to wake, or workers that never wake again"},
    {"spin adapts", spin_adapts,
     "a worker that spins in vain, on a busy machine, or in a pool wider than the machine"},
    {"spin ends", spin_ends, "a spin without end, or one that takes the CPU of a thread that has work"},
    {"placement", kept_off, "a worker woken on the caller's CPU, or kept from the only CPU it may use"},
    {"user masks", users_masks, "a mask of the user that the pool widens"},
    {"masks restored", masks_stay, "a mask of the caller or a worker that stays narrow"},
    {"random schedules", shaken, "a thread that waits forever, or a job joined too late, under some schedule"},
    {"environment", environment, "rounding mode or flags of the host that leak in or out"},
    {"denormals", denormals, "flushing of the host that leaks in, or is not restored"},
    {"hostile host", hostile_host,
     "any public call whose bits depend on the host's control word, changes it or traps"},
    {"missing instructions", cpu_lacks,
     "an instruction set used that the processor lacks or whose registers are not saved"},
    {0}};
#else
static void no_pool(void)
{
#ifdef __TINYC__
    test_skip("tcc has no atomic operations, ATTN_THREADS needs them");
#else
    test_skip("there are no threads here");
#endif
}

SUITE(pool) = {{"all of pool", no_pool, "nothing"}, {0}};
#endif
