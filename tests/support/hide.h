/* hide.h: simulates an older processor on a newer one. Every test program includes it before the implementation.
 *
 *   ATTN_HIDE=avx512 make test            as on a processor without AVX-512
 *   ATTN_HIDE=avx512,avx2 make test       without AVX2 (and therefore without AVX-512)
 *   ATTN_HIDE=avx512,f16c make test       AVX2 without the instructions that convert half
 *
 * This hides only what the processor reports: with -march=native the compiler still uses all features.
 *
 * HIDE_PLAYED: the opposite, for tests/checks/coverage.sh. AVX2 and AVX-512 are available on any processor and with any
 * ATTN_HIDE: an implementation compiled so gets their instructions from cross/simde/immintrin.h. */
#ifndef HIDE_H
#define HIDE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int hide_off;                      /* for the test that simulates processors itself */

/* Returns 1 if ATTN_HIDE names this instruction set. An unknown word ends the program. */
static inline unsigned hide_has(const char *name)
{
    const char *word = hide_off ? NULL : getenv("ATTN_HIDE");
    unsigned found = 0;
    while (word && *word) {
        const size_t n = strcspn(word, ",");
        if (!(n == 4 && (!strncmp(word, "avx2", n) || !strncmp(word, "f16c", n))) &&
            !(n == 6 && !strncmp(word, "avx512", n))) {
            fprintf(stderr, "ATTN_HIDE=%s: only avx512, avx2 and f16c can be hidden\n", getenv("ATTN_HIDE"));
            exit(2);
        }
        if (strlen(name) == n && !strncmp(word, name, n)) found = 1;
        word += n + (word[n] == ',');
    }
    return found;
}

#ifdef HIDE_PLAYED                        /* follows "word &" */
#define ATTN_CPU_MASK                                                                                                  \
    1u << ATTN_SSE2 | 1u << ATTN_AVX2 | 1u << ATTN_AVX512 | 1u << ATTN__CPU_VNNI | \
    (1u - hide_has("f16c")) << ATTN__CPU_F16C
#else
#define ATTN_CPU_MASK                                                                                                  \
    (~(hide_has("avx512") << ATTN_AVX512 | hide_has("avx2") * (1u << ATTN_AVX2 | 1u << ATTN_AVX512) |                  \
       hide_has("f16c") << ATTN__CPU_F16C))
#endif

#endif
