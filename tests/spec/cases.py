"""The test vectors of tests/SPEC.md, section 13, computed by attn_spec.py.

    python3 cases.py vectors.txt                 checks every vector; exit status 1 if one fails
    python3 cases.py vectors.txt -b > bits.txt   also prints the bits: a line for each output
"""
import sys
import numpy as np
from attn_spec import *

def draw(text, shape, keep=False):
    part = text.split(':')
    x = u32(int(part[0])) + u32(0x9E3779B9) * np.arange(1, np.prod(shape) + 1, dtype=u32)
    x = (x ^ x >> u32(16)) * u32(0x7FEB352D)
    x = (x ^ x >> u32(15)) * u32(0x846CA68B)
    x = x ^ x >> u32(16)
    if keep: return (x % u32(int(part[1])) != 0).astype(np.uint8).reshape(shape)
    if len(part) == 1: return number(x).reshape(shape)
    y = ((x >> u32(8)).astype(f32) - f32(2**23)) / f32(2**23) * f32(float(part[1])) + f32(0)
    if len(part) == 3: y = np.where(x % u32(int(part[2])) == 0, -INF, y)
    return y.astype(f32).reshape(shape)

class Case:
    def __init__(self, parameters): self.map = dict(parameters)
    def __call__(self, name):
        """The integer or number of that name, a list of integers, or 0."""
        text = self.map.get(name, '0')
        if ':' in text: return text
        if ',' in text: return [int(t) for t in text.split(',')]
        return float(text) if '.' in text else int(text)
    def of(self, name, b, default):
        """The element of entry b of a list."""
        return int(self.map[name].split(',')[b]) if name in self.map else default
    def tensor(self, name, *shape, keep=False):
        if name not in self.map: return None
        x = draw(self.map[name], shape, keep)
        flat = x.reshape(-1)
        for poke in self.map.get('poke', '').split(','):
            owner, index, value = (poke or '::').split(':')
            if owner == name: flat[int(index)] = number(int(value, 16))
        return x

def entries(g, **change):
    """The entries of a call, and its sinks."""
    B, n_q, n_k, H, dim = g('batch') or 1, g('n_q'), g('n_k'), g('heads'), g('head_dim')
    KV, vd, arrays = g('kv_heads') or H, g('v_head_dim') or dim, {}
    for name in {'mask', 'bias', 'keep'} & set(g.map):
        shape = g(name + '_shape') or [1, H if name == 'bias' else 1, n_q]
        arrays[name] = g.tensor(name, *shape, n_k, keep=name == 'keep')
    if g('alibi'): arrays['alibi'] = g.tensor('alibi', 1, H)
    if g('rel_bias'): arrays['rel_bias'] = g.tensor('rel_bias', 1, H, 2 * g('rel_extent') + 1)
    q, k, v = (g.tensor(name, B, n, h, c) for name, n, h, c in
               (('q', n_q, H, dim), ('k', n_k, KV, dim), ('v', n_k, KV, vd)))
    (k, k_scale), (v, v_scale) = stored(k, g('k_storage')), stored(v, g('v_storage'))
    if g('v_in_k'): v, v_scale = k[..., :vd], k_scale
    part = change.pop('keys')
    g = Case({**g.map, **change})
    scale = lambda s, b: None if s is None else s[b, part]
    calls = [Entry(q[b], k[b, part], v[b, part], g, b, arrays, scale(k_scale, b), scale(v_scale, b)) for b in range(B)]
    return calls, g.tensor('sinks', H)

def compute(op, g):
    T, form = g.tensor, g('format')
    if op in ('exp', 'log', 'tanh'):
        u = bits(T('x', g('n')))
        x = number({'exp': u | u32(2**31), 'log': u & u32(2**31 - 1), 'tanh': u}[op])
        return [clean({'exp': exp, 'log': log, 'tanh': tanh}[op](x))]
    if op == 'scale': return [np.array([default_scale(d) for d in range(1, g('n') + 1)], f32)]
    if op == 'narrow': return [narrow(T('x', g('n')), form)]
    if op == 'eight':
        n, s = q8(T('x', g('rows'), g('n')))
        return [clean(s), clean(n * s[:, None])]
    if op == 'widen': return [widen(np.arange(65536).astype(np.uint16), form)]
    if op == 'mask_merge':
        shape = g('n_q'), g('n_k')
        m, by = T('mask', g('batch') or 1, *shape), T('by', g('by_batch') or 1, *shape)
        return [np.where((m == -INF) | (by == -INF), -INF, clean(m + by))]
    if op == 'builder':
        B, n_q, n_k, kind = g('batch') or 1, g('n_q'), g('n_k'), g('kind')
        if kind == 2: n_q = n_k
        i, j = g('pos') + np.arange(n_q)[:, None], np.arange(n_k)
        if kind == 0: see = (j <= i)[None]
        elif kind == 1:
            left, right = g('window_left'), g('window_right')
            see = (((j > i - left) | (left == 0)) & ((j < i + right) | (right == 0)))[None]
        elif kind == 4: see = np.stack([np.broadcast_to(j < g.of('k_lengths', b, 0), (n_q, n_k)) for b in range(B)])
        elif kind == 5: see = T('keep', B, n_q, n_k, keep=True) != 0
        else: see = np.broadcast_to(T('keep', B, 1, n_k, keep=True) != 0, (B, n_q, n_k))
        return [np.where(see, f32(0), -INF)]
    if op == 'bias_shift':
        x = T('x', g('matrices'), g('n_q'), g('columns'))
        row = np.arange(g('n_q'))[:, None]
        column = g('zero') + np.arange(g('n_k')) - (row + g('pos'))
        ok = (column >= 0) & (column < g('columns'))
        return [np.where(ok, x[:, row, np.where(ok, column, 0)], -INF)]
    if op == 't5':
        table, E = T('table', g('buckets'), g('heads')), g('extent')
        B = g('buckets') if g('one_way') else g('buckets') // 2
        A, rows = B // 2, []
        for d in range(-E, E + 1):
            n = -d if d <= 0 else 0 if g('one_way') else d
            half, t = B if d > 0 and not g('one_way') else 0, 0
            while t + 1 < B - A and n**(B - A) >= g('max_distance')**(t + 1) * A**(B - A - t - 1):
                t += 1
            rows.append(table[half + (n if n < A else A + t)])
        return [np.stack(rows, axis=1)]
    if op == 'linear':
        w = rounded(rounded(T('w', g('n_out'), g('n_in')), g('w_storage')), g('storage'))
        return [linear(T('x', g('rows'), g('n_in')), w, T('b', g('n_out')), g('storage'))]
    if op == 'norm':
        n = g('n')
        eps = f32(g('eps')) or F('0x1.0c6f7ap-20')
        return [norm(T('x', g('rows'), n), T('weight', n), eps, T('bias', n), g('kind') == 1)]
    if op == 'activate':
        y, gate = (gelu, gelu_tanh, silu)[g('kind')](T('x', g('n'))), T('gate', g('n'))
        return [clean(y if gate is None else y * gate)]
    if op == 'rope_table':
        n, rd = g('positions'), g('rotary_dim')
        t = rope_table(range(n), rd, float(g('base')), T('freqs', rd // 2))
        return [np.stack([t[p] for p in range(n)])]
    if op == 'rope_freqs':
        rd, f = g('rotary_dim'), T('factors', g('rotary_dim') // 2)
        return list(rope_freqs(g('kind'), rd, g, None if f is None else f32(1) + np.abs(f)))
    if op == 'rope':
        B, n, dim, base = g('batch') or 1, g('n'), g('head_dim'), float(g('base'))
        x, rd, out = T('x', B, n, g('heads'), dim), g('rotary_dim') or dim, []
        for b in range(B):
            at = [g('pos') + g.of('pos_each', b, 0) + i for i in range(n)]
            table = rope_table([p for p in at if p >= 0], rd, base)
            out.append(rotate(x[b], table, at, rd, g('interleaved')))
        return [np.stack(out)]
    if op == 'layer':
        seed, size = g.map['w'].split(':')
        return layer(g, T, lambda t, *shape: draw('%d:%s' % (int(seed) + 100 * t, size), shape))
    if op == 'delta':
        B, n, H, dim = g('batch') or 1, g('n'), g('heads'), g('head_dim')
        KH, vd, out = g('k_heads') or H, g('v_head_dim') or dim, np.zeros((B, n, H, g('v_head_dim') or dim), f32)
        q, k, v = T('q', B, n, KH, dim), T('k', B, n, KH, dim), T('v', B, n, H, vd)
        if g('qk_norm'): q, k = (normed(x, f32(g('norm_eps')) or F('0x1.0c6f7ap-20')) for x in (q, k))
        q, k = (np.repeat(x, H // KH, axis=2) for x in (q, k))
        decays, beta, S = T('g', B, n, H, dim if g('per') else 1), T('beta', B, n, H, 1), T('state', B, H, dim, vd)
        decays = np.zeros((B, n, H, 1), f32) if decays is None else decays
        beta = np.ones((B, n, H, 1), f32) if beta is None else beta
        S = np.zeros((B, H, dim, vd), f32) if S is None else S
        for b in range(B):
            R = g.of('q_lengths', b, n)
            out[b, :R], S[b] = delta(*(x[b, :R] for x in (q, k, v, decays, beta)), S[b], g('rule'),
                                     f32(g('scale')) or default_scale(dim))
        return [out, S]
    if op == 'conv':
        B, n, C, width = g('batch') or 1, g('n'), g('channels'), g('width')
        x, w, bias, S = T('x', B, n, C), T('w', C, width), T('bias', C), T('state', B, width - 1, C)
        y, S = np.zeros((B, n, C), f32), np.zeros((B, width - 1, C), f32) if S is None else S
        for b in range(B):
            R = g.of('q_lengths', b, n)
            y[b, :R], S[b] = conv(x[b, :R], w, bias, S[b], g('silu'))
        return [y, S]
    if op == 'fold':
        x = T('x', g('parts'), g('rows'), g('v_head_dim') + 4)
        total = fold_states(x)
        return [total, *finish(load(total), True, None)[2:], fold_states(x[:2])]
    if op == 'resume':
        cut, pos = g('cut'), g('n_k') - g('n_q')
        first, _ = entries(g, keys=slice(0, cut), causal='2', q_pos=str(pos))
        calls, sinks = entries(g, keys=slice(cut, None), causal='2', q_pos=str(pos - cut))
        for a, c in zip(first, calls): c.state = load(store(*a.run().state))
    else: calls, sinks = entries(g, keys=slice(None))
    if op == 'parts':
        f, t = g('forgotten') or (0, 0)                                 # whole chunks, which are not counted
        held = [n for n in range(g('parts') + t // 128) if not f // 128 <= n < t // 128][:g('parts')]
        parts = [np.stack([store(*c.chunk(n)) for c in calls]) for n in held]
        return [np.stack(parts), fold_states(parts), fold_states(parts[:2])]
    for c in calls: c.run()
    if op == 'states': return [np.stack([store(*c.state) for c in calls])]
    out, lse, w, masked = (np.stack(a) for a in zip(*(c.finish(sinks, g('stage')) for c in calls)))
    return [out, lse, w, masked.sum()] if op == 'attention' else [out, lse, masked.sum()]

def bytes_of(x):
    form = '<i4' if x.dtype.kind == 'i' else {2: '<u2', 4: '<f4'}[x.itemsize]
    return np.asarray(x).astype(form).tobytes()

def fnv(parts):
    h = 0xCBF29CE484222325
    for x in parts:
        for byte in bytes_of(x): h = ((h ^ byte) * 0x100000001B3) & MASK
    return '%016X' % h

def fnv_hashes(hashes):
    """The hash of hashes, 8 bytes each, least significant byte first."""
    return fnv([np.array([h & 0xFFFFFFFF, h >> 32], u32).view(f32) for h in hashes])

def lines(name, outputs):
    """The lines of a case in bits.txt: section and name, number of the output, its length, its hash, its bits if short."""
    for i, x in enumerate(outputs):
        words, size = bytes_of(x), 2 if x.dtype == np.uint16 else 4
        text = [words[k:k + size][::-1].hex().upper() for k in range(0, len(words), size)]
        yield ' '.join([name, str(i + 1), str(len(text)), fnv([x])] + (text if len(text) <= 48 else []))

def main(path, listing=False):
    passed = failed = 0
    sections = {}
    for line in open(path):
        word = line.split()
        if line.startswith('#') or not word: continue
        outputs = compute(word[2], Case(w.split('=') for w in word[3:-1]))
        got = fnv(outputs)
        sections.setdefault(int(word[0]), []).append(int(got, 16))
        passed, failed = passed + (got == word[-1]), failed + (got != word[-1])
        if listing: print('\n'.join(lines(' '.join(word[:2]), outputs)))
        elif got == word[-1]: print(f'ok {word[1]}')
        if got != word[-1]: print(f'FAIL {word[1]} {word[-1]} {got}')
    if listing: return int(failed > 0)
    print('number', fnv_hashes([int(fnv_hashes(sections[s]), 16) for s in sorted(sections)]))
    print(f'{passed} passed, {failed} failed')
    return int(failed > 0)

if __name__ == '__main__': sys.exit(main(sys.argv[1], sys.argv[2:] == ['-b']))
