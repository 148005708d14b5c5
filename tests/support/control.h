/* control.h: the floating-point control word of this thread, for tests that simulate a hostile host. HAVE_CONTROL is
 * defined where the word can be set. */
#ifndef CONTROL_H
#define CONTROL_H

#include "test.h"

#if defined(__GNUC__) || defined(__clang__)
#define CONTROL static inline __attribute__((unused))
#else
#define CONTROL static inline
#endif

#if defined(__SSE__) || defined(_M_X64)
#include <xmmintrin.h>
#define HAVE_CONTROL 1
typedef unsigned control_word;
#define CONTROL_FLAGS ((control_word)0x3F)
#if defined(__i386__) && defined(__GNUC__)
/* Conversions of 64 bits use the x87 unit, which then rounds as the host sets it, and has separate flags. A denormal
   that passes through it (a float that a function returns) is no error. */
CONTROL control_word control_all(void)
{
    unsigned short flags;
    __asm__ __volatile__("fnstsw %0" : "=a"(flags) : : "memory");
    return _mm_getcsr() | (flags & 0x3Du);
}
CONTROL void control_set(control_word w)
{
    unsigned short control;
    __asm__ __volatile__("fnclex\n\tfnstcw %0" : "=m"(control) : : "memory");
    control = (unsigned short)((control & 0xF3FFu) | (w >> 3 & 0x0C00u));
    __asm__ __volatile__("fldcw %0" : : "m"(control) : "memory");
    _mm_setcsr(w);
}
#else
CONTROL control_word control_all(void) { return _mm_getcsr(); }                 /* with the sticky exception flags */
CONTROL void control_set(control_word w) { _mm_setcsr(w); }
#endif
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_CONTROL 1
typedef uint64_t control_word;            /* FPCR, above it FPSR: the sticky flags */
#define CONTROL_FLAGS (~UINT64_C(0) << 32)
CONTROL control_word control_all(void)
{
    uint64_t control, flags;
    __asm__ __volatile__("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control), "=r"(flags) : : "memory");
    return (control & 0xFFFFFFFFu) | flags << 32;
}
CONTROL void control_set(control_word w)
{
    uint64_t control = w & 0xFFFFFFFFu, flags = w >> 32;
    __asm__ __volatile__("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(control), "r"(flags) : "memory");
}
#else                                     /* one register; control_all leaves its sticky flags out */
#if defined(__GNUC__) && defined(__arm__) && defined(__ARM_FP)
typedef unsigned control_word;
#define CONTROL_BITS 0x07F79F00u
#define CONTROL_GET "vmrs %0, fpscr" : "=r"(w) : : "memory"
#define CONTROL_SET "vmsr fpscr, %0" : : "r"(w) : "memory"
#elif defined(__riscv_flen)
typedef unsigned long control_word;
#define CONTROL_BITS 0xE0u
#define CONTROL_GET "frcsr %0" : "=r"(w) : : "memory"
#define CONTROL_SET "fscsr %0" : : "r"(w) : "memory"
#elif defined(__s390x__)
typedef unsigned control_word;
#define CONTROL_BITS 0xFC000007u
#define CONTROL_GET "efpc %0" : "=d"(w) : : "memory"
#define CONTROL_SET "sfpc %0" : : "d"(w) : "memory"
#elif defined(__GNUC__) && defined(__powerpc64__)
typedef uint64_t control_word;
#define CONTROL_BITS 0xFFu
#define CONTROL_GET "mffs 0\n\tstfd 0, %0" : "=m"(w) : : "fr0"
#define CONTROL_SET "lfd 0, %0\n\tmtfsf 255, 0" : : "m"(w) : "fr0"
#endif
#ifdef CONTROL_GET
#define HAVE_CONTROL 1
#define CONTROL_FLAGS ((control_word)0)
CONTROL control_word control_all(void)
{
    control_word w;
    __asm__ __volatile__(CONTROL_GET);
    return w & CONTROL_BITS;
}
CONTROL void control_set(control_word w) { __asm__ __volatile__(CONTROL_SET); }
#endif
#endif

#ifdef HAVE_CONTROL
CONTROL control_word control_get(void) { return control_all() & ~CONTROL_FLAGS; }
/* Settings of hosts: flush denormals; round down, up, toward zero; trap. All at once. */
#if defined(__SSE__) || defined(_M_X64)
static const control_word control_hostile[] = {
    0x1F80u | 0x8040u,                                      /* flush to zero, denormals are zero */
    0x1F80u | 0x2000u, 0x1F80u | 0x4000u, 0x1F80u | 0x6000u,
    (0x1F80u & ~0x0680u) | 0xE040u,                         /* traps on invalid, division, overflow; flushed, to zero */
    0x0000u,                                                /* all traps, including inexact and denormal */
    0x0000u | 0xC000u,                                      /* the same, rounding up, flush to zero */
};
#elif defined(__aarch64__)                                  /* traps: most of these CPUs have none */
static const control_word control_hostile[] = {
    UINT64_C(1) << 24, UINT64_C(1) << 22, UINT64_C(2) << 22, UINT64_C(3) << 22, UINT64_C(7) << 22,
};
#elif defined(__arm__)      /* flush to zero; rounding up, down, toward zero; the default NaN, toward zero, flushing */
static const control_word control_hostile[] = {1u << 24, 1u << 22, 2u << 22, 3u << 22, 0x03C00000u};
#elif defined(__riscv_flen)                                 /* to zero, down, up, ties away */
static const control_word control_hostile[] = {1u << 5, 2u << 5, 3u << 5, 4u << 5};
#elif defined(__s390x__)                                    /* to zero, up, down; that with traps */
static const control_word control_hostile[] = {1u, 2u, 3u, 0xC0000003u};
#else                                                       /* POWER: to zero, up, down; that with traps */
static const control_word control_hostile[] = {1u, 2u, 3u, 0x93u};
#endif
#if defined(__SSE_MATH__) || defined(_M_X64) || defined(__aarch64__) || defined(__arm__)
#define HAVE_FLUSH 1    /* control_hostile[0] flushes denormals of this program's own arithmetic alone */
#endif
enum { CONTROL_HOSTILE = (int)(sizeof control_hostile / sizeof control_hostile[0]) };

/* An executor of foreign threads, each with different hostile settings. `lost` counts the tasks that did not restore
   the control word. */
typedef struct control_pool {
    void (*task)(void *arg, int i);
    void *arg;
    control_word word;
    int lost;
} control_pool;

CONTROL void control_task(void *p, int i)
{
    control_pool *j = (control_pool *)p;
    const control_word before = control_all();
    control_word after;
    control_set(j->word);
    j->task(j->arg, i);
    after = control_all();
    control_set(before);
    if (after != j->word) __atomic_fetch_add(&j->lost, 1, __ATOMIC_RELAXED);
}

CONTROL void control_run(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    control_pool *j = (control_pool *)pool;
    attn_exec inner = test_exec(3);
    j->task = task, j->arg = arg;
    inner.run(inner.pool, n, control_task, j);
}

CONTROL attn_exec control_exec(control_pool *j, control_word word)
{
    attn_exec e;
    memset(j, 0, sizeof *j);
    memset(&e, 0, sizeof e);
    j->word = word;
    e.pool = j, e.width = 3, e.run = control_run;
    return e;
}
#endif
#endif
