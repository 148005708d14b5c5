/* pages.c: the calls that store keys in a cache of several pages and read them. Every page and every list of the cache is
 * a separate block, so that an address in another one is an alarm; attn__page_at, which locates a page, is replaced by a
 * contract (attn__kv_measure and attn__kv_make place pages next to each other: load.c, cache.c). Pages are uninitialised
 * at first: reading a key that was never written raises an alarm. Two entries of up to 200 keys, two pages each, two K/V heads.
 * SHAPE 0: floats, 1: K as half, V as bfloat16, 2: v_in_k (not run by prove.sh).
 * CALL 0: append to all entries, 1: to one, 2: keep, 3: read, 4: save, 5: load. */
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include "__fc_builtin.h"
#define volatile                          /* the task of attn__run_range: EVA would assume an unknown function */
#include "prove.h"
#ifndef SHAPE
#define SHAPE 0
#endif


enum { BATCH = 2, HEADS = 2, DIM = 2, V_DIM = SHAPE == 2 ? 2 : 1 };
enum { CAPACITY = 200, HELD = 2, KEYS = 128, V_WIDTH = 16, PAGES = 3 };
enum { CELL = SHAPE == 1 ? 2 : 4, K_BYTES = SHAPE == 2 ? 0 : DIM * CELL, V_BYTES = V_WIDTH * CELL };
enum { PAGE = HEADS * KEYS * (K_BYTES + V_BYTES) };
static char *pages[PAGES];

/*@ requires a_page: 0 <= page < PAGES;
    requires in_it: i <= PAGE;
    assigns \result \from pages[page], i;
    ensures \result == pages[page] + i; */
ATTN__INLINE void *attn__page_at(const attn_kv *c, int page, size_t i);

static int *lengths, *gaps, *table, *holders, *idle, *scratch;

/* an empty cache */
static void make(attn_kv *c)
{
    attn_kv_args a;
    attn__why why;
    char nothing[PAGE];                   /* uninitialised, and so are copies of it */
    int p;
    for (p = 0; p < PAGES; p++) memcpy(pages[p], nothing, PAGE);
    memcpy(table, nothing, BATCH * HELD * sizeof(int));
    memcpy(scratch, nothing, BATCH * (HELD + 3) * sizeof(int));
    attn__why_open(&why, "make", NULL);
    memset(&a, 0, sizeof a);
    memset(c, 0, sizeof *c);
    a.batch = BATCH;
    a.kv_heads = HEADS;
    a.head_dim = DIM;
    a.v_head_dim = V_DIM;
    a.capacity = CAPACITY;
    a.pages = PAGES;
    a.k_storage = SHAPE == 1 ? ATTN_F16 : ATTN_F32;
    a.v_storage = SHAPE == 1 ? ATTN_BF16 : ATTN_F32;
    a.v_in_k = SHAPE == 2;
    (void)attn__kv_measure(&why, &a, c);
    //@ assert c->page_size == PAGE && c->page_keys == KEYS && c->entry_pages == HELD;
    c->memory = (float *)pages[0];
    c->bytes = 1;
    c->lengths = lengths; c->gaps = gaps; c->table = table; c->holders = holders; c->idle = idle; c->scratch = scratch;
    for (p = 0; p < BATCH; p++) lengths[p] = gaps[2 * p] = gaps[2 * p + 1] = 0;
    for (p = 0; p < PAGES; p++) holders[p] = 0;
    for (p = 0; p < PAGES; p++) idle[p] = PAGES - 1 - p;
    c->free_pages = PAGES;
}

/* Entry b holds this many keys, in pages of which it shares the first with entry 0, and has forgotten 128 before
   them. */
static void hold(attn_kv *c, int b, int keys, int shared, int forgets)
{
    const int held = (keys + KEYS - 1) / KEYS;
    int i, head;
    for (i = 0; i < held; i++) {
        const int n = keys - i * KEYS < KEYS ? keys - i * KEYS : KEYS;
        int *page = attn__kv_row(c, b) + i;
        if (i < shared) {
            *page = attn__kv_row(c, 0)[i];
            c->holders[*page]++;
        } else *page = attn__page_take(c);
        for (head = 0; head < HEADS; head++) {
            if (SHAPE != 2)
                Frama_C_make_unknown((char *)attn__page_k(c, *page, head), (n + 15) / 16 * 16 * c->k_row);
            Frama_C_make_unknown((char *)attn__page_value(c, *page, head, 0), n * c->v_row);
        }
    }
    c->lengths[b] = keys;
    if (!forgets) return;
    c->gaps[2 * b + 1] = KEYS;
    c->lengths[b] += KEYS;
}

/* holders has the number of entries that hold each page, and idle lists the other pages; otherwise an alarm */
static void sound(const attn_kv *c)
{
    int held[PAGES] = { 0 }, b, i, p, n = 0;
    for (b = 0; b < BATCH; b++) {
        const int keys = attn__kv_keys(c, b);
        //@ assert 0 <= keys <= CAPACITY && 0 <= gaps[2 * b] <= gaps[2 * b + 1] <= lengths[b];
        for (i = 0; i < (keys + KEYS - 1) / KEYS; i++) {
            const int page = table[b * HELD + i];
            //@ assert 0 <= page < PAGES;
            held[page]++;
        }
    }
    for (p = 0; p < PAGES; p++) {
        //@ assert holders[p] == held[p];
        n += !held[p];
    }
    //@ assert c->free_pages == n;
    for (i = 0; i < n; i++) {
        //@ assert 0 <= idle[i] < PAGES && held[idle[i]] == 0;
    }
}

enum { NEGATIVE = -1, LARGE = -2 };
/* a number, or all numbers below 0, or all above 200 */
static int one_of(int i)
{
    return i == NEGATIVE ? Frama_C_interval(INT_MIN, -1) : i == LARGE ? Frama_C_interval(CAPACITY + 1, INT_MAX) : i;
}
static int any_entry(int i)
{
    return i == BATCH ? Frama_C_interval(BATCH, INT_MAX) : i < 0 ? Frama_C_interval(INT_MIN, -1) : i;
}

/* Rows of floats for a call: exactly `floats` of them, and a block ends there. */
enum { MOST = 2 * CAPACITY * HEADS * DIM };
static float k_rows[MOST], v_rows[MOST];
static float *end_of(float *block, int floats) { return block + MOST - floats; }

typedef struct state { int first, second, shared, forgets; } state;
static void begin(attn_kv *c, const state *s)
{
    make(c);
    hold(c, 0, s->first, 0, s->forgets & 1);
    hold(c, 1, s->second, s->shared, s->forgets >> 1);
}

#if CALL <= 1
/* floats of rows; the last one has no stride after it */
static int reach(int rows, int stride, int width) { return (rows - 1) * stride + width; }

/* new keys are in unshared pages */
static void alone(const attn_kv *c, int b, int count)
{
    int i;
    for (i = lengths[b] - count; i < lengths[b]; i++) {
        //@ assert holders[table[b * HELD + (i - gaps[2 * b + 1] + gaps[2 * b]) / KEYS]] == 1;
    }
}

/* n rows for an entry, or (ALL) for all */
enum { ALL = -1 };
static void append(const state *s, int n, int entry, int row_stride)
{
    attn_kv c;
    const int entries = entry == ALL ? BATCH : 1;
    int k_floats, v_floats;
    begin(&c, s);
    k_floats = n <= 0 ? 0 : reach(entries * n, row_stride > 0 ? row_stride : HEADS * DIM, HEADS * DIM);
    v_floats = n <= 0 ? 0 : reach(entries * n, row_stride > 0 ? row_stride : HEADS * V_DIM, HEADS * V_DIM);
    if (k_floats > MOST || v_floats > MOST) return;
    if (attn_kv_append(&c, entry, any_int() ? NULL : end_of(k_rows, k_floats), any_int() ? NULL : end_of(v_rows, v_floats),
                       one_of(n), one_of(row_stride)) != ATTN_OK) return;
    Frama_C_show_each_end(c.free_pages, lengths[0], lengths[1]);
    sound(&c);
    if (n > 0 && entry != 1) alone(&c, 0, n);
    if (n > 0 && entry != 0) alone(&c, 1, n);
}

/* no such entry */
static void nowhere(const state *s)
{
    attn_kv c;
    begin(&c, s);
    (void)attn_kv_append(&c, any_int() ? Frama_C_interval(BATCH, INT_MAX) : Frama_C_interval(INT_MIN, -2), k_rows, v_rows,
                         any_int(), any_int());
}

static void calls(const state *s)
{
    int i;
#if CALL == 0
    const int n[] = { NEGATIVE, LARGE, 0, 1, 9, 35, 128 };
    for (i = 0; i < (s->first ? 5 : 7); i++) append(s, n[i], ALL, 0);
    append(s, 2, ALL, NEGATIVE);
    append(s, 2, ALL, HEADS * DIM - 1);
    append(s, 2, ALL, HEADS * DIM + 3);
    nowhere(s);
#else
    const int n[] = { NEGATIVE, LARGE, 0, 1, 9, 10 };
    for (i = 0; i < 6; i++) append(s, n[i], 0, 0);
    for (i = 0; i < 6; i++) append(s, n[i], 1, 0);
    append(s, 2, 1, HEADS * DIM + 3);
#endif
}
#endif

#if CALL == 2
/* Every list of rows among the last `window` keys of entry 1: those of the bits in `mask`, followed by nothing (tail
 * 0), by a row that is not ascending (1), or by a row that does not exist (2), and then any others. A list ends with
 * its block. */
enum { WINDOW = 4 };
static int list[WINDOW];

static void keep(const state *s, int window, int mask, int tail)
{
    attn_kv c;
    const int length = s->second + (s->forgets & 2 ? KEYS : 0), from = length - window;
    int rows[WINDOW], n = 0, i;
    for (i = 0; i < window; i++)
        if (mask >> i & 1) rows[n++] = from + i;
    if (tail && n == window) return;
    Frama_C_make_unknown((char *)list, sizeof list);
    for (i = 0; i < n; i++) list[WINDOW - (tail ? window : n) + i] = rows[i];
    if (tail) list[WINDOW - window + n] = tail == 1 ? Frama_C_interval(INT_MIN, n ? rows[n - 1] : from - 1)
                                                    : Frama_C_interval(length, INT_MAX);
    begin(&c, s);
    if (attn_kv_keep(&c, 1, from, any_int() ? NULL : list + WINDOW - (tail ? window : n),
                     tail ? Frama_C_interval(n + 1, window) : n) != ATTN_OK) return;
    Frama_C_show_each_end(c.free_pages, lengths[0], lengths[1]);
    sound(&c);
}

/* rejected for any rows */
static void refused(const state *s, int entry, int from, int n)
{
    attn_kv c;
    begin(&c, s);
    (void)attn_kv_keep(&c, any_entry(entry), from, any_int() ? NULL : list, n);
}

static void calls(const state *s)
{
    const int length = s->second + (s->forgets & 2 ? KEYS : 0);
    int window, mask, tail;
    refused(s, -1, any_int(), any_int());
    refused(s, BATCH, any_int(), any_int());
    refused(s, 1, Frama_C_interval(INT_MIN, -1), any_int());
    refused(s, 1, Frama_C_interval(length + 1, INT_MAX), any_int());
    for (window = 0; window <= WINDOW && window <= s->second; window++) {
        refused(s, 1, length - window, Frama_C_interval(INT_MIN, -1));
        refused(s, 1, length - window, Frama_C_interval(window + 1, INT_MAX));
        for (mask = 0; mask < 1 << window; mask++)
            for (tail = 0; tail < 3; tail++) keep(s, window, mask, tail);
    }
}
#endif

#if CALL == 3
/* Reads into blocks that end with `rows` rows, as many as are read unless the call is rejected. */
static void get(const state *s, int entry, int first, int n, int rows)
{
    attn_kv c;
    begin(&c, s);
    if (attn_kv_read(&c, any_entry(entry), first, n, any_int() ? NULL : end_of(k_rows, rows * HEADS * DIM),
                     any_int() ? NULL : end_of(v_rows, rows * HEADS * V_DIM)) == ATTN_OK)
        Frama_C_show_each_end(c.free_pages);
}

static void calls(const state *s)
{
    const int length = s->second + (s->forgets & 2 ? KEYS : 0);
    int first, n;
    get(s, -1, any_int(), any_int(), 0);
    get(s, BATCH, any_int(), any_int(), 0);
    get(s, 1, Frama_C_interval(INT_MIN, -1), any_int(), 0);
    get(s, 1, Frama_C_interval(length + 1, INT_MAX), any_int(), 0);
    get(s, 1, 0, length, length);
    for (first = 0; first <= length; first++) {
        const int rest = length - first;
        if (first % KEYS > 2 && first % KEYS < KEYS - 3 && rest > 3) continue;
        get(s, 1, first, Frama_C_interval(INT_MIN, -1), 0);
        get(s, 1, first, Frama_C_interval(rest + 1, INT_MAX), 0);
        for (n = 0; n <= 3 && n <= rest; n++) get(s, 1, first, n, n);
    }
}
#endif

#if CALL >= 4
enum { HEADER = 64, ROW = HEADS * (DIM * CELL + (SHAPE == 2 ? 0 : V_DIM * CELL)) };
/* one byte more for save: Frama-C requires a valid address for memset even with size 0 */
static unsigned char saved[HEADER + CAPACITY * ROW + (CALL == 4)];
/* this many bytes at the end of that block */
static unsigned char *bytes_of(int keys) { return saved + CAPACITY * ROW - (keys * ROW + 3) / 4 * 4; }
#endif

#if CALL == 4
static char too_few;
static void calls(const state *s)
{
    attn_kv c;
    int entry;
    for (entry = -1; entry <= BATCH; entry++) {
        const int keys = entry == 1 ? s->second : 0;
        if (entry == 0) continue;
        begin(&c, s);
        (void)attn_kv_saved(&c, any_entry(entry));
        (void)attn_kv_save(&c, any_entry(entry), &too_few, (size_t)Frama_C_interval(0, HEADER + keys * ROW - 1));
        if (attn_kv_save(&c, any_entry(entry), any_int() ? NULL : bytes_of(keys), (size_t)any_int()) == ATTN_OK)
            Frama_C_show_each_end(c.free_pages);
    }
}
#endif

#if CALL == 5
/* Four bytes, the lowest first. */
static void put_word(unsigned char *at, unsigned word)
{
    int i;
    for (i = 0; i < 4; i++) at[i] = (unsigned char)(word >> 8 * i & 0xff);
}

/* a header with this length; all other bytes are arbitrary, and the size is any up to the existing bytes */
static void load(const state *s, int entry, int keys, int from, int to)
{
    attn_kv c;
    unsigned char *at = bytes_of(keys);
    const size_t size = sizeof saved - (at - saved);
    begin(&c, s);
    Frama_C_make_unknown((char *)saved, sizeof saved);
    put_word(at + 28, (unsigned)(keys + to - from));
    put_word(at + 32, (unsigned)from);
    put_word(at + 36, (unsigned)to);
    if (attn_kv_load(&c, any_entry(entry), any_int() ? NULL : at, Frama_C_interval(0, size)) != ATTN_OK) return;
    Frama_C_show_each_end(c.free_pages, lengths[0], lengths[1]);
    sound(&c);
}

static void calls(const state *s)
{
    const int keys[] = { 0, 1, 17, 129 };
    int i;
    load(s, -1, 0, 0, 0);
    load(s, BATCH, 0, 0, 0);
    for (i = 0; i < (s->first > 100 ? 4 : 3); i++) {
        load(s, 1, keys[i], 0, 0);
        load(s, 1, keys[i], 0, KEYS);
    }
    load(s, 1, 1, KEYS, 0);
}
#endif

int main(void)
{
    /* keys of both entries, shared pages, forgotten keys; counts have seven of these states, keep five, read, save and
     * load four */
    static const state states[] = {
        { 0, 0, 0, 0 }, { 130, 129, 1, 0 }, { 5, 5, 1, 3 }, { 60, 60, 1, 2 }, { 128, 131, 1, 0 }, { 120, 120, 1, 0 },
        { 140, 140, 2, 0 },
        { 199, 16, 0, 0 }, { 120, 1, 0, 0 }, { 128, 128, 1, 0 }, { 200, 200, 2, 0 }
    };
    const int n = CALL == 0 ? 11 : CALL == 1 ? 7 : CALL == 2 ? 5 : 4;
    char page_0[PAGE], page_1[PAGE], page_2[PAGE];
    int n_keys[BATCH], forgotten[2 * BATCH], rows[BATCH * HELD], count[PAGES], nobody[PAGES], any[BATCH * (HELD + 3)];
    int i;
    pages[0] = page_0; pages[1] = page_1; pages[2] = page_2;
    lengths = n_keys; gaps = forgotten; table = rows; holders = count; idle = nobody; scratch = any;
    Frama_C_make_unknown((char *)k_rows, sizeof k_rows);
    Frama_C_make_unknown((char *)v_rows, sizeof v_rows);
#ifdef ONLY
    calls(states + ONLY);
    return 0;
#endif
    for (i = 0; i < n; i++) calls(states + i);
    return 0;
}
