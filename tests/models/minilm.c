/* minilm.c: examples/embed on a published sentence-embedding model: its token numbers, its vectors, the same bits in
 * any batch; and damaged files, each rejected with a sentence that names the damage. */
#include "models.h"

#define main embed_main
#define ATTN__IMPLEMENTED
#include "../../examples/embed/embed.c"
#undef main

enum { MOST = 32, HEADS = 12, SHORT = 2 };                       /* sentence 2 is short: for slow builds */

static unsigned char *bytes;
static size_t size, vocabulary_size;
static unsigned char *vocabulary_bytes, *expected;
static vocabulary words_of;
static line sentences[MOST], *batch[MOST];
static int count, published_ids[MOST][512], published_n[MOST], most;
static float *published[MOST], *reference[MOST];

/* {"max_tokens": .., "sentences": [{"text": .., "ids": [..], "embedding": [..]}, ..]}, without escapes */
static void read_expected(size_t n, int width)
{
    const text all = { (const char *)expected, n };
    text list, value;
    if (!json_find(all, "max_tokens", &value)) model_broken("minilm/expected.json", "has no max_tokens");
    most = (int)strtol(value.at, NULL, 10);
    if (!json_find(all, "sentences", &list)) model_broken("minilm/expected.json", "has no sentences");
    json j = { list.at, list.at + list.n, 0 };
    json_must(&j, '[');
    do {
        const text one = json_value(&j, 0);
        line *l = &sentences[count];
        if (j.bad || count == MOST || !json_find(one, "text", &l->t) || !json_find(one, "ids", &value)) break;
        if (memchr(l->t.at, '\\', l->t.n)) model_broken("minilm/expected.json", "has an escape in a text");
        for (json k = { value.at + 1, value.at + value.n, 0 }; !k.bad; json_if(&k, ',')) {
            if (json_peek(&k) == ']') break;
            published_ids[count][published_n[count]++] = (int)json_count(&k);
        }
        if (!json_find(one, "embedding", &value)) break;
        published[count] = guard_floats((size_t)width);
        const char *at = value.at + 1;
        for (int i = 0; i < width; i++, at++) {
            char *end;
            published[count][i] = (float)strtod(at, &end);
            at = end;
        }
        count++;
    } while (json_if(&j, ','));
    if (count < 14) model_broken("minilm/expected.json", "is not whole");
}

/* A model of these bytes, with room for all sentences at once. */
static void open_model(model *m, const unsigned char *from, size_t n, attn_storage storage,
                       const attn_exec *exec)
{
    const char *why = model_parse(m, from, n);
    if (!why) {
        m->heads = HEADS;
        m->storage = storage;
        why = model_init(m);
    }
    if (why) model_broken("minilm/model.safetensors", why);
    model_room(m, MOST, 128, exec);
}

/* All sentences in batches of a given size, into separate vectors. */
static void encode_some(model *m, int from, int to, int together, int padded)
{
    for (int i = from; i < to; i += together) {
        encode(m, batch + i, to - i < together ? to - i : together, padded, 0);
    }
}

/* Each vector is that of the sentence alone, bit for bit. */
static void same_as_alone(int from, int to, const char *how)
{
    for (int i = from; i < to; i++) {
        CHECKF(same_bits(sentences[i].vector, reference[i], 384), "sentence %d %s has other bits", i, how);
    }
}

static void prepare(void)
{
    static int done;
    model m;
    size_t n;
    if (done++) return;
    bytes = model_file("minilm/model.safetensors", &size);
    vocabulary_bytes = model_file("minilm/vocab.txt", &vocabulary_size);
    expected = model_file("minilm/expected.json", &n);
    if (!vocabulary_bytes || !expected) model_broken("minilm", "lacks vocab.txt or expected.json");
    const char *why = vocabulary_parse(&words_of, vocabulary_bytes, vocabulary_size);
    if (why) model_broken("minilm/vocab.txt", why);
    open_model(&m, bytes, size, ATTN_F16, NULL);
    if (m.width != 384 || m.layers != 6) model_broken("minilm/model.safetensors", "has other sizes");
    read_expected(n, m.width);
    for (int i = 0; i < count; i++) {
        line *l = batch[i] = &sentences[i];
        l->ids = (int *)malloc((size_t)most * sizeof(int));
        l->n = tokenize(&words_of, l->t, l->ids, most);
        l->vector = guard_floats((size_t)m.width);
        reference[i] = guard_floats((size_t)m.width);
    }
    encode_some(&m, SHORT, SHORT + 1, 1, 0);
    memcpy(reference[SHORT], sentences[SHORT].vector, 384 * sizeof(float));
    model_bits = hash_bits(model_bits, reference[SHORT], 384);
    model_free(&m);
}

static void as_published(int i)
{
    double worst = 0, length = 0;
    for (int c = 0; c < 384; c++) {
        const double d = fabs((double)sentences[i].vector[c] - published[i][c]);
        if (!(d <= worst)) worst = d;
        length += (double)sentences[i].vector[c] * sentences[i].vector[c];
    }
    /* attn.h's layers around exact arithmetic meet these to 2.8e-7 */
    CHECKF(worst <= 1e-6, "sentence %d is off by %g", i, worst);
    CHECKF(fabs(length - 1) <= 1e-6, "sentence %d has length^2 %g", i, length);
}

static void token_numbers(void)
{
    prepare();
    for (int i = 0; i < count; i++) {
        CHECKF(sentences[i].n == published_n[i], "sentence %d: %d tokens", i, sentences[i].n);
        for (int k = 0; k < sentences[i].n; k++) {
            CHECKF(sentences[i].ids[k] == published_ids[i][k], "sentence %d: token %d", i, k);
        }
    }
    int few[5];                                                  /* cut: the first tokens, and [SEP] for the last one */
    CHECK(tokenize(&words_of, sentences[0].t, few, 5) == 5);
    CHECK(!memcmp(few, published_ids[0], 4 * sizeof *few) && few[4] == published_ids[0][published_n[0] - 1]);
}

static void one_sentence(void)
{
    prepare();
    memcpy(sentences[SHORT].vector, reference[SHORT], 384 * sizeof(float));
    as_published(SHORT);
}

static void one_answer(void)
{
    attn_backend list[8];
    model m;
    prepare();
    open_model(&m, bytes, size, ATTN_F16, NULL);
    encode_some(&m, 0, count, 1, 0);
    for (int i = 0; i < count; i++) {
        as_published(i);
        if (i != SHORT) memcpy(reference[i], sentences[i].vector, 384 * sizeof(float));
    }
    same_as_alone(0, count, "alone again");
    encode_some(&m, 0, count, count, 1);
    same_as_alone(0, count, "in a padded batch");
    encode_some(&m, 0, count, 5, 1);
    same_as_alone(0, count, "in padded batches of five");
    encode_some(&m, 0, count, count, 0);
    same_as_alone(0, count, "in a batch without padding");
    for (int threads = 2; threads <= 5; threads += 3) {
        const attn_exec exec = test_exec(threads);
        model_free(&m);
        open_model(&m, bytes, size, ATTN_F16, &exec);
        for (int padded = 0; padded < 2; padded++) {
            encode_some(&m, 0, count, count, padded);
            same_as_alone(0, count, "on threads");
        }
    }
    m.options.attn.exec = NULL;
    for (int n = way_backends(list), i = 0; i < n; i++) {
        if (list[i] == ATTN_SCALAR) continue;                    /* another build of models.sh tests this */
        m.options.attn.backend = list[i];
        encode_some(&m, 0, count, count, 1);
        same_as_alone(0, count, attn_backend_name(list[i]));
    }
    model_free(&m);
    open_model(&m, bytes, size, ATTN_F32, NULL);
    encode_some(&m, 0, count, count, 0);
    same_as_alone(0, count, "with weights widened to float");
    model_free(&m);
}

/* ---- other files with the same content -------------------------------------------------------------------------- */

/* A tensor's name in another dialect: a prefix, and norms as old checkpoints have them. */
static int rename_tensor(char *to, text name, const char *prefix)
{
    int n = sprintf(to, "%s%.*s", prefix, (int)name.n, name.at);
    if (*prefix && n > 16 && !strcmp(to + n - 16, "LayerNorm.weight")) n += sprintf(to + n - 6, "gamma") - 6;
    else if (*prefix && n > 14 && !strcmp(to + n - 14, "LayerNorm.bias")) n += sprintf(to + n - 4, "beta") - 4;
    return n;
}

/* The same file with all tensors in another type and with prefixed names; and after a header that ends at an odd
   address. */
static unsigned char *rewritten(const unsigned char *from, size_t n, attn_storage storage, const char *prefix, size_t *to)
{
    static const char *const types[] = { "F32", "F16", "BF16" };
    tensors t;
    char name[256];
    size_t at = 0;
    if (tensors_parse(&t, from, n)) model_broken("a rewritten file", "is damaged");
    char *header = (char *)malloc(t.n * 300 + 64), *h = header;
    float *some = (float *)malloc((size_t)30522 * 384 * sizeof *some);
    unsigned char *data = (unsigned char *)malloc(2 * size), *whole;
    h += sprintf(h, "{ \"__metadata__\": {\"format\":\"p\\\"t\"},\n");
    for (size_t i = 0; i < t.n; i++) {
        const tensor *x = &t.list[i];
        const size_t all = x->shape[0] * x->shape[1], unit = storage == ATTN_F32 ? 4 : 2;
        rename_tensor(name, x->name, prefix);
        h += sprintf(h, "%s\"%s\" : {\"shape\":[%d", i ? "," : "", name, (int)x->shape[0]);
        if (x->shape[1] > 1) h += sprintf(h, ", %d", (int)x->shape[1]);
        h += sprintf(h, "],\"data_offsets\":[%llu,%llu],\"dtype\":\"%s\"}", (unsigned long long)at,
                     (unsigned long long)(at + all * unit), types[storage]);
        tensor_floats(&t, x, 0, all, some);
        attn_narrow(data + at, some, all, storage);
        at += all * unit;
    }
    h += sprintf(h, "}");
    if ((h - header) % 2 == 0) h += sprintf(h, " ");
    const size_t length = (size_t)(h - header);
    whole = (unsigned char *)malloc(8 + length + at);
    for (int i = 0; i < 8; i++) whole[i] = (unsigned char)(length >> 8 * i);
    memcpy(whole + 8, header, length);
    memcpy(whole + 8 + length, data, at);
    *to = 8 + length + at;
    free(header);  free(some);  free(data);  free(t.list);
    return whole;
}

static void other_files(void)
{
    model m;
    size_t n, n_rounded;
    prepare();
    unsigned char *other = rewritten(bytes, size, ATTN_F32, "bert.", &n);
    for (int storage = ATTN_F32; storage <= ATTN_F16; storage++) {
        open_model(&m, other, n, (attn_storage)storage, NULL);
        encode_some(&m, SHORT, SHORT + 1, 1, 0);
        same_as_alone(SHORT, SHORT + 1, "from a file of F32 with other names");
        model_free(&m);
    }
    free(other);

    unsigned char *rounded = rewritten(bytes, size, ATTN_BF16, "", &n_rounded);
    float first[384];
    open_model(&m, rounded, n_rounded, ATTN_BF16, NULL);
    encode_some(&m, SHORT, SHORT + 1, 1, 0);
    memcpy(first, sentences[SHORT].vector, sizeof first);
    double dot = 0;
    for (int i = 0; i < 384; i++) dot += (double)first[i] * published[SHORT][i];
    CHECKF(dot > 0.999 && dot < 0.9999999, "bfloat16 is the same sentence, rounded: %g", dot);
    model_free(&m);
    other = rewritten(rounded, n_rounded, ATTN_F32, "", &n);
    open_model(&m, other, n, ATTN_F32, NULL);
    encode_some(&m, SHORT, SHORT + 1, 1, 0);
    CHECK(same_bits(first, sentences[SHORT].vector, 384));
    model_free(&m);
    free(other);
    free(rounded);
}

/* ---- damaged files ---------------------------------------------------------------------------------------------- */

/* Returns the error for the file after the first `old` in its header has been replaced by `now`; NULL: none. */
static const char *said_of(const char *old, const char *now, char *said)
{
    const size_t length = bytes[0] | (size_t)bytes[1] << 8, data = 8 + length, was = strlen(old), is_now = strlen(now);
    const unsigned char *at = bytes + 8;
    while (at + was <= bytes + data && memcmp(at, old, was)) at++;
    if (at + was > bytes + data) model_broken("the header of minilm", old);
    const size_t n = size - was + is_now, before = (size_t)(at - bytes);
    unsigned char *damaged = (unsigned char *)guard_alloc(n);
    memcpy(damaged, bytes, before);
    memcpy(damaged + before, now, is_now);
    memcpy(damaged + before + is_now, at + was, size - before - was);
    const size_t changed = length - was + is_now;
    for (int i = 0; i < 8; i++) damaged[i] = (unsigned char)(changed >> 8 * i);
    model m;
    const char *why = model_parse(&m, damaged, n);
    m.heads = HEADS;
    if (!why) why = model_init(&m);
    snprintf(said, 300, "%s", why ? why : "nothing");
    model_free(&m);
    guard_free(damaged);
    return why;
}

static void damaged_files(void)
{
    static const struct { const char *old, *now, *words; } cases[] = {
        { "{", "[", "does not begin with {" },
        { "{\"", "{,\"", "no JSON" },
        { "\"F16\"", "\"F99\"", "word_embeddings.weight has a type unknown here" },
        { "\"F16\"", "\"I16\"", "word_embeddings.weight is neither of F32 nor F16" },
        { "\"dtype\"", "\"dtipe\"", "word_embeddings.weight lacks a dtype" },
        { "[0,23440896]", "[0,23440894]", "word_embeddings.weight has offsets that do not fit its shape" },
        { "[0,23440896]", "[2,23440898]", "position_embeddings.weight overlaps another one" },
        { "[0,23440896]", "[0,99999999999]", "word_embeddings.weight has offsets outside the file" },
        { "[0,23440896]", "[23440896,0]", "word_embeddings.weight has offsets outside the file" },
        { "[0,23440896]", "[0,18446744073709551616]", "no JSON" },
        { "[0,23440896]", "[-2,23440894]", "no JSON" },
        { "[0,23440896]", "[0]", "no JSON" },
        { "[30522,384]", "[30522,385]", "word_embeddings.weight has offsets that do not fit its shape" },
        { "[30522,384]", "[4294967296,4294967296]", "word_embeddings.weight has a shape larger than the file" },
        { "[30522,384]", "[15261,768]", "word_embeddings.weight is 15261 x 768, where 0 x 384 was expected" },
        { "[30522,384]", "[2,15261,384]", "word_embeddings.weight is neither of" },
        { "[512,384]", "[384,512]", "position_embeddings.weight is 384 x 512" },
        { "[1536,384]", "[384,1536]", "encoder.layer.0.intermediate.dense.weight is 384 x 1536" },
        { "embeddings.position_embeddings", "embeddings.word_embeddings", "word_embeddings.weight is there twice" },
        { "encoder.layer.3.output.dense.bias", "encoder.layer.3.output.dense.boss", "layer.3.output.dense.bias is missing" },
        { "encoder.layer.5.attention.self.key.weight", "encoder.layer.9.attention.self.key.weight",
          "layer.5.attention.self.key.weight is missing" },
        { "embeddings.LayerNorm.weight", "embeddings.\\u004cayerNorm.weight", "has an escape in its name" },
        { "{\"", "{\"__metadata__\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]],\"", "no JSON" },
    };
    char said[300];
    prepare();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        said_of(cases[i].old, cases[i].now, said);
        CHECKF(strstr(said, cases[i].words) != NULL, "%s instead of %s: %s", cases[i].now, cases[i].old, said);
    }
    said_of("{\"", "{\"__metadata__\":{\"a\":\"b\"},\"", said);
    CHECKF(!strcmp(said, "nothing"), "__metadata__ is no damage: %s", said);
}

static void damaged_numbers(void)
{
    model m;
    prepare();
    const size_t length = bytes[0] | (size_t)bytes[1] << 8, data = 8 + length;
    const size_t places[] = { 0, 2 * 384 * 20000, 23440896 + 6, 23835648, size - data - 2 };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        for (int what = 0; what < 2; what++) {
            unsigned char *at = bytes + data + places[i], old[2];
            memcpy(old, at, 2);
            at[0] = 0;
            at[1] = what ? 0x7E : 0xFC;                          /* NaN, -infinity */
            const char *why = model_parse(&m, bytes, size);
            m.heads = HEADS;
            if (!why) why = model_init(&m);
            CHECKF(why && strstr(why, "has NaN or infinity in it"), "at %d: %s", (int)places[i], why ? why : "nothing");
            model_free(&m);
            memcpy(at, old, 2);
        }
    }
    for (size_t n = 0; n < 9; n++) {
        const char *why = model_parse(&m, bytes, n);
        CHECKF(why && strstr(why, n < 8 ? "shorter than the length" : "longer than the file: is it cut?"), "%d bytes", (int)n);
        model_free(&m);
    }
    const char *why = model_parse(&m, bytes, size - 1);
    CHECK(why && strstr(why, "offsets outside the file: is it cut?"));
    model_free(&m);
    bytes[7] = 0x80;                                             /* a header of 2^63 bytes */
    why = model_parse(&m, bytes, size);
    CHECK(why && strstr(why, "no safetensors file"));
    model_free(&m);
    bytes[7] = 0;
}

SUITE(minilm) = {
    { "one_sentence", one_sentence, "an encoder that computes something else than its authors published" },
    { "token_numbers", token_numbers, "a rule of uncased BERT that is read in another way" },
    { "one_answer", one_answer, "a neighbour in a batch, padding, threads or 16 bits that change a bit of a vector" },
    { "other_files", other_files, "a type, a prefix, old names or an odd address of a checkpoint read as something else" },
    { "damaged_files", damaged_files, "a hostile header that is believed, or refused without the name of what is wrong" },
    { "damaged_numbers", damaged_numbers, "a NaN, or an end that comes too early, that is not noticed" },
    { 0 }
};
