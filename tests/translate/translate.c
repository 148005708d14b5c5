/* translate.c: the translator of examples/translate with its trained model, through the functions its program uses.
 *
 *   make translate-test                          build/translate-test/fast model.bin pairs.txt [word ...]
 *
 * Tests its translations, its quality on held-out sentences, and every other form of computing them: the same bits. And
 * untrusted files. The line `bits:` is a hash of the results; translate.sh compares it between builds and processors. The last line is `N passed, M failed`. */
#include "../support/harness.h"

#define TRANSLATE_NO_MAIN
#define ATTN__IMPLEMENTED                 /* it is in attn_impl.c, for every test */
#include "../../examples/translate/translate.c"

/* Limits near the committed results (51.1 and 0.884), with room for processors without fma, whose bits differ. */
#define LEAST_BLEU 48.0
#define MOST_LOSS 0.92

static unsigned char *model;
static size_t model_size;
static translator the;                    /* loaded once */
static translator in_half, eight;         /* the same, and with weights and caches in 8 bits */
static char pairs[64][2][200];            /* German, English: held out when the model was trained */
static int n_pairs;
static uint64_t bits;

static void say(const char *german, int beams, char *english, int size)
{
    int ids[MOST], found[MOST];
    const int n = translator_split(&the, german, ids);
    CHECK(n > 0 && translator_read(&the, ids, n, NULL) == ATTN_OK);
    const int m = translator_search(&the, beams, found);
    translator_join(&the, found, m, english, size);
    if (english[0] == ' ') memmove(english, english + 1, strlen(english));
}

/* ---- the output ------------------------------------------------------------------------------------------------ */
static void sentences(void)
{
    static const char *const list[][2] = {
#include "sentences.h"
    };
    char english[LONGEST];
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        say(list[i][0], BEAMS, english, sizeof english);
        CHECKF(strcmp(english, list[i][1]) == 0, "\"%s\" -> \"%s\", not \"%s\"", list[i][0], english, list[i][1]);
    }
}

/* Words and marks; "don't" is one word. As bleu.py does it. Returns how many; each is cut off at its end. */
static int words_of(const char *text, char words[64][40])
{
    int n = 0;
    while (*text && n < 64) {
        int length = 0;
        if (*text == ' ') { text++;  continue; }
        while ((unsigned char)text[length] >= 0x80 || text[length] == '\'' || (text[length] >= '0' && text[length] <= '9') ||
               ((text[length] | 32) >= 'a' && (text[length] | 32) <= 'z')) length++;
        if (length == 0) length = 1;
        snprintf(words[n++], 40, "%.*s", length, text);
        text += length;
    }
    return n;
}

static int same_words(char a[64][40], char b[64][40], int n)
{
    for (int i = 0; i < n; i++) if (strcmp(a[i], b[i]) != 0) return 0;
    return 1;
}

/* Returns how many n-grams of `said` are also in `wanted`, each counted as often as it occurs there. */
static int shared(char said[64][40], int n_said, char wanted[64][40], int n_wanted, int n)
{
    int taken[64] = {0}, found = 0;
    for (int i = 0; i + n <= n_said; i++) {
        for (int j = 0; j + n <= n_wanted; j++) {
            if (taken[j] || !same_words(said + i, wanted + j, n)) continue;
            taken[j] = 1;
            found++;
            break;
        }
    }
    return found;
}

static double bleu_of_pairs(int beams)
{
    double found[4] = {0}, there[4] = {0}, length = 0, wanted_length = 0, sum = 0;
    for (int i = 0; i < n_pairs; i++) {
        static char said[64][40], wanted[64][40];
        char english[LONGEST];
        say(pairs[i][0], beams, english, sizeof english);
        const int a = words_of(english, said), b = words_of(pairs[i][1], wanted);
        length += a;
        wanted_length += b;
        for (int n = 1; n <= 4; n++) {
            found[n - 1] += shared(said, a, wanted, b, n);
            there[n - 1] += a >= n ? a - n + 1 : 0;
        }
    }
    for (int n = 0; n < 4; n++) sum += log(found[n] / there[n]) / 4;
    return 100 * exp(sum + (wanted_length > length ? 1 - wanted_length / length : 0));
}

static void bleu(void)
{
    const double four = bleu_of_pairs(4), one = bleu_of_pairs(1);
    printf("  BLEU of %d held-out sentences: %.1f with four beams, %.1f with one\n", n_pairs, four, one);
    CHECKF(n_pairs == 50, "%d pairs", n_pairs);
    CHECKF(four >= LEAST_BLEU, "%.2f with four beams", four);
    CHECKF(one >= LEAST_BLEU - 4, "%.2f with one beam", one);
}

/* -log p of a reference, per piece, which training minimises. */
static double loss_of_pairs(void)
{
    double sum = 0;
    int pieces = 0;
    for (int i = 0; i < n_pairs; i++) {
        int ids[MOST], to[MOST];
        const int n = translator_split(&the, pairs[i][0], ids), m = translator_split(&the, pairs[i][1], to);
        CHECK(translator_read(&the, ids, n, NULL) == ATTN_OK);
        for (int k = 0; k < m; k++) {
            int tokens[BEAMS];
            for (int b = 0; b < BEAMS; b++) tokens[b] = k ? to[k - 1] : BEGIN;
            CHECK(translator_step(&the, tokens) == ATTN_OK);
            sum -= (double)the.log_p[to[k]];
            pieces++;
        }
    }
    return sum / pieces;
}

static void loss(void)
{
    const double a_piece = loss_of_pairs();
    printf("  %.3f a piece\n", a_piece);
    CHECKF(a_piece < MOST_LOSS, "%.3f a piece", a_piece);
}

/* Makes `the` the translator in 8 bits, which is loaded on first use. */
static void use_eight(void)
{
    in_half = the;
    if (!eight.words) CHECK(!translator_load(&eight, model, model_size, ATTN_Q8));
    the = eight;
}

/* Weights and caches in 8 bits: the held-out sentences have the same translations, others exactly these. */
static void in_8_bits(void)
{
    static const char *const list[][3] = {                     /* German; in half; in 8 bits */
        { "Der Hund spielt gern im Garten.", "The dog likes the garden.", "The dog likes farden." },
        { "Unser Lehrer kauft heute Brot und Milch.", "Our teaches milk today.", "Our teaches and Milk." },
        { "Ein alter Mann f\303\244hrt morgen nach Hause.", "A old man is home tomorrow.", "A old man drives tomorrow." },
        { "Die Frau dort trinkt jeden Morgen Tee.", "The woman wearing tea.", "The wife is little there." },
    };
    char before[LONGEST], english[LONGEST];
    const double before_loss = loss_of_pairs();
    for (int i = 0; i < n_pairs; i++) {
        say(pairs[i][0], BEAMS, before, sizeof before);
        use_eight();
        say(pairs[i][0], BEAMS, english, sizeof english);
        the = in_half;
        CHECKF(strcmp(before, english) == 0, "%s: \"%s\", in 8 bits \"%s\"", pairs[i][0], before, english);
    }
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        say(list[i][0], BEAMS, before, sizeof before);
        use_eight();
        say(list[i][0], BEAMS, english, sizeof english);
        the = in_half;
        CHECKF(strcmp(before, list[i][1]) == 0, "%s: \"%s\"", list[i][0], before);
        CHECKF(strcmp(english, list[i][2]) == 0, "%s: in 8 bits \"%s\"", list[i][0], english);
    }
    use_eight();
    const double more = loss_of_pairs() - before_loss;
    the = in_half;
    printf("  in 8 bits %+.4f a piece\n", more);
    CHECKF(fabs(more) < 0.01, "-log p changes by %.4f", more);
}

/* For a head, the piece of the sentence with the largest weight when each piece is written. */
static void alignment(void)
{
    static const struct { const char *german, *english; int layer, head; const char *at; } list[] = {
#include "alignments.h"
    };
    static float seen[1 << 20];
    for (size_t k = 0; k < sizeof list / sizeof list[0]; k++) {
        int ids[MOST], to[MOST];
        char got[200] = "";
        const int n = translator_split(&the, list[k].german, ids), m = translator_split(&the, list[k].english, to);
        CHECK(translator_read(&the, ids, n, NULL) == ATTN_OK);
        CHECK(translator_watch(&the, to, m, seen) == ATTN_OK);
        const float *w = seen + ((list[k].layer - 1) * the.heads + list[k].head - 1) * m * n;
        for (int i = 0; i < m; i++) {
            int best = 0;
            double sum = 0;
            for (int j = 0; j < n; j++) {
                sum += (double)w[i * n + j];
                if (w[i * n + j] > w[i * n + best]) best = j;
            }
            CHECKF(fabs(sum - 1) < 1e-6, "row %d sums to %.8f", i, sum);
            snprintf(got + strlen(got), sizeof got - strlen(got), "%d ", best);
        }
        CHECKF(strcmp(got, list[k].at) == 0, "%s: %s, not %s", list[k].german, got, list[k].at);
    }
}

/* ---- pieces --------------------------------------------------------------------------------------------------- */
static void pieces(void)
{
    static const struct { const char *text; int n, ids[24]; } list[] = {          /* split as in train.py */
#include "pieces.h"
    };
    int ids[MOST];
    char text[LONGEST];
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const int n = translator_split(&the, list[i].text, ids);
        CHECKF(n == list[i].n && memcmp(ids, list[i].ids, (size_t)n * sizeof *ids) == 0, "%s: %d pieces", list[i].text, n);
    }
    for (int i = 0; i < n_pairs; i++) {
        for (int side = 0; side < 2; side++) {
            const int n = translator_split(&the, pairs[i][side], ids);
            translator_join(&the, ids, n, text, sizeof text);
            CHECKF(text[0] == ' ' && strcmp(text + 1, pairs[i][side]) == 0, "%s came back as %s", pairs[i][side], text);
        }
    }
    /* bytes that are no letters are shown as numbers; several spaces count as one; a text that is too long gives 0,
       not a part of it */
    char odd[] = "\xff\x1b[2J \xc3 \xed\xa0\x80  \t\xc3\xa4\n", many[LONGEST + 1];
    translator_join(&the, ids, translator_split(&the, odd, ids), text, sizeof text);
    CHECKF(strcmp(text, " <FF> [2J <C3> <ED><A0><80> \xc3\xa4") == 0, "%s", text);
    CHECK(translator_split(&the, " \t\n", ids) == 1 && ids[0] == END);
    memset(many, '~', LONGEST);
    many[LONGEST] = 0;
    CHECK(translator_split(&the, many, ids) == 0);
    for (int n = 1; n < 12; n++) {
        memset(text, '#', sizeof text);
        translator_join(&the, ids, translator_split(&the, "Hallo!", ids), text, n);
        CHECKF(strlen(text) < (size_t)n && text[n] == '#', "%d bytes of room", n);
    }
}

/* ---- one answer ----------------------------------------------------------------------------------------------- */

/* log_p and attention of every step, with `to` written. Rows of beam 0. log_p [m][words], seen [m][decoder][heads][source]. */
static void by_steps(const int *to, int m, float *log_p, float *seen)
{
    for (int k = 0; k < m; k++) {
        int tokens[BEAMS];
        for (int b = 0; b < BEAMS; b++) tokens[b] = b ? to[(k + b) % m] : k ? to[k - 1] : BEGIN;  /* for b > 0: any */
        CHECK(translator_step(&the, tokens) == ATTN_OK);
        memcpy(log_p + k * the.words, the.log_p, (size_t)the.words * sizeof(float));
        for (int l = 0; l < the.decoder; l++) {
            const int row = the.heads * the.source;
            memcpy(seen + (k * the.decoder + l) * row, the.seen + l * BEAMS * row, (size_t)row * sizeof(float));
        }
    }
}

/* The same in one call: causal self-attention over all rows, without a cache, with the layers of the translator.  */
static void at_once(const float *memory, int n, const int *to, int m, float *log_p, float *seen)
{
    static float x[MOST * 1024];
    float *kept = the.x, *row = (float *)malloc((size_t)(the.heads * m * n) * sizeof(float)), lse, out;
    the.x = x;
    for (int k = 0; k < m; k++) embed(&the, x + k * the.width, k ? to[k - 1] : BEGIN, 0);
    for (int l = 0; l < the.decoder; l++) {
        const one_layer *a = &the.layers[the.encoder + l];
        attn_mha_opts causal = {0}, cross = {0};
        causal.attn.causal = ATTN_CAUSAL_TOP_LEFT;
        cross.attn.weights = row;
        CHECK(attn_mha_self(&a->self, the.z, norm(&the, x, a->norm1, m), 1, m, &causal) == ATTN_OK);
        add(&the, the.z, m);
        CHECK(attn_mha_cross(&a->cross, the.z, norm(&the, x, a->norm2, m), 1, m, memory, n, &cross) == ATTN_OK);
        add(&the, the.z, m);
        CHECK(feed_forward(&the, a, m) == ATTN_OK);
        for (int h = 0; h < the.heads; h++)
            for (int k = 0; k < m; k++)
                memcpy(seen + ((k * the.decoder + l) * the.heads + h) * n, row + (h * m + k) * n, (size_t)n * sizeof(float));
    }
    norm(&the, x, the.decoder_norm, m);
    CHECK(attn_linear_run(&the.last, log_p, the.y, m, 0, NULL) == ATTN_OK);
    for (int k = 0; k < m; k++) {
        float *p = log_p + k * the.words;
        attn_args a = softmax_args(&the, 0, &out, &lse);
        a.k = a.v = p;
        CHECK(attn_sdpa(&a) == ATTN_OK);
        for (int w = 0; w < the.words; w++) p[w] -= lse;
    }
    the.x = kept;
    free(row);
}

static void one_answer(void)
{
    const size_t words = (size_t)the.words, cells = (size_t)(the.decoder * the.heads) * MOST;
    float *log_p = (float *)malloc(40 * words * sizeof(float)), *again = (float *)malloc(40 * words * sizeof(float));
    float *seen = (float *)malloc(40 * cells * sizeof(float)), *seen_again = (float *)malloc(40 * cells * sizeof(float));
    float *memory = (float *)malloc((size_t)(MOST * the.width) * sizeof(float));
    for (int i = 0; i < n_pairs; i += 10) {
        static const mistake pads = { 9, 0, 0, 0 }, nan_pads = { 9, 0, 0, NAN }, open = { 9, 1, 0, 0 }, causal = { 0, 0, 1, 0 };
        int ids[MOST], to[MOST];
        const int n = translator_split(&the, pairs[i][0], ids), m = translator_split(&the, pairs[i][1], to);
        const size_t n_seen = (size_t)(m * the.decoder * the.heads * n), n_p = (size_t)m * words;
        CHECK(m <= 40 && translator_read(&the, ids, n, NULL) == ATTN_OK);
        memcpy(memory, the.y, (size_t)(n * the.width) * sizeof(float));
        by_steps(to, m, log_p, seen);
        bits = hash_bits(hash_bits(bits, log_p, n_p), seen, n_seen);
        at_once(memory, n, to, m, again, seen_again);
        CHECKF(same_bits(log_p, again, n_p) && same_bits(seen, seen_again, n_seen), "%s: all at once", pairs[i][0]);
        for (int k = 0; k < 2; k++) {                            /* padding, and its contents, change nothing */
            CHECK(translator_read(&the, ids, n, k ? &nan_pads : &pads) == ATTN_OK);
            by_steps(to, m, again, seen_again);
            CHECKF(same_bits(log_p, again, n_p), "%s: padding %d", pairs[i][0], k);
        }
        CHECK(translator_read(&the, ids, n, &open) == ATTN_OK);  /* and visible padding would be noticed */
        by_steps(to, m, again, seen_again);
        CHECK(!same_bits(log_p, again, n_p));
        CHECK(translator_read(&the, ids, n, &causal) == ATTN_OK);
        by_steps(to, m, again, seen_again);
        CHECK(!same_bits(log_p, again, n_p));
        for (int j = 1; j < n; j++) CHECKF(seen_again[j] == 0, "the first row sees column %d", j);
    }
    free(log_p), free(again), free(seen), free(seen_again), free(memory);
}

/* In 8 bits: the bits, and padding and its contents change none. */
static void one_answer_in_8_bits(void)
{
    static const mistake nan_pads = { 9, 0, 0, NAN };
    use_eight();
    const size_t words = (size_t)the.words, cells = (size_t)(the.decoder * the.heads) * MOST;
    float *log_p = (float *)malloc(80 * words * sizeof(float)), *seen = (float *)malloc(40 * cells * sizeof(float));
    for (int i = 0; i < n_pairs; i += 10) {
        int ids[MOST], to[MOST];
        const int n = translator_split(&the, pairs[i][0], ids), m = translator_split(&the, pairs[i][1], to);
        const size_t n_p = (size_t)m * words;
        CHECK(m <= 40 && translator_read(&the, ids, n, NULL) == ATTN_OK);
        by_steps(to, m, log_p, seen);
        bits = hash_bits(hash_bits(bits, log_p, n_p), seen, (size_t)(m * the.decoder * the.heads * n));
        CHECK(translator_read(&the, ids, n, &nan_pads) == ATTN_OK);
        by_steps(to, m, log_p + n_p, seen);
        CHECKF(same_bits(log_p, log_p + n_p, n_p), "%s: padding", pairs[i][0]);
    }
    free(log_p), free(seen);
    the = in_half;
}

/* Padded encoder rows of several sentences at once are those of each alone. */
static void in_a_batch(void)
{
    enum { BATCH = 3, ROWS = 24 };
    float *x = (float *)malloc(BATCH * ROWS * 1024 * sizeof(float)), *y = (float *)malloc(BATCH * ROWS * 1024 * sizeof(float));
    int lengths[BATCH];
    for (int b = 0; b < BATCH; b++) {
        int ids[MOST];
        lengths[b] = translator_split(&the, pairs[7 * b][0], ids);
        CHECK(lengths[b] > 0 && lengths[b] <= ROWS);
        for (int i = 0; i < ROWS; i++) embed(&the, x + (b * ROWS + i) * the.width, i < lengths[b] ? ids[i] : PAD, 0);
    }
    attn_mha_opts o = {0};
    o.attn.k_lengths = lengths;
    CHECK(attn_mha_self(&the.layers[0].self, y, x, BATCH, ROWS, &o) == ATTN_OK);
    for (int b = 0; b < BATCH; b++) {
        float alone[ROWS * 256];
        const size_t row = (size_t)the.width;
        CHECK(the.width <= 256);
        CHECK(attn_mha_self(&the.layers[0].self, alone, x + b * ROWS * the.width, 1, lengths[b], NULL) == ATTN_OK);
        CHECK(same_bits(alone, y + b * ROWS * the.width, (size_t)lengths[b] * row));
    }
    free(x), free(y);
}

/* One beam is greedy, with a separate loop; a beam that survives a reorder has the bits of a separate run. */
static void beams(void)
{
    for (int i = 0; i < n_pairs; i++) {
        int ids[MOST], found[MOST], next[BEAMS] = { BEGIN, BEGIN, BEGIN, BEGIN };
        const int n = translator_split(&the, pairs[i][0], ids);
        CHECK(translator_read(&the, ids, n, NULL) == ATTN_OK);
        const int m = translator_search(&the, 1, found);
        CHECK(m > 0 && translator_read(&the, ids, n, NULL) == ATTN_OK);
        for (int k = 0; k < m; k++) {
            CHECK(translator_step(&the, next) == ATTN_OK);
            int best = END;
            for (int w = END; w < the.words; w++) if (the.log_p[2 * the.words + w] > the.log_p[2 * the.words + best]) best = w;
            CHECKF(best == found[k], "%s: piece %d", pairs[i][0], k);
            next[0] = next[2] = next[3] = best;
            next[1] = 300 + k;                                   /* a neighbour with wrong tokens */
            const int parents[BEAMS] = { 2, k % 2, 3, 0 };
            if (k % 2 == 0) CHECK(translator_follow(&the, parents) == ATTN_OK);
        }
        CHECK(found[m - 1] == END);
    }
}

/* ---- untrusted files ------------------------------------------------------------------------------------------ */
static void checksum(unsigned char *bytes, size_t size)
{
    unsigned long check = 2166136261u;
    for (size_t i = 0; i < size - 4; i++) check = ((check ^ bytes[i]) * 16777619u) & 0xFFFFFFFFu;
    for (size_t i = 0; i < 4; i++) bytes[size - 4 + i] = (unsigned char)(check >> 8 * i);
}

/* The first size bytes, in a heap block of exactly this size, are rejected with a sentence. */
static void refused(const unsigned char *bytes, size_t size, const char *what, int at)
{
    static const translator zero;
    translator t;
    unsigned char *exact = (unsigned char *)malloc(size ? size : 1);
    memcpy(exact, bytes, size);
    const char *why = translator_load(&t, exact, size, ATTN_F16);
    CHECKF(why && strlen(why) > 15 && strchr(why, ' '), "%s, %d: %s", what, at, why ? why : "accepted");
    CHECKF(memcmp(&t, &zero, sizeof t) == 0, "%s, %d: something is left", what, at);
    if (!why) translator_free(&t);
    free(exact);
}

static void damaged(void)
{
    static const unsigned values[] = { 0, 1, 2, 3, 5, 258, 259, 260, 4097, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF };
    const size_t notice = word_at(model + 12, 4), joins = 40 + notice, weights = joins + 4 * (size_t)(the.words - JOINS);
    const size_t cuts[] = { 0, 1, 7, 8, 11, 12, 39, 40, 43, 44, joins - 1, joins, joins + 1, weights - 1, weights, weights + 1,
                            model_size / 2, model_size - 5, model_size - 4, model_size - 1 };
    unsigned char *copy = (unsigned char *)malloc(model_size + 4);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        refused(model, cuts[i], "cut off", (int)cuts[i]);
        if (cuts[i] < 4) continue;
        memcpy(copy, model, cuts[i]);
        checksum(copy, cuts[i]);
        refused(copy, cuts[i], "cut off, with a checksum", (int)cuts[i]);
    }
    for (int more = 1; more <= 4; more++) {
        memcpy(copy, model, model_size);
        memset(copy + model_size, 0, 4);
        checksum(copy, model_size + (size_t)more);
        refused(copy, model_size + (size_t)more, "longer", more);
    }
    for (int word = 0; word < 10; word++) {                          /* the magic, the version and each size */
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            memcpy(copy, model, model_size);
            for (int i = 0; i < 4; i++) copy[4 * word + i] = (unsigned char)(values[v] >> 8 * i);
            if (memcmp(copy, model, 40) == 0) continue;
            refused(copy, model_size, "header", word);
            checksum(copy, model_size);
            if (word == 6 && (values[v] == 1 || values[v] == 2)) continue;  /* same weights, fewer heads */
            refused(copy, model_size, "header, with a checksum", word);
        }
    }
    for (size_t at = 8; at < model_size; at += model_size / 40) {    /* one bit anywhere */
        memcpy(copy, model, model_size);
        copy[at] ^= 16;
        refused(copy, model_size, "one bit", (int)at);
    }
    static const struct { size_t from_joins; unsigned value; } pieces_of[] = { { 0, 0 }, { 0, 259 }, { 2, 2 }, { 400, 359 }, { 402, 65535 } };
    for (size_t i = 0; i < sizeof pieces_of / sizeof pieces_of[0]; i++) {
        memcpy(copy, model, model_size);
        copy[joins + pieces_of[i].from_joins] = (unsigned char)pieces_of[i].value;
        copy[joins + pieces_of[i].from_joins + 1] = (unsigned char)(pieces_of[i].value >> 8);
        checksum(copy, model_size);
        refused(copy, model_size, "a piece that is not there", (int)i);
    }
    memcpy(copy, model, model_size);
    for (int i = 0; i < 8; i++) {                                    /* doubles each time, up to 256 bytes */
        const int half = i ? JOINS + i - 1 : BYTES + 'a';
        for (int k = 0; k < 4; k++) copy[joins + 4 * (size_t)i + (size_t)k] = (unsigned char)(k % 2 ? half >> 8 : half);
    }
    checksum(copy, model_size);
    refused(copy, model_size, "a piece of 256 bytes", 0);
    for (int k = 0; k < 2; k++) {
        memcpy(copy, model, model_size);
        copy[weights + 2 * 777 + 1] = k ? 0x7E : 0xFC;               /* NaN, -infinity */
        copy[weights + 2 * 777] = 0;
        checksum(copy, model_size);
        refused(copy, model_size, "a weight that is no number", k);
    }
    free(copy);
}

/* All weights are the largest half: infinities occur, so there is no translation, but the search ends. */
static void overflow(void)
{
    const size_t weights = 40 + word_at(model + 12, 4) + 4 * (size_t)(the.words - JOINS);
    unsigned char *copy = (unsigned char *)malloc(model_size);
    translator t;
    memcpy(copy, model, model_size);
    for (size_t i = weights; i < model_size - 4; i += 2) { copy[i] = 0xFF;  copy[i + 1] = i % 3 ? 0x7B : 0xFB; }
    checksum(copy, model_size);
    const char *why = translator_load(&t, copy, model_size, ATTN_F16);
    CHECKF(!why, "%s", why ? why : "");
    if (!why) {
        int ids[MOST], found[MOST];
        const int n = translator_split(&t, "Ein Hund.", ids);
        CHECK(translator_read(&t, ids, n, NULL) == ATTN_OK);
        const int m = translator_search(&t, BEAMS, found);
        CHECK(m >= 0 && m <= MOST);
        for (int i = 0; i < m; i++) CHECK(found[i] >= END && found[i] < t.words);
        translator_free(&t);
    }
    free(copy);
}

static const test_case tests[] = {
    { "sentences", sentences, "another translation: a layer, a norm, the search or the model has changed" },
    { "bleu", bleu, "translations that got worse, though the fixed ones stayed" },
    { "loss", loss, "weights that are read wrongly and yet lead to words" },
    { "in 8 bits", in_8_bits, "weights or caches in 8 bits that change more than they should, or nothing" },
    { "alignment", alignment, "attention of another head, layer or beam than it says" },
    { "pieces", pieces, "a splitter that is not the one of training; bytes that a terminal would obey" },
    { "one answer", one_answer, "a cache, a mask or padding that changes bits; a mistake that changes none" },
    { "one answer in 8 bits", one_answer_in_8_bits, "8 bits that depend on the processor or on padding" },
    { "in a batch", in_a_batch, "rows that depend on their company" },
    { "beams", beams, "beams that mix, a cache that does not follow" },
    { "damaged", damaged, "a file that is believed" },
    { "overflow", overflow, "a search that trusts its numbers to be numbers" },
    { 0 },
};

static void broken(const char *name, const char *why) { printf("FAIL %s %s\n0 passed, 1 failed\n", name, why);  exit(1); }

int main(int argc, char **argv)
{
    int counts[3] = { 0, 0, 0 };
    char line[512];
    if (argc < 3) return fprintf(stderr, "usage: %s model pairs [word ...]\n", argv[0]), 2;
    FILE *f = fopen(argv[1], "rb");
    model = (unsigned char *)malloc(1 << 24);
    if (!f || !model) broken(argv[1], "cannot be opened");
    model_size = fread(model, 1, 1 << 24, f);
    fclose(f);
    const char *why = translator_load(&the, model, model_size, ATTN_F16);
    if (why) broken(argv[1], why);
    f = fopen(argv[2], "r");
    if (!f) broken(argv[2], "cannot be opened");
    while (n_pairs < 64 && fgets(line, sizeof line, f)) {
        char *tab = strchr(line, '\t');
        if (!tab) broken(argv[2], "has a line without a tab");
        snprintf(pairs[n_pairs][0], 200, "%.*s", (int)(tab - line), line);
        snprintf(pairs[n_pairs++][1], 200, "%.*s", (int)strcspn(tab + 1, "\n"), tab + 1);
    }
    fclose(f);
    for (const test_case *t = tests; t->name; t++) {
        int wanted = argc == 3;
        for (int i = 3; i < argc; i++) wanted |= strstr(t->name, argv[i]) != NULL;
        if (wanted) counts[test_run("translate", t)]++;
    }
    translator_free(&the);
    if (eight.words) translator_free(&eight);
    free(model);
    printf("bits: %016llx\n%d passed, %d failed\n", (unsigned long long)bits, counts[TEST_PASSED], counts[TEST_FAILED]);
    return counts[TEST_FAILED] != 0;
}
