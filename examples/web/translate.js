// translate.js: the live translator. Draws pieces, words and weights that translate.c computes, through page.c.

const examples = [
    { de: "Ich habe das Buch gestern gelesen.", en: "I read the book yesterday." },
    { de: "Der Hund läuft.", en: "The dog is running." },
    { de: "Kannst du mir bitte helfen?", en: "Can you help me?" },
    { de: "Ich heiße Luke.", en: "My name's Luke." },
    { de: "Der schnelle braune Fuchs springt über den Zaun.", en: "The quick brown fox jumps over the fence." }
];

// source, target: pieces; seen [layer][head][target][source]; time: number of pieces written so far; at, from: piece of
// the target, of the source, under the pointer; chosen: layer and head, -1 for the mean; run: number of the translation
const tr = {
    source: [],
    target: [],
    seen: [],
    layers: 0,
    heads: 0,
    time: 0,
    at: -1,
    from: -1,
    chosen: [-1, -1],
    run: 0,
    busy: false,
    took: 0
};

let player = 0; // the timer of Play

// The weights of target piece t by the chosen layer and head; -1 is the mean over all of them
function weights_of(t, [layer, head] = tr.chosen) {
    const n = tr.source.length,
        sum = new Float32Array(n);
    let count = 0;
    for (let l = 0; l < tr.layers; l++)
        for (let h = 0; h < tr.heads; h++) {
            if ((layer >= 0 && l !== layer) || (head >= 0 && h !== head)) continue;
            const from = ((l * tr.heads + h) * tr.target.length + t) * n;
            for (let s = 0; s < n; s++) sum[s] += tr.seen[from + s];
            count++;
        }
    return sum.map((x) => x / count);
}

const head_name = ([l, h]) => (l < 0 ? "mean of all heads" : `layer ${l + 1}, head ${h + 1}`);
const shown = (piece) => (piece === " </s>" ? "end" : piece.trim() || "␣");

// ---- drawing ----
function piece_button(side, i, piece) {
    const kind = piece === " </s>" ? " end" : i > 0 && !piece.startsWith(" ") ? " joined" : "";
    return el("button", {
        type: "button",
        class: `piece${kind}`,
        "data-side": side,
        "data-i": i,
        "data-piece": piece,
        tabindex: -1,
        text: shown(piece)
    });
}

function place_pieces() {
    const stage = $("stage"),
        upright = stage.clientWidth < 560;
    stage.classList.toggle("upright", upright);
    for (const side of ["source", "target"]) {
        const row = $(`${side}-row`),
            want = tr[side];
        const same = row.children.length === want.length && want.every((p, i) => row.children[i].dataset.piece === p);
        if (same) continue;
        row.replaceChildren(...want.map((p, i) => piece_button(side, i, p)));
    }
    for (const side of ["source", "target"]) {
        // smaller letters, so that the stage does not grow
        const row = $(`${side}-row`);
        row.style.removeProperty("--small");
        const room = upright
            ? (stage.clientHeight - 28) / Math.max(1, row.scrollHeight)
            : (stage.clientWidth - 32) / Math.max(1, row.scrollWidth);
        if (room < 1) row.style.setProperty("--small", Math.max(0.45, 0.98 * room).toFixed(3));
    }
    $("target-row").querySelector(".piece")?.setAttribute("tabindex", 0);
    $("source-row").querySelector(".piece")?.setAttribute("tabindex", 0);
}

// The piece with highlighted lines: the one under the pointer, or during Play the newest one; -1: none
function newest() {
    if (tr.at >= 0) return tr.at;
    return tr.time < tr.target.length || player ? tr.time - 1 : -1;
}

function draw_lines() {
    const stage = $("stage"),
        svg = $("lines"),
        box = stage.getBoundingClientRect();
    const upright = stage.classList.contains("upright");
    const sources = [...$("source-row").children].map((e) => e.getBoundingClientRect());
    const targets = [...$("target-row").children].map((e) => e.getBoundingClientRect());
    svg.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    const now = newest(),
        out = [];
    for (let t = 0; t < Math.min(tr.time, targets.length); t++) {
        const w = weights_of(t),
            chosen = tr.from < 0 && (now < 0 || t === now);
        for (let s = 0; s < sources.length; s++) {
            const strong = chosen || s === tr.from;
            if (w[s] < 0.03 || (tr.at >= 0 && !chosen)) continue;
            const a = sources[s],
                b = targets[t];
            const [x0, y0] = upright
                ? [a.right - box.left, (a.top + a.bottom) / 2 - box.top]
                : [(a.left + a.right) / 2 - box.left, a.bottom - box.top];
            const [x1, y1] = upright
                ? [b.left - box.left, (b.top + b.bottom) / 2 - box.top]
                : [(b.left + b.right) / 2 - box.left, b.top - box.top];
            const bend = upright
                ? `C ${(x0 + x1) / 2} ${y0} ${(x0 + x1) / 2} ${y1}`
                : `C ${x0} ${(y0 + y1) / 2} ${x1} ${(y0 + y1) / 2}`;
            const opacity = strong ? w[s] ** 0.7 : 0.3 * w[s],
                wide = strong ? 1.5 + 5 * w[s] : 1.2 + 1.6 * w[s];
            out.push(
                `<path d="M ${x0} ${y0} ${bend} ${x1} ${y1}" opacity="${opacity.toFixed(3)}" ` +
                    `stroke-width="${wide.toFixed(2)}" class="${strong ? "strong" : "faint"}"/>`
            );
        }
    }
    svg.innerHTML = out.join("");
    const w = now >= 0 ? weights_of(now) : [];
    [...$("source-row").children].forEach((e, s) => {
        e.style.setProperty("--w", tr.from < 0 && w[s] ? Math.min(1, w[s] * 1.1).toFixed(3) : 0);
        e.classList.toggle("on", s === tr.from);
    });
    [...$("target-row").children].forEach((e, t) => {
        e.classList.toggle("later", t >= tr.time);
        e.classList.toggle("on", tr.from < 0 && t === now);
        const x = tr.from >= 0 && t < tr.time ? weights_of(t)[tr.from] : 0;
        e.style.setProperty("--w", Math.min(1, x * 1.1).toFixed(3));
        e.setAttribute("aria-label", t < tr.time ? looks_at(t) : `${shown(tr.target[t])}, later`);
    });
}

// “dog” looks at: Hund 0.83, Der 0.11
function looks_at(t) {
    const w = weights_of(t);
    const best = [...w.keys()]
        .sort((a, b) => w[b] - w[a])
        .filter((s) => w[s] >= 0.005)
        .slice(0, 4);
    const said = best.map((s) => `${shown(tr.source[s])} ${w[s].toFixed(2)}`);
    return `“${shown(tr.target[t])}” looks at ${said.join(", ")}`;
}

function seen_by(s) {
    const all = tr.target.slice(0, tr.time).map((piece, t) => [shown(piece), weights_of(t)[s]]);
    const best = all
        .filter((x) => x[1] >= 0.02)
        .sort((a, b) => b[1] - a[1])
        .slice(0, 4);
    const said = best.map((x) => `${x[0]} ${x[1].toFixed(2)}`).join(", ");
    return `“${shown(tr.source[s])}” is seen by ${said || "no word so far"}`;
}

function draw_thumbs() {
    const accent = getComputedStyle(document.documentElement).getPropertyValue("--accent");
    for (const thumb of $("thumbs").querySelectorAll("button")) {
        const chosen = thumb.dataset.head.split(",").map(Number),
            canvas = thumb.querySelector("canvas");
        const n = tr.source.length,
            m = Math.max(1, tr.target.length),
            context = canvas.getContext("2d");
        context.clearRect(0, 0, canvas.width, canvas.height);
        context.fillStyle = accent;
        const wide = canvas.width / Math.max(1, n),
            high = canvas.height / m;
        for (let t = 0; t < Math.min(tr.time, tr.target.length); t++) {
            const w = weights_of(t, chosen);
            for (let s = 0; s < n; s++) {
                context.globalAlpha = Math.min(1, w[s]);
                context.fillRect(s * wide, t * high, Math.max(1, wide - 1), Math.max(1, high - 1));
            }
        }
        context.globalAlpha = 1;
        thumb.setAttribute("aria-pressed", String(chosen[0] === tr.chosen[0] && chosen[1] === tr.chosen[1]));
    }
}

function draw_translation() {
    place_pieces();
    draw_lines();
    draw_thumbs();
    $("time").max = tr.target.length;
    $("time").value = tr.time;
    $("time-said").textContent = tr.target.length ? `${tr.time} of ${tr.target.length}` : "";
    const said =
        tr.from >= 0
            ? seen_by(tr.from)
            : newest() >= 0
              ? looks_at(newest())
              : tr.time
                ? "All words; point at one for its numbers"
                : "No word is written yet";
    $("numbers").textContent = `${said} (${head_name(tr.chosen)}).`;
}

// ---- computing: some steps of the search per task, so that typing is never delayed ----
function translate(sentence) {
    const run = ++tr.run,
        start = performance.now();
    stop_playing();
    put_sentence(sentence);
    $("judged").textContent = "";
    const why = !sentence.trim() ? "" : wasm.tr_begin(0) ? text(wasm.tr_why()) : null;
    if (why !== null) {
        // nothing to translate, or too much
        Object.assign(tr, { busy: false, at: -1, from: -1, source: [], target: [], time: 0 });
        $("said").textContent = why;
        $("took").textContent = "";
        draw_translation();
        return;
    }
    tr.busy = true;
    tr.at = tr.from = -1;
    tr.source = Array.from({ length: wasm.tr_source() }, (_, i) => text(wasm.tr_piece_read(i)));
    tr.target = [];
    tr.time = 0;
    const continue_search = () => {
        if (run !== tr.run) return; // the sentence has changed
        const end = performance.now() + 12;
        let more = true;
        while (more && performance.now() < end) more = wasm.tr_step();
        read_target();
        $("said").textContent = text(wasm.tr_text());
        if (more) {
            place_pieces();
            setTimeout(continue_search);
            return;
        }
        wasm.tr_watch();
        tr.busy = false;
        const size = tr.layers * tr.heads * tr.target.length * tr.source.length;
        tr.seen = Float32Array.from(floats(wasm.tr_seen(), size));
        tr.time = tr.target.length;
        tr.took = performance.now() - start;
        draw_translation();
        judge(sentence);
        document.dispatchEvent(new CustomEvent("translated", { detail: sentence }));
    };
    setTimeout(continue_search);
}

function read_target() {
    tr.target = Array.from({ length: wasm.tr_count() }, (_, i) => text(wasm.tr_piece_written(i)));
}

function judge(sentence) {
    const example = examples.find((e) => e.de === sentence),
        said = $("said").textContent;
    $("judged").textContent = example && example.en !== said ? `Wrong. It should be: ${example.en}` : "";
    $("took").textContent = `${Math.max(1, Math.round(tr.took))} ms`;
}

// ---- time ----
function stop_playing() {
    clearInterval(player);
    player = 0;
    $("play").textContent = "Play";
}
function play() {
    if (player) {
        stop_playing();
        return;
    }
    tr.time = 0;
    tr.at = tr.from = -1;
    $("play").textContent = "Stop";
    player = setInterval(() => {
        if (tr.time >= tr.target.length) stop_playing();
        else tr.time++;
        draw_translation();
    }, 550);
    draw_translation();
}

// ---- pointing ----
function point(target) {
    const piece = target.closest?.(".piece");
    const before = `${tr.at} ${tr.from}`;
    tr.at = tr.from = -1;
    if (piece?.dataset.side === "target" && Number(piece.dataset.i) < tr.time) tr.at = Number(piece.dataset.i);
    if (piece?.dataset.side === "source") tr.from = Number(piece.dataset.i);
    if (before !== `${tr.at} ${tr.from}`) draw_translation();
}

function walk_pieces(event) {
    const piece = event.target.closest(".piece");
    if (!piece) return;
    const upright = $("stage").classList.contains("upright");
    const along = upright ? { ArrowUp: -1, ArrowDown: 1 } : { ArrowLeft: -1, ArrowRight: 1 };
    const across = upright ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"];
    let to = null;
    if (event.key in along) to = piece.parentNode.children[Number(piece.dataset.i) + along[event.key]];
    else if (across.includes(event.key)) {
        const other = $(event.key === across[0] ? "source-row" : "target-row");
        if (other !== piece.parentNode)
            to = other.children[Math.min(other.children.length - 1, Number(piece.dataset.i))];
    } else return;
    event.preventDefault();
    to?.focus();
}

parts.push(() => {
    const model = from_base64("model");
    const at = wasm.tr_room(model.length);
    if (!at) throw new Error("no memory for the model");
    bytes(at, model.length).set(model);
    if (wasm.tr_load(model.length)) throw new Error(text(wasm.tr_why()));
    $("model-size").textContent = size_text(model.length);
    $("model-said").textContent = `${(wasm.tr_weights() / 1e6).toFixed(1)} million weights`;
    tr.layers = wasm.tr_layers();
    tr.heads = wasm.tr_heads();
    const thumb = (chosen) =>
        el(
            "button",
            {
                type: "button",
                "data-head": chosen.join(),
                "aria-label": head_name(chosen),
                onclick: () => {
                    tr.chosen = chosen;
                    draw_translation();
                }
            },
            el("canvas", { width: 132, height: 96, "aria-hidden": "true" }),
            el("span", { text: chosen[0] < 0 ? "mean" : `layer ${chosen[0] + 1} · ${chosen[1] + 1}` })
        );
    $("thumbs").append(thumb([-1, -1]));
    for (let l = 0; l < tr.layers; l++) for (let h = 0; h < tr.heads; h++) $("thumbs").append(thumb([l, h]));
    for (const e of examples)
        $("examples").append(
            el("button", {
                type: "button",
                text: e.de,
                lang: "de",
                onclick: () => {
                    $("german").value = e.de;
                    translate(e.de);
                }
            })
        );
    $("german").addEventListener("input", () => translate($("german").value));
    $("time").addEventListener("input", () => {
        stop_playing();
        tr.time = Number($("time").value);
        tr.at = tr.from = -1;
        draw_translation();
    });
    $("play").addEventListener("click", play);
    const stage = $("stage");
    stage.addEventListener("mouseover", (e) => point(e.target));
    stage.addEventListener("mouseleave", () => point(stage));
    stage.addEventListener("focusin", (e) => point(e.target));
    stage.addEventListener("focusout", () => point(stage));
    stage.addEventListener("keydown", walk_pieces);
    document.addEventListener("theme", draw_thumbs);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw_thumbs);
    addEventListener("resize", draw_translation);
    $("german").value = examples[0].de;
    translate(examples[0].de);
});
