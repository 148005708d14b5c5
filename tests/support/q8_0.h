/* q8_0.h: weights in blocks of 8 bits as GGUF files have them (ATTN_Q8_0), and their values by the definition. */
#ifndef Q8_0_H
#define Q8_0_H

#include "oracle.h"

enum { Q8_0_BYTES = 34 };                 /* a half and 32 signed bytes */

ORACLE double half_value(unsigned h)
{
    const int exponent = (int)(h >> 10 & 31u), fraction = (int)(h & 1023u);
    double size = ldexp(exponent ? 1024 + fraction : fraction, (exponent ? exponent : 1) - 25);
    if (exponent == 31) size = fraction ? (double)NAN : (double)INFINITY;
    return h >> 15 & 1u ? -size : size;
}

/* Reads a block of any alignment: its scale and its integers. */
ORACLE double q8_0_read(const unsigned char *block, int n[32])
{
    unsigned short half;
    memcpy(&half, block, sizeof half);
    for (int i = 0; i < 32; i++) n[i] = block[2 + i] < 128 ? block[2 + i] : block[2 + i] - 256;
    return half_value(half);
}

/* Writes the 32 values of a block. Returns 1 if 8 bits keep its integers and scale. */
ORACLE int q8_0_values(float x[32], const unsigned char *block)
{
    int n[32], kept = 1;
    const double scale = q8_0_read(block, n);
    for (int i = 0; i < 32; i++) {
        x[i] = (float)(scale * n[i]);
        if (x[i] != x[i]) x[i] = bits_float(0x7FC00000u);
        if ((double)x[i] == 0.0) x[i] = 0.0f;
        if (n[i] == -128 || !isfinite(scale)) kept = 0;
    }
    return kept;
}

/* Draws a block. tame: one of ggml, with a normal scale above 0 and a largest integer of 127. */
ORACLE void q8_0_draw(rng *r, unsigned char *block, int tame)
{
    static const unsigned short scales[] = {0, 0x8000, 1, 0x8001, 0x3FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00,
                                            0xFFFF};
    const int kind = tame ? 9 : rng_int(r, 0, 9);
    const unsigned drawn = kind == 0 ? scales[rng_int(r, 0, 11)]
                         : kind == 1 ? (unsigned)rng_int(r, 0, 65535) : (unsigned)rng_int(r, 0x1400, 0x3C00);
    const unsigned short half = (unsigned short)(kind == 2 ? drawn | 0x8000u : drawn);
    memcpy(block, &half, sizeof half);
    for (int i = 0; i < 32; i++) block[2 + i] = (unsigned char)(kind == 3 ? 0 : rng_int(r, -127, 127) & 255);
    if (kind == 4 || kind == 5) block[2 + rng_int(r, 0, 31)] = 128;
    if (kind > 5) block[2 + rng_int(r, 0, 31)] = (unsigned char)(rng_int(r, 0, 1) ? 127 : 129);
}

/* Draws blocks that end at a guard page, or one byte before it and so at an odd address, and their values in w. For
   guard_free. */
ORACLE unsigned char *q8_0_weights(rng *r, float *w, int blocks, int odd, int tame)
{
    unsigned char *to = (unsigned char *)guard_alloc((size_t)(blocks * Q8_0_BYTES + odd));
    for (int i = 0; i < blocks; i++) {
        q8_0_draw(r, to + i * Q8_0_BYTES, tame);
        (void)q8_0_values(w + i * 32, to + i * Q8_0_BYTES);
    }
    return to;
}

#endif
