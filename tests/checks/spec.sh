#!/bin/sh
# make spec: tests/SPEC.md against attn.h. The test vectors, computed by libattn.so, must equal tests/spec/vectors.txt;
# tests/spec/attn_spec.py, the second implementation, must give the same hashes (cases.py), bits.txt, the traces of SPEC.md
# and, for 2,000 random calls (random_calls.py; 200 with QUICK=1), the bits of the library. A vector must notice each mistake
# of mistakes.txt (every fourth with QUICK=1). Last line: "spec: N passed, M failed".
#
#   sh tests/checks/spec.sh -s 7                     another seed of the random calls (-n 100: another number)
#   PYTHON=python3.12 sh tests/checks/spec.sh        this interpreter (default: the first python3 that has NumPy)
cd "$(dirname "$0")/../.." || exit 1
W=build/spec
mkdir -p $W || exit 1
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; [ ! -s "${2:-}" ] || tail -n 15 "$2" | sed 's/^/    /'; }
end() { echo "spec: $passed passed, $failed failed"; [ $failed = 0 ]; exit; }

# ---- the library and its vectors -------------------------------------------------------------------------------------
${MAKE:-make} -s lib > $W/log 2>&1 || { bad 'make lib' $W/log; end; }
fused=1
rm -f $W/vectors
${MAKE:-make} -s $W/vectors > $W/log 2>&1 && [ ! -s $W/log ] && ok || { bad 'vectors.c does not build in silence' $W/log; end; }
$RUN $W/vectors > $W/vectors.txt 2> $W/log
case $? in
0)  # one check per line, so that every case counts
    diff tests/spec/vectors.txt $W/vectors.txt > $W/log || bad 'vectors.c prints another file than tests/spec/vectors.txt' $W/log
    passed=$((passed + $(grep -Fxf tests/spec/vectors.txt $W/vectors.txt | grep -vc '^#'))) ;;
77) cat $W/log; fused= ;;
*)  bad 'vectors' $W/log ;;
esac

# the hashes of the sections, and their number, are those of SPEC.md's table
$RUN $W/vectors -n > $W/sections 2> $W/log || bad 'vectors.c has another number than its vectors give' $W/sections
number=$(sed -n 's/^number *//p' $W/sections)
grep -v '^#' tests/spec/vectors.txt | awk '{ print $1 }' > $W/cases
if [ -n "$fused" ]; then
    while read -r word section hash; do
        if [ "$word" = section ]
        then row="^| $section | [A-Z][a-z0-9]* | $(grep -cx "$section" $W/cases) | \`$hash\` |\$"
        else row="^| all | | $(grep -c . $W/cases) | \*\*$section\*\* |\$"; fi
        if [ "$(grep -c "$row" tests/SPEC.md)" = 1 ]; then ok; else bad "SPEC.md section 13 has no row $row"; fi
    done < $W/sections
fi

# every section has at least three vectors; SPEC.md names each of them in its section
for section in $(uniq $W/cases); do
    sed -n "/^## $section\. /,/^## /p" tests/SPEC.md | tr -s ' \n' ' ' > $W/section
    n=0
    for name in $(sed -n "s/^$section \([a-z0-9_]*\) .*/\1/p" tests/spec/vectors.txt); do
        n=$((n + 1))
        grep -qF "\`$name\`" $W/section || bad "SPEC.md section $section does not name the vector $name"
    done
    if [ $n -ge 3 ]; then ok; else bad "SPEC.md section $section has $n vectors, fewer than three"; fi
done

# ---- the second implementation ---------------------------------------------------------------------------------------
python=
for p in ${PYTHON:-python3 /usr/bin/python3}; do
    if "$p" -c 'import numpy' 2> /dev/null; then python=$p; break; fi
done
# adds what a program of tests/spec counts: name, least number of checks, then the command
counted()
{
    local name=$1 least=$2 n
    shift 2
    PYTHONDONTWRITEBYTECODE=1 "$python" tests/spec/"$name" "$@" > $W/log 2>&1 || bad "$name" $W/log
    grep -v '^ok' $W/log
    n=$(sed -n 's/^.*\<\([0-9][0-9]*\) passed, .*/\1/p' $W/log | tail -n 1)
    passed=$((passed + ${n:-0}))
    [ "${n:-0}" -ge "$least" ] || bad "$name made ${n:-0} checks"
}
calls=2000 every=1
[ -z "$QUICK" ] || calls=200 every=4
if [ -z "$python" ]; then echo 'spec: SKIPPED attn_spec.py, no python3 with NumPy here (apt-get install python3-numpy)'
else
    counted cases.py 121 tests/spec/vectors.txt
    if [ -n "$fused" ] && grep -qx "number $number" $W/log; then ok
    else [ -z "$fused" ] || bad "attn_spec.py has another number than $number: $(grep '^number' $W/log)"; fi
    # the bits of each output, and the worked traces of SPEC.md, come from this implementation
    PYTHONDONTWRITEBYTECODE=1 "$python" tests/spec/cases.py tests/spec/vectors.txt -b > $W/bits.txt 2> $W/log &&
        diff tests/spec/bits.txt $W/bits.txt >> $W/log && ok || bad 'cases.py -b prints another file than tests/spec/bits.txt' $W/log
    PYTHONDONTWRITEBYTECODE=1 "$python" tests/spec/trace.py tests/spec/vectors.txt > $W/traces.txt 2> $W/log
    sed -n '/^trace: /,/^```/p' tests/SPEC.md | grep -v '^```' | diff - $W/traces.txt > $W/log && [ -s $W/traces.txt ] && ok ||
        bad 'trace.py prints other traces than SPEC.md' $W/log
    [ -z "$fused" ] || counted random_calls.py 50 "$RUN $W/vectors" -n $calls "$@"
    counted mistakes.py 20 -e $every
fi
end
