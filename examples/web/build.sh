#!/bin/sh
# build.sh [FILE]: builds the page, examples/web/index.html or FILE, from page.c, attn.h and page.html, .css, .js.
# The page is one file: a line "@inline FILE" of page.html becomes that file, "@base64 FILE" becomes it in base64.
# Needs clang 16 with lld and wasi-libc (Debian: clang-16 lld-16 wasi-libc libclang-rt-16-dev-wasm32). The same compiler
# makes the same bytes.
cd "$(dirname "$0")/../.." || exit 1
web=examples/web
to=${1:-$web/index.html}
mkdir -p build/page
clang-16 --target=wasm32-wasi -mexec-model=reactor -std=c99 -O2 -msimd128 -Wall -Wextra -I. $web/page.c \
    -o build/page/page.wasm -nostartfiles -Wl,--no-entry -Wl,--strip-all -Wl,-z,stack-size=1048576 || exit 1
awk -v web=$web '
    $1 == "@inline" { file = web "/" $2; while ((getline line < file) > 0) print line; close(file); next }
    $1 == "@base64" {
        file = $2 ~ /wasm$/ ? "build/page/" $2 : "examples/" $2
        command = "base64 -w 120 " file
        while ((command | getline line) > 0) print line
        close(command); next
    }
    { print }' $web/page.html > build/page/index.html || exit 1
mv build/page/index.html "$to"
