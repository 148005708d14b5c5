/* 26_continuous_batching.c

   The question: How does a request join a batch that is already running?
   What you will see: the rows and pages of each step while requests join and leave.

   Run:  cc -O2 -I. examples/26_continuous_batching.c && ./a.out

   Where people go wrong: they wait until every sequence of a batch has ended, or they pad a prompt of 500 tokens to all
   entries. Here a request takes a free entry of the cache, and attn_kv_append writes to that entry alone. Each step is
   one attn_sdpa: k_map lists the entries in use, and q_cum gives a new request all rows of its prompt, the others one
   row.

   Further reading: Yu and others, Orca, usenix.org/conference/osdi22/presentation/yu.

   Output:
       step 0: A 300  B  40    .      340 rows, 4 pages
       step 1: A   1  B   1  C 150     152 rows, 6 pages
       step 2: A   1  B   1  C   1       3 rows, 6 pages
       step 3: A   1  D  20  C   1      22 rows, 6 pages
       step 4: A   1  D   1  C   1       3 rows, 6 pages
       step 5: E 500  D   1  C   1     502 rows, 7 pages
       step 6: E   1  D   1    .        2 rows, 5 pages
       step 7: E   1    .     .        1 rows, 4 pages
       A as alone: yes  B as alone: yes  C as alone: yes  D as alone: yes  E as alone: yes
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 5, SLOTS = 3, TOKENS = 512, HEADS = 4, D = 32, ROW = HEADS * D, NONE = -1 };
typedef float rows[TOKENS][ROW];
typedef struct request { int arrives, prompt, answer, entry, tokens; rows q, k, v, out; } request;

static const int sizes[REQUESTS][3] = {{0, 300, 4}, {0, 40, 2}, {1, 150, 4}, {2, 20, 3}, {4, 500, 2}};
static request all[REQUESTS];
static float q[REQUESTS * TOKENS * ROW], out[REQUESTS * TOKENS * ROW], alone[TOKENS * ROW];

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

static void fill(float *x, unsigned seed)                        /* a decoder's projections */
{
    for (int i = 0; i < TOKENS * ROW; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

/* Returns the first request that has arrived and waits for an entry, or NULL. */
static request *waiting(int step)
{
    for (int r = 0; r < REQUESTS; r++)
        if (all[r].entry == NONE && all[r].arrives <= step) return &all[r];
    return NULL;
}

int main(void)
{
    attn_kv_args room = {.batch = SLOTS, .kv_heads = HEADS, .head_dim = D, .capacity = TOKENS};
    attn_kv c;
    ok(attn_kv_init(&c, &room));
    for (unsigned r = 0; r < REQUESTS; r++) {
        all[r].arrives = sizes[r][0];
        all[r].prompt = sizes[r][1];
        all[r].answer = sizes[r][2];
        all[r].entry = NONE;
        fill(all[r].q[0], 3 * r);
        fill(all[r].k[0], 3 * r + 1);
        fill(all[r].v[0], 3 * r + 2);
    }

    request *in[SLOTS] = {0};                                    /* the request of each entry; NULL: none */
    for (int step = 0, served = 0; served < REQUESTS; step++) {
        int live = 0, map[SLOTS], cum[SLOTS + 1] = {0};
        printf("step %d:", step);
        for (int s = 0; s < SLOTS; s++) {
            if (!in[s]) {                                        /* a free entry */
                in[s] = waiting(step);
                if (in[s]) in[s]->entry = s;
            }
            request *x = in[s];
            if (!x) {
                printf("   .  ");
                continue;
            }
            const int n = x->tokens ? 1 : x->prompt;             /* new rows: the whole prompt, then one token a step */
            ok(attn_kv_append(&c, s, x->k[x->tokens], x->v[x->tokens], n, 0));
            memcpy(q + cum[live] * ROW, x->q[x->tokens], (size_t)(n * ROW) * sizeof(float));
            map[live] = s;
            cum[live + 1] = cum[live] + n;
            live++;
            printf(" %c %3d ", (char)('A' + (x - all)), n);
        }
        attn_args a = attn_args_for(live, 0, 0, HEADS, D);       /* n_q, n_k 0: the longest */
        a.out = out;
        a.q = q;
        a.q_cum = cum;
        a.kv = &c;
        a.k_map = map;
        a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        ok(attn_sdpa(&a));                                       /* one call for prompts and answers alike */
        printf("   %4d rows, %d pages\n", cum[live], c.shape.pages - c.free_pages);
        for (int i = 0; i < live; i++) {
            request *x = in[map[i]];
            const int n = cum[i + 1] - cum[i];
            memcpy(x->out[x->tokens], out + cum[i] * ROW, (size_t)(n * ROW) * sizeof(float));
            x->tokens += n;
            if (x->tokens < x->prompt + x->answer) continue;
            ok(attn_kv_reset(&c, map[i]));                       /* served: its pages are free again */
            in[map[i]] = NULL;
            served++;
        }
    }
    for (int r = 0; r < REQUESTS; r++) {
        request *x = &all[r];
        ok(attn_self(alone, x->q[0], x->k[0], x->v[0], 1, x->tokens, HEADS, D, 1, NULL, NULL));
        printf("%s%c as alone: %s", r ? "  " : "", 'A' + r,
               memcmp(alone, x->out, (size_t)(x->tokens * ROW) * sizeof(float)) ? "NO" : "yes");
    }
    printf("\n");
    attn_kv_free(&c);
    return 0;
}
