/* golden_cases.h: the fixed cases of golden.c, shared by test_bits.c and the separate program. */
#ifndef GOLDEN_CASES_H
#define GOLDEN_CASES_H

#include <stdint.h>

/* kinds of numbers */
enum {
    GOLDEN_NORMAL, GOLDEN_LOUD, GOLDEN_HUGE, GOLDEN_TINY, GOLDEN_FLAT, GOLDEN_DENORMAL, GOLDEN_NEGATIVE, GOLDEN_WILD,
    GOLDEN_MIDPOINT, GOLDEN_SMALL
};

/* features */
enum {
    GOLDEN_BHSD = 1, GOLDEN_STRIDED = 2, GOLDEN_Q_LENGTHS = 4, GOLDEN_K_LENGTHS = 8, GOLDEN_K_STARTS = 16,
    GOLDEN_RAGGED = 32, GOLDEN_K_MAP = 64, GOLDEN_POS_EACH = 128, GOLDEN_MASK_ROWS = 256, GOLDEN_MASK_KEY = 512,
    GOLDEN_MASK_FULL = 1024, GOLDEN_FLT_MAX = 2048, GOLDEN_KEEP = 4096, GOLDEN_FIRST_CHUNKS_HIDDEN = 8192,
    GOLDEN_BIAS = 16384, GOLDEN_ALIBI = 1 << 15, GOLDEN_SINKS = 1 << 16, GOLDEN_WEIGHTS = 1 << 17, GOLDEN_LSE = 1 << 18,
    GOLDEN_REL = 1 << 19
};

/* function to call */
enum { GOLDEN_SDPA, GOLDEN_MHA_SELF, GOLDEN_MHA_CROSS, GOLDEN_MHA_STEPS, GOLDEN_T5, GOLDEN_CONVERT, GOLDEN_CARRY,
       GOLDEN_NORM, GOLDEN_ACTIVATE };

typedef struct golden_case {
    const char *name;
    int batch, heads, kv_heads, n_q, n_k, head_dim, v_head_dim;
    int data, flags;
    float scale, softcap;
    int causal, align, q_pos, window_left, window_right, stage;
    int call;
    attn_storage storage;                 /* of a layer's weights */
} golden_case;

extern const golden_case golden_cases[];
extern const int golden_count;

uint64_t golden_run(const golden_case *c, attn_backend backend, const attn_exec *exec);   /* 0 when the call failed */
uint64_t golden_expected(const char *name);                                      /* from golden.h; 0: missing */

#endif
