#!/bin/sh
# prove.sh: proofs with Frama-C. EVA, within the bounds in prove/{masks,names,load,check,delta,cache,pages}.c: no undefined
# behaviour, that is, no alarm. WP with why3, z3 and cvc4, for all values: the contracts in prove/sizes.h, and those and the
# assertions in prove/{sizes,strides,entry}.c; z3 proves the facts that they assume (prove/facts.smt2). Then mistakes, one
# at a time, in a copy of attn.h: each must raise an alarm or leave a goal open. Then the bound of exp by Gappa
# (prove/exp.py), which two wrong constants must break. Last line: "prove: N passed, M failed". On Debian: frama-c-base,
# why3, z3, cvc4, gappa, python3; the claims hold for the versions printed.
#
#   sh tests/checks/prove.sh          all proofs, and every sixth of the mistakes that Frama-C must notice
#                                     (QUICK=1: every twentieth)
#   sh tests/checks/prove.sh all      all of these
#   sh tests/checks/prove.sh all wp   a part of it: eva (or one of its programs: masks, names, load, check,
#                                     delta, cache, pages), wp, exp
cd "$(dirname "$0")/../.." || exit 1
command -v frama-c > /dev/null || { echo 'SKIPPED prove: no frama-c (apt-get install frama-c-base)'; exit 0; }
here=$PWD out=build/prove passed=0 failed=0 all= part= turn=0 every=${QUICK:+20}
every=${every:-6}
for word; do [ "$word" = all ] && all=all || part=$word; done
rm -rf $out/item
mkdir -p $out/0 $out/1 $out/item
echo "prove: Frama-C $(frama-c -version)"
say() { printf '%-4s %s\n' "$1" "$2"; [ "$1" = ok ] && passed=$((passed + 1)) || failed=$((failed + 1)); }

# Rejected and accepted states of a check are kept separate, because joining them would lose their bounds.
split() { printf -- '-eva-split-return-function '; printf 'attn__%s:0,' "$@" | sed 's/,$//'; }
slevel() { printf -- ' -eva-slevel-function '; printf '%s,' "$@" | sed 's/,$//'; }
load="-eva-precision 3 -eva-use-spec attn__format_part,attn__fail $(split kv_open check_load check_saved check_kv_entry check_kv_apart)
    $(slevel attn__kv_grow:100 attn_kv_load:300 attn__saved_rows:500 attn__saved_numbers:400 main:100)"
check="-eva-precision 0 -eva-min-loop-unroll 17
    -eva-use-spec attn__format_part,attn__fail,attn__fail_float,attn__check_overlap,attn__default_scale
    $(split check_options check_option check_window check_sizes check_size check_cache check_all check_rel \
        check_each_pointer check_pointers check_planes check_entries check_entry check_cum check_width check_room check_places check_place \
        check_tensor check_masks add_outputs check_carry check_parts fill_strides fill_stride check_strides \
        check_stride mul bytes)
    $(slevel attn__check_all:300 attn__check_sizes:300 attn__check:300 attn__check_tensor:50 attn__fill_strides:20 \
        attn__check_strides:50 attn__fill_stride:20 attn__check_cum:100 attn__check_entry:100 \
        attn__check_entries:200 attn__check_parts:50 attn__check_width:20 attn__check_room:20 attn__check_cache:50)"
delta="-eva-precision 0 -eva-min-loop-unroll 17
    -eva-use-spec attn__format_part,attn__fail,attn__fail_float,attn__check_overlap,attn__check_apart,attn__default_scale
    $(split check_option check_size check_rows check_cum check_width check_amount check_tensor fill_strides fill_stride \
        check_strides check_stride check_given check_arrays mul bytes delta_sizes delta_places conv_check)
    $(slevel attn__delta_sizes:300 attn__delta_places:300 attn__conv_check:300 attn__check_tensor:50 \
        attn__fill_strides:20 attn__check_strides:50 attn__fill_stride:20 attn__check_cum:100 attn__check_rows:100 main:50)"
cache="-eva-precision 0 -eva-slevel 3000 -eva-min-loop-unroll 6 -eva-use-spec attn__format_part,attn__fail
    $(split check_kv_entry check_kv_entries check_kv_cut check_forget check_apart check_kv_apart kv_room check_kv_rows kv_open \
        check_keep kv_unshare check_free)"
called=attn_kv_append:0,attn_kv_keep:0,attn_kv_read:0,attn_kv_save:0,attn_kv_load:0
# equality: the shift of a value that is rounded to half depends on its exponent
pages="-eva-precision 0 -eva-domains equality -eva-slevel 3000 -eva-min-loop-unroll 6
    -eva-use-spec attn__format_part,attn__fail,attn__page_at
    $(split check_kv_entry check_kv_entries check_kv_cut check_apart check_kv_apart kv_room check_kv_rows kv_open check_keep kv_unshare \
        check_free check_saved check_load check_align check_given check_overlap),$called"

# Frama-C finds attn.h in its current folder. One alarm is ignored: that start + k_lengths[b] may not fit an int in
# attn__check_entry. WP proves that it does (prove/entry.c).
alarms() # folder of attn.h, file for the alarms, program, options for cpp; status 2 without an analysis
{
    local options='-eva-precision 3 -eva-use-spec attn__format_part,attn__fail'
    case $3 in load) options=$load ;; check) options=$check ;; delta) options=$delta ;; cache) options=$cache ;;
        pages) options=$pages ;; esac
    # no alarm is allowed, so a single one reveals a mistake
    case "$1 $4" in .\ * | *-DCASE=[23]) ;; *) options="$options -eva-stop-at-nth-alarm 1" ;; esac
    # shellcheck disable=SC2086
    (cd "$1" && frama-c -machdep gcc_x86_64 -cpp-extra-args="-I. -I$here/tests/prove $4" -warn-special-float none \
        -eva -eva-msg-key=-final-states $options "$here/tests/prove/$3.c") > $2.all 2>&1 ||
        { grep -q 'Stopping at nth alarm' $2.all && return 1 || return 2; }
    grep -q 'eva:summary' $2.all || return 2
    grep -A2 'eva:alarm' $2.all | awk '/eva:alarm/ { if (kept) print kept; kept = $0; next } { kept = kept $0 }
        END { if (kept) print kept }' | grep -v 'start + \*(call[_0]*->k_lengths + b) ' > $2
    ! grep -q . $2 || return 1
    # an analysis that does not terminate proves nothing
    ! grep -q Frama_C_show_each_end tests/prove/$3.c || [ "$4" = -DCASE=1 ] || grep -q Frama_C_show_each_end $2.all || return 2
}

# one mistake: function, old text, new text, folder for the copy of attn.h
mistake()
{
    awk -v f="$1" -v old="$2" -v new="$3" '
        index($0, f) && /^[A-Za-z]/ && !/;/ { inside = 1 }
        inside && !done && (at = index($0, old)) { $0 = substr($0, 1, at - 1) new substr($0, at + length(old)); done = 1 }
        /^}/ { inside = 0 }
        { print }' attn.h > $4/attn.h
    ! cmp -s attn.h $4/attn.h
}

# Takes the next line of the list that no other worker has taken. Each is a program, or a program with a mistake.
work() # 0 or 1
{
    local n=0 mistakes=0 program cpp function old new
    while IFS='|' read -r program cpp function old new; do
        n=$((n + 1))
        [ -z "$function" ] || mistakes=$((mistakes + 1))
        [ -z "$function" ] || [ "$all" = all ] || [ $((mistakes % every)) = 0 ] || continue
        mkdir $out/item/$n 2> /dev/null || continue
        if [ -z "$function" ]; then
            alarms . $out/$1/alarms $program "$cpp" && echo "ok|$program $cpp: no alarm" ||
                { grep rror $out/$1/alarms.all; head -n 12 $out/$1/alarms; echo "FAIL|$program $cpp"; }
        elif ! mistake "$function" "$old" "$new" $out/$1; then echo "FAIL|stale: $function: $old"
        else
            alarms $out/$1 $here/$out/$1/alarms $program "$cpp"
            [ $? = 1 ] && echo "ok|noticed: $function: $old -> $new" || echo "FAIL|not noticed: $function: $old -> $new"
        fi > $out/item/$n/said
    done < $out/list
}

# In pages.c one state is enough to notice a mistake: ONLY is its number. A wrong assertion does not end an analysis.
# Program, options for cpp; function, old text, text with the mistake
cat > $out/list <<'LIST'
pages|-DCALL=4 -DSHAPE=1
pages|-DCALL=1
check|-DCASE=3
check|-DCASE=2
cache|-DCALL=2
pages|-DCALL=3 -DSHAPE=1
pages|-DCALL=2
pages|-DCALL=5
pages|-DCALL=0 -DSHAPE=1
masks
check|-DCASE=0
names
check|-DCASE=1
load
cache|-DCALL=0
cache|-DCALL=1
cache|-DCALL=3
delta|-DCASE=0
delta|-DCASE=1
delta|-DCASE=2
delta|-DCASE=3
delta|-DCASE=4
delta|-DCASE=5
masks||attn__mask_window(|(long long)i + pos|i + pos
masks||attn__mask_window(|const long long ahead|const int ahead
masks||attn__mask_window(|j < n_k|j <= n_k
masks||attn__mask_window(|i < n_q|i <= n_q
masks||attn__mask_window(|*m++ =|*++m =
masks||attn__check_matrices(|size, 3|size, 4
masks||attn__check_all(|n > 0|n >= 0
masks||attn__why_open(|why->asked = 0;|
names||attn_status_str(|s >= ATTN_E_BYTES|s < 99
names||attn_backend_name(|(unsigned)backend < (unsigned)ATTN__BACKENDS|(int)backend < (int)ATTN__BACKENDS
load||attn__check_kv_entry(|entry >= 0 && |
load||attn__check_load(|keys > c->shape.capacity|keys > c->shape.capacity + 12
load||attn__check_saved(|size / 4 * 4|size + 4
load||attn__saved_rows(|j < keys|j <= keys
load||attn__kv_make(|s->pages - 1 - p|s->pages + p
load||attn_kv_load(|0, c->page_size|0, 3 * c->page_size
load||attn__kv_measure(|(size_t)c->entry_pages + 3|(size_t)c->entry_pages + 2
check|-DCASE=1|attn__check_sizes(|"heads", a->heads, 1|"heads", a->heads, 0
check|-DCASE=1|attn__check_sizes(|"kv_heads", a->kv_heads, 0|"kv_heads", a->kv_heads, INT_MIN
check|-DCASE=1|attn__check_size(|value <= ATTN__SIZE_MAX|value <= INT_MAX
check|-DCASE=0|attn__span_note(|all->n++|all->n += 9
check|-DCASE=2|attn__check_cum(|b < batch|b <= batch
check|-DCASE=2|attn__check_entry(|start < 0|start < INT_MIN
check|-DCASE=3|attn__check_entry(|source < 0|source < INT_MIN
delta|-DCASE=0|attn__delta_sizes(|ATTN__SIZE(k_heads, 0)|ATTN__SIZE(k_heads, INT_MIN)
delta|-DCASE=1|attn__check_rows(|b < batch|b <= batch
delta|-DCASE=0|attn__delta_places(|tensors[6]|tensors[3]
delta|-DCASE=4|attn__conv_check(|array, 7, 2|array, 8, 2
cache|-DCALL=0|attn__page_drop(|--c->holders[page] == 0|--c->holders[page] >= 0
cache|-DCALL=1|attn__kv_forget(|stay++|stay += 99
cache|-DCALL=2|attn_kv_reorder(|map[b] < 0|map[b] < INT_MIN
cache|-DCALL=2|attn_kv_reorder(|map[b] >= c->shape.batch|map[b] == c->shape.batch
cache|-DCALL=3|attn__kv_share(|= old->lengths[from]|= INT_MAX
pages|-DCALL=0 -DSHAPE=1 -DONLY=5|attn__kv_grow(|attn__page_own(c, row + held - 1, keys % ATTN__CHUNK)|(void)row
pages|-DCALL=0 -DSHAPE=1 -DONLY=5|attn__check_pages(|need += pass == 0 && c->holders[*last] > 0|(void)last
pages|-DCALL=1 -DONLY=5|attn__kv_put(|ATTN__CHUNK - j|ATTN__CHUNK
pages|-DCALL=0 -DSHAPE=1 -DONLY=0|attn__page_put_values(|all - used|all
pages|-DCALL=0 -DSHAPE=1 -DONLY=0|attn__kv_rows_of(|(size_t)n * (size_t)rows.k_stride[1]|((size_t)n + 1) * (size_t)rows.k_stride[1]
pages|-DCALL=0 -DSHAPE=1 -DONLY=0|attn__narrow_one(|shift > 24|shift > 40
pages|-DCALL=1 -DONLY=0|attn_kv_append(|rows.first = first|rows.first = 0
pages|-DCALL=1 -DONLY=5|attn__kv_put(|b - rows->first|b
pages|-DCALL=1 -DONLY=5|attn__kv_write(|b = rows->first|b = 0
pages|-DCALL=2 -DONLY=2|attn__check_keep(|rows[i - 1] + 1|rows[i - 1]
pages|-DCALL=2 -DONLY=0|attn__check_keep(|ATTN__TRY(attn__check_kv_cut(why, "from", c, b, from));|
pages|-DCALL=2 -DONLY=1|attn__kv_unshare(|c->holders[row[i]] > 1|c->holders[row[i]] > 2
pages|-DCALL=3 -DSHAPE=1 -DONLY=1|attn_kv_read(|n > c->lengths[entry] - first|n > c->lengths[entry]
pages|-DCALL=3 -DSHAPE=1 -DONLY=3|attn_kv_read(|first + n > gap[0]|first + n > gap[1]
pages|-DCALL=3 -DSHAPE=1 -DONLY=1|attn__kv_get(|i < s->v_head_dim|i <= s->v_head_dim
pages|-DCALL=4 -DSHAPE=1 -DONLY=1|attn_kv_save(|bytes, size, need|bytes, size, ATTN__SAVED_HEADER
pages|-DCALL=4 -DSHAPE=1 -DONLY=1|attn__saved_rows(|j < keys|j <= keys
pages|-DCALL=5 -DONLY=1|attn__check_load(|[i]] == 1|[i]] >= 1
pages|-DCALL=5 -DONLY=0|attn_kv_load(|i * ATTN__CHUNK < keys|i * ATTN__CHUNK <= keys
LIST
case $part in
'' | eva) ;;
*) grep -E "^$part(\||$)" $out/list > $out/part; mv $out/part $out/list ;;
esac
work 0 &
work 1
wait
while IFS='|' read -r status text; do
    case $status in ok | FAIL) say $status "$text" ;; *) echo "$status $text" ;; esac
done <<SAID
$(for n in $(ls $out/item | sort -n); do cat $out/item/$n/said; done)
SAID

# WP: open goals go to $out/log. Only attn__mul gets the definition of times(), which slows down all others.
left_open() # program, functions, folder of attn.h, options for cpp; status 2 without a proof
{
    (cd "$3" && frama-c -machdep gcc_x86_64 -cpp-extra-args="-I. -I$here/tests/prove $4" -wp -wp-rte -wp-no-init-const \
        -wp-prover z3,cvc4 -wp-timeout ${WP_TIMEOUT:-20} -wp-par 2 -wp-fct "$2" \
        -inline-calls attn__cells_max,attn__word,attn__source_of \
        "$here/tests/prove/$1.c") > $out/log 2>&1 || return 2
    awk '/Proved goals:/ { done = $4 == $6 && $6 > 0 ? 0 : 1; seen = 1 } END { exit seen ? done : 2 }' $out/log
}
if [ "${part:-wp}" != wp ]; then :
elif command -v why3 > /dev/null && command -v z3 > /dev/null && command -v cvc4 > /dev/null; then
    export WHY3CONFIG=$here/$out/why3.conf
    why3 config detect -C "$WHY3CONFIG" > /dev/null 2>&1
    echo "prove: why3 $(why3 --version | awk '{ print $NF }'), $(z3 --version), $(cvc4 --version | head -n 1)"
    [ "$(z3 -T:60 tests/prove/facts.smt2 | sort | uniq -c | tr -s ' ')" = " $(grep -c check-sat tests/prove/facts.smt2) unsat" ] &&
        say ok 'facts: no counterexample' || say FAIL facts
    while read -r program functions cpp; do
        left_open $program $functions . $cpp && say ok "all values, $(awk '/Proved goals/ { print $6 }' $out/log) goals: $functions" ||
            { grep -A2 'Failed\] Goal\|rror' $out/log | head -n 12; say FAIL $functions; }
    done <<'PROVED'
sizes attn__mul -DPRODUCT
sizes attn__add,attn__up,attn__bytes,attn__meet
strides attn__fill_stride,attn__fill_strides,attn__order,attn__check_stride,attn__check_strides,given
entry attn__check_entry
PROVED
    while IFS='|' read -r program functions cpp function old new; do
        turn=$((turn + 1))
        [ "$all" = all ] || [ $((turn % every)) = 0 ] || continue
        mistake "$function" "$old" "$new" $out || { say FAIL "stale: $function: $old"; continue; }
        # the original code is proved in the same time, so a goal stays open because of the mistake
        case $functions in attn__fill_strides | attn__check_stride) WP_TIMEOUT=10 ;; *) WP_TIMEOUT=2 ;; esac
        left_open $program $functions $out $cpp
        [ $? = 1 ] && say ok "noticed: $function: $old -> $new" || say FAIL "not noticed: $function: $old -> $new"
    done <<'MISTAKES'
sizes|attn__mul|-DPRODUCT|attn__mul(|a > (size_t)-1 / b|a > (size_t)-1 / b + 1
sizes|attn__mul|-DPRODUCT|attn__mul(|CHAR_BIT / 2|CHAR_BIT / 2 + 1
sizes|attn__add||attn__add(|*r < a|*r < a - 1
sizes|attn__bytes||attn__bytes(|attn__mul(*bytes, cell, bytes)|cell == 0
sizes|attn__bytes||attn__bytes(|*bytes > ATTN__BYTES_MAX|*bytes > ATTN__BYTES_MAX + 1
sizes|attn__meet||attn__meet(|y - x < x_bytes|y - x <= x_bytes
strides|attn__fill_stride||attn__fill_stride(|t->stride[d] < 0|t->stride[d] < -9
strides|attn__fill_strides||attn__fill_strides(|ATTN__TRY(attn__fill_stride(why, t, 3 - t->inner, &inside));|
strides|attn__order||attn__order(|*x = *y;|
strides|attn__check_stride||attn__check_stride(|(size_t)t->count[d] - 1|(size_t)t->count[d] - 2
strides|attn__check_stride||attn__check_stride(|*reach > attn__cells_max(t)|*reach > ATTN__BYTES_MAX
strides|attn__check_strides||attn__check_strides(|third = 0|third = 1
entry|attn__check_entry||attn__check_entry(|keys - start)|keys)
entry|attn__check_entry||attn__check_entry(|source >= call->k_batch|source > call->k_batch
MISTAKES
else
    echo 'SKIPPED prove sizes: no why3, z3 or cvc4 (apt-get install why3 z3 cvc4)'
fi

# exp: its constants are read from attn.h; each of these, with one digit changed, must break the bound
if [ "${part:-exp}" != exp ]; then :
elif command -v gappa > /dev/null && command -v python3 > /dev/null; then
    echo "prove: $(gappa --version), $(python3 --version)"
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
