/* The functions for a microcontroller: the masks of examples/01_three_masks.c, and a hash of the results of attn_self,
   attn_cross and attn_sdpa. Everything is scalar; the hash is that of every other machine. tests/checks/small.sh builds
   it for minimal size and runs it in qemu: with ATTN_STATIC the compiler leaves out unused functions. */
#ifndef SMALL_IN_PARTS                    /* with it, the implementation is linked: any build of attn.h */
#define ATTN_STATIC
#define ATTN_NO_STDIO
#define ATTN_NO_LAYERS
#define ATTN_IMPLEMENTATION
#endif
#include "attn.h"
#include <stdio.h>

#ifndef SMALL_N
#define SMALL_N 40
#endif
#ifndef SMALL_HEADS
#define SMALL_HEADS 2
#endif
enum { N = SMALL_N, HEADS = SMALL_HEADS, DIM = 20, FLOATS = N * HEADS * DIM };
static float q[FLOATS], k[FLOATS], v[FLOATS], out[FLOATS];

static void show(const char *title, const float *mask, int n_q, int n_k, const char *const *rows, const char *const *columns)
{
    static char text[1000];
    attn_mask_format(text, sizeof text, mask, n_q, n_k, rows, columns);
    puts(title);
    puts(text);
}

/* of bytes, the lowest first, whatever the machine's order: FNV-1a */
static unsigned hash(unsigned h)
{
    for (int i = 0; i < FLOATS; i++) {
        union { float f; unsigned u; } x;
        x.f = out[i];
        for (int b = 0; b < 4; b++) h = (h ^ (x.u >> 8 * b & 255)) * 16777619u;
    }
    return h;
}

static void fill(float *x, unsigned seed)
{
    for (int i = 0; i < FLOATS; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int)(seed >> 8 & 0xffff) / 16384.0f - 2.0f;
    }
}

int main(void)
{
    static const char *const mi[] = { "<s>", "Mi", "chiamo", "Luke", "</s>", "<pad>" };
    static const char *const my[] = { "<s>", "My", "name", "is", "Luke", "</s>", "<pad>", "<pad>" };
    static const int source[] = { 1, 11, 12, 13, 2, 0 }, target[] = { 1, 21, 22, 23, 13, 2, 0, 0 };
    static float mask[64], causal[64];
    const int lengths[1] = { N * 5 / 6 };
    unsigned h = 2166136261u;
    attn_args a;

    attn_mask_padding(mask, source, 0, 1, 6);
    show("encoder: padding", mask, 6, 6, mi, mi);
    attn_mask_padding(mask, target, 0, 1, 8);
    attn_mask_causal(causal, 8, 8, 0);
    attn_mask_merge(mask, 1, causal, 1, 8, 8);
    show("decoder: causal and padding", mask, 8, 8, my, my);
    attn_mask_cross(mask, source, 0, 1, 8, 6);
    show("cross: the padding of the source", mask, 8, 6, my, mi);

    fill(q, 1);
    fill(k, 2);
    fill(v, 3);
    if (attn_self(out, q, k, v, 1, N, HEADS, DIM, 1, lengths, NULL) != ATTN_OK) return 1;
    h = hash(h);
    if (attn_cross(out, q, k, v, 2, N / 2, N / 2, HEADS, DIM, NULL, NULL) != ATTN_OK) return 1;
    h = hash(h);
    a = attn_args_for(1, N, N, HEADS, DIM);
    a.out = out;
    a.q = q;
    a.k = k;
    a.v = v;
    a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    a.window_left = 7;
    a.softcap = 3;
    if (attn_sdpa(&a) != ATTN_OK) return 1;
    h = hash(h);
    {
        char line[] = "hash 00000000";
        for (int i = 0; i < 8; i++) line[5 + i] = "0123456789abcdef"[h >> (28 - 4 * i) & 15];
        puts(line);                                           /* printf would be larger than attn.h */
    }
    return 0;
}
