/* transliteration.c: Arabic letters to Latin ones, an encoder-decoder of six and six layers trained by others, in the
 * format of CTranslate2. The published log-probabilities and outputs, and every other way to compute them: the same
 * bits. */
#include "models.h"

enum { LAYERS = 6, WIDTH = 32, HEADS = 8, HEAD = WIDTH / HEADS, FF = 128, BLANK = 0, START = 1, END = 2 };
enum { WORDS = 2, LETTERS = 7, STEPS = 8, MOST = 16, SOURCES = 51, TARGETS = 43 };

/* A double-precision reading of the file agrees with the published numbers to 8e-7, these layers do to 9e-7. */
#define TOLERANCE 2e-6

static const char *const sources[WORDS] = { "آتزمون", "آتشيسون" };
static const char *const targets[WORDS] = { "atzmon", "achison" };
static const double published[WORDS][STEPS] = {       /* of the letters, and of </s> */
    { -0.106023, -0.065410, -0.056002, -0.447953, -0.230714, -0.092184, -0.063463 },
    { -0.072660, -0.300309, -0.181187, -0.395671, -0.025631, -0.123466, -0.002034, -0.012639 },
};

/* ---- the file ------------------------------------------------------------------------------------------------- */
typedef struct variable { char name[64]; int rows, columns; float *data; } variable;
typedef struct reader { const unsigned char *at, *end; } reader;
static variable variables[256];
static int n_variables;
static char letters[2][64][8];            /* of source and target, by number */
static const char file[] = "transliteration/model.bin";

static uint32_t take(reader *r, int bytes)
{
    uint32_t value = 0;
    if (r->end - r->at < bytes) model_broken(file, "is cut off");
    for (int i = 0; i < bytes; i++) value |= (uint32_t)*r->at++ << 8 * i;
    return value;
}

static const unsigned char *take_bytes(reader *r, size_t n)
{
    if ((size_t)(r->end - r->at) < n) model_broken(file, "is cut off");
    r->at += n;
    return r->at - n;
}

/* One letter per line; the number after the last one represents unknown letters. */
static void read_vocabulary(const char *name, char list[64][8], int n)
{
    size_t size;
    unsigned char *text = model_file(name, &size), *at = text;
    if (!text) model_broken(name, "is missing");
    for (int i = 0; i < n; i++) {
        const size_t length = strcspn((const char *)at, "\r\n");
        if (i >= 3 && (length == 0 || length >= 8)) model_broken(name, "has a line that is no letter");
        if (length < 8) memcpy(list[i], at, length);
        at += length;
        at += *at == '\r';
        at += *at == '\n';
    }
    free(text);
}

static void read_model(void)
{
    size_t size;
    if (n_variables) return;
    unsigned char *bytes = model_file(file, &size);
    if (!bytes) model_broken(file, "is missing");
    reader r = { bytes, bytes + size };
    if (take(&r, 4) != 2) model_broken(file, "is not of version 2");
    take_bytes(&r, take(&r, 2));                                  /* kind of the model, and its revision */
    take(&r, 4);
    const uint32_t n = take(&r, 4);
    if (n > sizeof variables / sizeof variables[0]) model_broken(file, "has too many variables");
    for (uint32_t i = 0; i < n; i++) {
        variable *v = &variables[i];
        const uint32_t length = take(&r, 2);
        const unsigned char *name = take_bytes(&r, length);
        if (length < 1 || length > sizeof v->name || name[length - 1]) model_broken(file, "has a name too long");
        memcpy(v->name, name, length);
        const uint32_t rank = take(&r, 1);
        const int skip = rank == 0;                               /* a single number, for example of heads */
        if (rank > 2) model_broken(file, "has a tensor of three dimensions");
        v->rows = rank == 2 ? (int)(take(&r, 4) & 0xFFFF) : 1;
        v->columns = rank > 0 ? (int)(take(&r, 4) & 0xFFFF) : 1;
        const uint32_t width = take(&r, 1), count = take(&r, 4);  /* bytes of an element, number of elements */
        const unsigned char *data = take_bytes(&r, (size_t)width * count);
        if (skip) continue;
        if (width != 4 || count != (uint32_t)v->rows * (uint32_t)v->columns) model_broken(file, "is not of floats");
        v->data = (float *)malloc(4 * (size_t)count);
        if (!v->data) abort();
        for (uint32_t j = 0; j < count; j++, data += 4) {
            v->data[j] = bits_float((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                                    (uint32_t)data[3] << 24);
        }
    }
    n_variables = (int)n;
    free(bytes);
    read_vocabulary("transliteration/source_vocabulary.txt", letters[0], SOURCES - 1);
    read_vocabulary("transliteration/target_vocabulary.txt", letters[1], TARGETS - 1);
}

static const float *tensor(int rows, int columns, const char *format, const char *side, int layer)
{
    char name[128];
    snprintf(name, sizeof name, format, side, layer);
    for (int i = 0; i < n_variables; i++) {
        if (strcmp(variables[i].name, name) != 0) continue;
        if (!variables[i].data || variables[i].rows != rows || variables[i].columns != columns) break;
        return variables[i].data;
    }
    printf("%s: ", name);
    model_broken(file, "has no such tensor of the right shape");
}

/* ---- the model ------------------------------------------------------------------------------------------------ */
typedef struct norm { const float *gamma, *beta; } norm;
typedef struct block { attn_mha self, cross; attn_linear up, down; norm self_norm, cross_norm, ff_norm; } block;
typedef struct side { const float *words; block blocks[LAYERS]; norm last; } side;
typedef struct translator { side encoder, decoder; attn_linear projection; attn_storage storage; } translator;

static norm norm_of(const char *format, const char *name, int layer)
{
    char gamma[96], beta[96];
    snprintf(gamma, sizeof gamma, "%s/gamma", format);
    snprintf(beta, sizeof beta, "%s/beta", format);
    const norm n = { tensor(1, WIDTH, gamma, name, layer), tensor(1, WIDTH, beta, name, layer) };
    return n;
}

static void linear(attn_linear *l, int n_in, int n_out, const float *w, const float *b, attn_storage storage)
{
    attn_linear_args a;
    memset(&a, 0, sizeof a);
    a.n_in = n_in, a.n_out = n_out, a.w = w, a.b = b, a.storage = storage;
    CHECK(attn_linear_init(l, &a) == ATTN_OK);
}

static void side_init(side *s, const char *name, attn_storage storage)
{
    s->words = tensor(!strcmp(name, "encoder") ? SOURCES : TARGETS, WIDTH, "%s/embeddings/weight", name, 0);
    s->last = norm_of("%s/layer_norm", name, 0);
    for (int i = 0; i < LAYERS; i++) {
        block *b = &s->blocks[i];
        attn_mha_args a;
        memset(&a, 0, sizeof a);
        a.d_model = WIDTH, a.heads = HEADS, a.storage = storage;
        a.w_in = tensor(3 * WIDTH, WIDTH, "%s/layer_%d/self_attention/linear_0/weight", name, i);
        a.b_in = tensor(1, 3 * WIDTH, "%s/layer_%d/self_attention/linear_0/bias", name, i);
        a.w_o = tensor(WIDTH, WIDTH, "%s/layer_%d/self_attention/linear_1/weight", name, i);
        a.b_o = tensor(1, WIDTH, "%s/layer_%d/self_attention/linear_1/bias", name, i);
        CHECK(attn_mha_init(&b->self, &a) == ATTN_OK);
        b->self_norm = norm_of("%s/layer_%d/self_attention/layer_norm", name, i);
        b->ff_norm = norm_of("%s/layer_%d/ffn/layer_norm", name, i);
        linear(&b->up, WIDTH, FF, tensor(FF, WIDTH, "%s/layer_%d/ffn/linear_0/weight", name, i),
               tensor(1, FF, "%s/layer_%d/ffn/linear_0/bias", name, i), storage);
        linear(&b->down, FF, WIDTH, tensor(WIDTH, FF, "%s/layer_%d/ffn/linear_1/weight", name, i),
               tensor(1, WIDTH, "%s/layer_%d/ffn/linear_1/bias", name, i), storage);
        if (strcmp(name, "decoder") != 0) continue;
        a.w_in = NULL, a.b_in = NULL;
        a.w_q = tensor(WIDTH, WIDTH, "%s/layer_%d/attention/linear_0/weight", name, i);
        a.b_q = tensor(1, WIDTH, "%s/layer_%d/attention/linear_0/bias", name, i);
        const float *w_kv = tensor(2 * WIDTH, WIDTH, "%s/layer_%d/attention/linear_1/weight", name, i);
        a.b_k = tensor(1, 2 * WIDTH, "%s/layer_%d/attention/linear_1/bias", name, i);
        a.w_k = w_kv, a.w_v = w_kv + WIDTH * WIDTH, a.b_v = a.b_k + WIDTH;
        a.w_o = tensor(WIDTH, WIDTH, "%s/layer_%d/attention/linear_2/weight", name, i);
        a.b_o = tensor(1, WIDTH, "%s/layer_%d/attention/linear_2/bias", name, i);
        CHECK(attn_mha_init(&b->cross, &a) == ATTN_OK);
        b->cross_norm = norm_of("%s/layer_%d/attention/layer_norm", name, i);
    }
}

static void translator_init(translator *t, attn_storage storage)
{
    read_model();
    memset(t, 0, sizeof *t);
    side_init(&t->encoder, "encoder", storage);
    side_init(&t->decoder, "decoder", storage);
    linear(&t->projection, WIDTH, TARGETS, tensor(TARGETS, WIDTH, "%s/projection/weight", "decoder", 0),
           tensor(1, TARGETS, "%s/projection/bias", "decoder", 0), storage);
    t->storage = storage;
}

static void translator_free(translator *t)
{
    for (int i = 0; i < 2 * LAYERS; i++) {
        block *b = i < LAYERS ? &t->encoder.blocks[i] : &t->decoder.blocks[i - LAYERS];
        attn_mha_free(&b->self), attn_mha_free(&b->cross), attn_linear_free(&b->up), attn_linear_free(&b->down);
    }
    attn_linear_free(&t->projection);
}

/* x [rows][WIDTH] += the output of a layer for its norm: a residual connection */
static void add(float *x, const float *y, int rows)
{
    for (int i = 0; i < rows * WIDTH; i++) x[i] += y[i];
}

static void feed_forward(const block *b, float *x, int rows, const attn_exec *exec)
{
    float *y = guard_floats((size_t)rows * WIDTH), *wide = guard_floats((size_t)rows * FF);
    model_norm(y, x, rows, WIDTH, b->ff_norm.gamma, b->ff_norm.beta);
    CHECK(attn_linear_run(&b->up, wide, y, rows, 0, exec) == ATTN_OK);
    for (int i = 0; i < rows * FF; i++) wide[i] = wide[i] > 0 ? wide[i] : 0.0f;
    CHECK(attn_linear_run(&b->down, y, wide, rows, 0, exec) == ATTN_OK);
    add(x, y, rows);
    guard_free(y), guard_free(wide);
}

/* x [WIDTH]: a letter's vector at a position */
static void embed(float *x, const side *s, int letter, int position)
{
    for (int i = 0; i < WIDTH; i++) {
        const double angle = (position + 1) * exp(-(i % 16) * log(10000.0) / 15);
        x[i] = (float)(s->words[letter * WIDTH + i] * sqrt(WIDTH) + (i < 16 ? sin(angle) : cos(angle)));
    }
}

/* memory [batch][n][WIDTH] of letters [batch][n]; letters after the lengths are padding */
static void encode(const translator *t, const way *w, float *memory, const int *ids, int batch, int n,
                   const int *lengths)
{
    const int rows = batch * n;
    float *x = guard_floats((size_t)rows * WIDTH), *y = guard_floats((size_t)rows * WIDTH);
    float *z = guard_floats((size_t)rows * WIDTH);
    attn_mha_opts o = way_opts(w);
    o.attn.k_lengths = o.attn.q_lengths = lengths;
    for (int r = 0; r < rows; r++) embed(x + r * WIDTH, &t->encoder, ids[r], r % n);
    for (int i = 0; i < LAYERS; i++) {
        const block *b = &t->encoder.blocks[i];
        model_norm(y, x, rows, WIDTH, b->self_norm.gamma, b->self_norm.beta);
        CHECK(attn_mha_self(&b->self, z, y, batch, n, &o) == ATTN_OK);
        add(x, z, rows);
        feed_forward(b, x, rows, w->exec);
    }
    model_norm(memory, x, rows, WIDTH, t->encoder.last.gamma, t->encoder.last.beta);
    guard_free(x), guard_free(y), guard_free(z);
}

/* The keys of a decoder. With caches (self != NULL) they hold the keys of the past and of the source. */
typedef struct context {
    attn_kv *self, *cross;                /* [LAYERS] or NULL */
    const float *memory;                  /* [sources][n][WIDTH] without caches */
    int n;
    const int *lengths;                   /* [batch] letters of the source that an entry attends to; NULL with caches */
    const int *map;                       /* [batch] the source that an entry attends to; NULL: source b */
    int sources;
} context;

static void caches_init(const translator *t, context *c, int entries, int n_sources, const float *memory, int n,
                        const int *lengths, const way *w)
{
    attn_mha_opts o = way_opts(w);
    attn_kv_args a;
    memset(c, 0, sizeof *c);
    memset(&a, 0, sizeof a);
    a.kv_heads = HEADS, a.head_dim = HEAD, a.k_storage = a.v_storage = t->storage;
    c->self = (attn_kv *)calloc(LAYERS, sizeof *c->self);
    c->cross = (attn_kv *)calloc(LAYERS, sizeof *c->cross);
    if (!c->self || !c->cross) abort();
    for (int i = 0; i < LAYERS; i++) {
        a.batch = entries, a.capacity = MOST + 4;
        CHECK(attn_kv_init(&c->self[i], &a) == ATTN_OK);
        a.batch = n_sources, a.capacity = n;
        CHECK(attn_kv_init(&c->cross[i], &a) == ATTN_OK);
        CHECK(attn_mha_cross_fill(&t->decoder.blocks[i].cross, &c->cross[i], memory, n_sources, n, lengths, &o) ==
              ATTN_OK);
    }
    c->sources = n_sources;
}

static void caches_free(context *c)
{
    for (int i = 0; i < LAYERS; i++) attn_kv_free(&c->self[i]), attn_kv_free(&c->cross[i]);
    free(c->self), free(c->cross);
}

/* logits [batch][n][TARGETS] of letters [batch][n]; counts [batch] or NULL: rows after them are unused */
static void decode(const translator *t, const way *w, float *logits, const int *ids, int batch, int n,
                   const int *counts, context *c)
{
    const int rows = batch * n;
    float *x = guard_floats((size_t)rows * WIDTH), *y = guard_floats((size_t)rows * WIDTH);
    float *z = guard_floats((size_t)rows * WIDTH);
    attn_mha_opts self = way_opts(w), cross = way_opts(w);
    self.attn.q_lengths = cross.attn.q_lengths = counts;
    cross.attn.k_map = c->map;
    if (!c->self) {
        self.attn.causal = ATTN_CAUSAL_TOP_LEFT;
        self.attn.k_lengths = counts, cross.attn.k_lengths = c->lengths, cross.attn.k_batch = c->sources;
    }
    for (int r = 0; r < rows; r++) {
        embed(x + r * WIDTH, &t->decoder, ids[r], r % n + (c->self ? c->self[0].lengths[r / n] : 0));
    }
    for (int i = 0; i < LAYERS; i++) {
        const block *b = &t->decoder.blocks[i];
        model_norm(y, x, rows, WIDTH, b->self_norm.gamma, b->self_norm.beta);
        CHECK((c->self ? attn_mha_self_step(&b->self, z, y, batch, n, &c->self[i], &self)
                       : attn_mha_self(&b->self, z, y, batch, n, &self)) == ATTN_OK);
        add(x, z, rows);
        model_norm(y, x, rows, WIDTH, b->cross_norm.gamma, b->cross_norm.beta);
        CHECK((c->self ? attn_mha_cross_step(&b->cross, z, y, batch, n, &c->cross[i], &cross)
                       : attn_mha_cross(&b->cross, z, y, batch, n, c->memory, c->n, &cross)) == ATTN_OK);
        add(x, z, rows);
        feed_forward(b, x, rows, w->exec);
    }
    model_norm(y, x, rows, WIDTH, t->decoder.last.gamma, t->decoder.last.beta);
    CHECK(attn_linear_run(&t->projection, logits, y, rows, 0, w->exec) == ATTN_OK);
    guard_free(x), guard_free(y), guard_free(z);
}

/* ---- words ---------------------------------------------------------------------------------------------------- */

/* Converts UTF-8 text to numbers of letters; returns their number. */
static int spell(int *ids, const char *text, int which)
{
    int n = 0;
    while (*text) {
        int best = -1;
        for (int i = 3; i < (which ? TARGETS : SOURCES); i++) {
            const size_t length = strlen(letters[which][i]);
            if (length && strncmp(text, letters[which][i], length) == 0) best = i;
        }
        if (best < 0 || n == MOST) model_broken("transliteration", "has a vocabulary without these letters");
        ids[n++] = best;
        text += strlen(letters[which][best]);
    }
    return n;
}

/* The two words padded to one length, and the targets after <s>. */
static int words_ids[WORDS * LETTERS], words_lengths[WORDS];
static int given[WORDS * STEPS], given_lengths[WORDS];
static float reference[WORDS][STEPS * TARGETS], reference_memory[WORDS][LETTERS * WIDTH];
static const way plain;
static int prepared;

/* The reference: every word alone, all letters at once, with packed floats on the best backend. */
static void prepare(void)
{
    translator t;
    if (prepared++) return;
    read_model();
    for (int b = 0; b < WORDS; b++) {
        words_lengths[b] = spell(words_ids + b * LETTERS, sources[b], 0);
        given[b * STEPS] = START;
        given_lengths[b] = 1 + spell(given + b * STEPS + 1, targets[b], 1);
    }
    translator_init(&t, ATTN_F32);
    for (int b = 0; b < WORDS; b++) {
        context c;
        memset(&c, 0, sizeof c);
        encode(&t, &plain, reference_memory[b], words_ids + b * LETTERS, 1, words_lengths[b], NULL);
        c.memory = reference_memory[b], c.n = words_lengths[b];
        decode(&t, &plain, reference[b], given + b * STEPS, 1, given_lengths[b], NULL, &c);
        model_bits = hash_bits(model_bits, reference[b], (size_t)given_lengths[b] * TARGETS);
    }
    translator_free(&t);
}

static void same_as_reference(const float *logits, int b, int first, int n, const char *how)
{
    CHECKF(same_bits(logits, reference[b] + first * TARGETS, (size_t)n * TARGETS),
           "%s %s: steps %d to %d have other bits", sources[b], how, first, first + n - 1);
}

/* ---- published numbers ---------------------------------------------------------------------------------------- */
static double off_by(const translator *t, const way *w)
{
    double most = 0;
    for (int b = 0; b < WORDS; b++) {
        float memory[LETTERS * WIDTH], logits[STEPS * TARGETS];
        context c;
        memset(&c, 0, sizeof c);
        encode(t, w, memory, words_ids + b * LETTERS, 1, words_lengths[b], NULL);
        c.memory = memory, c.n = words_lengths[b];
        decode(t, w, logits, given + b * STEPS, 1, given_lengths[b], NULL, &c);
        for (int i = 0; i < given_lengths[b]; i++) {
            const int next = i + 1 < given_lengths[b] ? given[b * STEPS + i + 1] : END;
            const double error = fabs(model_log_p(logits + i * TARGETS, TARGETS, next) - published[b][i]);
            if (!(error <= most)) most = error;
        }
    }
    return most;
}

/* The translator in floats, on every backend. */
static void every_backend(void (*look)(const translator *t, const way *w))
{
    attn_backend list[8];
    translator t;
    prepare();
    translator_init(&t, ATTN_F32);
    const int n = test_all_backends(list, 8);
    for (int i = 0; i < n; i++) {
        const way w = { list[i], NULL };
        look(&t, &w);
    }
    translator_free(&t);
}

static void published_probabilities(const translator *t, const way *w)
{
    const double most = off_by(t, w);
    CHECKF(most <= TOLERANCE, "%s: off by %.2g", attn_backend_name(w->backend), most);
    printf("     %s: log-probabilities of %d letters off by %.1g at most\n", attn_backend_name(w->backend),
           given_lengths[0] + given_lengths[1], most);
}

static void log_probabilities(void) { every_backend(published_probabilities); }

/* ---- searching ------------------------------------------------------------------------------------------------ */
typedef struct beam { int ids[MOST + 1], n; double sum; } beam;

/* Finds the best two continuations of a word's beams; the letter may be END. */
static int best_of(const beam *beams, int n, const float *logits, beam *found, int most)
{
    int n_found = 0;
    for (int i = 0; i < n; i++) {
        for (int letter = 1; letter < TARGETS; letter++) {
            beam next = beams[i];
            if (letter == START) continue;
            next.sum += model_log_p(logits + i * TARGETS, TARGETS, letter);
            next.ids[next.n++] = letter | i << 16;                /* the upper bits have the parent */
            int at = n_found < most ? n_found++ : most;
            while (at > 0 && next.sum > found[at - 1].sum) {
                if (at < most) found[at] = found[at - 1];
                at--;
            }
            if (at < most) found[at] = next;
        }
    }
    return n_found;
}

/* One word during the search. */
typedef struct search {
    beam live[2], finished;               /* finished.n 0: none yet; else the best by log p a letter */
    int forced[MOST], n_forced, done;     /* the prefix */
} search;

/* Adds one letter to a word's beams; sets last [width] and parents [width], which are numbers of beams. */
static void advance(search *s, int width, int n, const float *logits, int *last, int *parents)
{
    beam found[4];
    int n_live = 0;
    for (int i = 0; i < width; i++) parents[i] = i;
    if (s->done) return;
    if (n < s->n_forced) {                                        /* all beams begin alike */
        for (int i = 0; i < width; i++) s->live[i].ids[s->live[i].n++] = last[i] = s->forced[n];
        return;
    }
    const int n_found = best_of(s->live, n == s->n_forced ? 1 : width, logits, found, 2 * width);
    for (int i = 0; i < n_found && n_live < width; i++) {
        beam *f = &found[i];
        const int letter = f->ids[f->n - 1] & 0xFFFF, parent = f->ids[f->n - 1] >> 16;
        f->ids[f->n - 1] = letter;
        if (letter == END) {                                      /* but its parent may have other continuations */
            if (!s->finished.n || f->sum / f->n > s->finished.sum / s->finished.n) s->finished = *f;
            s->done |= i == 0;
        } else {
            parents[n_live] = parent, last[n_live] = letter;
            s->live[n_live++] = *f;
        }
    }
}

static void write_word(char *text, size_t size, const beam *b)
{
    size_t used = 0;
    for (int i = 0; i + 1 < b->n && used + 8 < size; i++) {
        const char *letter = letters[1][b->ids[i]];
        memcpy(text + used, letter, strlen(letter));
        used += strlen(letter);
    }
    text[used] = 0;
}

/* Translates `batch` words together, `width` beams each (1: greedy), through caches: text[b] is the result. prefix[b]:
   its given beginning, "" for none. */
static void translate(const translator *t, const way *w, int batch, int first, int width, const char *const *prefix,
                      char text[WORDS][64])
{
    float memory[WORDS * LETTERS * WIDTH], logits[WORDS * 2 * TARGETS];
    int map[WORDS * 2], last[WORDS * 2], parents[WORDS * 2];
    search searches[WORDS];
    context c;
    const int n = batch == 1 ? words_lengths[first] : LETTERS;
    encode(t, w, memory, words_ids + first * LETTERS, batch, n, words_lengths + first);
    caches_init(t, &c, batch * width, batch, memory, n, words_lengths + first, w);
    c.map = map;
    memset(searches, 0, sizeof searches);
    for (int b = 0; b < batch; b++) searches[b].n_forced = spell(searches[b].forced, prefix[b], 1);
    for (int e = 0; e < batch * width; e++) map[e] = e / width, last[e] = START;
    for (int step = 0, left = batch; step < MOST && left > 0; step++) {
        decode(t, w, logits, last, batch * width, 1, NULL, &c);
        left = 0;
        for (int b = 0; b < batch; b++) {
            const int e = b * width;
            advance(&searches[b], width, step, logits + e * TARGETS, last + e, parents + e);
            for (int i = 0; i < width; i++) parents[e + i] += e;
            left += !searches[b].done;
        }
        for (int i = 0; i < LAYERS; i++) CHECK(attn_kv_reorder(&c.self[i], parents) == ATTN_OK);
    }
    for (int b = 0; b < batch; b++) write_word(text[b], sizeof text[b], &searches[b].finished);
    caches_free(&c);
}

/* Greedy and with two beams, alone and as a padded batch of two, with and without a prefix. */
static void outputs(const translator *t, const way *w)
{
    static const char *const nothing[WORDS] = { "", "" }, *const ats[WORDS] = { "ats", "" };
    char text[WORDS][64];
    for (int width = 1; width <= 2; width++) {
        translate(t, w, WORDS, 0, width, nothing, text);
        for (int b = 0; b < WORDS; b++) CHECKF(!strcmp(text[b], targets[b]), "%d beams give %s", width, text[b]);
        translate(t, w, WORDS, 0, width, ats, text);
        CHECKF(!strcmp(text[0], "atsumon"), "%d beams that begin with ats give %s", width, text[0]);
        CHECKF(!strcmp(text[1], targets[1]), "%d beams beside a prefix give %s", width, text[1]);
        for (int b = 0; b < WORDS; b++) {
            translate(t, w, 1, b, width, nothing, text);
            CHECKF(!strcmp(text[0], targets[b]), "%d beams give %s alone", width, text[0]);
        }
        translate(t, w, 1, 0, width, ats, text);
        CHECKF(!strcmp(text[0], "atsumon"), "%d beams that begin with ats give %s alone", width, text[0]);
    }
}

static void searches(void) { every_backend(outputs); }

static void half_storage(void)
{
    static const struct { attn_storage storage; const char *name; double bound; } kinds[] = {
        { ATTN_F16, "half", 0.001 }, { ATTN_BF16, "bfloat16", 0.008 }      /* three times the observed error */
    };
    prepare();
    for (int i = 0; i < 2; i++) {
        translator t;
        translator_init(&t, kinds[i].storage);
        const double most = off_by(&t, &plain);
        printf("     %s: log-probabilities off by %.1g at most\n", kinds[i].name, most);
        CHECKF(most < kinds[i].bound, "%s: log-probabilities off by %.2g", kinds[i].name, most);
        outputs(&t, &plain);
        translator_free(&t);
    }
}

/* ---- one answer ----------------------------------------------------------------------------------------------- */

/* The padded batch: encoder, decoder all at once, and in steps of these lengths through caches. */
static void batch_of_two(const translator *t, const way *w, const char *how)
{
    static const int cuts[][4] = { { 8 }, { 1, 1, 1, 5 }, { 3, 4, 1 }, { 7, 1 } };
    float memory[WORDS * LETTERS * WIDTH], logits[WORDS * STEPS * TARGETS];
    context c;
    memset(&c, 0, sizeof c);
    encode(t, w, memory, words_ids, WORDS, LETTERS, words_lengths);
    for (int b = 0; b < WORDS; b++) {
        CHECKF(same_bits(memory + b * LETTERS * WIDTH, reference_memory[b], (size_t)words_lengths[b] * WIDTH),
               "%s: the encoder of %s", how, sources[b]);
    }
    c.memory = memory, c.n = LETTERS, c.lengths = words_lengths;
    decode(t, w, logits, given, WORDS, STEPS, given_lengths, &c);
    for (int b = 0; b < WORDS; b++) same_as_reference(logits + b * STEPS * TARGETS, b, 0, given_lengths[b], how);

    for (size_t cut = 0; cut < sizeof cuts / sizeof cuts[0]; cut++) {
        caches_init(t, &c, WORDS, WORDS, memory, LETTERS, words_lengths, w);
        for (int at = 0, i = 0; at < STEPS; at += cuts[cut][i++]) {
            const int n = cuts[cut][i];
            int ids[WORDS * STEPS], counts[WORDS];
            for (int b = 0; b < WORDS; b++) {
                counts[b] = given_lengths[b] - at < n ? given_lengths[b] - at : n;
                for (int j = 0; j < n; j++) ids[b * n + j] = j < counts[b] ? given[b * STEPS + at + j] : BLANK;
            }
            decode(t, w, logits, ids, WORDS, n, counts, &c);
            for (int b = 0; b < WORDS; b++) same_as_reference(logits + b * n * TARGETS, b, at, counts[b], how);
        }
        caches_free(&c);
    }
}

static void alone_step_by_step(const translator *t, const way *w, const char *how)
{
    for (int b = 0; b < WORDS; b++) {
        float logits[TARGETS];
        context c;
        caches_init(t, &c, 1, 1, reference_memory[b], words_lengths[b], NULL, w);
        for (int i = 0; i < given_lengths[b]; i++) {
            decode(t, w, logits, given + b * STEPS + i, 1, 1, NULL, &c);
            same_as_reference(logits, b, i, 1, how);
        }
        caches_free(&c);
    }
}

static void one_answer(void)
{
    attn_backend list[8];
    translator t;
    prepare();
    const int n = way_backends(list);
    translator_init(&t, ATTN_F32);
    alone_step_by_step(&t, &plain, "in steps");
    batch_of_two(&t, &plain, "in a batch");
    for (int threads = 2; threads <= 5; threads += 3) {
        const attn_exec exec = test_exec(threads);
        const way w = { ATTN_AUTO, &exec };
        batch_of_two(&t, &w, "on threads");
    }
    for (int i = 0; i < n; i++) {
        const way w = { list[i], NULL };
        batch_of_two(&t, &w, attn_backend_name(list[i]));
        alone_step_by_step(&t, &w, attn_backend_name(list[i]));
    }
    translator_free(&t);
}

/* Four entries attend to two sources by a map, in another order than the sources; halfway through the entries are
   permuted. */
static void beams(void)
{
    static const int which[2][4] = { { 1, 0, 1, 0 }, { 0, 0, 1, 1 } }, swap[4] = { 1, 3, 0, 2 };
    float memory[WORDS * LETTERS * WIDTH], logits[4 * TARGETS];
    translator t;
    context c;
    prepare();
    translator_init(&t, ATTN_F32);
    encode(&t, &plain, memory, words_ids, WORDS, LETTERS, words_lengths);
    caches_init(&t, &c, 4, WORDS, memory, LETTERS, words_lengths, &plain);
    for (int i = 0; i < 7; i++) {
        const int *source = which[i >= 3];
        int ids[4];
        if (i == 3) for (int l = 0; l < LAYERS; l++) CHECK(attn_kv_reorder(&c.self[l], swap) == ATTN_OK);
        c.map = source;
        for (int e = 0; e < 4; e++) ids[e] = given[source[e] * STEPS + i];
        decode(&t, &plain, logits, ids, 4, 1, NULL, &c);
        for (int e = 0; e < 4; e++) same_as_reference(logits + e * TARGETS, source[e], i, 1, "as four beams");
    }
    caches_free(&c);
    translator_free(&t);
}

SUITE(transliteration) = {
    { "log_probabilities", log_probabilities, "layers that compute something else than the model's authors did" },
    { "searches", searches, "a beam, a prefix or a padded neighbour that changes a published output" },
    { "half_storage", half_storage, "weights and caches in 16 bits that lose a letter" },
    { "one_answer", one_answer, "a batch, a step, a cut, a thread or a backend that changes a bit of a real model" },
    { "beams", beams, "k_map and attn_kv_reorder that give a beam somebody else's source or past" },
    { 0 }
};
