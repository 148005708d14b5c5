// bits.js: the same attention in five ways, hashed here and compared with the hashes of C.

// Output of `build/bits` (bits.c as a plain C program); tests/checks/page.sh compares them.
const bits_of_c = { simd: "28cea8b22a98e91b", scalar: "c2008314db78f410" };
// explains the bits of the fast code, depending on the engine (page.js)
const bits_why = {
    yes:
        "WebAssembly’s relaxed multiply-add may do either. In this browser, on this processor, it rounds once, so " +
        "the fast code has the bits of native code.",
    "rounds twice":
        "WebAssembly’s relaxed multiply-add may do either. In this browser, on this processor, it rounds twice, so " +
        "the fast code does not use it and has other bits: those of C with SSE2, which has no such instruction.",
    missing:
        "This browser’s WebAssembly has none, so the fast code has other bits: those of C with SSE2, which has no " +
        "such instruction either."
};
const bits_forms = [
    "one call",
    "step by step, through a cache",
    "in a batch with two other sequences",
    "in three parts, carried from one to the next",
    "as tasks of seven threads, run last to first"
];

parts.push(() => {
    const table = $("bits-table");
    const native = fused === "yes";
    const expected = [native ? bits_of_c.scalar : bits_of_c.simd, bits_of_c.scalar];
    $("bits-note").textContent = bits_why[fused];
    const cells = [];
    const body = el("tbody");
    bits_forms.forEach((form) => {
        const row = [el("td", { text: "…" }), el("td", { text: "…" })];
        cells.push(row);
        body.append(el("tr", {}, el("th", { scope: "row", text: form }), ...row));
    });
    body.append(
        el(
            "tr",
            { class: "c" },
            el("th", { scope: "row", text: "C, one call" }),
            ...expected.map((hash) => el("td", { text: hash }))
        )
    );
    table.append(
        el("caption", { class: "sr", text: "Hashes of the same attention computed in different ways" }),
        el(
            "thead",
            {},
            el(
                "tr",
                {},
                el("td"),
                el(
                    "th",
                    { scope: "col" },
                    native ? "WebAssembly SIMD, fused" : "WebAssembly SIMD",
                    el("small", { text: native ? "C: AVX2, AVX-512, NEON, scalar" : "C: the SSE2 backend" })
                ),
                el("th", { scope: "col" }, "scalar code", el("small", { text: "C: scalar, AVX2, AVX-512, NEON" }))
            )
        ),
        body
    );

    const one = (form, scalar) => {
        const hash = BigInt.asUintN(64, wasm.bits(form, scalar)).toString(16).padStart(16, "0");
        const same = hash === expected[scalar];
        const cell = cells[form][scalar];
        cell.textContent = hash;
        cell.className = same ? "same" : "off";
        cell.setAttribute("aria-label", `${hash}, ${same ? "the same as" : "DIFFERENT from"} C`);
        return same;
    };
    $("bits-run").addEventListener("click", () => {
        $("bits-said").textContent = "computing …";
        let i = 0,
            same = 0;
        const took = [0, 0];
        const next = () => {
            // one hash per task, so that the page stays responsive
            const start = performance.now();
            same += one(Math.floor(i / 2), i % 2);
            took[i % 2] += performance.now() - start;
            if (++i < 2 * bits_forms.length) {
                setTimeout(next);
                return;
            }
            $("bits-said").textContent =
                same === i
                    ? `All ${i} equal those of C. SIMD: ${took[0].toFixed(0)} ms, scalar code: ${took[1].toFixed(0)} ms.`
                    : `${i - same} of ${i} DIFFER from those of C.`;
        };
        setTimeout(next);
    });
});
