#!/usr/bin/env python3
"""Makes tests/support/torch_delta.h: what torch computes for linear attention, in double, for suite delta.

    apt-get install python3-torch && python3 tests/support/torch_delta.py > tests/support/torch_delta.h

recurrent() and chunked() follow torch_recurrent_gated_delta_rule and torch_chunk_gated_delta_rule of transformers
(modeling_qwen3_next), ssd() follows the recurrence of torch_forward in modeling_mamba2. chunked() must agree with
recurrent() within 1e-12. Inputs are not stored: number() here and in test_delta.c gives the same exact floats."""
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
N, HEADS, K_HEADS, DIM, V_DIM, WIDTH = 11, 4, 2, 8, 6, 4


def number(stream, i):
    """a multiple of 2^-12 in [-1, 1), as in torch_numbers.py"""
    x = (stream * 0x9E3779B1 + i * 0x85EBCA77 + 0x27D4EB2F) & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x2C1B3C6D & 0xFFFFFFFF
    x ^= x >> 13
    return ((x & 0x1FFF) - 4096) / 4096


def numbers(stream, *shape):
    n = torch.Size(shape).numel()
    return torch.tensor([number(stream, i) for i in range(n)]).reshape(shape)


def l2norm(x, eps=1e-6):
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + eps)


def recurrent(query, key, value, g, beta, state):
    """[heads][n][dim]; g and beta [heads][n]"""
    query, key = l2norm(query) / DIM**0.5, l2norm(key)
    out = torch.zeros_like(value)
    for i in range(N):
        state = state * g[:, i].exp()[:, None, None]
        kv_mem = (state * key[:, i, :, None]).sum(dim=-2)
        delta = (value[:, i] - kv_mem) * beta[:, i, None]
        state = state + key[:, i, :, None] * delta[:, None, :]
        out[:, i] = (state * query[:, i, :, None]).sum(dim=-2)
    return out, state


def chunked(query, key, value, g, beta, state, size=4):
    query, key = l2norm(query), l2norm(key)
    pad = (size - N % size) % size
    query, key, value = (F.pad(x, (0, 0, 0, pad)) for x in (query, key, value))
    beta, g = F.pad(beta, (0, pad)), F.pad(g, (0, pad))
    query = query / DIM**0.5
    v_beta, k_beta = value * beta[..., None], key * beta[..., None]
    query, key, value, k_beta, v_beta = (x.reshape(HEADS, -1, size, x.shape[-1])
                                         for x in (query, key, value, k_beta, v_beta))
    g = g.reshape(HEADS, -1, size).cumsum(dim=-1)
    upper = torch.triu(torch.ones(size, size, dtype=torch.bool), diagonal=0)
    decay = (g[..., :, None] - g[..., None, :]).tril().exp().tril()
    attn = -((k_beta @ key.transpose(-1, -2)) * decay).masked_fill(upper, 0)
    for i in range(1, size):
        row, sub = attn[..., i, :i].clone(), attn[..., :i, :i].clone()
        attn[..., i, :i] = row + (row[..., None] * sub).sum(-2)
    attn = attn + torch.eye(size)
    value = attn @ v_beta
    k_cumdecay = attn @ (k_beta * g.exp()[..., None])
    out = torch.zeros_like(value)
    strict = torch.triu(torch.ones(size, size, dtype=torch.bool), diagonal=1)
    for i in range(value.shape[1]):
        q, k, v = query[:, i], key[:, i], value[:, i]
        inner = (q @ k.transpose(-1, -2) * decay[:, i]).masked_fill(strict, 0)
        v_new = v - k_cumdecay[:, i] @ state
        out[:, i] = (q * g[:, i, :, None].exp()) @ state + inner @ v_new
        last = g[:, i, -1]
        state = state * last[:, None, None].exp() + \
            (k * (last[:, None] - g[:, i]).exp()[..., None]).transpose(-1, -2) @ v_new
    return out.reshape(HEADS, -1, V_DIM)[:, :N], state


def ssd(c, b, x, dt, a, state):
    """Mamba-2: [heads][n][dim], dt [heads][n], a [heads]; the state is [heads][dim][v_dim], transposed there."""
    out = torch.zeros_like(x)
    for i in range(N):
        state = state * (dt[:, i] * a).exp()[:, None, None] + (dt[:, i, None] * b[:, i])[..., None] * x[:, i, None, :]
        out[:, i] = (state * c[:, i, :, None]).sum(dim=-2)
    return out, state


def table(name, x):
    flat = x.reshape(-1).tolist()
    print('static const double %s[] = {' % name)
    for i in range(0, len(flat), 4):
        print('    ' + ' '.join('%.17g,' % v for v in flat[i:i + 4]))
    print('};')


def heads_first(x):
    """[n][heads].. to [heads][n].., with heads that share q and k repeated"""
    x = x.transpose(0, 1)
    return x.repeat_interleave(HEADS // x.shape[0], dim=0)


q, k = heads_first(numbers(1, N, K_HEADS, DIM)), heads_first(numbers(2, N, K_HEADS, DIM))
v = heads_first(numbers(3, N, HEADS, V_DIM))
g, beta = -heads_first(numbers(4, N, HEADS)).abs(), heads_first(numbers(5, N, HEADS)).abs()
start = numbers(6, HEADS, DIM, V_DIM)
print('/* torch_delta.h: made by torch_delta.py. Do not edit. */')
print('enum { TORCH_N = %d, TORCH_HEADS = %d, TORCH_K_HEADS = %d, TORCH_DIM = %d, TORCH_V_DIM = %d, TORCH_WIDTH = %d };'
      % (N, HEADS, K_HEADS, DIM, V_DIM, WIDTH))
out, state = recurrent(q, k, v, g, beta, start)
for one, two in zip((out, state), chunked(q, k, v, g, beta, start)):
    assert (one - two).abs().max() < 1e-12, (one - two).abs().max()
table('torch_delta_out', out.transpose(0, 1))
table('torch_delta_state', state)
# the exact floats of number() are the products: a = -1 for each head, dt = beta
out, state = ssd(q, k, v, beta, -torch.ones(HEADS), start)
table('torch_ssd_out', out.transpose(0, 1))
table('torch_ssd_state', state)
x, w, bias, before = numbers(7, N, DIM), numbers(8, DIM, WIDTH), numbers(9, DIM), numbers(10, WIDTH - 1, DIM)
y = F.conv1d(torch.cat([before, x]).t()[None], w[:, None], bias, groups=DIM)[0].t()
table('torch_conv_out', F.silu(y))
