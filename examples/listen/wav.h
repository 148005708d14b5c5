/* wav.h: sound as mono floats at 16 kHz, from the bytes of a WAV file of any rate, channels and sample format.

       wav w;
       const char *reason = wav_open(&w, bytes, size);         NULL, or a reason for an error message
       wav_read(&w, first, n, samples);                        any part, w.samples in all; zeros beyond both ends
       wav_close(&w);

   Reads from memory and keeps no copy: the bytes must outlive the wav, and an hour of sound takes no memory.

   Resampling is a windowed sinc with a narrow transition that ends at half of the lower rate, times a Kaiser window
   with beta 7.86 (80 dB). From above 16 kHz it has 128 zero crossings on each side: flat to 7.69 kHz, aliases below
   -80 dB from 8 kHz on. From below 16 kHz it has 256: flat to 0.49 of the rate. The recogniser needs both: without
   the band from 6.7 to 7.7 kHz, or with aliases, it writes other words.
   There is a row of taps, scaled so that its sum is 1, for each of the L positions that a sample at 16 kHz can have
   between two source samples (rate / 16000 = M / L in lowest terms). If L exceeds WAV_ROWS, taps are interpolated
   between the rows of WAV_ROWS positions, with an error below -100 dB. Sound at 16 kHz is not filtered. */
#ifndef LISTEN_WAV_H
#define LISTEN_WAV_H
#include "exact.h"
#include <stdlib.h>

enum { WAV_RATE = 16000, WAV_ROWS = 640, WAV_LANES = 8, WAV_BLOCK = 1600 };

typedef struct wav {
    long long samples;                                         /* at 16 kHz */
    int rate, channels, bits, is_float;                        /* of the source */
    /* private */
    const unsigned char *data;
    long long frames;                                          /* source samples of one channel */
    int up, down;                                              /* L and M */
    int taps, before;                                          /* per row, whole lanes; taps before the centre */
    int positions;                                             /* between two source samples: up or WAV_ROWS */
    double *rows;                                              /* [positions + 1][taps], floats; NULL at 16 kHz */
} wav;

static inline unsigned long wav_number(const unsigned char *p, int bytes)
{
    unsigned long x = 0;
    while (bytes--) x = x << 8 | p[bytes];
    return x;
}

/* Returns I0(x), the window's Bessel function. */
static inline double wav_bessel(double x)
{
    const double quarter = product(x, x) / 4;
    double term = 1, sum = 1;
    for (int k = 1; term > 1e-17 * sum; k++) {
        term = product(term, quarter) / (double)(k * k);
        sum += term;
    }
    return sum;
}

/* Returns tap `distance` source samples from the centre, not yet scaled. */
static inline double wav_tap(double distance, double width, double cut)
{
    const double x = distance / width;                         /* -1 .. 1 inside the window */
    if (x <= -1 || x >= 1) return 0;
    const double window = wav_bessel(product(7.86, square_root(1 - product(x, x))));
    const double turns = product(distance, cut);
    const double sinc = distance == 0 ? 1 : sine(turns / 2) / product(3.141592653589793, turns);
    return product(sinc, window);
}

/* Makes the rows of taps. Returns 0 without memory. */
static inline int wav_make_taps(wav *w)
{
    int a = w->rate, b = WAV_RATE;
    while (b) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    w->up = WAV_RATE / a;
    w->down = w->rate / a;
    w->samples = (w->frames * w->up + w->down - 1) / w->down;
    if (w->up == w->down) return 1;
    const double lower = w->rate < WAV_RATE ? 1 : (double)WAV_RATE / w->rate;    /* of the source rate */
    const int crossings = w->rate < WAV_RATE ? 256 : 128;
    const double width = crossings / lower;
    const double cut = product(1 - 2.5 / crossings, lower);                      /* half of the transition: 2.5 */
    w->before = (int)width;
    w->taps = (2 * w->before + 2 + WAV_LANES - 1) / WAV_LANES * WAV_LANES;
    w->positions = w->up < WAV_ROWS ? w->up : WAV_ROWS;
    w->rows = (double *)malloc((size_t)(w->positions + 1) * (size_t)w->taps * sizeof *w->rows);
    for (int p = 0; w->rows && p <= w->positions; p++) {
        double *row = w->rows + (size_t)p * (size_t)w->taps;
        double sum = 0;
        for (int i = 0; i < w->taps; i++) {
            row[i] = wav_tap(i - w->before - (double)p / w->positions, width, cut);
            sum += row[i];
        }
        for (int i = 0; i < w->taps; i++) row[i] = to_float(row[i] / sum);
    }
    return w->rows != NULL;
}

/* Returns the taps for a sample that is phase / up source samples after the centre. blended [taps]: receives them if
   they are not in the table. */
static inline const double *wav_row(const wav *w, long long phase, double *blended)
{
    const long long at = phase * w->positions;
    const double *row = w->rows + (size_t)(at / w->up) * (size_t)w->taps;
    if (at % w->up == 0) return row;
    const double share = to_float((double)(at % w->up) / w->up);
    for (int i = 0; i < w->taps; i++) blended[i] = to_float(row[i] + share * to_float(row[w->taps + i] - row[i]));
    return blended;
}

/* Returns the sum of row[i] * x[i]. Both hold floats, so that every product is exact (exact.h). */
static inline float wav_dot(const double *row, const double *x, int taps)
{
    double sum[WAV_LANES] = {0};
    for (int i = 0; i < taps; i += WAV_LANES)
        for (int k = 0; k < WAV_LANES; k++) sum[k] += row[i + k] * x[i + k];
    for (int half = WAV_LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) sum[k] += sum[k + half];
    return (float)sum[0];
}

/* Returns sample i of one channel. */
static inline float wav_sample(const wav *w, const unsigned char *p)
{
    const unsigned long raw = wav_number(p, w->bits == 64 ? 4 : w->bits / 8);
    if (w->bits == 8) return ((float)raw - 128) / 128;
    if (w->bits == 16) return (float)(short)raw / 32768;
    if (w->bits == 24) return (float)((long)(raw ^ 0x800000) - 0x800000) / 8388608;
    if (!w->is_float) return (float)((double)(int)(unsigned)raw / 2147483648.0);
    unsigned long long wide = raw;
    const unsigned narrow = (unsigned)raw;
    float f;
    double d;
    memcpy(&f, &narrow, sizeof f);
    if (w->bits == 32) return f;
    wide |= (unsigned long long)wav_number(p + 4, 4) << 32;
    memcpy(&d, &wide, sizeof d);
    return (float)d;
}

/* Returns source sample i, the mean of its channels; 0 beyond both ends. */
static inline float wav_source(const wav *w, long long i)
{
    if (i < 0 || i >= w->frames) return 0;
    const unsigned char *p = w->data + i * (w->channels * (w->bits / 8));
    float sum = 0;
    for (int c = 0; c < w->channels; c++) sum += wav_sample(w, p + c * (w->bits / 8));
    return w->channels == 1 ? sum : sum / (float)w->channels;
}

/* Writes samples first .. first + n - 1 at 16 kHz. Returns 0 without memory. */
static inline int wav_read(const wav *w, long long first, int n, float *to)
{
    if (!w->rows) {
        for (int i = 0; i < n; i++) to[i] = wav_source(w, first + i);
        return 1;
    }
    const int span = (int)((long long)WAV_BLOCK * w->down / w->up) + w->taps + 4;
    double *source = (double *)malloc((size_t)(span + w->taps) * sizeof *source);
    if (!source) return 0;
    for (int done = 0; done < n; done += WAV_BLOCK) {
        const long long begin = (first + done) * w->down / w->up - w->before - 1;
        for (int i = 0; i < span; i++) source[i] = (double)wav_source(w, begin + i);
        for (int i = done; i < n && i < done + WAV_BLOCK; i++) {
            const long long at = (first + i) * w->down;
            const long long centre = at >= 0 ? at / w->up : -((-at + w->up - 1) / w->up);
            const double *row = wav_row(w, at - centre * w->up, source + span);
            to[i] = wav_dot(row, source + (centre - w->before - begin), w->taps);
        }
    }
    free(source);
    return 1;
}

/* Reads the "fmt " chunk. Returns NULL or a reason. */
static inline const char *wav_format(wav *w, const unsigned char *p, size_t size)
{
    if (size < 16) return "its format chunk is too short";
    unsigned long kind = wav_number(p, 2);
    if (kind == 0xFFFE && size >= 26) kind = wav_number(p + 24, 2);
    w->channels = (int)wav_number(p + 2, 2);
    w->bits = (int)wav_number(p + 14, 2);
    w->is_float = kind == 3;
    const unsigned long rate = wav_number(p + 4, 4);
    if (kind != 1 && kind != 3) return "its samples are compressed: only PCM and float samples are read";
    if (w->channels < 1 || w->channels > 64) return "it has no channels, or more than 64";
    if (rate < 4000 || rate > 384000) return "its rate is not between 4,000 and 384,000 samples a second";
    w->rate = (int)rate;
    const int b = w->bits;
    if (w->is_float ? b != 32 && b != 64 : b != 8 && b != 16 && b != 24 && b != 32)
        return "its samples have neither 8, 16, 24 nor 32 bits, nor are they floats of 32 or 64";
    return NULL;
}

/* Makes *w of the bytes of a file. Returns NULL, or a reason to reject it; *w needs no close then. */
static inline const char *wav_open(wav *w, const unsigned char *bytes, size_t size)
{
    memset(w, 0, sizeof *w);
    if (size == 0) return "it is empty";
    if (size < 12 || memcmp(bytes, "RIFF", 4) != 0 || memcmp(bytes + 8, "WAVE", 4) != 0) return "it is not a WAV file";
    size_t at = 12;
    size_t length = 0;
    while (at + 8 <= size) {
        length = wav_number(bytes + at + 4, 4);
        const unsigned char *chunk = bytes + at + 8;
        const size_t rest = size - at - 8;
        if (!memcmp(bytes + at, "data", 4)) {
            if (length == 0 || length >= 0x7FFFF000) length = rest;       /* written to a pipe: to the end */
            if (length > rest) return "it is cut off: its data chunk is longer than the file";
            w->data = chunk;
            break;
        }
        if (length > rest) return "it is cut off inside a chunk";
        if (!memcmp(bytes + at, "fmt ", 4)) {
            const char *reason = wav_format(w, chunk, length);
            if (reason) return reason;
        }
        at += 8 + length + (length & 1);
    }
    if (!w->rate) return "it has no format chunk before its data";
    if (!w->data) return "it has no data chunk";
    w->frames = (long long)(length / (size_t)(w->channels * (w->bits / 8)));
    if (w->frames == 0) return "it holds no sample";
    for (long long i = 0; w->is_float && i < w->frames; i++) {
        const float x = wav_source(w, i);
        if (!(x > -1e6f && x < 1e6f)) return "one of its samples is not a number, or beyond 1,000,000";
    }
    return wav_make_taps(w) ? NULL : "there is not enough memory for it";
}

/* The same for raw samples of 16 bits, mono, 16 kHz, little-endian, without a header. */
static inline const char *wav_open_raw(wav *w, const unsigned char *bytes, size_t size)
{
    memset(w, 0, sizeof *w);
    w->data = bytes;
    w->rate = WAV_RATE;
    w->channels = 1;
    w->bits = 16;
    w->up = w->down = 1;
    w->samples = w->frames = (long long)(size / 2);
    return w->frames ? NULL : "it is empty";
}

static inline void wav_close(wav *w)
{
    free(w->rows);
    memset(w, 0, sizeof *w);
}
#endif
