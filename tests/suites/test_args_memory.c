/* test_args_memory.c: sizes of attn_sdpa that exceed the address space, and its work memory. */
#if defined(__linux__)
#define _DEFAULT_SOURCE                   /* mmap with MAP_NORESERVE, for strides beyond 32 bits */
#include <sys/mman.h>
#endif
#include <limits.h>
#include "args_world.h"

/* ---- sizes that do not fit ------------------------------------------------------------------------------------- */

static attn_args tiny(void)
{
    attn_args a = good();
    a.batch = a.heads = a.kv_heads = a.head_dim = a.v_head_dim = 1;
    return a;
}

static void overflow(void)
{
    int big = INT_MAX, half = 1 << 30;
    int e = sizeof(size_t) < 8 ? 10 : 20, n = 1 << (e + 1);       /* tensors fit, 2^e matrices of n x n do not */
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "", a.batch = a.n_q = a.heads = a.head_dim = big; a.kv_heads = 0);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "", a.batch = a.n_k = a.heads = a.head_dim = big; a.kv_heads = 0);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "", a.batch = a.n_k = a.heads = a.v_head_dim = big; a.kv_heads = 0);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "", a.n_q = half; a.heads = a.kv_heads = half; a.head_dim = 4); /* 2^64 bytes */
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "", a.n_k = half; a.heads = a.kv_heads = half; a.head_dim = 2); /* 2^63 bytes */
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "", a.batch = a.n_q = half; a.heads = a.kv_heads = 4; a.head_dim = 1;
               a.v_head_dim = 4);
    WRONG_SIZE(tiny, ATTN_E_OVERFLOW, "out out_stride[2]",
               a.heads = a.n_q = a.head_dim = a.v_head_dim = big - 1023; a.kv_heads = 0);
    WRONG_SIZE(tiny, ATTN_E_OVERFLOW, "weights", a.heads = 1 << e; a.n_q = a.n_k = n; a.weights = w.weights);
    WRONG_SIZE(tiny, ATTN_E_OVERFLOW, "mask", a.batch = 1 << e; a.n_q = a.n_k = n; a.mask = w.mask;
               set3(a.mask_shape, 1 << e, 1, n));
    WRONG_SIZE(tiny, ATTN_E_OVERFLOW, "bias", a.heads = 1 << e; a.n_q = a.n_k = n; a.bias = w.bias);
    WRONG_SIZE(tiny, ATTN_E_OVERFLOW, "keep", a.batch = 4 << e; a.n_q = a.n_k = n; a.keep = w.keep;
               set3(a.keep_shape, 4 << e, 1, n));
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "q ", a.q_stride[0] = PTRDIFF_MAX);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "q ", a.q_stride[1] = PTRDIFF_MAX);         /* wraps times 3, */
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "q ", a.q_stride[2] = PTRDIFF_MAX);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "k ", a.n_k = 2; a.batch = 3; a.k_stride[0] = PTRDIFF_MAX);  /* with the rest, */
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "k ", a.n_k = 2; a.batch = 5; a.k_stride[0] = PTRDIFF_MAX);  /* times 4 */
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "mask", a.n_q = 2; a.mask = w.mask; a.mask_stride[2] = PTRDIFF_MAX);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "keep", a.n_q = 2; a.keep = w.keep; a.keep_stride[2] = PTRDIFF_MAX);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "k ", a.k_stride[0] = PTRDIFF_MAX / 4);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "v ", a.v_stride[0] = a.v_stride[1] = PTRDIFF_MAX / 4);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "out", a.out_stride[0] = PTRDIFF_MAX / 2);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "mask", a.mask = w.mask; a.mask_stride[2] = PTRDIFF_MAX);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "bias", a.bias = w.bias; a.bias_stride[2] = PTRDIFF_MAX / 4);
    WRONG_SIZE(good, ATTN_E_OVERFLOW, "keep", a.keep = w.keep; a.keep_stride[2] = PTRDIFF_MAX);
}

/* A workspace larger than memory, although every tensor fits: too many blocks, too many rows, too many threads. */
static void overflow_of_work(void)
{
    static const struct { int batch, n_q, n_k, head_dim, v_head_dim;
    } sizes[] = {{(1 << 29) - 1, 8, 1, INT_MAX - 1023, 1},
                 {1 << 28, 8, 1000, INT_MAX - 1023, 1 << 24},
                 {32, 2, INT_MAX - 1023, 1 << 30, 1 << 30},
                 {64, 30, INT_MAX - 1023, 1 << 24, 1 << 30}, /* two rows of q are 2^34 bytes for each thread */
                 {1 << 26, 100, 128, 1 << 26, 1 << 26}};     /* whole blocks do not fit, although a few rows fit */
    attn_exec exec = { NULL, INT_MAX, no_run };
    attn_args a = tiny();
    size_t i;
    a.q_cum = w.q_cum; a.k_cum = w.k_cum;                        /* attn_sdpa_workspace with n_q given reads no array */
    a.batch = 1 << 30; a.n_q = INT_MAX - 1023; a.n_k = 1;
    CHECK(attn_sdpa_workspace(&a) == SIZE_MAX);
    a.lse = w.lse;                                                /* 2^63 bytes of lse alone */
    CHECK(attn_sdpa_workspace(&a) == SIZE_MAX);
    a.lse = NULL; a.n_q = 1;
    CHECK(attn_sdpa_workspace(&a) == SIZE_MAX);
    a.batch = 1; a.n_q = INT_MAX - 1023;
    CHECK(attn_sdpa_workspace(&a) == SIZE_MAX);
    if (sizeof(size_t) == 8) {                                    /* neither rows nor entries alone are too many */
        a.batch = 1 << 20; a.n_q = 1 << 30;
        CHECK(attn_sdpa_workspace(&a) == SIZE_MAX);
        a.batch = 1;
        CHECK(attn_sdpa_workspace(&a) != SIZE_MAX);
    }
    a.n_q = 1 << 28;
    CHECK(attn_sdpa_workspace(&a) != SIZE_MAX);
    if (sizeof(size_t) < 8) return;                               /* on 32 bits, sizes that fit here would not */
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t last = 0;
        long long width;
        attn_args *c = &a;
        a = tiny();
        a.q_cum = w.q_cum; a.k_cum = w.k_cum; a.exec = &exec;
        a.batch = sizes[i].batch; a.n_q = sizes[i].n_q; a.n_k = sizes[i].n_k;
        a.head_dim = sizes[i].head_dim; a.v_head_dim = sizes[i].v_head_dim;
        for (width = 1; width <= INT_MAX; width += width / 3 + 1) {
            size_t need;
            exec.width = (int)width;
            need = attn_sdpa_workspace(c);
            CHECKF(need >= last, "shape %d: %d threads need %lu, fewer %lu", (int)i, exec.width, (unsigned long)need,
                   (unsigned long)last);
            CHECKF(need == SIZE_MAX || need <= SIZE_MAX / 4, "shape %d: no object has %lu bytes", (int)i,
                   (unsigned long)need);
            last = need;
        }
        CHECKF(last == SIZE_MAX, "shape %d fits on %d threads", (int)i, exec.width);
    }
    a = tiny();                                                   /* 2^32 rows of one K/V head: no int counts them */
    a.q_cum = w.q_cum; a.k_cum = w.k_cum; a.exec = &exec; exec.width = 4;
    a.heads = a.n_q = 1 << 16; a.n_k = 1000;
    CHECK(attn_sdpa_workspace(&a) == SIZE_MAX);
    a = tiny();                                                   /* a call of this kind with one empty entry */
    memset(w.q_cum, 0, sizeof w.q_cum); memset(w.k_cum, 0, sizeof w.k_cum);
    a.q_cum = w.q_cum; a.k_cum = w.k_cum; a.exec = &exec; a.n_q = 1 << 30; a.n_k = 1; exec.width = INT_MAX;
    a.head_dim = a.v_head_dim = 1 << 30;
    a.out = NULL; a.q = a.k = a.v = NULL;
    refused(__LINE__, "2^24 blocks of 2^40 bytes", &a, ATTN_E_OVERFLOW, "workspace");
    no_workspace(__LINE__, "2^24 blocks of 2^40 bytes", &a);
}

/* Products that overflow 32 bits and nothing else are ordinary sizes on a 64-bit machine. */
static void beyond_32_bits(void)
{
#if defined(__linux__) && SIZE_MAX > 0xFFFFFFFFu
    enum { ROWS = 3, KEYS = 5 };
    const ptrdiff_t step = (ptrdiff_t)1 << 30;                    /* 4 GB from row to row */
    size_t bytes = (size_t)step * 4 * (KEYS + 1);
    float *q, *k, *v, *far[4], out[ROWS * 4], *far_out, m[ROWS * KEYS], *far_m;
    attn_backend list[16];
    int n = test_all_backends(list, 16), b, i, j, t;
    rng r = rng_make(test_seed);
    attn_args a;
    for (t = 0; t < 4; t++) {
        far[t] = (float *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (far[t] == (float *)MAP_FAILED) {
            test_skip("no %lu MB of addresses: strides beyond 32 bits are not tested", (unsigned long)(bytes >> 20));
            while (t-- > 0) munmap(far[t], bytes);
            return;
        }
    }
    q = guard_floats(ROWS * 4); k = guard_floats(KEYS * 4); v = guard_floats(KEYS * 4);
    rng_fill(&r, q, ROWS * 4); rng_fill(&r, k, KEYS * 4); rng_fill(&r, v, KEYS * 4); rng_fill(&r, m, ROWS * KEYS);
    for (j = 0; j < KEYS; j++) {
        memcpy(far[0] + j * step, k + j * 4, 16); memcpy(far[1] + j * step, v + j * 4, 16);
        if (j < ROWS) memcpy(far[2] + j * step, q + j * 4, 16);
    }
    far_m = far[3] + 1000; far_out = far[2] + 1000;
    for (i = 0; i < ROWS; i++) memcpy(far_m + i * step, m + i * KEYS, KEYS * sizeof *m);
    for (b = 0; b < n; b++) {
        memset(&a, 0, sizeof a);
        a.q = q; a.k = k; a.v = v; a.out = out; a.mask = m; a.backend = list[b];
        a.batch = a.heads = 1; a.n_q = ROWS; a.n_k = KEYS; a.head_dim = 4;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        a.k = far[0]; a.v = far[1]; a.q = far[2]; a.out = far_out; a.mask = far_m;
        a.q_stride[1] = a.k_stride[1] = a.v_stride[1] = a.out_stride[1] = a.mask_stride[2] = step;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        for (i = 0; i < ROWS; i++)
            CHECKF(same_bits(far_out + i * step, out + i * 4, 4), "row %d, %s", i, attn_backend_name(list[b]));
    }
    for (t = 0; t < 4; t++) munmap(far[t], bytes);
    guard_free(q); guard_free(k); guard_free(v);
#else
    test_skip("strides beyond 32 bits: needs a 64-bit machine and mmap");
#endif
}

/* Distances at both ends of the largest rel_bias: sums of them fit an int. */
static void largest_extent(void)
{
#if defined(__linux__) && SIZE_MAX > 0xFFFFFFFFu
    enum { KEYS = 32, MOST = (INT_MAX - 1023) / 2 };
    static const int pos[] = { 0, MOST - 16, MOST, MOST + 1, MOST + 100, MOST + 1000, INT_MAX };
    const size_t bytes = (2 * (size_t)MOST + 1) * sizeof(float);
    float *rel = (float *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    float q[4], k[KEYS * 4], v[KEYS * 4], out[4], want[4] = { 0 };
    attn_backend list[16];
    int n = test_one_answer_backends(list, 16), b, i;
    rng r = rng_make(test_seed);
    attn_args a;
    if (rel == (float *)MAP_FAILED) { test_skip("no %lu MB of addresses", (unsigned long)(bytes >> 20)); return; }
    rng_fill(&r, q, 4); rng_fill(&r, k, KEYS * 4); rng_fill(&r, v, KEYS * 4);
    for (i = 0; i < 20; i++) {
        rel[i] = rel[2 * (size_t)MOST - i] = (float)i;
        rel[MOST - 10 + i] = (float)(i % 7);
    }
    for (i = 0; i < 14; i++) for (b = 0; b < n; b++) {
        memset(&a, 0, sizeof a);
        a.q = q; a.k = k; a.v = v; a.out = out; a.rel_bias = rel; a.rel_extent = MOST;
        a.backend = b == 0 ? ATTN_SCALAR : list[b - 1];
        a.batch = a.heads = a.n_q = 1; a.n_k = KEYS; a.head_dim = 4;
        a.q_pos = i % 2 ? pos[i / 2] : -pos[i / 2];
        CHECK(attn_sdpa(&a) == ATTN_OK);
        if (b == 0) memcpy(want, out, sizeof want);
        CHECKF(same_bits(out, want, 4), "q_pos %d, %s", a.q_pos, attn_backend_name(a.backend));
    }
    munmap(rel, bytes);
#else
    test_skip("the largest rel_extent: needs a 64-bit machine and mmap");
#endif
}

/* ---- workspace ------------------------------------------------------------------------------------------------- */

/* The reported size is enough, at any alignment; one byte less is rejected; the bits are the same. */
static void workspace(void)
{
    static const int rows[] = { 1, 3, 40, 77 }, keys[] = { 4, 130, 270 };
    static float q[77 * 16], k[270 * 16], v[270 * 16], out[2][77 * 16];
    attn_backend list[16];
    int n = test_all_backends(list, 16), b, i, j, e, shift;
    rng r = rng_make(test_seed);
    rng_fill(&r, q, 77 * 16); rng_fill(&r, k, 270 * 16); rng_fill(&r, v, 270 * 16);
    for (b = 0; b < n; b++) for (i = 0; i < 4; i++) for (j = 0; j < 3; j++) for (e = 0; e < 3; e++) {
        attn_exec exec = test_exec(e == 2 ? 3 : 1);
        attn_args a;
        size_t need;
        char why[256], words[64];
        memset(&a, 0, sizeof a);
        a.q = q; a.k = k; a.v = v; a.out = out[0];
        a.batch = 1; a.heads = 2; a.head_dim = 8; a.n_q = rows[i]; a.n_k = keys[j]; a.backend = list[b];
        if (e) a.exec = &exec;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        need = attn_sdpa_workspace(&a);
        CHECK(need != SIZE_MAX);
        a.out = out[1];
        for (shift = 0; shift < 4; shift++) {
            unsigned char *work = (unsigned char *)guard_alloc(need + (size_t)shift);
            memset(out[1], 0xA5, sizeof out[1]);
            a.work = work + shift; a.work_size = need;
            CHECK(attn_sdpa(&a) == ATTN_OK);
            CHECK(same_bits(out[0], out[1], (size_t)rows[i] * 16));
            if (need > 0) {
                memset(out[1], 0xA5, sizeof out[1]);
                a.work_size = need - 1;
                CHECK(attn_sdpa(&a) == ATTN_E_WORK);
                CHECK(float_bits(out[1][0]) == 0xA5A5A5A5u);
                CHECK(attn_check(&a, why, sizeof why) == ATTN_E_WORK);
                snprintf(words, sizeof words, "work_size %lu %lu", (unsigned long)need, (unsigned long)need - 1);
                CHECKF(says(why, words), "no [%s] in: %s", words, why);
                CHECK(attn_sdpa_workspace(&a) == need);           /* attn_sdpa_workspace ignores work_size */
            }
            guard_free(work);
        }
    }
}

/* a larger call never needs less memory */
static void workspace_grows(void)
{
    static const int steps[] = { 0, 1, 2, 5, 6, 7, 8, 15, 16, 17, 24, 31, 33, 64, 127, 128, 129, 200, 256, 257, 511,
                                 513, 1000, 2047, 2049, 5000, 100000, 1000000 };
    enum { STEPS = sizeof steps / sizeof *steps };
    const int last = sizeof(size_t) < 8 ? STEPS - 2 : STEPS;      /* a million keys do not fit 32 bits */
    attn_backend list[16];
    int n = test_all_backends(list, 16), b, i, j, x, e;
    attn_exec exec = test_exec(4);
    for (b = 0; b < n; b++) for (e = 0; e < 2; e++) for (x = 0; x < 4; x++) {
        size_t t[STEPS][STEPS];
        for (i = 0; i < last && !test_failed(); i++) for (j = 0; j < last; j++) {
            attn_args a = good();
            a.backend = list[b];
            a.exec = e ? &exec : NULL;
            a.heads = 8; a.kv_heads = x == 1 ? 2 : 8; a.head_dim = x == 2 ? 128 : 64; a.v_head_dim = x == 3 ? 7 : 0;
            a.batch = 1; a.n_q = steps[i]; a.n_k = steps[j];
            t[i][j] = attn_sdpa_workspace(&a);
            CHECKF(t[i][j] != SIZE_MAX, "n_q %d n_k %d", steps[i], steps[j]);
            CHECKF(i == 0 || t[i][j] >= t[i - 1][j], "%s, exec %d, shape %d, %d keys: %d rows need %lu, %d rows %lu",
                   attn_backend_name(list[b]), e, x, steps[j], steps[i - 1], (unsigned long)t[i - 1][j], steps[i],
                   (unsigned long)t[i][j]);
            CHECKF(j == 0 || t[i][j] >= t[i][j - 1], "%s, exec %d, shape %d, %d rows: %d keys need %lu, %d keys %lu",
                   attn_backend_name(list[b]), e, x, steps[i], steps[j - 1], (unsigned long)t[i][j - 1], steps[j],
                   (unsigned long)t[i][j]);
            a.batch = 7;
            CHECKF(attn_sdpa_workspace(&a) >= t[i][j], "%d rows, %d keys: batch 7 needs less than 1", steps[i],
                   steps[j]);
        }
    }
}

/* the same for any heads and dims, adding one row, key or entry at a time */
static void workspace_grows_slowly(void)
{
    rng r = rng_make(test_seed);
    attn_exec exec = test_exec(2);
    int i, j, axis;
    for (i = 0; i < 400 * test_scale && !test_failed(); i++) {
        attn_args a = good();
        const int group = rng_int(&r, 1, 3);
        exec.width = rng_int(&r, 1, 9);
        a.exec = rng_int(&r, 0, 1) ? &exec : NULL;
        a.kv_heads = rng_int(&r, 1, 70); a.heads = group * a.kv_heads;
        a.head_dim = rng_int(&r, 1, 300); a.v_head_dim = rng_int(&r, 0, 2) ? 0 : rng_int(&r, 1, 300);
        for (axis = 0; axis < 3; axis++) {
            int *grows = axis == 0 ? &a.n_q : axis == 1 ? &a.n_k : &a.batch;
            size_t need = 0;
            a.batch = rng_int(&r, 1, 5); a.n_q = rng_int(&r, 1, 60); a.n_k = rng_int(&r, 1, 400);
            for (j = 0; j < 60; j++, ++*grows) {
                const size_t now = attn_sdpa_workspace(&a);
                CHECKF(now != SIZE_MAX && now >= need,
                       "heads %d/%d head_dim %d/%d width %d batch %d n_q %d n_k %d: %lu, "
                       "and %lu with one %s less",
                       a.heads, a.kv_heads, a.head_dim, a.v_head_dim, a.exec ? exec.width : 0, a.batch, a.n_q, a.n_k,
                       (unsigned long)now, (unsigned long)need,
                       axis == 0   ? "row"
                       : axis == 1 ? "key"
                                   : "entry");
                need = now;
            }
        }
    }
}

/* private/args_memory.h: these need hooks */
void args_allocation_fails(void);
void args_caller_workspace(void);
void args_garbage_memory(void);
void args_stack(void);                    /* private/layers_memory.h: so do these */
void args_serial(void);

/* Ragged entries without rows have no blocks, but the states of a split call have room for them. */
static void workspace_of_idle(void)
{
    enum { ENTRIES = 16, WIDE = 8, SIZE = 64, KEYS = 1500, ROW = WIDE * SIZE };
    int q_cum[ENTRIES + 1] = { 0 }, k_cum[ENTRIES + 1];
    float *q = guard_floats(ROW), *k = guard_floats((size_t)KEYS * ENTRIES * ROW);
    float *out = guard_floats(ROW), *want = guard_floats(ROW);
    rng r = rng_make(test_seed);
    attn_args a = attn_args_for(ENTRIES, 0, 0, WIDE, SIZE);
    attn_exec exec = test_exec(2);
    rng_fill(&r, q, ROW);
    rng_fill(&r, k, (size_t)KEYS * ENTRIES * ROW);
    for (int i = 0; i <= ENTRIES; i++) k_cum[i] = i * KEYS;
    a.q = q, a.k = k, a.v = k, a.out = want, a.q_cum = q_cum, a.k_cum = k_cum;
    for (int idle = 0; idle < ENTRIES; idle += 5) {
        for (int i = 0; i <= ENTRIES; i++) q_cum[i] = i > idle;
        a.out = want, a.exec = NULL, a.work = NULL, a.work_size = 0;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        a.out = out, a.exec = &exec;
        a.work_size = attn_sdpa_workspace(&a);
        a.work = guard_alloc(a.work_size);
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECKF(same_bits(out, want, ROW), "the row of entry %d", idle);
        guard_free(a.work);
    }
    guard_free(q), guard_free(k), guard_free(out), guard_free(want);
}

extern SUITE(args_memory);
SUITE(args_memory) = {
    { "overflow", overflow, "a product of sizes that wraps around and is accepted" },
    { "overflow_of_work", overflow_of_work, "a workspace size that wraps around to a small one" },
    { "largest_extent", largest_extent, "a sum of two distances that overflows an int" },
    { "beyond_32_bits", beyond_32_bits, "an int in an address computation" },
    { "workspace", workspace, "a byte written past the workspace, an assumed alignment, other bits without malloc" },
    { "workspace_grows", workspace_grows, "a workspace for the largest call that is too small for a smaller one" },
    { "workspace_steps", workspace_grows_slowly, "the same, one step at a time, for any heads and dims" },
    { "workspace_idle", workspace_of_idle, "states of entries without rows past the end of the workspace" },
    { "allocation", args_allocation_fails, "memory leaked or something written when the n-th allocation fails" },
    { "no_malloc", args_caller_workspace, "an allocation although the caller supplied work" },
    { "uninitialised_work", args_garbage_memory, "work memory that is read before it is written" },
    { "stack_room", args_stack,
      "a workspace on the stack that exceeds ATTN_STACK, or an allocation although it fits" },
    { "serial_calls", args_serial, "threads woken for a call that ends before they are awake" },
    { 0 } };
