// page.js: loads the compiled C; helpers for the other parts of the page.

const $ = (id) => document.getElementById(id);
const began = performance.now();
let wasm = null; // the exported functions of page.c
let wasm_code = null; // the bytes of that module, for the worker
let fused = ""; // "yes", or the reason for not using the engine's multiply-add: "missing", "rounds twice"

// An element: el("td", { class: "see", text: "0" }, child, ...)
function el(name, with_ = {}, ...children) {
    const e = document.createElement(name);
    for (const [key, value] of Object.entries(with_)) {
        if (value === undefined || value === null || value === false) continue;
        if (key === "text") e.textContent = value;
        else if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
        else e.setAttribute(key, value === true ? "" : value);
    }
    e.append(...children);
    return e;
}

// Views of linear memory. They become invalid when memory grows, so none is kept across a call.
const ints = (at, n) => new Int32Array(wasm.memory.buffer, at, n);
const floats = (at, n) => new Float32Array(wasm.memory.buffer, at, n);
const bytes = (at, n) => new Uint8Array(wasm.memory.buffer, at, n);
function text(at) {
    const all = new Uint8Array(wasm.memory.buffer);
    let end = at;
    while (all[end]) end++;
    return new TextDecoder().decode(all.subarray(at, end));
}

// Writes the translator's input sentence, at most LONGEST bytes
function put_sentence(sentence) {
    const coded = new TextEncoder().encode(sentence).subarray(0, 1000);
    const to = bytes(wasm.tr_sentence(), coded.length + 1);
    to.set(coded);
    to[coded.length] = 0;
}

function from_base64(id) {
    const s = atob($(id).textContent);
    const b = new Uint8Array(s.length);
    for (let i = 0; i < s.length; i++) b[i] = s.charCodeAt(i);
    return b;
}

const size_text = (n) => (n < 1e6 ? `${Math.round(n / 1e3)} KB` : `${(n / 1e6).toFixed(1)} MB`);

// Shows an error as a sentence at the top of the page, never a blank page
function trouble(sentence) {
    const p = $("trouble");
    p.textContent = sentence;
    p.hidden = false;
}

// (module (func (result v128) i32.const 0 i8x16.splat)): invalid without 128-bit instructions
const simd_probe = [
    0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6, 0, 65, 0, 253, 15, 11
];

// (module (func (param v128 v128 v128) (result v128) ... f32x4.relaxed_madd)): invalid without relaxed SIMD
const relaxed_probe = [
    0, 97, 115, 109, 1, 0, 0, 0, 1, 8, 1, 96, 3, 123, 123, 123, 1, 123, 3, 2, 1, 0, 10, 13, 1, 11, 0, 32, 0, 32, 1, 32,
    2, 253, 133, 2, 11
];

// Loads the module with relaxed SIMD if attn.h detects that its multiply-add rounds once; otherwise the plain one
async function instance() {
    const code = from_base64("wasm-fma"),
        plain = from_base64("wasm");
    $("wasm-size").textContent = size_text(code.length + plain.length);
    fused = "missing";
    const make = async (bytes) => {
        wasm_code = bytes;
        wasm = (await WebAssembly.instantiate(bytes, { page: { heard() {} } })).instance.exports;
    };
    if (WebAssembly.validate(new Uint8Array(relaxed_probe))) {
        await make(code);
        fused = text(wasm.backend(0)) === "wasm_fma" ? "yes" : "rounds twice";
    }
    if (fused !== "yes") await make(plain);
}

async function load() {
    if (typeof WebAssembly !== "object")
        return "This browser has no WebAssembly, so this page cannot compute anything. Browsers from 2021 on have it.";
    if (!WebAssembly.validate(new Uint8Array(simd_probe)))
        return (
            "This browser’s WebAssembly has no 128-bit instructions (SIMD), which this page needs. Firefox 89, " +
            "Chrome 91, Safari 16.4 and later versions have them."
        );
    try {
        await instance();
    } catch (e) {
        return `The compiled C in this file cannot be run: ${e.message}. Is the file complete?`;
    }
    return null;
}

// ---- colours: those of the system, or chosen ----
function themes() {
    const order = ["auto", "light", "dark"];
    let at = 0;
    try {
        at = Math.max(0, order.indexOf(localStorage.getItem("theme")));
    } catch {
        /* a page opened from disk has no storage */
    }
    const show = () => {
        if (at) document.documentElement.dataset.theme = order[at];
        else delete document.documentElement.dataset.theme;
        $("theme").textContent = "◐○●"[at];
        $("theme").title = ["colours of the system", "light", "dark"][at];
        $("theme").setAttribute("aria-label", `Colours: ${["system setting", "light", "dark"][at]}`);
    };
    $("theme").addEventListener("click", () => {
        at = (at + 1) % 3;
        try {
            localStorage.setItem("theme", order[at]);
        } catch {
            /* not stored */
        }
        show();
        document.dispatchEvent(new Event("theme"));
    });
    show();
}

// Shows code in the dialog and copies it to the clipboard
function show_code(title, code) {
    $("code-title").textContent = title;
    $("code-text").textContent = code;
    $("code").showModal();
    const say = (s) => {
        $("code-said").textContent = s;
    };
    say("");
    const by_hand = () => {
        const range = document.createRange();
        range.selectNodeContents($("code-text"));
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        let done = false;
        try {
            done = document.execCommand("copy");
        } catch {
            /* remains selected */
        }
        say(done ? "Copied." : "Selected: copy it with Ctrl+C.");
    };
    if (navigator.clipboard) navigator.clipboard.writeText(code).then(() => say("Copied."), by_hand);
    else by_hand();
}

const parts = []; // functions that build a part of the page, called when the compiled C is loaded

async function begin() {
    themes();
    const wrong = await load();
    if (wrong) {
        trouble(wrong);
        document.documentElement.dataset.ready = "no";
        return;
    }
    $("version").textContent = document.querySelector("meta[name=attn-version]").content;
    $("page-size").textContent = size_text(document.documentElement.outerHTML.length);
    for (const part of parts) {
        try {
            part();
        } catch (e) {
            trouble(`A part of this page did not start: ${e.message}.`);
            console.error(e);
        }
    }
    $("ready-time").textContent = `${Math.round(performance.now())} ms`;
    document.documentElement.dataset.ready = "yes";
}
