/* bits.c: the same attention in five ways, each hashed bit by bit. The page runs it in the browser; its test
   (tests/checks/page.sh) runs it as a plain program and under node, and compares.

   cc -O2 -DBITS_MAIN -I. examples/web/bits.c -o build/bits && build/bits     backend, form and hash, a line each

   The numbers come from integers alone, so they are exact on every machine. */
#ifdef BITS_MAIN
#define ATTN_IMPLEMENTATION
#endif
#include "attn.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BITS_N = 300, BITS_HEADS = 4, BITS_KV = 2, BITS_DIM = 32, BITS_BATCH = 3, BITS_FORMS = 5 };
enum { BITS_Q = BITS_N * BITS_HEADS * BITS_DIM, BITS_K = BITS_N * BITS_KV * BITS_DIM };

static const char *const bits_forms[BITS_FORMS] = { "one call", "steps", "batch", "parts", "tasks" };

/* about N(0, 1): the sum of four 16-bit integers, without rounding */
static float bits_number(uint32_t stream, uint32_t i)
{
    uint32_t x = stream * 0x9E3779B9u + i * 0x85EBCA6Bu + 0x165667B1u, y;
    x ^= x >> 16; x *= 0x7FEB352Du; x ^= x >> 15; x *= 0x846CA68Bu; x ^= x >> 16;
    y = x * 0x9E3779B1u; y ^= y >> 15; y *= 0x85EBCA77u; y ^= y >> 13;
    return (float)((int32_t)((x & 0xFFFFu) + (x >> 16) + (y & 0xFFFFu) + (y >> 16)) - 131070) / 32768.0f;
}

/* FNV-1a over the bytes, lowest byte of each number first */
static uint64_t bits_hash(const float *x, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, x + i, sizeof word);
        for (int b = 0; b < 32; b += 8) h = (h ^ (word >> b & 0xFFu)) * 0x100000001B3u;
    }
    return h;
}

typedef struct bits_data {                /* of three sequences; the one in the middle is hashed */
    float q[BITS_BATCH * BITS_Q], k[BITS_BATCH * BITS_K], v[BITS_BATCH * BITS_K], out[BITS_BATCH * BITS_Q];
    float states[BITS_N * BITS_HEADS * ATTN_STATE(BITS_DIM)];
} bits_data;

static attn_args bits_args(const bits_data *d, attn_backend backend)
{
    attn_args a = attn_args_for(1, BITS_N, BITS_N, BITS_HEADS, BITS_DIM);
    a.kv_heads = BITS_KV;
    a.backend = backend;
    a.causal = ATTN_CAUSAL_TOP_LEFT;
    a.q = d->q + BITS_Q;
    a.k = d->k + BITS_K;
    a.v = d->v + BITS_K;
    return a;
}

/* token by token through a cache, as in a decoder */
static attn_status bits_steps(bits_data *d, attn_args a)
{
    attn_kv past;
    attn_kv_args room = { 0 };
    room.batch = 1;
    room.kv_heads = BITS_KV;
    room.head_dim = BITS_DIM;
    room.capacity = BITS_N;
    attn_status s = attn_kv_init(&past, &room);
    a.n_q = 1;
    a.n_k = 0;
    a.causal = ATTN_CAUSAL_NONE;
    for (int i = 0; i < BITS_N && s == ATTN_OK; i++) {
        a.out = d->out + BITS_Q + i * BITS_HEADS * BITS_DIM;
        s = attn_self_step(&past, &a);
        a.q += BITS_HEADS * BITS_DIM;
        a.k += BITS_KV * BITS_DIM;
        a.v += BITS_KV * BITS_DIM;
    }
    attn_kv_free(&past);
    return s;
}

/* the keys in three parts; the state of each row is carried from one to the next */
static attn_status bits_parts(bits_data *d, attn_args a)
{
    const float *k = a.k, *v = a.v;
    attn_status s = ATTN_OK;
    for (int x = 0; x < BITS_N && s == ATTN_OK; x += 128) {
        a.k = k + x * BITS_KV * BITS_DIM;
        a.v = v + x * BITS_KV * BITS_DIM;
        a.n_k = BITS_N - x < 128 ? BITS_N - x : 128;
        a.q_pos = -x;
        a.carry_in = x > 0 ? d->states : NULL;
        a.carry_out = d->states;
        s = attn_sdpa(&a);
    }
    a.carry_in = d->states;
    a.carry_out = NULL;
    a.out = d->out + BITS_Q;
    a.n_k = 0;
    return s == ATTN_OK ? attn_sdpa(&a) : s;
}

/* running tasks from last to first has the effect of seven threads that finish in reverse order */
static void bits_backwards(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    (void)pool;
    while (n-- > 0) task(arg, n);
}

/* Returns 0 if the call was rejected or memory ran out. */
static uint64_t bits_of(int form, attn_backend backend)
{
    static const int lengths[BITS_BATCH] = { 77, BITS_N, 200 };
    const attn_exec seven = { NULL, 7, bits_backwards };
    bits_data *d = malloc(sizeof *d);
    if (!d) return 0;
    for (uint32_t i = 0; i < BITS_BATCH * BITS_Q; i++) d->q[i] = bits_number(1, i);
    for (uint32_t i = 0; i < BITS_BATCH * BITS_K; i++) d->k[i] = bits_number(2, i), d->v[i] = bits_number(3, i);
    attn_args a = bits_args(d, backend);
    attn_status s;
    a.out = d->out + BITS_Q;
    switch (form) {
    case 1: s = bits_steps(d, a); break;
    case 2:
        a.batch = BITS_BATCH;
        a.q = d->q;
        a.k = d->k;
        a.v = d->v;
        a.out = d->out;
        a.k_lengths = a.q_lengths = lengths;
        s = attn_sdpa(&a);
        break;
    case 3: s = bits_parts(d, a); break;
    case 4: a.exec = &seven; s = attn_sdpa(&a); break;
    default: s = attn_sdpa(&a);
    }
    const uint64_t h = s == ATTN_OK ? bits_hash(d->out + BITS_Q, BITS_Q) : 0;
    free(d);
    return h;
}

#ifdef BITS_MAIN
#include <stdio.h>
int main(void)
{
    attn_backend list[8];
    const int n = attn_backends(list, 8);
    for (int i = 0; i < n; i++)
        for (int f = 0; f < BITS_FORMS; f++)
            printf("%-7s %-9s %016llx\n", attn_backend_name(list[i]), bits_forms[f],
                   (unsigned long long)bits_of(f, list[i]));
    return 0;
}
#endif
