# plimsoll verify: that it passes where bits agree, and, with other arithmetic and with weights that were changed by one
# bit, that it does not and says where.

model()
{
    [ -d m ] || run synth m --preset nano
}

small='--requests 2 --prompt-tokens 12 --max-tokens 2'

# flip FOLDER TENSOR: changes the lowest bit of the middle byte of a tensor.
flip()
{
    python3 - "$1" "$2" <<'END' || fail "cannot change $2"
import glob, json, struct, sys
for name in glob.glob(sys.argv[1] + "/*.safetensors"):
    with open(name, "r+b") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        tensors = json.loads(f.read(n))
        if sys.argv[2] in tensors:
            begin, end = tensors[sys.argv[2]]["data_offsets"]
            f.seek(8 + n + (begin + end) // 2)
            byte = f.read(1)[0]
            f.seek(8 + n + (begin + end) // 2)
            f.write(bytes([byte ^ 1]))
            sys.exit(0)
sys.exit(1)
END
}

case_same_bits()
{
    grep -aqE '__asan_init|__tsan_init' "$program" && skip 'takes minutes there'
    model
    # Past the window of 128 tokens.
    run verify m --requests 3 --prompt-tokens 132 --max-tokens 2 --batch 1,3 --max-num-batched-tokens 64,5 --threads 2,3 \
        --num-speculative-tokens 0,2 --mixed 1 --json
    expect_status 0
    expect_json
    expect_empty err
    expect_value first_difference null
    expect_value axes.0.axis batch
    expect_value axes.0.cases 1
    expect_value axes.0.differing 0
    expect_value axes.3.axis speculation
    n=0
    : >names
    while "$json" out axes.$n.axis >>names 2>/dev/null; do
        expect_value axes.$n.differing 0
        n=$((n + 1))
    done
    [ $n -ge 8 ] || fail "$n axes were run"
    grep -q prefix names || fail 'nothing was begun from the cache'
    grep -q snapshot names || fail 'nothing was begun from a snapshot'
    [ "$(value preemptions)" -ge 2 ] || fail 'nobody was preempted'
    [ "$(value restored_tokens)" -ge 66 ] || fail 'nothing was restored'
    # One prompt has more than 128 tokens.
    hits=$(value prefix_hit_tokens)
    [ "$hits" -ge 128 ] && [ $((hits % 128)) = 0 ] || fail "$hits tokens were found in the cache"
    if "$json" out not_run.0.axis >/dev/null 2>&1; then fail 'an axis was not run'; fi
}

case_full_is_every_combination()
{
    grep -aqE '__asan_init|__tsan_init' "$program" && skip 'takes minutes there'
    model
    run verify m --requests 2 --prompt-tokens 6 --max-tokens 2 --level scalar --threads 1,2 --batch 1,2 \
        --max-num-batched-tokens 8,3 --num-speculative-tokens 0,1 --full --json
    expect_status 0
    # 2^4 settings: the reference, one of each axis, 11 others; preempted and from snapshots in one each; prompts too short
    # for the cache of prefixes
    expect_value axes.4.axis preemption
    expect_value axes.5.axis snapshot
    expect_value not_run.0.axis prefix
    expect_value prefix_hit_tokens 0
    expect_value axes.6.axis mixed
    expect_value axes.6.cases 11
}

case_other_arithmetic_differs()
{
    model
    run verify m $small --level scalar,f64 --threads 2 --batch 1,2 --max-num-batched-tokens 64 --num-speculative-tokens 0 \
        --mixed 0 --json
    expect_status 1
    expect_json
    expect_empty err
    expect_value axes.0.axis batch
    expect_value axes.0.differing 0
    expect_value axes.1.axis level
    expect_value axes.1.differing 1
    expect_value axes.2.axis preemption
    expect_value axes.2.differing 0
    expect_value axes.3.axis snapshot
    expect_value axes.3.differing 0
    expect_value first_difference.axis level
    expect_value first_difference.layer 0
    expect_value first_difference.other.level f64
}

case_one_bit_of_a_weight()
{
    model
    cp -r m other
    flip other layers.1.attn.wo_b.weight
    run verify m --against other $small --level scalar --threads 2 --batch 1 --max-num-batched-tokens 64 \
        --num-speculative-tokens 0 --mixed 0 --json
    expect_status 1
    expect_value axes.0.axis checkpoint
    expect_value axes.0.differing 1
    expect_value first_difference.axis checkpoint
    expect_value first_difference.layer 1
    expect_value first_difference.tensor layers.1.attn_out
    a=$(value first_difference.reference_bits)
    [ "$a" != "$(value first_difference.other_bits)" ] || fail 'equal bits are called different'
    run verify m --against other $small --level scalar --threads 2 --batch 1 --max-num-batched-tokens 64 \
        --num-speculative-tokens 0 --mixed 0
    expect_status 1
    expect_out 'first tensor: layers\.1\.attn_out, element '
    cp -r m same
    run verify m --against same $small --level scalar --threads 2 --batch 1 --max-num-batched-tokens 64 \
        --num-speculative-tokens 0 --mixed 0
    expect_status 0
    expect_out '^same bits$'
}

case_misuse()
{
    model
    run verify
    expect_status 2
    run verify m --batch 0
    expect_status 2
    expect_err '--batch: out of range \(got 0, want 1 to 4096\)'
    run verify m --level scalar,scalar
    expect_status 2
    expect_err 'given twice'
    run verify m --level mmx
    expect_status 2
    expect_err mmx
    run verify m --num-speculative-tokens 0,9
    expect_status 2
    expect_err '--num-speculative-tokens: out of range'
    run verify m --prompt-tokens 1048576 --max-tokens 1048576
    expect_status 2
    expect_err '--prompt-tokens: too many'
    run verify nothing
    expect_status 2
    run verify m --memory 1KiB
    expect_status 1
    expect_empty out
}
