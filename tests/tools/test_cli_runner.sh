#!/bin/sh
# tests/cli/run.sh must fail where a program breaks its promise: test_cli_runner.sh TAP.sh RUN.sh JSON, with programs made
# here that break one each.
set -u
. "$1"
runner=$2
json=$3
work=$(mktemp -d) || exit 3
trap 'rm -rf "$work"' EXIT

cat >"$work/cases.sh" <<'END'
case_one()
{
    run something
    expect_status "$(cat "$WANTED_STATUS")"
}
END
WANTED_STATUS=$work/wanted
export WANTED_STATUS

# runs STATUS BODY: whether the case passes when the program is the shell script BODY.
runs()
{
    printf '%s\n' "$1" >"$work/wanted"
    printf '#!/bin/sh\n%s\n' "$2" >"$work/program"
    chmod +x "$work/program"
    sh "$runner" "$work/program" "$json" "$work/cases.sh" >"$work/report" 2>&1
}

accepts()
{
    tap "accepts: $1" "$(runs "$2" "$3" || cat "$work/report")"
}

refuses()
{
    tap "refuses: $1" "$(! runs "$2" "$3" || cat "$work/report")"
}

accepts 'success' 0 'echo fine'
accepts 'no' 1 'echo no; exit 1'
accepts 'misuse in one line' 2 'echo "plimsoll: x" >&2; exit 2'
refuses 'another status' 0 'exit 1'
refuses 'misuse with output' 2 'echo "plimsoll: x" >&2; echo out; exit 2'
refuses 'misuse without a word' 2 'exit 2'
refuses 'two lines' 2 'echo "plimsoll: x" >&2; echo "plimsoll: y" >&2; exit 2'
refuses 'a line without its end' 3 'printf "plimsoll: x" >&2; exit 3'
refuses 'another beginning' 3 'echo "error: x" >&2; exit 3'
refuses 'control characters' 2 'printf "plimsoll: \033[31mx\n" >&2; exit 2'
refuses 'a crash' 139 'kill -SEGV $$'
refuses 'a status above 3' 4 'echo "plimsoll: x" >&2; exit 4'

# checks OUTPUT CASE-LINES: whether these checks pass on what the program prints.
checks()
{
    printf '%s' "$1" >"$work/output"
    printf 'case_one()\n{\n    run x\n    %s\n}\n' "$2" >"$work/cases2.sh"
    printf '#!/bin/sh\ncat "%s"\n' "$work/output" >"$work/program"
    chmod +x "$work/program"
    sh "$runner" "$work/program" "$json" "$work/cases2.sh" >"$work/report" 2>&1
}

passes()
{
    tap "passes: $2" "$(checks "$1" "$2" || cat "$work/report")"
}

fails()
{
    tap "fails: $2 on '$1'" "$(! checks "$1" "$2" || cat "$work/report")"
}

document='{"a": [1, {"b": "x y"}], "n": null}
'
passes "$document" 'expect_json'
passes "$document" 'expect_value a.1.b "x y"; expect_value a.0 1; expect_value n null'
fails "$document" 'expect_value a.0 2'
fails "$document" 'expect_value a.2 1'
fails '{"a": 1}' 'expect_json'
fails '{"a": 1}

' 'expect_json'
fails '{"a": 1} {}
' 'expect_json'
fails '{"a": 1, "a": 2}
' 'expect_json'
passes 'one
two
' 'expect_out "^one$" "^two$"; expect_out -n "^three$"'
fails 'one
' 'expect_out "^one$" "^two$"'
fails 'one
' 'expect_out -n "one"'
fails 'one' 'printf "one\n" | expect_out_is'
fails 'x' 'expect_empty out'
tap_end
