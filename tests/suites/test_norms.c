/* test_norms.c: attn_norm, attn_activate, and linears over rows of any stride. */
#include <float.h>

#include "layer.h"

/* ---- norms ------------------------------------------------------------------------------------------------- */
/* One random call. Rows end at a guard page, so that an access after the last one faults. */
typedef struct norm_case {
    attn_norm_args a;
    float *x, *y, *weight, *bias;
    size_t x_cells, y_cells;
} norm_case;

static size_t norm_stride(const norm_case *c, ptrdiff_t stride) { return (size_t)(stride ? stride : c->a.n); }

/* Places of value i of a row in x and in y. */
static size_t norm_x_at(const norm_case *c, int row, int i)
{
    return (size_t)row * norm_stride(c, c->a.x_stride) + (size_t)i;
}

static size_t norm_y_at(const norm_case *c, int row, int i)
{
    return (size_t)row * norm_stride(c, c->a.y_stride) + (size_t)i;
}

static norm_case norm_make(rng *r)
{
    static const int sizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 33, 64, 100, 384, 1000};
    norm_case c;
    memset(&c, 0, sizeof c);
    c.a.rows = rng_int(r, 1, 23);
    c.a.n = sizes[rng_int(r, 0, 12)];
    c.a.x_stride = rng_int(r, 0, 1) ? 0 : c.a.n + rng_int(r, 0, 9);
    c.a.y_stride = rng_int(r, 0, 1) ? 0 : c.a.n + rng_int(r, 0, 9);
    c.a.kind = rng_int(r, 0, 1) ? ATTN_NORM_LAYER : ATTN_NORM_RMS;
    c.a.eps = rng_int(r, 0, 1) ? 1e-5f : 0.0f;
    {
        const float mean = rng_int(r, 0, 2) ? 0.0f : 1000.0f * rng_normal(r);
        c.x_cells = norm_x_at(&c, c.a.rows - 1, c.a.n);
        c.y_cells = norm_y_at(&c, c.a.rows - 1, c.a.n);
        c.a.x = c.x = guard_floats(c.x_cells);
        c.a.y = c.y = guard_floats(c.y_cells);
        rng_fill(r, c.x, c.x_cells);
        for (size_t i = 0; i < c.x_cells; i++) c.x[i] += mean;
    }
    c.a.weight = c.weight = rng_int(r, 0, 3) ? guard_floats((size_t)c.a.n) : NULL;
    c.a.bias = c.bias = rng_int(r, 0, 1) ? guard_floats((size_t)c.a.n) : NULL;
    if (c.weight) rng_fill(r, c.weight, (size_t)c.a.n);
    if (c.bias) rng_fill(r, c.bias, (size_t)c.a.n);
    return c;
}

static void norm_free(norm_case *c)
{
    guard_free(c->x); guard_free(c->y); guard_free(c->weight); guard_free(c->bias);
}

/* Returns 1 if the best backend here has no fma. */
static int norm_rough(void)
{
    attn_backend best = ATTN_AUTO;
    CHECK(attn_backends(&best, 1) > 0);
    return best == ATTN_SSE2 || best == ATTN_WASM;
}

/* The bound is derived in the contract: roundings of x - mean (2, LAYER alone), the root, their product, the result;
   without fma one product more. */
static void norm_check(const norm_case *c, int row, uint64_t seed)
{
    const int n = c->a.n, centred = c->a.kind == ATTN_NORM_LAYER;
    double mean = 0, square = 0;
    for (int i = 0; centred && i < n; i++) mean += (double)c->x[norm_x_at(c, row, i)] / n;
    for (int i = 0; i < n; i++) {
        const double d = (double)c->x[norm_x_at(c, row, i)] - mean;
        square += d * d / n;
    }
    for (int i = 0; i < n; i++) {
        const double eps = (double)(c->a.eps > 0.0f ? c->a.eps : 1e-6f), got = (double)c->y[norm_y_at(c, row, i)];
        const double normal = ((double)c->x[norm_x_at(c, row, i)] - mean) / sqrt(square + eps) *
                              (c->weight ? (double)c->weight[i] : 1.0);
        const double want = normal + (c->bias ? (double)c->bias[i] : 0.0);
        const double bound = ldexp(fabs(want) + ((centred ? 4 : 2) + norm_rough()) * fabs(normal), -24) * 1.001 + 1e-11;
        CHECKF(fabs(got - want) <= bound, "seed %llu, row %d of %d, column %d: %.9g, not %.9g",
               (unsigned long long)seed, row, n, i, got, want);
        if (test_failed()) return;
    }
}

static void norm_oracle(void)
{
    rng seeds = rng_make(test_seed);
    for (int t = 0; t < 300 * test_scale && !test_failed(); t++) {
        const uint64_t seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        norm_case c = norm_make(&r);
        CHECK(attn_norm(&c.a) == ATTN_OK);
        for (int row = 0; row < c.a.rows && !test_failed(); row++) norm_check(&c, row, seed);
        for (int row = 0; row + 1 < c.a.rows; row++)      /* between rows are the bytes of guard_floats */
            for (size_t i = norm_y_at(&c, row, c.a.n); i < norm_y_at(&c, row + 1, 0); i++)
                CHECKF(float_bits(c.y[i]) == 0xA5A5A5A5u, "seed %llu: written between rows", (unsigned long long)seed);
        norm_free(&c);
    }
}

/* 16 lanes, value i in lane i mod 16, then the tree +8, +4, +2, +1 */
static double norm_sum(const double *x, int n)
{
    double lane[16] = {0};
    for (int i = 0; i < n; i++) lane[i % 16] += x[i];
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

static float norm_root(double squares, int n) { return (float)(1.0 / sqrt(squares / n + 0.0009765625)); }

static double norm_squares(const float *x, int n)
{
    double square[100];
    for (int i = 0; i < n; i++) square[i] = (double)x[i] * (double)x[i];
    return norm_sum(square, n);
}

/* Changes three values so that the root is between two floats: the last bit of the sum decides. */
static void norm_tune(rng *r, float *x, int n)
{
    double low, high;
    x[0] = x[n / 3] = x[n - 1] = 0.0f;
    low = norm_squares(x, n) * (1.02 + rng_int(r, 0, 180) / 1000.0);
    for (high = low; norm_root(high, n) == norm_root(low, n);) high *= 1.0 + 0x1p-24;
    for (int i = 0; i < 60; i++)
        if (norm_root((low + high) / 2, n) == norm_root(high, n)) high = (low + high) / 2;
        else low = (low + high) / 2;
    for (int i = 0; i < 3; i++) {
        const double left = high - norm_squares(x, n);
        const float root = (float)sqrt(left > 0 ? left : 0);
        x[i < 2 ? i * (n / 3) : n - 1] = (double)root * (double)root > left ? nextafterf(root, 0.0f) : root;
    }
}

/* Sums in double in 16 lanes, mean and root rounded to float once, each product rounded: SPEC.md,
 * section 10. Two values of LAYER cancel each other and hide smaller ones of their lanes. */
static void norm_order(void)
{
    rng r = rng_make(test_seed);
    for (int t = 0; t < 1000 && !test_failed(); t++) {
        const int n = 4 + t % 97, centred = t / 97 % 2;
        float x[100], y[100], weight[100];
        double sum[100];
        volatile float d[100];
        attn_norm_args a = {.y = y, .x = x, .rows = 1, .n = n, .weight = weight, .eps = 0x1p-10f};
        a.kind = (attn_norm_kind)centred;
        rng_fill(&r, x, 100);
        rng_fill(&r, weight, 100);
        if (!centred) norm_tune(&r, x, n);
        else {
            const int one = rng_int(&r, 0, n - 1), other = rng_int(&r, 0, n - 1);
            x[one] = 0x1p60f;
            x[other] = -0x1p60f;
        }
        CHECK(attn_norm(&a) == ATTN_OK);
        for (int i = 0; i < n; i++) sum[i] = (double)x[i];
        const double mean = centred ? norm_sum(sum, n) / n : 0;
        const float high = (float)mean, low = (float)(mean - (double)high);
        for (int i = 0; i < n; i++) {
            d[i] = x[i] - high;
            d[i] = d[i] - low;
            sum[i] = (double)d[i] * (double)d[i];
        }
        const float root = norm_root(norm_sum(sum, n), n);
        for (int i = 0; i < n; i++) {
            const volatile float normal = d[i] * root;
            const volatile float want = normal * weight[i];
            CHECKF(float_bits(y[i]) == float_bits(want + 0.0f), "kind %d, %d values: %d is %.9g, not %.9g",
                   centred, n, i, (double)y[i], (double)want);
        }
    }
}

/* Bits that are the same: on every backend, in any cut into calls. */
static void norm_same_bits(void)
{
    attn_backend list[16];
    const int backends = attn_backends(list, 16);
    rng r = rng_make(test_seed + 1);
    for (int t = 0; t < 60 * test_scale && !test_failed(); t++) {
        norm_case c = norm_make(&r);
        float *want = guard_floats(c.y_cells);
        attn_norm_args a = c.a;
        a.backend = ATTN_SCALAR;
        a.y = want;
        CHECK(attn_norm(&a) == ATTN_OK);
        for (int b = 0; b < backends; b++) {
            const int rough = list[b] == ATTN_SSE2 || list[b] == ATTN_WASM;
            if (rough && c.bias) continue;                          /* no fma: its bits differ */
            memset(c.y, 0xA5, c.y_cells * sizeof(float));
            a = c.a;
            a.backend = list[b];
            CHECK(attn_norm(&a) == ATTN_OK);
            CHECKF(same_bits(c.y, want, c.y_cells), "%s differs from scalar", attn_backend_name(list[b]));
        }
        a = c.a;
        a.y = want;                       /* of the best backend, which may have no fma */
        CHECK(attn_norm(&a) == ATTN_OK);
        memset(c.y, 0xA5, c.y_cells * sizeof(float));
        for (int row = 0, rows; row < c.a.rows; row += rows) {
            rows = rng_int(&r, 1, c.a.rows - row);
            a = c.a;
            a.x = c.x + norm_x_at(&c, row, 0);
            a.y = c.y + norm_y_at(&c, row, 0);
            a.rows = rows;
            CHECK(attn_norm(&a) == ATTN_OK);
        }
        CHECKF(same_bits(c.y, want, c.y_cells), "cut into calls");
        guard_free(want);
        norm_free(&c);
    }
}

static void norm_in_place(void)
{
    rng r = rng_make(test_seed + 6);
    for (int t = 0; t < 60 * test_scale && !test_failed(); t++) {
        norm_case c = norm_make(&r);
        attn_exec exec = test_exec(rng_int(&r, 2, 5));
        attn_norm_args a = c.a;
        CHECK(attn_norm(&a) == ATTN_OK);
        a.y = c.x;
        a.y_stride = (ptrdiff_t)norm_stride(&c, a.x_stride);     /* the default in one of them, a number in the other */
        a.exec = &exec;
        CHECK(attn_norm(&a) == ATTN_OK);
        for (int row = 0; row < c.a.rows; row++)
            CHECK(same_bits(c.x + norm_x_at(&c, row, 0), c.y + norm_y_at(&c, row, 0), (size_t)c.a.n));
        norm_free(&c);
    }
}

/* Enough rows that tasks are started: 4,000 of 64. */
static void norm_threads(void)
{
    enum { ROWS = 4003, N = 64 };
    rng r = rng_make(test_seed + 2);
    float *x = normal(&r, (size_t)ROWS * N, 1.0), *one = floats((size_t)ROWS * N), *many = floats((size_t)ROWS * N);
    for (int kind = 0; kind < 2; kind++) {
        attn_exec exec = test_exec(4);
        attn_norm_args a = {.y = one, .x = x, .rows = ROWS, .n = N, .kind = (attn_norm_kind)kind};
        CHECK(attn_norm(&a) == ATTN_OK);
        a.y = many, a.exec = &exec;
        memset(many, 0xFF, (size_t)ROWS * N * sizeof(float));
        CHECK(attn_norm(&a) == ATTN_OK);
        CHECKF(same_bits(one, many, (size_t)ROWS * N), "kind %d", kind);
    }
    free(x); free(one); free(many);
}

static void norm_not_finite(void)
{
    float x[3 * 5] = {1, NAN, 2, 3, 4,  1, INFINITY, 2, -0.0f, 4,  0, 0, -0.0f, 0, 0}, y[15];
    attn_norm_args a = {.y = y, .x = x, .rows = 3, .n = 5};
    CHECK(attn_norm(&a) == ATTN_OK);
    for (int i = 0; i < 5; i++) {
        CHECK(float_bits(y[i]) == 0x7FC00000u);
        CHECK(float_bits(y[5 + i]) == (i == 1 ? 0x7FC00000u : 0u));
        CHECK(float_bits(y[10 + i]) == 0u);
    }
    a.kind = ATTN_NORM_LAYER;
    CHECK(attn_norm(&a) == ATTN_OK);
    for (int i = 0; i < 10; i++) CHECK(float_bits(y[i]) == 0x7FC00000u);
    for (int i = 10; i < 15; i++) CHECK(float_bits(y[i]) == 0u);
}

/* A backend that does not run here. */
static attn_backend norm_missing(void)
{
    attn_backend list[16];
    const int n = attn_backends(list, 16);
    int wanted = ATTN_SCALAR + 1, i;
    do for (i = 0; i < n && (int)list[i] != wanted; i++) { } while (i < n && ++wanted);
    return (attn_backend)wanted;
}

static void norm_refused(void)
{
    float x[40] = {0}, y[40], w[8] = {0};
    attn_exec none = {NULL, 1, NULL};
    const ptrdiff_t most = PTRDIFF_MAX;
    int user;
    const attn_norm_args good = {.y = y, .x = x, .rows = 4, .n = 8, .user = &user};
    attn_norm_args a = good;
#define BAD(set, status, words) \
    do { a = good; set; memset(y, 0xA5, sizeof y); REFUSED(attn_norm(&a), status, words); \
         for (int i = 0; i < 40; i++) CHECK(float_bits(y[i]) == 0xA5A5A5A5u); } while (0)
    REFUSED(attn_norm(NULL), ATTN_E_NULL, "attn_norm: the attn_norm_args are NULL");
    BAD(a.x = NULL, ATTN_E_NULL, "x is NULL");
    BAD(a.y = NULL, ATTN_E_NULL, "y is NULL");
    BAD(a.rows = -1, ATTN_E_SIZE, "rows is -1");
    BAD(a.n = 0, ATTN_E_SIZE, "n is 0");
    BAD(a.x_stride = 7, ATTN_E_STRIDE, "x_stride is 7 but rows have 8 floats");
    BAD(a.y_stride = -8, ATTN_E_STRIDE, "y_stride is -8");
    CHECK(refusal_user() == &user);
    BAD(a.kind = (attn_norm_kind)2, ATTN_E_OPTION, "kind is 2");
    BAD(a.eps = -1e-6f, ATTN_E_OPTION, "eps is ");
    BAD(a.eps = NAN, ATTN_E_OPTION, "eps is ");
    BAD(a.backend = (attn_backend)99, ATTN_E_OPTION, "backend is 99");
    BAD(a.backend = norm_missing(), ATTN_E_BACKEND, "is not usable on this machine");
    BAD(a.exec = &none, ATTN_E_NULL, "exec->run is NULL");
    BAD(a.x = y + 1, ATTN_E_OVERLAP, "y overlaps x");
    BAD((a.x = y, a.rows = 2, a.x_stride = 9), ATTN_E_OVERLAP, "y overlaps x");
    BAD(a.weight = y + 31, ATTN_E_OVERLAP, "y overlaps weight");
    BAD(a.bias = y, ATTN_E_OVERLAP, "y overlaps bias");
    BAD(a.x = (const float *)behind(x, 2), ATTN_E_ALIGN, "x is not aligned");
    BAD(a.y = (float *)behind(y, 3), ATTN_E_ALIGN, "y is not aligned");
    BAD(a.weight = (const float *)behind(w, 1), ATTN_E_ALIGN, "weight is not aligned");
    BAD(a.bias = (const float *)behind(w, 2), ATTN_E_ALIGN, "bias is not aligned");
    /* stride * (rows - 1), then + n, then * 4 is too much for a size_t; last, for an object */
    BAD((a.rows = 1 << 30, a.x_stride = most), ATTN_E_OVERFLOW, "1073741824 rows of 8 floats");
    BAD((a.rows = 3, a.y_stride = most), ATTN_E_OVERFLOW, "3 rows of 8 floats");
    BAD((a.rows = 2, a.y_stride = most), ATTN_E_OVERFLOW, "2 rows of 8 floats");
    BAD((a.rows = 2, a.x_stride = most / 4), ATTN_E_OVERFLOW, "2 rows of 8 floats");
#undef BAD
    a = good;
    a.rows = 0, a.x = NULL, a.y = NULL;
    CHECK(attn_norm(&a) == ATTN_OK);
}

/* ---- activations ------------------------------------------------------------------------------------------- */
static double activation(int kind, double x)
{
    const double v = 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    return kind == ATTN_GELU ? x * erfc(-x * 0.70710678118654752440) / 2 : x / (1 + exp(kind == ATTN_SILU ? -x : -v));
}

static void activate_oracle(void)
{
    rng r = rng_make(test_seed + 3);
    for (int t = 0; t < 200 * test_scale && !test_failed(); t++) {
        const int n = rng_int(&r, 1, 70), kind = rng_int(&r, 0, 2), gated = rng_int(&r, 0, 1);
        const int alias = rng_int(&r, 0, 2);
        float *x = guard_floats((size_t)n), *gate = guard_floats((size_t)n), *y = guard_floats((size_t)n);
        float *kept_x = floats((size_t)n), *kept_gate = floats((size_t)n), *to = alias == 1 ? x : y;
        rng_fill(&r, x, (size_t)n);
        rng_fill(&r, gate, (size_t)n);
        for (int i = 0; i < n; i++) x[i] *= 3.0f;
        memcpy(kept_x, x, (size_t)n * sizeof(float));
        memcpy(kept_gate, gate, (size_t)n * sizeof(float));
        if (alias == 2 && gated) to = gate;
        CHECK(attn_activate(to, x, gated ? gate : NULL, (size_t)n, (attn_activation)kind, NULL) == ATTN_OK);
        for (int i = 0; i < n; i++) {
            const double want = activation(kind, (double)kept_x[i]) * (gated ? (double)kept_gate[i] : 1.0);
            /* the contract: 2.9 ulp and one rounding; without fma 3e-7 |x|; a tail below 1.1e-36 */
            const double rough = norm_rough() ? 3e-7 : 0.0;
            const double factor = gated ? fabs((double)kept_gate[i]) : 1.0;
            const double bound = 3.4 * ldexp(fabs(want), -23) + (1.1e-36 + rough * fabs((double)kept_x[i])) * factor;
            CHECKF(fabs((double)to[i] - want) <= bound, "kind %d of %.9g: %.9g, not %.9g", kind, (double)kept_x[i],
                   (double)to[i], want);
        }
        guard_free(x); guard_free(gate); guard_free(y); free(kept_x); free(kept_gate);
    }
}

static void activate_ends(void)
{
    const float x[] = {-INFINITY, INFINITY, NAN, -NAN, 0.0f, -0.0f, -1e-45f, -FLT_MAX, FLT_MAX, -100.0f, 50.0f};
    const float want[] = {0.0f, INFINITY, NAN, NAN, 0.0f, 0.0f, 0.0f, 0.0f, FLT_MAX, 0.0f, 50.0f};
    enum { N = sizeof x / sizeof x[0] };
    const float zero[1] = {-INFINITY}, infinite[1] = {INFINITY};
    float y[N], product[1];
    for (int kind = 0; kind < 3; kind++) {
        CHECK(attn_activate(y, x, NULL, N, (attn_activation)kind, NULL) == ATTN_OK);
        for (int i = 0; i < N; i++)
            CHECKF(float_bits(y[i]) == (want[i] != want[i] ? 0x7FC00000u : float_bits(want[i])),
                   "kind %d of %g is %g (%08x)", kind, (double)x[i], (double)y[i], float_bits(y[i]));
        CHECK(attn_activate(product, zero, infinite, 1, (attn_activation)kind, NULL) == ATTN_OK);
        CHECK(float_bits(product[0]) == 0x7FC00000u);        /* 0 * inf by IEEE 754 */
    }
}

static void activate_threads(void)
{
    enum { N = 100003 };
    rng r = rng_make(test_seed + 4);
    float *x = normal(&r, N, 2.0), *gate = normal(&r, N, 1.0), *one = floats(N), *other = floats(N);
    for (int kind = 0; kind < 3; kind++) {
        attn_exec exec = test_exec(5);
        CHECK(attn_activate(one, x, gate, N, (attn_activation)kind, NULL) == ATTN_OK);
        CHECK(attn_activate(other, x, gate, N, (attn_activation)kind, &exec) == ATTN_OK);
        CHECKF(same_bits(one, other, N), "kind %d on 5 threads", kind);
        memset(other, 0xFF, N * sizeof(float));
        for (int at = 0, n; at < N; at += n) {
            n = rng_int(&r, 1, 3000);
            if (n > N - at) n = N - at;
            CHECK(attn_activate(other + at, x + at, gate + at, (size_t)n, (attn_activation)kind, NULL) == ATTN_OK);
        }
        CHECKF(same_bits(one, other, N), "kind %d cut into calls", kind);
    }
    free(x); free(gate); free(one); free(other);
}

static void activate_refused(void)
{
    float x[20] = {0}, y[20];
    attn_exec none = {NULL, 1, NULL};
    memset(y, 0xA5, sizeof y);
    REFUSED(attn_activate(NULL, x, NULL, 4, ATTN_GELU, NULL), ATTN_E_NULL, "attn_activate: y is NULL");
    REFUSED(attn_activate(y, NULL, NULL, 4, ATTN_GELU, NULL), ATTN_E_NULL, "x is NULL");
    REFUSED(attn_activate(y, x, NULL, 4, (attn_activation)3, NULL), ATTN_E_OPTION, "kind is 3");
    REFUSED(attn_activate(y, x, NULL, 4, (attn_activation)-1, NULL), ATTN_E_OPTION, "kind is -1");
    REFUSED(attn_activate(y, x, NULL, 4, ATTN_GELU, &none), ATTN_E_NULL, "exec->run is NULL");
    REFUSED(attn_activate(y, y + 3, NULL, 4, ATTN_GELU, NULL), ATTN_E_OVERLAP, "y overlaps x");
    REFUSED(attn_activate(y + 3, x, y, 4, ATTN_GELU, NULL), ATTN_E_OVERLAP, "y overlaps gate");
    REFUSED(attn_activate(y, x, (const float *)behind(x, 2), 4, ATTN_GELU, NULL), ATTN_E_ALIGN, "gate is not aligned");
    REFUSED(attn_activate(y, x, NULL, SIZE_MAX / 2, ATTN_GELU, NULL), ATTN_E_OVERFLOW, "n is more");
    for (int i = 0; i < 20; i++) CHECK(float_bits(y[i]) == 0xA5A5A5A5u);
    CHECK(attn_activate(NULL, NULL, NULL, 0, ATTN_SILU, NULL) == ATTN_OK);
}

/* ---- linears over rows of any stride ----------------------------------------------------------------------- */
static void linear_stride(void)
{
    rng r = rng_make(test_seed + 5);
    for (int t = 0; t < 80 * test_scale && !test_failed(); t++) {
        static const int ins[] = {1, 5, 48, 240, 256, 300, 600}, outs[] = {1, 16, 17, 70};
        const int n_in = ins[rng_int(&r, 0, 6)], n_out = outs[rng_int(&r, 0, 3)], rows = rng_int(&r, 1, 130);
        const int stride = rng_int(&r, 1, 2 * n_in);
        const size_t cells = (size_t)stride * (size_t)(rows - 1) + (size_t)n_in;
        float *w = normal(&r, (size_t)(n_in * n_out), 1.0), *x = guard_floats(cells);
        float *copy = floats((size_t)(rows * n_in)), *want = floats((size_t)(rows * n_out));
        float *y = guard_floats((size_t)(rows * n_out));
        attn_exec exec = test_exec(3);
        attn_linear l;
        rng_fill(&r, x, cells);
        for (int i = 0; i < rows; i++)
            memcpy(copy + i * n_in, x + i * stride, (size_t)n_in * sizeof(float));
        CHECK(linear_make(&l, w, NULL, n_in, n_out) == ATTN_OK);
        CHECK(attn_linear_run(&l, want, copy, rows, 0, NULL) == ATTN_OK);
        CHECK(attn_linear_run(&l, y, x, rows, stride, rng_int(&r, 0, 1) ? &exec : NULL) == ATTN_OK);
        CHECKF(same_bits(y, want, (size_t)(rows * n_out)), "%d x %d, %d rows, stride %d", n_in, n_out, rows, stride);
        REFUSED(attn_linear_run(&l, y, x, rows, -1, NULL), ATTN_E_STRIDE, "attn_linear_run: x_stride is -1");
        if (rows > 1)
            REFUSED(attn_linear_run(&l, y, x, rows, PTRDIFF_MAX, NULL), ATTN_E_OVERFLOW, "rows of n_in");
        attn_linear_free(&l);
        free(w); guard_free(x); free(copy); free(want); guard_free(y);
    }
}

SUITE(norms) = {
    {"oracle", norm_oracle, "a norm that is wrong, loses precision to a large mean, or writes between rows"},
    {"order", norm_order,
     "sums in another order than 16 lanes and their tree, or another rounding; a tail that is lost"},
    {"same bits", norm_same_bits, "a norm whose bits depend on the backend or on a cut into calls"},
    {"in place", norm_in_place, "a norm in place that reads what it has written, or that is rejected"},
    {"threads", norm_threads, "a norm that leaves out rows or repeats them when tasks share them"},
    {"not finite", norm_not_finite, "a NaN lost in a norm, -0 stored, or a row of zeros divided by 0"},
    {"rejected norms", norm_refused,
     "invalid arguments of attn_norm accepted, or something written before they are rejected"},
    {"activate", activate_oracle, "an activation that is wrong in its range, or with y the same as x or gate"},
    {"activate ends", activate_ends, "an infinity that becomes NaN, a lost NaN, -0 stored"},
    {"activate threads", activate_threads, "an activation whose bits depend on threads or on the division into calls"},
    {"activate rejected", activate_refused, "invalid arguments of attn_activate accepted, or overwritten"},
    {"linear stride", linear_stride, "a linear with a stride that reads wrong rows, or past the last one"},
    {0}
};
