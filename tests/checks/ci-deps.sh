#!/bin/sh
# ci-deps.sh [FILE]: finds the tools that .ci/run needs. With CI=true, as root on a system with apt-get, it installs the missing
# ones. Otherwise it prints the command that installs them. FILE receives the names of the packages that are still missing.
#
# A tool counts as present when it works: a cross compiler without a C library is missing. To add one, add a line
# `need 'command that succeeds' package ...` below.
#
# The targets of cross.sh that .ci/run needs: aarch64 (NEON), riscv64 with vectors, s390x (big endian), i686 (32 bits,
# x87), wasm (its own kernels) and Windows (its own threads, calling convention and compiler branches). armhf and ppc64le run
# the same scalar code as s390x and i686; `make cross` tests them where their tools are installed. SIMDe emulates AVX-512 on
# processors without it.
missing='' failed=''
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

has() { command -v "$1"; }
links()                                              # links COMPILER FLAGS...: succeeds if it builds a program with threads
{
    printf '#include <stdlib.h>\n#include <pthread.h>\nint main(void) { return 0; }\n' > "$work/probe.c"
    "$@" "$work/probe.c" -o "$work/probe"
}
need()                                               # need PROBE PACKAGE...
{
    probe=$1
    shift
    eval "$probe" > /dev/null 2>&1 || missing="$missing $*"
}
install()                                            # installs $missing, or appends to $failed what it cannot install
{
    [ -n "$missing" ] || return
    if [ "${CI:-}" != true ] || [ "$(id -u)" != 0 ] || ! has apt-get > /dev/null; then
        failed="$failed$missing" missing=''
        return
    fi
    echo "ci: missing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    set -- apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120
    apt-get update -qq > "$work/apt.log" 2>&1
    # one by one if apt-get rejects the list: a package that this system does not have must not block the others
    "$@" $missing >> "$work/apt.log" 2>&1 || for p in $missing; do
        "$@" "$p" >> "$work/apt.log" 2>&1 || failed="$failed $p"
    done
    missing=''
}

need 'links gcc' gcc libc6-dev
need 'links g++ -x c++' g++
need 'links clang' clang
need 'has make' make
need 'has nm && has objdump' binutils
need 'has awk' mawk
need 'has python3' python3
need 'valgrind -q true' valgrind libc6-dbg
need 'has frama-c' frama-c-base
need 'has gappa' gappa
need 'has why3' why3
need 'has z3' z3
need 'has cvc4' cvc4
need 'has clang-tidy' clang-tidy
need 'has cppcheck' cppcheck
need 'links tcc' tcc
need 'links musl-gcc' musl-tools
need 'has qemu-aarch64 && has qemu-x86_64' qemu-user
need 'links aarch64-linux-gnu-gcc -static' gcc-aarch64-linux-gnu libc6-dev-arm64-cross
need 'links s390x-linux-gnu-gcc -static' gcc-s390x-linux-gnu libc6-dev-s390x-cross
need 'links clang-19 --target=riscv64-linux-gnu' clang-19 gcc-riscv64-linux-gnu libc6-dev-riscv64-cross
need 'links i686-linux-gnu-gcc -static' gcc-i686-linux-gnu libc6-dev-i386-cross
need 'has node' nodejs
need 'has clang-16 && has wasm-ld-16 && [ -d /usr/include/wasm32-wasi ]' \
    clang-16 lld-16 wasi-libc libclang-rt-16-dev-wasm32
need 'links x86_64-w64-mingw32-gcc' gcc-mingw-w64-x86-64
need 'has chromium || has chromium-browser || has google-chrome' chromium
need 'has mpicc && has mpirun' libopenmpi-dev openmpi-bin
need 'has pkg-config' pkg-config
need 'has cmake' cmake
need 'has meson' meson
need 'has wine || has wine64' wine wine64
need 'has ninja' ninja-build
need 'has busybox' busybox
need 'python3 -c "import numpy" || /usr/bin/python3 -c "import numpy"' python3-numpy
need 'echo "#include <stdio.h>" | arm-none-eabi-gcc -E -' gcc-arm-none-eabi libnewlib-arm-none-eabi
need 'has qemu-system-arm' qemu-system-arm
need 'echo "#include <stdlib.h>" | riscv64-unknown-elf-gcc --specs=picolibc.specs -E -' \
    gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf
need 'grep -qw avx512f /proc/cpuinfo || [ -f /usr/include/simde/x86/avx512.h ]' libsimde-dev
install
# Their names contain the versions installed above. gcc-multilib conflicts with the cross compilers.
! has gcc > /dev/null || need 'links gcc -m32 && links clang -m32' libc6-dev-i386 "lib32gcc-$(gcc -dumpversion | cut -d. -f1)-dev"
! has clang > /dev/null || need 'links clang -fsanitize=address' "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
install

[ -z "$failed" ] || echo "ci: MISSING, the checks that need these are skipped. With CI=true .ci/run installs them as root:
    apt-get install -y --no-install-recommends$failed"
[ $# = 0 ] || echo $failed > "$1"
