#!/bin/sh
# Builds the benchmark into build/bench. attn.h is compiled as a user would (-O2, nothing else); the peers get every
# flag that helps them. A peer without headers is left out, and the benchmark names it as missing. From the top
# folder: sh tests/bench/build.sh CC, CXX, CFLAGS can be set.
set -e
CC=${CC:-cc}
case $CC in *clang*) CXX=${CXX:-clang++} ;; *) CXX=${CXX:-c++} ;; esac
CFLAGS=${CFLAGS:--O2}
here=tests/bench
to=build/bench
warn="-Wall -Wextra -Wconversion -Wshadow"
fast="-O3 -ffast-math -fno-math-errno"
mkdir -p $to

$CC -std=c99 $CFLAGS $warn -DATTN_THREADS -DNO_HARNESS -I. -c tests/support/attn_impl.c -o $to/attn.o
for part in util cases attn_calls compose blas openvino ort peak tables no_prefetch unusual report summary bench \
    sweep shared eight; do
    $CC -std=c99 -O2 $warn -I. -c $here/$part.c -o $to/$part.o
done
native=-march=native
$CC $native -E -x c /dev/null > /dev/null 2>&1 || native=-mcpu=native
$CC -std=c99 $fast $native $warn -DBENCH_LOOPS=native -I. -c $here/loops.c -o $to/loops.o
loops=$to/loops.o
case $(uname -m) in x86_64 | amd64)
    $CC -std=c99 $fast -march=haswell $warn -DBENCH_LOOPS=avx2 -I. -c $here/loops.c -o $to/loops-avx2.o
    loops="$loops $to/loops-avx2.o" ;;
esac
common="$to/attn.o $to/util.o $loops"
peers="$to/compose.o $to/blas.o $to/openvino.o $to/ort.o"
$CC $common $peers $to/cases.o $to/attn_calls.o $to/peak.o $to/tables.o $to/no_prefetch.o $to/unusual.o $to/report.o \
    $to/summary.o $to/bench.o -o $to/bench -lm -ldl -pthread -rdynamic                # plug-ins call functions of util.c
$CC $common $to/sweep.o -o $to/sweep -lm -ldl -pthread
$CC $common $to/shared.o -o $to/shared -lm -ldl -pthread
$CC $common $to/peak.o $to/eight.o -o $to/eight -lm -ldl -pthread
case $(uname -m) in x86_64 | amd64)                          # the same with AVX2
    $CC -std=c99 $CFLAGS $warn -DATTN_NO_AVX512 -DNO_HARNESS -I. tests/support/attn_impl.c $to/util.o $to/peak.o $to/eight.o \
        -o $to/eight-avx2 -lm -ldl -pthread ;;
esac
$CC -std=c99 -O2 $warn $here/plot.c $to/summary.o -o $to/plot -lm
# without OpenMP the plain step stays on one thread
omp=-fopenmp
echo 'int main(void) { return 0; }' | $CC $omp -x c - -o $to/omp 2> /dev/null || omp=
$CC -std=c99 $fast $native $omp $warn -c $here/stories_loop.c -o $to/stories_loop.o
$CC -std=c99 $CFLAGS -Wall -Wextra -I. $here/stories.c $to/stories_loop.o $to/ort.o $to/peak.o $to/util.o \
    -o $to/stories $omp -lm -ldl \
    -pthread

# Plug-ins. Warnings in the templates of other libraries are ignored.
plugin() {                                                  # file, where it goes, flags
    source=$1 object=$2
    shift 2
    rm -f "$object"
    $CXX -std=c++14 -w -fPIC -shared -I. "$source" -o "$object" "$@" > "$object.log" 2>&1 || rm -f "$object"
}
eigen=
for folder in /usr/include/eigen3 /usr/local/include/eigen3 /opt/homebrew/include/eigen3; do
    if [ -f $folder/Eigen/Core ]; then eigen=$folder; fi
done
if [ "$eigen" ]; then
    plugin $here/eigen.cpp $to/eigen.so -O3 -DNDEBUG $native -I"$eigen"
    case $(uname -m) in x86_64 | amd64)
        plugin $here/eigen.cpp $to/eigen-avx2.so -O3 -DNDEBUG -march=haswell -I"$eigen" ;;
    esac
fi
# peers.sh unpacks two builds of oneDNN, which the plug-ins find beside build/bench; otherwise the system's
from=build/peers/onednn beside="-Wl,-rpath,\$ORIGIN/../peers"
if [ -d $from ]; then
    plugin $here/onednn.cpp $to/onednn.so -std=c++17 -O2 -I$from/include $from/libdnnl.so.3 "$beside/onednn" -ldl
else
    plugin $here/onednn.cpp $to/onednn.so -std=c++17 -O2 -ldnnl -ldl
fi
from=build/peers/onednn-devel
if [ -d $from ]; then
    plugin $here/onednn.cpp $to/onednn-graph.so -std=c++17 -O2 -I$from/include $from/lib/libdnng.so.3 \
        $from/lib/libtbb.so.12 "$beside/onednn-devel/lib" -Wl,--disable-new-dtags,--allow-shlib-undefined -ldl
else
    cp $to/onednn.so $to/onednn-graph.so 2> /dev/null || rm -f $to/onednn-graph.so
fi
for kind in ggml ggml-avx2; do                              # peers.sh compiles it
    from=build/peers/$kind
    plugin $here/ggml.cpp $to/$kind.so -O2 -I$from/include $from/libggml-cpu.a $from/libggml-base.a $omp -pthread -ldl
    delta=$to/delta${kind#ggml} backend=ATTN_AUTO                                    # linear attention against ggml
    [ $kind = ggml ] || backend=ATTN_AVX2
    rm -f $delta
    [ ! -d $from ] || $CXX -std=c++14 -w -O2 -DBACKEND=$backend -I. -I$from/include $here/delta.cpp $to/attn.o \
        $from/libggml-cpu.a $from/libggml-base.a $omp -pthread -ldl -o $delta > $delta.log 2>&1 || rm -f $delta
done
