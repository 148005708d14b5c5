/* test_pages.c: the cache as a pool of pages. Random histories of every operation against the model, and after each
 * step the struct itself: the holders of each page, the idle pages. Keys that an entry must not read are always NaN. */
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
    if (kind == 9) {                      /* keys that fill their lanes at once */
        a.head_dim = rng_int(r, 510, 530);
        a.v_head_dim = rng_int(r, 1, 20);
        a.kv_heads = 1 + a.kv_heads % 2;
        a.capacity = a.capacity > 300 ? 140 : a.capacity;
    }
    a.k_storage = (attn_storage)(rng_int(r, 0, 1) ? 0 : rng_int(r, 0, 3));
    a.v_storage = a.k_storage;
    a.v_in_k = !rng_int(r, 0, 2);
    if (!a.v_in_k && !rng_int(r, 0, 2)) a.v_storage = (attn_storage)rng_int(r, 0, 3);
    if (a.v_in_k && a.v_head_dim > a.head_dim) a.v_head_dim = rng_int(r, 1, a.head_dim);
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

/* Checks that the sentence has the number of missing pages, if pages are missing. */
static void missing_told(const kv_model *m, attn_status want)
{
    char words[40];
    if (want != ATTN_E_FULL || !m->missing) return;
    snprintf(words, sizeof words, ": %d are missing", m->missing);
    CHECKF(strstr(refusal_text(), words), "\"%s\" does not say \"%s\"", refusal_text(), words);
}

static void exact_rows(const kv_model *m, float *k, size_t k_stride, float *v, size_t v_stride, size_t rows)
{
    const attn_kv_args *s = &m->shape;
    kv_model_exact(k, rows, k_stride, s->kv_heads, s->head_dim, s->k_storage);
    if (!s->v_in_k) kv_model_exact(v, rows, v_stride, s->kv_heads, s->v_head_dim, s->v_storage);
}

/* Rows for an append: k and v in separate buffers, or next to each other in longer rows. */
static void append_both(pair *p, int most, rng *r)
{
    kv_model *m = &p->m;
    const int n = rng_int(r, 0, most), all = rng_int(r, 0, 1), side = rng_int(r, 0, 1);
    const int entry = all ? -1 : rng_int(r, 0, m->shape.batch - 1);
    const size_t rows = (all ? (size_t)m->shape.batch : 1) * (size_t)n;
    const size_t row = m->k_row + m->v_row + (size_t)(side ? rng_int(r, 0, 5) : 0);
    float *x = guard_floats(rows * row), *v = side ? x + m->k_row : x + rows * m->k_row;
    const float *given = m->shape.v_in_k ? NULL : v;
    attn_status want, got;
    snapshot before;
    rng_fill(r, x, rows * row);
    exact_rows(m, x, side ? row : m->k_row, v, side ? row : m->v_row, rows);
    before = snapshot_take(&p->c);
    want = kv_model_append(m, entry, x, given, n, side ? (ptrdiff_t)row : 0);
    refusal_clear();
    got = attn_kv_append(&p->c, entry, x, given, n, side ? (ptrdiff_t)row : 0);
    CHECKF(got == want, "append of %d rows says %d, not %d", n, (int)got, (int)want);
    missing_told(m, want);
    if (want == ATTN_OK) free(before.memory);
    else CHECKF(snapshot_same(&before, &p->c), "a refused append changes the cache");
    guard_free(x);
}

/* attn_self_step; afterwards the model is called with the same rows. */
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
    kv_model_exact(q, rows, n_q / (rows ? rows : 1), heads, s->head_dim, s->k_storage);
    exact_rows(m, k, m->k_row, v, m->v_row, rows);
    a.scale = kv_model_scale(m);
    memset(out, 0x77, 2 * n_out * sizeof(float));
    for (int b = 0; b < s->batch; b++) counts[b] = all ? n : rng_int(r, 0, n);
    a.batch = s->batch, a.n_q = n, a.heads = heads;
    a.q = q, a.k = k, a.v = s->v_in_k ? NULL : v, a.out = out;
    a.q_lengths = all ? NULL : counts;
    a.exec = rng_int(r, 0, 1) ? &exec : NULL;
    a.window_left = rng_int(r, 0, 1) ? 0 : rng_int(r, 1, 200);
    before = snapshot_take(&p->c);
    want = kv_model_step(m, k, a.v, n, counts);
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

/* Saves an entry, and loads it into an entry of the same cache or of another one. */
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

/* Operations that change lists but move no keys. */
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
    } else if (what == 4) {
        want = kv_model_truncate(m, which, 0);
        got = attn_kv_reset(c, which);
    } else {
        int rows[400], n = 0, from = length;
        const int rare = rng_int(r, 0, 3), wrong = !rng_int(r, 0, 4);
        if (from > 0 && rng_int(r, 0, 1)) from -= rng_int(r, 0, from < 200 ? from : 200);
        for (int i = from; i < m->length[entry] && n < 400; i++)
            if (!rng_int(r, 0, rare)) rows[n++] = i;
        if (n > 0 && wrong) rows[rng_int(r, 0, n - 1)] += rng_int(r, -2, 2);
        if (wrong && !rng_int(r, 0, 3)) n = rng_int(r, -1, n);
        want = kv_model_keep(m, entry, from, rows, n);
        got = attn_kv_keep(c, entry, from, rows, n);
        CHECKF(got == want, "keep %d rows from %d of %d: %s", n, from, m->length[entry], refusal_text());
    }
    CHECKF(got == want, "operation %d says %d, not %d", what, (int)got, (int)want);
    if (want == ATTN_OK) free(before.memory);
    else CHECKF(snapshot_same(&before, c), "a refused operation %d changes the cache", what);
}

/* Keeping rows equals truncating and appending them, byte for byte: with any cut panels, shared pages, forgotten keys,
   and later appends. */
static void keeps(void)
{
    static const int dims[] = {4, 20, 64, 100, 520};
    rng r = rng_make(test_seed + 47);
    for (int i = 0; i < 120 * test_scale && !test_failed(); i++) {
        attn_kv_args a = {.batch = 2, .kv_heads = rng_int(&r, 1, 2), .head_dim = dims[i % 5], .capacity = 400};
        attn_kv kept, put, both[2];
        int rows[300], n = 0, length = 0, from;
        size_t k_row, v_row, size;
        float *k, *v;
        unsigned char *bytes;
        a.v_head_dim = dims[rng_int(&r, 0, 3)];
        a.k_storage = a.v_storage = (attn_storage)rng_int(&r, 0, 3);
        k_row = (size_t)(a.kv_heads * a.head_dim);
        v_row = (size_t)(a.kv_heads * a.v_head_dim);
        k = look_floats(300 * k_row);
        v = look_floats(300 * v_row);
        CHECK(attn_kv_init(&kept, &a) == ATTN_OK && attn_kv_init(&put, &a) == ATTN_OK);
        rng_fill(&r, k, 300 * k_row);
        rng_fill(&r, v, 300 * v_row);
        while (length < 290 && (length < 20 || rng_int(&r, 0, 3))) {      /* in pieces, as rows and as lanes */
            const int more = rng_int(&r, 1, rng_int(&r, 0, 1) ? 4 : 40);
            const int piece = more < 300 - length ? more : 300 - length;
            const float *k_at = k + (size_t)length * k_row, *v_at = v + (size_t)length * v_row;
            CHECK(attn_kv_append(&kept, 0, k_at, v_at, piece, 0) == ATTN_OK);
            CHECK(attn_kv_append(&put, 0, k_at, v_at, piece, 0) == ATTN_OK);
            length += piece;
            if (length > 40 && !rng_int(&r, 0, 3)) {                      /* panels that are cut */
                const int cut = rng_int(&r, 1, 30);
                CHECK(attn_kv_truncate(&kept, 0, length - cut) == ATTN_OK);
                CHECK(attn_kv_truncate(&put, 0, length - cut) == ATTN_OK);
                length -= cut;
            }
        }
        from = rng_int(&r, 0, 1) ? length - rng_int(&r, 0, length < 30 ? length : 30) : rng_int(&r, 0, length);
        for (int j = from; j < length; j++) if (rng_int(&r, 0, 1)) rows[n++] = j;
        if (rng_int(&r, 0, 1)) {
            CHECK(attn_kv_copy(&kept, 1, 0, length) == ATTN_OK && attn_kv_copy(&put, 1, 0, length) == ATTN_OK);
        }
        CHECKF(attn_kv_keep(&kept, 0, from, rows, n) == ATTN_OK, "%s", refusal_text());
        CHECK(attn_kv_truncate(&put, 0, from) == ATTN_OK);
        for (int j = 0; j < n; j++) {
            const float *k_at = k + (size_t)rows[j] * k_row, *v_at = v + (size_t)rows[j] * v_row;
            CHECK(attn_kv_append(&put, 0, k_at, v_at, 1, 0) == ATTN_OK);
        }
        both[0] = kept, both[1] = put;
        for (int more = 0; more < 2; more++) {
            for (int b = 0; b < 2; b++) {                                 /* entry 1 may share: it has not changed */
                unsigned char *other;
                size = attn_kv_saved(&both[0], b);
                CHECK(size == attn_kv_saved(&both[1], b));
                bytes = malloc(size);
                other = malloc(size);
                if (!bytes || !other) abort();
                CHECK(attn_kv_save(&both[0], b, bytes, size) == ATTN_OK);
                CHECK(attn_kv_save(&both[1], b, other, size) == ATTN_OK);
                CHECKF(!memcmp(bytes, other, size), "%d of %d rows from %d, storage %d, head_dim %d, entry %d", n,
                       length, from, (int)a.k_storage, a.head_dim, b);
                free(bytes);
                free(other);
            }
            for (int c = 0; c < 2; c++) {
                const int counts[2] = {20, 7};
                CHECK(append_counts(&both[c], k, v, 20, counts, 0) == ATTN_OK);
            }
        }
        attn_kv_free(&kept);
        attn_kv_free(&put);
        free(k); free(v);
    }
}

static void keep_wrong(void)
{
    attn_kv_args a = {.batch = 2, .kv_heads = 1, .head_dim = 4, .capacity = 600, .pages = 5};
    static float k[400 * 4];
    const int rows[3] = {301, 303, 305}, fall[3] = {301, 301, 305}, early[2] = {299, 301}, late[2] = {301, 400};
    attn_kv c, none = {0};
    snapshot before;
    CHECK(attn_kv_init(&c, &a) == ATTN_OK && attn_kv_append(&c, 0, k, k, 400, 0) == ATTN_OK);
    CHECK(attn_kv_forget(&c, 0, 0, 130) == ATTN_OK);
    before = snapshot_take(&c);
    REFUSED(attn_kv_keep(NULL, 0, 300, rows, 3), ATTN_E_NULL, "attn_kv_keep: c is NULL");
    REFUSED(attn_kv_keep(&none, 0, 300, rows, 3), ATTN_E_NULL, "attn_kv_keep: c is not a cache");
    REFUSED(attn_kv_keep(&c, 2, 300, rows, 3), ATTN_E_MAP, "entry is 2 but must be 0..1");
    REFUSED(attn_kv_keep(&c, -1, 300, rows, 3), ATTN_E_MAP, "entry is -1 but must be 0..1");
    REFUSED(attn_kv_keep(&c, 0, 401, rows, 0), ATTN_E_LENGTHS, "from is 401 but entry 0 holds 400 keys");
    REFUSED(attn_kv_keep(&c, 0, -1, rows, 0), ATTN_E_LENGTHS, "from is -1");
    REFUSED(attn_kv_keep(&c, 0, 100, rows, 0), ATTN_E_LENGTHS, "0..127 of entry 0 are forgotten");
    REFUSED(attn_kv_keep(&c, 0, 0, rows, 3), ATTN_E_LENGTHS, "from is 0 but entry 0 has forgotten keys up to 127");
    REFUSED(attn_kv_keep(&c, 0, 300, rows, -1), ATTN_E_SIZE, "n is -1");
    REFUSED(attn_kv_keep(&c, 0, 398, rows, 3), ATTN_E_LENGTHS, "n is 3 but entry 0 has 2 keys after from");
    REFUSED(attn_kv_keep(&c, 0, 300, NULL, 1), ATTN_E_NULL, "rows is NULL");
    REFUSED(attn_kv_keep(&c, 0, 300, behind(rows, 1), 1), ATTN_E_ALIGN, "rows is not aligned");
    REFUSED(attn_kv_keep(&c, 0, 300, (const int *)c.memory, 1), ATTN_E_OVERLAP, "the memory of c overlaps rows");
    REFUSED(attn_kv_keep(&c, 0, 300, fall, 3), ATTN_E_LENGTHS, "rows[1] is 301 but rows rise, from 300 to 399");
    REFUSED(attn_kv_keep(&c, 0, 300, early, 2), ATTN_E_LENGTHS, "rows[0] is 299 but");
    REFUSED(attn_kv_keep(&c, 0, 300, late, 2), ATTN_E_LENGTHS, "rows[1] is 400 but");
    CHECK(snapshot_same(&before, &c));
    /* shared pages, and none left to copy one to */
    CHECK(attn_kv_copy(&c, 1, 0, 400) == ATTN_OK && c.free_pages == 2);
    CHECK(attn_kv_append(&c, 1, k, k, 112, 0) == ATTN_OK && c.free_pages == 1);
    CHECK(attn_kv_append(&c, 1, k, k, 1, 0) == ATTN_OK && c.free_pages == 0);
    before = snapshot_take(&c);
    REFUSED(attn_kv_keep(&c, 0, 300, rows, 3), ATTN_E_FULL,
            "the cache needs 1 more pages but 0 are free: 1 are missing");
    CHECK(snapshot_same(&before, &c));
    CHECK(attn_kv_keep(&c, 0, 300, NULL, 0) == ATTN_OK && c.lengths[0] == 300);
    attn_kv_free(&c);
}

/* Most histories fill the cache; some share and cut more than they add. */
static int operate(pair *p, pair *other, rng *r)
{
    const int what = rng_int(r, 0, 21), capacity = p->m.shape.capacity;
    if (what < 5) append_both(p, rng_int(r, 0, 3) ? 20 : capacity, r);
    else if (what < 7) append_both(p, rng_int(r, 1, 200), r);
    else if (what < 10) step_both(p, r);
    else if (what == 10) load_both(p, rng_int(r, 0, 1) ? p : other, r);
    else if (what == 11) read_both(p, r);
    else if (what < 13) rename_both(0, p, r);
    else if (what < 15) rename_both(1, p, r);
    else if (what == 15) rename_both(2, p, r);
    else if (what < 19) rename_both(3, p, r);
    else if (what >= 20) rename_both(5, p, r);
    else if (!rng_int(r, 0, 3)) rename_both(4, p, r);
    return what;
}

static void history(unsigned long long seed)
{
    rng r = rng_make(seed);
    attn_kv_args a = shape_draw(&r), b = a;
    pair p[2];
    b.batch = rng_int(&r, 1, MOST_BATCH);
    if (!rng_int(&r, 0, 9) && (b.v_head_dim ? b.v_head_dim : b.head_dim) <= b.head_dim) b.v_in_k = !a.v_in_k;
    if (b.v_in_k) b.v_storage = b.k_storage;
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
               "%d/%d%s, storage %d, capacity %d, pages %d", seed, op, what, which, p[which].c.shape.batch,
               a.kv_heads, a.head_dim, a.v_head_dim, p[which].m.shape.v_in_k ? " in K" : "",
               (int)a.k_storage, p[which].c.shape.capacity,
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

/* ---- room ------------------------------------------------------------------------------------ */
static attn_kv_args shape_of(int batch, int kv_heads, int head_dim, int capacity, int pages)
{
    attn_kv_args a = {0};
    a.batch = batch;
    a.kv_heads = kv_heads;
    a.head_dim = head_dim;
    a.capacity = capacity;
    a.pages = pages;
    return a;
}

/* Appends n[b] keys to each entry of a cache of one head of 4, all or none: in one append if one entry grows, or all by
   the same number; otherwise in one step. */
static attn_status add(attn_kv *c, const int *n)
{
    static float rows[3 * 600 * 4], out[3 * 600 * 4];
    attn_args a = {0};
    int most = 0, least = n[0], growing = 0, which = -1;
    for (int b = 0; b < c->shape.batch; b++) {
        most = n[b] > most ? n[b] : most;
        least = n[b] < least ? n[b] : least;
        growing += n[b] > 0;
        if (n[b] > 0) which = b;
    }
    if (growing == 1 || least == most) return attn_kv_append(c, growing == 1 ? which : -1, rows, rows, most, 0);
    a.batch = c->shape.batch, a.n_q = most, a.heads = 1;
    a.q = a.k = a.v = rows, a.out = out, a.q_lengths = n;
    return attn_self_step(c, &a);
}

#define ADD(c, ...) add((c), (const int[]){__VA_ARGS__})

static void full(void)
{
    attn_kv_args s = shape_of(3, 1, 4, 300, 4);
    attn_kv c;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(c.free_pages == 4 && c.shape.pages == 4);
    CHECK(ADD(&c, 130, 100, 0) == ATTN_OK && c.free_pages == 1);
    refusal_keeps_cache(&c);
    REFUSED(ADD(&c, 171, 0, 0), ATTN_E_FULL,
            "attn_kv_append: entry 0 of the cache holds 130 of 300 keys, no room for 171 more");
    REFUSED(ADD(&c, 0, 0, 200), ATTN_E_FULL,
            "attn_kv_append: the cache needs 2 more pages but 1 are free: 1 are missing");
    REFUSED(ADD(&c, 170, 200, 300), ATTN_E_FULL, "the cache needs 6 more pages but 1 are free: 5 are missing");
    CHECK(ADD(&c, 126, 28, 128) == ATTN_OK && c.free_pages == 0);     /* up to the last key of a page */
    REFUSED(ADD(&c, 0, 0, 1), ATTN_E_FULL, "the cache needs 1 more pages but 0 are free: 1 are missing");
    CHECK(attn_kv_forget(&c, 0, 0, 256) == ATTN_OK && c.free_pages == 2);
    CHECK(ADD(&c, 0, 0, 129) == ATTN_OK && c.free_pages == 0);
    REFUSED(ADD(&c, 1, 0, 0), ATTN_E_FULL, "needs 1 more pages but 0 are free: 1 are missing");
    CHECK(attn_kv_reset(&c, -1) == ATTN_OK && c.free_pages == 4);
    attn_kv_free(&c);
}

/* Pages are copied when an entry writes to a shared last page, by all but one of its holders. */
static void copies(void)
{
    attn_kv_args s = shape_of(3, 1, 4, 600, 6);
    attn_kv c;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(ADD(&c, 300, 0, 0) == ATTN_OK && c.free_pages == 3);
    CHECK(attn_kv_copy(&c, 1, 0, 300) == ATTN_OK && attn_kv_copy(&c, 2, 0, 290) == ATTN_OK);
    CHECK(c.free_pages == 3);
    CHECK(ADD(&c, 0, 0, 0) == ATTN_OK && c.free_pages == 3);
    CHECK(ADD(&c, 1, 1, 1) == ATTN_OK && c.free_pages == 1);          /* one of three still holds it */
    CHECK(ADD(&c, 9, 9, 9) == ATTN_OK && c.free_pages == 1);          /* all unshared: no more copies */
    CHECK(attn_kv_copy(&c, 1, 0, 256) == ATTN_OK && c.free_pages == 2);
    CHECK(ADD(&c, 0, 1, 0) == ATTN_OK && c.free_pages == 1);          /* a new page, no copy */
    CHECK(attn_kv_copy(&c, 1, 0, 200) == ATTN_OK && c.free_pages == 2);
    CHECK(attn_kv_truncate(&c, 0, 256) == ATTN_OK && c.free_pages == 3);
    CHECK(ADD(&c, 1, 0, 0) == ATTN_OK && c.free_pages == 2);          /* its last shared page is full */
    CHECK(ADD(&c, 0, 1, 0) == ATTN_OK && c.free_pages == 1);          /* that of 200 keys is not */
    CHECK(attn_kv_reset(&c, -1) == ATTN_OK && c.free_pages == 6);

    /* 5 pages, three entries that share the last one: two copies need one page too many */
    CHECK(ADD(&c, 600, 0, 0) == ATTN_OK && c.free_pages == 1);
    CHECK(attn_kv_reorder(&c, (const int[]){0, 0, 0}) == ATTN_OK && c.free_pages == 1);
    CHECK(attn_kv_truncate(&c, -1, 590) == ATTN_OK && c.free_pages == 1);
    refusal_keeps_cache(&c);
    REFUSED(ADD(&c, 1, 1, 1), ATTN_E_FULL, "the cache needs 2 more pages but 1 are free: 1 are missing");
    /* rejected after its pages were counted */
    REFUSED(attn_kv_append(&c, 1, c.memory, c.memory, 1, 0), ATTN_E_OVERLAP, "the memory of c overlaps k");
    CHECK(ADD(&c, 0, 1, 0) == ATTN_OK && c.free_pages == 0);
    REFUSED(ADD(&c, 1, 0, 1), ATTN_E_FULL, "the cache needs 1 more pages but 0 are free: 1 are missing");
    REFUSED(ADD(&c, 1, 0, 0), ATTN_E_FULL, "the cache needs 1 more pages but 0 are free: 1 are missing");
    CHECK(attn_kv_copy(&c, 2, 1, 591) == ATTN_OK && c.free_pages == 0);
    CHECK(ADD(&c, 1, 0, 0) == ATTN_OK);                               /* unshared by now */
    CHECK(attn_kv_copy(&c, 0, 0, 512) == ATTN_OK && c.free_pages == 1);
    CHECK(attn_kv_copy(&c, 1, 1, 591) == ATTN_OK && c.free_pages == 1);
    attn_kv_free(&c);
}

/* The same for every call that appends: nothing changes, nothing is written. */
static void full_elsewhere(void)
{
    enum { BATCH = 2, DM = 8, MOST = 300 };
    static float x[BATCH * MOST * DM], out[2][BATCH * MOST * DM];
    const int lengths[BATCH] = {129, 1}, none[BATCH] = {257, 0};
    attn_kv_args s = shape_of(BATCH, 2, 4, MOST, 2);
    attn_mha_args ma = {0};
    attn_mha m;
    attn_args a = {0};
    attn_kv c;
    float w[4 * DM * DM];
    unsigned char saved[64 + 129 * 64];
    rng r = rng_make(test_seed);
    rng_fill(&r, x, BATCH * MOST * DM);
    rng_fill(&r, w, 4 * DM * DM);
    ma.d_model = DM;
    ma.heads = 2;
    ma.w_in = w;
    ma.w_o = w + 3 * DM * DM;
    CHECK(attn_mha_init(&m, &ma) == ATTN_OK);
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    memset(out, 0x77, sizeof out);
    CHECK(attn_kv_append(&c, -1, x, x, 100, 0) == ATTN_OK && c.free_pages == 0);
    a.batch = BATCH, a.heads = 2, a.n_q = 29;
    a.q = a.k = a.v = x, a.out = out[0];
    refusal_keeps_cache(&c);
    REFUSED(attn_self_step(&c, &a), ATTN_E_FULL,
            "attn_self_step: the cache needs 2 more pages but 0 are free: 2 are missing");
    REFUSED(attn_mha_self_step(&m, out[0], x, BATCH, 29, &c, NULL), ATTN_E_FULL,
            "attn_mha_self_step: the cache needs 2 more pages but 0 are free: 2 are missing");
    a.q_lengths = lengths;
    a.n_q = 129;
    REFUSED(attn_self_step(&c, &a), ATTN_E_FULL, "needs 1 more pages but 0 are free: 1 are missing");
    a.n_q = 201, a.q_lengths = NULL;
    REFUSED(attn_self_step(&c, &a), ATTN_E_FULL,
            "attn_self_step: entry 0 of the cache holds 100 of 300 keys, no room for 201 more");
    REFUSED(attn_mha_cross_fill(&m, &c, x, BATCH, 129, NULL, NULL), ATTN_E_FULL,
            "attn_mha_cross_fill: the cache needs 4 pages but has 2: 2 are missing");
    REFUSED(attn_mha_cross_fill(&m, &c, x, BATCH, 257, none, NULL), ATTN_E_FULL, "needs 3 pages but has 2: 1 ");
    CHECK(!memcmp(out[0], out[1], sizeof out[0]));
    CHECK(attn_kv_reset(&c, 1) == ATTN_OK);
    CHECK(attn_kv_append(&c, 0, x, x, 29, 0) == ATTN_OK && c.free_pages == 0);
    CHECK(attn_kv_saved(&c, 0) == sizeof saved);
    CHECK(attn_kv_save(&c, 0, saved, sizeof saved) == ATTN_OK);
    REFUSED(attn_kv_load(&c, 1, saved, sizeof saved), ATTN_E_FULL,
            "attn_kv_load: the cache needs 2 more pages but 0 are free: 2 are missing");
    CHECK(attn_kv_copy(&c, 1, 0, 129) == ATTN_OK && c.free_pages == 0);
    REFUSED(attn_kv_load(&c, 0, saved, sizeof saved), ATTN_E_FULL,         /* both pages are shared */
            "attn_kv_load: the cache needs 2 more pages but 0 are free: 2 are missing");
    CHECK(attn_kv_reset(&c, 1) == ATTN_OK);
    CHECK(attn_kv_load(&c, 0, saved, sizeof saved) == ATTN_OK && c.free_pages == 0);
    CHECK(attn_mha_cross_fill(&m, &c, x, BATCH, 128, NULL, NULL) == ATTN_OK && c.free_pages == 0);
    CHECK(attn_mha_cross_fill(&m, &c, x, BATCH, 256, (const int[]){256, 0}, NULL) == ATTN_OK);
    CHECK(c.lengths[0] == 256 && c.lengths[1] == 0 && c.free_pages == 0);
    attn_kv_free(&c);
    attn_mha_free(&m);
}

/* The memory that the header promises: an entry of n < 128 keys takes n rounded up to 16. */
static void memory(void)
{
    static const int capacity[] = {1, 4, 15, 16, 17, 24, 112, 113, 127, 128, 129, 256, 257};
    for (int i = 0; i < 13; i++) {
        attn_kv_args s = shape_of(32, 3, 20, capacity[i], 0);
        const size_t keys = capacity[i] < 128 ? (size_t)(capacity[i] + 15) / 16 * 16
                                              : (size_t)(capacity[i] + 127) / 128 * 128;
        const size_t floats = keys * 3 * (20 + 32), pages = (keys + 127) / 128;
        /* numbers: 3 and the table, twice, for each entry; 2 for each page; 63 to align */
        CHECKF(attn_kv_size(&s) == 32 * (floats * 4 + (pages + 3) * 8 + pages * 8) + 63,
               "capacity %d: %lu bytes", capacity[i], (unsigned long)attn_kv_size(&s));
        s.pages = 5;
        CHECKF(attn_kv_size(&s) == 5 * (floats / pages * 4 + 8) + 32 * (pages + 3) * 8 + 63,
               "capacity %d, 5 pages: %lu bytes", capacity[i], (unsigned long)attn_kv_size(&s));
    }
    {
        attn_kv_args s = shape_of(2, 1, 4, 16, -1);
        attn_kv c;
        REFUSED(attn_kv_init(&c, &s), ATTN_E_SIZE, "attn_kv_init: pages is -1");
        s.pages = 2147483647;
        REFUSED(attn_kv_init(&c, &s), ATTN_E_OVERFLOW, "attn_kv_init: pages is 2147483647");
        s.head_dim = 1 << 20, s.kv_heads = 1 << 10, s.capacity = 1 << 20, s.pages = 1 << 30;
        REFUSED_SIZE(attn_kv_size(&s), ATTN_E_OVERFLOW, "attn_kv_size: batch 2 x kv_heads 1024");
        /* few, short pages: the lists of the entries alone overflow */
        s = shape_of(1 << 29, 1, 1, 1, 1);
        if (sizeof(size_t) == 4)
            REFUSED_SIZE(attn_kv_size(&s), ATTN_E_OVERFLOW, "attn_kv_size: batch 536870912");
        else
            CHECK(attn_kv_size(&s) == (((size_t)1 << 29) * 8 + 2) * 4 + 16 * (1 + 16) * 4 + 63);
    }
}

/* ---- forgetting ------------------------------------------------------------------------------ */
static void forget_edges(void)
{
    enum { ROW = 4 };
    attn_kv_args s = shape_of(2, 1, ROW, 1000, 0);
    attn_kv c;
    int user;
#define GAP(b, from, to) CHECKF(c.gaps[2 * (b)] == (from) && c.gaps[2 * (b) + 1] == (to), \
                                "forgotten: %d .. %d", c.gaps[2 * (b)], c.gaps[2 * (b) + 1])
    s.user = &user;
    refusal_tells(&user);
    refusal_keeps_cache(&c);
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(attn_kv_forget(&c, -1, 0, 0) == ATTN_OK);
    CHECK(ADD(&c, 600, 500) == ATTN_OK && c.free_pages == 16 - 5 - 4);
    REFUSED(attn_kv_forget(&c, 0, 0, 601), ATTN_E_LENGTHS,
            "attn_kv_forget: before is 601 but entry 0 has had 600 keys");
    REFUSED(attn_kv_forget(&c, -1, 0, 501), ATTN_E_LENGTHS, "entry 1 has had 500 keys");
    CHECK(attn_kv_forget(&c, 0, 0, -1) == ATTN_OK && attn_kv_forget(&c, 0, 1, -2147483647) == ATTN_OK);
    REFUSED(attn_kv_forget(&c, 0, -1, 200), ATTN_E_LENGTHS, "attn_kv_forget: pinned is -1 but");
    REFUSED(attn_kv_forget(&c, 1, 501, 500), ATTN_E_LENGTHS,
            "attn_kv_forget: pinned is 501 but entry 1 has had 500 keys");
    REFUSED(attn_kv_forget(&c, 2, 0, 0), ATTN_E_MAP, "attn_kv_forget: entry is 2");
    REFUSED(attn_kv_forget(&c, -2, 0, 0), ATTN_E_MAP, "attn_kv_forget: entry is -2");
    /* no whole page */
    CHECK(attn_kv_forget(&c, 0, 0, 127) == ATTN_OK && attn_kv_forget(&c, 0, 1, 255) == ATTN_OK);
    CHECK(attn_kv_forget(&c, 0, 128, 255) == ATTN_OK && attn_kv_forget(&c, 0, 600, 600) == ATTN_OK);
    CHECK(attn_kv_forget(&c, 0, 300, 200) == ATTN_OK && attn_kv_forget(&c, 0, 600, 0) == ATTN_OK);
    GAP(0, 0, 0);
    CHECK(c.free_pages == 7);
    /* after pinned keys; then more on either side, adjacent, overlapping, inside */
    CHECK(attn_kv_forget(&c, 0, 129, 511) == ATTN_OK && c.free_pages == 8);
    GAP(0, 256, 384);
    CHECK(c.lengths[0] == 600);
    REFUSED(attn_kv_forget(&c, 0, 0, 128), ATTN_E_LENGTHS,
            "attn_kv_forget: keys 256..383 of entry 0 are forgotten: keys 0..127 do not touch them");
    CHECK(attn_kv_forget(&c, 0, 385, 600) == ATTN_OK);                /* no whole page: nothing */
    CHECK(attn_kv_forget(&c, 0, 256, 384) == ATTN_OK && attn_kv_forget(&c, 0, 300, 384) == ATTN_OK);
    GAP(0, 256, 384);
    CHECK(attn_kv_forget(&c, 0, 384, 512) == ATTN_OK && c.free_pages == 9);
    GAP(0, 256, 512);
    CHECK(attn_kv_forget(&c, 0, 100, 256) == ATTN_OK && c.free_pages == 10);
    GAP(0, 128, 512);
    /* cuts at the edges of the forgotten range, not inside */
    REFUSED(attn_kv_truncate(&c, 0, 129), ATTN_E_LENGTHS,
            "attn_kv_truncate: length is 129 but keys 128..511 of entry 0 are forgotten");
    REFUSED(attn_kv_truncate(&c, 0, 511), ATTN_E_LENGTHS, "length is 511 but keys 128..511");
    REFUSED(attn_kv_truncate(&c, -1, 300), ATTN_E_LENGTHS, "length is 300");
    REFUSED(attn_kv_copy(&c, 1, 0, 129), ATTN_E_LENGTHS, "attn_kv_copy: length is 129 but keys 128");
    REFUSED(attn_kv_copy(&c, 1, 0, 511), ATTN_E_LENGTHS, "of entry 0 are forgotten");
    REFUSED(attn_kv_copy(&c, 0, 0, 300), ATTN_E_LENGTHS, "of entry 0 are forgotten");
    REFUSED(attn_kv_read(&c, 0, 127, 2, NULL, NULL), ATTN_E_LENGTHS,
            "attn_kv_read: keys 128..511 of the entry are forgotten");
    REFUSED(attn_kv_read(&c, 0, 511, 1, NULL, NULL), ATTN_E_LENGTHS, "are forgotten");
    CHECK(attn_kv_read(&c, 0, 300, 0, NULL, NULL) == ATTN_OK);
    CHECK(attn_kv_read(&c, 0, 0, 128, NULL, NULL) == ATTN_OK);
    CHECK(attn_kv_read(&c, 0, 512, 88, NULL, NULL) == ATTN_OK);
    CHECK(attn_kv_copy(&c, 1, 0, 512) == ATTN_OK && c.lengths[1] == 512);
    GAP(1, 128, 512);
    CHECK(attn_kv_truncate(&c, 1, 128) == ATTN_OK && c.lengths[1] == 128);   /* as if never forgotten */
    GAP(1, 0, 0);
    CHECK(ADD(&c, 0, 3) == ATTN_OK && c.lengths[1] == 131);
    CHECK(attn_kv_copy(&c, 1, 0, 100) == ATTN_OK && c.lengths[1] == 100);
    GAP(1, 0, 0);
    /* forgets everything, then continues */
    CHECK(attn_kv_truncate(&c, 0, 512) == ATTN_OK && attn_kv_forget(&c, 0, 0, 512) == ATTN_OK);
    GAP(0, 0, 512);
    CHECK(c.lengths[0] == 512 && c.free_pages == 15);
    CHECK(attn_kv_saved(&c, 0) == 64);
    CHECK(ADD(&c, 1000, 0) == ATTN_OK && c.lengths[0] == 1512);
    REFUSED(ADD(&c, 1, 0), ATTN_E_FULL, "entry 0 of the cache holds 1000 of 1000 keys, no room for 1 more");
    CHECK(attn_kv_forget(&c, 0, 0, 640) == ATTN_OK && ADD(&c, 128, 0) == ATTN_OK);
    GAP(0, 0, 640);
    CHECK(attn_kv_reset(&c, 0) == ATTN_OK && c.lengths[0] == 0);
    GAP(0, 0, 0);
    attn_kv_free(&c);
    refusal_forget();
    REFUSED(attn_kv_forget(NULL, 0, 0, 0), ATTN_E_NULL, "attn_kv_forget: c is NULL");
    REFUSED(attn_kv_forget(&c, 0, 0, 0), ATTN_E_NULL, "attn_kv_forget: c is not a cache");

    s.capacity = 100;                     /* less than a page: nothing to release */
    CHECK(attn_kv_init(&c, &s) == ATTN_OK && ADD(&c, 100, 100) == ATTN_OK);
    CHECK(attn_kv_forget(&c, -1, 0, 100) == ATTN_OK && c.free_pages == 0);
    GAP(0, 0, 0);
    refusal_keeps_cache(&c);
    REFUSED(ADD(&c, 1, 0), ATTN_E_FULL, "holds 100 of 100 keys");
    attn_kv_free(&c);
    s.capacity = 128;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK && ADD(&c, 128, 127) == ATTN_OK);
    CHECK(attn_kv_forget(&c, 0, 0, 128) == ATTN_OK && attn_kv_forget(&c, 1, 0, 127) == ATTN_OK);
    GAP(0, 0, 128);
    GAP(1, 0, 0);
    CHECK(ADD(&c, 128, 1) == ATTN_OK && c.lengths[0] == 256 && c.free_pages == 0);
    attn_kv_free(&c);
}

/* Rows whose windows exclude the forgotten keys: the bits of the whole cache, in every form of the call. */
static void windows(void)
{
    enum { BATCH = 2, KV = 2, GROUP = 2, D = 8, DV = 5, N = 700, MOST_Q = 40 };
    rng r = rng_make(test_seed + 20);
    attn_kv_args s = shape_of(BATCH, KV, D, N, 0);
    attn_kv whole, rest;
    attn_backend backends[16];
    const int n_backends = test_all_backends(backends, 16);
    float *k = look_floats(BATCH * N * KV * D), *v = look_floats(BATCH * N * KV * DV);
    enum { HEADS = KV * GROUP, OUT = BATCH * MOST_Q * HEADS * DV, W = BATCH * MOST_Q * HEADS * N };
    float *q = look_floats(BATCH * MOST_Q * HEADS * D), *out = look_floats(2 * OUT);
    float *w = look_floats(2 * W), *lse = look_floats(2 * BATCH * MOST_Q * HEADS);
    const float slopes[HEADS] = {0.5f, 0.25f, 0.125f, 1.0f}, sinks[HEADS] = {0.5f, -1.0f, 2.0f, 0.0f};
    s.v_head_dim = DV;
    rng_fill(&r, k, BATCH * N * KV * D);
    rng_fill(&r, v, BATCH * N * KV * DV);
    rng_fill(&r, q, BATCH * MOST_Q * HEADS * D);
    CHECK(attn_kv_init(&whole, &s) == ATTN_OK && attn_kv_init(&rest, &s) == ATTN_OK);
    CHECK(append_counts(&whole, k, v, N, (const int[]){700, 650}, 0) == ATTN_OK);
    CHECK(append_counts(&rest, k, v, N, (const int[]){700, 650}, 0) == ATTN_OK);
    CHECK(attn_kv_forget(&rest, -1, 0, 650 - 200) == ATTN_OK && rest.free_pages == 6);
    look_poison(&rest);
    for (int i = 0; i < 120 * test_scale && !test_failed(); i++) {
        const int n_q = i % 3 == 0 ? 1 : i % 3 == 1 ? 4 : MOST_Q, width = rng_int(&r, 0, 4);
        const int how = rng_int(&r, 0, 15), stage = rng_int(&r, 0, 3);
        attn_exec exec = test_exec(width > 0 ? width : 1);
        attn_args a = attn_args_for(BATCH, n_q, 0, HEADS, 0);
        size_t masked[2];
        a.kv_heads = KV;
        a.q = q;
        a.window_left = 200 - n_q;        /* row 0 of entry 1 is at 650 - n_q */
        a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        a.alibi_slopes = how & 1 ? slopes : NULL;
        a.sinks = how & 2 ? sinks : NULL;
        a.softcap = how & 4 ? 5.0f : 0.0f;
        a.weights_stage = (attn_stage)stage;
        a.backend = backends[i % n_backends];
        memset(w, 0x77, 2 * W * sizeof(float));
        for (int which = 0; which < 2; which++) {
            a.kv = which ? &rest : &whole;
            a.out = out + which * OUT;
            a.lse = lse + which * BATCH * MOST_Q * HEADS;
            a.weights = how & 8 ? w + which * W : NULL;
            a.masked_rows = &masked[which];
            a.exec = which && width ? &exec : NULL;
            CHECK(attn_sdpa(&a) == ATTN_OK);
        }
        if (a.weights && (stage == ATTN_SCORES_RAW || stage == ATTN_SCORES_CAPPED))
            for (int row = 0; row < BATCH * HEADS * n_q; row++)       /* raw scores no longer exist */
                for (int j = 0; j < 384; j++) w[row * N + j] = bits_float(0xFF800000u);
        CHECKF(same_bits(out, out + OUT, (size_t)(BATCH * n_q * HEADS * DV)) &&
               same_bits(lse, lse + BATCH * MOST_Q * HEADS, (size_t)(BATCH * n_q * HEADS)) &&
               same_bits(w, w + W, W) && masked[0] == masked[1] && masked[0] == 0,
               "%d rows, %s, width %d, how %d, stage %d: other bits than from the whole cache", n_q,
               attn_backend_name(a.backend), width, how, stage);
    }
    attn_kv_free(&whole);
    attn_kv_free(&rest);
    free(k); free(v); free(q); free(out); free(w); free(lse);
}

/* A conversation of 5000 keys through a cache of 256, in steps, compared with a cache that holds all. The workspace is
   computed once. */
static void conversation(void)
{
    enum { BATCH = 2, HEADS = 2, D = 4, N = 5000, SMALL = 256, WINDOW = 100, MOST = 20 };
    rng r = rng_make(test_seed + 21);
    attn_kv_args s = shape_of(BATCH, HEADS, D, N, 0);
    attn_kv whole, small;
    static float q[BATCH * MOST * HEADS * D], k[BATCH * MOST * HEADS * D], v[BATCH * MOST * HEADS * D];
    static float out[2][BATCH * MOST * HEADS * D];
    attn_exec exec = test_exec(3);
    attn_args a = attn_args_for(BATCH, MOST, 0, HEADS, 0);
    int steps = 0, most = 0;
    CHECK(attn_kv_init(&whole, &s) == ATTN_OK);
    s.capacity = SMALL;
    CHECK(attn_kv_init(&small, &s) == ATTN_OK && small.shape.pages == 4);
    a.window_left = WINDOW;
    a.exec = &exec;                       /* only the largest call has an executor */
    a.q = q;
    a.out = out[0];
    a.kv = &small;
    a.work_size = attn_sdpa_workspace(&a);
    a.work = guard_alloc(a.work_size);
    while (small.lengths[0] + MOST <= N && !test_failed()) {
        const int length = small.lengths[0], n = rng_int(&r, 0, 2) ? 1 : rng_int(&r, 1, MOST);
        attn_args full = a;
        a.n_q = full.n_q = n;
        a.exec = steps % 8 ? NULL : &exec;
        full.exec = NULL;
        rng_fill(&r, q, sizeof q / sizeof *q);
        rng_fill(&r, k, sizeof k / sizeof *k);
        rng_fill(&r, v, sizeof v / sizeof *v);
        a.k = full.k = k;
        a.v = full.v = v;
        a.kv = NULL;
        full.kv = NULL, full.work = NULL, full.out = out[1];
        if (length > WINDOW) CHECK(attn_kv_forget(&small, -1, 0, length - WINDOW) == ATTN_OK);
        CHECKF(attn_self_step(&small, &a) == ATTN_OK, "step %d: %s", steps, refusal_text());
        if (length + n - small.gaps[1] > most) most = length + n - small.gaps[1];
        CHECK(attn_self_step(&whole, &full) == ATTN_OK);
        CHECKF(same_bits(out[0], out[1], (size_t)(BATCH * n * HEADS * D)),
               "after %d keys: %d rows differ from those of a cache of %d", length, n, N);
        if (steps % 64 == 0) look_poison(&small);
        steps++;
    }
    CHECKF(small.lengths[1] > 4900 && most <= WINDOW + 127 + MOST, "at most %d keys at a time", most);
    guard_free(a.work);
    attn_kv_free(&whole);
    attn_kv_free(&small);
}

/* The same with a layer, which rotates by positions far beyond the capacity; and the mean of its weights, which are as
   wide as positions: at some point the workspace for the capacity is too small. */
static void layer_conversation(void)
{
    enum { BATCH = 2, DM = 16, HEADS = 2, D = DM / HEADS, N = 2000, SMALL = 256, WINDOW = 60, ROPE = 4 };
    rng r = rng_make(test_seed + 22);
    attn_kv_args s = shape_of(BATCH, HEADS, D, N, 0);
    static float w[4 * DM * DM], table[N * ROPE], weights[BATCH * HEADS * N];
    float x[BATCH * DM], out[2][BATCH * DM];
    attn_mha_opts o = {0}, full;
    attn_mha_args ma = {0};
    attn_kv whole, small;
    attn_mha m;
    unsigned char *work;
    size_t work_size;
    rng_fill(&r, w, 4 * DM * DM);
    rng_fill(&r, table, N * ROPE);
    ma.d_model = DM;
    ma.heads = HEADS;
    ma.w_in = w;
    ma.w_o = w + 3 * DM * DM;
    ma.rope_table = table;
    ma.rotary_dim = ROPE;
    ma.positions = N;
    CHECK(attn_mha_init(&m, &ma) == ATTN_OK);
    CHECK(attn_kv_init(&whole, &s) == ATTN_OK);
    s.capacity = SMALL;
    CHECK(attn_kv_init(&small, &s) == ATTN_OK);
    o.attn.window_left = WINDOW;
    full = o;
    work_size = attn_mha_workspace(&m, ATTN_MHA_SELF_STEP, BATCH, 1, SMALL, &o);
    work = guard_alloc(work_size);
    o.attn.work = work;
    o.attn.work_size = work_size;
    for (int t = 0; t < N && !test_failed(); t++) {
        rng_fill(&r, x, BATCH * DM);
        if (t >= WINDOW) CHECK(attn_kv_forget(&small, -1, 0, t + 1 - WINDOW) == ATTN_OK);
        CHECKF(attn_mha_self_step(&m, out[0], x, BATCH, 1, &small, &o) == ATTN_OK, "step %d: %s", t,
               refusal_text());
        CHECK(attn_mha_self_step(&m, out[1], x, BATCH, 1, &whole, &full) == ATTN_OK);
        CHECKF(same_bits(out[0], out[1], BATCH * DM), "step %d of a layer differs", t);
    }
    CHECK(attn_kv_truncate(&small, -1, N - 1) == ATTN_OK);
    CHECK(attn_kv_truncate(&whole, -1, N - 1) == ATTN_OK);
    guard_free(work);
    o.attn.weights = full.attn.weights = weights;
    o.weights_mean = full.weights_mean = 1;
    work_size = attn_mha_workspace(&m, ATTN_MHA_SELF_STEP, BATCH, 1, SMALL, &o);
    work = guard_alloc(work_size);
    o.attn.work = work;
    o.attn.work_size = work_size;
    {
        snapshot before = snapshot_take(&small);
        REFUSED(attn_mha_self_step(&m, out[0], x, BATCH, 1, &small, &o), ATTN_E_WORK, "work_size is");
        CHECK(snapshot_same(&before, &small));
    }
    o.attn.work = NULL;
    CHECK(attn_mha_self_step(&m, out[0], x, BATCH, 1, &small, &o) == ATTN_OK);
    {
        float *mine = look_floats(BATCH * N);
        memcpy(mine, weights, BATCH * N * sizeof(float));
        CHECK(attn_mha_self_step(&m, out[1], x, BATCH, 1, &whole, &full) == ATTN_OK);
        CHECK(same_bits(out[0], out[1], BATCH * DM) && same_bits(mine, weights, BATCH * N));
        free(mine);
    }
    guard_free(work);
    attn_mha_free(&m);
    attn_kv_free(&whole);
    attn_kv_free(&small);
}

/* ---- ways of appending, and many readers -------------------------------------------------------- */
/* Row by row, in pieces, cut and added again: the same attention, the same bytes, the same rows. */
static void pieces(void)
{
    static const int dims[][2] = {{1, 1}, {16, 16}, {7, 20}, {40, 3}, {512, 2}, {513, 2}};
    static const int lengths[] = {1, 15, 16, 17, 31, 33, 127, 128, 129, 144, 200, 300};
    rng r = rng_make(test_seed + 23);
    for (int d = 0; d < 6; d++)
        for (int l = 0; l < 12 && !test_failed(); l++) {
            const int n = lengths[l];
            attn_kv_args s = shape_of(1, 2, dims[d][0], n, 0);
            const size_t k_row = (size_t)(2 * dims[d][0]), v_row = (size_t)(2 * dims[d][1]);
            float *k = look_floats((size_t)n * k_row), *v = look_floats((size_t)n * v_row);
            float *k_back = guard_floats((size_t)n * k_row), *v_back = guard_floats((size_t)n * v_row);
            const int storage = l % 3;
            const size_t size = 64 + ((size_t)n * (k_row + v_row) * (storage ? 2 : 4) + 3) / 4 * 4;
            unsigned char *bytes[2];
            for (size_t i = 0; i < (size_t)n * k_row; i++) k[i] = (float)rng_int(&r, -128, 128);
            for (size_t i = 0; i < (size_t)n * v_row; i++) v[i] = (float)rng_int(&r, -128, 128);
            s.k_storage = s.v_storage = (attn_storage)storage;  /* all values are exact in both formats */
            s.v_head_dim = dims[d][1];
            for (int way = 0; way < 4; way++) {
                attn_kv c;
                CHECK(attn_kv_init(&c, &s) == ATTN_OK);
                look_poison(&c);
                for (int at = 0, rows; at < n; at += rows) {
                    rows = way == 0 ? n : way == 1 ? 1 : rng_int(&r, 1, 40);
                    if (rows > n - at) rows = n - at;
                    CHECK(attn_kv_append(&c, -1, k + (size_t)at * k_row, v + (size_t)at * v_row, rows, 0) == ATTN_OK);
                    if (way < 3) continue;
                    rows -= rng_int(&r, 0, at + rows < n ? rows - 1 : 0);
                    CHECK(attn_kv_truncate(&c, 0, at + rows) == ATTN_OK);
                }
                look_poison(&c);
                bytes[way > 0] = (unsigned char *)guard_alloc(size);
                CHECK(attn_kv_saved(&c, 0) == size);
                CHECK(attn_kv_save(&c, 0, bytes[way > 0], size) == ATTN_OK);
                CHECK(attn_kv_read(&c, 0, 0, n, k_back, v_back) == ATTN_OK);
                CHECKF(same_bits(k, k_back, (size_t)n * k_row) && same_bits(v, v_back, (size_t)n * v_row),
                       "%d keys of %d, way %d: other rows back", n, dims[d][0], way);
                if (way) {
                    CHECKF(!memcmp(bytes[0], bytes[1], size), "%d keys of %d, way %d: other bytes", n,
                           dims[d][0], way);
                    guard_free(bytes[1]);
                }
                attn_kv_free(&c);
            }
            guard_free(bytes[0]);
            guard_free(k_back);
            guard_free(v_back);
            free(k);
            free(v);
        }
}

/* Any number of readers at once: attention, rows read back, entries saved. */
typedef struct readers {
    const attn_kv *c;
    const float *q;
    float out[16][3 * 2 * 4 * 8], k[16][300 * 2 * 8];
    unsigned char bytes[16][64 + 300 * 2 * 16 * 4];
    attn_status status[16];
} readers;

static void read_task(void *arg, int i)
{
    readers *x = (readers *)arg;
    attn_args a = attn_args_for(3, 2, 0, 4, 8);
    a.kv_heads = 2;
    a.kv = x->c;
    a.q = x->q;
    a.out = x->out[i];
    x->status[i] = attn_sdpa(&a);
    if (x->status[i] == ATTN_OK) x->status[i] = attn_kv_read(x->c, 1, 128, 100, x->k[i], NULL);
    if (x->status[i] == ATTN_OK)
        x->status[i] = attn_kv_save(x->c, 0, x->bytes[i], sizeof x->bytes[i]);
}

static void readers_at_once(void)
{
    static readers x;
    static float rows[3 * 300 * 2 * 8], q[3 * 2 * 4 * 8];
    attn_kv_args s = shape_of(3, 2, 8, 400, 0);
    attn_exec exec = test_exec(8);
    rng r = rng_make(test_seed + 24);
    attn_kv c;
    rng_fill(&r, rows, sizeof rows / sizeof *rows);
    rng_fill(&r, q, sizeof q / sizeof *q);
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(append_counts(&c, rows, rows, 300, (const int[]){300, 77, 5}, 0) == ATTN_OK);
    CHECK(attn_kv_copy(&c, 1, 0, 250) == ATTN_OK && attn_kv_forget(&c, 1, 0, 128) == ATTN_OK);
    x.c = &c;
    x.q = q;
    exec.run(exec.pool, 16, read_task, &x);
    for (int i = 0; i < 16; i++)
        CHECKF(x.status[i] == ATTN_OK && same_bits(x.out[i], x.out[0], sizeof x.out[0] / 4) &&
               same_bits(x.k[i], x.k[0], sizeof x.k[0] / 4) &&
               !memcmp(x.bytes[i], x.bytes[0], sizeof x.bytes[0]), "reader %d", i);
    attn_kv_free(&c);
}

extern const test_case suite_pages[];
/* Pinned keys before a gap and keys after it, on every backend: forgotten keys are hidden like those of keep. */
static void around_a_gap(void)
{
    enum { KEYS = 400, ROWS = 5, ROW = 8 };
    attn_kv_args s = shape_of(1, 2, ROW / 2, KEYS, 0);
    attn_backend backends[16];
    const int n = test_all_backends(backends, 16);
    float k[KEYS * ROW], v[KEYS * ROW], q[ROWS * ROW], out[2][ROWS * ROW];
    unsigned char keep[KEYS];
    rng r = rng_make(test_seed + 9);
    attn_args a = attn_args_for(1, ROWS, KEYS, 2, ROW / 2), cached;
    attn_kv c;
    rng_fill(&r, k, KEYS * ROW);
    rng_fill(&r, v, KEYS * ROW);
    rng_fill(&r, q, ROWS * ROW);
    CHECK(attn_kv_init(&c, &s) == ATTN_OK && attn_kv_append(&c, -1, k, v, KEYS, 0) == ATTN_OK);
    CHECK(attn_kv_forget(&c, 0, 100, 300) == ATTN_OK);
    for (int j = 0; j < KEYS; j++) keep[j] = (unsigned char)(j < 128 || j >= 256);
    a.q = q, a.k = k, a.v = v, a.keep = keep, a.out = out[0];
    a.keep_shape[0] = a.keep_shape[1] = a.keep_shape[2] = 1;
    cached = attn_args_for(1, ROWS, 0, 2, ROW / 2);
    cached.q = q, cached.kv = &c, cached.out = out[1];
    for (int i = 0; i < n; i++) {
        a.backend = cached.backend = backends[i];
        CHECK(attn_sdpa(&a) == ATTN_OK && attn_sdpa(&cached) == ATTN_OK);
        CHECKF(same_bits(out[0], out[1], ROWS * ROW), "%s", attn_backend_name(backends[i]));
    }
    attn_kv_free(&c);
    s = shape_of(1, 1, ROW, 600, 0);
    CHECK(attn_kv_init(&c, &s) == ATTN_OK && attn_kv_append(&c, -1, k, v, KEYS, 0) == ATTN_OK);
    CHECK(attn_kv_forget(&c, 0, 0, 128) == ATTN_OK);
    REFUSED(attn_kv_forget(&c, 0, 256, 399), ATTN_E_LENGTHS,
            "attn_kv_forget: keys 0..127 of entry 0 are forgotten: keys 256..383 do not touch them");
    attn_kv_free(&c);
}

/* The manual's formula for a sliding window, over many windows and steps of n rows: it is enough, and for odd n one
   key less is not. The work memory does not depend on the window. */
static void sliding(void)
{
    static const int windows[] = {1, 2, 100, 126, 127, 128, 129, 256, 513}, steps[] = {1, 3, 7, 64, 129, 200};
    static float rows[200 * 4];
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (size_t x = 0; x < sizeof steps / sizeof *steps; x++)
            for (int less = 0; less < 2; less++) {
                const int window = windows[w], n = steps[x];
                attn_kv_args s = shape_of(1, 1, 4, window + 126 + n - less, 0);
                attn_args a = attn_args_for(1, n, 0, 1, 4);
                size_t work;
                attn_kv c;
                attn_status status = ATTN_OK;
                CHECK(attn_kv_init(&c, &s) == ATTN_OK);
                while (c.lengths[0] < 130 * n + window && status == ATTN_OK) {
                    CHECK(attn_kv_forget(&c, 0, 0, c.lengths[0] + 1 - window) == ATTN_OK);
                    status = attn_kv_append(&c, 0, rows, rows, n, 0);
                }
                if (!less) CHECKF(status == ATTN_OK, "window %d, %d rows a step: %s", window, n, refusal_text());
                else if (n % 2) CHECKF(status == ATTN_E_FULL, "window %d, %d rows a step: one key less", window, n);
                a.q = rows, a.out = rows, a.kv = &c;
                work = attn_sdpa_workspace(&a);
                a.window_left = window;
                CHECKF(attn_sdpa_workspace(&a) == work, "window %d changes the workspace", window);
                attn_kv_free(&c);
            }
}

/* attn_check names the first row whose window reaches forgotten keys, and is silent about all others. */
static void reaches(void)
{
    static const struct { int window, n_q, before, first; const char *words; } cases[] = {
        {252, 1, 600, 0, "; row 0 of entry 1 would see keys 388..511, which are forgotten"},
        {129, 1, 512, 0, "; row 0 of entry 1 would see keys 511..511, which are forgotten"},
        {128, 1, 512, 0, NULL}, {128, 2, 512, 0, "; row 0 of entry 1 would see keys 511..511, which are forgotten"},
        {0, 1, 512, 0, NULL}, {252, 1, 127, 0, NULL},
        {600, 1, 512, 128, "; row 0 of entry 1 would see keys 128..511, which are forgotten"},
        {3, 513, 256, 128, "; row 1 of entry 1 would see keys 128..128, which are forgotten"}
    };
    static float rows[2 * 640 * 4], out[2 * 513 * 4];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_kv_args s = shape_of(2, 1, 4, 640, 0);
        attn_args a = attn_args_for(2, cases[i].n_q, 0, 1, 4);
        char why[600];
        const char *found;
        attn_kv c;
        CHECK(attn_kv_init(&c, &s) == ATTN_OK);
        CHECK(attn_kv_append(&c, -1, rows, rows, 640, 0) == ATTN_OK);
        CHECK(attn_kv_forget(&c, 1, cases[i].first, cases[i].before) == ATTN_OK);
        a.q = rows, a.out = out, a.kv = &c;
        a.causal = ATTN_CAUSAL_BOTTOM_RIGHT, a.window_left = cases[i].window;
        CHECK(attn_check(&a, why, sizeof why) == ATTN_OK);
        found = strstr(why, "; row");
        CHECKF(cases[i].words ? found && !strcmp(found, cases[i].words) : !found, "case %d: %s", (int)i, why);
        attn_kv_free(&c);
    }
}

SUITE(pages) = {
    {"histories", histories,
     "a page that is shared, copied, returned or counted wrongly; a missing key that is read"},
    {"keeps", keeps, "a kept path of a tree that differs from appending its rows"},
    {"keep rejected", keep_wrong, "accepted rows that cannot be kept, or a cache that has changed after the error"},
    {"full", full, "room that is counted wrongly, or a FULL after something has changed"},
    {"copies", copies, "a page copied too early, too late, or by its last holder"},
    {"full in other calls", full_elsewhere, "a step, a layer or a load that changes something before FULL"},
    {"memory", memory, "a short entry that takes a whole page, a size that wraps to 0"},
    {"forget edges", forget_edges, "half a page returned, a second gap, a cut inside one"},
    {"around a gap", around_a_gap, "a forgotten key that is visible, or a key next to the gap that is not"},
    {"windows", windows, "a row that misses keys, or reads forgotten ones before its window"},
    {"sliding", sliding, "a formula for the capacity of a sliding window that is a key too small, or too large"},
    {"reaches", reaches, "attn_check wrong about whether a window reaches forgotten keys"},
    {"conversation", conversation, "positions or work memory limited by the capacity"},
    {"layer conversation", layer_conversation, "the same in a layer; weights wider than its work"},
    {"pieces", pieces, "keys that depend on how they were appended: one by one, at once, truncated"},
    {"several readers", readers_at_once, "a reader that writes to the cache"},
    {0}};
