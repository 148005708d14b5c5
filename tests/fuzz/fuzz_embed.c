/* fuzz_embed.c: examples/embed with untrusted files: a valid safetensors file and vocabulary are drawn and then
 * damaged, in memory that ends with them. Either the file is rejected with a sentence; or every tensor is inside the
 * file, a text becomes valid tokens, and for any weights the vectors of two texts are the same alone, padded and
 * ragged. */
#include "fuzz.h"

#include <setjmp.h>

static jmp_buf refused_at;                /* `exit` jumps here: finite weights may lead to infinities */
static int quiet(FILE *f, const char *format, ...) { return f == NULL || format == NULL; }
#define exit(status) longjmp(refused_at, status)
#define main embed_main
#define ATTN__IMPLEMENTED
#define fprintf quiet
#include "../../examples/embed/embed.c"
#undef fprintf
#undef exit
#undef main

enum { HEADER = 16384 };

typedef struct drawing {
    input *in;
    char header[HEADER];
    int at, kind, layers, first;
    size_t data;
    unsigned char bytes[65536];
} drawing;

static drawing d;

static void put_tensor(const char *prefix, const char *name, int rows, int columns)
{
    static const char *const types[] = { "F32", "F16", "BF16" };
    static const uint32_t odd[] = { 0x7FC00000u, 0x7F800000u, 0x7F7FFFFFu, 0xFF7FFFFFu, 0x00000001u, 0x80000000u };
    const int all = rows * (columns ? columns : 1), type = from_to(d.in, 0, 2), unit = type ? 2 : 4;
    char shape[40];
    int i;
    if (columns) sprintf(shape, "%d,%d", rows, columns);
    else sprintf(shape, "%d", rows);
    MUST(d.at < HEADER - 300 && d.data + (size_t)(all * unit) < sizeof d.bytes);
    d.at += sprintf(d.header + d.at, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
                    d.first ? "" : ",", prefix, name, types[type], shape, (int)d.data, (int)d.data + all * unit);
    d.first = 0;
    for (i = 0; i < all; i++) {
        float x = number(d.in) * (d.kind == 1 ? 1e18f : 0.3f);
        if (d.kind == 2 && d.in->noise % 997u == 0) memcpy(&x, &odd[d.in->noise / 997u % 6u], 4);
        attn_narrow(d.bytes + d.data, &x, 1, (attn_storage)type);
        d.data += (size_t)unit;
    }
}

static void put_norm(const char *prefix, const char *name, int width, int old)
{
    char full[96];
    sprintf(full, "%sLayerNorm.%s", name, old ? "gamma" : "weight");
    put_tensor(prefix, full, width, 0);
    sprintf(full, "%sLayerNorm.%s", name, old ? "beta" : "bias");
    put_tensor(prefix, full, width, 0);
}

static void put_linear(const char *prefix, int of_layer, const char *name, int rows, int columns)
{
    char full[96];
    sprintf(full, "encoder.layer.%d.%s.weight", of_layer, name);
    put_tensor(prefix, full, rows, columns);
    sprintf(full, "encoder.layer.%d.%s.bias", of_layer, name);
    put_tensor(prefix, full, rows, 0);
}

/* A whole file, exactly as long as its heap block, then damaged in one of several ways. */
static unsigned char *checkpoint(input *in, size_t *size, int heads)
{
    static const char marks[] = "[]{},:\"\\0123456789-. eF\n\x01\xFF";
    const int width = heads * from_to(in, 1, 4), hidden = from_to(in, 1, 10), words = from_to(in, 3, 24);
    const int positions = from_to(in, 2, 12), old = coin(in), layers = from_to(in, 0, 2);
    const char *prefix = coin(in) ? "bert." : "";
    char name[64];
    unsigned char *made;
    uint64_t length;
    int i, damage;
    memset(&d, 0, offsetof(drawing, bytes));
    d.in = in, d.first = 1, d.kind = from_to(in, 0, 5);
    d.at = sprintf(d.header, "{%s", coin(in) ? "\"__metadata__\":{\"a\":\"\\\"\"}" : "");
    d.first = d.at == 1;
    put_tensor(prefix, "embeddings.word_embeddings.weight", words, width);
    put_tensor(prefix, "embeddings.position_embeddings.weight", positions, width);
    put_tensor(prefix, "embeddings.token_type_embeddings.weight", 2, width);
    put_norm(prefix, "embeddings.", width, old);
    for (i = 0; i < layers; i++) {
        put_linear(prefix, i, "attention.self.query", width, width);
        put_linear(prefix, i, "attention.self.key", width, width);
        put_linear(prefix, i, "attention.self.value", width, width);
        put_linear(prefix, i, "attention.output.dense", width, width);
        put_linear(prefix, i, "intermediate.dense", hidden, width);
        put_linear(prefix, i, "output.dense", width, hidden);
        sprintf(name, "encoder.layer.%d.attention.output.", i);
        put_norm(prefix, name, width, old);
        sprintf(name, "encoder.layer.%d.output.", i);
        put_norm(prefix, name, width, old);
    }
    d.at += sprintf(d.header + d.at, "}");
    length = (uint64_t)d.at, damage = from_to(in, 0, 9);
    if (damage == 0) length = u8(in) < 128 ? length + u16(in) % 9u - 4u : (uint64_t)u32(in) << 32 | u32(in);
    for (i = damage == 1 ? from_to(in, 1, 3) : 0; i > 0; i--) d.header[u16(in) % (unsigned)d.at] = marks[u8(in) % (sizeof marks - 1)];
    if (damage == 2) {                    /* duplicates or removes a piece of the header */
        const int from = (int)(u16(in) % (unsigned)d.at), n = from_to(in, 1, 200), most = d.at - from < n ? d.at - from : n;
        if (coin(in) && d.at + most < HEADER) memmove(d.header + from + most, d.header + from, (size_t)(d.at - from)), d.at += most;
        else memmove(d.header + from, d.header + from + most, (size_t)(d.at - from - most)), d.at -= most;
        length = (uint64_t)d.at;
    }
    *size = 8 + (size_t)d.at + d.data;
    if (damage == 3) *size = u16(in) % (*size + 1);
    made = (unsigned char *)malloc(*size + (*size == 0));
    if (!made) abort();
    for (i = 0; i < 8 && (size_t)i < *size; i++) made[i] = (unsigned char)(length >> 8 * i);
    if (*size > 8) memcpy(made + 8, d.header, *size - 8 < (size_t)d.at ? *size - 8 : (size_t)d.at);
    if (*size > 8 + (size_t)d.at) memcpy(made + 8 + d.at, d.bytes, *size - 8 - (size_t)d.at);
    return made;
}

static unsigned char *draw_vocabulary(input *in, size_t *size)
{
    static const char *const some[] = { "a", "b", "##b", "ab", "##ab", "##a", "\xC3\xA4", "##", "\xE7\x8C\xAB", ".", "#", "",
                                        "\r", "##\xE1\x85\xA1", "abababab", "##\xFF" };
    static const char *const always[] = { "[UNK]", "[CLS]", "[SEP]" };
    char all[512];
    int i, n = from_to(in, 0, 20), at = 0;
    const int left_out = from_to(in, 0, 15);
    for (i = 0; i < 3; i++) if (i != left_out) at += sprintf(all + at, "%s%s", always[i], coin(in) ? "\n" : "\r\n");
    for (i = 0; i < n; i++) at += sprintf(all + at, "%s\n", some[u8(in) % 16u]);
    *size = (size_t)at - (at > 0 && coin(in));
    unsigned char *exact = (unsigned char *)malloc(*size + (*size == 0));
    if (!exact) abort();
    memcpy(exact, all, *size);
    return exact;
}

static void draw_text(input *in, char *to, int n)
{
    static const char *const some[] = { "a", "b", "\xC3\xA4", " ", "\xE7\x8C\xAB", "\xEA\xB0\x80", ".", "\xCC\x81", "\xF0\x9F\x98\x80", "AB" };
    int at = 0;
    while (at < n) {
        if (coin(in)) { to[at++] = (char)u8(in);  continue; }
        const char *s = some[u8(in) % 10u];
        while (*s && at < n) to[at++] = *s++;
    }
}

static void use(input *in, model *m, const vocabulary *v)
{
    line lines[2], *both[2] = { &lines[0], &lines[1] };
    char *bytes[2];
    float *vectors = floats(4 * (size_t)m->width);
    int i, k, most = from_to(in, 2, m->positions < 12 ? m->positions : 12), long_one = coin(in) && coin(in) ? 130 : 0;
    volatile int step = 0;                /* the current step when longjmp returns */
    memset(lines, 0, sizeof lines);
    for (i = 0; i < 2; i++) {
        const int n = from_to(in, 0, 20) + long_one;
        bytes[i] = (char *)malloc((size_t)n + (n == 0));
        lines[i].ids = (int *)malloc((size_t)most * sizeof(int));
        if (!bytes[i] || !lines[i].ids) abort();
        draw_text(in, bytes[i], n);
        lines[i].t.at = bytes[i], lines[i].t.n = (size_t)n;
        lines[i].n = tokenize(v, lines[i].t, lines[i].ids, most);
        MUST(lines[i].n >= 2 && lines[i].n <= most);
        for (k = 0; k < lines[i].n; k++) MUST(lines[i].ids[k] >= 0 && lines[i].ids[k] < v->words);
        lines[i].vector = vectors + i * m->width;
    }
    if ((size_t)v->words <= m->words->shape[0]) {
        model_room(m, 2, most, NULL);
        if (!setjmp(refused_at)) {
            encode(m, both, 1, 0, coin(in));
            encode(m, both + 1, 1, 0, 0);
            encode(m, both, 1, 0, 0);
            step = 1;
            lines[0].vector += 2 * m->width, lines[1].vector += 2 * m->width;
            encode(m, both, 2, coin(in), 0);
            step = 2;
        }
        MUST(step != 1);                  /* if each text is accepted alone, both are accepted together */
        if (step == 2) MUST(memcmp(vectors, vectors + 2 * m->width, 2 * (size_t)m->width * sizeof *vectors) == 0);
    }
    for (i = 0; i < 2; i++) free(bytes[i]), free(lines[i].ids);
    free(vectors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static model m;
    static vocabulary v;
    input in;
    const char *why;
    unsigned char *bytes, *words;
    size_t n, n_words, i;
    int heads;
    in.at = data, in.end = data + size, in.noise = (uint32_t)size;
    memset(&the_heap, 0, sizeof the_heap);
    heads = from_to(&in, 1, 3);
    bytes = checkpoint(&in, &n, heads);
    why = model_parse(&m, bytes, n);
    m.heads = heads;
    if (n >= 8) {                                                /* reads its header like a JSON file of the folder */
        const text header = { (const char *)bytes + 8, n - 8 < (size_t)d.at ? n - 8 : (size_t)d.at };
        text value;
        if (json_object(header) && json_find(header, "__metadata__", &value))
            MUST(value.at >= header.at && value.at + value.n <= header.at + header.n);
    }
    if (!why) {
        for (i = 0; i < m.file.n; i++) MUST(m.file.data + m.file.list[i].to <= bytes + n);
        m.storage = (attn_storage)from_to(&in, ATTN_F32, ATTN_BF16);
        if (setjmp(refused_at)) DIE("a model that was parsed made the program end");
        why = model_init(&m);
    }
    MUST(!why || (strlen(why) > 10 && strlen(why) < 240));
    if (!why) {
        words = draw_vocabulary(&in, &n_words);
        why = vocabulary_parse(&v, words, n_words);
        MUST(!why || (strlen(why) > 10 && strlen(why) < 160));
        if (!why) use(&in, &m, &v);
        free(v.table);
        free(words);
    }
    model_free(&m);
    free(bytes);
    MUST(the_heap.live == 0);
    return 0;
}
