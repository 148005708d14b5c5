/* turns.h: the interface of each attn.h that turns.c compares. */
#ifndef TURNS_H
#define TURNS_H

#include <stddef.h>

typedef struct turns_side {
    /* Sets up a call of shape number `shape`. Returns NULL if the shape does not read a cache. A job must be ended
       before the next one is made. */
    void *(*make)(int shape, int from_cache, int threads);
    void (*end)(void *job);                                 /* frees its memory */
    void (*run)(void *job);
    const float *(*out)(void *job, size_t *floats);         /* its output */
} turns_side;

#endif
