// check.js CHROMIUM ROOT [PAGE MODEL]: what the page does in a browser, compared with the C library.
// Each check says what it would catch. Screenshots go to build/page. Last line: N passed, M failed.
const { start } = require("./browser.js");
const { listen } = require("./listen.js");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs"),
    path = require("node:path");
const [chromium, root, page = "build/page/index.html", model = "examples/translate/german-english.bin"] =
    process.argv.slice(2);
const out = path.join(root, "build/page"),
    built = path.join(root, page),
    file = `file://${built}`;

let passed = 0,
    failed = 0;
function check(what, right, more = "") {
    if (right) {
        passed++;
        return;
    }
    failed++;
    console.log(`page: FAILED ${what}${more ? `: ${more}` : ""}`);
}
async function part(name, f) {
    try {
        await f();
    } catch (e) {
        check(name, false, e.stack);
    }
}

// ---- the mask lab ----

// every cell of a card as the page shows it, with the sentence that pointing at it gives
const read_card = (id) => `(() => {
  const root = document.querySelector('.card[data-kind="${id}"]'), area = root.querySelector(".area");
  const cells = [...area.querySelectorAll("td.c")].map((td) => {
    td.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
    const [b, i, j] = td.dataset.at.split(",").map(Number);
    return { b, i, j, text: td.textContent, label: td.getAttribute("aria-label"), class: td.className,
             why: root.querySelector(".why").textContent };
  });
  root.querySelector(".copy").click();
  const code = document.getElementById("code-text").textContent;
  document.getElementById("code").close();
  const zeros = [...area.querySelectorAll("tr.empty th")].map((th) => th.textContent);
  const m = lab.cards["${id}"].m;
  return { cells, code, zeros, says: root.querySelector(".empties").textContent, n_q: m.n_q, n_k: m.n_k, batch: m.batch,
           set: m.set, limit: m.limit, rows: m.rows, keys: m.keys, out: m.out };
})()`;

// Why must a cell be hidden? Written down again from the manual of attn.h, sharing nothing with the page
function reasons(card, b, i, j) {
    const { set } = card,
        end = card.limit < 0 ? card.n_k : card.limit;
    const at = i + set.offset + (set.causal === 1 ? end - card.n_q : 0),
        why = [];
    if (set.padding && card.keys[b][j] === "<pad>") why.push("padding");
    if (j >= end) why.push("exist");
    if (set.causal && j > at) why.push(at < 0 ? "before the first key" : "comes later");
    if (set.left && j <= at - set.left) why.push("too far back");
    if (set.right && j >= at + set.right) why.push("too far ahead");
    return why;
}
const all_words = ["padding, and", "exist", "before the first key", "comes later", "too far back", "too far ahead"];

// The snippet as a program of its own: its matrix must be the page's
let library = null;
function run_snippet(name, code) {
    const dir = path.join(out, "snippets");
    fs.mkdirSync(dir, { recursive: true });
    const c = path.join(dir, `${name}.c`),
        program = path.join(dir, name);
    const cc = process.env.CC || "cc",
        silent = { stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" };
    if (!library) {
        // attn.h is compiled once, the snippets against its declarations
        fs.writeFileSync(
            path.join(dir, "attn.c"),
            '#define ATTN_DEBUG\n#define ATTN_IMPLEMENTATION\n#include "attn.h"\n'
        );
        library = path.join(dir, "attn.o");
        execFileSync(cc, ["-O1", "-I", root, "-c", path.join(dir, "attn.c"), "-o", library], silent);
    }
    fs.writeFileSync(c, code.replace("#define ATTN_IMPLEMENTATION\n", ""));
    execFileSync(cc, ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-I", root, c, library, "-o", program], silent);
    return execFileSync(program, silent);
}

function check_card(name, card) {
    const hidden = [],
        wrong = [];
    for (const cell of card.cells) {
        const why = reasons(card, cell.b, cell.i, cell.j);
        hidden.push(why.length > 0);
        const shown = cell.text === "−∞",
            said = /does not see/.test(cell.why),
            labelled = / hidden$/.test(cell.label);
        const only = all_words.filter((w) => cell.why.includes(w)).length;
        if (
            shown !== why.length > 0 ||
            said !== shown ||
            labelled !== shown ||
            /\bsee\b/.test(cell.class) === shown ||
            !why.every((w) => cell.why.includes(w)) ||
            only !== why.length
        )
            wrong.push(`(${cell.b},${cell.i},${cell.j}) shows ${cell.text}, should be [${why}], says: ${cell.why}`);
    }
    check(`${name}: a cell or its reason is not what the manual says`, !wrong.length, wrong.slice(0, 3).join("\n    "));
    check(
        `${name}: cells are missing`,
        card.cells.length === card.batch * card.n_q * card.n_k && card.cells.length > 0
    );

    let printed = "";
    try {
        printed = run_snippet(name.replace(/\W+/g, "_"), card.code);
    } catch (e) {
        check(`${name}: "Copy as C" does not compile and run`, false, String(e.stderr || e));
        return;
    }
    const lines = printed.trimEnd().split("\n"),
        last = lines.pop();
    const matrix = lines.filter((l) => /(^|\s)(0|-inf)$/.test(l)).map((l) => l.trim().split(/\s+/).slice(-card.n_k));
    const same =
        matrix.length === card.batch * card.n_q &&
        matrix.flat().every((x, i) => (x === "-inf") === (card.cells[i].text === "−∞"));
    check(`${name}: what the snippet prints is not the page's matrix`, same, printed);

    const empties = [];
    for (let r = 0; r < card.batch * card.n_q; r++)
        if (hidden.slice(r * card.n_k, (r + 1) * card.n_k).every((h) => h)) empties.push(r);
    check(
        `${name}: rows that see nothing are not marked, or not counted as C counts them`,
        card.zeros.length === empties.length &&
            Number(last.match(/\d+$/)[0]) === empties.length &&
            (empties.length === 0) === (card.says === "") &&
            empties.every((r) => card.out.slice(4 * r, 4 * r + 4).every((x) => x === 0)),
        `${card.zeros} / ${last} / ${card.says}`
    );
    return { hidden, empties };
}

const grid = (hidden, n_k) => hidden.map((h, i) => (h ? "." : "1") + (i % n_k === n_k - 1 ? "/" : "")).join("");

async function mask_lab(p) {
    const n = await p.eval("presets.length"),
        seen = {};
    check("presets are missing", n >= 6);
    for (let i = 0; i < n; i++) {
        await p.eval(`$("presets").children[${i}].click()`);
        const name = await p.eval(`presets[${i}].name`);
        for (const id of ["e", "d", "x"]) {
            const card = await p.eval(read_card(id));
            seen[`${i}${id}`] = { card, ...check_card(`${name} M_${id}`, card) };
        }
    }
    // a few by hand: both sides could share a mistake
    const is = (key, want) =>
        check(
            `matrix ${key} is not the one drawn by hand`,
            grid(seen[key].hidden, seen[key].card.n_k) === want,
            grid(seen[key].hidden, seen[key].card.n_k)
        );
    is("0d", "1......./11....../111...../1111..../11111.../111111../111111../111111../");
    is("0x", "11111./".repeat(8));
    is("1x", "1111../".repeat(5) + "111.../".repeat(5));
    is("2d", "....../....../..1.../..11../..111./..1111/");
    is("3x", ".../.../1../11./111/");
    is("4d", "1......../11......./111....../1111...../.1111..../..1111.../...1111../....1111./.....1111/");
    is("5x", "1...../11..../111.../1111../11111./11111./11111./11111./");

    // switches, as a hand would move them
    const set = (id, key, value) =>
        p.eval(`(() => {
    const all = [...document.querySelectorAll('.card[data-kind="${id}"] [data-set="${key}"]')];
    const input = all.length > 1 ? all[${Number(value)}] : all[0];
    if (input.type === "radio") input.click();
    else if (input.type === "checkbox") { if (input.checked !== !!${value}) input.click(); }
    else { input.value = "${value}"; input.dispatchEvent(new Event("input")); }
  })()`);
    await p.eval(`$("presets").children[0].click()`);
    for (const [key, value] of [
        ["causal", 1],
        ["left", 3],
        ["right", 2],
        ["keys", 5],
        ["offset", 1]
    ]) {
        await set("x", key, value);
        check_card(`switch ${key}`, await p.eval(read_card("x")));
    }
    await set("x", "causal", 0);
    await set("x", "padding", 0);
    check_card("without padding", await p.eval(read_card("x")));
    await set("x", "keys", 0);
    check_card("no keys exist", await p.eval(read_card("x")));
    await set("d", "offset", -2);
    check_card("negative offset", await p.eval(read_card("d")));

    // words that C has to quote, and batches of unequal sentences
    await p.eval(`(() => { $("presets").children[0].click(); $("second").click();
    const type = (id, s) => { $(id).value = s; $(id).dispatchEvent(new Event("input")); };
    type("source-0", 'a"b c\\\\d ??/ %s äöü <pad>'); type("target-1", "one"); })()`);
    for (const id of ["e", "d", "x"]) check_card(`odd words M_${id}`, await p.eval(read_card(id)));
    await p.eval(
        `(() => { $("second").click(); $("source-0").value = " "; $("source-0").dispatchEvent(new Event("input")); })()`
    );
    check("a side without words is not said", /without words/.test(await p.eval(`lab.cards.x.why.textContent`)));
    await p.eval(
        `(() => { $("source-0").value = "w ".repeat(40); $("source-0").dispatchEvent(new Event("input")); })()`
    );
    check_card("more words than there is room for", await p.eval(read_card("e")));
}

// ---- the keyboard ----
async function keyboard(p) {
    await p.eval(`$("presets").children[0].click()`);
    await p.eval(`document.querySelector('.card[data-kind="d"] td.c').focus()`);
    const at = () => p.eval("document.activeElement.dataset.at + ' ' + lab.cards.d.why.textContent");
    for (const [key, want] of [
        ["ArrowRight", "0,0,1 “<s>” does not see “My”"],
        ["ArrowDown", "0,1,1 “My” sees “My”"],
        ["End", "0,1,7 “My” does not see"],
        ["Home", "0,1,0 “My” sees"],
        ["ArrowLeft", "0,1,-1 “My” sees 2 of 8 keys"],
        ["ArrowUp", "0,0,-1 “<s>” sees 1 of 8"]
    ]) {
        await p.key(key);
        const now = await at();
        check(`key ${key} in a matrix`, now.startsWith(want), now);
    }
    check(
        "the focused cell is not described by its sentence",
        await p.eval(`document.activeElement.getAttribute("aria-describedby") === lab.cards.d.why.id`)
    );
    // every control has a name that a screen reader can say, and no id stands twice
    const nameless =
        await p.eval(`[...document.querySelectorAll("button, input, a[href], [role=grid], section")].filter((e) =>
    !(e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels?.length || e.textContent.trim()))
    .map((e) => e.outerHTML.slice(0, 80))`);
    check("controls without a name", nameless.length === 0, nameless.join());
    const twice = await p.eval(
        `[...document.querySelectorAll("[id]")].map((e) => e.id).filter((x, i, a) => a.indexOf(x) !== i)`
    );
    check("ids stand twice", twice.length === 0, twice.join());
}

// ---- typing: fast, and nothing else on the page moves. Processor time, as the machine may be busy ----
async function typing(p, id, words, extra = "") {
    await p.eval(`(() => { ${extra}
    window.shifts = 0;
    new PerformanceObserver((l) => { for (const e of l.getEntries()) window.shifts += e.value; })
      .observe({ type: "layout-shift", buffered: false });
    const box = $("${id}"); box.focus(); box.setSelectionRange(box.value.length, box.value.length);
  })()`);
    const began = await p.time();
    await p.type(words);
    await new Promise((yes) => setTimeout(yes, 300));
    const each = (await p.time() - began) / words.length;
    const shifts = await p.eval("window.shifts");
    check(`typing into ${id} moves the page`, shifts < 0.001, String(shifts));
    check(`typing into ${id} is answered late`, each > 0 && each < 100, `${each} ms`);
    return each;
}

// ---- the translator ----
const sentences = ["Der Hund läuft.", "Ich habe das Buch gestern gelesen.", "Ich heiße Luke."];
let translate = null;
function native(...args) {
    // translate.c as a plain C program
    const silent = { cwd: root, stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" };
    if (!translate) {
        translate = path.join(out, "translate");
        execFileSync(process.env.CC || "cc", ["-O1", "-I.", "examples/translate/translate.c", "-o", translate], silent);
    }
    return execFileSync(translate, ["-m", model, ...args], silent);
}

async function type_sentence(p, sentence) {
    await p.eval(`(() => { const box = $("german"); box.focus(); box.select(); window.done = null;
    document.addEventListener("translated", (e) => { window.done = e.detail; }); })()`);
    await p.type(sentence);
    await p.until(`window.done === ${JSON.stringify(sentence)} && !tr.busy`, `the translation of ${sentence}`);
}

async function translator(p) {
    for (const sentence of sentences) {
        await type_sentence(p, sentence);
        const want = native("-q", sentence).trim(),
            said = await p.eval(`$("said").innerText`);
        check("a translation is not that of translate.c", said === want && said.length > 0, `${said} / ${want}`);
        const n = await p.eval("[tr.target.length, tr.source.length, tr.layers, tr.heads]");
        const pieces = await p.eval(`[$("target-row").children.length, $("source-row").children.length]`);
        check(
            "pieces are missing on the stage",
            pieces[0] === n[0] && pieces[1] === n[1] && n[0] > 1,
            `${pieces} ${n}`
        );
        // the weights of every head, to the two digits that translate.c prints
        let far = 0,
            sums = 0;
        for (let l = 0; l < n[2]; l++)
            for (let h = 0; h < n[3]; h++) {
                const c = native("-a", `${l + 1}.${h + 1}`, sentence)
                    .trimEnd()
                    .split("\n")
                    .slice(-n[0])
                    .map((line) =>
                        line
                            .trim()
                            .split(/\s+/)
                            .slice(-n[1])
                            .map((w) => (w === "·" ? 0 : Number(w)))
                    );
                const here = await p.eval(
                    `Array.from({ length: tr.target.length }, (_, t) => [...weights_of(t, [${l}, ${h}])])`
                );
                here.forEach((row, t) => {
                    far = Math.max(far, ...row.map((w, s) => Math.abs(w - c[t][s])));
                    sums = Math.max(sums, Math.abs(1 - row.reduce((a, b) => a + b, 0)));
                });
            }
        check("weights are not those of translate.c", far < 0.0151 && sums < 1e-4, `${far} ${sums}`);
    }
    const thumbs = await p.eval(`$("thumbs").children.length`),
        heads = await p.eval("tr.layers * tr.heads");
    check("a thumbnail is missing", thumbs === heads + 1, `${thumbs} of ${heads + 1}`);
    await p.eval(`$("thumbs").children[3].click()`);
    check(
        "a head cannot be chosen",
        await p.eval(`tr.chosen.join() === "0,2" && /layer 1, head 3/.test($("numbers").innerText)`)
    );
    // going back in time: no line leaves a word that is not written yet
    await p.eval(`(() => { $("time").value = 2; $("time").dispatchEvent(new Event("input")); })()`);
    const back = await p.eval(
        `[$("target-row").querySelectorAll(".later").length, tr.target.length, $("numbers").innerText]`
    );
    check("the slider does not go back", back[0] === back[1] - 2 && back[2].includes("looks at"), back.join(" / "));
    // pointing at a word, by mouse and by keyboard: its numbers, and lines of this word alone
    await p.eval(`(() => { $("time").value = $("time").max; $("time").dispatchEvent(new Event("input")); })()`);
    const all = await p.eval(`$("lines").children.length`);
    await p.eval(`$("target-row").children[1].dispatchEvent(new MouseEvent("mouseover", { bubbles: true }))`);
    const one = await p.eval(`[$("lines").children.length, $("numbers").innerText, shown(tr.target[1])]`);
    check(
        "pointing at a word",
        one[0] < all && one[0] > 0 && one[1].startsWith(`“${one[2]}” looks at`),
        one.join(" / ")
    );
    await p.eval(`$("target-row").children[0].focus()`);
    await p.key("ArrowRight");
    await p.key("ArrowRight");
    check("walking along the words", await p.eval(`tr.at === 2 && document.activeElement.dataset.i === "2"`));
    await p.key("ArrowUp");
    check("walking to the source", await p.eval(`tr.from >= 0 && / is seen by /.test($("numbers").innerText)`));
    await p.eval(`document.activeElement.blur(); $("thumbs").children[0].click()`);
    // Play goes through all words and ends
    await p.eval(`$("play").click()`);
    check("Play begins before the first word", await p.eval("tr.time === 0"));
    await p.until(`tr.time === tr.target.length && $("play").textContent === "Play"`, "the end of Play");
    // nothing to translate, too much to translate: no words, or a sentence
    await p.eval(`(() => { $("german").value = "  "; $("german").dispatchEvent(new Event("input")); })()`);
    check("a translation of nothing", await p.eval(`$("said").innerText === "" && $("lines").children.length === 0`));
    await p.eval(`(() => { $("german").value = "§".repeat(200); $("german").dispatchEvent(new Event("input")); })()`);
    check("too long, and nothing says so", /longer/.test(await p.eval(`$("said").innerText`)));
    // a translation that is known to be wrong is called wrong
    const known = await p.eval("examples");
    for (const e of known) {
        await type_sentence(p, e.de);
        const [said, judged] = await p.eval(`[$("said").innerText, $("judged").innerText]`);
        check(
            "a wrong translation is not called wrong, or a right one is",
            (said !== e.en) === judged.includes(e.en),
            `${e.de}: ${said} / ${judged}`
        );
    }
}

// ---- break it ----
async function broken(p) {
    const { de: sentence, en: right_words } = await p.eval("kept_sentence");
    check("break it: the sentence is not translated rightly", native("-q", sentence).trim() === right_words);
    const by_c = native("--break", sentence);
    for (let i = 0; i < 4; i++) {
        await p.eval(`broken.drawn = ""; $("sides").replaceChildren(); $("faults").children[${i}].click()`);
        await p.until(`$("sides").children.length === 2`, "both sides");
        const [left, right] =
            await p.eval(`[...$("sides").children].map((s) => ({ words: s.querySelector(".words").innerText.trim(),
      marks: s.querySelectorAll("mark").length, says: s.querySelector(".says").innerText,
      nan: s.querySelectorAll("td.nan").length, pads: s.querySelectorAll("td.first").length,
      w: [...s.querySelectorAll("tbody tr")].map((r) =>
        [...r.querySelectorAll("td")].map((c) => Number(c.style.getPropertyValue("--w")))) }))`);
        const name = await p.eval(`faults[${i}].name`);
        check(`${name}: attn.h marks words of its own`, right.marks === 0, right.words);
        check(`${name}: NaN on the side of attn.h`, right.nan === 0);
        check(
            `${name}: attn.h looks at padding`,
            i === 0 ? !/padding/.test(right.says) : /^0 % /.test(right.says),
            right.says
        );
        if (i !== 2) check(`${name}: the right side is not the translation`, right.words === right_words, right.words);
        if (i !== 2) check(`${name}: the mistake changes no word`, left.words !== right.words, left.words);
        const says = await p.eval(`$("broken-verdict").textContent`);
        check(`${name}: a verdict on a sentence that shows the mistake`, says === "", says);
        check(`${name}: changed words are not marked`, (left.words === right.words) === (left.marks === 0), left.words);
        if (i === 0) {
            check(`${name}: not what translate.c --break says`, by_c.includes(left.words), `${left.words}\n${by_c}`);
            check(
                `${name}: the weights are not causal`,
                left.w.every((row, t) => row.every((w, s) => s <= t || w === 0))
            );
        }
        if (i === 1) check(`${name}: no weight on padding`, Number.parseInt(left.says) > 0, left.says);
        if (i === 2) {
            check(
                `${name}: weights on hidden keys are not all there is`,
                /^100 %/.test(left.says) && /masked rows: 0 of/.test(left.says),
                left.says
            );
            check(
                `${name}: rows that see nothing are not counted`,
                /masked rows: (\d+) of \1, zeros/.test(right.says),
                right.says
            );
        }
        if (i === 3)
            check(
                `${name}: NaN is not shown`,
                left.nan > 0 && /NaN/.test(left.words) && /NaN/.test(left.says),
                left.words
            );
    }
    // a typed sentence is used only on demand, and then the page prints it
    const state = `[$("broken-of").textContent, $("broken-verdict").textContent].join("|")`;
    const typed = "Ich heiße Luke.";
    await p.eval(`$("faults").children[0].click()`);
    await p.until(`broken.drawn.startsWith("1 ")`, "the first mistake");
    await type_sentence(p, typed);
    await new Promise((yes) => setTimeout(yes, 500));
    check("break it: a typed sentence replaces the kept one", (await p.eval(state)) === `The sentence: ${sentence}|`);
    await p.eval(`$("broken-typed").click()`);
    await p.until(`broken.drawn === "1 ${typed}"`, "the typed sentence");
    const plain = await p.eval(state);
    check("break it: the typed sentence", plain.startsWith(`The sentence: ${typed}|The mistake changes no word`), plain);
    await type_sentence(p, "Der Hund läuft sehr gern im Park.");
    await p.until(`broken.drawn.includes("gern")`, "another typed sentence");
    const unknown = await p.eval(state);
    check("break it: nothing said of an unknown sentence", /no word|does not know/.test(unknown), unknown);
    const says = await p.eval(`[verdict("a", "a", "a"), verdict("a", "b", "a"), verdict("a", "b", "c"), verdict("a", "b", "b"),
        verdict("a", "b")].map((s) => s.split(" ").slice(0, 3).join(" ")).join("|")`);
    check("break it: verdicts", says === "The mistake changes|The mistake translates|Both sides are||The page does", says);
    await p.eval(`$("broken-typed").click()`);
    await p.until(`broken.drawn === "1 ${sentence}"`, "the kept sentence again");
}

// ---- same bits: with fused multiply-add where the engine has it, which is the native hash, and the page says so ----
const native_hash = /scalar: "(\w+)"/.exec(fs.readFileSync(path.join(root, "examples/web/bits.js"), "utf8"))[1];
async function same_bits(p, fused) {
    const says = { yes: /rounds once, so/, "rounds twice": /it rounds twice/, missing: /has none, so/ }[fused];
    check(
        `the page does not say that multiply-add is: ${fused}`,
        says.test(await p.eval(`$("bits-note").textContent`)),
        await p.eval(`fused`)
    );
    await p.eval(`$("bits-run").click()`);
    await p.until(`/those of C/.test($("bits-said").textContent)`, "hashes");
    check(
        "hashes differ from those of C",
        (await p.eval(`document.querySelectorAll("#bits-table td.same").length`)) === 10,
        await p.eval(`$("bits-table").innerText`)
    );
    const first = await p.eval(`document.querySelector("#bits-table tbody td").textContent`);
    check(`${first} is not the hash of code that has fused multiply-add: ${fused}`, (first === native_hash) === (fused === "yes"));
}

// Engines of other kinds: one whose multiply-add rounds twice, one that has none
async function engines() {
    const browser = await start(chromium, "--js-flags=--no-enable-fma3");
    try {
        const p = await browser.tab();
        for (const [name, fused] of [
            [built, process.arch === "arm64" ? "yes" : "rounds twice"],
            [path.join(out, "missing.html"), "missing"]
        ]) {
            if (fused === "missing")
                fs.writeFileSync(name, fs.readFileSync(built, "utf8").replace("relaxed_probe = [", "relaxed_probe = [1,"));
            await p.open(`file://${name}`);
            await p.until("document.documentElement.dataset.ready", "the page");
            await same_bits(p, fused);
        }
    } finally {
        await browser.close();
    }
}

// ---- a browser without SIMD, a damaged file: a sentence, not a blank ----
async function trouble(p) {
    const whole = fs.readFileSync(built, "utf8");
    const damaged = async (name, from, to, want) => {
        check(`${name}: the test itself is old`, whole.includes(from));
        const to_file = path.join(out, "broken.html");
        fs.writeFileSync(to_file, whole.replace(from, to));
        await p.open(`file://${to_file}`);
        await p.until("document.documentElement.dataset.ready", "the end of loading");
        const said = await p.eval(`document.querySelector("#trouble:not([hidden])")?.innerText ?? ""`);
        check(`${name}: the page does not say so`, want.test(said), said);
    };
    const begin = '<script>\n"use strict";';
    await damaged("no WebAssembly", begin, `${begin} delete globalThis.WebAssembly;`, /no WebAssembly/);
    await damaged("a language too new", begin, `${begin} let let = 1;`, /This browser cannot run/);
    await damaged("no SIMD", begin, `${begin} WebAssembly.validate = () => false;`, /SIMD/);
    const first = whole.slice(whole.indexOf('id="model">') + 12).slice(0, 200);
    await damaged(
        "damaged model",
        first,
        first.slice(0, 150) + (first[150] === "A" ? "B" : "A") + first.slice(151),
        /checksum/
    );
    const found = await p.eval("fused");
    for (const [id, unused] of [
        ["wasm", "yes"],
        ["wasm-fma", "missing"]
    ]) {
        const begins = `id="${id}">\nAGFzbQEAAAAB`;
        await damaged(`damaged ${id}`, begins, begins.replace(/B$/, "C"), found === unused ? /^$/ : /cannot be run/);
    }
}

async function main() {
    const browser = await start(chromium);
    try {
        const p = await browser.tab();
        await p.size(1280, 900);
        await p.open(file);
        await p.until("document.documentElement.dataset.ready", "the page");
        check(
            "the page did not start",
            (await p.eval("document.documentElement.dataset.ready")) === "yes",
            await p.eval(`$("trouble").innerText`)
        );
        const v = await p.eval("wasm.version()");
        const version = `${Math.floor(v / 10000)}.${Math.floor(v / 100) % 100}.${v % 100}`;
        const footer = await p.eval(`$("version").innerText`);
        check("the page names another version than its compiled code", footer.split(",")[0] === version, footer);
        await part("mask lab", () => mask_lab(p));
        await part("keyboard", () => keyboard(p));
        let slow = 0;
        await part("typing", async () => {
            slow = await typing(p, "source-0", " und er", `$("presets").children[0].click();`);
        });
        await part("translator", () => translator(p));
        await part("break it", () => broken(p));
        let german = 0;
        await part("typing German", async () => {
            await type_sentence(p, "Der ");
            german = await typing(p, "german", "Hund läuft.");
        });
        const took = await p.eval(`$("took").innerText`);
        const fma = process.arch === "arm64" || / fma /.test(fs.readFileSync("/proc/cpuinfo", "utf8"));
        await part("same bits", () => same_bits(p, fma ? "yes" : "rounds twice"));
        const load = await p.eval(`$("ready-time").textContent`);
        for (const [name, w, h, mobile] of [
            ["desktop", 1280, 900, false],
            ["phone", 390, 844, true]
        ])
            for (const theme of ["light", "dark"])
                await part(`screenshot ${name} ${theme}`, async () => {
                    await p.size(w, h, mobile);
                    await p.theme(theme);
                    await p.open(file);
                    await p.until(
                        "document.documentElement.dataset.ready === 'yes' && $('sides').children.length === 2",
                        "the page"
                    );
                    check(
                        `${name} ${theme}: wider than the screen`,
                        await p.eval("document.documentElement.scrollWidth <= innerWidth")
                    );
                    await p.shot(path.join(out, `${name}-${theme}.png`));
                });
        check(
            "the page asks for something",
            p.requests.every((u) => u === file || /^(data|blob):/.test(u)),
            p.requests.join()
        );
        check("complaints on the console", p.complaints.length === 0, p.complaints.slice(0, 3).join("\n    "));
        const other = await browser.tab();
        await part("sentences for what is wrong", () => trouble(other));
        await part("engines", engines);
        await part("listen", () => listen({ chromium, root, out, file, check, part, fma }));
        const bytes = fs.statSync(built).size;
        check("5 MB or more", bytes < 5e6);
        console.log(
            `page: ${bytes} bytes, ready after ${load}, a keystroke ${slow.toFixed(0)} ms (masks), ` +
            `${german.toFixed(0)} ms (German), ` +
                `translation ${took}`
        );
    } finally {
        await browser.close();
    }
}
main()
    .catch((e) => check("the browser", false, e.stack))
    .finally(() => {
        console.log(`${passed} passed, ${failed} failed`);
        process.exit(failed ? 1 : 0);
    });
