# programs.sh: shared by models.sh, translate.sh and listen.sh, which include it and set `out` before. Tests are built with two
# implementations, the normal one and a scalar one under sanitizers, and run on this machine and as on others.
passed=0 failed=0
say() { [ "$2" = ok ] && passed=$((passed + 1)) || failed=$((failed + 1)); printf '%-4s %s\n' "$2" "$1"; }
flags="-std=c99 -Wall -Wextra -I. -Itests/support -DATTN_SERIAL_FLOPS=0 -DATTN_THREADS -DNO_HARNESS"
checked="-O1 -g -DATTN_NO_SIMD -fsanitize=address,undefined -fno-sanitize-recover=undefined"
echo 'int main(void) { return 0; }' > $out/probe.c
${CC:-cc} $checked $out/probe.c -o $out/probe 2> /dev/null ||
    { echo "SKIPPED sanitizers: ${CC:-cc} has none"; checked='-O1 -DATTN_NO_SIMD'; }
implementation() # name, compiler with flags: compiles $out/name.o, once for all these checks of one state of the files
{
    key=$({ echo "$2"; cat attn.h tests/support/*.[ch]; } | cksum) kept=build/programs/$1-${key%% *}.o
    mkdir -p build/programs
    [ -f "$kept" ] || { $2 -c tests/support/attn_impl.c -o "$kept.$$" && mv "$kept.$$" "$kept"; } && cp "$kept" "$out/$1.o"
}
build_both() # $1: the last program that build makes
{
    build fast "${CFLAGS:--O2}" & build checked "$checked" & wait
    for name in fast checked; do
        if [ ! -x "$out/$1_$name" ] || [ -s "$out/$name.log" ]; then
            head -n 20 "$out/$name.log"; say "does not build in silence: $name" FAIL
        fi
    done
}
# The results of example code outside attn.h must not depend on the compiler: it is built by each one, with contraction and
# without optimisation. Only the example is built so; golden.sh covers attn.h.
fusing='-O3 -march=native -ffp-contract=fast -std=gnu17'
by_others() # sources, object of the implementation, a command in which % is the program: a line per build
{
    source=$1 object=$2 n=0
    shift 2
    for cc in gcc clang; do
        command -v $cc > /dev/null || { echo "SKIPPED $source by $cc: not here" >&2; continue; }
        for how in "$fusing" -O0; do
            n=$((n + 1))
            $cc $how -w -I. -Itests/support -DATTN_SERIAL_FLOPS=0 -DATTN_THREADS -DNO_HARNESS -DATTN__IMPLEMENTED $source $object \
                -o $out/other$n -lm -pthread || { echo "does not build: $cc $how"; continue; }
            said=$(eval "$RUN $(echo "$*" | sed "s|%|$out/other$n|g")")
            echo "${said:-nothing from: $cc $how}"
        done
    done
}
alike() # what, expected answer, answers one per line: are all of them equal?
{
    if [ -n "$2" ] && [ -n "$3" ] && ! echo "$3" | grep -qvxF "$2"; then say "$1 ($(echo "$3" | grep -c .) builds)" ok
    else echo "$3"; say "$1, wanted: $2" FAIL; fi
}
rotation() # row of a table in RECIPES.md, macro and kind of tests/bench/rotate.c, its arguments: the same figures
{
    row=$1 macro=$2 kind=$3
    shift 3
    ${CC:-cc} $flags ${CFLAGS:--O2} -std=gnu99 -DATTN__IMPLEMENTED -D$macro tests/bench/rotate.c $out/fast.o -o $out/rotate \
        -lm -pthread > $out/rotate.log 2>&1 && [ ! -s $out/rotate.log ] ||
        { head -n 5 $out/rotate.log; say "rotate.c does not build in silence: $macro" FAIL; return; }
    got=$($RUN $out/rotate "$@" 2> /dev/null | sed -n "s/^| [*][*]$kind, all[*][*] //p")
    shown=$(sed -n "s/^| $row | /| /p" examples/RECIPES.md | tr -d '*')
    [ -n "$got" ] && [ "$got" = "$shown" ] && say "RECIPES.md: rotation, $row" ok ||
        { echo "$got"; say "RECIPES.md: rotation, $row: $shown" FAIL; }
}
run() # name, program and arguments: adds up its counts; its bits are in $bits
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
