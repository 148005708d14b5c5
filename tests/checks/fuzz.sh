#!/bin/sh
# fuzz.sh: every fuzz target for TIME seconds (default 60), with libFuzzer, ASan and UBSan; without them, random inputs
# through the standalone driver. First the seed corpus once, with another compiler. Last line: "fuzz: N passed, M failed".
#
#   sh tests/checks/fuzz.sh                     all targets
#   TIME=600 sh tests/checks/fuzz.sh args kv    longer, these
#   sh tests/checks/fuzz.sh oss-fuzz            tests/oss-fuzz/build.sh as OSS-Fuzz runs it, and each target on its seeds
#   QUICK=1                                     5 seconds each, the seed corpus without sanitizers
# Findings stay in build/fuzz: crash-*, replayed by build/fuzz/replay_<target> FILE, and an enlarged corpus.
# The seed corpus is tests/fuzz/corpus.tar.gz, a folder per target, unpacked into build/fuzz. To extend it, add files there:
#   tar -C build/fuzz --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - corpus | gzip -9n > tests/fuzz/corpus.tar.gz
cd "$(dirname "$0")/../.." || exit 1
time=${TIME:-${QUICK:+5}} time=${time:-60}
out=build/fuzz opt=-O${QUICK:+1}
[ -n "$QUICK" ] || opt=-O2
passed=0 failed=0 total=0
mkdir -p $out && rm -rf $out/corpus && gzip -dc tests/fuzz/corpus.tar.gz | tar -C $out -xf - && [ -d $out/corpus/args ] ||
    { echo 'tests/fuzz/corpus.tar.gz cannot be unpacked'; echo 'fuzz: 0 passed, 1 failed'; exit 1; }

clang=
for c in ${CLANG:-} clang clang-19 clang-16 clang-14; do      # the first one with libFuzzer
    printf '#include <stddef.h>\nint LLVMFuzzerTestOneInput(const unsigned char *p, size_t n) { return !p && n; }\n' > $out/probe.c
    command -v "$c" > /dev/null && "$c" -fsanitize=fuzzer,address,undefined $out/probe.c -o $out/probe 2>/dev/null && { clang=$c; break; }
done
[ -n "$clang" ] || echo 'no clang with libFuzzer: random inputs instead (on Debian: clang libclang-rt-14-dev)'

# ---- tests/oss-fuzz: the same targets, built by its script, once for each sanitizer ----------------------------------
oss_fuzz() {
    if [ -z "$clang" ] || ! command -v zip > /dev/null || ! command -v bash > /dev/null; then
        echo 'oss-fuzz: SKIPPED, needs clang with libFuzzer, zip and bash'; return
    fi
    for sanitizer in address undefined; do
        to=$PWD/$out/oss-fuzz/$sanitizer
        rm -rf "$to" && mkdir -p "$to/src" "$to/out" "$to/work" && ln -s "$PWD" "$to/src/attn.h"
        common="-O1 -g -fno-omit-frame-pointer -fsanitize=$sanitizer,fuzzer-no-link"
        [ $sanitizer = address ] || common="$common -fno-sanitize-recover=undefined"
        if ! SRC=$to/src OUT=$to/out WORK=$to/work CC=$clang CXX=$(echo "$clang" | sed 's/clang/clang++/') CFLAGS=$common \
            CXXFLAGS=$common LIB_FUZZING_ENGINE="-fsanitize=$sanitizer,fuzzer" bash tests/oss-fuzz/build.sh > "$to/log" 2>&1; then
            echo "FAIL oss-fuzz, $sanitizer: does not build"; tail -n 5 "$to/log"; failed=$((failed + 1)); continue
        fi
        for t in tests/fuzz/fuzz_*.c; do
            t=$(basename "$t" .c)
            seeds=$to/seeds/$t
            mkdir -p "$seeds"
            # in an empty folder, as there
            if (cd "$seeds" && unzip -q "$to/out/${t}_seed_corpus.zip" && "$to/out/$t" -runs=0 "$seeds") > "$to/log" 2>&1
            then passed=$((passed + 1)); echo "ok   oss-fuzz, $sanitizer: $t, $(find "$seeds" -type f | wc -l | tr -d ' ') seeds"
            else echo "FAIL oss-fuzz, $sanitizer: $t"; tail -n 5 "$to/log"; failed=$((failed + 1)); fi
        done
    done
}
if [ "$*" = oss-fuzz ]; then
    oss_fuzz
    echo "fuzz: $passed passed, $failed failed"
    [ $failed = 0 ]
    exit
fi

# the implementation is compiled once per driver; the targets are small
plain="${CC:-cc} -std=c99 -O1 -g -I. -Itests/support" checked="gcc -std=c99 -O1 -g -fsanitize=address,undefined
    -fno-sanitize-recover=undefined -I. -Itests/support"
guided="$clang -std=c99 $opt -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined
    -ftrivial-auto-var-init=pattern -fno-sanitize-coverage=trace-cmp -fsanitize-coverage-allowlist=tests/fuzz/coverage.txt -I. -Itests/support"
replay=$plain
[ -n "$QUICK" ] || ! $checked $out/probe.c tests/fuzz/replay.c -o $out/probe 2>/dev/null || replay=$checked
# in the quick form one of the three passes over the kernels
[ -z "$QUICK" ] || replay="$replay -DATTN_NO_AVX512" guided="$guided -DATTN_NO_SSE2 -DATTN_NO_AVX512"
driver=${clang:+$guided}
{ $replay -c tests/fuzz/impl.c -o $out/replay_impl.o 2>$out/impl.log || touch $out/broken; } &
[ -z "$driver" ] || $driver -c tests/fuzz/impl.c -o $out/fuzz_impl.o 2>$out/impl.log || touch $out/broken
wait
if [ -f $out/broken ]; then
    rm -f $out/broken; head -n 5 $out/impl.log
    echo 'fuzz: 0 passed, 1 failed'; exit 1
fi

for t in ${*:-args kv mha masks saved delta stories translate embed listen}; do
    if ! $replay tests/fuzz/fuzz_$t.c $out/replay_impl.o tests/fuzz/replay.c -o $out/replay_$t -lm 2>$out/$t.log; then
        echo "FAIL $t: does not build"; head -n 5 $out/$t.log; failed=$((failed + 1)); continue
    fi
    if ! (cd $out && ./replay_$t corpus/$t) > $out/$t.log 2>&1; then
        echo "FAIL $t: the seed corpus"; tail -n 5 $out/$t.log; failed=$((failed + 1)); continue
    fi
    if [ -n "$driver" ]; then
        $driver tests/fuzz/fuzz_$t.c $out/fuzz_impl.o -o $out/fuzz_$t 2>$out/$t.log || \
            { echo "FAIL $t: does not build"; failed=$((failed + 1)); continue; }
        mkdir -p $out/corpus_$t
        (cd $out && ./fuzz_$t corpus_$t corpus/$t -max_total_time=$time -max_len=260 -timeout=10 -entropic=0 \
            -artifact_prefix=./$t- -print_final_stats=1) > $out/$t.log 2>&1
        status=$?
        n=$(sed -n 's/stat::number_of_executed_units: *//p' $out/$t.log)
        what='ASan, UBSan, coverage-guided'
    else
        n=0 status=0 end=$(($(date +%s) + time)) seed=$(date +%s)
        while [ "$(date +%s)" -lt $end ] && [ $status = 0 ]; do
            (cd $out && ./replay_$t -r 20000 -s $seed) > $out/$t.log 2>&1
            status=$? n=$((n + 20000)) seed=$((seed + 1))
        done
        what='random inputs'
    fi
    total=$((total + ${n:-0}))
    if [ $status = 0 ]; then
        echo "ok   $t: ${n:-0} executions ($what)"; passed=$((passed + 1))
    else
        echo "FAIL $t: status $status after ${n:-0} executions"; failed=$((failed + 1))
        grep -E '^tests/|ERROR|runtime error|Test unit|^ *#[0-9]+ .* (in attn|/attn\.h)' $out/$t.log | head -n 12
    fi
done
echo "$total executions"
echo "fuzz: $passed passed, $failed failed"
[ $failed = 0 ]
