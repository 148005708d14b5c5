"""bleu.py: how near are translations to those of people? BLEU of a corpus (Papineni et al. 2002), one reference a line.

    python3 bleu.py references.txt translations.txt

Words of up to 4 in a row that both share, as a geometric mean, times a penalty for being too short. Tokens: whatever is
neither letter, digit, space nor apostrophe stands alone ("don't" is one token); upper and lower case differ. No
smoothing. sacrebleu's "13a" splits sentences like ours the same way but for rare marks: BLEU differs by some 0.02."""
import collections
import math
import re
import sys


def tokens(text):
    return re.findall(r"[^\W_]+(?:'[^\W_]+)*'?|'[^\W_]+|[^\w\s]|_", text)


def bleu(references, translations):
    found, there = [0] * 4, [0] * 4                    # n-grams that are in the reference too; all n-grams
    length = wanted = 0
    for reference, translation in zip(references, translations):
        r, t = tokens(reference), tokens(translation)
        length, wanted = length + len(t), wanted + len(r)
        for n in range(1, 5):
            grams = [collections.Counter(tuple(x[i:i + n]) for i in range(len(x) - n + 1)) for x in (r, t)]
            found[n - 1] += sum((grams[0] & grams[1]).values())
            there[n - 1] += sum(grams[1].values())
    if min(found) == 0:
        return 0.0
    mean = sum(math.log(f / t) for f, t in zip(found, there)) / 4
    return 100 * math.exp(mean + min(0.0, 1 - wanted / length))


if __name__ == "__main__":
    usage = "usage: bleu.py references.txt translations.txt, two files of as many lines"
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(usage)
        sys.exit()
    lists = [[line.rstrip("\n") for line in open(name, encoding="utf-8")] for name in sys.argv[1:3]]
    if len(lists) != 2 or len(lists[0]) != len(lists[1]):
        sys.exit(usage)
    same = sum(a == b for a, b in zip(*lists))
    print(f"BLEU {bleu(*lists):.2f}, {same} of {len(lists[0])} letter for letter")
