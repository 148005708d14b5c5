#!/bin/sh
# mutate.sh: makes the mistakes of mutations.txt in a copy of attn.h, one at a time; the tests must notice each.
#
#   sh tests/checks/mutate.sh                 all of them
#   sh tests/checks/mutate.sh 20              20 of them, evenly spaced (also --some 20)
#   sh tests/checks/mutate.sh -j 1 keep bias  one at a time; only those whose name contains one of the words
#   sh tests/checks/mutate.sh -l              list them
#   sh tests/checks/mutate.sh -s              only lists stale ones (3 seconds)
#
# A mistake is noticed if the program fails, crashes or runs longer than LIMIT seconds (default 60). A mistake is stale,
# which is an error, if its old text is not found exactly once in the given place: correct mutations.txt. CC, CFLAGS as for
# make. OBJECTS=folder: objects of the passing tests, built by the same compiler (build/obj).
cd "$(dirname "$0")/../.." || exit 1
list=tests/checks/mutations.txt work=build/mutate
CC=${CC:-cc} CFLAGS=${CFLAGS:--O1} LIMIT=${LIMIT:-60}
flags="-std=c99 $CFLAGS -DATTN_SERIAL_FLOPS=0"   # as in the Makefile

# makes mistake number $1 in attn.h; exit 1: stale
apply()
{
    awk -v number="$1" '
        function stop(why) { print why > "/dev/stderr"; failed = 1; exit 1 }
        # position where words 1..n of a text begin in s, from `at` on, separated by any blanks and ends of lines (0: none);
        # their length in `size`
        function find(s, at, word, n, i, j, w) {
            for (; (i = index(substr(s, at), word[1])) > 0; at++) {
                at += i - 1
                j = at + length(word[1])
                for (w = 2; w <= n; w++) {
                    match(substr(s, j), /^[ \t\n\\]*/)
                    if (!RLENGTH || substr(s, j + RLENGTH, length(word[w])) != word[w]) break
                    j += RLENGTH + length(word[w])
                }
                if (w > n) { size = j - at; return at }
            }
            return 0
        }
        # the lines from..to of the next definition of a function or macro of this name after line `at`; 0: none
        function body(name, at, text) {
            for (at++; at <= lines; at++) {
                if (line[at] !~ /^[A-Za-z_#]/ || line[at] !~ "(^|[^A-Za-z_0-9])" name "[)]?[(]") continue
                from = to = at
                if (line[at] ~ /^#/) {
                    if (line[at] !~ "^# *define  *" name "[(]") continue
                    while (line[to] ~ /\\$/) to++
                    return 1
                }
                for (; to <= lines; to++) {                  # a declaration ends with ;
                    text = line[to]
                    gsub(/\/\*.*\*\//, "", text)
                    if (text ~ /[;{}] *$/) break
                }
                if (text !~ /[{]/) continue
                while (to < lines && line[to] !~ (text ~ /^[{] *$/ ? "^}" : "} *$")) to++
                return 1
            }
            return 0
        }
        FNR == NR {
            if (/^# /) { count++ ; next }
            if (count != number || !/^[-@+]( |$)/) next
            kind[++steps] = substr($0, 1, 1); text[steps] = substr($0, 3)
            next
        }
        { line[++lines] = $0 }
        END {
            if (failed) exit 1
            if (!steps) stop("there is no mistake " number)
            for (s = 1; s <= steps; s++) {
                if (kind[s] == "@") {                        # one function, one macro
                    name = text[s]
                    if (name !~ /^[A-Za-z_][A-Za-z_0-9]*[(]$/) stop("no name of a function with a ( behind it: " name)
                    name = substr(name, 1, length(name) - 1)
                } else if (kind[s] == "-") {
                    if (kind[s + 1] != "+") stop("a - without its +")
                    n = split(text[s], word, " ")
                    places = there = 0
                    if (name == "") { from = 1; to = lines; there = 1 }
                    for (at = 0; name == "" ? at++ == 0 : body(name, at); at = to) {
                        there = 1
                        for (i = from; i <= to; i++) {
                            if (index(line[i], word[1]) == 0) continue
                            s1 = line[i]                     # as many lines as the words can span
                            for (j = 1; j < n && i + j <= to; j++) s1 = s1 "\n" line[i + j]
                            for (k = 1; (k = find(s1, k, word, n)) > 0; k++) {
                                if (k > length(line[i])) break
                                places++; where = i; before = substr(s1, 1, k - 1)
                                behind = substr(s1, k + size); taken = j
                            }
                        }
                    }
                    if (!there) stop("no function " name)
                    if (places != 1) stop("stands " places " times" (name == "" ? "" : " in " name) ": " text[s])
                    line[where] = before text[s + 1] behind
                    for (j = 1; j < taken; j++) { line[where + j] = ""; gone[where + j] = 1 }
                    changed = changed || text[s] != text[s + 1]
                }
            }
            if (!changed) stop("changes nothing")
            for (at = 1; at <= lines; at++) if (!gone[at]) print line[at]
        }' "$list" attn.h
}

# the path of a file of the program
file() { for f in tests/suites/$1.c tests/support/$1.c; do [ ! -f $f ] || echo $f; done; }

name() { sed -n 's/^# //p' "$list" | sed -n "$1p"; }

# the suites that run first with mistake $1: those of the last line "> suites" before it
likely() { awk -v number="$1" '/^> / { suites = substr($0, 3) } /^# / && ++n == number { print suites }' "$list"; }

# one mistake, in a separate folder; the outcome is in result
one()
{
    dir=$work/$1
    mkdir -p "$dir"
    apply "$1" >"$dir/attn.h"
    built=
    for round in 1 2; do
        # First the implementation that most suites share is built with the mistake, and only the likely suites run, which
        # is quick. Then the files with a separate implementation are built, for their suites.
        if [ $round = 1 ]; then
            more=attn_impl suites=$(likely "$1")
            for suite in $suites; do
                case $suite in math|storage|paths|pool) more="$more private" ;; esac
            done
            suites="$suites $shared"
        else
            more=$with suites=$own
        fi
        for f in $more; do
            case " $built " in *" $f "*) continue ;; esac
            $CC $flags -I"$dir" -Itests/support -c "$(file $f)" -o "$dir/$f.o" 2>"$dir/log" || break 2
            built="$built $f"
        done
        objects=
        for f in $with; do
            case " $built " in *" $f "*) objects="$objects $dir/$f.o" ;; *) objects="$objects $work/base/$f.o" ;; esac
        done
        $CC $flags $objects $(for f in $without; do echo "$work/base/$f.o"; done) -o "$dir/test" -lm -pthread \
            2>"$dir/log" || break
        asked=
        for suite in $suites; do
            case " $asked " in *" $suite "*) continue ;; esac
            asked="$asked $suite"
            $limit "$dir/test" -f "$suite" >"$dir/log" 2>&1 && continue
            case $? in
            124|137) how="$suite runs too long" ;;
            *) how=$(sed -n 's/^FAIL *\([a-z_]*\) *\(.*[^ ]\)  *[0-9]* checks.*/\1: \2/p' "$dir/log" | head -n 1)
               [ "$how" ] || how="$suite: crash" ;;
            esac
            echo "noticed by $how" >"$dir/result"
            rm -f "$dir"/*.o "$dir/test"
            return
        done
        [ $round = 1 ] || { echo "SURVIVED" >"$dir/result"; rm -f "$dir"/*.o "$dir/test"; return; }
    done
    echo "stale (does not build: $(grep -m 1 error "$dir/log"))" >"$dir/result"
}

case $1 in
--one) shift; one "$1"; exit ;;
esac

jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) some=0 words= look=
while [ $# -gt 0 ]; do
    case $1 in
    -j) jobs=$2; shift ;;
    --some) some=$2; shift ;;
    -l) sed -n 's/^# //p' "$list"; exit ;;
    -s) look=1 ;;
    -*) sed -n '2,10s/^# *//p' "$0"; exit 2 ;;
    *[!0-9]*) words="$words|$1" ;;
    *) some=$1 ;;
    esac
    shift
done

total=$(grep -c '^# ' "$list")
chosen=
k=0 stale=0
while [ $k -lt "$total" ]; do
    k=$((k + 1))
    why=$(apply $k 2>&1 >/dev/null) || { echo "stale: $(name $k): $why"; stale=$((stale + 1)); }
    if [ "$words" ] && ! name $k | grep -Eq "${words#|}"; then continue; fi
    if [ "$some" -gt 0 ] && [ $((k * some / total)) = $(((k - 1) * some / total)) ]; then continue; fi
    chosen="$chosen $k"
done

[ $stale = 0 ] || { echo "mutate: $stale stale: correct tests/checks/mutations.txt"; exit 1; }
[ ! "$look" ] || { echo "mutate: $total mistakes fit"; exit; }

# everything is compiled once without a mistake
rm -rf "$work"
mkdir -p "$work/base"
# the files with an implementation, and the rest; suites that use the first of them, and suites that have their own. Suite
# stack is left out: its figures are valid only with -O2
with='attn_impl private' without=
for f in tests/suites/*.c tests/support/*.c; do
    f=$(basename "$f" .c)
    case " $with " in *" $f "*) ;; *) without="$without $f" ;; esac
done
shared='bits poison sparse edges masks kv pages shared saved stored step carry linear rope mha steps args sdpa'
own='paths math storage pool kv step mha args'
limit=
command -v timeout >/dev/null && limit="timeout -k 5 $LIMIT"
if [ "${OBJECTS:-}" ]; then cp "$OBJECTS"/*.o "$work/base" || exit 1
else for f in $with $without; do $CC $flags -I. -Itests/support -c "$(file $f)" -o "$work/base/$f.o" || exit 1; done
fi
export with without shared own limit CC CFLAGS LIMIT
$CC $flags "$work"/base/*.o -o "$work/base/test" -lm -pthread || exit 1
if [ ! "${OBJECTS:-}" ] && ! "$work/base/test" -f $shared $own > "$work/base/log" 2>&1; then
    echo 'mutate: the tests fail as it is'
    grep -E '^(FAIL|  FAIL|CRASH)' "$work/base/log" | head
    exit 1
fi

echo $chosen | tr ' ' '\n' | xargs -P "$jobs" -n 1 sh tests/checks/mutate.sh --one

running=$("$work/base/test" math/exp | sed -n '1s/.*backends://p')
noticed=0 survived=0
for k in $chosen; do
    result=$(cat "$work/$k/result" 2>/dev/null || echo "stale (no result)")
    backend=$(name "$k" | sed -n 's/^\[\(.*\)\].*/\1/p')
    case "$result $running " in
    "SURVIVED "*" $backend "*) ;;
    SURVIVED*) [ ! "$backend" ] || result="skipped: $backend does not run here" ;;
    esac
    printf '%-72s %s\n' "$(name "$k")" "$result"
    case $result in
    noticed*) noticed=$((noticed + 1)) ;;
    skipped*) ;;
    stale*) stale=$((stale + 1)) ;;
    *) survived=$((survived + 1)) ;;
    esac
done
[ $stale = 0 ] || echo "mutate: $stale stale: correct tests/checks/mutations.txt"
echo "mutate: $noticed noticed, $survived survived"
[ $survived = 0 ] && [ $stale = 0 ] && [ $noticed != 0 ]
