#!/usr/bin/env python3
"""An independent reading of BERT's uncased rules, to hold examples/embed/wordpiece.h to; models.sh calls it.

    python3 wordpiece.py unicode letters.h          ends with 0 if Python's Unicode is that of letters.h
    python3 wordpiece.py draw all|words folder [vocab.txt]
                                                    writes folder/texts.txt; all: every character there is, and a
                                                    folder/vocab.txt in which each is a piece, so that none hides in [UNK]
    python3 wordpiece.py read vocab.txt texts.txt   token numbers, a line for each line

Whole strings here, one character after the other there; nothing is shared but unicodedata, from which letters.py also
makes its tables."""
import random
import sys
import unicodedata as u

CJK = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
       (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


def blank(c):
    return c in " \t\n\r" or u.category(c) in ("Zs", "Zl", "Zp")


def punctuation(c):
    return 33 <= ord(c) <= 47 or 58 <= ord(c) <= 64 or 91 <= ord(c) <= 96 or 123 <= ord(c) <= 126 or \
        u.category(c).startswith("P")


def words(text):
    text = "".join(" " if blank(c) else c for c in text
                   if c in "\t\n\r" or c not in "\0\ufffd" and u.category(c) not in ("Cc", "Cf", "Co"))
    text = "".join(" %s " % c if any(a <= ord(c) <= b for a, b in CJK) else c for c in text)
    text = "".join(c for c in u.normalize("NFD", text) if u.category(c) != "Mn")
    text = "".join(c.lower() for c in text)
    return "".join(" %s " % c if punctuation(c) else c for c in text).split(" ")


def pieces(word, vocabulary):
    found, at = [], 0
    if len(word) > 100:
        return [vocabulary["[UNK]"]]
    while at < len(word):
        for to in range(len(word), at, -1):
            piece = ("##" if at else "") + word[at:to]
            if piece in vocabulary:
                break
        else:
            return [vocabulary["[UNK]"]]
        found.append(vocabulary[piece])
        at = to
    return found


def read(vocab, texts):
    with open(vocab, encoding="utf-8", newline="\n") as f:
        vocabulary = {line.rstrip("\n"): i for i, line in enumerate(f)}
    with open(texts, "rb") as f:
        for line in f.read().split(b"\n")[:-1]:
            ids = [vocabulary["[CLS]"]]
            for word in words(line.decode("utf-8", "replace")):
                ids += pieces(word, vocabulary)
            print(*ids, vocabulary["[SEP]"])


def draw_all(folder):
    every = [chr(c) for c in range(0x110000) if u.category(chr(c)) not in ("Cs", "Cn", "Co") or c % 997 == 0]
    every = [c for c in every if u.category(c) != "Cs" and c not in "\n"]
    with open(folder + "/vocab.txt", "w", encoding="utf-8", newline="\n") as f:
        f.write("[PAD]\n[UNK]\n[CLS]\n[SEP]\n")
        for c in every:
            if not blank(c) and c != "\r":
                f.write("%s\n##%s\n" % (c, c))
    with open(folder + "/texts.txt", "w", encoding="utf-8", newline="\n") as f:
        for i in range(0, len(every), 40):
            f.write(" ".join("x%sz" % c for c in every[i:i + 40]) + "\n")


def draw_words(folder, vocab):
    draw = random.Random(20261122)
    with open(vocab, encoding="utf-8") as f:
        known = [line.strip().lstrip("#") for line in f]
    known = [w for w in known if w and not w.startswith("[")]
    odd = ["\u0301", "\u200b", "\u00ad", "\u3000", "\u2028", "\ufeff", "İ", "ΣΑΣ", "ẞ", "ﬁ", "한국어", "日本", "が", "ガ",
           "¿qué?", "naïve", "Ǆ", "ᾳ", "\x00", "\x1f", "\x7f", "\u0085", "🙂", "👩\u200d👩", "…", "—", "“", "$", "^", "±", "½",
           "a" * 100, "a" * 101, "é" * 100, "é" * 101, "\U0001d165\u0301", "ـ", "שָׁלוֹם", "हिन्दी", "ไทย", "豈", "\ufffd", "ₐ", "Å"]
    with open(folder + "/texts.txt", "wb") as f:
        for i in range(4000):
            line = ""
            for _ in range(draw.randrange(30)):
                x = draw.choice(odd) if draw.random() < 0.25 else draw.choice(known)
                x = draw.choice((x, x, x.upper(), x.title(), u.normalize("NFD", x), x[::-1]))
                line += x + draw.choice((" ", " ", " ", "", "\t", "-", ", "))
            line = line.replace("\n", " ").replace("\r", " ").encode("utf-8")
            if i % 10 == 0:                              # bytes that are no UTF-8
                at = draw.randrange(len(line) + 1)
                line = line[:at] + bytes([draw.choice((0x80, 0xBF, 0xC0, 0xC1, 0xF5, 0xFF))]) + line[at:]
            f.write(line + b"\n")


if sys.argv[1] == "unicode":
    with open(sys.argv[2]) as f:
        there = "Unicode %s:" % u.unidata_version in f.read(400)
    print("Python has Unicode", u.unidata_version)
    sys.exit(not there)
if sys.argv[1] == "draw":
    draw_all(sys.argv[3]) if sys.argv[2] == "all" else draw_words(sys.argv[3], sys.argv[4])
else:
    read(sys.argv[2], sys.argv[3])
