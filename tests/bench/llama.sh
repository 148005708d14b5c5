#!/bin/sh
# make llama-bench: steps of a Llama on attn.h and on llama.cpp, whose source is in the archive of a Python package. It
# is compiled here for this processor, once, in about ten minutes on two cores. A newer version: rm -r build/peers/llama
# first. From the top folder: sh tests/bench/llama.sh. CC, CXX and CFLAGS can be set.
CC=${CC:-cc} CXX=${CXX:-c++} from=build/peers/llama part=build/peers/llama-part log=build/peers/llama.log
skip() { echo "llama-bench: SKIPPED, $1"; exit 0; }
case $(uname -s) in Linux) ;; *) skip 'it links llama.cpp as on Linux' ;; esac
for tool in cmake python3 "$CXX"; do
    command -v "$tool" > /dev/null 2>&1 || skip "there is no $tool"
done
mkdir -p build/peers build/bench
if [ ! -d $from ]; then
    rm -rf $part
    mkdir -p $part
    { python3 -m pip download -q --no-deps --no-binary=llama-cpp-python -d $part llama-cpp-python &&
        tar xzf $part/llama_cpp_python-*.tar.gz -C $part --wildcards --strip-components=2 '*/vendor/llama.cpp/*'
    } > $log 2>&1 || skip "llama.cpp cannot be had: $(tail -n 1 $log)"
    basename $part/*.tar.gz .tar.gz > $part/version
    rm $part/*.tar.gz
    echo 'Compiling llama.cpp'
    { cmake -S $part/llama.cpp -B $part/made -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
            -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF &&
        cmake --build $part/made --target llama -j "$(getconf _NPROCESSORS_ONLN)"
    } > $log 2>&1 || skip "llama.cpp cannot be compiled: $(tail -n 1 $log)"
    mv $part $from
fi
set -e
$CC -std=c99 ${CFLAGS:--O2} -DATTN_THREADS -DNO_HARNESS -I. -c tests/support/attn_impl.c -o build/bench/llama-attn.o
# the headers are those of another project: no warnings from them
$CXX -std=c++17 -O2 -Wall -Wextra -I. -isystem $from/llama.cpp/include -isystem $from/llama.cpp/ggml/include \
    tests/bench/llama.cpp build/bench/llama-attn.o $from/made/src/libllama.a $from/made/ggml/src/libggml.a \
    $from/made/ggml/src/libggml-cpu.a $from/made/ggml/src/libggml-base.a -fopenmp -pthread -ldl -o build/bench/llama
sed 's/^/llama.cpp of /; s/-/ /' $from/version
exec build/bench/llama build/bench/llama.gguf
