/* storage.h: 16-bit storage. The kernels are private: part of private.c. Simulates processors with and without F16C.
 * The references are computed from doubles and neighbours, not by the shifts of attn.h. */

enum { FORMATS = 2 };
static const attn_storage formats[FORMATS] = {ATTN_F16, ATTN_BF16};
static const char *const format_names[3] = {"float", "half", "bfloat16"};
/* the smallest pattern of Inf; bits of the fraction; value of the pattern 1 */
static const unsigned infinite[3] = {0, 0x7C00, 0x7F80};
static const int digits[3] = {0, 10, 7}, least[3] = {0, -24, -133};

/* ---- every way there is here to convert and to multiply ------------------------------------------------------ */
typedef struct way { const attn__kernels *kernels; int f16c; const char *name; } way;

#ifdef ATTN__X86
static void with_f16c(int f16c)           /* simulates a processor with or without it */
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
/* value of a pattern of 16 bits, not for NaN */
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
    for (int i = 0; i < 37; i++) from[i] = x;               /* whole vectors and a remainder */
    w->kernels->narrow(many, from, 37, storage);
    for (int i = 0; i < 37; i++)
        if (many[i] != want) {
            CHECKF(0, "%s: %.9g (%08x) becomes %s %04x, not %04x", w->name, (double)x, float_bits(x),
                   format_names[storage], many[i], want);
            return;
        }
    test_checks++;
}

/* x[i]: the result of one conversion for the 16 bits i, for all 65,536 */
static void widen_every(const way *w, attn_storage storage, float *x)
{
    static unsigned short h[65536];
    for (int i = 0; i < 65536; i++) h[i] = (unsigned short)i;
    with_f16c(w->f16c);
    w->kernels->widen(x, h, 65536, storage);
}

static void widen_all(void)
{
    static float x[65536];
    way ways[17];
    const int n = all_ways(ways);
    for (int w = 0; w < n; w++)
        for (int f = 0; f < FORMATS; f++) {
            const attn_storage storage = formats[f];
            widen_every(&ways[w], storage, x);
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
    static unsigned short back[65536];
    static float x[65536];
    way ways[17];
    const int n = all_ways(ways);
    for (int w = 0; w < n; w++)
        for (int f = 0; f < FORMATS; f++) {
            const attn_storage storage = formats[f];
            const unsigned quiet = 1u << (digits[storage] - 1);
            widen_every(&ways[w], storage, x);
            ways[w].kernels->narrow(back, x, 65536, storage);
            for (unsigned i = 0; i < 65536 && !test_failed(); i++) {
                const unsigned want = (i & 0x7FFF) > infinite[storage] ? i | quiet : i;
                CHECKF(back[i] == want, "%s: %s %04x comes back as %04x", ways[w].name, format_names[storage], i,
                       back[i]);
            }
        }
    with_f16c(1);
}

/* The middle of two neighbours of the format is rounded to the even one, and the floats next to the middle to the
   nearer one. */
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
                    /* the number that would follow the largest one if Inf did not exist */
                    const double low = worth(h, storage);
                    const double high = h + 1 < infinite[storage] ? worth(h + 1, storage)
                                                                  : 2 * low - worth(h - 1, storage);
                    const float at = (float)(sign ? -low : low);
                    const float middle = (float)(sign ? -(low + high) / 2 : (low + high) / 2);
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

/* The ends: overflow, numbers below half of the smallest, Inf and NaN. */
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

/* Any bits, any count, at any address: the results of the scalar functions, and no access outside the arrays. */
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
            /* any bits, or an exponent that half can represent */
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
enum { PRODUCT_ROWS = 16, PRODUCT_PANELS = 9, PRODUCT_DEPTH = 200 };

/* The product with 16-bit values must have the bits of the product with the same values as floats. */
typedef struct product {
    unsigned short *b16;
    float *a, *b, *from, *before, *vis, *want, *got, fold_a[PRODUCT_ROWS], fold_b[PRODUCT_ROWS];
    float *ahead;
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
    const size_t width = (size_t)(16 * g.n_panels), cells = (size_t)g.rows * width;
    for (int stored = 0; stored < 2; stored++) {
        float *c = stored ? p->got : p->want;
        g.stored = stored ? storage : ATTN_F32;
        g.b = stored ? (const void *)p->b16 : (const void *)p->b;
        g.c = c;
        memcpy(c, p->before, cells * sizeof *c);
        if (what) w->kernels->select(&g, p->vis, NULL, 0);
        else w->kernels->gemm(&g);
    }
    for (size_t i = 0; i < cells; i++)
        if (float_bits(p->got[i]) != float_bits(p->want[i]) && !(isnan(p->got[i]) && isnan(p->want[i]))) {
            CHECKF(0, "%s, %s %s: %d x %d, %d panels, from %d, fold %d: cell %d is %.9g, not %.9g", w->name,
                   format_names[storage], what ? "select" : "gemm", g.rows, g.depth, g.n_panels,
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
        for (int i = 0; i < n; i++) {
            const int scalar = ways[i].kernels->backend == ATTN_SCALAR;       /* slow, and without tiles: fewer sizes */
            with_f16c(ways[i].f16c);
            for (int rows = 1; rows <= PRODUCT_ROWS && ways[i].kernels->reads(storage);
                 rows += scalar ? 5 : rows < 7 ? 1 : 3)
                for (int panels = 1; panels <= PRODUCT_PANELS; panels += scalar ? 4 : rows > 4 ? 2 : 1)
                    for (int d = 0; d < 7 && !test_failed(); d++)
                        for (int k = rng_int(&r, 0, 1); k < 6; k += 2) {     /* from: none, a row, a matrix; with or
                                                                                without fold */
                            attn__gemm g = {0};
                            const int rows_of_b = rng_int(&r, 0, 1);
                            g.a = p.a;
                            g.a_row = PRODUCT_DEPTH;
                            g.b_step = rows_of_b ? 16 * panels : 16;      /* as plain rows, or panel after panel */
                            g.b_panel = rows_of_b ? 16 : 16 * depths[d];
                            g.from = k % 3 ? p.from : NULL;
                            g.from_row = k % 3 == 2 ? 16 * panels : 0;
                            g.c_row = 16 * panels;
                            if (k / 3) { g.fold_a = p.fold_a; g.fold_b = p.fold_b; }
                            g.prefetch = rng_int(&r, 0, 2) ? p.ahead : NULL;
                            g.rows = rows;
                            g.n_panels = panels;
                            g.depth = depths[d];
                            product_compare(&p, ways + i, g, storage, 0);
                            if (ways[i].kernels->select && depths[d] <= ATTN__CHUNK)
                                product_compare(&p, ways + i, g, storage, 1);
                        }
        }
    }
    with_f16c(1);
    product_free(&p);
}

/* One value that is not finite, at every place; also as floats, if kernels do not read this storage. */
static void not_finite(void)
{
    enum { PANELS = 2, DEPTH = 5, VALUES = PANELS * DEPTH * 16 };
    static const unsigned bad[FORMATS][4] = {{0x7C00, 0xFC00, 0x7C01, 0xFFFF}, {0x7F80, 0xFF80, 0x7F81, 0xFFFF}};
    unsigned short *b = guard_alloc(2 * VALUES);
    float *x = guard_floats(VALUES);
    way ways[17];
    const int n = all_ways(ways);
    for (int i = 0; i < n; i++)
        for (int f = 0; f < FORMATS; f++) {
            attn__gemm g = {0};
            if (!ways[i].kernels->not_finite) continue;
            with_f16c(ways[i].f16c);
            g.stored = ways[i].kernels->reads(formats[f]) ? formats[f] : ATTN_F32;
            g.b = g.stored == ATTN_F32 ? (const void *)x : b;
            g.b_step = 16;
            g.b_panel = 16 * DEPTH;
            g.n_panels = PANELS;
            g.depth = DEPTH;
            for (int k = 0; k < VALUES; k++) {
                b[k] = (unsigned short)(infinite[formats[f]] - 1);                        /* the largest */
                x[k] = attn__widen_one(b[k], formats[f]);
            }
            CHECKF(!ways[i].kernels->not_finite(&g), "%s: all of them are finite", ways[i].name);
            for (int k = 0; k < 4 * VALUES; k++) {
                b[k / 4] = (unsigned short)bad[f][k % 4];
                x[k / 4] = attn__widen_one(b[k / 4], formats[f]);
                CHECKF(ways[i].kernels->not_finite(&g), "%s: %s %04x at %d", ways[i].name, format_names[formats[f]],
                       bad[f][k % 4], k / 4);
                b[k / 4] = 0;
                x[k / 4] = 0.0f;
            }
        }
    with_f16c(1);
    guard_free(x);
    guard_free(b);
}

/* ---- attn_narrow and attn_widen ---------------------------------------------------------------------------------- */
static void public_functions(void)
{
    enum { N = 1000 };
    float x[N], y[N];
    unsigned short h[N], want[N];
    struct { union { float f; unsigned short h; char bytes[4 * N + 8]; } u; } room;
    char *const mem = room.u.bytes;
    rng r = rng_make(test_seed + 2);
    rng_fill(&r, x, N);
    for (int f = 0; f < FORMATS; f++) {
        attn__narrow_scalar(want, x, N, formats[f]);
        CHECK(attn_narrow(h, x, N, formats[f]) == ATTN_OK && !memcmp(h, want, sizeof h));
        CHECK(attn_widen(y, h, N, formats[f]) == ATTN_OK);
        for (int i = 0; i < N; i++) CHECK(y[i] == (float)worth(h[i], formats[f]));
    }
    CHECK(attn_narrow(y, x, N, ATTN_F32) == ATTN_OK && same_bits(x, y, N));
    memset(y, 0, sizeof y);
    CHECK(attn_widen(y, x, N, ATTN_F32) == ATTN_OK && same_bits(x, y, N));
    CHECK(attn_widen(y, y, N, ATTN_F32) == ATTN_OK && attn_narrow(y, y, N, ATTN_F32) == ATTN_OK && same_bits(x, y, N));
    CHECK(attn_narrow(NULL, NULL, 0, ATTN_F16) == ATTN_OK && attn_widen(NULL, NULL, 0, ATTN_BF16) == ATTN_OK);

    memset(room.u.bytes, 0x77, sizeof room.u.bytes);
#define BOTH(a, b, n, s, status, words) \
    REFUSED(attn_narrow((void *)(a), (const float *)(const void *)(b), n, (attn_storage)(s)), status, \
            "attn_narrow: " words); \
    REFUSED(attn_widen((float *)(void *)(a), (b), n, (attn_storage)(s)), status, "attn_widen: " words)
    BOTH(mem, x, 4, ATTN_Q8_0, ATTN_E_OPTION, "storage is 4 but its values are 0..3");
    BOTH(mem, x, 0, -1, ATTN_E_OPTION, "storage is -1");
    BOTH(mem, x, SIZE_MAX / 4 + 1, ATTN_F16, ATTN_E_OVERFLOW, "n is more");
    BOTH(NULL, x, 1, ATTN_F16, ATTN_E_NULL, "to is NULL");
    BOTH(mem, NULL, 1, ATTN_BF16, ATTN_E_NULL, "from is NULL");
    BOTH(mem + 1, x, 1, ATTN_F16, ATTN_E_ALIGN, "to is not aligned");
    BOTH(mem, mem + 401, 1, ATTN_BF16, ATTN_E_ALIGN, "from is not aligned");
    BOTH(mem + 2, x, 1, ATTN_F32, ATTN_E_ALIGN, "to is not aligned");
    BOTH(mem, mem + 402, 1, ATTN_F32, ATTN_E_ALIGN, "from is not aligned");
    REFUSED(attn_widen((float *)(void *)(mem + 2), h, 1, ATTN_F16), ATTN_E_ALIGN, "to is not aligned");
    REFUSED(attn_narrow(h, (float *)(void *)(mem + 2), 1, ATTN_F16), ATTN_E_ALIGN, "from is not aligned");
    BOTH(mem, mem, 4, ATTN_F16, ATTN_E_OVERLAP, "to overlaps from");
    BOTH(mem, mem + 4, 4, ATTN_BF16, ATTN_E_OVERLAP, "to overlaps from");
    BOTH(mem + 4, mem, 4, ATTN_F32, ATTN_E_OVERLAP, "to overlaps from");
    REFUSED(attn_narrow(mem + 12, (float *)(void *)mem, 4, ATTN_F16), ATTN_E_OVERLAP, "to overlaps from");
    REFUSED(attn_widen((float *)(void *)(mem + 4), mem, 4, ATTN_F16), ATTN_E_OVERLAP, "to overlaps from");
#undef BOTH
    for (size_t i = 0; i < sizeof room.u.bytes; i++) CHECK(mem[i] == 0x77);
    /* adjacent arrays do not overlap; 16 bits need not be aligned as floats are */
    CHECK(attn_narrow(mem + 16, (float *)(void *)mem, 4, ATTN_F16) == ATTN_OK);
    CHECK(attn_widen((float *)(void *)(mem + 8), mem, 4, ATTN_F16) == ATTN_OK);
    CHECK(attn_narrow(mem + 402, x, 4, ATTN_F16) == ATTN_OK && attn_widen(y, mem + 402, 4, ATTN_F16) == ATTN_OK);
    CHECK(fabsf(y[3] - x[3]) < 1e-2f);

    CHECK(attn_stored_bytes(5, ATTN_F32) == 20 && attn_stored_bytes(5, ATTN_F16) == 10);
    CHECK(attn_stored_bytes(5, ATTN_BF16) == 10 && attn_stored_bytes(0, ATTN_F16) == 0);
    CHECK(attn_stored_bytes(32, ATTN_Q8_0) == SIZE_MAX && attn_stored_bytes(5, (attn_storage)-1) == SIZE_MAX);
    CHECK(attn_stored_bytes(SIZE_MAX / 2, ATTN_F16) == SIZE_MAX);
}

/* ---- linears ----------------------------------------------------------------------------------------------------- */
#ifdef ATTN__X86
/* Linears use the best backend: simulates processors without it. Returns their number; -1: unchanged. */
static int play(int i)
{
    static const unsigned lacks[] = {0, 1u << ATTN_AVX512, 1u << ATTN_AVX512 | 1u << ATTN__CPU_F16C,
                                     1u << ATTN_AVX512 | 1u << ATTN_AVX2, ~(1u | 1u << ATTN_SCALAR)};
    static unsigned word;
    if (!word) word = attn__cpu();
    attn__cpu_word = word & ~lacks[i < 0 ? 0 : i];
    return (int)(sizeof lacks / sizeof *lacks);
}
#else
static int play(int i) { (void)i; return 1; }
#endif

static float *numbers(rng *r, size_t n)
{
    float *x = malloc((n + 1) * sizeof *x);
    if (!x) abort();
    rng_fill(r, x, n);
    return x;
}

/* values of a format, and the same values as floats; some are denormal, and sometimes one is Inf */
static unsigned short *rounded(rng *r, float *w, size_t n, attn_storage storage)
{
    unsigned short *h = guard_alloc(2 * n);
    for (size_t i = 0; i < n; i += 17) w[i] *= 1e-6f;
    if (rng_int(r, 0, 9) == 0) w[rng_int(r, 0, (int)n - 1)] = 1e30f;
    CHECK(attn_narrow(h, w, n, storage) == ATTN_OK);
    return h;
}

/* ---- 8 bits -------------------------------------------------------------------------------------------------- */
/* Processors with this backend may lack its dot products of bytes. */
#ifdef ATTN__NEON_ASKS
enum { MAY_LACK = ATTN_NEON, DOTS = ATTN__CPU_SDOT };
#else
enum { MAY_LACK = ATTN_AVX512, DOTS = ATTN__CPU_VNNI };
#endif
static void with_dots(int dots)           /* simulates a processor with or without them */
{
#if defined(ATTN__X86) || defined(ATTN__NEON_ASKS)
    static unsigned word;
    if (!word) word = attn__cpu();
    attn__cpu_word = dots ? word : word & ~(1u << DOTS);
#else
    (void)dots;
#endif
}

/* The integer kernel against plain sums: any shape, the ends of the range, and processors that lack dot products. */
static void byte_scores(void)
{
    enum { ROWS = 9, PANELS = 8, DEPTH = 72 };
    static signed char k[ROWS * PANELS * 16 * DEPTH], q[ROWS * (DEPTH + 4)];
    static float c[ROWS * PANELS * 16], scale[ROWS * PANELS * 16], by[2 * ROWS];
    attn_backend list[16];
    const int n = test_all_backends(list, 16);
    rng r = rng_make(test_seed);
    rng_fill(&r, scale, ROWS * PANELS * 16);
    rng_fill(&r, by, 2 * ROWS);
    for (int round = 0; round < 300 * test_scale && !test_failed(); round++) {
        const int rows = rng_int(&r, 1, ROWS), panels = rng_int(&r, 1, PANELS), depth = rng_int(&r, 1, DEPTH);
        const int width = (depth + 3) / 4 * 4, apart = rng_int(&r, 0, 1), ends = rng_int(&r, 0, 2) == 0;
        const int q_row = width + 4;
        for (size_t i = 0; i < sizeof k; i++)
            k[i] = (signed char)(ends ? rng_int(&r, 0, 1) * 254 - 127 : rng_int(&r, -127, 127));
        memset(q, 0, sizeof q);
        for (int row = 0; row < rows; row++) {
            int sum = 0;
            for (int t = 0; t < depth; t++) {
                const int x = ends ? rng_int(&r, 0, 1) * 254 - 127 : rng_int(&r, -127, 127);
                q[row * q_row + 4 + t] = (signed char)x;
                sum += x;
            }
            memcpy(q + row * q_row, &sum, sizeof sum);
        }
        for (int i = 0; i <= n; i++) {
            const attn_backend backend = i < n ? list[i] : (attn_backend)MAY_LACK;
            const attn__kernels *kernels = attn__table(backend);
            const attn__byte_rows queries = {q, q_row, by, 1 + apart, scale, apart ? 16 * PANELS : 0};
            attn__gemm g;
            if (!kernels || !kernels->score_bytes) continue;     /* scalar has none */
            with_dots(i < n);
            memset(&g, 0, sizeof g);
            memset(c, 0, sizeof c);
            g.b = k, g.b_panel = 16 * width, g.b_row = apart ? panels * 16 * width : 0;
            g.c = c, g.c_row = PANELS * 16, g.rows = rows, g.depth = depth, g.n_panels = panels;
            g.prefetch = round % 2 ? k : NULL;
            kernels->score_bytes(&g, queries);
            with_dots(1);
            for (int row = 0; row < rows; row++)
                for (int x = 0; x < 16 * panels; x++) {
                    const signed char *at = k + (apart ? row * panels * 16 * width : 0) + x / 16 * 16 * width +
                                            x % 16 * 4;
                    int want = 0;
                    for (int t = 0; t < depth; t++) want += at[t / 4 * 64 + t % 4] * q[row * q_row + 4 + t];
                    const float factor = scale[(apart ? row * 16 * PANELS : 0) + x] * by[row * (1 + apart)];
                    const float score = (float)want * factor;
                    if (c[row * PANELS * 16 + x] != score) {
                        CHECKF(0, "%s%s: row %d of %d, key %d, depth %d: %.9g, not %.9g", attn_backend_name(backend),
                               i == n ? " without dot products" : "", row, rows, x, depth,
                               (double)c[row * PANELS * 16 + x], (double)score);
                        return;
                    }
                }
            test_checks++;
        }
    }
}

/* Rows are rounded to 8 bits as the scalar specification does: halves, NaN, Inf, zeros and denormal values included. */
static void byte_rounding(void)
{
    enum { MOST = 70 };
    static const float odd[] = {0.0f, -0.0f, 1e-38f, 1e-42f, 3e38f, -3e38f};
    attn_backend list[16];
    const int n = test_all_backends(list, 16);
    rng r = rng_make(test_seed + 8);
    for (int round = 0; round < 2000 * test_scale && !test_failed(); round++) {
        const int many = rng_int(&r, 1, MOST), halves = rng_int(&r, 0, 2);
        float *x = guard_floats((size_t)many);
        signed char want[MOST], *to = guard_alloc((size_t)many);
        int sum, total;
        float scale;
        rng_fill(&r, x, (size_t)many);
        for (int i = 0; halves && i < many; i++) x[i] = (float)rng_int(&r, -254, 254) * 0.5f;
        if (halves == 1) x[rng_int(&r, 0, many - 1)] = 127.0f;            /* then the factor is 1 */
        if (rng_int(&r, 0, 3) == 0) x[rng_int(&r, 0, many - 1)] = odd[rng_int(&r, 0, 5)];
        if (rng_int(&r, 0, 9) == 0) x[rng_int(&r, 0, many - 1)] = rng_int(&r, 0, 1) ? NAN : -INFINITY;
        for (int i = 0; round % 20 == 0 && i < many; i++) x[i] = odd[rng_int(&r, 0, 3)];
        scale = attn__round_row_scalar(want, x, (size_t)many, &sum);
        for (int b = 0; b < n; b++) {
            const float got = attn__table(list[b])->round_row(to, x, (size_t)many, &total);
            CHECKF(!memcmp(to, want, (size_t)many) && total == sum && same_bits(&got, &scale, 1),
                   "%s: %d values, halves %d", attn_backend_name(list[b]), many, halves);
        }
        guard_free(x);
        guard_free(to);
    }
}

/* A block of 32 values by the definition: integers, and the scale. */
static float eight_block(const float *x, int n, int *to)
{
    volatile float most = 0.0f, scale, factor;
    int odd = 0;
    for (int i = 0; i < 32; i++) to[i] = 0;
    for (int i = 0; i < n; i++) {
        odd |= !isfinite(x[i]);
        if (fabsf(x[i]) > most) most = fabsf(x[i]);
    }
    if (odd) return NAN;
    if ((double)most < ldexp(1.0, -119)) return 0.0f;
    scale = most / 127.0f;
    factor = 127.0f / most;
    for (int i = 0; i < n; i++) to[i] = (int)rint((double)x[i] * (double)factor);
    return scale;
}

/* The same for a block that is given in 8 bits. */
static float given_block(const unsigned char *block, int *to)
{
    float x[32];
    return q8_0_values(x, block) ? (float)q8_0_read(block, to) : eight_block(x, 32, to);
}

typedef struct eight { float scale; int x[32]; } eight;
static eight *eight_blocks(int n)
{
    eight *p = malloc((size_t)n * sizeof *p);
    if (!p) abort();
    return p;
}

/* A linear in 8 bits by the definition, with a product and a sum that are rounded once or twice. given: the weights in
   8 bits, or NULL. */
static void eight_linear(float *y, const float *x, ptrdiff_t x_row, const float *w, const unsigned char *given,
                         const float *b, int rows, int n_in, int n_out, int fused)
{
    const int blocks = (n_in + 31) / 32;
    eight *const p = eight_blocks(rows * blocks), *const q = eight_blocks(n_out * blocks);
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < blocks; k++)
            p[r * blocks + k].scale = eight_block(x + r * x_row + 32 * k, k + 1 < blocks ? 32 : n_in - 32 * k,
                                                  p[r * blocks + k].x);
    for (int o = 0; o < n_out; o++)
        for (int k = 0; k < blocks; k++) {
            eight *const to = q + o * blocks + k;
            to->scale = given ? given_block(given + (o * blocks + k) * Q8_0_BYTES, to->x)
                              : eight_block(w + o * n_in + 32 * k, k + 1 < blocks ? 32 : n_in - 32 * k, to->x);
        }
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < n_out; o++) {
            volatile float sum = b ? b[o] : 0.0f, chain = sum, term, scale;
            for (int at = 0; at < n_in; at += 32) {
                const eight *const px = p + r * blocks + at / 32, *const qx = q + o * blocks + at / 32;
                int dot = 0;
                for (int i = 0; i < 32; i++) dot += px->x[i] * qx->x[i];
                if (at && at % 256 == 0) chain = 0.0f;
                scale = px->scale * qx->scale;
                term = (float)dot * scale;
                chain = fused ? test_fmaf((float)dot, scale, chain) : term + chain;
                if ((at + 32) % 256 == 0 || at + 32 >= n_in) sum = at < 256 ? chain : sum + chain;
            }
            y[r * n_out + o] = sum == sum ? sum : bits_float(0x7FC00000u);
        }
    free(p); free(q);
}

/* Values that a block of 8 bits may hold: halves of integers with a largest one of 127, denormal and huge numbers,
   zeros of both signs, and sometimes a NaN or an infinity. */
static void eight_values(rng *r, float *x, int rows, int n)
{
    static const float odd[] = {-0.0f, 1e-38f, -1e-42f, 3e38f, 1.4e-36f, 1.6e-36f};
    rng_fill(r, x, (size_t)(rows * n));
    for (int i = 0; i < rows; i++)
        for (int at = 0; at < n; at += 32) {
            const int kind = rng_int(r, 0, 9), many = n - at < 32 ? n - at : 32;
            float *p = x + i * n + at;
            if (kind == 0) for (int k = 0; k < many; k++) p[k] = (float)rng_int(r, -254, 254) * 0.5f;
            if (kind <= 1) p[rng_int(r, 0, many - 1)] = kind ? odd[rng_int(r, 0, 5)] : -127.0f;
            if (kind == 2) for (int k = 0; k < many; k++) p[k] *= rng_int(r, 0, 1) ? 1e-38f : 1e-36f;
            if (kind == 3) for (int k = 0; k < many; k++) p[k] = rng_int(r, 0, 1) ? 0.0f : -0.0f;
            if (kind == 4) for (int k = 0; k < many; k++) p[k] = rng_int(r, 0, 1) ? 5.0f : -5.0f;
        }
    if (rng_int(r, 0, 3) == 0) x[rng_int(r, 0, rows * n - 1)] = rng_int(r, 0, 1) ? NAN : -INFINITY;
}

/* A linear in 8 bits has the bits of its definition on every backend, with and without dot products, for any number of
   rows, any stride, from weights of every format; init packs the same bytes everywhere. */
static void byte_linears(void)
{
    static const int sizes[] = {1, 7, 31, 32, 33, 64, 255, 256, 257, 288, 1000};
    static const int outs[] = {1, 3, 15, 16, 17, 31, 32, 33, 47, 48, 64, 65, 70};
    static const int heights[] = {1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 23, 24, 25, 26, 49};
    attn_backend list[16], common[16];
    const int n = test_all_backends(list, 16), n_common = test_one_answer_backends(common, 16);
    rng seeds = rng_make(test_seed + 12);
    for (int round = 0; round < 200 * test_scale && !test_failed(); round++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int tall = round % 40 == 0, n_in = tall ? rng_int(&r, 6100, 6300) : sizes[rng_int(&r, 0, 10)];
        const int n_out = outs[rng_int(&r, 0, 12)], rows = tall ? rng_int(&r, 1, 2) : heights[rng_int(&r, 0, 16)];
        const int x_row = rng_int(&r, 0, 2) ? n_in : rng_int(&r, 1, n_in + 9), panels = (n_out + 15) / 16;
        const size_t n_w = (size_t)(n_in * n_out), n_y = (size_t)(rows * n_out);
        const size_t n_x = (size_t)((rows - 1) * x_row + n_in);
        const attn_storage given = n_in % 32 == 0 && rng_int(&r, 0, 1) ? ATTN_Q8_0 : (attn_storage)rng_int(&r, 0, 2);
        float *w = numbers(&r, n_w), *b = rng_int(&r, 0, 1) ? numbers(&r, (size_t)n_out) : NULL;
        float *x = guard_floats(n_x), *want[2] = {numbers(&r, n_y), numbers(&r, n_y)}, *y = guard_floats(n_y);
        unsigned short *h = guard_alloc(2 * n_w);
        unsigned char *first = NULL, *q8_0 = NULL;
        attn_linear_args a = {.n_in = n_in, .n_out = n_out, .w = w, .b = b, .w_storage = given, .storage = ATTN_Q8};
        const size_t size = attn_linear_size(&a);
        attn_linear l;
        eight_values(&r, w, n_out, n_in);
        eight_values(&r, x, 1, (int)n_x);
        if (b && rng_int(&r, 0, 3) == 0) b[0] = -0.0f;
        if (given == ATTN_Q8_0) a.w = q8_0 = q8_0_weights(&r, w, (int)n_w / 32, rng_int(&r, 0, 1), 0);
        else if (given != ATTN_F32) {
            CHECK(attn_narrow(h, w, n_w, given) == ATTN_OK && attn_widen(w, h, n_w, given) == ATTN_OK);
            a.w = h;
        }
        for (int k = 0; k < 2; k++) eight_linear(want[k], x, x_row, w, q8_0, b, rows, n_in, n_out, k);
        CHECK(size == 128 + 64 + (size_t)(panels * ((n_in + 31) / 32 * 576 + 64)));
        for (int p = play(-1) - 1; p >= 0; p--) {
            unsigned char *mem = guard_alloc(size);
            play(p);
            memset(mem, 0xAA, size);
            a.mem = mem;
            a.mem_size = size;
            CHECK(attn_linear_init(&l, &a) == ATTN_OK && l.storage == ATTN_Q8);
            if (!first) memcpy(first = guard_alloc(size), mem, size);
            else CHECKF(!memcmp(first, mem, size), "seed %llu: other packed bytes on %s", seed,
                        attn_backend_name(attn__table(ATTN_AUTO)->backend));
            guard_free(mem);
        }
        play(-1);
        a.mem = NULL;
        a.mem_size = 0;
        a.w = a.packed = NULL;
        a.b = NULL;
        a.packed = first;
        a.packed_size = size;
        CHECK(attn_linear_init(&l, &a) == ATTN_OK);
        for (int i = 0; i <= n; i++) {
            const attn_backend backend = i < n ? list[i] : (attn_backend)MAY_LACK;
            const attn__linear_job job = {attn__table(backend), &l, x, x_row, NULL};
            const int cut = rng_int(&r, 0, panels);
            int fused = 0;
            if (!job.kernels) continue;
            with_dots(i < n);
            for (int k = 0; k < n_common; k++) fused |= common[k] == backend;
            memset(y, 0x77, n_y * sizeof *y);
            if (cut > 0) attn__linear_bytes_rows(&job, y, rows, 0, cut);
            if (cut < panels) attn__linear_bytes_rows(&job, y, rows, cut, panels);
            with_dots(1);
            CHECKF(same_bits(y, want[fused], n_y), "seed %llu: %d to %d, %d rows %d apart, on %s%s", seed, n_in, n_out,
                   rows, x_row, attn_backend_name(backend), i == n ? " without dot products" : "");
        }
        attn_linear_free(&l);
        free(w); free(b); free(want[0]); free(want[1]);
        guard_free(x); guard_free(y); guard_free(h); guard_free(first); guard_free(q8_0);
    }
}

static void linears(void)
{
    static const int sizes[] = {1, 7, 15, 16, 17, 64, 200, 255, 256, 257, 300};
    static const int heights[] = {1, 2, 3, 4, 5, 13, 24, 25, 97, 100};
    rng seeds = rng_make(test_seed + 3);
    for (int i = 0; i < 150 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int wide = i % 10 == 0;       /* rows of weights 4 KB apart, and one row: 8 share a set of L1 at a time */
        const int n_in = wide ? 1024 : sizes[rng_int(&r, 0, 10)], n_out = sizes[rng_int(&r, 0, 10)];
        const int rows = wide ? 1 : heights[rng_int(&r, 0, 9)];
        const size_t n_w = (size_t)(n_in * n_out), n_y = (size_t)(rows * n_out);
        const attn_storage storage = formats[i % FORMATS];
        float *w = numbers(&r, n_w), *b = rng_int(&r, 0, 1) ? numbers(&r, (size_t)n_out) : NULL;
        float *back = numbers(&r, n_w);
        float *x = numbers(&r, (size_t)(rows * n_in)), *want = numbers(&r, n_y), *y = guard_floats(n_y);
        unsigned short *h = rounded(&r, w, n_w, storage);
        attn_exec exec = test_exec(rng_int(&r, 2, 4));
        unsigned char *first = NULL;        /* packed memory, the same bytes everywhere */
        CHECK(attn_widen(back, h, n_w, storage) == ATTN_OK);
        for (int p = play(-1) - 1; p >= 0; p--) {
            attn_linear_args a = {.n_in = n_in, .n_out = n_out, .w = back, .b = b};
            attn_linear l;
            play(p);
            /* scalar is slow, and computes one row like another */
            const int some = rows > 13 && attn__table(ATTN_AUTO)->backend == ATTN_SCALAR ? 13 : rows;
            const size_t n_some = (size_t)(some * n_out);
            CHECK(attn_linear_init(&l, &a) == ATTN_OK && attn_linear_run(&l, want, x, some, 0, NULL) == ATTN_OK);
            attn_linear_free(&l);
            a.storage = storage;
            for (int form = 0; form < 2; form++) {          /* rounded by init, or given in 16 bits */
                unsigned char *mem;
                size_t size;
                a.w = form ? (const void *)h : w;
                a.w_storage = form ? storage : ATTN_F32;
                size = attn_linear_size(&a);
                mem = guard_alloc(size);
                a.mem = mem;
                a.mem_size = size;
                CHECK(size < (size_t)((n_in + 2) * (n_out + 15) * 2 + 128 + 128));
                memset(y, 0x77, n_some * sizeof *y);
                CHECK(attn_linear_init(&l, &a) == ATTN_OK && l.storage == storage);
                if (!first) memcpy(first = guard_alloc(size), mem, size);
                else CHECKF(!memcmp(first, mem, size), "seed %llu: other packed bytes, form %d on %s", seed, form,
                            attn_backend_name(attn__table(ATTN_AUTO)->backend));
                CHECK(attn_linear_run(&l, y, x, some, 0, rng_int(&r, 0, 1) ? &exec : NULL) == ATTN_OK);
                CHECKF(same_bits(y, want, n_some), "seed %llu: %d to %d, %d rows, %s, form %d on %s", seed, n_in,
                       n_out, some,
                       format_names[storage], form, attn_backend_name(attn__table(ATTN_AUTO)->backend));
                attn_linear_free(&l);
                guard_free(mem);
            }
        }
        play(-1);
        free(w); free(b); free(back); free(x); free(want); guard_free(y); guard_free(h); guard_free(first);
    }
}

/* For refusal_around: memory that is no linear, and after an error still is not. */
static void spoil_linear(void *l) { memset(l, 0x55, sizeof(attn_linear)); }

static void no_linear(void *it)
{
    attn_linear *const l = (attn_linear *)it;
    float x[3] = {0}, y[2];
    CHECKF(!l->w && !l->own, "a linear after an error");
    REFUSED(attn_linear_run(l, y, x, 1, 0, NULL), ATTN_E_NULL, "l is");
}

static void linear_refused(void)
{
    float w[6] = {0};
    union { float aligned; unsigned short h[10]; } room = {0};
    unsigned short *const h = room.h;
    attn_linear_args good = {.n_in = 3, .n_out = 2, .w = w, .storage = ATTN_F16}, a;
    attn_linear l;
    char mem[64];
    refusal_around(spoil_linear, no_linear, &l);
#define CALL attn_linear_init(&l, &a)
    REFUSES(a.storage = ATTN_Q8_0, ATTN_E_OPTION, "storage is 4 but its values are 0..3");
    REFUSES(a.storage = (attn_storage)5, ATTN_E_OPTION, "storage is 5");
    REFUSES(a.w_storage = ATTN_Q8, ATTN_E_OPTION, "w_storage is 3 but its values are 0, 1, 2 and 4");
    REFUSES(a.storage = (attn_storage)-1, ATTN_E_OPTION, "storage is -1");
    REFUSES(a.w = NULL, ATTN_E_NULL, "w is NULL, and so is packed");
    REFUSES((a.w = (char *)h + 1, a.w_storage = ATTN_F16), ATTN_E_ALIGN, "w is not aligned");
    /* 16 outputs of 3 halves and a bias of 16 floats, rounded up to 64; a header of 64, and 64 to align */
    REFUSES((a.mem = mem, a.mem_size = sizeof mem), ATTN_E_WORK, "mem_size is 64 but attn_linear_size asks for 384");
    REFUSES(a.n_in = a.n_out = 2147480000, ATTN_E_OVERFLOW, "n_in 2147480000 times n_out");
#undef CALL
    refusal_forget();
    a = good;
    a.storage = (attn_storage)9;
    REFUSED_SIZE(attn_linear_size(&a), ATTN_E_OPTION, "attn_linear_size: storage is 9");
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */
static void layers(void)
{
    rng seeds = rng_make(test_seed + 4);
    attn_backend backends[16];
    const int n_backends = test_all_backends(backends, 16);
    for (int i = 0; i < 30 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int heads = rng_int(&r, 1, 3), dim = rng_int(&r, 1, 40), model = heads * dim, n = rng_int(&r, 1, 12);
        const int batch = rng_int(&r, 1, 2);
        const size_t n_w = (size_t)(model * model), n_x = (size_t)(batch * n * model);
        const attn_storage storage = formats[i % FORMATS];
        float *w[4], *back[4], *b = numbers(&r, (size_t)model), *x = numbers(&r, n_x), *want = numbers(&r, n_x);
        float *y = guard_floats(n_x);
        attn_mha_args a = {.d_model = model, .heads = heads};
        attn_mha exact, stored;
        for (int k = 0; k < 4; k++) {
            w[k] = numbers(&r, n_w);
            back[k] = numbers(&r, n_w);
            {
                unsigned short *h = rounded(&r, w[k], n_w, storage);
                CHECK(attn_widen(back[k], h, n_w, storage) == ATTN_OK);
                guard_free(h);
            }
        }
        a.b_q = a.b_o = b;
        a.w_q = back[0], a.w_k = back[1], a.w_v = back[2], a.w_o = back[3];
        CHECK(attn_mha_init(&exact, &a) == ATTN_OK);
        a.w_q = w[0], a.w_k = w[1], a.w_v = w[2], a.w_o = w[3];
        {
            const size_t full = attn_mha_size(&a);
            a.storage = storage;
            CHECK(attn_mha_size(&a) < full || model < 3);
        }
        CHECK(attn_mha_init(&stored, &a) == ATTN_OK && stored.shape.storage == storage);
        for (int k = 0; k < n_backends; k++) {
            attn_mha_opts o = {0};
            o.attn.backend = backends[k];
            CHECK(attn_mha_self(&exact, want, x, batch, n, &o) == ATTN_OK);
            CHECK(attn_mha_self(&stored, y, x, batch, n, &o) == ATTN_OK);
            CHECKF(same_bits(y, want, n_x), "seed %llu: self on %s", seed, attn_backend_name(backends[k]));
            CHECK(attn_mha_cross(&exact, want, x, batch, n, x, n, &o) == ATTN_OK);
            CHECK(attn_mha_cross(&stored, y, x, batch, n, x, n, &o) == ATTN_OK);
            CHECKF(same_bits(y, want, n_x), "seed %llu: cross on %s", seed, attn_backend_name(backends[k]));
            for (int t = 0; t < 2; t++) {               /* one token at a time, with the exact and the rounded layer */
                attn_kv_args size = {.batch = batch, .kv_heads = heads, .head_dim = dim, .capacity = n};
                attn_kv c;
                CHECK(attn_kv_init(&c, &size) == ATTN_OK);
                for (int at = 0; at < n; at++) {
                    const size_t step = (size_t)(batch * model), from = (size_t)at * step;
                    CHECK(attn_mha_self_step(t ? &stored : &exact, (t ? y : want) + from, x + from, batch, 1, &c, &o) ==
                          ATTN_OK);
                }
                attn_kv_free(&c);
            }
            CHECKF(same_bits(y, want, n_x), "seed %llu: steps on %s", seed, attn_backend_name(backends[k]));
        }
        attn_mha_free(&exact);
        attn_mha_free(&stored);
        a.storage = (attn_storage)4;
        REFUSED(attn_mha_init(&stored, &a), ATTN_E_OPTION, "attn_mha_init: storage is 4");
        REFUSED_SIZE(attn_mha_size(&a), ATTN_E_OPTION, "attn_mha_size: storage is 4");
        for (int k = 0; k < 4; k++) { free(w[k]); free(back[k]); }
        free(b); free(x); free(want); guard_free(y);
    }
}

/* ---- caches ------------------------------------------------------------------------------------------------------ */
static void saved_again(unsigned char *bytes, size_t n)      /* recomputes the checksum after a change */
{
    const unsigned long long sum = attn__saved_sum(bytes, n);
    for (int i = 0; i < 8; i++) bytes[56 + i] = (unsigned char)(sum >> 8 * i);
}

/* K and V of different storage are saved as version 2. */
static void saved_apart(void)
{
    attn_kv_args size = {.batch = 1, .kv_heads = 1, .head_dim = 3, .capacity = 20, .k_storage = ATTN_BF16,
                         .v_storage = ATTN_F16};
    static const struct { int at; unsigned char byte; const char *words; } wrong[] = {
        {8, 1, "the bytes have numbers where version 1 has zeros"},
        {40, ATTN_BF16, "K and V are stored alike, which version 2 cannot say"}};
    unsigned char bytes[400], again[400];
    const float k[6] = {1.0f, -2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
    float back[6], v[6];
    attn_kv c, d;
    CHECK(attn_kv_init(&c, &size) == ATTN_OK && attn_kv_append(&c, -1, k, k, 2, 0) == ATTN_OK);
    const size_t n = attn_kv_saved(&c, 0);
    CHECK(n == 64 + 2 * (6 + 6) && attn_kv_save(&c, 0, bytes, n) == ATTN_OK);
    CHECK(bytes[8] == 2 && bytes[12] == ATTN_BF16 && bytes[40] == ATTN_F16);
    CHECK(attn_kv_init(&d, &size) == ATTN_OK && attn_kv_load(&d, 0, bytes, n) == ATTN_OK);
    CHECK(attn_kv_read(&d, 0, 0, 2, back, v) == ATTN_OK && same_bits(back, k, 6) && same_bits(v, k, 6));
    attn_kv_free(&d);
    size.v_storage = ATTN_F32;
    CHECK(attn_kv_init(&d, &size) == ATTN_OK);
    REFUSED(attn_kv_load(&d, 0, bytes, n), ATTN_E_SIZE, "attn_kv_load: v_storage is 1 in the bytes but 0 in the cache");
    attn_kv_free(&d);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(again, bytes, n);
        again[wrong[i].at] = wrong[i].byte;
        saved_again(again, n);
        REFUSED(attn_kv_load(&c, 0, again, n), ATTN_E_BYTES, wrong[i].words);
    }
    for (int side = 0; side < 2; side++) {                   /* an invalid storage, of K and of V */
        memcpy(again, bytes, n);
        again[side ? 40 : 12] = 3;
        saved_again(again, n);
        REFUSED(attn_kv_load(&c, 0, again, n), ATTN_E_SIZE,
                side ? "v_storage is 3 in the bytes" : "k_storage is 3 in the bytes");
    }
    attn_kv_free(&c);
}

extern const test_case suite_storage[];
SUITE(storage) = {
    {"widen all", widen_all,
     "one of the 65,536 values of a format that becomes the wrong float, on one of the backends"},
    {"round trips", narrow_back, "a value that does not survive being widened and rounded; a NaN that becomes Inf"},
    {"boundaries", narrow_boundaries, "a float rounded away from the nearest value, or a tie that does not go to even"},
    {"extreme values", narrow_ends,
     "overflow, denormals, Inf or NaN that backends, or the processor, treat differently"},
    {"same conversions", ways_agree,
     "bits that depend on the backend, on F16C or on the number of values; writing past the end"},
    {"products", products, "a product with 16-bit values that differs from the product of the same values as floats"},
    {"not finite", not_finite, "an Inf or NaN in 16 bits that is not detected, or a large number taken for one"},
    {"public", public_functions, "attn_narrow or attn_widen that write after an error, or reject a valid argument"},
    {"byte rounding", byte_rounding,
     "a kernel rounds a half, a row with NaN or a row of zeros to other bytes than the specification"},
    {"byte scores", byte_scores,
     "a sum of products of bytes that is not exact, on one of the backends or without dot products"},
    {"byte linears", byte_linears,
     "a block, chain or row of a linear in 8 bits that is rounded, scaled, padded or added in another way"},
    {"linears", linears, "a 16-bit linear that differs from the float linear of the rounded weights"},
    {"rejected storage", linear_refused, "an invalid format; 16-bit weights at an odd address; too little memory"},
    {"layers", layers,
     "a 16-bit layer that differs from the float layer of the rounded weights, in any call or backend"},
    {"separate storage saved", saved_apart, "K and V with different storage, saved or loaded as another"},
    {0}};
