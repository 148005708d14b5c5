/* math.h: the scalar functions that replace libm in attn.h, and its matrix product. They are private: part of
 * private.c. The reference is libm in double, whose error is below a thousandth of a float's ulp; the limits are those
 * of the documentation. `-n 10` tests every float of exp's range. */
/* error of a float result in units of the last place of the exact result (denormals use that of FLT_MIN) */
static double ulps(float got, double want)
{
    uint64_t bits, unit;
    double ulp;
    memcpy(&bits, &want, sizeof bits);
    unit = bits >> 52 & 0x7FF;                              /* the exponent alone, 23 below and not below 2^-149 */
    unit = (unit > 1023 - 126 ? unit : 1023 - 126) - 23;
    unit <<= 52;
    memcpy(&ulp, &unit, sizeof ulp);
    return fabs((double)got - want) / ulp;
}

static float draw_bits(rng *r) { return bits_float(rng_u32(r)); }

/* a float of random mantissa (only its first `bits` bits) and an exponent in lo..hi */
static float draw_float(rng *r, int bits, int lo, int hi)
{
    float m = (float)(rng_u32(r) >> (32 - bits) | 1u << (bits - 1));
    return ldexpf(rng_u32(r) & 1 ? m : -m, rng_int(r, lo, hi) - bits);
}

/* ---- fma ------------------------------------------------------------------------------------------------- */

static int same_value(float a, float b) { return float_bits(a) == float_bits(b) || (a != a && b != b); }

static void check_fma(float a, float b, float c, long *wrong, const char *kind)
{
    float want = test_fmaf(a, b, c), one = attn__fma(a, b, c), two = attn__fma_exact(a, b, c);
    if (same_value(want, one) && same_value(want, two)) return;
    if ((*wrong)++) return;
    test_fail(__FILE__, __LINE__, "%s: fma(%a, %a, %a) is %a, attn__fma %a, attn__fma_exact %a", kind, (double)a,
              (double)b, (double)c, (double)want, (double)one, (double)two);
}

static void test_fma(void)
{
    const float special[] = {0.0f,      -0.0f,       1.0f,     -1.0f,     FLT_MIN, -FLT_MIN, FLT_MAX,     /* tcc: */
                             -FLT_MAX,  FLT_EPSILON, INFINITY, -INFINITY, NAN,     1.5f, 0.5f,         /* not static */
                             0x1p-149f, -0x1p-149f,  0x1p127f, 0x1.fffffcp-127f};
    enum { SPECIALS = sizeof special / sizeof special[0] };
    rng r = rng_make(test_seed);
    long wrong = 0, n = 400000L * test_scale;
    for (int i = 0; i < SPECIALS; i++)
        for (int j = 0; j < SPECIALS; j++)
            for (int k = 0; k < SPECIALS; k++) check_fma(special[i], special[j], special[k], &wrong, "special values");
    for (long i = 0; i < n && !wrong; i++) {
        float a = draw_float(&r, 24, -20, 20), b = draw_float(&r, 24, -20, 20), p = a * b;
        check_fma(draw_bits(&r), draw_bits(&r), draw_bits(&r), &wrong, "any bits");
        check_fma(a, b, draw_float(&r, 24, -45, 45), &wrong, "any exponents");
        check_fma(a, b, -p, &wrong, "cancellation to the error of the product");
        check_fma(a, b, -nextafterf(p, (float)rng_int(&r, -1, 1) * INFINITY), &wrong, "cancellation to a few ulps");
        /* A short product and a sum whose result is half an ulp from a float, exactly or up to one low bit. */
        float x = draw_float(&r, rng_int(&r, 1, 12), 0, 4), y = draw_float(&r, rng_int(&r, 1, 12), 0, 4);
        check_fma(x, y, draw_float(&r, 24, 20, 34), &wrong, "ties");
        check_fma(x + ldexpf(x, -22), y, draw_float(&r, 24, 20, 60), &wrong, "almost ties");
        /* the sum in double is itself a tie for the float: rounding twice would show */
        x = draw_float(&r, 24, -30, -24), y = draw_float(&r, 24, -2, 2);
        check_fma(x, y, draw_float(&r, 23, 0, 2), &wrong, "rounded twice");
        x = draw_float(&r, 24, -80, -60), y = draw_float(&r, 24, -80, -60);
        check_fma(x, y, draw_float(&r, 20, -149, -120), &wrong, "denormal sums");
        x = draw_float(&r, 24, 60, 70), y = draw_float(&r, 24, 58, 70);
        check_fma(x, y, draw_float(&r, 24, 120, 128), &wrong, "overflow");
    }
    CHECKF(wrong == 0, "attn__fma is not a fused multiply-add");
}

/* ---- exp ------------------------------------------------------------------------------------------------- */

static double exp_error(float x)
{
    return ulps(attn__exp(x), exp((double)x));
}

static void test_exp(void)
{
    const double smallest = log((double)FLT_MIN);           /* below: +0 */
    const uint32_t last = float_bits(-87.3365402f);
    double worst = 0.0;
    float at = 0.0f;
    rng r = rng_make(test_seed);

    /* bit patterns from -0 to ln(FLT_MIN): all of them, or every 400th or so */
    uint32_t step = test_scale >= 10 ? 1 : (uint32_t)(400 / test_scale) | 1;
    for (uint32_t u = 0x80000000u + rng_u32(&r) % step; u <= last; u += step) {
        double error = exp_error(bits_float(u));
        if (error > worst) worst = error, at = bits_float(u);
    }
    for (int i = 0; i < 1000000; i++) {                     /* and where most scores are */
        float x = -87.3365f * ((float)rng_u32(&r) / 4294967296.0f);
        double error = exp_error(x);
        if (error > worst) worst = error, at = x;
    }
    for (int n = 0; n <= 252; n++)                          /* and where the polynomials change */
        for (int d = -50; d <= 50; d++) {
            float x = bits_float(float_bits((float)(-0.34657359027997264 * n)) + (uint32_t)d);
            if (!(x <= 0.0f) || (double)x < smallest) continue;
            double error = exp_error(x);
            if (error > worst) worst = error, at = x;
        }
    CHECKF(worst <= 1.5, "exp(%.9g) is off by %.3f ulp", (double)at, worst);
    printf("  exp: at most %.3f ulp (at %.9g), %s\n", worst, (double)at, step == 1 ? "all floats" : "a sample");

    CHECK(float_bits(attn__exp(0.0f)) == float_bits(1.0f));
    CHECK(float_bits(attn__exp(-0.0f)) == float_bits(1.0f));
    CHECK(float_bits(attn__exp(-INFINITY)) == 0);
    CHECK(float_bits(attn__exp(-FLT_MAX)) == 0);
    CHECK(attn__exp(NAN) != attn__exp(NAN));
    CHECK(attn__exp(bits_float(0xFFC12345u)) != attn__exp(bits_float(0xFFC12345u)));
    long denormal = 0, early = 0;
    for (int d = -3000; d <= 3000; d++) {                   /* the step from FLT_MIN to 0 is at the specified place */
        float x = bits_float(last + (uint32_t)d), y = attn__exp(x);
        if ((double)x < smallest) early += float_bits(y) != 0;
        else denormal += !(y >= FLT_MIN);
    }
    CHECKF(early == 0, "%ld values below ln(FLT_MIN) do not give +0", early);
    CHECKF(denormal == 0, "%ld values above ln(FLT_MIN) give a denormal or 0", denormal);
}

/* ---- log ------------------------------------------------------------------------------------------------- */

static void test_log(void)
{
    double worst = 0.0;
    float at = 1.0f;
    rng r = rng_make(test_seed);
    for (long i = 0; i < 1000000L * test_scale; i++) {
        float x[4];
        x[0] = bits_float(1 + rng_u32(&r) % 0x7F7FFFFFu);                           /* any positive number */
        x[1] = bits_float(0x3F800000u + rng_u32(&r) % 0x08000000u);                 /* sums of weights: 1 .. 65536 */
        x[2] = bits_float(0x3F800000u - 2000000u + rng_u32(&r) % 4000000u);         /* near 1: results near 0 */
        x[3] = bits_float(0x3F800000u - 2000u + (uint32_t)(i % 4000));
        for (int k = 0; k < 4; k++) {
            double error = x[k] == 1.0f ? 0.0 : ulps(attn__log(x[k]), log((double)x[k]));
            if (error > worst) worst = error, at = x[k];
        }
    }
    CHECKF(worst <= 1.5, "log(%.9g) is off by %.3f ulp", (double)at, worst);
    printf("  log: at most %.3f ulp (at %.9g)\n", worst, (double)at);
    CHECK(float_bits(attn__log(1.0f)) == 0);
    CHECK(attn__log(0.0f) == -INFINITY);
    CHECK(attn__log(INFINITY) == INFINITY);
    CHECK(attn__log(NAN) != attn__log(NAN));
    CHECK(attn__log(-1.0f) != attn__log(-1.0f));
}

/* ---- tanh ------------------------------------------------------------------------------------------------ */

static void test_tanh(void)
{
    double worst = 0.0;
    float at = 0.0f;
    rng r = rng_make(test_seed);
    long odd = 0, beyond = 0;
    for (long i = 0; i < 1000000L * test_scale; i++) {
        float x[3];
        x[0] = bits_float(1 + rng_u32(&r) % 0x7F800000u);                           /* up to infinity */
        x[1] = 10.0f * ((float)(rng_u32(&r) >> 8) / 16777216.0f) + FLT_MIN;
        x[2] = bits_float(float_bits(0.625f) - 500u + (uint32_t)(i % 1000));        /* where the polynomial ends */
        for (int k = 0; k < 3; k++) {
            float y = attn__tanh(x[k]);
            double error = ulps(y, tanh((double)x[k]));
            if (error > worst) worst = error, at = x[k];
            odd += float_bits(attn__tanh(-x[k])) != float_bits(-y);
            beyond += !(y <= 1.0f);
        }
    }
    CHECKF(worst <= 3.0, "tanh(%.9g) is off by %.3f ulp", (double)at, worst);
    printf("  tanh: at most %.3f ulp (at %.9g)\n", worst, (double)at);
    CHECKF(odd == 0, "tanh(-x) is not -tanh(x) for %ld values", odd);
    CHECKF(beyond == 0, "tanh leaves [-1, 1] for %ld values", beyond);
    CHECK(attn__tanh(0.0f) == 0.0f);
    CHECK(attn__tanh(9.1f) == 1.0f && attn__tanh(-9.1f) == -1.0f);
    CHECK(attn__tanh(INFINITY) == 1.0f && attn__tanh(-INFINITY) == -1.0f);
    CHECK(attn__tanh(FLT_MAX) == 1.0f && attn__tanh(-FLT_MAX) == -1.0f);
    CHECK(attn__tanh(NAN) != attn__tanh(NAN));
}

/* ---- 1/sqrt(head_dim) ----------------------------------------------------------------------------------------- */

static void test_default_scale(void)
{
    for (int head_dim = 1; head_dim <= 4096; head_dim++) {
        float got = attn__default_scale(head_dim);
        CHECKF(ulps(got, 1.0 / sqrt((double)head_dim)) <= 1.0, "1/sqrt(%d) is %.9g", head_dim, (double)got);
        const float made = (float)(1.0 / attn__sqrt(head_dim));
        CHECKF(got == made, "1/sqrt(%d) is %.9g, not %.9g as floats make it", head_dim, (double)got, (double)made);
    }
    for (int k = 0; k <= 15; k++) {
        float got = attn__default_scale(1 << 2 * k);
        CHECKF(got == ldexpf(1.0f, -k), "1/sqrt(4^%d) is %.9g, not exactly 2^-%d", k, (double)got, k);
    }
    CHECK(ulps(attn__default_scale(0x7FFFFFFF), 1.0 / sqrt(2147483647.0)) <= 1.0);
}

/* ---- the square root in double ---------------------------------------------------------------------------------- */

/* libm's sqrt is rounded to nearest, as IEEE 754 requires: squares, their neighbours, random numbers of every size. */
static void test_sqrt(void)
{
    rng r = rng_make(test_seed);
    for (int t = 0; t < 20000 * test_scale && !test_failed(); t++) {
        const uint64_t u = (uint64_t)rng_u32(&r) << 32 | rng_u32(&r);
        double x = ldexp((double)(u >> 11 | 1), rng_int(&r, -1000, 900));
        if (t % 2) x = ldexp(1.0 + (double)(u >> 38) * 0x1p-26, rng_int(&r, -400, 400)), x *= x;
        if (t % 4 == 3) x = nextafter(x, t % 8 == 3 ? 0.0 : HUGE_VAL);
        CHECKF(attn__sqrt(x) == sqrt(x), "sqrt(%a) is %a, not %a", x, attn__sqrt(x), sqrt(x));
    }
    CHECK(attn__sqrt(0.0) == 0.0 && attn__sqrt(HUGE_VAL) == HUGE_VAL && isnan(attn__sqrt(NAN)));
    CHECK(attn__sqrt(DBL_MIN) == sqrt(DBL_MIN) && attn__sqrt(DBL_MAX) == sqrt(DBL_MAX));
}

/* ---- fixed point to float -------------------------------------------------------------------------------------- */

/* 64 bits rounded to 24, to nearest, ties to even: the end of rope tables. The reference is in integers. */
static void test_fixed_float(void)
{
    rng r = rng_make(test_seed + 5);
    for (int i = 0; i < 200000; i++) {
        const int zeros = i % 64, kind = i / 64 % 4;          /* random bits; exactly half; just below; just above */
        const uint64_t bits = ((uint64_t)rng_u32(&r) << 32 | rng_u32(&r)) | UINT64_C(1) << 63, half = UINT64_C(1) << 39;
        const uint64_t rest = UINT64_C(0xFFFFFFFFFF);
        uint64_t x = (kind ? (bits & ~rest) + half + (kind == 2 ? -UINT64_C(1) : kind == 3) : bits) >> zeros, top, low;
        int shift = 0;
        float got = attn__fixed_float(x, i & 1), want;
        while (x >> shift > 0xFFFFFF) shift++;
        top = x >> shift;
        low = x - (top << shift);
        if (shift && (low > (UINT64_C(1) << (shift - 1)) || (low == UINT64_C(1) << (shift - 1) && (top & 1)))) top++;
        want = ldexpf((float)top, shift - 63);
        CHECKF(got == (i & 1 ? -want : want), "%08lx%08lx is %a, not %a", (unsigned long)(x >> 32),
               (unsigned long)(x & 0xFFFFFFFFu), (double)got, (double)want);
    }
    CHECK(float_bits(attn__fixed_float(0, 0)) == 0 && attn__fixed_float(UINT64_C(1) << 63, 0) == 1.0f);
}

/* ---- panels and products ----------------------------------------------------------------------------------- */

/* Key j, component c at (j/16)*16*depth + c*16 + j%16; the last panel is padded with its last key. Every backend moves
   the same bits, and reads nothing after the last key. */
static void test_pack_k(void)
{
    rng r = rng_make(test_seed + 6);
    attn_backend backends[16];
    int n_backends = test_all_backends(backends, 16);
    for (int i = 0; i < 200; i++) {
        const int n = rng_int(&r, 1, 70), depth = rng_int(&r, 1, 40), room = (n + 15) / 16 * 16;
        const ptrdiff_t row = depth + rng_int(&r, 0, 1) * rng_int(&r, 1, 20);
        const size_t size = (size_t)((n - 1) * row + depth);
        float *k = guard_floats(size), *panels = guard_floats((size_t)(room * depth));
        rng_fill(&r, k, size);
        for (int b = 0; b < n_backends; b++) {
            memset(panels, 0x77, (size_t)(room * depth) * sizeof(float));
            attn__table(backends[b])->pack_k(panels, k, row, n, depth);
            for (int j = 0; j < room; j++)
                for (int c = 0; c < depth; c++)
                    CHECKF(float_bits(panels[j / 16 * 16 * depth + c * 16 + j % 16]) ==
                           float_bits(k[(j < n ? j : n - 1) * row + c]), "%s: key %d of %d, component %d of %d",
                           attn_backend_name(backends[b]), j, n, c, depth);
        }
        guard_free(k);
        guard_free(panels);
    }
}

/* A product, chains begun at +0, at a row or at a matrix, stored or folded: within the error of its chains; with fma
   the bits of one chain of fma in order; and a row has the same bits alone and with others. */
static void test_products(void)
{
    rng r = rng_make(test_seed + 7);
    attn_backend backends[16], one[16];
    int n_backends = test_all_backends(backends, 16), n_one = test_one_answer_backends(one, 16);
    for (int i = 0; i < 150 && !test_failed(); i++) {
        const int rows = rng_int(&r, 1, 30), panels = rng_int(&r, 1, 9), width = 16 * panels;
        const int depth = rng_int(&r, 0, 60);
        const int start = rng_int(&r, 0, 2), fold = rng_int(&r, 0, 1);        /* start 0: +0, 1: one row, 2: a matrix */
        const size_t cells = (size_t)(rows * width);
        float *a = guard_floats((size_t)(rows * depth)), *b = guard_floats((size_t)(width * depth));
        float *c = guard_floats(cells), *alone = guard_floats((size_t)width), *from = guard_floats(cells);
        float *before = guard_floats(cells), *want = guard_floats(cells), fold_a[30], fold_b[30];
        double *error = calloc(cells, sizeof *error);
        attn__gemm g;
        if (!error) abort();
        rng_fill(&r, a, (size_t)(rows * depth));
        rng_fill(&r, b, (size_t)(width * depth));
        rng_fill(&r, from, cells);
        rng_fill(&r, before, cells);
        rng_fill(&r, fold_a, 30);
        rng_fill(&r, fold_b, 30);
        memset(&g, 0, sizeof g);
        g.a = a;
        g.a_row = depth;
        g.b = b;                                              /* panels one after the other */
        g.b_step = 16;
        g.b_panel = 16 * depth;
        g.from = start ? from : NULL;
        g.from_row = start == 2 ? width : 0;
        g.c_row = width;
        g.rows = rows;
        g.n_panels = panels;
        g.depth = depth;
        if (fold) { g.fold_a = fold_a; g.fold_b = fold_b; }
        for (int y = 0; y < rows; y++)
            for (int x = 0; x < width; x++) {
                const size_t at = (size_t)(y * width + x);
                float chain = start ? from[y * g.from_row + x] : 0.0f;
                double size = fabs((double)chain);
                for (int t = 0; t < depth; t++) {
                    const float k = b[x / 16 * 16 * depth + t * 16 + x % 16];
                    chain = attn__fma(a[y * depth + t], k, chain);
                    size += fabs((double)a[y * depth + t] * (double)k);
                }
                want[at] = fold ? attn__fma(before[at], fold_a[y], chain * fold_b[y]) : chain;
                if (fold) size = fabs((double)before[at] * (double)fold_a[y]) + size * fabs((double)fold_b[y]);
                error[at] = 2.0 * (depth + 3) * 0x1p-24 * size;
            }
        for (int n = 0; n < n_backends; n++) {
            const attn__kernels *kernels = attn__table(backends[n]);
            const char *name = attn_backend_name(backends[n]);
            int exact = 0;
            for (int j = 0; j < n_one; j++) exact |= one[j] == backends[n];
            memcpy(c, before, cells * sizeof *c);
            g.a = a;
            g.c = c;
            g.rows = rows;
            kernels->gemm(&g);
            for (size_t at = 0; at < cells; at++)
                if (exact ? float_bits(c[at]) != float_bits(want[at])
                          : !(fabs((double)c[at] - (double)want[at]) <= error[at])) {
                    CHECKF(0, "%s: %d x %d, %d panels, start %d, fold %d: cell %d is %.9g, not %.9g", name, rows, depth,
                           panels, start, fold, (int)at, (double)c[at], (double)want[at]);
                    break;
                }
            g.rows = 1;
            for (int y = 0; y < rows; y++) {
                memcpy(alone, before + y * width, (size_t)width * sizeof *alone);
                g.a = a + y * depth;
                g.c = alone;
                if (start == 2) g.from = from + y * width;
                if (fold) { g.fold_a = fold_a + y; g.fold_b = fold_b + y; }
                kernels->gemm(&g);
                CHECKF(same_bits(alone, c + y * width, (size_t)width), "%s: row %d of %d has other bits alone", name, y,
                       rows);
            }
            if (start) g.from = from;
            if (fold) { g.fold_a = fold_a; g.fold_b = fold_b; }
        }
        guard_free(a); guard_free(b); guard_free(c); guard_free(alone); guard_free(from); guard_free(before);
        guard_free(want);
        free(error);
    }
}

#ifndef ATTN_NO_LAYERS
/* ---- activations ------------------------------------------------------------------------------------------- */
static double activation_of(int kind, double x)
{
    const double v = 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    if (kind == ATTN_GELU) return x * erfc(-x * 0.70710678118654752440) / 2;
    return x / (1 + exp(kind == ATTN_SILU ? -x : -v));
}

/* The specification against double. If it gives 0 for a negative x, the formula is below the tail of the contract. */
static void test_activations(void)
{
    static const struct { const char *name; float (*f)(float); double most, tail; float last; } of[] = {
        {"gelu", attn__gelu, 2.4, 5e-39, -13.2163944f}, {"gelu_tanh", attn__gelu_tanh, 2.9, 1.2e-37, -10.0010443f},
        {"silu", attn__silu, 2.9, 1.1e-36, -87.3365402f}};
    rng r = rng_make(test_seed);
    for (int kind = 0; kind < 3; kind++) {
        double worst = 0.0;
        float at = 0.0f;
        long cut = 0;
        for (long i = 0; i < 300000L * test_scale; i++) {
            float x[3];
            x[0] = bits_float(rng_u32(&r) % 0x7F800000u | (rng_u32(&r) & 0x80000000u));
            x[1] = (kind == ATTN_SILU ? 90.0f : 14.0f) * ((float)(rng_u32(&r) >> 8) / 8388608.0f - 1.0f);
            x[2] = 3.0f * ((float)(rng_u32(&r) >> 8) / 8388608.0f - 1.0f);
            for (int k = 0; k < 3; k++) {
                const float y = of[kind].f(x[k]);
                const double want = activation_of(kind, (double)x[k]), error = ulps(y, want);
                if (y == 0.0f && x[k] < -1.0f) cut += fabs(want) > of[kind].tail;
                else if (error > worst) worst = error, at = x[k];
            }
        }
        CHECKF(worst <= of[kind].most, "%s(%.9g) is off by %.3f ulp", of[kind].name, (double)at, worst);
        CHECK(float_bits(of[kind].f(-INFINITY)) == 0 && of[kind].f(INFINITY) == INFINITY);
        CHECK(of[kind].f(NAN) != of[kind].f(NAN) && of[kind].f(0.0f) == 0.0f);
        CHECKF(cut == 0, "%s is 0 for %ld values that are not that small", of[kind].name, cut);
        CHECK(of[kind].f(of[kind].last) < 0 && float_bits(of[kind].f(nextafterf(of[kind].last, -INFINITY))) == 0);
        printf("  %s: at most %.3f ulp (at %.9g)\n", of[kind].name, worst, (double)at);
    }
}

/* Kernels against the specification: any bits, whole vectors and ends; without fma to the tolerance of the contract. */
static void test_activation_kernels(void)
{
    enum { N = 4099 };
    static float x[N], gate[N], want[N], got[N];
    rng r = rng_make(test_seed + 1);
    for (int round = 0; round < 12 * test_scale; round++)
        for (int t = 0; t < ATTN__TABLES; t++) {
            const attn__kernels *k = attn__tables[t];
            const int kind = round % 3, rough = k->backend == ATTN_SSE2 || k->backend == ATTN_WASM;
            const float *by = round % 2 ? gate : NULL;
            long wrong = 0;
            if (!attn__table(k->backend)) continue;
            for (int i = 0; i < N; i++) {
                x[i] = i % 2 ? draw_bits(&r) : 8.0f * rng_normal(&r);
                gate[i] = rng_normal(&r);
            }
            attn__activate_scalar(want, x, by, N, (attn_activation)kind);
            k->activate(got, x, by, N, (attn_activation)kind);
            for (int i = 0; i < N; i++) {
                const double limit = 3e-7 * fabs((double)x[i]) * (by ? fabs((double)gate[i]) : 1.0) + 1e-30;
                if (!rough || want[i] != want[i]) wrong += !same_bits(got + i, want + i, 1);
                else if (want[i] != got[i]) wrong += !(fabs((double)got[i] - (double)want[i]) <= limit);
            }
            CHECKF(wrong == 0, "%s, kind %d: %ld values differ", attn_backend_name(k->backend), kind, wrong);
            for (int n = 0; n < 40; n++) {
                memset(got, 0xA5, sizeof got);
                k->activate(got, x, by, (size_t)n, (attn_activation)kind);
                CHECK(rough || same_bits(got, want, (size_t)n));
                CHECK(float_bits(got[n]) == 0xA5A5A5A5u);
            }
        }
}
#endif

SUITE(math) = {
    {"fma", test_fma, "a multiply-add that rounds twice, on targets without one and on those that claim one"},
    {"exp", test_exp, "exp off by more than 1.5 ulp anywhere, denormal results, a lost NaN, exp(0) != 1"},
    {"log", test_log, "log off by more than 1.5 ulp, log(1) != 0"},
    {"tanh", test_tanh, "a softcap that is not odd, leaves [-1, 1] or is off by more than 3 ulp"},
#ifndef ATTN_NO_LAYERS
    {"activations", test_activations, "GELU off by over 2.4 ulp, by tanh or SiLU by 2.9, a tail cut off early"},
    {"activation kernels", test_activation_kernels, "an activation with other bits in a kernel, or at a row's end"},
#endif
    {"fixed_float", test_fixed_float, "a cosine that is rounded the wrong way, or carries into another exponent"},
    {"pack_k", test_pack_k, "a key in the wrong lane, a read past the last key"},
    {"products", test_products, "a chain in another order, a row that depends on its neighbours, a fold left out"},
    {"sqrt", test_sqrt, "a square root in double that is not the nearest one"},
    {"default_scale", test_default_scale,
     "1/sqrt(head_dim) off by more than an ulp, inexact where it is a power of two, not the nearest float"},
    {0}};
