/* test_shared.c: entries that read the same keys go through them together (section 8 of attn.h). Other readers of the
 * same keys must not change a bit of an entry's results: each entry of a batch is compared with a separate call. */
#include "test.h"

/* ---- 1  random calls over k_map and over caches whose entries have pages in common ------------------------------ */

enum { MOST = 24, KEYS = 420, DIMS = 70 };

typedef struct call {
    rng r;
    attn_args a;
    attn_kv kv;
    int map[MOST], starts[MOST], lengths[MOST], rows[MOST], pos[MOST];
    attn_exec exec;
    float *owned[40];
    int n_owned;
} call;

static float *room(call *t, size_t n)
{
    float *x = guard_floats(n ? n : 1);
    t->owned[t->n_owned++] = x;
    return x;
}

static float *floats(call *t, size_t n)
{
    float *x = room(t, n);
    rng_fill(&t->r, x, n);
    return x;
}

static int flip(call *t, int in) { return rng_int(&t->r, 1, in) == 1; }

/* Rows for an append; rows that a later truncate removes are poison, which no row may see. */
static void append(call *t, int entry, int n, int poison)
{
    const attn_kv_args *how = &t->kv.shape;
    const size_t k_row = (size_t)how->kv_heads * (size_t)how->head_dim;
    const size_t v_row = (size_t)how->kv_heads * (size_t)how->v_head_dim;
    const size_t all = (size_t)n;
    float *k = guard_floats(all * k_row + 1), *v = guard_floats(all * v_row + 1);
    rng_fill(&t->r, k, all * k_row);
    rng_fill(&t->r, v, all * v_row);
    for (size_t i = 0; poison && i < all * v_row; i++) v[i] = bits_float(0x7FC12345u);
    for (size_t i = 0; poison && i < all * k_row; i++) k[i] = INFINITY;
    CHECK(attn_kv_append(&t->kv, entry, k, v, n, 0) == ATTN_OK);
    guard_free(k);
    guard_free(v);
}

/* A tree of beginnings: some entries grow, others become copies of them, are truncated, or forget. */
static void grow(call *t, int batch)
{
    attn_kv_args how = t->kv.shape;
    how.batch = batch, how.capacity = KEYS;
    how.k_storage = how.v_storage = (attn_storage)rng_int(&t->r, 0, 3);
    CHECK(attn_kv_init(&t->kv, &how) == ATTN_OK);
    append(t, 0, rng_int(&t->r, 1, 300), 0);
    for (int b = 1; b < batch; b++)
        CHECK(attn_kv_copy(&t->kv, b, 0, t->kv.lengths[0] - (flip(t, 3) ? rng_int(&t->r, 0, t->kv.lengths[0]) : 0)) ==
              ATTN_OK);
    for (int n = rng_int(&t->r, 0, 3 * batch); n > 0; n--) {
        const int b = rng_int(&t->r, 0, batch - 1), from = rng_int(&t->r, 0, batch - 1);
        const int room = KEYS - t->kv.lengths[b], add = rng_int(&t->r, 0, room < 40 ? room : 40);
        switch (rng_int(&t->r, 0, 5)) {
        case 0: if (from != b) CHECK(attn_kv_copy(&t->kv, b, from, t->kv.lengths[from]) == ATTN_OK); break;
        case 1: append(t, b, add, 1), CHECK(attn_kv_truncate(&t->kv, b, t->kv.lengths[b] - add) == ATTN_OK); break;
        case 2: append(t, b, room, 0); break;
        default: append(t, b, add, 0); break;
        }
    }
    /* two entries with the same pages, one of them shorter: the memory after its keys is not finite */
    if (batch > 2 && flip(t, 2) && t->kv.lengths[0] + 20 <= KEYS) {
        append(t, 0, 20, 1);
        CHECK(attn_kv_copy(&t->kv, 1, 0, t->kv.lengths[0] - 20) == ATTN_OK);
    }
    if (flip(t, 4)) (void)attn_kv_forget(&t->kv, -1, flip(t, 2) ? 128 : 0, 256);
    if (flip(t, 4)) (void)attn_kv_forget(&t->kv, rng_int(&t->r, 0, batch - 1), 0, 128);
}

/* Entries, their keys, and the keys that a row sees. */
static void make(call *t, uint64_t seed)
{
    attn_args *a = &t->a;
    attn_backend list[16];
    int group, n;
    memset(t, 0, sizeof *t);
    t->r = rng_make(seed);
    n = test_all_backends(list, 16);
    *a = attn_args_for(rng_int(&t->r, 2, MOST), flip(t, 2) ? 1 : rng_int(&t->r, 1, 9), 0, 1,
                       rng_int(&t->r, 1, DIMS));
    group = rng_int(&t->r, 1, 5), a->kv_heads = rng_int(&t->r, 1, 4), a->heads = group * a->kv_heads;
    a->v_head_dim = flip(t, 2) ? a->head_dim : rng_int(&t->r, 1, DIMS);
    a->backend = list[seed % (uint64_t)n];
    if (flip(t, 3)) t->exec = test_exec(rng_int(&t->r, 2, 6)), a->exec = &t->exec;
    if (flip(t, 3)) {                                       /* rows of K and V, by k_map */
        a->k_batch = rng_int(&t->r, 1, 3), a->n_k = rng_int(&t->r, 1, KEYS);
        a->layout = flip(t, 2) ? ATTN_BHSD : ATTN_BSHD;
        n = a->k_batch * a->n_k * a->kv_heads;
        a->k = floats(t, (size_t)n * (size_t)a->head_dim), a->v = floats(t, (size_t)n * (size_t)a->v_head_dim);
        a->k_map = t->map;
        for (int b = 0; b < a->batch; b++) t->map[b] = rng_int(&t->r, 0, a->k_batch - 1);
        if (flip(t, 3)) a->k_starts = t->starts;
        for (int b = 0; b < a->batch; b++) t->starts[b] = flip(t, 2) ? 0 : rng_int(&t->r, 0, a->n_k < 5 ? a->n_k : 5);
    } else {
        t->kv.shape.kv_heads = a->kv_heads, t->kv.shape.head_dim = a->head_dim;
        t->kv.shape.v_head_dim = a->v_head_dim;
        grow(t, a->batch);
        a->kv = &t->kv;
        if (flip(t, 3)) a->k_map = t->map;
        for (int b = 0; b < a->batch; b++) t->map[b] = rng_int(&t->r, 0, a->batch - 1);
        for (int b = 0; b < a->batch; b++) if (t->kv.lengths[b] > a->n_k) a->n_k = t->kv.lengths[b];
    }
    if (flip(t, 3)) a->k_lengths = t->lengths;
    for (int b = 0; b < a->batch; b++) {
        const int from = a->k_map ? t->map[b] : b;
        const int most = a->kv ? t->kv.lengths[from] : a->n_k - (a->k_starts ? t->starts[b] : 0);
        t->lengths[b] = flip(t, 2) ? most : rng_int(&t->r, 0, most);
    }
    if (a->kv && a->k_lengths && (t->kv.gaps[0] || t->kv.gaps[1] || flip(t, 2))) a->k_lengths = NULL;
    a->q = floats(t, (size_t)(a->batch * a->n_q * a->heads * a->head_dim));
}

static void describe(call *t)
{
    attn_args *a = &t->a;
    const int cells = a->n_q * a->n_k;
    if (flip(t, 3)) a->causal = flip(t, 2) ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_BOTTOM_RIGHT;
    if (flip(t, 4)) a->window_left = rng_int(&t->r, 1, 150), a->align = a->causal ? 0 : ATTN_ALIGN_BOTTOM_RIGHT;
    if (flip(t, 3)) a->q_pos_each = t->pos;
    if (flip(t, 4)) a->q_lengths = t->rows;
    for (int b = 0; b < a->batch; b++) {
        t->pos[b] = rng_int(&t->r, 0, 200);
        t->rows[b] = flip(t, 3) ? rng_int(&t->r, 0, a->n_q) : a->n_q;
    }
    if (flip(t, 3)) {                                       /* a mask for each entry, sometimes for each head and row */
        a->mask_shape[0] = flip(t, 3) ? 1 : a->batch, a->mask_shape[1] = flip(t, 2) ? a->heads : 1;
        a->mask_shape[2] = flip(t, 2) ? a->n_q : 1;
        const size_t n = (size_t)(a->mask_shape[0] * a->mask_shape[1] * a->mask_shape[2] * a->n_k);
        float *mask = floats(t, n);
        const int dense = rng_int(&t->r, 0, 3);
        for (size_t i = 0; i < n; i++)
            if (dense < 3 && rng_int(&t->r, 0, dense == 0 ? 40 : 2) > (dense == 2)) mask[i] = -INFINITY;
        a->mask = mask;
    }
    if (flip(t, 4)) {
        unsigned char *keep = (unsigned char *)floats(t, (size_t)(a->batch * cells) / 4 + 1);
        for (int i = 0; i < a->batch * cells; i++) keep[i] = !flip(t, 3);
        a->keep = keep, a->keep_shape[0] = a->batch, a->keep_shape[1] = 1, a->keep_shape[2] = a->n_q;
    }
    if (flip(t, 4)) a->alibi_slopes = floats(t, (size_t)a->heads);
    if (flip(t, 4)) {
        a->rel_extent = rng_int(&t->r, 0, 200);
        a->rel_bias = floats(t, (size_t)(a->heads * (2 * a->rel_extent + 1)));
    }
    if (flip(t, 4)) a->sinks = floats(t, (size_t)a->heads);
    if (flip(t, 4)) a->softcap = 5.0f;
    if (flip(t, 4)) a->carry_in = NULL;
}

/* One entry separately: all arrays indexed by entry are advanced to it. */
static attn_args alone(const attn_args *a, int b, int *map)
{
    attn_args one = *a;
    const ptrdiff_t row = (ptrdiff_t)a->heads * a->n_q;
    *map = a->k_map ? a->k_map[b] : b;
    one.batch = 1, one.k_map = map, one.q += b * row * a->head_dim, one.exec = NULL;
    if (!a->kv) one.k_batch = a->k_batch;
    if (a->k_starts) one.k_starts += b;
    if (a->k_lengths) one.k_lengths += b;
    if (a->q_lengths) one.q_lengths += b;
    if (a->q_pos_each) one.q_pos_each += b;
    if (a->mask && a->mask_shape[0] > 1) one.mask_shape[0] = 1,
        one.mask += (ptrdiff_t)b * a->mask_shape[1] * a->mask_shape[2] * a->n_k;
    if (a->keep) one.keep_shape[0] = 1, one.keep += (ptrdiff_t)b * a->n_q * a->n_k;
    return one;
}

static void random_company(void)
{
    for (int i = 0; i < 40 * test_scale && !test_failed(); i++) {
        const uint64_t seed = test_seed * 1000003u + (uint64_t)i;
        call t;
        size_t masked = 0, sum = 0, n_out, n_weights, n_lse;
        float *out, *weights = NULL, *lse;
        int map;
        make(&t, seed);
        describe(&t);
        attn_args *a = &t.a;
        const size_t rows = (size_t)(a->heads * a->n_q);
        n_out = rows * (size_t)a->v_head_dim, n_lse = rows, n_weights = rows * (size_t)a->n_k;
        out = floats(&t, n_out * (size_t)a->batch), lse = floats(&t, n_lse * (size_t)a->batch);
        a->out = out, a->lse = lse, a->masked_rows = &masked;
        if (flip(&t, 3)) {
            a->weights = weights = floats(&t, n_weights * (size_t)a->batch);
            a->weights_stage = (attn_stage)rng_int(&t.r, 0, 3);
        }
        CHECKF(attn_sdpa(a) == ATTN_OK, "seed %llu: %s", (unsigned long long)seed, refusal_text());
        for (int b = 0; b < a->batch && !test_failed(); b++) {
            attn_args one = alone(a, b, &map);
            float *w = weights ? guard_floats(n_weights) : NULL;
            float *o = guard_floats(n_out), *l = guard_floats(n_lse);
            size_t empty = 0;
            one.out = o, one.lse = l, one.weights = w, one.masked_rows = &empty;
            CHECKF(attn_sdpa(&one) == ATTN_OK, "seed %llu, entry %d: %s", (unsigned long long)seed, b, refusal_text());
            sum += empty;
            CHECKF(same_bits(out + (size_t)b * n_out, o, n_out), "seed %llu: out of entry %d of %d changes with who "
                   "reads beside it (%s)", (unsigned long long)seed, b, a->batch, attn_backend_name(a->backend));
            CHECKF(same_bits(lse + (size_t)b * n_lse, l, n_lse), "seed %llu: lse of entry %d",
                   (unsigned long long)seed, b);
            CHECKF(!w || same_bits(weights + (size_t)b * n_weights, w, n_weights), "seed %llu: weights of entry %d",
                   (unsigned long long)seed, b);
            guard_free(o);
            guard_free(l);
            guard_free(w);
        }
        CHECKF(sum == masked, "seed %llu: %d empty rows in all, %d one by one", (unsigned long long)seed, (int)masked,
               (int)sum);
        for (int x = 0; x < t.n_owned; x++) guard_free(t.owned[x]);
        if (a->kv) attn_kv_free(&t.kv);
    }
}

/* ---- 2  copies that diverge after a page ------------------------------------------------------------------------- */

/* Entries that share only their first pages: each is compared with a separate cache that has the same keys. */
enum { DIVERGING = 9 };

typedef struct diverging {
    call t;
    attn_kv own[DIVERGING];
    float *k[DIVERGING], *v[DIVERGING];   /* the rows of each entry */
} diverging;

/* Appends n rows to an entry, and stores them. Now and then a value of one head is not finite. */
static void extend(diverging *d, int entry, int n, int odd)
{
    call *t = &d->t;
    const size_t k_row = (size_t)(t->a.kv_heads * t->a.head_dim), v_row = (size_t)(t->a.kv_heads * t->a.v_head_dim);
    const size_t at = (size_t)t->kv.lengths[entry], all = (size_t)n;
    float *k = d->k[entry] + at * k_row, *v = d->v[entry] + at * v_row;
    rng_fill(&t->r, k, all * k_row);
    if (t->kv.shape.v_in_k) {             /* values are the front of the keys */
        for (size_t i = 0; i < all * (size_t)t->a.kv_heads; i++)
            memcpy(v + i * (size_t)t->a.v_head_dim, k + i * (size_t)t->a.head_dim, (size_t)t->a.v_head_dim * sizeof *v);
    } else {
        rng_fill(&t->r, v, all * v_row);
        if (odd && n > 0) v[rng_u32(&t->r) % (all * v_row)] = flip(t, 2) ? NAN : INFINITY;
    }
    CHECKF(attn_kv_append(&t->kv, entry, k, t->kv.shape.v_in_k ? NULL : v, n, 0) == ATTN_OK, "%s", refusal_text());
}

/* Lets `to` begin with the first n keys of `from`, and share their pages. */
static void follow(diverging *d, int to, int from, int n)
{
    const attn_args *a = &d->t.a;
    const size_t all = (size_t)(n * a->kv_heads);
    memcpy(d->k[to], d->k[from], all * (size_t)a->head_dim * sizeof(float));
    memcpy(d->v[to], d->v[from], all * (size_t)a->v_head_dim * sizeof(float));
    CHECK(attn_kv_copy(&d->t.kv, to, from, n) == ATTN_OK);
}

static void diverge(diverging *d, uint64_t seed)
{
    static const int each[] = {1, 1, 2, 3, 17};
    call *t = &d->t;
    attn_args *a = &t->a;
    attn_kv_args how;
    attn_backend list[16];
    memset(d, 0, sizeof *d);
    t->r = rng_make(seed);
    const int n = test_all_backends(list, 16), wide = flip(t, 3);
    *a = attn_args_for(rng_int(&t->r, 2, DIVERGING), each[rng_int(&t->r, 0, 4)], 0, 1,
                       rng_int(&t->r, 1, wide ? 12 : 40));
    a->backend = list[seed % (uint64_t)(n > 1 ? n - 1 : 1)];        /* the last is scalar, which shares no blocks */
    a->kv_heads = rng_int(&t->r, 1, wide ? 14 : 4), a->heads = a->kv_heads * (flip(t, 2) ? 1 : rng_int(&t->r, 2, 4));
    a->v_head_dim = flip(t, 2) ? a->head_dim : rng_int(&t->r, 1, a->head_dim);
    if (flip(t, 3)) t->exec = test_exec(rng_int(&t->r, 2, 6)), a->exec = &t->exec;
    memset(&how, 0, sizeof how);
    how.batch = a->batch, how.capacity = KEYS, how.kv_heads = a->kv_heads;
    how.head_dim = a->head_dim, how.v_head_dim = a->v_head_dim, how.v_in_k = flip(t, 3);
    how.k_storage = how.v_storage = flip(t, 2) ? ATTN_F32 : (attn_storage)rng_int(&t->r, 1, 3);
    CHECK(attn_kv_init(&t->kv, &how) == ATTN_OK);
    for (int b = 0; b < a->batch; b++) {
        d->k[b] = room(t, (size_t)(KEYS * a->kv_heads * a->head_dim));
        d->v[b] = room(t, (size_t)(KEYS * a->kv_heads * a->v_head_dim));
    }
    /* Whole pages in common, or a page that is copied when the next key is written. */
    const int odd = flip(t, 3), common = flip(t, 4) ? rng_int(&t->r, 129, 255) : 128 * rng_int(&t->r, 1, 2);
    extend(d, 0, common, odd && flip(t, 4));
    for (int b = 1; b < a->batch; b++) {
        const int from = rng_int(&t->r, 0, b - 1);          /* beams of a beam share more than the first pages */
        if (flip(t, 3)) extend(d, from, rng_int(&t->r, 0, KEYS - t->kv.lengths[from]), odd && flip(t, 2));
        follow(d, b, from, flip(t, 3) ? t->kv.lengths[from] : common);
    }
    for (int b = 0; b < a->batch; b++) {
        const int room = KEYS - t->kv.lengths[b];
        if (!flip(t, 5)) extend(d, b, rng_int(&t->r, 0, flip(t, 2) ? room : room < 3 ? room : 3), odd && flip(t, 2));
        if (t->kv.lengths[b] > a->n_k) a->n_k = t->kv.lengths[b];
    }
    how.batch = 1;
    for (int b = 0; b < a->batch; b++)
        CHECK(attn_kv_init(&d->own[b], &how) == ATTN_OK &&
              attn_kv_append(&d->own[b], 0, d->k[b], how.v_in_k ? NULL : d->v[b], t->kv.lengths[b], 0) == ATTN_OK);
    a->kv = &t->kv;
    a->q = floats(t, (size_t)(a->batch * a->n_q * a->heads * a->head_dim));
    describe(t);
}

static void copies_that_diverge(void)
{
    for (int i = 0; i < 100 * test_scale && !test_failed(); i++) {
        const uint64_t seed = test_seed * 1000033u + (uint64_t)i;
        diverging d;
        diverge(&d, seed);
        call *t = &d.t;
        attn_args *a = &t->a;
        const size_t rows = (size_t)(a->heads * a->n_q), batch = (size_t)a->batch;
        const int parts = flip(t, 6) ? (a->n_k + 127) / 128 : 0;
        const size_t n_out = rows * (size_t)a->v_head_dim, n_weights = rows * (size_t)a->n_k;
        const size_t n_states = rows * ATTN_STATE(a->v_head_dim), sets = parts ? (size_t)parts : 1;
        float *out = room(t, n_out * batch), *lse = room(t, rows * batch);
        float *weights = flip(t, 3) ? room(t, n_weights * batch) : NULL;
        float *states = room(t, n_states * batch * sets);
        a->out = out;
        if (weights) a->weights = weights, a->weights_stage = (attn_stage)rng_int(&t->r, 0, 3);
        if (parts) {                                        /* states of each chunk instead of outputs */
            a->out = NULL, a->carry_out = states, a->parts = parts, a->sinks = NULL;
            if (a->weights_stage == ATTN_PROBABILITIES) a->weights = weights = NULL;
        } else {
            a->lse = lse;
        }
        CHECKF(attn_sdpa(a) == ATTN_OK, "seed %llu: %s", (unsigned long long)seed, refusal_text());
        for (int b = 0; b < a->batch && !test_failed(); b++) {
            const size_t at = (size_t)b;
            int map;
            attn_args one = alone(a, b, &map);
            float *o = guard_floats(n_out), *l = guard_floats(rows), *w = guard_floats(n_weights);
            float *s = guard_floats(n_states * sets);
            one.kv = &d.own[b], one.k_map = NULL;
            if (parts) one.carry_out = s;
            else one.out = o, one.lse = l;
            if (weights) one.weights = w;
            CHECKF(attn_sdpa(&one) == ATTN_OK, "seed %llu, entry %d: %s", (unsigned long long)seed, b, refusal_text());
            CHECKF(parts || (same_bits(out + at * n_out, o, n_out) && same_bits(lse + at * rows, l, rows)),
                   "seed %llu: entry %d of %d has other bits than in a cache of its own (%s)", (unsigned long long)seed,
                   b, a->batch, attn_backend_name(a->backend));
            for (size_t x = 0; x < sets && parts; x++)
                CHECKF(same_bits(states + (x * batch + at) * n_states, s + x * n_states, n_states),
                       "seed %llu: part %d of entry %d (%s)", (unsigned long long)seed, (int)x, b,
                       attn_backend_name(a->backend));
            CHECKF(!weights || same_bits(weights + at * n_weights, w, n_weights), "seed %llu: weights of entry %d (%s)",
                   (unsigned long long)seed, b, attn_backend_name(a->backend));
            guard_free(o), guard_free(l), guard_free(w), guard_free(s);
        }
        for (int b = 0; b < a->batch; b++) attn_kv_free(&d.own[b]);
        attn_kv_free(&t->kv);
        for (int x = 0; x < t->n_owned; x++) guard_free(t->owned[x]);
    }
}

/* ---- 3  a workspace computed once ------------------------------------------------------------------------------- */

/* Whether entries share keys is unknown when the workspace is computed: it must suffice for all sharing, for none, and
   for every smaller call. */
static void workspace(void)
{
    rng r = rng_make(test_seed);
    for (int i = 0; i < 40 * test_scale; i++) {
        attn_kv_args how;
        attn_kv kv;
        memset(&how, 0, sizeof how);
        how.batch = rng_int(&r, 2, 40), how.capacity = rng_int(&r, 1, 300);
        how.kv_heads = rng_int(&r, 1, 3), how.head_dim = rng_int(&r, 1, 90);
        CHECK(attn_kv_init(&kv, &how) == ATTN_OK);
        const attn_exec exec = test_exec(rng_int(&r, 1, 5));
        attn_args a = attn_args_for(how.batch, rng_int(&r, 1, 60), 0, how.kv_heads * rng_int(&r, 1, 4), 0);
        a.kv = &kv;
        if (rng_int(&r, 0, 1)) a.exec = &exec;
        const size_t all = attn_sdpa_workspace(&a);
        for (int n = 0; n < 20; n++) {
            attn_args b = a;
            b.batch = rng_int(&r, 1, a.batch), b.n_q = rng_int(&r, 1, a.n_q);
            const size_t some = attn_sdpa_workspace(&b);
            CHECKF(some <= all, "%d x %d rows want %lu bytes, %d x %d want %lu", b.batch, b.n_q, (unsigned long)some,
                   a.batch, a.n_q, (unsigned long)all);
        }
        attn_kv_free(&kv);
    }
}

SUITE(shared) = {
    {"random sharing", random_company, "an entry whose bits depend on other readers of the same keys"},
    {"copies that diverge", copies_that_diverge, "a page that some entries share, read for others; rows, scores or "
     "outputs of the wrong entry"},
    {"workspace", workspace, "a smaller call that requires more memory than a larger one if entries may share keys"},
    {0},
};
