/* sizes.c: WP on the functions whose contracts stand in sizes.h. All values, no bounds. */
#include "sizes.h"
