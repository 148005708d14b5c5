#!/bin/bash -eu
# build.sh: builds each target of tests/fuzz with its seeds. OSS-Fuzz runs it with SRC, OUT, WORK, the compilers, their flags and
# LIB_FUZZING_ENGINE set. `make fuzz ARGS=oss-fuzz` runs it here with values like those of OSS-Fuzz.
cd "$SRC/attn.h"
# shellcheck disable=SC2086    # flags are lists of words
compile() { $CC $CFLAGS -std=c99 -I. -Itests/support -c "$1" -o "$2"; }

gzip -dc tests/fuzz/corpus.tar.gz | tar -C "$WORK" -xf -
compile tests/fuzz/impl.c "$WORK/impl.o"
for file in tests/fuzz/fuzz_*.c; do
    name=$(basename "$file" .c)
    compile "$file" "$WORK/$name.o"
    # shellcheck disable=SC2086
    $CXX $CXXFLAGS "$WORK/$name.o" "$WORK/impl.o" $LIB_FUZZING_ENGINE -o "$OUT/$name"
    (cd "$WORK/corpus/${name#fuzz_}" && zip -q -r - .) > "$OUT/${name}_seed_corpus.zip"
    printf '[libfuzzer]\nmax_len = 260\n' > "$OUT/$name.options"       # longer inputs add nothing: zeros follow the end
done
