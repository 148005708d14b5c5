// browser.js: a headless Chromium driven over its debugging protocol through a pipe, with nothing but node.
const { spawn } = require("node:child_process");
const fs = require("node:fs"),
    os = require("node:os"),
    path = require("node:path");

// Starts the browser `program`, with more flags; close() ends it and removes its profile.
async function start(program, ...more) {
    const profile = fs.mkdtempSync(path.join(os.tmpdir(), "page-"));
    const flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--disable-extensions",
        "--mute-audio",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--remote-debugging-pipe",
        ...more,
        `--user-data-dir=${profile}`,
        "about:blank"
    ];
    const child = spawn(program, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    const waiting = new Map(),
        listeners = [];
    let last = 0,
        rest = "";
    const ended = new Promise((done) => child.on("exit", done));
    child.on("exit", () => {
        for (const { no } of waiting.values()) no(new Error("the browser has ended"));
    });
    child.stdio[4].setEncoding("utf8");
    child.stdio[4].on("data", (more) => {
        const all = (rest + more).split("\0");
        rest = all.pop();
        for (const one of all) {
            const m = JSON.parse(one);
            if (m.id) {
                const { yes, no, method } = waiting.get(m.id);
                waiting.delete(m.id);
                if (m.error) no(new Error(`${method}: ${m.error.message}`));
                else yes(m.result);
            } else for (const f of listeners) f(m);
        }
    });
    const send = (method, params = {}, sessionId = undefined) =>
        new Promise((yes, no) => {
            waiting.set(++last, { yes, no, method });
            child.stdio[3].write(JSON.stringify({ id: last, method, params, sessionId }) + "\0");
        });
    const close = async () => {
        await Promise.race([send("Browser.close").catch(() => {}), ended]);
        await Promise.race([ended, new Promise((done) => setTimeout(done, 5000))]);
        if (child.exitCode === null) child.kill("SIGKILL");
        fs.rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    };
    // A tab: everything it requests and complains of is kept
    const tab = async () => {
        const { targetId } = await send("Target.createTarget", { url: "about:blank" });
        const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
        const page = { requests: [], complaints: [] };
        page.send = (method, params) => send(method, params, sessionId);
        let loaded = () => {};
        listeners.push((m) => {
            if (m.sessionId !== sessionId) return;
            if (m.method === "Network.requestWillBeSent") page.requests.push(m.params.request.url);
            if (m.method === "Runtime.exceptionThrown") page.complaints.push(JSON.stringify(m.params.exceptionDetails));
            if (m.method === "Runtime.consoleAPICalled") page.complaints.push(JSON.stringify(m.params.args));
            if (m.method === "Log.entryAdded") page.complaints.push(m.params.entry.text);
            if (m.method === "Page.loadEventFired") loaded();
        });
        for (const what of ["Page", "Network", "Runtime", "Log"]) await page.send(`${what}.enable`);
        // the value of an expression in the page; promises are waited for
        page.eval = async (expression) => {
            const r = await page.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
            if (r.exceptionDetails)
                throw new Error(r.exceptionDetails.exception?.description ?? r.exceptionDetails.text);
            return r.result.value;
        };
        page.open = async (url) => {
            const done = new Promise((yes) => {
                loaded = yes;
            });
            await page.send("Page.navigate", { url });
            await done;
        };
        page.until = async (expression, what, ms = 20000) => {
            const end = Date.now() + ms;
            while (!(await page.eval(expression))) {
                if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
                await new Promise((yes) => setTimeout(yes, 20));
            }
        };
        page.size = (width, height, mobile = false) =>
            page.send("Emulation.setDeviceMetricsOverride", {
                width,
                height,
                deviceScaleFactor: mobile ? 2 : 1,
                mobile
            });
        page.theme = (value) =>
            page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
        page.shot = async (file, whole = true) => {
            const { data } = await page.send("Page.captureScreenshot", { format: "png", captureBeyondViewport: whole });
            fs.writeFileSync(file, Buffer.from(data, "base64"));
        };
        // milliseconds of processor time that the tasks of the page took so far
        page.time = async () => {
            await page.send("Performance.enable", { timeDomain: "threadTicks" });
            const { metrics } = await page.send("Performance.getMetrics");
            return 1000 * metrics.find((m) => m.name === "TaskDuration").value;
        };
        page.key = async (key, text) => {
            const code = {
                ArrowLeft: 37,
                ArrowUp: 38,
                ArrowRight: 39,
                ArrowDown: 40,
                Tab: 9,
                Enter: 13,
                Home: 36,
                End: 35
            }[key];
            const params = { key, code: key, windowsVirtualKeyCode: code, text };
            await page.send("Input.dispatchKeyEvent", { type: text ? "keyDown" : "rawKeyDown", ...params });
            await page.send("Input.dispatchKeyEvent", { type: "keyUp", ...params });
        };
        page.type = async (text) => {
            for (const letter of text) {
                await page.send("Input.dispatchKeyEvent", { type: "keyDown", key: letter, text: letter });
                await page.send("Input.dispatchKeyEvent", { type: "keyUp", key: letter });
            }
        };
        return page;
    };
    return { tab, close };
}

module.exports = { start };
