/* test_mha.c: results of the attention layer. Steps and batches are in test_mha_steps.c, the rows that it reads in
 * test_mha_rows.c, rejected layers and calls in test_mha_wrong.c and test_mha_calls.c.
 *
 * Three kinds of proof. A layer is, bit for bit, what its parts give one after the other (attn_linear_run, attn_rope,
 * attn_sdpa). It agrees with an oracle in double within a bound that is carried along with every number. And it gives
 * the numbers that torch gives (torch_numbers.h). */
#include "layer.h"
#include "q8_0.h"

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
                           (rng_int(&r, 0, 1) ? 0 : WITH_MORE) | (i % 3 ? 0 : IN_EIGHT));
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

/* Weights given in blocks of 8 bits, at any address: w_in and separate weights are packed to the same bytes, those of
   the floats d * n if these round to the same blocks; a layer reads each of its weights as it was given. */
static void weights_in_eight(void)
{
    rng r = rng_make(test_seed + 17);
    for (int i = 0; i < 24 * test_scale && !test_failed(); i++) {
        const int kv_heads = rng_int(&r, 1, 2), heads = kv_heads * rng_int(&r, 1, 2), d = rng_int(&r, 1, 40);
        const int dv = 32 * rng_int(&r, 1, 2), d_model = 32 * rng_int(&r, 1, 3), tame = i / 4 % 2;
        const int rows[5] = {heads * d, kv_heads * d, kv_heads * dv, d_model, heads * dv};
        const int n_in[5] = {d_model, d_model, d_model, heads * dv, d_model}, first = rows[0] + rows[1] + rows[2];
        float *w_in = floats((size_t)(first * d_model)), *w_o = floats((size_t)(d_model * heads * dv)),
              *w_gate = floats((size_t)(heads * dv * d_model)), *out = floats((size_t)(heads * dv * d_model * 4));
        unsigned char *in = q8_0_weights(&r, w_in, first * d_model / 32, rng_int(&r, 0, 1), tame),
                      *o = q8_0_weights(&r, w_o, d_model * heads * dv / 32, rng_int(&r, 0, 1), tame),
                      *gate = q8_0_weights(&r, w_gate, heads * dv * d_model / 32, rng_int(&r, 0, 1), tame), *mem[3];
        attn_mha_args a = {.d_model = d_model, .heads = heads, .kv_heads = kv_heads, .head_dim = d, .v_head_dim = dv};
        const float *const w[5] = {w_in, w_in + rows[0] * d_model, w_in + (rows[0] + rows[1]) * d_model, w_o, w_gate};
        size_t size;
        a.storage = (attn_storage)(i % 4);
        a.w_in = w_in, a.w_o = w_o, a.w_gate = w_gate;
        a.mem_size = size = attn_mha_size(&a);
        for (int k = 0; k < 3; k++) {                     /* floats, w_in in blocks, separate weights in blocks */
            attn_mha m;
            if (k) a.w_storage = ATTN_Q8_0, a.w_in = in, a.w_o = o, a.w_gate = gate;
            if (k == 2) {
                a.w_q = in;
                a.w_k = in + rows[0] * d_model / 32 * Q8_0_BYTES;
                a.w_v = in + (rows[0] + rows[1]) * d_model / 32 * Q8_0_BYTES;
                a.w_in = NULL;
            }
            a.mem = mem[k] = guard_alloc(size);
            CHECKF(attn_mha_init(&m, &a) == ATTN_OK && attn_mha_size(&a) == size, "%s", refusal_text());
            const attn_linear *const part[5] = {&m.q, &m.k, &m.v, &m.o, &m.gate};
            for (int p = 0; p < 5 && a.storage == ATTN_F32; p++) {
                CHECK(attn_linear_read(part[p], 0, rows[p], out) == ATTN_OK);
                CHECKF(same_bits(out, w[p], (size_t)(rows[p] * n_in[p])), "part %d", p);
            }
            attn_mha_free(&m);
        }
        CHECKF(!memcmp(mem[1], mem[2], size), "%d to %d, kept as %d: w_in", d_model, first, (int)a.storage);
        if (tame || a.storage != ATTN_Q8)
            CHECKF(!memcmp(mem[0], mem[1], size), "%d to %d, kept as %d: floats", d_model, first, (int)a.storage);
        for (int k = 0; k < 3; k++) guard_free(mem[k]);
        guard_free(in); guard_free(o); guard_free(gate);
        free(w_in); free(w_o); free(w_gate); free(out);
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

extern const test_case suite_mha[];
SUITE(mha) = {
    {"composition", composition,
     "an option that is not forwarded, a mask applied to the wrong thing, workspace that is too small"},
    {"double oracle", double_oracle, "a projection, a head or a rotation that differs from the formula"},
    {"torch results", torch_answers,
     "another meaning of weights, biases, masks or averages than nn.MultiheadAttention"},
    {"weight layouts", weight_layouts, "w_in split at the wrong rows; originals that are still read"},
    {"weights in 8 bits", weights_in_eight, "w_in of blocks split at the wrong rows; weights of the wrong part"},
    {"norms", norms, "a norm with another divisor, over other heads, or on the wrong side of the rotation"},
    {"gates", gates, "another function than the sigmoid, one that overflows or loses a NaN"},
    {"factors after padding", factors_after_padding, "a factor read before the first one"},
    {"gate per head", gate_per_head, "the gate of one head applied to another"},
    {"means", means, "weights averaged in another order or over other heads"},
    {"backends and threads", backends_and_threads, "bits of a layer that depend on instruction set or threads"},
    {"signs of zero", signs_of_zero, "-0 where +0 is promised, or a linear that loses the sign of a zero"},
    {0}};
