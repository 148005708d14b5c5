/* paths.h: tests how the driver works, not its results: the path of a call, its number of items, its memory. Part of
 * private.c, which has the counters. */

static int counter(const char *name)
{
    for (int i = 0; i < C_COUNT; i++)
        if (strcmp(counter_names[i], name) == 0) return i;
    return -1;
}

static void counters_clear(void) { memset(counters, 0, sizeof counters); }

/* ---- 1  paths ---------------------------------------------------------------------------------------------- */

/* A small call for each path through the driver, with the paths that it must and must not take. */
enum { HOLES = 1, DIRTY = 2, WIDE = 4, CACHED = 8, DISTANT = 16, PLAIN_C = 32, BIASED = 64,
       ALIKE = 128 };                     /* a keep mask that hides the same keys from every row, the dirty one too */
static const struct {
    const char *must, *must_not;
    int heads, kv_heads, n_q, n_k, how;
} paths[] = {
    {"scalar", "packed rows cache split select", 2, 2, 5, 6, PLAIN_C},
    {"packed", "rows masked select split scalar cache one_row", 2, 2, 60, 70, 0},
    {"rows", "packed masked select split scalar cache one_row", 2, 2, 9, 20, 0},
    {"one_row", "packed masked select split group", 2, 2, 1, 140, 0},
    {"group", "packed split one_row", 4, 2, 2, 140, 0},
    {"rows", "packed masked", 2, 2, 1, 1, 0},
    {"cache", "rows split", 4, 2, 2, 40, CACHED},
    {"masked", "packed split", 4, 2, 2, 120, BIASED | DISTANT},
    {"rows", "packed", 4, 2, 2, 64, WIDE},
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
    {"skip", "scalar split", 1, 1, 300, 300, DISTANT},
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
        if (how & DISTANT) a.causal = ATTN_CAUSAL_TOP_LEFT, a.window_left = 30;
        a.backend = ATTN_SCALAR;
        answer plain = answer_of(&a);
        if (how & CACHED) {
            attn_kv_args make;
            memset(&make, 0, sizeof make);
            make.batch = 1, make.kv_heads = a.kv_heads, make.head_dim = D, make.capacity = a.n_k;
            if (attn_kv_init(&kv, &make) != ATTN_OK || attn_kv_append(&kv, -1, k, v, a.n_k, 0) != ATTN_OK) {
                test_fail(__FILE__, __LINE__, "line %d: no cache", (int)x);
                exit(3);                                    /* because the rest of the test would crash */
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
            CHECKF(must >= 0 && counters[must] > 0, "line %d on %s: the path \"%s\" was not taken", (int)x,
                   attn_backend_name(list[y]), paths[x].must);
            if (must >= 0) seen[must] = 1;
            for (int c = 0; c < C_COUNT; c++)
                CHECKF(!counters[c] || !strstr(paths[x].must_not, counter_names[c]),
                       "line %d on %s: the path \"%s\" was taken, meant was \"%s\"", (int)x, attn_backend_name(list[y]),
                       counter_names[c], paths[x].must);
        }
        answer_free(&plain);
        if (how & CACHED) attn_kv_free(&kv);
    }
    for (int c = 0; c < C_ITEM; c++)
        CHECKF(seen[c], "no call here takes the path \"%s\"", counter_names[c]);
}

/* ---- 2  items: work is done for the rows that exist -------------------------------------------------------- */

enum { RAGGED = 1000, RAGGED_HEADS = 4, RAGGED_DIM = 8, RAGGED_ROWS = 4096 };

/* Items of a call over entries with these rows, 16 keys each. n_q: the given width, 0: the longest. */
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
    *packed = counters[C_PACKED];
    return counters[C_ITEM];
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

/* The workspace depends on sizes, not on masks: neither on plain keys, nor for a cache, whose mask has no width yet. */
static void test_slots_of_masks(void)
{
    static const float mask[1] = {0};
    static const int sizes[] = {1, 16, 41, 300, 1000};
    attn_kv_args how;
    attn_kv kv;
    memset(&how, 0, sizeof how);
    how.batch = 1, how.kv_heads = 8, how.head_dim = 64, how.capacity = 300;
    CHECK(attn_kv_init(&kv, &how) == ATTN_OK);
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        attn_args a = attn_args_for(1, sizes[i / 2], 300, 8, 64);
        size_t without;
        if (i % 2) a.kv = &kv, a.n_k = 0;
        without = attn_sdpa_workspace(&a);
        a.mask = mask, a.mask_shape[0] = a.mask_shape[1] = 1, a.mask_shape[2] = a.n_q;
        CHECKF(attn_sdpa_workspace(&a) == without, "%d rows: %lu bytes with a mask, %lu without", a.n_q,
               (unsigned long)attn_sdpa_workspace(&a), (unsigned long)without);
    }
    attn_kv_free(&kv);
}

/* Heads that share a mask may share a thick block; heads with different masks do not. The bits are the same. */
static void test_heads_share_mask(void)
{
    static const struct { int rows, keys, dim; } sizes[] = {
        {41, 300, 16}, {97, 130, 17}, {50, 20, 720}, {600, 40, 128}};
    attn_backend list[16];
    const int n = test_all_backends(list, 16);
    rng r = rng_make(test_seed);
    for (size_t x = 0; x < sizeof sizes / sizeof *sizes; x++) {
        const int rows = sizes[x].rows, keys = sizes[x].keys, dim = sizes[x].dim, cells = rows * keys;
        const size_t q_size = (size_t)(2 * rows * dim), k_size = (size_t)(2 * keys * dim);
        float *q = (float *)malloc((3 * q_size + 2 * k_size + 2 * (size_t)cells) * sizeof(float));
        float *k = q + 3 * q_size, *v = k + k_size, *mask = v + k_size, *out = q + q_size;
        rng_fill(&r, q, q_size), rng_fill(&r, k, 2 * k_size), rng_fill(&r, mask, (size_t)cells);
        for (int i = 0; i < cells; i++)
            if (mask[i] > 0.5f) mask[i] = -INFINITY;
        memcpy(mask + cells, mask, (size_t)cells * sizeof(float));
        for (int y = 0; y < n; y++)
            for (int width = 1; width <= 5; width += 4) {
                const attn_exec exec = test_exec(width);
                attn_args a = attn_args_for(1, rows, keys, 2, dim);
                a.q = q, a.k = k, a.v = v, a.mask = mask, a.backend = list[y], a.exec = &exec;
                a.mask_shape[0] = 1, a.mask_shape[2] = rows;
                for (int heads = 1; heads <= 2; heads++) {
                    a.mask_shape[1] = heads, a.out = heads == 1 ? out : out + q_size;
                    CHECK(attn_sdpa(&a) == ATTN_OK);
                }
                CHECKF(memcmp(out, out + q_size, q_size * sizeof(float)) == 0,
                       "%s, %d x %d, width %d, %d threads, seed %llu", attn_backend_name(list[y]), rows, keys, dim,
                       width, (unsigned long long)test_seed);
            }
        free(q);
    }
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
    test_slots_of_masks();
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

/* ---- 4  calls with little to do: nothing is so small that a tail, a mask or a length may be forgotten --------- */

/* The buffers of a random small call; each ends at a guard page. */
typedef struct little {
    attn_args a;
    attn_kv kv;
    attn_exec exec;
    float *q, *k, *v, *out[2], *lse[2], *cells;
    unsigned char *keep;
    int lengths[9], starts[9], map[9], rows[9], q_cum[10], k_cum[10];
    float slopes[9 * 9], rel[9 * 9 * 141];
    size_t n_out, n_lse;
} little;

static float *little_floats(rng *r, size_t n, int odd)
{
    float *x = guard_floats(n);
    rng_fill(r, x, n);
    if (odd) x[rng_u32(r) % n] = odd == 1 ? NAN : odd == 2 ? INFINITY : -INFINITY;
    return x;
}

static int little_width(rng *r)
{
    static const int widths[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 31, 32, 40, 63, 64, 65, 80, 96, 127, 128, 129};
    return widths[rng_u32(r) % (sizeof widths / sizeof *widths)];
}

/* Which keys each entry has: all, or some of them, by lengths, positions or a map. */
static void little_who(rng *r, little *l)
{
    const int how = rng_int(r, 0, 5);
    attn_args *a = &l->a;
    for (int b = 0; b < a->batch; b++) {
        l->starts[b] = rng_int(r, 0, a->n_k - 1);
        l->lengths[b] = rng_int(r, rng_int(r, 0, 9) > 0, a->n_k - l->starts[b]);
        l->map[b] = rng_int(r, 0, rng_int(r, 0, 1) ? a->batch - 1 : 0);
    }
    if (how == 1) a->k_lengths = l->lengths;
    if (how == 2) a->k_lengths = l->lengths, a->k_starts = l->starts;
    if (how == 3) a->k_map = l->map;
    if (how == 4) a->causal = ATTN_CAUSAL_BOTTOM_RIGHT, a->window_left = rng_int(r, 0, 1) * rng_int(r, 1, 70);
    if (how == 5) a->causal = ATTN_CAUSAL_TOP_LEFT, a->q_pos = rng_int(r, 0, a->n_k);
}

/* Rows that do not exist: padding, or ragged entries. */
static void little_rows(rng *r, little *l)
{
    attn_args *a = &l->a;
    const int how = rng_int(r, 0, 9);
    for (int b = 0; b < a->batch; b++) {
        l->rows[b] = rng_int(r, 0, a->n_q);
        l->q_cum[b + 1] = l->q_cum[b] + l->rows[b];
        l->k_cum[b + 1] = l->k_cum[b] + rng_int(r, 0, a->n_k);
    }
    if (how == 0) a->q_lengths = l->rows;
    if (how == 1 && a->layout == ATTN_BSHD && !a->k_lengths && !a->k_map) a->q_cum = l->q_cum, a->k_cum = l->k_cum;
}

/* Masks and biases; some of them with an element per row. Half of all calls have none. */
static void little_cells(rng *r, little *l)
{
    attn_args *a = &l->a;
    const int how = rng_int(r, 0, 15);
    const int each = rng_int(r, 0, 1);
    const size_t n = each ? (size_t)(a->batch * a->heads * a->n_q * a->n_k) : (size_t)a->n_k;
    const int shape[3] = {each ? a->batch : 1, each ? a->heads : 1, each ? a->n_q : 1};
    const int hidden = rng_int(r, 0, 3) ? rng_int(r, 0, 60) : 100;
    l->cells = guard_floats(n);
    l->keep = (unsigned char *)guard_alloc(n);
    rng_fill(r, l->cells, n);
    for (size_t i = 0; i < n; i++) {
        l->keep[i] = (unsigned char)(rng_int(r, 1, 100) > hidden ? rng_int(r, 1, 255) : 0);
        if (rng_int(r, 1, 100) <= hidden) l->cells[i] = -INFINITY;
    }
    for (int h = 0; h < a->heads; h++) l->slopes[h] = (float)h * 0.07f;
    if (how == 0 || how == 5) a->mask = l->cells, memcpy(a->mask_shape, shape, sizeof shape);
    if (how == 1 || how == 5) a->keep = l->keep, memcpy(a->keep_shape, shape, sizeof shape);
    if (how == 2) a->bias = l->cells, memcpy(a->bias_shape, shape, sizeof shape);
    if (how == 3 || how == 5) a->alibi_slopes = l->slopes;
    if (how == 4 || how == 5) a->softcap = 0.5f;
    if (how == 6 || how == 5) {
        a->rel_bias = l->rel, a->rel_extent = rng_int(r, 0, 70);
        rng_fill(r, l->rel, (size_t)(a->heads * (2 * a->rel_extent + 1)));
    }
}

/* A cache filled by two appends: some keys as whole panels, others one by one. */
static void little_cache(rng *r, little *l)
{
    attn_kv_args make;
    attn_args *a = &l->a;
    const int first = rng_int(r, 0, a->n_k), rest = a->n_k - first, all = rng_int(r, 0, 1);
    const size_t done = (size_t)a->batch * (size_t)first * (size_t)a->kv_heads;
    int counts[9];
    memset(&make, 0, sizeof make);
    make.batch = a->batch, make.kv_heads = a->kv_heads, make.head_dim = a->head_dim, make.v_head_dim = a->v_head_dim;
    make.capacity = a->n_k + rng_int(r, 0, 200);
    for (int b = 0; b < a->batch; b++) counts[b] = all ? rest : rng_int(r, 0, rest);
    CHECK(attn_kv_init(&l->kv, &make) == ATTN_OK);
    CHECK(attn_kv_append(&l->kv, -1, l->k, l->v, first, 0) == ATTN_OK);
    CHECK(append_counts(&l->kv, l->k + done * (size_t)a->head_dim, l->v + done * (size_t)a->v_head_dim, rest, counts,
                        0) == ATTN_OK);
    a->kv = &l->kv;
    a->k = a->v = NULL;
    a->n_k = 0;
    a->k_lengths = a->k_starts = a->q_cum = a->k_cum = NULL;
    /* A whole chunk can be forgotten: there are 128 keys then, and none. */
    for (int b = 0; b < a->batch; b++)
        if (l->kv.lengths[b] >= 128) CHECK(attn_kv_forget(&l->kv, b, 0, 128) == ATTN_OK);
    if (rng_int(r, 0, 2)) return;
    for (int b = 0; b < a->batch; b++) l->lengths[b] = rng_int(r, 0, l->kv.lengths[a->k_map ? a->k_map[b] : b]);
    a->k_lengths = l->lengths;
}

static void little_make(rng *r, little *l)
{
    attn_args *a = &l->a;
    const int odd = rng_int(r, 0, 4) == 0 ? rng_int(r, 1, 3) : 0;
    size_t n_q, n_k;
    memset(l, 0, sizeof *l);
    a->batch = rng_int(r, 0, 1) ? rng_int(r, 1, 3) : rng_int(r, 4, 9);
    a->n_q = rng_int(r, 1, rng_int(r, 0, 2) ? 4 : rng_int(r, 0, 2) ? 8 : 50);
    a->n_k = rng_int(r, 0, 9) == 0 ? 128 : rng_int(r, 0, 3) ? rng_int(r, 1, 20) : rng_int(r, 21, 130);
    if (a->n_q > 8) a->n_k = rng_int(r, 1, 17);
    a->kv_heads = rng_int(r, 0, 2) ? rng_int(r, 1, 9) : 1;
    /* adjacent single rows, some of which share their keys by a map */
    if (a->n_q == 1 && rng_int(r, 0, 3) == 0) a->batch = 9, a->kv_heads = 1;
    a->heads = a->kv_heads * rng_int(r, 1, (a->n_q > 4 ? 8 : 4) / a->n_q + 1 + (a->n_q > 8));
    a->head_dim = little_width(r);
    a->v_head_dim = little_width(r);
    a->scale = rng_int(r, 0, 1) ? 0.3f : 0.0f;
    n_q = (size_t)(a->batch * a->n_q * a->heads), n_k = (size_t)(a->batch * a->n_k * a->kv_heads);
    a->q = l->q = little_floats(r, n_q * (size_t)a->head_dim, 0);
    a->k = l->k = little_floats(r, n_k * (size_t)a->head_dim, odd);
    a->v = l->v = little_floats(r, n_k * (size_t)a->v_head_dim, odd);
    l->n_out = n_q * (size_t)a->v_head_dim;
    for (int i = 0; i < 2; i++) l->out[i] = guard_floats(l->n_out), l->lse[i] = guard_floats(n_q);
    l->n_lse = n_q;
    if (rng_int(r, 0, 1)) a->layout = ATTN_BHSD;
    if (rng_int(r, 0, 3) == 0) l->exec = test_exec(2), a->exec = &l->exec;
    little_who(r, l);
    little_rows(r, l);
    little_cells(r, l);
    if (rng_int(r, 0, 2) == 0) little_cache(r, l);
}

static void little_free(little *l)
{
    if (l->a.kv) attn_kv_free(&l->kv);
    guard_free(l->q), guard_free(l->k), guard_free(l->v);
    for (int i = 0; i < 2; i++) guard_free(l->out[i]), guard_free(l->lse[i]);
    guard_free(l->cells), guard_free(l->keep);
}

/* One small call with canaries in unwritten memory; returns the number of empty rows. */
static size_t little_run(little *l, int x, attn_backend backend, int lse)
{
    attn_args a = l->a;
    size_t masked = 12345;
    memset(l->out[x], 0x77, l->n_out * sizeof(float)), memset(l->lse[x], 0x77, l->n_lse * sizeof(float));
    a.out = l->out[x], a.lse = lse ? l->lse[x] : NULL, a.masked_rows = &masked, a.backend = backend;
    CHECKF(attn_sdpa(&a) == ATTN_OK, "%s", refusal_text());
    return masked;
}

/* Every backend must give the bits of the scalar one, count the same empty rows, need exactly the reported memory, and
   reject one byte less. */
static void test_little(void)
{
    attn_backend list[16];
    const int n = test_one_answer_backends(list, 16);
    rng r = rng_make(test_seed + 14);
    if (n < 2) {                                                         /* needs scalar and a backend with kernels */
        test_skip("no backend here has a short way for small calls");
        return;
    }
    for (int i = 0; i < 600 * test_scale && !test_failed(); i++) {
        little l;
        little_make(&r, &l);
        const int lse = rng_int(&r, 0, 2) == 0;
        const size_t masked = little_run(&l, 1, ATTN_SCALAR, lse);
        for (int y = 0; y < n; y++) {
            void *work;
            if (list[y] == ATTN_SCALAR) continue;
            CHECK(little_run(&l, 0, list[y], lse) == masked);
            CHECKF(same_bits(l.out[0], l.out[1], l.n_out) && same_bits(l.lse[0], l.lse[1], l.n_lse),
                   "seed %llu, call %d, %s: other bits", (unsigned long long)test_seed, i,
                   attn_backend_name(list[y]));
            l.a.backend = list[y];
            l.a.out = l.out[0];
            l.a.work_size = attn_sdpa_workspace(&l.a);
            l.a.work = work = guard_alloc(l.a.work_size);
            CHECK(attn_sdpa(&l.a) == ATTN_OK && same_bits(l.out[0], l.out[1], l.n_out));
            l.a.work_size--;
            REFUSED(attn_sdpa(&l.a), ATTN_E_WORK, "attn_sdpa: work_size is");
            l.a.work = NULL, l.a.work_size = 0;
            guard_free(work);
        }
        little_free(&l);
    }
}

/* ---- 5  entries that read the same keys -------------------------------------------------------------------- */

enum { SHARED_BATCH = 6, SHARED_KEYS = 300, SHARED_HEADS = 2, SHARED_DIM = 16 };

/* Entries that begin with the same keys share blocks, even if they are not adjacent in the batch; and only if enough
   blocks for the threads remain. */
static const struct { const char *what; int map[SHARED_BATCH], width, batch; long shared, items; } shared_calls[] = {
    {"beams of one memory", {0, 0, 0, 0, 0, 0}, 1, SHARED_BATCH, 1, 1},
    {"two memories, in turns", {1, 0, 1, 0, 1, 0}, 1, SHARED_BATCH, 1, 2},
    {"each its own", {0, 1, 2, 3, 4, 5}, 1, SHARED_BATCH, 0, SHARED_BATCH},
    {"one entry", {0, 0, 0, 0, 0, 0}, 1, 1, 0, 1},
    {"one memory, two threads: two halves of two heads", {0, 0, 0, 0, 0, 0}, 2, SHARED_BATCH, 1, 4},
    {"one memory, eight threads: all by themselves", {0, 0, 0, 0, 0, 0}, 8, SHARED_BATCH, 0, 12},
};

static void shared_call(attn_args *a, const char *what, long shared, long items)
{
    counters_clear();
    CHECKF(attn_sdpa(a) == ATTN_OK, "%s: %s", what, refusal_text());
    CHECKF(counters[C_SHARED] == shared, "%s: shared %ld times", what, counters[C_SHARED]);
    CHECKF(counters[C_ITEM] == items, "%s: %ld items", what, counters[C_ITEM]);
}

static void test_shared(void)
{
    enum { B = SHARED_BATCH, N = SHARED_KEYS, H = SHARED_HEADS, D = SHARED_DIM };
    static float q[B * H * D], rows[B * N * H * D], out[B * H * D];
    attn_backend list[16];
    attn_kv_args how;
    attn_kv kv;
    if (attn_backends(list, 16) < 2) {                      /* of this implementation: it may lack kernels */
        test_skip("only the scalar backend runs here; it has no blocks");
        return;
    }
    memset(&how, 0, sizeof how);
    how.batch = B, how.capacity = N, how.kv_heads = H, how.head_dim = D;
    CHECK(attn_kv_init(&kv, &how) == ATTN_OK && attn_kv_append(&kv, -1, rows, rows, N, 0) == ATTN_OK);
    for (size_t x = 0; x < sizeof shared_calls / sizeof *shared_calls; x++) {
        const attn_exec exec = test_exec(shared_calls[x].width);
        attn_args a = attn_args_for(shared_calls[x].batch, 1, N, H, D);
        a.q = q, a.k = a.v = rows, a.out = out, a.backend = list[0], a.exec = &exec;
        a.k_map = shared_calls[x].map, a.k_batch = B;
        shared_call(&a, shared_calls[x].what, shared_calls[x].shared, shared_calls[x].items);
        a.kv = &kv, a.k = a.v = NULL, a.n_k = a.k_batch = 0;
        shared_call(&a, shared_calls[x].what, shared_calls[x].shared, shared_calls[x].items);
    }
    attn_args a = attn_args_for(B, 1, 0, H, 0);             /* copies share pages, without a map */
    a.kv = &kv, a.q = q, a.out = out, a.backend = list[0];
    shared_call(&a, "pages of their own", 0, B);
    for (int b = 1; b < B; b++) CHECK(attn_kv_copy(&kv, b, 0, b < 3 ? N : N - 200) == ATTN_OK);
    shared_call(&a, "pages in common", 1, 1);
    /* the same first page, but other forgotten keys; only forgotten keys */
    CHECK(attn_kv_copy(&kv, 1, 0, N) == ATTN_OK && attn_kv_forget(&kv, 1, 128, 256) == ATTN_OK);
    shared_call(&a, "other keys forgotten", 1, 2);
    CHECK(attn_kv_copy(&kv, 2, 0, 256) == ATTN_OK && attn_kv_forget(&kv, 2, 0, 256) == ATTN_OK);
    shared_call(&a, "no keys left", 1, 3);
    attn_kv_free(&kv);
}

/* Entries that share only their first pages go through these once, and through later ones in groups
 * with a common page. */
static void test_diverging(void)
{
    enum { B = SHARED_BATCH, N = SHARED_KEYS, H = SHARED_HEADS, D = SHARED_DIM };
    static const struct { int common, groups; long views; } calls[] = {
        {0, 1, B * 3},                    /* three pages of each entry */
        {128, 1, 1 + B * 2},
        {256, 1, 2 + B},
        {128, 2, 1 + 2 + B},              /* the second page is common to two entries, or to four */
        {128, 3, 1 + 3 + B},
    };
    static float q[B * 3 * H * D], rows[N * H * D], out[B * 3 * H * D];
    attn_backend list[16];
    attn_kv_args how;
    if (attn_backends(list, 16) < 2) {
        test_skip("only the scalar backend runs here; it has no blocks");
        return;
    }
    memset(&how, 0, sizeof how);
    how.batch = B, how.capacity = N, how.kv_heads = H, how.head_dim = D;
    for (size_t x = 0; x < sizeof calls / sizeof *calls; x++) {
        const int common = calls[x].common, groups = calls[x].groups, each = B / groups;
        attn_kv kv;
        CHECK(attn_kv_init(&kv, &how) == ATTN_OK && attn_kv_append(&kv, 0, rows, rows, common, 0) == ATTN_OK);
        for (int b = 1; b < B; b++) CHECK(attn_kv_copy(&kv, b, 0, common) == ATTN_OK);
        for (int b = 0; b < B && groups > 1; b += each) {
            CHECK(attn_kv_append(&kv, b, rows, rows, 128, 0) == ATTN_OK);
            for (int i = 1; i < each; i++) CHECK(attn_kv_copy(&kv, b + i, b, common + 128) == ATTN_OK);
        }
        for (int b = 0; b < B; b++)
            CHECK(attn_kv_append(&kv, b, rows, rows, N - kv.lengths[b], 0) == ATTN_OK);
        for (int n_q = 1; n_q <= 3; n_q++) {
            attn_args a = attn_args_for(B, n_q, 0, H, 0);
            a.kv = &kv, a.q = q, a.out = out, a.backend = list[0];
            shared_call(&a, "copies that diverge", common > 0, common > 0 ? 1 : B);
            CHECKF(counters[C_CACHE] == calls[x].views, "%d keys in common, %d groups, %d rows: %ld chunks read",
                   common, groups, n_q, counters[C_CACHE]);
        }
        attn_kv_free(&kv);
    }
}

/* The route of each number of rows, as the head of section 8 lists it: how K and V are read, and the prefetches. */
static void test_routes(void)
{
    enum { PLAIN, PLAIN_PART, CACHE, HALF, V_IN_K, V_IN_K_HALF, KINDS };
    attn_backend list[16];
    const int n = test_all_backends(list, 16);
    for (int y = 0; y < n; y++)
        for (int kind = 0; kind < KINDS; kind++) {
            const int in_rows = kind == PLAIN || kind == PLAIN_PART || kind >= V_IN_K;
            attn_kv_args how;
            attn_kv kv;
            memset(&how, 0, sizeof how);
            how.batch = 1, how.capacity = 300, how.head_dim = 16, how.kv_heads = 2, how.v_in_k = kind >= V_IN_K;
            if (kind == HALF || kind == V_IN_K_HALF) how.k_storage = how.v_storage = ATTN_F16;
            CHECK(attn_kv_init(&kv, &how) == ATTN_OK);
            for (int rows = 1; rows <= 100; rows++) {
                attn_args a = attn_args_for(1, rows, 300, 2, kind == PLAIN_PART ? 17 : 16);
                attn__why why;
                attn__call call;
                unsigned want = 0, route;
                a.backend = list[y];
                if (kind >= CACHE) a.kv = &kv, a.n_k = 0;
                attn__why_open(&why, "test_routes", NULL);
                CHECK(attn__call_make(&call, &a, &why, ATTN__PLANS) == ATTN_OK);
                if (rows <= 40) want |= ATTN__THIN;
                if (in_rows) want |= rows <= 4 ? ATTN__IN_PLACE : ATTN__PACK_K;
                if (rows > 40 || (rows > 4 && kind == PLAIN_PART)) want |= ATTN__PACK_V;
                if (rows >= 3 && rows <= 40) want |= ATTN__AHEAD;
                if (kind == V_IN_K_HALF) want |= ATTN__WIDEN_V;         /* the same rows */
                if (kind == HALF && (rows > 16 || !call.kernels->reads(ATTN_F16)))
                    want |= ATTN__WIDEN_K | ATTN__WIDEN_V;
                route = attn__route_of(&call, rows);
                CHECKF(route == want, "%s, case %d, %d rows: route %u, not %u", attn_backend_name(list[y]), kind, rows,
                       route, want);
            }
            attn_kv_free(&kv);
        }
}

/* A row with parts is also split among threads, if it has more than one. */
static void test_parts(void)
{
    enum { N = 5 * 128, D = 16, PARTS = 5 };
    static const struct { int width; long least; } calls[] = {{1, 1}, {3, 3}, {100, PARTS}};
    static float q[D], rows[N * D], states[PARTS * ATTN_STATE(D)];
    attn_backend list[16];
    int n = test_all_backends(list, 16);
    for (int y = 0; y < n; y++) {
        if (list[y] == ATTN_SCALAR) continue;
        for (size_t x = 0; x < sizeof calls / sizeof *calls; x++) {
            const attn_exec exec = test_exec(calls[x].width);
            attn_args a = attn_args_for(1, 1, N, 1, D);
            a.q = q, a.k = a.v = rows, a.carry_out = states, a.parts = PARTS, a.backend = list[y], a.exec = &exec;
            counters_clear();
            CHECKF(attn_sdpa(&a) == ATTN_OK, "%s", refusal_text());
            CHECKF(counters[C_ITEM] >= calls[x].least && counters[C_ITEM] <= PARTS, "%d threads: %ld items",
                   calls[x].width, counters[C_ITEM]);
        }
    }
}

#ifndef ATTN_NO_LAYERS
static int runs_counted;
static void run_counted(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    (void)pool;
    runs_counted++;
    for (int i = 0; i < n; i++) task(arg, i);
}

/* Rows that are so long that a task has few of them. */
static void test_little_rows(void)
{
    enum { ROWS = 6, N = 5000, ALL = ROWS * N };
    static float x[ALL], y[2][ALL];
    const attn_exec exec = {NULL, 4, run_counted};
    rng r = rng_make(test_seed + 71);
    attn_norm_args a;
    rng_fill(&r, x, ALL);
    memset(&a, 0, sizeof a);
    a.x = x, a.rows = ROWS, a.n = N, a.exec = &exec;
    for (int threads = 0; threads < 2; threads++) {
        serial_flops = threads ? 0 : 1e9;
        runs_counted = 0;
        a.y = y[threads];
        CHECK(attn_norm(&a) == ATTN_OK && runs_counted == threads);
        CHECK(attn_activate(y[threads], y[threads], x, ALL, ATTN_SILU, &exec) == ATTN_OK);
        CHECKF(runs_counted == 2 * threads, "the executor ran %d times", runs_counted);
    }
    CHECK(same_bits(y[0], y[1], ALL));
    serial_flops = 0;
}
#endif

/* Records which jobs would wake a thread: a bit of pool[0] for each, the first one's is 1. pool[1]:
 * number of jobs; pool[2]: tasks of the last one. */
static void run_noted(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    unsigned *noted = (unsigned *)pool;
    CHECK(task == attn__run_one);
    noted[2] = (unsigned)n;
    noted[0] |= (unsigned)((const attn__job *)arg)->wake << noted[1]++;
    while (n-- > 0) task(arg, n);
}

/* Entries that share their keys are one entry with more rows: too short to wake a thread. */
static void test_short_beams(void)
{
    enum { BEAMS = 4, KEYS = 256, SHORT_HEADS = 8, D = 64 };
    static float q[BEAMS * SHORT_HEADS * D], rows[BEAMS * KEYS * SHORT_HEADS * D], out[BEAMS * SHORT_HEADS * D];
    static const int same[BEAMS] = {0};
    unsigned noted[3];
    const attn_exec exec = {noted, 2, run_noted};
    attn_args a = attn_args_for(BEAMS, 1, KEYS, SHORT_HEADS, D);
    if (attn__is_scalar(attn__table(ATTN_AUTO))) return;      /* it does not share */
    a.out = out, a.q = q, a.k = a.v = rows, a.exec = &exec;
    for (int shared = 0; shared < 2; shared++) {
        a.k_map = shared ? same : NULL;
        memset(noted, 0, sizeof noted);
        CHECKF(attn_sdpa(&a) == ATTN_OK, "%s", refusal_text());
        CHECKF(noted[0] == !shared && noted[1] == 1, "shared %d: jobs %x of %u wake", shared, noted[0], noted[1]);
    }
}

/* With parts, all splits of all blocks may run at once. */
static void test_parts_tasks(void)
{
    enum { ROWS = 97, N = 3 * 128, D = 16, PARTS = 3 };
    static float q[ROWS * D], rows[N * D], states[PARTS * ROWS * ATTN_STATE(D)];
    unsigned noted[3] = {0};
    const attn_exec exec = {noted, 16, run_noted};
    attn_args a = attn_args_for(1, ROWS, N, 1, D);
    if (attn__is_scalar(attn__table(ATTN_AUTO))) return;      /* it does not split */
    a.q = q, a.k = a.v = rows, a.carry_out = states, a.parts = PARTS, a.exec = &exec;
    CHECKF(attn_sdpa(&a) == ATTN_OK, "%s", refusal_text());
    CHECKF(noted[2] >= 2 * PARTS, "%u tasks", noted[2]);
}

#ifndef ATTN_NO_LAYERS
/* Each job of a step is too short to wake a thread. If all together are not, the first one does. */
static void test_step_wakes(void)
{
    enum { WIDTH = 256, STEP_HEADS = 4, KEYS = 1300, FILL = 20 };
    static float w[3 * WIDTH * WIDTH], x[KEYS * WIDTH], out[WIDTH];
    unsigned noted[3];
    const attn_exec exec = {noted, 2, run_noted};
    attn_mha_args a;
    attn_mha_opts o;
    attn_kv_args shape;
    attn_mha m;
    attn_kv kv;
    memset(&a, 0, sizeof a);
    a.d_model = WIDTH, a.heads = STEP_HEADS, a.w_in = a.w_o = w;
    CHECK(attn_mha_init(&m, &a) == ATTN_OK);
    memset(&shape, 0, sizeof shape);
    shape.batch = 1, shape.kv_heads = STEP_HEADS, shape.head_dim = WIDTH / STEP_HEADS, shape.capacity = KEYS;
    CHECK(attn_kv_init(&kv, &shape) == ATTN_OK);
    memset(&o, 0, sizeof o);
    o.attn.exec = &exec;
    noted[0] = noted[1] = 0;
    CHECK(attn_mha_cross_fill(&m, &kv, x, 1, FILL, NULL, &o) == ATTN_OK);
    CHECKF(noted[0] == 0 && noted[1] > 0, "a short fill: jobs %x of %u wake", noted[0], noted[1]);
    for (int keys = KEYS / 2; keys <= KEYS; keys += KEYS / 2) {
        CHECK(attn_kv_append(&kv, -1, x, x, keys - kv.lengths[0], 0) == ATTN_OK);
        noted[0] = noted[1] = 0;
        CHECK(attn_mha_cross_step(&m, out, x, 1, 1, &kv, &o) == ATTN_OK);
        CHECKF(noted[0] == (keys == KEYS) && noted[1] == 3, "%d keys: jobs %x of %u wake", keys, noted[0], noted[1]);
    }
    attn_kv_free(&kv);
    attn_mha_free(&m);
}
#endif

#ifndef ATTN_NO_DELTA
/* Threads for few operations; an allocation that fails before anything is written. */
static void test_little_delta(void)
{
    enum { N = 3, TWO = 2, V_DIM = 20, CHANNELS = 150, WIDTH = 16, ALL = N * TWO * V_DIM, STATE = TWO * V_DIM * V_DIM };
    static float x[CHANNELS * WIDTH], y[2][N * CHANNELS], state[2][STATE], out[2][ALL], before[CHANNELS * (WIDTH - 1)];
    const attn_exec exec = {NULL, 4, run_counted};
    rng r = rng_make(test_seed + 72);
    attn_delta_args a;
    attn_conv_args c;
    int mine;
    rng_fill(&r, x, CHANNELS * WIDTH);
    memset(&a, 0, sizeof a);
    a.q = a.k = a.v = x, a.batch = 1, a.n = N, a.heads = TWO, a.head_dim = V_DIM, a.exec = &exec, a.qk_norm = 1;
    memset(&c, 0, sizeof c);
    c.x = c.w = x, c.batch = 1, c.n = N, c.channels = CHANNELS, c.width = WIDTH, c.state = before, c.exec = &exec;
    for (int threads = 0; threads < 2; threads++) {
        serial_flops = threads ? 0 : 1e9;
        runs_counted = 0;
        a.out = out[threads], a.state = state[threads];
        CHECK(attn_delta(&a) == ATTN_OK && runs_counted == threads);
        memset(before, 0, sizeof before);
        c.y = y[threads];
        CHECK(attn_conv(&c) == ATTN_OK);
        CHECKF(runs_counted == 2 * threads, "the executor ran %d times", runs_counted);
    }
    CHECK(same_bits(out[0], out[1], ALL) && same_bits(state[0], state[1], STATE));
    CHECK(same_bits(y[0], y[1], N * CHANNELS));
    a.user = &mine;
    hooks_reset(0, 0xA5, &mine);
    REFUSED(attn_delta(&a), ATTN_E_MEMORY, "attn_delta: ATTN_MALLOC has no ");
    CHECK(same_bits(out[0], out[1], ALL) && same_bits(state[0], state[1], STATE));
    hooks_reset(-1, 0xFF, &mine);         /* memory of NaN, freed after the call */
    memset(state[1], 0, sizeof state[1]);
    CHECK(attn_delta(&a) == ATTN_OK && hooks.calls == 1 && hooks.live == 0);
    CHECK(same_bits(out[0], out[1], ALL) && same_bits(state[0], state[1], STATE));
    hooks_done();
    serial_flops = 0;
}
#endif

SUITE(paths) = {
    {"paths", test_paths, "a path that is never taken, or taken instead of a faster one"},
    {"items", test_items, "ragged and padded calls that cost the longest entry times the batch, not the existing rows"},
    {"small calls", test_little, "a small call with other bits, a read too far, or too little memory"},
    {"shared keys", test_shared, "shared keys that are read again for each entry"},
    {"diverging copies", test_diverging, "a page that several entries share, read for each of them"},
    {"routes", test_routes, "a number of rows whose K or V is read as that of fewer or more rows"},
    {"parts", test_parts, "parts of a row that threads do not share, or an item without a part"},
    {"tasks of parts", test_parts_tasks, "fewer tasks than splits of all blocks"},
    {"short beams", test_short_beams, "beams that wake a thread for keys that they read together"},
#ifndef ATTN_NO_LAYERS
    {"few operations", test_little_rows, "small norms and activations that wake threads"},
#endif
#ifndef ATTN_NO_LAYERS
    {"steps", test_step_wakes, "a step of many short jobs that wakes no thread, or a short one that does"},
#endif
#ifndef ATTN_NO_DELTA
    {"linear attention", test_little_delta, "small calls that wake threads; memory that leaks or is read too early"},
#endif
    {"heads share mask", test_heads_share_mask, "rows of the second head of a thick block that are those of the first"},
    {"slots", test_slots, "workspace for threads without work; a larger call or width that requires less"},
    {0},
};
