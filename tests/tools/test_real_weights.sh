#!/bin/sh
# What docs/REAL_WEIGHTS.md quotes of the program's messages, looked for in the program: test_real_weights.sh TAP.
set -u
. "$1"
cd "$(dirname "$0")/../.." || exit 3
missing=$(mktemp)
trap 'rm -f "$missing"' EXIT

# String literals that C glues together are one text here.
texts=$(find src -name '*.c' -exec cat {} + | tr '\n' ' ' | sed 's/"  *PRI[a-z0-9]*  *"/%u/g; s/" *"//g')
quotes=$(sed -n 's/^| `\([^`]*\)` | .*/\1/p' docs/REAL_WEIGHTS.md)
tap 'the table quotes messages' "$([ "$(printf '%s\n' "$quotes" | wc -l)" -ge 8 ] || echo "found: $quotes")"
printf '%s\n' "$quotes" | while IFS= read -r quote; do
    # What the program fills in stands for itself.
    words=$(printf '%s' "$quote" | sed 's/^tokenizer\.json: //; s/^\.safetensors: //; s/ (got.*//')
    case $texts in
    *"$words"*) ;;
    *) echo "$quote" ;;
    esac
done >"$missing"
tap 'every quoted message is in the program' "$(cat "$missing")"
tap_end
