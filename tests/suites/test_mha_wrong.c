/* test_mha_wrong.c: layers that cannot be, and calls whose tensors overlap or are too large. Nothing is written. */
#include "layer.h"

/* ---- layers that cannot be ---------------------------------------------------------------------------------- */
/* For refusal_around: memory that is no layer, and after an error of attn_mha_init still is not. */
typedef struct trial { attn_mha *m; const attn_mha_args *a; } trial;

static void spoil_layer(void *it) { memset(((const trial *)it)->m, 0x55, sizeof(attn_mha)); }

static void no_layer(void *it)
{
    const trial *const t = (const trial *)it;
    const attn_status status = refusal_status();
    float x[64] = {0};
    char reason[256];
    strcpy(reason, strchr(refusal_text(), ':'));
    CHECKF(!t->m->o.w && !t->m->own && attn_mha_self(t->m, x, x, 1, 1, NULL) == ATTN_E_NULL, "usable after an error");
    if (status == ATTN_E_SIZE || status == ATTN_E_HEADS || status == ATTN_E_OVERFLOW)
        REFUSED_SIZE(attn_mha_size(t->a), status, reason);
    attn_mha_free(t->m);
}

static attn_mha_args layer_of(const float *w)
{
    attn_mha_args a = {.d_model = 8, .heads = 2};
    a.w_q = a.w_k = a.w_v = a.w_o = w;
    return a;
}

#define CALL attn_mha_init(&m, &a)

/* sizes that are impossible, do not fit each other or are too large */
static void layer_sizes(void)
{
    float w[64] = {0};
    attn_mha_args good = layer_of(w), a;
    attn_mha m;
    trial it = {&m, &a};
    refusal_around(spoil_layer, no_layer, &it);
    REFUSES(a.d_model = 9, ATTN_E_HEADS, "d_model is 9 but heads is 2");
    REFUSES(a.d_model = 0, ATTN_E_SIZE, "d_model");
    REFUSES(a.heads = 0, ATTN_E_SIZE, "heads");
    REFUSES(a.heads = 4; a.kv_heads = 3, ATTN_E_HEADS, "kv_heads is 3");
    REFUSES(a.kv_heads = -1, ATTN_E_SIZE, "kv_heads");
    REFUSES(a.head_dim = -1, ATTN_E_SIZE, "head_dim");
    REFUSES(a.d_key = -1, ATTN_E_SIZE, "d_key");
    REFUSES(a.d_value = -1, ATTN_E_SIZE, "d_value");
    REFUSES(a.head_dim = 3; a.rope_table = w; a.positions = 4, ATTN_E_SIZE, "head_dim is 3");
    REFUSES(a.rope_table = w, ATTN_E_SIZE, "rope_table is set but positions is 0");
    REFUSES(a.rope_table = w; a.positions = 4; a.rotary_dim = 6, ATTN_E_SIZE, "rotary_dim is 6 but head_dim is 4");
    REFUSES(a.rope_table = w; a.positions = 4; a.rotary_dim = 3, ATTN_E_SIZE, "rotary_dim is 3");
    REFUSES(a.rotary_dim = -1, ATTN_E_SIZE, "rotary_dim is -1");
    REFUSES(a.v_head_dim = -1, ATTN_E_SIZE, "v_head_dim is -1");
    REFUSES(a.v_head_dim = 1 << 30, ATTN_E_OVERFLOW, "heads 2 times v_head_dim 1073741824 is too large");
    REFUSES(a.q_factors = w, ATTN_E_SIZE, "q_factors is set but positions is 0");
    REFUSES(a.d_model = 1 << 30; a.heads = 1 << 15, ATTN_E_OVERFLOW, "too large for");
    REFUSES(a.heads = 1 << 16; a.head_dim = 1 << 16, ATTN_E_OVERFLOW, "heads 65536 times head_dim 65536");
    /* each of the four fits, the sum does not */
    REFUSES(a.d_model = (1 << (sizeof(size_t) < 8 ? 14 : 30)) - 1; a.heads = 1;
            a.head_dim = 1 << (sizeof(size_t) < 8 ? 14 : 29), ATTN_E_OVERFLOW, "too large for");
    /* inputs that do not fill their last block */
    good.w_storage = ATTN_Q8_0;
    REFUSES(a.v_head_dim = 16, ATTN_E_SIZE, "attn_mha_init: d_model is 8 but blocks of ATTN_Q8_0 have 32 inputs");
    REFUSES(a.w_q = a.w_k = a.w_v = NULL; a.w_in = w, ATTN_E_SIZE, "d_model is 8 but blocks");
    good.d_model = 32;
    REFUSES(a.d_key = 33, ATTN_E_SIZE, "d_key is 33 but blocks");
    REFUSES(a.d_key = 64; a.d_value = 48, ATTN_E_SIZE, "d_value is 48 but blocks");
    REFUSES(a.v_head_dim = 17, ATTN_E_SIZE, "heads * v_head_dim is 34 but blocks");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.d_model = 40, ATTN_E_SIZE, "d_model is 40 but blocks");
}

/* tensors that are missing, given twice, or contradict an option */
static void layer_parts(void)
{
    float w[64] = {0};
    attn_mha_args good = layer_of(w), a;
    attn_mha m;
    trial it = {&m, &a};
    refusal_around(spoil_layer, no_layer, &it);
    REFUSES(a.w_q = NULL, ATTN_E_NULL, "w_q");
    REFUSES(a.w_k = NULL, ATTN_E_NULL, "w_k");
    REFUSES(a.w_v = NULL, ATTN_E_NULL, "w_v");
    REFUSES(a.w_o = NULL, ATTN_E_NULL, "w_o");
    REFUSES(a.w_in = w, ATTN_E_CONFLICT, "w_in and w_q");
    REFUSES(a.w_in = w; a.w_q = NULL, ATTN_E_CONFLICT, "w_in and w_k");
    REFUSES(a.w_in = w; a.w_q = a.w_k = NULL, ATTN_E_CONFLICT, "w_in and w_v");
    REFUSES(a.b_in = w; a.b_q = w, ATTN_E_CONFLICT, "b_in and b_q");
    REFUSES(a.b_in = w; a.b_k = w, ATTN_E_CONFLICT, "b_in and b_k");
    REFUSES(a.b_in = w; a.b_v = w, ATTN_E_CONFLICT, "b_in and b_v");
    REFUSES(a.w_in = w; a.w_q = a.w_k = a.w_v = NULL; a.d_key = 4, ATTN_E_CONFLICT, "d_key is 4");
    REFUSES(a.w_in = w; a.w_q = a.w_k = a.w_v = NULL; a.d_key = 8; a.d_value = 4, ATTN_E_CONFLICT, "d_value is 4");
    REFUSES(a.rope_table = w; a.positions = 4;
            a.d_key = 6, ATTN_E_CONFLICT, "rope_table needs one source, but d_model is 8, d_key 6");
    REFUSES(a.rope_table = w; a.positions = 4; a.d_value = 6, ATTN_E_CONFLICT, "d_value 6");
    REFUSES(a.q_norm_b = w, ATTN_E_CONFLICT, "q_norm_b is set, but q_norm is not");
    REFUSES(a.k_norm_b = w; a.q_norm = w, ATTN_E_CONFLICT, "k_norm_b is set, but k_norm is not");
    REFUSES(a.q_only = 2, ATTN_E_OPTION, "q_only is 2");
    REFUSES(a.b_gate = w, ATTN_E_CONFLICT, "b_gate is set, but w_gate is not");
    REFUSES(a.q_factors = w; a.positions = 4; a.d_key = 6, ATTN_E_CONFLICT, "q_factors needs one source");
    REFUSES(a.q_only = 1, ATTN_E_CONFLICT, "q_only and w_k are both set");
    REFUSES(a.q_only = 1; a.w_k = NULL, ATTN_E_CONFLICT, "q_only and w_v are both set");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = a.w_q = NULL, ATTN_E_NULL, "w_q is NULL, and so is packed");
    REFUSES(a.w_q = a.w_k = a.w_v = NULL, ATTN_E_NULL, "w_q is NULL, and so are w_in and packed");
    REFUSES(a.w_in = w; a.w_q = a.w_k = a.w_v = a.w_o = NULL, ATTN_E_NULL, "w_o is NULL");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.w_o = NULL, ATTN_E_NULL, "w_o is NULL");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = a.w_q = NULL; a.w_in = w, ATTN_E_CONFLICT, "q_only and w_in");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.b_in = w, ATTN_E_CONFLICT, "q_only and b_in");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.b_k = w, ATTN_E_CONFLICT, "q_only and b_k");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.b_v = w, ATTN_E_CONFLICT, "q_only and b_v");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.k_norm = w, ATTN_E_CONFLICT, "q_only and k_norm");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.v_norm = 1, ATTN_E_CONFLICT, "q_only and v_norm");
    refusal_forget();
    REFUSED(attn_mha_init(NULL, &good), ATTN_E_NULL, "attn_mha_init: the attn_mha is NULL");
    REFUSED(attn_mha_init(&m, NULL), ATTN_E_NULL, "attn_mha_init: the attn_mha_args are NULL");
    REFUSED_SIZE(attn_mha_size(NULL), ATTN_E_NULL, "attn_mha_size: the attn_mha_args are NULL");
    attn_mha_free(NULL);
}

static void layer_options(void)
{
    float w[64] = {0};
    attn_mha_args good = layer_of(w), a;
    attn_mha m;
    trial it = {&m, &a};
    refusal_around(spoil_layer, no_layer, &it);
    REFUSES(a.v_head_dim = 3; a.gate_rows = 8, ATTN_E_OPTION, "gate_rows is 8 but must be 2 or 6");
    REFUSES(a.rope_interleaved = 2, ATTN_E_OPTION, "rope_interleaved is 2");
    REFUSES(a.norm_after_rope = -1, ATTN_E_OPTION, "norm_after_rope is -1");
    REFUSES(a.norm_eps = -1.0f, ATTN_E_OPTION, "norm_eps is -1.00");
    REFUSES(a.norm_eps = NAN, ATTN_E_OPTION, "norm_eps is nan");
    REFUSES(a.storage = ATTN_Q8_0, ATTN_E_OPTION, "storage is 4 but its values are 0..3");
    REFUSES(a.w_storage = ATTN_Q8, ATTN_E_OPTION, "w_storage is 3 but its values are 0, 1, 2 and 4");
    REFUSES(a.w_storage = (attn_storage)-1, ATTN_E_OPTION, "w_storage is -1");
    REFUSES(a.w_storage = (attn_storage)5, ATTN_E_OPTION, "w_storage is 5");
    REFUSES(a.norm_row = 3, ATTN_E_OPTION, "norm_row is 3");
    REFUSES(a.qk_norm = (attn_norm_kind)2, ATTN_E_OPTION, "qk_norm is 2");
    REFUSES(a.v_norm = -1, ATTN_E_OPTION, "v_norm is -1");
    REFUSES(a.gate_rows = 4, ATTN_E_OPTION, "gate_rows is 4 but must be 2 or 8");
    REFUSES(a.gate_rows = -2, ATTN_E_OPTION, "gate_rows is -2 but must be 2 or 8");
}

/* addresses that are not aligned, and memory that is too small */
static void layer_addresses(void)
{
    float w[64] = {0};
    attn_mha_args good = layer_of(w), a;
    attn_mha m;
    trial it = {&m, &a};
    refusal_around(spoil_layer, no_layer, &it);
    REFUSES(a.w_k = behind(w, 1); a.w_storage = ATTN_BF16, ATTN_E_ALIGN, "w_k is not aligned: its address is 1 behind");
    REFUSES(a.q_norm = w; a.q_norm_b = behind(w, 2), ATTN_E_ALIGN, "q_norm_b is not aligned");
    REFUSES(a.k_norm = w; a.k_norm_b = behind(w, 1), ATTN_E_ALIGN, "k_norm_b is not aligned");
    REFUSES(a.w_gate = behind(w, 1), ATTN_E_ALIGN, "w_gate is not aligned");
    REFUSES(a.w_gate = w; a.b_gate = behind(w, 1), ATTN_E_ALIGN, "b_gate is not aligned");
    REFUSES(a.q_factors = behind(w, 1); a.positions = 4, ATTN_E_ALIGN, "q_factors is not aligned");
    REFUSES(a.w_q = behind(w, 1), ATTN_E_ALIGN, "w_q is not aligned: its address is 1 behind");
    REFUSES(a.w_k = behind(w, 2), ATTN_E_ALIGN, "w_k is not aligned: its address is 2 behind");
    REFUSES(a.w_v = behind(w, 3), ATTN_E_ALIGN, "w_v is not aligned: its address is 3 behind");
    REFUSES(a.w_o = behind(w, 1), ATTN_E_ALIGN, "w_o is not aligned");
    REFUSES(a.w_q = a.w_k = a.w_v = NULL; a.w_in = behind(w, 1), ATTN_E_ALIGN, "w_in is not aligned");
    REFUSES(a.b_in = behind(w, 1), ATTN_E_ALIGN, "b_in is not aligned");
    REFUSES(a.b_q = behind(w, 1), ATTN_E_ALIGN, "b_q is not aligned");
    REFUSES(a.b_k = behind(w, 1), ATTN_E_ALIGN, "b_k is not aligned");
    REFUSES(a.b_v = behind(w, 1), ATTN_E_ALIGN, "b_v is not aligned");
    REFUSES(a.b_o = behind(w, 1), ATTN_E_ALIGN, "b_o is not aligned");
    REFUSES(a.q_norm = behind(w, 1), ATTN_E_ALIGN, "q_norm is not aligned");
    REFUSES(a.k_norm = behind(w, 1), ATTN_E_ALIGN, "k_norm is not aligned");
    REFUSES(a.rope_table = behind(w, 1); a.positions = 4, ATTN_E_ALIGN, "rope_table is not aligned");
    REFUSES(a.mem = w; a.mem_size = sizeof w, ATTN_E_WORK, "mem_size is 256 but attn_mha_size asks for ");
}

/* Packed memory of another layer, each by one change; and what may not be given beside it. */
static void packed_layers(void)
{
    enum { HEADER = 16, LAYOUT = 2, LAYER, STORAGE, D_MODEL, GATE = D_MODEL + 8, Q_NORM, K_NORM, Q_NORM_B, K_NORM_B };
    static const struct { int word, value; attn_status status; const char *words; } headers[] = {
        {0, 0, ATTN_E_BYTES, "packed does not begin with the header of a layer"},
        {LAYOUT, 9, ATTN_E_BYTES, "packed has the layout 9 but 2 is known"},
        {LAYER, 0, ATTN_E_BYTES, "packed does not hold a layer"},
        {STORAGE, 2, ATTN_E_SIZE, "storage is 2 in packed but 1 here"},
        {D_MODEL, 4, ATTN_E_SIZE, "d_model is 4 in packed but 8 here"},
        {D_MODEL + 1, 4, ATTN_E_SIZE, "heads is 4 in packed but 2 here"},
        {D_MODEL + 2, 2, ATTN_E_SIZE, "kv_heads is 2 in packed but 1 here"},
        {D_MODEL + 3, 8, ATTN_E_SIZE, "head_dim is 8 in packed but 4 here"},
        {D_MODEL + 4, 3, ATTN_E_SIZE, "v_head_dim is 3 in packed but 4 here"},
        {D_MODEL + 5, 9, ATTN_E_SIZE, "d_key is 9 in packed but 8 here"},
        {D_MODEL + 6, 9, ATTN_E_SIZE, "d_value is 9 in packed but 8 here"},
        {D_MODEL + 7, 1, ATTN_E_SIZE, "q_only is 1 in packed but 0 here"},
        {GATE, 2, ATTN_E_SIZE, "gate_rows is 2 in packed but 8 here"},
        {Q_NORM, 8, ATTN_E_SIZE, "the width of q_norm is 8 in packed but 4 here"},
        {K_NORM, 8, ATTN_E_SIZE, "the width of k_norm is 8 in packed but 4 here"},
        {Q_NORM_B, 8, ATTN_E_SIZE, "the width of q_norm_b is 8 in packed but 4 here"},
        {K_NORM_B, 2, ATTN_E_SIZE, "the width of k_norm_b is 2 in packed but 4 here"},
        {GATE, 0, ATTN_OK, ""}, {K_NORM_B, 0, ATTN_OK, ""}};        /* less memory, and other parts: harmless */
    rng r = rng_make(test_seed + 30);
    float *w = normal(&r, 64, 1.0), out[16];
    attn_mha_args good = {.d_model = 8, .heads = 2, .kv_heads = 1, .storage = ATTN_F16}, a;
    attn_mha m;
    trial it = {&m, &a};
    good.w_q = good.w_k = good.w_v = good.w_o = good.w_gate = w;
    good.q_norm = good.k_norm = good.q_norm_b = good.k_norm_b = w;
    good.qk_norm = ATTN_NORM_LAYER;
    const size_t size = attn_mha_size(&good);
    unsigned char *mem = guard_alloc(size);
    int *word = (int *)(void *)mem, kept;
    good.mem = mem;
    good.mem_size = size;
    CHECK(attn_mha_init(&m, &good) == ATTN_OK);
    good.w_q = good.w_k = good.w_v = good.w_o = good.w_gate = NULL;
    good.q_norm = good.k_norm = good.q_norm_b = good.k_norm_b = NULL;
    good.packed = mem;
    good.packed_size = size;
    CHECKF(attn_mha_init(&m, &good) == ATTN_OK && attn_mha_size(&good) == size, "%s", refusal_text());
    CHECK(attn_mha_self(&m, out, w, 1, 2, NULL) == ATTN_OK && m.gate.n_out == 8 && m.q_norm && m.k_norm);
    CHECK(m.q_norm_b == m.k_norm + 16 && m.k_norm_b == m.q_norm_b + 16);       /* 64 bytes each */
    for (size_t cut = 0; cut <= 64; cut++) {      /* the last 64 bytes are room for alignment */
        a = good;
        a.packed_size = size - cut;
        CHECKF(attn_mha_init(&m, &a) == ATTN_OK, "%d bytes cut off: %s", (int)cut, refusal_text());
    }
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        const attn_status status = headers[i].status;
        kept = word[headers[i].word];
        word[headers[i].word] = headers[i].value;
        if (status == ATTN_OK) {
            CHECK(attn_mha_init(&m, &good) == ATTN_OK && attn_mha_size(&good) < size);
            CHECK(attn_mha_self(&m, out, w, 1, 2, NULL) == ATTN_OK);
        } else {
            REFUSED(attn_mha_init(&m, &good), status, headers[i].words);
            REFUSED_SIZE(attn_mha_size(&good), status, headers[i].words);
        }
        word[headers[i].word] = kept;
    }
    /* parts that no layer has together, as an altered header may claim */
    for (int norm = Q_NORM; norm <= K_NORM; norm++) {
        word[norm] = 0;
        REFUSED(attn_mha_init(&m, &good), ATTN_E_BYTES, "packed is damaged");
        word[norm] = 4;
    }
    a = good;
    a.q_only = word[D_MODEL + 7] = 1;
    REFUSED(attn_mha_init(&m, &a), ATTN_E_BYTES, "packed is damaged");
    word[K_NORM] = word[K_NORM_B] = 0;                  /* a layer of queries alone, without norms of keys: valid */
    CHECKF(attn_mha_init(&m, &a) == ATTN_OK, "%s", refusal_text());
    word[K_NORM] = word[K_NORM_B] = 4;
    word[D_MODEL + 7] = 0;
    refusal_around(spoil_layer, no_layer, &it);
    REFUSES(a.w_q = w, ATTN_E_CONFLICT, "packed and w_q are both set");
    REFUSES(a.w_k = w, ATTN_E_CONFLICT, "packed and w_k are both set");
    REFUSES(a.w_v = w, ATTN_E_CONFLICT, "packed and w_v are both set");
    REFUSES(a.w_o = w, ATTN_E_CONFLICT, "packed and w_o are both set");
    REFUSES(a.w_in = w, ATTN_E_CONFLICT, "packed and w_in are both set");
    REFUSES(a.w_gate = w, ATTN_E_CONFLICT, "packed and w_gate are both set");
    REFUSES(a.q_norm = w, ATTN_E_CONFLICT, "packed and q_norm are both set");
    REFUSES(a.k_norm = w, ATTN_E_CONFLICT, "packed and k_norm are both set");
    REFUSES(a.q_norm_b = w, ATTN_E_CONFLICT, "packed and q_norm_b are both set");
    REFUSES(a.k_norm_b = w, ATTN_E_CONFLICT, "packed and k_norm_b are both set");
    REFUSES(a.b_q = w, ATTN_E_CONFLICT, "packed and b_q are both set");
    REFUSES(a.b_k = w, ATTN_E_CONFLICT, "packed and b_k are both set");
    REFUSES(a.b_v = w, ATTN_E_CONFLICT, "packed and b_v are both set");
    REFUSES(a.b_o = w, ATTN_E_CONFLICT, "packed and b_o are both set");
    REFUSES(a.b_in = w, ATTN_E_CONFLICT, "packed and b_in are both set");
    REFUSES(a.b_gate = w, ATTN_E_CONFLICT, "packed and b_gate are both set");
    REFUSES(a.packed = mem + 32, ATTN_E_ALIGN, "packed is not aligned: its address is 32 behind");
    REFUSES(a.packed_size = 60, ATTN_E_BYTES, "packed_size is 60: packed has no header");
    REFUSES(a.packed_size = size - 65, ATTN_E_BYTES, "packed_size is ");
    REFUSES(a.q_only = 1, ATTN_E_SIZE, "q_only is 0 in packed but 1 here");
    REFUSES(a.v_head_dim = 3, ATTN_E_SIZE, "v_head_dim is 4 in packed but 3 here");
    REFUSES(a.gate_rows = 2, ATTN_E_SIZE, "gate_rows is 8 in packed but 2 here");
    REFUSES(a.norm_row = 1, ATTN_E_SIZE, "the width of q_norm is 4 in packed but 8 here");
    guard_free(mem);
    free(w);
}

#undef CALL

/* ---- calls that exceed the address space ---------------------------------------------------------------------- */
/* Calls that exceed the address space, and layers larger than memory (their sizes are set in a small one, whose weights
   are never read): OVERFLOW, SIZE_MAX, and nothing written. On a 32-bit machine they are also too large. */
enum { MOST = 2147483647 - 1023, ROWS = MOST / 3 };              /* a width, and rows of all entries, at most */

typedef struct vast_world { float x[16], out[16], weights[1], w[16 * 16]; attn_mha m; attn_mha_opts o; } vast_world;

static void vast_make(vast_world *v)
{
    rng r = rng_make(test_seed + 19);
    attn_mha_args a = {.d_model = 4, .heads = 2};
    memset(v, 0, sizeof *v);
    memset(v->out, 0x77, sizeof v->out);
    rng_fill(&r, v->w, 16 * 16);
    a.w_q = a.w_k = a.w_v = a.w_o = v->w;
    CHECK(attn_mha_init(&v->m, &a) == ATTN_OK);
    refusal_keeps(v->out, sizeof v->out);
}

static void vast_workspace(void)
{
    vast_world v;
    attn_mha vast;
    vast_make(&v);
    memset(&v.o, 0, sizeof v.o);
    {   /* rows times a width: in the workspace */
        for (int i = 0; i < 5; i++) {
            vast = v.m;
            *(i == 0 ? &vast.q.n_out : i == 1 ? &vast.k.n_out : i == 2 ? &vast.v.n_out : i == 3 ? &vast.gate.n_out
              : &vast.o.n_in) = MOST;
            CHECKF(attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, ROWS, ROWS, &v.o) == (size_t)-1, "width %d", i);
            REFUSED(attn_mha_self(&vast, v.out, v.x, 1, ROWS, &v.o), ATTN_E_OVERFLOW, "");
        }
    }
    vast = v.m;                       /* parts that fit, a sum that does not; only the lengths make it too large */
    vast.q.n_out = vast.o.n_in = 1 << 30;
    CHECK(attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, 1 << 29, 1, &v.o) == (size_t)-1);
    if (sizeof(size_t) == 8) {
        vast.o.n_in = (1 << 30) - 1;
        vast.k.n_out = 1 << 28;
        vast.v.n_out = (1 << 28) - 16;    /* 2^62 - 64 bytes until then */
        CHECK(attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, 1 << 29, 1, &v.o) == (size_t)-1);
    }
    v.o.attn.weights = v.weights;         /* the means need room for all heads */
    v.o.weights_mean = 1;
    vast = v.m;
    vast.shape.heads = vast.shape.kv_heads = 4;
    vast.shape.head_dim = vast.shape.v_head_dim = 1;
    CHECK(attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, ROWS, ROWS, &v.o) == (size_t)-1);
    REFUSED(attn_mha_cross(&vast, v.out, v.x, 1, ROWS, v.x, ROWS, &v.o), ATTN_E_OVERFLOW, "");
    attn_mha_free(&v.m);
}

static void vast_tensors(void)
{
    vast_world v;
    attn_mha vast;
    vast_make(&v);
    /* tensors: x and out, memory, values. The size of the workspace is trusted; the workspace is not accessed */
    memset(&v.o, 0, sizeof v.o);
    v.o.attn.work = v.w;
    v.o.attn.work_size = (size_t)-1;
    vast = v.m;
    vast.shape.d_model = MOST;
    REFUSED(attn_mha_cross(&vast, v.out, v.x, 1, ROWS, v.x, 1, &v.o), ATTN_E_OVERFLOW, "");
    vast = v.m;
    vast.shape.d_key = vast.shape.d_value = MOST;
    REFUSED(attn_mha_cross(&vast, v.out, v.x, 1, 1, v.x + 4, ROWS, &v.o), ATTN_E_OVERFLOW, "");
    vast.shape.d_key = 4;
    v.o.memory_v = v.x + 8;
    REFUSED(attn_mha_cross(&vast, v.out, v.x, 1, 1, v.x + 4, ROWS, &v.o), ATTN_E_OVERFLOW, "");
    /* tasks of three tensors */
    REFUSED(attn_mha_cross(&v.m, v.out, v.x, 1, 1, v.x, ROWS + 1, &v.o), ATTN_E_OVERFLOW, "");
    v.o.memory_v = NULL;
    REFUSED(attn_mha_self(&v.m, v.out, v.x, 1, ROWS + 1, &v.o), ATTN_E_OVERFLOW, "");
    attn_mha_free(&v.m);
}

static void vast_attention(void)
{
    rng r = rng_make(test_seed + 20);
    vast_world v;
    vast_make(&v);
    /* the attention inside: more blocks than can be counted, more threads than fit */
    memset(&v.o, 0, sizeof v.o);
    {
        attn_mha many;
        float *column = normal(&r, 4096, 1.0);
        attn_mha_args tall = {0};
        tall.d_model = 1;
        tall.heads = 4096;
        tall.head_dim = 1;
        tall.w_q = tall.w_k = tall.w_v = tall.w_o = column;
        CHECK(attn_mha_init(&many, &tall) == ATTN_OK);
        CHECK(attn_mha_workspace(&many, ATTN_MHA_CROSS, 1 << 18, 1, 1, &v.o) == (size_t)-1);
        REFUSED(attn_mha_cross(&many, v.out, v.x, 1 << 18, 1, v.x, 1, &v.o), ATTN_E_OVERFLOW, "");
        attn_mha_free(&many);
        free(column);
    }
    attn_mha_free(&v.m);
}

static void vast_threads(void)
{
    vast_world v;
    attn_mha vast;
    attn_exec exec = test_exec(2);
    size_t need;
    vast_make(&v);
    if (sizeof(size_t) == 8) {            /* both parts fit, but not their sum: just, and by far */
        vast = v.m;
        vast.shape.heads = vast.shape.kv_heads = 1;
        vast.shape.head_dim = vast.shape.v_head_dim = 1 << 30;
        vast.q.n_out = vast.k.n_out = vast.v.n_out = vast.o.n_in = 1 << 30;
        v.o.attn.exec = &exec;
        exec.width = MOST;
        need = attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, 1, 1, &v.o);
        for (int batch = 2; batch <= 1 << 28; batch *= 2) {
            const size_t more = attn_mha_workspace(&vast, ATTN_MHA_CROSS, batch, 1, 1, &v.o);
            CHECKF(more >= need, "%d entries need %zu, fewer %zu", batch, more, need);
            need = more;
        }
        CHECK(need == (size_t)-1);
        exec.width = 1;
        CHECK(attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, 3 << 27, 1, &v.o) != (size_t)-1);
        attn_args inside = {.batch = 1, .heads = 1, .n_q = 3 << 27, .n_k = 1, .head_dim = 1 << 30, .exec = &exec};
        for (int bit = 29, width = 1; bit-- > 0;) {       /* the most threads that the attention inside takes */
            exec.width = width + (1 << bit);
            if (attn_sdpa_workspace(&inside) != (size_t)-1) width = exec.width;
            exec.width = width;
        }
        CHECK(exec.width > 1 && attn_sdpa_workspace(&inside) != (size_t)-1);
        need = attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, 3 << 27, 1, &v.o);
        if (exec.width < 1 << 29) {
            CHECK(need == (size_t)-1);
            REFUSED(attn_mha_cross(&vast, v.out, v.x, 1, 3 << 27, v.x, 1, &v.o), ATTN_E_OVERFLOW, "");
        } else CHECK(need > attn_sdpa_workspace(&inside));   /* scalar code alone: a few bytes for each thread */
    }
    attn_mha_free(&v.m);
}

/* ---- overlaps ------------------------------------------------------------------------------------------------ */
enum { SB = 2, SN = 3, SDM = 8, SHEADS = 2 };

/* Outputs and inputs of a call. From W_Q on, an input is the copy that a layer has made of a tensor. */
enum { OUT, WEIGHTS, LSE, MASKED_ROWS, WORK, CACHE_WRITTEN, WRITTEN };
static const char *const written[WRITTEN] = {"out", "weights", "lse", "masked_rows", "work", "the memory of the cache"};
enum {
    X, MEMORY, MEMORY_V, SOURCE_LENGTHS, CACHE, MASK, KEEP, BIAS, ALIBI_SLOPES, SINKS, Q_POS_EACH, Q_LENGTHS, K_LENGTHS,
    K_STARTS, REL_BIAS, ROPE_TABLE, K_MAP, Q_CUM, K_CUM, Q_FACTORS, ROPE_POS, WEIGHTS_HEADS, W_Q, B_Q, W_K, B_K, W_V,
    B_V, W_O, B_O, W_GATE, B_GATE, Q_NORM, K_NORM, Q_NORM_B, K_NORM_B, READABLE
};
static const char *const readable[READABLE] = {
    "x", "memory", "memory_v", "source_lengths", "the memory of the cache", "mask", "keep", "bias", "alibi_slopes",
    "sinks", "q_pos_each", "q_lengths", "k_lengths", "k_starts", "rel_bias", "rope_table", "k_map", "q_cum", "k_cum",
    "q_factors", "rope_pos", "weights_heads", "w_q", "b_q", "w_k", "b_k", "w_v", "b_v", "w_o", "b_o", "w_gate",
    "b_gate", "q_norm", "k_norm", "q_norm_b", "k_norm_b"
};

/* All arguments of a call, for overlaps in pairs inside `room`. */
enum { ROOM = 1 << 18, PLACE = ROOM / 2 };
typedef struct stage {
    attn_mha m;
    attn_mha_args layer;
    attn_kv own, source;
    attn_kv_args cache;
    attn_mha_opts o;
    float *out;
    const float *x, *memory;
    const int *source_lengths;
} stage;
static struct {
    union { double align; unsigned char byte[ROOM]; } room;
    unsigned char before[ROOM], work[1 << 16];
    float w[4 * SDM * SDM], x[SB * SN * SDM + 1], table[8 * 4];
    float out[SB * SN * SDM], weights[SB * SHEADS * SN * SN], lse[SB * SHEADS * SN];
    size_t masked;
} tensors;

static attn_status stage_call(stage *s, attn_mha_call call)
{
    switch (call) {
    case ATTN_MHA_SELF: return attn_mha_self(&s->m, s->out, s->x, SB, SN, &s->o);
    case ATTN_MHA_CROSS: return attn_mha_cross(&s->m, s->out, s->x, SB, SN, s->memory, SN, &s->o);
    case ATTN_MHA_SELF_STEP: return attn_mha_self_step(&s->m, s->out, s->x, SB, SN, &s->own, &s->o);
    case ATTN_MHA_CROSS_FILL:
        return attn_mha_cross_fill(&s->m, &s->source, s->memory, SB, SN, s->source_lengths, &s->o);
    case ATTN_MHA_SELF_LOOK: return attn_mha_self_look(&s->m, s->out, s->x, SB, SN, &s->source, &s->o);
    default: return attn_mha_cross_step(&s->m, s->out, s->x, SB, SN, &s->source, &s->o);
    }
}

/* Returns 1 if this call can have this output and this input. */
static int pair_exists(attn_mha_call call, int ragged, int output, int input)
{
    const int self = call == ATTN_MHA_SELF, look = call == ATTN_MHA_SELF_LOOK, fill = call == ATTN_MHA_CROSS_FILL;
    const int own = call == ATTN_MHA_SELF_STEP, cached = look || call == ATTN_MHA_CROSS_STEP;
    if (fill && (output < WORK || input == X || (input >= MASK && input < W_Q))) return 0;
    if (output == CACHE_WRITTEN && !fill && !own) return 0;
    switch (input) {
    case MEMORY: case MEMORY_V: return !self && !own && !cached;
    case SOURCE_LENGTHS: return fill;
    case CACHE: return cached && output != CACHE_WRITTEN;
    case Q_LENGTHS: return !ragged;
    case K_LENGTHS: case K_STARTS: return !own && !cached && !ragged;
    case ROPE_TABLE: case Q_FACTORS: return self || own || look;
    case K_MAP: return call == ATTN_MHA_CROSS_STEP || (call == ATTN_MHA_CROSS && !ragged);
    case Q_CUM: return ragged;
    case K_CUM: return ragged && call == ATTN_MHA_CROSS;
    default: return 1;
    }
}

static void fill_ints(void *to, int n, int first, int step)
{
    for (int i = 0; i < n; i++) ((int *)to)[i] = first + i * step;
}

/* The lists of integers that a call checks before it finds an overlap. */
static void fill_lists(int input, void *to)
{
    if (input == Q_CUM || input == K_CUM) fill_ints(to, SB + 1, 0, SN);
    if (input == SOURCE_LENGTHS || input == Q_LENGTHS || input == K_LENGTHS) fill_ints(to, SB, SN, 0);
    if (input == WEIGHTS_HEADS) fill_ints(to, SHEADS, 0, 1);
}

/* Gives the call or the layer an input at `to`. Returns its bytes, or 0 for a part of the layer. */
static size_t place_input(stage *s, int input, void *to)
{
    attn_args *const t = &s->o.attn;
    switch (input) {
    case X: s->x = to; return SB * SN * SDM * 4;
    case MEMORY: s->memory = to; return SB * SN * SDM * 4;
    case MEMORY_V: s->o.memory_v = to; return SB * SN * SDM * 4;
    case SOURCE_LENGTHS: s->source_lengths = to; return SB * 4;
    case CACHE: s->cache.mem = to; return (s->cache.mem_size = attn_kv_size(&s->cache)) - 63;
    case MASK: t->mask = to; return SN * SN * 4;
    case KEEP: t->keep = to; return SN * SN;
    case BIAS: t->bias = to; return SHEADS * SN * SN * 4;
    case ALIBI_SLOPES: t->alibi_slopes = to; return SHEADS * 4;
    case SINKS: t->sinks = to; return SHEADS * 4;
    case Q_POS_EACH: t->q_pos_each = to; return SB * 4;
    case Q_LENGTHS: t->q_lengths = to; return SB * 4;
    case K_LENGTHS: t->k_lengths = to; return SB * 4;
    case K_STARTS: t->k_starts = to; return SB * 4;
    case REL_BIAS: t->rel_bias = to, t->rel_extent = 3; return SHEADS * 7 * 4;
    case K_MAP: t->k_map = to, t->k_batch = SB; return SB * 4;
    case Q_CUM: t->q_cum = to; return (SB + 1) * 4;
    case K_CUM: t->k_cum = to; return (SB + 1) * 4;
    case ROPE_POS: s->o.rope_pos = to; return SB * SN * 4;
    case WEIGHTS_HEADS:
        t->weights_heads = to, t->n_weights_heads = SHEADS, t->weights = tensors.weights;
        return SHEADS * 4;
    case Q_FACTORS: s->layer.q_factors = to, s->layer.positions = 8; return 8 * 4;
    case ROPE_TABLE:
        memcpy(to, tensors.table, sizeof tensors.table);
        s->layer.rope_table = to, s->layer.positions = 8;
        return sizeof tensors.table;
    case W_GATE: case B_GATE: s->layer.w_gate = tensors.w; return 0;
    case Q_NORM: s->layer.q_norm = tensors.w; return 0;
    case K_NORM: s->layer.k_norm = tensors.w; return 0;
    case Q_NORM_B: s->layer.q_norm = s->layer.q_norm_b = tensors.w; return 0;
    case K_NORM_B: s->layer.k_norm = s->layer.k_norm_b = tensors.w; return 0;
    default: return 0;
    }
}

/* The copy that a layer has made of one of its tensors. */
static void *part_of(const attn_mha *m, int input, size_t *bytes)
{
    const attn_linear *const all[] = {&m->q, &m->k, &m->v, &m->o, &m->gate};
    const float *const norms[] = {m->q_norm, m->k_norm, m->q_norm_b, m->k_norm_b};
    if (input >= Q_NORM) {
        *bytes = SDM / SHEADS * 4;
        return (void *)(uintptr_t)norms[input - Q_NORM];
    }
    const attn_linear *const l = all[(input - W_Q) / 2];
    const int weights = (input - W_Q) % 2 == 0;
    *bytes = weights ? SDM * 16 * 4 : 16 * 4;
    return (void *)(uintptr_t)(weights ? l->w : (const void *)l->b);
}

/* Lays an output over an input: its first byte on the last byte of the input, or its last byte on the first; floats on
   floats. */
static void place_output(stage *s, int output, unsigned char *input, size_t bytes, int end)
{
    const size_t sizes[WRITTEN] = {sizeof tensors.out, sizeof tensors.weights, sizeof tensors.lse,
                                   sizeof tensors.masked, sizeof tensors.work, s->cache.mem_size};
    void *const at = end ? input + (bytes - 1) / 8 * 8 : input - (sizes[output] - 1) / 8 * 8;
    s->o.attn.work = tensors.work;
    s->o.attn.work_size = sizeof tensors.work;
    switch (output) {
    case OUT: s->out = at; break;
    case WEIGHTS: s->o.attn.weights = at; break;
    case LSE: s->o.attn.lse = at; break;
    case MASKED_ROWS: s->o.attn.masked_rows = at; break;
    case WORK: s->o.attn.work = at; break;
    default: s->cache.mem = at;
    }
}

/* One pair, at one end of the input. Returns 1 if the two really overlap and the call was made. */
static int overlap(attn_mha_call call, int ragged, int output, int input, int end)
{
    stage s;
    attn_kv *const c = call == ATTN_MHA_SELF_STEP ? &s.own : &s.source;
    unsigned char *to = tensors.room.byte + PLACE + (64 - (uintptr_t)tensors.room.byte % 64) % 64;
    float *const w = tensors.w;
    size_t bytes;
    attn_status status;
    memset(&s, 0, sizeof s);
    memset(&tensors.room, 0, sizeof tensors.room);
    s.layer.d_model = SDM, s.layer.heads = SHEADS;
    s.layer.w_q = w, s.layer.w_k = w + 64, s.layer.w_v = w + 128, s.layer.w_o = w + 192;
    s.cache.batch = SB, s.cache.kv_heads = SHEADS, s.cache.head_dim = SDM / SHEADS, s.cache.capacity = 8;
    s.out = tensors.out, s.x = tensors.x, s.memory = tensors.x + 1;
    bytes = place_input(&s, input, to);
    if (input >= W_Q) {
        s.layer.mem = to;
        s.layer.mem_size = attn_mha_size(&s.layer);
    }
    fill_lists(input, to);
    CHECK(attn_mha_init(&s.m, &s.layer) == ATTN_OK);
    if (input >= W_Q) to = part_of(&s.m, input, &bytes);
    if (output == CACHE_WRITTEN) s.cache.mem_size = attn_kv_size(&s.cache);
    place_output(&s, output, to, bytes, end);
    CHECK(attn_kv_init(c, &s.cache) == ATTN_OK);
    if (call == ATTN_MHA_SELF_LOOK || call == ATTN_MHA_CROSS_STEP)
        CHECK(attn_kv_append(&s.source, -1, tensors.x, tensors.x, SN, 0) == ATTN_OK);
    if (output == CACHE_WRITTEN) {                                        /* its panels are a part of this memory */
        const unsigned char *const panels = (unsigned char *)c->memory;
        fill_lists(input, to);
        if (end ? panels > to + bytes - 1 : panels + c->bytes <= to) {
            attn_mha_free(&s.m);
            return 0;
        }
    }
    memcpy(tensors.before, tensors.room.byte, ROOM);
    refusal_clear();
    status = stage_call(&s, call);
    CHECKF(status == ATTN_E_OVERLAP, "call %d, %s over %s (%s, %s): status %d, %s", (int)call, written[output],
           readable[input], end ? "at its end" : "at its beginning", ragged ? "ragged" : "padded", status,
           refusal_text());
    CHECKF(!memcmp(tensors.before, tensors.room.byte, ROOM), "call %d, %s over %s: written", (int)call, written[output],
           readable[input]);
    CHECKF(strstr(refusal_text(), written[output]) && strstr(refusal_text(), " overlaps "), "%s", refusal_text());
    attn_mha_free(&s.m);
    attn_kv_free(&s.own);
    attn_kv_free(&s.source);
    return 1;
}

/* Every output over every input, at its first and at its last byte: OVERLAP, and no byte of either changes. Every pair
   that one call can have. */
static void overlaps(void)
{
    rng r = rng_make(test_seed + 26);
    int tried = 0;
    rng_fill(&r, tensors.w, sizeof tensors.w / sizeof(float));
    rng_fill(&r, tensors.x, SB * SN * SDM);
    CHECK(attn_rope_table(tensors.table, 8, 4, NULL, 0.0) == ATTN_OK);
    for (int ragged = 0; ragged < 2; ragged++)
        for (int call = 0; call < 6; call++)
            for (int output = 0; output < WRITTEN; output++)
                for (int input = 0; input < READABLE; input++)
                    for (int end = 0; end < 2 && !test_failed(); end++)
                        if (pair_exists((attn_mha_call)call, ragged, output, input))
                            tried += overlap((attn_mha_call)call, ragged, output, input, end);
    CHECKF(tried > 1000, "only %d pairs", tried);
}

extern const test_case suite_mha_wrong[];
SUITE(mha_wrong) = {
    {"rejected layers: sizes", layer_sizes,
     "an impossible size that is accepted, or rejected without a sentence with the reason"},
    {"rejected layers: tensors", layer_parts,
     "a missing tensor, or one that contradicts another or an option, that is accepted"},
    {"rejected layers: options", layer_options, "an option outside its range that is accepted"},
    {"rejected layers: addresses", layer_addresses, "a tensor that is not aligned; too little memory"},
    {"packed layers", packed_layers,
     "packed memory of another layer, or half of it, accepted; weights given with it ignored"},
    {"overlaps", overlaps, "a call that writes over its inputs: lengths, masks, slopes, the cache, the layer itself"},
    {"huge workspace", vast_workspace, "a workspace of a layer whose size wraps around to a small one"},
    {"huge tensors", vast_tensors, "a tensor of a layer whose size wraps around to a small one"},
    {"huge attention", vast_attention, "more blocks than can be counted"},
    {"huge threads", vast_threads, "a workspace whose parts fit, but not their sum"},
    {0}};
