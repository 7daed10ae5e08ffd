# Test Anything Protocol for the checks in POSIX sh, read with `.`: every case prints one line, a failed one its
# findings as comments, and tap_end gives the exit status.

tap_n=0
tap_failed=0

# tap NAME FINDINGS: passes when FINDINGS is empty.
tap()
{
    tap_n=$((tap_n + 1))
    if [ -z "$2" ]; then
        printf 'ok %d - %s\n' "$tap_n" "$1"
    else
        tap_failed=$((tap_failed + 1))
        printf 'not ok %d - %s\n' "$tap_n" "$1"
        printf '%s\n' "$2" | head -n 40 | sed 's/^/# /'
    fi
}

tap_end()
{
    printf '1..%d\n' "$tap_n"
    [ "$tap_failed" = 0 ] && [ "$tap_n" != 0 ]
}
