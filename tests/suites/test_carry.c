/* test_carry.c: attention in parts. A call is repeated in parts: cut at any multiples of 128 keys, carried on directly
 * or folded from the states of chunks, read from plain rows, ragged ones or caches. The bits are the same. Keys that a
 * part must not see are always NaN. */
#include "answer.h"
#include "cases.h"
#include "control.h"

#include <float.h>
#include <limits.h>

/* source of the keys of a part */
enum { BY_LENGTHS, BY_POINTERS, BY_COPIES, BY_CACHES };

typedef struct subject {
    sdpa_case c;
    attn_args plain, a;                   /* one call over rows; the same, or over a cache */
    oracle_shape s;
    int how;
    attn_storage storage;
    attn_kv cache;
    answer whole;
    rng r;
} subject;

/* any pointer that requests an output */
static float asked;
static size_t counted;

static size_t rows_of(const oracle_shape *s) { return (size_t)s->batch * (size_t)s->heads * (size_t)s->n_q; }
static size_t state_of(const oracle_shape *s) { return ATTN_STATE(s->v_head_dim); }
static int clamp(int x, int lo, int hi) { return x < lo ? lo : x > hi ? hi : x; }
static int keys_of(const subject *t, int b) { return oracle_end(&t->plain, b) - oracle_start(&t->plain, b); }

/* ---- random subjects ------------------------------------------------------------------------------------- */

/* Some cases get numbers that saturate or overflow, or NaN. */
static void season(subject *t)
{
    static const uint32_t bad[] = {0x7FC00000u, 0xFFC54321u, 0x7F800000u, 0xFF800000u, 0x7149F2CAu, 0xFF7FFFFFu};
    sdpa_case *c = &t->c;
    float *place[5] = {c->q, c->k, c->v, c->mask, c->bias};
    const size_t size[5] = {c->q_size, c->k_size, c->v_size, c->mask_size, c->bias_size};
    const int kind = rng_int(&t->r, 0, 7);
    for (size_t i = 0; kind < 2 && i < c->q_size; i++) c->q[i] *= kind ? 40.0f : 1e18f;
    for (size_t i = 0; kind < 1 && i < c->k_size; i++) c->k[i] *= 3e18f;
    for (int n = kind < 4 ? rng_int(&t->r, 1, 12) : 0; n > 0; n--) {
        const int where = rng_int(&t->r, 0, 4);
        if (size[where])
            memcpy(place[where] + rng_int(&t->r, 0, (int)size[where] - 1), &bad[rng_int(&t->r, 0, 5)], sizeof(float));
    }
}

static attn_kv cache_new(subject *t, int keys)
{
    attn_kv_args how = {0};
    attn_kv c;
    how.batch = t->a.k_map && t->a.k_batch ? t->a.k_batch : t->s.batch;
    how.kv_heads = t->s.kv_heads, how.head_dim = t->s.head_dim, how.v_head_dim = t->s.v_head_dim;
    how.capacity = keys > 0 ? keys : 1;
    how.k_storage = how.v_storage = t->storage;
    CHECK(attn_kv_init(&c, &how) == ATTN_OK);
    return c;
}

/* A cache of keys from .. to - 1 of every K/V entry. */
static attn_kv cache_of(subject *t, int from, int to)
{
    const oracle_shape *s = &t->s;
    attn_kv c = cache_new(t, to - from);
    const size_t k_row = (size_t)(s->kv_heads * s->head_dim), v_row = (size_t)(s->kv_heads * s->v_head_dim);
    const size_t n = (size_t)(to - from), entries = (size_t)c.shape.batch;
    float *k = answer_floats(entries * n * k_row), *v = answer_floats(entries * n * v_row);
    for (int e = 0; e < c.shape.batch; e++)
        for (int j = from; j < to; j++)
            for (int g = 0; g < s->kv_heads; g++) {
                const size_t row = (size_t)e * n + (size_t)(j - from);
                memcpy(k + row * k_row + g * s->head_dim, t->c.k + oracle_row_at(s->k, NULL, e, g, j),
                       (size_t)s->head_dim * sizeof *k);
                memcpy(v + row * v_row + g * s->v_head_dim, t->c.v + oracle_row_at(s->v, NULL, e, g, j),
                       (size_t)s->v_head_dim * sizeof *v);
            }
    CHECK(attn_kv_append(&c, -1, k, v, to - from, 0) == ATTN_OK);
    free(k), free(v);
    return c;
}

/* Usually draws until there are more keys than a chunk. */
static void subject_make(subject *t, rng *r, double work)
{
    memset(t, 0, sizeof *t);
    for (int tries = rng_int(r, 0, 19) ? 12 : 0;; tries--) {
        case_random_upto(r, &t->c, work);
        if (tries <= 0 || t->c.s.n_k > 128) break;
        case_free(&t->c);
    }
    t->r = rng_make(t->c.seed);
    season(t);
    t->plain = t->c.a, t->s = t->c.s;
    t->plain.lse = &asked, t->plain.masked_rows = &counted, t->plain.exec = NULL;
    t->how = t->plain.k_cum ? BY_COPIES : t->plain.k_starts ? BY_LENGTHS : rng_int(&t->r, 0, 3);
    if (t->how == BY_COPIES && !t->plain.k_cum) t->how = BY_CACHES;
    if (t->how == BY_CACHES && t->s.batch == 0) t->how = BY_POINTERS;      /* a cache has at least one entry */
    t->a = t->plain;
    if (t->how != BY_CACHES) return;
    t->storage = (attn_storage)rng_int(&t->r, 0, 3);
    t->cache = cache_of(t, 0, t->s.n_k);
    t->a.kv = &t->cache, t->a.k = t->a.v = NULL;
    memset(t->a.k_stride, 0, sizeof t->a.k_stride), memset(t->a.v_stride, 0, sizeof t->a.v_stride);
}

static void subject_free(subject *t)
{
    answer_free(&t->whole);
    attn_kv_free(&t->cache);
    case_free(&t->c);
}

/* ---- a part ---------------------------------------------------------------------------------------------- */

typedef struct piece {
    attn_args a;
    int from, to;                         /* keys of every entry, counted from its first */
    attn_kv cache;
    attn_exec exec;
    void *owned[16];
    int n;
} piece;

static void *piece_own(piece *p, size_t bytes) { return p->owned[p->n++] = guard_alloc(bytes); }
static float *piece_floats(piece *p, size_t n) { return (float *)piece_own(p, n * sizeof(float)); }
static int *piece_ints(piece *p, int n) { return (int *)piece_own(p, (size_t)n * sizeof(int)); }

static void piece_free(piece *p)
{
    while (p->n > 0) guard_free(p->owned[--p->n]);
    attn_kv_free(&p->cache);
}

/* A copy of x with NaN except in the keys of the part */
static float *poisoned(const subject *t, piece *p, const float *x, size_t size, const ptrdiff_t stride[3], int width)
{
    float *y = piece_floats(p, size);
    for (size_t i = 0; i < size; i++) y[i] = bits_float(0xFFC12345u);
    for (int b = 0; b < t->s.batch; b++)
        for (int g = 0; g < t->s.kv_heads; g++)
            for (int j = p->from; j < p->to && j < keys_of(t, b); j++) {
                const int e = t->plain.k_map ? t->plain.k_map[b] : b;
                const ptrdiff_t at = oracle_row_at(stride, NULL, e, g, oracle_start(&t->plain, b) + j);
                memcpy(y + at, x + at, (size_t)width * sizeof *y);
            }
    return y;
}

/* Ragged: the keys of the part, entry after entry. */
static float *gathered(const subject *t, piece *p, const int *cum, const float *x, const ptrdiff_t stride[3], int width)
{
    const int rows = cum[t->s.batch], heads = t->s.kv_heads;
    float *y = piece_floats(p, rows ? (size_t)((rows - 1) * stride[1] + (heads - 1) * stride[2] + width) : 0);
    for (int b = 0; b < t->s.batch; b++)
        for (int g = 0; g < heads; g++)
            for (int j = 0; j < cum[b + 1] - cum[b]; j++)
                memcpy(y + oracle_row_at(stride, cum, b, g, j),
                       x + oracle_row_at(stride, t->plain.k_cum, b, g, p->from + j), (size_t)width * sizeof *y);
    return y;
}

/* Positions as plain numbers, and keys counted from `shift`. */
static void piece_positions(const subject *t, piece *p, int shift)
{
    int *pos = piece_ints(p, t->s.batch);
    for (int b = 0; b < t->s.batch; b++) pos[b] = (int)oracle_pos(&t->plain, b) - shift;
    if (p->a.causal != ATTN_CAUSAL_NONE) p->a.causal = ATTN_CAUSAL_TOP_LEFT;
    p->a.align = ATTN_ALIGN_TOP_LEFT, p->a.q_pos = 0, p->a.q_pos_each = pos;
}

static void piece_lengths(const subject *t, piece *p)
{
    int *length = piece_ints(p, t->s.batch);
    for (int b = 0; b < t->s.batch; b++) length[b] = clamp(keys_of(t, b) - p->from, 0, p->to - p->from);
    p->a.k_lengths = length;
}

/* All columns of masks begin with the part. */
static void piece_columns(const subject *t, piece *p)
{
    const int n = clamp(t->s.n_k - p->from, 0, p->to - p->from), shift = n > 0 ? p->from : 0;
    p->a.n_k = n;
    if (p->a.mask) p->a.mask += shift;
    if (p->a.bias) p->a.bias += shift;
    if (p->a.keep) p->a.keep += shift;
    memcpy(p->a.mask_stride, t->s.mask, sizeof t->s.mask);
    memcpy(p->a.bias_stride, t->s.bias, sizeof t->s.bias);
    memcpy(p->a.keep_stride, t->s.keep, sizeof t->s.keep);
}

static void piece_make(subject *t, piece *p, int from, int to)
{
    attn_args *a = &p->a;
    const oracle_shape *s = &t->s;
    memset(p, 0, sizeof *p);
    *a = t->a;
    p->from = from, p->to = to;
    piece_positions(t, p, t->how == BY_LENGTHS ? 0 : from);
    if (t->how != BY_LENGTHS) piece_columns(t, p);
    memcpy(a->k_stride, s->k, sizeof s->k), memcpy(a->v_stride, s->v, sizeof s->v);
    if (t->how == BY_LENGTHS || t->how == BY_POINTERS) {
        const ptrdiff_t shift = t->how == BY_POINTERS && a->n_k > 0 ? from : 0;
        a->k = poisoned(t, p, t->c.k, t->c.k_size, s->k, s->head_dim) + shift * s->k[1];
        a->v = poisoned(t, p, t->c.v, t->c.v_size, s->v, s->v_head_dim) + shift * s->v[1];
        if (t->how == BY_LENGTHS || a->k_lengths) piece_lengths(t, p);
    }
    if (t->how == BY_LENGTHS) {
        int *start = piece_ints(p, s->batch);
        for (int b = 0; b < s->batch; b++) start[b] = oracle_start(&t->plain, b) + clamp(from, 0, keys_of(t, b));
        a->k_starts = start;
    }
    if (t->how == BY_COPIES) {
        int *cum = piece_ints(p, s->batch + 1);
        cum[0] = 0;
        for (int b = 0; b < s->batch; b++) cum[b + 1] = cum[b] + clamp(keys_of(t, b) - from, 0, to - from);
        a->k_cum = cum;
        a->k = gathered(t, p, cum, t->c.k, s->k, s->head_dim);
        a->v = gathered(t, p, cum, t->c.v, s->v, s->v_head_dim);
    }
    if (t->how == BY_CACHES) {
        p->cache = cache_of(t, clamp(from, 0, s->n_k), clamp(to, 0, s->n_k));
        a->kv = &p->cache;
        memset(a->k_stride, 0, sizeof a->k_stride), memset(a->v_stride, 0, sizeof a->v_stride);
        if (a->k_lengths) piece_lengths(t, p);
    }
    if (rng_int(&t->r, 0, 2)) p->exec = test_exec(rng_int(&t->r, 1, 7)), a->exec = &p->exec;
}

/* Removes the members that belong to the call that finishes, and prepares the rest for states. */
static void piece_carries(const subject *t, piece *p)
{
    attn_args *a = &p->a;
    a->out = NULL, a->lse = NULL, a->masked_rows = NULL, a->sinks = NULL;
    a->weights = NULL;
    if (t->a.weights && t->a.weights_stage != ATTN_PROBABILITIES)
        a->weights = piece_floats(p, rows_of(&t->s) * (size_t)a->n_k);
}

/* Compares the weights of the part, w with a column of the whole in each of n_k, with those of the whole. A part that
   is selected by lengths has other columns, which must be empty. */
static int weights_agree(const subject *t, const piece *p, const float *w)
{
    const float none = t->a.weights_stage == ATTN_PROBABILITIES ? 0.0f : -INFINITY;
    const int shift = t->how == BY_LENGTHS ? 0 : p->from, n_k = p->a.n_k;
    for (size_t row = 0; row < rows_of(&t->s); row++)
        for (int j = 0; j < n_k; j++) {
            const int b = (int)(row / (size_t)t->s.n_q / (size_t)t->s.heads), start = oracle_start(&t->plain, b);
            const int in = t->how != BY_LENGTHS || (j >= start + p->from && j < start + p->to);
            const float want = in ? t->whole.weights[row * (size_t)t->s.n_k + (size_t)(j + shift)] : none;
            if (float_bits(w[row * (size_t)n_k + (size_t)j]) != float_bits(want)) return 0;
        }
    return 1;
}

/* ---- states ---------------------------------------------------------------------------------------------- */

/* Returns 1 if the row of a state exists. */
static int row_exists(const subject *t, size_t row)
{
    const size_t n_q = (size_t)t->s.n_q;
    return (int)(row % n_q) < oracle_rows(&t->plain, (int)(row / n_q / (size_t)t->s.heads));
}

/* Fills values that must not be read with garbage: the spare, everything after seen == 0, and states of padding. */
static void spoil(subject *t, float *states)
{
    const size_t size = state_of(&t->s);
    for (size_t row = 0; row < rows_of(&t->s); row++, states += size) {
        const int padding = !row_exists(t, row), nothing = states[2] == 0.0f;
        for (size_t x = 0; x < size; x++) {
            const float garbage = bits_float(rng_u32(&t->r) | (rng_int(&t->r, 0, 1) ? 0x7FC00000u : 0));
            if (x == 3 || padding || (nothing && x != 2)) states[x] = garbage;
        }
        if (padding) states[2] = (float)rng_int(&t->r, 0, 1);
    }
}

/* Returns 1 if every state is as the header specifies. */
static int states_right(const subject *t, const float *states)
{
    const size_t size = state_of(&t->s);
    for (size_t row = 0; row < rows_of(&t->s); row++, states += size) {
        const int seen = float_bits(states[2]) == 0x3F800000u;
        if (float_bits(states[3]) != 0 || (!seen && float_bits(states[2]) != 0)) return 0;
        if (seen && !row_exists(t, row)) return 0;
        if (!seen && float_bits(states[0]) != 0xFF800000u) return 0;
        if ((states[0] != states[0]) != (states[1] != states[1])) return 0;
        for (size_t x = 0; x < size; x++) {
            const uint32_t bits = float_bits(states[x]);
            if (!seen && x > 0 && bits != 0) return 0;
            if (bits == 0x80000000u || (states[x] != states[x] && bits != 0x7FC00000u)) return 0;
        }
    }
    return 1;
}

/* Work of exactly the reported size, or none. */
static void piece_work(subject *t, piece *p)
{
    if (rng_int(&t->r, 0, 1)) return;
    p->a.work_size = attn_sdpa_workspace(&p->a);
    CHECKF(p->a.work_size != SIZE_MAX, "no workspace; %s", refusal_text());
    if (p->a.work_size != SIZE_MAX) p->a.work = piece_own(p, p->a.work_size);
}

/* Chunks of the longest entry in the part. */
static int piece_chunks(const subject *t, const piece *p)
{
    int most = 0;
    for (int b = 0; b < t->s.batch; b++) {
        const int n = (clamp(keys_of(t, b) - p->from, 0, p->to - p->from) + 127) / 128;
        most = n > most ? n : most;
    }
    return most;
}

/* One part through the states of its chunks, folded in one or two calls. */
static void piece_fold(subject *t, piece *p, const float *in, float *out)
{
    const size_t all = rows_of(&t->s) * state_of(&t->s);
    const int parts = piece_chunks(t, p) + rng_int(&t->r, 0, 2);
    const int n = parts < 1 ? 1 : parts, first = rng_int(&t->r, 0, n);
    float *states = piece_floats(p, (size_t)n * all);
    attn_args a;
    p->a.parts = n, p->a.carry_out = states, p->a.carry_in = NULL;
    piece_work(t, p);
    CHECKF(attn_sdpa(&p->a) == ATTN_OK, "parts: %s; %s", refusal_text(), case_text(&t->c));
    for (int i = 0; i < n; i++) {
        CHECKF(states_right(t, states + (size_t)i * all), "part %d of %d; %s", i, n, case_text(&t->c));
        spoil(t, states + (size_t)i * all);
    }
    a = p->a;
    a.carry_in = in, a.carry_out = out;
    CHECKF(attn_fold(&a, states, first) == ATTN_OK, "fold: %s; %s", refusal_text(), case_text(&t->c));
    spoil(t, out);
    a.carry_in = out;
    CHECKF(attn_fold(&a, states + (size_t)first * all, n - first) == ATTN_OK, "%s", case_text(&t->c));
}

/* Carries one part from `in` to `out`, which may be the same. */
static void piece_run(subject *t, piece *p, const float *in, float *out)
{
    piece_carries(t, p);
    if (rng_int(&t->r, 0, 2) == 0) {
        piece_fold(t, p, in, out);
    } else {
        p->a.carry_in = in, p->a.carry_out = out;
        piece_work(t, p);
        CHECKF(attn_sdpa(&p->a) == ATTN_OK, "carry: %s; %s", refusal_text(), case_text(&t->c));
    }
    CHECKF(states_right(t, out), "states after key %d; %s", p->to, case_text(&t->c));
    if (p->a.weights)
        CHECKF(weights_agree(t, p, p->a.weights), "scores of keys %d to %d; %s", p->from, p->to, case_text(&t->c));
}

/* ---- in parts as in one call ----------------------------------------------------------------------------- */

/* The last part finishes without a further call: probabilities of its keys, and all other outputs. */
static void finish_last(subject *t, piece *p, const float *in)
{
    const int probabilities = t->a.weights && t->a.weights_stage == ATTN_PROBABILITIES;
    answer got;
    p->a.carry_in = in;
    p->a.weights = probabilities ? &asked : NULL;
    piece_work(t, p);
    got = answer_of(&p->a);
    if (probabilities) CHECKF(weights_agree(t, p, got.weights), "probabilities; %s", case_text(&t->c));
    free(got.weights), got.weights = NULL;
    CHECKF(answer_same(&got, &t->whole), "the last part finishes otherwise; %s", case_text(&t->c));
    answer_free(&got);
}

static void finished(subject *t, const float *in)
{
    attn_args a = t->a;
    attn_exec exec = test_exec(3);
    answer got;
    a.carry_in = in, a.weights = NULL;
    if (rng_int(&t->r, 0, 1)) a.exec = &exec;
    got = answer_by(&a, finish_states);
    CHECKF(answer_same(&got, &t->whole), "finished otherwise; %s", case_text(&t->c));
    answer_free(&got);
}

/* All parts on one backend. Returns a hash of the states after the last key; 0: this machine has none. */
static uint64_t in_parts(subject *t, attn_backend backend)
{
    const size_t all = rows_of(&t->s) * state_of(&t->s);
    float *one = guard_floats(all), *other = guard_floats(all), *in = NULL;
    const int end = rng_int(&t->r, 0, 9), ending = end > 4 && end < 8;
    uint64_t hash = 0;
    int from = 0, to;
    t->a.backend = backend;
    t->whole = answer_of(&t->a);
    CHECKF(t->whole.status == ATTN_OK, "%s; %s", refusal_text(), case_text(&t->c));
    for (;; from = to) {
        float *out = in && rng_int(&t->r, 0, 1) ? in : in == one ? other : one;
        piece p;
        to = from + 128 * rng_int(&t->r, 1, 3);
        piece_make(t, &p, from, to);
        if (to >= t->s.n_k && ending) {
            finish_last(t, &p, in);
            piece_free(&p);
            break;
        }
        piece_run(t, &p, in, out);
        piece_free(&p);
        in = out;
        if (to >= t->s.n_k) break;
        spoil(t, in);
    }
    if (!ending) {
        hash = hash_bits(1, in, all);
        spoil(t, in);
        finished(t, in);
    }
    answer_free(&t->whole);
    guard_free(one), guard_free(other);
    return hash;
}

static void test_parts(void)
{
    attn_backend list[16], fma[16];
    const int n = test_all_backends(list, 16), n_fma = test_one_answer_backends(fma, 16);
    rng r = rng_make(test_seed ^ 0xCA44u);
    for (int i = 0; i < 110 * test_scale && !test_failed(); i++) {
        uint64_t first = 0;
        subject t;
        subject_make(&t, &r, 100000.0);
        for (int x = 0; x < n && !test_failed(); x++) {
            const uint64_t hash = in_parts(&t, list[x]);
            int one = 0;
            for (int y = 0; y < n_fma; y++) one |= fma[y] == list[x];
            if (!one || !hash) continue;
            if (!first) first = hash;
            CHECKF(hash == first, "states of another backend have other bits; %s", case_text(&t.c));
        }
        subject_free(&t);
    }
}

/* ---- caches: the rest of them ---------------------------------------------------------------------------- */

/* A prompt whose states are kept, and steps over a cache that holds only the keys after it. */
static void test_steps(void)
{
    enum { HEADS = 4, KV = 2, DIM = 5, PREFIX = 256, NEW = 3, BATCH = 2, S = DIM + 4 };
    attn_backend list[16];
    const int n = test_all_backends(list, 16);
    rng r = rng_make(test_seed ^ 0x57E9u);
    float *k = guard_floats(BATCH * (PREFIX + NEW) * KV * DIM), *v = guard_floats(BATCH * (PREFIX + NEW) * KV * DIM);
    float *q = guard_floats(BATCH * NEW * HEADS * DIM);
    rng_fill(&r, k, BATCH * (PREFIX + NEW) * KV * DIM);
    rng_fill(&r, v, BATCH * (PREFIX + NEW) * KV * DIM);
    rng_fill(&r, q, BATCH * NEW * HEADS * DIM);
    for (int x = 0; x < n; x++)
        for (int parts = 0; parts < 2; parts++) {
            attn_kv_args shape = {0};
            attn_kv c;
            float want[BATCH * NEW * HEADS * DIM], got[BATCH * NEW * HEADS * DIM], state[BATCH * HEADS * NEW * S];
            float part[BATCH * HEADS * NEW * S];
            attn_args a = attn_args_for(BATCH, NEW, PREFIX + NEW, HEADS, DIM);
            a.kv_heads = KV, a.q = q, a.k = k, a.v = v, a.out = want, a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
            a.backend = list[x];
            CHECK(attn_sdpa(&a) == ATTN_OK);
            a.out = NULL, a.n_k = PREFIX, a.causal = ATTN_CAUSAL_NONE, a.carry_out = state;
            a.k_stride[0] = a.v_stride[0] = (PREFIX + NEW) * KV * DIM;
            CHECK(attn_sdpa(&a) == ATTN_OK);
            shape.batch = BATCH, shape.kv_heads = KV, shape.head_dim = DIM, shape.capacity = NEW;
            CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
            a.k += PREFIX * KV * DIM, a.v += PREFIX * KV * DIM, a.n_k = 0;
            if (parts) {
                a.carry_out = part, a.parts = 1;
                CHECK(attn_self_step(&c, &a) == ATTN_OK);
                a.carry_in = a.carry_out = state;
                a.kv = &c, a.head_dim = 0;            /* the width of states is that of the cache */
                CHECK(attn_fold(&a, part, 1) == ATTN_OK);
                a.carry_out = NULL, a.out = got;
                CHECK(finish_states(&a) == ATTN_OK);
            } else {
                a.carry_in = state, a.carry_out = NULL, a.out = got;
                CHECK(attn_self_step(&c, &a) == ATTN_OK);
            }
            CHECKF(same_bits(got, want, BATCH * NEW * HEADS * DIM), "%s, parts %d", attn_backend_name(list[x]), parts);
            a.carry_in = NULL, a.carry_out = part, a.out = NULL, a.kv = NULL, a.parts = 1;
            shape.capacity = 200;
            attn_kv_free(&c);
            CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
            for (int i = 0; i < 42; i++) CHECK(attn_kv_append(&c, -1, k, v, NEW, 0) == ATTN_OK);
            a.n_q = NEW, a.head_dim = DIM, a.k_stride[0] = a.v_stride[0] = 0, a.batch = BATCH;
            REFUSED(attn_self_step(&c, &a), ATTN_E_SIZE, "attn_self_step: parts is 1 but entry 0 has 2 chunks");
            CHECK(c.lengths[0] == 42 * NEW);
            attn_kv_free(&c);
        }
    guard_free(k), guard_free(v), guard_free(q);
}

/* Forgotten chunks are not counted among the parts, and k_lengths may end before, in or after them. */
static void test_forgotten(void)
{
    enum { KEYS = 700, DIM = 3, ROWS = 2, S = DIM + 4 };
    attn_backend list[16];
    const int n = test_all_backends(list, 16);
    rng r = rng_make(test_seed ^ 0xF04u);
    float *k = guard_floats(KEYS * DIM), *v = guard_floats(KEYS * DIM), q[ROWS * DIM];
    attn_kv_args shape = {0};
    attn_kv c;
    rng_fill(&r, k, KEYS * DIM), rng_fill(&r, v, KEYS * DIM), rng_fill(&r, q, ROWS * DIM);
    shape.batch = 1, shape.kv_heads = 1, shape.head_dim = DIM, shape.capacity = KEYS;
    CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
    CHECK(attn_kv_append(&c, -1, k, v, KEYS, 0) == ATTN_OK);
    CHECK(attn_kv_forget(&c, 0, 128, 512) == ATTN_OK);
    static const int lengths[] = {KEYS, 650, 600, 400, 120, 0}, chunks[] = {3, 3, 2, 1, 1, 0};
    float *weights = guard_floats(ROWS * KEYS);
    for (int x = 0; x < n; x++)
        for (int i = 0; i < 6; i++) {
            float want[ROWS * DIM], got[ROWS * DIM], state[ROWS * S], parts[4 * ROWS * S];
            attn_args a = attn_args_for(1, ROWS, 0, 1, DIM);
            a.kv = &c, a.q = q, a.out = want, a.backend = list[x], a.k_lengths = &lengths[i], a.weights = weights;
            CHECK(attn_sdpa(&a) == ATTN_OK);
            for (int j = 0; j < ROWS * lengths[i]; j++) {
                const int key = j % lengths[i], there = key < 128 || key >= 512;
                CHECKF(there ? weights[j] > 0.0f : weights[j] == 0.0f, "%s: key %d", attn_backend_name(list[x]), key);
            }
            a.out = a.weights = NULL, a.carry_out = parts, a.parts = chunks[i] + (chunks[i] == 0);
            CHECKF(attn_sdpa(&a) == ATTN_OK, "%s", refusal_text());
            a.carry_out = state;
            CHECK(attn_fold(&a, parts, a.parts) == ATTN_OK);
            a.carry_in = state, a.carry_out = NULL, a.out = got;
            CHECK(finish_states(&a) == ATTN_OK);
            CHECKF(same_bits(got, want, ROWS * DIM), "%s, %d keys", attn_backend_name(list[x]), lengths[i]);
            a.parts = chunks[i] - 1, a.carry_in = NULL, a.carry_out = parts;
            if (a.parts > 0) REFUSED(attn_sdpa(&a), ATTN_E_SIZE, "attn_sdpa: parts is");
        }
    attn_kv_free(&c);
    guard_free(k), guard_free(v), guard_free(weights);
}

/* ---- to rounding ----------------------------------------------------------------------------------------- */

/* Cut anywhere, in any order, as a tree of independent parts: compared with the oracle. */
static void test_rounding(void)
{
    rng r = rng_make(test_seed ^ 0x4EED1u);
    attn_backend list[16];
    const int n = test_all_backends(list, 16);
    for (int i = 0; i < 60 * test_scale && !test_failed(); i++) {
        const int merged = i % 2;
        subject t;
        float *state, *more;
        size_t all;
        oracle o;
        memset(&t, 0, sizeof t);
        case_random_upto(&r, &t.c, 60000.0);
        t.r = rng_make(t.c.seed);
        t.a = t.plain = t.c.a, t.s = t.c.s, t.how = t.plain.k_cum ? BY_COPIES : BY_LENGTHS;
        if (t.a.weights && t.a.weights_stage == ATTN_PROBABILITIES) t.a.weights = t.plain.weights = NULL;
        t.whole.weights = t.c.weights;
        t.a.backend = t.plain.backend = list[rng_int(&t.r, 0, n - 1)];
        CHECK(attn_sdpa(&t.plain) == ATTN_OK);        /* reference scores for the parts */
        all = rows_of(&t.s) * state_of(&t.s);
        state = guard_floats(all), more = guard_floats(all);
        for (int from = 0, to; from == 0 || from < t.s.n_k; from = to) {
            piece p;
            to = from + rng_int(&t.r, 1, 90);
            piece_make(&t, &p, from, to);
            if (from == 0) {
                piece_run(&t, &p, NULL, state);
            } else if (!merged) {
                piece_run(&t, &p, state, state);
            } else {
                piece_run(&t, &p, NULL, more);
                spoil(&t, more), spoil(&t, state);
                for (size_t row = 0; row < rows_of(&t.s); row++)  /* rows of padding, which fold and finish recognise */
                    if (!row_exists(&t, row)) state[row * state_of(&t.s) + 2] = 0.0f;
                for (size_t row = 0; row < rows_of(&t.s); row++)
                    if (!row_exists(&t, row)) more[row * state_of(&t.s) + 2] = 0.0f;
                if (rng_int(&t.r, 0, 1)) {
                    float *x = state;
                    state = more, more = x;
                }
                CHECK(attn_merge(state, more, rows_of(&t.s), t.s.v_head_dim) == ATTN_OK);
                CHECKF(states_right(&t, state), "merged states; %s", case_text(&t.c));
            }
            piece_free(&p);
        }
        case_wipe(&t.c);
        t.a.carry_in = state, t.a.weights = NULL;
        CHECK(finish_states(&t.a) == ATTN_OK);
        oracle_run(&o, &t.a);
        oracle_check(&o, &t.a, case_text(&t.c));
        oracle_free(&o);
        guard_free(state), guard_free(more);
        case_free(&t.c);
    }
}

/* attn_merge against its defining sums in double; a host that flushes denormals changes nothing. */
static void test_merge(void)
{
    enum { N = 3, S = N + 4 };
    static const float of[][2] = {{1.5f, 2.0f}, {-3.0f, 0.25f}, {0.0f, 1.0f}, {80.0f, 3.0f}, {-80.0f, 1e-20f},
                                  {-INFINITY, 0.0f}, {3e38f, 1.0f}, {1e-39f, 1.5f}};
    rng r = rng_make(test_seed ^ 0x3E46Eu);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            for (int seen = 0; seen < 4; seen++) {
                float to[S] = {of[i][0], of[i][1], (float)(seen & 1), 7.0f, 0.0f, 0.0f, 0.0f};
                float from[S] = {of[j][0], of[j][1], (float)(seen >> 1), 7.0f, 0.0f, 0.0f, 0.0f}, other[S];
                const double m0 = seen & 1 ? of[i][0] : -INFINITY, m1 = seen & 2 ? of[j][0] : -INFINITY;
                const double top = m0 > m1 ? m0 : m1;
                const double a = !(seen & 1) ? 0.0 : top == -INFINITY ? 1.0 : exp(m0 - top);
                const double b = !(seen & 2) ? 0.0 : top == -INFINITY ? 1.0 : exp(m1 - top);
                for (int x = 4; x < S; x++) to[x] = rng_normal(&r), from[x] = rng_normal(&r);
                if (rng_int(&r, 0, 3) == 0) to[4] = bits_float(0x00000123u), from[4] = bits_float(0x80000007u);
                memcpy(other, to, sizeof to);
                CHECK(attn_merge(to, from, 1, N) == ATTN_OK);
                CHECK(float_bits(to[0]) == float_bits((float)top + 0.0f) && to[2] == (seen ? 1.0f : 0.0f));
                CHECK(float_bits(to[3]) == 0);
                for (int x = 1; x < S; x++) {
                    const double want = (a > 0.0 ? a * other[x] : 0.0) + (b > 0.0 ? b * from[x] : 0.0);
                    const double size = a * fabs((double)other[x]) + b * fabs((double)from[x]);
                    if (x == 2 || x == 3) continue;
                    CHECKF(fabs(to[x] - want) <= 1e-6 * size + 2e-38,
                           "%d with %d, seen %d: float %d is %.9g, not %.9g", i, j, seen, x, (double)to[x], want);
                }
#ifdef HAVE_CONTROL
                for (size_t h = 0; h < sizeof control_hostile / sizeof control_hostile[0]; h++) {
                    const control_word was = control_get();
                    float hosted[S];
                    memcpy(hosted, other, sizeof other);
                    control_set(control_hostile[h]);
                    (void)attn_merge(hosted, from, 1, N);
                    control_set(was);
                    CHECKF(same_bits(hosted, to, S), "a hostile host, %d", (int)h);
                }
#endif
            }
}

/* The output and lse of another library, converted to states as the manual describes. */
enum { PAIR_KEYS = 300, PAIR_ROWS = 3, PAIR_DIM = 8, PAIR_STATE = PAIR_DIM + 4 };
static void pair_states(float *state, const float *out, const float *lse)
{
    for (int i = 0; i < PAIR_ROWS; i++, state += PAIR_STATE) {
        const int none = lse[i] == INFINITY || lse[i] == -INFINITY;
        state[0] = lse[i], state[1] = lse[i] != lse[i] ? lse[i] : 1.0f, state[2] = none ? 0.0f : 1.0f, state[3] = 0.0f;
        memcpy(state + 4, out + i * PAIR_DIM, PAIR_DIM * sizeof *out);
    }
}

/* Two outputs with lse, of the keys before a cut and after it, against one call over all keys. Row 0 sees none of the
   keys before the cut (lse: -inf, or +inf as in flash-attention); row 1 sees a NaN there if there is one. */
static void test_pairs(void)
{
    rng r = rng_make(test_seed ^ 0x9A125u);
    attn_backend list[16];
    const int n = test_all_backends(list, 16);
    for (int i = 0; i < 20 * test_scale; i++) {
        const int cut = rng_int(&r, 1, PAIR_KEYS - 1), how = i % 3, nan = i % 5 == 4;
        static float q[PAIR_ROWS * PAIR_DIM], k[PAIR_KEYS * PAIR_DIM], v[PAIR_KEYS * PAIR_DIM];
        static float mask[PAIR_ROWS * PAIR_KEYS], states[2][PAIR_ROWS * PAIR_STATE];
        float want[PAIR_ROWS * PAIR_DIM], out[PAIR_ROWS * PAIR_DIM], lse[PAIR_ROWS], want_lse[PAIR_ROWS];
        attn_args a = attn_args_for(1, PAIR_ROWS, PAIR_KEYS, 1, PAIR_DIM);
        rng_fill(&r, q, PAIR_ROWS * PAIR_DIM), rng_fill(&r, k, PAIR_KEYS * PAIR_DIM);
        rng_fill(&r, v, PAIR_KEYS * PAIR_DIM), memset(mask, 0, sizeof mask);
        for (int j = 0; j < cut; j++) mask[j] = -INFINITY;
        if (nan) mask[PAIR_KEYS + rng_int(&r, 0, cut - 1)] = NAN;
        a.q = q, a.k = k, a.v = v, a.mask = mask, a.mask_stride[2] = PAIR_KEYS, a.backend = list[i % n];
        a.out = want, a.lse = want_lse;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        a.out = out, a.lse = lse, a.n_k = cut;
        CHECK(attn_sdpa(&a) == ATTN_OK && lse[0] == -INFINITY);
        if (i % 2) lse[0] = INFINITY;
        pair_states(states[0], out, lse);
        a.k += cut * PAIR_DIM, a.v += cut * PAIR_DIM, a.mask += cut, a.n_k = PAIR_KEYS - cut;
        if (how == 0) {                                       /* the remaining keys continue from such a state */
            a.carry_in = states[0];
            CHECK(attn_sdpa(&a) == ATTN_OK);
        } else {
            CHECK(attn_sdpa(&a) == ATTN_OK);
            pair_states(states[1], out, lse);
            a.carry_in = a.carry_out = states[0];
            if (how == 1) CHECK(attn_merge(states[0], states[1], PAIR_ROWS, PAIR_DIM) == ATTN_OK);
            else CHECK(attn_fold(&a, states[1], 1) == ATTN_OK);
            a.carry_out = NULL;
            CHECK(finish_states(&a) == ATTN_OK);
        }
        for (int x = 0; x < PAIR_ROWS * PAIR_DIM; x++) {      /* lse, at most 8, was rounded up to four times */
            const float off = (float)fabs((double)out[x] - (double)want[x]), most = 64.0f * 6e-8f * 4.0f;
            CHECKF(nan && x / PAIR_DIM == 1 ? out[x] != out[x] : off <= most, "cut %d, way %d, %s: %g, not %g", cut,
                   how, attn_backend_name(a.backend), (double)out[x], (double)want[x]);
        }
        for (int x = 0; x < PAIR_ROWS; x++)
            CHECK(nan && x == 1 ? lse[x] != lse[x] : fabs((double)lse[x] - (double)want_lse[x]) <= 64.0 * 6e-8);
    }
}

/* ---- rejected calls -------------------------------------------------------------------------------------- */

typedef struct wrong {
    float q[2 * 4], k[300 * 4], v[300 * 4], out[2 * 4], lse[2], weights[2 * 300], sinks[1], in[2 * 8], to[4 * 2 * 8];
    size_t masked;
    char work[65536];
    attn_args a;                              /* 1 entry, 2 rows, 300 keys, 1 head of 4; carries from `in` to `to` */
} wrong;

static void wrong_make(wrong *w, wrong *before)
{
    memset(w, 0, sizeof *w);
    w->a = attn_args_for(1, 2, 300, 1, 4);
    w->a.q = w->q, w->a.k = w->k, w->a.v = w->v, w->a.carry_in = w->in, w->a.carry_out = w->to;
    memcpy(before, w, sizeof *w);
}

static int wrong_untouched(const wrong *w, const wrong *before)
{
    return memcmp(w, before, offsetof(wrong, a)) == 0;
}

#define WRONG(call, status, words, change)                                                                             \
    do {                                                                                                               \
        wrong_make(w, before);                                                                                         \
        change;                                                                                                        \
        REFUSED(call, status, words);                                                                                  \
        CHECK(wrong_untouched(w, before));                                                                             \
    } while (0)
#define SDPA(status, words, change) WRONG(attn_sdpa(&w->a), status, "attn_sdpa: " words, change)
#define FOLD(status, words, change) WRONG(attn_fold(&w->a, w->to + 16, 2), status, "attn_fold: " words, change)
#define FINISH(status, words, change)                                                                                  \
    WRONG(attn_sdpa(&w->a), status, "attn_sdpa: " words, w->a.carry_out = NULL; w->a.out = w->out; w->a.n_k = 0; change)

static void test_wrong(void)
{
    wrong *w = (wrong *)guard_alloc(sizeof *w), *before = (wrong *)guard_alloc(sizeof *before);
    static const int cum[] = {0, 3}, falls[] = {2, 1}, one = 1, start = 150;
    attn_kv nothing;
    attn_exec exec = {NULL, 1, NULL};
    const int wide = sizeof(size_t) > 4;
    memset(&nothing, 0, sizeof nothing);
#define WITH(x) "carry_out and " x " are both set, but " x " belongs to the call that finishes"
    SDPA(ATTN_E_CONFLICT, WITH("lse"), w->a.lse = w->lse);
    SDPA(ATTN_E_CONFLICT, WITH("masked_rows"), w->a.masked_rows = &w->masked);
    SDPA(ATTN_E_CONFLICT, WITH("sinks"), w->a.sinks = w->sinks);
    SDPA(ATTN_E_CONFLICT, WITH("weights (probabilities)"), w->a.weights = w->weights);
    SDPA(ATTN_E_CONFLICT, "parts is 3 but carry_in is set", w->a.parts = 3);
    SDPA(ATTN_E_CONFLICT, "parts is 3 but carry_out", w->a.parts = 3; w->a.carry_out = NULL; w->a.carry_in = NULL;
         w->a.out = w->out);
    SDPA(ATTN_E_SIZE, "parts is -1", w->a.parts = -1; w->a.carry_in = NULL);
    SDPA(ATTN_E_SIZE, "parts is 2 but entry 0 has 3 chunks of 128 keys", w->a.parts = 2; w->a.carry_in = NULL);
    SDPA(ATTN_E_SIZE, "parts is 1 but entry 0 has 2 chunks of 128 keys", w->a.parts = 1; w->a.carry_in = NULL;
         w->a.k_starts = &start);
    SDPA(ATTN_E_OVERLAP, "carry_out overlaps carry_in", w->a.carry_in = w->to + 1);
    SDPA(ATTN_E_OVERLAP, "carry_out overlaps carry_in", w->a.carry_in = w->to + 15);
    SDPA(ATTN_E_OVERLAP, "carry_out overlaps q", w->a.carry_out = w->q);
    SDPA(ATTN_E_OVERLAP, "carry_out overlaps k", w->a.carry_out = w->k + 1000);
    SDPA(ATTN_E_OVERLAP, "carry_out overlaps work", w->a.work = w->to; w->a.work_size = sizeof w->to);
    SDPA(ATTN_E_OVERLAP, "weights overlaps carry_out", w->a.weights = w->to; w->a.weights_stage = ATTN_SCORES_RAW);
    SDPA(ATTN_E_OVERLAP, "out overlaps carry_in", w->a.carry_out = NULL; w->a.out = w->in + 8);
    SDPA(ATTN_E_ALIGN, "carry_in is not aligned", w->a.carry_in = (const float *)behind(w->in, 1));
    SDPA(ATTN_E_ALIGN, "carry_out is not aligned", w->a.carry_out = (float *)behind(w->to, 2));
    SDPA(ATTN_E_NULL, "q is NULL", w->a.q = NULL);
    SDPA(ATTN_E_NULL, "out is NULL", w->a.carry_out = NULL);
    WRONG(attn_sdpa(&w->a), ATTN_E_OVERFLOW, "attn_sdpa: carry_out is too large for the address space",
          w->a.v_head_dim = INT_MAX / 2 - 1024; w->a.heads = 1 << 16; w->a.n_q = 1 << 17; w->a.n_k = 0);
    WRONG((int)(attn_sdpa_workspace(&w->a) == SIZE_MAX ? refusal_status() : 0), ATTN_E_OVERFLOW,
          wide ? "attn_sdpa_workspace: carry_out is too large for the address space: parts is 2147483647"
               : "attn_sdpa_workspace: carry_out is too large",
          w->a.n_q = 1 << 20; w->a.heads = 1 << 10; w->a.parts = INT_MAX; w->a.carry_in = NULL; w->a.n_k = 0);

    WRONG((int)(attn_sdpa_workspace(&w->a) == SIZE_MAX ? refusal_status() : 0), ATTN_E_OVERFLOW,
          wide ? "attn_sdpa_workspace: carry_out is too large for the address space: parts is 2147483647"
               : "attn_sdpa_workspace: carry_out is too large",
          w->a.n_q = 1 << 20; w->a.heads = 1 << 8; w->a.parts = INT_MAX; w->a.carry_in = NULL; w->a.n_k = 0);
    WRONG((int)(attn_sdpa_workspace(&w->a) == SIZE_MAX ? refusal_status() : 0), ATTN_E_OVERFLOW,
          wide ? "attn_sdpa_workspace: carry_in is too large for the address space" : "attn_sdpa_workspace: out is",
          w->a.n_q = 1 << 30; w->a.heads = 1 << 16; w->a.batch = 1 << 13; w->a.head_dim = 1; w->a.carry_out = NULL);

    FOLD(ATTN_E_NULL, "carry_out is NULL", w->a.carry_out = NULL);
    FOLD(ATTN_E_NULL, "carry_out is NULL", w->a.carry_out = NULL; w->a.n_q = 0; w->a.q_cum = cum);
    FOLD(ATTN_E_OVERLAP, "carry_out overlaps states", w->a.carry_out = w->to + 9);
    FOLD(ATTN_E_OVERLAP, "carry_out overlaps carry_in", w->a.carry_in = w->to + 8);
    FOLD(ATTN_E_ALIGN, "carry_out is not aligned", w->a.carry_out = (float *)behind(w->to, 2));
    FOLD(ATTN_E_SIZE, "heads is 0", w->a.heads = 0);
    FOLD(ATTN_E_SIZE, "head_dim is 0", w->a.head_dim = 0);
    FOLD(ATTN_E_SIZE, "head_dim is 0", w->a.kv = &nothing);
    FOLD(ATTN_E_SIZE, "v_head_dim is -1", w->a.v_head_dim = -1);
    FOLD(ATTN_E_SIZE, "n_q is 2 but the longest entry has 3", w->a.q_cum = cum);
    FOLD(ATTN_E_LENGTHS, "q_cum[0] is 2 but q_cum[1] is 1", w->a.q_cum = falls);
    FOLD(ATTN_E_CONFLICT, "q_cum and q_lengths", w->a.q_cum = cum; w->a.q_lengths = &one);
    FOLD(ATTN_E_OPTION, "backend is 99", w->a.backend = (attn_backend)99);
    FOLD(ATTN_E_NULL, "exec->run is NULL", w->a.exec = &exec);
    WRONG(attn_fold(&w->a, w->to + 16, -1), ATTN_E_SIZE, "attn_fold: n is -1", (void)0);
    WRONG(attn_fold(&w->a, NULL, 2), ATTN_E_NULL, "attn_fold: states is NULL", (void)0);
    WRONG(attn_fold(&w->a, (const float *)behind(w->to, 66), 1), ATTN_E_ALIGN, "attn_fold: states is not", (void)0);
    WRONG(attn_fold(NULL, w->to, 2), ATTN_E_NULL, "attn_fold: the attn_args are NULL", (void)0);
    WRONG(attn_fold(&w->a, w->to + 16, INT_MAX - 1023), ATTN_E_OVERFLOW,
          wide ? "attn_fold: states is too large for the address space: n is 2147482624" : "attn_fold: carry_out is",
          w->a.n_q = 1 << 20; w->a.heads = 1 << 10; w->a.carry_in = NULL);
    WRONG(attn_fold(&w->a, w->to + 16, INT_MAX - 1023), ATTN_E_OVERFLOW,
          wide ? "attn_fold: states is too large for the address space: n is 2147482624" : "attn_fold: carry_out is",
          w->a.n_q = 1 << 20; w->a.heads = 1 << 8; w->a.carry_in = NULL);
    WRONG(attn_fold(&w->a, NULL, 0), ATTN_E_OVERFLOW,
          wide ? "attn_fold: there are more rows than can be counted" : "attn_fold: carry_out is",
          w->a.n_q = 1 << 30; w->a.heads = 1 << 6; w->a.carry_in = NULL);

    FINISH(ATTN_E_NULL, "out is NULL", w->a.out = NULL);
    FINISH(ATTN_E_NULL, "q is NULL", w->a.q = NULL);
    FINISH(ATTN_E_OVERLAP, "out overlaps carry_in", w->a.out = w->in);
    FINISH(ATTN_E_OVERLAP, "lse overlaps carry_in", w->a.lse = w->in + 15);
    FINISH(ATTN_E_STRIDE, "out_stride[1] is 3", w->a.out_stride[1] = 3);
    FINISH(ATTN_E_LENGTHS, "k_lengths[0] is 1 but n_k is 0", w->a.k_lengths = &one);
    FINISH(ATTN_E_ALIGN, "carry_in is not aligned", w->a.carry_in = (const float *)behind(w->in, 1));

    WRONG(attn_merge(w->in, w->in, 2, 4), ATTN_E_OVERLAP, "attn_merge: to overlaps from", (void)0);
    WRONG(attn_merge(NULL, w->in, 2, 4), ATTN_E_NULL, "attn_merge: to is NULL", (void)0);
    WRONG(attn_merge(w->in, NULL, 2, 4), ATTN_E_NULL, "attn_merge: from is NULL", (void)0);
    WRONG(attn_merge(w->in, w->to, 2, 0), ATTN_E_SIZE, "attn_merge: v_head_dim is 0", (void)0);
    WRONG(attn_merge(w->in, w->to, SIZE_MAX / 8, 4), ATTN_E_OVERFLOW, "attn_merge: states are too many", (void)0);
    WRONG(attn_merge(w->in, w->to, SIZE_MAX / 4, 4), ATTN_E_OVERFLOW, "attn_merge: states are too many", (void)0);
    WRONG(attn_merge(w->in, w->to, SIZE_MAX / 36, 4), ATTN_E_OVERFLOW, "attn_merge: states are too many", (void)0);
    WRONG(attn_merge((float *)behind(w->in, 1), w->to, 1, 4), ATTN_E_ALIGN, "attn_merge: to is not", (void)0);
    guard_free(w), guard_free(before);
}

/* ---- empty calls --------------------------------------------------------------------------------------------- */

static void test_nothing(void)
{
    wrong *w = (wrong *)guard_alloc(sizeof *w), *before = (wrong *)guard_alloc(sizeof *before);
    char why[500];
    for (int which = 0; which < 2; which++) {
        wrong_make(w, before);
        if (which) w->a.n_q = 0;
        else w->a.batch = 0;
        CHECK(attn_sdpa(&w->a) == ATTN_OK);
        CHECK(attn_fold(&w->a, NULL, 2) == ATTN_OK);
        w->a.carry_out = NULL;
        CHECK(attn_fold(&w->a, NULL, 2) == ATTN_OK);
        w->a.carry_in = NULL, w->masked = 5, w->a.masked_rows = &w->masked;
        CHECK(attn_sdpa(&w->a) == ATTN_OK && w->masked == 0);
        CHECK(wrong_untouched(w, before));
    }
    CHECK(attn_merge(NULL, NULL, 0, 4) == ATTN_OK);

    wrong_make(w, before);
    CHECK(attn_check(&w->a, why, sizeof why) == ATTN_OK);
    CHECKF(strstr(why, "goes on from states, writes states,"), "%s", why);
    w->a.n_k = 0;
    CHECK(attn_check(&w->a, why, sizeof why) == ATTN_OK && !strstr(why, "empty"));
    w->a.carry_in = NULL, w->a.parts = 3;
    CHECK(attn_check(&w->a, why, sizeof why) == ATTN_OK);
    CHECKF(strstr(why, "writes the states of each chunk") && !strstr(why, "goes on"), "%s", why);

    /* a copy, in place and elsewhere; garbage in unseen states is cleared */
    wrong_make(w, before);
    for (int x = 0; x < 16; x++) w->in[x] = (float)x;
    w->in[2] = 1.0f, w->in[10] = 0.0f, w->in[11] = NAN, w->in[12] = NAN;
    CHECK(attn_fold(&w->a, NULL, 0) == ATTN_OK);
    w->a.n_k = 0, w->a.carry_out = w->in;
    CHECK(attn_sdpa(&w->a) == ATTN_OK && same_bits(w->in, w->to, 16));
    CHECK(w->to[0] == 0.0f && w->to[1] == 1.0f && w->to[3] == 0.0f && w->to[7] == 7.0f);
    CHECK(w->to[8] == -INFINITY && w->to[9] == 0.0f && w->to[12] == 0.0f && w->to[15] == 0.0f);
    /* lengths may leave fewer chunks than n_k has, and then fewer parts are enough, also for many tasks */
    {
        const int length = 150;
        attn_exec exec = test_exec(4);
        float *parts = guard_floats(2 * 16);
        wrong_make(w, before);
        w->a.carry_in = NULL, w->a.carry_out = parts, w->a.parts = 2, w->a.k_lengths = &length, w->a.exec = &exec;
        w->a.n_k = 1000;
        CHECK(attn_sdpa(&w->a) == ATTN_OK && parts[2] == 1.0f && parts[16 + 2] == 1.0f && parts[16 + 1] == 22.0f);
        guard_free(parts);
    }
    /* the call that has written its scores may be repeated without keys, and then writes no scores */
    wrong_make(w, before);
    w->a.carry_out = NULL, w->a.out = w->out, w->a.weights = w->weights, w->a.weights_stage = ATTN_SCORES_RAW;
    w->a.masked_rows = &before->masked, w->a.n_k = 0;
    CHECK(attn_sdpa(&w->a) == ATTN_OK && before->masked == 2);
    before->masked = 0;
    CHECK(wrong_untouched(w, before));
    guard_free(w), guard_free(before);
}

SUITE(carry) = {
    {"parts", test_parts, "a cut, a fold, a position or a column that changes a bit, or reads beyond its keys"},
    {"steps", test_steps, "attn_self_step that ignores carry_in, or counts its parts before the append"},
    {"forgotten", test_forgotten, "parts counted with the chunks that a cache has forgotten"},
    {"any cuts", test_rounding, "cuts not at chunks, or a merge, that lose a key or count it twice"},
    {"merge", test_merge, "a merge that swaps its factors, reads states that have seen no key, or flushes denormals"},
    {"out and lse", test_pairs,
     "the out and lse of another library that do not convert to a state as the manual describes"},
    {"rejected calls", test_wrong,
     "states written before everything is checked, or a sentence about another argument"},
    {"zero sizes", test_nothing, "sizes of 0 that write states, uninitialised values that are copied"},
    {0},
};
