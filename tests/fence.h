/* fence.h: 64 bytes between the parts of work memory that the address sanitizer guards, so that a part that is written or
   read beyond its end shows inside one allocation, too. Compile everything with -include tests/fence.h -fsanitize=address. */
#ifndef FENCE_H
#define FENCE_H
#include <stddef.h>
void __asan_poison_memory_region(const volatile void *at, size_t bytes);    /* their header would bring features of the system */
void __asan_unpoison_memory_region(const volatile void *at, size_t bytes);
#define ATTN__FENCE 16
#define ATTN__GUARD(at, floats, on)                                                    \
    ((on) ? __asan_poison_memory_region((at), (size_t)(floats) * sizeof(float))        \
          : __asan_unpoison_memory_region((at), (size_t)(floats) * sizeof(float)))
#endif
