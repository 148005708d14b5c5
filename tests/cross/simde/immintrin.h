/* Stands in for the compiler's <immintrin.h>: AVX2 and AVX-512 emulated in plain C by SIMDe (libsimde-dev), so that the
 * kernels run where the CPU has neither. Use: -Itests/cross/simde, with CROSS_ONLY (cross.c). */
#ifndef CROSS_SIMDE
#define CROSS_SIMDE
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#define SIMDE_NO_NATIVE
#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#include <simde/x86/avx2.h>
#include <simde/x86/fma.h>
#include <simde/x86/avx512.h>
#pragma GCC diagnostic pop

/* what SIMDe 0.7.4 lacks, from what it has */
typedef simde__mmask8 __mmask8;
typedef simde__mmask16 __mmask16;
#ifndef _mm512_maskz_slli_epi32
#define _mm512_maskz_slli_epi32(k, a, n)    simde_mm512_maskz_mov_epi32(k, simde_mm512_slli_epi32(a, n))
#endif
#ifndef _mm512_maskz_shuffle_ps
#define _mm512_maskz_shuffle_ps(k, a, b, i) simde_mm512_maskz_mov_ps(k, simde_mm512_shuffle_ps(a, b, i))
#endif
#ifndef _mm512_maskz_cvtepu8_epi32
static inline simde__m512i cross_cvtepu8(simde__mmask16 k, simde__m128i a)
{
    uint8_t from[16];
    int32_t to[16];
    int i;
    memcpy(from, &a, sizeof from);
    for (i = 0; i < 16; i++) to[i] = from[i];
    return simde_mm512_maskz_mov_epi32(k, simde_mm512_loadu_si512(to));
}
#define _mm512_maskz_cvtepu8_epi32 cross_cvtepu8
#endif

/* SIMDe rounds a fused multiply-add twice; this one is the real thing */
static inline simde__m512 cross_fmadd512(simde__m512 a, simde__m512 b, simde__m512 c)
{
    float x[16], y[16], z[16];
    int i;
    simde_mm512_storeu_ps(x, a);
    simde_mm512_storeu_ps(y, b);
    simde_mm512_storeu_ps(z, c);
    for (i = 0; i < 16; i++) z[i] = fmaf(x[i], y[i], z[i]);
    return simde_mm512_loadu_ps(z);
}
static inline simde__m256 cross_fmadd256(simde__m256 a, simde__m256 b, simde__m256 c)
{
    float x[8], y[8], z[8];
    int i;
    simde_mm256_storeu_ps(x, a);
    simde_mm256_storeu_ps(y, b);
    simde_mm256_storeu_ps(z, c);
    for (i = 0; i < 8; i++) z[i] = fmaf(x[i], y[i], z[i]);
    return simde_mm256_loadu_ps(z);
}
#undef _mm512_fmadd_ps
#undef _mm256_fmadd_ps
#define _mm512_fmadd_ps cross_fmadd512
#define _mm256_fmadd_ps cross_fmadd256

/* the emulation is plain C for any x86: no function may be compiled for more */
#define target(isa) unused
#endif
