#!/bin/sh
# listen.sh: tests the speech recogniser of examples/listen (tests/listen) on this machine, as on an older one (ATTN_HIDE),
# without vectors under sanitizers, with other compilers, and on other architectures: the same bits. Then its program:
# output files, and bad input. Last line: "listen: N passed, M failed". Arguments select the tests whose name contains one
# of them.
#   SPEECH=folder    a Whisper model, sounds and CTranslate2's output (default ../shared/speech); skipped without
#   QUICK=1          without RISC-V
cd "$(dirname "$0")/../.." || exit 1
speech=${SPEECH:-../shared/speech}
out=build/listen-test
mkdir -p $out || exit 1
. tests/checks/programs.sh

build() # name, flags
{
    (
        rm -f "$out/$1" "$out/program_$1"
        compile="${CC:-cc} $flags $2"
        implementation "$1" "$compile" && $compile -std=gnu99 "$out/$1.o" tests/support/harness.c \
            tests/listen/listen.c -o "$out/$1" -lm -pthread && $compile -std=gnu99 -DATTN__IMPLEMENTED "$out/$1.o" \
            examples/listen/listen.c -o "$out/program_$1" -pthread
    ) > "$out/$1.log" 2>&1
}
build_both program
if [ ! -f "$speech/expected.json" ]; then
    echo "SKIPPED CTranslate2's tokens, timestamps, beams and word times: there is no folder $speech; set SPEECH"
    speech=-
fi
run 'this machine' $RUN $out/fast "$speech" "$@"
finish() { echo "listen: $passed passed, $failed failed"; [ $failed = 0 ]; exit; }
[ $# = 0 ] || finish

# ---- the same bits -------------------------------------------------------------------------------------------------
want=$bits
if grep -qw avx512f /proc/cpuinfo 2> /dev/null; then
    run 'without avx512' env ATTN_HIDE=avx512 $RUN $out/fast - bits; same 'without avx512'
fi
case $(uname -m) in                                                                         # SSE2 has its own bits
x86_64) run 'without avx2' env ATTN_HIDE=avx512,avx2 $RUN $out/fast - one ;;
esac
run 'without vectors' $RUN $out/checked - functions formats pieces broken spectrogram bits
case $(uname -m) in
x86_64) grep -qw avx2 /proc/cpuinfo 2> /dev/null && same 'without vectors' ;;
*) same 'without vectors' ;;
esac
alike 'the same bits with every compiler' "$want" "$(by_others 'tests/listen/listen.c tests/support/harness.c' $out/fast.o \
    "% - bits | sed -n 's/^bits: //p'")"
foreign() # name, compiler with its flags, emulator with its flags
{
    if ! command -v ${2%% *} > /dev/null || ! command -v ${3%% *} > /dev/null; then
        echo "SKIPPED the bits of $1: needs ${2%% *} and ${3%% *}"; return
    fi
    if ! $2 -static $out/probe.c -o $out/probe_foreign 2> /dev/null; then
        echo "SKIPPED the bits of $1: ${2%% *} has no C library for it"; return
    fi
    if $2 -static -std=gnu99 -O1 -w -I. -Itests/support -DNO_HARNESS tests/support/attn_impl.c tests/support/harness.c tests/listen/listen.c \
        -o "$out/$1" -lm -pthread > "$out/$1.log" 2>&1; then
        run "$1" $3 "$out/$1" - bits; same "$1"
    else head -n 5 "$out/$1.log"; say "does not build: $1" FAIL; fi
}
foreign aarch64 aarch64-linux-gnu-gcc qemu-aarch64
[ -n "$QUICK" ] || foreign riscv64 'clang-19 --target=riscv64-linux-gnu -march=rv64gcv -DATTN__RVV_USABLE=1' 'qemu-riscv64 -cpu rv64,v=true'

# ---- the program ----------------------------------------------------------------------------------------------------
program=$out/program_fast
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT || exit 1
$RUN $out/fast -write "$folder" || say 'the files of the random model' FAIL
model=$folder/tiny.en.bin sound=$folder/sine.wav
$RUN $program -v $model $sound > "$folder/wav" 2>&1
tail -c +45 $sound | $RUN $program -v $model - > "$folder/raw" 2>&1
grep -q 'hash of' "$folder/wav" && [ "$(grep 'hash of' "$folder/wav")" = "$(grep 'hash of' "$folder/raw")" ] &&
    say 'raw samples from standard input' ok || say 'raw samples from standard input' FAIL
if $RUN $program -j 2 -v $model $sound > "$folder/two" 2>&1 &&
    [ "$(grep 'hash of' "$folder/wav")" = "$(grep 'hash of' "$folder/two")" ]; then say 'two threads: the same bits' ok
else say 'two threads: the same bits' FAIL; fi
for kind in srt vtt json; do
    $RUN $program -w -o "$folder/out.$kind" $model $sound > "$folder/printed" 2>&1 && [ -s "$folder/out.$kind" ] ||
        say "a .$kind file" FAIL
done
stamp='[0-9][0-9]:[0-9][0-9]:[0-9][0-9]'
[ "$(grep -cE "^$stamp,[0-9]{3} --> $stamp,[0-9]{3}$" "$folder/out.srt")" = "$(grep -c . "$folder/printed")" ] &&
    [ "$(head -n 1 "$folder/out.vtt")" = WEBVTT ] &&
    [ "$(grep -cE "^$stamp.[0-9]{3} --> $stamp.[0-9]{3}$" "$folder/out.vtt")" = "$(grep -c . "$folder/printed")" ] &&
    say 'subtitles: a cue for each word' ok || say 'subtitles: a cue for each word' FAIL
if command -v python3 > /dev/null; then
    python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); print(len(j["words"]), len(j["segments"]))' \
        "$folder/out.json" > "$folder/counts" && [ "$(cut -d ' ' -f 1 "$folder/counts")" = "$(grep -c . "$folder/printed")" ] &&
        say 'JSON' ok || say 'JSON' FAIL
else echo 'SKIPPED JSON: needs python3'; fi

refused() # what, words: one sentence on stderr, status 1, nothing on stdout, no output file
{
    what=$1; shift
    rm -f "$folder/half.srt"
    $RUN $program -o "$folder/half.srt" "$@" > "$folder/out" 2> "$folder/err" < /dev/null
    status=$?
    [ $status = 1 ] && [ ! -s "$folder/out" ] && [ ! -e "$folder/half.srt" ] && [ "$(grep -c . "$folder/err")" = 1 ] &&
        grep -q '^listen: .*: .* ' "$folder/err" && say "refused: $what" ok ||
        { head -n 4 "$folder/err"; say "refused: $what, status $status" FAIL; }
}
refused 'no model' "$folder/none.bin" $sound
refused 'a folder' "$folder" $sound
refused 'a text as a model' README.md $sound
head -c 1000000 $model > "$folder/cut.bin"; refused 'half a model' "$folder/cut.bin" $sound
: > "$folder/empty"; refused 'an empty model' "$folder/empty" $sound
refused 'no sound' $model "$folder/none.wav"
refused 'an empty sound' $model "$folder/empty"
refused 'nothing on standard input' $model -
refused 'a text as sound' $model README.md
head -c 5000 $sound > "$folder/cut.wav"; refused 'half a sound' $model "$folder/cut.wav"
{ head -c 40 $sound; printf '\144\000\000\000'; tail -c 100 $sound; } > "$folder/short.wav"
refused 'a sound shorter than a frame' $model "$folder/short.wav"
refused 'a language of a model without' -l de $model $sound
refused 'a language that does not exist' -l xx "$folder/tiny.bin" $sound
refused 'a language that the model does not have' -l yue "$folder/tiny.bin" $sound
refused 'an output file in a missing folder' -s "$folder/no/picture.svg" $model $sound
for words in '-b 0' '-b 9' '-j x' '-o words.txt' '-x'; do
    $RUN $program $words $model $sound > "$folder/out" 2> "$folder/err" < /dev/null
    [ $? = 2 ] && [ ! -s "$folder/out" ] && grep -q '^usage:' "$folder/err" && say "usage: $words" ok || say "usage: $words" FAIL
done
$RUN $program $model '' > "$folder/out" 2> "$folder/err" < /dev/null
[ $? = 2 ] && [ ! -s "$folder/out" ] && grep -q '^usage:' "$folder/err" && say 'usage: an empty name' ok || say 'usage: an empty name' FAIL
MODEL=$model WAV='' sh examples/listen/listen.sh > "$folder/out" 2> "$folder/err" < /dev/null
[ $? = 2 ] && [ ! -s "$folder/out" ] && grep -q '^listen: WAV is missing' "$folder/err" && say 'make listen without WAV' ok ||
    say 'make listen without WAV' FAIL
$RUN $program -h > "$folder/out" 2>&1 && grep -q '^usage:' "$folder/out" && say 'help' ok || say 'help' FAIL

# ---- the program with a trained model ----------------------------------------------------------------------------
if [ "$speech" != - ]; then
    $RUN $program -16 -v -s "$folder/words.svg" "$speech/ggml-tiny.en.bin" "$speech/two_cities.wav" > "$folder/out" 2>&1
    mb=$(sed -n 's/^\([0-9]*\) MB at most$/\1/p' "$folder/out")
    if [ -z "$mb" ]; then echo 'SKIPPED memory: known on Linux alone'
    elif [ "$mb" -le 250 ]; then say "tiny.en with -16: $mb MB, at most 250" ok
    else say "tiny.en with -16: $mb MB, more than 250" FAIL; fi
    rotation 'Whisper tiny.en, cross, 64' LISTEN 'cross, cached' "$speech/ggml-tiny.en.bin" "$speech/two_cities.wav"
    rotation 'Whisper tiny.en, decoder, self, 64' LISTEN 'self, cached' "$speech/ggml-tiny.en.bin" "$speech/two_cities.wav"
    # a text as raw samples is noise: a window without speech, whose text is dropped after its logits were hashed
    for once in -v -1; do
        head -c 96000 attn.h | $RUN $program -v $once "$speech/ggml-tiny.en.bin" - 2>&1 | grep 'hash of' > "$folder/noise$once"
    done
    grep -q 'hash of [1-9][0-9]* rows' "$folder/noise-v" && cmp -s "$folder/noise-v" "$folder/noise-1" &&
        say 'noise: the same hash token by token and at once' ok ||
        say 'noise: another hash token by token than at once' FAIL
    cmp -s "$folder/words.svg" examples/listen/words.svg && say 'the committed picture is what it draws' ok ||
        say 'the committed picture is not what it draws' FAIL
fi
finish
