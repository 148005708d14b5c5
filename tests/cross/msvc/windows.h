/* The little of Microsoft's headers that attn.h touches, so that `clang --target=x86_64-pc-windows-msvc -fsyntax-only`
 * can read its MSVC branches where no Windows SDK is (tests/cross.sh). Nothing here runs. */
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
void YieldProcessor(void);
void GetSystemInfo(SYSTEM_INFO *info);
LONG InterlockedIncrement(LONG volatile *x);
LONG InterlockedExchange(LONG volatile *x, LONG to);
#endif
