/* mel.h: the spectrogram that Whisper listens to: log10 of the energy in 80 bands (large-v3: 128), one frame per 10 ms.

   A frame is 400 samples around its centre times a Hann window; its power spectrum comes from a Fourier transform of
   400 = 4 * 4 * 5 * 5 points. Two real frames are the real and imaginary part of one complex transform, and MEL_LANES
   transforms run side by side. All values between the stages are rounded to float, so every product is exact in double:
   the same bits with every compiler (exact.h). */
#ifndef LISTEN_MEL_H
#define LISTEN_MEL_H
#include "exact.h"

enum { MEL_POINTS = 400, MEL_HOP = 160, MEL_BINS = 201, MEL_BANDS = 128, MEL_LANES = 4, MEL_BLOCK = 2 * MEL_LANES };

typedef double mel_plane[MEL_POINTS][MEL_LANES];

typedef struct mel {
    int bands;
    double window[MEL_POINTS], cosines[MEL_POINTS], sines[MEL_POINTS];       /* values of a float, all three */
    float filters[MEL_BANDS][MEL_BINS];
    int first[MEL_BANDS], end[MEL_BANDS];                      /* bins in which a filter is not 0 */
} mel;

/* filters [bands][MEL_BINS] */
static inline void mel_init(mel *m, const float *filters, int bands)
{
    m->bands = bands;
    for (int i = 0; i < MEL_POINTS; i++) {
        m->cosines[i] = to_float(cosine(i / 400.0));
        m->sines[i] = to_float(-sine(i / 400.0));
        m->window[i] = to_float(0.5 - cosine(i / 400.0) / 2);
    }
    for (int b = 0; b < bands; b++) {
        m->first[b] = MEL_BINS;
        m->end[b] = 0;
        for (int k = 0; k < MEL_BINS; k++) {
            m->filters[b][k] = filters[b * MEL_BINS + k];
            if (m->filters[b][k] == 0) continue;
            if (k < m->first[b]) m->first[b] = k;
            m->end[b] = k + 1;
        }
    }
}

/* One output of a stage: the sum over `radix` inputs, each times its root of unity. */
static inline void mel_sum(const mel *m, int radix, int root, int turn, double (*re)[MEL_LANES],
                           double (*im)[MEL_LANES], int step, double *to_re, double *to_im)
{
    double sum_re[MEL_LANES] = {0}, sum_im[MEL_LANES] = {0};
    for (int j = 0; j < radix; j++) {
        const double c = m->cosines[root];
        const double s = m->sines[root];
        for (int l = 0; l < MEL_LANES; l++) {
            sum_re[l] += re[j * step][l] * c - im[j * step][l] * s;
            sum_im[l] += re[j * step][l] * s + im[j * step][l] * c;
        }
        root = (root + turn) % MEL_POINTS;
    }
    for (int l = 0; l < MEL_LANES; l++) {
        to_re[l] = (double)(float)sum_re[l];
        to_im[l] = (double)(float)sum_im[l];
    }
}

/* One stage of Stockham's transform: blocks of n points, `stride` of them interleaved. */
static inline void mel_stage(const mel *m, int radix, int n, int stride, mel_plane *from, mel_plane *to)
{
    const int part = n / radix;
    for (int p = 0; p < part; p++) {
        for (int k = 0; k < radix; k++) {
            const int root = k * p * stride % MEL_POINTS;
            const int turn = k * part * stride % MEL_POINTS;
            for (int q = 0; q < stride; q++) {
                const int at = q + stride * p;
                const int out = q + stride * (radix * p + k);
                mel_sum(m, radix, root, turn, from[0] + at, from[1] + at, stride * part, to[0][out], to[1][out]);
            }
        }
    }
}

/* Separates the two frames of a transform and returns their powers in bin k. */
static inline void mel_power(mel_plane *z, int k, int lane, double power[2])
{
    const int other = (MEL_POINTS - k) % MEL_POINTS;
    const double re[2] = { z[0][k][lane] + z[0][other][lane], z[1][k][lane] + z[1][other][lane] };
    const double im[2] = { z[1][k][lane] - z[1][other][lane], z[0][other][lane] - z[0][k][lane] };
    for (int i = 0; i < 2; i++) {
        const double a = to_float(re[i]) / 2;                  /* gcc 12 drops a cast when it vectorises this loop */
        const double b = to_float(im[i]) / 2;
        power[i] = to_float(a * a + b * b);
    }
}

/* Frames 0 .. MEL_BLOCK - 1, the first of which begins at samples[0], the next MEL_HOP later: to [MEL_BLOCK][bands].
   Reads (MEL_BLOCK - 1) * MEL_HOP + MEL_POINTS samples. */
static inline void mel_block(const mel *m, const float *samples, float *to)
{
    static const int radix[4] = { 5, 5, 4, 4 };
    mel_plane planes[2][2];
    double power[MEL_BINS][2];
    int n = MEL_POINTS, stride = 1, now = 0;
    for (int i = 0; i < MEL_POINTS; i++) {
        for (int l = 0; l < MEL_LANES; l++) {
            const float *x = samples + 2 * l * MEL_HOP + i;
            planes[0][0][i][l] = (double)(float)((double)x[0] * m->window[i]);
            planes[0][1][i][l] = (double)(float)((double)x[MEL_HOP] * m->window[i]);
        }
    }
    for (int s = 0; s < 4; s++) {
        mel_stage(m, radix[s], n, stride, planes[now], planes[1 - now]);
        n /= radix[s];
        stride *= radix[s];
        now = 1 - now;
    }
    for (int l = 0; l < MEL_LANES; l++) {
        for (int k = 0; k < MEL_BINS; k++) mel_power(planes[now], k, l, power[k]);
        for (int b = 0; b < m->bands; b++) {
            double sum[2] = { 0, 0 };
            for (int k = m->first[b]; k < m->end[b]; k++) {
                sum[0] += power[k][0] * (double)m->filters[b][k];
                sum[1] += power[k][1] * (double)m->filters[b][k];
            }
            for (int i = 0; i < 2; i++) {
                const double energy = sum[i] > 1e-10 ? sum[i] : 1e-10;
                to[(2 * l + i) * m->bands + b] = (float)(logarithm(energy) / 2.302585092994046);
            }
        }
    }
}

/* Whisper's scale: nothing more than 8 decades below the loudest cell; then (x + 4) / 4. */
static inline void mel_scale(float *x, int n)
{
    float most = -10;
    for (int i = 0; i < n; i++) if (x[i] > most) most = x[i];
    for (int i = 0; i < n; i++) {
        const float y = x[i] > most - 8 ? x[i] : most - 8;
        x[i] = (y + 4) / 4;
    }
}
#endif
