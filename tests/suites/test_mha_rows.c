/* test_mha_rows.c: which rows and keys a call of a layer reads, and the memory it needs. */
#include "layer.h"

enum { SDM = 8, SHEADS = 2 };

/* Rows after the last existing one are past the end of the memory, in an unreadable page. Existing rows have the bits
   of a call with padding. Some layers have gates, which are computed for each row. */
static void unread_padding(void)
{
    enum { B = 3 };
    rng seeds = rng_make(test_seed + 25);
    for (int i = 0; i < 60 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n = rng_int(&r, 0, 1) ? rng_int(&r, 1, 15) : rng_int(&r, 16, 120), cross = rng_int(&r, 0, 1);
        const int n_k = cross ? rng_int(&r, 1, 20) : n, mapped = cross && rng_int(&r, 0, 1);
        int lengths[B], keys[B], ends[B], starts[B], map[B] = {0, 0, 0};
        float *x, *x_whole, *memory, *m_whole, *got, *want;
        int x_rows, m_rows;
        layer l;
        attn_mha_opts o;
        attn_exec exec = test_exec(3);
        layer_make(&l, &r, (cross ? WITH_NORM : WITH_NORM | WITH_ROPE) | (rng_int(&r, 0, 1) ? WITH_MORE : 0));
        memset(&o, 0, sizeof o);
        for (int b = 0; b < B; b++) {
            lengths[b] = rng_int(&r, 0, b < B - 1 && rng_int(&r, 0, 1) ? n : n - 1);
            ends[b] = cross ? rng_int(&r, 0, n_k - 1) : lengths[b];
            starts[b] = cross && rng_int(&r, 0, 1) ? rng_int(&r, 0, ends[b]) : 0;
            keys[b] = ends[b] - starts[b];
        }
        x_rows = (B - 1) * n + lengths[B - 1];
        m_rows = mapped ? ends[0] > ends[1] ? ends[0] : ends[1] : (B - 1) * n_k + ends[B - 1];
        if (mapped && ends[2] > m_rows) m_rows = ends[2];
        x = guard_floats((size_t)(x_rows * l.a.d_model));
        memory = guard_floats((size_t)(m_rows * l.a.d_key));
        x_whole = normal(&r, (size_t)(B * n * l.a.d_model), 1.0);
        m_whole = normal(&r, (size_t)(B * n_k * l.a.d_key), 1.0);
        memcpy(x, x_whole, (size_t)(x_rows * l.a.d_model) * sizeof(float));
        memcpy(memory, m_whole, (size_t)(m_rows * l.a.d_key) * sizeof(float));
        got = floats((size_t)(B * n * l.a.d_model));
        want = floats((size_t)(B * n * l.a.d_model));
        o.attn.q_lengths = lengths;
        o.attn.k_lengths = keys;
        if (cross) o.attn.k_starts = starts;
        if (mapped) o.attn.k_map = map, o.attn.k_batch = 1 + rng_int(&r, 0, 2);
        if (rng_int(&r, 0, 1)) o.attn.exec = &exec;
        CHECK((cross ? attn_mha_cross(&l.m, want, x_whole, B, n, m_whole, n_k, &o)
                     : attn_mha_self(&l.m, want, x_whole, B, n, &o)) == ATTN_OK);
        CHECKF((cross ? attn_mha_cross(&l.m, got, x, B, n, memory, n_k, &o)
                      : attn_mha_self(&l.m, got, x, B, n, &o)) == ATTN_OK, "%s", refusal_text());
        CHECKF(same_bits(got, want, (size_t)(B * n * l.a.d_model)), "seed %llu: %s", seed, cross ? "cross" : "self");
        if (!cross) {                                          /* a step takes the same rows */
            attn_kv c;
            attn_kv_args s = {.batch = B, .kv_heads = l.a.kv_heads, .head_dim = l.a.head_dim, .capacity = n};
            s.v_head_dim = l.a.v_head_dim;
            CHECK(attn_kv_init(&c, &s) == ATTN_OK);
            o.attn.k_lengths = NULL;
            CHECKF(attn_mha_self_step(&l.m, got, x, B, n, &c, &o) == ATTN_OK, "%s", refusal_text());
            attn_kv_free(&c);
        } else if (!mapped && !o.attn.k_starts[0] && !starts[1] && !starts[2]) {
            attn_kv c;
            attn_kv_args s = {.batch = B, .kv_heads = l.a.kv_heads, .head_dim = l.a.head_dim, .capacity = n_k};
            s.v_head_dim = l.a.v_head_dim;
            CHECK(attn_kv_init(&c, &s) == ATTN_OK);
            CHECKF(attn_mha_cross_fill(&l.m, &c, memory, B, n_k, ends, NULL) == ATTN_OK, "%s", refusal_text());
            o.attn.k_lengths = o.attn.k_starts = NULL;
            CHECK(attn_mha_cross_step(&l.m, got, x, B, n, &c, &o) == ATTN_OK);
            CHECKF(same_bits(got, want, (size_t)(B * n * l.a.d_model)), "seed %llu: filled", seed);
            attn_kv_free(&c);
        }
        guard_free(x); guard_free(memory); free(x_whole); free(m_whole); free(got); free(want);
        layer_free(&l);
    }
}

/* A start, a map or the number of entries alone determines which rows of the memory are keys; entries without a
   reader are past its end, in an unreadable page. Compared with the parts, each entry with separate memory. */
static void unread_memory(void)
{
    enum { B = 3, STARTS, MAP, ENTRIES, SELF };
    rng seeds = rng_make(test_seed + 26);
    for (int i = 0; i < 80 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int kind = STARTS + i % 4, n = rng_int(&r, 1, 20), n_k = kind == SELF ? n : rng_int(&r, 1, 20);
        const int there = kind == SELF || kind == ENTRIES ? B : 2, map[B] = {1, 0, 1};
        const int starts[B] = {rng_int(&r, 0, n_k), rng_int(&r, 0, n_k), kind == STARTS ? n_k : rng_int(&r, 0, n_k)};
        layer l;
        attn_mha_opts o, plain;
        size_t entry, bytes, outs;
        float *x, *memory, *own, *got, *want;
        layer_make(&l, &r, kind == SELF ? WITH_NORM | WITH_ROPE : WITH_NORM);
        memset(&o, 0, sizeof o);
        if (kind == STARTS || kind == SELF) o.attn.k_starts = starts;
        plain = o;
        if (kind == MAP) o.attn.k_map = map;
        if (kind == MAP || kind == ENTRIES) o.attn.k_batch = B + 1;
        entry = (size_t)(n_k * l.a.d_model);
        bytes = entry * sizeof(float);
        outs = (size_t)(B * n * l.a.d_model);
        memory = guard_floats((size_t)there * entry);
        rng_fill(&r, memory, (size_t)there * entry);
        own = normal(&r, B * entry, 1.0);
        for (int b = 0; b < (kind == MAP ? B : there); b++)
            memcpy(own + (size_t)b * entry, memory + (size_t)(kind == MAP ? map[b] : b) * entry, bytes);
        x = kind == SELF ? memory : normal(&r, outs, 1.0);
        got = floats(outs);
        want = floats(outs);
        by_parts(&l, want, x, B, n, own, own, n_k, &plain);
        CHECKF((kind == SELF ? attn_mha_self(&l.m, got, x, B, n, &o)
                             : attn_mha_cross(&l.m, got, x, B, n, memory, n_k, &o)) == ATTN_OK, "%s", refusal_text());
        CHECKF(same_bits(got, want, outs), "seed %llu, kind %d", seed, kind);
        if (x != memory) free(x);
        guard_free(memory); free(own); free(got); free(want);
        layer_free(&l);
    }
}

/* ---- positions of rows ---------------------------------------------------------------------------------------- */
/* rope_pos is an array of the caller whose numbers select rows of a table: all used numbers are checked, nothing is
 * read after it, and lengths are validated before they determine its size. */
static void rope_pos_ends(void)
{
    enum { N = 4, FAR = 1000000, LONG = 500 };
    rng r = rng_make(test_seed + 61);
    attn_mha_args args = {.d_model = SDM, .heads = SHEADS};
    attn_kv_args shape = {.batch = 1, .kv_heads = SHEADS, .head_dim = SDM / SHEADS, .capacity = LONG};
    attn_rope_freqs_args how = {.rotary_dim = SDM / SHEADS};
    float table[N * SDM / SHEADS], norm[SDM / SHEADS], freqs[SDM / SHEADS / 2], out[N * SDM], want[N * SDM];
    float *w = normal(&r, SDM * SDM, 0.3), *x = normal(&r, LONG * SDM, 1.0);
    const int short_ = 2, whole = N, too_long = 150, negative = -1;
    int *pos = guard_alloc(N * sizeof *pos);
    attn_mha turning, normed;
    attn_mha_opts o;
    attn_kv c;
    memset(norm, 0, sizeof norm);
    CHECK(attn_rope_freqs(freqs, NULL, &how) == ATTN_OK);
    CHECK(attn_rope_table(table, N, SDM / SHEADS, freqs, 0.0) == ATTN_OK && attn_kv_init(&c, &shape) == ATTN_OK);
    CHECK(attn_kv_append(&c, -1, x, x, LONG, 0) == ATTN_OK);
    args.w_q = args.w_k = args.w_v = args.w_o = w;
    args.k_norm = norm;
    CHECK(attn_mha_init(&normed, &args) == ATTN_OK);
    args.k_norm = NULL, args.rope_table = table, args.positions = N;
    CHECK(attn_mha_init(&turning, &args) == ATTN_OK);
    memset(&o, 0, sizeof o);
    o.rope_pos = pos;

    /* rows after q_lengths are still keys, and rotated, unless k_lengths excludes them */
    pos[0] = 0, pos[1] = 1, pos[2] = FAR, pos[3] = FAR;
    o.attn.q_lengths = &short_;
    REFUSED(attn_mha_self(&turning, out, x, 1, N, &o), ATTN_E_SIZE, "positions is 4 but rope_pos[2] is 1000000");
    o.attn.k_lengths = &whole;
    REFUSED(attn_mha_self(&turning, out, x, 1, N, &o), ATTN_E_SIZE, "positions is 4 but rope_pos[2] is 1000000");
    o.attn.k_lengths = &short_;
    CHECK(attn_mha_self(&turning, out, x, 1, N, &o) == ATTN_OK);
    pos[2] = pos[3] = -1;
    CHECK(attn_mha_self(&turning, want, x, 1, N, &o) == ATTN_OK && same_bits(out, want, N * SDM));
    pos[2] = pos[3] = FAR;
    o.attn.k_lengths = NULL;
    CHECK(attn_mha_self_look(&turning, out, x, 1, N, &c, &o) == ATTN_OK);
    CHECK(attn_kv_truncate(&c, 0, 0) == ATTN_OK);
    CHECKF(attn_mha_self_step(&turning, out, x, 1, N, &c, &o) == ATTN_OK, "%s", refusal_text());
    CHECK(attn_kv_append(&c, -1, x, x, LONG - 2, 0) == ATTN_OK);

    /* more rows than exist */
    pos[2] = pos[3] = 0;
    o.attn.q_lengths = &negative;
    REFUSED(attn_mha_self_step(&turning, out, x, 1, N, &c, &o), ATTN_E_LENGTHS, "q_lengths[0] is -1");
    o.attn.q_lengths = &too_long;
    REFUSED(attn_mha_self_step(&turning, out, x, 1, N, &c, &o), ATTN_E_LENGTHS, "q_lengths[0] is 150");
    REFUSED(attn_mha_self(&turning, out, x, 1, N, &o), ATTN_E_LENGTHS, "q_lengths[0] is 150 but n is 4");
    REFUSED(attn_mha_self_look(&turning, out, x, 1, N, &c, &o), ATTN_E_LENGTHS, "q_lengths[0] is 150");
    REFUSED(attn_mha_cross_step(&turning, out, x, 1, N, &c, &o), ATTN_E_LENGTHS, "q_lengths[0] is 150");
    o.attn.q_lengths = NULL;

    /* memory that is normed but not rotated: it has more rows than rope_pos has positions */
    CHECK(attn_mha_cross(&normed, out, x, 1, N, x, LONG, &o) == ATTN_OK);
    o.rope_pos = NULL;
    CHECK(attn_mha_cross(&normed, want, x, 1, N, x, LONG, &o) == ATTN_OK && same_bits(out, want, N * SDM));
    attn_mha_free(&turning);
    attn_mha_free(&normed);
    attn_kv_free(&c);
    guard_free(pos);
    free(w), free(x);
}

/* A reader without keys does not widen the keys of others; and the longest entry of a ragged call also determines its
 * workspace. */
static void unread_between(void)
{
    enum { B = 2, N_K = 20, FIRST = 15, LONGEST = 6 };
    rng r = rng_make(test_seed + 62);
    attn_mha_args args = {.d_model = SDM, .heads = SHEADS};
    const int map[B] = {0, 0}, starts[B] = {2, FIRST}, lengths[B] = {0, N_K - FIRST}, cum[B + 1] = {0, 3, 3 + LONGEST};
    float *w = normal(&r, SDM * SDM, 0.3), *x = normal(&r, (3 + LONGEST) * SDM, 1.0);
    float *memory = normal(&r, N_K * SDM, 1.0);
    float out[(3 + LONGEST) * SDM], want[B * SDM];
    attn_mha_opts o;
    attn_mha m;
    size_t need;
    void *work;
    args.w_q = args.w_k = args.w_v = args.w_o = w;
    CHECK(attn_mha_init(&m, &args) == ATTN_OK);
    memset(&o, 0, sizeof o);
    o.attn.k_map = map, o.attn.k_batch = 1, o.attn.k_starts = starts, o.attn.k_lengths = lengths;
    CHECK(attn_mha_cross(&m, want, x, B, 1, memory, N_K, &o) == ATTN_OK);
    need = attn_mha_workspace(&m, ATTN_MHA_CROSS, B, 1, N_K, &o);
    work = guard_alloc(need);
    memset(work, 0x77, need);
    o.attn.work = work, o.attn.work_size = need;
    for (int i = 0; i < FIRST * SDM; i++) memory[i] = NAN;
    CHECK(attn_mha_cross(&m, out, x, B, 1, memory, N_K, &o) == ATTN_OK && same_bits(out, want, B * SDM));
    {   /* no row of them was projected: K and V there would be NaN */
        const size_t skip = (64 - (uintptr_t)work % 64) % 64;
        const float *floats_of = (const float *)(const void *)((const char *)work + skip);
        int run = 0, longest = 0;         /* a row of NaN is longer than any negative integer of the driver */
        for (size_t i = 0; i < need / sizeof(float) - 16; i++) {
            run = floats_of[i] != floats_of[i] ? run + 1 : 0;
            if (run > longest) longest = run;
        }
        CHECKF(longest < 4, "%d numbers of the workspace in sequence are NaN", longest);
    }
    guard_free(work);

    memset(&o, 0, sizeof o);
    o.attn.q_cum = cum;
    need = attn_mha_workspace(&m, ATTN_MHA_SELF, B, 0, 0, &o);
    CHECK(need == attn_mha_workspace(&m, ATTN_MHA_SELF, B, LONGEST, 0, &o));
    work = guard_alloc(need);
    o.attn.work = work, o.attn.work_size = need;
    CHECKF(attn_mha_self(&m, out, x, B, 0, &o) == ATTN_OK, "%s", refusal_text());
    guard_free(work);
    o.attn.q_cum = (const int *)(uintptr_t)1;               /* with a size it is not read */
    CHECK(attn_mha_workspace(&m, ATTN_MHA_SELF, B, LONGEST, 0, &o) == need);
    CHECK(attn_mha_workspace(&m, ATTN_MHA_SELF, B, 0, 0, &o) == (size_t)-1);
    o.attn.q_cum = o.attn.k_cum = cum;
    need = attn_mha_workspace(&m, ATTN_MHA_CROSS, B, LONGEST, LONGEST, &o);
    CHECK(need != (size_t)-1 && attn_mha_workspace(&m, ATTN_MHA_CROSS, B, 0, 0, &o) == need);
    attn_mha_free(&m);
    free(w), free(x), free(memory);
}

/* ---- workspace ----------------------------------------------------------------------------------------------- */
static void workspace_grows(void)
{
    rng r = rng_make(test_seed + 13);
    for (int i = 0; i < 300; i++) {
        layer l;
        attn_mha_opts o;
        attn_exec exec = test_exec(rng_int(&r, 1, 4));
        float weights;
        const attn_mha_call call = (attn_mha_call)rng_int(&r, 0, 5);
        const int self = call == ATTN_MHA_SELF || call == ATTN_MHA_SELF_STEP || call == ATTN_MHA_SELF_LOOK;
        const int b = rng_int(&r, 0, 4), q = rng_int(&r, 0, 100), k = rng_int(&r, 0, 300);
        memset(&o, 0, sizeof o);
        layer_make(&l, &r, (self ? 0 : CROSSING) | WITH_MORE);
        if (exec.width > 1) o.attn.exec = &exec;
        if (rng_int(&r, 0, 1)) o.attn.weights = &weights;
        o.weights_mean = rng_int(&r, 0, 1);
        {
            const size_t small = attn_mha_workspace(&l.m, call, b, q, k, &o);
            const size_t large = attn_mha_workspace(&l.m, call, b + rng_int(&r, 0, 2), q + rng_int(&r, 0, 40),
                                                    k + rng_int(&r, 0, 200), &o);
            CHECKF(small <= large && large != (size_t)-1, "call %d: %zu, then %zu", (int)call, small, large);
            o.attn.work = &weights;       /* left over from another call */
            o.attn.work_size = rng_int(&r, 0, 1) ? (size_t)-1 : 1000;
            CHECKF(attn_mha_workspace(&l.m, call, b, q, k, &o) == small, "call %d adds the work it is given",
                   (int)call);
            o.attn.work = NULL;
        }
        REFUSED_SIZE(attn_mha_workspace(&l.m, call, -1, q, k, &o), ATTN_E_SIZE, "attn_mha_workspace: batch is -1");
        REFUSED_SIZE(attn_mha_workspace(&l.m, call, 1 << 30, 1 << 30, 1 << 30, &o), ATTN_E_OVERFLOW,
                     "attn_mha_workspace: ");
        REFUSED_SIZE(attn_mha_workspace(&l.m, call, 1, 1, -1, &o), ATTN_E_SIZE, "attn_mha_workspace: n_k is -1");
        if (call != ATTN_MHA_CROSS_FILL)
            REFUSED_SIZE(attn_mha_workspace(&l.m, call, 1, -1, 1, &o), ATTN_E_SIZE, "attn_mha_workspace: n_q is -1");
        REFUSED_SIZE(attn_mha_workspace(&l.m, (attn_mha_call)6, 1, 1, 1, &o), ATTN_E_OPTION,
                     "attn_mha_workspace: call is 6");
        layer_free(&l);
    }
    REFUSED_SIZE(attn_mha_workspace(NULL, ATTN_MHA_SELF, 1, 1, 1, NULL), ATTN_E_NULL, "attn_mha_workspace: m ");
}

/* Cross steps of n rows for more sentences than their cache has entries: k_map shares them, k_batch is their number. */
static void shared_steps(int n, const int *map)
{
    enum { B = 3, ENTRIES = 2, KEYS = 200 };
    rng r = rng_make(test_seed + 27);
    attn_kv_args s = {.batch = ENTRIES, .capacity = KEYS};
    attn_kv c;
    layer l;
    attn_mha_opts o;
    float *x, *memory, *got, *want;
    void *work;
    size_t outs, entry;
    int b;
    layer_make(&l, &r, 0);
    entry = (size_t)(n * l.a.d_model);
    outs = B * entry;
    memory = normal(&r, (size_t)(ENTRIES * KEYS * l.a.d_model), 1.0);
    x = normal(&r, outs, 1.0);
    got = floats(outs);
    want = floats(outs);
    s.kv_heads = l.a.kv_heads;
    s.head_dim = l.a.head_dim;
    s.v_head_dim = l.a.v_head_dim;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(attn_mha_cross_fill(&l.m, &c, memory, ENTRIES, KEYS, NULL, NULL) == ATTN_OK);
    memset(&o, 0, sizeof o);
    o.attn.k_batch = ENTRIES;
    REFUSED_SIZE(attn_mha_workspace(&l.m, ATTN_MHA_CROSS_STEP, B, n, KEYS, &o), ATTN_E_SIZE,
                 "attn_mha_workspace: batch is 3 but there are only 2 entries in the cache");
    o.attn.k_map = map;
    for (b = 0; b < B; b++) {             /* one sentence at a time: nothing is shared */
        o.attn.k_map = map + b;
        CHECK(attn_mha_cross_step(&l.m, want + b * entry, x + b * entry, 1, n, &c, &o) == ATTN_OK);
    }
    o.attn.k_map = map;
    o.attn.work_size = attn_mha_workspace(&l.m, ATTN_MHA_CROSS_STEP, B, n, KEYS, &o);
    o.attn.work = work = guard_alloc(o.attn.work_size);
    CHECKF(attn_mha_cross_step(&l.m, got, x, B, n, &c, &o) == ATTN_OK, "%s", refusal_text());
    CHECKF(same_bits(got, want, outs), "%d rows", n);
    guard_free(work);
    attn_kv_free(&c);
    free(x); free(memory); free(got); free(want);
    layer_free(&l);
}

static void workspace_shared(void)
{
    static const int rows[] = {1, 7, 17, 40, 41, 50, 64, 97};
    static const int some[] = {1, 0, 1}, all[] = {1, 1, 1};
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        shared_steps(rows[i], some);
        shared_steps(rows[i], all);
    }
}

void mha_allocation(void);                /* private/layers_memory.h */

extern const test_case suite_mha_rows[];
SUITE(mha_rows) = {
    {"unread padding", unread_padding,
     "rows of x or memory read although they do not exist, so they may be uninitialised"},
    {"rope_pos ends", rope_pos_ends, "positions that are used without a check, or read where none exist"},
    {"unread gaps", unread_between,
     "rows read for a reader without keys; the longest entry of a ragged call not found"},
    {"unread memory", unread_memory,
     "an entry or key that no row sees that is read, or a visible one that is left out"},
    {"workspace grows", workspace_grows,
     "a larger call that requires less workspace, or one that adds the size of the caller's"},
    {"workspace shared", workspace_shared,
     "a step over shared entries whose workspace is rejected or too small, or that shares more rows than fit"},
    {"allocation", mha_allocation,
     "memory that is leaked, read uninitialised, or allocated although the caller supplies it"},
    {0}};
