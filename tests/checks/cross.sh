#!/bin/sh
# cross.sh: one answer on every machine. Builds the golden cases, tests/same/same_bits.c and the tests for every target
# with an installed compiler and runs them natively, under qemu-user, wine or node; then prints a table of target, backend
# and result. Last line: "cross: N passed, M failed".
#
#   sh tests/checks/cross.sh                    all targets
#   sh tests/checks/cross.sh aarch64 wasm       these
#   QUICK=1 sh tests/checks/cross.sh            one target for each kind of arithmetic (see `quick` below), the more
#                                               demanding of two builds, with a few tests (without same_bits on
#                                               riscv64's vectors and s390x, which takes minutes under qemu)
#   JOBS=1                                      targets at once (default: processors)
#
# "same bits": all hashes of golden.h, in every build of the target. "own bits": sse2 and wasm, which have no fma; their
# hash over all results must be the same everywhere. x87 in gnu modes has excess precision by design, so it has its own
# bits. The engine of wasm-relaxed rounds a multiply-add once; wasm-unfused is the same program in an engine that is set to
# round twice, which the program must detect. riscv64-v128 and -v256 have vectors of this length, and run compiled for them
# and without a flag; riscv64-asks has vectors and detects them at run time; riscv64 has none, and must detect that.
# On Debian: gcc-{aarch64,s390x,riscv64,powerpc64le,i686}-linux-gnu gcc-arm-linux-gnueabihf gcc-mingw-w64-x86-64 wine64
# qemu-user musl-tools tcc clang-19 clang-16 lld-16 wasi-libc libclang-rt-16-dev-wasm32 nodejs libsimde-dev.
cd "$(dirname "$0")/../.." || exit 1
all='x86_64 x86_64-old x86_64-avx2 simde musl tcc i686 i686-x87 i686-x87-gnu aarch64 aarch64-old armhf armv7-fma riscv64
     riscv64-v128 riscv64-v256 riscv64-asks s390x ppc64le wasm wasm-relaxed wasm-unfused wasm-scalar win64 msvc clang-cl'
# the quick form: golden.sh and `make test` cover x86-64, `hide` a processor without AVX, and each of the omitted others
# computes as one of these (riscv64 and armhf as s390x, wasm-scalar as tcc, wasm-unfused as wasm, clang-cl as msvc)
quick='tcc i686 i686-x87 aarch64 riscv64-v256 s390x wasm wasm-relaxed win64 msvc'
few='masks torch level_2 visible hostile environment'      # its tests
. tests/checks/suites.sh
out=build/cross
mkdir -p $out
unset MAKEFLAGS

# ---- one target ------------------------------------------------------------------------------------------------------
# builds: one compiler with flags per line    run: prefix of the program    want: backends that must exist
# package: to install                         tests: '' for all, - for none
target()
{
    name=$1 run= package= tests=- want=scalar exactly= own= link= more= ext=
    case $name in
    x86_64) tests=
        builds='gcc -std=c99 -O2|gcc -std=gnu11 -O3|clang -std=gnu11 -O2|gcc -std=gnu11 -O3 -march=native'
        want='sse2 scalar'
        grep -qw avx2 /proc/cpuinfo 2>/dev/null && want="avx2 $want"
        grep -qw avx512f /proc/cpuinfo 2>/dev/null && want="avx512 $want"
        [ "$(uname -m)" = x86_64 ] || package='an x86-64 machine' ;;
    x86_64-old)                           # a CPU without AVX: only these two may be chosen
        builds='gcc -std=c99 -O2' run='qemu-x86_64 -cpu Nehalem' want='sse2 scalar' exactly=1 tests= ;;
    x86_64-avx2)
        builds='gcc -std=c99 -O2' run='qemu-x86_64 -cpu Haswell' want='avx2 sse2 scalar' exactly=1 ;;
    simde)                                # SIMDe emulates the intrinsics of AVX-512; as under a sanitizer
        # (ATTN__MSAN), inline assembly is not allowed
        builds='gcc -w -std=gnu11 -O2 -Itests/cross/simde -DCROSS_ONLY=ATTN_AVX512 -DATTN__MSAN' link=-lm want=avx512 exactly=1 ;;
    musl) builds='musl-gcc -static -std=c99 -O2' package=musl-tools want='sse2 scalar' tests= ;;
    tcc) builds='tcc -DFLT_EVAL_METHOD=0' package=tcc exactly=1 tests= ;;
    i686) package=gcc-i686-linux-gnu want='sse2 scalar' tests=
        builds='i686-linux-gnu-gcc -static -std=c99 -O2 -msse2 -mfpmath=sse|i686-linux-gnu-gcc -static -std=gnu11 -O3 -msse2 -mfpmath=sse' ;;
    i686-x87) package=gcc-i686-linux-gnu tests= exactly=1
        builds='i686-linux-gnu-gcc -static -std=c99 -O2 -march=i686|i686-linux-gnu-gcc -static -std=c11 -O3 -march=i686' ;;
    i686-x87-gnu) package=gcc-i686-linux-gnu own=1 exactly=1
        builds='i686-linux-gnu-gcc -static -std=gnu11 -O2 -march=i686' ;;
    aarch64) cross aarch64-linux-gnu aarch64 '' -march=armv8.2-a+dotprod; want='neon scalar' exactly=1 ;;
    aarch64-old)                          # a CPU without SDOT, which two builds must detect
        cross aarch64-linux-gnu; want='neon scalar' exactly=1
        run="$run -cpu cortex-a53" builds="${builds%%|*}|${builds##*|}" tests='storage stored' ;;
    armhf) cross arm-linux-gnueabihf arm; exactly=1 ;;
    armv7-fma) cross arm-linux-gnueabihf arm ' -mfpu=neon-vfpv4'; exactly=1 tests=- ;;
    riscv64) cross riscv64-linux-gnu riscv64 '' '-march=rv64gc'; exactly=1
        run="$run -cpu rv64"
        builds="${builds%%|*}|$(vector_clang) --target=riscv64-linux-gnu -std=gnu11 -O2|${builds#*|}" ;;
    riscv64-v128|riscv64-v256|riscv64-asks)
        cross riscv64-linux-gnu riscv64; want='rvv scalar' exactly=1
        builds="$(vector_clang) --target=riscv64-linux-gnu"
        run="$run -cpu rv64,v=true,vlen=128,vext_spec=v1.0" package="clang-19 $package"
        # qemu 7.2 aborts (decode_save_opc) at vector conversions to narrower types, which compilers make of loops. Kernels
        # have vector types. These flags follow -O, which resets them
        scalar='-fno-vectorize -fno-slp-vectorize'
        case $name in
        riscv64-v128) builds="$builds -march=rv64gcv -std=c99 -O2 $scalar|$builds -DATTN__RVV_USABLE=1 -std=gnu11 -O3 $scalar" ;;
        riscv64-v256) run=$(echo "$run" | sed s/vlen=128/vlen=256/) tests='bits math masks poison kv'
            builds="$builds -march=rv64gcv -std=c99 -O2 $scalar|$builds -march=rv64gcv_zvl256b -std=gnu11 -O3 $scalar" ;;
        riscv64-asks) builds="$builds -std=c99 -O2" tests=- ;;
        esac ;;
    s390x) cross s390x-linux-gnu; exactly=1 ;;
    ppc64le) cross powerpc64le-linux-gnu ppc64le; exactly=1 ;;
    wasm|wasm-relaxed|wasm-unfused|wasm-scalar) package='clang-16 lld-16 wasi-libc libclang-rt-16-dev-wasm32 nodejs' exactly=1
        run='node --no-warnings' link='-lwasi-emulated-signal -lwasi-emulated-process-clocks'
        builds='clang-16 --target=wasm32-wasi -Wl,-z,stack-size=1048576 -std=c99 -O2'
        more='-D_WASI_EMULATED_SIGNAL -D_WASI_EMULATED_PROCESS_CLOCKS -Wno-deprecated-declarations -DATTN_NO_STDIO'
        case $name in
        wasm) builds="$builds -msimd128" want='wasm scalar' tests= ;;
        wasm-relaxed|wasm-unfused)
            builds="$builds -msimd128 -mrelaxed-simd" want='wasm scalar'
            # node 20 supports this with a flag, later versions by default
            node --v8-options 2> /dev/null | grep -q experimental-wasm-relaxed-simd && run="$run --experimental-wasm-relaxed-simd"
            if [ $name = wasm-unfused ]; then run="$run --no-enable-fma3"
            else
                builds="$builds|$(echo "$builds" | sed 's/-std=c99 -O2/-std=gnu11 -O3 -ffp-contract=fast/')" tests=
                grep -qwE 'fma|asimd' /proc/cpuinfo && want="wasm_fma $want"
            fi
            [ "$(uname -m)" != aarch64 ] || want='wasm_fma wasm scalar' ;;      # it has no other multiply-add
        esac
        run="$run tests/cross/wasi.js" ;;
    win64) ext=.exe package='gcc-mingw-w64-x86-64 wine64' want='sse2 scalar' tests=
        run="env WINEDEBUG=-all WINEPREFIX=$PWD/$out/wine $(command -v wine || command -v wine64 || echo wine64)"
        builds='x86_64-w64-mingw32-gcc -static -std=c99 -O2|x86_64-w64-mingw32-gcc -static -std=gnu11 -O3 -Wall -Wextra -Werror' ;;
    msvc|clang-cl) ext=.exe package='clang-16 gcc-mingw-w64-x86-64 wine64' want='sse2 scalar'
        run="env WINEDEBUG=-all WINEPREFIX=$PWD/$out/wine $(command -v wine || command -v wine64 || echo wine64)"
        builds="sh tests/checks/cross.sh --msvc $name" ;;
    *) echo "cross: no target $name; there are: $all"; exit 2 ;;
    esac
}

cross() # triple, qemu's name, flags of gcc, flags of clang
{
    package="gcc-$1 qemu-user" run="qemu-${2:-${1%%-*}} -L /usr/$1" tests=
    builds="$1-gcc$3 -std=c99 -O2|$1-gcc$3 -std=gnu11 -O3|clang --target=$1$3 $4 -std=gnu11 -O3"
}

# A clang that supports RISC-V's vectors.
vector_clang()
{
    for c in clang clang-19 clang-20 clang-21 clang-22; do
        version=$(command -v $c > /dev/null && $c -dumpversion)
        [ "${version%%.*}" -ge 19 ] 2> /dev/null && { echo $c; return; }
    done
    echo clang-19
}

# The object for MSVC's target, linked with mingw-w64: with -U__clang__ the branches of cl itself are compiled.
msvc() # kind, arguments of a compiler
{
    kind=$1 flags=
    shift
    [ $kind = clang-cl ] || flags='-U__clang__ -D__cdecl= -Wno-builtin-macro-redefined -DATTN_SELF="pass.h"'
    [ -f $out/$kind.obj ] || clang-16 --target=x86_64-pc-windows-msvc -fms-compatibility-version=19.30 -O2 -Wall -Wextra \
        $flags -Itests/cross/msvc -I. -c tests/cross/msvc.c -o $out/$kind.obj && \
    x86_64-w64-mingw32-gcc -static -O2 -DCROSS_LINKED -Wl,--defsym,__chkstk=___chkstk_ms "$@" $out/$kind.obj
}

row() { printf '%s|%s|%s|%s\n' "$name" "$1" "$2" "$3" >> "$rows"; }          # backend, result, verdict: ok FAIL -

one() # target: writes build/cross/<target>.rows
{
    target "$1"
    rows=$out/$1.rows log=$out/$1.log hashes= n=0
    : > "$rows"; : > "$log"; : > "$log.golden"
    for tool in ${builds%% *} ${run%% *}; do
        [ "$tool" = env ] && tool=${run##* }
        command -v "$tool" > /dev/null || { row - "not run: no $tool${package:+ (install $package)}" -; return; }
    done
    [ "$1" != simde ] || [ -f /usr/include/simde/x86/avx512.h ] || { row avx512 'not run: no SIMDe (install libsimde-dev)' -; return; }
    case $1 in
    riscv64-asks)                                           # earlier kernels do not report vectors
        case $(qemu-riscv64 --version) in
        *version\ [1-8].*) row rvv 'not run: this qemu answers no such question (9.0 does)' -; return ;;
        esac ;;
    i686*) echo 'int main(void) { return 0; }' > $out/$1.c              # skip if the kernel runs only 64-bit programs
        ${builds%% *} -static $out/$1.c -o $out/$1 2>>"$log" && ! $out/$1 2>/dev/null && run=qemu-i386 ;;
    win64) mkdir -p $out/wine ;;
    msvc|clang-cl) rm -f $out/$1.obj ;;                                  # built once, by the first program
    esac
    golden='tests/cross/cross.c tests/support/golden.c' linked=
    [ "$1" = simde ] && golden=tests/cross/cross.c                            # includes the other
    sources=$golden
    old=$IFS; IFS='|'; set -- $builds; IFS=$old
    for build; do
        [ -z "$QUICK" ] || [ $# = 1 ] || [ "$build" = "$2" ] || continue
        program=$out/$name-golden$n$ext
        case $build in
        clang*) printf 'int main(void) { return 0; }\n' > $out/$name-probe.c
            command -v ${build%% *} > /dev/null && $build $out/$name-probe.c -o $out/$name-probe$ext 2>>"$log" || continue ;;
        esac
        echo "$build" >> "$log"
        case $QUICK$name in                                # once for the cases, for same_bits and for the tests
        1simde|1msvc|1clang-cl) ;;
        1*) linked="$out/$name-implementation.o tests/cross/heard.c"
            $build -I. -Itests/support -DATTN_SERIAL_FLOPS=0 -c tests/support/attn_impl.c -o ${linked% *} 2>>"$log" &&
                sources="$golden -DCROSS_LINKED $linked" ;;
        esac
        if ! $build -I. -Itests/support $sources -o $program $link 2>>"$log"; then row - "does not build: $build" FAIL; continue; fi
        $run $program v > $out/$name.text 2>>"$log" || echo "status $?: $run $program" >> "$log"
        cat $out/$name.text >> "$log"
        grep '^golden' $out/$name.text | tr -d '\r' >> "$log.golden"
        n=$((n + 1))
    done
    [ $n -gt 0 ] || { row - "not run: ${builds%% *} makes no program for it${package:+ (install $package)}" -; return; }
    for b in $(awk '{ print $2 }' "$log.golden" | awk '!seen[$0]++'); do
        text=$(awk -v b="$b" -v builds=$n -v own="$own" '
            $2 == b { runs++; if ($3 == $4) same++; of = $4; if (runs > 1 && $5 != hash) differ = 1; hash = $5; got = $3 }
            END { times = builds > 1 ? ", " builds " builds" : ""
                  if (runs < builds) print "missing in a build"
                  else if (same == runs) print "same bits (" of " of " of times ")"
                  else if ((b == "sse2" || b == "wasm") && !differ) print "own bits " hash times
                  else if (own) print "own bits by design (" got " of " of " the same)"
                  else print "DIFFERENT (" got " of " of " the same)" }' "$log.golden")
        case $text in same*|own*) verdict=ok ;; *) verdict=FAIL ;; esac
        case " $want " in *" $b "*) ;; *) [ -z "$exactly" ] || { text="$text, should not be usable here" verdict=FAIL; } ;; esac
        row $b "$text" $verdict
    done
    for b in $want; do grep -q "^golden $b " "$log.golden" || row $b 'MISSING: should be usable here' FAIL; done

    # tests/same/same_bits.c, by the first build: its status is 0 if its number is correct
    implemented=
    case $name in msvc|clang-cl) implemented=-DATTN__IMPLEMENTED ;; esac
    [ -z "$linked" ] || implemented="-DATTN__IMPLEMENTED $linked"
    if [ $name = simde ]; then :                                        # this build detects the processor
    elif [ "$QUICK$name" = 1riscv64-v256 ] || [ "$QUICK$name" = 1s390x ]; then
        row number 'not run: QUICK, minutes in qemu; the hashes ask all kernels' -
    elif ! $1 $implemented -I. tests/same/same_bits.c -o $out/$name-same$ext $link 2>>"$log"
    then row number 'does not build: tests/same/same_bits.c' FAIL
    else
        $run $out/$name-same$ext > $out/$name.text 2>>"$log"
        status=$?
        tr -d '\r' < $out/$name.text | tee -a "$log" > $out/$name.number
        number=$(head -n 1 $out/$name.number)
        case $status$(sed -n 2p $out/$name.number) in
        '0the number of every machine'*) row number "$number" ok ;;
        '0the number of machines without'*)
            row number "$number, without fma" ok ;;
        *) if [ -n "$own" ]; then row number "$number: own bits by design" ok
           else row number "$number, status $status" FAIL; fi ;;
        esac
    fi

    # the test vectors of tests/SPEC.md
    if [ $name = simde ]; then :
    elif ! $1 ${implemented:--DATTN_IMPLEMENTATION} -I. tests/spec/vectors.c -o $out/$name-spec$ext $link 2>>"$log"
    then row vectors 'does not build: tests/spec/vectors.c' FAIL
    else
        $run $out/$name-spec$ext 2>&1 | tr -d '\r' > $out/$name.vectors
        of=$(grep -vc '^#' tests/spec/vectors.txt)
        same=$(grep -v '^#' $out/$name.vectors | grep -cFxf tests/spec/vectors.txt)
        if [ "$same" = "$of" ]; then row vectors "same bits ($same of $of)" ok
        elif grep -q '^vectors: SKIPPED' $out/$name.vectors || [ -n "$own" ]
        then row vectors "own bits by design ($same of $of the same)" ok
        else cat $out/$name.vectors >> "$log"; row vectors "DIFFERENT ($same of $of the same)" FAIL; fi
    fi

    # sizes of memory that 32 and 64 bits compute
    case $name in
    i686|i686-x87|armhf|wasm)
        if [ ! -s $out/sizes64.txt ]; then row sizes 'not run: no program of 64 bits' -
        elif ! $1 ${linked:+-DCROSS_LINKED $linked} -DATTN_SERIAL_FLOPS=0 -I. tests/cross/sizes.c -o $out/$name-sizes$ext $link 2>>"$log"
        then row sizes 'does not build: tests/cross/sizes.c' FAIL
        else
            $run $out/$name-sizes$ext -c < $out/sizes64.txt > $out/$name.sizes 2>>"$log" && verdict=ok || verdict=FAIL
            tr -d '\r' < $out/$name.sizes >> "$log"
            row sizes "$(tail -n 1 $out/$name.sizes)" $verdict
        fi ;;
    esac

    [ -z "$QUICK" ] || case $name in aarch64|s390x|win64|wasm|i686) tests=$few ;; *) tests=- ;; esac
    [ "$tests" != - ] || { row tests "not run: ${QUICK:+QUICK, }the hashes only" -; return; }
    files=
    threads=-pthread how= suites=$(ls tests/suites/*.c)
    case $name in wasm*|msvc|clang-cl) threads= ;; esac
    # the quick form omits the suites that have none of its few tests
    [ -z "$QUICK" ] || { how=-O1 suites=$(suites_of $tests) files=$out/$name-others.c
        others $suites > $files; }
    for f in $suites tests/support/*.c; do
        case $f in
        tests/support/attn_impl.c) [ -z "$linked" ] || f=${linked% *} ;;
        esac
        files="$files $f"
    done
    if ! $1 $more $how -I. -Itests/support -DATTN_SERIAL_FLOPS=0 $files -o $out/$name-test$ext $link -lm $threads 2>>"$log"
    then row tests 'does not build' FAIL; return; fi
    $run $out/$name-test$ext $tests > $out/$name.text 2>>"$log"
    tr -d '\r' < $out/$name.text >> "$log"
    sum=$(tr -d '\r' < $out/$name.text | grep -E '^[0-9]+ passed, [0-9]+ failed' | tail -n 1)
    bad=$(tr -d '\r' < $out/$name.text | awk '$1 == "FAIL" && NF > 4 && $NF == "s" { printf "%s%s/%s", n++ ? ", " : "", $2, $3 }')
    case $sum in
    *' 0 failed'*) row tests "$sum${tests:+ of these: $tests}" ok ;;
    '') row tests "no end: $(tail -n 1 $out/$name.text)" FAIL ;;
    *) row tests "$sum: $bad" FAIL ;;
    esac
    sed -n 's/^SKIPPED //p' $out/$name.text | tr -d '\r' | while read -r why; do row '' "not run: $why" -; done
}

# ---- all of them -----------------------------------------------------------------------------------------------------
case $1 in
--one) one "$2"; exit 0 ;;
--msvc) shift; msvc "$@"; exit ;;
esac
[ -z "$QUICK" ] || all=$quick
[ -z "$QUICK" ] || grep -qw avx512f /proc/cpuinfo 2>/dev/null || all="simde $all"     # emulated only if it cannot run
targets=$(echo ${*:-$all})
for t in $targets; do target "$t"; done
for t in $targets; do rm -f $out/$t.rows; done
[ -z "$(command -v wine || command -v wine64)" ] || case " $(echo $targets) " in
*' win64 '*|*' msvc '*|*' clang-cl '*)                      # once, not three times at the same time
    [ -f $out/wine/system.reg ] || env WINEDEBUG=-all WINEPREFIX="$PWD/$out/wine" wineboot -i > $out/wine.log 2>&1 ;;
esac
rm -f $out/sizes64.txt
case " $(echo $targets) " in *' i686 '*|*' i686-x87 '*|*' armhf '*|*' wasm '*)     # what 64 bits compute
    gcc -std=c99 -O0 -DATTN_SERIAL_FLOPS=0 -I. tests/cross/sizes.c -o $out/sizes64 2> $out/sizes64.log && $out/sizes64 > $out/sizes64.txt ;;
esac
echo $targets | tr ' ' '\n' | xargs -P "${JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}" -n 1 sh tests/checks/cross.sh --one

printf '%-13s %-8s %s\n' target backend result
: > $out/rows
for t in $targets; do
    [ -s $out/$t.rows ] || echo "$t|-|no result|FAIL" > $out/$t.rows
    cat $out/$t.rows >> $out/rows
done
awk -F'|' '{ printf "%-13s %-8s %s%s\n", $1 == last ? "" : $1, $2, $4 == "FAIL" ? "FAIL: " : "", $3; last = $1 }' $out/rows
ok=$(grep -c '|ok$' $out/rows) bad=$(grep -c '|FAIL$' $out/rows)
hashes=$(sed -n 's/.*|own bits \([0-9A-F]\{16\}\).*/\1/p' $out/rows | sort -u | wc -l)
if [ "$hashes" -gt 1 ]; then echo "FAIL: the backends without fma have $hashes different answers"; bad=$((bad + 1)); fi
[ "$bad" = 0 ] || echo "what was said: $out/<target>.log"
echo "cross: $ok passed, $bad failed"
[ "$bad" = 0 ]
