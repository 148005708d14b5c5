/* main.c: the list of suites and the command line (test.h says how to use it). */
#include "harness.h"

/* A new suite is one new line here. On ELF systems a suite that was not linked is reported as skipped, so that a part
   of the tests can be built alone: cc -Itests -I. tests/main.c tests/harness.c tests/attn_impl.c tests/test_masks.c */
#define SUITES(X) X(masks) X(sparse) X(args) X(sdpa) X(math) X(poison) X(bits) X(paths) X(kv) X(pages) X(saved) \
                  X(stored) X(step) X(carry) X(linear) X(rope) X(mha) X(steps) X(storage) X(pool) X(edges)

#if defined(__ELF__) && defined(__GNUC__)
#define OPTIONAL __attribute__((weak))
#else
#define OPTIONAL
#endif

#define DECLARE(id) extern OPTIONAL const test_case suite_##id[];
SUITES(DECLARE)

typedef struct suite {
    const char *name;
    const test_case *tests;
} suite;

#define ENTRY(id) {#id, suite_##id},
static const suite suites[] = {SUITES(ENTRY)};
static const int n_suites = (int)(sizeof suites / sizeof suites[0]);

static int wanted(const char *suite_name, const char *test_name, char **words, int n_words)
{
    if (n_words == 0) return 1;
    for (int w = 0; w < n_words; w++) {
        const char *slash = strchr(words[w], '/');
        if (!slash && (strstr(suite_name, words[w]) || (test_name && strstr(test_name, words[w])))) return 1;
        if (slash && test_name && strlen(suite_name) == (size_t)(slash - words[w]) &&
            !strncmp(suite_name, words[w], strlen(suite_name)) && !strcmp(test_name, slash + 1)) return 1;
    }
    return 0;
}

static void list_tests(char **words, int n_words)
{
    for (int s = 0; s < n_suites; s++)
        for (const test_case *t = suites[s].tests; t && t->name; t++)
            if (wanted(suites[s].name, t->name, words, n_words))
                printf("%-7s %-32s %s\n", suites[s].name, t->name, t->catches ? t->catches : "");
}

static int usage(const char *program)
{
    fprintf(stderr, "usage: %s [-l] [-f] [-s seed] [-n factor] [word ...]\n"
                    "  -l         list the tests and what each would catch\n"
                    "  -f         the first failure is the last test\n"
                    "  -s seed    another seed for the random tests (default 1)\n"
                    "  -n factor  draw factor times as many random cases (default 1)\n"
                    "  word       only suites or tests whose name contains one of the words\n"
                    "             (suite/test: the one of this name)\n", program);
    return 2;
}

int main(int argc, char **argv)
{
    int listing = 0, stop = 0, n_words = 0, counts[3] = {0, 0, 0};
    char **words = argv;                                    /* the words move to the front: no room is needed */
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "-l") == 0) {
            listing = 1;
        } else if (strcmp(argv[i], "-f") == 0) {
            stop = 1;
        } else if (strcmp(argv[i], "-s") == 0 && i + 1 < argc) {
            test_seed = (uint64_t)strtoull(argv[++i], &end, 0);
            if (end == argv[i] || *end) return usage(argv[0]);
        } else if (strcmp(argv[i], "-n") == 0 && i + 1 < argc) {
            long n = strtol(argv[++i], &end, 10);
            if (end == argv[i] || *end || n < 1 || n > 100000) return usage(argv[0]);
            test_scale = (int)n;
        } else if (argv[i][0] == '-') {
            return usage(argv[0]);
        } else {
            words[1 + n_words++] = argv[i];
        }
    }
    words++;
    if (listing) {
        list_tests(words, n_words);
        return 0;
    }

    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);                  /* what was printed is seen even when a test crashes */
    printf("seed %llu, factor %d, backends:", (unsigned long long)test_seed, test_scale);
    attn_backend backends[16];
    int n_backends = test_all_backends(backends, 16);
    for (int i = 0; i < n_backends; i++) printf(" %s", attn_backend_name(backends[i]));
    printf("\n");

    for (int s = 0; s < n_suites; s++) {
        if (!suites[s].tests) {
            if (wanted(suites[s].name, NULL, words, n_words)) {
                printf("SKIPPED %s: this suite was not linked into the program\n", suites[s].name);
                counts[TEST_SKIPPED]++;
            }
            continue;
        }
        for (const test_case *t = suites[s].tests; t->name && !(stop && counts[TEST_FAILED]); t++)
            if (wanted(suites[s].name, t->name, words, n_words)) counts[test_run(suites[s].name, t)]++;
    }

    if (counts[TEST_PASSED] + counts[TEST_FAILED] + counts[TEST_SKIPPED] == 0) {
        fprintf(stderr, "no suite and no test has one of these words in its name; -l lists them\n");
        return 2;
    }
    printf("%d passed, %d failed", counts[TEST_PASSED], counts[TEST_FAILED]);
    if (counts[TEST_SKIPPED]) printf(", %d skipped", counts[TEST_SKIPPED]);
    printf("\n");
    return counts[TEST_FAILED] ? 1 : 0;
}
