/* harness.h: what harness.c offers to main.c, cases.c, soak.c and pool.h alone. Tests include test.h. */
#ifndef HARNESS_H
#define HARNESS_H

#include "test.h"

enum { TEST_PASSED, TEST_FAILED, TEST_SKIPPED };
int test_run(const char *suite, const test_case *t);       /* runs one test, prints one line, returns one of these */
double test_seconds(void);                /* seconds since an arbitrary start; use only differences */
extern const char *test_note;             /* NULL, or the current activity: printed on a crash */

#endif
