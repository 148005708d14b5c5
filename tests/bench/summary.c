/* summary.c: one line per library: its time in units of attn.h's time. See summary.h. */
#ifdef __APPLE__
#define _DARWIN_C_SOURCE
#include <sys/types.h>
#include <sys/sysctl.h>
#endif
#include "summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void text_copy(char *to, size_t size, const char *from)
{
    const size_t n = strlen(from) < size ? strlen(from) : size - 1;
    memcpy(to, from, n);
    to[n] = 0;
}

/* The same row of an earlier run: the better one counts. */
static int seen_before(bench_run *run, const bench_row *r)
{
    for (int i = 0; i < run->n; i++) {
        bench_row *was = &run->rows[i];
        if (was->threads != r->threads || strcmp(was->isa, r->isa) || strcmp(was->shape, r->shape)) continue;
        if (strcmp(was->name, r->name)) continue;
        if (r->least < was->least) was->least = r->least;
        if (r->ms < was->ms) was->ms = r->ms;
        return 1;
    }
    return 0;
}

int bench_run_read(const char *path, bench_run *run)
{
    FILE *f = fopen(path, "r");
    char line[512];
    run->n = 0;
    run->machine[0] = 0;
    while (f && run->n < BENCH_ROWS && fgets(line, sizeof line, f)) {
        bench_row *r = &run->rows[run->n];
        memset(r, 0, sizeof *r);
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "# ", 2)) text_copy(run->machine, sizeof run->machine, line + 2);
        else if (sscanf(line, "%7[^,],%7[^,],%d,%23[^,],%lf,%lf,%lf,%lf,%lf,%lf,%lf,%d,%23[^,],%lf,\"%63[^\"]\"",
                        r->isa, r->shape, &r->threads, r->name, &r->ms, &r->least, &r->gflops, &r->gbs, &r->ratio,
                        &r->y, &r->reading, &r->samples, r->best, &r->aim, r->what) == 15)
            run->n += !seen_before(run, r);
    }
    if (f) fclose(f);
    return run->n;
}

/* Names that identify an anonymous virtual processor: family, model, marketing name. */
static const char *kind_of(int family, int model, int stepping)
{
    static const struct kind { int family, model; const char *name; } kinds[] = {
        { 6, 106, "Ice Lake" }, { 6, 143, "Sapphire Rapids" },
        { 6, 207, "Emerald Rapids" }, { 6, 173, "Granite Rapids" }, { 25, 1, "Zen 3" }, { 25, 17, "Zen 4" },
        { 25, 33, "Zen 3" }, { 25, 97, "Zen 4" }, { 26, 2, "Zen 5" }, { 26, 17, "Zen 5" }, { 26, 68, "Zen 5" }
    };
    if (family == 6 && model == 85) return stepping < 5 ? "Skylake" : stepping < 10 ? "Cascade Lake" : "Cooper Lake";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].family == family && kinds[i].model == model) return kinds[i].name;
    return NULL;
}

/* The same for ARM on Linux, which has no marketing name. Implementers: 0x41 ARM, 0x61 Apple. */
static const char *part_of(int implementer, int part)
{
    static const struct part { int implementer, part; const char *name; } parts[] = {
        { 0x41, 0xd03, "Cortex-A53" }, { 0x41, 0xd05, "Cortex-A55" }, { 0x41, 0xd08, "Cortex-A72" },
        { 0x41, 0xd0b, "Cortex-A76" }, { 0x41, 0xd0c, "Neoverse N1" }, { 0x41, 0xd40, "Neoverse V1" },
        { 0x41, 0xd49, "Neoverse N2" }, { 0x41, 0xd4f, "Neoverse V2" }, { 0x61, 0x022, "Apple M1" },
        { 0x61, 0x032, "Apple M2" }
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].implementer == implementer && parts[i].part == part) return parts[i].name;
    return NULL;
}

void bench_machine(char *to, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256], name[128] = "unknown processor";
    int family = 0, model = 0, stepping = 0, implementer = 0, part = 0, cores = 0;
#ifdef __APPLE__
    size_t room = sizeof name, width = sizeof cores;
    sysctlbyname("machdep.cpu.brand_string", name, &room, NULL, 0);
    sysctlbyname("hw.physicalcpu", &cores, &width, NULL, 0);
    snprintf(to, size, "%s, %d cores", name, cores);
    if (cores) return;
#endif
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (!value) continue;
        line[strcspn(line, "\n")] = 0;
        cores += !strncmp(line, "processor", 9);
        if (!strncmp(line, "cpu family", 10)) family = atoi(value + 1);
        else if (!strncmp(line, "model name", 10)) text_copy(name, sizeof name, value + 2);
        else if (!strncmp(line, "model", 5)) model = atoi(value + 1);
        else if (!strncmp(line, "stepping", 8)) stepping = atoi(value + 1);
        else if (!strncmp(line, "CPU implementer", 15)) implementer = (int)strtol(value + 1, NULL, 0);
        else if (!strncmp(line, "CPU part", 8)) part = (int)strtol(value + 1, NULL, 0);
    }
    if (f) fclose(f);
    if (kind_of(family, model, stepping))
        snprintf(to, size, "%s (%s), %d cores", kind_of(family, model, stepping), name, cores);
    else if (part_of(implementer, part)) snprintf(to, size, "%s, %d cores", part_of(implementer, part), cores);
    else if (implementer) snprintf(to, size, "ARM (implementer 0x%x, part 0x%x), %d cores", implementer, part, cores);
    else snprintf(to, size, "%s (family %d, model %d), %d cores", name, family, model, cores);
}

static int row_is(const bench_row *r, const char *isa, int threads, const char *shape)
{
    return r->threads == threads && !strcmp(r->isa, isa) && !strcmp(r->shape, shape);
}

const bench_row *bench_row_find(const bench_run *run, const char *isa, int threads, const char *shape, const char *name)
{
    for (int i = 0; i < run->n; i++)
        if (row_is(&run->rows[i], isa, threads, shape) && !strcmp(run->rows[i].name, name)) return &run->rows[i];
    return NULL;
}

/* Returns the library of a row, "attn", "ORT", ...; NULL for other rows: a peak, or attn.h limited to AVX2 where
 * others are not. */
static const char *library_of(const bench_row *r)
{
    if (!strncmp(r->name, "attn", 4)) return strcmp(r->isa, "native") || !strstr(r->name, "avx2") ? "attn" : NULL;
    if (!strncmp(r->name, "ORT", 3)) return "ONNX Runtime";
    if (!strncmp(r->name, "ggml", 4)) return "ggml";
    if (!strncmp(r->name, "oneDNN", 6)) return "oneDNN";
    return !strncmp(r->name, "peak", 4) || !strcmp(r->name, "reading") ? NULL : r->name;
}

static double time_of(const bench_row *r, int by_least) { return by_least ? r->least : r->ms; }

/* ours: attn.h; otherwise the named library, or all except attn.h */
static const bench_row *best_row(const bench_run *run, const char *isa, int threads, const char *shape,
                                 const char *library, int ours, int by_least)
{
    const bench_row *best = NULL;
    for (int i = 0; i < run->n; i++) {
        const bench_row *r = &run->rows[i];
        const char *of = library_of(r);
        if (!of || !row_is(r, isa, threads, shape) || ours != !strcmp(of, "attn")) continue;
        if (library && strcmp(of, library)) continue;
        if (!best || time_of(r, by_least) < time_of(best, by_least)) best = r;
    }
    return best;
}

const bench_row *bench_row_ours(const bench_run *run, const char *isa, int threads, const char *shape, int by_least)
{
    return best_row(run, isa, threads, shape, NULL, 1, by_least);
}

const bench_row *bench_row_theirs(const bench_run *run, const char *isa, int threads, const char *shape,
                                  const char *library, int by_least)
{
    return best_row(run, isa, threads, shape, library, 0, by_least);
}

int bench_shapes(const bench_run *run, const char *isa, int threads, const char *shapes[BENCH_SHAPES])
{
    int n = 0;
    for (int i = 0; i < run->n; i++) {
        const bench_row *r = &run->rows[i];
        int k = 0;
        if (r->threads != threads || strcmp(r->isa, isa)) continue;
        while (k < n && strcmp(shapes[k], r->shape)) k++;
        if (k == n && n < BENCH_SHAPES) shapes[n++] = r->shape;
    }
    return n;
}

/* The mean of one library, or (NULL) of the best peer of each shape. */
static bench_library measure(const bench_run *run, const char *isa, int threads, const char *name, int by_least)
{
    const char *shapes[BENCH_SHAPES];
    const int n = bench_shapes(run, isa, threads, shapes);
    bench_library l;
    double logs = 0;
    memset(&l, 0, sizeof l);
    text_copy(l.name, sizeof l.name, name ? name : "best of each shape");
    for (int i = 0; i < n; i++) {
        const bench_row *a = bench_row_ours(run, isa, threads, shapes[i], by_least);
        const bench_row *b = bench_row_theirs(run, isa, threads, shapes[i], name, by_least);
        const double ratio = a && b ? time_of(b, by_least) / time_of(a, by_least) : 0;
        if (!a || !b) continue;
        logs += log(ratio);
        if (!l.shapes || ratio < l.least) l.least = ratio, l.at_least = b;
        if (!l.shapes || ratio > l.most) l.most = ratio, l.at_most = b;
        l.shapes++;
    }
    if (l.shapes) l.mean = exp(logs / l.shapes);
    return l;
}

static int nearest_first(const void *a, const void *b)
{
    const double x = ((const bench_library *)a)->mean, y = ((const bench_library *)b)->mean;
    return (x > y) - (x < y);
}

int bench_libraries(const bench_run *run, const char *isa, int threads, int by_least, bench_library *list,
                    bench_library *all)
{
    int n = 0;
    for (int i = 0; i < run->n; i++) {
        const bench_row *r = &run->rows[i];
        const char *name = r->threads == threads && !strcmp(r->isa, isa) ? library_of(r) : NULL;
        int k = 0;
        if (!name || !strcmp(name, "attn")) continue;
        while (k < n && strcmp(list[k].name, name)) k++;
        if (k < n || n == BENCH_LIBRARIES) continue;
        list[n] = measure(run, isa, threads, name, by_least);
        n += list[n].shapes > 0;
    }
    qsort(list, (size_t)n, sizeof *list, nearest_first);
    *all = measure(run, isa, threads, NULL, by_least);
    return n;
}

void bench_losses(char *to, size_t size, const bench_run *run, const char *isa, int threads, int by_least)
{
    const char *shapes[BENCH_SHAPES];
    const int n = bench_shapes(run, isa, threads, shapes);
    char list[1024] = "";
    int lost = 0;
    for (int i = 0; i < n; i++) {
        const bench_row *a = bench_row_ours(run, isa, threads, shapes[i], by_least);
        const bench_row *b = bench_row_theirs(run, isa, threads, shapes[i], NULL, by_least);
        const double ratio = a && b ? time_of(b, by_least) / time_of(a, by_least) : 1;
        const size_t end = strlen(list);
        if (ratio >= 0.995) continue;                       /* a loss printed as 1.00 is none */
        snprintf(list + end, sizeof list - end, "%s%s %.2f (%s)", lost++ ? ", " : "", shapes[i], ratio, b->name);
    }
    if (lost) snprintf(to, size, "%d of %d shapes: %s", lost, n, list);
    else snprintf(to, size, "none of %d shapes", n);
}

static void line_print(const bench_library *l, const bench_library *by_least)
{
    printf("  %-20s %6d %8.2f %8.2f %9.2f %-5s %9.2f %-5s\n", l->name, l->shapes, l->mean, by_least->mean, l->least,
           l->at_least->shape, l->most, l->at_most->shape);
}

void bench_summary_print(const bench_run *run)
{
    static const char *const isas[] = { "native", "avx2" };
    bench_library list[BENCH_LIBRARIES], least[BENCH_LIBRARIES], all, all_least;
    char losses[1200];
    printf("\n==== How many times as long the others take: geometric mean by medians and by best runs, nearest and "
           "farthest\n     shape; attn.h in its best form, rows or attn_kv; %s\n", run->machine);
    for (int i = 0; i < 2; i++)
        for (int threads = 1; threads <= 2; threads++) {
            const int n = bench_libraries(run, isas[i], threads, 0, list, &all);
            const int m = bench_libraries(run, isas[i], threads, 1, least, &all_least);
            if (!n) continue;
            printf("\n  %-20s %6s %8s %8s %9s %-5s %9s\n", i ? "AVX2 alone" : "all the machine has", "shapes",
                   "medians", "best", "nearest", "", "farthest");
            for (int k = 0; k < n; k++)
                for (int j = 0; j < m; j++) if (!strcmp(list[k].name, least[j].name)) line_print(&list[k], &least[j]);
            line_print(&all, &all_least);
            bench_losses(losses, sizeof losses, run, isas[i], threads, 0);
            printf("  With %d thread%s attn.h is behind in %s.\n", threads, threads > 1 ? "s" : "", losses);
            bench_losses(losses, sizeof losses, run, isas[i], threads, 1);
            printf("  By the best runs: %s.\n", losses);
        }
}
