/* no_prefetch.c: attn.h compiled without prefetches, for --ahead in tables.c. */
#define ATTN__FETCH(p) ((void)(p))
#define ATTN_STATIC
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "bench.h"

attn_status bench_sdpa_alone(const attn_args *a) { return attn_sdpa(a); }
