#!/bin/sh
# analyze.sh: static analysis of attn.h (as C, whole and scalar), the examples and the tests: gcc -fanalyzer,
# clang-tidy, cppcheck. Prints only what they find. Last line: "analyze: N passed, M failed".
#
#   sh tests/checks/analyze.sh                      all
#   sh tests/checks/analyze.sh gcc tidy cppcheck    these
#   QUICK=1                     gcc analyses only the scalar build (the kernels take a minute each), the others one of
#                               three passes over the kernels; the implementation is not analysed again in every
#                               example, nor in a test that needs only the API; tests skip the path-sensitive
#                               clang-analyzer, and the suites clang-tidy
cd "$(dirname "$0")/../.." || exit 1
out=build/analyze
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}

# ---- disabled checks, and why --------------------------------------------------------------------------------------
# style: numeric functions take numbers; suffixes as usual in numeric code; unused results of printf
off=-bugprone-easily-swappable-parameters,-cert-dcl16-c,-cert-err33-c
# members of a public struct are ordered by meaning, not to avoid padding
off=$off,-clang-analyzer-optin.performance.Padding
# tests and examples compare bits of floats with memcmp, and also whole structs cleared by memset
off=$off,-bugprone-suspicious-memory-comparison,-cert-exp42-c,-cert-flp37-c
# int * int as an offset: rows of a block, panels and constants, or columns of one row; if a product can exceed an int for
# an accepted size, one factor is a ptrdiff_t or size_t
off=$off,-bugprone-implicit-widening-of-multiplication-result
# (size_t)(a * b) of small ints in tests; (long long)(size) in messages
off=$off,-bugprone-misplaced-widening-cast
# an executor's pool may be a number; overlapping and impossible addresses are made from numbers
off=$off,-performance-no-int-to-ptr
# programs that use POSIX with -std=c99 must define _DEFAULT_SOURCE and the like
off=$off,-bugprone-reserved-identifier,-cert-dcl37-c,-cert-dcl51-cpp
# X-macros and CHECK(x = ...) take more than an expression
off=$off,-bugprone-macro-parentheses
# strcmp as a condition, atoi for arguments of a test: plain C
off=$off,-bugprone-suspicious-string-compare,-cert-err34-c
# a signal handler that prints the name of the test that crashed, and exits
off=$off,-bugprone-signal-handler,-cert-sig30-c
# Heron's method has a floating-point loop condition; it terminates because the value decreases (section 3 of attn.h)
off=$off,-cert-flp30-c,-clang-analyzer-security.FloatLoopCounter
# "consider memset_s": C99 has none
off=$off,-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling
checks="-*,bugprone-*,cert-*,performance-*,clang-analyzer-*,$off"
# impossible paths: checker, function (- outside of all), reason
no_way='
sizeof-expression                   attn__cpu                   the pointers of an array are counted
optin.portability.UnixAPI           attn__sdpa_run              attn__plan_memory adds 64 at last
optin.portability.UnixAPI           hook_malloc                 the same, by a hook of private.c
optin.portability.UnixAPI           counted                     the same, by a hook of an example
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
Wanalyzer-null-dereference          attn__conv_task             attn__check_backend lets pass what has a table
core.NullDereference                attn__mha_step              a call that reads a cache has been asked for it
core.NullDereference                attn__mha_checked           the caller has checked the layer, m
core.NullDereference                attn__mha_fill              attn_mha_cross_fill has checked its cache
core.uninitialized.Assign           kv_model_step               q_lengths has `batch` numbers
core.DivideZero                     attn__kv_measure            attn__check_all lets pass what is at least 1
core.CallAndMessage                 kv_model_reorder            `map` has one of `batch` for each
core.CallAndMessage                 attn__check_entries         attn__check_sizes writes the batch or refuses
core.UndefinedBinaryOperatorResult  attn__check_entries         the same
core.UndefinedBinaryOperatorResult  attn__check_parts           the same
core.UndefinedBinaryOperatorResult  attn__linear_nan            a product has written these panels
core.UndefinedBinaryOperatorResult  attn__gate_task             the same
core.UndefinedBinaryOperatorResult  attn__write_t5              attn__t5_boundaries writes `side` of them
core.UndefinedBinaryOperatorResult  svg_mask                    attn_mask_padding writes every cell
core.UndefinedBinaryOperatorResult  add                         a cache keeps the batch it was made with
core.UndefinedBinaryOperatorResult  attn_kv_reorder             the same, of `map`
core.UndefinedBinaryOperatorResult  kv_model_reorder            the same
core.UndefinedBinaryOperatorResult  kv_model_add                `counts` has one of `batch` for each
core.UndefinedBinaryOperatorResult  attn__check_sizes           a cache has the heads it was made with
core.UndefinedBinaryOperatorResult  attn__kv_room               `counts` has one of `batch` for each
core.CallAndMessage                 dot                         as many rows are scaled as are scored
core.CallAndMessage                 attn__rows_outputs          every K/V head of a block has its source
core.UndefinedBinaryOperatorResult  attn__pack_v                the same
core.NonNullParamChecker            attn__block_begin           a block that is worked on has a slot
core.NullDereference                attn__scalar_score          q may be NULL where there are no rows, only
core.NonNullParamChecker            attn__carry_get             the same of out, or where states take its place
core.NonNullParamChecker            attn__write_empty           rows that are written have out
core.NullDereference                attn__scalar_chunk          out may be NULL where q_cum leaves no rows, only
core.NullDereference                attn__scalar_finish         the same
core.NullDereference                attn__fold_task             the same
core.NullDereference                add_arrays                  `row` is NULL where there are no arrays, only
core.NullDereference                not_finite                  all_ways fills as many as it says
core.NullDereference                score_end                   `next` is NULL or some keys after k; k is not
core.NullDereference                _mm512_loadu_ps             the same, where keys are turned
core.NullDereference                _mm256_loadu_ps             the same
core.NullDereference                _mm_loadu_ps                the same
'

# runs clang-tidy or gcc on one file per process: `sh tests/checks/analyze.sh -one TOOL FILE` (for xargs below)
if [ "$1" = -one ]; then
    log=$out/$2_$(echo "$3" | tr '/.' '__').log
    # files with an implementation are analysed without its kernels, which attn_whole.c covers (and without its counters:
    # branches that only count look alike then)
    flags='-std=c99 -I. -Itests/support -DATTN_NO_SIMD' more=,-bugprone-branch-clone
    # initial values of vectors that are always overwritten silence compilers
    case $3 in *attn_whole*) flags="-std=c99 -I. -I$out" more=,-clang-analyzer-deadcode.DeadStores ;; esac
    case $2$3 in
    # clang-tidy starts no path in a header by default; for attn_whole.c attn.h is enabled
    tidy*attn_whole*) flags="$flags -Xclang -analyzer-opt-analyze-headers" ;;
    # one function at a time: on paths through several, the analyzer assumes that attn_kv_init may change the batch of a
    # shape, and that n * m > 0 for n = 0, and reports reads past arrays
    tidy*/soak.c) flags="$flags -Xclang -analyzer-config -Xclang ipa=none" ;;
    esac
    case $QUICK$3 in 1examples/*|1*/same_bits.c|1*/soak.c|1*/test_stack.c|1*/attn_impl.c) flags="$flags -DATTN__IMPLEMENTED" ;; esac
    case $QUICK$3 in 1tests/*) more="$more,-clang-analyzer-*" ;; esac
    case $2 in
    tidy) clang-tidy --quiet --checks="$checks$more" --header-filter='.*' "$3" -- $flags 2>/dev/null ;;
    gcc)  gcc $flags -O1 -fanalyzer -c "$3" -o /dev/null 2>&1 ;;
    esac > "$log"
    status=$?
    grep -qE 'warning:|error:' "$log" || { [ $status = 0 ] && : > "$log" ||
        echo "$3: $2 ended with status $status" >> "$log"; }
    # removes the warnings listed in no_way; the function is the last definition before the line of a warning
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
if [ -n "$QUICK" ] && [ "$(uname -m)" = x86_64 ]; then              # of the others only an empty table
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
echo '#include "attn_whole.c"' > $out/attn_scalar.c              # another name, for which -one has other flags
passed=0 failed=0
result() # name, findings
{
    if [ -n "$2" ]; then
        echo "FAIL $1"; printf '%s\n' "$2" | head -n 20; failed=$((failed + 1))
    else
        echo "ok   $1"; passed=$((passed + 1))
    fi
}
each() # tool, files...: runs in parallel, prints each finding once
{
    tool=$1; shift
    printf '%s\n' "$@" | xargs -P"$jobs" -n1 sh tests/checks/analyze.sh -one "$tool"
    result "$tool: $# files" "$(cat $out/${tool}_*.log | grep -E 'warning:|error:|ended with' | sort -u)"
}

for part in ${*:-tidy cppcheck gcc}; do
    case $part in
    tidy)
        command -v clang-tidy > /dev/null || { echo 'SKIPPED tidy: not found (clang-tidy)'; continue; }
        [ -n "$QUICK" ] && more= || more='tests/suites/*.c tests/soak/*.c tests/models/*.c tests/translate/*.c'
        each tidy $out/attn_whole.c examples/*.c examples/mpi/model.c examples/translate/translate.c \
            tests/support/*.c tests/same/*.c tests/onnx/*.c $more ;;
    gcc)
        command -v gcc > /dev/null || { echo 'SKIPPED gcc: not found'; continue; }
        [ -n "$QUICK" ] && whole= || whole=$out/attn_whole.c
        each gcc $whole $out/attn_scalar.c examples/*.c examples/mpi/model.c examples/translate/translate.c \
            tests/same/*.c tests/onnx/*.c tests/support/harness.c tests/support/cases.c ;;
    cppcheck)
        command -v cppcheck > /dev/null || { echo 'SKIPPED cppcheck: not found'; continue; }
        # style: scope and const of variables. False alarms, which gcc, MemorySanitizer and valgrind cover: structs filled
        # through a pointer (uninitvar, ctuuninitvar), a loop that ends before its second iteration
        # (nullPointerArithmeticRedundantCheck) and functions named by a macro (ctunullpointer, ctuArrayIndex). `j % 16 <
        # ATTN__LANES` is always true with 16 lanes, and only then (moduloAlwaysTrueFalse). Tiles of many vectors have few
        # rows (arrayIndexOutOfBoundsCond)
        result 'cppcheck: attn.h' "$(cppcheck -q --std=c99 --enable=warning,performance,portability --inline-suppr \
            --suppress=uninitvar --suppress=ctuuninitvar --suppress=nullPointerArithmeticRedundantCheck \
            --suppress=ctunullpointer --suppress=ctuArrayIndex --suppress=moduloAlwaysTrueFalse \
            --suppress=arrayIndexOutOfBoundsCond \
            --template='{file}:{line}: {severity}: {message} [{id}]' -D__x86_64__=1 -D__GNUC__=12 -D__unix__=1 \
            -U_MSC_VER -I. -I$out $out/attn_whole.c 2>&1)" ;;
    *) echo "no part $part"; exit 2 ;;
    esac
done
echo "analyze: $passed passed, $failed failed"
[ $failed = 0 ]
