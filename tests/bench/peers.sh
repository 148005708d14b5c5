#!/bin/sh
# Brings in the libraries that `make bench-peers` compares with: Debian packages when root (else it says which are
# missing), ONNX Runtime with npm into build/peers. What cannot be had is left out; the benchmark names it as missing.
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
