/* turns_side.c: one of the two attn.h that turns.c compares. It is compiled once for each, with the shapes of cases.c
 * and the calls of attn_calls.c, into a separate library. */
#include "bench.h"
#include "turns.h"

typedef struct side { bench_case *c; void *job; } side;

static const bench_peer *way(int from_cache) { return from_cache ? &peer_attn_kv : &peer_attn; }

static void *make(int shape, int from_cache, int threads)
{
    static attn_pool *pool;
    static attn_exec exec;
    static side now;
    if (!pool) {
        pool = attn_pool_create(threads);
        exec = attn_pool_exec(pool);
    }
    now.c = bench_case_make(shape, threads > 1 ? &exec : NULL);
    now.job = way(from_cache)->prepare(way(from_cache), now.c);
    if (now.job) return &now;
    bench_case_free(now.c);
    return NULL;
}

static void end(void *job)
{
    side *s = (side *)job;
    way(0)->release(s->job);
    bench_case_free(s->c);
}

static void run(void *job) { way(0)->run(((side *)job)->job); }

static const float *out(void *job, size_t *floats)
{
    const side *s = (const side *)job;
    *floats = s->c->out_floats;
    return s->c->a.out;
}

const turns_side turns_here = { make, end, run, out };
