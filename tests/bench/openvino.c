/* openvino.c: OpenVINO's ScaledDotProductAttention through its C library, loaded at run time. Its C API reads models
 * but cannot build them: a case becomes a model in OpenVINO's text form (IR), with float32 requested. Tensors are ordered
 * head by head; transposing them is not timed. A layer's projections are part of its model.
 *
 * Single rows are not measured: its decoders keep their keys in a state of the model. With tensors, as here, it splits
 * the operator and takes seven times as long as all others, which is not representative of its decoders. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

enum { ELEMENT_F32 = 4, ELEMENT_U8 = 16 };                  /* ov_element_type_e; all functions return 0 for success */
typedef struct shape { int64_t rank, *dims; } shape;

static struct functions {
    void *library, *core;
    int threads;
    const char *(*last_error)(void);
    int (*core_create)(void **core);
    void (*core_free)(void *core);
    int (*read)(const void *core, const char *text, size_t length, const void *weights, void **model);
    int (*compile)(const void *core, const void *model, const char *device, size_t words, void **compiled, ...);
    int (*request)(const void *compiled, void **request);
    int (*input)(void *request, size_t i, const void *tensor);
    int (*output)(void *request, size_t i, const void *tensor);
    int (*infer)(void *request);
    int (*tensor)(int type, shape s, void *data, void **tensor);
    void (*model_free)(void *), (*compiled_free)(void *), (*request_free)(void *), (*tensor_free)(void *);
} ov;

static const char *functions_load(void)
{
    const struct name { const char *name; void *to; } names[] = {
        { "ov_get_last_err_msg", &ov.last_error }, { "ov_core_create", &ov.core_create },
        { "ov_core_free", &ov.core_free }, { "ov_core_read_model_from_memory_buffer", &ov.read },
        { "ov_core_compile_model", &ov.compile }, { "ov_compiled_model_create_infer_request", &ov.request },
        { "ov_infer_request_set_input_tensor_by_index", &ov.input },
        { "ov_infer_request_set_output_tensor_by_index", &ov.output }, { "ov_infer_request_infer", &ov.infer },
        { "ov_tensor_create_from_host_ptr", &ov.tensor }, { "ov_model_free", &ov.model_free },
        { "ov_compiled_model_free", &ov.compiled_free }, { "ov_infer_request_free", &ov.request_free },
        { "ov_tensor_free", &ov.tensor_free }
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *none = NULL;
        bench_symbol(ov.library, names[i].name, names[i].to);
        if (!memcmp(names[i].to, &none, sizeof none)) return names[i].name;
    }
    return NULL;
}

static void print_version(void)
{
    struct version { const char *number, *description; } v = { NULL, NULL };
    int (*get)(struct version *v) = NULL;
    void (*release)(struct version *v) = NULL;
    bench_symbol(ov.library, "ov_get_openvino_version", &get);
    bench_symbol(ov.library, "ov_version_free", &release);
    if (!get || !release || get(&v)) return;
    printf("  OpenVINO %s\n", v.number);
    release(&v);
}

/* It has no switch that disables AVX-512. For AVX2 alone peers.sh makes a copy of the library that detects no
   AVX-512. */
static const char *openvino_open(const bench_peer *p, const bench_setup *s)
{
    static const char *const whole[] = { "openvino/openvino/libs/libopenvino_c.so*", "libopenvino_c.so", NULL };
    static const char *const kept[] = { "openvino-avx2/openvino/libs/libopenvino_c.so*", NULL };
    static char why[128];
    const char *missing;
    (void)p;
    if (!ov.library) ov.library = bench_load(s->folder, s->avx2 && yard512_here() ? kept : whole);
    if (!ov.library) return "not installed (or cannot be kept from AVX-512)";
    missing = functions_load();
    if (missing) {
        snprintf(why, sizeof why, "its library has no %s", missing);
        return why;
    }
    ov.threads = s->threads;
    print_version();
    return ov.core || ov.core_create(&ov.core) == 0 ? NULL : "ov_core_create failed";
}

/* ---- a model as text --------------------------------------------------------------------------------------------- */
enum { MOST_TEXT = 1 << 14, MOST_CONSTANTS = 4096 };

typedef struct graph {
    char layers[MOST_TEXT], edges[MOST_TEXT];
    size_t layers_end, edges_end;
    int n;
    unsigned char *constants;             /* weights, followed by the small constants */
    size_t bytes, room;
} graph;

static void add(char *text, size_t *end, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    *end += (size_t)vsnprintf(text + *end, MOST_TEXT - *end, format, list);
    va_end(list);
    if (*end >= MOST_TEXT) exit(1);       /* a mistake in this file */
}

/* A node; inputs are ids of others and end with -1. Its output has dims, up to the first 0. */
static int node(graph *g, const char *type, int set, const char *data, const int inputs[5], const int dims[4])
{
    int ports = 0;
    add(g->layers, &g->layers_end, "<layer id=\"%d\" name=\"n%d\" type=\"%s\" version=\"opset%d\">%s", g->n, g->n, type,
        set, data);
    for (; inputs[ports] >= 0; ports++) {
        add(g->layers, &g->layers_end, "%s<port id=\"%d\"/>", ports ? "" : "<input>", ports);
        add(g->edges, &g->edges_end,
            "<edge from-layer=\"%d\" from-port=\"9\" to-layer=\"%d\" to-port=\"%d\"/>", inputs[ports], g->n, ports);
    }
    if (ports) add(g->layers, &g->layers_end, "</input>");
    if (dims) {
        add(g->layers, &g->layers_end, "<output><port id=\"9\" precision=\"%s\">",
            strstr(data, "i64") ? "I64" : "FP32");
        for (int i = 0; i < 4 && dims[i]; i++) add(g->layers, &g->layers_end, "<dim>%d</dim>", dims[i]);
        add(g->layers, &g->layers_end, "</port></output>");
    }
    add(g->layers, &g->layers_end, "</layer>");
    return g->n++;
}

#define NODE(g, type, set, data, dims, ...) node(g, type, set, data, (const int[5]){ __VA_ARGS__, -1 }, dims)

static void dims_text(char *to, size_t size, const int dims[4])
{
    snprintf(to, size, "%d", dims[0]);
    for (int i = 1; i < 4 && dims[i]; i++) snprintf(to + strlen(to), size - strlen(to), ",%d", dims[i]);
}

static int parameter(graph *g, const int dims[4])
{
    char text[80], data[160];
    dims_text(text, sizeof text, dims);
    snprintf(data, sizeof data, "<data shape=\"%s\" element_type=\"f32\"/>", text);
    return NODE(g, "Parameter", 1, data, dims, -1);
}

static int constant(graph *g, const char *type, const void *bytes, size_t size, const int dims[4])
{
    char text[80], data[200];
    if (g->bytes + size > g->room) exit(1);                 /* a mistake in this file */
    memcpy(g->constants + g->bytes, bytes, size);
    dims_text(text, sizeof text, dims);
    snprintf(data, sizeof data, "<data element_type=\"%s\" shape=\"%s\" offset=\"%lu\" size=\"%lu\"/>", type, text,
             (unsigned long)g->bytes, (unsigned long)size);
    g->bytes += size;
    return NODE(g, "Const", 1, data, dims, -1);
}

static int reshape(graph *g, int x, const int dims[4])
{
    int64_t to[4];
    int n = 0;
    while (n < 4 && dims[n]) to[n] = dims[n], n++;
    n = constant(g, "i64", to, (size_t)n * sizeof *to, (const int[4]){ n });
    return NODE(g, "Reshape", 1, "<data special_zero=\"false\"/>", dims, x, n);
}

static int heads_and_rows(graph *g, int x, const int dims[4])           /* swaps them */
{
    const int64_t order[4] = { 0, 2, 1, 3 };
    const int by = constant(g, "i64", order, sizeof order, (const int[4]){ 4 });
    return NODE(g, "Transpose", 1, "", dims, x, by);
}

static int linear(graph *g, int x, const float *w, const float *b, int rows, int d)
{
    const int wide[4] = { rows, d };
    const int weights = constant(g, "f32", w, (size_t)d * (size_t)d * sizeof *w, (const int[4]){ d, d });
    const int bias = constant(g, "f32", b, (size_t)d * sizeof *b, (const int[4]){ 1, d });
    const int y = NODE(g, "MatMul", 1, "<data transpose_a=\"false\" transpose_b=\"true\"/>", wide, x, weights);
    return NODE(g, "Add", 1, "<data auto_broadcast=\"numpy\"/>", wide, y, bias);
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */
enum { Q, K, V, MASK, INPUTS };

typedef struct job {
    const bench_case *c;
    void *model, *compiled, *request, *weights, *tensors[INPUTS], *out_tensor;
    float *data[INPUTS], *out;
    graph g;
} job;

/* [batch][rows][heads][dim] to [batch][heads][rows][dim]; with the sizes exchanged it converts back */
static void swap_heads(float *to, const float *from, int batch, int rows, int heads, int dim)
{
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < rows; i++)
            for (int h = 0; h < heads; h++)
                memcpy(to + (((size_t)b * (size_t)heads + (size_t)h) * (size_t)rows + (size_t)i) * (size_t)dim,
                       from + (((size_t)b * (size_t)rows + (size_t)i) * (size_t)heads + (size_t)h) * (size_t)dim,
                       (size_t)dim * sizeof *to);
}

static float *heads_first(const float *x, int batch, int rows, int heads, int dim)
{
    float *y = (float *)bench_alloc((size_t)batch * (size_t)rows * (size_t)heads * (size_t)dim * sizeof *y);
    swap_heads(y, x, batch, rows, heads, dim);
    return y;
}

/* Lengths and windows, which the operator cannot express, become a matrix to be added. */
static void mask_make(job *j, int dims[4])
{
    const attn_args *a = &j->c->a;
    const int entries = a->mask ? a->mask_shape[0] : a->k_lengths ? a->batch : 1;
    const size_t cells = (size_t)a->n_q * (size_t)a->n_k;
    float *m = j->data[MASK] = (float *)bench_alloc((size_t)entries * cells * sizeof *m);
    for (int b = 0; b < entries; b++)
        for (int i = 0; i < a->n_q; i++, m += a->n_k) {
            int lo, hi;
            bench_range(a, b, i, &lo, &hi);
            for (int k = 0; k < a->n_k; k++) m[k] = k >= lo && k < hi ? 0.0f : -INFINITY;
            if (!a->mask) continue;
            memcpy(m, a->mask + (size_t)b * cells + (size_t)i * (size_t)a->n_k, (size_t)a->n_k * sizeof *m);
        }
    dims[0] = entries, dims[1] = 1, dims[2] = a->n_q, dims[3] = a->n_k;
}

static int attention(job *j, int q, int k, int v, int mask, const int out[4])
{
    const attn_args *a = &j->c->a;
    const char *data = a->causal && mask < 0 ? "<data causal=\"true\"/>" : "<data causal=\"false\"/>";
    return NODE(&j->g, "ScaledDotProductAttention", 13, data, out, q, k, v, mask);
}

static int input(job *j, int which, const int dims[4])
{
    int64_t sizes[4];
    shape s = { 0, NULL };
    s.dims = sizes;
    for (; s.rank < 4 && dims[s.rank]; s.rank++) sizes[s.rank] = dims[s.rank];
    if (ov.tensor(ELEMENT_F32, s, j->data[which], &j->tensors[which])) return -1;
    return parameter(&j->g, dims);
}

/* A layer: x in, projections inside. */
static int layer_make(job *j)
{
    const bench_case *c = j->c;
    const attn_args *a = &c->a;
    const int d = c->d_model, rows[4] = { 1, a->n_q, a->heads, a->head_dim };
    const int heads[4] = { 1, a->heads, a->n_q, a->head_dim }, wide[4] = { a->n_q, d };
    const size_t bytes = c->out_floats * sizeof(float);
    int x, qkv[3], y;
    j->data[Q] = (float *)memcpy(bench_alloc(bytes), c->x, bytes);
    x = input(j, Q, wide);
    for (int i = 0; i < 3; i++) {
        y = linear(&j->g, x, c->w_in + (size_t)i * (size_t)d * (size_t)d, c->b_in + i * d, a->n_q, d);
        qkv[i] = heads_and_rows(&j->g, reshape(&j->g, y, rows), heads);
    }
    y = heads_and_rows(&j->g, attention(j, qkv[Q], qkv[K], qkv[V], -1, heads), rows);
    return linear(&j->g, reshape(&j->g, y, wide), c->w_o, c->b_o, a->n_q, d);
}

static int attention_make(job *j)
{
    const attn_args *a = &j->c->a;
    const int q_dims[4] = { a->batch, a->heads, a->n_q, a->head_dim };
    const int k_dims[4] = { a->batch, a->heads, a->n_k, a->head_dim };
    int mask_dims[4], q, k, v, mask = -1;
    j->data[Q] = heads_first(a->q, a->batch, a->n_q, a->heads, a->head_dim);
    j->data[K] = heads_first(a->k, a->batch, a->n_k, a->heads, a->head_dim);
    j->data[V] = heads_first(a->v, a->batch, a->n_k, a->heads, a->head_dim);
    q = input(j, Q, q_dims);
    k = input(j, K, k_dims);
    v = input(j, V, k_dims);
    if (a->mask || a->k_lengths || a->window_left || a->window_right) {
        mask_make(j, mask_dims);
        mask = input(j, MASK, mask_dims);
    }
    return attention(j, q, k, v, mask, q_dims);
}

static int finish(job *j, int last, const int out_dims[4])
{
    static const char form[] = "<?xml version=\"1.0\"?><net name=\"case\" version=\"11\"><layers>%s</layers>"
                               "<edges>%s</edges></net>";
    static char text[2 * MOST_TEXT + sizeof form];
    char threads[16];
    int64_t sizes[4], bytes = (int64_t)j->g.bytes;
    shape s = { 0, NULL }, flat = { 1, NULL };
    size_t at = 0;
    NODE(&j->g, "Result", 1, "", NULL, last);
    s.dims = sizes;
    flat.dims = &bytes;
    for (; s.rank < 4 && out_dims[s.rank]; s.rank++) sizes[s.rank] = out_dims[s.rank];
    snprintf(text, sizeof text, form, j->g.layers, j->g.edges);
    snprintf(threads, sizeof threads, "%d", ov.threads);
    if (bytes && ov.tensor(ELEMENT_U8, flat, j->g.constants, &j->weights)) return -1;
    if (ov.read(ov.core, text, strlen(text), j->weights, &j->model)) return -1;
    /* code for the operator alone is faster except for layers: the better of two is reported */
    if (ov.compile(ov.core, j->model, "CPU", 12, &j->compiled, "INFERENCE_PRECISION_HINT", "f32",
                   "INFERENCE_NUM_THREADS", threads, "NUM_STREAMS", "1", "ENABLE_CPU_PINNING", "NO",
                   "EXECUTION_MODE_HINT", "ACCURACY", "SNIPPETS_MODE", j->c->layer ? "DISABLE" : "ENABLE"))
        return -1;
    if (ov.request(j->compiled, &j->request)) return -1;
    if (ov.tensor(ELEMENT_F32, s, j->out, &j->out_tensor) || ov.output(j->request, 0, j->out_tensor)) return -1;
    for (int i = 0; i < INPUTS; i++)
        if (j->tensors[i] && ov.input(j->request, at++, j->tensors[i])) return -1;
    return ov.infer(j->request);
}

static void openvino_release(void *arg)
{
    job *j = (job *)arg;
    if (j->request) ov.request_free(j->request);
    if (j->compiled) ov.compiled_free(j->compiled);
    if (j->model) ov.model_free(j->model);
    if (j->weights) ov.tensor_free(j->weights);
    if (j->out_tensor) ov.tensor_free(j->out_tensor);
    for (int i = 0; i < INPUTS; i++) {
        if (j->tensors[i]) ov.tensor_free(j->tensors[i]);
        free(j->data[i]);
    }
    free(j->g.constants);
    free(j->out);
    free(j);
}

static void *openvino_prepare(const bench_peer *p, const bench_case *c)
{
    const attn_args *a = &c->a;
    const size_t d = (size_t)c->d_model;
    int dims[4] = { 0 }, last;
    job *j;
    if (a->n_q == 1 || a->kv_heads != a->heads) return NULL;
    j = (job *)calloc(1, sizeof *j);
    if (!j) exit(1);
    j->c = c;
    j->g.room = (4 * d * d + 4 * d) * sizeof(float) + MOST_CONSTANTS;
    j->g.constants = (unsigned char *)bench_alloc(j->g.room);
    j->out = (float *)bench_alloc(c->out_floats * sizeof(float));
    last = c->layer ? layer_make(j) : attention_make(j);
    dims[0] = c->layer ? a->n_q : a->batch, dims[1] = c->layer ? c->d_model : a->heads;
    if (!c->layer) dims[2] = a->n_q, dims[3] = a->head_dim;
    if (finish(j, last, dims) == 0) return j;
    fprintf(stderr, "bench: %s on %s: %.200s\n", p->name, c->name, ov.last_error());
    openvino_release(j);
    return NULL;
}

static void openvino_run(void *arg)
{
    job *j = (job *)arg;
    if (ov.infer(j->request)) fprintf(stderr, "bench: OpenVINO: %.200s\n", ov.last_error());
}

/* Another thread may do the work, so with --busy the clock of the process measures it. */
static double openvino_timed(void *arg, int calls)
{
    const double begin = bench_cpu_time ? (double)clock() / CLOCKS_PER_SEC : bench_now();
    for (int i = 0; i < calls; i++) openvino_run(arg);
    return (bench_cpu_time ? (double)clock() / CLOCKS_PER_SEC : bench_now()) - begin;
}

static void openvino_fetch(void *arg)
{
    const job *j = (const job *)arg;
    const attn_args *a = &j->c->a;
    if (j->c->layer) memcpy(a->out, j->out, j->c->out_floats * sizeof(float));
    else swap_heads(a->out, j->out, a->batch, a->heads, a->n_q, a->head_dim);
}

static void openvino_close(const bench_peer *p)
{
    (void)p;
    if (ov.core) ov.core_free(ov.core);
    ov.core = NULL;
}

const bench_peer peer_openvino = { "OpenVINO", openvino_open, openvino_prepare, openvino_run, openvino_timed,
                                   openvino_fetch, openvino_release, openvino_close, NULL };
