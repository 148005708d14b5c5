#!/bin/sh
# make mpi: examples/mpi. One sequence over 1, 2, 3 and 4 ranks: the same hashes, and as many bytes as the formula gives. A
# rank that dies and messages of a wrong size end the run soon, with a status other than 0. The output in first comments and
# README is compared as tests/checks/expect.awk defines. Last line: `mpi: N passed, M failed`.
#
#   MPICC=mpicc.mpich MPIRUN=mpirun.mpich sh tests/checks/mpi.sh       an MPI other than mpicc and mpirun
cd "$(dirname "$0")/../.." || exit 1
mpicc=${MPICC:-mpicc} mpirun=${MPIRUN:-mpirun}
source=examples/mpi/context_parallel.c
S=build/mpi
rm -rf $S && mkdir -p $S || exit 1
passed=0 failed=0
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "mpi: $1"; [ ! -s "$2" ] || head -20 "$2" | sed 's/^/    /'; }
check() { if [ "$1" = 0 ]; then pass; else fail "$2" "$3"; fi; }         # check STATUS WHAT-IS-WRONG FILE
finish() { echo "mpi: $passed passed, $failed failed"; [ $failed -eq 0 ] && [ $passed -gt 0 ]; exit; }

# prints the text in the first comment of file $1, from after the line $2 to an empty line, without its indent
shown() { awk -v title="$2" '
    !indent && index($0, title) { indent = index($0, title) + 4; next }
    indent && (/^ *$/ || /^\*\//) { exit }
    indent { print substr($0, indent) }' "$1"; }

# ---- the model: needs no MPI ----
${CC:-cc} -O2 -Wall -Wextra -I. examples/mpi/model.c -o $S/model > $S/log 2>&1 && [ ! -s $S/log ]
check $? 'model.c does not build in silence' $S/log
$S/model > $S/model.txt 2>&1 && shown examples/mpi/model.c Output: > $S/want &&
    awk -f tests/checks/expect.awk $S/want $S/model.txt > $S/log
check $? 'model.c prints something else than its first comment shows' $S/log
shown $source Model: > $S/want && [ -s $S/want ] && awk -f tests/checks/expect.awk $S/want $S/model.txt > $S/log
check $? "$source shows something else than model.c prints" $S/log
$S/model -h > $S/out 2> $S/log && grep -q '^usage:' $S/out && [ ! -s $S/log ]
check $? 'model.c -h' $S/log
$S/model --mesure > $S/out 2> $S/log; [ $? = 2 ] && [ ! -s $S/out ] && grep -q '^usage:' $S/log
check $? 'model.c takes an option that it does not know' $S/out
$S/model --measure > $S/log 2>&1 && grep -q GFLOP $S/log
check $? 'model.c cannot measure' $S/log

# ---- the ranks ----
for tool in "$mpicc" "$mpirun"; do
    command -v "$tool" > /dev/null && continue
    echo "SKIPPED all that has ranks: no $tool here (Debian: libopenmpi-dev openmpi-bin)"
    finish
done
# Open MPI needs options for more ranks than cores, and for root in a container; MPICH does not. Also, the memory of another
# process may not be readable, and waiting ranks must yield their core.
options=
if "$mpirun" --version 2>&1 | grep -qE 'Open MPI|OpenRTE'; then
    options='--oversubscribe --bind-to none'
    [ "$(id -u)" != 0 ] || options="$options --allow-run-as-root"
    export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1
fi
"$mpicc" -O2 -Wall -Wextra -I. $source -o $S/context_parallel > $S/log 2>&1 && [ ! -s $S/log ]
check $? "$source does not build in silence" $S/log
# run LIMIT RANKS OPTIONS...: output and errors in $S/out and $S/err
run()
{
    limit=$1 n=$2; shift 2
    # shellcheck disable=SC2086
    timeout -k 5 "$limit" "$mpirun" $options -n "$n" $S/context_parallel "$@" > $S/out 2> $S/err < /dev/null
}

for n in 1 2 3 4; do
    run 120 $n                            # warnings of MPI about this machine are no failure
    check $? "$n ranks: does not run" $S/err
    cp $S/out $S/$n.txt
    grep '^prefill [0-9a-f]\|^decode  [0-9a-f]' $S/out > $S/$n.hash
    [ "$(wc -l < $S/$n.hash)" -eq 2 ] && cmp -s $S/1.hash $S/$n.hash
    check $? "$n ranks: other hashes than with one" $S/$n.hash
    # each rank prints twice the bytes that it sent, and those of the formula
    awk -v n=$n 'NF == 7 && $1 ~ /^[0-9]+$/ { lines++; if ($3 != $4) bad = 1 } END { exit bad || lines != 2 * n }' $S/out
    check $? "$n ranks: bytes are not those of the formula" $S/out
    # of 8 tokens, 2 rows each, all but the last rank send 4 (v_head_dim + 4) heads bytes
    awk -v n=$n '/^decode:/ { now = 1 } now && NF == 7 && $1 ~ /^[0-9]+$/ && $1 < n - 1 && $3 != 8 * 2 * 4 * (48 + 4) * 8 { bad = 1 }
                 END { exit bad }' $S/out
    check $? "$n ranks: the carry has another size" $S/out
done
# times vary, and hashes are those of a processor with fused multiply-add; the rest must match exactly
hide() { sed 's/^\(prefill\|decode \) [0-9a-f]\{16\}:/\1 HASH:/; s/ *[0-9.]* *[0-9.]* %$/ TIME/' "$1"; }
hide $S/4.txt > $S/actual
shown $source Output: | hide - > $S/want && awk -f tests/checks/expect.awk $S/want $S/actual > $S/log
check $? 'four ranks print something else than the first comment shows' $S/log
awk '/mpirun -n 4/ { at = 1 } at && /^```/ { if (inside) exit; if (/text/) inside = 1; next } inside' examples/mpi/README.md |
    hide - > $S/want && [ -s $S/want ] && awk -f tests/checks/expect.awk $S/want $S/actual > $S/log
check $? 'four ranks print something else than examples/mpi/README.md shows' $S/log

run 60 2 -h && [ "$(cat $S/out)" = "$(grep '^usage: context_parallel' $S/out)" ]
check $? '-h: does not say its options, once' $S/err
run 60 2 --kees 700; [ $? -ne 0 ] && grep -q 'options: --keys' $S/err
check $? 'an option that is not known' $S/err

# the carry does not grow with the keys; one rank more than there are blocks
grep -A9 '^decode:' $S/3.txt | awk 'NF == 7 { print $1, $3 }' > $S/want
for keys in 700 5000; do
    run 120 3 --keys $keys && grep -A9 '^decode:' $S/out | awk 'NF == 7 { print $1, $3 }' | cmp -s - $S/want
    check $? "--keys $keys: the bytes of decoding depend on the keys" $S/out
done
run 60 4 --keys 700; [ $? -ne 0 ] && grep -q 'too few to give' $S/err
check $? 'more ranks than blocks are not refused' $S/err

# broken WORDS RANKS OPTIONS...: ends in time (124, 137: it hangs), with a status other than 0 and a message. Messages of
# MPI itself are not tested: mpirun of Open MPI 4.1 sometimes loses them at exit
broken()
{
    words=$1; shift
    run 60 "$@"
    status=$?
    case $status in
    0) fail "$*: ends with 0" $S/out;;
    124|137) fail "$*: hangs" $S/err;;
    *) grep -q "$words" $S/out $S/err; check $? "$*: ends with $status, but does not say '$words'" $S/err;;
    esac
}
broken . 3 --die 1                                        # in the middle of the prefill
broken . 4 --die 0
broken . 3 --long 1                                       # rejected by MPI
broken . 4 --long 3
broken 'too short' 3 --short 1                            # accepted by MPI, rejected by the example
broken 'too short' 4 --short 0
finish
