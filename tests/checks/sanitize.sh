#!/bin/sh
# sanitize.sh: the tests under every sanitizer installed here. Last line: "sanitize: N passed, M failed".
#
#   asan       clang: address (with tests/support/fence.h between the parts of work memory), undefined, and integer
#              for attn.h itself (sanitize.supp lists intended cases)
#   gcc        gcc: address, undefined
#   msan       clang: memory, with origins
#   tsan       threads: the pool, executors, shared caches and layers (soak/soak.c)
#   valgrind   memcheck; its CPU has AVX2 but no AVX-512, so it runs the paths of scalar, SSE2 and AVX2
#
#   sh tests/checks/sanitize.sh             all
#   sh tests/checks/sanitize.sh msan tsan   these
#   QUICK=1 sh tests/checks/sanitize.sh     part of the tests each, -O1 at most, fewer passes over the kernels:
#                                           less than 7 minutes
cd "$(dirname "$0")/../.." || exit 1
out=build/sanitize
mkdir -p $out
passed=0 failed=0
tests=$(ls tests/suites/*.c tests/support/*.c | grep -v attn_impl)
words='masks torch tokens underflow wrong truncate columns'                      # of valgrind
# their own implementations omit the kernels, which take a sanitizer a minute each
kernels=${QUICK:+-DATTN_NO_SIMD}
# the quick form tests the kernels of AVX2 alone (valgrind also runs SSE2)
one_pass=${QUICK:+-DATTN_NO_SSE2 -DATTN_NO_AVX512}
quick='masks torch levels tokens steps golden empty minus rejected mha_calls truncate reorder history workspace unwritten rope_pos'
threads='pool threads shared batch independent split several steps backends'
. tests/checks/suites.sh
# the files of the tests that these words select, with private.c, which has tests of other suites, and without the one that
# compiles attn.h again
small() { { suites_of "$@"; echo tests/suites/private.c; } | sort -u | grep -v test_stack; echo "$tests" | grep /support/; }

build() # name, compiler, flags for attn.h only, flags for all
{
    files=$tests own=
    [ $1 = gcc ] || own=$kernels
    case ${QUICK:+1}$1 in
    1asan|1msan) files=$(small $quick) ;;
    1valgrind) files=$(small $words) ;;
    1tsan) files=$(small $threads) own= ;;                         # suite pool needs all kernels
    esac
    rm -rf $out/$1 $out/$1.d
    mkdir $out/$1.d
    flags="-std=c99 -O1 -g -fno-omit-frame-pointer $4 -I. -Itests/support -DATTN_SERIAL_FLOPS=0"
    { echo "$flags $3 -c tests/support/attn_impl.c -o $out/$1.d/attn_impl.o"
      for file in $files; do echo "$flags $own -c $file -o $out/$1.d/$(basename $file .c).o"; done; } |
        xargs -P2 -L1 $2 && $2 $4 $out/$1.d/*.o -o $out/$1 -lm -pthread
}

have() # tool, flags: succeeds if it compiles and links with them
{
    echo 'int main(void) { return 0; }' > $out/probe.c
    command -v "$1" > /dev/null && $1 $2 $out/probe.c -o $out/probe 2>/dev/null && $out/probe
}

check() # name, command...: runs it; the log must contain no report
{
    name=$1; shift
    "$@" > $out/$name.log 2>&1
    status=$?
    sum=$(grep -E '[0-9]+ passed, [0-9]+ failed' $out/$name.log | tail -n 1)
    found=$(grep -cE 'runtime error:|ERROR: (Address|Leak)|WARNING: (Memory|Thread)|^==[0-9]+== [A-Z]' $out/$name.log)
    if [ $status = 0 ] && [ "$found" = 0 ] && [ -n "$sum" ]; then
        echo "ok   $name: $sum"; passed=$((passed + 1))
    else
        echo "FAIL $name: status $status, $found reports; ${sum:-no end}; $out/$name.log"; failed=$((failed + 1))
        grep -E 'runtime error:|ERROR: |WARNING: |^==[0-9]+== [A-Z]|^ *#[0-3] |^  FAIL' $out/$name.log | head -n 20
    fi
}

broken() { echo "FAIL $1: does not build"; failed=$((failed + 1)); head -n 5 $out/$1.build; }
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1:suppressions=$PWD/tests/checks/sanitize.supp
export TSAN_OPTIONS=halt_on_error=0:second_deadlock_stack=1

for part in ${*:-asan gcc msan tsan valgrind}; do
    case $part in
    asan)
        have clang '-fsanitize=address,undefined,integer' || { echo 'SKIPPED asan: no clang with it (libclang-rt-dev)'; continue; }
        # unset memory is 0xAA.., so that arithmetic with it, which msan does not report without a branch, overflows
        # without optimisation in the quick form: clang takes ten times as long for these kernels with -O1
        build asan clang "$one_pass ${QUICK:+-O0} -ftrivial-auto-var-init=pattern -fsanitize=integer,implicit-conversion,local-bounds" '-fsanitize=address,undefined -include tests/support/fence.h' 2>$out/asan.build || { broken asan; continue; }
        check asan $out/asan -s 4 ${QUICK:+$quick} ;;
    gcc)
        [ -z "$QUICK" ] || continue
        have gcc '-fsanitize=address,undefined' || { echo 'SKIPPED gcc: no sanitizers'; continue; }
        build gcc gcc '' '-fsanitize=address,undefined -include tests/support/fence.h' 2>$out/gcc.build || { broken gcc; continue; }
        # gcc before 14 misaligns the frames of use-after-return for 64-byte vectors (its bug 110027)
        ASAN_OPTIONS=$ASAN_OPTIONS:detect_stack_use_after_return=0
        check gcc $out/gcc -s 5
        ASAN_OPTIONS=$ASAN_OPTIONS:detect_stack_use_after_return=1 ;;
    msan)
        have clang -fsanitize=memory || { echo 'SKIPPED msan: no clang with it (libclang-rt-dev)'; continue; }
        build msan clang "$one_pass" '-fsanitize=memory -fsanitize-memory-track-origins' 2>$out/msan.build || { broken msan; continue; }
        check msan $out/msan -s 6 ${QUICK:+$quick} ;;
    tsan)
        [ -n "$QUICK" ] && n=20000 || n=100000
        have clang -fsanitize=thread || { echo 'SKIPPED tsan: no clang with it (libclang-rt-dev)'; continue; }
        build tsan clang "$one_pass" -fsanitize=thread 2>$out/tsan.build || { broken tsan; continue; }
        check tsan $out/tsan $threads
        clang -std=c99 -O1 -g -fsanitize=thread $one_pass -DATTN_SERIAL_FLOPS=0 -I. -Itests/support tests/soak/soak.c tests/support/harness.c \
            tests/support/cases.c -o $out/tsan_soak -lm -pthread 2>$out/tsan_soak.build || { broken tsan_soak; continue; }
        check tsan_soak $out/tsan_soak -c $n 0 ;;
    valgrind)
        command -v valgrind > /dev/null || { echo 'SKIPPED valgrind: not found'; continue; }
        build valgrind gcc "${QUICK:+-DATTN_NO_AVX512}" '' 2>$out/valgrind.build || { broken valgrind; continue; }
        [ -n "$QUICK" ] || words="$quick level_2 linear columns rope count visible"
        check valgrind valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect,possible \
            --errors-for-leak-kinds=definite,indirect,possible $out/valgrind $words ;;
    *) echo "no part $part"; exit 2 ;;
    esac
done
echo "sanitize: $passed passed, $failed failed"
[ $failed = 0 ]
