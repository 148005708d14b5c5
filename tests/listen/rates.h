/* rates.h: recordings at other rates, made through the spectrum. Nothing is filtered or interpolated: all frequencies
 * below both ends of the band are kept exactly, all others removed. Shares no code with examples/listen/wav.h. */
#ifndef RATES_H
#define RATES_H
#include <complex.h>
#include <math.h>

/* Discrete Fourier transform of n numbers from[0], from[step], ..., for n with prime factors up to 7. way: -1 or 1,
   the sign of the exponent; not scaled. work [n]. */
static void rates_transform(const double complex *from, int step, int n, int way, double complex *to,
                            double complex *work)
{
    int prime = 2;
    if (n == 1) {
        to[0] = from[0];
        return;
    }
    while (n % prime != 0) prime++;
    const int part = n / prime;
    for (int p = 0; p < prime; p++) rates_transform(from + p * step, step * prime, part, way, work + p * part, to);
    for (int k = 0; k < part; k++) {
        double complex x[7];
        for (int p = 0; p < prime; p++)
            x[p] = work[p * part + k] * cexp(way * 6.283185307179586 * I * ((double)p * k / n));
        for (int q = 0; q < prime; q++) {
            double complex sum = 0;
            for (int p = 0; p < prime; p++) sum += x[p] * cexp(way * 6.283185307179586 * I * (p * q % prime) / prime);
            to[q * part + k] = sum;
        }
    }
}

/* Returns m samples of the sound of n samples at another rate (free them); NULL without memory. Frequencies from top on,
   counted in periods of the whole sound, are removed. mirror 1: the band below top, mirrored, replaces them, and every
   filter of a resampler must remove the mirrored band again. */
static double *rates_change(const double *sound, int n, int m, int top, int mirror)
{
    const int most = n > m ? n : m;
    double complex *x = (double complex *)calloc((size_t)most, sizeof *x);
    double complex *y = (double complex *)calloc((size_t)most, sizeof *y);
    double complex *work = (double complex *)malloc((size_t)most * sizeof *work);
    double *to = (double *)malloc((size_t)m * sizeof *to);
    if (x && y && work && to) {
        for (int i = 0; i < n; i++) x[i] = sound[i];
        rates_transform(x, 1, n, -1, y, work);
        memset(x, 0, (size_t)most * sizeof *x);
        for (int i = 0; i < top; i++) x[i] = y[i];
        for (int i = top + 1; mirror && i < 2 * top && i < m / 2; i++) x[i] = conj(y[2 * top - i]);
        for (int i = 1; i < m / 2; i++) x[m - i] = conj(x[i]);
        rates_transform(x, 1, m, 1, y, work);
        for (int i = 0; i < m; i++) to[i] = creal(y[i]) / n;
    }
    free(x);
    free(y);
    free(work);
    return to;
}
#endif
