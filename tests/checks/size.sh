#!/bin/sh
# size.sh: bytes of machine code of attn.h per backend and with parts left out, and the time to compile it. Tables.
#
# The code in one object file is assigned to backends by function names (-ffunction-sections): names end in _sse2, _avx2
# ..., everything else is shared. A build with only one backend is ATTN_NO_SIMD, or any machine other than x86.
cd "$(dirname "$0")/../.." || exit 1
out=build/size
mkdir -p $out
printf '#define ATTN_IMPLEMENTATION\n#include "attn.h"\n' > $out/attn.c

bytes() # object: code and constants in bytes, by backend
{
    ${OBJDUMP:-objdump} -h "$1" | awk '
        $2 ~ /^\.(text|rodata)/ {
            n = 0; hex = tolower($3)
            for (i = 1; i <= length(hex); i++) n = n * 16 + index("0123456789abcdef", substr(hex, i, 1)) - 1
            which = $2 ~ /_sse2/ ? "sse2" : $2 ~ /_avx2/ ? "avx2" : $2 ~ /_avx512/ ? "avx512" : $2 ~ /_neon/ ? "neon" : "shared"
            sum[which] += n; all += n
        }
        END { printf "%d %d %d %d %d %d", sum["shared"], sum["sse2"], sum["avx2"], sum["avx512"], sum["neon"], all }'
}

row() # what, compiler, flags
{
    $2 -std=c99 $3 -ffunction-sections -fdata-sections -I. -c $out/attn.c -o $out/attn.o 2>$out/log || {
        echo "FAIL $1: does not compile"; head -n 3 $out/log; return; }
    printf '%-34s %9d %9d %9d %9d %9d %9d\n' "$1" $(bytes $out/attn.o)
}

printf '%-34s %9s %9s %9s %9s %9s %9s\n' 'bytes of code and constants' shared sse2 avx2 avx512 neon all
for cc in gcc clang aarch64-linux-gnu-gcc; do
    command -v $cc > /dev/null || { echo "SKIPPED $cc: not found"; continue; }
    OBJDUMP=objdump
    case $cc in aarch64*) OBJDUMP=aarch64-linux-gnu-objdump ;; esac
    for o in -O2 -Os; do
        row "$cc $o" $cc $o
        [ $o = -Os ] || row "$cc $o -DATTN_THREADS" $cc "$o -DATTN_THREADS"
        row "$cc $o -DATTN_NO_SIMD" $cc "$o -DATTN_NO_SIMD -DATTN_NO_STDIO"
    done
done

seconds() # compiler, options, levels: user and system time of each, the smaller of two
{
    cc=$1 options=$2
    shift 2
    for o in "$@"; do
        for i in 1 2; do
            ($cc -std=c99 $o $options -I. -c $out/attn.c -o $out/attn.o; times) |
                awk 'NR == 2 { gsub(/[ms]/, " "); print $1 * 60 + $2 + $3 * 60 + $4 }'
        done | sort -n | head -n 1 | awk '{ printf " %9.1f", $1 }'
    done
}

echo
printf '%-42s %9s %9s\n' 'what can be left out (gcc -O2)' bytes seconds
for options in '' -DATTN_NO_SSE2 -DATTN_NO_AVX512 -DATTN_NO_LAYERS -DATTN_NO_CACHE '-DATTN_NO_SSE2 -DATTN_NO_AVX512' \
    '-DATTN_NO_SSE2 -DATTN_NO_AVX512 -DATTN_NO_CACHE' -DATTN_NO_SIMD '-DATTN_NO_SIMD -DATTN_NO_CACHE'; do
    time=$(seconds gcc "$options" -O2)                       # creates attn.o
    printf '%-42s %9d%s\n' "$(echo "${options:-nothing}" | sed 's/-DATTN_//g')" "$(bytes $out/attn.o | awk '{ print $NF }')" "$time"
done

echo
printf '%-34s %9s %9s\n' 'seconds to compile (CPU)' -O0 -O2
for cc in gcc clang; do
    command -v $cc > /dev/null || continue
    for simd in '' -DATTN_NO_SIMD; do
        printf '%-34s%s\n' "$cc $simd" "$(seconds $cc "$simd" -O0 -O2)"
    done
done
