/* plot.c: build/bench.csv as a picture. build/bench/plot build/bench.csv build/bench.svg
 *
 * A bar is how many times faster attn.h is than the best peer of that shape, one colour with one thread and one with
 * two; the line at 1 is the peer. No script, colours for light and for dark pages. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bar {
    char isa[8], shape[8], name[24], what[64], best[2][24];
    double ratio[2];                      /* one thread, two threads; 0: not measured */
} bar;

enum { MOST = 256, LINE = 34, LEFT = 250, WIDE = 340, TOP = 96, GAP = 20, LABEL = 150 };
static const double most_ratio = 4;       /* where bars end; the number says what they are */

static int read_bars(const char *path, bar *bars)
{
    FILE *f = fopen(path, "r");
    char line[512];
    int n = 0;
    if (!f) return 0;
    while (n < MOST && fgets(line, sizeof line, f)) {
        bar b;
        double ratio;
        char best[24];
        int threads, i;
        memset(&b, 0, sizeof b);
        if (sscanf(line, "%7[^,],%7[^,],%d,%23[^,],%*f,%*f,%*f,%*f,%lf,%*f,%*f,%*d,%23[^,],%*f,\"%63[^\"]\"",
                   b.isa, b.shape, &threads, b.name, &ratio, best, b.what) != 7)
            continue;
        if (strncmp(b.name, "attn", 4) || threads < 1 || threads > 2 || ratio <= 0) continue;
        if (!strcmp(b.isa, "native") && strstr(b.name, "avx2")) continue;       /* it has a column of its own */
        for (i = 0;
             i < n && (strcmp(bars[i].isa, b.isa) || strcmp(bars[i].shape, b.shape) || strcmp(bars[i].name, b.name));
             i++) {}
        if (i == n) bars[n++] = b;
        bars[i].ratio[threads - 1] = ratio;
        memcpy(bars[i].best[threads - 1], best, sizeof best);
    }
    fclose(f);
    return n;
}

static double width_of(double ratio) { return (ratio < most_ratio ? ratio : most_ratio) / most_ratio * WIDE; }

static void column(FILE *f, const bar *bars, int n, const char *isa, const char *title, int x)
{
    int y = TOP, lines = 0;
    for (int i = 0; i < n; i++) lines += !strcmp(bars[i].isa, isa);
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
        const int cached = strstr(b->name, "-kv") != NULL, two = b->ratio[1] > 0;
        if (strcmp(b->isa, isa)) continue;
        fprintf(f, "<text class=\"e\" x=\"%d\" y=\"%d\">%s%s <tspan class=\"s\">%s</tspan></text>\n", x + LEFT - 8,
                y + 19, b->what, cached ? ", cached" : "", b->shape);
        for (int t = 0; t < 2; t++) {
            const double w = width_of(b->ratio[t]);
            const double past = w > width_of(1) ? w : width_of(1);             /* the number stands clear of the line */
            const int tall = two ? 12 : 22, at = y + 3 + (two ? 13 * t : 0);
            if (b->ratio[t] <= 0) continue;
            fprintf(f, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>\n",
                    t ? "t2" : "t1", x + LEFT, at, w, tall);
            fprintf(f, "<text class=\"n\" x=\"%.1f\" y=\"%d\">%.2f%s <tspan class=\"s\">%s</tspan></text>\n",
                    x + LEFT + past + 5, at + tall / 2 + 4, b->ratio[t],
                    b->ratio[t] > most_ratio ? " \xe2\x86\x92" : "", b->best[t]);
        }
        y += LINE;
    }
}

int main(int argc, char **argv)
{
    static bar bars[MOST];
    const int n = argc == 3 ? read_bars(argv[1], bars) : 0;
    int lines[2] = { 0, 0 }, columns, tall, wide;
    FILE *f;
    if (argc != 3) {
        fprintf(stderr, "plot bench.csv bench.svg\n");
        return 2;
    }
    if (!n) return 0;                     /* nothing measured yet */
    f = fopen(argv[2], "w");
    if (!f) {
        fprintf(stderr, "plot: cannot write %s\n", argv[2]);
        return 1;
    }
    for (int i = 0; i < n; i++) lines[!strcmp(bars[i].isa, "avx2")]++;
    columns = (lines[0] > 0) + (lines[1] > 0);
    wide = GAP + columns * (LEFT + WIDE + LABEL + GAP);
    tall = TOP + (lines[0] > lines[1] ? lines[0] : lines[1]) * LINE + 18;
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", wide,
            tall, wide, tall);
    fputs("<style>\n"
          "text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}\n"
          ".t{font-weight:600;font-size:15px}.h{font-weight:600}.m{text-anchor:middle}.e{text-anchor:end}\n"
          ".s{fill:#59636e}.n{font-size:11px}\n"
          ".card{fill:#fff;stroke:#d1d9e0}.t1{fill:#2563c9}.t2{fill:#8ab4f0}\n"
          ".grid{stroke:#e4e8ec}.one{stroke:#c2410c;stroke-width:1.5}\n"
          "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.s{fill:#9198a1}.card{fill:#0d1117;stroke:#3d444d}\n"
          ".t1{fill:#4c8df6}.t2{fill:#27518f}.grid{stroke:#21262d}.one{stroke:#f0883e}}\n"
          "</style>\n", f);
    fprintf(f, "<rect class=\"card\" x=\".5\" y=\".5\" width=\"%d\" height=\"%d\" rx=\"10\"/>\n", wide - 1, tall - 1);
    fprintf(f, "<text class=\"t\" x=\"%d\" y=\"28\">attn.h: times as fast as the best peer of each shape</text>\n",
            GAP);
    fprintf(f,
            "<rect class=\"t1\" x=\"%d\" y=\"38\" width=\"10\" height=\"10\"/><text class=\"s\" x=\"%d\" y=\"47\">1 "
            "thread</text>\n",
            GAP, GAP + 15);
    fprintf(f,
            "<rect class=\"t2\" x=\"%d\" y=\"38\" width=\"10\" height=\"10\"/><text class=\"s\" x=\"%d\" y=\"47\">2 "
            "threads</text>\n",
            GAP + 75, GAP + 90);
    if (lines[0]) column(f, bars, n, "native", lines[1] ? "With AVX-512" : "Everything this machine has", GAP);
    if (lines[1]) column(f, bars, n, "avx2", "AVX2 alone", GAP + (columns - 1) * (LEFT + WIDE + LABEL + GAP));
    fputs("</svg>\n", f);
    return fclose(f) != 0;
}
