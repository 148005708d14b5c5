/* for tests/control.h, which may come first: the compiler's own names what immintrin.h here has replaced */
#include "immintrin.h"
