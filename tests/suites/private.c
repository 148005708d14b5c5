/* private.c: suites that use more of attn.h than its API: private functions (suites math and storage), counters
 * (paths), memory that is counted, fenced, filled with garbage and made to fail (parts of args, kv, step and mha), and
 * threads in a system that refuses (pool). They share one separate implementation (ATTN_STATIC), because each takes as
 * long to compile as half of all other tests. The others run the normal one. */
#include <stddef.h>
static void *hook_malloc(void *user, size_t size);
static void hook_free(void *user, void *ptr);
static void hook_assert(int ok, const char *what, int line);
#undef ATTN_SERIAL_FLOPS
static double serial_flops;               /* calls with less work run on the caller's thread */
#define ATTN_SERIAL_FLOPS serial_flops
#define ATTN_STACK 50000
/* counts how often each path is taken, for paths.h */
enum {
    C_SCALAR, C_PACKED, C_ROWS, C_CACHE, C_GROUP, C_SPLIT, C_SELECT, C_SKIP, C_MASKED, C_ONE_ROW, C_ITEM, C_SHARED,
    C_COUNT
};
static const char *const counter_names[] = {
    "scalar", "packed", "rows", "cache", "group", "split", "select", "skip", "masked", "one_row", "item", "shared"
};
static long counters[C_COUNT];
#if defined(__GNUC__) || defined(__clang__)
#define ATTN__COUNT(name) ((void)__sync_fetch_and_add(&counters[C_##name], 1L))      /* system.h shakes __atomic_ */
#else
#define ATTN__COUNT(name) ((void)counters[C_##name]++)
#endif
#define ATTN_MALLOC(user, size) hook_malloc((user), (size))
#define ATTN_FREE(user, ptr)    hook_free((user), (ptr))
#define ATTN_ASSERT(x)          hook_assert(!!(x), #x, __LINE__)
#define ATTN_STATIC
#define ATTN_IMPLEMENTATION
#include "hide.h"
#if !defined(__wasm__) && !defined(__TINYC__)
#define ATTN_THREADS
#include "private/system.h"
#else
static int sys_grants(void) { return 1; }
static void sys_returned(void) {}
#endif
#include "answer.h"
#ifdef ATTN_THREADS
#undef pthread_mutex_init
#undef pthread_mutex_destroy
#undef pthread_cond_init
#undef pthread_cond_destroy
#undef pthread_create
#undef pthread_join
#undef sysconf
#undef gettimeofday
#undef syscall
#undef __atomic_load_n
#undef __atomic_fetch_add
#undef __atomic_exchange_n
#undef volatile
#endif
#include "control.h"
#include "q8_0.h"

#include <float.h>
#include <limits.h>

/* ---- hooks ----------------------------------------------------------------------------------------------------- */

/* From hooks_reset to hooks_done. Otherwise malloc is used unchanged. */
static struct { int watching, calls, live, fail_at; unsigned char fill; void *user; } hooks;
enum { FENCE = 64 };
typedef union head { struct { size_t size; unsigned magic; } h; unsigned char room[FENCE]; } head;

static void *hook_malloc(void *user, size_t size)
{
    unsigned char *p;
    head h;
    if (!sys_grants()) return NULL;
    if (hooks.watching) {
        CHECKF(user == hooks.user, "ATTN_MALLOC got another user pointer");
        if (hooks.calls++ == hooks.fail_at) return NULL;
        hooks.live++;
    }
    p = (unsigned char *)malloc(size + 2 * FENCE);
    if (!p) abort();
    memset(&h, 0xC3, sizeof h);
    h.h.size = size; h.h.magic = 0xA77E47u;
    memcpy(p, &h, FENCE);
    if (hooks.watching) memset(p + FENCE, hooks.fill, size);
    memset(p + FENCE + size, 0xC3, FENCE);
    return p + FENCE;
}

static void hook_free(void *user, void *ptr)
{
    unsigned char *p = (unsigned char *)ptr;
    head h;
    size_t i;
    if (hooks.watching) CHECKF(user == hooks.user, "ATTN_FREE got another user pointer");
    if (!p) return;
    sys_returned();
    p -= FENCE;
    memcpy(&h, p, FENCE);
    if (h.h.magic != 0xA77E47u) {         /* only failures are counted: several threads may be here */
        CHECKF(0, "ATTN_FREE got a pointer that ATTN_MALLOC did not give");
        return;
    }
    for (i = sizeof h.h; i < FENCE; i++) if (h.room[i] != 0xC3) CHECKF(0, "written before allocated memory");
    for (i = 0; i < FENCE; i++)
        if (p[FENCE + h.h.size + i] != 0xC3) CHECKF(0, "written past allocated memory, byte %d", (int)i);
    if (hooks.watching) hooks.live--;
    memset(p, 0xDD, h.h.size + 2 * FENCE);
    free(p);
}

static void hook_assert(int ok, const char *what, int line)
{
    if (!ok) { test_fail("attn.h", line, "ATTN_ASSERT(%s)", what); fflush(stdout); abort(); }
}

static void hooks_reset(int fail_at, unsigned char fill, void *user)
{
    hooks.watching = 1; hooks.calls = 0; hooks.fail_at = fail_at; hooks.fill = fill; hooks.user = user;
}

static void hooks_done(void) { hooks.watching = 0; }

#include "private/args_memory.h"
#include "private/layers_memory.h"
#include "private/math.h"
#include "private/paths.h"
#include "private/storage.h"
#include "private/pool.h"
