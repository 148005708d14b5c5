/* stories.h: a decoder of the Llama kind in plain loops, as llama2.c's run.c has it, for stories.c to compare with. */
#ifndef BENCH_STORIES_H
#define BENCH_STORIES_H

typedef struct plain_teller {
    int dim, hidden, layers, heads, kv_heads, words, positions;
    /* weights as the checkpoint has them: [layer][out][in] */
    const float *embedding, *norm, *q, *k, *v, *o, *ff_norm, *w1, *w2, *w3, *last_norm, *classifier;
    float *keys, *values;                 /* [layer][position][kv_heads * head] */
    float *x, *y, *z, *a, *b, *scores, *logits;
} plain_teller;

/* The token at `position` goes through the model; logits are those of the next one. */
void plain_step(plain_teller *t, int token, int position, int threads);

#endif
