/* cross.c: the fixed cases of golden.c on every backend of this machine, one line for each:
 *
 *     golden <backend> <same as golden.h> <cases> <hash over all results>
 *
 * tests/checks/cross.sh builds it for every available target and prints the table. A backend without fma (sse2, wasm)
 * has other bits, the same on every machine: its last column shows this.
 *
 *   -DCROSS_ONLY=ATTN_AVX512     only this backend, on any processor: its instructions are emulated (simde/) */
#ifdef CROSS_ONLY
#define ATTN_STATIC                       /* the word of CPU features is needed */
#endif
#ifndef CROSS_LINKED                      /* the implementation is another object */
#define ATTN_IMPLEMENTATION
#include "hide.h"
#endif
#include "attn.h"
#include "golden_cases.h"

#include <stdio.h>

#ifdef CROSS_ONLY
#include "golden.c"                       /* one translation unit: attn.h is static here */
#endif

int main(int argc, char **argv)
{
    attn_backend list[16];
    int n, b, i;
#ifdef CROSS_ONLY
    attn__cpu_word = 1u | 1u << ATTN_SCALAR | 1u << CROSS_ONLY;
    list[0] = CROSS_ONLY;
    n = attn_backends(NULL, 0) == 2;      /* this one and scalar */
    if (!n) puts("golden none 0 0 0");
#else
    n = attn_backends(list, 16);
#endif
    for (b = 0; b < n; b++) {
        int same = 0;
        unsigned long high = 0x811C9DC5ul, low = 0x9DC5811Cul;
        for (i = 0; i < golden_count; i++) {
            const uint64_t h = golden_run(&golden_cases[i], list[b], NULL);
            if (h && h == golden_expected(golden_cases[i].name)) same++;
            else if (argc > 1 && argv[1]) printf("  \"%s\" on %s: %08lX%08lX\n", golden_cases[i].name, attn_backend_name(list[b]),
                                      (unsigned long)(h >> 32), (unsigned long)(h & 0xFFFFFFFFul));
            high = ((high ^ (unsigned long)(h >> 32)) * 0x01000193ul) & 0xFFFFFFFFul;
            low = ((low ^ (unsigned long)(h & 0xFFFFFFFFul)) * 0x01000193ul) & 0xFFFFFFFFul;
        }
        printf("golden %s %d %d %08lX%08lX\n", attn_backend_name(list[b]), same, golden_count, high, low);
    }
    return n < 1;
}
