/* wordpiece.h: converts text to the token numbers of uncased BERT with vocab.txt, by the published rules. Control
   characters are dropped, CJK characters are separated, letters become lower case, accents are stripped (letters.h),
   text is split at white space and at every punctuation mark; each word is split into the longest pieces from the left,
   continuations with ##. A word without a split, or with more than 100 letters, is [UNK]. Invalid UTF-8 bytes are
   dropped. [CLS] and the like in a text are ordinary letters. Musical symbols are not reordered. */
#ifndef WORDPIECE_H
#define WORDPIECE_H
#include "letters.h"
#include "safetensors.h"

enum { LETTERS = 100 };                                          /* of a word */

typedef struct piece { text t; int inner, id; } piece;           /* inner: written with ## before it */

typedef struct vocabulary { piece *table; size_t mask, longest; int words, unknown, first, last; } vocabulary;

static piece *vocabulary_at(const vocabulary *v, const char *s, size_t n, int inner)
{
    unsigned h = inner ? 0x9E3779B9u : 0x811C9DC5u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 0x01000193u;
    for (size_t i = (h ^ h >> 15) & v->mask;; i = (i + 1) & v->mask) {
        piece *p = &v->table[i];
        if (p->id < 0 || (p->inner == inner && p->t.n == n && memcmp(p->t.at, s, n) == 0)) return p;
    }
}

static int vocabulary_find(const vocabulary *v, const char *s, size_t n, int inner)
{
    return vocabulary_at(v, s, n, inner)->id;
}

/* Its pieces stay in the file's memory. If a piece occurs twice, the last one counts, as in Python's dictionary. */
static const char *vocabulary_parse(vocabulary *v, const unsigned char *bytes, size_t size)
{
    const char *at = (const char *)bytes, *end = at + size;
    size_t lines = 1;
    memset(v, 0, sizeof *v);
    for (size_t i = 0; i < size; i++) lines += bytes[i] == '\n';
    if (lines > 1 << 24) return "it has more lines than any vocabulary";
    for (v->mask = 15; v->mask < 2 * lines; v->mask = 2 * v->mask + 1) { }
    v->table = (piece *)malloc((v->mask + 1) * sizeof *v->table);
    if (!v->table) return "there is not enough memory for it";
    for (size_t i = 0; i <= v->mask; i++) v->table[i].id = -1;
    for (; at < end; v->words++) {
        const char *stop = (const char *)memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        size_t n = (size_t)(stop - at);
        if (n && at[n - 1] == '\r') n--;
        const int inner = n > 2 && at[0] == '#' && at[1] == '#';
        const text t = { at + (inner ? 2 : 0), n - (inner ? 2 : 0) };
        piece *p = vocabulary_at(v, t.at, t.n, inner);
        p->t = t;
        p->inner = inner;
        p->id = v->words;
        if (t.n > v->longest) v->longest = t.n;
        at = stop + 1;
    }
    v->unknown = vocabulary_find(v, "[UNK]", 5, 0);
    v->first = vocabulary_find(v, "[CLS]", 5, 0);
    v->last = vocabulary_find(v, "[SEP]", 5, 0);
    if (v->unknown < 0 || v->first < 0 || v->last < 0) return "it lacks [UNK], [CLS] or [SEP]";
    return NULL;
}

/* The text to be split, and the current word. */
typedef struct splitter {
    const vocabulary *v;
    int *ids, n, most;
    char word[4 * LETTERS];
    int bytes, letters;
} splitter;

static void push(splitter *s, int id) { if (s->n < s->most) s->ids[s->n++] = id; }

/* The word is complete: takes the longest piece, then the longest continuation, and so on. */
static void end_word(splitter *s)
{
    int ids[LETTERS], n = 0, at = 0;
    if (s->letters > LETTERS) { push(s, s->v->unknown);  at = s->bytes = 0; }
    while (at < s->bytes) {
        int id = -1, to = s->bytes;
        if ((size_t)(to - at) > s->v->longest) to = at + (int)s->v->longest;
        for (; to > at; to--) {
            if (to < s->bytes && ((unsigned char)s->word[to] & 0xC0) == 0x80) continue;      /* inside a letter */
            id = vocabulary_find(s->v, s->word + at, (size_t)(to - at), at > 0);
            if (id >= 0) break;
        }
        if (id < 0) { ids[0] = s->v->unknown;  n = 1;  break; }
        ids[n++] = id;
        at = to;
    }
    for (int i = 0; i < n; i++) push(s, ids[i]);
    s->bytes = s->letters = 0;
}

/* Returns the last of n ranges that begins at or before c, if it ends at or after c. step: numbers per range. */
static const unsigned *range(const unsigned *list, size_t n, size_t step, unsigned c)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (list[middle * step] <= c) low = middle + 1;
        else high = middle;
    }
    const unsigned *r = low ? list + (low - 1) * step : list;
    return low && c <= r[1] ? r : NULL;
}
#define RANGE(list, c) range(list[0], sizeof list / sizeof *list, sizeof *list / sizeof **list, c)

static void letter(splitter *s, unsigned c)
{
    const int alone = RANGE(letters_punctuation, c) != NULL;
    if (alone) end_word(s);
    if (s->letters < LETTERS) {
        char *to = s->word + s->bytes;
        const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        if (n == 1) to[0] = (char)c;
        else to[0] = (char)((0xF00 >> n & 0xFF) | c >> 6 * (n - 1));
        for (int i = 1; i < n; i++) to[i] = (char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3F));
        s->bytes += n;
    }
    s->letters++;
    if (alone) end_word(s);
}

/* Converts a letter to lower case without accents; the result may be several letters. */
static void fold(splitter *s, unsigned c)
{
    const unsigned *r;
    if (c - 0xAC00 < 11172) {                                    /* Hangul syllables are computed */
        c -= 0xAC00;
        letter(s, 0x1100 + c / 588);
        letter(s, 0x1161 + c % 588 / 28);
        if (c % 28) letter(s, 0x11A7 + c % 28);
        return;
    }
    if (c - 0xF900 < sizeof letters_f900 / sizeof *letters_f900) c = letters_f900[c - 0xF900];
    else if (c - 0x2F800 < sizeof letters_2f800 / sizeof *letters_2f800) c = letters_2f800[c - 0x2F800];
    else if ((r = RANGE(letters_folded, c)) != NULL) {
        const unsigned i = c - r[0];
        if (r[3] < 2) c = r[2] + i * r[3];
        else if (i % 2 == 0) c = r[2] + i;
    }
    for (size_t i = 0; c > 0x7F && i < sizeof letters_apart / sizeof *letters_apart; i++) {
        if (letters_apart[i][0] != c) continue;
        letter(s, letters_apart[i][1]);
        letter(s, letters_apart[i][2]);
        if (letters_apart[i][3]) letter(s, letters_apart[i][3]);
        return;
    }
    letter(s, c);
}

/* Returns the character at *at and moves *at past it; for invalid UTF-8 U+FFFD, which the rules drop. */
static unsigned decode(const char **at, const char *end)
{
    const unsigned char *p = (const unsigned char *)(*at)++;
    const int n = *p < 0x80 ? 0 : *p < 0xC2 ? 9 : *p < 0xE0 ? 1 : *p < 0xF0 ? 2 : *p < 0xF5 ? 3 : 9;
    unsigned c = n ? *p & (0x3Fu >> n) : *p;
    if (n == 9 || n > end - *at) return 0xFFFD;
    for (int i = 1; i <= n; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0xFFFD;
        c = c << 6 | (p[i] & 0x3Fu);
    }
    if ((n == 2 && c < 0x800) || (n == 3 && c < 0x10000) || c - 0xD800 < 0x800 || c > 0x10FFFF) return 0xFFFD;
    *at += n;
    return c;
}

static int is_blank(unsigned c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0xA0 || c == 0x1680 || c - 0x2000 < 11 ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static int is_ideograph(unsigned c)                              /* the blocks that the rules name */
{
    return c - 0x4E00 < 0x5200 || c - 0x3400 < 0x19C0 || c - 0x20000 < 0xA6E0 || c - 0x2A700 < 0x1040 ||
           c - 0x2B740 < 0xE0 || c - 0x2B820 < 0x1690 || c - 0xF900 < 0x200 || c - 0x2F800 < 0x220;
}

/* Converts a text to at most `most` (at least 2) token numbers, [CLS] first and [SEP] last. Returns their number. */
static int tokenize(const vocabulary *v, text t, int *ids, int most)
{
    const char *at = t.at, *end = t.at + t.n;
    splitter s;
    memset(&s, 0, sizeof s);
    s.v = v;
    s.ids = ids;
    s.most = most - 1;
    push(&s, v->first);
    while (at < end && s.n < s.most) {
        const unsigned c = decode(&at, end);
        const int alone = is_ideograph(c);
        if (RANGE(letters_dropped, c)) continue;
        if (is_blank(c)) { end_word(&s);  continue; }
        if (alone) end_word(&s);
        fold(&s, c);
        if (alone) end_word(&s);
    }
    end_word(&s);
    s.most = most;
    push(&s, v->last);
    return s.n;
}

#endif
