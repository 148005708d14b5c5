/* test_args_levels.c: the buffer of a sentence, names of statuses and structs; wrong arguments of attn_self, attn_cross
   and the mask builders. */
#include <limits.h>
#include "args_world.h"

/* ---- the sentence ---------------------------------------------------------------------------------------------- */

static void why_buffers(void)
{
    char whole[512], *part;
    size_t size, n, i;
    int wrong;
    for (wrong = 0; wrong < 2; wrong++) {
        attn_args a = good();
        attn_status status = wrong ? ATTN_E_LENGTHS : ATTN_OK;
        a.k_lengths = w.k_lengths;
        if (wrong) w.k_lengths[1] = 9;
        CHECK(attn_check(&a, whole, sizeof whole) == status);
        n = strlen(whole);
        CHECK(n > 10 && n < 400);
        for (size = 0; size < n + 3; size++) {
            size_t keep = size == 0 ? 0 : size - 1 < n ? size - 1 : n;
            part = (char *)guard_alloc(size + 4);
            CHECK(attn_check(&a, part, size) == status);
            if (size) CHECKF(memcmp(part, whole, keep) == 0 && part[keep] == 0, "size %lu", (unsigned long)size);
            for (i = size; i < size + 4; i++)
                CHECKF((unsigned char)part[i] == 0xA5, "wrote past size %lu", (unsigned long)size);
            guard_free(part);
        }
        CHECK(attn_check(&a, NULL, 0) == status);
    }
    {
        attn_args a = good();
        a.k_lengths = w.k_lengths; w.k_lengths[1] = 9;
        CHECK(attn_check(&a, whole, sizeof whole) == ATTN_E_LENGTHS);
        CHECKF(says(whole, "n_k is 4 k_lengths[1] is 9"), "not the promised sentence: %s", whole);
    }
    for (wrong = 0; wrong < 3; wrong++) {                         /* a window on either side is one */
        attn_args a = good();
        a.window_left = wrong & 1; a.window_right = wrong & 2;
        CHECK(attn_check(&a, whole, sizeof whole) == ATTN_OK);
        CHECKF((strstr(whole, "window") != NULL) == (wrong > 0), "%s", whole);
    }
}

static void status_words(void)
{
    int s, t;
    for (s = 0; s >= ATTN_E_BYTES; s--) {
        const char *name = attn_status_str((attn_status)s);
        CHECKF(name && name[0], "status %d has no words", s);
        if (!name) return;
        for (t = 0; t > s; t--) CHECKF(strcmp(name, attn_status_str((attn_status)t)) != 0, "%d and %d: %s", s, t, name);
    }
    CHECK(attn_status_str((attn_status)(ATTN_E_BYTES - 1)) && attn_status_str((attn_status)1));
    CHECK(strstr(attn_status_str(ATTN_E_HEADS), "d_model") && strstr(attn_status_str(ATTN_E_MAP), "an entry"));
    CHECK(attn_version() == ATTN_VERSION);
}

/* Every public struct by its name, and nothing else. */
static void struct_sizes(void)
{
#define SIZED(type) CHECK(attn_struct_size(#type) == sizeof(type))
    SIZED(attn_exec); SIZED(attn_args); SIZED(attn_kv_args); SIZED(attn_kv);
    SIZED(attn_linear_args); SIZED(attn_linear); SIZED(attn_norm_args);
    SIZED(attn_rope_freqs_args); SIZED(attn_rope_args);
    SIZED(attn_mha_args); SIZED(attn_mha); SIZED(attn_mha_opts);
#undef SIZED
    CHECK(attn_struct_size(NULL) == 0 && attn_struct_size("") == 0 && attn_struct_size("attn_arg") == 0);
    CHECK(attn_struct_size("attn_args ") == 0 && attn_struct_size("attn_pool") == 0);
}

/* ---- level 2 --------------------------------------------------------------------------------------------------- */

#define UNTOUCHED(status, call) \
    do { memcpy(&before, &w, sizeof w); refusal_clear(); CHECK((call) == (status)); \
         CHECKF(refusal_status() == (status) && refusal_count() == ((status) != ATTN_OK), "%s: told %d times, \"%s\"", \
                #call, refusal_count(), refusal_text()); \
         CHECKF(memcmp(&w, &before, sizeof w) == 0, "%s wrote something", #call); } while (0)

static void self_and_cross(void)
{
    const int B = 2, N = 3, K = 4, H = 2, D = 5;
    int *len = w.k_lengths;
    (void)good();
    len[0] = 3; len[1] = 1;
    UNTOUCHED(ATTN_E_NULL, attn_self(NULL, w.q, w.k, w.v, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_self(w.out, NULL, w.k, w.v, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_self(w.out, w.q, NULL, w.v, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_self(w.out, w.q, w.k, NULL, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_self(w.out, w.q, w.k, w.v, -1, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_self(w.out, w.q, w.k, w.v, B, -1, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_self(w.out, w.q, w.k, w.v, B, N, 0, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_self(w.out, w.q, w.k, w.v, B, N, H, 0, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_OPTION, attn_self(w.out, w.q, w.k, w.v, B, N, H, D, 2, NULL, NULL));
    UNTOUCHED(ATTN_E_OPTION, attn_self(w.out, w.q, w.k, w.v, B, N, H, D, -1, NULL, NULL));
    UNTOUCHED(ATTN_E_OVERLAP, attn_self(w.q, w.q, w.k, w.v, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_OVERLAP, attn_self(w.v + 1, w.q, w.k, w.v, B, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_E_OVERLAP, attn_self(w.mask, w.q, w.k, w.v, B, N, H, D, 0, NULL, w.mask));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_self(w.out, w.q, w.k, w.v, INT_MAX, INT_MAX, INT_MAX, INT_MAX, 0, NULL, NULL));
    len[1] = 4;
    UNTOUCHED(ATTN_E_LENGTHS, attn_self(w.out, w.q, w.k, w.v, B, N, H, D, 0, len, NULL));
    len[1] = -1;
    UNTOUCHED(ATTN_E_LENGTHS, attn_self(w.out, w.q, w.k, w.v, B, N, H, D, 0, len, NULL));
    len[1] = 0;
    CHECK(attn_self(w.out, w.q, w.k, w.v, B, N, H, D, 1, len, w.mask) == ATTN_OK);
    UNTOUCHED(ATTN_OK, attn_self(w.out, w.q, w.k, w.v, 0, N, H, D, 0, NULL, NULL));
    UNTOUCHED(ATTN_OK, attn_self(w.out, w.q, w.k, w.v, B, 0, H, D, 0, NULL, NULL));

    UNTOUCHED(ATTN_E_NULL, attn_cross(NULL, w.q, w.k, w.v, B, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_cross(w.out, NULL, w.k, w.v, B, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_cross(w.out, w.q, NULL, w.v, B, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_NULL, attn_cross(w.out, w.q, w.k, NULL, B, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_cross(w.out, w.q, w.k, w.v, -2, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_cross(w.out, w.q, w.k, w.v, B, -2, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_cross(w.out, w.q, w.k, w.v, B, N, -2, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_cross(w.out, w.q, w.k, w.v, B, N, K, -2, D, NULL, NULL));
    UNTOUCHED(ATTN_E_SIZE, attn_cross(w.out, w.q, w.k, w.v, B, N, K, H, -2, NULL, NULL));
    UNTOUCHED(ATTN_E_OVERLAP, attn_cross(w.k + 2, w.q, w.k, w.v, B, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_cross(w.out, w.q, w.k, w.v, INT_MAX, 1, INT_MAX, INT_MAX, INT_MAX, NULL, NULL));
    len[0] = 5;
    UNTOUCHED(ATTN_E_LENGTHS, attn_cross(w.out, w.q, w.k, w.v, B, N, K, H, D, len, NULL));
    len[0] = 4;
    CHECK(attn_cross(w.out, w.q, w.k, w.v, B, N, K, H, D, len, w.mask) == ATTN_OK);
    UNTOUCHED(ATTN_OK, attn_cross(w.out, w.q, w.k, w.v, 0, N, K, H, D, NULL, NULL));
    UNTOUCHED(ATTN_OK, attn_cross(w.out, w.q, w.k, w.v, B, 0, K, H, D, NULL, NULL));
    CHECK(attn_cross(w.out, w.q, w.k, w.v, B, N, 0, H, D, NULL, NULL) == ATTN_OK);
    CHECK(float_bits(w.out[0]) == 0 && float_bits(w.out[B * N * H * D - 1]) == 0);
    CHECK(float_bits(w.out[B * N * H * D]) == 0xA5A5A5A5u || OUT_SIZE == B * N * H * D);
}

/* Every mistake is reported with the names of the public function: none of these functions has q_lengths, and
   attn_self has no n_q. */
static void level_2_sentences(void)
{
    const int B = 2, N = 3, K = 4, H = 2, D = 5;
    int *len = w.k_lengths;
    float *odd;
    (void)good();
    odd = (float *)(uintptr_t)(const void *)((const char *)w.q + 1);
    len[0] = 3; len[1] = 4;
#define SELF(out, q, lengths, mask, batch, n, heads, head_dim, causal) \
    attn_self(out, q, w.k, w.v, batch, n, heads, head_dim, causal, lengths, mask)
#define CROSS(out, q, lengths, mask, batch, n_q, n_k, heads, head_dim) \
    attn_cross(out, q, w.k, w.v, batch, n_q, n_k, heads, head_dim, lengths, mask)
    REFUSED(SELF(NULL, w.q, NULL, NULL, B, N, H, D, 0), ATTN_E_NULL, "attn_self: out is NULL");
    REFUSED(SELF(w.out, w.q, NULL, NULL, -1, N, H, D, 0), ATTN_E_SIZE, "attn_self: batch is -1 but must be at least 0");
    REFUSED(SELF(w.out, w.q, NULL, NULL, B, -1, H, D, 0), ATTN_E_SIZE, "attn_self: n is -1 but must be at least 0");
    REFUSED(SELF(w.out, w.q, NULL, NULL, B, N, 0, D, 0), ATTN_E_SIZE, "attn_self: heads is 0 but must be at least 1");
    REFUSED(SELF(w.out, w.q, NULL, NULL, B, N, H, 0, 0), ATTN_E_SIZE, "attn_self: head_dim is 0");
    REFUSED(SELF(w.out, w.q, NULL, NULL, B, N, H, D, 2), ATTN_E_OPTION,
            "attn_self: causal is 2 but its values are 0..1");
    REFUSED(SELF(w.out, w.q, len, NULL, B, N, H, D, 0), ATTN_E_LENGTHS, "attn_self: lengths[1] is 4 but n is 3");
    REFUSED(SELF((float *)len, w.q, len, NULL, B, N + 1, H, D, 0), ATTN_E_OVERLAP, "attn_self: out overlaps lengths");
    REFUSED(SELF(w.mask, w.q, NULL, w.mask, B, N, H, D, 0), ATTN_E_OVERLAP, "attn_self: out overlaps mask");
    REFUSED(SELF(w.out, odd, NULL, NULL, B, N, H, D, 0), ATTN_E_ALIGN, "attn_self: q is not aligned");
    REFUSED(SELF(w.out, w.q, (int *)(void *)odd, NULL, B, N, H, D, 0), ATTN_E_ALIGN, "attn_self: lengths is not");
    REFUSED(SELF(w.out, w.q, NULL, NULL, INT_MAX, 1, INT_MAX, 1, 0), ATTN_E_OVERFLOW, "attn_self: batch is ");
    REFUSED(CROSS(w.out, NULL, NULL, NULL, B, N, K, H, D), ATTN_E_NULL, "attn_cross: q is NULL");
    REFUSED(CROSS(w.out, w.q, NULL, NULL, B, -2, K, H, D), ATTN_E_SIZE, "attn_cross: n_q is -2");
    REFUSED(CROSS(w.out, w.q, NULL, NULL, B, N, -2, H, D), ATTN_E_SIZE, "attn_cross: n_k is -2");
    len[0] = 5;
    REFUSED(CROSS(w.out, w.q, len, NULL, B, N, K, H, D), ATTN_E_LENGTHS,
            "attn_cross: source_lengths[0] is 5 but n_k is 4");
    len[0] = -1;
    REFUSED(CROSS(w.out, w.q, len, NULL, B, N, K, H, D), ATTN_E_LENGTHS, "attn_cross: source_lengths[0] is -1");
    len[0] = 4;
    REFUSED(CROSS(w.k, w.q, len, NULL, B, N, K, H, D), ATTN_E_OVERLAP, "attn_cross: out overlaps k");
    REFUSED(CROSS((float *)len, w.q, len, NULL, B, N, K, H, D), ATTN_E_OVERLAP,
            "attn_cross: out overlaps source_lengths");
#undef SELF
#undef CROSS
    refusal_clear();
    CHECK(attn_self(w.out, w.q, w.k, w.v, B, 0, H, D, 0, NULL, NULL) == ATTN_OK && refusal_count() == 0);
}

/* ---- level 1 --------------------------------------------------------------------------------------------------- */

static void mask_builders(void)
{
    static const int ids[8] = { 1, 2, 0, 0, 3, 0, 0, 0 };
    const int big = INT_MAX;
    float *m = w.out;
    (void)good();
    UNTOUCHED(ATTN_E_NULL, attn_mask_causal(NULL, 3, 4, 0));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_causal(m, -1, 4, 0));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_causal(m, 3, -1, 0));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_causal(m, big, big, 0));
    UNTOUCHED(ATTN_OK, attn_mask_causal(m, 0, 4, 0));
    UNTOUCHED(ATTN_OK, attn_mask_causal(m, 3, 0, 0));

    UNTOUCHED(ATTN_E_NULL, attn_mask_window(NULL, 3, 4, 1, 1, 0));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_window(m, -1, 4, 1, 1, 0));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_window(m, 3, -1, 1, 1, 0));
    UNTOUCHED(ATTN_E_OPTION, attn_mask_window(m, 3, 4, -1, 1, 0));
    UNTOUCHED(ATTN_E_OPTION, attn_mask_window(m, 3, 4, 1, -1, 0));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_window(m, big, big, 1, 1, 0));
    UNTOUCHED(ATTN_OK, attn_mask_window(m, 0, 0, 1, 1, 0));

    UNTOUCHED(ATTN_E_NULL, attn_mask_padding(NULL, ids, 0, 2, 4));
    UNTOUCHED(ATTN_E_NULL, attn_mask_padding(m, NULL, 0, 2, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_padding(m, ids, 0, -2, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_padding(m, ids, 0, 2, -4));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_padding(m, ids, 0, big, big));
    UNTOUCHED(ATTN_OK, attn_mask_padding(m, ids, 0, 0, 4));

    UNTOUCHED(ATTN_E_NULL, attn_mask_cross(NULL, ids, 0, 2, 3, 4));
    UNTOUCHED(ATTN_E_NULL, attn_mask_cross(m, NULL, 0, 2, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_cross(m, ids, 0, -1, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_cross(m, ids, 0, 2, -1, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_cross(m, ids, 0, 2, 3, -1));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_cross(m, ids, 0, 2, big, big));
    UNTOUCHED(ATTN_OK, attn_mask_cross(m, ids, 0, 2, 0, 4));
    UNTOUCHED(ATTN_OK, attn_mask_cross(m, ids, 0, 2, 3, 0));
    UNTOUCHED(ATTN_OK, attn_mask_cross(NULL, NULL, 0, 2, 3, 0));                  /* no cells, so no ids are required */

    UNTOUCHED(ATTN_E_NULL, attn_mask_lengths(NULL, w.k_lengths, 2, 3, 4));
    UNTOUCHED(ATTN_E_NULL, attn_mask_lengths(m, NULL, 2, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_lengths(m, w.k_lengths, -2, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_lengths(m, w.k_lengths, 2, -3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_lengths(m, w.k_lengths, 2, 3, -4));
    UNTOUCHED(ATTN_E_LENGTHS, attn_mask_lengths(m, w.k_lengths, 2, 3, 3));
    w.k_lengths[1] = -1;
    UNTOUCHED(ATTN_E_LENGTHS, attn_mask_lengths(m, w.k_lengths, 2, 3, 4));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_lengths(m, w.q_lengths, 2, big, big));
    UNTOUCHED(ATTN_OK, attn_mask_lengths(NULL, NULL, 0, 3, 4));
    UNTOUCHED(ATTN_OK, attn_mask_lengths(NULL, NULL, 2, 0, 4));
    UNTOUCHED(ATTN_OK, attn_mask_lengths(NULL, NULL, 2, 3, 0));

    UNTOUCHED(ATTN_E_NULL, attn_mask_keep(NULL, w.keep, 4));
    UNTOUCHED(ATTN_E_NULL, attn_mask_keep(m, NULL, 4));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_keep(m, w.keep, SIZE_MAX));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_keep(m, w.keep, SIZE_MAX / 4 + 1));
    UNTOUCHED(ATTN_OK, attn_mask_keep(m, w.keep, 0));
    UNTOUCHED(ATTN_OK, attn_mask_keep(NULL, NULL, 0));

    UNTOUCHED(ATTN_E_NULL, attn_mask_merge(NULL, 2, w.mask, 1, 3, 4));
    UNTOUCHED(ATTN_E_NULL, attn_mask_merge(m, 2, NULL, 1, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_merge(m, -2, w.mask, 1, 3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_merge(m, 2, w.mask, 1, -3, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_mask_merge(m, 2, w.mask, 1, 3, -4));
    UNTOUCHED(ATTN_E_SHAPE, attn_mask_merge(m, 2, w.mask, 3, 3, 4));
    UNTOUCHED(ATTN_E_SHAPE, attn_mask_merge(m, 2, w.mask, 0, 3, 4));
    UNTOUCHED(ATTN_E_SHAPE, attn_mask_merge(m, 2, w.mask, -1, 3, 4));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_mask_merge(m, 2, w.mask, 1, big, big));
    UNTOUCHED(ATTN_OK, attn_mask_merge(m, 0, w.mask, 1, 3, 4));
    UNTOUCHED(ATTN_OK, attn_mask_merge(NULL, 2, NULL, 1, 0, 4));
    UNTOUCHED(ATTN_OK, attn_mask_merge(NULL, 2, NULL, 2, 3, 0));

    UNTOUCHED(ATTN_E_NULL, attn_lengths(NULL, ids, 0, 2, 4));
    UNTOUCHED(ATTN_E_NULL, attn_lengths(w.k_lengths, NULL, 0, 2, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_lengths(w.k_lengths, ids, 0, -2, 4));
    UNTOUCHED(ATTN_E_SIZE, attn_lengths(w.k_lengths, ids, 0, 2, -4));
    UNTOUCHED(ATTN_E_LENGTHS, attn_lengths(w.k_lengths, ids, 2, 2, 4));            /* 2 comes before other tokens */
    UNTOUCHED(ATTN_E_OVERFLOW, attn_lengths(w.k_lengths, ids, 0, big, big));
    UNTOUCHED(ATTN_OK, attn_lengths(w.k_lengths, ids, 0, 0, 4));
}

static void t5_arguments(void)
{
    float *m = w.out, *table = w.bias;
    const int big = INT_MAX;
    (void)good();
    UNTOUCHED(ATTN_E_NULL, attn_bias_t5(NULL, table, 8, 16, 0, 2, 3));
    UNTOUCHED(ATTN_E_NULL, attn_bias_t5(m, NULL, 8, 16, 0, 2, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 0, 16, 0, 2, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, -8, 16, 0, 2, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 8, -1, 0, 2, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 8, 16, 0, 0, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 8, 16, 0, -2, 3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 8, 16, 0, 2, -3));
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 2, 16, 0, 2, 3));          /* one bucket in each direction */
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, 8, 2, 0, 2, 3));           /* no distance left for the logarithm */
    UNTOUCHED(ATTN_E_SIZE, attn_bias_t5(m, table, INT_MAX, INT_MAX, 0, 2, 3));
    UNTOUCHED(ATTN_E_OVERFLOW, attn_bias_t5(m, table, 8, 16, 0, 2, big));
    UNTOUCHED(ATTN_E_OPTION, attn_bias_t5(m, table, 8, 16, 2, 2, 3));
    UNTOUCHED(ATTN_E_OPTION, attn_bias_t5(m, table, 8, 16, -1, 2, 3));
}

extern SUITE(args_levels);
SUITE(args_levels) = {
    { "why_buffer", why_buffers, "a sentence without its terminator or written past its buffer" },
    { "status_strings", status_words, "a status without a string" },
    { "struct_sizes", struct_sizes, "a size of another struct, or of none, reported to a binding" },
    { "level_2_sentences", level_2_sentences,
      "a sentence of attn_self or attn_cross with the names of attn_args, or none" },
    { "self_cross", self_and_cross, "an argument of attn_self or attn_cross that is not checked" },
    { "mask_builders", mask_builders, "an argument of a mask builder that is not checked" },
    { "t5_arguments", t5_arguments, "a T5 argument that is not checked" },
    { 0 } };
