#!/bin/sh
# The program of docs/OPERATORS.md prints what it has to: example.sh PROGRAM. ln 3 and the mean of 1, 2 and 6.
set -u
got=$("$1") || exit 1
[ "$got" = 'out 3.000000 lse 1.098612' ] || {
    echo "got $got, want out 3.000000 lse 1.098612"
    exit 1
}
