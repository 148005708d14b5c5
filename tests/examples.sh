#!/bin/sh
# Builds and runs every examples/*.c the way its first comment says and compares what it prints with what that shows:
#
#     Build:  cc -O2 -I.. name.c -o name
#     Run:    ./name                           (optional, this is the default)
#     Output:
#         the lines, indented by 4 more than the word "Output:", up to the end of the comment
#
# A leading " *" on every line is fine. What "..." and "###" stand for: tests/expect.awk. CC replaces cc, RUN precedes
# the program. Everything happens in a copy under build/, in which attn.h stands one folder up, as in the project.
# Words after the script's name: only the examples whose name contains one of them.
cd "$(dirname "$0")/.." || exit 1
here=$PWD
scratch=$here/build/examples-run
rm -rf "$scratch" && mkdir -p "$scratch" || exit 1
cp attn.h "$scratch/" && cp -R examples "$scratch/" && cd "$scratch/examples" || exit 1
passed=0 failed=0

fail() { failed=$((failed + 1)); echo "examples: $1"; [ -z "$2" ] || sed 's/^/    /' "$2"; }

for c in *.c; do
    [ -f "$c" ] || continue
    name=${c%.c}
    if [ $# -gt 0 ]; then
        wanted=no
        for w in "$@"; do case $name in *"$w"*) wanted=yes;; esac; done
        [ $wanted = yes ] || continue
    fi
    awk 'NR == 1 && !/^\/\*/ { exit } { print } /\*\// { exit }' "$c" > first.txt
    build=$(sed -n 's/^[ *\/]*Build: *\(cc .*\)$/\1/p' first.txt | sed 's/ *\*\/ *$//;q')
    run=$(sed -n 's/^[ *\/]*Run: *\(.*\)$/\1/p' first.txt | sed 's/ *\*\/ *$//;q')
    # a file without main() is a part of another example
    if [ -z "$build" ]; then
        grep -q '^int main' "$c" && fail "$c: no line 'Build:  cc ...' in the first comment"
        continue
    fi
    case " $build " in
    *" -l"*|*" -march"*|*" -pthread"*) fail "$c: one plain cc line is the promise, but it says: $build"; continue;;
    esac
    if ! sh -c "${CC:-cc} -Wall -Wextra ${build#cc }" > log.txt 2>&1 || [ -s log.txt ]; then
        fail "$c: does not build in silence: $build" log.txt; continue
    fi
    sh -c "${RUN:+$RUN }${run:-./$name}" > out.txt 2> err.txt < /dev/null
    status=$?
    if [ $status -ne 0 ] || [ -s err.txt ]; then fail "$c: ends with $status" err.txt; continue; fi
    awk '
        !at && /^[ *\/]*Output:/ { at = index($0, "Output:"); next }
        at && /\*\// { sub(/ *\*\/.*/, ""); if (/^[ ]*[*]?[ ]*$/) exit; done = 1 }
        at { head = substr($0, 1, at + 3); if (head !~ /^ *[*]? *$/) { print "?" $0; exit } print substr($0, at + 4) }
        done { exit }' first.txt > want.txt
    if [ ! -s want.txt ]; then fail "$c: shows no output in its first comment"; continue; fi
    if awk -f "$here/tests/expect.awk" want.txt out.txt > log.txt; then passed=$((passed + 1))
    else fail "$c: prints something else than its first comment shows" log.txt; fi
done
rm -f first.txt want.txt out.txt err.txt log.txt
echo "examples: $passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
