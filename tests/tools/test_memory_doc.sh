#!/bin/sh
# docs/MEMORY.md 4 lists every memory scenario once, each with a test of its name that runs, or a reason.
set -u
. "$1"
top=$(cd "$(dirname "$0")/../.." && pwd)
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
grep -E '^\| S[0-9]+ \|' "$top/docs/MEMORY.md" >"$rows"

wanted=$(seq -f 'S%02.0f' 1 48)
tap 'S01 to S48, each once' "$([ "$(sed 's/^| \(S[0-9]*\) .*/\1/' "$rows")" = "$wanted" ] || echo 'another list')"

# Whether a test of that name is defined and in its executable's list.
is_run()
{
    case $1 in
    case_*) grep -rqx "$1()" "$top/tests/cli" ;;
    test_*) grep -rqF "$1(void **state)" "$top/tests" --include='*.c' &&
        grep -rqF "cmocka_unit_test($1)" "$top/tests" --include='*.c' ;;
    *) false ;;
    esac
}

check_row()
{
    number=$(printf '%s' "$1" | tr S s)
    case $2 in
    'cannot happen: '????????????????*) ;;
    '`'*'`')
        name=$(printf '%s' "$2" | tr -d '`')
        is_run "$name" || echo "$1: no such test: $name"
        case _${name}_ in
        *_${number}_*) ;;
        *) echo "$1: $name is not named after it" ;;
        esac
        ;;
    *) echo "$1: neither a test nor a reason: $2" ;;
    esac
}

tap 'each has a test of its name, or a reason' "$(sed 's/^| \(S[0-9]*\) | .* | \(.*\) |$/\1 \2/' "$rows" |
    while read -r number what; do check_row "$number" "$what"; done)"
tap 'the check sees a missing test' "$(check_row S01 '`test_s01_nothing`' | grep -q 'no such test' || echo 'it does not')"
tap 'the check sees another name' "$(check_row S02 '`test_s26_windows_do_not_grow`' | grep -q 'not named' || echo 'it does not')"
tap_end
