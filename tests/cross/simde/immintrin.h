/* Stands in for the compiler's <immintrin.h>: AVX2 and AVX-512 emulated in plain C by SIMDe (libsimde-dev), so that
 * the kernels run on CPUs without them. Use: -Itests/cross/simde -DATTN__MSAN (inline assembly is not allowed), with
 * CROSS_ONLY (cross.c) or HIDE_PLAYED (hide.h). */
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

/* Functions that SIMDe 0.7.4 lacks, as loops. Those of a newer SIMDe are replaced, so that both give the same
   results. */
typedef simde__mmask8 __mmask8;
typedef simde__mmask16 __mmask16;

static inline simde__m512 cross_maskz_loadu(simde__mmask16 k, const float *p)
{
    float x[16] = { 0 };
    int i;
    for (i = 0; i < 16; i++)
        if (k >> i & 1) x[i] = p[i];                 /* the other elements may not be read */
    return simde_mm512_loadu_ps(x);
}
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps cross_maskz_loadu

/* SIMDe 0.7.4 reads all eight */
static inline simde__m256 cross_maskload(const float *p, simde__m256i mask)
{
    float x[8] = { 0 };
    int32_t lane[8];
    int i;
    memcpy(lane, &mask, sizeof lane);
    for (i = 0; i < 8; i++)
        if (lane[i] < 0) x[i] = p[i];
    return simde_mm256_loadu_ps(x);
}
#undef _mm256_maskload_ps
#define _mm256_maskload_ps cross_maskload

static inline simde__m512 cross_shuffle_f32x4(simde__m512 a, simde__m512 b, int which)
{
    float x[16], y[16], z[16];
    int i;
    simde_mm512_storeu_ps(x, a);
    simde_mm512_storeu_ps(y, b);
    for (i = 0; i < 4; i++) memcpy(z + 4 * i, (i < 2 ? x : y) + 4 * (which >> 2 * i & 3), 16);
    return simde_mm512_loadu_ps(z);
}
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4 cross_shuffle_f32x4

/* conversions between vectors, number by number */
#define CROSS_CONVERT(name, to_vector, to_type, from_vector, from_type, n)                                             \
    static inline to_vector name(from_vector a)                                                                        \
    {                                                                                                                  \
        from_type from[n];                                                                                             \
        to_type to[n];                                                                                                 \
        to_vector result;                                                                                              \
        int i;                                                                                                         \
        memcpy(from, &a, sizeof from);                                                                                 \
        for (i = 0; i < n; i++) to[i] = (to_type)from[i];                                                              \
        memcpy(&result, to, sizeof result);                                                                            \
        return result;                                                                                                 \
    }
CROSS_CONVERT(cross_cvtepu8, simde__m512i, int32_t, simde__m128i, uint8_t, 16)
CROSS_CONVERT(cross_cvtepu16, simde__m512i, int32_t, simde__m256i, uint16_t, 16)
CROSS_CONVERT(cross_cvtepi32, simde__m256i, uint16_t, simde__m512i, int32_t, 16)
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepu8_epi32  cross_cvtepu8
#define _mm512_cvtepu16_epi32 cross_cvtepu16
#define _mm512_cvtepi32_epi16 cross_cvtepi32

/* half precision by the compiler's own type: rounded to nearest even, like the instructions */
CROSS_CONVERT(cross_cvtph512, simde__m512, float, simde__m256i, _Float16, 16)
CROSS_CONVERT(cross_cvtph256, simde__m256, float, simde__m128i, _Float16, 8)
CROSS_CONVERT(cross_cvtps512, simde__m256i, _Float16, simde__m512, float, 16)
CROSS_CONVERT(cross_cvtps256, simde__m128i, _Float16, simde__m256, float, 8)
#undef _mm512_cvtph_ps
#undef _mm256_cvtph_ps
#undef _mm512_maskz_cvtps_ph
#undef _mm256_cvtps_ph
#define _mm512_cvtph_ps cross_cvtph512
#define _mm256_cvtph_ps cross_cvtph256
#define _mm512_maskz_cvtps_ph(k, a, how) simde_mm256_maskz_mov_epi16(k, cross_cvtps512(a))
#define _mm256_cvtps_ph(a, how) cross_cvtps256(a)

/* bytes to floats: missing in some versions of SIMDe */
static inline simde__m512i cross_bytes512(simde__m128i a)
{
    signed char x[16];
    int y[16], i;
    simde_mm_storeu_si128((simde__m128i *)(void *)x, a);
    for (i = 0; i < 16; i++) y[i] = x[i];
    return simde_mm512_loadu_si512(y);
}
static inline simde__m512 cross_ints512(simde__m512i a)
{
    int x[16], i;
    float y[16];
    simde_mm512_storeu_si512(x, a);
    for (i = 0; i < 16; i++) y[i] = (float)x[i];
    return simde_mm512_loadu_ps(y);
}
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi8_epi32 cross_bytes512
#define _mm512_cvtepi32_ps cross_ints512

/* integers for 8 bits, and floats to doubles: missing in some versions of SIMDe */
static inline simde__m512i cross_near512(simde__m512 a)
{
    float x[16];
    int y[16], i;
    simde_mm512_storeu_ps(x, a);
    for (i = 0; i < 16; i++) y[i] = (int)rintf(x[i]);
    return simde_mm512_loadu_si512(y);
}
static inline simde__m512i cross_srai512(simde__m512i a, unsigned n)
{
    int x[16], i;
    simde_mm512_storeu_si512(x, a);
    for (i = 0; i < 16; i++) x[i] >>= n;
    return simde_mm512_loadu_si512(x);
}
CROSS_CONVERT(cross_to_bytes, simde__m128i, int8_t, simde__m512i, int32_t, 16)
CROSS_CONVERT(cross_doubles512, simde__m512d, double, simde__m256, float, 8)
#undef _mm512_cvtps_epi32
#undef _mm512_srai_epi32
#undef _mm512_cvtepi32_epi8
#undef _mm512_cvtps_pd
#define _mm512_cvtps_epi32 cross_near512
#define _mm512_srai_epi32 cross_srai512
#define _mm512_cvtepi32_epi8 cross_to_bytes
#define _mm512_cvtps_pd cross_doubles512

/* SIMDe rounds a fused multiply-add twice; this function rounds once */
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

/* the emulation is plain C for any x86, so no function may have a target attribute */
#define target(isa) unused
#endif
