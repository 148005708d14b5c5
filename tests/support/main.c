/* main.c: the list of suites and the command line (test.h documents its use). */
#if !defined(_WIN32) && !defined(__wasm__)
#define _DEFAULT_SOURCE
#define MAIN_FORKS
#endif

#include "harness.h"

#ifdef MAIN_FORKS
#include <sys/wait.h>
#include <unistd.h>
#endif

/* A new suite is one new word here. The pool comes early, because its tests wait much and compute little, while the
   other processes work. On ELF systems a suite that was not linked is reported as skipped, so that a part
   of the tests can be built alone:
   cd tests/support && cc -I. -I../.. main.c harness.c attn_impl.c ../suites/test_masks.c */
#define SUITES(X) X(stack) X(pool) X(masks) X(sparse) X(shared) X(args) X(args_overlap) X(args_memory) \
                  X(args_levels) X(sdpa) X(math) X(poison) X(bits) X(paths) X(kv) X(pages) X(saved) X(stored) \
                  X(step) X(carry) X(linear) X(rope) X(mha) X(mha_rows) X(mha_wrong) X(mha_calls) X(steps) \
                  X(storage) X(edges) X(families) X(norms) X(delta)

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

/* Returns the status of the program: 0 if help was requested. */
static int usage(const char *program, int asked)
{
    fprintf(asked ? stdout : stderr, "usage: %s [-l] [-f] [-j processes] [-s seed] [-n factor] [word ...]\n"
                    "  -l         list the tests and what each would catch\n"
                    "  -f         the first failure is the last test\n"
                    "  -j n       n processes take the tests in turns, where the system can fork\n"
                    "  -s seed    another seed for the random tests (default 1)\n"
                    "  -n factor  draw factor times as many random cases (default 1)\n"
                    "  word       only suites or tests whose name contains one of the words\n"
                    "             (suite/test: the one of this name)\n", program);
    return asked ? 0 : 2;
}

#ifdef MAIN_FORKS
/* Returns the number of turns: one for each selected test, one for each suite that was not linked. */
static int count_turns(char **words, int n_words)
{
    int turns = 0;
    for (int s = 0; s < n_suites; s++) {
        if (!suites[s].tests) turns += wanted(suites[s].name, NULL, words, n_words);
        for (const test_case *t = suites[s].tests; t && t->name; t++)
            turns += wanted(suites[s].name, t->name, words, n_words);
    }
    return turns;
}
#endif

/* Returns the turn after `last`; with tickets, the next turn that no process has taken yet. */
static int next_turn(int tickets, int last)
{
#ifdef MAIN_FORKS
    unsigned short ticket;
    if (tickets >= 0) return read(tickets, &ticket, sizeof ticket) == (ssize_t)sizeof ticket ? ticket : -1;
#else
    (void)tickets;
#endif
    return last + 1;
}

/* Runs every turn (tickets -1), or those for which this process gets a ticket. Adds to counts[TEST_PASSED] and so
   on. */
static void run_turns(int tickets, int stop, char **words, int n_words, int *counts)
{
    int turn = 0, next = next_turn(tickets, -1);
    for (int s = 0; s < n_suites; s++) {
        if (!suites[s].tests && wanted(suites[s].name, NULL, words, n_words) && turn++ == next) {
            printf("SKIPPED %s: this suite was not linked into the program\n", suites[s].name);
            counts[TEST_SKIPPED]++;
            next = next_turn(tickets, next);
        }
        for (const test_case *t = suites[s].tests; t && t->name && !(stop && counts[TEST_FAILED]); t++)
            if (wanted(suites[s].name, t->name, words, n_words) && turn++ == next) {
                counts[test_run(suites[s].name, t)]++;
                next = next_turn(tickets, next);
            }
    }
}

/* The same in several processes, which send their counts. Each takes a ticket when it has finished the one before, so
   all end at about the same time. A process that dies is a failed test. */
static void run_processes(int processes, int stop, char **words, int n_words, int *counts)
{
#ifdef MAIN_FORKS
    int ends[2], tickets[2], turns = count_turns(words, n_words);
    if (pipe(ends) || pipe(tickets)) { perror("pipe"); exit(2); }
    for (int i = 0; i < processes; i++) {
        pid_t child = fork();
        if (child < 0) { perror("fork"); exit(2); }
        if (child > 0) continue;
        int own[3] = {0, 0, 0};
        close(ends[0]);
        close(tickets[1]);
        run_turns(tickets[0], stop, words, n_words, own);
        exit(write(ends[1], own, sizeof own) != (ssize_t)sizeof own);
    }
    close(ends[1]);
    for (int turn = 0; turn < turns; turn++) {
        const unsigned short ticket = (unsigned short)turn;
        if (write(tickets[1], &ticket, sizeof ticket) != (ssize_t)sizeof ticket) { perror("write"); exit(2); }
    }
    close(tickets[0]);
    close(tickets[1]);
    for (int own[3]; read(ends[0], own, sizeof own) == (ssize_t)sizeof own;)
        for (int i = 0; i < 3; i++) counts[i] += own[i];
    close(ends[0]);
    for (int i = 0, status; i < processes; i++)
        if (wait(&status) < 0 || status) {
            printf("FAIL one of %d processes: wait status %d\n", processes, status);
            counts[TEST_FAILED]++;
        }
    if (!stop && counts[TEST_PASSED] + counts[TEST_FAILED] + counts[TEST_SKIPPED] < turns) {
        printf("FAIL not all of %d tests have been run\n", turns);
        counts[TEST_FAILED]++;
    }
#else
    (void)processes;
    run_turns(-1, stop, words, n_words, counts);
#endif
}

int main(int argc, char **argv)
{
    int listing = 0, stop = 0, processes = 1, n_words = 0, counts[3] = {0, 0, 0};
    char **words = argv;                                    /* moves the words to the front of argv */
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "-l") == 0) {
            listing = 1;
        } else if (strcmp(argv[i], "-f") == 0) {
            stop = 1;
        } else if (strcmp(argv[i], "-j") == 0 && i + 1 < argc) {
            long n = strtol(argv[++i], &end, 10);
            if (end == argv[i] || *end || n < 1 || n > 256) return usage(argv[0], 0);
            processes = (int)n;
        } else if (strcmp(argv[i], "-s") == 0 && i + 1 < argc) {
            test_seed = (uint64_t)strtoull(argv[++i], &end, 0);
            if (end == argv[i] || *end) return usage(argv[0], 0);
        } else if (strcmp(argv[i], "-n") == 0 && i + 1 < argc) {
            long n = strtol(argv[++i], &end, 10);
            if (end == argv[i] || *end || n < 1 || n > 100000) return usage(argv[0], 0);
            test_scale = (int)n;
        } else if (argv[i][0] == '-') {
            return usage(argv[0], !strcmp(argv[i], "-h") || !strcmp(argv[i], "--help"));
        } else {
            words[1 + n_words++] = argv[i];
        }
    }
    words++;
    if (listing) {
        list_tests(words, n_words);
        return 0;
    }

    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);                  /* output appears even if a test crashes */
    printf("seed %llu, factor %d, backends:", (unsigned long long)test_seed, test_scale);
    attn_backend backends[16];
    int n_backends = test_all_backends(backends, 16);
    for (int i = 0; i < n_backends; i++) printf(" %s", attn_backend_name(backends[i]));
    printf("\n");

    if (processes > 1) run_processes(processes, stop, words, n_words, counts);
    else run_turns(-1, stop, words, n_words, counts);

    if (counts[TEST_PASSED] + counts[TEST_FAILED] + counts[TEST_SKIPPED] == 0) {
        fprintf(stderr, "no suite and no test has one of these words in its name; -l lists them\n");
        return 2;
    }
    printf("%d passed, %d failed", counts[TEST_PASSED], counts[TEST_FAILED]);
    if (counts[TEST_SKIPPED]) printf(", %d skipped", counts[TEST_SKIPPED]);
    printf("\n");
    return counts[TEST_FAILED] ? 1 : 0;
}
