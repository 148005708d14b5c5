#!/bin/sh
# translate.sh: tests the trained translator of examples/translate (tests/translate) on this machine, as on an older one
# (ATTN_HIDE), and without vectors under sanitizers: the same bits. Then its program: what it prints, rejects and draws.
# Last line: "translate: N passed, M failed". Arguments select the tests whose name contains one of them.
cd "$(dirname "$0")/../.." || exit 1
here=examples/translate model=$here/german-english.bin pairs=tests/translate/pairs.txt out=build/translate-test
mkdir -p $out || exit 1
. tests/checks/programs.sh

# ---- the tests, with two implementations ---------------------------------------------------------------------------
build() # name, flags
{
    (
        rm -f "$out/$1" "$out/program_$1"
        compile="${CC:-cc} $flags $2"
        implementation "$1" "$compile" && $compile "$out/$1.o" tests/support/harness.c tests/translate/translate.c \
            -o "$out/$1" -lm -pthread && $compile -std=gnu99 -DATTN__IMPLEMENTED "$out/$1.o" $here/translate.c \
            -o "$out/program_$1" -pthread
    ) > "$out/$1.log" 2>&1
}
build_both program
run 'this machine' $RUN $out/fast $model $pairs "$@"
finish() { echo "translate: $passed passed, $failed failed"; [ $failed = 0 ]; exit; }
[ $# = 0 ] || finish
want=$bits
if grep -qw avx512f /proc/cpuinfo 2> /dev/null; then
    run 'without avx512' env ATTN_HIDE=avx512 $RUN $out/fast $model $pairs sentences one; same 'without avx512'
fi
case $(uname -m) in                                                                         # SSE2 has its own bits
x86_64) run 'without avx2' env ATTN_HIDE=avx512,avx2 $RUN $out/fast $model $pairs bleu one beams ;;
esac
# scalar has the bits of fused multiply-add, so a machine without it has nothing to compare
run 'without vectors' $RUN $out/checked $model $pairs alignment pieces one damaged overflow
case $(uname -m) in
x86_64) grep -qw avx2 /proc/cpuinfo 2> /dev/null && same 'without vectors' ;;
*) same 'without vectors' ;;
esac

# the code in translate.c outside attn.h, with other compilers and flags
one=$($RUN $out/fast $model $pairs one bleu | sed -n 's/^bits: //p')
alike 'the same bits, whoever compiles it' "$one" "$(by_others 'tests/translate/translate.c tests/support/harness.c' $out/fast.o \
    "% $model $pairs one bleu | sed -n 's/^bits: //p'")"

cut -f 1 $pairs > $out/german
rotation 'translate, cross, 32' TRANSLATE 'cross, cached' -q -b 1 < $out/german
rotation 'translate, decoder, self, 32' TRANSLATE 'self, cached' -q -b 1 < $out/german

# ---- the program ----------------------------------------------------------------------------------------------------
program=$out/program_checked
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT || exit 1
prints() # what, expected text, arguments: status 0 and this text, nothing on stderr
{
    what=$1 text=$2; shift 2
    $RUN "$@" > "$folder/out" 2> "$folder/err" < "$folder/in" && [ ! -s "$folder/err" ] &&
        printf '%s\n' "$text" | cmp -s - "$folder/out" && say "the program: $what" ok ||
        { head -n 3 "$folder/err"; head -n 12 "$folder/out"; say "the program: $what" FAIL; }
}
: > "$folder/in"
# README.md shows the output of the program: every block after a line "$ build/translate ..." or "$ make translate ..."
awk -v folder="$folder" '/^```/ { inside = !inside; n = 0; next }
    inside && /^\$ / { shown++; print substr($0, 3) > (folder "/call" shown); n = shown; next }
    inside && n { print > (folder "/want" n) }' $here/README.md
shown=0
for call in "$folder"/call*; do
    words=$(sed -e 's/^make translate TEXT=//' -e 's/^build\/translate//' "$call")
    eval "$RUN $program $words" > "$folder/out" 2> "$folder/err" < "$folder/in"
    shown=$((shown + 1))
    cmp -s "$folder/want${call##*call}" "$folder/out" && [ ! -s "$folder/err" ] ||
        { diff "$folder/want${call##*call}" "$folder/out" | head -n 8; head -n 3 "$folder/err"; say "README.md: $words" FAIL; }
done
[ $shown -gt 3 ] && say "README.md: $shown outputs as shown" ok || say "README.md: only $shown outputs found" FAIL
# and examples/README.md shows a call that goes wrong
sed -n 's/.*`\(.*\)` becomes `\(.*\)`.*/\1/p' examples/README.md > "$folder/in"
sed -n 's/.*`\(.*\)` becomes `\(.*\)`.*/\2/p' examples/README.md > "$folder/want"
$RUN $program -q < "$folder/in" > "$folder/out" && [ -s "$folder/want" ] && cmp -s "$folder/want" "$folder/out" &&
    say 'examples/README.md: a sentence that goes wrong' ok || say 'examples/README.md: a sentence that goes wrong' FAIL
printf 'Der Hund\n\nDer Hund l\303\244uft.\n' > "$folder/in"
$RUN $program -q "Der Hund" > "$folder/one"; $RUN $program -q "Der Hund läuft." > "$folder/two"
prints 'a sentence a line' "$(cat "$folder/one"; echo; cat "$folder/two")" $program -q
$RUN $program < "$folder/in" > "$folder/out" && [ "$(grep -c '^layer' "$folder/out")" = 2 ] && say 'the program: without -q' ok ||
    say 'the program: without -q' FAIL

# one line out per line in, also for lines that are too long or contain a zero byte; each gives status 1 and a sentence
long=$(printf 'Hund %.0s' $(seq 300))
{ echo 'Der Hund'; echo "$long"; printf 'Hund\000 %.0s' $(seq 2000); echo; echo 'Der Hund lÃ¤uft.' | sed 's/l.*t/läuft/'
  printf 'Hund%5000sHund\n' ''; printf 'Der Hund'; } > "$folder/in"
$RUN $program -q < "$folder/in" > "$folder/out" 2> "$folder/err"
status=$?
{ cat "$folder/one"; echo; echo; cat "$folder/two"; $RUN $program -q 'Hund Hund'; cat "$folder/one"; } > "$folder/want"
[ $status = 1 ] && cmp -s "$folder/want" "$folder/out" && [ "$(grep -c '^translate: line [23]: .*too long' "$folder/err")" = 2 ] &&
    [ "$(grep -c . "$folder/err")" = 2 ] && say 'the program: a line out for a line in, too long or not' ok ||
    { head -n 4 "$folder/err"; cut -c 1-100 "$folder/out"; say "the program: a line out for a line in, too long or not: status $status" FAIL; }
if [ -c /dev/full ]; then
    $RUN $program -q Hund > /dev/full 2> "$folder/err"
    [ $? = 1 ] && grep -q '^translate: standard output: ' "$folder/err" && say 'the program: a full disk' ok ||
        say 'the program: a full disk' FAIL
fi
for words in -h --help '-q -h'; do
    $RUN $program $words > "$folder/out" 2> "$folder/err" < /dev/null && grep -q '^usage:' "$folder/out" &&
        [ ! -s "$folder/err" ] && say "help: $words" ok || say "help: $words" FAIL
done

# the committed pictures are what it draws: the calls are in README.md, as comments next to the pictures
drawn=0
sed -n 's/^<!-- build\/translate -o \([^ ]*\.svg\) \(.*\) -->$/\1 \2/p' $here/README.md > "$folder/pictures"
while read -r name words; do
    eval "$RUN $program -q -o $folder/drawn.svg $words" > /dev/null 2>&1 < /dev/null && cmp -s "$folder/drawn.svg" "$name" &&
        drawn=$((drawn + 1)) || say "the picture $name is not what it draws now" FAIL
done < "$folder/pictures"
[ $drawn -gt 1 ] && say "the program: $drawn committed pictures are what it draws" ok || say "only $drawn pictures are right" FAIL

refused() # what, words: one sentence on stderr, status 1, nothing on stdout
{
    what=$1; shift
    $RUN $program "$@" > "$folder/out" 2> "$folder/err" < /dev/null
    status=$?
    [ $status = 1 ] && [ ! -s "$folder/out" ] && [ "$(grep -c . "$folder/err")" = 1 ] &&
        grep -q '^translate: .*: .* ' "$folder/err" && say "refused: $what" ok ||
        { head -n 4 "$folder/err"; say "refused: $what, status $status" FAIL; }
}
refused 'a sentence that is too long' -q $long
refused 'a sentence of 9,000 bytes' -q "$(printf 'ab %.0s' $(seq 3000))"
refused 'no model' -m "$folder/none.bin" Hund
refused 'a folder' -m "$folder" Hund
head -c 100000 $model > "$folder/cut.bin"; refused 'half a model' -m "$folder/cut.bin" Hund
refused 'a text' -m $here/README.md Hund
refused 'a picture nobody can write' -o "$folder/no/picture.svg" -q Hund
for which in 0 3 2.5 1.0 2. x 1.1.1 -1; do refused "attention $which" -a "$which" Hund; done
for words in '-b 0' '-b 5' '-b 2x' '-b x' '-x' '-o'; do
    $RUN $program $words > "$folder/out" 2> "$folder/err" < /dev/null
    [ $? = 2 ] && [ ! -s "$folder/out" ] && grep -q '^usage:' "$folder/err" && say "usage: $words" ok || say "usage: $words" FAIL
done
finish
