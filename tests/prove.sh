#!/bin/sh
# prove.sh: what Frama-C's EVA shows for all inputs within the bounds that stand in prove/*.c: no undefined behaviour,
# that is, no alarm. Then ten mistakes, one at a time, in a copy of attn.h: each of them must raise one. Last line:
# "prove: N passed, M failed". Then the bound of exp by Gappa (prove/exp.py), which two wrong constants must break. On Debian:
# frama-c-base, gappa, python3; the claim is that of the version which is printed.
cd "$(dirname "$0")/.." || exit 1
command -v frama-c > /dev/null || { echo 'SKIPPED prove: no frama-c (apt-get install frama-c-base)'; exit 0; }
here=$PWD out=build/prove passed=0 failed=0
mkdir -p $out
echo "prove: Frama-C $(frama-c -version)"
alarms() # program, folder of attn.h: the alarms go to $out/log; status 2 when there was no analysis
{
    (cd "$2" && frama-c -machdep gcc_x86_64 -cpp-extra-args="-I. -I$here/tests/prove" -warn-special-float none \
        -eva -eva-precision 3 -eva-use-spec attn__say "$here/tests/prove/$1.c") > $out/log 2>&1 || return 2
    grep -q 'eva:summary' $out/log || return 2
    ! grep -q 'eva:alarm' $out/log
}
say() { printf '%-4s %s\n' "$1" "$2"; [ "$1" = ok ] && passed=$((passed + 1)) || failed=$((failed + 1)); }

for program in masks names; do
    alarms $program . && say ok "$program: no alarm" || { grep -A2 'eva:alarm\|rror' $out/log | head -n 12; say FAIL $program; }
done

# program, function, what stands there, what a mistake would make of it
while IFS='|' read -r program function old new; do
    [ -n "$program" ] || continue
    awk -v f="$function" -v old="$old" -v new="$new" '
        index($0, f) && /^[A-Za-z]/ && !/;/ { inside = 1 }
        inside && !done && (at = index($0, old)) { $0 = substr($0, 1, at - 1) new substr($0, at + length(old)); done = 1 }
        /^}/ { inside = 0 }
        { print }' attn.h > $out/attn.h
    if cmp -s attn.h $out/attn.h; then say FAIL "stale: $function: $old"; continue; fi
    alarms $program $out
    [ $? = 1 ] && say ok "noticed: $function: $old -> $new" || say FAIL "not noticed: $function: $old -> $new"
done <<'MISTAKES'
masks|attn__write_window(|(long long)i + pos|i + pos
masks|attn__write_window(|const long long ahead|const int ahead
masks|attn__write_window(|j < n_k|j <= n_k
masks|attn__write_window(|i < n_q|i <= n_q
masks|attn__write_window(|*m++ =|*++m =
masks|attn__check_matrix(|dims - 2|dims - 3
masks|attn__check_all(|n > 0|n >= 0
masks|attn__why_open(|why->asked = 0;|
names|attn_status_str(|s >= ATTN_E_VERSION|s < 99
names|attn_backend_name(|(unsigned)backend < (unsigned)ATTN__BACKENDS|(int)backend < (int)ATTN__BACKENDS
MISTAKES

# exp: its constants are read from attn.h; each of these, one digit wrong, must break the bound
if command -v gappa > /dev/null && command -v python3 > /dev/null; then
    python3 tests/prove/exp.py attn.h $out/exp.g > $out/log 2>&1 && say ok "$(tail -n 1 $out/log)" || { cat $out/log; say FAIL exp; }
    while read -r old new; do
        sed "s/$old/$new/" attn.h > $out/attn.h
        if cmp -s attn.h $out/attn.h; then say FAIL "stale: $old"; continue; fi
        python3 tests/prove/exp.py $out/attn.h $out/exp.g > $out/log 2>&1
        [ $? = 1 ] && grep -q '^exp within' $out/log && say ok "noticed: $old -> $new" || say FAIL "not noticed: $old -> $new"
    done <<'CONSTANTS'
ATTN__E3.0.166664481f ATTN__E3 0.166665481f
ATTN__LN2_HI..0.693147182f ATTN__LN2_HI 0.693148182f
CONSTANTS
else
    echo 'SKIPPED prove exp: no gappa or no python3 (apt-get install gappa python3)'
fi
echo "prove: $passed passed, $failed failed"
[ $failed = 0 ]
