/* same_bits.c: prints one number that shows whether this machine gives the same bits as all others.
 *
 *   make same                                                     make same ARGS=-v    by part
 *   cc -O2 -I. tests/same/same_bits.c && ./a.out                  -DATTN_THREADS -pthread: with threads
 *
 * The number is that of tests/SPEC.md, section 13: the hash of all test vectors. Then seven parts check that this machine
 * also gives one answer. Every part makes one computation in many forms (alone and in a batch, in one piece and in many,
 * by 1 to 8 threads, from rows and from a cache) and hashes all results. The last part is a small model of the Llama type with random
 * weights: 200 generated tokens and their logits. Number and parts are compared with constants, and so with all machines.
 * Then most parts are computed again by ATTN_SCALAR. The status is 1 if anything differs.
 *
 * The arithmetic of the model outside attn.h keeps its bits under any compiler and flags: no libm, mul_add where a
 * product feeds a sum, and a cast after each operation whose result is not stored. */
#ifndef ATTN_SERIAL_FLOPS
#define ATTN_SERIAL_FLOPS 0                                      /* so that these small calls use threads as well */
#endif
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPEC_NO_MAIN
#include "../spec/vectors.c"

typedef unsigned long long bits;

static struct {
    const char *part;                                            /* name of the current part */
    attn_backend by;
    bits first, all;                                             /* hash of its first answer, hash of all answers */
    int answers, differ, loud;
} now;

static void ok(attn_status s)
{
    if (!s) return;
    puts(attn_status_str(s));
    exit(2);
}

static bits hash_word(bits h, unsigned u)
{
    for (int i = 0; i < 32; i += 8) h = (h ^ (u >> i & 0xFF)) * 0x100000001B3ull;
    return h;
}

static bits hash_floats(bits h, const float *x, size_t n)
{
    unsigned u;
    for (size_t i = 0; i < n; i++) {
        memcpy(&u, x + i, sizeof u);
        h = hash_word(h, u);
    }
    return h;
}

/* Begins a new question; all other answers must equal its first one. */
static void ask(void) { now.first = 0; }

/* Adds an answer: n floats, and optionally m of another kind (lse, weights, states). */
static void answer(const char *way, const float *x, size_t n, const float *y, size_t m)
{
    const bits h = hash_floats(hash_floats(0xCBF29CE484222325ull, x, n), y, m);
    now.answers++;
    now.all = hash_word(hash_word(now.all, (unsigned)(h >> 32)), (unsigned)h);
    if (!now.first) now.first = h;
    if (h == now.first) return;
    now.differ++;
    if (now.loud) printf("    %s on %s: other bits %s\n", now.part, attn_backend_name(now.by), way);
}

/* ---- numbers: integers and powers of two, exact on every machine ---------------------------------------------- */

static unsigned draw(unsigned *seed)
{
    unsigned x = *seed += 0x9E3779B9u;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    return x ^ x >> 16;
}

/* -size .. size; size is a power of two */
static void fill(float *x, size_t n, unsigned seed, float size)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)((int)(draw(&seed) >> 8) - 8388608) / 8388608 * size;
}

static float *some(size_t n, unsigned seed, float size)
{
    float *x = (float *)malloc((n + 1) * sizeof *x);
    if (!x) exit(2);
    if (seed) fill(x, n, seed, size);
    else memset(x, 0, n * sizeof *x);
    return x;
}

/* ---- threads: tasks in a scrambled order, on real threads if available --------------------------------------- */

typedef struct mixer { unsigned seed; attn_exec inner; } mixer;
typedef struct mixed { void (*task)(void *, int); void *arg; int n, step, first; } mixed;

static void mixed_task(void *arg, int i)
{
    const mixed *m = (const mixed *)arg;
    m->task(m->arg, (int)(((long long)i * m->step + m->first) % m->n));
}

static void run_mixed(void *pool, int n, void (*task)(void *, int), void *arg)
{
    mixer *x = (mixer *)pool;
    mixed m = { task, arg, n, 0, 0 };
    int a, b;
    do {                                                         /* a step without a common divisor visits all tasks */
        m.step = 1 + (int)(draw(&x->seed) % 1000u);
        for (a = m.step, b = n; b; ) {
            const int rest = a % b;
            a = b;
            b = rest;
        }
    } while (a != 1);
    m.first = n ? (int)(draw(&x->seed) % (unsigned)n) : 0;
    if (x->inner.run) x->inner.run(x->inner.pool, n, mixed_task, &m);
    else for (int i = 0; i < n; i++) mixed_task(&m, i);
}

static mixer mixers[9];
static attn_exec threads[9];                                     /* [width] */

static void threads_init(void)
{
    for (int w = 1; w <= 8; w++) {
#ifdef ATTN_THREADS
        mixers[w].inner = attn_pool_exec(attn_pool_create(w));   /* they end with the program */
#endif
        mixers[w].seed = (unsigned)w;
        threads[w].pool = &mixers[w];
        threads[w].width = w;
        threads[w].run = run_mixed;
    }
}

/* ---- plain rows ----------------------------------------------------------------------------------------------- */

enum { B = 4, NQ = 40, NK = 300, HEADS = 4, KV = 2, DIM = 40, VDIM = 24 };
enum { Q = NQ * HEADS * DIM, K = NK * KV * DIM, V = NK * KV * VDIM, O = NQ * HEADS * VDIM };        /* of an entry */

static float *q, *k, *v, *out, *lse, *weights;

static attn_args base(int batch, int n_q, int n_k)
{
    attn_args a = attn_args_for(batch, n_q, n_k, HEADS, DIM);
    a.kv_heads = KV;
    a.v_head_dim = VDIM;
    a.q = q;
    a.k = k;
    a.v = v;
    a.out = out;
    a.backend = now.by;
    return a;
}

/* Any number of entries as a batch, in any order, some of them twice; results in the usual order. */
static void batch(const int *order, int n, const attn_exec *exec, int heads_first)
{
    static const int keys[B] = { NK, 129, 128, 17 }, rows[B] = { NQ, 5, NQ, 1 };
    float *queries = some((size_t)n * Q, 0, 0), *result = some((size_t)n * O, 0, 0);
    float *logs = some((size_t)n * HEADS * NQ, 0, 0);
    int k_lengths[8], q_lengths[8];
    attn_args a = base(n, NQ, NK);
    for (int i = 0; i < n; i++) {
        k_lengths[i] = keys[order[i]];
        q_lengths[i] = rows[order[i]];
        for (int r = 0; r < NQ; r++) for (int h = 0; h < HEADS; h++)
            memcpy(queries + i * Q + (heads_first ? h * NQ + r : r * HEADS + h) * DIM,
                   q + order[i] * Q + (r * HEADS + h) * DIM, DIM * sizeof *q);
    }
    a.q = queries;
    a.out = result;
    a.lse = logs;
    a.k_map = order;
    a.k_batch = B;
    a.exec = exec;
    a.k_lengths = k_lengths;
    a.q_lengths = q_lengths;
    a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    if (heads_first) {
        a.q_stride[2] = NQ * DIM;
        a.q_stride[1] = DIM;
    }
    ok(attn_sdpa(&a));
    for (int i = 0; i < n; i++) {
        memcpy(out + order[i] * O, result + i * O, O * sizeof *out);
        memcpy(lse + order[i] * HEADS * NQ, logs + i * HEADS * NQ, HEADS * NQ * sizeof *lse);
    }
    free(queries);
    free(result);
    free(logs);
}

static void batch_answer(const char *way)
{
    answer(way, out, B * O, lse, B * HEADS * NQ);
    memset(out, 0, B * O * sizeof *out);
}

static void part_batch(void)
{
    static const int usual[] = { 0, 1, 2, 3 }, back[] = { 3, 2, 1, 0 }, twice[] = { 1, 3, 0, 2, 1, 3, 0 };
    ask();
    batch(usual, B, NULL, 0);
    batch_answer("of a batch");
    for (int b = 0; b < B; b++) batch(usual + b, 1, NULL, 0);
    batch_answer("of entries by themselves");
    batch(back, B, NULL, 0);
    batch_answer("of a batch in another order");
    batch(twice, 7, NULL, 0);
    batch_answer("of a batch with others");
    batch(usual, B, NULL, 1);
    batch_answer("with heads before rows");
    for (int w = 1; w <= 8; w++) {
        batch(usual, B, &threads[w], 0);
        batch_answer("by threads");
    }

    attn_args a = base(1, NQ, NK);                               /* rows of entry 0: cut everywhere */
    a.causal = ATTN_CAUSAL_TOP_LEFT;
    a.q_pos = 200;
    ask();
    ok(attn_sdpa(&a));
    answer("of all rows", out, O, NULL, 0);
    for (int cut = 1; cut < NQ; cut++) {
        memset(out, 0, O * sizeof *out);
        a.q = q;
        a.out = out;
        a.n_q = cut;
        a.q_pos = 200;
        ok(attn_sdpa(&a));
        a.q = q + cut * HEADS * DIM;
        a.out = out + cut * HEADS * VDIM;
        a.n_q = NQ - cut;
        a.q_pos = 200 + cut;
        ok(attn_sdpa(&a));
        answer("of rows in two calls", out, O, NULL, 0);
    }
}

/* ---- masks: as a word, as a matrix, as bytes ------------------------------------------------------------------ */

static void part_masks(void)
{
    float *m = some(HEADS * NQ * NK, 0, 0), *bias = some(HEADS * NQ * NK, 71, 2);
    unsigned char *keep = (unsigned char *)malloc(NQ * NK);
    attn_args a = base(1, NQ, NK);
    unsigned seed = 72;
    if (!keep) exit(2);
    a.lse = lse;
    a.weights = weights;
    a.causal = ATTN_CAUSAL_TOP_LEFT;
    a.q_pos = 150;
    a.window_left = 100;
    ask();
    for (int way = 0; way < 3; way++) {
        ok(attn_mask_causal(m, NQ, NK, 150));
        for (int i = 0; i < NQ; i++) for (int j = 0; j < NK; j++) {
            if (j <= i + 150 - 100) m[i * NK + j] = m[NK - 1];   /* -inf: row 0 does not see the last key */
            keep[i * NK + j] = m[i * NK + j] == 0;
        }
        ok(attn_sdpa(&a));
        answer(way == 0 ? "of causal with a window" : way == 1 ? "of a matrix" : "of bytes",
               out, O, weights, HEADS * NQ * NK);
        a.causal = ATTN_CAUSAL_NONE;
        a.q_pos = a.window_left = 0;
        a.mask = way == 0 ? m : NULL;
        a.keep = way == 1 ? keep : NULL;
    }
    a.keep = NULL;                                               /* everything that can be added, together */
    for (int i = 0; i < HEADS * NQ * NK; i++) m[i] = draw(&seed) % 3 ? 0 : m[NK - 1];
    a.mask = m;
    a.mask_shape[0] = 1;
    a.mask_shape[1] = HEADS;
    a.mask_shape[2] = NQ;
    a.bias = bias;
    a.alibi_slopes = bias;
    a.sinks = bias + 9;
    a.softcap = 3;
    for (int stage = 0; stage < 4; stage++) {
        a.weights_stage = (attn_stage)stage;
        ask();
        ok(attn_sdpa(&a));
        answer("", out, O, weights, HEADS * NQ * NK);
        for (int w = 2; w <= 8; w += 3) {
            a.exec = &threads[w];
            ok(attn_sdpa(&a));
            answer("by threads", out, O, weights, HEADS * NQ * NK);
            a.exec = NULL;
        }
    }
    free(m);
    free(bias);
    free(keep);
}

/* ---- a step over many keys: threads share one row; attention in parts ------------------------------------------ */

enum { LONG = 700 };

static void part_pieces(void)
{
    float *keys = some(LONG * KV * DIM, 81, 2), *values = some(LONG * KV * VDIM, 82, 1);
    const size_t n = 2 * HEADS * ATTN_STATE(VDIM);
    float *states = some(n, 0, 0), *parts = some(6 * n, 0, 0);
    attn_args a = base(1, 2, LONG);
    a.k = keys;
    a.v = values;
    ask();
    ok(attn_sdpa(&a));
    answer("in one piece", out, 2 * HEADS * VDIM, NULL, 0);
    for (int w = 1; w <= 8; w++) {
        a.exec = &threads[w];
        ok(attn_sdpa(&a));
        answer("by threads", out, 2 * HEADS * VDIM, NULL, 0);
    }
    a.exec = NULL;
    for (int cuts = 1; cuts < 32; cuts++) {                      /* every set of cuts at 128, 256, .. 640 */
        for (int from = 0, to = 1; from < 6; from = to++) {
            while (to < 6 && !(cuts >> (to - 1) & 1)) to++;
            a.k = keys + from * 128 * KV * DIM;
            a.v = values + from * 128 * KV * VDIM;
            a.n_k = to == 6 ? LONG - from * 128 : (to - from) * 128;
            a.carry_in = from ? states : NULL;
            a.carry_out = to == 6 ? NULL : states;
            a.out = to == 6 ? out : NULL;
            ok(attn_sdpa(&a));
        }
        answer("in pieces", out, 2 * HEADS * VDIM, NULL, 0);
    }
    a.k = keys;
    a.v = values;
    a.n_k = LONG;
    a.carry_in = NULL;
    a.out = NULL;
    a.carry_out = parts;
    a.parts = 6;
    a.exec = &threads[5];
    ok(attn_sdpa(&a));
    a.carry_out = states;
    ok(attn_fold(&a, parts, 6));
    a.carry_out = NULL;
    a.carry_in = states;
    a.out = out;
    a.parts = 0;
    a.n_k = 0;
    ok(attn_sdpa(&a));
    answer("folded", out, 2 * HEADS * VDIM, NULL, 0);
    ask();
    ok(attn_merge(parts, parts + 3 * n, n / ATTN_STATE(VDIM), VDIM));
    answer("merged", parts, 6 * n, NULL, 0);
    free(keys);
    free(values);
    free(states);
    free(parts);
}

/* ---- a cache: keys appended in any way, stored anywhere --------------------------------------------------------- */

static attn_kv cache_of(int entries, attn_storage storage)
{
    attn_kv_args a = {0};
    attn_kv c;
    a.batch = entries;
    a.kv_heads = KV;
    a.head_dim = DIM;
    a.v_head_dim = VDIM;
    a.capacity = NK;
    a.k_storage = a.v_storage = storage;
    ok(attn_kv_init(&c, &a));
    return c;
}

/* appends rows from .. to - 1 of the first sequence to entry e */
static void append(attn_kv *c, int e, int from, int to)
{
    ok(attn_kv_append(c, e, k + from * KV * DIM, v + from * KV * VDIM, to - from, 0));
}

static void from_cache(const attn_kv *c, int entry, int window, const char *way)
{
    attn_args a = base(1, NQ, 0);
    a.k = a.v = NULL;
    a.kv = c;
    a.k_map = &entry;
    a.lse = lse;
    a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    a.window_left = window;
    ok(attn_sdpa(&a));
    answer(way, out, O, lse, HEADS * NQ);
}

static void part_cache(void)
{
    attn_kv c = cache_of(B, ATTN_F32), other = cache_of(1, ATTN_F32);
    static const int map[B] = { 2, 0, 1, 0 };
    attn_args a = base(1, NQ, NK);
    ask();
    a.lse = lse;
    a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    ok(attn_sdpa(&a));
    answer("of plain rows", out, O, lse, HEADS * NQ);
    append(&c, 0, 0, NK);
    from_cache(&c, 0, 0, "of a cache");
    for (int from = 0, n = 1; from < NK; from += n, n = n % 37 + 2) append(&c, 1, from, from + n < NK ? from + n : NK);
    from_cache(&c, 1, 0, "of a cache that grew");
    ok(attn_kv_copy(&c, 2, 1, 200));
    append(&c, 2, 200, NK);  /* its first page is shared, its second one copied */
    from_cache(&c, 2, 0, "of shared pages");
    ok(attn_kv_truncate(&c, 1, 131));
    append(&c, 1, 131, NK);
    from_cache(&c, 1, 0, "of rows that were taken back");
    ok(attn_kv_reorder(&c, map));
    from_cache(&c, 3, 0, "of beams");
    const size_t size = attn_kv_saved(&c, 3);
    void *bytes = malloc(size);
    if (!bytes) exit(2);
    ok(attn_kv_save(&c, 3, bytes, size));
    ok(attn_kv_load(&other, 0, bytes, size));
    from_cache(&other, 0, 0, "of saved bytes");
    free(bytes);
    attn_kv_reset(&other, 0);                                    /* token by token, after a prompt of any length */
    for (int prompt = NK - NQ; prompt < NK; prompt += 13) {
        attn_kv_truncate(&other, 0, 0);
        append(&other, 0, 0, NK - NQ);
        for (int i = 0, n; i < NQ; i += n) {
            n = i == 0 && prompt > NK - NQ ? prompt - (NK - NQ) : 1;
            attn_args s = base(1, n, 0);
            s.q = q + i * HEADS * DIM;
            s.k = k + (NK - NQ + i) * KV * DIM;
            s.v = v + (NK - NQ + i) * KV * VDIM;
            s.out = out + i * HEADS * VDIM;
            s.exec = &threads[1 + i % 8];
            ok(attn_self_step(&other, &s));
        }
        answer("token by token", out, O, lse, HEADS * NQ);
    }
    ask();
    from_cache(&c, 0, 100, "of a window");
    ok(attn_kv_forget(&c, 0, 0, NK - NQ - 100));
    from_cache(&c, 0, 100, "of a window that forgets");
    attn_kv_free(&c);
    attn_kv_free(&other);
}

/* ---- 16 bits: the bits of floats filled with the rounded values ------------------------------------------------ */

static void part_storage(void)
{
    for (int format = ATTN_F16; format <= ATTN_BF16; format++) {
        float *const kept_k = k, *const kept_v = v;
        unsigned short *narrow = (unsigned short *)malloc(K * sizeof *narrow);
        attn_kv c = cache_of(1, (attn_storage)format), floats = cache_of(1, ATTN_F32);
        if (!narrow) exit(2);
        append(&c, 0, 0, NK);
        k = some(K, 0, 0);
        v = some(V, 0, 0);
        ok(attn_narrow(narrow, kept_k, K, (attn_storage)format));
        ok(attn_widen(k, narrow, K, (attn_storage)format));
        ok(attn_narrow(narrow, kept_v, V, (attn_storage)format));
        ok(attn_widen(v, narrow, V, (attn_storage)format));
        append(&floats, 0, 0, NK);
        ask();
        answer("", k, K, v, V);
        ask();
        from_cache(&floats, 0, 0, "of rounded floats");
        from_cache(&c, 0, 0, "of 16 bits");
        free(k);
        free(v);
        k = kept_k;
        v = kept_v;
        attn_kv_free(&c);
        attn_kv_free(&floats);
        free(narrow);
    }
}

/* ---- layers ---------------------------------------------------------------------------------------------------- */

enum { WIDE = 320, ROWS = 20, HEAD = 16 };                       /* longer than one chain of 256 inputs */

/* An output gate of tanh(0.75), as in 10_gated_cross.c. */
static void gate(float *y, int n)
{
    static const float g = 0.635148942f;                         /* a constant alone may have more precision */
    for (int i = 0; i < n; i++) y[i] *= g;
}

static void part_layers(void)
{
    float *w = some(WIDE * WIDE, 91, 0.125f), *x = some(2 * ROWS * WIDE, 92, 2), *y = some(2 * ROWS * WIDE, 0, 0);
    float *table = some(ROWS * HEAD, 0, 0);
    const int lengths[2] = { ROWS, 7 };
    attn_mha_args make = {0};
    attn_mha_opts o = {0};
    attn_kv_args size = {0};
    attn_mha m;
    attn_kv c;
    ok(attn_rope_table(table, ROWS, HEAD, NULL, 10000));
    make.d_model = WIDE;
    make.heads = HEADS;
    make.kv_heads = KV;
    make.head_dim = HEAD;
    make.w_q = w;
    make.w_k = w + 9;
    make.w_v = w + 99;
    make.w_o = w + 999;
    make.b_q = x;
    make.b_o = x + 1;
    make.q_norm = make.k_norm = x + 500;
    make.rope_table = table;
    make.positions = ROWS;
    size.batch = 2;
    size.kv_heads = KV;
    size.head_dim = HEAD;
    size.capacity = ROWS;
    for (int format = ATTN_F32; format <= ATTN_BF16; format++) {
        make.storage = (attn_storage)format;
        ok(attn_mha_init(&m, &make));
        o.attn.backend = now.by;
        o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
        o.attn.q_lengths = o.attn.k_lengths = lengths;
        ask();
        ok(attn_mha_self(&m, y, x, 2, ROWS, &o));
        gate(y, 2 * ROWS * WIDE);
        answer("", table, ROWS * HEAD, y, 2 * ROWS * WIDE);
        o.attn.exec = &threads[3];
        ok(attn_mha_self(&m, y, x, 2, ROWS, &o));
        gate(y, 2 * ROWS * WIDE);
        answer("by threads", table, ROWS * HEAD, y, 2 * ROWS * WIDE);
        o.attn.exec = NULL;
        o.attn.causal = ATTN_CAUSAL_NONE;
        o.attn.k_lengths = NULL;
        for (int piece = 1; piece < ROWS; piece += 6) {          /* in steps, both entries together */
            ok(attn_kv_init(&c, &size));
            memset(y, 0, 2 * ROWS * WIDE * sizeof *y);
            for (int i = 0; i < ROWS; i += piece) {
                const int n = ROWS - i < piece ? ROWS - i : piece;
                const int counts[2] = { n, lengths[1] - i < 0 ? 0 : lengths[1] - i < n ? lengths[1] - i : n };
                float *now_x = some(2 * (size_t)n * WIDE, 0, 0), *now_y = some(2 * (size_t)n * WIDE, 0, 0);
                for (int b = 0; b < 2; b++)
                    memcpy(now_x + b * n * WIDE, x + (b * ROWS + i) * WIDE, (size_t)n * WIDE * sizeof *x);
                o.attn.q_lengths = counts;
                ok(attn_mha_self_step(&m, now_y, now_x, 2, n, &c, &o));
                for (int b = 0; b < 2; b++)
                    memcpy(y + (b * ROWS + i) * WIDE, now_y + b * n * WIDE, (size_t)n * WIDE * sizeof *x);
                free(now_x);
                free(now_y);
            }
            gate(y, 2 * ROWS * WIDE);
            answer("in steps", table, ROWS * HEAD, y, 2 * ROWS * WIDE);
            attn_kv_free(&c);
        }
        attn_mha_free(&m);
    }
    make.rope_table = NULL;
    make.storage = ATTN_F32;  /* and to another sequence, from its rows or a cache */
    size.capacity = 2 * ROWS;
    o = (attn_mha_opts){0};
    o.attn.backend = now.by;
    ok(attn_mha_init(&m, &make));
    ok(attn_kv_init(&c, &size));
    ask();
    ok(attn_mha_cross(&m, y, x + WIDE, 2, 3, x, ROWS, &o));
    answer("", y, 6 * WIDE, NULL, 0);
    ok(attn_mha_cross_fill(&m, &c, x, 2, ROWS, NULL, &o));
    o.attn.exec = &threads[8];
    ok(attn_mha_cross_step(&m, y, x + WIDE, 2, 3, &c, &o));
    answer("of a cache", y, 6 * WIDE, NULL, 0);
    attn_kv_free(&c);
    attn_mha_free(&m);
    free(w);
    free(x);
    free(y);
    free(table);
}

/* ---- a whole model, computed only by the code here and attn.h ---------------------------------------------------- */

enum { LAYERS = 2, MODEL = 64, HIDDEN = 160, WORDS = 128, PROMPT = 40, TOKENS = 240, MODEL_HEAD = 16 };

static struct {
    attn_mha attention[LAYERS];
    attn_linear gate[LAYERS], up[LAYERS], down[LAYERS], classifier;
    attn_kv cache[LAYERS];
    float *words, *norm, *rope, *x, *y, *z, *a, *b, *logits;
} model;

/* a * b + c. The product of two floats is exact in double: whether a compiler fuses the two makes no difference. */
static float mul_add(float a, float b, float c) { return (float)((double)a * b + c); }

/* exp without -lm: 2^k * e^r with r in -0.35 .. 0.35 */
static float exp_of(float x)
{
    if (!(x > -87)) return 0;
    if (x > 88) x = 88;
    const int n = (int)mul_add(x, 1.44269504f, x < 0 ? -0.5f : 0.5f);
    const float r = mul_add((float)n, 2.12194440e-4f, mul_add((float)n, -0.693359375f, x));      /* ln 2 in two parts */
    float e = 1 / 720.f, power;
    e = mul_add(r, e, 1 / 120.f);
    e = mul_add(r, e, 1 / 24.f);
    e = mul_add(r, e, 1 / 6.f);
    e = mul_add(r, e, 0.5f);
    e = mul_add(r, e, 1);
    e = mul_add(r, e, 1);
    const unsigned u = (unsigned)(n + 127) << 23;
    memcpy(&power, &u, sizeof power);
    return e * power;
}

static void rms_norm(float *y, const float *x, const float *weight, int rows)
{
    for (int r = 0; r < rows; r++, x += MODEL, y += MODEL) {
        double sum = 0, root = 1, last;
        for (int i = 0; i < MODEL; i++) sum += (double)x[i] * x[i];                      /* exact products again */
        sum = sum / MODEL + 1e-5;
        if (sum > 1) root = sum;
        do {  /* Heron's method, from above */
            last = root;
            root = (last + sum / last) / 2;
        } while (root < last);
        const float factor = (float)(1 / root);
        for (int i = 0; i < MODEL; i++) y[i] = (float)(x[i] * factor) * weight[i];
    }
}

/* The logits of rows after the previous ones. */
static void step(const int *tokens, int n, float *logits, const attn_exec *exec)
{
    attn_mha_opts o = {0};
    o.attn.exec = exec;
    for (int i = 0; i < n; i++) memcpy(model.x + i * MODEL, model.words + tokens[i] * MODEL, MODEL * sizeof(float));
    for (int l = 0; l < LAYERS; l++) {
        rms_norm(model.y, model.x, model.norm, n);
        ok(attn_mha_self_step(&model.attention[l], model.z, model.y, 1, n, &model.cache[l], &o));
        for (int i = 0; i < n * MODEL; i++) model.x[i] += model.z[i];
        rms_norm(model.y, model.x, model.norm + MODEL, n);
        ok(attn_linear_run(&model.gate[l], model.a, model.y, n, 0, exec));
        ok(attn_linear_run(&model.up[l], model.b, model.y, n, 0, exec));
        for (int i = 0; i < n * HIDDEN; i++)                     /* SwiGLU */
            model.a[i] *= (float)(model.b[i] / (float)(1 + exp_of(-model.a[i])));
        ok(attn_linear_run(&model.down[l], model.z, model.a, n, 0, exec));
        for (int i = 0; i < n * MODEL; i++) model.x[i] += model.z[i];
    }
    rms_norm(model.y, model.x, model.norm + 2 * MODEL, n);
    ok(attn_linear_run(&model.classifier, logits, model.y, n, 0, exec));
}

/* Draws a token with probability proportional to exp of its logit; sums are in double, in order. */
static int pick(const float *logits, unsigned *seed)
{
    double sum = 0, reached = 0, p[WORDS];
    float most = logits[0];
    for (int i = 1; i < WORDS; i++) if (logits[i] > most) most = logits[i];
    for (int i = 0; i < WORDS; i++) sum += p[i] = exp_of(logits[i] - most);
    const double wanted = (double)(draw(seed) >> 8) / 16777216 * sum;                    /* only compared */
    for (int i = 0; i < WORDS; i++) if ((reached += p[i]) > wanted) return i;
    return WORDS - 1;
}

static void linear(attn_linear *l, int n_in, int n_out, unsigned seed, attn_storage storage)
{
    attn_linear_args a = {0};
    float *w = some((size_t)n_in * (size_t)n_out, seed, 0.25f);
    a.n_in = n_in;
    a.n_out = n_out;
    a.w = w;
    a.storage = storage;
    ok(attn_linear_init(l, &a));
    free(w);
}

static void model_init(attn_storage storage)
{
    float *w = some(4 * MODEL * MODEL, 101, 0.25f);
    attn_mha_args a = {0};
    attn_kv_args size = {0};
    a.d_model = MODEL;
    a.heads = HEADS;
    a.kv_heads = KV;
    a.storage = storage;
    a.rope_table = model.rope;
    a.positions = TOKENS;
    a.rope_interleaved = 1;
    size.batch = 1;
    size.kv_heads = KV;
    size.head_dim = MODEL_HEAD;
    size.capacity = TOKENS;
    size.k_storage = size.v_storage = storage;
    for (int l = 0; l < LAYERS; l++) {
        a.w_q = w + l;
        a.w_k = w + l + MODEL * MODEL;
        a.w_v = w + l + MODEL * MODEL * 3 / 2;
        a.w_o = w + l + 2 * MODEL * MODEL;
        ok(attn_mha_init(&model.attention[l], &a));
        ok(attn_kv_init(&model.cache[l], &size));
        linear(&model.gate[l], MODEL, HIDDEN, 110u + (unsigned)l, storage);
        linear(&model.up[l], MODEL, HIDDEN, 120u + (unsigned)l, storage);
        linear(&model.down[l], HIDDEN, MODEL, 130u + (unsigned)l, storage);
    }
    linear(&model.classifier, MODEL, WORDS, 140, storage);
    free(w);
}

static void model_free(void)
{
    for (int l = 0; l < LAYERS; l++) {
        attn_mha_free(&model.attention[l]);
        attn_kv_free(&model.cache[l]);
        attn_linear_free(&model.gate[l]);
        attn_linear_free(&model.up[l]);
        attn_linear_free(&model.down[l]);
    }
    attn_linear_free(&model.classifier);
}

static void part_model(void)
{
    float *floats = some(WORDS * MODEL + 3 * MODEL + TOKENS * (MODEL_HEAD + 3 * MODEL + 2 * HIDDEN + WORDS), 100, 1);
    model.words = floats;
    model.norm = model.words + WORDS * MODEL;
    model.rope = model.norm + 3 * MODEL;
    model.x = model.rope + TOKENS * MODEL_HEAD;
    model.y = model.x + TOKENS * MODEL;
    model.z = model.y + TOKENS * MODEL;
    model.a = model.z + TOKENS * MODEL;
    model.b = model.a + TOKENS * HIDDEN;
    model.logits = model.b + TOKENS * HIDDEN;
    ok(attn_rope_table(model.rope, TOKENS, MODEL_HEAD, NULL, 10000));
    for (int storage = ATTN_F32; storage <= ATTN_F16; storage++) {
        int tokens[TOKENS + 1], n = PROMPT;
        float said[TOKENS];
        unsigned seed = 7;
        for (int i = 0; i < PROMPT; i++) tokens[i] = (int)(draw(&seed) % WORDS);
        model_init((attn_storage)storage);
        step(tokens, PROMPT, model.logits, NULL);                /* the whole prompt, then token by token */
        for (; n < TOKENS; n++) {
            tokens[n] = pick(model.logits + (n - 1) * WORDS, &seed);
            step(tokens + n, 1, model.logits + n * WORDS, &threads[1 + n % 8]);
        }
        for (int i = 0; i < TOKENS; i++) said[i] = (float)tokens[i];
        ask();
        answer("", said, TOKENS, model.logits, TOKENS * WORDS);
        for (int piece = 1; piece <= TOKENS; piece = 3 * piece + 5) {                   /* repeated in pieces */
            for (int l = 0; l < LAYERS; l++) ok(attn_kv_reset(&model.cache[l], -1));
            memset(model.logits, 0, TOKENS * WORDS * sizeof(float));
            for (int i = 0; i < TOKENS; i += piece)
                step(tokens + i, TOKENS - i < piece ? TOKENS - i : piece, model.logits + i * WORDS,
                     &threads[1 + i % 8]);
            answer("in pieces", said, TOKENS, model.logits, TOKENS * WORDS);
        }
        model_free();
    }
    free(floats);
}

/* ---- all parts --------------------------------------------------------------------------------------------------- */

/* The hashes of each part: with fused multiply-add, and of SSE2 and wasm, which round each product. */
static const struct { const char *name; void (*run)(void); int by_backend; bits fused, apart; } list[] = {
    { "batch",   part_batch,   1, 0x386D17C54B3EA799ull, 0xF6A5B52E5FCD8B7Cull },
    { "masks",   part_masks,   1, 0xCF5FA5E3C31CC5F0ull, 0x93E0802634A1EB17ull },
    { "pieces",  part_pieces,  1, 0xA2569088CE00BA25ull, 0x804C43B5FFC7D083ull },
    { "cache",   part_cache,   1, 0x5ACE79D5C0849BBCull, 0x4442E0615C26D707ull },
    { "storage", part_storage, 1, 0x01CE9133DCC5276Full, 0xF3E725C6201BBDC7ull },
    { "layers",  part_layers,  1, 0xCE6C35D452CD82B5ull, 0xA19C345EBD3C958Dull },
    { "model",   part_model,   0, 0x7342B4216281FE66ull, 0xF5DC3F8924EB3A77ull },
};
enum { PARTS = sizeof list / sizeof *list };

static void print_hash(const char *before, bits h, const char *after)
{
    printf("%s%08lX%08lX%s\n", before, (unsigned long)(h >> 32), (unsigned long)(h & 0xFFFFFFFFu), after);
}

/* Returns the hash of one part on one backend. */
static bits part(int i, attn_backend by)
{
    now.part = list[i].name;
    now.by = by;
    now.all = 0xCBF29CE484222325ull;
    now.answers = 0;
    list[i].run();
    if (now.loud) {
        printf("%-8s by %-7s %3d answers  ", now.part, attn_backend_name(by), now.answers);
        print_hash("", now.all, now.all == list[i].fused ? "  as with fused multiply-add"
                              : now.all == list[i].apart ? "  as with each product rounded" : "  UNKNOWN");
    }
    return now.all;
}

int main(int argc, char **argv)
{
    bits number;
    attn_backend best[1];
    int as_fused = 0, as_apart = 0, scalar_differs = 0;
    now.loud = argc > 1 && !strcmp(argv[1], "-v");
    if (argc > 1 + now.loud) return puts("usage: same_bits [-v]"), 2;
    if (attn_backends(best, 1) < 1) return 2;
    threads_init();
    q = some(B * Q, 1, 2);
    k = some(B * K, 2, 2);
    v = some(B * V, 3, 1);
    out = some(B * O, 0, 0);
    lse = some(B * HEADS * NQ, 0, 0);
    weights = some(HEADS * NQ * NK, 0, 0);
    for (int i = 0; i < PARTS; i++) {
        const bits here = part(i, best[0]);
        as_fused += here == list[i].fused;
        as_apart += here == list[i].apart;
        if (best[0] != ATTN_SCALAR && list[i].by_backend) scalar_differs += part(i, ATTN_SCALAR) != list[i].fused;
    }
    free(q);
    free(k);
    free(v);
    free(out);
    free(lse);
    free(weights);
    number = spec_number_here(now.loud);
    print_hash("", number, "");
    if (now.differ) printf("one machine, several answers: %d of them differ from the first (-v)\n", now.differ);
    if (scalar_differs) printf("the specification gives other bits in %d parts (-v)\n", scalar_differs);
    if (number == spec_number && as_fused == PARTS) puts("the number of every machine with fused multiply-add");
    else if (number == spec_number_apart && as_apart == PARTS && (best[0] == ATTN_SSE2 || best[0] == ATTN_WASM)) {
        puts("the number of machines without fused multiply-add (sse2, wasm), which round each product;");
        print_hash("the number of all others: ", spec_number, "");
    } else {
        print_hash("NOT the number of every machine with fused multiply-add, ", spec_number, "");
        printf("%d of %d parts have its bits (-v)\n", as_fused, (int)PARTS);
        return 1;
    }
    return now.differ || scalar_differs;
}
