/* safetensors.h: tensors by name from a file in Hugging Face's format, and JSON in and next to it. The file may be
   untrusted: errors are reported as a sentence, and nothing is read outside it. Names and data stay in the file's
   memory. Format: 8 bytes of length, little-endian; a JSON header of that length; the data. */
#ifndef SAFETENSORS_H
#define SAFETENSORS_H
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32, SHOWN = 96 };                               /* levels of JSON; letters of a name in a sentence */

typedef struct text { const char *at; size_t n; } text;

static int is(text t, const char *s) { return t.n == strlen(s) && memcmp(t.at, s, t.n) == 0; }

/* ---- JSON: a cursor that stops for good (at = end, bad = 1) at the first byte that is wrong ------------------- */

typedef struct json { const char *at, *end; int bad; } json;

static char json_peek(json *j)
{
    while (j->at < j->end && memchr(" \t\r\n", *j->at, 4)) j->at++;
    return (char)(j->at < j->end ? *j->at : '\0');
}

static int json_bad(json *j) { j->bad = 1;  j->at = j->end;  return 0; }

/* If c is next, skips it and returns 1. */
static int json_if(json *j, char c) { if (json_peek(j) != c) return 0;  j->at++;  return 1; }

static int json_must(json *j, char c) { return json_if(j, c) || json_bad(j); }

/* A string, with its escapes unchanged. */
static text json_string(json *j)
{
    text t = { "", 0 };
    if (!json_must(j, '"')) return t;
    const char *p = j->at;
    for (; p < j->end && *p != '"'; p++) {
        if ((unsigned char)*p < ' ') break;
        if (*p == '\\' && ++p == j->end) break;
    }
    if (p >= j->end || *p != '"') { json_bad(j);  return t; }
    t.at = j->at;
    t.n = (size_t)(p - j->at);
    j->at = p + 1;
    return t;
}

/* Reads a size: digits only. */
static unsigned long long json_count(json *j)
{
    unsigned long long n = 0;
    const char first = json_peek(j);
    if (first < '0' || first > '9') return (unsigned long long)json_bad(j);
    for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++) {
        if (n >> 58) return (unsigned long long)json_bad(j);
        n = 10 * n + (unsigned long long)(*j->at - '0');
    }
    return n;
}

/* Skips a value of any kind and returns it. */
static text json_value(json *j, int depth)
{
    const char c = json_peek(j), *from = j->at;
    if (depth > DEEPEST) json_bad(j);
    else if (c == '"') json_string(j);
    else if (c == '{' || c == '[') {
        const char close = c == '{' ? '}' : ']';
        j->at++;
        if (!json_if(j, close)) {
            do {
                if (c == '{') { json_string(j);  json_must(j, ':'); }
                json_value(j, depth + 1);
            } while (json_if(j, ','));
            json_must(j, close);
        }
    } else {
        while (j->at < j->end && !memchr(" \t\r\n,]}", *j->at, 7)) j->at++;
        if (j->at == from) json_bad(j);                          /* numbers, true, false, null: any word is accepted */
    }
    const text t = { from, (size_t)(j->at - from) };
    return t;
}

/* Finds the value of a key of the outermost object, without the quotes of strings. Returns 1, or 0 if there is none. */
static int json_find(text t, const char *key, text *value)
{
    json j = { t.at, t.at + t.n, 0 };
    if (!t.n || !json_if(&j, '{')) return 0;
    do {
        const text name = json_string(&j);
        json_must(&j, ':');
        *value = json_value(&j, 0);
        if (!j.bad && is(name, key)) {
            if (value->n >= 2 && *value->at == '"') { value->at++;  value->n -= 2; }
            return 1;
        }
    } while (json_if(&j, ','));
    return 0;
}

/* Returns 1 if the whole text is one object. */
static int json_object(text t)
{
    json j = { t.at, t.at + t.n, 0 };
    if (json_peek(&j) != '{') return 0;
    json_value(&j, 0);
    json_peek(&j);
    return !j.bad && j.at == j.end;
}

/* ---- safetensors: 8 bytes of length, a JSON header, data ------------------------------------------------------ */

typedef struct tensor {
    text name;
    int usable;                                                  /* a type that this program reads */
    attn_storage storage;
    size_t shape[2], from, to;                                   /* a vector is [n][1]; bytes of the data */
} tensor;

typedef struct tensors { tensor *list; size_t n; const unsigned char *data; char why[240]; } tensors;

static int by_name(const void *a, const void *b)
{
    const text p = ((const tensor *)a)->name, r = ((const tensor *)b)->name;
    const int c = memcmp(p.at, r.at, p.n < r.n ? p.n : r.n);
    return c ? c : p.n < r.n ? -1 : p.n > r.n;
}

static int by_place(const void *a, const void *b)
{
    const tensor *p = (const tensor *)a, *r = (const tensor *)b;
    if (p->from != r->from) return p->from < r->from ? -1 : 1;
    return p->to < r->to ? -1 : p->to > r->to;
}

/* A sentence about a tensor. Its name may be untrusted: control characters are not printed. */
static const char *about(tensors *t, text name, const char *what)
{
    char shown[SHOWN + 1];
    size_t n = 0;
    for (; n < name.n && n < SHOWN; n++) shown[n] = (char)(name.at[n] >= ' ' && name.at[n] < 127 ? name.at[n] : '?');
    shown[n] = 0;
    snprintf(t->why, sizeof t->why, "its tensor %s %s", shown, what);
    return t->why;
}

/* One entry of the header, after its name: {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}. */
static const char *tensor_parse(tensors *all, tensor *t, json *j, size_t data)
{
    static const struct { const char *name; size_t size; int usable; attn_storage storage; } types[] = {
        { "F32", 4, 1, ATTN_F32 }, { "F16", 2, 1, ATTN_F16 }, { "BF16", 2, 1, ATTN_BF16 },
        { "F64", 8, 0, ATTN_F32 }, { "I64", 8, 0, ATTN_F32 }, { "U64", 8, 0, ATTN_F32 }, { "I32", 4, 0, ATTN_F32 },
        { "U32", 4, 0, ATTN_F32 }, { "I16", 2, 0, ATTN_F32 }, { "U16", 2, 0, ATTN_F32 }, { "I8", 1, 0, ATTN_F32 },
        { "U8", 1, 0, ATTN_F32 },  { "BOOL", 1, 0, ATTN_F32 }
    };
    const size_t n_types = sizeof types / sizeof *types;
    size_t type = 0, bytes = 0, rank = 0;
    int seen = 0;
    json_must(j, '{');
    do {
        const text key = json_string(j);
        json_must(j, ':');
        if (is(key, "dtype")) {
            const text name = json_string(j);
            for (type = 0; type < n_types && !is(name, types[type].name); type++) { }
            if (!j->bad && type == n_types) return about(all, t->name, "has a type unknown here");
            seen |= 1;
        } else if (is(key, "shape")) {
            bytes = 1;
            rank = 0;
            t->shape[0] = t->shape[1] = 1;
            json_must(j, '[');
            if (!json_if(j, ']')) {
                do {
                    const unsigned long long n = json_count(j);
                    if (n && bytes > data / n)
                        return about(all, t->name, "has a shape larger than the file: is it cut?");
                    bytes *= (size_t)n;
                    if (rank < 2) t->shape[rank] = (size_t)n;
                    rank++;
                } while (json_if(j, ','));
                json_must(j, ']');
            }
            seen |= 2;
        } else if (is(key, "data_offsets")) {
            json_must(j, '[');
            const unsigned long long from = json_count(j);
            json_must(j, ',');
            const unsigned long long to = json_count(j);
            json_must(j, ']');
            if (j->bad) return "its header is no JSON of the kind that safetensors has";
            if (from > to) return about(all, t->name, "has offsets outside the file");
            if (to > data) return about(all, t->name, "has offsets outside the file: is it cut?");
            t->from = (size_t)from;
            t->to = (size_t)to;
            seen |= 4;
        } else json_value(j, 1);
    } while (json_if(j, ','));
    json_must(j, '}');
    if (j->bad) return "its header is no JSON of the kind that safetensors has";
    if (seen != 7) return about(all, t->name, "lacks a dtype, shape or data_offsets");
    const size_t there = t->to - t->from;
    if (there % types[type].size || there / types[type].size != bytes) {
        return about(all, t->name, "has offsets that do not fit its shape");
    }
    t->usable = types[type].usable && rank <= 2;
    t->storage = types[type].storage;
    return NULL;
}

/* Makes *t from a file; names and data stay in its memory. Returns NULL, or an error. */
static const char *tensors_parse(tensors *t, const unsigned char *bytes, size_t size)
{
    unsigned long long length = 0;
    size_t space = 0;
    memset(t, 0, sizeof *t);
    if (size < 8) return "it is shorter than the length of its header";
    for (int i = 8; i-- > 0;) length = length << 8 | bytes[i];
    if (length > 100000000) return "it is no safetensors file: its header would be longer than any is";
    if (length > size - 8) return "its header would be longer than the file: is it cut?";
    json j = { (const char *)bytes + 8, (const char *)bytes + 8 + length, 0 };
    t->data = bytes + 8 + length;
    if (!json_must(&j, '{')) return "its header does not begin with {";
    if (!json_if(&j, '}')) {
        do {
            const text name = json_string(&j);
            json_must(&j, ':');
            if (is(name, "__metadata__")) { json_value(&j, 0);  continue; }
            if (memchr(name.at, '\\', name.n)) return about(t, name, "has an escape in its name");
            if (t->n == space) {
                tensor *more = (tensor *)realloc(t->list, (space = space ? 2 * space : 64) * sizeof *more);
                if (!more) return "there is not enough memory for its header";
                t->list = more;
            }
            tensor *new_one = &t->list[t->n++];
            memset(new_one, 0, sizeof *new_one);
            new_one->name = name;
            const char *why = tensor_parse(t, new_one, &j, size - 8 - (size_t)length);
            if (why) return why;
        } while (json_if(&j, ','));
        json_must(&j, '}');
    }
    if (j.bad || json_peek(&j)) return "its header is no JSON of the kind that safetensors has";
    if (!t->n) return "it has no tensors";
    qsort(t->list, t->n, sizeof *t->list, by_place);
    for (size_t i = 1; i < t->n; i++) {
        if (t->list[i].from < t->list[i - 1].to) return about(t, t->list[i].name, "overlaps another one");
    }
    qsort(t->list, t->n, sizeof *t->list, by_name);
    for (size_t i = 1; i < t->n; i++) {
        if (!by_name(&t->list[i - 1], &t->list[i])) return about(t, t->list[i].name, "is there twice");
    }
    return NULL;
}

static const tensor *tensors_find(const tensors *t, const char *name)
{
    tensor key;
    memset(&key, 0, sizeof key);
    key.name.at = name;
    key.name.n = strlen(name);
    return (const tensor *)bsearch(&key, t->list, t->n, sizeof key, by_name);
}

/* Reads n values from index `at` on as floats. In the file they may be at any address. */
static void tensor_floats(const tensors *all, const tensor *t, size_t at, size_t n, float *to)
{
    unsigned short some[512];
    const size_t size = t->storage == ATTN_F32 ? sizeof(float) : sizeof *some;
    const unsigned char *from = all->data + t->from + at * size;
    if (t->storage == ATTN_F32) { memcpy(to, from, n * size);  return; }
    for (size_t i = 0, now; i < n; i += now) {
        now = n - i < 512 ? n - i : 512;
        memcpy(some, from + i * size, now * size);
        attn_widen(to + i, some, now, t->storage);
    }
}

#endif
