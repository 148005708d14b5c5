/* test_args.c: makes every argument of attn_sdpa wrong in turn: the call must return the correct status, with a
   sentence that names the member and the values, and write no byte. Conversely, unusual but legal arguments must be
   accepted. */
#include <limits.h>
#include "args_world.h"

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
    WRONG_SIZE(good, ATTN_E_STRIDE, "mask_stride[2] is 3 but must be 0, or at least 4",
               a.mask = w.mask; a.mask_stride[2] = N_K - 1);
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
    WRONG_SIZE(full, ATTN_E_OVERFLOW, "rel_extent 1073741313 1073741312", a.rel_extent = (INT_MAX - 1023) / 2 + 1);
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
    /* all backends that exist, which have names; a usable one must have a name */
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
    for (i = 0; i < 3 && list[0] != ATTN_SCALAR; i++) {           /* beams on one k_map read as one entry */
        static float room[2][45 * 4];
        static const int beams[] = { 14, 9, 3 }, rows[] = { 3, 5, 5 };
        static const int map[14] = { 0 };
        attn_args a = attn_args_for(beams[i], rows[i], 7, 1, 4);
        a.out = room[0]; a.q = a.k = a.v = room[1]; a.k_map = map; a.k_batch = 1;
        CHECK(attn_check(&a, why, sizeof why) == ATTN_OK);
        CHECKF(strstr(why, i == 0 ? ", thin, K in place (up to thick where entries share keys)"
                         : i == 1 ? ", thin (up to thick where entries share keys)" : ", thin,"), "%s", why);
        a.k_map = NULL; a.k_batch = 0; a.n_k = 1;
        CHECK(attn_check(&a, why, sizeof why) == ATTN_OK && !strstr(why, "share"));
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
    { 0 } };
