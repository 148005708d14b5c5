/* picture.h: cross-attention at a glance, as SVG. Above, the spectrogram and the beginnings of words; below, the
   staircase: a row for each token, dark where the alignment heads attend when the token is written, and the path
   through it.

   Both grids are embedded as PNG images of 16 greys, uncompressed, and used as masks, so that their colours follow the
   light or dark style of the page. */
#ifndef LISTEN_PICTURE_H
#define LISTEN_PICTURE_H
#include "../svg.h"
#include <stdlib.h>

enum { PICTURE_WIDTH = 900, PICTURE_LEFT = 92, PICTURE_PLOT = 780 };
enum { PICTURE_TOP = 86, PICTURE_LINE = 18, PICTURE_SOUND = 120, PICTURE_ROW = 15 };

typedef struct png { unsigned char *bytes; size_t n; unsigned check; } png;

/* Appends to the open chunk and updates its checksum (CRC 32). */
static inline void png_byte(png *p, unsigned byte)
{
    p->bytes[p->n++] = (unsigned char)byte;
    p->check ^= byte & 255;
    for (int i = 0; i < 8; i++) p->check = p->check >> 1 ^ (p->check & 1 ? 0xEDB88320u : 0);
}

static inline void png_number(png *p, unsigned long x)
{
    for (int i = 24; i >= 0; i -= 8) png_byte(p, (unsigned)(x >> i & 255));
}

static inline void png_chunk(png *p, unsigned long length, const char *name)
{
    png_number(p, length);
    p->check = 0xFFFFFFFFu;
    for (int i = 0; i < 4; i++) png_byte(p, (unsigned char)name[i]);
}

static inline void png_end(png *p) { png_number(p, p->check ^ 0xFFFFFFFFu); }

/* Makes an image of 16 greys, black 0 to white 1, of grid [height][width], width below 131,000. NULL bytes: no
   memory. */
static inline png png_make(const float *grid, int width, int height)
{
    static const unsigned char begin[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n' };
    const unsigned row = (unsigned)(width + 1) / 2 + 1, size = (row + 5) * (unsigned)height;
    unsigned a = 1, b = 0;
    png p = { (unsigned char *)malloc(size + 100), 0, 0 };
    if (!p.bytes) return p;
    for (int i = 0; i < 8; i++) png_byte(&p, begin[i]);
    png_chunk(&p, 13, "IHDR");
    png_number(&p, (unsigned long)width);
    png_number(&p, (unsigned long)height);
    png_number(&p, 0x04000000);                                /* 4 bits, grey */
    png_byte(&p, 0);
    png_end(&p);
    png_chunk(&p, size + 6, "IDAT");
    png_byte(&p, 0x78);
    png_byte(&p, 0x01);
    for (int y = 0; y < height; y++) {                         /* a stored block of deflate for each row */
        png_byte(&p, y + 1 == height);
        png_byte(&p, row);
        png_byte(&p, row >> 8);
        png_byte(&p, ~row);
        png_byte(&p, ~row >> 8);
        for (int x = -2; x < width; x += 2) {
            unsigned byte = 0;                                 /* x -2: no filter */
            for (int k = 0; k < 2 && x >= 0; k++) {
                const float v = x + k < width ? grid[y * width + x + k] : 0;
                byte = byte << 4 | (unsigned)(v <= 0 ? 0 : v >= 1 ? 15 : (double)v * 15 + 0.5);
            }
            png_byte(&p, byte);
            a = (a + byte) % 65521;
            b = (b + a) % 65521;
        }
    }
    png_number(&p, (unsigned long)b << 16 | a);
    png_end(&p);
    png_chunk(&p, 0, "IEND");
    png_end(&p);
    return p;
}

/* A grid as a mask over a rectangle of the class `name`. Returns 0 without memory. */
static inline int picture_grid(FILE *f, const char *name, const float *grid, int width, int height, int y, int tall)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const png p = png_make(grid, width, height);
    if (!p.bytes) return 0;
    fprintf(f, "<mask id=\"%s\"><image x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" preserveAspectRatio=\"none\" "
               "href=\"data:image/png;base64,", name, PICTURE_LEFT, y, PICTURE_PLOT, tall);
    for (size_t i = 0; i < p.n; i += 3) {
        unsigned long x = 0;
        for (size_t k = 0; k < 3; k++) x = x << 8 | (i + k < p.n ? p.bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++) fputc(i + k > p.n ? '=' : letters[x >> (18 - 6 * k) & 63], f);
    }
    fputs("\"/></mask>\n", f);
    for (int layer = 0; layer < 2; layer++)
        fprintf(f, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"%s%s%s/>\n", layer ? name : "h",
                PICTURE_LEFT, y, PICTURE_PLOT, tall, layer ? " mask=\"url(#" : "",
                layer ? name : "", layer ? ")\"" : "");
    free(p.bytes);
    return 1;
}

/* Fills the spectrogram's grid: low bands below, a column per 20 ms. */
static inline void picture_sound(const listener *l, int columns, float *grid)
{
    const int bands = l->w.spectrum.bands;
    const float *frames = l->frames + bands;
    float most = -10;
    for (int i = 0; i < 2 * columns * bands; i++) most = frames[i] > most ? frames[i] : most;
    for (int b = 0; b < bands; b++) {
        for (int j = 0; j < columns; j++) {
            const float mean = (frames[2 * j * bands + b] + frames[(2 * j + 1) * bands + b]) / 2;
            grid[(bands - 1 - b) * columns + j] = 1 + (mean - most) / 1.6f;
        }
    }
}

static inline void picture_stairs(const listener *l, int columns, int n, float *grid)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < columns; j++) {
            grid[i * columns + j] = l->staircase[i * l->columns + j];
            most = grid[i * columns + j] > most ? grid[i * columns + j] : most;
        }
    for (int i = 0; i < n * columns; i++) grid[i] *= 1.6f / most;
}

static inline int picture_x(long t, int columns)               /* t in units of 10 ms */
{
    return PICTURE_LEFT + (int)(PICTURE_PLOT * t / (2 * columns));
}

/* Returns the width of a word in at most a common sans-serif font. */
static inline int picture_width(const char *text)
{
    int width = 6;
    for (; *text; text++) width += strchr("mwMW", *text) ? 13 : 9;
    return width;
}

/* A word above the sound: right of its beginning x, or left of it (`left`) where the picture ends. line: lines up from
   the sound. */
typedef struct picture_word { int x, left, line; const char *text; } picture_word;

/* Places the words that begin before the last column, each in the lowest line that has room. list [l->words.n]. Returns
   their number. */
static inline int picture_place(const listener *l, int columns, picture_word *list, int *lines)
{
    int end[LONGEST + 1] = {0}, n = 0;
    *lines = 1;
    for (; n < l->words.n && l->words.list[n].begin / 2 < columns; n++) {
        picture_word *w = &list[n];
        w->text = l->words.text + l->words.list[n].text;
        w->x = picture_x(l->words.list[n].begin, columns);
        const int width = picture_width(w->text);
        w->left = w->x + width > PICTURE_WIDTH - 6;
        w->line = 0;
        while (w->line < n && (w->left ? w->x - width : w->x) < end[w->line]) w->line++;
        end[w->line] = w->left ? w->x : w->x + width;
        if (w->line >= *lines) *lines = w->line + 1;
    }
    return n;
}

/* Words above the sound, a thin line down from each. */
static inline void picture_words(FILE *f, const picture_word *list, int n, int top, int bottom)
{
    for (int i = 0; i < n; i++)
        fprintf(f, "<path class=\"line\" d=\"M%d %dV%d\"/>\n", list[i].x,
                top - 8 - PICTURE_LINE * list[i].line, bottom);
    for (int i = 0; i < n; i++)
        svg_text(f, list[i].x + (list[i].left ? -3 : 3), top - 12 - PICTURE_LINE * list[i].line, 0,
                 list[i].left ? "w e" : "w", list[i].text);
}

static const char picture_style[] =
    "<style>.w{font-size:14px;font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:3px}\n"
    ".r{text-anchor:end;font-size:12px}.long{font-size:8px}.line{stroke:#8c959f;stroke-opacity:.55}\n"
    ".sound{fill:#1f2328}.stairs{fill:#0b57d0}\n"
    ".path{fill:none;stroke:#d1480b;stroke-width:2;stroke-linejoin:round}\n"
    "@media(prefers-color-scheme:dark){.w{stroke:#0d1117}.sound{fill:#f0f6fc}.stairs{fill:#79b8ff}\n"
    ".path{stroke:#ff9a4d}}</style>\n";

/* Draws the first sentence that l has transcribed. Returns 0 if the file cannot be written, or without memory. */
static inline int draw(const char *path, const listener *l)
{
    const cue *first = &l->segments.list[0];
    const int columns = (int)first->end / 2 < l->columns ? (int)first->end / 2 : l->columns;
    int n = 1, column = 0, lines = 0;
    while (n < l->n_ids && l->starts[n] < columns) n++;
    picture_word *words = (picture_word *)malloc((size_t)(l->words.n + 1) * sizeof *words);
    const int n_words = words ? picture_place(l, columns, words, &lines) : 0, top = PICTURE_TOP + PICTURE_LINE * lines;
    const int stairs = top + PICTURE_SOUND + 14, bottom = stairs + n * PICTURE_ROW, bands = l->w.spectrum.bands;
    float *grid = (float *)malloc((size_t)columns * (size_t)(n > bands ? n : bands) * sizeof *grid);
    FILE *f = grid && words ? svg_open(path, PICTURE_WIDTH, bottom + 50) : NULL;
    char text[64];
    int fine = f != NULL;
    if (fine) {
        fputs(picture_style, f);
        svg_text(f, 20, 32, 0, "t", "Cross-attention finds the words");
        svg_text(f, 20, 52, 0, "s", "Above the sound (80 bands to 8 kHz). Below, for each token, where the decoder "
                                    "attends while it writes that token, and the path");
        svg_text(f, 20, 68, 0, "s", "through it: where the path steps down, a token begins.");
        picture_sound(l, columns, grid);
        fine = picture_grid(f, "sound", grid, columns, bands, top, PICTURE_SOUND);
        picture_stairs(l, columns, n, grid);
        fine = picture_grid(f, "stairs", grid, columns, n, stairs, n * PICTURE_ROW) && fine;
        picture_words(f, words, n_words, top, bottom);
        fprintf(f, "<path class=\"path\" d=\"M%d %d", PICTURE_LEFT, stairs + PICTURE_ROW / 2);
        for (int i = 0; i < n; i++) {
            column = i + 1 < n && l->starts[i + 1] < columns ? l->starts[i + 1] : columns;
            fprintf(f, "H%d%s", picture_x(2 * column, columns), i + 1 < n ? "v15" : "\"/>\n");
        }
        for (int i = 0; i < n; i++) {
            text[append_text(&l->w, l->ids + i, 1, text, (int)sizeof text - 1)] = 0;
            svg_text(f, PICTURE_LEFT - 8, stairs + i * PICTURE_ROW + 12, 0, strlen(text) > 12 ? "r long" : "r",
                     text[0] == ' ' ? text + 1 : text);
        }
        for (int s = 0; 50 * s <= columns; s++) {
            snprintf(text, sizeof text, "%d s", s);
            svg_text(f, picture_x(100 * s, columns), bottom + 20, 0, "s m", text);
        }
        fine = svg_close(f) && fine;
    }
    free(grid);
    free(words);
    if (!fine && f) remove(path);
    return fine;
}
#endif
