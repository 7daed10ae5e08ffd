# plimsoll inspect: checkpoints of every storage, and the kinds of damage that a download meets.

# The digests are those of the oracle's checkpoint, made by other code from the description in model/digest.h.
case_inspect_of_an_instruct_checkpoint()
{
    run synth m --preset nano
    run inspect m --json
    expect_status 0
    expect_empty err
    expect_json
    expect_value architecture.model_type deepseek_v4
    expect_value variant instruct
    expect_value tensors.total 508
    expect_value tensors.mtp 87
    expect_value bytes.total 8863518
    expect_value drafter.kind mtp
    expect_value header_digest e2c720a8772d2ac5ab0838488014fb9f
    expect_value digest a86eb86c7c5c148daa789bb58a17e151
    run inspect m
    expect_status 0
    expect_out '^tensors +508 in 8 files, 8863518 bytes' '^problems +none$'
}

case_inspect_of_base_and_refresh()
{
    run synth base --preset nano --base
    run inspect base --json
    expect_value variant base
    expect_value tensors.copies 2
    expect_value storage.expert_scale F32
    run synth refresh --preset nano --dspark
    run inspect refresh --json
    expect_status 0
    expect_value drafter.kind dspark
    expect_value drafter.blocks 3
    run inspect refresh
    expect_out '^drafter +dspark: .*is not run$'
}

# 69,187 tensors and 160 GB, from headers of sparse files.
case_inspect_of_released_sizes()
{
    run synth m --preset flash --headers-only
    run inspect m --json
    expect_status 0
    expect_value tensors.total 69187
    expect_value bytes.total 159609485896
    expect_value parameters 284332240471
    expect_value files 46
    expect_out '^  "digest": null,$'
    run inspect m
    expect_out '^per token +11\.22 GB read: dense part 7\.768 GB, routed experts 3\.449 GB$'
}

case_inspect_of_a_cut_shard()
{
    run synth m --preset nano
    shard=m/model-00003-of-00008.safetensors
    truncate -s -1 $shard
    run inspect m --json
    expect_status 2
    expect_err "^plimsoll: $shard: [a-z0-9._]+: data_offsets: outside the file"
    truncate -s 100 $shard
    run inspect m
    expect_status 2
    expect_err "^plimsoll: $shard: header is cut off"
    : >$shard
    run inspect m
    expect_status 2
    expect_err "^plimsoll: $shard: not a safetensors file"
    rm $shard
    run inspect m
    expect_status 2
    expect_err "^plimsoll: $shard: cannot open"
}

case_inspect_of_what_is_no_checkpoint()
{
    mkdir empty
    run inspect empty
    expect_status 2
    expect_err '^plimsoll: empty/config.json: cannot open'
    run inspect nowhere
    expect_status 2
    echo '{"model_type": "deepseek_v41"}' >empty/config.json
    run inspect empty
    expect_status 2
    expect_err '^plimsoll: empty/config.json: model_type: DeepSeek-V4\.1 '
    run inspect empty/config.json
    expect_status 2
    expect_err 'not a checkpoint folder'
}

case_inspect_lists_tensors()
{
    run synth m --preset nano
    run inspect m --tensors
    expect_status 0
    expect_out '^layers\.0\.attn\.wq_b\.weight F8_E4M3 \[2048, 128\] 262144 model-00002-of-00008\.safetensors model$'
    run inspect m --tensors --json
    expect_json
    [ "$(grep -c '"role": "model"' out)" -eq 508 ] || fail 'not 508 tensors are listed'
}
