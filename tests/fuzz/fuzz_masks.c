/* fuzz_masks.c: the builders, the pictures, and attn_self and attn_cross with arbitrary bytes. Elements must be as the
 * manual specifies, buffers are exact, invalid sizes are rejected; attn_self and attn_cross must give the bits of the
 * equivalent attn_sdpa. */
#include "fuzz.h"

/* Draws a size that may be invalid; *ok becomes 0 if it is negative or its matrix too large for the test. */
static int size_of(input *in, int most, int *ok)
{
    const int n = u8(in) > 240u ? odd_size(in) : from_to(in, 0, most);
    if (n < 0 || n > 64) *ok = 0;
    return n;
}

/* Returns the status of a negative size or of one too large for memory, whichever is checked first. */
static int bad_size(attn_status s) { return s == ATTN_E_SIZE || s == ATTN_E_OVERFLOW; }

static int position(input *in) { return u8(in) > 240u ? odd_size(in) : from_to(in, -12, 20); }

/* The arguments of one call of a builder. */
typedef struct builder {
    int batch, n_q, n_k, pos, left, right;
    size_t cells, plane;                      /* of all entries, of one */
    float *m, *by;
    const int *ids;
    int *lengths;
} builder;

/* Sizes that are invalid or too large: nothing may be written or read. */
static void impossible(const builder *x)
{
    const int wrong = x->batch < 0 || x->n_q < 0 || x->n_k < 0;
    attn_status s;
    if (wrong) {
        MUST(x->n_q >= 0 && x->n_k >= 0 ? 1 : bad_size(attn_mask_causal(NULL, x->n_q, x->n_k, x->pos)));
        MUST(bad_size(attn_mask_cross(NULL, NULL, 0, x->batch, x->n_q, x->n_k)));
        MUST(bad_size(attn_mask_lengths(NULL, NULL, x->batch, x->n_q, x->n_k)));
        MUST(bad_size(attn_mask_merge(NULL, x->batch, NULL, 1, x->n_q, x->n_k)));
        if (x->batch < 0 || x->n_q < 0) MUST(bad_size(attn_lengths(NULL, NULL, 0, x->batch, x->n_q)));
    } else if (x->batch && x->n_q && x->n_k) {
        s = attn_mask_cross(NULL, NULL, 0, x->batch, x->n_q, x->n_k);
        MUST(s == ATTN_E_NULL || s == ATTN_E_OVERFLOW);
    }
}

static void causal(const builder *x)
{
    int i, j;
    if (x->plane > x->cells) return;
    MUST(attn_mask_causal(x->m, x->n_q, x->n_k, x->pos) == ATTN_OK);
    for (i = 0; i < x->n_q; i++)
        for (j = 0; j < x->n_k; j++)
            MUST(float_bits(x->m[i * x->n_k + j]) == (j <= (long long)i + x->pos ? 0u : 0xFF800000u));
}

static void window(const builder *x)
{
    int i, j;
    attn_status s;
    if (x->plane > x->cells) return;
    s = attn_mask_window(x->m, x->n_q, x->n_k, x->left, x->right, x->pos);
    MUST(s == (x->left < 0 || x->right < 0 ? ATTN_E_OPTION : ATTN_OK));
    for (i = 0; i < x->n_q && s == ATTN_OK; i++)
        for (j = 0; j < x->n_k; j++) {
            const long long p = (long long)i + x->pos;
            const int sees = (!x->left || j > p - x->left) && (!x->right || j < p + x->right);
            MUST(float_bits(x->m[i * x->n_k + j]) == (sees ? 0u : 0xFF800000u));
        }
}

static void cross(const builder *x)
{
    int i, j, b;
    MUST(attn_mask_cross(x->m, x->ids, 1, x->batch, x->n_q, x->n_k) == ATTN_OK);
    for (b = 0; b < x->batch; b++)
        for (i = 0; i < x->n_q; i++)
            for (j = 0; j < x->n_k; j++) {
                const size_t cell = (size_t)(b * x->n_q + i) * (size_t)x->n_k + (size_t)j;
                MUST(float_bits(x->m[cell]) == (x->ids[b * x->n_k + j] == 1 ? 0xFF800000u : 0u));
            }
}

static void by_lengths(const builder *x)
{
    int i, b;
    attn_status s;
    for (b = 0, s = ATTN_OK; b < x->batch && x->cells; b++)
        if (x->lengths[b] < 0 || x->lengths[b] > x->n_k) s = ATTN_E_LENGTHS;
    MUST(attn_mask_lengths(x->m, x->lengths, x->batch, x->n_q, x->n_k) == s);
    if (s != ATTN_OK) MUST(wiped(x->m, x->cells * sizeof *x->m));
    for (b = 0; b < x->batch && s == ATTN_OK; b++)
        for (i = 0; i < x->n_q * x->n_k; i++)
            MUST(float_bits(x->m[b * x->n_q * x->n_k + i]) == (i % x->n_k < x->lengths[b] ? 0u : 0xFF800000u));
}

/* attn_lengths writes exactly these lengths, or nothing. */
static void count_lengths(const builder *x)
{
    int i, b;
    int holes = 0;
    for (b = 0; b < x->batch; b++)
        for (i = 1; i < x->n_q; i++) holes |= x->ids[b * x->n_q + i - 1] == 1 && x->ids[b * x->n_q + i] != 1;
    memset(x->lengths, 0xA5, (size_t)x->batch * sizeof *x->lengths);
    MUST(attn_lengths(x->lengths, x->ids, 1, x->batch, x->n_q) == (holes ? ATTN_E_LENGTHS : ATTN_OK));
    if (holes) MUST(wiped(x->lengths, (size_t)x->batch * sizeof *x->lengths));
    for (b = 0; b < x->batch && !holes; b++) {
        for (i = 0; i < x->n_q && x->ids[b * x->n_q + i] != 1; i++) {}
        MUST(x->lengths[b] == i);
    }
}

static void merge(input *in, const builder *x)
{
    attn_status s;
    static const float kinds[] = {0.0f, -INFINITY, 1.5f, INFINITY, NAN, -1e9f, -0.0f, -3e38f};
    const int one = coin(in), by_batch = u8(in) > 240u ? 2 : one ? 1 : x->batch;
    float *was = floats(x->cells);
    size_t c;
    for (c = 0; c < x->cells; c++) x->m[c] = kinds[u8(in) & 7u], x->by[c] = kinds[u8(in) & 7u];
    memcpy(was, x->m, x->cells * sizeof *was);
    s = attn_mask_merge(x->m, x->batch, x->by, by_batch, x->n_q, x->n_k);
    MUST(s == (by_batch != 1 && by_batch != x->batch ? ATTN_E_SHAPE : ATTN_OK));
    for (c = 0; c < x->cells && s == ATTN_OK; c++) {
        const float other = x->by[by_batch == 1 ? c % x->plane : c];
        if (was[c] == -INFINITY || other == -INFINITY) MUST(x->m[c] == -INFINITY);
        else MUST(x->m[c] == was[c] + other || (x->m[c] != x->m[c] && (was[c] != was[c] || other != other)));
    }
    free(was);
}

static void t5(input *in, const builder *x)
{
    int i, j;
    attn_status s;
    const int buckets = u8(in) > 200u ? odd_size(in) : from_to(in, 1, 40), one_way = u8(in) > 240u ? 2 : coin(in);
    const int far_ = u8(in) > 200u ? odd_size(in) : from_to(in, 1, 140), fits = buckets > 0 && buckets <= 512;
    const int heads = x->n_q && x->n_k ? x->batch : 0, extent = x->n_q && x->n_k ? (x->n_q * x->n_k - 1) / 2 : 0;
    const int width = 2 * extent + 1;
    float *table = floats(fits ? (size_t)buckets * (size_t)heads : 1);
    size_t c;
    for (c = 0; fits && c < (size_t)buckets * (size_t)heads; c++) table[c] = (float)c;
    s = attn_bias_t5(x->m, table, buckets, far_, one_way, heads, extent);
    MUST(s == ATTN_OK || s == ATTN_E_SIZE || s == ATTN_E_OPTION);
    if (one_way > 1) MUST(s != ATTN_OK);
    if (s != ATTN_OK) MUST(wiped(x->m, x->cells * sizeof *x->m));
    else MUST(fits || !heads);
    for (i = 0; i < heads && s == ATTN_OK; i++)         /* each number comes from the column of its head */
        for (j = 0; j < width; j++)
            MUST((int)x->m[i * width + j] % heads == i && x->m[i * width + j] < (float)(buckets * heads));
    free(table);
}

static void by_keep(input *in, const builder *x)
{
    unsigned char *keep = (unsigned char *)malloc(x->cells ? x->cells : 1);
    size_t c;
    for (c = 0; keep && c < x->cells; c++) keep[c] = (unsigned char)u8(in);
    MUST(attn_mask_keep(x->m, keep, x->cells) == ATTN_OK);
    for (c = 0; keep && c < x->cells; c++) MUST(float_bits(x->m[c]) == (keep[c] ? 0u : 0xFF800000u));
    free(keep);
}

static void builders(input *in)
{
    builder b, *const x = &b;
    int ok = 1, rows;
    b.batch = size_of(in, 3, &ok), b.n_q = size_of(in, 9, &ok), b.n_k = size_of(in, 12, &ok), b.pos = position(in);
    b.left = position(in), b.right = position(in);
    b.cells = ok ? (size_t)b.batch * (size_t)b.n_q * (size_t)b.n_k : 1;
    b.plane = ok ? (size_t)b.n_q * (size_t)b.n_k : 1;
    b.m = floats(b.cells), b.by = floats(b.cells);
    rows = b.n_q > b.n_k ? b.n_q : b.n_k;
    b.ids = numbers(in, ok ? b.batch * rows : 1, 0, 2);
    b.lengths = (int *)(uintptr_t)numbers(in, ok ? b.batch : 1, -1, ok ? b.n_k + 1 : 1);
    if (!ok) impossible(x);
    else switch (u8(in) % 8u) {
    case 0: causal(x); break;
    case 1: window(x); break;
    case 2: cross(x); break;
    case 3: by_lengths(x); break;
    case 4: count_lengths(x); break;
    case 5: merge(in, x); break;
    case 6: t5(in, x); break;
    default: by_keep(in, x); break;
    }
    free(b.m), free(b.by), free(b.lengths), free((void *)(uintptr_t)b.ids);
}

static void picture(input *in)
{
    static const char *const words[] = {"", "a", "caf\xC3\xA9", "\xF0\x9F\x98\x80", "\xFF", "\xC3", "long enough", "<pad>"};
    const int n_q = from_to(in, 0, 4), n_k = from_to(in, 0, 4);
    const size_t cells = (size_t)(n_q * n_k), room = (size_t)from_to(in, 0, 300);
    const char *rows[4], *cols[4];
    float *m = floats(cells);
    char *text = (char *)malloc(room ? room : 1), *whole;
    size_t i, n, n2;
    const unsigned f = u8(in);
    for (i = 0; i < cells; i++) m[i] = coin(in) ? bits_float(u32(in)) : number(in);
    for (i = 0; i < 4; i++) rows[i] = words[u8(in) & 7u], cols[i] = u8(in) > 250u ? NULL : words[u8(in) & 7u];
    if (f & 4u) rows[0] = NULL;
    n = attn_mask_format(text, room, m, n_q, n_k, f & 1u ? rows : NULL, f & 2u ? cols : NULL);
    whole = (char *)malloc(n + 1);
    if (!text || !whole) abort();
    n2 = attn_mask_format(whole, n + 1, m, n_q, n_k, f & 1u ? rows : NULL, f & 2u ? cols : NULL);
    MUST(n2 == n && strlen(whole) == n && attn_mask_format(NULL, 0, m, n_q, n_k, f & 1u ? rows : NULL, f & 2u ? cols : NULL) == n);
    if (room) MUST(strlen(text) == (n < room ? n : room - 1) && memcmp(text, whole, strlen(text)) == 0);
    free(m), free(text), free(whole);
}

static void level_2(input *in)
{
    const unsigned f = u8(in);
    const int batch = from_to(in, 0, 3), n_q = from_to(in, 0, 9), n_k = f & 1u ? n_q : from_to(in, 0, 9);
    const int heads = from_to(in, 1, 3), head_dim = u8(in) > 240u ? 90 : from_to(in, 1, 9);
    const size_t n_out = (size_t)(batch * n_q * heads * head_dim), n_in = (size_t)(batch * n_k * heads * head_dim);
    float *q = normals(in, n_out), *k = normals(in, n_in), *v = normals(in, n_in), *out = floats(2 * n_out), *mask = NULL;
    const int *lengths = numbers(in, batch, 0, n_k);
    attn_args a;
    attn_status s;
    size_t i;
    the_heap.fail_at = 0;
    memset(&a, 0, sizeof a);
    if (f & 2u) {
        mask = normals(in, (size_t)(batch * n_q * n_k));
        for (i = 0; i < (size_t)(batch * n_q * n_k); i += 1 + u8(in) % 3u) mask[i] = -INFINITY;
        a.mask = mask, a.mask_shape[0] = batch ? batch : 1, a.mask_shape[1] = 1, a.mask_shape[2] = n_q ? n_q : 1;
    }
    a.out = out + n_out, a.q = q, a.k = k, a.v = v, a.batch = batch, a.n_q = n_q, a.n_k = n_k, a.heads = heads, a.head_dim = head_dim;
    if (f & 4u) a.k_lengths = lengths;
    if (f & 8u) the_heap.fail_at = 1;
    if (f & 1u) {
        if (f & 4u) a.q_lengths = lengths;
        if (f & 16u) a.causal = ATTN_CAUSAL_TOP_LEFT;
        s = attn_self(out, q, k, v, batch, n_q, heads, head_dim, f & 16u ? 1 : 0, f & 4u ? lengths : NULL, mask);
    } else {
        s = attn_cross(out, q, k, v, batch, n_q, n_k, heads, head_dim, f & 4u ? lengths : NULL, mask);
    }
    MUST(s == (the_heap.fail_at && the_heap.calls ? ATTN_E_MEMORY : ATTN_OK));
    the_heap.fail_at = 0;
    if (s == ATTN_OK) MUST(attn_sdpa(&a) == ATTN_OK && same_bits(out, out + n_out, n_out));
    else MUST(wiped(out, n_out * sizeof *out));
    MUST(attn_cross(out, q, k, v, batch, -1, n_k, heads, head_dim, NULL, NULL) == ATTN_E_SIZE);
    MUST(attn_cross(out, q, k, v, batch, n_q, n_k, 0, head_dim, NULL, NULL) == ATTN_E_SIZE);
    MUST(attn_self(out, q, k, v, batch, n_q, heads, odd_size(in) & INT_MIN, 0, NULL, NULL) == ATTN_E_SIZE);
    MUST(attn_self(out, q, k, v, batch, n_q, heads, head_dim, 2, NULL, NULL) != ATTN_OK);
    free(q), free(k), free(v), free(out), free(mask), free((void *)(uintptr_t)lengths);
}

/* Frequencies from any numbers are finite and not negative, or the call is rejected and writes nothing. */
static void frequencies(input *in)
{
    static const double some[] = {0.0, 1.0, 8.0, 1e9, 0.5, -1.0, NAN, INFINITY, 1e-9, 500000.0, 1e300, -0.0};
    const int dim = u8(in) > 220u ? odd_size(in) : 2 * from_to(in, 1, 20), fits = dim > 0 && dim < 100;
    float freqs[50], factors[50], attention;
    attn_rope_freqs_args a;
    attn_status s;
    int i;
    memset(&a, 0, sizeof a);
    a.kind = (attn_rope_kind)from_to(in, 0, u8(in) > 240u ? 9 : 5);
    a.rotary_dim = dim, a.original = u8(in) > 220u ? odd_size(in) : from_to(in, 2, 9000);
    a.base = some[u8(in) % 12u], a.factor = some[u8(in) % 12u], a.low = some[u8(in) % 12u], a.high = some[u8(in) % 12u];
    a.attention_factor = some[u8(in) % 12u], a.mscale = some[u8(in) % 12u], a.mscale_all_dim = some[u8(in) % 12u];
    a.untruncated = coin(in), a.rotated = 2 * from_to(in, 0, 20), a.factors = factors;
    for (i = 0; i < 50; i++) factors[i] = u8(in) > 250u ? bits_float(u32(in)) : 1.0f + (float)u8(in);
    memset(freqs, 0x5A, sizeof freqs);
    if (!fits && dim > 0) return;
    s = attn_rope_freqs(freqs, &attention, &a);
    for (i = 0; i < dim / 2 && s == ATTN_OK; i++) MUST(freqs[i] >= 0.0f && freqs[i] < 65536.0f);
    if (s == ATTN_OK) MUST(attention > 0.0f && attention < 1e30f);
    else for (i = 0; i < 50; i++) MUST(float_bits(freqs[i]) == 0x5A5A5A5Au);
}

static void rotation(input *in)
{
    const int positions = u8(in) > 220u ? odd_size(in) : from_to(in, 0, 9), hd = u8(in) > 220u ? odd_size(in) : 2 * from_to(in, 1, 5);
    const int fits = positions >= 0 && positions < 1000 && hd > 0 && hd < 100, have = coin(in);
    const size_t n = fits ? (size_t)(positions * hd) : 1;
    static const double bases[] = {0.0, 10000.0, 1.0, 500000.0, 0.5, -1.0, NAN, INFINITY, 1e300, 1e301};
    const double base = bases[u8(in) % 10u];
    float *table = floats(n), *freqs = floats(fits ? (size_t)hd / 2 : 1), *x;
    size_t i;
    attn_status s;
    for (i = 0; i < (fits ? (size_t)hd / 2 : 1); i++) freqs[i] = u8(in) > 250u ? bits_float(u32(in)) : (float)u16(in) / 65536.0f;
    if (fits || positions < 0 || hd < 1) {
        s = attn_rope_table(table, positions, hd, have ? freqs : NULL, base);
        MUST(s == ATTN_OK || s == ATTN_E_SIZE || s == ATTN_E_OPTION || (!fits && s == ATTN_E_OVERFLOW));
        if (positions < 0 || hd < 1 || hd % 2) MUST(s != ATTN_OK);
        if (s != ATTN_OK) MUST(wiped(table, n * sizeof *table));
        for (i = 0; i < n && s == ATTN_OK; i++) MUST(fabs((double)table[i]) <= 1.0 && float_bits(table[i]) != 0x80000000u);
        if (s == ATTN_OK && positions > 0) {
            const int rows = from_to(in, 0, positions);
            attn_rope_args a;
            memset(&a, 0, sizeof a);
            x = normals(in, (size_t)(rows * hd));
            a.x = x, a.batch = 1, a.n = rows, a.heads = 1, a.head_dim = hd, a.rope_table = table, a.positions = positions;
            a.rope_interleaved = coin(in), a.pos = positions - rows;
            MUST(attn_rope(&a) == ATTN_OK);
            free(x);
        }
    }
    free(table), free(freqs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in;
    in.at = data, in.end = data + size, in.noise = (uint32_t)size;
    memset(&the_heap, 0, sizeof the_heap);
    switch (u8(&in) % 5u) {
    case 0: case 1: builders(&in); break;
    case 2: picture(&in); break;
    case 3: level_2(&in); break;
    default:
        if (u8(&in) > 160u) frequencies(&in);
        else rotation(&in);
    }
    MUST(the_heap.live == 0);
    return 0;
}
