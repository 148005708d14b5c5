/* replay.c: runs a fuzz target without libFuzzer, with any compiler, on any machine.
 *
 *   cc -I. -Itests/support tests/fuzz/fuzz_args.c tests/fuzz/impl.c tests/fuzz/replay.c -lm -o build/fuzz_args
 *   build/fuzz_args file folder ...           each file once (folders on POSIX systems)
 *   build/fuzz_args -r 100000 -s 7            that many random inputs of seed 7
 *
 * The last line has the number of inputs; a wrong result aborts and leaves the random input in crash-input. */
#if !defined(_WIN32)
#define _DEFAULT_SOURCE
#include <dirent.h>
#endif
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static long inputs;

static int file(const char *name)
{
    static uint8_t data[65536];
    size_t n;
    FILE *f = fopen(name, "rb");
    if (!f) return fprintf(stderr, "cannot open %s\n", name), 1;
    n = fread(data, 1, sizeof data, f);
    fclose(f);
    fprintf(stderr, "%s\n", name);
    {
        uint8_t *exact = (uint8_t *)malloc(n ? n : 1);      /* exact, so that a sanitizer detects overruns */
        if (!exact) return 1;
        memcpy(exact, data, n);
        LLVMFuzzerTestOneInput(exact, n);
        free(exact);
    }
    inputs++;
    return 0;
}

static int any(const char *name)
{
#if !defined(_WIN32)
    DIR *d = opendir(name);
    struct dirent *e;
    int bad = 0;
    if (!d) return file(name);
    while ((e = readdir(d)) != NULL) {
        char path[4096];
        if (e->d_name[0] == '.' || strlen(name) + strlen(e->d_name) + 2 > sizeof path) continue;
        sprintf(path, "%s/%s", name, e->d_name);
        bad |= any(path);
    }
    closedir(d);
    return bad;
#else
    return file(name);
#endif
}

static uint64_t next(uint64_t *s)
{
    uint64_t z = *s += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static uint8_t data[160];
static size_t data_size;

static void crashed(int sig)              /* not async-signal-safe, but the program ends here anyway */
{
    FILE *f = fopen("crash-input", "wb");
    if (f) fwrite(data, 1, data_size, f), fclose(f);
    signal(sig, SIG_DFL);
    raise(sig);
}

static void random_inputs(long n, unsigned long seed)
{
    uint64_t s = seed;
    size_t j;
    signal(SIGABRT, crashed);
    signal(SIGSEGV, crashed);
    for (; n > 0; n--, inputs++) {
        data_size = 24 + (size_t)(next(&s) % 136u);
        for (j = 0; j < data_size; j++) data[j] = (uint8_t)(next(&s) >> 32);
        LLVMFuzzerTestOneInput(data, data_size);
    }
}

int main(int argc, char **argv)
{
    long n = 0;
    unsigned long seed = 1;
    int i, bad = 0;
    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
            puts("usage: replay_TARGET [-r random inputs] [-s seed] [file or folder ...]");
            return 0;
        }
        if (!strcmp(argv[i], "-r") && i + 1 < argc) n = strtol(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "-s") && i + 1 < argc) seed = strtoul(argv[++i], NULL, 10);
        else bad |= any(argv[i]);
    }
    if (n > 0) random_inputs(n, seed);
    printf("%ld inputs\n", inputs);
    return bad;
}
