/* Masks and biases (level 1) against independent plain definitions, element by element. */
#if !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L           /* dup, dup2: to read what attn_mask_print printed */
#include <unistd.h>
#endif
#include <limits.h>
#include "test.h"

enum { HIDDEN_BITS = -8388608 };          /* 0xFF800000, -inf */

static uint32_t cell_bits(int visible) { return visible ? 0u : (uint32_t)HIDDEN_BITS; }

/* m[n] is exactly +0 where want[] is 1 and -inf where it is 0: no other value, and every element is written */
static void check_cells(const char *what, const float *m, const unsigned char *want, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        if (float_bits(m[i]) == cell_bits(want[i])) { test_checks++; continue; }
        test_fail(__FILE__, __LINE__, "%s: cell %lu is %g (bits %08lx), it should be %s", what, (unsigned long)i,
                  (double)m[i], (unsigned long)float_bits(m[i]), want[i] ? "0" : "-inf");
        return;
    }
}

/* ---- causal and window ------------------------------------------------------------------------------------- */

static const int positions[] = { 0, 1, -1, 3, -3, 7, -7, 100, -100, INT_MAX, INT_MAX - 2, INT_MIN, INT_MIN + 2 };
enum { N_POSITIONS = sizeof positions / sizeof *positions };
static const int sizes[] = { 1, 2, 5, 8 };

static void causal_cells(void)
{
    int a, b, p, i, j;
    for (a = 0; a < 4; a++) for (b = 0; b < 4; b++) for (p = 0; p < N_POSITIONS; p++) {
        int n_q = sizes[a], n_k = sizes[b];
        size_t n = (size_t)n_q * (size_t)n_k;
        float *m = guard_floats(n);
        unsigned char want[64];
        char what[64];
        for (i = 0; i < n_q; i++) for (j = 0; j < n_k; j++)
            want[i * n_k + j] = (long long)j <= (long long)i + positions[p];
        snprintf(what, sizeof what, "causal %d x %d pos %d", n_q, n_k, positions[p]);
        CHECK(attn_mask_causal(m, n_q, n_k, positions[p]) == ATTN_OK);
        check_cells(what, m, want, n);
        guard_free(m);
    }
}

static void window_cells(void)
{
    static const int widths[] = { 0, 1, 2, 3, 9, INT_MAX };
    int a, b, p, l, r, i, j;
    for (a = 0; a < 4; a++) for (b = 0; b < 4; b++) for (p = 0; p < N_POSITIONS; p++)
    for (l = 0; l < 6; l++) for (r = 0; r < 6; r++) {
        int n_q = sizes[a], n_k = sizes[b];
        size_t n = (size_t)n_q * (size_t)n_k;
        float *m = guard_floats(n);
        unsigned char want[64];
        char what[96];
        for (i = 0; i < n_q; i++) for (j = 0; j < n_k; j++) {
            long long at = (long long)i + positions[p], back = at - j;     /* distance of the key before the row */
            want[i * n_k + j] = (widths[l] == 0 || back < widths[l]) && (widths[r] == 0 || -back < widths[r]);
        }
        snprintf(what, sizeof what, "window %d x %d left %d right %d pos %d", n_q, n_k, widths[l], widths[r],
                 positions[p]);
        CHECK(attn_mask_window(m, n_q, n_k, widths[l], widths[r], positions[p]) == ATTN_OK);
        check_cells(what, m, want, n);
        guard_free(m);
    }
}

/* Pictures drawn by hand: a window of two backwards, one of one, and a diagonal band. */
static void window_drawn(void)
{
    static const unsigned char mistral[] = { 1,0,0,0,  1,1,0,0,  0,1,1,0,  0,0,1,1 };      /* left 2, right 1 */
    static const unsigned char self[]    = { 1,0,0,0,  0,1,0,0,  0,0,1,0,  0,0,0,1 };      /* left 1, right 1 */
    static const unsigned char band[]    = { 1,1,0,0,  1,1,1,0,  0,1,1,1,  0,0,1,1 };      /* left 2, right 2 */
    static const unsigned char ahead[]   = { 1,1,0,0,  1,1,1,0,  1,1,1,1,  1,1,1,1 };      /* left 0, right 2 */
    static const unsigned char last[]    = { 0,1,1,0,  0,0,1,1 };                          /* left 2, right 1, pos 2 */
    float m[16];
    CHECK(attn_mask_window(m, 4, 4, 2, 1, 0) == ATTN_OK); check_cells("left 2 right 1", m, mistral, 16);
    CHECK(attn_mask_window(m, 4, 4, 1, 1, 0) == ATTN_OK); check_cells("left 1 right 1", m, self, 16);
    CHECK(attn_mask_window(m, 4, 4, 2, 2, 0) == ATTN_OK); check_cells("left 2 right 2", m, band, 16);
    CHECK(attn_mask_window(m, 4, 4, 0, 2, 0) == ATTN_OK); check_cells("left 0 right 2", m, ahead, 16);
    CHECK(attn_mask_window(m, 2, 4, 2, 1, 2) == ATTN_OK); check_cells("left 2 right 1 pos 2", m, last, 8);
}

/* ---- padding ----------------------------------------------------------------------------------------------- */

enum { PAD = 9, P_BATCH = 7, P_N = 6 };
static const int pad_ids[P_BATCH][P_N] = {
    { 1, 2, 3, 4, 5, 6 },  { 1, 2, 3, 9, 9, 9 },  { 9, 9, 1, 2, 3, 4 },  { 1, 9, 2, 9, 3, 9 },
    { 9, 9, 9, 9, 9, 9 },  { 9, 1, 1, 1, 1, 1 },  { 0, -9, 99, 8, 10, 9 } };

static void padding_cells(void)
{
    static const int pads[] = { PAD, 0, -9, INT_MAX, INT_MIN };
    int p, b, i, j, n_q;
    for (p = 0; p < 5; p++) for (n_q = 1; n_q <= P_N; n_q++) {
        size_t n = (size_t)(P_BATCH * n_q * P_N);
        unsigned char want[P_BATCH * P_N * P_N];
        int *ids = (int *)guard_alloc(sizeof pad_ids);
        float *m = guard_floats(n);
        memcpy(ids, pad_ids, sizeof pad_ids);
        for (b = 0; b < P_BATCH; b++) for (i = 0; i < n_q; i++) for (j = 0; j < P_N; j++)
            want[(b * n_q + i) * P_N + j] = pad_ids[b][j] != pads[p];    /* COLUMNS: independent of the row */
        CHECK(attn_mask_cross(m, ids, pads[p], P_BATCH, n_q, P_N) == ATTN_OK);
        check_cells("cross", m, want, n);
        if (n_q == P_N) {
            memset(m, 0xA5, n * sizeof *m);
            CHECK(attn_mask_padding(m, ids, pads[p], P_BATCH, P_N) == ATTN_OK);
            check_cells("padding", m, want, n);
        }
        CHECK(memcmp(ids, pad_ids, sizeof pad_ids) == 0);
        guard_free(m); guard_free(ids);
    }
}

static void lengths_cells(void)
{
    static const int lengths[5] = { 0, 1, 3, 6, 5 };
    int b, i, j, n_q;
    for (n_q = 1; n_q <= 4; n_q++) {
        size_t n = (size_t)(5 * n_q * 6);
        unsigned char want[5 * 4 * 6];
        float *m = guard_floats(n);
        for (b = 0; b < 5; b++) for (i = 0; i < n_q; i++) for (j = 0; j < 6; j++)
            want[(b * n_q + i) * 6 + j] = j < lengths[b];
        CHECK(attn_mask_lengths(m, lengths, 5, n_q, 6) == ATTN_OK);
        check_cells("lengths", m, want, n);
        guard_free(m);
    }
}

/* attn_lengths counts the tokens that attn_mask_padding shows, and rejects sequences that a length cannot express. */
static void lengths_of_tokens(void)
{
    static const int ids[3][4] = { { 5, 6, 7, 8 }, { 5, 0, 0, 0 }, { 0, 0, 0, 0 } };
    static const int inside[2][4] = { { 5, 6, 0, 0 }, { 5, 0, 7, 0 } }, leading[1][4] = { { 0, 5, 6, 7 } };
    int got[4] = { 77, 77, 77, 77 };
    CHECK(attn_lengths(got, ids[0], 0, 3, 4) == ATTN_OK);
    CHECK(got[0] == 4 && got[1] == 1 && got[2] == 0 && got[3] == 77);
    got[0] = got[1] = 77;
    CHECK(attn_lengths(got, inside[0], 0, 2, 4) == ATTN_E_LENGTHS);
    CHECK(got[0] == 77 && got[1] == 77);
    CHECK(attn_lengths(got, leading[0], 0, 1, 4) == ATTN_E_LENGTHS);
    CHECK(got[0] == 77);
    CHECK(attn_lengths(got, ids[0], 0, 3, 0) == ATTN_OK);
    CHECK(got[0] == 0 && got[1] == 0 && got[2] == 0 && got[3] == 77);
}

/* ---- keep bytes and merging ---------------------------------------------------------------------------------- */

static void keep_cells(void)
{
    static const unsigned char polarity[] = { 1, 0, 2, 255, 128, 0 }, want[] = { 1, 0, 1, 1, 1, 0 };
    unsigned char *keep = (unsigned char *)guard_alloc(256), seen[256];
    float *m = guard_floats(256);
    int i;
    CHECK(attn_mask_keep(m, polarity, 6) == ATTN_OK);
    check_cells("keep", m, want, 6);
    for (i = 0; i < 256; i++) { keep[i] = (unsigned char)i; seen[i] = i != 0; }
    CHECK(attn_mask_keep(m, keep, 256) == ATTN_OK);
    check_cells("keep 0..255", m, seen, 256);
    memset(m, 0xA5, 256 * sizeof *m);
    CHECK(attn_mask_keep(m, keep, 0) == ATTN_OK);
    CHECK(float_bits(m[0]) == 0xA5A5A5A5u);
    guard_free(keep); guard_free(m);
}

static void merge_values(void)
{
    float inf = bits_float(0x7F800000u), nan = bits_float(0x7FC00000u), payload = bits_float(0xFFC12345u);
    float values[10], m[100], by[100], before[100];
    int i, j;
    values[0] = 0; values[1] = -0.0f; values[2] = 1.5f; values[3] = -1e9f; values[4] = 3e38f; values[5] = -3e38f;
    values[6] = inf; values[7] = -inf; values[8] = nan; values[9] = payload;
    for (i = 0; i < 10; i++) for (j = 0; j < 10; j++) { m[i * 10 + j] = values[i]; by[i * 10 + j] = values[j]; }
    memcpy(before, by, sizeof by);
    CHECK(attn_mask_merge(m, 1, by, 1, 10, 10) == ATTN_OK);
    for (i = 0; i < 10; i++) for (j = 0; j < 10; j++) {
        float a = values[i], b = values[j], got = m[i * 10 + j], sum = a + b;
        int ok = a == -inf || b == -inf ? got == -inf : sum != sum ? got != got : got == sum;
        CHECKF(ok, "%g merged with %g is %g", (double)a, (double)b, (double)got);
    }
    CHECK(memcmp(by, before, sizeof by) == 0);
}

static void merge_batches(void)
{
    float m[2 * 6], one[6], two[2 * 6], want[2 * 6];
    int i;
    for (i = 0; i < 12; i++) { m[i] = (float)i; two[i] = (float)(100 * i); if (i < 6) one[i] = (float)(10 * i); }
    for (i = 0; i < 12; i++) want[i] = (float)i + (float)(10 * (i % 6));
    CHECK(attn_mask_merge(m, 2, one, 1, 2, 3) == ATTN_OK);
    CHECK(memcmp(m, want, sizeof m) == 0);
    for (i = 0; i < 12; i++) { m[i] = (float)i; want[i] = (float)(101 * i); }
    CHECK(attn_mask_merge(m, 2, two, 2, 2, 3) == ATTN_OK);
    CHECK(memcmp(m, want, sizeof m) == 0);
    for (i = 0; i < 12; i++) want[i] = m[i];
    CHECK(attn_mask_merge(m, 2, two, 0, 2, 3) != ATTN_OK);       /* neither one matrix nor one per entry */
    CHECK(attn_mask_merge(m, 2, two, 3, 2, 3) != ATTN_OK);
    CHECK(memcmp(m, want, sizeof m) == 0);
}

/* Causal and padding merged is exactly the intersection, whichever comes first. */
static void merge_intersection(void)
{
    float m[P_BATCH * P_N * P_N], other[P_BATCH * P_N * P_N], causal[P_N * P_N];
    unsigned char want[P_BATCH * P_N * P_N];
    int b, i, j;
    for (b = 0; b < P_BATCH; b++) for (i = 0; i < P_N; i++) for (j = 0; j < P_N; j++) {
        want[(b * P_N + i) * P_N + j] = pad_ids[b][j] != PAD && j <= i;
        other[(b * P_N + i) * P_N + j] = j <= i ? 0 : bits_float((uint32_t)HIDDEN_BITS);
    }
    CHECK(attn_mask_padding(m, pad_ids[0], PAD, P_BATCH, P_N) == ATTN_OK);
    CHECK(attn_mask_causal(causal, P_N, P_N, 0) == ATTN_OK);
    CHECK(attn_mask_merge(m, P_BATCH, causal, 1, P_N, P_N) == ATTN_OK);
    check_cells("padding, causal", m, want, sizeof want);
    CHECK(attn_mask_padding(m, pad_ids[0], PAD, P_BATCH, P_N) == ATTN_OK);
    CHECK(attn_mask_merge(other, P_BATCH, m, P_BATCH, P_N, P_N) == ATTN_OK);
    check_cells("causal, padding", other, want, sizeof want);
}

/* ---- T5's relative positions --------------------------------------------------------------------------------- */

/* The bucket by its definition in real numbers: the first half of a direction's buckets one distance each, the other
   half in equal steps of log(distance) up to max_distance. 1e-9 keeps exact powers on their side of the step. */
static int t5_bucket(int relative, int buckets, int max_distance, int one_way)
{
    int first = 0, exact, bucket;
    long long distance = relative < 0 ? -(long long)relative : relative;
    if (one_way) { if (relative > 0) distance = 0; }
    else { buckets /= 2; if (relative > 0) first = buckets; }
    exact = buckets / 2;
    if (distance < exact) return first + (int)distance;
    bucket = (int)floor(log((double)distance / exact) / log((double)max_distance / exact) * (buckets - exact) + 1e-9);
    bucket += exact;
    return first + (bucket < buckets ? bucket : buckets - 1);
}

static void check_t5(int buckets, int max_distance, int one_way, int extent)
{
    int heads = 3, width = 2 * extent + 1, h, i, d;
    float *table = guard_floats((size_t)(buckets * heads)), *rel = guard_floats((size_t)(heads * width));
    for (i = 0; i < buckets; i++) for (h = 0; h < heads; h++) table[i * heads + h] = (float)(1000 * h + i);
    CHECK(attn_bias_t5(rel, table, buckets, max_distance, one_way, heads, extent) == ATTN_OK);
    for (h = 0; h < heads && !test_failed(); h++) for (d = -extent; d <= extent; d++) {
        int want = 1000 * h + t5_bucket(d, buckets, max_distance, one_way);
        float got = rel[h * width + extent + d];
        CHECKF(got == (float)want, "buckets %d max_distance %d one_way %d extent %d: head %d, distance %d: %g, not %d",
               buckets, max_distance, one_way, extent, h, d, (double)got, want);
    }
    guard_free(table); guard_free(rel);
}

/* Scores by distance, as Transformer-XL and Conformer have them: every cell from the formula. */
static void shifts(void)
{
    rng r = rng_make(test_seed + 51);
    float m[40];
    const float *out = m;
    const int many = sizeof(size_t) < 8 ? 1 << 14 : 1 << 20;            /* its square fits, but not times the columns */
    for (int i = 0; i < 60; i++) {
        const int matrices = rng_int(&r, 0, 3), n_q = rng_int(&r, 0, 9), n_k = rng_int(&r, 0, 12);
        const int conformer = n_q > 0 && !rng_int(&r, 0, 2), columns = conformer ? 2 * n_q - 1 : rng_int(&r, 1, 20);
        const int zero = conformer ? n_q - 1 : rng_int(&r, 0, columns - 1), pos = conformer ? 0 : rng_int(&r, -5, 9);
        float *scores = guard_floats((size_t)(matrices * n_q * columns)), *bias;
        bias = guard_floats((size_t)(matrices * n_q * n_k));
        rng_fill(&r, scores, (size_t)(matrices * n_q * columns));
        CHECK(attn_bias_shift(bias, scores, columns, zero, matrices, n_q, n_k, pos) == ATTN_OK);
        for (int k = 0; k < matrices * n_q * n_k; k++) {
            const int row = k / n_k, behind_by = row % n_q + pos - k % n_k, at = zero - behind_by;
            const float want = at < 0 || at >= columns ? -INFINITY : scores[row * columns + at];
            CHECK(same_bits(bias + k, &want, 1));
        }
        guard_free(scores);
        guard_free(bias);
    }
    CHECK(attn_bias_shift(m, m + 20, 5, 2, 1, 2, 3, INT_MAX) == ATTN_OK && isinf(m[0]) && isinf(m[5]));
    CHECK(attn_bias_shift(m, m + 20, 5, 2, 1, 2, 3, INT_MIN) == ATTN_OK && isinf(m[0]) && isinf(m[5]));
    memset(m, 0x77, sizeof m);
    REFUSED(attn_bias_shift(m, m + 20, 0, 0, 1, 2, 3, 0), ATTN_E_SIZE, "attn_bias_shift: columns is 0");
    REFUSED(attn_bias_shift(m, m + 20, 5, 5, 1, 2, 3, 0), ATTN_E_SIZE, "zero is 5 but columns is 5");
    REFUSED(attn_bias_shift(m, m + 20, 5, -1, 1, 2, 3, 0), ATTN_E_SIZE, "zero is -1 but columns is 5");
    REFUSED(attn_bias_shift(m, m + 20, 5, 2, -1, 2, 3, 0), ATTN_E_SIZE, "matrices is -1");
    REFUSED(attn_bias_shift(m, m + 20, 5, 2, 1, -2, 3, 0), ATTN_E_SIZE, "n_q is -2");
    REFUSED(attn_bias_shift(m, m + 20, 5, 2, 1, 2, -3, 0), ATTN_E_SIZE, "n_k is -3");
    REFUSED(attn_bias_shift(NULL, m, 5, 2, 1, 2, 3, 0), ATTN_E_NULL, "bias is NULL");
    REFUSED(attn_bias_shift(m, NULL, 5, 2, 1, 2, 3, 0), ATTN_E_NULL, "scores is NULL");
    REFUSED(attn_bias_shift(behind(m, 1), m + 20, 5, 2, 1, 2, 3, 0), ATTN_E_ALIGN, "bias is not aligned");
    REFUSED(attn_bias_shift(m, behind(m, 81), 5, 2, 1, 2, 3, 0), ATTN_E_ALIGN, "scores is not aligned");
    REFUSED(attn_bias_shift(m, m + 5, 5, 2, 1, 2, 3, 0), ATTN_E_OVERLAP, "bias overlaps scores");
    REFUSED(attn_bias_shift(m, m + 20, 1 << 30, 2, 1 << 30, 1 << 30, 3, 0), ATTN_E_OVERFLOW, "bias has ");
    REFUSED(attn_bias_shift(m, m + 20, 1 << 30, 2, many, many, 1, 0), ATTN_E_OVERFLOW, "and columns 1073741824");
    for (int i = 0; i < 40; i++) CHECK(float_bits(out[i]) == 0x77777777u);
}

static void t5_formula(void)
{
    check_t5(32, 128, 0, 150);                    /* T5, the encoder */
    check_t5(32, 128, 1, 150);                    /* T5, the decoder */
    check_t5(32, 128, 0, 128);
    check_t5(32, 128, 1, 20);                     /* an extent that ends before the last bucket */
    check_t5(8, 32, 0, 40);
    check_t5(16, 64, 1, 80);
    check_t5(64, 512, 0, 600);
    check_t5(320, 800, 0, 900);                   /* WavLM */
    check_t5(4, 2, 0, 9);                         /* one exact distance, one bucket for the rest, in each direction */
    check_t5(2, 2, 1, 5);
    check_t5(32, 128, 0, 0);                      /* a number per head: that of distance 0 */
}

/* The distances at which buckets change, as in the published models (32 buckets, max_distance 128). */
static void t5_numbers(void)
{
    static const int both[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91 };
    static const int back[32] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                                  16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113 };
    double behind, ahead;
    float table[32], *bias = guard_floats(401);
    int i, b, distance;
    for (i = 0; i < 32; i++) table[i] = (float)i;
    CHECK(attn_bias_t5(bias, table, 32, 128, 0, 1, 200) == ATTN_OK);
    for (distance = 0; distance <= 200; distance++) {
        for (b = 0; b < 15 && both[b + 1] <= distance; b++) { }
        behind = (double)bias[200 - distance]; ahead = (double)bias[200 + distance];
        CHECKF(behind == b, "%d behind: bucket %g, not %d", distance, behind, b);
        if (distance) CHECKF(ahead == 16 + b, "%d ahead: bucket %g, not %d", distance, ahead, 16 + b);
    }
    CHECK(attn_bias_t5(bias, table, 32, 128, 1, 1, 200) == ATTN_OK);
    for (distance = 0; distance <= 200; distance++) {
        for (b = 0; b < 31 && back[b + 1] <= distance; b++) { }
        behind = (double)bias[200 - distance]; ahead = (double)bias[200 + distance];
        CHECKF(behind == b, "%d behind, one way: bucket %g, not %d", distance, behind, b);
        if (distance) CHECKF(ahead == 0, "%d ahead, one way: bucket %g, not 0", distance, ahead);
    }
    guard_free(bias);
}

/* ---- refusals ------------------------------------------------------------------------------------------------- */

/* Every builder reports errors under its own name, also if another one does the work. The statuses, and that nothing is
   written, are tested in test_args.c, "mask_builders". */
static void refusals(void)
{
    enum { BIG = 1 << 20, MOST = 2147483647 - 1023 };
    float m[64] = { 0 };
    const int lengths[2] = { 3, 5 }, ids[2][4] = { { 7, 8, 0, 0 }, { 7, 0, 9, 0 } };
    const unsigned char keep[4] = { 1, 0, 1, 1 };
    int got[2] = { 77, 77 };
    float *odd = (float *)(void *)((char *)m + 2);
    REFUSED(attn_mask_causal(m, -3, 4, 0), ATTN_E_SIZE, "attn_mask_causal: n_q is -3 but must be at least 0");
    REFUSED(attn_mask_causal(NULL, 3, 4, 0), ATTN_E_NULL, "attn_mask_causal: m is NULL");
    REFUSED(attn_mask_causal(odd, 3, 4, 0), ATTN_E_ALIGN, "attn_mask_causal: m is not aligned");
    REFUSED(attn_mask_window(m, 3, 4, -1, 2, 0), ATTN_E_OPTION, "attn_mask_window: left is -1; unlimited is 0");
    REFUSED(attn_mask_window(m, 3, 4, 1, -2, 0), ATTN_E_OPTION, "attn_mask_window: right is -2; unlimited is 0");
    REFUSED(attn_mask_window(m, 3, -4, 1, 1, 0), ATTN_E_SIZE, "attn_mask_window: n_k is -4");
    REFUSED(attn_mask_padding(m, NULL, 0, 2, 4), ATTN_E_NULL, "attn_mask_padding: ids is NULL");
    REFUSED(attn_mask_padding(m, ids[0], 0, 2, -1), ATTN_E_SIZE, "attn_mask_padding: n is -1");
    REFUSED(attn_mask_padding(m, (const int *)(const void *)(m + 31), 0, 2, 4), ATTN_E_OVERLAP,
            "attn_mask_padding: m overlaps ids");
    REFUSED(attn_mask_cross(m, NULL, 0, 2, 3, 4), ATTN_E_NULL, "attn_mask_cross: source_ids is NULL");
    REFUSED(attn_mask_cross(m, ids[0], 0, BIG, BIG, BIG), ATTN_E_OVERFLOW,
            "attn_mask_cross: m has 1048576 x 1048576 x 1048576 cells");
    REFUSED(attn_mask_cross(m, (const int *)(const void *)odd, 0, 2, 3, 4), ATTN_E_ALIGN, "source_ids is not aligned");
    REFUSED(attn_mask_lengths(m, lengths, 2, 3, 4), ATTN_E_LENGTHS,
            "attn_mask_lengths: k_lengths[1] is 5 but n_k is 4");
    REFUSED(attn_mask_lengths(m, NULL, 2, 3, 4), ATTN_E_NULL, "attn_mask_lengths: k_lengths is NULL");
    REFUSED(attn_mask_lengths(m, (const int *)(const void *)m, 1, 3, 4), ATTN_E_OVERLAP, "m overlaps k_lengths");
    REFUSED(attn_mask_keep(m, NULL, 4), ATTN_E_NULL, "attn_mask_keep: keep is NULL");
    REFUSED(attn_mask_keep(m, keep, SIZE_MAX / 2), ATTN_E_OVERFLOW, "attn_mask_keep: cells is more than");
    REFUSED(attn_mask_keep(m, (const unsigned char *)m + 15, 4), ATTN_E_OVERLAP, "attn_mask_keep: m overlaps keep");
    REFUSED(attn_mask_merge(m, 2, m + 32, 3, 2, 4), ATTN_E_SHAPE,
            "attn_mask_merge: by_batch is 3 but must be 1 or batch, 2");
    REFUSED(attn_mask_merge(m, 2, NULL, 1, 2, 4), ATTN_E_NULL, "attn_mask_merge: by is NULL");
    REFUSED(attn_mask_merge(m, 2, m + 15, 1, 2, 4), ATTN_E_OVERLAP, "attn_mask_merge: m overlaps by");
    REFUSED(attn_mask_merge(m + 7, 2, m, 1, 2, 4), ATTN_E_OVERLAP, "attn_mask_merge: m overlaps by");
    CHECK(attn_mask_merge(m, 2, m + 16, 1, 2, 4) == ATTN_OK && attn_mask_merge(m + 8, 2, m, 1, 2, 4) == ATTN_OK);
    REFUSED(attn_lengths(got, ids[0], 0, 2, 4), ATTN_E_LENGTHS, "attn_lengths: ids[1][2] is a token behind a pad");
    REFUSED(attn_lengths(NULL, ids[0], 0, 2, 4), ATTN_E_NULL, "attn_lengths: lengths is NULL");
    REFUSED(attn_lengths(got, NULL, 0, 2, 4), ATTN_E_NULL, "attn_lengths: ids is NULL");
    REFUSED(attn_lengths(got, got, 0, 1, 2), ATTN_E_OVERLAP, "attn_lengths: lengths overlaps ids");
    REFUSED(attn_lengths(got, ids[0], 0, -2, 4), ATTN_E_SIZE, "attn_lengths: batch is -2");
    REFUSED(attn_lengths(got, ids[0], 0, MOST, MOST), ATTN_E_OVERFLOW,
            "attn_lengths: ids are 2147482624 x 2147482624, more than the address space");
    CHECK(got[0] == 77 && got[1] == 77);
    REFUSED(attn_bias_t5(m, m + 32, 32, 128, 2, 1, 2), ATTN_E_OPTION, "attn_bias_t5: one_way is 2");
    REFUSED(attn_bias_t5(m, m + 32, 3, 128, 0, 1, 2), ATTN_E_SIZE, "attn_bias_t5: buckets is 3 but must be 4..513");
    REFUSED(attn_bias_t5(m, m + 32, 257, 999, 1, 1, 2), ATTN_E_SIZE, "buckets is 257 but must be 2..256");
    REFUSED(attn_bias_t5(m, m + 32, 32, 8, 0, 1, 2), ATTN_E_SIZE,
            "attn_bias_t5: max_distance is 8 but must be larger than 8");
    REFUSED(attn_bias_t5(m, m + 32, 32, 128, 0, 0, 2), ATTN_E_SIZE, "attn_bias_t5: heads is 0");
    REFUSED(attn_bias_t5(m, m + 32, 32, 128, 0, 1, -1), ATTN_E_SIZE, "attn_bias_t5: extent is -1");
    REFUSED(attn_bias_t5(m, m + 32, 32, 128, 0, MOST, MOST), ATTN_E_OVERFLOW, "attn_bias_t5: extent is 2147482624");
    REFUSED(attn_bias_t5(m, m + 32, 32, 128, 0, MOST, MOST / 2), ATTN_E_OVERFLOW, /* bytes fit 64 bits, no object */
            "attn_bias_t5: extent is 1073741312: 2147482624 heads of so many numbers");
    REFUSED(attn_bias_t5(m, m + 32, 32, 128, 0, 1, 1 << 30), ATTN_E_OVERFLOW,     /* distances would overflow an int */
            "attn_bias_t5: extent is 1073741824 but 1073741312 is the largest");
    REFUSED(attn_bias_t5(m, NULL, 32, 128, 0, 1, 2), ATTN_E_NULL, "attn_bias_t5: table is NULL");
    REFUSED(attn_bias_t5(NULL, m, 32, 128, 0, 1, 2), ATTN_E_NULL, "attn_bias_t5: rel_bias is NULL");
    CHECK(attn_bias_t5(m + 32, m, 32, 128, 0, 1, 2) == ATTN_OK);
    REFUSED(attn_bias_t5(m + 31, m, 32, 128, 0, 1, 2), ATTN_E_OVERLAP, "attn_bias_t5: rel_bias overlaps table");
}

/* ---- pictures -------------------------------------------------------------------------------------------------- */

static int code_points(const char *s, size_t n)
{
    size_t i;
    int points = 0;
    for (i = 0; i < n; i++) points += ((unsigned char)s[i] & 0xC0) != 0x80;
    return points;
}

/* format at every size behaves like snprintf: same return value, the first size-1 bytes, a NUL, nothing after it */
static char *format_checked(const float *m, int n_q, int n_k, const char *const *rows, const char *const *cols)
{
    size_t need = attn_mask_format(NULL, 0, m, n_q, n_k, rows, cols), size;
    char *full = (char *)malloc(need + 1), *part;
    if (!full) abort();
    CHECK(attn_mask_format(full, need + 1, m, n_q, n_k, rows, cols) == need);
    CHECK(strlen(full) == need);
    for (size = 0; size <= need + 3; size += need > 600 && size > 20 && size < need - 20 ? 7 : 1) {
        size_t keep = size == 0 ? 0 : size - 1 < need ? size - 1 : need, i;
        part = (char *)guard_alloc(size + 8);
        CHECKF(attn_mask_format(part, size, m, n_q, n_k, rows, cols) == need, "another length at size %lu",
               (unsigned long)size);
        if (size) {
            CHECKF(memcmp(part, full, keep) == 0, "other text at size %lu", (unsigned long)size);
            CHECKF(part[keep] == 0, "not terminated at size %lu", (unsigned long)size);
        }
        for (i = size; i < size + 8; i++)
            CHECKF((unsigned char)part[i] == 0xA5, "wrote past size %lu", (unsigned long)size);
        guard_free(part);
        if (test_failed()) break;
    }
    return full;
}

/* every line as wide as the first one, counted in code points; returns the number of lines */
static int check_even_lines(const char *text)
{
    int lines = 0, width = -1;
    const char *line = text, *end;
    for (; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!end) { CHECKF(0, "the last line does not end:\n%s", text); return lines; }
        if (width < 0) width = code_points(line, (size_t)(end - line));
        CHECKF(code_points(line, (size_t)(end - line)) == width, "line %d is not as wide as the first:\n%s", lines,
               text);
        lines++;
    }
    return lines;
}

/* The printed form: names above and on the left, every column right-aligned and as wide as its widest element or
   name. */
static void format_drawn(void)
{
    static const char *const rows[] = { "<s>", "Hund", "l\xC3\xA4uft", "<pad>" };
    static const char *const cols[] = { "<s>", "dog", "laufend\xC3\xA9", "<pad>" };
    float m[16];
    char *text;
    CHECK(attn_mask_causal(m, 4, 4, 0) == ATTN_OK);
    m[4] = 0.5f; m[9] = -12.25f;
    text = format_checked(m, 4, 4, rows, cols);
    CHECKF(strcmp(text, "         <s>    dog laufend\xC3\xA9  <pad>\n"
                        "<s>        0   -inf     -inf   -inf\n"
                        "Hund    0.50      0     -inf   -inf\n"
                        "l\xC3\xA4uft      0 -12.25        0   -inf\n"
                        "<pad>      0      0        0      0\n") == 0, "drawn:\n%s", text);
    free(text);
    CHECK(attn_mask_causal(m, 2, 3, 0) == ATTN_OK);
    text = format_checked(m, 2, 3, NULL, NULL);
    CHECKF(strcmp(text, "   0 -inf -inf\n   0    0 -inf\n") == 0, "drawn:\n%s", text);
    free(text);
}

static void format_sizes(void)
{
    static const char *const rows[] = { "<s>", "Mi", "chiamo", "Luke", "</s>", "<pad>" };
    static const char *const utf8[] = { "\xC3\xA9t\xC3\xA9", "\xE6\x97\xA5\xE6\x9C\xAC", "\xF0\x9F\x8D\x8E",
                                        "a\xCC\x81", "", "\xE2\x80\x93" };
    const char *holes[6];
    float m[36];
    char *text;
    int n, k;
    memcpy(holes, rows, sizeof holes);
    holes[0] = NULL; holes[3] = NULL;
    CHECK(attn_mask_causal(m, 6, 6, 0) == ATTN_OK);
    for (n = 1; n <= 6; n++) for (k = 0; k < 6; k++) {
        text = format_checked(m, n, 6, k & 1 ? rows : NULL, k & 2 ? utf8 : k & 4 ? rows : NULL);
        check_even_lines(text);
        free(text);
    }
    text = format_checked(m, 6, 6, utf8, utf8); check_even_lines(text); free(text);
    text = format_checked(m, 6, 6, holes, holes); check_even_lines(text); free(text);
    text = format_checked(m, 0, 6, rows, rows); free(text);
    text = format_checked(m, 6, 0, rows, rows); free(text);
}

static void format_broken_utf8(void)
{
    static const char *const broken[] = { "\xFF\xFE", "\xC3", "\xE6\x97", "\x80\x80\x80", "ok" };
    float m[25];
    char *text;
    CHECK(attn_mask_causal(m, 5, 5, 0) == ATTN_OK);
    text = format_checked(m, 5, 5, broken, broken);
    free(text);
}

static void format_values(void)
{
    float inf = bits_float(0x7F800000u), nan = bits_float(0x7FC00000u);
    float m[12], minus_nan = bits_float(0xFFC00000u);
    char *text, drawn[8];
    m[0] = 0; m[1] = -inf; m[2] = 0.5f; m[3] = -1e9f; m[4] = 3.402823466e38f; m[5] = -3.402823466e38f;
    m[6] = inf; m[7] = nan; m[8] = 1e-40f; m[9] = -0.0f; m[10] = -1.25f; m[11] = 123456.789f;
    text = format_checked(m, 3, 4, NULL, NULL);
    check_even_lines(text);
    CHECKF(strstr(text, "0.5") != NULL, "no 0.5 in\n%s", text);
    CHECKF(strstr(text, "-1.25") != NULL, "no -1.25 in\n%s", text);
    CHECKF(strstr(text, "nan") != NULL, "no nan in\n%s", text);
    CHECKF(strstr(text, "1e+09") || strstr(text, "1e9") || strstr(text, "1000000000"), "no -1e9 in\n%s", text);
    free(text);
    CHECK(attn_mask_format(drawn, sizeof drawn, &minus_nan, 1, 1, NULL, NULL) == 4 && strcmp(drawn, "nan\n") == 0);
}

/* Two decimals, to nearest, ties to even, as printf has them; "0" for a zero. Three digits from 1e10 on. */
static void format_numbers(void)
{
    static const float some[] = { 0.125f, 0.375f, 0.625f, 0.875f, 1.125f, 0.005f, 0.0049999f, 0.995f, 8388607.5f,
                                  8388608.0f, 12345678.0f, 16777215.0f, 16777216.0f, 123456792.0f, 9999999000.0f };
    rng r = rng_make(test_seed + 31);
    char want[64], got[64];
    int i;
    for (i = 0; i < 4000; i++) {
        const int n = (int)(sizeof some / sizeof *some);
        float x = i < n ? some[i] : ldexpf((float)rng_int(&r, 1, i & 1 ? 4096 : 1 << 24), rng_int(&r, -36, 9));
        if (x >= 1e10f) continue;
        if (i & 2) x = -x;
        snprintf(want, sizeof want, "%.2f\n", (double)x);
        CHECK(attn_mask_format(got, sizeof got, &x, 1, 1, NULL, NULL) == strlen(want));
        CHECKF(strcmp(got, want) == 0, "%a is drawn as %s", (double)x, got);
    }
    {
        float x = 0;
        CHECK(attn_mask_format(got, sizeof got, &x, 1, 1, NULL, NULL) == 2 && strcmp(got, "0\n") == 0);
    }
}

/* A name is printed on one line with any contents; without a matrix nothing is printed. */
static void format_odd_names(void)
{
    static const char *const rows[] = { "a\nb", "\t" }, *const plain[] = { "a?b", "?" };
    float m[4] = { 0, 0, 0, 0 };
    char want[200], got[200];
    size_t n = attn_mask_format(want, sizeof want, m, 2, 2, plain, plain);
    CHECK(attn_mask_format(got, sizeof got, m, 2, 2, rows, rows) == n && strcmp(got, want) == 0);
    CHECK(attn_mask_format(got, sizeof got, NULL, 2, 2, plain, plain) == 0 && got[0] == 0);
}

/* attn_mask_print prints what attn_mask_format writes. */
static void print_is_format(void)
{
#if defined(_WIN32) || defined(ATTN_NO_STDIO)
    test_skip("attn_mask_print: stdout cannot be redirected here");
#else
    static const char *const rows[] = { "<s>", "caf\xC3\xA9", "</s>" };
    float m[9];
    char *text, got[1024];
    FILE *f = tmpfile();
    int save;
    size_t n;
    if (!f) { test_skip("attn_mask_print: no temporary file"); return; }
    CHECK(attn_mask_causal(m, 3, 3, 0) == ATTN_OK);
    text = format_checked(m, 3, 3, rows, rows);
    fflush(stdout);
    save = dup(1);
    dup2(fileno(f), 1);
    attn_mask_print(m, 3, 3, rows, rows);
    fflush(stdout);
    dup2(save, 1);
    close(save);
    rewind(f);
    n = fread(got, 1, sizeof got - 1, f);
    got[n] = 0;
    fclose(f);
    CHECKF(strcmp(got, text) == 0, "printed:\n%sformatted:\n%s", got, text);
    free(text);
#endif
}

/* ---- builders agree with the flags ------------------------------------------------------------------------------ */

enum { F_BATCH = 2, F_HEADS = 2, F_Q = 37, F_K = 150, F_DIM = 8 };
typedef struct flags_world {
    float q[F_BATCH * F_Q * F_HEADS * F_DIM], k[F_BATCH * F_K * F_HEADS * F_DIM], v[F_BATCH * F_K * F_HEADS * F_DIM];
    float mask[F_BATCH * F_HEADS * F_Q * F_K];
    unsigned char keep[F_Q * F_K];
    float out[2][F_BATCH * F_Q * F_HEADS * F_DIM], lse[2][F_BATCH * F_HEADS * F_Q];
    float weights[2][F_BATCH * F_HEADS * F_Q * F_K];
} flags_world;

static attn_args flags_args(flags_world *w)
{
    attn_args a;
    memset(&a, 0, sizeof a);
    a.q = w->q; a.k = w->k; a.v = w->v;
    a.batch = F_BATCH; a.n_q = F_Q; a.n_k = F_K; a.heads = F_HEADS; a.head_dim = F_DIM;
    return a;
}

/* by flag and by matrix: out, lse and probabilities bit for bit, on every backend */
static void same_both_ways(flags_world *w, const char *what, attn_args flag, attn_args matrix)
{
    attn_backend list[16];
    int n = test_all_backends(list, 16), i, s;
    for (i = 0; i < n; i++) {
        const char *name = attn_backend_name(list[i]);
        size_t emptied[2] = { 77, 78 };
        memset(w->out, 0xA5, sizeof w->out);
        memset(w->lse, 0xA5, sizeof w->lse);
        memset(w->weights, 0xA5, sizeof w->weights);
        for (s = 0; s < 2; s++) {
            attn_args *a = s ? &matrix : &flag;
            a->out = w->out[s]; a->lse = w->lse[s]; a->weights = w->weights[s];
            a->masked_rows = &emptied[s]; a->backend = list[i];
            CHECKF(attn_sdpa(a) == ATTN_OK, "%s by %s", what, s ? "matrix" : "flag");
        }
        CHECKF(same_bits(w->out[0], w->out[1], F_BATCH * F_Q * F_HEADS * F_DIM), "%s, %s: out differs", what, name);
        CHECKF(same_bits(w->lse[0], w->lse[1], F_BATCH * F_HEADS * F_Q), "%s, %s: lse differs", what, name);
        CHECKF(same_bits(w->weights[0], w->weights[1], F_BATCH * F_HEADS * F_Q * F_K), "%s, %s: weights differ", what,
               name);
        CHECKF(emptied[0] == emptied[1], "%s, %s: masked_rows %lu and %lu", what, name, (unsigned long)emptied[0],
               (unsigned long)emptied[1]);
    }
}

static flags_world *flags_make(void)
{
    flags_world *w = (flags_world *)malloc(sizeof *w);
    rng r = rng_make(test_seed);
    if (!w) abort();
    rng_fill(&r, w->q, sizeof w->q / sizeof(float));
    rng_fill(&r, w->k, sizeof w->k / sizeof(float));
    rng_fill(&r, w->v, sizeof w->v / sizeof(float));
    return w;
}

static void by_flag_and_by_matrix(void)
{
    static const int pos[] = { 0, 5, -4, 113, -36, 200, -200, INT_MAX, INT_MIN };
    static const int lengths[F_BATCH] = { 131, 7 }, one_empty[F_BATCH] = { 0, 128 };
    flags_world *w = flags_make();
    attn_args flag, matrix;
    rng r = rng_make(test_seed + 1);
    size_t c;
    int i;
    for (i = 0; i < 9; i++) {
        flag = flags_args(w); flag.causal = ATTN_CAUSAL_TOP_LEFT; flag.q_pos = pos[i];
        matrix = flags_args(w); matrix.mask = w->mask;
        CHECK(attn_mask_causal(w->mask, F_Q, F_K, pos[i]) == ATTN_OK);
        same_both_ways(w, "causal top-left", flag, matrix);

        flag = flags_args(w); flag.window_left = 20; flag.window_right = 3; flag.q_pos = pos[i];
        CHECK(attn_mask_window(w->mask, F_Q, F_K, 20, 3, pos[i]) == ATTN_OK);
        same_both_ways(w, "window", flag, matrix);
    }
    flag = flags_args(w); flag.causal = ATTN_CAUSAL_BOTTOM_RIGHT; flag.q_pos = 2;
    matrix = flags_args(w); matrix.mask = w->mask;
    CHECK(attn_mask_causal(w->mask, F_Q, F_K, F_K - F_Q + 2) == ATTN_OK);
    same_both_ways(w, "causal bottom-right", flag, matrix);

    flag = flags_args(w); flag.causal = ATTN_CAUSAL_TOP_LEFT; flag.window_left = 4; flag.q_pos = 100;
    CHECK(attn_mask_window(w->mask, F_Q, F_K, 4, 1, 100) == ATTN_OK);   /* causal is a window up to the row's own key */
    same_both_ways(w, "causal and window", flag, matrix);

    matrix.mask_shape[0] = F_BATCH; matrix.mask_shape[1] = 1; matrix.mask_shape[2] = F_Q;
    flag = flags_args(w); flag.k_lengths = lengths;
    CHECK(attn_mask_lengths(w->mask, lengths, F_BATCH, F_Q, F_K) == ATTN_OK);
    same_both_ways(w, "k_lengths", flag, matrix);
    flag.k_lengths = one_empty;
    CHECK(attn_mask_lengths(w->mask, one_empty, F_BATCH, F_Q, F_K) == ATTN_OK);
    same_both_ways(w, "k_lengths, one of them 0", flag, matrix);

    flag = flags_args(w); flag.keep = w->keep; flag.keep_shape[0] = flag.keep_shape[1] = 1; flag.keep_shape[2] = F_Q;
    matrix = flags_args(w); matrix.mask = w->mask;
    for (c = 0; c < sizeof w->keep; c++) w->keep[c] = (unsigned char)(rng_int(&r, 0, 3) == 0 ? rng_int(&r, 1, 255) : 0);
    memset(w->keep + 5 * F_K, 0, F_K);                                       /* an empty row */
    CHECK(attn_mask_keep(w->mask, w->keep, sizeof w->keep) == ATTN_OK);
    same_both_ways(w, "keep", flag, matrix);
    free(w);
}

/* The builder neither scales nor adds: a T5 table as rel_bias or as a mask per head gives the same sum. */
static void t5_as_bias_and_mask(void)
{
    flags_world *w = flags_make();
    attn_args bias = flags_args(w), mask = flags_args(w);
    enum { EXTENT = F_K };
    float table[32 * F_HEADS], rel[F_HEADS * (2 * EXTENT + 1)];
    rng r = rng_make(test_seed + 2);
    rng_fill(&r, table, 32 * F_HEADS);
    CHECK(attn_bias_t5(rel, table, 32, 128, 0, F_HEADS, EXTENT) == ATTN_OK);
    for (int x = 0; x < F_HEADS * F_Q * F_K; x++) {
        const int d = x % F_K - (x / F_K % F_Q + F_K - F_Q);
        CHECK(d >= -EXTENT && d <= EXTENT);
        w->mask[x] = rel[x / F_K / F_Q * (2 * EXTENT + 1) + EXTENT + d];
    }
    bias.rel_bias = rel; bias.rel_extent = EXTENT; bias.q_pos = F_K - F_Q; mask.mask = w->mask;
    mask.mask_shape[0] = 1; mask.mask_shape[1] = F_HEADS; mask.mask_shape[2] = F_Q;
    bias.scale = mask.scale = 1;
    same_both_ways(w, "t5", bias, mask);
    free(w);
}

/* attn_self and attn_cross: token ids by matrix, or by the lengths attn_lengths reads from them */
static void tokens_both_ways(void)
{
    enum { B = 2, Q = 5, N = 6, H = 2, D = 4 };
    static const int ids[B][N] = { { 11, 12, 13, 14, 0, 0 }, { 21, 22, 23, 0, 0, 0 } };
    float q[B * N * H * D], k[B * N * H * D], v[B * N * H * D], by_length[B * N * H * D], by_matrix[B * N * H * D];
    float m[B * N * N], causal[N * N];
    int lengths[B], b;
    rng r = rng_make(test_seed + 3);
    rng_fill(&r, q, B * N * H * D); rng_fill(&r, k, B * N * H * D); rng_fill(&r, v, B * N * H * D);
    CHECK(attn_lengths(lengths, ids[0], 0, B, N) == ATTN_OK);
    CHECK(lengths[0] == 4 && lengths[1] == 3);
    CHECK(attn_mask_cross(m, ids[0], 0, B, Q, N) == ATTN_OK);
    CHECK(attn_cross(by_matrix, q, k, v, B, Q, N, H, D, NULL, m) == ATTN_OK);
    CHECK(attn_cross(by_length, q, k, v, B, Q, N, H, D, lengths, NULL) == ATTN_OK);
    CHECK(same_bits(by_matrix, by_length, B * Q * H * D));
    CHECK(attn_mask_padding(m, ids[0], 0, B, N) == ATTN_OK);
    CHECK(attn_mask_causal(causal, N, N, 0) == ATTN_OK);
    CHECK(attn_mask_merge(m, B, causal, 1, N, N) == ATTN_OK);
    CHECK(attn_self(by_matrix, q, k, v, B, N, H, D, 0, NULL, m) == ATTN_OK);
    CHECK(attn_self(by_length, q, k, v, B, N, H, D, 1, lengths, NULL) == ATTN_OK);
    for (b = 0; b < B; b++) {
        size_t row = H * D, at = (size_t)b * N * row, real = (size_t)lengths[b] * row, i;
        CHECK(same_bits(by_matrix + at, by_length + at, real));
        for (i = real; i < N * row; i++)
            CHECKF(float_bits(by_length[at + i]) == 0, "a padded row of entry %d is not zero", b);
    }
}

extern SUITE(masks);
SUITE(masks) = {
    {"causal", causal_cells, "an off-by-one on the diagonal, i + pos computed in int"},
    {"window", window_cells, "left and right swapped or counted without the row's own key, overflow at INT_MAX"},
    {"window_pictures", window_drawn, "a window that differs from its picture in the header"},
    {"padding", padding_cells, "rows hidden instead of columns, pads assumed to be trailing, batches mixed up"},
    {"lengths", lengths_cells, "a length used as the last index"},
    {"lengths_of_tokens", lengths_of_tokens, "a pad inside a sentence that cuts it there without an error"},
    {"keep", keep_cells, "polarity reversed, only bit 0 tested"},
    {"merge_values", merge_values, "-inf + +inf = NaN, a NaN hidden by a maximum"},
    {"merge_batches", merge_batches, "one matrix for all entries read as one per entry"},
    {"merge_intersection", merge_intersection, "merge that replaces instead of intersecting"},
    {"shifts", shifts, "a bias by distance that is one key off, mirrored, or read from another row"},
    {"t5_formula", t5_formula, "direction reversed, pos ignored, the table read as [heads][buckets]"},
    {"t5_numbers", t5_numbers, "a boundary of the logarithmic buckets off by one"},
    {"rejected_calls", refusals,
     "a sentence about another argument or with another name, a matrix written over its input"},
    {"format_pictures", format_drawn, "a picture that differs from the header's, labels above the wrong column"},
    {"format_sizes", format_sizes, "wrong length, no terminator, a byte past the end, labels counted in bytes"},
    {"format_broken_utf8", format_broken_utf8, "reading past the end of a name that ends inside a character"},
    {"format_values", format_values, "finite values printed as hidden or visible"},
    {"format_numbers", format_numbers, "a number rounded the wrong way, at a tie or beyond 2^23"},
    {"format_control_names", format_odd_names, "a line break in a name that breaks the picture, a NULL name printed"},
    {"print", print_is_format, "attn_mask_print that prints other text than attn_mask_format"},
    {"flag_matrix", by_flag_and_by_matrix, "a builder and the flag of the same name disagree by one key"},
    {"t5_bias_mask", t5_as_bias_and_mask, "bias and mask added in different ways"},
    {"tokens", tokens_both_ways, "attn_lengths and attn_mask_* read token ids differently"},
    {0}};
