/* test_mha_steps.c: layers in steps through a cache, and in batches: padded, ragged, with shared memories. */
#include "layer.h"

static void cache_make(attn_kv *c, const layer *l, int batch, int capacity)
{
    attn_kv_args s = {0};
    s.batch = batch;
    s.kv_heads = l->a.kv_heads;
    s.head_dim = l->a.head_dim;
    s.v_head_dim = l->a.v_head_dim;
    s.capacity = capacity;
    CHECK(attn_kv_init(c, &s) == ATTN_OK);
}

/* A batch whose entries grow by different numbers of rows, in random pieces: each row as in one causal call over its
   sentence. */
static void self_steps(void)
{
    enum { BATCH = 3 };
    rng seeds = rng_make(test_seed + 6);
    for (int i = 0; i < 25 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n = rng_int(&r, 0, 2) ? rng_int(&r, 1, 30) : rng_int(&r, 100, 180), window = rng_int(&r, 0, 1) * 9;
        float *x[BATCH], *whole[BATCH], *steps[BATCH];
        const int given = rng_int(&r, 0, 2) == 0;
        int at[BATCH] = {0, 0, 0}, place[BATCH * 180];
        layer l;
        attn_kv c;
        attn_exec exec = test_exec(rng_int(&r, 1, 3));
        layer_make(&l, &r, (rng_int(&r, 0, 1) ? WITH_ROPE | WITH_NORM : rng_int(&r, 0, 1) * WITH_NORM) |
                           rng_int(&r, 0, 1) * WITH_MORE);
        cache_make(&c, &l, BATCH, n);
        for (int k = 0; k < BATCH * 180; k++) place[k] = rng_int(&r, -1, 399);
        for (int b = 0; b < BATCH; b++) {
            attn_mha_opts o;
            memset(&o, 0, sizeof o);
            o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
            o.attn.window_left = window;
            if (given) o.rope_pos = place + b * 180;
            x[b] = normal(&r, (size_t)(n * l.a.d_model), 1.0);
            whole[b] = floats((size_t)(n * l.a.d_model));
            steps[b] = floats((size_t)(n * l.a.d_model));
            CHECK(attn_mha_self(&l.m, whole[b], x[b], 1, n, &o) == ATTN_OK);
        }
        while (at[0] < n || at[1] < n || at[2] < n) {
            const int rows = rng_int(&r, 0, 2) ? 1 : rng_int(&r, 1, 40), d = l.a.d_model;
            float *in = guard_floats((size_t)(BATCH * rows * d)), *out = guard_floats((size_t)(BATCH * rows * d));
            float *look = guard_floats((size_t)(BATCH * rows * d));
            int counts[BATCH], cum[BATCH + 1] = {0}, here[BATCH * 40];
            attn_mha_opts o;
            size_t need;
            memset(&o, 0, sizeof o);
            for (int k = 0; k < BATCH * 40; k++) here[k] = 1 << 30;       /* of padding: not read */
            for (int b = 0; b < BATCH; b++) { /* rows of padding are NaN, and must have no effect */
                counts[b] = rng_int(&r, 0, rows);
                if (counts[b] > n - at[b]) counts[b] = n - at[b];
                for (int y = 0; y < rows * d; y++) in[b * rows * d + y] = NAN;
                memcpy(in + b * rows * d, x[b] + at[b] * d, (size_t)(counts[b] * d) * sizeof(float));
                memcpy(here + b * rows, place + b * 180 + at[b], (size_t)counts[b] * sizeof(int));
            }
            if (rng_int(&r, 0, 2) == 0) {                                  /* ragged instead of padded */
                o.attn.q_cum = cum;
                for (int b = 0; b < BATCH; b++) {
                    cum[b + 1] = cum[b] + counts[b];
                    memcpy(in + cum[b] * d, x[b] + at[b] * d, (size_t)(counts[b] * d) * sizeof(float));
                    memcpy(here + cum[b], place + b * 180 + at[b], (size_t)counts[b] * sizeof(int));
                }
            } else {
                o.attn.q_lengths = counts;
            }
            o.attn.window_left = window;
            if (given) o.rope_pos = here;
            if (exec.width > 1) o.attn.exec = &exec;
            if (rng_int(&r, 0, 1)) o.attn.kv = &c; /* the cache may be set in the options, or not */
            need = attn_mha_workspace(&l.m, ATTN_MHA_SELF_STEP, BATCH, rows, n, &o);
            o.attn.work = guard_alloc(need);
            o.attn.work_size = need;
            CHECK(attn_mha_self_step(&l.m, out, in, BATCH, o.attn.q_cum && rng_int(&r, 0, 1) ? 0 : rows, &c, &o) ==
                  ATTN_OK);
            need = attn_mha_workspace(&l.m, ATTN_MHA_SELF_LOOK, BATCH, rows, n, &o);
            CHECK(need <= o.attn.work_size);
            CHECKF(attn_mha_self_look(&l.m, look, in, BATCH, o.attn.q_cum && rng_int(&r, 0, 1) ? 0 : rows, &c, &o) ==
                   ATTN_OK, "%s", refusal_text());
            if (!o.attn.q_cum || cum[BATCH] > 0)
                CHECKF(same_bits(look, out, (size_t)((o.attn.q_cum ? cum[BATCH] : BATCH * rows) * d)),
                       "seed %llu: who looks at the rows of a step does not see what they see", seed);
            for (int b = 0; b < BATCH; b++) {
                const float *mine = out + (o.attn.q_cum ? cum[b] : b * rows) * d;
                memcpy(steps[b] + at[b] * d, mine, (size_t)(counts[b] * d) * sizeof(float));
                for (int y = counts[b] * d; y < rows * d && o.attn.q_lengths; y++)
                    CHECKF(float_bits(mine[y]) == 0, "seed %llu: a row of padding is not zero", seed);
                at[b] += counts[b];
                CHECK(c.lengths[b] == at[b]);
            }
            guard_free(o.attn.work);
            guard_free(in);
            guard_free(out);
            guard_free(look);
        }
        for (int b = 0; b < BATCH; b++) {
            CHECKF(same_bits(whole[b], steps[b], (size_t)(n * l.a.d_model)),
                   "seed %llu: entry %d of %d rows differs from prefill", seed, b, n);
            free(x[b]); free(whole[b]); free(steps[b]);
        }
        attn_kv_free(&c);
        layer_free(&l);
    }
}

/* Weights of one head of a step: the plane and the output of a step with all heads. */
static void one_plane(const layer *l, const attn_kv *c, const float *x, int batch, int n_q, attn_mha_opts o, int head)
{
    int n_k = 0;
    for (int b = 0; b < batch; b++) {
        const int n = c->lengths[o.attn.k_map ? o.attn.k_map[b] : b];
        n_k = n > n_k ? n : n_k;
    }
    const size_t n = (size_t)(n_q * n_k), n_out = (size_t)(batch * n_q * l->a.d_model);
    float *all = guard_floats((size_t)(batch * l->a.heads) * n), *one = guard_floats((size_t)batch * n);
    float *want = floats(n_out), *got = floats(n_out);
    o.attn.weights = all;
    CHECK(attn_mha_cross_step(&l->m, want, x, batch, n_q, c, &o) == ATTN_OK);
    o.attn.weights = one, o.attn.weights_heads = &head, o.attn.n_weights_heads = 1;
    CHECK(attn_mha_cross_step(&l->m, got, x, batch, n_q, c, &o) == ATTN_OK);
    CHECK(same_bits(got, want, n_out));
    for (int b = 0; b < batch; b++)
        CHECKF(same_bits(one + (size_t)b * n, all + (size_t)(b * l->a.heads + head) * n, n),
               "entry %d head %d of %d", b, head, l->a.heads);
    guard_free(all); guard_free(one);
    free(want); free(got);
}

/* Memory projected once and kept, against projecting it in every call; also shared by several queries through k_map. */
static void cross_steps(void)
{
    rng seeds = rng_make(test_seed + 7);
    for (int i = 0; i < 200 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int sources = rng_int(&r, 1, 3), shared = rng_int(&r, 0, 1), batch = shared ? rng_int(&r, 1, 4) : sources;
        const int n_q = rng_int(&r, 1, 6), n_k = rng_int(&r, 0, 2) ? rng_int(&r, 1, 30) : rng_int(&r, 100, 200);
        int lengths[4], map[4], mine[4];
        float *memory, *memory_v, *x, *want, *got;
        size_t n_out;
        layer l;
        attn_kv c;
        attn_mha_opts o, fill;
        attn_exec exec = test_exec(3);
        layer_make(&l, &r, CROSSING | (rng_int(&r, 0, 1) ? WITH_NORM : 0));
        cache_make(&c, &l, sources, n_k);
        n_out = (size_t)(batch * n_q * l.a.d_model);
        for (int b = 0; b < 4; b++) {
            lengths[b] = rng_int(&r, 0, n_k);
            map[b] = shared ? rng_int(&r, 0, sources - 1) : b;
        }
        for (int b = 0; b < 4; b++) mine[b] = lengths[map[b]];
        memory = normal(&r, (size_t)(sources * n_k * l.a.d_key), 1.0);
        memory_v = normal(&r, (size_t)(sources * n_k * l.a.d_value), 1.0);
        for (int b = 0; b < sources; b++)                                  /* keys after the end do not exist */
            for (int y = lengths[b] * l.a.d_key; y < n_k * l.a.d_key; y++) memory[b * n_k * l.a.d_key + y] = NAN;
        x = normal(&r, n_out, 1.0);
        want = floats(n_out);
        got = guard_floats(n_out);
        memset(&o, 0, sizeof o);
        memset(&fill, 0, sizeof fill);
        o.memory_v = fill.memory_v = memory_v;
        o.attn.k_lengths = mine;
        if (shared) { o.attn.k_map = map; o.attn.k_batch = sources; }
        CHECK(attn_mha_cross(&l.m, want, x, batch, n_q, memory, n_k, &o) == ATTN_OK);
        fill.attn.exec = rng_int(&r, 0, 1) ? &exec : NULL;
        for (int again = 0; again < 2; again++) {                          /* a second sentence replaces the first */
            const size_t need = attn_mha_workspace(&l.m, ATTN_MHA_CROSS_FILL, sources, 0, n_k, &fill);
            fill.attn.work = guard_alloc(need);
            fill.attn.work_size = need;
            CHECK(attn_mha_cross_fill(&l.m, &c, memory, sources, n_k, lengths, &fill) == ATTN_OK);
            guard_free(fill.attn.work);
            fill.attn.work = NULL;
        }
        o.attn.k_lengths = NULL;
        o.attn.k_batch = 0;
        o.attn.exec = rng_int(&r, 0, 1) ? &exec : NULL;
        CHECK(attn_mha_cross_step(&l.m, got, x, batch, n_q, &c, &o) == ATTN_OK);
        CHECKF(same_bits(got, want, n_out), "seed %llu: filled once differs from projected again (batch %d of %d)",
               seed, batch, sources);
        one_plane(&l, &c, x, batch, n_q, o, i % l.a.heads);
        for (int b = 0; b < batch; b++)                                    /* and row by row */
            for (int row = 0; row < n_q; row++) {
                attn_mha_opts one;
                memset(&one, 0, sizeof one);
                one.attn.k_map = map + b;
                CHECK(attn_mha_cross_step(&l.m, got, x + (b * n_q + row) * l.a.d_model, 1, 1, &c, &one) == ATTN_OK);
                CHECKF(same_bits(got, want + (b * n_q + row) * l.a.d_model, (size_t)l.a.d_model),
                       "seed %llu: row %d alone", seed, row);
            }
        attn_kv_free(&c);
        layer_free(&l);
        free(memory); free(memory_v); free(x); free(want); guard_free(got);
    }
}

/* ---- batches ------------------------------------------------------------------------------------------------ */

/* Sentences of different lengths: alone, padded right, padded left, and ragged. The same bits. */
static void padded_batches(void)
{
    enum { BATCH = 4 };
    rng seeds = rng_make(test_seed + 8);
    for (int i = 0; i < 25 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n = rng_int(&r, 0, 2) ? rng_int(&r, 1, 25) : rng_int(&r, 129, 160), causal = rng_int(&r, 0, 1);
        int lengths[BATCH], starts[BATCH], cum[BATCH + 1] = {0};
        float *x[BATCH], *want[BATCH], *right, *left, *ragged, *out;
        layer l;
        int d;
        attn_mha_opts o;
        layer_make(&l, &r, rng_int(&r, 0, 1) ? WITH_ROPE | WITH_NORM : rng_int(&r, 0, 1) * WITH_NORM);
        d = l.a.d_model;
        memset(&o, 0, sizeof o);
        o.attn.causal = causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
        right = floats((size_t)(BATCH * n * d));
        left = floats((size_t)(BATCH * n * d));
        ragged = floats((size_t)(BATCH * n * d));
        out = floats((size_t)(BATCH * n * d));
        for (int y = 0; y < BATCH * n * d; y++) left[y] = right[y] = NAN;
        for (int b = 0; b < BATCH; b++) {
            lengths[b] = rng_int(&r, 0, n);
            starts[b] = n - lengths[b];
            cum[b + 1] = cum[b] + lengths[b];
            x[b] = normal(&r, (size_t)(lengths[b] * d), 1.0);
            want[b] = floats((size_t)(lengths[b] * d));
            CHECK(attn_mha_self(&l.m, want[b], x[b], 1, lengths[b], &o) == ATTN_OK);
            memcpy(right + b * n * d, x[b], (size_t)(lengths[b] * d) * sizeof(float));
            memcpy(left + (b * n + starts[b]) * d, x[b], (size_t)(lengths[b] * d) * sizeof(float));
            memcpy(ragged + cum[b] * d, x[b], (size_t)(lengths[b] * d) * sizeof(float));
        }
        o.attn.k_lengths = o.attn.q_lengths = lengths;
        CHECK(attn_mha_self(&l.m, out, right, BATCH, n, &o) == ATTN_OK);
        for (int b = 0; b < BATCH; b++) {
            CHECKF(same_bits(out + b * n * d, want[b], (size_t)(lengths[b] * d)), "seed %llu: entry %d padded right",
                   seed, b);
            for (int y = lengths[b] * d; y < n * d; y++) CHECK(float_bits(out[b * n * d + y]) == 0);
        }
        o.attn.q_lengths = NULL;
        o.attn.k_lengths = lengths;
        o.attn.k_starts = starts;
        CHECK(attn_mha_self(&l.m, out, left, BATCH, n, &o) == ATTN_OK);
        for (int b = 0; b < BATCH; b++)
            CHECKF(same_bits(out + (b * n + starts[b]) * d, want[b], (size_t)(lengths[b] * d)),
                   "seed %llu: entry %d padded left", seed, b);
        o.attn.k_lengths = o.attn.k_starts = NULL;
        o.attn.q_cum = cum;
        CHECK(attn_mha_self(&l.m, out, ragged, BATCH, rng_int(&r, 0, 1) ? n : 0, &o) == ATTN_OK);
        for (int b = 0; b < BATCH; b++)
            CHECKF(same_bits(out + cum[b] * d, want[b], (size_t)(lengths[b] * d)),
                   "seed %llu: entry %d of a ragged batch", seed, b);
        for (int b = 0; b < BATCH; b++) { free(x[b]); free(want[b]); }
        free(right); free(left); free(ragged); free(out);
        layer_free(&l);
    }
}

/* Cross-attention, rows and memory ragged or padded in every combination, over memory or a filled cache, in a layer
   whose values may have a separate source: each sentence has the bits of a separate call. More memories than sentences
   are legal without a k_map; the last ones have no reader. */
static void ragged_memories(void)
{
    enum { BATCH = 3 };
    rng seeds = rng_make(test_seed + 18);
    for (int i = 0; i < 25 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int n_q = rng_int(&r, 1, 30), n_k = rng_int(&r, 0, 2) ? rng_int(&r, 1, 40) : rng_int(&r, 129, 150);
        int rows[BATCH], keys[BATCH + 1] = {0}, q_cum[BATCH + 1] = {0}, k_cum[BATCH + 1] = {0}, d, dk, dv;
        float *x, *memory, *memory_v, *want, *out, *x_rows, *k_rows, *v_rows;
        attn_kv_args s = {0};
        attn_kv c;
        layer l;
        attn_mha_opts o;
        layer_make(&l, &r, CROSSING | (rng_int(&r, 0, 1) ? WITH_NORM : 0));
        d = l.a.d_model;
        dk = l.a.d_key;
        dv = l.a.d_value;
        x = normal(&r, (size_t)(BATCH * n_q * d), 1.0);                       /* padded: [BATCH][n_q][d] */
        memory = normal(&r, (size_t)((BATCH + 1) * n_k * dk), 1.0);
        memory_v = normal(&r, (size_t)((BATCH + 1) * n_k * dv), 1.0);
        x_rows = floats((size_t)(BATCH * n_q * d));                           /* ragged: [q_cum[BATCH]][d] */
        k_rows = floats((size_t)(BATCH * n_k * dk));
        v_rows = floats((size_t)(BATCH * n_k * dv));
        want = floats((size_t)(BATCH * n_q * d));
        out = floats((size_t)(BATCH * n_q * d));
        for (int b = 0; b < BATCH; b++) {
            rows[b] = rng_int(&r, 0, n_q);
            keys[b] = rng_int(&r, 0, n_k);
            q_cum[b + 1] = q_cum[b] + rows[b];
            k_cum[b + 1] = k_cum[b] + keys[b];
            memcpy(x_rows + q_cum[b] * d, x + b * n_q * d, (size_t)(rows[b] * d) * sizeof(float));
            memcpy(k_rows + k_cum[b] * dk, memory + b * n_k * dk, (size_t)(keys[b] * dk) * sizeof(float));
            memcpy(v_rows + k_cum[b] * dv, memory_v + b * n_k * dv, (size_t)(keys[b] * dv) * sizeof(float));
            memset(&o, 0, sizeof o);
            o.memory_v = memory_v + b * n_k * dv;
            CHECK(attn_mha_cross(&l.m, want + q_cum[b] * d, x_rows + q_cum[b] * d, 1, rows[b], memory + b * n_k * dk,
                                 keys[b], &o) == ATTN_OK);
        }
        s.batch = BATCH;
        s.kv_heads = l.a.kv_heads;
        s.head_dim = l.a.head_dim;
        s.v_head_dim = l.a.v_head_dim;
        s.capacity = n_k;
        CHECK(attn_kv_init(&c, &s) == ATTN_OK);
        memset(&o, 0, sizeof o);
        o.memory_v = memory_v;
        CHECK(attn_mha_cross_fill(&l.m, &c, memory, BATCH, n_k, keys, &o) == ATTN_OK);
        for (int how = 0; how < 10; how++) {              /* memory: padded, ragged, one more, a cache, with k_batch */
            const int q_ragged = how & 1, memories = how / 2, given = rng_int(&r, 0, 1);
            attn_status status;
            memset(&o, 0, sizeof o);
            memset(out, 0x77, (size_t)(BATCH * n_q * d) * sizeof(float));
            o.memory_v = memories == 1 ? v_rows : memory_v;
            if (q_ragged) o.attn.q_cum = q_cum;
            else o.attn.q_lengths = rows;
            if (memories == 1) o.attn.k_cum = k_cum;
            else if (memories < 3) o.attn.k_lengths = keys;
            if (memories == 2) o.attn.k_batch = BATCH + 1;
            if (memories == 4) o.attn.k_batch = BATCH;
            if (memories < 3)
                status = attn_mha_cross(&l.m, out, q_ragged ? x_rows : x, BATCH, q_ragged && !given ? 0 : n_q,
                                        memories == 1 ? k_rows : memory, memories == 1 && !given ? 0 : n_k, &o);
            else
                status = attn_mha_cross_step(&l.m, out, q_ragged ? x_rows : x, BATCH, q_ragged && !given ? 0 : n_q, &c,
                                             &o);
            CHECKF(status == ATTN_OK, "seed %llu, way %d: %s", seed, how, attn_status_str(status));
            for (int b = 0; b < BATCH; b++) {
                const float *mine = out + (q_ragged ? q_cum[b] : b * n_q) * d;
                CHECKF(same_bits(mine, want + q_cum[b] * d, (size_t)(rows[b] * d)), "seed %llu, way %d: entry %d", seed,
                       how, b);
                for (int y = rows[b] * d; !q_ragged && y < n_q * d; y++)
                    CHECKF(float_bits(mine[y]) == 0, "seed %llu, way %d: padding of entry %d", seed, how, b);
            }
            if (q_ragged)
                CHECKF(untouched(out + q_cum[BATCH] * d, (size_t)((BATCH * n_q - q_cum[BATCH]) * d) * sizeof(float)),
                       "seed %llu, way %d: wrote behind the last row", seed, how);
        }
        CHECK(attn_mha_cross_fill(&l.m, &c, NULL, BATCH, 0, NULL, NULL) == ATTN_OK);      /* every row is empty now */
        for (int b = 0; b < BATCH; b++) CHECK(c.lengths[b] == 0);
        memset(&o, 0, sizeof o);
        CHECK(attn_mha_cross_step(&l.m, out, x, BATCH, 1, &c, &o) == ATTN_OK);
        for (int y = 0; y < BATCH * d; y++)
            CHECK(float_bits(out[y]) == (l.b[3] ? float_bits(l.b[3][y % d] + 0.0f) : 0));
        attn_kv_free(&c);
        free(x); free(memory); free(memory_v); free(x_rows); free(k_rows); free(v_rows); free(want); free(out);
        layer_free(&l);
    }
}

/* A sentence of 400 rows through a cache for 256 that forgets keys outside the window: the rows of one call, and
   weights as wide as the sentence, in work memory of the size that attn_mha_workspace returns. */
static void forgetting(void)
{
    enum { N = 400, PIECE = 50, WINDOW = 60, CAPACITY = 256 };
    rng r = rng_make(test_seed + 33);
    layer l;
    attn_kv c;
    attn_mha_opts o;
    layer_make(&l, &r, WITH_ROPE);
    cache_make(&c, &l, 1, CAPACITY);
    memset(&o, 0, sizeof o);
    o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
    o.attn.window_left = WINDOW;
    const int d = l.a.d_model;
    float *x = normal(&r, (size_t)(N * d), 1.0), *whole = floats((size_t)(N * d));
    float *out = guard_floats((size_t)(PIECE * d));
    float *weights = guard_floats((size_t)(N * N)), *mean = guard_floats((size_t)(PIECE * N));
    o.attn.weights = weights;
    o.weights_mean = 1;
    CHECK(attn_mha_self(&l.m, whole, x, 1, N, &o) == ATTN_OK);
    o.attn.causal = ATTN_CAUSAL_NONE;
    o.attn.weights = mean;
    for (int i = 0; i < N; i += PIECE) {
        const int length = i + PIECE, most = length > CAPACITY ? length : CAPACITY;
        void *work;
        o.attn.work_size = attn_mha_workspace(&l.m, ATTN_MHA_SELF_STEP, 1, PIECE, most, &o);
        o.attn.work = work = guard_alloc(o.attn.work_size);
        CHECKF(attn_mha_self_step(&l.m, out, x + i * d, 1, PIECE, &c, &o) == ATTN_OK, "row %d", i);
        CHECKF(same_bits(out, whole + i * d, (size_t)(PIECE * d)), "rows from %d", i);
        for (int row = 0; row < PIECE; row++)
            CHECKF(same_bits(mean + row * length, weights + (i + row) * N, (size_t)length), "weights of row %d",
                   i + row);
        guard_free(work);
        CHECK(attn_kv_forget(&c, 0, 0, length - WINDOW + 1) == ATTN_OK);
    }
    CHECK(c.lengths[0] == N);
    attn_kv_free(&c);
    free(x); free(whole);
    guard_free(out); guard_free(weights); guard_free(mean);
    layer_free(&l);
}

/* Fewer entries than the cache has: reads use the first ones, writes require a count for each entry. */
static void fewer_entries(void)
{
    enum { BATCH = 3, KEYS = 5 };
    static const int sources[BATCH] = {KEYS, 2, 0}, news[BATCH] = {1, 1, 0};
    rng r = rng_make(test_seed + 34);
    layer l;
    attn_kv c;
    attn_mha_opts o;
    memset(&o, 0, sizeof o);
    layer_make(&l, &r, 0);
    cache_make(&c, &l, BATCH, 2 * KEYS);
    const int d = l.a.d_model;
    float *x = normal(&r, (size_t)(BATCH * KEYS * d), 1.0), *whole = floats((size_t)(BATCH * d));
    float *out = guard_floats((size_t)(2 * d));
    REFUSED(attn_mha_cross_fill(&l.m, &c, x, 2, KEYS, sources, NULL), ATTN_E_SIZE, "batch of the cache is 3 but 2");
    CHECK(attn_mha_cross_fill(&l.m, &c, x, BATCH, KEYS, sources, NULL) == ATTN_OK);
    for (int b = 0; b < BATCH; b++) CHECK(c.lengths[b] == sources[b]);
    CHECK(attn_mha_cross_step(&l.m, whole, x, BATCH, 1, &c, NULL) == ATTN_OK);
    CHECK(attn_mha_cross_step(&l.m, out, x, 2, 1, &c, NULL) == ATTN_OK);
    CHECK(same_bits(out, whole, (size_t)(2 * d)));
    REFUSED(attn_mha_self_step(&l.m, out, x, 2, 1, &c, NULL), ATTN_E_SIZE, "batch is 2 but the cache has 3 entries");
    attn_kv front = c;                                        /* values that a layer could not store */
    front.shape.v_in_k = 1;
    REFUSED(attn_mha_self_step(&l.m, out, x, BATCH, 1, &front, NULL), ATTN_E_CONFLICT, "v_in_k, but a layer makes");
    REFUSED(attn_mha_cross_step(&l.m, out, x, BATCH, 1, &front, NULL), ATTN_E_CONFLICT, "c has v_in_k");
    REFUSED(attn_mha_cross_fill(&l.m, &front, x, BATCH, KEYS, sources, NULL), ATTN_E_CONFLICT, "c has v_in_k");
    o.attn.q_lengths = news;
    CHECK(attn_mha_self_step(&l.m, whole, x, BATCH, 1, &c, &o) == ATTN_OK);
    for (int b = 0; b < BATCH; b++) CHECK(c.lengths[b] == sources[b] + news[b]);
    for (int y = 0; y < d; y++) CHECK(float_bits(whole[2 * d + y]) == 0);
    attn_kv_free(&c);
    free(x); free(whole);
    guard_free(out);
    layer_free(&l);
}

/* A layer over a cache in 8 bits: steps of one row, of several, and all rows at once, with the workspace that
   attn_mha_workspace returns. */
static void eight_bits(void)
{
    enum { N = 150 };
    rng r = rng_make(test_seed + 71);
    layer l;
    layer_make(&l, &r, WITH_ROPE);
    const int d = l.a.d_model;
    float *x = normal(&r, (size_t)(N * d), 1.0), *whole = floats((size_t)(N * d)), *out = guard_floats((size_t)(N * d));
    for (int way = 0; way < 3; way++) {
        attn_kv_args shape = {.batch = 1, .kv_heads = l.a.kv_heads, .head_dim = l.a.head_dim,
                              .v_head_dim = l.a.v_head_dim, .capacity = N, .k_storage = ATTN_Q8, .v_storage = ATTN_Q8};
        attn_kv c;
        CHECK(attn_kv_init(&c, &shape) == ATTN_OK);
        for (int at = 0, rows; at < N; at += rows) {
            attn_mha_opts o;
            void *work;
            rows = way == 0 ? N : way == 1 ? 1 : rng_int(&r, 1, 60);
            if (rows > N - at) rows = N - at;
            memset(&o, 0, sizeof o);
            o.attn.work_size = attn_mha_workspace(&l.m, ATTN_MHA_SELF_STEP, 1, rows, N, &o);
            o.attn.work = work = guard_alloc(o.attn.work_size);
            CHECKF(attn_mha_self_step(&l.m, (way ? out : whole) + at * d, x + at * d, 1, rows, &c, &o) == ATTN_OK,
                   "%s", refusal_text());
            guard_free(work);
        }
        if (way) CHECKF(same_bits(out, whole, (size_t)(N * d)), "way %d", way);
        attn_kv_free(&c);
    }
    guard_free(out);
    free(x);
    free(whole);
    layer_free(&l);
}

/* Any two formats of a cache: the workspace that attn_mha_workspace returns is enough. */
static void workspace_of_formats(void)
{
    static const int rows[] = {1, 4, 5, 17, 40};
    rng r = rng_make(test_seed + 72);
    float *w = normal(&r, 32 * 32, 0.2), *x = normal(&r, 40 * 32, 1.0), *y = floats(40 * 32);
    for (int i = 0; i < 2 * 16 * 5; i++) {
        const attn_mha_args a = {.d_model = 32, .heads = 4, .kv_heads = i / 80 + 1, .head_dim = 8,
                                 .w_q = w, .w_k = w, .w_v = w, .w_o = w};
        const attn_kv_args shape = {.batch = 1, .kv_heads = a.kv_heads, .head_dim = 8, .capacity = 300,
                                    .k_storage = (attn_storage)(i % 4), .v_storage = (attn_storage)(i / 4 % 4)};
        const int n = rows[i / 16 % 5];
        attn_mha_opts o;
        attn_mha m;
        attn_kv c;
        void *work;
        memset(&o, 0, sizeof o);
        CHECK(attn_mha_init(&m, &a) == ATTN_OK && attn_kv_init(&c, &shape) == ATTN_OK);
        o.attn.work_size = attn_mha_workspace(&m, ATTN_MHA_SELF_STEP, 1, n, 300, &o);
        o.attn.work = work = guard_alloc(o.attn.work_size);
        CHECKF(attn_mha_self_step(&m, y, x, 1, n, &c, &o) == ATTN_OK, "%d rows, storage %d and %d: %s", n,
               (int)shape.k_storage, (int)shape.v_storage, refusal_text());
        guard_free(work);
        attn_kv_free(&c);
        attn_mha_free(&m);
    }
    free(w);
    free(x);
    free(y);
}

extern const test_case suite_steps[];
SUITE(steps) = {
    {"self", self_steps, "decoding that differs from prefill: positions, rotation, counts, padding"},
    {"cross", cross_steps, "a filled memory that differs from a projected one, or is read by the wrong query"},
    {"padded batches", padded_batches, "a sentence whose bits depend on padding or neighbours"},
    {"forgetting", forgetting, "a sliding cache in a layer: rotation, the width of weights, too little work"},
    {"fewer entries", fewer_entries, "a batch smaller than the cache's that reads or writes other entries"},
    {"ragged memories", ragged_memories, "a sentence that reads its neighbour's memory when either side is ragged"},
    {"eight bits", eight_bits,
     "rows of a layer in steps that differ from all at once with a cache in 8 bits; its workspace"},
    {"workspace of formats", workspace_of_formats,
     "too little work for a cache whose keys and values differ in format"},
    {0}};
