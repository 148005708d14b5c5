/* pass.h: attn.h as it includes itself, once for each instruction set. cl takes the words of every instruction set
 * everywhere and uses none of them unasked; clang takes them only in functions that are marked so. Were the whole file
 * compiled for AVX-512, it would need it everywhere. */
#if ATTN__ISA == 3
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#define CROSS_PUSHED
#elif ATTN__ISA == 4
#define CROSS_PUSHED
#pragma clang attribute push(__attribute__((target("avx512f,avx2,fma,f16c"))), apply_to = function)
#endif
#include "attn.h"
#ifdef CROSS_PUSHED
#undef CROSS_PUSHED
#pragma clang attribute pop
#endif
