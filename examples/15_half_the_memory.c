/* 15_half_the_memory.c

   The question: A cache in 16 bits takes half the memory. How many digits does that cost?
   What you will see: bytes and errors of float, half and bfloat16.

   Run:  cc -O2 -I. examples/15_half_the_memory.c && ./a.out

   Where people go wrong: they also compute sums in 16 bits. Here a key is rounded once, when it is stored, and
   everything computed from it is float. Only the error of the keys remains, and the softmax averages it. The
   result has the bits of a float cache that holds the rounded keys.

   Further reading: the section STORAGE of attn.h; Kalamkar and others, A Study of BFLOAT16, arxiv.org/abs/1905.12322.

   Output:
       one row over 1500 keys, 8 heads of 64, N(0,1)
       storage      memory   largest error   rms error
       float       6144 KB         0.0000001   0.00000002
       half        3072 KB         0.0000444   0.00001356
       bfloat16    3072 KB         0.0003672   0.00010740
       half and rounded floats: the same bits
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 1500, HEADS = 8, D = 64, ROW = HEADS * D };

static float q[ROW], k[KEYS * ROW], v[KEYS * ROW], out[4][ROW];
static double exact[ROW];

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

static void normal(float *x, int n, unsigned *seed)              /* the sum of twelve: close to N(0,1) */
{
    for (int i = 0; i < n; i++) {
        x[i] = -6;
        for (int j = 0; j < 12; j++) {
            *seed = *seed * 1664525u + 1013904223u;
            x[i] += (float)(*seed >> 8) / 16777216.0f;
        }
    }
}

static double exp_of(double x)                                   /* Taylor near 0, squared ten times */
{
    double y = 1, term = 1;
    for (int i = 1; i < 12; i++) y += term *= x / 1024 / i;
    for (int i = 0; i < 10; i++) y *= y;
    return y;
}

static double root_of(double x)
{
    double y = 1;
    for (int i = 0; i < 60; i++) y = (y + x / y) / 2;
    return y;
}

static void in_double(void)
{
    for (int h = 0; h < HEADS; h++) {
        static double p[KEYS];
        double sum = 0;
        for (int j = 0; j < KEYS; j++) {
            double s = 0;
            for (int c = 0; c < D; c++) s += (double)q[h * D + c] * k[j * ROW + h * D + c];
            sum += p[j] = exp_of(s / 8);
        }
        for (int c = 0; c < D; c++)
            for (int j = 0; j < KEYS; j++) exact[h * D + c] += p[j] / sum * v[j * ROW + h * D + c];
    }
}

/* Attention over a cache in this storage; returns the bytes of the cache. */
static size_t over_cache(attn_storage storage, const float *keys, const float *values, float *to)
{
    attn_kv cache;
    attn_kv_args room = {0};
    room.batch = 1;
    room.kv_heads = HEADS;
    room.head_dim = D;
    room.capacity = KEYS;
    room.k_storage = room.v_storage = storage;
    ok(attn_kv_init(&cache, &room));
    ok(attn_kv_append(&cache, -1, keys, values, KEYS, 0));
    attn_args a = attn_args_for(1, 1, 0, HEADS, D);
    a.q = q;
    a.kv = &cache;
    a.out = to;
    ok(attn_sdpa(&a));
    attn_kv_free(&cache);
    return attn_kv_size(&room);
}

int main(void)
{
    static const char *names[] = { "float", "half", "bfloat16" };
    unsigned seed = 1;
    normal(q, ROW, &seed);
    normal(k, KEYS * ROW, &seed);
    normal(v, KEYS * ROW, &seed);
    in_double();

    printf("one row over %d keys, %d heads of %d, N(0,1)\n", KEYS, HEADS, D);
    puts("storage      memory   largest error   rms error");
    for (int s = ATTN_F32; s <= ATTN_BF16; s++) {
        size_t bytes = over_cache((attn_storage)s, k, v, out[s]);
        double most = 0, squares = 0;
        for (int i = 0; i < ROW; i++) {
            double e = out[s][i] > exact[i] ? out[s][i] - exact[i] : exact[i] - out[s][i];
            squares += e * e;
            if (e > most) most = e;
        }
        printf("%-10s %5d KB %17.7f %12.8f\n", names[s], (int)(bytes >> 10), most, root_of(squares / ROW));
    }

    static unsigned short half[KEYS * ROW];                      /* the rounding of the cache, by hand */
    ok(attn_narrow(half, k, KEYS * ROW, ATTN_F16));
    ok(attn_widen(k, half, KEYS * ROW, ATTN_F16));
    ok(attn_narrow(half, v, KEYS * ROW, ATTN_F16));
    ok(attn_widen(v, half, KEYS * ROW, ATTN_F16));
    over_cache(ATTN_F32, k, v, out[3]);
    printf("half and rounded floats: %s\n",
           memcmp(out[ATTN_F16], out[3], sizeof out[3]) ? "DIFFERENT" : "the same bits");
    return 0;
}
