/* sizes.c: sizes of memory that 32 and 64 bits compute must be the same, over random shapes near the limits of 32 bits.
 * A product that wraps in 32 bits would give a workspace that is too small.
 *
 *   sizes > FILE       writes the sizes, one per line, -: not available here
 *   sizes -c < FILE    compares the sizes of this machine with those that 64 bits wrote
 *
 * 32 bits may compute less by the bytes that their structs are smaller, and may answer "too large" if the call has no
 * room in an address space of 32 bits. tests/checks/cross.sh runs it for the targets with 32 bits. */
#ifndef CROSS_LINKED                      /* the implementation is another object */
#define ATTN_IMPLEMENTATION
#endif
#include "attn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
static const u64 none = ~0ull, half = 1ull << 31;         /* too large for memory; the largest object of 32 bits */
static u64 state = 88172645463325252ull;
static int compares;
static long compared, differ;
enum { TIMES = 50000 };

static unsigned draw(unsigned n)
{
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return (unsigned)((state >> 32) % n);
}

/* Sets n sizes whose product is about 2^bits: most are small, one to three of them large. */
static void draw_sizes(int *size, int n, int bits)
{
    const int large = 1 + (int)draw(3);
    int i, left = bits;
    for (i = 0; i < n; i++) {
        size[i] = draw(3) ? 0 : (int)draw(4);
        left -= size[i];
    }
    for (i = 0; i < large && left > 0; i++) {
        int *at = size + draw((unsigned)n), more = i + 1 < large ? (int)draw((unsigned)left) + 1 : left;
        if (more > 30 - *at) more = 30 - *at;
        *at += more;
        left -= more;
    }
    for (i = 0; i < n; i++) {             /* a power of two, a neighbour of it, or any number below it */
        const int power = 1 << size[i], of = (int)draw(3);
        size[i] = of == 0 ? power : of == 1 ? power + (int)draw(5) - 2 : power - (int)draw((unsigned)power);
        if (size[i] < 1) size[i] = 1;
    }
}

/* Writes a size, or compares it. less: bytes that structs of 32 bits may be smaller; object: the largest array of the
   caller, which may be too large for 32 bits. */
static void check(const char *kind, int present, size_t size, u64 less, u64 object, const int *shape, int n)
{
    const u64 here = size == (size_t)-1 ? none : size;
    char line[64];
    u64 there;
    int i, right;
    if (!compares) {
        if (present) printf("%llx\n", here); else puts("-");
        return;
    }
    if (!fgets(line, sizeof line, stdin)) { puts("the file is too short"); exit(2); }
    if (!present || line[0] == '-') return;
    there = strtoull(line, NULL, 16);
    compared++;
    if (here != none) right = there != none && here <= there && here + less >= there;
    else right = there == none || there + 256 >= half || object >= half;
    if (right) return;
    if (differ++ >= 20) return;
    printf("%s:", kind);
    for (i = 0; i < n; i++) printf(" %d", shape[i]);
    printf(": %llu bytes, with 64 bits %llu\n", here, there);
}

static void no_run(void *pool, int n, void (*task)(void *, int), void *arg) { (void)pool; (void)n; (void)task; (void)arg; }

/* Bytes that the structs of a workspace may be smaller: a slot and 1536 rows for each task, entries of the batch. */
static u64 structs(int threads, int batch) { return (u64)threads * (1536 * 32 + 16384) + (u64)batch * 64 + 4096; }

static const attn_backend backend[] = { ATTN_SCALAR, ATTN_SSE2, ATTN_AVX2, ATTN_AVX512, ATTN_NEON };
enum { BACKENDS = sizeof backend / sizeof backend[0] };

static int usable(attn_backend b)
{
    attn_backend list[16];
    int i, n = attn_backends(list, 16);
    for (i = 0; i < n; i++) if (list[i] == b) return 1;
    return 0;
}

/* attn_sdpa: batch, K/V heads, heads of each, rows, keys, head_dim, v_head_dim, threads */
static void one_call(void)
{
    int size[8], b;
    u64 q, k, v, out;
    attn_exec exec;
    attn_args a;
    memset(&a, 0, sizeof a);
    draw_sizes(size, 7, 24 + (int)draw(14));
    size[7] = draw(2) ? 1 : 1 << draw(8);
    exec.pool = NULL; exec.width = size[7]; exec.run = no_run;
    a.batch = size[0]; a.kv_heads = size[1]; a.heads = size[1] * size[2];
    a.n_q = size[3]; a.n_k = size[4]; a.head_dim = size[5]; a.v_head_dim = size[6];
    a.exec = &exec;
    if ((u64)size[1] * (u64)size[2] > 1u << 30) a.heads = size[1];
    q = 4ull * (u64)a.batch * (u64)a.heads * (u64)a.n_q;
    out = q * (u64)a.v_head_dim; q *= (u64)a.head_dim;
    k = 4ull * (u64)a.batch * (u64)a.kv_heads * (u64)a.n_k;
    v = k * (u64)a.v_head_dim; k *= (u64)a.head_dim;
    if (k > q) q = k;
    if (v > q) q = v;
    if (out > q) q = out;
    for (b = 0; b < BACKENDS; b++) {
        a.backend = backend[b];
        check(attn_backend_name(backend[b]), usable(backend[b]), attn_sdpa_workspace(&a), structs(size[7], a.batch), q,
              size, 8);
    }
}

/* A call over a cache, whose memory is never written. */
static void one_cached_call(void)
{
    int size[8], b;
    attn_exec exec;
    attn_kv_args s;
    attn_args a;
    attn_kv c;
    u64 bytes;
    int made;
    memset(&a, 0, sizeof a);
    memset(&s, 0, sizeof s);
    draw_sizes(size, 5, 16 + (int)draw(12));
    size[5] = draw(2) ? 1 : 1 << draw(8);
    size[6] = (int)draw(3); size[7] = draw(3) == 0;
    if (size[4] > size[3] && size[7]) { const int t = size[3]; size[3] = size[4]; size[4] = t; }
    s.batch = 1; s.kv_heads = size[0]; s.capacity = 16; s.pages = 1; s.head_dim = size[3]; s.v_head_dim = size[4];
    s.k_storage = s.v_storage = (attn_storage)size[6]; s.v_in_k = size[7];
    bytes = 16ull * (u64)size[0] * 4 * ((u64)size[3] + (u64)size[4] + 16);
    made = bytes < half / 4 && attn_kv_init(&c, &s) == ATTN_OK;
    exec.pool = NULL; exec.width = size[5]; exec.run = no_run;
    if (made) {
        a.kv = &c; a.batch = 1; a.kv_heads = size[0]; a.heads = size[0] * size[1]; a.n_q = size[2];
        a.head_dim = size[3]; a.v_head_dim = size[4]; a.exec = &exec;
    }
    for (b = 0; b < BACKENDS; b++) {
        u64 rows = 4ull * (u64)a.heads * (u64)a.n_q;
        a.backend = backend[b];
        rows *= (u64)(a.head_dim > a.v_head_dim ? a.head_dim : a.v_head_dim);
        check("cache", made && usable(backend[b]), made ? attn_sdpa_workspace(&a) : 0, structs(size[5], 1), rows, size, 8);
    }
    if (made) attn_kv_free(&c);
}

/* Caches, linears, layers: the same number. */
static void one_object(void)
{
    int size[8];
    attn_kv_args c;
    attn_linear_args l;
    attn_mha_args m;
    memset(&c, 0, sizeof c);
    memset(&l, 0, sizeof l);
    memset(&m, 0, sizeof m);
    draw_sizes(size, 6, 20 + (int)draw(18));
    size[6] = (int)draw(3); size[7] = (int)draw(3);
    c.batch = size[0]; c.kv_heads = size[1]; c.head_dim = size[2]; c.v_head_dim = size[3]; c.capacity = size[4];
    c.pages = draw(2) ? size[5] : 0; c.k_storage = (attn_storage)size[6]; c.v_storage = (attn_storage)size[7];
    check("attn_kv_size", 1, attn_kv_size(&c), 0, 0, size, 8);
    draw_sizes(size, 2, 22 + (int)draw(14));
    l.n_in = size[0]; l.n_out = size[1]; l.storage = (attn_storage)size[6];
    check("attn_linear_size", 1, attn_linear_size(&l), 0, 0, size, 2);
    draw_sizes(size, 5, 14 + (int)draw(18));
    m.d_model = size[0]; m.kv_heads = size[1]; m.heads = size[1]; m.head_dim = size[2]; m.v_head_dim = size[3];
    m.d_key = size[4]; m.storage = (attn_storage)size[6];
    check("attn_mha_size", 1, attn_mha_size(&m), 0, 0, size, 5);
}

static float weights[64 * 64];

/* attn_mha_workspace: a small layer, many rows and keys */
static void one_layer(void)
{
    int size[7], b;
    const int width = 1 << draw(7);
    attn_exec exec;
    attn_mha_opts o;
    attn_mha_args s;
    attn_mha m;
    int made;
    memset(&o, 0, sizeof o);
    memset(&s, 0, sizeof s);
    draw_sizes(size, 3, 18 + (int)draw(18));
    size[3] = (int)draw(6); size[4] = 1 << draw(3); size[5] = 1 << draw(4); size[6] = (int)draw(2);
    s.d_model = s.heads = size[4]; s.head_dim = size[5] * 8 / s.heads + 1; s.v_head_dim = 64 / s.heads;
    s.w_q = s.w_k = s.w_v = s.w_o = weights;
    exec.pool = NULL; exec.width = width; exec.run = no_run;
    made = s.head_dim * s.heads <= 64 && attn_mha_init(&m, &s) == ATTN_OK;
    o.attn.exec = &exec;
    if (size[6]) { o.attn.weights = weights; o.weights_mean = 1; }
    if (size[3] == ATTN_MHA_CROSS_FILL) o.attn.weights = NULL;
    for (b = 0; b < BACKENDS; b++) {
        u64 rows = 4ull * (u64)size[0] * (u64)(size[1] > size[2] ? size[1] : size[2]) * 64;
        const u64 scores = 4ull * (u64)size[0] * (u64)size[1] * (u64)size[2];
        if (size[6] && scores > rows) rows = scores;
        o.attn.backend = backend[b];
        check("attn_mha_workspace", made && usable(backend[b]),
              made ? attn_mha_workspace(&m, (attn_mha_call)size[3], size[0], size[1], size[2], &o) : 0,
              structs(width, size[0]), rows, size, 7);
    }
    if (made) attn_mha_free(&m);
}

int main(int argc, char **argv)
{
    int i;
    compares = argc > 1 && strcmp(argv[1], "-c") == 0;
    for (i = 0; i < TIMES; i++) { one_call(); one_cached_call(); one_object(); one_layer(); }
    if (!compares) return 0;
    printf("%ld of %ld sizes the same\n", compared - differ, compared);
    return differ > 0 || compared < 3 * TIMES;
}
