/* fuzz_kv.c: sequences of cache operations, valid and broken, against a model that keeps plain rows. After every step
 * statuses and lengths must equal those of the model; reading must give the bits of the plain rows. */
#include "fuzz.h"
#include "kv_model.h"

enum { MOST_BATCH = 4, MOST_OPS = 24 };

/* One call reads the cache, another one the rows: the same bits. */
static void read_both(input *in, const attn_kv *c, const kv_model *m)
{
    const attn_kv_args *s = &m->shape;
    attn_args a, plain;
    attn_exec exec;
    const int batch = from_to(in, 0, MOST_BATCH), n_q = coin(in) ? 1 : from_to(in, 0, 8), group = from_to(in, 1, 3);
    const unsigned f = u8(in);
    attn_backend list[16];
    int b, n, width = from_to(in, 1, 4), longest = 0, lengths[KV_MODEL_BATCH], map[MOST_BATCH], plain_lengths[KV_MODEL_BATCH];
    size_t n_out, n_w;
    float *q, *out, *w;
    memset(&a, 0, sizeof a);
    a.batch = f & 1u ? batch : s->batch;
    for (b = 0; b < a.batch; b++) map[b] = f & 1u ? from_to(in, 0, s->batch - 1) : b;
    for (b = 0; b < a.batch; b++) {
        lengths[b] = f & 2u ? from_to(in, 0, m->length[map[b]]) : m->length[map[b]];
        if (lengths[b] > longest) longest = lengths[b];
    }
    a.heads = s->kv_heads * group, a.kv_heads = group > 1 || f & 4u ? s->kv_heads : 0;
    a.n_q = n_q, a.head_dim = f & 4u ? 0 : s->head_dim, a.v_head_dim = s->v_head_dim;
    a.n_k = f & 8u ? longest + from_to(in, -1, KV_MODEL_SPARE) : 0;   /* -1: too narrow, with or without a mask */
    if (a.n_k < 0) a.n_k = 0;
    if (f & 1u) a.k_map = map;
    if (f & 2u) a.k_lengths = lengths;
    if (f & 16u) a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    if (f & 32u) a.window_left = from_to(in, 1, 40);
    n = attn_backends(list, 16);
    a.backend = list[u8(in) % (unsigned)n];
    exec.pool = &width, exec.width = width, exec.run = scrambled;
    if (f & 64u) a.exec = &exec;
    a.user = &the_heap;
    n_out = (size_t)(a.batch * n_q * a.heads * s->v_head_dim);
    n_w = (size_t)(a.batch * n_q * a.heads * (a.n_k ? a.n_k : longest));
    a.q = q = normals(in, (size_t)(a.batch * n_q * a.heads * s->head_dim));
    kv_model_exact(q, (size_t)(a.batch * n_q * a.heads), (size_t)s->head_dim, 1, s->head_dim, s->k_storage);
    a.scale = kv_model_scale(m);
    out = floats(2 * n_out), w = floats(2 * n_w);
    a.kv = c, a.out = out;
    if (f & 128u) a.weights = w;
    if (a.n_k && a.n_k < longest) {
        MUST(attn_sdpa(&a) == ATTN_E_SIZE || a.batch == 0 || n_q == 0);
    } else {
        MUST(attn_sdpa(&a) == ATTN_OK);
        unsigned char *keep;
        plain = kv_model_args(m, &a, plain_lengths);
        plain.out = out + n_out, plain.exec = NULL;
        if (f & 128u) plain.weights = w + n_w;
        keep = kv_model_hide(m, &plain);
        MUST(attn_sdpa(&plain) == ATTN_OK);
        free(keep);
        MUST(same_bits(out, out + n_out, n_out) && same_bits(w, w + n_w, n_w));
    }
    free(q), free(out), free(w);
}

/* Appends and attends in one call; the model appends, then attends over the plain rows. */
static void step_both(input *in, attn_kv *c, kv_model *m)
{
    const attn_kv_args *s = &m->shape;
    const int n = coin(in) ? 1 : from_to(in, 0, s->capacity + 2), group = from_to(in, 1, 3), counted = coin(in);
    const size_t rows = (size_t)(s->batch * n), n_q = rows * (size_t)group * m->k_row, n_out = rows * (size_t)group * m->v_row;
    int b, counts[MOST_BATCH], lengths[KV_MODEL_BATCH];
    float *q = normals(in, n_q), *k = normals(in, rows * m->k_row), *v = normals(in, rows * m->v_row), *out = floats(2 * n_out);
    attn_args a, plain;
    attn_status want, got;
    for (b = 0; b < s->batch; b++) counts[b] = counted ? from_to(in, u8(in) > 240u ? -1 : 0, n) : n;
    kv_model_exact(q, rows * (size_t)(group * s->kv_heads), (size_t)s->head_dim, 1, s->head_dim, s->k_storage);
    kv_model_exact(k, rows, m->k_row, s->kv_heads, s->head_dim, s->k_storage);
    if (!s->v_in_k) kv_model_exact(v, rows, m->v_row, s->kv_heads, s->v_head_dim, s->v_storage);
    memset(&a, 0, sizeof a);
    a.scale = kv_model_scale(m);
    a.batch = s->batch, a.n_q = n, a.heads = s->kv_heads * group, a.window_left = coin(in) ? 0 : from_to(in, 0, 40);
    a.q = q, a.k = k, a.v = v, a.out = out;
    a.q_lengths = counted ? counts : NULL;
    a.user = &the_heap;
    if (s->v_in_k) a.v = NULL;
    want = kv_model_step(m, k, a.v, n, counted ? counts : NULL);
    got = attn_self_step(c, &a);
    MUST(got == want || (want == ATTN_E_LENGTHS && got == ATTN_E_FULL));   /* with two mistakes either status is
                                                                              correct */
    if (want == ATTN_OK) {
        unsigned char *keep;
        a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        plain = kv_model_args(m, &a, lengths);
        plain.out = out + n_out;
        keep = kv_model_hide(m, &plain);
        MUST(attn_sdpa(&plain) == ATTN_OK);
        free(keep);
        MUST(same_bits(out, out + n_out, n_out));
    }
    free(q), free(k), free(v), free(out);
}

/* Saves an entry, sometimes damages the bytes, and loads them into an entry. */
static void load_both(input *in, attn_kv *c, kv_model *m)
{
    const int from = from_to(in, 0, m->shape.batch - 1), to = from_to(in, -1, m->shape.batch);
    const size_t size = attn_kv_saved(c, from);
    const unsigned what = u8(in);
    unsigned char *bytes = (unsigned char *)malloc(size);
    if (!bytes) abort();
    MUST(size == kv_model_saved(m, from));
    MUST(attn_kv_save(c, from, bytes, size) == ATTN_OK);
    if (what > 220) {
        bytes[u16(in) % size] ^= (unsigned char)(1u << (what & 7u));
        MUST(attn_kv_load(c, to, bytes, size) == (to < 0 || to >= m->shape.batch ? ATTN_E_MAP : ATTN_E_BYTES));
    } else if (what > 200) {
        MUST(attn_kv_load(c, to, bytes, u16(in) % size) == (to < 0 || to >= m->shape.batch ? ATTN_E_MAP : ATTN_E_BYTES));
    } else {
        const attn_status want = kv_model_load(m, to, m, from);
        MUST(attn_kv_load(c, to, bytes, size) == want);
    }
    free(bytes);
}

static void rows_both(input *in, const attn_kv *c, const kv_model *m)
{
    const int b = from_to(in, 0, m->shape.batch - 1), first = from_to(in, -1, m->length[b]);
    const int n = from_to(in, -1, m->length[b] - first + 1), most = n > 0 ? n : 0;
    float *k = floats((size_t)most * m->k_row), *v = floats((size_t)most * m->v_row);
    float *x = floats((size_t)most * m->k_row), *y = floats((size_t)most * m->v_row);
    const attn_status want = kv_model_read(m, b, first, n, x, y);
    MUST(attn_kv_read(c, b, first, n, k, v) == want);
    if (want == ATTN_OK) MUST(same_bits(k, x, (size_t)most * m->k_row) && same_bits(v, y, (size_t)most * m->v_row));
    free(k), free(v), free(x), free(y);
}

/* Makes a cache in its own memory or ours; returns NULL for invalid sizes. */
static unsigned char *make(input *in, attn_kv *c, kv_model *m)
{
    attn_kv_args a;
    unsigned char *mem = NULL;
    attn_status s;
    size_t need, shift = 0;
    const unsigned how = u8(in);
    unsigned stored;
    int wrong = 0;
    memset(&a, 0, sizeof a);
    a.batch = from_to(in, 1, MOST_BATCH), a.kv_heads = from_to(in, 1, 3), a.head_dim = from_to(in, 1, 18);
    a.v_head_dim = how & 1u ? from_to(in, 1, 34) : 0;
    a.capacity = how & 2u ? from_to(in, 1, 20) : from_to(in, 100, 300);
    if (!(how & 2u)) a.head_dim = 1 + a.head_dim % 4, a.v_head_dim %= 19, a.kv_heads = 1 + a.kv_heads % 2;       /* long: narrow */
    stored = u8(in);
    a.k_storage = (attn_storage)(stored % 4u);
    a.v_storage = stored & 64u && stored < 176 ? (attn_storage)(stored / 4u % 4u) : a.k_storage;
    a.v_in_k = stored >= 176 && a.v_head_dim <= a.head_dim;
    if (coin(in)) a.pages = from_to(in, 1, a.batch * ((a.capacity - 1) / 128 + 1));
    a.user = &the_heap;
    if (how >= 224) {
        int *const field[5] = {&a.batch, &a.kv_heads, &a.head_dim, &a.v_head_dim, &a.capacity};
        const unsigned which = u8(in) % 5u;
        *field[which] = odd_size(in);
        wrong = 1;
    }
    need = attn_kv_size(&a);
    if (wrong && need != SIZE_MAX && need > (size_t)1 << 22) return NULL;
    if (wrong && need != SIZE_MAX && (a.batch > MOST_BATCH || a.kv_heads > 9 || a.head_dim > 99 || a.v_head_dim > 99 || a.capacity > 999))
        return NULL;                                                  /* valid, but too large for the model */
    if (how & 4u && need != SIZE_MAX) {
        shift = how >> 3 & 7u;
        mem = (unsigned char *)malloc(need + shift);
        if (!mem) abort();
        a.mem = mem + shift, a.mem_size = need;
        if (how & 64u && need) {
            a.mem_size--;
            MUST(attn_kv_init(c, &a) == ATTN_E_WORK && c->lengths == NULL);
            a.mem_size++;
        }
    } else if (how & 64u && need != SIZE_MAX) {
        the_heap.fail_at = the_heap.calls + 1;
        MUST(attn_kv_init(c, &a) == ATTN_E_MEMORY && c->lengths == NULL);
        the_heap.fail_at = 0;
    }
    s = attn_kv_init(c, &a);
    if (s != ATTN_OK) {
        static const attn_kv zero = {0};
        MUST(wrong && need == SIZE_MAX && memcmp(c, &zero, sizeof zero) == 0);
        free(mem);
        return NULL;
    }
    MUST(need != SIZE_MAX);
    kv_model_make(m, &a);
    return mem;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in;
    attn_kv c;
    kv_model m;
    unsigned char *mem;
    int op;
    in.at = data, in.end = data + size, in.noise = (uint32_t)size;
    memset(&c, 0, sizeof c);
    memset(&m, 0, sizeof m);
    memset(&the_heap, 0, sizeof the_heap);
    mem = make(&in, &c, &m);
    for (op = 0; op < MOST_OPS && in.at < in.end; op++) {
        const attn_kv_args *s = &m.shape;
        if (!c.lengths) {                     /* without a cache every call is rejected; then tries again */
            const int map[1] = {0};
            const float x[1] = {0};
            MUST(attn_kv_append(&c, -1, x, x, 1, 0) == ATTN_E_NULL && attn_kv_truncate(&c, -1, 0) == ATTN_E_NULL);
            MUST(attn_kv_reorder(&c, map) == ATTN_E_NULL && attn_kv_copy(&c, 0, 0, 0) == ATTN_E_NULL);
            mem = make(&in, &c, &m);
            continue;
        }
        switch (u8(&in) % 14u) {
        case 0: case 1: case 2: {
            const int n = coin(&in) ? 1 : from_to(&in, 0, s->capacity + 2), entry = from_to(&in, -2, s->batch);
            const int gap = coin(&in) ? 0 : from_to(&in, 1, 5);        /* 0: rows touch; else k, v and a gap in a row */
            const size_t rows = (size_t)(s->batch * n), row = m.k_row + m.v_row + (size_t)gap;
            const ptrdiff_t stride = gap ? (ptrdiff_t)row : 0;
            float *x = normals(&in, rows * row), *v = stride ? x + m.k_row : x + rows * m.k_row;
            if (s->v_in_k) v = NULL;
            kv_model_exact(x, rows, gap ? row : m.k_row, s->kv_heads, s->head_dim, s->k_storage);
            if (v) kv_model_exact(v, rows, gap ? row : m.v_row, s->kv_heads, s->v_head_dim, s->v_storage);
            MUST(attn_kv_append(&c, entry, x, v, n, stride) == kv_model_append(&m, entry, x, v, n, stride));
            if (u8(&in) > 250u)
                MUST(attn_kv_append(&c, -1, NULL, v, 1, 0) != ATTN_OK && attn_kv_append(&c, -1, x, v, -1, 0) != ATTN_OK);
            free(x);
            break; }
        case 3: {
            const int b = from_to(&in, -2, s->batch), length = coin(&in) ? from_to(&in, -1, s->capacity + 1) : 0;
            if (b >= 0 && b < s->batch && coin(&in)) {                      /* keeps some of the later keys */
                const int wrong = u8(&in) > 220u;
                int rows[64], n = 0, j;
                for (j = length; j < m.length[b] && n < 64; j++) if (coin(&in)) rows[n++] = j;
                if (wrong && n > 0) rows[u8(&in) % (unsigned)n] += from_to(&in, -3, 3);
                MUST(attn_kv_keep(&c, b, length, rows, n) == kv_model_keep(&m, b, length, rows, n));
            } else {
                MUST(attn_kv_truncate(&c, b, length) == kv_model_truncate(&m, b, length));
            }
            break; }
        case 4: {
            const int b = from_to(&in, -1, s->batch - 1);
            MUST(attn_kv_reset(&c, b) == kv_model_truncate(&m, b, 0));
            break; }
        case 5: case 6: {
            int map[MOST_BATCH], b, wrong = u8(&in) > 235u;
            const int *given = wrong && coin(&in) ? NULL : map;
            for (b = 0; b < s->batch; b++) map[b] = from_to(&in, 0, s->batch - 1);
            if (wrong) map[u8(&in) % (unsigned)s->batch] = coin(&in) ? -1 : s->batch;
            MUST(attn_kv_reorder(&c, given) == kv_model_reorder(&m, given));
            break; }
        case 7: {
            const int to = from_to(&in, -1, s->batch), from = from_to(&in, -1, s->batch);
            const int there = from >= 0 && from < s->batch && to >= 0 && to < s->batch;
            const int length = from_to(&in, -1, there ? m.length[from] + 1 : 3);
            MUST(attn_kv_copy(&c, to, from, length) == kv_model_copy(&m, to, from, length));
            break; }
        case 9: step_both(&in, &c, &m); break;
        case 8: read_both(&in, &c, &m); break;
        case 10: {
            const int b = from_to(&in, -1, s->batch), length = b >= 0 && b < s->batch ? m.length[b] : m.length[0];
            const int pinned = coin(&in) ? 0 : from_to(&in, -1, length + 1), before = from_to(&in, -1, length + 1);
            MUST(attn_kv_forget(&c, b, pinned, before) == kv_model_forget(&m, b, pinned, before));
            break; }
        case 11: load_both(&in, &c, &m); break;
        case 12: rows_both(&in, &c, &m); break;
        default:
            if (u8(&in) < 200u) break;
            attn_kv_free(&c);
            attn_kv_free(&c);
            kv_model_free(&m);
            free(mem);
            mem = make(&in, &c, &m);
        }
        if (c.lengths) MUST(kv_model_same_lengths(&m, &c) && c.free_pages == kv_model_free_pages(&m));
    }
    if (c.lengths) read_both(&in, &c, &m);
    attn_kv_free(&c);
    kv_model_free(&m);
    free(mem);
    MUST(the_heap.live == 0);
    return 0;
}
