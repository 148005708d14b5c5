"""Prints the worked traces of tests/SPEC.md, section 13: each step of the vectors `trace` and `trace_layer`.

    python3 trace.py vectors.txt
"""
import sys
import numpy as np
import attn_spec
import cases
from attn_spec import Entry, INF, bits, exp, f32, fold


def words(x): return ' '.join('%08X' % u for u in bits(x).reshape(-1))

def show(name, *values): print('%-12s %s' % (name, '  '.join(words(v) for v in values)))

def attention(g):
    """One row over a few visible keys: scores, then each chunk and its fold, then the results."""
    q, k, v = (g.tensor(name, 1, n, 1, g(dim)) for name, n, dim in
               (('q', 1, 'head_dim'), ('k', g('n_k'), 'head_dim'), ('v', g('n_k'), 'v_head_dim')))
    e = Entry(q[0], k[0], v[0], g, 0, {'mask': g.tensor('mask', 1, 1, 1, g('n_k'))})
    seen = np.flatnonzero(e.visible[0, 0])
    show('q', q)
    show("q'", q * attn_spec.default_scale(g('head_dim')))
    for j in seen:
        show('k, v of %d' % j, k[0, j], v[0, j])
        show('t of %d' % j, e.stage[3][0, 0, j])
    for n in range(2):
        m, l, o, _ = e.chunk(n)
        lane = np.zeros(16, f32)
        for j in seen[seen // 128 == n]:
            p = exp(e.stage[3][0, 0, j] - m[0, 0])
            lane[j % 16] += p
            show('p of %d' % j, p)
        print('%-12s %s' % ('lanes', ', '.join('%d: %s' % (x, words(lane[x])) for x in np.flatnonzero(lane))))
        show('m, l, o of %d' % n, m, l, o)
        T = max(e.state[0][0, 0], m[0, 0])
        show('T, a, b', T, exp(e.state[0] - T), exp(m - T))
        e.state = fold(e.state, e.chunk(n))
        show('M, L, O', *e.state[:3])
    out, lse, _, _ = e.finish(None, 0)
    show('out', out)
    show('lse', lse)

def layer(g):
    """The results of each step, in the order of section 11."""
    names = iter(['q', 'k', 'v', 'norm of q', 'rotated q', 'norm of k', 'rotated k', 'gates', 'sigmoid', 'y'])
    def traced(f):
        def call(*given):
            result = f(*given)
            show(next(names), result)
            return result
        return call
    kept = {name: getattr(attn_spec, name) for name in ('linear', 'norm', 'rotate', 'sigmoid')}
    run = Entry.finish
    def finish(self, sinks, stage):
        result = run(self, sinks, stage)
        show('attention', result[0])
        return result
    for name, f in kept.items(): setattr(attn_spec, name, traced(f))
    Entry.finish = finish
    show('x', g.tensor('x', 1, g('rows'), g('d_model')))
    cases.compute('layer', g)
    Entry.finish = run
    for name, f in kept.items(): setattr(attn_spec, name, f)

for line in open(sys.argv[1]):
    word = line.split()
    trace = {'trace': attention, 'trace_layer': layer}.get(word[1])
    if not trace: continue
    print('%s: %s' % (word[1], ' '.join(word[2:-1])))
    trace(cases.Case(w.split('=') for w in word[3:-1]))
