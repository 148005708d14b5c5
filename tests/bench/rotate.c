/* rotate.c: errors of 8-bit caches with the queries, keys and values of trained models, with and without a rotation by a
 * Walsh-Hadamard transform (examples/RECIPES.md, "Caches in 8 bits").
 *
 *   cc -O2 -I. -DSTORIES tests/bench/rotate.c -o rotate -lm && ./rotate stories260K.bin -t 1 -p 1 -n 512
 *   cc -O2 -I. -DLISTEN tests/bench/rotate.c -o rotate -lm && ./rotate ggml-tiny.en.bin two_cities.wav
 *   cc -O2 -I. -DTRANSLATE tests/bench/rotate.c -o rotate -lm && ./rotate -q -b 1 < sentences.txt
 *   cc -O2 -I. -DEMBED tests/bench/rotate.c -o rotate -lm && ./rotate folder_of_minilm lines.txt -b 1
 *
 * Runs an example with its arguments, and keeps the rows that its layers attend with. After each text it attends to them
 * again: with floats and in 8 bits. Per layer, in percent, rms: the error of the scores, and that of the outputs. A row's
 * mean error is taken from its scores, because a softmax does not see it; the size of the scores is measured from the
 * row's mean too. "largest" is the mean over keys of the largest magnitude of a key, in rms values of the key: 1 to
 * sqrt(head_dim). */
#ifndef ATTN__IMPLEMENTED
#define ATTN_IMPLEMENTATION
#endif
#include "attn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef ATTN__IMPLEMENTED
#define ATTN__IMPLEMENTED
#endif
#undef ATTN_IMPLEMENTATION

enum { FLOATS, K, K_ROTATED, V, V_ROTATED, KV, KV_ROTATED, WAYS, ROWS_MOST = 2048, LAYERS_MOST = 32 };

/* What the calls of one layer attended with, since the last text, and the errors of all texts. */
typedef struct record {
    const attn_mha *m;
    const char *kind;
    float *x, *memory;                                      /* memory NULL: self-attention */
    int n, n_memory, causal, d;
    double score[WAYS], out[WAYS], largest[2];              /* squares; FLOATS: of the values themselves */
    double keys;
} record;

static record records[LAYERS_MOST];
static int n_records;

static void must(int fine, const char *what)
{
    if (fine) return;
    fprintf(stderr, "rotate: %s\n", what);
    exit(3);
}

static float *floats(size_t n)
{
    float *p = (float *)calloc(n ? n : 1, sizeof *p);
    must(p != NULL, "there is not enough memory");
    return p;
}

static void rotate(float *x, int n)
{
    const float by = (float)(1 / sqrt((double)n));
    for (int half = 1; half < n; half *= 2)
        for (int i = 0; i < n; i++)
            if (!(i & half)) {
                const float a = x[i], b = x[i + half];
                x[i] = a + b;
                x[i + half] = a - b;
            }
    for (int i = 0; i < n; i++) x[i] *= by;
}

static void rotate_heads(float *x, int rows, int dim)
{
    for (int i = 0; i < rows; i++) rotate(x + (ptrdiff_t)i * dim, dim);
}

/* Mean over the heads of all keys: largest magnitude / rms. Returns the sum; *n counts. */
static double largest(const float *k, int rows, int dim, double *n)
{
    double sum = 0;
    for (int i = 0; i < rows; i++, k += dim) {
        double most = 0, square = 0;
        for (int x = 0; x < dim; x++) {
            const double y = fabs((double)k[x]);
            most = y > most ? y : most;
            square += y * y;
        }
        if (square > 0) sum += most / sqrt(square / dim);
        *n += square > 0;
    }
    return sum;
}

static float *project(const attn_linear *l, const float *x, int n)
{
    float *y = floats((size_t)n * (size_t)l->n_out);
    must(attn_linear_run(l, y, x, n, 0, NULL) == ATTN_OK, "a linear was rejected");
    return y;
}

static void turn(const attn_mha *m, float *x, int n, int heads)
{
    const attn_mha_args *s = &m->shape;
    attn_rope_args r = {0};
    if (!s->rope_table) return;
    r.x = x;
    r.batch = 1;
    r.n = n;
    r.heads = heads;
    r.head_dim = s->head_dim;
    r.rope_table = s->rope_table;
    r.positions = s->positions;
    r.rope_interleaved = s->rope_interleaved;
    must(attn_rope(&r) == ATTN_OK, "a rotation was rejected");
}

/* Attention with keys and values in these formats; scores [heads][n][n_k], out [n][heads * dim]. */
static void attend(const record *r, const float *q, const float *k, const float *v, int n_k, attn_storage keys,
                   attn_storage values, float *scores, float *out)
{
    const attn_mha_args *s = &r->m->shape;
    attn_kv c;
    attn_kv_args shape = {0};
    attn_args a = attn_args_for(1, r->n, 0, s->heads, s->head_dim);
    shape.batch = 1;
    shape.kv_heads = s->kv_heads;
    shape.head_dim = s->head_dim;
    shape.capacity = n_k;
    shape.k_storage = keys;
    shape.v_storage = values;
    must(attn_kv_init(&c, &shape) == ATTN_OK && attn_kv_append(&c, -1, k, v, n_k, 0) == ATTN_OK, "a cache was rejected");
    a.q = q;
    a.kv = &c;
    a.kv_heads = s->kv_heads;
    a.causal = r->causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    a.out = out;
    a.weights = scores;
    a.weights_stage = ATTN_SCORES_RAW;
    must(attn_sdpa(&a) == ATTN_OK, "a call was rejected");
    attn_kv_free(&c);
}

/* The sum of squares of a - b from their mean, row by row. b NULL: of a. */
static double square_of_scores(const record *r, const float *a, const float *b, int n_k)
{
    double all = 0;
    for (int row = 0; row < r->m->shape.heads * r->n; row++) {
        const int n = r->causal ? row % r->n + 1 : n_k;
        const ptrdiff_t at = (ptrdiff_t)row * n_k;
        double sum = 0, square = 0;
        for (int j = 0; j < n; j++) {
            const double e = (double)a[at + j] - (b ? (double)b[at + j] : 0);
            sum += e;
            square += e * e;
        }
        all += square - sum * sum / n;
    }
    return all;
}

static void measure(record *r)
{
    const attn_mha_args *s = &r->m->shape;
    const float *memory = r->memory ? r->memory : r->x;
    const int dim = s->head_dim, n_k = r->memory ? r->n_memory : r->n;
    const size_t cells = (size_t)(s->heads * r->n) * (size_t)n_k, width = (size_t)(s->heads * dim) * (size_t)r->n;
    if (!r->n || !n_k) return;
    float *q = project(&r->m->q, r->x, r->n), *k = project(&r->m->k, memory, n_k), *v = project(&r->m->v, memory, n_k);
    float *scores[2] = { floats(cells), floats(cells) }, *out[2] = { floats(width), floats(width) };
    turn(r->m, q, r->n, s->heads);
    turn(r->m, k, n_k, s->kv_heads);
    r->largest[0] += largest(k, n_k * s->kv_heads, dim, &r->keys);
    for (int way = 0; way < WAYS; way++) {
        const int turned = way == K_ROTATED || way == V_ROTATED || way == KV_ROTATED, of_k = way == K || way >= KV;
        const int k_eight = of_k || way == K_ROTATED, v_eight = way >= V, at = way > 0;
        double ignored = 0;
        /* rotations are their own inverses: rotated rows are turned back below */
        if (turned && k_eight) rotate_heads(q, r->n * s->heads, dim);
        if (turned && k_eight) rotate_heads(k, n_k * s->kv_heads, dim);
        if (turned && v_eight) rotate_heads(v, n_k * s->kv_heads, dim);
        if (way == K_ROTATED) r->largest[1] += largest(k, n_k * s->kv_heads, dim, &ignored);
        attend(r, q, k, v, n_k, k_eight ? ATTN_Q8 : ATTN_F32, v_eight ? ATTN_Q8 : ATTN_F32, scores[at], out[at]);
        if (turned && v_eight) rotate_heads(out[at], r->n * s->heads, dim);
        if (turned && k_eight) rotate_heads(q, r->n * s->heads, dim);
        if (turned && k_eight) rotate_heads(k, n_k * s->kv_heads, dim);
        if (turned && v_eight) rotate_heads(v, n_k * s->kv_heads, dim);
        r->score[way] += square_of_scores(r, scores[at], at ? scores[0] : NULL, n_k);
        for (size_t i = 0; i < width; i++) {
            const double e = (double)out[at][i] - (at ? (double)out[0][i] : 0);
            r->out[way] += e * e;
        }
    }
    for (int i = 0; i < 2; i++) free(scores[i]), free(out[i]);
    free(q), free(k), free(v);
    r->n = 0;
}

/* ---- calls of the example ----------------------------------------------------------------------------------------- */

static record *record_of(const attn_mha *m, const char *kind)
{
    int i = 0;
    while (i < n_records && records[i].m != m) i++;
    must(i < LAYERS_MOST, "too many layers");
    record *r = &records[i];
    if (i < n_records) return r;
    n_records++;
    r->m = m;
    r->kind = kind;
    r->d = m->shape.d_model;
    r->x = floats((size_t)ROWS_MOST * (size_t)r->d);
    return r;
}

/* Stores n rows from row `at` on. */
static void keep_rows(record *r, int at, const float *x, int n)
{
    must(at + n <= ROWS_MOST, "the text is too long");
    memcpy(r->x + (ptrdiff_t)at * r->d, x, (size_t)n * (size_t)r->d * sizeof *x);
    r->n = at + n;
}

static inline attn_status seen_self(const attn_mha *m, float *out, const float *x, int batch, int n, const attn_mha_opts *o)
{
#ifdef EMBED                                                /* else the rows of a text that is never in a cache */
    record *r = record_of(m, "self");
    must(batch == 1, "one text at a time: -b 1");
    keep_rows(r, 0, x, n);
    measure(r);
#endif
    return attn_mha_self(m, out, x, batch, n, o);
}

static inline attn_status seen_self_step(const attn_mha *m, float *out, const float *x, int batch, int n, attn_kv *c,
                                         const attn_mha_opts *o)
{
    record *r = record_of(m, "self, cached");
    r->causal = 1;
    if (!c->lengths[0]) measure(r);
    keep_rows(r, c->lengths[0], x, n);                           /* of the first entry */
    return attn_mha_self_step(m, out, x, batch, n, c, o);
}

static inline attn_status seen_fill(const attn_mha *m, attn_kv *c, const float *memory, int batch, int n_k,
                                    const int *lengths, const attn_mha_opts *o)
{
    record *r = record_of(m, "cross, cached");
    measure(r);
    if (!r->memory) r->memory = floats((size_t)ROWS_MOST * (size_t)r->d);
    r->n_memory = lengths ? lengths[0] : n_k;
    must(n_k <= ROWS_MOST, "the source is too long");
    memcpy(r->memory, memory, (size_t)n_k * (size_t)r->d * sizeof *memory);
    return attn_mha_cross_fill(m, c, memory, batch, n_k, lengths, o);
}

static inline attn_status seen_cross_step(const attn_mha *m, float *out, const float *x, int batch, int n, const attn_kv *c,
                                          const attn_mha_opts *o)
{
    record *r = record_of(m, "cross, cached");
    keep_rows(r, r->n, x, n);
    return attn_mha_cross_step(m, out, x, batch, n, c, o);
}

static void seen_free(attn_mha *m)
{
    for (int i = 0; i < n_records; i++) if (records[i].m == m) measure(&records[i]);
    attn_mha_free(m);
}

#define attn_mha_self seen_self
#define attn_mha_self_step seen_self_step
#define attn_mha_cross_fill seen_fill
#define attn_mha_cross_step seen_cross_step
#define attn_mha_free seen_free
#define main example_main
#if defined(STORIES)
#include "../../examples/14_stories.c"
#elif defined(LISTEN)
#include "../../examples/listen/listen.c"
#elif defined(EMBED)
#include "../../examples/embed/embed.c"
#else
#include "../../examples/translate/translate.c"
#endif
#undef main

static void print(const char *name, const record *r)
{
    static const int order[] = { K, K_ROTATED, V, V_ROTATED, KV, KV_ROTATED };
    printf("| %s | %.1f, %.1f | %.2f, %.2f |", name, r->largest[0] / r->keys, r->largest[1] / r->keys,
           100 * sqrt(r->score[K] / r->score[FLOATS]), 100 * sqrt(r->score[K_ROTATED] / r->score[FLOATS]));
    for (int i = 0; i < 6; i += 2)
        printf(" %.2f, %.2f |", 100 * sqrt(r->out[order[i]] / r->out[FLOATS]), 100 * sqrt(r->out[order[i + 1]] / r->out[FLOATS]));
    puts("");
}

int main(int argc, char **argv)
{
    const int status = example_main(argc, argv);
    printf("\n| plain, rotated | largest | scores, k | output, k | output, v | output, k and v |\n|---|---|---|---|---|---|\n");
    (void)seen_self, (void)seen_self_step, (void)seen_fill, (void)seen_cross_step, (void)seen_free;      /* some unused */
    for (int i = 0, l = 0; i < n_records; i++) {
        char name[64];
        record all = records[i];
        int first = 1;
        for (int j = 0; j < i; j++) first &= strcmp(records[j].kind, all.kind) != 0;
        if (!first) continue;
        l = 0;
        memset(&all.score, 0, sizeof all.score), memset(&all.out, 0, sizeof all.out);
        all.keys = all.largest[0] = all.largest[1] = 0;
        for (int j = i; j < n_records; j++) {
            if (strcmp(records[j].kind, records[i].kind)) continue;
            snprintf(name, sizeof name, "%s, layer %d", records[i].kind, ++l);
            print(name, &records[j]);
            for (int w = 0; w < WAYS; w++) all.score[w] += records[j].score[w], all.out[w] += records[j].out[w];
            for (int w = 0; w < 2; w++) all.largest[w] += records[j].largest[w];
            all.keys += records[j].keys;
        }
        snprintf(name, sizeof name, "**%s, all**", records[i].kind);
        print(name, &all);
    }
    return status;
}
