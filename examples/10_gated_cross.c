/* 10_gated_cross.c: how does a finished text model learn to look at pictures without forgetting anything?

   Run:  cc -O2 -I. examples/10_gated_cross.c && ./a.out

   Where people go wrong: the gate is tanh(g), not g. Training starts at g = 0, where the layer adds exactly nothing and
   the model is bit for bit the one it was before; but g = 1 is not "fully open", it is 0.76.

   Further reading: Alayrac and others, Flamingo, arxiv.org/abs/2204.14198, 2.2: the gate.

   Output:
       no gate                 largest change of the text 1.8298
       gate 0    tanh 0.0000   largest change of the text 0.0000   the same bits as before
       gate 0.5  tanh 0.4621   largest change of the text 0.8456
       gate 1    tanh 0.7616   largest change of the text 1.3935
       gate 3    tanh 0.9951   largest change of the text 1.8207
       one gate for each head  largest change of the text 0.8146
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

static void fill(float *x, int n, float size, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = size * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
}

static double largest(const float *x)
{
    float most = 0;
    for (int i = 0; i < T * D; i++) { float a = x[i] < 0 ? -x[i] : x[i];  if (a > most) most = a; }
    return (double)most;
}

/* after = text + gate(cross-attention to the picture); prints how much the gate let in. */
static void show(const attn_mha *layer, const char *name, const float *gate, int gate_n)
{
    float y[T * D], after[T * D];
    attn_mha_opts o = {0};
    o.gate = gate;  o.gate_n = gate_n;
    ok(attn_mha_cross(layer, y, text, 1, T, picture, PATCHES, &o));
    for (int i = 0; i < T * D; i++) after[i] = text[i] + y[i];
    printf("%-22s  largest change of the text %.4f%s\n", name, largest(y),
           memcmp(after, text, sizeof after) == 0 ? "   the same bits as before" : "");
}

int main(void)
{
    fill(w_q, D * D, 0.5f, 1);
    fill(w_k, D * D_PICTURE, 0.4f, 2);
    fill(w_v, D * D_PICTURE, 0.4f, 3);
    fill(w_o, D * D, 0.5f, 4);
    fill(text, T * D, 1, 5);
    fill(picture, PATCHES * D_PICTURE, 1, 6);

    attn_mha layer;
    attn_mha_args shape = {0};
    shape.d_model = D;  shape.heads = HEADS;  shape.d_key = D_PICTURE;        /* keys come from a wider model */
    shape.w_q = w_q;  shape.w_k = w_k;  shape.w_v = w_v;  shape.w_o = w_o;
    if (attn_mha_init(&layer, &shape)) return 1;                /* ATTN_DEBUG prints the reason */

    static const float closed = 0, half = 0.5f, one = 1, three = 3, each[HEADS] = { 0, 0.5f, 0, 3 };
    show(&layer, "no gate", NULL, 0);
    show(&layer, "gate 0    tanh 0.0000", &closed, 1);
    show(&layer, "gate 0.5  tanh 0.4621", &half, 1);
    show(&layer, "gate 1    tanh 0.7616", &one, 1);
    show(&layer, "gate 3    tanh 0.9951", &three, 1);
    show(&layer, "one gate for each head", each, HEADS);
    attn_mha_free(&layer);
    return 0;
}
