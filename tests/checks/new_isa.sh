#!/bin/sh
# new_isa.sh: adds an invented instruction set to a copy of attn.h, in the three steps that section 11 describes, and
# runs the suite and the golden hashes on it. Its vectors are four floats in plain C, with a true fma, and it is the
# best backend, so ATTN_AUTO selects it. QUICK=1: only suites about kernels, beside scalar code alone. Last line:
# "new_isa: N passed, M failed".
cd "$(dirname "$0")/../.." || exit 1
out=build/new_isa
rm -rf $out
mkdir -p $out
cp -R Makefile tests $out || exit 1

# its number is the value of its enumerator: the count of enumerators
isa=$(awk '/^typedef enum attn_backend/ { inside = 1; next } /^} attn_backend;/ { print n; exit } inside { n += gsub(/ATTN_/, "") }' attn.h)

# the block of step 3
cat > $out/block <<'BLOCK'
#elif ATTN__ISA == TOY_NUMBER
/* ---- TOY ------------------------------------------------------------------------------------- */
#define ATTN__FN(name) attn__##name##_toy
#define ATTN__TARGET
#define ATTN__LANES 4
#define ATTN__ROWS 6
#define ATTN__TRANSPOSED 4
#define ATTN__HAS_HALF 0
#define ATTN__HAS_BF16 1
typedef struct attn__vec { float lane[4]; } attn__vec;
typedef struct attn__vmask { int lane[4]; } attn__vmask;
#define ATTN__EACH(type, value) \
    { type r; int i; for (i = 0; i < 4; i++) r.lane[i] = value; return r; }
ATTN__V attn__vec attn__vset(float x) ATTN__EACH(attn__vec, x)
ATTN__V attn__vec attn__vload(const float *p) ATTN__EACH(attn__vec, p[i])
ATTN__V void attn__vstore(float *p, attn__vec a) { memcpy(p, a.lane, sizeof a.lane); }
ATTN__V attn__vec attn__vadd(attn__vec a, attn__vec b) ATTN__EACH(attn__vec, a.lane[i] + b.lane[i])
ATTN__V attn__vec attn__vsub(attn__vec a, attn__vec b) ATTN__EACH(attn__vec, a.lane[i] - b.lane[i])
ATTN__V attn__vec attn__vmul(attn__vec a, attn__vec b) ATTN__EACH(attn__vec, a.lane[i] * b.lane[i])
ATTN__V attn__vec attn__vdiv(attn__vec a, attn__vec b) ATTN__EACH(attn__vec, a.lane[i] / b.lane[i])
ATTN__V attn__vec attn__vmax(attn__vec a, attn__vec b)
ATTN__EACH(attn__vec, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i])
ATTN__V attn__vec attn__vfma(attn__vec a, attn__vec b, attn__vec c)
ATTN__EACH(attn__vec, attn__fma(a.lane[i], b.lane[i], c.lane[i]))
ATTN__V attn__vec attn__vpow2(attn__vec t)
ATTN__EACH(attn__vec, attn__float(attn__bits(t.lane[i]) << 23))
ATTN__V attn__vmask attn__vless(attn__vec a, attn__vec b)
ATTN__EACH(attn__vmask, a.lane[i] < b.lane[i])
ATTN__V attn__vmask attn__same_bits(attn__vec a, attn__vec b)
ATTN__EACH(attn__vmask, attn__bits(a.lane[i]) == attn__bits(b.lane[i]))
ATTN__V attn__vmask attn__is_nan(attn__vec a) ATTN__EACH(attn__vmask, a.lane[i] != a.lane[i])
ATTN__V attn__vec attn__choose(attn__vmask m, attn__vec a, attn__vec b)
ATTN__EACH(attn__vec, m.lane[i] ? a.lane[i] : b.lane[i])
ATTN__V attn__vmask attn__or_mask(attn__vmask a, attn__vmask b)
ATTN__EACH(attn__vmask, a.lane[i] || b.lane[i])
ATTN__V attn__vmask attn__zero_bytes(const unsigned char *p) ATTN__EACH(attn__vmask, p[i] == 0)
ATTN__V attn__vec attn__vwiden(const unsigned short *p, const int how)
ATTN__EACH(attn__vec, attn__widen_one(p[i], how == ATTN_BF16 ? ATTN_BF16 : ATTN_F16))
typedef struct attn__wide { double lane[2]; } attn__wide;
ATTN__V attn__wide attn__wide_load(const double *p)
{
    attn__wide a;
    memcpy(a.lane, p, sizeof a.lane);
    return a;
}
ATTN__V void attn__wide_store(double *p, attn__wide a) { memcpy(p, a.lane, sizeof a.lane); }
ATTN__V attn__wide attn__wide_add(attn__wide s, const float *p, const int squares)
{
    int i;
    for (i = 0; i < 2; i++) s.lane[i] += squares ? (double)p[i] * (double)p[i] : (double)p[i];
    return s;
}
ATTN__V double attn__wide_root(double x) { return attn__sqrt(x); }
ATTN__V unsigned attn__mask_bits(attn__vmask m)
{
    return (m.lane[0] ? 1u : 0u) | (m.lane[1] ? 2u : 0u) | (m.lane[2] ? 4u : 0u) | (m.lane[3] ? 8u : 0u);
}
ATTN__V float attn__sum_lanes(attn__vec a)
{
    return (a.lane[0] + a.lane[2]) + (a.lane[1] + a.lane[3]);
}
ATTN__V float attn__max_lane(attn__vec a)
{
    const float x = a.lane[0] > a.lane[2] ? a.lane[0] : a.lane[2];
    const float y = a.lane[1] > a.lane[3] ? a.lane[1] : a.lane[3];
    return x > y ? x : y;
}
ATTN__V void attn__transpose(attn__vec *x, const void *from, ptrdiff_t row, int last)
{
    int c, i;
    for (c = 0; c < 4; c++)
        for (i = 0; i < 4; i++)
            memcpy(&x[c].lane[i], (const float *)attn__nth(from, attn__min(i, last), row) + c, sizeof(float));
}
BLOCK
sed -i "s/TOY_NUMBER/$isa/" $out/block

# The steps: each place must exist exactly once. Places are found by patterns that do not depend on their contents, so that
# the next instruction set needs no change here
awk -v block="$out/block" -v isa="$isa" '
    function did(step) { done[step]++ }
    # 1. the enumerator and the name, at the end of each list
    /^} attn_backend;/ { sub(/$/, ", ATTN_TOY", last); did("enumerator") }
    /attn__backend_names\[\] = {/ { names = 1 }
    names && /" *};/ { sub(/" *};/, "\", \"toy\" };"); names = 0; did("name") }
    # 2. the macro of the compiler; the bit of the processor; the kernel pass; the table
    /^#ifdef ATTN__X86$/ && !done["macro"] { last = last "\n#define ATTN__TOY"; did("macro") }
    /^ *return .*ATTN_CPU_MASK/ { last = last "\n    word |= 1u << ATTN_TOY;"; done["bit"] = 1 }   # one for each kind of machine
    /^\/\* ---- dispatch -/ { last = last "\n#define ATTN__ISA " isa "\n#include ATTN_SELF\n"; did("pass") }
    # 3. its block, inserted as the second one
    /^#elif ATTN__ISA == / && !done["block"] {
        while ((getline text < block) > 0) last = last "\n" text
        did("block")
    }
    NR > 1 { print last }
    { last = $0 }
    /attn__tables\[\] = {$/ { last = last "\n    &attn__kernels_toy,"; did("table") }
    END {
        print last
        n = split("enumerator name macro bit pass block table", step, " ")
        for (i = 1; i <= n; i++)
            if (done[step[i]] != 1) {
                print "new_isa: step \"" step[i] "\" fits " done[step[i]] + 0 " places" > "/dev/stderr"
                bad = 1
            }
        exit bad
    }' attn.h > $out/attn.h || { echo 'new_isa: 0 passed, 1 failed'; exit 1; }

# Plain C uses the fma instruction if there is one; otherwise this takes minutes. -O1: make test covers -O2 and -O3, and
# here the code is compiled for one run; the quick form does not optimise the first program, which tests the front end
flags=-O1
grep -qw fma /proc/cpuinfo 2> /dev/null && flags='-O1 -mfma'
# the quick form has no neighbours, which are unchanged, and omits files that compile attn.h themselves, if its suites do
# not need them
files=
if [ -n "$QUICK" ]; then
    flags="$flags -DATTN_NO_SIMD"
    [ $# -gt 0 ] || files=$(cd $out && ls tests/suites/*.c tests/support/*.c | grep -v 'test_stack\.c' | tr '\n' ' ')
fi
passed=0 failed=0
check() # name, command ...
{
    name=$1
    shift
    if "$@" > $out/log 2>&1; then
        passed=$((passed + 1))
        echo "ok   $name: $(tail -n 1 $out/log)"
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        grep -v '^ok ' $out/log | head -n 25
    fi
}

cat > $out/asks.c <<'ASKS'
#define ATTN_IMPLEMENTATION
#include "attn.h"
int main(void)                            /* AUTO takes it, by name it can be had, and it has its name */
{
    float x[2] = { 1.0f, 2.0f }, out[2];
    attn_backend best;
    attn_args a;
    memset(&a, 0, sizeof a);
    a.out = out, a.q = a.k = a.v = x, a.batch = a.heads = a.head_dim = 1, a.n_q = a.n_k = 2;
    a.backend = ATTN_TOY;
    return attn_backends(&best, 1) < 1 || best != ATTN_TOY || attn_sdpa(&a) != ATTN_OK ||
           strcmp(attn_backend_name(ATTN_TOY), "toy") != 0;
}
ASKS
check 'builds' ${CC:-cc} -std=c99 -Wall -Wextra -Wconversion -Wshadow -Werror $flags ${QUICK:+-O0} -I$out $out/asks.c -o $out/asks
check 'asked for by name' $out/asks
check 'suite builds' make -s -C $out build/test CFLAGS="$flags" ${files:+TESTS="$files"}
check 'golden hashes' $out/build/test bits/golden
check 'the suite sees it' sh -c "$out/build/test bits/golden | grep -q 'backends: toy '"
# only this set and scalar code, because the others are unchanged
ATTN_HIDE=avx512,avx2 && export ATTN_HIDE
[ -z "$QUICK" ] || [ $# -gt 0 ] || set -- bits edges sdpa poison math storage linear norms rope carry
check 'suite' $out/build/test "$@"
echo "new_isa: $passed passed, $failed failed"
[ $failed = 0 ]
