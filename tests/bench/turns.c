/* turns.c: compares this attn.h with another one (make turns OLD=commit or file) on the shapes of the benchmark, hot
 * or cold. Both take turns in one process, so that other programs disturb both alike. Prints medians, and whether the
 * bits are equal.
 *
 *   build/bench/turns [-t threads] [-r rounds] [--cold] [shapes]        build/bench/turns -r 41 S6 S7 M3 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "turns.h"

enum { OLD, NEW, SIDES, WALK = 160 << 20 };

static void walk(void)
{
    static unsigned char *memory;
    volatile unsigned char sink;
    if (!memory) memory = (unsigned char *)memset(bench_alloc(WALK), 1, WALK);
    for (size_t i = 0; i < WALK; i += 64) sink = memory[i];
    (void)sink;
}

static const turns_side *side_of(const char *file)
{
    const turns_side *side = NULL;
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library) bench_symbol(library, "turns_here", &side);
    if (!side) { fprintf(stderr, "turns: %s is not there: make turns\n", file); exit(1); }
    return side;
}

/* One shape: a line of the table. Returns new / old, or 0 if it is missing. */
static double one(const turns_side *const *side, int shape, int from_cache, int threads, int rounds, int cold)
{
    static bench_turn turn[SIDES];
    const float *out[SIDES];
    size_t floats[SIDES];
    for (int i = 0; i < SIDES; i++) {
        turn[i].run = side[i]->run;
        turn[i].job = side[i]->make(shape, from_cache, threads);
        if (!turn[i].job) return 0;
    }
    bench_turns(turn, SIDES, rounds, 1e-3, cold ? walk : NULL);
    for (int i = 0; i < SIDES; i++) out[i] = side[i]->out(turn[i].job, &floats[i]);
    printf("| %s%s, %s | %.1f | %.1f | %.3f | %s |\n", bench_case_name(shape), from_cache ? " from a cache" : "",
           bench_case_text(shape), turn[OLD].median * 1e6, turn[NEW].median * 1e6, turn[NEW].median / turn[OLD].median,
           floats[OLD] == floats[NEW] && !memcmp(out[OLD], out[NEW], floats[NEW] * sizeof(float)) ? "equal" : "OTHERS");
    (void)fflush(stdout);
    return turn[NEW].median / turn[OLD].median;
}

static int wanted(const char *name, char **list, int n)
{
    for (int i = 0; i < n; i++) if (!strcmp(list[i], name)) return 1;
    return n == 0;
}

int main(int argc, char **argv)
{
    int threads = 1, rounds = 21, cold = 0, i, lines = 0;
    double ratio[2 * 100];
    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--cold")) cold = 1;
        else if (!strcmp(argv[i], "-t") && i + 1 < argc) threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "-r") && i + 1 < argc) rounds = atoi(argv[++i]);
        else rounds = 0;
    }
    if (threads < 1 || rounds < 1 || rounds > BENCH_ROUNDS) {
        fprintf(stderr, "usage: build/bench/turns [-t threads] [-r rounds, up to %d] [--cold] [shapes]\n",
                BENCH_ROUNDS);
        return 2;
    }
    bench_cpu_time = threads == 1;                          /* not affected by other programs */
    const turns_side *const side[SIDES] = { side_of("build/bench/turns-old.so"),
                                              side_of("build/bench/turns-new.so") };
    printf("| shape, %s, %d thread%s | old: us | new: us | new / old | bits |\n|---|---|---|---|---|\n",
           cold ? "cold" : "hot", threads, threads > 1 ? "s" : "");
    for (int shape = 0; shape < bench_case_count(); shape++)
        for (int from_cache = 0; from_cache < 2 && wanted(bench_case_name(shape), argv + i, argc - i); from_cache++) {
            const double r = one(side, shape, from_cache, threads, rounds, cold);
            if (r > 0 && lines < 200) ratio[lines++] = r;
        }
    if (lines > 0) printf("| median of %d | | | %.3f | |\n", lines, bench_median(ratio, lines));
    return lines == 0;
}
