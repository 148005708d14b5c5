/* test_step.c: attn_self_step, append and attend in one call, against the two separate calls: the same bits, the same
 * cache afterwards, and after an error neither has happened. */
#include "kv_model.h"

enum { MOST_BATCH = 4 };

static float *floats(rng *r, size_t n)
{
    float *p = guard_floats(n);
    rng_fill(r, p, n);
    return p;
}

/* ---- one step, drawn ---------------------------------------------------------------------------------------- */
/* Arguments for attn_self_step, and the new rows again in the form of attn_kv_append. */
typedef struct step {
    attn_args a;
    int rows, longest;                    /* most new rows of an entry; keys of the longest entry afterwards */
    int counts[MOST_BATCH], cum[MOST_BATCH + 1], q_pos_each[MOST_BATCH];
    float *q, *k, *v, *packed;            /* packed: q, k and v are columns of it */
    float *mask, *bias, *slopes, *rel, *sinks;
    unsigned char *keep;
    float *plain_k, *plain_v;             /* [batch][rows][kv_heads][head_dim or v_head_dim] */
    float *out, *weights, *lse;           /* outputs of attn_self_step, followed by those of the two calls */
    size_t n_out, n_weights, n_lse, masked[2];
    attn_exec exec;
} step;

/* a tensor [entry][row][head][width], or [entry][head][row][width], perhaps with gaps after its rows */
static float *tensor_draw(rng *r, const step *s, int heads, int width, ptrdiff_t stride[3], size_t *n)
{
    const int gap = rng_int(r, 0, 2) ? 0 : rng_int(r, 1, 5), bhsd = s->a.layout == ATTN_BHSD;
    const int entries = s->a.q_cum ? 1 : s->a.batch, rows = s->a.q_cum ? s->cum[s->a.batch] : s->rows;
    stride[1] = (bhsd ? width : heads * width) + gap;
    stride[2] = bhsd ? rows * stride[1] : width;
    stride[0] = bhsd ? heads * stride[2] : rows * stride[1];
    *n = (size_t)(entries * stride[0]);
    return floats(r, *n);
}

/* q, k and v side by side in the rows of one buffer */
static void packed_draw(rng *r, step *s)
{
    const attn_args *a = &s->a;
    const int entries = a->q_cum ? 1 : a->batch, rows = a->q_cum ? s->cum[a->batch] : s->rows;
    const ptrdiff_t q = a->heads * a->head_dim, k = a->kv_heads * a->head_dim, v = a->kv_heads * a->v_head_dim;
    s->packed = floats(r, (size_t)((q + k + v) * entries * rows));
    s->a.q_stride[1] = s->a.k_stride[1] = s->a.v_stride[1] = q + k + v;
    s->a.q = s->packed;
    s->a.k = s->packed + q;
    s->a.v = s->packed + q + k;
}

/* Row i of entry b as a row of plain_k or plain_v. */
static void plain_row(const step *s, float *to, const float *from, const ptrdiff_t given[3], int width, int b, int i)
{
    const int rows = s->a.q_cum ? s->cum[s->a.batch] : s->rows, heads = s->a.kv_heads;
    ptrdiff_t stride[3] = {given[0], given[1], given[2]};
    if (!stride[2]) stride[2] = width;    /* packed_draw: separate rows, adjacent heads */
    if (!stride[0]) stride[0] = rows * stride[1];
    for (int head = 0; head < heads; head++)
        memcpy(to + head * width,
               from + (s->a.q_cum ? (s->cum[b] + i) * stride[1] : b * stride[0] + i * stride[1]) + head * stride[2],
               (size_t)width * sizeof(float));
}

/* Draws the rows of each entry: all of them, limited by q_lengths, or ragged and possibly a part of longer tensors. */
static void counts_draw(rng *r, const kv_model *m, step *s)
{
    const int kind = rng_int(r, 0, 2);
    int most = 0;
    s->rows = rng_int(r, 0, 3) ? rng_int(r, 1, 3) : rng_int(r, 0, 60);
    s->cum[0] = kind == 2 ? rng_int(r, 0, 2) : 0;
    for (int b = 0; b < m->shape.batch; b++) {
        s->counts[b] = kind ? rng_int(r, 0, s->rows) : s->rows;
        s->cum[b + 1] = s->cum[b] + s->counts[b];
        if (s->counts[b] > most) most = s->counts[b];
        if (m->length[b] + s->counts[b] > s->longest) s->longest = m->length[b] + s->counts[b];
    }
    s->a.n_q = s->rows;
    if (kind == 1) s->a.q_lengths = s->counts;
    if (kind == 2) s->a.q_cum = s->cum;
    if (kind == 2 && rng_int(r, 0, 1)) {  /* taken from q_cum */
        s->a.n_q = 0;
        s->rows = most;
    }
}

/* Draws masks and requested outputs. */
static void options_draw(rng *r, step *s)
{
    attn_args *a = &s->a;
    size_t cells;
    const int n_k = s->longest + rng_int(r, 0, 2);
    a->n_k = rng_int(r, 0, 1) ? n_k : 0;
    cells = (size_t)a->batch * (size_t)s->rows * (size_t)(a->n_k ? a->n_k : s->longest);
    a->causal = rng_int(r, 0, 1) ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
    if (rng_int(r, 0, 3) == 0) a->window_left = rng_int(r, 1, 40);
    if (rng_int(r, 0, 3) == 0) a->softcap = 5.0f;
    if (rng_int(r, 0, 3) == 0) a->scale = 0.25f;
    if (rng_int(r, 0, 5) == 0) a->q_pos = rng_int(r, -3, 3);
    if (rng_int(r, 0, 5) == 0) {
        for (int b = 0; b < a->batch; b++) s->q_pos_each[b] = rng_int(r, -2, 2);
        a->q_pos_each = s->q_pos_each;
    }
    if (rng_int(r, 0, 3) == 0) a->alibi_slopes = s->slopes = floats(r, (size_t)a->heads);
    if (rng_int(r, 0, 3) == 0) {
        a->rel_extent = rng_int(r, 0, 30);
        a->rel_bias = s->rel = floats(r, (size_t)(a->heads * (2 * a->rel_extent + 1)));
    }
    if (rng_int(r, 0, 3) == 0) a->sinks = s->sinks = floats(r, (size_t)a->heads);
    if (rng_int(r, 0, 3) == 0) {
        a->mask = s->mask = floats(r, cells);
        a->mask_shape[0] = a->batch, a->mask_shape[1] = 1, a->mask_shape[2] = s->rows;
    }
    if (rng_int(r, 0, 3) == 0) {
        a->keep = s->keep = guard_alloc(cells);
        a->keep_shape[0] = a->batch, a->keep_shape[1] = 1, a->keep_shape[2] = s->rows;
        for (size_t i = 0; i < cells; i++) s->keep[i] = (unsigned char)rng_int(r, 0, 3);
    }
    s->n_weights = rng_int(r, 0, 1) ? cells * (size_t)a->heads : 0;
    s->n_lse = rng_int(r, 0, 1) ? (size_t)(a->batch * a->heads * s->rows) : 0;
    s->weights = guard_floats(2 * s->n_weights);
    s->lse = guard_floats(2 * s->n_lse);
    s->exec = test_exec(rng_int(r, 1, 4));
    if (rng_int(r, 0, 1)) a->exec = &s->exec;
}

static void step_draw(rng *r, const kv_model *m, step *s)
{
    attn_backend backends[16];
    attn_args *a = &s->a;
    size_t n;
    memset(s, 0, sizeof *s);
    a->batch = m->shape.batch;
    a->kv_heads = m->shape.kv_heads;
    a->heads = a->kv_heads * rng_int(r, 1, 3);
    a->head_dim = m->shape.head_dim;
    a->v_head_dim = m->shape.v_head_dim;
    a->backend = backends[rng_int(r, 0, test_all_backends(backends, 16) - 1)];
    a->layout = rng_int(r, 0, 1) ? ATTN_BHSD : ATTN_BSHD;
    counts_draw(r, m, s);
    if (a->layout == ATTN_BSHD && rng_int(r, 0, 1)) {
        packed_draw(r, s);
    } else {
        a->q = s->q = tensor_draw(r, s, a->heads, a->head_dim, a->q_stride, &n);
        a->k = s->k = tensor_draw(r, s, a->kv_heads, a->head_dim, a->k_stride, &n);
        a->v = s->v = tensor_draw(r, s, a->kv_heads, a->v_head_dim, a->v_stride, &n);
    }
    s->plain_k = guard_floats((size_t)(a->batch * s->rows) * m->k_row);
    s->plain_v = guard_floats((size_t)(a->batch * s->rows) * m->v_row);
    for (int b = 0; b < a->batch; b++)
        for (int i = 0; i < s->counts[b]; i++) {
            const size_t row = (size_t)(b * s->rows + i);
            plain_row(s, s->plain_k + row * m->k_row, a->k, a->k_stride, a->head_dim, b, i);
            plain_row(s, s->plain_v + row * m->v_row, a->v, a->v_stride, a->v_head_dim, b, i);
        }
    guard_free(tensor_draw(r, s, a->heads, a->v_head_dim, a->out_stride, &s->n_out));
    s->out = guard_floats(2 * s->n_out);
    options_draw(r, s);
}

static void step_free(step *s)
{
    guard_free(s->q); guard_free(s->k); guard_free(s->v); guard_free(s->packed);
    guard_free(s->mask); guard_free(s->keep); guard_free(s->bias); guard_free(s->slopes);
    guard_free(s->rel); guard_free(s->sinks);
    guard_free(s->plain_k); guard_free(s->plain_v);
    guard_free(s->out); guard_free(s->weights); guard_free(s->lse);
}

/* ---- the same as append and attn_sdpa ------------------------------------------------------------------------- */
/* Sets the outputs of run 0 or 1, and a workspace of exactly the reported size, or none. */
static void outputs(step *s, attn_args *a, int run, const attn_kv *c, int work)
{
    attn_args ask = *a;
    a->out = s->out + (run ? s->n_out : 0);
    a->weights = s->n_weights ? s->weights + (run ? s->n_weights : 0) : NULL;
    a->lse = s->n_lse ? s->lse + (run ? s->n_lse : 0) : NULL;
    a->masked_rows = &s->masked[run];
    if (!work) return;
    ask.kv = c;
    ask.k = ask.v = NULL;
    memset(ask.k_stride, 0, sizeof ask.k_stride);
    memset(ask.v_stride, 0, sizeof ask.v_stride);
    a->work_size = attn_sdpa_workspace(&ask);
    CHECK(a->work_size != SIZE_MAX);
    a->work = guard_alloc(a->work_size);
}

static int same_as_two_calls(attn_kv *one, attn_kv *two, kv_model *m, step *s, int work)
{
    attn_args a = s->a, b = s->a;
    attn_status status = kv_model_step(m, s->plain_k, s->plain_v, s->rows, s->counts), got;
    const int full = status != ATTN_OK;
    if (work == 2) a.kv = one;            /* "NULL, or c" */
    outputs(s, &a, 0, one, work);
    refusal_clear();
    got = attn_self_step(one, &a);
    CHECKF(got == status, "the model returns %d, the step %d: %s", (int)status, (int)got, refusal_text());
    guard_free(a.work);
    if (full) return got == ATTN_E_FULL && strstr(refusal_text(), "attn_self_step: entry ") != NULL;
    CHECK(append_counts(two, s->plain_k, s->plain_v, s->rows, s->counts, 0) == ATTN_OK);
    b.kv = two;
    b.k = b.v = NULL;
    memset(b.k_stride, 0, sizeof b.k_stride);
    memset(b.v_stride, 0, sizeof b.v_stride);
    b.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    b.exec = NULL;
    outputs(s, &b, 1, two, 0);
    status = attn_sdpa(&b);
    CHECKF(status == ATTN_OK, "attn_sdpa: %s", refusal_text());
    return same_bits(s->out, s->out + s->n_out, s->n_out) && s->masked[0] == s->masked[1] &&
           same_bits(s->weights, s->weights + s->n_weights, s->n_weights) &&
           same_bits(s->lse, s->lse + s->n_lse, s->n_lse) && kv_model_same_lengths(m, one);
}

/* The contents of the cache, read by one row per entry over all keys, equal those of the model. */
static int same_as_model(const attn_kv *c, const kv_model *m, rng *r)
{
    const attn_kv_args *s = &m->shape;
    const size_t n_q = (size_t)(s->batch * s->kv_heads * s->head_dim);
    const size_t n_out = (size_t)(s->batch * s->kv_heads * s->v_head_dim);
    float *q = floats(r, n_q), *out = guard_floats(2 * n_out);
    int lengths[KV_MODEL_BATCH], same;
    attn_args a = {0}, plain;
    a.q = q;
    a.out = out;
    a.batch = s->batch;
    a.n_q = 1;
    a.heads = s->kv_heads;
    a.kv = c;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    plain = kv_model_args(m, &a, lengths);
    plain.out = out + n_out;
    CHECK(attn_sdpa(&plain) == ATTN_OK);
    same = same_bits(out, out + n_out, n_out);
    guard_free(q);
    guard_free(out);
    return same;
}

static attn_kv_args shape_draw(rng *r)
{
    static const int dims[] = {1, 3, 8, 15, 16, 17, 32, 40};
    attn_kv_args a = {0};
    a.batch = rng_int(r, 1, MOST_BATCH);
    a.kv_heads = rng_int(r, 1, 3);
    a.head_dim = dims[rng_int(r, 0, 7)];
    a.v_head_dim = rng_int(r, 0, 1) ? dims[rng_int(r, 0, 7)] : a.head_dim;
    a.capacity = rng_int(r, 0, 2) ? rng_int(r, 1, 40) : rng_int(r, 100, 300);
    return a;
}

static void two_calls(void)
{
    rng seeds = rng_make(test_seed);
    long steps = 0, full = 0;
    for (int i = 0; i < 120 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const attn_kv_args shape = shape_draw(&r);
        attn_kv one, two;
        kv_model m;
        CHECK(attn_kv_init(&one, &shape) == ATTN_OK && attn_kv_init(&two, &shape) == ATTN_OK);
        kv_model_make(&m, &shape);
        for (int n = 0; n < 8 && !test_failed(); n++) {
            step s;
            int before = m.length[0], work = rng_int(&r, 0, 2);
            step_draw(&r, &m, &s);
            CHECKF(same_as_two_calls(&one, &two, &m, &s, work),
                   "seed %llu step %d: not what append and attn_sdpa give; batch %d, %d on %d heads, head_dim %d/%d, "
                   "%d rows, %s, backend %s, work %d", seed, n, s.a.batch, s.a.heads, s.a.kv_heads, s.a.head_dim,
                   s.a.v_head_dim, s.rows, s.a.q_cum ? "ragged" : s.a.q_lengths ? "q_lengths" : "all",
                   attn_backend_name(s.a.backend), work);
            CHECKF(same_as_model(&one, &m, &r), "seed %llu step %d: other keys in the cache", seed, n);
            steps++;
            full += before == m.length[0];
            step_free(&s);
            if (rng_int(&r, 0, 3) == 0)   /* make room */
                CHECK(attn_kv_reset(&one, -1) == ATTN_OK && attn_kv_reset(&two, -1) == ATTN_OK &&
                      kv_model_truncate(&m, -1, 0) == ATTN_OK);
        }
        attn_kv_free(&one);
        attn_kv_free(&two);
        kv_model_free(&m);
    }
    CHECKF(full < steps / 2, "%ld of %ld steps added nothing to entry 0", full, steps);
}

/* A prompt in any pieces has the bits of one causal call, on every backend. */
static void prompt_in_pieces(void)
{
    enum { N = 150, HEADS = 4, KV_HEADS = 2, D = 16, ROW = (HEADS + 2 * KV_HEADS) * D };
    rng r = rng_make(test_seed + 1);
    attn_backend backends[16];
    const int n = test_all_backends(backends, 16);
    float *qkv = floats(&r, N * ROW), *whole = guard_floats(N * HEADS * D), *pieces = guard_floats(N * HEADS * D);
    attn_kv_args shape = {0};
    attn_kv c;
    shape.batch = 1;
    shape.kv_heads = KV_HEADS;
    shape.head_dim = D;
    shape.capacity = N;
    CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
    for (int i = 0; i < n; i++) {
        attn_args a = {0};
        a.batch = 1;
        a.heads = HEADS;
        a.kv_heads = KV_HEADS;
        a.head_dim = D;
        a.backend = backends[i];
        a.q = qkv;
        a.k = qkv + HEADS * D;
        a.v = qkv + (HEADS + KV_HEADS) * D;
        a.q_stride[1] = a.k_stride[1] = a.v_stride[1] = ROW;
        a.n_q = a.n_k = N;
        a.causal = ATTN_CAUSAL_TOP_LEFT;
        a.out = whole;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        a.causal = ATTN_CAUSAL_NONE;
        a.n_k = 0;
        CHECK(attn_kv_reset(&c, -1) == ATTN_OK);
        for (int at = 0; at < N; at += a.n_q) {
            a.n_q = rng_int(&r, 0, 2) ? 1 : rng_int(&r, 1, 60);
            if (a.n_q > N - at) a.n_q = N - at;
            a.q = qkv + at * ROW;
            a.k = a.q + HEADS * D;
            a.v = a.k + KV_HEADS * D;
            a.out = pieces + at * HEADS * D;
            CHECK(attn_self_step(&c, &a) == ATTN_OK);
        }
        CHECKF(same_bits(whole, pieces, N * HEADS * D), "%s: pieces differ", attn_backend_name(backends[i]));
    }
    attn_kv_free(&c);
    guard_free(qkv);
    guard_free(whole);
    guard_free(pieces);
}

/* ---- all or nothing ------------------------------------------------------------------------------------------- */
enum { B = 2, ROWS = 3, H = 4, G = 2, D = 8, CAPACITY = 10 };
typedef struct stage {
    float q[B * ROWS * H * D], k[B * ROWS * G * D], v[B * ROWS * G * D];
    float out[B * ROWS * H * D], lse[B * H * ROWS], weights[B * H * ROWS * CAPACITY];
    float mask[ROWS * CAPACITY];
    int lengths[B + 1];
} stage;

static attn_args stage_args(stage *s, void *user)
{
    attn_args a = {0};
    a.q = s->q, a.k = s->k, a.v = s->v, a.out = s->out, a.lse = s->lse, a.weights = s->weights;
    a.batch = B, a.n_q = ROWS, a.heads = H;
    a.user = user;
    return a;
}

static void refused_steps(void)
{
    static stage s;
    rng r = rng_make(test_seed + 2);
    attn_kv_args shape = {0};
    attn_kv c, other;
    attn_args good, a;
    size_t masked = 77;
    unsigned char *mem, *copy;
    int user;
    const int map[B] = {0, 1};
    rng_fill(&r, s.q, sizeof s.q / sizeof(float));
    rng_fill(&r, s.k, sizeof s.k / sizeof(float));
    rng_fill(&r, s.v, sizeof s.v / sizeof(float));
    shape.batch = B;
    shape.kv_heads = G;
    shape.head_dim = D;
    shape.capacity = CAPACITY;
    CHECK(attn_kv_init(&other, &shape) == ATTN_OK);
    shape.mem_size = attn_kv_size(&shape);
    shape.mem = mem = guard_alloc(shape.mem_size);
    copy = malloc(shape.mem_size);
    if (!copy) abort();
    CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
    CHECK(attn_kv_append(&c, -1, s.k, s.v, 3, 0) == ATTN_OK);
    good = stage_args(&s, &user);
    good.masked_rows = &masked;
    s.lengths[0] = 1, s.lengths[1] = 3, s.lengths[2] = 6;
    refusal_tells(&user);
    refusal_keeps(&s, sizeof s);
    refusal_keeps(&masked, sizeof masked);
    refusal_keeps(mem, shape.mem_size);
    refusal_keeps(&c, sizeof c);
#define CALL attn_self_step(&c, &a)
    REFUSES(a.kv = &other, ATTN_E_CONFLICT, "kv is another cache");
    REFUSES(a.k_lengths = s.lengths, ATTN_E_CONFLICT, "k_lengths is set");
    REFUSES(a.k_starts = s.lengths, ATTN_E_CONFLICT, "k_starts is set");
    REFUSES(a.k_map = map, ATTN_E_CONFLICT, "k_map is set");
    REFUSES(a.k_cum = s.lengths, ATTN_E_CONFLICT, "k_cum is set");
    REFUSES(a.causal = ATTN_CAUSAL_TOP_LEFT, ATTN_E_CONFLICT, "causal is top-left");
    REFUSES(a.align = ATTN_ALIGN_BOTTOM_RIGHT, ATTN_E_CONFLICT, "align is set");
    REFUSES((a.q_lengths = map, a.q_cum = s.lengths), ATTN_E_CONFLICT, "q_cum and q_lengths are both set");
    REFUSES(a.batch = 1, ATTN_E_SIZE, "batch is 1 but the cache has 2 entries");
    REFUSES(a.batch = 3, ATTN_E_SIZE, "batch is 3 but the cache has 2 entries");
    REFUSES(a.batch = -1, ATTN_E_SIZE, "batch is -1");
    REFUSES(a.n_q = -1, ATTN_E_SIZE, "n_q is -1");
    REFUSES(a.heads = 3, ATTN_E_HEADS, "heads is 3 but kv_heads is 2");
    REFUSES(a.kv_heads = 4, ATTN_E_SIZE, "kv_heads is 4 but 2 in the cache");
    REFUSES(a.head_dim = 7, ATTN_E_SIZE, "head_dim is 7 but 8 in the cache");
    REFUSES(a.v_head_dim = 7, ATTN_E_SIZE, "v_head_dim is 7");
    REFUSES(a.k_batch = 1, ATTN_E_SIZE, "k_batch is 1");
    REFUSES(a.align = ATTN_ALIGN_BOTTOM_RIGHT, ATTN_E_CONFLICT, "align is set");
    REFUSES(a.n_k = 5, ATTN_E_SIZE, "n_k is 5 but the longest entry has 6");
    REFUSES(a.window_left = -1, ATTN_E_OPTION, "window_left is -1");
    REFUSES(a.backend = (attn_backend)99, ATTN_E_OPTION, "backend is 99");
    REFUSES(a.q = NULL, ATTN_E_NULL, "q is NULL");
    REFUSES(a.k = NULL, ATTN_E_NULL, "k is NULL");
    REFUSES(a.v = NULL, ATTN_E_NULL, "v is NULL");
    REFUSES(a.out = NULL, ATTN_E_NULL, "out is NULL");
    REFUSES(a.k_stride[1] = G * D - 1, ATTN_E_STRIDE, "k_stride[1] is 15");
    REFUSES(a.v_stride[2] = D - 1, ATTN_E_STRIDE, "v_stride[2] is 7");
    REFUSES(s.lengths[0] = 4; a.q_lengths = s.lengths, ATTN_E_LENGTHS, "q_lengths[0] is 4 but n_q is 3");
    REFUSES(s.lengths[0] = -1; a.q_lengths = s.lengths, ATTN_E_LENGTHS, "q_lengths[0] is -1 but n_q is 3");
    REFUSES(s.lengths[0] = 4; a.q_cum = s.lengths, ATTN_E_LENGTHS, "q_cum[0] is 4 but q_cum[1] is 3");
    REFUSES(a.n_q = 8, ATTN_E_FULL, "entry 0 of the cache holds 3 of 10 keys, no room for 8 more");
    REFUSES(s.lengths[0] = 0; s.lengths[1] = 8; a.n_q = 8; a.q_lengths = s.lengths, ATTN_E_FULL,
            "entry 1 of the cache holds 3 of 10 keys, no room for 8 more");
    REFUSES(a.k = (const float *)(const void *)((const char *)s.k + 1), ATTN_E_ALIGN, "k is not aligned");
    REFUSES(a.v = (const float *)(const void *)((const char *)s.v + 2), ATTN_E_ALIGN, "v is not aligned");
    REFUSES(a.out = s.q + 4, ATTN_E_OVERLAP, "out overlaps q");
    REFUSES(a.out = s.k, ATTN_E_OVERLAP, "out overlaps k");
    REFUSES(a.lse = s.v, ATTN_E_OVERLAP, "lse overlaps v");
    REFUSES(a.out = c.memory, ATTN_E_OVERLAP, "out overlaps the memory of kv");
    REFUSES(a.lse = (float *)(void *)c.lengths, ATTN_E_OVERLAP, "lse overlaps the memory of kv");
    REFUSES(a.q = c.memory, ATTN_E_OVERLAP, "the memory of kv overlaps q");
    REFUSES(a.k = c.memory, ATTN_E_OVERLAP, "the memory of kv overlaps k");
    REFUSES(a.v = c.memory, ATTN_E_OVERLAP, "the memory of kv overlaps v");
    REFUSES(a.q_lengths = c.lengths, ATTN_E_OVERLAP, "the memory of kv overlaps q_lengths");
    REFUSES((a.work = c.memory, a.work_size = 1 << 20), ATTN_E_OVERLAP, "work overlaps the memory of kv");
    REFUSES((a.work = s.mask, a.work_size = sizeof s.mask), ATTN_E_WORK, "work_size is 120 but");
    REFUSES((a.mask = s.mask, a.mask_shape[0] = 3, a.mask_shape[1] = 1, a.mask_shape[2] = ROWS), ATTN_E_SHAPE,
            "mask_shape[0] is 3");
#undef CALL
    refusal_forget();
    REFUSED(attn_self_step(NULL, &good), ATTN_E_NULL, "attn_self_step: c is NULL");
    REFUSED(attn_self_step(&c, NULL), ATTN_E_NULL, "attn_self_step: the attn_args are NULL");
    attn_kv_free(&other);
    REFUSED(attn_self_step(&other, &good), ATTN_E_NULL, "attn_self_step: c is not a cache");
    CHECK(attn_self_step(&c, &good) == ATTN_OK && c.lengths[0] == 6 && masked == 0);
    good.n_q = 0;                         /* nothing to append or write */
    masked = 77;
    memcpy(copy, mem, shape.mem_size);
    CHECK(attn_self_step(&c, &good) == ATTN_OK && masked == 0 && !memcmp(copy, mem, shape.mem_size));
    attn_kv_free(&c);
    guard_free(mem);
    free(copy);
}

/* One workspace, computed before the first row, is enough for a prompt and every step after it. */
static void one_workspace(void)
{
    enum { N = 70 };
    rng r = rng_make(test_seed + 3);
    float *q = floats(&r, N * H * D), *kv = floats(&r, N * G * D), *out = guard_floats(N * H * D);
    attn_exec exec = test_exec(3);
    attn_kv_args shape = {0};
    attn_kv c;
    attn_args a = {0};
    shape.batch = 1;
    shape.kv_heads = G;
    shape.head_dim = D;
    shape.capacity = 300;
    CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
    a.batch = 1;
    a.n_q = N;
    a.heads = H;
    a.exec = &exec;
    a.kv = &c;
    a.work_size = attn_sdpa_workspace(&a);
    CHECK(a.work_size != SIZE_MAX);
    a.work = guard_alloc(a.work_size);
    a.q = q;
    a.k = a.v = kv;
    a.out = out;
    while (c.lengths[0] < 300) {
        a.n_q = c.lengths[0] == 0 ? N : rng_int(&r, 1, 9);
        if (a.n_q > 300 - c.lengths[0]) a.n_q = 300 - c.lengths[0];
        CHECKF(attn_self_step(&c, &a) == ATTN_OK, "%d rows after %d: %s", a.n_q, c.lengths[0], refusal_text());
        if (test_failed()) break;
    }
    REFUSED(attn_self_step(&c, &a), ATTN_E_FULL, "holds 300 of 300 keys");
    attn_kv_free(&c);
    guard_free(a.work);
    guard_free(q);
    guard_free(kv);
    guard_free(out);
}

void step_allocation(void);               /* private/layers_memory.h */

extern const test_case suite_step[];
SUITE(step) = {
    {"append then attend", two_calls,
     "a step with other bits than append and attn_sdpa, or one that stores other rows"},
    {"prompt in pieces", prompt_in_pieces, "packed rows misread, a row that sees its successor or misses itself"},
    {"rejected steps", refused_steps,
     "an error after the append, keys read after they were overwritten, a wrong sentence"},
    {"workspace", one_workspace, "a step that requires more memory than reported for an empty cache"},
    {"allocation", step_allocation, "keys appended before the memory is allocated, a workspace that is not freed"},
    {0}};
