#!/bin/sh
# models.sh: trained models with published numbers, read where they are (MODELS=folder, default ../shared/models) and run through
# the public API: tests/models/. As this machine is, as if it were an older one (ATTN_HIDE), and without vectors: the same bits.
# Last line: "models: N passed, M failed". Words are handed to the program: only tests whose name contains one.
cd "$(dirname "$0")/.." || exit 1
models=${MODELS:-../shared/models}
out=build/models
if [ ! -d "$models" ]; then
    echo "models: SKIPPED, there is no folder $models; set MODELS"
    exit 0
fi
mkdir -p $out || exit 1
passed=0 failed=0
say() { [ "$2" = ok ] && passed=$((passed + 1)) || failed=$((failed + 1)); printf '%-4s %s\n' "$2" "$1"; }

# ---- the tests of models/*.c ------------------------------------------------------------------------------------------
flags="-std=c99 -Wall -Wextra ${CFLAGS:--O2} -I. -Itests -DATTN_SERIAL_FLOPS=0"
program() # name, flags: the implementation takes a while, so both are made side by side
{
    name=$1; shift
    ${CC:-cc} $flags "$@" tests/attn_impl.c tests/harness.c tests/models/*.c -o "$out/$name" -lm -pthread > "$out/$name.log" 2>&1
}
rm -f $out/models $out/scalar
program models & program scalar -O1 -DATTN_NO_SIMD & wait
for name in models scalar; do
    if [ ! -x $out/$name ] || [ -s $out/$name.log ]; then
        head -n 20 $out/$name.log; say "tests/models does not build in silence ($name)" FAIL
    fi
done
run() # what it is called, the program and its words: adds up what it counts; its bits are in $bits
{
    called=$1; shift
    "$@" > $out/out 2>&1
    status=$?
    sum=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' $out/out) ok=${sum%% *} bad=${sum#*, } bits=$(sed -n 's/^bits: //p' $out/out)
    grep -vE '^(bits:|[0-9]+ passed)' $out/out | sed "s/^/$called: /"
    passed=$((passed + ${ok:-0})) failed=$((failed + ${bad% failed}))
    [ $status = 0 ] && [ -n "$sum" ] || [ "${bad% failed}" -gt 0 ] 2> /dev/null || say "$called: ended with status $status" FAIL
}
same() { [ "$bits" = "$want" ] && say "$1: the same bits" ok || say "$1: the bits $bits, not $want" FAIL; }
few='log_probabilities searches step_by_step'
run 'this machine' $RUN $out/models "$models" "$@"
if [ $# = 0 ]; then
    want=$bits
    backends=$(grep -o 'avx512' /proc/cpuinfo 2> /dev/null | head -1)
    if [ -n "$backends" ]; then
        ATTN_HIDE=avx512 run 'without avx512' $RUN $out/models "$models" $few; same 'without avx512'
    fi
    case $(uname -m) in
    x86_64) ATTN_HIDE=avx512,avx2 run 'without avx2' $RUN $out/models "$models" $few ;;       # SSE2 has bits of its own
    esac
    # (bits are those of fused multiply-add, so without it there is nothing to compare)
    run 'without vectors' $RUN $out/scalar "$models" log_probabilities step_by_step
    case $(uname -m) in
    x86_64) grep -qw avx2 /proc/cpuinfo 2> /dev/null && same 'without vectors' ;;
    *) same 'without vectors' ;;
    esac
fi

echo "models: $passed passed, $failed failed"
[ $failed = 0 ]
