#include <stddef.h>
void *_aligned_malloc(size_t size, size_t align);
void _aligned_free(void *p);
