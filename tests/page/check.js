// check.js CHROMIUM ROOT: what examples/web/index.html does in a browser, compared with the C library.
// Each check says what it would catch. Screenshots go to build/page. Last line: N passed, M failed.
const { start } = require("./browser.js");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs"), path = require("node:path");
const [chromium, root] = process.argv.slice(2);
const out = path.join(root, "build/page");
const file = `file://${path.join(root, "examples/web/index.html")}`;

let passed = 0, failed = 0;
function check(what, right, more = "") {
  if (right) { passed++; return; }
  failed++;
  console.log(`page: FAILED ${what}${more ? `: ${more}` : ""}`);
}
async function part(name, f) {
  try { await f(); } catch (e) { check(name, false, e.stack); }
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
  const { set } = card, end = card.limit < 0 ? card.n_k : card.limit;
  const at = i + set.offset + (set.causal === 2 ? end - card.n_q : 0), why = [];
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
  const c = path.join(dir, `${name}.c`), program = path.join(dir, name);
  const cc = process.env.CC || "cc", silent = { stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" };
  if (!library) {                                  // attn.h is compiled once, the snippets against its declarations
    fs.writeFileSync(path.join(dir, "attn.c"), "#define ATTN_DEBUG\n#define ATTN_IMPLEMENTATION\n#include \"attn.h\"\n");
    library = path.join(dir, "attn.o");
    execFileSync(cc, ["-O1", "-I", root, "-c", path.join(dir, "attn.c"), "-o", library], silent);
  }
  fs.writeFileSync(c, code.replace("#define ATTN_IMPLEMENTATION\n", ""));
  execFileSync(cc, ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-I", root, c, library, "-o", program], silent);
  return execFileSync(program, silent);
}

function check_card(name, card) {
  const hidden = [], wrong = [];
  for (const cell of card.cells) {
    const why = reasons(card, cell.b, cell.i, cell.j);
    hidden.push(why.length > 0);
    const shown = cell.text === "−∞", said = /does not see/.test(cell.why), labelled = / hidden$/.test(cell.label);
    const only = all_words.filter((w) => cell.why.includes(w)).length;
    if (shown !== why.length > 0 || said !== shown || labelled !== shown || /\bsee\b/.test(cell.class) === shown
        || !why.every((w) => cell.why.includes(w)) || only !== why.length)
      wrong.push(`(${cell.b},${cell.i},${cell.j}) shows ${cell.text}, should be [${why}], says: ${cell.why}`);
  }
  check(`${name}: a cell or its reason is not what the manual says`, !wrong.length, wrong.slice(0, 3).join("\n    "));
  check(`${name}: cells are missing`, card.cells.length === card.batch * card.n_q * card.n_k && card.cells.length > 0);

  let printed = "";
  try { printed = run_snippet(name.replace(/\W+/g, "_"), card.code); } catch (e) {
    check(`${name}: "Copy as C" does not compile and run`, false, String(e.stderr || e)); return;
  }
  const lines = printed.trimEnd().split("\n"), last = lines.pop();
  const matrix = lines.filter((l) => /(^|\s)(0|-inf)$/.test(l)).map((l) => l.trim().split(/\s+/).slice(-card.n_k));
  const same = matrix.length === card.batch * card.n_q &&
    matrix.flat().every((x, i) => (x === "-inf") === (card.cells[i].text === "−∞"));
  check(`${name}: what the snippet prints is not the page's matrix`, same, printed);

  const empties = [];
  for (let r = 0; r < card.batch * card.n_q; r++)
    if (hidden.slice(r * card.n_k, (r + 1) * card.n_k).every((h) => h)) empties.push(r);
  check(`${name}: rows that see nothing are not marked, or not counted as C counts them`,
    card.zeros.length === empties.length && Number(last.match(/\d+$/)[0]) === empties.length &&
    (empties.length === 0) === (card.says === "") && empties.every((r) => card.out.slice(4 * r, 4 * r + 4).every((x) => x === 0)),
    `${card.zeros} / ${last} / ${card.says}`);
  return { hidden, empties };
}

const grid = (hidden, n_k) => hidden.map((h, i) => (h ? "." : "1") + (i % n_k === n_k - 1 ? "/" : "")).join("");

async function mask_lab(p) {
  const n = await p.eval("presets.length"), seen = {};
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
  const is = (key, want) => check(`matrix ${key} is not the one drawn by hand`,
    grid(seen[key].hidden, seen[key].card.n_k) === want, grid(seen[key].hidden, seen[key].card.n_k));
  is("0d", "1......./11....../111...../1111..../11111.../111111../111111../111111../");
  is("0x", "11111./".repeat(8));
  is("1x", "1111../".repeat(5) + "111.../".repeat(5));
  is("2d", "....../....../..1.../..11../..111./..1111/");
  is("3x", ".../.../1../11./111/");
  is("4d", "1......../11......./111....../1111...../.1111..../..1111.../...1111../....1111./.....1111/");
  is("5x", "1...../11..../111.../1111../11111./11111./11111./11111./");

  // switches, as a hand would move them
  const set = (id, key, value) => p.eval(`(() => {
    const all = [...document.querySelectorAll('.card[data-kind="${id}"] [data-set="${key}"]')];
    const input = all.length > 1 ? all[${Number(value)}] : all[0];
    if (input.type === "radio" || input.type === "checkbox") { if (input.checked !== !!${value} || all.length > 1) input.click(); }
    else { input.value = "${value}"; input.dispatchEvent(new Event("input")); }
  })()`);
  await p.eval(`$("presets").children[0].click()`);
  for (const [key, value] of [["causal", 2], ["left", 3], ["right", 2], ["keys", 5], ["offset", 1]]) {
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
  await p.eval(`(() => { $("second").click(); $("source-0").value = " "; $("source-0").dispatchEvent(new Event("input")); })()`);
  check("a side without words is not said", /without words/.test(await p.eval(`lab.cards.x.why.textContent`)));
  await p.eval(`(() => { $("source-0").value = "w ".repeat(40); $("source-0").dispatchEvent(new Event("input")); })()`);
  check_card("more words than there is room for", await p.eval(read_card("e")));
}

// ---- the keyboard ----
async function keyboard(p) {
  await p.eval(`$("presets").children[0].click()`);
  await p.eval(`document.querySelector('.card[data-kind="d"] td.c').focus()`);
  const at = () => p.eval("document.activeElement.dataset.at + ' ' + lab.cards.d.why.textContent");
  for (const [key, want] of [["ArrowRight", "0,0,1 “<s>” does not see “My”"], ["ArrowDown", "0,1,1 “My” sees “My”"],
                             ["End", "0,1,7 “My” does not see"], ["Home", "0,1,0 “My” sees"],
                             ["ArrowLeft", "0,1,-1 “My” sees 2 of 8 keys"], ["ArrowUp", "0,0,-1 “<s>” sees 1 of 8"]]) {
    await p.key(key);
    const now = await at();
    check(`key ${key} in a matrix`, now.startsWith(want), now);
  }
  check("the focused cell is not described by its sentence",
    await p.eval(`document.activeElement.getAttribute("aria-describedby") === lab.cards.d.why.id`));
  // every control has a name that a screen reader can say, and no id stands twice
  const nameless = await p.eval(`[...document.querySelectorAll("button, input, select, a[href], [role=grid], section")].filter((e) =>
    !(e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels?.length || e.textContent.trim()))
    .map((e) => e.outerHTML.slice(0, 80))`);
  check("controls without a name", nameless.length === 0, nameless.join());
  const twice = await p.eval(`[...document.querySelectorAll("[id]")].map((e) => e.id).filter((x, i, a) => a.indexOf(x) !== i)`);
  check("ids stand twice", twice.length === 0, twice.join());
}

// ---- typing: fast, and nothing else on the page moves ----
async function typing(p, id, words, extra = "") {
  await p.eval(`(() => { ${extra}
    window.shifts = 0; window.slowest = 0;
    new PerformanceObserver((l) => { for (const e of l.getEntries()) window.shifts += e.value; })
      .observe({ type: "layout-shift", buffered: false });
    const box = $("${id}"); box.focus(); box.setSelectionRange(box.value.length, box.value.length);
    let began = 0;
    document.addEventListener("keydown", () => { began = performance.now(); }, true);
    box.addEventListener("input", () => requestAnimationFrame(() => setTimeout(() => {
      window.slowest = Math.max(window.slowest, performance.now() - began); })));
  })()`);
  await p.type(words);
  await new Promise((yes) => setTimeout(yes, 300));
  const [shifts, slowest] = await p.eval("[window.shifts, window.slowest]");
  check(`typing into ${id} moves the page`, shifts < 0.001, String(shifts));
  check(`typing into ${id} is answered late`, slowest > 0 && slowest < 100, `${slowest} ms`);
  return slowest;
}

// ---- same bits ----
async function same_bits(p) {
  await p.eval(`$("bits-run").click()`);
  await p.until(`/what C says/.test($("bits-said").textContent)`, "hashes");
  check("hashes differ from those of C", await p.eval(`document.querySelectorAll("#bits-table td.same").length`) === 10,
    await p.eval(`$("bits-table").innerText`));
}

// ---- a browser without SIMD, a damaged file: a sentence, not a blank ----
async function sentences(p) {
  const whole = fs.readFileSync(path.join(root, "examples/web/index.html"), "utf8");
  const broken = async (name, from, to, want) => {
    check(`${name}: the test itself is old`, whole.includes(from));
    const to_file = path.join(out, "broken.html");
    fs.writeFileSync(to_file, whole.replace(from, to));
    await p.open(`file://${to_file}`);
    await p.until("document.documentElement.dataset.ready", "the end of loading");
    const said = await p.eval(`$("trouble").hidden ? "" : $("trouble").innerText`);
    check(`${name}: the page does not say so`, want.test(said), said);
  };
  await broken("no WebAssembly", '"use strict";', '"use strict"; delete globalThis.WebAssembly;', /no WebAssembly/);
  await broken("no SIMD", '"use strict";', '"use strict"; WebAssembly.validate = () => false;', /SIMD/);
  await broken("damaged wasm", 'id="wasm">\nAGFzbQEAAAAB', 'id="wasm">\nAGFzbQEAAAAC', /cannot be run/);
}

async function main() {
  const browser = await start(chromium);
  try {
    const p = await browser.tab();
    await p.size(1280, 900);
    await p.open(file);
    await p.until("document.documentElement.dataset.ready", "the page");
    check("the page did not start", await p.eval("document.documentElement.dataset.ready") === "yes",
      await p.eval(`$("trouble").innerText`));
    await part("mask lab", () => mask_lab(p));
    await part("keyboard", () => keyboard(p));
    let slow = 0;
    await part("typing", async () => { slow = await typing(p, "source-0", " und er", `$("presets").children[0].click();`); });
    await part("same bits", () => same_bits(p));
    const load = await p.eval(`$("ready-time").textContent`);
    for (const [name, w, h, mobile] of [["desktop", 1280, 900, false], ["phone", 390, 844, true]])
      for (const theme of ["light", "dark"]) await part(`screenshot ${name} ${theme}`, async () => {
        await p.size(w, h, mobile);
        await p.theme(theme);
        await p.open(file);
        await p.until("document.documentElement.dataset.ready === 'yes'", "the page");
        check(`${name} ${theme}: wider than the screen`, await p.eval("document.documentElement.scrollWidth <= innerWidth"));
        await p.shot(path.join(out, `${name}-${theme}.png`));
      });
    check("the page asks for something", p.requests.every((u) => u === file || u.startsWith("data:")), p.requests.join());
    check("complaints on the console", p.complaints.length === 0, p.complaints.slice(0, 3).join("\n    "));
    const other = await browser.tab();
    await part("sentences for what is wrong", () => sentences(other));
    const bytes = fs.statSync(path.join(root, "examples/web/index.html")).size;
    check("5 MB or more", bytes < 5e6);
    console.log(`page: ${bytes} bytes, ready after ${load}, slowest keystroke ${slow.toFixed(0)} ms`);
  } finally { await browser.close(); }
}
main().catch((e) => check("the browser", false, e.stack)).finally(() => {
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
});
