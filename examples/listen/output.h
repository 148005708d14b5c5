/* output.h: subtitles (.srt, .vtt), JSON and the picture. */
#ifndef LISTEN_OUTPUT_H
#define LISTEN_OUTPUT_H
#include "words.h"
#include <stdio.h>
#include <string.h>

static inline void output_time(FILE *f, long t, char point)
{
    fprintf(f, "%02ld:%02ld:%02ld%c%02ld0", t / 360000, t / 6000 % 60, t / 100 % 60, point, t % 100);
}

static inline void output_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fputc('\\', f);
        fputc(*s, f);
    }
    fputc('"', f);
}

static inline void output_list(FILE *f, const char *name, const cues *c)
{
    fprintf(f, "  \"%s\": [", name);
    for (int i = 0; i < c->n; i++) {
        const cue *q = &c->list[i];
        fprintf(f, "%s\n    { \"start\": %ld.%02ld, \"end\": %ld.%02ld, \"text\": ", i ? "," : "", q->begin / 100,
                q->begin % 100, q->end / 100, q->end % 100);
        output_string(f, c->text + q->text);
        fputs(" }", f);
    }
    fputs("\n  ]", f);
}

/* Returns 's', 'v' or 'j' by the end of a file's name, 0 for any other. */
static inline char output_kind(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot && !strcmp(dot, ".srt")) return 's';
    if (dot && !strcmp(dot, ".vtt")) return 'v';
    if (dot && !strcmp(dot, ".json")) return 'j';
    return 0;
}

/* Writes a whole file or none. words NULL: segments only. Returns 0 if it cannot be written. */
static inline int output_write(const char *path, const cues *segments, const cues *words)
{
    const char kind = output_kind(path);
    const cues *c = words ? words : segments;
    FILE *f = fopen(path, "wb");
    if (!f) return 0;
    if (kind == 'j') {
        fputs("{\n", f);
        output_list(f, "segments", segments);
        if (words) fputs(",\n", f);
        if (words) output_list(f, "words", words);
        fputs("\n}\n", f);
    }
    if (kind == 'v') fputs("WEBVTT\n\n", f);
    for (int i = 0; kind != 'j' && i < c->n; i++) {
        const char point = kind == 's' ? ',' : '.';
        if (kind == 's') fprintf(f, "%d\n", i + 1);
        output_time(f, c->list[i].begin, point);
        fputs(" --> ", f);
        output_time(f, c->list[i].end, point);
        fprintf(f, "\n%s\n\n", c->text + c->list[i].text);
    }
    const int bad = ferror(f);
    if (!fclose(f) && !bad) return 1;
    remove(path);
    return 0;
}
#endif
