/* masks.c: attn_mask_causal and attn_mask_window. Matrices up to 4 x 4, sizes from -2 on, and every int as position and
 * as window: no signed overflow, no element outside of the matrix, no uninitialised read. */
#include "prove.h"

int main(void)
{
    float m[4 * 4];
    const int n_q = Frama_C_interval(-2, 4), n_k = Frama_C_interval(-2, 4), pos = any_int();
    const int left = any_int(), right = any_int();
    attn_mask_causal(m, n_q, n_k, pos);
    attn_mask_window(m, n_q, n_k, left, right, pos);
    return 0;
}
