/* bench.c: attn.h against everything else a C program could use, on the shapes of cases.c.
 *
 *   build/bench/bench                  the whole table, about ten minutes with all peers
 *   build/bench/bench --quick          two minutes: fewer rounds, only a hint
 *   build/bench/bench -s S3,S6 -t 1    some shapes, one thread
 *   build/bench/bench --pause 10000    two threads: each call after a pause of 10,000 us (default 1000; 0: none)
 *   build/bench/bench --busy           CPU time instead of time, with one thread: for a machine that others use too
 *   build/bench/bench --first          is the first call as fast as the tenth?
 *   build/bench/bench --scaling        is the cost linear in n_q * n_k, and in n with a window?
 *   build/bench/bench --models         shapes of well-known models
 *   build/bench/bench --long           time over n, beside attn_delta; then: build/bench/plot build/bench.csv x.svg x.md
 *   build/bench/bench --unusual                    masks that hide most keys, and other unusual calls (unusual.c)
 *   build/bench/bench --cold --small --half        these tables alone (tables.c); the whole run ends with them
 *   build/bench/bench --report                     one row about this machine for tests/MACHINES.md (report.c)
 *   build/bench/bench --ahead                      the gain of prefetching here, and the time of reading alone
 *                                                  (tables.c)
 *
 * All implementations of a shape take turns in one process, so that quiet and busy phases of the machine hit all of
 * them. Every peer must agree with attn.h within 1e-4 before it is timed. Compare only medians and ratios within a
 * run; the peak speed (peak.c) and the read test alternate with the others. On a machine with AVX-512 there are
 * two runs: one with all instruction sets, and one with only AVX2, like most machines. Environment variables that
 * restrict libraries are unset and printed, and each library prints its version. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include "bench.h"
#include "summary.h"

enum { MOST = 32, MOST_ROUNDS = BENCH_ROUNDS, STEP_CALLS = 10, PAUSED_CALLS = 10 };

static const bench_peer *const peers[] = {
    &peer_attn, &peer_attn_avx2, &peer_attn_kv, &peer_attn_kv_avx2,
    &peer_plain, &peer_openblas, &peer_blis, &peer_mkl, &peer_eigen, &peer_onednn, &peer_onednn_graph,
    &peer_openvino,
    &peer_ggml, &peer_ggml_flash,
    &peer_ort_mha, &peer_ort_attention, &peer_ort_gqa
};
enum { PEERS = sizeof peers / sizeof *peers };

static struct options {
    const char *shapes, *threads, *isa, *only, *csv;
    int quick, rounds, cpu, first, scaling, busy, pause;    /* pause: us before each call of several threads */
    int walk;                             /* MB */
    bench_table peers;                    /* cases to compare with peers */
    double seconds;                       /* for one shape */
    int tables[BENCH_AHEAD + 1];
    int unusual, count, loop;             /* a table, lines of it */
    int report;
} opt = { NULL, "1,2", NULL, NULL, "build/bench.csv", 0, 0, -1, 0, 0, 0, 1000, 0, BENCH_PEERS, 0, { 0 }, 0, 0, 0, 0 };

/* Returns 1 if name is in a comma-separated list; NULL contains every name. */
static int listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    if (!list) return 1;
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && !strncmp(p, name, n)) return 1;
    return 0;
}

/* ---- where to run ------------------------------------------------------------------------------------------------ */
#if defined(__linux__)
static cpu_set_t allowed;

/* The last processors this process may use: the first ones serve interrupts. */
static int pin(int threads)
{
    cpu_set_t set;
    int n = 0;
    CPU_ZERO(&set);
    for (size_t c = CPU_SETSIZE; c-- > 0 && n < threads;)
        if (CPU_ISSET(c, &allowed) && (threads > 1 || opt.cpu < 0 || c == (size_t)opt.cpu)) {
            CPU_SET(c, &set);
            n++;
        }
    return n == threads && sched_setaffinity(0, sizeof set, &set) == 0;
}

static void pin_begin(void) { sched_getaffinity(0, sizeof allowed, &allowed); }
#else
static int pin(int threads) { return threads == 0; }
static void pin_begin(void) {}
#endif

/* ---- one shape ------------------------------------------------------------------------------------------------- */
typedef struct entry {                    /* a participant in the turns */
    const char *name;
    const bench_peer *p;                  /* NULL: the peaks and the read test */
    void *job;
    int kind;
    int calls, rounds, warm;              /* calls of a sample; rounds of this entry; 1: an untimed call before each
                                             sample */
    double sample[MOST_ROUNDS];           /* seconds a call */
    double median, least;
    double trial;                         /* seconds of the very first call, the one that was checked */
} entry;
enum { IMPLEMENTATION, YARD, YARD512, READ };

static struct read_test {
    float *x;
    size_t n;
    int streams, parts;
    const attn_exec *exec;
    volatile float sink;
} reading;

static void read_task(void *arg, int i)
{
    struct read_test *r = (struct read_test *)arg;
    const size_t part = r->n / (size_t)r->parts;
    r->sink = yard_read(r->x + (size_t)i * part, part, r->streams);
}

static void yard_task(void *arg, int i)
{
    (void)i;
    (void)yard_flops(*(int *)arg);
}

static void yard512_task(void *arg, int i)
{
    (void)i;
    (void)yard512_flops(*(int *)arg);
}

static double yard_work(int kind) { return kind == YARD512 ? 2.0 * 12 * 32 * 64 : yard_flops(1); }

/* Seconds per call, each after a pause, which is not timed. */
static double paused_sample(const entry *e)
{
    double sum = 0;
    for (int i = 0; i < e->calls; i++) {
        usleep((useconds_t)opt.pause);
        if (e->p->timed) {
            sum += e->p->timed(e->job, 1);
            continue;
        }
        const double t = bench_clock();
        e->p->run(e->job);
        sum += bench_clock() - t;
    }
    return sum / e->calls;
}

/* Seconds a call. */
static double sample(const entry *e, const bench_setup *s)
{
    double t;
    if (e->kind == IMPLEMENTATION && s->threads > 1 && opt.pause > 0) return paused_sample(e);
    if (e->kind == IMPLEMENTATION && e->p->timed) return e->p->timed(e->job, e->calls) / e->calls;
    t = bench_clock();
    if (e->kind == IMPLEMENTATION) {
        for (int i = 0; i < e->calls; i++) e->p->run(e->job);
    } else if (e->kind == READ) {
        for (int i = 0; i < e->calls; i++) bench_parallel(s->exec, reading.parts, read_task, &reading);
    } else {
        int calls = e->calls;
        bench_parallel(s->exec, s->threads, e->kind == YARD512 ? yard512_task : yard_task, &calls);
    }
    return (bench_clock() - t) / e->calls;
}

static void calibrate(entry *e, const bench_setup *s, double least)
{
    double t;
    if (e->trial > 0.05) e->trial = sample(e, s);           /* the first call may have generated code */
    if (e->trial > 0.05) {                                  /* one call is long enough to measure */
        e->calls = 1;
        e->median = e->trial;
        return;
    }
    for (e->calls = 1; (t = sample(e, s)) * e->calls < least && e->calls < 1 << 20;) {
        const double more = t > 0 ? 1.2 * least / (t * e->calls) : 8;
        e->calls = (int)(e->calls * (more > 8 ? 8 : more < 1.3 ? 1.3 : more)) + 1;
    }
    e->median = t;
    e->warm = t * e->calls < 0.02;
}

static const char *time_text(char *to, size_t size, double seconds)
{
    if (seconds < 1e-3) snprintf(to, size, "%8.2f us", seconds * 1e6);
    else snprintf(to, size, "%8.2f ms", seconds * 1e3);
    return to;
}

static int is_ours(const entry *e) { return e->kind == IMPLEMENTATION && !strncmp(e->name, "attn", 4); }

/* One shape with all participants. */
typedef struct shape_run {
    bench_case *c;
    const bench_setup *s;
    entry *list;
    int n, rounds;
    double best;                                            /* time of the best peer */
    const char *best_name;
    double yard, yard512, read;                             /* per second: peaks, bytes read */
} shape_run;

/* Enters every library that is here and agrees with the first one. */
static void enter_peers(shape_run *r, const int *here)
{
    float *reference = (float *)bench_alloc(r->c->out_floats * sizeof(float));
    int have_reference = 0;
    for (int i = 0; i < PEERS; i++) {
        entry *e = &r->list[r->n];
        if (!here[i] || !listed(opt.only, peers[i]->name)) continue;
        memset(e, 0, sizeof *e);
        e->p = peers[i];
        e->name = peers[i]->name;
        e->job = peers[i]->prepare(peers[i], r->c);
        if (!e->job) continue;
        memset(r->c->a.out, 0, r->c->out_floats * sizeof(float));
        e->calls = 1;
        e->trial = sample(e, r->s);
        if (e->p->fetch) e->p->fetch(e->job);
        if (!have_reference) {
            memcpy(reference, r->c->a.out, r->c->out_floats * sizeof(float));
            have_reference = 1;
        } else {
            const double d = bench_difference(reference, r->c->a.out, r->c->out_floats);
            if (d > 1e-4) {
                printf("  %s differs from %s by %.2g on %s: not timed\n", e->name, r->list[0].name, d, r->c->name);
                e->p->release(e->job);
                continue;
            }
        }
        r->n++;
    }
    free(reference);
}

/* Enters the peaks and the reading of as many bytes as K and V have. */
static void enter_peaks(shape_run *r)
{
    for (int kind = YARD; kind <= READ; kind++) {
        entry *e = &r->list[r->n];
        if (kind == YARD512 && (r->s->avx2 || !yard512_here())) continue;
        memset(e, 0, sizeof *e);
        e->kind = kind;
        e->name = kind == YARD ? "peak" : kind == YARD512 ? "peak 512" : "reading";
        r->n++;
    }
    reading.n = (size_t)(r->c->kv_bytes / 4) / 64 * 64;
    reading.x = (float *)bench_alloc(reading.n * sizeof(float));
    memset(reading.x, 0, reading.n * sizeof(float));
    reading.parts = r->s->threads;
}

static void calibrate_all(shape_run *r)
{
    const double least = opt.quick ? 0.5e-3 : 2e-3;
    for (int i = 0; i < r->n; i++) {
        entry *e = &r->list[i];
        if (e->kind == READ) {                              /* the faster way to read here */
            reading.streams = 4;
            calibrate(e, r->s, least);
            const double four = e->median;
            reading.streams = 1;
            calibrate(e, r->s, least);
            if (four < e->median) reading.streams = 4;
        } else {
            calibrate(e, r->s, least);
        }
        /* attn.h has separate caches and packed weights; the peers share one K, one V, one matrix, which their turns
         * keep in cache. A turn has so many calls that the first one, whose data others have evicted, is
         * negligible. */
        if (r->c->a.n_q == 1 && r->c->kv_bytes < 1 << 26 && e->calls < STEP_CALLS) e->calls = STEP_CALLS;
        if (e->kind == IMPLEMENTATION && !is_ours(e) && e->median < r->best) r->best = e->median;
        if (r->s->threads > 1 && opt.pause > 0 && e->calls > PAUSED_CALLS) e->calls = PAUSED_CALLS;
    }
}

static void plan_rounds(shape_run *r)
{
    const double budget = opt.seconds > 0 ? opt.seconds : opt.quick ? 1.5 : 60;
    double round_cost = 0;
    for (int i = 0; i < r->n; i++) {                           /* slow participants do not limit the number of turns */
        entry *e = &r->list[i];
        e->rounds = e->kind == IMPLEMENTATION && e->median > 3 * r->best ? 3 : r->rounds;
        if (opt.quick && e->rounds < r->rounds) e->rounds = 1;
        if (opt.quick && e->rounds == 1 && e->trial > 0.05) e->rounds = 0;      /* the first call is the sample */
        round_cost += e->median * (e->calls + (e->warm ? 1 : 0)) * e->rounds;
    }
    for (int i = 0; i < r->n && round_cost > budget; i++) {    /* out of time: fewer rounds, never below 3 */
        entry *e = &r->list[i];
        int fewer = (int)(e->rounds * budget / round_cost);
        if (e->rounds == r->rounds) e->rounds = fewer < 3 ? 3 : fewer;
    }
}

/* All take turns; each round begins with another participant. */
static void take_turns(shape_run *r)
{
    for (int turn = 0; turn < r->rounds; turn++)
        for (int k = 0; k < r->n; k++) {
            entry *e = &r->list[(k + turn) % r->n];
            if (turn >= e->rounds) continue;
            if (e->warm) {
                entry once = *e;
                once.calls = 1;
                (void)sample(&once, r->s);
            }
            e->sample[turn] = sample(e, r->s);
            /* lets the threads of this entry fall asleep; OpenMP's threads spin for some milliseconds */
            if (r->s->threads > 1) usleep(opt.pause > 0 ? 10000 : 500);
        }
}

static void evaluate(shape_run *r)
{
    r->best = HUGE_VAL;
    for (int i = 0; i < r->n; i++) {
        entry *e = &r->list[i];
        if (!e->rounds) e->sample[e->rounds++] = e->trial;
        e->median = bench_median(e->sample, e->rounds);
        e->least = e->sample[0];
        if (e->kind == YARD) r->yard = yard_work(YARD) * r->s->threads / e->median;
        if (e->kind == YARD512) r->yard512 = yard_work(YARD512) * r->s->threads / e->median;
        if (e->kind == READ) r->read = (double)reading.n * 4 / e->median;
        if (e->kind == IMPLEMENTATION && !is_ours(e) && e->median < r->best) {
            r->best = e->median;
            r->best_name = e->name;
        }
    }
}

static void print_run(const shape_run *r, FILE *csv)
{
    const bench_case *const c = r->c;
    const bench_setup *const s = r->s;
    char t1[24];
    printf("\n%-4s %s   (batch %d, heads %d, kv heads %d, %d x %d, head_dim %d; %d thread%s%s)\n", c->name, c->text,
           c->a.batch, c->a.heads, c->a.kv_heads, c->a.n_q, c->a.n_k, c->a.head_dim, s->threads, s->threads > 1 ? "s" : "",
           s->avx2 ? "; AVX2 alone" : "");
    for (int i = 0; i < r->n; i++) {
        const entry *e = &r->list[i];
        const double tiles = e->kind == READ ? 0 : yard_work(e->kind) * s->threads;
        const double flops = e->kind == IMPLEMENTATION ? c->flops : tiles;
        const double bytes = e->kind == READ ? (double)reading.n * 4 : e->kind == IMPLEMENTATION ? c->bytes : 0;
        const double ratio = e->kind == IMPLEMENTATION && r->best < HUGE_VAL ? r->best / e->median : 0;
        printf("  %-15s %s", e->name, time_text(t1, sizeof t1, e->median));
        if (flops > 0) printf(" %8.1f GFLOP/s", flops / e->median * 1e-9);
        else printf(" %16s", "");
        if (bytes > 0) printf(" %6.1f GB/s", bytes / e->median * 1e-9);
        if (e->kind == IMPLEMENTATION) {
            printf("  %5.2f Y", flops / e->median / r->yard);
            if (r->yard512 > 0) printf(" %4.2f Y512", flops / e->median / r->yard512);
            printf("  %4.2f of reading", c->kv_bytes / e->median / r->read);
            if (is_ours(e)) printf("  %5.2f x the best peer", ratio);
            else if (e->name == r->best_name) printf("  <- the best peer");
        }
        printf("%s\n", e->rounds < r->rounds ? "  (few rounds)" : "");
        fprintf(csv, "%s,%s,%d,%s,%.6g,%.6g,%.5g,%.5g,%.4g,%.4g,%.4g,%d,%s,%g,\"%s\"\n", s->avx2 ? "avx2" : "native",
                c->name, s->threads, e->name, e->median * 1e3, e->least * 1e3, flops / e->median * 1e-9,
                bytes / e->median * 1e-9, ratio, e->kind == IMPLEMENTATION ? flops / e->median / r->yard : 0,
                e->kind == IMPLEMENTATION ? c->kv_bytes / e->median / r->read : 0, e->rounds, r->best_name,
                is_ours(e) ? (strstr(e->name, "-kv") ? c->aim_kv : c->aim) : 0, c->text);
    }
    fflush(stdout);
    fflush(csv);
}

static void step(void *args) { if (attn_delta((attn_delta_args *)args) != ATTN_OK) exit(1); }

/* Linear attention of the same rows: its state, 8 heads of 64 x 64, replaces all earlier keys. */
static void linear_attention(const shape_run *r, FILE *csv)
{
    const attn_args *c = &r->c->a;
    const size_t rows = (size_t)c->n_q * (size_t)c->heads, state = (size_t)c->heads * 64 * 64;
    float *x = (float *)bench_alloc((4 * 64 * rows + 2 * rows + state) * sizeof(float));
    static bench_turn turn;
    attn_delta_args a;
    char text[24];
    bench_fill(x, 4 * 64 * rows, 1);
    memset(&a, 0, sizeof a);
    a.out = x, a.q = x + 64 * rows, a.k = x + 128 * rows, a.v = x + 192 * rows;
    a.g = x + 256 * rows, a.beta = x + 257 * rows, a.state = x + 258 * rows;
    for (size_t i = 0; i < rows; i++) x[256 * rows + i] = -0.05f, x[257 * rows + i] = 0.5f;
    memset(a.state, 0, state * sizeof(float));
    a.batch = 1, a.n = c->n_q, a.heads = c->heads, a.head_dim = 64, a.qk_norm = 1, a.exec = r->s->exec;
    a.work_size = attn_delta_workspace(&a);
    a.work = bench_alloc(a.work_size);
    turn.run = step, turn.job = &a;
    bench_turns(&turn, 1, r->rounds, 1e-3, NULL);
    printf("  %-15s %s\n", "attn_delta", time_text(text, sizeof text, turn.median));
    fprintf(csv, "%s,%s,%d,linear,%.6g,%.6g,0,0,0,0,0,%d,%s,0,\"%s\"\n", r->s->avx2 ? "avx2" : "native", r->c->name,
            r->s->threads, turn.median * 1e3, turn.sample[0] * 1e3, r->rounds, r->best_name, r->c->text);
    free(a.work);
    free(x);
}

static void run_shape(int index, const bench_setup *s, const int *here, FILE *csv)
{
    static entry list[MOST];
    shape_run r = {.s = s, .list = list, .best = HUGE_VAL, .best_name = "nobody"};
    r.c = bench_case_make(index, s->exec);
    r.rounds = opt.rounds ? opt.rounds : opt.quick ? 5 : 15;
    enter_peers(&r, here);
    enter_peaks(&r);
    calibrate_all(&r);
    plan_rounds(&r);
    take_turns(&r);
    evaluate(&r);
    print_run(&r, csv);
    if (bench_case_table(index) == BENCH_LONG) linear_attention(&r, csv);
    for (int i = 0; i < r.n; i++) if (list[i].job) list[i].p->release(list[i].job);
    free(reading.x);
    bench_case_free(r.c);
}

/* ---- one run: all shapes with this number of threads ------------------------------------------------------------ */
static void run_all(const char *folder, int threads, int avx2, FILE *csv)
{
    bench_setup s;
    attn_pool *pool = NULL;
    attn_exec exec;
    int here[PEERS];
    const int pinned = pin(threads);

    bench_cpu_time = opt.busy && threads == 1;
    memset(&s, 0, sizeof s);
    s.threads = threads;
    s.avx2 = avx2;
    s.folder = folder;
    if (threads > 1) {                                      /* one pool for all that need an outer loop */
        pool = attn_pool_create(threads);
        exec = attn_pool_exec(pool);
        s.exec = &exec;
    }
    /* Without pauses OpenMP's threads would spin into the next turn. The variable is read when the first library that
     * uses OpenMP is loaded. */
    if (threads > 1 && opt.pause == 0) setenv("GOMP_SPINCOUNT", "20000", 0);
    printf("\n==== %d thread%s, %s%s; peak Y: %s\n", threads, threads > 1 ? "s" : "",
           avx2 ? "AVX2 alone" : "all this machine has", pinned ? bench_cpu_time ? ", CPU TIME" : "" : ", NOT PINNED",
           yard_name());
    for (int i = 0; i < PEERS; i++) {
        const char *why = listed(opt.only, peers[i]->name) ? peers[i]->open(peers[i], &s) : "";
        here[i] = why == NULL;
        if (why && *why) printf("  MISSING %s: %s\n", peers[i]->name, why);
    }
    for (int i = 0; i < bench_case_count(); i++)
        if (opt.shapes ? listed(opt.shapes, bench_case_name(i))
                       : bench_case_table(i) == opt.peers)
            run_shape(i, &s, here, csv);
    for (int i = 0; i < PEERS; i++) if (here[i] && peers[i]->close) peers[i]->close(peers[i]);
    attn_pool_destroy(pool);
}

/* ---- the summary: from the CSV, so that it covers all runs ----------------------------------------------------- */
static void summary(const char *path)
{
    static bench_run run;
    bench_run_read(path, &run);
    printf("\n==== times faster than the best peer (share of the peak, of reading)\n");
    printf("  %-6s %-6s %-13s %9s %6s %6s %-15s %9s %-15s %8s\n", "isa", "shape", "", "1 thread", "Y", "read",
           "best peer", "2 threads", "best peer", "2 / 1");
    for (int i = 0; i < run.n; i++) {
        const bench_row *r = &run.rows[i], *two = bench_row_find(&run, r->isa, 2, r->shape, r->name);
        if (strncmp(r->name, "attn", 4) || r->threads != 1) continue;
        printf("  %-6s %-6s %-13s %9.2f %6.2f %6.2f %-15s", r->isa, r->shape, r->name, r->ratio, r->y, r->reading,
               r->best);
        if (two) printf(" %9.2f %-15s %8.2f", two->ratio, two->best, r->ms / two->ms);
        else printf(" %9s %-15s %8s", "", "", "");
        if (r->aim > 0)
            printf("  aim %.2f%s", r->aim, r->ratio < r->aim || (two && two->ratio < r->aim) ? "  BELOW" : "");
        printf("\n");
    }
    bench_summary_print(&run);
}

/* ---- the first call, and the cost of a bigger problem ---------------------------------------------------------- */
enum { GIVEN, MALLOC, LOOP, WAYS };

/* In a separate process, whose inputs and outputs have been touched: ten calls in a row. */
static void ten_calls(const char *name, int way)
{
    static const char *const ways[WAYS] = { "workspace given", "from malloc", "(plain loop)" };
    double t[10];
    for (int i = 0; i < bench_case_count(); i++) {
        bench_case *c;
        attn_args a;
        if (strcmp(bench_case_name(i), name)) continue;
        c = bench_case_make(i, NULL);
        a = c->a;
        if (way == GIVEN) {
            a.work_size = attn_sdpa_workspace(&a);
            a.work = bench_alloc(a.work_size);
            memset(a.work, 0, a.work_size);
        }
        for (int k = 0; k < 10; k++) {
            t[k] = bench_clock();
            if (way == LOOP) bench_loops_now->attend(&a);
            else if (attn_sdpa(&a) != ATTN_OK) _exit(1);
            t[k] = bench_clock() - t[k];
        }
        printf("  %-5s %-16s %10.1f %10.1f %10.1f %10.1f %8.2f %8.2f\n", c->name, ways[way], t[0] * 1e6, t[1] * 1e6,
               t[2] * 1e6, t[9] * 1e6, t[0] / t[9], t[1] / t[9]);
        fflush(stdout);
    }
}

static void first_calls(void)
{
    static const char *const names[] = { "S1", "S2", "S5", "S6", "S7", "S9", "S12" };
    printf("The first call of a process against its tenth, in microseconds%s\n", bench_cpu_time ? " of CPU time" : "");
    printf("  %-5s %-16s %10s %10s %10s %10s %8s %8s\n", "", "", "first", "second", "third", "tenth", "1st/10th",
           "2nd/10th");
    for (int i = 0; i < WAYS * (int)(sizeof names / sizeof *names); i++) {
        pid_t child;
        fflush(stdout);
        child = fork();
        if (child == 0) {
            pin(1);
            ten_calls(names[i / WAYS], i % WAYS);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
}

static void scaling(void)
{
    attn_backend list[8];
    int backends = attn_backends(list, 8);
    pin(1);
    printf("\nOne head, head_dim 64, one thread: nanoseconds per visible (query, key), and GFLOP/s\n  %-8s", "n");
    for (int k = 0; k < backends && k < 8; k++)
        if (list[k] >= ATTN_AVX2) printf(" %8s dense %-8s %8s window 256 %-8s", attn_backend_name(list[k]), "", "", "");
    printf("\n");
    for (int n = 512; n <= (opt.quick ? 4096 : 16384); n *= 2) {
        const size_t floats = (size_t)n * 64;
        float *x = (float *)bench_alloc(4 * floats * sizeof(float));
        bench_fill(x, 4 * floats, 1);
        printf("  %-8d", n);
        for (int k = 0; k < 2 * backends && k < 16; k++) {
            double t[5], pairs, median;
            attn_args a;
            int calls;
            if (list[k / 2] < ATTN_AVX2) continue;
            memset(&a, 0, sizeof a);
            a.out = x + 3 * floats;
            a.q = x;
            a.k = x + floats;
            a.v = x + 2 * floats;
            a.batch = a.heads = 1;
            a.n_q = a.n_k = n;
            a.head_dim = 64;
            a.backend = list[k / 2];
            if (k % 2) {
                a.causal = ATTN_CAUSAL_TOP_LEFT;
                a.window_left = 256;
            }
            pairs = bench_pairs(&a);
            calls = 1 + (int)(5e6 / pairs);
            for (int r = 0; r < 5; r++) {
                t[r] = bench_clock();
                for (int i = 0; i < calls; i++) if (attn_sdpa(&a) != ATTN_OK) exit(1);
                t[r] = (bench_clock() - t[r]) / calls;
            }
            median = bench_median(t, 5);
            printf(" %10.3f ns %8.1f      ", median / pairs * 1e9, 256 * pairs / median * 1e-9);
        }
        printf("\n");
        fflush(stdout);
        free(x);
    }
}

static void tables(const char *folder)
{
    bench_setup s = { 1, opt.isa && !strcmp(opt.isa, "avx2"), NULL, folder };
    pin(1);
    bench_cpu_time = opt.busy;
    for (int t = BENCH_COLD; t <= BENCH_AHEAD; t++)
        if (opt.tables[t])
            bench_table_print((bench_table)t, &s, opt.rounds ? opt.rounds : opt.quick ? 5 : 0, (size_t)opt.walk << 20);
    if (opt.unusual) bench_unusual_print(&s, opt.rounds ? opt.rounds : opt.quick ? 5 : 15);
}

/* ---- main ------------------------------------------------------------------------------------------------------ */
static void usage(FILE *to)
{
    fprintf(to, "usage: bench [-q|--quick] [-s S1,S3] [-t 1,2] [-i native|avx2|native,avx2] [-o attn,OpenBLAS] [-r rounds]\n"
           "      [-b seconds a shape] [-c file.csv] [--cpu n] [-l|--list] [--busy] [--first] [--scaling] [--long]\n"
           "      [--models]\n"
           "      [--pause us] [--cold] [--half] [--small] [--ahead] [--walk MB] [--unusual [--count line] [--loop line]]\n"
           "      [--report]\n");
}

/* Runs this program with the first words of two lists. Libraries choose kernels and numbers of threads once per process,
 * so each instruction set and each number of threads gets a process. */
static void run_again(int argc, char **argv, const char *isa, const char *threads)
{
    char last[] = "--last", i[] = "-i", t[] = "-t", words[2][16], *again[64];
    pid_t child;
    int n = 0;
    snprintf(words[0], sizeof words[0], "%.*s", (int)strcspn(isa, ","), isa);
    snprintf(words[1], sizeof words[1], "%.*s", (int)strcspn(threads, ","), threads);
    while (n < argc && n < 58) again[n] = argv[n], n++;
    again[n++] = i;
    again[n++] = words[0];
    again[n++] = t;
    again[n++] = words[1];
    again[n++] = last;
    again[n] = NULL;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        execvp(argv[0], again);
        _exit(1);
    }
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    char folder[1024] = ".";
    const char *slash = strrchr(argv[0], '/');
    char machine[160];
    FILE *csv;
    int last = 0;

    if (slash) snprintf(folder, sizeof folder, "%.*s", (int)(slash - argv[0]), argv[0]);
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(o, "-q") || !strcmp(o, "--quick")) opt.quick = 1;
        else if (!strcmp(o, "--first")) opt.first = 1;
        else if (!strcmp(o, "--scaling")) opt.scaling = 1;
        else if (!strcmp(o, "--long")) opt.peers = BENCH_LONG;
        else if (!strcmp(o, "--models")) opt.peers = BENCH_MODELS;
        else if (!strcmp(o, "--cold")) opt.tables[BENCH_COLD] = 1;
        else if (!strcmp(o, "--half")) opt.tables[BENCH_HALF] = 1;
        else if (!strcmp(o, "--small")) opt.tables[BENCH_SMALL] = 1;
        else if (!strcmp(o, "--ahead")) opt.tables[BENCH_AHEAD] = 1;
        else if (!strcmp(o, "--unusual")) opt.unusual = 1;
        else if (!strcmp(o, "--report")) opt.report = 1;
        else if (!strcmp(o, "--busy")) opt.busy = 1;
        else if (!strcmp(o, "--last")) last = 1;            /* one of several runs: rows are appended */
        else if (!strcmp(o, "-l") || !strcmp(o, "--list")) {
            for (int k = 0; k < bench_case_count(); k++) printf("%-5s %s\n", bench_case_name(k), bench_case_text(k));
            for (int k = 0; k < PEERS; k++) printf("%s%s", k ? ", " : "", peers[k]->name);
            printf("\n");
            return 0;
        }
        else if (!strcmp(o, "-h") || !strcmp(o, "--help")) { usage(stdout); return 0; }
        else if (!v) { usage(stderr); return 2; }
        else if (!strcmp(o, "-s")) opt.shapes = argv[++i];
        else if (!strcmp(o, "--pause")) opt.pause = atoi(argv[++i]);
        else if (!strcmp(o, "-t")) opt.threads = argv[++i];
        else if (!strcmp(o, "-i")) opt.isa = argv[++i];
        else if (!strcmp(o, "-o")) opt.only = argv[++i];
        else if (!strcmp(o, "-c")) opt.csv = argv[++i];
        else if (!strcmp(o, "-r")) opt.rounds = atoi(argv[++i]);
        else if (!strcmp(o, "-b")) opt.seconds = atof(argv[++i]);
        else if (!strcmp(o, "--cpu")) opt.cpu = atoi(argv[++i]);
        else if (!strcmp(o, "--walk")) opt.walk = atoi(argv[++i]);
        else if (!strcmp(o, "--count")) opt.count = atoi(argv[++i]);
        else if (!strcmp(o, "--loop")) opt.loop = atoi(argv[++i]);
        else { usage(stderr); return 2; }
    }
    if (opt.rounds > MOST_ROUNDS) opt.rounds = MOST_ROUNDS;
    if (opt.count || opt.loop) return !bench_unusual_run(opt.count + opt.loop, opt.loop, ATTN_AVX2);
    if (!last && !opt.report) {
        bench_machine(machine, sizeof machine);
        printf("%s\n", machine);
        bench_environment_clear();
    }
    pin_begin();
    yard_begin();
    if (opt.report) {
        const bench_setup s = { 1, 0, NULL, folder };
        pin(1);
        bench_cpu_time = opt.busy;
        return !bench_report(&s, opt.rounds ? opt.rounds : opt.quick ? 5 : 15);
    }
    if (opt.first || opt.scaling) {
        bench_cpu_time = opt.busy;
        if (opt.first) first_calls();
        if (opt.scaling) scaling();
        return 0;
    }
    if (opt.tables[BENCH_COLD] || opt.tables[BENCH_HALF] || opt.tables[BENCH_SMALL] || opt.tables[BENCH_AHEAD] ||
        opt.unusual) {
        tables(folder);
        return 0;
    }
    if (!opt.isa) opt.isa = yard512_here() ? "native,avx2" : "native";
    csv = fopen(opt.csv, last ? "a" : "w");
    if (!csv) {
        fprintf(stderr, "bench: cannot write %s\n", opt.csv);
        return 1;
    }
    if (!last)
        fprintf(csv, "# %s%s\nisa,shape,threads,implementation,ms,ms_least,gflops,gbs,ratio_to_best_peer,share_of_y,"
                     "share_of_reading,samples,best_peer,aim,what\n", machine,
                opt.busy ? ", CPU time beside busy neighbours" : "");
    if (!strchr(opt.isa, ',') && !strchr(opt.threads, ',')) {
        if (atoi(opt.threads) > 0) run_all(folder, atoi(opt.threads), !strcmp(opt.isa, "avx2"), csv);
        fclose(csv);
    } else {
        fclose(csv);
        for (const char *i = opt.isa; *i; i += strcspn(i, ","), i += *i == ',')
            for (const char *t = opt.threads; *t; t += strcspn(t, ","), t += *t == ',') run_again(argc, argv, i, t);
    }
    if (last) return 0;
    if (opt.peers != BENCH_LONG) summary(opt.csv);                      /* attn_delta is no peer */
    if (opt.shapes || opt.only || opt.peers != BENCH_PEERS) return 0;
    opt.tables[BENCH_COLD] = opt.tables[BENCH_HALF] = opt.tables[BENCH_SMALL] = 1;
    tables(folder);
    return 0;
}
