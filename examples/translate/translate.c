/* translate.c: what does a trained translator attend to, word by word? German to English, in a small model.

   Run:  cc -O2 -I. examples/translate/translate.c -o translate && ./translate Der Hund läuft.
   or:   make translate TEXT="Der Hund läuft."

   Below the translation it prints the cross-attention of the model: rows are the pieces of the English sentence, just
   before each is written, columns the pieces of the German one. The model is german-english.bin, made by train.py;
   README.md in this folder explains the weights.

   The first half is the translator: it reads no file and prints nothing, only translator_load allocates, and an
   untrusted file is rejected with a sentence or used within its bounds. Programs that use it without main()
   (examples/web, the tests) define TRANSLATE_NO_MAIN and include this file.

   Where people go wrong: padding that is not hidden in ALL of the three attentions, and a causal mask on the third. The
   option --break shows what both do to a translation. */
#ifndef ATTN_IMPLEMENTATION
#define ATTN_IMPLEMENTATION
#endif
#include "attn.h"
#include <math.h>                                              /* INFINITY */
#include <stdlib.h>
#include <string.h>

enum { PAD = 0, BEGIN = 1, END = 2, BYTES = 3, JOINS = BYTES + 256 };    /* pieces: 3 to 258 are the bytes */
enum { MOST = 128, BEAMS = 4, LONGEST = 1024, PIECE = 64 };    /* pieces; beams; bytes of a text, of a piece */

typedef struct one_layer {                                     /* cross and norm2: in the decoder alone */
    const float *norm1, *norm2, *norm3;
    attn_mha self, cross;
    attn_linear up, down;
} one_layer;

typedef struct translator {
    int words, width, heads, encoder, decoder, ff;             /* sizes of the model; `words` pieces */
    attn_storage storage;                                      /* of the weights kept; ATTN_Q8: of the caches too */
    int source;                                                /* columns of seen: pieces read, padding included */
    float *log_p;                                              /* of the last step, [BEAMS][words] */
    float *seen;            /* and its cross-attention [BEAMS][heads][visible]; a layer has BEAMS * heads * source */
    /* private */
    int (*joins)[3];                                          /* piece JOINS + i is [i][0], then [i][1]: [i][2] bytes */
    float *weights;                                            /* all of them */
    const float *embedding, *encoder_norm, *decoder_norm;
    one_layer *layers;                                             /* [encoder], then [decoder] */
    attn_linear last;
    attn_kv *own, *memory;                                   /* [decoder]: of the words written, of the sentence read */
    float *rope, *x, *y, *z, *hidden;
    void *work;
    size_t work_size;
    int real, visible, causal, added, lengths[BEAMS];          /* arguments of translator_read */
} translator;

/* Mistakes that show their effect. All 0: none. */
typedef struct mistake {
    int pads;                                                  /* pieces of padding after the sentence */
    int padding;                                          /* 0: hidden (correct); 1: not hidden; 2: -1e9 added */
    int causal;                                                /* row t of cross-attention sees t + 1 pieces only */
    float pad_value;                                           /* added to the padding: NaN, for example */
} mistake;

/* ---- the file: a header, a notice, pairs of pieces that were joined, weights in half, a checksum ----------------- */

static unsigned long word_at(const unsigned char *p, int bytes)
{
    unsigned long x = 0;
    while (bytes--) x = x << 8 | p[bytes];
    return x;
}

static const float *take(const float **at, int n) { *at += n;  return *at - n; }

static void *room(size_t n, size_t size) { return calloc(n ? n : 1, size); }

static attn_status load_attention(attn_mha *m, const translator *t, const float **at, int turns)
{
    attn_mha_args a = {0};
    a.d_model = t->width;  a.heads = t->heads;  a.storage = t->storage;
    a.w_in = take(at, 3 * t->width * t->width);
    a.w_o = take(at, t->width * t->width);
    if (turns) { a.rope_table = t->rope;  a.positions = MOST; }
    return attn_mha_init(m, &a);
}

static attn_status load_linear(attn_linear *l, const translator *t, const float *w, int n_in, int n_out)
{
    attn_linear_args a = {0};
    a.n_in = n_in;  a.n_out = n_out;  a.w = w;  a.storage = t->storage;
    return attn_linear_init(l, &a);
}

static attn_status load_layer(translator *t, one_layer *l, const float **at, int cross)
{
    attn_status s = load_linear(&l->up, t, take(at, t->ff * t->width), t->width, t->ff);
    if (!s) s = load_linear(&l->down, t, take(at, t->width * t->ff), t->ff, t->width);
    l->norm1 = take(at, t->width);
    if (!s) s = load_attention(&l->self, t, at, 1);
    if (cross && !s) l->norm2 = take(at, t->width);
    if (cross && !s) s = load_attention(&l->cross, t, at, 0);
    l->norm3 = take(at, t->width);
    return s;
}

static attn_status load_caches(translator *t)
{
    for (int l = 0; l < t->decoder; l++) {
        attn_kv_args a = {0};
        a.kv_heads = t->heads;  a.head_dim = t->width / t->heads;  a.capacity = MOST;
        if (t->storage == ATTN_Q8) a.k_storage = a.v_storage = ATTN_Q8;
        a.batch = 1;
        attn_status s = attn_kv_init(&t->memory[l], &a);
        a.batch = BEAMS;
        if (!s) s = attn_kv_init(&t->own[l], &a);
        if (s) return s;
    }
    return ATTN_OK;
}

/* log p of the next piece. The logarithm of the sum that a softmax divides by is what attention calls lse: a query of 1
   against keys of one number each, which are the logits. */
static attn_args softmax_args(const translator *t, int beam, float *out, float *lse)
{
    static const float one = 1;
    attn_args a = attn_args_for(1, 1, t->words, 1, 1);
    a.q = &one;  a.k = a.v = t->log_p + (size_t)beam * (size_t)t->words;  a.out = out;
    a.scale = 1;  a.lse = lse;  a.work = t->work;  a.work_size = t->work_size;
    return a;
}

/* Sets what every call needs: work memory and, for the mistakes, a mask with one row for all. `last`: the last column
   that a causal mask leaves visible. */
static void hide(const translator *t, attn_mha_opts *o, int last)
{
    o->attn.work = t->work;  o->attn.work_size = t->work_size;
    if (!t->added && !t->causal) return;
    o->attn.mask = t->hidden;
    for (int i = 0; i < 3; i++) o->attn.mask_shape[i] = 1;
    for (int j = 0; j < t->source; j++)
        t->hidden[j] = t->causal && j > last ? -INFINITY : t->added && j >= t->real ? -1e9f : 0;
}

static attn_mha_opts cross_opts(const translator *t, int l, int last)
{
    static const int same[BEAMS] = {0};                        /* all beams read one sentence */
    attn_mha_opts o = {0};
    o.attn.k_map = same;  o.attn.k_batch = 1;
    o.attn.k_lengths = t->lengths;
    o.attn.weights = t->seen + (size_t)(l * BEAMS * t->heads * t->source);
    hide(t, &o, last);
    return o;
}

static int load_work(translator *t)                            /* one work area, large enough for every call */
{
    float out, lse;
    t->added = 1;
    const attn_mha_opts cross = cross_opts(t, 0, 0);
    attn_mha_opts self = {0};
    self.attn.k_lengths = t->lengths;
    hide(t, &self, 0);
    const attn_args a = softmax_args(t, 0, &out, &lse);
    const one_layer *d = t->layers + t->encoder;
    const size_t sizes[5] = { attn_mha_workspace(&t->layers->self, ATTN_MHA_SELF, 1, MOST, 0, &self),
                              attn_mha_workspace(&d->cross, ATTN_MHA_CROSS_FILL, 1, 0, MOST, NULL),
                              attn_mha_workspace(&d->self, ATTN_MHA_SELF_STEP, BEAMS, 1, MOST, NULL),
                              attn_mha_workspace(&d->cross, ATTN_MHA_CROSS_STEP, BEAMS, 1, MOST, &cross),
                              attn_sdpa_workspace(&a) };
    t->added = 0;
    for (int i = 0; i < 5; i++) if (sizes[i] > t->work_size) t->work_size = sizes[i];
    t->work = t->work_size == (size_t)-1 ? NULL : malloc(t->work_size);
    return t->work != NULL;
}

static void translator_free(translator *t)
{
    for (int l = 0; t->layers && l < t->encoder + t->decoder; l++) {
        one_layer *a = &t->layers[l];
        attn_mha_free(&a->self);  attn_mha_free(&a->cross);  attn_linear_free(&a->up);  attn_linear_free(&a->down);
    }
    for (int l = 0; t->own && t->memory && l < t->decoder; l++) {
        attn_kv_free(&t->own[l]);  attn_kv_free(&t->memory[l]);
    }
    attn_linear_free(&t->last);
    free(t->joins);  free(t->weights);  free(t->layers);  free(t->own);  free(t->memory);  free(t->rope);
    free(t->work);  free(t->x);  free(t->y);  free(t->z);  free(t->hidden);  free(t->log_p);  free(t->seen);
    memset(t, 0, sizeof *t);
}

static const char *load_weights(translator *t, const unsigned char *p, size_t n)
{
    const size_t d = (size_t)t->width, layers = (size_t)(t->encoder + t->decoder), ff = (size_t)t->ff;
    t->weights = (float *)room(n, sizeof(float));
    t->layers = (one_layer *)room(layers, sizeof(one_layer));
    t->own = (attn_kv *)room((size_t)t->decoder, sizeof(attn_kv));
    t->memory = (attn_kv *)room((size_t)t->decoder, sizeof(attn_kv));
    t->rope = (float *)room(MOST * d, sizeof(float));          /* heads * the size for one head */
    t->x = (float *)room(MOST * d, sizeof(float));
    t->y = (float *)room(MOST * d, sizeof(float));
    t->z = (float *)room(MOST * (ff > d ? ff : d), sizeof(float));
    t->hidden = (float *)room(MOST, sizeof(float));
    t->log_p = (float *)room(BEAMS * (size_t)t->words, sizeof(float));
    t->seen = (float *)room((size_t)(t->decoder * t->heads) * BEAMS * MOST, sizeof(float));
    if (!t->weights || !t->layers || !t->own || !t->memory || !t->rope || !t->x || !t->y || !t->z || !t->hidden ||
        !t->log_p || !t->seen)
        return "there is not enough memory for it";
    for (size_t i = 0, some; i < n; i += some) {
        unsigned short half[256];                              /* little-endian bytes, aligned or not, as numbers */
        for (some = 0; some < 256 && i + some < n; some++) {
            half[some] = (unsigned short)(p[2 * (i + some)] | p[2 * (i + some) + 1] << 8);
            if ((half[some] & 0x7C00) == 0x7C00) return "one of its weights is not a number";
        }
        if (attn_widen(t->weights + i, half, some, ATTN_F16)) return "its weights cannot be read";
    }
    const float *at = t->weights;
    attn_status s = attn_rope_table(t->rope, MOST, t->width / t->heads, NULL, 10000);
    t->embedding = take(&at, t->words * t->width);
    for (int l = 0; l < t->encoder && !s; l++) s = load_layer(t, &t->layers[l], &at, 0);
    t->encoder_norm = take(&at, t->width);
    for (int l = 0; l < t->decoder && !s; l++) s = load_layer(t, &t->layers[t->encoder + l], &at, 1);
    t->decoder_norm = take(&at, t->width);
    if (!s) s = load_linear(&t->last, t, t->embedding, t->width, t->words);
    if (!s) s = load_caches(t);
    if (s) return attn_status_str(s);
    return load_work(t) ? NULL : "there is not enough memory for it";
}

/* Makes *t, ignoring its previous contents, from the bytes of a file, which may be freed afterwards. storage: ATTN_F16
   keeps the weights of the file, ATTN_Q8 rounds weights and caches to 8 bits. Returns NULL, or an error; *t is then
   zeroed. Translating allocates nothing. */
static const char *translator_load(translator *t, const unsigned char *bytes, size_t size, attn_storage storage)
{
    static const unsigned long least[6] = { JOINS, 2, 1, 1, 1, 1 }, most[6] = { 65535, 1024, 64, 16, 16, 8192 };
    unsigned long h[8] = {0}, check = 2166136261u;
    memset(t, 0, sizeof *t);
    if (size < 44) return "it is shorter than a header";
    if (memcmp(bytes, "attn-tr", 7) != 0) return "it is no model of this translator";
    for (int i = 0; i < 8; i++) h[i] = word_at(bytes + 8 + 4 * i, 4);
    if (bytes[7] != '1' || h[0] != 1) return "it is of another version of the format; this reads version 1";
    for (int i = 0; i < 6; i++)
        if (h[2 + i] < least[i] || h[2 + i] > most[i]) return "its header has a size that no model has";
    t->words = (int)h[2];  t->width = (int)h[3];  t->heads = (int)h[4];
    t->encoder = (int)h[5];  t->decoder = (int)h[6];  t->ff = (int)h[7];  t->storage = storage;
    const unsigned long long d = h[3], layers = h[5] + h[6], joins = h[2] - JOINS;
    const unsigned long long square = 4 * d * d, ff = 2 * d * h[7];
    const unsigned long long n = h[2] * d + layers * (2 * d + square + ff) + h[6] * (d + square) + 2 * d;
    const char *why = NULL;
    if (h[3] % h[4] || h[3] / h[4] % 2) why = "its heads do not divide its width into even parts";
    else if (h[1] > 4096 || size != 44 + h[1] + 4 * joins + 2 * n) why = "its length is not what its header says";
    for (size_t i = 0; i < size - 4 && !why; i++) check = ((check ^ bytes[i]) * 16777619u) & 0xFFFFFFFFu;
    if (!why && check != word_at(bytes + size - 4, 4)) why = "it is damaged: its checksum does not fit";
    if (!why) t->joins = (int (*)[3])room((size_t)joins, sizeof *t->joins);
    if (!why && !t->joins) why = "there is not enough memory for it";
    for (size_t i = 0; i < joins && !why; i++) {
        for (int k = 0; k < 2 && !why; k++) {
            const int id = t->joins[i][k] = (int)word_at(bytes + 40 + h[1] + 4 * i + 2 * (size_t)k, 2);
            if (id < BYTES || id >= JOINS + (int)i) why = "a piece is made of one that is not there yet";
            else t->joins[i][2] += id < JOINS ? 1 : t->joins[id - JOINS][2];
        }
        if (t->joins[i][2] > PIECE) why = "a piece is too long";
    }
    if (!why) why = load_weights(t, bytes + 40 + h[1] + 4 * joins, (size_t)n);
    if (why) translator_free(t);
    return why;
}

/* ---- text and pieces --------------------------------------------------------------------------------------------- */

/* Splits a text into pieces and END, at most MOST; returns their number, or 0 if there are more. Every byte is a
   piece, so nothing is unknown; then pairs are joined as in training, in the same order. */
static int translator_split(const translator *t, const char *text, int *ids)
{
    int all[LONGEST + 1], n = 0, kept;
    for (; *text; text++) {
        const int byte = (unsigned char)*text;
        if (byte <= ' ' && (text[1] == 0 || (unsigned char)text[1] <= ' ')) continue;      /* the last of some spaces */
        if (n + 2 > LONGEST) return 0;
        if (n == 0 && byte > ' ') all[n++] = BYTES + ' ';      /* a word begins with its space */
        all[n++] = BYTES + (byte < ' ' ? ' ' : byte);
    }
    for (int j = 0; j < t->words - JOINS; j++) {
        kept = 0;
        for (int i = 0; i < n; kept++) {
            const int both = i + 1 < n && all[i] == t->joins[j][0] && all[i + 1] == t->joins[j][1];
            all[kept] = both ? JOINS + j : all[i];
            i += 1 + both;
        }
        n = kept;
    }
    if (n + 1 > MOST) return 0;
    memcpy(ids, all, (size_t)n * sizeof *ids);
    ids[n] = END;
    return n + 1;
}

/* Stores the bytes of a piece, at most PIECE and not terminated; returns their number. END, BEGIN and PAD have none. */
static int translator_piece(const translator *t, int id, char *to)
{
    if (id < BYTES || id >= t->words) return 0;
    if (id < JOINS) { *to = (char)(id - BYTES);  return 1; }
    const int n = translator_piece(t, t->joins[id - JOINS][0], to);
    return n + translator_piece(t, t->joins[id - JOINS][1], to + n);
}

/* Returns the bytes of the letter at s (UTF-8; n bytes exist); 0: not printable. */
static int letter(const unsigned char *s, int n)
{
    static const unsigned least[5] = { 0, ' ', 0xA0, 0x800, 0x10000 };
    const int length = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    unsigned code = length < 2 ? s[0] : s[0] & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if (i >= n || (s[i] & 0xC0) != 0x80) return 0;
        code = code << 6 | (s[i] & 0x3Fu);
    }
    if (length == 0 || code < least[length] || code == 0x7F || code > 0x10FFFF) return 0;
    return (code >= 0xD800 && code < 0xE000) || code == 0xFFFE || code == 0xFFFF ? 0 : length;
}

/* Converts pieces to terminated text that is safe for a terminal, a page or an SVG: bytes that are no letters become
   <C3>. */
static void translator_join(const translator *t, const int *ids, int n, char *text, int size)
{
    char raw[LONGEST];
    int length = 0, at = 0;
    for (int i = 0; i < n && length + PIECE <= LONGEST; i++) length += translator_piece(t, ids[i], raw + length);
    for (int i = 0, one; i < length && at + 5 <= size; i += one ? one : 1) {
        one = letter((const unsigned char *)raw + i, length - i);
        if (one) { memcpy(text + at, raw + i, (size_t)one);  at += one;  continue; }
        text[at++] = '<';
        text[at++] = "0123456789ABCDEF"[(unsigned char)raw[i] >> 4];
        text[at++] = "0123456789ABCDEF"[raw[i] & 15];
        text[at++] = '>';
    }
    if (size > 0) text[at < size ? at : size - 1] = 0;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static double root_of(double x)                                /* Heron's method, from above */
{
    double y = x > 1 ? x : 1, last;
    do { last = y;  y = (last + x / last) / 2; } while (y < last);
    return last;
}

static float *norm(const translator *t, const float *x, const float *weight, int rows)        /* into t->y */
{
    attn_norm_args a = {0};
    a.y = t->y;
    a.x = x;
    a.rows = rows;
    a.n = t->width;
    a.weight = weight;
    a.eps = 1e-5f;
    attn_norm(&a);                                             /* sizes from a file that was checked: never rejected */
    return t->y;
}

static void add(const translator *t, const float *more, int rows)
{
    for (int i = 0; i < rows * t->width; i++) t->x[i] += more[i];
}

static void embed(const translator *t, float *x, int id, float more)
{
    const float scale = (float)root_of(t->width);
    for (int i = 0; i < t->width; i++) x[i] = (float)((double)t->embedding[id * t->width + i] * scale + more);
}

static attn_status feed_forward(const translator *t, const one_layer *l, int rows)
{
    attn_status s = attn_linear_run(&l->up, t->z, norm(t, t->x, l->norm3, rows), rows, 0, NULL);
    for (int i = 0; i < rows * t->ff; i++) if (t->z[i] < 0) t->z[i] = 0;
    if (!s) s = attn_linear_run(&l->down, t->y, t->z, rows, 0, NULL);
    add(t, t->y, rows);
    return s;
}

/* The encoder, once per sentence: n pieces, at most MOST with padding. Then every layer of the decoder computes keys
   and values of the result, in a separate cache. wrong NULL: without mistakes. */
static attn_status translator_read(translator *t, const int *ids, int n, const mistake *wrong)
{
    static const mistake none = { 0, 0, 0, 0 };
    const mistake *w = wrong ? wrong : &none;
    if (n < 0 || n > MOST || w->pads < 0 || w->pads > MOST - n) return ATTN_E_SIZE;
    const int rows = n + w->pads;
    t->source = rows;  t->real = n;  t->causal = w->causal;  t->added = w->padding == 2;
    t->visible = w->padding ? rows : n;
    for (int b = 0; b < BEAMS; b++) t->lengths[b] = t->visible;
    attn_mha_opts o = {0}, fill = {0};
    o.attn.k_lengths = &t->visible;                            /* M_e: padding */
    hide(t, &o, MOST);
    fill.attn.work = t->work;  fill.attn.work_size = t->work_size;
    for (int i = 0; i < rows; i++) {
        if (i < n && (ids[i] < 0 || ids[i] >= t->words)) return ATTN_E_SIZE;
        embed(t, t->x + i * t->width, i < n ? ids[i] : PAD, i < n ? 0 : w->pad_value);
    }
    attn_status s = ATTN_OK;
    for (int l = 0; l < t->encoder && !s; l++) {
        s = attn_mha_self(&t->layers[l].self, t->z, norm(t, t->x, t->layers[l].norm1, rows), 1, rows, &o);
        add(t, t->z, rows);
        if (!s) s = feed_forward(t, &t->layers[l], rows);
    }
    norm(t, t->x, t->encoder_norm, rows);
    for (int l = 0; l < t->decoder && !s; l++) {
        s = attn_mha_cross_fill(&t->layers[t->encoder + l].cross, &t->memory[l], t->y, 1, rows, &t->visible, &fill);
        if (!s) s = attn_kv_reset(&t->own[l], -1);
    }
    return s;
}

/* One step of the decoder: takes a piece of each beam (at first BEGIN) and sets log_p of the next piece, and seen. */
static attn_status translator_step(translator *t, const int *tokens)
{
    const int d = t->width, at = t->own[0].lengths[0];
    float out, lse;
    attn_mha_opts o = {0};
    attn_status s = ATTN_OK;
    o.attn.work = t->work;  o.attn.work_size = t->work_size;
    for (int b = 0; b < BEAMS; b++) {
        if (tokens[b] < 0 || tokens[b] >= t->words) return ATTN_E_SIZE;
        embed(t, t->x + b * d, tokens[b], 0);
    }
    for (int l = 0; l < t->decoder && !s; l++) {
        const one_layer *a = &t->layers[t->encoder + l];
        s = attn_mha_self_step(&a->self, t->z, norm(t, t->x, a->norm1, BEAMS), BEAMS, 1, &t->own[l], &o);      /* M_d */
        add(t, t->z, BEAMS);
        const attn_mha_opts x = cross_opts(t, l, at);                                                          /* M_x */
        if (!s) s = attn_mha_cross_step(&a->cross, t->z, norm(t, t->x, a->norm2, BEAMS), BEAMS, 1, &t->memory[l], &x);
        add(t, t->z, BEAMS);
        if (!s) s = feed_forward(t, a, BEAMS);
    }
    if (!s) s = attn_linear_run(&t->last, t->log_p, norm(t, t->x, t->decoder_norm, BEAMS), BEAMS, 0, NULL);
    for (int b = 0; b < BEAMS && !s; b++) {
        const attn_args a = softmax_args(t, b, &out, &lse);
        s = attn_sdpa(&a);
        for (int w = 0; w < t->words; w++) t->log_p[b * t->words + w] -= lse;
    }
    return s;
}

/* Beam b continues where beam parents[b] was. */
static attn_status translator_follow(translator *t, const int *parents)
{
    attn_status s = ATTN_OK;
    for (int l = 0; l < t->decoder && !s; l++) s = attn_kv_reorder(&t->own[l], parents);
    return s;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

typedef struct beam { int n, ids[MOST]; float sum; } beam;
typedef struct choice { float sum; int parent, id; } choice;

/* Lists the best continuations of all live beams, at most `most`, best first. Skips NaN. */
static int best_choices(const translator *t, const beam *live, int n_live, choice *best, int most)
{
    int n = 0;
    for (int b = 0; b < n_live; b++) {
        for (int id = END; id < t->words; id++) {              /* skips PAD and BEGIN */
            const float sum = live[b].sum + t->log_p[b * t->words + id];
            if (!(sum > -INFINITY) || (n == most && !(sum > best[n - 1].sum))) continue;
            int at = n < most ? n++ : n - 1;
            for (; at > 0 && sum > best[at - 1].sum; at--) best[at] = best[at - 1];
            best[at].sum = sum;  best[at].parent = b;  best[at].id = id;
        }
    }
    return n;
}

typedef struct search { beam live[BEAMS], next[BEAMS], done; int beams, n_live, finished, steps; } search;

static void search_begin(search *s, int beams)
{
    memset(s, 0, sizeof *s);
    s->beams = beams;
    s->n_live = 1;
}

/* Adds one piece. Returns 1 to continue, 0 at the end of the search, -1 if a call failed. */
static int search_step(translator *t, search *s)
{
    choice best[2 * BEAMS];
    int tokens[BEAMS], parents[BEAMS] = {0};
    const int room_for = 3 * t->real + 10 < MOST ? 3 * t->real + 10 : MOST;
    if (s->steps >= room_for || s->finished >= s->beams || s->n_live == 0) return 0;
    for (int b = 0; b < BEAMS; b++) tokens[b] = s->steps && b < s->n_live ? s->live[b].ids[s->steps - 1] : BEGIN;
    if (translator_step(t, tokens)) return -1;
    const int n = best_choices(t, s->live, s->n_live, best, 2 * s->beams);
    s->n_live = 0;
    for (int i = 0; i < n && s->n_live < s->beams; i++) {
        const float mean = best[i].sum / (float)(s->steps + 1);
        const int ends = best[i].id == END;
        beam *to = ends ? &s->done : &s->next[s->n_live];
        if (ends && (i >= s->beams || (s->finished++ && mean <= s->done.sum))) continue;
        *to = s->live[best[i].parent];
        to->ids[s->steps] = best[i].id;
        to->n = s->steps + 1;
        to->sum = ends ? mean : best[i].sum;
        if (!ends) parents[s->n_live++] = best[i].parent;
    }
    memcpy(s->live, s->next, sizeof s->live);
    s->steps++;
    return translator_follow(t, parents) ? -1 : 1;
}

/* Returns the best text so far, or after the end of the search its result. ids [MOST] */
static int search_best(const search *s, int *ids)
{
    const beam *winner = s->finished ? &s->done : s->n_live ? &s->live[0] : &s->done;
    memcpy(ids, winner->ids, sizeof winner->ids);
    return winner->n;
}

/* The likeliest translation, per piece, of the sentence that was read. ids [MOST] ends with END, unless the search ran
   out of room. Returns their number; 0: all probabilities were NaN, or a call failed. beams 1 .. BEAMS; 1 is greedy. */
static int translator_search(translator *t, int beams, int *ids)
{
    search s;
    int more;
    search_begin(&s, beams);
    do { more = search_step(t, &s); } while (more > 0);
    return more < 0 ? 0 : search_best(&s, ids);
}

/* Computes the attention of the sentence found, or of any other one: runs the decoder again piece by piece, with
   equal beams. seen [decoder][heads][n][source]. */
static attn_status translator_watch(translator *t, const int *ids, int n, float *seen)
{
    attn_status s = ATTN_OK;
    for (int l = 0; l < t->decoder && !s; l++) s = attn_kv_reset(&t->own[l], -1);
    for (int i = 0; i < n && !s; i++) {
        int tokens[BEAMS];
        for (int b = 0; b < BEAMS; b++) tokens[b] = i ? ids[i - 1] : BEGIN;
        s = translator_step(t, tokens);
        for (int l = 0; l < t->decoder; l++)
            for (int h = 0; h < t->heads; h++) {               /* hidden padding is not in the cache: weights of 0 */
                float *to = seen + ((l * t->heads + h) * n + i) * t->source;
                memset(to, 0, (size_t)t->source * sizeof *to);
                memcpy(to, t->seen + l * BEAMS * t->heads * t->source + h * t->visible,
                       (size_t)t->visible * sizeof *to);
            }
    }
    return s;
}

#ifndef TRANSLATE_NO_MAIN
/* ---- the program ------------------------------------------------------------------------------------------------- */
#include "../svg.h"
#ifdef _WIN32
#include <io.h>
#define isatty _isatty
#else
#include <unistd.h>
#endif

enum { NAME = 64 };                                            /* bytes of a printed piece */

/* Columns and rows of a picture: which layer and head, all of them, or a mean. */
typedef struct wish { const char *model, *picture, *which; int beams, eight, quiet, broken, colour, help; } wish;

typedef struct result {
    int n_source, n, source[MOST], ids[MOST];
    char text[LONGEST], names[2][MOST][NAME];                  /* of columns, of rows */
    const char *columns[MOST], *rows[MOST];
    float *seen, *mean;                                        /* [decoder][heads][n][columns]; [n][columns] */
} result;

static void refuse(const char *name, const char *why) { fprintf(stderr, "translate: %s: %s\n", name, why);  exit(1); }

static void name_pieces(const translator *t, const int *ids, int n, char names[][NAME], const char **list)
{
    for (int i = 0; i < n; i++) {                              /* a piece that continues a word: ·uk */
        char text[NAME - 4];
        translator_join(t, ids + i, 1, text, sizeof text);
        const int first = text[0] == ' ';
        const int goes_on = !first && i > 0 && (unsigned char)text[0] > '?' && text[0] != '<';
        snprintf(names[i], sizeof names[i], "%s%s",
                 ids[i] == END ? "</s>" : ids[i] == PAD ? "<pad>" : goes_on ? "\xc2\xb7" : "", text + first);
        list[i] = names[i];
    }
}

/* Returns 0 if the sentence is too long. */
static int translate(translator *t, const char *text, const wish *w, const mistake *wrong, result *r)
{
    r->n_source = translator_split(t, text, r->source);
    if (r->n_source == 0 || r->n_source + (wrong ? wrong->pads : 0) > MOST) return 0;
    if (translator_read(t, r->source, r->n_source, wrong)) refuse("attention", "it refused a call");
    r->n = translator_search(t, w->beams, r->ids);
    if (translator_watch(t, r->ids, r->n, r->seen)) refuse("attention", "it refused a call");
    translator_join(t, r->ids, r->n, r->text, sizeof r->text);
    if (r->text[0] == ' ') memmove(r->text, r->text + 1, strlen(r->text));
    for (int i = r->n_source; i < t->source; i++) r->source[i] = PAD;
    name_pieces(t, r->source, t->source, r->names[0], r->columns);
    name_pieces(t, r->ids, r->n, r->names[1], r->rows);
    return 1;
}

/* "2.3": layer and head; "2": the mean of a layer; "mean" of everything. Returns 0 if there is none. */
static int which_of(const translator *t, const char *which, long *layer, long *head)
{
    char *end;
    *layer = *head = 0;
    if (!strcmp(which, "mean")) return 1;
    *layer = strtol(which, &end, 10);
    if (*layer < 1 || *layer > t->decoder) return 0;
    if (!*end) return 1;
    *head = *end == '.' ? strtol(end + 1, &end, 10) : 0;
    return !*end && *head >= 1 && *head <= t->heads;
}

/* The weights of a selection, [n][columns], and their title. */
static const float *chosen(const translator *t, const result *r, const char *which, char *title, size_t size)
{
    const int cells = r->n * t->source;
    long layer, head;
    which_of(t, which, &layer, &head);
    if (head) {
        snprintf(title, size, "layer %ld, head %ld", layer, head);
        return r->seen + ((layer - 1) * t->heads + head - 1) * cells;
    }
    const int from = layer ? (int)(layer - 1) * t->heads : 0, to = from + t->heads * (layer ? 1 : t->decoder);
    if (layer) snprintf(title, size, "layer %ld, mean of its heads", layer);
    else snprintf(title, size, "mean of all layers and heads");
    for (int i = 0; i < cells; i++) {
        float sum = 0;
        for (int h = from; h < to; h++) sum += r->seen[h * cells + i];
        r->mean[i] = sum / (float)(to - from);
    }
    return r->mean;
}

static int letters(const char *s) { int n = 0;  for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;  return n; }

static void print_padded(const char *s, int width)
{
    for (int i = letters(s); i < width; i++) putchar(' ');
    fputs(s, stdout);
}

static void print_weights(const translator *t, const result *r, const float *weights, const char *title, int colour)
{
    static const int blue[] = { 255, 189, 153, 75, 26 };       /* of the 256 colours of a terminal */
    int width = 6, left = 0;
    for (int j = 0; j < t->source; j++) if (letters(r->columns[j]) + 2 > width) width = letters(r->columns[j]) + 2;
    for (int i = 0; i < r->n; i++) if (letters(r->rows[i]) > left) left = letters(r->rows[i]);
    printf("\n%s\n%*s", title, left, "");
    for (int j = 0; j < t->source; j++) print_padded(r->columns[j], width);
    puts("");
    for (int i = 0; i < r->n; i++) {
        print_padded(r->rows[i], left);
        for (int j = 0; j < t->source; j++) {
            const float x = weights[i * t->source + j];
            const int step = (x > 0.07f) + (x > 0.15f) + (x > 0.3f) + (x > 0.6f);
            if (colour) printf("\033[48;5;%d;38;5;%dm%*.2f\033[0m", blue[step], step == 4 ? 231 : 16, width, (double)x);
            else if (x < 0.005f) print_padded("\xc2\xb7", width);
            else printf("%*.2f", width, (double)x);
        }
        puts("");
    }
}

static void draw(const translator *t, const result *r, const wish *w, const char *sentence)
{
    const int all = !strcmp(w->which, "all"), cell = all ? 30 : 52, height = 26 * r->n + (all ? 110 : 92);
    int longest = 0;
    char title[64], number[32];
    for (int i = 0; i < r->n; i++) if (letters(r->rows[i]) > longest) longest = letters(r->rows[i]);
    const int left = longest * 8 > 48 ? longest * 8 - 40 : 8, wide = left + 60 + cell * t->source;
    FILE *f = svg_open(w->picture, 20 + wide * (all ? t->heads : 1), all ? 20 + height * t->decoder : height + 10);
    if (!f) refuse(w->picture, "it cannot be written");
    for (int i = 0; i < (all ? t->heads * t->decoder : 1); i++) {
        snprintf(number, sizeof number, "%d.%d", i / t->heads + 1, i % t->heads + 1);
        const float *weights = chosen(t, r, all ? number : w->which, title, sizeof title);
        svg_weights(f, 20 + left + i % t->heads * wide, 20 + i / t->heads * height, all ? title : sentence,
                    all ? "" : title, weights, r->n, t->source, cell, r->rows, r->columns);
    }
    if (!svg_close(f)) refuse(w->picture, "the disk is full");
}

/* Translates the same sentence with the most common mistakes. */
static void show_broken(translator *t, const char *text, const wish *w, result *r)
{
    static const struct { const char *what; mistake m; } list[] = {
        { "as it should be", { 0, 0, 0, 0 } },
        { "8 pieces of padding, hidden", { 8, 0, 0, 0 } },
        { "the same, NaN in the padding", { 8, 0, 0, NAN } },
        { "8 pieces of padding, not hidden", { 8, 1, 0, 0 } },
        { "the same, NaN in the padding", { 8, 1, 0, NAN } },
        { "NaN in the padding, hidden by adding -1e9", { 8, 2, 0, NAN } },
        { "a causal mask on cross-attention", { 0, 0, 1, 0 } },
    };
    puts("");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (!translate(t, text, w, &list[i].m, r)) continue;
        printf("  %-43s %s\n", list[i].what, r->n ? r->text : "(nothing is a number)");
    }
}

/* line: its number, 0 for a sentence of the command line. Returns 0 if it is too long: with -q an empty line then
   replaces its translation, so that output and input still match line by line. */
static int answer(translator *t, const char *text, const wish *w, result *r, long line)
{
    char title[64] = "the sentence";
    if (!translate(t, text, w, NULL, r)) {
        if (line) snprintf(title, sizeof title, "line %ld", line);
        if (line && w->quiet) puts("");
        fflush(stdout);
        fprintf(stderr, "translate: %s: it is too long: it has more than %d pieces of words\n", title, MOST - 1);
        return 0;
    }
    if (w->picture) draw(t, r, w, text);
    puts(r->text);
    if (w->quiet) return 1;
    for (int i = 0; i < (strcmp(w->which, "all") ? 1 : t->heads * t->decoder); i++) {
        char number[32];
        snprintf(number, sizeof number, "%d.%d", i / t->heads + 1, i % t->heads + 1);
        const float *weights = chosen(t, r, strcmp(w->which, "all") ? w->which : number, title, sizeof title);
        print_weights(t, r, weights, title, w->colour);
    }
    if (w->broken) show_broken(t, text, w, r);
    return 1;
}

/* Returns the next line, of any length, without its end; NULL after the last one. *text [*space] grows; zeros become
   spaces. */
static const char *next_line(FILE *f, char **text, size_t *space)
{
    for (size_t n = 0;; n++) {
        const int c = getc(f);
        if (n == *space) {
            *text = (char *)realloc(*text, *space = 2 * *space + 256);
            if (!*text) refuse("a line", "there is not enough memory for it");
        }
        (*text)[n] = (char)(c == EOF || c == '\n' ? 0 : c ? c : ' ');
        if (c == '\n' || (c == EOF && n > 0)) return *text;
        if (c == EOF) return NULL;
    }
}

static unsigned char *file_bytes(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f) refuse(path, "it cannot be opened; -m says where the model is");
    const long end = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    if (end < 0 || end > 1 << 28 || fseek(f, 0, SEEK_SET)) refuse(path, "it is no file, or far too large");
    unsigned char *bytes = (unsigned char *)malloc((size_t)end + 1);
    if (!bytes || fread(bytes, 1, (size_t)end, f) != (size_t)end) refuse(path, "it cannot be read");
    fclose(f);
    *size = (size_t)end;
    return bytes;
}

/* `text` has room for all words */
static int wish_parse(wish *w, int argc, char **argv, char *text)
{
    const char *const begin = text;
    char *end;
    for (int i = 1; i < argc && !w->help; i++) {
        const char *value = argv[i + 1];                       /* NULL after the last one */
        if (argv[i][0] != '-' || !argv[i][1])                  /* a word of the sentence */
            text += sprintf(text, "%s%s", text > begin ? " " : "", argv[i]);
        else if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) w->help = 1;
        else if (!strcmp(argv[i], "-q")) w->quiet = 1;
        else if (!strcmp(argv[i], "-8")) w->eight = 1;
        else if (!strcmp(argv[i], "-c")) w->colour = 1;
        else if (!strcmp(argv[i], "--break")) w->broken = 1;
        else if (!value) return 0;
        else if (!strcmp(argv[i], "-m")) w->model = argv[++i];
        else if (!strcmp(argv[i], "-o")) w->picture = argv[++i];
        else if (!strcmp(argv[i], "-a")) w->which = argv[++i];
        else if (!strcmp(argv[i], "-b")) {
            const long beams = strtol(argv[++i], &end, 10);
            w->beams = *end || beams < 1 || beams > BEAMS ? 0 : (int)beams;
        } else return 0;
    }
    return w->beams > 0;
}

int main(int argc, char **argv)
{
    static const char usage[] =
        "usage: translate [options] [a German sentence]    without a sentence: one a line, from keyboard or file\n"
        "  -a 2.3        attention to show: layer.head, a layer (the mean of its heads), mean, or all; default 2\n"
        "  -o file.svg   draw it                            -m file   model, examples/translate/german-english.bin\n"
        "  --break       the same with wrong masks          -b 4      beams, 1 to 4\n"
        "  -q            the translation alone              -c        colours, even if this is no terminal\n"
        "  -8            weights and caches in 8 bits       -h        this list\n";
    static result r;
    static char *text;
    wish w = { "examples/translate/german-english.bin", NULL, "2", BEAMS, 0, 0, 0, isatty(1), 0 };
    translator t;
    size_t size, space = 1;
    long layer, head, line = 0;
    int all_done = 1;
    for (int i = 1; i < argc; i++) space += strlen(argv[i]) + 1;
    text = (char *)room(space, 1);
    if (!text) refuse("the sentence", "there is not enough memory for it");
    if (!wish_parse(&w, argc, argv, text)) return fputs(usage, stderr), 2;
    if (w.help) return fputs(usage, stdout) < 0;
    unsigned char *bytes = file_bytes(w.model, &size);
    const char *why = translator_load(&t, bytes, size, w.eight ? ATTN_Q8 : ATTN_F16);
    if (why) refuse(w.model, why);
    free(bytes);
    r.seen = (float *)malloc((size_t)(t.decoder * t.heads) * MOST * MOST * sizeof(float));
    r.mean = (float *)malloc(MOST * MOST * sizeof(float));
    if (!r.seen || !r.mean) refuse(w.model, "there is not enough memory for it");
    if (strcmp(w.which, "all") && !which_of(&t, w.which, &layer, &head)) refuse("-a", "there is no such layer or head");

    const int ask = !text[0] && isatty(0) && !w.quiet;
    if (text[0]) all_done = answer(&t, text, &w, &r, 0);
    else for (;;) {
        if (ask) fputs("German> ", stdout), fflush(stdout);
        if (!next_line(stdin, &text, &space)) break;
        line++;
        if (text[strspn(text, " \t\r")] || w.quiet) all_done &= answer(&t, text, &w, &r, line);
    }
    if (ask) puts("");
    if (ferror(stdin)) refuse("standard input", "it cannot be read");
    if (fflush(stdout) || ferror(stdout)) refuse("standard output", "it cannot be written");
    free(text);  free(r.seen);  free(r.mean);
    translator_free(&t);
    return !all_done;
}
#endif
