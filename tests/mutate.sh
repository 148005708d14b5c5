#!/bin/sh
# mutate.sh: makes the mistakes of mutations.txt in a copy of attn.h, one at a time, and expects the tests to notice.
#
#   sh tests/mutate.sh                 all of them
#   sh tests/mutate.sh 20              20 of them, evenly spaced (also --some 20)
#   sh tests/mutate.sh -j 1 keep bias  one at a time; only those whose name contains one of the words
#   sh tests/mutate.sh -l              list them
#
# A mistake is noticed when the program fails, crashes or runs longer than LIMIT seconds (default 60). One whose old
# text is no longer in attn.h is stale, which is an error: correct mutations.txt. CC, CFLAGS as for make.
cd "$(dirname "$0")/.." || exit 1
list=tests/mutations.txt work=build/mutate
CC=${CC:-cc} CFLAGS=${CFLAGS:--O1} LIMIT=${LIMIT:-60}
flags="-std=c99 $CFLAGS -DATTN_SERIAL_FLOPS=0"   # as in the Makefile

# mistake number $1 made in attn.h; exit 1: stale
apply()
{
    awk -v number="$1" '
        function stop(why) { print why > "/dev/stderr"; failed = 1; exit 1 }
        function times(text, at, n, i) {                     # how often text stands in lines at.., where it is first
            n = 0
            for (; at <= lines; at++)
                for (i = 1; (j = index(substr(line[at], i), text)) > 0; i += j) if (n++ == 0) found = at
            return n
        }
        FNR == NR {
            if (/^# /) { count++ ; next }
            if (count != number || !/^[-@+]( |$)/) next
            kind[++steps] = substr($0, 1, 1); text[steps] = substr($0, 3)
            next
        }
        { line[++lines] = before[lines] = $0 }
        END {
            if (failed) exit 1
            if (!steps) stop("there is no mistake " number)
            from = 1
            for (s = 1; s <= steps; s++) {
                if (kind[s] == "@") {
                    if (times(text[s], 1) != 1) stop("stands " times(text[s], 1) " times: " text[s])
                    from = found
                } else if (kind[s] == "-") {
                    n = times(text[s], from)
                    if (n == 0 || (n > 1 && from == 1)) stop("stands " n " times: " text[s])
                    i = index(line[found], text[s])
                    line[found] = substr(line[found], 1, i - 1) text[s + 1] substr(line[found], i + length(text[s]))
                    if (kind[s + 1] != "+") stop("a - without its +")
                }
            }
            for (at = 1; at <= lines; at++) {
                print line[at]
                if (line[at] == before[at]) continue
                gsub(/ /, "", line[at]); gsub(/ /, "", before[at])
                if (line[at] != before[at]) changed = 1
            }
            if (!changed) stop("changes nothing")
        }' "$list" attn.h
}

name() { sed -n 's/^# //p' "$list" | sed -n "$1p"; }

# the suites that mistake $1 is shown to first: those of the last line "> suites" before it
likely() { awk -v number="$1" '/^> / { suites = substr($0, 3) } /^# / && ++n == number { print suites }' "$list"; }

# one mistake (0: none), in a folder of its own; what came of it stands in result
one()
{
    dir=$work/$1
    mkdir -p "$dir"
    if [ "$1" = 0 ]; then cp attn.h "$dir/attn.h"
    elif ! apply "$1" >"$dir/attn.h" 2>"$dir/log"; then echo "stale ($(cat "$dir/log"))" >"$dir/result"; return; fi
    built=
    for round in 1 2; do
        # First the implementation that most suites share is built with the mistake, and with it no more than the likely
        # suites need, which is quick. Then the files that hold one of their own, for the suites these have tests of.
        if [ $round = 1 ]; then
            more=attn_impl suites=$(likely "$1")
            for suite in $suites; do
                case " $with " in *" test_$suite "*) more="$more test_$suite" ;; esac
            done
            suites="$suites bits poison sparse edges masks kv pages saved stored step carry linear rope mha steps args sdpa"
        else
            more=$with suites='paths math storage pool kv step mha args'
        fi
        [ "$1" != 0 ] || more=                   # what is compiled already is without a mistake
        for f in $more; do
            case " $built " in *" $f "*) continue ;; esac
            $CC $flags -I"$dir" -Itests -c "tests/$f.c" -o "$dir/$f.o" 2>"$dir/log" || break 2
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
            *) how=$(sed -n 's/^FAIL *\([a-z]*\) *\(.*[^ ]\)  *[0-9]* checks.*/\1: \2/p' "$dir/log" | head -n 1)
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

jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) some=0 words=
while [ $# -gt 0 ]; do
    case $1 in
    -j) jobs=$2; shift ;;
    --some) some=$2; shift ;;
    -l) sed -n 's/^# //p' "$list"; exit ;;
    -*) sed -n '2,9s/^# *//p' "$0"; exit 2 ;;
    *[!0-9]*) words="$words|$1" ;;
    *) some=$1 ;;
    esac
    shift
done

total=$(grep -c '^# ' "$list")
chosen=
k=0
while [ $k -lt "$total" ]; do
    k=$((k + 1))
    if [ "$words" ] && ! name $k | grep -Eq "${words#|}"; then continue; fi
    if [ "$some" -gt 0 ] && [ $((k * some / total)) = $(((k - 1) * some / total)) ]; then continue; fi
    chosen="$chosen $k"
done

# everything is compiled once without a mistake
rm -rf "$work"
mkdir -p "$work/base"
with= without=
for f in tests/*.c; do
    f=$(basename "$f" .c)
    if [ "$f" != golden ] && grep -q '^#define ATTN_IMPLEMENTATION' "tests/$f.c"; then with="$with $f"
    else without="$without $f"; fi
done
limit=
command -v timeout >/dev/null && limit="timeout -k 5 $LIMIT"
for f in $with $without; do $CC $flags -I. -Itests -c "tests/$f.c" -o "$work/base/$f.o" || exit 1; done
export with without limit CC CFLAGS LIMIT

one 0
if [ "$(cat "$work/0/result")" != SURVIVED ]; then
    echo "mutate: the tests fail as it is: $(cat "$work/0/result")"
    exit 1
fi

echo $chosen | tr ' ' '\n' | xargs -P "$jobs" -n 1 sh tests/mutate.sh --one

running=$(sed -n '1s/.*backends://p' "$work/0/log")
noticed=0 survived=0 stale=0
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
[ $stale = 0 ] || echo "mutate: $stale stale: correct tests/mutations.txt"
echo "mutate: $noticed noticed, $survived survived"
[ $survived = 0 ] && [ $stale = 0 ] && [ $noticed != 0 ]
