#!/bin/sh
# Gets the libraries that `make bench-peers` compares with, in the versions that a user would install today: Debian
# packages if run as root (otherwise it prints which are missing); OpenBLAS, MKL, OpenVINO, ONNX Runtime, oneDNN and the
# source of ggml with pip, unpacked into build/peers without installing them. Libraries that cannot be had are left
# out; the benchmark names them as missing. Prints the version of each. A newer version: rm -r build/peers first.
# From the top folder: sh tests/bench/peers.sh
packages=
want() {                                                    # a file of the package, the package
    for file in $1; do [ -e "$file" ] && return; done
    packages="$packages $2"
}
command -v cmake > /dev/null 2>&1 || packages="$packages cmake"              # compiles ggml
want "/usr/lib/*/libblis.so /usr/lib/libblis.so /usr/lib64/libblis.so" libblis-dev
eigen=include/eigen3/Eigen/Core
want "/usr/$eigen /usr/local/$eigen /opt/homebrew/$eigen" libeigen3-dev
if [ "$packages" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null 2>&1; then
        echo "Installing$packages"
        # one by one: a package that this release lacks must not block the others
        for package in $packages; do
            apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$package" > /dev/null 2>&1 ||
                echo "$package cannot be installed"
        done
    else
        echo "Not here, and only root can install it (apt-get install$packages)"
    fi
fi

# Wheels are archives; their libraries are used from the unpacked folder.
unpack() {                                                  # folder
    for file in build/peers/wheels/*.whl; do python3 -m zipfile -e "$file" "$1" || return; done
}
wheel() {                                                   # name of the package and of the folder, options of pip
    name=$1 part=build/peers/$1-part
    [ -d "build/peers/$name" ] && return
    rm -rf build/peers/wheels "$part"
    mkdir -p build/peers/wheels
    if python3 -m pip download -q --only-binary=:all: -d build/peers/wheels "$@" > build/peers/pip.log 2>&1 &&
        unpack "$part" && mv "$part" "build/peers/$name"; then
        echo "$name unpacked into build/peers"
    else
        echo "$name CANNOT BE HAD: $(tail -n 1 build/peers/pip.log 2> /dev/null)"
    fi
    rm -rf build/peers/wheels "$part"
}
wheel scipy-openblas32 --no-deps
wheel mkl --no-deps
wheel openvino --no-deps
wheel onnxruntime --no-deps

# oneDNN, two builds. Its own wheels have its graph, but run on SYCL, which costs 20 us a primitive; they need libraries
# of other wheels and the data beside them: pip finds these, and the folders of all become one. A Java package has a
# build with OpenMP, for the primitives, but without the graph. As one process loads both, the first library gets
# another name.
wheel onednn-devel tbb-devel
from=build/peers/onednn-devel
if [ -d $from ] && [ ! -d $from/lib ]; then
    for data in $from/*.data/data; do cp -Rl "$data/lib" "$data/include" $from 2> /dev/null; done
    rm -r $from/*.data
    python3 - $from/lib/libdnnl.so.3 $from/lib/libdnng.so.3 << 'END'
import sys
old = open(sys.argv[1], 'rb').read()
open(sys.argv[2], 'wb').write(old.replace(b'\0libdnnl.so.3\0', b'\0libdnng.so.3\0'))
END
fi
jar=org.bytedeco:dnnl:LATEST:jar:linux-x86_64 part=build/peers/onednn-part
if [ ! -d build/peers/onednn ]; then
    rm -rf $part
    mkdir -p $part
    if mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:copy -Dartifact=$jar -DoutputDirectory="$PWD/$part" \
            > build/peers/mvn.log 2>&1 && python3 -m zipfile -e $part/*.jar $part/all; then
        rm -f $part/all/org/bytedeco/dnnl/linux-x86_64/libgomp*       # the system's, as in ggml
        mv $part/all/org/bytedeco/dnnl/linux-x86_64 build/peers/onednn
        basename $part/*.jar -linux-x86_64.jar > build/peers/onednn/version
        echo 'onednn unpacked into build/peers'
    else
        echo "oneDNN with OpenMP CANNOT BE HAD (apt-get install maven): $(head -n 1 build/peers/mvn.log)"
    fi
    rm -rf $part
fi

# OpenVINO and ONNX Runtime have no switch that disables AVX-512. For the run that compares AVX2 with AVX2, copies of
# their libraries are patched: the instruction that reads which registers the system saves (xgetbv) becomes "push 7,
# pop rax".
without_avx512() {                                          # a wheel's name, the folder of its libraries
    from=build/peers/$1/$2 part=build/peers/$1-part
    if [ ! -d "$from" ] || [ -d "build/peers/$1-avx2" ]; then return; fi
    rm -rf "$part"
    mkdir -p "$part/$2"
    cp "$from"/lib*.so* "$part/$2/"
    python3 - "$part/$2"/lib"$1"*.so* << 'END' && mv "$part" "build/peers/$1-avx2"
import sys
changed = 0
for name in sys.argv[1:]:
    old = open(name, 'rb').read()
    new = old.replace(b'\x31\xc9\x0f\x01\xd0', b'\x31\xc9\x6a\x07\x58')
    changed += new != old
    if new != old: open(name, 'wb').write(new)
sys.exit(not changed)
END
    [ -d "build/peers/$1-avx2" ] || echo "$1 CANNOT BE KEPT FROM AVX-512"
    rm -rf "$part"
}
without_avx512 openvino openvino/libs
without_avx512 onnxruntime onnxruntime/capi

# ggml, the tensor library of llama.cpp: its source is in the archive of a Python package. Its CPU part is compiled
# here, in a minute or two, for all instruction sets of this machine and, if these include AVX-512, once more for AVX2
# alone. The options are those of llama.cpp.
ggml_source() {
    [ -d build/peers/ggml-source ] && return
    part=build/peers/ggml-part
    rm -rf $part
    mkdir -p $part
    python3 -m pip download -q --no-deps --no-binary=llama-cpp-python -d $part llama-cpp-python &&
        tar xzf $part/llama_cpp_python-*.tar.gz -C $part --wildcards --strip-components=3 '*/vendor/llama.cpp/ggml/*' &&
        touch $part/ggml/ggml.pc.in &&                      # an unused template that the archive lacks
        basename $part/*.tar.gz .tar.gz > $part/ggml/version &&
        mv $part/ggml build/peers/ggml-source
}
ggml_compile() {                                            # its folder here, options
    name=$1
    shift
    [ -d "build/peers/$name" ] && return
    echo "Compiling $name"
    part=build/peers/ggml-part
    rm -rf $part
    if ggml_source > build/peers/ggml.log 2>&1 && rm -rf $part &&
        cmake -S build/peers/ggml-source -B $part -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
            -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DGGML_LLAMAFILE=ON -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF \
            "$@" >> build/peers/ggml.log 2>&1 &&
        cmake --build $part --target ggml-cpu -j "$(getconf _NPROCESSORS_ONLN)" >> build/peers/ggml.log 2>&1 &&
        mkdir $part/kept &&
        cp -R build/peers/ggml-source/include build/peers/ggml-source/version $part/src/libggml-*.a $part/kept; then
        mv $part/kept "build/peers/$name"
    else
        echo "$name CANNOT BE HAD: $(tail -n 1 build/peers/ggml.log)"
    fi
    rm -rf $part
}
ggml_compile ggml
if grep -q avx512f /proc/cpuinfo 2> /dev/null; then ggml_compile ggml-avx2 -DGGML_NATIVE=OFF; fi
rm -rf build/peers/ggml-source

# ---- versions --------------------------------------------------------------------------------------------------------
echo 'Versions:'
for info in build/peers/*/*.dist-info; do                  # scipy_openblas32-0.3.34.dist-info
    [ ! -d "$info" ] || basename "$info" .dist-info | sed 's/^/    /; s/-/ /'
done
[ ! -f build/peers/onednn/version ] || sed 's/^/    oneDNN with OpenMP of /; s/-/ /' build/peers/onednn/version
[ ! -f build/peers/ggml/version ] || sed 's/^/    ggml of /; s/-/ /' build/peers/ggml/version
for package in libblis-dev libeigen3-dev; do
    dpkg-query -W -f '    ${Package} ${Version}\n' $package 2> /dev/null
done
:
