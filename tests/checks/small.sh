#!/bin/sh
# make small: attn.h with parts of it left out. Last line: "small: N passed, M failed".
#
# * The smallest useful program (tests/small/main.c: attn_self, attn_cross, attn_sdpa, masks) for Cortex-M7, M4 and M3, linked
#   with newlib and run in qemu: it prints the same as here, including the hash, and on the M7 takes less than 32 KB in total.
# * A smaller one for Cortex-M0+ in the 16 KB of a BBC micro:bit, and the implementation for rv32imc: neither has atomic
#   instructions, and nothing of libatomic may be needed.
# * The remaining suites pass in a build without layers, SSE2 and AVX-512, and in one without caches and vectors.
# tests/checks/strict.sh checks that the options compile without a warning, and leave out the functions they name.
cd "$(dirname "$0")/../.." || exit 1
W=build/small
rm -rf $W && mkdir -p $W || exit 1
CC=${CC:-cc}
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; [ ! -s "${2:-}" ] || tail -n 15 "$2" | sed 's/^/    /'; }

# ---- this machine ----------------------------------------------------------------------------------------------------
WARN='-std=c99 -Wall -Wextra -Wconversion -I.'
$CC $WARN -Os tests/small/main.c -o $W/here > $W/log 2>&1 && [ ! -s $W/log ] || bad 'tests/small/main.c' $W/log
if $W/here > $W/here.txt && cmp -s tests/small/output.txt $W/here.txt; then ok
else bad 'it does not print tests/small/output.txt'; diff tests/small/output.txt $W/here.txt | tail -n 5; fi
# the usual build, with the vectors of this machine
printf '#define ATTN_IMPLEMENTATION\n#include "attn.h"\n' > $W/attn.c
$CC -O1 -I. -c $W/attn.c -o $W/attn.o && $CC -I. -DSMALL_IN_PARTS tests/small/main.c $W/attn.o -o $W/usual > $W/log 2>&1 ||
    bad 'in parts' $W/log
if $W/usual | cmp -s tests/small/output.txt -; then ok; else bad 'the usual build has another hash'; fi

# ---- microcontrollers ------------------------------------------------------------------------------------------------
ARM=arm-none-eabi
board() # name, machine, most bytes (0: any), expected output, flags
{
    name=$1 machine=$2 most=$3 want=$4
    shift 4
    if ! $ARM-gcc -Os -mthumb "$@" $WARN -DNDEBUG -ffunction-sections -fdata-sections --specs=nano.specs --specs=rdimon.specs \
        -nostartfiles -Wl,--gc-sections -T tests/small/board.ld tests/small/main.c tests/small/board.c -o $W/$name.elf > $W/log 2>&1 ||
        [ -s $W/log ]; then bad "$name" $W/log; return; fi
    # bytes in flash: code, constants and initial values of variables; and the part of attn.h, including main.c
    all=$($ARM-size $W/$name.elf | awk 'NR == 2 { print $1 + $2 }')
    $ARM-gcc -Os -mthumb "$@" $WARN -DNDEBUG -c tests/small/main.c -o $W/$name.o
    own=$($ARM-size $W/$name.o | awk 'NR == 2 { print $1 + $2 }')
    echo "$name: $all bytes with newlib, $own of them attn.h and its program"
    if [ "$most" = 0 ] || [ "$all" -lt "$most" ]; then ok; else bad "$name: $all bytes are not below $most"; fi
    if timeout 100 qemu-system-arm -M "$machine" -nographic -semihosting-config enable=on,target=native -kernel $W/$name.elf \
        < /dev/null 2> $W/log | tr -d '\r' | cmp -s $want -; then ok; else bad "$name prints something else" $W/log; fi
}
missing=
command -v $ARM-gcc > /dev/null || missing=gcc-arm-none-eabi
[ -n "$missing" ] || echo '#include <stdio.h>' | $ARM-gcc -E - > /dev/null 2>&1 || missing=libnewlib-arm-none-eabi
command -v qemu-system-arm > /dev/null || missing="$missing qemu-system-arm"
if [ -n "$missing" ]; then echo "small: SKIPPED Cortex-M7, M4, M3 and M0+: no $missing here"
else
    board cortex-m7 mps2-an500 32768 tests/small/output.txt -mcpu=cortex-m7 -mfpu=fpv5-d16 -mfloat-abi=hard
    board cortex-m4 mps2-an386 0 tests/small/output.txt -mcpu=cortex-m4 -mfpu=fpv4-sp-d16 -mfloat-abi=hard
    board cortex-m3 mps2-an385 0 tests/small/output.txt -mcpu=cortex-m3
    $CC $WARN -DSMALL_N=2 -DSMALL_HEADS=1 tests/small/main.c -o $W/two && $W/two > $W/two.txt ||
        bad 'tests/small/main.c with 2 rows of one head'
    board cortex-m0plus microbit 0 $W/two.txt -mcpu=cortex-m0plus -DSMALL_N=2 -DSMALL_HEADS=1 -DATTN_STACK=1024 -DBOARD_STACK=0x20004000
fi

RISCV=riscv64-unknown-elf
if ! echo '#include <stdlib.h>' | $RISCV-gcc --specs=picolibc.specs -E - > /dev/null 2>&1
then echo "small: SKIPPED rv32imc: no gcc-riscv64-unknown-elf with picolibc-riscv64-unknown-elf here"
elif $RISCV-gcc -march=rv32imc -mabi=ilp32 --specs=picolibc.specs -Os $WARN -DATTN_NO_STDIO -c $W/attn.c -o $W/rv32imc.o \
    > $W/log 2>&1 && [ ! -s $W/log ] && ! $RISCV-nm -u $W/rv32imc.o | grep -i atomic > $W/log; then ok
else bad rv32imc $W/log; fi

# ---- the remaining suites ----------------------------------------------------------------------------------------------
suites() # name, options, suites
{
    name=$1 options=$2
    shift 2
    files=
    for f in main harness cases attn_impl; do files="$files tests/support/$f.c"; done
    for f; do files="$files tests/suites/$f.c"; done
    if ! $CC -std=c99 -O1 -DATTN_SERIAL_FLOPS=0 $options -I. -Itests/support $files -o $W/$name -lm -pthread > $W/log 2>&1; then
        bad "tests with $options do not build" $W/log; return; fi
    $W/$name -s 4 > $W/log 2>&1
    sum=$(grep -E '^[0-9]+ passed, [0-9]+ failed' $W/log | tail -n 1)
    sed -n 's/^seed.*backends:/backends:/p' $W/log | grep -E 'sse2|avx512' && bad "$options: they are there"
    case $sum in
    *' 0 failed'*) ok; echo "$options: $sum" ;;
    *) bad "tests with $options" $W/log ;;
    esac
}
suites most '-DATTN_NO_LAYERS -DATTN_NO_SSE2 -DATTN_NO_AVX512' test_masks test_sparse test_shared test_sdpa test_poison \
    test_saved test_carry test_edges
suites least '-DATTN_NO_CACHE -DATTN_NO_SIMD' test_masks test_sdpa

echo "small: $passed passed, $failed failed"
[ $failed = 0 ]
