/* cases.c: the shapes of the benchmark. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const int s5_lengths[4] = { 512, 448, 384, 320 };

/* A few rows over a cache, rows x keys, heads x head_dim. */
#define STEP(name, text, table, heads, n_q, n_k, head_dim) \
    { name, text, table, 1, heads, heads, n_q, n_k, head_dim, 0, 0, 0, 0, 0, 1, 0, 0, 0 }
/* 8 heads of 64, for the picture of time over n: a row over n keys from a cache, or n rows over n keys. */
#define GROWING(name, text, n_q, n_k, causal) \
    { name, text, BENCH_LONG, 1, 8, 8, n_q, n_k, 64, causal, 0, 0, 0, 0, (n_q) == 1, 0, 0, 0 }
/* a shape of a well-known model */
#define MODEL(name, text, batch, heads, n_q, n_k, dim, causal) \
    { name, text, BENCH_MODELS, batch, heads, heads, n_q, n_k, dim, causal, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Target ratios, large enough to matter to a user. Decode shapes: from rows, from attn_kv. */
static const struct shape {
    const char *name, *text;
    bench_table table;                    /* BENCH_PEERS, or a table of tables.c alone */
    int batch, heads, kv_heads, n_q, n_k, head_dim;
    int causal, left, right, lengths, mask, decode, layer;
    double aim, aim_kv;
} shapes[] = {
    { "S1",  "512 x 512, a sentence",           BENCH_PEERS, 1, 8, 8, 512, 512, 64,     0, 0, 0, 0, 0, 0, 0, 1.08, 0 },
    { "S2",  "2048 x 2048, a document",         BENCH_PEERS, 1, 8, 8, 2048, 2048, 64,   0, 0, 0, 0, 0, 0, 0, 1.08, 0 },
    { "S3",  "2048 x 2048 causal",              BENCH_PEERS, 1, 8, 8, 2048, 2048, 64,   1, 0, 0, 0, 0, 0, 0, 1.4, 0 },
    { "S4",  "1024 x 1024, 16 wide heads",      BENCH_PEERS, 1, 16, 16, 1024, 1024, 128, 0, 0, 0, 0, 0, 0, 0, 1.08, 0 },
    { "S5",  "4 x 32 x 512 cross, padded",      BENCH_PEERS, 4, 8, 8, 32, 512, 64,      0, 0, 0, 1, 0, 0, 0, 1.3, 0 },
    { "S6",  "1 x 1500 step, speech",           BENCH_PEERS, 1, 8, 8, 1, 1500, 64,      0, 0, 0, 0, 0, 1, 0, 1.05, 1.3 },
    { "S7",  "1 x 4096 step, 32 heads on 8",    BENCH_PEERS, 1, 32, 8, 1, 4096, 128,    0, 0, 0, 0, 0, 1, 0, 1.0, 1.0 },
    { "S8",  "1 x 65536 step",                  BENCH_PEERS, 1, 8, 8, 1, 65536, 64,     0, 0, 0, 0, 0, 1, 0, 1.0, 1.0 },
    { "S9",  "16 x 16, a toy",                  BENCH_PEERS, 1, 4, 4, 16, 16, 16,       0, 0, 0, 0, 0, 0, 0, 3.0, 0 },
    { "S10", "8192 x 8192, one head",           BENCH_PEERS, 1, 1, 1, 8192, 8192, 64,   0, 0, 0, 0, 0, 0, 0, 1.08, 0 },
    { "S11", "197 x 197, an image",             BENCH_PEERS, 1, 12, 12, 197, 197, 64,   0, 0, 0, 0, 0, 0, 0, 1.2, 0 },
    { "S12", "8 x 7 x 7 with mask matrices",    BENCH_PEERS, 8, 8, 8, 7, 7, 64,         0, 0, 0, 0, 2, 0, 0, 3.0, 0 },
    { "S13", "1024 x 1024, heads of 80",        BENCH_PEERS, 1, 8, 8, 1024, 1024, 80,   0, 0, 0, 0, 0, 0, 0, 1.08, 0 },
    { "S14", "2048 x 2048, window 256",         BENCH_PEERS, 1, 8, 8, 2048, 2048, 64,   0, 256, 256, 0, 0, 0, 0, 4.0, 0 },
    { "S14c", "2048 x 2048, causal window 256", BENCH_PEERS, 1, 8, 8, 2048, 2048, 64,   1, 256, 0, 0, 0, 0, 0, 0, 0 },
    { "S15", "2048 x 2048, a full mask",        BENCH_PEERS, 1, 8, 8, 2048, 2048, 64,   0, 0, 0, 0, 1, 0, 0, 1.5, 0 },
    { "M1",  "layer, 512 rows",                 BENCH_PEERS, 1, 8, 8, 512, 512, 64,     0, 0, 0, 0, 0, 0, LAYER_SELF, 1.02, 0 },
    { "M2",  "layer, cross step over 512",      BENCH_PEERS, 1, 8, 8, 1, 512, 64,       0, 0, 0, 0, 0, 0, LAYER_CROSS_STEP, 1.2, 0 },
    { "M3",  "layer, self step over 1024",      BENCH_PEERS, 1, 8, 8, 1, 1025, 64,      0, 0, 0, 0, 0, 0, LAYER_SELF_STEP, 1.2, 0 },
    MODEL("V1", "64 windows of 49, Swin", 64, 3, 49, 49, 32, 0),
    MODEL("V2", "8 x 128 x 128, BERT", 8, 12, 128, 128, 64, 0),
    MODEL("V3", "4096 x 77, Stable Diffusion", 1, 8, 4096, 77, 40, 0),
    MODEL("V4", "4096 x 4096, Stable Diffusion", 1, 8, 4096, 4096, 40, 0),
    MODEL("V5", "100 x 850, DETR", 1, 8, 100, 850, 32, 0),
    MODEL("V6", "16 x 32 x 32, short sentences", 16, 12, 32, 32, 64, 0),
    MODEL("V7", "50 x 50, CLIP, an image", 1, 12, 50, 50, 64, 0),
    MODEL("V8", "77 x 77 causal, CLIP, a text", 1, 8, 77, 77, 64, 1),
    MODEL("V9", "1024 x 1024, a VAE's wide head", 1, 1, 1024, 1024, 512, 0),
    STEP("C1", "1 x 16, 12 x 64", BENCH_COLD, 12, 1, 16, 64),
    STEP("C2", "1 x 128, 12 x 64", BENCH_COLD, 12, 1, 128, 64),
    STEP("C3", "1 x 1024, 12 x 64", BENCH_COLD, 12, 1, 1024, 64),
    STEP("C4", "1 x 256, 8 x 64", BENCH_COLD, 8, 1, 256, 64),
    STEP("C5", "1 x 512, 8 x 128", BENCH_COLD, 8, 1, 512, 128),
    STEP("N1", "1 x 1, 1 x 64", BENCH_SMALL, 1, 1, 1, 64),
    STEP("N2", "1 x 4, 1 x 64", BENCH_SMALL, 1, 1, 4, 64),
    STEP("N3", "1 x 8, 8 x 8", BENCH_SMALL, 8, 1, 8, 8),
    STEP("N4", "1 x 16, 8 x 64", BENCH_SMALL, 8, 1, 16, 64),
    STEP("N5", "1 x 32, 8 x 64", BENCH_SMALL, 8, 1, 32, 64),
    STEP("N6", "1 x 50, 6 x 48", BENCH_SMALL, 6, 1, 50, 48),
    STEP("N7", "4 x 6, 2 x 4", BENCH_SMALL, 2, 4, 6, 4),
    GROWING("R64", "one row, 64 keys", 1, 64, 0),
    GROWING("R256", "one row, 256 keys", 1, 256, 0),
    GROWING("R1024", "one row, 1024 keys", 1, 1024, 0),
    GROWING("R4096", "one row, 4096 keys", 1, 4096, 0),
    GROWING("R16384", "one row, 16384 keys", 1, 16384, 0),
    GROWING("R65536", "one row, 65536 keys", 1, 65536, 0),
    GROWING("A64", "64 rows and keys", 64, 64, 0),
    GROWING("A256", "256 rows and keys", 256, 256, 0),
    GROWING("A1024", "1024 rows and keys", 1024, 1024, 0),
    GROWING("A4096", "4096 rows and keys", 4096, 4096, 0),
    GROWING("A8192", "8192 rows and keys", 8192, 8192, 0),
    GROWING("C64", "64 rows, causal", 64, 64, 1),
    GROWING("C256", "256 rows, causal", 256, 256, 1),
    GROWING("C1024", "1024 rows, causal", 1024, 1024, 1),
    GROWING("C4096", "4096 rows, causal", 4096, 4096, 1),
    GROWING("C8192", "8192 rows, causal", 8192, 8192, 1),
    STEP("H1", "1 x 1500, 8 x 64", BENCH_HALF, 8, 1, 1500, 64),
    { "H2", "1 x 4096, 32 on 8 x 128", BENCH_HALF, 1, 32, 8, 1, 4096, 128, 0, 0, 0, 0, 0, 1, 0, 0, 0 },
    STEP("H3", "1 x 65,536, 8 x 64", BENCH_HALF, 8, 1, 65536, 64),
    STEP("H4", "1 x 256, 8 x 64", BENCH_HALF, 8, 1, 256, 64),
    STEP("H5", "8 x 1024, 8 x 64", BENCH_HALF, 8, 8, 1024, 64),
    STEP("H6", "16 x 1024, 8 x 64", BENCH_HALF, 8, 16, 1024, 64),
    STEP("H7", "512 x 512, 8 x 64", BENCH_HALF, 8, 512, 512, 64),
    { "H8", "layer of 512, self step over 1024", BENCH_HALF, 1, 8, 8, 1, 1025, 64, 0, 0, 0, 0, 0, 0, LAYER_SELF_STEP, 0, 0 },
    { "H9", "layer of 512, cross step over 512", BENCH_HALF, 1, 8, 8, 1, 512, 64, 0, 0, 0, 0, 0, 0, LAYER_CROSS_STEP, 0, 0 },
};
#undef STEP
#undef GROWING
#undef MODEL
enum { SHAPES = sizeof shapes / sizeof *shapes };

int bench_case_count(void) { return SHAPES; }
const char *bench_case_name(int i) { return shapes[i].name; }
const char *bench_case_text(int i) { return shapes[i].text; }
bench_table bench_case_table(int i) { return shapes[i].table; }

static float *random_floats(size_t n, unsigned seed, float by)
{
    float *x = (float *)bench_alloc(n * sizeof(float));
    bench_fill(x, n, seed);
    for (size_t i = 0; i < n && by < 1.0f; i++) x[i] *= by;
    return x;
}

bench_case *bench_case_make(int i, const attn_exec *exec)
{
    const struct shape *s = &shapes[i];
    const size_t q_row = (size_t)(s->heads * s->head_dim), k_row = (size_t)(s->kv_heads * s->head_dim);
    const size_t q_rows = (size_t)(s->batch * s->n_q), k_rows = (size_t)(s->batch * s->n_k);
    const size_t cells = (size_t)s->n_q * (size_t)s->n_k;
    double pairs, keys = 0;
    bench_case *c = (bench_case *)calloc(1, sizeof *c);
    if (!c) exit(1);
    c->name = s->name;
    c->text = s->text;
    c->decode = s->decode;
    c->layer = s->layer;
    c->aim = s->aim;
    c->aim_kv = s->aim_kv;
    c->a.batch = s->batch;
    c->a.heads = s->heads;
    c->a.kv_heads = s->kv_heads;
    c->a.n_q = s->n_q;
    c->a.n_k = s->n_k;
    c->a.head_dim = s->head_dim;
    c->a.causal = s->causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    c->a.window_left = s->left;
    c->a.window_right = s->right;
    c->a.k_lengths = s->lengths ? s5_lengths : NULL;
    c->a.exec = exec;
    c->out_floats = q_rows * q_row;
    c->a.out = (float *)bench_alloc(c->out_floats * sizeof(float));
    memset(c->a.out, 0, c->out_floats * sizeof(float));
    if (s->layer != LAYER_SELF) {
        c->a.k = random_floats(k_rows * k_row, 2, 1);
        c->a.v = random_floats(k_rows * k_row, 3, 1);
    }
    if (s->layer) {
        const size_t d = q_row;
        const float by = 1.0f / sqrtf((float)d);            /* projections preserve the magnitude of their input */
        c->d_model = (int)d;
        c->x = random_floats(q_rows * d, 1, 1);
        c->w_in = random_floats(3 * d * d, 4, by);
        c->b_in = random_floats(3 * d, 5, 0.1f);
        c->w_o = random_floats(d * d, 6, by);
        c->b_o = random_floats(d, 7, 0.1f);
    } else {
        c->a.q = random_floats(q_rows * q_row, 1, 1);
    }
    if (s->mask) {                                          /* 1: one for all; 2: each its own, a third hidden */
        const size_t many = s->mask == 2 ? (size_t)s->batch : 1;
        float *m = random_floats(many * cells, 8, 1);
        for (size_t at = 0; s->mask == 2 && at < many * cells; at++)
            m[at] = m[at] > 0.43f && at % (size_t)s->n_k ? -INFINITY : 0.0f;
        c->a.mask = m;
        c->a.mask_shape[0] = (int)many;
        c->a.mask_shape[1] = 1;
        c->a.mask_shape[2] = s->n_q;
    }

    pairs = bench_pairs(&c->a);
    for (int b = 0; b < s->batch; b++) keys += s->lengths ? s5_lengths[b] : s->n_k;
    c->flops = 4.0 * s->head_dim * pairs;
    c->kv_bytes = 2 * 4.0 * keys * (double)k_row;
    c->bytes = c->kv_bytes + 2 * 4.0 * (double)(q_rows * q_row);
    if (s->mask) c->bytes += 4.0 * (double)cells * (s->mask == 2 ? s->batch : 1);
    if (s->layer) {                                         /* w_q, w_o; and w_k, w_v but for the cross step */
        const double d = c->d_model, products = s->layer == LAYER_CROSS_STEP ? 2 : 4;
        c->flops += 2 * products * d * d * s->n_q;
        c->kv_bytes = (s->layer == LAYER_SELF ? 0 : c->kv_bytes) + products * d * d * 4;
        c->bytes = c->kv_bytes + 2 * 4 * d * s->n_q;
    }
    return c;
}

void bench_case_free(bench_case *c)
{
    if (!c) return;
    free(c->a.out);
    free((void *)(size_t)c->a.q);
    free((void *)(size_t)c->a.k);
    free((void *)(size_t)c->a.v);
    free((void *)(size_t)c->a.mask);
    free((void *)(size_t)c->x);
    free((void *)(size_t)c->w_in);
    free((void *)(size_t)c->b_in);
    free((void *)(size_t)c->w_o);
    free((void *)(size_t)c->b_o);
    free(c);
}
