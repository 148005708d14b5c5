/* The implementation as a user compiles it, except for hide.h and refused.h. Every test links against this object;
   the benchmark and make count do so without the harness. */
#ifndef NO_HARNESS
#include "refused.h"
#endif
#define ATTN_IMPLEMENTATION
#include "hide.h"
#include "attn.h"
