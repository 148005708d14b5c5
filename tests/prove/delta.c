/* delta.c: the checks of attn_delta, attn_delta_workspace and attn_conv. Every number of their arguments is arbitrary, every
 * pointer NULL or set; no executor. CASE 0: attn_delta without lists. 1: two entries with lengths. 2: two ragged entries.
 * 3, 4, 5: the same for attn_conv. Sentences, the default scale and the comparison of addresses have only contracts. */
#include "prove.h"

/*@ assigns *why; ensures \result == ATTN_E_OPTION; */
static attn_status attn__fail_float(attn__why *why, const char *name, float x, const char *but);
/*@ assigns *why; */
static attn_status attn__check_overlap(attn__why *why, const attn__spans *all);
/*@ assigns *why; */
static attn_status attn__check_apart(attn__why *why, const char *out_name, const void *out, size_t out_bytes,
                                     const char *in_name, const void *in, size_t in_bytes);
/*@ assigns \nothing; */
static float attn__default_scale(int head_dim);

static float cells[8];
static int two[2], three[3];

static float *floats(void) { return any_int() ? cells : NULL; }

/* lengths or ragged offsets of two entries, any ints */
static void lists(int *batch, const int **lengths, const int **cum)
{
    *lengths = *cum = NULL;
    if (CASE % 3 == 0) return;
    *batch = 2;
    Frama_C_make_unknown((char *)two, sizeof two);
    Frama_C_make_unknown((char *)three, sizeof three);
    if (CASE % 3 == 1) *lengths = two;
    else *cum = three;
}

int main(void)
{
    attn__why why;
#if CASE < 3
    attn_delta_args given, a;
    size_t bytes;
    Frama_C_make_unknown((char *)&given, sizeof given);
    given.out = floats(); given.state = floats(); given.q = floats(); given.k = floats(); given.v = floats();
    given.g = floats(); given.beta = floats(); given.work = floats();
    given.exec = NULL;
    given.user = NULL;
    lists(&given.batch, &given.q_lengths, &given.q_cum);
    if (attn__delta_sizes(&a, &given, "delta", &why, &bytes) != ATTN_OK) return 0;
    /*@ assert a.head_dim >= 1 && a.v_head_dim >= 1 && a.heads >= 1 && a.k_heads >= 1; */
    if (attn__delta_places(&a, &why) == ATTN_OK) Frama_C_show_each_end(a.batch, a.n, a.heads);
#else
    attn_conv_args a;
    int rows;
    Frama_C_make_unknown((char *)&a, sizeof a);
    a.y = floats(); a.state = floats(); a.x = floats(); a.w = floats(); a.bias = floats();
    a.exec = NULL;
    a.user = NULL;
    lists(&a.batch, &a.q_lengths, &a.q_cum);
    attn__why_open(&why, "conv", NULL);
    if (attn__conv_check(&a, &why, &rows) == ATTN_OK) Frama_C_show_each_end(a.batch, a.width, a.channels);
#endif
    return 0;
}
