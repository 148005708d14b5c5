#!/bin/sh
# Brings in the libraries that `make bench-peers` compares with: Debian packages when root (else it says which are
# missing); ONNX Runtime with npm, MKL and OpenVINO with pip, unpacked into build/peers, nothing installed. What cannot
# be had is left out; the benchmark names it as missing.
# From the top folder: sh tests/bench/peers.sh
packages=
want() {                                                    # a file that says it is there, its package
    for file in $1; do [ -e "$file" ] && return; done
    packages="$packages $2"
}
want "/usr/lib/*/libopenblas.so /usr/lib/libopenblas.so /usr/lib64/libopenblas.so" libopenblas-dev
want "/usr/lib/*/libblis.so /usr/lib/libblis.so /usr/lib64/libblis.so" libblis-dev
want "/usr/include/dnnl.hpp /usr/local/include/dnnl.hpp" libdnnl-dev
eigen=include/eigen3/Eigen/Core
want "/usr/$eigen /usr/local/$eigen /opt/homebrew/$eigen" libeigen3-dev
command -v npm > /dev/null 2>&1 || packages="$packages npm"
if [ "$packages" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null 2>&1; then
        echo "Installing$packages"
        # one by one: a package that this release does not have must not cost the others
        for package in $packages; do
            apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$package" > /dev/null 2>&1 ||
                echo "$package cannot be installed"
        done
    else
        echo "Not here, and only root can install it (apt-get install$packages)"
    fi
fi
if [ ! -d build/peers/node_modules/onnxruntime-node ]; then
    mkdir -p build/peers
    # the package brings its library along; its install script would only fetch CUDA
    npm install --prefix build/peers --ignore-scripts --no-audit --no-fund --loglevel=error onnxruntime-node ||
        echo "onnxruntime-node cannot be installed"
fi

# Wheels are archives: their libraries are used where they lie.
wheel() {                                                   # its name there, its folder here
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

# OpenVINO has no switch against AVX-512. For the run that compares AVX2 with AVX2, a copy of its libraries gets one
# answer changed: the instruction that asks which registers the system saves (xgetbv) becomes "push 7, pop rax".
if [ -d build/peers/openvino/openvino/libs ] && [ ! -d build/peers/openvino-avx2 ]; then
    part=build/peers/openvino-part
    rm -rf $part
    mkdir -p $part/openvino
    cp -R build/peers/openvino/openvino/libs $part/openvino/
    python3 - $part/openvino/libs/libopenvino*.so* << 'END' && mv $part build/peers/openvino-avx2
import sys
changed = 0
for name in sys.argv[1:]:
    old = open(name, 'rb').read()
    new = old.replace(b'\x31\xc9\x0f\x01\xd0', b'\x31\xc9\x6a\x07\x58')
    changed += new != old
    if new != old: open(name, 'wb').write(new)
sys.exit(not changed)
END
fi
