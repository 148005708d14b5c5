/* report.c: one Markdown row about this machine, for tests/MACHINES.md.
 *
 *   make same && make bench ARGS=--report
 *
 * Four shapes on one thread: the median time of attn.h in its best form, and how many times as long the plain loop takes
 * (loops.c, compiled for this machine). "yes" in column `make same`: build/same_bits, which make same leaves there, has
 * returned success. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "summary.h"

static const char *const shapes[] = { "S1", "S3", "S6", "S7" };      /* the columns of MACHINES.md */
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void time_print(double seconds)
{
    if (seconds >= 10e-3) printf("%.1f ms", seconds * 1e3);
    else if (seconds >= 1e-3) printf("%.2f ms", seconds * 1e3);
    else printf("%.0f us", seconds * 1e6);
}

/* Prints the cell of a shape. Returns 0 if the loop and attn.h differ. */
static int cell(int index, const bench_setup *s, int rounds)
{
    static bench_turn turns[2];
    bench_case *c = bench_case_make(index, NULL);
    const bench_peer *const peers[2] = { c->decode ? &peer_attn_kv : &peer_attn, &peer_plain };
    float *ours = (float *)bench_alloc(c->out_floats * sizeof(float));
    double difference;
    memset(turns, 0, sizeof turns);
    for (int i = 0; i < 2; i++) {
        peers[i]->open(peers[i], s);
        turns[i].job = peers[i]->prepare(peers[i], c);
        turns[i].run = peers[i]->run;
        turns[i].run(turns[i].job);
        if (i == 0) memcpy(ours, c->a.out, c->out_floats * sizeof(float));
    }
    difference = bench_difference(ours, c->a.out, c->out_floats);
    if (difference > 1e-4) {
        fprintf(stderr, "report: attn.h and the plain loop differ by %.2g on %s\n", difference, c->text);
        printf(" WRONG |");
    } else {
        bench_turns(turns, 2, rounds, 5e-3, NULL);
        printf(" ");
        time_print(turns[0].median);
        printf(", %.1fx |", turns[1].median / turns[0].median);
    }
    for (int i = 0; i < 2; i++) {
        peers[i]->release(turns[i].job);
        if (peers[i]->close) peers[i]->close(peers[i]);
    }
    free(ours);
    bench_case_free(c);
    return difference <= 1e-4;
}

/* Returns "yes", "NO" or "not run". */
static const char *same_bits(const char *folder)
{
    char command[1200];
    snprintf(command, sizeof command, "%s/../same_bits", folder);
    if (access(command, X_OK)) {
        fprintf(stderr, "report: run `make same` first, for the fourth column\n");
        return "not run";
    }
    snprintf(command, sizeof command, "'%s/../same_bits' > /dev/null", folder);
    return system(command) == 0 ? "yes" : "NO";
}

int bench_report(const bench_setup *s, int rounds)
{
    char machine[160], date[20];
    const time_t now = time(NULL);
    struct utsname system_name;
    attn_backend best[1];
    int right = 1;
    bench_machine(machine, sizeof machine);
    strftime(date, sizeof date, "%Y-%m-%d", localtime(&now));
    if (uname(&system_name) < 0 || attn_backends(best, 1) < 1) return 0;
    printf("| %s | %s %s, ", machine, system_name.sysname, system_name.machine);
#ifdef __clang__
    printf("clang %d.%d", __clang_major__, __clang_minor__);
#elif defined(__GNUC__)
    printf("gcc %d.%d", __GNUC__, __GNUC_MINOR__);
#else
    printf("another compiler");
#endif
    printf(" | %s | %s |", attn_backend_name(best[0]), same_bits(s->folder));
    for (int i = 0; i < SHAPES; i++)
        for (int k = 0; k < bench_case_count(); k++)
            if (!strcmp(bench_case_name(k), shapes[i])) {
                fflush(stdout);
                right &= cell(k, s, rounds);
            }
    printf(" %s%s |\n", date, bench_cpu_time ? ", CPU time" : "");
    return right;
}
