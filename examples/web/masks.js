// masks.js: the mask lab. lab_draw of page.c makes the matrices, and the reasons for hidden cells, with attn_mask_*.

const most_tokens = 16,
    most_sentences = 2,
    lab_batch = 4,
    lab_n = 32;
const bottom_right = 1,
    top_left = 2; // attn_causal
const reason_bits = { padding: 1, length: 2, causal: 4, left: 8, right: 16 };
const nothing = { causal: 0, padding: 0, left: 0, right: 0, keys: -1, offset: 0 };
const kinds = [
    { id: "e", name: "encoder, self", sub: "e", what: "encoder self-attention", rows: "source", keys: "source" },
    { id: "d", name: "decoder, self", sub: "d", what: "decoder self-attention", rows: "target", keys: "target" },
    { id: "x", name: "cross", sub: "x", what: "cross-attention", rows: "target", keys: "source" }
];
const usual = { e: { padding: 1 }, d: { padding: 1, causal: top_left }, x: { padding: 1 } };
const presets = [
    {
        name: "Mi chiamo Luke",
        source: ["<s> Mi chiamo Luke </s> <pad>"],
        target: ["<s> My name is Luke </s> <pad> <pad>"],
        note:
            "The three masks of a translator. The encoder hides padding; the decoder also hides the future. " +
            "Cross-attention hides only the padding of the source, because the whole source is known before the " +
            "first word is written."
    },
    {
        name: "A batch, [2, 1, 5, 6]",
        source: ["Der Hund läuft schnell <pad> <pad>", "Sie singt laut <pad> <pad> <pad>"],
        target: ["<s> The dog runs fast", "<s> She sings loudly <pad>"],
        note:
            "Two sentences of different length in one call: batch 2, heads 1 (all heads share the mask), 5 rows, " +
            "6 keys. Padding hides columns, so all rows of a sentence are alike; a mask of shape [2, 1, 1, 6], or " +
            "two lengths, have the same effect."
    },
    {
        name: "Left padding",
        source: ["<pad> <pad> Wie geht es dir"],
        target: ["<pad> <pad> <s> How are you"],
        note:
            "Padding on the left, as in decoders that generate in batches. Causal and padding masks together hide " +
            "every key from the first rows of the decoder. Their output is zeros; a softmax over no keys would be " +
            "NaN."
    },
    {
        name: "More rows than keys",
        source: ["a b c"],
        target: ["p q r s t"],
        set: { x: { causal: bottom_right, padding: 1 } },
        note:
            "Bottom-right causal: the last row is at the last key. With five rows and three keys the first two " +
            "rows are before the first key and see nothing. With top-left every row sees a key."
    },
    {
        name: "Mistral’s window",
        source: ["Le vent se lève"],
        target: ["<s> The wind is rising , we must try"],
        set: { d: { causal: top_left, padding: 1, left: 4 } },
        note:
            "A sliding window: each row sees itself and the three keys before it. window_left = 4 includes the " +
            "row’s own key. Earlier keys still reach a row through the layers below."
    },
    {
        name: "A wrong, causal M_x",
        source: ["<s> Mi chiamo Luke </s> <pad>"],
        target: ["<s> My name is Luke </s> <pad> <pad>"],
        set: { x: { causal: top_left, padding: 1 } },
        warn: "x",
        note:
            "The most common mistake. A causal mask in cross-attention hides word 3 of one language from word 2 of " +
            "the other, although their positions are unrelated. The row that must produce “My” sees only <s>."
    }
];

const lab = { source: [], target: [], set: {}, cards: {} };

const split = (s) =>
    s
        .trim()
        .split(/\s+/)
        .filter((t) => t)
        .slice(0, most_tokens);

// The sentences of one side as rows of equal length: shorter ones end with <pad>
function side(name) {
    const all = lab[name].map(split);
    const n = Math.max(...all.map((a) => a.length));
    return { n, tokens: all.map((a) => a.concat(Array(n - a.length).fill("<pad>"))) };
}

// Token numbers: 0 is padding, the others are numbered in order of appearance
function numbers(tokens, known) {
    return tokens.flat().map((t) => {
        if (t === "<pad>") return 0;
        if (!known.has(t)) known.set(t, 11 + known.size);
        return known.get(t);
    });
}

// Gets one matrix from page.c: { n_q, n_k, hidden[], why[], empty, out[], rows, keys, ids }
function compute(kind) {
    const rows = side(kind.rows),
        keys = side(kind.keys),
        known = new Map(),
        set = lab.set[kind.id];
    const row_ids = numbers(rows.tokens, known),
        key_ids = numbers(keys.tokens, known),
        batch = lab.source.length;
    const limit = set.keys < 0 ? -1 : Math.min(set.keys, keys.n);
    const at = wasm.lab(),
        most = lab_batch * lab_n;
    const to = ints(at, 10 + 2 * most);
    to.set([
        kind.id === "x" ? 1 : 0,
        batch,
        rows.n,
        keys.n,
        set.causal,
        set.padding,
        set.left,
        set.right,
        limit,
        set.offset
    ]);
    to.set(row_ids, 10);
    to.set(key_ids, 10 + most);
    const cells = batch * rows.n * keys.n;
    const result = { batch, n_q: rows.n, n_k: keys.n, rows: rows.tokens, keys: keys.tokens, key_ids, set, limit, kind };
    result.status = wasm.lab_draw();
    if (result.status) return Object.assign(result, { error: text(wasm.why()) });
    result.hidden = Array.from(floats(wasm.lab_matrix(), cells), (x) => x === -Infinity);
    result.why = Array.from(bytes(wasm.lab_reasons(), cells));
    result.empty = wasm.lab_call();
    if (result.empty === -1) return Object.assign(result, { error: text(wasm.why()) });
    if (result.empty === -2)
        result.error = "attn_sdpa and attn_mask_* disagree about this mask. This is a defect of attn.h.";
    result.out = Array.from(floats(wasm.lab_out(), batch * rows.n * 4));
    result.end = limit < 0 ? keys.n : limit;
    result.pos = set.offset + (set.causal === bottom_right ? result.end - rows.n : 0);
    return result;
}

// ---- sentences ----
const word = (t) => `“${t}”`;
const plural = (n, one, many = one + "s") => `${n} ${n === 1 ? one : many}`;

// Explains why cell (i, j) of sentence b is hidden or visible, with the reasons of page.c
function why_cell(m, b, i, j) {
    const row = word(m.rows[b][i]),
        key = word(m.keys[b][j]),
        bits = m.why[(b * m.n_q + i) * m.n_k + j],
        p = i + m.pos;
    const stands = m.pos ? ` (row ${i} is at position ${p}: offset ${m.pos})` : "";
    const said = [];
    if (bits & reason_bits.padding) said.push("it is padding, and padding hides the whole column");
    if (bits & reason_bits.length)
        said.push(`only the first ${plural(m.limit, "key")} exist${m.limit === 1 ? "s" : ""}`);
    if (bits & reason_bits.causal)
        said.push(
            p < 0
                ? `the row is at position ${p}, before the first key${m.set.causal === bottom_right ? ", counted from the end" : ""}`
                : `it comes later: key ${j} is after position ${p}${stands}`
        );
    if (bits & reason_bits.left)
        said.push(
            `it is too far back: the window ${
                m.set.left > 1 ? `begins at ${p - m.set.left + 1}` : "has only the row’s own key"
            }${stands}`
        );
    if (bits & reason_bits.right) said.push(`it is too far ahead: the window ends at ${p + m.set.right - 1}${stands}`);
    if (!said.length) return `${row} sees ${key}: nothing hides it.`;
    return `${row} does not see ${key}: ${said.join("; and ")}.`;
}

function why_row(m, b, i) {
    const start = (b * m.n_q + i) * m.n_k;
    const seen = m.hidden.slice(start, start + m.n_k).filter((h) => !h).length;
    if (seen) return `${word(m.rows[b][i])} sees ${seen} of ${plural(m.n_k, "key")}.`;
    const out = m.out.slice((b * m.n_q + i) * 4, (b * m.n_q + i) * 4 + 4);
    const row = word(m.rows[b][i]);
    return `${row} sees nothing at all. Its output: ${out.join(" ")}, not NaN; masked_rows counts it.`;
}

function summary(set) {
    const said = [];
    if (set.causal) said.push(set.causal === top_left ? "causal, top-left" : "causal, bottom-right");
    if (set.padding) said.push("padding");
    if (set.left || set.right) said.push(`window ${set.left || "∞"} / ${set.right || "∞"}`);
    if (set.keys >= 0) said.push(`first ${plural(set.keys, "key")}`);
    if (set.offset) said.push(`offset ${set.offset}`);
    return said.join(" · ") || "nothing is hidden";
}

// ---- one matrix on the page ----
const cell_class = (bits) => (!bits ? "c see" : `c hid ${bits & 1 ? "r0" : bits & 2 ? "r1" : bits & 4 ? "r2" : "r3"}`);

// Widths and heights in pixels; the grid always stays inside its card, so that nothing moves during typing
function sizes(card, m) {
    const longest = (all) => Math.max(...all.flat().map((t) => t.length));
    const side = Math.min(66, 10 + longest(m.rows) * 7.6),
        end = m.empty > 0 ? 24 : 0;
    const top = Math.max(22, Math.min(m.batch > 1 ? 44 : 58, 8 + longest(m.keys) * 7.6));
    const wide = (card.area.clientWidth - side - end - 8) / m.n_k - 2;
    const high = (card.area.clientHeight - m.batch * (top + 10)) / (m.batch * m.n_q) - 2;
    return { side, top, end, cell: Math.floor(Math.max(12, Math.min(44, wide, high))) };
}

function draw_table(card, m, b, px) {
    const name = m.batch > 1 ? `M_${m.kind.id}, sentence ${b + 1}` : `M_${m.kind.id}`;
    const head = el("tr", {}, el("td"));
    m.keys[b].forEach((t) => head.append(el("th", { scope: "col", title: t }, el("span", { text: t }))));
    const body = el("tbody");
    for (let i = 0; i < m.n_q; i++) {
        const start = (b * m.n_q + i) * m.n_k,
            empty = m.hidden.slice(start, start + m.n_k).every((h) => h);
        const tr = el("tr", { class: empty ? "empty" : null });
        tr.append(
            el("th", {
                scope: "row",
                title: m.rows[b][i],
                text: m.rows[b][i],
                tabindex: -1,
                "data-at": `${b},${i},-1`,
                "aria-label": empty ? `${m.rows[b][i]}: sees nothing, output zeros` : m.rows[b][i]
            })
        );
        for (let j = 0; j < m.n_k; j++) {
            const bits = m.why[start + j],
                hidden = m.hidden[start + j];
            tr.append(
                el("td", {
                    class: cell_class(hidden ? bits : 0) + (px.cell < 19 ? " tiny" : ""),
                    tabindex: -1,
                    role: "gridcell",
                    "data-at": `${b},${i},${j}`,
                    "aria-label": `${m.keys[b][j]}: ${hidden ? "hidden" : "visible"}`,
                    text: hidden ? "−∞" : "0"
                })
            );
        }
        if (px.end) tr.append(el("td", { class: "zero", "aria-hidden": "true", text: empty ? "→0" : "" }));
        body.append(tr);
    }
    const table = el(
        "table",
        {
            class: "matrix",
            role: "grid",
            "aria-label": name,
            style: `--cell:${px.cell}px; --side:${px.side}px; --top:${px.top}px`
        },
        el("thead", {}, head),
        body
    );
    table.querySelector("tbody [data-at]").tabIndex = 0;
    return table;
}

function draw(kind) {
    const card = lab.cards[kind.id],
        m = compute(kind);
    const active = card.area.contains(document.activeElement) ? document.activeElement.dataset.at : null;
    card.m = m;
    card.says.textContent = summary(m.set);
    card.shape.textContent = `[${m.batch}, 1, ${m.n_q}, ${m.n_k}]`;
    card.empties.textContent =
        m.empty > 0 ? `${plural(m.empty, "row")} see${m.empty === 1 ? "s" : ""} nothing: zeros, not NaN` : "";
    card.area.replaceChildren();
    idle(card);
    if (m.error) {
        card.why.textContent = m.error;
        return;
    }
    if (!m.n_q || !m.n_k) {
        card.why.textContent = "One side is without words: nothing to draw.";
        return;
    }
    const px = sizes(card, m);
    for (let b = 0; b < m.batch; b++) card.area.append(draw_table(card, m, b, px));
    if (active) card.area.querySelector(`[data-at="${active}"]`)?.focus();
}

function idle(card) {
    card.why.dataset.idle = "";
    card.why.textContent = "Point at a cell, or move to it with the arrow keys.";
}

// Shows the reason in the card: for a cell, or for a row if the pointer is on its name
function explain(card, target) {
    const at = target.closest?.("[data-at]");
    if (!at) return;
    const [b, i, j] = at.dataset.at.split(",").map(Number);
    card.area.querySelectorAll(".on").forEach((x) => x.classList.remove("on"));
    const row = why_row(card.m, b, i);
    const empty = row.includes("nothing at all");
    card.why.textContent = j < 0 ? row : why_cell(card.m, b, i, j) + (empty ? ` ${row}` : "");
    delete card.why.dataset.idle;
    at.classList.add("on");
    at.closest("tr").querySelector("th").classList.add("on");
    if (j >= 0) at.closest("table").querySelectorAll("thead th")[j].classList.add("on");
}

function walk(card, event) {
    const at = event.target.closest("[data-at]");
    if (!at) return;
    let [b, i, j] = at.dataset.at.split(",").map(Number);
    const m = card.m;
    switch (event.key) {
        case "ArrowUp":
            i--;
            break;
        case "ArrowDown":
            i++;
            break;
        case "ArrowLeft":
            j--;
            break;
        case "ArrowRight":
            j++;
            break;
        case "Home":
            j = 0;
            break;
        case "End":
            j = m.n_k - 1;
            break;
        default:
            return;
    }
    event.preventDefault();
    if (i < 0 && b > 0) {
        b--;
        i = m.n_q - 1;
    }
    if (i >= m.n_q && b + 1 < m.batch) {
        b++;
        i = 0;
    }
    const to = card.area.querySelector(`[data-at="${b},${i},${j}"]`);
    if (!to) return;
    card.area.querySelectorAll('[tabindex="0"]').forEach((x) => {
        x.tabIndex = -1;
    });
    to.tabIndex = 0;
    to.focus();
}

// ---- the switches of a matrix ----
function number_field(kind, key, label, title, least) {
    const input = el("input", {
        type: "number",
        min: least,
        max: 99,
        inputmode: "numeric",
        title,
        "data-set": key,
        placeholder: key === "keys" ? "all" : key === "offset" ? "0" : "∞",
        oninput: () => {
            const empty = input.value === "" || Number.isNaN(input.valueAsNumber);
            const x = empty ? nothing[key] : Math.trunc(Math.min(99, Math.max(least, input.valueAsNumber)));
            lab.set[kind.id][key] = x;
            changed();
        }
    });
    return el("label", { class: "field", title }, el("span", { text: label }), input);
}

function switches(kind) {
    const seg = el("fieldset", { class: "seg" }, el("legend", { class: "sr", text: "Causal" }));
    ["not causal", "bottom-right", "top-left"].forEach((label, i) => {
        seg.append(
            el(
                "label",
                {},
                el("input", {
                    type: "radio",
                    name: `causal-${kind.id}`,
                    value: i,
                    "data-set": "causal",
                    onchange: () => {
                        lab.set[kind.id].causal = i;
                        changed();
                    }
                }),
                label
            )
        );
    });
    const padding = el("input", {
        type: "checkbox",
        "data-set": "padding",
        onchange: () => {
            lab.set[kind.id].padding = padding.checked ? 1 : 0;
            changed();
        }
    });
    return el(
        "fieldset",
        { class: "sets" },
        el("legend", { class: "sr", text: `Settings of M_${kind.id}` }),
        el("div", { class: "wide" }, seg, el("label", { class: "tick" }, padding, "hide padding")),
        number_field(kind, "left", "window left", "keys backwards, including the row’s own; empty: unlimited", 0),
        number_field(kind, "right", "right", "keys forwards, including the row’s own; empty: unlimited", 0),
        number_field(kind, "keys", "first keys", "number of keys that exist; empty: all", 0),
        number_field(kind, "offset", "offset", "position of row 0 (q_pos)", -99)
    );
}

function show_switches(kind) {
    const set = lab.set[kind.id];
    for (const input of lab.cards[kind.id].root.querySelectorAll("[data-set]")) {
        const x = set[input.dataset.set];
        if (input.type === "radio") input.checked = Number(input.value) === x;
        else if (input.type === "checkbox") input.checked = !!x;
        else input.value = x === nothing[input.dataset.set] ? "" : x;
    }
}

// ---- as C ----
const c_string = (s) => `"${s.replace(/[\\"]/g, "\\$&").replace(/\?/g, "\\?")}"`;

// items as lines of at most 100 columns
function c_list(items) {
    const lines = [""];
    for (const [i, item] of items.entries()) {
        const next = item + (i + 1 < items.length ? "," : "");
        if (lines.at(-1).length + next.length > 88) lines.push("");
        lines[lines.length - 1] += (lines.at(-1) ? " " : "") + next;
    }
    return lines.join("\n        ");
}

function as_c(kind) {
    const m = lab.cards[kind.id].m,
        set = m.set;
    const padding = !set.padding
        ? []
        : [
              kind.id === "x"
                  ? "    attn_mask_cross(padding, key_ids, PAD, BATCH, N_Q, N_K);"
                  : "    attn_mask_padding(padding, key_ids, PAD, BATCH, N_K);",
              "    a.mask = padding;  a.mask_shape[0] = BATCH;  a.mask_shape[1] = 1;  a.mask_shape[2] = N_Q;"
          ];
    const options = [];
    if (set.causal) options.push(`    a.causal = ATTN_CAUSAL_${set.causal === top_left ? "TOP_LEFT" : "BOTTOM_RIGHT"};`);
    if (set.left) options.push(`    a.window_left = ${set.left};`);
    if (set.right) options.push(`    a.window_right = ${set.right};`);
    if (m.limit >= 0) options.push("    a.k_lengths = lengths;");
    if (set.offset) options.push(`    a.q_pos = ${set.offset};`);
    const names = (name, tokens, n) => `    static const char *const ${name}[BATCH * ${n}] = {
        ${c_list(tokens.flat().map(c_string))} };`;
    return `/* M_${kind.id}, ${kind.what}: ${summary(set)}

   cc -O2 mask.c -o mask && ./mask        with attn.h beside this file

   q is 0 here, so every score is 0 and the program prints only the mask: 0 visible, -inf hidden. */
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>

enum { PAD = 0, BATCH = ${m.batch}, N_Q = ${m.n_q}, N_K = ${m.n_k}, HEADS = 1, DIM = 4 };

int main(void)
{
${names("rows", m.rows, "N_Q")}
${names("keys", m.keys, "N_K")}
${[
    ...(set.padding
        ? [
              `    static const int key_ids[BATCH * N_K] = { ${c_list(m.key_ids.map(String))} };`,
              "    static float padding[BATCH * N_Q * N_K];"
          ]
        : []),
    ...(m.limit >= 0 ? [`    static const int lengths[BATCH] = { ${Array(m.batch).fill(m.limit).join(", ")} };`] : [])
]
    .map((s) => s + "\n")
    .join("")}    static float q[BATCH * N_Q * HEADS * DIM], k[BATCH * N_K * HEADS * DIM], v[BATCH * N_K * HEADS * DIM];
    static float out[BATCH * N_Q * HEADS * DIM], scores[BATCH * HEADS * N_Q * N_K];
    size_t empty_rows;

    attn_args a = attn_args_for(BATCH, N_Q, N_K, HEADS, DIM);
    a.out = out;  a.q = q;  a.k = k;  a.v = v;
${[...padding, ...options]
    .map((s) => s + "\n")
    .join("")}    a.weights = scores;  a.weights_stage = ATTN_SCORES_BIASED;     /* for printing; omit in real use */
    a.masked_rows = &empty_rows;
    if (attn_sdpa(&a) != ATTN_OK) return 1;                         /* ATTN_DEBUG prints the reason */

    for (int b = 0; b < BATCH; b++)
        attn_mask_print(scores + b * N_Q * N_K, N_Q, N_K, rows + b * N_Q, keys + b * N_K);
    printf("rows that see nothing, and are zeros: %d\\n", (int)empty_rows);
    return 0;
}
`;
}

// ---- the lab as a whole ----
function changed() {
    for (const b of $("presets").children) b.setAttribute("aria-pressed", "false");
    kinds.forEach(draw);
}

function show_tokens() {
    const fields = [];
    lab.source.forEach((_, b) => {
        for (const name of ["source", "target"]) {
            const label = lab.source.length > 1 ? `${name} ${b + 1}` : name;
            fields.push(
                el(
                    "label",
                    {},
                    label,
                    el("input", {
                        id: `${name}-${b}`,
                        value: lab[name][b],
                        spellcheck: "false",
                        autocomplete: "off",
                        autocapitalize: "off",
                        oninput: (e) => {
                            lab[name][b] = e.target.value;
                            changed();
                        }
                    })
                )
            );
        }
    });
    const two = lab.source.length > 1;
    fields.push(
        el(
            "div",
            { class: "more" },
            el("button", {
                type: "button",
                class: "quiet",
                id: "second",
                text: two ? "Without the second sentence" : "A second sentence",
                onclick: () => {
                    if (two) {
                        lab.source.pop();
                        lab.target.pop();
                    } else {
                        lab.source.push("Sie singt");
                        lab.target.push("<s> She sings");
                    }
                    show_tokens();
                    changed();
                    $("second").focus();
                }
            }),
            el("span", { text: "Separate words by blanks; <pad> is padding; at most 16 words per side." })
        )
    );
    $("tokens").replaceChildren(...fields);
}

function choose(preset) {
    lab.source = [...preset.source];
    lab.target = [...preset.target];
    for (const kind of kinds) {
        lab.set[kind.id] = { ...nothing, ...(preset.set?.[kind.id] ?? usual[kind.id]) };
        show_switches(kind);
        lab.cards[kind.id].root.classList.toggle("warn", preset.warn === kind.id);
    }
    show_tokens();
    changed();
    $("preset-note").textContent = preset.note;
    [...$("presets").children].forEach((b, i) => b.setAttribute("aria-pressed", String(presets[i] === preset)));
}

parts.push(() => {
    for (const kind of kinds) {
        const card = {
            area: el("div", { class: "area" }),
            says: el("p", { class: "says" }),
            shape: el("span", { class: "shape" }),
            empties: el("p", { class: "says empties" }),
            why: el("p", { class: "why", id: `why-${kind.id}` })
        };
        card.root = el(
            "article",
            { class: "card", "data-kind": kind.id, "aria-label": `M_${kind.id}, ${kind.what}` },
            el(
                "header",
                {},
                el("h3", {}, el("i", {}, "M", el("sub", { text: kind.sub })), kind.name),
                card.shape,
                card.says,
                card.empties
            ),
            card.area,
            card.why,
            switches(kind),
            el(
                "div",
                { class: "do" },
                el("button", {
                    type: "button",
                    class: "copy",
                    text: "Copy as C",
                    onclick: () => show_code(`M_${kind.id} as C`, as_c(kind))
                })
            )
        );
        card.area.addEventListener("mouseover", (e) => explain(card, e.target));
        card.area.addEventListener("focusin", (e) => {
            explain(card, e.target);
            e.target.setAttribute("aria-describedby", card.why.id);
        });
        card.area.addEventListener("keydown", (e) => walk(card, e));
        lab.cards[kind.id] = card;
        $("cards").append(card.root);
    }
    for (const preset of presets)
        $("presets").append(el("button", { type: "button", text: preset.name, onclick: () => choose(preset) }));
    choose(presets[0]);
    let width = innerWidth;
    addEventListener("resize", () => {
        if (innerWidth !== width) {
            width = innerWidth;
            kinds.forEach(draw);
        }
    });
});
