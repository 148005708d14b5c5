"""Looks at attention: prints the masks, checks attn.h against NumPy in double, draws what each word looks at.

    python3 examples/python/look.py [picture.png]       (wants NumPy; the picture wants matplotlib)
"""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import attn

# ---- 1. the three masks of a translation model ----
german = ["Der", "Hund", "läuft", "<pad>"]
english = ["The", "dog", "runs"]
ids = [[7, 8, 9, 0]]                                        # 0 is the padding

print("The encoder hides the padding:")
attn.show(attn.padding(ids, 0)[0], german, german)
print("\nThe decoder hides words that do not exist yet:")
attn.show(attn.causal(3), english, english)
print("\nCross-attention hides the padding of the source, and nothing else:")
attn.show(attn.cross(ids, 0, 3)[0], english, german)


# ---- 2. attention in double, as in a textbook ----
def textbook(q, k, v, mask):
    """[batch][row][head][x]; mask is added, and leaves every row something to look at."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    s = np.einsum("bihc,bjhc->bhij", q, k) / np.sqrt(q.shape[3]) + mask
    p = np.exp(s - s.max(axis=3, keepdims=True))
    p /= p.sum(axis=3, keepdims=True)
    return np.einsum("bhij,bjhx->bihx", p, v)


random = np.random.default_rng(1)
worst = 0.0
for case in range(50):
    batch, n, kv_heads, group, dim = (int(random.integers(1, top)) for top in (4, 200, 3, 4, 80))
    q = random.standard_normal((batch, n, kv_heads * group, dim)).astype(np.float32)
    k, v = (random.standard_normal((batch, n, kv_heads, dim)).astype(np.float32) for _ in range(2))
    left = int(random.integers(1, n + 1))
    by_words = attn.sdpa(q, k, v, causal=True, window=left)
    by_matrix = attn.sdpa(q, k, v, mask=attn.window(n, n, left, 1))
    assert np.array_equal(by_words, by_matrix), "a mask as words and as a matrix: the same bits"
    worst = max(worst, np.abs(by_words - textbook(q, k, v, attn.window(n, n, left, 1))).max())
print("\n50 random calls against NumPy in double: the largest difference is %s" % ("below 1e-6" if worst < 1e-6 else worst))

# ---- 3. what each word looks at ----
words = "the dog saw the cat and the cat saw the dog".split()
meaning = {w: random.standard_normal(16) for w in sorted(set(words))}
x = np.array([meaning[w] for w in words], np.float32)       # the same word, the same numbers
out, weights = attn.sdpa(x, x, x, causal=True, scale=0.15, weights=True)
print("\nEvery word looks at its like, and never ahead:")
attn.show(weights, words, words)
if len(sys.argv) > 1:
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not here")
    else:
        matplotlib.use("Agg")
        from matplotlib import pyplot
        figure, axes = pyplot.subplots(figsize=(5, 4.5))
        shown = axes.imshow(np.where(np.triu(np.ones_like(weights), 1) > 0, np.nan, weights), cmap="Blues", vmin=0)
        axes.set_xticks(range(len(words)), words, rotation=60)
        axes.set_yticks(range(len(words)), words)
        figure.colorbar(shown, label="weight")
        figure.tight_layout()
        figure.savefig(sys.argv[1], dpi=120)
        print("drawn: %s" % sys.argv[1])
sys.exit(0 if worst < 1e-5 else 1)
