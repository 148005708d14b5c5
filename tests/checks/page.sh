#!/bin/sh
# page.sh: tests the page. Last line: N passed, M failed.
#
#   1. the sources build with clang 16, without a warning, into build/page/index.html
#   2. the hashes of "Same bits" are those of bits.c as a plain C program, on every backend
#   3. in a headless Chromium this page gives the results of the C library: tests/page/check.js, and those of the native
#      speech recogniser: tests/page/listen.js (CHROMIUM=program; Debian: chromium; needs node; SPEECH=folder, default
#      ../shared/speech)
#   4. the committed page, examples/web/index.html, names the version it was built from. It may be older than the
#      sources, because only releases update it
cd "$(dirname "$0")/../.." || exit 1
out=build/page
mkdir -p $out
passed=0 failed=0
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "page: FAILED $1"; }

rm -f $out/index.html
if command -v clang-16 > /dev/null && command -v wasm-ld-16 > /dev/null && [ -d /usr/include/wasm32-wasi ]; then
    if sh examples/web/build.sh $out/index.html > $out/log 2>&1 && [ ! -s $out/log ]; then pass
    else fail 'the page does not build without a warning'; head -20 $out/log; fi
else
    echo 'SKIPPED: building the page (install clang-16 lld-16 wasi-libc libclang-rt-16-dev-wasm32)'
fi

if ${CC:-cc} -O2 -DBITS_MAIN -I. examples/web/bits.c -o $out/bits && $out/bits > $out/bits.txt; then
    for kind in simd scalar; do
        hash=$(sed -n "s/^const bits_of_c.*$kind: \"\([0-9a-f]*\)\".*/\1/p" examples/web/bits.js)
        # sse2 and wasm have no fma; every other backend has the bits of scalar code
        if awk -v kind=$kind -v hash="$hash" '
            ($1 == "sse2") == (kind == "simd") { if ($NF != hash) bad = bad "\n" $0 }
            END { if (hash == "" || bad != "") { print "page shows " hash bad; exit 1 } }' $out/bits.txt; then pass
        else fail "hashes of C, $kind"; fi
    done
else fail 'examples/web/bits.c does not build or run'; fi

browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
if [ ! -f $out/index.html ]; then echo 'SKIPPED: the page in a browser (it was not built)'
elif [ -z "$browser" ]; then echo 'SKIPPED: the page in a browser (install chromium, or set CHROMIUM)'
elif ! command -v node > /dev/null; then echo 'SKIPPED: the page in a browser (install nodejs)'
else
    node tests/page/check.js "$browser" "$PWD" $out/index.html > $out/check.txt 2>&1
    status=$?
    grep -v '^[0-9]* passed, [0-9]* failed$' $out/check.txt
    sum=$(grep '^[0-9]* passed, [0-9]* failed$' $out/check.txt | tail -1)
    if [ -n "$sum" ]; then
        more=${sum#*, }
        passed=$((passed + ${sum%% *})) failed=$((failed + ${more%% *}))
    else fail "the browser's tests did not end (status $status)"; fi
fi

committed=$(sed -n 's/^<meta name="attn-version" content="\([0-9][0-9.]*, commit [0-9a-f]* of [0-9-]*\)">$/\1/p' \
    examples/web/index.html)
if [ -n "$committed" ]; then pass; echo "page: examples/web/index.html was made from attn.h $committed"
else fail 'examples/web/index.html does not name the version and commit it was made from'; fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
