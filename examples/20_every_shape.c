/* 20_every_shape.c

   The question: A source of four words, a target of five: which tensor has which shape?
   What you will see: all shapes, a table of weights, and the message for a wrong shape.

   Run:  cc -O2 -I. examples/20_every_shape.c && ./a.out

   Where people go wrong: they test with as many words on both sides, where every transposed matrix still fits. Take two
   different lengths, and assert each shape: rows are the target's, columns the source's.

   Further reading: Bahdanau, Cho and Bengio, Neural Machine Translation by Jointly Learning to Align and Translate,
   arxiv.org/abs/1409.0473, figure 3: such tables, of a trained model.

   Output:
       q [5][6]  k [4][6]  v [4][6]  weights [5][4]  out [5][6]: asserted
       read so far  next word      Der schnelle   braune    Fuchs      sum
       <s>          The           0.90     0.03     0.03     0.03     1.00
       The          quick         0.03     0.90     0.03     0.03     1.00
       quick        brown         0.03     0.03     0.90     0.03     1.00
       brown        fox           0.03     0.03     0.03     0.90     1.00
       fox          </s>          0.25     0.25     0.25     0.25     1.00
       a mask for 4 rows: mask_shape[2] is 4 but must be 1 or 5
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>

enum { T = 5, S = 4, DIM = 6 };                                  /* one head, six meanings */

static const char *const source[S] = { "Der", "schnelle", "braune", "Fuchs" };
static const char *const target[T + 1] = { "<s>", "The", "quick", "brown", "fox", "</s>" };

static void must(int holds, const char *what)
{
    if (holds) return;
    printf("%s does not hold\n", what);
    exit(1);
}
#define MUST(what) must((what) != 0, #what)

/* Rows and columns of an array, from its type. */
#define ROWS(x) ((int)(sizeof(x) / sizeof((x)[0])))
#define COLUMNS(x) ((int)(sizeof((x)[0]) / sizeof((x)[0][0])))

int main(void)
{
    static float q[T][DIM], k[S][DIM], v[S][DIM], out[T][DIM], weights[T][S], mask[T][S];
    for (int j = 0; j < S; j++) {
        k[j][j] = 1;
        v[j][j] = 1;
    }
    for (int i = 0; i < S; i++) q[i][i] = 8.1f;                  /* the last row, after "fox", prefers no key */

    MUST(ROWS(q) == T && COLUMNS(q) == DIM);                     /* one row per target word */
    MUST(ROWS(k) == S && COLUMNS(k) == DIM);                     /* one key per source word, as wide as the queries */
    MUST(ROWS(v) == ROWS(k));                                    /* a value for each key */
    MUST(ROWS(weights) == ROWS(q) && COLUMNS(weights) == ROWS(k));
    MUST(ROWS(out) == ROWS(q) && COLUMNS(out) == COLUMNS(v));    /* as many rows as queries, as wide as the values */
    printf("q [%d][%d]  k [%d][%d]  v [%d][%d]  ", ROWS(q), COLUMNS(q), ROWS(k), COLUMNS(k), ROWS(v), COLUMNS(v));
    printf("weights [%d][%d]  out [%d][%d]: asserted\n", ROWS(weights), COLUMNS(weights), ROWS(out), COLUMNS(out));

    attn_args a = attn_args_for(1, T, S, 1, DIM);               /* batch, n_q, n_k, heads, head_dim */
    a.out = &out[0][0];
    a.q = &q[0][0];
    a.k = &k[0][0];
    a.v = &v[0][0];
    a.weights = &weights[0][0];
    if (attn_sdpa(&a)) return 1;                                 /* ATTN_DEBUG prints the reason */

    printf("%-13s%-9s", "read so far", "next word");
    for (int j = 0; j < S; j++) printf("%9s", source[j]);
    printf("%9s\n", "sum");
    for (int i = 0; i < T; i++) {
        double sum = 0;
        printf("%-13s%-9s", target[i], target[i + 1]);
        for (int j = 0; j < S; j++) {
            printf("%9.2f", (double)weights[i][j]);
            sum += (double)weights[i][j];
            MUST(out[i][j] == weights[i][j]);                    /* values are unit vectors: out equals weights */
        }
        printf("%9.2f\n", sum);
        MUST(sum > 0.999999 && sum < 1.000001);                  /* over the source, for each word of the target */
    }

    /* Shapes can be checked; the size of the memory that a pointer refers to cannot. */
    char why[200];
    a.mask = &mask[0][0];
    a.mask_shape[0] = a.mask_shape[1] = 1;
    a.mask_shape[2] = S;
    MUST(attn_check(&a, why, sizeof why) == ATTN_E_SHAPE);
    printf("a mask for %d rows: %s\n", S, why);
    return 0;
}
