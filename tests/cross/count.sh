#!/bin/sh
# count.sh: instructions of a call on RISC-V, with its vectors and as plain C, counted by qemu. Times under qemu are
# meaningless, and such processors are rare. Last line: "count: N passed, M failed"; a call passes if vectors take at
# most an eighth of the instructions of plain C.
cd "$(dirname "$0")/../.." || exit 1
out=build/cross
mkdir -p $out
for tool in gcc clang-19 qemu-riscv64 riscv64-linux-gnu-gcc; do
    command -v $tool > /dev/null || { echo "SKIPPED count: no $tool here"; exit 0; }
done
case $(qemu-riscv64 --version) in *version\ [1-8].*) api=1 ;; *) api=4 ;; esac
gcc -O2 -shared -fPIC -DQEMU_PLUGIN_VERSION=$api tests/cross/insn.c -o $out/insn.so &&
    clang-19 --target=riscv64-linux-gnu -march=rv64gcv -std=c99 -O2 -I. tests/cross/calls.c -o $out/calls-rvv &&
    riscv64-linux-gnu-gcc -std=c99 -O2 -I. tests/cross/calls.c -o $out/calls-plain ||
    { echo 'count: 0 passed, 1 failed'; exit 1; }

counted() # program, backend, calls, the call
{
    program=$1
    shift
    qemu-riscv64 -plugin $out/insn.so -L /usr/riscv64-linux-gnu -cpu rv64,v=true,vlen=128,vext_spec=v1.0 $program "$@" 2>&1 |
        tail -n 1
}
printf '%-44s %12s %12s %12s\n' 'queries keys head_dim heads kv_heads causal' vectors 'plain C' times
while read -r call; do
    echo "$call|$(counted $out/calls-rvv 7 0 $call) $(counted $out/calls-rvv 7 1 $call)" \
        "$(counted $out/calls-plain 1 0 $call) $(counted $out/calls-plain 1 1 $call)"
done <<'CALLS' | awk -F'|' '
    { split($2, n, " "); fast = n[2] - n[1]; plain = n[4] - n[3]; times = fast > 0 ? plain / fast : 0
      printf "%-44s %12d %12d %12.1f\n", $1, fast, plain, times
      if (times >= 8) passed++; else failed++ }
    END { printf "count: %d passed, %d failed\n", passed, failed; exit failed > 0 }'
128 128 64 2 2 0
128 128 64 2 2 1
32 256 128 1 1 1
1 512 64 4 4 0
1 512 128 4 1 0
1 250 80 2 2 0
4 256 64 2 2 1
CALLS
