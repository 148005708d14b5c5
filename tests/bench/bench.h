/* bench.h: what the parts of the benchmark share. A case is one shape with its data, an implementation is one way to
 * compute it; bench.c lets all of them take turns. */
#ifndef BENCH_H
#define BENCH_H

#ifndef ATTN_THREADS
#define ATTN_THREADS
#endif
#include "attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The table of a case: compared with peers (bench.c), the same for growing n or with shapes of well-known models
 * (bench.c), or one of attn.h's steps (tables.c). */
typedef enum bench_table { BENCH_PEERS, BENCH_MODELS, BENCH_COLD, BENCH_HALF, BENCH_SMALL, BENCH_AHEAD, BENCH_LONG } bench_table;
enum { LAYER_NONE, LAYER_SELF, LAYER_CROSS_STEP, LAYER_SELF_STEP };

/* The computation. a holds the attention, tensors packed as [batch][row][head][head_dim]; a.exec has the number of
 * threads. Layers: out and x are [n_q][d_model], q is unused; k and v are the projected rows of the cache,
 * [n_k][d_model] (LAYER_SELF_STEP: the step writes the last of them; LAYER_SELF: NULL). */
typedef struct bench_case {
    const char *name, *text;
    attn_args a;
    int decode;                           /* 1: also measured from attn_kv */
    int layer, d_model;
    attn_storage storage;                 /* of attn.h's caches and weights */
    const float *x, *w_in, *b_in, *w_o, *b_o;             /* w_in [3*d_model][d_model], w_o [d_model][d_model] */
    size_t out_floats;
    double flops, bytes;                  /* visible pairs only; every tensor once */
    double kv_bytes;                      /* K and V (and weights) alone: what the read test reads */
    double aim, aim_kv;                   /* ratio to the best peer aimed at, from rows and from attn_kv; 0: none */
} bench_case;

typedef struct bench_setup {
    int threads;
    int avx2;                             /* 1: nothing beyond AVX2 may be used */
    const attn_exec *exec;                /* NULL with one thread */
    const char *folder;                   /* the folder of the program and its plug-ins */
} bench_setup;

typedef struct bench_peer {
    const char *name;
    const char *(*open)(const struct bench_peer *p, const bench_setup *s);     /* NULL: success; else the missing part */
    void *(*prepare)(const struct bench_peer *p, const bench_case *c);          /* NULL: does not do this case */
    void (*run)(void *job);                                                     /* writes c->a.out */
    double (*timed)(void *job, int calls);  /* seconds; NULL: the clock of bench.c around run */
    void (*fetch)(void *job);               /* copies the result to c->a.out; NULL: run has done so */
    void (*release)(void *job);
    void (*close)(const struct bench_peer *p);                                  /* NULL: nothing to do */
    void *self;                             /* the peer's own */
} bench_peer;

/* C = alpha A B^T + beta C (nt), C = alpha A B + beta C (nn); row-major; called from several threads at once. */
typedef struct bench_gemm {
    void (*nt)(const struct bench_gemm *g, int m, int n, int k, float alpha, const float *a, int lda,
               const float *b, int ldb, float beta, float *c, int ldc);
    void (*nn)(const struct bench_gemm *g, int m, int n, int k, float alpha, const float *a, int lda,
               const float *b, int ldb, float beta, float *c, int ldc);
    void *self;                           /* the library's own; Eigen: its version */
} bench_gemm;

/* loops.c, compiled for this machine (-march=native) and, on x86, once more for AVX2 */
typedef struct bench_loops {
    void (*attend)(const attn_args *a);   /* the plain loop, with every feature that the sweep draws */
    void (*linear)(float *y, const float *x, const float *w, const float *b, int rows, int n_in, int n_out,
                   const attn_exec *exec);
    /* s[j] = exp(s[j] + mask[j] - max); returns the sum. mask may be NULL */
    float (*softmax)(float *s, const float *mask, int n);
    void (*sparse)(const attn_args *a);   /* the loop over visible keys only; for unusual.c */
} bench_loops;
extern const bench_loops bench_loops_native, bench_loops_avx2;
extern const bench_loops *bench_loops_now;

/* compose.c: attention and layers composed of a product and a softmax, in blocks of 128 rows of one head */
void  compose_attend(const bench_gemm *g, const attn_args *a);
void *compose_prepare(const bench_gemm *g, const bench_case *c);
void  compose_run(void *job);
void  compose_release(void *job);

/* cases.c */
int  bench_case_count(void);
const char *bench_case_name(int i);
const char *bench_case_text(int i);
bench_table bench_case_table(int i);
bench_case *bench_case_make(int i, const attn_exec *exec);
void bench_case_free(bench_case *c);

/* the peers */
extern const bench_peer peer_attn, peer_attn_avx2, peer_attn_kv, peer_attn_kv_avx2;
extern const bench_peer peer_plain, peer_openblas, peer_blis, peer_mkl, peer_eigen, peer_onednn_graph, peer_onednn;
extern const bench_peer peer_openvino;
extern const bench_peer peer_ggml, peer_ggml_flash;
extern const bench_peer peer_ort_mha, peer_ort_attention, peer_ort_gqa;
void *bench_plugin(const char *folder, const char *file, const char *name, const char **why);   /* NULL: why */
/* Loads the first library that exists; names with a slash are patterns below folder/../peers. */
void *bench_load(const char *folder, const char *const *names);
void *bench_load_openblas(const char *folder, int avx2);
/* function: where its address goes, or NULL. A wheel of OpenBLAS puts "scipy_" before its names. */
void  bench_symbol(void *library, const char *name, void *function);
/* Unsets, and prints, the variables that would restrict a library's instruction sets or threads. */
void  bench_environment_clear(void);

/* peak.c */
const char *yard_name(void);              /* "6x16 AVX2", or another tile whose peak is measured */
void   yard_begin(void);                  /* once, before the others */
double yard_flops(int calls);             /* computes this many tiles, returns their FLOPs */
int    yard512_here(void);
double yard512_flops(int calls);
/* Reads n floats in 1 or 4 streams. The result only keeps the reads alive. */
float  yard_read(const float *x, size_t n, int streams);

/* tables.c: prints a table; rounds 0: as many as needed. walked: bytes read before each cold call; 0: depends on the
   last cache */
void bench_table_print(bench_table table, const bench_setup *s, int rounds, size_t walked);

/* no_prefetch.c */
attn_status bench_sdpa_alone(const attn_args *a);

/* unusual.c: calls whose masks hide most keys, compared with a loop over visible keys only. */
void bench_unusual_print(const bench_setup *s, int rounds);
/* Runs line `line` once, for counting the instructions of attn.h or of the loop. Returns 0 if there is no such
   line */
int  bench_unusual_run(int line, int loop, attn_backend backend);

/* report.c: prints a row for tests/MACHINES.md. Returns 0 if a result is wrong. */
int  bench_report(const bench_setup *s, int rounds);

/* util.c */
double bench_now(void);                   /* seconds */
extern int bench_cpu_time;                /* 1: bench_clock returns the time this thread has used */
double bench_clock(void);                 /* seconds */
void  *bench_alloc(size_t bytes);         /* 64-byte aligned, never NULL */
void   bench_fill(float *x, size_t n, unsigned seed);   /* about N(0, 1) */
double bench_pairs(const attn_args *a);   /* visible (batch, head, row, key) by length, causal and window */
int    bench_rows(const attn_args *a, int b);             /* query rows of entry b that exist */
int    bench_position(const attn_args *a, int b);         /* of its row 0 */
/* Keys that row i of entry b may see by length, causal flag and window: *lo <= j < *hi. */
void bench_range(const attn_args *a, int b, int i, int *lo, int *hi);
void   bench_parallel(const attn_exec *exec, int n, void (*task)(void *arg, int i), void *arg);
double bench_median(double *x, int n);    /* sorts */
double bench_difference(const float *x, const float *y, size_t n);      /* the largest; HUGE_VAL if one is NaN */
enum { BENCH_ROUNDS = 200 };
typedef struct bench_turn {               /* a participant in the turns */
    void (*run)(void *job);
    void (*ready)(void *job);             /* before a sample, not timed; NULL: nothing to do */
    void *job;
    int calls;                            /* of one sample */
    double sample[BENCH_ROUNDS], median;  /* seconds a call */
} bench_turn;
/* Rounds of samples of at least this many seconds. cold: a function called before each sample, which then has one call;
   or NULL. */
void   bench_turns(bench_turn *t, int n, int rounds, double least, void (*cold)(void));
float *bench_scratch(size_t floats);      /* of this thread, kept */

#ifdef __cplusplus
}
#endif
#endif
