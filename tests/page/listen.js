// listen.js: tests the section "Listen" of the page against the native program (examples/listen/listen.c) and against
// CTranslate2's word times (SPEECH=folder with a model, a sound and expected.json, default ../shared/speech). The
// microphone is Chromium's fake device, which plays that sound.
const { start } = require("./browser.js");
const { spawnSync, execFileSync } = require("node:child_process");
const fs = require("node:fs"),
    path = require("node:path");

// A WAV header of a format (1: PCM) with n bytes of silence
function wav(format, n) {
    const b = Buffer.alloc(44 + n);
    b.write("RIFF", 0);
    b.writeUInt32LE(36 + n, 4);
    b.write("WAVEfmt ", 8);
    b.writeUInt32LE(16, 16);
    b.writeUInt16LE(format, 20);
    b.writeUInt16LE(1, 22);
    b.writeUInt32LE(16000, 24);
    b.writeUInt32LE(32000, 28);
    b.writeUInt16LE(2, 32);
    b.writeUInt16LE(16, 34);
    b.write("data", 36);
    b.writeUInt32LE(n, 40);
    return b;
}

async function listen({ chromium, root, out, file, check, part, fma }) {
    const speech = path.resolve(root, process.env.SPEECH || "../shared/speech"),
        trained = fs.existsSync(path.join(speech, "expected.json"));
    const model = path.join(speech, "ggml-tiny.en.bin"),
        sound = path.join(speech, "fail_better.wav");
    const native = path.join(out, "listen");
    execFileSync(process.env.CC || "cc", ["-O1", "-I.", "examples/listen/listen.c", "-o", native], { cwd: root });
    const run = (...args) => spawnSync(native, args, { encoding: "utf8" });
    const more = trained ? [`--use-file-for-fake-audio-capture=${sound}%noloop`] : [];
    const browser = await start(
        chromium,
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        "--autoplay-policy=no-user-gesture-required",
        ...more
    );
    try {
        const p = await browser.tab();
        await p.size(1280, 900);
        await p.open(file);
        await p.until("document.documentElement.dataset.ready", "the page");
        const choose = async (kind, name) => {
            const { root: document } = await p.send("DOM.getDocument");
            const { nodeId } = await p.send("DOM.querySelector", {
                nodeId: document.nodeId,
                selector: `#${kind}-file`
            });
            await p.send("DOM.setFileInputFiles", { nodeId, files: [name] });
            await p.until(`ls.${kind}?.name === ${JSON.stringify(path.basename(name))}`, `the file ${name}`);
        };
        const ended = (ms = 60000) => p.until("!['idle', 'busy'].includes(ls.state)", "the end of recognition", ms);
        await p.send("DOM.enable");
        // what a click on "Recognise" does; recognition never begins by itself, as the button would become "Stop"
        const recognise = async (ms) => {
            const before = await p.eval(`[ls.state, $("listen-run").textContent, $("listen-run").disabled].join()`);
            check("listen: recognition begins without a click", before.endsWith(",Recognise,false"), before);
            await p.eval(`$("listen-run").click()`);
            await ended(ms);
        };
        check("a button that cannot work yet", await p.eval(`$("listen-run").disabled`));
        await part("listen: broken files", () => broken(p, { choose, recognise, run, out, check, model, trained, sound }));
        if (!trained) console.log(`SKIPPED the page's speech recogniser: there is no folder ${speech}; set SPEECH`);
        else {
            const wanted = native_result(run, model, sound, path.join(out, "listen.svg"));
            await part("listen: words", () => words(p, { choose, recognise, check, model, sound, wanted, speech, fma }));
            await part("listen: the staircase", () => staircase(p, { check, wanted }));
            await part("listen: playing", () => playing(p, { check }));
            await part("listen: the keyboard", () => keyboard(p, { check }));
            await part("listen: pictures", () => pictures(p, { check, out }));
            await part("listen: Stop", () => stop(p, { check }));
            await part("listen: drawn pictures", () => drawn(browser, { run, check, out, speech, model }));
            await part("listen: recording", () => recording(p, { check, recognise }));
        }
        const outside = p.requests.filter((u) => u !== file && !/^(data|blob):/.test(u));
        check("listen: a request leaves the page", outside.length === 0, outside.join());
        check("listen: complaints on the console", p.complaints.length === 0, p.complaints.slice(0, 3).join("\n    "));
    } finally {
        await browser.close();
    }
}

// What the native program prints: words with times, segments, hash, and the path of its picture
function native_result(run, model, sound, svg) {
    const lines = (s) => s.trim().split("\n");
    const all = lines(run("-16", "-w", "-v", "-s", svg, model, sound).stdout);
    const timed = all.filter((l) => /^\d+\.\d\d \d+\.\d\d /.test(l));
    return {
        words: timed.map((l) => l.split(" ")).map(([begin, end, ...text]) => ({ begin, end, text: text.join(" ") })),
        segments: lines(run("-16", model, sound).stdout),
        hash: all.find((l) => /hash of/.test(l)).split(":")[0],
        path: /class="path" d="M92 \d+([^"]*)"/.exec(fs.readFileSync(svg, "utf8"))[1]
    };
}

// An expression: which texts overlap, or leave the box by more than `more` pixels; "" if none
const overlaps = (texts, box, more = 0) => `(() => {
    const all = [...document.querySelectorAll(${JSON.stringify(texts)})].map((e) => [e.textContent, e.getBoundingClientRect()]);
    const b = (${box}).getBoundingClientRect(), bad = all.length ? [] : ["no text"];
    all.forEach(([text, r], i) => {
        if (r.left < b.left - ${more} || r.right > b.right + ${more} || r.top < b.top || r.bottom > b.bottom)
            bad.push(text + " is cut off");
        for (const [other, s] of all.slice(0, i))
            if (r.left < s.right - .5 && s.left < r.right - .5 && r.top < s.bottom - 3 && s.top < r.bottom - 3)
                bad.push(other + " overlaps " + text);
    });
    return bad.join("; ");
})()`;

// The pictures of listen -s: of a sentence; with -n of a window of 30 seconds, whose words are crowded; of 8.2 seconds, at
// whose end a long word begins
async function drawn(browser, { run, check, out, speech, model }) {
    const p = await browser.tab();
    await p.size(1000, 2200);
    const whole = path.join(speech, "two_cities.wav"),
        part = path.join(out, "two_cities_part.wav"),
        n = 8.2 * 32000,
        head = wav(1, n).subarray(0, 44);
    fs.writeFileSync(part, Buffer.concat([head, fs.readFileSync(whole).subarray(44, 44 + n)]));
    for (const [name, ...flags] of [[whole], [whole, "-n"], [part, "-n"]]) {
        const svg = path.join(out, `${path.basename(name, ".wav")}${flags.join("")}.svg`),
            result = run("-16", ...flags, "-s", svg, model, name);
        check(`listen -s ${flags} of ${name} draws nothing`, result.status === 0, result.stderr);
        if (result.status !== 0) continue;
        await p.open(`file://${svg}`);
        const where = await p.eval(overlaps("text", "document.documentElement"));
        check(`listen -s ${flags} of ${name}`, where === "", where);
        await p.shot(svg.replace(/svg$/, "png"), false);
    }
}

// Files that the C readers reject: the page shows the sentence of the native program
async function broken(p, { choose, recognise, run, out, check, model, trained, sound }) {
    const put = (name, bytes) => {
        fs.writeFileSync(path.join(out, name), bytes);
        return path.join(out, name);
    };
    const says = async (name, want_model, want_sound) => {
        const error = run(want_model, want_sound).stderr,
            [, at, reason] = /^listen: (.*): (.*)\n$/.exec(error) ?? [];
        const want = `${path.basename(at ?? "?")}: ${reason}.`;
        await recognise();
        const [said, wrong] = await p.eval(`[$("listen-said").textContent, $("listen-said").className]`);
        const right = said === want && wrong === "wrong";
        check(`listen: ${name} is not rejected with the sentence of C`, right, said + error);
    };
    const silence = put("silence.wav", wav(1, 32000)),
        text = put("text.bin", "this is not a model"),
        empty = put("empty.bin", "");
    await choose("sound", silence);
    await choose("model", text);
    await says("a text as a model", text, silence);
    await choose("model", empty);
    await says("an empty model", empty, silence);
    if (!trained) return;
    const cut = put("cut.bin", fs.readFileSync(model).subarray(0, 3000000));
    await choose("model", cut);
    await says("half a model", cut, silence);
    const packed = put("packed.wav", wav(2, 32000));
    await choose("model", model);
    await choose("sound", packed);
    await says("a compressed WAV file", model, packed);
    const short = put("short.wav", fs.readFileSync(sound).subarray(0, 5000));
    await choose("sound", short);
    await says("half a WAV file", model, short);
    // dropped on the section, not chosen: a text that no decoder reads
    await p.eval(`(() => { const d = new DataTransfer(); d.items.add(new File(["no sound"], "dropped.ogg"));
    $("listen").dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: d })); })()`);
    await p.until(`ls.sound.name === "dropped.ogg"`, "the dropped file");
    await recognise();
    const said = await p.eval(`$("listen-said").textContent`);
    check("listen: a dropped file is not read", said === "dropped.ogg: it is not a WAV file.", said);
}

async function words(p, { choose, recognise, check, model, sound, wanted, speech, fma }) {
    await p.eval(`(() => { window.slowest = 0; window.seen = []; let last = performance.now();
    window.ticking = setInterval(() => { const now = performance.now(); slowest = Math.max(slowest, now - last);
      last = now; if (ls.state === "busy" && seen.at(-1) !== ls.done) seen.push(ls.done); }, 20); })()`);
    await choose("sound", sound);
    await recognise();
    const [slowest, seen, state] = await p.eval("(clearInterval(ticking), [slowest, seen, ls.state])");
    check("listen: recognition does not end", state === "ended", await p.eval(`$("listen-said").textContent`));
    const took = 1000 * Number(/in ([\d.]+) s\.$/.exec(await p.eval(`$("listen-said").textContent`))?.[1]);
    check("listen: recognition freezes the page", slowest < took / 2, `${slowest} of ${took} ms`);
    check("listen: no progress inside a window", seen.some((x) => x > 0 && x < 900), seen.join());
    const here = await p.eval(`ls.words.map((w) => ({ begin: seconds(w.begin, 2), end: seconds(w.end, 2),
    text: w.text }))`);
    check(
        "listen: words or times are not those of the native program",
        JSON.stringify(here) === JSON.stringify(wanted.words) && here.length > 0,
        `${JSON.stringify(here)}\n${JSON.stringify(wanted.words)}`
    );
    const shown = await p.eval(`$("heard").innerText`);
    check("listen: the text is not shown", shown === wanted.segments.join(" "), shown);
    if (fma) {
        const hash = await p.eval("ls.hash");
        const right = hash === wanted.hash;
        check("listen: the logits are not those of the native program", right, `${hash} ${wanted.hash}`);
    }
    // CTranslate2's word starts, of tokens, in frames of 20 ms
    const expected = JSON.parse(fs.readFileSync(path.join(speech, "expected.json"), "utf8"))["fail_better.wav"];
    const starts = await p.eval("ls.views[0].window.tokens.map((t) => t.start)"),
        want = expected.word_times.start_frame_20ms;
    check("listen: token times are not CTranslate2's", starts.join() === want.join(), `${starts}\n${want}`);
}

async function staircase(p, { check, wanted }) {
    const [views, columns, d, labels, lines] = await p.eval(`(() => { draw_stairs(0); const v = ls.views[0];
    return [ls.views.length, v.c1 - v.c0, $("plot").querySelector("path").getAttribute("d"),
      [...$("plot").querySelectorAll(".labels span")].map((e) => e.textContent),
      [...$("plot").querySelectorAll(".marks b")].map((e) => e.textContent)]; })()`);
    check("listen: a sentence has no staircase", views === wanted.segments.length, `${views}`);
    const here = [...d.matchAll(/H(\d+)/g)].map(([, x]) => 92 + Math.floor((780 * x) / columns)),
        want = [...wanted.path.matchAll(/H(\d+)/g)].map(([, x]) => Number(x));
    const same = here.join() === want.join() && here.length > 3;
    check("listen: the path is not that of listen -s", same, `${here} ${want}`);
    check("listen: a row has no token", labels.length === want.length && labels[0] === "Ever", labels.join());
    check("listen: words above the sound", lines.join(" ") === wanted.segments[0], lines.join(" "));
    for (const [wide, at] of [[1280, 0], [1280, 3], [390, 0], [390, 3]]) {
        await p.size(wide, 900, wide < 400);
        await p.eval(`draw_stairs(${at})`);
        const where = await p.eval(overlaps(".marks b", `$("plot").querySelector(".grids")`, 24));
        check(`listen: names above the sound, ${wide} pixels, sentence ${at + 1}`, where === "", where);
    }
    await p.size(1280, 900);
}

async function playing(p, { check }) {
    await p.eval(`(() => { window.lit = []; new MutationObserver(() => {
      const on = [...document.querySelectorAll(".word.on")].map((e) => Number(e.dataset.i));
      if (on.length && lit.at(-1) !== on.join()) lit.push(on.join()); })
    .observe($("heard"), { subtree: true, attributes: true });
    document.querySelector('.word[data-i="4"]').click(); })()`);
    await p.until("ls.on === 6", "the word after the next one", 20000);
    const [lit, at, view] = await p.eval(`[lit, ($("listen-audio").pause(), $("listen-audio").currentTime), ls.at]`);
    check("listen: words light up in another order", lit.join(" ") === "4 5 6", lit.join(" "));
    const word = await p.eval("ls.words[6]");
    check("listen: a word lights up at another time", at * 100 > word.begin - 5 && at * 100 < word.end + 100, `${at}`);
    check("listen: the picture does not follow", view === 1, `${view}`);
}

async function keyboard(p, { check }) {
    await p.eval(`document.querySelector('.word[tabindex="0"]').focus()`);
    const at = () => p.eval(`[document.activeElement.dataset.i, document.querySelectorAll('.word[tabindex="0"]').length,
    ls.at].join()`);
    for (const [key, want] of [
        ["Home", "0,1,0"],
        ["ArrowRight", "1,1,0"],
        ["End", "11,1,3"],
        ["ArrowLeft", "10,1,3"]
    ]) {
        await p.key(key);
        const now = await at();
        check(`listen: key ${key} in the words`, now === want, now);
    }
    await p.key("Enter", "\r");
    const [time, begin] = await p.eval(
        `[($("listen-audio").pause(), $("listen-audio").currentTime), ls.words[10].begin]`
    );
    check("listen: Enter does not play from the word on", Math.abs(100 * time - begin) < 100, `${time} ${begin}`);
    const settled = `!$("listen-audio").seeking && new Promise((yes) => setTimeout(() => yes(true), 100))`;
    await p.until(settled, "the word that is played");
    await p.eval(`(() => { go_to(0); $("stairs-on").focus(); })()`);
    await p.key("Enter", "\r");
    await p.until(settled, "the next sentence");
    const next = await p.eval(`ls.at + $("stairs-of").textContent`);
    check("listen: the next sentence", next.startsWith("1Sentence 2 of 4"), next);
    const there = await p.eval(`100 * $("listen-audio").currentTime - ls.views[1].begin`);
    check("listen: the next sentence is not where the sound is", Math.abs(there) < 2, `${there}`);
    for (const id of ["model-file", "sound-file", "record", "listen-run", "listen-audio"])
        check(
            `listen: the keyboard does not reach ${id}`,
            await p.eval(`($("${id}").focus(), document.activeElement.id === "${id}")`)
        );
    await p.eval("document.activeElement.blur()");
}

async function pictures(p, { check, out }) {
    await p.eval("(draw_stairs(0), light(230))");
    for (const [name, w, h, mobile] of [
        ["wide", 1280, 900, false],
        ["narrow", 390, 844, true]
    ])
        for (const theme of ["light", "dark"]) {
            await p.size(w, h, mobile);
            await p.theme(theme);
            const fits = await p.eval("document.documentElement.scrollWidth <= innerWidth");
            check(`listen: ${name} ${theme}: wider than the screen`, fits);
            await p.eval(`$("listen").scrollIntoView()`);
            await p.shot(path.join(out, `listen-${name}-${theme}.png`), false);
        }
    await p.size(390, 844, true);
    await p.eval("(draw_stairs(1), light(ls.words[7].begin))");
    const inside = await p.eval(`(() => { const a = $("stairs").querySelector(".now").getBoundingClientRect(),
      b = $("plot").parentElement.getBoundingClientRect();
    return b.width > 0 && a.left > b.left && a.right < b.right; })()`);
    check("listen: the line of the picture is out of sight on a narrow screen", inside);
    await p.size(1280, 900);
    await p.theme("light");
}

async function stop(p, { check }) {
    await p.eval(`$("listen-run").click()`);
    check("listen: a second run does not begin", await p.eval(`ls.state === "busy" && !ls.words.length`));
    await p.eval(`$("listen-run").click()`);
    const [state, said, worker] = await p.eval(`[ls.state, $("listen-said").textContent, ls.worker === null]`);
    const stopped = state === "stopped" && worker && /^Stopped after/.test(said);
    check("listen: Stop does not stop", stopped, `${state} ${said}`);
}

async function recording(p, { check, recognise }) {
    await p.eval(`$("record").click()`);
    await p.until("ls.recorder", "the microphone");
    await new Promise((yes) => setTimeout(yes, 3600));
    await p.eval(`$("record").click()`);
    await p.until(`ls.sound.name === "recording"`, "the recorded sound");
    const old = await p.eval("ls.words.length + ls.views.length + $('heard').children.length");
    check("listen: words of the sound before", old === 0, `${old}`);
    await recognise();
    const [text, state, total, length] = await p.eval(
        `[$("heard").innerText, ls.state, ls.total, $("listen-audio").duration]`
    );
    check("listen: a recording is not recognised", state === "ended" && /tried.*failed/i.test(text), text);
    const whole = total > 300 && total < 1000 && Math.abs(length * 100 - total) < 5;
    check("listen: a recording is cut", whole, `${total} ${length}`);
}

module.exports = { listen };
