/* onnx.c: the protobuf wire format, and the three messages of ONNX that a node test consists of. */
#include "onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the wire format ----------------------------------------------------------------------------------------
 * A message is a sequence of fields: a varint key (number << 3 | wire type), then a value:
 *   wire 0 varint, 1 eight bytes, 5 four bytes, 2 a length and as many bytes (text, a message, packed numbers) */

typedef struct span {
    const unsigned char *at, *end;
    int bad;                              /* 1: something did not fit */
} span;

typedef struct field {
    uint64_t number, value;
    int wire;
    span bytes;                           /* wire 2 */
} field;

static uint64_t take_varint(span *s)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (s->at == s->end) break;
        unsigned char byte = *s->at++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return value;
    }
    s->bad = 1;
    s->at = s->end;
    return 0;
}

static uint64_t take_fixed(span *s, int bytes)
{
    uint64_t value = 0;
    if (s->end - s->at < bytes) {
        s->bad = 1;
        s->at = s->end;
        return 0;
    }
    for (int i = 0; i < bytes; i++) value |= (uint64_t)*s->at++ << 8 * i;
    return value;
}

/* Reads the next field of a message. Returns 1, or 0 at its end or if it is damaged (s->bad is then set). */
static int next_field(span *s, field *f)
{
    if (s->bad || s->at == s->end) return 0;
    uint64_t key = take_varint(s);
    memset(f, 0, sizeof *f);
    f->number = key >> 3;
    f->wire = (int)(key & 7);
    switch (f->wire) {
    case 0: f->value = take_varint(s); break;
    case 1: f->value = take_fixed(s, 8); break;
    case 5: f->value = take_fixed(s, 4); break;
    case 2: {
        uint64_t length = take_varint(s);
        if (s->bad || length > (uint64_t)(s->end - s->at)) {
            s->bad = 1;
            break;
        }
        f->bytes.at = s->at;
        f->bytes.end = s->at += (size_t)length;
        break;
    }
    default: s->bad = 1;
    }
    return !s->bad;
}

/* Repeated numbers are either one per field, or packed in one field of wire 2. */
static int next_packed(field *f, int fixed, uint64_t *value)
{
    if (f->wire != 2) {
        if (f->wire < 0) return 0;
        *value = f->value;
        f->wire = -1;                     /* the only value has been read */
        return 1;
    }
    if (f->bytes.bad || f->bytes.at == f->bytes.end) return 0;
    *value = fixed ? take_fixed(&f->bytes, fixed) : take_varint(&f->bytes);
    return !f->bytes.bad;
}

static void take_text(const field *f, char text[ONNX_NAME])
{
    size_t n = f->wire == 2 ? (size_t)(f->bytes.end - f->bytes.at) : 0;
    if (n > ONNX_NAME - 1) n = ONNX_NAME - 1;
    if (n) memcpy(text, f->bytes.at, n);
    text[n] = 0;
}

static float float_of(uint64_t bits)
{
    uint32_t u = (uint32_t)bits;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- files ----------------------------------------------------------------------------------------------- */

static unsigned char *read_file(const char *path, span *s, const char **why)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = NULL;
    size_t size = 0, room = 0;
    if (!file) {
        *why = "cannot be opened";
        return NULL;
    }
    for (;;) {
        if (size == room) {
            room = room ? 2 * room : 4096;
            unsigned char *more = room < ((size_t)1 << 28) ? (unsigned char *)realloc(bytes, room) : NULL;
            if (!more) {
                *why = "is too large";
                break;
            }
            bytes = more;
        }
        size_t got = fread(bytes + size, 1, room - size, file);
        size += got;
        if (got == 0) {
            if (ferror(file)) *why = "cannot be read";
            break;
        }
    }
    fclose(file);
    if (*why) {
        free(bytes);
        return NULL;
    }
    s->at = bytes;
    s->end = bytes + size;
    s->bad = 0;
    return bytes;
}

/* ---- ModelProto.graph (7) -> GraphProto.node (1) -> NodeProto -------------------------------------------- */

static int read_attribute(span s, onnx_attribute *a)
{
    field f;
    while (next_field(&s, &f)) {
        if (f.number == 1) take_text(&f, a->name);
        if (f.number == 2 && f.wire == 5) a->f = float_of(f.value);
        if (f.number == 3 && f.wire == 0) a->i = (int64_t)f.value;
    }
    return !s.bad;
}

static int read_node(span s, onnx_node *node)
{
    field f;
    while (next_field(&s, &f)) {
        if (f.number == 1) {
            if (node->inputs == ONNX_ENDS) return 0;
            take_text(&f, node->input[node->inputs++]);
        }
        if (f.number == 2) {
            if (node->outputs == ONNX_ENDS) return 0;
            take_text(&f, node->output[node->outputs++]);
        }
        if (f.number == 4) take_text(&f, node->op);
        if (f.number == 5 && f.wire == 2) {
            if (node->attributes == ONNX_ATTRIBUTES) return 0;
            if (!read_attribute(f.bytes, &node->attribute[node->attributes++])) return 0;
        }
        if (f.number == 7) take_text(&f, node->domain);
    }
    return !s.bad;
}

static int read_graph(span s, onnx_node *node)
{
    field f;
    while (next_field(&s, &f))
        if (f.number == 1 && f.wire == 2 && node->nodes++ == 0 && !read_node(f.bytes, node)) return 0;
    return !s.bad;
}

int onnx_read_model(const char *path, onnx_node *node, const char **why)
{
    span s;
    field f;
    int fine = 1;
    memset(node, 0, sizeof *node);
    *why = NULL;
    unsigned char *bytes = read_file(path, &s, why);
    if (!bytes) return 0;
    while (fine && next_field(&s, &f))
        if (f.number == 7 && f.wire == 2) fine = read_graph(f.bytes, node);
    if (!fine || s.bad) *why = "is damaged";
    free(bytes);
    return !*why;
}

const onnx_attribute *onnx_find(const onnx_node *node, const char *name)
{
    for (int i = 0; i < node->attributes; i++)
        if (strcmp(node->attribute[i].name, name) == 0) return &node->attribute[i];
    return NULL;
}

/* ---- TensorProto --------------------------------------------------------------------------------------------
 * dims 1, data_type 2, float_data 4, int32_data 5 (also bool), int64_data 7, name 8, raw_data 9 (little-endian) */

static int element_size(int type)
{
    return type == ONNX_FLOAT ? 4 : type == ONNX_INT64 ? 8 : type == ONNX_BOOL ? 1 : 0;
}

static void put(onnx_tensor *t, size_t i, uint64_t bits)
{
    if (t->floats) t->floats[i] = float_of(bits);
    if (t->ints) t->ints[i] = (int64_t)bits;
    if (t->bools) t->bools[i] = bits != 0;
}

static int read_shape(span s, onnx_tensor *t)
{
    field f;
    uint64_t value;
    t->count = 1;
    while (next_field(&s, &f)) {
        if (f.number == 2 && f.wire == 0) t->type = f.value < 100 ? (int)f.value : -1;
        if (f.number == 8) take_text(&f, t->name);
        while (f.number == 1 && next_packed(&f, 0, &value)) {
            if (t->rank == ONNX_RANK || value > (uint64_t)1 << 28) return 0;
            t->dims[t->rank++] = (size_t)value;
            if (value && t->count > ((size_t)1 << 28) / (size_t)value) return 0;
            t->count *= (size_t)value;
        }
        if (f.bytes.bad) return 0;
    }
    return !s.bad;
}

static int read_data(span s, onnx_tensor *t)
{
    const int size = element_size(t->type);
    const uint64_t typed = t->type == ONNX_FLOAT ? 4 : t->type == ONNX_INT64 ? 7 : 5;
    size_t n = 0;
    field f;
    while (next_field(&s, &f)) {
        uint64_t value;
        if (f.number != 9 && f.number != typed) continue;
        if (f.number == 9 && f.wire != 2) return 0;
        int fixed = f.number == 9 ? size : t->type == ONNX_FLOAT ? 4 : 0;
        while (next_packed(&f, fixed, &value)) {
            if (n == t->count) return 0;
            put(t, n++, value);
        }
        if (f.bytes.bad) return 0;
    }
    return !s.bad && n == t->count;
}

int onnx_read_tensor(const char *path, onnx_tensor *t, const char **why)
{
    span s;
    memset(t, 0, sizeof *t);
    *why = NULL;
    unsigned char *bytes = read_file(path, &s, why);
    if (!bytes) return 0;
    if (!read_shape(s, t)) {
        *why = "is damaged";
    } else if (element_size(t->type) > 0) {
        const int size = element_size(t->type);
        /* size is not 0 here: NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI) */
        void *data = calloc((t->count + 1) * (size_t)size, 1);
        if (t->type == ONNX_FLOAT) t->floats = (float *)data;
        else if (t->type == ONNX_INT64) t->ints = (int64_t *)data;
        else t->bools = (unsigned char *)data;
        if (!data) *why = "is too large";
        else if (!read_data(s, t)) *why = "has another number of elements than its shape says, or is damaged";
    }
    free(bytes);
    if (*why) onnx_free_tensor(t);
    return !*why;
}

void onnx_free_tensor(onnx_tensor *t)
{
    free(t->floats);
    free(t->ints);
    free(t->bools);
    memset(t, 0, sizeof *t);
}
