#!/bin/sh
# A program of docs/OPERATORS.md prints what it has to: example.sh PROGRAM OUTPUT.
set -u
got=$("$1") || exit 1
[ "$got" = "$2" ] || {
    echo "got $got, want $2"
    exit 1
}
