/* exact.h: sine, logarithm and square root that return the same bits with every compiler and on every processor.

   libm does not: its results differ between versions. Nor does plain C: a compiler may fuse a product and a sum
   (-ffp-contract), which rounds once instead of twice. Two rules prevent that in wav.h, mel.h and words.h:
     - a product of two values that fit a float is exact in double, so fusing it changes nothing;
     - every other product that feeds a sum goes through product(), whose volatile forces the rounding. */
#ifndef LISTEN_EXACT_H
#define LISTEN_EXACT_H
#include <string.h>

static inline double product(double a, double b)
{
    volatile double p = a * b;
    return p;
}

/* Returns x rounded to float, as a double. */
static inline double to_float(double x)
{
    volatile float f = (float)x;
    return (double)f;
}

/* Returns sin(2 pi turns), |turns| up to 2^50; the error is below 1e-15. */
static inline double sine(double turns)
{
    const double whole = (double)(long long)turns;
    double t = turns - whole;                                  /* -1 .. 1 */
    if (t > 0.5) t -= 1;
    if (t < -0.5) t += 1;
    if (t > 0.25) t = 0.5 - t;
    if (t < -0.25) t = -0.5 - t;
    const double x = product(t, 6.283185307179586);
    const double square = product(x, x);
    double term = x, sum = x;
    for (int k = 2; k < 24; k += 2) {
        term = -product(term, square) / (double)(k * (k + 1));
        sum += term;
    }
    return sum;
}

static inline double cosine(double turns) { return sine(turns + 0.25); }

/* Returns the natural logarithm of a positive normal x: the series of atanh on 0.7 .. 1.4 after halving. */
static inline double logarithm(double x)
{
    unsigned long long bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0xFFFFFFFFFFFFFull) | 1023ull << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m /= 2;
        exponent++;
    }
    const double z = (m - 1) / (m + 1);
    const double square = product(z, z);
    double power = z, sum = z;
    for (int k = 3; k < 20; k += 2) {
        power = product(power, square);
        sum += power / (double)k;
    }
    return product(exponent, 0.6931471805599453) + 2 * sum;
}

/* Returns the square root of x >= 0 by Heron's method, from above. */
static inline double square_root(double x)
{
    double y = x > 1 ? x : 1;
    double last;
    do {
        last = y;
        y = (last + x / last) / 2;
    } while (y < last);
    return last;
}
#endif
