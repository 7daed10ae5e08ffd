#!/bin/sh
# tools/check-layers must see what it is for: test_layers.sh TAP.sh CHECK-LAYERS, on small trees made here.
set -u
. "$1"
check=$2
top=$(mktemp -d) || exit 3
trap 'rm -rf "$top"' EXIT

# tree FILE INCLUDE...: a source tree of one file with these includes.
tree()
{
    rm -rf "$top/src"
    mkdir -p "$top/src/$(dirname "$1")"
    file=$top/src/$1
    shift
    printf '#include "%s"\n' "$@" >"$file"
}

accepts()
{
    found=$(sh "$check" "$top")
    tap "accepts: $1" "$([ $? = 0 ] || printf '%s\n' "$found")"
}

refuses()
{
    found=$(sh "$check" "$top")
    tap "refuses: $1" "$([ $? != 0 ] || printf '%s\n' "$found")"
}

tree model/a.c base/error.h ops/linear.h model/a.h plimsoll/status.h
accepts 'own folder, folders above, public headers'
tree ops/x86/deep/a.c base/error.h ops/linear.h
accepts 'folders inside a folder'
tree base/a.c model/config.h
refuses 'base uses model'
tree ops/x86/a.h attention/varlen.h
refuses 'a folder inside ops uses attention'
tree serve/a.c cli/options.h
refuses 'serve uses cli'
tree text/a.c base/error.h
printf '  #  include "engine/run.h"\n' >>"$top/src/text/a.c"
refuses 'an include with blanks'
tree other/a.c base/error.h
refuses 'a folder without a place'
rm -rf "$top/src"
refuses 'no source at all'
tap_end
