/* 22_your_memory_and_threads.c

   The question: Who allocates memory, and on which thread does the work run?
   What you will see: the allocations of a call, and the same bits from every executor.

   Run:  cc -O2 -I. examples/22_your_memory_and_threads.c && ./a.out
   or:   cc -O2 -I. -DATTN_THREADS -pthread examples/22_your_memory_and_threads.c && ./a.out

   Where people go wrong: a library that allocates in every call, or starts threads by itself, works on a desktop and
   fails in a server, a sound card or a game. Allocate the work memory of the largest call once, and pass an executor:
   a function that runs n tasks, on the threads that you already have.

   Further reading: the THREADS and MEMORY paragraphs at the top of attn.h; Demmel and Nguyen, Fast Reproducible
   Floating-Point Summation, 2013, on why sums usually depend on the number of threads.

   Output:
       allocations of a call without work memory: 1
       allocations with it: 0, for this batch and for every smaller one
       one byte less than required: the memory given is too small
       tasks in order             the same bits as without an executor
       tasks backwards            the same bits as without an executor
       every seventh task         the same bits as without an executor
       the pool of attn.h         compile with -DATTN_THREADS -pthread
*/
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `user` is that of the call: here it points to a counter, in a program perhaps to an arena. */
static void *counted(void *user, size_t n)
{
    ++*(int *)user;
    return malloc(n);
}

static void given_back(void *user, void *p)
{
    (void)user;
    free(p);
}

#define ATTN_MALLOC(user, n) counted(user, n)
#define ATTN_FREE(user, p) given_back(user, p)
#define ATTN_SERIAL_FLOPS 0                                      /* small calls use the executor as well */
#define ATTN_IMPLEMENTATION
#include "attn.h"

enum { BATCH = 3, N = 300, HEADS = 4, DIM = 32, ALL = BATCH * N * HEADS * DIM };

static float q[ALL], k[ALL], v[ALL], alone[ALL], out[ALL];

static void ok(attn_status s)
{
    if (!s) return;
    puts(attn_status_str(s));
    exit(1);
}

/* Pseudo-random numbers in -1 .. 1 in place of a model's; the same on every machine. */
static void fill(float *x, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

/* Three executors without a thread, in one line each, as models of a job system, OpenMP or an event loop. */
static void in_order(void *pool, int n, void (*task)(void *, int), void *arg)
{
    (void)pool;
    for (int i = 0; i < n; i++) task(arg, i);
}

static void backwards(void *pool, int n, void (*task)(void *, int), void *arg)
{
    (void)pool;
    while (n-- > 0) task(arg, n);
}

static void every_seventh(void *pool, int n, void (*task)(void *, int), void *arg)
{
    (void)pool;
    for (int first = 0; first < 7; first++) for (int i = first; i < n; i += 7) task(arg, i);
}

static void with(const char *what, attn_args a, const attn_exec *exec)
{
    memset(out, 0, sizeof out);
    a.out = out;
    a.exec = exec;
    ok(attn_sdpa(&a));
    printf("%-27s%s\n", what, memcmp(out, alone, sizeof out) ? "OTHER BITS" : "the same bits as without an executor");
}

int main(void)
{
    fill(q, ALL, 1);
    fill(k, ALL, 2);
    fill(v, ALL, 3);
    attn_args a = attn_args_for(BATCH, N, N, HEADS, DIM);
    a.out = alone;
    a.q = q;
    a.k = k;
    a.v = v;
    a.causal = ATTN_CAUSAL_TOP_LEFT;
    int allocations = 0;
    a.user = &allocations;
    ok(attn_sdpa(&a));
    printf("allocations of a call without work memory: %d\n", allocations);

    /* Once, for the largest call. An executor of width 4 needs a little more, so set it before. */
    const attn_exec four = { NULL, 4, in_order };
    a.exec = &four;
    attn_args b = a;
    b.work_size = attn_sdpa_workspace(&a);
    b.work = malloc(b.work_size);
    if (!b.work) return 1;
    allocations = 0;
    for (b.batch = 1; b.batch <= BATCH; b.batch++) {
        for (b.n_q = b.n_k = 1; b.n_q <= N; b.n_k = b.n_q += 23) ok(attn_sdpa(&b));
    }
    printf("allocations with it: %d, for this batch and for every smaller one\n", allocations);
    a.work = b.work;
    a.work_size = b.work_size - 1;
    printf("one byte less than required: %s\n", attn_status_str(attn_sdpa(&a)));
    a.work_size++;

    const attn_exec back = { NULL, 4, backwards }, seventh = { NULL, 4, every_seventh };
    with("tasks in order", a, &four);
    with("tasks backwards", a, &back);
    with("every seventh task", a, &seventh);
#ifdef ATTN_THREADS
    attn_pool *pool = attn_pool_create(4);
    if (!pool) return 1;
    const attn_exec threads = attn_pool_exec(pool);
    with("the pool of attn.h", a, &threads);
    attn_pool_destroy(pool);
#else
    puts("the pool of attn.h         compile with -DATTN_THREADS -pthread");
#endif
    free(b.work);
    return 0;
}
