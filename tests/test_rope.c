/* test_rope.c: the rotary table and the rotation. */
#include "layer.h"

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

/* x [batch][n][heads][head_dim], packed */
static attn_rope_args rope_args(float *x, int batch, int n, int heads, int head_dim, const float *table, int positions)
{
    attn_rope_args a = {0};
    a.x = x;
    a.batch = batch;
    a.n = n;
    a.heads = heads;
    a.head_dim = head_dim;
    a.table = table;
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
        a.interleaved = 1;
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

/* Any layout, strides that leave gaps, a position for each entry: every row as it is rotated alone,
   and nothing else. */
static void rope_places(void)
{
    enum { POSITIONS = 40 };
    rng r = rng_make(test_seed + 23);
    for (int i = 0; i < 60 && !test_failed(); i++) {
        const int batch = rng_int(&r, 1, 3), n = rng_int(&r, 1, 6), heads = rng_int(&r, 1, 3),
                  d = 2 * rng_int(&r, 1, 6);
        const int order = rng_int(&r, 0, 2), gap = rng_int(&r, 0, 3), given = gap || order == 2;
        ptrdiff_t stride[3], total;
        int pos[3];
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
        for (int row = 0; row < batch * n * heads; row++) {
            const int b = row / heads / n, at = a.pos + pos[b] + row / heads % n;
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
    const int each[2] = {0, 1};
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
    t[8] = t[9] = 0.5f;                                                /* freqs right behind the table: no overlap */
    CHECK(attn_rope_table(t, 2, 4, t + 8, 0.0) == ATTN_OK && t[0] == 1.0f && t[7] > 0.4f && t[8] == 0.5f);
    memset(t, 0x77, sizeof t);
    CHECK(attn_rope_table(NULL, 0, 4, NULL, 0.0) == ATTN_OK);
#define REFUSES(change, status, words) \
    do { a = good; change; REFUSED(attn_rope(&a), status, "attn_rope: " words); } while (0)
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
    REFUSES(a.interleaved = 2, ATTN_E_OPTION, "interleaved is 2");
    REFUSES(a.x = NULL, ATTN_E_NULL, "x is NULL");
    REFUSES(a.table = NULL, ATTN_E_NULL, "table is NULL");
    REFUSES(a.x_stride[0] = -4, ATTN_E_STRIDE, "x_stride[0] is -4");
    REFUSES(a.x_stride[0] = 3, ATTN_E_STRIDE, "x_stride[0] is 3");
    REFUSES(a.pos = 2, ATTN_E_SIZE, "positions is 2 but the last row of entry 0 stands at 2");
    REFUSES((a.n = 2, a.x_stride[1] = 4, a.pos_each = each), ATTN_E_SIZE,
            "positions is 2 but the last row of entry 1 stands at 2");
    REFUSES(a.x = behind(x, 1), ATTN_E_ALIGN, "x is not aligned: its address is 1 behind");
    REFUSES(a.table = behind(t, 2), ATTN_E_ALIGN, "table is not aligned: its address is 2 behind");
    REFUSES(a.pos_each = behind(each, 3), ATTN_E_ALIGN, "pos_each is not aligned: its address is 3 behind");
    REFUSES(a.x = t, ATTN_E_OVERLAP, "x overlaps table");
    REFUSES(a.x = (float *)(void *)(uintptr_t)(a.pos_each = each), ATTN_E_OVERLAP, "x overlaps");
    REFUSES((a.batch = a.n = a.heads = a.head_dim = 1 << 20), ATTN_E_OVERFLOW, "x is too large");
    REFUSES((a.head_dim = 1 << (sizeof(size_t) < 8 ? 20 : 30), a.positions = 2147480000), ATTN_E_OVERFLOW,
            "positions 2147480000 times");
#undef REFUSES
    good.x = NULL;
    good.table = NULL;
    a = good;
    a.batch = 0;
    CHECK(attn_rope(&a) == ATTN_OK);
    a = good;
    a.n = 0;
    CHECK(attn_rope(&a) == ATTN_OK);
    for (int i = 0; i < 16; i++) CHECK(x[i] == 0.0f);
    CHECK(untouched(t, sizeof t));
}

extern const test_case suite_rope[];
SUITE(rope) = {
    {"table", rope_table, "cos or sin off by more than the rounding, for the usual bases"},
    {"far", rope_far, "range reduction losing bits at far positions"},
    {"bits", rope_bits, "a table that depends on compiler, flags or machine"},
    {"rotates", rope_rotates, "a wrong sign or pair; interleaved that is not half-split with other places"},
    {"places", rope_places, "a layout, stride or position of an entry that leads to another row"},
    {"wrong", rope_wrong, "odd sizes, bad frequencies, NULL, a table that is too short"},
    {0}};
