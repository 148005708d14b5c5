/* fence.h: 64 bytes between the parts of work memory, guarded by the address sanitizer, which then detects accesses
 * past the end of a part inside one allocation. Compile with -include tests/support/fence.h -fsanitize=address. */
#ifndef FENCE_H
#define FENCE_H
#include <stddef.h>
/* declared here, because their header would be included before the tests define feature macros */
void __asan_poison_memory_region(const volatile void *at, size_t bytes);
void __asan_unpoison_memory_region(const volatile void *at, size_t bytes);
#define ATTN__FENCE 16
#define ATTN__GUARD(at, floats, on)                                                    \
    ((on) ? __asan_poison_memory_region((at), (size_t)(floats) * sizeof(float))        \
          : __asan_unpoison_memory_region((at), (size_t)(floats) * sizeof(float)))
#endif
