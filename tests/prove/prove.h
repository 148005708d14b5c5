/* prove.h: attn.h for Frama-C: scalar, everything static, no allocation. Functions that build sentences have only a
 * contract, so they are not proved. */
#define ATTN_NO_SIMD
#define ATTN_NO_STDIO
#define ATTN_STATIC
#define ATTN_MALLOC(user, n) ((void)(user), (void)(n), (void *)0)
#define ATTN_FREE(user, p) ((void)(user), (void)(p))
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "__fc_builtin.h"
#include <limits.h>

/*@ assigns *why; */
static void attn__format_part(attn__why *why, const char *sentence, ...);
/*@ assigns *why; ensures \result == status; */
static attn_status attn__fail(attn__why *why, attn_status status, const char *sentence, ...);

static int any_int(void) { return Frama_C_interval(INT_MIN, INT_MAX); }
