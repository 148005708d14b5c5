/* words.h: finds the time of each word by the decoder's cross-attention. Also: printable text, and a
   measure of how repetitive it is.

   Some heads of the decoder, the alignment heads, attend to the sound of the token to be written next. Their
   weights form a staircase: rows are tokens, columns frames of 20 ms. words_align finds the path through it as Whisper
   does: each row normalised over the frames that hold sound, each column to mean 0 and variance 1 over the rows, a
   median filter of 7 frames, the mean of the heads, dynamic time warping. */
#ifndef LISTEN_WORDS_H
#define LISTEN_WORDS_H
#include "exact.h"
#include <stdlib.h>
#include <string.h>

enum { WORDS_MEDIAN = 7 };

/* A line of output: begin and end in units of 10 ms, text as an offset into cues.text. */
typedef struct cue { long begin, end; size_t text; } cue;
typedef struct cues { cue *list; int n, room; char *text; size_t length, space; int failed; } cues;

/* ---- alignment --------------------------------------------------------------------------------------------------- */

/* Lists the alignment heads of a decoder layer, as published for each model. Returns their number. Sizes that
   are not listed use all heads of the upper half of the layers, as OpenAI's program does. */
static inline int words_heads(int layers, int heads, int multilingual, int layer, int *list)
{
    static const char *const tables[3][2] = {                  /* "layer.head" in order */
        { "1.0 2.0 2.5 3.0 3.1 3.2 3.3 3.4 ", "2.2 3.0 3.2 3.3 3.4 3.5 " },
        { "3.3 4.7 5.1 5.5 5.7 ", "3.1 4.2 4.3 4.7 5.1 5.2 5.4 5.6 " },
        { "6.6 7.0 7.3 7.8 8.2 8.5 8.7 9.0 9.4 9.8 9.10 10.0 10.1 10.2 10.3 10.6 10.11 11.2 11.4 ",
          "5.3 5.9 8.0 8.4 8.7 8.8 9.0 9.7 9.9 10.5 " }
    };
    const int size = layers == 4 && heads == 6 ? 0 : layers == 6 && heads == 8 ? 1 : layers == 12 ? 2 : -1;
    int n = 0;
    if (size < 0) {
        for (int h = 0; h < heads && layer >= layers / 2; h++) list[n++] = h;
        return n;
    }
    for (const char *at = tables[size][multilingual != 0]; *at;) {
        int number[2] = { 0, 0 };
        for (int i = 0; i < 2; i++) {
            while (*at >= '0' && *at <= '9') number[i] = 10 * number[i] + *at++ - '0';
            at++;
        }
        if (number[0] == layer) list[n++] = number[1];
    }
    return n;
}

/* Makes the weights of a column comparable: mean 0, variance 1 over the rows. */
static inline void words_normalise(float *w, int rows, int columns, int frames)
{
    for (int i = 0; i < rows; i++) {
        double sum = 0;
        for (int j = 0; j < frames; j++) sum += (double)w[i * columns + j];
        for (int j = 0; j < frames; j++) w[i * columns + j] = (float)((double)w[i * columns + j] / sum);
    }
    for (int j = 0; j < frames; j++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < rows; i++) sum += (double)w[i * columns + j];
        const double mean = (double)(float)(sum / rows);
        for (int i = 0; i < rows; i++) {
            const double d = (double)(float)((double)w[i * columns + j] - mean);
            squares += d * d;
        }
        const double deviation = square_root(squares / rows);
        for (int i = 0; i < rows; i++)
            w[i * columns + j] = deviation > 0 ? (float)(((double)w[i * columns + j] - mean) / deviation) : 0;
    }
}

/* Writes the median of 7 neighbours of each number of a row; the ends are mirrored. */
static inline void words_median(const float *x, int n, float *to)
{
    for (int j = 0; j < n; j++) {
        float window[WORDS_MEDIAN];
        for (int k = 0; k < WORDS_MEDIAN; k++) {
            int at = j + k - WORDS_MEDIAN / 2;
            if (at < 0) at = -at;
            if (at >= n) at = 2 * n - 2 - at;
            int place = k;
            for (; place > 0 && window[place - 1] > x[at]; place--) window[place] = window[place - 1];
            window[place] = x[at];
        }
        to[j] = window[WORDS_MEDIAN / 2];
    }
}

/* Dynamic time warping: the path from the first token and frame to the last of both with the largest sum of m
   [n][frames]. starts [n]: the frame at which the path enters each row. Returns 0 without memory. */
static inline int words_path(const float *m, int n, int frames, int *starts)
{
    const size_t width = (size_t)frames + 1;
    float *cost = (float *)malloc((size_t)(n + 1) * width * sizeof *cost);
    char *step = (char *)malloc((size_t)(n + 1) * width);
    if (cost && step) {
        for (size_t i = 0; i < (size_t)(n + 1) * width; i++) cost[i] = 3e38f;
        cost[0] = 0;
        for (int j = 1; j <= frames; j++) {
            for (int i = 1; i <= n; i++) {
                const size_t at = (size_t)i * width + (size_t)j;
                const float both = cost[at - width - 1], up = cost[at - width], left = cost[at - 1];
                step[at] = both < up && both < left ? 'b' : up < both && up < left ? 'u' : 'l';
                const float before = step[at] == 'b' ? both : step[at] == 'u' ? up : left;
                cost[at] = before - m[(size_t)(i - 1) * (size_t)frames + (size_t)j - 1];
            }
        }
        for (int i = n, j = frames; i > 0;) {
            const char s = j == 1 ? 'u' : i == 1 ? 'l' : step[(size_t)i * width + (size_t)j];
            starts[i - 1] = j - 1;
            if (i == 1 && j == 1) break;
            i -= s != 'l';
            j -= s != 'u';
        }
    }
    const int fine = cost && step;
    free(cost);
    free(step);
    return fine;
}

/* Finds the frame in which each token begins.
   weights  [heads][rows][columns] probabilities, of which `frames` columns hold sound; becomes the staircase
            [rows][frames] (mean of the heads)
   starts   [n] for the rows first .. first + n - 1
   Returns 0 without memory. */
static inline int words_align(float *weights, int heads, int rows, int columns, int frames, int first, int n,
                              int *starts)
{
    float *filtered = (float *)malloc((size_t)frames * sizeof *filtered);
    float *sum = (float *)calloc((size_t)rows * (size_t)frames, sizeof *sum);
    int fine = filtered && sum;
    for (int h = 0; fine && h < heads; h++) {
        float *w = weights + (size_t)h * (size_t)rows * (size_t)columns;
        words_normalise(w, rows, columns, frames);
        for (int i = 0; i < rows; i++) {
            words_median(w + i * columns, frames, filtered);
            for (int j = 0; j < frames; j++) sum[i * frames + j] += filtered[j];
        }
    }
    for (int i = 0; fine && i < rows * frames; i++) weights[i] = sum[i] / (float)heads;
    free(filtered);
    free(sum);
    return fine && words_path(weights + (size_t)first * (size_t)frames, n, frames, starts);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Returns the bytes of the UTF-8 character at s (n bytes are there) if it may be printed, else 0. */
static inline int words_letter(const unsigned char *s, int n)
{
    static const unsigned least[5] = { 0, ' ', 0xA0, 0x800, 0x10000 };
    const int length = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    unsigned code = length < 2 ? s[0] : s[0] & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if (i >= n || (s[i] & 0xC0) != 0x80) return 0;
        code = code << 6 | (s[i] & 0x3Fu);
    }
    if (length == 0 || code < least[length] || code == 0x7F || code > 0x10FFFF) return 0;
    return (code >= 0xD800 && code < 0xE000) || code == 0xFFFE || code == 0xFFFF ? 0 : length;
}

/* Appends a cue. Bytes that are no printable UTF-8 become U+FFFD; spaces at the front are dropped. A failed allocation
   sets c->failed. */
static inline void cues_add(cues *c, long begin, long end, const char *bytes, int n)
{
    while (n > 0 && *bytes == ' ') {
        bytes++;
        n--;
    }
    const size_t need = c->length + 3 * (size_t)n + 1;
    if (c->n == c->room) {
        const int room = 2 * c->room + 64;
        cue *list = (cue *)realloc(c->list, (size_t)room * sizeof *list);
        if (list) c->list = list;
        if (list) c->room = room;
    }
    if (need > c->space) {
        char *text = (char *)realloc(c->text, 2 * need);
        if (text) c->text = text;
        if (text) c->space = 2 * need;
    }
    if (c->n == c->room || need > c->space) {
        c->failed = 1;
        return;
    }
    const cue added = { begin, end, c->length };
    c->list[c->n++] = added;
    for (int i = 0; i < n;) {
        const int length = words_letter((const unsigned char *)bytes + i, n - i);
        memcpy(c->text + c->length, length ? bytes + i : "\xef\xbf\xbd", length ? (size_t)length : 3);
        c->length += length ? (size_t)length : 3;
        i += length ? length : 1;
    }
    c->text[c->length++] = 0;
}

/* Gives cues without a duration one, from cue `first` on: cues that begin at the same time share the time until the end
   of the last one, or until the next cue if that has no duration either; each gets at least 10 ms. */
static inline void cues_share(cues *c, int first)
{
    long end = 0;
    for (int i = first, next; i < c->n; i = next) {
        const long begin = c->list[i].begin > end ? c->list[i].begin : end;
        for (next = i + 1; next < c->n && c->list[next].begin <= begin;) next++;
        const long n = next - i;
        end = c->list[next - 1].end;
        if (end <= begin && next < c->n) end = c->list[next].begin;
        if (end < begin + n) end = begin + n;
        for (long k = 0; k < n; k++) {
            c->list[i + k].begin = begin + (end - begin) * k / n;
            c->list[i + k].end = begin + (end - begin) * (k + 1) / n;
        }
    }
}

static inline void cues_free(cues *c)
{
    free(c->list);
    free(c->text);
    memset(c, 0, sizeof *c);
}

/* Estimates the compression ratio that zlib would reach for a text: a greedy search for repetitions
   of 3 to 258 bytes, 5.5 bits for a byte, 17 for a repetition, 20 bytes for head, code table and checksum. */
static inline double words_ratio(const char *text, int n)
{
    int tenths = 1600;                                         /* of a bit */
    for (int i = 0; i < n;) {
        int longest = 0;
        for (int j = 0; j < i; j++) {
            int k = 0;
            while (k < 258 && i + k < n && text[j + k] == text[i + k]) k++;
            if (k > longest) longest = k;
        }
        tenths += longest < 3 ? 55 : 170;
        i += longest < 3 ? 1 : longest;
    }
    return n * 80.0 / tenths;
}
#endif
