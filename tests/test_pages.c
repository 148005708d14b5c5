/* test_pages.c: the cache as a pool of pages. Random histories of every operation against the
 * model, and after each step the struct itself: who holds a page, which pages are idle, how much of
 * a page is finished. What an entry may not read is NaN all the time. */
#include "kv_look.h"

enum { MOST_BATCH = 5 };

/* ---- random histories ------------------------------------------------------------------------ */
static attn_kv_args shape_draw(rng *r)
{
    static const int dims[] = {1, 3, 8, 15, 16, 17, 32, 40};
    static const int round[] = {15, 16, 17, 127, 128, 129, 300, 1000};
    attn_kv_args a = {0};
    const int kind = rng_int(r, 0, 9);
    a.batch = rng_int(r, 1, MOST_BATCH);
    a.kv_heads = rng_int(r, 1, 3);
    a.head_dim = dims[rng_int(r, 0, 7)];
    a.v_head_dim = rng_int(r, 0, 1) ? dims[rng_int(r, 0, 7)] : 0;
    a.capacity = kind < 3 ? rng_int(r, 1, 140) : kind < 5 ? rng_int(r, 130, 500)
               : round[rng_int(r, 0, 7)];
    if (a.capacity > 300) a.head_dim = 1 + a.head_dim % 4, a.kv_heads = 1 + a.kv_heads % 2;
    if (kind == 9) {                      /* keys that take their lanes at once */
        a.head_dim = rng_int(r, 510, 530);
        a.v_head_dim = rng_int(r, 1, 20);
        a.kv_heads = 1 + a.kv_heads % 2;
        a.capacity = a.capacity > 300 ? 140 : a.capacity;
    }
    if (rng_int(r, 0, 2)) a.pages = rng_int(r, 1, a.batch * ((a.capacity - 1) / 128 + 1));
    return a;
}

typedef struct pair { attn_kv c; kv_model m; unsigned char *mem; } pair;

static void pair_make(pair *p, attn_kv_args a, rng *r)
{
    p->mem = rng_int(r, 0, 1) ? look_memory(&a, r) : NULL;
    CHECK(attn_kv_init(&p->c, &a) == ATTN_OK);
    kv_model_make(&p->m, &a);
}

static void pair_free(pair *p)
{
    attn_kv_free(&p->c);
    kv_model_free(&p->m);
    guard_free(p->mem);
}

/* Does the sentence speak of the pages that are missing, and of how many? */
static void missing_told(const kv_model *m, attn_status want)
{
    char words[40];
    if (want != ATTN_E_FULL || !m->missing) return;
    snprintf(words, sizeof words, ": %d are missing", m->missing);
    CHECKF(strstr(refusal_text(), words), "\"%s\" does not say \"%s\"", refusal_text(), words);
}

/* Rows for an append: k and v in buffers of their own, or side by side in longer rows. */
static void append_both(pair *p, int most, rng *r)
{
    kv_model *m = &p->m;
    const int n = rng_int(r, 0, most), all = rng_int(r, 0, 1), side = rng_int(r, 0, 1);
    const size_t rows = (size_t)m->shape.batch * (size_t)n;
    const size_t row = m->k_row + m->v_row + (size_t)(side ? rng_int(r, 0, 5) : 0);
    float *x = guard_floats(rows * row), *v = side ? x + m->k_row : x + rows * m->k_row;
    int counts[MOST_BATCH];
    attn_status want, got;
    snapshot before;
    rng_fill(r, x, rows * row);
    for (int b = 0; b < m->shape.batch; b++) counts[b] = rng_int(r, 0, 2) ? rng_int(r, 0, n) : 0;
    before = snapshot_take(&p->c);
    want = kv_model_append(m, x, v, n, all ? NULL : counts, side ? (ptrdiff_t)row : 0);
    refusal_clear();
    got = attn_kv_append(&p->c, x, v, n, all ? NULL : counts, side ? (ptrdiff_t)row : 0);
    CHECKF(got == want, "append of %d rows says %d, not %d", n, (int)got, (int)want);
    missing_told(m, want);
    if (want == ATTN_OK) free(before.memory);
    else CHECKF(snapshot_same(&before, &p->c), "a refused append changes the cache");
    guard_free(x);
}

/* attn_self_step; afterwards the model is asked what it answers to these rows. */
static void step_both(pair *p, rng *r)
{
    kv_model *m = &p->m;
    const attn_kv_args *s = &m->shape;
    const int n = rng_int(r, 0, 3) ? rng_int(r, 1, 3) : rng_int(r, 0, 40), all = rng_int(r, 0, 1);
    const int heads = s->kv_heads * rng_int(r, 1, 2);
    const size_t rows = (size_t)(s->batch * n), n_q = rows * (size_t)(heads * s->head_dim);
    const size_t n_out = rows * (size_t)(heads * s->v_head_dim);
    float *q = look_floats(n_q), *out = look_floats(2 * n_out);
    float *k = look_floats(rows * m->k_row), *v = look_floats(rows * m->v_row);
    int counts[MOST_BATCH], lengths[KV_MODEL_BATCH];
    attn_exec exec = test_exec(rng_int(r, 1, 4));
    attn_status want, got;
    attn_args a = {0}, plain;
    snapshot before;
    rng_fill(r, q, n_q);
    rng_fill(r, k, rows * m->k_row);
    rng_fill(r, v, rows * m->v_row);
    memset(out, 0x77, 2 * n_out * sizeof(float));
    for (int b = 0; b < s->batch; b++) counts[b] = all ? n : rng_int(r, 0, n);
    a.batch = s->batch, a.n_q = n, a.heads = heads;
    a.q = q, a.k = k, a.v = v, a.out = out;
    a.q_lengths = all ? NULL : counts;
    a.exec = rng_int(r, 0, 1) ? &exec : NULL;
    a.window_left = rng_int(r, 0, 1) ? 0 : rng_int(r, 1, 200);
    before = snapshot_take(&p->c);
    want = kv_model_append(m, k, v, n, counts, 0);
    refusal_clear();
    got = attn_self_step(&p->c, &a);
    CHECKF(got == want, "a step of %d rows says %d, not %d", n, (int)got, (int)want);
    missing_told(m, want);
    if (want == ATTN_OK) {
        unsigned char *keep;
        a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        plain = kv_model_args(m, &a, lengths);
        plain.out = out + n_out;
        plain.exec = NULL;
        keep = kv_model_hide(m, &plain);
        CHECK(attn_sdpa(&plain) == ATTN_OK);
        free(keep);
        free(before.memory);
    } else CHECKF(snapshot_same(&before, &p->c), "a refused step changes the cache");
    CHECKF(same_bits(out, out + n_out, n_out), "a step of %d rows: other bits than plain rows", n);
    free(q); free(k); free(v); free(out);
}

/* An entry as bytes, and these into an entry of the same cache or of another one. */
static void load_both(pair *to, const pair *from, rng *r)
{
    const int a = rng_int(r, 0, from->m.shape.batch - 1), b = rng_int(r, 0, to->m.shape.batch - 1);
    const size_t size = attn_kv_saved(&from->c, a), shift = (size_t)rng_int(r, 0, 3);
    unsigned char *room = (unsigned char *)guard_alloc(size + shift);
    attn_status want, got;
    snapshot before = snapshot_take(&to->c);
    CHECK(size == kv_model_saved(&from->m, a));
    CHECK(attn_kv_save(&from->c, a, room + shift, size) == ATTN_OK);
    want = kv_model_load(&to->m, b, &from->m, a);
    refusal_clear();
    got = attn_kv_load(&to->c, b, room + shift, size);
    CHECKF(got == want, "load says %d, not %d", (int)got, (int)want);
    missing_told(&to->m, want);
    if (want == ATTN_OK) free(before.memory);
    else CHECKF(snapshot_same(&before, &to->c), "a refused load changes the cache");
    guard_free(room);
}

static void read_both(pair *p, rng *r)
{
    const int b = rng_int(r, 0, p->m.shape.batch - 1), length = p->m.length[b];
    const int first = rng_int(r, 0, length), n = rng_int(r, 0, length - first);
    float *k = guard_floats((size_t)n * p->m.k_row), *v = guard_floats((size_t)n * p->m.v_row);
    float *k_want = look_floats((size_t)n * p->m.k_row), *v_want = look_floats((size_t)n * p->m.v_row);
    const int no_k = !rng_int(r, 0, 5), no_v = !rng_int(r, 0, 5);
    const attn_status want = kv_model_read(&p->m, b, first, n, k_want, v_want);
    CHECK(attn_kv_read(&p->c, b, first, n, no_k ? NULL : k, no_v ? NULL : v) == want);
    if (want == ATTN_OK)
        CHECKF((no_k || same_bits(k, k_want, (size_t)n * p->m.k_row)) &&
               (no_v || same_bits(v, v_want, (size_t)n * p->m.v_row)),
               "keys %d .. of entry %d read back differ", first, b);
    guard_free(k); guard_free(v); free(k_want); free(v_want);
}

/* What names keys and moves none. */
static void rename_both(int what, pair *p, rng *r)
{
    kv_model *m = &p->m;
    attn_kv *c = &p->c;
    const int batch = m->shape.batch, entry = rng_int(r, 0, batch - 1), to = rng_int(r, 0, batch - 1);
    const int length = rng_int(r, 0, 3) ? m->length[entry] - rng_int(r, 0, m->length[entry]) / 4
                                        : rng_int(r, -1, m->length[entry] + 1);
    const int which = rng_int(r, 0, 5) ? entry : -1;
    int map[MOST_BATCH];
    attn_status want, got;
    snapshot before = snapshot_take(c);
    for (int b = 0; b < batch; b++) map[b] = rng_int(r, 0, batch - 1);
    if (what == 0) {
        want = kv_model_truncate(m, which, length);
        got = attn_kv_truncate(c, which, length);
    } else if (what == 1) {
        want = kv_model_copy(m, to, entry, length);
        got = attn_kv_copy(c, to, entry, length);
    } else if (what == 2) {
        want = kv_model_reorder(m, map);
        got = attn_kv_reorder(c, map);
    } else if (what == 3) {
        const int end = rng_int(r, 0, 3) ? m->length[entry] : rng_int(r, -1, m->length[entry] + 1);
        const int pinned = rng_int(r, 0, 1) ? 0 : rng_int(r, -1, 200);
        want = kv_model_forget(m, which, pinned, end);
        got = attn_kv_forget(c, which, pinned, end);
    } else {
        want = kv_model_truncate(m, which, 0);
        got = attn_kv_reset(c, which);
    }
    CHECKF(got == want, "operation %d says %d, not %d", what, (int)got, (int)want);
    if (want == ATTN_OK) free(before.memory);
    else CHECKF(snapshot_same(&before, c), "a refused operation %d changes the cache", what);
}

/* Most histories fill the cache; some share and cut more than they add. */
static int operate(pair *p, pair *other, rng *r)
{
    const int what = rng_int(r, 0, 19), capacity = p->m.shape.capacity;
    if (what < 5) append_both(p, rng_int(r, 0, 3) ? 20 : capacity, r);
    else if (what < 7) append_both(p, rng_int(r, 1, 200), r);
    else if (what < 10) step_both(p, r);
    else if (what == 10) load_both(p, rng_int(r, 0, 1) ? p : other, r);
    else if (what == 11) read_both(p, r);
    else if (what < 13) rename_both(0, p, r);
    else if (what < 15) rename_both(1, p, r);
    else if (what == 15) rename_both(2, p, r);
    else if (what < 19) rename_both(3, p, r);
    else if (!rng_int(r, 0, 3)) rename_both(4, p, r);
    return what;
}

static void history(unsigned long long seed)
{
    rng r = rng_make(seed);
    attn_kv_args a = shape_draw(&r), b = a;
    pair p[2];
    b.batch = rng_int(&r, 1, MOST_BATCH);
    b.capacity = rng_int(&r, 1, 300);
    b.pages = rng_int(&r, 0, b.batch * ((b.capacity - 1) / 128 + 1));
    pair_make(&p[0], a, &r);
    pair_make(&p[1], b, &r);
    for (int op = 0; op < 30 && !test_failed(); op++) {
        const int which = !rng_int(&r, 0, 4);
        const int what = operate(&p[which], &p[1 - which], &r);
        const look how = look_draw(&r);
        const char *wrong = look_numbers(&p[which].c, &p[which].m);
        look_poison(&p[which].c);
        CHECKF(!wrong, "%s", wrong);
        CHECKF(look_at(&p[which].c, &p[which].m, &how, &r),
               "the cache is not what was put in: %s", look_words(&how));
        CHECKF(!test_failed(), "seed %llu op %d (kind %d), cache %d: batch %d, %d heads, head_dim "
               "%d/%d, capacity %d, pages %d", seed, op, what, which, p[which].c.shape.batch,
               a.kv_heads, a.head_dim, a.v_head_dim, p[which].c.shape.capacity,
               p[which].c.shape.pages);
    }
    pair_free(&p[0]);
    pair_free(&p[1]);
}

static void histories(void)
{
    rng seeds = rng_make(test_seed + 10);
    for (int i = 0; i < 60 * test_scale && !test_failed(); i++) history(rng_u32(&seeds));
}

extern const test_case suite_pages[];
SUITE(pages) = {
    {"histories", histories,
     "a page that is shared, copied, given back or counted wrongly; a key read that is not there"},
    {0}};
