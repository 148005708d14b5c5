/* for tests/support/control.h, which may be included first: the compiler's xmmintrin.h defines names that immintrin.h here
   replaces */
#include "immintrin.h"
