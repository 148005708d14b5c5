/* The part of Microsoft's headers that attn.h uses, so that `clang --target=x86_64-pc-windows-msvc` can compile its
 * MSVC branches without a Windows SDK (tests/checks/cross.sh links the object with mingw-w64 and runs it). */
#ifndef CROSS_WINDOWS
#define CROSS_WINDOWS
#define WINAPI   __stdcall
#define INFINITE 0xFFFFFFFF
#define near
#define far
#define small char
#define interface struct
typedef unsigned long DWORD;
typedef int BOOL;
typedef long LONG;
typedef void *HANDLE;
typedef struct { void *p; } SRWLOCK;
typedef struct { void *p; } CONDITION_VARIABLE;
typedef struct { DWORD dwNumberOfProcessors; } SYSTEM_INFO;
typedef union { long long QuadPart; } LARGE_INTEGER;
void InitializeSRWLock(SRWLOCK *l);
void AcquireSRWLockExclusive(SRWLOCK *l);
void ReleaseSRWLockExclusive(SRWLOCK *l);
void InitializeConditionVariable(CONDITION_VARIABLE *c);
BOOL SleepConditionVariableSRW(CONDITION_VARIABLE *c, SRWLOCK *l, DWORD ms, unsigned long flags);
void WakeConditionVariable(CONDITION_VARIABLE *c);
void WakeAllConditionVariable(CONDITION_VARIABLE *c);
HANDLE CreateThread(void *security, size_t stack, DWORD(WINAPI *f)(void *), void *arg, DWORD flags, DWORD *id);
DWORD WaitForSingleObject(HANDLE h, DWORD ms);
BOOL CloseHandle(HANDLE h);
DWORD GetCurrentThreadId(void);
void GetSystemInfo(SYSTEM_INFO *info);
BOOL QueryPerformanceCounter(LARGE_INTEGER *ticks);
BOOL QueryPerformanceFrequency(LARGE_INTEGER *ticks);
#define YieldProcessor() ((void)0)
static __inline LONG InterlockedExchangeAdd(LONG volatile *x, LONG by)
{
    return __atomic_fetch_add(x, by, __ATOMIC_SEQ_CST);
}
static __inline LONG InterlockedCompareExchange(LONG volatile *x, LONG to, LONG from)
{
    (void)__atomic_compare_exchange_n(x, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return from;
}
static __inline LONG InterlockedExchange(LONG volatile *x, LONG to) { return __atomic_exchange_n(x, to, __ATOMIC_SEQ_CST); }
#endif
