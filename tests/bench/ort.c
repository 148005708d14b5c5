/* ort.c: ONNX Runtime's operators through its C library, loaded at run time. A case becomes a model of one operator (a
 * layer: with its projections), written here as protobuf, so nothing but the library is needed. Inputs and outputs are
 * bound once, to the case's own memory wherever the operator takes that layout: a run copies nothing around. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "stories.h"

/* ---- its library ------------------------------------------------------------------------------------------------- */
/* All functions are in one table (OrtApi) that only grows at its end: these are indices in it. */
enum { API_VERSION = 11 };                                  /* its tables have all functions used here */
enum {
    GET_ERROR_MESSAGE = 2, CREATE_ENV = 3, CREATE_SESSION_FROM_ARRAY = 8, CREATE_SESSION_OPTIONS = 10,
    SET_SESSION_LOG_SEVERITY_LEVEL = 22, SET_SESSION_GRAPH_OPTIMIZATION_LEVEL = 23, SET_INTRA_OP_NUM_THREADS = 24,
    SET_INTER_OP_NUM_THREADS = 25, CREATE_RUN_OPTIONS = 39, CREATE_TENSOR_WITH_DATA_AS_ORT_VALUE = 49,
    CREATE_CPU_MEMORY_INFO = 69, RELEASE_ENV = 92, RELEASE_STATUS = 93, RELEASE_MEMORY_INFO = 94, RELEASE_SESSION = 95,
    RELEASE_VALUE = 96, RELEASE_RUN_OPTIONS = 97, RELEASE_SESSION_OPTIONS = 100, ADD_SESSION_CONFIG_ENTRY = 130,
    RUN_WITH_BINDING = 133, CREATE_IO_BINDING = 134, RELEASE_IO_BINDING = 135, BIND_INPUT = 136, BIND_OUTPUT = 137
};
enum { LOG_ERRORS = 3, OPTIMIZE_ALL = 99, ARENA_ALLOCATOR = 1, MEMORY_DEFAULT = 0 };
enum { FLOAT = 1, INT32 = 6, INT64 = 7 };                   /* of elements: the same numbers in a model */

typedef void (*any_function)(void);
typedef struct api_base {
    const any_function *(*table)(uint32_t version);         /* NULL: the library is older */
    const char *(*version)(void);
} api_base;

/* All of its objects are a void * here. Functions that return a status return NULL for success. */
static struct functions {
    void *library, *env, *options, *run_options, *memory;
    int users;                                              /* peers that are open */
    char why[256];                                          /* its last error */
    const char *(*error_message)(const void *status);
    void *(*create_env)(int severity, const char *name, void **env);
    void *(*create_session)(const void *env, const void *model, size_t bytes, const void *options, void **session);
    void *(*create_options)(void **options);
    void *(*log_severity)(void *options, int level);
    void *(*optimization)(void *options, int level);
    void *(*intra_op_threads)(void *options, int threads);
    void *(*inter_op_threads)(void *options, int threads);
    void *(*config)(void *options, const char *key, const char *value);
    void *(*create_run_options)(void **options);
    void *(*create_memory)(int allocator, int type, void **memory);
    void *(*create_tensor)(const void *memory, void *data, size_t bytes, const int64_t *dims, size_t rank, int type,
                           void **value);
    void *(*create_binding)(void *session, void **binding);
    void *(*bind_input)(void *binding, const char *name, const void *value);
    void *(*bind_output)(void *binding, const char *name, const void *value);
    void *(*run)(void *session, const void *options, const void *binding);
    void (*env_free)(void *), (*status_free)(void *), (*memory_free)(void *), (*session_free)(void *);
    void (*value_free)(void *), (*run_options_free)(void *), (*options_free)(void *), (*binding_free)(void *);
} ort;

static void functions_load(const any_function *table)
{
    const struct place { int at; void *to; } places[] = {
        { GET_ERROR_MESSAGE, &ort.error_message }, { CREATE_ENV, &ort.create_env },
        { CREATE_SESSION_FROM_ARRAY, &ort.create_session }, { CREATE_SESSION_OPTIONS, &ort.create_options },
        { SET_SESSION_LOG_SEVERITY_LEVEL, &ort.log_severity },
        { SET_SESSION_GRAPH_OPTIMIZATION_LEVEL, &ort.optimization },
        { SET_INTRA_OP_NUM_THREADS, &ort.intra_op_threads }, { SET_INTER_OP_NUM_THREADS, &ort.inter_op_threads },
        { CREATE_RUN_OPTIONS, &ort.create_run_options }, { CREATE_TENSOR_WITH_DATA_AS_ORT_VALUE, &ort.create_tensor },
        { CREATE_CPU_MEMORY_INFO, &ort.create_memory }, { RELEASE_ENV, &ort.env_free },
        { RELEASE_STATUS, &ort.status_free }, { RELEASE_MEMORY_INFO, &ort.memory_free },
        { RELEASE_SESSION, &ort.session_free }, { RELEASE_VALUE, &ort.value_free },
        { RELEASE_RUN_OPTIONS, &ort.run_options_free }, { RELEASE_SESSION_OPTIONS, &ort.options_free },
        { ADD_SESSION_CONFIG_ENTRY, &ort.config }, { RUN_WITH_BINDING, &ort.run },
        { CREATE_IO_BINDING, &ort.create_binding }, { RELEASE_IO_BINDING, &ort.binding_free },
        { BIND_INPUT, &ort.bind_input }, { BIND_OUTPUT, &ort.bind_output }
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        memcpy(places[i].to, &table[places[i].at], sizeof *table);
}

/* Returns 1 on success. Otherwise keeps the first line of the error. */
static int fine(void *status)
{
    if (!status) return 1;
    snprintf(ort.why, sizeof ort.why, "%s", ort.error_message(status));
    ort.why[strcspn(ort.why, "\n")] = 0;
    ort.status_free(status);
    return 0;
}

static void ort_close(const bench_peer *p)
{
    (void)p;
    if (--ort.users) return;
    if (ort.memory) ort.memory_free(ort.memory);
    if (ort.run_options) ort.run_options_free(ort.run_options);
    if (ort.options) ort.options_free(ort.options);
    if (ort.env) ort.env_free(ort.env);
    ort.memory = ort.run_options = ort.options = ort.env = NULL;
}

/* It has no switch that disables AVX-512. For AVX2 alone peers.sh makes a copy of the library that detects no
   AVX-512. */
static const char *library_open(const bench_setup *s)
{
    static const char *const whole[] = { "onnxruntime/onnxruntime/capi/libonnxruntime.*", "libonnxruntime.so", NULL };
    static const char *const kept[] = { "onnxruntime-avx2/onnxruntime/capi/libonnxruntime.*", NULL };
    const api_base *(*base)(void) = NULL;
    const any_function *table;
    if (ort.library) return NULL;
    ort.library = bench_load(s->folder, s->avx2 && yard512_here() ? kept : whole);
    if (!ort.library) return "not installed (or cannot be kept from AVX-512)";
    bench_symbol(ort.library, "OrtGetApiBase", &base);
    table = base ? base()->table(API_VERSION) : NULL;
    if (!table) return "its library is too old";
    functions_load(table);
    printf("  ONNX Runtime %s\n", base()->version());
    return NULL;
}

static const char *ort_open(const bench_peer *p, const bench_setup *s)
{
    const char *why = library_open(s);
    (void)p;
    if (why) return why;
    if (ort.users++) return NULL;
    /* its threads may spin during its own turns only */
    if (fine(ort.create_env(LOG_ERRORS, "bench", &ort.env)) && fine(ort.create_options(&ort.options)) &&
        fine(ort.log_severity(ort.options, LOG_ERRORS)) && fine(ort.optimization(ort.options, OPTIMIZE_ALL)) &&
        fine(ort.intra_op_threads(ort.options, s->threads)) && fine(ort.inter_op_threads(ort.options, 1)) &&
        fine(ort.config(ort.options, "session.force_spinning_stop", "1")) &&
        fine(ort.create_run_options(&ort.run_options)) &&
        fine(ort.create_memory(ARENA_ALLOCATOR, MEMORY_DEFAULT, &ort.memory)))
        return NULL;
    ort_close(p);
    return ort.why;
}

/* ---- protobuf: fields of a number and a value; a message within another is bytes --------------------------------- */
typedef struct bytes {
    unsigned char *at;
    size_t n, room;
} bytes;

static void put(bytes *to, const void *from, size_t n)
{
    if (to->n + n > to->room) {
        to->room = 2 * (to->n + n);
        to->at = (unsigned char *)realloc(to->at, to->room);
        if (!to->at) exit(1);
    }
    if (n) memcpy(to->at + to->n, from, n);
    to->n += n;
}

static void put_varint(bytes *to, uint64_t n)               /* seven bits a byte, the lowest first */
{
    for (;; n >>= 7) {
        const unsigned char low = (unsigned char)((n & 127) | (n > 127 ? 128 : 0));
        put(to, &low, 1);
        if (n < 128) return;
    }
}

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_FLOAT = 5 };

static void put_int(bytes *to, unsigned field, int n)
{
    put_varint(to, field << 3 | WIRE_VARINT);
    put_varint(to, (uint64_t)n);
}

static void put_float(bytes *to, unsigned field, float x)
{
    put_varint(to, field << 3 | WIRE_FLOAT);
    put(to, &x, sizeof x);
}

static void put_bytes(bytes *to, unsigned field, const void *from, size_t n)
{
    put_varint(to, field << 3 | WIRE_BYTES);
    put_varint(to, n);
    put(to, from, n);
}

static void put_text(bytes *to, unsigned field, const char *text) { put_bytes(to, field, text, strlen(text)); }

static void put_message(bytes *to, unsigned field, bytes *part)         /* frees part */
{
    put_bytes(to, field, part->at, part->n);
    free(part->at);
    memset(part, 0, sizeof *part);
}

/* ---- a model: numbers of fields as onnx.proto has them ----------------------------------------------------------- */
enum { MODEL_IR_VERSION = 1, MODEL_GRAPH = 7, MODEL_OPSET = 8, OPSET_DOMAIN = 1, OPSET_VERSION = 2 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_CONSTANT = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_OPERATOR = 4, NODE_ATTRIBUTE = 5, NODE_DOMAIN = 7 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_FLOAT = 2, ATTRIBUTE_INT = 3, ATTRIBUTE_TYPE = 20 };
enum { CONSTANT_DIM = 1, CONSTANT_TYPE = 2, CONSTANT_NAME = 8, CONSTANT_DATA = 9 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TENSOR_ELEMENT = 1, TENSOR_SHAPE = 2, SHAPE_DIM = 1, DIM = 1 };

static const char CONTRIB[] = "com.microsoft";
#define DIMS(...) ((const int[5]){ __VA_ARGS__ })           /* up to the first 0 */

static size_t product(const int *dims)
{
    size_t n = 1;
    while (*dims) n *= (size_t)*dims++;
    return n;
}

static void attribute_int(bytes *attributes, const char *name, int n)
{
    bytes a = { 0 };
    put_text(&a, ATTRIBUTE_NAME, name);
    put_int(&a, ATTRIBUTE_INT, n);
    put_int(&a, ATTRIBUTE_TYPE, 2);
    put_message(attributes, NODE_ATTRIBUTE, &a);
}

static void attribute_float(bytes *attributes, const char *name, float x)
{
    bytes a = { 0 };
    put_text(&a, ATTRIBUTE_NAME, name);
    put_float(&a, ATTRIBUTE_FLOAT, x);
    put_int(&a, ATTRIBUTE_TYPE, 1);
    put_message(attributes, NODE_ATTRIBUTE, &a);
}

static void put_names(bytes *node, unsigned field, const char *names)
{
    for (size_t n; *names; names += n, names += *names == ' ') {
        n = strcspn(names, " ");
        put_bytes(node, field, names, *names == '-' ? 0 : n);
    }
}

/* Names are words of a text, "-" is an input that is left out. Frees the attributes (NULL: none). */
static void node(bytes *graph, const char *domain, const char *op, const char *inputs, const char *outputs,
                 bytes *attributes)
{
    bytes n = { 0 };
    put_names(&n, NODE_INPUT, inputs);
    put_names(&n, NODE_OUTPUT, outputs);
    put_text(&n, NODE_OPERATOR, op);
    put_text(&n, NODE_DOMAIN, domain);
    if (attributes) {
        put(&n, attributes->at, attributes->n);
        free(attributes->at);
    }
    put_message(graph, GRAPH_NODE, &n);
}

static void constant(bytes *graph, const char *name, int type, const int *dims, const void *data)
{
    bytes c = { 0 };
    for (const int *d = dims; *d; d++) put_int(&c, CONSTANT_DIM, *d);
    put_int(&c, CONSTANT_TYPE, type);
    put_text(&c, CONSTANT_NAME, name);
    put_bytes(&c, CONSTANT_DATA, data, product(dims) * (type == INT64 ? 8 : 4));
    put_message(graph, GRAPH_CONSTANT, &c);
}

static void value_info(bytes *graph, unsigned field, const char *name, int type, const int *dims)
{
    bytes shape = { 0 }, tensor = { 0 }, kind = { 0 }, value = { 0 };
    for (; *dims; dims++) {
        bytes dim = { 0 };
        put_int(&dim, DIM, *dims);
        put_message(&shape, SHAPE_DIM, &dim);
    }
    put_int(&tensor, TENSOR_ELEMENT, type);
    put_message(&tensor, TENSOR_SHAPE, &shape);
    put_message(&kind, TYPE_TENSOR, &tensor);
    put_text(&value, VALUE_NAME, name);
    put_message(&value, VALUE_TYPE, &kind);
    put_message(graph, field, &value);
}

static void reshape(bytes *graph, const char *from, const char *to, const int *dims)
{
    int64_t sizes[4];
    char names[64], shape[32];
    int n = 0;
    for (; dims[n]; n++) sizes[n] = dims[n];
    snprintf(shape, sizeof shape, "%s_shape", to);
    snprintf(names, sizeof names, "%s %s", from, shape);
    constant(graph, shape, INT64, DIMS(n), sizes);
    node(graph, "", "Reshape", names, to, NULL);
}

static void linear(bytes *graph, const char *from, const char *to, const float *w, const float *b, int d)
{
    bytes attributes = { 0 };
    char names[64], weights[16], bias[16];
    snprintf(weights, sizeof weights, "%s_w", to);
    snprintf(bias, sizeof bias, "%s_b", to);
    snprintf(names, sizeof names, "%s %s %s", from, weights, bias);
    constant(graph, weights, FLOAT, DIMS(d, d), w);
    constant(graph, bias, FLOAT, DIMS(d), b);
    attribute_int(&attributes, "transB", 1);
    node(graph, "", "Gemm", names, to, &attributes);
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */
enum { MOST_ENDS = 80 };                  /* of a decoder of 16 layers */
typedef struct end {                      /* an input or an output of the model */
    const char *name;
    int output;
    void *value;
} end;

typedef struct turned turned;

typedef struct job {
    const bench_case *c;
    bytes graph;
    void *session, *binding;
    int ends, kept, shares, failed;
    end end[MOST_ENDS];
    void *keeps[MOST_ENDS];               /* memory of this job alone */
    turned *share[2];
} job;

static void *keep(job *j, size_t words)                     /* of four bytes, all 0 */
{
    void *p = bench_alloc(words * 4);
    memset(p, 0, words * 4);
    j->keeps[j->kept++] = p;
    return p;
}

/* Binding needs the session, which needs the whole model: finish binds objects that are created here. */
static void add_end(job *j, int output, const char *name, int type, const int *dims, const void *data)
{
    int64_t sizes[4];
    size_t rank = 0;
    end *e = &j->end[j->ends++];
    for (; dims[rank]; rank++) sizes[rank] = dims[rank];
    value_info(&j->graph, output ? GRAPH_OUTPUT : GRAPH_INPUT, name, type, dims);
    e->name = name;
    e->output = output;
    if (!fine(ort.create_tensor(ort.memory, (void *)(size_t)data, product(dims) * 4, sizes, rank, type, &e->value)))
        j->failed = 1;
}

static void feed(job *j, const char *name, const int *dims, const float *data)
{
    add_end(j, 0, name, FLOAT, dims, data);
}

static void feed_ints(job *j, const char *name, int n, const int *data) { add_end(j, 0, name, INT32, DIMS(n), data); }
static void give(job *j, const char *name, const int *dims, float *data) { add_end(j, 1, name, FLOAT, dims, data); }

/* Keys or values head by head, as caches there have them: [batch][heads][rows][dim]. The operators of a case share
 * them, as all peers share the rows they are copied from. */
struct turned {
    const float *from;
    float *to;
    int rows, users;
};

static float *heads_first(job *j, const float *from, int rows)
{
    static turned all[4];
    const attn_args *a = &j->c->a;
    const size_t dim = (size_t)a->head_dim, heads = (size_t)a->kv_heads, n = (size_t)rows;
    turned *t = all;
    while (t->users && (t->from != from || t->rows != rows)) t++;
    j->share[j->shares++] = t;
    if (t->users++) return t->to;
    t->from = from;
    t->rows = rows;
    t->to = (float *)bench_alloc((size_t)a->batch * n * heads * dim * sizeof(float));
    for (size_t b = 0; b < (size_t)a->batch; b++)
        for (size_t i = 0; i < n; i++)
            for (size_t h = 0; h < heads; h++)
                memcpy(t->to + ((b * heads + h) * n + i) * dim, from + ((b * n + i) * heads + h) * dim,
                       dim * sizeof(float));
    return t->to;
}

static int needs_mask(const attn_args *a) { return a->mask || a->window_left || a->window_right; }

/* Lengths and windows, which an operator cannot express, become a matrix to be added. */
static void feed_mask(job *j)
{
    const attn_args *a = &j->c->a;
    const int entries = a->mask ? a->mask_shape[0] : a->k_lengths ? a->batch : 1;
    const int *dims = DIMS(entries, 1, a->n_q, a->n_k);
    float *m;
    if (a->mask) {
        feed(j, "mask", dims, a->mask);
        return;
    }
    m = (float *)keep(j, product(dims));
    feed(j, "mask", dims, m);
    for (int b = 0; b < entries; b++)
        for (int i = 0; i < a->n_q; i++, m += a->n_k) {
            int lo, hi;
            bench_range(a, b, i, &lo, &hi);
            for (int k = 0; k < a->n_k; k++) m[k] = k >= lo && k < hi ? 0.0f : -INFINITY;
        }
}

static void project(job *j, int which)                      /* x of a layer to q, k or v */
{
    static const char *const flat[] = { "q_flat", "k_flat", "v_flat" }, *const whole[] = { "q", "k", "v" };
    const bench_case *c = j->c;
    const size_t d = (size_t)c->d_model, i = (size_t)which;
    linear(&j->graph, "x", flat[which], c->w_in + i * d * d, c->b_in + i * d, c->d_model);
    reshape(&j->graph, flat[which], whole[which], DIMS(1, c->a.n_q, c->d_model));
}

static void feed_x(job *j) { feed(j, "x", DIMS(j->c->a.n_q, j->c->d_model), j->c->x); }

/* Makes the operator's output "o" the result of the case. */
static void give_result(job *j, const int *dims)
{
    const bench_case *c = j->c;
    if (!c->layer) {
        give(j, "o", dims, c->a.out);
        return;
    }
    reshape(&j->graph, "o", "o_flat", DIMS(c->a.n_q, c->d_model));
    linear(&j->graph, "o_flat", "y", c->w_o, c->b_o, c->d_model);
    give(j, "y", DIMS(c->a.n_q, c->d_model), c->a.out);
}

static bytes scale(const attn_args *a)
{
    bytes attributes = { 0 };
    attribute_float(&attributes, "scale", (float)(1 / sqrt(a->head_dim)));
    return attributes;
}

/* ---- MultiHeadAttention of com.microsoft ------------------------------------------------------------------------- */
static int mha_offered(const bench_case *c) { return c->a.kv_heads == c->a.heads; }

static void mha_keys(job *j)
{
    const bench_case *c = j->c;
    const attn_args *a = &c->a;
    const int rows = c->layer == LAYER_SELF_STEP ? a->n_k - 1 : a->n_k, wide = a->heads * a->head_dim;
    if (c->layer == LAYER_SELF || c->layer == LAYER_SELF_STEP) project(j, 1), project(j, 2);
    if (c->layer == LAYER_SELF) return;
    if (a->n_q > 1) {
        feed(j, "k", DIMS(a->batch, rows, wide), a->k);
        feed(j, "v", DIMS(a->batch, rows, wide), a->v);
    } else {                              /* the layout of a cache; a layer's self step takes it as the past */
        const int past = c->layer == LAYER_SELF_STEP, *dims = DIMS(a->batch, a->heads, rows, a->head_dim);
        feed(j, past ? "past_k" : "k", dims, heads_first(j, a->k, rows));
        feed(j, past ? "past_v" : "v", dims, heads_first(j, a->v, rows));
    }
}

static void mha_build(job *j)
{
    const bench_case *c = j->c;
    const attn_args *a = &c->a;
    const int past = c->layer == LAYER_SELF_STEP, masked = needs_mask(a), *dims;
    bytes attributes = scale(a);
    char inputs[64];
    if (c->layer) feed_x(j), project(j, 0);
    else feed(j, "q", DIMS(a->batch, a->n_q, a->heads * a->head_dim), a->q);
    mha_keys(j);
    if (a->k_lengths) feed_ints(j, "lengths", a->batch, a->k_lengths);
    if (masked) feed_mask(j);
    attribute_int(&attributes, "num_heads", a->heads);
    if (a->causal && !masked) attribute_int(&attributes, "unidirectional", 1);
    snprintf(inputs, sizeof inputs, "q k v - %s %s %s", a->k_lengths ? "lengths" : "-", masked ? "mask" : "-",
             past ? "past_k past_v" : "");
    node(&j->graph, CONTRIB, "MultiHeadAttention", inputs, past ? "o now_k now_v" : "o", &attributes);
    give_result(j, DIMS(a->batch, a->n_q, a->heads * a->head_dim));
    if (!past) return;
    dims = DIMS(a->batch, a->heads, a->n_k, a->head_dim);   /* it copies the cache with each call */
    give(j, "now_k", dims, (float *)keep(j, product(dims)));
    give(j, "now_v", dims, (float *)keep(j, product(dims)));
}

/* ---- Attention: of the standard; of com.microsoft, with the projections inside, for a layer ---------------------- */
static int attention_offered(const bench_case *c) { return !c->layer || c->layer == LAYER_SELF; }

static void layer_build(job *j)
{
    const bench_case *c = j->c;
    const size_t d = (size_t)c->d_model;
    float *w = (float *)bench_alloc(3 * d * d * sizeof *w);
    bytes attributes = { 0 };
    for (size_t r = 0; r < 3 * d; r++)
        for (size_t i = 0; i < d; i++) w[i * 3 * d + r] = c->w_in[r * d + i];
    constant(&j->graph, "w", FLOAT, DIMS(c->d_model, 3 * c->d_model), w);
    constant(&j->graph, "b", FLOAT, DIMS(3 * c->d_model), c->b_in);
    free(w);
    feed_x(j);
    reshape(&j->graph, "x", "x_whole", DIMS(1, c->a.n_q, c->d_model));
    attribute_int(&attributes, "num_heads", c->a.heads);
    node(&j->graph, CONTRIB, "Attention", "x_whole w b", "o", &attributes);
    give_result(j, NULL);
}

static void attention_build(job *j)
{
    const attn_args *a = &j->c->a;
    const int masked = needs_mask(a) || a->k_lengths, step = a->n_q == 1, n_kv = a->kv_heads * a->head_dim;
    const int *q_rows = DIMS(a->batch, a->n_q, a->heads * a->head_dim), *k_rows = DIMS(a->batch, a->n_k, n_kv);
    const int *q_step = DIMS(a->batch, a->heads, 1, a->head_dim);
    const int *k_step = DIMS(a->batch, a->kv_heads, a->n_k, a->head_dim);
    bytes attributes = { 0 };
    if (j->c->layer) {
        layer_build(j);
        return;
    }
    attributes = scale(a);
    feed(j, "q", step ? q_step : q_rows, a->q);             /* of one row both layouts are the same */
    feed(j, "k", step ? k_step : k_rows, step ? heads_first(j, a->k, a->n_k) : a->k);
    feed(j, "v", step ? k_step : k_rows, step ? heads_first(j, a->v, a->n_k) : a->v);
    if (masked) feed_mask(j);
    if (!step) {
        attribute_int(&attributes, "q_num_heads", a->heads);
        attribute_int(&attributes, "kv_num_heads", a->kv_heads);
    }
    if (a->causal && !masked) attribute_int(&attributes, "is_causal", 1);
    node(&j->graph, "", "Attention", masked ? "q k v mask" : "q k v", "o", &attributes);
    give_result(j, step ? q_step : q_rows);
}

/* ---- GroupQueryAttention of com.microsoft: a decoder's, causal, over a cache ------------------------------------- */
static int gqa_offered(const bench_case *c)
{
    const attn_args *a = &c->a;
    const int step = a->n_q == 1, window = a->causal && a->window_left && !a->window_right && !a->mask;
    if (c->layer ? c->layer != LAYER_SELF_STEP : !(a->causal || step)) return 0;
    return !a->k_lengths && (!needs_mask(a) || window) && !(step && a->batch > 1);
}

static void gqa_build(job *j)
{
    const bench_case *c = j->c;
    const attn_args *a = &c->a;
    const int step = a->n_q == 1, n_kv = a->kv_heads * a->head_dim;
    const int *new_rows = DIMS(a->batch, a->n_q, n_kv), *room = DIMS(a->batch, a->kv_heads, a->n_k, a->head_dim);
    const size_t first = step ? (size_t)(a->n_k - 1) * (size_t)n_kv : 0;
    int *last = (int *)keep(j, (size_t)a->batch), *total = (int *)keep(j, 1);
    float *k, *v;
    bytes attributes = scale(a);
    if (c->layer) {
        feed_x(j);
        for (int i = 0; i < 3; i++) project(j, i);
    } else {                              /* a step's own row is new, the others are cached */
        feed(j, "q", DIMS(a->batch, a->n_q, a->heads * a->head_dim), a->q);
        feed(j, "k", new_rows, a->k + first);
        feed(j, "v", new_rows, a->v + first);
    }
    /* Past and present are one buffer. A step overwrites an existing row with the same values, because other peers
       read it. */
    k = step ? heads_first(j, a->k, a->n_k) : (float *)keep(j, product(room));
    v = step ? heads_first(j, a->v, a->n_k) : (float *)keep(j, product(room));
    feed(j, "past_k", room, k);
    feed(j, "past_v", room, v);
    for (int b = 0; b < a->batch; b++) last[b] = a->n_k - 1;
    *total = a->n_k;
    feed_ints(j, "last", a->batch, last);
    feed_ints(j, "total", 1, total);
    attribute_int(&attributes, "num_heads", a->heads);
    attribute_int(&attributes, "kv_num_heads", a->kv_heads);
    if (a->window_left) attribute_int(&attributes, "local_window_size", a->window_left);
    node(&j->graph, CONTRIB, "GroupQueryAttention", "q k v past_k past_v last total", "o now_k now_v", &attributes);
    give_result(j, DIMS(a->batch, a->n_q, a->heads * a->head_dim));
    give(j, "now_k", room, k);
    give(j, "now_v", room, v);
}

/* ---- the peers --------------------------------------------------------------------------------------------------- */
static void put_opset(bytes *model, const char *domain, int version)
{
    bytes opset = { 0 };
    put_text(&opset, OPSET_DOMAIN, domain);
    put_int(&opset, OPSET_VERSION, version);
    put_message(model, MODEL_OPSET, &opset);
}

static int finish(job *j)
{
    bytes model = { 0 };
    int good;
    put_text(&j->graph, GRAPH_NAME, "case");
    put_int(&model, MODEL_IR_VERSION, 10);
    put_opset(&model, "", 23);
    put_opset(&model, CONTRIB, 1);
    put_message(&model, MODEL_GRAPH, &j->graph);
    good = !j->failed && fine(ort.create_session(ort.env, model.at, model.n, ort.options, &j->session)) &&
           fine(ort.create_binding(j->session, &j->binding));
    free(model.at);
    for (int i = 0; good && i < j->ends; i++) {
        const end *e = &j->end[i];
        good = fine((e->output ? ort.bind_output : ort.bind_input)(j->binding, e->name, e->value));
    }
    return good && fine(ort.run(j->session, ort.run_options, j->binding));
}

static void ort_release(void *arg)
{
    job *j = (job *)arg;
    if (j->binding) ort.binding_free(j->binding);
    if (j->session) ort.session_free(j->session);
    for (int i = 0; i < j->ends; i++)
        if (j->end[i].value) ort.value_free(j->end[i].value);
    for (int i = 0; i < j->kept; i++) free(j->keeps[i]);
    for (int i = 0; i < j->shares; i++)
        if (--j->share[i]->users == 0) free(j->share[i]->to);
    free(j->graph.at);
    free(j);
}

typedef struct family {
    int (*offered)(const bench_case *c);
    void (*build)(job *j);
} family;

static void *ort_prepare(const bench_peer *p, const bench_case *c)
{
    const family *f = (const family *)p->self;
    job *j;
    if (!f->offered(c)) return NULL;
    j = (job *)calloc(1, sizeof *j);
    if (!j) exit(1);
    j->c = c;
    f->build(j);
    if (finish(j)) return j;
    fprintf(stderr, "bench: %s on %s: %s\n", p->name, c->name, ort.why);
    ort_release(j);
    return NULL;
}

static void ort_run(void *arg)
{
    const job *j = (const job *)arg;
    if (!fine(ort.run(j->session, ort.run_options, j->binding))) fprintf(stderr, "bench: ONNX Runtime: %s\n", ort.why);
}

/* With one thread the calling thread does all work, so the clock of bench.c measures it, also with --busy. */
#define ORT(name, family) { name, ort_open, ort_prepare, ort_run, NULL, NULL, ort_release, ort_close, &family }
static family mha = { mha_offered, mha_build }, attention = { attention_offered, attention_build };
static family gqa = { gqa_offered, gqa_build };
const bench_peer peer_ort_mha = ORT("ORT MultiHead", mha);
const bench_peer peer_ort_attention = ORT("ORT Attention", attention);
const bench_peer peer_ort_gqa = ORT("ORT GroupQuery", gqa);

/* ---- a decoder of the Llama kind, one model, for stories.c ------------------------------------------------------- */
enum { MOST_LAYERS = 16, NAME = 24 };
struct ort_teller {
    job j;
    const plain_teller *t;
    float *x;
    int *last, *total;                    /* index of the newest key, and the number of keys */
    char names[MOST_LAYERS][4][NAME], logits[NAME];         /* `ends` points to them */
};

/* A node whose names get the number of the layer, except names in capitals, which belong to the whole model. */
static void layer_node(bytes *graph, const char *domain, const char *op, const char *inputs, const char *outputs, int l,
                       bytes *attributes)
{
    char from[160] = "", to[96] = "";
    for (int side = 0; side < 2; side++) {
        const char *names = side ? outputs : inputs;
        char *text = side ? to : from;
        for (size_t n; *names; names += n, names += *names == ' ') {
            n = strcspn(names, " ");
            sprintf(text + strlen(text), names[0] < 'a' ? "%.*s " : "%.*s%d ", (int)n, names, l);
        }
        text[strlen(text) - 1] = 0;
    }
    node(graph, domain, op, from, to, attributes);
}

/* y = x W: requires weights ordered by input, and packs them once */
static void layer_product(bytes *graph, const char *x, const char *y, int l, const float *w, int n_in, int n_out)
{
    const size_t in = (size_t)n_in, out = (size_t)n_out;
    float *turned_w = (float *)bench_alloc(in * out * sizeof *turned_w);
    char inputs[64], name[NAME];
    for (size_t i = 0; i < out; i++)
        for (size_t x_at = 0; x_at < in; x_at++) turned_w[x_at * out + i] = w[i * in + x_at];
    snprintf(name, sizeof name, "w_%s%d", y, l);
    constant(graph, name, FLOAT, DIMS(n_in, n_out), turned_w);
    free(turned_w);
    snprintf(inputs, sizeof inputs, "%s w_%s", x, y);
    layer_node(graph, "", "MatMul", inputs, y, l, NULL);
}

static void layer_norm(bytes *graph, const char *x, const char *y, int l, const float *w, int n)
{
    bytes attributes = { 0 };
    char inputs[64], name[NAME];
    snprintf(name, sizeof name, "w_%s%d", y, l);
    constant(graph, name, FLOAT, DIMS(n), w);
    attribute_int(&attributes, "axis", -1);
    attribute_float(&attributes, "epsilon", 1e-5f);
    snprintf(inputs, sizeof inputs, "%s w_%s", x, y);
    layer_node(graph, "", "SimplifiedLayerNormalization", inputs, y, l, &attributes);
}

static void teller_angles(bytes *graph, int positions, int head)
{
    const size_t half = (size_t)head / 2, n = (size_t)positions * half;
    float *c = (float *)bench_alloc(n * sizeof *c), *s = (float *)bench_alloc(n * sizeof *s);
    for (size_t i = 0; i < n; i++) {
        const double angle = (double)(i / half) * pow(10000, -(double)(i % half * 2) / head);
        c[i] = (float)cos(angle);
        s[i] = (float)sin(angle);
    }
    constant(graph, "COS", FLOAT, DIMS(positions, head / 2), c);
    constant(graph, "SIN", FLOAT, DIMS(positions, head / 2), s);
    free(c), free(s);
}

static void teller_layer(ort_teller *o, int l)
{
    const plain_teller *t = o->t;
    const int dim = t->dim, hidden = t->hidden, head = dim / t->heads, row = t->kv_heads * head;
    const int *room = DIMS(1, t->kv_heads, t->positions, head);
    const size_t d = (size_t)dim, at = (size_t)l, square = at * d * d, tall = at * d * (size_t)hidden;
    static const char *const ends[4] = { "past_k", "past_v", "now_k", "now_v" };
    bytes *g = &o->j.graph, attributes = { 0 };
    float *cache[2] = { NULL, NULL };
    char from[2 * NAME], to[NAME];
    layer_norm(g, "x", "y", l, t->norm + at * d, dim);
    layer_product(g, "y", "q", l, t->q + square, dim, dim);
    layer_product(g, "y", "k", l, t->k + at * d * (size_t)row, dim, row);
    layer_product(g, "y", "v", l, t->v + at * d * (size_t)row, dim, row);
    for (int e = 0; e < 4; e++) {                           /* past and present are one buffer */
        snprintf(o->names[l][e], NAME, "%s%d", ends[e], l);
        if (e < 2) feed(&o->j, o->names[l][e], room, cache[e] = (float *)keep(&o->j, product(room)));
        else give(&o->j, o->names[l][e], room, cache[e - 2]);
    }
    attribute_int(&attributes, "num_heads", t->heads);
    attribute_int(&attributes, "kv_num_heads", t->kv_heads);
    attribute_int(&attributes, "do_rotary", 1);
    attribute_int(&attributes, "rotary_interleaved", 1);
    layer_node(g, CONTRIB, "GroupQueryAttention", "q k v past_k past_v LAST TOTAL COS SIN", "o now_k now_v", l,
               &attributes);
    layer_product(g, "o", "z", l, t->o + square, dim, dim);
    layer_node(g, "", "Add", "x z", "xx", l, NULL);
    layer_norm(g, "xx", "yy", l, t->ff_norm + at * d, dim);
    layer_product(g, "yy", "a", l, t->w1 + tall, dim, hidden);
    layer_product(g, "yy", "b", l, t->w3 + tall, dim, hidden);
    layer_node(g, "", "Sigmoid", "a", "s", l, NULL);
    layer_node(g, "", "Mul", "a s", "as", l, NULL);
    layer_node(g, "", "Mul", "as b", "ab", l, NULL);
    layer_product(g, "ab", "zz", l, t->w2 + tall, hidden, dim);
    snprintf(to, sizeof to, "x%d", l + 1);
    snprintf(from, sizeof from, "xx%d zz%d", l, l);
    node(g, "", "Add", from, to, NULL);
}

ort_teller *ort_teller_open(const plain_teller *t, const char *folder, int threads, const char **why)
{
    bench_setup s;
    ort_teller *o;
    memset(&s, 0, sizeof s);
    s.folder = folder;
    s.threads = threads;
    *why = t->dim / t->heads % 16 ? "it turns heads of 16, 32 and so on alone"
         : t->layers > MOST_LAYERS ? "more layers than there are names for" : ort_open(NULL, &s);
    if (*why) return NULL;
    o = (ort_teller *)calloc(1, sizeof *o);
    if (!o) exit(1);
    o->t = t;
    o->x = (float *)keep(&o->j, (size_t)t->dim);
    o->last = (int *)keep(&o->j, 1);
    o->total = (int *)keep(&o->j, 1);
    *o->total = 1;
    feed(&o->j, "x0", DIMS(1, 1, t->dim), o->x);
    feed_ints(&o->j, "LAST", 1, o->last);
    feed_ints(&o->j, "TOTAL", 1, o->total);
    teller_angles(&o->j.graph, t->positions, t->dim / t->heads);
    for (int l = 0; l < t->layers; l++) teller_layer(o, l);
    layer_norm(&o->j.graph, "x", "y", t->layers, t->last_norm, t->dim);
    layer_product(&o->j.graph, "y", "logits", t->layers, t->classifier, t->dim, t->words);
    snprintf(o->logits, sizeof o->logits, "logits%d", t->layers);
    give(&o->j, o->logits, DIMS(1, 1, t->words), t->logits);
    if (finish(&o->j)) return o;
    *why = ort.why;
    ort_teller_close(o);
    return NULL;
}

void ort_teller_step(ort_teller *o, int token, int position)
{
    const size_t dim = (size_t)o->t->dim;
    memcpy(o->x, o->t->embedding + (size_t)token * dim, dim * sizeof *o->x);
    *o->last = position;
    *o->total = position + 1;
    ort_run(&o->j);
}

void ort_teller_close(ort_teller *o)
{
    if (!o) return;
    ort_release(&o->j);                   /* frees o as well: the job is its first member */
    ort_close(NULL);
}
