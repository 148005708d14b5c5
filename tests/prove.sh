#!/bin/sh
# prove.sh: what Frama-C shows. EVA, within the bounds that stand in prove/{masks,names,load}.c: no undefined behaviour, that
# is, no alarm. WP with why3, z3 and cvc4, for all values: the contracts in prove/sizes.h and the assertions in prove/sizes.c;
# what these assume z3 proves by itself (prove/facts.smt2). Then mistakes, one at a time, in a copy of attn.h: each of them must
# raise an alarm or leave a goal open. Then the bound of exp by Gappa (prove/exp.py), which two wrong constants must break. Last
# line: "prove: N passed, M failed". On Debian: frama-c-base, why3, z3, cvc4, gappa, python3; the claim is that of the versions
# which are printed.
cd "$(dirname "$0")/.." || exit 1
command -v frama-c > /dev/null || { echo 'SKIPPED prove: no frama-c (apt-get install frama-c-base)'; exit 0; }
here=$PWD out=build/prove passed=0 failed=0
mkdir -p $out
echo "prove: Frama-C $(frama-c -version)"
# what a check has refused is kept apart from what it has let through, and one key of an entry from the next
apart="-eva-split-return-function attn__check_load:0,attn__check_saved:0,attn__check_kv_entry:0,attn__check_kv_apart:0
    -eva-slevel-function attn__kv_grow:100,attn_kv_load:300,attn__saved_page:500,attn__saved_values:100,main:100"
# Frama-C looks for attn.h where it is started
alarms() # program, folder of attn.h: the alarms go to $out/log; status 2 when there was no analysis
{
    # shellcheck disable=SC2086
    (cd "$2" && frama-c -machdep gcc_x86_64 -cpp-extra-args="-I. -I$here/tests/prove" -warn-special-float none \
        -eva -eva-precision 3 -eva-msg-key=-final-states -eva-use-spec attn__say \
        $([ "$1" != load ] || echo $apart) "$here/tests/prove/$1.c") > $out/log 2>&1 || return 2
    grep -q 'eva:summary' $out/log || return 2
    ! grep -q 'eva:alarm' $out/log
}
say() { printf '%-4s %s\n' "$1" "$2"; [ "$1" = ok ] && passed=$((passed + 1)) || failed=$((failed + 1)); }

for program in masks names load; do
    alarms $program . && say ok "$program: no alarm" || { grep -A2 'eva:alarm\|rror' $out/log | head -n 12; say FAIL $program; }
done

# an analysis that never comes to the end shows nothing
grep -q 'Frama_C_show_each_end' $out/log && say ok 'load: some bytes are loaded' || say FAIL 'load: nothing is loaded'

# one mistake: function, what stands there, what it becomes; $out/attn.h is the copy with it
mistake()
{
    awk -v f="$1" -v old="$2" -v new="$3" '
        index($0, f) && /^[A-Za-z]/ && !/;/ { inside = 1 }
        inside && !done && (at = index($0, old)) { $0 = substr($0, 1, at - 1) new substr($0, at + length(old)); done = 1 }
        /^}/ { inside = 0 }
        { print }' attn.h > $out/attn.h
    ! cmp -s attn.h $out/attn.h || { say FAIL "stale: $1: $2"; return 1; }
}

# program, function, what stands there, what a mistake would make of it
while IFS='|' read -r program function old new; do
    [ -n "$program" ] || continue
    mistake "$function" "$old" "$new" || continue
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
load|attn__check_kv_entry(|entry >= 0 && |
load|attn__check_load(|keys > c->shape.capacity|keys > c->shape.capacity + 12
load|attn__check_saved(|size / 4 * 4|size + 4
load|attn__saved_page(|j < keys|j <= keys
load|attn__kv_make(|s->pages - 1 - p|s->pages + p
load|attn_kv_load(|c->page_keys * c->v_row|c->page_keys * 3 * c->v_row
load|attn__kv_measure(|(size_t)c->entry_pages + 3|(size_t)c->entry_pages + 2
MISTAKES

# WP: goals that are left open go to $out/log. What times() is, is told to attn__mul alone: it slows down all others.
left_open() # functions, folder of attn.h, more for cpp; status 2 when there was no proof
{
    (cd "$2" && frama-c -machdep gcc_x86_64 -cpp-extra-args="-I. -I$here/tests/prove $3" -wp -wp-rte -wp-no-init-const \
        -wp-prover z3,cvc4 -wp-timeout ${WP_TIMEOUT:-20} -wp-par 2 -wp-fct "$1" \
        -inline-calls attn__pack_strides,attn__cells_max,attn__fail_large "$here/tests/prove/sizes.c") > $out/log 2>&1 || return 2
    awk '/Proved goals:/ { done = $4 == $6 && $6 > 0 ? 0 : 1; seen = 1 } END { exit seen ? done : 2 }' $out/log
}
if command -v why3 > /dev/null && command -v z3 > /dev/null && command -v cvc4 > /dev/null; then
    export WHY3CONFIG=$here/$out/why3.conf
    why3 config detect -C "$WHY3CONFIG" > /dev/null 2>&1
    echo "prove: why3 $(why3 --version | awk '{ print $NF }'), $(z3 --version), $(cvc4 --version | head -n 1)"
    [ "$(z3 -T:60 tests/prove/facts.smt2 | sort | uniq -c | tr -s ' ')" = " $(grep -c check-sat tests/prove/facts.smt2) unsat" ] &&
        say ok 'facts: no counterexample' || say FAIL facts
    while read -r functions cpp; do
        left_open $functions . $cpp && say ok "all values, $(awk '/Proved goals/ { print $6 }' $out/log) goals: $functions" ||
            { grep -A2 'Failed\] Goal\|rror' $out/log | head -n 12; say FAIL $functions; }
    done <<'PROVED'
attn__mul -DPRODUCT
attn__add,attn__up,attn__bytes,attn__meet,packed_bshd,packed_bhsd
PROVED
    while IFS='|' read -r functions cpp function old new; do
        mistake "$function" "$old" "$new" || continue
        WP_TIMEOUT=2 left_open $functions $out $cpp
        [ $? = 1 ] && say ok "noticed: $function: $old -> $new" || say FAIL "not noticed: $function: $old -> $new"
    done <<'MISTAKES'
attn__mul|-DPRODUCT|attn__mul(|a > (size_t)-1 / b|a > (size_t)-1 / b + 1
attn__mul|-DPRODUCT|attn__mul(|CHAR_BIT / 2|CHAR_BIT / 2 + 1
attn__add||attn__add(|*r < a|*r < a - 1
attn__bytes||attn__bytes(|attn__mul(*bytes, cell, bytes)|cell == 0
attn__bytes||attn__bytes(|*bytes > ATTN__BYTES_MAX|*bytes > ATTN__BYTES_MAX + 1
attn__meet||attn__meet(|y - x < x_bytes|y - x <= x_bytes
packed_bshd||attn__pack_strides(|*reach > attn__cells_max(t)|*reach > ATTN__BYTES_MAX
packed_bshd||attn__pack_strides(|(size_t)t->count[second], &entry|(size_t)t->count[inner], &entry
MISTAKES
else
    echo 'SKIPPED prove sizes: no why3, z3 or cvc4 (apt-get install why3 z3 cvc4)'
fi

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
