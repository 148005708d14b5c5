/* summary.h: the results of a benchmark run, from its CSV; for the end of the run (bench.c) and for pictures and tables
 * (plot.c). */
#ifndef BENCH_SUMMARY_H
#define BENCH_SUMMARY_H

#include <stddef.h>

/* The columns of the CSV. A line before them begins with # and names the machine. */
typedef struct bench_row {
    char isa[8], shape[8], name[24], best[24], what[64];
    int threads, samples;
    double ms, least, gflops, gbs, ratio, y, reading, aim;  /* ms: the median */
} bench_row;

enum { BENCH_ROWS = 4096, BENCH_SHAPES = 64, BENCH_LIBRARIES = 16 };
typedef struct bench_run {
    char machine[160];
    int n;
    bench_row rows[BENCH_ROWS];
} bench_run;

/* One library in one column (isa, threads): its time divided by attn.h's, over the shapes that it supports. For a
 * library with several operators the best one counts, and for attn.h the better of rows and attn_kv. */
typedef struct bench_library {
    char name[24];
    int shapes;
    double mean, least, most;             /* geometric mean; smallest and largest ratio of a shape */
    const bench_row *at_least, *at_most;
} bench_library;

/* Returns the rows; 0: there is no such file. Runs one after another in one file count as one, by their better rows. */
int  bench_run_read(const char *path, bench_run *run);
void bench_machine(char *to, size_t size);                  /* of this process */
const bench_row *bench_row_find(const bench_run *run, const char *isa, int threads, const char *shape,
                                const char *name);
/* The best form of attn.h; the best form of one library, or of all libraries (NULL). by_least: by the best sample,
   not the median */
const bench_row *bench_row_ours(const bench_run *run, const char *isa, int threads, const char *shape, int by_least);
const bench_row *bench_row_theirs(const bench_run *run, const char *isa, int threads, const char *shape,
                                  const char *library, int by_least);
int  bench_shapes(const bench_run *run, const char *isa, int threads, const char *shapes[BENCH_SHAPES]);
/* Smallest ratio first; `all` is the best peer of each shape. Returns the number of libraries. */
int  bench_libraries(const bench_run *run, const char *isa, int threads, int by_least, bench_library *list,
                     bench_library *all);
/* "2 of 22 shapes: S15 0.94 (MKL), ..." */
void bench_losses(char *to, size_t size, const bench_run *run, const char *isa, int threads, int by_least);
void bench_summary_print(const bench_run *run);

#endif
