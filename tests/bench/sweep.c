/* sweep.c: is there any call where the plain loop would have been faster? And what does each feature cost?
 *
 *   build/bench/sweep                  300 random calls, then the features; about a minute
 *   build/bench/sweep -n 5000 -s 7     more of them, another seed
 *   build/bench/sweep -a               AVX2 alone against a loop compiled for AVX2 alone
 *   build/bench/sweep -f               the features alone
 *   build/bench/sweep -m               no workspace given: attn.h allocates
 *
 * One thread, CPU time (others may use the machine), medians of calls that take turns. A ratio below 1 is measured
 * again, longer, before it is reported. Results must agree within 1e-4. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

const bench_loops *bench_loops_now = &bench_loops_native;

static uint64_t state;
static attn_backend backend, allocate;

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
    float *reference;                     /* what the plain loop writes */
    size_t out_floats;
    int q_lengths[MOST_BATCH], k_lengths[MOST_BATCH], k_starts[MOST_BATCH];
    int q_cum[MOST_BATCH + 1], k_cum[MOST_BATCH + 1];
    unsigned char *keep;
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
    memset(c->a.weights, 0, cells * sizeof(float));         /* no first touch inside a call */
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

static void call_ready(call *c)
{
    const size_t need = attn_sdpa_workspace(&c->a);
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
    free((void *)(size_t)c->a.q);
    free((void *)(size_t)c->a.k);
    free((void *)(size_t)c->a.v);
    free((void *)(size_t)c->a.mask);
    free((void *)(size_t)c->a.bias);
    free((void *)(size_t)c->a.alibi_slopes);
    free((void *)(size_t)c->a.sinks);
}

static void ours(void *job)
{
    const call *c = (const call *)job;
    char why[200];
    if (attn_sdpa(&c->a) == ATTN_OK) return;
    attn_check(&c->a, why, sizeof why);
    fprintf(stderr, "sweep: %s: %s\n", c->text, why);
    exit(1);
}

static void theirs(void *job)
{
    const call *c = (const call *)job;
    attn_args a = c->a;
    a.out = c->reference;
    bench_loops_now->attend(&a);
}

/* Median seconds of a call of each, taking turns. */
static void measure(call *c, int rounds, double least, double *us, double *them)
{
    static bench_turn t[2];
    t[0].run = ours;
    t[1].run = theirs;
    t[0].job = t[1].job = c;
    bench_turns(t, 2, rounds, least, NULL);
    *us = t[0].median;
    *them = t[1].median;
}

static void call_random(call *c)
{
    static const int dims[] = { 8, 16, 24, 32, 40, 48, 64, 64, 64, 80, 96, 128, 128, 160, 256 };
    int kind, batch, kv_heads, group, n_q, n_k, head_dim, ragged;
    do {
        kind = pick(0, 9);
        batch = chance(50) ? 1 : pick(2, 4);
        kv_heads = chance(40) ? 1 : pick(2, 8);
        group = chance(75) ? 1 : pick(2, 5);
        n_q = kind < 3 ? 1 : kind < 5 ? pick(2, 12) : spread(13, 600);
        n_k = kind == 9 ? n_q : spread(1, 3000);
        head_dim = chance(70) ? dims[pick(0, 14)] : pick(1, 200);
    } while ((double)batch * kv_heads * group * n_q * n_k * head_dim > 5e7);     /* a loop takes 30 ms at most */
    call_begin(c, batch, kv_heads * group, kv_heads, n_q, n_k, head_dim);
    ragged = batch > 1 && chance(15);
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
            c->k_lengths[b] -= c->k_starts[b];              /* the end stays where it was */
        }
        c->a.k_starts = c->k_starts;
        say(c, " k_starts");
    }
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
    call_ready(c);
}

static double difference(const call *c)
{
    const size_t rows = c->a.q_cum ? (size_t)c->q_cum[c->a.batch] : 0;
    const size_t n = c->a.q_cum ? rows * (size_t)(c->a.heads * c->a.head_dim) : c->out_floats;
    return bench_difference(c->a.out, c->reference, n);
}

/* Where the losses are: rows, by the keys that a row sees. */
enum { FEW_ROWS = 3, FEW_KEYS = 3 };
static const char *const row_names[FEW_ROWS] = { "1 row", "2-12 rows", "13 rows and more" };
static const char *const key_names[FEW_KEYS] = { "1-15 keys", "16-127 keys", "128 keys and more" };
static struct bin {
    int n, slower;
    double logs, worst;
} bins[FEW_ROWS][FEW_KEYS];

static struct bin *bin_of(const attn_args *a)
{
    const double keys = bench_pairs(a) / ((double)a->batch * a->heads * a->n_q);      /* on the average */
    return &bins[a->n_q == 1 ? 0 : a->n_q < 13 ? 1 : 2][keys < 16 ? 0 : keys < 128 ? 1 : 2];
}

static int sweep(int n, double seconds)
{
    const double begin = bench_now();
    double logs = 0, worst = HUGE_VAL;
    int done = 0, slower = 0, wrong = 0;
    char worst_text[256] = "";
    printf("Random calls, attn.h (%s) against the plain loop; named when slower or different.\n",
           attn_backend_name(backend == ATTN_AUTO ? (attn_backends(&backend, 1), backend) : backend));
    printf("Sizes: batch, heads, kv heads, n_q, n_k, head_dim.\n");
    for (; done < n && bench_now() - begin < seconds; done++) {
        static call c;
        struct bin *in;
        double us, them, d;
        call_random(&c);
        ours(&c);
        theirs(&c);
        d = difference(&c);
        if (d > 1e-4) {
            printf("  DIFFERENT by %.2g: %s\n", d, c.text);
            wrong++;
        }
        measure(&c, 3, 20e-6, &us, &them);
        if (them < us * 1.05) measure(&c, 15, 200e-6, &us, &them);
        if (them < us) {
            printf("  %.2f: %.2f us, the loop %.2f us: %s\n", them / us, us * 1e6, them * 1e6, c.text);
            fflush(stdout);
            slower++;
        }
        if (them / us < worst) {
            worst = them / us;
            memcpy(worst_text, c.text, sizeof worst_text);
        }
        logs += log(them / us);
        in = bin_of(&c.a);
        if (!in->n++ || them / us < in->worst) in->worst = them / us;
        in->slower += them < us;
        in->logs += log(them / us);
        call_end(&c);
    }
    printf("%d calls: %d slower than the loop, %d different; %.1f times as fast (geometric mean), worst %.2f: %s\n",
           done, slower, wrong, done ? exp(logs / done) : 0, worst, worst_text);
    for (int i = 0; i < FEW_ROWS; i++)
        for (int k = 0; k < FEW_KEYS; k++)
            if (bins[i][k].n)
                printf("  %-17s x %-18s %4d calls, %3d slower, %5.2f times as fast, worst %.2f\n", row_names[i],
                       key_names[k], bins[i][k].n, bins[i][k].slower, exp(bins[i][k].logs / bins[i][k].n),
                       bins[i][k].worst);
    printf("\n");
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
    int n = 300, seed = 1, only_features = 0, bad = 0;
    double seconds = 60;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-f")) only_features = 1;
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
        else {
            printf("sweep [-n calls] [-s seed] [-b seconds at most] [-a: AVX2 alone] [-f: features alone] [-m: "
                   "allocate]\n");
            return 2;
        }
    }
    bench_cpu_time = 1;
    state = (uint64_t)seed;
    if (!only_features) bad = sweep(n, seconds);
    printf("What a feature costs, against the plain call (aim: 1.5 at most a visible score)\n");
    features(4, 1, 1024, 1024);
    features(4, 8, 1, 1024);
    return bad != 0;
}
