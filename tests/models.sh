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
. tests/programs.sh

# ---- the tests of models/*.c, the storyteller and the search, with two implementations: as it is, and scalar under sanitizers ----------
build() # name, flags: both programs, with one implementation
{
    (
        rm -f "$out/$1" "$out/stories_$1" "$out/embed_$1"
        compile="${CC:-cc} $flags $2"
        $compile -c tests/attn_impl.c -o "$out/$1.o" && $compile "$out/$1.o" tests/harness.c tests/models/*.c \
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
    case $(uname -m) in                                                                     # SSE2 has bits of its own
    x86_64) run 'without avx2' env ATTN_HIDE=avx512,avx2 $RUN $out/fast "$models" $few ;;
    esac
    # scalar has the bits of fused multiply-add, so where the machine has none there is nothing to compare
    run 'without vectors' $RUN $out/checked "$models" log_probabilities step_by_step one_sentence
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

# ---- examples/embed ---------------------------------------------------------------------------------------------------------
# The numbers stand in models/minilm.c; here is what the program says, and how it splits words, against models/wordpiece.py.
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
    says() # what, what stands in the answer, options: status 0 and nothing on stderr but the count of texts
    {
        what=$1 words=$2; shift 2
        $RUN "$embed" "$search" "$@" > "$search/out" 2> "$search/err" && grep -q "$words" "$search/out" &&
            ! grep -qvE '^[0-9]+ texts, [0-9]+ tokens' "$search/err" && say "the search: $what" ok ||
            { head -n 3 "$search/err" "$search/out"; say "the search: $what" FAIL; }
    }
    refuses() # what, what stands in the sentence, options: status 1 and one sentence
    {
        what=$1 words=$2; shift 2
        $RUN "$embed" "$search" "$@" > /dev/null 2> "$search/err"
        [ $? = 1 ] && [ "$(grep -c . "$search/err")" = 1 ] && grep -q "^embed: .*: .*$words" "$search/err" &&
            say "the search refuses $what" ok || { head -n 3 "$search/err"; say "the search refuses $what" FAIL; }
    }
    lines=examples/embed/lines.txt
    settings
    says 'the password, not the weather' '^ 0\.6.*password' "$lines" -q 'how do I get back into my account?' -k 1
    says 'the similarity of each to each' '^ 1\.000 ' "$lines"
    $RUN "$embed" "$search" "$lines" -o "$search/a" 2> /dev/null
    for how in -P -32 '-b 1' '-b 3 -P' '-j 2'; do
        $RUN "$embed" "$search" "$lines" -o "$search/b" $how 2> /dev/null && cmp -s "$search/a" "$search/b" &&
            say "the search: the same vectors with $how" ok || say "the search: other vectors with $how" FAIL
    done
    [ "$(wc -c < "$search/a")" = $((1536 * $(wc -l < "$lines"))) ] && say 'the search: one vector a line' ok ||
        say 'the search: one vector a line' FAIL
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
