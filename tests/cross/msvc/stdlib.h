#include <stddef.h>
void *malloc(size_t n);
void free(void *p);
