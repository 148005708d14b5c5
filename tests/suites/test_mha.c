/* test_mha.c: the attention layer; steps and batches are in test_mha_steps.c.
 *
 * Three kinds of proof. A layer is, bit for bit, what its parts give one after the other (attn_linear_run, attn_rope,
 * attn_sdpa). It agrees with an oracle in double within a bound that is carried along with every number. And it gives
 * the numbers that torch gives (torch_numbers.h). */
#include "layer.h"

typedef struct torch_case {
    const char *name;
    int batch, n_q, n_k, d_model, heads, kdim, vdim, bias, causal, additive, averaged, lengths[4];
    const float *out, *weights;
} torch_case;
#include "torch_numbers.h"

/* Backends with the common bits agree with the linears, which cannot choose a backend. */
static void composition(void)
{
    rng seeds = rng_make(test_seed + 3);
    attn_backend backends[16];
    int n_backends = test_one_answer_backends(backends, 16), auto_is_one;
    attn_backend best;
    attn_backends(&best, 1);
    auto_is_one = best == backends[0];
    for (int i = 0; i < 250 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int self = rng_int(&r, 0, 1), rope = self && rng_int(&r, 0, 1), batch = rng_int(&r, 1, 3);
        const int n_q = rng_int(&r, 0, 3) ? rng_int(&r, 1, 20) : rng_int(&r, 21, 140);
        const int n_k = self ? n_q : rng_int(&r, 0, 3) ? rng_int(&r, 1, 30) : rng_int(&r, 31, 200);
        layer l;
        masks hide;
        attn_mha_opts o;
        attn_exec exec = test_exec(rng_int(&r, 1, 4));
        int places[3 * 140];
        float *x, *memory, *memory_v, *got, *want, *w_got, *w_want, *lse;
        size_t n_out, n_w, rows_lse, need, masked[2] = {0, 0};
        unsigned char *work;
        layer_make(&l, &r, (rope ? WITH_ROPE : 0) | (self ? 0 : CROSSING) | (rng_int(&r, 0, 2) ? 0 : WITH_NORM) |
                           (rng_int(&r, 0, 1) ? 0 : WITH_MORE));
        memset(&o, 0, sizeof o);
        for (int k = 0; k < batch * n_q; k++) places[k] = rng_int(&r, -2, 399);
        if (self && rng_int(&r, 0, 3) == 0) o.rope_pos = places;
        masks_draw(&hide, &r, &o.attn, batch, l.a.heads, n_q, n_k);
        n_out = (size_t)(batch * n_q * l.a.d_model);
        n_w = (size_t)(batch * l.a.heads * n_q * n_k);
        rows_lse = (size_t)(batch * l.a.heads * n_q);
        x = normal(&r, n_out, 1.0);
        memory = self ? x : normal(&r, (size_t)(batch * n_k * l.a.d_key), 1.0);
        memory_v = self || (l.a.d_value == l.a.d_key && rng_int(&r, 0, 1))
                       ? memory
                       : normal(&r, (size_t)(batch * n_k * l.a.d_value), 1.0);
        got = guard_floats(n_out);
        want = floats(n_out);
        w_got = guard_floats(n_w);
        w_want = floats(n_w);
        lse = floats(2 * rows_lse);
        if (rng_int(&r, 0, 1)) o.attn.weights = w_want;
        if (rng_int(&r, 0, 1)) o.attn.lse = lse;
        o.attn.masked_rows = masked;
        o.attn.backend = auto_is_one ? backends[rng_int(&r, 0, n_backends - 1)] : 0;
        by_parts(&l, want, x, batch, n_q, memory, memory_v, n_k, &o);

        if (o.attn.weights) o.attn.weights = w_got;
        if (o.attn.lse) o.attn.lse = lse + rows_lse;
        o.attn.masked_rows = masked + 1;
        if (memory_v != memory) o.memory_v = memory_v;
        if (exec.width > 1) o.attn.exec = &exec;
        need = attn_mha_workspace(&l.m, self ? ATTN_MHA_SELF : ATTN_MHA_CROSS, batch, n_q, n_k, &o);
        CHECK(need != (size_t)-1);
        work = guard_alloc(need);
        o.attn.work = work;
        for (int less = 1; less >= 0; less--) { /* one byte less is rejected, the exact size is accepted */
            const attn_status expected = less ? ATTN_E_WORK : ATTN_OK;
            attn_status status;
            o.attn.work_size = need - (size_t)less;
            memset(got, 0x77, n_out * sizeof(float));
            status = self ? attn_mha_self(&l.m, got, x, batch, n_q, &o)
                          : attn_mha_cross(&l.m, got, x, batch, n_q, memory, n_k, &o);
            CHECKF(status == expected, "seed %llu: %s", seed, attn_status_str(status));
            if (less) CHECKF(untouched(got, n_out * sizeof(float)), "seed %llu: written although refused", seed);
        }
        CHECKF(same_bits(got, want, n_out),
               "seed %llu: %s%s, batch %d, %d x %d, d_model %d, heads %d/%d of %d, backend %d", seed,
               self ? "self" : "cross", rope ? " with rotation" : "", batch, n_q, n_k, l.a.d_model, l.a.heads,
               l.a.kv_heads, l.a.head_dim, o.attn.backend);
        if (o.attn.weights) CHECKF(same_bits(w_got, w_want, n_w), "seed %llu: weights", seed);
        if (o.attn.lse) CHECKF(same_bits(lse, lse + rows_lse, rows_lse), "seed %llu: lse", seed);
        CHECKF(masked[0] == masked[1], "seed %llu: %zu masked rows, not %zu", seed, masked[1], masked[0]);
        layer_free(&l);
        masks_free(&hide);
        if (!self) free(memory);
        if (memory_v != memory) free(memory_v);
        free(x); guard_free(got); free(want); guard_free(w_got); free(w_want); free(lse); guard_free(work);
    }
}

/* ---- against double ----------------------------------------------------------------------------------------- */

/* Attention of one row over numbers with errors: the error of a score is at most the errors of q and k plus head_dim u
   of its magnitudes; an error e of scores changes a probability by a factor of at most exp(2e), to which (keys + 40) u
   are added for exp, the sums and the division; the rest is a weighted sum. */
static void row_oracle(double *out, double *error, const double *q, const double *eq, numbers k, numbers v,
                       const int *sees, int keys, ptrdiff_t step, ptrdiff_t v_step, int head_dim, int v_head_dim)
{
    const double scale = 1.0 / sqrt(head_dim);
    double *s = calloc((size_t)keys + 1, sizeof(double)), top = -INFINITY, sum = 0.0, worst = 0.0;
    if (!s) abort();
    for (int j = 0; j < keys; j++) {
        double size = 0.0, e = 0.0;
        if (!sees[j]) continue;
        for (int c = 0; c < head_dim; c++) {
            const double kc = k.value[j * step + c], ek = k.error[j * step + c];
            s[j] += q[c] * kc * scale;
            size += fabs(q[c] * kc * scale);
            e += (eq[c] * fabs(kc) + (fabs(q[c]) + eq[c]) * ek) * fabs(scale);
        }
        e += (head_dim + 2) * U * size * 1.01;
        if (e > worst) worst = e;
        if (s[j] > top) top = s[j];
    }
    for (int j = 0; j < keys; j++) if (sees[j]) sum += s[j] = exp(s[j] - top);
    worst = expm1(2.0 * worst) + (keys + 40) * U;
    for (int c = 0; c < v_head_dim; c++) {
        out[c] = error[c] = 0.0;
        for (int j = 0; j < keys; j++) {
            if (!sees[j]) continue;
            const double value = v.value[j * v_step + c], off = v.error[j * v_step + c];
            out[c] += s[j] / sum * value;
            error[c] += s[j] / sum * (off + (fabs(value) + off) * worst);
        }
        error[c] *= 1.01;
    }
    free(s);
}

static void rotation_oracle(const layer *l, numbers x, int batch, int n, int heads)
{
    const int half = l->a.rotary_dim / 2, d = l->a.head_dim;
    for (int row = 0; row < batch * n * heads; row++)
        for (int i = 0; i < half; i++) {
            const double angle = (row / heads % n) * pow(100.0, -2.0 * i / l->a.rotary_dim), c = cos(angle),
                         s = sin(angle);
            const ptrdiff_t p = row * d + (l->a.rope_interleaved ? 2 * i : i),
                            o = l->a.rope_interleaved ? p + 1 : p + half;
            const double a = x.value[p], b = x.value[o], ea = x.error[p], eb = x.error[o];
            x.value[p] = a * c - b * s;
            x.value[o] = b * c + a * s;
            x.error[p] = x.error[o] = ea + eb + 4.0 * U * (fabs(a) + fabs(b));
        }
}

static void double_oracle(void)
{
    rng seeds = rng_make(test_seed + 4);
    attn_backend backends[16];
    int n_backends = test_all_backends(backends, 16);
    for (int i = 0; i < 80 * test_scale && !test_failed(); i++) {
        const unsigned long long seed = rng_u32(&seeds);
        rng r = rng_make(seed);
        const int self = rng_int(&r, 0, 1), rope = self && rng_int(&r, 0, 1), batch = rng_int(&r, 1, 2);
        const int n_q = rng_int(&r, 1, 25), n_k = self ? n_q : rng_int(&r, 1, 40);
        layer l;
        attn_mha_opts o;
        float *x, *memory, *memory_v, *got;
        int lengths[2], *sees = calloc((size_t)n_k + 1, sizeof(int));
        numbers dx, dm, d_v, q, k, v, heads, want;
        if (!sees) abort();
        layer_make(&l, &r, (rope ? WITH_ROPE : 0) | (self ? 0 : CROSSING));
        memset(&o, 0, sizeof o);
        o.attn.backend = backends[i % n_backends];
        if (rng_int(&r, 0, 1)) o.attn.k_lengths = lengths;
        if (self && rng_int(&r, 0, 1)) o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
        for (int b = 0; b < 2; b++) lengths[b] = rng_int(&r, 1, n_k);
        x = normal(&r, (size_t)(batch * n_q * l.a.d_model), 1.0);
        memory = self ? x : normal(&r, (size_t)(batch * n_k * l.a.d_key), 1.0);
        memory_v = self ? x : normal(&r, (size_t)(batch * n_k * l.a.d_value), 1.0);
        if (!self) o.memory_v = memory_v;
        got = floats((size_t)(batch * n_q * l.a.d_model));
        dx = numbers_of(x, (size_t)(batch * n_q * l.a.d_model));
        dm = numbers_of(memory, (size_t)(batch * n_k * l.a.d_key));
        d_v = numbers_of(memory_v, (size_t)(batch * n_k * l.a.d_value));
        q = linear_oracle(dx, (size_t)(batch * n_q), l.w[0], l.b[0], l.a.d_model, l.q.n_out);
        k = linear_oracle(dm, (size_t)(batch * n_k), l.w[1], l.b[1], l.a.d_key, l.k.n_out);
        v = linear_oracle(d_v, (size_t)(batch * n_k), l.w[2], l.b[2], l.a.d_value, l.v.n_out);
        if (rope) {
            rotation_oracle(&l, q, batch, n_q, l.a.heads);
            rotation_oracle(&l, k, batch, n_k, l.a.kv_heads);
        }
        heads = numbers_make((size_t)(batch * n_q * l.o.n_in));
        for (int b = 0; b < batch; b++)
            for (int row = 0; row < n_q; row++)
                for (int h = 0; h < l.a.heads; h++) {
                    const int d = l.a.head_dim, dv = l.a.v_head_dim, g = h / (l.a.heads / l.a.kv_heads);
                    const ptrdiff_t head = (ptrdiff_t)(b * n_q + row) * l.a.heads + h, at = head * d;
                    const ptrdiff_t key = (ptrdiff_t)b * n_k * l.k.n_out + g * d;
                    const ptrdiff_t value = (ptrdiff_t)b * n_k * l.v.n_out + g * dv;
                    numbers kk = {k.value + key, k.error + key}, vv = {v.value + value, v.error + value};
                    for (int j = 0; j < n_k; j++)
                        sees[j] = (!o.attn.causal || j <= row) && (!o.attn.k_lengths || j < lengths[b]);
                    row_oracle(heads.value + head * dv, heads.error + head * dv, q.value + at, q.error + at, kk, vv,
                               sees, n_k, l.k.n_out, l.v.n_out, d, dv);
                }
        want = linear_oracle(heads, (size_t)(batch * n_q), l.w[3], l.b[3], l.o.n_in, l.a.d_model);
        CHECK((self ? attn_mha_self(&l.m, got, x, batch, n_q, &o)
                    : attn_mha_cross(&l.m, got, x, batch, n_q, memory, n_k, &o)) == ATTN_OK);
        within(got, want, (size_t)(batch * n_q * l.a.d_model), self ? "self" : "cross", seed);
        numbers_free(dx); numbers_free(dm); numbers_free(d_v); numbers_free(q); numbers_free(k); numbers_free(v);
        numbers_free(heads); numbers_free(want);
        if (!self) { free(memory); free(memory_v); }
        free(x); free(got); free(sees);
        layer_free(&l);
    }
}

/* ---- against torch ------------------------------------------------------------------------------------------ */

/* the same numbers as number() of torch_numbers.py: multiples of 2^-12 */
static float number(uint32_t stream, uint32_t i)
{
    uint32_t x = stream * 0x9E3779B1u + i * 0x85EBCA77u + 0x27D4EB2Fu;
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    x ^= x >> 13;
    return (float)((int)(x & 0x1FFFu) - 4096) / 4096.0f;
}

static float *number_array(uint32_t stream, int n, float scale)
{
    float *x = floats((size_t)n);
    for (int i = 0; i < n; i++) x[i] = number(stream, (uint32_t)i) * scale;
    return x;
}

/* torch computed in double. |x| and |b| are at most 1, |w| at most 1/2, so |q|, |k|, |v| <= 1 + d/2 <= 7, with errors
   of at most d u 7 = 5e-6; actual errors add up like square roots. 2e-6 is 10 times the observed error. */
static void torch_answers(void)
{
    for (size_t t = 0; t < sizeof torch_cases / sizeof *torch_cases; t++) {
        const torch_case *c = torch_cases + t;
        const int d = c->d_model, self = !c->kdim, kdim = self ? d : c->kdim, vdim = self ? d : c->vdim;
        const int n_out = c->batch * c->n_q * d, cells = c->batch * (c->averaged ? 1 : c->heads) * c->n_q * c->n_k;
        const int packed = kdim == d && vdim == d;
        float *w_in = number_array(1, 3 * d * d, 0.5f), *w_q = number_array(1, d * d, 0.5f),
              *w_k = number_array(2, d * kdim, 0.5f);
        float *w_v = number_array(3, d * vdim, 0.5f), *w_o = number_array(4, d * d, 0.5f),
              *b_in = number_array(5, 3 * d, 1.0f);
        float *b_o = number_array(6, d, 1.0f), *x = number_array(7, n_out, 1.0f),
              *k = number_array(8, c->batch * c->n_k * kdim, 1.0f);
        float *v = number_array(9, c->batch * c->n_k * vdim, 1.0f), *mask = number_array(10, c->n_q * c->n_k, 1.0f);
        float *out = floats((size_t)n_out), *weights = floats((size_t)cells);
        attn_mha_args a = {0};
        attn_mha m;
        attn_mha_opts o;
        memset(&o, 0, sizeof o);
        a.d_model = d;
        a.heads = c->heads;
        a.d_key = kdim;
        a.d_value = vdim;
        if (packed) {
            a.w_in = w_in;
        } else {
            a.w_q = w_q;
            a.w_k = w_k;
            a.w_v = w_v;
        }
        a.w_o = w_o;
        if (c->bias) { a.b_in = b_in; a.b_o = b_o; }
        CHECKF(attn_mha_init(&m, &a) == ATTN_OK, "%s: %s", c->name, refusal_text());
        if (c->lengths[0]) o.attn.k_lengths = c->lengths;
        if (c->causal) o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
        if (c->additive) o.attn.mask = mask;
        o.attn.weights = weights;
        o.weights_mean = c->averaged;
        if (!self) o.memory_v = v;
        CHECK((self ? attn_mha_self(&m, out, x, c->batch, c->n_q, &o)
                    : attn_mha_cross(&m, out, x, c->batch, c->n_q, k, c->n_k, &o)) == ATTN_OK);
        for (int i = 0; i < n_out && !test_failed(); i++)
            CHECKF(fabs((double)out[i] - c->out[i]) <= 2e-6, "%s: out %d is %.9g, torch says %.9g", c->name, i,
                   (double)out[i], (double)c->out[i]);
        for (int i = 0; i < cells && !test_failed(); i++)
            CHECKF(fabs((double)weights[i] - c->weights[i]) <= 1e-6, "%s: weight %d is %.9g, torch says %.9g", c->name,
                   i, (double)weights[i], (double)c->weights[i]);
        attn_mha_free(&m);
        free(w_in);
        free(w_q);
        free(w_k);
        free(w_v);
        free(w_o);
        free(b_in);
        free(b_o);
        free(x);
        free(k);
        free(v);
        free(mask);
        free(out); free(weights);
    }
}

/* ---- weights in every layout -------------------------------------------------------------------------------- */
static unsigned short *in_bf16(float *w, size_t n)             /* rounds w in place */
{
    unsigned short *h = malloc((n + 1) * sizeof *h);
    if (!h) abort();
    CHECK(attn_narrow(h, w, n, ATTN_BF16) == ATTN_OK && attn_widen(w, h, n, ATTN_BF16) == ATTN_OK);
    return h;
}

static void weight_layouts(void)
{
    rng r = rng_make(test_seed + 5);
    for (int i = 0; i < 20 && !test_failed(); i++) {
        const int kv_heads = rng_int(&r, 1, 3), heads = kv_heads * rng_int(&r, 1, 2), d = rng_int(&r, 1, 20),
                  dm = heads * d;
        const int dv = rng_int(&r, 0, 1) ? d : rng_int(&r, 1, 20), o = heads * dv, v = kv_heads * dv;
        const int q = heads * d, kv = kv_heads * d, biased = rng_int(&r, 0, 1), n = rng_int(&r, 1, 8);
        float *w_in = normal(&r, (size_t)((q + kv + v) * dm), 0.3), *b_in = normal(&r, (size_t)(q + kv + v), 0.3);
        float *w_o = normal(&r, (size_t)(dm * o), 0.3), *b_o = normal(&r, (size_t)dm, 0.3),
              *x = normal(&r, (size_t)(n * dm), 1.0);
        float *out[4], *copies[4];
        unsigned short *h_in = in_bf16(w_in, (size_t)((q + kv + v) * dm)), *h_o = in_bf16(w_o, (size_t)(dm * o));
        for (int k = 0; k < 4; k++) {
            attn_mha_args a = {0};
            attn_mha m;
            unsigned char *mem = NULL;
            out[k] = floats((size_t)(n * dm));
            a.d_model = dm;
            a.heads = heads;
            a.kv_heads = kv_heads == heads ? 0 : kv_heads;
            a.head_dim = rng_int(&r, 0, 1) ? d : 0;
            a.v_head_dim = dv == d ? 0 : dv;
            copies[0] = floats((size_t)((q + kv + v) * dm));
            copies[1] = floats((size_t)(q + kv + v));
            copies[2] = floats((size_t)(dm * o));
            copies[3] = floats((size_t)dm);
            memcpy(copies[0], w_in, (size_t)((q + kv + v) * dm) * sizeof(float));
            memcpy(copies[1], b_in, (size_t)(q + kv + v) * sizeof(float));
            memcpy(copies[2], w_o, (size_t)(dm * o) * sizeof(float));
            memcpy(copies[3], b_o, (size_t)dm * sizeof(float));
            if (k == 0) {
                a.w_in = copies[0];
            } else {
                a.w_q = copies[0];
                a.w_k = copies[0] + q * dm;
                a.w_v = copies[0] + (q + kv) * dm;
            }
            if (biased && k == 1) {
                a.b_q = copies[1];
                a.b_k = copies[1] + q;
                a.b_v = copies[1] + q + kv;
            } else if (biased) {
                a.b_in = copies[1];
            }
            a.w_o = copies[2];
            if (biased) a.b_o = copies[3];
            if (k == 3) {                                                  /* as in the checkpoint */
                a.w_q = a.w_k = a.w_v = NULL;
                a.w_in = h_in;
                a.w_o = h_o;
                a.w_storage = ATTN_BF16;
            }
            if (k == 2) {
                const size_t size = attn_mha_size(&a);
                mem = guard_alloc(size + 4);
                a.mem = mem + 4;
                a.mem_size = size - 1;
                REFUSED(attn_mha_init(&m, &a), ATTN_E_WORK, "attn_mha_init: mem_size is ");
                a.mem_size = size;
            }
            CHECKF(attn_mha_init(&m, &a) == ATTN_OK, "%s", refusal_text());
            for (int c = 0; c < 4; c++) free(copies[c]);                   /* the originals may be freed */
            CHECK(attn_mha_self(&m, out[k], x, 1, n, NULL) == ATTN_OK);
            attn_mha_free(&m);
            guard_free(mem);
        }
        for (int k = 1; k < 4; k++) CHECKF(same_bits(out[0], out[k], (size_t)(n * dm)), "layout %d", k);
        for (int k = 0; k < 4; k++) free(out[k]);
        free(h_in); free(h_o); free(w_in); free(b_in); free(w_o); free(b_o); free(x);
    }
}

/* ---- gates and means ---------------------------------------------------------------------------------------- */
/* The sigmoid of b_gate, where attention gives 1 and w_o passes it on. */
static void gates(void)
{
    enum { D = 16 };
    static const float ends[D] = {0.0f, -0.0f, 1e-30f, -1e-30f, 17.0f, -17.0f, 87.4f, -87.3f,
                                  -87.4f, 200.0f, -200.0f, 3e38f, -3e38f, INFINITY, -INFINITY, 1.0f};
    rng r = rng_make(test_seed + 9);
    float zero[D * D] = {0}, unit[D * D] = {0}, one[D], gate[D], x[D], y[D];
    attn_mha_args a = {.d_model = D, .heads = D, .w_o = unit, .b_v = one};
    for (int i = 0; i < D; i++) unit[i * D + i] = one[i] = x[i] = 1.0f;
    a.w_q = a.w_k = a.w_v = a.w_gate = zero;
    a.b_gate = gate;
    for (int t = 0; t < 200; t++) {
        attn_mha m;
        rng_fill(&r, gate, D);
        for (int i = 0; i < D; i++) gate[i] = t ? gate[i] * (float)(1 << t % 5) : ends[i];
        CHECK(attn_mha_init(&m, &a) == ATTN_OK && attn_mha_self(&m, y, x, 1, 1, NULL) == ATTN_OK);
        for (int i = 0; i < D; i++) {
            const double want = 1.0 / (1.0 + exp(-(double)gate[i]));
            /* exp is off by 1.4 ulp, the sum and the quotient by half an ulp each */
            CHECKF(fabs(y[i] - want) <= 8 * U * want + 1.2e-38, "the gate %g is %.9g", (double)gate[i], (double)y[i]);
        }
        attn_mha_free(&m);
        gate[0] = NAN;                                                         /* 0 times NaN in w_o: all of y */
        CHECK(attn_mha_init(&m, &a) == ATTN_OK && attn_mha_self(&m, y, x, 1, 1, NULL) == ATTN_OK);
        CHECK(float_bits(y[0]) == 0x7FC00000u && isnan(y[D - 1]));
        attn_mha_free(&m);
    }
}

/* Padding on the left is before position 0, which has no factor: rows after it are as if it did not exist. */
static void factors_after_padding(void)
{
    enum { HEADS = 2, D = 4, DM = HEADS * D, N = 5, PADDED = 2 };
    rng r = rng_make(test_seed + 17);
    float *w = normal(&r, 3 * DM * DM, 0.3), *w_o = normal(&r, DM * DM, 0.3), *x = normal(&r, N * DM, 1.0);
    float *factors = guard_floats(N), want[N * DM], got[N * DM];
    const int starts = PADDED;
    attn_mha_args a = {0};
    attn_mha m;
    attn_mha_opts o;
    memset(&o, 0, sizeof o);
    rng_fill(&r, factors, N);
    a.d_model = DM;
    a.heads = HEADS;
    a.w_in = w;
    a.w_o = w_o;
    a.q_factors = factors;
    a.positions = N;
    CHECK(attn_mha_init(&m, &a) == ATTN_OK);
    CHECK(attn_mha_self(&m, want, x + PADDED * DM, 1, N - PADDED, &o) == ATTN_OK);
    o.attn.k_starts = &starts;
    CHECK(attn_mha_self(&m, got, x, 1, N, &o) == ATTN_OK);
    CHECK(same_bits(got + PADDED * DM, want, (N - PADDED) * DM));
    attn_mha_free(&m);
    guard_free(factors);
    free(w); free(w_o); free(x);
}

/* Each head has its own gate: if one of them is open, the result is that of a w_o without weights for the others. */
static void gate_per_head(void)
{
    enum { HEADS = 3, D = 4, DM = HEADS * D, N = 5 };
    rng r = rng_make(test_seed + 10);
    float *w = normal(&r, 3 * DM * DM, 0.3), *w_o = normal(&r, DM * DM, 0.3), *x = normal(&r, N * DM, 1.0);
    static const float zero[HEADS * DM];
    for (int open = 0; open < HEADS; open++) {
        float gate[HEADS] = {-200, -200, -200}, cut[DM * DM], want[N * DM], got[N * DM];
        attn_mha_args a = {0};
        attn_mha whole, only;
        gate[open] = 40.0f;                                                 /* its sigmoid is 1 exactly */
        memcpy(cut, w_o, sizeof cut);
        for (int y = 0; y < DM * DM; y++) if (y % DM / D != open) cut[y] = 0.0f;
        a.d_model = DM;
        a.heads = HEADS;
        a.w_in = w;
        a.w_o = cut;
        CHECK(attn_mha_init(&only, &a) == ATTN_OK);
        a.w_o = w_o;
        a.w_gate = zero;
        a.b_gate = gate;
        a.gate_rows = HEADS;
        CHECK(attn_mha_init(&whole, &a) == ATTN_OK);
        CHECK(attn_mha_self(&only, want, x, 1, N, NULL) == ATTN_OK);
        CHECK(attn_mha_self(&whole, got, x, 1, N, NULL) == ATTN_OK);
        CHECKF(same_bits(got, want, N * DM), "gate of head %d", open);
        attn_mha_free(&whole);
        attn_mha_free(&only);
    }
    free(w); free(w_o); free(x);
}

static void means(void)
{
    rng r = rng_make(test_seed + 11);
    for (int i = 0; i < 20 && !test_failed(); i++) {
        const int batch = rng_int(&r, 1, 3), n = rng_int(&r, 1, 20), stage = rng_int(&r, 0, 3);
        const size_t cells = (size_t)(batch * n * n);
        float *x, *out, *every, *mean;
        int heads[64], n_heads = 0;
        layer l;
        attn_mha_opts o;
        size_t need;
        memset(&o, 0, sizeof o);
        layer_make(&l, &r, 0);
        for (int h = 0; h < l.a.heads; h++) if (i % 2 == 0 || rng_int(&r, 0, 1)) heads[n_heads++] = h;
        if (n_heads == 0) heads[n_heads++] = l.a.heads - 1;
        x = normal(&r, (size_t)(batch * n * l.a.d_model), 1.0);
        out = floats((size_t)(batch * n * l.a.d_model));
        every = floats(cells * (size_t)l.a.heads);
        mean = guard_floats(cells);
        o.attn.causal = rng_int(&r, 0, 1);
        o.attn.weights_stage = stage;
        o.attn.weights = every;
        CHECK(attn_mha_self(&l.m, out, x, batch, n, &o) == ATTN_OK);
        o.attn.weights = mean;
        o.weights_mean = 1;
        if (i % 2) o.attn.weights_heads = heads, o.attn.n_weights_heads = n_heads;     /* of some heads only */
        need = attn_mha_workspace(&l.m, ATTN_MHA_SELF, batch, n, n, &o);
        o.attn.work = guard_alloc(need);
        o.attn.work_size = need;
        CHECK(attn_mha_self(&l.m, out, x, batch, n, &o) == ATTN_OK);
        for (int b = 0; b < batch; b++)
            for (int y = 0; y < n * n; y++) {
                volatile float sum = every[(size_t)((b * l.a.heads + heads[0]) * n * n + y)];
                float want, got = mean[b * n * n + y];
                for (int h = 1; h < n_heads; h++)
                    sum += every[(size_t)((b * l.a.heads + heads[h]) * n * n + y)];
                want = sum / (float)n_heads + 0.0f;
                CHECKF(same_bits(&want, &got, 1), "batch %d cell %d: %g, not %g", b, y, (double)got, (double)want);
            }
        guard_free(o.attn.work);
        free(x); free(out); free(every); guard_free(mean);
        layer_free(&l);
    }
}

/* ---- what must not matter, and what must not be missing ----------------------------------------------------- */

/* all backends with the common bits, all widths; the others have other bits, the same at every width */
static void backends_and_threads(void)
{
    rng r = rng_make(test_seed + 12);
    attn_backend one[16], backends[16];
    int n_one = test_one_answer_backends(one, 16), n_backends = test_all_backends(backends, 16);
    for (int i = 0; i < 12 && !test_failed(); i++) {
        const int batch = rng_int(&r, 1, 2), n = i % 3 ? rng_int(&r, 1, 40) : rng_int(&r, 97, 150);
        float *x, *want, *got;
        layer l;
        attn_mha_opts o;
        memset(&o, 0, sizeof o);
        layer_make(&l, &r, i % 2 ? WITH_ROPE : WITH_ROPE | WITH_MORE);
        x = normal(&r, (size_t)(batch * n * l.a.d_model), 1.0);
        x[rng_int(&r, 0, batch * n * l.a.d_model - 1)] = NAN; /* one NaN must be the same NaN everywhere */
        want = floats((size_t)(batch * n * l.a.d_model));
        got = floats((size_t)(batch * n * l.a.d_model));
        o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
        for (int b = 0; b < n_backends; b++) {
            int own = backends[b];                            /* backend whose bits are expected */
            for (int j = 0; j < n_one; j++) if (one[j] == backends[b]) own = one[0];
            o.attn.exec = NULL;
            o.attn.backend = own;
            CHECK(attn_mha_self(&l.m, want, x, batch, n, &o) == ATTN_OK);
            for (int width = 1; width <= 4; width += 1 + (width == 2)) {
                attn_exec exec = test_exec(width);
                o.attn.exec = &exec;
                o.attn.backend = backends[b];
                memset(got, 0x77, (size_t)(batch * n * l.a.d_model) * sizeof(float));
                CHECK(attn_mha_self(&l.m, got, x, batch, n, &o) == ATTN_OK);
                CHECKF(same_bits(got, want, (size_t)(batch * n * l.a.d_model)), "%s, width %d differs from %s",
                       attn_backend_name(backends[b]), width, attn_backend_name(own));
            }
        }
        free(x); free(want); free(got);
        layer_free(&l);
    }
}

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

/* A cross step for more sentences than its cache has entries: k_map shares them, k_batch is their number. */
static void workspace_shared(void)
{
    enum { B = 3, ENTRIES = 2, KEYS = 40 };
    rng r = rng_make(test_seed + 27);
    const int map[B] = {1, 0, 1};
    attn_kv_args s = {.batch = ENTRIES, .capacity = KEYS};
    attn_kv c;
    layer l;
    attn_mha_opts o;
    float *x, *memory, *got, *want;
    void *work;
    size_t outs;
    layer_make(&l, &r, 0);
    outs = (size_t)(B * l.a.d_model);
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
    REFUSED_SIZE(attn_mha_workspace(&l.m, ATTN_MHA_CROSS_STEP, B, 1, KEYS, &o), ATTN_E_SIZE,
                 "attn_mha_workspace: batch is 3 but there are only 2 entries in the cache");
    o.attn.k_map = map;
    CHECK(attn_mha_cross_step(&l.m, want, x, B, 1, &c, &o) == ATTN_OK);
    o.attn.work_size = attn_mha_workspace(&l.m, ATTN_MHA_CROSS_STEP, B, 1, KEYS, &o);
    o.attn.work = work = guard_alloc(o.attn.work_size);
    CHECKF(attn_mha_cross_step(&l.m, got, x, B, 1, &c, &o) == ATTN_OK, "%s", refusal_text());
    CHECK(same_bits(got, want, outs));
    guard_free(work);
    attn_kv_free(&c);
    free(x); free(memory); free(got); free(want);
    layer_free(&l);
}

/* ---- norms -------------------------------------------------------------------------------------------------- */

/* Against the formula in double, on numbers of every size. Only the norm can hide the scale of q: with a q_norm, all
   weights of w_q times 8 give the same bits (2^3 changes no rounding, and eps is too small to be seen). */
static void norms(void)
{
    static const float scales[] = {1.0f, 1e-12f, 1e12f, 0.0f};
    rng r = rng_make(test_seed + 24);
    for (int i = 0; i < 40 && !test_failed(); i++) {
        enum { N = 4, D = 12, DM = 10 };
        float *w[4], *x = normal(&r, N * DM, 1.0), q_norm[D], scale = scales[i % 4], got[N * DM], want[N * DM];
        attn_mha_args a = {0};
        attn_mha m;
        for (int k = 0; k < 4; k++) w[k] = normal(&r, D * DM, 1.0);
        rng_fill(&r, q_norm, D);
        a.d_model = DM, a.heads = 1, a.head_dim = D;
        a.w_q = w[0], a.w_k = w[1], a.w_v = w[2], a.w_o = w[3];
        a.q_norm = q_norm;
        a.norm_eps = 1e-30f;
        CHECK(attn_mha_init(&m, &a) == ATTN_OK);
        CHECK(attn_mha_self(&m, want, x, 1, N, NULL) == ATTN_OK);
        attn_mha_free(&m);
        for (int k = 0; k < D * DM; k++) w[0][k] *= 8.0f;
        CHECK(attn_mha_init(&m, &a) == ATTN_OK);
        CHECK(attn_mha_self(&m, got, x, 1, N, NULL) == ATTN_OK);
        attn_mha_free(&m);
        CHECK(same_bits(got, want, N * DM));

        for (int k = 0; k < D * DM; k++) w[0][k] *= scale;                 /* raw scores show the queries themselves */
        {
            attn_linear lq, lk;
            float q[N * D], keys[N * D], scores[N * N];
            attn_mha_opts o = {0};
            a.norm_eps = i % 8 < 4 ? 0.0f : 0.5f;
            CHECK(attn_mha_init(&m, &a) == ATTN_OK);
            CHECK(linear_make(&lq, w[0], NULL, DM, D) == ATTN_OK && linear_make(&lk, w[1], NULL, DM, D) == ATTN_OK);
            CHECK(attn_linear_run(&lq, q, x, N, 0, NULL) == ATTN_OK);
            CHECK(attn_linear_run(&lk, keys, x, N, 0, NULL) == ATTN_OK);
            o.attn.weights = scores;
            o.attn.weights_stage = ATTN_SCORES_RAW;
            CHECK(attn_mha_self(&m, got, x, 1, N, &o) == ATTN_OK);
            for (int row = 0; row < N; row++)
                for (int key = 0; key < N; key++) {
                    double mean = 0.0, sum = 0.0, size = 0.0, root;
                    for (int c = 0; c < D; c++) mean += (double)q[row * D + c] * q[row * D + c] / D;
                    root = 1.0 / sqrt(mean + (a.norm_eps > 0.0f ? (double)a.norm_eps : 1e-6)) / sqrt(D);
                    for (int c = 0; c < D; c++) {
                        const double term = q[row * D + c] * root * q_norm[c] * keys[key * D + c];
                        sum += term;
                        size += fabs(term);
                    }
                    CHECKF(fabs(scores[row * N + key] - sum) <= 1e-6 * size + 1e-30,
                           "scale %g: score %d %d is %g, not %g", (double)scale, row, key,
                           (double)scores[row * N + key], sum);
                }
            attn_linear_free(&lq);
            attn_linear_free(&lk);
            attn_mha_free(&m);
        }
        for (int k = 0; k < 4; k++) free(w[k]);
        free(x);
    }
}

/* ---- rows that do not exist ----------------------------------------------------------------------------------- */

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

enum { SB = 2, SN = 3, SDM = 8, SHEADS = 2 };

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
        int nans = 0;
        for (size_t i = 0; i < need / sizeof(float) - 17; i++)     /* a single one may be the padding of a struct */
            nans += floats_of[i] != floats_of[i] && floats_of[i + 1] != floats_of[i + 1];
        CHECKF(nans == 0, "%d pairs of numbers in the workspace are NaN", nans);
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

/* ---- overlaps ----------------------------------------------------------------------------------------------- */
/* All arguments of a call, for overlaps in pairs. */
typedef struct stage {
    attn_mha m;
    attn_kv own, source;
    attn_mha_opts o;
    float *out;
    const float *x, *memory;
    const int *source_lengths;
} stage;

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

/* Part b (a number of `readable` below) of the copy that a layer has made. */
static void *part_of(const attn_mha *m, int b, size_t *bytes)
{
    const attn_linear *const all[] = {&m->q, &m->k, &m->v, &m->o, &m->gate};
    const attn_linear *const l = all[b >= 29 ? 4 : b <= 22 ? (b - 15) / 2 : 0];
    if (b >= 34) {
        *bytes = SDM / SHEADS * 4;
        return (void *)(uintptr_t)(b == 34 ? m->q_norm_b : m->k_norm_b);
    }
    const int weights = b == 29 || (b < 29 && b % 2 == 1);
    *bytes = b == 23 || b == 24 ? SDM / SHEADS * 4 : weights ? SDM * 16 * 4 : 16 * 4;
    return (void *)(uintptr_t)(b == 23 ? (const void *)m->q_norm : b == 24 ? (const void *)m->k_norm :
                               weights ? l->w : (const void *)l->b);
}

/* Every output over every input, at its first and at its last byte: OVERLAP, and no byte of either changes. Every pair
   that one call can have. */
static void overlaps(void)
{
    enum { ROOM = 1 << 18, PLACE = ROOM / 2 };
    static const char *const written[] = {"out", "weights", "lse", "masked_rows", "work", "the memory of the cache"};
    static const char *const readable[] = {"x",
                                           "memory",
                                           "memory_v",
                                           "source_lengths",
                                           "the memory of the cache",
                                           "mask",
                                           "keep",
                                           "bias",
                                           "alibi_slopes",
                                           "sinks",
                                           "q_pos_each",
                                           "q_lengths",
                                           "k_lengths",
                                           "k_starts",
                                           "rel_bias",
                                           "w_q",
                                           "b_q",
                                           "w_k",
                                           "b_k",
                                           "w_v",
                                           "b_v",
                                           "w_o",
                                           "b_o",
                                           "q_norm",
                                           "k_norm",
                                           "rope_table",
                                           "k_map",
                                           "q_cum",
                                           "k_cum",
                                           "w_gate",
                                           "b_gate",
                                           "q_factors",
                                           "rope_pos",
                                           "weights_heads",
                                           "q_norm_b",
                                           "k_norm_b"};
    enum { WRITTEN = 6, READABLE = 36 };
    static union { double align; unsigned char byte[ROOM]; } room;
    static unsigned char before[ROOM];
    static unsigned char work[1 << 16];
    rng r = rng_make(test_seed + 26);
    float *w = normal(&r, 4 * SDM * SDM, 0.5), *x = normal(&r, SB * SN * SDM, 1.0);
    float table[8 * 4], out[SB * SN * SDM], weights[SB * SHEADS * SN * SN], lse[SB * SHEADS * SN];
    int tried = 0;
    CHECK(attn_rope_table(table, 8, 4, NULL, 0.0) == ATTN_OK);
    for (int ragged = 0; ragged < 2; ragged++)
        for (int call = 0; call < 6; call++)
            for (int a = 0; a < WRITTEN; a++)
                for (int b = 0; b < READABLE; b++)
                    for (int end = 0; end < 2 && !test_failed(); end++) {
                        const int packed = (b >= 15 && b <= 24) || b == 29 || b == 30 || b >= 34;
                        const int self = call == ATTN_MHA_SELF || call == ATTN_MHA_SELF_STEP;
                        const int look = call == ATTN_MHA_SELF_LOOK, cached = look || call == ATTN_MHA_CROSS_STEP;
                        const int step = call == ATTN_MHA_SELF_STEP || cached;
                        const int fill = call == ATTN_MHA_CROSS_FILL, rope = (self || look) && b == 25;
                        stage s;
                        attn_mha_args la = {.d_model = SDM, .heads = SHEADS};
                        attn_kv_args ka = {.batch = SB, .kv_heads = SHEADS, .head_dim = SDM / SHEADS, .capacity = 8};
                        size_t masked, sizes[WRITTEN], bytes = 0;
                        void *to, *at;
                        attn_status status;
                        memset(&s, 0, sizeof s);
                        memset(&room, 0, sizeof room);
                        to = room.byte + PLACE + (64 - (uintptr_t)room.byte % 64) % 64;
                        /* the input is at `to`; if the call does not support it, the pair is left out */
                        if (b == 1 && (self || step)) continue;
                        if (b == 2 && (self || step)) continue;
                        if (b == 3 && !fill) continue;
                        if (b == 4 && (!cached || a == 5)) continue;
                        if (b == 0 && fill) continue;
                        if (fill && ((b >= 5 && b <= 14) || (b >= 25 && !packed))) continue;
                        if (b == 31 && !self && !look) continue;
                        if ((b == 12 || b == 13) && (step || ragged)) continue;
                        if (b == 11 && ragged) continue;
                        if (b == 25 && !rope) continue;
                        if (b == 26 && (call != ATTN_MHA_CROSS && call != ATTN_MHA_CROSS_STEP)) continue;
                        if (b == 26 && call == ATTN_MHA_CROSS && ragged) continue;
                        if (b == 27 && (!ragged || fill)) continue;
                        if (b == 28 && (!ragged || call != ATTN_MHA_CROSS)) continue;
                        if (a < 4 && fill) continue;
                        if (a == 5 && !fill && call != ATTN_MHA_SELF_STEP) continue;
                        s.out = out, s.x = x, s.memory = x + 1;
                        la.w_q = w, la.w_k = w + 64, la.w_v = w + 128, la.w_o = w + 192;
                        s.o.attn.q_lengths = NULL;
                        switch (b) {
                        case 0: s.x = to, bytes = SB * SN * SDM * 4; break;
                        case 1: s.memory = to, bytes = SB * SN * SDM * 4; break;
                        case 2: s.o.memory_v = to, bytes = SB * SN * SDM * 4; break;
                        case 3: s.source_lengths = to, bytes = SB * 4; break;
                        case 4: ka.mem = to, ka.mem_size = attn_kv_size(&ka), bytes = ka.mem_size - 63; break;
                        case 5: s.o.attn.mask = to, bytes = SN * SN * 4; break;
                        case 6: s.o.attn.keep = to, bytes = SN * SN; break;
                        case 7: s.o.attn.bias = to, bytes = SHEADS * SN * SN * 4; break;
                        case 8: s.o.attn.alibi_slopes = to, bytes = SHEADS * 4; break;
                        case 9: s.o.attn.sinks = to, bytes = SHEADS * 4; break;
                        case 10: s.o.attn.q_pos_each = to, bytes = SB * 4; break;
                        case 11: s.o.attn.q_lengths = to, bytes = SB * 4; break;
                        case 12: s.o.attn.k_lengths = to, bytes = SB * 4; break;
                        case 13: s.o.attn.k_starts = to, bytes = SB * 4; break;
                        case 14: s.o.attn.rel_bias = to, s.o.attn.rel_extent = 3, bytes = SHEADS * 7 * 4; break;
                        case 23: la.q_norm = w; break;
                        case 24: la.k_norm = w; break;
                        case 34: la.q_norm = la.q_norm_b = w; break;
                        case 35: la.k_norm = la.k_norm_b = w; break;
                        case 25: memcpy(to, table, sizeof table), la.rope_table = to, la.positions = 8,
                                 bytes = sizeof table; break;
                        case 26: s.o.attn.k_map = to, s.o.attn.k_batch = SB, bytes = SB * 4; break;
                        case 27: s.o.attn.q_cum = to, bytes = (SB + 1) * 4; break;
                        case 29: case 30: la.w_gate = w; break;
                        case 31: la.q_factors = to, la.positions = 8, bytes = 8 * 4; break;
                        case 32: s.o.rope_pos = to, bytes = SB * SN * 4; break;
                        case 33: s.o.attn.weights_heads = to, s.o.attn.n_weights_heads = SHEADS, bytes = SHEADS * 4;
                                 for (int k = 0; k < SHEADS; k++) ((int *)to)[k] = k;
                                 s.o.attn.weights = weights; break;
                        case 28: s.o.attn.k_cum = to, bytes = (SB + 1) * 4; break;
                        default: break;
                        }
                        if (packed) {                                     /* the layer's copy */
                            la.mem = to;
                            la.mem_size = attn_mha_size(&la);
                        }
                        if (b == 27 || b == 28) for (int k = 0; k <= SB; k++) ((int *)to)[k] = k * SN;
                        if (b == 3 || b == 11 || b == 12) for (int k = 0; k < SB; k++) ((int *)to)[k] = SN;
                        CHECK(attn_mha_init(&s.m, &la) == ATTN_OK);
                        if (packed) to = part_of(&s.m, b, &bytes);
                        if (a == 5) ka.mem_size = attn_kv_size(&ka);
                        sizes[0] = sizeof out, sizes[1] = sizeof weights, sizes[2] = sizeof lse;
                        sizes[3] = sizeof masked, sizes[4] = sizeof work, sizes[5] = ka.mem_size;
                        if (cached || call == ATTN_MHA_CROSS) sizes[1] = SB * SHEADS * SN * SN * 4;
                        /* The writer's first byte on the reader's last, or its last on the reader's first; floats on
                           floats. */
                        at = end ? (unsigned char *)to + (bytes - 1) / 8 * 8
                                 : (unsigned char *)to - (sizes[a] - 1) / 8 * 8;
                        s.o.attn.work = work;
                        s.o.attn.work_size = sizeof work;
                        switch (a) {
                        case 0: s.out = at; break;
                        case 1: s.o.attn.weights = at; break;
                        case 2: s.o.attn.lse = at; break;
                        case 3: s.o.attn.masked_rows = at; break;
                        case 4: s.o.attn.work = at, s.o.attn.work_size = sizes[4]; break;
                        default: ka.mem = at;
                        }
                        CHECK(attn_kv_init(call == ATTN_MHA_SELF_STEP ? &s.own : &s.source, &ka) == ATTN_OK);
                        if (cached)
                            CHECK(attn_kv_append(&s.source, -1, x, x, SN, 0) == ATTN_OK);
                        if (a == 5) {                                     /* its panels are a part of this memory */
                            attn_kv *c = call == ATTN_MHA_SELF_STEP ? &s.own : &s.source;
                            if (b == 27 || b == 28) for (int k = 0; k <= SB; k++) ((int *)to)[k] = k * SN;
                            if (b == 33) for (int k = 0; k < SHEADS; k++) ((int *)to)[k] = k;
                            if (end ? (unsigned char *)c->memory > (unsigned char *)to + bytes - 1
                                    : (unsigned char *)c->memory + c->bytes <= (unsigned char *)to) {
                                attn_mha_free(&s.m);
                                continue;
                            }
                        }
                        memcpy(before, room.byte, ROOM);
                        refusal_clear();
                        status = stage_call(&s, (attn_mha_call)call);
                        CHECKF(status == ATTN_E_OVERLAP, "call %d, %s over %s (%s, %s): status %d, %s", call,
                               written[a], readable[b], end ? "at its end" : "at its beginning",
                               ragged ? "ragged" : "padded", status, refusal_text());
                        CHECKF(!memcmp(before, room.byte, ROOM), "call %d, %s over %s: written", call, written[a],
                               readable[b]);
                        CHECKF(strstr(refusal_text(), written[a]) && strstr(refusal_text(), " overlaps "), "%s",
                               refusal_text());
                        tried++;
                        attn_mha_free(&s.m);
                        attn_kv_free(&s.own);
                        attn_kv_free(&s.source);
                    }
    CHECKF(tried > 1000, "only %d pairs", tried);
    free(w); free(x);
}

/* If all terms of a sum are -0, or underflow to it: attention, rotation and merged masks store +0; results of linears
   keep the sign, and a table of biases is copied unchanged. */
static void signs_of_zero(void)
{
    static const uint32_t minus = 0x80000000u;
    const float w = -1.0f, one = 1.0f, small = -1e-30f, rotation[2] = {1.0f, 0.0f};
    const float table[2] = {-0.0f, bits_float(0xFFA12345u)};
    const float keys[3] = {1e-30f, 0.0f, 0.0f}, values[3] = {bits_float(0x80000001u), -0.0f, -0.0f};
    float x[2] = {-0.0f, 1.0f}, none[1] = {-0.0f}, m[1] = {-0.0f}, bias[2], y = 1.0f;
    attn_backend backends[16];
    int n = test_all_backends(backends, 16);
    attn_linear l;
    attn_mha_args args = {0};
    attn_rope_args rope = {0};
    attn_mha unit;
    CHECK(linear_make(&l, &one, none, 1, 1) == ATTN_OK);
    CHECK(attn_linear_run(&l, &y, none, 1, 0, NULL) == ATTN_OK && float_bits(y) == minus);
    attn_linear_free(&l);
    args.d_model = args.heads = 1;
    args.w_q = args.w_k = args.w_v = args.w_o = &w;
    args.b_o = none;
    CHECK(attn_mha_init(&unit, &args) == ATTN_OK);
    for (int b = 0; b < n; b++) {
        attn_mha_opts o = {0};
        attn_args a = {0};
        float weights[3], zero = 0.0f;
        o.attn.backend = backends[b];
        CHECK(attn_mha_self(&unit, &y, &zero, 1, 1, &o) == ATTN_OK && float_bits(y) == minus);
        a.out = &y, a.q = &small, a.k = keys, a.v = values, a.batch = a.n_q = a.heads = a.head_dim = 1, a.n_k = 3;
        a.weights = weights, a.weights_stage = ATTN_SCORES_RAW, a.backend = backends[b];
        CHECK(attn_sdpa(&a) == ATTN_OK);
        CHECK(float_bits(y) == 0 && float_bits(weights[0]) == 0);      /* a third of the smallest float; -1e-60 */
    }
    attn_mha_free(&unit);
    rope.x = x, rope.batch = rope.n = rope.heads = rope.positions = 1, rope.head_dim = 2, rope.rope_table = rotation;
    CHECK(attn_rope(&rope) == ATTN_OK && float_bits(x[0]) == 0);
    CHECK(attn_mask_merge(m, 1, none, 1, 1, 1) == ATTN_OK && float_bits(m[0]) == 0);
    for (int i = 0; i < 2; i++) {
        const float copied[2] = {table[i], table[i]};
        CHECK(attn_bias_t5(bias, copied, 2, 2, 1, 1, 0) == ATTN_OK && same_bits(bias, copied, 1));
    }
}

/* ---- refusals ----------------------------------------------------------------------------------------------- */
static void wrong_layers(void)
{
    float w[64] = {0};
    attn_mha_args good = {0}, a;
    attn_mha m;
    good.d_model = 8;
    good.heads = 2;
    good.w_q = good.w_k = good.w_v = good.w_o = w;
#define REFUSES(change, status, words)                                                                                 \
    do {                                                                                                               \
        a = good;                                                                                                      \
        change;                                                                                                        \
        memset(&m, 0x55, sizeof m);                                                                                    \
        REFUSED(attn_mha_init(&m, &a), status, words);                                                                 \
        CHECK(!strncmp(refusal_text(), "attn_mha_init: ", 15));                                                        \
        CHECKF(attn_mha_self(&m, w, w, 1, 1, NULL) == ATTN_E_NULL, "usable after an error");                           \
        if ((status) == ATTN_E_SIZE || (status) == ATTN_E_HEADS || (status) == ATTN_E_OVERFLOW)                        \
            REFUSED_SIZE(attn_mha_size(&a), status, words);                                                            \
        attn_mha_free(&m);                                                                                             \
    } while (0)
    REFUSES(a.d_model = 9, ATTN_E_HEADS, "d_model is 9 but heads is 2");
    REFUSES(a.d_model = 0, ATTN_E_SIZE, "d_model");
    REFUSES(a.heads = 0, ATTN_E_SIZE, "heads");
    REFUSES(a.heads = 4; a.kv_heads = 3, ATTN_E_HEADS, "kv_heads is 3");
    REFUSES(a.kv_heads = -1, ATTN_E_SIZE, "kv_heads");
    REFUSES(a.head_dim = -1, ATTN_E_SIZE, "head_dim");
    REFUSES(a.d_key = -1, ATTN_E_SIZE, "d_key");
    REFUSES(a.d_value = -1, ATTN_E_SIZE, "d_value");
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
    REFUSES(a.head_dim = 3; a.rope_table = w; a.positions = 4, ATTN_E_SIZE, "head_dim is 3");
    REFUSES(a.rope_table = w, ATTN_E_SIZE, "positions");
    REFUSES(a.rope_table = w; a.positions = 4; a.rotary_dim = 6, ATTN_E_SIZE, "rotary_dim is 6 but head_dim is 4");
    REFUSES(a.rope_table = w; a.positions = 4; a.rotary_dim = 3, ATTN_E_SIZE, "rotary_dim is 3");
    REFUSES(a.rotary_dim = -1, ATTN_E_SIZE, "rotary_dim is -1");
    REFUSES(a.v_head_dim = -1, ATTN_E_SIZE, "v_head_dim is -1");
    REFUSES(a.v_head_dim = 1 << 30, ATTN_E_OVERFLOW, "heads 2 times v_head_dim 1073741824 is too large");
    REFUSES(a.v_head_dim = 3; a.gate_rows = 8, ATTN_E_OPTION, "gate_rows is 8 but must be 2 or 6");
    REFUSES(a.rope_table = w; a.positions = 4;
            a.d_key = 6, ATTN_E_CONFLICT, "rope_table needs one source, but d_model is 8, d_key 6");
    REFUSES(a.rope_table = w; a.positions = 4; a.d_value = 6, ATTN_E_CONFLICT, "d_value 6");
    REFUSES(a.rope_interleaved = 2, ATTN_E_OPTION, "rope_interleaved is 2");
    REFUSES(a.norm_after_rope = -1, ATTN_E_OPTION, "norm_after_rope is -1");
    REFUSES(a.norm_eps = -1.0f, ATTN_E_OPTION, "norm_eps is -1.00");
    REFUSES(a.norm_eps = NAN, ATTN_E_OPTION, "norm_eps is nan");
    REFUSES(a.storage = (attn_storage)3, ATTN_E_OPTION, "storage is 3");
    REFUSES(a.w_storage = (attn_storage)-1, ATTN_E_OPTION, "w_storage is -1");
    REFUSES(a.w_k = behind(w, 1); a.w_storage = ATTN_BF16, ATTN_E_ALIGN, "w_k is not aligned: its address is 1 behind");
    REFUSES(a.norm_row = 3, ATTN_E_OPTION, "norm_row is 3");
    REFUSES(a.qk_norm = (attn_norm_kind)2, ATTN_E_OPTION, "qk_norm is 2");
    REFUSES(a.q_norm_b = w, ATTN_E_CONFLICT, "q_norm_b is set, but q_norm is not");
    REFUSES(a.k_norm_b = w; a.q_norm = w, ATTN_E_CONFLICT, "k_norm_b is set, but k_norm is not");
    REFUSES(a.q_norm = w; a.q_norm_b = behind(w, 2), ATTN_E_ALIGN, "q_norm_b is not aligned");
    REFUSES(a.k_norm = w; a.k_norm_b = behind(w, 1), ATTN_E_ALIGN, "k_norm_b is not aligned");
    REFUSES(a.v_norm = -1, ATTN_E_OPTION, "v_norm is -1");
    REFUSES(a.q_only = 2, ATTN_E_OPTION, "q_only is 2");
    REFUSES(a.gate_rows = 4, ATTN_E_OPTION, "gate_rows is 4 but must be 2 or 8");
    REFUSES(a.gate_rows = -2, ATTN_E_OPTION, "gate_rows is -2 but must be 2 or 8");
    REFUSES(a.b_gate = w, ATTN_E_CONFLICT, "b_gate is set, but w_gate is not");
    REFUSES(a.q_factors = w, ATTN_E_SIZE, "positions");
    REFUSES(a.q_factors = w; a.positions = 4; a.d_key = 6, ATTN_E_CONFLICT, "q_factors needs one source");
    REFUSES(a.q_only = 1, ATTN_E_CONFLICT, "q_only and w_k are both set");
    REFUSES(a.q_only = 1; a.w_k = NULL, ATTN_E_CONFLICT, "q_only and w_v are both set");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = a.w_q = NULL, ATTN_E_NULL, "w_q is NULL, and so is packed");
    REFUSES(a.w_q = a.w_k = a.w_v = NULL, ATTN_E_NULL, "w_q is NULL, and so are w_in and packed");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.w_o = NULL, ATTN_E_NULL, "w_o is NULL");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = a.w_q = NULL; a.w_in = w, ATTN_E_CONFLICT, "q_only and w_in");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.b_in = w, ATTN_E_CONFLICT, "q_only and b_in");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.b_k = w, ATTN_E_CONFLICT, "q_only and b_k");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.b_v = w, ATTN_E_CONFLICT, "q_only and b_v");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.k_norm = w, ATTN_E_CONFLICT, "q_only and k_norm");
    REFUSES(a.q_only = 1; a.w_k = a.w_v = NULL; a.v_norm = 1, ATTN_E_CONFLICT, "q_only and v_norm");
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
    REFUSES(a.d_model = 1 << 30; a.heads = 1 << 15, ATTN_E_OVERFLOW, "too large for");
    REFUSES(a.heads = 1 << 16; a.head_dim = 1 << 16, ATTN_E_OVERFLOW, "heads 65536 times head_dim 65536");
    /* each of the four fits, the sum does not */
    REFUSES(a.d_model = (1 << (sizeof(size_t) < 8 ? 14 : 30)) - 1; a.heads = 1;
            a.head_dim = 1 << (sizeof(size_t) < 8 ? 14 : 29), ATTN_E_OVERFLOW, "too large for");
#undef REFUSES
    REFUSED(attn_mha_init(NULL, &good), ATTN_E_NULL, "attn_mha_init: the attn_mha is NULL");
    REFUSED(attn_mha_init(&m, NULL), ATTN_E_NULL, "attn_mha_init: the attn_mha_args are NULL");
    REFUSED_SIZE(attn_mha_size(NULL), ATTN_E_NULL, "attn_mha_size: the attn_mha_args are NULL");
    attn_mha_free(NULL);
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
#define REFUSES(change, status, words) \
    do { a = good; change; memset(&m, 0x55, sizeof m); \
         REFUSED(attn_mha_init(&m, &a), status, "attn_mha_init: " words); CHECK(!m.o.w && !m.own); } while (0)
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
#undef REFUSES
    guard_free(mem);
    free(w);
}

static void wrong_calls(void)
{
    enum { B = 2, N = 3, DM = 8 };
    rng r = rng_make(test_seed + 14);
    float *w = normal(&r, 4 * DM * DM, 0.5), x[B * N * DM], copy[B * N * DM], table[4 * 4], out[B * N * DM],
          weights[B * 2 * N * N];
    static const int two[] = {0, 1, 2};
    attn_mha_args a = {0};
    attn_mha m, turning, wide, value_wide, zero, factored, q_only;
    attn_kv c, other, small, empty, grouped, narrow;
    attn_kv_args s = {0};
    attn_mha_opts o;
    attn_exec none = {0};
    char work[16];
    size_t masked;
    unsigned char *before;
    const int over[B] = {1, 4}, cum[B + 1] = {0, 1, 3}, bad_cum[B + 1] = {1, 2, 3}, fall[B + 1] = {0, 2, 1},
              map[B] = {0, 1}, ones[B] = {1, 1}, places[B * N] = {3, 2, 1, -1, 7, 4},
              under[B] = {0, -1}, three[B] = {1, 3};
    size_t cache_bytes;
    rng_fill(&r, x, B * N * DM);
    memcpy(copy, x, sizeof x);
    memset(&zero, 0, sizeof zero);
    memset(&empty, 0, sizeof empty);
    a.d_model = DM;
    a.heads = 2;
    a.w_q = a.w_k = a.w_v = a.w_o = w;
    CHECK(attn_mha_init(&m, &a) == ATTN_OK);
    CHECK(attn_rope_table(table, 4, 4, NULL, 0.0) == ATTN_OK);
    a.rope_table = table;
    a.positions = 4;
    CHECK(attn_mha_init(&turning, &a) == ATTN_OK);
    a.rope_table = NULL;
    a.q_factors = table;
    CHECK(attn_mha_init(&factored, &a) == ATTN_OK);
    a.q_factors = NULL;
    a.w_k = a.w_v = NULL;
    a.q_only = 1;
    CHECK(attn_mha_init(&q_only, &a) == ATTN_OK);
    a.w_k = a.w_v = w;
    a.q_only = 0;
    a.d_key = 12;
    a.d_value = 16;
    CHECK(attn_mha_init(&wide, &a) == ATTN_OK);
    a.d_key = DM;
    CHECK(attn_mha_init(&value_wide, &a) == ATTN_OK);
    s.batch = B;
    s.kv_heads = 2;
    s.head_dim = 4;
    s.capacity = 5;
    cache_bytes = attn_kv_size(&s);
    s.mem = guard_alloc(cache_bytes);
    s.mem_size = cache_bytes;
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
    memset(&o, 0, sizeof o);
    CHECK(attn_mha_self_step(&m, out, x, B, N, &c, NULL) == ATTN_OK);
    before = malloc(cache_bytes);
    if (!before) abort();
    memcpy(before, c.shape.mem, cache_bytes);
    memset(out, 0x77, sizeof out);
    memset(weights, 0x77, sizeof weights);
#define REFUSES(call, status, words)                                                                                   \
    do {                                                                                                               \
        const char *function = strstr(#call, "attn_mha_");                                                             \
        refusal_clear();                                                                                               \
        {                                                                                                              \
            const attn_status got = (call);                                                                            \
            CHECKF(got == (status), "%s says %s; %s", #call, attn_status_str(got), refusal_text());                    \
        }                                                                                                              \
        CHECKF(refusal_count() == ((status) != ATTN_OK) && strstr(refusal_text(), words), "%s: %s", #call,             \
               refusal_text());                                                                                        \
        if (refusal_count())                                                                                           \
            CHECKF(!strncmp(refusal_text(), function, strcspn(function, "(")), "%s: %s", #call, refusal_text());       \
        CHECKF(untouched(out, sizeof out) && untouched(weights, sizeof weights), "%s wrote", #call);                   \
        CHECKF(!memcmp(before, c.shape.mem, cache_bytes), "%s changed the cache", #call);                              \
        memset(&o, 0, sizeof o);                                                                                       \
    } while (0)
/* Changes `o` and gives the expected results of CALL, which is the same for all rows up to the next CALL. */
#define WRONG(change, status, words)          WRONG_OF(change, CALL, status, words)
#define WRONG_OF(change, call, status, words) REFUSES((change, call), status, words)
    REFUSES(attn_mha_self(NULL, out, x, B, N, NULL), ATTN_E_NULL, "m is not a layer");
    REFUSES(attn_mha_self(&zero, out, x, B, N, NULL), ATTN_E_NULL, "m is not a layer");
    REFUSES(attn_mha_self(&m, NULL, x, B, N, NULL), ATTN_E_NULL, "out is NULL");
    REFUSES(attn_mha_self(&m, out, NULL, B, N, NULL), ATTN_E_NULL, "x is NULL");
    REFUSES(attn_mha_self(&m, out, x, -1, N, NULL), ATTN_E_SIZE, "batch is -1");
    REFUSES(attn_mha_self(&m, out, x, B, -1, NULL), ATTN_E_SIZE, "n is -1");
    REFUSES(attn_mha_self(&m, out, x, 1 << 20, 1 << 20, NULL), ATTN_E_OVERFLOW, "batch 1048576 times n_q 1048576");
    REFUSES(attn_mha_self(&m, out, out, B, N, NULL), ATTN_E_OVERLAP, "out overlaps x");
    REFUSES(attn_mha_self(&wide, out, x, B, N, NULL), ATTN_E_SIZE, "d_key is 12");
    REFUSES(attn_mha_self(&turning, out, x, 1, 5, NULL), ATTN_E_SIZE, "positions is 4 but n is 5");
    REFUSES(attn_mha_self(&m, NULL, NULL, 0, N, NULL), ATTN_OK, "");
    REFUSES(attn_mha_self(&m, NULL, NULL, B, 0, NULL), ATTN_OK, "");
    REFUSES((o.attn.q_cum = cum, attn_mha_self(&m, NULL, NULL, 0, N, &o)), ATTN_OK, "");
#define CALL attn_mha_self(&m, out, x, B, N, &o)
    WRONG(o.attn.k = x, ATTN_E_CONFLICT, "k");
    WRONG(o.attn.v = x, ATTN_E_CONFLICT, "v");
    WRONG(o.attn.batch = B, ATTN_E_CONFLICT, "batch");
    WRONG(o.attn.n_q = N, ATTN_E_CONFLICT, "n_q");
    WRONG(o.attn.kv_heads = 2, ATTN_E_CONFLICT, "kv_heads");
    WRONG(o.attn.head_dim = 4, ATTN_E_CONFLICT, "head_dim");
    WRONG(o.attn.v_head_dim = 4, ATTN_E_CONFLICT, "v_head_dim");
    WRONG(o.attn.carry_in = x, ATTN_E_CONFLICT, "attn.carry_in is set");
    WRONG(o.attn.carry_out = out, ATTN_E_CONFLICT, "attn.carry_out is set");
    WRONG(o.attn.parts = 1, ATTN_E_CONFLICT, "attn.parts is set");
    for (int i = 0; i < 3; i++) {
        WRONG(o.attn.q_stride[i] = 8, ATTN_E_CONFLICT, "q_stride");
        WRONG(o.attn.v_stride[i] = 8, ATTN_E_CONFLICT, "v_stride");
        WRONG(o.attn.out_stride[i] = 8, ATTN_E_CONFLICT, "out_stride");
    }
    WRONG(o.attn.k_batch = B, ATTN_E_CONFLICT, "k_batch");
    REFUSES(attn_mha_self(&value_wide, out, x, B, N, NULL), ATTN_E_SIZE, "d_value is 16");
    WRONG(o.attn.q = x, ATTN_E_CONFLICT, "q");
    WRONG(o.attn.out = x, ATTN_E_CONFLICT, "out");
    WRONG(o.attn.n_k = N, ATTN_E_CONFLICT, "n_k");
    WRONG(o.attn.heads = 2, ATTN_E_CONFLICT, "heads");
    WRONG(o.attn.layout = ATTN_BHSD, ATTN_E_CONFLICT, "layout");
    WRONG(o.attn.k_stride[1] = 8, ATTN_E_CONFLICT, "k_stride");
    WRONG(o.attn.kv = &c, ATTN_E_CONFLICT, "attn.kv");
    WRONG(o.attn.k_map = map, ATTN_E_CONFLICT, "k_map");
    WRONG(o.attn.k_cum = cum, ATTN_E_CONFLICT, "k_cum");
    WRONG(o.memory_v = x, ATTN_E_CONFLICT, "memory_v");
    WRONG(o.attn.q_cum = bad_cum, ATTN_E_LENGTHS, "q_cum");
    WRONG(o.attn.q_cum = fall, ATTN_E_LENGTHS, "q_cum");
    REFUSES((o.attn.q_cum = cum, attn_mha_self(&m, out, x, B, 1, &o)), ATTN_E_SIZE, "n is 1");
    WRONG(o.attn.q_lengths = over, ATTN_E_LENGTHS, "q_lengths");
    WRONG(o.attn.k_lengths = over, ATTN_E_LENGTHS, "k_lengths");
    WRONG(o.attn.causal = 7, ATTN_E_OPTION, "causal");
    WRONG(o.attn.softcap = -1.0f, ATTN_E_OPTION, "softcap");
    WRONG(o.attn.backend = 99, ATTN_E_OPTION, "backend");
    WRONG(o.attn.exec = &none, ATTN_E_NULL, "exec->run");
    WRONG(o.weights_mean = -1, ATTN_E_OPTION, "weights_mean is -1");
    WRONG((o.attn.weights_heads = two, o.attn.n_weights_heads = 2), ATTN_E_CONFLICT, "weights is NULL");
    WRONG((o.attn.weights = weights, o.attn.n_weights_heads = 1), ATTN_E_NULL, "weights_heads is NULL");
    WRONG((o.attn.weights = weights, o.attn.weights_heads = two, o.attn.n_weights_heads = 3), ATTN_E_SIZE,
          "n_weights_heads is 3");
    WRONG((o.attn.weights = weights, o.attn.weights_heads = two + 1, o.attn.n_weights_heads = 2), ATTN_E_OPTION,
          "weights_heads[1] is 2");
    REFUSES(attn_mha_self(&m, behind(out, 1), x, B, N, NULL), ATTN_E_ALIGN, "out is not aligned");
    REFUSES(attn_mha_self(&m, out, behind(x, 2), B, N, NULL), ATTN_E_ALIGN, "x is not aligned");
    WRONG(o.attn.weights = behind(weights, 1), ATTN_E_ALIGN, "weights is not aligned");
    WRONG(o.attn.q_lengths = behind(ones, 2), ATTN_E_ALIGN, "q_lengths is not aligned");
    WRONG(o.attn.weights = x, ATTN_E_OVERLAP, "weights overlaps x");
    WRONG((o.attn.weights = out, o.weights_mean = 1), ATTN_E_OVERLAP, "out overlaps weights");
    WRONG((o.attn.work = work, o.attn.work_size = sizeof work), ATTN_E_WORK,
          "work_size is 16 but attn_mha_workspace asks for ");
    WRONG((o.attn.mask = x, o.attn.mask_shape[0] = 5), ATTN_E_SHAPE, "mask");
    WRONG((o.attn.weights = weights, o.attn.mask = x, o.attn.mask_stride[2] = 1), ATTN_E_STRIDE, "mask_stride[2] is 1");

    REFUSES(attn_mha_cross(&m, out, x, B, N, NULL, N, NULL), ATTN_E_NULL, "memory is NULL");
    REFUSES(attn_mha_cross(&m, out, x, B, N, behind(x, 1), N, NULL), ATTN_E_ALIGN, "memory is not aligned");
#undef CALL
#define CALL attn_mha_cross(&m, out, x, B, N, x, N, &o)
    WRONG(o.memory_v = behind(x, 1), ATTN_E_ALIGN, "memory_v is not aligned");
    REFUSES(attn_mha_cross(&wide, out, x, 1, 1, x, 1, NULL), ATTN_E_NULL,
            "memory_v is NULL"); /* another width of values needs memory_v */
    REFUSES(attn_mha_cross(&turning, out, x, B, N, x, N, NULL), ATTN_E_CONFLICT, "rope_table");
    REFUSES(attn_mha_cross(&m, out, x, B, N, out, N, NULL), ATTN_E_OVERLAP, "out overlaps memory");
    REFUSES(attn_mha_cross(&m, x + DM, x, 1, 1, x, N, NULL), ATTN_E_OVERLAP,
            "out overlaps memory"); /* x is the memory, or part of it */
    REFUSES((o.memory_v = x + DM, attn_mha_cross(&value_wide, x + 2 * DM, x, 1, 1, x + DM, 1, &o)), ATTN_E_OVERLAP,
            "memory_v");
    CHECK(same_bits(x, copy, B * N * DM));
    WRONG((o.attn.k_map = over, o.attn.k_batch = 2), ATTN_E_MAP, "k_map[1] is 4");
    WRONG(o.attn.k_cum = fall, ATTN_E_LENGTHS, "k_cum");
    WRONG(o.attn.k_cum = bad_cum, ATTN_E_LENGTHS, "k_cum");
    REFUSES((o.attn.k_cum = cum, attn_mha_cross(&m, out, x, B, N, x, 1, &o)), ATTN_E_SIZE, "n_k is 1");
    REFUSES((o.attn.k_cum = o.attn.q_cum = cum, attn_mha_cross(&m, NULL, NULL, 0, 0, NULL, 0, &o)), ATTN_OK, "");
    WRONG(o.attn.k_batch = 1, ATTN_E_SIZE, "k_batch");
    REFUSES((o.attn.k_batch = 1 << 20, attn_mha_cross(&m, out, x, B, N, x, 1 << 20, &o)), ATTN_E_OVERFLOW, "k_batch");

    REFUSES(attn_mha_self_step(&m, out, x, B, N, &c, NULL), ATTN_E_FULL, "cache");
    REFUSES(attn_mha_self_step(&m, out, x, B, N, NULL, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSES(attn_mha_self_step(&m, out, x, B, N, &empty, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSES(attn_mha_self_step(&m, out, x, 1, 1, &c, NULL), ATTN_E_SIZE, "batch is 1 but the cache has 2");
    REFUSES(attn_mha_self_step(&m, out, x, B, 1, &other, NULL), ATTN_E_SIZE, "head_dim is 4 but 3 in the cache");
    REFUSES(attn_mha_self_step(&turning, out, x, B, 2, &c, NULL), ATTN_E_SIZE,
            "positions is 4 but entry 0 grows to 5"); /* position 4 is not in the table */
    REFUSES(attn_mha_self_step(&m, NULL, x, B, 1, &c, NULL), ATTN_E_NULL, "out is NULL");
    REFUSES(attn_mha_self_step(&m, out, out, B, 1, &c, NULL), ATTN_E_OVERLAP, "out overlaps x");
#undef CALL
#define CALL attn_mha_self_step(&m, out, x, B, 1, &c, &o)
    WRONG(o.attn.causal = ATTN_CAUSAL_TOP_LEFT, ATTN_E_CONFLICT, "causal");
    WRONG(o.attn.k_lengths = ones, ATTN_E_CONFLICT, "k_lengths");
    WRONG(o.attn.k_starts = ones, ATTN_E_CONFLICT, "k_starts");
    WRONG(o.attn.kv = &other, ATTN_E_CONFLICT, "kv");
    REFUSES((o.attn.q_lengths = over, attn_mha_self_step(&m, out, x, B, N, &c, &o)), ATTN_E_LENGTHS, "");
    WRONG((o.attn.mask = x, o.attn.mask_shape[0] = B, o.attn.mask_shape[1] = o.attn.mask_shape[2] = 1,
           o.attn.mask_stride[0] = 3), ATTN_E_STRIDE, "mask");
    WRONG((o.attn.lse = (float *)(void *)&masked, o.attn.masked_rows = &masked), ATTN_E_OVERLAP,
          "lse overlaps masked_rows"); /* only the attention inside can see this */
    WRONG(o.attn.softcap = NAN, ATTN_E_OPTION, "softcap");
    WRONG((o.attn.work = work, o.attn.work_size = sizeof work), ATTN_E_WORK,
          "work_size is 16 but attn_mha_workspace asks for ");

    REFUSES(attn_mha_cross_step(&m, out, x, B, 1, NULL, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSES(attn_mha_cross_step(&m, out, x, B, 1, &empty, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSES(attn_mha_cross_step(&m, out, x, B, 1, &other, NULL), ATTN_E_SIZE, "head_dim is 4 but 3");
    REFUSES(attn_mha_cross_step(&m, out, x, 3, 1, &c, NULL), ATTN_E_SIZE, "entry 2 reads entry 2");
    REFUSES(attn_mha_cross_step(&turning, out, x, B, 1, &c, NULL), ATTN_E_CONFLICT, "rope_table");
    REFUSES((o.attn.mask = x, o.attn.mask_shape[0] = 5, attn_mha_cross_step(&m, out, x, B, 1, &small, &o)),
            ATTN_E_SHAPE, "mask_shape[0] is 5"); /* a mask without any keys */
#undef CALL
#define CALL attn_mha_cross_step(&m, out, x, B, 1, &c, &o)
    WRONG(o.attn.k_map = over, ATTN_E_MAP, "entry 1 reads entry 4");
    WRONG(o.attn.k_map = under, ATTN_E_MAP, "entry 1 reads entry -1");
    WRONG(o.attn.k_batch = B + 1, ATTN_E_SIZE, "k_batch");
    WRONG(o.attn.k_lengths = over, ATTN_E_LENGTHS, "k_lengths");
    WRONG(o.attn.k_starts = ones, ATTN_E_CONFLICT, "k_starts");

    REFUSES((o.rope_pos = places, attn_mha_self(&turning, out, x, B, N, &o)), ATTN_E_SIZE,
            "positions is 4 but rope_pos[4] is 7");
    REFUSES((o.rope_pos = places, attn_mha_self(&factored, out, x, B, N, &o)), ATTN_E_SIZE,
            "positions is 4 but rope_pos[4] is 7");
    REFUSES((o.rope_pos = places + 1, attn_mha_self_look(&turning, out, x, B, 2, &c, &o)), ATTN_E_SIZE,
            "positions is 4 but rope_pos[3] is 7");
    REFUSES((o.rope_pos = places + 2, attn_mha_cross_step(&turning, out, x, B, 2, &c, &o)), ATTN_E_SIZE,
            "positions is 4 but rope_pos[2] is 7");
    REFUSES((o.rope_pos = behind(places, 1), attn_mha_self(&turning, out, x, B, N, &o)), ATTN_E_ALIGN,
            "rope_pos is not aligned");
    REFUSES((o.attn.q_lengths = over, o.rope_pos = places, attn_mha_self(&turning, out, x, B, N, &o)),
            ATTN_E_LENGTHS, "q_lengths[1] is 4 but n is 3");             /* before they determine where positions end */
    REFUSES(attn_mha_cross(&factored, out, x, B, N, x, N, NULL), ATTN_E_CONFLICT, "the layer has q_factors");
    REFUSES((o.rope_pos = places, attn_mha_cross(&turning, out, x, B, N, x, N, &o)), ATTN_E_CONFLICT, "rope_table");
    REFUSES(attn_mha_cross_step(&factored, out, x, B, 1, &c, NULL), ATTN_E_CONFLICT, "the layer has q_factors");
    REFUSES(attn_mha_self(&q_only, out, x, B, N, NULL), ATTN_E_CONFLICT, "the layer has q_only");
    REFUSES(attn_mha_cross(&q_only, out, x, B, N, x, N, NULL), ATTN_E_CONFLICT, "the layer has q_only");
    REFUSES(attn_mha_self_step(&q_only, out, x, B, 1, &c, NULL), ATTN_E_CONFLICT, "the layer has q_only");
    REFUSES(attn_mha_cross_fill(&q_only, &c, x, B, N, NULL, NULL), ATTN_E_CONFLICT, "the layer has q_only");
    REFUSES(attn_mha_self(&factored, out, x, 1, 5, NULL), ATTN_E_SIZE, "positions is 4 but n is 5");
    REFUSES(attn_mha_self_step(&factored, out, x, B, 2, &c, NULL), ATTN_E_SIZE,
            "positions is 4 but entry 0 grows to 5");

    REFUSES(attn_mha_self_look(&m, out, x, B, 1, NULL, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSES(attn_mha_self_look(&m, out, x, B, 1, &empty, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSES(attn_mha_self_look(&zero, out, x, B, 1, &c, NULL), ATTN_E_NULL, "m is not a layer");
    REFUSES(attn_mha_self_look(&m, out, x, B, -1, &c, NULL), ATTN_E_SIZE, "n is -1");
    REFUSES(attn_mha_self_look(&m, out, x, 1, 1, &c, NULL), ATTN_E_SIZE, "batch is 1 but the cache has 2");
    REFUSES((o.attn.q_lengths = under, attn_mha_self_look(&m, out, x, B, 0, &other, &o)), ATTN_E_SIZE,
            "head_dim is 4 but 3 in the cache");
    REFUSES(attn_mha_self_look(&m, out, x, B, 4, &c, NULL), ATTN_E_LENGTHS, "4 rows look at entry 0, which has 3 keys");
    REFUSES((o.attn.q_cum = cum, attn_mha_self_look(&m, out, x, B, 3, &small, &o)), ATTN_E_LENGTHS,
            "1 rows look at entry 0, which has 0 keys");
    REFUSES((o.attn.q_cum = fall, attn_mha_self_look(&m, out, x, B, N, &c, &o)), ATTN_E_LENGTHS, "q_cum");
    REFUSES((o.attn.q_lengths = under, attn_mha_self_look(&m, out, x, B, 1, &c, &o)), ATTN_E_LENGTHS, "q_lengths");
    REFUSES((o.attn.q_lengths = over, attn_mha_self_look(&turning, out, x, B, 3, &c, &o)), ATTN_E_LENGTHS, "");
    REFUSES(attn_mha_self_look(&m, NULL, x, B, 1, &c, NULL), ATTN_E_NULL, "out is NULL");
    REFUSES((o.attn.causal = ATTN_CAUSAL_TOP_LEFT, attn_mha_self_look(&m, out, x, B, 1, &c, &o)), ATTN_E_CONFLICT,
            "causal");
    REFUSES((o.attn.k_lengths = ones, attn_mha_self_look(&m, out, x, B, 1, &c, &o)), ATTN_E_CONFLICT, "k_lengths");
    REFUSES((o.attn.k_starts = ones, attn_mha_self_look(&m, out, x, B, 1, &c, &o)), ATTN_E_CONFLICT, "k_starts");
    REFUSES((o.attn.k_map = map, attn_mha_self_look(&m, out, x, B, 1, &c, &o)), ATTN_E_CONFLICT, "k_map");
    REFUSES((o.memory_v = x, attn_mha_self_look(&m, out, x, B, 1, &c, &o)), ATTN_E_CONFLICT, "memory_v");
    REFUSES((o.attn.kv = &other, attn_mha_self_look(&m, out, x, B, 1, &c, &o)), ATTN_E_CONFLICT, "kv");
    REFUSES((o.attn.work = work, o.attn.work_size = sizeof work, attn_mha_self_look(&m, out, x, B, 1, &c, &o)),
            ATTN_E_WORK, "work_size is 16 but attn_mha_workspace asks for ");

    REFUSES(attn_mha_cross_fill(&m, NULL, x, B, N, NULL, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSES(attn_mha_cross_fill(&m, &empty, x, B, N, NULL, NULL), ATTN_E_NULL, "c is not a cache");
    REFUSES(attn_mha_cross_fill(&m, &c, NULL, B, N, NULL, NULL), ATTN_E_NULL, "memory is NULL");
    REFUSES(attn_mha_cross_fill(&m, &c, x, 1, N, NULL, NULL), ATTN_E_SIZE, "batch of the cache is 2");
    REFUSES(attn_mha_cross_fill(&m, &other, x, B, N, NULL, NULL), ATTN_E_SIZE, "head_dim of the cache is 3");
    REFUSES(attn_mha_cross_fill(&m, &c, x, B, -1, NULL, NULL), ATTN_E_SIZE, "n_k is -1");
    REFUSES(attn_mha_cross_fill(&m, &small, x, B, N, NULL, NULL), ATTN_E_FULL,
            "entry 0 has 3 keys but the cache holds 2");
    REFUSES(attn_mha_cross_fill(&m, &small, x, B, N, three, NULL), ATTN_E_FULL,
            "entry 1 has 3 keys but the cache holds 2");
    REFUSES(attn_mha_cross_fill(&m, &c, x, B, N, behind(ones, 1), NULL), ATTN_E_ALIGN,
            "source_lengths is not aligned: its address is 1 behind");
    REFUSES(attn_mha_cross_fill(&m, &c, behind(x, 1), B, N, NULL, NULL), ATTN_E_ALIGN, "memory is not aligned");
    REFUSES(attn_mha_cross_fill(&m, &grouped, x, B, 1, NULL, NULL), ATTN_E_SIZE, "kv_heads of the cache is 1");
    REFUSES(attn_mha_cross_fill(&m, &narrow, x, B, 1, NULL, NULL), ATTN_E_SIZE, "v_head_dim of the cache is 3");
    REFUSES(attn_mha_cross_fill(&m, &c, x, B, N, over, NULL), ATTN_E_LENGTHS, "source_lengths[1] is 4");
    REFUSES(attn_mha_cross_fill(&m, &c, x, B, N, under, NULL), ATTN_E_LENGTHS, "source_lengths[1] is -1");
    REFUSES(attn_mha_cross_fill(&turning, &c, x, B, N, NULL, NULL), ATTN_E_CONFLICT, "rope_table");
    REFUSES(attn_mha_cross_fill(&wide, &c, x, B, 1, NULL, NULL), ATTN_E_NULL, "memory_v is NULL");
#undef CALL
#define CALL attn_mha_cross_fill(&m, &c, x, B, N, NULL, &o)
    WRONG((o.attn.work = work, o.attn.work_size = sizeof work), ATTN_E_WORK,
          "work_size is 16 but attn_mha_workspace asks for ");
#undef CALL
#undef WRONG
#undef WRONG_OF
#undef REFUSES
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
    free(before);
    free(w);
}

/* Calls that exceed the address space, and layers larger than memory (their sizes are set in a small one, whose weights
   are never read): OVERFLOW, SIZE_MAX, and nothing written. On a 32-bit machine they are also too large. */
static void vast_layers(void)
{
    enum { MOST = 2147483647 - 1023, ROWS = MOST / 3 };          /* a width, and rows of all entries, at most */
    rng r = rng_make(test_seed + 19);
    float x[16] = {0}, out[16], weights[1], w[16 * 16];
    attn_mha_args a = {0};
    attn_mha m, vast;
    attn_mha_opts o;
    attn_exec exec = test_exec(2);
    size_t need;
    memset(out, 0x77, sizeof out);
    rng_fill(&r, w, 16 * 16);
    a.d_model = 4;
    a.heads = 2;
    a.w_q = a.w_k = a.w_v = a.w_o = w;
    CHECK(attn_mha_init(&m, &a) == ATTN_OK);
#define REFUSES(call) do { CHECKF((call) == ATTN_E_OVERFLOW, "%s", #call); \
        CHECKF(untouched(out, sizeof out), "%s wrote", #call); } while (0)
    memset(&o, 0, sizeof o);
    {   /* rows times a width: in the workspace */
        for (int i = 0; i < 5; i++) {
            vast = m;
            *(i == 0 ? &vast.q.n_out : i == 1 ? &vast.k.n_out : i == 2 ? &vast.v.n_out : i == 3 ? &vast.gate.n_out
              : &vast.o.n_in) = MOST;
            CHECKF(attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, ROWS, ROWS, &o) == (size_t)-1, "width %d", i);
            REFUSES(attn_mha_self(&vast, out, x, 1, ROWS, &o));
        }
    }
    vast = m;                             /* parts that fit, a sum that does not; only the lengths make it too large */
    vast.q.n_out = vast.o.n_in = 1 << 30;
    CHECK(attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, 1 << 29, 1, &o) == (size_t)-1);
    if (sizeof(size_t) == 8) {
        vast.o.n_in = (1 << 30) - 1;
        vast.k.n_out = 1 << 28;
        vast.v.n_out = (1 << 28) - 16;    /* 2^62 - 64 bytes until then */
        CHECK(attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, 1 << 29, 1, &o) == (size_t)-1);
    }
    o.attn.weights = weights;             /* the means need room for all heads */
    o.weights_mean = 1;
    vast = m;
    vast.shape.heads = vast.shape.kv_heads = 4;
    vast.shape.head_dim = vast.shape.v_head_dim = 1;
    CHECK(attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, ROWS, ROWS, &o) == (size_t)-1);
    REFUSES(attn_mha_cross(&vast, out, x, 1, ROWS, x, ROWS, &o));

    /* tensors: x and out, memory, values. The size of the workspace is trusted; the workspace is not accessed */
    memset(&o, 0, sizeof o);
    o.attn.work = w;
    o.attn.work_size = (size_t)-1;
    vast = m;
    vast.shape.d_model = MOST;
    REFUSES(attn_mha_cross(&vast, out, x, 1, ROWS, x, 1, &o));
    vast = m;
    vast.shape.d_key = vast.shape.d_value = MOST;
    REFUSES(attn_mha_cross(&vast, out, x, 1, 1, x + 4, ROWS, &o));
    vast.shape.d_key = 4;
    o.memory_v = x + 8;
    REFUSES(attn_mha_cross(&vast, out, x, 1, 1, x + 4, ROWS, &o));
    REFUSES(attn_mha_cross(&m, out, x, 1, 1, x, ROWS + 1, &o));      /* tasks of three tensors */
    o.memory_v = NULL;
    REFUSES(attn_mha_self(&m, out, x, 1, ROWS + 1, &o));

    /* the attention inside: more blocks than can be counted, more threads than fit */
    memset(&o, 0, sizeof o);
    {
        attn_mha many;
        float *column = normal(&r, 4096, 1.0);
        attn_mha_args tall = {0};
        tall.d_model = 1;
        tall.heads = 4096;
        tall.head_dim = 1;
        tall.w_q = tall.w_k = tall.w_v = tall.w_o = column;
        CHECK(attn_mha_init(&many, &tall) == ATTN_OK);
        CHECK(attn_mha_workspace(&many, ATTN_MHA_CROSS, 1 << 18, 1, 1, &o) == (size_t)-1);
        REFUSES(attn_mha_cross(&many, out, x, 1 << 18, 1, x, 1, &o));
        attn_mha_free(&many);
        free(column);
    }
    if (sizeof(size_t) == 8) {            /* both parts fit, but not their sum: just, and by far */
        vast = m;
        vast.shape.heads = vast.shape.kv_heads = 1;
        vast.shape.head_dim = vast.shape.v_head_dim = 1 << 30;
        vast.q.n_out = vast.k.n_out = vast.v.n_out = vast.o.n_in = 1 << 30;
        o.attn.exec = &exec;
        exec.width = MOST;
        need = attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, 1, 1, &o);
        for (int batch = 2; batch <= 1 << 28; batch *= 2) {
            const size_t more = attn_mha_workspace(&vast, ATTN_MHA_CROSS, batch, 1, 1, &o);
            CHECKF(more >= need, "%d entries need %zu, fewer %zu", batch, more, need);
            need = more;
        }
        CHECK(need == (size_t)-1);
        exec.width = 1;
        CHECK(attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, 3 << 27, 1, &o) != (size_t)-1);
        for (int bit = 29, width = 1; bit-- > 0;) {       /* the most threads that the attention inside takes */
            attn_args inside = {0};
            inside.batch = inside.heads = inside.n_k = 1;
            inside.n_q = 3 << 27;
            inside.head_dim = 1 << 30;
            inside.exec = &exec;
            exec.width = width + (1 << bit);
            if (attn_sdpa_workspace(&inside) != (size_t)-1) width = exec.width;
            exec.width = width;
            if (bit == 0) CHECK(width > 1 && attn_sdpa_workspace(&inside) != (size_t)-1);
        }
        CHECK(attn_mha_workspace(&vast, ATTN_MHA_CROSS, 1, 3 << 27, 1, &o) == (size_t)-1);
        REFUSES(attn_mha_cross(&vast, out, x, 1, 3 << 27, x, 1, &o));
    }
#undef REFUSES
    attn_mha_free(&m);
}

void mha_allocation(void);                /* private/layers_memory.h */

extern const test_case suite_mha[];
SUITE(mha) = {
    {"composition", composition,
     "an option that is not forwarded, a mask applied to the wrong thing, workspace that is too small"},
    {"double oracle", double_oracle, "a projection, a head or a rotation that differs from the formula"},
    {"torch answers", torch_answers,
     "another meaning of weights, biases, masks or averages than nn.MultiheadAttention"},
    {"weight layouts", weight_layouts, "w_in split at the wrong rows; originals that are still read"},
    {"norms", norms, "a norm with another divisor, over other heads, or on the wrong side of the rotation"},
    {"gates", gates, "another function than the sigmoid, one that overflows or loses a NaN"},
    {"factors after padding", factors_after_padding, "a factor read before the first one"},
    {"gate per head", gate_per_head, "the gate of one head on another"},
    {"means", means, "weights averaged in another order or over other heads"},
    {"backends and threads", backends_and_threads, "bits of a layer that depend on instruction set or threads"},
    {"unread padding", unread_padding,
     "rows of x or memory read although they do not exist, so they may be uninitialised"},
    {"rope_pos ends", rope_pos_ends, "positions that are used without a check, or read where none exist"},
    {"unread between", unread_between,
     "rows read for a reader without keys; the longest entry of a ragged call not found"},
    {"unread memory", unread_memory,
     "an entry or key that no row sees that is read, or a visible one that is left out"},
    {"workspace grows", workspace_grows,
     "a larger call that requires less workspace, or one that adds the size of the caller's"},
    {"workspace shared", workspace_shared, "a step over shared entries whose workspace is rejected, or too small"},
    {"allocation", mha_allocation,
     "memory that is leaked, read uninitialised, or allocated although the caller supplies it"},
    {"signs of zero", signs_of_zero, "-0 where +0 is promised, or a linear that loses the sign of a zero"},
    {"overlaps", overlaps, "a call that writes over its inputs: lengths, masks, slopes, the cache, the layer itself"},
    {"huge sizes", vast_layers, "a workspace or a tensor of a layer whose size wraps around to a small one"},
    {"packed layers", packed_layers,
     "packed memory of another layer, or half of it, accepted; weights given with it ignored"},
    {"rejected layers", wrong_layers,
     "an impossible layer that is accepted, or rejected without a sentence with the reason"},
    {"rejected calls", wrong_calls, "an error noticed after something was written or appended"},
    {0}};
