#!/bin/sh
# make library-test: installs what make lib builds, and uses it as another project would: with a cc line, pkg-config,
# CMake and Meson (tests/library), and with a header of another version. Last line: "library: N passed, M failed".
#
# Runs in build/library, with a copy of the files that make needs; compiled without optimisation, for speed.
cd "$(dirname "$0")/../.." || exit 1
ROOT=$PWD
W=$ROOT/build/library
rm -rf "$W" && mkdir -p "$W/source" || exit 1
cp attn.h Makefile LICENSE "$W/source/"
CC=${CC:-cc}
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; [ ! -s "${2:-}" ] || tail -n 15 "$2" | sed 's/^/    /'; }
# same WHAT GOT WANT
same() { if [ "$2" = "$3" ]; then ok; else bad "$1"; printf '  got:  %s\n  want: %s\n' "$2" "$3"; fi; }
has() { command -v "$1" > /dev/null || { echo "SKIPPED $2: no $1 here"; return 1; }; }
build() { make -s -C "$W/source" CC="$CC" CFLAGS="-O0 -DATTN_NO_SIMD ${flags:-}" "$@" > "$W/log" 2>&1; }

version=$(awk '/define ATTN_VERSION/ { printf "%d.%d.%d", $3 / 10000, $3 / 100 % 100, $3 % 100 }' attn.h)
number=$(awk '/define ATTN_VERSION/ { print $3 }' attn.h)
so=libattn.so.$version soname=libattn.so.${version%.*}
right="ok: 1 2 2 4, a cache made, version $number"
pool='a pool of 2'

# ---- build -----------------------------------------------------------------------------------------------------------
if build lib; then ok; else bad 'make lib' "$W/log"; echo "library: $passed passed, $failed failed"; exit 1; fi
same 'make lib says nothing but that it compiles' "$(grep -v '^compiling' "$W/log")" ''
B=$W/source/build
if has nm 'symbols'; then
    nm -D --defined-only "$B/libattn.so" | awk '{ print $NF }' | sed 's/@.*//' | sort > "$W/exported"
    same 'libattn.so exports attn_ alone' "$(grep -v '^attn_[a-z]' "$W/exported")" ''
    # exports every public function, those declared with ATTNDEF, and nothing else
    tr '\n' ' ' < attn.h | sed 's/ATTNDEF/\n&/g' | sed -n 's/^ATTNDEF [a-z_ ]*[ *]\(attn_[a-z0-9_]*\) *(.*/\1/p' | sort -u > "$W/declared"
    same 'libattn.so has every public function' "$(comm -3 "$W/exported" "$W/declared")" ''
    same 'libattn.a has the same' "$(nm -g --defined-only "$B/libattn.a" | awk 'NF == 3 { print $3 }' | sort)" "$(cat "$W/exported")"
fi
has objdump 'soname' && same 'soname' "$(objdump -p "$B/libattn.so" | awk '/SONAME/ { print $2 }')" "$soname"

# ---- install ---------------------------------------------------------------------------------------------------------
list() { (cd "$1" && find . ! -type d | sort | tr '\n' ' '); }
files() { echo "./include/attn.h ./$1/libattn.a ./$1/libattn.so ./$1/$soname ./$1/$so ./$1/pkgconfig/attn.pc ./share/doc/attn/LICENSE "; }
build install PREFIX=/usr DESTDIR="$W/a stage" || bad 'make install with DESTDIR' "$W/log"
same 'files below DESTDIR' "$(list "$W/a stage/usr")" "$(files lib)"
same 'nothing beside them' "$(ls "$W/a stage")" usr
same 'the stage is not in attn.pc' "$(grep -c stage "$W/a stage/usr/lib/pkgconfig/attn.pc")" 0
build uninstall PREFIX=/usr DESTDIR="$W/a stage" || bad 'make uninstall' "$W/log"
same 'make uninstall leaves no file' "$(list "$W/a stage")" ''
P=$W/prefix
build install PREFIX="$P" LIBDIR="$P/lib64" || bad 'make install' "$W/log"
same 'files with a LIBDIR' "$(list "$P")" "$(files lib64)"
cmp -s attn.h "$P/include/attn.h" || bad 'another attn.h was installed'
PKG_CONFIG_PATH=$P/lib64/pkgconfig LD_LIBRARY_PATH=$P/lib64
export PKG_CONFIG_PATH LD_LIBRARY_PATH

# ---- without GNU tools -----------------------------------------------------------------------------------------------
# BusyBox instead of coreutils, sed, awk, grep and findutils, as on Alpine; macOS also lacks GNU's extensions
if has busybox 'make lib without GNU tools'; then
    mkdir "$W/tools" "$W/bare"
    for tool in $(busybox --list); do ln -s "$(command -v busybox)" "$W/tools/$tool"; done
    for tool in make "$CC" as ld ar install; do ln -sf "$(command -v "$tool")" "$W/tools/$tool"; done
    PATH=$W/tools build install PREFIX="$W/bare" || bad 'make install without GNU tools' "$W/log"
    same 'files without GNU tools' "$(list "$W/bare")" "$(files lib)"
    PATH=$W/tools make -s -C "$W/source" > "$W/log" 2>&1 && grep -q '^  make test  ' "$W/log" || bad 'make without GNU tools' "$W/log"
fi

# ---- use -------------------------------------------------------------------------------------------------------------
# runs WHAT WANT PROGRAM
runs() { same "$1" "$("$3" 2>&1)" "$2"; }
$CC -Wall -Wextra tests/library/main.c -I"$P/include" -L"$P/lib64" -lattn -o "$W/plain" > "$W/log" 2>&1 && [ ! -s "$W/log" ] ||
    bad 'a cc line with -lattn' "$W/log"
runs 'a cc line with -lattn' "$right" "$W/plain"
if has pkg-config 'pkg-config'; then
    same 'pkg-config knows the version' "$(pkg-config --modversion attn)" "$version"
    $CC -Wall -Wextra tests/library/main.c $(pkg-config --cflags --libs attn) -o "$W/shared" > "$W/log" 2>&1 && [ ! -s "$W/log" ] ||
        bad 'pkg-config' "$W/log"
    runs 'pkg-config' "$right
$pool" "$W/shared"
    # also defining ATTN_THREADS must not give a warning
    { echo '#define ATTN_THREADS'; cat tests/library/main.c; } > "$W/threads.c"
    $CC -Wall -Wextra "$W/threads.c" $(pkg-config --cflags attn) "$P/lib64/libattn.a" $(pkg-config --libs --static attn) -o "$W/static" \
        > "$W/log" 2>&1 && [ ! -s "$W/log" ] || bad 'the static library' "$W/log"
    path=$LD_LIBRARY_PATH LD_LIBRARY_PATH=/nowhere
    runs 'the static library' "$right
$pool" "$W/static"
    LD_LIBRARY_PATH=$path
    for tool in cmake meson; do
        has $tool $tool || continue
        [ $tool = cmake ] || has ninja meson || continue
        rm -rf "$W/$tool"
        case $tool in
        cmake) cmake -S tests/library -B "$W/cmake" -DATTN_FOLDER="$ROOT" -DCMAKE_C_COMPILER="$CC" && cmake --build "$W/cmake" ;;
        meson) CC=$CC meson setup "$W/meson" tests/library -Dattn_folder="$ROOT" && ninja -C "$W/meson" ;;
        esac > "$W/log" 2>&1 || bad "$tool" "$W/log"
        if grep -q 'warning:' "$W/log"; then bad "$tool warns" "$W/log"; fi
        runs "$tool, the header alone" "$right" "$W/$tool/my_program"
        runs "$tool, installed" "$right
$pool" "$W/$tool/other_program"
    done
fi

# ---- a library of another version ------------------------------------------------------------------------------------
# the next 1.x is another library for the loader, a patch release is not
LD_LIBRARY_PATH=$B
for n in $((number + 1)) $((number + 100)); do
    sed "s/define ATTN_VERSION $number/define ATTN_VERSION $n/" attn.h > "$W/source/attn.h"
    build lib || bad "make lib of version $n" "$W/log"
    if [ $n = $((number + 1)) ]; then runs 'a patch of the library' "${right%version*}version $n" "$W/plain"
    else rm -f "$B/$soname"; "$W/plain" > "$W/log" 2>&1 && bad 'a new minor version of the library is taken for the old one'
        if grep -q "$soname" "$W/log"; then ok; else bad 'the loader does not name the version it misses' "$W/log"; fi; fi
done

# ---- the recipe ------------------------------------------------------------------------------------------
# the lines for CMake and Meson in examples/RECIPES.md are those of tests/library
awk '/^```(cmake|meson)/ { in_block = 1; next } /^```/ { in_block = 0 } in_block && NF' examples/RECIPES.md > "$W/lines"
while read -r line; do
    grep -qF -- "$line" tests/library/CMakeLists.txt tests/library/meson.build || bad "examples/RECIPES.md: not tested: $line"
done < "$W/lines"
[ ! -s "$W/lines" ] || ok

echo "library: $passed passed, $failed failed"
[ $failed = 0 ]
