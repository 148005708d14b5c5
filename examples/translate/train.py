"""train.py: German to English, a transformer small enough to be watched. Writes the file that translate.c reads.

    python3 train.py deu.txt german-english.bin          a GPU where there is one; torch 1.13 or later
    python3 train.py deu.txt --split folder              only the held-out sentences: test.de, test.en, dev.de, dev.en

deu.txt has a header and then lines "English<tab>German". The model is the usual one (Vaswani et al. 2017) as it is
built today: norms before each layer and without a mean (RMS), rotated queries and keys (RoPE) instead of added
positions, no biases, one table of pieces for what is read, what is written and the last layer.
"""
import argparse
import collections
import math
import os
import random
import re
import struct
import time

import torch
import torch.nn.functional as F
from torch import nn

from bleu import bleu

PAD, BEGIN, END, BYTES = 0, 1, 2, 3                  # pieces 3 to 258 are the bytes; behind them, two pieces joined
MOST = 128                                           # pieces of a sentence

NOTICE = ("Weights trained on sentences of the Tatoeba project (https://tatoeba.org), CC-BY 2.0 FR, in the selection "
          "of manythings.org/anki. German to English, for attn.h's examples/translate; made by train.py there.\n")


# ---- data ------------------------------------------------------------------------------------------------------------
def read_pairs(path):
    """(German, English) pairs: the rest to learn from, 500 to choose by, 500 to test. No sentence of either language is
    in two parts, also not with other punctuation or capitals."""
    lines = open(path, encoding="utf-8").read().split("\n")[1:]
    pairs = sorted({(g.strip(), e.strip()) for e, g in (line.split("\t")[:2] for line in lines if "\t" in line)})
    plain = [tuple(re.sub(r"\W+", " ", side).lower().strip() for side in pair) for pair in pairs]
    order = list(range(len(pairs)))
    random.Random(15).shuffle(order)
    held, seen = [], set()
    for i in order:
        if len(held) < 1000 and (0, plain[i][0]) not in seen and (1, plain[i][1]) not in seen:
            held.append(i)
            seen.update([(0, plain[i][0]), (1, plain[i][1])])
    rest = [pairs[i] for i in sorted(order) if (0, plain[i][0]) not in seen and (1, plain[i][1]) not in seen]
    return rest, [pairs[i] for i in held[500:]], [pairs[i] for i in held[:500]]


# Nearly every name in the data is Tom or Mary. Other names in their place teach the model to copy what it has never
# seen: half of them real, half made up by a chain of letters that has learned from the real ones.
NAMES = """\
Adam Agnes Ahmed Aisha Alba Albert Alexander Alice Amelie Amir Andrea Andreas Angela Anja Anna Anton Arthur Astrid
August Barbara Bastian Beate Ben Bernd Bianca Birgit Björn Boris Brian Bruno Camille Carl Carlos Carmen Caroline
Chiara Chloe Christian Christina Clara Claudia Conrad Daniel Dario David Deniz Diana Diego Dieter Dirk Dmitri Doris
Eduard Elena Elias Elif Elisabeth Ella Elsa Emil Emily Erik Ernst Esra Esther Eva Fabian Felix Ferdinand Finn Florian
Frank Franz Frida Friedrich Gabriel Georg Gerda Giovanni Gisela Gregor Greta Guido Gustav Hakan Hannah Hans Harald
Harry Hassan Heidi Heinrich Helena Helga Henrik Holger Ida Igor Ilse Ines Ingrid Irina Isabel Ivan Jack Jakob James
Jan Jana Jens Joachim Johann Jonas José Josef Julia Julian Kai Karin Karl Katharina Kemal Kenji Kevin Klara Klaus
Konrad Kurt Lars Laura Lea Leila Lena Leo Leonie Levi Lina Linda Lisa Lotte Louis Ludwig Lukas Magda Manuel Marco
Margarete Marie Mario Markus Marlene Marta Martin Mateo Mathilda Max Mehmet Mia Michael Mila Mohammed Monika Moritz
Nadia Naomi Natalie Nele Nico Nina Nora Norbert Olaf Olga Oliver Olivia Omar Otto Pablo Patrick Paul Paula Pavel Pedro
Peter Petra Philipp Pia Rachel Rainer Ralf Rebecca Regina Renate Richard Robert Roland Rosa Ruth Samuel Sandra Sara
Sebastian Selma Sergej Silke Simon Sofia Stefan Stella Susanne Sven Tanja Tarek Thea Theo Theresa Thomas Till Tobias
Udo Ulrike Ursula Valentin Vera Veronika Viktor Vincent Walter Werner Wilhelm Wolfgang Xaver Yasmin Yuki Yusuf
""".split()
NEVER = "Luke Emma Jürgen Aylin Miguel Priya Oskar Zoë Kasimir Hedwig Noah Bartholomäus".split()     # kept for tests


def chain_of(names):
    follow = collections.defaultdict(list)
    for name in names:
        letters = "^^" + name + "$"
        for i in range(2, len(letters)):
            follow[letters[i - 2:i]].append(letters[i])
    return follow


def new_name(rng, follow):
    while True:
        name = "" if rng.random() < 0.5 else rng.choice(NAMES)
        while not name or (name[-1] != "$" and len(name) < 12 and name not in NAMES):
            name += rng.choice(follow[("^^" + name)[-2:]])
        name = name.rstrip("$")
        if len(name) > 2 and name not in NEVER:
            return name


def again(pairs, copies):
    """What a pass repeats, with other names: sentences that have one, and ten times the few that tell one."""
    names = [(g, e) for g, e in pairs if re.search(r"\b(Tom|Mary|Maria|Boston)s?\b", g) and
             re.search(r"\b(Tom|Mary|Boston)\b", e)]
    telling = [(g, e) for g, e in pairs if re.search(r"\bheiß(e|t|en)\b|\bName ist\b", g)]
    return (names + telling * 10) * copies


def other_names(german, english, rng, follow, share):
    for there, here in (("Tom", "Tom"), ("Mary", "Mary"), ("Maria", "Mary"), ("Boston", "Boston")):
        if re.search(rf"\b{there}s?\b", german) and re.search(rf"\b{here}\b", english) and rng.random() < share:
            name = new_name(rng, follow)
            own = name + ("'" if name[-1] in "sßxz" else "s")                 # Toms Hund, Lukas' Hund
            german = re.sub(rf"\b{there}(s?)\b", lambda m: own if m.group(1) else name, german)
            english = re.sub(rf"\b{here}\b", name, english)
    return german, english


def as_people_type(german, english, rng):
    """Now and then without the full stop, or without the capital at the beginning."""
    if rng.random() < 0.08 and german[-1] == "." and english[-1] == ".":
        german, english = german[:-1], english[:-1]
    if rng.random() < 0.05:
        german = german[0].lower() + german[1:]
    return german, english


# ---- pieces ----------------------------------------------------------------------------------------------------------
def chunks(text):
    """Words with the space before them; whatever is no letter and no digit stands alone. No piece reaches over two."""
    return re.findall(r" ?(?:[A-Za-z0-9\x80-\U0010ffff]+|[^ ])", " " + " ".join(text.split()))


class Pieces:
    def __init__(self, texts, words):
        self.joins, self.rank, self.known = [], {}, {}
        count = collections.Counter(chunk for text in texts for chunk in chunks(text))
        split = {chunk: [BYTES + b for b in chunk.encode()] for chunk in count}
        pairs, where = collections.Counter(), collections.defaultdict(set)

        def add(chunk, sign):
            for pair in zip(split[chunk], split[chunk][1:]):
                pairs[pair] += sign * count[chunk]
                where[pair].add(chunk)
        for chunk in count:
            add(chunk, 1)
        while BYTES + 256 + len(self.joins) < words:                          # the commonest pair becomes a piece
            best = max(pairs, key=lambda pair: (pairs[pair], pair))
            self.rank[best] = len(self.joins)
            self.joins.append(best)
            for chunk in sorted(where.pop(best)):
                add(chunk, -1)
                split[chunk] = self.join(split[chunk], best)
                add(chunk, 1)
            del pairs[best]
        self.bytes = [b""] * BYTES + [bytes([b]) for b in range(256)]
        for a, b in self.joins:
            self.bytes.append(self.bytes[a] + self.bytes[b])

    def join(self, ids, pair):
        to, i = [], 0
        while i < len(ids):
            both = tuple(ids[i:i + 2]) == pair
            to.append(BYTES + 256 + self.rank[pair] if both else ids[i])
            i += 1 + both
        return to

    def encode(self, text):
        to = []
        for chunk in chunks(text):
            if chunk not in self.known:
                ids = [BYTES + b for b in chunk.encode()]
                while True:
                    best = min(zip(ids, ids[1:]), key=lambda pair: self.rank.get(pair, math.inf), default=None)
                    if best not in self.rank:
                        break
                    ids = self.join(ids, best)
                self.known[chunk] = ids
            to += self.known[chunk]
        return to

    def decode(self, ids):
        return b"".join(self.bytes[i] for i in ids).decode(errors="replace").strip()


# ---- the model -------------------------------------------------------------------------------------------------------
class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def matrix(n_out, n_in, gain=1.0):
    return nn.Parameter(torch.randn(n_out, n_in) * gain / math.sqrt(n_in))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.w_in, self.w_o = heads, matrix(3 * width, width), matrix(width, width, 0.5)

    def forward(self, x, source, hidden, turn=None):
        w = self.w_in.chunk(3)
        q, k, v = (F.linear(y, m).unflatten(-1, (self.heads, -1)).transpose(1, 2) for y, m in
                   zip((x, source, source), w))
        if turn is not None:
            q, k = rotate(q, *turn), rotate(k, *turn)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(hidden, -math.inf)
        return F.linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2), self.w_o)


def rotate(x, cos, sin):
    n = x.shape[-1] // 2
    a, b, cos, sin = x[..., :n], x[..., n:], cos[:x.shape[-2]], sin[:x.shape[-2]]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    """Self-attention, in a decoder cross-attention, feed-forward; a norm before each."""
    def __init__(self, width, heads, ff, cross):
        super().__init__()
        self.norm1, self.self_attention = Norm(width), Attention(width, heads)
        if cross:
            self.norm2, self.cross_attention = Norm(width), Attention(width, heads)
        self.norm3, self.up, self.down = Norm(width), matrix(ff, width), matrix(width, ff, 0.5)

    def forward(self, x, hidden, turn, drop, memory=None, memory_hidden=None):
        y = self.norm1(x)
        x = x + drop(self.self_attention(y, y, hidden, turn))
        if memory is not None:
            x = x + drop(self.cross_attention(self.norm2(x), memory, memory_hidden))
        return x + drop(F.linear(F.linear(self.norm3(x), self.up).relu(), self.down))


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.sizes = (o.words, o.width, o.heads, o.encoder, o.decoder, o.ff)
        self.pieces = nn.Parameter(torch.randn(o.words, o.width) / math.sqrt(o.width))
        self.encoder = nn.ModuleList(Layer(o.width, o.heads, o.ff, False) for _ in range(o.encoder))
        self.encoder_norm = Norm(o.width)
        self.decoder = nn.ModuleList(Layer(o.width, o.heads, o.ff, True) for _ in range(o.decoder))
        self.decoder_norm = Norm(o.width)
        self.drop = nn.Dropout(o.dropout)
        head = o.width // o.heads
        angles = torch.outer(torch.arange(MOST).double(), 10000.0 ** (-torch.arange(0, head, 2).double() / head))
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def embed(self, ids):
        return self.drop(F.embedding(ids, self.pieces) * math.sqrt(self.pieces.shape[1]))

    def encode(self, source):
        hidden, x = (source == PAD)[:, None, None], self.embed(source)
        for layer in self.encoder:
            x = layer(x, hidden, (self.cos, self.sin), self.drop)
        return self.encoder_norm(x), hidden

    def decode(self, memory, memory_hidden, target):
        n = target.shape[1]
        future = torch.ones(n, n, dtype=torch.bool, device=target.device).triu(1)
        x = self.embed(target)
        for layer in self.decoder:
            x = layer(x, future, (self.cos, self.sin), self.drop, memory, memory_hidden)
        return F.linear(self.decoder_norm(x), self.pieces)

    def forward(self, source, target):
        return self.decode(*self.encode(source), target)

    def translate(self, sentences, pieces):
        """Greedy. translate.c searches with beams of 4, which is worth a point of BLEU."""
        self.eval()
        device, answers = self.pieces.device, []
        with torch.no_grad():
            for i in range(0, len(sentences), 250):
                source = padded([pieces.encode(s) + [END] for s in sentences[i:i + 250]]).to(device)
                memory = self.encode(source)
                target = torch.full((source.shape[0], 1), BEGIN, device=device)
                while target.shape[1] < 40 and not (target == END).any(1).all():
                    target = torch.cat((target, self.decode(*memory, target)[:, -1].argmax(-1, True)), 1)
                for row in target.tolist():
                    answers.append(pieces.decode(row[1:(row + [END]).index(END)]))
        self.train()
        return answers


def padded(rows):
    n = max(map(len, rows))
    return torch.tensor([row + [PAD] * (n - len(row)) for row in rows])


def write_model(path, model, pieces):
    """A header, a notice in words, the pieces that were joined, the weights in half, a checksum: little-endian."""
    notice = NOTICE.encode()
    notice += b" " * (-len(notice) % 4)
    data = b"attn-tr1" + struct.pack("<8I", 1, len(notice), *model.sizes) + notice
    data += b"".join(struct.pack("<2H", a, b) for a, b in pieces.joins)
    for name, p in model.named_parameters():                                  # in the order in which they were made
        data += p.detach().cpu().half().numpy().astype("<f2").tobytes()
    check = 2166136261
    for b in data:
        check = (check ^ b) * 16777619 & 0xFFFFFFFF                          # FNV-1a
    open(path, "wb").write(data + struct.pack("<I", check))
    print(f"{path}: {len(data) + 4} bytes")


def read_model(path, model, pieces):
    """The weights of such a file, into a model of its sizes whose pieces are the same."""
    data = open(path, "rb").read()
    notice, sizes = struct.unpack_from("<I", data, 12)[0], struct.unpack_from("<6I", data, 16)
    joins = b"".join(struct.pack("<2H", a, b) for a, b in pieces.joins)
    at = 40 + notice + len(joins)
    if sizes != model.sizes or data[40 + notice:at] != joins:
        raise SystemExit(f"{path}: it is of other sizes or pieces, {sizes}")
    with torch.no_grad():
        for p in model.parameters():
            half = torch.tensor(struct.unpack_from(f"<{p.numel()}e", data, at))
            p.copy_(half.view_as(p))
            at += 2 * p.numel()


# ---- training --------------------------------------------------------------------------------------------------------
def batches(pairs, pieces, follow, rng, size, copies):
    rows = []
    for i, (german, english) in enumerate(pairs + again(pairs, copies)):
        share = 0.6 if i < len(pairs) else 1
        german, english = as_people_type(*other_names(german, english, rng, follow, share), rng)
        rows.append((pieces.encode(german) + [END], [BEGIN] + pieces.encode(english) + [END]))
    rows.sort(key=lambda row: len(row[0]) + len(row[1]) + rng.random())       # rows of a batch are about as long
    rows = [rows[i:i + size] for i in range(0, len(rows), size)]
    rng.shuffle(rows)
    for batch in rows:
        yield padded([s for s, _ in batch]), padded([t for _, t in batch])


def train(model, pieces, learn, dev, o, device):
    rng, follow = random.Random(o.seed), chain_of(NAMES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.rate, betas=(0.9, 0.98), weight_decay=o.decay)
    a_pass = len(learn) + len(again(learn, o.copies))
    steps, step, begin = o.passes * -(-a_pass // o.batch), 0, time.time()
    for number in range(1, o.passes + 1):
        total = torch.zeros((), device=device)
        for source, target in batches(learn, pieces, follow, rng, o.batch, o.copies):
            source, target = source.to(device), target.to(device)
            step += 1
            done = max(step / steps, (time.time() - begin) / (60 * o.minutes))
            for group in optimizer.param_groups:                              # up, then down to nothing
                group["lr"] = o.rate * min(step / o.warmup, max(0, 1 - done))
            logits, wanted = model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten()
            loss = F.cross_entropy(logits, wanted, ignore_index=PAD, label_smoothing=o.smoothing)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
            if done >= 1:
                break
        if number % o.every == 0 or number in (1, o.passes) or done >= 1:
            score = bleu([e for _, e in dev], model.translate([g for g, _ in dev], pieces))
            print(f"pass {number}: loss {total.item() / (steps / o.passes):.3f}, greedy BLEU of dev {score:.2f}, "
                  f"{time.time() - begin:.0f} s", flush=True)
            write_model(o.model, model, pieces)
        if done >= 1:
            break


def main():
    a = argparse.ArgumentParser()
    a.add_argument("corpus")
    a.add_argument("model", nargs="?", default="german-english.bin")
    a.add_argument("--split", metavar="FOLDER", help="write the held-out sentences there, and stop")
    for name, value in (("words", 2000), ("width", 128), ("heads", 4), ("encoder", 3), ("decoder", 2), ("ff", 384),
                        ("passes", 16), ("batch", 128), ("seed", 1), ("every", 4), ("warmup", 400), ("copies", 1)):
        a.add_argument("--" + name, type=int, default=value)
    a.add_argument("--minutes", type=float, default=1e9, help="be done by then: the rate falls faster")
    for name, value in (("dropout", 0.1), ("smoothing", 0.1), ("rate", 2.5e-3), ("decay", 0.01)):
        a.add_argument("--" + name, type=float, default=value)
    a.add_argument("--start", metavar="FILE", help="go on from this model; --passes 0: only say how good it is")
    o = a.parse_args()
    learn, dev, test = read_pairs(o.corpus)
    if o.split:
        os.makedirs(o.split, exist_ok=True)
        for name, part in (("dev", dev), ("test", test)):
            for i, side in enumerate(("de", "en")):
                with open(f"{o.split}/{name}.{side}", "w", encoding="utf-8") as f:
                    f.writelines(pair[i] + "\n" for pair in part)
        return
    torch.manual_seed(o.seed)
    torch.set_flush_denormal(True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pieces = Pieces([side for pair in learn for side in pair], o.words)
    model = Model(o).to(device)
    n = sum(p.numel() for p in model.parameters())
    print(f"{len(learn)} pairs to learn from, {n} parameters, torch {torch.__version__}, {device}: {vars(o)}",
          flush=True)
    if o.start:
        read_model(o.start, model, pieces)
    train(model, pieces, learn, dev, o, device)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.half().float())                                         # as the file has them
    score = bleu([e for _, e in test], model.translate([g for g, _ in test], pieces))
    print(f"greedy BLEU of the 500 test sentences, weights in half: {score:.2f}")
    for line in ("Der Hund läuft.", "Ich heiße Luke.", "Priya hat Kasimir geholfen.", "Wo ist Oskars Hund?"):
        print(line, "->", model.translate([line], pieces)[0])
    if o.passes:
        write_model(o.model, model, pieces)


main()
