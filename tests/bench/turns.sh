#!/bin/sh
# Builds build/bench/turns and the two libraries it compares: attn.h as it is here, and another one.
# From the top folder: sh tests/bench/turns.sh FILE|COMMIT
set -e
CC=${CC:-cc}
to=build/bench
old=${1:?the other attn.h: a file, or a commit that has one}
mkdir -p $to/old
if [ -f "$old" ]; then cp "$old" $to/old/attn.h; else git show "$old:attn.h" > $to/old/attn.h; fi
side() {                                                    # name, path of its attn.h
    $CC -std=c99 -O2 -fPIC -shared -Wl,-Bsymbolic -DATTN_THREADS -DNO_HARNESS -I"$2" -I. tests/support/attn_impl.c \
        tests/bench/turns_side.c tests/bench/cases.c tests/bench/attn_calls.c tests/bench/util.c \
        -o "$to/turns-$1.so" -lm -ldl -pthread
}
side old $to/old &
side new .
wait $!
$CC -std=c99 -O2 -Wall -Wextra -DATTN_THREADS -DNO_HARNESS -I. tests/bench/turns.c tests/bench/cases.c \
    tests/bench/util.c tests/support/attn_impl.c -o $to/turns -lm -ldl -pthread
