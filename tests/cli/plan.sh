# plimsoll plan: the same numbers from headers and from config.json, exit status by whether it fits.

model()
{
    run synth nano --preset nano
    expect_status 0
}

case_headers_and_config_agree()
{
    model
    run plan nano --json --max-model-len 300
    expect_status 0
    expect_json
    cp out from_folder
    cp nano/config.json alone.json
    run plan alone.json --json --max-model-len 300
    expect_status 0
    expect_out_is from_folder
}

case_headers_without_data_are_enough()
{
    run synth flash --preset flash --headers-only --layers 4 --experts 8
    run plan flash --json --memory 1TiB
    expect_status 0
    expect_value fits true
    expect_value capacity.max_model_len 1048576
}

case_released_models()
{
    run synth flash --preset flash --headers-only
    run plan flash/config.json --json
    expect_status 0
    expect_value per_request.bytes_per_128_tokens 449824
    expect_value per_request.bytes_per_token 3514.25
    run synth pro --preset pro --headers-only
    run plan pro/config.json --json
    expect_value per_request.bytes_per_128_tokens 644024
}

case_keys()
{
    model
    run plan nano --json --memory 1GiB --max-num-seqs 3 --max-model-len 200
    expect_status 0
    expect_value budget_bytes 1073741824
    expect_value fits true
    expect_value capacity.max_model_len 200
    expect_value regions.0.name weights.embed
    expect_value regions.0.part exact
    expect_value regions.0.formula 131072
    expect_value regions.0.bytes 131072
    expect_value parameters.max_num_seqs 3
    [ "$(value resident_bytes)" = "$(value total_bytes)" ] || fail 'resident and total differ'
    [ "$(value charged_bytes)" -gt "$(value total_bytes)" ] || fail 'nothing is charged for page tables'
    [ "$(value capacity.requests_at_max_model_len)" -gt 3 ] || fail 'no room for a fourth request'
}

case_what_does_not_fit_says_what_would()
{
    model
    run plan nano --memory 20MiB --max-model-len 2000 --max-num-seqs 8
    expect_status 1
    expect_err '^plimsoll: plan: does not fit \(got [0-9]+ bytes, want at most 20971520\); would fit: .*memory_bytes [0-9]+ instead of 20971520$'
    needed=$(sed 's/.*memory_bytes \([0-9]*\) instead.*/\1/' err)
    run plan nano --memory "$needed" --max-model-len 2000 --max-num-seqs 8
    expect_status 0
    run plan nano --memory $((needed - 1)) --max-model-len 2000 --max-num-seqs 8 --json
    expect_status 1
    expect_json
    expect_value fits false
}

case_line_of_the_caches()
{
    model
    run plan nano --kv-cache-memory-bytes 8MiB --max-num-seqs 2 --json
    expect_status 0
    expect_err 'kv_cache_memory_bytes limits the caches to 8388608 bytes'
    cp out chosen
    len=$(value capacity.max_model_len)
    run plan nano --kv-cache-memory-bytes 8MiB --max-num-seqs 2 --max-model-len $((len + 1))
    expect_status 1
    expect_err '^plimsoll: plan: caches do not fit '
}

case_prefix_cache()
{
    model
    run plan nano --max-model-len 500
    expect_status 0
    expect_out '^no prefix cache \(--prefix-cache-memory BYTES'
    run plan nano --max-model-len 500 --prefix-cache-memory 8MiB
    expect_status 0
    expect_out '^cache.prefix +exact +8[0-9]+ .* blocks \* .* states \* '
}

case_bad_input()
{
    run plan
    expect_status 2
    run plan nowhere
    expect_status 2
    printf '{}' >config.json
    run plan config.json
    expect_status 2
    model
    run plan nano --kv-cache-dtype fp16
    expect_status 2
    expect_err "got 'fp16', want auto, fp8 or fp8_ds_mla"
    for type in auto fp8 fp8_ds_mla; do
        run plan nano --kv-cache-dtype $type --max-model-len 100
        expect_status 0
    done
    run plan nano --level nonsense
    expect_status 2
    run plan nano --max-model-len 99999999
    expect_status 2
    expect_err 'max_model_len: out of range'
    run plan nano --num-speculative-tokens 9
    expect_status 2
    expect_err "got '9', want 0..8 or auto"
    run plan nano --num-speculative-tokens often
    expect_status 2
    # auto: memory for the most.
    run plan nano --max-model-len 100 --num-speculative-tokens 8 --json
    cp out eight
    run plan nano --max-model-len 100 --num-speculative-tokens auto --json
    expect_status 0
    cmp -s out eight || fail 'auto plans other than for 8 drafts'
}

case_level_from_the_environment()
{
    model
    PL_CPU=nonsense
    export PL_CPU
    run plan nano
    unset PL_CPU
    expect_status 2
    expect_err 'PL_CPU'
}

# Every row is the plan of that value alone, and without values there are some of each parameter.
case_what_if()
{
    model
    run plan nano --json --max-model-len 300 --what-if=max-num-seqs=1,7 --what-if=max-num-batched-tokens=33
    expect_status 0
    expect_json
    expect_value what_if.0.parameter max_num_seqs
    expect_value what_if.0.value 1
    expect_value what_if.2.parameter max_num_batched_tokens
    [ "$(grep -c '"parameter":' out)" = 3 ] || fail 'not three rows'
    seven=$(value what_if.1.total_bytes)
    chunk=$(value what_if.2.total_bytes)
    run plan nano --json --max-model-len 300 --max-num-seqs 7
    expect_value total_bytes "$seven"
    run plan nano --json --max-model-len 300 --max-num-batched-tokens 33
    expect_value total_bytes "$chunk"
    run plan nano --memory 43MiB --what-if
    expect_status 0
    expect_out '^max_num_seqs +4 +[0-9]+ ' '^max_model_len +[0-9]+ ' '^max_num_batched_tokens +128 '
    run plan nano --what-if=max-num-seqs
    expect_out -n '^max_model_len'
    for bad in max-tokens max-num-seqs= max-num-seqs=0 max-num-seqs=1,x max-num-seqs=99999999999; do
        run plan nano "--what-if=$bad"
        expect_status 2
        expect_err '^plimsoll: plan: --what-if: '
    done
    run plan nano --what-if=max-num-seqs=70000
    expect_status 2
    expect_err 'max_num_seqs: out of range \(got 70000'
}

# Elements closed in order; and a whole parser's word for it where there is one.
well_formed()
{
    tr '\n' ' ' <"$1" | sed 's/</\n</g' | awk '
        /^<\// {sub(/^<\//, ""); sub(/>.*/, ""); if (open[n] != $1) {print "closes " $1; exit} n--; next}
        /^</ && !/^<[^>]*\/>/ {sub(/^</, ""); sub(/[ >].*/, ""); open[++n] = $1}
        END {if (n) print n " are open"}'
    if command -v python3 >/dev/null; then
        python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$1" 2>&1
    fi
}

case_svg()
{
    model
    run plan nano --memory 1GiB --svg fits.svg
    expect_status 0
    [ -z "$(well_formed fits.svg)" ] || fail "$(well_formed fits.svg)"
    grep -q 'below the line of 1.0 GiB' fits.svg || fail 'the line is not named'
    grep -q 'class="water"' fits.svg || fail 'the line is not drawn'
    grep -q 'prefers-color-scheme: dark' fits.svg || fail 'no dark scheme'
    run plan nano --memory 20MiB --max-model-len 4096 --svg over.svg
    expect_status 1
    [ -z "$(well_formed over.svg)" ] || fail "$(well_formed over.svg)"
    grep -q 'above the line of 20.0 MiB' over.svg || fail 'what is above the line is not named'
    run plan nano --svg none.svg --max-model-len 300
    expect_status 0
    grep -q 'class="water"' none.svg && fail 'a line is drawn where there is none'
    run plan nano --svg nowhere/x.svg
    expect_status 3
    run plan nano --svg /dev/full
    expect_status 3
}

case_reserve()
{
    cp "$(dirname "$program")/../tests/fuzz/corpus/config/flash.json" flash.json 2>/dev/null || {
        run synth flash --preset flash --headers-only
        cp flash/config.json flash.json
    }
    run plan flash.json --json --reserve padded --max-num-batched-tokens 8195
    expect_status 0
    expect_value reserve.0.name padded.output
    expect_value reserve.0.formula '8195 tokens * 64 heads * 512 * 2'
    expect_value reserve.0.bytes 537067520
    run plan flash.json --json --reserve vllm
    expect_value reserve.0.bytes 1002240
    expect_value reserve.1.bytes 823680
    expect_value reserve.2.bytes 786240
    expect_value reserve.3.bytes 870912
    expect_value reserve.4.bytes 656640
    expect_value reserve.6.name vllm.per_token
    expect_value reserve.6.bytes 3850
    run plan flash.json --reserve vllm
    expect_out '^vllm.page.full +1002240 '
    run plan flash.json --reserve sglang
    expect_status 2
}

case_share_of_a_named_machine()
{
    model
    run plan nano --json --memory-utilization 0.5 --machine-memory 1GiB
    expect_status 0
    expect_value budget_bytes 536870912
    run plan nano --memory-utilization 0.5
    expect_status 2
    expect_err 'want --machine-memory BYTES beside it'
    run plan nano --machine-memory 1GiB
    expect_status 2
    run plan nano --memory 1GiB --memory-utilization 0.5 --machine-memory 1GiB
    expect_status 2
    run plan nano --memory-utilization 0 --machine-memory 1GiB
    expect_status 2
    run plan nano --memory-utilization 1.5 --machine-memory 1GiB
    expect_status 2
}

# A guide and its program disagreed: 800 K tokens in the one, 200,000 in the other. What docs/MEMORY.md shows is what comes
# out, within 1 %; at level scalar, which every machine has.
case_s44_documented_plans()
{
    doc=$(cd "$(dirname "$program")/../docs" 2>/dev/null && pwd)/MEMORY.md
    [ -f "$doc" ] || skip 'docs/MEMORY.md is not there'
    for model in flash pro; do
        run synth $model --preset $model --headers-only
        command=$(sed -n "s/^    plimsoll \(plan $model .*\) --level avx2$/\1/p" "$doc")
        [ -n "$command" ] || fail "no plan of $model is documented"
        sed -n "/^    plimsoll plan $model /,/^    fits/p" "$doc" >shown
        run $command --level scalar --json
        expect_status 0
        total=$(value total_bytes)
        shown=$(awk '$1 == "total" {print $2}' shown)
        [ "$((total - shown))" -lt "$((total / 100))" ] && [ "$((shown - total))" -lt "$((total / 100))" ] ||
            fail "$model: the plan is $total bytes, docs/MEMORY.md shows $shown"
        grep -q "one request: $(value per_request.fixed_bytes) bytes and $(value per_request.bytes_per_128_tokens) for" \
            shown || fail "$model: a request takes other bytes than docs/MEMORY.md shows"
    done
}
