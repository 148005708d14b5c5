/* msvc.c: the implementation for a compiler with MSVC's target; msvc/ replaces Microsoft's headers. */
#define ATTN_NO_STDIO
#define ATTN_THREADS
#define ATTN_IMPLEMENTATION
/* like cl: intrinsics of all instruction sets, for any target */
#if (defined(_M_X64) || defined(_M_IX86)) && !defined(__clang__)
#define __SSE3__
#define __SSSE3__
#define __SSE4_1__
#define __AVX__
#define __AVX2__
#define __FMA__
#define __F16C__
#define __AVX512F__
#define __AVX512VNNI__
#include <immintrin.h>
#undef __SSE3__
#undef __SSSE3__
#undef __SSE4_1__
#undef __AVX__
#undef __AVX2__
#undef __FMA__
#undef __F16C__
#undef __AVX512F__
#undef __AVX512VNNI__
#endif
#include "attn.h"
int _fltused;                             /* symbol that such objects expect in their C library */
