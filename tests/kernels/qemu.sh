#!/bin/sh
# Levels on processors that this machine may not be: BUILD/plimsoll and BUILD/checkkern under qemu-x86_64, as Nehalem (no
# AVX) and as Haswell (AVX2, no AVX-512). What is judged: which levels count as supported, that the program runs at one
# of them, and the bits of the linear layers' self-test and of one operator's problems.
# usage: qemu.sh BUILD
set -u
build=$1
status=0

# expect WHAT TEXT PATTERN
expect()
{
    if printf '%s\n' "$2" | grep -Eq "$3"; then
        echo "ok: $1"
    else
        printf 'FAILED: %s: no line with %s in\n%s\n' "$1" "$3" "$2"
        status=1
    fi
}

for cpu in Nehalem Haswell; do
    [ $cpu = Haswell ] && how='run$' supported='supported' || how='skipped' supported='not supported'
    levels=$(qemu-x86_64 -cpu $cpu "$build/plimsoll" cpu 2>/dev/null)
    expect "$cpu: avx2 is $supported" "$levels" "^ *avx2 +built +$supported"
    expect "$cpu: avx512 is not supported" "$levels" '^ *avx512 +built +not supported .*lacks .*avx512f'
    expect "$cpu: a level is chosen, with the reason" "$levels" '^chosen +(scalar|avx2), the best there is: '
    checked=$(qemu-x86_64 -cpu $cpu "$build/tests/kernels/checkkern" --op linear_selftest 2>/dev/null)
    expect "$cpu: every level of checkkern" "$checked" '^[34] passed, 0 failed'
    [ $cpu = Haswell ] || expect "$cpu: scalar it is" "$levels" '^chosen +scalar.* lacks .*avx2 for avx2'
    for part in linear_selftest linear_fp4; do
        # All levels take minutes; those of AVX-512 through SIMDe are the same everywhere.
        checked=$(qemu-x86_64 -cpu $cpu "$build/tests/kernels/checkkern" --isa avx2 --op $part 2>/dev/null)
        expect "$cpu: checkkern --op $part: avx2 is $how" "$checked" "^level avx2: $how"
        [ $cpu = Nehalem ] || expect "$cpu: checkkern --op $part" "$checked" '^[1-9][0-9]* passed, 0 failed'
    done
done
exit $status
