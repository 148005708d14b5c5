/* layer.h: shared by the tests of linears and layers. Numbers in double with their error bound, random layers with all
   options, and the oracle of a layer: its parts one after the other. */
#ifndef LAYER_H
#define LAYER_H

#include "oracle.h"

static const double U = 5.9604644775390625e-8;                /* 2^-24: half an ulp of 1 */

float *floats(size_t n);                                      /* for free(); never NULL */
float *normal(rng *r, size_t n, double scale);                /* N(0, 1) times scale */
int untouched(const void *p, size_t bytes);                   /* still 0x77 everywhere? */

/* ---- numbers in double with the error they may have --------------------------------------------------------- */
/* rows x n of them: the value, and the max error of a float in its place */
typedef struct numbers { double *value, *error; } numbers;
numbers numbers_make(size_t n);
numbers numbers_of(const float *x, size_t n);
void numbers_free(numbers x);
int within(const float *got, numbers want, size_t n, const char *what, unsigned long long seed);
numbers linear_oracle(numbers x, size_t rows, const float *w, const float *b, int n_in, int n_out);

/* ---- linears and layers ------------------------------------------------------------------------------------- */
/* packed, in separate memory */
attn_status linear_make(attn_linear *l, const float *w, const float *b, int n_in, int n_out);
attn_status linear_make_as(attn_linear *l, const float *w, const float *b, int n_in, int n_out, attn_storage kept);

typedef struct layer {
    attn_mha_args a;                      /* every size resolved; norms in place */
    attn_mha m;
    attn_linear q, k, v, o, gate;         /* the same projections as separate linears */
    float *w[5], *b[5], *table, *norm[4], *factors;    /* norm: of q, of k, their biases */
    unsigned char *packed;                /* the memory for every other layer, or NULL */
} layer;

/* Options of a random layer; the parts of each are drawn. WITH_NORM: q_norm, k_norm. WITH_MORE: a gate from x,
   norms of values or of whole rows and, with a rotation, factors by position. IN_EIGHT: weights in 8 bits. */
enum { WITH_ROPE = 1, CROSSING = 2, WITH_NORM = 4, WITH_MORE = 8, IN_EIGHT = 16 };
void layer_make(layer *l, rng *r, int what);
void layer_free(layer *l);

/* Norm of x [rows][head_dim] in the oracle: the root and both products are rounded once; weight NULL: only one
   product */
void norm_by_hand(float *x, int rows, int head_dim, const float *weight, double eps);

/* Masks of all kinds, drawn together. */
typedef struct masks {
    int q_lengths[4], k_lengths[4], k_starts[4], k_map[4];
    float *mask, *bias, slopes[16], sinks[16], rel[16 * 15];
    unsigned char *keep;
} masks;
void masks_draw(masks *s, rng *r, attn_args *a, int batch, int heads, int n_q, int n_k);
void masks_free(masks *s);

/* The parts one after the other, with separately tested functions. Also fills weights if requested. */
void by_parts(const layer *l, float *out, const float *x, int batch, int n_q, const float *memory,
              const float *memory_v, int n_k, const attn_mha_opts *o);

#endif
