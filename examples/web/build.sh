#!/bin/sh
# build.sh [FILE]: builds the page, examples/web/index.html or FILE, from page.c, attn.h, the translator and its model,
# and page.html, .css, .js. The page is one file: a line "@inline FILE" of page.html becomes that file of this folder,
# "@wasm", "@wasm-fma" and "@model" become the compiled C, without and with relaxed SIMD, and the model in base64.
# Needs clang 16 with lld and wasi-libc (Debian: clang-16 lld-16 wasi-libc libclang-rt-16-dev-wasm32). The same compiler
# makes the same bytes.
cd "$(dirname "$0")/../.." || exit 1
web=examples/web
to=${1:-$web/index.html}
mkdir -p build/page
compile() # name, flags
{
    name=$1
    shift
    clang-16 --target=wasm32-wasi -mexec-model=reactor -nostartfiles -std=c99 -O2 -msimd128 "$@" -Wall -Wextra \
        -Wno-unused-function -I. -Wl,--no-entry -Wl,--strip-all -Wl,-z,stack-size=1048576 \
        $web/page.c -o build/page/$name.wasm && base64 -w 120 build/page/$name.wasm > build/page/$name.txt
}
compile wasm && compile wasm-fma -mrelaxed-simd -DATTN_NO_WASM || exit 1
base64 -w 120 "${MODEL:-examples/translate/german-english.bin}" > build/page/model.txt || exit 1
awk -v web=$web '
    function put(file,   line, n) {
        while ((n = (getline line < file)) > 0) print line
        close(file)
        if (n < 0) exit bad = 1
    }
    $1 == "@inline" { put(web "/" $2); next }
    $1 == "@wasm" || $1 == "@wasm-fma" || $1 == "@model" { put("build/page/" substr($1, 2) ".txt"); next }
    { print }
    END { exit bad }' $web/page.html > build/page/index.html || exit 1
mv build/page/index.html "$to"
