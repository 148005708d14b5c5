/* 28_linear_attention.c

   The question: Qwen3-Next, Kimi Linear and others replace three of four attention layers by a recurrence. How does a
   program run them, and what happens to the cache?
   What you will see: a model of three delta layers and one attention layer; a prompt at once and token by token with
   the same bits; a draft of four tokens that is taken back; the memory of a sequence, which does not grow in three
   layers.

   Run:  cc -O2 -I. examples/28_linear_attention.c && ./a.out

   Where people go wrong: a state cannot be cut at a length, as a cache can. Copy it before a draft, and restore the
   copy if the draft is rejected. The convolution before the recurrence has a state as well; both belong to the copy.

   Further reading: Yang, Kautz and Hatamizadeh, Gated Delta Networks, arxiv.org/abs/2412.06464; Kimi Linear,
   arxiv.org/abs/2510.26692; PORTING.md has the names of other libraries.

   Output:
       a prompt of 40 tokens at once   38A6D6969BB9DCB8
       the same, token by token        38A6D6969BB9DCB8
       12 tokens generated             EA5EAD4E54972261
       with a draft taken back         EA5EAD4E54972261
       draft without restored states:  other tokens

       one layer of Qwen3-Next   state of attn_delta and attn_conv   K/V cache, float
               512 tokens                         2.1 MB                      2.0 MB
             32768 tokens                         2.1 MB                    128.0 MB
           1048576 tokens                         2.1 MB                   4096.0 MB
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, D = 64, HEADS = 4, DIM = 16, INNER = HEADS * DIM, WIDE = 3 * INNER, WIDTH = 4, WORDS = 96 };
enum { PROMPT = 40, NEW = 12, DRAFT = 4, ROOM = PROMPT + NEW + DRAFT };

/* All that the delta layers remember of a sequence, whatever its length. Assignment copies it. */
typedef struct memory {
    float conv[LAYERS][WIDTH - 1][WIDE];
    float state[LAYERS][HEADS][DIM][DIM];
} memory;

typedef struct sequence {
    memory now;
    attn_kv kv;                                                  /* of the attention layer */
} sequence;

static float words[WORDS * D], conv[LAYERS][WIDE * WIDTH];
static attn_linear qkv[LAYERS], gates[LAYERS], back[LAYERS], head;
static attn_mha attention;

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

/* Pseudo-random numbers in -size .. size in place of a model's; the same on every machine. */
static float *fill(float *x, int n, float size)
{
    static unsigned seed = 1;
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = size * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
    return x;
}

static void linear(attn_linear *l, int n_in, int n_out)
{
    static float w[WIDE * D];
    attn_linear_args a = {0};
    a.n_in = n_in;
    a.n_out = n_out;
    a.w = fill(w, n_in * n_out, 0.25f);
    ok(attn_linear_init(l, &a));
}

static void make_model(void)
{
    static float w[4][INNER * D];
    attn_mha_args a = {0};
    fill(words, WORDS * D, 1.0f);
    for (int i = 0; i < LAYERS; i++) {
        linear(&qkv[i], D, WIDE);
        linear(&gates[i], D, 2 * HEADS);
        linear(&back[i], INNER, D);
        fill(conv[i], WIDE * WIDTH, 0.5f);
    }
    a.d_model = D;
    a.heads = HEADS;
    a.w_q = fill(w[0], D * D, 0.25f);
    a.w_k = fill(w[1], D * D, 0.25f);
    a.w_v = fill(w[2], D * D, 0.25f);
    a.w_o = fill(w[3], D * D, 0.25f);
    ok(attn_mha_init(&attention, &a));
    {
        attn_linear_args out = {0};
        out.n_in = D;
        out.n_out = WORDS;
        out.w = words;
        ok(attn_linear_init(&head, &out));
    }
}

static void begin(sequence *s)
{
    attn_kv_args a = {0};
    memset(s, 0, sizeof *s);                                     /* states begin as zeros */
    a.batch = 1;
    a.kv_heads = HEADS;
    a.head_dim = DIM;
    a.capacity = ROOM;
    ok(attn_kv_init(&s->kv, &a));
}

/* One delta layer, n rows: x -> norm -> q, k, v -> convolution -> recurrence -> added to x. */
static void delta_layer(int i, memory *m, float *x, int n)
{
    static float normed[ROOM * D], row[ROOM * WIDE], mixed[ROOM * WIDE], gate[ROOM * 2 * HEADS], out[ROOM * INNER];
    static float y[ROOM * D];
    attn_norm_args norm = {0};
    attn_conv_args c = {0};
    attn_delta_args d = {0};
    norm.x = x;
    norm.y = normed;
    norm.rows = n;
    norm.n = D;
    ok(attn_norm(&norm));
    ok(attn_linear_run(&qkv[i], row, normed, n, 0, NULL));
    ok(attn_linear_run(&gates[i], gate, normed, n, 0, NULL));

    c.x = row;
    c.y = mixed;
    c.state = m->conv[i][0];
    c.w = conv[i];
    c.batch = 1;
    c.n = n;
    c.channels = WIDE;
    c.width = WIDTH;
    c.silu = 1;
    ok(attn_conv(&c));

    /* In place of -exp(A) softplus(a) and sigmoid(b), which a model computes: a decay <= 0, and beta in 0 .. 1. */
    for (int t = 0; t < n; t++)
        for (int h = 0; h < HEADS; h++) {
            float *g = &gate[t * 2 * HEADS + h], *beta = g + HEADS;
            *g = *g < 0 ? *g : -*g;
            *beta = *beta < 0 ? -*beta : *beta;
            *beta = *beta > 1 ? 1 : *beta;
        }
    d.q = mixed;                                                 /* packed: a row of WIDE floats is [q|k|v] */
    d.k = mixed + INNER;
    d.v = mixed + 2 * INNER;
    d.q_stride[1] = d.k_stride[1] = d.v_stride[1] = WIDE;
    d.g = gate;
    d.beta = gate + HEADS;
    d.g_stride[1] = d.beta_stride[1] = 2 * HEADS;
    d.out = out;
    d.state = m->state[i][0][0];
    d.batch = 1;
    d.n = n;
    d.heads = HEADS;
    d.head_dim = DIM;
    d.qk_norm = 1;
    ok(attn_delta(&d));
    ok(attn_linear_run(&back[i], y, out, n, 0, NULL));
    for (int j = 0; j < n * D; j++) x[j] += y[j];
}

/* Adds n tokens to a sequence. x: their rows after the last layer. */
static void step(sequence *s, float *x, const int *tokens, int n)
{
    static float y[ROOM * D];
    for (int t = 0; t < n; t++) memcpy(x + t * D, words + tokens[t] * D, D * sizeof(float));
    for (int i = 0; i < LAYERS; i++) delta_layer(i, &s->now, x, n);
    ok(attn_mha_self_step(&attention, y, x, 1, n, &s->kv, NULL));
    for (int j = 0; j < n * D; j++) x[j] += y[j];
}

static int next_token(const float *x)
{
    float logit[WORDS];
    int best = 0;
    ok(attn_linear_run(&head, logit, x, 1, 0, NULL));
    for (int w = 1; w < WORDS; w++) if (logit[w] > logit[best]) best = w;
    return best;
}

static unsigned long long hash(unsigned long long h, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++) h = (h ^ at[i]) * 0x100000001B3ull;
    return h;
}

/* Runs the prompt in pieces of `piece` tokens, generates NEW tokens, and prints hashes. After half of them a draft of
   DRAFT tokens is computed and rejected; with restore 0 its states stay. Returns the hash of the generated rows. */
static unsigned long long run(const char *prompt, int piece, const char *text, int draft, int restore)
{
    static float x[ROOM * D];
    static const int guess[DRAFT] = {5, 6, 7, 8};
    unsigned long long h = 0xCBF29CE484222325ull;
    sequence s;
    int tokens[PROMPT], token;
    begin(&s);
    for (int t = 0; t < PROMPT; t++) tokens[t] = (t * t + 3) % WORDS;
    for (int t = 0; t < PROMPT; t += piece) step(&s, x + t * D, tokens + t, piece);
    h = hash(hash(h, x, PROMPT * D * sizeof(float)), &s.now, sizeof s.now);
    if (prompt) printf("%s%016llX\n", prompt, h);
    token = next_token(x + (PROMPT - 1) * D);
    for (int t = 0; t < NEW; t++) {
        if (draft && t == NEW / 2) {
            const memory before = s.now;                         /* a snapshot is an assignment */
            step(&s, x, guess, DRAFT);
            ok(attn_kv_truncate(&s.kv, 0, PROMPT + t));
            if (restore) s.now = before;
        }
        step(&s, x, &token, 1);
        h = hash(h, x, D * sizeof(float));
        token = next_token(x);
    }
    if (text) printf("%s%016llX\n", text, h);
    attn_kv_free(&s.kv);
    return h;
}

int main(void)
{
    make_model();
    unsigned long long plain = run("a prompt of 40 tokens at once   ", PROMPT, NULL, 0, 0);
    run("the same, token by token        ", 1, "12 tokens generated             ", 0, 0);
    run(NULL, PROMPT, "with a draft taken back         ", 1, 1);
    printf("draft without restored states:  %s tokens\n",
           run(NULL, PROMPT, NULL, 1, 0) == plain ? "the same" : "other");

    /* Qwen3-Next: 32 states of 128 x 128 and 3 rows of 8192 channels; 2 K/V heads of 256 in an attention layer. */
    printf("\none layer of Qwen3-Next   state of attn_delta and attn_conv   K/V cache, float\n");
    for (long n = 512; n <= 1048576; n = n == 512 ? 32768 : n * 32)
        printf("%11ld tokens  %26.1f MB  %23.1f MB\n", n, (32 * 128 * 128 + 3 * 8192) * 4 / 1048576.0,
               (double)n * 2 * 2 * 256 * 4 / 1048576.0);
    for (int i = 0; i < LAYERS; i++) {
        attn_linear_free(&qkv[i]);
        attn_linear_free(&gates[i]);
        attn_linear_free(&back[i]);
    }
    attn_linear_free(&head);
    attn_mha_free(&attention);
    return 0;
}
