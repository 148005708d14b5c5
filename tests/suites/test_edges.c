/* test_edges.c: numbers at the ends of a float: scores of 3e38, infinite scores next to finite ones, sums that
 * overflow, denormals. Results must be those of the documented formulas under IEEE 754. */
#include "test.h"

#include <float.h>

/* ---- rows of every kind side by side in one call ------------------------------------------------------------- */

/* The kinds of scores of a row; component KIND of q is large for its kind, the others are 0. */
enum { PLAIN, HUGE_BOTH, HUGE_EQUAL, SOME_MINUS, ALL_MINUS, SOME_PLUS, OVERFLOWS, RETURNS, KINDS };
enum { D = 24, H = 2, MOST_Q = 50, MOST_K = 300 };

static float q[MOST_Q * H * D], k[MOST_K * H * D], v[MOST_K * H * D], out[MOST_Q * H * D], w[H * MOST_Q * MOST_K];
static float lse[H * MOST_Q];

static int kind_of(int i, int h) { return (i + 3 * h) % KINDS; }

static void edges_fill(int n_q, int n_k)
{
    rng r = rng_make(test_seed + (uint64_t)(1000 * n_q + n_k));
    memset(q, 0, sizeof q);
    for (int j = 0; j < n_k; j++)
        for (int h = 0; h < H; h++) {
            float *key = k + (j * H + h) * D;
            key[PLAIN] = rng_normal(&r);
            key[HUGE_BOTH] = 3e19f * (float)(j % 3 - 1);
            key[HUGE_EQUAL] = 1e19f;
            key[SOME_MINUS] = j % 5 == 2 ? 0.0f : -1e20f;
            key[ALL_MINUS] = -1e20f;
            key[SOME_PLUS] = j % 7 == 3 ? 1e20f : 0.0f;
            for (int x = KINDS - 2; x < D; x++)             /* 2^127 + 2^127 - ..., 2^127 - 2^127 + ... */
                key[x] = (x - KINDS) / 2 % 2 ? -0x1p64f : 0x1p64f;
        }
    for (int i = 0; i < n_q; i++)
        for (int h = 0; h < H; h++) {
            float *row = q + (i * H + h) * D;
            const int kind = kind_of(i, h);
            row[kind] = kind == PLAIN ? 1.0f : kind < SOME_MINUS ? 1e19f : 1e20f;
            if (kind < OVERFLOWS) continue;
            row[kind] = 0.0f;
            if (kind == OVERFLOWS) row[KINDS] = row[KINDS + 1] = row[KINDS + 2] = row[KINDS + 3] = 0x1p63f;
            else row[KINDS] = row[KINDS + 2] = row[KINDS + 5] = row[KINDS + 7] = 0x1p63f;
        }
    rng_fill(&r, v, sizeof v / sizeof *v);
}

/* one row by the formulas: scores as a chain of floats, the softmax of them in double */
static void edges_check(int n_k, int i, int n_q, int h, const char *how)
{
    static double p[MOST_K];
    const float *row = q + (i * H + h) * D;
    double most = -INFINITY, sum = 0.0, want_lse;
    for (int j = 0; j < n_k; j++) {
        float s = 0.0f;
        for (int c = 0; c < D; c++) s = fmaf(row[c], k[(j * H + h) * D + c], s);
        p[j] = (double)s;
        if (p[j] > most) most = p[j];
    }
    for (int j = 0; j < n_k; j++) sum += p[j] = exp(p[j] - most);
    want_lse = most == (double)-INFINITY ? most : most + log(sum);
    for (int x = 0; x < D; x++) {
        const float got = out[(i * H + h) * D + x];
        double o = 0.0, size = 0.0;
        for (int j = 0; j < n_k; j++) {
            const double part = p[j] / sum * (double)v[(j * H + h) * D + x];
            o += part, size += fabs(part);
        }
        /* exp 1.4 ulp and its argument's rounding (scores of PLAIN are below 5), a chain of at most 128 + 3 sums */
        CHECKF(o != o ? float_bits(got) == 0x7FC00000u : fabs((double)got - o) <= 150.0 / 16777216.0 * size,
               "%s: out[%d] of row %d, head %d, kind %d is %.9g, not %.9g", how, x, i, h, kind_of(i, h), (double)got,
               o);
    }
    for (int j = 0; j < n_k; j++) {
        const float got = w[(h * n_q + i) * n_k + j];
        const double want = p[j] / sum;
        CHECKF(want != want ? float_bits(got) == 0x7FC00000u : fabs((double)got - want) <= 40.0 / 16777216.0 * want,
               "%s: weight %d of row %d, head %d, kind %d is %.9g, not %.9g", how, j, i, h, kind_of(i, h), (double)got,
               want);
    }
    CHECKF(want_lse != want_lse ? float_bits(lse[h * n_q + i]) == 0x7FC00000u :
           isinf(want_lse) ? (double)lse[h * n_q + i] == want_lse :
           fabs((double)lse[h * n_q + i] - want_lse) <= 20.0 / 16777216.0 * (fabs(want_lse) + 1.0),
           "%s: lse of row %d, head %d, kind %d is %.9g, not %.9g", how, i, h, kind_of(i, h), (double)lse[h * n_q + i],
           want_lse);
}

static void test_kinds(void)
{
    static const int rows[] = {1, 5, 8, 50}, keys[] = {7, 16, 130, 300};
    attn_backend backends[16];
    int n_backends = test_all_backends(backends, 16), met[KINDS] = {0};
    for (int shape = 0; shape < 16; shape++)
        for (int b = 0; b < n_backends; b++)
            for (int cached = 0; cached < 2; cached++) {
                const int n_q = rows[shape / 4], n_k = keys[shape % 4];
                char how[80];
                attn_kv kv;
                attn_kv_args make;
                attn_args a;
                memset(&a, 0, sizeof a);
                memset(&make, 0, sizeof make);
                make.batch = 1, make.kv_heads = H, make.head_dim = D, make.capacity = n_k;
                edges_fill(n_q, n_k);
                a.out = out, a.q = q, a.k = k, a.v = v, a.batch = 1, a.n_q = n_q, a.n_k = n_k, a.heads = H,
                a.head_dim = D;
                a.scale = 1.0f, a.weights = w, a.lse = lse, a.backend = backends[b];
                if (cached) {
                    CHECK(attn_kv_init(&kv, &make) == ATTN_OK && attn_kv_append(&kv, -1, k, v, n_k, 0) == ATTN_OK);
                    a.k = a.v = NULL, a.kv = &kv;
                }
                CHECK(attn_sdpa(&a) == ATTN_OK);
                snprintf(how, sizeof how, "%s, %d rows, %d keys%s", attn_backend_name(backends[b]), n_q, n_k,
                         cached ? ", cache" : "");
                for (int i = 0; i < n_q; i++)
                    for (int h = 0; h < H; h++) edges_check(n_k, i, n_q, h, how), met[kind_of(i, h)] = 1;
                if (cached) attn_kv_free(&kv);
            }
    for (int x = 0; x < KINDS; x++) CHECKF(met[x], "kind %d was not met", x);
}

/* ---- one key, so that the answer is one number --------------------------------------------------------------- */

/* q, k, v have one head of width head_dim, one row and n keys; returns column 0 of the result, and lse */
static float ask(attn_backend backend, int head_dim, int n, const float *from_q, const float *from_k,
                 const float *from_v, float softcap, const float *sink, const float *bias, float *to_lse,
                 float *weights)
{
    attn_args a;
    float got[2] = {77.0f, 77.0f};
    memset(&a, 0, sizeof a);
    a.out = got, a.q = from_q, a.k = from_k, a.v = from_v, a.batch = 1, a.n_q = 1, a.n_k = n, a.heads = 1,
    a.head_dim = head_dim;
    a.v_head_dim = 1, a.scale = 1.0f, a.softcap = softcap, a.sinks = sink, a.bias = bias, a.lse = to_lse,
    a.weights = weights;
    a.backend = backend;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    return got[0];
}

/* constants and quotients of floats may have the precision of double (FLT_EVAL_METHOD); arguments are floats */
static int same(float got, float want) { return got == want; }
static int is_nan(float x) { return float_bits(x) == 0x7FC00000u; }

/* a dot product that overflows by its length, and one that would recover in a wider sum */
static void test_wide(void)
{
    enum { WIDE = 20000 };
    static float a[WIDE], b[2 * WIDE];
    const float values[2] = {3.0f, 5.0f};
    attn_backend backends[16];
    int n = test_all_backends(backends, 16);
    for (int y = 0; y < n; y++) {
        float l, x[2];
        for (int c = 0; c < WIDE; c++) a[c] = 0x1p59f, b[c] = 0x1p57f, b[WIDE + c] = -b[c];    /* 2^116 * 20000 */
        CHECK(is_nan(ask(backends[y], WIDE, 2, a, b, values, 0, NULL, NULL, &l, x)));       /* +inf, -inf: inf - inf */
        CHECK(ask(backends[y], WIDE, 1, a, b + WIDE, values, 5.0f, NULL, NULL, &l, x) == 3.0f && l == -5.0f);
        CHECK(ask(backends[y], WIDE, 2, a, b, values, 20.0f, NULL, NULL, &l, x) == 3.0f);   /* caps of +20 and -20 */
        CHECKF(l == 20.0f, "%s: lse %.9g", attn_backend_name(backends[y]), (double)l);
        for (int c = WIDE / 2; c < WIDE; c++) b[c] = -b[c], b[WIDE + c] = -b[c];          /* up and down again: */
        CHECK(is_nan(ask(backends[y], WIDE, 2, a, b, values, 0, NULL, NULL, &l, x)));       /* stays infinite */
        for (int c = 0; c < WIDE; c++)
            b[c] = c % 2 ? -0x1p57f : 0x1p57f, b[WIDE + c] = -0x1p57f; /* tested with values near 0, and -inf */
        CHECK(ask(backends[y], WIDE, 2, a, b, values, 0, NULL, NULL, &l, x) == 3.0f && l == 0.0f && x[1] == 0.0f);
    }
}

/* values: o is the sum of p * v before it is divided, and a probability of 0 times an infinite value is NaN */
static void test_values(void)
{
    enum { MOST = 300 };
    static float key[MOST], value[MOST], weights[MOST];
    static const int counts[] = {2, 16, 130, 300};
    const float one = 1.0f, huge = 3e38f, none = 0.0f, plus = INFINITY, minus = -INFINITY;
    attn_backend backends[16];
    int n = test_all_backends(backends, 16);
    for (int y = 0; y < n; y++) {
        const int backend = backends[y];
        float l, got;
        for (int z = 0; z < 4; z++) {
            const int keys = counts[z];
            for (int j = 0; j < keys; j++) key[j] = 1e38f, value[j] = FLT_MAX;              /* equal and huge */
            got = ask(backend, 1, keys, &one, key, value, 0, NULL, NULL, &l, weights);
            CHECKF(got == INFINITY, "%s: %d values of FLT_MAX give %g", attn_backend_name(backend), keys, (double)got);
            CHECK(same(l, 1e38f) && same(weights[0], 1.0f / (float)keys) &&
                  same(weights[keys - 1], 1.0f / (float)keys));
            for (int j = 0; j < keys; j++) value[j] = 0.5f;
            CHECK(ask(backend, 1, keys, &one, key, value, 0, NULL, NULL, &l, weights) == 0.5f);
            key[keys - 1] = -3e38f, value[keys - 1] = INFINITY;                             /* seen, and p is 0 */
            CHECK(is_nan(ask(backend, 1, keys, &one, key, value, 0, NULL, NULL, &l, weights)));
            CHECK(weights[keys - 1] == 0.0f && same(weights[0], 1.0f / (float)(keys - 1)) && same(l, 1e38f));
            for (int j = 0; j < keys; j++) key[j] = 0.0f, value[j] = 1.0f;
            CHECK(is_nan(ask(backend, 1, keys, &one, key, value, 0, &plus, NULL, &l, weights)));   /* a sink of +inf */
            CHECK(ask(backend, 1, keys, &one, key, value, 0, &huge, NULL, &l, weights) == 0.0f &&
                  same(l, huge));
            CHECK(ask(backend, 1, keys, &one, key, value, 0, &minus, NULL, &l, weights) == 1.0f);
            for (int j = 0; j < keys; j++) key[j] = j ? 0.0f : INFINITY; /* a bias of +inf is added */
            CHECK(is_nan(ask(backend, 1, keys, &none, value, value, 0, NULL, key, &l, weights)) && is_nan(l));
        }
        for (int x = 0; x < 4; x++) {                                                       /* one key: out is v */
            static const uint32_t small[] = {0x00000001u, 0x807FFFFFu, 0x80000000u, 0xFF7FFFFFu};
            value[0] = bits_float(small[x]), key[0] = x & 1 ? 3e38f : -3e38f;
            got = ask(backend, 1, 1, &one, key, value, 0, NULL, NULL, &l, weights);
            CHECKF(float_bits(got) == (x == 2 ? 0 : small[x]), "%s: %08x comes out as %08x", attn_backend_name(backend),
                   small[x], float_bits(got));
            CHECK(l == key[0] && weights[0] == 1.0f);
        }
    }
}

/* q * scale rounds first: it may overflow, or be denormal, although the score would not */
static void test_scales(void)
{
    attn_backend backends[16];
    int n = test_all_backends(backends, 16);
    for (int y = 0; y < n; y++) {
        float x = 3e38f, key = 1e-30f, value = 2.0f, got = 0.0f, l = 0.0f, score = 0.0f;
        attn_args a;
        memset(&a, 0, sizeof a);
        a.out = &got, a.q = &x, a.k = &key, a.v = &value, a.batch = a.n_q = a.n_k = a.heads = a.head_dim = 1,
        a.lse = &l;
        a.weights = &score, a.weights_stage = ATTN_SCORES_RAW, a.backend = backends[y], a.scale = 2.0f;
        CHECK(attn_sdpa(&a) == ATTN_OK && score == INFINITY && is_nan(got));
        a.scale = bits_float(1), x = 1.0f, key = 3e38f;                                     /* the smallest float */
        CHECK(attn_sdpa(&a) == ATTN_OK && same(score, 3e38f * bits_float(1)) && got == 2.0f && l == score);
        a.scale = -1.0f, x = 3e38f, key = 1.0f;
        CHECK(attn_sdpa(&a) == ATTN_OK && same(score, -3e38f) && got == 2.0f && same(l, -3e38f));
    }
}

extern const test_case suite_edges[];
SUITE(edges) = {
    {"infinite scores", test_kinds,
     "an infinite or huge score of one row that reaches another, or violates IEEE 754"},
    {"overflowing sums", test_wide, "an overflowing dot product that is summed in another order or width"},
    {"extreme values", test_values,
     "a value or weight at the end of the range that is lost, flushed, or made finite"},
    {"scales", test_scales, "scale applied elsewhere than to q, a denormal scale treated as unset"},
    {0},
};
