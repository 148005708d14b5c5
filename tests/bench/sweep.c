/* sweep.c: searches for calls in which a plain loop is faster, and measures the cost of each feature.
 *
 *   build/bench/sweep                  1,000 random calls, hot and cold; under three minutes
 *   build/bench/sweep -n 5000 -s 7     more of them, another seed
 *   build/bench/sweep -o 317           call 317 alone, measured longer (with its -s and -a: the same call)
 *   build/bench/sweep -a               AVX2 alone against a loop compiled for AVX2 alone
 *   build/bench/sweep -p               only plain calls, without masks, biases and lengths
 *   build/bench/sweep -f               the cost of each feature, and no random calls
 *   build/bench/sweep -m               no workspace given: attn.h allocates
 *
 * Calls are drawn in turn for each class of rows, keys, heads and widths, half of them with nothing optional, a quarter
 * from a cache. Hot: medians of calls that take turns, in CPU time (others may use the machine). Cold: single calls,
 * each after its data, all code and the stack have been flushed and their address translations evicted. A ratio below
 * 1 is measured again, longer, before it counts. Results must agree within 1e-4. One thread. */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#define FLUSH(line) __asm__ volatile("clflush %0" : "+m"(*(volatile char *)(size_t)(line)))
/* clflushopt: the same, but twenty times as fast, because flushes do not wait for each other */
#define FLUSH_SOON(line) __asm__ volatile(".byte 0x66; clflush %0" : "+m"(*(volatile char *)(size_t)(line)))
#define FLUSHED() __asm__ volatile("mfence" ::: "memory")
#endif

#include "bench.h"

const bench_loops *bench_loops_now = &bench_loops_native;

static uint64_t state;
static attn_backend backend;
static int allocate, only_plain;

static int pick(int lo, int hi)
{
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return lo + (int)((z ^ (z >> 31)) % (uint64_t)(hi - lo + 1));
}

static int chance(int percent) { return pick(1, 100) <= percent; }
/* log-uniform */
static int spread(int lo, int hi) { return (int)(lo * pow((double)hi / lo, pick(0, 1000) / 1000.0)); }

/* ---- one call with everything it needs ------------------------------------------------------------------------- */
enum { MOST_BATCH = 8 };
typedef struct call {
    attn_args a;
    float *reference;                     /* output of the plain loop */
    size_t out_floats;
    int q_lengths[MOST_BATCH], k_lengths[MOST_BATCH], k_starts[MOST_BATCH];
    int q_cum[MOST_BATCH + 1], k_cum[MOST_BATCH + 1];
    unsigned char *keep;
    attn_args loop;                       /* the same call for the loop: plain rows, another output */
    attn_kv kv;                           /* with memory: source for attn.h */
    void *memory;
    char text[256];
} call;

static float *random_floats(size_t n, float by)
{
    float *x = (float *)bench_alloc(n * sizeof(float));
    bench_fill(x, n, (unsigned)pick(1, 1 << 30));
    for (size_t i = 0; i < n; i++) x[i] *= by;
    return x;
}

static void say(call *c, const char *word) { strncat(c->text, word, sizeof c->text - strlen(c->text) - 1); }

static void add_mask(call *c, int entries, int heads, int rows, int hidden_percent)
{
    const size_t n = (size_t)entries * (size_t)heads * (size_t)rows * (size_t)c->a.n_k;
    float *m = random_floats(n, 1);
    for (size_t i = 0; hidden_percent && i < n; i++) if (chance(hidden_percent)) m[i] = -INFINITY;
    c->a.mask = m;
    c->a.mask_shape[0] = entries;
    c->a.mask_shape[1] = heads;
    c->a.mask_shape[2] = rows;
    say(c, rows == 1 ? " mask(keys)" : " mask");
}

static void add_keep(call *c, int entries, int rows, int hidden_percent)
{
    const size_t n = (size_t)entries * (size_t)rows * (size_t)c->a.n_k;
    c->keep = (unsigned char *)bench_alloc(n);
    for (size_t i = 0; i < n; i++) c->keep[i] = (unsigned char)!chance(hidden_percent);
    c->a.keep = c->keep;
    c->a.keep_shape[0] = entries;
    c->a.keep_shape[1] = 1;
    c->a.keep_shape[2] = rows;
    say(c, rows == 1 ? " keep(keys)" : " keep");
}

/* Entries of different lengths, the longest of them n_q, n_k. */
static void add_ragged(call *c)
{
    c->q_cum[0] = c->k_cum[0] = 0;
    for (int b = 0; b < c->a.batch; b++) {
        c->q_cum[b + 1] = c->q_cum[b] + (b ? pick((c->a.n_q + 1) / 2, c->a.n_q) : c->a.n_q);
        c->k_cum[b + 1] = c->k_cum[b] + (b ? pick((c->a.n_k + 1) / 2, c->a.n_k) : c->a.n_k);
    }
    c->a.q_cum = c->q_cum;
    c->a.k_cum = c->k_cum;
    say(c, " ragged");
}

static void add_weights(call *c)
{
    const size_t cells = (size_t)c->a.batch * (size_t)c->a.heads * (size_t)c->a.n_q * (size_t)c->a.n_k;
    c->a.weights = (float *)bench_alloc(cells * sizeof(float));
    memset(c->a.weights, 0, cells * sizeof(float));         /* so that no call touches it first */
    say(c, " weights");
}

static void add_lse(call *c)
{
    c->a.lse = (float *)bench_alloc((size_t)c->a.batch * (size_t)c->a.heads * (size_t)c->a.n_q * sizeof(float));
    say(c, " lse");
}

static void call_begin(call *c, int batch, int heads, int kv_heads, int n_q, int n_k, int head_dim)
{
    const size_t q = (size_t)batch * (size_t)n_q * (size_t)(heads * head_dim);
    const size_t k = (size_t)batch * (size_t)n_k * (size_t)(kv_heads * head_dim);
    memset(c, 0, sizeof *c);
    c->a.batch = batch;
    c->a.heads = heads;
    c->a.kv_heads = kv_heads;
    c->a.n_q = n_q;
    c->a.n_k = n_k;
    c->a.head_dim = head_dim;
    c->a.backend = backend;
    c->a.q = random_floats(q, 1);
    c->a.k = random_floats(k, 1);
    c->a.v = random_floats(k, 1);
    c->a.out = (float *)bench_alloc(q * sizeof(float));
    c->reference = (float *)bench_alloc(q * sizeof(float));
    c->out_floats = q;
    memset(c->a.out, 0, q * sizeof(float));
    memset(c->reference, 0, q * sizeof(float));
    snprintf(c->text, sizeof c->text, "%d,%d,%d,%d,%d,%d", batch, heads, kv_heads, n_q, n_k, head_dim);
}

static void must(const call *c, attn_status status)
{
    char why[200];
    if (status == ATTN_OK) return;
    attn_check(&c->a, why, sizeof why);
    fprintf(stderr, "sweep: %s: %s: %s\n", c->text, attn_status_str(status), why);
    exit(1);
}

/* K and V go into a cache, in one piece. */
static void add_cache(call *c)
{
    attn_kv_args shape = { 0 };
    shape.batch = c->a.batch;
    shape.kv_heads = c->a.kv_heads;
    shape.head_dim = c->a.head_dim;
    shape.capacity = c->a.n_k;
    shape.mem_size = attn_kv_size(&shape);
    shape.mem = c->memory = bench_alloc(shape.mem_size);
    must(c, attn_kv_init(&c->kv, &shape));
    must(c, attn_kv_append(&c->kv, -1, c->a.k, c->a.v, c->a.n_k, 0));
    say(c, " cache");
}

/* The arguments are complete: copies them for the loop, and allocates attn.h's workspace. */
static void call_ready(call *c)
{
    size_t need;
    c->loop = c->a;
    c->loop.out = c->reference;
    if (c->memory) {
        c->a.kv = &c->kv;
        c->a.k = c->a.v = NULL;
    }
    need = attn_sdpa_workspace(&c->a);
    if (allocate || need == (size_t)-1) return;
    c->a.work = bench_alloc(need);
    c->a.work_size = need;
    memset(c->a.work, 0, need);
}

static void call_end(call *c)
{
    free(c->a.out);
    free(c->reference);
    free(c->keep);
    free(c->a.weights);
    free(c->a.lse);
    free(c->a.work);
    free(c->memory);
    free((void *)(size_t)c->a.q);
    free((void *)(size_t)c->loop.k);
    free((void *)(size_t)c->loop.v);
    free((void *)(size_t)c->a.mask);
    free((void *)(size_t)c->a.bias);
    free((void *)(size_t)c->a.alibi_slopes);
    free((void *)(size_t)c->a.sinks);
}

static void ours(void *job)
{
    const call *c = (const call *)job;
    must(c, attn_sdpa(&c->a));
}

static void theirs(void *job) { bench_loops_now->attend(&((const call *)job)->loop); }

/* Median seconds per call of both, measured alternately. */
static void measure_hot(call *c, int rounds, double least, double *us, double *them)
{
    static bench_turn t[2];
    t[0].run = ours;
    t[1].run = theirs;
    t[0].job = t[1].job = c;
    bench_turns(t, 2, rounds, least, NULL);
    *us = t[0].median;
    *them = t[1].median;
}

/* ---- cold caches ------------------------------------------------------------------------------------------------- */
enum { LINE = 64, PAGE = 4096, PAGES = 3072, STACK = 1 << 16, MOST_SEGMENTS = 64 };

static struct {
    const char *from[MOST_SEGMENTS];      /* code and constants of the program and its libraries */
    size_t bytes[MOST_SEGMENTS];
    int n;
    char *pages;                          /* more pages than the processor keeps address translations for */
    int soon;                             /* 1: this processor has FLUSH_SOON */
    volatile char sink;
} cache;

/* Addresses of the program and its libraries, from Linux; pages of the kernel cannot be flushed. */
static void find_code(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char text[600], rights[8], name[400];
    unsigned long from, to;
    while (maps && cache.n < MOST_SEGMENTS && fgets(text, sizeof text, maps)) {
        if (sscanf(text, "%lx-%lx %7s %*s %*s %*s %399s", &from, &to, rights, name) != 4) continue;
        if (rights[0] != 'r' || rights[1] == 'w' || name[0] != '/') continue;
        cache.from[cache.n] = (const char *)from;
        cache.bytes[cache.n++] = to - from;
    }
    if (maps) fclose(maps);
}

/* Returns 1 if caches can be flushed on this machine. */
static int cold_begin(void)
{
    int can = 0;
#ifdef FLUSH
    unsigned a, b = 0, c, d;
    cache.soon = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 23 & 1u);
    can = 1;
#endif
    find_code();
    if (cache.n == 0 || cache.n == MOST_SEGMENTS) can = 0;
    cache.pages = (char *)bench_alloc((size_t)PAGES * PAGE);
    memset(cache.pages, 1, (size_t)PAGES * PAGE);
    return can;
}

static void flush(const void *data, size_t bytes)
{
#ifdef FLUSH
    const char *at = (const char *)data, *end = at + bytes;
    if (!data) return;
    if (cache.soon) for (; at < end; at += LINE) FLUSH_SOON(at);
    else for (; at < end; at += LINE) FLUSH(at);
    FLUSHED();
#else
    (void)data;
    (void)bytes;
#endif
}

/* The part of the stack that a call will use. */
static void flush_stack(void)
{
    volatile char room[STACK];
    room[0] = room[STACK - 1] = 0;
    flush((const char *)(size_t)room, sizeof room);
}

static void flush_all(const call *c)
{
    const attn_args *a = &c->loop;
    const size_t rows = (size_t)a->batch * (size_t)a->n_q, keys = (size_t)a->batch * (size_t)a->n_k;
    const size_t q = rows * (size_t)(a->heads * a->head_dim) * sizeof(float);
    const size_t k = keys * (size_t)(a->kv_heads * a->head_dim) * sizeof(float);
    const size_t cells = rows * (size_t)a->heads * (size_t)a->n_k * sizeof(float);
    const int *m = a->mask_shape, *b = a->keep_shape;
    const size_t n_k = (size_t)a->n_k;
    for (int i = 0; i < cache.n; i++) flush(cache.from[i], cache.bytes[i]);
    flush(a->q, q);
    flush(a->k, k);
    flush(a->v, k);
    flush(c->a.out, q);
    flush(c->reference, q);
    flush(a->mask, (size_t)m[0] * (size_t)m[1] * (size_t)m[2] * n_k * sizeof(float));
    flush(a->keep, (size_t)b[0] * (size_t)b[1] * (size_t)b[2] * n_k);
    flush(a->bias, (size_t)a->heads * (size_t)a->n_q * n_k * sizeof(float));
    flush(a->weights, cells);
    flush(c->a.work, c->a.work_size);
    flush(c, sizeof *c);
    flush(c->memory, c->kv.shape.mem_size);
    flush_stack();
    for (size_t i = 0; i < PAGES; i++) cache.sink = cache.pages[i * PAGE + i % (PAGE / LINE) * LINE];
}

static double once_cold(call *c, void (*run)(void *job))
{
    double begin;
    flush_all(c);
    begin = bench_now();                  /* warms the code of the clock */
    begin = bench_now();
    run(c);
    return bench_now() - begin;
}

static void measure_cold(call *c, int rounds, double *us, double *them)
{
    static double sample[2][BENCH_ROUNDS];
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < 2; i++) {
            const int other = (r + i) % 2;
            sample[other][r] = once_cold(c, other ? theirs : ours);
        }
    *us = bench_median(sample[0], rounds);
    *them = bench_median(sample[1], rounds);
}

/* ---- random calls, class by class -------------------------------------------------------------------------------- */
typedef struct range {
    const char *text;
    int lo, hi;
} range;
enum { ROWS = 3, KEYS = 4, HEADS = 2, WIDTHS = 2, CLASSES = ROWS * KEYS * HEADS * WIDTHS };
static const range rows_of[ROWS] = { { "1 row", 1, 1 }, { "2-12 rows", 2, 12 }, { "13- rows", 13, 600 } };
static const range keys_of[KEYS] = {
    { "1-7 keys", 1, 7 }, { "8-31 keys", 8, 31 }, { "32-127 keys", 32, 127 }, { "128- keys", 128, 3000 }
};
static const range heads_of[HEADS] = { { "1 head", 1, 1 }, { "2- heads", 2, 12 } };
static const range widths_of[WIDTHS] = { { "width 1-31", 1, 31 }, { "width 32-", 32, 256 } };

static int draw(const range *r) { return spread(r->lo, r->hi); }

/* Draws lengths, and which keys rows see by position. Returns 1 if entries have different lengths. */
static int draw_positions(call *c)
{
    const int n_k = c->a.n_k, n_q = c->a.n_q, batch = c->a.batch, ragged = batch > 1 && chance(15);
    if (ragged) add_ragged(c);
    if (chance(25)) {
        c->a.causal = chance(50) ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_BOTTOM_RIGHT;
        say(c, c->a.causal == ATTN_CAUSAL_TOP_LEFT ? " causal" : " causal(bottom-right)");
    }
    if (chance(15)) {
        c->a.window_left = spread(1, n_k + 1);
        c->a.window_right = chance(50) ? spread(1, n_k + 1) : 0;
        say(c, " window");
    }
    if (!ragged && chance(20)) {
        for (int b = 0; b < batch; b++) c->k_lengths[b] = pick((n_k + 1) / 2, n_k);
        c->a.k_lengths = c->k_lengths;
        say(c, " k_lengths");
    }
    if (!ragged && chance(10)) {
        for (int b = 0; b < batch; b++) c->q_lengths[b] = pick((n_q + 1) / 2, n_q);
        c->a.q_lengths = c->q_lengths;
        say(c, " q_lengths");
    }
    if (!ragged && chance(15)) {
        for (int b = 0; b < batch; b++) {
            c->k_starts[b] = pick(0, n_k / 3);
            c->k_lengths[b] -= c->k_starts[b];              /* the last key stays the same */
        }
        c->a.k_starts = c->k_starts;
        say(c, " k_starts");
    }
    return ragged || c->a.k_starts;
}

static void draw_arrays(call *c)
{
    const int n_k = c->a.n_k, n_q = c->a.n_q, batch = c->a.batch;
    if (chance(20))
        add_mask(c, chance(50) ? 1 : batch, chance(70) ? 1 : c->a.heads, chance(30) ? 1 : n_q, chance(50) ? 20 : 0);
    if (chance(15)) add_keep(c, chance(50) ? 1 : batch, chance(40) ? 1 : n_q, 20);
    if (chance(15)) {
        c->a.bias = random_floats((size_t)c->a.heads * (size_t)n_q * (size_t)n_k, 1);
        say(c, " bias");
    }
    if (chance(10)) {
        c->a.alibi_slopes = random_floats((size_t)c->a.heads, 0.1f);
        say(c, " alibi");
    }
    if (chance(10)) {
        c->a.softcap = 30;
        say(c, " softcap");
    }
    if (chance(10)) add_weights(c);
    if (chance(10)) add_lse(c);
}

/* Makes call `number` of this seed, independent of the calls before it. */
static void call_random(call *c, int seed, int number)
{
    static const int usual[] = { 32, 40, 48, 64, 64, 64, 80, 96, 128, 128, 160, 256 };
    const int class = number % CLASSES, wide = class / ROWS / KEYS / HEADS;
    int batch, kv_heads, group, n_q, n_k, head_dim, apart = 0;
    state = ((uint64_t)seed << 32) + (uint64_t)number;
    do {
        n_q = draw(&rows_of[class % ROWS]);
        n_k = draw(&keys_of[class / ROWS % KEYS]);
        kv_heads = draw(&heads_of[class / ROWS / KEYS % HEADS]);
        head_dim = draw(&widths_of[wide]);
        if (wide && chance(70)) head_dim = usual[pick(0, 11)];
        group = kv_heads == 1 || chance(75) ? 1 : pick(2, 5);
        batch = chance(60) ? 1 : pick(2, 4);
        /* the loop and the flushing take some milliseconds at most */
    } while ((double)batch * kv_heads * group * n_q * n_k * head_dim > 1e7 ||
             (double)batch * kv_heads * n_k * head_dim > 6e5);
    call_begin(c, batch, kv_heads * group, kv_heads, n_q, n_k, head_dim);
    if (chance(50) && !only_plain) {
        apart = draw_positions(c);
        draw_arrays(c);
    }
    if (!apart && chance(25)) add_cache(c);
    call_ready(c);
}

static double difference(const call *c)
{
    const size_t rows = c->a.q_cum ? (size_t)c->q_cum[c->a.batch] : 0;
    const size_t n = c->a.q_cum ? rows * (size_t)(c->a.heads * c->a.head_dim) : c->out_floats;
    return bench_difference(c->a.out, c->reference, n);
}

/* Prints the losses, hot and cold, by the average number of keys that a row sees. */
enum { HOT, COLD, HEAT };
static const char *const heat[HEAT] = { "hot", "cold" };
static struct bin {
    int n, below, worst_call;
    double logs, worst;
} bins[CLASSES][HEAT];

/* The same by feature, as in call.text, from 8 keys on. */
static const char *const words[] = {
    "", "cache", "ragged", "causal", "causal(bottom-right)", "window", "k_lengths", "q_lengths", "k_starts", "mask",
    "mask(keys)", "keep", "keep(keys)", "bias", "alibi", "softcap", "weights", "lse"
};
enum { WORDS = sizeof words / sizeof *words };
static struct bin by_word[WORDS][HEAT];

static void count(struct bin *in, double ratio, int number)
{
    if (!in->n++ || ratio < in->worst) {
        in->worst = ratio;
        in->worst_call = number;
    }
    in->below += ratio < 0.9;
    in->logs += log(ratio);
}

static void count_words(const call *c, int h, double ratio, int number)
{
    const char *at = strchr(c->text, ' ');
    if (!at) count(&by_word[0][h], ratio, number);
    while (at) {
        const char *end = strchr(++at, ' ');
        const size_t n = end ? (size_t)(end - at) : strlen(at);
        for (int w = 1; w < WORDS; w++)
            if (strlen(words[w]) == n && !strncmp(words[w], at, n)) count(&by_word[w][h], ratio, number);
        at = end;
    }
}

static int class_of(const attn_args *a)
{
    const double keys = bench_pairs(a) / ((double)a->batch * a->heads * a->n_q);
    int row = 0, key = 0;
    while (row + 1 < ROWS && a->n_q > rows_of[row].hi) row++;
    while (key + 1 < KEYS && keys >= keys_of[key + 1].lo) key++;
    return row + ROWS * (key + KEYS * ((a->heads > 1) + HEADS * (a->head_dim >= widths_of[1].lo)));
}

/* Returns the loop's time divided by attn.h's; with `longer`, measures longer even if there seems to be no loss. us,
   them: seconds. */
static double judge(call *c, int cold, int longer, double *us, double *them)
{
    if (cold) measure_cold(c, 9, us, them);
    else measure_hot(c, 3, 20e-6, us, them);
    if (!longer && *them >= *us) return *them / *us;
    if (cold) measure_cold(c, longer ? 101 : 41, us, them);
    else measure_hot(c, longer ? 41 : 15, 200e-6, us, them);
    return *them / *us;
}

static void print_bins(const char *name, const struct bin *in)
{
    if (!in[HOT].n) return;
    printf("  %-47s %5d", name, in[HOT].n);
    for (int h = 0; h < HEAT && in[h].n; h++)
        printf(" | %4.0f%% %5.2f %5.2f (%6d)", 100.0 * in[h].below / in[h].n, exp(in[h].logs / in[h].n), in[h].worst,
               in[h].worst_call);
    printf("\n");
}

static void print_classes(void)
{
    char name[100];
    printf("\nShare of calls below 0.9, the geometric mean, and the worst (with its number: -o):\n");
    printf("  %-47s %5s | %5s %5s %14s | %5s %5s %14s\n", "", "calls", "hot", "mean", "worst", "cold", "mean", "worst");
    for (int i = 0; i < CLASSES; i++) {
        snprintf(name, sizeof name, "%s x %s, %s, %s", rows_of[i % ROWS].text, keys_of[i / ROWS % KEYS].text,
                 heads_of[i / ROWS / KEYS % HEADS].text, widths_of[i / ROWS / KEYS / HEADS].text);
        print_bins(name, bins[i]);
    }
    printf("\nThe same from %d keys on, by what a call asks for:\n", keys_of[1].lo);
    for (int i = 0; i < WORDS; i++) print_bins(*words[i] ? words[i] : "nothing optional", by_word[i]);
    printf("\n");
}

static void print_sum(int all)
{
    int n = 0, below = 0, worst = -1, at = 0;
    for (int i = 0; i < CLASSES * HEAT; i++) {
        const struct bin *in = &bins[i / HEAT][i % HEAT];
        if (!in->n || (!all && i / HEAT / ROWS % KEYS == 0)) continue;
        n += in->n;
        below += in->below;
        if (worst < 0 || in->worst < bins[worst / HEAT][worst % HEAT].worst) worst = i;
    }
    if (worst < 0) return;
    at = worst % HEAT;
    printf("%d of %d calls from %d %s on below 0.9; the worst %.2f, call %d, %s\n", below, n, all ? 1 : keys_of[1].lo,
           all ? "key" : "keys", bins[worst / HEAT][at].worst, bins[worst / HEAT][at].worst_call, heat[at]);
}

/* Calls first .. first + n - 1. */
static int sweep(int seed, int first, int n, double seconds)
{
    const double begin = bench_now();
    const int warm = cold_begin() ? HEAT : COLD, alone = n == 1;
    int wrong = 0, i = first;
    printf("Random calls of seed %d, attn.h (%s) by the plain loop; named when below 0.9 or different.\n", seed,
           attn_backend_name(backend == ATTN_AUTO ? (attn_backends(&backend, 1), backend) : backend));
    if (warm == COLD) printf("SKIPPED: cold caches, nothing to flush them with here\n");
    printf("Sizes: batch, heads, kv heads, n_q, n_k, head_dim.\n");
    for (; i < first + n && bench_now() - begin < seconds; i++) {
        static call c;
        double us, them, d;
        call_random(&c, seed, i);
        ours(&c);
        theirs(&c);
        d = difference(&c);
        if (d > 1e-4) {
            printf("  %5d DIFFERENT by %.2g: %s\n", i, d, c.text);
            wrong++;
        }
        for (int h = 0; h < warm; h++) {
            const double ratio = judge(&c, h == COLD, alone, &us, &them);
            struct bin *in = &bins[class_of(&c.loop)][h];
            if (ratio < 0.9 || alone)
                printf("  %5d %-4s %.2f: %.2f us, the loop %.2f us: %s\n", i, heat[h], ratio, us * 1e6, them * 1e6,
                       c.text);
            count(in, ratio, i);
            if (class_of(&c.loop) / ROWS % KEYS) count_words(&c, h, ratio, i);
        }
        fflush(stdout);
        call_end(&c);
    }
    if (alone) return wrong;
    print_classes();
    printf("%d calls in %.0f s, %d different\n", i - first, bench_now() - begin, wrong);
    print_sum(1);
    print_sum(0);
    return wrong;
}

/* ---- what a feature costs -------------------------------------------------------------------------------------- */
enum {
    PLAIN, MASK, MASK_HOLES, MASK_KEYS, KEEP, KEEP_KEYS, BIAS, CAUSAL, WINDOW, ALIBI, SOFTCAP, SINKS, WEIGHTS, RAW, LSE,
    MASKED_ROWS, K_LENGTHS, RAGGED, LEFT_PADDING, FEATURES
};
static const char *const feature_names[FEATURES] = {
    "plain", "mask matrix, finite", "mask matrix, 10% hidden", "mask of keys", "keep matrix, 10% hidden",
    "keep of keys", "bias", "causal", "window of 256", "ALiBi", "softcap", "sinks", "weights", "weights, raw scores",
    "lse", "masked_rows", "key lengths", "ragged", "left padding"
};

static double visible_pairs(const call *c)
{
    const attn_args *a = &c->a;
    double pairs = 0;
    if (!a->mask && !a->keep) return bench_pairs(a);
    for (int b = 0; b < a->batch; b++)
        for (int i = 0; i < a->n_q; i++)
            for (int j = 0; j < a->n_k; j++) {
                const size_t at =
                    (size_t)j + (size_t)a->n_k * (size_t)((a->mask ? a->mask_shape[2] : a->keep_shape[2]) > 1 ? i : 0);
                pairs += a->mask ? a->mask[at] > -INFINITY : a->keep[at] != 0;
            }
    return pairs * a->heads;
}

static void features(int batch, int heads, int n_q, int n_k)
{
    static call c[FEATURES];
    static size_t masked;
    static bench_turn t[FEATURES];
    double cost[FEATURES];
    for (int f = 0; f < FEATURES; f++) {
        attn_args *a = &c[f].a;
        state = 42;
        call_begin(&c[f], batch, heads, heads, n_q, n_k, 64);
        switch (f) {
        case MASK: add_mask(&c[f], 1, 1, n_q, 0); break;
        case MASK_HOLES: add_mask(&c[f], 1, 1, n_q, 10); break;
        case MASK_KEYS: add_mask(&c[f], 1, 1, 1, 0); break;
        case KEEP: add_keep(&c[f], 1, n_q, 10); break;
        case KEEP_KEYS: add_keep(&c[f], 1, 1, 10); break;
        case BIAS: a->bias = random_floats((size_t)heads * (size_t)n_q * (size_t)n_k, 1); break;
        case CAUSAL: a->causal = n_q == 1 ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_TOP_LEFT; break;
        case WINDOW: a->window_left = a->window_right = 128; a->q_pos = n_q == 1 ? n_k / 2 : 0; break;
        case ALIBI: a->alibi_slopes = random_floats((size_t)heads, 0.1f); break;
        case SOFTCAP: a->softcap = 30; break;
        case SINKS: a->sinks = random_floats((size_t)heads, 1); break;
        case WEIGHTS: add_weights(&c[f]); break;
        case RAW: add_weights(&c[f]); a->weights_stage = ATTN_SCORES_RAW; break;
        case LSE: add_lse(&c[f]); break;
        case MASKED_ROWS: a->masked_rows = &masked; break;
        case K_LENGTHS:
            for (int b = 0; b < batch; b++) c[f].k_lengths[b] = n_k - 37 * b;
            a->k_lengths = c[f].k_lengths;
            break;
        case RAGGED: add_ragged(&c[f]); break;
        case LEFT_PADDING:
            for (int b = 0; b < batch; b++) c[f].k_starts[b] = 37 * b;
            a->k_starts = c[f].k_starts;
            break;
        default: break;
        }
        call_ready(&c[f]);
        t[f].run = ours;
        t[f].job = &c[f];
    }
    bench_turns(t, FEATURES, 9, 0.5e-3, NULL);
    printf("%d entries, %d heads of 64, %d x %d:\n", batch, heads, n_q, n_k);
    for (int f = 0; f < FEATURES; f++) {
        const double median = t[f].median, pairs = visible_pairs(&c[f]);
        cost[f] = median / pairs;
        printf("  %-24s %9.3f ms  %8.4f ns a visible score  %5.2f%s\n", feature_names[f], median * 1e3, cost[f] * 1e9,
               cost[f] / cost[PLAIN], cost[f] > 1.5 * cost[PLAIN] ? "  ABOVE 1.5" : "");
    }
    for (int f = 0; f < FEATURES; f++) call_end(&c[f]);
}

int main(int argc, char **argv)
{
    int n = 1000, seed = 1, first = 0, with_features = 0, bad = 0;
    double seconds = 170;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-f")) with_features = 1;
        else if (!strcmp(argv[i], "-p")) only_plain = 1;
        else if (!strcmp(argv[i], "-m")) allocate = 1;
        else if (!strcmp(argv[i], "-a")) {
            backend = ATTN_AVX2;
#if defined(__x86_64__)
            bench_loops_now = &bench_loops_avx2;
#endif
        }
        else if (!strcmp(argv[i], "-n") && i + 1 < argc) n = atoi(argv[++i]);
        else if (!strcmp(argv[i], "-s") && i + 1 < argc) seed = atoi(argv[++i]);
        else if (!strcmp(argv[i], "-b") && i + 1 < argc) seconds = atof(argv[++i]);
        else if (!strcmp(argv[i], "-o") && i + 1 < argc) {
            first = atoi(argv[++i]);
            n = 1;
        }
        else {
            const int asked = !strcmp(argv[i], "-h") || !strcmp(argv[i], "--help");
            fprintf(asked ? stdout : stderr,
                   "usage: sweep [-n calls] [-s seed] [-o one call alone] [-b seconds at most] [-a: AVX2 alone]\n"
                   "      [-p: plain calls alone] [-m: allocate] [-f: what features cost]\n");
            return asked ? 0 : 2;
        }
    }
    bench_cpu_time = 1;
    if (with_features) {
        printf("What a feature costs, against the plain call (aim: 1.5 at most a visible score)\n");
        features(4, 1, 1024, 1024);
        features(4, 8, 1, 1024);
    } else bad = sweep(seed, first, n, seconds);
    return bad != 0;
}
