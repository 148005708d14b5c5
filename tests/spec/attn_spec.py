"""The second implementation of tests/SPEC.md, sections 1 to 11 and 15, written from that document alone."""
import math
import numpy as np

f32, f64, u32 = np.float32, np.float64, np.uint32
INF, MASK = f32(np.inf), 2**64 - 1
np.seterr(all='ignore')

# ---- 1. Arithmetic -------------------------------------------------------------------------------
def F(text): return f32(float.fromhex(text))
def bits(x): return np.asarray(x, f32).view(u32)
def number(u): return np.asarray(u, u32).view(f32)

def fma(a, b, c):
    """The product is exact in double, the sum is rounded to odd, then to float."""
    c = np.asarray(c, f32).astype(f64)
    p = np.asarray(a, f32).astype(f64) * np.asarray(b, f32).astype(f64)
    s = p + c
    t = s - p
    e = (p - (s - t)) + (c - t)
    u = np.asarray(s).view(np.int64)
    step = np.where(np.signbit(e) == np.signbit(s), 1, -1)
    u = np.where((e != 0) & ~np.isnan(e) & (u & 1 == 0), u + step, u)
    return u.view(f64).astype(f32)

def clean(x):
    x = np.asarray(x, f32)
    return np.where(np.isnan(x), number(0x7FC00000), np.where(x == 0, f32(0), x)).astype(f32)

def horner(x, *coefficients):
    y = coefficients[0]
    for c in coefficients[1:]: y = fma(y, x, c)
    return y

# ---- 2. Functions --------------------------------------------------------------------------------
def exp(x):
    x = np.asarray(x, f32)
    t = fma(x, F('0x1.715476p+0'), F('0x1.8000fep+23'))
    n = t - F('0x1.8000fep+23')
    s = number(bits(t) << u32(23))
    r = fma(n, F('-0x1.62e430p-1'), x)
    u = fma(F('0x1.6a2cb8p-10'), r, F('0x1.125f5ep-7'))
    v = fma(F('0x1.555940p-5'), r, F('0x1.555430p-3'))
    w = fma(F('0x1.fffffap-2'), r, f32(1))
    y = horner(r * r, u, v, w)
    q = fma(n, F('0x1.05c610p-29'), r)
    return np.where(x < F('-0x1.5d589ep+6'), f32(0), fma(y, q * s, s))

LOG = [F(c) for c in '''0x1.555554p-2 -0x1.000226p-2 0x1.99a008p-3 -0x1.547244p-3
       0x1.22da1ap-3 -0x1.0d8540p-3 0x1.055b78p-3 -0x1.38b5aap-4'''.split()]

def log(x0):
    x0 = np.asarray(x0, f32)
    small = x0 < F('0x1p-126')
    x = np.where(small, x0 * F('0x1p+23'), x0)
    i = bits(x).astype(np.int64) - 0x3F3504F3
    e = np.where(small, f32(-23), f32(0)) + (i >> 23).astype(f32)
    f = number((i & 0x7FFFFF) + 0x3F3504F3) - f32(1)
    y = fma(e, F('-0x1.bd0106p-13'), f * (f * f) * horner(f, *LOG[::-1]))
    y = f + fma(f32(-0.5), f * f, y)
    y = np.where(x0 == INF, INF, fma(e, F('0x1.63p-1'), y))
    return np.where(x0 > 0, y, np.where(x0 == 0, -INF, f32(np.nan))).astype(f32)

def tanh(x):
    x = np.asarray(x, f32)
    a, z = np.where(x < 0, f32(0) - x, x), x * x
    y = horner(z, F('-0x1.76fa5ap-8'), F('0x1.526786p-6'), F('-0x1.b846b4p-5'),
               F('0x1.11077ap-3'), F('-0x1.555534p-2'))
    near = fma(y * z, x, x)
    e = exp(a * f32(-2))
    y = (f32(1) - e) / (f32(1) + e)
    return np.where(a < f32(0.625), near, np.where(x < 0, f32(0) - y, y))

def sigmoid(x):
    x = np.asarray(x, f32)
    e = exp(np.where(x < 0, x, f32(0) - x))
    return np.where(x < 0, e, f32(1)) / (f32(1) + e)

def default_scale(d): return f32(1 / math.sqrt(d))

# ---- 3. Formats of 16 bits -----------------------------------------------------------------------
def narrow(x, form):
    u = bits(x).astype(np.int64)
    nan = (u & 0x7FFFFFFF) > 0x7F800000
    if form == 1:
        h = np.asarray(x, f32).astype(np.float16).view(np.uint16)
        return np.where(nan, u >> 16 & 0x8000 | 0x7E00 | u >> 13 & 0x3FF, h).astype(np.uint16)
    return np.where(nan, u >> 16 | 0x40, (u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)

def widen(h, form):
    u = h.astype(u32)
    if form == 2: return number(u << u32(16))
    nan = (u & 0x8000) << 16 | 0x7FC00000 | (u & 0x3FF) << 13
    return number(np.where((u & 0x7FFF) > 0x7C00, nan, bits(h.view(np.float16).astype(f32))))

def rounded(x, form): return widen(narrow(x, form), form) if form in (1, 2) else x

def q8(x):
    """The integers of the rows of x, and their scales."""
    x = np.asarray(x, f32)
    m, bad = np.max(np.abs(x), axis=-1, initial=0), ~np.isfinite(x).all(axis=-1)
    none = bad | (m < F('0x1p-119'))
    r = np.where(none, f32(0), f32(127) / m)
    n = np.where(none[..., None], 0, np.rint(x.astype(f64) * r[..., None].astype(f64)))
    return n.astype(f32), np.where(bad, f32(np.nan), np.where(none, f32(0), m / f32(127)))

def stored(x, form):
    """Values as they are kept, and their scales or None."""
    return q8(x) if form == 3 else (rounded(x, form), None)

# ---- 4 and 5. Visibility and scores --------------------------------------------------------------
class Entry:
    """One entry of a call: visible keys, scores and state of each head and row."""
    def __init__(self, q, k, v, g, b, arrays, k_scale=None, v_scale=None):
        (n_q, heads, dim), n_k = q.shape, len(k)
        q = q.transpose(1, 0, 2) * (f32(g('scale')) or default_scale(dim))
        of_heads = lambda x: np.repeat(x, heads // x.shape[1], axis=1).swapaxes(0, 1)
        k, self.v = of_heads(k), of_heads(v)
        self.v_scale = None if v_scale is None else of_heads(v_scale)
        if k_scale is not None: q, q_scale = q8(q)
        start = g.of('k_starts', b, 0)
        end = start + g.of('k_lengths', b, n_k - start)
        rows, i, j = g.of('q_lengths', b, n_q), np.arange(n_q)[:, None], np.arange(n_k)
        P = i + g('q_pos') + g.of('q_pos_each', b, 0)
        if g('causal') == 1 or g('align') == 1: P = P + end - rows
        # an axis of length 1 belongs to every entry, head or row
        shape, cells = (heads, n_q, n_k), {name: a[b % len(a)] for name, a in arrays.items()}
        gone = g('forgotten') or [0, 0]
        see = (i < rows) & (j >= start) & (j < end) & ((j < gone[0]) | (j >= gone[1]))
        see = self.exists = np.broadcast_to(see, shape)
        if g('causal'): see = see & (j <= P)
        if g('window_left'): see = see & (j > P - g('window_left'))
        if g('window_right'): see = see & (j < P + g('window_right'))
        if 'keep' in cells: see = see & (cells['keep'] != 0)
        E = g('rel_extent')
        if 'rel_bias' in cells:
            cells['rel_bias'] = cells['rel_bias'][:, np.clip(j - P, -E, E) + E]
        for name in {'mask', 'bias', 'rel_bias'} & set(cells): see = see & (cells[name] != -INF)
        t = np.zeros(shape, f32)
        for c in range(dim): t = fma(q[:, :, None, c], k[:, None, :, c], t)
        if k_scale is not None: t = t * (q_scale[:, :, None] * of_heads(k_scale)[:, None, :])
        raw, cap = t, f32(g('softcap'))
        if cap > 0: t = fma(cap, tanh(t / cap), f32(0))
        capped = t
        if 'alibi' in cells:
            c = start + (j - start) // 128 * 128
            D = np.abs((P - c).astype(f32) - (j - c).astype(f32))
            t = fma(cells['alibi'][:, None, None], -D, t)
        for name in ('rel_bias', 'bias', 'mask'):
            if name in cells: t = t + cells[name]
        self.visible, self.stage, self.start, self.end = see, (None, raw, capped, t), start, end
        self.state, self.rows = initial((heads, n_q), self.v.shape[2]), np.arange(n_q) < rows
    # ---- 6. Softmax and output -------------------------------------------------------------------
    def chunk(self, n):
        """(m, l, o, whether a row has a visible key) of chunk n."""
        a = self.start + 128 * n
        keys = slice(a, max(min(a + 128, self.end), a))
        see, s, v = self.visible[..., keys], self.stage[3][..., keys], self.v[:, None, keys]
        m = np.max(np.where(see & ~np.isnan(s), s, -INF), axis=2, initial=-INF)
        p = np.where(see, exp(s - np.where(m == -INF, f32(0), m)[..., None]), f32(0))
        lane, o = np.zeros(m.shape + (16,), f32), np.zeros(m.shape + v.shape[3:], f32)
        w = p if self.v_scale is None else p * self.v_scale[:, None, keys]
        for j in range(p.shape[2]):
            lane[..., j % 16] += p[..., j]
            o = np.where(see[..., j, None], fma(w[..., j, None], v[:, :, j], o), o)
        for w in (8, 4, 2, 1): lane = lane[..., :w] + lane[..., w:2 * w]
        return m, lane[..., 0], o, see.any(axis=2)
    def run(self):
        for n in range((self.end - self.start + 127) // 128):
            self.state = fold(self.state, self.chunk(n))
        return self
    def finish(self, sinks, stage):
        """out, lse, weights, masked_rows."""
        M, L, out, lse, masked = finish(self.state, self.rows, sinks)
        t, hidden = clean(self.stage[stage or 3]), -INF if stage else f32(0)
        if not stage: t = clean(exp(self.stage[3] - M[..., None]) / L[..., None])
        weights = np.where(self.exists if stage in (1, 2) else self.visible, t, hidden)
        return out.transpose(1, 0, 2), lse, weights, masked

def finish(state, rows, sinks):
    """M, L, out, lse, masked_rows."""
    M, L, O, seen = state
    if sinks is not None:
        m = np.broadcast_to(sinks[:, None], M.shape)
        l = np.where(m == -INF, f32(0), f32(1))
        M, L, O, _ = fold((M, L, O, seen), (m, l, np.zeros_like(O), np.ones_like(seen)))
    real = seen & rows
    out = np.where(real[..., None], clean(O / L[..., None]), f32(0))
    return M, L, out, np.where(real, clean(M + log(L)), -INF), np.int32((rows & ~seen).sum())

def initial(shape, n):
    zero = np.zeros(shape, f32)
    return zero - INF, zero, np.zeros(shape + (n,), f32), zero != 0

def fold(state, new):
    """The state changes in rows whose `new` has seen a key."""
    (M, L, O, seen), (m, l, o, some) = state, new
    T = np.where(M > m, M, m)
    a, b = (np.where(T == -INF, f32(1), exp(x - T)) for x in (M, m))
    L2, O2 = fma(L, a, l * b), fma(O, a[..., None], o * b[..., None])
    O2 = np.where(some[..., None], O2, O)
    return np.where(some, T, M), np.where(some, L2, L), O2, seen | some

# ---- 7. States -----------------------------------------------------------------------------------
def store(M, L, O, seen):
    one = np.ones_like(L)
    head = np.stack([np.where(np.isnan(L), f32(np.nan), M), L, one, one - one], -1)
    none = np.zeros(head.shape[:-1] + (4 + O.shape[-1],), f32)
    none[..., 0] = -INF
    return np.where(seen[..., None], clean(np.concatenate([head, O], -1)), none)

def load(s): return s[..., 0], s[..., 1], s[..., 4:], s[..., 2] != 0

def fold_states(states):
    total = initial(states[0].shape[:-1], states[0].shape[-1] - 4)
    for s in states: total = fold(total, load(s))
    return store(*total)

# ---- 8. Linears ----------------------------------------------------------------------------------
def eight(x, w, part):
    """A block of 32 inputs, or fewer at the end, in 8 bits."""
    (p, sx), (q, sw) = q8(x), q8(w)
    return fma((p @ q.T).astype(f32), sx[..., None] * sw, part)

def linear(x, w, b=None, form=0):
    zeros, n = np.zeros(x.shape[:-1] + (w.shape[0],), f32), w.shape[1]
    acc = zeros if b is None else np.broadcast_to(b, zeros.shape)
    for f in range(0, n, 256):
        part = acc if f == 0 else zeros
        end = min(f + 256, n)
        for t in range(f, end, 32 if form == 3 else 1):
            if form == 3: part = eight(x[..., t:min(t + 32, end)], w[:, t:min(t + 32, end)], part)
            else: part = fma(x[..., t, None], w[:, t], part)
        acc = part if f == 0 else acc + part
    return np.where(np.isnan(acc), number(0x7FC00000), acc)

# ---- 9. Rotary embedding -------------------------------------------------------------------------
def high(a, b): return a * b >> 64

FACT = [2**63]
for _k in range(1, 22): FACT.append(FACT[-1] // _k)

def series(z, first, step):
    k = first + (21 - first) // step * step
    s = FACT[k]
    for n in range(k - step, first - 1, -step): s = (FACT[n] - high(z, s)) & MASK
    return s

def log2_bits(x):
    m, e = math.frexp(x)
    y, fraction = int(m * 2**53) << 11, 0
    for _ in range(64):
        y = high(y, y)
        fraction = (2 * fraction + (y >> 63)) & MASK
        if y < 2**63: y *= 2
    return e - 1, fraction

def power(i, base, rd):
    whole, fraction = log2_bits(base)
    e = 2 * i * ((whole << 64) + fraction) // rd
    return series(high(e & MASK, 0xB17217F7D1CF79AC), 0, 1), e >> 64

def turns(f, n):
    f, n = high(f, 0xA2F9836E4E44152A), n - 2
    if n >= 0: return (f << n) & MASK
    return (f >> -n) + (f >> (-n - 1) & 1) if n > -64 else 0

def once(n, negative):
    """n * 2^-63, rounded once to float."""
    k = max(n.bit_length() - 53, 0)
    n = (n >> k | (n & ((1 << k) - 1) != 0)) << k
    x = f32(float(n) * 2.0**-63)
    return -x if negative and n else x

def cos_sin(angle):
    quarter = ((angle + 2**61) & MASK) >> 62
    off = (angle - quarter * 2**62) & MASK
    below = off >> 63
    x = (2 * high(4 * (-off & MASK if below else off) & MASK, 0xC90FDAA22168C235)) & MASK
    c, s = series(high(x, x), 0, 2), high(x, series(high(x, x), 1, 2))
    if quarter & 1: return once(s, (quarter == 1) != (below == 1)), once(c, quarter == 3)
    return once(c, quarter == 2), once(s, (quarter == 2) != (below == 1))

def rope_table(positions, rd, base=10000.0, freqs=None):
    table, steps = {}, []
    for i in range(rd // 2):
        if freqs is None:
            f, down = power(i, base or 10000.0, rd)
            steps.append(turns(f, 1 - down))
        else:
            u = int(bits(freqs[i]))
            e, d = u >> 23 & 255, (u & 0x7FFFFF) + (2**23 if u >> 23 & 255 else 0)
            s = turns(d << 40, max(e, 1) - 126)
            steps.append(-s & MASK if u >> 31 else s)
    for p in positions:
        pairs = [cos_sin(s * p & MASK) for s in steps]
        table[p] = np.array([c for c, _ in pairs] + [s for _, s in pairs], f32)
    return table

def lg(x):
    whole, fraction = log2_bits(1 / x if x < 1 else x)
    r = float(whole) + float(fraction >> 1) * 2.0**-63
    return 0 - r if x < 1 else r

def rope_freqs(kind, rd, g, factors):
    base, factor, low = g('base') or 10000.0, float(g('factor') or 1), float(g('low') or 1)
    top = float(g('high') or (32 if kind == 3 else 4))
    original, two_pi = float(g('original')), float.fromhex('0x1.921fb54442d18p+2')

    def clamp(s, least=0.0, most=1.0): return min(max(s, least), most)
    def pair(n):
        return clamp(rd * lg(original / (n * two_pi)) / (2 * lg(base)), -2.0**30, 2.0**30)
    def S(m): return 1 + (m * (lg(factor) * float.fromhex('0x1.62e42fefa39efp-1'))) / 10
    if kind == 3:
        first, last = pair(top), pair(low)
        if not g('untruncated'): first, last = float(math.floor(first)), float(math.ceil(last))
        first, last = max(first, 0.0), min(last, rd - 1.0)
        if first == last: last += float.fromhex('0x1.0624dd2f1a9fcp-10')
    out = []
    for i in range(rd // 2):
        e, down = power(i, base, rd)
        f = float(e >> 10) * 2.0**-53 * 2.0**-down
        if kind == 1: f = f / factor
        if kind == 2: s = clamp((original * f / two_pi - low) / (top - low))
        if kind == 3: s = clamp(1 - (i - first) / (last - first))
        if kind in (2, 3): f = f * (s + (1 - s) / factor)
        if kind == 4: f = f / float(factors[i])
        if kind == 5: f = (0.0 if 0 < g('rotated') <= 2 * i else f) / factor
        out.append(f)
    a = 1.0
    if kind in (3, 4) and g('attention_factor'): a = g('attention_factor')
    elif kind == 3:
        m, n = g('mscale'), g('mscale_all_dim')
        a = S(m) / S(n) if m and n else S(1)
    elif kind == 4: a = math.sqrt(1 + lg(factor) / lg(original))
    return np.array(out, f64).astype(f32), f32(a)

def rotate(x, table, positions, rd, interleaved):
    """x[..][n][heads][head_dim]; positions[n]."""
    n, x, i = rd // 2, x.copy(), np.arange(rd // 2)
    ia, ib = (2 * i, 2 * i + 1) if interleaved else (i, n + i)
    for r, p in enumerate(positions):
        if p >= 0:
            a, b, c, s = x[r][:, ia], x[r][:, ib], table[p][:n], table[p][n:]
            x[r][:, ia], x[r][:, ib] = clean(fma(-b, s, a * c)), clean(fma(a, s, b * c))
    return x

# ---- 10 and 11. Norms, activations and layers ----------------------------------------------------
def sum16(values):
    lane = [0.0] * 16
    for i, value in enumerate(values): lane[i % 16] += value
    for half in (8, 4, 2, 1):
        for i in range(half): lane[i] += lane[i + half]
    return lane[0]

def norm(x, w, eps, bias=None, centred=False):
    flat = x.reshape(-1, x.shape[-1])
    r, high, low = (np.zeros((len(flat), 1), f32) for _ in range(3))
    n = flat.shape[1]
    for k in range(len(flat)):
        if centred:
            mean = sum16(flat[k].tolist()) / n
            high[k] = mean
            low[k] = mean - float(high[k, 0])
        total = sum16([value * value for value in ((flat[k] - high[k]) - low[k]).tolist()])
        r[k] = 1 / math.sqrt(total / n + float(eps))
    w, bias = f32(1) if w is None else w, f32(0) if bias is None else bias
    return clean(fma(((flat - high) - low) * r, w, bias)).reshape(x.shape)

def exp_parts(x, low):
    t = fma(x, F('0x1.715476p+0'), F('0x1.8000fep+23'))
    n = t - F('0x1.8000fep+23')
    r = fma(n, F('-0x1.62e430p-1'), x) + fma(n, F('0x1.05c610p-29'), low)
    u = fma(F('0x1.6a2cb8p-10'), r, F('0x1.125f5ep-7'))
    v = fma(F('0x1.555940p-5'), r, F('0x1.555430p-3'))
    w = fma(F('0x1.fffffap-2'), r, f32(1))
    return horner(r * r, u, v, w) * r, number(bits(t) << u32(23))

GELU_P = [F(c) for c in '''-0x1.06f104p-17 0x1.de95cap-14 -0x1.37325ap-10 0x1.46d24p-7
          -0x1.105854p-4 0x1.988454p-2'''.split()]
GELU_G = [F(c) for c in '''-0x1.184bc4p-7 0x1.a74636p-6 -0x1.c8303p-7 -0x1.99c4dp-7 -0x1.1fcfdep-5
          0x1.c93ba6p-5 0x1.6cfef6p-3 -0x1.f2d612p-2 0x1.bd2f1ep-2 0x1.0bdb2ep-2'''.split()]
EXP_MIN = F('-0x1.5d589ep+6')

def gelu(x):
    t, z = np.where(x < 0, f32(0) - x, x), x * x
    half = z * f32(-0.5)
    near = fma(x, fma(horner(z, *GELU_P), x, f32(0.5)), f32(0))
    y = horner((t - f32(1)) / (t + f32(2.5)), *GELU_G)
    p, s = exp_parts(half, fma(x, x, f32(0) - z) * f32(-0.5))
    q = np.where(half < EXP_MIN, f32(0), fma(y, p, y) * s)
    return np.where(t < 1, near, np.where(x > 0, x, f32(0)) - q)

def divided(x, v, low):
    p, s = exp_parts(v, low)
    y = np.where(x < 0, fma(x, p, x) * s, x) / (f32(1) + fma(p, s, s))
    return np.where(v < EXP_MIN, np.where(x < 0, f32(0), x), y)

def silu(x): return divided(x, np.where(x < 0, x, f32(0) - x), f32(0))

def gelu_tanh(x):
    t = np.where(x < 0, f32(0) - x, x)
    t = np.where(t > 16, f32(16), t)
    A, B, z = F('0x1.988454p+0'), F('0x1.2444f2p-4'), t * t
    b, u = B * z, A + B * z
    over = u - A
    low = fma(F('0x1.49b16ap-29'), z, fma(B, z, f32(0) - b) + F('-0x1.857936p-25'))
    low = ((A - (u - over)) + (b - over)) + fma(B, fma(t, t, f32(0) - z), low)
    v = t * u
    return divided(x, f32(0) - v, f32(0) - fma(t, low, fma(t, u, f32(0) - v)))

def layer(g, tensor, weight):
    B, rows, d, H, dim = g('batch') or 1, g('rows'), g('d_model'), g('heads'), g('head_dim')
    vdim = g('v_head_dim') or dim
    KV, rd, gate, mem = g('kv_heads') or H, g('rotary_dim') or dim, g('gate'), g('memory')

    def lin(x, t, bias, n_out, n_in):
        w = rounded(weight(t, n_out, n_in), g('storage'))
        return linear(x, w, weight(bias, n_out) if bias == 11 or g('bias') else None, g('storage'))
    x = tensor('x', B, rows, d)
    m, n = (tensor('m', B, mem, d), mem) if mem else (x, rows)
    q = lin(x, 0, 4, H * dim, d).reshape(B, rows, H, dim)
    k = lin(m, 1, 5, KV * dim, d).reshape(B, n, KV, dim)
    values = tensor('memory_v', B, mem, d) if g('memory_v') else m
    v = lin(values, 2, 6, KV * vdim, d).reshape(B, n, KV, vdim)
    eps = f32(g('eps')) or F('0x1.0c6f7ap-20')

    def normed(x, t):
        """Each head by itself, a row as one vector, or each head with its own part of the weights."""
        if not g('norm'): return x
        heads, mode = x.shape[2], g('norm_row')
        flat = x.reshape(B, x.shape[1], -1) if mode == 1 else x
        n = flat.shape[-1] * (heads if mode == 2 else 1)
        both = weight(t, n), weight(t + 4, n) if g('norm_bias') else None
        if mode != 2: return norm(flat, both[0], eps, both[1], g('qk_norm')).reshape(x.shape)
        def of(h): return [None if p is None else p.reshape(heads, -1)[h] for p in both]
        return np.stack([norm(x[:, :, h], of(h)[0], eps, of(h)[1], g('qk_norm')) for h in range(heads)], axis=2)
    def places(b, n):
        if 'rope_pos' in g.map: return [int(p) for p in g.map['rope_pos'].split(',')][b * n:b * n + n]
        return range(-g.of('k_starts', b, 0), n - g.of('k_starts', b, 0))
    def turn(x):
        n, base = x.shape[1], float(g('base'))
        table = rope_table(range(n), rd, base) if base else None
        return np.stack([rotate(e, table, places(b, n), rd, g('interleaved'))
                         for b, e in enumerate(x)]) if base else x
    if g('norm_after_rope'): q, k = normed(turn(q), 8), normed(turn(k), 9)
    else: q, k = turn(normed(q, 8)), turn(normed(k, 9))
    if g('v_norm'): v = norm(v, None, eps)
    if g('factors'):
        factors = np.append(tensor('factors', rows), f32(1))
        at = np.array([[max(p, -1) for p in places(b, rows)] for b in range(B)])
        q = np.where(at[..., None, None] < 0, q, clean(q * factors[at][..., None, None]))
    inner = dict(g.map)
    for name in ('q_lengths', 'k_lengths'):
        if 'lengths' in inner: inner.setdefault(name, inner['lengths'])
    arrays = {'alibi': tensor('alibi', 1, H)} if g('alibi') else {}
    entries = [Entry(q[b], k[b], v[b], type(g)(inner), b, arrays).run() for b in range(B)]
    out, _, p, _ = (np.stack(a) for a in zip(*(e.finish(tensor('sinks', H), 0) for e in entries)))
    row = out.reshape(B, rows, H * vdim)
    if gate:
        row = row * np.repeat(sigmoid(lin(x, 10, 11, gate, d)), H * vdim // gate, axis=2)
    real = np.stack([e.rows for e in entries])[..., None]
    y = np.where(real, lin(row, 3, 7, d, H * vdim), f32(0))
    if not g('mean'): return [y]
    total = p[:, 0]
    for h in range(1, H): total = total + p[:, h]
    return [y, clean(total / f32(H))]

# ---- 15. Linear attention ------------------------------------------------------------------------
def decay(g): return np.where(g > 0, f32(1) / exp(f32(0) - g), exp(g))

def normed(x, eps):
    dim = x.shape[-1]
    return norm(x, np.full(dim, default_scale(dim), f32), eps / f32(dim))

def delta(q, k, v, g, beta, S, add, scale):
    """One entry: q, k [n][heads][head_dim], v [n][heads][v_head_dim], g [n][heads][head_dim or 1], beta [n][heads][1]."""
    out = np.zeros(v.shape, f32)
    for t in range(len(v)):
        S, u, o = decay(g[t])[..., None] * S, out[t], out[t]
        for c in range(S.shape[1]): u = fma(k[t][:, c, None], S[:, c], u)
        d = beta[t] * (v[t] if add else v[t] - u)
        S = clean(fma(k[t][..., None], d[:, None], S))
        for c in range(S.shape[1]): o = fma(q[t][:, c, None], S[:, c], o)
        out[t] = clean(scale * o)
    return out, S

def conv(x, w, bias, state, activate):
    rows, n, width = np.concatenate([state, x]), len(x), w.shape[1]
    y = np.broadcast_to(f32(0) if bias is None else bias, x.shape)
    for j in range(width): y = fma(w[:, j], rows[j:j + n], y)
    return clean(silu(y) if activate else y), rows[n:]
