/* no_pool.c: in the place of test_pool.c where there are no threads. */
#include "test.h"
extern const test_case suite_pool[];
SUITE(pool) = {{0}};
