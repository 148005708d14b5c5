/* args_memory.h: part of suite args_memory, in private.c: allocations counted, filled with garbage, fenced, and
   made to fail one after the other. */
void args_allocation_fails(void);
void args_caller_workspace(void);
void args_garbage_memory(void);

/* ---- calls that need memory ------------------------------------------------------------------------------------- */

enum { MAX_Q = 89, MAX_K = 2100, HEADS = 4, DIM = 16, MAX_BATCH = 2 };
static struct {
    float q[MAX_BATCH * MAX_Q * HEADS * DIM], k[MAX_BATCH * MAX_K * HEADS * DIM], v[MAX_BATCH * MAX_K * HEADS * DIM];
    float mask[MAX_BATCH * 30 * 300], bias[HEADS * 20 * 300], slopes[HEADS], sinks[HEADS], rel[HEADS * 101];
    int lengths[MAX_BATCH], q_cum[MAX_BATCH + 1], k_cum[MAX_BATCH + 1];
} in;
typedef struct result {
    float out[MAX_BATCH * MAX_Q * HEADS * DIM], weights[MAX_BATCH * HEADS * 20 * 300], lse[MAX_BATCH * HEADS * MAX_Q];
    size_t masked_rows;
} result;
static result r1, r2;
static int a_user;

static void inputs(void)
{
    rng r = rng_make(test_seed);
    int i;
    rng_fill(&r, in.q, sizeof in.q / 4); rng_fill(&r, in.k, sizeof in.k / 4); rng_fill(&r, in.v, sizeof in.v / 4);
    rng_fill(&r, in.mask, sizeof in.mask / 4); rng_fill(&r, in.bias, sizeof in.bias / 4);
    rng_fill(&r, in.slopes, HEADS); rng_fill(&r, in.sinks, HEADS); rng_fill(&r, in.rel, HEADS * 101);
    for (i = 0; i < MAX_BATCH * 30 * 300; i += 3) in.mask[i] = bits_float(0xFF800000u);
    in.lengths[0] = 17; in.lengths[1] = MAX_Q;
    in.q_cum[1] = 5; in.q_cum[2] = 20; in.k_cum[1] = 130; in.k_cum[2] = 400;
}

enum { N_CASES = 9 };
static const char *const case_names[N_CASES] = { "toy", "prefill", "long row", "grouped row", "everything", "ragged",
                                                 "raw scores", "attn_self", "attn_cross" };

/* Runs case c and stores its results in *to. *need: size of its workspace; SIZE_MAX: the call takes none. */
static attn_status run_case(int c, attn_backend backend, const attn_exec *exec, void *work, size_t work_size,
                            result *to, size_t *need)
{
    attn_args a;
    memset(&a, 0, sizeof a);
    memset(to, 0xA5, sizeof *to);
    a.out = to->out; a.q = in.q; a.k = in.k; a.v = in.v; a.masked_rows = &to->masked_rows; a.lse = to->lse;
    a.user = &a_user; a.exec = exec; a.backend = backend; a.work = work; a.work_size = work_size;
    a.batch = MAX_BATCH; a.heads = HEADS; a.head_dim = DIM;
    *need = SIZE_MAX;
    switch (c) {
    case 0: a.n_q = 5; a.n_k = 6; break;
    case 1: a.n_q = MAX_Q; a.n_k = 270; a.causal = ATTN_CAUSAL_BOTTOM_RIGHT; break;
    case 2: a.batch = 1; a.n_q = 1; a.n_k = MAX_K; break;
    case 3: a.batch = 1; a.n_q = 2; a.n_k = MAX_K; a.kv_heads = 1; break;
    case 4: case 6:
        a.n_q = 20; a.n_k = 300; a.weights = to->weights; a.mask = in.mask; a.bias = in.bias; a.softcap = 9;
        a.alibi_slopes = in.slopes; a.sinks = in.sinks; a.window_left = 150; a.k_lengths = in.lengths;
        a.rel_bias = in.rel; a.rel_extent = 50;
        if (c == 6) a.weights_stage = ATTN_SCORES_RAW;
        break;
    case 5: a.q_cum = in.q_cum; a.k_cum = in.k_cum; a.n_q = 15; a.n_k = 270; break;
    case 7:
        hooks.user = NULL;
        return attn_self(to->out, in.q, in.k, in.v, MAX_BATCH, MAX_Q, HEADS, DIM, 1, in.lengths, NULL);
    default:
        hooks.user = NULL;
        return attn_cross(to->out, in.q, in.k, in.v, MAX_BATCH, 30, 300, HEADS, DIM, in.lengths, in.mask);
    }
    *need = attn_sdpa_workspace(&a);
    return attn_sdpa(&a);
}

static int untouched(const result *r)
{
    const unsigned char *p = (const unsigned char *)r;
    size_t i;
    for (i = 0; i < sizeof *r; i++) if (p[i] != 0xA5) return 0;
    return 1;
}

/* The n-th allocation fails, for every n until none is left to fail. */
void args_allocation_fails(void)
{
    attn_backend list[16];
    int n = test_all_backends(list, 16), c, b, e, i, fails = 0;
    inputs();
    for (c = 0; c < N_CASES; c++) for (b = 0; b < n; b++) for (e = 0; e < 2; e++) for (i = 0; i < 100; i++) {
        attn_exec exec = test_exec(3);
        attn_status s;
        size_t need;
        hooks_reset(i, 0xFF, &a_user);
        refusal_clear();
        s = run_case(c, list[b], e ? &exec : NULL, NULL, 0, &r1, &need);
        CHECKF(hooks.live == 0, "%s, %s: %d leaked when allocation %d fails", case_names[c], attn_backend_name(list[b]),
               hooks.live, i);
        hooks.live = 0;
        if (hooks.calls <= i) { CHECKF(s == ATTN_OK, "%s: %s", case_names[c], attn_status_str(s)); break; }
        fails++;
        CHECKF(s == ATTN_E_MEMORY, "%s, %s: allocation %d fails: %s", case_names[c], attn_backend_name(list[b]), i,
               attn_status_str(s));
        CHECKF(refusal_count() == 1 && refusal_status() == s && refusal_user() == hooks.user &&
                   strstr(refusal_text(), ": ATTN_MALLOC has no "), "%s: says \"%s\"", case_names[c], refusal_text());
        CHECKF(untouched(&r1), "%s, %s: something written although allocation %d failed", case_names[c],
               attn_backend_name(list[b]), i);
    }
    CHECKF(fails > 10, "only %d allocations were made to fail", fails);
    hooks_done();
}

/* With a workspace from the caller there is not one allocation, and the same bits. */
void args_caller_workspace(void)
{
    attn_backend list[16];
    int n = test_all_backends(list, 16), c, b, e;
    inputs();
    for (c = 0; c < N_CASES - 2; c++) for (b = 0; b < n; b++) for (e = 0; e < 2; e++) {
        attn_exec exec = test_exec(3);
        size_t need, again;
        unsigned char *work;
        hooks_reset(-1, 0xFF, &a_user);
        CHECK(run_case(c, list[b], e ? &exec : NULL, NULL, 0, &r1, &need) == ATTN_OK);
        work = (unsigned char *)guard_alloc(need ? need : 1);     /* 0 bytes: any pointer is valid */
        hooks_reset(-1, 0xFF, &a_user);
        CHECK(run_case(c, list[b], e ? &exec : NULL, work, need, &r2, &again) == ATTN_OK);
        CHECKF(hooks.calls == 0, "%s, %s: %d allocations although a workspace was given", case_names[c],
               attn_backend_name(list[b]), hooks.calls);
        CHECKF(memcmp(&r1, &r2, sizeof r1) == 0, "%s, %s: other bits with a workspace", case_names[c],
               attn_backend_name(list[b]));
        CHECK(need == again);
        guard_free(work);
    }
    hooks_done();
}

/* Previous contents of memory do not matter: NaN, zeros, small integers. */
void args_garbage_memory(void)
{
    static const unsigned char fills[] = { 0x00, 0x7F, 0x01, 0x80 };
    attn_backend list[16];
    int n = test_all_backends(list, 16), c, b, f;
    inputs();
    for (c = 0; c < N_CASES; c++) for (b = 0; b < n; b++) {
        attn_exec exec = test_exec(2);
        size_t need;
        hooks_reset(-1, 0xFF, &a_user);
        CHECK(run_case(c, list[b], &exec, NULL, 0, &r1, &need) == ATTN_OK);
        for (f = 0; f < 4; f++) {
            hooks_reset(-1, fills[f], &a_user);
            CHECK(run_case(c, list[b], &exec, NULL, 0, &r2, &need) == ATTN_OK);
            CHECKF(memcmp(&r1, &r2, sizeof r1) == 0, "%s, %s: memory filled with %02x gives other bits", case_names[c],
                   attn_backend_name(list[b]), fills[f]);
        }
    }
    hooks_done();
}
