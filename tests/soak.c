/* soak.c: a long life. A program of its own (`make soak TIME=600`); without SOAK_MAIN this file is empty.
 *
 *   build/soak 600            seconds of random shapes and features in one process: every answer the same bits on two
 *                             backends or the oracle's within its bound, caches and layers made, used and dropped, refused
 *                             calls in between; resident memory must be flat
 *   build/soak -c 100000      that many concurrent calls on shared caches and layers, bits equal to the serial run; the
 *                             threads come first, so that even the question for the CPU is asked by many at once
 *   build/soak -s 7 600       another seed
 *
 * Both when nothing is said (60 seconds, 100000 calls). Last line: "soak: N passed, M failed". */
#ifndef SOAK_MAIN
typedef int soak_is_a_program_of_its_own;
#else
#if !defined(_WIN32) && !defined(__wasm__)
#define _DEFAULT_SOURCE
#define SOAK_THREADS
#include <pthread.h>
#include <unistd.h>
#endif
#include "cases.h"

#include <time.h>

static int parts[2];                              /* passed, failed */

static void part(int ok, const char *what)
{
    printf("%s %s\n", ok ? "ok  " : "FAIL", what);
    fflush(stdout);
    parts[!ok]++;
}

static double now(void)
{
#ifdef SOAK_THREADS
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#else
    return (double)time(NULL);
#endif
}

/* kilobytes of this process in memory; 0 where nobody says */
static long resident(void)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1) break;
    if (f) fclose(f);
    return kb;
}

static float *room(size_t n)
{
    float *x = (float *)malloc(n * sizeof *x + 4);
    if (!x) exit(3);
    return x;
}

static float *filled(rng *r, size_t n)
{
    float *x = room(n);
    rng_fill(r, x, n);
    return x;
}

/* ---- caches and layers that come and go --------------------------------------------------------------------- */

typedef struct layer {
    attn_mha m;
    attn_kv kv;
    int batch, capacity;
} layer;

static int layer_make(rng *r, layer *l, int batch, int capacity)
{
    attn_mha_args a = {0};
    attn_kv_args s = {0};
    const int dims[] = {2, 8, 16, 40, 64};
    float *w[4];
    int i, ok;
    memset(l, 0, sizeof *l);
    l->batch = batch, l->capacity = capacity;
    a.kv_heads = rng_int(r, 1, 2), a.heads = a.kv_heads * rng_int(r, 1, 3), a.head_dim = dims[rng_int(r, 0, 4)];
    a.d_model = rng_int(r, 1, 90);
    for (i = 0; i < 4; i++) w[i] = filled(r, (size_t)(a.heads * a.head_dim * a.d_model));
    a.w_q = w[0], a.w_k = w[1], a.w_v = w[2], a.w_o = w[3];
    ok = attn_mha_init(&l->m, &a, NULL, 0) == ATTN_OK;
    for (i = 0; i < 4; i++) free(w[i]);
    s.batch = batch, s.kv_heads = a.kv_heads, s.dim = a.head_dim, s.capacity = capacity;
    return ok && attn_kv_init(&l->kv, &s) == ATTN_OK;
}

static void layer_free(layer *l)
{
    attn_mha_free(&l->m);
    attn_kv_free(&l->kv);
}

/* a prompt, tokens, beams that change places; at the end the last token must be what the whole sequence gives */
static void decode(rng *r, int one_answer, const int *backends)
{
    layer l;
    const int batch = rng_int(r, 1, 3), n = rng_int(r, 2, 180), prompt = rng_int(r, 1, n - 1);
    attn_mha_opts o = {0};
    float *x, *part_x, *whole, *out;
    size_t d, row;
    int t, b;
    if (!layer_make(r, &l, batch, n)) {
        CHECKF(0, "a layer or cache was refused");
        return;
    }
    d = (size_t)l.m.shape.d_model, row = (size_t)n * d;
    x = filled(r, (size_t)batch * row), part_x = room((size_t)batch * row);
    whole = room((size_t)batch * row), out = room((size_t)batch * row);
    o.attn.backend = backends[rng_int(r, 0, one_answer - 1)];
    o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
    CHECK(attn_mha_self(&l.m, whole, x, batch, n, &o) == ATTN_OK);
    o.attn.causal = 0;
    for (t = 0; t < n;) {
        const int step = t == 0 ? prompt : 1;
        for (b = 0; b < batch; b++) memcpy(part_x + (size_t)(b * step) * d, x + (size_t)b * row + (size_t)t * d, (size_t)step * d * sizeof *x);
        CHECK(attn_mha_self_step(&l.m, out, part_x, batch, step, &l.kv, &o) == ATTN_OK);
        for (b = 0; b < batch; b++)
            CHECKF(same_bits(out + (size_t)(b * step) * d, whole + (size_t)b * row + (size_t)t * d, (size_t)step * d),
                   "token %d of %d differs from the whole sequence (batch %d, d_model %d)", t, n, batch, (int)d);
        t += step;
        if (test_failed()) break;
    }
    CHECK(attn_mha_self_step(&l.m, out, part_x, batch, 1, &l.kv, &o) == ATTN_E_FULL);
    {
        int map[3];
        for (b = 0; b < batch; b++) map[b] = rng_int(r, 0, batch - 1);
        CHECK(attn_kv_reorder(&l.kv, map) == ATTN_OK && attn_kv_truncate(&l.kv, -1, prompt) == ATTN_OK);
    }
    free(x), free(part_x), free(whole), free(out);
    layer_free(&l);
}

/* ---- random cases ------------------------------------------------------------------------------------------ */

static void same_twice(sdpa_case *c, const int *backends, int n)
{
    float *first = room(c->out_size);
    const attn_exec *exec = c->a.exec;
    CHECKF(case_run(c, backends[0]) == ATTN_OK, "%s", case_text(c));
    memcpy(first, c->out, c->out_size * sizeof *first);
    c->a.exec = NULL;
    CHECKF(case_run(c, backends[n - 1]) == ATTN_OK, "%s", case_text(c));
    CHECKF(same_bits(first, c->out, c->out_size), "%s and %s differ: %s", attn_backend_name(backends[0]),
           attn_backend_name(backends[n - 1]), case_text(c));
    c->a.exec = exec;
    free(first);
}

static void soak(double seconds)
{
    enum { SAMPLES = 20 };
    long rss[SAMPLES + 1], cases = 0, checked = 0, decodes = 0, early = 0, late = 0;
    int all[16], one[16], n_all = test_all_backends(all, 16), n_one = test_one_answer_backends(one, 16), sample = 0, i;
    rng r = rng_make(test_seed);
    const double start = now();
    char text[160];
    while (sample <= SAMPLES && !test_failed()) {
        sdpa_case c;
        const int pick = rng_int(&r, 0, n_one - 1), swap = one[0];
        case_random_upto(&r, &c, 100000.0);
        one[0] = one[pick], one[pick] = swap;               /* which two are compared changes */
        if (cases % 16 == 0) {
            oracle o;
            CHECKF(case_run(&c, all[rng_int(&r, 0, n_all - 1)]) == ATTN_OK, "%s", case_text(&c));
            oracle_run(&o, &c.a);
            (void)oracle_check(&o, &c.a, case_text(&c));
            oracle_free(&o);
            checked++;
        } else {
            same_twice(&c, one, n_one);
        }
        if (cases % 7 == 0) {                               /* something wrong in between */
            c.a.n_q = -1;
            CHECK(attn_sdpa(&c.a) == ATTN_E_SIZE);
        }
        case_free(&c);
        if (cases % 64 == 0) decode(&r, n_one, one), decodes++;
        cases++;
        while (sample <= SAMPLES && now() - start >= seconds * sample / SAMPLES) rss[sample++] = resident();
    }
    snprintf(text, sizeof text, "%ld random cases, %ld of them against the oracle, %ld sequences decoded, %.0f s", cases, checked,
             decodes, now() - start);
    part(!test_failed(), text);
    if (test_failed()) return;
    for (i = 1; i <= SAMPLES; i++) {                        /* the first twentieth warms up */
        if (i <= SAMPLES / 2 && rss[i] > early) early = rss[i];
        if (i > SAMPLES / 2 && rss[i] > late) late = rss[i];
    }
    snprintf(text, sizeof text, "memory: %ld kB at most in the first half, %ld kB in the second, %ld kB at the end", early, late,
             rss[SAMPLES]);
    part(rss[SAMPLES] <= early + 1024 && late <= early + 4096, text);
}

/* ---- many at once -------------------------------------------------------------------------------------------- */
#ifdef SOAK_THREADS
enum { JOBS = 96, THREADS = 8, MOST_OUT = 4096 };

static struct { layer self, cross; attn_linear linear; float *x; } shared;
static long next_call, calls;
static uint64_t *answers;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

/* job j, whoever does it: the same inputs, and only outputs of its own */
static uint64_t job(int j)
{
    static const int steps[] = {1, 1, 2, 5};
    float out[MOST_OUT];
    attn_args a = {0};
    attn_mha_opts o = {0};
    const layer *l = j & 1 ? &shared.cross : &shared.self;
    const attn_mha_args *s = &l->m.shape;
    const int rows = steps[j / 6 % 4], batch = l->batch;
    const float *x = shared.x + 8 * (j / 24);
    int map[3] = {0, 1, 0};
    size_t n = 0;
    attn_status status = ATTN_OK;
    a.batch = batch, a.n_q = rows;
    switch (j % 6) {
    case 0: case 1:                                          /* a cache, read at once by all */
        a.kv = &l->kv, a.heads = s->heads, a.kv_heads = s->kv_heads, a.dim = s->head_dim, a.q = x, a.out = out;
        a.causal = j & 1 ? ATTN_CAUSAL_NONE : ATTN_CAUSAL_BOTTOM_RIGHT;
        if (j % 12 < 6) a.k_map = map;
        n = (size_t)(batch * rows * s->heads * s->head_dim);
        status = attn_sdpa(&a);
        break;
    case 2: case 3:                                          /* a layer and its cache */
        if (j % 12 < 6) o.attn.k_map = map;
        n = (size_t)(batch * rows * s->d_model);
        status = attn_mha_cross_step(&l->m, out, x, batch, rows, &l->kv, &o);
        break;
    case 4:                                                  /* a layer alone */
        o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
        n = (size_t)(batch * rows * 3 * s->d_model);
        status = attn_mha_self(&l->m, out, x, batch, rows * 3, &o);
        break;
    default:
        n = (size_t)(rows * shared.linear.n_out);
        status = attn_linear_run(&shared.linear, out, x, rows, NULL);
    }
    if (n > MOST_OUT) abort();
    return status == ATTN_OK ? hash_bits(0, out, n) : 1;
}

static void *worker(void *arg)
{
    (void)arg;
    for (;;) {
        long at, i;
        pthread_mutex_lock(&turn);
        at = next_call;
        next_call += 16;
        pthread_mutex_unlock(&turn);
        for (i = at; i < at + 16 && i < calls; i++) answers[i] = job((int)(i * 7 % JOBS));
        if (at + 16 >= calls) return NULL;
    }
}

static layer fixed_layer(uint64_t seed, int n_k, const float *memory)
{
    layer l;
    rng r = rng_make(seed);
    int counts[3];
    do {                                                     /* of a size that fits job()'s room */
        if (!layer_make(&r, &l, 3, n_k)) exit(3);
        if (l.m.shape.d_model <= 60 && l.m.shape.d_model >= 20 && l.m.shape.heads * l.m.shape.head_dim <= 200) break;
        layer_free(&l);
    } while (1);
    counts[0] = n_k, counts[1] = n_k / 2, counts[2] = n_k - 1;
    if (attn_kv_append(&l.kv, memory, memory + 100, n_k, counts) != ATTN_OK) exit(3);
    return l;
}

static void at_once(long n)
{
    rng r = rng_make(test_seed);
    pthread_t threads[THREADS];
    uint64_t serial[JOBS];
    float *w = filled(&r, 61 * 33);
    int i, started = 0;
    long wrong = 0, failed = 0, c;
    char text[200];
    shared.x = filled(&r, 400000);
    shared.self = fixed_layer(test_seed, 40, shared.x);
    shared.cross = fixed_layer(test_seed + 1, 300, shared.x);
    if (attn_linear_init(&shared.linear, w, NULL, 33, 61, NULL, 0, NULL) != ATTN_OK) exit(3);
    calls = n, next_call = 0;
    answers = (uint64_t *)calloc((size_t)n, sizeof *answers);
    if (!answers) exit(3);
    while (started < THREADS && pthread_create(&threads[started], NULL, worker, NULL) == 0) started++;
    worker(NULL);
    for (i = 0; i < started; i++) pthread_join(threads[i], NULL);
    for (i = 0; i < JOBS; i++) serial[i] = job(i), failed += serial[i] == 1;
    for (c = 0; c < n; c++) wrong += answers[c] != serial[c * 7 % JOBS];
    snprintf(text, sizeof text, "%ld calls by %d threads on shared caches and layers: %ld with other bits, %ld jobs refused", n,
             started + 1, wrong, failed);
    part(wrong == 0 && failed == 0 && started > 0, text);
    free(answers), free(w), free(shared.x);
    layer_free(&shared.self), layer_free(&shared.cross);
    attn_linear_free(&shared.linear);
}
#endif

int main(int argc, char **argv)
{
    double seconds = -1;
    long n = -1;
    int i;
    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-s") && i + 1 < argc) test_seed = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "-c") && i + 1 < argc) n = strtol(argv[++i], NULL, 10);
        else seconds = atof(argv[i]);
    }
    if (seconds < 0 && n < 0) seconds = 60, n = 100000;
    else if (n < 0) n = 100000;
#ifdef SOAK_THREADS
    if (n > 0) at_once(n);
#else
    printf("SKIPPED: no threads here\n");
#endif
    if (seconds > 0) soak(seconds);
    printf("soak: %d passed, %d failed\n", parts[0], parts[1]);
    return parts[1] != 0;
}
#endif
