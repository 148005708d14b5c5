/* 10_gated_cross.c

   The question: How does a finished text model learn to look at pictures without forgetting anything?
   What you will see: how much a picture changes the text at several gates, then two gates while they learn: one that
   opens, and one that ignores the encoder.

   Run:  cc -O2 -I. examples/10_gated_cross.c && ./a.out

   Where people go wrong: the factor is tanh(g), not g. Training starts at g = 0, where the layer adds exactly nothing
   and the model is bit for bit the one it was before; but g = 1 is not "fully open", it is 0.76. One gate for each head
   belongs before w_o: multiply the columns of w_o by it, once, before attn_mha_init.

   Further reading: Alayrac and others, Flamingo, arxiv.org/abs/2204.14198, 2.2: the gate.

   Output:
       no gate                 largest change of the text 1.8298
       gate 0    tanh 0.0000   largest change of the text 0.0000   the same bits as before
       gate 0.5  tanh 0.4621   largest change of the text 0.8456
       gate 1    tanh 0.7616   largest change of the text 1.3935
       gate 3    tanh 0.9951   largest change of the text 1.8207
       one gate for each head  largest change of the text 0.8146
       the picture helps       tanh(g) 0.0000 0.4869 0.4990 0.4999 0.5000
       the text is enough      tanh(g) 0.7616 0.0259 0.0001 0.0000 0.0000
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 5, PATCHES = 9, D = 32, D_PICTURE = 48, HEADS = 4 };          /* words, parts of a picture, widths */

static float w_q[D * D], w_k[D * D_PICTURE], w_v[D * D_PICTURE], w_o[D * D], text[T * D], picture[PATCHES * D_PICTURE];

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

/* Pseudo-random numbers in -size .. size in place of a model's; the same on every machine. */
static void fill(float *x, int n, float size, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = size * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
}

/* tanh without -lm: a continued fraction, exact to 7 digits for |x| up to 5. */
static float tanh_of(float x)
{
    const double square = (double)x * (double)x;
    double y = 25;
    for (int k = 23; k > 0; k -= 2) y = k + square / y;
    return (float)((double)x / y);
}

/* after = text + factor * y, where y is the cross-attention to the picture. */
static void add_gated(float *after, const float *y, float factor)
{
    for (int i = 0; i < T * D; i++) after[i] = text[i] + factor * y[i];
}

static void show(const char *name, const float *y, float factor)
{
    float after[T * D], most = 0;
    add_gated(after, y, factor);
    for (int i = 0; i < T * D; i++) {
        const float change = after[i] > text[i] ? after[i] - text[i] : text[i] - after[i];
        if (change > most) most = change;
    }
    printf("%-22s  largest change of the text %.4f%s\n", name, (double)most,
           memcmp(after, text, sizeof after) == 0 ? "   the same bits as before" : "");
}

/* Gradient descent on g alone, with the mean square of (after - wanted) as the loss. */
static void learn(const char *name, const float *y, const float *wanted, float g)
{
    float after[T * D];
    printf("%-22s  tanh(g)", name);
    for (int step = 0; step <= 20; step++) {
        const float factor = tanh_of(g);
        double slope = 0;
        if (step % 5 == 0) printf(" %.4f", (double)factor);
        add_gated(after, y, factor);
        for (int i = 0; i < T * D; i++) slope += 2 * (double)(after[i] - wanted[i]) * (double)y[i] / (T * D);
        g -= (float)(slope * (1 - (double)factor * (double)factor));   /* the derivative of tanh */
    }
    puts("");
}

int main(void)
{
    float y[T * D], y_each[T * D], wanted[T * D], gated[D * D];
    fill(w_q, D * D, 0.5f, 1);
    fill(w_k, D * D_PICTURE, 0.4f, 2);
    fill(w_v, D * D_PICTURE, 0.4f, 3);
    fill(w_o, D * D, 0.5f, 4);
    fill(text, T * D, 1, 5);
    fill(picture, PATCHES * D_PICTURE, 1, 6);

    attn_mha layer;
    attn_mha_args shape = {0};
    shape.d_model = D;
    shape.heads = HEADS;
    shape.d_key = D_PICTURE;                                     /* keys come from a wider model */
    shape.w_q = w_q;
    shape.w_k = w_k;
    shape.w_v = w_v;
    shape.w_o = w_o;
    ok(attn_mha_init(&layer, &shape));
    ok(attn_mha_cross(&layer, y, text, 1, T, picture, PATCHES, NULL));
    attn_mha_free(&layer);

    static const float each[HEADS] = { 0, 0.5f, 0, 3 };          /* head h owns D / HEADS columns of w_o */
    for (int i = 0; i < D * D; i++) gated[i] = w_o[i] * tanh_of(each[i % D / (D / HEADS)]);
    shape.w_o = gated;
    ok(attn_mha_init(&layer, &shape));
    ok(attn_mha_cross(&layer, y_each, text, 1, T, picture, PATCHES, NULL));
    attn_mha_free(&layer);

    show("no gate", y, 1);
    show("gate 0    tanh 0.0000", y, tanh_of(0));
    show("gate 0.5  tanh 0.4621", y, tanh_of(0.5f));
    show("gate 1    tanh 0.7616", y, tanh_of(1));
    show("gate 3    tanh 0.9951", y, tanh_of(3));
    show("one gate for each head", y_each, 1);

    for (int i = 0; i < T * D; i++) wanted[i] = text[i] + 0.5f * y[i];
    learn("the picture helps", y, wanted, 0);
    learn("the text is enough", y, text, 1);                     /* learns to ignore the encoder */
    return 0;
}
