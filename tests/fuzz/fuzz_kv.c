/* fuzz_kv.c: sequences of cache operations, valid and broken, against a model that keeps plain rows. After every step the
 * statuses and lengths must be the model's; reading must give the bits of the plain rows. */
#include "fuzz.h"

enum { MOST_BATCH = 4, MOST_OPS = 24 };

typedef struct model {
    attn_kv_args shape;
    int v_head_dim, length[MOST_BATCH];
    float *k[MOST_BATCH], *v[MOST_BATCH];  /* [capacity][kv_heads * head_dim], NaN where nothing is */
} model;

static size_t k_row(const model *m) { return (size_t)(m->shape.kv_heads * m->shape.head_dim); }
static size_t v_row(const model *m) { return (size_t)(m->shape.kv_heads * m->v_head_dim); }

static float *nans(size_t n)
{
    float *x = floats(n);
    while (n) x[--n] = bits_float(0x7FC0BAD0u);
    return x;
}

static void model_make(model *m, const attn_kv_args *a)
{
    int b;
    memset(m, 0, sizeof *m);
    m->shape = *a, m->v_head_dim = a->v_head_dim ? a->v_head_dim : a->head_dim;
    for (b = 0; b < a->batch; b++) {
        m->k[b] = nans((size_t)a->capacity * k_row(m));
        m->v[b] = nans((size_t)a->capacity * v_row(m));
    }
}

static void model_free(model *m)
{
    int b;
    for (b = 0; b < m->shape.batch; b++) free(m->k[b]), free(m->v[b]);
    memset(m, 0, sizeof *m);
}

static void model_cut(model *m, int b, int length)
{
    size_t i;
    for (i = (size_t)length * k_row(m); i < (size_t)m->length[b] * k_row(m); i++) m->k[b][i] = bits_float(0x7FC0BAD0u);
    for (i = (size_t)length * v_row(m); i < (size_t)m->length[b] * v_row(m); i++) m->v[b][i] = bits_float(0x7FC0BAD0u);
    m->length[b] = length;
}

static void model_set(model *m, int to, const model *from, int entry, int length)
{
    model_cut(m, to, 0);
    memcpy(m->k[to], from->k[entry], (size_t)length * k_row(m) * sizeof(float));
    memcpy(m->v[to], from->v[entry], (size_t)length * v_row(m) * sizeof(float));
    m->length[to] = length;
}

static void model_reorder(model *m, const int *map)
{
    model old;
    int b;
    model_make(&old, &m->shape);
    for (b = 0; b < m->shape.batch; b++) model_set(&old, b, m, b, m->length[b]);
    for (b = 0; b < m->shape.batch; b++) model_set(m, b, &old, map[b], old.length[map[b]]);
    model_free(&old);
}

/* one call on the cache and one on the rows: the same bits */
static void read_both(input *in, const attn_kv *c, const model *m)
{
    const attn_kv_args *s = &m->shape;
    attn_args a;
    attn_exec exec;
    const int batch = from_to(in, 0, MOST_BATCH), n_q = coin(in) ? 1 : from_to(in, 0, 8), group = from_to(in, 1, 3);
    const unsigned f = u8(in);
    attn_backend list[16];
    int b, n, width = from_to(in, 1, 4), longest = 0, lengths[MOST_BATCH], map[MOST_BATCH], too_short;
    int mine[MOST_BATCH];
    size_t n_out, n_w, entry_k = (size_t)(s->capacity + 2) * k_row(m), entry_v = (size_t)(s->capacity + 2) * v_row(m);
    float *q, *k, *v, *out, *w;
    memset(&a, 0, sizeof a);
    a.batch = f & 1u ? batch : s->batch;
    for (b = 0; b < a.batch; b++) map[b] = f & 1u ? from_to(in, 0, s->batch - 1) : b;
    for (b = 0; b < a.batch; b++) {
        mine[b] = lengths[b] = m->length[map[b]];
        if (f & 2u) lengths[b] = from_to(in, 0, mine[b]);
        if (lengths[b] > longest) longest = lengths[b];
    }
    a.heads = s->kv_heads * group, a.kv_heads = group > 1 || f & 4u ? s->kv_heads : 0;
    a.n_q = n_q, a.head_dim = s->head_dim, a.v_head_dim = f & 4u ? s->v_head_dim : m->v_head_dim;
    a.n_k = f & 8u ? longest + from_to(in, -1, 2) : 0;                /* -1: too narrow, when there is a mask or not */
    if (a.n_k < 0) a.n_k = 0;
    too_short = a.n_k && a.n_k < longest;
    if (f & 1u) a.k_map = map;
    if (f & 2u) a.k_lengths = lengths;
    if (f & 16u) a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    if (f & 32u) a.window_left = from_to(in, 1, 40);
    n = attn_backends(list, 16);
    a.backend = list[u8(in) % (unsigned)n];
    exec.pool = &width, exec.width = width, exec.run = scrambled;
    if (f & 64u) a.exec = &exec;
    a.user = &the_heap;
    n_out = (size_t)(a.batch * n_q * a.heads * m->v_head_dim);
    n_w = (size_t)(a.batch * n_q * a.heads * (a.n_k ? a.n_k : longest));
    a.q = q = normals(in, (size_t)(a.batch * n_q * a.heads * s->head_dim));
    out = floats(2 * n_out), w = floats(2 * n_w);
    k = nans((size_t)s->batch * entry_k), v = nans((size_t)s->batch * entry_v);
    for (b = 0; b < s->batch; b++) {
        memcpy(k + (size_t)b * entry_k, m->k[b], (size_t)s->capacity * k_row(m) * sizeof *k);
        memcpy(v + (size_t)b * entry_v, m->v[b], (size_t)s->capacity * v_row(m) * sizeof *v);
    }
    a.kv = c, a.out = out;
    if (f & 128u) a.weights = w;
    if (too_short) {
        MUST(attn_sdpa(&a) == ATTN_E_SIZE || a.batch == 0 || n_q == 0);
    } else {
        MUST(attn_sdpa(&a) == ATTN_OK);
        a.kv = NULL, a.k = k, a.v = v, a.k_batch = s->batch, a.out = out + n_out;
        if (f & 128u) a.weights = w + n_w;
        a.k_map = map, a.k_lengths = lengths;
        if (!a.n_k) a.n_k = longest;
        a.k_stride[1] = (ptrdiff_t)k_row(m), a.k_stride[0] = (ptrdiff_t)entry_k;
        a.v_stride[1] = (ptrdiff_t)v_row(m), a.v_stride[0] = (ptrdiff_t)entry_v;
        a.exec = NULL;
        MUST(attn_sdpa(&a) == ATTN_OK);
        MUST(same_bits(out, out + n_out, n_out) && same_bits(w, w + n_w, n_w));
    }
    free(q), free(out), free(w), free(k), free(v);
}

static void same_lengths(const attn_kv *c, const model *m)
{
    int b;
    for (b = 0; b < m->shape.batch; b++) MUST(c->lengths[b] == m->length[b]);
}

/* a cache, on memory of its own or ours; sizes may be wrong: then nothing */
static unsigned char *make(input *in, attn_kv *c, model *m)
{
    attn_kv_args a;
    unsigned char *mem = NULL;
    attn_status s;
    size_t need, shift = 0;
    const unsigned how = u8(in);
    int wrong = 0;
    memset(&a, 0, sizeof a);
    a.batch = from_to(in, 1, MOST_BATCH), a.kv_heads = from_to(in, 1, 3), a.head_dim = from_to(in, 1, 18);
    a.v_head_dim = how & 1u ? from_to(in, 1, 34) : 0;
    a.capacity = how & 2u ? from_to(in, 1, 20) : from_to(in, 100, 300);
    if (!(how & 2u)) a.head_dim = 1 + a.head_dim % 4, a.v_head_dim %= 19, a.kv_heads = 1 + a.kv_heads % 2;       /* long: narrow */
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
        return NULL;                                                  /* right, but more than the model likes */
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
    model_make(m, &a);
    return mem;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in;
    attn_kv c;
    model m;
    unsigned char *mem;
    int op;
    in.at = data, in.end = data + size, in.noise = (uint32_t)size;
    memset(&c, 0, sizeof c);
    memset(&m, 0, sizeof m);
    memset(&the_heap, 0, sizeof the_heap);
    mem = make(&in, &c, &m);
    for (op = 0; op < MOST_OPS && in.at < in.end; op++) {
        const attn_kv_args *s = &m.shape;
        if (!c.lengths) {                     /* no cache: refused by all, then another try */
            const int map[1] = {0};
            const float x[1] = {0};
            MUST(attn_kv_append(&c, x, x, 1, NULL, 0) == ATTN_E_NULL && attn_kv_truncate(&c, -1, 0) == ATTN_E_NULL);
            MUST(attn_kv_reorder(&c, map) == ATTN_E_NULL && attn_kv_copy(&c, 0, 0, 0) == ATTN_E_NULL);
            mem = make(&in, &c, &m);
            continue;
        }
        switch (u8(&in) % 10u) {
        case 0: case 1: case 2: {
            const int n = coin(&in) ? 1 : from_to(&in, 0, s->capacity + 2), counted = coin(&in);
            int counts[MOST_BATCH], full = 0, b, wrong;
            float *k = normals(&in, (size_t)(s->batch * n) * k_row(&m)), *v = normals(&in, (size_t)(s->batch * n) * v_row(&m));
            attn_status got;
            for (b = 0; b < s->batch; b++) {
                counts[b] = counted ? from_to(&in, 0, n) : n;
                full |= m.length[b] + counts[b] > s->capacity;
            }
            wrong = counted && u8(&in) > 240u;
            if (wrong) counts[u8(&in) % (unsigned)s->batch] = coin(&in) ? -1 : n + 1;
            got = attn_kv_append(&c, k, v, n, counted ? counts : NULL, 0);
            if (wrong) MUST(got == ATTN_E_LENGTHS || (full && got == ATTN_E_FULL));
            else MUST(got == (full ? ATTN_E_FULL : ATTN_OK));
            for (b = 0; b < s->batch && got == ATTN_OK; b++) {
                memcpy(m.k[b] + (size_t)m.length[b] * k_row(&m), k + (size_t)(b * n) * k_row(&m),
                       (size_t)counts[b] * k_row(&m) * sizeof *k);
                memcpy(m.v[b] + (size_t)m.length[b] * v_row(&m), v + (size_t)(b * n) * v_row(&m),
                       (size_t)counts[b] * v_row(&m) * sizeof *v);
                m.length[b] += counts[b];
            }
            if (u8(&in) > 250u) MUST(attn_kv_append(&c, NULL, v, 1, NULL, 0) != ATTN_OK && attn_kv_append(&c, k, v, -1, NULL, 0) != ATTN_OK);
            free(k), free(v);
            break; }
        case 3: {
            const int b = from_to(&in, -2, s->batch), length = coin(&in) ? from_to(&in, -1, s->capacity + 1) : 0;
            attn_status want = b < -1 || b >= s->batch ? ATTN_E_MAP : ATTN_OK;
            int e;
            for (e = 0; e < s->batch && want == ATTN_OK; e++)
                if ((b == -1 || b == e) && (length < 0 || length > m.length[e])) want = ATTN_E_LENGTHS;
            MUST(attn_kv_truncate(&c, b, length) == want);
            for (e = 0; e < s->batch && want == ATTN_OK; e++)
                if (b == -1 || b == e) model_cut(&m, e, length);
            break; }
        case 4: {
            const int b = from_to(&in, -1, s->batch - 1);
            int e;
            MUST(attn_kv_reset(&c, b) == ATTN_OK);
            for (e = 0; e < s->batch; e++)
                if (b == -1 || b == e) model_cut(&m, e, 0);
            break; }
        case 5: case 6: {
            int map[MOST_BATCH], b, wrong = u8(&in) > 235u;
            for (b = 0; b < s->batch; b++) map[b] = from_to(&in, 0, s->batch - 1);
            if (wrong) map[u8(&in) % (unsigned)s->batch] = coin(&in) ? -1 : s->batch;
            MUST(attn_kv_reorder(&c, wrong && coin(&in) ? NULL : map) != ATTN_OK ? wrong : !wrong);
            if (!wrong) model_reorder(&m, map);
            break; }
        case 7: {
            const int to = from_to(&in, -1, s->batch), from = from_to(&in, -1, s->batch);
            const int there = from >= 0 && from < s->batch && to >= 0 && to < s->batch;
            const int length = from_to(&in, -1, there ? m.length[from] + 1 : 3);
            const attn_status want = !there ? ATTN_E_MAP : length < 0 || length > m.length[from] ? ATTN_E_LENGTHS : ATTN_OK;
            MUST(attn_kv_copy(&c, to, from, length) == want);
            if (want == ATTN_OK && to == from) model_cut(&m, to, length);
            else if (want == ATTN_OK) model_set(&m, to, &m, from, length);
            break; }
        case 8: read_both(&in, &c, &m); break;
        default:
            if (u8(&in) < 200u) break;
            attn_kv_free(&c);
            attn_kv_free(&c);
            model_free(&m);
            free(mem);
            mem = make(&in, &c, &m);
        }
        if (c.lengths) same_lengths(&c, &m);
    }
    if (c.lengths) read_both(&in, &c, &m);
    attn_kv_free(&c);
    model_free(&m);
    free(mem);
    MUST(the_heap.live == 0);
    return 0;
}
