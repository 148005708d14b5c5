/* llama.cpp: one step and a prompt of a Llama with random weights, by attn.h and by the library llama.cpp alternately.
 *
 *   build/bench/llama file.gguf       writes the file, reads it with both, and removes it
 *
 * The shape is that of TinyLlama 1.1B with 4 of its 22 layers. Weights are F16 or Q8_0, the same bytes for both; caches
 * are half. Each row has medians of alternate rounds in milliseconds. llama.cpp runs with its flash attention, its
 * default, and without; the logits of the second, which adds values in floats, must agree with those of attn.h. AMX is
 * not used: that code of llama.cpp crashes if gcc 12 compiles it. tests/bench/llama.sh builds this program. */
#define ATTN_THREADS
#include "attn.h"

#include "ggml.h"
#include "gguf.h"
#include "llama.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

enum { DIM = 2048, HEADS = 32, KV_HEADS = 4, HEAD = 64, HIDDEN = 5632, LAYERS = 4, WORDS = 32000, PROMPT = 512,
       LONGEST = 2304, ROUNDS = 5 };
static const float EPS = 1e-5f;

static double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> t)
{
    std::sort(t.begin(), t.end());
    return t[t.size() / 2];
}

static void ok(attn_status s)
{
    if (s) std::printf("attn.h: %s\n", attn_status_str(s)), std::exit(1);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* The tensors that both libraries read. */
struct weights {
    ggml_context *context;
    gguf_context *file;
    ggml_type type;
    unsigned state;
};

/* Adds a matrix [n_out][n_in] of the format w.type, N(0, 1/n_in)-like; n_out 0: a norm of ones in floats. */
static void add(weights &w, const std::string &name, int n_in, int n_out)
{
    ggml_tensor *t = n_out ? ggml_new_tensor_2d(w.context, w.type, n_in, n_out)
                           : ggml_new_tensor_1d(w.context, GGML_TYPE_F32, n_in);
    std::vector<float> row((size_t)n_in, 1.0f);
    const float by = 2 / std::sqrt((float)n_in);
    ggml_set_name(t, name.c_str());
    if (!n_out) std::memcpy(t->data, row.data(), row.size() * sizeof(float));
    for (int i = 0; i < n_out; i++) {
        for (float &f : row) {
            w.state = w.state * 1664525u + 1013904223u;
            f = ((float)(w.state >> 8) / 8388608.0f - 1) * by;
        }
        ggml_quantize_chunk(w.type, row.data(), (char *)t->data + (size_t)i * t->nb[1], 0, 1, n_in, NULL);
    }
    gguf_add_tensor(w.file, t);
}

static std::string in_layer(int l, const char *name) { return "blk." + std::to_string(l) + "." + name + ".weight"; }

static weights make(ggml_type type, const char *path)
{
    const ggml_init_params room = { (size_t)1 << 30, NULL, false };
    weights w = { ggml_init(room), gguf_init_empty(), type, 1 };
    const struct { const char *key; unsigned value; } sizes[] = {
        { "llama.vocab_size", WORDS }, { "llama.context_length", LONGEST }, { "llama.embedding_length", DIM },
        { "llama.block_count", LAYERS }, { "llama.feed_forward_length", HIDDEN },
        { "llama.attention.head_count", HEADS }, { "llama.attention.head_count_kv", KV_HEADS },
        { "llama.rope.dimension_count", HEAD } };
    gguf_set_val_str(w.file, "general.architecture", "llama");
    gguf_set_val_str(w.file, "tokenizer.ggml.model", "none");
    gguf_set_val_f32(w.file, "llama.attention.layer_norm_rms_epsilon", EPS);
    for (auto &s : sizes) gguf_set_val_u32(w.file, s.key, s.value);
    add(w, "token_embd.weight", DIM, WORDS);
    add(w, "output_norm.weight", DIM, 0);
    add(w, "output.weight", DIM, WORDS);
    for (int l = 0; l < LAYERS; l++) {
        add(w, in_layer(l, "attn_norm"), DIM, 0);
        add(w, in_layer(l, "attn_q"), DIM, DIM);
        add(w, in_layer(l, "attn_k"), DIM, KV_HEADS * HEAD);
        add(w, in_layer(l, "attn_v"), DIM, KV_HEADS * HEAD);
        add(w, in_layer(l, "attn_output"), DIM, DIM);
        add(w, in_layer(l, "ffn_norm"), DIM, 0);
        add(w, in_layer(l, "ffn_gate"), DIM, HIDDEN);
        add(w, in_layer(l, "ffn_up"), DIM, HIDDEN);
        add(w, in_layer(l, "ffn_down"), HIDDEN, DIM);
    }
    if (!gguf_write_to_file(w.file, path, false)) std::printf("%s cannot be written\n", path), std::exit(1);
    return w;
}

/* ---- attn.h ------------------------------------------------------------------------------------------------------ */

struct layer { attn_mha attention; attn_linear gate, up, down; attn_kv cache; };

struct model {
    const weights *w;
    layer layers[LAYERS];
    attn_linear output;
    attn_exec exec;
    attn_mha_opts options;
    std::vector<float> rope, x, y, z, a, b, logits;
    std::vector<char> work;
};

static const void *data(const model &m, const std::string &name)
{
    return ggml_get_tensor(m.w->context, name.c_str())->data;
}

static attn_storage given(const model &m) { return m.w->type == GGML_TYPE_F16 ? ATTN_F16 : ATTN_Q8_0; }
static attn_storage kept(const model &m) { return m.w->type == GGML_TYPE_F16 ? ATTN_F16 : ATTN_Q8; }

static void linear(const model &m, attn_linear &l, const std::string &name, int n_in, int n_out)
{
    attn_linear_args a = attn_linear_args();
    a.n_in = n_in, a.n_out = n_out, a.w = data(m, name), a.w_storage = given(m), a.storage = kept(m);
    ok(attn_linear_init(&l, &a));
}

static void open(model &m, const weights &w, attn_exec exec)
{
    m.w = &w;
    m.exec = exec;
    m.rope.resize((size_t)LONGEST * HEAD);
    ok(attn_rope_table(m.rope.data(), LONGEST, HEAD, NULL, 10000));
    for (auto v : { &m.x, &m.y, &m.z }) v->resize((size_t)PROMPT * DIM);
    for (auto v : { &m.a, &m.b }) v->resize((size_t)PROMPT * HIDDEN);
    m.logits.resize(WORDS);
    for (int l = 0; l < LAYERS; l++) {
        layer &t = m.layers[l];
        attn_mha_args a = attn_mha_args();
        a.d_model = DIM, a.heads = HEADS, a.kv_heads = KV_HEADS, a.w_storage = given(m), a.storage = kept(m);
        a.w_q = data(m, in_layer(l, "attn_q")), a.w_k = data(m, in_layer(l, "attn_k"));
        a.w_v = data(m, in_layer(l, "attn_v")), a.w_o = data(m, in_layer(l, "attn_output"));
        a.rope_table = m.rope.data(), a.positions = LONGEST, a.rope_interleaved = 1;
        ok(attn_mha_init(&t.attention, &a));
        linear(m, t.gate, in_layer(l, "ffn_gate"), DIM, HIDDEN);
        linear(m, t.up, in_layer(l, "ffn_up"), DIM, HIDDEN);
        linear(m, t.down, in_layer(l, "ffn_down"), HIDDEN, DIM);
        attn_kv_args k = attn_kv_args();
        k.batch = 1, k.kv_heads = KV_HEADS, k.head_dim = HEAD, k.capacity = LONGEST;
        k.k_storage = k.v_storage = ATTN_F16;
        ok(attn_kv_init(&t.cache, &k));
    }
    linear(m, m.output, "output.weight", DIM, WORDS);
    m.options = attn_mha_opts();
    m.options.attn.exec = &m.exec;
    m.options.attn.work_size = attn_mha_workspace(&m.layers[0].attention, ATTN_MHA_SELF_STEP, 1, PROMPT, LONGEST,
                                                  &m.options);
    m.work.resize(m.options.attn.work_size);
    m.options.attn.work = m.work.data();
}

static void close(model &m)
{
    for (layer &t : m.layers) {
        attn_mha_free(&t.attention);
        for (attn_linear *l : { &t.gate, &t.up, &t.down }) attn_linear_free(l);
        attn_kv_free(&t.cache);
    }
    attn_linear_free(&m.output);
}

static void rms_norm(model &m, const float *x, int n)
{
    attn_norm_args a = attn_norm_args();
    a.y = m.y.data(), a.x = x, a.rows = n, a.n = DIM, a.eps = EPS, a.exec = &m.exec;      /* all weights are 1 */
    ok(attn_norm(&a));
}

static void plus(model &m, int n)
{
    for (int i = 0; i < n * DIM; i++) m.x[(size_t)i] += m.z[(size_t)i];
}

/* Runs n tokens, the first at position `past`; stores the logits of the last one. */
static void run(model &m, const int *tokens, int n, int past)
{
    const ggml_tensor *embedding = ggml_get_tensor(m.w->context, "token_embd.weight");
    for (int i = 0; i < n; i++)
        ggml_get_type_traits(m.w->type)->to_float((const char *)embedding->data + (size_t)tokens[i] * embedding->nb[1],
                                                  m.x.data() + i * DIM, DIM);
    for (layer &t : m.layers) {
        ok(attn_kv_truncate(&t.cache, -1, past));
        rms_norm(m, m.x.data(), n);
        ok(attn_mha_self_step(&t.attention, m.z.data(), m.y.data(), 1, n, &t.cache, &m.options));
        plus(m, n);
        rms_norm(m, m.x.data(), n);
        ok(attn_linear_run(&t.gate, m.a.data(), m.y.data(), n, 0, &m.exec));
        ok(attn_linear_run(&t.up, m.b.data(), m.y.data(), n, 0, &m.exec));
        ok(attn_activate(m.a.data(), m.a.data(), m.b.data(), (size_t)n * HIDDEN, ATTN_SILU, &m.exec));
        ok(attn_linear_run(&t.down, m.z.data(), m.a.data(), n, 0, &m.exec));
        plus(m, n);
    }
    rms_norm(m, m.x.data() + (n - 1) * DIM, 1);
    ok(attn_linear_run(&m.output, m.logits.data(), m.y.data(), 1, 0, &m.exec));
}

/* ---- llama.cpp --------------------------------------------------------------------------------------------------- */

static void run(llama_context *c, int *tokens, int n, int past)
{
    llama_memory_seq_rm(llama_get_memory(c), 0, past, -1);
    if (llama_decode(c, llama_batch_get_one(tokens, n))) std::printf("llama.cpp: llama_decode failed\n"), std::exit(1);
    llama_synchronize(c);
}

/* ---- the comparison ---------------------------------------------------------------------------------------------- */

/* The rms difference of the logits, in parts of their rms. */
static double apart(const float *a, const float *b)
{
    double d = 0, all = 0;
    for (int i = 0; i < WORDS; i++) d += (a[i] - b[i]) * (double)(a[i] - b[i]), all += a[i] * (double)a[i];
    return std::sqrt(d / all);
}

/* A context of llama.cpp with flash attention (1) or without (0). */
static llama_context *context(llama_model *peer, int flash, int threads)
{
    llama_context_params p = llama_context_default_params();
    p.n_ctx = LONGEST, p.n_batch = p.n_ubatch = PROMPT, p.n_threads = p.n_threads_batch = threads;
    p.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *c = llama_init_from_model(peer, p);
    if (!c) std::printf("llama.cpp: no context\n"), std::exit(1);
    return c;
}

static void compare(const weights &w, llama_model *peer, int threads)
{
    static const struct { int n, past; } calls[] = { { 1, 2048 }, { 1, 512 }, { 1, 64 }, { PROMPT, 0 } };
    const bool half = w.type == GGML_TYPE_F16;
    attn_pool *pool = attn_pool_create(threads);
    llama_context *c[] = { context(peer, 0, threads), context(peer, 1, threads) };
    model m;
    std::vector<int> tokens(LONGEST);
    open(m, w, attn_pool_exec(pool));
    for (int i = 0; i < LONGEST; i++) tokens[(size_t)i] = (int)((unsigned)i * 2654435761u >> 8) % WORDS;
    for (int at = 0; at < 2048; at += PROMPT) {
        run(m, &tokens[(size_t)at], PROMPT, at);
        for (llama_context *peers : c) run(peers, &tokens[(size_t)at], PROMPT, at);
    }
    for (auto &call : calls) {                                 /* each call drops the keys after it: longest first */
        std::vector<double> took[3];
        int *ids = &tokens[(size_t)call.past];
        double differs[2] = { 0, 0 };
        for (int r = -1; r < ROUNDS; r++) {                    /* round -1 is not timed */
            for (int way = 0; way < 3; way++) {
                const int repeat = call.n > 1 ? 1 : 3;
                std::this_thread::sleep_for(std::chrono::milliseconds(20));     /* the other's threads go to sleep */
                const double begin = now();
                for (int i = 0; i < repeat; i++) {
                    if (way == 2) run(m, ids, call.n, call.past);
                    else run(c[way], ids, call.n, call.past);
                }
                if (r >= 0) took[way].push_back(1e3 * (now() - begin) / repeat);
            }
            for (int k = 0; k < 2; k++) differs[k] = apart(m.logits.data(), llama_get_logits_ith(c[k], -1));
        }
        /* F16: llama.cpp rounds x to half. Q8_0: both round x to 8 bits, in other blocks, 29 times in a row. */
        const double plain = median(took[0]), flash = median(took[1]), ours = median(took[2]);
        std::printf("| %s | %d | %d over %d | %.1f | %.1f | %.1f | %.2f | %.1e, %.1e |%s\n", half ? "F16" : "Q8_0",
                    threads, call.n, call.past + call.n, ours, flash, plain, std::min(plain, flash) / ours, differs[1],
                    differs[0], differs[0] < (half ? 2e-3 : 6e-2) ? "" : " WRONG");
        std::fflush(stdout);
    }
    close(m);
    for (llama_context *peers : c) llama_free(peers);
    attn_pool_destroy(pool);
}

static void errors_only(ggml_log_level level, const char *text, void *)
{
    if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

int main(int argc, char **argv)
{
    if (argc != 2) return std::fprintf(stderr, "usage: llama file.gguf\n"), 2;
    llama_log_set(errors_only, NULL);
    llama_backend_init();
    std::printf("| weights | threads | rows over keys | attn.h, ms | llama.cpp flash, ms | without | faster / attn.h | "
                "logits differ by (rms) |\n|---|---|---|---|---|---|---|---|\n");
    for (ggml_type type : { GGML_TYPE_F16, GGML_TYPE_Q8_0 }) {
        weights w = make(type, argv[1]);
        llama_model_params p = llama_model_default_params();
        p.use_extra_bufts = false;                             /* no AMX */
        llama_model *peer = llama_model_load_from_file(argv[1], p);
        std::remove(argv[1]);
        if (!peer) return std::printf("llama.cpp: the model cannot be loaded\n"), 1;
        for (int threads : { 1, 2 }) compare(w, peer, threads);
        llama_model_free(peer);
        gguf_free(w.file);
        ggml_free(w.context);
    }
    llama_backend_free();
    return 0;
}
