/* tiny_model.h: a Whisper model of random weights in memory, in the format of whisper.cpp's files: 16 numbers wide, one
 * layer each, windows of 0.64 s. Its text means nothing; its logits must be the same everywhere. */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

enum { TINY_WIDTH = 16, TINY_HEADS = 2, TINY_ROWS = 32, TINY_BANDS = 8 };

typedef struct bytes { unsigned char *at; size_t size, room; unsigned noise; } bytes;

static void put_bytes(bytes *b, const void *p, size_t n)
{
    if (b->size + n > b->room) {
        b->room = 2 * (b->size + n);
        b->at = (unsigned char *)realloc(b->at, b->room);
        if (!b->at) abort();
    }
    memcpy(b->at + b->size, p, n);
    b->size += n;
}

static void put_number(bytes *b, unsigned long x, int n)
{
    for (int i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)(x >> 8 * i);
        put_bytes(b, &byte, 1);
    }
}

static void put_float(bytes *b, float x)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    put_number(b, bits, 4);
}

/* A tensor of random numbers around `middle`, of half precision if half is set. d0 is the innermost dimension. */
static void put_tensor(bytes *b, const char *name, int d0, int d1, int d2, int half, float middle)
{
    const int shape[3] = { d0, d1, d2 }, dims = d2 ? 3 : d1 ? 2 : 1;
    int n = 1;
    put_number(b, (unsigned long)dims, 4);
    put_number(b, strlen(name), 4);
    put_number(b, (unsigned long)half, 4);
    for (int i = 0; i < dims; i++) {
        put_number(b, (unsigned long)shape[i], 4);
        n *= shape[i];
    }
    put_bytes(b, name, strlen(name));
    for (int i = 0; i < n; i++) {
        const unsigned noise = (b->noise = b->noise * 1664525u + 1013904223u) >> 16;
        if (half) put_number(b, (noise & 0x83FFu) | (noise & 0x0C00u) | 0x3000u, 2);     /* 1/8 to 2, both signs */
        else put_float(b, middle + ((float)noise / 65536 - 0.5f) / 2);
    }
}

static void put_block(bytes *b, const char *prefix, int cross)
{
    static const char *const list[] = { "attn_ln.weight", "attn_ln.bias", "attn.query.weight", "attn.query.bias",
        "attn.key.weight", "attn.value.weight", "attn.value.bias", "attn.out.weight", "attn.out.bias" };
    char name[100];
    const int d = TINY_WIDTH;
    for (int c = 0; c <= cross; c++) {
        for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
            const int square = i == 2 || i == 4 || i == 5 || i == 7;
            snprintf(name, sizeof name, "%s.blocks.0.%s%s", prefix, c ? "cross_" : "", list[i]);
            put_tensor(b, name, d, square ? d : 0, 0, square, i == 0);
        }
    }
    snprintf(name, sizeof name, "%s.blocks.0.mlp_ln.weight", prefix);
    put_tensor(b, name, d, 0, 0, 0, 1);
    snprintf(name, sizeof name, "%s.blocks.0.mlp_ln.bias", prefix);
    put_tensor(b, name, d, 0, 0, 0, 0);
    snprintf(name, sizeof name, "%s.blocks.0.mlp.0.weight", prefix);
    put_tensor(b, name, d, 4 * d, 0, 1, 0);
    snprintf(name, sizeof name, "%s.blocks.0.mlp.0.bias", prefix);
    put_tensor(b, name, 4 * d, 0, 0, 0, 0);
    snprintf(name, sizeof name, "%s.blocks.0.mlp.2.weight", prefix);
    put_tensor(b, name, 4 * d, d, 0, 1, 0);
    snprintf(name, sizeof name, "%s.blocks.0.mlp.2.bias", prefix);
    put_tensor(b, name, d, 0, 0, 0, 0);
}

/* The header, mel filters and vocabulary. Words are "!" to "~", " ", then "a0", " a1", ... */
static void put_head(bytes *b, int vocabulary)
{
    const int sizes[11] = { vocabulary, TINY_ROWS, TINY_WIDTH, TINY_HEADS, 1, 448, TINY_WIDTH, TINY_HEADS, 1,
                            TINY_BANDS, 1 };
    put_number(b, 0x67676d6c, 4);
    for (int i = 0; i < 11; i++) put_number(b, (unsigned long)sizes[i], 4);
    put_number(b, TINY_BANDS, 4);
    put_number(b, 201, 4);
    for (int i = 0; i < TINY_BANDS * 201; i++) put_float(b, i % 201 / 26 == i / 201 ? 0.0625f : 0);
    put_number(b, 50256, 4);
    for (int i = 0; i < 50256; i++) {
        char word[16];
        snprintf(word, sizeof word, i < 94 ? "%c" : i == 94 ? " " : i % 2 ? "a%d" : " a%d", i < 94 ? i + '!' : i);
        put_number(b, strlen(word), 4);
        put_bytes(b, word, strlen(word));
    }
}

/* The bytes of a file; free b.at. multilingual: 1 or 0. */
static bytes tiny_model(int multilingual)
{
    bytes b = { NULL, 0, 0, 7 };
    const int d = TINY_WIDTH, vocabulary = 51864 + multilingual;
    put_head(&b, vocabulary);
    put_tensor(&b, "encoder.positional_embedding", d, TINY_ROWS, 0, 0, 0);
    put_tensor(&b, "encoder.conv1.weight", 3, TINY_BANDS, d, 1, 0);
    put_tensor(&b, "encoder.conv1.bias", 1, d, 0, 0, 0);
    put_tensor(&b, "encoder.conv2.weight", 3, d, d, 1, 0);
    put_tensor(&b, "encoder.conv2.bias", 1, d, 0, 0, 0);
    put_block(&b, "encoder", 0);
    put_tensor(&b, "encoder.ln_post.weight", d, 0, 0, 0, 1);
    put_tensor(&b, "encoder.ln_post.bias", d, 0, 0, 0, 0);
    put_tensor(&b, "decoder.positional_embedding", d, 448, 0, 0, 0);
    put_tensor(&b, "decoder.token_embedding.weight", d, vocabulary, 0, 1, 0);
    put_block(&b, "decoder", 1);
    put_tensor(&b, "decoder.ln.weight", d, 0, 0, 0, 1);
    put_tensor(&b, "decoder.ln.bias", d, 0, 0, 0, 0);
    return b;
}

/* The head of a WAV file of n frames. kind 1: integers, 3: floats. */
static void put_wav_head(bytes *b, int rate, int channels, int bits, int kind, int n)
{
    const unsigned long frame = (unsigned long)(channels * bits / 8), size = frame * (unsigned long)n;
    put_bytes(b, "RIFF", 4);
    put_number(b, 36 + size, 4);
    put_bytes(b, "WAVEfmt ", 8);
    put_number(b, 16, 4);
    put_number(b, (unsigned long)kind, 2);
    put_number(b, (unsigned long)channels, 2);
    put_number(b, (unsigned long)rate, 4);
    put_number(b, (unsigned long)rate * frame, 4);
    put_number(b, frame, 2);
    put_number(b, (unsigned long)bits, 2);
    put_bytes(b, "data", 4);
    put_number(b, size, 4);
}

/* A WAV file of n frames; every channel holds the same sine of `hertz` with amplitude 0.5. */
static bytes tiny_wav(int rate, int channels, int bits, int kind, int n, double hertz)
{
    bytes b = { NULL, 0, 0, 0 };
    put_wav_head(&b, rate, channels, bits, kind, n);
    for (int i = 0; i < n * channels; i++) {
        const double x = 0.5 * sine(hertz * (i / channels) / rate);
        const double full = bits == 8 ? 128 : bits == 16 ? 32768 : bits == 24 ? 8388608 : 2147483648.0;
        const double scaled = x * full;
        const long long whole = (long long)(scaled < 0 ? scaled - 0.5 : scaled + 0.5) + (bits == 8 ? 128 : 0);
        if (kind == 3 && bits == 32) put_float(&b, (float)x);
        else if (kind == 3) put_bytes(&b, &x, 8);
        else put_number(&b, (unsigned long)whole, bits / 8);
    }
    return b;
}
#endif
