// broken.js: a sentence with mistakes in the attention of the translator. translate.c computes both sides in the same
// buffers, one of them with the `mistake` of this number.

const faults = [
    {
        name: "A causal cross mask",
        how: 1,
        people: "mask[i][j] = j <= i ? 0 : -INFINITY;  // M_x, like M_d",
        ours: "opts.attn.k_lengths = lengths;  // M_x: only padding",
        note:
            "The decoder’s causal mask, also used in the cross-attention. The first English piece sees one German " +
            "piece, the second sees two. The end of the German sentence, often the verb, becomes visible too late."
    },
    {
        name: "Padding unmasked",
        how: 2,
        people: "opts.attn.mask = NULL;  // it is only padding",
        ours: "opts.attn.k_lengths = lengths;  // number of real pieces",
        note:
            "The sentence is in a batch with a longer one, so three pieces of padding follow it. Without a mask " +
            "they are keys like all others: the encoder mixes them into the words, and the decoder attends to them."
    },
    {
        name: "−1e9 in a row without keys",
        how: 3,
        people: "mask[i][j] = real[j] ? 0 : -1e9f;  // and nothing is real",
        ours: "opts.attn.k_lengths = lengths;  // { 0 }",
        note:
            "An entry of a batch with only padding. −1e9 is a number: all scores are alike, and softmax gives the " +
            "weight to keys that should be hidden. In attn.h such a row is zeros, and masked_rows counts it, so a " +
            "program can detect it. The words on either side are made up: there is nothing to translate."
    },
    {
        name: "NaN in a padded key",
        how: 4,
        people: "mask[i][j] = real[j] ? 0 : -1e9f;  // NaN - 1e9 is NaN",
        ours: "opts.attn.k_lengths = lengths;  // a hidden key is never read",
        note:
            "Memory after the sentence was never written, and contains NaN. Adding to a NaN gives NaN, and one NaN " +
            "among the scores makes the whole row NaN. attn.h treats a hidden key as if it did not exist."
    }
];
const fixed = 5; // how + 5: the same buffers, with attn.h’s mask
// Translated rightly, and made wrong by every mistake. A typed sentence may be neither
const kept_sentence = { de: "Hast du meinen Hund gesehen?", en: "Did you see my dog?" };

// chosen: the mistake; run: number of the computation; drawn: mistake and sentence on the page
const broken = { chosen: 0, run: 0, drawn: "" };

// Returns which pieces of a occur in b, in order: the others are marked
function kept(a, b) {
    const best = Array.from({ length: a.length + 1 }, () => new Uint8Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; i--)
        for (let j = b.length - 1; j >= 0; j--)
            best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    const keep = new Set();
    for (let i = 0, j = 0; i < a.length && j < b.length;) {
        if (a[i] === b[j]) {
            keep.add(i++);
            j++;
        } else if (best[i + 1][j] >= best[i][j + 1]) i++;
        else j++;
    }
    return keep;
}

// Computes one side, some steps per task; null if the sentence changed, because the page has only one translator
async function run_side(sentence, how) {
    const run = tr.run,
        mine = broken.run;
    put_sentence(sentence);
    if (wasm.tr_begin(how)) return null;
    for (let more = true; more;) {
        for (const end = performance.now() + 12; more && performance.now() < end;) more = wasm.tr_step();
        await new Promise((yes) => {
            setTimeout(yes);
        });
        if (run !== tr.run || mine !== broken.run) return null;
    }
    wasm.tr_watch();
    const n = wasm.tr_count(),
        keys = wasm.tr_source(),
        real = wasm.tr_real(),
        heads = wasm.tr_layers() * wasm.tr_heads();
    const seen = floats(wasm.tr_seen(), heads * n * keys),
        mean = Array.from({ length: n }, () => Array(keys).fill(0));
    let empty = 0;
    for (let h = 0; h < heads; h++)
        for (let t = 0; t < n; t++) {
            let sum = 0;
            for (let s = 0; s < keys; s++) {
                const w = seen[(h * n + t) * keys + s];
                mean[t][s] += w / heads;
                sum += w;
            }
            if (sum === 0) empty++;
        }
    return {
        words: text(wasm.tr_text())
            .split(/\s+/)
            .filter((w) => w),
        keys,
        real,
        mean,
        empty,
        rows: heads * n,
        read: Array.from({ length: keys }, (_, i) => shown(text(wasm.tr_piece_read(i)))),
        written: Array.from({ length: n }, (_, i) => shown(text(wasm.tr_piece_written(i))))
    };
}

// The cross-attention, mean of all heads: a row per English piece, a column per German piece, padding after a line
function heat(side) {
    const head = el("tr", {}, el("td"), ...side.read.map((p) => el("th", {}, el("span", { text: p }))));
    const body = el("tbody"),
        rows = side.mean.length ? side.mean : [Array(side.keys).fill(NaN)];
    rows.forEach((row, t) => {
        const tr = el("tr", {}, el("th", { text: side.written[t] ?? "" }));
        row.forEach((w, s) =>
            tr.append(
                el("td", {
                    class: `${s === side.real ? "first " : ""}${Number.isNaN(w) ? "nan" : "w"}`,
                    text: Number.isNaN(w) ? "NaN" : "",
                    style: `--w:${Number.isNaN(w) ? 0 : w.toFixed(3)}`,
                    title: Number.isNaN(w) ? "NaN" : w.toFixed(2)
                })
            )
        );
        body.append(tr);
    });
    const fill = side.real === side.keys ? "" : ` and ${side.keys - side.real} of padding`;
    return el(
        "table",
        { class: "heat", role: "img", "aria-label": `weights: ${rows.length} rows, ${side.real} German pieces${fill}` },
        el("thead", {}, head),
        body
    );
}

function draw_side(title, code, side, right) {
    const keep = kept(side.words, right.words),
        words = el("p", { class: "words", lang: "en" });
    side.words.forEach((w, i) => words.append(keep.has(i) ? w : el("mark", { text: w }), " "));
    if (!side.words.length) words.append(el("mark", { text: "no word: every number is NaN" }));
    const pads = side.mean.reduce((sum, row) => sum + row.slice(side.real).reduce((a, b) => a + b, 0), 0);
    const said = [
        side.mean.length ? `${Math.round((100 * pads) / side.mean.length)} % of the weight on padding` : "weights: NaN"
    ];
    if (side.keys === side.real) said.pop();
    if (side.rows) said.push(`masked rows: ${side.empty} of ${side.rows}${side.empty ? ", zeros" : ""}`);
    return el(
        "article",
        { class: "side", "aria-label": title },
        el("h3", { text: title }),
        el("pre", { tabindex: 0 }, el("code", { text: code })),
        words,
        el("div", { class: "heats" }, heat(side)),
        el("p", { class: "says", text: said.join(" · ") })
    );
}

// Returns a sentence that compares the words of the two sides; en: the right translation, undefined if unknown
function verdict(wrong, right, en) {
    if (wrong === right) return "The mistake changes no word of this sentence, only the weights.";
    if (en === undefined)
        return "The page does not know the right translation of this sentence. Either side can be the better one by chance.";
    if (right === en) return "";
    return wrong === en
        ? "The mistake translates this sentence better, by chance."
        : `Both sides are wrong. It should be: ${en}`;
}

// Each side takes as long as a translation, so this waits until typing pauses
function draw_broken() {
    const f = faults[broken.chosen];
    $("fault-note").textContent = f.note;
    [...$("faults").children].forEach((b, i) => b.setAttribute("aria-pressed", String(i === broken.chosen)));
    const mine = ++broken.run;
    setTimeout(async () => {
        if (mine !== broken.run || tr.busy) return; // called again at the end of the translation
        const sentence = $("broken-typed").checked ? $("german").value : kept_sentence.de,
            drawn = `${f.how} ${sentence}`;
        if (drawn === broken.drawn) return;
        const wrong = await run_side(sentence, f.how),
            right = wrong && (await run_side(sentence, f.how + fixed));
        if (!right) return;
        broken.drawn = drawn;
        const en = [kept_sentence, ...examples].find((e) => e.de === sentence)?.en,
            made_up = f.how === 3;
        $("broken-of").textContent = made_up ? "No sentence, three pieces of padding" : `The sentence: ${sentence}`;
        $("broken-verdict").textContent = made_up ? "" : verdict(wrong.words.join(" "), right.words.join(" "), en);
        $("sides").replaceChildren(
            draw_side("As people write it", f.people, wrong, right),
            draw_side("attn.h", f.ours, right, right)
        );
    }, 200);
}

parts.push(() => {
    faults.forEach((f, i) =>
        $("faults").append(
            el("button", {
                type: "button",
                text: f.name,
                onclick: () => {
                    broken.chosen = i;
                    draw_broken();
                }
            })
        )
    );
    document.addEventListener("translated", draw_broken);
    $("broken-typed").addEventListener("change", draw_broken);
});
