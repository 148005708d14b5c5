/* load.c: attn_kv_load of untrusted bytes: any bytes, any size up to that of a full entry, any int as the entry, into a
 * new cache with exactly the memory that attn__kv_measure counts. Two entries of 20 keys, one K/V head, one float each,
 * two pages. The alignment of memory by attn_kv_init is left out: addresses are not known here. */
#include "prove.h"

enum { CAPACITY = 20, KEYS = 32, V_WIDTH = 16 };              /* page_keys; v_head_dim rounded up */
enum { INTS = 2 * 2 * (1 + 3) + 2 * 2 };                      /* batch, entry_pages and pages, as attn__kv_measure has it */
static int mem[2 * KEYS * (1 + V_WIDTH) + INTS];
static unsigned char bytes[64 + CAPACITY * 2 * sizeof(float)];

static int make(attn_kv *c)
{
    attn_kv_args a;
    attn__why why;
    attn__why_open(&why, "make", NULL);
    memset(&a, 0, sizeof a);
    memset(c, 0, sizeof *c);
    a.batch = a.pages = 2;
    a.kv_heads = a.head_dim = 1;
    a.capacity = CAPACITY;
    if (attn__kv_measure(&why, &a, c) != ATTN_OK) return 0;
    //@ assert c->bytes == sizeof(mem);
    attn__kv_make(c, (char *)mem);
    return 1;
}

int main(void)
{
    attn_kv c;
    const int entry = any_int();
    //@ split entry < 0;
    //@ split entry > 1;
    //@ split entry == 0;
    if (!make(&c)) return 1;
    Frama_C_make_unknown((char *)bytes, sizeof bytes);
    if (attn_kv_load(&c, entry, bytes, (size_t)Frama_C_interval(0, sizeof bytes)) == ATTN_OK)
        Frama_C_show_each_end(c.free_pages);
    return 0;
}
