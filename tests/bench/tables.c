/* tables.c: the calls of a decoder between its matrices, a line per shape, as Markdown: one row over few and over many
 * keys with all caches cold, small calls, and 16-bit storage against float storage of attn.h.
 *
 *   build/bench/bench --cold [--walk 160]      reads this many MB before each call, like a model's weights
 *   build/bench/bench --small
 *   build/bench/bench --half
 *   build/bench/bench --ahead                  attn.h without prefetching (no_prefetch.c), and reading the same bytes once
 *
 * One thread, medians; the columns of a line are measured alternately. ONNX Runtime is left out: a call of a model has
 * an overhead of 4 microseconds, and it was the best of no line, hot or cold. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

static void must(attn_status s)
{
    if (s == ATTN_OK) return;
    fprintf(stderr, "bench: %s\n", attn_status_str(s));
    exit(1);
}

/* ---- cold caches ------------------------------------------------------------------------------------------------- */
static struct walked {
    float *x;
    size_t n;
    volatile float sink;
} walked;

static void walk(void) { walked.sink = yard_read(walked.x, walked.n, 1); }

/* bytes 0: a quarter more than the last-level cache if its size is known; 160 to 512 MB. */
static void walk_begin(size_t bytes)
{
    enum { MB = 1 << 20 };
    long last = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    last = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    if (!bytes) {
        const size_t more = last > 0 ? (size_t)last / 4 * 5 : 0;
        bytes = more < 160 * (size_t)MB ? 160 * (size_t)MB : more > 512 * (size_t)MB ? 512 * (size_t)MB : more;
    }
    walked.n = bytes / 256 * 64;
    walked.x = (float *)bench_alloc(walked.n * sizeof(float));
    memset(walked.x, 0, walked.n * sizeof(float));
    printf("\nBefore a cold call %lu MB are walked", (unsigned long)(bytes / MB));
    if (last > 0) printf("; the last cache has %ld MB", last / MB);
    printf(".\n");
}

/* Appends one row in the middle of a panel, or copies it to its place in a cache of plain rows. */
typedef struct append {
    attn_kv kv;
    const float *k, *v;
    float *rows, *k_to, *v_to;            /* plain rows; destination of the new row */
    int at, floats;                       /* existing keys; floats of a row */
} append;

static void append_begin(append *p, const bench_case *c)
{
    const int heads = c->a.kv_heads;
    attn_kv_args shape = { 0 };
    shape.batch = 1;
    shape.kv_heads = heads;
    shape.head_dim = c->a.head_dim;
    shape.capacity = c->a.n_k;
    p->k = c->a.k;
    p->v = c->a.v;
    p->at = c->a.n_k - 8;
    p->floats = heads * c->a.head_dim;
    p->rows = (float *)bench_alloc(2 * (size_t)c->a.n_k * (size_t)p->floats * sizeof(float));
    p->k_to = p->rows + (size_t)p->at * (size_t)p->floats;
    p->v_to = p->k_to + (size_t)c->a.n_k * (size_t)p->floats;
    must(attn_kv_init(&p->kv, &shape));
    must(attn_kv_append(&p->kv, -1, p->k, p->v, p->at, 0));
}

static void append_end(append *p)
{
    attn_kv_free(&p->kv);
    free(p->rows);
}

static void append_ready(void *job)
{
    append *p = (append *)job;
    must(attn_kv_truncate(&p->kv, 0, p->at));
}

static void append_run(void *job)
{
    append *p = (append *)job;
    must(attn_kv_append(&p->kv, -1, p->k, p->v, 1, 0));
}

static void copy_run(void *job)
{
    append *p = (append *)job;
    memcpy(p->k_to, p->k, (size_t)p->floats * sizeof(float));
    memcpy(p->v_to, p->v, (size_t)p->floats * sizeof(float));
}

/* ---- attn.h, a plain loop and the peers of this process -------------------------------------------------------- */
enum { LOOP, ROWS, CACHE, PEER, PEERS = 4, APPEND = PEER + PEERS, COPY, TURNS };

/* Returns the first of two columns that exists: on a machine with AVX-512, "AVX2 alone" is another column. */
static const bench_peer *either(const bench_peer *a, const bench_peer *b, const bench_setup *s)
{
    return a->open(a, s) ? b->open(b, s) ? NULL : b : a;
}

static void compare_case(int index, const bench_peer *const *peers, int rounds, int cold)
{
    static bench_turn turns[TURNS];
    bench_turn *all[TURNS] = { NULL };
    bench_case *c = bench_case_make(index, NULL);
    const double unit = cold ? 1e6 : 1e9;
    float *reference = (float *)bench_alloc(c->out_floats * sizeof(float));
    append row;
    int n = 0, best = 0;
    memset(turns, 0, sizeof turns);
    for (int i = 0; i < APPEND; i++) {
        void *job = peers[i] ? peers[i]->prepare(peers[i], c) : NULL;
        if (!job) continue;
        peers[i]->run(job);
        if (i == LOOP) memcpy(reference, c->a.out, c->out_floats * sizeof(float));
        if (bench_difference(reference, c->a.out, c->out_floats) > 1e-4) {
            printf("%s differs on %s: not timed\n", peers[i]->name, c->text);
            peers[i]->release(job);
            continue;
        }
        all[i] = &turns[n++];
        all[i]->run = peers[i]->run;
        all[i]->job = job;
    }
    if (cold) {
        append_begin(&row, c);
        for (int i = APPEND; i <= COPY; i++) {
            all[i] = &turns[n++];
            all[i]->run = i == APPEND ? append_run : copy_run;
            all[i]->ready = i == APPEND ? append_ready : NULL;
            all[i]->job = &row;
        }
    }
    bench_turns(turns, n, rounds, 0.5e-3, cold ? walk : NULL);
    printf("| %s |", c->text);
    for (int i = 0; i < PEER; i++) printf(all[i] ? cold ? " %.1f |" : " %.0f |" : " |", all[i] ? all[i]->median * unit : 0);
    for (int i = PEER; i < APPEND; i++) if (all[i] && (!best || all[i]->median < all[best]->median)) best = i;
    if (best) printf(" %.1f %s |", all[best]->median * unit, peers[best]->name);
    else printf(" |");
    if (cold) printf(" %.1f | %.1f |", all[APPEND]->median * unit, all[COPY]->median * unit);
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < APPEND; i++) if (all[i]) peers[i]->release(all[i]->job);
    if (cold) append_end(&row);
    free(reference);
    bench_case_free(c);
}

static void compare(bench_table table, const bench_setup *s, int rounds)
{
    static const bench_peer *const others[PEERS] = { &peer_openblas, &peer_blis, &peer_eigen, &peer_onednn };
    const int cold = table == BENCH_COLD;
    const bench_peer *peers[APPEND] = { NULL };
    peers[LOOP] = either(&peer_plain, &peer_plain, s);
    peers[ROWS] = either(&peer_attn, &peer_attn_avx2, s);
    peers[CACHE] = either(&peer_attn_kv, &peer_attn_kv_avx2, s);
    for (int i = 0; i < PEERS; i++) peers[PEER + i] = either(others[i], others[i], s);
    printf("\n%s, medians of %d, %s:\n\n", cold ? "Caches cold" : "Small calls", rounds,
           cold ? "microseconds" : "nanoseconds");
    printf("| rows x keys, heads x head_dim | plain loop | plain rows | `attn_kv` | best peer |%s\n|---|---|---|---|---|%s\n",
           cold ? " append of one row | copying it |" : "", cold ? "---|---|" : "");
    for (int i = 0; i < bench_case_count(); i++)
        if (bench_case_table(i) == table) compare_case(i, peers, rounds, cold);
    for (int i = 0; i < APPEND; i++) if (peers[i] && peers[i]->close) peers[i]->close(peers[i]);
}

/* ---- 16 bits ------------------------------------------------------------------------------------------------------ */
enum { STORAGES = 3, BACKENDS = 2 };      /* of a line; backend 1 is AVX2 where the machine has more */

/* Times with float storage, and how many times faster the other formats are. */
static void half_line(const char *text, bench_turn *t, int n, int rounds, int cold)
{
    bench_turns(t, n, rounds, 2e-3, cold ? walk : NULL);
    printf("| %s |", text);
    for (int i = 0; i < n; i++) {
        if (i % STORAGES == 0) printf(" %.1f us |", t[i].median * 1e6);
        else printf(" %.2f |", t[i / STORAGES * STORAGES].median / t[i].median);
    }
    for (int i = n; i < STORAGES * BACKENDS; i++) printf(" |");
    printf("\n");
    fflush(stdout);
}

static void half_case(int index, const bench_peer *const *rows, const bench_peer *const *caches, int rounds)
{
    static bench_turn t[STORAGES * BACKENDS];
    const bench_peer *of[STORAGES * BACKENDS];
    bench_case *c = bench_case_make(index, NULL), each[STORAGES];
    int n = 0;
    memset(t, 0, sizeof t);
    for (int b = 0; b < BACKENDS && rows[b]; b++)
        for (int i = 0; i < STORAGES; i++, n++) {
            each[i] = *c;
            each[i].storage = (attn_storage)i;
            of[n] = c->layer ? rows[b] : caches[b];
            t[n].run = of[n]->run;
            t[n].job = of[n]->prepare(of[n], &each[i]);
        }
    half_line(c->text, t, n, rounds, 0);
    if (!strcmp(c->name, "H1")) half_line("the same, caches cold", t, n, rounds, 1);
    for (int i = 0; i < n; i++) of[i]->release(t[i].job);
    bench_case_free(c);
}

typedef struct linear_job {
    attn_linear l;
    float *x, *y;
} linear_job;

static void linear_run(void *job)
{
    linear_job *j = (linear_job *)job;
    must(attn_linear_run(&j->l, j->y, j->x, 1, 0, NULL));
}

/* A linear cannot choose a backend, so it has one column. */
static void half_linear(const char *text, int n_in, int n_out, int rounds)
{
    static bench_turn t[STORAGES];
    const size_t weights = (size_t)n_in * (size_t)n_out, rest = (size_t)n_in + (size_t)n_out;
    float *x = (float *)bench_alloc((weights + rest) * sizeof(float));
    linear_job jobs[STORAGES];
    attn_linear_args f = { 0 };
    bench_fill(x, weights + rest, 1);
    memset(t, 0, sizeof t);
    f.n_in = n_in;
    f.n_out = n_out;
    f.w = x + rest;
    for (int i = 0; i < STORAGES; i++) {
        f.storage = (attn_storage)i;
        must(attn_linear_init(&jobs[i].l, &f));
        jobs[i].x = x;
        jobs[i].y = x + n_in;
        t[i].run = linear_run;
        t[i].job = &jobs[i];
    }
    half_line(text, t, STORAGES, rounds, 0);
    for (int i = 0; i < STORAGES; i++) attn_linear_free(&jobs[i].l);
    free(x);
}

/* ---- linears with one row, beside reading their weights alone ------------------------------------------------------ */
typedef struct read_job {
    const float *x;
    size_t n;
    volatile float sink;
} read_job;

static void read_run(void *job)
{
    read_job *j = (read_job *)job;
    j->sink = yard_read(j->x, j->n, 1);
}

/* Microseconds of reading the weights, and the time of linears as a multiple of it; for half, of reading half as
   much. */
static void row_linear_line(int n_in, int n_out, int rounds, int cold)
{
    enum { READ, PACKED, READ_HALF, HALF, BF16, LINEAR_TURNS };
    static bench_turn t[LINEAR_TURNS];
    const size_t weights = (size_t)n_in * (size_t)n_out;
    float *w = (float *)bench_alloc(weights * sizeof(float)), *x = (float *)bench_alloc((size_t)n_in * sizeof(float));
    float *y = (float *)bench_alloc((size_t)n_out * sizeof(float));
    read_job reads[2] = { { w, weights, 0 }, { NULL, weights / 2, 0 } };
    linear_job jobs[LINEAR_TURNS];
    bench_fill(w, weights, 1);
    bench_fill(x, (size_t)n_in, 2);
    reads[1].x = w;
    memset(t, 0, sizeof t);
    for (int i = 0; i < LINEAR_TURNS; i++) {
        attn_linear_args f = { 0 };
        const int half = i >= READ_HALF;
        t[i].run = i == READ || i == READ_HALF ? read_run : linear_run;
        t[i].job = &jobs[i];
        if (i == READ || i == READ_HALF) { t[i].job = &reads[half]; continue; }
        f.n_in = n_in;
        f.n_out = n_out;
        f.w = w;
        f.storage = i == BF16 ? ATTN_BF16 : half ? ATTN_F16 : ATTN_F32;
        must(attn_linear_init(&jobs[i].l, &f));
        jobs[i].x = x;
        jobs[i].y = y;
    }
    bench_turns(t, LINEAR_TURNS, rounds, 2e-3, cold ? walk : NULL);
    printf("| %d to %d%s | %.1f us | %.2f | %.1f us | %.2f | %.2f |\n", n_in, n_out, cold ? ", caches cold" : "",
           t[READ].median * 1e6, t[PACKED].median / t[READ].median, t[READ_HALF].median * 1e6,
           t[HALF].median / t[READ_HALF].median, t[BF16].median / t[READ_HALF].median);
    fflush(stdout);
    for (int i = 0; i < LINEAR_TURNS; i++) if (t[i].run == linear_run) attn_linear_free(&jobs[i].l);
    free(w); free(x); free(y);
}

static void row_linears(int rounds)
{
    static const int shapes[][2] = { { 64, 172 }, { 512, 512 }, { 768, 2048 }, { 2048, 512 }, { 4096, 4096 } };
    printf("\nLinears with one row: reading the weights alone, and the multiples of it that they take; medians of %d:\n\n"
           "| inputs to outputs | read floats | linear | read 16 bits | half | bfloat16 |\n"
           "|---|---|---|---|---|---|\n",
           rounds);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int cold = 0; cold < 2; cold++) row_linear_line(shapes[i][0], shapes[i][1], rounds, cold);
}

static void half(const bench_setup *s, int rounds)
{
    const bench_peer *rows[BACKENDS] = { &peer_attn, &peer_attn_avx2 };
    const bench_peer *caches[BACKENDS] = { &peer_attn_kv, &peer_attn_kv_avx2 };
    for (int b = BACKENDS; b-- > 0;)                        /* a single backend becomes the first */
        if (rows[b]->open(rows[b], s)) {
            if (b == 0) rows[0] = rows[1], caches[0] = caches[1];
            rows[1] = NULL;
        }
    printf("\nStorage in 16 bits: time of floats, and how many times faster the others are; medians of %d:\n\n", rounds);
    printf("| rows x keys, heads x head_dim | floats | half | bfloat16 "
           "| AVX2: floats | half | bfloat16 |\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < bench_case_count(); i++)
        if (bench_case_table(i) == BENCH_HALF) half_case(i, rows, caches, rounds);
    half_linear("linear 512 to 2048, one row", 512, 2048, rounds);
    half_linear("linear 4096 to 4096, one row", 4096, 4096, rounds);
    row_linears(rounds);
}

/* ---- reading ahead ------------------------------------------------------------------------------------------------ */
enum { ROWS_BSHD, ROWS_BHSD, IN_CACHE, IN_HALF, PLACES };
enum { AS_IT_IS, ALONE, READING, AHEAD_TURNS };
static const char *const places[PLACES] = { "[row][head]", "[head][row]", "`attn_kv`", "half" };
static const struct step { int rows, keys, heads, kv_heads, head_dim; } steps[] = {
    { 1, 128, 8, 8, 64 }, { 1, 256, 8, 8, 64 }, { 1, 512, 12, 12, 64 }, { 1, 1500, 8, 8, 64 }, { 1, 1500, 1, 1, 160 },
    { 1, 1024, 32, 8, 128 }, { 1, 4096, 32, 8, 128 }, { 1, 65536, 8, 8, 64 }, { 4, 1500, 8, 8, 64 }, { 8, 1500, 8, 8, 64 }
};

typedef struct step_job {
    attn_args a;
    attn_kv kv;
    const float *at[2];                   /* the operands: K and V, or the pages of the cache */
    size_t floats[2];
    volatile float sink;
} step_job;

static void as_it_is_run(void *job) { must(attn_sdpa(&((step_job *)job)->a)); }
static void alone_run(void *job) { must(bench_sdpa_alone(&((step_job *)job)->a)); }
static void reading_run(void *job)
{
    step_job *j = (step_job *)job;
    for (int i = 0; i < 2; i++) j->sink = yard_read(j->at[i], j->floats[i], 1);
}

/* The call over k and v, laid out by `place` or copied to a cache. */
static void step_make(step_job *j, const struct step *s, int place, const float *k, const float *v)
{
    const size_t floats = (size_t)s->keys * (size_t)(s->kv_heads * s->head_dim);
    attn_kv_args shape = { 0 };
    for (int i = 0; i < 2; i++) {
        j->at[i] = i ? v : k;
        j->floats[i] = floats;
    }
    j->a.batch = 1;
    j->a.n_q = s->rows;
    j->a.heads = s->heads;
    j->a.kv_heads = s->kv_heads;
    j->a.head_dim = s->head_dim;
    j->a.layout = place == ROWS_BHSD ? ATTN_BHSD : ATTN_BSHD;
    if (place < IN_CACHE) {
        j->a.n_k = s->keys;
        j->a.k = k;
        j->a.v = v;
        return;
    }
    shape.batch = 1;
    shape.kv_heads = s->kv_heads;
    shape.head_dim = s->head_dim;
    shape.capacity = s->keys;
    shape.k_storage = shape.v_storage = place == IN_HALF ? ATTN_F16 : ATTN_F32;
    must(attn_kv_init(&j->kv, &shape));
    must(attn_kv_append(&j->kv, -1, k, v, s->keys, 0));
    j->a.kv = &j->kv;
    j->at[0] = j->kv.memory;
    j->floats[0] = place == IN_HALF ? floats : 2 * floats;
    j->floats[1] = 0;
}

static void ahead_line(const struct step *s, int place, attn_backend backend, int rounds, int cold)
{
    static bench_turn t[AHEAD_TURNS];
    static void (*const runs[AHEAD_TURNS])(void *) = { as_it_is_run, alone_run, reading_run };
    const size_t floats = (size_t)s->keys * (size_t)(s->kv_heads * s->head_dim);
    const size_t q_floats = (size_t)(s->rows * s->heads * s->head_dim);
    float *x = (float *)bench_alloc((2 * floats + 2 * q_floats) * sizeof(float));
    step_job j;
    memset(&j, 0, sizeof j);
    memset(t, 0, sizeof t);
    bench_fill(x, 2 * floats + 2 * q_floats, 1);
    step_make(&j, s, place, x, x + floats);
    j.a.q = x + 2 * floats;
    j.a.out = x + 2 * floats + q_floats;
    j.a.backend = backend;
    j.a.work_size = attn_sdpa_workspace(&j.a);
    j.a.work = bench_alloc(j.a.work_size);
    for (int i = 0; i < AHEAD_TURNS; i++) {
        t[i].run = runs[i];
        t[i].job = &j;
    }
    bench_turns(t, AHEAD_TURNS, rounds, 0.5e-3, cold ? walk : NULL);
    printf("| %d x %d, %d%s%.0d x %d, %s%s | %.1f | %.1f | %.2f | %.1f | %.2f |\n", s->rows, s->keys, s->heads,
           s->heads > s->kv_heads ? " on " : "", s->heads > s->kv_heads ? s->kv_heads : 0, s->head_dim, places[place],
           cold ? ", cold" : "", t[AS_IT_IS].median * 1e6, t[ALONE].median * 1e6, t[AS_IT_IS].median / t[ALONE].median,
           t[READING].median * 1e6, t[AS_IT_IS].median / t[READING].median);
    fflush(stdout);
    free(j.a.work);
    attn_kv_free(&j.kv);
    free(x);
}

static void ahead(const bench_setup *s, int rounds)
{
    attn_backend list[8];
    const int n = attn_backends(list, 8);
    for (int b = 0; b < n && b < 8 && (b == 0 || list[b] == ATTN_AVX2); b++) {
        if (s->avx2 && list[b] == ATTN_AVX512) continue;
        printf("\nReading ahead, %s, medians of %d, microseconds; reading: all of K and V once, in order:\n\n"
               "| rows x keys, heads x head_dim | as it is | nothing ahead | of it | reading | times reading |\n"
               "|---|---|---|---|---|---|\n", attn_backend_name(list[b]), rounds);
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
            for (int place = 0; place < PLACES; place++)
                for (int cold = 0; cold < 2; cold++)
                    if (!cold || steps[i].keys <= 1500) ahead_line(&steps[i], place, list[b], rounds, cold);
    }
}

void bench_table_print(bench_table table, const bench_setup *s, int rounds, size_t walk_bytes)
{
    if (table != BENCH_SMALL && !walked.x) walk_begin(walk_bytes);
    if (table == BENCH_AHEAD) ahead(s, rounds ? rounds : 25);
    else if (table == BENCH_HALF) half(s, rounds ? rounds : 15);
    else compare(table, s, rounds ? rounds : table == BENCH_COLD ? 41 : 25);
}
