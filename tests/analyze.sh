#!/bin/sh
# analyze.sh: static analysis of attn.h (as C, whole and scalar), the examples and the tests: gcc -fanalyzer,
# clang-tidy, cppcheck. Silent but for what it finds. Last line: "analyze: N passed, M failed".
#
#   sh tests/analyze.sh              all          sh tests/analyze.sh gcc tidy cppcheck        these
#   QUICK=1                          gcc looks at the scalar build alone (the kernels take it a minute each), the others at one
#                                    of three passes over the kernels; nobody looks at the implementation again in every example,
#                                    nor in a test that needs no more than the API; tests are checked without the path-sensitive
#                                    clang-analyzer
cd "$(dirname "$0")/.." || exit 1
out=build/analyze
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}

# ---- what is not asked for, and why ----------------------------------------------------------------------------------
# taste: every function of numbers takes numbers; suffixes are written as numbers are read; unused results of printf
off=-bugprone-easily-swappable-parameters,-cert-dcl16-c,-cert-err33-c
# members of a public struct stand where they are understood, not where they fill gaps
off=$off,-clang-analyzer-optin.performance.Padding
# bits of floats are what these tests and examples compare, with memcmp, and so are whole structs filled by memset
off=$off,-bugprone-suspicious-memory-comparison,-cert-exp42-c,-cert-flp37-c
# int * int as an offset: rows of a block, panels and constants, or columns of one row; where a product can leave an int
# for a size that the checks let pass, one side is a ptrdiff_t or size_t
off=$off,-bugprone-implicit-widening-of-multiplication-result
# (size_t)(a * b) of small ints in tests; (long long)(size) in messages
off=$off,-bugprone-misplaced-widening-cast
# an executor's pool may be a number; overlapping and impossible addresses are made from numbers
off=$off,-performance-no-int-to-ptr
# _DEFAULT_SOURCE and its like must be defined by programs that want POSIX from -std=c99
off=$off,-bugprone-reserved-identifier,-cert-dcl37-c,-cert-dcl51-cpp
# X-macros and CHECK(x = ...) take more than an expression
off=$off,-bugprone-macro-parentheses
# strcmp as a truth, atoi of what the user typed into a test: plain C
off=$off,-bugprone-suspicious-string-compare,-cert-err34-c
# a handler that says in which test the crash was, and dies
off=$off,-bugprone-signal-handler,-cert-sig30-c
# Heron's method counts in what it computes; it ends because it falls (section 3 of attn.h)
off=$off,-cert-flp30-c,-clang-analyzer-security.FloatLoopCounter
# "consider memset_s": there is none
off=$off,-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling
checks="-*,bugprone-*,cert-*,performance-*,clang-analyzer-*,$off"
# ways that do not exist: the checker, the function it sees one in (- outside of all), why not
no_way='
sizeof-expression                   attn__cpu                   the pointers of an array are counted
optin.portability.UnixAPI           attn__sdpa_run              attn__plan_make adds 64 at last
optin.portability.UnixAPI           hook_malloc                 the same, by a hook of private.c
optin.portability.UnixAPI           counted                     the same, by a hook of an example
optin.portability.UnixAPI           sys_malloc                  the same, by a hook of test_pool.c
optin.portability.UnixAPI           kv_model_make               tests draw every size from 1 on
sizeof-expression                   encode_all                  pointers to lines are sorted
sizeof-expression                   show                        the same
sizeof-expression                   work                        the same
not-null-terminated-result          line_init                   its length is kept beside it
not-null-terminated-result          json_peek                   four bytes to look for, no string
not-null-terminated-result          json_value                  the same, seven
not-null-terminated-result          said_of                     a file, no string
suspicious-include                  -                           a test of its functions has them all
core.UndefinedBinaryOperatorResult  range                       middle < n, and the list has n ranges
core.UndefinedBinaryOperatorResult  one_answer                  by_steps writes a row for each step
core.UndefinedBinaryOperatorResult  attn__work_all              attn__plan_work writes both, or the call is refused
core.NullDereference                attn__mha_step              a call that reads a cache has been asked for it
core.NullDereference                attn__mha_checked           the caller has checked the layer, m
core.NullDereference                attn__mha_fill              attn_mha_cross_fill has checked its cache
core.uninitialized.Assign           kv_model_step               q_lengths has `batch` numbers
core.DivideZero                     attn__kv_measure            attn__check_all lets pass what is at least 1
core.DivideZero                     attn__work_all              who writes states has an item for every row
core.CallAndMessage                 kv_model_reorder            `map` has one of `batch` for each
core.CallAndMessage                 attn__check_entries         attn__check_sizes writes the batch or refuses
core.UndefinedBinaryOperatorResult  attn__check_entries         the same
core.UndefinedBinaryOperatorResult  attn__check_parts           the same
core.UndefinedBinaryOperatorResult  attn__linear_nan            a product has written these panels
core.UndefinedBinaryOperatorResult  attn__gate_row              the same
core.UndefinedBinaryOperatorResult  attn__write_t5              attn__t5_boundaries writes `side` of them
core.UndefinedBinaryOperatorResult  svg_mask                    attn_mask_padding writes every cell
core.UndefinedBinaryOperatorResult  add                         a cache keeps the batch it was made with
core.UndefinedBinaryOperatorResult  attn_kv_reorder             the same, of `map`
core.UndefinedBinaryOperatorResult  kv_model_reorder            the same
core.UndefinedBinaryOperatorResult  kv_model_add                `counts` has one of `batch` for each
core.UndefinedBinaryOperatorResult  attn__check_sizes           a cache has the heads it was made with
core.UndefinedBinaryOperatorResult  attn__kv_room               `counts` has one of `batch` for each
core.CallAndMessage                 dot                         as many rows are scaled as are scored
core.CallAndMessage                 attn__band_scores           every K/V head of a block has its source
core.CallAndMessage                 attn__rows_outputs          the same
core.UndefinedBinaryOperatorResult  attn__pack_v                the same
core.NullDereference                attn__widen_sources         only values of a cache are widened
core.NonNullParamChecker            attn__block_begin           a block that is worked on has a slot
core.uninitialized.Assign           attn__scores_in_place       a block has a K/V head, which has a source
core.NullDereference                attn__scalar_score          q may be NULL where there are no rows, only
core.NonNullParamChecker            attn__carry_get             the same of out, or where states take its place
core.NullDereference                attn__scalar_chunk          out may be NULL where q_cum leaves no rows, only
core.NullDereference                attn__scalar_finish         the same
core.NullDereference                attn__fold_task             the same
core.NullDereference                attn__finish_task           the same
core.NullDereference                add_arrays                  `row` is NULL where there are no arrays, only
core.NullDereference                cap_and_slope               the same
core.NullDereference                not_finite                  all_ways fills as many as it says
core.NullDereference                score_end                   `next` is NULL or some keys after k; k is not
core.NullDereference                _mm512_loadu_ps             the same, where keys are turned
core.NullDereference                _mm256_loadu_ps             the same
core.NullDereference                _mm_loadu_ps                the same
'

# what clang-tidy and gcc are run on, one file a process: `sh tests/analyze.sh -one TOOL FILE` (for xargs below)
if [ "$1" = -one ]; then
    log=$out/$2_$(echo "$3" | tr '/.' '__').log
    # those that bring an implementation of their own are looked at without its kernels, which attn_whole.c has
    # (and without its counters: branches that only count look alike then)
    flags='-std=c99 -I. -Itests -DATTN_NO_SIMD' more=,-bugprone-branch-clone
    # the first values of vectors that are always written again keep compilers quiet
    case $3 in *attn_whole*) flags="-std=c99 -I. -I$out" more=,-clang-analyzer-deadcode.DeadStores ;; esac
    case $2$3 in
    # clang-tidy begins no way in a header, unless it is told to: attn.h it is, in attn_whole.c
    tidy*attn_whole*) flags="$flags -Xclang -analyzer-opt-analyze-headers" ;;
    # one function at a time: on a way through both, the analyzer believes that attn_kv_init may change the batch of a
    # shape, and that n * m > 0 for n = 0, and reads behind arrays
    tidy*/soak.c) flags="$flags -Xclang -analyzer-config -Xclang ipa=none" ;;
    esac
    case $QUICK$3 in 1examples/*|1*/soak.c|1*/test_stack.c|1*/attn_impl.c) flags="$flags -DATTN__IMPLEMENTED" ;;
    1*/test_pool.c) flags="$flags -DATTN_NO_SIMD" ;; esac
    case $QUICK$3 in 1tests/*) more="$more,-clang-analyzer-*" ;; esac
    case $2 in
    tidy) clang-tidy --quiet --checks="$checks$more" --header-filter='.*' "$3" -- $flags 2>/dev/null ;;
    gcc)  gcc $flags -O1 -fanalyzer -c "$3" -o /dev/null 2>&1 ;;
    esac > "$log"
    status=$?
    grep -qE 'warning:|error:' "$log" || { [ $status = 0 ] && : > "$log" ||
        echo "$3: $2 ended with status $status" >> "$log"; }
    # what no_way knows is taken out: the function is the last definition before the line that a warning names
    printf '%s' "$no_way" | awk -F'  +' '
        function function_of(file, at, line, head, n)
        {
            if ((file, at) in known) return known[file, at]
            for (head = "-"; n < at && (getline line < file) > 0; n++)
                if (line ~ /^[A-Za-z_].*\(/ && line !~ /^(typedef|struct|enum|union|extern) /) head = line
            close(file)
            if (match(head, /FN\([a-z_0-9]+\)\(/)) head = substr(head, RSTART + 3, RLENGTH - 5)
            else { sub(/\(.*/, "", head); sub(/.*[ *]/, "", head) }
            return known[file, at] = head
        }
        NR == FNR { if (NF > 2) { checker[++n_known] = "-" $1 "]"; where[n_known] = $2 }; next }
        warned {
            name = function_of(place[1], place[2])
            for (i = 1; i <= n_known; i++) if (where[i] == name && index(warned, checker[i])) warned = ""
            if (warned) { print warned; print }
            warned = ""
            next
        }
        /\.[ch]:[0-9]+:[0-9]+: warning:/ { warned = $0; split($0, place, ":"); next }
        { print }
        END { if (warned) print warned }' - "$log" > "$log.known" && mv "$log.known" "$log"
    exit 0
fi

rm -rf $out && mkdir -p $out
printf '#define ATTN_IMPLEMENTATION\n#define ATTN_THREADS\n' > $out/attn_whole.c
printf 'void attn_count(const char *path);\n#define ATTN__COUNT(name) attn_count(#name)\n#include "attn.h"\n' >> $out/attn_whole.c
if [ -n "$QUICK" ] && [ "$(uname -m)" = x86_64 ]; then              # of the others there is a table, and nothing in it
    sed -i '1i #define ATTN_SELF "avx2_alone.h"' $out/attn_whole.c
    cat > $out/avx2_alone.h <<'ALONE'
#if ATTN__ISA == 3
#include "attn.h"
#elif ATTN__ISA == 2
extern const attn__kernels attn__kernels_sse2;
#else
extern const attn__kernels attn__kernels_avx512;
#endif
#undef ATTN__ISA
ALONE
fi
echo '#include "attn_whole.c"' > $out/attn_scalar.c              # another name: -one gives it other flags
passed=0 failed=0
result() # name, what was found
{
    if [ -n "$2" ]; then
        echo "FAIL $1"; printf '%s\n' "$2" | head -n 20; failed=$((failed + 1))
    else
        echo "ok   $1"; passed=$((passed + 1))
    fi
}
each() # tool, files...: looks at them side by side, then shows what was found once
{
    tool=$1; shift
    printf '%s\n' "$@" | xargs -P"$jobs" -n1 sh tests/analyze.sh -one "$tool"
    result "$tool: $# files" "$(cat $out/${tool}_*.log | grep -E 'warning:|error:|ended with' | sort -u)"
}

for part in ${*:-tidy cppcheck gcc}; do
    case $part in
    tidy)
        command -v clang-tidy > /dev/null || { echo 'SKIPPED tidy: not found (clang-tidy)'; continue; }
        each tidy $out/attn_whole.c examples/*.c examples/mpi/model.c examples/translate/translate.c tests/*.c tests/soak/*.c tests/onnx/*.c \
            tests/models/*.c tests/translate/*.c ;;
    gcc)
        command -v gcc > /dev/null || { echo 'SKIPPED gcc: not found'; continue; }
        [ -n "$QUICK" ] && whole= || whole=$out/attn_whole.c
        each gcc $whole $out/attn_scalar.c examples/*.c examples/mpi/model.c examples/translate/translate.c tests/onnx/*.c tests/harness.c tests/cases.c ;;
    cppcheck)
        command -v cppcheck > /dev/null || { echo 'SKIPPED cppcheck: not found'; continue; }
        # style: scopes and const of variables, a matter of taste. Not understood by this tool, and looked at by gcc,
        # MemorySanitizer and valgrind: structs filled through a pointer (uninitvar, ctuuninitvar), a loop that is left
        # before its second turn (nullPointerArithmeticRedundantCheck) and functions named by
        # a macro (ctunullpointer, ctuArrayIndex). `j % 16 < ATTN__LANES` is always true where
        # a backend has 16 lanes, and only there (moduloAlwaysTrueFalse)
        result 'cppcheck: attn.h' "$(cppcheck -q --std=c99 --enable=warning,performance,portability --inline-suppr \
            --suppress=uninitvar --suppress=ctuuninitvar --suppress=nullPointerArithmeticRedundantCheck \
            --suppress=ctunullpointer --suppress=ctuArrayIndex --suppress=moduloAlwaysTrueFalse \
            --template='{file}:{line}: {severity}: {message} [{id}]' -D__x86_64__=1 -D__GNUC__=12 -D__unix__=1 \
            -U_MSC_VER -I. -I$out $out/attn_whole.c 2>&1)" ;;
    *) echo "no part $part"; exit 2 ;;
    esac
done
echo "analyze: $passed passed, $failed failed"
[ $failed = 0 ]
