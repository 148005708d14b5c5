/* test_bits.c: one answer, bit for bit. Every test makes the same call in two forms and compares bits: threads, batch,
 * layout, kinds of mask, rows at once or one by one, backends, and fixed cases against golden.h. */
#include "answer.h"
#include "cases.h"
#include "control.h"
#include "golden_cases.h"

#include <float.h>
#include <limits.h>

/* ---- 1  random cases with difficult numbers in them ------------------------------------------------------ */

typedef struct subject {
    sdpa_case c;
    attn_args a;                          /* as c.a, always with lse and masked_rows, one thread, no workspace */
    answer plain;
    rng r;
} subject;

/* any pointer that requests an output */
static float asked;
static size_t counted;

static float *own(subject *t, size_t n)
{
    float *x = (float *)case_own(&t->c, n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = bits_float(0xFFC12345u);            /* values that must not be read are NaN */
    return x;
}
static int *own_ints(subject *t, int n) { return (int *)case_own(&t->c, (size_t)n * sizeof(int)); }

static float *copied(subject *t, const float *from, size_t n)
{
    float *x = own(t, n);
    memcpy(x, from, n * sizeof *x);
    return x;
}

enum { LOUD = 1, NEGATIVE, TOO_LARGE, WILD };

/* Half of the cases get numbers that saturate, underflow, overflow or are NaN. */
static void season(subject *t)
{
    sdpa_case *c = &t->c;
    int kind = rng_int(&t->r, 0, 8);
    if (kind < LOUD || kind > WILD || !c->q_size || !c->k_size || !c->v_size) return;
    float *q = copied(t, c->q, c->q_size), *k = copied(t, c->k, c->k_size), *v = copied(t, c->v, c->v_size);
    t->a.q = q, t->a.k = k, t->a.v = v;
    for (size_t i = 0; i < c->q_size; i++) q[i] *= kind == WILD ? 1.0f : kind == TOO_LARGE ? 1e18f : 40.0f;
    for (size_t i = 0; i < c->k_size; i++) k[i] *= kind == TOO_LARGE ? 3e18f : 1.0f;
    for (size_t i = 0; kind == NEGATIVE && i < c->v_size; i++)                /* p * v underflows to -0 */
        v[i] = bits_float(0x80000001u + rng_u32(&t->r) % 9u);
    if (kind != WILD) return;
    float *place[8] = {q, k, v};
    size_t size[8] = {c->q_size, c->k_size, c->v_size, 0, 0, 0, 0, 0}, heads = (size_t)c->a.heads;
    int places = 3;
    if (c->mask_size) t->a.mask = place[places] = copied(t, c->mask, c->mask_size), size[places++] = c->mask_size;
    if (c->bias_size) t->a.bias = place[places] = copied(t, c->bias, c->bias_size), size[places++] = c->bias_size;
    if (c->sinks) t->a.sinks = place[places] = copied(t, c->sinks, heads), size[places++] = heads;
    if (c->alibi_slopes) t->a.alibi_slopes = place[places] = copied(t, c->alibi_slopes, heads), size[places++] = heads;
    if (c->rel_size) t->a.rel_bias = place[places] = copied(t, c->rel_bias, c->rel_size), size[places++] = c->rel_size;
    for (int n = rng_int(&t->r, 1, 8); n > 0; n--) {
        static const uint32_t bad[] = {0x7FC00000u, 0xFFC54321u, 0x7F800000u, 0xFF800000u, 0x7FA00001u, 0x7149F2CAu,
                                       0xFF7FFFFFu, 0x00000001u};
        int where = rng_int(&t->r, 0, places - 1);
        memcpy(place[where] + rng_int(&t->r, 0, (int)size[where] - 1), &bad[rng_int(&t->r, 0, 7)], 4);
    }
}

/* ready: values that did not exist are finite from here on, so that lengths may be removed */
static void subject_make(subject *t, uint64_t seed, double work, int ready)
{
    memset(t, 0, sizeof *t);
    t->r = rng_make(seed);
    case_random_upto(&t->r, &t->c, work);
    if (ready) case_fill(&t->c, &t->r);
    t->a = t->c.a;
    t->a.exec = NULL, t->a.work = NULL, t->a.work_size = 0;
    t->a.lse = &asked, t->a.masked_rows = &counted;
    attn_backend list[16];
    int n = test_one_answer_backends(list, 16);
    t->a.backend = list[seed % (uint64_t)n];
    season(t);
    t->plain = answer_of(&t->a);
    CHECKF(t->plain.status == ATTN_OK, "%s; %s", attn_status_str(t->plain.status), case_text(&t->c));
}

static void subject_free(subject *t)
{
    answer_free(&t->plain);
    case_free(&t->c);
}

static size_t first_difference(const float *a, const float *b, size_t n)
{
    size_t i = 0;
    while (i < n && same_bits(a + i, b + i, 1)) i++;
    return i;
}

/* Names the number that differs, for the message of a failed check. */
static const char *difference(const answer *a, const answer *b)
{
    static char text[160];
    size_t i;
    if (a->status != b->status) snprintf(text, sizeof text, "%s", attn_status_str(a->status ? a->status : b->status));
    else if (a->n_out == b->n_out && (i = first_difference(a->out, b->out, a->n_out)) < a->n_out)
        snprintf(text, sizeof text, "out[%lu] %08x %08x", (unsigned long)i, float_bits(a->out[i]),
                 float_bits(b->out[i]));
    else if (a->lse && b->lse && (i = first_difference(a->lse, b->lse, a->n_lse)) < a->n_lse)
        snprintf(text, sizeof text, "lse[%lu] %08x %08x", (unsigned long)i, float_bits(a->lse[i]),
                 float_bits(b->lse[i]));
    else if (a->weights && b->weights && (i = first_difference(a->weights, b->weights, a->n_weights)) < a->n_weights)
        snprintf(text, sizeof text, "weights[%lu] %08x %08x", (unsigned long)i, float_bits(a->weights[i]),
                 float_bits(b->weights[i]));
    else snprintf(text, sizeof text, "masked_rows %lu %lu", (unsigned long)a->masked, (unsigned long)b->masked);
    return text;
}

/* Runs another form of the same call; the result must be t->plain. */
static void same(subject *t, const attn_args *a, const char *form, int number)
{
    answer r = answer_of(a);
    CHECKF(answer_same(&t->plain, &r), "%s %d: %s (%s); %s", form, number, difference(&t->plain, &r),
           attn_backend_name(a->backend), case_text(&t->c));
    answer_free(&r);
}

/* Many random subjects for one property. */
static void each_subject(int cases, double work, int ready, uint64_t salt, void (*property)(subject *t))
{
    static subject t;
    for (int n = 0; n < cases * test_scale && !test_failed(); n++) {
        subject_make(&t, test_seed * 1000003u + salt * 7001u + (uint64_t)n, n % 8 ? work : 8 * work, ready);
        if (t.plain.status == ATTN_OK) property(&t);
        subject_free(&t);
    }
}

/* ---- 2  how it is run ------------------------------------------------------------------------------------ */

static void property_threads(subject *t)
{
    static const int widths[] = {1, 2, 3, 5, 8, 64};
    int from = rng_int(&t->r, 0, 5);
    for (int x = 0; x < 3; x++) {                                             /* three of the six each time */
        attn_exec exec = test_exec(widths[(from + x * 2) % 6 == 5 && x ? 4 : (from + x * 2) % 6]);
        attn_args a = t->a;
        a.exec = &exec;
        unsigned char *work = NULL;
        if (rng_int(&t->r, 0, 1)) {
            size_t size = attn_sdpa_workspace(&a), shift = (size_t)rng_int(&t->r, 0, 67);
            if (size != SIZE_MAX)
                work = (unsigned char *)guard_alloc(size + shift), a.work = work + shift, a.work_size = size;
        }
        same(t, &a, work ? "threads and workspace" : "threads", exec.width);
        guard_free(work);
    }
}
/* Many entries with little work, which threads share without splitting. */
static void test_many_small(void)
{
    enum { ENTRIES = 24, KEYS = 5, HEADS = 2, DIM = 12, Q = ENTRIES * HEADS * DIM };
    static float q[Q], k[Q * KEYS], v[Q * KEYS], alone[Q], out[Q];
    rng r = rng_make(test_seed + 24);
    attn_args a = attn_args_for(ENTRIES, 1, KEYS, HEADS, DIM);
    rng_fill(&r, q, Q), rng_fill(&r, k, Q * KEYS), rng_fill(&r, v, Q * KEYS);
    a.q = q, a.k = k, a.v = v, a.out = alone;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    for (int width = 2; width <= 8; width++) {
        attn_exec exec = test_exec(width);
        memset(out, 0x77, sizeof out);
        a.out = out, a.exec = &exec;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECKF(same_bits(alone, out, Q), "%d threads", width);
    }
}
/* Two entries of a cache with as many visible keys, but different numbers of keys in the last panel. */
static void test_two_small(void)
{
    enum { KEYS = 40, SEEN = 20, HEADS = 2, DIM = 12, ROW = HEADS * DIM };
    static float q[2 * ROW], k[2 * KEYS * ROW], v[2 * KEYS * ROW], both[2 * ROW], one[ROW];
    static const int counts[2] = {KEYS, SEEN}, seen[2] = {SEEN, SEEN}, map[2] = {0, 1};
    rng r = rng_make(test_seed + 25);
    attn_args a = attn_args_for(2, 1, 0, HEADS, DIM);
    attn_kv_args make;
    attn_kv kv;
    memset(&make, 0, sizeof make);
    make.batch = 2, make.kv_heads = HEADS, make.head_dim = DIM, make.capacity = KEYS;
    rng_fill(&r, q, 2 * ROW), rng_fill(&r, k, 2 * KEYS * ROW), rng_fill(&r, v, 2 * KEYS * ROW);
    CHECK(attn_kv_init(&kv, &make) == ATTN_OK && append_counts(&kv, k, v, KEYS, counts, 0) == ATTN_OK);
    a.kv = &kv, a.k_lengths = seen, a.q = q, a.out = both;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    for (int b = 0; b < 2; b++) {
        a.batch = 1, a.k_map = map + b, a.q = q + b * ROW, a.out = one;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECKF(same_bits(one, both + b * ROW, ROW), "entry %d is another one in company", b);
    }
    attn_kv_free(&kv);
}
static void test_threads(void) { each_subject(220, 60000, 0, 1, property_threads); }

static void property_backends(subject *t)
{
    attn_backend list[16];
    int n = test_one_answer_backends(list, 16);
    for (int x = 0; x < n; x++) {
        attn_args a = t->a;
        a.backend = list[x];
        same(t, &a, "backend", a.backend);
    }
}
static void test_backends(void) { each_subject(800, 60000, 0, 2, property_backends); }

/* Optional outputs change nothing; 4-byte alignment is enough for everything. */
static void property_asking(subject *t)
{
    attn_args a = t->a;
    a.lse = NULL, a.masked_rows = NULL, a.weights = NULL;
    a.weights_stage = ATTN_PROBABILITIES;
    same(t, &a, "nothing asked", 0);
    for (int stage = ATTN_PROBABILITIES; stage <= ATTN_SCORES_BIASED; stage++) {
        a.weights = (attn_stage)stage == t->a.weights_stage || !t->a.weights ? &asked : NULL;
        a.weights_stage = (attn_stage)stage;
        if (!a.weights) {                                                     /* another stage has other numbers */
            answer r, *p = &t->plain;
            a.weights = &asked;
            r = answer_of(&a);
            CHECKF(r.status == ATTN_OK && same_bits(r.out, p->out, p->n_out), "stage %d; %s", stage, case_text(&t->c));
            answer_free(&r);
        } else same(t, &a, "stage", stage);
    }
    a = t->a;
    sdpa_case *c = &t->c;
    a.q = (float *)memcpy(own(t, c->q_size + 3), a.q, c->q_size * 4);         /* the end no longer coincides with the
                                                                                 end of the page */
    a.k = (float *)memcpy(own(t, c->k_size + 1), a.k, c->k_size * 4);
    a.v = (float *)memcpy(own(t, c->v_size + 2), a.v, c->v_size * 4);
    same(t, &a, "moved", 1);
}
static void test_asking(void) { each_subject(150, 60000, 0, 3, property_asking); }

/* ---- 3  a part of the question alone --------------------------------------------------------------------- */

/* mask, keep or bias of entry b, heads h0.., rows i0.., columns j0..: a dense {1, heads, rows} matrix */
static void *cut_cells(subject *t, const void *from, size_t cell, const ptrdiff_t step[3], const int at[4],
                       const int n[3], int shape[3], ptrdiff_t stride[3])
{
    if (!from) return NULL;
    unsigned char *to = (unsigned char *)case_own(&t->c, (size_t)n[0] * (size_t)n[1] * (size_t)n[2] * cell + cell),
                  *p = to;
    for (int h = 0; h < n[0]; h++)
        for (int i = 0; i < n[1]; i++, p += (size_t)n[2] * cell)
            memcpy(p,
                   (const unsigned char *)from +
                       (size_t)oracle_cell_at(step, at[0], at[1] + h, at[2] + i, at[3]) * cell,
                   (size_t)n[2] * cell);
    shape[0] = 1, shape[1] = n[0], shape[2] = n[1] > 0 ? n[1] : 1;
    stride[0] = stride[1] = stride[2] = 0;
    return to;
}

/* Entry b only; head h or all (-1); row i or all (-1); keys j0 .. j1-1, where j0 is 0 or the first existing key. Keys
   before j0 and from j1 on must be invisible to these rows. */
static attn_args cut(subject *t, int b, int h, int i, int j0, int j1)
{
    attn_args a = t->a;
    const oracle_shape *s = &t->c.s;
    int h0 = h < 0 ? 0 : h, i0 = i < 0 ? 0 : i, heads = h < 0 ? s->heads : 1, rows = i < 0 ? oracle_rows(&a, b) : 1;
    int at[4] = {b, h0, i0, j0}, n[3] = {heads, rows, j1 - j0};
    a.batch = 1, a.k_batch = 0, a.n_q = rows, a.n_k = j1 - j0;
    a.heads = heads, a.kv_heads = h < 0 ? s->kv_heads : 1;
    a.q = t->a.q + oracle_q_at(&t->a, s, b, h0, i0);
    a.k = t->a.k + (j1 > j0 ? oracle_k_at(&t->a, s, b, h0, j0) : 0);
    a.v = t->a.v + (j1 > j0 ? oracle_v_at(&t->a, s, b, h0, j0) : 0);
    for (int x = 0; x < 3; x++) {
        a.q_stride[x] = s->q[x], a.k_stride[x] = s->k[x], a.v_stride[x] = s->v[x], a.out_stride[x] = s->out[x];
        if (x == 0 || t->a.q_cum) a.q_stride[0] = a.out_stride[0] = 0;        /* one entry has no stride */
        if (x == 0 || t->a.k_cum) a.k_stride[0] = a.v_stride[0] = 0;
    }
    a.q_cum = a.k_cum = a.q_lengths = a.k_lengths = a.k_map = NULL;
    a.k_starts = NULL;
    if (oracle_start(&t->a, b) > j0) {
        int *start = own_ints(t, 1);
        start[0] = oracle_start(&t->a, b) - j0;
        a.k_starts = start;
    }
    int *pos = own_ints(t, 1);
    pos[0] = (int)(oracle_pos(&t->a, b) + i0 - j0);
    a.q_pos = 0, a.q_pos_each = pos;
    if (a.causal) a.causal = ATTN_CAUSAL_TOP_LEFT;
    a.align = ATTN_ALIGN_TOP_LEFT;
    a.mask = (float *)cut_cells(t, a.mask, 4, s->mask, at, n, a.mask_shape, a.mask_stride);
    a.bias = (float *)cut_cells(t, a.bias, 4, s->bias, at, n, a.bias_shape, a.bias_stride);
    a.keep = (unsigned char *)cut_cells(t, a.keep, 1, s->keep, at, n, a.keep_shape, a.keep_stride);
    if (a.alibi_slopes) a.alibi_slopes += h0;
    if (a.rel_bias) a.rel_bias += (ptrdiff_t)h0 * (2 * a.rel_extent + 1);
    if (a.sinks) a.sinks += h0;
    return a;
}

/* Compares the rows of the part with the same rows of the whole. */
static void same_part(subject *t, const attn_args *a, int b, int h, int i, int j0, const char *form)
{
    const oracle_shape *s = &t->c.s;
    const answer *all = &t->plain;
    answer r = answer_of(a);
    int h0 = h < 0 ? 0 : h, i0 = i < 0 ? 0 : i;
    size_t d = (size_t)s->v_head_dim, n = (size_t)a->n_k;
    CHECKF(r.status == ATTN_OK, "%s: %s; %s", form, attn_status_str(r.status), case_text(&t->c));
    for (int x = 0; x < a->heads * a->n_q && r.status == ATTN_OK && !test_failed(); x++) {
        size_t at =
            ((size_t)b * (size_t)s->heads + (size_t)(h0 + x / a->n_q)) * (size_t)s->n_q + (size_t)(i0 + x % a->n_q);
        size_t p = (size_t)x, c = first_difference(r.out + p * d, all->out + at * d, d);
        CHECKF(c == d, "%s %d/%d/%d from key %d: out[%lu] of head %d, row %d: %08x, in the whole %08x (%s); %s", form,
               b, h, i, j0, (unsigned long)c, h0 + x / a->n_q, i0 + x % a->n_q,
               float_bits(r.out[p * d + (c < d ? c : 0)]), float_bits(all->out[at * d + (c < d ? c : 0)]),
               attn_backend_name(a->backend), case_text(&t->c));
        CHECKF(same_bits(r.lse + p, all->lse + at, 1), "%s %d/%d/%d from key %d: lse %08x, in the whole %08x; %s", form,
               b, h, i, j0, float_bits(r.lse[p]), float_bits(all->lse[at]), case_text(&t->c));
        CHECKF(!r.weights || same_bits(r.weights + p * n, all->weights + at * (size_t)s->n_k + j0, n),
               "%s %d/%d/%d from key %d: weights; %s", form, b, h, i, j0, case_text(&t->c));
    }
    answer_free(&r);
}

static void property_parts(subject *t)
{
    const oracle_shape *s = &t->c.s;
    int held = t->c.n_owned;
    for (int b = 0; b < s->batch; b++) {
        int rows = oracle_rows(&t->a, b), start = oracle_start(&t->a, b), end = oracle_end(&t->a, b);
        attn_args a = cut(t, b, -1, -1, 0, end);
        same_part(t, &a, b, -1, -1, 0, "entry alone");
        if (start) {
            a = cut(t, b, -1, -1, start, end);
            same_part(t, &a, b, -1, -1, start, "padding cut off");
        }
        int h = rng_int(&t->r, 0, s->heads - 1);
        a = cut(t, b, h, -1, rng_int(&t->r, 0, 1) ? start : 0, end);
        same_part(t, &a, b, h, -1, end - a.n_k, "head alone");
        while (t->c.n_owned > held) guard_free(t->c.owned[--t->c.n_owned]);
        for (int x = 0; x < 4 && rows > 0; x++) {
            int i = x == 0 ? rows - 1 : rng_int(&t->r, 0, rows - 1), last = end, raw = t->a.weights_stage != 0;
            h = rng_int(&t->r, 0, 1) ? -1 : rng_int(&t->r, 0, s->heads - 1);
            for (int g = 0, seen; !raw && g < s->heads; g++) {               /* up to the last key that a head sees */
                for (seen = end; seen > start && !oracle_sees(&t->a, s, b, g, i, seen - 1); seen--) {}
                last = g == 0 || seen > last ? seen : last;
            }
            int from = rng_int(&t->r, 0, 1) ? start : 0, to = rng_int(&t->r, 0, 2) ? last : end;
            a = cut(t, b, h, i, from < to ? from : to, to);
            same_part(t, &a, b, h, i, to - a.n_k, "row alone");
            while (t->c.n_owned > held) guard_free(t->c.owned[--t->c.n_owned]);
        }
    }
}
static void test_parts(void) { each_subject(400, 60000, 0, 4, property_parts); }

/* Columns of out are independent of each other: v_head_dim may be cut anywhere. */
static void property_columns(subject *t)
{
    const oracle_shape *s = &t->c.s;
    if (s->v_head_dim < 2) return;
    int x0 = rng_int(&t->r, 1, s->v_head_dim - 1);
    for (int part = 0; part < 2; part++) {
        attn_args a = t->a;
        a.v_head_dim = part ? s->v_head_dim - x0 : x0;
        a.v += part && t->c.v_size ? x0 : 0;
        for (int x = 0; x < 3; x++)
            a.v_stride[x] = s->v[x] > 0 ? s->v[x] : 0, a.out_stride[x] = s->out[x] > 0 ? s->out[x] : 0;
        answer r = answer_of(&a);
        CHECKF(r.status == ATTN_OK, "%s; %s", attn_status_str(r.status), case_text(&t->c));
        size_t rows = r.n_lse, d = (size_t)a.v_head_dim;
        for (size_t i = 0; i < rows && r.status == ATTN_OK && !test_failed(); i++)
            CHECKF(same_bits(r.out + i * d, t->plain.out + i * (size_t)s->v_head_dim + (part ? x0 : 0), d),
                   "columns cut at %d, part %d, row %lu; %s", x0, part, (unsigned long)i, case_text(&t->c));
        CHECK(!r.lse || same_bits(r.lse, t->plain.lse, rows));
        answer_free(&r);
    }
}
static void test_columns(void) { each_subject(250, 60000, 0, 5, property_columns); }

/* ---- 4  the same thing written down in another way ------------------------------------------------------- */

enum {
    LAYOUT_BSHD,
    LAYOUT_BHSD,
    LAYOUT_GAPS,
    LAYOUT_GAPS_BHSD,
    LAYOUT_PACKED,
    LAYOUT_RAGGED,
    LAYOUT_RAGGED_BHSD,
    LAYOUTS
};

/* Copies q, k, v into another layout, each entry with separate K and V (no k_map), each head too if `expand`. */
static int relaid(subject *t, int layout, int expand, attn_args *to)
{
    const attn_args *a = &t->a;
    const oracle_shape *s = &t->c.s;
    int ragged = layout == LAYOUT_RAGGED || layout == LAYOUT_RAGGED_BHSD, gaps = layout == LAYOUT_GAPS;
    int kvh = expand ? s->heads : s->kv_heads, held = s->batch + 1;
    if (ragged && a->k_starts) return 0;
    gaps |= layout == LAYOUT_GAPS_BHSD;
    *to = *a;
    memset(to->q_stride, 0, sizeof to->q_stride);
    memset(to->k_stride, 0, sizeof to->k_stride);
    memset(to->v_stride, 0, sizeof to->v_stride);
    memset(to->out_stride, 0, sizeof to->out_stride);
    to->layout =
        layout == LAYOUT_BHSD || layout == LAYOUT_GAPS_BHSD || layout == LAYOUT_RAGGED_BHSD ? ATTN_BHSD : ATTN_BSHD;
    to->k_map = NULL, to->k_batch = 0, to->kv_heads = kvh;
    to->n_q = s->n_q, to->n_k = s->n_k;
    int *q_cum = own_ints(t, held), *k_cum = own_ints(t, held), *rows = own_ints(t, held), *ends = own_ints(t, held);
    int *lengths = own_ints(t, held);
    q_cum[0] = k_cum[0] = 0;
    for (int b = 0; b < s->batch; b++) {
        rows[b] = oracle_rows(a, b), ends[b] = oracle_end(a, b), lengths[b] = ends[b] - oracle_start(a, b);
        q_cum[b + 1] = q_cum[b] + rows[b], k_cum[b + 1] = k_cum[b] + ends[b];
    }
    to->q_cum = ragged ? q_cum : NULL, to->k_cum = ragged ? k_cum : NULL;
    to->q_lengths = ragged || !(a->q_lengths || a->q_cum) ? NULL : rows;
    to->k_lengths = ragged || !(a->k_lengths || a->k_cum) ? NULL : lengths;
    if (gaps) {
        int inner = to->layout == ATTN_BHSD ? 1 : 2, outer = 3 - inner, n_q = s->n_q > 0 ? s->n_q : 1, n_k = s->n_k;
        n_k = n_k > 0 ? n_k : 1;
        to->q_stride[inner] = s->head_dim + 3, to->k_stride[inner] = s->head_dim + 1,
        to->v_stride[inner] = s->v_head_dim + 2;
        to->q_stride[outer] = to->q_stride[inner] * (inner == 1 ? n_q : s->heads) + 5;
        to->k_stride[outer] = to->k_stride[inner] * (inner == 1 ? n_k : kvh) + 7;
        to->v_stride[outer] = to->v_stride[inner] * (inner == 1 ? n_k : kvh) + 1;
        to->out_stride[inner] = s->v_head_dim + 1;
    }
    ptrdiff_t row = (ptrdiff_t)s->heads * s->head_dim + (ptrdiff_t)kvh * (s->head_dim + s->v_head_dim);
    if (layout == LAYOUT_PACKED) to->q_stride[1] = to->k_stride[1] = to->v_stride[1] = row;
    const oracle_shape n = oracle_shape_of(to);
    size_t nq = answer_extent(n.q, to->q_cum, n.batch, n.n_q, n.heads, n.head_dim);
    size_t nk = answer_extent(n.k, to->k_cum, n.batch, n.n_k, n.kv_heads, n.head_dim);
    size_t nv = answer_extent(n.v, to->k_cum, n.batch, n.n_k, n.kv_heads, n.v_head_dim);
    float *q, *k, *v;
    if (layout == LAYOUT_PACKED) {
        if (n.n_q != n.n_k || !nv) return 0;
        q = own(t, nv + (size_t)(row - (ptrdiff_t)kvh * s->v_head_dim));
        k = q + s->heads * s->head_dim;
        v = k + kvh * s->head_dim;
    } else {
        q = own(t, nq), k = own(t, nk), v = own(t, nv);
    }
    for (int b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++) {
            for (int i = 0; i < rows[b]; i++)
                memcpy(q + oracle_q_at(to, &n, b, h, i), a->q + oracle_q_at(a, s, b, h, i), (size_t)s->head_dim * 4);
            for (int j = oracle_start(a, b); j < ends[b]; j++) {
                memcpy(k + oracle_k_at(to, &n, b, h, j), a->k + oracle_k_at(a, s, b, h, j), (size_t)s->head_dim * 4);
                memcpy(v + oracle_v_at(to, &n, b, h, j), a->v + oracle_v_at(a, s, b, h, j), (size_t)s->v_head_dim * 4);
            }
        }
    to->q = q, to->k = k, to->v = v;
    return 1;
}

static void property_layouts(subject *t)
{
    for (int layout = 0; layout < LAYOUTS; layout++) {
        int held = t->c.n_owned;
        attn_args a;
        if (relaid(t, layout, (int)(t->c.seed + (uint64_t)layout) & 1, &a)) same(t, &a, "layout", layout);
        while (t->c.n_owned > held) guard_free(t->c.owned[--t->c.n_owned]);
    }
}
static void test_layouts(void) { each_subject(160, 40000, 0, 6, property_layouts); }

/* All masks as one full matrix: keep bytes or -inf; causal, window and lengths are removed. */
static attn_args rewritten(subject *t, int as_bytes)
{
    attn_args a = t->a;
    const oracle_shape *s = &t->c.s;
    const size_t rows = (size_t)(s->n_q > 0 ? s->n_q : 1) * (size_t)(s->batch > 0 ? s->batch : 1);
    size_t cells = rows * (size_t)s->heads * (size_t)s->n_k;
    unsigned char *keep = as_bytes ? (unsigned char *)case_own(&t->c, cells) : NULL;
    float *mask = as_bytes ? NULL : own(t, cells);
    int *pos = own_ints(t, s->batch + 1);
    for (int b = 0; b < s->batch; b++) {
        pos[b] = (int)oracle_pos(&a, b);
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < s->n_q; i++)
                for (int j = 0; j < s->n_k; j++) {
                    size_t at = oracle_weight_at(s, b, h, i, j);
                    int sees = oracle_sees(&a, s, b, h, i, j);
                    if (as_bytes) keep[at] = (unsigned char)(sees ? 1 + i % 255 : 0);
                    else mask[at] = !sees ? -INFINITY : a.mask ? a.mask[oracle_cell_at(s->mask, b, h, i, j)] : 0.0f;
                }
    }
    int *shape = as_bytes ? a.keep_shape : a.mask_shape;
    shape[0] = s->batch > 0 ? s->batch : 1, shape[1] = s->heads, shape[2] = s->n_q > 0 ? s->n_q : 1;
    memset(a.keep_stride, 0, sizeof a.keep_stride);
    if (as_bytes) a.keep = keep;
    else {
        a.mask = mask, a.keep = NULL;
        memset(a.mask_stride, 0, sizeof a.mask_stride);
        memset(a.keep_shape, 0, sizeof a.keep_shape);
    }
    a.n_q = s->n_q, a.n_k = s->n_k;
    a.causal = ATTN_CAUSAL_NONE, a.align = ATTN_ALIGN_TOP_LEFT, a.window_left = a.window_right = 0;
    a.q_pos = 0, a.q_pos_each = pos;
    if (!a.k_starts && !a.k_cum) a.k_lengths = NULL;
    return a;
}

static void property_masks(subject *t)
{
    int raw = t->a.weights && (t->a.weights_stage == ATTN_SCORES_RAW || t->a.weights_stage == ATTN_SCORES_CAPPED);
    for (int as_bytes = 0; as_bytes < 2; as_bytes++) {
        attn_args a = rewritten(t, as_bytes);
        if (raw) a.weights = NULL;                          /* hidden keys that exist have a score, others have none */
        same(t, &a, as_bytes ? "as keep bytes" : "as a matrix", 0);
    }
}
static void test_masks(void) { each_subject(400, 40000, 1, 7, property_masks); }

/* A case with a dense bias in place of its rel_bias: [batch][heads][n_q][n_k]. Its own bias becomes the mask: the
   terms are added in the same order. */
static attn_args with_dense_bias(subject *t, attn_args a)
{
    const oracle_shape *s = &t->c.s;
    size_t cells = (size_t)s->batch * (size_t)s->heads * (size_t)s->n_q * (size_t)s->n_k;
    float *dense = own(t, cells);
    for (int b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < s->n_q; i++)
                for (int j = 0; j < s->n_k; j++)
                    dense[oracle_weight_at(s, b, h, i, j)] = a.rel_bias[oracle_rel_at(&a, b, h, i, j)];
    if (a.bias) {
        const int given = a.bias_shape[0] || a.bias_shape[1] || a.bias_shape[2];
        const int shape[3] = {1, s->heads, s->n_q};                           /* the default shape of a bias */
        a.mask = a.bias;
        memcpy(a.mask_shape, given ? a.bias_shape : shape, sizeof shape);
        memcpy(a.mask_stride, a.bias_stride, sizeof a.mask_stride);
    }
    a.bias = dense, a.rel_bias = NULL;
    memset(a.bias_stride, 0, sizeof a.bias_stride);
    a.bias_shape[0] = s->batch, a.bias_shape[1] = s->heads, a.bias_shape[2] = s->n_q;
    return a;
}

static void property_distances(subject *t)
{
    attn_args a = t->a, dense, bare;
    attn_backend list[16];
    int n = attn_backends(list, 16);
    if (!a.rel_bias || t->c.s.batch < 1 || t->c.s.n_q < 1) return;
    if (a.bias && a.mask) a.mask = NULL;                                      /* only two of the three fit */
    bare = a, bare.rel_bias = NULL;
    CHECK(attn_sdpa_workspace(&a) == attn_sdpa_workspace(&bare));
    dense = with_dense_bias(t, a);
    for (int x = 0; x < n; x++) {
        answer one, other;
        a.backend = dense.backend = list[x];
        one = answer_of(&a), other = answer_of(&dense);
        CHECKF(answer_same(&one, &other), "%s on %s; %s", difference(&one, &other), attn_backend_name(list[x]),
               case_text(&t->c));
        answer_free(&one), answer_free(&other);
    }
}
static void test_distances(void) { each_subject(1500, 40000, 1, 12, property_distances); }

/* One call with rel_bias and with the dense bias, on every backend. */
static void far_call(attn_args a, int n_q, float *bias, float *one, float *other)
{
    const float *rel = a.rel_bias;
    attn_backend list[16];
    int n = attn_backends(list, 16);
    a.n_q = n_q;
    for (int c = 0; c < a.heads * n_q * a.n_k; c++)
        bias[c] = rel[oracle_rel_at(&a, 0, c / a.n_k / n_q, c / a.n_k % n_q, c % a.n_k)];
    for (int y = 0; y < n; y++) {
        a.backend = list[y];
        a.rel_bias = rel, a.bias = NULL, a.out = one;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        a.rel_bias = NULL, a.bias = bias, a.out = other;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECKF(same_bits(one, other, (size_t)(n_q * a.heads * a.head_dim)), "position %d + %d, %d rows on %s", a.q_pos,
               *a.q_pos_each, n_q, attn_backend_name(list[y]));
    }
}

/* Positions beyond an int, and chunks before, across and beyond the ends of a table. Zeros at its ends mean that
   nothing is added beyond them; with a hole in its middle every key must be checked. */
static void test_far_positions(void)
{
    enum { N_Q = 44, N_K = 420, HEADS = 2, DIM = 8, ROW = HEADS * DIM, EXTENT = 130, WIDTH = 2 * EXTENT + 1 };
    static const int at[][2] = {{INT_MAX, INT_MAX}, {INT_MIN, INT_MIN}, {INT_MAX, 0}, {INT_MIN, 0}, {INT_MAX, INT_MIN},
                                {EXTENT, 127}, {-EXTENT - N_K, 0}, {-EXTENT - N_K + 1, 0}, {N_K + EXTENT - 1, 0},
                                {0, 0}, {N_K, 0}};
    static float q[N_Q * ROW], k[N_K * ROW], v[N_K * ROW], rel[HEADS * WIDTH], bias[HEADS * N_Q * N_K],
        one[N_Q * ROW], other[N_Q * ROW];
    rng r = rng_make(test_seed + 31);
    rng_fill(&r, q, N_Q * ROW), rng_fill(&r, k, N_K * ROW), rng_fill(&r, v, N_K * ROW);
    rng_fill(&r, rel, HEADS * WIDTH);
    for (int kind = 0; kind < 3; kind++) {                  /* 0: all numbers; 1: zeros at the ends; 2: and a hole */
        if (kind == 1) rel[0] = rel[WIDTH - 1] = rel[WIDTH] = rel[2 * WIDTH - 1] = 0.0f;
        if (kind == 2) rel[EXTENT] = -INFINITY;
        for (size_t x = 0; x < sizeof at / sizeof *at; x++) {
            attn_args a = attn_args_for(1, N_Q, N_K, HEADS, DIM);
            a.q = q, a.k = k, a.v = v, a.rel_bias = rel, a.rel_extent = EXTENT;
            a.q_pos = at[x][0], a.q_pos_each = at[x] + 1;
            far_call(a, 3, bias, one, other), far_call(a, N_Q, bias, one, other);
        }
    }
}

/* Keys and values out of a cache, appended in portions; entries through a map in another order. */
static void property_cache(subject *t)
{
    const oracle_shape *s = &t->c.s;
    attn_args a = t->a;
    if (a.k_starts || s->batch < 1 || s->n_k < 1) return;
    attn_kv kv;
    attn_kv_args make;
    memset(&make, 0, sizeof make);
    make.batch = s->batch, make.kv_heads = s->kv_heads, make.head_dim = s->head_dim, make.v_head_dim = s->v_head_dim;
    make.capacity = s->n_k + rng_int(&t->r, 0, 20);
    CHECK(attn_kv_init(&kv, &make) == ATTN_OK);
    int *count = own_ints(t, s->batch), *map = own_ints(t, s->batch), *ends = own_ints(t, s->batch);
    int full = rng_int(&t->r, 0, 1);                        /* the cache has more keys than k_lengths lets them see */
    size_t g = (size_t)s->kv_heads;
    float *k = own(t, (size_t)s->batch * (size_t)s->n_k * g * (size_t)s->head_dim);
    float *v = own(t, (size_t)s->batch * (size_t)s->n_k * g * (size_t)s->v_head_dim);
    for (int b = 0; b < s->batch; b++) map[b] = (b + 1) % s->batch;
    for (int from = 0, n; from < s->n_k; from += n) {
        n = rng_int(&t->r, 0, 2) ? rng_int(&t->r, 1, s->n_k - from) : 1;
        n = from > 40 ? s->n_k - from : n;
        for (int b = 0; b < s->batch; b++) {
            int end = oracle_end(&a, b), e = map[b];
            ends[b] = end;
            count[e] = end < from ? 0 : end - from < n ? end - from : n;
            for (int j = 0; j < count[e]; j++)
                for (int h = 0; h < s->kv_heads; h++) {
                    size_t row = ((size_t)e * (size_t)n + (size_t)j) * g + (size_t)h;
                    int head = h * (s->heads / s->kv_heads);
                    memcpy(k + row * (size_t)s->head_dim, a.k + oracle_k_at(&a, s, b, head, from + j),
                           (size_t)s->head_dim * 4);
                    memcpy(v + row * (size_t)s->v_head_dim, a.v + oracle_v_at(&a, s, b, head, from + j),
                           (size_t)s->v_head_dim * 4);
                }
        }
        CHECK((full ? attn_kv_append(&kv, -1, k, v, n, 0) : append_counts(&kv, k, v, n, count, 0)) == ATTN_OK);
    }
    a.kv = &kv, a.k = a.v = NULL, a.k_map = map, a.k_batch = 0, a.n_k = s->n_k;
    a.k_lengths = full ? ends : NULL, a.k_cum = NULL;
    for (int x = 0; x < 3; x++) a.k_stride[x] = a.v_stride[x] = 0;
    attn_exec exec = test_exec(rng_int(&t->r, 1, 5));
    a.exec = &exec;
    same(t, &a, "cache, width", exec.width);
    attn_kv_free(&kv);
}
static void test_cache(void) { each_subject(250, 40000, 0, 8, property_cache); }

/* ---- 5  directed ----------------------------------------------------------------------------------------- */

/* One row over many keys: any thread may compute a chunk, but the fold is in key order. */
static void test_split(void)
{
    static const int n_of[] = {129, 256, 300, 1000, 2049, 5000}, widths[] = {1, 2, 3, 5, 8, 64};
    attn_backend list[16];
    int n_list = test_one_answer_backends(list, 16);
    for (int z = 0; z < 6; z++)
        for (int heads = 1; heads <= 4; heads += 3) {
            enum { D = 24 };
            int n = n_of[z];
            rng r = rng_make(test_seed + (uint64_t)z);
            float *q = guard_floats((size_t)(2 * heads * D)), *k = guard_floats((size_t)(2 * n * D));
            float *v = guard_floats((size_t)(2 * n * D)), sinks[4] = {0.0f, 1.0f, 2.0f, 3.0f};
            rng_fill(&r, q, (size_t)(2 * heads * D));
            rng_fill(&r, k, (size_t)(2 * n * D));
            rng_fill(&r, v, (size_t)(2 * n * D));
            for (int x = 0; x < 2 * n * D; x++) k[x] *= 3.0f;
            attn_args a;
            memset(&a, 0, sizeof a);
            a.q = q, a.k = k, a.v = v, a.batch = 2, a.heads = heads, a.kv_heads = 1, a.n_q = 1, a.n_k = n,
            a.head_dim = D;
            a.lse = &asked, a.weights = &asked, a.sinks = z % 2 ? sinks : NULL;
            a.backend = ATTN_SCALAR;
            a.window_left = z == 3 ? 400 : 0, a.q_pos = z == 3 ? n - 100 : 0;   /* whole chunks are hidden */
            answer plain = answer_of(&a);
            CHECK(plain.status == ATTN_OK);
            for (int x = 0; x < n_list; x++)
                for (int y = 0; y < 6; y++) {
                    attn_exec exec = test_exec(widths[y]);
                    a.exec = &exec, a.backend = list[x];
                    answer p = answer_of(&a);
                    CHECKF(answer_same(&plain, &p), "%d keys, %d heads, width %d, %s: %s", n, heads, widths[y],
                           attn_backend_name(list[x]), difference(&plain, &p));
                    answer_free(&p);
                }
            answer_free(&plain);
            guard_free(q);
            guard_free(k);
            guard_free(v);
        }
}

/* A whole prompt, and the same prompt row by row through a growing cache. */
static void test_tokens(void)
{
    enum { N = 280, H = 4, G = 2, D = 16 };
    attn_backend list[16];
    int n_list = test_one_answer_backends(list, 16);
    float *q = guard_floats(N * H * D), *k = guard_floats(N * G * D), *v = guard_floats(N * G * D);
    rng r = rng_make(test_seed + 5);
    rng_fill(&r, q, N * H * D);
    rng_fill(&r, k, N * G * D);
    rng_fill(&r, v, N * G * D);
    for (int x = 0; x < n_list; x++) {
        attn_args a;
        memset(&a, 0, sizeof a);
        a.q = q, a.k = k, a.v = v, a.batch = 1, a.heads = H, a.kv_heads = G, a.n_q = a.n_k = N, a.head_dim = D;
        a.causal = ATTN_CAUSAL_TOP_LEFT, a.lse = &asked, a.backend = list[x];
        answer all = answer_of(&a);
        attn_kv kv;
        attn_kv_args make;
        memset(&make, 0, sizeof make);
        make.batch = 1, make.kv_heads = G, make.head_dim = D, make.capacity = N;
        CHECK(attn_kv_init(&kv, &make) == ATTN_OK);
        a.k = a.v = NULL, a.kv = &kv, a.n_k = 0, a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        for (int i = 0, n; i < N && !test_failed(); i += n) {
            n = i % 50 == 3 ? 7 : 1;                                          /* sometimes several at once */
            n = i + n > N ? N - i : n;
            CHECK(attn_kv_append(&kv, -1, k + i * G * D, v + i * G * D, n, 0) == ATTN_OK);
            a.q = q + i * H * D, a.n_q = n;
            answer step = answer_of(&a);
            for (int h = 0; h < H; h++)
                for (int y = 0; y < n; y++)
                    CHECKF(step.status == ATTN_OK &&
                               same_bits(step.out + (h * n + y) * D, all.out + (h * N + i + y) * D, D) &&
                               same_bits(step.lse + h * n + y, all.lse + h * N + i + y, 1),
                           "row %d, head %d: token by token is not the whole prompt (%s)", i + y, h,
                           attn_backend_name(list[x]));
            answer_free(&step);
        }
        answer_free(&all);
        attn_kv_free(&kv);
    }
    guard_free(q);
    guard_free(k);
    guard_free(v);
}

/* 32 entries together and each of them alone: blocks are cut differently for larger calls. */
static void test_company(void)
{
    enum { B = 32, N = 37, M = 140, H = 4, D = 24 };
    static const int widths[] = {1, 3, 64};
    attn_backend list[16];
    int n_list = test_one_answer_backends(list, 16), lengths[B];
    size_t nq = (size_t)B * N * H * D, nk = (size_t)B * M * H * D, row = (size_t)N * D;
    float *q = guard_floats(nq), *k = guard_floats(nk), *v = guard_floats(nk);
    rng r = rng_make(test_seed + 7);
    rng_fill(&r, q, nq);
    rng_fill(&r, k, nk);
    rng_fill(&r, v, nk);
    for (int b = 0; b < B; b++) lengths[b] = rng_int(&r, 0, 3) ? rng_int(&r, 0, M) : M;
    for (int x = 0; x < 3 * n_list; x++) {
        attn_exec exec = test_exec(widths[x % 3]);
        attn_args a;
        memset(&a, 0, sizeof a);
        a.q = q, a.k = k, a.v = v, a.batch = B, a.heads = H, a.n_q = N, a.n_k = M, a.head_dim = D,
        a.k_lengths = lengths;
        a.causal = ATTN_CAUSAL_BOTTOM_RIGHT, a.lse = &asked, a.backend = list[x / 3], a.exec = &exec;
        answer all = answer_of(&a);
        a.batch = 1, a.exec = NULL;
        for (int b = x % 5; b < B; b += 5) {
            a.q = q + (size_t)b * N * H * D, a.k = k + (size_t)b * M * H * D, a.v = v + (size_t)b * M * H * D;
            a.k_lengths = lengths + b;
            answer one = answer_of(&a);
            CHECKF(one.status == ATTN_OK && same_bits(one.out, all.out + (size_t)b * H * row, H * row) &&
                       same_bits(one.lse, all.lse + (size_t)b * H * N, H * N),
                   "entry %d alone is not entry %d of 32 at width %d (%s)", b, b, exec.width,
                   attn_backend_name(a.backend));
            answer_free(&one);
        }
        answer_free(&all);
    }
    guard_free(q);
    guard_free(k);
    guard_free(v);
}

/* A few rows over plain K and V, with any stride of keys, have the bits of the same rows over a cache. */
static void test_in_place(void)
{
    /* heads, head_dim, floats from key to key: with multiples of 1024, lines of all
       keys share a set of the first cache */
    static const struct { int heads, head_dim, row; } shapes[] = {
        {8, 128, 1024}, {8, 64, 1024}, {8, 64, 512}, {8, 64, 640},
        {3, 128, 1024}, {4, 20, 96},   {14, 8, 112}, {5, 36, 1024},
    };
    static const int rows[] = {1, 2, 3, 4, 7}, keys[] = {5, 16, 47, 128, 300};
    attn_backend list[16];
    int n_list = test_all_backends(list, 16);
    rng r = rng_make(test_seed + 9);
    enum { LARGEST = 300 * 1024 };
    float *const numbers = guard_floats(LARGEST + 7);
    rng_fill(&r, numbers, LARGEST + 7);
    for (int x = 0; x < 25 * 8 && !test_failed(); x++) {
        const int heads = shapes[x / 25].heads, head_dim = shapes[x / 25].head_dim, row = shapes[x / 25].row;
        const int n_q = rows[x % 5], n_k = keys[x / 5 % 5];
        const size_t size = (size_t)(n_k - 1) * (size_t)row + (size_t)(heads * head_dim),
                     nq = (size_t)(n_q * heads * head_dim);
        float *q = guard_floats(nq), *k = guard_floats(size), *v = guard_floats(size);
        attn_kv_args shape = {0};
        attn_kv kv;
        rng_fill(&r, q, nq);
        memcpy(k, numbers, size * sizeof *k);
        memcpy(v, numbers + 7, size * sizeof *v);
        shape.batch = 1, shape.kv_heads = heads, shape.head_dim = head_dim, shape.capacity = n_k;
        CHECK(attn_kv_init(&kv, &shape) == ATTN_OK);
        for (int j = 0; j < n_k; j++) CHECK(attn_kv_append(&kv, -1, k + j * row, v + j * row, 1, 0) == ATTN_OK);
        for (int b = 0; b < n_list; b++) {
            attn_args a;
            if (list[b] == ATTN_SCALAR && n_q > 2 && n_k > 16) continue;     /* slow, and one row at a time */
            memset(&a, 0, sizeof a);
            a.q = q, a.kv = &kv, a.batch = 1, a.heads = heads, a.n_q = n_q, a.n_k = n_k, a.head_dim = head_dim,
            a.lse = &asked;
            a.backend = list[b];
            answer cached = answer_of(&a);
            a.kv = NULL, a.k = k, a.v = v, a.k_stride[1] = a.v_stride[1] = row;
            answer plain = answer_of(&a);
            CHECKF(cached.status == ATTN_OK && plain.status == ATTN_OK && same_bits(plain.out, cached.out, nq) &&
                       same_bits(plain.lse, cached.lse, (size_t)(n_q * heads)),
                   "%d rows, %d keys %d apart, %d heads of %d are not what the cache says (%s)", n_q, n_k, row, heads,
                   head_dim, attn_backend_name(a.backend));
            answer_free(&cached);
            answer_free(&plain);
        }
        attn_kv_free(&kv);
        guard_free(q);
        guard_free(k);
        guard_free(v);
    }
    guard_free(numbers);
}

/* attn_self and attn_cross equal attn_sdpa with these arguments */
static void test_levels(void)
{
    enum { B = 2, N = 37, M = 150, H = 3, D = 8 };
    static float q[B * N * H * D], k[B * M * H * D], v[B * M * H * D], out[B * N * H * D], mask[B * N * M];
    int lengths[B] = {M, 61}, own_lengths[B] = {N, 20};
    rng r = rng_make(test_seed + 6);
    rng_fill(&r, q, B * N * H * D);
    rng_fill(&r, k, B * M * H * D);
    rng_fill(&r, v, B * M * H * D);
    for (int x = 0; x < B * N * M; x++) mask[x] = rng_int(&r, 0, 3) ? rng_normal(&r) : -INFINITY;
    for (int form = 0; form < 8; form++) {
        int self = form & 1, causal = form >> 1 & 1;
        attn_args a;
        memset(&a, 0, sizeof a);
        a.q = q, a.k = k, a.v = v, a.out = out, a.batch = B, a.heads = H, a.n_q = N, a.n_k = self ? N : M,
        a.head_dim = D;
        if (form & 4) a.mask = mask, a.mask_shape[0] = B, a.mask_shape[1] = 1, a.mask_shape[2] = N;
        a.k_lengths = self ? own_lengths : lengths, a.q_lengths = self ? own_lengths : NULL;
        a.causal = self && causal ? ATTN_CAUSAL_TOP_LEFT : 0;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        uint64_t want = hash_bits(0, out, B * N * H * D);
        memset(out, 0xA5, sizeof out);
        attn_status status = self ? attn_self(out, q, k, v, B, N, H, D, causal, own_lengths, a.mask)
                                  : attn_cross(out, q, k, v, B, N, M, H, D, lengths, a.mask);
        CHECKF(status == ATTN_OK && hash_bits(0, out, B * N * H * D) == want, "form %d: %s", form,
               attn_status_str(status));
    }
}

/* ---- 6  hostile floating-point environments -------------------------------------------------------------- */

#ifdef HAVE_CONTROL
static void property_hostile(subject *t)
{
    control_word usual = control_get();
    for (int x = 0; x < CONTROL_HOSTILE; x++)
        for (int threads = 0; threads < 2; threads++) {
            control_pool pool;
            attn_exec exec = control_exec(&pool, control_hostile[x]);
            attn_args a = t->a;
            if (threads) a.exec = &exec;
            control_set(control_hostile[x]);
            answer r = answer_of(&a);
            control_word after = control_all();
            control_set(usual);
            CHECKF(answer_same(&t->plain, &r), "control word %lx%s: %s; %s", (unsigned long)control_hostile[x],
                   threads ? ", threads" : "", difference(&t->plain, &r), case_text(&t->c));
            CHECKF(after == control_hostile[x], "the control word was %lx and is %lx",
                   (unsigned long)control_hostile[x], (unsigned long)after);
            CHECKF(!pool.lost, "%d tasks did not put the control word back", pool.lost);
            answer_free(&r);
        }
}
static void test_hostile(void)
{
    each_subject(45, 40000, 0, 9, property_hostile);
    control_word usual = control_get();
    attn_backend list[16];
    int n_list = test_one_answer_backends(list, 16);
    for (int i = 0; i < golden_count; i++)
        for (int y = 0; y < n_list; y++) {                  /* these include denormal inputs and products */
            control_pool pool;
            attn_exec exec = control_exec(&pool, control_hostile[i % CONTROL_HOSTILE]);
            uint64_t h = golden_run(&golden_cases[i], list[y], &exec);
            CHECKF(h == golden_expected(golden_cases[i].name), "\"%s\" in hostile threads on %s", golden_cases[i].name,
                   attn_backend_name(list[y]));
        }
    CHECK(control_get() == usual);
}
#else
static void test_hostile(void) { test_skip("no way to set the floating-point control word is known here"); }
#endif

/* ---- 7  fixed cases ---------------------------------------------------------------------- */

static void test_golden(void)
{
#if defined(__GNUC__) && !defined(__STRICT_ANSI__) && defined(__i386__) && !defined(__SSE_MATH__)
    test_skip("x87 in gnu modes keeps floats wider than they are: bits of its own");
    return;
#endif
    attn_backend list[16];
    int n_list = test_one_answer_backends(list, 16);
    for (int i = 0; i < golden_count; i++) {
        const golden_case *c = &golden_cases[i];
        uint64_t want = golden_expected(c->name);
        CHECKF(want != 0, "golden.h has no entry \"%s\"; build/golden -p prints a fresh table", c->name);
        for (int y = 0; y < n_list; y++) {
            uint64_t h = golden_run(c, list[y], NULL);
            CHECKF(h == want, "\"%s\" on %s: %08lx%08lx", c->name, attn_backend_name(list[y]), (unsigned long)(h >> 32),
                   (unsigned long)(h & 0xFFFFFFFFu));
        }
    }
}

SUITE(bits) = {
    {"rows and panels", test_two_small, "keys in rows read as panels, or the reverse, by small calls"},
    {"many entries", test_many_small, "entries that no thread computes, or that two compute"},
    {"threads", test_threads,
     "work divided so that a sum depends on the width, races, a workspace that is too small"},
    {"backends", test_backends, "a backend that rounds, orders, selects or flushes unlike the scalar one"},
    {"optional outputs", test_asking, "a path for weights or lse that changes out; an assumed alignment"},
    {"subsets", test_parts,
     "an entry, head or row that depends on its neighbours; chunks not counted from the first key"},
    {"columns", test_columns, "columns of out that depend on each other or on the width of a tile"},
    {"layouts", test_layouts, "wrong strides, ragged offsets, packed QKV, expanded against grouped heads"},
    {"masks", test_masks, "flags, lengths and windows that differ from the equivalent matrix"},
    {"distances", test_distances, "a rel_bias that differs from the equivalent dense bias, or takes work memory"},
    {"far positions", test_far_positions,
     "a distance that overflows an int, or is off by one at the ends of the table"},
    {"cache", test_cache, "keys in a cache that are summed in another order than plain rows"},
    {"split", test_split, "the fold of a split row depending on which task computed its chunks"},
    {"tokens", test_tokens, "decoding token by token that differs from the whole prompt"},
    {"batch sizes", test_company, "an entry whose bits depend on the size of the batch"},
    {"in place", test_in_place, "a wrong key or head where K and V are read in place"},
    {"levels", test_levels, "an argument that attn_self or attn_cross passes on wrongly"},
    {"host environment", test_hostile,
     "flushing or rounding of the caller's threads that reaches the result, or is not restored"},
    {"golden", test_golden, "any change of the arithmetic, on any compiler or machine"},
    {0},
};
