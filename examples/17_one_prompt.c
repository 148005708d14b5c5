/* 17_one_prompt.c

   The question: What do four answers to one prompt cost?
   What you will see: the pages that the prompt, the answers and separate copies need.

   Run:  cc -O2 -I. examples/17_one_prompt.c && ./a.out

   Where people go wrong: they run the prompt four times, or once and copy its keys four times. A copy of an entry
   shares its pages; only the last page, which the answers continue to fill, is copied, when an answer writes to it.
   A step reads a page once for all entries that share it, so four answers take little more time than one.

   Further reading: Kwon and others, PagedAttention, arxiv.org/abs/2309.06180.

   Output:
       after the prompt of 1000 tokens      8 pages
       four entries that hold it            8 pages
       each with an answer of 20 tokens    11 pages
       four prompts and answers alone      32 pages
       the last step reads 11 pages, four alone 32
       all 80 outputs: the same bits
       three answers given up               8 pages
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 1000, ANSWER = 20, ANSWERS = 4, HEADS = 4, D = 32, ROW = HEADS * D };

static float prompt[3][PROMPT * ROW], answer[ANSWER][3][ANSWERS * ROW];      /* q, k, v as projections give them */
static float together[ANSWER][ANSWERS * ROW], alone[ANSWER][ANSWERS * ROW];

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

/* Pseudo-random numbers in -1 .. 1 in place of a model's; the same on every machine. */
static void fill(float *x, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static attn_kv cache_for(int entries, int pages)
{
    attn_kv c;
    attn_kv_args room = {0};
    room.batch = entries;
    room.kv_heads = HEADS;
    room.head_dim = D;
    room.capacity = PROMPT + ANSWER;
    room.pages = pages;                                          /* 0: as if nothing were shared */
    ok(attn_kv_init(&c, &room));
    return c;
}

static void show(const char *when, int pages) { printf("%-34s %3d pages\n", when, pages); }

/* Appends one token to `entries` answers, from answer `first` on. */
static void step(attn_kv *c, int t, int first, int entries, float *out)
{
    attn_args a = attn_args_for(entries, 1, 0, HEADS, D);
    a.q = answer[t][0] + first * ROW;
    a.k = answer[t][1] + first * ROW;
    a.v = answer[t][2] + first * ROW;
    a.out = out + first * ROW;
    ok(attn_self_step(c, &a));
}

int main(void)
{
    fill(prompt[0], sizeof prompt / sizeof(float), 1);
    fill(answer[0][0], sizeof answer / sizeof(float), 2);

    attn_kv c = cache_for(ANSWERS, 11);
    ok(attn_kv_append(&c, 0, prompt[1], prompt[2], PROMPT, 0));  /* entry 0 alone */
    show("after the prompt of 1000 tokens", c.shape.pages - c.free_pages);
    for (int i = 1; i < ANSWERS; i++) ok(attn_kv_copy(&c, i, 0, PROMPT));
    show("four entries that hold it", c.shape.pages - c.free_pages);
    for (int t = 0; t < ANSWER; t++) step(&c, t, 0, ANSWERS, together[t]);
    const int shared = c.shape.pages - c.free_pages;
    show("each with an answer of 20 tokens", shared);

    int pages = 0;
    for (int i = 0; i < ANSWERS; i++) {
        attn_kv one = cache_for(1, 0);
        ok(attn_kv_append(&one, -1, prompt[1], prompt[2], PROMPT, 0));
        for (int t = 0; t < ANSWER; t++) step(&one, t, i, 1, alone[t]);
        pages += one.shape.pages - one.free_pages;
        attn_kv_free(&one);
    }
    show("four prompts and answers alone", pages);
    printf("the last step reads %d pages, four alone %d\n", shared, pages);
    printf("all %d outputs: %s\n", ANSWER * ANSWERS,
           memcmp(together, alone, sizeof alone) == 0 ? "the same bits" : "DIFFERENT");

    for (int i = 1; i < ANSWERS; i++) ok(attn_kv_reset(&c, i));
    show("three answers given up", c.shape.pages - c.free_pages);
    attn_kv_free(&c);
    return 0;
}
