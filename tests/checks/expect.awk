# awk -f expect.awk expected actual: status 0 if the output is as expected; otherwise 1, and the first line that
# differs. Lines are compared literally, except for blanks at their end and empty lines at the end of the text.
#   ...   alone on a line stands for any number of lines
#   ###   stands for a number (a time, a ratio) in a line that does not match literally
function pattern(s) {
    gsub(/[][\\.^$*+?(){}|]/, "\\\\&", s)
    gsub(/#+/, " *[-+]?[0-9][0-9.,]*([eE][-+]?[0-9]+)?", s)
    return "^" s "$"
}
function same(e, a) { return e == a || (e ~ /#/ && a ~ pattern(e)) }
function dots(e) { return e ~ /^ *\.\.\.$/ }
{ sub(/[ \t\r]+$/, "") }
FILENAME == ARGV[1] { want[++nw] = $0; next }
{ got[++ng] = $0 }
END {
    while (nw > 0 && want[nw] == "") nw--
    while (ng > 0 && got[ng] == "") ng--
    # reach[j] = 1: the first i expected lines can stand for the first j actual ones
    reach[0] = 1
    for (i = 1; i <= nw; i++) {
        any = 0; last = 0
        for (j = 0; j <= ng; j++) {
            if (dots(want[i])) next_[j] = reach[j] || (j > 0 && next_[j - 1])
            else next_[j] = j > 0 && reach[j - 1] && same(want[i], got[j])
            if (next_[j]) any = 1
            if (reach[j]) last = j
        }
        if (!any) {
            printf "expected line %d: |%s|\n", i, want[i]
            printf "  actual line %d: %s\n", last + 1, last < ng ? "|" got[last + 1] "|" : "(end of output)"
            exit 1
        }
        for (j = 0; j <= ng; j++) reach[j] = next_[j]
    }
    if (!reach[ng]) {
        for (last = j = 0; j <= ng; j++) if (reach[j]) last = j
        printf "more output than expected, line %d: |%s|\n", last + 1, got[last + 1]
        exit 1
    }
}
