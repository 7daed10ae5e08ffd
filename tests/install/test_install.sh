#!/bin/sh
# What `meson install` leaves, as a stranger finds it: test_install.sh BUILD SOURCE PLIMSOLL. Installs into a folder of its
# own, builds examples/answer.c with what pkg-config says and runs it, and reads every man page.
set -u
build=$1
source=$2
program=$3
. "$source/tools/tap.sh"
root=$(mktemp -d) || exit 3
trap 'rm -rf "$root"' EXIT
prefix=$(meson introspect "$build" --buildoptions | tr '{' '\n' |
    sed -n 's/.*"name": "prefix", "value": "\([^"]*\)".*/\1/p')

tap 'meson install works' "$(DESTDIR=$root meson install -C "$build" --no-rebuild >"$root/log" 2>&1 || cat "$root/log")"
at=$root$prefix
pc=$(find "$at" -name plimsoll.pc)
libdir=$(dirname "$(dirname "$pc")")
missing=
for file in bin/plimsoll share/man/man1/plimsoll.1 share/man/man1/plimsoll-serve.1 share/doc/plimsoll/LICENSE \
    share/doc/plimsoll/docs/SERVING.md share/doc/plimsoll/examples/answer.c include/plimsoll/engine.h; do
    [ -f "$at/$file" ] || missing="$missing $file"
done
tap 'program, pages, documents and headers lie where they belong' "$missing"
tap 'the shared library has a stable soname' "$(objdump -p "$libdir/libplimsoll.so" | awk '/SONAME/ {print $2}' |
    grep -qx 'libplimsoll\.so\.0' && [ -e "$libdir/libplimsoll.so.0" ] || echo 'want libplimsoll.so.0')"

# Every function marked PL_API in a public header, and nothing else.
declared=$(cat "$source"/include/plimsoll/*.h | tr '\n' ' ' | grep -o 'PL_API [^(;]*(' | grep -o 'pl_[a-z0-9_]*($' | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$libdir/libplimsoll.so" | awk 'NF == 3 {print $3}' | sort -u)
printf '%s\n' "$declared" >"$root/declared"
printf '%s\n' "$exported" >"$root/exported"
tap 'the shared library exports what the headers declare' "$([ -n "$declared" ] || echo 'no declaration is found'; diff "$root/declared" "$root/exported")"

# pkg-config as for an installed package, moved below DESTDIR.
flags()
{
    PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH=$(dirname "$pc") pkg-config "$@" plimsoll
}
# shellcheck disable=SC2046
tap 'the example builds with pkg-config' "$(${CC:-gcc} -std=c99 -Wall -Wextra -Werror "$at/share/doc/plimsoll/examples/answer.c" \
    $(flags --cflags --libs) -o "$root/answer" 2>&1)"
# shellcheck disable=SC2046
tap 'and with the static library' "$(${CC:-gcc} -std=c99 "$source/examples/answer.c" $(flags --cflags) "$libdir/libplimsoll.a" \
    $(pkg-config --libs jansson libxxhash hwloc) -pthread -lm -o "$root/answer-static" 2>&1)"
text='For God so loved'
want=$("$program" run "$source/models/demo" --prompt "$text" --max-tokens 256 2>&1)
got=$(LD_LIBRARY_PATH=$libdir "$root/answer" "$source/models/demo" "$text" 2>&1)
tap 'it says what plimsoll run says' "$([ -n "$got" ] && [ "$got" = "$want" ] || printf 'got %s\nwant %s\n' "$got" "$want")"
got=$("$root/answer-static" "$source/models/demo" "$text" 2>&1)
tap 'and so does the static one' "$([ "$got" = "$want" ] || printf 'got %s\nwant %s\n' "$got" "$want")"
tap 'it fails where there is no model' "$(! LD_LIBRARY_PATH=$libdir "$root/answer" "$root/nowhere" x 2>/dev/null || echo 'it succeeds')"
awk '/^```c$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$source/README.md" >"$root/readme.c"
tap 'README shows the example as it is' "$(sed 1d "$source/examples/answer.c" | diff "$root/readme.c" -)"

# options TEXT: the names that begin a line, of a help text or of a page in which \- is a hyphen.
of_help()
{
    sed -n 's/^  \(-[a-zA-Z0-9-]*\).*/\1/p' | sort -u
}
of_page()
{
    sed 's/\\-/-/g' "$1" | sed -n 's/^\\fB\(-[a-zA-Z0-9-]*\).*/\1/p' | sort -u
}
commands=$("$program" --help | sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
tap 'the help lists commands' "$([ -n "$commands" ] || echo none)"
for command in $commands; do
    page=$at/share/man/man1/plimsoll-$command.1
    kinds=$("$program" "$command" --help | sed -n '/^[a-z]*:$/{h;};/^  [a-z]/{G;/\n\(options\|examples\):$/!s/^  \([a-z]*\) .*/\1/p;}')
    {
        "$program" "$command" --help
        for kind in $kinds; do
            "$program" "$command" "$kind" --help 2>/dev/null
        done
    } | of_help >"$root/help"
    of_page "$page" >"$root/page"
    tap "plimsoll-$command(1) has the options of --help" "$([ -s "$root/help" ] || echo 'no option'; diff "$root/help" "$root/page")"
done
if command -v mandoc >/dev/null 2>&1; then
    tap 'mandoc finds no fault in the pages' "$(mandoc -T lint -W warning "$at"/share/man/man1/*.1 2>&1)"
else
    tap 'mandoc finds no fault in the pages # SKIP mandoc is not installed' ''
fi
tap_end
