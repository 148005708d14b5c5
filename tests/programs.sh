# programs.sh: what models.sh and translate.sh have in common; they include it. Tests are built with two implementations, as it is
# and scalar under sanitizers, and run as this machine and as others. Who includes it has set `out`.
passed=0 failed=0
say() { [ "$2" = ok ] && passed=$((passed + 1)) || failed=$((failed + 1)); printf '%-4s %s\n' "$2" "$1"; }
flags="-std=c99 -Wall -Wextra -I. -Itests -DATTN_SERIAL_FLOPS=0 -DATTN_THREADS -DNO_HARNESS"
checked="-O1 -g -DATTN_NO_SIMD -fsanitize=address,undefined -fno-sanitize-recover=undefined"
echo 'int main(void) { return 0; }' > $out/probe.c
${CC:-cc} $checked $out/probe.c -o $out/probe 2> /dev/null ||
    { echo "SKIPPED sanitizers: ${CC:-cc} has none"; checked='-O1 -DATTN_NO_SIMD'; }
build_both() # the last program that build makes
{
    build fast "${CFLAGS:--O2}" & build checked "$checked" & wait
    for name in fast checked; do
        if [ ! -x "$out/$1_$name" ] || [ -s "$out/$name.log" ]; then
            head -n 20 "$out/$name.log"; say "does not build in silence: $name" FAIL
        fi
    done
}
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
