/* test_carry.c: attention that stops and goes on. A question is asked in one call, and again in parts: cut anywhere at
 * multiples of 128 keys, carried on directly or folded from the states of chunks, read from plain rows, ragged ones or
 * caches. The bits are the same. What a part must not see is NaN all the time. */
#include "answer.h"
#include "cases.h"
#include "control.h"

#include <float.h>
#include <limits.h>

/* how a part gets its keys */
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

/* anything for a pointer that only says that something is wanted */
static float asked;
static size_t counted;

static size_t rows_of(const oracle_shape *s) { return (size_t)s->batch * (size_t)s->heads * (size_t)s->n_q; }
static size_t state_of(const oracle_shape *s) { return ATTN_STATE(s->v_head_dim); }
static int clamp(int x, int lo, int hi) { return x < lo ? lo : x > hi ? hi : x; }
static int keys_of(const subject *t, int b) { return oracle_end(&t->plain, b) - oracle_start(&t->plain, b); }

/* ---- random subjects ------------------------------------------------------------------------------------- */

/* Some cases get numbers that saturate, overflow or are none. */
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
    how.storage = t->storage;
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
    CHECK(attn_kv_append(&c, k, v, to - from, NULL, 0) == ATTN_OK);
    free(k), free(v);
    return c;
}

/* Draws until there are more keys than a chunk, mostly. */
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
    t->a = t->plain;
    if (t->how != BY_CACHES) return;
    t->storage = (attn_storage)rng_int(&t->r, 0, 2);
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

/* `x` again, all NaN but those keys of it that belong to the part */
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

/* Ragged: the keys of the part, entry behind entry. */
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

/* What belongs to the call that finishes is taken away, and the rest made ready for states. */
static void piece_carries(const subject *t, piece *p)
{
    attn_args *a = &p->a;
    a->out = NULL, a->lse = NULL, a->masked_rows = NULL, a->sinks = NULL;
    a->weights = NULL;
    if (t->a.weights && t->a.weights_stage != ATTN_PROBABILITIES)
        a->weights = piece_floats(p, rows_of(&t->s) * (size_t)a->n_k);
}

/* Weights of the part, w with a column of the whole in each of n_k, against those of the whole. A part that is cut out
   by lengths has cells beside it, where nothing can be. */
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

/* Does the row of a state exist? */
static int row_exists(const subject *t, size_t row)
{
    const size_t n_q = (size_t)t->s.n_q;
    return (int)(row % n_q) < oracle_rows(&t->plain, (int)(row / n_q / (size_t)t->s.heads));
}

/* What nobody may read becomes garbage: the spare, all behind seen == 0, and states of padding. */
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

/* Is every state as the header says? */
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

/* Work of the very size that is asked for, or none. */
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

/* One part by way of the states of its chunks, folded in one or two goes. */
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

/* The last part finishes by itself: probabilities of its keys, and all the rest. */
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

static void finish_states(subject *t, const float *in, attn_status (*call)(const attn_args *))
{
    attn_args a = t->a;
    attn_exec exec = test_exec(3);
    answer got;
    a.carry_in = in, a.weights = NULL;
    if (rng_int(&t->r, 0, 1)) a.exec = &exec;
    if (call == attn_sdpa) a.n_k = 0, a.k_lengths = NULL, a.k_starts = NULL, a.k_cum = NULL, a.kv = NULL, a.mask = NULL;
    if (call == attn_sdpa) a.keep = NULL, a.bias = NULL, a.k_map = NULL, a.k_batch = 0, a.head_dim = t->s.head_dim;
    got = answer_by(&a, call);
    CHECKF(answer_same(&got, &t->whole), "finished otherwise; %s", case_text(&t->c));
    answer_free(&got);
}

/* All parts on one backend. Returns a hash of the states behind the last key; 0: nobody has them. */
static uint64_t in_parts(subject *t, attn_backend backend)
{
    const size_t all = rows_of(&t->s) * state_of(&t->s);
    float *one = guard_floats(all), *other = guard_floats(all), *in = NULL;
    const int end = rng_int(&t->r, 0, 9), ending = end > 7 ? 2 : end > 4;
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
        if (to >= t->s.n_k && ending == 1) {
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
    if (ending != 1) {
        hash = hash_bits(1, in, all);
        spoil(t, in);
        finish_states(t, in, ending == 2 ? attn_sdpa : attn_finish);
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

SUITE(carry) = {
    {"parts", test_parts, "a cut, a fold, a position or a column that changes a bit, or looks beyond its keys"},
    {0},
};
