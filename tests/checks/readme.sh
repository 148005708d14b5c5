#!/bin/sh
# make readme: tests every block of code in README.md, examples/PORTING.md, examples/RECIPES.md and the README.md of examples,
# examples/mpi and tests (or in the files named), in an empty folder that holds only attn.h. python.sh tests ```python,
# library.sh ```cmake and ```meson. QUICK=1 compiles with -O0, which changes no bits, and compiles the implementation once
# for all programs that define no options.
#
#   ```c with a main(    is built and run. Its cc line is in the block, as a comment that begins with cc:
#                            /* cc -O2 main.c -o main && ./main */      or      // cc -O2 main.c -o main && ./main
#                        or is the first cc line of the ```sh block that follows. The file is the first *.c in it.
#   ```c without main    is a file of a larger program: compiled unchanged. With the comment /* recipe NAME */ it is also
#                        compared with a computation in double: NAME in tests/recipes/recipes.c.
#   ```sh                directly after a program: its commands. If commands begin with "$ ", the other lines are their
#                        output; otherwise the ```text block that follows is. Other ```sh blocks are not run, but a
#                        `make TARGET` in them must exist, and so must the files under tests/ and examples/ they name.
#   ```text              directly after a program or its commands: the output, compared as tests/checks/expect.awk defines.
#   <!-- untested: why --> directly before a block skips it and prints its name.
#
# "Directly after" allows empty lines and one paragraph of prose, but no heading or other block. Links and pictures must
# refer to existing files, here and in the Markdown files of tests/, examples/ and .github/. Last line: `readme: N passed,
# M failed`.
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
passed=0 failed=0
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "readme: $readme:$1: $2"; [ ! -s "$3" ] || head -15 "$3" | sed 's/^/    /'; }
rm -rf "$root/build/readme"

# NNN.LANG: the blocks in order; NNN.line: line number; NNN.note: the comment before; NNN.far: does not follow directly
split_blocks() { awk -v dir="$S" '
    function close_block() { close(file); open = 0; paragraphs = 0; heading = 0; note = "" }
    !open && /^ *```[a-z]/ {
        lang = $0; sub(/^ *```/, "", lang); sub(/[^a-z+].*/, "", lang)
        indent = match($0, /[^ ]/) - 1
        base = sprintf("%s/%03d", dir, ++n); file = base "." lang; open = 1
        printf "" > file; print FNR > (base ".line"); close(base ".line")
        if (note != "") { print note > (base ".note"); close(base ".note") }
        if (heading || paragraphs > 1) { print "" > (base ".far"); close(base ".far") }
        next
    }
    !open && /^ *```/ { print FILENAME ":" FNR ": a block without a language" > (dir "/unnamed"); skip = !skip; next }
    open && /^ *```/ { close_block(); next }
    open { print substr($0, 1, indent) ~ /^ *$/ ? substr($0, indent + 1) : $0 > file; next }
    skip { next }
    /^<!--/ { note = $0; while (note !~ /-->/ && (getline more) > 0) note = note "\n" more; blank = 1; next }
    /^#/ { heading = 1; note = "" }
    /^ *$/ { blank = 1; next }
    { if (blank) paragraphs++; blank = 0; note = "" }' "$readme"; }

# Prints the file of the block directly after block $1 (a number with zeros) if its language is $2, or nothing
after() {
    next=$(printf %03d $(($(echo "$1" | sed 's/^0*//') + 1)))
    [ -f "$S/$next.$2" ] && [ ! -f "$S/$next.far" ] && echo "$S/$next.$2"
}

# the implementation for all programs without options
share() {
    [ ! -f "$S/implementation.o" ] || return 0
    printf '#define ATTN_IMPLEMENTATION\n#include "attn.h"\n' > "$S/implementation.c"
    ${CC:-cc} -Wall -Wextra -O1 -I"$root" -c "$S/implementation.c" -o "$S/implementation.o" 2> "$S/implementation.err" &&
        [ ! -s "$S/implementation.err" ] || fail 0 'attn.h does not build in silence' "$S/implementation.err"
}

program() {     # program FILE NUMBER LINE
    folder=$S/$2.d; mkdir -p "$folder"; cp "$root/attn.h" "$folder/"
    line=$(sed -n 's/^ *\(\/[*/]\) *\(cc .*\)$/\2/p' "$1" | sed 's/ *\*\/.*$//;q')
    commands=$(after "$2" sh)
    want= prompt=
    if [ -n "$commands" ]; then
        : > "$folder.used"; used="$used $commands"
        grep -q '^\$ ' "$commands" && prompt=1
    fi
    if [ -n "$prompt" ]; then
        sed -n 's/^\$ //p' "$commands" > "$folder.sh"; grep -v '^\$ ' "$commands" > "$folder.want"; want=$folder.want
    elif [ -n "$commands" ]; then
        cp "$commands" "$folder.sh"; want=$(after "$(basename "$commands" .sh)" text)
    else
        [ -n "$line" ] || { fail "$3" 'a program without a cc line'; return; }
        echo "$line" > "$folder.sh"; want=$(after "$2" text)
        case $line in *'&&'*) ;; *) echo "$line" | sed -n 's/.* -o \([^ ]*\).*/.\/\1/p' >> "$folder.sh"
                                   case $line in *' -o '*) ;; *) echo ./a.out >> "$folder.sh";; esac;; esac
    fi
    name=$(grep -oE '[A-Za-z0-9_]+\.c\b' "$folder.sh" | head -1)
    [ -n "$name" ] || { fail "$3" 'no *.c in its cc line'; return; }
    [ -z "$want" ] || used="$used $want"
    cp "$1" "$folder/$name"
    case $(cat "$folder.sh") in *' -lm'*|*-march*|*-pthread*) fail "$3" 'its cc line is not plain'; return;; esac
    # the selected compiler instead of cc, without any warning
    how=-O2
    if [ -n "$QUICK" ]; then
        how=-O0
        if [ "$(grep '^#define ATTN_' "$1" | sort -u)" = '#define ATTN_IMPLEMENTATION' ]; then
            share; how='-O0 -DATTN__IMPLEMENTED ..\/implementation.o'
        fi
    fi
    sed -e "s/^cc /${CC:-cc} -Wall -Wextra /; s/ -O2 / $how /" "$folder.sh" > "$folder.run"
    if ! (cd "$folder" && sh -e "$folder.run") > "$folder.out" 2> "$folder.err" || [ -s "$folder.err" ]; then
        fail "$3" 'the program does not build and run in silence' "$folder.err"; return
    fi
    if [ -n "$want" ] && ! awk -f "$root/tests/checks/expect.awk" "$want" "$folder.out" > "$folder.log"; then
        fail "$3" 'it prints something else than the text shows' "$folder.log"; return
    fi
    if [ -n "$want" ] || [ ! -s "$folder.out" ]; then pass
    else fail "$3" 'it prints something, but the text does not show what'; fi
}

part_of_program() {     # part_of_program FILE NUMBER LINE
    folder=$S/$2.d; mkdir -p "$folder"; cp "$root/attn.h" "$folder/"; cp "$1" "$folder/part.c"
    if (cd "$folder" && ${CC:-cc} -O0 -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-function -c part.c) \
        > "$folder.log" 2>&1 && [ ! -s "$folder.log" ]; then pass
    else fail "$3" 'does not compile in silence as it stands' "$folder.log"; return; fi
    recipe=$(sed -n 's/^\/\* recipe \([a-z_]*\).*/\1/p' "$1")
    [ -n "$recipe" ] || return 0
    share
    cat "$1" "$root/tests/recipes/recipes.c" > "$folder/recipe.c"
    if (cd "$folder" && ${CC:-cc} -O1 -Wall -Wextra -Wno-unused -DATTN__IMPLEMENTED -DRECIPE_"$recipe" recipe.c \
        ../implementation.o -o recipe -lm && ./recipe) > "$folder.log" 2>&1 && [ ! -s "$folder.log" ]; then pass
    else fail "$3" "the recipe $recipe is not what tests/recipes/recipes.c computes in double" "$folder.log"; fi
}

blocks() {      # of the file $readme
used=
for f in "$S"/[0-9]*.line; do
    [ -f "$f" ] || continue
    number=$(basename "$f" .line) line=$(cat "$f") note=
    block=$(ls "$S/$number".* | grep -vE '\.(line|note|far)$' | head -1)
    [ ! -f "$S/$number.note" ] || note=$(cat "$S/$number.note")
    case $note in
    *untested:*)
            echo "readme: $readme:$line: not tested:$(echo "$note" | sed 's/.*untested://; s/-->.*//')"
            continue;;
    esac
    case $block in
    *.c)    if grep -qE '\bmain *\(' "$block"; then program "$block" "$number" "$line"
            else part_of_program "$block" "$number" "$line"; fi;;
    *.sh)   case " $used " in *" $block "*) continue;; esac
            bad=
            for t in $(sed -n 's/^\(\$ \)\{0,1\}make  *\([a-z][a-z-]*\).*/\2/p' "$block"); do
                grep -q "^$t:" Makefile || bad="$bad make $t"
            done
            for t in $(grep -oE '\b(tests|examples)/[A-Za-z0-9_./-]+' "$block"); do [ -e "$t" ] || bad="$bad $t"; done
            if [ -z "$bad" ]; then pass; else fail "$line" "there is no:$bad"; fi;;
    esac
done
}

[ $# -gt 0 ] || set -- README.md examples/PORTING.md examples/RECIPES.md examples/README.md examples/mpi/README.md tests/README.md
for readme in "$@"; do
    S=$root/build/readme/$(echo "${readme%.md}" | tr / _)
    mkdir -p "$S" || exit 1
    [ -f "$readme" ] || { fail 0 'there is no such file'; continue; }
    split_blocks
    if [ -s "$S/unnamed" ]; then fail 0 'blocks without a language (```c, ```sh, ```text):' "$S/unnamed"; fi
    blocks
done
# pictures and files that the texts refer to
for text in $(printf '%s\n' "$@" tests/*.md examples/*.md examples/*/*.md .github/*.md | sort -u); do
    for t in $(grep -oE '\]\([A-Za-z0-9_./-]+\)|src="[A-Za-z0-9_./-]+"' "$text" |
               sed 's/^](//; s/^src="//; s/[)"]$//' | sort -u); do
        if [ -e "$(dirname "$text")/$t" ]; then pass
        else fail 0 "$text points at $t, which is not there"; fi
    done
    # headings, too: [..](#name), [..](file.md#name). A name is the heading in lower case, without punctuation, - for blanks
    for t in $(grep -oE '\]\([A-Za-z0-9_./-]*#[a-z0-9_-]+\)' "$text" | sed 's/^](//; s/)$//' | sort -u); do
        file=${t%%#*}
        if sed -n 's/^##* *//p' "$(dirname "$text")/${file:-$(basename "$text")}" 2> /dev/null | tr 'A-Z' 'a-z' |
            sed 's/[^a-z0-9_ -]//g; s/ /-/g' | grep -qxF -- "${t#*#}"; then pass
        else fail 0 "$text points at the heading $t, which is not there"; fi
    done
done
echo "readme: $passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
