/* cache.c: the calls that move keys, with any ints as arguments, on a cache of two entries with two pages each, one
 * K/V head of one float. Thirteen states: an entry holds no, one or two pages, with any number of keys in the last
 * one; shares some of them with the other entry; and may have forgotten a page. Memory is as large as
 * attn__kv_measure counts. CALL 0: truncate, 1: forget, 2: reorder, 3: copy. Functions that build sentences have only
 * a contract. */
#include "prove.h"


enum { CAPACITY = 256, KEYS = 128, V_WIDTH = 16, PAGES = 4 };
enum { INTS = 2 * 2 * (2 + 3) + 2 * PAGES };
static int mem[PAGES * KEYS * (1 + V_WIDTH) + INTS];

static void make(attn_kv *c)
{
    attn_kv_args a;
    attn__why why;
    attn__why_open(&why, "make", NULL);
    memset(&a, 0, sizeof a);
    memset(c, 0, sizeof *c);
    a.batch = 2;
    a.kv_heads = a.head_dim = 1;
    a.capacity = CAPACITY;
    (void)attn__kv_measure(&why, &a, c);
    //@ assert c->bytes == sizeof(mem);
    attn__kv_make(c, (char *)mem);
}

/* entry b holds this many pages, the first `shared` of them those of entry 0, and has forgotten one before its last */
static void hold(attn_kv *c, int b, int held, int shared, int forgets)
{
    int i;
    for (i = 0; i < held; i++) {
        if (i < shared) attn__kv_row(c, b)[i] = attn__kv_row(c, 0)[i];
        if (i < shared) c->holders[attn__kv_row(c, b)[i]]++;
        if (i >= shared) attn__kv_row(c, b)[i] = attn__page_take(c);
    }
    c->lengths[b] = held ? Frama_C_interval((held - 1) * KEYS + 1, held * KEYS) : 0;
    if (!forgets) return;
    c->gaps[2 * b] = (held - 1) * KEYS;
    c->gaps[2 * b + 1] = held * KEYS;
    c->lengths[b] += KEYS;
}

/* all ints, in five cases: -1, 0, 1, below, above. Otherwise EVA would lose the result of a check when it joins
   entries. */
enum { ALL = 5 };
static int one_of(int i)
{
    return i < 3 ? i - 1 : i == 3 ? Frama_C_interval(INT_MIN, -2) : Frama_C_interval(2, INT_MAX);
}

static attn_status call(attn_kv *c, int x, int y)
{
    int map[2];
#if CALL == 0
    return attn_kv_truncate(c, one_of(x), any_int());
#elif CALL == 1
    return attn_kv_forget(c, one_of(x), any_int(), any_int());
#elif CALL == 2
    map[0] = one_of(x);
    map[1] = one_of(y);
    return attn_kv_reorder(c, map);
#else
    return attn_kv_copy(c, one_of(x), one_of(y), any_int());
#endif
}

#define SECOND (CALL >= 2)                        /* calls with two entries */
static void state(int first, int second, int shared, int forgets)
{
    attn_kv c;
    int x, y;
    for (x = 0; x < ALL; x++)
        for (y = 0; y < (SECOND ? ALL : 1); y++) {
            make(&c);
            hold(&c, 0, first, 0, forgets & 1);
            hold(&c, 1, second, shared, forgets >> 1);
            if (call(&c, x, y) == ATTN_OK) Frama_C_show_each_end(c.free_pages);
        }
}

int main(void)
{
    state(0, 0, 0, 0);
    state(1, 0, 0, 0); state(1, 1, 0, 0); state(1, 1, 1, 0);
    state(2, 0, 0, 0); state(2, 1, 1, 0); state(2, 2, 0, 0); state(2, 2, 1, 0); state(2, 2, 2, 0);
    state(1, 0, 0, 1); state(1, 1, 1, 2); state(2, 1, 1, 1); state(2, 2, 2, 3);
    return 0;
}
