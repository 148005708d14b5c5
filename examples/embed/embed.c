/* embed.c: search by meaning: what does a published sentence-embedding model need in addition to attn.h?

   Build:  cc -O2 -I. examples/embed/embed.c -o embed
           cc -O2 -I. -DATTN_THREADS -pthread examples/embed/embed.c -o embed          for -j 2 and more
   Run:    ./embed folder lines.txt -q "how do I get back into my account?"

   The folder holds the files of a BERT-type encoder as Hugging Face publishes them: model.safetensors and vocab.txt;
   config.json, tokenizer_config.json, sentence_bert_config.json and 1_Pooling/config.json are read if they exist.
   all-MiniLM-L6-v2, bge-small-en-v1.5, gte-small, e5-small-v2 and their larger versions run without conversion: see
   README.md.

   Where people go wrong: padding. A short sentence in a batch must have the same vector as alone, so padding is
   hidden from attention (k_lengths), and left out of the mean. And pooling: some models use the mean, some the first
   token, some a prefix of the text ("query: "); the wrong choice gives vectors that look equally plausible.
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "wordpiece.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#elif defined(_WIN32)
#include <io.h>
#define isatty _isatty
#else
#define isatty(stream) 0
#endif

enum { BLOCK = 192 };                                            /* rows at a time */

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

static void refuse(const char *name, const char *why) { fprintf(stderr, "embed: %s: %s\n", name, why);  exit(1); }

static void *room(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) refuse("this model", "there is not enough memory");
    return p;
}

/* ---- files: untrusted. Errors are reported in a sentence. ------------------------------------- */

typedef struct file { unsigned char *bytes; size_t size; int mapped; } file;

/* Maps the file if the system can, otherwise reads it. Returns 0 if there is no such file. */
static int file_open(file *f, const char *path)
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
    if (f->mapped) return 1;
#endif
    FILE *in = fopen(path, "rb");
    if (!in) return 0;
    for (size_t got = 1, space = 0; got; f->size += got) {       /* a pipe has no length */
        if (f->size == space) {
            f->bytes = (unsigned char *)realloc(f->bytes, space = space ? 2 * space : 65536);
            if (!f->bytes) refuse(path, "there is not enough memory");
        }
        got = fread(f->bytes + f->size, 1, space - f->size, in);
    }
    if (ferror(in)) refuse(path, "it cannot be read");
    fclose(in);
    return 1;
}

static void file_close(file *f)
{
#if defined(__unix__) || defined(__APPLE__)
    if (f->mapped) { munmap(f->bytes, f->size);  return; }
#endif
    free(f->bytes);
}

/* A file of the folder. Common replacements are recognised: without Git LFS, a clone has three lines of text for every
   large file. Returns 0 if the file does not exist. */
static int folder_open(file *f, const char *path)
{
    static const struct { const char *begins, *why; } instead[] = {
        { "version https://git-lfs", "it is a pointer of Git LFS, not the file: git lfs pull" },
        { "<!DOC", "it is a web page, not the file" }, { "<!doc", "it is a web page, not the file" },
        { "<html", "it is a web page, not the file" }
    };
    if (!file_open(f, path)) return 0;
    if (!f->size) refuse(path, "it is empty, as a download is that was cut at once");
    for (size_t i = 0; i < sizeof instead / sizeof *instead; i++) {
        const size_t n = strlen(instead[i].begins);
        if (f->size >= n && !memcmp(f->bytes, instead[i].begins, n)) refuse(path, instead[i].why);
    }
    return 1;
}

/* ---- the model: its shapes are those of its tensors ----------------------------------------------------------- */

typedef struct norm { float *weight, *bias; } norm;

typedef struct layer { attn_mha attention; attn_linear up, down; norm attended, out; } layer;

typedef struct model {
    tensors file;
    const char *prefix;                                          /* of all names: "bert." or "" */
    const tensor *words;
    int width, hidden, heads, layers, positions;
    float eps;
    attn_storage storage;                                        /* of the packed weights */
    layer *layer;
    norm first;
    float *place;                                                /* [positions][width], token type 0 added */
    float *x, *y, *h;                                            /* [rows][width] twice, [BLOCK][hidden] */
    int *lengths, *begins;                                       /* of the lines of a batch */
    attn_mha_opts options;
} model;

/* Returns the tensor of this name in a layer, or (-1) outside the layers; stores its whole name in full. Old
   checkpoints call the norms gamma and beta. */
static const tensor *find(const model *m, const char *name, int of_layer, char full[SHOWN])
{
    int n = snprintf(full, SHOWN, "%s", m->prefix);
    if (of_layer >= 0) n += snprintf(full + n, SHOWN - (size_t)n, "encoder.layer.%d.", of_layer);
    n += snprintf(full + n, SHOWN - (size_t)n, "%s", name);
    const tensor *t = tensors_find(&m->file, full);
    if (t) return t;
    char old[SHOWN];
    snprintf(old, sizeof old, "%s", full);
    if (n > 16 && !strcmp(old + n - 16, "LayerNorm.weight")) memcpy(old + n - 6, "gamma", 6);
    else if (n > 14 && !strcmp(old + n - 14, "LayerNorm.bias")) memcpy(old + n - 4, "beta", 5);
    return tensors_find(&m->file, old);
}

/* Returns 1 if a number is NaN or infinite. */
static int not_finite(const tensors *from, const tensor *t, size_t all)
{
    float some[512];
    unsigned bits, worst = 0;
    for (size_t i = 0, now; i < all && worst < 0x7F800000; i += now) {
        now = all - i < 512 ? all - i : 512;
        tensor_floats(from, t, i, now, some);
        for (size_t k = 0; k < now; k++) {
            memcpy(&bits, &some[k], sizeof bits);
            bits &= 0x7F800000;
            worst = bits > worst ? bits : worst;
        }
    }
    return worst == 0x7F800000;
}

/* Returns the tensor of this name and shape (columns 0: a vector; rows 0: any number) if all of its numbers are
   finite. Otherwise returns NULL and sets why. Returns NULL at once after an earlier error. */
static const tensor *need(model *m, const char *name, int of_layer, size_t rows, size_t columns)
{
    char full[SHOWN], what[120];
    if (m->file.why[0]) return NULL;
    const tensor *t = find(m, name, of_layer, full);
    const text shown = { full, strlen(full) };
    if (!t) return about(&m->file, shown, "is missing"), NULL;
    if (!t->usable) return about(&m->file, shown, "is neither of F32 nor F16 nor BF16"), NULL;
    const size_t want = columns ? columns : 1, all = t->shape[0] * t->shape[1];
    if ((rows && t->shape[0] != rows) || t->shape[1] != want || !all) {
        snprintf(what, sizeof what, "is %llu x %llu, where %llu x %llu was expected", (unsigned long long)t->shape[0],
                 (unsigned long long)t->shape[1], (unsigned long long)rows, (unsigned long long)want);
        return about(&m->file, shown, what), NULL;
    }
    if (not_finite(&m->file, t, all)) return about(&m->file, shown, "has NaN or infinity in it"), NULL;
    return t;
}

/* The same as floats, in separate memory or at `to`. */
static float *need_floats(model *m, const char *name, int of_layer, int rows, int columns, float *to)
{
    const tensor *t = need(m, name, of_layer, (size_t)rows, (size_t)columns);
    if (!t) return NULL;
    const size_t n = t->shape[0] * t->shape[1];
    if (!to) to = (float *)room(n, sizeof *to);
    tensor_floats(&m->file, t, 0, n, to);
    return to;
}

static norm need_norm(model *m, const char *weight, const char *bias, int of_layer)
{
    norm n;
    n.weight = need_floats(m, weight, of_layer, m->width, 0, NULL);
    n.bias = need_floats(m, bias, of_layer, m->width, 0, NULL);
    return n;
}

/* Sets sizes from the shapes. Returns NULL, or an error. */
static const char *model_parse(model *m, const unsigned char *bytes, size_t size)
{
    const unsigned one = 1;
    unsigned char low;
    memcpy(&low, &one, 1);
    memset(m, 0, sizeof *m);
    if (low != 1) return "its numbers are little-endian, and this machine is not";
    const char *why = tensors_parse(&m->file, bytes, size);
    if (why) return why;
    m->prefix = tensors_find(&m->file, "bert.embeddings.word_embeddings.weight") ? "bert." : "";
    m->eps = 1e-12f;
    char name[SHOWN];
    const tensor *t = need(m, "embeddings.LayerNorm.weight", -1, 0, 0);
    if (!t) return m->file.why;
    if (t->shape[0] > 1 << 14) return "it is wider than any encoder";
    m->width = (int)t->shape[0];
    m->words = need(m, "embeddings.word_embeddings.weight", -1, 0, t->shape[0]);
    t = need(m, "embeddings.position_embeddings.weight", -1, 0, t->shape[0]);
    if (t && t->shape[0] > 1 << 16) return "it has more positions than any encoder";
    if (t) m->positions = (int)t->shape[0];
    need(m, "embeddings.token_type_embeddings.weight", -1, 0, (size_t)m->width);
    t = need(m, "intermediate.dense.weight", 0, 0, (size_t)m->width);
    if (t && t->shape[0] > 1 << 17) return "it has a feed-forward wider than any encoder's";
    if (t) m->hidden = (int)t->shape[0];
    t = need(m, "attention.self.query.weight", 0, (size_t)m->width, (size_t)m->width);
    if (m->file.why[0]) return m->file.why;
    m->storage = t->storage;
    while (find(m, "attention.self.query.weight", m->layers, name)) m->layers++;
    return m->positions < 3 ? "it has too few positions" : NULL;
}

static void linear(attn_linear *l, int n_in, int n_out, const float *w, const float *b, attn_storage storage)
{
    attn_linear_args a;
    memset(&a, 0, sizeof a);
    a.n_in = n_in;  a.n_out = n_out;  a.w = w;  a.b = b;  a.storage = storage;
    ok(attn_linear_init(l, &a));
}

/* Packs a layer; room for its weights as floats is at `some`. */
static void layer_init(model *m, int l, float *some)
{
    static const char *const names[4][2] = {
        { "attention.self.query.weight", "attention.self.query.bias" },
        { "attention.self.key.weight", "attention.self.key.bias" },
        { "attention.self.value.weight", "attention.self.value.bias" },
        { "attention.output.dense.weight", "attention.output.dense.bias" }
    };
    layer *to = &m->layer[l];
    const float *w[4], *b[4];
    const int width = m->width, hidden = m->hidden;
    float *at = some;
    for (int i = 0; i < 4; i++) {
        w[i] = need_floats(m, names[i][0], l, width, width, at);
        at += (size_t)width * (size_t)width;
        b[i] = need_floats(m, names[i][1], l, width, 0, at);
        at += width;
    }
    attn_mha_args a;
    memset(&a, 0, sizeof a);
    a.d_model = width;  a.heads = m->heads;  a.storage = m->storage;
    a.w_q = w[0];  a.w_k = w[1];  a.w_v = w[2];  a.w_o = w[3];
    a.b_q = b[0];  a.b_k = b[1];  a.b_v = b[2];  a.b_o = b[3];
    if (!m->file.why[0]) ok(attn_mha_init(&to->attention, &a));
    at = some + (size_t)width * (size_t)hidden;
    w[0] = need_floats(m, "intermediate.dense.weight", l, hidden, width, some);
    b[0] = need_floats(m, "intermediate.dense.bias", l, hidden, 0, at);
    if (!m->file.why[0]) linear(&to->up, width, hidden, w[0], b[0], m->storage);
    w[0] = need_floats(m, "output.dense.weight", l, width, hidden, some);
    b[0] = need_floats(m, "output.dense.bias", l, width, 0, at);
    if (!m->file.why[0]) linear(&to->down, hidden, width, w[0], b[0], m->storage);
    to->attended = need_norm(m, "attention.output.LayerNorm.weight", "attention.output.LayerNorm.bias", l);
    to->out = need_norm(m, "output.LayerNorm.weight", "output.LayerNorm.bias", l);
}

/* After model_parse, and after heads and storage are set. Returns NULL, or the error in the weights. */
static const char *model_init(model *m)
{
    const size_t width = (size_t)m->width, most = width > (size_t)m->hidden ? width : (size_t)m->hidden;
    if (m->heads < 1 || m->width % m->heads) return "its heads do not divide its width: -H";
    m->layer = (layer *)room((size_t)m->layers, sizeof *m->layer);
    float *some = (float *)room(4 * (most + 1) * (width + 1), sizeof *some);
    for (int l = 0; l < m->layers && !m->file.why[0]; l++) layer_init(m, l, some);
    m->first = need_norm(m, "embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias", -1);
    m->place = need_floats(m, "embeddings.position_embeddings.weight", -1, m->positions, m->width, NULL);
    const tensor *type = need(m, "embeddings.token_type_embeddings.weight", -1, 0, width);
    if (type) tensor_floats(&m->file, type, 0, width, some);
    for (size_t i = 0; m->place && i < (size_t)m->positions * width; i++) m->place[i] += some[i % width];
    free(some);
    return m->file.why[0] ? m->file.why : NULL;
}

/* Room for batches with this many lines and rows (tokens, or padding). */
static void model_room(model *m, int lines, int longest, const attn_exec *exec)
{
    const size_t rows = (size_t)lines * (size_t)longest, width = (size_t)m->width;
    attn_args *o = &m->options.attn;
    m->x = (float *)room(2 * rows * width, sizeof *m->x);
    m->y = m->x + rows * width;
    m->h = (float *)room(BLOCK * (size_t)m->hidden, sizeof *m->h);
    m->lengths = (int *)room(2 * (size_t)lines + 1, sizeof *m->lengths);
    m->begins = m->lengths + lines;
    o->exec = exec;
    for (int ragged = 0; ragged < 2; ragged++) {
        o->q_cum = ragged ? m->begins : NULL;
        o->q_lengths = o->k_lengths = ragged ? NULL : m->lengths;
        const size_t size = attn_mha_workspace(&m->layer[0].attention, ATTN_MHA_SELF, lines, longest, 0, &m->options);
        if (size > o->work_size) o->work_size = size;
    }
    o->work = room(o->work_size, 1);
}

static void model_free(model *m)
{
    for (int l = 0; m->layer && l < m->layers; l++) {
        layer *a = &m->layer[l];
        attn_mha_free(&a->attention);
        attn_linear_free(&a->up);  attn_linear_free(&a->down);
        free(a->attended.weight);  free(a->attended.bias);  free(a->out.weight);  free(a->out.bias);
    }
    free(m->layer);  free(m->first.weight);  free(m->first.bias);  free(m->place);  free(m->x);  free(m->h);
    free(m->lengths);  free(m->options.attn.work);  free(m->file.list);
}

/* ---- norms ---------------------------------------------------------------------------------------------------- */

static double root_of(double x)                                  /* Heron's method, from above; no -lm */
{
    double y = x > 1 ? x : 1, last;
    do { last = y;  y = (last + x / last) / 2; } while (y < last);
    return last;
}

/* x [rows][width] = LayerNorm(x + y); y NULL: of x alone. */
static void normalize(const model *m, float *x, const float *y, int rows, const norm *by)
{
    attn_norm_args a = {0};
    const size_t n = (size_t)rows * (size_t)m->width;
    for (size_t i = 0; y && i < n; i++) x[i] += y[i];
    a.y = x;  a.x = x;  a.rows = rows;  a.n = m->width;  a.kind = ATTN_NORM_LAYER;
    a.weight = by->weight;  a.bias = by->bias;  a.eps = m->eps;  a.exec = m->options.attn.exec;
    ok(attn_norm(&a));
}

/* ---- sentences as vectors ------------------------------------------------------------------------------------- */

typedef struct line { text t; int *ids, n, number, blank, cut; float *vector, score; } line;

/* x [rows][width] through all layers. */
static void layers(model *m, int lines, int longest, int n)
{
    const attn_exec *exec = m->options.attn.exec;
    normalize(m, m->x, NULL, n, &m->first);
    for (const layer *l = m->layer; l < m->layer + m->layers; l++) {
        ok(attn_mha_self(&l->attention, m->y, m->x, lines, longest, &m->options));
        normalize(m, m->x, m->y, n, &l->attended);
        for (int at = 0, now; at < n; at += now) {               /* few enough rows at a time to stay in L2 */
            now = n - at < BLOCK ? n - at : BLOCK;
            float *x = m->x + (size_t)at * (size_t)m->width, *y = m->y + (size_t)at * (size_t)m->width;
            ok(attn_linear_run(&l->up, m->h, x, now, 0, exec));
            ok(attn_activate(m->h, m->h, NULL, (size_t)now * (size_t)m->hidden, ATTN_GELU, exec));
            ok(attn_linear_run(&l->down, y, m->h, now, 0, exec));
            normalize(m, x, y, now, &l->out);
        }
    }
}

/* Computes the vectors of a batch. padded: all lines are as long as the longest, and padding is hidden from attention.
   Otherwise the batch is ragged, and nothing is computed for padding. Same bits. */
static void encode(model *m, line *const *lines, int batch, int padded, int first_token)
{
    const size_t width = (size_t)m->width;
    int longest = 0, n = 0;
    attn_args *o = &m->options.attn;
    for (int b = 0; b < batch; b++) if (lines[b]->n > longest) longest = lines[b]->n;
    for (int b = 0; b < batch; b++) {
        m->lengths[b] = lines[b]->n;
        m->begins[b] = n;
        n += padded ? longest : lines[b]->n;
    }
    m->begins[batch] = n;
    o->q_cum = padded ? NULL : m->begins;
    o->q_lengths = o->k_lengths = padded ? m->lengths : NULL;
    if (padded) memset(m->x, 0, (size_t)n * width * sizeof *m->x);
    for (int b = 0; b < batch; b++) {
        for (int i = 0; i < lines[b]->n; i++) {
            float *x = m->x + (size_t)(m->begins[b] + i) * width;
            const float *place = m->place + (size_t)i * width;
            tensor_floats(&m->file, m->words, (size_t)lines[b]->ids[i] * width, width, x);
            for (size_t c = 0; c < width; c++) x[c] += place[c];
        }
    }
    layers(m, batch, longest, n);
    for (int b = 0; b < batch; b++) {
        const float *x = m->x + (size_t)m->begins[b] * width;
        float *v = lines[b]->vector;
        double squares = 0;
        memcpy(v, x, width * sizeof *v);
        for (int i = 1; i < lines[b]->n && !first_token; i++) {
            x += width;
            for (size_t c = 0; c < width; c++) v[c] += x[c];
        }
        for (size_t c = 0; c < width; c++) squares += (double)v[c] * (double)v[c];
        if (!(squares > 0 && squares < 1e300)) refuse("this model", "its weights lead to infinities, or to nothing");
        const double factor = 1 / root_of(squares);
        for (size_t c = 0; c < width; c++) v[c] = (float)((double)v[c] * factor);
    }
}

/* ---- the program ---------------------------------------------------------------------------------------------- */

typedef struct wish {
    const char *folder, *file, *question, *out, *before_question, *before_line, *pooling;
    int nearest, heads, most, batch, threads, bits, padded, tokens, help;
} wish;

/* Reads a number of the command line or of a JSON file, at least `least`. Returns 0 if it is invalid. */
static int read_number(const char *value, int least, int *to)
{
    char *end;
    const long n = strtol(value, &end, 10);
    *to = (int)n;
    return end != value && !*end && n >= least && n <= 1 << 28;
}

static int wish_parse(wish *w, int argc, char **argv)
{
    int fine = 1;
    for (int i = 1; i < argc; i++) {
        const char *value = argv[i + 1];                         /* NULL after the last one */
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) return w->help = 1;
        if (argv[i][0] != '-' || !argv[i][1]) {
            if (w->file) return 0;
            *(w->folder ? &w->file : &w->folder) = argv[i];
            continue;
        }
        if (!strcmp(argv[i], "-16")) { w->bits = 16;  continue; }
        if (!strcmp(argv[i], "-32")) { w->bits = 32;  continue; }
        if (!strcmp(argv[i], "-P")) { w->padded = 1;  continue; }
        if (!strcmp(argv[i], "-t")) { w->tokens = 1;  continue; }
        if (!value || strlen(argv[i]) != 2) return 0;
        switch (argv[i++][1]) {
        case 'q': w->question = value; break;
        case 'o': w->out = value; break;
        case 'x': w->before_question = value; break;
        case 'd': w->before_line = value; break;
        case 'p': w->pooling = value; break;
        case 'k': fine &= read_number(value, 1, &w->nearest); break;
        case 'H': fine &= read_number(value, 1, &w->heads); break;
        case 'n': fine &= read_number(value, 3, &w->most); break;
        case 'b': fine &= read_number(value, 1, &w->batch); break;
        case 'j': fine &= read_number(value, 1, &w->threads); break;
        default: return 0;
        }
    }
    return fine && w->file && w->batch <= 4096 &&
           (!w->pooling || !strcmp(w->pooling, "mean") || !strcmp(w->pooling, "first"));
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

/* Reads the value of a key in a JSON file of the folder, as text, into `to`; returns 0 if there is no such file or key.
   An incomplete file is rejected, because its values could be missing. */
static int setting(const char *folder, const char *name, const char *key, char to[64])
{
    char path[1200];
    file f;
    text value;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!folder_open(&f, path)) return 0;
    const text all = { (const char *)f.bytes, f.size };
    if (!json_object(all)) refuse(path, "it is no JSON, or only the beginning of it");
    const int found = json_find(all, key, &value);
    if (found) snprintf(to, 64, "%.*s", value.n < 63 ? (int)value.n : 63, value.at);
    file_close(&f);
    for (char *c = to; found && *c; c++) if (*c < ' ' || *c > '~') *c = '?';
    return found;
}

/* The same for a number; null counts as missing. */
static int setting_number(const char *folder, const char *name, const char *key, int *n)
{
    char s[64], why[200];
    if (!setting(folder, name, key, s) || !strcmp(s, "null")) return 0;
    if (read_number(s, 1, n)) return 1;
    snprintf(why, sizeof why, "%s says %s is %s, which is no number of anything", name, key, s);
    refuse(folder, why);
    return 0;
}

/* Compares the model properties in the folder's files with the tensors. */
static void settings_agree(const model *m, const char *folder)
{
    static const char *const must[][3] = {
        { "config.json", "model_type", "bert" }, { "config.json", "hidden_act", "gelu" },
        { "config.json", "position_embedding_type", "absolute" }, { "tokenizer_config.json", "do_lower_case", "true" }
    };
    const struct { const char *file, *key; int is; } sizes[] = {
        { "config.json", "hidden_size", m->width }, { "config.json", "intermediate_size", m->hidden },
        { "config.json", "num_hidden_layers", m->layers }, { "config.json", "vocab_size", (int)m->words->shape[0] },
        { "config.json", "max_position_embeddings", m->positions },
        { "1_Pooling/config.json", "word_embedding_dimension", m->width }
    };
    char s[64], why[200];
    int n;
    for (size_t i = 0; i < sizeof must / sizeof *must; i++) {
        if (!setting(folder, must[i][0], must[i][1], s) || !strcmp(s, must[i][2])) continue;
        snprintf(why, sizeof why, "%s says %s is %s; only %s can be computed here", must[i][0], must[i][1], s,
                 must[i][2]);
        refuse(folder, why);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (!setting_number(folder, sizes[i].file, sizes[i].key, &n) || n == sizes[i].is) continue;
        snprintf(why, sizeof why, "%s says %s is %d, but in model.safetensors it is %d: files of two models?",
                 sizes[i].file, sizes[i].key, n, sizes[i].is);
        refuse(folder, why);
    }
}

/* Reads the properties of the model other than its shapes from the folder; options override them. */
static void settings(model *m, wish *w)
{
    static const char pooling[] = "1_Pooling/config.json";
    char s[64], *end;
    settings_agree(m, w->folder);
    m->heads = w->heads;
    if (!m->heads) setting_number(w->folder, "config.json", "num_attention_heads", &m->heads);
    if (!m->heads) {
        m->heads = m->width / (m->width == 384 ? 32 : 64);
        fprintf(stderr, "embed: no config.json says how many heads there are: %d of %d? (-H)\n", m->heads,
                m->width / (m->heads ? m->heads : 1));
    }
    if (setting(w->folder, "config.json", "layer_norm_eps", s)) {
        m->eps = (float)strtod(s, &end);
        if (*end || !(m->eps > 0 && m->eps < 1)) refuse(w->folder, "config.json has a layer_norm_eps that no norm has");
    }
    if (!w->pooling && setting(w->folder, pooling, "pooling_mode_cls_token", s)) {
        if (!strcmp(s, "true")) w->pooling = "first";
    }
    if (!w->pooling && setting(w->folder, pooling, "pooling_mode_mean_tokens", s) && strcmp(s, "true"))
        refuse(w->folder, "1_Pooling/config.json asks for neither the mean nor the first token; -p takes one of them");
    if (!w->pooling) w->pooling = "mean";
    if (!w->most) setting_number(w->folder, "sentence_bert_config.json", "max_seq_length", &w->most);
    if (!w->most || w->most > m->positions) w->most = m->positions;
    if (w->most < 3) refuse("-n", "a text has at least 3 tokens, of which two are [CLS] and [SEP]");
    if (w->bits) m->storage = w->bits == 32 ? ATTN_F32 : m->storage == ATTN_F32 ? ATTN_F16 : m->storage;
}

static void model_open(model *m, file *f, wish *w)
{
    char path[1200];
    const char *why;
    snprintf(path, sizeof path, "%s/model.safetensors", w->folder);
    if (!folder_open(f, path)) refuse(path, "it cannot be opened");
    if ((why = model_parse(m, f->bytes, f->size)) != NULL) refuse(path, why);
    settings(m, w);
    if ((why = model_init(m)) != NULL) refuse(path, why);
}

/* Returns 1 if `words` is a complete vocabulary for this many rows. Some models round rows up to a multiple of 8, ..
   128. */
static int all_words(size_t words, size_t rows)
{
    for (size_t unit = 8; unit <= 128; unit *= 2) if ((words + unit - 1) / unit * unit == rows) return 1;
    return words == rows;
}

/* rows: of the word embeddings; 0: there is no model. */
static void vocabulary_open(vocabulary *v, file *f, const wish *w, size_t rows)
{
    char path[1200], other[120];
    const char *why;
    snprintf(path, sizeof path, "%s/vocab.txt", w->folder);
    if (!folder_open(f, path)) refuse(path, "it cannot be opened");
    if ((why = vocabulary_parse(v, f->bytes, f->size)) != NULL) refuse(path, why);
    snprintf(other, sizeof other, "it has %d words, the model %llu: it is %s", v->words, (unsigned long long)rows,
             (size_t)v->words < rows ? "cut, or another model's" : "another model's");
    if (rows && !all_words((size_t)v->words, rows)) refuse(path, other);
}

/* Control characters, which a terminal would execute, are not printed. */
static void print_text(text t)
{
    for (size_t i = 0; i < t.n; i++) putchar((unsigned char)t.at[i] < ' ' || t.at[i] == 127 ? ' ' : t.at[i]);
    putchar('\n');
}

static void line_init(line *l, const vocabulary *v, const wish *w, const char *before, text t)
{
    char *whole = (char *)room(strlen(before) + t.n, 1);
    const size_t most = strlen(before) + 2 * t.n + 2;            /* a letter of three bytes may become three letters */
    int few[3];
    l->t = t;
    l->blank = tokenize(v, t, few, 3) == 2;
    if (strlen(before)) memcpy(whole, before, strlen(before));
    if (t.n) memcpy(whole + strlen(before), t.at, t.n);
    const text all = { whole, strlen(before) + t.n };
    l->ids = (int *)room(most < (size_t)w->most ? most + 2 : (size_t)w->most + 1, sizeof *l->ids);
    l->n = tokenize(v, all, l->ids, w->most + 1);
    l->cut = l->n > w->most;
    if (l->cut) l->ids[(l->n = w->most) - 1] = v->last;
    free(whole);
}

static int by_length(const void *a, const void *b)
{
    const line *p = *(line *const *)a, *r = *(line *const *)b;
    return p->n != r->n ? r->n - p->n : p->number - r->number;
}

static int by_score(const void *a, const void *b)
{
    const line *p = *(line *const *)a, *r = *(line *const *)b;
    return p->score != r->score ? (p->score < r->score) - (p->score > r->score) : p->number - r->number;
}

static float dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

/* All lines, longest first, so that the lines of a batch have nearly the same length. */
static void encode_all(model *m, line **order, int n, const wish *w)
{
    const double begin = seconds();
    double shown = begin;
    long tokens = 0;
    qsort(order, (size_t)n, sizeof *order, by_length);
    for (int i = 0, now; i < n; i += now) {
        now = n - i < w->batch ? n - i : w->batch;
        encode(m, order + i, now, w->padded, !strcmp(w->pooling, "first"));
        for (int b = i; b < i + now; b++) tokens += order[b]->n;
        const double t = seconds();
        if (!isatty(2) || (t - shown < 1 && !(shown > begin && i + now == n))) continue;
        fprintf(stderr, "\rembed: %d of %d lines%s", i + now, n, i + now == n ? "\n" : "");
        shown = t;
    }
    const double took = seconds() - begin + 1e-9;
    fprintf(stderr, "%d texts, %ld tokens, %.0f tokens a second\n", n, tokens, (double)tokens / took);
}

/* A blank line has no meaning, and so no rank; but it has a vector, because -o writes one for every line. */
static void show(const model *m, line *all, line **order, int n, const wish *w)
{
    int some = 0;
    for (int i = 0; i < n; i++) if (!all[i].blank) order[some++] = &all[i];
    if (w->question) {                                           /* the question follows the lines */
        for (int i = 0; i < some; i++) order[i]->score = dot(order[i]->vector, all[n].vector, m->width);
        qsort(order, (size_t)some, sizeof *order, by_score);
        for (int i = 0; i < some && i < w->nearest; i++) {
            printf("%6.3f  ", (double)order[i]->score);
            print_text(order[i]->t);
        }
    } else if (!w->out) {
        for (int i = 0; i < some; i++) {
            for (int k = 0; k < some; k++) {
                printf("%6.3f ", (double)dot(order[i]->vector, order[k]->vector, m->width));
            }
            putchar(' ');
            print_text(order[i]->t);
        }
    }
}

static void write_vectors(const char *path, const float *v, size_t n)
{
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(v, sizeof *v, n, out) != n || fclose(out)) refuse(path, "it cannot be written");
}

/* The lines of a text, followed by the question. */
static int lines_of(line **all, const file *f, const vocabulary *v, const wish *w)
{
    size_t n = 0, space = 1;
    const char *at = (const char *)f->bytes, *end = at + f->size;
    for (size_t i = 0; i < f->size; i++) space += f->bytes[i] == '\n';
    if (space > 1 << 28) refuse(w->file, "it has too many lines");
    *all = (line *)room(space + 1, sizeof **all);
    while (at < end) {
        const char *stop = (const char *)memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        text t = { at, (size_t)(stop - at) };
        if (t.n && at[t.n - 1] == '\r') t.n--;
        line_init(&(*all)[n], v, w, w->before_line, t);
        (*all)[n].number = (int)n;
        n++;
        at = stop + 1;
    }
    if (w->question) {
        const text t = { w->question, strlen(w->question) };
        (*all)[n].number = (int)n;
        line_init(&(*all)[n], v, w, w->before_question, t);
    }
    return (int)n;
}

/* Reports which texts were truncated. */
static void say_cut(const line *all, int texts, const wish *w)
{
    int cut = 0, first = 0;
    for (int i = texts; i-- > 0;) if (all[i].cut) { cut++;  first = i; }
    if (!cut) return;
    fprintf(stderr, "embed: %d of %d texts are cut to %d tokens (-n), the first ", cut, texts, w->most);
    if (w->question && first == texts - 1) fputs("is the question\n", stderr);
    else fprintf(stderr, "in line %d\n", first + 1);
}

/* Everything from the loaded model to the answer. */
static void work(model *m, const vocabulary *v, const file *f, const wish *w, const attn_exec *exec)
{
    line *all;
    const int n = lines_of(&all, f, v, w), texts = n + (w->question != NULL);
    line **order = (line **)room((size_t)texts, sizeof *order);
    float *vectors = (float *)room((size_t)texts * (size_t)m->width, sizeof *vectors);
    int longest = 0;
    for (int i = 0; i < texts; i++) {
        all[i].vector = vectors + (size_t)i * (size_t)m->width;
        order[i] = &all[i];
        if (all[i].n > longest) longest = all[i].n;
    }
    if (w->question && all[n].blank) refuse("-q", "the question is empty");
    say_cut(all, texts, w);
    for (int i = 0; i < texts && w->tokens; i++) {
        for (int k = 0; k < all[i].n; k++) printf("%d%c", all[i].ids[k], k + 1 < all[i].n ? ' ' : '\n');
    }
    if (texts && !w->tokens) {
        model_room(m, texts < w->batch ? texts : w->batch, longest, exec);
        encode_all(m, order, texts, w);
        if (w->out) write_vectors(w->out, vectors, (size_t)n * (size_t)m->width);
        show(m, all, order, n, w);
    }
    for (int i = 0; i < texts; i++) free(all[i].ids);
    free(vectors);  free(order);  free(all);
    if (fflush(stdout) || ferror(stdout)) refuse("standard output", "it cannot be written");
}

int main(int argc, char **argv)
{
    static const char usage[] =
        "usage: embed folder lines.txt [options]     (- for lines.txt: standard input)\n"
        "  -q text   a question: the lines nearest to it; without one, how near each line is to each\n"
        "  -k 10     so many of them                    -o file   vectors, float32, line by line\n"
        "  -d text   before every line (\"passage: \")    -x text   before the question (\"query: \")\n"
        "  -p mean   pooling: mean or first             -H 12     heads, where no config.json says it\n"
        "  -n 256    tokens of a line at most           -b 32     lines at a time\n"
        "  -16 -32   weights in 16 bits, or as floats   -P        pad the lines of a batch to one length\n"
        "  -j 1      threads (-DATTN_THREADS -pthread)  -t        token numbers instead of vectors\n"
        "  -h        this list                          blank lines have a vector, but no rank\n";
    wish w;
    model m;
    vocabulary v;
    file weights, words, lines;
    const attn_exec *exec = NULL;
    memset(&w, 0, sizeof w);
    memset(&m, 0, sizeof m);
    memset(&weights, 0, sizeof weights);
    w.nearest = 10;  w.batch = 32;  w.threads = 1;
    w.before_question = w.before_line = "";
    if (argc < 2) return fputs(usage, stdout) < 0;
    if (!wish_parse(&w, argc, argv)) return fputs(usage, stderr), 2;
    if (w.help) return fputs(usage, stdout) < 0;
    if (w.tokens && w.most < 2) w.most = 512;                    /* tokens need no model */
    if (!w.tokens) model_open(&m, &weights, &w);
    vocabulary_open(&v, &words, &w, w.tokens ? 0 : m.words->shape[0]);
    if (!file_open(&lines, strcmp(w.file, "-") ? w.file : "/dev/stdin")) refuse(w.file, "it cannot be opened");
#ifdef ATTN_THREADS
    attn_pool *pool = attn_pool_create(w.threads);
    if (!pool) refuse("-j", "the system does not give so many threads");
    const attn_exec threads = attn_pool_exec(pool);
    if (w.threads > 1) exec = &threads;
#else
    if (w.threads > 1) refuse("-j", "this was compiled without -DATTN_THREADS -pthread");
#endif
    work(&m, &v, &lines, &w, exec);
#ifdef ATTN_THREADS
    attn_pool_destroy(pool);
#endif
    model_free(&m);
    free(v.table);
    file_close(&lines);  file_close(&words);  file_close(&weights);
    return 0;
}
