/* system.h: in private.c before the implementation, for pool.h. System calls of the pool that can be made to fail,
 * atomics that can be shaken, and processor features that can be missing. */
/* While armed, each request is counted, and number fail_at is refused. No other thread of this test runs then. */
static struct { int armed, calls, fail_at, live; long processors; } sys;

static int sys_grants(void)
{
    if (!sys.armed) return 1;
    if (sys.calls++ == sys.fail_at) return 0;
    sys.live++;
    return 1;
}

static void sys_returned(void) { if (sys.armed) sys.live--; }

#if !defined(_WIN32)
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#define HAVE_CALLERS 1
static int sys_mutex(pthread_mutex_t *m), sys_mutex_end(pthread_mutex_t *m);
static int sys_cond(pthread_cond_t *c), sys_cond_end(pthread_cond_t *c);
static int sys_thread(pthread_t *t, void *(*run)(void *), void *arg), sys_thread_end(pthread_t t);
static long sys_processors(void);
#define pthread_mutex_init(m, a)         sys_mutex(m)
#define pthread_mutex_destroy(m)         sys_mutex_end(m)
#define pthread_cond_init(c, a)          sys_cond(c)
#define pthread_cond_destroy(c)          sys_cond_end(c)
#define pthread_create(t, a, run, arg)   sys_thread(t, run, arg)
#define pthread_join(t, r)               sys_thread_end(t)
#define sysconf(name)                    sys_processors()
#include <sys/time.h>
static int sys_clock(struct timeval *t);
#define gettimeofday(t, zone)            sys_clock(t)
#if defined(__linux__)
#include <sys/syscall.h>
#define HAVE_PLACEMENT 1
#define syscall                          sys_call
#else
#define HAVE_PLACEMENT 0
#endif
#else
#define HAVE_CALLERS 0
#define HAVE_PLACEMENT 0
#endif

#if HAVE_CALLERS && defined(__GNUC__)
#define HAVE_SHAKING 1
static void shake(void);
#define __atomic_load_n(x, order)         (shake(), __atomic_load_n(x, order))
#define __atomic_fetch_add(x, by, order)  (shake(), __atomic_fetch_add(x, by, order))
#define __atomic_exchange_n(x, to, order) (shake(), __atomic_exchange_n(x, to, order))
#else
#define HAVE_SHAKING 0
#endif

#if defined(__GNUC__) && !defined(ATTN_NO_SIMD) && (defined(__x86_64__) || (defined(__i386__) && defined(__SSE2__)))
#include <cpuid.h>
#include <immintrin.h>
#define HAVE_CPUID 1
static unsigned cpu_leaf(unsigned leaf, int reg), cpu_os(unsigned real);
#undef __cpuid_count
#define __cpuid_count(leaf, n, a, b, c, d) \
    (a = cpu_leaf(leaf, 0), b = cpu_leaf(leaf, 1), c = cpu_leaf(leaf, 2), d = 0, (void)(d))
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wkeyword-macro"
#endif
#define volatile(...) __volatile__(__VA_ARGS__); os = cpu_os(os)          /* matches xgetbv, the only other assembly */
#else
#define HAVE_CPUID 0
#endif
