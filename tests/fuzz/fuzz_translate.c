/* fuzz_translate.c: the translator of examples/translate with an untrusted file, drawn valid and then damaged, in memory
 * that ends with it, and with untrusted texts. It is rejected with a sentence without leaks; or texts become valid pieces,
 * every mistake that can be selected terminates, and the output is UTF-8 without control characters. */
#include "fuzz.h"

#define TRANSLATE_NO_MAIN
#define ATTN__IMPLEMENTED
#include "../../examples/translate/translate.c"

static void put(unsigned char *at, uint32_t word, int bytes)
{
    int i;
    for (i = 0; i < bytes; i++) at[i] = (unsigned char)(word >> 8 * i);
}

static void checksum(unsigned char *bytes, size_t size)
{
    uint32_t check = 2166136261u;
    size_t i;
    for (i = 0; i + 4 < size; i++) check = (check ^ bytes[i]) * 16777619u;
    if (size >= 4) put(bytes + size - 4, check, 4);
}

static unsigned char *file(input *in, size_t *size)
{
    const int heads = from_to(in, 1, 3), width = 2 * heads * from_to(in, 1, 3), joins = from_to(in, 0, 30);
    const int encoder = from_to(in, 1, 2), decoder = from_to(in, 1, 2), ff = from_to(in, 1, 20), notice = from_to(in, 0, 9);
    const int kind = from_to(in, 0, 3), square = 4 * width * width + 2 * width * ff + 2 * width;
    const int n = (JOINS + joins) * width + (encoder + decoder) * square + decoder * (width + 4 * width * width) + 2 * width;
    const int header[8] = {1, notice, JOINS + joins, width, heads, encoder, decoder, ff};
    unsigned char *bytes = (unsigned char *)malloc((size_t)(44 + notice + 4 * joins + 2 * n) + 5), *at = bytes + 40 + notice, *exact;
    int i, k;
    if (!bytes) abort();
    memset(bytes, 0, 40 + (size_t)notice);
    memcpy(bytes, "attn-tr1", 8);
    for (i = 0; i < 8; i++) put(bytes + 8 + 4 * i, (uint32_t)header[i], 4);
    for (i = 0; i < joins; i++) {
        for (k = 0; k < 2; k++, at += 2) {
            static const unsigned char some[] = "ab \xc3\xa4\x1b!";
            const uint32_t noise = (in->noise = in->noise * 1664525u + 1013904223u) >> 16;
            put(at, noise % 3 == 0 && i > 0 ? (uint32_t)JOINS + noise / 3 % (uint32_t)i : (uint32_t)BYTES + some[noise / 3 % 7], 2);
        }
    }
    for (i = 0; i < n; i++, at += 2) {
        const uint32_t noise = (in->noise = in->noise * 1664525u + 1013904223u) >> 16;
        put(at, kind == 1 && noise % 7 == 0 ? 0x7BFFu : (noise & 0x87FFu) | 0x3000u, 2);      /* 65504; about 1/8 to 1/4 */
    }
    *size = (size_t)(at - bytes) + 4;
    switch (from_to(in, 0, 9)) {
    case 0: put(bytes + 8 + 4 * (u8(in) % 8u), (uint32_t)odd_size(in), 4); break;
    case 1: *size = u16(in) % (*size + 5); break;
    case 2: bytes[u8(in) % 40u] ^= (unsigned char)(1u << u8(in) % 8u); break;
    case 3: put(bytes + 40 + notice + 2 * (u8(in) % (2u * (unsigned)joins + 2u)), (uint32_t)u16(in), 2); break;
    default: break;
    }
    if (u8(in) != 77) checksum(bytes, *size);
    exact = (unsigned char *)malloc(*size ? *size : 1);
    if (!exact) abort();
    memcpy(exact, bytes, *size);
    free(bytes);
    return exact;
}

/* Every byte below 0x80 is printable, and the others form whole letters. */
static void readable(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    int i, more;
    while (*s) {
        MUST((*s >= ' ' && *s < 0x7F) || (*s >= 0xC2 && *s < 0xF5));
        more = *s < 0x80 ? 0 : *s < 0xE0 ? 1 : *s < 0xF0 ? 2 : 3;
        for (i = 1; i <= more; i++) MUST((s[i] & 0xC0) == 0x80);
        MUST(!(s[0] == 0xC2 && s[1] < 0xA0));
        s += 1 + more;
    }
}

static void use(input *in, translator *t)
{
    static float seen[2 * 3 * MOST * MOST];
    char text[200], shown[LONGEST];
    int ids[MOST], found[MOST], i, n, m, length = from_to(in, 0, u8(in) % 8u ? 20 : 199);
    mistake wrong;
    const long calls = the_heap.calls;
    for (i = 0; i < length; i++) text[i] = (char)(coin(in) ? "ab \xc3\xa4!"[u8(in) % 6u] : (int)(1 + u8(in) % 255u));
    text[length] = 0;
    n = translator_split(t, text, ids);
    MUST(n >= 0 && n <= MOST);
    for (i = 0; i < n; i++) MUST(ids[i] >= END && ids[i] < t->words && (ids[i] == END) == (i == n - 1));
    translator_join(t, ids, n, shown, from_to(in, 1, LONGEST));
    readable(shown);
    wrong.pads = coin(in) ? odd_size(in) : from_to(in, 0, 9);
    wrong.padding = from_to(in, 0, 2);
    wrong.causal = coin(in);
    wrong.pad_value = coin(in) ? NAN : coin(in) ? INFINITY : 0.0f;
    if (translator_read(t, ids, n, coin(in) ? NULL : &wrong) == ATTN_OK) {
        m = translator_search(t, from_to(in, 1, BEAMS), found);
        MUST(m >= 0 && m <= MOST);
        for (i = 0; i < m; i++) MUST(found[i] >= END && found[i] < t->words);
        MUST(translator_watch(t, found, m, seen) == ATTN_OK);
        translator_join(t, found, m, shown, (int)sizeof shown);
        readable(shown);
    } else MUST(wrong.pads < 0 || wrong.pads > MOST - n);
    MUST(the_heap.calls == calls);                              /* translating allocates nothing */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const translator zero;
    input in;
    translator t;
    size_t n;
    const char *why;
    unsigned char *bytes;
    in.at = data, in.end = data + size, in.noise = (uint32_t)size;
    memset(&the_heap, 0, sizeof the_heap);
    the_heap.fail_at = u8(&in) == 200 ? u8(&in) : 0;
    bytes = file(&in, &n);
    why = translator_load(&t, bytes, n, size % 2 ? ATTN_Q8 : ATTN_F16);
    free(bytes);
    the_heap.fail_at = 0;
    if (why) MUST(strlen(why) > 10 && memcmp(&t, &zero, sizeof t) == 0);
    else {
        use(&in, &t);
        translator_free(&t);
    }
    MUST(the_heap.live == 0);
    return 0;
}
