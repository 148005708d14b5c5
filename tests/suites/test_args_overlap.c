/* test_args_overlap.c: tensors of attn_sdpa at addresses that are not aligned, or that overlap. */
#include "args_world.h"

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
    /* a tensor without elements overlaps nothing */
    RIGHT(good, a.n_k = 0; a.k = w.out + 1);
    RIGHT(good, a.n_k = 0; a.v = w.out + OUT_SIZE - 1);
    RIGHT(good, a.n_q = 0; a.q = a.out = w.k + 1);
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

extern SUITE(args_overlap);
SUITE(args_overlap) = {
    { "alignment", alignment, "a float or int read at a misaligned address, or named wrongly in the sentence" },
    { "overlap_plain", overlap_plain, "out that overlaps an input by one float" },
    { "overlap_strided", overlap_strided, "an overlap between strided tensors that is missed" },
    { "overlap_columns", overlap_columns, "adjacent columns of one buffer rejected as an overlap" },
    { "interleaved", interleaved_is_legal, "packed rows of q, k, v and out rejected" },
    { 0 } };
