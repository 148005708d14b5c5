/* test_delta.c: attn_delta and attn_conv, linear attention. */
#include <float.h>

#include "layer.h"
#include "torch_delta.h"

#ifndef ATTN_NO_DELTA
/* ---- random calls ------------------------------------------------------------------------------------------ */
enum { OUT, Q, K, V, G, BETA, TENSORS };

/* One call. All arrays end at guard pages. Tensors are contiguous, [batch][row][head][x] with gaps between rows, or
   [batch][head][row][x]. */
typedef struct delta_case {
    attn_delta_args a;
    float *at[TENSORS], *state, *start;   /* start: the state before the call */
    ptrdiff_t stride[TENSORS][3];
    size_t cells[TENSORS], states;
    int lengths[4], cum[5];
    struct delta_case *made;              /* to be freed: q_lengths and q_cum point into it */
} delta_case;

static int delta_rows(const delta_case *c, int b)
{
    return c->a.q_cum ? c->cum[b + 1] - c->cum[b] : c->a.q_lengths ? c->lengths[b] : c->a.n;
}

/* The place of row t of head h of entry b. */
static ptrdiff_t delta_at(const delta_case *c, int i, int b, int t, int h)
{
    const ptrdiff_t *s = c->stride[i];
    return (c->a.q_cum ? c->cum[b] * s[1] : b * s[0]) + t * s[1] + h * s[2];
}

static ptrdiff_t *delta_strides(delta_case *c, int i)
{
    ptrdiff_t *const all[] = {c->a.out_stride, c->a.q_stride, c->a.k_stride, c->a.v_stride, c->a.g_stride,
                              c->a.beta_stride};
    return all[i];
}

static void delta_point(delta_case *c, float *const at[TENSORS])
{
    c->a.out = at[OUT], c->a.q = at[Q], c->a.k = at[K], c->a.v = at[V], c->a.g = at[G], c->a.beta = at[BETA];
}

static int delta_v_dim(const delta_case *c) { return c->a.v_head_dim ? c->a.v_head_dim : c->a.head_dim; }

static void delta_make(delta_case *made, rng *r)
{
    static const int dims[] = {1, 2, 3, 4, 5, 8, 16, 31, 34, 64}, v_dims[] = {0, 1, 7, 16, 32, 33, 40, 64, 100};
    int rows, heads[TENSORS], width[TENSORS];
    memset(made, 0, sizeof *made);
    made->a.batch = rng_int(r, 1, 3);
    made->a.n = rng_int(r, 0, 2) ? rng_int(r, 1, 6) : rng_int(r, 1, 70);
    made->a.k_heads = rng_int(r, 1, 2);
    made->a.heads = made->a.k_heads * rng_int(r, 1, 3);
    if (made->a.heads == made->a.k_heads && rng_int(r, 0, 1)) made->a.k_heads = 0;
    made->a.head_dim = dims[rng_int(r, 0, 9)];
    made->a.v_head_dim = v_dims[rng_int(r, 0, 8)];
    made->a.rule = rng_int(r, 0, 2) ? ATTN_RULE_DELTA : ATTN_RULE_ADD;
    made->a.scale = rng_int(r, 0, 1) ? 0.0f : -0.375f;
    made->a.qk_norm = rng_int(r, 0, 1);
    made->a.norm_eps = rng_int(r, 0, 1) ? 0.0f : 0.25f;
    rows = made->a.n;
    switch (rng_int(r, 0, 2)) {
    case 0:
        for (int b = 0; b < made->a.batch; b++) made->lengths[b] = rng_int(r, 0, made->a.n);
        made->a.q_lengths = made->lengths;
        break;
    case 1:
        made->cum[0] = rng_int(r, 0, 2);
        for (int b = 0; b < made->a.batch; b++) made->cum[b + 1] = made->cum[b] + (b ? rng_int(r, 0, made->a.n)
                                                                                   : made->a.n);
        rows = made->cum[made->a.batch];
        made->a.q_cum = made->cum;
        if (rng_int(r, 0, 1)) made->a.n = 0;
    }
    made->a.g_per_component = rng_int(r, 0, 1);
    heads[OUT] = heads[V] = heads[G] = heads[BETA] = made->a.heads;
    heads[Q] = heads[K] = made->a.k_heads ? made->a.k_heads : made->a.heads;
    width[OUT] = width[V] = delta_v_dim(made);
    width[Q] = width[K] = made->a.head_dim;
    width[G] = made->a.g_per_component ? made->a.head_dim : 1;
    width[BETA] = 1;
    for (int i = 0; i < TENSORS; i++) {
        const int how = rng_int(r, 0, 2), batch = made->a.q_cum ? 1 : made->a.batch;
        ptrdiff_t *const s = made->stride[i];
        if (how == 2) {
            s[1] = width[i], s[2] = rows * width[i], s[0] = heads[i] * s[2];
        } else {
            s[2] = width[i], s[1] = heads[i] * width[i] + (how ? rng_int(r, 0, 5) : 0);
            s[0] = rows * s[1];
        }
        made->cells[i] = (size_t)((batch - 1) * s[0] + (rows - 1) * s[1] + (heads[i] - 1) * s[2] + width[i]);
        if ((i == G && !made->a.g_per_component && rng_int(r, 0, 1)) || (i == BETA && rng_int(r, 0, 2) == 0)) continue;
        made->at[i] = guard_floats(made->cells[i]);
        rng_fill(r, made->at[i], made->cells[i]);
        for (size_t j = 0; j < made->cells[i]; j++) {
            float *x = made->at[i] + j;
            if (i == K) *x /= sqrtf((float)made->a.head_dim);           /* so that the recurrence does not grow */
            if (i == G) *x = rng_int(r, 0, 9) ? -0.5f * fabsf(*x) : 0.1f * *x;
            if (i == BETA) *x = 1.0f / (1.0f + *x * *x);
        }
        if (how) memcpy(delta_strides(made, i), s, sizeof made->stride[i]);
    }
    delta_point(made, made->at);
    made->states = (size_t)(made->a.batch * made->a.heads * made->a.head_dim * delta_v_dim(made));
    made->a.state = made->state = guard_floats(made->states);
    made->start = floats(made->states);
    if (rng_int(r, 0, 3)) rng_fill(r, made->start, made->states);
    else memset(made->start, 0, made->states * sizeof(float));
    memcpy(made->state, made->start, made->states * sizeof(float));
}

static delta_case *delta_new(rng *r)
{
    delta_case *c = malloc(sizeof *c);
    if (!c) abort();
    delta_make(c, r);
    c->made = c;
    return c;
}

static void delta_free(delta_case *c)
{
    free(c->made);
    for (int i = 0; i < TENSORS; i++) if (c->at[i]) guard_free(c->at[i]);
    guard_free(c->state); free(c->start);
}

/* Runs the rows from .. to-1 of entry b of the case alone, from and to the state at `state`. */
static void delta_piece(const delta_case *c, int b, int from, int to, float *out, float *state, const attn_exec *exec)
{
    delta_case one = *c;
    float *at[TENSORS];
    const size_t all = c->states / (size_t)c->a.batch;
    for (int i = 0; i < TENSORS; i++) at[i] = c->at[i] ? c->at[i] + delta_at(c, i, b, from, 0) : NULL;
    at[OUT] = out + delta_at(c, OUT, b, from, 0);
    delta_point(&one, at);
    for (int i = 0; i < TENSORS; i++) memcpy(delta_strides(&one, i), c->stride[i], sizeof c->stride[i]);
    one.a.state = state + (size_t)b * all;
    one.a.batch = 1, one.a.n = to - from, one.a.q_lengths = one.a.q_cum = NULL, one.a.exec = exec;
    CHECKF(attn_delta(&one.a) == ATTN_OK, "%s", refusal_text());
}

/* ---- the recurrence in double ------------------------------------------------------------------------------ */
static int delta_fused(attn_backend backend) { return backend != ATTN_SSE2 && backend != ATTN_WASM; }

/* One row of one head from the float state `before`, in double, with a bound of the error of each result: each
   operation of the contract rounds by at most EPS = 2^-24 of its result, exp by 4 of them (1.4 ulp, and a division for
   g > 0), a normed q or k by 4; a chain of n fma by n times EPS of the sum of magnitudes, twice as
   much without fma. */
static void delta_step(const delta_case *c, int b, int t, int h, const float *before, const float *after,
                       const float *out)
{
    const int n = c->a.head_dim, dim = delta_v_dim(c), k_heads = c->a.k_heads ? c->a.k_heads : c->a.heads;
    const int kh = h / (c->a.heads / k_heads);
    const double EPS = ldexp(1.0, -24), chain = 2.0 * n * EPS;
    const double eps = c->a.norm_eps != 0 ? (double)c->a.norm_eps : 1e-6;
    const double scale = c->a.scale != 0 ? (double)c->a.scale : 1 / sqrt(n), norm = c->a.qk_norm ? 4 * EPS : 0;
    const float *q = c->at[Q] + delta_at(c, Q, b, t, kh), *k = c->at[K] + delta_at(c, K, b, t, kh);
    const float *g = c->at[G] ? c->at[G] + delta_at(c, G, b, t, h) : NULL;
    const double beta = c->at[BETA] ? (double)c->at[BETA][delta_at(c, BETA, b, t, h)] : 1.0;
    double q2 = eps, k2 = eps;
    for (int i = 0; i < n; i++) q2 += (double)q[i] * (double)q[i], k2 += (double)k[i] * (double)k[i];
    if (!c->a.qk_norm) q2 = k2 = 1;
    for (int x = 0; x < dim; x++) {
        const double v = (double)c->at[V][delta_at(c, V, b, t, h) + x];
        double u = 0, u_size = 0, u_error, d, d_error, o = 0, o_error = 0;
        for (int i = 0; i < n; i++) {
            const double e = g ? exp((double)g[c->a.g_per_component ? i : 0]) : 1.0;
            const double s = e * (double)before[i * dim + x];
            u += (double)k[i] / sqrt(k2) * s;
            u_size += fabs((double)k[i] / sqrt(k2) * s);
        }
        u_error = u_size * (chain + norm + 5 * EPS);
        d = c->a.rule == ATTN_RULE_ADD ? beta * v : beta * (v - u);
        d_error = 2 * EPS * fabs(d) + (c->a.rule == ATTN_RULE_ADD ? 0 : fabs(beta) * u_error);
        for (int i = 0; i < n; i++) {
            const double e = g ? exp((double)g[c->a.g_per_component ? i : 0]) : 1.0, kc = (double)k[i] / sqrt(k2);
            const double old = e * (double)before[i * dim + x], s = old + kc * d, qc = (double)q[i] / sqrt(q2) * scale;
            const double error = 5 * EPS * fabs(old) + fabs(kc) * d_error + (norm + 2 * EPS) * fabs(kc * d) +
                EPS * fabs(s) + 1e-37;
            CHECKF(fabs((double)after[i * dim + x] - s) <= 1.001 * error,
                   "state [%d][%d] is %.9g, not %.9g within %.2g", i, x,
                   (double)after[i * dim + x], s, error);
            o += qc * s;
            o_error += fabs(qc) * error + fabs(qc * s) * (chain + norm + 2 * EPS);
        }
        CHECKF(fabs((double)out[x] - o) <= 1.001 * o_error + 1e-37, "out [%d] is %.9g, not %.9g within %.2g", x,
               (double)out[x],
               o, o_error);
    }
}

/* Row by row against the recurrence, then the whole call against these rows, bit for bit. */
static void delta_oracle(void)
{
    attn_backend list[16];
    const int backends = attn_backends(list, 16);
    rng r = rng_make(test_seed);
    for (int t = 0; t < 150 * test_scale && !test_failed(); t++) {
        delta_case c = *delta_new(&r);
        const int dim = delta_v_dim(&c);
        const size_t head = (size_t)(c.a.head_dim * dim);
        float *want = floats(c.cells[OUT]), *state = floats(c.states), *before = floats(c.states);
        c.a.backend = list[rng_int(&r, 0, backends - 1)];
        for (size_t i = 0; i < c.cells[OUT]; i++) c.at[OUT][i] = want[i] = 12345.0f;
        memcpy(state, c.start, c.states * sizeof(float));
        for (int b = 0; b < c.a.batch; b++) {
            const int rows = delta_rows(&c, b), padded = c.a.q_cum ? 0 : c.a.n;
            for (int i = 0; i < rows; i++) {
                memcpy(before, state, c.states * sizeof(float));
                delta_piece(&c, b, i, i + 1, want, state, NULL);
                for (int h = 0; h < c.a.heads && !test_failed(); h++) {
                    const size_t at = (size_t)(b * c.a.heads + h) * head;
                    delta_step(&c, b, i, h, before + at, state + at, want + delta_at(&c, OUT, b, i, h));
                }
            }
            for (int i = rows; i < padded; i++)
                for (int h = 0; h < c.a.heads; h++)
                    memset(want + delta_at(&c, OUT, b, i, h), 0, (size_t)dim * sizeof(float));
        }
        CHECKF(attn_delta(&c.a) == ATTN_OK, "%s", refusal_text());
        CHECKF(same_bits(c.at[OUT], want, c.cells[OUT]), "case %d: the whole prompt has other bits than its rows", t);
        CHECKF(same_bits(c.state, state, c.states), "case %d: the whole prompt leaves another state", t);
        free(want); free(state); free(before);
        delta_free(&c);
    }
}

/* The same bits: any cut into calls with threads, every backend with fma, work memory of the caller, a draft that is
   taken back. */
static void delta_bits(void)
{
    attn_backend list[16];
    const int backends = attn_backends(list, 16);
    rng r = rng_make(test_seed + 1);
    for (int t = 0; t < 100 * test_scale && !test_failed(); t++) {
        delta_case c = *delta_new(&r);
        float *want = floats(c.cells[OUT]), *state = floats(c.states), *out = floats(c.cells[OUT]),
            *draft = floats(c.states);
        attn_exec exec = test_exec(rng_int(&r, 1, 40));
        char *work;
        for (size_t i = 0; i < c.cells[OUT]; i++) c.at[OUT][i] = out[i] = 12345.0f;
        CHECKF(attn_delta(&c.a) == ATTN_OK, "%s", refusal_text());
        memcpy(want, c.at[OUT], c.cells[OUT] * sizeof(float));
        memcpy(state, c.state, c.states * sizeof(float));
        for (int b = 0; b < backends; b++) {
            if (!delta_fused(list[b]) || !delta_fused(list[0])) continue;
            c.a.backend = list[b], c.a.exec = &exec;
            c.a.work_size = attn_delta_workspace(&c.a);
            c.a.work = work = malloc(c.a.work_size + 1);
            memset(work, 0xFF, c.a.work_size + 1);
            c.a.work = work + rng_int(&r, 0, 1);
            memcpy(c.state, c.start, c.states * sizeof(float));
            CHECKF(attn_delta(&c.a) == ATTN_OK, "%s", refusal_text());
            CHECKF(same_bits(c.at[OUT], want, c.cells[OUT]) && same_bits(c.state, state, c.states), "%s, width %d",
                   attn_backend_name(list[b]), exec.width);
            free(work);
            c.a.work = NULL;
        }
        c.a.backend = ATTN_AUTO;
        memcpy(c.state, c.start, c.states * sizeof(float));
        for (int b = 0; b < c.a.batch; b++) {
            const int rows = delta_rows(&c, b);
            for (int i = 0, n; i < rows; i += n) {
                n = rng_int(&r, 1, rows - i);
                memcpy(draft, c.state, c.states * sizeof(float));
                delta_piece(&c, b, i, rows, out, c.state, NULL);
                memcpy(c.state, draft, c.states * sizeof(float));
                delta_piece(&c, b, i, i + n, out, c.state, &exec);
            }
            for (int i = rows; !c.a.q_cum && i < c.a.n; i++)
                for (int h = 0; h < c.a.heads; h++)
                    memset(out + delta_at(&c, OUT, b, i, h), 0, (size_t)delta_v_dim(&c) * sizeof(float));
        }
        CHECKF(same_bits(out, want, c.cells[OUT]) && same_bits(c.state, state, c.states), "case %d in pieces", t);
        free(want); free(state); free(out); free(draft);
        delta_free(&c);
    }
}

/* Rows that do not exist and gaps between rows are NaN; entries are independent. */
static void delta_poison(void)
{
    rng r = rng_make(test_seed + 2);
    for (int t = 0; t < 100 * test_scale && !test_failed(); t++) {
        delta_case c = *delta_new(&r);
        float *want = floats(c.cells[OUT]), *state = floats(c.states), *old[TENSORS] = {0};
        for (size_t i = 0; i < c.cells[OUT]; i++) c.at[OUT][i] = 12345.0f;
        CHECKF(attn_delta(&c.a) == ATTN_OK, "%s", refusal_text());
        memcpy(want, c.at[OUT], c.cells[OUT] * sizeof(float));
        memcpy(state, c.state, c.states * sizeof(float));
        for (int i = Q; i < TENSORS; i++) {
            const int heads = (i == Q || i == K) && c.a.k_heads ? c.a.k_heads : c.a.heads;
            const int width = i == V ? delta_v_dim(&c) : i == BETA || (i == G && !c.a.g_per_component) ? 1
                : c.a.head_dim;
            if (!c.at[i]) continue;
            old[i] = floats(c.cells[i]);
            memcpy(old[i], c.at[i], c.cells[i] * sizeof(float));
            for (size_t j = 0; j < c.cells[i]; j++) c.at[i][j] = NAN;
            for (int b = 0; b < c.a.batch; b++)
                for (int row = 0; row < delta_rows(&c, b); row++)
                    for (int h = 0; h < heads; h++)
                        memcpy(c.at[i] + delta_at(&c, i, b, row, h), old[i] + delta_at(&c, i, b, row, h),
                               (size_t)width * sizeof(float));
        }
        memcpy(c.state, c.start, c.states * sizeof(float));
        CHECK(attn_delta(&c.a) == ATTN_OK);
        CHECKF(same_bits(c.at[OUT], want, c.cells[OUT]) && same_bits(c.state, state, c.states), "case %d", t);
        for (int i = Q; i < TENSORS; i++) free(old[i]);
        free(want); free(state);
        delta_free(&c);
    }
}

/* A decay per head and equal decays per component; k_heads and repeated rows of q and k. */
static void delta_equal(void)
{
    rng r = rng_make(test_seed + 3);
    for (int t = 0; t < 60 * test_scale && !test_failed(); t++) {
        delta_case c = *delta_new(&r);
        const int n = c.a.head_dim, rows = c.a.batch * c.a.n, heads = c.a.heads;
        float *want, *state, *g;
        if (!c.at[G] || c.a.g_per_component || c.a.q_cum) { delta_free(&c); continue; }
        want = floats(c.cells[OUT]), state = floats(c.states), g = floats((size_t)(rows * heads * n));
        for (size_t i = 0; i < c.cells[OUT]; i++) c.at[OUT][i] = 12345.0f;
        CHECK(attn_delta(&c.a) == ATTN_OK);
        memcpy(want, c.at[OUT], c.cells[OUT] * sizeof(float));
        memcpy(state, c.state, c.states * sizeof(float));
        for (int i = 0; i < rows * heads; i++)
            for (int j = 0; j < n; j++)
                g[i * n + j] = c.at[G][delta_at(&c, G, i / heads / c.a.n, i / heads % c.a.n, i % heads)];
        c.a.g = g, c.a.g_per_component = 1;
        memset(c.a.g_stride, 0, sizeof c.a.g_stride);
        memcpy(c.state, c.start, c.states * sizeof(float));
        CHECK(attn_delta(&c.a) == ATTN_OK);
        CHECKF(same_bits(c.at[OUT], want, c.cells[OUT]) && same_bits(c.state, state, c.states), "case %d", t);
        free(want); free(state); free(g);
        delta_free(&c);
    }
}

/* Enough work that tasks are started, with heads in several groups of slices. */
static void delta_threads(void)
{
    enum { N = 70, HEADS = 3, DIM = 64, WIDE = 200 };
    rng r = rng_make(test_seed + 4);
    float *q = normal(&r, N * HEADS * DIM, 1.0), *k = normal(&r, N * HEADS * DIM, 1.0),
        *v = normal(&r, N * HEADS * WIDE, 1.0);
    float *one = floats(N * HEADS * WIDE), *many = floats(N * HEADS * WIDE), *states = floats(2 * HEADS * DIM * WIDE);
    static const int widths[] = {2, 3, 5, 16, 64};
    attn_delta_args a = {.out = one, .state = states, .q = q, .k = k, .v = v, .batch = 1, .n = N, .heads = HEADS,
                         .head_dim = DIM, .v_head_dim = WIDE, .qk_norm = 1};
    memset(states, 0, HEADS * DIM * WIDE * sizeof(float));
    CHECK(attn_delta(&a) == ATTN_OK);
    for (int i = 0; i < 5; i++) {
        attn_exec exec = test_exec(widths[i]);
        a.exec = &exec, a.out = many, a.state = states + HEADS * DIM * WIDE;
        memset(a.state, 0, HEADS * DIM * WIDE * sizeof(float));
        memset(many, 0xFF, N * HEADS * WIDE * sizeof(float));
        CHECK(attn_delta(&a) == ATTN_OK);
        CHECKF(same_bits(one, many, N * HEADS * WIDE), "%d threads", widths[i]);
        CHECKF(same_bits(states, a.state, HEADS * DIM * WIDE), "the state of %d threads", widths[i]);
    }
    free(q); free(k); free(v); free(one); free(many); free(states);
}

/* A NaN of v stays in its column; a decay of exp(-inf) forgets; -0 and other NaNs are not stored. 2 and 5 rows: in
   place, and in a slice. */
static void delta_not_finite(void)
{
    enum { DIM = 3, WIDE = 32 };
    for (int n = 2; n <= 5; n += 3) {
        float q[5 * DIM], k[5 * DIM], v[5 * WIDE], g[5] = {-INFINITY, 0, 0, 0, 0}, out[5 * WIDE], state[DIM * WIDE];
        attn_delta_args a = {.out = out, .state = state, .q = q, .k = k, .v = v, .g = g, .batch = 1, .n = n, .heads = 1,
                             .head_dim = DIM, .v_head_dim = WIDE, .scale = 1.0f};
        for (int i = 0; i < 5 * DIM; i++) q[i] = 1.0f, k[i] = i % DIM ? 0.0f : -1.0f;
        for (int i = 0; i < 5 * WIDE; i++) v[i] = i % WIDE == 7 ? -NAN : i % WIDE == 8 ? INFINITY : 0.0f;
        for (int i = 0; i < DIM * WIDE; i++) state[i] = -3.0f;
        CHECK(attn_delta(&a) == ATTN_OK);
        for (int i = 0; i < n * WIDE; i++)
            if (i % WIDE != 8)
                CHECKF(float_bits(out[i]) == (i % WIDE == 7 ? 0x7FC00000u : 0u), "%d rows, out %d: %08x", n, i,
                       float_bits(out[i]));
        for (int i = 0; i < DIM * WIDE; i++)
            if (i % WIDE != 8)
                CHECKF(float_bits(state[i]) == (i % WIDE == 7 ? 0x7FC00000u : 0u), "%d rows, state %d", n, i);
        CHECK(out[8] != out[8]);          /* 0 * inf by IEEE 754 */
    }
    {   /* a negative product with scale that underflows is stored as +0 */
        attn_backend list[16];
        const int backends = test_all_backends(list, 16);
        float one = 1.0f, least = -0x1p-149f, out = 1.0f, state = 0.0f;
        attn_delta_args a = {.out = &out, .state = &state, .q = &one, .k = &one, .v = &least, .batch = 1, .n = 1,
                             .heads = 1, .head_dim = 1, .scale = 0.25f};
        for (int b = 0; b < backends; b++, state = 0.0f) {
            a.backend = list[b];
            CHECK(attn_delta(&a) == ATTN_OK);
            CHECKF(float_bits(out) == 0u, "%s: out %08x", attn_backend_name(list[b]), float_bits(out));
        }
    }
    {   /* exp(g): 0, 1, e, 1/e, +inf, +0 below -87.3; seen in a state of ones */
        float g[8] = {-0.0f, 0.0f, 1.0f, -1.0f, 100.0f, -88.0f, NAN, INFINITY}, zero[8] = {0}, one[8], out;
        attn_delta_args a = {.out = &out, .state = one, .q = zero, .k = zero, .v = zero, .g = g, .batch = 1, .n = 1,
                             .heads = 1, .head_dim = 8, .v_head_dim = 1, .g_per_component = 1, .rule = ATTN_RULE_ADD};
        for (int i = 0; i < 8; i++) one[i] = 1.0f;
        CHECK(attn_delta(&a) == ATTN_OK);
        CHECK(one[0] == 1.0f && one[1] == 1.0f && one[4] == INFINITY && float_bits(one[5]) == 0u);
        CHECK(fabsf(one[2] - 2.71828183f) <= 1e-6f && fabsf(one[3] - 0.367879441f) <= 1e-7f);
        CHECK(float_bits(one[6]) == 0x7FC00000u && one[7] == INFINITY);
    }
}

/* ---- torch ------------------------------------------------------------------------------------------------- */
/* the same numbers as number() of torch_delta.py */
static float delta_number(uint32_t stream, uint32_t i)
{
    uint32_t x = stream * 0x9E3779B1u + i * 0x85EBCA77u + 0x27D4EB2Fu;
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    x ^= x >> 13;
    return (float)((int)(x & 0x1FFFu) - 4096) / 4096.0f;
}

static void delta_numbers(float *x, uint32_t stream, int n)
{
    for (int i = 0; i < n; i++) x[i] = delta_number(stream, (uint32_t)i);
}

static void delta_near(const char *name, const float *x, const double *want, int n, double within)
{
    for (int i = 0; i < n; i++)
        CHECKF(fabs((double)x[i] - want[i]) <= within, "%s [%d] is %.9g, but torch has %.9g", name, i, (double)x[i],
               want[i]);
}

/* The functions of transformers for Qwen3-Next and Mamba-2, and torch's conv1d, in double. All magnitudes are below 4
   and 11 rows of at most 8 components are added, each with a few roundings of 2^-24: 1e-5 is ten times more. */
static void delta_torch(void)
{
    float q[TORCH_N * TORCH_K_HEADS * TORCH_DIM], k[TORCH_N * TORCH_K_HEADS * TORCH_DIM],
        v[TORCH_N * TORCH_HEADS * TORCH_V_DIM];
    float g[TORCH_N * TORCH_HEADS], beta[TORCH_N * TORCH_HEADS], out[TORCH_N * TORCH_HEADS * TORCH_V_DIM];
    float state[TORCH_HEADS * TORCH_DIM * TORCH_V_DIM], x[TORCH_N * TORCH_DIM], w[TORCH_DIM * TORCH_WIDTH],
        bias[TORCH_DIM];
    float before[(TORCH_WIDTH - 1) * TORCH_DIM], y[TORCH_N * TORCH_DIM];
    attn_delta_args a = {.out = out, .state = state, .q = q, .k = k, .v = v, .g = g, .beta = beta, .batch = 1,
                         .n = TORCH_N,
                         .heads = TORCH_HEADS, .k_heads = TORCH_K_HEADS, .head_dim = TORCH_DIM,
                             .v_head_dim = TORCH_V_DIM,
                         .qk_norm = 1};
    attn_conv_args c = {.y = y, .state = before, .x = x, .w = w, .bias = bias, .batch = 1, .n = TORCH_N,
                        .channels = TORCH_DIM, .width = TORCH_WIDTH, .silu = 1};
    const int outs = TORCH_N * TORCH_HEADS * TORCH_V_DIM, states = TORCH_HEADS * TORCH_DIM * TORCH_V_DIM;
    delta_numbers(q, 1, TORCH_N * TORCH_K_HEADS * TORCH_DIM);
    delta_numbers(k, 2, TORCH_N * TORCH_K_HEADS * TORCH_DIM);
    delta_numbers(v, 3, outs);
    delta_numbers(g, 4, TORCH_N * TORCH_HEADS);
    delta_numbers(beta, 5, TORCH_N * TORCH_HEADS);
    delta_numbers(state, 6, states);
    for (int i = 0; i < TORCH_N * TORCH_HEADS; i++) g[i] = -fabsf(g[i]), beta[i] = fabsf(beta[i]);
    CHECKF(attn_delta(&a) == ATTN_OK, "%s", refusal_text());
    delta_near("out", out, torch_delta_out, outs, 1e-5);
    delta_near("state", state, torch_delta_state, states, 1e-5);
    delta_numbers(state, 6, states);
    for (int i = 0; i < TORCH_N * TORCH_HEADS; i++) g[i] = -beta[i];               /* Mamba-2 with a of -1 */
    a.rule = ATTN_RULE_ADD, a.scale = 1.0f, a.qk_norm = 0;
    CHECKF(attn_delta(&a) == ATTN_OK, "%s", refusal_text());
    delta_near("out of Mamba-2", out, torch_ssd_out, outs, 1e-5);
    delta_near("state of Mamba-2", state, torch_ssd_state, states, 1e-5);
    delta_numbers(x, 7, TORCH_N * TORCH_DIM);
    delta_numbers(w, 8, TORCH_DIM * TORCH_WIDTH);
    delta_numbers(bias, 9, TORCH_DIM);
    delta_numbers(before, 10, (TORCH_WIDTH - 1) * TORCH_DIM);
    CHECKF(attn_conv(&c) == ATTN_OK, "%s", refusal_text());
    delta_near("y", y, torch_conv_out, TORCH_N * TORCH_DIM, 1e-5);
}

static attn_backend delta_missing(void)
{
    attn_backend list[16];
    const int n = attn_backends(list, 16);
    int wanted = ATTN_SCALAR + 1, i;
    do for (i = 0; i < n && (int)list[i] != wanted; i++) { } while (i < n && ++wanted);
    return (attn_backend)wanted;
}

static void delta_refused(void)
{
    float q[64] = {0}, k[64] = {0}, v[64] = {0}, g[64] = {0}, beta[64] = {0}, memory[200], *out = memory,
        *state = memory + 64;
    int lengths[3] = {1, 2, 0}, cum[3] = {0, 1, 3}, user;
    double work[2000];
    attn_exec none = {NULL, 1, NULL}, thin = {NULL, 0, NULL};
    const attn_delta_args good = {.out = out, .state = state, .q = q, .k = k, .v = v, .g = g, .beta = beta, .batch = 2,
                                  .n = 2, .heads = 2, .head_dim = 4, .user = &user};
    attn_delta_args a = good;
#define BAD(set, status, words) \
    do { a = good; memset(memory, 0xA5, sizeof memory); set; REFUSED(attn_delta(&a), status, words); \
         for (int i = 0; i < 200; i++) CHECK(float_bits(memory[i]) == 0xA5A5A5A5u); } while (0)
    REFUSED(attn_delta(NULL), ATTN_E_NULL, "attn_delta: the attn_delta_args are NULL");
    BAD(a.out = NULL, ATTN_E_NULL, "out is NULL");
    BAD(a.state = NULL, ATTN_E_NULL, "state is NULL");
    CHECK(refusal_user() == &user);
    BAD(a.q = NULL, ATTN_E_NULL, "q is NULL");
    BAD(a.k = NULL, ATTN_E_NULL, "k is NULL");
    BAD(a.v = NULL, ATTN_E_NULL, "v is NULL");
    BAD(a.batch = -1, ATTN_E_SIZE, "batch is -1");
    BAD(a.n = -1, ATTN_E_SIZE, "n is -1");
    BAD(a.heads = 0, ATTN_E_SIZE, "heads is 0");
    BAD(a.k_heads = -1, ATTN_E_SIZE, "k_heads is -1");
    BAD(a.head_dim = 0, ATTN_E_SIZE, "head_dim is 0");
    BAD(a.v_head_dim = -1, ATTN_E_SIZE, "v_head_dim is -1");
    BAD((a.heads = 3, a.k_heads = 2), ATTN_E_HEADS, "k_heads is 2 but heads is 3");
    BAD(a.k_heads = 4, ATTN_E_HEADS, "k_heads is 4 but heads is 2");
    BAD(a.rule = (attn_rule)2, ATTN_E_OPTION, "rule is 2");
    BAD(a.g_per_component = 2, ATTN_E_OPTION, "g_per_component is 2");
    BAD(a.qk_norm = -1, ATTN_E_OPTION, "qk_norm is -1");
    BAD(a.backend = (attn_backend)99, ATTN_E_OPTION, "backend is 99");
    BAD(a.backend = delta_missing(), ATTN_E_BACKEND, "is not usable on this machine");
    BAD(a.scale = NAN, ATTN_E_OPTION, "scale is nan");
    BAD(a.norm_eps = -1.0f, ATTN_E_OPTION, "norm_eps is -1.00");
    BAD(a.exec = &none, ATTN_E_NULL, "exec->run is NULL");
    BAD((thin.run = test_exec(2).run, a.exec = &thin), ATTN_E_OPTION, "exec->width is 0");
    BAD((a.g = NULL, a.g_per_component = 1), ATTN_E_CONFLICT, "g_per_component is set but g is NULL");
    BAD((a.q_cum = cum, a.q_lengths = lengths), ATTN_E_CONFLICT, "q_cum and q_lengths are both set");
    BAD((a.q_lengths = lengths, a.n = 1), ATTN_E_LENGTHS, "q_lengths[1] is 2 but n is 1");
    BAD((a.q_lengths = cum, cum[1] = -1), ATTN_E_LENGTHS, "q_lengths[1] is -1 but n is 2");
    BAD((a.q_cum = cum, a.n = 5), ATTN_E_LENGTHS, "q_cum[0] is 0 but q_cum[1] is -1");
    cum[1] = 1;
    BAD((a.q_cum = cum, a.n = 1), ATTN_E_SIZE, "n is 1 but the longest entry has 2");
    BAD(a.q_stride[1] = 7, ATTN_E_STRIDE, "q_stride[1] is 7");
    BAD(a.k_stride[2] = -4, ATTN_E_STRIDE, "k_stride[2] is -4");
    BAD(a.v_stride[0] = 3, ATTN_E_STRIDE, "v_stride[0] is 3");
    BAD(a.g_stride[1] = 1, ATTN_E_STRIDE, "g_stride[1] is 1");
    BAD(a.beta_stride[1] = 1, ATTN_E_STRIDE, "beta_stride[1] is 1");
    BAD(a.out_stride[1] = 1, ATTN_E_STRIDE, "out_stride[1] is 1");
    BAD(a.state = out + 28, ATTN_E_OVERLAP, "out overlaps state");
    BAD(a.q = state + 63, ATTN_E_OVERLAP, "state overlaps q");
    BAD(a.k = state, ATTN_E_OVERLAP, "state overlaps k");
    BAD(a.v = out, ATTN_E_OVERLAP, "out overlaps v");
    BAD(a.g = out + 31, ATTN_E_OVERLAP, "out overlaps g");
    BAD(a.beta = state + 8, ATTN_E_OVERLAP, "state overlaps beta");
    BAD((a.work = work, a.work_size = sizeof work, a.v = (float *)work), ATTN_E_OVERLAP, "work overlaps v");
    BAD((a.work = work, a.work_size = 1342), ATTN_E_WORK, "work_size is 1342 but attn_delta_workspace asks for 6399");
    BAD(a.out = (float *)behind(out, 2), ATTN_E_ALIGN, "out is not aligned");
    BAD(a.state = (float *)behind(state, 1), ATTN_E_ALIGN, "state is not aligned");
    BAD(a.q = (const float *)behind(q, 1), ATTN_E_ALIGN, "q is not aligned");
    BAD(a.k = (const float *)behind(k, 2), ATTN_E_ALIGN, "k is not aligned");
    BAD(a.v = (const float *)behind(v, 3), ATTN_E_ALIGN, "v is not aligned");
    BAD(a.g = (const float *)behind(g, 1), ATTN_E_ALIGN, "g is not aligned");
    BAD(a.beta = (const float *)behind(beta, 2), ATTN_E_ALIGN, "beta is not aligned");
    BAD(a.q_lengths = (const int *)behind(lengths, 2), ATTN_E_ALIGN, "q_lengths is not aligned");
    BAD(a.q_cum = (const int *)behind(cum, 2), ATTN_E_ALIGN, "q_cum is not aligned");
    BAD((a.batch = 1, a.n = 1 << 30, a.head_dim = 1, a.heads = a.v_head_dim = sizeof(size_t) > 4 ? 1 << 17 : 1),
        ATTN_E_OVERFLOW, "out is too large: out_stride[1] is ");
    BAD((a.n = 1, a.batch = a.heads = a.head_dim = 1 << 20), ATTN_E_OVERFLOW,
        "1048576 states of 1048576 heads do not fit the address space");
    BAD((a.head_dim = a.v_head_dim = 1 << 30, a.exec = &thin, thin.width = 1 << 30), ATTN_E_OVERFLOW,
        "the workspace is too large");
#undef BAD
    a = good;
    REFUSED(attn_delta_workspace(NULL) == SIZE_MAX ? ATTN_E_NULL : ATTN_OK, ATTN_E_NULL,
            "attn_delta_workspace: the attn_delta_args are NULL");
    a.heads = 0;
    CHECK(attn_delta_workspace(&a) == SIZE_MAX);
    for (int i = 0; i < 3; i++) {         /* nothing to do: nothing is needed or written */
        a = good;
        a.out = a.state = NULL, a.q = a.k = a.v = a.g = a.beta = NULL;
        if (i == 0) a.batch = 0;
        else a.n = 0;
        lengths[0] = lengths[1] = lengths[2] = 0;
        if (i == 2) a.q_cum = lengths;
        CHECKF(attn_delta(&a) == ATTN_OK, "%s", refusal_text());
    }
}

/* ---- convolution ------------------------------------------------------------------------------------------- */
static void conv_oracle(void)
{
    attn_backend list[16];
    const int backends = attn_backends(list, 16);
    rng r = rng_make(test_seed + 5);
    for (int t = 0; t < 150 * test_scale && !test_failed(); t++) {
        static const int sizes[] = {1, 3, 15, 16, 17, 33, 64, 130, 300};
        attn_conv_args a = {0}, one;
        const int batch = rng_int(&r, 1, 3), n = rng_int(&r, 1, 9), C = sizes[rng_int(&r, 0, 8)],
            w = rng_int(&r, 1, rng_int(&r, 0, 3) ? 4 : 16);
        const int ragged = rng_int(&r, 0, 2), keep = w - 1;
        int lengths[3], cum[4] = {0}, rows = batch * n;
        float *x, *y, *want, *weights = normal(&r, (size_t)(C * w), 1.0), *bias = normal(&r, (size_t)C, 1.0);
        float *state = guard_floats((size_t)(batch * keep * C) + !keep),
            *start = floats((size_t)(batch * keep * C) + 1), *after;
        attn_exec exec = test_exec(rng_int(&r, 1, 5));
        size_t cells;
        for (int b = 0; b < batch; b++) lengths[b] = rng_int(&r, 0, n), cum[b + 1] = cum[b] + lengths[b];
        if (ragged == 2) rows = cum[batch];
        if (rows == 0) goto next;
        cells = (size_t)(rows * C);
        x = guard_floats(cells), y = guard_floats(cells), want = floats(cells),
            after = floats((size_t)(batch * keep * C) + 1);
        rng_fill(&r, x, cells);
        rng_fill(&r, start, (size_t)(batch * keep * C));
        memcpy(state, start, (size_t)(batch * keep * C) * sizeof(float));
        memset(y, 0xA5, cells * sizeof(float));
        a.y = y, a.state = keep ? state : NULL, a.x = x, a.w = weights, a.bias = rng_int(&r, 0, 1) ? bias : NULL;
        a.batch = batch, a.n = n, a.channels = C, a.width = w, a.silu = rng_int(&r, 0, 1), a.exec = &exec;
        a.q_lengths = ragged == 1 ? lengths : NULL, a.q_cum = ragged == 2 ? cum : NULL;
        a.backend = list[rng_int(&r, 0, backends - 1)];
        CHECKF(attn_conv(&a) == ATTN_OK, "%s", refusal_text());
        memcpy(want, y, cells * sizeof(float));
        memcpy(after, state, (size_t)(batch * keep * C) * sizeof(float));
        for (int b = 0; b < batch; b++) {
            const int first = ragged == 2 ? cum[b] : b * n, len = ragged ? lengths[b] : n;
            for (int i = 0; i < (ragged == 2 ? len : n); i++)
                for (int c = 0; c < C; c++) {
                    const double got = (double)y[(first + i) * C + c];
                    double sum = a.bias ? (double)bias[c] : 0, size = fabs(sum);
                    for (int j = 0; j < w && i < len; j++) {
                        const int from = i - keep + j;
                        const double value = (double)weights[c * w + j] *
                            (double)(from < 0 ? start[(b * keep + from + keep) * C + c] : x[(first + from) * C + c]);
                        sum += value, size += fabs(value);
                    }
                    /* w fma (two roundings without fma); the slope of silu is at most 1.1, its error 2.9 ulp */
                    size *= ldexp(2.0 * w, -24);
                    if (a.silu) sum /= 1 + exp(-sum);
                    CHECKF(i < len ? fabs(got - sum) <= 1.1 * size + (a.silu ? 6e-7 * fabs(sum) + 1e-36 : 0)
                           : float_bits((float)got) == 0u,
                           "entry %d, row %d, channel %d: %.9g, not %.9g", b, i, c, got, sum);
                }
            for (int j = 0; j < keep; j++)
                for (int c = 0; c < C; c++) {
                    const int from = len - keep + j;
                    CHECK(float_bits(state[(b * keep + j) * C + c]) ==
                          float_bits(from < 0 ? start[(b * keep + from + keep) * C + c] : x[(first + from) * C + c]));
                }
        }
        /* the same bits in pieces, and on every backend with fma */
        memcpy(state, start, (size_t)(batch * keep * C) * sizeof(float));
        for (int b = 0; b < batch; b++) {
            const int first = ragged == 2 ? cum[b] : b * n, len = ragged ? lengths[b] : n;
            for (int i = 0, piece; i < len; i += piece) {
                piece = rng_int(&r, 1, len - i);
                one = a;
                if (delta_fused(a.backend)) one.backend = list[rng_int(&r, 0, backends - 1)];
                if (!delta_fused(one.backend)) one.backend = a.backend;
                one.q_lengths = one.q_cum = NULL, one.batch = 1, one.n = piece;
                one.x = x + (first + i) * C, one.y = y + (first + i) * C;
                one.state = keep ? state + b * keep * C : NULL;
                CHECKF(attn_conv(&one) == ATTN_OK, "%s", refusal_text());
            }
        }
        CHECKF(same_bits(y, want, cells), "case %d in pieces", t);
        CHECKF(same_bits(state, after, (size_t)(batch * keep * C)), "the state of case %d in pieces", t);
        guard_free(x); guard_free(y); free(want); free(after);
    next:
        free(weights); free(bias); guard_free(state); free(start);
    }
}

/* Enough channels that tasks are started. */
static void conv_threads(void)
{
    enum { N = 50, C = 1000, W = 4 };
    rng r = rng_make(test_seed + 6);
    float *x = normal(&r, N * C, 1.0), *w = normal(&r, C * W, 1.0), *one = floats(N * C), *many = floats(N * C);
    float *state = floats(3 * C);
    attn_exec exec = test_exec(4);
    attn_conv_args a = {.y = one, .state = state, .x = x, .w = w, .batch = 1, .n = N, .channels = C, .width = W,
                        .silu = 1};
    for (int i = 0; i < 2; i++) {
        memset(state, 0, 3 * C * sizeof(float));
        CHECK(attn_conv(&a) == ATTN_OK);
        a.y = many, a.exec = &exec;
    }
    CHECK(same_bits(one, many, N * C) && same_bits(state, x + (N - 3) * C, 3 * C));
    free(x); free(w); free(one); free(many); free(state);
}

static void conv_refused(void)
{
    float x[48] = {0}, w[24] = {0}, memory[100], *y = memory, *state = memory + 48;
    int lengths[3] = {1, 5, 0}, cum[3] = {0, 3, 4}, user;
    attn_exec none = {NULL, 1, NULL};
    const attn_conv_args good = {.y = y, .state = state, .x = x, .w = w, .batch = 2, .n = 4, .channels = 6, .width = 4,
                                 .user = &user};
    attn_conv_args a = good;
#define BAD(set, status, words) \
    do { a = good; memset(memory, 0xA5, sizeof memory); set; REFUSED(attn_conv(&a), status, words); \
         for (int i = 0; i < 100; i++) CHECK(float_bits(memory[i]) == 0xA5A5A5A5u); } while (0)
    REFUSED(attn_conv(NULL), ATTN_E_NULL, "attn_conv: the attn_conv_args are NULL");
    BAD(a.y = NULL, ATTN_E_NULL, "y is NULL");
    CHECK(refusal_user() == &user);
    BAD(a.x = NULL, ATTN_E_NULL, "x is NULL");
    BAD(a.w = NULL, ATTN_E_NULL, "w is NULL");
    BAD(a.state = NULL, ATTN_E_NULL, "state is NULL");
    BAD(a.batch = -1, ATTN_E_SIZE, "batch is -1");
    BAD(a.n = -2, ATTN_E_SIZE, "n is -2");
    BAD(a.channels = 0, ATTN_E_SIZE, "channels is 0");
    BAD(a.width = 0, ATTN_E_SIZE, "width is 0");
    BAD(a.width = 17, ATTN_E_SIZE, "width is 17 but must be 1..16");
    BAD(a.silu = 2, ATTN_E_OPTION, "silu is 2");
    BAD(a.backend = (attn_backend)99, ATTN_E_OPTION, "backend is 99");
    BAD(a.backend = delta_missing(), ATTN_E_BACKEND, "is not usable on this machine");
    BAD(a.exec = &none, ATTN_E_NULL, "exec->run is NULL");
    BAD((a.q_lengths = lengths, a.q_cum = cum), ATTN_E_CONFLICT, "q_cum and q_lengths are both set");
    BAD(a.q_lengths = lengths, ATTN_E_LENGTHS, "q_lengths[1] is 5 but n is 4");
    BAD((a.q_cum = cum, a.n = 2), ATTN_E_SIZE, "n is 2 but the longest entry has 3");
    BAD(a.state = y + 47, ATTN_E_OVERLAP, "y overlaps state");
    BAD(a.x = y, ATTN_E_OVERLAP, "y overlaps x");
    BAD(a.w = state, ATTN_E_OVERLAP, "state overlaps w");
    BAD(a.bias = y, ATTN_E_OVERLAP, "y overlaps bias");
    BAD(a.x = (const float *)behind(x, 2), ATTN_E_ALIGN, "x is not aligned");
    BAD(a.y = (float *)behind(y, 2), ATTN_E_ALIGN, "y is not aligned");
    BAD(a.state = (float *)behind(state, 1), ATTN_E_ALIGN, "state is not aligned");
    BAD(a.w = (const float *)behind(w, 1), ATTN_E_ALIGN, "w is not aligned");
    BAD((a.batch = a.channels = 1 << 30, a.n = 0, a.width = 16), ATTN_E_OVERFLOW,
        "1073741824 entries of 0 rows of 1073741824");
    BAD(a.batch = a.n = 1 << 30, ATTN_E_OVERFLOW, "1073741824 entries of 1073741824 rows of 6 channels");
    BAD((a.batch = 1 << 16, a.n = 1, a.channels = (1 << 21) + 1, a.width = 1), ATTN_E_OVERFLOW,
        sizeof(size_t) > 4 ? "there are more entries and channels" : "65536 entries of 1 rows");
#undef BAD
    for (int i = 0; i < 2; i++) {
        a = good;
        a.y = a.state = NULL, a.x = a.w = NULL;
        if (i) a.n = 0;
        else a.batch = 0;
        CHECK(attn_conv(&a) == ATTN_OK);
    }
}

SUITE(delta) = {
    {"oracle", delta_oracle,
     "a wrong recurrence; a whole prompt with other bits than its rows; rows past a length not zero"},
    {"bits", delta_bits, "bits or a state that depend on a cut into calls, threads, the backend or work memory"},
    {"poison", delta_poison, "a row past its length or a gap between rows that is read"},
    {"equal decays", delta_equal, "a decay per head with other bits than equal decays per component"},
    {"threads", delta_threads, "slices left out or repeated when tasks share a head"},
    {"not finite", delta_not_finite, "a NaN that leaves its column or is lost, -0 stored, a wrong exp at its ends"},
    {"torch", delta_torch,
     "results other than those of transformers for Qwen3-Next and Mamba-2, and of torch's conv1d"},
    {"rejected", delta_refused,
     "invalid arguments of attn_delta accepted, or something written before they are rejected"},
    {"conv", conv_oracle, "a convolution or its state that is wrong, or whose bits depend on a cut into calls"},
    {"conv threads", conv_threads, "channels left out or repeated when tasks share them"},
    {"conv rejected", conv_refused,
     "invalid arguments of attn_conv accepted, or something written before they are rejected"},
    {0}
};
#else
SUITE(delta) = {{0}};
#endif
