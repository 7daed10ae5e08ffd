# plimsoll synth as its users see it; bytes of every preset are compared in tests/unit/test_synth.c.

# Digest of config.json, the index and the shards, as recorded from the oracle in tests/unit/synth_digests.h.
case_unusual_config_is_the_oracles()
{
    printf '{"vocab_size": 77, "num_nextn_predict_layers": 0, "num_hash_layers": 9}' >o.json
    run synth m --preset nano --seed 0 --config o.json
    expect_status 0
    expect_empty err
    expect_out '^m: 4[0-9]+ tensors in 7 shards, [0-9]+ bytes of data$'
    got=$(cat m/config.json m/model.safetensors.index.json m/model-*.safetensors | sha256sum)
    [ "${got%% *}" = e430ea7a916dbdb971d6fac3af4f957a245f9de26c96c3f7c854badbf2c556f8 ] ||
        fail "digest is $got"
}

case_threads_do_not_show()
{
    run synth one --preset micro --threads 1
    run synth three --preset micro --threads 3
    diff -r one three || fail 'one thread and three write different bytes'
}

case_seeds_show()
{
    run synth one
    run synth other --seed 2
    cmp -s one/config.json other/config.json || fail 'config.json depends on the seed'
    ! cmp -s one/model-00002-of-00008.safetensors other/model-00002-of-00008.safetensors ||
        fail 'seeds 1 and 2 write the same layer'
}

case_inspect_takes_every_layout()
{
    for options in '' --base --dspark --no-mtp '--layers 3' '--ratios 128,0,4' '--layers 9 --ratios 4' \
        '--experts 3' '--experts 1' '--vocab 4097'; do
        rm -rf m
        # shellcheck disable=SC2086 # words
        run synth m --preset nano $options
        expect_status 0
        run inspect m --json
        expect_status 0
        expect_json
    done
}

case_headers_only_is_inspected_but_holds_no_data()
{
    run synth m --preset flash --headers-only
    expect_status 0
    [ "$(du -sk m | cut -f 1)" -lt 100000 ] || fail 'the files are not sparse'
    run inspect m
    expect_status 0
    expect_out '69187 tensors|tensors  *69187' 'no data'
    run inspect m --digest
    expect_status 2
    expect_err 'm: checkpoint has shapes only'
    rm -rf m
    run synth m --headers-only # small enough for a digest unasked
    run inspect m
    expect_status 0
    expect_out '^digest  *not made: the files hold no data'
}

case_a_folder_in_use_is_kept()
{
    mkdir m
    printf 'mine' >m/model-00001-of-00002.safetensors
    run synth m
    expect_status 2
    expect_err "^plimsoll: m: folder is not empty \(got 1 entries such as 'model-00001-of-00002.safetensors'"
    [ "$(ls m)" = model-00001-of-00002.safetensors ] || fail 'the folder was changed'
    run synth m --force
    expect_status 0
    [ ! -e m/model-00001-of-00002.safetensors ] || fail 'the old shard is still there'
    run synth m
    expect_status 0
    run synth m --vocab 64
    expect_status 2
}

case_what_cannot_be_made()
{
    printf x >file
    for options in 'm --preset huge' 'm --layers 6' 'm --ratios 4,,4' 'm --dspark --no-mtp' 'm --seed -1' \
        'm --config nowhere' 'm --config file' 'file' 'file/m'; do
        # shellcheck disable=SC2086 # words
        run synth $options
        expect_status 2
        [ ! -e m ] || fail "$options left a folder"
    done
    run synth /proc/plimsoll
    expect_status 3
}

# More than any disk: 500 TB in 256 wide layers.
case_a_full_disk_is_found_first()
{
    printf '{"hidden_size": 65536, "moe_intermediate_size": 65536}' >o.json
    run synth m --preset pro --layers 256 --ratios 4 --experts 300 --config o.json
    expect_status 3
    expect_err '^plimsoll: m: not enough room on the disk \(got [0-9]+ bytes free, want [0-9]+\)$'
    [ ! -e m ] || fail 'a folder was left'
}

case_a_size_limit_leaves_nothing_that_looks_whole()
{
    (
        ulimit -f 2000
        run synth m
        expect_status 3
        expect_err 'm: cannot'
    ) || exit
    [ ! -e m/model.safetensors.index.json ] || fail 'there is an index'
    [ "$(ls -A m | grep -c partial)" = 0 ] || fail 'there is a file in the making'
    run inspect m
    expect_status 2
    run synth m
    expect_status 0
}
