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

# ---- the tests of models/*.c and the storyteller, with two implementations: as it is, and scalar under sanitizers ----------
flags="-std=c99 -Wall -Wextra -I. -Itests -DATTN_SERIAL_FLOPS=0 -DATTN_THREADS -DNO_HARNESS"
build() # name, flags: both programs, with one implementation
{
    (
        rm -f "$out/$1" "$out/stories_$1"
        compile="${CC:-cc} $flags $2"
        $compile -c tests/attn_impl.c -o "$out/$1.o" && $compile "$out/$1.o" tests/harness.c tests/models/*.c \
            -o "$out/$1" -lm -pthread && $compile -std=gnu99 -DATTN__IMPLEMENTED "$out/$1.o" examples/14_stories.c \
            -o "$out/stories_$1" -pthread
    ) > "$out/$1.log" 2>&1
}
checked="-O1 -g -DATTN_NO_SIMD -fsanitize=address,undefined -fno-sanitize-recover=undefined"
echo 'int main(void) { return 0; }' > $out/probe.c
${CC:-cc} $checked $out/probe.c -o $out/probe 2> /dev/null ||
    { echo "SKIPPED sanitizers: ${CC:-cc} has none"; checked='-O1 -DATTN_NO_SIMD'; }
build fast "${CFLAGS:--O2}" & build checked "$checked" & wait
for name in fast checked; do
    if [ ! -x $out/stories_$name ] || [ -s $out/$name.log ]; then
        head -n 20 $out/$name.log; say "does not build in silence: $name" FAIL
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
run 'this machine' $RUN $out/fast "$models" "$@"
if [ $# = 0 ]; then
    want=$bits
    if grep -qw avx512f /proc/cpuinfo 2> /dev/null; then
        run 'without avx512' env ATTN_HIDE=avx512 $RUN $out/fast "$models" $few; same 'without avx512'
    fi
    case $(uname -m) in                                                                     # SSE2 has bits of its own
    x86_64) run 'without avx2' env ATTN_HIDE=avx512,avx2 $RUN $out/fast "$models" $few ;;
    esac
    # scalar has the bits of fused multiply-add, so where the machine has none there is nothing to compare
    run 'without vectors' $RUN $out/checked "$models" log_probabilities step_by_step
    case $(uname -m) in
    x86_64) grep -qw avx2 /proc/cpuinfo 2> /dev/null && same 'without vectors' ;;
    *) same 'without vectors' ;;
    esac
fi

# ---- examples/14_stories.c ------------------------------------------------------------------------------------------------
# The published story stands in stories.c, as a string of C. Damaged files are for the program with sanitizers.
data=$models/stories260K
if [ $# != 0 ]; then :
elif [ ! -f "$data/stories260K.bin" ] || [ ! -f "$data/tok512.bin" ]; then
    echo "SKIPPED examples/14_stories.c: there is no $data with a model and a tokenizer"
else
    folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT || exit 1
    printf "$(sed -n '/ published\[\]/,/;$/ s/^ *"\(.*\)";\{0,1\}$/\1/p' tests/models/stories.c | sed 's/\\"/"/g' | tr -d '\n')\n" > "$folder/want"
    story() # what, options: the published story
    {
        what=$1; shift
        $RUN $out/stories_fast "$data/stories260K.bin" "$@" > "$folder/out" 2> "$folder/err" && cmp -s "$folder/out" "$folder/want" &&
            grep -qE '^200 tokens, [0-9]+ a second$' "$folder/err" && say "the storyteller: $what" ok ||
            { head -n 3 "$folder/err"; diff "$folder/out" "$folder/want" | head -n 5; say "the storyteller: $what" FAIL; }
    }
    story 'the published story'
    story 'with half weights and cache' -16
    story 'with weights in place' -m
    story 'on two threads' -j 2
    story 'with a beginning at once' -i "$(head -n 1 "$folder/want")"
    story 'with its tokenizer named' -z "$data/tok512.bin" -s 7

    tried=0
    copy() { cp "$data/stories260K.bin" "$folder/model.bin" && cp "$data/tok512.bin" "$folder/tok512.bin" &&
             chmod u+w "$folder"/*.bin; }
    put() { printf "$3" | dd of="$folder/$1" bs=1 seek="$2" conv=notrunc 2> /dev/null; }          # file, where, bytes
    refused() # what: one sentence on stderr and status 1, whatever was printed before
    {
        tried=$((tried + 1))
        timeout 60 $RUN $out/stories_checked "$folder/model.bin" -n 20 > /dev/null 2> "$folder/err"
        status=$?
        [ $status = 1 ] && [ "$(grep -c . "$folder/err")" = 1 ] && grep -q '^stories: .*: .' "$folder/err" && return
        head -n 5 "$folder/err"; say "a damaged file, $1: status $status" FAIL
    }
    before=$failed
    size=$(wc -c < "$data/stories260K.bin") words=$(wc -c < "$data/tok512.bin")
    for n in 0 1 27 28 29 4096 $((size - 4)) $((size - 1)); do
        copy; head -c $n "$data/stories260K.bin" > "$folder/model.bin"; refused "$n bytes of the checkpoint"
    done
    copy; printf '\0' >> "$folder/model.bin"; refused 'one byte more'
    for word in 0 4 8 12 16 20 24; do
        for value in '\0\0\0\0' '\1\0\0\0' '\3\0\0\0' '\0\2\1\0' '\377\377\0\0' '\0\0\1\0' '\377\377\377\177' \
                     '\0\0\0\200' '\0\376\377\377' '\377\377\377\377' '\062\064\153\141'; do
            copy; put model.bin $word "$value"; refused "header word $word is $value"
        done
    done
    copy; put model.bin 4096 '\0\0\300\177'; put model.bin $((28 + 4 * 64)) '\0\0\300\177'; refused 'a NaN'
    copy; put model.bin $((28 + 4 * 512 * 64)) '\377\377\177\177\377\377\177\177'; refused 'weights of FLT_MAX'
    for n in 0 3 4 11 12 100 $((words - 1)); do
        copy; head -c $n "$data/tok512.bin" > "$folder/tok512.bin"; refused "$n bytes of the tokenizer"
    done
    copy; printf '\0' >> "$folder/tok512.bin"; refused 'a tokenizer with one byte more'
    for value in '\377\377\377\377' '\377\377\377\177' '\0\0\0\200' '\0\1\0\0' '\001\1\0\0' '\6\0\0\0'; do
        copy; put tok512.bin 8 "$value"; refused "a token of length $value"
    done
    copy; rm "$folder/tok512.bin"; refused 'no tokenizer'
    copy; rm "$folder/model.bin"; refused 'no checkpoint'
    [ $failed != "$before" ] || say "the storyteller: $tried damaged files refused" ok
fi

echo "models: $passed passed, $failed failed"
[ $failed = 0 ]
