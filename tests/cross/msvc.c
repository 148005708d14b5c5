/* msvc.c: the implementation as a compiler for MSVC's target sees it; msvc/ stands in for Microsoft's headers. */
#define ATTN_NO_STDIO
#define ATTN_THREADS
#define ATTN_IMPLEMENTATION
#include "attn.h"
int _fltused;                             /* what such objects expect of their C library */
