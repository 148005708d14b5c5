/* sizes.c: WP on the functions with contracts in sizes.h. All values, no bounds. */
#include "sizes.h"
