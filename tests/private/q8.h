/* q8.h: 8-bit storage in blocks of 32 with a half scale: part of private.c, after storage.h, whose processors it plays.
 * The references are exact: 53 bits hold every difference that decides. */

/* ---- what bytes mean --------------------------------------------------------------------------------------------- */
static double q8_half_worth(unsigned h)      /* of a finite half */
{
    const unsigned exponent = h >> 10 & 31, fraction = h & 1023;
    const double x = exponent ? ldexp(1024.0 + fraction, (int)exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -x : x;
}

static uint32_t q8_value_bits(unsigned h, int byte)
{
    if ((h & 0x7C00) == 0x7C00) return 0x7FC00000u;
    return float_bits((float)(byte * q8_half_worth(h)));
}

/* All 65,536 scales x 256 bytes: as rows, and as lanes of panels, 16 scales side by side. */
static void q8_widen_all(void)
{
    enum { SCALES = 16, STEPS = 256 };
    static unsigned char rows[SCALES][STEPS / 32 * 34], panel[STEPS / 32 * 34 * 16];
    static float x[STEPS], y[STEPS * 16];
    way ways[17];
    const int n = all_ways(ways);
    for (unsigned first = 0; first < 65536 && !test_failed(); first += SCALES) {
        for (unsigned lane = 0; lane < SCALES; lane++) {
            const unsigned short h = (unsigned short)(first + lane), finite = (h & 0x7C00) == 0x7C00 ? 0x7E00 : h;
            for (int i = 0; i < STEPS; i++) {
                unsigned char *block = rows[lane] + i / 32 * 34, *lanes = panel + i / 32 * 34 * 16;
                memcpy(block, &h, 2);
                memcpy(lanes + 2 * lane, &finite, 2);        /* infinities are never stored in panels */
                block[2 + i % 32] = lanes[32 + i % 32 * 16 + lane] = (unsigned char)i;
            }
        }
        for (int w = 0; w < n; w++) {
            int wrong = 0;
            with_f16c(ways[w].f16c);
            ways[w].kernels->widen_panel(y, panel, STEPS, ATTN_Q8);
            for (unsigned lane = 0; lane < SCALES; lane++) {
                ways[w].kernels->widen(x, rows[lane], STEPS, ATTN_Q8);
                for (int i = 0; i < STEPS; i++) {
                    const uint32_t want = q8_value_bits(first + lane, i < 128 ? i : i - 256);
                    wrong += (float_bits(x[i]) != want) + (float_bits(y[i * 16 + (int)lane]) != want);
                }
            }
            CHECKF(!wrong, "%s: %d values of scales %04x.. are wrong", ways[w].name, wrong, first);
        }
    }
    with_f16c(1);
}

/* Short rows: no byte behind the last one is read, no float behind it written. */
static void q8_ends(void)
{
    way ways[17];
    const int n = all_ways(ways);
    rng r = rng_make(test_seed);
    for (int count = 0; count <= 100; count++) {
        const size_t bytes = attn_stored_bytes((size_t)count, ATTN_Q8);
        /* the guard page stands behind the last byte; behind the next one where a row would begin at an odd address */
        unsigned char *raw = guard_alloc(bytes / 4 * 4 + 4), *row = raw + bytes / 4 * 4 + 4 - (bytes + 1) / 2 * 2;
        float from[100], to[101], want[100];
        CHECK(bytes == (size_t)(count + (count + 31) / 32 * 2));
        rng_fill(&r, from, (size_t)count);
        CHECK(attn_narrow(row, from, (size_t)count, ATTN_Q8) == ATTN_OK);
        attn__widen_scalar(want, row, (size_t)count, ATTN_Q8);
        for (int w = 0; w < n; w++) {
            with_f16c(ways[w].f16c);
            to[count] = 77.0f;
            ways[w].kernels->widen(to, row, (size_t)count, ATTN_Q8);
            CHECKF(same_bits(to, want, (size_t)count) && to[count] == 77.0f, "%s: %d values", ways[w].name, count);
        }
        for (int i = 0; i < count; i++)                      /* half a step, and what the scale is rounded by */
            CHECK(fabsf(want[i] - from[i]) <= 4.5f / 127 * 0.51f);
        guard_free(raw);
    }
    with_f16c(1);
}

/* ---- rounding ---------------------------------------------------------------------------------------------------- */
/* the half nearest to largest / 127, to even; 0x7C00: beyond all of them */
static unsigned q8_nearest_scale(float largest)
{
    unsigned lo = 0, hi = 0x7C00;         /* lo <= quotient < hi; the pattern 0x7C00 counts as 65536 */
    while (hi - lo > 1) {
        const unsigned mid = (lo + hi) / 2;
        if (127.0 * q8_half_worth(mid) <= (double)largest) lo = mid;
        else hi = mid;
    }
    const double below = (double)largest - 127.0 * q8_half_worth(lo);
    const double above = 127.0 * (hi == 0x7C00 ? 65536.0 : q8_half_worth(hi)) - (double)largest;
    return below < above ? lo : above < below ? hi : lo % 2 ? hi : lo;
}

static int q8_nearest_byte(float x, double scale)
{
    int best = 0;
    for (int k = -127; k <= 127; k++) {
        const double here = fabs(k * scale - (double)x), there = fabs(best * scale - (double)x);
        if (here < there || (here == there && k % 2 == 0 && best % 2)) best = k;
    }
    return best;
}

static void q8_check_block(const float *x, int n, const char *what)
{
    unsigned char row[34];
    unsigned short h;
    float largest = 0.0f;
    int bad = 0;
    CHECK(attn_narrow(row, x, (size_t)n, ATTN_Q8) == ATTN_OK);
    memcpy(&h, row, 2);
    for (int i = 0; i < n; i++) {
        if (isnan(x[i]) || isinf(x[i])) bad = 1;
        else if (fabsf(x[i]) > largest) largest = fabsf(x[i]);
    }
    const unsigned want = bad || q8_nearest_scale(largest) >= 0x7C00 ? 0x7E00 : q8_nearest_scale(largest);
    CHECKF(h == want, "%s: the scale is %04x, not %04x", what, h, want);
    for (int i = 0; i < n; i++) {
        const int byte = want == 0x7E00 || want == 0 ? 0 : q8_nearest_byte(x[i], q8_half_worth(want));
        CHECKF((signed char)row[2 + i] == byte, "%s: %.9g of %.9g is %d, not %d", what, (double)x[i], (double)largest,
               (signed char)row[2 + i], byte);
    }
}

static void q8_rounding(void)
{
    rng r = rng_make(test_seed + 1);
    float x[32];
    for (int i = 0; i < 20000 * test_scale && !test_failed(); i++) {
        const int n = rng_int(&r, 1, 32), exponent = rng_int(&r, -34, 24), kind = rng_int(&r, 0, 3);
        rng_fill(&r, x, 32);
        for (int k = 0; k < n; k++) {
            x[k] = ldexpf(x[k], exponent);
            if (kind == 1) x[k] = ldexpf((float)rng_int(&r, -255, 255), exponent);          /* ties of bytes */
            if (kind == 2 && k) x[k] = x[0] * (float)rng_int(&r, -254, 254) / 254.0f;
        }
        if (kind == 3)                                       /* a scale in the middle, or beside it */
            x[0] = bits_float(float_bits(ldexpf((float)(127 * (2 * rng_int(&r, 1024, 2047) + 1)), exponent - 12)) +
                              (uint32_t)rng_int(&r, -1, 1));
        q8_check_block(x, n, "random");
    }
}

static void q8_corners(void)
{
    static const float largest[] = {
        0.0f, -0.0f, 1e-45f, 3.7e-6f, 127 * 2.98023224e-8f, 127 * 5.96046448e-8f, 127 * 8.94069672e-8f, 1e-5f, 9.7e-4f,
        127 * 6.1035e-5f, 1.0f, 127.0f, 127.5f, 8319008.0f, 8321039.5f, 8321040.0f, 8321040.5f, 1e30f, 3.4e38f};
    for (size_t i = 0; i < sizeof largest / sizeof *largest; i++)
        for (int sign = -1; sign <= 1; sign += 2)
            for (int up = -1; up <= 1; up++) {
                float x[32];
                uint32_t bits = float_bits(largest[i]);
                if (bits & 0x7FFFFFFF) bits += (uint32_t)up;
                for (int k = 0; k < 32; k++) x[k] = (float)sign * bits_float(bits) * (float)(32 - k) / 32.0f;
                q8_check_block(x, 32, "corner");
            }
    for (int bad = 0; bad < 4; bad++)
        for (int at = 0; at < 40; at += 13) {
            static const uint32_t bits[] = {0x7F800000u, 0xFF800000u, 0x7FC12345u, 0xFF800001u};
            unsigned char row[44];
            float x[40], y[40];
            for (int k = 0; k < 40; k++) x[k] = 1.0f;
            x[at] = bits_float(bits[bad]);
            CHECK(attn_narrow(row, x, 40, ATTN_Q8) == ATTN_OK && attn_widen(y, row, 40, ATTN_Q8) == ATTN_OK);
            for (int k = 0; k < 40; k++)                     /* its own block alone */
                CHECK(k / 32 == at / 32 ? float_bits(y[k]) == 0x7FC00000u : fabsf(y[k] - 1.0f) < 1e-3f);
        }
}

static void q8_public_functions(void)
{
    union { float f[64]; char bytes[256]; } room;
    float x[32] = {0};
    memset(room.bytes, 0x77, sizeof room.bytes);
    CHECK(attn_stored_bytes(0, ATTN_Q8) == 0 && attn_stored_bytes(1, ATTN_Q8) == 3);
    CHECK(attn_stored_bytes(32, ATTN_Q8) == 34 && attn_stored_bytes(33, ATTN_Q8) == 37);
    CHECK(attn_stored_bytes(5, ATTN_F32) == 20 && attn_stored_bytes(5, ATTN_F16) == 10);
    CHECK(attn_stored_bytes(5, ATTN_BF16) == 10 && attn_stored_bytes(5, (attn_storage)4) == SIZE_MAX);
    CHECK(attn_stored_bytes(5, (attn_storage)-1) == SIZE_MAX && attn_stored_bytes(SIZE_MAX / 2, ATTN_Q8) == SIZE_MAX);
    REFUSED(attn_narrow(room.bytes, room.f + 8, 31, ATTN_Q8), ATTN_E_OVERLAP, "attn_narrow: to overlaps from");
    REFUSED(attn_widen(room.f, room.bytes + 94, 32, ATTN_Q8), ATTN_E_OVERLAP, "attn_widen: to overlaps from");
    REFUSED(attn_narrow(room.bytes + 1, x, 32, ATTN_Q8), ATTN_E_ALIGN, "attn_narrow: to is not aligned");
    REFUSED(attn_widen(x, room.bytes + 1, 32, ATTN_Q8), ATTN_E_ALIGN, "attn_widen: from is not aligned");
    for (size_t i = 0; i < sizeof room.bytes; i++) CHECK(room.bytes[i] == 0x77);
    memset(room.f, 0, sizeof room.f);
    CHECK(attn_narrow(room.bytes, room.f + 8, 30, ATTN_Q8) == ATTN_OK);          /* 32 bytes, end to end */
}

/* ---- products of few rows --------------------------------------------------------------------------------------- */
static void q8_products(void)
{
    enum { PANELS = 9, DEPTH = 128, WIDTH = 16 * PANELS };
    static unsigned char panels[PANELS][DEPTH / 32 * 34 * 16], rows[DEPTH][(WIDTH + 31) / 32 * 34];
    static float b[PANELS * DEPTH * 16], v[DEPTH * WIDTH], values[DEPTH * WIDTH];
    float a[2 * DEPTH], from[WIDTH], before[2 * WIDTH], want[2 * WIDTH], got[2 * WIDTH], vis[2 * DEPTH];
    static const float fold_a[2] = {0.75f, 1.5f}, fold_b[2] = {-1.25f, 0.5f};
    rng r = rng_make(test_seed + 2);
    way ways[17];
    const int n = all_ways(ways);
    for (int round = 0; round < 60 * test_scale && !test_failed(); round++) {
        const int depth = round % 3 ? rng_int(&r, 1, DEPTH) : DEPTH, n_panels = rng_int(&r, 1, PANELS);
        const int width = 16 * n_panels;
        rng_fill(&r, values, DEPTH * WIDTH);
        rng_fill(&r, a, 2 * DEPTH);
        rng_fill(&r, from, WIDTH);
        rng_fill(&r, before, 2 * WIDTH);
        if (round % 5 == 4) values[rng_int(&r, 0, depth * width - 1)] = bits_float(0x7F800000u);
        for (int t = 0; t < 2 * DEPTH; t++) vis[t] = rng_int(&r, 0, 2) ? 1.0f : 0.0f;
        for (int p = 0; p < n_panels; p++) {
            attn__put_panel((char *)panels[p], values + p * DEPTH * 16, depth, ATTN_Q8);
            attn__widen_panel_scalar(b + p * DEPTH * 16, panels[p], depth, ATTN_Q8);
        }
        for (int t = 0; t < depth; t++) {
            attn__narrow_scalar(rows[t], values + t * width, (size_t)width, ATTN_Q8);
            attn__widen_scalar(v + t * width, rows[t], (size_t)width, ATTN_Q8);
        }
        for (int w = 0; w < n; w++)
            for (int what = 0; what < 3; what++) {           /* panels, rows, rows of which some are left out */
                attn__gemm g = {0};
                if ((what && ways[w].kernels->backend == ATTN_SCALAR) ||
                    (what == 2 && !ways[w].kernels->select)) continue;
                g.a = a;
                g.from = round % 2 ? from : NULL;
                if (round % 7 > 3) { g.fold_a = fold_a; g.fold_b = fold_b; }
                g.a_row = DEPTH;
                g.c_row = width;
                g.rows = 1 + round % 2;
                g.panels = n_panels;
                g.depth = depth;
                with_f16c(ways[w].f16c);
                for (int stored = 0; stored < 2; stored++) {
                    g.c = stored ? got : want;
                    memcpy(g.c, before, sizeof before);
                    g.stored = stored ? ATTN_Q8 : ATTN_F32;
                    g.b_step = what && stored ? (ptrdiff_t)sizeof rows[0] : what ? width : 16;
                    g.b_panel = what ? 16 : stored ? (ptrdiff_t)sizeof panels[0] : DEPTH * 16;
                    g.b = stored ? what ? (void *)rows : (void *)panels : what ? (void *)v : (void *)b;
                    if (what == 2) ways[w].kernels->select(&g, vis, NULL, 0);
                    else ways[w].kernels->gemm(&g);
                }
                for (int x = 0; x < g.rows * width; x++)
                    CHECKF(float_bits(got[x]) == float_bits(want[x]) || (isnan(got[x]) && isnan(want[x])),
                           "%s, %s: depth %d, %d panels: column %d is %.9g, not %.9g", ways[w].name,
                           what ? what == 1 ? "rows" : "select" : "panels", depth, n_panels, x, (double)got[x],
                           (double)want[x]);
            }
    }
    with_f16c(1);
}

/* ---- linears and layers ------------------------------------------------------------------------------------------ */
/* The stored rows, and in w the floats that they are; they end at a guard page, from any even address on. */
static unsigned char *q8_stored(rng *r, float *back, float *w, int rows, int n, void **raw)
{
    const size_t row = attn_stored_bytes((size_t)n, ATTN_Q8), all = (size_t)rows * row;
    unsigned char *h = *raw = guard_alloc((all + 3) / 4 * 4);
    if (all % 4 == 2) h += 2;
    if (rng_int(r, 0, 9) == 0) w[rng_int(r, 0, rows * n - 1)] = 1e30f;
    for (int i = 0; i < rows && row % 2 == 0; i++) {
        CHECK(attn_narrow(h + (size_t)i * row, w + i * n, (size_t)n, ATTN_Q8) == ATTN_OK);
        CHECK(attn_widen(back + i * n, h + (size_t)i * row, (size_t)n, ATTN_Q8) == ATTN_OK);
    }
    for (int i = 0; i < rows && row % 2; i++) {              /* odd rows begin at odd addresses */
        attn__narrow_scalar(h + (size_t)i * row, w + i * n, (size_t)n, ATTN_Q8);
        attn__widen_scalar(back + i * n, h + (size_t)i * row, (size_t)n, ATTN_Q8);
    }
    return h;
}

static void q8_linears(void)
{
    static const int sizes[] = {1, 2, 7, 15, 16, 31, 32, 33, 64, 200, 255, 256, 257, 300, 320};
    static const int heights[] = {1, 1, 1, 2, 3, 5, 24, 25, 97, 100};
    rng seeds = rng_make(test_seed + 3);
    for (int i = 0; i < 80 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n_in = sizes[rng_int(&r, 0, 14)], n_out = sizes[rng_int(&r, 0, 14)];
        const int rows = heights[rng_int(&r, 0, 9)];
        const size_t n_w = (size_t)(n_in * n_out), n_y = (size_t)(rows * n_out);
        float *w = numbers(&r, n_w), *b = rng_int(&r, 0, 1) ? numbers(&r, (size_t)n_out) : NULL;
        float *back = numbers(&r, n_w), *x = numbers(&r, (size_t)(rows * n_in));
        float *want = numbers(&r, n_y), *y = guard_floats(n_y);
        void *raw;
        const unsigned char *h = q8_stored(&r, back, w, n_out, n_in, &raw);
        attn_exec exec = test_exec(rng_int(&r, 2, 4));
        for (int p = play(-1) - 1; p >= 0; p--) {
            attn_linear_args a = {.n_in = n_in, .n_out = n_out, .w = back, .b = b};
            attn_linear l;
            play(p);
            CHECK(attn_linear_init(&l, &a) == ATTN_OK && attn_linear_run(&l, want, x, rows, NULL) == ATTN_OK);
            attn_linear_free(&l);
            a.storage = ATTN_Q8;
            for (int form = 0; form < 3; form++) {           /* rounded and packed; packed as given; in place */
                const size_t size = (a.in_place = form == 2, attn_linear_size(&a));
                unsigned char *mem = guard_alloc(size);
                a.w = form ? NULL : w;
                a.w8 = form ? h : NULL;
                a.mem = form == 2 ? NULL : mem;
                a.mem_size = size;
                memset(y, 0x77, n_y * sizeof *y);
                CHECK(attn_linear_init(&l, &a) == ATTN_OK && l.storage == ATTN_Q8);
                CHECK(attn_linear_run(&l, y, x, rows, rng_int(&r, 0, 1) ? &exec : NULL) == ATTN_OK);
                CHECKF(same_bits(y, want, n_y), "seed %llu: %d to %d, %d rows, form %d on %s", seed, n_in, n_out, rows,
                       form, attn_backend_name(attn__table(ATTN_AUTO)->backend));
                attn_linear_free(&l);
                guard_free(mem);
            }
        }
        play(-1);
        free(w); free(b); free(back); free(x); free(want); guard_free(y); guard_free(raw);
    }
}

static void q8_refused(void)
{
    float w[6] = {0}, x[3] = {0}, y[2];
    union { float aligned; unsigned char h[16]; } room = {0};
    attn_linear_args good = {.n_in = 3, .n_out = 2, .w = w, .storage = ATTN_Q8}, a;
    attn_linear l;
#define REFUSES(change, status, words) \
    do { a = good; change; memset(&l, 0x55, sizeof l); \
         REFUSED(attn_linear_init(&l, &a), status, "attn_linear_init: " words); \
         REFUSED(attn_linear_run(&l, y, x, 1, NULL), ATTN_E_NULL, "attn_linear_run: l "); } while (0)
    REFUSES(a.w8 = room.h, ATTN_E_CONFLICT, "w and w8 are both set");
    REFUSES((a.w = NULL, a.w8 = a.w16 = room.h), ATTN_E_CONFLICT, "w16 and w8 are both set");
    REFUSES((a.w = NULL, a.w16 = room.h), ATTN_E_CONFLICT, "w16 is set, but storage does not say which 16 bits");
    REFUSES((a.w = NULL, a.w8 = room.h, a.storage = ATTN_F16), ATTN_E_CONFLICT, "w8 is set, but storage is 1");
    REFUSES((a.w = NULL, a.w8 = room.h, a.storage = ATTN_F32), ATTN_E_CONFLICT, "w8 is set, but storage is 0");
    REFUSES(a.in_place = 1, ATTN_E_CONFLICT, "in_place reads w as the floats that it is");
    REFUSES(a.w = NULL, ATTN_E_NULL, "w is NULL");
    REFUSES((a.w = NULL, a.w8 = room.h + 1), ATTN_E_ALIGN, "w8 is not aligned");
    REFUSES(a.n_in = a.n_out = 2147480000, ATTN_E_OVERFLOW, "n_in 2147480000 times n_out");
#undef REFUSES
    CHECK(attn_linear_size(&good) == 63 + (16 * 5 + 16 * 4 + 63) / 64 * 64);
}

/* A layer in 8 bits, with caches in 8 bits, against the layer of the floats that its weights are, with caches of the
 * floats that keys and values are: the first by attn_kv_read, step by step. */
static void q8_layers(void)
{
    rng seeds = rng_make(test_seed + 4);
    attn_backend backends[16];
    const int n_backends = test_all_backends(backends, 16);
    for (int i = 0; i < 20 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int heads = rng_int(&r, 1, 3), dim = rng_int(&r, 1, 80), model = heads * dim, n = rng_int(&r, 1, 12);
        const size_t n_w = (size_t)(model * model), n_x = (size_t)(n * model);
        float *w[4], *back[4], *x = numbers(&r, n_x), *want = numbers(&r, n_x), *y = guard_floats(n_x);
        attn_mha_args a = {.d_model = model, .heads = heads};
        attn_mha exact, small;
        for (int k = 0; k < 4; k++) {
            void *raw;
            w[k] = numbers(&r, n_w);
            back[k] = numbers(&r, n_w);
            q8_stored(&r, back[k], w[k], model, model, &raw);
            guard_free(raw);
        }
        a.w_q = back[0], a.w_k = back[1], a.w_v = back[2], a.w_o = back[3];
        CHECK(attn_mha_init(&exact, &a) == ATTN_OK);
        a.w_q = w[0], a.w_k = w[1], a.w_v = w[2], a.w_o = w[3];
        a.storage = ATTN_Q8;
        CHECK(attn_mha_init(&small, &a) == ATTN_OK && small.shape.storage == ATTN_Q8);
        for (int k = 0; k < n_backends; k++) {
            attn_mha_opts o = {0};
            attn_kv_args size = {.batch = 1, .kv_heads = heads, .head_dim = dim, .capacity = n, .storage = ATTN_Q8};
            attn_kv c[2];
            o.attn.backend = backends[k];
            CHECK(attn_mha_self(&exact, want, x, 1, n, &o) == ATTN_OK);
            CHECK(attn_mha_self(&small, y, x, 1, n, &o) == ATTN_OK);
            CHECKF(same_bits(y, want, n_x), "seed %llu: self on %s", seed, attn_backend_name(backends[k]));
            for (int t = 0; t < 2; t++) {                    /* a token at a time, and all at once */
                CHECK(attn_kv_init(&c[t], &size) == ATTN_OK);
                for (int at = 0; at < n; at += t ? n : 1)
                    CHECK(attn_mha_self_step(t ? &small : &exact, (t ? y : want) + at * model, x + at * model, 1,
                                             t ? n : 1, &c[t], &o) == ATTN_OK);
            }
            CHECKF(same_bits(y, want, n_x), "seed %llu: steps on %s", seed, attn_backend_name(backends[k]));
            attn_kv_free(&c[0]);
            attn_kv_free(&c[1]);
        }
        attn_mha_free(&exact);
        attn_mha_free(&small);
        for (int k = 0; k < 4; k++) { free(w[k]); free(back[k]); }
        free(x); free(want); guard_free(y);
    }
}

/* ---- caches ------------------------------------------------------------------------------------------------------ */
/* Keys that are hidden from a row hold NaN, infinities and blocks beyond every scale: nothing of it is seen. */
static void q8_poison(void)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN, 1e38f, -8.4e6f};
    attn_backend backends[16];
    const int n_backends = test_all_backends(backends, 16);
    rng r = rng_make(test_seed + 5);
    for (int i = 0; i < 60 * test_scale && !test_failed(); i++) {
        static const int dims[] = {1, 16, 31, 33, 64, 96, 257};
        const int heads = rng_int(&r, 1, 3), dim = dims[rng_int(&r, 0, 6)], n = rng_int(&r, 1, 300);
        const int rows = rng_int(&r, 0, 1) ? 1 : rng_int(&r, 2, 50), row = heads * dim;
        attn_kv_args size = {.batch = 1, .kv_heads = heads, .head_dim = dim, .capacity = n, .storage = ATTN_Q8};
        float *k = numbers(&r, (size_t)(n * row)), *v = numbers(&r, (size_t)(n * row));
        float *q = numbers(&r, (size_t)(rows * row)), *out[2];
        unsigned char *keep = malloc((size_t)n);
        attn_kv c[2];
        attn_args a = {0};
        if (!keep) abort();
        for (int j = 0; j < n; j++) keep[j] = (unsigned char)(rng_int(&r, 0, 3) != 0);
        for (int t = 0; t < 2; t++) {
            for (int j = 0; j < n && t; j++)
                for (int x = rng_int(&r, 0, 40); x < row && !keep[j]; x += 40)
                    k[j * row + x] = v[j * row + row - 1 - x] = bad[rng_int(&r, 0, 4)];
            CHECK(attn_kv_init(&c[t], &size) == ATTN_OK && attn_kv_append(&c[t], k, v, n, NULL, 0) == ATTN_OK);
            out[t] = numbers(&r, (size_t)(rows * row));
        }
        for (int b = 0; b < n_backends; b++) {
            for (int t = 0; t < 2; t++) {
                memset(&a, 0, sizeof a);
                a.batch = 1, a.heads = heads, a.n_q = rows, a.kv = &c[t], a.q = q, a.out = out[t];
                a.keep = keep, a.keep_shape[0] = a.keep_shape[1] = a.keep_shape[2] = 1;
                a.backend = backends[b];
                CHECK(attn_sdpa(&a) == ATTN_OK);
            }
            CHECKF(same_bits(out[0], out[1], (size_t)(rows * row)), "case %d: %d rows, %d keys, %d x %d on %s", i, rows,
                   n, heads, dim, attn_backend_name(backends[b]));
        }
        for (int t = 0; t < 2; t++) { attn_kv_free(&c[t]); free(out[t]); }
        free(k); free(v); free(q); free(keep);
    }
}

/* What comes from anybody: an infinite scale is NaN, and stays it; -128 is a number. K and V of different storage are
 * of version 2, which says so. */
static void q8_loaded(void)
{
    attn_kv_args size = {.batch = 1, .kv_heads = 1, .head_dim = 3, .capacity = 20, .storage = ATTN_Q8};
    unsigned char bytes[400];
    const float k[6] = {1.0f, -2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
    float back[6], v[6];
    attn_kv c, d;
    size_t n;
    CHECK(attn_kv_init(&c, &size) == ATTN_OK && attn_kv_append(&c, k, k, 2, NULL, 0) == ATTN_OK);
    n = attn_kv_saved(&c, 0);
    CHECK(n == 64 + 2 * 2 * 5 && attn_kv_save(&c, 0, bytes, n) == ATTN_OK);
    CHECK(bytes[8] == 1 && bytes[12] == 3 && bytes[40] == 0 && bytes[64 + 4] == 127);
    bytes[64] = 0, bytes[65] = 0xFC, bytes[69 + 2] = 0x80;   /* K of key 0: -Inf; V of key 0: -128 */
    {
        const unsigned long long sum = attn__saved_sum(bytes, n);
        for (int i = 0; i < 8; i++) bytes[56 + i] = (unsigned char)(sum >> 8 * i);
    }
    CHECK(attn_kv_load(&c, 0, bytes, n) == ATTN_OK && attn_kv_read(&c, 0, 0, 2, back, v) == ATTN_OK);
    for (int i = 0; i < 3; i++) CHECK(float_bits(back[i]) == 0x7FC00000u);
    CHECK(fabsf(back[3] - 4.0f) < 0.05f && fabsf(v[0] + 128.0f * 3.0f / 127.0f) < 0.01f);
    CHECK(attn_kv_save(&c, 0, bytes, n) == ATTN_OK && bytes[64] == 0 && bytes[65] == 0x7E);
    attn_kv_free(&c);

    size.v_storage = ATTN_F16;
    CHECK(attn_kv_init(&c, &size) == ATTN_OK && attn_kv_append(&c, k, k, 2, NULL, 0) == ATTN_OK);
    CHECK(c.shape.k_storage == ATTN_Q8 && c.shape.v_storage == ATTN_F16);
    n = attn_kv_saved(&c, 0);
    CHECK(n == 64 + (2 * (5 + 6) + 3) / 4 * 4 && attn_kv_save(&c, 0, bytes, n) == ATTN_OK);
    CHECK(bytes[8] == 2 && bytes[12] == ATTN_Q8 && bytes[40] == ATTN_F16);
    CHECK(attn_kv_init(&d, &c.shape) == ATTN_OK && attn_kv_load(&d, 0, bytes, n) == ATTN_OK);
    CHECK(attn_kv_read(&d, 0, 0, 2, back, v) == ATTN_OK && same_bits(v, k, 6));
    attn_kv_free(&d);
    size.v_storage = ATTN_BF16;
    CHECK(attn_kv_init(&d, &size) == ATTN_OK);
    REFUSED(attn_kv_load(&d, 0, bytes, n), ATTN_E_SIZE, "attn_kv_load: v_storage is 1 in the bytes but 2 in the cache");
    for (int what = 0; what < 2; what++) {                   /* numbers that no version has */
        unsigned long long sum;
        unsigned char wrong[400];
        memcpy(wrong, bytes, n);
        wrong[what ? 8 : 40] = what ? 1 : ATTN_Q8;
        sum = attn__saved_sum(wrong, n);
        for (int i = 0; i < 8; i++) wrong[56 + i] = (unsigned char)(sum >> 8 * i);
        REFUSED(attn_kv_load(&c, 0, wrong, n), ATTN_E_BYTES, what ? "the bytes have numbers where version 1 has zeros"
                                                                  : "K and V are stored alike");
    }
    attn_kv_free(&c);
    attn_kv_free(&d);
}

extern const test_case suite_q8[];
SUITE(q8) = {
    {"widen all", q8_widen_all, "one of 65,536 scales x 256 bytes that becomes the wrong float, in a row or a panel"},
    {"ends", q8_ends, "reading or writing past a short block"},
    {"rounding", q8_rounding, "a scale or a byte that is not the nearest one, or a tie that does not go to even"},
    {"corners", q8_corners, "zeros, denormal scales, overflow, Inf and NaN; a block that spoils its neighbour"},
    {"public", q8_public_functions, "sizes in bytes; blocks that overlap floats, or lie at odd addresses"},
    {"products", q8_products, "a product of few rows with blocks that is not the one with the same values as floats"},
    {"linears", q8_linears, "a linear in 8 bits that is not the float linear of stored weights, packed or in place"},
    {"refused", q8_refused, "settings of storage, w, w16, w8 and in_place that exclude each other"},
    {"layers", q8_layers, "a layer in 8 bits that is not the float layer of stored weights; a prompt unlike its steps"},
    {"poison", q8_poison, "a hidden key whose NaN, or whose scale, reaches a row"},
    {"loaded", q8_loaded, "bytes that become an infinite scale; K and V of one storage each, saved as another"},
    {0}};
