/* test_poison.c: a key that is hidden from a row is treated as if it did not exist. Everything hidden from a row is
 * overwritten with NaN, infinities and huge numbers, and no bit of that row may change. Conversely, a NaN that a row
 * sees is never lost, and a row that sees nothing differs from one that sees only NaN. */
#include "answer.h"
#include "cases.h"

#define INF INFINITY
static const uint32_t QUIET = 0x7FC00000u;            /* the one NaN that is ever stored */

/* ---- 1  random cases ----------------------------------------------------------------------------------------- */

enum { POISON_K = 1, POISON_V = 2, POISON_MASK = 4, POISON_BIAS = 8, POISON_KEEP = 16, POISON_Q = 32, POISON_HEADS = 64,
       POISON_ALL = 127 };

typedef struct target {                               /* the row that must not change */
    int b, h, i;
} target;

/* one case with a second copy of everything it reads */
typedef struct victim {
    sdpa_case c;
    attn_args a;                                      /* as c.a, but reads the copies */
    float *q, *k, *v, *mask, *bias, *slopes, *rel, *sinks;
    unsigned char *keep, *seen;                       /* seen: one byte for each element of the longest buffer */
    answer clean;
    attn_backend backend;
} victim;

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static float *twin(sdpa_case *c, const float *from, size_t n) { return from ? (float *)case_own(c, n * 4) : NULL; }

/* Hides whole chunks in some rows of cells, because random cells rarely hide whole chunks. */
static void hide_chunks(sdpa_case *c, rng *r)
{
    const oracle_shape *s = &c->s;
    int start = c->a.batch > 0 ? oracle_start(&c->a, 0) : 0, n_k = s->n_k;
    const ptrdiff_t *step = c->keep ? s->keep : s->mask;
    if (n_k <= 128 || (!c->keep && !c->mask)) return;
    for (int x = 0; x < s->batch * s->heads * s->n_q; x++) {
        unsigned chunks = rng_int(r, 0, 1) ? rng_u32(r) & rng_u32(r) : 0;
        ptrdiff_t at = oracle_cell_at(step, x / s->n_q / s->heads, x / s->n_q % s->heads, x % s->n_q, 0);
        for (int j = start; j < n_k; j++) {
            if (!(chunks >> (j - start) / 128 & 1)) continue;
            if (c->keep) c->keep[at + j] = 0;
            else c->mask[at + j] = -INF;
        }
    }
}

static void victim_make(victim *w, rng *r, double work, attn_backend backend)
{
    sdpa_case *c = &w->c;
    case_random_upto(r, c, work);
    for (int least = rng_int(r, 0, 2) ? 0 : 257; c->s.n_k < least; case_random_upto(r, c, work)) case_free(c);
    if (rng_int(r, 0, 1)) case_fill(c, r);            /* finite everywhere, so that the first NaN is the poison */
    hide_chunks(c, r);
    size_t heads = (size_t)c->a.heads;
    w->backend = backend;
    w->a = c->a;
    w->a.q = w->q = twin(c, c->q, c->q_size);
    w->a.k = w->k = twin(c, c->k, c->k_size);
    w->a.v = w->v = twin(c, c->v, c->v_size);
    w->a.mask = w->mask = twin(c, c->mask, c->mask_size);
    w->a.bias = w->bias = twin(c, c->bias, c->bias_size);
    w->a.alibi_slopes = w->slopes = twin(c, c->alibi_slopes, heads);
    w->a.rel_bias = w->rel = twin(c, c->rel_bias, c->rel_size);
    w->a.sinks = w->sinks = twin(c, c->sinks, heads);
    w->a.keep = w->keep = c->keep ? (unsigned char *)case_own(c, c->keep_size) : NULL;
    size_t n = most(most(most(c->q_size, c->k_size), most(c->v_size, c->mask_size)), most(c->bias_size, c->keep_size));
    n = most(n, c->rel_size);
    w->seen = (unsigned char *)case_own(c, most(n, heads));

    static float asked;                               /* requests the lse of every row in every case */
    static size_t counted;
    attn_args a = c->a;
    a.backend = backend, a.exec = NULL, a.lse = &asked, a.masked_rows = &counted;
    w->clean = answer_of(&a);
}

static void victim_free(victim *w)
{
    answer_free(&w->clean);
    case_free(&w->c);
}

static float drawn_poison(rng *r, int kind)
{
    static const uint32_t all[] = {0x7FC00000u, 0xFFC12345u, 0x7FA00001u, 0x7F800000u, 0xFF800000u, 0x7149F2CAu,
                                   0xF149F2CAu, 0x7F7FFFFFu, 0x80000000u, 0x00000001u};
    return bits_float(all[kind < 10 ? kind : rng_int(r, 0, kind == 10 ? 9 : 6)]);
}

typedef struct dose {
    int what, kind, per_mille;                        /* which tensors, which number, how much of the hidden values */
} dose;

static void poison_unseen(float *x, const float *from, const unsigned char *seen, size_t n, rng *r, dose d, int on)
{
    memcpy(x, from, n * sizeof *x);
    for (size_t i = 0; on && i < n; i++)
        if (!seen[i] && (d.per_mille == 1000 || rng_int(r, 0, 999) < d.per_mille)) {
            float p = drawn_poison(r, d.kind);
            memcpy(x + i, &p, sizeof p);              /* a signalling NaN stays signalling */
        }
}

/* The reason why the row does not see the key. PLACE: causal, window or length, regardless of cells. */
enum { BY_PLACE = 1, BY_MASK = 2, BY_BIAS = 4, BY_KEEP = 8, BY_REL = 16, HIDDEN = 32 };
static int hidden_by(const sdpa_case *c, target t, int j)
{
    attn_args bare = c->a;
    int by = 0;
    bare.mask = bare.bias = bare.rel_bias = NULL, bare.keep = NULL;
    if (!oracle_sees(&bare, &c->s, t.b, t.h, t.i, j)) by |= BY_PLACE;
    if (c->mask && c->mask[oracle_cell_at(c->s.mask, t.b, t.h, t.i, j)] == -INF) by |= BY_MASK;
    if (c->bias && c->bias[oracle_cell_at(c->s.bias, t.b, t.h, t.i, j)] == -INF) by |= BY_BIAS;
    if (c->keep && !c->keep[oracle_cell_at(c->s.keep, t.b, t.h, t.i, j)]) by |= BY_KEEP;
    if (oracle_rel(&c->a, t.b, t.h, t.i, j) == -INF) by |= BY_REL;
    return by;
}

/* Selects which term hides the key if several could. */
static int stays(rng *r, int by)
{
    if (by & BY_PLACE) return 0;
    static const int terms[] = {BY_MASK, BY_BIAS, BY_KEEP, BY_REL};
    for (;;) {
        int one = terms[rng_int(r, 0, 3)];
        if (by & one) return one;
    }
}

/* Fills the copies: values that the row sees are unchanged, some of the others become poison. */
static void poison(victim *w, rng *r, target t, dose d)
{
    sdpa_case *c = &w->c;
    const attn_args *a = &c->a;
    const oracle_shape *s = &c->s;
    unsigned char *seen = w->seen;
    int row = t.i < oracle_rows(a, t.b), start = oracle_start(a, t.b), end = row ? oracle_end(a, t.b) : start;
    int *by = (int *)malloc(((size_t)s->n_k + 1) * sizeof *by);
    if (!by) exit(3);
    for (int j = 0; j < s->n_k; j++) by[j] = j >= start && j < end ? hidden_by(c, t, j) : BY_PLACE;
    for (int j = 0; j < s->n_k; j++) by[j] = by[j] ? HIDDEN | stays(r, by[j]) : 0;         /* 0: visible */

    memset(seen, 0, c->q_size);
    if (row) memset(seen + oracle_q_at(a, s, t.b, t.h, t.i), 1, (size_t)s->head_dim);
    poison_unseen(w->q, c->q, seen, c->q_size, r, d, d.what & POISON_Q);

    memset(seen, 0, c->k_size);
    for (int j = start; j < end; j++)
        if (!by[j]) memset(seen + oracle_k_at(a, s, t.b, t.h, j), 1, (size_t)s->head_dim);
    poison_unseen(w->k, c->k, seen, c->k_size, r, d, d.what & POISON_K);

    memset(seen, 0, c->v_size);
    for (int j = start; j < end; j++)
        if (!by[j]) memset(seen + oracle_v_at(a, s, t.b, t.h, j), 1, (size_t)s->v_head_dim);
    poison_unseen(w->v, c->v, seen, c->v_size, r, d, d.what & POISON_V);

    if (c->mask) {
        memset(seen, 0, c->mask_size);
        for (int j = start; j < end; j++)
            if (!by[j] || by[j] & BY_MASK) seen[oracle_cell_at(s->mask, t.b, t.h, t.i, j)] = 1;
        poison_unseen(w->mask, c->mask, seen, c->mask_size, r, d, d.what & POISON_MASK);
    }
    if (c->bias) {
        memset(seen, 0, c->bias_size);
        for (int j = start; j < end; j++)
            if (!by[j] || by[j] & BY_BIAS) seen[oracle_cell_at(s->bias, t.b, t.h, t.i, j)] = 1;
        poison_unseen(w->bias, c->bias, seen, c->bias_size, r, d, d.what & POISON_BIAS);
    }
    if (c->keep) {
        memset(seen, 0, c->keep_size);
        for (int j = start; j < end; j++)
            if (!by[j] || by[j] & BY_KEEP) seen[oracle_cell_at(s->keep, t.b, t.h, t.i, j)] = 1;
        memcpy(w->keep, c->keep, c->keep_size);
        for (size_t x = 0; d.what & POISON_KEEP && x < c->keep_size; x++)
            if (!seen[x] && rng_int(r, 0, 999) < d.per_mille) w->keep[x] = (unsigned char)(rng_u32(r) & 0xFF);
    }
    if (c->rel_bias) {
        memset(seen, 0, c->rel_size);
        for (int j = start; j < end; j++)
            if (!by[j] || by[j] & BY_REL) seen[oracle_rel_at(a, t.b, t.h, t.i, j)] = 1;
        poison_unseen(w->rel, c->rel_bias, seen, c->rel_size, r, d, d.what & POISON_BIAS);
    }
    memset(seen, 0, (size_t)s->heads);
    seen[t.h] = 1;
    if (c->alibi_slopes) poison_unseen(w->slopes, c->alibi_slopes, seen, (size_t)s->heads, r, d, d.what & POISON_HEADS);
    if (c->sinks) poison_unseen(w->sinks, c->sinks, seen, (size_t)s->heads, r, d, d.what & POISON_HEADS);
    free(by);
}

/* The same keys through a cache, with poison in the place of earlier keys. Returns 0 if the case does not allow a
   cache. */
static int cached(victim *w, rng *r, attn_kv *kv, attn_args *a, int **map)
{
    const sdpa_case *c = &w->c;
    const oracle_shape *s = &c->s;
    if (a->k_starts || a->k_cum || s->batch < 1 || s->n_k < 1) return 0;
    int entries = a->k_map && a->k_batch ? a->k_batch : s->batch, tail = rng_int(r, 0, 40), n = s->n_k;
    attn_kv_args make;
    memset(&make, 0, sizeof make);
    make.batch = entries, make.kv_heads = s->kv_heads, make.head_dim = s->head_dim, make.v_head_dim = s->v_head_dim;
    make.capacity = n + tail;
    if (attn_kv_init(kv, &make) != ATTN_OK) return 0;
    size_t rows = (size_t)entries * (size_t)(n + tail) * (size_t)s->kv_heads, at_k = 0, at_v = 0;
    float *k = (float *)malloc(rows * (size_t)s->head_dim * 4 + 4),
          *v = (float *)malloc(rows * (size_t)s->v_head_dim * 4 + 4);
    if (!k || !v) exit(3);
    for (int e = 0; e < entries; e++)
        for (int j = 0; j < n + tail; j++)
            for (int g = 0; g < s->kv_heads; g++) {
                for (int x = 0; x < s->head_dim; x++, at_k++) {
                    float p = drawn_poison(r, 11);
                    memcpy(k + at_k, j < n ? w->k + oracle_row_at(s->k, NULL, e, g, j) + x : &p, 4);
                }
                for (int x = 0; x < s->v_head_dim; x++, at_v++) {
                    float p = drawn_poison(r, 11);
                    memcpy(v + at_v, j < n ? w->v + oracle_row_at(s->v, NULL, e, g, j) + x : &p, 4);
                }
            }
    CHECK(attn_kv_append(kv, -1, k, v, n + tail, 0) == ATTN_OK);
    int keep_lengths = a->k_map || rng_int(r, 0, 1);                   /* keys that k_lengths hides stay in the cache */
    for (int e = 0; e < entries; e++)
        CHECK(attn_kv_truncate(kv, e, a->k_lengths && !keep_lengths ? a->k_lengths[e] : n) == ATTN_OK);
    free(k);
    free(v);
    if (!a->k_map && rng_int(r, 0, 1)) {                               /* through an identity map */
        *map = (int *)malloc((size_t)s->batch * sizeof **map);
        if (!*map) exit(3);
        for (int b = 0; b < s->batch; b++) (*map)[b] = b;
        a->k_map = *map;
    }
    a->k = a->v = NULL, a->kv = kv;
    if (!keep_lengths) a->k_lengths = NULL;
    a->k_batch = a->k_map ? a->k_batch : 0;
    a->n_k = n;
    for (int x = 0; x < 3; x++) a->k_stride[x] = a->v_stride[x] = 0;
    return 1;
}

static const char *backend_of(const victim *w) { return attn_backend_name(w->backend); }

/* Returns -1 if all are equal, otherwise the first column that differs, or width for lse. */
static int moved(const float *a, const float *b, size_t n)
{
    for (size_t x = 0; x < n; x++)
        if (float_bits(a[x]) != float_bits(b[x])) return (int)x;
    return -1;
}

static long via_cache;

/* Properties of the drawn rows; each must occur. */
enum { EMPTY, PADDING, FIRST, MIDDLE, LAST, PARTLY, DIAGONAL, SITUATIONS };
static long met[SITUATIONS];
static const char *const situations[] = {
    "the row sees nothing", "the row is padding", "the first chunk is hidden and another is not",
    "a chunk between two visible ones is hidden", "the last chunk is hidden and another is not",
    "a chunk is partly hidden", "the next row sees one key more"};

static void note_situation(const sdpa_case *c, target t)
{
    const attn_args *a = &c->a;
    int start = oracle_start(a, t.b), end = oracle_end(a, t.b), chunks = (end - start + 127) / 128, any = 0, holes = 0;
    int part[8] = {0};                                /* of each chunk: 0 none, 1 some, 2 all of it is visible */
    if (t.i >= oracle_rows(a, t.b)) {
        met[PADDING]++;
        return;
    }
    for (int x = 0; x < chunks && x < 8; x++) {
        int n = 0, from = start + 128 * x, to = from + 128 < end ? from + 128 : end;
        for (int j = from; j < to; j++) n += oracle_sees(a, &c->s, t.b, t.h, t.i, j);
        part[x] = n == to - from ? 2 : n > 0;
        met[PARTLY] += part[x] == 1;
        any |= part[x];
    }
    met[EMPTY] += !any;
    if (any && chunks > 1) met[FIRST] += !part[0], met[LAST] += chunks <= 8 && !part[chunks - 1];
    for (int x = 1; x + 1 < chunks && x < 7; x++) holes |= !part[x] && part[x - 1] && part[x + 1];
    met[MIDDLE] += holes;
    for (int j = start; t.i + 1 < oracle_rows(a, t.b) && j < end; j++)
        if (!oracle_sees(a, &c->s, t.b, t.h, t.i, j) && oracle_sees(a, &c->s, t.b, t.h, t.i + 1, j)) {
            met[DIAGONAL]++;
            break;
        }
}

static void check_row(victim *w, rng *r, target t)
{
    static const int widths[] = {1, 2, 3, 7, 64}, doses[] = {1000, 1000, 200, 10};
    sdpa_case *c = &w->c;
    const oracle_shape *s = &c->s;
    dose d;
    d.kind = rng_int(r, 0, 12);
    d.what = rng_int(r, 0, 2) ? POISON_ALL : rng_int(r, 1, POISON_ALL);
    d.per_mille = doses[rng_int(r, 0, 3)];
    poison(w, r, t, d);
    note_situation(c, t);

    /* one answer: the poisoned call may also take another path than the clean one */
    attn_kv kv;
    attn_exec exec;
    attn_args a = w->a;
    attn_backend list[16];
    int n_list = test_one_answer_backends(list, 16), one_answer = 0, *map = NULL;
    for (int x = 0; x < n_list; x++) one_answer |= list[x] == w->backend;
    a.backend = one_answer && rng_int(r, 0, 3) == 0 ? list[rng_int(r, 0, n_list - 1)] : w->backend;
    int width = rng_int(r, 0, 3) ? 0 : widths[rng_int(r, 0, 4)];
    exec = test_exec(width);
    a.exec = width ? &exec : NULL;
    static size_t counted;
    static float asked;
    a.masked_rows = &counted, a.lse = &asked;
    int use_cache = rng_int(r, 0, 5) == 0 && cached(w, r, &kv, &a, &map);
    via_cache += use_cache;
    unsigned char *work = NULL;
    if (rng_int(r, 0, 1)) {
        size_t size = attn_sdpa_workspace(&a), shift = (size_t)rng_int(r, 0, 3) * 5 % 7;
        if (size != SIZE_MAX)
            work = (unsigned char *)guard_alloc(size + shift), a.work = work + shift, a.work_size = size;
    }
    answer now = answer_of(&a);
    guard_free(work);

    char text[160];
    snprintf(text, sizeof text, "row (entry %d, head %d, row %d), poison %d/%d/%d, width %d, %s%s", t.b, t.h, t.i,
             d.what, d.kind, d.per_mille, width, attn_backend_name(a.backend), use_cache ? ", cache" : "");
    CHECKF(now.status == ATTN_OK, "%s: %s; %s", text, attn_status_str(now.status), case_text(c));
    if (now.status == ATTN_OK) {
        size_t at = ((size_t)t.b * (size_t)s->heads + (size_t)t.h) * (size_t)s->n_q + (size_t)t.i, n_k = (size_t)s->n_k;
        const float *was = w->clean.out + at * (size_t)s->v_head_dim, *is = now.out + at * (size_t)s->v_head_dim;
        int x = moved(was, is, (size_t)s->v_head_dim);
        CHECKF(x < 0, "out[%d] was %08x, is %08x: %s; %s (clean: %s)", x, float_bits(was[x < 0 ? 0 : x]),
               float_bits(is[x < 0 ? 0 : x]), text, case_text(c), backend_of(w));
        CHECKF(same_bits(w->clean.lse + at, now.lse + at, 1), "lse was %08x, is %08x: %s; %s (clean: %s)",
               float_bits(w->clean.lse[at]), float_bits(now.lse[at]), text, case_text(c), backend_of(w));
        int shows_hidden = a.weights_stage == ATTN_SCORES_RAW || a.weights_stage == ATTN_SCORES_CAPPED;
        for (size_t j = 0; now.weights && j < n_k; j++) {
            if (shows_hidden && !oracle_sees(&c->a, s, t.b, t.h, t.i, (int)j)) continue;
            if (same_bits(w->clean.weights + at * n_k + j, now.weights + at * n_k + j, 1)) continue;
            CHECKF(0, "weights[%d] was %08x, is %08x: %s; %s (clean: %s)", (int)j,
                   float_bits(w->clean.weights[at * n_k + j]), float_bits(now.weights[at * n_k + j]), text,
                   case_text(c), backend_of(w));
            break;
        }
        test_checks++;
        if (now.n_lse * n_k < 4000 && !use_cache) {                    /* only masks decide what is counted */
            size_t empty = 0;
            for (int b = 0; b < s->batch; b++)
                for (int h = 0; h < s->heads; h++)
                    for (int i = 0; i < oracle_rows(&a, b); i++) {
                        int j = 0;
                        while (j < s->n_k && !oracle_sees(&a, s, b, h, i, j)) j++;
                        empty += j == s->n_k;
                    }
            CHECKF(now.masked == empty, "masked_rows is %lu, should be %lu: %s; %s", (unsigned long)now.masked,
                   (unsigned long)empty, text, case_text(c));
        }
    }
    answer_free(&now);
    if (use_cache) attn_kv_free(&kv);
    free(map);
}

static int drawn_edge(rng *r, int n)
{
    int x = rng_int(r, 0, 5);
    return x == 0 ? 0 : x == 1 ? n - 1 : rng_int(r, 0, n - 1);
}

static void test_random(void)
{
    attn_backend list[16];
    int n_list = test_all_backends(list, 16), cases = 1000 * test_scale, verbose;
    long rows_tried = 0;
    static case_pairs pairs;
    rng r = rng_make(test_seed * 7919u + 17u);
    verbose = test_scale >= 10 || getenv("ATTN_TEST_VERBOSE") != NULL;
    memset(&pairs, 0, sizeof pairs);
    via_cache = 0;
    memset(met, 0, sizeof met);
    for (int n = 0; n < cases && !test_failed(); n++) {
        static victim w;
        memset(&w, 0, sizeof w);
        victim_make(&w, &r, n / n_list % 4 ? 60000.0 : 1e6, list[n % n_list]);
        case_pairs_add(&pairs, &w.c);
        CHECKF(w.clean.status == ATTN_OK, "%s; %s", attn_status_str(w.clean.status), case_text(&w.c));
        const oracle_shape *s = &w.c.s;
        long rows = (long)s->batch * s->heads * s->n_q, tried = rows <= 16 ? rows : 12;
        for (long x = 0; x < tried && w.clean.status == ATTN_OK && !test_failed(); x++) {
            target t;
            if (rows <= 16) {
                t.b = (int)(x / s->n_q / s->heads), t.h = (int)(x / s->n_q % s->heads), t.i = (int)(x % s->n_q);
            } else {
                t.b = rng_int(&r, 0, s->batch - 1), t.h = rng_int(&r, 0, s->heads - 1), t.i = drawn_edge(&r, s->n_q);
            }
            check_row(&w, &r, t);
            rows_tried++;
        }
        victim_free(&w);
    }
    if (test_failed()) return;
    if (verbose)
        printf("  %d cases, %ld rows poisoned, %ld of them in a cache; which features met:\n", cases, rows_tried,
               via_cache);
    int missing = case_pairs_print(&pairs, verbose);
    CHECKF(missing == 0, "%d pairs of features were never drawn together in %d cases", missing, cases);
    CHECK(via_cache > cases / 20);
    for (int x = 0; x < SITUATIONS; x++) {
        if (verbose) printf("  %7ld rows: %s\n", met[x], situations[x]);
        CHECKF(met[x] > 0, "it never happened that %s", situations[x]);
    }
}

/* ---- 2  directed cases ------------------------------------------------------------------------------------------- */

/* One entry, one head; weights, lse and the count of empty rows are always requested. */
typedef struct scene {
    attn_args a;
    float *q, *k, *v;
    size_t counted;
    float asked;
} scene;

static void scene_make(scene *s, int n_q, int n_k, int head_dim, int v_head_dim, uint64_t seed)
{
    rng r = rng_make(seed);
    memset(s, 0, sizeof *s);
    s->q = guard_floats((size_t)(n_q * head_dim));
    s->k = guard_floats((size_t)(n_k * head_dim));
    s->v = guard_floats((size_t)(n_k * v_head_dim));
    rng_fill(&r, s->q, (size_t)(n_q * head_dim));
    rng_fill(&r, s->k, (size_t)(n_k * head_dim));
    rng_fill(&r, s->v, (size_t)(n_k * v_head_dim));
    s->a.q = s->q, s->a.k = s->k, s->a.v = s->v;
    s->a.batch = s->a.heads = 1;
    s->a.n_q = n_q, s->a.n_k = n_k, s->a.head_dim = head_dim, s->a.v_head_dim = v_head_dim;
    s->a.weights = s->a.lse = &s->asked, s->a.masked_rows = &s->counted;
}

static void scene_free(scene *s)
{
    guard_free(s->q);
    guard_free(s->k);
    guard_free(s->v);
}

static answer scene_run(const scene *s, attn_backend backend)
{
    attn_args a = s->a;
    a.backend = backend;
    answer r = answer_of(&a);
    CHECKF(r.status == ATTN_OK, "%s", attn_status_str(r.status));
    return r;
}

static int all_are(const float *x, size_t n, uint32_t bits)
{
    for (size_t i = 0; i < n; i++)
        if (float_bits(x[i]) != bits) return 0;
    return 1;
}

static attn_backend backends[16];
static int n_backends;
#define EACH_BACKEND(be)                                                                                               \
    n_backends = test_all_backends(backends, 16);                                                                     \
    for (int be##_x = 0, be = 0; be##_x < n_backends && (be = backends[be##_x], 1); be##_x++)

/* sizes that take every path: a toy, few rows, a tile with a tail, several chunks, one row over many keys */
static const int sizes[][4] = {{3, 3, 2, 2}, {5, 140, 8, 5}, {29, 300, 16, 19}, {1, 520, 8, 16}, {30, 31, 64, 64}};
enum { SIZES = 5 };

static void test_causal_edge(void)
{
    EACH_BACKEND(be)
        for (int z = 0; z < 3; z++) {
            static const int n_of[] = {7, 40, 150}, step[] = {1, 3, 17};
            int n = n_of[z];
            for (int bad = 0; bad < n; bad += step[z])
                for (int what = 0; what < 2; what++) {
                    scene s;
                    scene_make(&s, n, n, 8, 12, 3);
                    s.a.causal = ATTN_CAUSAL_TOP_LEFT;
                    answer clean = scene_run(&s, be);
                    if (what) s.v[bad * 12 + 5] = bits_float(0xFFC00001u);
                    else s.k[bad * 8 + 3] = bits_float(0xFFC00001u);
                    answer now = scene_run(&s, be);
                    for (int i = 0; i < n; i++) {
                        const float *is = now.out + i * 12, *was = clean.out + i * 12;
                        if (i < bad)
                            CHECKF(same_bits(is, was, 12) &&
                                       same_bits(now.weights + i * n, clean.weights + i * n, (size_t)n),
                                   "%s: row %d of %d knows of key %d", attn_backend_name(be), i, n, bad);
                        else
                            CHECKF(what ? float_bits(is[5]) == QUIET && same_bits(is, was, 5) &&
                                              same_bits(is + 6, was + 6, 6)
                                        : all_are(is, 12, QUIET),
                                   "%s: row %d of %d has lost the NaN of key %d", attn_backend_name(be), i, n, bad);
                    }
                    answer_free(&clean);
                    answer_free(&now);
                    scene_free(&s);
                }
        }
}

static void test_visible_nan(void)
{
    static const uint32_t kinds[] = {0x7FC00000u, 0xFFC00001u, 0x7FA00001u};
    EACH_BACKEND(be)
        for (int z = 0; z < SIZES; z++)
            for (int where = 0; where < 7; where++) {
                int n_q = sizes[z][0], n_k = sizes[z][1], head_dim = sizes[z][2], dv = sizes[z][3];
                int i0 = n_q / 2, j0 = n_k * (where % 3 + 1) / 4, x0 = dv / 2;
                size_t cells = (size_t)(n_q * n_k);
                float nan_here = bits_float(kinds[(z + where) % 3]), *mask = guard_floats(cells), sink = 0.5f,
                      slope = 0.1f;
                scene s;
                scene_make(&s, n_q, n_k, head_dim, dv, 4);
                for (size_t x = 0; x < cells; x++) mask[x] = x % 5 == 2 && (int)x % n_k != j0 ? -INF : 0.0f;
                s.a.mask = mask, s.a.sinks = &sink, s.a.alibi_slopes = &slope;
                answer clean = scene_run(&s, be);
                switch (where) {
                case 0: memcpy(s.q + i0 * head_dim + head_dim / 2, &nan_here, 4); break;
                case 1: memcpy(s.k + j0 * head_dim + head_dim / 2, &nan_here, 4); break;
                case 2: memcpy(s.v + j0 * dv + x0, &nan_here, 4); break;
                case 3: memcpy(mask + i0 * n_k + j0, &nan_here, 4); break;
                case 4: memcpy(&sink, &nan_here, 4); break;
                case 5: memcpy(&slope, &nan_here, 4); break;
                default: mask[i0 * n_k + j0] = INF; break;           /* inf - inf */
                }
                answer now = scene_run(&s, be);
                for (int i = 0; i < n_q; i++) {
                    const float *is = now.out + i * dv, *was = clean.out + i * dv, *p = now.weights + i * n_k;
                    int hit = where == 1 || where == 4 || where == 5 || i == i0, bad = 0;
                    if (where == 2) {
                        CHECKF(float_bits(is[x0]) == QUIET && same_bits(is, was, (size_t)x0) &&
                                   same_bits(is + x0 + 1, was + x0 + 1, (size_t)(dv - x0 - 1)) &&
                                   same_bits(now.lse + i, clean.lse + i, 1) &&
                                   same_bits(p, clean.weights + i * n_k, (size_t)n_k),
                               "%s: NaN in V, row %d of %d x %d", attn_backend_name(be), i, n_q, n_k);
                    } else if (hit) {
                        for (int j = 0; j < n_k; j++)
                            bad += float_bits(p[j]) != (mask[i * n_k + j] == -INF ? 0 : QUIET);
                        CHECKF(all_are(is, (size_t)dv, QUIET) && float_bits(now.lse[i]) == QUIET && bad == 0,
                               "%s: visible NaN %d is lost in row %d of %d x %d: out %08x, lse %08x, %d wrong weights",
                               attn_backend_name(be), where, i, n_q, n_k, float_bits(is[0]), float_bits(now.lse[i]),
                               bad);
                    } else {
                        CHECKF(same_bits(is, was, (size_t)dv) && same_bits(p, clean.weights + i * n_k, (size_t)n_k) &&
                               same_bits(now.lse + i, clean.lse + i, 1),
                               "%s: NaN %d of row %d came into row %d", attn_backend_name(be), where, i0, i);
                    }
                }
                CHECK(now.masked == 0);
                answer_free(&clean);
                answer_free(&now);
                scene_free(&s);
                guard_free(mask);
            }
}

/* Key `loud` takes all the weight: every other p is exactly +0, its V may be anything. */
static void test_underflow(void)
{
    EACH_BACKEND(be)
        for (int z = 0; z < SIZES; z++)
            for (int far = 0; far < 2; far++)
                for (int kind = 0; kind < 4; kind++) {
                    int n_q = sizes[z][0], n_k = sizes[z][1], head_dim = sizes[z][2], dv = sizes[z][3];
                    int loud = far ? n_k - 1 : 0, bad = far ? 0 : n_k - 1;
                    unsigned char *keep = (unsigned char *)guard_alloc((size_t)(n_q * n_k));
                    static const uint32_t kinds[] = {0x7FC00000u, 0xFFA00001u, 0x7F800000u, 0xFF800000u};
                    scene s;
                    scene_make(&s, n_q, n_k, head_dim, dv, 5);
                    for (int i = 0; i < n_q * head_dim; i++) s.q[i] = 1.0f;
                    for (int j = 0; j < n_k; j++)
                        for (int c = 0; c < head_dim; c++) s.k[j * head_dim + c] = j == loud ? 200.0f : -200.0f;
                    for (int i = 0; i < n_q; i++)
                        for (int j = 0; j < n_k; j++) keep[i * n_k + j] = (unsigned char)(j != bad || i % 2 == 0);
                    s.a.keep = keep;
                    answer clean = scene_run(&s, be);
                    float it = bits_float(kinds[kind]);
                    for (int x = 0; x < dv; x += 2) memcpy(s.v + bad * dv + x, &it, 4);
                    answer now = scene_run(&s, be);
                    for (int i = 0; i < n_q; i++)
                        for (int x = 0; x < dv; x++) {
                            uint32_t is = float_bits(now.out[i * dv + x]);
                            uint32_t want = i % 2 == 0 && x % 2 == 0 ? QUIET : float_bits(clean.out[i * dv + x]);
                            CHECKF(is == want, "%s: 0 * %08x in row %d, column %d of %d x %d: %08x, not %08x",
                                   attn_backend_name(be), kinds[kind], i, x, n_q, n_k, is, want);
                            CHECK(float_bits(clean.out[i * dv + x]) == float_bits(s.v[loud * dv + x]));
                        }
                    CHECK(float_bits(now.weights[bad]) == 0 && now.weights[loud] == 1.0f);
                    answer_free(&clean);
                    answer_free(&now);
                    scene_free(&s);
                    guard_free(keep);
                }
}

/* The visible product underflows to -0; the hidden one is positive and would change the sum to +0. */
static void test_minus_zero(void)
{
    EACH_BACKEND(be)
        for (int z = 0; z < SIZES; z++)
            for (int kind = 0; kind < 5; kind++) {
                static const uint32_t hidden[] = {0x3F800000u, 0xBF800000u, 0x7FC00000u, 0x7F800000u, 0x80000001u};
                int n_q = sizes[z][0], n_k = sizes[z][1], head_dim = sizes[z][2], dv = sizes[z][3];
                unsigned char *keep = (unsigned char *)guard_alloc((size_t)(n_q * n_k));
                scene s;
                scene_make(&s, n_q, n_k, head_dim, dv, 6);
                memset(s.k, 0, (size_t)(n_k * head_dim) * 4);
                for (int i = 0; i < n_q; i++)
                    for (int j = 0; j < n_k; j++) keep[i * n_k + j] = (unsigned char)(j % 3 != 1);
                for (int j = 0; j < n_k; j++)
                    for (int x = 0; x < dv; x++) {
                        float it = bits_float(j % 3 == 1 ? hidden[kind] : x % 2 ? 0x80000001u : 0x80000000u);
                        memcpy(s.v + j * dv + x, &it, 4);
                    }
                s.a.keep = keep;
                answer now = scene_run(&s, be);
                for (int x = 0; x < n_q * dv && n_k < 128; x++)      /* in one chunk p * -tiny rounds to -0 or -tiny */
                    CHECKF(float_bits(now.out[x]) != 0x80000000u, "%s: -0 was stored", attn_backend_name(be));
                for (int i = 0; i < n_q; i++)
                    for (int x = 0; x < dv; x += 2)
                        CHECKF(float_bits(now.out[i * dv + x]) == 0, "%s: sum of -0 is %08x in row %d of %d x %d",
                               attn_backend_name(be), float_bits(now.out[i * dv + x]), i, n_q, n_k);
                answer_free(&now);
                scene_free(&s);
                guard_free(keep);
            }
}

/* Visible scores of -inf: from overflow, in one chunk, in all, with and without a sink. */
static void test_minus_infinity(void)
{
    EACH_BACKEND(be)
        for (int rows = 1; rows <= 29; rows += 28)
            for (int dead = 0; dead < 8; dead++) {                    /* which of the three chunks are at -inf */
                int n_k = 300, head_dim = 8, dv = 9;
                unsigned char *keep = (unsigned char *)guard_alloc((size_t)n_k);
                scene s;
                scene_make(&s, rows, n_k, head_dim, dv, 7);
                for (int i = 0; i < rows * head_dim; i++) s.q[i] = 1e30f;
                for (int j = 0; j < n_k; j++) {
                    keep[j] = (unsigned char)!(dead >> j / 128 & 1);
                    for (int c = 0; c < head_dim; c++)
                        s.k[j * head_dim + c] = keep[j] ? 1e-30f * s.k[j * head_dim + c] : -1e30f;
                }
                answer now = scene_run(&s, be);
                s.a.keep = keep, s.a.keep_shape[0] = s.a.keep_shape[1] = s.a.keep_shape[2] = 1;
                answer hidden = scene_run(&s, be);
                if (dead != 7) {
                    CHECKF(answer_same(&now, &hidden), "%s: chunks %d at -inf are not as if hidden",
                           attn_backend_name(be), dead);
                    CHECK(now.masked == 0 && now.out[0] == now.out[0]);
                } else {
                    CHECKF(all_are(now.out, now.n_out, QUIET) && all_are(now.weights, now.n_weights, QUIET) &&
                               all_are(now.lse, now.n_lse, 0xFF800000u) && now.masked == 0,
                           "%s: a row that sees only -inf: out %08x, weight %08x, lse %08x, %lu masked",
                           attn_backend_name(be), float_bits(now.out[0]), float_bits(now.weights[0]),
                           float_bits(now.lse[0]), (unsigned long)now.masked);
                    CHECKF(all_are(hidden.out, now.n_out, 0) && all_are(hidden.weights, now.n_weights, 0) &&
                           all_are(hidden.lse, now.n_lse, 0xFF800000u) && hidden.masked == (size_t)rows,
                           "%s: an empty row beside it: out %08x, %lu masked", attn_backend_name(be),
                           float_bits(hidden.out[0]), (unsigned long)hidden.masked);
                    float sink = 0.25f;
                    s.a.keep = NULL, s.a.sinks = &sink;
                    memset(s.a.keep_shape, 0, sizeof s.a.keep_shape);
                    answer sunk = scene_run(&s, be);
                    CHECKF(all_are(sunk.out, now.n_out, 0) && all_are(sunk.weights, now.n_weights, 0) &&
                               all_are(sunk.lse, now.n_lse, float_bits(sink)),
                           "%s: only a sink has weight: out %08x, lse %08x", attn_backend_name(be),
                           float_bits(sunk.out[0]), float_bits(sunk.lse[0]));
                    answer_free(&sunk);
                    sink = -INF;                                      /* a sink of -inf counts as absent */
                    sunk = scene_run(&s, be);
                    CHECKF(answer_same(&sunk, &now), "%s: a sink of -inf in a row at -inf: out %08x, lse %08x",
                           attn_backend_name(be), float_bits(sunk.out[0]), float_bits(sunk.lse[0]));
                    answer_free(&sunk);
                }
                answer_free(&now);
                answer_free(&hidden);
                scene_free(&s);
                guard_free(keep);
            }
}

/* Each way to hide every key, separately; K and V are NaN wherever possible. */
static const char *const ways[] = {"mask",          "keep",
                                   "bias",          "causal",
                                   "window left",   "window right",
                                   "k_lengths",     "k_starts",
                                   "mask and keep", "causal and window",
                                   "n_k",           "keep and k_lengths",
                                   "bias and mask", "k_cum"};
enum { WAYS = 14 };

static void test_empty(void)
{
    EACH_BACKEND(be)
        for (int z = 0; z < SIZES; z++)
            for (int way = 0; way < WAYS; way++)
                for (int sunk = 0; sunk < 2; sunk++) {
                    int n_q = sizes[z][0], n_k = sizes[z][1], head_dim = sizes[z][2], dv = sizes[z][3],
                        start = n_k;
                    int zero = 0, third = n_k / 3, none[2] = {0, 0};
                    size_t cells = (size_t)(n_q * n_k);
                    float *mask = guard_floats(cells), *bias = guard_floats(cells), sink = 1.0f;
                    unsigned char *keep = (unsigned char *)guard_alloc(cells);
                    scene s;
                    scene_make(&s, n_q, n_k, head_dim, dv, 8);
                    for (int x = 0; x < n_k * head_dim; x++) s.k[x] = bits_float(0x7FC00001u);
                    for (int x = 0; x < n_k * dv; x++) s.v[x] = x % 2 ? INF : bits_float(0xFFC00000u);
                    for (size_t x = 0; x < cells; x++) {
                        int half = (int)x % n_k % 2;
                        int m = way == 0 || (way == 8 && half) || (way == 12 && half),
                            k = way == 1 || (way == 8 && !half);
                        mask[x] = m ? -INF : bits_float(0x7FC00000u);
                        bias[x] = way == 2 || (way == 12 && !half) ? -INF : bits_float(0x7F800000u);
                        keep[x] = (unsigned char)!(k || (way == 11 && (int)x % n_k < third));
                    }
                    if (way == 0 || way == 8 || way == 12) s.a.mask = mask;
                    if (way == 1 || way == 8 || way == 11) s.a.keep = keep;
                    if (way == 2 || way == 12) s.a.bias = bias;
                    if (way == 3 || way == 9) s.a.causal = ATTN_CAUSAL_TOP_LEFT, s.a.q_pos = -n_q;
                    if (way == 4) s.a.window_left = 2, s.a.q_pos = n_k + 1;
                    if (way == 5) s.a.window_right = 1, s.a.q_pos = -n_q;
                    if (way == 6) s.a.k_lengths = &zero;
                    if (way == 7) s.a.k_starts = &start, s.a.k_lengths = &zero;
                    if (way == 9) s.a.window_left = 1;
                    if (way == 10) s.a.n_k = 0;
                    if (way == 11) s.a.k_lengths = &third;
                    if (way == 13) s.a.k_cum = none;
                    if (sunk) s.a.sinks = &sink;
                    answer now = scene_run(&s, be);
                    CHECKF(all_are(now.out, now.n_out, 0) && all_are(now.weights, now.n_weights, 0) &&
                               all_are(now.lse, now.n_lse, 0xFF800000u) && now.masked == (size_t)n_q,
                           "%s: empty by %s, %d x %d, sink %d: out %08x, lse %08x, %lu masked", attn_backend_name(be),
                           ways[way], n_q, n_k, sunk, float_bits(now.out[0]), float_bits(now.lse[0]),
                           (unsigned long)now.masked);
                    answer_free(&now);
                    scene_free(&s);
                    guard_free(mask);
                    guard_free(bias);
                    guard_free(keep);
                }
}

/* masked_rows counts (entry, head, row) triples and no padded rows */
static void test_count(void)
{
    EACH_BACKEND(be) {
        enum { B = 3, H = 4, N = 7, D = 8 };
        static float q[B * N * H * D], k[B * N * H * D], v[B * N * H * D];
        static unsigned char keep[B * H * N * N];
        int rows[B] = {7, 4, 0};
        size_t counted, want = 0;
        attn_args a;
        memset(&a, 0, sizeof a);
        memset(q, 0, sizeof q);
        a.q = q, a.k = k, a.v = v, a.batch = B, a.heads = H, a.n_q = a.n_k = N, a.head_dim = D, a.backend = be;
        a.keep = keep, a.keep_shape[0] = B, a.keep_shape[1] = H, a.keep_shape[2] = N, a.q_lengths = rows;
        a.masked_rows = &counted;
        for (int x = 0; x < B * H * N; x++) {
            int b = x / N / H, i = x % N, empty = (x * 7 + x / 3) % 4 == 0;
            memset(keep + x * N, empty ? 0 : 1, N);
            want += (size_t)(empty && i < rows[b]);
        }
        answer now = answer_of(&a);
        CHECKF(now.status == ATTN_OK && now.masked == want && want > 5, "%s: %lu masked rows, not %lu",
               attn_backend_name(be), (unsigned long)now.masked, (unsigned long)want);
        answer_free(&now);
    }
}

/* -FLT_MAX and -1e9 are ordinary numbers: a row of them is a row of equals */
static void test_finite(void)
{
    EACH_BACKEND(be)
        for (int z = 0; z < SIZES; z++)
            for (int kind = 0; kind < 2; kind++) {
                int n_q = sizes[z][0], n_k = sizes[z][1], head_dim = sizes[z][2], dv = sizes[z][3];
                size_t cells = (size_t)(n_q * n_k);
                float *mask = guard_floats(cells), most_negative = bits_float(0xFF7FFFFFu);
                scene s;
                scene_make(&s, n_q, n_k, head_dim, dv, 9);
                for (size_t x = 0; x < cells; x++) mask[x] = kind ? -1e9f : most_negative;
                s.a.mask = mask;
                answer now = scene_run(&s, be);
                CHECK(now.masked == 0);
                for (size_t x = 0; x < cells; x++)                    /* scores are below 32, half an ulp of 1e9 */
                    CHECKF(fabs((double)now.weights[x] * n_k - 1.0) < 1e-6, "%s: weight %g of %d keys at %g",
                           attn_backend_name(be), (double)now.weights[x], n_k, (double)mask[0]);
                for (int i = 0; i < n_q; i++)
                    for (int x = 0; x < dv; x++) {
                        double mean = 0.0;
                        for (int j = 0; j < n_k; j++) mean += (double)s.v[j * dv + x] / n_k;
                        CHECKF(fabs((double)now.out[i * dv + x] - mean) < 1e-5, "%s: %g is not the mean %g",
                               attn_backend_name(be), (double)now.out[i * dv + x], mean);
                    }
                answer_free(&now);
                scene_free(&s);
                guard_free(mask);
            }
}

/* Four chunks; row r sees the chunks whose bits are set in r % 16, and inside them not every key. */
static void test_chunks(void)
{
    EACH_BACKEND(be)
        for (int causal = 0; causal < 2; causal++)
            for (int bad = 0; bad < 4; bad++)
                for (int what = 0; what < 3; what++) {
                    int n_q = 48, n_k = 400, head_dim = 8, dv = 16;
                    unsigned char *keep = (unsigned char *)guard_alloc((size_t)(n_q * n_k));
                    scene s;
                    scene_make(&s, n_q, n_k, head_dim, dv, 10);
                    for (int i = 0; i < n_q; i++)
                        for (int j = 0; j < n_k; j++)
                            keep[i * n_k + j] =
                                (unsigned char)((i % 16 >> j / 128 & 1) && (i < 16 || (i * 31 + j * 7) % 5 != 0));
                    s.a.keep = keep;
                    if (causal) s.a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
                    answer clean = scene_run(&s, be);
                    for (int j = bad * 128; j < n_k && j < bad * 128 + 128; j++) {
                        for (int c = 0; c < head_dim && what != 1; c++)
                            s.k[j * head_dim + c] = c % 2 ? INF : bits_float(QUIET);
                        for (int x = 0; x < dv && what != 0; x++) s.v[j * dv + x] = x % 2 ? -INF : bits_float(QUIET);
                    }
                    answer now = scene_run(&s, be);
                    for (int i = 0; i < n_q; i++) {
                        int sees = 0;
                        for (int j = bad * 128; j < n_k && j < bad * 128 + 128; j++)
                            sees |= keep[i * n_k + j] && (!causal || j <= i + n_k - n_q);
                        if (!sees)
                            CHECKF(same_bits(now.out + i * dv, clean.out + i * dv, (size_t)dv) &&
                                   same_bits(now.lse + i, clean.lse + i, 1) &&
                                   same_bits(now.weights + i * n_k, clean.weights + i * n_k, (size_t)n_k),
                                   "%s: row %d does not see chunk %d and moved", attn_backend_name(be), i, bad);
                        else
                            CHECKF(float_bits(now.out[i * dv]) == QUIET, "%s: row %d lost the NaN of chunk %d",
                                   attn_backend_name(be), i, bad);
                    }
                    CHECK(now.masked == clean.masked &&
                          now.masked == (causal ? 5u : 3u)); /* rows 8 and 24 see the last chunk late */
                    answer_free(&clean);
                    answer_free(&now);
                    scene_free(&s);
                    guard_free(keep);
                }
}

/* ---- 9  keys that were never written ------------------------------------------------------------------------- */

enum { RAW_DIM = 20, RAW_HEADS = 4, RAW_KV = 2, RAW_KEYS = 300, RAW_ROWS = 130 };

/* The array that hides: keep bytes for each row or for all rows, a mask for each head, a bias for each row. */
enum { RAW_KEEP, RAW_KEEP_ALL, RAW_MASK_HEADS, RAW_BIAS, RAW_KINDS };

/* Draws which rows see which keys. For K/V head g, needed[g][j] is 1 if some row of its heads sees key j. */
static void raw_draw(rng *r, int kind, int n_q, int n_k, unsigned char *sees, unsigned char (*needed)[RAW_KEYS])
{
    const int group = RAW_HEADS / RAW_KV, all_alike = kind == RAW_KEEP_ALL, by_head = kind == RAW_MASK_HEADS;
    const int how = rng_int(r, 0, 3);
    memset(needed, 0, RAW_KV * sizeof *needed);
    for (int h = 0; h < RAW_HEADS; h++)
        for (int i = 0; i < n_q; i++)
            for (int j = 0; j < n_k; j++) {
                unsigned char *cell = sees + (h * n_q + i) * n_k + j;
                int hole = how == 0   ? j % 5 == 2
                           : how == 1 ? j >= n_k * 2 / 3
                           : how == 2 ? j / 40 % 2 == 0
                                      : j % 16 < 5;
                if (by_head && h / group == 1) hole = j % 3 == 1;
                *cell = !hole && rng_int(r, 0, 3) > 0;
                if (i > 0 && all_alike) *cell = cell[-n_k];
                if (h > 0 && !by_head) *cell = cell[-n_q * n_k];
                needed[h / group][j] |= *cell;
            }
}

/* The call over K and V of which only needed rows were ever written, against the same with zeros there. */
static void raw_call(rng *r, int kind, int n_q, int n_k, int cached, attn_backend backend)
{
    static unsigned char sees[RAW_HEADS * RAW_ROWS * RAW_KEYS], needed[RAW_KV][RAW_KEYS];
    static float cells[RAW_HEADS * RAW_ROWS * RAW_KEYS], q[RAW_ROWS * RAW_HEADS * RAW_DIM];
    const size_t n = (size_t)n_k * RAW_KV * RAW_DIM;
    answer raw, zero;
    raw_draw(r, kind, n_q, n_k, sees, needed);
    for (int x = 0; x < RAW_HEADS * n_q * n_k; x++) cells[x] = sees[x] ? 0.25f : -INF;
    rng_fill(r, q, (size_t)(n_q * RAW_HEADS * RAW_DIM));
    rng values = *r;
    for (int zeros = 0; zeros < 2; zeros++) {
        float *k = (float *)malloc(n * sizeof *k), *v = (float *)malloc(n * sizeof *v);
        attn_kv kv;
        attn_args a;
        if (!k || !v) exit(3);
        if (zeros) memset(k, 0, n * sizeof *k), memset(v, 0, n * sizeof *v);
        rng again = values;
        for (int j = 0; j < n_k; j++)
            for (int g = 0; g < RAW_KV; g++)
                if (needed[g][j]) {
                    rng_fill(&again, k + (j * RAW_KV + g) * RAW_DIM, RAW_DIM);
                    rng_fill(&again, v + (j * RAW_KV + g) * RAW_DIM, RAW_DIM);
                    if (j % 50 == 3) v[(j * RAW_KV + g) * RAW_DIM] = INF;       /* so that V is scanned */
                }
        memset(&a, 0, sizeof a);
        a.q = q, a.k = k, a.v = v, a.batch = 1, a.n_q = n_q, a.n_k = n_k, a.head_dim = RAW_DIM;
        a.heads = RAW_HEADS, a.kv_heads = RAW_KV, a.backend = backend;
        if (kind == RAW_KEEP || kind == RAW_KEEP_ALL) a.keep = sees;
        if (kind == RAW_KEEP_ALL) a.keep_shape[0] = a.keep_shape[1] = a.keep_shape[2] = 1;
        if (kind == RAW_MASK_HEADS)
            a.mask = cells, a.mask_shape[0] = 1, a.mask_shape[1] = RAW_HEADS, a.mask_shape[2] = n_q;
        if (kind == RAW_BIAS) a.bias = cells, a.bias_shape[0] = a.bias_shape[1] = 1, a.bias_shape[2] = n_q;
        if (cached) {
            attn_kv_args make;
            memset(&make, 0, sizeof make);
            make.batch = 1, make.kv_heads = RAW_KV, make.head_dim = RAW_DIM, make.capacity = n_k;
            CHECK(attn_kv_init(&kv, &make) == ATTN_OK && attn_kv_append(&kv, -1, k, v, n_k, 0) == ATTN_OK);
            a.k = a.v = NULL, a.kv = &kv;
        }
        *(zeros ? &zero : &raw) = answer_of(&a);
        if (cached) attn_kv_free(&kv);
        free(k);
        free(v);
    }
    CHECKF(raw.status == ATTN_OK && answer_same(&raw, &zero), "%d x %d, %s, %s: other bits than over zeros",
           n_q, n_k, cached ? "cache" : "rows", attn_backend_name(backend));
    answer_free(&raw);
    answer_free(&zero);
}

/* Valgrind and the memory sanitizer stop here when a hidden K or V reaches a branch or a result. */
static void test_unwritten(void)
{
    static const int rows[] = {1, 3, 4, 5, 9, 20, 21, 47, 130};
    attn_backend list[16];
    rng r = rng_make(test_seed + 77);
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
    const int sse2 = 0;                       /* the sanitizer counts its inline assembly as a use */
#else
    const int sse2 = 1;
#endif
#else
    const int sse2 = 1;
#endif
    int n = sse2 ? test_all_backends(list, 16) : test_one_answer_backends(list, 16);
    for (int y = 0; y < n; y++)
        for (size_t x = 0; x < sizeof rows / sizeof *rows; x++)
            for (int kind = 0; kind < RAW_KINDS; kind++)
                for (int cached = 0; cached < 2; cached++)
                    raw_call(&r, kind, rows[x], rng_int(&r, 1, RAW_KEYS), cached, list[y]);
}

SUITE(poison) = {
    {"random", test_random, "anything hidden from a row that reaches it, in any combination of features"},
    {"causal edge", test_causal_edge,
     "V or K of the next key used for the row before it; a NaN lost at the diagonal"},
    {"visible NaN", test_visible_nan,
     "a max or select that drops a NaN that the row sees; a NaN stored with a payload"},
    {"underflow", test_underflow, "a visible key skipped because its p is 0; 0 * hidden NaN added"},
    {"minus zero", test_minus_zero, "-0 stored, or its sign decided by a hidden key"},
    {"minus infinity", test_minus_infinity, "a chunk at -inf folded as NaN; rows with only -inf treated as empty"},
    {"empty", test_empty, "a row that sees nothing is NaN, or not counted, for some kind of mask"},
    {"count", test_count, "masked_rows that counts padded rows, or once for all heads"},
    {"finite", test_finite, "-1e9 or -FLT_MAX treated as hidden"},
    {"chunks", test_chunks, "a hidden chunk folded (first, middle, last), or a NaN chunk not selected per row"},
    {"unwritten", test_unwritten, "V or K of hidden keys read: a branch on it, a product with it"},
    {0},
};
