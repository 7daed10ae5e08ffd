#!/bin/sh
# Runs one file of black-box tests of the program: run.sh PROGRAM JSON FILE [CASE...]; JSON is the helper built from json.c. See README.md beside it.
#
# Every function of FILE whose name begins with case_ is a test. It runs in a subshell and an empty folder of its
# own that is removed afterwards; the first check that fails ends it. Results are TAP.
set -u

[ $# -ge 3 ] || {
    echo "usage: run.sh PROGRAM JSON FILE [CASE...]" >&2
    exit 2
}
absolute()
{
    printf '%s/%s\n' "$(cd "$(dirname "$1")" && pwd)" "$(basename "$1")"
}
program=$(absolute "$1")
json=$(absolute "$2")
file=$(absolute "$3")
shift 3
for needed in "$program" "$json"; do
    [ -x "$needed" ] || {
        echo "run.sh: $needed: no such program" >&2
        exit 2
    }
done
LC_ALL=C.UTF-8
export LC_ALL
unset PL_CPU

# ---- what a case may use ----

# fail TEXT: ends the case.
fail()
{
    printf 'failed: %s\n' "$1"
    if [ -n "${last_command:-}" ]; then
        printf 'command: %s\nstatus: %s\n' "$last_command" "$status"
        for stream in out err; do
            printf '%s:\n' "$stream"
            # Binary output and endless lines would make the report unreadable.
            head -c 2000 "$stream" 2>/dev/null | tr -c '[:print:]\n' '?' | sed 's/^/    /'
            printf '\n'
        done
    fi
    exit 1
}

# run ARGUMENT...: the program with these arguments. Standard input is the file `in`, if there is one. Leaves
# standard output in `out`, standard error in `err` and the exit status in $status, and checks what is
# promised of every run.
run()
{
    last_command="plimsoll $*"
    if [ -f in ]; then
        "$program" "$@" <in >out 2>err
    else
        "$program" "$@" </dev/null >out 2>err
    fi
    status=$?
    check_promise
}

# run_into FILE ARGUMENT...: the same with standard output going to FILE, such as /dev/full.
run_into()
{
    into=$1
    shift
    last_command="plimsoll $* >$into"
    : >out
    "$program" "$@" </dev/null >"$into" 2>err
    status=$?
    check_promise
}

# Statuses are 0 to 3; with 2 and 3 standard output is empty and standard error one line "plimsoll: ...".
check_promise()
{
    case $status in
    0 | 1) ;;
    2 | 3)
        [ ! -s out ] || fail "status $status, but standard output is not empty"
        [ "$(wc -l <err)" = 1 ] && [ -z "$(tail -c 1 err)" ] || fail "status $status, but standard error is not one line"
        case $(cat err) in
        'plimsoll: '?*) ;;
        *) fail "status $status, but standard error does not begin with 'plimsoll: '" ;;
        esac
        ! grep -q '[[:cntrl:]]' err || fail 'control characters in the error'
        ;;
    *) fail "status $status, want 0 to 3" ;;
    esac
}

# expect_status N
expect_status()
{
    [ "$status" = "$1" ] || fail "status $status, want $1"
}

# expect_out, expect_err [-n] PATTERN...: each extended regular expression matches a line (-n: matches none).
expect_out()
{
    expect_lines out "$@"
}

expect_err()
{
    expect_lines err "$@"
}

expect_lines()
{
    where=$1
    shift
    if [ "$1" = -n ]; then
        shift
        for pattern in "$@"; do
            ! grep -Eq -e "$pattern" "$where" || fail "a line of $where matches $pattern"
        done
        return 0
    fi
    for pattern in "$@"; do
        grep -Eq -e "$pattern" "$where" || fail "no line of $where matches $pattern"
    done
}

# expect_out_is [FILE]: standard output is FILE, or standard input, byte for byte.
expect_out_is()
{
    if [ $# = 0 ]; then
        cat >wanted
        set -- wanted
    fi
    cmp -s "$1" out && return 0
    diff "$1" out | head -n 20
    fail "standard output is not what $1 holds"
}

# expect_empty out|err
expect_empty()
{
    [ ! -s "$1" ] || fail "$1 is not empty"
}

# expect_json: standard output is exactly one JSON document and a newline.
expect_json()
{
    "$json" out 2>json.err || fail "not one JSON document: $(cat json.err)"
}

# expect_value PATH WANTED: a value of the JSON document in `out`; PATH is like results.0.finish_reason.
expect_value()
{
    got=$("$json" out "$1" 2>&1) || fail "$got"
    [ "$got" = "$2" ] || fail "$1 is $got, want $2"
}

# value PATH: prints it.
value()
{
    "$json" out "$1"
}

# commands: the names that plimsoll --help lists.
commands()
{
    "$program" --help | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'
}

# skip TEXT: ends the case without a verdict.
skip()
{
    printf '%s\n' "$1" >skipped
    exit 77
}

# ---- the runner ----

. "$file"

[ $# -gt 0 ] || set -- $(sed -n 's/^\(case_[a-z0-9_]*\)()$/\1/p' "$file")
[ $# -gt 0 ] || {
    echo "run.sh: $file: no case" >&2
    exit 2
}
printf '1..%d\n' $#
number=0
failed=0
for name in "$@"; do
    number=$((number + 1))
    scratch=$(mktemp -d) || exit 3
    (cd "$scratch" && "$name") >"$scratch.report" 2>&1
    case $? in
    0) printf 'ok %d - %s\n' $number "$name" ;;
    77) printf 'ok %d - %s # SKIP %s\n' $number "$name" "$(cat "$scratch/skipped")" ;;
    *)
        failed=$((failed + 1))
        printf 'not ok %d - %s\n' $number "$name"
        sed 's/^/# /' "$scratch.report"
        ;;
    esac
    chmod -R u+w "$scratch"
    rm -rf "$scratch" "$scratch.report"
done
[ $failed = 0 ]
