#!/bin/sh
# The count in the last line of tools/test.sh must not be fooled: test_tally.sh TAP.sh TALLY.awk. Each case is what
# meson logs of one executable, and the counts that must come of it.
set -u
. "$1"
tally=$2

counts()
{
    got=$(printf '%s' "$3" | awk -f "$tally" 2>/dev/null)
    tap "$1" "$([ "$got" = "$2" ] || printf 'got %s, want %s, of %s' "$got" "$2" "$3")"
}

counts 'cases are counted, not executables' '2 0 0' \
    '{"name": "a", "stdout": "1..2\nok 1 - x\nok 2 - y\n", "result": "OK", "starttime": 1}'
counts 'a failed case' '1 1 0' \
    '{"name": "a", "stdout": "1..2\nok 1 - x\nnot ok 2 - y\n# why\n", "result": "FAIL"}'
counts 'two groups in one executable' '3 0 0' \
    '{"name": "a", "stdout": "1..2\nok 1 - x\nok 2 - y\n# ok - tests\n1..1\nok 1 - z\n", "result": "OK"}'
counts 'a crash after two cases' '2 1 0' \
    '{"name": "a", "stdout": "1..4\nok 1 - x\nok 2 - y\n", "result": "ERROR", "returncode": -11}'
counts 'a crash after the last case' '1 1 0' \
    '{"name": "a", "stdout": "1..1\nok 1 - x\n", "result": "ERROR"}'
counts 'a time-out before any output' '0 1 0' \
    '{"name": "a", "stdout": "", "result": "TIMEOUT"}'
counts 'an exit in the middle that looks like success' '1 1 0' \
    '{"name": "a", "stdout": "1..3\nok 1 - x\n", "result": "OK"}'
counts 'skipped cases in both spellings' '1 0 2' \
    '{"name": "a", "stdout": "1..3\nok 1 - x # SKIP no file\nok 2 - y\nnot ok 3 # SKIP z\n", "result": "OK"}'
counts 'a case behind half a line of output' '2 0 0' \
    '{"name": "a", "stdout": "1..2\nok 1 - x\nnoise ok 2 - y\n", "result": "OK"}'
counts 'text that looks like a field' '1 0 0' \
    '{"name": "a", "stdout": "1..1\n\"result\": \"FAIL\", \"result\": \"FAIL\"\nok 1 - x\n", "result": "OK"}'
counts 'no TAP: one case by its exit status' '1 0 0' '{"name": "a", "stdout": "token 5 - x", "result": "OK"}'
counts 'no TAP and skipped' '0 0 1' '{"name": "a", "stdout": null, "result": "SKIP"}'
counts 'no TAP and failed' '0 1 0' '{"name": "a", "stdout": null, "result": "FAIL"}'
counts 'nothing ran' '0 0 0' ''
tap_end
