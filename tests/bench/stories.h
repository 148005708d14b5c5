/* stories.h: a decoder of the Llama kind for comparison in stories.c: plain loops, like run.c of llama2.c, or a
 * library's sgemv instead of these loops. */
#ifndef BENCH_STORIES_H
#define BENCH_STORIES_H

/* cblas_sgemv, if a library computes the products */
typedef void gemv_function(int order, int transposed, int m, int n, float alpha, const float *a, int lda,
                           const float *x, int dx, float beta, float *y, int dy);

typedef struct plain_teller {
    gemv_function *gemv;                  /* NULL: loops */
    int dim, hidden, layers, heads, kv_heads, words, positions;
    /* weights as the checkpoint has them: [layer][out][in] */
    const float *embedding, *norm, *q, *k, *v, *o, *ff_norm, *w1, *w2, *w3, *last_norm, *classifier;
    float *keys, *values;                 /* [layer][position][kv_heads * head] */
    float *x, *y, *z, *a, *b, *scores, *logits;
} plain_teller;

/* Runs the model on the token at `position`; sets the logits of the next token. */
void plain_step(plain_teller *t, int token, int position, int threads);

/* The same step as a model of ONNX Runtime with GroupQueryAttention, which has separate caches and packs its weights.
 * Stores logits like those of *t. Returns NULL on an error; *why is the reason. */
typedef struct ort_teller ort_teller;
ort_teller *ort_teller_open(const plain_teller *t, const char *folder, int threads, const char **why);
void ort_teller_step(ort_teller *o, int token, int position);
void ort_teller_close(ort_teller *o);                       /* may be NULL */

#endif
