#!/bin/sh
# coverage.sh: every line and every branch of attn.h must be taken by the tests, in each kernel pass and each section.
# What cannot be taken stands in coverage.txt, with its reason. Last line: "coverage: N passed, M failed".
#
#   sh tests/coverage.sh              all tests                 sh tests/coverage.sh -a       list what is excluded, too
#   QUICK=1 sh tests/coverage.sh      without some long tests that reach nothing more: two minutes
#
# gcc's own gcov is used directly: it tells the three passes of one kernel line apart, gcovr adds them up. Everything is
# compiled at -O0 and nothing is inlined, so that a branch is one in the source; ATTN_ASSERT tests nothing here.
cd "$(dirname "$0")/.." || exit 1
stop() { echo 'coverage: 0 passed, 1 failed'; exit 1; }
gcc=${GCC:-gcc} gcov=${GCOV:-gcov} out=build/coverage
for tool in $gcc $gcov python3; do
    command -v "$tool" > /dev/null || { echo "SKIPPED coverage: no $tool"; exit 0; }
done
rm -rf $out
mkdir -p $out
flags='-std=c99 -I. -Itests -DATTN_SERIAL_FLOPS=0 -pthread -w'
count='-O0 --coverage -fprofile-update=atomic -Dalways_inline=noinline -fno-inline -DNDEBUG
       --param=logical-op-non-short-circuit=0'

# "implementation" files are measured, the others are just part of the program
for f in tests/*.c; do
    b=$(basename "$f" .c) how=-O1
    [ "$b" != golden ] && grep -q '^#define ATTN_IMPLEMENTATION' "$f" && how=$count
    echo "$f -o $out/$b.o $(echo $how)"
done | xargs -P "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" -I {} sh -c "$gcc $flags -c {}" || stop
$gcc --coverage $out/*.o -o $out/test -lm -pthread || stop

# two processes add to the same counts; a test that fails here is a failure, too
run() # name, tests, one a line
{
    (IFS='
'; set -f; $out/test $2) > $out/$1.log 2>&1 || echo "$1.log: status $?" >> $out/failed
}
# long, and what they reach others reach, too. One that is missed here shows as a line that is not taken
long='kv/random histories|mha/(rope far|composition)|args/(no_malloc|workspace|garbage)|math/(tanh|exp)'
long="$long|sdpa/(random|shapes|accuracy)|poison/random|bits/(golden|company|hostile|split)"
names=$($out/test -l | sed 's/^\([a-z]*\) *\(.\{32\}\).*/\1\/\2/; s/ *$//')
[ -z "$QUICK" ] || names=$(echo "$names" | grep -vxE "$long")
run a "$(echo "$names" | sed -n 'p;n')" & run b "$(echo "$names" | sed -n 'n;p')"
wait
if [ -f $out/failed ]; then
    cat $out/failed
    grep -h '^  FAIL\|CRASH' $out/?.log | head
    stop
fi

for o in $out/*.gcda; do
    $gcov -b -c -j -t "${o%.gcda}.o" > "${o%.gcda}.json" 2> $out/gcov.log || { cat $out/gcov.log; stop; }
done
backends=$(sed -n 's/.*backends: *//p' $out/a.log)
LC_ALL=C.UTF-8 python3 tests/coverage.py "$@" $backends : $out/attn_impl.json $(ls $out/*.json | grep -v attn_impl)
