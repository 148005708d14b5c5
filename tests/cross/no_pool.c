/* no_pool.c: replaces test_pool.c for targets without ATTN_THREADS. */
#include "test.h"

static void no_pool(void)
{
#ifdef __TINYC__
    test_skip("tcc has no atomic operations, ATTN_THREADS needs them");
#else
    test_skip("there are no threads here");
#endif
}

extern const test_case suite_pool[];
SUITE(pool) = {{"all of pool", no_pool, "nothing: see test_pool.c"}, {0}};
