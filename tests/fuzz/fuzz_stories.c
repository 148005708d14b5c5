/* fuzz_stories.c: the storyteller of examples/14_stories.c with untrusted files: a valid checkpoint and tokenizer are
 * drawn and then damaged, in memory that ends with them. Either they are rejected with a sentence; or every weight is
 * inside the file, a text becomes valid tokens, and a few steps are computed, for any weights. Packed weights give
 * the same logits; a packed file that is damaged in its header, or cut, is rejected. */
#include "fuzz.h"

/* Control characters must never be printed. */
#undef putchar
#define putchar(c) MUST((unsigned char)(c) >= ' ' || (c) == '\n' || (c) == '\t')
#define main stories_main
#define ATTN__IMPLEMENTED
#include "../../examples/14_stories.c"
#undef main

static void put(unsigned char *at, uint32_t word) { memcpy(at, &word, 4); }

/* Copies the first n of size bytes to a heap block of exactly n bytes. */
static unsigned char *cut(unsigned char *bytes, size_t n)
{
    unsigned char *exact = (unsigned char *)malloc(n ? n : 1);
    if (!exact) abort();
    memcpy(exact, bytes, n);
    free(bytes);
    return exact;
}

static unsigned char *checkpoint(input *in, size_t *size, int *words)
{
    static const uint32_t odd[] = {0x7FC00000u, 0x7F800000u, 0x7F7FFFFFu, 0xFF7FFFFFu, 0x00000001u, 0x80000000u};
    const int kv_heads = from_to(in, 1, 3), heads = kv_heads * from_to(in, 1, 3), head = from_to(in, 1, 6);
    const int dim = heads * head, hidden = from_to(in, 1, 20), layers = from_to(in, 1, 2), own = coin(in);
    const int positions = from_to(in, 1, 40), n = from_to(in, 0, 40), kind = from_to(in, 0, 3);
    const size_t all = (size_t)(n * dim * (1 + own) + layers * (2 * dim + 2 * dim * dim + 2 * dim * kv_heads * head +
                                                                3 * dim * hidden) + dim + positions * head);
    unsigned char *bytes = (unsigned char *)malloc(28 + 4 * all + 4);
    const int header[7] = {dim, hidden, layers, heads, kv_heads, own ? -n : n, positions};
    size_t i;
    if (!bytes) abort();
    for (i = 0; i < 7; i++) put(bytes + 4 * i, (uint32_t)header[i]);
    for (i = 0; i <= all; i++) {
        const float x = number(in) * (kind == 1 ? 1e30f : 1);
        memcpy(bytes + 28 + 4 * i, &x, 4);
        if (kind == 2 && in->noise % 97u == 0) put(bytes + 28 + 4 * i, odd[in->noise / 97u % 6u]);
    }
    *size = 28 + 4 * all;
    switch (from_to(in, 0, 7)) {
    case 0: put(bytes + 4 * (u8(in) % 7u), (uint32_t)odd_size(in)); break;
    case 1: *size = u16(in) % (*size + 5); break;
    case 2: bytes[u8(in) % 28u] ^= (unsigned char)(1u << u8(in) % 8u); break;
    default: break;
    }
    *words = n;
    return cut(bytes, *size);
}

static unsigned char *pieces_of_text(input *in, size_t *size, int words)
{
    static const char *const some[] = {"a", "b", "ab", " ", " a", "aba", "\n", "<0x1B>", "<0x41>", "\033[2J",
                                       "\xC3\xA4", "<0x", "", "abab", "\xE2\x80", "b a"};
    unsigned char *bytes = (unsigned char *)malloc(8 + (size_t)words * 16), *at = bytes + 4;
    int i, damaged = from_to(in, 0, 5);
    if (!bytes) abort();
    put(bytes, u8(in));
    for (i = 0; i < words; i++) {
        const char *text = some[(in->noise = in->noise * 1664525u + 1013904223u) >> 28];
        const float score = number(in);
        const uint32_t length = (uint32_t)strlen(text);
        memcpy(at, &score, 4);
        put(at + 4, damaged == 0 && u8(in) % 4u == 0 ? (uint32_t)odd_size(in) : length);
        memcpy(at + 8, text, length);
        at += 8 + length;
    }
    *size = (size_t)(at - bytes);
    if (damaged == 1) *size = u16(in) % (*size + 4);
    return cut(bytes, *size);
}

static formats any_formats(input *in)
{
    static const attn_storage list[] = { ATTN_F32, ATTN_F16, ATTN_Q8, ATTN_BF16 };
    const unsigned byte = u8(in);
    formats f;
    f.weights = list[byte % 4u];
    f.keys = list[byte / 4u % 4u];
    f.values = list[byte / 16u % 4u];
    return f;
}

static void use(input *in, teller *t, const tokenizer *words)
{
    static const float temperatures[] = {0, 1e-30f, 0.7f, 1e30f};
    char text[24];
    int ids[24 + 2], steps, i, n = from_to(in, 0, 23);
    chance *list = (chance *)room((size_t)t->m.words, sizeof *list);
    unsigned long long seed = 1 + u8(in);
    for (i = 0; i < n; i++) text[i] = (char)(coin(in) ? "ab \n"[u8(in) % 4u] : (int)(1 + u8(in) % 255u));
    text[n] = 0;
    n = encode(words, text, ids);
    MUST(n >= 1 && (size_t)n <= strlen(text) + 2);
    for (i = 0; i < n; i++) {
        MUST(ids[i] >= 0 && ids[i] < t->m.words);
        print_token(words, ids[i], i == 1);
    }
    steps = n + 4 < t->m.positions ? n + 4 : t->m.positions;
    if (n <= steps) {
        teller_init(t, steps, any_formats(in), NULL);
        step(t, ids, n);
        for (i = n; i < steps; i++) {
            int next = pick(t->logits, t->m.words, temperatures[u8(in) % 4u], (double)(u8(in) % 12u) / 10, list, &seed);
            MUST(next >= 0 && next < t->m.words);
            step(t, &next, 1);
        }
        teller_free(t);
    }
    free(list);
}

/* Packs the weights as a file in memory, uses it, and damages it. */
static void pack(input *in, teller *t, const file *checkpoint)
{
    const formats kept = any_formats(in);
    const int token = (int)(u8(in) % (unsigned)t->m.words);
    packing all = {0};
    packed_head head;
    unsigned char *bytes, *exact;
    float *logits = (float *)room((size_t)t->m.words, sizeof *logits);
    void *own;
    size_t size;
    all.measure = 1;
    all_weights(t, &all, kept.weights);
    head = packed_of(checkpoint, kept.weights, all.size);
    size = sizeof head + all.size;
    bytes = aligned_room(size, &own);
    memcpy(bytes, &head, sizeof head);
    t->weights.at = bytes + sizeof head;
    teller_init(t, 1, kept, NULL);
    MUST(t->weights.size == all.size && !packed_check(&head, bytes, size));
    step(t, &token, 1);
    memcpy(logits, t->logits, (size_t)t->m.words * sizeof *logits);
    teller_free(t);
    memset(&t->options, 0, sizeof t->options);
    memset(&t->weights, 0, sizeof t->weights);
    t->weights.at = bytes + sizeof head;
    t->weights.name = "packed";
    teller_init(t, 1, kept, NULL);
    step(t, &token, 1);
    MUST(!memcmp(logits, t->logits, (size_t)t->m.words * sizeof *logits));
    teller_free(t);
    memset(&t->options, 0, sizeof t->options);
    memset(&t->weights, 0, sizeof t->weights);
    if (coin(in)) size = u16(in) % size;
    else bytes[u8(in) % 32u] ^= (unsigned char)(1u << u8(in) % 8u);
    exact = (unsigned char *)malloc(size ? size : 1);
    if (!exact) abort();
    memcpy(exact, bytes, size);
    MUST(packed_check(&head, exact, size) && strlen(packed_check(&head, exact, size)) > 10);
    free(exact);
    free(own);
    free(logits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in;
    teller t;
    tokenizer words;
    const char *why;
    unsigned char *bytes, *pieces;
    size_t n, n_pieces;
    int drawn;
    in.at = data, in.end = data + size, in.noise = (uint32_t)size;
    memset(&the_heap, 0, sizeof the_heap);
    memset(&t, 0, sizeof t);
    bytes = checkpoint(&in, &n, &drawn);
    why = model_parse(&t.m, bytes, n);
    MUST(!why || (strlen(why) > 10 && strlen(why) < 160));
    if (!why) {
        const unsigned char *end = (const unsigned char *)(t.m.classifier + (size_t)t.m.words * (size_t)t.m.dim);
        MUST(end <= bytes + n && (const unsigned char *)t.m.embedding == bytes + 28);
        pieces = pieces_of_text(&in, &n_pieces, drawn);
        why = tokenizer_parse(&words, t.m.words, pieces, n_pieces);
        MUST(!why || (strlen(why) > 10 && strlen(why) < 160));
        if (!why) use(&in, &t, &words);
        if (!why) {
            const file checkpoint = {bytes, n, 0, NULL};
            memset(&t.options, 0, sizeof t.options);
            memset(&t.weights, 0, sizeof t.weights);
            pack(&in, &t, &checkpoint);
        }
        tokenizer_free(&words);
        free(pieces);
    }
    free(bytes);
    MUST(the_heap.live == 0);
    return 0;
}
