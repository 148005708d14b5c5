/* turns.h: the interface of each attn.h that turns.c compares. */
#ifndef TURNS_H
#define TURNS_H

#include <stddef.h>

typedef struct turns_side {
    /* A call of shape number `shape`, made instead of the one before. NULL: it is not made from a cache */
    void *(*make)(int shape, int from_cache, int threads);
    void (*run)(void *job);
    const float *(*out)(void *job, size_t *floats);         /* its output */
} turns_side;

#endif
