// listen.js: the speech recogniser. A worker (worker.js) computes; this part chooses files, records, plays the sound,
// highlights words and draws the staircase. Times are in units of 10 ms, columns are 20 ms wide.

// model, sound: files; loaded: the model that the worker has open; total: length of the sound; done: how much of it has
// a text; words, segments: with times; views: a picture for each segment; at: the view that is drawn; on: the word that
// is playing; state: "idle", "busy", "ended", "stopped" or "refused"
const ls = {
    model: null,
    sound: null,
    worker: null,
    loaded: null,
    total: 0,
    done: 0,
    words: [],
    segments: [],
    views: [],
    at: -1,
    on: -1,
    state: "idle",
    spaced: true,
    recorder: null,
    began: 0
};

const seconds = (t, digits = 1) => (t / 100).toFixed(digits);
const percent = (x) => `${(100 * x).toFixed(3)}%`;

function listen_say(sentence, wrong = false) {
    $("listen-said").textContent = sentence;
    $("listen-said").classList.toggle("wrong", wrong);
}

function show_listen_state() {
    const busy = ls.state === "busy",
        ready = ls.model && ls.sound;
    $("listen-run").textContent = busy ? "Stop" : "Recognise";
    $("listen-run").disabled = !ready && !busy;
    $("listen-progress").hidden = !busy;
    $("listen-progress").max = ls.total || 1;
    $("listen-progress").value = ls.done;
    $("listen-time").textContent = busy && ls.total ? `${seconds(ls.done)} of ${seconds(ls.total)} s` : "";
    $("listen").dataset.state = ls.state;
}

// ---- the worker ----

function end_worker() {
    ls.worker?.terminate();
    ls.worker = ls.loaded = null;
}

function get_worker() {
    if (ls.worker) return;
    const url = URL.createObjectURL(new Blob([$("worker").textContent], { type: "text/javascript" }));
    ls.worker = new Worker(url);
    URL.revokeObjectURL(url);
    ls.worker.onmessage = ({ data }) => hear(data);
    ls.worker.onerror = (e) => hear({ refused: "", reason: e.message || "the worker did not start" });
    ls.worker.postMessage({ code: wasm_code });
}

function stop_listening() {
    if (ls.state !== "busy") return;
    end_worker();
    ls.state = "stopped";
    $("draft").textContent = "";
    listen_say(`Stopped after ${seconds(ls.done)} of ${seconds(ls.total)} s.`);
    show_listen_state();
}

// Removes the words and pictures of the sound before
function forget_heard() {
    Object.assign(ls, { words: [], segments: [], views: [], at: -1, on: -1, total: 0, done: 0, state: "idle" });
    $("heard").replaceChildren();
    $("draft").textContent = $("listen-hash").textContent = "";
    $("stairs").hidden = true;
}

function start_listening() {
    if (!ls.model || !ls.sound) return;
    if (ls.state === "busy") end_worker();
    forget_heard();
    ls.state = "busy";
    ls.began = performance.now();
    get_worker();
    const again = ls.loaded === ls.model;
    listen_say(again ? "Recognising." : "Reading the model.");
    ls.worker.postMessage({ model: again ? null : ls.model, sound: ls.sound });
    show_listen_state();
}

// A message of the worker
function hear(m) {
    if (m.refused !== undefined) {
        ls.state = "refused";
        const file = { model: ls.model, sound: ls.sound }[m.refused];
        listen_say(file ? `${file.name}: ${m.reason}.` : `The recognition ended: ${m.reason}.`, true);
        if (m.refused !== "sound") end_worker();
        $("draft").textContent = "";
    }
    if (m.loaded) {
        ls.loaded = ls.model;
        listen_say("Recognising.");
    }
    if (m.total) ls.total = m.total;
    if (m.done !== undefined) ls.done = Math.min(m.done, ls.total);
    if (m.draft !== undefined) $("draft").textContent = m.draft;
    if (m.words) add_heard(m);
    if (m.end) {
        ls.state = "ended";
        const took = ((performance.now() - ls.began) / 1000).toFixed(1);
        listen_say(
            ls.words.length
                ? `${ls.words.length} words in ${seconds(ls.total)} s of sound, recognised in ${took} s.`
                : `No speech was found in ${seconds(ls.total)} s of sound.`
        );
        ls.hash = m.hash;
        const where = fused === "yes" ? ", which listen -v prints on any processor with fused multiply-add" : "";
        $("listen-hash").textContent = `Hash of ${m.rows} rows of logits: ${m.hash}${where}.`;
    }
    show_listen_state();
}

// ---- words ----

function add_heard({ words, segments, window, spaced }) {
    $("draft").textContent = "";
    ls.spaced = spaced;
    const first = ls.words.length;
    ls.words.push(...words);
    ls.segments.push(...segments);
    words.forEach((w, i) => {
        if (i + first && spaced) $("heard").append(" ");
        $("heard").append(
            el("span", {
                class: "word",
                role: "button",
                tabindex: i + first ? -1 : 0,
                "data-i": i + first,
                title: `${seconds(w.begin, 2)} to ${seconds(w.end, 2)} s`,
                text: w.text
            })
        );
    });
    if (!window) return;
    let from = 0;
    segments.forEach((s, k) => {
        // the tokens that begin before its end; the last segment has the rest
        let to = from;
        const ends = k + 1 < segments.length ? s.end : Infinity;
        while (to < window.tokens.length && window.begin + 2 * window.tokens[to].start < ends) to++;
        if (to === from) return;
        const start = window.tokens[from].start,
            last = window.tokens[to - 1].start;
        const c0 = Math.max(0, Math.min((s.begin - window.begin) >> 1, start));
        const c1 = Math.min(window.columns, Math.max((s.end - window.begin) >> 1, last + 1));
        ls.views.push({ window, from, to, c0, c1, begin: window.begin + 2 * start, end: window.begin + 2 * c1 });
        from = to;
    });
    if (ls.at < 0 && ls.views.length) draw_stairs(0);
    else show_view_number();
}

// Moves the focus along the words; Enter and Space play from the word on
function walk_words(e) {
    const i = Number(e.target.dataset.i);
    if (Number.isNaN(i)) return;
    const to = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: ls.words.length - 1 }[e.key];
    if (e.key === "Enter" || e.key === " ") play_word(i);
    else if (to === undefined) return;
    e.preventDefault();
    const next = $("heard").querySelector(`[data-i="${to}"]`);
    if (!next) return;
    e.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    draw_stairs_at(ls.words[to].begin);
}

function play_word(i) {
    $("listen-audio").currentTime = ls.words[i].begin / 100;
    $("listen-audio").play().catch(() => {});
    light(ls.words[i].begin);
}

// Highlights the word at a time, here and in the picture
function light(t) {
    let on = -1;
    for (let i = 0; i < ls.words.length && ls.words[i].begin <= t; i++) if (t < ls.words[i].end) on = i;
    if (on !== ls.on) {
        $("heard").querySelector(".word.on")?.classList.remove("on");
        const word = $("heard").querySelector(`[data-i="${on}"]`),
            box = $("heard-box");
        word?.classList.add("on");
        ls.on = on;
        if (word) {
            // scroll the box, but never the page
            const by = word.getBoundingClientRect().top - box.getBoundingClientRect().top;
            if (by < 0 || by > box.clientHeight - word.offsetHeight) box.scrollTop += by - word.offsetHeight;
        }
    }
    draw_stairs_at(t);
    show_now(t);
}

// Moves the line in the picture to a time
function show_now(t) {
    const v = ls.views[ls.at],
        line = $("stairs").querySelector(".now");
    if (!v || !line) return;
    const x = ((t - v.window.begin) / 2 - v.c0) / (v.c1 - v.c0);
    line.hidden = x < 0 || x > 1;
    line.style.left = percent(x);
    const box = $("plot").parentElement;
    if (line.hidden || box.scrollWidth <= box.clientWidth) return;
    // keeps the line in view where the picture is wider than the screen
    const grids = line.parentElement,
        at = grids.offsetLeft + x * grids.clientWidth - box.scrollLeft;
    if (at < grids.offsetLeft || at > box.clientWidth - 16) box.scrollLeft += at - grids.offsetLeft - 24;
}

// Follows the sound while it plays
function follow() {
    const audio = $("listen-audio");
    if (audio.paused) return;
    light(Math.round(100 * audio.currentTime));
    requestAnimationFrame(follow);
}

// ---- the staircase ----

// A grid of bytes as the mask of an element: its colour shows through where the numbers are large
function put_mask(e, width, height, tall, value) {
    const c = el("canvas", { width, height: height * tall }),
        to = c.getContext("2d"),
        image = to.createImageData(width, height * tall);
    for (let y = 0; y < height * tall; y++)
        for (let x = 0; x < width; x++) image.data[4 * (y * width + x) + 3] = value(Math.floor(y / tall), x);
    to.putImageData(image, 0, 0);
    const url = `url(${c.toDataURL()})`;
    e.style.setProperty("-webkit-mask-image", url);
    e.style.setProperty("mask-image", url);
}

// Places names of words, which begin at the shares `at` of the picture, each in the lowest lane with room, and left of
// its beginning where the picture ends
function place_names(at, lines, names) {
    const room = $("plot").querySelector(".grids").clientWidth,
        wide = names.map((name) => name.offsetWidth),
        ends = [];
    names.forEach((name, i) => {
        const begin = at[i] * room,
            left = begin + wide[i] > room + 20 ? begin - wide[i] : begin;
        let lane = 0;
        while (ends[lane] > left) lane++;
        ends[lane] = left + wide[i];
        name.style.left = percent(left / room);
        for (const e of [name, lines[i]]) e.style.setProperty("--lane", lane);
    });
    $("plot").style.setProperty("--lanes", Math.max(3, ends.length));
}

// Draws a segment as `listen -s` does
function draw_stairs(at) {
    const v = ls.views[at],
        { window, from, to, c0, c1 } = v,
        wide = c1 - c0,
        rows = to - from;
    ls.at = at;
    const x = (t) => ((t - window.begin) / 2 - c0) / wide;
    let most = 1,
        loudest = 0;
    for (let i = from; i < to; i++)
        for (let j = c0; j < c1; j++) most = Math.max(most, window.stairs[i * window.columns + j]);
    for (let b = 0; b < window.bands; b++)
        for (let j = c0; j < c1; j++) loudest = Math.max(loudest, window.sound[b * window.columns + j]);
    const sound = el("div", { class: "grid sound" }),
        steps = el("div", { class: "grid steps" });
    put_mask(sound, wide, window.bands, 1, (b, j) => {
        const below = (loudest - window.sound[b * window.columns + c0 + j]) / 127.5;
        return Math.max(0, 255 * (1 - below / 1.6));
    });
    put_mask(steps, wide, rows, 8, (i, j) =>
        Math.min(255, (255 * 1.6 * window.stairs[(from + i) * window.columns + c0 + j]) / most)
    );
    // the path enters row i at the start of token i
    let d = "M0 .5";
    for (let i = from + 1; i < to; i++) d += `H${Math.min(wide, window.tokens[i].start - c0)}v1`;
    const least = 1.9 * wide; // pixels
    const words = ls.words.filter((w) => w.begin >= v.begin && w.begin < v.end);
    const lines = words.map((w) => el("i", { style: `left:${percent(x(w.begin))}` })),
        names = words.map((w) => el("b", { text: w.text }));
    const ticks = [];
    for (let s = Math.ceil((window.begin + 2 * c0) / 100); s <= (window.begin + 2 * c1) / 100; s++)
        ticks.push(
            el("span", {
                style: `left:${percent(x(100 * s))}`,
                class: x(100 * s) < 0.02 && "first",
                text: `${s} s`
            })
        );
    const labels = window.tokens.slice(from, to).map((t) => el("span", { text: t.text.trim() || "␣" }));
    $("plot").style.minWidth = `${Math.round(least) + 110}px`;
    $("plot").style.setProperty("--rows", rows);
    $("plot").replaceChildren(
        el("div", { class: "labels" }, ...labels),
        el(
            "div",
            { class: "grids" },
            sound,
            el("div", { class: "steps-box" }, steps),
            el("div", { class: "marks" }, ...lines, ...names),
            el("div", { class: "ticks" }, ...ticks),
            el("i", { class: "now", hidden: true })
        )
    );
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.innerHTML = `<path class="halo" d="${d}H${wide}"/><path d="${d}H${wide}"/>`;
    svg.setAttribute("viewBox", `0 0 ${wide} ${rows}`);
    svg.setAttribute("preserveAspectRatio", "none");
    $("plot").querySelector(".steps-box").append(svg);
    $("stairs").hidden = false;
    place_names(words.map((w) => x(w.begin)), lines, names);
    show_view_number();
}

function show_view_number() {
    const v = ls.views[ls.at];
    if (!v) return;
    $("stairs-of").textContent =
        `Sentence ${ls.at + 1} of ${ls.views.length}, ${seconds(v.window.begin + 2 * v.c0)} to ${seconds(v.end)} s`;
    $("stairs-back").disabled = ls.at === 0;
    $("stairs-on").disabled = ls.at + 1 === ls.views.length;
}

// Draws a segment and moves the sound there
function go_to(at) {
    draw_stairs(at);
    $("listen-audio").currentTime = ls.views[at].begin / 100;
}

// Draws the segment of a time, unless it is drawn
function draw_stairs_at(t) {
    let at = ls.views.length - 1;
    while (at > 0 && ls.views[at].begin > t) at--;
    if (at >= 0 && at !== ls.at) draw_stairs(at);
}

// ---- sound ----

// Returns a WAV file of an AudioBuffer: 16 bits, the mean of its channels
function wav_of(buffer, name) {
    const n = buffer.length,
        view = new DataView(new ArrayBuffer(44 + 2 * n));
    const word = (at, s) => [...s].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
    word(0, "RIFF");
    view.setUint32(4, 36 + 2 * n, true);
    word(8, "WAVEfmt ");
    view.setUint32(16, 16, true);
    view.setUint16(20, 1, true);
    view.setUint16(22, 1, true);
    view.setUint32(24, buffer.sampleRate, true);
    view.setUint32(28, 2 * buffer.sampleRate, true);
    view.setUint16(32, 2, true);
    view.setUint16(34, 16, true);
    word(36, "data");
    view.setUint32(40, 2 * n, true);
    const channels = Array.from({ length: buffer.numberOfChannels }, (_, c) => buffer.getChannelData(c));
    for (let i = 0; i < n; i++) {
        const mean = channels.reduce((sum, c) => sum + c[i], 0) / channels.length;
        view.setInt16(44 + 2 * i, Math.max(-32768, Math.min(32767, Math.round(32768 * mean))), true);
    }
    return new File([view], name, { type: "audio/wav" });
}

// A WAV file is left to the C reader, other formats are decoded by the browser. The C reader rejects what neither reads
async function decode(file) {
    const head = await file.slice(0, 4).text();
    if (head === "RIFF") return file;
    try {
        const context = new OfflineAudioContext(1, 1, 16000);
        return wav_of(await context.decodeAudioData(await file.arrayBuffer()), file.name);
    } catch {
        return file;
    }
}

// Recognition begins with a click, not by itself: the button would become "Stop" under the pointer
function say_what_is_missing() {
    listen_say(!ls.model ? "A model is missing." : !ls.sound ? "A sound is missing." : "Ready.");
    show_listen_state();
}

async function take_sound(file) {
    const sound = await decode(file);
    stop_listening();
    ls.sound = sound;
    $("sound-name").textContent = `${file.name}, ${size_text(file.size)}`;
    const audio = $("listen-audio");
    URL.revokeObjectURL(audio.src);
    audio.src = URL.createObjectURL(ls.sound);
    audio.hidden = false;
    forget_heard();
    say_what_is_missing();
}

function take_model(file) {
    stop_listening();
    ls.model = file;
    $("model-name").textContent = `${file.name}, ${size_text(file.size)}`;
    if (ls.state !== "ended") ls.state = "idle"; // the words of the model before stay
    say_what_is_missing();
}

async function record() {
    if (ls.recorder) {
        ls.recorder.stop();
        return;
    }
    let stream = null;
    try {
        const audio = { channelCount: 1, echoCancellation: false, noiseSuppression: false };
        stream = await navigator.mediaDevices.getUserMedia({ audio });
    } catch (e) {
        const reason = navigator.mediaDevices ? e.message : "this browser gives a page opened from disk no access";
        listen_say(`The microphone cannot be used: ${reason}.`, true);
        return;
    }
    const pieces = [],
        recorder = new MediaRecorder(stream),
        began = performance.now();
    const show = () => {
        $("record").textContent = `Stop recording (${Math.floor((performance.now() - began) / 1000)} s)`;
    };
    const timer = setInterval(show, 250);
    recorder.ondataavailable = (e) => pieces.push(e.data);
    recorder.onstop = () => {
        clearInterval(timer);
        for (const track of stream.getTracks()) track.stop();
        ls.recorder = null;
        $("record").textContent = "Record";
        $("record").setAttribute("aria-pressed", "false");
        take_sound(new File(pieces, "recording", { type: recorder.mimeType }));
    };
    ls.recorder = recorder;
    recorder.start();
    show();
    $("record").setAttribute("aria-pressed", "true");
    listen_say("Recording.");
}

// ---- files ----

async function take_files(files, kind) {
    for (const file of files) {
        const head = await file.slice(0, 4).text();
        if ((kind ?? (head === "lmgg" || /\.bin$/.test(file.name) ? "model" : "sound")) === "model") take_model(file);
        else await take_sound(file);
    }
}

parts.push(() => {
    const section = $("listen");
    for (const kind of ["model", "sound"])
        $(`${kind}-file`).addEventListener("change", (e) => {
            take_files([...e.target.files], kind);
            e.target.value = "";
        });
    section.addEventListener("dragover", (e) => {
        e.preventDefault();
        section.classList.add("over");
    });
    section.addEventListener("dragleave", (e) => {
        if (!section.contains(e.relatedTarget)) section.classList.remove("over");
    });
    section.addEventListener("drop", (e) => {
        e.preventDefault();
        section.classList.remove("over");
        take_files([...e.dataTransfer.files]);
    });
    $("record").addEventListener("click", record);
    $("listen-run").addEventListener("click", () => (ls.state === "busy" ? stop_listening() : start_listening()));
    $("heard").addEventListener("keydown", walk_words);
    $("heard").addEventListener("click", (e) => {
        if (e.target.dataset.i) play_word(Number(e.target.dataset.i));
    });
    $("stairs-back").addEventListener("click", () => go_to(ls.at - 1));
    $("stairs-on").addEventListener("click", () => go_to(ls.at + 1));
    $("listen-audio").addEventListener("play", follow);
    $("listen-audio").addEventListener("seeked", (e) => light(Math.round(100 * e.target.currentTime)));
    addEventListener("resize", () => {
        if (ls.at < 0) return;
        draw_stairs(ls.at);
        show_now(100 * $("listen-audio").currentTime);
    });
    show_listen_state();
});
