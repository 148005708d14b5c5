/* args_world.h: a valid call of attn_sdpa with all its memory, for tests that make one argument wrong: test_args*.c. */
#ifndef ARGS_WORLD_H
#define ARGS_WORLD_H
#include "test.h"

/* ---- a call in which everything is right ----------------------------------------------------------------------- */

enum { BATCH = 2, N_Q = 3, N_K = 4, HEADS = 4, KV_HEADS = 2, DIM = 5, DIM_V = 6 };
enum { Q_SIZE = BATCH * N_Q * HEADS * DIM, K_SIZE = BATCH * N_K * KV_HEADS * DIM,
       V_SIZE = BATCH * N_K * KV_HEADS * DIM_V, OUT_SIZE = BATCH * N_Q * HEADS * DIM_V,
       LSE_SIZE = BATCH * HEADS * N_Q, WEIGHTS_SIZE = LSE_SIZE * N_K,
       EXTENT = 2, REL_SIZE = HEADS * (2 * EXTENT + 1) };

/* All memory that a call may touch, with canaries between: compared bytewise before and after. */
typedef struct world {
    float c0[16], out[OUT_SIZE], c1[16], weights[WEIGHTS_SIZE], c2[16], lse[LSE_SIZE], c3[16];
    float q[Q_SIZE], c4[16], k[K_SIZE], c5[16], v[V_SIZE], c6[16];
    float mask[WEIGHTS_SIZE], c7[16], bias[WEIGHTS_SIZE], c8[16], slopes[HEADS], c9[16], sinks[HEADS], c10[16];
    float rel[REL_SIZE], c15[16];
    unsigned char keep[WEIGHTS_SIZE], c11[64];
    int q_lengths[BATCH], k_lengths[BATCH], k_starts[BATCH], q_pos_each[BATCH], q_cum[BATCH + 1], k_cum[BATCH + 1];
    int k_map[BATCH], c12[16];
    size_t masked_rows, c13[8];
    float work[65536], c14[16];
} world;
static world w, before;
static const int some_heads[] = { 0, -1, 0, HEADS, 0, 0, 1, 0 };   /* the lists of heads begin at odd addresses */

static inline attn_args good(void)
{
    static const int q_cum[] = { 0, 3, 5 }, k_cum[] = { 0, 2, 6 };
    attn_args a;
    rng r = rng_make(test_seed);
    int i;
    memset(&w, 0xA5, sizeof w);
    rng_fill(&r, w.q, Q_SIZE); rng_fill(&r, w.k, K_SIZE); rng_fill(&r, w.v, V_SIZE);
    rng_fill(&r, w.mask, WEIGHTS_SIZE); rng_fill(&r, w.bias, WEIGHTS_SIZE);
    rng_fill(&r, w.rel, REL_SIZE);
    rng_fill(&r, w.slopes, HEADS); rng_fill(&r, w.sinks, HEADS);
    memset(w.keep, 1, sizeof w.keep);
    for (i = 0; i < BATCH; i++) {
        w.q_lengths[i] = N_Q; w.k_lengths[i] = N_K; w.k_starts[i] = 0; w.q_pos_each[i] = i; w.k_map[i] = i;
    }
    memcpy(w.q_cum, q_cum, sizeof q_cum); memcpy(w.k_cum, k_cum, sizeof k_cum);
    memset(&a, 0, sizeof a);
    a.out = w.out; a.q = w.q; a.k = w.k; a.v = w.v;
    a.batch = BATCH;
    a.n_q = N_Q;
    a.n_k = N_K;
    a.heads = HEADS;
    a.kv_heads = KV_HEADS;
    a.head_dim = DIM;
    a.v_head_dim = DIM_V;
    return a;
}

/* all compatible options at once */
static inline attn_args full(void)
{
    attn_args a = good();
    a.weights = w.weights; a.lse = w.lse; a.masked_rows = &w.masked_rows;
    a.mask = w.mask; a.bias = w.bias; a.keep = w.keep; a.alibi_slopes = w.slopes; a.sinks = w.sinks;
    a.rel_bias = w.rel; a.rel_extent = EXTENT;
    a.q_lengths = w.q_lengths; a.k_lengths = w.k_lengths; a.k_starts = w.k_starts; a.q_pos_each = w.q_pos_each;
    a.k_map = w.k_map; a.causal = ATTN_CAUSAL_TOP_LEFT; a.window_left = 3; a.softcap = 20;
    a.work = w.work; a.work_size = sizeof w.work;
    return a;
}

static inline attn_args ragged(void)
{
    attn_args a = good();
    a.q_cum = w.q_cum; a.k_cum = w.k_cum;
    return a;
}

/* ---- what "refused" means -------------------------------------------------------------------------------------- */

/* every word (separated by blanks) occurs in the sentence */
static inline int says(const char *why, const char *words)
{
    char word[64];
    while (*words) {
        size_t n = strcspn(words, " ");
        if (n > 63) return 0;
        memcpy(word, words, n); word[n] = 0;
        if (!strstr(why, word)) return 0;
        words += n; words += strspn(words, " ");
    }
    return 1;
}

static inline void refused(int line, const char *how, const attn_args *a, attn_status status, const char *words)
{
    char why[512];
    const char *want = attn_status_str(status);
    attn_status got;
    memcpy(&before, &w, sizeof w);
    memset(why, 0xA5, sizeof why);
    got = attn_check(a, why, sizeof why);
    test_checks += 5;
    if (!memchr(why, 0, sizeof why)) { test_fail(__FILE__, line, "%s: the sentence does not end", how); return; }
    if (got != status)
        test_fail(__FILE__, line, "%s: attn_check gives %s, not %s: %s", how, attn_status_str(got), want, why);
    if (!says(why, words)) test_fail(__FILE__, line, "%s: the sentence does not say [%s]: %s", how, words, why);
    if (strchr(why, '\n') || strncmp(why, "these arguments are fine", 24) == 0)
        test_fail(__FILE__, line, "%s: not a sentence: %s", how, why);
    if (attn_check(a, NULL, 0) != got) test_fail(__FILE__, line, "%s: another status without a buffer", how);
    refusal_clear();
    got = attn_sdpa(a);
    if (got != status) test_fail(__FILE__, line, "%s: attn_sdpa gives %s, not %s", how, attn_status_str(got), want);
    if (refusal_count() != 1 || refusal_status() != status || refusal_user() != (a ? a->user : NULL) ||
        strncmp(refusal_text(), "attn_sdpa: ", 11) != 0 || strcmp(refusal_text() + 11, why) != 0)
        test_fail(__FILE__, line, "%s: attn_sdpa says \"%s\", attn_check \"%s\"", how, refusal_text(), why);
    if (memcmp(&w, &before, sizeof w) != 0) test_fail(__FILE__, line, "%s: something was written", how);
}

/* Wrong sizes or options, which attn_sdpa_workspace also rejects. */
static inline void no_workspace(int line, const char *how, const attn_args *a)
{
    size_t size;
    refusal_clear();
    size = attn_sdpa_workspace(a);
    test_checks += 2;
    if (size != SIZE_MAX) test_fail(__FILE__, line, "%s: attn_sdpa_workspace gives %lu", how, (unsigned long)size);
    if (refusal_count() != 1 || strncmp(refusal_text(), "attn_sdpa_workspace: ", 21) != 0)
        test_fail(__FILE__, line, "%s: attn_sdpa_workspace says \"%s\"", how, refusal_text());
}

static inline void accepted(int line, const char *how, const attn_args *a)
{
    char why[512];
    attn_status got = attn_check(a, why, sizeof why);
    refusal_clear();
    test_checks += 4;
    if (got != ATTN_OK) { test_fail(__FILE__, line, "%s: refused: %s", how, why); return; }
    if (strncmp(why, "these arguments are fine", 24) != 0 || strchr(why, '\n'))
        test_fail(__FILE__, line, "%s: not one line that says they are fine: %s", how, why);
    if (attn_sdpa_workspace(a) == SIZE_MAX) test_fail(__FILE__, line, "%s: no workspace", how);
    got = attn_sdpa(a);
    if (got != ATTN_OK) test_fail(__FILE__, line, "%s: attn_sdpa gives %s", how, attn_status_str(got));
    if (refusal_count()) test_fail(__FILE__, line, "%s: accepted, but told \"%s\"", how, refusal_text());
}

/* WRONG(base, status, "words of the sentence", statements that spoil a) */
#define WRONG(base, status, words, ...) \
    do { attn_args a = base(); __VA_ARGS__; refused(__LINE__, #__VA_ARGS__, &a, status, words); } while (0)
#define WRONG_SIZE(base, status, words, ...) \
    do { attn_args a = base(); __VA_ARGS__; refused(__LINE__, #__VA_ARGS__, &a, status, words); \
         no_workspace(__LINE__, #__VA_ARGS__, &a); } while (0)
#define RIGHT(base, ...) \
    do { attn_args a = base(); __VA_ARGS__; accepted(__LINE__, #__VA_ARGS__, &a); } while (0)

static inline void set3(int *shape, int x, int y, int z) { shape[0] = x; shape[1] = y; shape[2] = z; }

/* attn_exec.run: one thread, last task first */
static inline void no_run(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    int i;
    (void)pool;
    for (i = n; i-- > 0;) task(arg, i);
}

#endif
