#!/bin/sh
# Brings in the libraries that `make bench-peers` compares with: Debian packages when root (else it says which are
# missing); MKL, OpenVINO and ONNX Runtime with pip, unpacked into build/peers, nothing installed. What cannot be had is
# left out; the benchmark names it as missing.
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
wheel onnxruntime

# OpenVINO and ONNX Runtime have no switch against AVX-512. For the run that compares AVX2 with AVX2, copies of their
# libraries get one answer changed: the instruction that asks which registers the system saves (xgetbv) becomes
# "push 7, pop rax".
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
