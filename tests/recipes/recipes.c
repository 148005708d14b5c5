/* recipes.c: the functions of examples/RECIPES.md against attention in double. readme.sh compiles this file once for each
 * block that begins with a comment "recipe NAME", after the block, with -DRECIPE_NAME. Exit status 1: the results
 * differ. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 30, HEADS = 3, DIM = 8, ROW = HEADS * DIM };

static float q[4 * N * ROW], k[4 * N * ROW], v[4 * N * ROW], out[4 * N * ROW], states[HEADS * N * (DIM + 4)];
static double scores[4 * N];          /* of one row, key by key; -INFINITY: hidden */

static float drawn(void)
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 4194304.0f - 2.0f;
}

static void draw(float *x, int n) { while (n-- > 0) *x++ = drawn(); }

static double dot(const float *x, const float *y, int n)
{
    double sum = 0;
    while (n-- > 0) sum += (double)*x++ * (double)*y++;
    return sum;
}

/* The row at `got` against the softmax of scores[0 .. n-1] over values, `stride` floats apart. */
static void expect(const float *got, const float *values, int n, int stride, int dim)
{
    double top = -INFINITY, sum = 0;
    int j, x;
    for (j = 0; j < n; j++) top = fmax(top, scores[j]);
    for (j = 0; j < n; j++) sum += exp(scores[j] - top);
    for (x = 0; x < dim; x++) {
        double want = 0;
        for (j = 0; j < n; j++) want += exp(scores[j] - top) / sum * (double)values[j * stride + x];
        if (fabs(got[x] - want) < 3e-6) continue;
        printf("component %d is %g, not %g\n", x, (double)got[x], want);
        exit(1);
    }
}

static attn_args usual(int n_q, int n_k)
{
    attn_args a = attn_args_for(1, n_q, n_k, HEADS, DIM);
    draw(q, 4 * N * ROW), draw(k, 4 * N * ROW), draw(v, 4 * N * ROW);
    a.q = q, a.k = k, a.v = v, a.out = out;
    return a;
}

static void done(attn_status status)
{
    if (status == ATTN_OK) return;
    puts(attn_status_str(status));
    exit(1);
}

#define EACH_ROW(rows) for (int i = 0; i < (rows); i++) for (int h = 0; h < HEADS; h++)
#define AT(x, i) ((x) + (i) * ROW + h * DIM)
static const double SCALE = 0.35355339059327373;

#ifdef RECIPE_rope_sections
int main(void)
{
    enum { P = 7, D = 12, ROWS = 40 };
    static const int axis[D / 2] = { 0, 1, 2, 0, 2, 2 };
    float table[P * D], to[ROWS * D];
    int pos[ROWS * 3];
    done(attn_rope_table(table, P, D, NULL, 50.0));
    for (int i = 0; i < ROWS * 3; i++) pos[i] = (int)((drawn() + 2.0f) * P / 4.0f);
    rope_sections(to, ROWS, pos, 3, axis, table, D);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < D / 2; i++) {
            const double angle = pos[r * 3 + axis[i]] * pow(50.0, -2.0 * i / D);
            if (fabs(to[r * D + i] - cos(angle)) < 1e-7 && fabs(to[r * D + D / 2 + i] - sin(angle)) < 1e-7) continue;
            printf("row %d, pair %d: %g %g\n", r, i, (double)to[r * D + i], (double)to[r * D + D / 2 + i]);
            return 1;
        }
    return 0;
}
#endif

#ifdef RECIPE_prefix_lm
int main(void)
{
    enum { PREFIX = 11 };
    done(prefix_lm(usual(N, N), PREFIX));
    EACH_ROW(N) {
        for (int j = 0; j < N; j++)
            scores[j] = j < PREFIX || j <= i ? SCALE * dot(AT(q, i), AT(k, j), DIM) : -INFINITY;
        expect(AT(out, i), AT(v, 0), N, ROW, DIM);
    }
}
#endif

#ifdef RECIPE_streaming
int main(void)
{
    enum { ROWS = 9, FIRST = 4, WINDOW = 7, KEYS = 3 * N };
    done(streaming(usual(ROWS, KEYS), FIRST, WINDOW, states));
    EACH_ROW(ROWS) {
        const int at = KEYS - ROWS + i;
        for (int j = 0; j < KEYS; j++)
            scores[j] = j < FIRST || (j <= at && j > at - WINDOW) ? SCALE * dot(AT(q, i), AT(k, j), DIM) : -INFINITY;
        expect(AT(out, i), AT(v, 0), KEYS, ROW, DIM);
    }
}
#endif

#ifdef RECIPE_compressed
int main(void)
{
    enum { EACH = 4, SMALL = N / EACH };          /* in k and v, the compressed keys precede the others */
    for (int at = 0; at < N; at++) {
        attn_args a = usual(1, N), small = a;
        small.n_k = SMALL;
        a.k += SMALL * ROW, a.v += SMALL * ROW;
        a.q_pos = at, a.window_left = 6;
        done(compressed(a, small, EACH, states));
        EACH_ROW(1) {
            for (int j = 0; j < SMALL + N; j++) {
                const int key = j - SMALL, sees = j < SMALL ? (j + 1) * EACH <= at + 1 : key <= at && key > at - 6;
                scores[j] = sees ? SCALE * dot(AT(q, i), AT(k, j), DIM) : -INFINITY;
            }
            expect(AT(out, i), AT(v, 0), SMALL + N, ROW, DIM);
        }
    }
}
#endif

#ifdef RECIPE_add_bias_kv
int main(void)
{
    attn_args a = usual(N, N);                    /* the added key follows the others */
    a.causal = ATTN_CAUSAL_TOP_LEFT;
    done(add_bias_kv(a, k + N * ROW, v + N * ROW, states));
    EACH_ROW(N) {
        for (int j = 0; j <= N; j++)
            scores[j] = j == N || j <= i ? SCALE * dot(AT(q, i), AT(k, j), DIM) : -INFINITY;
        expect(AT(out, i), AT(v, 0), N + 1, ROW, DIM);
    }
}
#endif

#ifdef RECIPE_swin
int main(void)
{
    enum { WINDOWS = 4 };
    static float given[4 * N * ROW], masks[WINDOWS * N * N], bias[HEADS * N * N];
    static const float head_scale[HEADS] = { 0.5f, 1.5f, 0.25f };
    attn_args a = usual(N, N);
    a.batch = a.k_batch = WINDOWS;
    memcpy(given, q, sizeof q);
    draw(bias, HEADS * N * N);
    for (int x = 0; x < WINDOWS * N * N; x++) masks[x] = drawn() < 0.0f ? -100.0f : 0.0f;
    done(swin(a, q, head_scale, masks, bias));
    for (int w = 0; w < WINDOWS; w++) EACH_ROW(N) {
        for (int j = 0; j < N; j++)
            scores[j] = (double)head_scale[h] * dot(AT(given, w * N + i), AT(k, w * N + j), DIM) +
                        (double)bias[(h * N + i) * N + j] + (double)masks[(w * N + i) * N + j];
        expect(AT(out, w * N + i), AT(v, w * N), N, ROW, DIM);
    }
}
#endif

#ifdef RECIPE_sam
int main(void)
{
    enum { HEIGHT = 5, WIDTH = 6, WIDE = DIM + HEIGHT + WIDTH };
    static float r_h[(2 * HEIGHT - 1) * DIM], r_w[(2 * WIDTH - 1) * DIM], wide_q[N * WIDE], wide_k[N * WIDE];
    attn_args a = usual(N, N);
    draw(r_h, (2 * HEIGHT - 1) * DIM), draw(r_w, (2 * WIDTH - 1) * DIM);
    sam(wide_q, wide_k, q, k, r_h, r_w, HEIGHT, WIDTH, DIM, (float)SCALE);
    a.heads = 1, a.head_dim = WIDE, a.v_head_dim = DIM;
    a.q = wide_q, a.k = wide_k, a.scale = (float)SCALE;
    done(attn_sdpa(&a));
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            const int down = i / WIDTH - j / WIDTH + HEIGHT - 1, right = i % WIDTH - j % WIDTH + WIDTH - 1;
            scores[j] = SCALE * dot(q + i * DIM, k + j * DIM, DIM) + dot(q + i * DIM, r_h + down * DIM, DIM) +
                        dot(q + i * DIM, r_w + right * DIM, DIM);
        }
        expect(out + i * DIM, v, N, DIM, DIM);
    }
}
#endif

#ifdef RECIPE_deberta
int main(void)
{
    enum { C = 2 * N - 1 };
    static float of_key[C * ROW], of_query[C * ROW];      /* the model's tables: row x for query - key = x - (N - 1) */
    static float k_rel[C * ROW], q_rel[C * ROW], raw[HEADS * N * C], bias[HEADS * N * N], more[HEADS * N * N];
    attn_args a = usual(N, N);
    const double scale = 0.2041241452319315;      /* 1/sqrt(3 * DIM) */
    draw(of_key, C * ROW), draw(of_query, C * ROW);
    for (int c = 0; c < C; c++) {
        memcpy(k_rel + c * ROW, of_key + (C - 1 - c) * ROW, ROW * sizeof *k_rel);
        memcpy(q_rel + c * ROW, of_query + c * ROW, ROW * sizeof *q_rel);
    }
    a.scale = (float)scale;
    done(deberta(a, k_rel, q_rel, raw, bias, more));
    EACH_ROW(N) {
        for (int j = 0; j < N; j++)               /* transformers: both tables at query - key */
            scores[j] = scale * (dot(AT(q, i), AT(k, j), DIM) + dot(AT(q, i), AT(of_key, i - j + N - 1), DIM) +
                                 dot(AT(k, j), AT(of_query, i - j + N - 1), DIM));
        expect(AT(out, i), AT(v, 0), N, ROW, DIM);
    }
}
#endif

#ifdef RECIPE_rotate_weights
/* Runs a layer of HEADS heads on x [N][ROW], one row after another. with[]: w_q, w_k, w_v, w_o, b_q, b_k, b_v. */
static void run_layer(float *to, const float *x, float *const with[7], attn_storage cache)
{
    attn_mha m;
    attn_mha_args a = { 0 };
    attn_kv_args shape = { 0 };
    attn_kv c;
    a.d_model = ROW, a.heads = HEADS;
    a.w_q = with[0], a.w_k = with[1], a.w_v = with[2], a.w_o = with[3], a.b_q = with[4], a.b_k = with[5], a.b_v = with[6];
    shape.batch = 1, shape.kv_heads = HEADS, shape.head_dim = DIM, shape.capacity = N;
    shape.k_storage = shape.v_storage = cache;
    done(attn_mha_init(&m, &a));
    done(attn_kv_init(&c, &shape));
    for (int i = 0; i < N; i++) done(attn_mha_self_step(&m, to + i * ROW, x + i * ROW, 1, 1, &c, NULL));
    attn_kv_free(&c);
    attn_mha_free(&m);
}

static double rms_error(const float *x, const float *y)
{
    double sum = 0;
    for (int i = 0; i < N * ROW; i++) sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sqrt(sum / (N * ROW));
}

int main(void)
{
    static float w[4][ROW * ROW], b[3][ROW], want[N * ROW], eight[N * ROW], got[N * ROW], rotated[N * ROW];
    float *const with[7] = { w[0], w[1], w[2], w[3], b[0], b[1], b[2] };
    draw(q, N * ROW);
    for (int i = 0; i < 4; i++) draw(w[i], ROW * ROW);
    for (int i = 0; i < 3; i++) draw(b[i], ROW);
    for (int i = 0; i < ROW * ROW; i++) w[0][i] *= 0.05f, w[1][i] *= 0.05f, w[2][i] *= 0.1f, w[3][i] *= 0.1f;
    for (int h = 0; h < HEADS; h++) b[1][h * DIM + h] = 50;   /* a component of the keys with large values */
    run_layer(want, q, with, ATTN_F32);
    run_layer(eight, q, with, ATTN_Q8);
    rotate_outputs(w[0], HEADS, DIM, ROW), rotate_outputs(b[0], HEADS, DIM, 1);
    rotate_outputs(w[1], HEADS, DIM, ROW), rotate_outputs(b[1], HEADS, DIM, 1);
    rotate_outputs(w[2], HEADS, DIM, ROW), rotate_outputs(b[2], HEADS, DIM, 1);
    rotate_inputs(w[3], HEADS, DIM, ROW);
    run_layer(got, q, with, ATTN_F32);
    run_layer(rotated, q, with, ATTN_Q8);
    const double same = rms_error(got, want), plain = rms_error(eight, want), less = rms_error(rotated, want);
    if (same < 1e-5 && plain > 1e-3 && less < 0.7 * plain) return 0;
    printf("rms errors: floats %g; 8 bits %g, rotated %g\n", same, plain, less);
    return 1;
}
#endif
