#!/bin/sh
# make python: examples/python with an interpreter that has NumPy: the tests of tests/python, the output of look.py against
# the committed one, and the three ways in which attn.py finds its library. Last line: "python: N passed, M failed".
#
#   PYTHON=python3.12 sh tests/checks/python.sh        this interpreter (default: the first python3 that has NumPy)
cd "$(dirname "$0")/../.." || exit 1
W=$PWD/build/python
rm -rf "$W" && mkdir -p "$W" || exit 1
XDG_CACHE_HOME=$PWD/build/cache PYTHONDONTWRITEBYTECODE=1 PYTHONUTF8=1
export XDG_CACHE_HOME PYTHONDONTWRITEBYTECODE PYTHONUTF8
unset ATTN_LIBRARY ATTN_H
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; [ ! -s "${2:-}" ] || tail -n 15 "$2" | sed 's/^/    /'; }

python=
for p in ${PYTHON:-python3 /usr/bin/python3}; do
    if "$p" -c 'import numpy' 2> /dev/null; then python=$p; break; fi
done
if [ -z "$python" ]; then echo "python: SKIPPED, no python3 with NumPy here (apt-get install python3-numpy)"; exit 0; fi

for seed in 1 2 3; do
    if "$python" tests/python/test_attn.py $seed > "$W/log" 2>&1; then ok; else bad "test_attn.py $seed" "$W/log"; fi
    n=$(sed -n 's/^\([0-9]*\) passed, .*/\1/p' "$W/log")
    [ "${n:-0}" -gt 300 ] || bad "only ${n:-0} checks were made with seed $seed" "$W/log"
done

"$python" -c 'import torch' 2> /dev/null || echo 'python: torch is not here: its tensors are played'
"$python" -c 'import matplotlib' 2> /dev/null && drawn=1 || { drawn=; echo 'python: SKIPPED the picture, no matplotlib here'; }
"$python" examples/python/look.py ${drawn:+"$W/look.png"} > "$W/out" 2> "$W/log" && sed '/^drawn: /d' "$W/out" > "$W/look" &&
    cmp -s tests/python/look.txt "$W/look" && ok || { bad 'look.py does not print tests/python/look.txt' "$W/log"
    diff tests/python/look.txt "$W/look" | head -n 10; }
[ -z "$drawn" ] || { [ "$(head -c 4 "$W/look.png" | tail -c 3)" = PNG ] && ok || bad 'look.py draws no picture'; }

# ---- the recipe --------------------------------------------------------------------------------------------------------
sed -n '/^```python/,/^```/p' examples/RECIPES.md | sed '/^```/d' > "$W/readme.py"
(cd "$W" && PYTHONPATH=$OLDPWD/examples/python "$python" readme.py) > "$W/out" 2> "$W/log"
if [ "$(grep -c . "$W/out")" -eq 4 ] && grep -qE '^the +1.00 +0 +0$' "$W/out"; then ok; else bad 'the block of examples/RECIPES.md' "$W/log"; fi

# ---- finding the library ---------------------------------------------------------------------------------------------
use='import attn; print(attn.backends()[-1], attn.causal(1)[0, 0], attn.library()._name)'
alone=$W/alone
mkdir "$alone"
cp examples/python/attn.py "$alone/"
# try WHAT WANT: runs $use in a folder that has only attn.py
try() { (cd "$alone" && PATH=${path:-$PATH} "$python" -c "$use") > "$W/log" 2>&1
        if grep -q "$2" "$W/log"; then ok; else bad "$1" "$W/log"; fi; }
python=$(command -v "$python")
try 'neither header nor library' 'finds neither attn.h (beside it, or ATTN_H) nor an installed libattn.so (or ATTN_LIBRARY)'
library=$(ls -t "$XDG_CACHE_HOME"/attn/libattn-*.so | head -n 1)
ATTN_LIBRARY=$library; export ATTN_LIBRARY
try 'a library of the environment' "^scalar 0.0 $library"
unset ATTN_LIBRARY
# a header of another version, with larger structs; compiled without optimisation
awk '{ print } /^    attn_backend backend; / && !n++ { print "    double something_new[4];" }' attn.h > "$alone/attn.h"
CC='cc -DATTN_NO_SIMD -O0'; export CC
XDG_CACHE_HOME=$W/cache
try 'structs of another size' 'attn_args has [0-9]* bytes in attn.py, and [0-9]* in .*: take both from one place'
sed 's/define ATTN_VERSION 10000/define ATTN_VERSION 10100/' attn.h > "$alone/attn.h"
try 'a header of another version' 'attn.py is of version 10000, and .* of version 10100'
cp attn.h "$alone/"
try 'a header beside it' '^scalar 0.0 .*/cache/attn/libattn-'
grep -q '^attn.py: compiling' "$W/log" && ok || bad 'a compilation that is not announced' "$W/log"
try 'the cache' '^scalar 0.0 '
if grep -q compiling "$W/log"; then bad 'it is compiled again'; else ok; fi

echo "python: $passed passed, $failed failed"
[ $failed = 0 ]
