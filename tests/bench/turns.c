/* turns.c: compares this attn.h with another one (make turns OLD=commit or file) on the shapes of the benchmark, hot
 * or cold. Both take turns in one process, so that other programs disturb both alike. Prints medians, and whether the
 * bits are equal.
 *
 *   build/bench/turns [-t threads] [-p places] [--cold] [shapes]        build/bench/turns -p 24 S6 S7 M3
 *
 * For each place both sides allocate their data again and take 4 turns; the shortest time of each counts. The table has
 * medians over the places: of these times, and of their ratio. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "turns.h"

enum { OLD, NEW, SIDES, WALK = 160 << 20, TURNS_A_PLACE = 4 };

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

/* One shape with its data in new memory. Stores the shortest time of each side. Returns 1 if the bits are equal, 0 if
 * they differ, -1 if the shape is missing. */
static int place(const turns_side *const *side, int shape, int from_cache, int threads, int cold, int first,
                 double *shortest)
{
    static bench_turn turn[SIDES];
    static unsigned pads;
    void *pad[SIDES];
    const float *out[SIDES];
    size_t floats[SIDES];
    int equal = -1;
    for (int k = 0; k < SIDES; k++) {
        const int i = (first + k) % SIDES;
        pads = pads * 1664525u + 1013904223u;               /* otherwise malloc would return the same addresses */
        pad[k] = bench_alloc(64 * (1 + (pads >> 16) % 1024));
        turn[i].run = side[i]->run;
        turn[i].job = side[i]->make(shape, from_cache, threads);
    }
    if (turn[OLD].job && turn[NEW].job) {
        bench_turns(turn, SIDES, TURNS_A_PLACE, 1e-3, cold ? walk : NULL);
        for (int i = 0; i < SIDES; i++) {
            shortest[i] = turn[i].sample[0];                /* they are sorted */
            out[i] = side[i]->out(turn[i].job, &floats[i]);
        }
        equal = floats[OLD] == floats[NEW] && !memcmp(out[OLD], out[NEW], floats[NEW] * sizeof(float));
    }
    for (int i = 0; i < SIDES; i++) {
        if (turn[i].job) side[i]->end(turn[i].job);
        free(pad[i]);
    }
    return equal;
}

/* One shape: a line of the table. Returns new / old, or 0 if it is missing.
 * Which addresses share a cache set is chance, and changes the time of the same code by up to 6 %. So the data of each
 * place have other addresses, and the side that allocates first alternates. */
static double one(const turns_side *const *side, int shape, int from_cache, int threads, int places, int cold)
{
    double shortest[SIDES][BENCH_ROUNDS], ratio[BENCH_ROUNDS], middle[SIDES], r;
    int equal = 1;
    for (int k = 0; k < places; k++) {
        double here[SIDES];
        const int same = place(side, shape, from_cache, threads, cold, k % SIDES, here);
        if (same < 0) return 0;
        equal = equal && same;
        for (int i = 0; i < SIDES; i++) shortest[i][k] = here[i];
        ratio[k] = here[NEW] / here[OLD];
    }
    for (int i = 0; i < SIDES; i++) middle[i] = bench_median(shortest[i], places);
    r = bench_median(ratio, places);
    printf("| %s%s, %s | %.1f | %.1f | %.3f | %s |\n", bench_case_name(shape), from_cache ? " from a cache" : "",
           bench_case_text(shape), middle[OLD] * 1e6, middle[NEW] * 1e6, r, equal ? "equal" : "OTHERS");
    (void)fflush(stdout);
    return r;
}

static int wanted(const char *name, char **list, int n)
{
    for (int i = 0; i < n; i++) if (!strcmp(list[i], name)) return 1;
    return n == 0;
}

int main(int argc, char **argv)
{
    int threads = 1, places = 12, cold = 0, i, lines = 0;
    double ratio[2 * 100];
    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--cold")) cold = 1;
        else if (!strcmp(argv[i], "-t") && i + 1 < argc) threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "-p") && i + 1 < argc) places = atoi(argv[++i]);
        else places = 0;
    }
    if (threads < 1 || places < 1 || places > BENCH_ROUNDS) {
        fprintf(stderr, "usage: build/bench/turns [-t threads] [-p places, up to %d] [--cold] [shapes]\n",
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
            const double r = one(side, shape, from_cache, threads, places, cold);
            if (r > 0 && lines < 200) ratio[lines++] = r;
        }
    if (lines > 0) printf("| median of %d | | | %.3f | |\n", lines, bench_median(ratio, lines));
    return lines == 0;
}
