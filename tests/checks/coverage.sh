#!/bin/sh
# coverage.sh: lines and branches of attn.h that the tests execute. Sections 2 to 10: every line and every branch. Sections
# 11 and 12, the kernels: every line in one of the passes, and every function of each pass. Kernel branches are mostly
# constants of their pass, and which pass takes which tail depends on the processor. coverage.txt lists what cannot be
# reached, with the reason. Last line: "coverage: N passed, M failed".
#
#   sh tests/checks/coverage.sh              all tests
#   sh tests/checks/coverage.sh -a           also list what is excluded
#   QUICK=1 sh tests/checks/coverage.sh      without some long tests that reach nothing more
#   HIDE=avx512 sh tests/checks/coverage.sh  repeated as on a processor without it (hide.h); several
#                                            separated by blanks: the result must be the same
#
# The requirement does not depend on the processor: a pass that it cannot run is emulated. Some of the tests then run a
# second time, with an implementation that gets its instructions from SIMDe, and their coverage is added.
#
# gcc's gcov is used directly: it distinguishes the three passes of a kernel line, which gcovr adds up. Everything is
# compiled with -O0 and nothing is inlined, so that branches are those of the source; ATTN_ASSERT is disabled.
cd "$(dirname "$0")/../.." || exit 1
stop() { echo 'coverage: 0 passed, 1 failed'; exit 1; }
gcc=${GCC:-gcc} gcov=${GCOV:-gcov} out=build/coverage passes='avx512 avx2 sse2'
for tool in $gcc $gcov python3; do
    command -v "$tool" > /dev/null || { echo "SKIPPED coverage: no $tool"; exit 0; }
done
[ "$(uname -m)" = x86_64 ] || { echo 'SKIPPED coverage: it knows the passes of x86-64'; exit 0; }
rm -rf $out
mkdir -p $out/played
flags='-I. -Itests/support -DATTN_SERIAL_FLOPS=0 -pthread -w'
count='-O0 --coverage -fprofile-update=atomic -Dalways_inline=noinline -fno-inline -DNDEBUG
       --param=logical-op-non-short-circuit=0'
compile() # lines of arguments
{
    xargs -P "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" -I {} sh -c "$gcc $flags -c {}" || stop
}

# "implementation" files are measured; the others are only linked
for f in tests/suites/*.c tests/support/*.c; do
    b=$(basename "$f" .c) how=-O1
    [ "$b" != golden ] && grep -q '^#define ATTN_IMPLEMENTATION' "$f" && how=$count
    echo "$f -std=c99 -o $out/$b.o $(echo $how)"
done | compile
$gcc --coverage $out/*.o -o $out/test -lm -pthread || stop

# two processes add to the same counts; a failing test fails here
run() # program, name, tests, one per line
{
    (IFS='
'; set -f; $1 $3) > $out/$2.log 2>&1 || echo "$2.log: status $?" >> $out/failed
}
# long tests whose coverage others provide. A test missing here shows as a line that is not reached
long='kv/random histories|mha/composition|args_memory/(no_malloc|workspace|uninitialised_work)|math/(tanh|exp)'
long="$long|sdpa/(random|shapes|accuracy)|poison/random|stored/histories|storage/products"
long="$long|bits/(golden|batch sizes|host environment|split)"
all=$($out/test -l | sed 's/^\([a-z0-9_]*\) *\(.\{32\}\).*/\1\/\2/; s/ *$//')
names=$all
[ -z "$QUICK" ] || names=$(echo "$names" | grep -vxE "$long")
# tests of the kernels, or of their use by the driver, that take less than a minute in plain C
played=$(echo "$all" | grep -vxE "$long" |
    grep -E '^(args[a-z_]*|masks|bits|sdpa|edges|linear|norms|rope|carry|step|sparse|storage|paths|kv|pages|stored)/|^(mha/backends and threads|math/activation kernels)' |
    grep -vxE 'args_memory/allocation|sparse/all keys|bits/in place|rope/far positions|storage/(products|boundaries)|pages/histories')

play() # builds a program, once, and runs it, also without the conversion instructions of half
{
    if [ ! -f $out/played/test ]; then
        for f in tests/support/attn_impl.c tests/suites/private.c; do
            echo "$f -std=gnu99 -Wno-psabi -o $out/played/$(basename $f .c).o $(echo $count)" \
                '-fprofile-filter-files=attn[.]h$ -Itests/cross/simde -DATTN__MSAN -DHIDE_PLAYED'
        done | compile
        $gcc --coverage $out/played/*.o $(ls $out/*.o | grep -vE '/(attn_impl|private)\.o$') \
            -o $out/played/test -lm -pthread || stop
    fi
    run $out/played/test p "$(echo "$played" | sed -n 'p;n')" & run $out/played/test r "$(echo "$played" | sed -n 'n;p')" &
    (ATTN_HIDE=f16c; export ATTN_HIDE; run $out/played/test q 'storage/widen all
storage/same conversions') &
    wait
    grep -q "backends: $passes scalar$" $out/p.log || { echo "coverage: not played: $passes"; echo played >> $out/failed; }
}

passed=0 failed=0
judge() # options: the coverage on the processor that ATTN_HIDE leaves
{
    rm -f $out/*.gcda $out/played/*.gcda $out/*.json $out/played/*.json $out/failed
    run $out/test a "$(echo "$names" | sed -n 'p;n')" & run $out/test b "$(echo "$names" | sed -n 'n;p')"
    wait
    backends=$(sed -n 's/.*backends: *//p' $out/a.log)
    echo "coverage: this processor has $backends${ATTN_HIDE:+, where $ATTN_HIDE is hidden}"
    if [ "$backends" != "$passes scalar" ]; then
        [ -f /usr/include/simde/x86/avx512.h ] ||
            { echo 'SKIPPED coverage: no SIMDe here to play the others (install libsimde-dev)'; return; }
        echo 'coverage: the others are played by SIMDe'
        play
    fi
    if [ -f $out/failed ]; then
        cat $out/failed
        grep -h '^  FAIL\|CRASH' $out/?.log | head
        stop
    fi
    for o in $out/*.gcda $out/played/*.gcda; do
        [ ! -f "$o" ] || $gcov -b -c -j -t "${o%.gcda}.o" > "${o%.gcda}.json" 2> $out/gcov.log || { cat $out/gcov.log; stop; }
    done
    marked=$(for p in $passes; do case " $backends " in *" $p "*) echo $p ;; *) echo $p+ ;; esac; done)
    LC_ALL=C.UTF-8 python3 tests/checks/coverage.py "$@" $marked : $out/attn_impl.json \
        $(ls $out/*.json $out/played/*.json 2> /dev/null | grep -v $out/attn_impl) > $out/judged
    grep -v '^coverage: ' $out/judged
    n=$(sed -n 's/^coverage: //p' $out/judged)
    [ -n "$n" ] || stop
    passed=$((passed + ${n%% *})) n=${n#*, } failed=$((failed + ${n%% *}))
}
judge "$@"
for hide in $HIDE; do ATTN_HIDE=$hide; export ATTN_HIDE; judge "$@"; done
[ $((passed + failed)) = 0 ] || echo "coverage: $passed passed, $failed failed"
[ $failed = 0 ]
