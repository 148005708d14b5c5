/* 14_stories.c: a whole model of the Llama kind, trained and read from its file: how much code is left?

   Run:  cc -O2 -I. examples/14_stories.c && ./a.out

   It reads the checkpoints of karpathy/llama2.c (stories260K.bin, stories15M.bin; the legacy format, version 0), and a
   tokenizer in the same folder, tok512.bin or tokenizer.bin. Its text goes to stdout, its speed to stderr:

       cc -O2 -I. examples/14_stories.c -o stories && ./stories stories260K.bin
       cc -O2 -I. -DATTN_THREADS -pthread examples/14_stories.c -o stories && ./stories stories15M.bin -j 4 -16

   Where people go wrong: the rotation. Meta's weights, and so these, turn neighbours (2i, 2i + 1); those of Hugging
   Face were shuffled to turn halves (i, i + n/2). The wrong one gives fluent nonsense. And the prompt: it is not fed
   token by token, which reads all weights once a token, but in one call; the bits are the same.

   Further reading: Eldan and Li, TinyStories, arxiv.org/abs/2305.07759; Touvron and others, LLaMA,
   arxiv.org/abs/2302.13971.

   Output:
       usage: stories checkpoint.bin [options]
         -i text     the beginning of the story           -n 200    tokens, those of the beginning included
         -t 0        temperature; 0: the likeliest token  -p 0.9    of the likeliest ones that make up so much
         -s 1        seed of the chance                   -z file   tokenizer, else the one beside the checkpoint
         -16         weights and cache in half            -h        this list
         -j 1        threads (compile with -DATTN_THREADS -pthread)
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

enum { ROWS = 64, PIECE = 256, BEGIN = 1, END = 2 };             /* tokens at a time; bytes of a token at most */

/* ---- files: never trusted. Whatever is wrong with one ends in a sentence. ------------------------------------- */

typedef struct model {
    int dim, hidden, layers, heads, kv_heads, words, positions, head, kv_dim;
    const float *embedding, *norm, *q, *k, *v, *o, *ff_norm, *w1, *w2, *w3, *last_norm, *classifier;
} model;

typedef struct piece { const char *text; int length, id; float score; } piece;

typedef struct tokenizer { piece *by_id, *sorted; int words; } tokenizer;

/* The next n floats. That they are there has been checked: the sum of all of them is the length of the file. */
static const float *take(const float **at, unsigned long long n) { *at += n;  return *at - n; }

/* Makes *m of a checkpoint; its weights stay where they are. NULL, or what is wrong with it. */
static const char *model_parse(model *m, const unsigned char *bytes, size_t size)
{
    static const int most[7] = { 1 << 16, 1 << 17, 1 << 10, 1 << 10, 1 << 10, 1 << 20, 1 << 20 };
    static char why[160];
    const unsigned one = 1;
    unsigned char low;
    int h[7] = {0};
    memcpy(&low, &one, 1);
    if (low != 1) return "its numbers are little-endian, and this machine is not";
    if (size < sizeof h) return "it is shorter than a header";
    memcpy(h, bytes, sizeof h);
    if (h[0] == 0x616b3432) return "it is of a later version of the format; this reads version 0";
    const int own_classifier = h[5] < 0;                         /* else it shares the embedding's weights */
    if (own_classifier && h[5] >= -most[5]) h[5] = -h[5];
    for (int i = 0; i < 7; i++) if (h[i] < 1 || h[i] > most[i]) return "no checkpoint of llama2.c has such a header";
    if (h[5] <= END) return "it has too few tokens for a beginning and an end";
    memset(m, 0, sizeof *m);
    m->dim = h[0];  m->hidden = h[1];  m->layers = h[2];  m->heads = h[3];  m->kv_heads = h[4];  m->words = h[5];
    m->positions = h[6];
    if (m->dim % m->heads || m->heads % m->kv_heads) return "its heads do not divide its width";
    m->head = m->dim / m->heads;
    m->kv_dim = m->kv_heads * m->head;
    if (m->head % 2) return "it has heads of an odd size, which cannot be rotated";

    const unsigned long long dim = (unsigned)m->dim, layers = (unsigned)m->layers, words = (unsigned)m->words * dim;
    const unsigned long long square = layers * dim * dim, flat = layers * dim * (unsigned)m->kv_dim;
    const unsigned long long ff = layers * dim * (unsigned)m->hidden;
    const unsigned long long angles = (unsigned long long)m->positions * (unsigned)m->head;
    const unsigned long long all = words + 2 * layers * dim + 2 * square + 2 * flat + 3 * ff + dim + angles +
                                   (own_classifier ? words : 0);
    if (size != sizeof h + 4 * all) {
        snprintf(why, sizeof why, "it has %llu bytes, but with its header it should have %llu",
                 (unsigned long long)size, sizeof h + 4 * all);
        return why;
    }
    const float *at = (const float *)(const void *)(bytes + sizeof h);
    m->embedding = take(&at, words);
    m->norm = take(&at, layers * dim);
    m->q = take(&at, square);  m->k = take(&at, flat);  m->v = take(&at, flat);  m->o = take(&at, square);
    m->ff_norm = take(&at, layers * dim);
    m->w1 = take(&at, ff);  m->w2 = take(&at, ff);  m->w3 = take(&at, ff);
    m->last_norm = take(&at, dim);
    take(&at, angles);                                           /* attn_rope_table makes them, and more exactly */
    m->classifier = own_classifier ? take(&at, words) : m->embedding;
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    const piece *p = (const piece *)a, *r = (const piece *)b;
    const int c = memcmp(p->text, r->text, (size_t)(p->length < r->length ? p->length : r->length));
    return c ? c : p->length - r->length;
}

static void tokenizer_free(tokenizer *t) { free(t->by_id);  free(t->sorted); }

/* Its pieces of text stay where they are. */
static const char *tokenizer_parse(tokenizer *t, int words, const unsigned char *bytes, size_t size)
{
    memset(t, 0, sizeof *t);
    if (size < 4 || (size - 4) / 8 < (size_t)words) return "it has fewer tokens than the model";
    t->by_id = (piece *)calloc((size_t)words, sizeof *t->by_id);
    t->sorted = (piece *)calloc((size_t)words, sizeof *t->sorted);
    if (!t->by_id || !t->sorted) return "there is no memory for it";
    t->words = words;
    bytes += 4;  size -= 4;                                      /* the length of the longest token */
    for (int i = 0; i < words; i++) {
        piece *p = &t->by_id[i];
        if (size < 8) return "it has fewer tokens than the model";
        memcpy(&p->score, bytes, 4);
        memcpy(&p->length, bytes + 4, 4);
        bytes += 8;  size -= 8;
        if (p->length < 0 || p->length > PIECE || (size_t)p->length > size) return "a token has an impossible length";
        p->text = (const char *)bytes;
        p->id = i;
        bytes += p->length;  size -= (size_t)p->length;
    }
    if (size) return "it has more tokens than the model: is it another model's?";
    memcpy(t->sorted, t->by_id, (size_t)words * sizeof *t->sorted);
    qsort(t->sorted, (size_t)words, sizeof *t->sorted, by_text);
    return NULL;
}

/* ---- tokens --------------------------------------------------------------------------------------------------- */

static int find(const tokenizer *t, const char *text, int length)
{
    const piece key = { text, length, 0, 0 };
    const piece *p = (const piece *)bsearch(&key, t->sorted, (size_t)t->words, sizeof key, by_text);
    return p ? p->id : -1;
}

/* Two neighbours as one token, or -1. */
static int joined(const tokenizer *t, int a, int b)
{
    char both[2 * PIECE];
    const piece *p = &t->by_id[a], *r = &t->by_id[b];
    memcpy(both, p->text, (size_t)p->length);
    memcpy(both + p->length, r->text, (size_t)r->length);
    return find(t, both, p->length + r->length);
}

/* Text as tokens: letters, or bytes where there is no such letter; then the best pair is joined, again and again.
   ids has room for 2 more than text has bytes. Returns how many. */
static int encode(const tokenizer *t, const char *text, int *ids)
{
    int n = 0;
    ids[n++] = BEGIN;
    if (*text && find(t, " ", 1) >= 0) ids[n++] = find(t, " ", 1);
    for (int length; *text; text += length) {
        for (length = 1; ((unsigned char)text[length] & 0xC0) == 0x80 && length < 4; length++) { }
        const int letter = find(t, text, length);
        for (int i = 0; letter < 0 && i < length; i++) {
            const int byte = (unsigned char)text[i] + 3;         /* tokens 3 to 258 are the bytes */
            ids[n++] = byte < t->words ? byte : 0;
        }
        if (letter >= 0) ids[n++] = letter;
    }
    for (;;) {
        int at = -1, token = -1;
        for (int i = 1; i + 1 < n; i++) {
            const int both = joined(t, ids[i], ids[i + 1]);
            if (both >= 0 && (at < 0 || t->by_id[both].score > t->by_id[token].score)) { at = i;  token = both; }
        }
        if (at < 0) return n;
        ids[at] = token;
        n--;
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 1) * sizeof *ids);
    }
}

/* A token as text. A tokenizer may come from anybody: nothing that a terminal would obey is printed. */
static void print_token(const tokenizer *t, int token, int first)
{
    const char *s = t->by_id[token].text;
    int n = t->by_id[token].length;
    char copy[7] = "", byte;
    unsigned value;
    if (n == 6) memcpy(copy, s, 6);
    if (sscanf(copy, "<0x%2X>", &value) == 1) { byte = (char)value;  s = &byte;  n = 1; }       /* <0x0A> */
    for (int i = first && n > 0 && s[0] == ' '; i < n; i++) {
        if ((unsigned char)s[i] >= ' ' || s[i] == '\n' || s[i] == '\t') putchar(s[i]);
    }
    fflush(stdout);
}

/* ---- the model ------------------------------------------------------------------------------------------------ */

typedef struct teller {
    model m;
    attn_mha *attention;                                         /* [layers], as all of these */
    attn_linear *gate, *up, *down, classifier;
    attn_kv *cache;
    attn_mha_opts options;                                       /* work memory and threads, the same for all layers */
    float *rope, *x, *y, *z, *a, *b, *logits;
} teller;

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

static void refuse(const char *name, const char *why) { fprintf(stderr, "stories: %s: %s\n", name, why);  exit(1); }

static void *room(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) refuse("this model", "there is not enough memory");
    return p;
}

static void linear(attn_linear *l, int n_in, int n_out, const float *w, attn_storage storage)
{
    attn_linear_args a = {0};
    a.n_in = n_in;  a.n_out = n_out;  a.w = w;  a.storage = storage;
    ok(attn_linear_init(l, &a));
}

static void teller_init(teller *t, int steps, attn_storage storage, const attn_exec *exec)
{
    const model *m = &t->m;
    const size_t dim = (size_t)m->dim, layers = (size_t)m->layers, square = dim * dim, ff = dim * (size_t)m->hidden;
    t->attention = (attn_mha *)room(layers, sizeof *t->attention);
    t->gate = (attn_linear *)room(3 * layers, sizeof *t->gate);
    t->up = t->gate + layers;  t->down = t->up + layers;
    t->cache = (attn_kv *)room(layers, sizeof *t->cache);
    t->rope = (float *)room((size_t)steps * (size_t)m->head, sizeof(float));
    t->x = (float *)room(3 * ROWS * dim, sizeof(float));
    t->y = t->x + ROWS * dim;  t->z = t->y + ROWS * dim;
    t->a = (float *)room(2 * ROWS * (size_t)m->hidden, sizeof(float));
    t->b = t->a + ROWS * (size_t)m->hidden;
    t->logits = (float *)room((size_t)m->words, sizeof(float));
    ok(attn_rope_table(t->rope, steps, m->head, NULL, 10000));

    attn_kv_args keys = {0};
    keys.batch = 1;  keys.kv_heads = m->kv_heads;  keys.head_dim = m->head;  keys.capacity = steps;
    keys.k_storage = keys.v_storage = storage;
    attn_mha_args a = {0};
    a.d_model = m->dim;  a.heads = m->heads;  a.kv_heads = m->kv_heads;  a.storage = storage;
    a.rope_table = t->rope;  a.rope_positions = steps;  a.rope_interleaved = 1;
    for (size_t l = 0; l < layers; l++) {
        a.w_q = m->q + l * square;                  a.w_o = m->o + l * square;
        a.w_k = m->k + l * dim * (size_t)m->kv_dim;  a.w_v = m->v + l * dim * (size_t)m->kv_dim;
        ok(attn_mha_init(&t->attention[l], &a));
        linear(&t->gate[l], m->dim, m->hidden, m->w1 + l * ff, storage);
        linear(&t->up[l], m->dim, m->hidden, m->w3 + l * ff, storage);
        linear(&t->down[l], m->hidden, m->dim, m->w2 + l * ff, storage);
        ok(attn_kv_init(&t->cache[l], &keys));
    }
    linear(&t->classifier, m->dim, m->words, m->classifier, storage);

    attn_args *o = &t->options.attn;                             /* no call allocates: one work area for all of them */
    o->exec = exec;
    o->work_size = attn_mha_workspace(&t->attention[0], ATTN_MHA_SELF_STEP, 1, ROWS, steps, &t->options);
    o->work = room(o->work_size, 1);
}

static void teller_free(teller *t)
{
    for (int l = 0; l < t->m.layers; l++) {
        attn_mha_free(&t->attention[l]);
        attn_linear_free(&t->gate[l]);  attn_linear_free(&t->up[l]);  attn_linear_free(&t->down[l]);
        attn_kv_free(&t->cache[l]);
    }
    attn_linear_free(&t->classifier);
    free(t->attention);  free(t->gate);  free(t->cache);  free(t->rope);  free(t->x);  free(t->a);  free(t->logits);
    free(t->options.attn.work);
}

/* a * b + c. The product of two floats is exact in double: whether a compiler fuses the two makes no difference, so the
   story is the same one everywhere. Elsewhere in this file no product is added to anything. */
static float mul_add(float a, float b, float c) { return (float)((double)a * b + c); }

/* exp without -lm: 2^k * e^r with r in -0.35 .. 0.35. A NaN gives 0; a story of NaNs is noticed at its logits. */
static float exp_of(float x)
{
    if (!(x > -87)) return 0;
    if (x > 88) x = 88;
    const int k = (int)mul_add(x, 1.44269504f, x < 0 ? -0.5f : 0.5f);
    const float r = mul_add((float)k, 2.12194440e-4f, mul_add((float)k, -0.693359375f, x));      /* ln 2 in two parts */
    const unsigned bits = (unsigned)(k + 127) << 23;
    float e = 1 / 720.f, power;
    e = mul_add(r, e, 1 / 120.f);  e = mul_add(r, e, 1 / 24.f);  e = mul_add(r, e, 1 / 6.f);
    e = mul_add(r, e, 0.5f);  e = mul_add(r, e, 1);  e = mul_add(r, e, 1);
    memcpy(&power, &bits, sizeof power);
    return e * power;
}

static double root_of(double x)                                  /* Heron's method, from above */
{
    double y = x > 1 ? x : 1, last;
    do { last = y;  y = (last + x / last) / 2; } while (y < last);
    return last;
}

static void rms_norm(float *y, const float *x, const float *weight, int rows, int dim)
{
    for (int r = 0; r < rows; r++, x += dim, y += dim) {
        double sum = 0;
        for (int i = 0; i < dim; i++) sum += (double)(float)(x[i] * x[i]);
        const float factor = (float)(1 / root_of(sum / dim + 1e-5));
        for (int i = 0; i < dim; i++) y[i] = (float)(x[i] * factor) * weight[i];
    }
}

/* n tokens behind those that were: t->logits are those of the token after the last one. */
static void step(teller *t, const int *tokens, int n)
{
    const model *m = &t->m;
    const attn_exec *exec = t->options.attn.exec;
    const size_t dim = (size_t)m->dim;
    for (int i = 0; i < n; i++) memcpy(t->x + i * m->dim, m->embedding + (size_t)tokens[i] * dim, dim * sizeof(float));
    for (int l = 0; l < m->layers; l++) {
        rms_norm(t->y, t->x, m->norm + (size_t)l * dim, n, m->dim);
        ok(attn_mha_self_step(&t->attention[l], t->z, t->y, 1, n, &t->cache[l], &t->options));
        for (int i = 0; i < n * m->dim; i++) t->x[i] += t->z[i];
        rms_norm(t->y, t->x, m->ff_norm + (size_t)l * dim, n, m->dim);
        ok(attn_linear_run(&t->gate[l], t->a, t->y, n, exec));
        ok(attn_linear_run(&t->up[l], t->b, t->y, n, exec));
        for (int i = 0; i < n * m->hidden; i++)                  /* SwiGLU; casts: registers may be wider */
            t->a[i] *= (float)(t->b[i] / (float)(1 + exp_of(-t->a[i])));
        ok(attn_linear_run(&t->down[l], t->z, t->a, n, exec));
        for (int i = 0; i < n * m->dim; i++) t->x[i] += t->z[i];
    }
    rms_norm(t->y, t->x + (n - 1) * m->dim, m->last_norm, 1, m->dim);
    ok(attn_linear_run(&t->classifier, t->logits, t->y, 1, exec));
}

/* ---- which token is next -------------------------------------------------------------------------------------- */

typedef struct chance { double p; int id; } chance;

static int by_chance(const void *a, const void *b)
{
    const double p = ((const chance *)a)->p, r = ((const chance *)b)->p;
    return p < r ? 1 : p > r ? -1 : 0;
}

/* Greedy for a temperature of 0; else one of the likeliest tokens that together reach top_p. */
static int pick(const float *logits, int n, float temperature, double top_p, chance *list, unsigned long long *seed)
{
    int best = 0, kept = 0;
    double sum = 0, reached = 0;
    for (int i = 1; i < n; i++) if (logits[i] > logits[best]) best = i;
    if (!(temperature > 0)) return best;
    for (int i = 0; i < n; i++) {
        list[i].id = i;
        sum += list[i].p = (double)exp_of((float)(logits[i] - logits[best]) / temperature);
    }
    qsort(list, (size_t)n, sizeof *list, by_chance);
    while (kept < n && (kept == 0 || reached < top_p * sum)) reached += list[kept++].p;
    *seed ^= *seed >> 12;  *seed ^= *seed << 25;  *seed ^= *seed >> 27;
    const double wanted = (double)(*seed * 0x2545F4914F6CDD1Dull >> 40) / 16777216 * reached;
    sum = 0;
    for (int i = 0; i < kept; i++) if ((sum += list[i].p) > wanted) return list[i].id;
    return best;
}

/* ---- the program ---------------------------------------------------------------------------------------------- */

typedef struct file { unsigned char *bytes; size_t size; int mapped; } file;

/* Mapped where the system can, else read. */
static void file_open(file *f, const char *path)
{
    memset(f, 0, sizeof *f);
#if defined(__unix__) || defined(__APPLE__)
    struct stat s;
    const int d = open(path, O_RDONLY);
    if (d >= 0 && fstat(d, &s) == 0 && S_ISREG(s.st_mode) && s.st_size > 0) {
        void *p = mmap(NULL, f->size = (size_t)s.st_size, PROT_READ, MAP_PRIVATE, d, 0);
        if (p != MAP_FAILED) { f->bytes = (unsigned char *)p;  f->mapped = 1; }
    }
    if (d >= 0) close(d);
    if (f->mapped) return;
#endif
    FILE *in = fopen(path, "rb");
    if (!in) refuse(path, "it cannot be opened");
    const long end = fseek(in, 0, SEEK_END) == 0 ? ftell(in) : -1;
    if (end < 0 || fseek(in, 0, SEEK_SET)) refuse(path, "it is no file");
    f->size = (size_t)end;
    f->bytes = (unsigned char *)room(f->size, 1);
    if (fread(f->bytes, 1, f->size, in) != f->size) refuse(path, "it cannot be read");
    fclose(in);
}

/* The same of a large file of somebody's: a clone without Git LFS has three lines of text in its place. */
static void file_need(file *f, const char *path)
{
    static const char pointer[] = "version https://git-lfs";
    const size_t n = sizeof pointer - 1;
    file_open(f, path);
    if (f->size < n || memcmp(f->bytes, pointer, n)) return;
    refuse(path, "it is a pointer of Git LFS, not the file: git lfs pull");
}

static void file_close(file *f)
{
#if defined(__unix__) || defined(__APPLE__)
    if (f->mapped) { munmap(f->bytes, f->size);  return; }
#endif
    free(f->bytes);
}

static double seconds(void)
{
#ifdef TIME_UTC
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#else
    return (double)clock() / CLOCKS_PER_SEC;                     /* of all threads together */
#endif
}

typedef struct wish {
    const char *model, *tokenizer, *text;
    int steps, half, threads;
    float temperature;
    double top_p;
    unsigned long long seed;
    int help;
} wish;

/* A number, from least to most. Returns 0 when it is none. */
static int read_number(const char *value, double least, double most, double *to)
{
    char *end;
    *to = strtod(value, &end);
    return end != value && !*end && *to >= least && *to <= most;
}

static int read_whole(const char *value, int *to)
{
    double x = 0;
    if (!read_number(value, 1, 1 << 28, &x)) return 0;
    *to = (int)x;
    return (double)*to == x;
}

static int wish_parse(wish *w, int argc, char **argv)
{
    double x = 0;
    char *end;
    for (int i = 1, fine = 1; i < argc; i++) {
        const char *value = argv[i + 1];                         /* NULL behind the last one */
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) return w->help = 1;
        if (argv[i][0] != '-') { if (w->model) return 0;  w->model = argv[i];  continue; }
        if (!strcmp(argv[i], "-16")) { w->half = 1;  continue; }
        if (!value || strlen(argv[i]) != 2) return 0;
        switch (argv[i++][1]) {
        case 'i': w->text = value; break;
        case 'z': w->tokenizer = value; break;
        case 'n': fine = read_whole(value, &w->steps); break;
        case 't': fine = read_number(value, 0, 100, &x);  w->temperature = (float)x; break;
        case 'p': fine = read_number(value, 0, 1, &w->top_p); break;
        case 's': w->seed = strtoull(value, &end, 10);  fine = !*end; break;
        case 'j': fine = read_whole(value, &w->threads); break;
        default: return 0;
        }
        if (!fine) return 0;
    }
    return w->model && w->seed > 0;
}

static void tell(teller *t, const tokenizer *words, const wish *w, int *tokens, int n)
{
    chance *list = (chance *)room((size_t)t->m.words, sizeof *list);
    unsigned long long seed = w->seed;
    const double begin = seconds();
    int done = 0;
    for (int i = 1; i < n; i++) print_token(words, tokens[i], i == 1);
    while (n <= w->steps) {
        for (int rows; done < n; done += rows) {                 /* the whole prompt first, then token by token */
            rows = n - done < ROWS ? n - done : ROWS;
            step(t, tokens + done, rows);
        }
        for (int i = 0; i < t->m.words; i++) {
            if (t->logits[i] - t->logits[i] != 0) refuse(w->model, "its weights lead to infinities");
        }
        tokens[n] = pick(t->logits, t->m.words, w->temperature, w->top_p, list, &seed);
        if (tokens[n] == BEGIN || tokens[n] == END) break;
        print_token(words, tokens[n], n == 1);
        n++;
    }
    puts("");
    if (fflush(stdout)) refuse("standard output", "it cannot be written");   /* or its end would come after the speed */
    fprintf(stderr, "%d tokens, %.0f a second\n", done, done / (seconds() - begin + 1e-9));
    free(list);
}

int main(int argc, char **argv)
{
    static const char usage[] =
        "usage: stories checkpoint.bin [options]\n"
        "  -i text     the beginning of the story           -n 200    tokens, those of the beginning included\n"
        "  -t 0        temperature; 0: the likeliest token  -p 0.9    of the likeliest ones that make up so much\n"
        "  -s 1        seed of the chance                   -z file   tokenizer, else the one beside the checkpoint\n"
        "  -16         weights and cache in half            -h        this list\n"
        "  -j 1        threads (compile with -DATTN_THREADS -pthread)\n";
    wish w = { NULL, NULL, "", 200, 0, 1, 0, 0.9, 1, 0 };
    const attn_exec *exec = NULL;
    teller t = {0};
    tokenizer words;
    file weights, pieces;
    char beside[1024];
    if (argc < 2) return fputs(usage, stdout) < 0;
    if (!wish_parse(&w, argc, argv)) return fputs(usage, stderr), 2;
    if (w.help) return fputs(usage, stdout) < 0;

    file_need(&weights, w.model);
    const char *why = model_parse(&t.m, weights.bytes, weights.size);
    if (why) refuse(w.model, why);
    if (!w.tokenizer) {                                          /* beside it: tok512.bin for 512 tokens, or */
        const char *slash = strrchr(w.model, '/');
        const int folder = slash ? (int)(slash - w.model) + 1 : 0;
        snprintf(beside, sizeof beside, "%.*stok%d.bin", folder, w.model, t.m.words);
        FILE *there = fopen(beside, "rb");
        if (there) fclose(there);
        else snprintf(beside, sizeof beside, "%.*stokenizer.bin", folder, w.model);
        w.tokenizer = beside;
    }
    file_need(&pieces, w.tokenizer);
    why = tokenizer_parse(&words, t.m.words, pieces.bytes, pieces.size);
    if (why) refuse(w.tokenizer, why);

    if (w.steps > t.m.positions) w.steps = t.m.positions;
    int *tokens = (int *)room(strlen(w.text) + (size_t)w.steps + 3, sizeof *tokens);
    const int n = encode(&words, w.text, tokens);
    if (n > w.steps) refuse("-i", "the beginning is longer than the story: -n, or the positions of the model");
#ifdef ATTN_THREADS
    attn_pool *pool = attn_pool_create(w.threads);
    if (!pool) refuse("-j", "the system does not give so many threads");
    const attn_exec threads = attn_pool_exec(pool);
    exec = &threads;
#else
    if (w.threads > 1) refuse("-j", "this was compiled without -DATTN_THREADS -pthread");
#endif
    teller_init(&t, w.steps, w.half ? ATTN_F16 : ATTN_F32, exec);
    tell(&t, &words, &w, tokens, n);
    teller_free(&t);
#ifdef ATTN_THREADS
    attn_pool_destroy(pool);
#endif
    free(tokens);
    tokenizer_free(&words);
    file_close(&pieces);
    file_close(&weights);
    return 0;
}
