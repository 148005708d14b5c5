/* cases.h: random attn_args with every feature drawn independently of the others, for tests with many random calls.
 *
 *     rng r = rng_make(test_seed);
 *     sdpa_case c;
 *     case_random(&r, &c);                       everything in c.a is set but backend; all buffers are filled
 *     status = case_run(&c, ATTN_SCALAR);        outputs wiped, workspace allocated when drawn, attn_sdpa called
 *     CHECKF(status == ATTN_OK, "%s", case_text(&c));
 *     case_free(&c);                             checks the canaries of all buffers
 *
 * Guarantees. Every buffer is exactly as large as attn_sdpa may read, ends at a guard page and has
 * canaries in front. Every draw is valid: attn_check returns ATTN_OK. Memory of q, k, v that does not exist (gaps
 * between strides, rows past q_lengths, keys before k_starts or past k_lengths, entries that no k_map refers to) is
 * NaN, so that reading it is detected; the same holds for gaps in a mask or bias. Values that exist are finite: N(0,
 * 1), in some cases up to 3 times that; scores may still saturate a softmax.
 *
 * Freedoms. `a` points into buffers of the case, which are also accessible without const (c.q, c.k ...): you may
 * write anything into them. You may set pointers and options in c.a to something else, also NULL or 0 (a.weights =
 * NULL, a.exec = NULL, another causal ...): case_free does not use c.a. Before you remove q_lengths, k_lengths or
 * k_starts, call case_fill: otherwise rows and keys that did not exist before are NaN. oracle.h, section 1, locates
 * q, k, v, out, mask and weight of (entry, head, row, key), and determines whether the row sees the key:
 * oracle_k_at(&c.a, &c.s, b, h, j) etc; c.s = oracle_shape_of(&c.a) is valid until you change sizes, strides or
 * shapes.
 *
 * One failing case is replayed by case_replay(&c, seed) with the seed that case_text prints.
 * Not drawn: kv (a cache), user, zero head_dim; NaN or Inf in anything that exists. */
#ifndef CASES_H
#define CASES_H

#include "oracle.h"

/* The features, for tables of pairs. CASE_PACKED: q, k, v are parts of one [row][q|k|v] buffer. */
#define CASE_FEATURES(X) \
    X(CAUSAL_TOP_LEFT) X(CAUSAL_BOTTOM_RIGHT) X(ALIGN) X(Q_POS) X(Q_POS_EACH) X(WINDOW_LEFT) X(WINDOW_RIGHT) \
    X(Q_LENGTHS) X(K_LENGTHS) X(K_STARTS) X(Q_CUM) X(K_CUM) X(K_MAP) X(MASK) X(KEEP) X(BIAS) X(ALIBI) X(REL) X(SINKS) \
    X(SCALE) X(SOFTCAP) X(GROUPS) X(DIM_V) X(BHSD) X(STRIDES) X(PACKED) X(WEIGHTS) X(LSE) X(MASKED_ROWS) X(WORK) X(EXEC)
#define CASE_ENUM(name) CASE_##name,
enum { CASE_FEATURES(CASE_ENUM) CASE_FEATURE_COUNT };
#define CASE_BIT(name) (UINT64_C(1) << CASE_##name)
const char *case_feature_name(int feature);
int case_possible(int one, int other);    /* 0 if the rules of attn_args exclude this pair */

enum { CASE_OWNED = 40 };
typedef struct sdpa_case {
    attn_args a;                          /* ready to call */
    oracle_shape s;                       /* its geometry */
    uint64_t features;                    /* CASE_BIT(...) of what was drawn */
    uint64_t seed;                        /* case_replay */

    /* the buffers of a, NULL where not drawn, and how many elements each has */
    float *q, *k, *v, *out, *mask, *bias, *alibi_slopes, *rel_bias, *sinks, *weights, *lse;
    unsigned char *keep;
    int *q_pos_each, *q_lengths, *k_lengths, *k_starts, *q_cum, *k_cum, *k_map;
    size_t *masked_rows;
    size_t q_size, k_size, v_size, out_size, mask_size, bias_size, rel_size, keep_size, weights_size, lse_size;

    attn_exec exec;
    int work_shift;                       /* CASE_WORK: bytes by which the workspace is moved off the guard page */
    void *owned[CASE_OWNED];
    int n_owned;
    char text[1024];
} sdpa_case;

void case_random(rng *r, sdpa_case *c);                         /* at most about 2^19 multiply-adds */
void case_random_upto(rng *r, sdpa_case *c, double work);       /* about `work` operations at most */
void case_replay(sdpa_case *c, uint64_t seed);                  /* as drawn by case_random */
void case_free(sdpa_case *c);

/* Sets every element of q, k and v inside a row to a finite value, including rows and keys that do not exist. */
void case_fill(sdpa_case *c, rng *r);
/* Sets all bytes of the outputs to 0xA5, as before a call. */
void case_wipe(sdpa_case *c);
/* Wipes, allocates exactly attn_sdpa_workspace bytes if CASE_WORK was drawn, calls attn_sdpa on this backend (stored in
   c->a.backend) and checks that nothing was written outside the workspace or between the rows of out. */
attn_status case_run(sdpa_case *c, attn_backend backend);
/* seed, sizes and features in one line; valid until the next call for the same case */
const char *case_text(sdpa_case *c);

/* The pairs of features that occurred. case_pairs_print returns the number of possible pairs that did not occur. */
typedef struct case_pairs {
    long met[CASE_FEATURE_COUNT][CASE_FEATURE_COUNT];
} case_pairs;
void case_pairs_add(case_pairs *p, const sdpa_case *c);
int case_pairs_print(const case_pairs *p, int table /* 0: print only what is missing */);

/* A new guarded buffer, owned by the case. */
void *case_own(sdpa_case *c, size_t bytes);

#endif
