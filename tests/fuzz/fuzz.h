/* fuzz.h: what the fuzz targets share. Each fuzz_*.c is one program: with libFuzzer (clang -fsanitize=fuzzer,address), or
 * with replay.c and any compiler. They share one implementation, impl.c, compiled with an allocator that can fail.
 *
 * A target draws everything from the input, in order; when the input ends, zeros follow. A wrong answer aborts. */
#ifndef FUZZ_H
#define FUZZ_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIE(...) (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), printf("\n"), fflush(stdout), abort())
#define MUST(cond) ((cond) ? (void)0 : DIE("%s", #cond))

/* ---- impl.c: an allocator that counts, and fails at a given allocation ------------------------------------------------- */
typedef struct heap { long live, calls, fail_at; } heap;              /* fail_at 0: never; 1: the first */
extern heap the_heap;
extern struct refusal { int count, status; char text[256]; } refusal; /* number of calls of ATTN_REFUSED, and the last
                                                                         one */

#ifndef FUZZ_IMPLEMENTATION
#include "oracle.h"                                                    /* and with it attn.h */

/* ---- the input ------------------------------------------------------------------------------------------------------ */
typedef struct input {
    const uint8_t *at, *end;
    uint32_t noise;                       /* state of the random numbers in tensors */
} input;

static unsigned u8(input *in) { return in->at < in->end ? *in->at++ : 0u; }
static unsigned u16(input *in)
{
    unsigned low = u8(in);
    return low | u8(in) << 8;
}
static uint32_t u32(input *in)
{
    uint32_t low = u16(in);
    return low | (uint32_t)u16(in) << 16;
}
static int from_to(input *in, int lo, int hi) /* at most 65536 values */
{
    const unsigned span = (unsigned)(hi - lo) + 1u;
    return hi <= lo ? lo : lo + (int)((span <= 256u ? u8(in) : u16(in)) % span);
}
static int coin(input *in) { return (int)(u8(in) & 1u); }

/* A size that may be invalid. */
__attribute__((unused)) static int odd_size(input *in)
{
    static const int list[] = {-1, 0, 1, 2, 3, 16, 17, 127, 129, INT_MAX, INT_MIN, INT_MAX - 1023, INT_MAX - 15, 1 << 30,
                               1 << 16, 46341};
    const unsigned what = u8(in);
    return what < 160 ? list[what % 16] : what < 200 ? (int)u8(in) : what < 240 ? (int)u16(in) - 32768 : (int)u32(in);
}

/* A number of about N(0, 1), sometimes a special one. */
static float number(input *in)
{
    int sum;
    in->noise = in->noise * 1664525u + 1013904223u;
    sum = (int)(in->noise >> 24) + (int)(in->noise >> 16 & 255u) + (int)(in->noise >> 8 & 255u);
    return (float)(sum - 382) / 128.0f;
}

ORACLE const int *numbers(input *in, int n, int lo, int hi)          /* exactly n ints on the heap */
{
    int *x = (int *)malloc(n > 0 ? (size_t)n * sizeof *x : 1), i;
    if (!x) abort();
    for (i = 0; i < n; i++) x[i] = from_to(in, lo, hi);
    return x;
}

static float *floats(size_t n)                                       /* exactly n floats, filled with a pattern */
{
    float *x = (float *)malloc(n ? n * sizeof *x : 1);
    if (!x) abort();
    if (n) memset(x, 0xA5, n * sizeof *x);
    return x;
}

__attribute__((unused)) static float *normals(input *in, size_t n)
{
    float *x = floats(n);
    size_t i;
    for (i = 0; i < n; i++) x[i] = number(in);
    return x;
}

ORACLE int wiped(const void *p, size_t n)
{
    const unsigned char *c = (const unsigned char *)p;
    while (n && *c == 0xA5) c++, n--;
    return n == 0;
}

/* ---- an executor: every task, in a scrambled order, on this thread -------------------------------------------------- */
ORACLE void scrambled(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    const int step = n % 7 ? 7 : n % 5 ? 5 : 1, width = *(int *)pool;
    int i, at = width % (n > 0 ? n : 1);
    MUST(n >= 1);
    for (i = 0; i < n; i++, at = (at + step) % n) task(arg, at);
}

/* oracle_check for values that may be NaN or infinite: if the bound is NaN, the value must be exact */
ORACLE void agree(const attn_args *a)
{
    oracle o;
    oracle_bound e;
    size_t i, rows, n_out, n_weights;
    oracle_run(&o, a);
    oracle_bound_run(&e, &o, a);
    rows = (size_t)o.shape.batch * (size_t)o.shape.heads * (size_t)o.shape.n_q;
    n_out = rows * (size_t)o.shape.v_head_dim, n_weights = rows * (size_t)o.shape.n_k;
    for (i = 0; i < n_out; i++) if (e.out[i] != e.out[i]) e.out[i] = 0;
    for (i = 0; i < n_weights; i++) if (e.weights[i] != e.weights[i]) e.weights[i] = 0;
    for (i = 0; i < rows; i++) if (e.lse[i] != e.lse[i]) e.lse[i] = 0;
    (void)oracle_check_within(&o, &e, a, "fuzz");
    oracle_bound_free(&e);
    oracle_free(&o);
}

ORACLE int one_answer(attn_backend backend) { return backend != ATTN_SSE2 && backend != ATTN_WASM; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif  /* FUZZ_IMPLEMENTATION */
#endif
