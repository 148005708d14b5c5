/* svg.h: writes masks and attention weights as small SVG pictures. Not a part of attn.h; only examples use it.
 *
 *     FILE *f = svg_open("mask.svg", 300, 260);                        width and height of the picture
 *     svg_mask(f, 20, 20, "title", "subtitle", mask, NULL, n_q, n_k, row_names, column_names);
 *     svg_close(f);
 *
 * Every picture is on a card with colours for light and for dark pages, so it is legible on both. */
#ifndef SVG_H
#define SVG_H

#include <math.h>                                              /* INFINITY */
#include <stdio.h>
#include <string.h>

enum { SVG_CELL = 26 };                                        /* height of a cell, and width of one of a mask */

/* Returns NULL if the file cannot be written. */
static inline FILE *svg_open(const char *path, int width, int height)
{
    FILE *f = fopen(path, "wb");                               /* the same bytes on Windows */
    if (!f) return NULL;
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n",
            width, height, width, height);
    fputs("<style>\n"
          "text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}\n"
          ".t{font-weight:600;font-size:15px}.m{text-anchor:middle}.e{text-anchor:end}.s{fill:#59636e}\n"
          ".on{fill:#fff}.off{fill:#76808b;font-size:11px}.pad{fill:#8a5300;font-size:11px}\n"
          ".card{fill:#fff;stroke:#d1d9e0}.v{fill:#2563c9}.h{fill:#e9edf1}.p{fill:#fde4b3}\n"
          "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.s{fill:#9198a1}\n"
          ".on{fill:#fff}.off{fill:#868f99}.pad{fill:#e3b341}\n"
          ".card{fill:#0d1117;stroke:#3d444d}.v{fill:#2f6fdb}.h{fill:#21262d}.p{fill:#4a3812}}\n"
          "</style>\n"
          "<defs>\n", f);
    /* The three cells of a mask: Visible, Hidden, hidden because it is Padding. Defined once, then used by name. */
    static const char *const cell[3][4] = { { "V", "v", "on", "0" }, { "H", "h", "off", "\xe2\x88\x92\xe2\x88\x9e" },
                                            { "P", "p", "pad", "\xe2\x88\x92\xe2\x88\x9e" } };
    for (int i = 0; i < 3; i++)
        fprintf(f, "<g id=\"%s\"><rect class=\"%s\" x=\"1\" y=\"1\" width=\"24\" height=\"24\" rx=\"4\"/>"
                   "<text class=\"m %s\" x=\"13\" y=\"17\">%s</text></g>\n",
                cell[i][0], cell[i][1], cell[i][2], cell[i][3]);
    fputs("</defs>\n", f);
    fprintf(f, "<rect class=\"card\" x=\".5\" y=\".5\" width=\"%d\" height=\"%d\" rx=\"10\"/>\n",
            width - 1, height - 1);
    return f;
}

static inline int svg_close(FILE *f)                           /* 1 if everything has been written */
{
    int bad = fputs("</svg>\n", f) < 0 || ferror(f);
    return !fclose(f) && !bad;
}

/* Writes text, rotated by `turn` degrees. Classes: t title, s soft, m centred, e ends at x. */
static inline void svg_text(FILE *f, int x, int y, int turn, const char *classes, const char *text)
{
    fputs("<text", f);
    if (*classes) fprintf(f, " class=\"%s\"", classes);
    if (turn) fprintf(f, " transform=\"translate(%d %d)rotate(%d)\">", x, y, turn);
    else fprintf(f, " x=\"%d\" y=\"%d\">", x, y);
    for (; *text; text++) {
        if (*text == '<') fputs("&lt;", f);
        else if (*text == '>') fputs("&gt;", f);
        else if (*text == '&') fputs("&amp;", f);
        else fputc(*text, f);
    }
    fputs("</text>\n", f);
}

/* One cell of a mask: V visible, H hidden, P hidden because it is padding. */
static inline void svg_cell(FILE *f, int x, int y, char kind)
{
    fprintf(f, "<use href=\"#%c\" x=\"%d\" y=\"%d\"/>\n", kind, x, y);
}

static inline int svg_long(const char *const *names, int n)    /* 1 if one of them is longer than two characters */
{
    for (int i = 0; i < n; i++) if (strlen(names[i]) > 2) return 1;
    return 0;
}

/* Title and names; moves x and y to the first cell. Long column names over narrow cells are written slanted. */
static inline void svg_frame(FILE *f, int *x, int *y, const char *title, const char *subtitle, int n_q, int n_k,
                             int width, const char *const *row_names, const char *const *col_names)
{
    int slanted = width < 2 * SVG_CELL && svg_long(col_names, n_k);
    svg_text(f, *x, *y + 12, 0, "t", title);
    svg_text(f, *x, *y + 30, 0, "s", subtitle);
    *x += svg_long(row_names, n_q) ? 48 : 18;
    *y += slanted ? 84 : 62;
    for (int j = 0; j < n_k; j++)
        svg_text(f, *x + j * width + width / 2 + (slanted ? 2 : 0), *y - 6, slanted ? -40 : 0, slanted ? "" : "m",
                 col_names[j]);
    for (int i = 0; i < n_q; i++) svg_text(f, *x - 6, *y + i * SVG_CELL + 17, 0, "e", row_names[i]);
}

/* A mask (0 visible, -inf hidden) with the upper left corner of its title at x, y. Hidden cells that are also hidden
 * in `padding` (NULL: none) get another colour. */
static inline void svg_mask(FILE *f, int x, int y, const char *title, const char *subtitle, const float *mask,
                            const float *padding, int n_q, int n_k,
                            const char *const *row_names, const char *const *col_names)
{
    svg_frame(f, &x, &y, title, subtitle, n_q, n_k, SVG_CELL, row_names, col_names);
    for (int i = 0; i < n_q; i++)
        for (int j = 0; j < n_k; j++) {
            int at = i * n_k + j, hidden = mask[at] == -INFINITY, pad = hidden && padding && padding[at] == -INFINITY;
            svg_cell(f, x + j * SVG_CELL, y + i * SVG_CELL, (char)(pad ? 'P' : hidden ? 'H' : 'V'));
        }
}

/* Weights (0..1) as a heat map with numbers, in cells that are `width` wide. */
static inline void svg_weights(FILE *f, int x, int y, const char *title, const char *subtitle, const float *weights,
                               int n_q, int n_k, int width, const char *const *row_names, const char *const *col_names)
{
    svg_frame(f, &x, &y, title, subtitle, n_q, n_k, width, row_names, col_names);
    for (int i = 0; i < n_q; i++)
        for (int j = 0; j < n_k; j++) {
            double w = (double)weights[i * n_k + j];
            char number[16];
            snprintf(number, sizeof number, "%.2f", w);
            for (int layer = 0; layer < 2; layer++)            /* the weight, drawn with itself as opacity, over grey */
                fprintf(f, "<rect class=\"%c\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"24\" rx=\"4\" "
                           "opacity=\"%.2f\"/>\n",
                        layer ? 'v' : 'h', x + j * width + 1, y + i * SVG_CELL + 1, width - 2, layer ? w : 1.0);
            svg_text(f, x + j * width + width / 2, y + i * SVG_CELL + 17, 0, w > 0.5 ? "m on" : "m", number);
        }
}

#endif
