/* impl.c: the implementation that all fuzz targets are linked with, with the allocator that they control; and the
 * functions of the test harness that oracle.h and refused.h need: a wrong result aborts. */
#define FUZZ_IMPLEMENTATION
#include "fuzz.h"

heap the_heap;

static void *heap_get(void *user, size_t n)
{
    MUST(user == &the_heap || user == NULL);
    if (++the_heap.calls == the_heap.fail_at || n > (size_t)1 << 28) return NULL;
    the_heap.live++;
    return malloc(n ? n : 1);
}

static void heap_put(void *user, void *p)
{
    MUST(user == &the_heap || user == NULL);
    if (p) the_heap.live--;
    free(p);
}

#define ATTN_MALLOC(user, n) heap_get(user, n)
#define ATTN_FREE(user, p) heap_put(user, p)
#define ATTN_IMPLEMENTATION
#include "hide.h"
#include "test.h"

#include <stdarg.h>

struct refusal refusal;
void test_refused(void *user, int status, const char *sentence)
{
    MUST(user == &the_heap || user == NULL);
    if (status >= 0 || strncmp(sentence, "attn_", 5) != 0 || strlen(sentence) >= sizeof refusal.text ||
        strpbrk(sentence, "#$"))
        DIE("refused with status %d and the sentence \"%s\"", status, sentence);
    refusal.count++;
    refusal.status = status;
    strcpy(refusal.text, sentence);
}

long test_checks;
void test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    printf("%s:%d: ", file, line);
    vprintf(fmt, args);
    printf("\n");
    fflush(stdout);
    va_end(args);
    abort();
}
