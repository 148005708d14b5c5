/* layers_memory.h: parts of suites kv, step, mha and args, in private.c: the allocations of caches and layers, an
 * ATTN_STACK of another size, and the default of ATTN_SERIAL_FLOPS. */
void kv_allocation(void);
void step_allocation(void);
void mha_allocation(void);
void args_stack(void);
void args_serial(void);

void kv_allocation(void)
{
    int mine;
    float rows[3 * 2 * 4] = {0};
    const int map[3] = {2, 2, 0};
    unsigned char saved[64 + 2 * 2 * 4 * sizeof(float)];
    attn_kv c;
    attn_kv_args a = {0};
    a.batch = 3;
    a.kv_heads = 2;
    a.head_dim = 4;
    a.capacity = 9;
    a.user = &mine;
    hooks_reset(0, 0xA5, &mine);
    REFUSED(attn_kv_init(&c, &a), ATTN_E_MEMORY, "attn_kv_init: ATTN_MALLOC has no ");
    CHECK(hooks.calls == 1 && refusal_user() == &mine);
    CHECK(attn_kv_append(&c, -1, rows, rows, 1, 0) == ATTN_E_NULL);
    attn_kv_free(&c);
    CHECK(hooks.live == 0);

    hooks_reset(-1, 0xA5, &mine);
    CHECK(attn_kv_init(&c, &a) == ATTN_OK && hooks.calls == 1);
    for (int i = 0; i < 4; i++) CHECK(attn_kv_append(&c, -1, rows, rows, 1, 0) == ATTN_OK);
    CHECK(attn_kv_reorder(&c, map) == ATTN_OK);
    CHECK(attn_kv_copy(&c, 0, 1, 2) == ATTN_OK);
    CHECK(attn_kv_truncate(&c, -1, 1) == ATTN_OK);
    CHECK(attn_kv_forget(&c, -1, 0, 1) == ATTN_OK && attn_kv_read(&c, 2, 0, 1, rows, NULL) == ATTN_OK);
    CHECK(attn_kv_saved(&c, 2) == sizeof saved);
    CHECK(attn_kv_save(&c, 2, saved, sizeof saved) == ATTN_OK);
    CHECK(attn_kv_load(&c, 1, saved, sizeof saved) == ATTN_OK);
    CHECKF(hooks.calls == 1, "a cache allocates after init");
    attn_kv_free(&c);
    CHECK(hooks.live == 0);

    a.mem = malloc(attn_kv_size(&a));
    a.mem_size = attn_kv_size(&a);
    hooks_reset(0, 0xA5, &mine);
    CHECK(attn_kv_init(&c, &a) == ATTN_OK && hooks.calls == 0);
    attn_kv_free(&c);
    CHECK(hooks.calls == 0 && hooks.live == 0);
    free(a.mem);
    hooks_done();
}

/* attn_self_step takes its one block of memory before it changes the cache. */
void step_allocation(void)
{
    int mine;
    float x[2 * 3 * 2 * 4], out[2][2 * 3 * 2 * 4];
    attn_kv c;
    attn_kv_args shape = {0};
    attn_args a = {0};
    rng r = rng_make(test_seed);
    rng_fill(&r, x, sizeof x / sizeof *x);
    shape.batch = 2;
    shape.kv_heads = 2;
    shape.head_dim = 4;
    shape.capacity = 9;
    hooks_reset(-1, 0xA5, NULL);
    CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
    hooks_reset(0, 0xA5, &mine);
    a.q = a.k = a.v = x;
    a.out = out[0];
    a.batch = 2;
    a.n_q = 3;
    a.heads = 2;
    a.user = &mine;
    memset(out, 0x77, sizeof out);
    REFUSED(attn_self_step(&c, &a), ATTN_E_MEMORY, "attn_self_step: ATTN_MALLOC has no ");
    CHECK(hooks.calls == 1 && refusal_user() == &mine && c.lengths[0] == 0 && c.lengths[1] == 0);
    CHECK(!memcmp(out[0], out[1], sizeof out[0]));
    hooks_reset(-1, 0xA5, &mine);
    CHECK(attn_self_step(&c, &a) == ATTN_OK && hooks.calls == 1 && c.lengths[1] == 3);
    CHECK(hooks.live == 1);                                   /* the cache */
    a.n_q = 0;
    CHECK(attn_self_step(&c, &a) == ATTN_OK && hooks.calls == 1 && c.lengths[1] == 3);

    CHECK(attn_kv_reset(&c, -1) == ATTN_OK);                  /* the same with memory of the caller */
    a.n_q = 3;
    a.out = out[1];
    a.kv = &c;
    a.k = a.v = NULL;
    a.work_size = attn_sdpa_workspace(&a);
    a.work = guard_alloc(a.work_size);
    a.k = a.v = x;
    hooks_reset(0, 0xA5, &mine);
    CHECK(attn_self_step(&c, &a) == ATTN_OK && hooks.calls == 0);
    CHECK(!memcmp(out[0], out[1], sizeof out[0]));
    guard_free(a.work);
    hooks_reset(-1, 0xA5, NULL);
    attn_kv_free(&c);
    CHECK(hooks.live == 0);
    hooks_done();
}

/* ---- every call of a layer, with its own memory or with the caller's ---------------------------------------- */
enum { BATCH = 2, ROWS_EACH = 5, DM = 12, LAYER_HEADS = 3, CAPACITY = 20 };

typedef struct stage {
    attn_mha m;
    attn_kv past, memory;
    float x[BATCH * ROWS_EACH * DM], out[BATCH * ROWS_EACH * DM], weights[BATCH * ROWS_EACH * CAPACITY];
    attn_mha_opts o;
} stage;

static attn_status layer_call(stage *s, int which)
{
    switch (which) {
    case 0: return attn_mha_self(&s->m, s->out, s->x, BATCH, ROWS_EACH, &s->o);
    case 1: return attn_mha_cross(&s->m, s->out, s->x, BATCH, ROWS_EACH, s->x, ROWS_EACH, &s->o);
    case 2: return attn_mha_self_step(&s->m, s->out, s->x, BATCH, 1, &s->past, &s->o);
    case 3: return attn_mha_cross_fill(&s->m, &s->memory, s->x, BATCH, ROWS_EACH, NULL, &s->o);
    default: return attn_mha_cross_step(&s->m, s->out, s->x, BATCH, 1, &s->memory, &s->o);
    }
}

static size_t call_needs(stage *s, int which)
{
    static const attn_mha_call calls[] = {ATTN_MHA_SELF, ATTN_MHA_CROSS, ATTN_MHA_SELF_STEP, ATTN_MHA_CROSS_FILL,
                                          ATTN_MHA_CROSS_STEP};
    const int step = which == 2 || which == 4;
    return attn_mha_workspace(&s->m, calls[which], BATCH, step ? 1 : ROWS_EACH, step ? CAPACITY : ROWS_EACH, &s->o);
}

static attn_status stage_make(stage *s, void *user)
{
    float w[4 * DM * DM];
    attn_mha_args a = {0};
    attn_kv_args kv = {0};
    attn_status status;
    rng r = rng_make(test_seed);
    memset(s, 0, sizeof *s);
    rng_fill(&r, w, 4 * DM * DM);
    rng_fill(&r, s->x, BATCH * ROWS_EACH * DM);
    a.d_model = DM;
    a.heads = LAYER_HEADS;
    a.w_in = w;
    a.w_o = w + 3 * DM * DM;
    a.user = user;
    kv.batch = BATCH;
    kv.kv_heads = LAYER_HEADS;
    kv.head_dim = DM / LAYER_HEADS;
    kv.capacity = CAPACITY;
    kv.user = user;
    s->o.attn.user = user;
    s->o.attn.weights = s->weights;
    s->o.weights_mean = 1;
    if ((status = attn_mha_init(&s->m, &a)) != ATTN_OK) return status;
    if ((status = attn_kv_init(&s->past, &kv)) != ATTN_OK) return status;
    return attn_kv_init(&s->memory, &kv);
}

static void stage_free(stage *s)
{
    attn_mha_free(&s->m);
    attn_kv_free(&s->past);
    attn_kv_free(&s->memory);
}

void mha_allocation(void)
{
    int mine;
    attn_linear_args la = {0};
    attn_linear l;
    stage s;
    for (int fail = 0; fail < 3; fail++) {                    /* the weights, one cache, the other */
        hooks_reset(fail, 0xA5, &mine);
        CHECK(stage_make(&s, &mine) == ATTN_E_MEMORY);
        stage_free(&s);
        CHECK(hooks.live == 0);
    }
    hooks_reset(0, 0xA5, &mine);
    la.n_in = 3, la.n_out = 2, la.w = s.x, la.user = &mine;
    REFUSED(attn_linear_init(&l, &la), ATTN_E_MEMORY, "attn_linear_init: ATTN_MALLOC has no ");
    CHECK(refusal_user() == &mine);
    attn_linear_free(&l);

    hooks_reset(-1, 0xA5, &mine);
    CHECK(stage_make(&s, &mine) == ATTN_OK);
    for (int which = 0; which < 5; which++) {
        float want[BATCH * ROWS_EACH * DM];
        const int live = hooks.live;
        hooks_reset(-1, 0xA5, &mine);
        CHECK(layer_call(&s, which) == ATTN_OK);
        CHECKF(hooks.calls == 1 && hooks.live == live, "call %d allocates %d times, %d are left", which, hooks.calls,
               hooks.live - live);
        memcpy(want, s.out, sizeof want);
        if (which == 2) CHECK(attn_kv_truncate(&s.past, -1, s.past.lengths[0] - 1) == ATTN_OK);

        hooks_reset(0, 0xA5, &mine);                                /* no memory: an error, and no effect */
        memset(s.out, 0x77, sizeof s.out);
        REFUSED(layer_call(&s, which), ATTN_E_MEMORY, "ATTN_MALLOC has no ");
        for (size_t i = 0; i < sizeof s.out; i++)
            if (((unsigned char *)s.out)[i] != 0x77) { CHECKF(0, "call %d wrote without memory", which); break; }
        CHECK(s.past.lengths[0] == (which > 2) && s.memory.lengths[0] == (which >= 3 ? ROWS_EACH : 0));

        s.o.attn.work_size = call_needs(&s, which);           /* memory of the caller: nothing is allocated */
        s.o.attn.work = guard_alloc(s.o.attn.work_size);
        hooks_reset(0, 0xA5, &mine);
        CHECK(layer_call(&s, which) == ATTN_OK && hooks.calls == 0);
        if (which != 3)
            CHECKF(same_bits(want, s.out, which > 1 ? DM : BATCH * ROWS_EACH * DM),
                   "call %d: garbage in fresh memory matters", which);
        guard_free(s.o.attn.work);
        s.o.attn.work = NULL;
    }
    stage_free(&s);
    CHECK(hooks.live == 0);
    hooks_done();
}

/* ---- small calls ---------------------------------------------------------------------------------------------- */

/* Level 2 takes its workspace from the stack as long as it fits into ATTN_STACK bytes, and allocates it otherwise. */
void args_stack(void)
{
    enum { ROWS = 300, WIDTH = 24 };
    static float q[ROWS * WIDTH], k[ROWS * WIDTH], v[ROWS * WIDTH], out[2][ROWS * WIDTH];
    rng r = rng_make(test_seed);
    int small = 0, large = 0;
    rng_fill(&r, q, ROWS * WIDTH);
    rng_fill(&r, k, ROWS * WIDTH);
    rng_fill(&r, v, ROWS * WIDTH);
    for (int n = 1; n <= ROWS; n = n * 2 + 1) {
        const size_t bytes = (size_t)n * WIDTH * sizeof(float);
        attn_args a = {0};
        int fits;
        a.q = q;
        a.k = k;
        a.v = v;
        a.out = out[0];
        a.batch = a.heads = 1;
        a.n_q = a.n_k = n;
        a.head_dim = WIDTH;
        hooks_reset(-1, 0xA5, NULL);
        CHECK(attn_sdpa(&a) == ATTN_OK && hooks.calls == 1);
        fits = attn_sdpa_workspace(&a) <= ATTN_STACK;
        small += fits;
        large += !fits;
        for (int self = 0; self < 2; self++) {
            hooks_reset(-1, 0xA5, NULL);
            memset(out[1], 0x77, sizeof out[1]);
            CHECK((self ? attn_self(out[1], q, k, v, 1, n, 1, WIDTH, 0, NULL, NULL)
                        : attn_cross(out[1], q, k, v, 1, n, n, 1, WIDTH, NULL, NULL)) == ATTN_OK);
            CHECKF(hooks.calls == !fits, "%d x %d needs %zu bytes: %d allocations", n, n, attn_sdpa_workspace(&a),
                   hooks.calls);
            CHECK(!memcmp(out[0], out[1], bytes));
        }
    }
    CHECK(small > 1 && large > 1 && hooks.live == 0);
    hooks_done();
}

static int runs;
static void count_run(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    (void)pool;
    runs++;
    while (n-- > 0) task(arg, n);
}

/* Below ATTN_SERIAL_FLOPS no other thread is used, although an executor is given; the bits are the same. */
void args_serial(void)
{
    enum { ROWS = 256, WIDTH = 64 };
    static float q[ROWS * WIDTH], k[ROWS * WIDTH], v[ROWS * WIDTH], out[2][ROWS * WIDTH];
    attn_exec exec = {NULL, 4, count_run};
    rng r = rng_make(test_seed);
    serial_flops = 400000;                /* the default, which `make strict` checks */
    rng_fill(&r, q, ROWS * WIDTH);
    rng_fill(&r, k, ROWS * WIDTH);
    rng_fill(&r, v, ROWS * WIDTH);
    for (int large = 0; large < 2; large++) {                 /* 1024 and 16 million operations */
        attn_args a = {0};
        a.q = q;
        a.k = k;
        a.v = v;
        a.out = out[0];
        a.batch = a.heads = 1;
        a.n_q = large ? ROWS : 1;
        a.n_k = large ? ROWS : 4;
        a.head_dim = WIDTH;
        runs = 0;
        hooks_reset(-1, 0xA5, NULL);
        CHECK(attn_sdpa(&a) == ATTN_OK && runs == 0);
        a.exec = &exec;
        a.out = out[1];
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECKF((runs > 0) == large, "%d rows: the executor ran %d times", a.n_q, runs);
        CHECK(same_bits(out[0], out[1], (size_t)(a.n_q * WIDTH)));
    }
    for (int n = 1; n < 40; n += 30) {                        /* sets of states to be folded: 65,536 and a million */
        static float states[31 * ROWS * (WIDTH + 4)], carry[ROWS * (WIDTH + 4)];
        attn_args a = attn_args_for(1, ROWS, 0, 1, WIDTH);
        a.carry_out = carry;
        a.exec = &exec;
        runs = 0;
        CHECK(attn_fold(&a, states, n) == ATTN_OK);
        CHECKF((runs > 0) == (n > 1), "%d sets of states: the executor ran %d times", n, runs);
    }
    CHECK(hooks.live == 0);
    hooks_done();
    serial_flops = 0;
}
