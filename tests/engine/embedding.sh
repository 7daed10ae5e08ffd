#!/bin/sh
# The program of docs/EMBEDDING.md prints what `plimsoll run` prints: embedding.sh PLIMSOLL CHECKPOINT PROGRAM.
set -u
want=$("$1" run "$2" --tokens 1,2,3 --max-tokens 5) || exit 1
got=$("$3" "$2") || exit 1
[ -n "$got" ] && [ "$got" = "$want" ] || {
    echo "got $got, want $want"
    exit 1
}
"$3" "$2/nowhere" 2>/dev/null && {
    echo 'a folder that is not there gives success'
    exit 1
}
exit 0
