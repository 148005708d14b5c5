// onednn.cpp: attention composed of oneDNN's matmul, softmax and matmul. A plug-in, built if oneDNN's headers are
// installed. A step covers as many heads and rows as keep the scores in an L2 cache: all heads at once if they are
// small.
#include <dlfcn.h>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include <dnnl.hpp>

#include "bench.h"

using dnnl::memory;
typedef memory::dims dims;

static memory::desc strided(const dims &sizes, const dims &strides)
{
    return memory::desc(sizes, memory::data_type::f32, strides);
}

static dnnl::matmul make_matmul(const dnnl::engine &e, const memory::desc &a, const memory::desc &b,
                                const memory::desc *bias, const memory::desc &c, float scale, memory::desc *b_best)
{
    dnnl::primitive_attr attr;
    dnnl::post_ops ops;
#if DNNL_VERSION_MAJOR >= 3
    if (scale != 1.0f) ops.append_eltwise(dnnl::algorithm::eltwise_linear, scale, 0.0f);
    attr.set_post_ops(ops);
    const dnnl::matmul::primitive_desc pd = bias ? dnnl::matmul::primitive_desc(e, a, b, *bias, c, attr)
                                                 : dnnl::matmul::primitive_desc(e, a, b, c, attr);
#else
    if (scale != 1.0f) ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, scale, 0.0f);
    attr.set_post_ops(ops);
    const dnnl::matmul::primitive_desc pd(bias ? dnnl::matmul::desc(a, b, *bias, c) : dnnl::matmul::desc(a, b, c), attr,
                                          e);
#endif
    if (b_best) *b_best = pd.weights_desc();
    return dnnl::matmul(pd);
}

static dnnl::softmax_forward make_softmax(const dnnl::engine &e, const memory::desc &s)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl::softmax_forward({ e, dnnl::prop_kind::forward_inference, dnnl::algorithm::softmax_accurate, s, s, 3 });
#else
    return dnnl::softmax_forward({ { dnnl::prop_kind::forward_inference, s, 3 }, e });
#endif
}

static dnnl::binary make_add(const dnnl::engine &e, const memory::desc &s, const memory::desc &m)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl::binary({ e, dnnl::algorithm::binary_add, s, m, s });
#else
    return dnnl::binary({ { dnnl::algorithm::binary_add, s, m, s }, e });
#endif
}

struct step {                             // the primitives for one size of a step, and its memories
    dnnl::matmul scores, outputs;
    dnnl::binary add;                     // a mask matrix; as a post-op of the product it would fall back to slow code
    dnnl::softmax_forward softmax;
    memory q, k, s, v, o, mask;
};

struct linear {
    dnnl::matmul run;
    memory x, w, b, y;
};

struct job {
    const bench_case *c;
    dnnl::engine e;
    dnnl::stream stream;
    attn_args a;
    int group, threads;
    std::vector<float> scores, q, k, v, o;
    std::map<std::vector<int>, step> steps;
    std::vector<linear> layers;
    job(const bench_case *of) : c(of), e(dnnl::engine::kind::cpu, 0), stream(e), a(of->a), group(1), threads(1) {}
};

static step &step_for(job *j, int entries, int heads, int rows, int keys, bool mask)
{
    const std::vector<int> size = { entries, heads, rows, keys };
    const auto found = j->steps.find(size);
    if (found != j->steps.end()) return found->second;

    const attn_args &a = j->a;
    const int kv_heads = a.kv_heads ? a.kv_heads : a.heads;
    const memory::dim d = a.head_dim, q_row = (memory::dim)a.heads * d, k_row = (memory::dim)kv_heads * d;
    const dims q_at = { a.n_q * q_row, j->group * d, j->group > 1 ? d : q_row, 1 };
    const memory::dim b = entries, h = heads, r = rows, n = keys;
    const memory::desc q = strided({ b, h, r, d }, q_at), kt = strided({ b, h, d, n }, { a.n_k * k_row, d, 1, k_row });
    const memory::desc v = strided({ b, h, n, d }, { a.n_k * k_row, d, k_row, 1 });
    const memory::desc s = strided({ b, h, r, n }, { h * r * n, r * n, n, 1 });
    const memory::desc m =
        strided({mask && a.mask_shape[0] > 1 ? b : 1, 1, r, n}, {(memory::dim)a.n_q * a.n_k, r * n, a.n_k, 1});
    step &t = j->steps[size];
    t.scores = make_matmul(j->e, q, kt, nullptr, s, a.scale != 0.0f ? a.scale : 1.0f / std::sqrt((float)d), nullptr);
    if (mask) t.add = make_add(j->e, s, m);
    t.softmax = make_softmax(j->e, s);
    t.outputs = make_matmul(j->e, s, v, nullptr, q, 1.0f, nullptr);
    t.q = memory(q, j->e, nullptr);
    t.k = memory(kt, j->e, nullptr);
    t.s = memory(s, j->e, nullptr);
    t.v = memory(v, j->e, nullptr);
    t.o = memory(q, j->e, nullptr);
    t.mask = memory(m, j->e, nullptr);
    return t;
}

static void *change(const float *p) { return (void *)(size_t)p; }

static void run_step(job *j, int b, int entries, int h, int heads, int first, int rows, int lo, int hi)
{
    const attn_args &a = j->a;
    const int kv_heads = a.kv_heads ? a.kv_heads : a.heads, n = hi - lo, kv = h / (a.heads / kv_heads);
    const size_t q_at = ((size_t)b * (size_t)a.n_q + (size_t)first) * (size_t)(a.heads * a.head_dim) + (size_t)(h * a.head_dim);
    const size_t k_at = ((size_t)b * (size_t)a.n_k + (size_t)lo) * (size_t)(kv_heads * a.head_dim) + (size_t)(kv * a.head_dim);
    step &t = step_for(j, entries, heads, rows, n, a.mask != nullptr);
    t.q.set_data_handle(change(a.q + q_at));
    t.k.set_data_handle(change(a.k + k_at));
    t.v.set_data_handle(change(a.v + k_at));
    t.o.set_data_handle(a.out + q_at);
    const size_t need = (size_t)entries * (size_t)heads * (size_t)rows * (size_t)n;
    if (j->scores.size() < need) j->scores.resize(need);
    t.s.set_data_handle(j->scores.data());
    t.scores.execute(j->stream, { { DNNL_ARG_SRC, t.q }, { DNNL_ARG_WEIGHTS, t.k }, { DNNL_ARG_DST, t.s } });
    if (a.mask) {
        const size_t m =
            ((size_t)(a.mask_shape[0] > 1 ? b : 0) * (size_t)a.n_q + (size_t)first) * (size_t)a.n_k + (size_t)lo;
        t.mask.set_data_handle(change(a.mask + m));
        t.add.execute(j->stream, { { DNNL_ARG_SRC_0, t.s }, { DNNL_ARG_SRC_1, t.mask }, { DNNL_ARG_DST, t.s } });
    }
    for (int i = first; (a.causal || a.window_left || a.window_right) && i < first + rows; i++) {
        int from, to;                     // the corners that rows of the block cannot see
        from = a.window_left > 0 && i - a.window_left + 1 > lo ? i - a.window_left + 1 : lo;
        to = a.causal && i + 1 < hi ? i + 1 : hi;
        if (a.window_right > 0 && i + a.window_right < to) to = i + a.window_right;
        for (int x = 0; x < heads; x++) {
            float *row = j->scores.data() + ((size_t)x * (size_t)rows + (size_t)(i - first)) * (size_t)n;
            for (int k = lo; k < from; k++) row[k - lo] = -INFINITY;
            for (int k = to; k < hi; k++) row[k - lo] = -INFINITY;
        }
    }
    t.softmax.execute(j->stream, { { DNNL_ARG_SRC, t.s }, { DNNL_ARG_DST, t.s } });
    t.outputs.execute(j->stream, { { DNNL_ARG_SRC, t.s }, { DNNL_ARG_WEIGHTS, t.v }, { DNNL_ARG_DST, t.o } });
}

static void attend(job *j)
{
    const attn_args &a = j->a;
    const int heads = a.heads / j->group, rows = j->group > 1 ? j->group : a.n_q;
    const int room = 1 << 18;             // scores, in floats
    const double head = (double)rows * a.n_k, all = head * heads;
    const bool ranges = a.causal || a.window_left || a.window_right || a.k_lengths;
    if (all * a.batch <= room && !ranges) {
        run_step(j, 0, a.batch, 0, heads, 0, rows, 0, a.n_k);
        return;
    }
    const int at_once = all <= room ? heads : j->threads < heads ? j->threads : heads;
    for (int b = 0; b < a.batch; b++)
        for (int h = 0; h < heads; h += at_once)
            for (int i = 0, n; i < rows; i += n) {
                int lo = 0, hi = a.k_lengths ? a.k_lengths[b] : a.n_k;
                n = rows - i < 128 ? rows - i : 128;
                if (a.causal && hi > i + n) hi = i + n;
                if (a.window_right > 0 && hi > i + n - 1 + a.window_right) hi = i + n - 1 + a.window_right;
                if (a.window_left > 0 && i - a.window_left + 1 > 0) lo = i - a.window_left + 1;
                run_step(j, b, 1, h * j->group, heads - h < at_once ? heads - h : at_once, i, n, lo, hi);
            }
}

static void add_linear(job *j, float *y, const float *x, const float *w, const float *b, int rows, int d)
{
    const memory::desc xs = strided({rows, d}, {d, 1}), ws = strided({d, d}, {1, d}), bs = strided({1, d}, {d, 1});
    const memory::desc any({ d, d }, memory::data_type::f32, memory::format_tag::any);
    memory::desc best;
    linear l;
    l.run = make_matmul(j->e, xs, any, &bs, xs, 1.0f, &best);
    l.x = memory(xs, j->e, change(x));
    l.b = memory(bs, j->e, change(b));
    l.y = memory(xs, j->e, y);
    memory as_given(ws, j->e, change(w));
    l.w = memory(best, j->e);
    dnnl::reorder(as_given, l.w).execute(j->stream, as_given, l.w);
    j->stream.wait();
    j->layers.push_back(l);
}

static void *prepare(const bench_peer *, const bench_case *c)
{
    try {
        std::unique_ptr<job> j(new job(c));
        const size_t d = (size_t)c->d_model, n = (size_t)c->a.n_q * d;
        j->threads = c->a.exec ? c->a.exec->width : 1;
        if (c->a.n_q == 1 && c->a.kv_heads) j->group = c->a.heads / c->a.kv_heads;
        if (c->layer) {
            float *y[3];
            j->q.resize(n);
            j->o.resize(n);
            j->a.q = y[0] = j->q.data();
            j->a.out = j->o.data();
            y[1] = (float *)change(c->a.k) + (size_t)(c->a.n_k - 1) * d;
            y[2] = (float *)change(c->a.v) + (size_t)(c->a.n_k - 1) * d;
            if (c->layer == LAYER_SELF) {
                j->k.resize(n);
                j->v.resize(n);
                j->a.k = y[1] = j->k.data();
                j->a.v = y[2] = j->v.data();
            }
            for (size_t i = 0; i < (c->layer == LAYER_CROSS_STEP ? 1u : 3u); i++)
                add_linear(j.get(), y[i], c->x, c->w_in + i * d * d, c->b_in + i * d, c->a.n_q, (int)d);
            add_linear(j.get(), c->a.out, j->o.data(), c->w_o, c->b_o, c->a.n_q, (int)d);
        }
        return j.release();
    } catch (const dnnl::error &) {
        return nullptr;
    }
}

static void run_linear(job *j, const linear &l)
{
    l.run.execute(j->stream, {{DNNL_ARG_SRC, l.x}, {DNNL_ARG_WEIGHTS, l.w}, {DNNL_ARG_BIAS, l.b}, {DNNL_ARG_DST, l.y}});
}

static void run(void *p)
{
    job *j = (job *)p;
    for (size_t i = 0; i + 1 < j->layers.size(); i++) run_linear(j, j->layers[i]);
    attend(j);
    if (!j->layers.empty()) run_linear(j, j->layers.back());
    j->stream.wait();
}

static void release(void *p) { delete (job *)p; }

static const char *open_onednn(const bench_peer *, const bench_setup *s)
{
    void (*set_threads)(int) = nullptr;
    void *f = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    std::memcpy(&set_threads, &f, sizeof f);
    if (!set_threads) return "its OpenMP is not within reach";
    set_threads(s->threads);
    return nullptr;
}

extern "C" const bench_peer bench_onednn;
extern "C" const bench_peer bench_onednn = {"oneDNN", open_onednn, prepare, run,    nullptr,
                                            nullptr,  release,     nullptr, nullptr};
