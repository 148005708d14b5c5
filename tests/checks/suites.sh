# suites.sh: included by cross.sh and sanitize.sh, whose quick forms run some tests and compile only the suites of these.
# The files with the tests that these words select, as support/main.c does it: by a part of the name of a suite or test. The
# suites args_memory, kv, mha_rows and step also need private.c: without it they do not link.
suites_of() # words
{
    words=$(echo "$*" | tr ' ' '|')
    grep -lE "\{ *\"[^\"]*($words)|SUITE\([a-z_0-9]*($words)" tests/suites/*.c tests/suites/private/*.h |
        sed 's|tests/suites/private/.*|tests/suites/private.c|' | sort -u
}
others() # files of suites: prints the other suites, without tests
{
    echo '#include "test.h"'
    grep -oE 'X\([a-z_0-9]+\)' tests/support/main.c | tr -d 'X()' | sort -u | while read -r suite; do
        grep -qE "SUITE\($suite\)" $(echo "$@" | sed 's|tests/suites/private.c|& tests/suites/private/*.h|') ||
            echo "extern SUITE($suite); SUITE($suite) = {{0}};"
    done
}
