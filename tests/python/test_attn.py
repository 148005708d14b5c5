"""examples/python/attn.py against NumPy in double, and what it refuses. Each check names the mistake it would catch.

    python3 tests/python/test_attn.py [seed]            last line: "N passed, M failed"
"""
import os
import sys
import types

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
import attn

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
random = np.random.default_rng(seed)
passed = failed = 0
INF = np.float32(np.inf)


def check(name, good, more=""):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print("FAIL %s %s (seed %d)" % (name, more, seed))


def refused(name, words, call, *arguments, **more):
    try:
        call(*arguments, **more)
    except attn.Error as e:
        check(name, all(w in str(e) for w in words), 'says: "%s"' % e)
    else:
        check(name, False, "is accepted")


def same(a, b):
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def floats(*shape):
    return random.standard_normal(shape).astype(np.float32)


def oracle(q, k, v, visible, added, scale, sinks=None):
    """Written for this test: [batch][head][row] one by one, hidden keys left out by indexing."""
    batch, n_q, heads, dim = q.shape
    group = heads // k.shape[2]
    out, weights, lse = np.zeros((batch, n_q, heads, v.shape[3])), np.zeros((batch, heads, n_q, k.shape[1])), \
        np.full((batch, heads, n_q), -np.inf)
    for b, h, i in np.ndindex(batch, heads, n_q):
        seen = np.nonzero(visible[b, h, i])[0]
        if seen.size == 0:
            continue
        s = scale * (k[b, seen, h // group].astype(float) @ q[b, i, h].astype(float)) + added[b, h, i, seen]
        e = np.exp(s)
        total = e.sum() + (np.exp(sinks[h]) if sinks is not None else 0)
        weights[b, h, i, seen] = e / total
        out[b, i, h] = weights[b, h, i, seen] @ v[b, seen, h // group].astype(float)
        lse[b, h, i] = np.log(total)
    return out, weights, lse


def near(a, b, bound=2e-5):
    return a.shape == b.shape and np.array_equal(np.isinf(a), np.isinf(b)) and \
        np.all(np.abs(np.where(np.isinf(a), 0, a - np.where(np.isinf(b), 0, b))) <= bound)


# ---- every option against the definition --------------------------------------------------------------------------------
for case in range(120):
    batch, n_q, n_k, kv_heads, group, dim, v_dim = (int(random.integers(1, t)) for t in (4, 9, 150, 3, 4, 40, 20))
    heads, rng = kv_heads * group, lambda: int(random.integers(0, 2))
    q, k, v = floats(batch, n_q, heads, dim), floats(batch, n_k, kv_heads, dim), floats(batch, n_k, kv_heads, v_dim)
    visible, added, more = np.ones((batch, heads, n_q, n_k), bool), np.zeros((batch, heads, n_q, n_k)), {}
    i, j = np.arange(n_q)[:, None], np.arange(n_k)
    end = np.full(batch, n_k)
    if rng():
        end = random.integers(0, n_k + 1, batch)
        more["lengths"] = end
    pos = np.zeros(batch, int)
    align = [False, "top_left", "bottom_right"][int(random.integers(0, 3))]
    if align == "bottom_right":
        pos = end - n_q
    for b in range(batch):
        at = i + pos[b]
        visible[b] &= j < end[b]
        if align:
            visible[b] &= j <= at
            if case % 3 == 0:
                left = 1 + case % 7
                visible[b] &= j > at - left
                more["window"] = left
    more["causal"] = align
    if rng():
        shape = [int(random.integers(0, 2)) and full or 1 for full in (batch, heads, n_q)] + [n_k]
        if rng():
            m = random.random(shape) < 0.7
            visible &= m
        else:
            m = np.where(random.random(shape) < 0.7, floats(*shape), -INF).astype(np.float32)
            visible &= ~np.isinf(m)
            added += np.where(np.isinf(m), 0, m)
        while m.shape[0] == 1 and m.ndim > 2 and rng():
            m = m[0]
        more["mask"] = m
    if rng():
        more["bias"] = bias = floats(heads, n_q, n_k)
        added += bias
    if rng():
        extent = int(random.integers(0, 60))
        more["rel_bias"] = rel = floats(heads, 2 * extent + 1)
        for b in range(batch):
            added[b] += rel[:, np.clip(j - (i + pos[b]), -extent, extent) + extent]
    if rng():
        more["sinks"] = floats(heads)
    if rng():
        more["scale"] = 0.25
    want = oracle(q, k, v, visible, added, more.get("scale", dim ** -0.5), more.get("sinks"))
    if rng():                                               # one of the layouts, and no array in its natural order
        more["layout"] = "bhsd"
        q, k, v = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v))
        want = (want[0].transpose(0, 2, 1, 3),) + want[1:]
    got = attn.sdpa(q, k, v, weights=True, lse=True, **more)
    check("options", all(near(a, b) for a, b in zip(got, want)), "case %d: %s" % (case, sorted(more)))
    alone = attn.sdpa(q, k, v, threads=1 + case % 3, **more)
    check("asking for weights or threads changes a bit", same(alone, got[0]), "case %d" % case)

# ---- arrays -------------------------------------------------------------------------------------------------------------
qkv = floats(2, 5, 3, 4, 8)                                 # packed, as a projection gives it
q, k, v = (qkv[:, :, x] for x in range(3))
want = attn.sdpa(*(x.copy() for x in (q, k, v)))
check("columns of a packed array are read where they are", attn._rows(q)[0] is q and same(attn.sdpa(q, k, v), want))
turned = [np.ascontiguousarray(x[..., ::-1])[..., ::-1] for x in (q, k, v)]
check("components backwards are copied", same(attn.sdpa(*turned), want))
one = floats(1, 5, 4, 8)
check("an entry that is broadcast is not a batch of one",
      same(attn.sdpa(q, np.broadcast_to(one, q.shape), v), attn.sdpa(q, np.repeat(one, 2, axis=0), v)))
check("entries can share K and V", same(attn.sdpa(q, one, one, k_map=[0, 0]), attn.sdpa(q, *[np.repeat(one, 2, axis=0)] * 2)))
mask = np.where(random.random((5, 5)) < 0.8, 0, -INF).astype(np.float32)
check("a broadcast mask is the mask", same(attn.sdpa(q, k, v, mask=np.broadcast_to(mask, (2, 4, 5, 5))), attn.sdpa(q, k, v, mask=mask)))
check("bool: True = attend", same(attn.sdpa(q, k, v, mask=mask == 0), attn.sdpa(q, k, v, mask=mask)))
check("a transposed mask is not its transpose", same(attn.sdpa(q, k, v, mask=mask.T), attn.sdpa(q, k, v, mask=mask.T.copy())))
flat = [x[0, :, 0] for x in (q, k, v)]
out, weights, lse = attn.sdpa(*flat, causal=True, weights=True, lse=True)
check("rows of one head", same(out, attn.sdpa(*(x[None, :, None] for x in flat), causal=True)[0, :, 0])
      and weights.shape == (5, 5) and lse.shape == (5,))
some = attn.sdpa(q, k, v, causal=True, weights=[q.shape[2] - 1])
check("weights of one head", same(some[1][:, 0], attn.sdpa(q, k, v, causal=True, weights=True)[1][:, -1]) and
      same(some[0], attn.sdpa(q, k, v, causal=True)))
check("no rows, no keys", attn.sdpa(floats(1, 0, 1, 4), floats(1, 3, 1, 4), floats(1, 3, 1, 4)).shape == (1, 0, 1, 4)
      and not attn.sdpa(floats(1, 2, 1, 4), floats(1, 0, 1, 4), floats(1, 0, 1, 4)).any())
poison = k.copy()
poison[:, 3:] = np.nan
check("what is hidden cannot reach the result", same(attn.sdpa(q, poison, v, lengths=[3, 3]), attn.sdpa(q, k, v, lengths=[3, 3])))
check("padded rows are zeros", not attn.sdpa(q, k, v, q_lengths=[5, 2])[1, 2:].any())
check("all backends give the bits of the best one, or say that they have their own",
      all(same(attn.sdpa(q, k, v, backend=b), want) or b == "sse2" for b in attn.backends()) and "scalar" in attn.backends())


class Tensor:                                               # what attn.py needs of a torch tensor on the CPU
    def __init__(self, array): self.array = array
    def detach(self): return self
    def numpy(self): return self.array


sys.modules.setdefault("torch", types.SimpleNamespace(from_numpy=Tensor))
if sys.modules["torch"].from_numpy is Tensor:
    got = attn.sdpa(Tensor(q), Tensor(k), Tensor(v), weights=True)
    check("tensors are answered with tensors", all(isinstance(x, Tensor) for x in got) and same(got[0].array, want))

# ---- caches -------------------------------------------------------------------------------------------------------------
for storage, v_dim in (("f32", 8), ("f32", 5), ("f16", 8), ("bf16", 11)):
    keys, values, rows = floats(3, 200, 2, 8), floats(3, 200, 2, v_dim), floats(3, 200, 4, 8)
    cache = attn.Cache(3, 2, 8, 200, v_head_dim=v_dim, storage=storage)
    cache.append(keys[:, :150], values[:, :150])
    stored = [cache.read(b, 0, 150) for b in range(3)]
    if storage == "f32":
        check("rows come back", all(same(stored[b][0], keys[b, :150]) and same(stored[b][1], values[b, :150]) for b in range(3)))
    K, V = (np.stack([s[x] for s in stored]) for x in range(2))
    check("a cache has the bits of rows", same(attn.sdpa(rows[:, :4], kv=cache, causal=True),
                                               attn.sdpa(rows[:, :4], K, V, causal="bottom_right")))
    cache.append(keys[0, 150:152], values[0, 150:152], entry=0)
    cache.append(keys[2, 150:151], values[2, 150:151], entry=2)
    check("one entry", list(cache.lengths) == [152, 150, 151])
    if storage == "f32":
        check("rows of one entry", same(cache.read(2, 150, 1)[0], keys[2, 150:151]) and same(cache.read(0, 151, 1)[1], values[0, 151:152]))
    saved = [cache.save(b) for b in range(3)]
    answer = attn.sdpa(rows[:, :1], kv=cache)
    cache.reorder([2, 2, 0])
    check("reorder", same(attn.sdpa(rows[[2, 2, 0], :1], kv=cache), answer[[2, 2, 0]]))
    other = attn.Cache(3, 2, 8, 300, v_head_dim=v_dim, storage=storage)
    for b in range(3):
        other.load(b, saved[b])
    check("save and load", same(attn.sdpa(rows[:, :1], kv=other), answer) and [other.save(b) for b in range(3)] == saved)
    damaged = bytearray(saved[0])
    damaged[50] ^= 1
    refused("damaged bytes", ["Cache.load", "saved entry"], other.load, 0, bytes(damaged))
    check("a refused load changes nothing", same(attn.sdpa(rows[:, :1], kv=other), answer))
    other.copy(1, 0, 100)
    other.truncate(2, 100)
    check("copy and truncate", list(other.lengths) == [152, 100, 100] and same(other.read(1, 0, 100)[0], other.read(0, 0, 100)[0]))
    check("some entries, by a map", same(attn.sdpa(rows[:2, :1], kv=other, k_map=[0, 0], mask=np.ones((1, 160), bool)),
                                         attn.sdpa(rows[:2, :1], kv=other, k_map=[0, 0])))
    other.forget(0, 0, 130)
    check("forget", list(other.lengths) == [152, 100, 100])
    refused("a forgotten key is read", ["Cache.read", "range"], other.read, 0, 0, 10)
    refused("a cache that is full", ["201 more", "[152, 100, 100]", "capacity is 300"], other.append, *[floats(3, 201, 2, d) for d in (8, v_dim)])
    check("a refused append changes nothing", list(other.lengths) == [152, 100, 100])

# ---- masks --------------------------------------------------------------------------------------------------------------
n, m = 5, 7
i, j = np.arange(n)[:, None], np.arange(m)
hide = lambda good: np.where(good, 0, -INF).astype(np.float32)
ids = random.integers(0, 3, (3, m))
check("causal", same(attn.causal(n, m, 2), hide(j <= i + 2)) and same(attn.causal(3), attn.causal(3, 3, 0)))
check("window", same(attn.window(n, m, 2, 1, 1), hide((j > i + 1 - 2) & (j < i + 1 + 1))))
check("padding", same(attn.padding(ids, 0), hide(np.broadcast_to(ids[:, None] != 0, (3, m, m)))))
check("cross", same(attn.cross(ids, 0, n), hide(np.broadcast_to(ids[:, None] != 0, (3, n, m)))))
check("lengths", same(attn.lengths([0, 3, 7], n, m), hide(np.broadcast_to(j < np.array([0, 3, 7])[:, None, None], (3, n, m)))))
a, b = attn.causal(n, m), attn.cross(ids, 0, n)
both = hide(np.isfinite(a) & np.isfinite(b))
check("merge", same(attn.merge(a, b), both) and same(attn.merge(b, a), both) and same(a, attn.causal(n, m)))
check("text", attn.text(attn.causal(2), ["a", "ä"], ["b", "c"]) == "     b    c\na    0 -inf\nä    0    0\n")

# ---- what is refused, and with which words ------------------------------------------------------------------------------
refused("float64", ["q is float64", "q.astype(np.float32)"], attn.sdpa, q.astype(float), k, v)
refused("k of another type", ["k is int64"], attn.sdpa, q, k.astype(np.int64), v)
refused("a list", ["q is a list", "np.array(q, np.float32)"], attn.sdpa, q.tolist(), k, v)
refused("three axes", ["q has 3 axes", "4 or 2"], attn.sdpa, q[0], k[0], v[0])
refused("k of two axes", ["k has 4 axes", "must have 2"], attn.sdpa, flat[0], k, v)
refused("other rows of v", ["k and v do not have the same"], attn.sdpa, q, k, v[:, :3])
refused("other width of k", ["heads of 8 but k of 7"], attn.sdpa, q, k[..., :7], v)
refused("heads", ["3 heads of k do not divide 4"], attn.sdpa, q, k[:, :, :3], v[:, :, :3])
refused("another batch", ["2 entries but k 1", "k_map"], attn.sdpa, q, k[:1], v[:1])
refused("causal that can mean two masks", ["top_left", "bottom_right", "2 rows and 5 keys"], attn.sdpa, q[:, :2], k, v, causal=True)
refused("causal of another word", ["'bottom' but must be"], attn.sdpa, q, k, v, causal="bottom")
refused("a mask of ints", ["mask is int64", "or bool"], attn.sdpa, q, k, v, mask=np.ones((5, 5), np.int64))
refused("a bias of bools", ["bias is bool"], attn.sdpa, q, k, v, bias=np.ones((5, 5), bool))
refused("a mask with too few columns", ["mask has 4 columns but there are 5 keys"], attn.sdpa, q, k, v, mask=mask[:, :4])
refused("a mask of another batch", ["mask has the shape (3, 1, 5, 5)", "[batch 2]"], attn.sdpa, q, k, v, mask=np.zeros((3, 1, 5, 5), np.float32))
refused("lengths of another batch", ["lengths has the shape (3,)"], attn.sdpa, q, k, v, lengths=[1, 2, 3])
refused("lengths as floats", ["lengths is float64"], attn.sdpa, q, k, v, lengths=[1.0, 2.0])
refused("a length that is no int", ["no int"], attn.sdpa, q, k, v, lengths=[2**32 + 3, 3])
refused("a length beyond the keys: the sentence of attn.h", ["k_lengths[1] is 6 but n_k is 5"], attn.sdpa, q, k, v, lengths=[5, 6])
refused("rel_bias of an even width", ["rel_bias is [4][6] but must be [heads 4][2*extent + 1]"], attn.sdpa, q, k, v,
        rel_bias=floats(4, 6))
refused("sinks of another number of heads", ["sinks has 3 numbers but there are 4 heads"], attn.sdpa, q, k, v, sinks=floats(3))
refused("scale 0", ["scale is 0"], attn.sdpa, q, k, v, scale=0)
refused("neither keys nor cache", ["k and v, or kv"], attn.sdpa, q)
refused("k without v", ["k and v, or kv"], attn.sdpa, q, k)
refused("keys and cache", ["not both"], attn.sdpa, q, k, v, kv=attn.Cache(2, 4, 8, 5))
refused("kv of another class", ["no attn.Cache"], attn.sdpa, q, kv=k)
refused("a cache of other heads", ["4 heads of 8 but the cache 3 of 8"], attn.sdpa, q, kv=attn.Cache(2, 3, 8, 5))
refused("a cache of another batch", ["2 entries but the cache 1"], attn.sdpa, q, kv=attn.Cache(1, 4, 8, 5))
refused("a layout of another word", ["bshd"], attn.sdpa, q, k, v, layout="sbhd")
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "..", "..", "attn.h"), encoding="utf-8") as header:
    enum = header.read().split("typedef enum attn_backend {")[1].split("}")[0]
enum = [word.strip()[len("ATTN_"):].lower() for word in enum.split(",")]
check("the backends are those of the enum", attn._backend_names() == enum and len(enum) > 8, str(enum))
for name in enum[1:]:
    if name not in attn.backends():
        refused("a backend that does not run here", ["backend " + name, "is not usable on this machine"], attn.sdpa, q, k, v, backend=name)
refused("a backend of another word", ["backend is 'mmx'", "scalar"], attn.sdpa, q, k, v, backend="mmx")
refused("a cache of size 0", ["capacity=0", "out of range"], attn.Cache, 1, 1, 8, 0)
refused("a storage of another word", ["storage is 'int4'"], attn.Cache, 1, 1, 8, 8, storage="int4")
refused("an append of other heads", ["k has the shape (1, 2, 3, 8)", "(1, 2, 1, 8)"], attn.Cache(1, 1, 8, 9).append, *[floats(1, 2, 3, 8)] * 2)
refused("an append to no entry", ["Cache.append", "an entry of a batch or cache, or a number in a map"], attn.Cache(1, 1, 8, 9).append, *[floats(2, 1, 8)] * 2, 4)
refused("an entry that is not there", ["no entry 4"], attn.Cache(1, 1, 8, 9).save, 4)
refused("a map beyond the batch", ["Cache.reorder", "an entry of a batch or cache, or a number in a map"], attn.Cache(2, 1, 8, 9).reorder, [0, 2])
refused("ids of one axis", ["ids must be [batch][n]"], attn.padding, [1, 2, 0], 0)
refused("masks of other sizes", ["do not go together"], attn.merge, attn.causal(3), attn.causal(4))
refused("names that are too few", ["3 rows but 2 names"], attn.text, attn.causal(3), ["a", "b"])
refused("a mask with a negative size", ["negative"], attn.causal, -1)

print("%d passed, %d failed" % (passed, failed))
sys.exit(1 if failed else 0)
