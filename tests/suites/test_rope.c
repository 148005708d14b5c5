/* test_rope.c: the rotary table and the rotation. */
#include "layer.h"

/* half a unit in the last place of the result, and the error of the angle that the header specifies: 2^-40, or 2^-60
   of itself */
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

/* The table is integer arithmetic: its bits are the same on all machines and compilers, so they can be fixed here. */
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

/* x [batch][n][heads][head_dim], packed */
static attn_rope_args rope_args(float *x, int batch, int n, int heads, int head_dim, const float *table, int positions)
{
    attn_rope_args a = {0};
    a.x = x;
    a.batch = batch;
    a.n = n;
    a.heads = heads;
    a.head_dim = head_dim;
    a.rope_table = table;
    a.positions = positions;
    return a;
}

static void rope_rotates(void)
{
    rng r = rng_make(test_seed + 2);
    attn_backend best, one_answer;
    int exact;
    attn_backends(&best, 1);
    exact = test_one_answer_backends(&one_answer, 1) > 0 && one_answer == best;
    for (int i = 0; i < 40 && !test_failed(); i++) {
        const int half = rng_int(&r, 1, 40), rd = 2 * half, d = rd + rng_int(&r, 0, 1) * rng_int(&r, 1, 9);
        const int batch = rng_int(&r, 1, 3), n = rng_int(&r, 1, 9), heads = rng_int(&r, 1, 3);
        const int pos = rng_int(&r, 0, 50), rows = batch * n * heads;
        float *table = floats((size_t)((pos + n) * rd)), *x = normal(&r, (size_t)(rows * d), 1.0);
        float *y = floats((size_t)(rows * d)), *z = floats((size_t)(rows * d));
        attn_rope_args a = rope_args(y, batch, n, heads, d, table, pos + n);
        CHECK(attn_rope_table(table, pos + n, rd, NULL, 10000.0) == ATTN_OK);
        memcpy(y, x, (size_t)(rows * d) * sizeof(float));
        memcpy(z, x, (size_t)(rows * d) * sizeof(float));
        for (int row = 0; row < rows; row++)                          /* the same pairs, side by side */
            for (int c = 0; c < half; c++) {
                z[row * d + 2 * c] = x[row * d + c];
                z[row * d + 2 * c + 1] = x[row * d + half + c];
            }
        a.rotary_dim = d == rd ? rng_int(&r, 0, 1) * d : rd;
        a.pos = pos;
        CHECK(attn_rope(&a) == ATTN_OK);
        a.x = z;
        a.rope_interleaved = 1;
        CHECK(attn_rope(&a) == ATTN_OK);
        for (int row = 0; row < rows; row++) {
            const float *t = table + (pos + row / heads % n) * rd;
            for (int c = 0; c < half; c++) {
                const double a0 = x[row * d + c], b0 = x[row * d + half + c], co = t[c], si = t[half + c];
                const float first = y[row * d + c], second = y[row * d + half + c];
                CHECK(fabs(first - (a0 * co - b0 * si)) <= 2.1 * U * (fabs(a0 * co) + fabs(b0 * si)));
                CHECK(fabs(second - (b0 * co + a0 * si)) <= 2.1 * U * (fabs(a0 * si) + fabs(b0 * co)));
                CHECK(same_bits(&first, z + row * d + 2 * c, 1) && same_bits(&second, z + row * d + 2 * c + 1, 1));
                if (exact) { /* two roundings of these, not one and not three */
                    volatile float ac = x[row * d + c] * t[c], bc = x[row * d + half + c] * t[c];
                    const float one = test_fmaf(-x[row * d + half + c], t[half + c], ac) + 0.0f;
                    const float two = test_fmaf(x[row * d + c], t[half + c], bc) + 0.0f;
                    CHECK(same_bits(&first, &one, 1) && same_bits(&second, &two, 1));
                }
            }
            CHECKF(same_bits(x + row * d + rd, y + row * d + rd, (size_t)(d - rd)), "components behind %d change", rd);
        }
        free(table); free(x); free(y); free(z);
    }
}

/* Any layout, strides that leave gaps, a position for each entry: every row equals the same row rotated alone, and
   nothing else changes. */
static void rope_places(void)
{
    enum { POSITIONS = 40 };
    rng r = rng_make(test_seed + 23);
    for (int i = 0; i < 60 && !test_failed(); i++) {
        const int batch = rng_int(&r, 1, 3), n = rng_int(&r, 1, 6), heads = rng_int(&r, 1, 3),
                  d = 2 * rng_int(&r, 1, 6);
        const int order = rng_int(&r, 0, 2), gap = rng_int(&r, 0, 3), given = gap || order == 2;
        ptrdiff_t stride[3], total;
        int pos[3], places[3 * 6];
        float table[POSITIONS * 12], *x, *y;
        attn_rope_args a;
        CHECK(attn_rope_table(table, POSITIONS, d, NULL, 50.0) == ATTN_OK);
        if (order == 0) stride[2] = d + gap, stride[1] = heads * stride[2], stride[0] = n * stride[1];
        else if (order == 1) stride[1] = d + gap, stride[2] = n * stride[1], stride[0] = heads * stride[2];
        else stride[2] = d + gap, stride[0] = heads * stride[2], stride[1] = batch * stride[0];      /* [row][batch] */
        total = (batch - 1) * stride[0] + (n - 1) * stride[1] + (heads - 1) * stride[2] + d;
        x = guard_floats((size_t)total);
        rng_fill(&r, x, (size_t)total);
        y = floats((size_t)total);
        memcpy(y, x, (size_t)total * sizeof(float));
        for (int b = 0; b < 3; b++) pos[b] = rng_int(&r, -9, POSITIONS - 9);
        a = rope_args(x, batch, n, heads, d, table, POSITIONS);
        a.layout = order == 1 ? ATTN_BHSD : ATTN_BSHD;
        if (given) memcpy(a.x_stride, stride, sizeof stride);
        a.pos = rng_int(&r, 0, 3);
        a.pos_each = pos;
        CHECKF(attn_rope(&a) == ATTN_OK, "%s", refusal_text());
        if (rng_int(&r, 0, 1)) {                                          /* every row at a position of the caller */
            for (int k = 0; k < batch * n; k++) places[k] = rng_int(&r, -2, POSITIONS - 1);
            memcpy(x, y, (size_t)total * sizeof(float));
            a.rope_pos = places;
            a.pos_each = NULL;
            a.pos = 0;
            CHECKF(attn_rope(&a) == ATTN_OK, "%s", refusal_text());
        }
        for (int row = 0; row < batch * n * heads; row++) {
            const int b = row / heads / n, at = a.rope_pos ? places[row / heads] : a.pos + pos[b] + row / heads % n;
            float *one = y + b * stride[0] + row / heads % n * stride[1] + row % heads * stride[2];
            attn_rope_args alone = rope_args(one, 1, 1, 1, d, table, POSITIONS);
            alone.pos = at;
            if (at >= 0) CHECK(attn_rope(&alone) == ATTN_OK);             /* padding before position 0 stays */
        }
        CHECKF(same_bits(x, y, (size_t)total), "batch %d, %d rows, %d heads of %d, order %d, gap %d", batch, n, heads,
               d, order, gap);
        guard_free(x);
        free(y);
    }
}

static void rope_wrong(void)
{
    float t[16] = {0}, x[16] = {0};
    const float bad[3] = {NAN, INFINITY, 70000.0f};
    const int each[2] = {0, 1}, far[2] = {1, 2};
    attn_rope_args good = rope_args(x, 2, 1, 1, 4, t, 2), a;
    memset(t, 0x77, sizeof t);
    REFUSED(attn_rope_table(t, 2, 3, NULL, 10000.0), ATTN_E_SIZE, "attn_rope_table: rotary_dim is 3");
    REFUSED(attn_rope_table(t, 2, 0, NULL, 10000.0), ATTN_E_SIZE, "attn_rope_table: rotary_dim is 0");
    REFUSED(attn_rope_table(t, -1, 4, NULL, 10000.0), ATTN_E_SIZE, "attn_rope_table: positions is -1");
    REFUSED(attn_rope_table(NULL, 2, 4, NULL, 10000.0), ATTN_E_NULL, "attn_rope_table: table is NULL");
    REFUSED(attn_rope_table(t, 2, 4, NULL, 0.5), ATTN_E_OPTION, "attn_rope_table: base");
    REFUSED(attn_rope_table(t, 2, 4, NULL, NAN), ATTN_E_OPTION, "attn_rope_table: base");
    REFUSED(attn_rope_table(t, 2, 4, NULL, INFINITY), ATTN_E_OPTION, "attn_rope_table: base");
    for (int i = 0; i < 3; i++)
        REFUSED(attn_rope_table(t, 2, 2, bad + i, 0.0), ATTN_E_OPTION,
                i == 0 ? "freqs[0] is nan" : i == 1 ? "freqs[0] is inf" : "freqs[0] is 70000.00");
    REFUSED(attn_rope_table(NULL, 2147480000, 1 << 30, NULL, 0.0), ATTN_E_OVERFLOW, "positions 2147480000");
    REFUSED(attn_rope_table(behind(t, 2), 2, 4, NULL, 0.0), ATTN_E_ALIGN, "attn_rope_table: table is not aligned");
    REFUSED(attn_rope_table(t, 2, 4, behind(bad, 1), 0.0), ATTN_E_ALIGN, "attn_rope_table: freqs is not aligned");
    REFUSED(attn_rope_table(t, 2, 4, t + 7, 0.0), ATTN_E_OVERLAP, "attn_rope_table: table overlaps freqs");
    CHECK(untouched(t, sizeof t));
    t[8] = t[9] = 0.5f;                                                /* freqs directly after the table: no overlap */
    CHECK(attn_rope_table(t, 2, 4, t + 8, 0.0) == ATTN_OK && t[0] == 1.0f && t[7] > 0.4f && t[8] == 0.5f);
    memset(t, 0x77, sizeof t);
    CHECK(attn_rope_table(NULL, 0, 4, NULL, 0.0) == ATTN_OK);
#define CALL attn_rope(&a)
    REFUSED(attn_rope(NULL), ATTN_E_NULL, "attn_rope: the attn_rope_args are NULL");
    REFUSES(a.head_dim = 3, ATTN_E_SIZE, "head_dim is 3 but");
    REFUSES(a.rotary_dim = 3, ATTN_E_SIZE, "rotary_dim is 3 but");
    REFUSES(a.rotary_dim = 6, ATTN_E_SIZE, "rotary_dim is 6 but head_dim is 4");
    REFUSES(a.rotary_dim = -2, ATTN_E_SIZE, "rotary_dim is -2");
    REFUSES(a.pos = -1, ATTN_E_SIZE, "pos is -1");
    REFUSES(a.batch = -1, ATTN_E_SIZE, "batch is -1");
    REFUSES(a.n = -1, ATTN_E_SIZE, "n is -1");
    REFUSES(a.heads = 0, ATTN_E_SIZE, "heads is 0");
    REFUSES(a.head_dim = 0, ATTN_E_SIZE, "head_dim is 0");
    REFUSES(a.positions = -1, ATTN_E_SIZE, "positions is -1");
    REFUSES(a.layout = 2, ATTN_E_OPTION, "layout is 2");
    REFUSES(a.rope_interleaved = 2, ATTN_E_OPTION, "rope_interleaved is 2");
    REFUSES(a.x = NULL, ATTN_E_NULL, "x is NULL");
    REFUSES(a.rope_table = NULL, ATTN_E_NULL, "rope_table is NULL");
    REFUSES(a.x_stride[0] = -4, ATTN_E_STRIDE, "x_stride[0] is -4");
    REFUSES(a.x_stride[0] = 3, ATTN_E_STRIDE, "x_stride[0] is 3");
    REFUSES(a.pos = 2, ATTN_E_SIZE, "positions is 2 but the last row of entry 0 stands at 2");
    REFUSES((a.n = 2, a.x_stride[1] = 4, a.pos_each = each), ATTN_E_SIZE,
            "positions is 2 but the last row of entry 1 stands at 2");
    REFUSES(a.x = behind(x, 1), ATTN_E_ALIGN, "x is not aligned: its address is 1 behind");
    REFUSES(a.rope_table = behind(t, 2), ATTN_E_ALIGN, "rope_table is not aligned: its address is 2 behind");
    REFUSES(a.pos_each = behind(each, 3), ATTN_E_ALIGN, "pos_each is not aligned: its address is 3 behind");
    REFUSES(a.x = t, ATTN_E_OVERLAP, "x overlaps rope_table");
    REFUSES(a.rope_pos = far, ATTN_E_SIZE, "positions is 2 but rope_pos[1] is 2");
    REFUSES((a.rope_pos = each, a.pos = 1), ATTN_E_CONFLICT, "rope_pos and pos are both set");
    REFUSES((a.rope_pos = each, a.pos_each = each), ATTN_E_CONFLICT, "rope_pos and pos_each are both set");
    REFUSES(a.rope_pos = behind(each, 1), ATTN_E_ALIGN, "rope_pos is not aligned: its address is 1 behind");
    REFUSES(a.x = (float *)(void *)(uintptr_t)(a.rope_pos = each), ATTN_E_OVERLAP, "x overlaps rope_pos");
    REFUSES(a.x = (float *)(void *)(uintptr_t)(a.pos_each = each), ATTN_E_OVERLAP, "x overlaps");
    REFUSES((a.batch = a.n = a.heads = a.head_dim = 1 << 20), ATTN_E_OVERFLOW, "x is too large");
    REFUSES((a.head_dim = 1 << (sizeof(size_t) < 8 ? 20 : 30), a.positions = 2147480000), ATTN_E_OVERFLOW,
            "positions 2147480000 times");
#undef CALL
    good.x = NULL;
    good.rope_table = NULL;
    a = good;
    a.batch = 0;
    CHECK(attn_rope(&a) == ATTN_OK);
    a = good;
    a.n = 0;
    CHECK(attn_rope(&a) == ATTN_OK);
    for (int i = 0; i < 16; i++) CHECK(x[i] == 0.0f);
    CHECK(untouched(t, sizeof t));
}

/* ---- frequencies of checkpoints: the formulas of transformers (modeling_rope_utils.py), in double ------------- */

static double mscale_of(double factor, double m) { return factor <= 1.0 ? 1.0 : 0.1 * m * log(factor) + 1.0; }

/* the pair that makes this many turns over the original positions */
static double pair_of_turns(const attn_rope_freqs_args *a, double turns, double base)
{
    return a->rotary_dim * log(a->original / (turns * 2.0 * 3.14159265358979323846)) / (2.0 * log(base));
}

/* All members given, so that no default is used. */
static double wanted_frequency(const attn_rope_freqs_args *a, int i)
{
    const double f = pow(a->base, -2.0 * i / a->rotary_dim), turns = a->original * f / (2.0 * 3.14159265358979323846);
    double low, high, s;
    switch (a->kind) {
    case ATTN_ROPE_LINEAR: return f / a->factor;
    case ATTN_ROPE_LONGROPE: return f / a->factors[i];
    case ATTN_ROPE_PROPORTIONAL: return i < a->rotated / 2 ? f / a->factor : 0.0;
    case ATTN_ROPE_LLAMA3: /* by wavelength: long ones slowed down, short ones kept, between them a mixture */
        if (turns < a->low) return f / a->factor;
        if (turns > a->high) return f;
        s = (turns - a->low) / (a->high - a->low);
        return (1.0 - s) * f / a->factor + s * f;
    case ATTN_ROPE_YARN:
        low = pair_of_turns(a, a->high, a->base);
        high = pair_of_turns(a, a->low, a->base);
        if (!a->untruncated) low = floor(low), high = ceil(high);
        low = fmax(low, 0.0);
        high = fmin(high, a->rotary_dim - 1);
        if (low == high) high += 0.001;
        s = fmin(fmax((i - low) / (high - low), 0.0), 1.0);
        return f / a->factor * s + f * (1.0 - s);
    default: return f;
    }
}

static double wanted_attention(const attn_rope_freqs_args *a)
{
    if (a->kind == ATTN_ROPE_YARN && a->attention_factor != 0.0) return a->attention_factor;
    if (a->kind == ATTN_ROPE_YARN && a->mscale != 0.0 && a->mscale_all_dim != 0.0)
        return mscale_of(a->factor, a->mscale) / mscale_of(a->factor, a->mscale_all_dim);
    if (a->kind == ATTN_ROPE_YARN) return mscale_of(a->factor, 1.0);
    if (a->kind == ATTN_ROPE_LONGROPE && a->attention_factor != 0.0) return a->attention_factor;
    if (a->kind == ATTN_ROPE_LONGROPE) return sqrt(1.0 + log(a->factor) / log(a->original));
    return 1.0;
}

/* One rounding to float. The two doubles agree to a few roundings, or to a few hundred if a ramp multiplies the error
   of a logarithm. */
static void frequencies_agree(const attn_rope_freqs_args *a)
{
    float *f = guard_floats((size_t)a->rotary_dim / 2), attention = -1.0f;
    CHECKF(attn_rope_freqs(f, &attention, a) == ATTN_OK, "%s", refusal_text());
    for (int i = 0; i < a->rotary_dim / 2 && !test_failed(); i++) {
        const double want = wanted_frequency(a, i);
        CHECKF(fabs(f[i] - want) <= want * (U + 1e-12) + ldexp(1.0, -150), "kind %d, %d of %d: %.9g, not %.9g",
               (int)a->kind, i, a->rotary_dim, (double)f[i], want);
    }
    CHECKF(fabs(attention - wanted_attention(a)) <= wanted_attention(a) * (U + 1e-13), "attention %.9g, not %.9g",
           (double)attention, wanted_attention(a));
    guard_free(f);
}

static void freqs_formulas(void)
{
    rng r = rng_make(test_seed + 31);
    float factors[128];
    for (int i = 0; i < 600 * test_scale && !test_failed(); i++) {
        attn_rope_freqs_args a = {0};
        a.kind = (attn_rope_kind)(i % 6);
        a.rotary_dim = 2 * rng_int(&r, 1, 128);
        a.base = exp(rng_int(&r, 1, 1600) / 100.0) + rng_int(&r, 0, 99) * 1e-4;
        a.factor = rng_int(&r, 0, 4) ? 1.0 + rng_int(&r, 0, 640) / 10.0 : 1.0;
        a.low = rng_int(&r, 1, 300) / 100.0;
        a.high = a.low + rng_int(&r, 1, 6400) / 100.0;
        a.original = rng_int(&r, 0, 2) ? 1 << rng_int(&r, 8, 18) : rng_int(&r, 2, 100000);
        a.untruncated = rng_int(&r, 0, 1);
        if (rng_int(&r, 0, 2) == 0) a.attention_factor = rng_int(&r, 1, 300) / 100.0;
        if (rng_int(&r, 0, 1)) a.mscale = rng_int(&r, 1, 200) / 100.0;
        if (rng_int(&r, 0, 1)) a.mscale_all_dim = rng_int(&r, 1, 200) / 100.0;
        for (int k = 0; k < 128; k++) factors[k] = (float)rng_int(&r, 1, 6400) / 100.0f;
        a.factors = factors;
        a.rotated = 2 * rng_int(&r, 1, a.rotary_dim / 2);
        if (a.kind == ATTN_ROPE_YARN && i % 5 == 0) {                     /* pairs beyond any int, to both sides */
            a.base = 1.0 + ldexp(1.0, -52);
            a.original = i % 10 ? 2 : 100000;
        }
        if (a.kind == ATTN_ROPE_YARN && i % 7 == 0) {                     /* the first pair is also the last */
            a.rotary_dim = 64, a.base = 10000.0, a.original = 6, a.low = 1.0, a.high = 32.0, a.untruncated = 0;
            a.rotated = 2;
        }
        frequencies_agree(&a);
    }
}

/* Numbers from the tests of transformers (test_modeling_rope_utils.py): 128 components, base 10000, factor 10,
   original 2048, five digits of them. */
static void freqs_published(void)
{
    static const struct { attn_rope_kind kind; int i; double f; } known[] = {
        {ATTN_ROPE_DEFAULT, 1, 8.6596e-01}, {ATTN_ROPE_DEFAULT, 63, 1.1548e-04}, {ATTN_ROPE_YARN, 16, 1.0000e-01},
        {ATTN_ROPE_YARN, 17, 8.3479e-02},   {ATTN_ROPE_YARN, 18, 6.9590e-02},    {ATTN_ROPE_YARN, 28, 1.0101e-02},
        {ATTN_ROPE_YARN, 38, 8.7713e-04},   {ATTN_ROPE_YARN, 40, 4.3007e-04},    {ATTN_ROPE_YARN, 41, 2.7384e-04},
        {ATTN_ROPE_YARN, 63, 1.1548e-05},   {ATTN_ROPE_LLAMA3, 30, 1.3335e-02},  {ATTN_ROPE_LLAMA3, 31, 1.0730e-02},
        {ATTN_ROPE_LLAMA3, 36, 1.9675e-03}, {ATTN_ROPE_LLAMA3, 40, 3.4539e-04},  {ATTN_ROPE_LLAMA3, 41, 2.7384e-04},
        {ATTN_ROPE_LLAMA3, 63, 1.1548e-05}};
    float f[64], attention;
    attn_rope_freqs_args a = {0};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        memset(&a, 0, sizeof a);
        a.kind = known[k].kind;
        a.rotary_dim = 128;
        a.factor = 10.0;                                              /* base, low and high by default */
        a.original = 2048;
        CHECK(attn_rope_freqs(f, NULL, &a) == ATTN_OK);
        CHECKF(fabs(f[known[k].i] / known[k].f - 1.0) < 6e-5, "kind %d, %d: %g, not %g", (int)a.kind, known[k].i,
               (double)f[known[k].i], known[k].f);
    }
    /* gpt-oss: 0.1 ln 32 + 1; DeepSeek-V3: both mscales are 1; Phi-3.5: sqrt(1 + ln 32 / ln 4096) */
    memset(&a, 0, sizeof a);
    a.kind = ATTN_ROPE_YARN;
    a.rotary_dim = 64;
    a.base = 150000.0;
    a.factor = 32.0;
    a.original = 4096;
    a.untruncated = 1;
    CHECK(attn_rope_freqs(f, &attention, &a) == ATTN_OK && fabs(attention - 1.3465735902799727) < 1e-7);
    a.factor = 40.0;
    a.mscale = a.mscale_all_dim = 1.0;
    CHECK(attn_rope_freqs(f, &attention, &a) == ATTN_OK && attention == 1.0f);
    a.kind = ATTN_ROPE_LONGROPE;
    a.factor = 32.0;
    a.factors = f + 32;
    for (int i = 0; i < 32; i++) f[32 + i] = 1.0f;
    CHECK(attn_rope_freqs(f, &attention, &a) == ATTN_OK && fabs(attention - 1.1902380714238083) < 1e-7);
}

/* Gemma 4: of 512 components 128 rotate, and pair i is (i, i + 256), not (i, i + 64). */
static void freqs_proportional(void)
{
    enum { D = 512, P = 3 };
    float f[D / 2], *t = floats(P * D), x[D], y[D];
    attn_rope_freqs_args a = {0};
    attn_rope_args rope;
    a.kind = ATTN_ROPE_PROPORTIONAL;
    a.rotary_dim = D;
    a.base = 1e6;
    a.rotated = 128;
    CHECK(attn_rope_freqs(f, NULL, &a) == ATTN_OK && attn_rope_table(t, P, D, f, 0.0) == ATTN_OK);
    for (int c = 0; c < D; c++) x[c] = y[c] = (float)(c % 7 + 1);
    rope = rope_args(y, 1, 1, 1, D, t, P);
    rope.pos = 2;
    CHECK(attn_rope(&rope) == ATTN_OK);
    for (int c = 0; c < D / 2; c++) {
        const double angle = c < 64 ? 2.0 * pow(1e6, -2.0 * c / D) : 0.0, co = cos(angle), si = sin(angle);
        CHECK(fabs(y[c] - (x[c] * co - x[c + 256] * si)) < 1e-5);
        CHECK(fabs(y[c + 256] - (x[c + 256] * co + x[c] * si)) < 1e-5);
    }
    CHECK(same_bits(x + 64, y + 64, 192) && same_bits(x + 320, y + 320, 192));
    a.rotated = 0;                                                    /* 0: all components */
    CHECK(attn_rope_freqs(f, NULL, &a) == ATTN_OK && f[255] > 0.0f);
    free(t);
}

/* Integers, and doubles in forms that no compiler can contract: fixed bits, in any mode of the caller's thread. */
static void freqs_bits(void)
{
    static const uint64_t known[6] = {UINT64_C(0xFC41FF8505EE5A95), UINT64_C(0xE0943DB909B807BB),
                                      UINT64_C(0xA151317A807A47DC), UINT64_C(0xC488456E763AFFE7),
                                      UINT64_C(0xCAA21BF527ACE847), UINT64_C(0x1FC7CFE648798D98)};
    float f[65], factors[64];
    attn_rope_freqs_args a = {0};
    a.rotary_dim = 128;
    a.base = 500000.0;
    a.factor = 8.0;
    a.original = 8192;
    a.factors = factors;
    a.rotated = 32;
    for (int i = 0; i < 64; i++) factors[i] = 1.0f + (float)(i * i) / 64.0f;
    for (int kind = 0; kind < 6; kind++) {
        a.kind = (attn_rope_kind)kind;
        CHECK(attn_rope_freqs(f, f + 64, &a) == ATTN_OK);
        CHECKF(hash_bits(0, f, 65) == known[kind], "kind %d: 0x%llX", kind, (unsigned long long)hash_bits(0, f, 65));
    }
}

static void freqs_wrong(void)
{
    float f[8], factors[4] = {1, 1, 1, 1};
    attn_rope_freqs_args good = {0}, a;
    good.rotary_dim = 8;
    good.original = 100;
    good.factors = factors;
    memset(f, 0x77, sizeof f);
    REFUSED(attn_rope_freqs(f, NULL, NULL), ATTN_E_NULL, "attn_rope_freqs: the attn_rope_freqs_args are NULL");
#define CALL attn_rope_freqs(f, f + 4, &a)
    REFUSES(a.kind = (attn_rope_kind)6, ATTN_E_OPTION, "kind is 6");
    REFUSES(a.kind = (attn_rope_kind)-1, ATTN_E_OPTION, "kind is -1");
    REFUSES(a.rotary_dim = 7, ATTN_E_SIZE, "rotary_dim is 7 but a rotation needs pairs");
    REFUSES(a.rotary_dim = 0, ATTN_E_SIZE, "rotary_dim is 0");
    REFUSES(a.rotary_dim = -2, ATTN_E_SIZE, "rotary_dim is -2");
    REFUSES(a.base = 0.5, ATTN_E_OPTION, "base must be");
    REFUSES(a.base = NAN, ATTN_E_OPTION, "base must be");
    good.kind = ATTN_ROPE_LINEAR;
    REFUSES(a.factor = 0.5, ATTN_E_OPTION, "factor must be 1 .. 1e9");
    REFUSES(a.factor = NAN, ATTN_E_OPTION, "factor must be 1 .. 1e9");
    REFUSES(a.factor = -2.0, ATTN_E_OPTION, "factor must be 1 .. 1e9");
    good.kind = ATTN_ROPE_PROPORTIONAL;
    REFUSES(a.factor = INFINITY, ATTN_E_OPTION, "factor must be 1 .. 1e9");
    good.kind = ATTN_ROPE_LLAMA3;
    REFUSES(a.low = -1.0, ATTN_E_OPTION, "low must be 1e-9 .. 1e9");
    REFUSES(a.low = 5.0, ATTN_E_OPTION, "high must be above low");
    REFUSES((a.low = 2.0, a.high = 2.0), ATTN_E_OPTION, "high must be above low");
    good.kind = ATTN_ROPE_YARN;
    REFUSES(a.high = NAN, ATTN_E_OPTION, "high must be above low");
    REFUSES(a.attention_factor = -1.0, ATTN_E_OPTION, "attention_factor must be");
    REFUSES(a.base = 1.0, ATTN_E_OPTION, "base must be above 1");
    REFUSES(a.mscale = NAN, ATTN_E_OPTION, "mscale must be");
    REFUSES(a.mscale_all_dim = -1.0, ATTN_E_OPTION, "mscale_all_dim must be");
    REFUSES(a.untruncated = 2, ATTN_E_OPTION, "untruncated is 2");
    good.kind = ATTN_ROPE_LLAMA3;
    REFUSES(a.original = 1, ATTN_E_SIZE, "original is 1");
    good.kind = ATTN_ROPE_YARN;
    REFUSES(a.original = 0, ATTN_E_SIZE, "original is 0");
    good.kind = ATTN_ROPE_LONGROPE;
    REFUSES(a.original = -5, ATTN_E_SIZE, "original is -5");
    REFUSES(a.factors = NULL, ATTN_E_NULL, "factors is NULL");
    REFUSES(a.factors = behind(factors, 1), ATTN_E_ALIGN, "factors is not aligned");
    REFUSES(a.factors = f + 1, ATTN_E_OVERLAP, "freqs overlaps factors");
    for (int i = 0; i < 4; i++) {
        const float bad[4] = {0.0f, -1.0f, NAN, 40000.0f};
        factors[2] = bad[i];
        REFUSES((void)0, ATTN_E_OPTION, "factors[2] is ");
    }
    good.kind = ATTN_ROPE_PROPORTIONAL;
    REFUSES(a.rotated = 3, ATTN_E_SIZE, "rotated is 3 but must be even, and at most 8");
    REFUSES(a.rotated = 10, ATTN_E_SIZE, "rotated is 10");
    REFUSES(a.rotated = -2, ATTN_E_SIZE, "rotated is -2");
#undef CALL
    good.kind = ATTN_ROPE_DEFAULT;
    REFUSED(attn_rope_freqs(NULL, NULL, &good), ATTN_E_NULL, "attn_rope_freqs: freqs is NULL");
    REFUSED(attn_rope_freqs(behind(f, 2), NULL, &good), ATTN_E_ALIGN, "freqs is not aligned");
    REFUSED(attn_rope_freqs(f, behind(f, 17), &good), ATTN_E_ALIGN, "attention is not aligned");
    REFUSED(attn_rope_freqs(f, f + 3, &good), ATTN_E_OVERLAP, "freqs overlaps attention");
    CHECK(untouched(f, sizeof f));
    a = good;                                                         /* unused members of a kind are ignored */
    a.factors = NULL, a.original = -1, a.rotated = 3, a.low = -1.0, a.attention_factor = NAN, a.factor = NAN;
    CHECK(attn_rope_freqs(f, f + 4, &a) == ATTN_OK && f[0] == 1.0f && f[4] == 1.0f);
}

extern const test_case suite_rope[];
SUITE(rope) = {
    {"table", rope_table, "cos or sin off by more than the rounding, for the usual bases"},
    {"far positions", rope_far, "range reduction that loses bits at far positions"},
    {"table bits", rope_bits, "a table that depends on compiler, flags or machine"},
    {"rotation", rope_rotates, "a wrong sign or pair; interleaved pairs that do not match half-split ones"},
    {"layouts and positions", rope_places, "a layout, stride or position of an entry that selects another row"},
    {"rejected calls", rope_wrong, "odd sizes, invalid frequencies, NULL, a table that is too short"},
    {"frequencies", freqs_formulas, "a scaling that differs from transformers' formula, or a wrong attention factor"},
    {"defaults of checkpoints", freqs_published, "defaults of a kind that differ from those of checkpoints"},
    {"proportional", freqs_proportional, "Gemma 4's rotation with the first components treated as a separate head"},
    {"frequency bits", freqs_bits, "frequencies that depend on compiler, libm or machine"},
    {"rejected frequencies", freqs_wrong, "invalid numbers of a checkpoint that are accepted"},
    {0}};
