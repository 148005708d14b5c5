/* test_mha.c: packed linears, rotary embedding and the attention layer.
 *
 * Three kinds of proof. A layer is, bit for bit, what its parts give one after the other (attn_linear_run, attn_rope,
 * attn_sdpa). It agrees with an oracle in double within a bound that is carried along with every number. And it gives
 * the numbers that torch gives (torch_numbers.h). */
#include "oracle.h"

typedef struct torch_case {
    const char *name;
    int batch, n_q, n_k, d_model, heads, kdim, vdim, bias, causal, additive, averaged, lengths[4];
    const float *out, *weights;
} torch_case;
#include "torch_numbers.h"

static const double U = 5.9604644775390625e-8;                /* 2^-24: half an ulp of 1 */

static float *floats(size_t n)
{
    float *p = malloc((n + 1) * sizeof(float));
    if (!p) abort();
    return p;
}

static float *normal(rng *r, size_t n, double scale)
{
    float *p = floats(n);
    rng_fill(r, p, n);
    for (size_t i = 0; i < n; i++) p[i] = (float)(p[i] * scale);
    return p;
}

static int untouched(const void *p, size_t bytes)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < bytes; i++) if (c[i] != 0x77) return 0;
    return 1;
}

/* ---- numbers in double with the error they may have --------------------------------------------------------- */

/* rows x n of them: the value, and how far a float computed in its place may be off */
typedef struct numbers { double *value, *error; } numbers;

static numbers numbers_make(size_t n)
{
    numbers x;
    x.value = calloc(n + 1, sizeof(double));
    x.error = calloc(n + 1, sizeof(double));
    if (!x.value || !x.error) abort();
    return x;
}

static void numbers_free(numbers x) { free(x.value); free(x.error); }

static numbers numbers_of(const float *x, size_t n)
{
    numbers y = numbers_make(n);
    for (size_t i = 0; i < n; i++) y.value[i] = x[i];
    return y;
}

/* y = x W^T + b. A chain of n_in fmas from the bias errs by at most n_in u times the sum of the magnitudes, plus what
   was wrong with x; the factor 1.01 covers the second order. Where the best backend has no fma a product is rounded
   once more on its own, before its n_in sums. */
static numbers linear_oracle(numbers x, size_t rows, const float *w, const float *b, int n_in, int n_out)
{
    numbers y = numbers_make(rows * (size_t)n_out);
    attn_backend best = ATTN_SCALAR;
    attn_backends(&best, 1);
    const int roundings = n_in + (best == ATTN_SSE2 || best == ATTN_WASM);
    for (size_t r = 0; r < rows; r++)
        for (int o = 0; o < n_out; o++) {
            double sum = b ? b[o] : 0.0, size = fabs(sum), error = 0.0;
            for (int i = 0; i < n_in; i++) {
                const double wi = w[(size_t)o * (size_t)n_in + (size_t)i];
                sum += wi * x.value[r * (size_t)n_in + (size_t)i];
                size += fabs(wi * x.value[r * (size_t)n_in + (size_t)i]);
                error += fabs(wi) * x.error[r * (size_t)n_in + (size_t)i];
            }
            y.value[r * (size_t)n_out + (size_t)o] = sum;
            y.error[r * (size_t)n_out + (size_t)o] = 1.01 * (error + roundings * U * size) + 1e-44;
        }
    return y;
}

static int within(const float *got, numbers want, size_t n, const char *what, unsigned long long seed)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want.value[i]) <= want.error[i])) {
            CHECKF(0, "%s, seed %llu: number %zu is %.9g but should be %.9g +- %.2g", what, seed, i, (double)got[i],
                   want.value[i], want.error[i]);
            return 0;
        }
    return 1;
}

/* ---- packed linear ------------------------------------------------------------------------------------------ */

static void linear_oracle_test(void)
{
    static const int sizes[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 64, 100, 319, 320, 321, 641};
    rng seeds = rng_make(test_seed);
    for (int i = 0; i < 120 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n_in = sizes[rng_int(&r, 0, 15)], n_out = sizes[rng_int(&r, 0, 13)];
        const int rows = rng_int(&r, 0, 3) ? rng_int(&r, 1, 30) : rng_int(&r, 31, 200), width = rng_int(&r, 0, 4);
        float *w = normal(&r, (size_t)(n_in * n_out), 1.0),
              *b = rng_int(&r, 0, 1) ? normal(&r, (size_t)n_out, 1.0) : NULL;
        float *x = guard_floats((size_t)(rows * n_in)), *y = guard_floats((size_t)(rows * n_out));
        const size_t size = attn_linear_size(n_in, n_out), shift = (size_t)rng_int(&r, 0, 16) * 4;
        unsigned char *mem = rng_int(&r, 0, 1) ? guard_alloc(size + shift) : NULL;
        attn_exec exec = test_exec(width > 0 ? width : 1);
        attn_linear l;
        rng_fill(&r, x, (size_t)(rows * n_in));
        CHECK(attn_linear_init(&l, w, b, n_in, n_out, mem ? mem + shift : NULL, size, NULL) == ATTN_OK);
        {
            numbers in = numbers_of(x, (size_t)(rows * n_in));
            numbers want = linear_oracle(in, (size_t)rows, w, b, n_in, n_out);
            memset(w, 0xFF, (size_t)(n_in * n_out) * sizeof(float)); /* the originals are not needed again */
            CHECK(attn_linear_run(&l, y, x, rows, width > 0 ? &exec : NULL) == ATTN_OK);
            within(y, want, (size_t)(rows * n_out), "linear", seed);
            numbers_free(in);
            numbers_free(want);
        }
        attn_linear_free(&l);
        free(w); free(b); guard_free(x); guard_free(y); guard_free(mem);
    }
}

/* A row must not know what else is computed: not how many rows, not by how many threads, not which blocks. */
static void linear_company(void)
{
    enum { ROWS = 205 };
    static const int shapes[][2] = {{7, 5}, {64, 64}, {320, 33}, {330, 100}, {700, 50}};
    rng r = rng_make(test_seed + 1);
    for (int s = 0; s < 5; s++) {
        const int n_in = shapes[s][0], n_out = shapes[s][1];
        float *w = normal(&r, (size_t)(n_in * n_out), 1.0), *b = normal(&r, (size_t)n_out, 1.0);
        float *x = normal(&r, (size_t)(ROWS * n_in), 1.0), *all = floats((size_t)(ROWS * n_out)),
              *some = floats((size_t)(ROWS * n_out));
        attn_linear l;
        CHECK(attn_linear_init(&l, w, b, n_in, n_out, NULL, 0, NULL) == ATTN_OK);
        CHECK(attn_linear_run(&l, all, x, ROWS, NULL) == ATTN_OK);
        for (int width = 2; width <= 7; width++) {
            attn_exec exec = test_exec(width);
            memset(some, 0xFF, (size_t)(ROWS * n_out) * sizeof(float));
            CHECK(attn_linear_run(&l, some, x, ROWS, &exec) == ATTN_OK);
            CHECKF(same_bits(all, some, (size_t)(ROWS * n_out)), "%d x %d on %d threads", n_in, n_out, width);
        }
        for (int at = 0, rows; at < ROWS; at += rows) {
            attn_exec exec = test_exec(3);
            rows = rng_int(&r, 1, 9);
            if (rows > ROWS - at) rows = ROWS - at;
            CHECK(attn_linear_run(&l, some + at * n_out, x + at * n_in, rows, at % 2 ? &exec : NULL) == ATTN_OK);
        }
        CHECKF(same_bits(all, some, (size_t)(ROWS * n_out)), "%d x %d in pieces", n_in, n_out);
        attn_linear_free(&l);
        free(w); free(b); free(x); free(all); free(some);
    }
}

/* Inf * 0 makes another NaN than -NAN does: both must be stored as the one NaN, in whole panels and in the last one */
static void linear_nan(void)
{
    enum { IN = 3, OUT = 37 };
    float w[OUT * IN], x[2 * IN] = {1, 0, 1, 1, -NAN, 1}, y[2 * OUT];
    attn_linear l;
    for (int i = 0; i < OUT * IN; i++) w[i] = i % 6 == 1 ? INFINITY : 1.0f;     /* in every other output */
    CHECK(attn_linear_init(&l, w, NULL, IN, OUT, NULL, 0, NULL) == ATTN_OK);
    CHECK(attn_linear_run(&l, y, x, 2, NULL) == ATTN_OK);
    for (int i = 0; i < OUT; i++) {
        CHECK(i % 2 ? y[i] == 2.0f : float_bits(y[i]) == 0x7FC00000u);
        CHECK(float_bits(y[OUT + i]) == 0x7FC00000u);
    }
    attn_linear_free(&l);
}

/* Where all that is added up is -0, or less than a float can tell from it: attention, rotation and merged masks store
   +0; what a linear computes keeps its sign, and a table of biases is copied as it stands. */
static void signs_of_zero(void)
{
    static const uint32_t minus = 0x80000000u;
    const float w = -1.0f, one = 1.0f, small = -1e-30f, turn[2] = {1.0f, 0.0f};
    const float table[2] = {-0.0f, bits_float(0xFFA12345u)};
    const float keys[3] = {1e-30f, 0.0f, 0.0f}, values[3] = {bits_float(0x80000001u), -0.0f, -0.0f};
    float x[2] = {-0.0f, 1.0f}, none[1] = {-0.0f}, m[1] = {-0.0f}, bias[2], y = 1.0f;
    attn_backend backends[16];
    int n = test_all_backends(backends, 16);
    attn_linear l;
    attn_mha_args args = {0};
    attn_mha layer;
    CHECK(attn_linear_init(&l, &one, none, 1, 1, NULL, 0, NULL) == ATTN_OK);
    CHECK(attn_linear_run(&l, &y, none, 1, NULL) == ATTN_OK && float_bits(y) == minus);
    attn_linear_free(&l);
    args.d_model = args.heads = 1;
    args.w_q = args.w_k = args.w_v = args.w_o = &w;
    args.b_o = none;
    CHECK(attn_mha_init(&layer, &args, NULL, 0) == ATTN_OK);
    for (int b = 0; b < n; b++) {
        attn_mha_opts o = {0};
        attn_args a = {0};
        float weights[3], zero = 0.0f;
        o.attn.backend = backends[b];
        CHECK(attn_mha_self(&layer, &y, &zero, 1, 1, &o) == ATTN_OK && float_bits(y) == minus);
        a.out = &y, a.q = &small, a.k = keys, a.v = values, a.batch = a.n_q = a.heads = a.head_dim = 1, a.n_k = 3;
        a.weights = weights, a.weights_stage = ATTN_SCORES_RAW, a.backend = backends[b];
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECK(float_bits(y) == 0 && float_bits(weights[0]) == 0);      /* a third of the smallest float; -1e-60 */
    }
    attn_mha_free(&layer);
    CHECK(attn_rope(x, 1, 1, 1, 2, turn, 0, 0) == ATTN_OK && float_bits(x[0]) == 0);
    CHECK(attn_mask_merge(m, 1, none, 1, 1, 1) == ATTN_OK && float_bits(m[0]) == 0);
    for (int i = 0; i < 2; i++) {
        const float copied[2] = {table[i], table[i]};
        CHECK(attn_bias_t5(bias, copied, 2, 2, 1, 1, 1, 1, 0) == ATTN_OK && same_bits(bias, copied, 1));
    }
}

static void linear_wrong(void)
{
    float w[6] = {0}, x[3] = {0}, y[2];
    attn_linear l, zero;
    attn_exec none = {0};
    char mem[64];
    memset(&zero, 0, sizeof zero);
    CHECK(attn_linear_size(0, 1) == (size_t)-1 && attn_linear_size(1, 0) == (size_t)-1 &&
          attn_linear_size(-1, 1) == (size_t)-1);
    CHECK(attn_linear_size(2147483647, 2147483647) == (size_t)-1);
    CHECK(attn_linear_init(NULL, w, NULL, 3, 2, NULL, 0, NULL) == ATTN_E_NULL);
    CHECK(attn_linear_init(&l, NULL, NULL, 3, 2, NULL, 0, NULL) == ATTN_E_NULL);
    CHECK(attn_linear_init(&l, w, NULL, 0, 2, NULL, 0, NULL) == ATTN_E_SIZE);
    CHECK(attn_linear_init(&l, w, NULL, 3, -2, NULL, 0, NULL) == ATTN_E_SIZE);
    CHECK(attn_linear_init(&l, w, NULL, 3, 2, mem, sizeof mem, NULL) == ATTN_E_WORK);
    CHECK(attn_linear_run(&l, y, x, 1, NULL) == ATTN_E_NULL);          /* what a refused init leaves is refused */
    CHECK(attn_linear_init(&l, w, NULL, 3, 2, NULL, 0, NULL) == ATTN_OK);
    memset(y, 0x77, sizeof y);
    CHECK(attn_linear_run(&l, NULL, x, 1, NULL) == ATTN_E_NULL);
    CHECK(attn_linear_run(&l, y, NULL, 1, NULL) == ATTN_E_NULL);
    CHECK(attn_linear_run(&l, y, x, -1, NULL) == ATTN_E_SIZE);
    CHECK(attn_linear_run(&l, x, x, 1, NULL) == ATTN_E_OVERLAP);
    CHECK(attn_linear_run(&l, x + 2, x, 1, NULL) == ATTN_E_OVERLAP);
    CHECK(attn_linear_run(&l, y, x, 1, &none) == ATTN_E_NULL);
    none = test_exec(2);
    none.width = 0;
    CHECK(attn_linear_run(&l, y, x, 1, &none) == ATTN_E_OPTION);
    none.width = -1;
    CHECK(attn_linear_run(&l, y, x, 1, &none) == ATTN_E_OPTION);
    {   /* rows too many for the address space: of x, of y (sizes by hand, no memory holds such weights) */
        attn_linear vast = l;
        vast.n_in = 1 << 30;
        CHECK(attn_linear_run(&vast, y, x, 1 << 30, NULL) == ATTN_E_OVERFLOW);
        vast = l;
        vast.n_out = 1 << 30;
        CHECK(attn_linear_run(&vast, y, x, 1 << 30, NULL) == ATTN_E_OVERFLOW);
    }
    CHECK(attn_linear_run(&l, NULL, NULL, 0, NULL) == ATTN_OK);
    CHECK(attn_linear_run(&zero, y, x, 1, NULL) == ATTN_E_NULL);
    CHECK(attn_linear_run(NULL, y, x, 1, NULL) == ATTN_E_NULL);
    CHECK(untouched(y, sizeof y));
    attn_linear_free(&l);
    attn_linear_free(&l);
    attn_linear_free(NULL);
}

/* ---- rotary embedding --------------------------------------------------------------------------------------- */

/* half a unit in the last place of the result, and what the header promises of the angle: 2^-40, or 2^-60 of itself */
static double table_bound(double want, double angle)
{
    return ldexp(1.0, (want != 0.0 ? ilogb(want) : -149) - 24) + ldexp(1.0, -40) + ldexp(fabs(angle), -60);
}

/* Frequencies as given. The angle of the reference is exact: 24 + 20 bits fit. */
static void given_frequencies(int n, int last)
{
    static const float freqs[] = {1.0f, 0.37f, -0.013f, 3.0f, 1e-6f, 0.0f, 100.0f};
    float *t = floats((size_t)n * 2);
    for (int i = 0; i < 7 && !test_failed(); i++) {
        CHECK(attn_rope_table(t, n, 2, freqs + i, 0.0) == ATTN_OK);
        for (int pos = 0; pos < n; pos += pos < n - last ? 997 : 1) {
            const double angle = (double)freqs[i] * pos;
            CHECKF(fabs(t[2 * pos] - cos(angle)) <= table_bound(cos(angle), angle) &&
                       fabs(t[2 * pos + 1] - sin(angle)) <= table_bound(sin(angle), angle),
                   "frequency %g position %d", (double)freqs[i], pos);
        }
    }
    free(t);
}

static void rope_table(void)
{
    static const double bases[] = {1.0, 2.0, 10000.0, 500000.0, 1e6, 1.5, 123456.789};
    const int dims[] = {2, 6, 64, 128};
    for (int i = 0; i < 7; i++)
        for (int k = 0; k < 4 && !test_failed(); k++) {
            const int d = dims[k], n = 3000;
            float *t = floats((size_t)(n * d));
            CHECK(attn_rope_table(t, n, d, NULL, bases[i]) == ATTN_OK);
            for (int pos = 0; pos < n; pos += pos < 20 ? 1 : 37)
                for (int x = 0; x < d / 2; x++) {
                    const double angle = pos * pow(bases[i], -2.0 * x / d);
                    const float *row = t + pos * d;
                    const double slack = angle * 1e-15; /* of the reference itself: pow, and one rounding */
                    CHECKF(fabs(row[x] - cos(angle)) <= table_bound(cos(angle), angle) + slack &&
                           fabs(row[d / 2 + x] - sin(angle)) <= table_bound(sin(angle), angle) + slack,
                           "base %g head_dim %d position %d pair %d: %.9g %.9g", bases[i], d, pos, x, (double)row[x],
                           (double)row[d / 2 + x]);
                }
            free(t);
        }
    given_frequencies(600, 600);
}

static void rope_far(void) { given_frequencies(1 << 20, 2000); }

/* The table is integer arithmetic: its bits are fixed for all machines and compilers, so they can stand here. */
static void rope_bits(void)
{
    enum { N = 1000, D = 64 };
    float *t = floats(N * D);
    const float freqs[2] = {1.0f, -0.25f};
    CHECK(attn_rope_table(t, N, D, NULL, 10000.0) == ATTN_OK);
    CHECKF(hash_bits(0, t, N * D) == UINT64_C(0x5A211DA9AC872F83), "0x%llX",
           (unsigned long long)hash_bits(0, t, N * D));
    CHECK(attn_rope_table(t, N, 4, freqs, 0.0) == ATTN_OK);
    CHECKF(hash_bits(0, t, N * 4) == UINT64_C(0xEA1EED44D8E736E9), "0x%llX",
           (unsigned long long)hash_bits(0, t, N * 4));
    free(t);
}

static void rope_rotates(void)
{
    rng r = rng_make(test_seed + 2);
    attn_backend best, one_answer;
    int exact;
    attn_backends(&best, 1);
    exact = test_one_answer_backends(&one_answer, 1) > 0 && one_answer == best;
    for (int i = 0; i < 30 && !test_failed(); i++) {
        const int half = rng_int(&r, 1, 40), d = 2 * half, batch = rng_int(&r, 1, 3), n = rng_int(&r, 1, 9),
                  heads = rng_int(&r, 1, 3);
        const int pos = rng_int(&r, 0, 50), rows = batch * n * heads;
        float *table = floats((size_t)((pos + n) * d)), *x = normal(&r, (size_t)(rows * d), 1.0);
        float *y = floats((size_t)(rows * d)), *z = floats((size_t)(rows * d));
        CHECK(attn_rope_table(table, pos + n, d, NULL, 10000.0) == ATTN_OK);
        memcpy(y, x, (size_t)(rows * d) * sizeof(float));
        for (int row = 0; row < rows; row++)                          /* the same pairs, side by side */
            for (int c = 0; c < half; c++) {
                z[row * d + 2 * c] = x[row * d + c];
                z[row * d + 2 * c + 1] = x[row * d + half + c];
            }
        CHECK(attn_rope(y, batch, n, heads, d, table, 0, pos) == ATTN_OK);
        CHECK(attn_rope(z, batch, n, heads, d, table, 1, pos) == ATTN_OK);
        for (int row = 0; row < rows; row++) {
            const float *t = table + (pos + row / heads % n) * d;
            for (int c = 0; c < half; c++) {
                const double a = x[row * d + c], b = x[row * d + half + c], co = t[c], si = t[half + c];
                const float first = y[row * d + c], second = y[row * d + half + c];
                CHECK(fabs(first - (a * co - b * si)) <= 2.1 * U * (fabs(a * co) + fabs(b * si)));
                CHECK(fabs(second - (b * co + a * si)) <= 2.1 * U * (fabs(a * si) + fabs(b * co)));
                CHECK(same_bits(&first, z + row * d + 2 * c, 1) && same_bits(&second, z + row * d + 2 * c + 1, 1));
                if (exact) { /* two roundings of these, not one and not three */
                    volatile float ac = x[row * d + c] * t[c], bc = x[row * d + half + c] * t[c];
                    const float one = test_fmaf(-x[row * d + half + c], t[half + c], ac) + 0.0f;
                    const float two = test_fmaf(x[row * d + c], t[half + c], bc) + 0.0f;
                    CHECK(same_bits(&first, &one, 1) && same_bits(&second, &two, 1));
                }
            }
        }
        free(table); free(x); free(y); free(z);
    }
}

static void rope_wrong(void)
{
    float t[16], x[16] = {0};
    const float bad[3] = {NAN, INFINITY, 70000.0f};
    memset(t, 0x77, sizeof t);
    CHECK(attn_rope_table(t, 2, 3, NULL, 10000.0) == ATTN_E_SIZE);
    CHECK(attn_rope_table(t, 2, 0, NULL, 10000.0) == ATTN_E_SIZE);
    CHECK(attn_rope_table(t, -1, 4, NULL, 10000.0) == ATTN_E_SIZE);
    CHECK(attn_rope_table(NULL, 2, 4, NULL, 10000.0) == ATTN_E_NULL);
    CHECK(attn_rope_table(t, 2, 4, NULL, 0.5) == ATTN_E_OPTION);
    CHECK(attn_rope_table(t, 2, 4, NULL, NAN) == ATTN_E_OPTION);
    CHECK(attn_rope_table(t, 2, 4, NULL, INFINITY) == ATTN_E_OPTION);
    for (int i = 0; i < 3; i++) CHECK(attn_rope_table(t, 2, 2, bad + i, 0.0) == ATTN_E_OPTION);
    CHECK(attn_rope_table(NULL, 2147480000, 1 << 30, NULL, 0.0) != ATTN_OK);
    CHECK(untouched(t, sizeof t));
    CHECK(attn_rope_table(NULL, 0, 4, NULL, 0.0) == ATTN_OK);
    CHECK(attn_rope(x, 1, 1, 1, 3, t, 0, 0) == ATTN_E_SIZE);
    CHECK(attn_rope(x, 1, 1, 1, 4, t, 0, -1) == ATTN_E_SIZE);
    CHECK(attn_rope(x, -1, 1, 1, 4, t, 0, 0) == ATTN_E_SIZE);
    CHECK(attn_rope(x, 1, 1, 0, 4, t, 0, 0) == ATTN_E_SIZE);
    CHECK(attn_rope(NULL, 1, 1, 1, 4, t, 0, 0) == ATTN_E_NULL);
    CHECK(attn_rope(x, 1, 1, 1, 4, NULL, 0, 0) == ATTN_E_NULL);
    CHECK(attn_rope(x, 1, -1, 1, 4, t, 0, 0) == ATTN_E_SIZE);
    CHECK(attn_rope(x, 1, 1, 1, 0, t, 0, 0) == ATTN_E_SIZE);
    CHECK(attn_rope(x, 1 << 20, 1 << 20, 1 << 20, 1 << 20, t, 0, 0) == ATTN_E_OVERFLOW);
    CHECK(attn_rope(x, 1, 1 << 20, 1, 4, t, 0, 2147483647 - 1023) == ATTN_E_OVERFLOW);   /* the last position */
    CHECK(attn_rope(x, 1, 1, 1, 1 << 30, t, 0, 2147483647 - 2000) == ATTN_E_OVERFLOW);   /* the table */
    CHECK(attn_rope(NULL, 0, 1, 1, 4, NULL, 0, 0) == ATTN_OK);
    CHECK(attn_rope(NULL, 1, 0, 1, 4, NULL, 0, 0) == ATTN_OK);
    for (int i = 0; i < 16; i++) CHECK(x[i] == 0.0f);
}

/* ---- layers ------------------------------------------------------------------------------------------------- */

typedef struct layer {
    attn_mha_args a;                      /* every size resolved */
    attn_mha m;
    attn_linear q, k, v, o;               /* the same projections, each for itself */
    float *w[4], *b[4], *w_in, *b_in, *table;
    double base;
} layer;

enum { WITH_ROPE = 1, PLAIN_WIDTHS = 2, CROSSING = 4 };

static void layer_make(layer *l, rng *r, int what)
{
    static const int dims[] = {1, 2, 4, 7, 8, 16, 20};
    int n_in[4], n_out[4];
    attn_mha_args *a = &l->a;
    char why[200];
    memset(l, 0, sizeof *l);
    a->kv_heads = rng_int(r, 1, 3);
    a->heads = a->kv_heads * rng_int(r, 1, 3);
    a->head_dim = dims[rng_int(r, 0, 6)];
    a->d_model = rng_int(r, 0, 1) ? a->heads * a->head_dim : rng_int(r, 1, 60);
    a->d_key = a->d_value = a->d_model;
    if ((what & CROSSING) && rng_int(r, 0, 1)) {
        a->d_key = rng_int(r, 1, 50);
        a->d_value = rng_int(r, 0, 1) ? a->d_key : rng_int(r, 1, 50);
    }
    if (what & WITH_ROPE) {
        if (a->head_dim % 2) a->head_dim++;
        a->rope_positions = 400;
        a->rope_interleaved = rng_int(r, 0, 1);
        l->table = floats((size_t)(a->rope_positions * a->head_dim));
        CHECK(attn_rope_table(l->table, a->rope_positions, a->head_dim, NULL, 100.0) == ATTN_OK);
        a->rope_table = l->table;
    }
    n_in[0] = a->d_model;
    n_in[1] = a->d_key;
    n_in[2] = a->d_value;
    n_in[3] = n_out[0] = a->heads * a->head_dim;
    n_out[1] = n_out[2] = a->kv_heads * a->head_dim;
    n_out[3] = a->d_model;
    for (int i = 0; i < 4; i++) {
        l->w[i] = normal(r, (size_t)(n_in[i] * n_out[i]), 1.0 / sqrt(n_in[i]));
        if (rng_int(r, 0, 2)) l->b[i] = normal(r, (size_t)n_out[i], 0.5);
    }
    {
        attn_mha_args given = *a;
        given.w_q = l->w[0]; given.w_k = l->w[1]; given.w_v = l->w[2]; given.w_o = l->w[3];
        given.b_q = l->b[0]; given.b_k = l->b[1]; given.b_v = l->b[2]; given.b_o = l->b[3];
        CHECKF(attn_mha_init(&l->m, &given, why, sizeof why) == ATTN_OK, "%s", why);
    }
    CHECK(attn_linear_init(&l->q, l->w[0], l->b[0], n_in[0], n_out[0], NULL, 0, NULL) == ATTN_OK);
    CHECK(attn_linear_init(&l->k, l->w[1], l->b[1], n_in[1], n_out[1], NULL, 0, NULL) == ATTN_OK);
    CHECK(attn_linear_init(&l->v, l->w[2], l->b[2], n_in[2], n_out[2], NULL, 0, NULL) == ATTN_OK);
    CHECK(attn_linear_init(&l->o, l->w[3], l->b[3], n_in[3], n_out[3], NULL, 0, NULL) == ATTN_OK);
}

static void layer_free(layer *l)
{
    attn_mha_free(&l->m);
    attn_linear_free(&l->q);
    attn_linear_free(&l->k);
    attn_linear_free(&l->v);
    attn_linear_free(&l->o);
    for (int i = 0; i < 4; i++) { free(l->w[i]); free(l->b[i]); }
    free(l->w_in);
    free(l->b_in);
    free(l->table);
}

/* Masks of all kinds, drawn together. */
typedef struct masks {
    int q_lengths[4], k_lengths[4], k_starts[4], k_map[4];
    float *mask, *bias, slopes[16], sinks[16];
    unsigned char *keep;
} masks;

static void masks_draw(masks *s, rng *r, attn_args *a, int batch, int heads, int n_q, int n_k)
{
    memset(s, 0, sizeof *s);
    for (int b = 0; b < batch; b++) {
        s->q_lengths[b] = rng_int(r, 0, n_q);
        s->k_lengths[b] = rng_int(r, 0, n_k);
        s->k_starts[b] = rng_int(r, 0, n_k - s->k_lengths[b]);
    }
    if (rng_int(r, 0, 2) == 0) a->causal = rng_int(r, 1, 2);
    if (rng_int(r, 0, 3) == 0) a->window_left = rng_int(r, 1, 20);
    if (rng_int(r, 0, 3) == 0) a->window_right = rng_int(r, 1, 20);
    if (rng_int(r, 0, 3) == 0) a->q_lengths = s->q_lengths;
    if (rng_int(r, 0, 3) == 0) a->k_lengths = s->k_lengths;
    if (a->k_lengths && rng_int(r, 0, 1)) a->k_starts = s->k_starts;
    if (rng_int(r, 0, 3) == 0) a->scale = 0.3f;
    if (rng_int(r, 0, 5) == 0) a->softcap = 2.0f;
    if (rng_int(r, 0, 3) == 0) {
        const size_t n = (size_t)(batch * n_q * n_k);
        s->mask = normal(r, n, 1.0);
        for (size_t i = 0; i < n; i++) if (rng_int(r, 0, 4) == 0) s->mask[i] = -INFINITY;
        a->mask = s->mask;
        a->mask_shape[0] = batch;
        a->mask_shape[1] = 1;
        a->mask_shape[2] = n_q;
    }
    if (rng_int(r, 0, 3) == 0) {
        const size_t n = (size_t)(batch * n_k);
        s->keep = malloc(n + 1);
        if (!s->keep) abort();
        for (size_t i = 0; i < n; i++) s->keep[i] = (unsigned char)(rng_int(r, 0, 4) > 0);
        a->keep = s->keep;
        a->keep_shape[0] = batch;
        a->keep_shape[1] = a->keep_shape[2] = 1;
    }
    if (rng_int(r, 0, 3) == 0) a->bias = s->bias = normal(r, (size_t)(heads * n_q * n_k), 1.0);
    rng_fill(r, s->slopes, 16);
    rng_fill(r, s->sinks, 16);
    if (rng_int(r, 0, 4) == 0) a->alibi_slopes = s->slopes;
    if (rng_int(r, 0, 4) == 0) a->sinks = s->sinks;
}

static void masks_free(masks *s) { free(s->mask); free(s->bias); free(s->keep); }

/* The parts one after the other, with the functions that are tested alone. Fills weights too when they are wanted. */
static void by_parts(const layer *l, float *out, const float *x, int batch, int n_q, const float *memory,
                     const float *memory_v, int n_k, const attn_mha_opts *o, int turn)
{
    const attn_mha_args *s = &l->a;
    const size_t rows = (size_t)(batch * n_q);
    float *q = floats(rows * (size_t)l->q.n_out), *k = floats((size_t)(batch * n_k * l->k.n_out));
    float *v = floats((size_t)(batch * n_k * l->v.n_out)), *heads = floats(rows * (size_t)l->o.n_in);
    attn_args a = o->attn;
    CHECK(attn_linear_run(&l->q, q, x, batch * n_q, NULL) == ATTN_OK);
    CHECK(attn_linear_run(&l->k, k, memory, batch * n_k, NULL) == ATTN_OK);
    CHECK(attn_linear_run(&l->v, v, memory_v, batch * n_k, NULL) == ATTN_OK);
    for (int b = 0; turn && b < batch; b++) { /* positions count from the first key that exists */
        const int start = a.k_starts ? a.k_starts[b] : 0;
        for (int i = 0; i < n_q; i++) {
            const int pos = i > start ? i - start : 0;
            CHECK(attn_rope(q + (b * n_q + i) * l->q.n_out, 1, 1, s->heads, s->head_dim, l->table, s->rope_interleaved,
                            pos) == ATTN_OK);
            CHECK(attn_rope(k + (b * n_q + i) * l->k.n_out, 1, 1, s->kv_heads, s->head_dim, l->table,
                            s->rope_interleaved, pos) == ATTN_OK);
        }
    }
    a.out = heads;
    a.q = q;
    a.k = k;
    a.v = v;
    a.batch = batch;
    a.n_q = n_q;
    a.n_k = n_k;
    a.heads = s->heads;
    a.kv_heads = s->kv_heads;
    a.head_dim = s->head_dim;
    a.work = NULL;
    a.exec = NULL;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    CHECK(attn_linear_run(&l->o, out, heads, (int)rows, NULL) == ATTN_OK);
    for (int b = 0; a.q_lengths && b < batch; b++)
        for (int i = a.q_lengths[b]; i < n_q; i++)
            memset(out + (b * n_q + i) * s->d_model, 0, (size_t)s->d_model * sizeof(float));
    free(q); free(k); free(v); free(heads);
}

/* Backends that keep the one answer agree with the linears, which have no backend to choose. */
static void composition(void)
{
    rng seeds = rng_make(test_seed + 3);
    attn_backend backends[16];
    int n_backends = test_one_answer_backends(backends, 16), auto_is_one;
    attn_backend best;
    attn_backends(&best, 1);
    auto_is_one = best == backends[0];
    for (int i = 0; i < 250 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int self = rng_int(&r, 0, 1), rope = self && rng_int(&r, 0, 1), batch = rng_int(&r, 1, 3);
        const int n_q = rng_int(&r, 0, 3) ? rng_int(&r, 1, 20) : rng_int(&r, 21, 140);
        const int n_k = self ? n_q : rng_int(&r, 0, 3) ? rng_int(&r, 1, 30) : rng_int(&r, 31, 200);
        layer l;
        masks hide;
        attn_mha_opts o;
        attn_exec exec = test_exec(rng_int(&r, 1, 4));
        float *x, *memory, *memory_v, *got, *want, *w_got, *w_want, *lse;
        size_t n_out, n_w, rows_lse, need, masked[2] = {0, 0};
        unsigned char *work;
        layer_make(&l, &r, (rope ? WITH_ROPE : 0) | (self ? 0 : CROSSING));
        memset(&o, 0, sizeof o);
        masks_draw(&hide, &r, &o.attn, batch, l.a.heads, n_q, n_k);
        n_out = (size_t)(batch * n_q * l.a.d_model);
        n_w = (size_t)(batch * l.a.heads * n_q * n_k);
        rows_lse = (size_t)(batch * l.a.heads * n_q);
        x = normal(&r, n_out, 1.0);
        memory = self ? x : normal(&r, (size_t)(batch * n_k * l.a.d_key), 1.0);
        memory_v = self || (l.a.d_value == l.a.d_key && rng_int(&r, 0, 1))
                       ? memory
                       : normal(&r, (size_t)(batch * n_k * l.a.d_value), 1.0);
        got = guard_floats(n_out);
        want = floats(n_out);
        w_got = guard_floats(n_w);
        w_want = floats(n_w);
        lse = floats(2 * rows_lse);
        if (rng_int(&r, 0, 1)) o.attn.weights = w_want;
        if (rng_int(&r, 0, 1)) o.attn.lse = lse;
        o.attn.masked_rows = masked;
        o.attn.backend = auto_is_one ? backends[rng_int(&r, 0, n_backends - 1)] : 0;
        by_parts(&l, want, x, batch, n_q, memory, memory_v, n_k, &o, rope);

        if (o.attn.weights) o.attn.weights = w_got;
        if (o.attn.lse) o.attn.lse = lse + rows_lse;
        o.attn.masked_rows = masked + 1;
        if (memory_v != memory) o.memory_v = memory_v;
        if (exec.width > 1) o.attn.exec = &exec;
        need = attn_mha_workspace(&l.m, batch, n_q, n_k, &o);
        CHECK(need != (size_t)-1);
        work = guard_alloc(need);
        o.attn.work = work;
        for (int less = 1; less >= 0; less--) { /* one byte less is refused, exactly enough is not */
            const attn_status expected = less ? ATTN_E_WORK : ATTN_OK;
            attn_status status;
            o.attn.work_size = need - (size_t)less;
            memset(got, 0x77, n_out * sizeof(float));
            status = self ? attn_mha_self(&l.m, got, x, batch, n_q, &o)
                          : attn_mha_cross(&l.m, got, x, batch, n_q, memory, n_k, &o);
            CHECKF(status == expected, "seed %llu: %s", seed, attn_status_str(status));
            if (less) CHECKF(untouched(got, n_out * sizeof(float)), "seed %llu: written although refused", seed);
        }
        CHECKF(same_bits(got, want, n_out),
               "seed %llu: %s%s, batch %d, %d x %d, d_model %d, heads %d/%d of %d, backend %d", seed,
               self ? "self" : "cross", rope ? " with rotation" : "", batch, n_q, n_k, l.a.d_model, l.a.heads,
               l.a.kv_heads, l.a.head_dim, o.attn.backend);
        if (o.attn.weights) CHECKF(same_bits(w_got, w_want, n_w), "seed %llu: weights", seed);
        if (o.attn.lse) CHECKF(same_bits(lse, lse + rows_lse, rows_lse), "seed %llu: lse", seed);
        CHECKF(masked[0] == masked[1], "seed %llu: %zu masked rows, not %zu", seed, masked[1], masked[0]);
        layer_free(&l);
        masks_free(&hide);
        if (!self) free(memory);
        if (memory_v != memory) free(memory_v);
        free(x); guard_free(got); free(want); guard_free(w_got); free(w_want); free(lse); guard_free(work);
    }
}

/* ---- against double ----------------------------------------------------------------------------------------- */

/* Attention of one row over numbers with errors: the error of a score is at most what is wrong with q and k plus head_dim u
   of its magnitudes; scores that are off by e move a probability by a factor exp(2e) at most, to which (keys + 40) u
   come for exp, the sums and the division; the rest is a weighted sum. */
static void row_oracle(double *out, double *error, const double *q, const double *eq, numbers k, numbers v,
                       const int *sees, int keys, ptrdiff_t step, int head_dim, double scale)
{
    double *s = calloc((size_t)keys + 1, sizeof(double)), top = -INFINITY, sum = 0.0, worst = 0.0;
    if (!s) abort();
    for (int j = 0; j < keys; j++) {
        double size = 0.0, e = 0.0;
        if (!sees[j]) continue;
        for (int c = 0; c < head_dim; c++) {
            const double kc = k.value[j * step + c], ek = k.error[j * step + c];
            s[j] += q[c] * kc * scale;
            size += fabs(q[c] * kc * scale);
            e += (eq[c] * fabs(kc) + (fabs(q[c]) + eq[c]) * ek) * fabs(scale);
        }
        e += (head_dim + 2) * U * size * 1.01;
        if (e > worst) worst = e;
        if (s[j] > top) top = s[j];
    }
    for (int j = 0; j < keys; j++) if (sees[j]) sum += s[j] = exp(s[j] - top);
    worst = expm1(2.0 * worst) + (keys + 40) * U;
    for (int c = 0; c < head_dim; c++) {
        out[c] = error[c] = 0.0;
        for (int j = 0; j < keys; j++) {
            if (!sees[j]) continue;
            out[c] += s[j] / sum * v.value[j * step + c];
            error[c] +=
                s[j] / sum * (v.error[j * step + c] + (fabs(v.value[j * step + c]) + v.error[j * step + c]) * worst);
        }
        error[c] *= 1.01;
    }
    free(s);
}

static void turn_oracle(const layer *l, numbers x, int batch, int n, int heads)
{
    const int half = l->a.head_dim / 2, d = l->a.head_dim;
    for (int row = 0; row < batch * n * heads; row++)
        for (int i = 0; i < half; i++) {
            const double angle = (row / heads % n) * pow(100.0, -2.0 * i / d), c = cos(angle), s = sin(angle);
            const ptrdiff_t p = row * d + (l->a.rope_interleaved ? 2 * i : i),
                            o = l->a.rope_interleaved ? p + 1 : p + half;
            const double a = x.value[p], b = x.value[o], ea = x.error[p], eb = x.error[o];
            x.value[p] = a * c - b * s;
            x.value[o] = b * c + a * s;
            x.error[p] = x.error[o] = ea + eb + 4.0 * U * (fabs(a) + fabs(b));
        }
}

static void double_oracle(void)
{
    rng seeds = rng_make(test_seed + 4);
    attn_backend backends[16];
    int n_backends = test_all_backends(backends, 16);
    for (int i = 0; i < 80 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int self = rng_int(&r, 0, 1), rope = self && rng_int(&r, 0, 1), batch = rng_int(&r, 1, 2);
        const int n_q = rng_int(&r, 1, 25), n_k = self ? n_q : rng_int(&r, 1, 40);
        layer l;
        attn_mha_opts o;
        float *x, *memory, *memory_v, *got;
        int lengths[2], *sees = calloc((size_t)n_k + 1, sizeof(int));
        numbers dx, dm, dv, q, k, v, heads, want;
        if (!sees) abort();
        layer_make(&l, &r, (rope ? WITH_ROPE : 0) | (self ? 0 : CROSSING));
        memset(&o, 0, sizeof o);
        o.attn.backend = backends[i % n_backends];
        if (rng_int(&r, 0, 1)) o.attn.k_lengths = lengths;
        if (self && rng_int(&r, 0, 1)) o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
        for (int b = 0; b < 2; b++) lengths[b] = rng_int(&r, 1, n_k);
        x = normal(&r, (size_t)(batch * n_q * l.a.d_model), 1.0);
        memory = self ? x : normal(&r, (size_t)(batch * n_k * l.a.d_key), 1.0);
        memory_v = self ? x : normal(&r, (size_t)(batch * n_k * l.a.d_value), 1.0);
        if (!self) o.memory_v = memory_v;
        got = floats((size_t)(batch * n_q * l.a.d_model));
        dx = numbers_of(x, (size_t)(batch * n_q * l.a.d_model));
        dm = numbers_of(memory, (size_t)(batch * n_k * l.a.d_key));
        dv = numbers_of(memory_v, (size_t)(batch * n_k * l.a.d_value));
        q = linear_oracle(dx, (size_t)(batch * n_q), l.w[0], l.b[0], l.a.d_model, l.q.n_out);
        k = linear_oracle(dm, (size_t)(batch * n_k), l.w[1], l.b[1], l.a.d_key, l.k.n_out);
        v = linear_oracle(dv, (size_t)(batch * n_k), l.w[2], l.b[2], l.a.d_value, l.v.n_out);
        if (rope) {
            turn_oracle(&l, q, batch, n_q, l.a.heads);
            turn_oracle(&l, k, batch, n_k, l.a.kv_heads);
        }
        heads = numbers_make((size_t)(batch * n_q * l.o.n_in));
        for (int b = 0; b < batch; b++)
            for (int row = 0; row < n_q; row++)
                for (int h = 0; h < l.a.heads; h++) {
                    const int d = l.a.head_dim, g = h / (l.a.heads / l.a.kv_heads);
                    const ptrdiff_t at = ((ptrdiff_t)(b * n_q + row) * l.a.heads + h) * d;
                    const ptrdiff_t key = (ptrdiff_t)b * n_k * l.k.n_out + g * d;
                    numbers kk = {k.value + key, k.error + key}, vv = {v.value + key, v.error + key};
                    for (int j = 0; j < n_k; j++)
                        sees[j] = (!o.attn.causal || j <= row) && (!o.attn.k_lengths || j < lengths[b]);
                    row_oracle(heads.value + at, heads.error + at, q.value + at, q.error + at, kk, vv, sees, n_k,
                               l.k.n_out, d, 1.0 / sqrt(d));
                }
        want = linear_oracle(heads, (size_t)(batch * n_q), l.w[3], l.b[3], l.o.n_in, l.a.d_model);
        CHECK((self ? attn_mha_self(&l.m, got, x, batch, n_q, &o)
                    : attn_mha_cross(&l.m, got, x, batch, n_q, memory, n_k, &o)) == ATTN_OK);
        within(got, want, (size_t)(batch * n_q * l.a.d_model), self ? "self" : "cross", seed);
        numbers_free(dx); numbers_free(dm); numbers_free(dv); numbers_free(q); numbers_free(k); numbers_free(v);
        numbers_free(heads); numbers_free(want);
        if (!self) { free(memory); free(memory_v); }
        free(x); free(got); free(sees);
        layer_free(&l);
    }
}

/* ---- against torch ------------------------------------------------------------------------------------------ */

/* the same numbers as number() of torch_numbers.py: multiples of 2^-12 */
static float number(uint32_t stream, uint32_t i)
{
    uint32_t x = stream * 0x9E3779B1u + i * 0x85EBCA77u + 0x27D4EB2Fu;
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    x ^= x >> 13;
    return (float)((int)(x & 0x1FFFu) - 4096) / 4096.0f;
}

static float *number_array(uint32_t stream, int n, float scale)
{
    float *x = floats((size_t)n);
    for (int i = 0; i < n; i++) x[i] = number(stream, (uint32_t)i) * scale;
    return x;
}

/* torch computed in double. |x| and |b| are at most 1, |w| at most 1/2, so |q|, |k|, |v| <= 1 + d/2 <= 7, with errors
   of d u 7 = 5e-6 at the very worst; those that occur add up like square roots. 2e-6 is 10 times what is seen. */
static void torch_answers(void)
{
    for (size_t t = 0; t < sizeof torch_cases / sizeof *torch_cases; t++) {
        const torch_case *c = torch_cases + t;
        const int d = c->d_model, self = !c->kdim, kdim = self ? d : c->kdim, vdim = self ? d : c->vdim;
        const int n_out = c->batch * c->n_q * d, cells = c->batch * (c->averaged ? 1 : c->heads) * c->n_q * c->n_k;
        const int packed = kdim == d && vdim == d;
        float *w_in = number_array(1, 3 * d * d, 0.5f), *w_q = number_array(1, d * d, 0.5f),
              *w_k = number_array(2, d * kdim, 0.5f);
        float *w_v = number_array(3, d * vdim, 0.5f), *w_o = number_array(4, d * d, 0.5f),
              *b_in = number_array(5, 3 * d, 1.0f);
        float *b_o = number_array(6, d, 1.0f), *x = number_array(7, n_out, 1.0f),
              *k = number_array(8, c->batch * c->n_k * kdim, 1.0f);
        float *v = number_array(9, c->batch * c->n_k * vdim, 1.0f), *mask = number_array(10, c->n_q * c->n_k, 1.0f);
        float *out = floats((size_t)n_out), *weights = floats((size_t)cells);
        attn_mha_args a = {0};
        attn_mha m;
        attn_mha_opts o;
        char why[200];
        memset(&o, 0, sizeof o);
        a.d_model = d;
        a.heads = c->heads;
        a.d_key = kdim;
        a.d_value = vdim;
        if (packed) {
            a.w_in = w_in;
        } else {
            a.w_q = w_q;
            a.w_k = w_k;
            a.w_v = w_v;
        }
        a.w_o = w_o;
        if (c->bias) { a.b_in = b_in; a.b_o = b_o; }
        CHECKF(attn_mha_init(&m, &a, why, sizeof why) == ATTN_OK, "%s: %s", c->name, why);
        if (c->lengths[0]) o.attn.k_lengths = c->lengths;
        if (c->causal) o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
        if (c->additive) o.attn.mask = mask;
        o.attn.weights = weights;
        o.weights_mean = c->averaged;
        if (!self) o.memory_v = v;
        CHECK((self ? attn_mha_self(&m, out, x, c->batch, c->n_q, &o)
                    : attn_mha_cross(&m, out, x, c->batch, c->n_q, k, c->n_k, &o)) == ATTN_OK);
        for (int i = 0; i < n_out && !test_failed(); i++)
            CHECKF(fabs((double)out[i] - c->out[i]) <= 2e-6, "%s: out %d is %.9g, torch says %.9g", c->name, i,
                   (double)out[i], (double)c->out[i]);
        for (int i = 0; i < cells && !test_failed(); i++)
            CHECKF(fabs((double)weights[i] - c->weights[i]) <= 1e-6, "%s: weight %d is %.9g, torch says %.9g", c->name,
                   i, (double)weights[i], (double)c->weights[i]);
        attn_mha_free(&m);
        free(w_in);
        free(w_q);
        free(w_k);
        free(w_v);
        free(w_o);
        free(b_in);
        free(b_o);
        free(x);
        free(k);
        free(v);
        free(mask);
        free(out); free(weights);
    }
}

/* ---- weights in every layout -------------------------------------------------------------------------------- */
static void weight_layouts(void)
{
    rng r = rng_make(test_seed + 5);
    for (int i = 0; i < 20 && !test_failed(); i++) {
        const int kv_heads = rng_int(&r, 1, 3), heads = kv_heads * rng_int(&r, 1, 2), d = rng_int(&r, 1, 20),
                  dm = heads * d;
        const int q = heads * d, kv = kv_heads * d, biased = rng_int(&r, 0, 1), n = rng_int(&r, 1, 8);
        float *w_in = normal(&r, (size_t)((q + 2 * kv) * dm), 0.3), *b_in = normal(&r, (size_t)(q + 2 * kv), 0.3);
        float *w_o = normal(&r, (size_t)(dm * q), 0.3), *b_o = normal(&r, (size_t)dm, 0.3),
              *x = normal(&r, (size_t)(n * dm), 1.0);
        float *out[3], *copies[4];
        for (int k = 0; k < 3; k++) {
            attn_mha_args a = {0};
            attn_mha m;
            unsigned char *mem = NULL;
            char why[200];
            out[k] = floats((size_t)(n * dm));
            a.d_model = dm;
            a.heads = heads;
            a.kv_heads = kv_heads == heads ? 0 : kv_heads;
            a.head_dim = rng_int(&r, 0, 1) ? d : 0;
            copies[0] = floats((size_t)((q + 2 * kv) * dm));
            copies[1] = floats((size_t)(q + 2 * kv));
            copies[2] = floats((size_t)(dm * q));
            copies[3] = floats((size_t)dm);
            memcpy(copies[0], w_in, (size_t)((q + 2 * kv) * dm) * sizeof(float));
            memcpy(copies[1], b_in, (size_t)(q + 2 * kv) * sizeof(float));
            memcpy(copies[2], w_o, (size_t)(dm * q) * sizeof(float));
            memcpy(copies[3], b_o, (size_t)dm * sizeof(float));
            if (k == 0) {
                a.w_in = copies[0];
            } else {
                a.w_q = copies[0];
                a.w_k = copies[0] + q * dm;
                a.w_v = copies[0] + (q + kv) * dm;
            }
            if (biased && k == 1) {
                a.b_q = copies[1];
                a.b_k = copies[1] + q;
                a.b_v = copies[1] + q + kv;
            } else if (biased) {
                a.b_in = copies[1];
            }
            a.w_o = copies[2];
            if (biased) a.b_o = copies[3];
            if (k == 2) {
                const size_t size = attn_mha_size(&a);
                mem = guard_alloc(size + 4);
                a.mem = mem + 4;
                a.mem_size = size - 1;
                CHECK(attn_mha_init(&m, &a, why, sizeof why) == ATTN_E_WORK && strstr(why, "mem_size"));
                a.mem_size = size;
            }
            CHECKF(attn_mha_init(&m, &a, why, sizeof why) == ATTN_OK, "%s", why);
            for (int c = 0; c < 4; c++) free(copies[c]);                   /* the originals may go */
            CHECK(attn_mha_self(&m, out[k], x, 1, n, NULL) == ATTN_OK);
            attn_mha_free(&m);
            guard_free(mem);
        }
        CHECK(same_bits(out[0], out[1], (size_t)(n * dm)) && same_bits(out[0], out[2], (size_t)(n * dm)));
        for (int k = 0; k < 3; k++) free(out[k]);
        free(w_in); free(b_in); free(w_o); free(b_o); free(x);
    }
}

/* ---- steps -------------------------------------------------------------------------------------------------- */

static void cache_make(attn_kv *c, const layer *l, int batch, int capacity)
{
    attn_kv_args s = {0};
    s.batch = batch;
    s.kv_heads = l->a.kv_heads;
    s.head_dim = l->a.head_dim;
    s.capacity = capacity;
    CHECK(attn_kv_init(c, &s) == ATTN_OK);
}

/* A batch whose entries grow by different numbers of rows, in random pieces: each row as in one causal call over its
   sentence. */
static void self_steps(void)
{
    enum { BATCH = 3 };
    rng seeds = rng_make(test_seed + 6);
    for (int i = 0; i < 25 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n = rng_int(&r, 0, 2) ? rng_int(&r, 1, 30) : rng_int(&r, 100, 180), window = rng_int(&r, 0, 1) * 9;
        float *x[BATCH], *whole[BATCH], *steps[BATCH];
        int at[BATCH] = {0, 0, 0};
        layer l;
        attn_kv c;
        attn_exec exec = test_exec(rng_int(&r, 1, 3));
        layer_make(&l, &r, rng_int(&r, 0, 1) ? WITH_ROPE : 0);
        cache_make(&c, &l, BATCH, n);
        for (int b = 0; b < BATCH; b++) {
            attn_mha_opts o;
            memset(&o, 0, sizeof o);
            o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
            o.attn.window_left = window;
            x[b] = normal(&r, (size_t)(n * l.a.d_model), 1.0);
            whole[b] = floats((size_t)(n * l.a.d_model));
            steps[b] = floats((size_t)(n * l.a.d_model));
            CHECK(attn_mha_self(&l.m, whole[b], x[b], 1, n, &o) == ATTN_OK);
        }
        while (at[0] < n || at[1] < n || at[2] < n) {
            const int rows = rng_int(&r, 0, 2) ? 1 : rng_int(&r, 1, 40), d = l.a.d_model;
            float *in = guard_floats((size_t)(BATCH * rows * d)), *out = guard_floats((size_t)(BATCH * rows * d));
            int counts[BATCH], cum[BATCH + 1] = {0};
            attn_mha_opts o;
            size_t need;
            memset(&o, 0, sizeof o);
            for (int b = 0; b < BATCH; b++) { /* rows of padding are NaN, and stay without effect */
                counts[b] = rng_int(&r, 0, rows);
                if (counts[b] > n - at[b]) counts[b] = n - at[b];
                for (int y = 0; y < rows * d; y++) in[b * rows * d + y] = NAN;
                memcpy(in + b * rows * d, x[b] + at[b] * d, (size_t)(counts[b] * d) * sizeof(float));
            }
            if (rng_int(&r, 0, 2) == 0) {                                  /* one behind the other instead of padded */
                o.attn.q_cum = cum;
                for (int b = 0; b < BATCH; b++) {
                    cum[b + 1] = cum[b] + counts[b];
                    memcpy(in + cum[b] * d, x[b] + at[b] * d, (size_t)(counts[b] * d) * sizeof(float));
                }
            } else {
                o.attn.q_lengths = counts;
            }
            o.attn.window_left = window;
            if (exec.width > 1) o.attn.exec = &exec;
            o.attn.kv = &c;
            need = attn_mha_workspace(&l.m, BATCH, rows, 0, &o);
            if (rng_int(&r, 0, 1)) o.attn.kv = NULL; /* the cache may stand in the options, or not */
            o.attn.work = guard_alloc(need);
            o.attn.work_size = need;
            CHECK(attn_mha_self_step(&l.m, out, in, BATCH, o.attn.q_cum && rng_int(&r, 0, 1) ? 0 : rows, &c, &o) ==
                  ATTN_OK);
            for (int b = 0; b < BATCH; b++) {
                const float *mine = out + (o.attn.q_cum ? cum[b] : b * rows) * d;
                memcpy(steps[b] + at[b] * d, mine, (size_t)(counts[b] * d) * sizeof(float));
                for (int y = counts[b] * d; y < rows * d && o.attn.q_lengths; y++)
                    CHECKF(float_bits(mine[y]) == 0, "seed %llu: a row of padding is not zero", seed);
                at[b] += counts[b];
                CHECK(c.lengths[b] == at[b]);
            }
            guard_free(o.attn.work);
            guard_free(in);
            guard_free(out);
        }
        for (int b = 0; b < BATCH; b++) {
            CHECKF(same_bits(whole[b], steps[b], (size_t)(n * l.a.d_model)),
                   "seed %llu: entry %d of %d rows differs from prefill", seed, b, n);
            free(x[b]); free(whole[b]); free(steps[b]);
        }
        attn_kv_free(&c);
        layer_free(&l);
    }
}

/* Memory projected once and kept, against projecting it in every call; also shared by several queries through k_map. */
static void cross_steps(void)
{
    rng seeds = rng_make(test_seed + 7);
    for (int i = 0; i < 200 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int sources = rng_int(&r, 1, 3), shared = rng_int(&r, 0, 1), batch = shared ? rng_int(&r, 1, 4) : sources;
        const int n_q = rng_int(&r, 1, 6), n_k = rng_int(&r, 0, 2) ? rng_int(&r, 1, 30) : rng_int(&r, 100, 200);
        int lengths[4], map[4], mine[4];
        float *memory, *memory_v, *x, *want, *got;
        size_t n_out;
        layer l;
        attn_kv c;
        attn_mha_opts o, fill;
        attn_exec exec = test_exec(3);
        layer_make(&l, &r, CROSSING);
        cache_make(&c, &l, sources, n_k);
        n_out = (size_t)(batch * n_q * l.a.d_model);
        for (int b = 0; b < 4; b++) {
            lengths[b] = rng_int(&r, 0, n_k);
            map[b] = shared ? rng_int(&r, 0, sources - 1) : b;
        }
        for (int b = 0; b < 4; b++) mine[b] = lengths[map[b]];
        memory = normal(&r, (size_t)(sources * n_k * l.a.d_key), 1.0);
        memory_v = normal(&r, (size_t)(sources * n_k * l.a.d_value), 1.0);
        for (int b = 0; b < sources; b++)                                  /* what is behind the end is not there */
            for (int y = lengths[b] * l.a.d_key; y < n_k * l.a.d_key; y++) memory[b * n_k * l.a.d_key + y] = NAN;
        x = normal(&r, n_out, 1.0);
        want = floats(n_out);
        got = guard_floats(n_out);
        memset(&o, 0, sizeof o);
        memset(&fill, 0, sizeof fill);
        o.memory_v = fill.memory_v = memory_v;
        o.attn.k_lengths = mine;
        if (shared) { o.attn.k_map = map; o.attn.k_batch = sources; }
        CHECK(attn_mha_cross(&l.m, want, x, batch, n_q, memory, n_k, &o) == ATTN_OK);
        fill.attn.exec = rng_int(&r, 0, 1) ? &exec : NULL;
        for (int again = 0; again < 2; again++) {                          /* a second sentence replaces the first */
            const size_t need = attn_mha_workspace(&l.m, sources, 0, n_k, &fill);
            fill.attn.work = guard_alloc(need);
            fill.attn.work_size = need;
            CHECK(attn_mha_cross_fill(&l.m, &c, memory, sources, n_k, lengths, &fill) == ATTN_OK);
            guard_free(fill.attn.work);
            fill.attn.work = NULL;
        }
        o.attn.k_lengths = NULL;
        o.attn.k_batch = 0;
        o.attn.exec = rng_int(&r, 0, 1) ? &exec : NULL;
        CHECK(attn_mha_cross_step(&l.m, got, x, batch, n_q, &c, &o) == ATTN_OK);
        CHECKF(same_bits(got, want, n_out), "seed %llu: filled once differs from projected again (batch %d of %d)",
               seed, batch, sources);
        for (int b = 0; b < batch; b++)                                    /* and row by row */
            for (int row = 0; row < n_q; row++) {
                attn_mha_opts one;
                memset(&one, 0, sizeof one);
                one.attn.k_map = map + b;
                CHECK(attn_mha_cross_step(&l.m, got, x + (b * n_q + row) * l.a.d_model, 1, 1, &c, &one) == ATTN_OK);
                CHECKF(same_bits(got, want + (b * n_q + row) * l.a.d_model, (size_t)l.a.d_model),
                       "seed %llu: row %d alone", seed, row);
            }
        attn_kv_free(&c);
        layer_free(&l);
        free(memory); free(memory_v); free(x); free(want); guard_free(got);
    }
}

/* ---- company ------------------------------------------------------------------------------------------------ */

/* Sentences of different lengths: alone, padded right, padded left, and one behind the other. The same bits. */
static void padded_batches(void)
{
    enum { BATCH = 4 };
    rng seeds = rng_make(test_seed + 8);
    for (int i = 0; i < 25 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n = rng_int(&r, 0, 2) ? rng_int(&r, 1, 25) : rng_int(&r, 129, 160), causal = rng_int(&r, 0, 1);
        int lengths[BATCH], starts[BATCH], cum[BATCH + 1] = {0};
        float *x[BATCH], *want[BATCH], *right, *left, *ragged, *out;
        layer l;
        int d;
        attn_mha_opts o;
        layer_make(&l, &r, rng_int(&r, 0, 1) ? WITH_ROPE : 0);
        d = l.a.d_model;
        memset(&o, 0, sizeof o);
        o.attn.causal = causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
        right = floats((size_t)(BATCH * n * d));
        left = floats((size_t)(BATCH * n * d));
        ragged = floats((size_t)(BATCH * n * d));
        out = floats((size_t)(BATCH * n * d));
        for (int y = 0; y < BATCH * n * d; y++) left[y] = right[y] = NAN;
        for (int b = 0; b < BATCH; b++) {
            lengths[b] = rng_int(&r, 0, n);
            starts[b] = n - lengths[b];
            cum[b + 1] = cum[b] + lengths[b];
            x[b] = normal(&r, (size_t)(lengths[b] * d), 1.0);
            want[b] = floats((size_t)(lengths[b] * d));
            CHECK(attn_mha_self(&l.m, want[b], x[b], 1, lengths[b], &o) == ATTN_OK);
            memcpy(right + b * n * d, x[b], (size_t)(lengths[b] * d) * sizeof(float));
            memcpy(left + (b * n + starts[b]) * d, x[b], (size_t)(lengths[b] * d) * sizeof(float));
            memcpy(ragged + cum[b] * d, x[b], (size_t)(lengths[b] * d) * sizeof(float));
        }
        o.attn.k_lengths = o.attn.q_lengths = lengths;
        CHECK(attn_mha_self(&l.m, out, right, BATCH, n, &o) == ATTN_OK);
        for (int b = 0; b < BATCH; b++) {
            CHECKF(same_bits(out + b * n * d, want[b], (size_t)(lengths[b] * d)), "seed %llu: entry %d padded right",
                   seed, b);
            for (int y = lengths[b] * d; y < n * d; y++) CHECK(float_bits(out[b * n * d + y]) == 0);
        }
        o.attn.q_lengths = NULL;
        o.attn.k_lengths = lengths;
        o.attn.k_starts = starts;
        CHECK(attn_mha_self(&l.m, out, left, BATCH, n, &o) == ATTN_OK);
        for (int b = 0; b < BATCH; b++)
            CHECKF(same_bits(out + (b * n + starts[b]) * d, want[b], (size_t)(lengths[b] * d)),
                   "seed %llu: entry %d padded left", seed, b);
        o.attn.k_lengths = o.attn.k_starts = NULL;
        o.attn.q_cum = cum;
        CHECK(attn_mha_self(&l.m, out, ragged, BATCH, rng_int(&r, 0, 1) ? n : 0, &o) == ATTN_OK);
        for (int b = 0; b < BATCH; b++)
            CHECKF(same_bits(out + cum[b] * d, want[b], (size_t)(lengths[b] * d)),
                   "seed %llu: entry %d of a ragged batch", seed, b);
        for (int b = 0; b < BATCH; b++) { free(x[b]); free(want[b]); }
        free(right); free(left); free(ragged); free(out);
        layer_free(&l);
    }
}

/* Cross-attention, rows and memory ragged or padded in every combination, over memory or a filled cache, in a layer
   whose values may have a source of their own: each sentence gets the bits it gets alone. More memories than sentences
   are legal without a k_map; the last ones have no reader. */
static void ragged_memories(void)
{
    enum { BATCH = 3 };
    rng seeds = rng_make(test_seed + 18);
    for (int i = 0; i < 25 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n_q = rng_int(&r, 1, 30), n_k = rng_int(&r, 0, 2) ? rng_int(&r, 1, 40) : rng_int(&r, 129, 150);
        int rows[BATCH], keys[BATCH + 1] = {0}, q_cum[BATCH + 1] = {0}, k_cum[BATCH + 1] = {0}, d, dk, dv;
        float *x, *memory, *memory_v, *want, *out, *x_rows, *k_rows, *v_rows;
        attn_kv_args s = {0};
        attn_kv c;
        layer l;
        attn_mha_opts o;
        layer_make(&l, &r, CROSSING);
        d = l.a.d_model;
        dk = l.a.d_key;
        dv = l.a.d_value;
        x = normal(&r, (size_t)(BATCH * n_q * d), 1.0);                       /* padded: [BATCH][n_q][d] */
        memory = normal(&r, (size_t)((BATCH + 1) * n_k * dk), 1.0);
        memory_v = normal(&r, (size_t)((BATCH + 1) * n_k * dv), 1.0);
        x_rows = floats((size_t)(BATCH * n_q * d));                           /* ragged: [q_cum[BATCH]][d] */
        k_rows = floats((size_t)(BATCH * n_k * dk));
        v_rows = floats((size_t)(BATCH * n_k * dv));
        want = floats((size_t)(BATCH * n_q * d));
        out = floats((size_t)(BATCH * n_q * d));
        for (int b = 0; b < BATCH; b++) {
            rows[b] = rng_int(&r, 0, n_q);
            keys[b] = rng_int(&r, 0, n_k);
            q_cum[b + 1] = q_cum[b] + rows[b];
            k_cum[b + 1] = k_cum[b] + keys[b];
            memcpy(x_rows + q_cum[b] * d, x + b * n_q * d, (size_t)(rows[b] * d) * sizeof(float));
            memcpy(k_rows + k_cum[b] * dk, memory + b * n_k * dk, (size_t)(keys[b] * dk) * sizeof(float));
            memcpy(v_rows + k_cum[b] * dv, memory_v + b * n_k * dv, (size_t)(keys[b] * dv) * sizeof(float));
            memset(&o, 0, sizeof o);
            o.memory_v = memory_v + b * n_k * dv;
            CHECK(attn_mha_cross(&l.m, want + q_cum[b] * d, x_rows + q_cum[b] * d, 1, rows[b], memory + b * n_k * dk,
                                 keys[b], &o) == ATTN_OK);
        }
        s.batch = BATCH;
        s.kv_heads = l.a.kv_heads;
        s.head_dim = l.a.head_dim;
        s.capacity = n_k;
        CHECK(attn_kv_init(&c, &s) == ATTN_OK);
        memset(&o, 0, sizeof o);
        o.memory_v = memory_v;
        CHECK(attn_mha_cross_fill(&l.m, &c, memory, BATCH, n_k, keys, &o) == ATTN_OK);
        for (int how = 0; how < 10; how++) {              /* memory: padded, ragged, one more, a cache, with k_batch */
            const int q_ragged = how & 1, memories = how / 2, given = rng_int(&r, 0, 1);
            attn_status status;
            memset(&o, 0, sizeof o);
            memset(out, 0x77, (size_t)(BATCH * n_q * d) * sizeof(float));
            o.memory_v = memories == 1 ? v_rows : memory_v;
            if (q_ragged) o.attn.q_cum = q_cum;
            else o.attn.q_lengths = rows;
            if (memories == 1) o.attn.k_cum = k_cum;
            else if (memories < 3) o.attn.k_lengths = keys;
            if (memories == 2) o.attn.k_batch = BATCH + 1;
            if (memories == 4) o.attn.k_batch = BATCH;
            if (memories < 3)
                status = attn_mha_cross(&l.m, out, q_ragged ? x_rows : x, BATCH, q_ragged && !given ? 0 : n_q,
                                        memories == 1 ? k_rows : memory, memories == 1 && !given ? 0 : n_k, &o);
            else
                status = attn_mha_cross_step(&l.m, out, q_ragged ? x_rows : x, BATCH, q_ragged && !given ? 0 : n_q, &c,
                                             &o);
            CHECKF(status == ATTN_OK, "seed %llu, way %d: %s", seed, how, attn_status_str(status));
            for (int b = 0; b < BATCH; b++) {
                const float *mine = out + (q_ragged ? q_cum[b] : b * n_q) * d;
                CHECKF(same_bits(mine, want + q_cum[b] * d, (size_t)(rows[b] * d)), "seed %llu, way %d: entry %d", seed,
                       how, b);
                for (int y = rows[b] * d; !q_ragged && y < n_q * d; y++)
                    CHECKF(float_bits(mine[y]) == 0, "seed %llu, way %d: padding of entry %d", seed, how, b);
            }
            if (q_ragged)
                CHECKF(untouched(out + q_cum[BATCH] * d, (size_t)((BATCH * n_q - q_cum[BATCH]) * d) * sizeof(float)),
                       "seed %llu, way %d: wrote behind the last row", seed, how);
        }
        CHECK(attn_mha_cross_fill(&l.m, &c, NULL, BATCH, 0, NULL, NULL) == ATTN_OK);      /* every row is empty now */
        for (int b = 0; b < BATCH; b++) CHECK(c.lengths[b] == 0);
        memset(&o, 0, sizeof o);
        CHECK(attn_mha_cross_step(&l.m, out, x, BATCH, 1, &c, &o) == ATTN_OK);
        for (int y = 0; y < BATCH * d; y++)
            CHECK(float_bits(out[y]) == (l.b[3] ? float_bits(l.b[3][y % d] + 0.0f) : 0));
        attn_kv_free(&c);
        free(x); free(memory); free(memory_v); free(x_rows); free(k_rows); free(v_rows); free(want); free(out);
        layer_free(&l);
    }
}

/* ---- gates and means ---------------------------------------------------------------------------------------- */
static void gates(void)
{
    rng r = rng_make(test_seed + 9);
    for (int i = 0; i < 40 && !test_failed(); i++) {
        const int n = rng_int(&r, 1, 120), per_head = rng_int(&r, 0, 1), sigmoid = rng_int(&r, 0, 1);
        const double bound = 8 * U; /* of tanh and exp of the header: a few ulp */
        float *x, *plain, *gated, gate[16];
        layer l;
        attn_mha_opts o;
        memset(&o, 0, sizeof o);
        layer_make(&l, &r, 0);
        if (per_head && l.a.heads == 1) { layer_free(&l); continue; }
        x = normal(&r, (size_t)(n * l.a.d_model), 1.0);
        plain = floats((size_t)(n * l.a.d_model));
        gated = floats((size_t)(n * l.a.d_model));
        rng_fill(&r, gate, 16);
        if (i % 5 == 0) gate[0] = 0.0f;
        if (i % 7 == 0) gate[0] = 30.0f;
        for (int h = 1; h < 16 && i % 2; h++) gate[h] = gate[0]; /* equal gates per head: as one before w_o */
        CHECK(attn_mha_self(&l.m, plain, x, 1, n, &o) == ATTN_OK);
        o.gate = gate;
        o.gate_n = per_head ? l.a.heads : 1;
        o.gate_sigmoid = sigmoid;
        CHECK(attn_mha_self(&l.m, gated, x, 1, n, &o) == ATTN_OK);
        if (!per_head) {
            const double g = sigmoid ? 1.0 / (1.0 + exp(-(double)gate[0])) : tanh((double)gate[0]);
            for (int y = 0; y < n * l.a.d_model; y++)
                CHECK(fabs(gated[y] - g * plain[y]) <= bound * fabs((double)plain[y]) + 1e-44);
            if (gate[0] == 0.0f && !sigmoid) for (int y = 0; y < n * l.a.d_model; y++) CHECK(gated[y] == 0.0f);
        } else if (i % 2) {                                                 /* (g h) W^T + b = g (h W^T) + b */
            const double g = sigmoid ? 1.0 / (1.0 + exp(-(double)gate[0])) : tanh((double)gate[0]);
            for (int y = 0; y < n * l.a.d_model; y++) {
                const double b = l.b[3] ? l.b[3][y % l.a.d_model] : 0.0;
                CHECK(fabs(gated[y] - (g * (plain[y] - b) + b)) <= 3e-6 * (1.0 + fabs(b)));
            }
        }
        free(x); free(plain); free(gated);
        layer_free(&l);
    }
}

/* each head has its own gate: with one of them open only, the others might as well have no weights in w_o */
static void gate_per_head(void)
{
    enum { HEADS = 3, D = 4, DM = HEADS * D, N = 5 };
    rng r = rng_make(test_seed + 10);
    float *w = normal(&r, 3 * DM * DM, 0.3), *w_o = normal(&r, DM * DM, 0.3), *x = normal(&r, N * DM, 1.0);
    for (int open = 0; open < HEADS; open++) {
        float gate[HEADS] = {0, 0, 0}, cut[DM * DM], want[N * DM], got[N * DM];
        attn_mha_args a = {0};
        attn_mha whole, only;
        attn_mha_opts o;
        memset(&o, 0, sizeof o);
        gate[open] = 40.0f;                                                 /* tanh is 1 exactly */
        memcpy(cut, w_o, sizeof cut);
        for (int y = 0; y < DM * DM; y++) if (y % DM / D != open) cut[y] = 0.0f;
        a.d_model = DM;
        a.heads = HEADS;
        a.w_in = w;
        a.w_o = w_o;
        CHECK(attn_mha_init(&whole, &a, NULL, 0) == ATTN_OK);
        a.w_o = cut;
        CHECK(attn_mha_init(&only, &a, NULL, 0) == ATTN_OK);
        CHECK(attn_mha_self(&only, want, x, 1, N, NULL) == ATTN_OK);
        o.gate = gate;
        o.gate_n = HEADS;
        CHECK(attn_mha_self(&whole, got, x, 1, N, &o) == ATTN_OK);
        CHECKF(same_bits(got, want, N * DM), "gate of head %d", open);
        attn_mha_free(&whole);
        attn_mha_free(&only);
    }
    free(w); free(w_o); free(x);
}

static void means(void)
{
    rng r = rng_make(test_seed + 11);
    for (int i = 0; i < 20 && !test_failed(); i++) {
        const int batch = rng_int(&r, 1, 3), n = rng_int(&r, 1, 20), stage = rng_int(&r, 0, 3);
        const size_t cells = (size_t)(batch * n * n);
        float *x, *out, *every, *mean;
        layer l;
        attn_mha_opts o;
        size_t need;
        memset(&o, 0, sizeof o);
        layer_make(&l, &r, 0);
        x = normal(&r, (size_t)(batch * n * l.a.d_model), 1.0);
        out = floats((size_t)(batch * n * l.a.d_model));
        every = floats(cells * (size_t)l.a.heads);
        mean = guard_floats(cells);
        o.attn.causal = rng_int(&r, 0, 1);
        o.attn.weights_stage = stage;
        o.attn.weights = every;
        CHECK(attn_mha_self(&l.m, out, x, batch, n, &o) == ATTN_OK);
        o.attn.weights = mean;
        o.weights_mean = 1;
        need = attn_mha_workspace(&l.m, batch, n, n, &o);
        o.attn.work = guard_alloc(need);
        o.attn.work_size = need;
        CHECK(attn_mha_self(&l.m, out, x, batch, n, &o) == ATTN_OK);
        for (int b = 0; b < batch; b++)
            for (int y = 0; y < n * n; y++) {
                volatile float sum = every[(size_t)(b * l.a.heads * n * n + y)];
                float want, got = mean[b * n * n + y];
                for (int h = 1; h < l.a.heads; h++) sum += every[(size_t)((b * l.a.heads + h) * n * n + y)];
                want = sum / (float)l.a.heads + 0.0f;
                CHECKF(same_bits(&want, &got, 1), "batch %d cell %d: %g, not %g", b, y, (double)got, (double)want);
            }
        guard_free(o.attn.work);
        free(x); free(out); free(every); guard_free(mean);
        layer_free(&l);
    }
}

/* ---- what must not matter, and what must not be missing ----------------------------------------------------- */

/* all backends that keep the one answer, all widths; the others have an answer of their own, at every width */
static void backends_and_threads(void)
{
    rng r = rng_make(test_seed + 12);
    attn_backend one[16], backends[16];
    int n_one = test_one_answer_backends(one, 16), n_backends = test_all_backends(backends, 16);
    for (int i = 0; i < 12 && !test_failed(); i++) {
        const int batch = rng_int(&r, 1, 2), n = i % 3 ? rng_int(&r, 1, 40) : rng_int(&r, 97, 150);
        float *x, *want, *got;
        layer l;
        attn_mha_opts o;
        float gate = 0.7f;
        memset(&o, 0, sizeof o);
        layer_make(&l, &r, WITH_ROPE);
        x = normal(&r, (size_t)(batch * n * l.a.d_model), 1.0);
        x[rng_int(&r, 0, batch * n * l.a.d_model - 1)] = NAN; /* one NaN must be the same NaN everywhere */
        want = floats((size_t)(batch * n * l.a.d_model));
        got = floats((size_t)(batch * n * l.a.d_model));
        o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
        o.gate = &gate;
        o.gate_n = 1;
        for (int b = 0; b < n_backends; b++) {
            int own = backends[b];                            /* whose answer it must be */
            for (int j = 0; j < n_one; j++) if (one[j] == backends[b]) own = one[0];
            o.attn.exec = NULL;
            o.attn.backend = own;
            CHECK(attn_mha_self(&l.m, want, x, batch, n, &o) == ATTN_OK);
            for (int width = 1; width <= 4; width += 1 + (width == 2)) {
                attn_exec exec = test_exec(width);
                o.attn.exec = &exec;
                o.attn.backend = backends[b];
                memset(got, 0x77, (size_t)(batch * n * l.a.d_model) * sizeof(float));
                CHECK(attn_mha_self(&l.m, got, x, batch, n, &o) == ATTN_OK);
                CHECKF(same_bits(got, want, (size_t)(batch * n * l.a.d_model)), "%s, width %d differs from %s",
                       attn_backend_name(backends[b]), width, attn_backend_name(own));
            }
        }
        free(x); free(want); free(got);
        layer_free(&l);
    }
}

static void workspace_grows(void)
{
    rng r = rng_make(test_seed + 13);
    for (int i = 0; i < 300; i++) {
        layer l;
        attn_mha_opts o;
        attn_exec exec = test_exec(rng_int(&r, 1, 4));
        float weights;
        const int b = rng_int(&r, 0, 4), q = rng_int(&r, 0, 100), k = rng_int(&r, 0, 300);
        memset(&o, 0, sizeof o);
        layer_make(&l, &r, CROSSING);
        if (exec.width > 1) o.attn.exec = &exec;
        if (rng_int(&r, 0, 1)) o.attn.weights = &weights;
        o.weights_mean = rng_int(&r, 0, 1);
        {
            const size_t small = attn_mha_workspace(&l.m, b, q, k, &o);
            const size_t large =
                attn_mha_workspace(&l.m, b + rng_int(&r, 0, 2), q + rng_int(&r, 0, 40), k + rng_int(&r, 0, 200), &o);
            CHECKF(small <= large && large != (size_t)-1, "%zu, then %zu", small, large);
        }
        CHECK(attn_mha_workspace(&l.m, -1, q, k, &o) == (size_t)-1);
        CHECK(attn_mha_workspace(&l.m, 1 << 30, 1 << 30, k, &o) == (size_t)-1);
        layer_free(&l);
    }
    CHECK(attn_mha_workspace(NULL, 1, 1, 1, NULL) == (size_t)-1);
}

/* ---- refusals ----------------------------------------------------------------------------------------------- */
static void wrong_layers(void)
{
    float w[64] = {0};
    attn_mha_args good = {0}, a;
    attn_mha m;
    char why[200];
    good.d_model = 8;
    good.heads = 2;
    good.w_q = good.w_k = good.w_v = good.w_o = w;
#define REFUSES(change, status, word)                                                                                  \
    do {                                                                                                               \
        a = good;                                                                                                      \
        change;                                                                                                        \
        memset(&m, 0x55, sizeof m);                                                                                    \
        CHECKF(attn_mha_init(&m, &a, why, sizeof why) == (status), "%s: %s", #change, why);                            \
        CHECKF(strstr(why, word) != NULL, "%s does not speak of %s: %s", #change, word, why);                          \
        CHECKF(attn_mha_self(&m, w, w, 1, 1, NULL) == ATTN_E_NULL, "usable after an error");                           \
        if ((status) != ATTN_E_NULL && (status) != ATTN_E_CONFLICT && (status) != ATTN_E_WORK)                         \
            CHECKF(attn_mha_size(&a) == (size_t)-1, "%s: it has a size", #change);                                     \
        attn_mha_free(&m);                                                                                             \
    } while (0)
    REFUSES(a.d_model = 9, ATTN_E_HEADS, "d_model is 9 but heads is 2");
    REFUSES(a.d_model = 0, ATTN_E_SIZE, "d_model");
    REFUSES(a.heads = 0, ATTN_E_SIZE, "heads");
    REFUSES(a.heads = 4; a.kv_heads = 3, ATTN_E_HEADS, "kv_heads is 3");
    REFUSES(a.kv_heads = -1, ATTN_E_SIZE, "kv_heads");
    REFUSES(a.head_dim = -1, ATTN_E_SIZE, "head_dim");
    REFUSES(a.d_key = -1, ATTN_E_SIZE, "d_key");
    REFUSES(a.d_value = -1, ATTN_E_SIZE, "d_value");
    REFUSES(a.w_q = NULL, ATTN_E_NULL, "w_q");
    REFUSES(a.w_k = NULL, ATTN_E_NULL, "w_k");
    REFUSES(a.w_v = NULL, ATTN_E_NULL, "w_v");
    REFUSES(a.w_o = NULL, ATTN_E_NULL, "w_o");
    REFUSES(a.w_in = w, ATTN_E_CONFLICT, "w_in and w_q");
    REFUSES(a.w_in = w; a.w_q = NULL, ATTN_E_CONFLICT, "w_in and w_k");
    REFUSES(a.w_in = w; a.w_q = a.w_k = NULL, ATTN_E_CONFLICT, "w_in and w_v");
    REFUSES(a.b_in = w; a.b_q = w, ATTN_E_CONFLICT, "b_in and b_q");
    REFUSES(a.b_in = w; a.b_k = w, ATTN_E_CONFLICT, "b_in and b_k");
    REFUSES(a.b_in = w; a.b_v = w, ATTN_E_CONFLICT, "b_in and b_v");
    REFUSES(a.w_in = w; a.w_q = a.w_k = a.w_v = NULL; a.d_key = 4, ATTN_E_CONFLICT, "d_key is 4");
    REFUSES(a.w_in = w; a.w_q = a.w_k = a.w_v = NULL; a.d_key = 8; a.d_value = 4, ATTN_E_CONFLICT, "d_value is 4");
    REFUSES(a.head_dim = 3; a.rope_table = w; a.rope_positions = 4, ATTN_E_SIZE, "head_dim is 3");
    REFUSES(a.rope_table = w, ATTN_E_SIZE, "rope_positions");
    REFUSES(a.mem = w; a.mem_size = sizeof w, ATTN_E_WORK, "mem_size is 256");
    REFUSES(a.d_model = 1 << 30; a.heads = 1 << 15, ATTN_E_OVERFLOW, "too large");
    REFUSES(a.heads = 1 << 16; a.head_dim = 1 << 16, ATTN_E_OVERFLOW, "heads 65536 times head_dim 65536");
    /* each of the four fits, the sum does not */
    REFUSES(a.d_model = (1 << (sizeof(size_t) < 8 ? 14 : 30)) - 1; a.heads = 1;
            a.head_dim = 1 << (sizeof(size_t) < 8 ? 14 : 29), ATTN_E_OVERFLOW, "too large");
#undef REFUSES
    CHECK(attn_mha_init(NULL, &good, why, sizeof why) == ATTN_E_NULL && strstr(why, "NULL"));
    CHECK(attn_mha_init(&m, NULL, why, sizeof why) == ATTN_E_NULL && strstr(why, "NULL"));
    CHECK(attn_mha_init(&m, NULL, NULL, 0) == ATTN_E_NULL);
    CHECK(attn_mha_size(NULL) == (size_t)-1);
    attn_mha_free(NULL);
}

static void wrong_calls(void)
{
    enum { B = 2, N = 3, DM = 8 };
    rng r = rng_make(test_seed + 14);
    float *w = normal(&r, 4 * DM * DM, 0.5), x[B * N * DM], copy[B * N * DM], table[4 * 4], out[B * N * DM],
          gate[2] = {1, 1}, weights[B * 2 * N * N];
    attn_mha_args a = {0};
    attn_mha m, turning, wide, value_wide, zero;
    attn_kv c, other, small, empty, grouped, narrow;
    attn_kv_args s = {0};
    attn_mha_opts o;
    attn_exec none = {0};
    char work[16];
    size_t masked;
    unsigned char *before;
    const int over[B] = {1, 4}, cum[B + 1] = {0, 1, 3}, bad_cum[B + 1] = {1, 2, 3}, fall[B + 1] = {0, 2, 1},
              map[B] = {0, 1}, ones[B] = {1, 1},
              under[B] = {0, -1};
    size_t cache_bytes;
    rng_fill(&r, x, B * N * DM);
    memcpy(copy, x, sizeof x);
    memset(&zero, 0, sizeof zero);
    memset(&empty, 0, sizeof empty);
    a.d_model = DM;
    a.heads = 2;
    a.w_q = a.w_k = a.w_v = a.w_o = w;
    CHECK(attn_mha_init(&m, &a, NULL, 0) == ATTN_OK);
    CHECK(attn_rope_table(table, 4, 4, NULL, 0.0) == ATTN_OK);
    a.rope_table = table;
    a.rope_positions = 4;
    CHECK(attn_mha_init(&turning, &a, NULL, 0) == ATTN_OK);
    a.rope_table = NULL;
    a.d_key = 12;
    a.d_value = 16;
    CHECK(attn_mha_init(&wide, &a, NULL, 0) == ATTN_OK);
    a.d_key = DM;
    CHECK(attn_mha_init(&value_wide, &a, NULL, 0) == ATTN_OK);
    s.batch = B;
    s.kv_heads = 2;
    s.head_dim = 4;
    s.capacity = 5;
    cache_bytes = attn_kv_size(&s);
    s.mem = guard_alloc(cache_bytes);
    s.mem_size = cache_bytes;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    s.mem = NULL;
    s.head_dim = 3;
    CHECK(attn_kv_init(&other, &s) == ATTN_OK);
    s.head_dim = 4;
    s.capacity = 2;
    CHECK(attn_kv_init(&small, &s) == ATTN_OK);
    s.kv_heads = 1;
    CHECK(attn_kv_init(&grouped, &s) == ATTN_OK);
    s.kv_heads = 2;
    s.v_head_dim = 3;
    CHECK(attn_kv_init(&narrow, &s) == ATTN_OK);
    memset(&o, 0, sizeof o);
    CHECK(attn_mha_self_step(&m, out, x, B, N, &c, NULL) == ATTN_OK);
    before = malloc(cache_bytes);
    if (!before) abort();
    memcpy(before, c.shape.mem, cache_bytes);
    memset(out, 0x77, sizeof out);
    memset(weights, 0x77, sizeof weights);
#define REFUSES(call, status) do { const attn_status got = (call); \
        CHECKF(got == (status), "%s says %s", #call, attn_status_str(got)); \
        CHECKF(untouched(out, sizeof out) && untouched(weights, sizeof weights), "%s wrote", #call); \
        CHECKF(!memcmp(before, c.shape.mem, cache_bytes), "%s changed the cache", #call); \
        memset(&o, 0, sizeof o); } while (0)
    REFUSES(attn_mha_self(NULL, out, x, B, N, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_self(&zero, out, x, B, N, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_self(&m, NULL, x, B, N, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_self(&m, out, NULL, B, N, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_self(&m, out, x, -1, N, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_self(&m, out, x, B, -1, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_self(&m, out, x, 1 << 20, 1 << 20, NULL), ATTN_E_OVERFLOW);
    REFUSES(attn_mha_self(&m, out, out, B, N, NULL), ATTN_E_OVERLAP);
    REFUSES(attn_mha_self(&wide, out, x, B, N, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_self(&turning, out, x, 1, 5, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_self(&m, NULL, NULL, 0, N, NULL), ATTN_OK);
    REFUSES(attn_mha_self(&m, NULL, NULL, B, 0, NULL), ATTN_OK);
    REFUSES((o.attn.q_cum = cum, attn_mha_self(&m, NULL, NULL, 0, N, &o)), ATTN_OK);
    REFUSES((o.attn.k = x, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.v = x, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.batch = B, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.n_q = N, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.kv_heads = 2, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.head_dim = 4, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.v_head_dim = 4, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    for (int i = 0; i < 3; i++) {
        REFUSES((o.attn.q_stride[i] = 8, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
        REFUSES((o.attn.v_stride[i] = 8, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
        REFUSES((o.attn.out_stride[i] = 8, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    }
    REFUSES((o.attn.k_batch = B, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES(attn_mha_self(&value_wide, out, x, B, N, NULL), ATTN_E_SIZE);
    REFUSES((o.attn.q = x, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.out = x, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.n_k = N, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.heads = 2, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.layout = ATTN_BHSD, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.k_stride[1] = 8, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.kv = &c, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.k_map = map, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.k_cum = cum, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.memory_v = x, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.q_cum = bad_cum, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_LENGTHS);
    REFUSES((o.attn.q_cum = fall, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_LENGTHS);
    REFUSES((o.attn.q_cum = cum, attn_mha_self(&m, out, x, B, 1, &o)), ATTN_E_SIZE);
    REFUSES((o.attn.q_lengths = over, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_LENGTHS);
    REFUSES((o.attn.k_lengths = over, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_LENGTHS);
    REFUSES((o.attn.causal = 7, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_OPTION);
    REFUSES((o.attn.softcap = -1.0f, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_OPTION);
    REFUSES((o.attn.backend = 99, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_OPTION);
    REFUSES((o.attn.exec = &none, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_NULL);
    REFUSES((o.gate = gate, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_OPTION);
    REFUSES((o.gate = gate, o.gate_n = 3, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_OPTION);
    REFUSES((o.gate = out, o.gate_n = 1, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_OVERLAP);
    REFUSES((o.attn.weights = x, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_OVERLAP);
    REFUSES((o.attn.weights = out, o.weights_mean = 1, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_OVERLAP);
    REFUSES((o.attn.work = work, o.attn.work_size = sizeof work, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_WORK);
    REFUSES((o.attn.mask = x, o.attn.mask_shape[0] = 5, attn_mha_self(&m, out, x, B, N, &o)), ATTN_E_SHAPE);
    REFUSES((o.attn.weights = weights, o.attn.mask = x, o.attn.mask_stride[2] = 1, attn_mha_self(&m, out, x, B, N, &o)),
            ATTN_E_STRIDE);

    REFUSES(attn_mha_cross(&m, out, x, B, N, NULL, N, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_cross(&wide, out, x, 1, 1, x, 1, NULL), ATTN_E_NULL); /* another width of values needs memory_v */
    REFUSES(attn_mha_cross(&turning, out, x, B, N, x, N, NULL), ATTN_E_CONFLICT);
    REFUSES(attn_mha_cross(&m, out, x, B, N, out, N, NULL), ATTN_E_OVERLAP);
    REFUSES(attn_mha_cross(&m, x + DM, x, 1, 1, x, N, NULL), ATTN_E_OVERLAP);      /* x is the memory, or part of it */
    REFUSES((o.memory_v = x + DM, attn_mha_cross(&value_wide, x + 2 * DM, x, 1, 1, x + DM, 1, &o)), ATTN_E_OVERLAP);
    CHECK(same_bits(x, copy, B * N * DM));
    REFUSES((o.attn.k_map = over, o.attn.k_batch = 2, attn_mha_cross(&m, out, x, B, N, x, N, &o)), ATTN_E_MAP);
    REFUSES((o.attn.k_cum = fall, attn_mha_cross(&m, out, x, B, N, x, N, &o)), ATTN_E_LENGTHS);
    REFUSES((o.attn.k_cum = bad_cum, attn_mha_cross(&m, out, x, B, N, x, N, &o)), ATTN_E_LENGTHS);
    REFUSES((o.attn.k_cum = cum, attn_mha_cross(&m, out, x, B, N, x, 1, &o)), ATTN_E_SIZE);
    REFUSES((o.attn.k_cum = o.attn.q_cum = cum, attn_mha_cross(&m, NULL, NULL, 0, 0, NULL, 0, &o)), ATTN_OK);
    REFUSES((o.attn.k_batch = 1, attn_mha_cross(&m, out, x, B, N, x, N, &o)), ATTN_E_SIZE);
    REFUSES((o.attn.k_batch = 1 << 20, attn_mha_cross(&m, out, x, B, N, x, 1 << 20, &o)), ATTN_E_OVERFLOW);

    REFUSES(attn_mha_self_step(&m, out, x, B, N, &c, NULL), ATTN_E_FULL);
    REFUSES(attn_mha_self_step(&m, out, x, B, N, NULL, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_self_step(&m, out, x, B, N, &empty, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_self_step(&m, out, x, 1, 1, &c, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_self_step(&m, out, x, B, 1, &other, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_self_step(&turning, out, x, B, 2, &c, NULL), ATTN_E_SIZE);   /* position 4 is not in the table */
    REFUSES(attn_mha_self_step(&m, NULL, x, B, 1, &c, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_self_step(&m, out, out, B, 1, &c, NULL), ATTN_E_OVERLAP);
    REFUSES((o.attn.causal = ATTN_CAUSAL_TOP_LEFT, attn_mha_self_step(&m, out, x, B, 1, &c, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.k_lengths = ones, attn_mha_self_step(&m, out, x, B, 1, &c, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.k_starts = ones, attn_mha_self_step(&m, out, x, B, 1, &c, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.kv = &other, attn_mha_self_step(&m, out, x, B, 1, &c, &o)), ATTN_E_CONFLICT);
    REFUSES((o.attn.q_lengths = over, attn_mha_self_step(&m, out, x, B, N, &c, &o)), ATTN_E_LENGTHS);
    REFUSES((o.attn.mask = x, o.attn.mask_shape[0] = B, o.attn.mask_shape[1] = o.attn.mask_shape[2] = 1,
             o.attn.mask_stride[0] = 3, attn_mha_self_step(&m, out, x, B, 1, &c, &o)),
            ATTN_E_STRIDE);
    REFUSES((o.attn.lse = (float *)(void *)&masked, o.attn.masked_rows = &masked,
             attn_mha_self_step(&m, out, x, B, 1, &c, &o)),
            ATTN_E_OVERLAP); /* only the attention inside can see this */
    REFUSES((o.attn.softcap = NAN, attn_mha_self_step(&m, out, x, B, 1, &c, &o)), ATTN_E_OPTION);
    REFUSES((o.attn.work = work, o.attn.work_size = sizeof work, attn_mha_self_step(&m, out, x, B, 1, &c, &o)),
            ATTN_E_WORK);

    REFUSES(attn_mha_cross_step(&m, out, x, B, 1, NULL, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_cross_step(&m, out, x, B, 1, &empty, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_cross_step(&m, out, x, B, 1, &other, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_cross_step(&m, out, x, 3, 1, &c, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_cross_step(&turning, out, x, B, 1, &c, NULL), ATTN_E_CONFLICT);
    REFUSES((o.attn.k_map = over, attn_mha_cross_step(&m, out, x, B, 1, &c, &o)), ATTN_E_MAP);
    REFUSES((o.attn.k_map = under, attn_mha_cross_step(&m, out, x, B, 1, &c, &o)), ATTN_E_MAP);
    REFUSES((o.attn.k_batch = B + 1, attn_mha_cross_step(&m, out, x, B, 1, &c, &o)), ATTN_E_SIZE);
    REFUSES((o.attn.k_lengths = over, attn_mha_cross_step(&m, out, x, B, 1, &c, &o)), ATTN_E_LENGTHS);
    REFUSES((o.attn.k_starts = ones, attn_mha_cross_step(&m, out, x, B, 1, &c, &o)), ATTN_E_CONFLICT);

    REFUSES(attn_mha_cross_fill(&m, NULL, x, B, N, NULL, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_cross_fill(&m, &empty, x, B, N, NULL, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_cross_fill(&m, &c, NULL, B, N, NULL, NULL), ATTN_E_NULL);
    REFUSES(attn_mha_cross_fill(&m, &c, x, 1, N, NULL, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_cross_fill(&m, &other, x, B, N, NULL, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_cross_fill(&m, &c, x, B, -1, NULL, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_cross_fill(&m, &small, x, B, N, NULL, NULL), ATTN_E_FULL);
    REFUSES(attn_mha_cross_fill(&m, &grouped, x, B, 1, NULL, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_cross_fill(&m, &narrow, x, B, 1, NULL, NULL), ATTN_E_SIZE);
    REFUSES(attn_mha_cross_fill(&m, &c, x, B, N, over, NULL), ATTN_E_LENGTHS);
    REFUSES(attn_mha_cross_fill(&m, &c, x, B, N, under, NULL), ATTN_E_LENGTHS);
    REFUSES(attn_mha_cross_fill(&turning, &c, x, B, N, NULL, NULL), ATTN_E_CONFLICT);
    REFUSES(attn_mha_cross_fill(&wide, &c, x, B, 1, NULL, NULL), ATTN_E_NULL);
    REFUSES((o.attn.work = work, o.attn.work_size = sizeof work, attn_mha_cross_fill(&m, &c, x, B, N, NULL, &o)),
            ATTN_E_WORK);
#undef REFUSES
    attn_mha_free(&m);
    attn_mha_free(&turning);
    attn_mha_free(&wide);
    attn_mha_free(&value_wide);
    guard_free(c.shape.mem);
    attn_kv_free(&other);
    attn_kv_free(&small);
    attn_kv_free(&grouped);
    attn_kv_free(&narrow);
    free(before);
    free(w);
}

/* Calls that fit no address space, layers that no memory holds (their sizes are set by hand in a small one, whose
   weights nobody gets to): OVERFLOW, SIZE_MAX, and nothing written. On a 32-bit machine they are too large all the
   more. */
static void vast_layers(void)
{
    enum { MOST = 2147483647 - 1023 };
    rng r = rng_make(test_seed + 19);
    float x[16] = {0}, out[16], weights[1], w[16 * 16];
    attn_mha_args a = {0};
    attn_mha m, vast;
    attn_mha_opts o;
    attn_exec exec = test_exec(2);
    size_t need;
    memset(out, 0x77, sizeof out);
    rng_fill(&r, w, 16 * 16);
    a.d_model = 4;
    a.heads = 2;
    a.w_q = a.w_k = a.w_v = a.w_o = w;
    CHECK(attn_mha_init(&m, &a, NULL, 0) == ATTN_OK);
#define REFUSES(call) do { CHECKF((call) == ATTN_E_OVERFLOW, "%s", #call); \
        CHECKF(untouched(out, sizeof out), "%s wrote", #call); } while (0)
    memset(&o, 0, sizeof o);
    {   /* rows times a width: in the workspace */
        for (int i = 0; i < 4; i++) {
            vast = m;
            *(i == 0 ? &vast.q.n_out : i == 1 ? &vast.k.n_out : i == 2 ? &vast.v.n_out : &vast.o.n_in) = 1 << 30;
            CHECKF(attn_mha_workspace(&vast, 1, MOST, MOST, &o) == (size_t)-1, "width %d", i);
            REFUSES(attn_mha_self(&vast, out, x, 1, MOST, &o));
        }
    }
    vast = m;                             /* parts that fit, a sum that does not; the last straw is the lengths */
    vast.q.n_out = vast.o.n_in = 1 << 29;
    CHECK(attn_mha_workspace(&vast, 1, 1 << 30, 1, &o) == (size_t)-1);
    if (sizeof(size_t) == 8) {
        vast.o.n_in = (1 << 29) - 1;
        vast.k.n_out = 1 << 29;
        vast.v.n_out = (1 << 29) - 16;    /* 2^62 - 64 bytes until then */
        CHECK(attn_mha_workspace(&vast, 1, 1 << 30, 1, &o) == (size_t)-1);
    }
    o.attn.weights = weights;             /* the means need room for all heads */
    o.weights_mean = 1;
    CHECK(attn_mha_workspace(&m, 1, MOST, MOST, &o) == (size_t)-1);
    REFUSES(attn_mha_cross(&m, out, x, 1, MOST, x, MOST, &o));

    /* tensors: x and out, memory, values. The workspace is believed, and not reached */
    memset(&o, 0, sizeof o);
    o.attn.work = w;
    o.attn.work_size = (size_t)-1;
    vast = m;
    vast.shape.d_model = 1 << 30;
    REFUSES(attn_mha_cross(&vast, out, x, 1, 1 << 30, x, 1, &o));
    vast = m;
    vast.shape.d_key = vast.shape.d_value = 1 << 30;
    REFUSES(attn_mha_cross(&vast, out, x, 1, 1, x + 4, 1 << 30, &o));
    vast.shape.d_key = 4;
    o.memory_v = x + 8;
    REFUSES(attn_mha_cross(&vast, out, x, 1, 1, x + 4, 1 << 30, &o));

    /* the attention inside: more blocks than can be counted, more threads than fit */
    memset(&o, 0, sizeof o);
    {
        attn_mha many;
        float *column = normal(&r, 4096, 1.0);
        attn_mha_args tall = {0};
        tall.d_model = 1;
        tall.heads = 4096;
        tall.head_dim = 1;
        tall.w_q = tall.w_k = tall.w_v = tall.w_o = column;
        CHECK(attn_mha_init(&many, &tall, NULL, 0) == ATTN_OK);
        CHECK(attn_mha_workspace(&many, 1 << 18, 1, 1, &o) == (size_t)-1);
        REFUSES(attn_mha_cross(&many, out, x, 1 << 18, 1, x, 1, &o));
        attn_mha_free(&many);
        free(column);
    }
    if (sizeof(size_t) == 8) {            /* both parts fit, but not their sum: just, and by far */
        vast = m;
        vast.shape.heads = vast.shape.kv_heads = 1;
        vast.shape.head_dim = vast.q.n_out = vast.k.n_out = vast.v.n_out = vast.o.n_in = 1 << 30;
        o.attn.exec = &exec;
        exec.width = MOST;
        need = attn_mha_workspace(&vast, 1, 1, 1, &o);
        for (int batch = 2; batch <= 1 << 28; batch *= 2) {
            const size_t more = attn_mha_workspace(&vast, batch, 1, 1, &o);
            CHECKF(more >= need, "%d entries need %zu, fewer %zu", batch, more, need);
            need = more;
        }
        CHECK(need == (size_t)-1);
        for (int bit = 28, batch = 1; bit-- > 0;) {       /* the most entries that the attention inside takes */
            attn_args inside = {0};
            inside.batch = batch + (1 << bit);
            inside.heads = inside.n_q = inside.n_k = 1;
            inside.head_dim = 1 << 30;
            inside.exec = &exec;
            if (attn_sdpa_workspace(&inside) != (size_t)-1) batch = inside.batch;
            if (bit == 0) CHECK(batch > 1 && attn_mha_workspace(&vast, batch, 1, 1, &o) == (size_t)-1);
        }
    }
#undef REFUSES
    attn_mha_free(&m);
}

void mha_allocation(void);                /* layers_memory.c: this needs an implementation of its own */

extern const test_case suite_mha[];
SUITE(mha) = {
    {"linear oracle", linear_oracle_test,
     "a weight, bias or padded column in the wrong place; a write past the last output"},
    {"linear company", linear_company, "a row that depends on the rows, blocks or threads around it"},
    {"linear nan", linear_nan, "a NaN with the sign or payload of this machine"},
    {"signs of zero", signs_of_zero, "-0 where +0 is promised, or a linear that loses the sign of a zero"},
    {"linear wrong", linear_wrong, "bad sizes, NULL, overlapping output, a zeroed linear"},
    {"rope table", rope_table, "cos or sin off by more than the rounding, for the usual bases"},
    {"rope far", rope_far, "range reduction losing bits at far positions"},
    {"rope bits", rope_bits, "a table that depends on compiler, flags or machine"},
    {"rope rotates", rope_rotates, "a wrong sign or pair; interleaved that is not half-split with other places"},
    {"rope wrong", rope_wrong, "odd sizes, bad frequencies, NULL"},
    {"composition", composition,
     "an option that is not forwarded, a mask applied to the wrong thing, workspace that is too small"},
    {"double oracle", double_oracle, "a projection, a head or a rotation that is not what the formula says"},
    {"torch answers", torch_answers,
     "another meaning of weights, biases, masks or averages than nn.MultiheadAttention"},
    {"weight layouts", weight_layouts, "w_in cut at the wrong rows; originals that are still needed"},
    {"self steps", self_steps, "decoding that differs from prefill: positions, rotation, counts, padding"},
    {"cross steps", cross_steps, "a filled memory that differs from a projected one, or is read by the wrong query"},
    {"padded batches", padded_batches, "a sentence whose bits depend on padding or neighbours"},
    {"ragged memories", ragged_memories, "a sentence that reads its neighbour's memory when either side is ragged"},
    {"gates", gates, "tanh for sigmoid, a gate on the bias or not, in the wrong place"},
    {"gate per head", gate_per_head, "the gate of one head on another"},
    {"means", means, "weights averaged in another order or over something else"},
    {"backends and threads", backends_and_threads, "bits of a layer that depend on instruction set or threads"},
    {"workspace grows", workspace_grows, "a larger call that asks for less workspace"},
    {"allocation", mha_allocation,
     "memory that is leaked, used uninitialised, or asked for although the caller brings it"},
    {"vast layers", vast_layers, "a workspace or a tensor of a layer whose size wraps around to a small one"},
    {"wrong layers", wrong_layers, "a layer that cannot be, without a sentence that says why"},
    {"wrong calls", wrong_calls, "an error noticed after something was written or appended"},
    {0}};
