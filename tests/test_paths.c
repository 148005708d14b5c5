/* test_paths.c: what the driver does, not what comes out: which way a call takes, how many items it
 * has, how much memory it asks for. This file holds an implementation of its own, the only one with
 * ATTN_COUNTERS: every other test runs what ships. */
#define ATTN_COUNTERS
#define ATTN_STATIC
#define ATTN_IMPLEMENTATION
#undef ATTN_SERIAL_FLOPS
static double serial_flops;               /* calls of less work stay on their thread */
#define ATTN_SERIAL_FLOPS serial_flops
#include "hide.h"
#include "answer.h"

static int counter(const char *name)
{
    for (int i = 0; i < ATTN__C_COUNT; i++)
        if (strcmp(attn_counter_names[i], name) == 0) return i;
    return -1;
}

static void counters_clear(void) { memset(attn_counters, 0, sizeof attn_counters); }

/* ---- 1  paths ---------------------------------------------------------------------------------------------- */

/* A small call for each path through the driver: what it must take and what it must not. */
enum { HOLES = 1, DIRTY = 2, WIDE = 4, CACHED = 8, FAR = 16, PLAIN_C = 32, BIASED = 64,
       ALIKE = 128 };                     /* a keep mask that hides the same keys from every row, the dirty one too */
static const struct {
    const char *must, *must_not;
    int heads, kv_heads, n_q, n_k, how;
} paths[] = {
    {"scalar", "packed rows cache split select", 2, 2, 5, 6, PLAIN_C},
    {"packed", "rows masked select split scalar cache one_row", 2, 2, 60, 70, 0},
    {"rows", "packed masked select split scalar cache one_row", 2, 2, 5, 6, 0},
    {"one_row", "packed masked select split group", 2, 2, 1, 40, 0},
    {"group", "packed split one_row", 4, 2, 2, 40, 0},
    {"cache", "packed rows split", 4, 2, 30, 200, CACHED},
    {"cache", "packed rows split group", 2, 2, 1, 200, CACHED},
    {"split", "scalar packed", 2, 1, 1, 700, WIDE},
    {"split", "scalar packed rows", 2, 1, 1, 700, WIDE | CACHED},
    {"masked", "scalar split select", 2, 2, 48, 140, HOLES},
    {"masked", "scalar split select", 2, 2, 48, 140, BIASED},
    {"masked", "scalar split select rows", 2, 2, 48, 140, ALIKE | DIRTY},
    {"select", "scalar split rows", 2, 2, 48, 140, HOLES | DIRTY},
    {"select", "scalar split packed", 2, 2, 5, 140, HOLES | DIRTY},
    {"select", "scalar rows packed", 2, 2, 5, 140, HOLES | DIRTY | CACHED},
    {"skip", "scalar split", 1, 1, 300, 300, FAR},
};

static void test_paths(void)
{
    enum { N = 700, H = 4, D = 20 };
    static float q[300 * H * D], k[N * H * D], v[N * H * D], bias[300 * N];
    static unsigned char keep[300 * N];
    attn_backend list[16];
    int n_list = test_one_answer_backends(list, 16), seen[64] = {0};
    if (n_list < 2) {
        test_skip("only the scalar backend runs here; the paths of the driver need another");
        return;
    }
    rng r = rng_make(test_seed + 9);
    rng_fill(&r, q, 300 * H * D);
    rng_fill(&r, k, N * H * D);
    rng_fill(&r, bias, 300 * N);
    for (size_t x = 0; x < sizeof paths / sizeof paths[0]; x++) {
        rng_fill(&r, v, N * H * D);
        int how = paths[x].how;
        attn_args a;
        memset(&a, 0, sizeof a);
        attn_kv kv;
        attn_exec exec = test_exec(4);
        a.q = q, a.k = k, a.v = v, a.batch = 1, a.heads = paths[x].heads, a.kv_heads = paths[x].kv_heads;
        a.n_q = paths[x].n_q, a.n_k = paths[x].n_k, a.head_dim = D;
        for (int i = 0; i < a.n_q * a.n_k; i++) keep[i] = (unsigned char)(i % (how & ALIKE ? 7 : 9) != 3);
        if (how & (HOLES | ALIKE)) a.keep = keep;
        if (how & BIASED) a.bias = bias, a.bias_shape[0] = a.bias_shape[1] = 1, a.bias_shape[2] = a.n_q;
        if (how & DIRTY) v[3 * D * a.kv_heads] = INFINITY;
        if (how & WIDE) a.exec = &exec;
        if (how & FAR) a.causal = ATTN_CAUSAL_TOP_LEFT, a.window_left = 30;
        a.backend = ATTN_SCALAR;
        answer plain = answer_of(&a);
        if (how & CACHED) {
            attn_kv_args make;
            memset(&make, 0, sizeof make);
            make.batch = 1, make.kv_heads = a.kv_heads, make.head_dim = D, make.capacity = a.n_k;
            if (attn_kv_init(&kv, &make) != ATTN_OK || attn_kv_append(&kv, k, v, a.n_k, NULL, 0) != ATTN_OK) {
                test_fail(__FILE__, __LINE__, "line %d: no cache", (int)x);
                exit(3);                                    /* instead of a crash in what follows */
            }
            a.k = a.v = NULL, a.kv = &kv;
        }
        for (int y = 0; y < n_list; y++) {
            if ((list[y] == ATTN_SCALAR) != ((how & PLAIN_C) != 0)) continue;
            a.backend = list[y];
            counters_clear();
            answer p = answer_of(&a);
            CHECKF(answer_same(&plain, &p), "line %d on %s: not the bits of the specification",
                   (int)x, attn_backend_name(list[y]));
            answer_free(&p);
            int must = counter(paths[x].must);
            CHECKF(must >= 0 && attn_counters[must] > 0, "line %d on %s: the path \"%s\" was not taken", (int)x,
                   attn_backend_name(list[y]), paths[x].must);
            if (must >= 0) seen[must] = 1;
            for (int c = 0; c < ATTN__C_COUNT; c++)
                CHECKF(!attn_counters[c] || !strstr(paths[x].must_not, attn_counter_names[c]),
                       "line %d on %s: the path \"%s\" was taken, meant was \"%s\"", (int)x, attn_backend_name(list[y]),
                       attn_counter_names[c], paths[x].must);
        }
        answer_free(&plain);
        if (how & CACHED) attn_kv_free(&kv);
    }
    for (int c = 0; c < ATTN__C_ITEM; c++)
        CHECKF(seen[c], "no call here takes the path \"%s\"", attn_counter_names[c]);
}

/* ---- 2  items: work is done for the rows that exist -------------------------------------------------------- */

enum { RAGGED = 1000, RAGGED_HEADS = 4, RAGGED_DIM = 8, RAGGED_ROWS = 4096 };

/* Items of a call over entries of these rows, 16 keys each. n_q: how wide it is said to be, 0: the longest. */
static long items_of(attn_backend backend, const int *rows, int batch, int n_q, int padded, long *packed)
{
    static float q[RAGGED_ROWS * RAGGED_HEADS * RAGGED_DIM], out[RAGGED_ROWS * RAGGED_HEADS * RAGGED_DIM];
    static float k[16 * RAGGED * RAGGED_HEADS * RAGGED_DIM];
    static int q_cum[RAGGED + 1], k_cum[RAGGED + 1];
    attn_args a;
    memset(&a, 0, sizeof a);
    for (int b = 0; b < batch; b++) q_cum[b + 1] = q_cum[b] + rows[b], k_cum[b + 1] = k_cum[b] + 16;
    a.q = q, a.k = a.v = k, a.out = out, a.batch = batch, a.n_q = n_q, a.heads = RAGGED_HEADS, a.head_dim = RAGGED_DIM;
    a.backend = backend;
    if (padded) a.q_lengths = rows, a.n_k = 16;
    else a.q_cum = q_cum, a.k_cum = k_cum;
    counters_clear();
    CHECK(attn_sdpa(&a) == ATTN_OK);
    *packed = attn_counters[ATTN__C_PACKED];
    return attn_counters[ATTN__C_ITEM];
}

static void test_items(void)
{
    static int rows[RAGGED];
    attn_backend list[16];
    int n = test_all_backends(list, 16);
    for (int y = 0; y < n; y++) {
        long packed, alone, items;
        if (list[y] == ATTN_SCALAR) continue;
        for (int b = 0; b < RAGGED; b++) rows[b] = 1;
        alone = items_of(list[y], rows, 512, 0, 0, &packed);
        CHECKF(alone > 0 && alone <= 512 * RAGGED_HEADS, "512 entries of one row: %ld items", alone);
        items = items_of(list[y], rows, 512, 16384, 0, &packed);
        CHECKF(items <= 512 * RAGGED_HEADS, "said to be up to 16384 rows: %ld items, not %ld", items, alone);

        rows[500] = 2048;                                   /* one long entry among many of one row */
        items = items_of(list[y], rows, RAGGED, 0, 0, &packed);
        CHECKF(items <= (RAGGED + 2048 / 40) * RAGGED_HEADS, "one of 1000 entries has 2048 rows: %ld items", items);
        CHECKF(packed <= 2048 / 40 * RAGGED_HEADS, "K and V packed %ld times for one long entry", packed);

        for (int b = 0; b < RAGGED; b++) rows[b] = b % 10 == 0;                 /* most entries have none */
        items = items_of(list[y], rows, RAGGED, 0, 0, &packed);
        CHECKF(items <= RAGGED / 10 * RAGGED_HEADS, "100 of 1000 entries have a row: %ld items", items);

        for (int b = 0; b < 30; b++) rows[b] = 1 + b % 2 * 99;                  /* padding: one or 100 rows of 100 */
        (void)items_of(list[y], rows, 30, 100, 1, &packed);
        CHECKF(packed <= 15 * 100 / 40 * RAGGED_HEADS, "K and V packed %ld times for padded entries", packed);
    }
}

/* ---- 3  workspace: for tasks that there can be --------------------------------------------------------------- */

static void run_nothing(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    (void)pool, (void)n, (void)task, (void)arg;
}

static size_t bytes_of(int n_q, int n_k, int width)
{
    const attn_exec exec = {NULL, width, run_nothing};
    attn_args a;
    memset(&a, 0, sizeof a);
    a.batch = 1, a.heads = 8, a.head_dim = 64, a.n_q = n_q, a.n_k = n_k, a.exec = &exec;
    return attn_sdpa_workspace(&a);
}

static void test_slots(void)
{
    static const int sizes[] = {1, 2, 5, 16, 30, 41, 100, 300, 1000, 5000};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    const size_t alone = bytes_of(16, 16, 1);
    serial_flops = 1e6;
    CHECKF(bytes_of(16, 16, 100000) == alone, "a call that stays on its thread asks for %lu bytes, not %lu",
           (unsigned long)bytes_of(16, 16, 100000), (unsigned long)alone);
    CHECK(bytes_of(64, 64, 100000) > bytes_of(64, 64, 1));
    serial_flops = 0;
    for (int i = 0; i < SIZES; i++)
        for (int j = 0; j < SIZES; j++) {
            int n_q = sizes[i], n_k = sizes[j], blocks = (n_q + 47) / 48, chunks = (n_k + 127) / 128;
            int tasks = 8 * (blocks > chunks ? blocks : chunks);
            size_t most = bytes_of(n_q, n_k, 1 << 30), last = 0;
            CHECKF(most == bytes_of(n_q, n_k, 100000), "%d x %d: more threads than tasks ask for more", n_q, n_k);
            CHECKF(most <= (size_t)tasks * (bytes_of(n_q, n_k, 1) + (size_t)chunks * 8000), "%d x %d: %lu bytes", n_q,
                   n_k, (unsigned long)most);
            for (int width = 1; width < 1000; width += width / 2 + 1) {
                size_t need = bytes_of(n_q, n_k, width);
                CHECKF(need >= last, "%d x %d: %d threads ask for less than fewer", n_q, n_k, width);
                if (i) CHECK(need >= bytes_of(sizes[i - 1], n_k, width));
                if (j) CHECK(need >= bytes_of(n_q, sizes[j - 1], width));
                last = need;
            }
        }
}

SUITE(paths) = {
    {"paths", test_paths, "a path that is never taken, or taken where a faster one was meant"},
    {"items", test_items,
     "ragged and padded calls that cost the longest entry times the batch, not the rows there are"},
    {"slots", test_slots, "workspace for threads that have nothing to do; a larger call or width that asks for less"},
    {0},
};
