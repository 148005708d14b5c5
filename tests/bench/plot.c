/* plot.c: build/bench.csv as pictures and tables, all from one run:
 *
 *   build/bench/plot build/bench.csv build/libraries.svg build/bench.svg build/bench.md
 *
 *   build/bench/plot build/bench.csv build/long.svg build/long.md       after bench --long: time over n
 *
 * libraries.svg, for README: a bar per library, the geometric mean of its time in units of attn.h's time, and a line
 * from its smallest to its largest ratio. bench.svg: a bar per shape, how many times faster attn.h is than the best
 * peer. bench.md: README's shapes, BENCHMARKS's tables, the losses. Times are the best of the run, which on shared
 * machines are more reliable than medians. No script, colours for light and for dark pages. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "summary.h"

static const char *const style =
    "<style>\n"
    "text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}\n"
    ".t{font-weight:600;font-size:15px}.h{font-weight:600}.m{text-anchor:middle}.e{text-anchor:end}\n"
    ".s{fill:#59636e}.n{font-size:11px}.l{font-size:14px}.b{font-size:14px;font-weight:600}\n"
    ".card{fill:#fff;stroke:#d1d9e0}.t1{fill:#2563c9}.t2{fill:#8ab4f0}.w{stroke:#1f2328;stroke-width:1.2}\n"
    ".grid{stroke:#e4e8ec}.one{stroke:#c2410c;stroke-width:1.5}\n"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.s{fill:#9198a1}.card{fill:#0d1117;stroke:#3d444d}\n"
    ".t1{fill:#4c8df6}.t2{fill:#27518f}.w{stroke:#f0f6fc}.grid{stroke:#21262d}.one{stroke:#f0883e}}\n"
    "</style>\n";

static FILE *picture(const char *path, int wide, int tall, const char *title)
{
    FILE *f = fopen(path, "w");
    if (!f) {
        fprintf(stderr, "plot: cannot write %s\n", path);
        exit(1);
    }
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n%s", wide,
            tall, wide, tall, style);
    fprintf(f, "<rect class=\"card\" x=\".5\" y=\".5\" width=\"%d\" height=\"%d\" rx=\"10\"/>\n", wide - 1, tall - 1);
    fprintf(f, "<text class=\"t\" x=\"20\" y=\"28\">%s</text>\n", title);
    return f;
}

static void label(FILE *f, const char *class, double x, double y, const char *format, ...)
{
    va_list list;
    fprintf(f, "<text class=\"%s\" x=\"%g\" y=\"%g\">", class, x, y);
    va_start(list, format);
    vfprintf(f, format, list);
    va_end(list);
    fputs("</text>\n", f);
}

static void square(FILE *f, const char *class, double x, double y)
{
    fprintf(f, "<rect class=\"%s\" x=\"%g\" y=\"%g\" width=\"10\" height=\"10\"/>\n", class, x, y);
}

/* ---- a bar a library --------------------------------------------------------------------------------------------- */
/* x on a logarithmic scale: twice as fast and half as fast are equally far from 1. */
enum { NAMES = 128, ROOM = 480, NUMBERS = 212, STEP = 46, FIRST = 104 };
enum { MEANS = NAMES + ROOM + 56, RANGES = NAMES + ROOM + 76 };
static const double nearest = 0.5, farthest = 8;

static double place(double ratio)
{
    const double r = ratio < nearest ? nearest : ratio > farthest ? farthest : ratio;
    return NAMES + ROOM * log(r / nearest) / log(farthest / nearest);
}

static void library_bar(FILE *f, const bench_library *l, int y, int alone, int second)
{
    const double one = place(1), mean = place(l->mean), from = mean < one ? mean : one;
    const int tall = alone ? 26 : 15, middle = y + tall / 2;
    fprintf(f, "<rect class=\"t%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>\n", 1 + second, from, y,
            fabs(mean - one), tall);
    fprintf(f, "<path class=\"w\" d=\"M%.1f %dH%.1fM%.1f %dv6M%.1f %dv6\"/>\n", place(l->least), middle, place(l->most),
            place(l->least), middle - 3, place(l->most), middle - 3);
    label(f, "b e", MEANS, middle + 5, "%.2f", l->mean);
    label(f, "s", RANGES, middle + 4, "%.2f to %.*f", l->least, l->most < 9.95 ? 1 : 0, l->most);
}

static void libraries(const char *path, const bench_run *run)
{
    bench_library list[BENCH_LIBRARIES], narrow[BENCH_LIBRARIES], all, all_narrow;
    const int n = bench_libraries(run, "native", 1, 1, list, &all);
    const int m = bench_libraries(run, "avx2", 1, 1, narrow, &all_narrow);
    const int bottom = FIRST + n * STEP, wide = NAMES + ROOM + NUMBERS;
    FILE *f = picture(path, wide, bottom + 34, "How many times as long as attn.h the others take");
    label(f, "s", 20, 47, "Geometric mean over %d shapes; the line goes from the worst shape for attn.h to the best. "
                          "One thread, float32.", all.shapes);
    label(f, "s", 20, bottom + 22, "%s", run->machine);
    if (m) {
        square(f, "t1", 20, 59);
        label(f, "s", 35, 68, "with AVX-512");
        square(f, "t2", 125, 59);
        label(f, "s", 140, 68, "everybody held to AVX2");
    }
    for (double at = nearest; at <= farthest; at *= 2) {
        fprintf(f, "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", at == 1 ? "one" : "grid",
                place(at), place(at), FIRST - 12, bottom);
        label(f, "s m", place(at), FIRST - 17, "%g", at);
    }
    label(f, "s e", MEANS, FIRST - 17, "mean");
    label(f, "s", RANGES, FIRST - 17, "worst to best");
    for (int i = 0; i < n; i++) {
        const int y = FIRST + i * STEP;
        int k = 0;
        while (k < m && strcmp(narrow[k].name, list[i].name)) k++;
        label(f, "l e", NAMES - 12, y + 19, "%s", list[i].name);
        if (list[i].shapes < all.shapes) label(f, "s n e", NAMES - 12, y + 33, "%d shapes", list[i].shapes);
        library_bar(f, &list[i], y, k == m, 0);
        if (k < m) library_bar(f, &narrow[k], y + 17, 0, 1);
    }
    fputs("</svg>\n", f);
    if (fclose(f)) exit(1);
}

/* ---- a bar a shape ----------------------------------------------------------------------------------------------- */
static int has_two(const bench_run *run)
{
    for (int i = 0; i < run->n; i++) if (run->rows[i].threads == 2) return 1;
    return 0;
}

typedef struct bar {
    const bench_row *row;                 /* with one thread */
    const bench_row *best[2];             /* the best peer with one thread, two threads; NULL: not measured */
    double ratio[2];
} bar;

enum { MOST = 256, LINE = 34, LEFT = 250, WIDE = 340, TOP = 96, GAP = 20, LABEL = 150 };
static const double most_ratio = 4;       /* bars end here; the number shows the value */

static int find_bars(const bench_run *run, bar *bars)
{
    int n = 0;
    for (int i = 0; i < run->n && n < MOST; i++) {
        const bench_row *r = &run->rows[i];
        bar *b = &bars[n];
        if (strncmp(r->name, "attn", 4) || r->threads != 1) continue;
        if (!strcmp(r->isa, "native") && strstr(r->name, "avx2")) continue;     /* it has a separate column */
        memset(b, 0, sizeof *b);
        b->row = r;
        for (int t = 0; t < 2; t++) {
            const bench_row *ours = bench_row_find(run, r->isa, t + 1, r->shape, r->name);
            b->best[t] = bench_row_theirs(run, r->isa, t + 1, r->shape, NULL, 1);
            if (ours && b->best[t]) b->ratio[t] = b->best[t]->least / ours->least;
        }
        n += b->ratio[0] > 0;
    }
    return n;
}

static double width_of(double ratio) { return (ratio < most_ratio ? ratio : most_ratio) / most_ratio * WIDE; }

static void column(FILE *f, const bar *bars, int n, const char *isa, const char *title, int x)
{
    int y = TOP, lines = 0;
    for (int i = 0; i < n; i++) lines += !strcmp(bars[i].row->isa, isa);
    fprintf(f, "<text class=\"h\" x=\"%d\" y=\"%d\">%s</text>\n", x, TOP - 30, title);
    for (int k = 0; k <= 4; k++) {
        const double at = x + LEFT + width_of(k);
        fprintf(f,
                "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text class=\"s m\" x=\"%.1f\" "
                "y=\"%d\">%d</text>\n",
                k == 1 ? "one" : "grid", at, at, TOP - 8, TOP + lines * LINE, at, TOP - 12, k);
    }
    for (int i = 0; i < n; i++) {
        const bar *b = &bars[i];
        const int cached = strstr(b->row->name, "-kv") != NULL, two = b->ratio[1] > 0;
        if (strcmp(b->row->isa, isa)) continue;
        fprintf(f, "<text class=\"e\" x=\"%d\" y=\"%d\">%s%s <tspan class=\"s\">%s</tspan></text>\n", x + LEFT - 8,
                y + 19, b->row->what, cached ? ", cached" : "", b->row->shape);
        for (int t = 0; t < 2; t++) {
            const double w = width_of(b->ratio[t]);
            const double past = w > width_of(1) ? w : width_of(1);             /* the number is beside the line */
            const int tall = two ? 12 : 22, at = y + 3 + (two ? 13 * t : 0);
            if (b->ratio[t] <= 0) continue;
            fprintf(f, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>\n",
                    t ? "t2" : "t1", x + LEFT, at, w, tall);
            fprintf(f, "<text class=\"n\" x=\"%.1f\" y=\"%d\">%.2f%s <tspan class=\"s\">%s</tspan></text>\n",
                    x + LEFT + past + 5, at + tall / 2 + 4, b->ratio[t],
                    b->ratio[t] > most_ratio ? " \xe2\x86\x92" : "", b->best[t]->name);
        }
        y += LINE;
    }
}

static void shapes(const char *path, const bench_run *run)
{
    static bar bars[MOST];
    const int n = find_bars(run, bars);
    int lines[2] = { 0, 0 }, columns, tall, wide;
    FILE *f;
    for (int i = 0; i < n; i++) lines[!strcmp(bars[i].row->isa, "avx2")]++;
    columns = (lines[0] > 0) + (lines[1] > 0);
    wide = GAP + columns * (LEFT + WIDE + LABEL + GAP);
    tall = TOP + (lines[0] > lines[1] ? lines[0] : lines[1]) * LINE + 30;
    f = picture(path, wide, tall, "attn.h: times as fast as the best peer of each shape");
    for (int t = 0; t < 1 + has_two(run); t++) {
        square(f, t ? "t2" : "t1", GAP + 75 * t, 38);
        label(f, "s", GAP + 75 * t + 15, 47, "%d thread%s", t + 1, t ? "s" : "");
    }
    label(f, "s", GAP, tall - 12, "%s", run->machine);
    if (lines[0]) column(f, bars, n, "native", lines[1] ? "With AVX-512" : "Everything this machine has", GAP);
    if (lines[1]) column(f, bars, n, "avx2", "AVX2 alone", GAP + (columns - 1) * (LEFT + WIDE + LABEL + GAP));
    fputs("</svg>\n", f);
    if (fclose(f)) exit(1);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */
static void time_print(FILE *f, double ms)
{
    if (ms >= 10) fprintf(f, " %.1f ms |", ms);
    else if (ms >= 1) fprintf(f, " %.2f ms |", ms);
    else if (ms >= 0.01) fprintf(f, " %.0f us |", ms * 1e3);
    else fprintf(f, " %.1f us |", ms * 1e3);
}

/* Returns the time of the best library of a shape (*other), divided by that of attn.h; 0: not measured. */
static double ratio_of(const bench_run *run, const char *isa, int threads, const bench_row *of, const bench_row **other)
{
    const char *const names[2][2] = { { "attn", "attn-avx2" }, { "attn-kv", "attn-kv-avx2" } };
    const int cached = strstr(of->name, "-kv") != NULL;
    const bench_row *a = bench_row_find(run, isa, threads, of->shape, names[cached][!strcmp(isa, "avx2")]);
    *other = bench_row_theirs(run, isa, threads, of->shape, NULL, 1);
    return a && *other ? (*other)->least / a->least : 0;
}

static void ratio_print(FILE *f, const bench_run *run, const char *isa, int threads, const bench_row *of)
{
    const bench_row *other;
    const double ratio = ratio_of(run, isa, threads, of, &other);
    if (ratio > 0) fprintf(f, " %.2f %s |", ratio, other->name);
    else fprintf(f, " |");
}

/* 1: a row of attn.h, over plain rows or a cache, from which lines of tables are made */
static int is_ours(const bench_row *r)
{
    return r->threads == 1 && (!strcmp(r->name, "attn") || !strcmp(r->name, "attn-kv"));
}

/* The losses of one column, as lines of a table. */
static void losses(FILE *f, const bench_run *run, const char *isa, int threads)
{
    for (int i = 0; i < run->n; i++) {
        const bench_row *r = &run->rows[i], *other;
        const double ratio = is_ours(r) ? ratio_of(run, isa, threads, r, &other) : 0;
        if (ratio <= 0 || ratio >= 0.995) continue;         /* a loss printed as 1.00 is none */
        fprintf(f, "| %s: %s%s | %s | %d | %s | %.2f |\n", r->shape, r->what,
                strstr(r->name, "-kv") ? ", from `attn_kv`" : "", strcmp(isa, "avx2") ? "all" : "AVX2 alone", threads,
                other->name, ratio);
    }
}

static void line(FILE *f, const bench_run *run, const bench_row *r, int two)
{
    const int cached = strstr(r->name, "-kv") != NULL;
    const bench_row *loop = bench_row_find(run, "native", 1, r->shape, "plain loop");
    fprintf(f, "| %s | %s%s |", r->shape, r->what, cached ? ", from `attn_kv`" : "");
    time_print(f, r->least);
    if (loop) fprintf(f, " %.2f |", loop->least / r->least);
    else fprintf(f, " |");
    for (int isa = 0; isa < 2; isa++)
        for (int threads = 1; threads <= 1 + two; threads++)
            ratio_print(f, run, isa ? "avx2" : "native", threads, r);
    fprintf(f, "\n");
}

static void tables(const char *path, const bench_run *run)
{
    static const char *const few[] = { "S3", "S7", "M3", "S12" };
    static const char *const isas[] = { "native", "avx2" };
    const int two = has_two(run);
    FILE *f = fopen(path, "w");
    if (!f) exit(1);
    fprintf(f, "%s. For README:\n\n| | shape | attn.h | plain loop | best peer | with AVX2 alone |\n", run->machine);
    fprintf(f, "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        const bench_row *r = bench_row_ours(run, "native", 1, few[i], 1);
        if (r) line(f, run, r, 0);
    }
    fprintf(f, "\nFor tests/BENCHMARKS.md:\n\n| library | shapes | geometric mean | worst | best |\n");
    fprintf(f, "|---|---|---|---|---|\n");
    for (int i = 0; i < 2; i++) {
        bench_library list[BENCH_LIBRARIES + 1], all;
        const int n = bench_libraries(run, isas[i], 1, 1, list, &all);
        list[n] = all;
        for (int k = 0; n && k <= n; k++)
            fprintf(f, "| %s%s | %d | %.2f | %.2f %s | %.2f %s |\n", list[k].name, i ? ", AVX2 alone" : "",
                    list[k].shapes, list[k].mean, list[k].least, list[k].at_least->shape, list[k].most,
                    list[k].at_most->shape);
    }
    fprintf(f, "\n| | shape | attn.h | plain loop | best peer |%s AVX2 alone: best peer |%s\n",
            two ? " 2 threads |" : "", two ? " 2 threads |" : "");
    fprintf(f, "|---|---|---|---|---|---|%s\n", two ? "---|---|" : "");
    for (int i = 0; i < run->n; i++) {
        const bench_row *r = &run->rows[i];
        if (is_ours(r)) line(f, run, r, two);
    }
    fprintf(f, "\nAll losses:\n\n| shape | instruction sets | threads | faster | other / attn.h |\n");
    fprintf(f, "|---|---|---|---|---|\n");
    for (int i = 0; i < 2; i++)
        for (int threads = 1; threads <= 2; threads++) losses(f, run, isas[i], threads);
    if (fclose(f)) exit(1);
}

/* ---- time over n ------------------------------------------------------------------------------------------------- */
/* Microseconds per row, both axes logarithmic, a panel for one row, all rows, and causal rows. */
enum { PANEL_WIDE = 250, PANEL_TALL = 240, PANEL_STEP = 350, PANEL_LEFT = 62, PANEL_TOP = 84, LONG_LINES = 5 };
static const char *const long_names[LONG_LINES] = { "attn.h", "OpenBLAS", "ONNX Runtime", "ggml", "attn_delta" };
static const char long_keys[] = "RAC";                      /* shapes R64, A64, C64 .. */
static const char *const long_titles[3] = { "One row over n keys", "n rows over n keys", "n rows, causal" };

/* Returns the microseconds per row of a line at a shape, or 0. */
static double per_row(const bench_run *run, int which, const char *shape)
{
    const bench_row *r = which == 0 ? bench_row_ours(run, "native", 1, shape, 0)
                       : which == 4 ? bench_row_find(run, "native", 1, shape, "linear")
                       : bench_row_theirs(run, "native", 1, shape, long_names[which], 0);
    return r ? r->ms * 1e3 / (shape[0] == 'R' ? 1 : atof(shape + 1)) : 0;
}

static double long_x(double n) { return PANEL_LEFT + PANEL_WIDE * log(n / 64) / log(1024); }
static double long_y(double us) { return PANEL_TOP + PANEL_TALL * (1 - log(us / 0.5) / log(20000 / 0.5)); }

static void long_axes(FILE *f, int panel)
{
    const int left = panel * PANEL_STEP;
    label(f, "h", left + PANEL_LEFT, PANEL_TOP - 14, "%s", long_titles[panel]);
    for (int n = 64; n <= 65536; n *= 4) {
        fprintf(f, "<path class=\"grid\" d=\"M%.1f %dv%d\"/>\n", left + long_x(n), PANEL_TOP, PANEL_TALL);
        label(f, "s m", left + long_x(n), PANEL_TOP + PANEL_TALL + 18, n < 1024 ? "%d" : "%dK",
              n < 1024 ? n : n / 1024);
    }
    for (int us = 1; us <= 10000; us *= 10) {
        fprintf(f, "<path class=\"grid\" d=\"M%d %.1fh%d\"/>\n", left + PANEL_LEFT, long_y(us), PANEL_WIDE);
        label(f, "s e", left + PANEL_LEFT - 6, long_y(us) + 4, us < 1000 ? "%d us" : "%d ms",
              us < 1000 ? us : us / 1000);
    }
}

static void growth(const char *svg, const char *md, const bench_run *run)
{
    static const char *const colours[LONG_LINES] = { "#2563c9", "#c2410c", "#9333ea", "#0f8a5f", "#8a8f98" };
    const char *shape[BENCH_SHAPES];
    const int n = bench_shapes(run, "native", 1, shape);
    FILE *f = picture(svg, 3 * PANEL_STEP + 10, PANEL_TOP + PANEL_TALL + 52, "Time per row, 8 heads of 64, one thread");
    FILE *table = fopen(md, "w");
    if (!table) exit(1);
    fprintf(table, "| microseconds per row |");
    for (int k = 0; k < LONG_LINES; k++) {
        fprintf(f, "<path d=\"M%d 44h22\" stroke=\"%s\" stroke-width=\"%d\"/>\n", 20 + 130 * k, colours[k], k ? 2 : 3);
        label(f, "s", 48 + 130 * k, 48, "%s", long_names[k]);
        fprintf(table, " %s |", long_names[k]);
    }
    fprintf(table, "\n|---|---|---|---|---|---|\n");
    for (int panel = 0; panel < 3; panel++) {
        long_axes(f, panel);
        for (int k = 0; k < LONG_LINES; k++) {
            char move = 'M';
            fprintf(f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%d\" d=\"", colours[k], k ? 2 : 3);
            for (int i = 0; i < n; i++) {
                const double us = shape[i][0] == long_keys[panel] ? per_row(run, k, shape[i]) : 0;
                if (us <= 0) continue;
                fprintf(f, "%c%.1f %.1f", move, panel * PANEL_STEP + long_x(atof(shape[i] + 1)), long_y(us));
                move = 'L';
            }
            fprintf(f, "\"/>\n");
        }
        for (int i = 0; i < n; i++) {
            if (shape[i][0] != long_keys[panel]) continue;
            fprintf(table, "| %s, n = %s |", long_titles[panel], shape[i] + 1);
            for (int k = 0; k < LONG_LINES; k++) {
                const double us = per_row(run, k, shape[i]);
                if (us > 0) fprintf(table, us < 10 ? " %.2f |" : us < 100 ? " %.1f |" : " %.0f |", us);
                else fprintf(table, " |");
            }
            fprintf(table, "\n");
        }
    }
    label(f, "s", 20, PANEL_TOP + PANEL_TALL + 42, "%s", run->machine);
    fputs("</svg>\n", f);
    if (fclose(f) || fclose(table)) exit(1);
}

int main(int argc, char **argv)
{
    static bench_run run;
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "plot bench.csv libraries.svg bench.svg bench.md\nplot bench.csv long.svg long.md\n");
        return 2;
    }
    if (!bench_run_read(argv[1], &run)) return 0;           /* nothing measured yet */
    if (argc == 4) {
        growth(argv[2], argv[3], &run);
        return 0;
    }
    libraries(argv[2], &run);
    shapes(argv[3], &run);
    tables(argv[4], &run);
    return 0;
}
