#!/bin/sh
# Levels on processors that this machine may not be: BUILD/plimsoll and BUILD/checkkern under qemu-x86_64, as Nehalem (no
# AVX) and as Haswell (AVX2, no AVX-512). What is judged: which levels count as supported, which one is chosen, and
# bits: of the linear layers' self-test and of the FP4 kernels, with --long of every operator that the emulator can run.
# It cannot run what widens denormal halves (half_daz.c): there the self-test has to keep the level from being used.
# usage: qemu.sh BUILD [--long]
set -u
build=$1
long=${2:-}
kernels=$build/tests/kernels
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

# as CPU PROGRAM ARGUMENT...: what it prints; qemu's warnings of features that it lacks do not matter.
as()
{
    cpu=$1
    shift
    qemu-x86_64 -cpu "$cpu" "$@" 2>/dev/null
}

levels=$(as Nehalem "$build/plimsoll" cpu)
expect 'Nehalem: avx2 is not supported' "$levels" '^ *avx2 +built +not supported'
expect 'Nehalem: avx512 is not supported' "$levels" '^ *avx512 +built +not supported .*lacks .*avx512f'
expect 'Nehalem: scalar it is' "$levels" '^chosen +scalar.* lacks .*avx2 for avx2'
expect 'Nehalem: the self-tests of checkkern' "$(as Nehalem "$kernels/checkkern" --op linear_selftest)" \
    '^3 passed, 0 failed'
for part in linear_selftest linear_fp4; do
    expect "Nehalem: checkkern --op $part: avx2 is left out" \
        "$(as Nehalem "$kernels/checkkern" --isa avx2 --op $part)" '^level avx2: skipped'
done

levels=$(as Haswell "$build/plimsoll" cpu)
expect 'Haswell: avx2 is supported' "$levels" '^ *avx2 +built +supported'
expect 'Haswell: avx512 is not supported' "$levels" '^ *avx512 +built +not supported .*lacks .*avx512f'
halves=$(as Haswell "$kernels/half_daz")
if [ $? -eq 0 ]; then
    expect 'Haswell: avx2 it is' "$levels" '^chosen +avx2'
    inexact=
else
    echo 'note: this qemu loses denormal halves under DAZ:'
    printf '%s\n' "$halves"
    expect 'Haswell: the self-test notices' "$levels" '^ *avx2 .* self-test FAILED; .*: attention: '
    expect 'Haswell: scalar it is, with the reason' "$levels" '^chosen +scalar, the best there is: .*attention'
    inexact=1
fi
expect 'Haswell: the self-tests of checkkern' "$(as Haswell "$kernels/checkkern" --op linear_selftest)" \
    '^4 passed, 0 failed'
parts=linear_fp4
if [ "$long" ]; then # seconds each; all levels would take minutes, and AVX-512 through SIMDe is the same everywhere
    parts="$parts linear_fp8:e8m0 linear_fp8:f32 linear_fp8_a16 linear_bf16 index_topk hc_ rms_norm rope swiglu moe_sum
        quantise varlen_bf16 varlen_f32"
    [ "$inexact" ] || parts="$parts attention varlen_f16"
fi
for part in $parts; do
    checked=$(as Haswell "$kernels/checkkern" --isa avx2 --op "$part")
    expect "Haswell: checkkern --op $part: avx2 is run" "$checked" '^level avx2: run$'
    expect "Haswell: checkkern --op $part" "$checked" '^[1-9][0-9]* passed, 0 failed'
done
exit $status
