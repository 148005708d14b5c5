/* count.c: makes the calls whose instructions `make count` counts, one after the other, and prints
 * their names. tests/checks/count.sh runs it under callgrind, which counts what happens inside measured()
 * and writes one total whenever that returns.
 *
 * Counts must be the same on every machine:
 *   - AVX2 is selected by name: valgrind has no AVX-512.
 *   - Inputs come from a generator of integers, and every array has its fixed place.
 *   - memcpy, memmove and memset are defined below: those of C libraries differ.
 * A name consists of query rows x keys, heads x head_dim, then the layout or the special feature. */
#include "attn.h"
#include <stdio.h>
#include <string.h>

/* ---- memory functions, in the manner of glibc's for AVX2 ------------------------------------- */
typedef char vector32 __attribute__((vector_size(32), aligned(1), may_alias));
typedef char vector16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef unsigned long long word8 __attribute__((aligned(1), may_alias));
typedef unsigned word4 __attribute__((aligned(1), may_alias));
#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))
#else
#define AVX2                              /* only so that it compiles */
#endif
/* Without it compilers recognise memcpy in the loop and replace it by a call of memcpy, which never returns. */
#define KEEP_LOOP __asm__ volatile("" ::: "memory")

/* A short block is two pieces that may overlap; both are read before either is written. */
#define TWO_PIECES(type) \
    if (n >= sizeof(type)) { \
        const type first = *(const type *)s, last = *(const type *)(s + n - sizeof(type)); \
        *(type *)d = first; \
        *(type *)(d + n - sizeof(type)) = last; \
        return; \
    }

AVX2 static void move_bytes(char *d, const char *s, size_t n)
{
    size_t i;
    if (n > 64) {
        const vector32 first = *(const vector32 *)s, last = *(const vector32 *)(s + n - 32);
        if (d <= s || d >= s + n)
            for (i = 32; i < n - 32; i += 32) {
                *(vector32 *)(d + i) = *(const vector32 *)(s + i);
                KEEP_LOOP;
            }
        else
            for (i = n - 32; i > 32; i -= 32) {
                *(vector32 *)(d + i - 32) = *(const vector32 *)(s + i - 32);
                KEEP_LOOP;
            }
        *(vector32 *)d = first;
        *(vector32 *)(d + n - 32) = last;
        return;
    }
    TWO_PIECES(vector32)
    TWO_PIECES(vector16)
    TWO_PIECES(word8)
    TWO_PIECES(word4)
    if (n) {
        const char first = s[0], middle = s[n / 2], last = s[n - 1];
        d[0] = first;
        d[n / 2] = middle;
        d[n - 1] = last;
    }
}

AVX2 static void set_bytes(char *d, char byte, size_t n)
{
    size_t i = 0;
    if (n >= 32) {
        const vector32 bytes = (vector32){0} + byte;
        for (; i < n - 32; i += 32) {
            *(vector32 *)(d + i) = bytes;
            KEEP_LOOP;
        }
        *(vector32 *)(d + n - 32) = bytes;
        return;
    }
    for (; i < n; i++) {
        d[i] = byte;
        KEEP_LOOP;
    }
}

AVX2 void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    move_bytes(to, from, n);
    return to;
}

AVX2 void *memmove(void *to, const void *from, size_t n)
{
    move_bytes(to, from, n);
    return to;
}

AVX2 void *memset(void *to, int byte, size_t n)
{
    set_bytes(to, (char)byte, n);
    return to;
}

/* ---- memory layout --------------------------------------------------------------------------- */
enum { FLOATS = 1 << 21, WORK = 1 << 25 };
static float query[FLOATS / 8], key[FLOATS], value[FLOATS], out[FLOATS / 8], weights[FLOATS / 4];
static double work[WORK / 8], cache_memory[WORK / 8], packed[WORK / 8];
static attn_args call;
static attn_kv cache;
static attn_linear linear;
static attn_mha layer;
static attn_mha_opts options;
static int linear_rows;

static void fill(float *x, size_t n, unsigned seed)         /* numbers in -1 .. 1 */
{
    size_t i;
    for (i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

/* ---- the cases ------------------------------------------------------------------------------- */
enum form { ROW_HEAD, HEAD_ROW, CACHE };
typedef struct count_case {
    int rows, keys, heads, kv_heads, width;
    enum form form;
    const char *special;                  /* NULL, or the name of what `more` does, printed instead of the form */
    void (*more)(void);                   /* NULL, or sets more of `call` */
} count_case;

static void causal(void) { call.causal = ATTN_CAUSAL_TOP_LEFT; }

static void padded(void)
{
    static const int lengths[8] = { 128, 17, 90, 64, 1, 111, 40, 128 };
    call.batch = 8;
    call.k_lengths = lengths;
}

static void ragged(void)
{
    static const int begins[7] = { 0, 5, 105, 106, 170, 203, 251 };
    call.batch = 6;
    call.q_cum = call.k_cum = begins;
}

/* Masks that hide most keys, whose scores are then not computed. One key in a hundred; 16 documents next to each other,
   as keep bytes and as numbers; the same number for every pair, which hides none; a window. */
static unsigned char keep[512 * 512];
static float cells[512 * 512];

static void one_in_hundred(void)
{
    int j;
    for (j = 0; j < call.n_k; j++)
        keep[j] = (unsigned char)(((unsigned)j * 2654435761u >> 8) % 100 == 0);
    call.keep = keep;
}

static void documents(void)
{
    int i;
    for (i = 0; i < 512 * 512; i++) keep[i] = i / 512 / 32 == i % 512 / 32;
    call.keep = keep;
}

static void documents_added(void)
{
    unsigned bits = 0xff800000u;
    float none;
    int i;
    memcpy(&none, &bits, sizeof none);
    for (i = 0; i < 512 * 512; i++) cells[i] = i / 512 / 32 == i % 512 / 32 ? 0.0f : none;
    call.mask = cells;
}

static void added(void)
{
    int i;
    for (i = 0; i < 512 * 512; i++) cells[i] = 1.0f;
    call.mask = cells;
}

static void want_lse(void) { call.lse = cells; }

/* weights of all heads, and of one of them: the cost for the other heads */
static void want_weights(void) { call.weights = weights; }

static void want_one_head(void)
{
    static const int head = 5;
    call.weights = weights;
    call.weights_heads = &head;
    call.n_weights_heads = 1;
}

static void keep_some(void)
{
    int j;
    for (j = 0; j < call.n_k; j++) keep[j] = j % 5 != 3;
    call.keep = keep;
    call.keep_shape[0] = call.keep_shape[1] = call.keep_shape[2] = 1;
}

static void later(void)
{
    static const int start = 2;
    call.k_starts = &start;
}

static void window(void)
{
    call.causal = ATTN_CAUSAL_TOP_LEFT;
    call.window_left = 16;
}

static const count_case cases[] = {
    { 1, 1, 1, 1, 64, ROW_HEAD, NULL, NULL },    { 1, 1, 1, 1, 64, CACHE, NULL, NULL },
    { 1, 4, 1, 1, 64, ROW_HEAD, NULL, NULL },    { 1, 4, 1, 1, 64, CACHE, NULL, NULL },
    { 4, 6, 2, 2, 4, ROW_HEAD, NULL, NULL },     { 4, 6, 2, 2, 4, CACHE, NULL, NULL },
    { 1, 1, 8, 8, 64, ROW_HEAD, NULL, NULL },    { 1, 4, 8, 8, 64, ROW_HEAD, NULL, NULL },
    { 1, 16, 8, 8, 64, ROW_HEAD, NULL, NULL },   { 1, 64, 8, 8, 64, ROW_HEAD, NULL, NULL },
    { 1, 256, 8, 8, 64, ROW_HEAD, NULL, NULL },  { 1, 1500, 8, 8, 64, ROW_HEAD, NULL, NULL },
    { 1, 1, 8, 8, 64, HEAD_ROW, NULL, NULL },    { 1, 4, 8, 8, 64, HEAD_ROW, NULL, NULL },
    { 1, 16, 8, 8, 64, HEAD_ROW, NULL, NULL },   { 1, 64, 8, 8, 64, HEAD_ROW, NULL, NULL },
    { 1, 256, 8, 8, 64, HEAD_ROW, NULL, NULL },  { 1, 1500, 8, 8, 64, HEAD_ROW, NULL, NULL },
    { 1, 1, 8, 8, 64, CACHE, NULL, NULL },       { 1, 4, 8, 8, 64, CACHE, NULL, NULL },
    { 1, 16, 8, 8, 64, CACHE, NULL, NULL },      { 1, 64, 8, 8, 64, CACHE, NULL, NULL },
    { 1, 256, 8, 8, 64, CACHE, NULL, NULL },     { 1, 1500, 8, 8, 64, CACHE, NULL, NULL },
    { 1, 1024, 32, 8, 128, ROW_HEAD, NULL, NULL }, { 1, 1024, 32, 8, 128, HEAD_ROW, NULL, NULL },
    { 1, 1024, 32, 8, 128, CACHE, NULL, NULL },
    { 1, 16, 1, 1, 64, ROW_HEAD, "lse", want_lse }, { 1, 16, 1, 1, 64, ROW_HEAD, "keep", keep_some },
    { 1, 16, 1, 1, 64, ROW_HEAD, "k_starts", later }, { 1, 16, 8, 8, 64, CACHE, "cache, lse", want_lse },
    { 8, 16, 8, 8, 64, ROW_HEAD, NULL, NULL },   { 16, 16, 1, 1, 64, ROW_HEAD, "causal", causal },
    { 8, 256, 8, 8, 64, ROW_HEAD, NULL, NULL },  { 8, 256, 8, 8, 64, CACHE, NULL, NULL },
    { 197, 197, 12, 12, 64, ROW_HEAD, NULL, NULL }, { 197, 197, 12, 12, 64, CACHE, NULL, NULL },
    { 512, 512, 2, 2, 64, ROW_HEAD, NULL, NULL }, { 512, 512, 2, 2, 64, CACHE, NULL, NULL },
    { 512, 512, 2, 2, 64, ROW_HEAD, "causal", causal },
    { 32, 128, 4, 4, 64, ROW_HEAD, "padded, 8 entries", padded },
    { 100, 100, 4, 4, 64, ROW_HEAD, "ragged, 6 entries", ragged },
    { 1, 4096, 8, 8, 64, ROW_HEAD, "keep 1 in 100", one_in_hundred },
    { 1, 4096, 8, 8, 64, CACHE, "cache, keep 1 in 100", one_in_hundred },
    { 512, 512, 2, 2, 64, ROW_HEAD, "keep: 16 documents", documents },
    { 512, 512, 2, 2, 64, ROW_HEAD, "mask: 16 documents", documents_added },
    { 512, 512, 2, 2, 64, ROW_HEAD, "mask: all visible", added },
    { 512, 512, 2, 2, 64, ROW_HEAD, "causal, window of 16", window },
    { 8, 256, 8, 8, 64, ROW_HEAD, "weights of 1 head", want_one_head },
    { 8, 256, 8, 8, 64, ROW_HEAD, "weights of all", want_weights },
    { 1, 1500, 8, 8, 64, CACHE, "cache, weights of 1 head", want_one_head },
    { 1, 1500, 8, 8, 64, CACHE, "cache, weights of all", want_weights },
    { 100, 500, 8, 8, 64, ROW_HEAD, NULL, NULL },
    { 100, 500, 8, 8, 64, ROW_HEAD, "weights of 1 head", want_one_head },
    { 100, 500, 8, 8, 64, ROW_HEAD, "weights of all", want_weights }
};

static attn_status call_attention(void) { return attn_sdpa(&call); }
static attn_status call_layer(void) { return attn_mha_self(&layer, out, query, 1, 64, &options); }

static attn_status call_step(void)
{
    return attn_mha_self_step(&layer, out, query, 1, 1, &cache, &options);
}

static attn_status call_look(void)
{
    return attn_mha_self_look(&layer, out, query, 1, 1, &cache, &options);
}

static attn_status call_keep(void)        /* keeps every other one of the last 16 rows */
{
    static const int rows[8] = { 85, 87, 89, 91, 93, 95, 97, 99 };
    return attn_kv_keep(&cache, 0, 84, rows, 8);
}

static attn_status call_appends(void)     /* which fills and transposes one panel of 16 keys */
{
    attn_status worst = ATTN_OK;
    int i;
    for (i = 0; i < 16 && worst == ATTN_OK; i++)
        worst = attn_kv_append(&cache, -1, key, value, 1, 0);
    return worst;
}

static attn_status call_append(void) { return attn_kv_append(&cache, -1, key, value, 64, 0); }

static attn_status call_linear(void)
{
    return attn_linear_run(&linear, out, query, linear_rows, 0, NULL);
}

static attn_norm_args norm;
static attn_status call_norm(void) { return attn_norm(&norm); }

/* Callgrind counts this function and everything called from it. The status is written after the
   call: a call in tail position would be a jump out of measured(). */
static volatile attn_status status;
void measured(attn_status (*what)(void));
__attribute__((noinline)) void measured(attn_status (*what)(void)) { status = what(); }

static int measure(const char *name, attn_status (*what)(void))
{
    measured(what);
    puts(name);
    if (status == ATTN_OK) return 0;
    fprintf(stderr, "count: %s: %s\n", name, attn_status_str(status));
    return 1;
}

static attn_storage storage;              /* of the next cache */
static int make_cache(int keys, int capacity, int kv_heads, int width)
{
    attn_kv_args a = {0};
    a.k_storage = a.v_storage = storage;
    a.batch = 1;
    a.kv_heads = kv_heads;
    a.head_dim = width;
    a.capacity = capacity;
    a.mem = cache_memory;
    a.mem_size = sizeof cache_memory;
    return attn_kv_init(&cache, &a) != ATTN_OK ||
           attn_kv_append(&cache, -1, key, value, keys, 0) != ATTN_OK;
}

static int attention(const count_case *c)
{
    static const char *const forms[] = { "[row][head]", "[head][row]", "cache" };
    const attn_args none = {0};
    char grouped[32] = "", name[128];
    call = none;
    call.out = out;
    call.q = query;
    call.batch = 1;
    call.n_q = c->rows;
    call.heads = c->heads;
    call.kv_heads = c->kv_heads;
    call.head_dim = c->width;
    call.layout = c->form == HEAD_ROW ? ATTN_BHSD : ATTN_BSHD;
    call.work = work;
    call.work_size = sizeof work;
    call.backend = ATTN_AVX2;
    if (c->form == CACHE) {
        if (make_cache(c->keys, c->keys, c->kv_heads, c->width)) return 1;
        call.kv = &cache;
    } else {
        call.n_k = c->keys;
        call.k = key;
        call.v = value;
    }
    if (c->more) c->more();
    if (c->heads != c->kv_heads) snprintf(grouped, sizeof grouped, " on %d", c->kv_heads);
    snprintf(name, sizeof name, "%d x %d, %d%s x %d, %s", c->rows, c->keys, c->heads, grouped,
             c->width, c->special ? c->special : forms[c->form]);
    return measure(name, call_attention);
}

/* The cost of a cache, and of a cache in 16 bits. */
static int caches(void)
{
    static const count_case step = { 1, 1500, 8, 8, 64, CACHE, "cache in half", NULL };
    int failed;
    if (make_cache(100, 300, 8, 64)) return 1;
    if (measure("16 appends of 1 row, 8 x 64", call_appends)) return 1;
    if (measure("append of 64 rows, 8 x 64", call_append)) return 1;
    storage = ATTN_F16;
    failed = attention(&step);
    storage = ATTN_F32;
    return failed;
}

/* DeepSeek's heads over rows whose front is the value: in place, and in a cache. */
static int latent(void)
{
    const attn_args none = {0};
    attn_kv_args a = {0};
    call = none;
    call.batch = call.n_q = call.kv_heads = 1;
    call.heads = 16;
    call.n_k = 256;
    call.head_dim = 576;
    call.k_stride[1] = call.v_stride[1] = 576;
    call.v_head_dim = 512;
    call.q = query;
    call.k = call.v = key;
    call.out = out;
    call.work = work;
    call.work_size = sizeof work;
    call.backend = ATTN_AVX2;
    if (measure("1 x 256, 16 on 1 x 576, v the front of k", call_attention)) return 1;
    a.batch = a.kv_heads = a.v_in_k = 1;
    a.head_dim = 576;
    a.v_head_dim = 512;
    a.capacity = 256;
    a.mem = cache_memory;
    a.mem_size = sizeof cache_memory;
    if (attn_kv_init(&cache, &a) != ATTN_OK) return 1;
    if (attn_kv_append(&cache, -1, key, NULL, 256, 0) != ATTN_OK) return 1;
    call.kv = &cache;
    call.k = call.v = NULL;
    call.k_stride[1] = call.v_stride[1] = 0;
    return measure("1 x 256, 16 on 1 x 576, cache with v_in_k", call_attention);
}

static int layers(void)
{
    enum { MODEL = 256, LAYER_HEADS = 4, PAST = 100, WIDE = 512 };
    const size_t matrix = (size_t)MODEL * MODEL;
    attn_mha_args a = {0};
    attn_linear_args l = {0};
    a.d_model = MODEL;
    a.heads = LAYER_HEADS;
    a.w_q = weights;
    a.w_k = weights + matrix;
    a.w_v = weights + 2 * matrix;
    a.w_o = weights + 3 * matrix;
    a.mem = packed;
    a.mem_size = sizeof packed;
    if (attn_mha_init(&layer, &a) != ATTN_OK) return 1;
    options.attn.work = work;
    options.attn.work_size = sizeof work;
    options.attn.backend = ATTN_AVX2;
    if (measure("layer of 256, 4 heads, 64 rows", call_layer)) return 1;
    if (make_cache(PAST, 2 * PAST, LAYER_HEADS, MODEL / LAYER_HEADS)) return 1;
    if (measure("its step, after 100 keys", call_step)) return 1;
    if (measure("a look at these 101 keys", call_look)) return 1;
    if (measure("8 of the last 16 rows kept, 4 x 64", call_keep)) return 1;
    attn_mha_free(&layer);
    a.w_gate = weights;
    if (attn_mha_init(&layer, &a) != ATTN_OK) return 1;
    if (make_cache(PAST, 2 * PAST, LAYER_HEADS, MODEL / LAYER_HEADS)) return 1;
    if (measure("a step with an output gate", call_step)) return 1;

    l.n_in = l.n_out = WIDE;
    l.w = weights;
    l.mem = packed;
    l.mem_size = sizeof packed;
    if (attn_linear_init(&linear, &l) != ATTN_OK) return 1;
    linear_rows = 1;
    if (measure("linear 512 to 512, 1 row", call_linear)) return 1;
    linear_rows = 64;
    if (measure("linear 512 to 512, 64 rows", call_linear)) return 1;
    attn_linear_free(&linear);
    l.storage = ATTN_F16;
    if (attn_linear_init(&linear, &l) != ATTN_OK) return 1;
    linear_rows = 1;
    if (measure("linear 512 to 512, 1 row, half", call_linear)) return 1;
    linear_rows = 64;
    return measure("linear 512 to 512, 64 rows, half", call_linear);
}

static int norms(void)
{
    norm.y = out;
    norm.x = query;
    norm.weight = weights;
    norm.backend = ATTN_AVX2;
    norm.rows = 1;
    norm.n = 640;
    if (measure("RMS norm, 1 x 640", call_norm)) return 1;
    norm.rows = 8;
    norm.n = 64;
    if (measure("RMS norm, 8 x 64", call_norm)) return 1;
    norm.rows = 64;
    norm.n = 650;
    norm.kind = ATTN_NORM_LAYER;
    return measure("layer norm, 64 x 650", call_norm);
}

int main(void)
{
    size_t i, c;
    attn_backend best;
    int failed = 0;
    /* Detects the processor here, so that no counted call does. */
    if (attn_backends(&best, 1) < 1 || best != ATTN_AVX2) {
        fputs("count: AVX2 is not the best backend here; run this under valgrind\n", stderr);
        return 1;
    }
    fill(query, sizeof query / sizeof *query, 1);
    fill(key, sizeof key / sizeof *key, 2);
    fill(value, sizeof value / sizeof *value, 3);
    fill(weights, sizeof weights / sizeof *weights, 4);
    for (i = 0; i < sizeof weights / sizeof *weights; i++) weights[i] /= 16;
    for (c = 0; c < sizeof cases / sizeof *cases && !failed; c++) failed = attention(&cases[c]);
    if (!failed) failed = caches();
    if (!failed) failed = latent();
    if (!failed) failed = layers();
    if (!failed) failed = norms();
    if (failed) fputs("count: a call, or a cache or layer for it, failed\n", stderr);
    return failed;
}
