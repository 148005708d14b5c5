/* The implementation as a user compiles it: one file, one define. Every test links against this object. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
