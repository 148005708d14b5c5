/* Makes every argument of every function wrong in turn: the call must return the correct status, with a sentence that
   names the member and the values, and write no byte. Conversely, unusual but legal arguments must be accepted. */
#if defined(__linux__)
#define _DEFAULT_SOURCE                   /* mmap with MAP_NORESERVE, for strides beyond 32 bits */
#include <sys/mman.h>
#endif
#include <limits.h>
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

static attn_args good(void)
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
static attn_args full(void)
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

static attn_args ragged(void)
{
    attn_args a = good();
    a.q_cum = w.q_cum; a.k_cum = w.k_cum;
    return a;
}

/* ---- what "refused" means -------------------------------------------------------------------------------------- */

/* every word (separated by blanks) occurs in the sentence */
static int says(const char *why, const char *words)
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

static void refused(int line, const char *how, const attn_args *a, attn_status status, const char *words)
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
static void no_workspace(int line, const char *how, const attn_args *a)
{
    size_t size;
    refusal_clear();
    size = attn_sdpa_workspace(a);
    test_checks += 2;
    if (size != SIZE_MAX) test_fail(__FILE__, line, "%s: attn_sdpa_workspace gives %lu", how, (unsigned long)size);
    if (refusal_count() != 1 || strncmp(refusal_text(), "attn_sdpa_workspace: ", 21) != 0)
        test_fail(__FILE__, line, "%s: attn_sdpa_workspace says \"%s\"", how, refusal_text());
}

static void accepted(int line, const char *how, const attn_args *a)
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

static void set3(int *shape, int x, int y, int z) { shape[0] = x; shape[1] = y; shape[2] = z; }

/* ---- attn_sdpa ------------------------------------------------------------------------------------------------- */

static void right_as_it_stands(void)
{
    RIGHT(good, (void)0);
    RIGHT(full, (void)0);
    RIGHT(ragged, (void)0);
}

static void nulls(void)
{
    static const int no_rows[BATCH + 1];
    char why[128];
    CHECK(attn_check(NULL, why, sizeof why) == ATTN_E_NULL);
    REFUSED(attn_sdpa(NULL), ATTN_E_NULL, "attn_sdpa: the attn_args are NULL");
    REFUSED_SIZE(attn_sdpa_workspace(NULL), ATTN_E_NULL, "attn_sdpa_workspace: the attn_args are NULL");
    WRONG(good, ATTN_E_NULL, "out", a.out = NULL);
    WRONG(good, ATTN_E_NULL, "q", a.q = NULL);
    WRONG(good, ATTN_E_NULL, "k", a.k = NULL);
    WRONG(good, ATTN_E_NULL, "v", a.v = NULL);
    WRONG(full, ATTN_E_NULL, "out", a.out = NULL);
    /* no rows, no pointers: nothing may be added to NULL (UBSan checks) */
    RIGHT(good, a.q_cum = no_rows; a.q = a.out = NULL);
}

static void sizes(void)
{
    WRONG_SIZE(good, ATTN_E_SIZE, "batch -1", a.batch = -1);
    WRONG_SIZE(good, ATTN_E_SIZE, "n_q -1", a.n_q = -1);
    WRONG_SIZE(good, ATTN_E_SIZE, "n_k -7", a.n_k = -7);
    WRONG_SIZE(good, ATTN_E_SIZE, "n_k", a.n_k = INT_MIN);
    WRONG_SIZE(good, ATTN_E_SIZE, "heads 0", a.heads = 0);
    WRONG_SIZE(good, ATTN_E_SIZE, "heads -4", a.heads = -4);
    WRONG_SIZE(good, ATTN_E_SIZE, "kv_heads -2", a.kv_heads = -2);
    WRONG_SIZE(good, ATTN_E_SIZE, "head_dim 0", a.head_dim = 0);
    WRONG_SIZE(good, ATTN_E_SIZE, "head_dim -5", a.head_dim = -5);
    WRONG_SIZE(good, ATTN_E_SIZE, "v_head_dim -6", a.v_head_dim = -6);
    WRONG_SIZE(good, ATTN_E_SIZE, "k_batch -1", a.k_batch = -1; a.k_map = w.k_map);
    WRONG_SIZE(good, ATTN_E_HEADS, "kv_heads heads 3 4", a.kv_heads = 3);
    WRONG_SIZE(good, ATTN_E_HEADS, "kv_heads heads 8 4", a.kv_heads = 8);
    WRONG_SIZE(good, ATTN_E_HEADS, "kv_heads heads", a.kv_heads = 1 << 30);
}

static void strides(void)
{
    static const char *const fields[4] = { "q_stride", "k_stride", "v_stride", "out_stride" };
    int t, d;
    for (t = 0; t < 4; t++) for (d = 0; d < 3; d++) {
        char words[32];
        attn_args a = good();
        ptrdiff_t *s = t == 0 ? a.q_stride : t == 1 ? a.k_stride : t == 2 ? a.v_stride : a.out_stride;
        int x;
        snprintf(words, sizeof words, "%s[%d] -1", fields[t], d);
        s[d] = -1;
        refused(__LINE__, words, &a, ATTN_E_STRIDE, words);
        no_workspace(__LINE__, words, &a);
        /* one float less than the size of the inner dimension: heads of head_dim, rows of heads, entries of rows */
        x = (t == 0 || t == 1 ? DIM : DIM_V);
        if (d < 2) x *= t == 0 || t == 3 ? HEADS : KV_HEADS;
        if (d < 1) x *= t == 0 || t == 3 ? N_Q : N_K;
        snprintf(words, sizeof words, "%s %d", fields[t], x - 1);
        s[d] = x - 1;
        refused(__LINE__, words, &a, ATTN_E_STRIDE, words);
        no_workspace(__LINE__, words, &a);
        s[d] = x;
        accepted(__LINE__, words, &a);
    }
    WRONG_SIZE(good, ATTN_E_STRIDE, "mask_stride[2] -4", a.mask = w.mask; a.mask_stride[2] = -4);
    WRONG_SIZE(good, ATTN_E_STRIDE, "keep_stride[2] -4", a.keep = w.keep; a.keep_stride[2] = -4);
    WRONG_SIZE(good, ATTN_E_STRIDE, "bias_stride[2] -4", a.bias = w.bias; a.bias_stride[2] = -4);
    WRONG_SIZE(good, ATTN_E_STRIDE, "mask_stride[2] 3 4", a.mask = w.mask; a.mask_stride[2] = N_K - 1);
    WRONG_SIZE(good, ATTN_E_STRIDE, "keep_stride[2] 3 4", a.keep = w.keep; a.keep_stride[2] = N_K - 1);
    WRONG_SIZE(good, ATTN_E_STRIDE, "bias_stride[2] 3 4", a.bias = w.bias; a.bias_stride[2] = N_K - 1);
    RIGHT(good, a.mask = w.mask; a.mask_stride[2] = N_K + 1);
    /* the layouts expressed by strides: BHSD, and heads of q, k, v packed in one row */
    RIGHT(good, a.q_stride[0] = HEADS * N_Q * DIM; a.q_stride[1] = DIM; a.q_stride[2] = N_Q * DIM);
    RIGHT(good, a.layout = ATTN_BHSD; a.q_stride[0] = N_Q * HEADS * DIM; a.q_stride[1] = HEADS * DIM;
          a.q_stride[2] = DIM);
}

/* The stride from the only key or row to the next one may be anything: nothing is computed from it (ubsan checks). An
 * output that is not written may be any pointer: `out` with carry_out. */
static void strides_of_one(void)
{
    static const ptrdiff_t any[2] = { PTRDIFF_MAX / 8, (ptrdiff_t)1 << (sizeof(ptrdiff_t) * 8 - 5) };
    static const int shared[2] = { 0, 0 };
    static float q[200 * 8], k[8], v[8], out[200 * 8], states[2 * 2 * 3 * 8];
    attn_args a = attn_args_for(2, 3, 1, 2, 4);
    int n_q, i;
    for (i = 0; i < 8; i++) v[i] = (float)i;
    for (n_q = 1; n_q <= 200; n_q = n_q * 3 + 1)
        for (i = 0; i < 2; i++) {
            attn_args one = attn_args_for(1, n_q, 1, 1, 8);
            one.out = out, one.q = q, one.k = k, one.v = v;
            one.k_stride[1] = any[i];
            memset(out, 0, sizeof out);
            CHECK(attn_sdpa(&one) == ATTN_OK && out[7] == 7.0f && out[n_q * 8 - 1] == 7.0f);
        }
    a.k_batch = 1, a.k_map = shared;
    a.q = q, a.k = k, a.v = v, a.out = (float *)((uintptr_t)-4), a.carry_out = states;
    CHECK(attn_sdpa(&a) == ATTN_OK && states[1] == 1.0f && states[4 + 3] == 3.0f);
}

static void options(void)
{
    float nan = bits_float(0x7FC00000u), inf = bits_float(0x7F800000u);
    WRONG_SIZE(good, ATTN_E_OPTION, "layout 2", a.layout = 2);
    WRONG_SIZE(good, ATTN_E_OPTION, "layout -1", a.layout = -1);
    WRONG_SIZE(good, ATTN_E_OPTION, "scale nan", a.scale = nan);
    WRONG_SIZE(good, ATTN_E_OPTION, "scale inf", a.scale = inf);
    WRONG_SIZE(good, ATTN_E_OPTION, "scale -inf", a.scale = -inf);
    WRONG_SIZE(good, ATTN_E_OPTION, "softcap -1", a.softcap = -1);
    WRONG_SIZE(good, ATTN_E_OPTION, "softcap nan", a.softcap = nan);
    WRONG_SIZE(good, ATTN_E_OPTION, "softcap inf", a.softcap = inf);
    WRONG_SIZE(good, ATTN_E_OPTION, "causal 3", a.causal = 3);
    WRONG_SIZE(good, ATTN_E_OPTION, "causal -1", a.causal = -1);
    WRONG_SIZE(good, ATTN_E_OPTION, "align 2", a.align = 2; a.window_left = 1);
    WRONG_SIZE(good, ATTN_E_OPTION, "align -1", a.align = -1);
    WRONG_SIZE(good, ATTN_E_OPTION, "window_left -1", a.window_left = -1);
    WRONG_SIZE(full, ATTN_E_SIZE, "rel_extent -1", a.rel_extent = -1);
    WRONG_SIZE(full, ATTN_E_OVERFLOW, "rel_extent 2147483647", a.rel_extent = INT_MAX);
    RIGHT(full, a.rel_extent = 0);
    RIGHT(good, a.rel_extent = -1);                                /* without rel_bias it is not read */
    WRONG_SIZE(good, ATTN_E_OPTION, "window_right -2", a.window_right = -2);
    WRONG_SIZE(good, ATTN_E_OPTION, "weights_stage 4", a.weights = w.weights; a.weights_stage = 4);
    WRONG_SIZE(good, ATTN_E_OPTION, "weights_stage -1", a.weights = w.weights; a.weights_stage = -1);
    WRONG_SIZE(good, ATTN_E_OPTION, "backend 99", a.backend = 99);
    WRONG_SIZE(good, ATTN_E_OPTION, "backend -1", a.backend = -1);
    RIGHT(good, a.scale = -1);
    RIGHT(good, a.scale = 1e-30f);
    RIGHT(good, a.softcap = 1e30f);
    RIGHT(good, a.window_left = INT_MAX; a.window_right = INT_MAX);
    RIGHT(good, a.window_left = 1; a.align = ATTN_ALIGN_BOTTOM_RIGHT);
    RIGHT(good, a.causal = ATTN_CAUSAL_TOP_LEFT; a.q_pos = INT_MAX);
    RIGHT(good, a.causal = ATTN_CAUSAL_BOTTOM_RIGHT; a.q_pos = INT_MAX);
    RIGHT(good, a.causal = ATTN_CAUSAL_BOTTOM_RIGHT; a.q_pos = INT_MIN);
    RIGHT(full, a.q_pos = INT_MAX; w.q_pos_each[0] = INT_MAX; w.q_pos_each[1] = INT_MIN; a.window_right = INT_MAX);
    RIGHT(full, a.q_pos = INT_MIN; w.q_pos_each[0] = INT_MIN; a.window_left = INT_MAX);
    WRONG_SIZE(good, ATTN_E_NULL, "weights_heads NULL n_weights_heads 1", a.weights = w.weights;
               a.n_weights_heads = 1);
    WRONG_SIZE(good, ATTN_E_NULL, "weights_heads NULL n_weights_heads -1", a.weights = w.weights;
               a.n_weights_heads = -1);
    WRONG_SIZE(good, ATTN_E_CONFLICT, "weights_heads weights NULL", a.weights_heads = some_heads;
               a.n_weights_heads = 1);
    WRONG_SIZE(full, ATTN_E_SIZE, "n_weights_heads is 0", a.weights_heads = some_heads);
    WRONG_SIZE(full, ATTN_E_SIZE, "n_weights_heads is -1", a.weights_heads = some_heads; a.n_weights_heads = -1);
    WRONG_SIZE(full, ATTN_E_SIZE, "n_weights_heads is", a.weights_heads = some_heads; a.n_weights_heads = HEADS + 1);
    WRONG(full, ATTN_E_OPTION, "weights_heads[0] is -1", a.weights_heads = some_heads + 1; a.n_weights_heads = 1);
    WRONG(full, ATTN_E_OPTION, "weights_heads[1] is", a.weights_heads = some_heads + 2; a.n_weights_heads = 2);
    WRONG(full, ATTN_E_OPTION, "weights_heads[1] is 0 above 0", a.weights_heads = some_heads + 4;
          a.n_weights_heads = 2);
    WRONG(full, ATTN_E_OPTION, "weights_heads[1] is 0 above 1", a.weights_heads = some_heads + 6;
          a.n_weights_heads = 2);
    RIGHT(full, a.weights_heads = some_heads; a.n_weights_heads = 1);
    RIGHT(full, a.weights_heads = some_heads + 5; a.n_weights_heads = 2);
    RIGHT(good, a.weights = w.weights; a.weights_stage = ATTN_SCORES_RAW);
    RIGHT(good, a.weights = w.weights; a.weights_stage = ATTN_SCORES_CAPPED);
    RIGHT(good, a.weights = w.weights; a.weights_stage = ATTN_SCORES_BIASED);
}

/* A backend that this machine lacks, and every one it has. */
static void backends(void)
{
    attn_backend list[16];
    int n = attn_backends(list, 16), b, i, usable;
    attn_backend few[2] = { ATTN_AUTO, ATTN_AUTO };
    CHECK(n >= 1 && n <= 16);
    CHECK(attn_backends(NULL, 0) == n);
    CHECK(attn_backends(few, -1) == n && few[0] == ATTN_AUTO);
    CHECK(attn_backends(few, 1) == n);
    CHECK(few[0] == list[0] && few[1] == ATTN_AUTO);
    /* all existing ones, which have names. A usable one must have one. */
    for (i = 0; i < n; i++) CHECK(strcmp(attn_backend_name(list[i]), "unknown") != 0);
    for (b = ATTN_SCALAR; strcmp(attn_backend_name((attn_backend)b), "unknown") != 0; b++) {
        char words[64];
        attn_args a = good();
        for (usable = i = 0; i < n; i++) usable |= list[i] == (attn_backend)b;
        a.backend = (attn_backend)b;
        CHECK(attn_backend_name(b) && attn_backend_name(b)[0]);
        if (usable) { accepted(__LINE__, attn_backend_name(b), &a); continue; }
        snprintf(words, sizeof words, "backend %s", attn_backend_name(b));
        refused(__LINE__, words, &a, ATTN_E_BACKEND, words);
        no_workspace(__LINE__, words, &a);
    }
    for (usable = i = 0; i < n; i++) usable |= list[i] == ATTN_SCALAR;
    CHECK(usable);
    CHECK(attn_backend_name(ATTN_AUTO) && attn_backend_name(99) && attn_backend_name(-1));
    CHECK(strcmp(attn_backend_name(ATTN_SCALAR), "scalar") == 0);
}

static void lengths(void)
{
    WRONG(good, ATTN_E_LENGTHS, "q_lengths[1] 4 n_q 3", a.q_lengths = w.q_lengths; w.q_lengths[1] = N_Q + 1);
    WRONG(good, ATTN_E_LENGTHS, "q_lengths[0] -1", a.q_lengths = w.q_lengths; w.q_lengths[0] = -1);
    WRONG(good, ATTN_E_LENGTHS, "k_lengths[1] 9 n_k 4", a.k_lengths = w.k_lengths; w.k_lengths[1] = 9);
    WRONG(good, ATTN_E_LENGTHS, "k_lengths[1] -3", a.k_lengths = w.k_lengths; w.k_lengths[1] = -3);
    WRONG(good, ATTN_E_LENGTHS, "k_lengths[0]", a.k_lengths = w.k_lengths; w.k_lengths[0] = INT_MIN);
    WRONG(good, ATTN_E_LENGTHS, "k_starts[1] -1", a.k_starts = w.k_starts; w.k_starts[1] = -1);
    WRONG(good, ATTN_E_LENGTHS, "k_starts[0] 5 4", a.k_starts = w.k_starts; w.k_starts[0] = N_K + 1);
    WRONG(good, ATTN_E_LENGTHS, "k_lengths[1] 2 k_starts[1] 3 n_k 4",
          a.k_starts = w.k_starts; a.k_lengths = w.k_lengths; w.k_starts[1] = 3; w.k_lengths[1] = 2);
    WRONG(good, ATTN_E_LENGTHS, "k_starts[1] 5 n_k 4",
          a.k_starts = w.k_starts; a.k_lengths = w.k_lengths; w.k_starts[1] = 5; w.k_lengths[1] = 0);
    RIGHT(good, a.q_lengths = w.q_lengths; w.q_lengths[0] = 0);
    RIGHT(good, a.k_lengths = w.k_lengths; w.k_lengths[0] = 0; w.k_lengths[1] = 0);
    RIGHT(good, a.k_starts = w.k_starts; w.k_starts[0] = N_K);
    RIGHT(good, a.k_starts = w.k_starts; a.k_lengths = w.k_lengths; w.k_starts[0] = w.k_lengths[0] = 2);
    RIGHT(good, a.k_starts = w.k_starts; a.k_lengths = w.k_lengths; w.k_starts[0] = N_K; w.k_lengths[0] = 0);
    WRONG(good, ATTN_E_MAP, "k_map[0] -1", a.k_map = w.k_map; w.k_map[0] = -1);
    WRONG(good, ATTN_E_MAP, "k_map[1] 2", a.k_map = w.k_map; w.k_map[1] = BATCH);
    WRONG(good, ATTN_E_MAP, "k_map[1] 1 K/V", a.k_map = w.k_map; a.k_batch = 1);
    RIGHT(good, a.k_map = w.k_map; a.k_batch = 1; w.k_map[1] = 0);
    RIGHT(good, a.k_map = w.k_map; w.k_map[0] = w.k_map[1] = 1);
}

static void ragged_tables(void)
{
    WRONG(ragged, ATTN_E_LENGTHS, "q_cum[0] -1", w.q_cum[0] = -1);
    WRONG(ragged, ATTN_E_LENGTHS, "k_cum[0] -1", w.k_cum[0] = -1);
    WRONG(ragged, ATTN_E_LENGTHS, "q_cum[2] 2", w.q_cum[2] = 2);                  /* decreases from 3 */
    WRONG(ragged, ATTN_E_LENGTHS, "k_cum[1] -2", w.k_cum[1] = -2);
    WRONG(ragged, ATTN_E_LENGTHS, "k_cum[2] 6 7", w.k_cum[1] = 7);
    WRONG(ragged, ATTN_E_SIZE, "n_q 2 3", a.n_q = 2);                             /* entry 0 has 3 rows */
    WRONG(ragged, ATTN_E_SIZE, "n_k 3 4", a.n_k = 3);
    WRONG(ragged, ATTN_E_CONFLICT, "q_cum q_lengths", a.q_lengths = w.q_lengths);
    WRONG(ragged, ATTN_E_CONFLICT, "k_cum k_lengths", a.k_lengths = w.k_lengths);
    WRONG(ragged, ATTN_E_CONFLICT, "k_cum k_starts", a.k_starts = w.k_starts);
    WRONG(ragged, ATTN_E_CONFLICT, "k_cum k_map", a.k_map = w.k_map);
    /* a width taken from the offsets has the same limits, also in attn_sdpa_workspace */
    WRONG_SIZE(ragged, ATTN_E_OVERFLOW, "n_q", a.batch = 1; a.n_q = 0; w.q_cum[1] = INT_MAX);
    WRONG_SIZE(ragged, ATTN_E_OVERFLOW, "n_k", a.batch = 1; a.n_k = 0; w.k_cum[1] = INT_MAX);
    /* few keys and no rows, but work for n_q rows: the call itself is rejected as well */
    WRONG_SIZE(ragged, ATTN_E_OVERFLOW, "workspace", a.n_q = INT_MAX - 1023; memset(w.q_cum, 0, sizeof w.q_cum));
    WRONG_SIZE(ragged, ATTN_E_LENGTHS, "q_cum[2] 2", a.n_q = a.n_k = 0; w.q_cum[2] = 2);
    WRONG_SIZE(ragged, ATTN_E_LENGTHS, "k_cum[2] 1", a.n_q = a.n_k = 0; w.k_cum[2] = 1);
    RIGHT(ragged, a.n_q = a.n_k = 0);
    RIGHT(ragged, w.q_cum[1] = 0; a.n_q = 5);
    RIGHT(ragged, w.q_cum[1] = w.q_cum[2] = w.k_cum[1] = w.k_cum[2] = 0);
    RIGHT(ragged, a.layout = ATTN_BHSD);
    RIGHT(ragged, w.q_cum[0] = w.k_cum[0] = 1);                                  /* the first rows belong to no entry */
    RIGHT(ragged, a.q_cum = NULL);                                                /* ragged on one side */
    RIGHT(ragged, a.k_cum = NULL);
}

/* Entries without a row write no out and read no q: neither is required, and strides of keys are not checked. An n_q of
 * rows reports them. */
static void ragged_without_rows(void)
{
    attn_backend list[16];
    int n = test_all_backends(list, 16), b, i;
    for (b = 0; b < n; b++) {
        attn_args a = ragged();
        memset(w.q_cum, 0, sizeof w.q_cum);
        a.out = NULL; a.q = NULL; a.k_stride[2] = 1; a.backend = list[b];
        a.weights = w.weights; a.lse = w.lse; a.masked_rows = &w.masked_rows;
        memcpy(&before, &w, sizeof w);
        before.masked_rows = 0;
        for (i = 0; i < LSE_SIZE; i++) before.lse[i] = bits_float(0xFF800000u);
        memset(before.weights, 0, sizeof before.weights);
        CHECK(attn_check(&a, NULL, 0) == ATTN_OK);
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECKF(memcmp(&w, &before, sizeof w) == 0, "%s: not the lse and weights of padding, or more",
               attn_backend_name(list[b]));
    }
}

static void shapes(void)
{
    static const char *const fields[3] = { "mask_shape", "keep_shape", "bias_shape" };
    static const int bad[][3] = { { 3, 1, 3 }, { 2, 2, 3 }, { 2, 4, 2 }, { 0, 4, 3 }, { 2, 0, 3 }, { 2, 4, 0 },
                                  { -1, 1, 1 }, { 1, 1, 4 }, { 4, 1, 1 }, { 1, 5, 1 }, { 1, 1, INT_MAX },
                                  { 0, 0, 3 }, { 0, 4, 0 }, { 2, 0, 0 } };      /* all given, or none */
    static const int fine[][3] = { { 1, 1, 1 }, { 2, 1, 1 }, { 1, 4, 1 }, { 1, 1, 3 }, { 2, 4, 1 }, { 2, 1, 3 },
                                   { 1, 4, 3 }, { 2, 4, 3 } };
    int f, i;
    for (f = 0; f < 3; f++) {
        for (i = 0; i < (int)(sizeof bad / sizeof *bad); i++) {
            attn_args a = good();
            if (f == 0) a.mask = w.mask; else if (f == 1) a.keep = w.keep; else a.bias = w.bias;
            memcpy(f == 0 ? a.mask_shape : f == 1 ? a.keep_shape : a.bias_shape, bad[i], sizeof bad[i]);
            refused(__LINE__, fields[f], &a, ATTN_E_SHAPE, fields[f]);
            no_workspace(__LINE__, fields[f], &a);
        }
        for (i = 0; i < 8; i++) {
            attn_args a = good();
            if (f == 0) a.mask = w.mask; else if (f == 1) a.keep = w.keep; else a.bias = w.bias;
            memcpy(f == 0 ? a.mask_shape : f == 1 ? a.keep_shape : a.bias_shape, fine[i], sizeof fine[i]);
            accepted(__LINE__, fields[f], &a);
        }
    }
    WRONG(good, ATTN_E_SHAPE, "mask_shape[0] 3 2", a.mask = w.mask; set3(a.mask_shape, 3, 1, 3));
    WRONG(good, ATTN_E_SHAPE, "keep_shape[1] 2 4", a.keep = w.keep; set3(a.keep_shape, 1, 2, 3));
    WRONG(good, ATTN_E_SHAPE, "bias_shape[2] 2 3", a.bias = w.bias; set3(a.bias_shape, 1, 4, 2));
}

/* If the full size is 1, there is one choice, named once. */
static void one_choice(void)
{
    static const char *const want[3] = { "mask_shape[0] is 3 but must be 1", "keep_shape[1] is 3 but must be 1",
                                         "bias_shape[2] is 3 but must be 1" };
    char why[512];
    int i;
    for (i = 0; i < 3; i++) {
        attn_args a = good();
        if (i == 0) { a.batch = 1; a.mask = w.mask; set3(a.mask_shape, 3, 1, 1); }
        if (i == 1) { a.heads = a.kv_heads = 1; a.keep = w.keep; set3(a.keep_shape, 1, 3, 1); }
        if (i == 2) { a.n_q = 1; a.bias = w.bias; set3(a.bias_shape, 1, 1, 3); }
        refused(__LINE__, want[i], &a, ATTN_E_SHAPE, "is 3 but must be 1");
        CHECK(attn_check(&a, why, sizeof why) == ATTN_E_SHAPE);
        CHECKF(strcmp(why, want[i]) == 0, "%s", why);
    }
}

static void conflicts(void)
{
    WRONG_SIZE(good, ATTN_E_CONFLICT, "align causal", a.align = ATTN_ALIGN_BOTTOM_RIGHT; a.causal = 1);
    WRONG_SIZE(good, ATTN_E_CONFLICT, "align causal", a.align = ATTN_ALIGN_BOTTOM_RIGHT; a.causal = 2);
    WRONG(good, ATTN_E_SIZE, "batch 2 k_batch 1", a.k_batch = 1);              /* without a k_map the reader of each
                                                                                  entry is undefined */
    RIGHT(good, a.k_batch = BATCH);
    WRONG(full, ATTN_E_WORK, "work_size 16 attn_sdpa_workspace", a.work_size = 16);
}

static attn_kv cache;
static attn_args cached(void)
{
    attn_args a = good();
    a.k = a.v = NULL; a.n_k = 0; a.kv = &cache;
    return a;
}

/* A cache determines the keys: arguments that repeat its shape must agree, and some are not allowed. */
static void cache_conflicts(void)
{
    attn_kv_args c;
    attn_kv nothing;
    memset(&c, 0, sizeof c);
    memset(&nothing, 0, sizeof nothing);
    c.batch = BATCH; c.kv_heads = KV_HEADS; c.head_dim = DIM; c.v_head_dim = DIM_V; c.capacity = 40;
    (void)good();
    CHECK(attn_kv_init(&cache, &c) == ATTN_OK);
    CHECK(attn_kv_append(&cache, -1, w.k, w.v, N_K, 0) == ATTN_OK);
    RIGHT(cached, (void)0);
    RIGHT(cached, a.kv_heads = 0; a.head_dim = 0; a.v_head_dim = 0);
    RIGHT(cached, a.n_k = N_K + 3);                               /* the width of a mask, for example */
    RIGHT(cached, a.k_lengths = w.k_lengths);
    WRONG_SIZE(cached, ATTN_E_CONFLICT, "kv k", a.k = w.k);
    WRONG_SIZE(cached, ATTN_E_CONFLICT, "kv v", a.v = w.v);
    WRONG_SIZE(cached, ATTN_E_CONFLICT, "kv k_cum", a.k_cum = w.k_cum);
    WRONG_SIZE(cached, ATTN_E_CONFLICT, "kv k_starts", a.k_starts = w.k_starts);
    WRONG_SIZE(cached, ATTN_E_CONFLICT, "kv k_stride", a.k_stride[0] = 100);
    WRONG_SIZE(cached, ATTN_E_CONFLICT, "kv k_stride", a.k_stride[1] = 100);
    WRONG_SIZE(cached, ATTN_E_CONFLICT, "kv k_stride", a.k_stride[2] = 100);
    WRONG_SIZE(cached, ATTN_E_CONFLICT, "kv v_stride", a.v_stride[0] = 100);
    WRONG_SIZE(cached, ATTN_E_CONFLICT, "kv v_stride", a.v_stride[1] = 100);
    WRONG_SIZE(cached, ATTN_E_CONFLICT, "kv v_stride", a.v_stride[2] = 100);
    WRONG_SIZE(cached, ATTN_E_SIZE, "k_batch 3 2", a.k_batch = BATCH + 1);
    RIGHT(cached, a.k_batch = BATCH);
    WRONG_SIZE(cached, ATTN_E_SIZE, "kv_heads 4 2", a.kv_heads = HEADS);
    WRONG_SIZE(cached, ATTN_E_SIZE, "head_dim 6 5", a.head_dim = DIM + 1);
    WRONG_SIZE(cached, ATTN_E_SIZE, "v_head_dim 5 6", a.v_head_dim = DIM);
    WRONG_SIZE(cached, ATTN_E_SIZE, "batch 3 2", a.batch = BATCH + 1);
    WRONG(cached, ATTN_E_SIZE, "n_k 3 4", a.n_k = N_K - 1);
    WRONG(cached, ATTN_E_LENGTHS, "k_lengths[0] 5 4", a.k_lengths = w.k_lengths; w.k_lengths[0] = N_K + 1);
    WRONG(cached, ATTN_E_MAP, "k_map[1] 2", a.k_map = w.k_map; w.k_map[1] = 2);
    WRONG(cached, ATTN_E_NULL, "kv", a.kv = &nothing);
    nothing.shape = cache.shape;                                  /* a shape does not make a cache */
    WRONG(cached, ATTN_E_NULL, "kv", a.kv = &nothing);
    nothing.lengths = cache.lengths;
    WRONG(cached, ATTN_E_NULL, "kv", a.kv = &nothing);
    WRONG(cached, ATTN_E_OVERLAP, "out kv", a.out = cache.memory + 5);
    WRONG(cached, ATTN_E_OVERLAP, "lse kv", a.lse = cache.memory + cache.page_v / sizeof(float) + 5);
    WRONG(cached, ATTN_E_OVERLAP, "lse kv", a.lse = (float *)cache.lengths);
    WRONG(cached, ATTN_E_OVERLAP, "lse kv", a.lse = (float *)(void *)cache.holders);
    attn_kv_free(&cache);
    WRONG(cached, ATTN_E_NULL, "kv", (void)0);                    /* freed */
}

static void no_run(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    int i;
    (void)pool;
    for (i = n; i-- > 0;) task(arg, i);
}

static void executors(void)
{
    attn_exec e;
    e.pool = NULL; e.width = 2; e.run = NULL;
    WRONG(good, ATTN_E_NULL, "exec run", a.exec = &e);
    e.run = no_run; e.width = 0;
    WRONG(good, ATTN_E_OPTION, "exec width 0", a.exec = &e);
    e.width = -3;
    WRONG(good, ATTN_E_OPTION, "exec width -3", a.exec = &e);
    e.width = 2;
    RIGHT(good, a.exec = &e);
    e.width = 1000;
    RIGHT(good, a.exec = &e);
}

/* batch, n_q or n_k of 0 is legal */
static void zero_sizes(void)
{
    char why[256];
    attn_backend list[16];
    int n = test_all_backends(list, 16), b, i;
    for (b = 0; b < n; b++) {
        attn_args a = good();
        a.backend = list[b];
        a.weights = w.weights; a.lse = w.lse; a.masked_rows = &w.masked_rows;
        a.batch = 0;
        memcpy(&before, &w, sizeof w); before.masked_rows = 0;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECK(memcmp(&w, &before, sizeof w) == 0);
        CHECK(attn_check(&a, why, sizeof why) == ATTN_OK);
        CHECKF(strcmp(why, "these arguments are fine, but batch is 0: nothing is written") == 0, "%s", why);
        a = good();
        a.backend = list[b];
        a.weights = w.weights; a.lse = w.lse; a.masked_rows = &w.masked_rows;
        a.n_q = 0;
        memcpy(&before, &w, sizeof w); before.masked_rows = 0;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECK(memcmp(&w, &before, sizeof w) == 0);
        CHECK(attn_check(&a, why, sizeof why) == ATTN_OK);
        CHECKF(strcmp(why, "these arguments are fine, but n_q is 0: nothing is written") == 0, "%s", why);
        a = good();                                               /* no keys: every row is empty */
        a.backend = list[b];
        a.weights = w.weights; a.lse = w.lse; a.masked_rows = &w.masked_rows;
        a.n_k = 0;
        memcpy(&before, &w, sizeof w); before.masked_rows = LSE_SIZE;
        memset(before.out, 0, sizeof before.out);
        for (i = 0; i < LSE_SIZE; i++) before.lse[i] = bits_float(0xFF800000u);
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECK(memcmp(&w, &before, sizeof w) == 0);
        CHECK(attn_check(&a, why, sizeof why) == ATTN_OK);
        CHECKF(says(why, "these arguments are fine n_k 0 every row is empty"), "%s", why);
    }
    for (i = 40; i <= 41; i++) {                                  /* thin or thick, by its rows */
        static float room[2][41 * 4];
        attn_args a = attn_args_for(1, i, 1, 1, 4);
        a.out = room[0]; a.q = a.k = a.v = room[1];
        CHECK(attn_check(&a, why, sizeof why) == ATTN_OK);
        CHECKF(list[0] == ATTN_SCALAR || says(why, i == 40 ? ", thin" : ", thick"), "%s", why);
    }
    RIGHT(good, a.n_k = 0; a.k = NULL; a.v = NULL);
    RIGHT(good, a.batch = 0; a.out = NULL; a.q = NULL; a.k = NULL; a.v = NULL);
    {   /* a single key and row: no stride is too large */
        const ptrdiff_t far = (ptrdiff_t)1 << (sizeof far * 4 + 1);
        RIGHT(good, a.n_q = 0; a.q_stride[1] = far; a.out_stride[1] = far);
        RIGHT(good, a.n_q = 0; a.mask = w.mask; a.mask_stride[2] = N_K + 1);
        RIGHT(good, a.n_k = 0; a.k_stride[1] = far; a.v_stride[1] = far);
        RIGHT(good, a.n_k = 0; a.k_stride[1] = far; a.v_stride[1] = far; a.layout = ATTN_BHSD);
    }
}

/* ---- the likeliest mistakes of level 3 ------------------------------------------------------------------------- */

/* attn_args_for sets the five sizes and nothing else. */
static void args_for(void)
{
    attn_args a = attn_args_for(1, 2, 3, 4, 5), b;
    memset(&b, 0, sizeof b);
    CHECK(memcmp(&a, &b, sizeof a) != 0);
    b.batch = 1; b.n_q = 2; b.n_k = 3; b.heads = 4; b.head_dim = 5;
    CHECK(memcmp(&a, &b, sizeof a) == 0);
}

/* k_starts and k_lengths: the existing keys move to the middle of the buffer, and the bits stay those of the keys
 * alone. Bottom-right, the last row is at the last existing key. */
static void k_starts_and_lengths(void)
{
    static const int starts[3] = { 3, 0, 5 }, lengths[3] = { 4, 8, 0 };
    enum { N = 8, D = 6, ROWS = 2 };
    float q[3 * ROWS * D], k[3 * N * D], v[3 * N * D], out[3 * ROWS * D], want[ROWS * D];
    attn_backend list[16];
    int n = test_all_backends(list, 16), i, b, causal, hole;
    rng r = rng_make(test_seed);
    rng_fill(&r, q, 3 * ROWS * D); rng_fill(&r, k, 3 * N * D); rng_fill(&r, v, 3 * N * D);
    for (hole = 0; hole < 3 * N; hole++)
        if (hole % N < starts[hole / N] || hole % N >= starts[hole / N] + lengths[hole / N])
            k[hole * D] = v[hole * D + 1] = bits_float(0x7FC00000u);
    for (i = 0; i < n; i++) for (causal = 0; causal < 3; causal++) {
        attn_args a = attn_args_for(3, ROWS, N, 1, D), one;
        a.out = out; a.q = q; a.k = k; a.v = v; a.k_starts = starts; a.k_lengths = lengths; a.backend = list[i];
        a.causal = causal == 2 ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
        if (causal == 1) { a.align = ATTN_ALIGN_BOTTOM_RIGHT; a.window_left = 2; }
        CHECK(attn_sdpa(&a) == ATTN_OK);
        for (b = 0; b < 3; b++) {
            one = a;
            one.batch = 1; one.n_k = lengths[b]; one.k_starts = one.k_lengths = NULL;
            one.out = want; one.q = q + b * ROWS * D;
            one.k = k + (b * N + starts[b]) * D; one.v = v + (b * N + starts[b]) * D;
            CHECK(attn_sdpa(&one) == ATTN_OK);
            CHECKF(same_bits(out + b * ROWS * D, want, ROWS * D), "%s, causal %d: entry %d",
                   attn_backend_name(list[i]), causal, b);
        }
        a.k_lengths = NULL;                                       /* to the end */
        CHECK(attn_check(&a, NULL, 0) == ATTN_OK);
    }
}

static void mask_strides_wrong(void)
{
    WRONG_SIZE(full, ATTN_E_STRIDE, "mask_stride[0] 11 12", set3(a.mask_shape, BATCH, 1, N_Q); a.mask_stride[0] = 11);
    WRONG_SIZE(full, ATTN_E_STRIDE, "keep_stride[1] -1", a.keep_stride[1] = -1);
    WRONG_SIZE(full, ATTN_E_STRIDE, "bias_stride[1] 11 12", a.bias_stride[1] = N_Q * N_K - 1);
    WRONG_SIZE(full, ATTN_E_OVERFLOW, "mask mask_stride[0]", set3(a.mask_shape, BATCH, 1, N_Q);
               a.mask_stride[0] = PTRDIFF_MAX);
    RIGHT(full, a.mask_stride[0] = 1; a.mask_stride[1] = 2);      /* shared: the stride is not used */
    RIGHT(full, set3(a.keep_shape, BATCH, 1, 1); a.keep_stride[0] = N_K);
}

/* A mask inside a larger buffer [batch][1][max][max], and one whose heads lie farther apart than its entries. */
static void mask_strides(void)
{
    enum { B = 2, H = 3, N = 4, MAX = 7, D = 2 };
    static float plain[B * H * N * N], wide[B * MAX * MAX], turned[H * B * N * 5], q[B * N * H * D],
        out[2][B * N * H * D];
    static unsigned char keep[H * B * N * 5], plain_keep[B * H * N * N];
    attn_args a = attn_args_for(B, N, N, H, D);
    rng r = rng_make(test_seed);
    int b, h, i, j;
    rng_fill(&r, q, B * N * H * D);
    for (i = 0; i < B * MAX * MAX; i++) wide[i] = bits_float(0x7FC00000u);
    for (i = 0; i < H * B * N * 5; i++) turned[i] = bits_float(0x7FC00000u);
    for (b = 0; b < B; b++) for (i = 0; i < N; i++) for (j = 0; j < N; j++)
        plain[(b * N + i) * N + j] = wide[(b * MAX + i) * MAX + j] = rng_normal(&r);
    a.q = a.k = a.v = q; a.out = out[0]; a.mask = plain; set3(a.mask_shape, B, 1, N);
    CHECK(attn_sdpa(&a) == ATTN_OK);
    a.out = out[1]; a.mask = wide; a.mask_stride[0] = MAX * MAX; a.mask_stride[2] = MAX;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    CHECK(same_bits(out[0], out[1], B * N * H * D));

    for (b = 0; b < B; b++) for (h = 0; h < H; h++) for (i = 0; i < N; i++) for (j = 0; j < N; j++) {
        plain[((b * H + h) * N + i) * N + j] = turned[((h * B + b) * N + i) * 5 + j] = rng_normal(&r);
        plain_keep[((b * H + h) * N + i) * N + j] = keep[((h * B + b) * N + i) * 5 + j] = (b + h + i + j) % 3 != 0;
    }
    a = attn_args_for(B, N, N, H, D);
    a.q = a.k = a.v = q; a.out = out[0];
    a.mask = a.bias = plain; a.keep = plain_keep;
    set3(a.mask_shape, B, H, N); set3(a.bias_shape, B, H, N); set3(a.keep_shape, B, H, N);
    CHECK(attn_sdpa(&a) == ATTN_OK);
    a.out = out[1]; a.mask = a.bias = turned; a.keep = keep;
    a.mask_stride[0] = a.keep_stride[0] = a.bias_stride[0] = N * 5;
    a.mask_stride[1] = a.keep_stride[1] = a.bias_stride[1] = B * N * 5;
    a.mask_stride[2] = a.keep_stride[2] = a.bias_stride[2] = 5;
    CHECK(attn_sdpa(&a) == ATTN_OK);
    CHECK(same_bits(out[0], out[1], B * N * H * D));
    mask_strides_wrong();
}

/* The address of each float, int or size_t is checked before it is read. */
static void alignment(void)
{
    static const char *const names[] = {"out",          "q",        "k",       "v",           "mask",       "bias",
                                        "alibi_slopes", "sinks",    "weights", "lse",         "q_pos_each", "q_lengths",
                                        "k_lengths",    "k_starts", "k_map",   "masked_rows", "q_cum",      "k_cum",
                                        "weights_heads", "rel_bias"};
    int x, by;
    for (x = 0; x < 20; x++) for (by = 1; by < (x == 15 ? (int)sizeof(size_t) : 4); by++) {     /* 15: size_t */
        attn_args a = x < 16 || x > 17 ? full() : ragged();
        const void *p[20];
        char words[64];
        p[0] = a.out; p[1] = a.q; p[2] = a.k; p[3] = a.v; p[4] = a.mask; p[5] = a.bias; p[6] = a.alibi_slopes;
        p[7] = a.sinks; p[8] = a.weights; p[9] = a.lse; p[10] = a.q_pos_each; p[11] = a.q_lengths; p[12] = a.k_lengths;
        p[13] = a.k_starts; p[14] = a.k_map; p[15] = a.masked_rows; p[16] = a.q_cum; p[17] = a.k_cum;
        p[18] = some_heads; a.n_weights_heads = x == 18;
        p[19] = w.rel;
        p[x] = (const char *)p[x] + by;
        a.out = (float *)(uintptr_t)p[0];
        a.q = (const float *)p[1];
        a.k = (const float *)p[2];
        a.v = (const float *)p[3];
        a.mask = (const float *)p[4]; a.bias = (const float *)p[5]; a.alibi_slopes = (const float *)p[6];
        a.sinks = (const float *)p[7]; a.weights = (float *)(uintptr_t)p[8]; a.lse = (float *)(uintptr_t)p[9];
        a.q_pos_each = (const int *)p[10]; a.q_lengths = (const int *)p[11]; a.k_lengths = (const int *)p[12];
        a.k_starts = (const int *)p[13]; a.k_map = (const int *)p[14]; a.masked_rows = (size_t *)(uintptr_t)p[15];
        a.q_cum = (const int *)p[16]; a.k_cum = (const int *)p[17];
        a.weights_heads = x == 18 ? (const int *)p[18] : NULL;
        a.rel_bias = (const float *)p[19];
        snprintf(words, sizeof words, "%s aligned %d", names[x], by);
        refused(__LINE__, names[x], &a, ATTN_E_ALIGN, words);
    }
    RIGHT(full, a.work = (char *)a.work + 1; a.work_size -= 1);   /* bytes may lie anywhere */
    RIGHT(full, a.keep = w.keep + 1);
}

/* ---- overlap --------------------------------------------------------------------------------------------------- */

/* Contiguous outputs over everything else, by one float on either side, and exactly next to it. */
static void overlap_plain(void)
{
    static const char *const names[] = { "q", "k", "v", "mask", "bias", "alibi_slopes", "sinks", "keep", "k_lengths",
                                         "q_lengths", "k_starts", "q_pos_each", "k_map", "weights_heads", "rel_bias" };
    static float arena[4096];
    int x, o, side;
    for (x = 0; x < 15; x++) for (o = 0; o < 3; o++) for (side = 0; side < 6; side++) {
        attn_args a = full();
        static const ptrdiff_t sizes[] = { Q_SIZE, K_SIZE, V_SIZE, N_Q * N_K, HEADS * N_Q * N_K, HEADS, HEADS,
                                        N_Q * N_K / 4, BATCH, BATCH, BATCH, BATCH, BATCH, 1, REL_SIZE };
        static const char *const outs[] = { "out", "weights", "lse" };
        ptrdiff_t in = sizes[x], size = o == 0 ? OUT_SIZE : o == 2 ? LSE_SIZE : x == 13 ? WEIGHTS_SIZE / HEADS
                                                               : WEIGHTS_SIZE;
        float *input = arena + 1000, *output;
        char words[64], how[96];
        int legal = side >= 4;
        memset(arena, 0, sizeof arena);
        switch (x) {
        case 0: a.q = input; break;
        case 1: a.k = input; break;
        case 2: a.v = input; break;
        case 3: a.mask = input; break;
        case 4: a.bias = input; break;
        case 5: a.alibi_slopes = input; break;
        case 6: a.sinks = input; break;
        case 7: a.keep = (unsigned char *)input; break;
        case 8: a.k_lengths = (int *)input; break;
        case 9: a.q_lengths = (int *)input; break;
        case 10: a.k_starts = (int *)input; break;
        case 11: a.q_pos_each = (int *)input; break;
        case 12: a.k_map = (int *)input; break;
        case 13: a.weights_heads = (int *)input, a.n_weights_heads = 1; break;
        default: a.rel_bias = input; break;
        }
        output = input + (side == 0 ? 0 : side == 1 ? in - 1 : side == 2 ? 1 - size : side == 3 ? (in - size) / 2 :
                          side == 4 ? in : -size);
        if (o == 0) a.out = output; else if (o == 1) a.weights = output; else a.lse = output;
        snprintf(words, sizeof words, "%s %s", outs[o], names[x]);
        snprintf(how, sizeof how, "%s over %s, arrangement %d", outs[o], names[x], side);
        if (legal) accepted(__LINE__, how, &a);
        else refused(__LINE__, how, &a, ATTN_E_OVERLAP, words);
    }
    WRONG(full, ATTN_E_OVERLAP, "out weights", a.weights = w.out);
    WRONG(full, ATTN_E_OVERLAP, "out weights", a.weights = w.out + OUT_SIZE - 1);
    WRONG(full, ATTN_E_OVERLAP, "out lse", a.lse = w.out + 3);
    WRONG(full, ATTN_E_OVERLAP, "weights lse", a.lse = w.weights + WEIGHTS_SIZE - 1);
    WRONG(full, ATTN_E_OVERLAP, "masked_rows", a.masked_rows = (size_t *)(void *)(w.out + 4));
    WRONG(full, ATTN_E_OVERLAP, "masked_rows", a.masked_rows = (size_t *)(void *)(w.q + 4));
    WRONG(full, ATTN_E_OVERLAP, "work", a.work = w.out);
    WRONG(full, ATTN_E_OVERLAP, "work", a.work = w.q + 7);
    WRONG(full, ATTN_E_OVERLAP, "work", a.lse = w.work + 1);
    /* the end of q is past the last address, where no object can be */
    WRONG(good, ATTN_E_OVERLAP, "out q", a.q = a.out = (float *)((size_t)-1 - 7));
    RIGHT(good, a.k = w.q; a.v = w.q; a.v_head_dim = DIM; a.kv_heads = HEADS; a.n_k = N_Q);      /* inputs may share */
}

typedef struct box {
    ptrdiff_t at, stride[3];
    int n[3], head_dim;
} box; /* elements of a strided tensor in an arena */

static void box_mark(const box *b, unsigned char *arena, unsigned char bit)
{
    int i, j, h, c;
    for (i = 0; i < b->n[0]; i++) for (j = 0; j < b->n[1]; j++) for (h = 0; h < b->n[2]; h++)
        for (c = 0; c < b->head_dim; c++)
            /* every box has strides: NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
            arena[b->at + i * b->stride[0] + j * b->stride[1] + h * b->stride[2] + c] |= bit;
}

/* strides that nest in any order of the axes, some with gaps */
static void box_draw(box *b, rng *r, int batch, int rows, int heads, int head_dim)
{
    int axis[3] = { 0, 1, 2 }, i;
    ptrdiff_t inner = head_dim;
    b->n[0] = batch; b->n[1] = rows; b->n[2] = heads; b->head_dim = head_dim;
    for (i = 2; i > 0; i--) { int j = rng_int(r, 0, i), t = axis[i]; axis[i] = axis[j]; axis[j] = t; }
    for (i = 0; i < 3; i++) {
        if (rng_int(r, 0, 1)) inner += rng_int(r, 0, 1) ? inner : rng_int(r, 1, 9);
        b->stride[axis[i]] = inner;
        inner *= b->n[axis[i]];
    }
}

static void box_random_call(attn_args *a, rng *r)
{
    *a = good();
    a->batch = rng_int(r, 1, 3); a->n_q = rng_int(r, 1, 4); a->n_k = rng_int(r, 1, 4);
    a->kv_heads = rng_int(r, 1, 2); a->heads = a->kv_heads * rng_int(r, 1, 2);
    a->head_dim = rng_int(r, 1, 4); a->v_head_dim = rng_int(r, 0, 1) ? a->head_dim : rng_int(r, 1, 4);
}

/* attn_check of out against q (0), k (1) or v (2) at their places in the arena */
static void box_check(attn_args *a, const box *out, const box *in, int what, float *arena, attn_status want,
                      uint64_t seed)
{
    char why[256];
    attn_status got;
    a->out = arena + out->at; memcpy(a->out_stride, out->stride, sizeof out->stride);
    if (what == 0) { a->q = arena + in->at; memcpy(a->q_stride, in->stride, sizeof in->stride); }
    else if (what == 1) { a->k = arena + in->at; memcpy(a->k_stride, in->stride, sizeof in->stride); }
    else { a->v = arena + in->at; memcpy(a->v_stride, in->stride, sizeof in->stride); }
    got = attn_check(a, why, sizeof why);
    /* in is one of the boxes of the call: NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
    CHECKF(got == want,
           "seed %llu: batch %d, %d rows, %d keys, heads %d and %d, head_dim %d and %d; out {%ld, %ld, %ld} at "
           "%ld, %c {%ld, %ld, %ld} at %ld %s, but: %s",
           (unsigned long long)seed, a->batch, a->n_q, a->n_k, a->heads, a->kv_heads, a->head_dim, a->v_head_dim,
           (long)out->stride[0], (long)out->stride[1], (long)out->stride[2], (long)out->at, "qkv"[what],
           (long)in -> stride[0], (long)in -> stride[1], (long)in -> stride[2], (long)in -> at,
           want ? "share a cell" : "share nothing", why);
}

/* Random strides, counted element by element in an arena: a shared element is an error. (Whether odd strides interleave
   without overlap can be hard to decide: rejecting them is allowed.) */
static void overlap_strided(void)
{
    enum { ARENA = 60000 };
    static unsigned char cells[ARENA];
    static float arena[ARENA];
    int cases = 3000 * test_scale, i, x, found = 0;
    for (i = 0; i < cases && !test_failed(); i++) {
        uint64_t seed = test_seed * 1000003u + (uint64_t)i;
        rng r = rng_make(seed);
        attn_args a;
        box out, in;
        int what = rng_int(&r, 0, 2), shared = 0;
        box_random_call(&a, &r);
        box_draw(&out, &r, a.batch, a.n_q, a.heads, a.v_head_dim);
        if (what == 0) box_draw(&in, &r, a.batch, a.n_q, a.heads, a.head_dim);
        else box_draw(&in, &r, a.batch, a.n_k, a.kv_heads, what == 1 ? a.head_dim : a.v_head_dim);
        in.at = 20000 + rng_int(&r, 0, 40);
        out.at = in.at + rng_int(&r, 0, 2) * rng_int(&r, -30, 30);
        memset(cells, 0, sizeof cells);
        box_mark(&out, cells, 1); box_mark(&in, cells, 2);
        for (x = 0; x < ARENA; x++) shared |= cells[x] == 3;
        found += shared;
        if (shared) box_check(&a, &out, &in, what, arena, ATTN_E_OVERLAP, seed);
    }
    CHECKF(test_failed() || (found > cases / 5 && found < cases * 9 / 10), "%d of %d cases share a cell", found, cases);
}

/* Columns of one buffer, at every level: elements of a head, whole heads, whole rows or adjacent entries. Larger
   strides are multiples of the step that they share. One may begin some steps after the other. */
static void overlap_columns(void)
{
    static float arena[60000];
    int cases = 3000 * test_scale, i, t;
    for (i = 0; i < cases && !test_failed(); i++) {
        uint64_t seed = test_seed * 1000033u + (uint64_t)i;
        rng r = rng_make(seed);
        attn_args a;
        box out, in;
        int what = rng_int(&r, 0, 2), axis[3] = { 0, 1, 2 }, level = rng_int(&r, 0, 3);
        ptrdiff_t inner, slot = 0, step = 1;
        box_random_call(&a, &r);
        out.n[0] = in.n[0] = a.batch;
        out.n[1] = a.n_q; in.n[1] = what == 0 ? a.n_q : a.n_k;
        out.n[2] = a.heads; in.n[2] = what == 0 ? a.heads : a.kv_heads;
        out.head_dim = a.v_head_dim; in.head_dim = what == 2 ? a.v_head_dim : a.head_dim;
        for (t = 2; t > 0; t--) { int j = rng_int(&r, 0, t), k = axis[t]; axis[t] = axis[j]; axis[j] = k; }
        inner = out.head_dim > in.head_dim ? out.head_dim : in.head_dim;
        for (t = 0; t < 4; t++) {
            if (t == level) { slot = inner + rng_int(&r, 0, 3); inner += slot; }
            inner += rng_int(&r, 0, 1) * rng_int(&r, 0, 5);
            if (t == 3) break;
            if (t > level) inner = (inner + step - 1) / step * step;
            if (t >= level && out.n[axis[t]] + in.n[axis[t]] > 2 && step == 1) step = inner;
            out.stride[axis[t]] = in.stride[axis[t]] = inner;
            inner *= out.n[axis[t]] > in.n[axis[t]] ? out.n[axis[t]] : in.n[axis[t]];
        }
        in.at = 20000;
        out.at = rng_int(&r, 0, 1) ? in.at + slot : in.at - slot;
        if (step > 1) out.at += rng_int(&r, -2, 2) * step;
        box_check(&a, &out, &in, what, arena, ATTN_OK, seed);
    }
}

/* Typical cases: out as the fourth part of a packed row, out as every other head. */
static void interleaved_is_legal(void)
{
    static float rows[BATCH * N_Q * 4 * HEADS * DIM], want[BATCH * N_Q * HEADS * DIM];
    attn_args a = good();
    rng r = rng_make(test_seed);
    int i, t;
    rng_fill(&r, rows, BATCH * N_Q * 4 * HEADS * DIM);
    a.kv_heads = HEADS; a.v_head_dim = DIM; a.n_k = N_Q;
    a.q = rows; a.k = rows + HEADS * DIM; a.v = rows + 2 * HEADS * DIM;
    a.q_stride[1] = a.k_stride[1] = a.v_stride[1] = 4 * HEADS * DIM;
    a.out = want;
    accepted(__LINE__, "packed q, k, v", &a);
    a.out = rows + 3 * HEADS * DIM; a.out_stride[1] = 4 * HEADS * DIM;
    accepted(__LINE__, "packed q, k, v, out", &a);
    for (i = 0; i < BATCH * N_Q; i++)
        CHECK(same_bits(want + i * HEADS * DIM, rows + (i * 4 + 3) * HEADS * DIM, HEADS * DIM));
    a = good();
    a.v_head_dim = DIM;
    a.q = rows; a.out = rows + DIM;
    for (t = 0; t < 3; t++) a.q_stride[t] = a.out_stride[t] = 2 * DIM * (t == 2 ? 1 : t == 1 ? HEADS : HEADS * N_Q);
    accepted(__LINE__, "every other head", &a);

    /* a single packed row of out, between two keys */
    a = attn_args_for(1, 1, 4, 1, DIM);
    a.q = want; a.k = rows; a.v = rows + 2 * DIM; a.out = rows + DIM;
    a.k_stride[1] = a.v_stride[1] = 3 * DIM;
    accepted(__LINE__, "out beside a key", &a);
}

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

/* ---- workspace ------------------------------------------------------------------------------------------------- */

/* The reported size is enough, at any alignment; one byte less is rejected; the bits are the same. */
static void workspace(void)
{
    static const int rows[] = { 1, 3, 40, 200 }, keys[] = { 4, 130, 700 };
    static float q[200 * 16], k[700 * 16], v[700 * 16], out[2][200 * 16];
    attn_backend list[16];
    int n = test_all_backends(list, 16), b, i, j, e, shift;
    rng r = rng_make(test_seed);
    rng_fill(&r, q, 200 * 16); rng_fill(&r, k, 700 * 16); rng_fill(&r, v, 700 * 16);
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

/* ---- the sentence ---------------------------------------------------------------------------------------------- */

static void why_buffers(void)
{
    char whole[512], *part;
    size_t size, n, i;
    int wrong;
    for (wrong = 0; wrong < 2; wrong++) {
        attn_args a = good();
        attn_status status = wrong ? ATTN_E_LENGTHS : ATTN_OK;
        a.k_lengths = w.k_lengths;
        if (wrong) w.k_lengths[1] = 9;
        CHECK(attn_check(&a, whole, sizeof whole) == status);
        n = strlen(whole);
        CHECK(n > 10 && n < 400);
        for (size = 0; size < n + 3; size++) {
            size_t keep = size == 0 ? 0 : size - 1 < n ? size - 1 : n;
            part = (char *)guard_alloc(size + 4);
            CHECK(attn_check(&a, part, size) == status);
            if (size) CHECKF(memcmp(part, whole, keep) == 0 && part[keep] == 0, "size %lu", (unsigned long)size);
            for (i = size; i < size + 4; i++)
                CHECKF((unsigned char)part[i] == 0xA5, "wrote past size %lu", (unsigned long)size);
            guard_free(part);
        }
        CHECK(attn_check(&a, NULL, 0) == status);
    }
    {
        attn_args a = good();
        a.k_lengths = w.k_lengths; w.k_lengths[1] = 9;
        CHECK(attn_check(&a, whole, sizeof whole) == ATTN_E_LENGTHS);
        CHECKF(says(whole, "n_k is 4 k_lengths[1] is 9"), "not the promised sentence: %s", whole);
    }
    for (wrong = 0; wrong < 3; wrong++) {                         /* a window on either side is one */
        attn_args a = good();
        a.window_left = wrong & 1; a.window_right = wrong & 2;
        CHECK(attn_check(&a, whole, sizeof whole) == ATTN_OK);
        CHECKF((strstr(whole, "window") != NULL) == (wrong > 0), "%s", whole);
    }
}

static void status_words(void)
{
    int s, t;
    for (s = 0; s >= ATTN_E_BYTES; s--) {
        const char *name = attn_status_str((attn_status)s);
        CHECKF(name && name[0], "status %d has no words", s);
        if (!name) return;
        for (t = 0; t > s; t--) CHECKF(strcmp(name, attn_status_str((attn_status)t)) != 0, "%d and %d: %s", s, t, name);
    }
    CHECK(attn_status_str((attn_status)(ATTN_E_BYTES - 1)) && attn_status_str((attn_status)1));
    CHECK(attn_version() == ATTN_VERSION);
}

/* Every public struct by its name, and nothing else. */
static void struct_sizes(void)
{
#define SIZED(type) CHECK(attn_struct_size(#type) == sizeof(type))
    SIZED(attn_exec); SIZED(attn_args); SIZED(attn_kv_args); SIZED(attn_kv);
    SIZED(attn_linear_args); SIZED(attn_linear); SIZED(attn_norm_args);
    SIZED(attn_rope_freqs_args); SIZED(attn_rope_args);
    SIZED(attn_mha_args); SIZED(attn_mha); SIZED(attn_mha_opts);
#undef SIZED
    CHECK(attn_struct_size(NULL) == 0 && attn_struct_size("") == 0 && attn_struct_size("attn_arg") == 0);
    CHECK(attn_struct_size("attn_args ") == 0 && attn_struct_size("attn_pool") == 0);
}

/* ---- level 2 --------------------------------------------------------------------------------------------------- */

#define UNTOUCHED(status, call) \
    do { memcpy(&before, &w, sizeof w); refusal_clear(); CHECK((call) == (status)); \
         CHECKF(refusal_status() == (status) && refusal_count() == ((status) != ATTN_OK), "%s: told %d times, \"%s\"", \
                #call, refusal_count(), refusal_text()); \
         CHECKF(memcmp(&w, &before, sizeof w) == 0, "%s wrote something", #call); } while (0)

static void self_and_cross(void)
{
    const int B = 2, N = 3, K = 4, H = 2, D = 5;
    int *len = w.k_lengths;
    (void)good();
    len[0] = 3; len[1] = 1;
    UNTOUCHED(ATTN_E_NULL, attn_self(NULL, w.q, w.k, w.v, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_self(w.out, NULL, w.k, w.v, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_self(w.out, w.q, NULL, w.v, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_self(w.out, w.q, w.k, NULL, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_self(w.out, w.q, w.k, w.v, -1, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_self(w.out, w.q, w.k, w.v, B, -1, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_self(w.out, w.q, w.k, w.v, B, N, 0, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_self(w.out, w.q, w.k, w.v, B, N, H, 0, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_OPTION, attn_self(w.out, w.q, w.k, w.v, B, N, H, D, 2, NULL, NULL));
    UNTOUCHED(ATTN_E_OPTION, attn_self(w.out, w.q, w.k, w.v, B, N, H, D, -1, NULL, NULL));
    UNTOUCHED(ATTN_E_OVERLAP, attn_self(w.q, w.q, w.k, w.v, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_OVERLAP, attn_self(w.v + 1, w.q, w.k, w.v, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_OVERLAP, attn_self(w.mask, w.q, w.k, w.v, B, N, H, D, 0, NULL, w.mask));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_self(w.out, w.q, w.k, w.v, INT_MAX, INT_MAX, INT_MAX, INT_MAX, 0, NULL, NULL));
    len[1] = 4;
    UNTOUCHED(ATTN_E_LENGTHS, attn_self(w.out, w.q, w.k, w.v, B, N, H, D, 0, len, NULL));
    len[1] = -1;
    UNTOUCHED(ATTN_E_LENGTHS, attn_self(w.out, w.q, w.k, w.v, B, N, H, D, 0, len, NULL));
    len[1] = 0;
    CHECK(attn_self(w.out, w.q, w.k, w.v, B, N, H, D, 1, len, w.mask) == ATTN_OK);
    UNTOUCHED(ATTN_OK, attn_self(w.out, w.q, w.k, w.v, 0, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_OK, attn_self(w.out, w.q, w.k, w.v, B, 0, H, D, 0, NULL, NULL));

    UNTOUCHED(ATTN_E_NULL, attn_cross(NULL, w.q, w.k, w.v, B, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_cross(w.out, NULL, w.k, w.v, B, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_cross(w.out, w.q, NULL, w.v, B, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_cross(w.out, w.q, w.k, NULL, B, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_cross(w.out, w.q, w.k, w.v, -2, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_cross(w.out, w.q, w.k, w.v, B, -2, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_cross(w.out, w.q, w.k, w.v, B, N, -2, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_cross(w.out, w.q, w.k, w.v, B, N, K, -2, D, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_cross(w.out, w.q, w.k, w.v, B, N, K, H, -2, NULL, NULL));
    UNTOUCHED(ATTN_E_OVERLAP, attn_cross(w.k + 2, w.q, w.k, w.v, B, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_cross(w.out, w.q, w.k, w.v, INT_MAX, 1, INT_MAX, INT_MAX, INT_MAX, NULL, NULL));
    len[0] = 5;
    UNTOUCHED(ATTN_E_LENGTHS, attn_cross(w.out, w.q, w.k, w.v, B, N, K, H, D, len, NULL));
    len[0] = 4;
    CHECK(attn_cross(w.out, w.q, w.k, w.v, B, N, K, H, D, len, w.mask) == ATTN_OK);
    UNTOUCHED(ATTN_OK, attn_cross(w.out, w.q, w.k, w.v, 0, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_OK, attn_cross(w.out, w.q, w.k, w.v, B, 0, K, H, D, NULL, NULL));
    CHECK(attn_cross(w.out, w.q, w.k, w.v, B, N, 0, H, D, NULL, NULL) == ATTN_OK);
    CHECK(float_bits(w.out[0]) == 0 && float_bits(w.out[B * N * H * D - 1]) == 0);
    CHECK(float_bits(w.out[B * N * H * D]) == 0xA5A5A5A5u || OUT_SIZE == B * N * H * D);
}

/* Every mistake is reported with the names of the public function: none of these functions has q_lengths, and
   attn_self has no n_q. */
static void level_2_sentences(void)
{
    const int B = 2, N = 3, K = 4, H = 2, D = 5;
    int *len = w.k_lengths;
    float *odd;
    (void)good();
    odd = (float *)(uintptr_t)(const void *)((const char *)w.q + 1);
    len[0] = 3; len[1] = 4;
#define SELF(out, q, lengths, mask, batch, n, heads, head_dim, causal) \
    attn_self(out, q, w.k, w.v, batch, n, heads, head_dim, causal, lengths, mask)
#define CROSS(out, q, lengths, mask, batch, n_q, n_k, heads, head_dim) \
    attn_cross(out, q, w.k, w.v, batch, n_q, n_k, heads, head_dim, lengths, mask)
    REFUSED(SELF(NULL, w.q, NULL, NULL, B, N, H, D, 0), ATTN_E_NULL, "attn_self: out is NULL");
    REFUSED(SELF(w.out, w.q, NULL, NULL, -1, N, H, D, 0), ATTN_E_SIZE, "attn_self: batch is -1 but must be at least 0");
    REFUSED(SELF(w.out, w.q, NULL, NULL, B, -1, H, D, 0), ATTN_E_SIZE, "attn_self: n is -1 but must be at least 0");
    REFUSED(SELF(w.out, w.q, NULL, NULL, B, N, 0, D, 0), ATTN_E_SIZE, "attn_self: heads is 0 but must be at least 1");
    REFUSED(SELF(w.out, w.q, NULL, NULL, B, N, H, 0, 0), ATTN_E_SIZE, "attn_self: head_dim is 0");
    REFUSED(SELF(w.out, w.q, NULL, NULL, B, N, H, D, 2), ATTN_E_OPTION,
            "attn_self: causal is 2 but its values are 0..1");
    REFUSED(SELF(w.out, w.q, len, NULL, B, N, H, D, 0), ATTN_E_LENGTHS, "attn_self: lengths[1] is 4 but n is 3");
    REFUSED(SELF((float *)len, w.q, len, NULL, B, N + 1, H, D, 0), ATTN_E_OVERLAP, "attn_self: out overlaps lengths");
    REFUSED(SELF(w.mask, w.q, NULL, w.mask, B, N, H, D, 0), ATTN_E_OVERLAP, "attn_self: out overlaps mask");
    REFUSED(SELF(w.out, odd, NULL, NULL, B, N, H, D, 0), ATTN_E_ALIGN, "attn_self: q is not aligned");
    REFUSED(SELF(w.out, w.q, (int *)(void *)odd, NULL, B, N, H, D, 0), ATTN_E_ALIGN, "attn_self: lengths is not");
    REFUSED(SELF(w.out, w.q, NULL, NULL, INT_MAX, 1, INT_MAX, 1, 0), ATTN_E_OVERFLOW, "attn_self: batch is ");
    REFUSED(CROSS(w.out, NULL, NULL, NULL, B, N, K, H, D), ATTN_E_NULL, "attn_cross: q is NULL");
    REFUSED(CROSS(w.out, w.q, NULL, NULL, B, -2, K, H, D), ATTN_E_SIZE, "attn_cross: n_q is -2");
    REFUSED(CROSS(w.out, w.q, NULL, NULL, B, N, -2, H, D), ATTN_E_SIZE, "attn_cross: n_k is -2");
    len[0] = 5;
    REFUSED(CROSS(w.out, w.q, len, NULL, B, N, K, H, D), ATTN_E_LENGTHS,
            "attn_cross: source_lengths[0] is 5 but n_k is 4");
    len[0] = -1;
    REFUSED(CROSS(w.out, w.q, len, NULL, B, N, K, H, D), ATTN_E_LENGTHS, "attn_cross: source_lengths[0] is -1");
    len[0] = 4;
    REFUSED(CROSS(w.k, w.q, len, NULL, B, N, K, H, D), ATTN_E_OVERLAP, "attn_cross: out overlaps k");
    REFUSED(CROSS((float *)len, w.q, len, NULL, B, N, K, H, D), ATTN_E_OVERLAP,
            "attn_cross: out overlaps source_lengths");
#undef SELF
#undef CROSS
    refusal_clear();
    CHECK(attn_self(w.out, w.q, w.k, w.v, B, 0, H, D, 0, NULL, NULL) == ATTN_OK && refusal_count() == 0);
}

/* ---- level 1 --------------------------------------------------------------------------------------------------- */

static void mask_builders(void)
{
    static const int ids[8] = { 1, 2, 0, 0, 3, 0, 0, 0 };
    const int big = INT_MAX;
    float *m = w.out;
    (void)good();
    UNTOUCHED(ATTN_E_NULL, attn_mask_causal(NULL, 3, 4, 0));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_causal(m, -1, 4, 0));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_causal(m, 3, -1, 0));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_causal(m, big, big, 0));
    UNTOUCHED(ATTN_OK, attn_mask_causal(m, 0, 4, 0));
    UNTOUCHED(ATTN_OK, attn_mask_causal(m, 3, 0, 0));

    UNTOUCHED(ATTN_E_NULL, attn_mask_window(NULL, 3, 4, 1, 1, 0));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_window(m, -1, 4, 1, 1, 0));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_window(m, 3, -1, 1, 1, 0));
    UNTOUCHED(ATTN_E_OPTION, attn_mask_window(m, 3, 4, -1, 1, 0));
    UNTOUCHED(ATTN_E_OPTION, attn_mask_window(m, 3, 4, 1, -1, 0));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_window(m, big, big, 1, 1, 0));
    UNTOUCHED(ATTN_OK, attn_mask_window(m, 0, 0, 1, 1, 0));

    UNTOUCHED(ATTN_E_NULL, attn_mask_padding(NULL, ids, 0, 2, 4));
    UNTOUCHED(ATTN_E_NULL, attn_mask_padding(m, NULL, 0, 2, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_padding(m, ids, 0, -2, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_padding(m, ids, 0, 2, -4));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_padding(m, ids, 0, big, big));
    UNTOUCHED(ATTN_OK, attn_mask_padding(m, ids, 0, 0, 4));

    UNTOUCHED(ATTN_E_NULL, attn_mask_cross(NULL, ids, 0, 2, 3, 4));
    UNTOUCHED(ATTN_E_NULL, attn_mask_cross(m, NULL, 0, 2, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_cross(m, ids, 0, -1, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_cross(m, ids, 0, 2, -1, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_cross(m, ids, 0, 2, 3, -1));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_cross(m, ids, 0, 2, big, big));
    UNTOUCHED(ATTN_OK, attn_mask_cross(m, ids, 0, 2, 0, 4));
    UNTOUCHED(ATTN_OK, attn_mask_cross(m, ids, 0, 2, 3, 0));
    UNTOUCHED(ATTN_OK, attn_mask_cross(NULL, NULL, 0, 2, 3, 0));                  /* no cells, so no ids are required */

    UNTOUCHED(ATTN_E_NULL, attn_mask_lengths(NULL, w.k_lengths, 2, 3, 4));
    UNTOUCHED(ATTN_E_NULL, attn_mask_lengths(m, NULL, 2, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_lengths(m, w.k_lengths, -2, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_lengths(m, w.k_lengths, 2, -3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_lengths(m, w.k_lengths, 2, 3, -4));
    UNTOUCHED(ATTN_E_LENGTHS, attn_mask_lengths(m, w.k_lengths, 2, 3, 3));
    w.k_lengths[1] = -1;
    UNTOUCHED(ATTN_E_LENGTHS, attn_mask_lengths(m, w.k_lengths, 2, 3, 4));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_lengths(m, w.q_lengths, 2, big, big));
    UNTOUCHED(ATTN_OK, attn_mask_lengths(NULL, NULL, 0, 3, 4));
    UNTOUCHED(ATTN_OK, attn_mask_lengths(NULL, NULL, 2, 0, 4));
    UNTOUCHED(ATTN_OK, attn_mask_lengths(NULL, NULL, 2, 3, 0));

    UNTOUCHED(ATTN_E_NULL, attn_mask_keep(NULL, w.keep, 4));
    UNTOUCHED(ATTN_E_NULL, attn_mask_keep(m, NULL, 4));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_keep(m, w.keep, SIZE_MAX));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_keep(m, w.keep, SIZE_MAX / 4 + 1));
    UNTOUCHED(ATTN_OK, attn_mask_keep(m, w.keep, 0));
    UNTOUCHED(ATTN_OK, attn_mask_keep(NULL, NULL, 0));

    UNTOUCHED(ATTN_E_NULL, attn_mask_merge(NULL, 2, w.mask, 1, 3, 4));
    UNTOUCHED(ATTN_E_NULL, attn_mask_merge(m, 2, NULL, 1, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_merge(m, -2, w.mask, 1, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_merge(m, 2, w.mask, 1, -3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_merge(m, 2, w.mask, 1, 3, -4));
    UNTOUCHED(ATTN_E_SHAPE, attn_mask_merge(m, 2, w.mask, 3, 3, 4));
    UNTOUCHED(ATTN_E_SHAPE, attn_mask_merge(m, 2, w.mask, 0, 3, 4));
    UNTOUCHED(ATTN_E_SHAPE, attn_mask_merge(m, 2, w.mask, -1, 3, 4));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_merge(m, 2, w.mask, 1, big, big));
    UNTOUCHED(ATTN_OK, attn_mask_merge(m, 0, w.mask, 1, 3, 4));
    UNTOUCHED(ATTN_OK, attn_mask_merge(NULL, 2, NULL, 1, 0, 4));
    UNTOUCHED(ATTN_OK, attn_mask_merge(NULL, 2, NULL, 2, 3, 0));

    UNTOUCHED(ATTN_E_NULL, attn_lengths(NULL, ids, 0, 2, 4));
    UNTOUCHED(ATTN_E_NULL, attn_lengths(w.k_lengths, NULL, 0, 2, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_lengths(w.k_lengths, ids, 0, -2, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_lengths(w.k_lengths, ids, 0, 2, -4));
    UNTOUCHED(ATTN_E_LENGTHS, attn_lengths(w.k_lengths, ids, 2, 2, 4));            /* 2 comes before other tokens */
    UNTOUCHED(ATTN_E_OVERFLOW, attn_lengths(w.k_lengths, ids, 0, big, big));
    UNTOUCHED(ATTN_OK, attn_lengths(w.k_lengths, ids, 0, 0, 4));
}

static void t5_arguments(void)
{
    float *m = w.out, *table = w.bias;
    const int big = INT_MAX;
    (void)good();
    UNTOUCHED(ATTN_E_NULL, attn_bias_t5(NULL, table, 8, 16, 0, 2, 3));
    UNTOUCHED(ATTN_E_NULL, attn_bias_t5(m, NULL, 8, 16, 0, 2, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 0, 16, 0, 2, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, -8, 16, 0, 2, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 8, -1, 0, 2, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 8, 16, 0, 0, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 8, 16, 0, -2, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 8, 16, 0, 2, -3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 2, 16, 0, 2, 3));          /* one bucket in each direction */
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 8, 2, 0, 2, 3));           /* no distance left for the logarithm */
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, INT_MAX, INT_MAX, 0, 2, 3));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_bias_t5(m, table, 8, 16, 0, 2, big));
    UNTOUCHED(ATTN_E_OPTION, attn_bias_t5(m, table, 8, 16, 2, 2, 3));
    UNTOUCHED(ATTN_E_OPTION, attn_bias_t5(m, table, 8, 16, -1, 2, 3));
}

/* private/args_memory.h: these need hooks */
void args_allocation_fails(void);
void args_caller_workspace(void);
void args_garbage_memory(void);
void args_stack(void);                    /* private/layers_memory.h: so do these */
void args_serial(void);

extern SUITE(args);
SUITE(args) = {
    { "valid_base", right_as_it_stands,
      "a base case that is rejected, so that every test below would pass without testing" },
    { "nulls", nulls, "a NULL dereferenced or ignored" },
    { "sizes", sizes, "a negative or impossible size that is accepted" },
    { "strides", strides, "a stride that makes rows overlap; a legal layout rejected" },
    { "unused_strides", strides_of_one,
      "a stride of a dimension of size 1 used to address keys or outputs that do not exist" },
    { "options", options, "an unknown option taken for the default, int overflow in positions" },
    { "backends", backends, "an unavailable instruction set that is called, a backend without a name" },
    { "lengths", lengths, "a length, start or map entry out of range that is used as an index" },
    { "ragged_tables", ragged_tables, "ragged offsets that decrease or are too long, or are mixed with lengths" },
    { "ragged_no_rows", ragged_without_rows, "out or q required although no row exists, padding left unwritten" },
    { "mask_shapes", shapes, "a broadcast shape that fits neither 1 nor the full size" },
    { "shape_sentence", one_choice, "a sentence that offers the same size twice: must be 1 or 1" },
    { "conflicts", conflicts, "two exclusive settings, one of which is ignored" },
    { "cache_conflicts", cache_conflicts, "a cache of another shape, or k and v next to a cache, accepted" },
    { "executors", executors, "an executor without a function or without a width" },
    { "zero_sizes", zero_sizes, "an empty call treated as an error, or something written" },
    { "args_for", args_for, "a size stored in the wrong member" },
    { "k_starts", k_starts_and_lengths, "k_lengths used as an end, positions counted from k_starts" },
    { "mask_strides", mask_strides, "strides of a mask ignored: entries and heads read as if it were packed" },
    { "alignment", alignment, "a float or int read at a misaligned address, or named wrongly in the sentence" },
    { "overlap_plain", overlap_plain, "out that overlaps an input by one float" },
    { "overlap_strided", overlap_strided, "an overlap between strided tensors that is missed" },
    { "overlap_columns", overlap_columns, "adjacent columns of one buffer rejected as an overlap" },
    { "interleaved", interleaved_is_legal, "packed rows of q, k, v and out rejected" },
    { "overflow", overflow, "a product of sizes that wraps around and is accepted" },
    { "overflow_of_work", overflow_of_work, "a workspace size that wraps around to a small one" },
    { "beyond_32_bits", beyond_32_bits, "an int in an address computation" },
    { "workspace", workspace, "a byte written past the workspace, an assumed alignment, other bits without malloc" },
    { "workspace_grows", workspace_grows, "a workspace for the largest call that is too small for a smaller one" },
    { "workspace_steps", workspace_grows_slowly, "the same, one step at a time, for any heads and dims" },
    { "why_buffer", why_buffers, "a sentence without its terminator or written past its buffer" },
    { "status_strings", status_words, "a status without a string" },
    { "struct_sizes", struct_sizes, "a size of another struct, or of none, reported to a binding" },
    { "level_2_sentences", level_2_sentences,
      "a sentence of attn_self or attn_cross with the names of attn_args, or none" },
    { "self_cross", self_and_cross, "an argument of attn_self or attn_cross that is not checked" },
    { "mask_builders", mask_builders, "an argument of a mask builder that is not checked" },
    { "t5_arguments", t5_arguments, "a T5 argument that is not checked" },
    { "allocation", args_allocation_fails, "memory leaked or something written when the n-th allocation fails" },
    { "no_malloc", args_caller_workspace, "an allocation although the caller supplied work" },
    { "uninitialised_work", args_garbage_memory, "work memory that is read before it is written" },
    { "stack_room", args_stack,
      "a workspace on the stack that exceeds ATTN_STACK, or an allocation although it fits" },
    { "serial_calls", args_serial, "threads woken for a call that ends before they are awake" },
    { 0 } };
