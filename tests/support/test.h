/* test.h: the whole test harness. One .c file per subject, one suite per file, one program for all of them.
 *
 *   build/test                    run everything
 *   build/test masks poison       run the suites or tests whose name contains one of these words
 *   build/test 'kv/truncate'      one test of one suite, by its whole name
 *   build/test -l                 list the tests and what each of them would catch
 *   build/test -s 1234            another seed (a failing random case prints the seed that replays it)
 *   build/test -n 10              random tests draw 10 times as many cases
 *
 * A test calls CHECK and continues; a failed CHECK prints its place and values, and the test counts as failed. */
#ifndef TEST_H
#define TEST_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "refused.h"
#include "attn.h"

typedef struct test_case {
    const char *name;
    void (*run)(void);
    const char *catches;              /* the mistake that this test would detect */
} test_case;

/* Every suite ends with {0}; main.c holds the list. */
#define SUITE(id) const test_case suite_##id[]

/* ---- checks ---------------------------------------------------------------------------------------------- */
extern long test_checks;              /* evaluated so far */
void test_fail(const char *file, int line, const char *fmt, ...);
void test_skip(const char *fmt, ...); /* prints what is not tested and why; counted as skipped */
#define CHECK(cond) (test_checks++, (cond) ? (void)0 : test_fail(__FILE__, __LINE__, "%s", #cond))
/* CHECKF(cond, "row %d of seed %llu", row, seed): the same with a sentence */
#define CHECKF(cond, ...) (test_checks++, (cond) ? (void)0 : test_fail(__FILE__, __LINE__, __VA_ARGS__))
int test_failed(void);                /* 1 if the running test has failed, so that long loops can end early */

/* ---- rejections: the last sentence of ATTN_REFUSED on this thread ------------------------------------------- */
/* REFUSED(attn_kv_append(&c, 2, k, v, -4, 0), ATTN_E_SIZE, "n is -4 but cannot be negative")
   The call must return this status, with one sentence that begins with the name of the called function and contains
   these words. REFUSED_SIZE: the same for a function that returns SIZE_MAX. */
#define REFUSED(call, status, words) REFUSED_AS(#call, call, status, words)
#define REFUSED_SIZE(call, status, words) REFUSED_AS(#call, (call) == SIZE_MAX ? (int)(status) : 0, status, words)
#define REFUSED_AS(text, call, status, words) \
    (refusal_begin(), test_refusal(__FILE__, __LINE__, text, "", (int)(call), (status), (words)))
/* REFUSES(a.heads = 3, ATTN_E_HEADS, "heads is 3"): the same for tests that change one argument after another. The test
   has valid arguments `good`, a variable `a` for the copy with this change, and a macro CALL, which takes `a`. */
#define REFUSES(change, status, words)                                                                                 \
    do {                                                                                                               \
        a = good;                                                                                                      \
        change;                                                                                                        \
        refusal_begin();                                                                                               \
        test_refusal(__FILE__, __LINE__, TEXT_OF(CALL), #change, (int)(CALL), (status), (words));                      \
    } while (0)
#define TEXT_OF(call) TEXT_OF_EXPANDED(call)
#define TEXT_OF_EXPANDED(call) #call
/* What must hold of every rejected call until the end of the test, or until refusal_forget():
   refusal_keeps(x, n)      the call does not change these bytes (at most 8 pieces of memory)
   refusal_tells(user)      the sentence goes to this user
   refusal_around(b, e, it) b(it) is called before the call and e(it) after it; either may be NULL */
void refusal_keeps(const void *memory, size_t bytes);
void refusal_tells(void *user);
void refusal_around(void (*begin)(void *), void (*end)(void *), void *it);
void refusal_forget(void);
void refusal_begin(void);
void test_refusal(const char *file, int line, const char *call, const char *change, int got, attn_status want,
                  const char *words);
void refusal_clear(void);
int refusal_count(void);              /* number of rejections since refusal_clear() */
attn_status refusal_status(void);     /* ATTN_OK: none */
const char *refusal_text(void);       /* "": none */
void *refusal_user(void);

/* ---- randomness: splitmix64, same numbers everywhere ----------------------------------------------------- */
extern uint64_t test_seed;            /* -s, default 1 */
extern int test_scale;                /* -n, default 1: factor for the number of random cases */
typedef struct rng { uint64_t s; } rng;
rng rng_make(uint64_t seed);
uint32_t rng_u32(rng *r);
int rng_int(rng *r, int lo, int hi);                       /* lo..hi inclusive */
float rng_normal(rng *r);                                  /* N(0, 1) */
void rng_fill(rng *r, float *x, size_t n);                 /* N(0, 1) */

/* ---- memory with a guard page directly after it (and canaries before), so that one read past the end faults --- */
void *guard_alloc(size_t bytes);      /* never NULL; ends exactly at the guard when bytes % 4 == 0; filled with 0xA5 */
void guard_free(void *p);             /* checks the canaries; NULL is fine */
float *guard_floats(size_t n);        /* guard_alloc(n * sizeof(float)) */
static inline void *behind(const void *p, int bytes)       /* for refusals: an address that is not aligned */
{
    return (void *)((uintptr_t)p + (uintptr_t)bytes);
}

/* ---- bits -------------------------------------------------------------------------------------------------- */
static inline uint32_t float_bits(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }
static inline float bits_float(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }
static inline int same_bits(const float *a, const float *b, size_t n)      /* 1 when equal bit for bit */
{
    return n == 0 || memcmp(a, b, n * sizeof *a) == 0;
}
uint64_t hash_bits(uint64_t h, const float *x, size_t n);  /* FNV-1a over little-endian words; start with h = 0 */
float test_fmaf(float a, float b, float c);                /* libm's fmaf; where that rounds twice, a correct one */

/* ---- states -------------------------------------------------------------------------------------------------- */
/* attn_sdpa without keys: computes out, lse and masked_rows from a->carry_in. Members of *a about keys, weights and
   carry_out are not used. */
attn_status finish_states(const attn_args *a);

/* ---- caches ------------------------------------------------------------------------------------------------- */
#ifndef ATTN_NO_CACHE
/* Appends the first counts[b] of n rows to each entry b; rows are [batch][n], as attn_kv_append takes them with
   entry -1. Returns ATTN_OK, or the first other status. */
attn_status append_counts(attn_kv *c, const float *k, const float *v, int n, const int *counts, ptrdiff_t row_stride);
#endif

/* ---- an executor that is not a plain loop -------------------------------------------------------------------- */
attn_exec test_exec(int width);       /* runs tasks on real threads if available, in a scrambled order */

/* the backends of this machine that promise one answer (FMA arithmetic), best first; returns how many */
int test_one_answer_backends(attn_backend *list, int max);
int test_all_backends(attn_backend *list, int max);                 /* all, SSE2 included */

#endif
