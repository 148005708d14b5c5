// ggml.cpp: attention by ggml, the tensor library of llama.cpp, on its CPU backend. A plug-in, built where peers.sh
// could compile ggml itself. Two forms. Each is a graph that is made once and run by threads that are started once
// (OpenMP's if it was found):
//
//   ggml         mul_mat, soft_max_ext, mul_mat: all scores of all heads, hidden ones too; masks are float32. Keys
//                are padded, as in llama.cpp, to the size that its fast product requires; the mask hides the padding
//   ggml flash   flash_attn_ext over float32 keys and values; tiles of keys that the mask hides are skipped. It takes
//                masks only in half precision: calls whose mask would be rounded are skipped
//
// Tensors are ordered head by head, V transposed for the products, as in its caches; the transposition is not timed.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include "bench.h"

static struct pool {
    ggml_threadpool *threads;
    int n, users;
} pool;

struct job {
    const bench_case *c;
    bool flash;
    int heads, rows, keys;                // as the graph sees them
    ggml_context *inputs, *steps;
    ggml_backend_buffer *data;            // of the inputs
    ggml_gallocr *room;                   // of the steps
    ggml_cgraph *graph;
    ggml_cplan plan;
    ggml_tensor *q, *k, *v, *mask, *x, *weights[4], *biases[4], *out;
    job(const bench_case *of, bool form);
    ~job();
};

static ggml_context *context()            // of tensors without their data
{
    const ggml_init_params with = { ggml_tensor_overhead() * 64 + ggml_graph_overhead(), nullptr, true };
    return ggml_init(with);
}

job::job(const bench_case *of, bool form)
    : c(of), flash(form), heads(of->a.heads), rows(of->a.n_q), keys(of->a.n_k), inputs(context()), steps(context()),
      data(nullptr), room(ggml_gallocr_new(ggml_backend_cpu_buffer_type())), graph(ggml_new_graph(steps)), plan(), q(),
      k(), v(), mask(), x(), weights(), biases(), out()
{
}

job::~job()
{
    std::free(plan.work_data);
    ggml_gallocr_free(room);
    ggml_backend_buffer_free(data);
    ggml_free(steps);
    ggml_free(inputs);
}

// ---- inputs ---------------------------------------------------------------------------------------------------------
static ggml_tensor *input(job *j, ggml_type type, int n0, int n1, int n2, int n3)
{
    return ggml_new_tensor_4d(j->inputs, type, n0, n1, n2, n3);
}

// [batch][rows][heads][dim] to [batch][heads][room][dim], or with turned to [batch][heads][dim][room]
static void swap_heads(float *to, int room, const float *from, int batch, int rows, int heads, int dim, bool turned)
{
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < rows; i++)
            for (int h = 0; h < heads; h++) {
                const float *x = from + (((size_t)b * rows + i) * heads + h) * dim;
                float *y = to + ((size_t)b * heads + h) * room * dim + (turned ? (size_t)i : (size_t)i * dim);
                if (turned) for (int d = 0; d < dim; d++) y[(size_t)d * room] = x[d];
                else std::memcpy(y, x, dim * sizeof *x);
            }
}

static int entries_of(const attn_args &a) { return a.mask ? a.mask_shape[0] : a.k_lengths ? a.batch : 1; }

static bool needs_mask(const attn_args &a)
{
    return a.mask || a.k_lengths || a.window_left || a.window_right || a.causal;
}

// Lengths, windows, causality and masks as one matrix to be added.
static std::vector<float> mask_make(const attn_args &a, int keys)
{
    std::vector<float> all((size_t)entries_of(a) * a.n_q * keys, -INFINITY);
    float *to = all.data();
    for (int b = 0; b < entries_of(a); b++)
        for (int i = 0; i < a.n_q; i++, to += keys) {
            const float *from = a.mask ? a.mask + ((size_t)b * a.n_q + i) * a.n_k : nullptr;
            int lo, hi;
            bench_range(&a, b, i, &lo, &hi);
            for (; lo < hi; lo++) to[lo] = from ? from[lo] : 0.0f;
        }
    return all;
}

static void inputs_declare(job *j)
{
    const bench_case *c = j->c;
    const attn_args &a = c->a;
    const int dim = a.head_dim, kv = a.kv_heads;
    if (c->layer) {
        j->x = input(j, GGML_TYPE_F32, c->d_model, a.n_q, 1, 1);
        for (int i = 0; i < 4; i++) {
            j->weights[i] = input(j, GGML_TYPE_F32, c->d_model, c->d_model, 1, 1);
            j->biases[i] = input(j, GGML_TYPE_F32, c->d_model, 1, 1, 1);
        }
    } else {
        j->q = input(j, GGML_TYPE_F32, dim, j->rows, j->heads, a.batch);
    }
    if (c->layer != LAYER_SELF) {
        j->k = input(j, GGML_TYPE_F32, dim, j->keys, kv, a.batch);
        j->v = j->flash ? input(j, GGML_TYPE_F32, dim, j->keys, kv, a.batch)
                        : input(j, GGML_TYPE_F32, j->keys, dim, kv, a.batch);
    }
    if (needs_mask(a) || j->keys > a.n_k)
        j->mask = input(j, j->flash ? GGML_TYPE_F16 : GGML_TYPE_F32, j->keys, a.n_q, 1, entries_of(a));
}

static void set(ggml_tensor *t, const float *x) { std::memcpy(t->data, x, ggml_nbytes(t)); }

// false: half precision would change the mask
static bool inputs_fill(job *j)
{
    const bench_case *c = j->c;
    const attn_args &a = c->a;
    const size_t d = (size_t)c->d_model;
    if (c->layer) set(j->x, c->x);
    for (size_t i = 0; c->layer && i < 4; i++) {
        set(j->weights[i], i < 3 ? c->w_in + i * d * d : c->w_o);
        set(j->biases[i], i < 3 ? c->b_in + i * d : c->b_o);
    }
    if (j->q) swap_heads((float *)j->q->data, a.n_q, a.q, a.batch, a.n_q, a.heads, a.head_dim, false);
    if (j->k) swap_heads((float *)j->k->data, j->keys, a.k, a.batch, a.n_k, a.kv_heads, a.head_dim, false);
    if (j->v) swap_heads((float *)j->v->data, j->keys, a.v, a.batch, a.n_k, a.kv_heads, a.head_dim, !j->flash);
    if (!j->mask) return true;
    std::vector<float> m = mask_make(a, j->keys), again(m.size());
    if (!j->flash) {
        set(j->mask, m.data());
        return true;
    }
    ggml_fp32_to_fp16_row(m.data(), (ggml_fp16_t *)j->mask->data, (int64_t)m.size());
    ggml_fp16_to_fp32_row((const ggml_fp16_t *)j->mask->data, again.data(), (int64_t)m.size());
    return m == again;
}

// ---- the graph ------------------------------------------------------------------------------------------------------
static ggml_tensor *attend(job *j, ggml_tensor *q, ggml_tensor *k, ggml_tensor *v)
{
    const float scale = 1.0f / std::sqrt((float)j->c->a.head_dim);
    if (j->flash) return ggml_flash_attn_ext(j->steps, q, k, v, j->mask, scale, 0.0f, 0.0f);
    ggml_tensor *s = ggml_mul_mat(j->steps, k, q);
    return ggml_mul_mat(j->steps, v, ggml_soft_max_ext(j->steps, s, j->mask, scale, 0.0f));
}

static ggml_tensor *linear(job *j, ggml_tensor *x, int i)
{
    return ggml_add(j->steps, ggml_mul_mat(j->steps, j->weights[i], x), j->biases[i]);
}

// Rows of a projection, head by head: the matrix product requires this order, the operator does not.
static ggml_tensor *by_heads(job *j, ggml_tensor *y)
{
    const attn_args &a = j->c->a;
    y = ggml_permute(j->steps, ggml_reshape_3d(j->steps, y, a.head_dim, a.heads, a.n_q), 0, 2, 1, 3);
    return j->flash ? y : ggml_cont(j->steps, y);
}

static ggml_tensor *turned_over(job *j, ggml_tensor *y)
{
    return j->flash ? y : ggml_cont(j->steps, ggml_transpose(j->steps, y));
}

// A step writes its key or value after those of the cache.
static void append(job *j, ggml_tensor *cache, ggml_tensor *y, bool turned)
{
    const attn_args &a = j->c->a;
    const size_t last = (size_t)a.n_k - 1;
    ggml_tensor *to = turned ? ggml_view_3d(j->steps, cache, 1, a.head_dim, a.heads, cache->nb[1], cache->nb[2],
                                            last * cache->nb[0])
                             : ggml_view_3d(j->steps, cache, a.head_dim, 1, a.heads, cache->nb[1], cache->nb[2],
                                            last * cache->nb[1]);
    ggml_tensor *from = ggml_reshape_3d(j->steps, y, to->ne[0], to->ne[1], to->ne[2]);
    ggml_build_forward_expand(j->graph, ggml_cpy(j->steps, from, to));
}

static ggml_tensor *layer(job *j)
{
    const bench_case *c = j->c;
    ggml_tensor *q = by_heads(j, linear(j, j->x, 0)), *k = j->k, *v = j->v, *y;
    if (c->layer == LAYER_SELF) {
        k = by_heads(j, linear(j, j->x, 1));
        v = turned_over(j, by_heads(j, linear(j, j->x, 2)));
    } else if (c->layer == LAYER_SELF_STEP) {
        append(j, k, linear(j, j->x, 1), false);
        append(j, v, linear(j, j->x, 2), !j->flash);
    }
    y = attend(j, q, k, v);
    if (!j->flash) y = ggml_cont(j->steps, ggml_permute(j->steps, y, 0, 2, 1, 3));
    return linear(j, ggml_reshape_3d(j->steps, y, c->d_model, c->a.n_q, 1), 3);
}

// Its fast product requires several rows, and a multiple of sixteen keys.
static void products_suit(job *j)
{
    const attn_args &a = j->c->a;
    if (a.n_q > 1) j->keys = (a.n_k + 15) / 16 * 16;
    else if (!needs_mask(a)) j->heads = a.kv_heads, j->rows = a.heads / a.kv_heads;
}

// peer->self selects the form.
static void *prepare(const bench_peer *p, const bench_case *c)
{
    const bool flash = p->self != nullptr;
    std::unique_ptr<job> j(new job(c, flash));
    if (!flash && !c->layer) products_suit(j.get());
    inputs_declare(j.get());
    j->data = ggml_backend_alloc_ctx_tensors_from_buft(j->inputs, ggml_backend_cpu_buffer_type());
    if (!j->data) return nullptr;
    ggml_backend_buffer_clear(j->data, 0);
    if (!inputs_fill(j.get())) return nullptr;
    j->out = c->layer ? layer(j.get()) : attend(j.get(), j->q, j->k, j->v);
    ggml_build_forward_expand(j->graph, j->out);
    if (!ggml_gallocr_alloc_graph(j->room, j->graph)) return nullptr;
    j->plan = ggml_graph_plan(j->graph, pool.n, pool.threads);
    j->plan.work_data = (uint8_t *)bench_alloc(j->plan.work_size);          // aligned, unlike llama.cpp's
    return j.release();
}

// ---- the peers ------------------------------------------------------------------------------------------------------
static void run(void *p)
{
    job *j = (job *)p;
    ggml_graph_compute(j->graph, &j->plan);
}

// Its threads spin while they wait for work, so they are stopped during the turns of other peers.
static double timed(void *p, int calls)
{
    const double begin = bench_clock();
    for (int i = 0; i < calls; i++) run(p);
    const double seconds = bench_clock() - begin;
    if (pool.n > 1) ggml_threadpool_pause(pool.threads);
    return seconds;
}

static void fetch(void *p)
{
    const job *j = (const job *)p;
    const attn_args &a = j->c->a;
    const float *y = (const float *)j->out->data;
    if (j->flash || j->c->layer) std::memcpy(a.out, y, j->c->out_floats * sizeof *y);
    else swap_heads(a.out, a.heads, y, a.batch, a.heads, a.n_q, a.head_dim, false);
}

static void release(void *p) { delete (job *)p; }

static const char *open_ggml(const bench_peer *, const bench_setup *s)
{
    if (pool.users++) return nullptr;
    ggml_threadpool_params with = ggml_threadpool_params_default(s->threads);
    ggml_cpu_init();
    std::printf("  ggml %s\n", ggml_version());
    pool.n = s->threads;
    pool.threads = ggml_threadpool_new(&with);
    if (pool.n > 1) ggml_threadpool_pause(pool.threads);
    return nullptr;
}

static void close_ggml(const bench_peer *)
{
    if (--pool.users) return;
    ggml_threadpool_free(pool.threads);
    pool.threads = nullptr;
}

extern "C" const bench_peer bench_ggml;
extern "C" const bench_peer bench_ggml = { "ggml", open_ggml, prepare,    run,    timed,
                                           fetch,  release,   close_ggml, nullptr };
