// onednn.cpp: attention by oneDNN, version 3 or later. Plug-ins, built if its headers are here. Two forms:
//
//   oneDNN         matmul, softmax and matmul. A step covers as many heads and rows as keep the scores in an L2 cache:
//                  all heads at once if they are small. Keys that all rows of a step hide are skipped
//   oneDNN graph   matmul, multiply, add (of a mask), softmax and matmul as a graph, which it must take as one
//                  partition; otherwise the case is left out. Causality, windows and lengths become a matrix to be
//                  added. Only its builds with OpenMP fuse the steps within; the one of its wheels, which run on SYCL
//                  and TBB, computes all scores of all heads
//
#include <dlfcn.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>
#ifdef ONEDNN_BUILD_GRAPH
#include <oneapi/dnnl/dnnl_graph.hpp>
#endif
#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_TBB
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#endif

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
    if (scale != 1.0f) ops.append_eltwise(dnnl::algorithm::eltwise_linear, scale, 0.0f);
    attr.set_post_ops(ops);
    const dnnl::matmul::primitive_desc pd = bias ? dnnl::matmul::primitive_desc(e, a, b, *bias, c, attr)
                                                 : dnnl::matmul::primitive_desc(e, a, b, c, attr);
    if (b_best) *b_best = pd.weights_desc();
    return dnnl::matmul(pd);
}

static dnnl::softmax_forward make_softmax(const dnnl::engine &e, const memory::desc &s)
{
    return dnnl::softmax_forward({ e, dnnl::prop_kind::forward_inference, dnnl::algorithm::softmax_accurate, s, s, 3 });
}

static dnnl::binary make_add(const dnnl::engine &e, const memory::desc &s, const memory::desc &m)
{
    return dnnl::binary({ e, dnnl::algorithm::binary_add, s, m, s });
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

struct whole {                            // the graph, and its memories
#ifdef ONEDNN_BUILD_GRAPH
    dnnl::graph::compiled_partition run;
    std::vector<dnnl::graph::tensor> in, out;
#endif
    std::vector<float> mask;
    float scale;
};

struct job {
    const bench_case *c;
    dnnl::engine e;
    dnnl::stream stream;
    attn_args a;
    int group, threads;
    std::vector<float> scores, q, k, v, o;
    std::map<std::vector<int>, step> steps;
    std::unique_ptr<whole> graph;
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

#ifdef ONEDNN_BUILD_GRAPH
// ---- the graph ------------------------------------------------------------------------------------------------------
// What rows may see, as a matrix to be added: one for all entries or one for each; one row if all rows see the same.
static dims mask_make(const attn_args &a, std::vector<float> &m)
{
    const int entries = a.mask ? a.mask_shape[0] : a.k_lengths ? a.batch : 1;
    const int rows = a.mask || a.causal || a.window_left || a.window_right ? a.n_q : 1;
    m.assign((size_t)entries * rows * a.n_k, -INFINITY);
    for (int b = 0; b < entries; b++)
        for (int i = 0; i < rows; i++) {
            const size_t at = ((size_t)b * rows + i) * a.n_k;
            int lo, hi;
            bench_range(&a, b, i, &lo, &hi);
            for (int k = lo; k < hi; k++) m[at + k] = a.mask ? a.mask[at + k] : 0.0f;
        }
    return { entries, 1, rows, a.n_k };
}

// false: it does not take the graph as one partition
static bool graph_make(job *j)
{
    using namespace dnnl::graph;
    typedef logical_tensor lt;
    const attn_args &a = j->a;
    const int kv_heads = a.kv_heads ? a.kv_heads : a.heads;
    const memory::dim d = a.head_dim, q_row = (memory::dim)a.heads * d, k_row = (memory::dim)kv_heads * d;
    const memory::dim b = a.batch, h = a.heads / j->group, r = j->group > 1 ? j->group : a.n_q, n = a.n_k;
    const dims q_at = { a.n_q * q_row, j->group * d, j->group > 1 ? d : q_row, 1 }, k_at = { n * k_row, d, k_row, 1 };
    const lt::data_type f32 = lt::data_type::f32;
    const lt q(0, f32, { b, h, r, d }, q_at), k(1, f32, { b, h, n, d }, k_at), v(2, f32, { b, h, n, d }, k_at);
    const lt by(3, f32, dims{ 1 }, lt::layout_type::strided), out(4, f32, { b, h, r, d }, q_at);
    const dims inner = { b, h, r, n };
    const lt scores(5, f32, inner, lt::layout_type::strided), scaled(6, f32, inner, lt::layout_type::strided);
    const lt masked(7, f32, inner, lt::layout_type::strided), shares(8, f32, inner, lt::layout_type::strided);
    std::unique_ptr<whole> w(new whole);
    const bool hides = a.mask || a.causal || a.window_left || a.window_right || a.k_lengths;
    const lt mask(9, f32, hides ? mask_make(a, w->mask) : dims{ 1 }, lt::layout_type::strided);
    op product(0, op::kind::MatMul, { q, k }, { scores }), multiply(1, op::kind::Multiply, { scores, by }, { scaled });
    op add(2, op::kind::Add, { scaled, mask }, { masked });
    op softmax(3, op::kind::SoftMax, { hides ? masked : scaled }, { shares });
    op average(4, op::kind::MatMul, { shares, v }, { out });
    product.set_attr<bool>(op::attr::transpose_b, true);
    softmax.set_attr<int64_t>(op::attr::axis, -1);
    graph g(dnnl::engine::kind::cpu);
    g.add_op(product);
    g.add_op(multiply);
    if (hides) g.add_op(add);
    g.add_op(softmax);
    g.add_op(average);
    g.finalize();
    const std::vector<partition> parts = g.get_partitions();
    if (parts.size() != 1 || !parts[0].is_supported()) return false;
    std::vector<lt> in;
    w->scale = a.scale != 0.0f ? a.scale : 1.0f / std::sqrt((float)d);
    for (const lt &port : parts[0].get_input_ports()) {
        void *const data[] = { change(a.q), change(a.k), change(a.v), &w->scale };
        const size_t id = port.get_id();
        in.push_back(id == 0 ? q : id == 1 ? k : id == 2 ? v : id == 3 ? by : mask);
        w->in.push_back(tensor(in.back(), j->e, id < 4 ? data[id] : w->mask.data()));
    }
    w->run = parts[0].compile(in, { out }, j->e);
    w->out.push_back(tensor(out, j->e, a.out));
    j->graph = std::move(w);
    return true;
}

static void graph_run(job *j) { j->graph->run.execute(j->stream, j->graph->in, j->graph->out); }
#else
static bool graph_make(job *) { return false; }
static void graph_run(job *) {}
#endif

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

// peer->self selects the form.
static void *prepare(const bench_peer *p, const bench_case *c)
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
        if (p->self && !graph_make(j.get())) return nullptr;
        return j.release();
    } catch (const dnnl::error &e) {
        std::fprintf(stderr, "bench: %s on %s: %s\n", p->name, c->name, e.what());
        return nullptr;
    }
}

static void run_linear(job *j, const linear &l)
{
    l.run.execute(j->stream, {{DNNL_ARG_SRC, l.x}, {DNNL_ARG_WEIGHTS, l.w}, {DNNL_ARG_BIAS, l.b}, {DNNL_ARG_DST, l.y}});
}

static void compute(job *j)
{
    for (size_t i = 0; i + 1 < j->layers.size(); i++) run_linear(j, j->layers[i]);
    if (j->graph) graph_run(j);
    else attend(j);
    if (!j->layers.empty()) run_linear(j, j->layers.back());
    j->stream.wait();
}

// ---- the peers ------------------------------------------------------------------------------------------------------
#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_TBB
// TBB would keep the number of threads of its first run.
static std::unique_ptr<tbb::global_control> limit;
static std::unique_ptr<tbb::task_arena> arena;

static const char *threads_set(int n)
{
    limit.reset(new tbb::global_control(tbb::global_control::max_allowed_parallelism, (size_t)n));
    arena.reset(new tbb::task_arena(n));
    return nullptr;
}

static void *prepare_here(const bench_peer *p, const bench_case *c)
{
    return arena->execute([=] { return prepare(p, c); });
}

static void run(void *p)
{
    arena->execute([=] { compute((job *)p); });
}

static void threads_close()
{
    arena.reset();
    limit.reset();
}
#else
static const char *threads_set(int n)
{
    void (*set_threads)(int) = nullptr;
    void *f = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    std::memcpy(&set_threads, &f, sizeof f);
    if (!set_threads) return "its OpenMP is not within reach";
    set_threads(n);
    return nullptr;
}

static void *prepare_here(const bench_peer *p, const bench_case *c) { return prepare(p, c); }
static void run(void *p) { compute((job *)p); }
static void threads_close() {}
#endif

// With SYCL another thread does the work, so with --busy the clock of the process measures it.
static double seconds() { return bench_cpu_time ? (double)std::clock() / CLOCKS_PER_SEC : bench_now(); }

static double timed(void *p, int calls)
{
    const double begin = seconds();
    for (int i = 0; i < calls; i++) run(p);
    return seconds() - begin;
}

static void release(void *p) { delete (job *)p; }

// Its SYCL runs on processors through OpenCL, whose driver is in the same folder.
static const char *open_onednn(const bench_peer *p, const bench_setup *s)
{
#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_SYCL
    const std::string driver = std::string(s->folder) + "/../peers/onednn-devel/lib/libintelocl.so";
    setenv("OCL_ICD_FILENAMES", driver.c_str(), 0);
    if (!p->self) return "this build runs on SYCL; for the primitives one with OpenMP is needed";
#endif
#ifndef ONEDNN_BUILD_GRAPH
    if (p->self) return "this build has no graph";
#endif
    const dnnl::version_t *v = dnnl::version();
    std::printf("  %s %d.%d.%d, %s\n", p->name, v->major, v->minor, v->patch,
                DNNL_CPU_RUNTIME == DNNL_RUNTIME_SYCL ? "SYCL" : "OpenMP");
    return threads_set(s->threads);
}

static void close_onednn(const bench_peer *) { threads_close(); }

extern "C" const bench_peer bench_onednn;
extern "C" const bench_peer bench_onednn = { "oneDNN", open_onednn, prepare_here, run,          timed,
                                             nullptr,  release,     close_onednn, nullptr };
