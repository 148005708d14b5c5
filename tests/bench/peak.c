/* peak.c: the peak speed of this machine, measured in the same run under the same noise. Written with
 * intrinsics, independent of attn.h: Y is a 6 x 16 tile of depth 64 on data that stay in L1, the shape of the kernels
 * for AVX2 everywhere; the 12 x 32 tile is the same for AVX-512. Also plain reading, for shapes that are bound by
 * memory. */
#include <string.h>

#include "bench.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define X86 1
#else
#define X86 0
#endif

enum { DEPTH = 64 };

#if X86
#define AVX2 __attribute__((target("avx2,fma"), noinline))
/* keeps compilers from removing the second of two identical calls */
#define AGAIN(a, b, c) __asm__ __volatile__("" : : "r"(a), "r"(b), "r"(c) : "memory")
#define AVX512 __attribute__((target("avx512f"), noinline))

static float tile_a[6 * DEPTH] __attribute__((aligned(64))), tile_b[DEPTH * 16] __attribute__((aligned(64)));

AVX2 static void tile_6x16(const float *a, const float *b, float *c)
{
    __m256 c00 = _mm256_setzero_ps(), c01 = c00, c10 = c00, c11 = c00, c20 = c00, c21 = c00;
    __m256 c30 = c00, c31 = c00, c40 = c00, c41 = c00, c50 = c00, c51 = c00;
    for (int t = 0; t < DEPTH; t++, a++, b += 16) {
        const __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8);
        __m256 x;
        x = _mm256_broadcast_ss(a);             c00 = _mm256_fmadd_ps(x, b0, c00); c01 = _mm256_fmadd_ps(x, b1, c01);
        x = _mm256_broadcast_ss(a + DEPTH);     c10 = _mm256_fmadd_ps(x, b0, c10); c11 = _mm256_fmadd_ps(x, b1, c11);
        x = _mm256_broadcast_ss(a + 2 * DEPTH); c20 = _mm256_fmadd_ps(x, b0, c20); c21 = _mm256_fmadd_ps(x, b1, c21);
        x = _mm256_broadcast_ss(a + 3 * DEPTH); c30 = _mm256_fmadd_ps(x, b0, c30); c31 = _mm256_fmadd_ps(x, b1, c31);
        x = _mm256_broadcast_ss(a + 4 * DEPTH); c40 = _mm256_fmadd_ps(x, b0, c40); c41 = _mm256_fmadd_ps(x, b1, c41);
        x = _mm256_broadcast_ss(a + 5 * DEPTH); c50 = _mm256_fmadd_ps(x, b0, c50); c51 = _mm256_fmadd_ps(x, b1, c51);
    }
    _mm256_store_ps(c, c00);      _mm256_store_ps(c + 8, c01);
    _mm256_store_ps(c + 16, c10); _mm256_store_ps(c + 24, c11);
    _mm256_store_ps(c + 32, c20); _mm256_store_ps(c + 40, c21);
    _mm256_store_ps(c + 48, c30); _mm256_store_ps(c + 56, c31);
    _mm256_store_ps(c + 64, c40); _mm256_store_ps(c + 72, c41);
    _mm256_store_ps(c + 80, c50); _mm256_store_ps(c + 88, c51);
}

/* the same with 12 rows x two vectors of 16 */
#define ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define ZERO(r) __m512 c##r##_0 = _mm512_setzero_ps(), c##r##_1 = _mm512_setzero_ps();
#define STEP(r) x = _mm512_set1_ps(a[r * DEPTH]); c##r##_0 = _mm512_fmadd_ps(x, b0, c##r##_0); \
                c##r##_1 = _mm512_fmadd_ps(x, b1, c##r##_1);
#define KEEP(r) _mm512_storeu_ps(c + r * 32, c##r##_0); _mm512_storeu_ps(c + r * 32 + 16, c##r##_1);
static float wide_a[12 * DEPTH] __attribute__((aligned(64))), wide_b[DEPTH * 32] __attribute__((aligned(64)));

AVX512 static void tile_12x32(const float *a, const float *b, float *c)
{
    ROWS(ZERO)
    for (int t = 0; t < DEPTH; t++, a++, b += 32) {
        const __m512 b0 = _mm512_load_ps(b), b1 = _mm512_load_ps(b + 16);
        __m512 x;
        ROWS(STEP)
    }
    ROWS(KEEP)
}

AVX2 static float read_avx2(const float *x, size_t n, int streams)
{
    const size_t part = n / (size_t)streams / 32 * 32;
    const size_t apart = streams > 1 ? part : 0;
    const float *x1 = x + apart, *x2 = x + 2 * apart, *x3 = x + 3 * apart;
    __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
    float sum[8];
    if (streams > 1) {
        for (size_t i = 0; i < part; i += 16) {
            s0 = _mm256_add_ps(s0, _mm256_loadu_ps(x + i));  s0 = _mm256_add_ps(s0, _mm256_loadu_ps(x + i + 8));
            s1 = _mm256_add_ps(s1, _mm256_loadu_ps(x1 + i)); s1 = _mm256_add_ps(s1, _mm256_loadu_ps(x1 + i + 8));
            s2 = _mm256_add_ps(s2, _mm256_loadu_ps(x2 + i)); s2 = _mm256_add_ps(s2, _mm256_loadu_ps(x2 + i + 8));
            s3 = _mm256_add_ps(s3, _mm256_loadu_ps(x3 + i)); s3 = _mm256_add_ps(s3, _mm256_loadu_ps(x3 + i + 8));
        }
    } else {
        for (size_t i = 0; i < part; i += 32) {
            s0 = _mm256_add_ps(s0, _mm256_loadu_ps(x + i));
            s1 = _mm256_add_ps(s1, _mm256_loadu_ps(x + i + 8));
            s2 = _mm256_add_ps(s2, _mm256_loadu_ps(x + i + 16));
            s3 = _mm256_add_ps(s3, _mm256_loadu_ps(x + i + 24));
        }
    }
    _mm256_storeu_ps(sum, _mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(s2, s3)));
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}
#endif

static int avx2_here(void)
{
#if X86
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}

int yard512_here(void)
{
#if X86
    return __builtin_cpu_supports("avx512f") != 0;
#else
    return 0;
#endif
}

const char *yard_name(void) { return avx2_here() ? "6x16 AVX2 tile" : "NO AVX2 HERE: a 4x4 tile in plain C"; }

static float plain_a[4 * DEPTH], plain_b[4 * DEPTH], plain_c[16];
static volatile float keep;

static void tile_plain(const float *a, const float *b, float *c)
{
    for (int r = 0; r < 4; r++) {
        float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
        for (int t = 0; t < DEPTH; t++) {
            const float x = a[r * DEPTH + t];
            c0 += x * b[t * 4];
            c1 += x * b[t * 4 + 1];
            c2 += x * b[t * 4 + 2];
            c3 += x * b[t * 4 + 3];
        }
        c[r * 4] = c0;
        c[r * 4 + 1] = c1;
        c[r * 4 + 2] = c2;
        c[r * 4 + 3] = c3;
    }
}

/* Numbers as in an attention: multiplying zeros could be cheaper. */
void yard_begin(void)
{
    bench_fill(plain_a, 4 * DEPTH, 1);
    bench_fill(plain_b, 4 * DEPTH, 2);
#if X86
    bench_fill(tile_a, 6 * DEPTH, 1);
    bench_fill(tile_b, DEPTH * 16, 2);
    bench_fill(wide_a, 12 * DEPTH, 1);
    bench_fill(wide_b, DEPTH * 32, 2);
#endif
}

double yard_flops(int calls)
{
#if X86
    if (avx2_here()) {
        float c[6 * 16] __attribute__((aligned(64)));       /* one for every thread: they must not share lines */
        for (int i = 0; i < calls; i++) {
            tile_6x16(tile_a, tile_b, c);
            AGAIN(tile_a, tile_b, c);
        }
        return 2.0 * 6 * 16 * DEPTH * calls;
    }
#endif
    for (int i = 0; i < calls; i++) {
        plain_a[i % DEPTH] = (float)i;                      /* makes the calls different */
        tile_plain(plain_a, plain_b, plain_c);
        keep += plain_c[0];
    }
    return 2.0 * 16 * DEPTH * calls;
}

double yard512_flops(int calls)
{
#if X86
    float c[12 * 32] __attribute__((aligned(64)));
    for (int i = 0; i < calls; i++) {
        tile_12x32(wide_a, wide_b, c);
        AGAIN(wide_a, wide_b, c);
    }
#endif
    return 2.0 * 12 * 32 * DEPTH * calls;
}

float yard_read(const float *x, size_t n, int streams)
{
    float sum = 0;
#if X86
    if (avx2_here()) return read_avx2(x, n, streams);
#endif
    (void)streams;
    for (size_t i = 0; i + 4 <= n; i += 4) sum += x[i] + x[i + 1] + x[i + 2] + x[i + 3];
    return sum;
}
