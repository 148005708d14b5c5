/* 06_word_alignment.c

   The question: What does cross-attention attend to while it translates "Der Hund läuft" into "The dog runs"?
   What you will see: the weights of each English word over the German words.

   Run:  cc -O2 -I. examples/06_word_alignment.c && ./a.out
   (in a terminal the cells are coloured)

   Where people go wrong: the weights are not the translation. They determine how much of each source VALUE flows into
   the row of the next word; the word itself is computed from the mixture.

   Further reading: Jain and Wallace, Attention is not Explanation, arxiv.org/abs/1902.10186, and Wiegreffe and Pinter,
   Attention is not not Explanation, arxiv.org/abs/1908.04626.

   Output:
       next word   weights:   Der   Hund  läuft  votes:   The    dog   runs
       The                   0.85   0.10   0.05          0.78   0.16   0.06
       dog                   0.10   0.80   0.10          0.09   0.74   0.17
       runs                  0.05   0.15   0.80          0.05   0.20   0.75

                Der    Hund   läuft
         The  ███████░░░░░░░   ·
         dog  ░░░░░░░███████░░░░░░░
        runs     ·   ▒▒▒▒▒▒▒███████
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#ifdef _WIN32
#include <io.h>
#define isatty _isatty
#else
#include <unistd.h>
#endif

enum { S = 3, T = 3, DIM = 3, WORDS = 3 };

static const char *const vocabulary[WORDS] = { "The", "dog", "runs" };

/* Made by hand, for clarity. The three numbers of a key classify a word: article, noun, verb; those of a query are the
   logarithms of the weights that these classes should have for the next word: with scale 1 the query { 0, ln 8, 0 }
   makes softmax give 1 : 8 : 1. */
static const float key[S * DIM] = { 1, 0, 0,      /* Der   */
                                    0, 1, 0,      /* Hund  */
                                    0, 0, 1 };    /* läuft */
static const float query[T * DIM] = { 2.8332133f, 0.6931472f, 0,              /* ln 17, ln 2, ln 1 */
                                      0,          2.0794415f, 0,              /* ln 1,  ln 8, ln 1 */
                                      0,          1.0986123f, 2.7725887f };   /* ln 1,  ln 3, ln 16 */
/* The contribution of each source word to the next word: votes for The, dog, runs. */
static const float value[S * WORDS] = { 0.92f, 0.08f, 0.00f,      /* Der   */
                                        0.00f, 0.90f, 0.10f,      /* Hund  */
                                        0.00f, 0.08f, 0.92f };    /* läuft */

/* A cell of the heat map: blue on white in a terminal, four shades of grey elsewhere. */
static void cell(float weight, int colour)
{
    static const char *const shade[] = { "   ·   ", "░░░░░░░", "▒▒▒▒▒▒▒", "▓▓▓▓▓▓▓", "███████" };
    static const int blue[] = { 255, 189, 153, 75, 26 };              /* of the 256 colours of a terminal */
    int step = (weight > 0.07f) + (weight > 0.12f) + (weight > 0.3f) + (weight > 0.6f);
    if (colour) printf("\033[48;5;%d;38;5;%dm %.2f  \033[0m", blue[step], step == 4 ? 231 : 16, (double)weight);
    else printf("%s", shade[step]);
}

int main(void)
{
    float out[WORDS], weights[T * S];
    int colour = isatty(1);

    puts("next word   weights:   Der   Hund  läuft  votes:   The    dog   runs");
    for (int i = 0; i < T; i++) {                                     /* one word after the other, as a decoder does */
        attn_args a = attn_args_for(1, 1, S, 1, DIM);           /* batch, n_q, n_k, heads, head_dim */
        a.out = out;
        a.q = query + i * DIM;
        a.k = key;
        a.v = value;
        a.v_head_dim = WORDS;
        a.scale = 1;
        a.weights = weights + i * S;
        if (attn_sdpa(&a)) return 1;                             /* ATTN_DEBUG prints the reason */

        int best = 0;
        for (int w = 1; w < WORDS; w++) if (out[w] > out[best]) best = w;
        printf("%-19s", vocabulary[best]);
        for (int j = 0; j < S; j++) printf("   %.2f", (double)a.weights[j]);
        printf("       ");
        for (int w = 0; w < WORDS; w++) printf("   %.2f", (double)out[w]);
        puts("");
    }

    puts("\n         Der    Hund   läuft");
    for (int i = 0; i < T; i++) {
        printf("%5s  ", vocabulary[i]);
        for (int j = 0; j < S; j++) cell(weights[i * S + j], colour);
        puts("");
    }
    return 0;
}
