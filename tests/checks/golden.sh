#!/bin/sh
# golden.sh: the fixed cases of golden.c with every compiler, optimisation, language mode and machine option installed here.
# Their hashes must be those of golden.h, the number that `make same` prints must not change, and no compiler may
# print a warning. Last line: "golden: N passed, M failed".
#
#   QUICK=1 sh tests/checks/golden.sh      without builds that make test, cross.sh (-m32), strict.sh (hostile flags, all with
#                                          -DATTN_NO_SIMD) or another build here covers in a similar form
#   sh tests/checks/golden.sh              RUN (qemu, wine ...) precedes each program; CC adds a compiler to gcc and clang
cd "$(dirname "$0")/../.." || exit 1
mkdir -p build/golden
passed=0 failed=0

try() # compiler, flags
{
    program=build/golden/$(echo "$*" | tr -c 'a-zA-Z0-9\n' _)
    if ! $1 $2 -Wall -Wextra -Werror -DGOLDEN_MAIN -I. -Itests/support tests/support/golden.c $linked -o "$program" 2>"$program.log"; then
        case $2 in
        *-m32*) grep -q 'warning\|error:.*\[-W' "$program.log" || { echo "SKIPPED $*: it does not build here"; return; } ;;
        esac
        echo "FAIL $*: does not build"; sed 's/^/  /' "$program.log" | head -n 5; failed=$((failed + 1)); return
    fi
    if text=$($RUN "$program" 2>"$program.log"); then
        passed=$((passed + 1))
        printf 'ok   %-6s %-48s %s\n' "$1" "$2" "$text"
    else
        failed=$((failed + 1))
        printf 'FAIL %-6s %-48s %s\n' "$1" "$2" "$text"
        head -n 5 "$program.log"
    fi
}

number() # compiler, flags: the number of tests/same/same_bits.c, which also has arithmetic outside attn.h
{
    program=build/golden/number_$(echo "$*" | tr -c 'a-zA-Z0-9\n' _)
    if $1 $2 -I. tests/same/same_bits.c $linked -o "$program" 2>"$program.log" && text=$($RUN "$program"); then
        passed=$((passed + 1)) verdict=ok
    else failed=$((failed + 1)) verdict=FAIL; fi
    printf '%-4s %-6s %-48s make same: %s\n' $verdict "$1" "$2" "$(echo "$text" | head -n 1)"
    [ $verdict = ok ] || { echo "$text"; head -n 5 "$program.log"; }
}

compilers= versions= linked=
for cc in gcc clang ${CC:-}; do
    command -v "$cc" >/dev/null || { echo "SKIPPED $cc: not found"; continue; }
    version=$("$cc" --version | sed 's/^[^ ]* //;q')      # cc may be another name of one of these
    case "$versions" in *"<$version>"*) ;; *) compilers="$compilers $cc" versions="$versions<$version>" ;; esac
done
for cc in $compilers; do
    [ "$QUICK$cc" = 1clang ] || try "$cc" '-std=c99 -O0'
    [ -n "$QUICK" ] || for flags in '-std=gnu11 -O0' '-std=gnu11 -O2' '-std=c99 -O2' '-std=c99 -O3 -march=native' \
        '-std=gnu11 -O3 -march=native'; do try "$cc" "$flags"; done
    [ -n "$QUICK" ] || try "$cc" '-std=gnu17 -Os'
    # one implementation for the cases and for `make same`; if it fails to build, both report it
    fused='-std=gnu11 -O3 -march=native -ffp-contract=fast' linked='-DATTN__IMPLEMENTED build/golden/implementation.o'
    rm -f build/golden/implementation.o
    $cc $fused -Wall -Wextra -Werror -DNO_HARNESS -DATTN_SERIAL_FLOPS=0 -I. -Itests/support -c tests/support/attn_impl.c -o ${linked#* }
    try "$cc" "$fused"
    number "$cc" "$fused"
    linked=
    [ -n "$QUICK" ] || number "$cc" '-O0 -DATTN_THREADS -pthread'
    [ -n "$QUICK" ] || try "$cc" '-std=gnu11 -O2 -DATTN_NO_SIMD'
    [ -n "$QUICK" ] || try "$cc" '-std=gnu11 -O2 -march=native -DATTN_NO_SIMD'
    [ -n "$QUICK" ] || try "$cc" '-std=gnu11 -O2 -m32 -msse2 -mfpmath=sse'
done

# Parts of -ffast-math that the compiler does not report in a macro: attn.h disables them for its code.
relaxed() # compiler flag ...: implementation compiled with these flags, the cases without
{
    cc=$1; shift
    linked="-DATTN__IMPLEMENTED build/golden/relaxed.o"
    rm -f ${linked#* }
    $cc -std=gnu11 -O${QUICK:-2} "$@" -Wall -Wextra -Werror -DNO_HARNESS -DATTN_NO_AVX512 \
        -DATTN_SERIAL_FLOPS=0 -I. -Itests/support -c tests/support/attn_impl.c -o ${linked#* }
    try "$cc" "-std=gnu11 -O1 -DATTN_H_WITH$(echo "$*" | tr -c 'a-z\n' _)"
    linked=
}
case "$compilers" in *clang*)
    relaxed clang -funsafe-math-optimizations
    [ -n "$QUICK" ] || relaxed clang -fassociative-math -fno-signed-zeros -fno-trapping-math
    [ -n "$QUICK" ] || for flag in -freciprocal-math -fapprox-func -fno-signed-zeros; do relaxed clang $flag; done ;;
esac
parts='-fno-associative-math -fno-reciprocal-math -fsigned-zeros'
case "$compilers" in *gcc*)
    [ -n "$QUICK" ] || relaxed gcc -funsafe-math-optimizations $parts
    relaxed gcc -Ofast -fno-finite-math-only $parts ;;
esac
echo "golden: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
