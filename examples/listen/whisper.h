/* whisper.h: a Whisper model read from its file: sizes, tokens, packed weights, caches and work memory.

   How it computes is in listen.c. Nothing here opens a file or prints. */
#ifndef LISTEN_WHISPER_H
#define LISTEN_WHISPER_H
#include "attn.h"
#include "ggml_file.h"
#include "mel.h"

enum { BEAMS = 8, MOST = 448, LONGEST = 224, BLOCK = 192 };    /* beams; tokens with prompt, without; rows at a time */
enum { STAMPS = 1501 };                                        /* timestamps: 0.00 to 30.00 seconds by 0.02 */
static const float HIDDEN = -1e30f;                            /* the logit of a token that is not allowed */

typedef struct norm { const float *weight, *bias; } norm;
typedef struct block { norm before_self, before_cross, before_up; attn_mha self, cross; attn_linear up, down; } block;

typedef struct whisper {
    int width, heads, encoder_layers, decoder_layers, rows, words, beams;         /* rows: 1500; words: vocabulary */
    int multilingual, languages, end, start, translate, transcribe, no_speech, no_stamps, stamps, space;    /* tokens */
    ggml_file file;
    mel spectrum;
    attn_linear conv1, conv2, vocabulary;
    block *encoder, *decoder;
    norm encoder_end, decoder_end;
    const float *encoder_places, *decoder_places;
    const ggml_tensor *embedding;
    attn_kv *own, *memory;                                     /* [decoder_layers]: of the tokens, of the window */
    attn_mha_opts options;                                     /* work memory and threads */
    float *floats, *x, *y, *h, *z, *logits, *chances;           /* chances [words]: probabilities of a draw */
    unsigned char *suppressed;                                 /* [words] 1: not speech */
    int failed;                                                /* a call of attn.h was rejected */
} whisper;

/* ---- loading ----------------------------------------------------------------------------------------------------- */

typedef struct loader { whisper *w; attn_storage storage, given; float *scratch, *at; } loader; /* given: of the file */

static const float *keep(loader *l, const char *prefix, int layer, const char *rest, int rows, int columns)
{
    const ggml_tensor *t = ggml_need(&l->w->file, prefix, layer, rest, rows, columns);
    float *to = l->at;
    if (t) ggml_floats(t, 0, t->n, to);
    l->at += (size_t)rows * (size_t)columns;
    return to;
}

static norm load_norm(loader *l, const char *prefix, int layer, const char *weight, const char *bias)
{
    norm n;
    n.weight = keep(l, prefix, layer, weight, l->w->width, 1);
    n.bias = keep(l, prefix, layer, bias, l->w->width, 1);
    return n;
}

/* Copies a tensor to the scratch memory at *at. Returns NULL if there is none. */
static float *scratch(loader *l, float **at, const char *prefix, int layer, const char *rest, int rows, int columns)
{
    const ggml_tensor *t = ggml_need(&l->w->file, prefix, layer, rest, rows, columns);
    float *to = *at;
    if (!t) return NULL;
    ggml_floats(t, 0, t->n, to);
    *at += t->n;
    return to;
}

/* The same for weights, which stay in the format of the file. */
static void *scratch_weights(loader *l, float **at, const char *prefix, int layer, const char *rest, int rows,
                             int columns)
{
    const ggml_tensor *t = ggml_need(&l->w->file, prefix, layer, rest, rows, columns);
    void *to = *at;
    if (!t) return NULL;
    if ((t->type == GGML_F16) != (l->given == ATTN_F16)) {
        ggml_reason(&l->w->file, "its tensor ", t->name, t->length, " has another format than the header says");
        return NULL;
    }
    ggml_copy(t, to);
    *at += t->type == GGML_F16 ? (t->n + 1) / 2 : t->n;
    return to;
}

static void init_linear(loader *l, attn_linear *to, int n_in, int n_out, const void *w, attn_storage given,
                        const float *b)
{
    attn_linear_args a = {0};
    a.n_in = n_in;
    a.n_out = n_out;
    a.w = w;
    a.w_storage = given;
    a.b = b;
    a.storage = l->storage;
    if (!l->w->file.reason[0] && attn_linear_init(to, &a)) l->w->failed = 1;
}

static void load_linear(loader *l, attn_linear *to, const char *prefix, int layer, const char *weight, const char *bias,
                        int n_in, int n_out)
{
    float *at = l->scratch;
    const void *w = scratch_weights(l, &at, prefix, layer, weight, n_out, n_in);
    const float *b = bias ? scratch(l, &at, prefix, layer, bias, n_out, 1) : NULL;
    init_linear(l, to, n_in, n_out, w, l->given, b);
}

/* A convolution of 3 frames is a linear over 3 rows side by side: [out][in][3] becomes [out][3][in]. */
static void load_convolution(loader *l, attn_linear *to, const char *weight, const char *bias, int n_in)
{
    const int n_out = l->w->width;
    float *at = l->scratch;
    const float *w = scratch(l, &at, weight, -1, "", n_out, 3 * n_in);
    const float *b = scratch(l, &at, bias, -1, "", n_out, 1);
    float *turned = at;
    for (int o = 0; w && o < n_out; o++)
        for (int i = 0; i < n_in; i++)
            for (int k = 0; k < 3; k++) turned[(o * 3 + k) * n_in + i] = w[(o * n_in + i) * 3 + k];
    init_linear(l, to, 3 * n_in, n_out, turned, ATTN_F32, b);
}

static void load_attention(loader *l, attn_mha *to, const char *prefix, int layer, int cross)
{
    const int d = l->w->width;
    float *at = l->scratch;
    attn_mha_args a = {0};
    a.d_model = d;
    a.heads = l->w->heads;
    a.w_storage = l->given;
    a.storage = l->storage;
    a.w_q = scratch_weights(l, &at, prefix, layer, cross ? ".cross_attn.query.weight" : ".attn.query.weight", d, d);
    a.b_q = scratch(l, &at, prefix, layer, cross ? ".cross_attn.query.bias" : ".attn.query.bias", d, 1);
    a.w_k = scratch_weights(l, &at, prefix, layer, cross ? ".cross_attn.key.weight" : ".attn.key.weight", d, d);
    a.w_v = scratch_weights(l, &at, prefix, layer, cross ? ".cross_attn.value.weight" : ".attn.value.weight", d, d);
    a.b_v = scratch(l, &at, prefix, layer, cross ? ".cross_attn.value.bias" : ".attn.value.bias", d, 1);
    a.w_o = scratch_weights(l, &at, prefix, layer, cross ? ".cross_attn.out.weight" : ".attn.out.weight", d, d);
    a.b_o = scratch(l, &at, prefix, layer, cross ? ".cross_attn.out.bias" : ".attn.out.bias", d, 1);
    if (!l->w->file.reason[0] && attn_mha_init(to, &a)) l->w->failed = 1;
}

static void load_block(loader *l, block *b, const char *prefix, int layer, int cross)
{
    const int d = l->w->width;
    b->before_self = load_norm(l, prefix, layer, ".attn_ln.weight", ".attn_ln.bias");
    b->before_up = load_norm(l, prefix, layer, ".mlp_ln.weight", ".mlp_ln.bias");
    if (cross) b->before_cross = load_norm(l, prefix, layer, ".cross_attn_ln.weight", ".cross_attn_ln.bias");
    load_attention(l, &b->self, prefix, layer, 0);
    if (cross) load_attention(l, &b->cross, prefix, layer, 1);
    load_linear(l, &b->up, prefix, layer, ".mlp.0.weight", ".mlp.0.bias", d, 4 * d);
    load_linear(l, &b->down, prefix, layer, ".mlp.2.weight", ".mlp.2.bias", 4 * d, d);
}

static int find_word(const whisper *w, const char *text, size_t n)
{
    for (int i = 0; i < w->file.n_words; i++)
        if ((size_t)w->file.words[i].length == n && !memcmp(w->file.words[i].bytes, text, n)) return i;
    return -1;
}

/* Marks the tokens that transcribe no speech: brackets, musical notes and the like, alone or after a space. */
static void suppress(whisper *w)
{
    static const char marks[] = "\" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ "
        "\xe3\x80\x8c \xe3\x80\x8d \xe3\x80\x8e \xe3\x80\x8f "
        "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} \xe2\x99\xaa\xe2\x99\xaa "
        "\xe2\x99\xaa\xe2\x99\xaa\xe2\x99\xaa \xe2\x99\xa9 \xe2\x99\xaa \xe2\x99\xab \xe2\x99\xac \xe2\x99\xad "
        "\xe2\x99\xae \xe2\x99\xaf ";
    char text[16] = " ";
    for (const char *at = marks; *at;) {
        const size_t n = (size_t)(strchr(at, ' ') - at);
        memcpy(text + 1, at, n);
        for (size_t first = 0; first < 2; first++) {
            const char *from = text + 1 - first;
            int id = find_word(w, from, n + first);
            /* a single note that is no token is suppressed by its first bytes */
            for (size_t some = n + first; id < 0 && n == 3 && !memcmp(at, "\xe2\x99", 2) && some > 1;)
                id = find_word(w, from, --some);
            if (id >= 0) w->suppressed[id] = 1;
        }
        at += n + 1;
    }
    const int dash = find_word(w, " -", 2), quote = find_word(w, " '", 2);
    if (dash >= 0) w->suppressed[dash] = 1;
    if (quote >= 0) w->suppressed[quote] = 1;
    for (int i = w->start; i < w->stamps; i++) w->suppressed[i] = 1;
}

/* Returns the index of a language code among Whisper's, -1 for any other. */
static inline int find_language(const char *code)
{
    static const char codes[] =
        "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur "
        "hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si "
        "km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln "
        "ha ba jw su yue ";
    int index = 0;
    for (const char *at = codes; *at; index++) {
        const size_t n = (size_t)(strchr(at, ' ') - at);
        if (strlen(code) == n && !memcmp(at, code, n)) return index;
        at += n + 1;
    }
    return -1;
}

static void name_tokens(whisper *w)
{
    w->words = w->file.size[GGML_VOCABULARY];
    w->multilingual = w->words >= 51865;
    w->languages = w->multilingual ? w->words - 51766 : 99;
    w->end = w->multilingual ? 50257 : 50256;
    w->start = w->end + 1;
    w->translate = w->start + 1 + w->languages;
    w->transcribe = w->translate + 1;
    w->no_speech = w->translate + 4;
    w->no_stamps = w->translate + 5;
    w->stamps = w->translate + 6;
    w->space = find_word(w, " ", 1);
}

/* One work area, large enough for every call. Returns 0 without memory. */
static int make_work(whisper *w)
{
    attn_mha_opts causal = w->options, weights = w->options;
    float some;
    int head = 0;
    causal.attn.causal = ATTN_CAUSAL_TOP_LEFT;
    weights.attn.weights = &some;
    weights.attn.weights_heads = &head;
    weights.attn.n_weights_heads = 1;
    const attn_mha *self = &w->decoder->self, *cross = &w->decoder->cross;
    const size_t sizes[6] = { attn_mha_workspace(&w->encoder->self, ATTN_MHA_SELF, 1, w->rows, 0, &w->options),
                              attn_mha_workspace(self, ATTN_MHA_SELF, 1, MOST, 0, &causal),
                              attn_mha_workspace(self, ATTN_MHA_SELF_STEP, w->beams, 4, MOST, &w->options),
                              attn_mha_workspace(cross, ATTN_MHA_CROSS_FILL, 1, 0, w->rows, &w->options),
                              attn_mha_workspace(cross, ATTN_MHA_CROSS_STEP, w->beams, 4, w->rows, &w->options),
                              attn_mha_workspace(cross, ATTN_MHA_CROSS_STEP, 1, MOST, w->rows, &weights) };
    size_t most = 0;
    for (int i = 0; i < 6; i++) if (sizes[i] > most) most = sizes[i];
    w->options.attn.work = most == (size_t)-1 ? NULL : malloc(most);
    w->options.attn.work_size = most;
    return w->options.attn.work != NULL;
}

static int make_room(whisper *w)
{
    const size_t d = (size_t)w->width, rows = (size_t)(w->rows > MOST ? w->rows : MOST);
    w->x = (float *)malloc(rows * d * sizeof *w->x);
    w->y = (float *)malloc(rows * d * sizeof *w->y);
    w->h = (float *)calloc((2 * rows + 2) * d, sizeof *w->h);
    w->z = (float *)malloc(BLOCK * 4 * d * sizeof *w->z);
    w->logits = (float *)malloc((size_t)w->beams * (size_t)w->words * sizeof *w->logits);
    w->chances = (float *)malloc((size_t)w->words * sizeof *w->chances);
    w->own = (attn_kv *)calloc((size_t)w->decoder_layers, sizeof *w->own);
    w->memory = (attn_kv *)calloc((size_t)w->decoder_layers, sizeof *w->memory);
    if (!w->x || !w->y || !w->h || !w->z || !w->logits || !w->chances || !w->own || !w->memory) return 0;
    for (int l = 0; l < w->decoder_layers; l++) {
        attn_kv_args a = {0};
        a.batch = w->beams;
        a.kv_heads = w->heads;
        a.head_dim = w->width / w->heads;
        a.capacity = MOST;
        if (attn_kv_init(&w->own[l], &a)) return 0;
        a.batch = 1;
        a.capacity = w->rows;
        if (attn_kv_init(&w->memory[l], &a)) return 0;
    }
    return make_work(w);
}

static void load_tensors(loader *l)
{
    whisper *w = l->w;
    const int d = w->width;
    w->encoder_places = keep(l, "encoder.positional_embedding", -1, "", w->rows, d);
    w->decoder_places = keep(l, "decoder.positional_embedding", -1, "", MOST, d);
    w->encoder_end = load_norm(l, "encoder.ln_post", -1, ".weight", ".bias");
    w->decoder_end = load_norm(l, "decoder.ln", -1, ".weight", ".bias");
    load_convolution(l, &w->conv1, "encoder.conv1.weight", "encoder.conv1.bias", w->spectrum.bands);
    load_convolution(l, &w->conv2, "encoder.conv2.weight", "encoder.conv2.bias", d);
    for (int i = 0; i < w->encoder_layers; i++) load_block(l, &w->encoder[i], "encoder.blocks.", i, 0);
    for (int i = 0; i < w->decoder_layers; i++) load_block(l, &w->decoder[i], "decoder.blocks.", i, 1);
    w->embedding = ggml_need(&w->file, "decoder.token_embedding.weight", -1, "", w->words, d);
    load_linear(l, &w->vocabulary, "decoder.token_embedding.weight", -1, "", NULL, d, w->words);
}

static void whisper_close(whisper *w)
{
    for (int i = 0; w->encoder && i < w->encoder_layers + w->decoder_layers; i++) {
        block *b = &w->encoder[i];
        attn_mha_free(&b->self);
        attn_mha_free(&b->cross);
        attn_linear_free(&b->up);
        attn_linear_free(&b->down);
    }
    for (int l = 0; w->own && w->memory && l < w->decoder_layers; l++) {
        attn_kv_free(&w->own[l]);
        attn_kv_free(&w->memory[l]);
    }
    attn_linear_free(&w->conv1);
    attn_linear_free(&w->conv2);
    attn_linear_free(&w->vocabulary);
    free(w->encoder);
    free(w->own);
    free(w->memory);
    free(w->floats);
    free(w->x);
    free(w->y);
    free(w->h);
    free(w->z);
    free(w->logits);
    free(w->chances);
    free(w->suppressed);
    free(w->options.attn.work);
    ggml_close(&w->file);
    w->encoder = NULL;
    w->own = w->memory = NULL;
}

/* Makes *w of the bytes of a file, which must outlive it. storage: of the weights kept. exec NULL: one thread.
   Returns NULL, or a reason to reject it. Call whisper_close in both cases; the reason is part of *w. */
static const char *whisper_open(whisper *w, const unsigned char *bytes, size_t size, int beams, attn_storage storage,
                                const attn_exec *exec)
{
    memset(w, 0, sizeof *w);
    const char *reason = ggml_open(&w->file, bytes, size);
    if (reason) return reason;
    const int *sizes = w->file.size;
    const size_t d = (size_t)sizes[GGML_TEXT_WIDTH];
    w->width = (int)d;
    w->heads = sizes[GGML_TEXT_HEADS];
    w->rows = sizes[GGML_AUDIO_CONTEXT];
    w->encoder_layers = sizes[GGML_AUDIO_LAYERS];
    w->decoder_layers = sizes[GGML_TEXT_LAYERS];
    w->beams = beams;
    w->options.attn.exec = exec;
    if (sizes[GGML_AUDIO_HEADS] != w->heads) return "its encoder and decoder differ in heads";
    if (sizes[GGML_TEXT_CONTEXT] != MOST) return "its decoder has not 448 positions";
    name_tokens(w);
    mel_init(&w->spectrum, w->file.filters, sizes[GGML_BANDS]);
    const size_t norms = 4 * (size_t)w->encoder_layers + 6 * (size_t)w->decoder_layers + 4;
    loader l = { w, storage, sizes[GGML_FORMAT] % 1000 ? ATTN_F16 : ATTN_F32, NULL, NULL };
    l.scratch = (float *)malloc(((size_t)w->words + 8 * d + 8) * d * sizeof *l.scratch);
    w->floats = l.at = (float *)malloc((norms + (size_t)w->rows + MOST) * d * sizeof *w->floats);
    w->encoder = (block *)calloc((size_t)(w->encoder_layers + w->decoder_layers), sizeof *w->encoder);
    w->suppressed = (unsigned char *)calloc((size_t)w->words, 1);
    if (l.scratch && w->floats && w->encoder && w->suppressed) {
        w->decoder = w->encoder + w->encoder_layers;
        suppress(w);
        load_tensors(&l);
        if (w->file.reason[0]) reason = w->file.reason;
        else if (w->failed || !make_room(w)) reason = "there is not enough memory for it";
    } else reason = "there is not enough memory for it";
    free(l.scratch);
    return reason;
}

static void ok(whisper *w, attn_status s) { if (s) w->failed = 1; }
#endif
