#!/bin/sh
# page.sh: the page examples/web/index.html. Is it what its sources make? Does it say in a real browser what C says?
# Last line: N passed, M failed.
#
#   1. built again with clang 16, it is the committed file, byte for byte
#   2. the hashes of "Same bits" are those of bits.c as a plain C program, on every backend
#   3. tests/page/check.js drives a headless Chromium (CHROMIUM=program; Debian: chromium), needs node
cd "$(dirname "$0")/.." || exit 1
out=build/page
mkdir -p $out
passed=0 failed=0
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "page: FAILED $1"; }

if command -v clang-16 > /dev/null && command -v wasm-ld-16 > /dev/null && [ -d /usr/include/wasm32-wasi ]; then
    if ! sh examples/web/build.sh $out/again.html > $out/log 2>&1 || [ -s $out/log ]; then
        fail 'the page does not build in silence'; head -20 $out/log
    elif cmp $out/again.html examples/web/index.html; then pass
    else fail 'examples/web/index.html is not what its sources make: run `make page` and commit it'; fi
else
    echo 'SKIPPED: is the page what its sources make? (install clang-16 lld-16 wasi-libc libclang-rt-16-dev-wasm32)'
fi

if ${CC:-cc} -O2 -DBITS_MAIN -I. examples/web/bits.c -o $out/bits && $out/bits > $out/bits.txt; then
    for kind in simd scalar; do
        hash=$(sed -n "s/^const bits_of_c.*$kind: \"\([0-9a-f]*\)\".*/\1/p" examples/web/bits.js)
        # sse2 has no fma, as wasm; every other backend has the bits of scalar code
        if awk -v kind=$kind -v hash="$hash" '
            ($1 == "sse2") == (kind == "simd") { if ($NF != hash) bad = bad "\n" $0 }
            END { if (hash == "" || bad != "") { print "page shows " hash bad; exit 1 } }' $out/bits.txt; then pass
        else fail "hashes of C, $kind"; fi
    done
else fail 'examples/web/bits.c does not build or run'; fi

browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
if [ -z "$browser" ]; then echo 'SKIPPED: the page in a browser (install chromium, or set CHROMIUM)'
elif ! command -v node > /dev/null; then echo 'SKIPPED: the page in a browser (install nodejs)'
else
    node tests/page/check.js "$browser" "$PWD" > $out/check.txt 2>&1
    status=$?
    grep -v '^[0-9]* passed, [0-9]* failed$' $out/check.txt
    sum=$(grep '^[0-9]* passed, [0-9]* failed$' $out/check.txt | tail -1)
    if [ -n "$sum" ]; then
        more=${sum#*, }
        passed=$((passed + ${sum%% *})) failed=$((failed + ${more%% *}))
    else fail "the browser's tests did not end (status $status)"; fi
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
