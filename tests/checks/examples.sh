#!/bin/sh
# Builds and runs every examples/*.c as its first comment specifies, and compares its output with that in the comment:
#
#     Run:  cc -O2 -I. examples/name.c && ./a.out          one line, for the folder of attn.h
#     Output:
#         the lines, indented by 4 more than the word "Output:", to the end of the comment
#
# A leading " *" on every line is allowed. tests/checks/expect.awk defines "..." and "###". CC replaces cc, RUN precedes the
# program. Everything runs in a copy under build/, where programs may create only a.out: the pictures they write must equal
# the committed ones. Arguments: only the examples whose name contains one of them. QUICK=1: the cc line of each is checked,
# but only the first example and those with special settings of attn.h are built with it. The other examples share one
# implementation, which is compiled once.
cd "$(dirname "$0")/../.." || exit 1
here=$PWD
copy=$here/build/examples-run
rm -rf "$copy" && mkdir -p "$copy/tree" || exit 1
cp attn.h "$copy/tree/" && cp -R examples "$copy/tree/" && cd "$copy/tree" || exit 1
passed=0 failed=0 shared=

fail() { failed=$((failed + 1)); echo "examples: $1"; [ -z "$2" ] || sed 's/^/    /' "$2"; }

# the implementation for examples without special settings
share()
{
    shared=../implementation.o
    printf '#define ATTN_DEBUG\n#define ATTN_IMPLEMENTATION\n#include "attn.h"\n' > ../implementation.c
    ${CC:-cc} -Wall -Wextra -O1 -I. -c ../implementation.c -o $shared > ../log 2>&1 && [ ! -s ../log ] ||
        fail 'attn.h does not build in silence' ../log
}
alike() { [ "$(grep '^#define ATTN_' "$1" | sort | tr '\n' ' ')" = '#define ATTN_DEBUG #define ATTN_IMPLEMENTATION ' ]; }

first=yes
for c in examples/*.c; do
    [ -f "$c" ] || continue
    name=$(basename "$c" .c)
    if [ $# -gt 0 ]; then
        wanted=no
        for w in "$@"; do case $name in *"$w"*) wanted=yes;; esac; done
        [ $wanted = yes ] || continue
    fi
    awk 'NR == 1 && !/^\/\*/ { exit } { print } /\*\// { exit }' "$c" > ../comment
    line=$(sed -n 's/^[ *\/]*Run: *\(cc .*\)$/\1/p' ../comment | sed 's/ *\*\/ *$//;q')
    # a file without main() is a part of another example
    if [ -z "$line" ]; then
        grep -q '^int main' "$c" && fail "$c: no line 'Run:  cc ...' in the first comment"
        continue
    fi
    build=${line%% && *} run=${line#* && }
    [ "$build" = "cc -O2 -I. $c" ] || { fail "$c: one plain cc line is the promise, but it says: $build"; continue; }
    case "$run " in "./a.out "*) ;; *) fail "$c: does not run ./a.out: $line"; continue;; esac
    rm -f a.out a.exe
    if [ -n "$QUICK" ]; then                                            # bits do not depend on -O
        build=$(echo "$build" | sed 's/ -O[1-3s] / -O0 /')
        if [ $first = no ] && alike "$c"; then
            [ -n "$shared" ] || share
            build="$build -DATTN__IMPLEMENTED $shared"
        fi
        first=no
    fi
    if ! sh -c "${CC:-cc} -Wall -Wextra ${build#cc }" > ../log 2>&1 || [ -s ../log ]; then
        fail "$c: does not build in silence: $build" ../log; continue
    fi
    [ ! -f a.exe ] || run="./a.exe${run#./a.out}"                       # Windows
    sh -c "${RUN:+$RUN }$run" > ../out 2> ../err < /dev/null
    status=$?
    if [ $status -ne 0 ] || [ -s ../err ]; then fail "$c: ends with $status" ../err; continue; fi
    awk '
        !at && /^[ *\/]*Output:/ { at = index($0, "Output:"); next }
        at && /\*\// { sub(/ *\*\/.*/, ""); if (/^[ ]*[*]?[ ]*$/) exit; done = 1 }
        at { head = substr($0, 1, at + 3); if (head !~ /^ *[*]? *$/) { print "?" $0; exit } print substr($0, at + 4) }
        done { exit }' ../comment > ../want
    if [ ! -s ../want ]; then fail "$c: shows no output in its first comment"; continue; fi
    if awk -f "$here/tests/checks/expect.awk" ../want ../out > ../log; then passed=$((passed + 1))
    else fail "$c: prints something else than its first comment shows" ../log; fi
done
rm -f a.out a.exe
diff -r "$here/examples" examples > ../log || fail 'files were left behind, or the committed pictures are old:' ../log
echo "examples: $passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
