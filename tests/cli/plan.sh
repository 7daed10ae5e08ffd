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
