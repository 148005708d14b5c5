/* layer_norm.h: LayerNorm and GELU with the same bits everywhere: sums in double over exact products, and products
   that the compiler cannot fuse with a sum because `nothing` might not be 0. */
#ifndef LISTEN_LAYER_NORM_H
#define LISTEN_LAYER_NORM_H
#include "whisper.h"

static volatile unsigned nothing;

static inline float rounded(float x, unsigned zero)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    bits ^= zero;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, row by row. */
static inline void layer_norm(float *y, const float *x, int rows, int n, const norm *by)
{
    const unsigned zero = nothing;
    for (int r = 0; r < rows; r++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < n; i++) sum += (double)x[i];
        const float mean = (float)(sum / n);
        for (int i = 0; i < n; i++) {
            const double d = (double)(float)(x[i] - mean);
            squares += d * d;
        }
        const float factor = (float)(1 / square_root(squares / n + 1e-5));
        for (int i = 0; i < n; i++)
            y[i] = rounded((float)((float)(x[i] - mean) * factor) * by->weight[i], zero) + by->bias[i];
        x += n;
        y += n;
    }
}

/* x * (1 + erf(x / sqrt 2)) / 2. The half of erf is x * P(x^2) / Q(x^2), fitted on -5.7 .. 5.7 to 1.3e-8, beyond
   which it is a half. */
static inline void gelu(float *x, int n)
{
    static const float above[6] = { 2.16319921e-8f, 6.32210834e-6f, 1.76127731e-4f, 4.72115901e-3f, 3.46521539e-2f,
                                    0.398942264f };
    static const float below[6] = { 1.16254252e-6f, 7.55557874e-5f, 1.92650483e-3f, 2.90899632e-2f, 0.25352614f, 1 };
    const unsigned zero = nothing;
    for (int i = 0; i < n; i++) {
        float c = x[i] < -5.7f ? -5.7f : x[i];
        c = c > 5.7f ? 5.7f : c;
        const float u = c * c;
        float p = above[0], q = below[0];
        for (int k = 1; k < 6; k++) {
            p = rounded(p * u, zero) + above[k];
            q = rounded(q * u, zero) + below[k];
        }
        float half = (float)(c * p) / q;
        half = half < -0.5f ? -0.5f : half;
        half = half > 0.5f ? 0.5f : half;
        x[i] *= (float)(0.5f + half);
    }
}
#endif
