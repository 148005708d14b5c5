/* stories.h: a decoder of the Llama kind in plain loops, as llama2.c's run.c has it, or with a library's sgemv in their
 * place, for stories.c to compare with. */
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

/* The token at `position` goes through the model; logits are those of the next one. */
void plain_step(plain_teller *t, int token, int position, int threads);

/* The same step as one model of ONNX Runtime, with its own caches: GroupQueryAttention, and weights as it packs them.
 * Logits are stored like those of *t. NULL: *why is the reason. */
typedef struct ort_teller ort_teller;
ort_teller *ort_teller_open(const plain_teller *t, const char *folder, int threads, const char **why);
void ort_teller_step(ort_teller *o, int token, int position);
void ort_teller_close(ort_teller *o);                       /* may be NULL */

#endif
