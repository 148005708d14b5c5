/* logit_hash.h: one number for all logits that led to a text (option -v), to compare threads, settings and machines.
   FNV-1a, taken over numbers of 32 bits instead of bytes: for each of them hash = (hash ^ bits) * prime. */
#ifndef LISTEN_LOGIT_HASH_H
#define LISTEN_LOGIT_HASH_H
#include <string.h>

typedef unsigned long long logit_hash;
#define HASH_START 14695981039346656037ull                     /* FNV's offset basis and prime for 64 bits */
#define HASH_PRIME 1099511628211ull

static logit_hash hash_of(logit_hash h, const float *x, int n)
{
    for (int i = 0; i < n; i++) {
        unsigned bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * HASH_PRIME;
    }
    return h;
}
#endif
