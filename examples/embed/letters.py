#!/usr/bin/env python3
"""Writes letters.h: how BERT's uncased rules convert every character of Unicode, from Python's own tables.

    python3 examples/embed/letters.py > examples/embed/letters.h

Nothing else needs Python. The rules are those of Hugging Face's fast tokenizers: control characters, format characters
and private ones are dropped (unassigned ones are not); then NFD without nonspacing marks; then lower case, each
character by itself (so a capital sigma at the end of a word becomes the sigma of the middle)."""
import unicodedata as u

HANGUL = range(0xAC00, 0xAC00 + 11172)                  # embed.c decomposes these by arithmetic
IDEOGRAPHS = range(0xF900, 0xFADA), range(0x2F800, 0x2FA1E)     # for compatibility: each becomes another one, in no order


def dropped(c):
    return c in (0, 0xFFFD) or u.category(chr(c)) in ("Cc", "Cf", "Co", "Mn") and chr(c) not in "\t\n\r"


def folded(c):
    return [ord(y) for x in u.normalize("NFD", chr(c)) if u.category(x) != "Mn" for y in x.lower()]


def ranges(numbers):
    found = []
    for c in numbers:
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def target(run, c):
    """What c becomes if it belongs to this run."""
    first, _, to, step = run
    return to + (c - first if step == 1 else (c - first) // 2 * 2 if step == 2 else 0)


def runs(pairs):
    """[first, last, target of the first, step]; step 0: all become the same, 1: consecutive ones, 2: pairs of capital
    and small letter, of which the capital alone is meant. The longest run first."""
    found, at = [], 0
    pairs = sorted(pairs.items())
    table = dict(pairs)
    while at < len(pairs):
        best, c = None, pairs[at][0]
        for step in (0, 1, 2):
            run, n = [c, c, pairs[at][1], step], 1
            while True:
                d = run[1] + 1
                if step == 2 and (d - c) % 2:
                    if d in table or d + 1 not in table or d != target(run, d - 1):
                        break
                    d += 1
                if table.get(d) != target(run, d):
                    break
                run[1], n = d, n + 1
            if best is None or n > best[1]:
                best = run, n
        found.append(best[0])
        at += best[1]
    return found


def number(x):
    return "0x%X" % x if x > 9 else "%d" % x


def show(name, kind, rows):
    line, lines = "", []
    for row in rows:
        text = "{" + ",".join(map(number, row)) + "}," if isinstance(row, list) else number(row) + ","
        if len(line) + len(text) > 116:
            lines.append(line)
            line = ""
        line += text
    print("static const %s = {" % (kind % name))
    for line in lines + [line]:
        print("    " + line)
    print("};")


every = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
one, more = {}, []
for c in every:
    f = folded(c)
    if dropped(c) or c in HANGUL or c in IDEOGRAPHS[0] or c in IDEOGRAPHS[1] or f == [c] or not f:
        continue
    if len(f) == 1:
        one[c] = f[0]
    else:
        more.append([c] + f + [0] * (3 - len(f)))

print("""/* letters.h: made by letters.py from Unicode %s: how BERT's uncased rules convert a character. All ranges are
   sorted; other characters stay unchanged, except Hangul syllables, which embed.c decomposes by arithmetic. */""" %
      u.unidata_version)
print("\n/* {first, last}: control, format and private characters, and marks that take no space: dropped */")
show("letters_dropped[][2]", "unsigned %s", ranges([c for c in every if dropped(c)]))
print("\n/* {first, last}: each of these is a word by itself */")
show("letters_punctuation[][2]", "unsigned %s",
     ranges([c for c in every if u.category(chr(c))[0] == "P" or 33 <= c < 127 and not chr(c).isalnum()]))
print("""
/* {first, last, target, step}: capital letters and letters with accents. 0: all become the target; 1: successive
   characters become successive letters; 2: as 1, for every second character */""")
show("letters_folded[][4]", "unsigned %s", runs(one))
for r in IDEOGRAPHS:
    print("\n/* ideographs for compatibility, from U+%X on */" % r[0])
    show("letters_%x[]" % r[0], "unsigned %s", [(folded(c) or [c])[0] for c in r])
print("\n/* {character, two or three that it becomes}: several even without accents */")
show("letters_apart[][4]", "unsigned %s", more)
