/* models.h: functions that the tests on trained models share. Each reads its model from a folder that is not part of
 * this project and meets the numbers its authors published. */
#ifndef MODELS_H
#define MODELS_H

#include "../support/harness.h"

/* Returns the file of this name in the folder of models: malloc'ed bytes, or NULL if it is missing. */
unsigned char *model_file(const char *name, size_t *size);

/* Prints the error of a file, and ends the program: a test on an incomplete model would prove nothing. */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void model_broken(const char *name, const char *why);

/* The hash of everything published or compared so far; printed at the end, to compare builds and processors. */
extern uint64_t model_bits;

/* The form of a call, which must not change a bit (except with SSE2, which has other bits). */
typedef struct way {
    attn_backend backend;                 /* of attention; separate linears use the best backend */
    const attn_exec *exec;
} way;
attn_mha_opts way_opts(const way *w);

/* The backends that must have the bits of the best one, itself first: all with fma; if the best one has none, only
   itself (linears always run on the best). Returns how many. */
int way_backends(attn_backend list[8]);

/* y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta for each row; sums in double. beta NULL: the RMS norm, which
   has no mean. */
void model_norm(float *y, const float *x, int rows, int width, const float *gamma, const float *beta);

/* The largest of n numbers, the first of equal ones. */
int model_best(const float *x, int n);

/* log(softmax(x))[at], in double. */
double model_log_p(const float *x, int n, int at);

#endif
