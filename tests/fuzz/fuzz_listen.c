/* fuzz_listen.c: the file readers of examples/listen: draws valid WAV headers and ggml models and damages them, in
 * memory that ends with the file. A file is rejected with a sentence, or its samples, words and tensors are inside
 * the file. An accepted model computes a window and a token without a fault, for any weights. */
#include "fuzz.h"

#define LISTEN_NO_MAIN
#ifndef ATTN__IMPLEMENTED
#define ATTN__IMPLEMENTED
#endif
#include "../../examples/listen/listen.c"
#include "../listen/tiny_model.h"

/* Copies n bytes to memory of exactly that size. */
static unsigned char *exact(const unsigned char *from, size_t n)
{
    unsigned char *p = (unsigned char *)malloc(n ? n : 1);
    if (!p) abort();
    if (n) memcpy(p, from, n);
    return p;
}

static void inside(const void *p, size_t n, const unsigned char *file_at, size_t size)
{
    const unsigned char *at = (const unsigned char *)p;
    MUST(at >= file_at && n <= size && (size_t)(at - file_at) <= size - n);
}

/* Damages some of the first n bytes, and returns the size of the file, cut or not. */
static size_t damage(input *in, unsigned char *p, size_t n, size_t size)
{
    int times = (int)(u8(in) % 4u);
    while (times-- > 0) {
        const size_t at = u16(in) % n;
        if (coin(in)) p[at] = (unsigned char)u8(in);
        else for (size_t i = 0; i < 4 && at + i < n; i++) p[at + i] = (unsigned char)(coin(in) ? 0 : u8(in));
    }
    return u8(in) % 8u ? size : (size_t)u32(in) % (size + 1);
}

static void fuzz_wav(input *in)
{
    static const int rates[8] = { 16000, 8000, 44100, 48000, 11025, 384000, 4000, 16001 };
    static const int bits[6] = { 8, 16, 24, 32, 32, 64 };
    const int kind = from_to(in, 0, 5), frames = from_to(in, 0, 300), channels = from_to(in, 1, 3);
    bytes b = tiny_wav(rates[u8(in) % 8u], channels, bits[kind], kind < 4 ? 1 : 3, frames, 440);
    const size_t n = damage(in, b.at, b.size < 60 ? b.size : 60, b.size);
    unsigned char *p = exact(b.at, n);
    wav w;
    const char *reason = coin(in) || n < 12 ? wav_open(&w, p, n) : wav_open_raw(&w, p, n);
    free(b.at);
    if (reason) MUST(strlen(reason) > 10 && strlen(reason) < 120);
    else {
        float x[500];
        const int first = from_to(in, -40000, 25000), count = from_to(in, 1, 500);
        inside(w.data, (size_t)w.frames * (size_t)(w.channels * (w.bits / 8)), p, n);
        MUST(w.samples > 0 && w.rate >= 4000 && w.rate <= 384000);
        MUST(wav_read(&w, first, count, x));
        for (int i = 0; i < count; i++) MUST(x[i] > -4e6f && x[i] < 4e6f);      /* a float sample is below 1e6 */
        wav_close(&w);
    }
    free(p);
}

/* A header with few words that are not empty, and a few small tensors: enough for ggml_open, without megabytes. */
static void fuzz_ggml(input *in)
{
    static bytes head;
    static const char *const names[4] = { "decoder.ln.weight", "encoder.blocks.0.attn.query.weight", "x", "conv" };
    bytes b = { NULL, 0, 0, 1 };
    ggml_file f;
    if (!head.at) put_head(&head, 51864);
    put_bytes(&b, head.at, 48 + 8 + TINY_BANDS * 201 * 4);
    put_number(&b, 50256, 4);
    for (int i = 0; i < 50256; i++) put_number(&b, 0, 4);
    const size_t tensors = b.size;
    const int count = from_to(in, 0, 4);
    for (int i = 0; i < count; i++)
        put_tensor(&b, names[u8(in) % 4u], from_to(in, 1, 20), from_to(in, 0, 20), from_to(in, 0, 3), coin(in), 1);
    size_t n = b.size;
    switch (u8(in) % 4u) {
    case 0: n = damage(in, b.at, 64, b.size); break;
    case 1: n = damage(in, b.at + tensors - 4, b.size - tensors + 4, b.size); break;
    case 2: n = damage(in, b.at + 6484, 400, b.size); break;       /* the number and lengths of the words */
    default: break;
    }
    unsigned char *p = exact(b.at, n);
    const char *reason = ggml_open(&f, p, n);
    free(b.at);
    if (reason) MUST(strlen(reason) > 10 && strlen(reason) < GGML_REASON && !f.tensors && !f.words && !f.filters);
    else {
        static float x[20 * 20 * 3 * 4];
        for (int i = 0; i < f.n_words; i++) inside(f.words[i].bytes, (size_t)f.words[i].length, p, n);
        for (int i = 0; i < f.n_tensors; i++) {
            const ggml_tensor *t = &f.tensors[i];
            inside(t->name, t->length, p, n);
            inside(t->data, t->n * (t->type == GGML_F16 ? 2 : 4), p, n);
            if (t->n <= sizeof x / sizeof x[0]) ggml_floats(t, 0, t->n, x);
        }
        const ggml_tensor *found = ggml_need(&f, "decoder.ln", -1, ".weight", from_to(in, 1, 20), 1);
        MUST(found || strlen(f.reason) > 10);
        ggml_close(&f);
    }
    free(p);
}

static void fuzz_model(input *in)
{
    static bytes whole;
    static whisper w;
    static search s;
    if (!whole.at) whole = tiny_model(0);
    unsigned char *p = exact(whole.at, whole.size);
    const size_t tail = whole.size - 6000;
    const size_t n = damage(in, coin(in) ? p + tail : p + 600000, 6000, whole.size);
    unsigned char *cut_off = exact(p, n);
    free(p);
    const char *reason = whisper_open(&w, cut_off, n, 1, (attn_storage)(u8(in) % 4u), NULL);
    if (reason) MUST(strlen(reason) > 10);
    else {
        task t = { { w.start }, 1, 1, 1, 1, 0, NULL };
        float *frames = floats((size_t)(2 * w.rows + 2) * TINY_BANDS);
        choice list[2];
        for (int i = 0; i < (2 * w.rows + 2) * TINY_BANDS; i++) frames[i] = number(in);
        encode(&w, frames);
        fill(&w);
        memset(&s, 0, sizeof s);
        begin(&w, &s, &t);
        const int found = continuations(&w, &s, &t, 1, 1, list);
        for (int i = 0; i < found; i++) MUST(list[i].id >= w.stamps && list[i].id <= w.stamps + 50);
        MUST(!w.failed);
        free(frames);
    }
    whisper_close(&w);
    free(cut_off);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in;
    (void)listener_open, (void)listen_on, (void)listener_close;        /* not used here */
    in.at = data, in.end = data + size, in.noise = (uint32_t)size;
    memset(&the_heap, 0, sizeof the_heap);
    const unsigned what = u8(&in);
    if (what == 255) fuzz_model(&in);
    else if (what % 4 == 0) fuzz_ggml(&in);
    else fuzz_wav(&in);
    MUST(the_heap.live == 0);
    return 0;
}
