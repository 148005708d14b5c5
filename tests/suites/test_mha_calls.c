/* test_mha_calls.c: every call of a layer with one wrong argument. It is rejected before anything is written. */
#include "layer.h"

/* ---- layers and caches that the calls need --------------------------------------------------------------------- */
enum { B = 2, N = 3, DM = 8 };
static attn_mha m, turning, wide, value_wide, zero, factored, q_only;
static attn_kv c, other, small, empty, grouped, narrow;
static attn_mha_opts a;                   /* the options of CALL, cleared after each rejected call */
static const attn_mha_opts good;
static float *w, x[B * N * DM], copy[B * N * DM], table[4 * 4], out[B * N * DM], weights[B * 2 * N * N];
static attn_exec none;
static char work[16];
static const int over[B] = {1, 4}, under[B] = {0, -1}, ones[B] = {1, 1}, three[B] = {1, 3}, map[B] = {0, 1};
static const int cum[B + 1] = {0, 1, 3}, bad_cum[B + 1] = {1, 2, 3}, fall[B + 1] = {0, 2, 1};
static const int places[B * N] = {3, 2, 1, -1, 7, 4}, two[] = {0, 1, 2};

static void clear_options(void *options) { memset(options, 0, sizeof(attn_mha_opts)); }

static void make_layers(void)
{
    rng r = rng_make(test_seed + 14);
    attn_mha_args args = {0};
    w = normal(&r, 4 * DM * DM, 0.5);
    rng_fill(&r, x, B * N * DM);
    memcpy(copy, x, sizeof x);
    args.d_model = DM;
    args.heads = 2;
    args.w_q = args.w_k = args.w_v = args.w_o = w;
    CHECK(attn_mha_init(&m, &args) == ATTN_OK);
    CHECK(attn_rope_table(table, 4, 4, NULL, 0.0) == ATTN_OK);
    args.rope_table = table;
    args.positions = 4;
    CHECK(attn_mha_init(&turning, &args) == ATTN_OK);
    args.rope_table = NULL;
    args.q_factors = table;
    CHECK(attn_mha_init(&factored, &args) == ATTN_OK);
    args.q_factors = NULL;
    args.w_k = args.w_v = NULL;
    args.q_only = 1;
    CHECK(attn_mha_init(&q_only, &args) == ATTN_OK);
    args.w_k = args.w_v = w;
    args.q_only = 0;
    args.d_key = 12;
    args.d_value = 16;
    CHECK(attn_mha_init(&wide, &args) == ATTN_OK);
    args.d_key = DM;
    CHECK(attn_mha_init(&value_wide, &args) == ATTN_OK);
}

static void make_caches(void)
{
    attn_kv_args s = {0};
    s.batch = B;
    s.kv_heads = 2;
    s.head_dim = 4;
    s.capacity = 5;
    s.mem_size = attn_kv_size(&s);
    s.mem = guard_alloc(s.mem_size);
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    s.mem = NULL;
    s.head_dim = 3;
    CHECK(attn_kv_init(&other, &s) == ATTN_OK);
    s.head_dim = 4;
    s.capacity = 2;
    CHECK(attn_kv_init(&small, &s) == ATTN_OK);
    s.kv_heads = 1;
    CHECK(attn_kv_init(&grouped, &s) == ATTN_OK);
    s.kv_heads = 2;
    s.v_head_dim = 3;
    CHECK(attn_kv_init(&narrow, &s) == ATTN_OK);
}

/* Layers, caches and what a rejected call must not change. */
static void begin(void)
{
    make_layers();
    make_caches();
    a = good;
    CHECK(attn_mha_self_step(&m, out, x, B, N, &c, NULL) == ATTN_OK);
    memset(out, 0x77, sizeof out);
    memset(weights, 0x77, sizeof weights);
    refusal_keeps(out, sizeof out);
    refusal_keeps(weights, sizeof weights);
    refusal_keeps(x, sizeof x);
    refusal_keeps(c.shape.mem, c.shape.mem_size);
    refusal_around(NULL, clear_options, &a);
}

static void end(void)
{
    CHECK(untouched(out, sizeof out) && untouched(weights, sizeof weights) && same_bits(x, copy, B * N * DM));
    attn_mha_free(&m);
    attn_mha_free(&turning);
    attn_mha_free(&wide);
    attn_mha_free(&factored);
    attn_mha_free(&q_only);
    attn_mha_free(&value_wide);
    guard_free(c.shape.mem);
    attn_kv_free(&other);
    attn_kv_free(&small);
    attn_kv_free(&grouped);
    attn_kv_free(&narrow);
    free(w);
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */
#define CALL attn_mha_self(&m, out, x, B, N, &a)
static void wrong_self(void)
{
    begin();
    REFUSED(attn_mha_self(NULL, out, x, B, N, NULL), ATTN_E_NULL, "m is not a layer");
    REFUSED(attn_mha_self(&zero, out, x, B, N, NULL), ATTN_E_NULL, "m is not a layer");
    REFUSED(attn_mha_self(&m, NULL, x, B, N, NULL), ATTN_E_NULL, "out is NULL");
    REFUSED(attn_mha_self(&m, out, NULL, B, N, NULL), ATTN_E_NULL, "x is NULL");
    REFUSED(attn_mha_self(&m, out, x, -1, N, NULL), ATTN_E_SIZE, "batch is -1");
    REFUSED(attn_mha_self(&m, out, x, B, -1, NULL), ATTN_E_SIZE, "n is -1");
    REFUSED(attn_mha_self(&m, out, x, 1 << 20, 1 << 20, NULL), ATTN_E_OVERFLOW, "batch 1048576 times n_q 1048576");
    REFUSED(attn_mha_self(&m, out, out, B, N, NULL), ATTN_E_OVERLAP, "out overlaps x");
    REFUSED(attn_mha_self(&wide, out, x, B, N, NULL), ATTN_E_SIZE, "d_key is 12");
    REFUSED(attn_mha_self(&turning, out, x, 1, 5, NULL), ATTN_E_SIZE, "positions is 4 but n is 5");
    CHECKF(attn_mha_self(&m, NULL, NULL, 0, N, NULL) == ATTN_OK, "%s", refusal_text());
    CHECKF(attn_mha_self(&m, NULL, NULL, B, 0, NULL) == ATTN_OK, "%s", refusal_text());
    a = good, a.attn.q_cum = cum;
    CHECKF(attn_mha_self(&m, NULL, NULL, 0, N, &a) == ATTN_OK, "%s", refusal_text());
    REFUSES(a.attn.k = x, ATTN_E_CONFLICT, "k");
    REFUSES(a.attn.v = x, ATTN_E_CONFLICT, "v");
    REFUSES(a.attn.batch = B, ATTN_E_CONFLICT, "batch");
    REFUSES(a.attn.n_q = N, ATTN_E_CONFLICT, "n_q");
    REFUSES(a.attn.kv_heads = 2, ATTN_E_CONFLICT, "kv_heads");
    REFUSES(a.attn.head_dim = 4, ATTN_E_CONFLICT, "head_dim");
    REFUSES(a.attn.v_head_dim = 4, ATTN_E_CONFLICT, "v_head_dim");
    REFUSES(a.attn.carry_in = x, ATTN_E_CONFLICT, "attn.carry_in is set");
    REFUSES(a.attn.carry_out = out, ATTN_E_CONFLICT, "attn.carry_out is set");
    REFUSES(a.attn.parts = 1, ATTN_E_CONFLICT, "attn.parts is set");
    for (int i = 0; i < 3; i++) {
        REFUSES(a.attn.q_stride[i] = 8, ATTN_E_CONFLICT, "q_stride");
        REFUSES(a.attn.v_stride[i] = 8, ATTN_E_CONFLICT, "v_stride");
        REFUSES(a.attn.out_stride[i] = 8, ATTN_E_CONFLICT, "out_stride");
    }
    REFUSES(a.attn.k_batch = B, ATTN_E_CONFLICT, "k_batch");
    REFUSED(attn_mha_self(&value_wide, out, x, B, N, NULL), ATTN_E_SIZE, "d_value is 16");
    REFUSES(a.attn.q = x, ATTN_E_CONFLICT, "q");
    REFUSES(a.attn.out = x, ATTN_E_CONFLICT, "out");
    REFUSES(a.attn.n_k = N, ATTN_E_CONFLICT, "n_k");
    REFUSES(a.attn.heads = 2, ATTN_E_CONFLICT, "heads");
    REFUSES(a.attn.layout = ATTN_BHSD, ATTN_E_CONFLICT, "layout");
    REFUSES(a.attn.k_stride[1] = 8, ATTN_E_CONFLICT, "k_stride");
    REFUSES(a.attn.kv = &c, ATTN_E_CONFLICT, "attn.kv");
    REFUSES(a.attn.k_map = map, ATTN_E_CONFLICT, "k_map");
    REFUSES(a.attn.k_cum = cum, ATTN_E_CONFLICT, "k_cum");
    REFUSES(a.memory_v = x, ATTN_E_CONFLICT, "memory_v");
    REFUSES(a.attn.q_cum = bad_cum, ATTN_E_LENGTHS, "q_cum");
    REFUSES(a.attn.q_cum = fall, ATTN_E_LENGTHS, "q_cum");
    REFUSED((a.attn.q_cum = cum, attn_mha_self(&m, out, x, B, 1, &a)), ATTN_E_SIZE, "n is 1");
    REFUSES(a.attn.q_lengths = over, ATTN_E_LENGTHS, "q_lengths");
    REFUSES(a.attn.k_lengths = over, ATTN_E_LENGTHS, "k_lengths");
    REFUSES(a.attn.causal = 7, ATTN_E_OPTION, "causal");
    REFUSES(a.attn.softcap = -1.0f, ATTN_E_OPTION, "softcap");
    REFUSES(a.attn.backend = 99, ATTN_E_OPTION, "backend");
    REFUSES(a.attn.exec = &none, ATTN_E_NULL, "exec->run");
    REFUSES(a.weights_mean = -1, ATTN_E_OPTION, "weights_mean is -1");
    REFUSES((a.attn.weights_heads = two, a.attn.n_weights_heads = 2), ATTN_E_CONFLICT, "weights is NULL");
    REFUSES((a.attn.weights = weights, a.attn.n_weights_heads = 1), ATTN_E_NULL, "weights_heads is NULL");
    REFUSES((a.attn.weights = weights, a.attn.weights_heads = two, a.attn.n_weights_heads = 3), ATTN_E_SIZE,
          "n_weights_heads is 3");
    REFUSES((a.attn.weights = weights, a.attn.weights_heads = two + 1, a.attn.n_weights_heads = 2), ATTN_E_OPTION,
          "weights_heads[1] is 2");
    REFUSED(attn_mha_self(&m, behind(out, 1), x, B, N, NULL), ATTN_E_ALIGN, "out is not aligned");
    REFUSED(attn_mha_self(&m, out, behind(x, 2), B, N, NULL), ATTN_E_ALIGN, "x is not aligned");
    REFUSES(a.attn.weights = behind(weights, 1), ATTN_E_ALIGN, "weights is not aligned");
    REFUSES(a.attn.q_lengths = behind(ones, 2), ATTN_E_ALIGN, "q_lengths is not aligned");
    REFUSES(a.attn.weights = x, ATTN_E_OVERLAP, "weights overlaps x");
    REFUSES((a.attn.weights = out, a.weights_mean = 1), ATTN_E_OVERLAP, "out overlaps weights");
    REFUSES((a.attn.work = work, a.attn.work_size = sizeof work), ATTN_E_WORK,
          "work_size is 16 but attn_mha_workspace asks for ");
    REFUSES((a.attn.mask = x, a.attn.mask_shape[0] = 5), ATTN_E_SHAPE, "mask");
    REFUSES((a.attn.weights = weights, a.attn.mask = x, a.attn.mask_stride[2] = 1), ATTN_E_STRIDE,
            "mask_stride[2] is 1");
    REFUSED((a.rope_pos = places, attn_mha_self(&turning, out, x, B, N, &a)), ATTN_E_SIZE,
            "positions is 4 but rope_pos[4] is 7");
    REFUSED((a.rope_pos = places, attn_mha_self(&factored, out, x, B, N, &a)), ATTN_E_SIZE,
            "positions is 4 but rope_pos[4] is 7");
    REFUSED((a.rope_pos = behind(places, 1), attn_mha_self(&turning, out, x, B, N, &a)), ATTN_E_ALIGN,
            "rope_pos is not aligned");
    REFUSED((a.attn.q_lengths = over, a.rope_pos = places, attn_mha_self(&turning, out, x, B, N, &a)),
            ATTN_E_LENGTHS, "q_lengths[1] is 4 but n is 3");             /* before they determine where positions end */
    REFUSED(attn_mha_self(&q_only, out, x, B, N, NULL), ATTN_E_CONFLICT, "the layer has q_only");
    REFUSED(attn_mha_self(&factored, out, x, 1, 5, NULL), ATTN_E_SIZE, "positions is 4 but n is 5");
    end();
}
#undef CALL

#define CALL attn_mha_cross(&m, out, x, B, N, x, N, &a)
static void wrong_cross(void)
{
    begin();
    REFUSED(attn_mha_cross(&m, out, x, B, N, NULL, N, NULL), ATTN_E_NULL, "memory is NULL");
    REFUSED(attn_mha_cross(&m, out, x, B, N, behind(x, 1), N, NULL), ATTN_E_ALIGN, "memory is not aligned");
    REFUSES(a.memory_v = behind(x, 1), ATTN_E_ALIGN, "memory_v is not aligned");
    REFUSED(attn_mha_cross(&wide, out, x, 1, 1, x, 1, NULL), ATTN_E_NULL,
            "memory_v is NULL"); /* another width of values needs memory_v */
    REFUSED(attn_mha_cross(&turning, out, x, B, N, x, N, NULL), ATTN_E_CONFLICT, "rope_table");
    REFUSED(attn_mha_cross(&m, out, x, B, N, out, N, NULL), ATTN_E_OVERLAP, "out overlaps memory");
    REFUSED(attn_mha_cross(&m, x + DM, x, 1, 1, x, N, NULL), ATTN_E_OVERLAP,
            "out overlaps memory"); /* x is the memory, or part of it */
    REFUSED((a.memory_v = x + DM, attn_mha_cross(&value_wide, x + 2 * DM, x, 1, 1, x + DM, 1, &a)), ATTN_E_OVERLAP,
            "memory_v");
    CHECK(same_bits(x, copy, B * N * DM));
    REFUSES((a.attn.k_map = over, a.attn.k_batch = 2), ATTN_E_MAP, "k_map[1] is 4");
    REFUSES(a.attn.k_cum = fall, ATTN_E_LENGTHS, "k_cum");
    REFUSES(a.attn.k_cum = bad_cum, ATTN_E_LENGTHS, "k_cum");
    REFUSED((a.attn.k_cum = cum, attn_mha_cross(&m, out, x, B, N, x, 1, &a)), ATTN_E_SIZE, "n_k is 1");
    a = good, a.attn.k_cum = a.attn.q_cum = cum;
    CHECKF(attn_mha_cross(&m, NULL, NULL, 0, 0, NULL, 0, &a) == ATTN_OK, "%s", refusal_text());
    REFUSES(a.attn.k_batch = 1, ATTN_E_SIZE, "k_batch");
    REFUSED((a.attn.k_batch = 1 << 20, attn_mha_cross(&m, out, x, B, N, x, 1 << 20, &a)), ATTN_E_OVERFLOW, "k_batch");
    REFUSED(attn_mha_cross(&factored, out, x, B, N, x, N, NULL), ATTN_E_CONFLICT, "the layer has q_factors");
    REFUSED((a.rope_pos = places, attn_mha_cross(&turning, out, x, B, N, x, N, &a)), ATTN_E_CONFLICT, "rope_table");
    REFUSED(attn_mha_cross(&q_only, out, x, B, N, x, N, NULL), ATTN_E_CONFLICT, "the layer has q_only");
    end();
}
#undef CALL

#define CALL attn_mha_self_step(&m, out, x, B, 1, &c, &a)
static void wrong_self_step(void)
{
    size_t masked;
    begin();
    REFUSED(attn_mha_self_step(&m, out, x, B, N, &c, NULL), ATTN_E_FULL, "cache");
    REFUSED(attn_mha_self_step(&m, out, x, B, N, NULL, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSED(attn_mha_self_step(&m, out, x, B, N, &empty, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSED(attn_mha_self_step(&m, out, x, 1, 1, &c, NULL), ATTN_E_SIZE, "batch is 1 but the cache has 2");
    REFUSED(attn_mha_self_step(&m, out, x, B, 1, &other, NULL), ATTN_E_SIZE, "head_dim is 4 but 3 in the cache");
    REFUSED(attn_mha_self_step(&turning, out, x, B, 2, &c, NULL), ATTN_E_SIZE,
            "positions is 4 but entry 0 grows to 5"); /* position 4 is not in the table */
    REFUSED(attn_mha_self_step(&m, NULL, x, B, 1, &c, NULL), ATTN_E_NULL, "out is NULL");
    REFUSED(attn_mha_self_step(&m, out, out, B, 1, &c, NULL), ATTN_E_OVERLAP, "out overlaps x");
    REFUSES(a.attn.causal = ATTN_CAUSAL_TOP_LEFT, ATTN_E_CONFLICT, "causal");
    REFUSES(a.attn.k_lengths = ones, ATTN_E_CONFLICT, "k_lengths");
    REFUSES(a.attn.k_starts = ones, ATTN_E_CONFLICT, "k_starts");
    REFUSES(a.attn.kv = &other, ATTN_E_CONFLICT, "kv");
    REFUSED((a.attn.q_lengths = over, attn_mha_self_step(&m, out, x, B, N, &c, &a)), ATTN_E_LENGTHS, "");
    REFUSES((a.attn.mask = x, a.attn.mask_shape[0] = B, a.attn.mask_shape[1] = a.attn.mask_shape[2] = 1,
           a.attn.mask_stride[0] = 3), ATTN_E_STRIDE, "mask");
    REFUSES((a.attn.lse = (float *)(void *)&masked, a.attn.masked_rows = &masked), ATTN_E_OVERLAP,
          "lse overlaps masked_rows"); /* only the attention inside can see this */
    REFUSES(a.attn.softcap = NAN, ATTN_E_OPTION, "softcap");
    REFUSES((a.attn.work = work, a.attn.work_size = sizeof work), ATTN_E_WORK,
          "work_size is 16 but attn_mha_workspace asks for ");
    REFUSED(attn_mha_self_step(&q_only, out, x, B, 1, &c, NULL), ATTN_E_CONFLICT, "the layer has q_only");
    REFUSED(attn_mha_self_step(&factored, out, x, B, 2, &c, NULL), ATTN_E_SIZE,
            "positions is 4 but entry 0 grows to 5");
    end();
}
#undef CALL

#define CALL attn_mha_cross_step(&m, out, x, B, 1, &c, &a)
static void wrong_cross_step(void)
{
    begin();
    REFUSED(attn_mha_cross_step(&m, out, x, B, 1, NULL, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSED(attn_mha_cross_step(&m, out, x, B, 1, &empty, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSED(attn_mha_cross_step(&m, out, x, B, 1, &other, NULL), ATTN_E_SIZE, "head_dim is 4 but 3");
    REFUSED(attn_mha_cross_step(&m, out, x, 3, 1, &c, NULL), ATTN_E_SIZE, "entry 2 reads entry 2");
    REFUSED(attn_mha_cross_step(&turning, out, x, B, 1, &c, NULL), ATTN_E_CONFLICT, "rope_table");
    REFUSED((a.attn.mask = x, a.attn.mask_shape[0] = 5, attn_mha_cross_step(&m, out, x, B, 1, &small, &a)),
            ATTN_E_SHAPE, "mask_shape[0] is 5"); /* a mask without any keys */
    REFUSES(a.attn.k_map = over, ATTN_E_MAP, "entry 1 reads entry 4");
    REFUSES(a.attn.k_map = under, ATTN_E_MAP, "entry 1 reads entry -1");
    REFUSES(a.attn.k_batch = B + 1, ATTN_E_SIZE, "k_batch");
    REFUSES(a.attn.k_lengths = over, ATTN_E_LENGTHS, "k_lengths");
    REFUSES(a.attn.k_starts = ones, ATTN_E_CONFLICT, "k_starts");
    REFUSED((a.rope_pos = places + 2, attn_mha_cross_step(&turning, out, x, B, 2, &c, &a)), ATTN_E_SIZE,
            "positions is 4 but rope_pos[2] is 7");
    REFUSED(attn_mha_cross_step(&factored, out, x, B, 1, &c, NULL), ATTN_E_CONFLICT, "the layer has q_factors");
    end();
}
#undef CALL

#define CALL attn_mha_self_look(&m, out, x, B, 1, &c, &a)
static void wrong_self_look(void)
{
    begin();
    REFUSED((a.rope_pos = places + 1, attn_mha_self_look(&turning, out, x, B, 2, &c, &a)), ATTN_E_SIZE,
            "positions is 4 but rope_pos[3] is 7");
    REFUSED(attn_mha_self_look(&m, out, x, B, 1, NULL, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSED(attn_mha_self_look(&m, out, x, B, 1, &empty, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSED(attn_mha_self_look(&zero, out, x, B, 1, &c, NULL), ATTN_E_NULL, "m is not a layer");
    REFUSED(attn_mha_self_look(&m, out, x, B, -1, &c, NULL), ATTN_E_SIZE, "n is -1");
    REFUSED(attn_mha_self_look(&m, out, x, 1, 1, &c, NULL), ATTN_E_SIZE, "batch is 1 but the cache has 2");
    REFUSED((a.attn.q_lengths = under, attn_mha_self_look(&m, out, x, B, 0, &other, &a)), ATTN_E_SIZE,
            "head_dim is 4 but 3 in the cache");
    REFUSED(attn_mha_self_look(&m, out, x, B, 4, &c, NULL), ATTN_E_LENGTHS, "4 rows look at entry 0, which has 3 keys");
    REFUSED((a.attn.q_cum = cum, attn_mha_self_look(&m, out, x, B, 3, &small, &a)), ATTN_E_LENGTHS,
            "1 rows look at entry 0, which has 0 keys");
    REFUSED((a.attn.q_cum = fall, attn_mha_self_look(&m, out, x, B, N, &c, &a)), ATTN_E_LENGTHS, "q_cum");
    REFUSES(a.attn.q_lengths = under, ATTN_E_LENGTHS, "q_lengths");
    REFUSED((a.attn.q_lengths = over, attn_mha_self_look(&turning, out, x, B, 3, &c, &a)), ATTN_E_LENGTHS, "");
    REFUSED(attn_mha_self_look(&m, NULL, x, B, 1, &c, NULL), ATTN_E_NULL, "out is NULL");
    REFUSES(a.attn.causal = ATTN_CAUSAL_TOP_LEFT, ATTN_E_CONFLICT,
            "causal");
    REFUSES(a.attn.k_lengths = ones, ATTN_E_CONFLICT, "k_lengths");
    REFUSES(a.attn.k_starts = ones, ATTN_E_CONFLICT, "k_starts");
    REFUSES(a.attn.k_map = map, ATTN_E_CONFLICT, "k_map");
    REFUSES(a.memory_v = x, ATTN_E_CONFLICT, "memory_v");
    REFUSES(a.attn.kv = &other, ATTN_E_CONFLICT, "kv");
    REFUSES((a.attn.work = work, a.attn.work_size = sizeof work),
            ATTN_E_WORK, "work_size is 16 but attn_mha_workspace asks for ");
    end();
}
#undef CALL

#define CALL attn_mha_cross_fill(&m, &c, x, B, N, NULL, &a)
static void wrong_cross_fill(void)
{
    begin();
    REFUSED(attn_mha_cross_fill(&q_only, &c, x, B, N, NULL, NULL), ATTN_E_CONFLICT, "the layer has q_only");
    REFUSED(attn_mha_cross_fill(&m, NULL, x, B, N, NULL, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSED(attn_mha_cross_fill(&m, &empty, x, B, N, NULL, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSED(attn_mha_cross_fill(&m, &c, NULL, B, N, NULL, NULL), ATTN_E_NULL, "memory is NULL");
    REFUSED(attn_mha_cross_fill(&m, &c, x, 1, N, NULL, NULL), ATTN_E_SIZE, "batch of the cache is 2");
    REFUSED(attn_mha_cross_fill(&m, &other, x, B, N, NULL, NULL), ATTN_E_SIZE, "head_dim of the cache is 3");
    REFUSED(attn_mha_cross_fill(&m, &c, x, B, -1, NULL, NULL), ATTN_E_SIZE, "n_k is -1");
    REFUSED(attn_mha_cross_fill(&m, &small, x, B, N, NULL, NULL), ATTN_E_FULL,
            "entry 0 has 3 keys but the cache holds 2");
    REFUSED(attn_mha_cross_fill(&m, &small, x, B, N, three, NULL), ATTN_E_FULL,
            "entry 1 has 3 keys but the cache holds 2");
    REFUSED(attn_mha_cross_fill(&m, &c, x, B, N, behind(ones, 1), NULL), ATTN_E_ALIGN,
            "source_lengths is not aligned: its address is 1 behind");
    REFUSED(attn_mha_cross_fill(&m, &c, behind(x, 1), B, N, NULL, NULL), ATTN_E_ALIGN, "memory is not aligned");
    REFUSED(attn_mha_cross_fill(&m, &grouped, x, B, 1, NULL, NULL), ATTN_E_SIZE, "kv_heads of the cache is 1");
    REFUSED(attn_mha_cross_fill(&m, &narrow, x, B, 1, NULL, NULL), ATTN_E_SIZE, "v_head_dim of the cache is 3");
    REFUSED(attn_mha_cross_fill(&m, &c, x, B, N, over, NULL), ATTN_E_LENGTHS, "source_lengths[1] is 4");
    REFUSED(attn_mha_cross_fill(&m, &c, x, B, N, under, NULL), ATTN_E_LENGTHS, "source_lengths[1] is -1");
    REFUSED(attn_mha_cross_fill(&turning, &c, x, B, N, NULL, NULL), ATTN_E_CONFLICT, "rope_table");
    REFUSED(attn_mha_cross_fill(&wide, &c, x, B, 1, NULL, NULL), ATTN_E_NULL, "memory_v is NULL");
    REFUSES((a.attn.work = work, a.attn.work_size = sizeof work), ATTN_E_WORK,
          "work_size is 16 but attn_mha_workspace asks for ");
    end();
}
#undef CALL

extern const test_case suite_mha_calls[];
SUITE(mha_calls) = {
    {"self", wrong_self, "an error of attn_mha_self noticed after something was written or appended"},
    {"cross", wrong_cross, "an error of attn_mha_cross noticed after something was written or appended"},
    {"self step", wrong_self_step, "an error of attn_mha_self_step noticed after something was written or appended"},
    {"cross step", wrong_cross_step, "an error of attn_mha_cross_step noticed after something was written or appended"},
    {"self look", wrong_self_look, "an error of attn_mha_self_look noticed after something was written or appended"},
    {"cross fill", wrong_cross_fill, "an error of attn_mha_cross_fill noticed after something was written or appended"},
    {0}};
