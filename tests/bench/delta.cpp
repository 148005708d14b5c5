/* delta.cpp: attn_delta and ggml_gated_delta_net alternately: 16 heads of 128 x 128, the state in L2 or beyond.
 *
 *   build/bench/delta 1 2             one and two threads; build/bench/delta-avx2: both libraries with AVX2
 *
 * Each row gives microseconds per row of a sequence, the median of 25 rounds. Both read [row][head][component]. The state of
 * ggml is transposed and written to another place; attn_delta updates it in place. The results must agree. */
#define ATTN_THREADS
#include "attn.h"

#include "ggml-cpu.h"
#include "ggml.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#ifndef BACKEND
#define BACKEND ATTN_AUTO
#endif

enum { D = 128, H = 16, ROUNDS = 25 };

static double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static std::vector<float> numbers(size_t n, unsigned seed, float size, float add)
{
    std::vector<float> x(n);
    for (float &f : x) {
        seed = seed * 1664525u + 1013904223u;
        f = ((float)(seed >> 8) / 16777216.0f - 0.5f) * size + add;
    }
    return x;
}

static double median(std::vector<double> t)
{
    std::sort(t.begin(), t.end());
    return t[t.size() / 2];
}

/* One call of ggml on new rows, from and to states that alternate. */
struct peer {
    ggml_context *context;
    ggml_cgraph *graph;
    ggml_cplan plan;
    ggml_tensor *result;
    std::vector<uint8_t> work;
};

static ggml_tensor *tensor(ggml_context *c, std::vector<float> &x, int64_t a, int64_t b, int64_t n)
{
    ggml_tensor *t = ggml_new_tensor_4d(c, GGML_TYPE_F32, a, b, n, 1);
    t->data = x.data();
    return t;
}

static void run(int n, int threads, const attn_exec *exec, ggml_threadpool *pool)
{
    const size_t N = (size_t)n * H * D, S = (size_t)H * D * D;
    std::vector<float> q = numbers(N, 1, 0.3f, 0), k = numbers(N, 2, 0.3f, 0), v = numbers(N, 3, 1, 0);
    std::vector<float> g = numbers((size_t)n * H, 4, 0.1f, -0.05f), beta = numbers((size_t)n * H, 5, 1, 0.5f);
    std::vector<float> out(N), state(S), before(S), packed(N + S);
    std::vector<double> ours, theirs;
    const ggml_init_params with = { ggml_tensor_overhead() * 16 + ggml_graph_overhead(), nullptr, true };
    peer p;
    attn_delta_args a;
    double worst = 0, size = 0;
    const int calls = n < 64 ? 256 / n : n < 256 ? 4 : 1;
    p.context = ggml_init(with);
    p.result = ggml_gated_delta_net(p.context, tensor(p.context, q, D, H, n), tensor(p.context, k, D, H, n),
                                    tensor(p.context, v, D, H, n), tensor(p.context, g, 1, H, n),
                                    tensor(p.context, beta, 1, H, n), tensor(p.context, before, D, D, H), 1);
    p.result->data = packed.data();
    p.graph = ggml_new_graph(p.context);
    ggml_build_forward_expand(p.graph, p.result);
    p.plan = ggml_graph_plan(p.graph, threads, pool);
    p.work.resize(p.plan.work_size + 64);
    p.plan.work_data = p.work.data();
    memset(&a, 0, sizeof a);
    a.out = out.data(), a.state = state.data(), a.q = q.data(), a.k = k.data(), a.v = v.data();
    a.g = g.data(), a.beta = beta.data();
    a.batch = 1, a.n = n, a.heads = H, a.head_dim = D, a.backend = BACKEND;
    a.exec = exec;
    a.work_size = attn_delta_workspace(&a);
    std::vector<char> work(a.work_size);
    a.work = work.data();
    if (attn_delta(&a) != ATTN_OK) exit(1);                /* both from zeros */
    ggml_graph_compute(p.graph, &p.plan);
    for (size_t i = 0; i < N; i++) {
        worst = std::max(worst, std::fabs((double)out[i] - (double)packed[i]));
        size = std::max(size, std::fabs((double)packed[i]));
    }
    if (!(worst <= 1e-5 * size)) { printf("the results differ by %g of %g\n", worst, size); exit(1); }
    for (int round = 0; round < ROUNDS; round++)
        for (int side = 0; side < 2; side++) {
            if (side && threads > 1) ggml_threadpool_resume(pool);             /* its idle threads poll */
            const double start = now();
            for (int i = 0; i < calls; i++) {
                if (side == 0) (void)attn_delta(&a);
                else ggml_graph_compute(p.graph, &p.plan);
            }
            (side ? theirs : ours).push_back((now() - start) / calls);
            if (side && threads > 1) ggml_threadpool_pause(pool);
        }
    printf("%7d %8d %8.1f %8.1f %6.2f\n", threads, n, median(ours) * 1e6 / n, median(theirs) * 1e6 / n,
           median(theirs) / median(ours));
    ggml_free(p.context);
}

int main(int argc, char **argv)
{
    static const int rows[] = { 1, 4, 64, 512 };
    ggml_cpu_init();
    puts("threads     rows   attn.h     ggml  ratio");
    for (int i = 1; i < std::max(argc, 2); i++) {
        const int threads = argc > 1 ? atoi(argv[i]) : 1;
        attn_pool *own = attn_pool_create(threads);
        const attn_exec exec = attn_pool_exec(own);
        ggml_threadpool_params params = ggml_threadpool_params_default(threads);
        ggml_threadpool *pool = ggml_threadpool_new(&params);
        for (int n : rows) run(n, threads, &exec, pool);
        ggml_threadpool_free(pool);
        attn_pool_destroy(own);
    }
    return 0;
}
