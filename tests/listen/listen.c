/* listen.c: the recogniser of examples/listen, through the functions its program uses.
 *
 *   make listen-test                             build/listen-test/fast [folder of model, sounds, expected.json]
 *
 * Without a folder: readers, spectrogram, resampling, damaged files, and a model of random weights, computed in every
 * way. With the folder: the tokens, timestamps, beams and word starts of CTranslate2. The line `bits:` is a hash of
 * logits and words; listen.sh compares it between builds and processors. The last line is `N passed, M failed`. */
#include "../support/harness.h"

#define LISTEN_NO_MAIN
#ifndef ATTN__IMPLEMENTED                 /* it is in attn_impl.c, for every test */
#define ATTN__IMPLEMENTED
#endif
#include "../../examples/listen/listen.c"
#include "tiny_model.h"
#include "rates.h"

static const char *folder;
static uint64_t bits;

static unsigned char *read_file(const char *name, size_t *size)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    unsigned char *p = (unsigned char *)malloc(100u << 20);
    if (!f || !p) {
        printf("FAIL %s cannot be read\n0 passed, 1 failed\n", path);
        exit(1);
    }
    *size = fread(p, 1, 100u << 20, f);
    fclose(f);
    return p;
}

/* ---- WAV files ------------------------------------------------------------------------------------------------- */

/* The largest difference from the sine that tiny_wav writes, except near both ends. */
static double wav_error(const bytes *b, double hertz, double amplitude)
{
    static float x[8000];
    wav w;
    double worst = 0;
    const char *reason = wav_open(&w, b->at, b->size);
    CHECKF(!reason, "%s", reason ? reason : "");
    if (reason) return 1;
    CHECK(wav_read(&w, 0, 8000, x));
    for (int i = 1000; i < 7000; i++) {
        const double e = fabs((double)x[i] - amplitude * sin(6.283185307179586 * hertz * i / 16000));
        worst = e > worst ? e : worst;
    }
    wav_close(&w);
    return worst;
}

static void wav_formats(void)
{
    static const int list[][3] = { { 8, 1, 1 }, { 16, 1, 1 }, { 24, 1, 1 }, { 32, 1, 1 }, { 32, 3, 1 }, { 64, 3, 1 },
                                   { 16, 1, 2 }, { 24, 1, 6 }, { 32, 3, 2 } };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        bytes b = tiny_wav(16000, list[i][2], list[i][0], list[i][1], 8000, 440);
        /* half a step of the format and the rounding of the mean of 6 floats */
        const double step = list[i][1] == 3 || list[i][0] > 24 ? 0 : 1 / pow(2, list[i][0]);
        const double e = wav_error(&b, 440, 0.5);
        CHECKF(e <= step + 1e-7, "%d bits, kind %d, %d channels: off by %g", list[i][0], list[i][1], list[i][2], e);
        free(b.at);
    }
}

/* Tones up to 96 % of the lower band are kept; tones above 8 kHz, which would be heard as others, are removed. */
static void wav_rates(void)
{
    static const int rates[] = { 8000, 11025, 22050, 24000, 32000, 44100, 48000, 44101, 44056, 96000, 192000 };
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        const double high = 0.48 * (rates[i] < 16000 ? rates[i] : 16000);
        for (double tone = 1000; tone <= high; tone = tone < high && tone + 3000 > high ? high : tone + 3000) {
            bytes b = tiny_wav(rates[i], 1, 32, 3, rates[i] / 2 + 100, tone);
            const double kept = wav_error(&b, tone, 0.5);
            CHECKF(kept < 1e-4, "%d Hz: a tone of %g Hz is off by %g", rates[i], tone, kept);       /* 74 dB below 0.5 */
            free(b.at);
        }
        for (double tone = 8010; tone < 8600 && rates[i] > 18000; tone += 250) {
            bytes b = tiny_wav(rates[i], 1, 32, 3, rates[i] / 2 + 100, tone);
            const double gone = wav_error(&b, 0, 0);
            CHECKF(gone < 1e-4, "%d Hz: a tone of %g Hz leaves %g", rates[i], tone, gone);
            free(b.at);
        }
    }
}

static void wav_pieces(void)
{
    float whole[3000], part[3000];
    bytes b = tiny_wav(44100, 2, 16, 1, 20000, 700);
    wav w;
    CHECK(!wav_open(&w, b.at, b.size));
    CHECK(wav_read(&w, -500, 3000, whole));
    for (int at = 0, n; at < 3000; at += n) {
        n = at % 777 + 1 < 3000 - at ? at % 777 + 1 : 3000 - at;
        CHECK(wav_read(&w, at - 500, n, part));
        CHECKF(!memcmp(part, whole + at, (size_t)n * sizeof *part), "%d samples from %d on differ", n, at - 500);
    }
    wav_close(&w);
    free(b.at);
}

static void wav_broken(void)
{
    bytes b = tiny_wav(16000, 1, 16, 1, 100, 440);
    wav w;
    for (size_t n = 0; n < b.size; n++) {
        unsigned char *exact = (unsigned char *)malloc(n ? n : 1);
        memcpy(exact, b.at, n);
        CHECKF(wav_open(&w, exact, n) != NULL, "%zu of %zu bytes are taken for a file", n, b.size);
        free(exact);
    }
    static const struct { int at, value; const char *word; } list[] = {
        { 20, 2, "compressed" }, { 22, 0, "channels" }, { 25, 0, "rate" }, { 34, 12, "bits" }, { 0, 'X', "not a WAV" },
        { 36, 'x', "cut off" } };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const unsigned char was = b.at[list[i].at];
        b.at[list[i].at] = (unsigned char)list[i].value;
        if (list[i].at == 36) b.at[40] = 255;
        const char *reason = wav_open(&w, b.at, b.size);
        CHECKF(reason && strstr(reason, list[i].word), "byte %d: %s", list[i].at, reason ? reason : "no reason");
        b.at[list[i].at] = was;
    }
    free(b.at);
}

/* ---- the spectrogram ------------------------------------------------------------------------------------------- */

static float filters[TINY_BANDS * MEL_BINS];

/* The spectrogram of a block of noise: its samples in x, its frames in got. */
static void mel_of_noise(unsigned noise, float x[(MEL_BLOCK - 1) * MEL_HOP + MEL_POINTS], float *got)
{
    static mel m;
    for (int i = 0; i < TINY_BANDS * MEL_BINS; i++) filters[i] = i % 201 / 26 == i / 201 ? 0.0625f : 0;
    for (int i = 0; i < (MEL_BLOCK - 1) * MEL_HOP + MEL_POINTS; i++) {
        noise = noise * 1664525u + 1013904223u;
        x[i] = (float)(noise >> 16) / 65536 - 0.5f;
    }
    mel_init(&m, filters, TINY_BANDS);
    mel_block(&m, x, got);
}

static void spectrogram(void)
{
    static float x[(MEL_BLOCK - 1) * MEL_HOP + MEL_POINTS], got[MEL_BLOCK * TINY_BANDS];
    mel_of_noise(5, x, got);
    for (int f = 0; f < MEL_BLOCK; f++) {
        double power[MEL_BINS], energy[TINY_BANDS] = {0};
        for (int k = 0; k < MEL_BINS; k++) {
            double re = 0, im = 0;
            for (int i = 0; i < MEL_POINTS; i++) {
                const double turn = 6.283185307179586 * i / MEL_POINTS;
                const double s = (double)x[f * MEL_HOP + i] * (0.5 - 0.5 * cos(turn));
                re += s * cos(turn * k);
                im -= s * sin(turn * k);
            }
            power[k] = re * re + im * im;
        }
        for (int i = 0; i < TINY_BANDS * MEL_BINS; i++)
            energy[i / MEL_BINS] += (double)filters[i] * power[i % MEL_BINS];
        for (int b = 0; b < TINY_BANDS; b++) {
            const double e = fabs((double)got[f * TINY_BANDS + b] - log10(energy[b]));
            CHECKF(e < 2e-6, "frame %d, band %d: off by %g", f, b, e);      /* 8 roundings to float of 2^-24 / ln 10 */
        }
    }
}

static void functions(void)
{
    for (int i = -2000; i <= 2000; i++) {
        const double x = i / 777.0;
        CHECKF(fabs(sine(x) - sin(6.283185307179586 * x)) < 1e-14, "sine of %g turns", x);
        const double p = exp(i / 50.0);
        CHECKF(fabs(logarithm(p) - log(p)) < 1e-14 * (1 + fabs(log(p))), "logarithm of %g", p);
        CHECKF(fabs(square_root(p) - sqrt(p)) <= 4e-16 * sqrt(p), "root of %g", p);
    }
}

/* ---- model files ----------------------------------------------------------------------------------------------- */

static const char *opens(const unsigned char *p, size_t n, char reason[GGML_REASON])
{
    static whisper w;
    const char *r = whisper_open(&w, p, n, 1, ATTN_F16, NULL);
    reason[0] = 0;
    if (r) snprintf(reason, GGML_REASON, "%s", r);
    whisper_close(&w);
    return r ? reason : NULL;
}

static void model_broken(void)
{
    bytes b = tiny_model(0);
    char reason[GGML_REASON];
    CHECKF(!opens(b.at, b.size, reason), "%s", reason);
    for (size_t n = 0; n < b.size; n += n < 100 ? 1 : n / 13) {
        unsigned char *exact = (unsigned char *)malloc(n ? n : 1);
        memcpy(exact, b.at, n);
        CHECKF(opens(exact, n, reason) != NULL, "%zu of %zu bytes are taken for a model", n, b.size);
        free(exact);
    }
    static const struct { size_t at; int value; const char *word; } list[] = {
        { 0, 'x', "not a ggml" }, { 4 + 40, 8, "q5_0" }, { 4 + 40, 200, "unknown" }, { 4 + 12, 3, "heads" },
        { 4, 0, "size" }, { 4 + 8, 15, "heads do not divide" }, { 48, 9, "filters" } };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const unsigned char was = b.at[list[i].at];
        b.at[list[i].at] = (unsigned char)list[i].value;
        CHECKF(opens(b.at, b.size, reason) && strstr(reason, list[i].word), "byte %zu: %s", list[i].at, reason);
        b.at[list[i].at] = was;
    }
    for (size_t i = b.size / 3; i + 20 < b.size; i++) {             /* renames a tensor, which is then missing */
        if (memcmp(b.at + i, "decoder.ln.weight", 17) != 0) continue;
        b.at[i] = 'x';
        CHECKF(opens(b.at, b.size, reason) && strstr(reason, "decoder.ln.weight"), "a missing tensor: %s", reason);
        b.at[i] = 'd';
        b.at[i - 12 + 4] = 2;                                   /* its head: dimensions, length, type, shape */
        CHECK(opens(b.at, b.size, reason));
    }
    memcpy(b.at, "GGUF", 4);
    CHECKF(opens(b.at, b.size, reason) && strstr(reason, "GGUF"), "GGUF: %s", reason);
    free(b.at);
}

/* ---- one answer ------------------------------------------------------------------------------------------------ */

typedef struct way {
    attn_storage storage;
    int at_once, beams, tries;
    const attn_exec *exec;
    attn_backend backend;
} way;

/* Transcribes a WAV file with the settings v; returns the hash of all logits. text: words and their beginnings. */
static unsigned long long listened(const bytes *model, const bytes *sound, const way *v, char *text, size_t size)
{
    static listener l;
    const char *reason = whisper_open(&l.w, model->at, model->size, v->beams, v->storage, v->exec);
    if (!reason) reason = wav_open(&l.sound, sound->at, sound->size);
    CHECKF(!reason, "%s", reason ? reason : "");
    if (reason) return 0;
    l.w.options.attn.backend = v->backend;
    l.what.hash = 1;
    l.at_once = v->at_once;
    l.want_words = 1;
    int more = listener_open(&l, -1, 0, 1) ? 1 : -1;
    l.tries = v->tries;
    while (more > 0) more = listen_on(&l);
    CHECK(more == 0);
    text[0] = 0;
    for (int i = 0; i < l.words.n; i++) {
        const size_t at = strlen(text);
        const cue *q = &l.words.list[i];
        CHECKF(q->begin < q->end, "word %d lasts from %ld to %ld", i, q->begin, q->end);
        snprintf(text + at, size - at, "%ld %ld %s\n", q->begin, q->end, l.words.text + q->text);
    }
    const unsigned long long h = l.hash;
    listener_close(&l);
    return h;
}

static void backwards(void *pool, int n, void (*item)(void *, int), void *arg)
{
    (void)pool;
    while (n--) item(arg, n);
}

static void one_answer(void)
{
    static char text[2][60000];
    const attn_exec exec = { NULL, 3, backwards };
    bytes sound = tiny_wav(22050, 2, 16, 1, 15000, 350);
    for (int multilingual = 0; multilingual < 2; multilingual++) {
        bytes model = tiny_model(multilingual);
        const int beams = multilingual ? 3 : 1, tries = multilingual ? 1 : 2;
        const way plain = { ATTN_F32, 0, beams, tries, NULL, ATTN_AUTO };
        const way others[] = { { ATTN_F16, 0, beams, tries, NULL, ATTN_AUTO },
                               { ATTN_F32, 1, beams, tries, NULL, ATTN_AUTO },
                               { ATTN_F32, 0, beams, tries, &exec, ATTN_AUTO },
                               { ATTN_F16, 1, beams, tries, &exec, ATTN_AUTO } };
        const unsigned long long h = listened(&model, &sound, &plain, text[0], sizeof text[0]);
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            const unsigned long long g = listened(&model, &sound, &others[i], text[1], sizeof text[1]);
            CHECKF(g == h, "%d beams, way %zu: %016llx, not %016llx", beams, i, g, h);
            CHECKF(!strcmp(text[0], text[1]), "%d beams, way %zu: other words", beams, i);
        }
        free(model.at);
    }
    free(sound.at);
}

/* One window, half a second, for `bits:`; the second try draws with a temperature. Then spectrograms of noise, in which
   every cell depends on every rounding. */
static void bits_of_window(void)
{
    static float x[(MEL_BLOCK - 1) * MEL_HOP + MEL_POINTS], got[MEL_BLOCK * TINY_BANDS];
    static char text[60000];
    bytes sound = tiny_wav(22050, 2, 16, 1, 11000, 350), model = tiny_model(0);
    const way plain = { ATTN_F32, 0, 1, 2, NULL, ATTN_AUTO };
    bits = listened(&model, &sound, &plain, text, sizeof text);
    CHECK(strlen(text) > 10);
    for (const char *at = text; *at; at++) bits = (bits ^ (unsigned char)*at) * 1099511628211ull;
    for (unsigned seed = 0; seed < 40; seed++) {
        mel_of_noise(seed, x, got);
        bits = hash_of(bits, got, MEL_BLOCK * TINY_BANDS);
    }
    free(model.at);
    free(sound.at);
}

/* Begin and end of the cues in time[0] become those in time[1]. */
static void word_times(void)
{
    static const struct { int n; long time[2][6]; } list[] = {
        { 3, { { 0, 4, 4, 9, 10, 12 }, { 0, 4, 4, 9, 10, 12 } } },             /* nothing changes */
        { 3, { { 0, 4, 6, 6, 6, 16 }, { 0, 4, 6, 11, 11, 16 } } },             /* two share the time of the second */
        { 2, { { 4, 4, 8, 12 }, { 4, 8, 8, 12 } } },                           /* the time of punctuation */
        { 3, { { 0, 4, 6, 6, 6, 6 }, { 0, 4, 6, 7, 7, 8 } } },                 /* at the end of a window */
        { 3, { { 6, 6, 6, 6, 6, 8 }, { 6, 7, 7, 8, 8, 9 } } },                 /* three in one frame */
        { 3, { { 6, 6, 6, 6, 7, 20 }, { 6, 7, 7, 8, 8, 20 } } } };             /* the next one begins later */
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        cues c = {0};
        cues_add(&c, 3, 3, "before", 6);
        for (int k = 0; k < list[i].n; k++) cues_add(&c, list[i].time[0][2 * k], list[i].time[0][2 * k + 1], "word", 4);
        cues_share(&c, 1);
        CHECK(c.list[0].begin == 3 && c.list[0].end == 3);
        for (int k = 0; k < list[i].n; k++) {
            const cue *q = &c.list[1 + k];
            CHECKF(q->begin == list[i].time[1][2 * k] && q->end == list[i].time[1][2 * k + 1],
                   "case %zu, cue %d: %ld to %ld", i, k, q->begin, q->end);
        }
        cues_free(&c);
    }
}

/* ---- CTranslate2's output -------------------------------------------------------------------------------------- */

/* The numbers of the list `name` after the place where `part` of `file` begins. */
static int numbers_of(const char *json, const char *file, const char *part, const char *name, int *to)
{
    char word[64];
    int n = 0;
    const char *at = json, *const path[3] = { file, part, name };
    for (int i = 0; i < 3; i++) {
        snprintf(word, sizeof word, "\"%s\":", path[i]);
        at = strstr(at, word);
        if (!at) return 0;
        at += strlen(word);
    }
    for (at++; n < 300 && at[-1] != ']'; n++) {
        char *end;
        to[n] = (int)strtol(at, &end, 10);
        at = end + 1;
    }
    return n;
}

static void same_numbers(const char *what, const char *file, const int *got, int n, const int *want, int m)
{
    int i = 0;
    while (i < n && i < m && got[i] == want[i]) i++;
    CHECKF(n > 0 && n == m && i == n, "%s of %s: %d numbers, not %d; the first that differs is number %d", what, file,
           n, m, i);
}

/* The first 30 seconds of each sound, with one beam and with five. */
static void expected(int beams, attn_storage storage)
{
    static const char *const files[] = { "two_cities.wav", "fail_better.wav" };
    static listener l;
    size_t model_size, size;
    unsigned char *model = read_file("ggml-tiny.en.bin", &model_size);
    char *json = (char *)read_file("expected.json", &size);
    json[size] = 0;
    CHECK(!whisper_open(&l.w, model, model_size, beams, storage, NULL));
    for (int f = 0; f < 2; f++) {
        unsigned char *sound = read_file(files[f], &size);
        int want[300], m;
        CHECK(!wav_open(&l.sound, sound, size));
        for (int stamps = 0; stamps < 2; stamps++) {
            memset(&l.what, 0, sizeof l.what);
            l.seek = 0;
            CHECK(listener_open(&l, -1, 0, stamps) && hear(&l));
            encode(&l.w, l.frames);
            fill(&l.w);
            const beam b = find_text(&l.w, &l.s, &l.what);
            m = numbers_of(json, files[f], stamps ? "timestamps" : "text", beams == 1 ? "tokens" : "beam5", want);
            same_numbers(stamps ? "timestamps" : "text", files[f], b.ids, b.n, want, m);
        }
        const long window = l.total < 3000 ? l.total : 3000;
        l.n_ids = numbers_of(json, files[f], "word_times", "tokens", l.ids);
        m = numbers_of(json, files[f], "word_times", "start_frame_20ms", want);
        CHECK(align(&l, (int)(window / 2)));
        if (storage != ATTN_Q8) same_numbers("word starts", files[f], l.starts, l.n_ids, want, m);     /* some move */
        wav_close(&l.sound);
        free(l.samples);
        free(l.frames);
        free(sound);
    }
    CHECK(!l.w.failed);
    free(l.staircase);
    l.samples = l.frames = l.staircase = NULL;
    listener_close(&l);
    free(model);
    free(json);
}

static void expected_greedy(void) { expected(1, ATTN_F32); }
static void expected_beams(void) { expected(5, ATTN_F32); }
static void expected_eight(void) { expected(1, ATTN_Q8); expected(5, ATTN_Q8); }

/* The text of a sound of `length` seconds at 16 kHz after a change of its rate (rates_change), a line with times for
   each segment. Frequencies from `band` on are removed, or mirrored. */
static void segments_at(listener *l, const double *sound, int length, int rate, int band, int mirror, char *text,
                        size_t size)
{
    bytes b = { NULL, 0, 0, 0 };
    const int n = rate * length;
    double *x = rates_change(sound, 16000 * length, n, band * length, mirror);
    put_wav_head(&b, rate, 1, 32, 3, n);
    for (int i = 0; x && i < n; i++) put_float(&b, (float)x[i]);
    CHECK(x && !wav_open(&l->sound, b.at, b.size));
    memset(&l->what, 0, sizeof l->what);
    l->seek = 0;
    l->segments.n = 0;
    int more = listener_open(l, -1, 0, 1) ? 1 : -1;
    while (more > 0) more = listen_on(l);
    CHECK(more == 0);
    text[0] = 0;
    for (int i = 0; i < l->segments.n; i++) {
        const cue *q = &l->segments.list[i];
        const size_t at = strlen(text);
        snprintf(text + at, size - at, "%ld %ld %s\n", q->begin, q->end, l->segments.text + q->text);
    }
    wav_close(&l->sound);
    free(l->samples);
    free(l->frames);
    l->samples = l->frames = NULL;
    free(b.at);
    free(x);
}

/* Both recordings at other rates: the same segments as at 16 kHz with the same band. */
static void expected_rates(void)
{
    static const char *const files[] = { "two_cities.wav", "fail_better.wav" };
    static const int rates[] = { 8000, 11025, 22050, 24000, 44100, 48000 };
    static char want[20000], got[20000];
    static listener l;
    size_t model_size, size;
    unsigned char *model = read_file("ggml-tiny.en.bin", &model_size);
    CHECK(!whisper_open(&l.w, model, model_size, 1, ATTN_F16, NULL));
    for (int f = 0; f < 2; f++) {
        unsigned char *file = read_file(files[f], &size);
        wav w;
        CHECK(!wav_open(&w, file, size));
        const int length = (int)(w.samples / 80000 + 1) * 5, n = 16000 * length;       /* n without large primes */
        float *x = (float *)malloc((size_t)n * sizeof *x);
        double *sound = (double *)malloc((size_t)n * sizeof *sound);
        CHECK(wav_read(&w, 0, n, x));
        for (int i = 0; i < n; i++) sound[i] = (double)x[i];
        for (int r = 0, last = 0; r < 6; r++) {
            const int band = rates[r] < 16000 ? rates[r] / 2 : 8000;
            if (band != last) segments_at(&l, sound, length, 16000, band, 0, want, sizeof want);
            segments_at(&l, sound, length, rates[r], band, 1, got, sizeof got);
            CHECKF(!strcmp(want, got), "%s at %d Hz:\n%sinstead of\n%s", files[f], rates[r], got, want);
            last = band;
        }
        wav_close(&w);
        free(x);
        free(sound);
        free(file);
    }
    CHECK(!l.w.failed);
    listener_close(&l);
    free(model);
}

static const test_case tests[] = {
    { "functions", functions, "a series that is cut too early" },
    { "wav formats", wav_formats, "a sign, a byte order, an offset or a channel that is read wrongly" },
    { "wav rates", wav_rates, "a resampler that shifts, mirrors high tones into speech, or changes the level" },
    { "wav pieces", wav_pieces, "samples that depend on where a window begins" },
    { "wav broken", wav_broken, "a damaged sound file that is believed" },
    { "spectrogram", spectrogram, "a wrong root of unity, window or order of frames" },
    { "model broken", model_broken, "a damaged model file that is believed" },
    { "word times", word_times, "words without a duration, which no player shows" },
    { "one answer", one_answer, "threads, half weights or the text at once that change bits or words" },
    { "bits", bits_of_window, "a sum that a compiler may fuse, a call of libm" },
    { "expected greedy", expected_greedy, "a layer, rule or filter that differs from Whisper's" },
    { "expected beams", expected_beams, "beams that mix, end too early or are compared wrongly" },
    { "expected in 8 bits", expected_eight, "weights in 8 bits that change a token" },
    { "expected rates", expected_rates, "a resampler that removes or adds what the recogniser hears" },
    { 0 },
};

/* Writes the random model and a sound to a folder, for tests of the program. */
static int write_files(const char *to)
{
    const bytes list[3] = { tiny_model(0), tiny_model(1), tiny_wav(16000, 1, 16, 1, 9000, 350) };
    static const char *const names[3] = { "tiny.en.bin", "tiny.bin", "sine.wav" };
    for (int i = 0; i < 3; i++) {
        char path[1000];
        snprintf(path, sizeof path, "%s/%s", to, names[i]);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(list[i].at, 1, list[i].size, f) != list[i].size || fclose(f)) return 1;
        free(list[i].at);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "-write")) return write_files(argv[2]);
    int counts[3] = { 0, 0, 0 };
    folder = argc > 1 && strcmp(argv[1], "-") != 0 ? argv[1] : NULL;
    for (const test_case *t = tests; t->name; t++) {
        int wanted = argc <= 2;
        if (!folder && !strncmp(t->name, "expected", 8)) continue;
        for (int i = 2; i < argc; i++) wanted |= strstr(t->name, argv[i]) != NULL;
        if (wanted) counts[test_run("listen", t)]++;
    }
    printf("bits: %016llx\n%d passed, %d failed\n", (unsigned long long)bits, counts[TEST_PASSED], counts[TEST_FAILED]);
    return counts[TEST_FAILED] != 0;
}
