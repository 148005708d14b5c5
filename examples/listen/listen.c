/* listen.c: a speech recogniser. OpenAI's Whisper on attn.h.

   Build:  cc -O2 -I. examples/listen/listen.c -o listen
           cc -O2 -I. -DATTN_THREADS -pthread examples/listen/listen.c -o listen       for -j 2 and more
   Run:    ./listen ggml-tiny.en.bin speech.wav                                        README.md has all options

   A window of 30 seconds becomes 3000 frames of 80 numbers (mel.h), then 1500 rows (two convolutions). Attention
   happens in four places, each marked ATTENTION below:
     1  encoder, self-attention: every row attends to every row
     2  decoder, self-attention: a token attends to itself and to the tokens before it, which a cache keeps
     3  decoder, cross-attention: a token attends to the 1500 rows; their keys and values are computed once per
        window
     4  decoder, self-attention over the finished text at once, without a cache; in this pass 3 also returns the
        weights that give the word times

   Everything above LISTEN_NO_MAIN is the recogniser. It opens no file and prints only why attn.h rejects a call. To use
   it without main(), define LISTEN_NO_MAIN and include this file. */
#define ATTN_DEBUG
#ifndef ATTN_IMPLEMENTATION
#define ATTN_IMPLEMENTATION
#endif
#include "attn.h"
#include "whisper.h"
#include "search.h"
#include "wav.h"
#include "words.h"

/* ---- the model --------------------------------------------------------------------------------------------------- */

static void add(float *x, const float *more, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] += more[i];
}

static void layer_norm(whisper *w, float *y, const float *x, int rows, const norm *by)
{
    attn_norm_args a = {0};
    a.y = y;
    a.x = x;
    a.rows = rows;
    a.n = w->width;
    a.kind = ATTN_NORM_LAYER;
    a.weight = by->weight;
    a.bias = by->bias;
    a.eps = 1e-5f;
    a.exec = w->options.attn.exec;
    ok(w, attn_norm(&a));
}

static void gelu(whisper *w, float *x, int n)
{
    ok(w, attn_activate(x, x, NULL, (size_t)n, ATTN_GELU, w->options.attn.exec));
}

static void feed_forward(whisper *w, const block *b, int n)
{
    const attn_exec *exec = w->options.attn.exec;
    const int d = w->width;
    for (int at = 0; at < n; at += BLOCK) {
        const int now = n - at < BLOCK ? n - at : BLOCK;
        float *x = w->x + at * d, *y = w->y + at * d;
        layer_norm(w, y, x, now, &b->before_up);
        ok(w, attn_linear_run(&b->up, w->z, y, now, 0, exec));
        gelu(w, w->z, now * 4 * d);
        ok(w, attn_linear_run(&b->down, y, w->z, now, 0, exec));
        add(x, y, (size_t)now * (size_t)d);
    }
}

/* Applies a convolution over three rows, and GELU: output row i is the linear of input rows stride * i to
   stride * i + 2, of `channels` numbers each. */
static void convolve(whisper *w, const attn_linear *l, const float *rows, int channels, int stride, int n, float *to)
{
    const int d = w->width, step = stride * channels;
    for (int at = 0; at < n; at += BLOCK) {
        const int now = n - at < BLOCK ? n - at : BLOCK;
        ok(w, attn_linear_run(l, to + at * d, rows + at * step, now, step, w->options.attn.exec));
        gelu(w, to + at * d, now * d);
    }
}

/* The encoder, once per window; stores its rows in w->y. frames [2 * rows + 2][bands]: the first and last one are
   zeros. */
static void encode(whisper *w, const float *frames)
{
    const int n = w->rows, d = w->width;
    memset(w->h, 0, (size_t)d * sizeof *w->h);
    memset(w->h + (2 * n + 1) * d, 0, (size_t)d * sizeof *w->h);
    convolve(w, &w->conv1, frames, w->spectrum.bands, 1, 2 * n, w->h + d);
    convolve(w, &w->conv2, w->h, d, 2, n, w->x);
    add(w->x, w->encoder_places, (size_t)n * (size_t)d);
    for (int l = 0; l < w->encoder_layers; l++) {
        const block *b = &w->encoder[l];
        layer_norm(w, w->y, w->x, n, &b->before_self);
        ok(w, attn_mha_self(&b->self, w->h, w->y, 1, n, &w->options));                     /* ATTENTION 1 */
        add(w->x, w->h, (size_t)n * (size_t)d);
        feed_forward(w, b, n);
    }
    layer_norm(w, w->y, w->x, n, &w->encoder_end);
}

/* Keys and values of ATTENTION 3 in each decoder layer, once per window, from the rows that encode has stored. */
static void fill(whisper *w)
{
    for (int l = 0; l < w->decoder_layers; l++)
        ok(w, attn_mha_cross_fill(&w->decoder[l].cross, &w->memory[l], w->y, 1, w->rows, NULL, &w->options));
}

/* The decoder over n tokens of each beam, ids [beams][n], the first at position `past`. Stores its rows in w->y.
   whole 1: a finished text at once, of one beam, without the cache. weights: NULL, or an output that receives the
   cross-attention of the alignment heads [heads][n][rows]. */
static void decode(whisper *w, const int *ids, int beams, int n, int past, int whole, float *weights)
{
    static const int same[BEAMS] = {0};                        /* all beams read one window */
    const int d = w->width, all = beams * n;
    for (int i = 0; i < all; i++) {
        ggml_floats(w->embedding, (size_t)ids[i] * (size_t)d, (size_t)d, w->x + i * d);
        add(w->x + i * d, w->decoder_places + (past + i % n) * d, (size_t)d);
    }
    for (int l = 0; l < w->decoder_layers; l++) {
        const block *b = &w->decoder[l];
        int heads[64];
        attn_mha_opts self = w->options, cross = w->options;
        self.attn.causal = whole ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE; /* a step is causal by itself */
        cross.attn.k_map = same;
        cross.attn.k_batch = 1;
        layer_norm(w, w->y, w->x, all, &b->before_self);
        if (whole) ok(w, attn_mha_self(&b->self, w->h, w->y, 1, n, &self));                /* ATTENTION 4 */
        else ok(w, attn_mha_self_step(&b->self, w->h, w->y, beams, n, &w->own[l], &self)); /* ATTENTION 2 */
        add(w->x, w->h, (size_t)all * (size_t)d);
        layer_norm(w, w->y, w->x, all, &b->before_cross);
        const int n_heads = words_heads(w->decoder_layers, w->heads, w->multilingual, l, heads);
        if (weights && n_heads) {
            cross.attn.weights = weights;
            cross.attn.weights_heads = heads;
            cross.attn.n_weights_heads = n_heads;
            weights += (size_t)n_heads * (size_t)n * (size_t)w->rows;
        }
        ok(w, attn_mha_cross_step(&b->cross, w->h, w->y, beams, n, &w->memory[l], &cross));    /* ATTENTION 3 */
        add(w->x, w->h, (size_t)all * (size_t)d);
        feed_forward(w, b, all);
    }
    layer_norm(w, w->y, w->x, all, &w->decoder_end);
}

static void score(whisper *w, const float *rows, int n)        /* the vocabulary's logits of n rows */
{
    ok(w, attn_linear_run(&w->vocabulary, w->logits, rows, n, 0, w->options.attn.exec));
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* Runs all beams on the prompt. Stores the logits of the next token, and the log probability of silence. */
static void begin(whisper *w, search *s, const task *t)
{
    int ids[BEAMS * 4];
    for (int i = 0; i < w->beams * t->n; i++) ids[i] = t->prompt[i % t->n];
    for (int l = 0; l < w->decoder_layers; l++) ok(w, attn_kv_reset(&w->own[l], -1));
    decode(w, ids, w->beams, t->n, 0, 0, NULL);
    score(w, w->y, 1);
    s->no_speech = w->logits[w->no_speech] - log_sum(w, w->logits, w->words, 1, NULL);
    if (t->n > 1) score(w, w->y + (t->n - 1) * w->width, 1);
}

/* Beam search as CTranslate2 does it (1 beam: greedy): it ends when the number of finished texts equals the number of
   beams; the best text has the largest mean log probability per token. With a temperature one text is drawn
   instead. */
static beam find_text(whisper *w, search *s, task *t)
{
    const int beams = t->temperature > 0 ? 1 : w->beams;
    int n_live = 1, best = 0;
    memset(s, 0, sizeof *s);
    s->live[0].hash = HASH_START;
    begin(w, s, t);
    for (int at = 0; !w->failed; at++) {
        choice list[2 * BEAMS];
        int ids[BEAMS], from[BEAMS];
        const int n = continuations(w, s, t, n_live, beams, list);
        n_live = divide(w, s, list, n, beams, at + 1 == LONGEST);
        if (s->n_done >= beams || n_live == 0) break;
        memcpy(s->live, s->next, sizeof s->live);
        if (t->watch) t->watch(&s->live[0]);
        for (int k = 0; k < w->beams; k++) {
            from[k] = s->parents[k < n_live ? k : 0];
            ids[k] = s->live[k < n_live ? k : 0].ids[at];
        }
        for (int l = 0; l < w->decoder_layers; l++) ok(w, attn_kv_reorder(&w->own[l], from));
        decode(w, ids, w->beams, 1, t->n + at, 0, NULL);
        score(w, w->y, n_live);
    }
    for (int i = 1; i < s->n_done; i++) {
        const beam *a = &s->done[i], *b = &s->done[best];
        if (a->sum / (float)(a->n ? a->n : 1) > b->sum / (float)(b->n ? b->n : 1)) best = i;
    }
    return s->done[best];
}

/* Returns the language with the largest logit after the start token. */
static int detect_language(whisper *w)
{
    search s;
    task t = { { w->start }, 1, 0, 0, 0, 0, NULL };
    int best = 0;
    begin(w, &s, &t);
    for (int i = 0; i < w->languages; i++)
        if (w->logits[w->start + 1 + i] > w->logits[w->start + 1 + best]) best = i;
    return best;
}

/* ---- windows and words ------------------------------------------------------------------------------------------- */

typedef struct listener {
    whisper w;
    wav sound;
    task what;
    search s;
    float *samples, *frames;                                   /* of a window; frames: one of zeros before and after */
    cues segments, words;
    int want_words, at_once, spaced;                           /* spaced: the language has spaces between words */
    double (*clock)(void), encoder_seconds, search_seconds;    /* clock NULL: times are not measured */
    int tries;                                                 /* temperatures 0, 0.2, ..; listener_open: 6 */
    logit_hash hash;
    long hashed, tokens, seek, total;                          /* rows of logits, tokens; frames of 10 ms */
    float *staircase;                                          /* of the last window, and its tokens and their starts */
    int n_ids, ids[LONGEST + 1], starts[LONGEST + 1], columns;
} listener;

typedef struct mel_job { const mel *m; const float *samples; float *frames; } mel_job;

static void mel_task(void *arg, int i)
{
    const mel_job *j = (const mel_job *)arg;
    const size_t first = (size_t)i * MEL_BLOCK;
    mel_block(j->m, j->samples + first * MEL_HOP, j->frames + first * (size_t)j->m->bands);
}

/* Computes the spectrogram of the window at l->seek. Returns 0 if an allocation fails. */
static int hear(listener *l)
{
    const int n = 2 * l->w.rows, bands = l->w.spectrum.bands, blocks = (n + MEL_BLOCK - 1) / MEL_BLOCK;
    const attn_exec *exec = l->w.options.attn.exec;
    float *x = l->samples, *frames = l->frames + bands;
    mel_job job = { &l->w.spectrum, x, frames };
    const long long first = (long long)l->seek * MEL_HOP - MEL_POINTS / 2;
    if (!wav_read(&l->sound, first, blocks * MEL_BLOCK * MEL_HOP + MEL_POINTS, x)) return 0;
    for (int i = 0; i < MEL_POINTS / 2 && l->seek == 0; i++) x[i] = x[MEL_POINTS - i]; /* mirrored at the beginning */
    if (exec) exec->run(exec->pool, blocks, mel_task, &job);
    else for (int i = 0; i < blocks; i++) mel_task(&job, i);
    mel_scale(frames, n * bands);
    memset(l->frames, 0, (size_t)bands * sizeof *frames);
    memset(frames + n * bands, 0, (size_t)bands * sizeof *frames);
    return 1;
}

static int append_text(const whisper *w, const int *ids, int n, char *to, int size)
{
    int length = 0;
    for (int i = 0; i < n; i++) {
        if (ids[i] >= w->file.n_words || ids[i] >= w->end) continue;
        const ggml_word *word = &w->file.words[ids[i]];
        if (length + word->length > size) break;
        memcpy(to + length, word->bytes, (size_t)word->length);
        length += word->length;
    }
    return length;
}

/* The thresholds of whisper's transcribe(), by their names there; log_no_speech_threshold is log 0.6. */
static const float logprob_threshold = -1, log_no_speech_threshold = -0.5108f;
static const double compression_ratio_threshold = 2.4;

/* Generates the text of the window, at rising temperatures until it is neither repetitive nor improbable, or no
   temperature is left. *silent: 1 if the window has no speech. */
static beam find_good_text(listener *l, char *text, int size, int *silent)
{
    beam b;
    for (int i = 0;; i++) {
        l->what.temperature = (float)i / 5;
        b = find_text(&l->w, &l->s, &l->what);
        const float mean = b.sum / (float)(b.n + 1);
        const int length = append_text(&l->w, b.ids, b.n, text, size);
        *silent = l->s.no_speech > log_no_speech_threshold && mean < logprob_threshold;
        if (i + 1 >= l->tries || *silent) return b;
        if (words_ratio(text, length) <= compression_ratio_threshold && mean >= logprob_threshold) return b;
    }
}

/* Finds the times of the window's words from the cross-attention of the alignment heads. Returns 0 if an
   allocation fails. */
static int align(listener *l, int frames)
{
    whisper *w = &l->w;
    int ids[MOST], heads[64], n_heads = 0;
    const int first = l->what.n - (l->what.stamps ? 0 : 1);    /* prompt tokens before no_stamps */
    const int rows = first + 1 + l->n_ids + 1;
    memcpy(ids, l->what.prompt, sizeof l->what.prompt);
    ids[first] = w->no_stamps;
    memcpy(ids + first + 1, l->ids, (size_t)l->n_ids * sizeof *ids);
    ids[rows - 1] = w->end;
    for (int i = 0; i < w->decoder_layers; i++)
        n_heads += words_heads(w->decoder_layers, w->heads, w->multilingual, i, heads);
    free(l->staircase);
    l->staircase = (float *)malloc((size_t)n_heads * (size_t)rows * (size_t)w->rows * sizeof *l->staircase);
    if (!l->staircase) return 0;
    decode(w, ids, 1, rows, 0, 1, l->staircase);
    l->columns = frames;
    if (!words_align(l->staircase, n_heads, rows, w->rows, frames, first, l->n_ids + 1, l->starts)) return 0;
    memmove(l->staircase, l->staircase + first * frames, (size_t)((l->n_ids + 1) * frames) * sizeof *l->staircase);
    return 1;
}

/* Returns 1 if a word begins with token i: at a space, or, in languages without spaces, wherever a character begins. */
static int begins(const listener *l, int i)
{
    const ggml_word *word = &l->w.file.words[l->ids[i]];
    if (i == 0 || word->length == 0) return i == 0;
    return word->bytes[0] == ' ' || (!l->spaced && (word->bytes[0] & 0xC0) != 0x80);
}

static int is_mark(const listener *l, int i)
{
    const ggml_word *word = &l->w.file.words[l->ids[i]];
    return word->length == 1 && strchr(".,!?:;\"')]}", word->bytes[0]) != NULL;
}

static void add_words(listener *l)
{
    const int before = l->words.n;
    for (int i = 0, next; i < l->n_ids; i = next) {
        char text[1024];
        int said = i + 1;                                      /* after the last token that is not punctuation */
        for (next = i + 1; next < l->n_ids && !begins(l, next); next++) if (!is_mark(l, next)) said = next + 1;
        const int length = append_text(&l->w, l->ids + i, next - i, text, sizeof text);
        cues_add(&l->words, l->seek + 2 * l->starts[i], l->seek + 2 * l->starts[said], text, length);
    }
    cues_share(&l->words, before);
}

/* ---- the hash of option -v --------------------------------------------------------------------------------------- */

/* Returns the hash of the logits that b->hash covers, computed from the finished text at once. */
static logit_hash hash_at_once(whisper *w, const task *t, const beam *b)
{
    int ids[MOST];
    logit_hash h = HASH_START;
    const int rows = b->n < LONGEST ? b->n + 1 : LONGEST;
    memcpy(ids, t->prompt, sizeof t->prompt);
    memcpy(ids + t->n, b->ids, sizeof b->ids);
    decode(w, ids, 1, t->n - 1 + rows, 0, 1, NULL);
    for (int i = 0; i < rows; i++) {
        score(w, w->y + (t->n - 1 + i) * w->width, 1);
        h = hash_of(h, w->logits, w->words);
    }
    return h;
}

/* Adds the logits of the window's text to l->hash. */
static void add_hash(listener *l, const beam *b)
{
    l->hashed += b->n < LONGEST ? b->n + 1 : LONGEST;
    if (!l->what.hash) return;
    l->hash = (l->hash ^ (l->at_once ? hash_at_once(&l->w, &l->what, b) : b->hash)) * HASH_PRIME;
}

/* ---- a window ---------------------------------------------------------------------------------------------------- */

static void add_segment(listener *l, const int *ids, int n, long from, long to)
{
    char text[8192];
    const int length = append_text(&l->w, ids, n, text, sizeof text);
    if (length == 0) return;
    cues_add(&l->segments, from, to < l->total ? to : l->total, text, length);
    for (int i = 0; i < n; i++) if (ids[i] < l->w.end && l->n_ids < LONGEST) l->ids[l->n_ids++] = ids[i];
}

/* Cuts the text of a window at pairs of timestamps. Returns the number of frames of 10 ms that were transcribed. Text
   after the last pair is dropped, and generated again with the next window. */
static long cut(listener *l, const beam *b, long window)
{
    const int first = l->w.stamps;
    const int single = b->n > 1 && b->ids[b->n - 1] >= first && b->ids[b->n - 2] < first;
    int from = 0;
    l->n_ids = 0;
    for (int i = 1; i < b->n + single; i++) {
        if (i < b->n && (b->ids[i] < first || b->ids[i - 1] < first)) continue;
        if (i == b->n && from == 0) break;
        const long begun = l->seek + 2 * (b->ids[from] - first), ended = l->seek + 2 * (b->ids[i - 1] - first);
        add_segment(l, b->ids + from, i - from, begun, ended);
        from = i;
    }
    if (from && !single) return 2 * (b->ids[from - 1] - first);
    if (!from) {
        int last = b->n - 1;
        while (last > 0 && b->ids[last] < first) last--;
        const int begun = b->n && b->ids[0] >= first ? b->ids[0] - first : 0;
        const int ended = last > 0 ? b->ids[last] - first : 0;
        add_segment(l, b->ids, b->n, l->seek + 2 * begun, l->seek + (ended ? 2 * ended : window));
    }
    return window;
}

/* Transcribes the next window. Returns 0 at the end of the sound, -1 if memory is missing or a call was rejected. */
static int listen_on(listener *l)
{
    char text[8192];
    double begun = 0, encoded = 0;
    const long left = l->total - l->seek, window = left < 2 * l->w.rows ? left : 2 * l->w.rows;
    if (left <= 0) return 0;
    if (!hear(l)) return -1;
    if (l->clock) begun = l->clock();
    encode(&l->w, l->frames);
    if (l->clock) encoded = l->clock();
    fill(&l->w);
    int silent = 0;
    beam b = find_good_text(l, text, sizeof text, &silent);
    if (l->clock) l->search_seconds += l->clock() - encoded;
    l->encoder_seconds += encoded - begun;
    l->tokens += b.n;
    add_hash(l, &b);
    if (silent) b.n = 0;
    const long used = cut(l, &b, window);
    if (l->want_words && l->n_ids > 0 && window > 3) {
        if (!align(l, (int)(window / 2))) return -1;
        add_words(l);
    }
    l->seek += used > 0 ? used : window;
    return l->w.failed || l->segments.failed || l->words.failed ? -1 : 1;
}

/* Initialises *l; l->w and l->sound must be open. language -1: detected when the model is multilingual. Returns 0 if an
   allocation fails. */
static int listener_open(listener *l, int language, int translate, int stamps)
{
    whisper *w = &l->w;
    const size_t n = 2 * (size_t)w->rows + MEL_BLOCK;
    l->samples = (float *)malloc((n * MEL_HOP + MEL_POINTS) * sizeof *l->samples);
    l->frames = (float *)malloc((n + 2) * (size_t)w->spectrum.bands * sizeof *l->frames);
    l->total = (long)(l->sound.samples / MEL_HOP);
    l->hash = HASH_START;
    l->spaced = 1;
    l->tries = 6;
    if (!l->samples || !l->frames) return 0;
    l->what.prompt[l->what.n++] = w->start;
    if (w->multilingual) {
        if (language < 0) {
            if (!hear(l)) return 0;
            encode(w, l->frames);
            fill(w);
            language = detect_language(w);
        }
        const int unspaced[6] = { 1, 7, 30, 77, 87, 99 };      /* zh ja th lo my yue */
        for (int i = 0; i < 6; i++) if (language == unspaced[i]) l->spaced = 0;
        l->what.prompt[l->what.n++] = w->start + 1 + language;
        l->what.prompt[l->what.n++] = translate ? w->translate : w->transcribe;
    }
    l->what.stamps = stamps;
    l->what.seed = 88172645463325252ull;
    if (!stamps) l->what.prompt[l->what.n++] = w->no_stamps;
    return 1;
}

static void listener_close(listener *l)
{
    whisper_close(&l->w);
    wav_close(&l->sound);
    cues_free(&l->segments);
    cues_free(&l->words);
    free(l->samples);
    free(l->frames);
    free(l->staircase);
    memset(l, 0, sizeof *l);
}

#ifndef LISTEN_NO_MAIN
/* ---- the program ------------------------------------------------------------------------------------------------- */
#include "options.h"
#include "picture.h"
#include <time.h>

static void print_new(const cues *c, int from, int times)
{
    for (int i = from; i < c->n; i++) {
        const cue *q = &c->list[i];
        if (times) printf("%ld.%02ld %ld.%02ld ", q->begin / 100, q->begin % 100, q->end / 100, q->end % 100);
        puts(c->text + q->text);
    }
    fflush(stdout);
}

static double seconds(void)
{
#ifdef TIME_UTC
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#else
    return (double)clock() / CLOCKS_PER_SEC;
#endif
}

/* Processor time of all threads: other programs on the machine do not count. */
static double processor_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* Transcribes all windows and prints the text. */
static void run(listener *l, const wish *w)
{
    const double begun = seconds();
    const int terminal = isatty(2);
    int more;
    do {
        const int segments = l->segments.n, words = l->words.n;
        more = listen_on(l);
        if (terminal) fputs("\r\033[K", stderr);
        if (more < 0) refuse(w->sound, "there is not enough memory for it, or attn.h rejected a call");
        const int draw_now = segments == 0 && l->segments.n && w->picture;
        if (draw_now && !draw(w->picture, l)) refuse(w->picture, "it cannot be written");
        print_new(w->words ? &l->words : &l->segments, w->words ? words : segments, w->words);
        const long done = l->seek < l->total ? l->seek : l->total;
        if (terminal)
            fprintf(stderr, "%.1f of %.1f s, %.0f tokens a second", (double)done / 100, (double)l->total / 100,
                    (double)l->tokens / (seconds() - begun));
    } while (more > 0);
    if (terminal) fputs("\r\033[K", stderr);
}

int main(int argc, char **argv)
{
    static listener l;
    wish w = { NULL, NULL, NULL, NULL, NULL, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0 };
    const int fine = wish_parse(&w, argc, argv);
    if (!fine || w.help) usage(fine ? stdout : stderr);
    if (!fine || w.help) return fine ? 0 : 2;
#ifdef ATTN_THREADS
    attn_pool *pool = w.threads > 1 ? attn_pool_create(w.threads) : NULL;
    attn_exec exec = { NULL, 1, NULL };
    if (pool) exec = attn_pool_exec(pool);
    const attn_exec *threads = pool ? &exec : NULL;
#else
    const attn_exec *threads = NULL;
    if (w.threads > 1) refuse("-j", "this program was compiled without -DATTN_THREADS");
#endif
    const int language = w.language ? find_language(w.language) : -1;
    if (w.language && language < 0) refuse(w.language, "it is not the code of a language: en, de, zh and so on");
    const file model = file_open(w.model);
    const char *reason = whisper_open(&l.w, model.bytes, model.size, w.beams,
                                      w.eight ? ATTN_Q8 : w.half ? ATTN_F16 : ATTN_F32, threads);
    if (reason) refuse(w.model, reason);
    if ((w.language && language > 0 && !l.w.multilingual) || (w.translate && !l.w.multilingual))
        refuse(w.model, "it supports only English: -l and -t need a multilingual model");
    if (l.w.multilingual && language >= l.w.languages) refuse(w.language, "the model does not support this language");
    const file sound = file_open(w.sound);
    reason = strcmp(w.sound, "-") ? wav_open(&l.sound, sound.bytes, sound.size)
                                  : wav_open_raw(&l.sound, sound.bytes, sound.size);
    if (!reason && l.sound.samples < MEL_POINTS) reason = "it is shorter than a frame of 25 ms";
    if (reason) refuse(w.sound, reason);
    l.what.hash = w.hash;
    l.at_once = w.at_once;
    l.clock = processor_seconds;
    l.want_words = w.words || w.picture;
    if (!listener_open(&l, language, w.translate, !w.no_stamps)) refuse(w.sound, "there is not enough memory for it");
    run(&l, &w);
    if (w.hash) printf("%016llx: hash of %ld rows of logits\n", l.hash, l.hashed);
    if (w.hash && l.tokens)
        printf("encoder %.1f ms, cross fill and %ld tokens %.1f ms\n", 1000 * l.encoder_seconds, l.tokens,
               1000 * l.search_seconds);
    if (w.hash && memory_used()) printf("%ld MB at most\n", memory_used());
    if (fflush(stdout) || ferror(stdout)) refuse("standard output", "it cannot be written");
    if (w.out && !output_write(w.out, &l.segments, w.words ? &l.words : NULL)) refuse(w.out, "it cannot be written");
    listener_close(&l);
#ifdef ATTN_THREADS
    attn_pool_destroy(pool);
#endif
    return 0;
}
#endif
