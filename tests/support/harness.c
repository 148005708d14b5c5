/* harness.c: checks, seeded random numbers, guarded memory and a scrambling executor. test.h documents all of them. */
#if !defined(_WIN32) && !defined(__wasm__)
#define _DEFAULT_SOURCE                   /* MAP_ANONYMOUS, clock_gettime under -std=c99 */
#define _DARWIN_C_SOURCE
#define HARNESS_POSIX
#endif

#include "harness.h"

#include <signal.h>
#include <stdarg.h>
#include <time.h>
#ifdef HARNESS_POSIX
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

/* ---- checks ---------------------------------------------------------------------------------------------- */

long test_checks;
uint64_t test_seed = 1;
int test_scale = 1;

const char *test_note;
static const char *running = "?";
static long failures, skips;
enum { SHOWN_FAILURES = 10 };             /* per test: more would not help */

void test_fail(const char *file, int line, const char *fmt, ...)
{
    const char *slash = strrchr(file, '/');
    failures++;
    if (failures > SHOWN_FAILURES) return;
    printf("  FAIL %s (%s:%d): ", running, slash ? slash + 1 : file, line);
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    if (failures == SHOWN_FAILURES) printf("  (further failures of %s are only counted)\n", running);
}

void test_skip(const char *fmt, ...)
{
    skips++;
    printf("SKIPPED %s: ", running);
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
}

int test_failed(void) { return failures > 0; }

double test_seconds(void)
{
#ifdef HARNESS_POSIX
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#else
    return (double)clock() / CLOCKS_PER_SEC;
#endif
}

#ifdef HARNESS_POSIX
/* Called when a guard page was hit: prints the name of the test, then ends the program with the same signal. */
static void crashed(int signal_number)
{
    static const char text[] = "  CRASH (outside of a buffer?) in test ";
    ssize_t wrote = write(1, text, sizeof text - 1);
    wrote += write(1, running, strlen(running));
    if (test_note) {
        wrote += write(1, ": ", 2);
        wrote += write(1, test_note, strlen(test_note));
    }
    wrote += write(1, "\n", 1);
    signal(wrote ? signal_number : SIGABRT, SIG_DFL);
    raise(signal_number);
}

static void watch(int signal_number)
{
    struct sigaction old;                 /* handlers of sanitizers, which print more */
    if (sigaction(signal_number, NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
        signal(signal_number, crashed);
}
#endif

int test_run(const char *suite, const test_case *t)
{
    const char *before = running;
#ifdef HARNESS_POSIX
    watch(SIGSEGV);
    watch(SIGBUS);
    watch(SIGILL);
    watch(SIGFPE);
    watch(SIGABRT);
#endif
    long checks = test_checks;
    double start = test_seconds();
    running = t->name;
    test_note = NULL;
    failures = skips = 0;
    t->run();
    refusal_forget();
    checks = test_checks - checks;
    if (!failures && !skips && checks == 0) {
        failures++;                       /* a test that checks nothing cannot fail, so it counts as failed */
        printf("  FAIL %s: not one CHECK was reached\n", running);
    }
    printf("%-4s %-7s %-34s %9ld checks %6.2f s\n", failures ? "FAIL" : skips ? "skip" : "ok", suite, t->name, checks,
           test_seconds() - start);
    if (failures > SHOWN_FAILURES) printf("  %ld checks failed in all; would catch: %s\n", failures, t->catches);
    running = before;
    return failures ? TEST_FAILED : skips ? TEST_SKIPPED : TEST_PASSED;
}

/* ---- refusals -------------------------------------------------------------------------------------------- */

#if defined(__GNUC__)
#define HARNESS_EACH_THREAD __thread
#else
#define HARNESS_EACH_THREAD
#endif

static HARNESS_EACH_THREAD struct {
    int count;
    attn_status status;
    void *user;
    char text[256];
} refusal;

void refusal_clear(void) { memset(&refusal, 0, sizeof refusal); }
int refusal_count(void) { return refusal.count; }
attn_status refusal_status(void) { return refusal.status; }
const char *refusal_text(void) { return refusal.text; }
void *refusal_user(void) { return refusal.user; }

/* All rejection messages pass through here. A message names its function, is complete, and has every # and $ filled
   in. */
void test_refused(void *user, int status, const char *sentence)
{
    const size_t n = strlen(sentence), name = strspn(sentence, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (status >= 0 || strncmp(sentence, "attn_", 5) != 0 || strncmp(sentence + name, ": ", 2) != 0 ||
        strpbrk(sentence, "#$") || n < name + 8 || n >= sizeof refusal.text - 1)
        test_fail(__FILE__, __LINE__, "refused with status %d and the sentence \"%s\"", status, sentence);
    refusal.count++;
    refusal.status = (attn_status)status;
    refusal.user = user;
    memcpy(refusal.text, sentence, n < sizeof refusal.text ? n + 1 : 1);
}

/* What must hold of every rejected call of the running test. */
static struct {
    struct { const void *memory; size_t bytes; void *copy; } kept[8];
    int n_kept, has_user;
    const void *user;
    void (*begin)(void *), (*end)(void *);
    void *it;
} rejected;

void refusal_keeps(const void *memory, size_t bytes)
{
    if (rejected.n_kept == sizeof rejected.kept / sizeof *rejected.kept) abort();
    rejected.kept[rejected.n_kept].memory = memory;
    rejected.kept[rejected.n_kept].bytes = bytes;
    rejected.kept[rejected.n_kept].copy = malloc(bytes);
    if (!rejected.kept[rejected.n_kept++].copy) abort();
}

void refusal_tells(void *user)
{
    rejected.has_user = 1;
    rejected.user = user;
}

void refusal_around(void (*begin)(void *), void (*end)(void *), void *it)
{
    rejected.begin = begin;
    rejected.end = end;
    rejected.it = it;
}

void refusal_forget(void)
{
    for (int i = 0; i < rejected.n_kept; i++) free(rejected.kept[i].copy);
    memset(&rejected, 0, sizeof rejected);
}

void refusal_begin(void)
{
    if (rejected.begin) rejected.begin(rejected.it);
    for (int i = 0; i < rejected.n_kept; i++)
        memcpy(rejected.kept[i].copy, rejected.kept[i].memory, rejected.kept[i].bytes);
    refusal_clear();
}

/* The name of the function that a call names first, in `name`; "" if it names no public function. */
static void called_function(const char *call, char name[64])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    name[0] = 0;
    for (; (call = strstr(call, "attn_")) != NULL; call += 5) {
        const size_t n = strspn(call, letters);
        if (call[n] != '(' || n > 61) continue;
        memcpy(name, call, n);
        memcpy(name + n, ": ", 3);
        return;
    }
}

/* The first place of `words` in a sentence that is not inside a longer word; or NULL. */
static const char *find_words(const char *sentence, const char *words)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    const char *at = sentence;
    while ((at = strstr(at, words)) != NULL) {
        if (at == sentence || !strchr(letters, at[-1]) || !*words || !strchr(letters, *words)) break;
        at++;
    }
    return at;
}

void test_refusal(const char *file, int line, const char *call, const char *change, int got, attn_status want,
                  const char *words)
{
    void (*const begin)(void *) = rejected.begin, (*const end)(void *) = rejected.end;
    const char *const at = find_words(refusal.text, words);
    char name[64];
    called_function(call, name);
    if (*change) call = change;
    test_checks++;
    if (got != (int)want)
        test_fail(file, line, "%s: status %d, not %d; \"%s\"", call, got, (int)want, refusal.text);
    else if (refusal.count != 1 || refusal.status != want)
        test_fail(file, line, "%s: ATTN_REFUSED was told %d times, status %d, not %d; \"%s\"", call, refusal.count,
                  (int)refusal.status, (int)want, refusal.text);
    else if (!at || strncmp(refusal.text, name, strlen(name)) ||
             (strncmp(words, "attn_", 5) == 0 && at != refusal.text))
        test_fail(file, line, "%s: the sentence is \"%s\", not \"%s\"", call, refusal.text, words);
    if (rejected.has_user && (test_checks++, refusal.user != rejected.user))
        test_fail(file, line, "%s: told another user", call);
    for (int i = 0; i < rejected.n_kept; i++)
        if (test_checks++, memcmp(rejected.kept[i].copy, rejected.kept[i].memory, rejected.kept[i].bytes))
            test_fail(file, line, "%s: a rejected call changed memory, number %d of this test", call, i);
    if (end) {                                              /* in which calls may be rejected too */
        rejected.begin = rejected.end = NULL;
        end(rejected.it);
        rejected.begin = begin;
        rejected.end = end;
    }
}

/* ---- randomness ------------------------------------------------------------------------------------------ */

static uint64_t rng_u64(rng *r)           /* splitmix64, Vigna 2015, public domain */
{
    uint64_t z = r->s += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

rng rng_make(uint64_t seed)
{
    rng r = {seed};
    r.s = rng_u64(&r);                    /* neighbouring seeds start far apart */
    return r;
}

uint32_t rng_u32(rng *r) { return (uint32_t)(rng_u64(r) >> 32); }

int rng_int(rng *r, int lo, int hi)
{
    uint64_t span = (uint64_t)((int64_t)hi - (int64_t)lo) + 1;
    return (int)((int64_t)lo + (int64_t)((rng_u32(r) * span) >> 32));
}

/* The sum of 12 uniforms has mean 6 and variance 1; a cubic term corrects its fourth moment (Cornish-Fisher). Integers,
   with one rounding at the end: no libm and no compiler can change a number. */
float rng_normal(rng *r)
{
    int64_t z = -6 * (INT64_C(1) << 32);                    /* 32 fraction bits */
    for (int i = 0; i < 6; i++) {
        uint64_t u = rng_u64(r);
        z += (int64_t)(u >> 32) + (int64_t)(u & UINT64_C(0xFFFFFFFF));
    }
    int64_t one = INT64_C(1) << 24, s = z / 256;            /* 24 fraction bits: so that the cube of 6 fits */
    int64_t cube = s * s / one * s / one;
    z += (cube - 3 * s) / 240 * 256;
    return (float)((double)z / 4294967296.0);
}

void rng_fill(rng *r, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = rng_normal(r);
}

/* ---- guarded memory -----------------------------------------------------------------------------------------
 * POSIX:  [ header | canary ... | bytes ][ guard page ]   the canary has at least 64 bytes
 * other:  [ header | canary     | bytes | canary ]        written past the end is found when it is freed
 * The bytes end at a multiple of 64. */

enum { CANARY = 64, FILL = 0xA5, CANARY_BYTE = 0xC3 };
#define GUARD_MAGIC 0x67756172u

typedef struct guard_header {
    uint32_t magic;
    size_t bytes, mapped;                 /* mapped: POSIX; other: bytes before the header */
} guard_header;

static void out_of_memory(size_t bytes)
{
    printf("guard_alloc: no memory for %lu bytes\n", (unsigned long)bytes);
    exit(3);
}

#ifdef HARNESS_POSIX
static size_t page_size(void)
{
    static size_t page;
    if (!page) page = (size_t)sysconf(_SC_PAGESIZE);
    return page;
}
#endif

void *guard_alloc(size_t bytes)
{
    guard_header head = {GUARD_MAGIC, bytes, 0};
    unsigned char *base, *data;
#ifdef HARNESS_POSIX
    size_t page = page_size();
    if (bytes > SIZE_MAX - sizeof head - CANARY - 2 * page) out_of_memory(bytes);
    size_t room = (sizeof head + CANARY + bytes + page - 1) / page * page;
    head.mapped = room + page;
    void *map = mmap(NULL, head.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect((unsigned char *)map + room, page, PROT_NONE) != 0) out_of_memory(bytes);
    base = (unsigned char *)map;
    data = base + room - bytes;
    memset(base + sizeof head, CANARY_BYTE, (size_t)(data - base) - sizeof head);
#else
    if (bytes > SIZE_MAX - sizeof head - 3 * CANARY) out_of_memory(bytes);
    base = (unsigned char *)malloc(sizeof head + 3 * CANARY + bytes);
    if (!base) out_of_memory(bytes);
    head.mapped = 63 - ((uintptr_t)base + sizeof head + CANARY + bytes + 63) % 64;
    base += head.mapped;
    data = base + sizeof head + CANARY;
    memset(data - CANARY, CANARY_BYTE, CANARY);
    memset(data + bytes, CANARY_BYTE, CANARY);
#endif
    memcpy(base, &head, sizeof head);
    memset(data, FILL, bytes);
    return data;
}

static int canary_alive(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != CANARY_BYTE) return 0;
    return 1;
}

void guard_free(void *p)
{
    if (!p) return;
    unsigned char *data = (unsigned char *)p, *base = data - CANARY - sizeof(guard_header);
    guard_header head;
#ifdef HARNESS_POSIX
    base -= (uintptr_t)base % page_size();
#endif
    memcpy(&head, base, sizeof head);
    CHECKF(head.magic == GUARD_MAGIC, "guard_free: not from guard_alloc, or its header was overwritten");
    if (head.magic != GUARD_MAGIC) return;
    CHECKF(canary_alive(base + sizeof head, (size_t)(data - base) - sizeof head),
           "something wrote in front of a buffer of %lu bytes", (unsigned long)head.bytes);
#ifdef HARNESS_POSIX
    munmap(base, head.mapped);
#else
    CHECKF(canary_alive(data + head.bytes, CANARY), "something wrote behind a buffer of %lu bytes",
           (unsigned long)head.bytes);
    free(base - head.mapped);
#endif
}

float *guard_floats(size_t n)
{
    if (n > SIZE_MAX / sizeof(float)) out_of_memory(SIZE_MAX);
    return (float *)guard_alloc(n * sizeof(float));
}

/* ---- bits ------------------------------------------------------------------------------------------------ */

uint64_t hash_bits(uint64_t h, const float *x, size_t n)
{
    if (h == 0) h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++) {
        uint32_t u = float_bits(x[i]);
        for (int byte = 0; byte < 4; byte++, u >>= 8) h = (h ^ (u & 0xFF)) * UINT64_C(1099511628211);
    }
    return h;
}

static double as_if_finite(float x) { return isinf(x) ? (x > 0.0f ? 0x1p128 : -0x1p128) : (double)x; }

/* mingw-w64's fmaf rounds fma again, and wasi-libc's rounds up between two floats. There: the sum of product and c as a
   double with its exact error (Knuth). The sum rounded to float is correct unless it is just between two floats; the
   sign of the error then decides. */
float test_fmaf(float a, float b, float c)
{
    volatile float x = 24929.0f, y = 673.0f;                /* x * y is between two floats: 2^-40 decides */
    if (fmaf(x, y, 0x1p-40f) == 16777218.0f && fmaf(x, y, -0x1p-40f) == 16777216.0f) return fmaf(a, b, c);
    const double p = (double)a * (double)b, d = (double)c, s = p + d, t = s - p, error = (p - (s - t)) + (d - t);
    const float f = (float)s, g = nextafterf(f, s > (double)f ? INFINITY : -INFINITY);
    if (!(error > 0.0 || error < 0.0) || as_if_finite(f) + as_if_finite(g) != 2.0 * s) return f;
    return (g > f) == (error > 0.0) ? g : f;
}

/* ---- the executor ---------------------------------------------------------------------------------------- */

typedef struct job {
    void (*task)(void *arg, int i);
    void *arg;
    int *order;                           /* a permutation of 0..n-1 */
    int n, next;
#ifdef HARNESS_POSIX
    pthread_mutex_t lock;
#endif
} job;

#ifdef HARNESS_POSIX
static void *job_worker(void *p)
{
    job *w = (job *)p;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        int at = w->next < w->n ? w->next++ : -1;
        pthread_mutex_unlock(&w->lock);
        if (at < 0) return NULL;
        w->task(w->arg, w->order[at]);
    }
}
#endif

static void job_run(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    int width = (int)(uintptr_t)pool;
    CHECKF(n >= 0 && task != NULL, "the executor was called with %d tasks", n);
    if (n <= 0 || !task) return;

    job w = {0};
    w.task = task, w.arg = arg, w.n = n;
    w.order = (int *)malloc((size_t)n * sizeof(int));
    if (!w.order) out_of_memory((size_t)n * sizeof(int));
    rng r = rng_make(test_seed * 1000003u + (uint64_t)n * 31u + (uint64_t)width);
    for (int i = 0; i < n; i++) {                           /* Fisher and Yates, growing */
        int j = rng_int(&r, 0, i);
        w.order[i] = w.order[j];
        w.order[j] = i;
    }
#ifdef HARNESS_POSIX
    enum { MOST = 64 };
    pthread_t threads[MOST];
    int started = 0, helpers = (width < n ? width : n) - 1;
    if (helpers > MOST) helpers = MOST;
    pthread_mutex_init(&w.lock, NULL);
    while (started < helpers && pthread_create(&threads[started], NULL, job_worker, &w) == 0) started++;
    job_worker(&w);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&w.lock);
#else
    for (int i = 0; i < n; i++) task(arg, w.order[i]);
#endif
    free(w.order);
}

attn_exec test_exec(int width)
{
    attn_exec e = {0};
    e.pool = (void *)(uintptr_t)(unsigned)width;
    e.width = width;
    e.run = job_run;
    return e;
}

/* ---- backends -------------------------------------------------------------------------------------------- */

int test_all_backends(attn_backend *list, int max) { return attn_backends(list, max); }

int test_one_answer_backends(attn_backend *list, int max)
{
    attn_backend all[16];
    int n_all = attn_backends(all, 16), n = 0;
    for (int i = 0; i < n_all && n < max; i++)
        if (all[i] != ATTN_SSE2 && all[i] != ATTN_WASM) list[n++] = all[i];     /* those two round products apart */
    return n;
}

attn_status finish_states(const attn_args *a)
{
    attn_args own = *a;
    if (a->kv) {
        own.kv_heads = a->kv->shape.kv_heads;
        own.head_dim = a->kv->shape.head_dim;
        own.v_head_dim = a->kv->shape.v_head_dim;
    }
    own.kv = NULL, own.k = own.v = NULL, own.n_k = 0, own.k_batch = 0;
    own.k_lengths = own.k_starts = own.k_cum = own.k_map = NULL;
    own.mask = own.bias = NULL, own.keep = NULL;
    own.weights = NULL, own.weights_heads = NULL, own.n_weights_heads = 0;
    own.carry_out = NULL, own.parts = 0;
    return attn_sdpa(&own);
}

#ifndef ATTN_NO_CACHE
attn_status append_counts(attn_kv *c, const float *k, const float *v, int n, const int *counts, ptrdiff_t row_stride)
{
    const ptrdiff_t heads = c->shape.kv_heads, k_dim = c->shape.head_dim, v_dim = c->shape.v_head_dim;
    const ptrdiff_t k_row = row_stride ? row_stride : heads * k_dim, v_row = row_stride ? row_stride : heads * v_dim;
    attn_status status = ATTN_OK;
    for (int b = 0; b < c->shape.batch && status == ATTN_OK; b++) {
        const ptrdiff_t row = (ptrdiff_t)b * n;
        status = attn_kv_append(c, b, k + row * k_row, v ? v + row * v_row : NULL, counts[b], row_stride);
    }
    return status;
}
#endif
