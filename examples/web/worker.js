// worker.js: recognises speech in a worker, which has its instance of the compiled C. Files are copied once, in pieces,
// into its memory.
//
// Messages to it:    { code }              the bytes of the module, first of all
//                    { model, sound }      files; the model is left out if it is the one before
// Messages from it:  { loaded }            the model is open
//                    { total }             the sound is open: its length, and all times, in units of 10 ms
//                    { done, draft }       after each token: the text of this window so far
//                    { done, words, segments, window, spaced }     after each window: the new ones
//                    { end, hash, rows }   the end of the sound
//                    { refused, reason }   "model", "sound" or "": which file was rejected
"use strict";
let wasm = null;
let began = 0; // when the last draft was sent

function text(at) {
    const all = new Uint8Array(wasm.memory.buffer);
    let end = at;
    while (all[end]) end++;
    return new TextDecoder().decode(all.subarray(at, end));
}

function heard(done) {
    if (performance.now() - began < 60) return;
    began = performance.now();
    postMessage({ done, draft: text(wasm.ls_draft()) });
}

// Copies a file to the C side. Returns false without memory
async function copy(file, sound) {
    const at = wasm.ls_room(sound, file.size) >>> 0;
    if (!at) return false;
    for (let from = 0; from < file.size; from += 1 << 22) {
        const piece = new Uint8Array(await file.slice(from, from + (1 << 22)).arrayBuffer());
        new Uint8Array(wasm.memory.buffer).set(piece, at + from);
    }
    return true;
}

function cues(kind, from) {
    const list = [];
    for (let i = from; i < wasm.ls_count(kind); i++)
        list.push({ begin: wasm.ls_begin(kind, i), end: wasm.ls_end(kind, i), text: text(wasm.ls_text(kind, i)) });
    return list;
}

// The pictures of a window as bytes: the staircase [tokens][columns], 0 to 255 of its largest weight, and the
// spectrogram [bands][columns], low bands last, 255 the loudest cell and 0 two of Whisper's units (8 decades) below
function picture(begin) {
    const rows = wasm.ls_tokens(),
        columns = wasm.ls_columns(),
        bands = wasm.ls_bands();
    const weights = new Float32Array(wasm.memory.buffer, wasm.ls_stairs(), rows * columns);
    const frames = new Float32Array(wasm.memory.buffer, wasm.ls_frames(), 2 * columns * bands);
    const stairs = new Uint8Array(rows * columns),
        sound = new Uint8Array(bands * columns);
    const most = weights.reduce((a, b) => Math.max(a, b), 0) || 1;
    for (let i = 0; i < stairs.length; i++) stairs[i] = Math.max(0, (255 * weights[i]) / most);
    const loudest = frames.reduce((a, b) => Math.max(a, b), -10);
    for (let b = 0; b < bands; b++)
        for (let j = 0; j < columns; j++) {
            const mean = (frames[2 * j * bands + b] + frames[(2 * j + 1) * bands + b]) / 2;
            sound[(bands - 1 - b) * columns + j] = Math.max(0, 255 * (1 + (mean - loudest) / 2));
        }
    const starts = [...new Int32Array(wasm.memory.buffer, wasm.ls_starts(), rows)];
    const tokens = starts.map((start, i) => ({ start, text: text(wasm.ls_token(i)) }));
    return { begin, columns, bands, tokens, stairs, sound };
}

async function recognise({ model, sound }) {
    const refuse = (refused, reason) => postMessage({ refused, reason: reason ?? text(wasm.ls_why()) });
    const no_memory = "there is not enough memory for it";
    if (model) {
        if (!(await copy(model, 0))) return refuse("model", no_memory);
        if (wasm.ls_model()) return refuse("model");
        postMessage({ loaded: true });
    }
    if (!(await copy(sound, 1))) return refuse("sound", no_memory);
    if (wasm.ls_sound()) return refuse("sound");
    postMessage({ total: wasm.ls_total() });
    let words = 0,
        segments = 0;
    for (let more = 1; more > 0; ) {
        const begin = wasm.ls_done();
        more = wasm.ls_next();
        if (more < 0) return refuse("", no_memory);
        const now = { done: wasm.ls_done(), words: cues(0, words), segments: cues(1, segments), window: null };
        now.spaced = wasm.ls_spaced() !== 0;
        if (now.words.length) now.window = picture(begin);
        words += now.words.length;
        segments += now.segments.length;
        if (more) postMessage(now);
    }
    const hash = BigInt.asUintN(64, wasm.ls_hash()).toString(16).padStart(16, "0");
    postMessage({ end: true, hash, rows: wasm.ls_hashed() });
}

async function answer(data) {
    try {
        if (data.code) wasm = (await WebAssembly.instantiate(data.code, { page: { heard } })).instance.exports;
        else await recognise(data);
    } catch (e) {
        // a trap: of memory that cannot grow, for example
        postMessage({ refused: "", reason: e.message });
    }
}

let last = Promise.resolve(); // messages are answered one after another
onmessage = ({ data }) => {
    last = last.then(() => answer(data));
};
