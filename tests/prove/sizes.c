/* sizes.c: attn_sdpa_workspace and attn_check of any sizes, options and strides. */
#include "prove.h"

static ptrdiff_t any_stride(void) { return Frama_C_long_interval(LONG_MIN, LONG_MAX); }

int main(void)
{
    static float x[1];
    attn_args a = {0};
    a.batch = any_int();  a.n_q = any_int();  a.n_k = any_int();  a.heads = any_int();  a.kv_heads = any_int();
    a.head_dim = any_int();  a.v_head_dim = any_int();  a.k_batch = any_int();  a.parts = any_int();
    a.q_pos = any_int();  a.window_left = any_int();  a.window_right = any_int();
    a.layout = (attn_layout)any_int();  a.causal = (attn_causal)any_int();  a.align = (attn_align)any_int();
    for (int i = 0; i < 3; i++) {
        a.q_stride[i] = any_stride();  a.k_stride[i] = any_stride();  a.v_stride[i] = any_stride();
        a.out_stride[i] = any_stride();  a.mask_stride[i] = any_stride();  a.mask_shape[i] = any_int();
    }
    a.q = a.k = a.v = x;  a.out = x;
    if (any_int()) a.mask = x;
    if (any_int()) a.lse = x;
    if (any_int()) a.weights = x;
    attn_sdpa_workspace(&a);
    attn_check(&a, 0, 0);
    return 0;
}
