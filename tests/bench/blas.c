/* blas.c: OpenBLAS, BLIS and MKL, loaded at run time so that all can live in one process and any may be missing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { ROW_MAJOR = 101, PLAIN = 111, TURNED = 112 };
typedef void sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                   const float *b, int ldb, float beta, float *c, int ldc);
typedef void sgemv(int order, int ta, int m, int n, float alpha, const float *a, int lda, const float *x, int dx,
                   float beta, float *y, int dy);

typedef struct blas {
    bench_gemm g;                         /* first: a gemm is its blas */
    void *library;
    sgemm *gemm;
    sgemv *gemv;
    char why[160];
} blas;

/* One row: the product is a matrix times a vector, for which libraries have a faster function. */
static void nt(const bench_gemm *g, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
               float beta, float *c, int ldc)
{
    const blas *l = (const blas *)g->self;
    if (m == 1) l->gemv(ROW_MAJOR, PLAIN, n, k, alpha, b, ldb, a, 1, beta, c, 1);
    else l->gemm(ROW_MAJOR, PLAIN, TURNED, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static void nn(const bench_gemm *g, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
               float beta, float *c, int ldc)
{
    const blas *l = (const blas *)g->self;
    if (m == 1) l->gemv(ROW_MAJOR, TURNED, k, n, alpha, b, ldb, a, 1, beta, c, 1);
    else l->gemm(ROW_MAJOR, PLAIN, PLAIN, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static const char *use(blas *l, const char *name)
{
    if (!l->library) {
        snprintf(l->why, sizeof l->why, "%s is not installed", name);
        return l->why;
    }
    bench_symbol(l->library, "cblas_sgemm", &l->gemm);
    bench_symbol(l->library, "cblas_sgemv", &l->gemv);
    if (!l->gemm || !l->gemv) {
        snprintf(l->why, sizeof l->why, "%s has no cblas_sgemm", name);
        return l->why;
    }
    l->g.nt = nt;
    l->g.nn = nn;
    l->g.self = l;
    return NULL;
}

static int has_avx512(void)
{
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    return __builtin_cpu_supports("avx512f") != 0;
#else
    return 0;
#endif
}

/* Prints the version and the kernels in use. */
static const char *openblas_open(const bench_peer *p, const bench_setup *s)
{
    blas *l = (blas *)p->self;
    void (*set_threads)(int) = NULL;
    char *(*core)(void) = NULL, *(*config)(void) = NULL;
    const char *why, *version;
    if (!l->library) l->library = bench_load_openblas(s->folder, s->avx2);
    why = use(l, "OpenBLAS");
    if (why) return why;
    bench_symbol(l->library, "openblas_set_num_threads", &set_threads);
    bench_symbol(l->library, "openblas_get_corename", &core);
    bench_symbol(l->library, "openblas_get_config", &config);
    if (set_threads) set_threads(1);
    version = config ? config() : "OpenBLAS ?";             /* "OpenBLAS 0.3.34 NO_LAPACKE DYNAMIC_ARCH .." */
    printf("  %.*s, its kernels for %s\n", (int)(9 + strcspn(version + 9, " ")), version, core ? core() : "?");
    return NULL;
}

static const char *blis_open(const bench_peer *p, const bench_setup *s)
{
    static const char *const names[] = { "libblis.so.4", "libblis.so.3", "libblis.so", "libblis.dylib", NULL };
    blas *l = (blas *)p->self;
    void (*set_threads)(long) = NULL;
    int (*kernels)(void) = NULL;
    char *(*name)(int) = NULL, *(*version)(void) = NULL;
    const char *why;
    setenv("BLIS_NUM_THREADS", "1", 1);
    if (!l->library) l->library = bench_load(s->folder, names);
    why = use(l, "BLIS");
    if (why) return why;
#if defined(__x86_64__)
    {                                                       /* kernels are chosen by number; numbers by version */
        const char *want = has_avx512() && !s->avx2 ? "skx" : __builtin_cpu_is("amd") ? "zen3" : "haswell";
        char number[8];
        bench_symbol(l->library, "bli_arch_string", &name);
        for (int i = 0; name && i < 16 && __builtin_cpu_supports("avx2"); i++)
            if (!strcmp(name(i), want)) {
                snprintf(number, sizeof number, "%d", i);
                setenv("BLIS_ARCH_TYPE", number, 1);
                break;
            }
    }
#endif
    bench_symbol(l->library, "bli_thread_set_num_threads", &set_threads);
    bench_symbol(l->library, "bli_arch_query_id", &kernels);
    bench_symbol(l->library, "bli_arch_string", &name);
    if (set_threads) set_threads(1);
    bench_symbol(l->library, "bli_info_get_version_str", &version);
    printf("  BLIS %s, its kernels for %s\n", version ? version() : "?", kernels && name ? name(kernels()) : "?");
    return NULL;
}

/* Its sequential layer needs no other library; the benchmark supplies the threads, as for the other peers. */
static const char *mkl_open(const bench_peer *p, const bench_setup *s)
{
    static const char *const names[] = { "mkl/*/data/lib/libmkl_rt.so.*", "libmkl_rt.so.3", "libmkl_rt.so.2",
                                         "libmkl_rt.so", "libmkl_rt.dylib", NULL };
    blas *l = (blas *)p->self;
    void (*version)(char *to, int size) = NULL;
    char text[200] = "";
    const char *why;
    setenv("MKL_THREADING_LAYER", "SEQUENTIAL", 1);
    setenv("MKL_INTERFACE_LAYER", "LP64", 1);
    if (s->avx2) setenv("MKL_ENABLE_INSTRUCTIONS", "AVX2", 1);
    else unsetenv("MKL_ENABLE_INSTRUCTIONS");
    if (!l->library) l->library = bench_load(s->folder, names);
    why = use(l, "MKL");
    if (why) return why;
    bench_symbol(l->library, "mkl_get_version_string", &version);
    if (!version) bench_symbol(l->library, "MKL_Get_Version_String", &version);
    if (version) version(text, (int)sizeof text - 1);
    text[strcspn(text, "-")] = 0;
    if (version) printf("  %s\n", text);
    return NULL;
}

static void *blas_prepare(const bench_peer *p, const bench_case *c)
{
    return compose_prepare(&((const blas *)p->self)->g, c);
}

static blas openblas, blis, mkl;
const bench_peer peer_openblas = { "OpenBLAS", openblas_open, blas_prepare, compose_run, NULL, NULL, compose_release,
                                   NULL, &openblas };
const bench_peer peer_blis = { "BLIS", blis_open, blas_prepare, compose_run, NULL, NULL, compose_release, NULL, &blis };
const bench_peer peer_mkl = { "MKL", mkl_open, blas_prepare, compose_run, NULL, NULL, compose_release, NULL, &mkl };

/* ---- peers that need a header to compile: plug-ins, built where the header is ---------------------------------- */
void *bench_plugin(const char *folder, const char *file, const char *name, const char **why)
{
    char path[1024];
    void *l, *p = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    l = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (l) p = dlsym(l, name);
    *why = l ? "the plug-in is broken" : "not installed (or later than the benchmark was built)";
    return p;
}

static const bench_gemm *eigen;

static const char *eigen_open(const bench_peer *p, const bench_setup *s)
{
    const char *why = NULL;
    const char *file = s->avx2 ? "eigen-avx2.so" : "eigen.so";
    (void)p;
    if (!eigen) eigen = (const bench_gemm *)bench_plugin(s->folder, file, "bench_eigen", &why);
    if (eigen) printf("  Eigen %s\n", (const char *)eigen->self);
    return eigen ? NULL : why;
}

static void *eigen_prepare(const bench_peer *p, const bench_case *c)
{
    (void)p;
    return compose_prepare(eigen, c);
}

const bench_peer peer_eigen = {"Eigen", eigen_open,      eigen_prepare, compose_run, NULL,
                               NULL,    compose_release, NULL,          NULL};

/* oneDNN: one source of two plug-ins, which are linked with different builds; self is NULL or the graph's. */
static const bench_peer *onednn[2];

static const char *onednn_open(const bench_peer *p, const bench_setup *s)
{
    const bench_peer **of = &onednn[p->self != NULL];
    const char *why = NULL;
    if (s->avx2) setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
    if (!*of) *of = (const bench_peer *)bench_plugin(s->folder, p->self ? "onednn-graph.so" : "onednn.so",
                                                     "bench_onednn", &why);
    return *of ? (*of)->open(p, s) : why;
}

static void *onednn_prepare(const bench_peer *p, const bench_case *c) { return onednn[0]->prepare(p, c); }
static void onednn_run(void *job) { onednn[0]->run(job); }
static void onednn_release(void *job) { onednn[0]->release(job); }
static void onednn_close(const bench_peer *p) { onednn[0]->close(p); }
static void *graph_prepare(const bench_peer *p, const bench_case *c) { return onednn[1]->prepare(p, c); }
static void graph_run(void *job) { onednn[1]->run(job); }
static double graph_timed(void *job, int calls) { return onednn[1]->timed(job, calls); }
static void graph_release(void *job) { onednn[1]->release(job); }
static void graph_close(const bench_peer *p) { onednn[1]->close(p); }

static int second_form = 1;                                 /* of oneDNN: its graph; of ggml: flash */
const bench_peer peer_onednn = { "oneDNN", onednn_open, onednn_prepare, onednn_run, NULL, NULL, onednn_release,
                                 onednn_close, NULL };
const bench_peer peer_onednn_graph = { "oneDNN graph", onednn_open, graph_prepare, graph_run, graph_timed, NULL,
                                       graph_release, graph_close, &second_form };

/* ggml: one plug-in, two forms that differ in what prepare makes. */
static const bench_peer *ggml;

static const char *ggml_open(const bench_peer *p, const bench_setup *s)
{
    const char *why = NULL;
    const char *file = s->avx2 && yard512_here() ? "ggml-avx2.so" : "ggml.so";
    (void)p;
    if (!ggml) ggml = (const bench_peer *)bench_plugin(s->folder, file, "bench_ggml", &why);
    return ggml ? ggml->open(ggml, s) : why;
}

static void *ggml_prepare(const bench_peer *p, const bench_case *c) { return ggml->prepare(p, c); }
static void ggml_run(void *job) { ggml->run(job); }
static double ggml_timed(void *job, int calls) { return ggml->timed(job, calls); }
static void ggml_fetch(void *job) { ggml->fetch(job); }
static void ggml_release(void *job) { ggml->release(job); }
static void ggml_close(const bench_peer *p) { ggml->close(p); }

const bench_peer peer_ggml = { "ggml", ggml_open, ggml_prepare, ggml_run, ggml_timed, ggml_fetch, ggml_release,
                               ggml_close, NULL };
const bench_peer peer_ggml_flash = { "ggml flash", ggml_open, ggml_prepare, ggml_run, ggml_timed, ggml_fetch,
                                     ggml_release, ggml_close, &second_form };
