#!/usr/bin/env python3
"""Sentence embeddings: embed.c and ONNX Runtime on the same checkpoint, in turns.

    make embed-bench                               MODEL=folder, THREADS='1 2', ROUNDS=40; CLOCK=cpu: processor time
                                                   instead, where other programs run, too (one thread)
    python3 examples/embed/bench.py folder [heads] needs build/embed-bench, numpy, onnx, onnxruntime

The graph for ONNX Runtime is built here from the same model.safetensors, in float32 as it wants it, twice: from the
standard operators that an exporter writes, and from ONNX Runtime's own fused ones (EmbedLayerNormalization, Attention,
SkipLayerNormalization, BiasGelu), which its optimizer for BERT makes of them. Whichever is faster counts, for each shape.
Both sides get token numbers and give unit vectors; they are compared first. A turn is some tenths of a second of one
side, then of the other; what is shown is the median of the ratios of the turns, and the median time of each."""
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import time

if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    (sys.stderr if len(sys.argv) < 2 else sys.stdout).write(__doc__ + "\n")
    sys.exit(2 if len(sys.argv) < 2 else 0)

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

BUSY = os.environ.get("CLOCK") == "cpu"


def tensors(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        data = f.read()
    found = {}
    for name, t in header.items():
        if name == "__metadata__" or t["dtype"] not in ("F32", "F16", "BF16"):
            continue
        raw = data[t["data_offsets"][0]:t["data_offsets"][1]]
        if t["dtype"] == "BF16":
            x = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            x = np.frombuffer(raw, "<f4" if t["dtype"] == "F32" else "<f2").astype(np.float32)
        name = name[5:] if name.startswith("bert.") else name
        found[name.replace("gamma", "weight").replace("beta", "bias")] = x.reshape(t["shape"])
    return found


class Graph:
    def __init__(self, weights, heads):
        self.w, self.heads, self.nodes, self.constants, self.count = weights, heads, [], {}, 0
        self.width = weights["embeddings.LayerNorm.weight"].shape[0]
        self.layers = sum(k.endswith("attention.self.query.weight") for k in weights)

    def const(self, x):
        name = "c%d" % len(self.constants)
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(x), name)
        return name

    def weight(self, name, turned=False):
        x = self.w[name]
        return self.const(x.T if turned else x)

    def op(self, kind, *inputs, outputs=1, domain="", **attributes):
        out = ["t%d" % (self.count + i) for i in range(outputs)]
        self.count += outputs
        self.nodes.append(helper.make_node(kind, list(inputs), out, domain=domain, **attributes))
        return out[0]

    def norm(self, x, name):
        return self.op("LayerNormalization", x, self.weight(name + ".LayerNorm.weight"),
                       self.weight(name + ".LayerNorm.bias"), axis=-1, epsilon=1e-12)

    def linear(self, x, name):
        return self.op("Add", self.op("MatMul", x, self.weight(name + ".weight", True)), self.weight(name + ".bias"))

    def standard(self):
        ints = lambda *x: self.const(np.array(x, np.int64))
        e, head = "embeddings.", self.width // self.heads
        n = self.op("Shape", "ids", start=1, end=2)
        places = self.op("Slice", self.weight(e + "position_embeddings.weight"), ints(0), n, ints(0))
        x = self.op("Gather", self.weight(e + "word_embeddings.weight"), "ids")
        x = self.op("Add", x, self.const(self.w[e + "token_type_embeddings.weight"][0]))
        x = self.norm(self.op("Add", x, places), "embeddings")
        real = self.op("Cast", "mask", to=TensorProto.FLOAT)
        hidden = self.op("Mul", self.op("Sub", self.const(np.float32(1)), real), self.const(np.float32(-3e38)))
        hidden = self.op("Unsqueeze", hidden, ints(1, 2))
        for i in range(self.layers):
            p = "encoder.layer.%d." % i
            split = lambda what, order: self.op("Transpose", self.op(
                "Reshape", self.linear(x, p + "attention.self." + what), ints(0, 0, self.heads, head)), perm=order)
            q, k, v = split("query", (0, 2, 1, 3)), split("key", (0, 2, 3, 1)), split("value", (0, 2, 1, 3))
            s = self.op("Div", self.op("MatMul", q, k), self.const(np.float32(head ** 0.5)))
            s = self.op("Softmax", self.op("Add", s, hidden), axis=-1)
            a = self.op("Transpose", self.op("MatMul", s, v), perm=(0, 2, 1, 3))
            a = self.linear(self.op("Reshape", a, ints(0, 0, self.width)), p + "attention.output.dense")
            x = self.norm(self.op("Add", a, x), p + "attention.output")
            h = self.op("Gelu", self.linear(x, p + "intermediate.dense"))
            x = self.norm(self.op("Add", self.linear(h, p + "output.dense"), x), p + "output")
        return x

    def fused(self):
        e, ms = "embeddings.", "com.microsoft"
        x = self.op("EmbedLayerNormalization", "ids", "", self.weight(e + "word_embeddings.weight"),
                    self.const(self.w[e + "position_embeddings.weight"] + self.w[e + "token_type_embeddings.weight"][0]),
                    "", self.weight(e + "LayerNorm.weight"), self.weight(e + "LayerNorm.bias"), outputs=2, domain=ms,
                    epsilon=1e-12)
        lengths = self.op("ReduceSum", "mask", self.const(np.array([1], np.int64)), keepdims=0)
        for i in range(self.layers):
            p = "encoder.layer.%d." % i
            three = [self.w[p + "attention.self.%s.%s" % (a, b)] for b in ("weight", "bias")
                     for a in ("query", "key", "value")]
            a = self.op("Attention", x, self.const(np.concatenate(three[:3]).T), self.const(np.concatenate(three[3:])),
                        lengths, domain=ms, num_heads=self.heads)
            skip = lambda y, x, name: self.op(
                "SkipLayerNormalization", self.op("MatMul", y, self.weight(name + ".dense.weight", True)), x,
                self.weight(name + ".LayerNorm.weight"), self.weight(name + ".LayerNorm.bias"),
                self.weight(name + ".dense.bias"), domain=ms, epsilon=1e-12)
            x = skip(a, x, p + "attention.output")
            h = self.op("MatMul", x, self.weight(p + "intermediate.dense.weight", True))
            h = self.op("BiasGelu", h, self.weight(p + "intermediate.dense.bias"), domain=ms)
            x = skip(h, x, p + "output")
        return x

    def model(self, kind):
        x = getattr(self, kind)()
        ints = lambda *v: self.const(np.array(v, np.int64))
        real = self.op("Cast", "mask", to=TensorProto.FLOAT)
        total = self.op("ReduceSum", self.op("Mul", x, self.op("Unsqueeze", real, ints(2))), ints(1), keepdims=0)
        self.nodes.append(helper.make_node("LpNormalization", [total], ["vectors"], axis=-1, p=2))
        graph = helper.make_graph(
            self.nodes, "encoder",
            [helper.make_tensor_value_info(n, TensorProto.INT32, ["batch", "n"]) for n in ("ids", "mask")],
            [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["batch", self.width])],
            list(self.constants.values()))
        return helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)])


def session(model, threads):
    o = ort.SessionOptions()
    o.intra_op_num_threads, o.inter_op_num_threads = threads, 1
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    o.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])


class Ours:
    def __init__(self, folder, heads, threads, options):
        self.p = subprocess.Popen(["build/embed-bench", folder, "-", "-H", str(heads), "-j", str(threads)] + options,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, what):
        self.p.stdin.write(what + "\n")
        self.p.stdin.flush()

    def batch(self, ids):
        self.say("batch %d\n" % len(ids) + "\n".join(" ".join(map(str, i)) for i in ids))
        self.n = len(ids)

    def vectors(self):
        self.say("vectors")
        return np.array([[float.fromhex(x) for x in self.p.stdout.readline().split()] for _ in range(self.n)])

    def run(self, times):
        self.say("run %d" % times)
        return float(self.p.stdout.readline().split()[BUSY]) / times

    def close(self):
        self.p.stdin.close()
        self.p.wait()


class Theirs:
    def __init__(self, s):
        self.s = s

    def batch(self, ids):
        n = max(map(len, ids))
        self.feed = {"ids": np.array([i + [0] * (n - len(i)) for i in ids], np.int32),
                     "mask": np.array([[1] * len(i) + [0] * (n - len(i)) for i in ids], np.int32)}

    def vectors(self):
        return self.s.run(None, self.feed)[0]

    def run(self, times):
        clock = time.process_time if BUSY else time.perf_counter
        begin = clock()
        for _ in range(times):
            self.s.run(None, self.feed)
        return (clock() - begin) / times


def main():
    folder = sys.argv[1]
    heads = int(sys.argv[2]) if len(sys.argv) > 2 else 12
    rounds = int(os.environ.get("ROUNDS", 40))
    weights = tensors(folder + "/model.safetensors")
    models = {kind: Graph(weights, heads).model(kind) for kind in ("standard", "fused")}
    draw = random.Random(1)
    line = lambda n: [101] + [draw.randrange(1000, 30000) for _ in range(n - 2)] + [102]
    shapes = {"1 x 12": [line(12)], "1 x 128": [line(128)], "32 x 12": [line(12) for _ in range(32)],
              "32 mixed": [line(draw.choice((6, 8, 9, 12, 15, 20, 30, 60, 128))) for _ in range(32)]}
    for threads in map(int, os.environ.get("THREADS", "1").split()):
        ours = {"float": Ours(folder, heads, threads, ["-32"]), "half": Ours(folder, heads, threads, ["-16"]),
                "float, padded": Ours(folder, heads, threads, ["-32", "-P"])}
        theirs = {kind: Theirs(session(m, threads)) for kind, m in models.items()}
        print("%d thread%s, onnxruntime %s: milliseconds a batch, median of %d turns; then its time over ours" % (
            threads, "s" * (threads > 1), ort.__version__, rounds))
        print("%-9s %s" % ("", " ".join("%14s" % x for x in list(theirs) + list(ours))))
        for name, ids in shapes.items():
            sides = {**theirs, **ours}
            for s in sides.values():
                s.batch(ids)
            got = [s.vectors() for s in sides.values()]
            for key, other in zip(sides, got):
                far = np.abs(other - got[0]).max()
                assert far < (2e-3 if key == "half" else 2e-6), (name, key, far)
            times = {k: max(1, int(0.1 / s.run(3))) for k, s in sides.items()}
            took = {k: [] for k in sides}
            for _ in range(rounds):
                for k, s in sides.items():
                    took[k].append(s.run(times[k]))
            middle = {k: statistics.median(t) for k, t in took.items()}
            best = min(theirs, key=lambda k: middle[k])
            ratio = {k: statistics.median(b / a for a, b in zip(took[k], took[best])) for k in ours}
            tokens = sum(map(len, ids))
            print("%-9s %s   x %s   %.0f sentences, %.0f tokens a second" % (
                name, " ".join("%14.3f" % (1e3 * middle[k]) for k in sides),
                " ".join("%.2f" % ratio[k] for k in ours), len(ids) / middle["float"], tokens / middle["float"]), flush=True)
        for s in ours.values():
            s.close()


main()
