#!/bin/sh
# make strict: attn.h with every compiler, standard, level of optimisation and way of including it that is available here.
# Silent on success; the last line is `strict: N passed, M failed`. A missing compiler is named.
#
#   sh tests/checks/strict.sh                 everything
#   sh tests/checks/strict.sh macro symbols   checks with such a name
#   sh tests/checks/strict.sh -l              only list the names
#   JOBS=8 sh tests/checks/strict.sh          eight at a time
#   QUICK=1 sh tests/checks/strict.sh         without the levels, machine options and Windows that golden.sh and
#                                             cross.sh also compile without a warning; hooks and symbols without
#                                             the kernels, -Os with one of three passes over them
#
# A check is a few lines of shell, run in a separate folder under build/strict. It fails if its status is not 0, and also if
# it prints anything: every warning is a failure. Status 77 means "skipped".
cd "$(dirname "$0")/../.." || exit 1
ROOT=$PWD; export ROOT
S=$ROOT/build/strict
rm -rf "$S" && mkdir -p "$S" || exit 1
list= words=
for w in "$@"; do if [ "$w" = -l ]; then list=1; else words="$words $w"; fi; done
number=1000

cat > "$S/prelude" <<'PRELUDE'
HARSH_CXX='-Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wcast-align -Wcast-qual -Wundef -Wdouble-promotion'
HARSH_CXX="$HARSH_CXX -pedantic -Werror" HARSH_C="$HARSH_CXX -pedantic -Werror -Wstrict-prototypes"
# no sign warnings for the tests, whose indices are int
HARSH_TESTS='-Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Wundef -Wstrict-prototypes -pedantic -Werror'
skip() { echo "$1"; exit 77; }
# on macOS gcc and g++ are clang
need() {
    for n in "$@"; do
        command -v "$n" > /dev/null || skip "no $n here"
        case $n in gcc|g++) ! "$n" --version | grep -q clang || skip "$n is clang here";; esac
    done
}
# checks of symbols and instructions read ELF objects
elf() { case $(uname -s) in Darwin|MINGW*|MSYS*|CYGWIN*) return 1;; esac; }
implementation() { printf '#define ATTN_IMPLEMENTATION\n#include "%s"\n' "${1:-attn.h}"; }
# a program that detects wrong results: the second row of a causal mask over two equal keys is the mean of the values
program() {
    cat <<C
#define ATTN_IMPLEMENTATION
$1
#include <stdio.h>
int main(void)
{
    const float x[4] = { 0, 0, 0, 0 }, v[4] = { 1, 2, 3, 6 };
    float out[4];
    if (attn_self(out, x, x, v, 1, 2, 1, 2, 1, NULL, NULL) != ATTN_OK) return 1;
    return puts(out[0] == 1 && out[1] == 2 && out[2] == 2 && out[3] == 4 ? "right" : "wrong") < 0;
}
C
}
right() { [ "$("$@")" = right ] || { echo "wrong answer from: $*"; exit 1; }; }
# symbols OBJECT: its exports, imports and state. fputc is clang's replacement for an fwrite of one byte; the rest is
# string.h, malloc, stdout and assert
symbols() {
    elf && command -v nm > /dev/null || return 0
    nm -g --defined-only "$1" | awk '$NF !~ /^attn_[a-z0-9]/ { print "exported: " $NF }'
    nm -u "$1" | awk '$2 !~ /^(mem(cpy|set|move|cmp)|strlen|malloc|free|stdout|fwrite|fputc|__assert_fail|__stack_chk_fail)$/ &&
        $2 != "_GLOBAL_OFFSET_TABLE_" { print "needs: " $2 }'
    state "$1"
}
# state OBJECT [NAME]: the only state is one cached word of CPU features, and NAME
state() {
    nm -S "$1" | awk -v more="${2:-}" '$3 ~ /^[bBdDCsSgGuvV]$/ && !($4 == "attn__cpu_word" && $2 + 0 <= 8) &&
        !($4 == more && $2 + 0 <= 4) { print "writable: " $4 }'
}
# slow_calls OBJECT: finds kernels with wide registers that call scalar code. gcc may omit vzeroupper there (it knows which
# few registers the callee uses), and scalar code then takes 100 ns. The first of these tests integers only; the others come
# before any vector.
slow_calls() {
    elf && command -v objdump > /dev/null || return 0
    objdump -d --no-show-raw-insn "$1" | awk '/^[0-9a-f]+ <.*>:$/ { kernel = $2 ~ /_avx(2|512)/ }
        kernel && $2 ~ /^(call|jmp)/ && $NF ~ /^<attn__/ && $NF !~ /_avx(2|512)/ &&
        $NF !~ /^<attn__(cpu_ask|narrow_one|narrow_block|narrow_scalar)/ { print "from a kernel: " $NF }' | sort -u
}
# links COMPILER OBJECT: links a program, without -lm, -pthread and libgcc
links() {
    elf || return 0
    program '#include "attn.h"' | sed '/ATTN_IMPLEMENTATION/d' > main.c
    $1 -std=gnu99 -no-pie -I"$ROOT" main.c "$2" -nodefaultlibs -lc -o main && right ./main
}
PRELUDE

# check NAME: reads the script from standard input
check() {
    if [ -n "$words" ]; then
        hit=; for w in $words; do case $1 in *"$w"*) hit=1;; esac; done
        if [ -z "$hit" ]; then cat > /dev/null; return; fi
    fi
    [ -z "$list" ] || echo "$1"
    number=$((number + 1)); d=$S/$number
    mkdir -p "$d/w"; echo "$1" > "$d/name"
    { cat "$S/prelude"; cat; } > "$d/run.sh"
}

# ---- standards, optimisation, configurations -----------------------------------------------------------------------
# compile NAME COMPILER FLAGS...: compiles the implementation with the strictest warnings. For checks that only concern the
# front end (a standard, a macro) the caller passes -fsyntax-only: the optimiser takes ten times as long and other
# checks run it on this code.
compile() {
    name=$1 cc=$2 look=; shift 2
    # objects of the optimiser are inspected; not position independent, so that constants are in constant sections
    case $name in "gcc -O"*|"clang -O"*) look="symbols impl.o; links $cc impl.o"; set -- "$@" -fno-pie;; esac
    case $name in "gcc -O2"|"clang -O2") look="slow_calls impl.o; $look";; esac    # -Os calls functions that it could inline
    case $cc in *++) x=cpp harsh='$HARSH_CXX';; *) x=c harsh='$HARSH_C';; esac
    check "$name" <<SH
need $cc
case '$*' in *-m32*) echo '#include <stdlib.h>' > probe.c; $cc -m32 -fsyntax-only probe.c 2> probe || skip 'no -m32 here';; esac
implementation > impl.$x
$cc $* $harsh -I"\$ROOT" -c impl.$x -o impl.o
$look
SH
}
for cc in gcc clang; do
    for std in c11 c17 gnu99 gnu17; do compile "$cc -std=$std" $cc -std=$std -fsyntax-only; done
    levels='-O0 -Og -O1 -O2 -O3 -Os'
    [ $cc = gcc ] || levels='-O0 -O2 -Os'     # clang warns before it optimises; gcc infers more values at each level
    [ -z "$QUICK" ] || case $cc in gcc) levels='-O2 -Os' ;; clang) levels=-O2 ;; esac      # golden.sh covers -Os
    for o in $levels; do
        one_pass=; [ "$QUICK$o" != 1-Os ] || one_pass='-DATTN_NO_SSE2 -DATTN_NO_AVX512'        # -O2 compiles all three
        compile "$cc $o" $cc -std=c99 $o $one_pass
    done
    [ -n "$QUICK" ] || compile "$cc -O3 -march=native" $cc -std=c99 -O3 -march=native
    front=; [ "$QUICK$cc" != 1clang ] || front=-fsyntax-only          # clang warns before it optimises
    compile "$cc -DATTN_NO_SIMD" $cc -std=c99 -O2 $front -DATTN_NO_SIMD
    for d in NDEBUG ATTN_NO_STDIO ATTN_STATIC ATTN_DEBUG ATTN_IDE; do
        compile "$cc -D$d" $cc -std=c99 -fsyntax-only -D$d
    done
    compile "$cc -m32" $cc -std=c99 ${QUICK:+-fsyntax-only} -O2 -m32
    compile "$cc -m32 -msse2 -funsigned-char" $cc -std=c99 ${QUICK:+-fsyntax-only} -O2 -m32 -msse2 -funsigned-char
done
# Compilation needs little memory, even without optimisation or with sanitizers.
for flags in -O0 '-O1 -g -fsanitize=address,undefined'; do
    [ -z "$QUICK" ] || [ "$flags" = -O0 ] || continue
    check "1 GB is enough for gcc $flags" <<SH
need gcc
implementation > impl.c
ulimit -v 1000000
gcc -std=c99 $flags -I"\$ROOT" -c impl.c -o impl.o
SH
done
# parts that can be left out: no warning, alone and with ATTN_STATIC, and the functions they name are absent
for left in NO_DELTA NO_LAYERS NO_CACHE NO_AVX512 NO_SSE2 'NO_SSE2 -DATTN_NO_AVX512 -DATTN_NO_CACHE -DATTN_NO_STDIO' 'NO_SIMD -DATTN_NO_CACHE'; do
    for cc in gcc clang g++; do
        std=c99; [ $cc != g++ ] || std=c++11
        # in the quick form one of the two: gcc as static functions, whose warnings include the others
        [ "$QUICK$cc" = 1gcc ] || compile "$cc -DATTN_$left" $cc -std=$std -fsyntax-only -DATTN_$left
        [ -n "$QUICK" ] && [ $cc != gcc ] ||
            compile "$cc -DATTN_$left -DATTN_STATIC" $cc -std=$std -fsyntax-only -DATTN_$left -DATTN_STATIC
    done
done
absent() {      # absent OPTIONS PATTERN PATTERN: no symbol of this kind, but one of that
    check "absent: -DATTN_$1" <<SH
need gcc nm
implementation > impl.c
gcc -std=c99 -O${QUICK:+0} -DATTN_$1 -I"\$ROOT" -c impl.c -o impl.o
nm impl.o | awk '{ print \$NF }' > names
grep -E '$2' names | sed 's/^/is there: /'
grep -qE '$3' names || echo 'nothing like $3 is there'
SH
}
absent 'NO_LAYERS -DATTN_NO_SIMD' 'attn_+(linear|rope|mha|norm)' '^attn_kv_append'
absent 'NO_CACHE -DATTN_NO_SIMD' '^attn_(kv|self_step|linear|rope|mha)' '^attn_narrow'
absent NO_AVX512 '_avx512' '_sse2'
absent NO_SSE2 '_sse2' '_avx512'
for cc in g++ clang++; do
    for std in c++11 c++17 c++20 gnu++17; do compile "$cc -std=$std" $cc -std=$std -fsyntax-only; done
    [ -n "$QUICK" ] || compile "$cc -O2" $cc -std=c++11 -O2      # the rest was optimised as C
    compile "$cc -DATTN_STATIC" $cc -std=c++11 -fsyntax-only -DATTN_STATIC
done
if grep -q 'ifdef ATTN_THREADS' attn.h && grep -q 'pthread_create' attn.h; then
    for cc in gcc clang; do
        front=; [ "$QUICK$cc" != 1clang ] || front=-fsyntax-only
        compile "$cc -DATTN_THREADS" $cc -std=c99 -O2 $front -pthread -DATTN_THREADS -DATTN_NO_SIMD
    done
    compile 'g++ -DATTN_THREADS' g++ -std=c++11 ${QUICK:+-fsyntax-only} -O2 -pthread -DATTN_THREADS -DATTN_NO_SIMD
fi
for left in '' -mrelaxed-simd '-mrelaxed-simd -DATTN_NO_WASM' -DATTN_NO_WASM; do
    for cc in clang-16 clang++-16; do
        std=c99; [ $cc = clang-16 ] || std=c++11
        check "$cc, WebAssembly $left" <<SH
need $cc
[ -d /usr/include/wasm32-wasi ] || skip 'no wasi-libc here'
implementation > impl.c
harsh=\$HARSH_C; [ $cc = clang-16 ] || harsh="-x c++ -nostdinc++ \$HARSH_CXX"
$cc --target=wasm32-wasi -std=$std -fsyntax-only -msimd128 $left \$harsh -I"\$ROOT" impl.c
SH
    done
done
compile 'mingw' x86_64-w64-mingw32-gcc -std=c99 ${QUICK:+-fsyntax-only} -O2
# Windows by Microsoft's rules: clang as clang-cl, and with its branches of cl, over headers that replace the SDK's.
# cross.sh runs the objects for x86-64; these are all three processors, also as C++.
for machine in x86_64 i686 aarch64; do
    for kind in clang-cl cl; do
        check "$machine-windows-msvc as $kind" <<SH
need clang-16
as=; [ $kind = clang-cl ] || as='-U__clang__ -D__cdecl= -Wno-builtin-macro-redefined -Wno-language-extension-token -DATTN_SELF="pass.h"'
for x in c c++; do
    harsh=\$HARSH_C; [ \$x = c ] || harsh=\$HARSH_CXX
    clang-16 -x \$x --target=$machine-pc-windows-msvc -fms-compatibility-version=19.30 -fsyntax-only \$harsh \$as \\
        -I"\$ROOT"/tests/cross/msvc -I"\$ROOT" "\$ROOT"/tests/cross/msvc.c
done
SH
    done
done
check 'tcc' <<'SH'
need tcc
program '#include "attn.h"' > main.c
tcc -Wall -Werror -I"$ROOT" main.c -o main && right ./main
{ echo '#define ATTN_THREADS'; cat main.c; } > threads.c
for as in '' -DATTN_NO_THREAD_LOCAL; do
    tcc -Wall -Werror $as -I"$ROOT" threads.c -o threads -lpthread && right ./threads
done
SH

# ---- ways of including it ------------------------------------------------------------------------------------------
# Finding attn.h again for its passes concerns only the front end: -fsyntax-only, except for one that runs.
check 'declarations alone, every language' <<'SH'
need gcc g++
echo '#include "attn.h"' > one.c; cp one.c one.cpp
gcc -std=c99 $HARSH_C -I"$ROOT" -c one.c && g++ -std=c++11 $HARSH_CXX -I"$ROOT" -c one.cpp
SH
check 'one plain cc line' <<'SH'
need cc
cp "$ROOT/attn.h" .
program '#include "attn.h"' > main.c
level=-O2; [ -z "$QUICK" ] || level=-O0
cc $level main.c -o main && right ./main
SH
check 'foreign folder, -Iinc' <<'SH'
need gcc clang
mkdir -p inc src out; cp "$ROOT/attn.h" inc/
program '#include "attn.h"' > src/main.c
gcc -fsyntax-only -Iinc src/main.c
cd out && clang -fsyntax-only -I../inc ../src/main.c
SH
check 'angle brackets' <<'SH'
need gcc
mkdir inc; cp "$ROOT/attn.h" inc/
program '#include <attn.h>' > main.c
gcc -fsyntax-only -Iinc main.c
SH
check 'a path with .. and a blank' <<'SH'
need gcc clang
mkdir -p 'my src/a' 'my src/lib' other; cp "$ROOT/attn.h" 'my src/lib/'
program '#include "a/../lib/attn.h"' > 'my src/main.c'
gcc -fsyntax-only 'my src/main.c'
cd other && clang -fsyntax-only "$PWD/../my src/main.c"
SH
check 'file-prefix-map' <<'SH'
need gcc
mkdir src; cp "$ROOT/attn.h" src/
program '#include "attn.h"' > src/main.c
gcc -fsyntax-only -ffile-prefix-map="$PWD"=/nowhere "$PWD/src/main.c"
SH
check 'through a symlink' <<'SH'
need gcc clang
mkdir real link; cp "$ROOT/attn.h" real/; ln -s ../real/attn.h link/attn.h; ln -s real dir
program '#include "link/attn.h"' > main.c
gcc -fsyntax-only main.c
program '#include "attn.h"' > main.c
clang -fsyntax-only -Idir main.c
SH
check 'renamed, with ATTN_SELF' <<'SH'
need gcc clang
mkdir lib; cp "$ROOT/attn.h" my_attention.h; cp "$ROOT/attn.h" lib/other.h
{ echo '#define ATTN_SELF "my_attention.h"'; program '#include "my_attention.h"'; } > main.c
gcc -fsyntax-only main.c
{ echo '#define ATTN_SELF "other.h"'; program '#include "lib/other.h"'; } > main.c
clang -fsyntax-only main.c
SH
check 'renamed, without ATTN_SELF, is an error that says so' <<'SH'
need gcc
cp "$ROOT/attn.h" my_attention.h
program '#include "my_attention.h"' > main.c
if ! gcc -fsyntax-only main.c 2> log && ! grep -q 'attn.h' log; then echo 'the error does not name the file'; fi
SH
check 'included twice' <<'SH'
need gcc clang
program '#include "attn.h"
#include "attn.h"' > a.c
{ echo '#include "attn.h"'; echo '#include "attn.h"'; program '#include "attn.h"'; } > b.c
{ program '#include "attn.h"'; echo '#undef ATTN_IMPLEMENTATION'; echo '#include "attn.h"'; } > c.c
for x in a b c; do
    gcc -std=c99 -fsyntax-only $HARSH_C -I"$ROOT" $x.c
    clang -std=c99 -fsyntax-only $HARSH_C -I"$ROOT" $x.c
done
SH
check 'two translation units, C and C++' <<'SH'
need gcc g++
implementation > impl.c
program '#include "attn.h"' | sed '/ATTN_IMPLEMENTATION/d' > main.c; cp main.c main.cpp
gcc -O1 ${QUICK:+-DATTN_NO_SIMD} -I"$ROOT" -c impl.c
gcc -O1 -I"$ROOT" main.c impl.o -o main && right ./main
g++ -O1 -I"$ROOT" main.cpp impl.o -o mainpp && right ./mainpp
implementation > impl2.cpp; g++ -O1 ${QUICK:+-DATTN_NO_SIMD} -I"$ROOT" -c impl2.cpp
gcc -O1 -I"$ROOT" main.c impl2.o -o main2 && right ./main2
SH
# names of attn.h are free in other scopes: members, methods, variables, other namespaces
check 'C++: in a namespace, beside members with its names' <<'SH'
need gcc g++ clang++
implementation > impl.c
gcc -O1 -DATTN_NO_SIMD -I"$ROOT" -c impl.c
cat > main.cpp <<'C'
#include <stddef.h>
namespace library {
#include "attn.h"
}
namespace other { inline int attn_rope(int x, int y) { return x + y; } }
class Model {
public:
    int attn_sdpa(const library::attn_args &a) const { return library::attn_sdpa(&a); }
    int attn_rope(int x, int y) const { return other::attn_rope(x, y); }
    int attn_kv_init() { attn_args_for = 0; return attn_self_step(1, 2); }
private:
    int attn_self_step(int x, int y) const { return x - y + attn_args_for; }
    int attn_args_for;
};
int main()
{
    const float x[1] = { 1 };
    float out[1] = { 0 };
    library::attn_args a = library::attn_args_for(1, 1, 1, 1, 1);
    library::attn_status (*const call)(const library::attn_args *) = &library::attn_sdpa;
    Model m;
    a.q = a.k = a.v = x;
    a.out = out;
    return m.attn_sdpa(a) != 0 || call(&a) != library::ATTN_OK || m.attn_rope(1, 2) != 3 || m.attn_kv_init() != -1 || out[0] < 1;
}
C
cat > global.cpp <<'C'
#include "attn.h"
struct Model {
    int attn_sdpa(const attn_args &a) const { return ::attn_sdpa(&a); }
    int attn_rope(int x) const { return x; }
    int attn_kv_init, attn_args_for;
};
int main()
{
    const attn_args a = attn_args_for(0, 1, 1, 1, 1);
    const Model m = { 1, 2 };
    return m.attn_sdpa(a) != 0 || m.attn_rope(3) != m.attn_kv_init + m.attn_args_for;
}
C
for cc in g++ clang++; do for std in c++11 c++20; do for f in main global; do
    $cc -std=$std $HARSH_CXX -I"$ROOT" $f.cpp impl.o -o $f && ./$f
done; done; done
cat > members.c <<'C'
#include "attn.h"
struct model { int attn_sdpa, attn_rope, attn_kv_init; };
int main(void)
{
    attn_status (*const call)(const attn_args *) = attn_sdpa;
    const struct model m = { 1, 2, 3 };
    const int attn_args_for = m.attn_sdpa + m.attn_rope + m.attn_kv_init;
    return attn_args_for != 6 || call == NULL;
}
C
for std in c99 c11; do gcc -std=$std $HARSH_C -I"$ROOT" members.c impl.o -o members && ./members; done
SH
check 'ATTN_STATIC in two translation units' <<'SH'
need gcc clang
program '#define ATTN_STATIC
#include "attn.h"' > main.c
{ echo '#define ATTN_STATIC'; implementation
  echo 'int other(void);'; echo 'int other(void) { return attn_version(); }'; } > other.c
for cc in gcc clang; do
    # unused static functions are reported before the optimiser
    [ -z "$QUICK" ] || $cc -std=c99 -fsyntax-only $HARSH_C -I"$ROOT" -c other.c
    $cc -std=c99 -O1 $HARSH_C ${QUICK:+-DATTN_NO_SIMD} -I"$ROOT" -c other.c -o other.o
    $cc -std=c99 -O1 $HARSH_C ${QUICK:+-DATTN_NO_SIMD} -I"$ROOT" main.c other.o -o main && right ./main
    nm -g --defined-only other.o | grep -v ' other$' || :
done
SH
check 'ATTN_MALLOC, ATTN_FREE, ATTN_ASSERT, ATTN_STACK of the user' <<'SH'
need gcc
program '#include <stddef.h>
static union { double d; char bytes[1 << 20]; } my_room;
static void *my_malloc(void *user, size_t n) { (void)user; return n < sizeof my_room ? &my_room : NULL; }
static void my_free(void *user, void *p) { (void)user; (void)p; }
#define ATTN_MALLOC(user, n) my_malloc(user, n)
#define ATTN_FREE(user, p) my_free(user, p)
#define ATTN_ASSERT(x) ((void)0)
#define ATTN_STACK 64
#include "attn.h"' > main.c
gcc -std=c99 -O1 $HARSH_C ${QUICK:+-DATTN_NO_SIMD} -I"$ROOT" -c main.c && gcc main.o -o main && right ./main
nm main.o | grep -wE 'U (malloc|free|abort|__assert_fail)' || :
SH
check 'ATTN_SERIAL_FLOPS: by default 1024 operations stay on their thread, 16 million do not' <<'SH'
need gcc
cat > main.c <<'C'
#define ATTN_IMPLEMENTATION
#include "attn.h"
static float x[256 * 64], out[256 * 64];
static int runs;
static void run(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    (void)pool;
    runs++;
    while (n-- > 0) task(arg, n);
}
static int runs_of(int n_q, int n_k)
{
    attn_exec exec = { NULL, 4, run };
    attn_args a = { 0 };
    a.q = a.k = a.v = x, a.out = out, a.batch = a.heads = 1, a.head_dim = 64, a.n_q = n_q, a.n_k = n_k;
    a.exec = &exec;
    runs = 0;
    return attn_sdpa(&a) == ATTN_OK ? runs : -1;
}
int main(void) { return runs_of(1, 4) != 0 || runs_of(256, 256) < 1; }
C
gcc -std=c99 -O1 $HARSH_C -DATTN_NO_SIMD -I"$ROOT" main.c -o main && ./main
SH
check 'ATTN_DEBUG: refusals, forgotten sizes and empty caches on stderr' <<'SH'
need gcc
cat > main.c <<'C'
#define ATTN_IMPLEMENTATION
#include "attn.h"
int main(void)
{
    static float rows[300];
    float x[4] = { 1, 2, 3, 4 }, out[1], state[5];
    attn_args a = { 0 };
    attn_mha_args l = { 0 };
    attn_kv_args s = { 0 };
    attn_mha m;
    attn_kv c;
    attn_check(&a, NULL, 0);
    attn_sdpa(&a);
    a.heads = a.head_dim = 1;
    attn_sdpa(&a);
    attn_self(x, x, x, x, 1, 0, 1, 1, 0, NULL, NULL);
    attn_self(x, x, x, x, 1, 1, 1, 1, 0, NULL, NULL);
    attn_cross(out, x, x, x, 1, 1, 0, 1, 1, NULL, NULL);
    l.d_model = l.heads = 1;
    l.w_q = l.w_k = l.w_v = l.w_o = x;
    attn_mha_init(&m, &l);
    attn_mha_self(&m, x, x, 1, 0, NULL);
    attn_mha_cross(&m, x, x, 0, 1, x, 1, NULL);
    s.batch = s.kv_heads = s.head_dim = s.capacity = 1;
    attn_kv_init(&c, &s);
    attn_mha_cross_step(&m, out, x, 1, 1, &c, NULL);
    attn_mha_cross_step(&m, NULL, x, 1, 1, &c, NULL);
    attn_mha_cross_step(&m, out, x, 0, 1, &c, NULL);
    a.out = out, a.q = x, a.kv = &c, a.batch = a.n_q = 1;
    attn_sdpa(&a);
    a.carry_out = state;                             /* states of no key: meant so */
    attn_sdpa(&a);
    attn_mha_cross_fill(&m, &c, x, 1, 1, NULL, NULL);
    attn_mha_cross_step(&m, out, x, 1, 1, &c, NULL);
    attn_kv_free(&c);
    attn_mha_free(&m);
    s.capacity = 300, s.k_storage = ATTN_BF16, s.v_storage = ATTN_F16;
    attn_kv_init(&c, &s);
    attn_kv_free(&c);
    s.v_storage = ATTN_F32;
    attn_kv_init(&c, &s);
    attn_kv_append(&c, 0, rows, rows, 300, 0);
    attn_kv_forget(&c, 0, 0, 256);
    a.carry_out = NULL, a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    a.window_left = 44;
    attn_sdpa(&a);
    a.window_left = 100;                             /* the loop has forgotten too much */
    attn_sdpa(&a);
    a.causal = ATTN_CAUSAL_TOP_LEFT, a.window_left = 0;
    attn_sdpa(&a);
    attn_kv_free(&c);
    return 0;
}
C
cat > want <<'T'
attn.h: attn_sdpa: heads is 0 but must be at least 1
attn.h: attn_sdpa: batch is 0: nothing is written
attn.h: attn_self: n is 0: nothing is written
attn.h: attn_self: out overlaps q
attn.h: attn_cross: n_k is 0: every row is empty
attn.h: attn_mha_self: n is 0: nothing is written
attn.h: attn_mha_cross: batch is 0: nothing is written
attn.h: attn_mha_cross_step: no entry of the cache has a key: every row is empty
attn.h: attn_mha_cross_step: out is NULL
attn.h: attn_mha_cross_step: batch is 0: nothing is written
attn.h: attn_sdpa: no entry of the cache has a key: every row is empty
attn.h: attn_kv_init: k_storage is set but v_storage is 0: values stay float
attn.h: attn_sdpa: row 0 of entry 0 would see keys 200..255, which are forgotten
attn.h: attn_sdpa: causal is top-left: keys 1..299 of entry 0 are hidden from every row (new rows of a sequence: bottom-right)
T
fast="-std=c99 -O1 ${QUICK:+-DATTN_NO_SIMD} -I"
gcc $HARSH_C -DATTN_DEBUG $fast"$ROOT" main.c -o main && ./main 2> got; cmp want got
gcc $HARSH_C -DATTN_DEBUG -DATTN_NO_STDIO $fast"$ROOT" main.c -o main && ./main
gcc $fast"$ROOT" main.c -o main && ./main 2>&1
SH
# names that other headers define as macros (windows.h, complex.h, sys/param.h)
check 'hostile macros around it' <<'SH'
need gcc g++
program '#define near
#define far
#define small char
#define hyper
#define interface struct
#define IN
#define OUT
#define OPTIONAL
#define CONST const
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define I 1.0i
#define roundup(x, y) ((((x) + ((y) - 1)) / (y)) * (y))
#include "attn.h"' > main.c
gcc -std=c99 -fsyntax-only -I"$ROOT" main.c
cp main.c main.cpp; g++ -std=c++11 -fsyntax-only -I"$ROOT" main.cpp
SH

# ---- what must not compile -----------------------------------------------------------------------------------------
fast_math() {   # fast_math COMPILER FLAGS...
    stops fast-math "$@"
}
stops() {       # stops WORD-OF-THE-ERROR COMPILER FLAGS...
    word=$1 cc=$2; shift 2
    check "$cc $* stops" <<SH
need $cc
implementation > impl.c
if $cc $* -I"\$ROOT" -c impl.c -o impl.o 2> log; then echo 'it compiled'; exit 1; fi
grep 'error' log | head -1 | grep -q -e '$word' || { echo 'not a clear error:'; head -5 log; exit 1; }
[ "\$(grep -c 'error:' log)" -eq 1 ] || { echo 'more errors than the one:'; grep error: log | head -5; exit 1; }
echo '#include "attn.h"' > user.c
$cc $* -I"\$ROOT" -c user.c -o user.o
SH
}
for o in -ffast-math -Ofast -ffinite-math-only; do fast_math gcc $o; fast_math clang $o; done
fast_math gcc -O2 -freciprocal-math
fast_math gcc -O2 -fassociative-math -fno-signed-zeros -fno-trapping-math
fast_math gcc -O2 -fno-signed-zeros
fast_math gcc -O2 -funsafe-math-optimizations
fast_math clang-19 -ffast-math
[ "$(uname -m)" != x86_64 ] || for unit in 387 both; do
    stops mfpmath gcc -O2 -mfpmath=$unit
    stops mfpmath gcc -std=c99 -O2 -mfpmath=$unit
done
stops 'use of NaN' clang-19 -O2 -fno-honor-nans       # clang 14 and 16 cannot report it, as the manual says
# flags that no macro reports: attn.h must give the same bits. golden.sh tries some of them with the kernels.
hostile()       # hostile COMPILER FLAGS...
{
    cc=$1; shift
    check "hostile flags: $cc $*" <<SH
need $cc
cd "\$ROOT"
$cc $* -std=gnu11 -Wall -Wextra -DATTN_NO_SIMD -DGOLDEN_MAIN -I. -Itests/support tests/support/golden.c -o "\$OLDPWD/golden"
"\$OLDPWD/golden" > "\$OLDPWD/text" 2>&1 || tail -5 "\$OLDPWD/text"
SH
}
parts='-fno-associative-math -fno-reciprocal-math -fsigned-zeros'
hostile gcc -O2 -funsafe-math-optimizations $parts
hostile gcc -Ofast -fno-finite-math-only $parts
hostile gcc -O2 -fno-trapping-math -fno-math-errno -fcx-limited-range
hostile gcc -O2 -frounding-math -fsignaling-nans -ftrapv
hostile gcc -O2 -march=native -ffp-contract=fast -mrecip
hostile clang -O2 -fapprox-func -freciprocal-math -fno-signed-zeros
hostile clang -O2 -ffp-contract=fast -march=native
hostile clang -O2 -fdenormal-fp-math=preserve-sign
hostile clang -O2 -fno-honor-infinities
hostile clang-16 -O2 -ffp-eval-method=double
check 'gcc -fsingle-precision-constant stops' <<'SH'
need gcc
implementation > impl.c
if gcc -O2 -fsingle-precision-constant -I"$ROOT" -c impl.c -o impl.o 2> log; then echo 'it compiled'; exit 1; fi
grep -q 'compile_without_fsingle_precision_constant' log || { echo 'not a clear error:'; head -5 log; exit 1; }
SH

# ---- its names in an object, a program, the user's file --------------------------------------------------------------
check 'symbols: ATTN_NO_STDIO, NDEBUG' <<'SH'
need gcc nm
implementation > impl.c
gcc -O2 ${QUICK:+-DATTN_NO_SIMD} $HARSH_C -DATTN_NO_STDIO -DNDEBUG -I"$ROOT" -c impl.c -o impl.o
nm -u impl.o | grep -wE 'stdout|fwrite|printf|puts|putchar|fputs|fputc|__assert_fail' || :
SH
check 'symbols: state' <<'SH'
need gcc nm
elf || skip 'no ELF objects here'
implementation > impl.c
for threads in '' -DATTN_THREADS; do                  # with threads: a flag per thread during its tasks
    gcc -std=c99 -O2 ${QUICK:+-DATTN_NO_SIMD} -fno-pie $threads -I"$ROOT" -c impl.c -o impl.o
    state impl.o ${threads:+attn__in_task}
done
echo 'int attn__forgotten[64];' > more.c              # must be noticed
gcc -fno-pie -c more.c -o more.o
[ "$(state more.o)" = 'writable: attn__forgotten' ] || echo 'state that nobody notices'
SH
check 'ATTN_NO_SIMD: no vector instruction of its own' <<'SH'
need gcc objdump
implementation > impl.c
gcc -O1 -DATTN_NO_SIMD -I"$ROOT" -c impl.c -o impl.o
objdump -d impl.o | grep -E '%[yz]mm|vfmadd|mulps' || :
program '#include "attn.h"' > main.c
gcc -O1 -DATTN_NO_SIMD -I"$ROOT" main.c -o main && right ./main
SH
check 'macros: none without its prefix' <<'SH'
need gcc clang
implementation > impl.c
echo '#include "attn.h"' > user.c
for cc in gcc clang; do for f in user impl; do
    # -dD keeps the #defines and says where each comes from; a macro that is undefined again is no leak. The macros of
    # section 11 remain, in the file that has the implementation.
    $cc -E -dD -I"$ROOT" $f.c | awk -v what="$cc $f" '
        /^# [0-9]+ "/ { ours = $3 ~ /attn\.h"$/; next }
        /^#define / { n = $2; sub(/\(.*/, "", n); if (ours) leak[n] = 1 }
        /^#undef / { delete leak[$2] }
        END { for (n in leak)
                  if (n !~ /^ATTN/ && !(what ~ /impl/ && n ~ /^attn__/)) print what ": leaves the macro " n }'
done; done
SH
check 'OPTIONS of the manual: every macro that the header reads' <<'SH'
need awk
sed -n '/^   OPTIONS\. /,/^   -ffast-math /p' "$ROOT/attn.h" > options
awk '/^[ \t]*#[ \t]*(if|ifdef|ifndef|elif)/ { on = 1 } on { print } !/\\$/ { on = 0 }' "$ROOT/attn.h" |
    grep -oE '\bATTN_?[A-Z][A-Z0-9_]*' | sort -u | grep -vE '^ATTN_(H|IMPLEMENTATION)$' > macros
[ "$(wc -l < macros)" -gt 15 ] || echo 'too few macros were found'
while read -r m; do grep -qw "$m" options || echo "not in OPTIONS: $m"; done < macros
SH
check 'FUNCTIONS of the manual: every function, in the order of the declarations' <<'SH'
need awk diff
sed -n '/^   FUNCTIONS$/,/^   ATTENTION, /p' "$ROOT/attn.h" | sed -n 's/^       \(attn_[a-z0-9_]*\)  .*/\1/p' > listed
sed -n '/^#define ATTN_H/,/ATTN_H \*\/$/p' "$ROOT/attn.h" | grep '^ATTNDEF' | sed 's/(.*//; s/.*[ *]//' |
    awk '!seen[$0]++' > declared
[ "$(wc -l < declared)" -gt 60 ] || echo 'too few functions were found'
diff listed declared || :
SH
check 'types and functions: none without its prefix' <<'SH'
need gcc
implementation > impl.c
# every tagged type and every function that attn.h declares at file scope
gcc -E -I"$ROOT" impl.c | awk '/^# [0-9]+ "/ { ours = $3 ~ /attn\.h"$/; next } ours' |
    grep -oE '^(typedef )?(struct|union|enum) [a-zA-Z_][a-zA-Z_0-9]*|^static[^=;({]*[ *]([a-zA-Z_][a-zA-Z_0-9]*)\(' |
    sed 's/($//; s/.*[ *]//' | grep -vE '^attn_|^__' | sort -u || :
SH
check 'the code of the user stays his own' <<'SH'
need gcc clang objdump
elf || skip 'no ELF objects here'
{ implementation; echo 'void mine(float *x, const float *y, int n);'
  echo 'void mine(float *x, const float *y, int n)'
  echo '{ int i; for (i = 0; i < n; i++) x[i] = x[i] * y[i] + 1.0f; }'; } > a.c
sed '/attn/d' a.c | sed '/ATTN/d' > b.c
for cc in gcc clang; do for f in a b; do
    # no code calls the static functions, so the optimiser keeps only mine()
    $cc -O3 -ffunction-sections ${QUICK:+-DATTN_STATIC} -I"$ROOT" -c $f.c -o $f.o
    objdump -d -j .text.mine $f.o | sed -n '/<mine>:/,$p' | cut -f3- > $f.s
done; cmp a.s b.s; [ -s a.s ] || echo 'nothing to compare'; done
# only this one, whose effect ends with the implementation
grep -nE '#[ ]*pragma|_Pragma|__pragma' "$ROOT/attn.h" | grep -vF 'GCC optimize ("no-unsafe-math-optimizations")' |
    grep -E 'GCC (target|optimize)|STDC FP_CONTRACT|clang (attribute|optimize)' || :
[ "$(grep -c 'pragma GCC push_options' "$ROOT/attn.h")" = "$(grep -c 'pragma GCC pop_options' "$ROOT/attn.h")" ] ||
    echo 'push_options without pop_options'
SH

# ---- the rest of the project ---------------------------------------------------------------------------------------
for cc in gcc clang; do
    check "$cc: tests" <<SH
need $cc
for f in "\$ROOT"/tests/*/*.c; do
    [ -f "\$f" ] || continue
    case "\$f" in
    */tests/prove/*) continue ;;                            # only for Frama-C: its own header
    */tests/recipes/*) continue ;;                          # part of a program: readme.sh compiles it after each recipe
    esac
    $cc -std=c99 -fsyntax-only \$HARSH_TESTS -I"\$ROOT" -I"\$ROOT/tests/support" "\$f"
done
SH
    check "$cc: examples" <<SH
need $cc
for f in "\$ROOT"/examples/*.c "\$ROOT"/examples/mpi/model.c \\
    "\$ROOT"/examples/translate/translate.c "\$ROOT"/examples/embed/*.c \\
    "\$ROOT"/examples/listen/listen.c; do
    [ -f "\$f" ] || continue
    # the implementation is checked more strictly above, with every setting: it is left out, except where it uses the hooks
    # of an example
    out=-DATTN__IMPLEMENTED; ! grep -q '^#define ATTN_[A-Z]*(' "\$f" || out=
    $cc -std=c99 -fsyntax-only \$HARSH_TESTS \$out -I"\$ROOT" "\$f"
done
SH
    check "$cc: examples with MPI" <<SH
need $cc mpicc
# any compiler, and the folder in which mpicc finds its header, whose warnings are ignored
d=\$(echo '#include <mpi.h>' | mpicc -E -x c - | sed -n 's/^# 1 "\(.*\)\/mpi.h".*/\1/p')
[ -n "\$d" ] || skip "no mpi.h here"
$cc -std=c99 -fsyntax-only \$HARSH_TESTS -isystem "\$d" -I"\$ROOT" "\$ROOT"/examples/mpi/context_parallel.c
SH
done
check 'lines, blanks, leftovers' <<'SH'
cd "$ROOT"
for f in attn.h Makefile tests/*/*.[ch] tests/suites/*/*.h tests/*/*.sh examples/*.[ch] examples/*/*.[ch] README.md; do
    [ -f "$f" ] || continue
    # columns are characters: continuation bytes of UTF-8 are not counted
    LC_ALL=C awk -v f="$f" '
        { l = $0; gsub(/[\200-\277]/, "", l) }
        length(l) > 120 && f !~ /README|\.sh$/ && (f !~ /^tests/ || f ~ /^tests\/su/) { printf "%s:%d: %d columns\n", f, FNR, length(l) }
        /[ \t]$/ && f != "README.md" { printf "%s:%d: blanks at the end\n", f, FNR }
        /\t/ && f != "Makefile" && f !~ /sh$/ { printf "%s:%d: a tab\n", f, FNR }
        /\r/ { printf "%s:%d: a carriage return\n", f, FNR }' "$f"
    [ -z "$(tail -c1 "$f")" ] || echo "$f: does not end with a newline"
done
grep -nE 'TO''DO|FIX''ME|XX''X' attn.h Makefile README.md tests/*/*.[ch] tests/*/*.sh examples/*.[ch] \
    examples/*/*.[ch] 2> /dev/null || :
for f in tests/*/*.sh .ci/run; do [ ! -f "$f" ] || sh -n "$f" 2> /dev/null ||
    ! command -v bash > /dev/null || bash -n "$f"; done
[ "$(wc -l < Makefile)" -lt 240 ] || echo 'Makefile: 240 lines or more'
SH

[ -z "$list" ] || exit 0

# ---- run them ------------------------------------------------------------------------------------------------------
cat > "$S/runner" <<'RUNNER'
cd "$1/w" && sh -e ../run.sh > ../log 2>&1
echo $? > ../status
RUNNER
ls -d "$S"/1* 2> /dev/null | xargs -n1 -P"${JOBS:-$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2)}" sh "$S/runner"
passed=0 failed=0
for d in "$S"/1*; do
    [ -f "$d/status" ] || continue
    name=$(cat "$d/name")
    case $(cat "$d/status") in
    77) echo "strict: skipped $name: $(tail -1 "$d/log")"; continue;;
    0)  if [ ! -s "$d/log" ]; then passed=$((passed + 1)); rm -rf "$d"; continue; fi;;
    esac
    failed=$((failed + 1))
    echo "strict: FAILED $name (${d#"$ROOT/"})"
    # the same mistake under fifty compilers is printed once
    mistake=$(grep -m1 -E 'error|warning' "$d/log" | sed -E 's/.*(error|warning)//; s/\[.*//')
    if [ -n "$mistake" ] && grep -qxF "$mistake" "$S/seen" 2> /dev/null; then echo "    as above:$mistake"; continue; fi
    echo "$mistake" >> "$S/seen"
    head -15 "$d/log" | sed 's/^/    /'
done
echo "strict: $passed passed, $failed failed"
[ $failed -eq 0 ]
