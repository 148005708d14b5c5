/* pass.h: replaces attn.h when it includes itself, once for each instruction set. cl accepts the intrinsics of every
 * instruction set everywhere and emits them only where they are used; clang accepts them only in functions with a
 * target attribute. Compiling the whole file for AVX-512 would use AVX-512 everywhere. */
#if ATTN__ISA == 3
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#define CROSS_PUSHED
#elif ATTN__ISA == 4
#define CROSS_PUSHED
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vnni,avx2,fma,f16c"))), apply_to = function)
#endif
#include "attn.h"
#ifdef CROSS_PUSHED
#undef CROSS_PUSHED
#pragma clang attribute pop
#endif
