/* stories_io.h: the files of 14_stories.c: checkpoints and tokenizers of llama2.c, and packed weights.

       file f;
       file_need(&f, "stories15M.bin");                         mapped if the system can, otherwise read
       const char *reason = model_parse(&m, f.bytes, f.size);   NULL, or a reason for an error message
       reason = tokenizer_parse(&t, m.words, bytes, size);
       n = encode(&t, "Once upon a time", ids);
       print_token(&t, ids[1], 1);

       packed_head h = packed_of(&f, storage, size);            which weights a packed file must hold
       if (!file_is_there(path)) packed_write(path, &h, parts, size);
       reason = packed_check(&h, bytes, size_of_file);          the parts begin at bytes + sizeof h

   Every number in a file is checked against the size of the file before it is used, so an untrusted file is rejected
   with a sentence or read within its bounds. The bytes must outlive the structs that point to them. */
#ifndef STORIES_IO_H
#define STORIES_IO_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

enum { PIECE = 256, BEGIN = 1, END = 2 };                        /* max bytes of a token; two tokens */

/* Prints one sentence and ends the program. */
static void refuse(const char *name, const char *reason)
{
    fprintf(stderr, "stories: %s: %s\n", name, reason);
    exit(1);
}

/* Zeroed memory; ends the program if there is none. */
static void *room(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) refuse("this model", "there is not enough memory");
    return p;
}

/* ---- files ---------------------------------------------------------------------------------------------------- */

typedef struct file { unsigned char *bytes; size_t size; int mapped; void *own; } file;

/* Memory of size bytes that begins at a multiple of 64; *own is for free(). */
static unsigned char *aligned_room(size_t size, void **own)
{
    unsigned char *p = (unsigned char *)(*own = room(size + 63, 1));
    return p + (64 - (size_t)p % 64) % 64;
}

static int file_is_there(const char *path)
{
    FILE *in = fopen(path, "rb");
    if (in) fclose(in);
    return in != NULL;
}

/* Maps the file where the system can, otherwise reads it. Either way its bytes begin at a multiple of 64. */
static void file_open(file *f, const char *path)
{
    memset(f, 0, sizeof *f);
#if defined(__unix__) || defined(__APPLE__)
    struct stat s;
    const int d = open(path, O_RDONLY);
    if (d >= 0 && fstat(d, &s) == 0 && !S_ISREG(s.st_mode)) refuse(path, "it is no file");
    if (d >= 0 && fstat(d, &s) == 0 && s.st_size > 0) {
        f->size = (size_t)s.st_size;
        void *p = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, d, 0);
        if (p != MAP_FAILED) {
            f->bytes = (unsigned char *)p;
            f->mapped = 1;
        }
    }
    if (d >= 0) close(d);
    if (f->mapped) return;
#endif
    FILE *in = fopen(path, "rb");
    if (!in) refuse(path, "it cannot be opened");
    const long end = fseek(in, 0, SEEK_END) == 0 ? ftell(in) : -1;
    if (end < 0 || fseek(in, 0, SEEK_SET)) refuse(path, "it is no file");
    f->size = (size_t)end;
    f->bytes = aligned_room(f->size, &f->own);
    if (fread(f->bytes, 1, f->size, in) != f->size) refuse(path, "it cannot be read");
    fclose(in);
}

/* Opens a large file. In a clone without Git LFS it is replaced by three lines of text. */
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
    if (f->mapped) munmap(f->bytes, f->size);
#endif
    free(f->own);
    memset(f, 0, sizeof *f);
}

/* ---- checkpoints ---------------------------------------------------------------------------------------------- */

typedef struct model {
    int dim, hidden, layers, heads, kv_heads, words, positions, head, kv_dim;
    const float *embedding, *norm, *q, *k, *v, *o, *ff_norm, *w1, *w2, *w3, *last_norm, *classifier;
} model;

/* Returns the next n floats and moves *at past them. The caller has checked the size of the file. */
static const float *take(const float **at, unsigned long long n)
{
    *at += n;
    return *at - n;
}

/* Checks the seven numbers of a header and stores them in *m. Returns NULL, or a reason. */
static const char *model_sizes(model *m, const unsigned char *bytes, size_t size, int *own_classifier)
{
    static const int most[7] = { 1 << 16, 1 << 17, 1 << 10, 1 << 10, 1 << 10, 1 << 20, 1 << 20 };
    const unsigned one = 1;
    unsigned char low;
    int h[7] = {0};
    memset(m, 0, sizeof *m);
    memcpy(&low, &one, 1);
    if (low != 1) return "its numbers are little-endian, and this machine is not";
    if (size < sizeof h) return "it is shorter than a header";
    memcpy(h, bytes, sizeof h);
    if (h[0] == 0x616b3432) return "it is of a later version of the format; this reads version 0";
    *own_classifier = h[5] < 0;                                  /* otherwise it shares the weights of the embedding */
    if (*own_classifier && h[5] >= -most[5]) h[5] = -h[5];
    for (int i = 0; i < 7; i++)
        if (h[i] < 1 || h[i] > most[i]) return "no checkpoint of llama2.c has such a header";
    if (h[5] <= END) return "it has too few tokens for a beginning and an end";
    m->dim = h[0];
    m->hidden = h[1];
    m->layers = h[2];
    m->heads = h[3];
    m->kv_heads = h[4];
    m->words = h[5];
    m->positions = h[6];
    if (m->dim % m->heads || m->heads % m->kv_heads) return "its heads do not divide its width";
    m->head = m->dim / m->heads;
    m->kv_dim = m->kv_heads * m->head;
    if (m->head % 2) return "it has heads of an odd size, which cannot be rotated";
    return NULL;
}

/* Points *m to the weights of a checkpoint. Returns NULL, or a reason. */
static const char *model_parse(model *m, const unsigned char *bytes, size_t size)
{
    static char reason[160];
    int own_classifier = 0;
    const char *wrong = model_sizes(m, bytes, size, &own_classifier);
    if (wrong) return wrong;

    const size_t head = 7 * sizeof(int);
    const unsigned long long dim = (unsigned)m->dim, layers = (unsigned)m->layers, words = (unsigned)m->words * dim;
    const unsigned long long square = layers * dim * dim, flat = layers * dim * (unsigned)m->kv_dim;
    const unsigned long long ff = layers * dim * (unsigned)m->hidden;
    const unsigned long long angles = (unsigned long long)m->positions * (unsigned)m->head;
    const unsigned long long all = words + 2 * layers * dim + 2 * square + 2 * flat + 3 * ff + dim + angles +
                                   (own_classifier ? words : 0);
    if (size != head + 4 * all) {
        snprintf(reason, sizeof reason, "it has %llu bytes, but with its header it should have %llu",
                 (unsigned long long)size, head + 4 * all);
        return reason;
    }
    const float *at = (const float *)(const void *)(bytes + head);
    m->embedding = take(&at, words);
    m->norm = take(&at, layers * dim);
    m->q = take(&at, square);
    m->k = take(&at, flat);
    m->v = take(&at, flat);
    m->o = take(&at, square);
    m->ff_norm = take(&at, layers * dim);
    m->w1 = take(&at, ff);
    m->w2 = take(&at, ff);
    m->w3 = take(&at, ff);
    m->last_norm = take(&at, dim);
    take(&at, angles);                                           /* attn_rope_table computes them, more exactly */
    m->classifier = own_classifier ? take(&at, words) : m->embedding;
    return NULL;
}

/* ---- packed weights ------------------------------------------------------------------------------------------- */

/* The first 64 bytes of a packed file. The parts follow, each as an init of attn.h filled it. */
typedef struct packed_head {
    char magic[8];
    unsigned long long storage;                          /* of the weights: 0 floats, 1 half, 3 8 bits (attn_storage) */
    unsigned long long print;                                    /* of the checkpoint */
    unsigned long long size;                                     /* bytes of all parts */
    unsigned long long unused[4];
} packed_head;
typedef char packed_head_is_64[sizeof(packed_head) == 64 ? 1 : -1];

/* The header of a packed file of these weights. The fingerprint of the checkpoint is a hash of 512 of its floats,
   evenly spread: training changes nearly all of them, and hashing the whole file would take longer than packing it. */
static packed_head packed_of(const file *checkpoint, int storage, size_t size)
{
    packed_head h = { "stories", 0, 0, 0, { 0 } };
    const size_t words = checkpoint->size / 4;
    unsigned long long print = 0xCBF29CE484222325ull ^ checkpoint->size;
    for (size_t i = 0; i < 512; i++) {
        unsigned word;
        memcpy(&word, checkpoint->bytes + words * i / 512 * 4, 4);
        print = (print ^ word) * 0x100000001B3ull;
    }
    h.storage = (unsigned long long)storage;
    h.print = print;
    h.size = size;
    return h;
}

/* Compares a packed file with the header that it must have. Returns NULL, or a reason. */
static const char *packed_check(const packed_head *want, const unsigned char *bytes, size_t size)
{
    static char reason[160];
    packed_head h;
    if (size < sizeof h) return "it is shorter than the header of packed weights";
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.magic, want->magic, sizeof h.magic)) return "it does not hold packed weights";
    if (h.print != want->print) return "it was packed from another checkpoint: delete it, or name another file";
    if (h.storage != want->storage)
        return h.storage == 0 ? "it holds floats: omit -16 and -8" :
               h.storage == 1 ? "it holds weights in half: use -16, not -8" :
               h.storage == 3 ? "it holds weights in 8 bits: use -8, not -16" : "it holds weights of an unknown format";
    if (h.size != want->size || size - sizeof h != want->size) {
        snprintf(reason, sizeof reason, "it has %llu bytes, but these weights take %llu: is it cut off?",
                 (unsigned long long)size, want->size + (unsigned long long)sizeof h);
        return reason;
    }
    return NULL;
}

/* Writes a packed file under another name and renames it when it is complete: a program that is killed, or a full disk,
   leaves no partial file. */
static void packed_write(const char *path, const packed_head *h, const unsigned char *parts, size_t size)
{
    char unfinished[1100];
    long id = 0;
#if defined(__unix__) || defined(__APPLE__)
    id = (long)getpid();
#endif
    if (snprintf(unfinished, sizeof unfinished, "%s.%ld", path, id) >= (int)sizeof unfinished)
        refuse(path, "its name is too long");
    FILE *out = fopen(unfinished, "wb");
    if (!out) refuse(path, "it cannot be created");
    const int written = fwrite(h, sizeof *h, 1, out) == 1 && fwrite(parts, 1, size, out) == size;
    if (fclose(out) == 0 && written && rename(unfinished, path) == 0) return;
    remove(unfinished);
    refuse(path, "it cannot be written");
}

/* ---- tokens --------------------------------------------------------------------------------------------------- */

typedef struct piece { const char *text; int length, id; float score; } piece;

typedef struct tokenizer { piece *by_id, *sorted; int words; } tokenizer;

static int by_text(const void *a, const void *b)
{
    const piece *p = (const piece *)a, *r = (const piece *)b;
    const int c = memcmp(p->text, r->text, (size_t)(p->length < r->length ? p->length : r->length));
    return c ? c : p->length - r->length;
}

static void tokenizer_free(tokenizer *t)
{
    free(t->by_id);
    free(t->sorted);
}

/* Points *t to the pieces of text in a file. Returns NULL, or a reason; free *t in both cases. */
static const char *tokenizer_parse(tokenizer *t, int words, const unsigned char *bytes, size_t size)
{
    memset(t, 0, sizeof *t);
    if (size < 4 || (size - 4) / 8 < (size_t)words) return "it has fewer tokens than the model";
    t->by_id = (piece *)calloc((size_t)words, sizeof *t->by_id);
    t->sorted = (piece *)calloc((size_t)words, sizeof *t->sorted);
    if (!t->by_id || !t->sorted) return "there is no memory for it";
    t->words = words;
    bytes += 4;                                                  /* the length of the longest token */
    size -= 4;
    for (int i = 0; i < words; i++) {
        piece *p = &t->by_id[i];
        if (size < 8) return "it has fewer tokens than the model";
        memcpy(&p->score, bytes, 4);
        memcpy(&p->length, bytes + 4, 4);
        bytes += 8;
        size -= 8;
        if (p->length < 0 || p->length > PIECE || (size_t)p->length > size) return "a token has an impossible length";
        p->text = (const char *)bytes;
        p->id = i;
        bytes += p->length;
        size -= (size_t)p->length;
    }
    if (size) return "it has more tokens than the model: is it another model's?";
    memcpy(t->sorted, t->by_id, (size_t)words * sizeof *t->sorted);
    qsort(t->sorted, (size_t)words, sizeof *t->sorted, by_text);
    return NULL;
}

/* Returns the token with this text, or -1. */
static int find(const tokenizer *t, const char *text, int length)
{
    const piece key = { text, length, 0, 0 };
    const piece *p = (const piece *)bsearch(&key, t->sorted, (size_t)t->words, sizeof key, by_text);
    return p ? p->id : -1;
}

/* Returns the token whose text is that of a followed by that of b, or -1. */
static int joined(const tokenizer *t, int a, int b)
{
    char both[2 * PIECE];
    const piece *p = &t->by_id[a], *r = &t->by_id[b];
    memcpy(both, p->text, (size_t)p->length);
    memcpy(both + p->length, r->text, (size_t)r->length);
    return find(t, both, p->length + r->length);
}

/* Splits text into letters, or bytes if a letter is no token, then joins the best pair until no pair is a token. ids
   has room for 2 more than text has bytes. Returns the number of tokens. */
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
            if (both >= 0 && (at < 0 || t->by_id[both].score > t->by_id[token].score)) {
                at = i;
                token = both;
            }
        }
        if (at < 0) return n;
        ids[at] = token;
        n--;
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 1) * sizeof *ids);
    }
}

/* Prints the text of a token. The tokenizer is untrusted, so control characters, which a terminal would execute, are
   left out. */
static void print_token(const tokenizer *t, int token, int first)
{
    const char *s = t->by_id[token].text;
    int n = t->by_id[token].length;
    char copy[7] = "", byte;
    unsigned value;
    if (n == 6) memcpy(copy, s, 6);
    if (sscanf(copy, "<0x%2X>", &value) == 1) {                  /* <0x0A> */
        byte = (char)value;
        s = &byte;
        n = 1;
    }
    for (int i = first && n > 0 && s[0] == ' '; i < n; i++)
        if ((unsigned char)s[i] >= ' ' || s[i] == '\n' || s[i] == '\t') putchar(s[i]);
    fflush(stdout);
}
#endif
