#!/usr/bin/env python3
"""Makes tests/support/torch_numbers.h: what torch.nn.MultiheadAttention answers, in double, for the cases of suite mha.

    apt-get install python3-torch && python3 tests/support/torch_numbers.py > tests/support/torch_numbers.h

Weights and inputs are not stored: number() below and in test_mha.c gives the same exact floats."""
import torch

torch.set_default_dtype(torch.float64)


def number(stream, i):
    """a multiple of 2^-12 in [-1, 1): exact in every format"""
    x = (stream * 0x9E3779B1 + i * 0x85EBCA77 + 0x27D4EB2F) & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x2C1B3C6D & 0xFFFFFFFF
    x ^= x >> 13
    return ((x & 0x1FFF) - 4096) / 4096


def numbers(stream, *shape):
    n = 1
    for s in shape:
        n *= s
    return torch.tensor([number(stream, i) for i in range(n)]).reshape(shape)


# name, batch, n_q, n_k, d_model, heads, kdim, vdim (0: self-attention), bias, causal, additive mask, lengths, averaged
CASES = [
    ("self_bias", 2, 5, 5, 8, 2, 0, 0, 1, 0, 0, None, 1),
    ("self_plain", 1, 6, 6, 8, 4, 0, 0, 0, 0, 0, None, 0),
    ("self_causal", 2, 5, 5, 12, 3, 0, 0, 1, 1, 0, None, 1),
    ("self_padding", 3, 4, 4, 8, 2, 0, 0, 1, 0, 0, [4, 2, 1], 1),
    ("self_causal_padding", 2, 5, 5, 8, 2, 0, 0, 0, 1, 0, [5, 3], 0),
    ("self_mask", 1, 4, 4, 8, 1, 0, 0, 1, 0, 1, None, 1),
    ("cross_same", 2, 3, 6, 8, 2, 8, 8, 1, 0, 0, [6, 4], 1),
    ("cross_kdim", 2, 3, 5, 8, 2, 12, 12, 0, 0, 0, [5, 2], 1),
    ("cross_kdim_vdim", 2, 4, 5, 12, 3, 8, 10, 1, 0, 0, [3, 5], 0),
    ("cross_mask", 1, 3, 7, 8, 4, 12, 8, 1, 0, 1, [6], 1),
]


def run(batch, n_q, n_k, d, heads, kdim, vdim, bias, causal, additive, lengths, averaged):
    m = torch.nn.MultiheadAttention(d, heads, bias=bool(bias), kdim=kdim or None, vdim=vdim or None, batch_first=True)
    scale = 0.5
    with torch.no_grad():
        if m.in_proj_weight is not None:
            m.in_proj_weight.copy_(numbers(1, 3 * d, d) * scale)
        else:
            m.q_proj_weight.copy_(numbers(1, d, d) * scale)
            m.k_proj_weight.copy_(numbers(2, d, kdim) * scale)
            m.v_proj_weight.copy_(numbers(3, d, vdim) * scale)
        m.out_proj.weight.copy_(numbers(4, d, d) * scale)
        if bias:
            m.in_proj_bias.copy_(numbers(5, 3 * d))
            m.out_proj.bias.copy_(numbers(6, d))
        x = numbers(7, batch, n_q, d)
        k = numbers(8, batch, n_k, kdim) if kdim else x
        v = numbers(9, batch, n_k, vdim) if vdim else x
        padding = mask = None
        if lengths:
            padding = torch.zeros(batch, n_k, dtype=torch.bool)
            for b, n in enumerate(lengths):
                padding[b, n:] = True
        if causal:
            mask = torch.triu(torch.full((n_q, n_k), float("-inf")), 1)
        if additive:
            mask = numbers(10, n_q, n_k)
        return m(x, k, v, key_padding_mask=padding, attn_mask=mask, need_weights=True,
                 average_attn_weights=bool(averaged))


def array(name, t):
    flat = ["%.9g" % f for f in t.flatten().tolist()]
    flat = [f if "." in f or "e" in f else f + ".0" for f in flat]
    print("static const float %s[%d] = {" % (name, len(flat)))
    for i in range(0, len(flat), 7):
        print("    " + ", ".join(f + "f" for f in flat[i:i + 7]) + ",")
    print("};")


version = torch.__version__.split("+")[0]
print("/* torch_numbers.h: made by torch_numbers.py with torch %s; not edited by hand. */" % version)
for name, *case in CASES:
    out, weights = run(*case)
    array("torch_%s_out" % name, out)
    array("torch_%s_weights" % name, weights)
print("static const torch_case torch_cases[] = {")
for name, batch, n_q, n_k, d, heads, kdim, vdim, bias, causal, additive, lengths, averaged in CASES:
    print('    {"%s", %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, {%s},\n     torch_%s_out, torch_%s_weights},'
          % (name, batch, n_q, n_k, d, heads, kdim, vdim, bias, causal, additive, averaged,
             ", ".join(map(str, lengths or [0])), name, name))
print("};")
