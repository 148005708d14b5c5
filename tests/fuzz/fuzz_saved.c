/* fuzz_saved.c: untrusted bytes as an entry of a cache. The input is the words of a header and the payload after it; the
 * checksum is corrected or not. Rejected: nothing has changed. Loaded: saving gives the same bytes again, and the entry
 * can be read, attended to, appended to, truncated and forgotten. */
#include "fuzz.h"
#include "kv_model.h"

enum { HEADER = 64, SUM = 56, KV = 2, D = 3, DV = 2, ROW = KV * (D + DV) * 4 };

static void put_word(unsigned char *at, uint32_t word)
{
    int i;
    for (i = 0; i < 4; i++) at[i] = (unsigned char)(word >> 8 * i);
}

static uint32_t word_at(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void seal(unsigned char *bytes, size_t size)
{
    uint64_t sum = 0xcbf29ce484222325u;
    size_t at;
    for (at = 0; at + 4 <= size; at += 4) {
        if (at == SUM || at == SUM + 4) continue;
        sum = (sum ^ word_at(bytes + at)) * 0x100000001b3u;
        sum ^= sum >> 32;
    }
    put_word(bytes + SUM, (uint32_t)sum);
    put_word(bytes + SUM + 4, (uint32_t)(sum >> 32));
}

/* Makes a valid header for `keys` keys, then changes it as the input specifies. Returns the number of bytes. */
static size_t header(input *in, unsigned char *bytes, int keys)
{
    static const int at[] = {8, 12, 16, 20, 24, 28, 32, 36, 40, 52};
    const unsigned gone = 128u * (u8(in) % 4u), from = coin(in) ? 0u : 128u;
    int i, n;
    memset(bytes, 0, HEADER);
    memcpy(bytes, "attn.kv", 8);
    put_word(bytes + 8, 1), put_word(bytes + 16, KV), put_word(bytes + 20, D), put_word(bytes + 24, DV);
    put_word(bytes + 28, (uint32_t)keys + gone);
    put_word(bytes + 32, gone ? from : 0u), put_word(bytes + 36, gone ? from + gone : 0u);
    n = from_to(in, 0, 3);
    for (i = 0; i < n; i++) {
        const int field = at[u8(in) % 10u];
        switch (u8(in) % 4u) {
        case 0: put_word(bytes + field, u32(in)); break;
        case 1: put_word(bytes + field, word_at(bytes + field) + (uint32_t)u8(in) - 128u); break;
        case 2: put_word(bytes + field, word_at(bytes + field) + 128u * (uint32_t)u16(in)); break;
        default: bytes[u8(in) % HEADER] ^= (unsigned char)(1u << u8(in) % 8u);
        }
    }
    return HEADER + (size_t)keys * ROW;
}

/* A loaded entry can be used. */
static void use(input *in, attn_kv *c, const unsigned char *bytes, size_t size)
{
    const int length = c->lengths[0], from = c->gaps[0], to = c->gaps[1];
    unsigned char *again = (unsigned char *)malloc(size);
    float q[2 * KV * D], out[2 * KV * DV], k[KV * D], v[KV * DV], row[2 * KV * D];
    attn_args a;
    int i;
    if (!again) abort();
    MUST(from >= 0 && from <= to && to <= length && from % 128 == 0 && to % 128 == 0);
    MUST(attn_kv_saved(c, 0) == size && attn_kv_save(c, 0, again, size) == ATTN_OK);
    MUST(memcmp(again, bytes, size) == 0);
    free(again);
    for (i = 0; i < 2 * KV * D; i++) q[i] = row[i] = number(in);
    if (length > to) MUST(attn_kv_read(c, 0, length - 1, 1, k, v) == ATTN_OK);
    if (from > 0) MUST(attn_kv_read(c, 0, from - 1, 1, k, v) == ATTN_OK);
    if (to > from) MUST(attn_kv_read(c, 0, to - 1, 1, k, v) == ATTN_E_LENGTHS);
    memset(&a, 0, sizeof a);
    a.batch = 2, a.n_q = 1, a.heads = KV, a.kv = c, a.q = q, a.out = out, a.user = &the_heap;
    a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    if (length < 100000) MUST(attn_sdpa(&a) == ATTN_OK);
    i = attn_kv_append(c, -1, row, row, 1, 0);
    MUST(i == ATTN_OK || i == ATTN_E_FULL || i == ATTN_E_OVERFLOW);
    MUST(attn_kv_forget(c, 0, 0, length) == ATTN_OK);
    MUST(attn_kv_truncate(c, 0, c->gaps[1]) == ATTN_OK && attn_kv_reset(c, 0) == ATTN_OK);
    MUST(c->free_pages + (c->lengths[1] + 127) / 128 == c->shape.pages);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in;
    attn_kv_args s;
    attn_kv c;
    attn_status status;
    unsigned char *bytes;
    float row[2 * KV * D];
    int keys, i, free_pages;
    size_t n, given;
    in.at = data, in.end = data + size, in.noise = (uint32_t)size;
    memset(&the_heap, 0, sizeof the_heap);
    memset(&s, 0, sizeof s);
    s.batch = 2, s.kv_heads = KV, s.head_dim = D, s.v_head_dim = DV, s.user = &the_heap;
    s.capacity = coin(&in) ? from_to(&in, 1, 40) : from_to(&in, 100, 500);
    s.pages = from_to(&in, 0, 4);
    for (i = 0; i < 2 * KV * D; i++) row[i] = number(&in);
    MUST(attn_kv_init(&c, &s) == ATTN_OK);
    status = attn_kv_append(&c, -1, row, row, 1, 0);
    MUST(status == (s.pages == 1 ? ATTN_E_FULL : ATTN_OK));
    keys = from_to(&in, 0, coin(&in) ? 20 : 400);
    bytes = (unsigned char *)malloc(HEADER + (size_t)keys * ROW);
    if (!bytes) abort();
    n = header(&in, bytes, keys);
    for (i = 0; i < keys * ROW / 4; i++) {
        const float x = number(&in);
        uint32_t word;
        memcpy(&word, &x, 4);
        put_word(bytes + HEADER + 4 * i, word);
    }
    given = u8(&in) > 230u ? u16(&in) % (n + 1) : n;
    if (given >= HEADER && u8(&in) < 230u) seal(bytes, given / 4 * 4);
    bytes = (unsigned char *)realloc(bytes, given ? given : 1);       /* exact: detects overruns */
    if (!bytes) abort();
    free_pages = c.free_pages;
    refusal.count = 0;
    status = attn_kv_load(&c, 0, bytes, given);
    MUST((status == ATTN_OK) == (refusal.count == 0));
    MUST(status == ATTN_OK || status == ATTN_E_BYTES || status == ATTN_E_SIZE || status == ATTN_E_FULL);
    if (status == ATTN_OK) use(&in, &c, bytes, given);
    else MUST(c.free_pages == free_pages && c.lengths[0] == c.lengths[1] && c.gaps[0] == 0 && c.gaps[1] == 0);
    free(bytes);
    attn_kv_free(&c);
    MUST(the_heap.live == 0);
    return 0;
}
