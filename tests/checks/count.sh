#!/bin/sh
# count.sh: instructions per call, counted by valgrind and compared with the committed table tests/checks/counts.txt. Growth by
# more than 2 % is a failure if the compiler version is that of the table; with another version the counts are advisory. The
# calls are in count/count.c.
#
#   sh tests/checks/count.sh               compares; last line "count: N passed, M failed"
#   sh tests/checks/count.sh --update      compares, then writes the table: commit it with the change that
#                                           caused the difference
#
# Counts are exact: the same in every run and on every machine with AVX2, for one version of a compiler.
# Callgrind counts each repetition of a `rep stos` as one instruction.
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C
out=build/count
table=tests/checks/counts.txt
mkdir -p $out
rm -f $out/*.today $out/*.version $out/*.log
[ "$(uname -sm)" = 'Linux x86_64' ] || { echo 'SKIPPED count: it is for Linux on x86-64'; exit 0; }
command -v valgrind > /dev/null || { echo 'SKIPPED count: no valgrind here'; exit 0; }
grep -qw avx2 /proc/cpuinfo || { echo 'SKIPPED count: this processor has no AVX2'; exit 0; }

# flags that distributions add to -O2
same='-fPIE -pie -fno-stack-protector -fcf-protection=none -U_FORTIFY_SOURCE'

count() # compiler: writes lines of name, tab, instructions to $out/compiler.today
{
    $1 -std=c99 -O2 $same -DNO_HARNESS -I. tests/support/attn_impl.c tests/count/count.c -o $out/$1 || return 1
    rm -f $out/$1.callgrind
    # one total per return of measured(), and one at the end of the program
    valgrind -q --command-line-only=yes --tool=callgrind --toggle-collect=measured \
        --dump-after=measured --combine-dumps=yes --callgrind-out-file=$out/$1.callgrind \
        $out/$1 > $out/$1.names || return 1
    sed -n 's/^totals: //p' $out/$1.callgrind | sed '$d' > $out/$1.totals
    [ "$(wc -l < $out/$1.names)" -eq "$(wc -l < $out/$1.totals)" ] ||
        { echo 'not one total for each call'; return 1; }
    paste $out/$1.names $out/$1.totals > $out/$1.today
}

for cc in gcc clang; do
    command -v $cc > /dev/null || { echo "SKIPPED count with $cc: not found"; continue; }
    { [ $cc = gcc ] && gcc -dumpfullversion || $cc -dumpversion; } > $out/$cc.version
    count $cc > $out/$cc.log 2>&1 &
done
wait
broken=0
for cc in gcc clang; do
    [ ! -f $out/$cc.version ] || [ -f $out/$cc.today ] && continue
    echo "FAIL $cc: no counts"; cat $out/$cc.log
    broken=$((broken + 1))
done

# Reads the table, then the counts; prints both and writes the new table to $out/counts.txt.
awk -v broken=$broken -v new=$out/counts.txt -v gcc="$(cat $out/gcc.version 2> /dev/null)" \
    -v clang="$(cat $out/clang.version 2> /dev/null)" '
    function grouped(n)                             # 21969374 as 21,969,374
    {
        if (n == "") return "-"
        return n < 1000 ? n "" : grouped(int(n / 1000)) sprintf(",%03d", n % 1000)
    }
    # three columns of a line; counts what passed and failed
    function compare(cc, name,  then, now, text, reason)
    {
        then = old[cc, name]; now = today[cc, name]
        text = sprintf(" %11s %11s", grouped(then), grouped(now))
        text = text (then == "" || now == "" ? "      " : sprintf(" %5.3f", now / then))
        if (!judged[cc]) return text " "
        if (then == "" || now == "" || now > then * 1.02) {
            failed++
            reason = then == "" ? "is not in the table" : now == "" ? "was not counted" : \
                grouped(then) " became " grouped(now)
            bad = bad "FAIL " cc ": " name ": " reason "\n"
            return text "!"
        }
        passed++
        if (now < then * 0.98) lower++
        return text " "
    }
    BEGIN { version["gcc"] = gcc; version["clang"] = clang; failed = broken }
    function write(comment) { print "# " comment > new }
    function see(name) { if (!seen[name]++) names[++count] = name }
    /^# case, / { of["gcc"] = $(NF - 2); of["clang"] = $NF; next }
    /^#/ { next }
    /\t/ {                                          # counted today
        cc = FILENAME ~ /gcc/ ? "gcc" : "clang"
        split($0, part, "\t")
        ran[cc] = 1
        today[cc, part[1]] = part[2]
        see(part[1])
        next
    }
    {                                               # a line of the table
        name = $0
        sub(/ +[0-9,]+ +[0-9,]+$/, "", name)
        gsub(/,/, "", $(NF - 1))
        gsub(/,/, "", $NF)
        old["gcc", name] = $(NF - 1)
        old["clang", name] = $NF
        see(name)
    }
    END {
        for (cc in ran) {
            judged[cc] = version[cc] == of[cc]
            if (!judged[cc])
                print "SKIPPED " cc " " version[cc] ": the table has " cc " " of[cc] "; NOT judged"
        }
        printf "%-38s %11s %11s ratio   %11s %11s ratio\n", "instructions a call", \
            "gcc " of["gcc"], "today", "clang " of["clang"], "today"
        for (i = 1; i <= count; i++) {
            line = sprintf("%-38s", names[i]) compare("gcc", names[i]) " "
            line = line compare("clang", names[i])
            sub(/ +$/, "", line)
            print line
        }
        printf "%s", bad
        if (lower) print lower " counts are more than 2 % down: make count ARGS=--update"
        if (passed + failed) printf "count: %d passed, %d failed\n", passed, failed

        write("Instructions a call as make count counts them: AVX2, one thread, work given. It")
        write("fails when one grows by more than 2 %. make count ARGS=--update writes this file:")
        write("commit it with the change that moves a number. A name says: query rows x keys,")
        write("heads x head_dim, then the layout, or what is special.")
        printf "# %-36s %14s %14s\n", "case, cc -O2", "gcc " gcc, "clang " clang > new
        for (i = 1; i <= count; i++) {
            name = names[i]
            if (today["gcc", name] != "")
                printf "%-38s %14s %14s\n", name, grouped(today["gcc", name]), \
                    grouped(today["clang", name]) > new
        }
        exit(failed > 0)
    }' /dev/null $(ls $table $out/gcc.today $out/clang.today 2> /dev/null)
status=$?
[ "$1" = --update ] || exit $status
[ -f $out/gcc.today ] && [ -f $out/clang.today ] ||
    { echo 'count: --update needs both compilers'; exit 1; }
cp $out/counts.txt $table && echo "$table is written"
