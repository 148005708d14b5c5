/* util.c: clock, memory, random numbers, which keys a row may see, and libraries loaded at run time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int bench_cpu_time;

double bench_clock(void)
{
#ifdef CLOCK_THREAD_CPUTIME_ID
    struct timespec t;
    if (bench_cpu_time && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
    return bench_now();
}

void *bench_alloc(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes ? bytes : 64) != 0) {
        fprintf(stderr, "bench: no memory for %lu bytes\n", (unsigned long)bytes);
        exit(1);
    }
    return p;
}

/* The sum of four 16-bit uniforms from one draw of splitmix64: close enough to N(0, 1), and quick for gigabytes. */
void bench_fill(float *x, size_t n, unsigned seed)
{
    uint64_t s = seed;
    for (size_t i = 0; i < n; i++) {
        uint64_t z = (s += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        const int sum = (int)(z & 0xFFFF) + (int)(z >> 16 & 0xFFFF) + (int)(z >> 32 & 0xFFFF) + (int)(z >> 48);
        x[i] = (float)(sum - 131070) * (1.0f / 37837.0f);
    }
}

void bench_parallel(const attn_exec *exec, int n, void (*task)(void *arg, int i), void *arg)
{
    if (exec && exec->width > 1) exec->run(exec->pool, n, task, arg);
    else for (int i = 0; i < n; i++) task(arg, i);
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, rising);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

double bench_difference(const float *x, const float *y, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)x[i] - (double)y[i]);
        if (!(d <= worst)) worst = d;     /* NaN counts as the worst */
        if (d != d) return HUGE_VAL;
    }
    return worst;
}

static double turn(const bench_turn *t)
{
    const double begin = bench_clock();
    for (int i = 0; i < t->calls; i++) t->run(t->job);
    return bench_clock() - begin;
}

void bench_turns(bench_turn *t, int n, int rounds, double least, void (*cold)(void))
{
    for (int i = 0; i < n; i++)
        for (t[i].calls = 1; !cold && t[i].calls < 1 << 20;) {
            const double used = turn(&t[i]), more = used > 0 ? 1.2 * least / used : 8;
            if (used >= least) break;
            t[i].calls = (int)(t[i].calls * (more > 8 ? 8 : more)) + 1;
        }
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < n; k++) {
            bench_turn *of = &t[(k + r) % n];
            if (of->ready) of->ready(of->job);
            if (cold) cold();
            else of->run(of->job);
            of->sample[r] = turn(of) / of->calls;
        }
    for (int i = 0; i < n; i++) t[i].median = bench_median(t[i].sample, rounds);
}

static int entry_keys(const attn_args *a, int b)
{
    if (a->k_cum) return a->k_cum[b + 1] - a->k_cum[b];
    return a->k_lengths ? (a->k_starts ? a->k_starts[b] : 0) + a->k_lengths[b] : a->n_k;
}

int bench_rows(const attn_args *a, int b)
{
    return a->q_cum ? a->q_cum[b + 1] - a->q_cum[b] : a->q_lengths ? a->q_lengths[b] : a->n_q;
}

int bench_position(const attn_args *a, int b)
{
    return a->q_pos + (a->causal == ATTN_CAUSAL_BOTTOM_RIGHT ? entry_keys(a, b) - bench_rows(a, b) : 0);
}

void bench_range(const attn_args *a, int b, int i, int *lo, int *hi)
{
    int from = a->k_starts ? a->k_starts[b] : 0, to = entry_keys(a, b);
    const int p = i + bench_position(a, b);
    if (a->causal && to > p + 1) to = p + 1;
    if (a->window_left > 0 && from < p - a->window_left + 1) from = p - a->window_left + 1;
    if (a->window_right > 0 && to > p + a->window_right) to = p + a->window_right;
    *lo = from;
    *hi = to > from ? to : from;
}

double bench_pairs(const attn_args *a)
{
    double pairs = 0;
    for (int b = 0; b < a->batch; b++) {
        const int rows = bench_rows(a, b);
        for (int i = 0; i < rows; i++) {
            int lo, hi;
            bench_range(a, b, i, &lo, &hi);
            pairs += hi - lo;
        }
    }
    return pairs * a->heads;
}

float *bench_scratch(size_t floats)
{
    static __thread float *mine;
    static __thread size_t room;
    if (floats > room) {
        free(mine);
        room = floats + floats / 2;
        mine = (float *)bench_alloc(room * sizeof(float));
    }
    return mine;
}

void *bench_load(const char *folder, const char *const *names)
{
    void *l = NULL;
    for (; !l && *names; names++) {
        char path[1024];
        glob_t found;
        if (!strchr(*names, '/')) {
            l = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
            continue;
        }
        snprintf(path, sizeof path, "%s/../peers/%s", folder, *names);
        if (glob(path, 0, NULL, &found)) continue;
        for (size_t i = 0; !l && i < found.gl_pathc; i++) l = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
        globfree(&found);
    }
    return l;
}

/* The wheel's OpenBLAS chooses its kernels itself, except for AVX2 alone. The system's may be older than the processor
 * and would fall back to slow kernels. */
void *bench_load_openblas(const char *folder, int avx2)
{
    static const char *const wheel[] = { "scipy-openblas32/scipy_openblas32/lib/libscipy_openblas.*", NULL };
    static const char *const names[] = { "libopenblas.so.0", "libopenblas.so", "libopenblas.dylib", NULL };
    void *l;
#if defined(__x86_64__)
    if (avx2) setenv("OPENBLAS_CORETYPE", "Haswell", 1);
#else
    (void)avx2;
#endif
    l = bench_load(folder, wheel);
#if defined(__x86_64__)
    if (!l && __builtin_cpu_supports("avx2"))
        setenv("OPENBLAS_CORETYPE", __builtin_cpu_supports("avx512f") && !avx2 ? "SkylakeX" : "Haswell", 1);
#endif
    return l ? l : bench_load(folder, names);
}

extern char **environ;

void bench_environment_clear(void)
{
    static const char *const of[] = { "OPENBLAS_", "GOTO_", "BLIS_", "MKL_", "NVPL_", "OMP_", "GOMP_", "KMP_", "DNNL_",
                                      "ONEDNN_", "TBB_", "OV_", "ORT_", "GGML_" };
    int n = 0;
    for (char **e = environ; *e;) {
        char name[64];
        int k = (int)(sizeof of / sizeof *of);
        while (k-- > 0 && strncmp(*e, of[k], strlen(of[k]))) {}
        if (k < 0 || strcspn(*e, "=") >= sizeof name) {
            e++;
            continue;
        }
        printf("%s%s", n++ ? " " : "unset: ", *e);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        unsetenv(name);
        e = environ;                                        /* which has moved */
    }
    printf(n ? "\n" : "unset: nothing, the environment restricts no library\n");
}

/* dlsym returns an object pointer; POSIX converts it to a function pointer this way. */
void bench_symbol(void *library, const char *name, void *function)
{
    void *p = dlsym(library, name);
    char longer[64];
    snprintf(longer, sizeof longer, "scipy_%s", name);
    if (!p) p = dlsym(library, longer);
    memcpy(function, &p, sizeof p);
}
