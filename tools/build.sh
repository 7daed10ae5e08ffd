#!/bin/sh
# Builds an optimised build/plimsoll: sh tools/build.sh. Installs the Debian packages that are missing (root or
# sudo) and says which; tests are built by tools/test.sh.
set -eu
cd "$(dirname "$0")/.."
program=tools/build.sh
. tools/lib.sh

case ${1:-} in
'') ;;
-h | --help)
    say 'usage: sh tools/build.sh

Installs what is missing of the Debian packages it needs and builds build/plimsoll, optimised.'
    exit 0
    ;;
*)
    misuse "unknown argument (got '$1', want none)"
    ;;
esac

need_packages "$packages_build"
# A build folder that exists keeps its options.
[ -f build/build.ninja ] || configure build gcc --buildtype=release -Dtests=false
build build || die "build: failed"
say "built: build/plimsoll ($(build/plimsoll --version))"
