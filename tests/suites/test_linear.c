/* test_linear.c: linears. */
#include "layer.h"
#include "q8_0.h"

#include <limits.h>

static void linear_oracle_test(void)
{
    static const int sizes[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 64, 100, 255, 256, 257, 320, 512, 513, 641};
    rng seeds = rng_make(test_seed);
    for (int i = 0; i < 120 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n_in = sizes[rng_int(&r, 0, 18)], n_out = sizes[rng_int(&r, 0, 15)];
        const int rows = rng_int(&r, 0, 3) ? rng_int(&r, 1, 30) : rng_int(&r, 31, 200), width = rng_int(&r, 0, 4);
        float *w = normal(&r, (size_t)(n_in * n_out), 1.0),
              *b = rng_int(&r, 0, 1) ? normal(&r, (size_t)n_out, 1.0) : NULL;
        float *x = guard_floats((size_t)(rows * n_in)), *y = guard_floats((size_t)(rows * n_out));
        attn_linear_args a = {.n_in = n_in, .n_out = n_out, .w = w, .b = b};
        const size_t size = attn_linear_size(&a), shift = (size_t)rng_int(&r, 0, 16) * 4;
        unsigned char *mem = rng_int(&r, 0, 1) ? guard_alloc(size + shift) : NULL;
        attn_exec exec = test_exec(width > 0 ? width : 1);
        attn_linear l;
        a.mem = mem ? mem + shift : NULL;
        a.mem_size = size;
        rng_fill(&r, x, (size_t)(rows * n_in));
        CHECK(attn_linear_init(&l, &a) == ATTN_OK);
        {
            numbers in = numbers_of(x, (size_t)(rows * n_in));
            numbers want = linear_oracle(in, (size_t)rows, w, b, n_in, n_out);
            memset(w, 0xFF, (size_t)(n_in * n_out) * sizeof(float)); /* the originals are not read again */
            CHECK(attn_linear_run(&l, y, x, rows, 0, width > 0 ? &exec : NULL) == ATTN_OK);
            within(y, want, (size_t)(rows * n_out), "linear", seed);
            numbers_free(in);
            numbers_free(want);
        }
        attn_linear_free(&l);
        free(w); free(b); guard_free(x); guard_free(y); guard_free(mem);
    }
}

/* A row must not depend on other work: the number of rows, of threads, or the blocks. */
static void linear_company(void)
{
    enum { ROWS = 205 };
    static const int shapes[][2] = {{7, 5}, {64, 64}, {320, 33}, {330, 100}, {700, 50}};
    rng r = rng_make(test_seed + 1);
    for (int s = 0; s < 10; s++) {
        const int n_in = shapes[s % 5][0], n_out = shapes[s % 5][1];
        float *w = normal(&r, (size_t)(n_in * n_out), 1.0), *b = normal(&r, (size_t)n_out, 1.0);
        float *x = normal(&r, (size_t)(ROWS * n_in), 1.0), *all = floats((size_t)(ROWS * n_out)),
              *some = floats((size_t)(ROWS * n_out));
        attn_linear l;
        CHECK(linear_make_as(&l, w, b, n_in, n_out, s < 5 ? ATTN_F32 : ATTN_Q8) == ATTN_OK);
        CHECK(attn_linear_run(&l, all, x, ROWS, 0, NULL) == ATTN_OK);
        for (int width = 2; width <= 7; width++) {
            attn_exec exec = test_exec(width);
            memset(some, 0xFF, (size_t)(ROWS * n_out) * sizeof(float));
            CHECK(attn_linear_run(&l, some, x, ROWS, 0, &exec) == ATTN_OK);
            CHECKF(same_bits(all, some, (size_t)(ROWS * n_out)), "%d x %d on %d threads", n_in, n_out, width);
        }
        for (int at = 0, rows; at < ROWS; at += rows) {
            attn_exec exec = test_exec(3);
            rows = rng_int(&r, 1, 9);
            if (rows > ROWS - at) rows = ROWS - at;
            CHECK(attn_linear_run(&l, some + at * n_out, x + at * n_in, rows, 0, at % 2 ? &exec : NULL) == ATTN_OK);
        }
        CHECKF(same_bits(all, some, (size_t)(ROWS * n_out)), "%d x %d in pieces", n_in, n_out);
        attn_linear_free(&l);
        free(w); free(b); free(x); free(all); free(some);
    }
}

/* Several rows at once and one by one, on one thread and on three. */
static void rows_alone(int rows, int n_in, int n_out, attn_storage kept)
{
    rng r = rng_make(test_seed + 30);
    const size_t out = (size_t)rows * (size_t)n_out;
    float *w = floats((size_t)n_out * (size_t)n_in), *b = normal(&r, (size_t)n_out, 1.0);
    float *x = normal(&r, (size_t)rows * (size_t)n_in, 1.0), *few = floats(out), *one = floats(out);
    attn_exec exec = test_exec(3);
    attn_linear l;
    for (int i = 0; i < n_out * n_in; i++) w[i] = (float)(i % 20011 - 10005) * 1e-4f;
    CHECK(linear_make_as(&l, w, b, n_in, n_out, kept) == ATTN_OK);
    for (int i = 0; i < rows; i++) CHECK(attn_linear_run(&l, one + i * n_out, x + i * n_in, 1, 0, NULL) == ATTN_OK);
    CHECK(attn_linear_run(&l, few, x, rows, 0, NULL) == ATTN_OK);
    CHECKF(same_bits(few, one, out), "%d rows, %d to %d", rows, n_in, n_out);
    memset(few, 0xFF, out * sizeof(float));
    CHECK(attn_linear_run(&l, few, x, rows, 0, &exec) == ATTN_OK);
    CHECKF(same_bits(few, one, out), "%d rows, %d to %d, three threads", rows, n_in, n_out);
    attn_linear_free(&l);
    free(w); free(b); free(x); free(few); free(one);
}

/* Weights of 34 MB, which no cache holds, are read in another order by three rows and more. Blocks over weights of 8 MB
 * and more have more rows. */
static void linear_far(void)
{
    rows_alone(5, 300, 28001, ATTN_F32);
    rows_alone(195, 300, 7001, ATTN_F32);
}

/* Rows too long to stay in L2 read all panels chain by chain. */
static void linear_long(void)
{
    rows_alone(7, 20000, 53, ATTN_F32);
    rows_alone(3, 20000, 53, ATTN_Q8);
}

/* Inf * 0 makes another NaN than -NAN does: both must be stored as the one NaN, in whole panels and in the last one */
static void linear_nan(void)
{
    enum { IN = 3, OUT = 37 };
    float w[OUT * IN], x[2 * IN] = {1, 0, 1, 1, -NAN, 1}, y[2 * OUT];
    attn_linear l;
    for (int i = 0; i < OUT * IN; i++) w[i] = i % 6 == 1 ? INFINITY : 1.0f;     /* in every other output */
    CHECK(linear_make(&l, w, NULL, IN, OUT) == ATTN_OK);
    CHECK(attn_linear_run(&l, y, x, 2, 0, NULL) == ATTN_OK);
    for (int i = 0; i < OUT; i++) {
        CHECK(i % 2 ? y[i] == 2.0f : float_bits(y[i]) == 0x7FC00000u);
        CHECK(float_bits(y[OUT + i]) == 0x7FC00000u);
    }
    attn_linear_free(&l);
}

/* Chains of 256 keep the digits that one chain over all inputs loses. The bounds lie between both: 2.9e-7, 2.9e-7 and
   3.0e-7 of chains, 4.1e-7, 5.7e-7 and 1.1e-6 of one; relative to the size of the outputs, which is sqrt(n_in) here. */
static void linear_digits(void)
{
    static const struct { int n_in; double bound; } cases[] = {{512, 3.3e-7}, {1024, 3.6e-7}, {4096, 4.5e-7}};
    enum { OUT = 64, ROWS = 30 };
    rng r = rng_make(test_seed + 20);
    for (int c = 0; c < 3; c++) {
        const int n = cases[c].n_in;
        float *w = normal(&r, (size_t)(OUT * n), 1.0), *x = normal(&r, (size_t)(ROWS * n), 1.0), y[ROWS * OUT];
        double error = 0.0;
        attn_linear l;
        CHECK(linear_make(&l, w, NULL, n, OUT) == ATTN_OK);
        CHECK(attn_linear_run(&l, y, x, ROWS, 0, NULL) == ATTN_OK);
        for (int i = 0; i < ROWS * OUT; i++) {
            double sum = 0.0;
            for (int k = 0; k < n; k++) sum += (double)w[i % OUT * n + k] * (double)x[i / OUT * n + k];
            error += (y[i] - sum) * (y[i] - sum);
        }
        error = sqrt(error / (ROWS * OUT) / n);
        CHECKF(error < cases[c].bound, "n_in %d: rms error %.3g", n, error);
        attn_linear_free(&l);
        free(w); free(x);
    }
}

/* The definition itself, in scalar code: for machines with fma, bit for bit. */
static void linear_chains(void)
{
    attn_backend best, one_answer;
    rng r = rng_make(test_seed + 21);
    attn_backends(&best, 1);
    if (test_one_answer_backends(&one_answer, 1) < 1 || one_answer != best) {
        test_skip("the best backend has bits of its own");
        return;
    }
    for (int i = 0; i < 30; i++) {
        const int n_in = rng_int(&r, 1, 3) * 256 + rng_int(&r, -1, 40), n_out = rng_int(&r, 1, 50),
                  rows = rng_int(&r, 1, 14);
        float *w = normal(&r, (size_t)(n_out * n_in), 1.0), *x = normal(&r, (size_t)(rows * n_in), 1.0);
        float *b = rng_int(&r, 0, 1) ? normal(&r, (size_t)n_out, 1.0) : NULL, *y = floats((size_t)(rows * n_out));
        attn_linear l;
        CHECK(linear_make(&l, w, b, n_in, n_out) == ATTN_OK);
        CHECK(attn_linear_run(&l, y, x, rows, 0, NULL) == ATTN_OK);
        for (int o = 0; o < rows * n_out && !test_failed(); o++) {
            volatile float sum = b ? b[o % n_out] : 0.0f;
            for (int at = 0; at < n_in; at += 256) {
                float chain = at ? 0.0f : sum;
                for (int k = at; k < n_in && k < at + 256; k++)
                    chain = test_fmaf(x[o / n_out * n_in + k], w[o % n_out * n_in + k], chain);
                sum = at ? sum + chain : chain;
            }
            CHECKF(float_bits(sum) == float_bits(y[o]), "%d to %d, %d rows: output %d is %.9g, not %.9g", n_in, n_out,
                   rows, o, (double)y[o], (double)sum);
        }
        attn_linear_free(&l);
        free(w); free(x); free(b); free(y);
    }
}

/* Every pair of formats, given and kept: the bits of a float linear over weights that were rounded by hand. Weights
   have the minimum alignment of their format and end at a guard page; sizes are near those of a vector, a panel, a
   piece and a chain. */
static void linear_formats(void)
{
    static const int sizes[] = {1,  2,  3,  4,  5,   7,   8,   9,   15,  16,  17,  31,  32,
                                33, 48, 63, 65, 127, 129, 255, 256, 257, 300, 304, 511, 513};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    rng seeds = rng_make(test_seed + 22);
    for (int i = 0; i < 270 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const attn_storage given = (attn_storage)(i % 3), kept = (attn_storage)(i / 3 % 3);
        const int n_in = sizes[rng_int(&r, 0, SIZES - 1)], n_out = sizes[rng_int(&r, 0, SIZES - 1)];
        const int rows = rng_int(&r, 0, 2) ? rng_int(&r, 1, 8) : rng_int(&r, 90, 110), width = rng_int(&r, 0, 4);
        const size_t n = (size_t)(n_in * n_out);
        float *w = guard_floats(n), *back = floats(n), *b = rng_int(&r, 0, 1) ? guard_floats((size_t)n_out) : NULL;
        float *x = normal(&r, (size_t)(rows * n_in), 1.0), *y = floats((size_t)(rows * n_out)),
              *want = floats((size_t)(rows * n_out));
        unsigned short *h = (unsigned short *)guard_alloc(n * sizeof *h), *rounded = malloc(n * sizeof *rounded);
        attn_linear_args a = {.n_in = n_in, .n_out = n_out, .b = b, .w_storage = given, .storage = kept};
        attn_exec exec = test_exec(width > 0 ? width : 1);
        attn_linear plain, l;
        if (!rounded) abort();
        rng_fill(&r, w, n);
        if (b) rng_fill(&r, b, (size_t)n_out);
        if (rng_int(&r, 0, 9) == 0) w[rng_int(&r, 0, (int)n - 1)] = rng_int(&r, 0, 1) ? INFINITY : -NAN;
        if (given != ATTN_F32) {
            CHECK(attn_narrow(h, w, n, given) == ATTN_OK && attn_widen(w, h, n, given) == ATTN_OK);
            a.w = h;
        } else a.w = w;
        memcpy(back, w, n * sizeof *back);
        if (kept != ATTN_F32)
            CHECK(attn_narrow(rounded, w, n, kept) == ATTN_OK && attn_widen(back, rounded, n, kept) == ATTN_OK);
        CHECK(linear_make(&plain, back, b, n_in, n_out) == ATTN_OK);
        CHECKF(attn_linear_init(&l, &a) == ATTN_OK && l.storage == kept, "%s", refusal_text());
        CHECK(attn_linear_run(&plain, want, x, rows, 0, NULL) == ATTN_OK);
        CHECK(attn_linear_run(&l, y, x, rows, 0, width > 0 ? &exec : NULL) == ATTN_OK);
        CHECKF(same_bits(y, want, (size_t)(rows * n_out)), "seed %llu: %d to %d, %d rows, format %d kept as %d", seed,
               n_in, n_out, rows, (int)given, (int)kept);
        attn_linear_free(&plain);
        attn_linear_free(&l);
        guard_free(w); guard_free(b); guard_free(h);
        free(back); free(x); free(y); free(want); free(rounded);
    }
}

/* Memory that one init has filled serves another: same bits, nothing written, nothing read past its content. Every byte
   of it is written, so two inits give the same file. */
static void linear_packed(void)
{
    rng seeds = rng_make(test_seed + 23);
    for (int i = 0; i < 90 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n_in = rng_int(&r, 1, 300), n_out = rng_int(&r, 1, 90), rows = rng_int(&r, 1, 6);
        float *w = normal(&r, (size_t)(n_in * n_out), 1.0), *b = normal(&r, (size_t)n_out, 1.0);
        float *x = normal(&r, (size_t)(rows * n_in), 1.0), *y = floats((size_t)(rows * n_out)),
              *z = floats((size_t)(rows * n_out));
        attn_linear_args a = {.n_in = n_in, .n_out = n_out, .w = w, .b = b, .storage = (attn_storage)(i % 4)};
        const size_t size = attn_linear_size(&a);
        unsigned char *mem[2] = {guard_alloc(size), guard_alloc(size)}, *file = guard_alloc(size - 64);
        attn_linear l;
        CHECK(size % 64 == 0 && (uintptr_t)mem[0] % 64 == 0 && (uintptr_t)file % 64 == 0);
        for (int k = 0; k < 2; k++) {
            memset(mem[k], k ? 0xAA : 0x55, size);
            a.mem = mem[k];
            a.mem_size = size;
            CHECK(attn_linear_init(&l, &a) == ATTN_OK);
        }
        CHECKF(!memcmp(mem[0], mem[1], size), "seed %llu: %d to %d: bytes that init has not written", seed, n_in,
               n_out);
        CHECK(attn_linear_run(&l, y, x, rows, 0, NULL) == ATTN_OK);
        attn_linear_free(&l);
        CHECK(!memcmp(mem[0], mem[1], size));
        memcpy(file, mem[0], size - 64);                                /* all but the zeros at the end */
        a.mem = NULL;
        a.w = a.packed = NULL;
        a.b = NULL;
        CHECK(attn_linear_size(&a) == size);
        a.packed = file;
        a.packed_size = size - 64;
        CHECKF(attn_linear_init(&l, &a) == ATTN_OK && l.storage == a.storage, "%s", refusal_text());
        CHECK(attn_linear_run(&l, z, x, rows, 0, NULL) == ATTN_OK);
        CHECKF(same_bits(y, z, (size_t)(rows * n_out)), "seed %llu: %d to %d", seed, n_in, n_out);
        attn_linear_free(&l);
        CHECK(!memcmp(file, mem[0], size - 64));
        free(w); free(b); free(x); free(y); free(z);
        guard_free(mem[0]); guard_free(mem[1]); guard_free(file);
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

/* Packed memory of another kind, each time by one change of a valid header. */
static void linear_packed_wrong(void)
{
    enum { LAYOUT = 2, LAYER, STORAGE, N_IN, N_OUT };                  /* words of the header */
    static const struct { int word, value; attn_status status; const char *words; } headers[] = {
        {0, 0, ATTN_E_BYTES, "packed does not begin with the header of a linear; mem must begin at a multiple of 64"},
        {1, 7, ATTN_E_BYTES, "packed does not begin with the header"},
        {LAYOUT, 1, ATTN_E_BYTES, "packed has the layout 1 but 2 is known: pack the weights again"},
        {LAYOUT, 1 << 24, ATTN_E_BYTES, "packed has the layout 16777216"},                /* the other byte order */
        {LAYER, 1, ATTN_E_BYTES, "packed does not hold a linear"},
        {STORAGE, 1, ATTN_E_SIZE, "storage is 1 in packed but 0 here"},
        {N_IN, 4, ATTN_E_SIZE, "n_in is 4 in packed but 3 here"},
        {N_OUT, -2, ATTN_E_SIZE, "n_out is -2 in packed but 2 here"}};
    float w[6] = {1, 2, 3, 4, 5, 6};
    attn_linear_args good = {.n_in = 3, .n_out = 2, .w = w}, a;
    const size_t size = attn_linear_size(&good);
    unsigned char *mem = guard_alloc(size), *one_further = guard_alloc(size + 4);
    int kept, *word = (int *)(void *)mem;
    attn_linear l;
    good.mem = mem;
    good.mem_size = size;
    CHECK(attn_linear_init(&l, &good) == ATTN_OK);
    good.w = NULL;
    good.packed = mem;
    good.packed_size = size;
    CHECK(attn_linear_init(&l, &good) == ATTN_OK && attn_linear_init(&l, &good) == ATTN_OK);
    refusal_around(spoil_linear, no_linear, &l);
#define CALL attn_linear_init(&l, &a)
    REFUSES(a.w = w, ATTN_E_CONFLICT, "packed and w are both set");
    REFUSES(a.b = w, ATTN_E_CONFLICT, "packed and b are both set");
    REFUSES(a.packed = mem + 4, ATTN_E_ALIGN, "packed is not aligned: its address is 4 behind a multiple of 64");
    REFUSES(a.packed_size = 0, ATTN_E_BYTES, "packed_size is 0: packed has no header");
    REFUSES(a.packed_size = 127, ATTN_E_BYTES, "packed_size is 127: packed has no header");
    REFUSES(a.packed_size = 128, ATTN_E_BYTES, "packed_size is 128 but these sizes take 448");
    REFUSES(a.packed_size = size - 65, ATTN_E_BYTES, "packed_size is 383 but");
    REFUSES(a.storage = ATTN_BF16, ATTN_E_SIZE, "storage is 0 in packed but 2 here");
    REFUSES(a.n_in = 2, ATTN_E_SIZE, "n_in is 3 in packed but 2 here");
    REFUSES(a.n_out = 3, ATTN_E_SIZE, "n_out is 2 in packed but 3 here");
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        kept = word[headers[i].word];
        word[headers[i].word] = headers[i].value;
        REFUSED(attn_linear_init(&l, &good), headers[i].status, headers[i].words);
        word[headers[i].word] = kept;
    }
    for (size_t cut = 0; cut <= 64; cut++) {   /* the last 64 bytes are room for alignment */
        a = good;
        a.packed_size = size - cut;
        CHECKF(attn_linear_init(&l, &a) == ATTN_OK, "%d bytes cut off: %s", (int)cut, refusal_text());
    }
    a = good;                                  /* memory that begins elsewhere works, but not as a file */
    a.packed = NULL;
    a.w = w;
    a.mem = one_further;
    CHECK((uintptr_t)one_further % 64 == 60 && attn_linear_init(&l, &a) == ATTN_OK);
    memcpy(mem, one_further, size);
    REFUSES((void)0, ATTN_E_BYTES,
            "packed does not begin with the header of a linear; mem must begin at a multiple of 64");
#undef CALL
    guard_free(mem); guard_free(one_further);
}

/* Rows of the weights come back as the values that are kept. */
static void linear_read(void)
{
    rng seeds = rng_make(test_seed + 24);
    for (int i = 0; i < 60 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const attn_storage kept = (attn_storage)(i % 3);
        const int n_in = rng_int(&r, 0, 2) ? rng_int(&r, 1, 40) : rng_int(&r, 250, 520), n_out = rng_int(&r, 1, 70);
        const size_t n_w = (size_t)(n_in * n_out);
        float *w = normal(&r, n_w, 1.0);
        unsigned short *h = malloc(n_w * sizeof *h);
        attn_linear_args a = {.n_in = n_in, .n_out = n_out, .w = w, .storage = kept};
        attn_linear l;
        if (!h) abort();
        CHECK(attn_linear_init(&l, &a) == ATTN_OK);
        if (kept != ATTN_F32) CHECK(attn_narrow(h, w, n_w, kept) == ATTN_OK && attn_widen(w, h, n_w, kept) == ATTN_OK);
        for (int k = 0; k < 5; k++) {
            const int row = k ? rng_int(&r, 0, n_out) : 0, n = k ? rng_int(&r, 0, n_out - row) : n_out;
            float *out = guard_floats((size_t)(n * n_in));
            CHECK(attn_linear_read(&l, row, n, out) == ATTN_OK);
            CHECKF(same_bits(out, w + row * n_in, (size_t)(n * n_in)), "seed %llu: rows %d.. of %d to %d, format %d",
                   seed, row, n_in, n_out, (int)kept);
            guard_free(out);
        }
        attn_linear_free(&l);
        free(w); free(h);
    }
}

/* In 8 bits rows are read as they would be from the blocks of 32 values that attn_narrow makes. Two kinds of weights
   are not rounded again: those that were read from such a linear, and those of blocks as q8_0 has them, a half times
   integers of which one is 127. */
static void linear_read_eight(void)
{
    rng r = rng_make(test_seed + 25);
    for (int i = 0; i < 40 * test_scale && !test_failed(); i++) {
        const int n_in = rng_int(&r, 0, 2) ? rng_int(&r, 1, 70) : rng_int(&r, 250, 520), n_out = rng_int(&r, 1, 40);
        const size_t n_w = (size_t)(n_in * n_out);
        float *w = normal(&r, n_w, 1.0), *want = floats(n_w), *out = guard_floats(n_w);
        attn_linear l;
        if (i % 4 == 0) w[rng_int(&r, 0, (int)n_w - 1)] = -INFINITY;
        for (int o = 0; o < n_out; o++)
            for (int at = 0; at < n_in; at += 32) {
                const size_t n = (size_t)(n_in - at < 32 ? n_in - at : 32);
                union { float aligned; char bytes[36]; } block;
                float *p = w + o * n_in + at;
                if (i % 2) {                                               /* q8_0 */
                    const float scale = ldexpf((float)rng_int(&r, 1024, 2047), rng_int(&r, -24, -3));
                    for (size_t k = 0; k < n; k++) p[k] = scale * (float)rng_int(&r, -127, 127);
                    p[rng_int(&r, 0, (int)n - 1)] = scale * (rng_int(&r, 0, 1) ? 127.0f : -127.0f);
                }
                CHECK(attn_narrow(block.bytes, p, n, ATTN_Q8) == ATTN_OK);
                CHECK(attn_widen(want + o * n_in + at, block.bytes, n, ATTN_Q8) == ATTN_OK);
            }
        CHECK(linear_make_as(&l, w, NULL, n_in, n_out, ATTN_Q8) == ATTN_OK);
        CHECK(attn_linear_read(&l, 0, n_out, out) == ATTN_OK);
        CHECKF(same_bits(out, want, n_w), "case %d: %d to %d", i, n_in, n_out);
        if (i % 2)
            for (size_t k = 0; k < n_w; k++) CHECK(out[k] == w[k]);
        attn_linear_free(&l);
        CHECK(linear_make_as(&l, want, NULL, n_in, n_out, ATTN_Q8) == ATTN_OK &&
              attn_linear_read(&l, 0, n_out, out) == ATTN_OK);
        if (i % 2) CHECK(same_bits(out, want, n_w));
        attn_linear_free(&l);
        free(w); free(want); guard_free(out);
    }
}

/* Packs a linear into guarded memory, and reads its weights. For guard_free. */
static unsigned char *pack_and_read(attn_linear_args a, float *out)
{
    unsigned char *mem;
    attn_linear l;
    a.mem_size = attn_linear_size(&a);
    a.mem = mem = guard_alloc(a.mem_size);
    CHECKF(attn_linear_init(&l, &a) == ATTN_OK && l.storage == a.storage, "%s", refusal_text());
    CHECK(attn_linear_read(&l, 0, a.n_out, out) == ATTN_OK);
    attn_linear_free(&l);
    return mem;
}

/* Weights given in blocks of 8 bits, as GGUF files have them. Kept in 8 bits they keep their integers and scales;
   blocks that cannot be kept, and all blocks kept in another format, are the floats d * n, rounded once. Blocks of ggml
   are packed to the bytes of these floats. */
static void linear_given_eight(void)
{
    static const int sizes[] = {32, 64, 96, 224, 256, 288, 512, 544, 1024};
    rng seeds = rng_make(test_seed + 27);
    for (int i = 0; i < 160 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n_in = sizes[rng_int(&r, 0, 8)], n_out = rng_int(&r, 1, 50), tame = i / 4 % 2;
        const size_t n = (size_t)(n_in * n_out);
        float *w = floats(n), *b = rng_int(&r, 0, 1) ? normal(&r, (size_t)n_out, 1.0) : NULL;
        float *want = floats(n), *out = guard_floats(n), *from_floats = floats(n);
        unsigned char *blocks = q8_0_weights(&r, w, (int)n / 32, rng_int(&r, 0, 1), tame), *mem[2];
        attn_linear_args a = {.n_in = n_in, .n_out = n_out, .w = w, .b = b, .storage = (attn_storage)(i % 4)};
        const size_t size = attn_linear_size(&a);
        mem[0] = pack_and_read(a, from_floats);
        a.w = blocks;
        a.w_storage = ATTN_Q8_0;
        CHECK(attn_linear_size(&a) == size);
        mem[1] = pack_and_read(a, out);
        if (a.storage == ATTN_Q8)
            for (size_t at = 0; at < n; at += 32) {
                float values[32];
                const int kept = q8_0_values(values, blocks + at / 32 * Q8_0_BYTES);
                CHECK(kept || !tame);
                memcpy(want + at, kept ? values : from_floats + at, sizeof values);
            }
        else memcpy(want, from_floats, n * sizeof *want);
        CHECKF(same_bits(out, want, n), "seed %llu: %d to %d, kept as %d", seed, n_in, n_out, (int)a.storage);
        CHECK(a.storage != ATTN_F32 || same_bits(out, w, n));
        if (tame || a.storage != ATTN_Q8)
            CHECKF(!memcmp(mem[0], mem[1], size), "seed %llu: %d to %d, other bytes than those of floats", seed, n_in,
                   n_out);
        guard_free(mem[0]); guard_free(mem[1]); guard_free(blocks); guard_free(out);
        free(w); free(b); free(want); free(from_floats);
    }
}

/* Every scale with every integer: 65,536 x 256 products, each of them the weight of a linear. Of the eight
   blocks of a finite scale seven are kept; that of -128 .. -97 is not. */
static void linear_given_scales(void)
{
    enum { ROWS = 256, SETS = 8 };                        /* 8 blocks have the integers -128 .. 127 */
    unsigned char *blocks = guard_alloc((size_t)ROWS * SETS * Q8_0_BYTES);
    float *out = floats((size_t)ROWS * SETS * 32), want[32], scaled[32];
    union { float aligned; char bytes[36]; } block;
    attn_linear_args a = {.n_in = SETS * 32, .n_out = ROWS, .w = blocks, .w_storage = ATTN_Q8_0};
    for (int from = 0; from < 65536 && !test_failed(); from += ROWS)
        for (int kept = 0; kept < 2; kept++) {
            int wrong = 0;
            for (int i = 0; i < ROWS * SETS; i++) {
                const unsigned short half = (unsigned short)(from + i / SETS);
                memcpy(blocks + i * Q8_0_BYTES, &half, sizeof half);
                for (int k = 0; k < 32; k++) blocks[i * Q8_0_BYTES + 2 + k] = (unsigned char)(i % SETS * 32 + k);
            }
            a.storage = kept ? ATTN_Q8 : ATTN_F32;
            guard_free(pack_and_read(a, out));
            for (int i = 0; i < ROWS * SETS; i++) {
                if (!q8_0_values(want, blocks + i * Q8_0_BYTES) && kept) {
                    CHECK(attn_narrow(block.bytes, want, 32, ATTN_Q8) == ATTN_OK);
                    CHECK(attn_widen(scaled, block.bytes, 32, ATTN_Q8) == ATTN_OK);
                    memcpy(want, scaled, sizeof want);
                }
                wrong += !same_bits(out + i * 32, want, 32);
            }
            CHECKF(wrong == 0, "%d of %d blocks with scales from %04x on, kept %d", wrong, ROWS * SETS, (unsigned)from,
                   kept);
        }
    guard_free(blocks);
    free(out);
}

/* The distance from the exact sum is at most what the rounding of both sides allows. */
static void linear_eight_error(void)
{
    static const int sizes[] = {1, 7, 31, 32, 33, 255, 256, 257, 1000};
    rng r = rng_make(test_seed + 26);
    double squares = 0.0, errors = 0.0;
    for (int i = 0; i < 60 * test_scale && !test_failed(); i++) {
        const int n_in = sizes[i % 9], n_out = rng_int(&r, 1, 40), rows = rng_int(&r, 1, 9);
        float *w = normal(&r, (size_t)(n_out * n_in), 1.0), *x = normal(&r, (size_t)(rows * n_in), 1.0),
              *b = normal(&r, (size_t)n_out, 1.0), *y = floats((size_t)(rows * n_out));
        attn_linear l;
        if (i % 2) w[rng_int(&r, 0, n_out * n_in - 1)] = 1000.0f;
        CHECK(linear_make_as(&l, w, b, n_in, n_out, ATTN_Q8) == ATTN_OK);
        CHECK(attn_linear_run(&l, y, x, rows, 0, NULL) == ATTN_OK);
        for (int k = 0; k < rows * n_out; k++) {
            double sum = b[k % n_out], bound = 0.0, size = fabs(sum);
            for (int at = 0; at < n_in; at += 32) {
                const float *p = x + k / n_out * n_in + at, *q = w + k % n_out * n_in + at;
                const int n = n_in - at < 32 ? n_in - at : 32;
                double mx = 0.0, mw = 0.0, sx = 0.0, sw = 0.0;
                for (int t = 0; t < n; t++) {
                    sum += (double)p[t] * (double)q[t];
                    sx += fabs(p[t]);
                    sw += fabs(q[t]);
                    mx = fmax(mx, fabs(p[t]));
                    mw = fmax(mw, fabs(q[t]));
                }
                bound += mx / 254.0 * sw + mw / 254.0 * sx + n * mx * mw / 64516.0;
                size += mx * sw + mw * sx;
            }
            CHECKF(fabs((double)y[k] - sum) <= bound + 70 * U * size, "%d to %d: %.9g is %.9g, bound %.3g", n_in, n_out,
                   (double)y[k], sum, bound);
            if (i % 2 == 0 && n_in == 1000) {
                errors += (y[k] - sum) * (y[k] - sum);
                squares += sum * sum;
            }
        }
        attn_linear_free(&l);
        free(w); free(x); free(b); free(y);
    }
    CHECKF(sqrt(errors / squares) < 0.01, "rms error %.4f of the outputs", sqrt(errors / squares));
}

static void linear_read_wrong(void)
{
    float w[6] = {1, 2, 3, 4, 5, 6}, out[6];
    const int none = 5;
    attn_linear_args a = {.n_in = 3, .n_out = 2, .w = w, .storage = ATTN_F16, .user = (void *)(uintptr_t)&none};
    attn_linear l, vast;
    memset(&l, 0, sizeof l);
    memset(out, 0x77, sizeof out);
    REFUSED(attn_linear_read(NULL, 0, 1, out), ATTN_E_NULL, "attn_linear_read: l is not a linear");
    REFUSED(attn_linear_read(&l, 0, 1, out), ATTN_E_NULL, "attn_linear_read: l is not a linear");
    CHECK(attn_linear_init(&l, &a) == ATTN_OK);
    REFUSED(attn_linear_read(&l, -1, 1, out), ATTN_E_SIZE, "row is -1");
    CHECK(refusal_user() == a.user);
    REFUSED(attn_linear_read(&l, 0, -1, out), ATTN_E_SIZE, "n is -1");
    REFUSED(attn_linear_read(&l, 3, 0, out), ATTN_E_SIZE, "row is 3 and n is 0 but n_out is 2");
    REFUSED(attn_linear_read(&l, 1, 2, out), ATTN_E_SIZE, "row is 1 and n is 2 but n_out is 2");
    REFUSED(attn_linear_read(&l, 2147480000, 2147480000, out), ATTN_E_SIZE, "row is 2147480000");
    REFUSED(attn_linear_read(&l, 0, 1, NULL), ATTN_E_NULL, "out is NULL");
    REFUSED(attn_linear_read(&l, 0, 1, behind(out, 2)), ATTN_E_ALIGN, "attn_linear_read: out is not aligned");
    REFUSED(attn_linear_read(&l, 0, 1, (float *)(uintptr_t)l.w + 1), ATTN_E_OVERLAP, "out overlaps w");
    REFUSED(attn_linear_read(&l, 0, 1, (float *)(uintptr_t)l.b + 15), ATTN_E_OVERLAP, "out overlaps b");
    vast = l;                                  /* larger than any memory */
    vast.n_in = vast.n_out = 1 << 30;
    if (sizeof(size_t) == 8) vast.n_in = vast.n_out = 2147480000;
    REFUSED(attn_linear_read(&vast, 0, vast.n_out, out), ATTN_E_OVERFLOW, " rows of n_in ");
    CHECK(untouched(out, sizeof out));
    CHECK(attn_linear_read(&l, 2, 0, NULL) == ATTN_OK);
    attn_linear_free(&l);
}

static void linear_wrong(void)
{
    float w[6] = {0}, x[3] = {0}, y[2], b[2] = {0}, gaps[13] = {0};
    attn_linear_args good = {.n_in = 3, .n_out = 2, .w = w}, a;
    attn_linear l, zero;
    attn_exec none = {0};
    char mem[64];
    memset(&zero, 0, sizeof zero);
    refusal_around(spoil_linear, no_linear, &l);
#define CALL attn_linear_init(&l, &a)
    REFUSES(a.w = NULL, ATTN_E_NULL, "w is NULL, and so is packed");
    REFUSES(a.n_in = 0, ATTN_E_SIZE, "n_in is 0");
    REFUSES(a.n_out = -2, ATTN_E_SIZE, "n_out is -2");
    REFUSES(a.w_storage = ATTN_Q8, ATTN_E_OPTION, "w_storage is 3 but its values are 0, 1, 2 and 4");
    REFUSES(a.w_storage = (attn_storage)5, ATTN_E_OPTION, "w_storage is 5 but its values are");
    REFUSES(a.w_storage = (attn_storage)-1, ATTN_E_OPTION, "w_storage is -1 but its values are");
    REFUSES(a.w_storage = ATTN_Q8_0, ATTN_E_SIZE, "n_in is 3 but blocks of ATTN_Q8_0 have 32 inputs");
    REFUSES((a.n_in = 48, a.w_storage = ATTN_Q8_0, a.storage = ATTN_Q8), ATTN_E_SIZE, "n_in is 48 but blocks");
    REFUSES((a.n_in = 32, a.w = NULL, a.w_storage = ATTN_Q8_0), ATTN_E_NULL, "w is NULL, and so is packed");
    REFUSES((a.n_in = 32, a.b = behind(b, 2), a.w_storage = ATTN_Q8_0), ATTN_E_ALIGN, "b is not aligned");
    REFUSES((a.w = behind(w, 1), a.w_storage = ATTN_F16), ATTN_E_ALIGN, "w is not aligned: its address is 1 behind");
    REFUSES(a.n_in = a.n_out = 2147483000, ATTN_E_OVERFLOW, "n_in is 2147483000");
    REFUSES(a.n_in = a.n_out = 2147480000, ATTN_E_OVERFLOW, "n_in 2147480000 times n_out");
    REFUSES(a.w = behind(w, 1), ATTN_E_ALIGN, "w is not aligned: its address is 1 behind");
    REFUSES(a.b = behind(b, 2), ATTN_E_ALIGN, "b is not aligned: its address is 2 behind");
    REFUSES((a.mem = mem, a.mem_size = sizeof mem), ATTN_E_WORK, "mem_size is 64 but attn_linear_size asks for 448");
#undef CALL
    refusal_forget();
    REFUSED(attn_linear_init(NULL, &good), ATTN_E_NULL, "attn_linear_init: the attn_linear is NULL");
    REFUSED(attn_linear_init(&l, NULL), ATTN_E_NULL, "attn_linear_init: the attn_linear_args are NULL");
    REFUSED_SIZE(attn_linear_size(NULL), ATTN_E_NULL, "attn_linear_size: ");
    a = good;
    a.n_out = 0;
    REFUSED_SIZE(attn_linear_size(&a), ATTN_E_SIZE, "attn_linear_size: n_out is 0");
    a = good;
    a.w_storage = ATTN_Q8_0;
    REFUSED_SIZE(attn_linear_size(&a), ATTN_E_SIZE, "attn_linear_size: n_in is 3 but blocks");
    good.user = &none;
    CHECK(attn_linear_init(&l, &good) == ATTN_OK);
    memset(y, 0x77, sizeof y);
    REFUSED(attn_linear_run(&l, NULL, x, 1, 0, NULL), ATTN_E_NULL, "y is NULL");
    CHECK(refusal_user() == &none);
    REFUSED(attn_linear_run(&l, y, NULL, 1, 0, NULL), ATTN_E_NULL, "x is NULL");
    REFUSED(attn_linear_run(&l, y, x, -1, 0, NULL), ATTN_E_SIZE, "rows is -1");
    REFUSED(attn_linear_run(&l, x, x, 1, 0, NULL), ATTN_E_OVERLAP, "y overlaps x");
    REFUSED(attn_linear_run(&l, x + 2, x, 1, 0, NULL), ATTN_E_OVERLAP, "y overlaps x");
    REFUSED(attn_linear_run(&l, gaps + 4, gaps, 2, 10, NULL), ATTN_E_OVERLAP, "y overlaps x");      /* between rows */
    REFUSED(attn_linear_run(&l, (float *)l.w + 1, x, 1, 0, NULL), ATTN_E_OVERLAP, "y overlaps w");
    REFUSED(attn_linear_run(&l, behind(y, 3), x, 1, 0, NULL), ATTN_E_ALIGN, "attn_linear_run: y is not aligned");
    REFUSED(attn_linear_run(&l, y, behind(x, 2), 1, 0, NULL), ATTN_E_ALIGN, "attn_linear_run: x is not aligned");
    REFUSED(attn_linear_run(&l, y, x, 1, 0, &none), ATTN_E_NULL, "exec->run is NULL");
    none = test_exec(2);
    none.width = 0;
    REFUSED(attn_linear_run(&l, y, x, 1, 0, &none), ATTN_E_OPTION, "exec->width is 0");
    none.width = -1;
    REFUSED(attn_linear_run(&l, y, x, 1, 0, &none), ATTN_E_OPTION, "exec->width is -1");
    {   /* rows too many for the address space: of x, of y (sizes set by hand) */
        attn_linear vast = l;
        vast.n_in = 1 << 30;
        REFUSED(attn_linear_run(&vast, y, x, 1 << 30, 0, NULL), ATTN_E_OVERFLOW, "n_in 1073741824");
        vast = l;
        vast.n_out = 1 << 30;
        REFUSED(attn_linear_run(&vast, y, x, 1 << 30, 0, NULL), ATTN_E_OVERFLOW, "n_out 1073741824");
    }
    CHECK(attn_linear_run(&l, NULL, NULL, 0, 0, NULL) == ATTN_OK);
    REFUSED(attn_linear_run(&zero, y, x, 1, 0, NULL), ATTN_E_NULL, "attn_linear_run: l ");
    REFUSED(attn_linear_run(NULL, y, x, 1, 0, NULL), ATTN_E_NULL, "attn_linear_run: l ");
    CHECK(untouched(y, sizeof y));
    attn_linear_free(&l);
    attn_linear_free(&l);
    attn_linear_free(NULL);
}

/* The stride of a single row is not used, not even to compute an address. */
static void linear_one_row(void)
{
    static const int sizes[] = {1, 5, 16, 23, 32, 40, 100};
    rng r = rng_make(test_seed);
    for (int i = 0; i < 7; i++)
        for (int storage = 0; storage <= ATTN_Q8; storage++) {
            const int n_in = 300, n_out = sizes[i];
            float *w = normal(&r, (size_t)(n_in * n_out), 1.0), *x = normal(&r, (size_t)n_in, 1.0), y[100], far[100];
            attn_linear_args a = {.n_in = n_in, .n_out = n_out, .w = w, .storage = (attn_storage)storage};
            attn_linear l;
            CHECK(attn_linear_init(&l, &a) == ATTN_OK);
            CHECK(attn_linear_run(&l, y, x, 1, 0, NULL) == ATTN_OK);
            CHECK(attn_linear_run(&l, far, x, 1, PTRDIFF_MAX, NULL) == ATTN_OK);
            CHECK(same_bits(y, far, (size_t)n_out));
            attn_linear_free(&l);
            free(w); free(x);
        }
}

static void keep_number(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    (void)task, (void)arg;
    *(int *)pool = n;
}

/* The executor runs nothing, so y and x need no memory. */
static void linear_tasks(void)
{
    rng r = rng_make(test_seed);
    const int rows = INT_MAX - 1023, n_in = 4, n_out = 1 << 15;
    float *w = normal(&r, (size_t)n_in * (size_t)n_out, 1.0), *at[2] = {NULL, NULL};
    attn_linear l;
    CHECK(linear_make(&l, w, NULL, n_in, n_out) == ATTN_OK);
    if (sizeof(size_t) == 8)
        for (int i = 0; i < 2; i++) {
            const size_t address = ((size_t)1 << 28 << 24) * (size_t)(i + 1);    /* beyond all memory */
            memcpy(&at[i], &address, sizeof address);
        }
    for (int width = 2; at[0]; width = width > INT_MAX / 3 ? INT_MAX : width * 3) {
        int n = 0;
        attn_exec exec = {&n, width, keep_number};
        CHECK(attn_linear_run(&l, at[0], at[1], rows, 0, &exec) == ATTN_OK);
        CHECKF(n >= (rows + 95) / 96, "%d tasks on %d threads", n, width);
        if (width == INT_MAX) break;
    }
    attn_linear_free(&l);
    free(w);
}

extern const test_case suite_linear[];
SUITE(linear) = {
    {"oracle", linear_oracle_test,
     "a weight, bias or padded column in the wrong place; a write past the last output"},
    {"independent rows", linear_company, "a row that depends on the rows, blocks or threads around it"},
    {"large weights", linear_far,
     "a pair of panels skipped or read twice, a chain that starts at the wrong input, rows outside of all blocks"},
    {"long rows", linear_long, "a chain added to the outputs of another panel"},
    {"nan", linear_nan, "a NaN whose sign or payload depends on the machine"},
    {"accuracy", linear_digits, "one chain over all inputs, which loses precision"},
    {"chains", linear_chains, "chains cut elsewhere, with another start, or added in another order"},
    {"formats", linear_formats,
     "weights of one format given and another kept: rounded twice or not at all, misplaced, read past"},
    {"packed", linear_packed, "packed memory that is written, copied, read past its end, or contains old bytes"},
    {"packed rejected", linear_packed_wrong,
     "packed memory of other weights, another layout or byte order, or truncated, that is accepted"},
    {"read", linear_read, "rows of weights read from the wrong place, in the wrong format, or written past"},
    {"read in 8 bits", linear_read_eight, "a block rounded again, a scale of another block or output"},
    {"given in 8 bits", linear_given_eight,
     "a block that is rounded again, misplaced, read past, or kept though 8 bits cannot keep it"},
    {"given scales", linear_given_scales, "a scale of a block that becomes another float; a product that is rounded"},
    {"error in 8 bits", linear_eight_error, "a block that loses more than the rounding of both sides"},
    {"read rejected", linear_read_wrong, "rows that do not exist; out over the weights"},
    {"rejected calls", linear_wrong, "invalid sizes, NULL, an overlapping output, a zeroed linear"},
    {"one row", linear_one_row, "an address after the only row, which a large stride makes undefined"},
    {"tasks", linear_tasks, "a number of tasks that wraps, so that none of them runs"},
    {0}};
