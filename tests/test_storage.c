/* test_storage.c: 16-bit storage. The kernels are private, so this file holds an implementation of its own (ATTN_STATIC)
 * and plays processors with and without F16C. The references are made of doubles and of neighbours, not of the shifts
 * that attn.h has. */
#define ATTN_STATIC
#define ATTN_IMPLEMENTATION
#include "hide.h"
#include "test.h"
#include "control.h"

enum { FORMATS = 2 };
static const attn_storage formats[FORMATS] = {ATTN_F16, ATTN_BF16};
static const char *const format_names[3] = {"float", "half", "bfloat16"};
/* the smallest pattern of Inf; bits of the fraction; what the pattern 1 is worth */
static const unsigned infinite[3] = {0, 0x7C00, 0x7F80};
static const int digits[3] = {0, 10, 7}, least[3] = {0, -24, -133};

/* ---- every way there is here to convert and to multiply ------------------------------------------------------ */
typedef struct way { const attn__kernels *kernels; int f16c; const char *name; } way;

#ifdef ATTN__X86
static void with_f16c(int f16c)           /* as on a processor that has it, or lacks it */
{
    static unsigned word;
    if (!word) word = attn__cpu();
    attn__cpu_word = f16c ? word : word & ~(1u << ATTN__CPU_F16C);
}
#else
static void with_f16c(int f16c) { (void)f16c; }
#endif

static int all_ways(way *list)            /* room for 17 */
{
    attn_backend backends[16];
    const int n = test_all_backends(backends, 16);
    int ways = 0;
    for (int i = 0; i < n; i++) {
        list[ways++] = (way){attn__table(backends[i]), 1, attn_backend_name(backends[i])};
        if (backends[i] == ATTN_AVX2) list[ways++] = (way){attn__table(backends[i]), 0, "avx2 without F16C"};
    }
    return ways;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */
/* what a pattern of 16 bits is worth, not for NaN */
static double worth(unsigned h, attn_storage storage)
{
    const unsigned size = h & 0x7FFF, exponent = size >> digits[storage];
    const int fraction = (int)(size & ((1u << digits[storage]) - 1));
    double x = size >= infinite[storage] ? (double)INFINITY
             : exponent ? ldexp(fraction + (1 << digits[storage]), (int)exponent - 1 + least[storage])
                        : ldexp(fraction, least[storage]);
    return h & 0x8000 ? -x : x;
}

/* the next float away from 0 (steps 1) or towards it (-1) */
static float beside(float x, int steps) { return bits_float(float_bits(x) + (uint32_t)steps); }

static void check_narrow(const way *w, attn_storage storage, float x, unsigned want)
{
    unsigned short many[37];
    float from[37];
    for (int i = 0; i < 37; i++) from[i] = x;               /* whole vectors, and what is left over */
    w->kernels->narrow(many, from, 37, storage);
    for (int i = 0; i < 37; i++)
        if (many[i] != want) {
            CHECKF(0, "%s: %.9g (%08x) becomes %s %04x, not %04x", w->name, (double)x, float_bits(x),
                   format_names[storage], many[i], want);
            return;
        }
    test_checks++;
}

static void widen_all(void)
{
    static unsigned short h[65536];
    static float x[65536];
    way ways[17];
    const int n = all_ways(ways);
    for (int i = 0; i < 65536; i++) h[i] = (unsigned short)i;
    for (int w = 0; w < n; w++)
        for (int f = 0; f < FORMATS; f++) {
            const attn_storage storage = formats[f];
            with_f16c(ways[w].f16c);
            ways[w].kernels->widen(x, h, 65536, storage);
            for (unsigned i = 0; i < 65536 && !test_failed(); i++) {
                const int nan = (i & 0x7FFF) > infinite[storage];
                /* a NaN of half moves up its 10 bits and becomes quiet; bfloat16 is half of a float already */
                const uint32_t want = !nan ? float_bits((float)worth(i, storage)) : storage == ATTN_BF16 ? i << 16
                    : (i & 0x8000) << 16 | 0x7FC00000 | (i & 0x3FF) << 13;
                CHECKF(float_bits(x[i]) == want, "%s: %s %04x becomes %08x, not %08x", ways[w].name,
                       format_names[storage], i, float_bits(x[i]), want);
            }
        }
    with_f16c(1);
}

static void narrow_back(void)
{
    static unsigned short h[65536], back[65536];
    static float x[65536];
    way ways[17];
    const int n = all_ways(ways);
    for (int i = 0; i < 65536; i++) h[i] = (unsigned short)i;
    for (int w = 0; w < n; w++)
        for (int f = 0; f < FORMATS; f++) {
            const attn_storage storage = formats[f];
            const unsigned quiet = 1u << (digits[storage] - 1);
            with_f16c(ways[w].f16c);
            ways[w].kernels->widen(x, h, 65536, storage);
            ways[w].kernels->narrow(back, x, 65536, storage);
            for (unsigned i = 0; i < 65536 && !test_failed(); i++) {
                const unsigned want = (i & 0x7FFF) > infinite[storage] ? i | quiet : i;
                CHECKF(back[i] == want, "%s: %s %04x comes back as %04x", ways[w].name, format_names[storage], i,
                       back[i]);
            }
        }
    with_f16c(1);
}

/* Between two neighbours of the format the middle goes to the even one, and the floats beside it to the nearer one. */
static void narrow_boundaries(void)
{
    way ways[17];
    const int n = all_ways(ways);
    for (int w = 0; w < n; w++)
        for (int f = 0; f < FORMATS; f++) {
            const attn_storage storage = formats[f];
            with_f16c(ways[w].f16c);
            for (unsigned h = 0; h < infinite[storage] && !test_failed(); h++)
                for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
                    /* behind the largest there would be one more, if Inf were not there */
                    const double low = worth(h, storage);
                    const double high = h + 1 < infinite[storage] ? worth(h + 1, storage) : 2 * low - worth(h - 1, storage);
                    const float at = (float)(sign ? -low : low), middle = (float)(sign ? -(low + high) / 2 : (low + high) / 2);
                    check_narrow(ways + w, storage, at, sign | h);
                    check_narrow(ways + w, storage, beside(at, 1), sign | h);
                    if (h) check_narrow(ways + w, storage, beside(at, -1), sign | h);
                    check_narrow(ways + w, storage, middle, sign | (h + (h & 1)));
                    check_narrow(ways + w, storage, beside(middle, -1), sign | h);
                    check_narrow(ways + w, storage, beside(middle, 1), sign | (h + 1));
                }
        }
    with_f16c(1);
}

/* The ends: overflow, what is less than half of the least number, Inf and NaN. */
static void narrow_ends(void)
{
    way ways[17];
    const int n = all_ways(ways);
    for (int w = 0; w < n; w++)
        for (unsigned s = 0; s < 2; s++) {
            const uint32_t sign = s << 31, h = s << 15;
            with_f16c(ways[w].f16c);
#define ENDS(bits, half, bf16) \
            check_narrow(ways + w, ATTN_F16, bits_float(sign | (bits)), h | (half)); \
            check_narrow(ways + w, ATTN_BF16, bits_float(sign | (bits)), h | (bf16))
            ENDS(0x00000000, 0x0000, 0x0000);
            ENDS(0x00000001, 0x0000, 0x0000);               /* the least float */
            ENDS(0x007FFFFF, 0x0000, 0x0080);               /* the largest denormal float */
            ENDS(0x33000000, 0x0000, 0x3300);               /* 2^-25: half of the least half, a tie */
            ENDS(0x33000001, 0x0001, 0x3300);
            ENDS(0x477FE000, 0x7BFF, 0x4780);               /* 65504, the largest half */
            ENDS(0x477FEFFF, 0x7BFF, 0x4780);
            ENDS(0x477FF000, 0x7C00, 0x4780);               /* 65520 */
            ENDS(0x47800000, 0x7C00, 0x4780);
            ENDS(0x7F7F7FFF, 0x7C00, 0x7F7F);
            ENDS(0x7F7F8000, 0x7C00, 0x7F80);               /* the first that becomes infinite in bfloat16 */
            ENDS(0x7F7FFFFF, 0x7C00, 0x7F80);               /* FLT_MAX */
            ENDS(0x7F800000, 0x7C00, 0x7F80);
            ENDS(0x7F800001, 0x7E00, 0x7FC0);               /* NaN whose bits are all below: still NaN */
            ENDS(0x7FC00000, 0x7E00, 0x7FC0);
            ENDS(0x7FFFFFFF, 0x7FFF, 0x7FFF);
            ENDS(0x7FA55000, 0x7F2A, 0x7FE5);
#undef ENDS
        }
    with_f16c(1);
}

/* Any bits, any number of them, at any address: what the scalar functions say, and nothing beside it is touched. */
static void ways_agree(void)
{
    rng r = rng_make(test_seed);
    way ways[17];
    const int n = all_ways(ways);
    for (int i = 0; i < 400 * test_scale && !test_failed(); i++) {
        const size_t count = (size_t)rng_int(&r, 0, i % 4 ? 70 : 1000);
        unsigned short *h = guard_alloc(2 * count), *want_h = calloc(count + 1, 2), *from_h = guard_alloc(2 * count);
        float *x = guard_floats(count), *want_x = calloc(count + 1, sizeof(float)), *from_x = guard_floats(count);
        for (size_t k = 0; k < count; k++) {
            /* as they come, and with an exponent that half has */
            from_x[k] = rng_int(&r, 0, 1) ? bits_float(rng_u32(&r))
                                          : ldexpf(bits_float(0x3F800000u | rng_u32(&r) >> 9), rng_int(&r, -30, 18));
            from_h[k] = (unsigned short)rng_u32(&r);
        }
        for (int f = 0; f < FORMATS; f++) {
            attn__narrow_scalar(want_h, from_x, count, formats[f]);
            attn__widen_scalar(want_x, from_h, count, formats[f]);
            for (int w = 0; w < n; w++) {
                with_f16c(ways[w].f16c);
                ways[w].kernels->narrow(h, from_x, count, formats[f]);
                ways[w].kernels->widen(x, from_h, count, formats[f]);
                CHECKF(!count || (!memcmp(h, want_h, 2 * count) && same_bits(x, want_x, count)), "%s: %d values to %s",
                       ways[w].name, (int)count, format_names[formats[f]]);
            }
        }
        guard_free(h); guard_free(from_h); guard_free(x); guard_free(from_x);
        free(want_h); free(want_x);
    }
    with_f16c(1);
}

/* ---- the matrix product ------------------------------------------------------------------------------------------ */
enum { PRODUCT_ROWS = ATTN__STORED_ROWS, PRODUCT_PANELS = 9, PRODUCT_DEPTH = 200 };

/* The product with 16-bit values must have the bits of the product with the same values as floats. */
typedef struct product {
    unsigned short *b16;
    float *a, *b, *from, *before, *vis, *want, *got, fold_a[PRODUCT_ROWS], fold_b[PRODUCT_ROWS];
    char *ahead;
} product;

static product product_make(rng *r)
{
    const size_t width = 16 * PRODUCT_PANELS, cells = PRODUCT_ROWS * width, values = width * PRODUCT_DEPTH;
    product p;
    p.b16 = malloc(2 * values);
    p.a = malloc(PRODUCT_ROWS * PRODUCT_DEPTH * sizeof(float));
    p.b = malloc(values * sizeof(float));
    p.from = malloc(cells * sizeof(float));
    p.before = malloc(cells * sizeof(float));
    p.vis = malloc(PRODUCT_ROWS * ATTN__CHUNK * sizeof(float));
    p.want = malloc(cells * sizeof(float));
    p.got = malloc(cells * sizeof(float));
    p.ahead = malloc(values * sizeof(float));
    if (!p.b16 || !p.a || !p.b || !p.from || !p.before || !p.vis || !p.want || !p.got || !p.ahead) abort();
    rng_fill(r, p.a, PRODUCT_ROWS * PRODUCT_DEPTH);
    rng_fill(r, p.from, cells);
    rng_fill(r, p.before, cells);
    rng_fill(r, p.fold_a, PRODUCT_ROWS);
    rng_fill(r, p.fold_b, PRODUCT_ROWS);
    for (int i = 0; i < PRODUCT_ROWS * ATTN__CHUNK; i++) p.vis[i] = rng_int(r, 0, 2) ? 1.0f : 0.0f;
    return p;
}

static void product_free(product *p)
{
    free(p->b16); free(p->a); free(p->b); free(p->from); free(p->before); free(p->vis); free(p->want); free(p->got);
    free(p->ahead);
}

/* Numbers near 1, denormals of half, and with `wild` any bits. */
static void product_numbers(product *p, rng *r, attn_storage storage, int wild)
{
    const size_t values = 16 * PRODUCT_PANELS * PRODUCT_DEPTH;
    for (size_t i = 0; i < values; i++) {
        const int kind = rng_int(r, 0, wild ? 20 : 3);
        p->b16[i] = kind == 0 ? (unsigned short)(rng_u32(r) & 0x83FF) : kind == 4 ? (unsigned short)rng_u32(r)
                  : (unsigned short)((storage == ATTN_F16 ? 0x3800u : 0x3F00u) | (rng_u32(r) & 0x87FF));
        p->b[i] = attn__widen_one(p->b16[i], storage);
    }
}

/* Runs g with floats and with 16 bits; what: 0 gemm, 1 select. The NaN of an operation may have any sign. */
static void product_compare(const product *p, const way *w, attn__gemm g, attn_storage storage, int what)
{
    const size_t width = (size_t)(16 * g.panels), cells = (size_t)g.rows * width;
    for (int stored = 0; stored < 2; stored++) {
        float *c = stored ? p->got : p->want;
        g.stored = stored ? storage : ATTN_F32;
        g.b = stored ? (const void *)p->b16 : (const void *)p->b;
        g.c = c;
        memcpy(c, p->before, cells * sizeof *c);
        if (what) w->kernels->select(&g, p->vis);
        else w->kernels->gemm(&g);
    }
    for (size_t i = 0; i < cells; i++)
        if (float_bits(p->got[i]) != float_bits(p->want[i]) && !(isnan(p->got[i]) && isnan(p->want[i]))) {
            CHECKF(0, "%s, %s %s: %d x %d, %d panels, from %d, fold %d: cell %d is %.9g, not %.9g", w->name,
                   format_names[storage], what ? "select" : "gemm", g.rows, g.depth, g.panels,
                   g.from ? g.from_row ? 2 : 1 : 0, g.fold_a != NULL, (int)i, (double)p->got[i], (double)p->want[i]);
            return;
        }
    test_checks++;
}

static void products(void)
{
    static const int depths[] = {0, 1, 2, 7, 64, 128, PRODUCT_DEPTH};
    rng r = rng_make(test_seed + 1);
    product p = product_make(&r);
    way ways[17];
    const int n = all_ways(ways);
    for (int round = 0; round < 2 * FORMATS; round++) {
        const attn_storage storage = formats[round % 2];
        product_numbers(&p, &r, storage, round / 2);
        for (int i = 0; i < n; i++)
            for (int rows = 1; rows <= PRODUCT_ROWS; rows++)
                for (int panels = 1; panels <= PRODUCT_PANELS; panels++)
                    for (int d = 0; d < 7 && !test_failed(); d++)
                        for (int k = 0; k < 6; k++) {       /* from: none, one row, a matrix; folded or not */
                            attn__gemm g = {0};
                            const int rows_of_b = rng_int(&r, 0, 1);
                            g.a = p.a;
                            g.a_row = PRODUCT_DEPTH;
                            g.b_step = rows_of_b ? 16 * panels : 16;      /* as plain rows, or panel behind panel */
                            g.b_panel = rows_of_b ? 16 : 16 * depths[d];
                            g.from = k % 3 ? p.from : NULL;
                            g.from_row = k % 3 == 2 ? 16 * panels : 0;
                            g.c_row = 16 * panels;
                            if (k / 3) { g.fold_a = p.fold_a; g.fold_b = p.fold_b; }
                            g.ahead = rng_int(&r, 0, 2) ? p.ahead : NULL;
                            g.ahead_row = rng_int(&r, 0, 1) ? 16 * panels : 0;
                            g.rows = rows;
                            g.panels = panels;
                            g.depth = depths[d];
                            with_f16c(ways[i].f16c);
                            product_compare(&p, ways + i, g, storage, 0);
                            if (ways[i].kernels->select && depths[d] <= ATTN__CHUNK)
                                product_compare(&p, ways + i, g, storage, 1);
                        }
    }
    with_f16c(1);
    product_free(&p);
}

/* Is something not finite? One value at a time, at every place. */
static void not_finite(void)
{
    enum { PANELS = 2, DEPTH = 5, VALUES = PANELS * DEPTH * 16 };
    static const unsigned bad[FORMATS][4] = {{0x7C00, 0xFC00, 0x7C01, 0xFFFF}, {0x7F80, 0xFF80, 0x7F81, 0xFFFF}};
    unsigned short *b = guard_alloc(2 * VALUES);
    way ways[17];
    const int n = all_ways(ways);
    for (int i = 0; i < n; i++)
        for (int f = 0; f < FORMATS; f++) {
            attn__gemm g = {0};
            if (!ways[i].kernels->not_finite) continue;
            with_f16c(ways[i].f16c);
            g.stored = formats[f];
            g.b = b;
            g.b_step = 16;
            g.b_panel = 16 * DEPTH;
            g.panels = PANELS;
            g.depth = DEPTH;
            for (int k = 0; k < VALUES; k++) b[k] = (unsigned short)(infinite[formats[f]] - 1);   /* the largest */
            CHECKF(!ways[i].kernels->not_finite(&g), "%s: all of them are finite", ways[i].name);
            for (int k = 0; k < 4 * VALUES; k++) {
                b[k / 4] = (unsigned short)bad[f][k % 4];
                CHECKF(ways[i].kernels->not_finite(&g), "%s: %s %04x at %d", ways[i].name, format_names[formats[f]],
                       bad[f][k % 4], k / 4);
                b[k / 4] = 0;
            }
        }
    with_f16c(1);
    guard_free(b);
}

extern const test_case suite_storage[];
SUITE(storage) = {
    {"widen all", widen_all, "one of the 65,536 values of a format that becomes the wrong float, on one of the backends"},
    {"there and back", narrow_back, "a value that does not survive being widened and rounded; a NaN that becomes Inf"},
    {"boundaries", narrow_boundaries, "a float rounded away from the nearest value, or a tie that does not go to even"},
    {"ends", narrow_ends, "overflow, denormals, Inf or NaN that another backend, or the processor, treats otherwise"},
    {"ways agree", ways_agree, "bits that depend on the backend, on F16C or on the number of values; writing past the end"},
    {"products", products, "a product with 16-bit values that is not the one with the same values as floats"},
    {"not finite", not_finite, "an Inf or NaN in 16 bits that nobody sees, or a large number taken for one"},
    {0}};
