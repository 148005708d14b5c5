#!/usr/bin/env python3
"""Whisper on attn.h, CTranslate2 and whisper.cpp, in turns, one thread: 30 seconds of two_cities.wav, no timestamps.

    make listen-bench                       SPEECH=folder with the model and the sound (default ../shared/speech)
                                            CT2=folder with CTranslate2's conversion of the same model
                                            WHISPER=whisper-cli, the program of whisper.cpp
                                            ROUNDS=5
    python3 examples/listen/bench.py        needs build/listen; with CT2 numpy, ctranslate2, faster_whisper

A turn is one window on each side; the table has the median of the turns, in processor time, so that other programs
matter little, except for whisper.cpp, which prints elapsed times. "search" includes the projection of the encoder's
output to keys and values, which CTranslate2 does in its first step; whisper.cpp counts it as encoding. The second table
has the medians of the ratios of the turns: above 1, attn.h is faster."""
import difflib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import wave

speech = os.environ.get("SPEECH", "../shared/speech")
rounds = int(os.environ.get("ROUNDS", "5"))
ct2, whisper = os.environ.get("CT2"), os.environ.get("WHISPER")
with wave.open(speech + "/two_cities.wav") as w:
    samples = w.readframes(480000)
folder = tempfile.TemporaryDirectory()
sound = folder.name + "/window.wav"
with wave.open(sound, "wb") as w:
    w.setnchannels(1)
    w.setsampwidth(2)
    w.setframerate(16000)
    w.writeframes(samples)
said = {}                                # what each side has heard


def ours(*words):
    out = subprocess.run(["build/listen", "-n", "-v", *words, speech + "/ggml-tiny.en.bin", sound],
                         check=True, capture_output=True, text=True).stdout
    found = re.search(r"encoder ([0-9.]+) ms, cross fill and (\d+) tokens ([0-9.]+) ms", out)
    if words[0] == "-b":
        said["attn.h", words[1]] = re.sub(r"(?m)^.*( ms|hash of .*|MB at most)$", "", out)
    return float(found[1]), float(found[3]), int(found[2])


def cpp(beams):
    run = subprocess.run([whisper, "-m", speech + "/ggml-tiny.en.bin", "-f", sound, "-t", "1", "-bs", beams, "-bo", "1",
                          "-nt", "-nf", "-mc", "0"], check=True, capture_output=True, text=True)
    ms = {name: float(t) for name, t in re.findall(r"(\w+) time = +([0-9.]+) ms", run.stderr)}
    said["whisper.cpp", beams] = run.stdout
    return ms["encode"], ms["sample"] + ms["decode"] + ms["batchd"] + ms["prompt"], len(run.stdout.split())


if ct2:
    import numpy as np
    import ctranslate2
    from faster_whisper.feature_extractor import FeatureExtractor
    audio = np.frombuffer(samples, "<i2").astype(np.float32) / 32768
    features = FeatureExtractor()(audio)[:, :3000]
    view = ctranslate2.StorageView.from_array(np.ascontiguousarray(features[None]).astype(np.float32))
    models = {kind: ctranslate2.models.Whisper(ct2, compute_type=kind, intra_threads=1)
              for kind in ("float32", "int8")}


def theirs(kind, beams):
    begin = time.process_time()
    encoded = models[kind].encode(view)
    middle = time.process_time()
    result = models[kind].generate(encoded, [[50257, 50362]], beam_size=beams)
    end = time.process_time()
    return 1000 * (middle - begin), 1000 * (end - middle), len(result[0].sequences_ids[0])


sides = [("attn.h", lambda b: ours("-b", b)), ("attn.h, -16", lambda b: ours("-16", "-b", b)),
         ("attn.h, -8", lambda b: ours("-8", "-b", b))]
if ct2:
    sides += [("CTranslate2 float32", lambda b: theirs("float32", int(b))),
              ("CTranslate2 int8", lambda b: theirs("int8", int(b)))]
if whisper:
    sides += [("whisper.cpp", cpp)]
times = {}
for _ in range(rounds):
    for beams in ("1", "5"):
        for name, run in sides:
            times.setdefault((name, beams), []).append(run(beams))
print("| ms | encoder | search, greedy | search, 5 beams |\n|---|---|---|---|")
for name, _ in sides:
    one, five = times[name, "1"], times[name, "5"]
    encoder = statistics.median(t[0] for t in one + five)
    greedy, search = (statistics.median(t[1] for t in x) for x in (one, five))
    unit = "words" if name == "whisper.cpp" else "tokens"
    print(f"| {name} | {encoder:.0f} | {greedy:.0f} ({one[0][2]} {unit}) | {search:.0f} ({five[0][2]} {unit}) |")
print("\n| | encoder | search, greedy | search, 5 beams |\n|---|---|---|---|")
for a, b in (("CTranslate2 int8", "attn.h, -8"), ("CTranslate2 int8", "attn.h, -16"), ("CTranslate2 float32", "attn.h"),
             ("whisper.cpp", "attn.h, -16"), ("whisper.cpp", "attn.h"), ("attn.h, -16", "attn.h, -8"),
             ("attn.h", "attn.h, -8")):
    if (a, "1") not in times:
        continue

    def ratio(beams, part):
        return [x[part] / y[part] for n in beams for x, y in zip(times[a, n], times[b, n])]
    print(f"| {a} / {b} |", *(f"{statistics.median(r):.2f} ({min(r):.2f} to {max(r):.2f}) |"
                             for r in (ratio("15", 0), ratio("1", 1), ratio("5", 1))))
for beams in "15" if whisper else "":
    a, b = (re.findall(r"[a-z']+", said[name, beams].lower()) for name in ("attn.h", "whisper.cpp"))
    same = sum(m.size for m in difflib.SequenceMatcher(None, a, b, False).get_matching_blocks())
    print(f"{beams} beams: {same} words of {len(a)} (attn.h) and {len(b)} (whisper.cpp) are equal")
sys.stdout.flush()
