/* 16_long_conversation.c

   The question: What happens when a conversation is longer than the cache?
   What you will see: keys and pages of a full cache and of a sliding one, with the same bits.

   Run:  cc -O2 -I. examples/16_long_conversation.c && ./a.out

   Where people go wrong: they shift the cache by one and renumber the keys. Then rotary positions no longer fit,
   and every step moves the whole memory. Here a key keeps its position for good; whole pages of old keys are
   released, and a row whose window does not reach them has the same result.

   Further reading: Xiao and others, attention sinks, arxiv.org/abs/2309.17453: why the first keys should stay pinned.

   Output:
       a window of 100 tokens, a conversation of 3000
       the whole cache:    3000 keys,  24 pages, 3072 KB
       the sliding cache:   184 keys,   2 pages,  256 KB
       all 3000 outputs: the same bits
       key 2816 is still there; key 2815: attn_kv_read: keys 0..2815 of the entry are forgotten
*/
#define ATTN_REFUSED(user, status, sentence) puts(sentence)
#define ATTN_IMPLEMENTATION
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn.h"

enum { TOKENS = 3000, WINDOW = 100, HEADS = 4, D = 32, ROW = HEADS * D };

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_REFUSED prints the reason */

/* Pseudo-random numbers in -1 .. 1 in place of a model's; the same on every machine. */
static void fill(float *x, int n, unsigned *seed)
{
    for (int i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        x[i] = (float)(*seed >> 8) / 8388608.0f - 1.0f;
    }
}

static attn_kv cache_for(int capacity)
{
    attn_kv c;
    attn_kv_args room = {0};
    room.batch = 1;
    room.kv_heads = HEADS;
    room.head_dim = D;
    room.capacity = capacity;
    ok(attn_kv_init(&c, &room));
    return c;
}

static void show(const char *name, const attn_kv *c, int keys)
{
    printf("%-18s %5d keys, %3d pages, %4d KB\n", name, keys, c->shape.pages, (int)(attn_kv_size(&c->shape) >> 10));
}

int main(void)
{
    attn_kv whole = cache_for(TOKENS), sliding = cache_for(WINDOW + 126 + 1);  /* 1: rows a step */
    float q[ROW], k[ROW], v[ROW], expected[ROW], out[ROW];
    unsigned seed = 1;
    int same = 0;

    for (int t = 0; t < TOKENS; t++) {
        fill(q, ROW, &seed);
        fill(k, ROW, &seed);
        fill(v, ROW, &seed);  /* a decoder's projections */
        attn_args a = attn_args_for(1, 1, 0, HEADS, D);
        a.q = q;
        a.k = k;
        a.v = v;
        a.window_left = WINDOW;                                                 /* including the row's own token */
        a.out = expected;
        ok(attn_self_step(&whole, &a));

        /* the next row sees the last WINDOW keys, including its own: older keys may be forgotten */
        ok(attn_kv_forget(&sliding, 0, 0, sliding.lengths[0] + 1 - WINDOW));     /* negative at first: forgets none */
        a.out = out;
        ok(attn_self_step(&sliding, &a));
        same += memcmp(out, expected, sizeof out) == 0;
    }

    printf("a window of %d tokens, a conversation of %d\n", WINDOW, TOKENS);
    show("the whole cache:", &whole, whole.lengths[0]);
    int first = (TOKENS - WINDOW) / 128 * 128;                   /* the oldest remaining key */
    show("the sliding cache:", &sliding, TOKENS - first);
    printf("all %d outputs: %s\n", TOKENS, same == TOKENS ? "the same bits" : "DIFFERENT");
    ok(attn_kv_read(&sliding, 0, first, 1, k, v));
    printf("key %d is still there; key %d: ", first, first - 1);
    attn_kv_read(&sliding, 0, first - 1, 1, k, v);

    attn_kv_free(&whole);
    attn_kv_free(&sliding);
    return 0;
}
