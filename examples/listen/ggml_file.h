/* ggml_file.h: reads whisper.cpp's model files: sizes, mel filters, vocabulary and tensors.

       ggml_file f;
       const char *reason = ggml_open(&f, bytes, size);        NULL, or a reason for an error message
       const ggml_tensor *t = ggml_need(&f, "encoder.blocks.", 3, ".attn.query.weight", 384, 384);
       if (t) ggml_floats(t, 0, t->n, to);                     else f.reason is the reason
       ggml_close(&f);

   The format, all numbers little-endian, 32 bits:
       magic 0x67676d6c, 11 sizes, bands, bins, filters [bands][bins] in float,
       number of words, for each its length and bytes,
       tensors to the end: number of dimensions, length of the name, type, dimensions (innermost first), name, data.
   Everything is checked against the size of the file, so an untrusted file is rejected with a sentence or used within
   its bounds. The bytes must outlive *f; they are not changed. */
#ifndef LISTEN_GGML_FILE_H
#define LISTEN_GGML_FILE_H
#include "attn.h"
#include <stdlib.h>
#include <string.h>

enum { GGML_VOCABULARY, GGML_AUDIO_CONTEXT, GGML_AUDIO_WIDTH, GGML_AUDIO_HEADS, GGML_AUDIO_LAYERS, GGML_TEXT_CONTEXT,
       GGML_TEXT_WIDTH, GGML_TEXT_HEADS, GGML_TEXT_LAYERS, GGML_BANDS, GGML_FORMAT, GGML_SIZES };
enum { GGML_F32, GGML_F16, GGML_BINS = 201, GGML_REASON = 200 };

typedef struct ggml_tensor {
    const char *name;                                          /* not terminated */
    size_t length;
    int dims, type, shape[4];                                  /* innermost first, unused ones 1 */
    size_t n;                                                  /* numbers in it */
    const unsigned char *data;                                 /* not aligned */
} ggml_tensor;

typedef struct ggml_word { const unsigned char *bytes; int length; } ggml_word;

typedef struct ggml_file {
    int size[GGML_SIZES];
    float *filters;                                            /* [bands][GGML_BINS] */
    ggml_word *words;
    int n_words, n_tensors;
    ggml_tensor *tensors;
    char reason[GGML_REASON];
} ggml_file;

typedef struct ggml_cursor { const unsigned char *at; size_t left; } ggml_cursor;

static inline void ggml_append(char *to, const char *text, size_t n)
{
    size_t at = strlen(to);
    for (size_t i = 0; i < n && at + 1 < GGML_REASON; i++) {
        const char c = text[i];
        to[at++] = (char)(c >= ' ' && c <= '~' ? c : '?');
    }
    to[at] = 0;
}

/* Composes f->reason: text, a name in quotation marks (n bytes), and more text. */
static inline const char *ggml_reason(ggml_file *f, const char *text, const char *name, size_t n, const char *more)
{
    f->reason[0] = 0;
    ggml_append(f->reason, text, strlen(text));
    ggml_append(f->reason, "\"", 1);
    ggml_append(f->reason, name, n < 64 ? n : 64);
    ggml_append(f->reason, "\"", 1);
    ggml_append(f->reason, more, strlen(more));
    return f->reason;
}

/* Takes n bytes; NULL when fewer are left. */
static inline const unsigned char *ggml_take(ggml_cursor *c, size_t n)
{
    if (n > c->left) return NULL;
    const unsigned char *p = c->at;
    c->at += n;
    c->left -= n;
    return p;
}

/* Takes a number of 32 bits; -1 at the end of the file. */
static inline long ggml_number(ggml_cursor *c)
{
    const unsigned char *p = ggml_take(c, 4);
    if (!p) return -1;
    const unsigned long x = p[0] | (unsigned long)p[1] << 8 | (unsigned long)p[2] << 16 | (unsigned long)p[3] << 24;
    return x > 0x7FFFFFFF ? -1 : (long)x;
}

/* Copies numbers first .. first + n - 1 of a tensor as floats. */
static inline void ggml_floats(const ggml_tensor *t, size_t first, size_t n, float *to)
{
    unsigned short half[256];
    const unsigned char *p = t->data + first * (t->type == GGML_F16 ? 2 : 4);
    size_t some = 0;
    for (size_t i = 0; i < n; i += some) {
        some = n - i < 256 ? n - i : 256;
        for (size_t k = 0; k < some; k++) {
            if (t->type == GGML_F16) {
                half[k] = (unsigned short)(p[0] | p[1] << 8);
                p += 2;
            } else {
                const unsigned x = p[0] | (unsigned)p[1] << 8 | (unsigned)p[2] << 16 | (unsigned)p[3] << 24;
                memcpy(&to[i + k], &x, sizeof x);
                p += 4;
            }
        }
        if (t->type == GGML_F16) attn_widen(to + i, half, some, ATTN_F16);
    }
}

/* Copies a tensor in its own format: floats, or halves as 16-bit numbers in the byte order of this machine. */
static inline void ggml_copy(const ggml_tensor *t, void *to)
{
    unsigned short *half = (unsigned short *)to;
    if (t->type == GGML_F32) ggml_floats(t, 0, t->n, (float *)to);
    else for (size_t i = 0; i < t->n; i++) half[i] = (unsigned short)(t->data[2 * i] | t->data[2 * i + 1] << 8);
}

static inline const char *ggml_read_sizes(ggml_file *f, ggml_cursor *c)
{
    static const int least[GGML_SIZES] = { 51864, 1, 1, 1, 1, 16, 1, 1, 1, 1, 0 };
    static const int most[GGML_SIZES] = { 51900, 1500, 4096, 64, 64, 448, 4096, 64, 64, 128, 2147483647 };
    static const char *const formats[] = { "f32", "f16", "q4_0", "q4_1", "q4_1 with f16", "?", "?", "q8_0",
                                           "q5_0", "q5_1",
                                           "q2_k", "q3_k", "q4_k", "q5_k", "q6_k" };
    for (int i = 0; i < GGML_SIZES; i++) {
        const long x = ggml_number(c);
        if (!c->left) return "it is cut off in its header";
        if (x < least[i] || x > most[i]) return "its header has a size that no Whisper model has";
        f->size[i] = (int)x;
    }
    const int *s = f->size;
    const int format = s[GGML_FORMAT] % 1000;
    if (format > 14) return "its weights have an unknown format; f32 and f16 are read";
    if (format > GGML_F16)
        return ggml_reason(f, "its weights are quantised: ", formats[format], strlen(formats[format]),
                           "; f32 and f16 are read");
    if (s[GGML_AUDIO_WIDTH] % s[GGML_AUDIO_HEADS] || s[GGML_TEXT_WIDTH] % s[GGML_TEXT_HEADS])
        return "its heads do not divide its width";
    if (s[GGML_AUDIO_WIDTH] != s[GGML_TEXT_WIDTH]) return "its encoder and decoder differ in width";
    return NULL;
}

static inline const char *ggml_read_words(ggml_file *f, ggml_cursor *c)
{
    const long bands = ggml_number(c);
    const long bins = ggml_number(c);
    if (bands != f->size[GGML_BANDS] || bins != GGML_BINS) return "its mel filters do not fit its header";
    const ggml_tensor filters = { NULL, 0, 2, GGML_F32, { GGML_BINS, (int)bands, 1, 1 }, (size_t)(bands * bins),
                                  c->at };
    if (!ggml_take(c, filters.n * 4)) return "it is cut off in its mel filters";
    f->filters = (float *)malloc(filters.n * sizeof *f->filters);
    if (!f->filters) return "there is not enough memory for it";
    ggml_floats(&filters, 0, filters.n, f->filters);
    for (size_t i = 0; i < filters.n; i++)
        if (!(f->filters[i] >= 0 && f->filters[i] < 1e6f)) return "one of its mel filters is negative or not a number";
    const long words = ggml_number(c);
    if (words < 50256 || words > f->size[GGML_VOCABULARY]) return "its vocabulary does not fit its header";
    f->n_words = (int)words;
    f->words = (ggml_word *)calloc((size_t)words, sizeof *f->words);
    if (!f->words) return "there is not enough memory for it";
    for (int i = 0; i < f->n_words; i++) {
        const long length = ggml_number(c);
        const unsigned char *bytes = length < 0 ? NULL : ggml_take(c, (size_t)length);
        if (!bytes) return "it is cut off in its vocabulary";
        if (length > 1024) return "its vocabulary has a word of more than 1,024 bytes";
        f->words[i].bytes = bytes;
        f->words[i].length = (int)length;
    }
    return NULL;
}

/* Reads the header of a tensor and skips its data. */
static inline const char *ggml_read_tensor(ggml_file *f, ggml_cursor *c, ggml_tensor *t)
{
    const long dims = ggml_number(c);
    const long length = ggml_number(c);
    const long type = ggml_number(c);
    if (dims < 1 || dims > 4 || length < 1 || length > 200) return "it is cut off, or damaged, between two tensors";
    t->dims = (int)dims;
    t->length = (size_t)length;
    t->type = (int)type;
    t->n = 1;
    for (int i = 0; i < 4; i++) {
        const long n = i < dims ? ggml_number(c) : 1;
        if (n < 1 || (size_t)n > ((size_t)1 << 31) / t->n) return "it is cut off, or damaged, between two tensors";
        t->shape[i] = (int)n;
        t->n *= (size_t)n;
    }
    t->name = (const char *)ggml_take(c, t->length);
    if (!t->name) return "it is cut off in the name of a tensor";
    if (type != GGML_F32 && type != GGML_F16)
        return ggml_reason(f, "its tensor ", t->name, t->length, " is quantised; f32 and f16 are read");
    t->data = ggml_take(c, t->n * (type == GGML_F16 ? 2 : 4));
    if (!t->data) return ggml_reason(f, "it is cut off in its tensor ", t->name, t->length, "");
    return NULL;
}

static inline const char *ggml_read(ggml_file *f, const unsigned char *bytes, size_t size)
{
    ggml_cursor c = { bytes, size };
    int room = 0;
    if (size == 0) return "it is empty";
    const long magic = ggml_number(&c);
    if (size >= 4 && !memcmp(bytes, "GGUF", 4)) return "it is a GGUF file; whisper.cpp's ggml format is read";
    if (magic != 0x67676d6c) return "it is not a ggml file";
    const char *reason = ggml_read_sizes(f, &c);
    if (!reason) reason = ggml_read_words(f, &c);
    while (!reason && c.left) {
        if (f->n_tensors == room) {
            room = room ? 2 * room : 256;
            ggml_tensor *more = (ggml_tensor *)realloc(f->tensors, (size_t)room * sizeof *more);
            if (!more) return "there is not enough memory for it";
            f->tensors = more;
        }
        reason = ggml_read_tensor(f, &c, &f->tensors[f->n_tensors]);
        f->n_tensors += !reason;
    }
    return reason;
}

static inline void ggml_close(ggml_file *f)
{
    free(f->filters);
    free(f->words);
    free(f->tensors);
    f->filters = NULL;
    f->words = NULL;
    f->tensors = NULL;
    f->n_words = f->n_tensors = 0;
}

/* Makes *f of the bytes of a file. Returns NULL, or a reason to reject it; *f needs no close then. */
static inline const char *ggml_open(ggml_file *f, const unsigned char *bytes, size_t size)
{
    memset(f, 0, sizeof *f);
    const char *reason = ggml_read(f, bytes, size);
    if (reason) ggml_close(f);
    return reason;
}

/* Returns the tensor prefix + layer + rest (layer < 0: prefix + rest) of the shape [rows][columns], dimensions of 1
   left out (a convolution's weight [out][in][3]: rows out, columns in * 3). Returns NULL and sets f->reason if there
   is none, and always returns NULL once a reason is set. */
static inline const ggml_tensor *ggml_need(ggml_file *f, const char *prefix, int layer, const char *rest, int rows,
                                           int columns)
{
    char name[GGML_REASON] = "";
    const char digits[2] = { (char)('0' + layer / 10 % 10), (char)('0' + layer % 10) };
    if (f->reason[0]) return NULL;
    ggml_append(name, prefix, strlen(prefix));
    if (layer >= 0) ggml_append(name, layer < 10 ? digits + 1 : digits, layer < 10 ? 1 : 2);
    ggml_append(name, rest, strlen(rest));
    for (int i = 0; i < f->n_tensors; i++) {
        const ggml_tensor *t = &f->tensors[i];
        if (t->length != strlen(name) || memcmp(t->name, name, t->length) != 0) continue;
        const int outer = t->dims > 1 ? t->shape[t->dims - 1] : columns == 1 ? t->shape[0] : 1;
        const int is_column = t->n == (size_t)rows && columns == 1;
        if (t->n == (size_t)rows * (size_t)columns && (outer == rows || is_column)) return t;
        ggml_reason(f, "its tensor ", name, strlen(name), " has another shape than the header says");
        return NULL;
    }
    ggml_reason(f, "it has no tensor ", name, strlen(name), "");
    return NULL;
}
#endif
