/* test_saved.c: saved entries of a cache. A saved entry can be loaded into any cache of its shape; other bytes are
 * rejected with a sentence, and nothing changes. */
#include "kv_look.h"

enum { HEADER = 64, SUM = 56 };

/* ---- the format, as attn.h describes it --------------------------------------------- */
static void put_word(unsigned char *at, uint32_t word)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(word >> 8 * i);
}

static uint32_t get_word(const unsigned char *at)
{
    uint32_t word = 0;
    for (int i = 3; i >= 0; i--) word = word << 8 | at[i];
    return word;
}

/* The checksum of all other words, so that hostile bytes can have a valid one. */
static void seal(unsigned char *bytes, size_t size)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t at = 0; at + 4 <= size; at += 4) {
        if (at == SUM || at == SUM + 4) continue;
        sum = (sum ^ get_word(bytes + at)) * 0x100000001b3u;
        sum ^= sum >> 32;
    }
    put_word(bytes + SUM, (uint32_t)sum);
    put_word(bytes + SUM + 4, (uint32_t)(sum >> 32));
}

/* ---- an entry, saved ---------------------------------------------------------------------------- */
typedef struct saved { attn_kv c; unsigned char *bytes; size_t size; } saved;

static attn_kv_args shape_of(int batch, int capacity, int pages)
{
    attn_kv_args a = {0};
    a.batch = batch;
    a.kv_heads = 2;
    a.head_dim = 3;
    a.v_head_dim = 5;
    a.capacity = capacity;
    a.pages = pages;
    return a;
}

/* n keys, of which `gone` are forgotten */
static saved saved_make(int n, int gone)
{
    attn_kv_args s = shape_of(1, n, 0);
    float *rows = look_floats((size_t)n * 10);
    rng r = rng_make(test_seed + (uint64_t)n);
    saved x;
    rng_fill(&r, rows, (size_t)n * 10);
    rows[0] = bits_float(0x7FC12345u);    /* all bits are kept, even those of a NaN */
    rows[1] = bits_float(0x80000001u);
    CHECK(attn_kv_init(&x.c, &s) == ATTN_OK);
    CHECK(attn_kv_append(&x.c, -1, rows, rows, n, 10) == ATTN_OK);
    CHECK(attn_kv_forget(&x.c, 0, 0, gone) == ATTN_OK);
    x.size = attn_kv_saved(&x.c, 0);
    CHECK(x.size == HEADER + (size_t)(n - gone / 128 * 128) * 16 * 4);
    x.bytes = (unsigned char *)guard_alloc(x.size);
    CHECK(attn_kv_save(&x.c, 0, x.bytes, x.size) == ATTN_OK);
    free(rows);
    return x;
}

static void saved_free(saved *x)
{
    attn_kv_free(&x->c);
    guard_free(x->bytes);
}

/* Both entries hold the same keys, so their saved bytes are equal. */
static int same_entry(const attn_kv *a, int i, const attn_kv *b, int j)
{
    const size_t size = attn_kv_saved(a, i);
    unsigned char *x = (unsigned char *)guard_alloc(size), *y = (unsigned char *)guard_alloc(size);
    const int same = attn_kv_saved(b, j) == size && attn_kv_save(a, i, x, size) == ATTN_OK &&
                     attn_kv_save(b, j, y, size) == ATTN_OK && !memcmp(x, y, size);
    guard_free(x);
    guard_free(y);
    return same;
}

/* ---- right ones -------------------------------------------------------------------------------- */
/* The bytes of two keys, fixed: they must be the same on every machine and in every version. */
static void known_bytes(void)
{
    static const unsigned char want[HEADER + 2 * 2 * 4] = {
        'a', 't', 't', 'n', '.', 'k', 'v', 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0,
        0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 63, 0, 0, 64, 192, 0, 0, 0, 64, 0, 0, 128, 127
    };
    unsigned char bytes[sizeof want], sealed[sizeof want];
    const float k[2] = {1.0f, 2.0f}, v[2] = {-3.0f, bits_float(0x7F800000u)};
    attn_kv_args s = {0};
    attn_kv c;
    s.batch = s.kv_heads = s.head_dim = s.capacity = 1;
    s.capacity = 2;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK && attn_kv_append(&c, -1, k, v, 2, 0) == ATTN_OK);
    CHECK(attn_kv_saved(&c, 0) == sizeof want);
    CHECK(attn_kv_save(&c, 0, bytes, sizeof bytes) == ATTN_OK);
    memcpy(sealed, want, sizeof want);
    seal(sealed, sizeof sealed);
    CHECK(!memcmp(bytes, sealed, sizeof want));
    CHECKF(get_word(bytes + SUM) == 0xB9F828C2u && get_word(bytes + SUM + 4) == 0x7B44F62Eu,
           "the checksum is %08X %08X", (unsigned)get_word(bytes + SUM + 4),
           (unsigned)get_word(bytes + SUM));
    CHECK(attn_kv_load(&c, 0, want, sizeof want) == ATTN_E_BYTES);
    CHECK(attn_kv_load(&c, 0, sealed, sizeof sealed) == ATTN_OK && c.lengths[0] == 2);
    attn_kv_free(&c);
}

/* Into caches with other batches, capacities and pages; twice; and used afterwards. */
static void round_trips(void)
{
    static const int lengths[] = {0, 1, 16, 17, 128, 130, 400}, gone[] = {0, 128, 300};
    for (int i = 0; i < 7 * 3; i++) {
        const int n = lengths[i / 3], forget = gone[i % 3];
        attn_kv_args s = shape_of(3, n > 0 ? n : 1, 0);
        float rows[3 * 20 * 10] = {0};
        saved x;
        attn_kv c;
        if (forget > n || n == 0) continue;
        x = saved_make(n, forget);
        s.capacity = n - forget / 128 * 128 + 20;
        CHECK(attn_kv_init(&c, &s) == ATTN_OK);
        look_poison(&c);
        CHECK(attn_kv_append(&c, -1, rows, rows, 20, 10) == ATTN_OK);
        CHECK(attn_kv_load(&c, 1, x.bytes, x.size) == ATTN_OK);
        CHECK(same_entry(&x.c, 0, &c, 1) && c.lengths[1] == n && c.lengths[0] == 20);
        CHECK(attn_kv_load(&c, 1, x.bytes, x.size) == ATTN_OK && same_entry(&x.c, 0, &c, 1));
        CHECK(attn_kv_load(&c, 2, x.bytes, x.size) == ATTN_OK && same_entry(&c, 2, &c, 1));
        CHECK(attn_kv_append(&c, 1, rows + 20 * 10, rows + 20 * 10, 20, 10) == ATTN_OK);
        CHECK(c.lengths[1] == n + 20 && same_entry(&x.c, 0, &c, 2));
        CHECK(attn_kv_truncate(&c, 1, n) == ATTN_OK && same_entry(&x.c, 0, &c, 1));
        attn_kv_free(&c);
        saved_free(&x);
    }
    {   /* an empty entry */
        attn_kv_args s = shape_of(2, 100, 0);
        unsigned char bytes[HEADER];
        float rows[2 * 30 * 10] = {0};
        attn_kv c;
        CHECK(attn_kv_init(&c, &s) == ATTN_OK && attn_kv_saved(&c, 1) == HEADER);
        CHECK(attn_kv_save(&c, 1, bytes, HEADER) == ATTN_OK);
        CHECK(attn_kv_append(&c, -1, rows, rows, 30, 10) == ATTN_OK && c.free_pages == 0);
        CHECK(attn_kv_load(&c, 0, bytes, HEADER) == ATTN_OK && c.free_pages == 1);
        CHECK(c.lengths[0] == 0 && c.lengths[1] == 30);
        attn_kv_free(&c);
    }
}

/* Loads over an entry that shares its pages: the other entries keep them. */
static void shared_pages(void)
{
    saved x = saved_make(300, 0);
    attn_kv_args s = shape_of(3, 400, 6);
    float *rows = look_floats(3 * 290 * 10);
    rng r = rng_make(test_seed + 1);
    attn_kv c, alone;
    rng_fill(&r, rows, 3 * 290 * 10);
    CHECK(attn_kv_init(&c, &s) == ATTN_OK && attn_kv_init(&alone, &s) == ATTN_OK);
    CHECK(attn_kv_append(&alone, 0, rows, rows, 290, 10) == ATTN_OK);
    CHECK(attn_kv_append(&c, 0, rows, rows, 290, 10) == ATTN_OK);
    CHECK(attn_kv_reorder(&c, (const int[]){0, 0, 0}) == ATTN_OK && c.free_pages == 3);
    CHECK(attn_kv_load(&c, 1, x.bytes, x.size) == ATTN_OK && c.free_pages == 0);
    CHECK(same_entry(&c, 0, &alone, 0) && same_entry(&c, 2, &alone, 0) && same_entry(&c, 1, &x.c, 0));
    refusal_keeps_cache(&c);
    REFUSED(attn_kv_load(&c, 0, x.bytes, x.size), ATTN_E_FULL,
            "attn_kv_load: the cache needs 3 more pages but 0 are free: 3 are missing");
    CHECK(attn_kv_load(&c, 1, x.bytes, x.size) == ATTN_OK);          /* its own pages are enough */
    CHECK(attn_kv_truncate(&c, 1, 100) == ATTN_OK && c.free_pages == 2);
    CHECK(attn_kv_load(&c, 1, x.bytes, x.size) == ATTN_OK && c.free_pages == 0);
    attn_kv_free(&c);
    attn_kv_free(&alone);
    free(rows);
    saved_free(&x);
}

/* ---- wrong ones -------------------------------------------------------------------------------- */
static attn_kv victim(void)
{
    attn_kv_args s = shape_of(2, 100, 0);
    float rows[2 * 7 * 10] = {0};
    attn_kv c;
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(attn_kv_append(&c, -1, rows, rows, 7, 10) == ATTN_OK);
    return c;
}

/* Every length, and every bit. */
static void damaged(void)
{
    saved x = saved_make(3, 0);
    attn_kv c = victim();
    snapshot before = snapshot_take(&c);
    for (size_t size = 0; size < x.size; size++) {
        unsigned char *part = (unsigned char *)guard_alloc(size);     /* ends at a guard page */
        memcpy(part, x.bytes, size);
        REFUSED(attn_kv_load(&c, 0, part, size), ATTN_E_BYTES, "attn_kv_load: ");
        guard_free(part);
    }
    for (size_t bit = 0; bit < 8 * x.size; bit++) {
        x.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CHECKF(attn_kv_load(&c, 0, x.bytes, x.size) == ATTN_E_BYTES, "bit %lu", (unsigned long)bit);
        x.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    {   /* longer, with zeros at the end; words exchanged */
        unsigned char *more = (unsigned char *)guard_alloc(x.size + 4);
        memset(more, 0, x.size + 4);
        memcpy(more, x.bytes, x.size);
        REFUSED(attn_kv_load(&c, 0, more, x.size + 4), ATTN_E_BYTES, "are damaged, or not all");
        REFUSED(attn_kv_load(&c, 0, more, x.size + 1), ATTN_E_BYTES, "are damaged, or not all");
        seal(more, x.size + 4);
        REFUSED(attn_kv_load(&c, 0, more, x.size + 4), ATTN_E_BYTES, "do not agree with the bytes");
        memcpy(more, x.bytes, x.size);
        memcpy(more + HEADER, x.bytes + HEADER + 4, 4);
        memcpy(more + HEADER + 4, x.bytes + HEADER, 4);
        REFUSED(attn_kv_load(&c, 0, more, x.size), ATTN_E_BYTES, "are damaged");
        guard_free(more);
    }
    CHECK(snapshot_same(&before, &c));
    CHECK(attn_kv_load(&c, 0, x.bytes, x.size) == ATTN_OK && c.lengths[0] == 3);
    attn_kv_free(&c);
    saved_free(&x);
}

/* Forged headers with a valid checksum. */
static void hostile(void)
{
    static const struct { int at; uint32_t word; attn_status status; const char *words; } wrong[] = {
        {0, 0x41747461u, ATTN_E_BYTES, "bytes are not an entry that attn_kv_save has written"},
        {4, 0x01766B2Eu, ATTN_E_BYTES, "bytes are not an entry"},
        {8, 0u, ATTN_E_BYTES, "the bytes are of version 0 but 1..3 are known"},
        {8, 2u, ATTN_E_BYTES, "K and V are stored alike, which version 2 cannot say"},
        {8, 3u, ATTN_E_SIZE, "v_in_k is 1 in the bytes but 0 in the cache"},
        {8, 4u, ATTN_E_BYTES, "the bytes are of version 4 but 1..3 are known"},
        {8, 0x01000000u, ATTN_E_BYTES, "the bytes are of version 16777216 but"},   /* big-endian */
        {12, 1u, ATTN_E_SIZE, "k_storage is 1 in the bytes but 0 in the cache"},
        {12, 0xFFFFFFFFu, ATTN_E_SIZE, "k_storage is 4294967295 in"},
        {16, 1u, ATTN_E_SIZE, "kv_heads is 1 in the bytes but 2 in the cache"},
        {16, 0x80000002u, ATTN_E_SIZE, "kv_heads is 2147483650"},
        {20, 0u, ATTN_E_SIZE, "head_dim is 0 in the bytes but 3 in the cache"},
        {24, 3u, ATTN_E_SIZE, "v_head_dim is 3 in the bytes but 5 in the cache"},
        {28, 129u, ATTN_E_BYTES, "length 129 and forgotten keys from 0 to 0 do not agree with the"},
        {28, 131u, ATTN_E_BYTES, "length 131"}, {28, 0u, ATTN_E_BYTES, "length 0"},
        {28, 0x7FFFFFFFu, ATTN_E_BYTES, "length 2147483647"},
        {28, 0x80000082u, ATTN_E_BYTES, "length 2147483778"},
        {28, 0xFFFFFFFFu, ATTN_E_BYTES, "length 4294967295"},
        {28, 0x04000082u, ATTN_E_BYTES, "length"},       /* times 64: 130 rows modulo 2^32 */
        {32, 128u, ATTN_E_BYTES, "from 128 to 0"}, {36, 128u, ATTN_E_BYTES, "from 0 to 128"},
        {36, 127u, ATTN_E_BYTES, "from 0 to 127"}, {36, 0x80000000u, ATTN_E_BYTES, "from 0 to 2147"},
        {32, 0xFFFFFF80u, ATTN_E_BYTES, "from 4294967168 to 0"},
        {40, 1u, ATTN_E_BYTES, "version 1 has zeros"}, {44, 1u, ATTN_E_BYTES, "has zeros"},
        {48, 1u, ATTN_E_BYTES, "has zeros"}, {52, 0x80000000u, ATTN_E_BYTES, "has zeros"}
    };
    saved x = saved_make(130, 0);
    attn_kv c = victim();
    unsigned char *bytes = (unsigned char *)guard_alloc(x.size);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(bytes, x.bytes, x.size);
        put_word(bytes + wrong[i].at, wrong[i].word);
        seal(bytes, x.size);
        refusal_keeps_cache(&c);
        REFUSED(attn_kv_load(&c, 0, bytes, x.size), wrong[i].status, wrong[i].words);
    }
    attn_kv_free(&c);
    guard_free(bytes);
    saved_free(&x);
}

/* Forged gaps: inside the length and in whole pages, or rejected. */
static void hostile_gaps(void)
{
    static const struct { unsigned length, from, to; int right; } gap[] = {
        {130 + 128, 0, 128, 1}, {130 + 128, 128, 256, 1}, {130 + 256, 0, 256, 1},
        {130 + 256, 128, 384, 1}, {130 + 128, 256, 384, 0}, {130 + 128, 127, 255, 0},
        {130 + 127, 0, 127, 0}, {130, 128, 128, 0}, {130, 256, 256, 0}, {130 + 384, 256, 128, 0},
        {130 + 2147483648u - 1280u, 0, 2147483648u - 1280u, 1},
        {130 + 2147483648u - 1280u, 128, 2147483648u - 1152u, 1},
        {130 + 2147483648u - 1152u, 0, 2147483648u - 1152u, 0},
        {130 + 2147483648u - 1024u, 0, 2147483648u - 1024u, 0},
        {130 + 2147483648u, 0, 2147483648u, 0}, {130 - 128, 128, 0, 0},
        {2, 0, 0xFFFFFF80u, 0}, {2, 128, 0, 0}, {130, 0xFFFFFFFFu, 0, 0},
        {130 + 128, 0xFFFFFFFFu, 128, 0}, {130u + 0xFFFFFF80u, 0, 0xFFFFFF80u, 0}
    };
    saved x = saved_make(130, 0);
    attn_kv_args s = shape_of(2, 400, 0);
    unsigned char *bytes = (unsigned char *)guard_alloc(x.size);
    for (size_t i = 0; i < sizeof gap / sizeof *gap; i++) {
        float k[130 * 6], v[130 * 10], rows[2 * 200 * 10] = {0};
        attn_kv c;
        CHECK(attn_kv_init(&c, &s) == ATTN_OK);
        memcpy(bytes, x.bytes, x.size);
        put_word(bytes + 28, gap[i].length);
        put_word(bytes + 32, gap[i].from);
        put_word(bytes + 36, gap[i].to);
        seal(bytes, x.size);
        if (!gap[i].right) {
            refusal_keeps_cache(&c);
            REFUSED(attn_kv_load(&c, 1, bytes, x.size), ATTN_E_BYTES, "do not agree with");
        } else {
            const int length = (int)gap[i].length, from = (int)gap[i].from, to = (int)gap[i].to;
            CHECK(attn_kv_load(&c, 1, bytes, x.size) == ATTN_OK && c.lengths[1] == length);
            CHECK(attn_kv_read(&c, 1, to, length - to, k, v) == ATTN_OK);
            CHECK(float_bits(k[5]) == get_word(x.bytes + HEADER + 64 * from + 20));   /* `to` is row `from` */
            CHECK(attn_kv_read(&c, 1, 0, from, k, v) == ATTN_OK);
            if (length < 1000) {
                CHECK(attn_kv_append(&c, 1, rows + 200 * 10, rows + 200 * 10, 200, 10) == ATTN_OK);
            } else {                      /* positions end before an int does */
                REFUSED(attn_kv_append(&c, 1, rows + 200 * 10, rows + 200 * 10, 200, 10),
                        ATTN_E_OVERFLOW, "attn_kv_append: entry 1 of the cache has had");
            }
            CHECK(attn_kv_truncate(&c, 1, from) == ATTN_OK);
        }
        attn_kv_free(&c);
    }
    guard_free(bytes);
    saved_free(&x);
}

/* One row over an entry at the largest positions reads only the existing chunks. */
static void last_positions(void)
{
    saved x = saved_make(130, 0);
    attn_kv_args s = shape_of(1, 200, 0);
    const int length = 2147483647 - 1023;
    attn_backend backends[16];
    const int n = test_one_answer_backends(backends, 16);
    float q[2 * 3] = {0.5f, -1, 2, 1, 0.25f, -0.5f}, out[2][2 * 5], lse[2][2], more[10] = {0};
    size_t masked = 7;
    attn_kv c;
    for (int i = 0; i < 10; i++) more[i] = (float)i;
    put_word(x.bytes + HEADER, 0x3F800000u);                          /* no NaN here */
    put_word(x.bytes + HEADER + 64, 0x3F800000u);
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    for (int which = 0; which < 2; which++) {
        const int gone = which ? length - 128 : 0;
        for (int i = 0; i < n; i++) {
            attn_args a = attn_args_for(1, 1, 0, 2, 0);
            put_word(x.bytes + 28, (uint32_t)(which ? length - 128 + 130 - 2 : 130 - 2));
            put_word(x.bytes + 36, (uint32_t)gone);
            seal(x.bytes, HEADER + 128 * 64);
            CHECK(attn_kv_load(&c, 0, x.bytes, HEADER + 128 * 64) == ATTN_OK);
            CHECK(c.lengths[0] == (which ? length : 128));
            a.kv = &c;
            a.q = q;
            a.out = out[which];
            a.lse = lse[which];
            a.masked_rows = &masked;
            a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
            a.window_left = 100;
            a.backend = backends[i];
            if (backends[i] == ATTN_SCALAR) continue;                 /* its loops visit every position */
            CHECK(attn_sdpa(&a) == ATTN_OK && masked == 0);
            CHECK(same_bits(out[0], out[which], 10) && same_bits(lse[0], lse[which], 2));
        }
    }
    refusal_keeps_cache(&c);
    REFUSED(attn_kv_append(&c, -1, more, more, 1, 0), ATTN_E_OVERFLOW,
            "attn_kv_append: entry 0 of the cache has had 2147482624 keys, and 1 more cannot");
    CHECK(attn_kv_truncate(&c, 0, length - 1) == ATTN_OK);
    CHECK(attn_kv_append(&c, -1, more, more, 1, 0) == ATTN_OK && c.lengths[0] == length);
    CHECK(attn_kv_forget(&c, 0, 0, length) == ATTN_OK);
    attn_kv_free(&c);
    saved_free(&x);
}

/* Another entry has more chunks than fit an int after the forgotten ones of the first. The call is split by the chunks
   of the longer one. */
static void last_beside(void)
{
    saved x = saved_make(256, 128);
    attn_kv_args s = shape_of(2, 1500, 0);
    const attn_exec exec = test_exec(16);
    float q[2 * 2 * 3], out[2][2 * 2 * 5];
    attn_kv c;
    attn_args a = attn_args_for(2, 1, 0, 2, 0);
    float *rows = look_floats(2 * 1500 * 10);
    rng r = rng_make(test_seed);
    rng_fill(&r, rows, 2 * 1500 * 10);
    rng_fill(&r, q, 2 * 2 * 3);
    put_word(x.bytes + HEADER, 0x3F800000u);                          /* no NaN here */
    put_word(x.bytes + 28, 2147483647 - 1023);
    put_word(x.bytes + 36, 2147483647 - 1023 - 128);
    seal(x.bytes, x.size);
    CHECK(attn_kv_init(&c, &s) == ATTN_OK);
    CHECK(attn_kv_load(&c, 0, x.bytes, x.size) == ATTN_OK);
    CHECK(attn_kv_append(&c, 1, rows + 1500 * 10, rows + 1500 * 10, 1500, 10) == ATTN_OK);
    a.kv = &c;
    a.q = q;
    for (int i = 0; i < 2; i++) {
        a.out = out[i];
        a.exec = i ? &exec : NULL;
        CHECK(attn_sdpa(&a) == ATTN_OK);
    }
    CHECK(same_bits(out[0], out[1], 2 * 2 * 5));
    attn_kv_free(&c);
    free(rows);
    saved_free(&x);
}

/* The same in 16 bits: an odd number of values is followed by two zero bytes, and formats are not mixed. */
static void narrow(void)
{
    for (int storage = ATTN_F16; storage <= ATTN_BF16; storage++) {
        const float rows[3] = {1.0f, -2.5f, 3.0f};
        attn_kv_args s = {0};
        unsigned char bytes[HEADER + 8], again[HEADER + 8];
        attn_kv c, other;
        s.batch = s.kv_heads = s.capacity = 1;
        s.head_dim = 1;
        s.v_head_dim = 2;
        s.k_storage = s.v_storage = (attn_storage)storage;
        CHECK(attn_kv_init(&c, &s) == ATTN_OK && attn_kv_append(&c, -1, rows, rows + 1, 1, 0) == ATTN_OK);
        CHECK(attn_kv_saved(&c, 0) == sizeof bytes);
        CHECK(attn_kv_save(&c, 0, bytes, sizeof bytes) == ATTN_OK);
        CHECK(get_word(bytes + HEADER) == (storage == ATTN_F16 ? 0xC1003C00u : 0xC0203F80u));
        CHECK(get_word(bytes + HEADER + 4) == (storage == ATTN_F16 ? 0x4200u : 0x4040u));
        for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            CHECKF(attn_kv_load(&c, 0, bytes, sizeof bytes) == ATTN_E_BYTES, "bit %d", (int)bit);
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        for (size_t size = 0; size < sizeof bytes; size++)
            CHECK(attn_kv_load(&c, 0, bytes, size) == ATTN_E_BYTES);
        memcpy(again, bytes, sizeof bytes);
        again[HEADER + 7] = 1;
        seal(again, sizeof again);
        refusal_keeps_cache(&c);
        REFUSED(attn_kv_load(&c, 0, again, sizeof again), ATTN_E_BYTES, "do not agree with");
        CHECK(attn_kv_load(&c, 0, bytes, sizeof bytes) == ATTN_OK);
        CHECK(attn_kv_save(&c, 0, again, sizeof again) == ATTN_OK && !memcmp(bytes, again, sizeof bytes));
        s.k_storage = s.v_storage = (attn_storage)(ATTN_BF16 - storage + ATTN_F16);   /* the other format, and float */
        for (int i = 0; i < 2; i++, s.k_storage = s.v_storage = ATTN_F32) {
            CHECK(attn_kv_init(&other, &s) == ATTN_OK);
            refusal_keeps_cache(&other);
            REFUSED(attn_kv_load(&other, 0, bytes, sizeof bytes), ATTN_E_SIZE, "k_storage is");
            attn_kv_free(&other);
        }
        attn_kv_free(&c);
    }
}

/* The bytes of a row in 8 bits, its scale after them; and the value that no rounding gives. */
static void eight(void)
{
    static const float k[6] = {1.0f, -2.0f, 4.0f, 0.0f, 127.0f, -3.5f}, v[2] = {-1.0f, 5.0f};
    static const unsigned char want[] = {32, 192, 127, 0x04, 0x02, 0x01, 0x3D, 0, 127, 252, 0, 0, 0x80, 0x3F,
                                         129, 0x04, 0x02, 0x01, 0x3C, 127, 0x85, 0x42, 0x21, 0x3D};
    attn_kv_args s = {.batch = 1, .kv_heads = 2, .head_dim = 3, .v_head_dim = 1, .capacity = 3,
                      .k_storage = ATTN_Q8, .v_storage = ATTN_Q8};
    attn_kv c, d;
    unsigned char bytes[HEADER + sizeof want], again[HEADER + sizeof want];
    CHECK(attn_kv_init(&c, &s) == ATTN_OK && attn_kv_init(&d, &s) == ATTN_OK);
    CHECK(attn_kv_append(&c, 0, k, v, 1, 0) == ATTN_OK);
    CHECK(attn_kv_saved(&c, 0) == sizeof bytes && attn_kv_save(&c, 0, bytes, sizeof bytes) == ATTN_OK);
    for (size_t i = 0; i < sizeof want; i++)
        CHECKF(bytes[HEADER + i] == want[i], "byte %d is %d", (int)i, bytes[HEADER + i]);
    CHECK(attn_kv_load(&d, 0, bytes, sizeof bytes) == ATTN_OK);
    CHECK(attn_kv_save(&d, 0, again, sizeof again) == ATTN_OK && !memcmp(bytes, again, sizeof bytes));
    refusal_keeps_cache(&d);
    for (size_t i = 0; i < sizeof want; i++) {
        const int value = i < 3 || (i >= 7 && i < 10) || i == 14 || i == 19;
        memcpy(again, bytes, sizeof bytes);
        again[HEADER + i] = 0x80;
        seal(again, sizeof again);
        if (value)
            REFUSED(attn_kv_load(&d, 0, again, sizeof again), ATTN_E_BYTES, "attn_kv_load: a value of 8 bits is -128");
        else CHECK(attn_kv_load(&c, 0, again, sizeof again) == ATTN_OK);
    }
    attn_kv_free(&c);
    attn_kv_free(&d);
}

static void wrong_calls(void)
{
    saved x = saved_make(20, 0);
    attn_kv c = victim(), zero = {0};
    unsigned char *at, bytes[HEADER + 20 * 64];
    float k[20 * 6];
    attn_kv_args s = shape_of(1, 10, 0);
    attn_kv small;
    CHECK(attn_kv_save(&x.c, 0, bytes, sizeof bytes) == ATTN_OK && !memcmp(bytes, x.bytes, x.size));
    REFUSED_SIZE(attn_kv_saved(NULL, 0), ATTN_E_NULL, "attn_kv_saved: c is NULL");
    REFUSED_SIZE(attn_kv_saved(&zero, 0), ATTN_E_NULL, "attn_kv_saved: c is not a cache");
    REFUSED_SIZE(attn_kv_saved(&c, 2), ATTN_E_MAP, "attn_kv_saved: entry is 2 but must be 0..1");
    REFUSED_SIZE(attn_kv_saved(&c, -1), ATTN_E_MAP, "attn_kv_saved: entry is -1");
    REFUSED(attn_kv_save(NULL, 0, bytes, 9), ATTN_E_NULL, "attn_kv_save: c is NULL");
    REFUSED(attn_kv_save(&zero, 0, bytes, 9), ATTN_E_NULL, "attn_kv_save: c is not a cache");
    REFUSED(attn_kv_save(&x.c, 1, bytes, 9), ATTN_E_MAP, "attn_kv_save: entry is 1");
    REFUSED(attn_kv_save(&x.c, 0, NULL, 9), ATTN_E_NULL, "attn_kv_save: bytes is NULL");
    memset(bytes, 0x77, sizeof bytes);
    REFUSED(attn_kv_save(&x.c, 0, bytes, x.size - 1), ATTN_E_WORK,
            "attn_kv_save: size is 1343 but attn_kv_saved asks for 1344");
    REFUSED(attn_kv_save(&x.c, 0, bytes, 0), ATTN_E_WORK, "attn_kv_save: size is 0");
    for (size_t i = 0; i < sizeof bytes; i++) if (bytes[i] != 0x77) { CHECKF(0, "written"); break; }
    at = (unsigned char *)(void *)c.memory;
    refusal_keeps_cache(&c);
    REFUSED(attn_kv_save(&c, 0, at + 5, c.bytes), ATTN_E_OVERLAP, "attn_kv_save: ");
    REFUSED(attn_kv_load(&c, 0, at + 7, 64), ATTN_E_OVERLAP, "attn_kv_load: ");
    REFUSED(attn_kv_load(NULL, 0, x.bytes, x.size), ATTN_E_NULL, "attn_kv_load: c is NULL");
    REFUSED(attn_kv_load(&zero, 0, x.bytes, x.size), ATTN_E_NULL, "attn_kv_load: c is not a cache");
    REFUSED(attn_kv_load(&c, 0, NULL, x.size), ATTN_E_NULL, "attn_kv_load: bytes is NULL");
    REFUSED(attn_kv_load(&c, 2, x.bytes, x.size), ATTN_E_MAP, "attn_kv_load: entry is 2");
    REFUSED(attn_kv_load(&c, -1, x.bytes, x.size), ATTN_E_MAP, "attn_kv_load: entry is -1");
    CHECK(attn_kv_init(&small, &s) == ATTN_OK);
    refusal_keeps_cache(&small);
    REFUSED(attn_kv_load(&small, 0, x.bytes, x.size), ATTN_E_FULL,
            "attn_kv_load: 20 keys are saved but an entry of the cache holds 10");
    attn_kv_free(&small);

    REFUSED(attn_kv_read(NULL, 0, 0, 0, k, k), ATTN_E_NULL, "attn_kv_read: c is NULL");
    REFUSED(attn_kv_read(&zero, 0, 0, 0, k, k), ATTN_E_NULL, "attn_kv_read: c is not a cache");
    REFUSED(attn_kv_read(&c, 2, 0, 0, k, k), ATTN_E_MAP, "attn_kv_read: entry is 2");
    REFUSED(attn_kv_read(&c, -1, 0, 0, k, k), ATTN_E_MAP, "attn_kv_read: entry is -1");
    REFUSED(attn_kv_read(&c, 0, 0, -1, k, k), ATTN_E_SIZE, "attn_kv_read: n is -1");
    REFUSED(attn_kv_read(&c, 0, -1, 1, k, NULL), ATTN_E_LENGTHS, "attn_kv_read: first is -1");
    REFUSED(attn_kv_read(&c, 0, 8, 0, k, NULL), ATTN_E_LENGTHS,
            "attn_kv_read: first is 8 and n 0 but the entry has 7 keys");
    REFUSED(attn_kv_read(&c, 0, 7, 1, k, NULL), ATTN_E_LENGTHS, "first is 7 and n 1");
    REFUSED(attn_kv_read(&c, 0, 1, 2147483647, k, NULL), ATTN_E_LENGTHS, "first is 1 and n 2147483647");
    REFUSED(attn_kv_read(&c, 0, 0, 2, k, k + 11), ATTN_E_OVERLAP, "attn_kv_read: ");
    REFUSED(attn_kv_read(&c, 0, 0, 2, c.memory, NULL), ATTN_E_OVERLAP, "attn_kv_read: ");
    REFUSED(attn_kv_read(&c, 0, 0, 2, NULL, c.memory + 1), ATTN_E_OVERLAP, "attn_kv_read: ");
    REFUSED(attn_kv_read(&c, 0, 0, 1, (float *)(void *)((char *)k + 1), NULL), ATTN_E_ALIGN,
            "attn_kv_read: k is not aligned");
    REFUSED(attn_kv_read(&c, 0, 0, 1, NULL, (float *)(void *)((char *)k + 2)), ATTN_E_ALIGN,
            "attn_kv_read: v is not aligned");
    CHECK(attn_kv_read(&c, 0, 0, 7, NULL, NULL) == ATTN_OK);
    CHECK(attn_kv_read(&c, 0, 7, 0, NULL, NULL) == ATTN_OK);
    attn_kv_free(&c);
    saved_free(&x);
}

extern const test_case suite_saved[];
SUITE(saved) = {
    {"known bytes", known_bytes, "a format that changes without a version, or with the machine"},
    {"round trips", round_trips, "a key, a bit or the forgotten range lost by save and load"},
    {"shared pages", shared_pages, "a load that writes into pages that other entries hold"},
    {"damaged", damaged, "truncated or flipped bytes that are accepted, a read past their end"},
    {"hostile", hostile, "an invalid header that is accepted because its checksum is valid"},
    {"hostile gaps", hostile_gaps, "forgotten keys that lead out of the table, or past an int"},
    {"last positions", last_positions, "positions near INT_MAX that wrap"},
    {"last positions shared", last_beside, "chunks of a longer entry counted past the last position"},
    {"eight bits", eight, "values of 8 bits or their scales in another order; a value of -128 accepted"},
    {"narrow", narrow, "half read as bfloat16, bytes after the last value that are accepted"},
    {"rejected calls", wrong_calls, "an error after something was written, or none"},
    {0}};
