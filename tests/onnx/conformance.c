/* conformance.c: the ONNX standard's own node tests of the Attention operator, run through attn_sdpa.
 *
 *   make conformance ONNX=path/to/onnx/onnx/backend/test/data/node
 *   build/conformance directory             every backend of this machine; a line for each failing test
 *   build/conformance --oracle directory    the same tests with the double oracle, which must interpret the standard
 *                                           in the same way
 *
 * The folders are read as upstream publishes them: model.onnx (the node: its attributes and which optional inputs it
 * has) and test_data_set_0/{input,output}_*.pb. Folders without an Attention node are ignored (also the _expanded
 * ones, which use other operators); types other than float32 are skipped with a message. The last line is
 * `N passed, M failed`; the exit status is 0 when nothing failed and something passed.
 *
 * attn_args covers the operator except for one feature: extending K and V by past_key and past_value is done by a
 * cache. The adapter below concatenates them, which also makes present_key and present_value. */
#include "../support/oracle.h"
#include "onnx.h"

#include <dirent.h>

/* A double-precision reading of the standard agrees with upstream's outputs to 6e-8; scores here are below 16 and
   outputs below 2, where a float computation is good to a few units of 1e-7. */
#define TOLERANCE 2e-6

enum { IN_Q, IN_K, IN_V, IN_MASK, IN_PAST_K, IN_PAST_V, IN_NONPAD, INPUTS };
enum { OUT_Y, OUT_PRESENT_K, OUT_PRESENT_V, OUT_SCORES, OUTPUTS };

typedef struct problem {
    onnx_node node;
    onnx_tensor in[INPUTS], want[OUTPUTS];
    int has_in[INPUTS], has_out[OUTPUTS];
    char why[256];                        /* the error, or the failure */
    int skipped;

    /* The operator's arguments in attn_sdpa's form, in guarded memory. */
    attn_args a;
    float *q, *k, *v, *mask, *out, *weights;
    unsigned char *keep;
    int *nonpad;
} problem;

/* ---- reading --------------------------------------------------------------------------------------------- */

/* Files are numbered by the existing inputs: a missing optional input (an empty name) has no file and no number. */
static int read_ends(problem *p, const char *folder, const char *prefix, char names[][ONNX_NAME], int n, int most,
                     onnx_tensor *tensors, int *present)
{
    for (int i = 0, file = 0; i < n; i++) {
        char path[1024];
        const char *why;
        if (!names[i][0]) continue;
        if (i >= most) {
            snprintf(p->why, sizeof p->why, "has an unknown %s %d, %s", prefix, i, names[i]);
            return 0;
        }
        snprintf(path, sizeof path, "%s/test_data_set_0/%s_%d.pb", folder, prefix, file++);
        if (!onnx_read_tensor(path, &tensors[i], &why)) {
            snprintf(p->why, sizeof p->why, "%s_%d.pb %s", prefix, file - 1, why);
            return 0;
        }
        present[i] = 1;
        if (strcmp(tensors[i].name, names[i]) != 0) {
            snprintf(p->why, sizeof p->why, "%s_%d.pb is %s, not %s", prefix, file - 1, tensors[i].name, names[i]);
            return 0;
        }
        if (!tensors[i].floats && !tensors[i].ints && !tensors[i].bools) {
            snprintf(p->why, sizeof p->why, "%s is not float32 (type %d)", names[i], tensors[i].type);
            p->skipped = 1;
            return 0;
        }
    }
    return 1;
}

static int64_t attribute_int(const problem *p, const char *name)
{
    const onnx_attribute *a = onnx_find(&p->node, name);
    return a ? a->i : 0;
}

static float attribute_float(const problem *p, const char *name)
{
    const onnx_attribute *a = onnx_find(&p->node, name);
    return a ? a->f : 0.0f;
}

static int wrong(problem *p, const char *sentence)
{
    snprintf(p->why, sizeof p->why, "%s", sentence);
    return 0;
}

/* ---- the adapter ----------------------------------------------------------------------------------------- */

typedef struct tensor4 {                  /* [batch][heads][rows][head_dim], for any storage order */
    size_t batch, heads, rows, head_dim;
    ptrdiff_t stride[3];                  /* {batch, row, head} */
} tensor4;

/* 4D is [batch][heads][rows][head_dim], 3D is [batch][rows][heads * head_dim] */
static int view4(const onnx_tensor *t, int64_t heads, tensor4 *v)
{
    if (!t->floats) return 0;
    v->batch = t->dims[0];
    if (t->rank == 4) {
        v->heads = t->dims[1], v->rows = t->dims[2], v->head_dim = t->dims[3];
        v->stride[1] = (ptrdiff_t)v->head_dim;
        v->stride[2] = (ptrdiff_t)(v->rows * v->head_dim);
    } else if (t->rank == 3 && heads > 0 && t->dims[2] % (size_t)heads == 0) {
        v->heads = (size_t)heads, v->rows = t->dims[1], v->head_dim = t->dims[2] / (size_t)heads;
        v->stride[1] = (ptrdiff_t)t->dims[2];
        v->stride[2] = (ptrdiff_t)v->head_dim;
    } else {
        return 0;
    }
    v->stride[0] = (ptrdiff_t)(v->heads * v->rows * v->head_dim);
    return 1;
}

/* concat(past, fresh) along the rows as [batch][heads][past + rows][head_dim]: this is present_key or present_value */
static float *concatenate(const onnx_tensor *past, const tensor4 *past_view, const onnx_tensor *fresh,
                          const tensor4 *view)
{
    size_t n_past = past ? past_view->rows : 0, n = n_past + view->rows;
    float *all = guard_floats(view->batch * view->heads * n * view->head_dim);
    for (size_t b = 0; b < view->batch; b++)
        for (size_t h = 0; h < view->heads; h++)
            for (size_t i = 0; i < n; i++) {
                const tensor4 *from = i < n_past ? past_view : view;
                const float *x = i < n_past ? past->floats : fresh->floats;
                ptrdiff_t at = (ptrdiff_t)b * from->stride[0] + (ptrdiff_t)h * from->stride[2] +
                               (ptrdiff_t)(i < n_past ? i : i - n_past) * from->stride[1];
                memcpy(all + ((b * view->heads + h) * n + i) * view->head_dim, x + at, view->head_dim * sizeof(float));
            }
    return all;
}

/* The mask broadcasts from the right to [batch][heads][n_q][n_k]; one with fewer keys hides the rest. */
static int adapt_mask(problem *p, const onnx_tensor *m)
{
    attn_args *a = &p->a;
    size_t shape[4] = {1, 1, 1, 1}, full[3], n_k = (size_t)a->n_k;
    full[0] = (size_t)a->batch, full[1] = (size_t)a->heads, full[2] = (size_t)a->n_q;
    if (m->rank < 1 || m->rank > 4 || m->ints) return wrong(p, "the mask has a strange rank or type");
    for (int d = 0; d < m->rank; d++) shape[4 - m->rank + d] = m->dims[d];
    for (int d = 0; d < 3; d++)
        if (shape[d] != 1 && shape[d] != full[d]) return wrong(p, "the mask does not broadcast");
    if (shape[3] > n_k) return wrong(p, "the mask has more columns than there are keys");

    size_t rows = shape[0] * shape[1] * shape[2];
    int *to = m->bools ? a->keep_shape : a->mask_shape;
    for (int d = 0; d < 3; d++) to[d] = (int)shape[d];
    if (m->bools) a->keep = p->keep = (unsigned char *)guard_alloc(rows * n_k);
    else a->mask = p->mask = guard_floats(rows * n_k);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < n_k; j++) {
            if (m->bools) p->keep[i * n_k + j] = j < shape[3] ? m->bools[i * shape[3] + j] : 0;
            else p->mask[i * n_k + j] = j < shape[3] ? m->floats[i * shape[3] + j] : -INFINITY;
        }
    return 1;
}

static int continues(const tensor4 *past, const tensor4 *fresh)
{
    return past->batch == fresh->batch && past->heads == fresh->heads && past->head_dim == fresh->head_dim;
}

static void packed_bhsd(ptrdiff_t stride[3], size_t heads, size_t rows, size_t head_dim)
{
    stride[1] = (ptrdiff_t)head_dim;
    stride[2] = (ptrdiff_t)(rows * head_dim);
    stride[0] = (ptrdiff_t)(heads * rows * head_dim);
}

/* the operator numbers the stages differently */
static int stage_of(int64_t mode)
{
    static const int stages[] = {ATTN_SCORES_RAW, ATTN_SCORES_CAPPED, ATTN_SCORES_BIASED};
    return mode >= 0 && mode <= 2 ? stages[mode] : ATTN_PROBABILITIES;
}

static int adapt(problem *p)
{
    attn_args *a = &p->a;
    tensor4 q, k, v, past_k, past_v;
    int64_t q_heads = attribute_int(p, "q_num_heads"), kv_heads = attribute_int(p, "kv_num_heads");
    int past = p->has_in[IN_PAST_K];
    if (!p->has_in[IN_Q] || !p->has_in[IN_K] || !p->has_in[IN_V]) return wrong(p, "Q, K or V is absent");
    if (!view4(&p->in[IN_Q], q_heads, &q) || !view4(&p->in[IN_K], kv_heads, &k) || !view4(&p->in[IN_V], kv_heads, &v))
        return wrong(p, "Q, K or V has a strange shape");
    if (past != p->has_in[IN_PAST_V]) return wrong(p, "of past_key and past_value one is absent");
    if (past && (!view4(&p->in[IN_PAST_K], 0, &past_k) || !view4(&p->in[IN_PAST_V], 0, &past_v)))
        return wrong(p, "past_key or past_value has a strange shape");
    if (k.batch != q.batch || v.batch != q.batch || k.head_dim != q.head_dim || k.heads != v.heads || k.rows != v.rows ||
        (past && (!continues(&past_k, &k) || !continues(&past_v, &v) || past_k.rows != past_v.rows)))
        return wrong(p, "the shapes of Q, K, V and past do not go together");

    size_t n_past = past ? past_k.rows : 0, n_k = n_past + k.rows;
    a->batch = (int)q.batch, a->heads = (int)q.heads, a->kv_heads = (int)k.heads;
    a->n_q = (int)q.rows, a->n_k = (int)n_k, a->head_dim = (int)q.head_dim, a->v_head_dim = (int)v.head_dim;
    a->q = p->q = guard_floats(p->in[IN_Q].count);
    memcpy(p->q, p->in[IN_Q].floats, p->in[IN_Q].count * sizeof(float));
    memcpy(a->q_stride, q.stride, sizeof a->q_stride);
    a->k = p->k = concatenate(past ? &p->in[IN_PAST_K] : NULL, &past_k, &p->in[IN_K], &k);
    a->v = p->v = concatenate(past ? &p->in[IN_PAST_V] : NULL, &past_v, &p->in[IN_V], &v);
    packed_bhsd(a->k_stride, k.heads, n_k, k.head_dim);
    packed_bhsd(a->v_stride, v.heads, n_k, v.head_dim);

    /* Y is stored as Q is: 3D [batch][rows][heads * v_head_dim] or 4D [batch][heads][rows][v_head_dim] */
    a->layout = p->in[IN_Q].rank == 4 ? ATTN_BHSD : ATTN_BSHD;
    a->out = p->out = guard_floats(q.batch * q.heads * q.rows * v.head_dim);
    if (p->has_out[OUT_SCORES]) {
        a->weights = p->weights = guard_floats(q.batch * q.heads * q.rows * n_k);
        a->weights_stage = stage_of(attribute_int(p, "qk_matmul_output_mode"));
    }

    a->scale = attribute_float(p, "scale");
    a->softcap = attribute_float(p, "softcap");
    a->q_pos = (int)n_past;
    if (p->has_in[IN_NONPAD]) {
        const onnx_tensor *t = &p->in[IN_NONPAD];
        if (!t->ints || t->count != q.batch || past) return wrong(p, "nonpad_kv_seqlen has a strange shape or type");
        a->k_lengths = p->nonpad = (int *)guard_alloc(q.batch * sizeof(int));
        for (size_t b = 0; b < q.batch; b++) {
            if (t->ints[b] < 0 || t->ints[b] > (int64_t)n_k) return wrong(p, "nonpad_kv_seqlen is out of range");
            p->nonpad[b] = (int)t->ints[b];
        }
    }
    /* without past top-left, with past the offset is its length; with nonpad_kv_seqlen nonpad[b] - n_q */
    if (attribute_int(p, "is_causal"))
        a->causal = p->has_in[IN_NONPAD] ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_TOP_LEFT;
    return !p->has_in[IN_MASK] || adapt_mask(p, &p->in[IN_MASK]);
}

/* ---- running and comparing ------------------------------------------------------------------------------- */

static void run_oracle(const problem *p)
{
    const attn_args *a = &p->a;
    oracle o;
    oracle_run(&o, a);
    const oracle_shape *s = &o.shape;
    for (int b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < s->n_q; i++) {
                size_t row = ((size_t)b * (size_t)s->heads + (size_t)h) * (size_t)s->n_q + (size_t)i;
                for (int x = 0; x < s->v_head_dim; x++)
                    p->out[oracle_out_at(a, s, b, h, i) + x] = (float)o.out[row * (size_t)s->v_head_dim + (size_t)x];
                for (int j = 0; p->weights && j < s->n_k; j++)
                    p->weights[row * (size_t)s->n_k + (size_t)j] = (float)o.weights[row * (size_t)s->n_k + (size_t)j];
            }
    oracle_free(&o);
}

static int same(problem *p, const char *engine, int which, const float *got, size_t count, double *worst)
{
    static const char *const names[] = {"Y", "present_key", "present_value", "qk_matmul_output"};
    const onnx_tensor *want = &p->want[which];
    if (!p->has_out[which]) return 1;
    if (!want->floats || want->count != count) {
        snprintf(p->why, sizeof p->why, "%s has %lu elements, not %lu", names[which], (unsigned long)want->count,
                 (unsigned long)count);
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        float x = got[i], y = want->floats[i];
        double error = fabs((double)x - (double)y);
        if (x == y || (x != x && y != y)) continue;         /* also infinities */
        if (error <= TOLERANCE) {
            if (error > *worst) *worst = error;
            continue;
        }
        snprintf(p->why, sizeof p->why, "%s: %s[%lu] is %.9g, not %.9g", engine, names[which], (unsigned long)i,
                 (double)x, (double)y);
        return 0;
    }
    return 1;
}

static int run_engine(problem *p, attn_backend backend, double *worst)
{
    attn_args *a = &p->a;
    size_t rows = (size_t)a->batch * (size_t)a->heads * (size_t)a->n_q, kv = (size_t)a->batch * (size_t)a->kv_heads;
    const char *engine = backend == ATTN_AUTO ? "oracle" : attn_backend_name(backend);
    char why[160];
    memset(p->out, 0xA5, rows * (size_t)a->v_head_dim * sizeof(float));
    if (backend == ATTN_AUTO) {                                      /* represents the oracle */
        run_oracle(p);
    } else {
        a->backend = backend;
        attn_status status = attn_check(a, why, sizeof why);
        if (status == ATTN_OK) status = attn_sdpa(a);
        if (status != ATTN_OK) {
            snprintf(p->why, sizeof p->why, "%s: %s: %s", engine, attn_status_str(status), why);
            return 0;
        }
    }
    size_t n_k = (size_t)a->n_k;
    return same(p, engine, OUT_Y, p->out, rows * (size_t)a->v_head_dim, worst) &&
           same(p, engine, OUT_PRESENT_K, p->k, kv * n_k * (size_t)a->head_dim, worst) &&
           same(p, engine, OUT_PRESENT_V, p->v, kv * n_k * (size_t)a->v_head_dim, worst) &&
           same(p, engine, OUT_SCORES, p->weights, rows * n_k, worst);
}

static void problem_free(problem *p)
{
    for (int i = 0; i < INPUTS; i++) onnx_free_tensor(&p->in[i]);
    for (int i = 0; i < OUTPUTS; i++) onnx_free_tensor(&p->want[i]);
    guard_free(p->q);
    guard_free(p->k);
    guard_free(p->v);
    guard_free(p->mask);
    guard_free(p->keep);
    guard_free(p->out);
    guard_free(p->weights);
    guard_free(p->nonpad);
}

/* ---- the directory --------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((const char *)a, (const char *)b);
}

enum { NAME = 200 };

/* Names of all folders test_*, sorted: [n][NAME], malloc. */
static char *list_folders(const char *directory, size_t *n)
{
    DIR *d = opendir(directory);
    char *names = NULL;
    size_t room = 0;
    *n = 0;
    if (!d) return NULL;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "test_", 5) != 0 || strlen(e->d_name) >= NAME) continue;
        if (*n == room) {
            room = room ? 2 * room : 64;
            char *more = (char *)realloc(names, room * NAME);
            if (!more) exit(3);
            names = more;
        }
        memset(names + *n * NAME, 0, NAME);
        memcpy(names + (*n)++ * NAME, e->d_name, strlen(e->d_name));
    }
    closedir(d);
    if (names) qsort(names, *n, NAME, by_name);
    return names;
}

int main(int argc, char **argv)
{
    int with_oracle = argc > 1 && strcmp(argv[1], "--oracle") == 0;
    int asked = argc > 1 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0);
    attn_backend backends[16] = { ATTN_AUTO };
    int n_backends = 1;
    if (argc != 2 + with_oracle || asked) {
        fprintf(asked ? stdout : stderr, "usage: %s [--oracle] directory-of-onnx-node-tests\n", argv[0]);
        return asked ? 0 : 2;
    }
    const char *directory = argv[argc - 1];
    size_t n = 0;
    char *names = list_folders(directory, &n);
    if (!names) {
        printf("SKIPPED conformance: no node tests in %s; give the folder onnx/backend/test/data/node of an onnx "
               "clone: make conformance ONNX=folder\n", directory);
        return 0;
    }
    if (!with_oracle) n_backends = test_all_backends(backends, 16);
    printf("conformance with");
    for (int i = 0; i < n_backends; i++) printf(" %s", with_oracle ? "the oracle" : attn_backend_name(backends[i]));
    printf(", tolerance %g\n", TOLERANCE);

    int passed = 0, failed = 0, skipped = 0;
    double worst = 0.0;
    for (size_t i = 0; i < n; i++) {
        char folder[1024], path[1100];
        const char *why;
        problem p;
        memset(&p, 0, sizeof p);
        snprintf(folder, sizeof folder, "%s/%s", directory, names + i * NAME);
        snprintf(path, sizeof path, "%s/model.onnx", folder);
        int fine = onnx_read_model(path, &p.node, &why);
        if (!fine) snprintf(p.why, sizeof p.why, "model.onnx %s", why);
        if (fine && (p.node.nodes != 1 || strcmp(p.node.op, "Attention") != 0 || p.node.domain[0])) continue;
        fine = fine && read_ends(&p, folder, "input", p.node.input, p.node.inputs, INPUTS, p.in, p.has_in) &&
               read_ends(&p, folder, "output", p.node.output, p.node.outputs, OUTPUTS, p.want, p.has_out) && adapt(&p);
        for (int b = 0; fine && b < n_backends; b++) fine = run_engine(&p, backends[b], &worst);
        if (p.skipped) skipped++;
        else if (fine) passed++;
        else failed++;
        if (!fine) printf("%s %s: %s\n", p.skipped ? "SKIPPED" : "FAIL", names + i * NAME, p.why);
        problem_free(&p);
    }
    free(names);
    if (passed) printf("largest error %.2g\n", worst);
    if (skipped) printf("%d skipped\n", skipped);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed ? 1 : 0;
}
