#!/bin/sh
# build.sh [FILE]: builds the page as build/index.html or FILE from page.c and listen.c, attn.h, the translator and its
# model, the speech recogniser, and page.html, .css, .js. The page is one file: in page.html a line "@inline FILE" is
# replaced by that file of this folder, "@wasm" and "@wasm-fma" by the compiled C without and with relaxed SIMD,
# "@model" by the model in base64, and "@version" by the version and the commit of the sources. Needs clang 16 with lld and
# wasi-libc (Debian: clang-16 lld-16 wasi-libc libclang-rt-16-dev-wasm32). The same sources and compiler give the same
# bytes.
#
# examples/web/index.html is the page of a release. Renew it only for a release: build.sh examples/web/index.html
cd "$(dirname "$0")/../.." || exit 1
web=examples/web
to=${1:-build/index.html}
mkdir -p build/page
compile() # name, flags
{
    name=$1
    shift
    clang-16 --target=wasm32-wasi -mexec-model=reactor -nostartfiles -std=c99 -O2 -msimd128 "$@" -Wall -Wextra \
        -Wno-unused-function -I. -Wl,--no-entry -Wl,--strip-all -Wl,-z,stack-size=1048576 \
        $web/page.c $web/listen.c -o build/page/$name.wasm &&
        base64 -w 120 build/page/$name.wasm > build/page/$name.txt
}
compile wasm && compile wasm-fma -mrelaxed-simd -DATTN_NO_WASM || exit 1
base64 -w 120 "${MODEL:-examples/translate/german-english.bin}" > build/page/model.txt || exit 1
version=$(awk '/define ATTN_VERSION/ { printf "%d.%d.%d", $3 / 10000, $3 / 100 % 100, $3 % 100 }' attn.h)
commit=$(git log -1 --format='commit %h of %cs' 2> /dev/null) || commit=
[ -z "$commit" ] || git diff --quiet HEAD -- attn.h examples || commit="$commit and changes"
awk -v web=$web -v version="$version${commit:+, $commit}" '
    function put(file,   line, n) {
        while ((n = (getline line < file)) > 0) print line
        close(file)
        if (n < 0) exit bad = 1
    }
    $1 == "@inline" { put(web "/" $2); next }
    $1 == "@wasm" || $1 == "@wasm-fma" || $1 == "@model" { put("build/page/" substr($1, 2) ".txt"); next }
    $1 == "@version" { printf "<meta name=\"attn-version\" content=\"%s\">\n", version; next }
    { print }
    END { exit bad }' $web/page.html > build/page/new.html || exit 1
mv build/page/new.html "$to"
