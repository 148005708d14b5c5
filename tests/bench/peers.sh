#!/bin/sh
# Gets the libraries that `make bench-peers` compares with: Debian packages if run as root (otherwise it prints which
# are missing); MKL, OpenVINO, ONNX Runtime and the source of ggml with pip, unpacked into build/peers without
# installing them. Libraries that are not available are left out; the benchmark names them as missing.
# From the top folder: sh tests/bench/peers.sh
packages=
want() {                                                    # a file of the package, the package
    for file in $1; do [ -e "$file" ] && return; done
    packages="$packages $2"
}
want "/usr/lib/*/libopenblas.so /usr/lib/libopenblas.so /usr/lib64/libopenblas.so" libopenblas-dev
command -v cmake > /dev/null 2>&1 || packages="$packages cmake"              # compiles ggml
want "/usr/lib/*/libblis.so /usr/lib/libblis.so /usr/lib64/libblis.so" libblis-dev
want "/usr/include/dnnl.hpp /usr/local/include/dnnl.hpp" libdnnl-dev
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
wheel() {                                                   # name of the package, folder here
    [ -d "build/peers/$1" ] && return
    mkdir -p build/peers/wheels
    if python3 -m pip download -q --no-deps --only-binary=:all: -d build/peers/wheels "$1" > build/peers/pip.log 2>&1 &&
        python3 -m zipfile -e build/peers/wheels/"$1"-*.whl "build/peers/$1-part" &&
        mv "build/peers/$1-part" "build/peers/$1"; then
        echo "$1 unpacked into build/peers"
    else
        echo "$1 CANNOT BE HAD: $(tail -n 1 build/peers/pip.log 2> /dev/null)"
    fi
    rm -rf build/peers/wheels "build/peers/$1-part"
}
wheel mkl
wheel openvino
wheel onnxruntime

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
        mkdir $part/kept && cp -R build/peers/ggml-source/include $part/src/libggml-*.a $part/kept; then
        mv $part/kept "build/peers/$name"
    else
        echo "$name CANNOT BE HAD: $(tail -n 1 build/peers/ggml.log)"
    fi
    rm -rf $part
}
ggml_compile ggml
if grep -q avx512f /proc/cpuinfo 2> /dev/null; then ggml_compile ggml-avx2 -DGGML_NATIVE=OFF; fi
rm -rf build/peers/ggml-source
