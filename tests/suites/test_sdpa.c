/* test_sdpa.c: attn_sdpa of every backend against the double oracle, its workspace, and properties that must not affect
 * results. The bound for every result is derived in oracle.h, section 3. */
#include "answer.h"
#include "cases.h"

enum { MOST_BACKENDS = 16 };

/* The scalar specification may emulate fma in doubles and is slow: it gets only the smaller cases. Suite `bits` tests
   that it also gives the same bits in the larger ones. */
static const double SCALAR_WORK = 150e3;

static double case_work(const oracle_shape *s)
{
    return (double)s->batch * s->heads * s->n_q * s->n_k * (s->head_dim + s->v_head_dim);
}

/* ---- random cases ---------------------------------------------------------------------------------------- */

static void test_random(void)
{
    attn_backend backends[MOST_BACKENDS];
    int n_backends = test_all_backends(backends, MOST_BACKENDS);
    rng r = rng_make(test_seed);
    static case_pairs pairs;
    double sharpest = 0.0;
    memset(&pairs, 0, sizeof pairs);
    for (int i = 0; i < 4000 * test_scale && !test_failed(); i++) {
        sdpa_case c;
        oracle want;
        oracle_bound allowed;
        case_random(&r, &c);
        case_pairs_add(&pairs, &c);
        oracle_run(&want, &c.a);
        oracle_bound_run(&allowed, &want, &c.a);
        for (int b = 0; b < n_backends; b++) {
            if (backends[b] == ATTN_SCALAR && case_work(&c.s) > SCALAR_WORK) continue;
            attn_status status = case_run(&c, backends[b]);
            CHECKF(status == ATTN_OK, "%s; %s", attn_status_str(status), case_text(&c));
            if (status != ATTN_OK) continue;
            double ratio = oracle_check_within(&want, &allowed, &c.a, case_text(&c));
            if (ratio > sharpest) sharpest = ratio;
            if (b == 0) oracle_check_a_priori(&want, &c.a, case_text(&c));
        }
        oracle_bound_free(&allowed);
        oracle_free(&want);
        case_free(&c);
    }
    if (test_failed()) return;
    CHECKF(case_pairs_print(&pairs, 0) == 0, "some features were never drawn together");
    /* a bound far above every error would prove nothing */
    CHECKF(sharpest > 0.05, "the largest error is only %.3f of what the bound allows", sharpest);
}

/* ---- all shapes with each other -------------------------------------------------------------------------- */

enum { F_N_Q, F_N_K, F_DIM, F_DIM_V, F_GROUP, F_KV_HEADS, F_BATCH, F_LAYOUT, F_CAUSAL, F_SHAPES };

typedef struct factor {
    int n, value[15];
} factor;

static const factor factors[F_SHAPES] = {
    {15, {1, 2, 5, 6, 7, 15, 16, 17, 31, 127, 128, 129, 255, 257, 600}},
    {15, {1, 2, 5, 6, 7, 15, 16, 17, 31, 127, 128, 129, 255, 257, 600}},
    {10, {1, 3, 8, 15, 16, 40, 64, 80, 128, 256}},
    {10, {1, 3, 8, 15, 16, 40, 64, 80, 128, 256}},
    {4, {1, 2, 4, 8}},
    {2, {1, 2}},
    {2, {1, 2}},
    {2, {ATTN_BSHD, ATTN_BHSD}},
    {3, {ATTN_CAUSAL_NONE, ATTN_CAUSAL_TOP_LEFT, ATTN_CAUSAL_BOTTOM_RIGHT}},
};

typedef struct pairing {
    unsigned char met[F_SHAPES][F_SHAPES][15][15];
} pairing;

static double shape_work(const int *level)
{
    static const int counts[] = {F_N_Q, F_N_K, F_GROUP, F_KV_HEADS, F_BATCH};
    double work = 1.0;
    for (int i = 0; i < 5; i++) work *= factors[counts[i]].value[level[counts[i]]];
    return work * (factors[F_DIM].value[level[F_DIM]] + factors[F_DIM_V].value[level[F_DIM_V]]);
}

static int new_pairs(const pairing *p, const int *level)
{
    int n = 0;
    for (int f = 0; f < F_SHAPES; f++)
        for (int g = f + 1; g < F_SHAPES; g++) n += !p->met[f][g][level[f]][level[g]];
    return n;
}

/* Draws some sets of shapes with the pair (f: x, g: y) and returns the one that covers most pairs for its work. */
static void cover(rng *r, const pairing *p, int f, int x, int g, int y, int *best)
{
    double best_value = -1.0;
    for (int attempt = 0; attempt < 60; attempt++) {
        int level[F_SHAPES];
        for (int i = 0; i < F_SHAPES; i++) level[i] = rng_int(r, 0, factors[i].n - 1);
        level[f] = x;
        level[g] = y;
        double value = new_pairs(p, level) / (shape_work(level) + 2e5);
        if (value <= best_value) continue;
        best_value = value;
        memcpy(best, level, sizeof level);
    }
}

static void run_shape(rng *r, const int *level, const attn_backend *backends, int n_backends)
{
    char text[160];
    attn_args a = {0};
    oracle want;
    oracle_bound allowed;
    a.n_q = factors[F_N_Q].value[level[F_N_Q]];
    a.n_k = factors[F_N_K].value[level[F_N_K]];
    a.head_dim = factors[F_DIM].value[level[F_DIM]];
    a.v_head_dim = factors[F_DIM_V].value[level[F_DIM_V]];
    a.kv_heads = factors[F_KV_HEADS].value[level[F_KV_HEADS]];
    a.heads = a.kv_heads * factors[F_GROUP].value[level[F_GROUP]];
    a.batch = factors[F_BATCH].value[level[F_BATCH]];
    a.layout = factors[F_LAYOUT].value[level[F_LAYOUT]];
    a.causal = factors[F_CAUSAL].value[level[F_CAUSAL]];
    size_t q_rows = (size_t)a.batch * (size_t)a.heads * (size_t)a.n_q;
    size_t k_rows = (size_t)a.batch * (size_t)a.kv_heads * (size_t)a.n_k;
    float *q = guard_floats(q_rows * (size_t)a.head_dim), *k = guard_floats(k_rows * (size_t)a.head_dim);
    float *v = guard_floats(k_rows * (size_t)a.v_head_dim), *out = guard_floats(q_rows * (size_t)a.v_head_dim);
    rng_fill(r, q, q_rows * (size_t)a.head_dim);
    rng_fill(r, k, k_rows * (size_t)a.head_dim);
    rng_fill(r, v, k_rows * (size_t)a.v_head_dim);
    a.q = q;
    a.k = k;
    a.v = v;
    a.out = out;
    oracle_run(&want, &a);
    oracle_bound_run(&allowed, &want, &a);
    for (int b = 0; b < n_backends; b++) {
        if (backends[b] == ATTN_SCALAR && case_work(&want.shape) > SCALAR_WORK) continue;
        a.backend = backends[b];
        snprintf(text, sizeof text, "backend %s batch %d heads %d/%d n_q %d n_k %d head_dim %d/%d layout %d causal %d",
                 attn_backend_name(a.backend), a.batch, a.heads, a.kv_heads, a.n_q, a.n_k, a.head_dim, a.v_head_dim,
                 a.layout, a.causal);
        attn_status status = attn_sdpa(&a);
        CHECKF(status == ATTN_OK, "%s; %s", attn_status_str(status), text);
        if (status == ATTN_OK) oracle_check_within(&want, &allowed, &a, text);
        if (status == ATTN_OK && b == 0) oracle_check_a_priori(&want, &a, text);
    }
    oracle_bound_free(&allowed);
    oracle_free(&want);
    guard_free(q);
    guard_free(k);
    guard_free(v);
    guard_free(out);
}

static void test_shapes(void)
{
    attn_backend backends[MOST_BACKENDS];
    int n_backends = test_all_backends(backends, MOST_BACKENDS);
    rng r = rng_make(test_seed);
    static pairing p;
    memset(&p, 0, sizeof p);
    for (int f = 0; f < F_SHAPES; f++)
        for (int g = f + 1; g < F_SHAPES; g++)
            for (int x = 0; x < factors[f].n; x++)
                for (int y = 0; y < factors[g].n && !test_failed(); y++) {
                    int level[F_SHAPES];
                    if (p.met[f][g][x][y]) continue;
                    cover(&r, &p, f, x, g, y, level);
                    for (int i = 0; i < F_SHAPES; i++)
                        for (int j = i + 1; j < F_SHAPES; j++) p.met[i][j][level[i]][level[j]] = 1;
                    run_shape(&r, level, backends, n_backends);
                }
}

/* ---- how accurate ---------------------------------------------------------------------------------------- */

enum { ACCURACY_HEADS = 4 };

/* N(0, 1) inputs: `rows` rows of 4 heads over n keys each, no masks. rms[b] becomes the root of the mean square of
   (out - oracle) of backend b. */
static void measure(int n, int head_dim, int rows, const attn_backend *backends, int n_backends, double *rms)
{
    attn_args a = {0};
    oracle want;
    rng r = rng_make((uint64_t)n);
    size_t width = (size_t)ACCURACY_HEADS * (size_t)head_dim, count = width * (size_t)rows, keys = width * (size_t)n;
    float *q = guard_floats(count), *k = guard_floats(keys), *v = guard_floats(keys), *out = guard_floats(count);
    rng_fill(&r, q, count);
    rng_fill(&r, k, keys);
    rng_fill(&r, v, keys);
    a.q = q;
    a.k = k;
    a.v = v;
    a.out = out;
    a.batch = 1;
    a.heads = ACCURACY_HEADS;
    a.n_q = rows;
    a.n_k = n;
    a.head_dim = head_dim;
    a.layout = ATTN_BHSD;                                    /* the order of the oracle's own arrays */
    oracle_run(&want, &a);
    for (int b = 0; b < n_backends; b++) {
        double sum = 0.0;
        a.backend = backends[b];
        CHECK(attn_sdpa(&a) == ATTN_OK);
        for (size_t i = 0; i < count; i++) sum += ((double)out[i] - want.out[i]) * ((double)out[i] - want.out[i]);
        rms[b] = sqrt(sum / (double)count);
    }
    oracle_free(&want);
    guard_free(q);
    guard_free(k);
    guard_free(v);
    guard_free(out);
}

/* Chunks of 128 have 2.56e-8, 1.36e-8 and 2.32e-8; chunks of 256 have 2.95e-8, 1.53e-8 and 2.54e-8, one chain
   over all keys 3.6e-8, 3.2e-8 and 3.6e-8: the limits exclude both. Samples of this size scatter by 1 to 2 %, so the
   inputs do not depend on -s. Backends without fma also round products and are allowed 5 % more. */
static void test_accuracy(void)
{
    static const struct {
        int n, head_dim, rows;
        double limit;
    } points[] = {{512, 64, 384, 2.7e-8}, {2048, 64, 160, 1.45e-8}, {1024, 128, 192, 2.4e-8}};
    attn_backend all[MOST_BACKENDS], chosen[MOST_BACKENDS], one[MOST_BACKENDS];
    int n_all = test_all_backends(all, MOST_BACKENDS), n = 0, n_one = test_one_answer_backends(one, MOST_BACKENDS);
    double rms[MOST_BACKENDS];
    if (n_one > 0) chosen[n++] = one[0];                     /* one for all backends with the same bits (suite bits) */
    for (int i = 0; i < n_all; i++) {
        int own_bits = 1;
        for (int k = 0; k < n_one; k++) own_bits &= all[i] != one[k];
        if (own_bits) chosen[n++] = all[i];
    }
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        int rows = points[i].rows * (test_scale < 8 ? test_scale : 8);
        measure(points[i].n, points[i].head_dim, rows, chosen, n, rms);
        for (int b = 0; b < n; b++) {
            double limit = points[i].limit * (b == 0 && n_one > 0 ? 1.0 : 1.05);
            const char *name = attn_backend_name(chosen[b]);
            printf("  rms error (%d, %d) %s: %.3g\n", points[i].n, points[i].head_dim, name, rms[b]);
            CHECKF(rms[b] <= limit, "%s, n %d head_dim %d: rms error %.3g is above %.3g", name, points[i].n,
                   points[i].head_dim, rms[b], limit);
            CHECKF(rms[b] > 0.0, "no error at all: nothing was measured");
        }
    }
}

/* ---- the bound of the manual ------------------------------------------------------------------------------- */

/* One row over 128 keys whose scores are all 0, so that all weights are 1, and values that lose almost half a unit in
   each sum, always in the same direction: v is 1 plus the excess that makes the next sum end just below the middle of
   two floats. */
static void lose_always(float *v, int n)
{
    float sum = 0.0f;
    for (int j = 0; j < n; j++) {
        const double exact = (double)sum + 1.0, unit = ldexp(1.0, ilogb(exact) - 23);
        v[j] = (float)(1.0 + unit * 0.49);
        sum = (float)((double)sum + (double)v[j]);
    }
}

/* One row over two keys at the ends of [-1, 1] with almost equal scores: half the components raise a sum that loses in
   each step, the other half lowers it again. An error of a score becomes a half of it in out. */
static void lose_in_scores(float *q, float *k, int dim)
{
    float sum = 0.0f;
    for (int c = 0; c < dim / 2; c++) {
        const double unit = ldexp(1.0, ilogb((double)sum + 1.0) - 23);
        q[c] = 1.0f;
        k[c] = (float)(1.0 + unit * 0.49);
        sum = (float)((double)sum + (double)k[c]);
    }
    for (int c = dim / 2; c < dim; c++) {
        const double unit = ldexp(1.0, ilogb((double)sum - 0.5) - 23);
        q[c] = 1.0f;
        k[c] = (float)(-1.0 + unit * 0.49);                    /* too low again */
        sum = (float)((double)sum + (double)k[c]);
    }
}

static void test_a_priori(void)
{
    enum { N = 128, DIM = 256 };
    attn_backend list[MOST_BACKENDS];
    const int n = test_all_backends(list, MOST_BACKENDS);
    static const float zero[N];
    float v[N], q[DIM], k[2 * DIM] = {0}, ends[2] = {1.0f, -1.0f}, out[1];
    lose_always(v, N);
    lose_in_scores(q, k, DIM);
    for (int b = 0; b < n; b++)
        for (int scores = 0; scores < 2; scores++) {
            attn_args a = {0};
            oracle want;
            a.batch = a.heads = a.n_q = a.v_head_dim = 1;
            a.n_k = scores ? 2 : N;
            a.head_dim = scores ? DIM : 1;
            a.scale = scores ? 0.0078125f : 0.0f;
            a.q = scores ? q : zero;
            a.k = scores ? k : zero;
            a.v = scores ? ends : v;
            a.out = out;
            a.backend = list[b];
            oracle_run(&want, &a);
            CHECK(attn_sdpa(&a) == ATTN_OK);
            const double ratio = oracle_check_a_priori(&want, &a, attn_backend_name(list[b]));
            printf("  %s, %s: %.2f of the bound\n", attn_backend_name(list[b]), scores ? "scores" : "sums", ratio);
            /* a bound far above every error would be useless */
            CHECKF(ratio > (scores ? 0.05 : 0.2), "%s: %.3f", scores ? "scores" : "sums", ratio);
            oracle_free(&want);
        }
}

/* ---- visible NaN and infinities -------------------------------------------------------------------------- */

static const float *poison_value(rng *r)
{
    static float x;
    static const uint32_t bits[] = {0x7FC00000u, 0x7F800001u, 0xFFC12345u, 0x7F800000u, 0xFF800000u};
    x = bits_float(bits[rng_int(r, 0, 4)]);
    return &x;
}

static void plant(rng *r, float *x, size_t n)
{
    if (x && n) memcpy(x + rng_int(r, 0, (int)n - 1), poison_value(r), sizeof(float));
}

/* Expected NaN must be the one NaN, expected infinities these infinities, all others finite: no tolerance. */
static int same_kind(float got, double want)
{
    if (want != want) return float_bits(got) == 0x7FC00000u;
    if (want == INFINITY || want == -INFINITY) return (double)got == want;
    return fabsf(got) <= 3.4e38f && float_bits(got) != 0x80000000u;
}

static void check_kinds(const oracle *want, const attn_args *a, const char *text)
{
    const oracle_shape *s = &want->shape;
    for (int b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < s->n_q; i++) {
                size_t row = ((size_t)b * (size_t)s->heads + (size_t)h) * (size_t)s->n_q + (size_t)i;
                int fine = 1;
                if (!a->q_cum || i < oracle_rows(a, b))
                    for (int x = 0; x < s->v_head_dim; x++)
                        fine &= same_kind(a->out[oracle_out_at(a, s, b, h, i) + x],
                                          want->out[row * (size_t)s->v_head_dim + (size_t)x]);
                CHECKF(fine, "out[%d][%d][%d] has another NaN or infinity than it should; %s", b, h, i, text);
                for (int j = 0; a->weights && j < s->n_k; j++)
                    fine &= same_kind(a->weights[row * (size_t)s->n_k + (size_t)j],
                                      want->weights[row * (size_t)s->n_k + (size_t)j]);
                CHECKF(fine, "weights[%d][%d][%d] have another NaN or infinity than they should; %s", b, h, i, text);
                if (a->lse)
                    CHECKF(same_kind(a->lse[row], want->lse[row]), "lse[%d][%d][%d] is %g, not %g; %s", b, h, i,
                           (double)a->lse[row], want->lse[row], text);
                if (test_failed()) return;
            }
    if (a->masked_rows) CHECKF(*a->masked_rows == want->masked_rows, "masked_rows; %s", text);
}

static void test_visible_nan(void)
{
    attn_backend backends[MOST_BACKENDS];
    int n_backends = test_all_backends(backends, MOST_BACKENDS);
    rng r = rng_make(test_seed);
    for (int i = 0; i < 500 * test_scale && !test_failed(); i++) {
        sdpa_case c;
        oracle want;
        case_random_upto(&r, &c, 60e3);
        for (int n = rng_int(&r, 1, 3); n > 0; n--) {
            switch (rng_int(&r, 0, 5)) {
            case 0: plant(&r, c.q, c.q_size); break;
            case 1: plant(&r, c.v, c.v_size); break;
            case 2: plant(&r, c.mask, c.mask_size); break;
            case 3: plant(&r, c.bias, c.bias_size); break;
            default: plant(&r, c.k, c.k_size); break;
            }
        }
        /* +Inf times a weight is +Inf or, where the weight underflows to 0, NaN: so no weight may underflow */
        for (size_t x = 0; x < c.q_size; x++) c.q[x] *= 0.125f;
        for (size_t x = 0; x < c.mask_size; x++)
            if (c.mask[x] < -10.0f && c.mask[x] > -INFINITY) c.mask[x] = -10.0f;
        for (size_t x = 0; x < c.bias_size; x++)
            if (c.bias[x] < -10.0f && c.bias[x] > -INFINITY) c.bias[x] = -10.0f;
        for (int h = 0; c.alibi_slopes && h < c.s.heads; h++) c.alibi_slopes[h] *= 0.03125f;
        for (size_t x = 0; x < c.rel_size; x++)
            if (c.rel_bias[x] < -10.0f && c.rel_bias[x] > -INFINITY) c.rel_bias[x] = -10.0f;
        oracle_run(&want, &c.a);
        for (int b = 0; b < n_backends; b++) {
            attn_status status = case_run(&c, backends[b]);
            CHECKF(status == ATTN_OK, "%s; %s", attn_status_str(status), case_text(&c));
            if (status == ATTN_OK) check_kinds(&want, &c.a, case_text(&c));
        }
        oracle_free(&want);
        case_free(&c);
    }
}

/* A row that sees keys, all of whose scores overflow to -inf, is not an empty row: NaN, as 0/0 in IEEE 754; lse
   -inf. */
static void test_overflow(void)
{
    attn_backend backends[MOST_BACKENDS];
    int n_backends = test_all_backends(backends, MOST_BACKENDS);
    for (int b = 0; b < n_backends; b++)
        for (int n_k = 1; n_k <= 130; n_k += 43) {
            float q[2] = {1e30f, 0.0f}, k[260], v[130], out[2] = {7.0f, 7.0f}, lse[2], weights[260];
            size_t masked = 9;
            attn_args a = {0};
            for (int j = 0; j < n_k; j++) k[j] = -1e30f, v[j] = 1.0f;
            a.q = q, a.k = k, a.v = v, a.out = out, a.lse = lse, a.weights = weights, a.masked_rows = &masked;
            a.batch = a.heads = a.head_dim = 1;
            a.n_q = 2, a.n_k = n_k;
            a.backend = backends[b];
            CHECK(attn_sdpa(&a) == ATTN_OK);
            CHECKF(float_bits(out[0]) == 0x7FC00000u, "%s: overflowed row gives %g", attn_backend_name(backends[b]),
                   (double)out[0]);
            CHECKF(lse[0] == -INFINITY, "%s: its lse is %g", attn_backend_name(backends[b]), (double)lse[0]);
            CHECKF(out[1] == 1.0f, "%s: the row beside it gives %g", attn_backend_name(backends[b]), (double)out[1]);
            CHECK(masked == 0);
        }
}

/* ---- workspace ------------------------------------------------------------------------------------------- */

/* All outputs of a case in one block, for comparing calls. */
static float *outputs_of(const sdpa_case *c, size_t *n)
{
    *n = c->out_size + (c->weights ? c->weights_size : 0) + (c->lse ? c->lse_size : 0) + 1;
    float *all = (float *)calloc(*n, sizeof(float)), *to = all;
    if (!all) exit(3);
    memcpy(to, c->out, c->out_size * sizeof(float));
    to += c->out_size;
    if (c->weights) memcpy(to, c->weights, c->weights_size * sizeof(float)), to += c->weights_size;
    if (c->lse) memcpy(to, c->lse, c->lse_size * sizeof(float)), to += c->lse_size;
    if (c->masked_rows) *to = (float)*c->masked_rows;
    return all;
}

static int untouched(const void *p, size_t bytes)
{
    const unsigned char *x = (const unsigned char *)p;
    for (size_t i = 0; i < bytes; i++)
        if (x[i] != 0xA5) return 0;
    return 1;
}

static void test_workspace(void)
{
    attn_backend backends[MOST_BACKENDS];
    int n_backends = test_all_backends(backends, MOST_BACKENDS);
    rng r = rng_make(test_seed);
    /* no entries, fewer and more entries than threads; chunks may be distributed */
    for (int batch = 0; batch <= 64; batch = 4 * batch + 1) {
        const attn_exec exec = test_exec(4);
        attn_args a = attn_args_for(batch, 1, 1000, 8, 64);
        a.exec = &exec;
        CHECK(attn_sdpa_workspace(&a) < SIZE_MAX / 4);
    }
    for (int i = 0; i < 300 * test_scale && !test_failed(); i++) {
        sdpa_case c;
        size_t n;
        case_random_upto(&r, &c, 60e3);
        c.a.backend = backends[i % n_backends];
        size_t size = attn_sdpa_workspace(&c.a);
        CHECKF(size < SIZE_MAX / 4, "attn_sdpa_workspace is %lu; %s", (unsigned long)size, case_text(&c));
        if (test_failed()) break;

        case_wipe(&c);
        CHECKF(attn_sdpa(&c.a) == ATTN_OK, "without workspace; %s", case_text(&c));
        float *expected = outputs_of(&c, &n);

        size_t shift = (size_t)rng_int(&r, 0, 65);           /* exact size at any alignment */
        unsigned char *work = (unsigned char *)guard_alloc(size + shift);
        case_wipe(&c);
        c.a.work = work;
        c.a.work_size = size;
        CHECKF(attn_sdpa(&c.a) == ATTN_OK, "exact workspace; %s", case_text(&c));
        CHECKF(untouched(work + size, shift), "written behind the workspace; %s", case_text(&c));
        float *got = outputs_of(&c, &n);
        CHECKF(same_bits(expected, got, n), "a workspace changes bits; %s", case_text(&c));
        free(got);

        if (size > 0) {                                       /* one byte less */
            char why[200] = "";
            memset(work, 0xA5, size + shift);
            case_wipe(&c);
            c.a.work_size = size - 1;
            attn_status status = attn_sdpa(&c.a);
            CHECKF(status == ATTN_E_WORK, "one byte less than the workspace gives %d; %s", (int)status, case_text(&c));
            CHECK(attn_check(&c.a, why, sizeof why) == ATTN_E_WORK && strstr(why, "work"));
            CHECK(untouched(work, size + shift) && untouched(c.out, c.out_size * sizeof(float)));
            CHECK(!c.lse || untouched(c.lse, c.lse_size * sizeof(float)));
            CHECK(!c.weights || untouched(c.weights, c.weights_size * sizeof(float)));
            CHECK(!c.masked_rows || untouched(c.masked_rows, sizeof(size_t)));
        }
        guard_free(work);
        free(expected);
        case_free(&c);
    }
}

static void test_workspace_grows(void)
{
    static const int sizes[] = {0,  1,  2,  5,   6,   7,   11,  12,  13,  15,  16,  17,  23,   24,   25,   31,  32,
                                33, 47, 48, 49,  95,  97,  127, 128, 129, 191, 193, 255, 256,  257,  383,  385, 511,
                                513, 600, 1023, 1025, 4097, 32769};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    static const int heads[] = {1, 2, 4, 8}, dims[] = {1, 3, 8, 16, 64, 80, 128, 256}, widths[] = {0, 1, 2, 3, 7, 64};
    attn_backend backends[MOST_BACKENDS];
    int n_backends = test_all_backends(backends, MOST_BACKENDS);
    rng r = rng_make(test_seed);
    float *unreadable = guard_floats(0);                      /* points at a guard page: reading it faults */
    for (int i = 0; i < 3000 * test_scale && !test_failed(); i++) {
        attn_args a = {0};
        a.out = a.weights = unreadable;
        a.q = a.k = a.v = a.mask = unreadable;
        a.k_lengths = (const int *)(const void *)unreadable;
        a.kv_heads = rng_int(&r, 1, 2);
        a.heads = a.kv_heads * heads[rng_int(&r, 0, 3)];
        a.head_dim = dims[rng_int(&r, 0, 7)];
        a.v_head_dim = rng_int(&r, 0, 1) ? dims[rng_int(&r, 0, 7)] : 0;
        a.n_q = sizes[rng_int(&r, 0, SIZES - 1)];
        a.n_k = sizes[rng_int(&r, 0, SIZES - 1)];
        a.batch = rng_int(&r, 0, 9);
        a.backend = backends[rng_int(&r, 0, n_backends - 1)];
        attn_exec exec = test_exec(widths[rng_int(&r, 1, 5)]);
        if (rng_int(&r, 0, 1)) a.exec = &exec;
        for (int grow = 0; grow < 3; grow++) {
            attn_args g = a;
            size_t before = 0;
            for (int x = 0; x < (grow == 2 ? 40 : SIZES); x++) {
                if (grow == 0) g.n_q = sizes[x];
                if (grow == 1) g.n_k = sizes[x];
                if (grow == 2) g.batch = x;
                size_t size = attn_sdpa_workspace(&g);
                CHECKF(size != SIZE_MAX || sizeof(size_t) < 8, "refused");   /* too large for 32 bits */
                CHECKF(size >= before,
                       "the workspace shrinks from %lu to %lu bytes when %s grows (batch %d heads %d/%d n_q %d n_k %d "
                       "head_dim %d/%d width %d)", (unsigned long)before, (unsigned long)size,
                       grow == 0 ? "n_q" : grow == 1 ? "n_k" : "batch", g.batch, g.heads, g.kv_heads, g.n_q, g.n_k,
                       g.head_dim, g.v_head_dim, g.exec ? g.exec->width : 0);
                before = size;
            }
        }
    }
    guard_free(unreadable);

    attn_args wrong = {0};                                    /* SIZE_MAX, so that malloc fails */
    CHECK(attn_sdpa_workspace(&wrong) == SIZE_MAX);
    wrong.heads = 3, wrong.kv_heads = 2, wrong.head_dim = 8, wrong.batch = wrong.n_q = wrong.n_k = 1;
    CHECK(attn_sdpa_workspace(&wrong) == SIZE_MAX);
    CHECK(attn_sdpa_workspace(NULL) == SIZE_MAX);
}

/* ---- asking for more changes nothing --------------------------------------------------------------------- */

static void test_more_to_see(void)
{
    attn_backend backends[MOST_BACKENDS];
    int n_backends = test_all_backends(backends, MOST_BACKENDS);
    rng r = rng_make(test_seed);
    for (int i = 0; i < 400 * test_scale && !test_failed(); i++) {
        sdpa_case c;
        case_random_upto(&r, &c, 100e3);
        size_t rows = (size_t)c.s.batch * (size_t)c.s.heads * (size_t)c.s.n_q, masked;
        float *expected = (float *)malloc(c.out_size * sizeof(float) + 1);
        float *weights = (float *)case_own(&c, rows * (size_t)c.s.n_k * sizeof(float));
        float *lse = (float *)case_own(&c, rows * sizeof(float));
        if (!expected) exit(3);
        c.a.weights = c.a.lse = NULL;
        c.a.masked_rows = NULL;
        int backend = backends[i % n_backends];
        CHECK(case_run(&c, backend) == ATTN_OK);
        memcpy(expected, c.out, c.out_size * sizeof(float));
        for (int more = 1; more < 16; more++) {
            static const char *const stages[] = {"probabilities", "raw", "capped", "biased"};
            c.a.weights = more >= 4 ? weights : NULL;         /* 1-3: none; then the four stages in turn */
            c.a.weights_stage = more >= 4 ? more & 3 : 0;
            c.a.lse = (more & 1) || more >= 8 ? lse : NULL;
            c.a.masked_rows = (more & 2) || more >= 12 ? &masked : NULL;
            CHECK(case_run(&c, backend) == ATTN_OK);
            CHECKF(same_bits(expected, c.out, c.out_size), "out changes when asked for%s%s%s%s; %s",
                   c.a.weights ? " weights " : "", c.a.weights ? stages[c.a.weights_stage] : "", c.a.lse ? " lse" : "",
                   c.a.masked_rows ? " masked_rows" : "", case_text(&c));
            if (test_failed()) break;
        }
        free(expected);
        case_free(&c);
    }
}

/* Weights of some heads: their planes and out have the bits of a call that gives all of them. */
static void test_weights_heads(void)
{
    attn_backend backends[MOST_BACKENDS];
    const int n_backends = test_all_backends(backends, MOST_BACKENDS);
    rng r = rng_make(test_seed);
    int tried = 0, left_out = 0;
    while (tried < 400 * test_scale && !test_failed()) {
        sdpa_case c;
        int heads[64], n = 0;
        case_random_upto(&r, &c, 60e3);
        for (int h = 0; h < c.s.heads && h < 64; h++) if (rng_int(&r, 0, 2) == 0) heads[n++] = h;
        if (n == 0) heads[n++] = c.s.heads - 1;
        for (int b = 0; c.weights && b < n_backends; b++) {
            const size_t plane = (size_t)c.s.n_q * (size_t)c.s.n_k;
            answer all, some;
            c.a.backend = backends[b];
            c.a.exec = c.features & CASE_BIT(EXEC) ? &c.exec : NULL;
            all = answer_of(&c.a);
            c.a.weights_heads = heads, c.a.n_weights_heads = n;
            some = answer_of(&c.a);
            CHECKF(some.status == ATTN_OK, "%s; %s", attn_status_str(some.status), case_text(&c));
            CHECKF(same_bits(all.out, some.out, all.n_out) && all.masked == some.masked &&
                   (!all.lse || same_bits(all.lse, some.lse, all.n_lse)), "another out; %s", case_text(&c));
            CHECK(some.status != ATTN_OK || (some.weights && all.weights));
            for (int e = 0; e < c.s.batch && some.weights && all.weights && some.status == ATTN_OK; e++)
                for (int i = 0; i < n; i++)
                    CHECKF(same_bits(some.weights + (size_t)(e * n + i) * plane,
                                     all.weights + (size_t)(e * c.s.heads + heads[i]) * plane, plane),
                           "entry %d head %d; %s", e, heads[i], case_text(&c));
            c.a.weights_heads = NULL, c.a.n_weights_heads = 0;
            left_out += n < c.s.heads;
            tried++;
            answer_free(&all);
            answer_free(&some);
        }
        case_free(&c);
    }
    CHECK(test_failed() || left_out > tried / 4);
}

/* ---- level 2 --------------------------------------------------------------------------------------------- */

static void test_level_2(void)
{
    static const int sizes[] = {1, 2, 5, 6, 7, 16, 17, 31, 128, 129};
    rng r = rng_make(test_seed);
    for (int i = 0; i < 300 * test_scale && !test_failed(); i++) {
        int batch = rng_int(&r, 1, 3), heads = rng_int(&r, 1, 4), head_dim = sizes[rng_int(&r, 0, 7)];
        int n_q = sizes[rng_int(&r, 0, 9)], n_k = sizes[rng_int(&r, 0, 9)], self = rng_int(&r, 0, 1);
        int causal = rng_int(&r, 0, 1), with_lengths = rng_int(&r, 0, 1), with_mask = rng_int(&r, 0, 1), lengths[3];
        if (self) n_k = n_q;
        size_t width = (size_t)heads * (size_t)head_dim, n_out = (size_t)batch * (size_t)n_q * width;
        size_t n_keys = (size_t)batch * (size_t)n_k * width, cells = (size_t)batch * (size_t)n_q * (size_t)n_k;
        float *q = guard_floats(n_out), *k = guard_floats(n_keys), *v = guard_floats(n_keys);
        float *one = guard_floats(n_out), *two = guard_floats(n_out), *mask = guard_floats(cells);
        rng_fill(&r, q, n_out);
        rng_fill(&r, k, n_keys);
        rng_fill(&r, v, n_keys);
        for (size_t x = 0; x < cells; x++) mask[x] = rng_int(&r, 0, 3) == 0 ? -INFINITY : rng_normal(&r);
        for (int b = 0; b < 3; b++) lengths[b] = rng_int(&r, 0, n_k);

        attn_args a = {0};
        a.q = q, a.k = k, a.v = v, a.out = two;
        a.batch = batch, a.heads = heads, a.head_dim = head_dim, a.n_q = n_q, a.n_k = n_k;
        if (with_lengths) a.k_lengths = lengths;
        if (with_mask) a.mask = mask, a.mask_shape[0] = batch, a.mask_shape[1] = 1, a.mask_shape[2] = n_q;
        attn_status status;
        if (self) {
            a.q_lengths = a.k_lengths;
            a.causal = causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
            status = attn_self(one, q, k, v, batch, n_q, heads, head_dim, causal, a.k_lengths, a.mask);
        } else {
            status = attn_cross(one, q, k, v, batch, n_q, n_k, heads, head_dim, a.k_lengths, a.mask);
        }
        CHECK(status == ATTN_OK);
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECKF(
            same_bits(one, two, n_out),
            "attn_%s differs from attn_sdpa: batch %d n_q %d n_k %d heads %d head_dim %d causal %d lengths %d mask %d",
            self ? "self" : "cross", batch, n_q, n_k, heads, head_dim, self && causal, with_lengths, with_mask);
        oracle want;
        oracle_run(&want, &a);
        oracle_check(&want, &a, "level 2");
        oracle_free(&want);
        guard_free(q);
        guard_free(k);
        guard_free(v);
        guard_free(one);
        guard_free(two);
        guard_free(mask);
    }
}

SUITE(sdpa) = {
    {"random", test_random, "any feature computed wrongly, alone or combined, on any backend"},
    {"shapes", test_shapes, "a size at which tiles, panels, chunks or groups are cut wrongly (all pairs of sizes)"},
    {"a_priori", test_a_priori, "the bound in the manual exceeded, or far above every error"},
    {"accuracy", test_accuracy, "arithmetic less accurate than promised: other chunks, one long chain, a coarse exp"},
    {"visible_nan", test_visible_nan, "a visible NaN or infinity being lost, or reaching rows that do not see it"},
    {"overflow", test_overflow, "a row whose visible scores are all -inf treated as empty"},
    {"workspace", test_workspace,
     "a workspace query that is too small, an assumed alignment, a short workspace accepted"},
    {"workspace_grows", test_workspace_grows, "a query that shrinks for larger sizes, or that reads contents"},
    {"extra_outputs", test_more_to_see, "weights, lse or masked_rows computed on a separate path"},
    {"weights_heads", test_weights_heads, "weights of selected heads: other bits, another head's, or more of them"},
    {"level_2", test_level_2, "attn_self or attn_cross that differ from the equivalent attn_args"},
    {0}
};
