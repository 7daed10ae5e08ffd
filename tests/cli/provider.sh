# Providers of attention: list, check, stats, explain, and plan --provider. PL_PROVIDER_DIR has the test providers.

lib()
{
    printf '%s/libprovider_%s.so' "$PL_PROVIDER_DIR" "$1"
}

ours()
{
    printf '%s/../../src/ffi/libplimsoll_ffi.so' "$PL_PROVIDER_DIR"
}

case_kinds()
{
    run provider
    expect_status 2
    run provider nothing
    expect_status 2
    expect_err "unknown kind \(got 'nothing'\)"
    for kind in list check stats explain; do
        run provider $kind --help
        expect_status 0
        expect_out "^usage: plimsoll provider $kind" '^options:$' '^  --json '
    done
}

case_list()
{
    run provider list --json
    expect_status 0
    expect_value providers.0.name builtin
    expect_value providers.0.usable true
    expect_value providers.0.operators.0.operator attention_varlen
    expect_value providers.0.operators.1.lse_empty +inf
    expect_value providers.0.operators.1.caches.2 v32
    expect_value providers.0.operators.2.operator attention_sparse_decode
    expect_value providers.0.operators.2.second_set true
    run provider list --json "$(lib padded)" "$(lib drift)"
    expect_value providers.1.name padded
    expect_value providers.1.operators.0.heads 64
    expect_value providers.1.operators.0.pages false
    expect_value providers.1.operators.0.transient_bytes_per_token 65536
    expect_value providers.2.usable false
    expect_value providers.2.reason abi
    run provider list "$(lib bare)"
    expect_status 0
    expect_out 'not usable, symbols: test_attention_workspace_size'
    run provider list nowhere.so
    expect_status 2
    expect_err 'nowhere.so: no such library'
}

# The value of KEY in the finding of CLAIM.
finding()
{
    i=0
    while "$json" out "findings.$i.claim" >claim 2>/dev/null; do
        if [ "$(cat claim)" = "$1" ]; then
            expect_value "findings.$i.$2" "$3"
            return
        fi
        i=$((i + 1))
    done
    fail "no finding $1"
}

case_check_our_own()
{
    run provider check "$(ours)" --json
    expect_status 0
    expect_value name plimsoll
    expect_value conforms true
    for claim in attention_varlen.types.bf16 attention_varlen.types.fp16 attention_varlen.magi2.native \
        attention_varlen.magi2.corrected attention_varlen.short attention_sparse.types.bf16 attention_varlen.pages \
        attention_sparse.cache.bf16.pages attention_sparse.cache.v4 attention_sparse.cache.v32 attention_sparse.second_set \
        attention_sparse_decode.cache.v4 attention_sparse_decode.seq_tokens; do
        finding $claim holds true
    done
    finding attention_varlen.short cases 31
    finding abi holds null
    expect_out '^ *"max_abs_out": 0\.0[0-9]+,$' '^ *"max_abs_lse": [0-9.e-]+,$'
    run provider check "$(ours)"
    expect_out '^largest absolute difference: out 0\.0[0-9]+, LSE [0-9.e-]+$'
    expect_out 'claim .*out +lse' '^attention_varlen.magi2.native +holds +1 +0\.[0-9]+ +[0-9.e-]+' '^conforms$'
}

case_check_others()
{
    for name in padded base2 undeclared; do
        run provider check "$(lib $name)" --json
        expect_status 0
        expect_value conforms true
    done
    finding attention_varlen.short cases 0
    finding attention_varlen.pages holds null
    run provider check "$(lib liar)" --json
    expect_status 1
    expect_value conforms false
    finding attention_varlen.types.bf16 holds false
    finding attention_varlen.sink.native holds false
    finding attention_varlen.workspace holds true
    run provider check "$(lib writer)" --json
    expect_status 1
    finding attention_varlen.types.bf16 detail 'wrote outside of its outputs'
    run provider check "$(lib failing)"
    expect_status 1
    expect_out 'BROKEN' 'RuntimeError: test_attention: no tiles are left' '^does not conform$'
    run provider check "$(lib crashing)"
    expect_status 1
    expect_empty out
    expect_err 'crashed \(got signal [0-9]+'
    for name in drift bare unknown; do
        run provider check "$(lib $name)" --json
        expect_status 1
        finding loads holds false
    done
    run provider check nowhere.so
    expect_status 2
    echo text >text.so
    run provider check text.so --json
    expect_status 1
    finding loads holds false
}

case_pin()
{
    run provider check "$(lib padded)" --write-pin pin --json
    expect_status 0
    run provider check "$(lib padded)" --pin pin --json
    expect_status 0
    finding abi holds true
    run provider check "$(lib base2)" --pin pin --json
    expect_status 1
    finding abi detail 'version: drift (got 1.0, want 0.2.4+test)'
    finding attention_varlen.types.bf16 holds true
    sed 's/"fingerprint": "./"fingerprint": "x/' pin >drifted
    run provider check "$(lib padded)" --pin drifted --json
    expect_status 1
    finding abi holds false
    echo '{}' >drifted
    run provider check "$(lib padded)" --pin drifted
    expect_status 2
    run provider check "$(lib liar)" --write-pin nothing
    expect_status 1
    [ ! -e nothing ] || fail 'a library that does not conform is pinned'
}

case_stats()
{
    run provider stats "$(lib padded)" --json
    expect_status 0
    expect_value unit calls
    expect_value counters.0.provider builtin
    expect_value counters.0.reason direct
    expect_value counters.0.calls 10
    run provider stats "$(lib padded)"
    expect_out '^builtin +direct +10$' '^builtin +capture +1$' '^padded +direct +1$' '^padded +query +2$' \
        '^padded +operator +7$'
    run provider stats "$(lib padded)" --explain
    expect_out '^DeepSeek-V4 Flash, prefill: padded$' '^MAGI-2, 272p: builtin$' '^  padded +operator +attention_varlen: not'
    run provider stats "$(lib padded)" --explain --json
    expect_value calls.4.provider padded
    expect_value calls.8.candidates.0.reason operator
    run provider stats --explain --url http://127.0.0.1:1
    expect_status 2
    run provider stats --url http://127.0.0.1:1
    expect_status 3
    run provider stats --url http://127.0.0.1:1 "$(lib padded)"
    expect_status 2
}

case_explain()
{
    run provider explain "$(lib padded)" --op attention_sparse --json
    expect_status 0
    expect_value provider padded
    expect_value candidates.0.reason direct
    run provider explain "$(lib padded)" --op attention_sparse --heads 8 --json
    expect_status 0
    expect_value provider builtin
    expect_value candidates.0.reason query
    run provider explain "$(lib padded)" --op attention_sparse --heads 8 --backend padded --json
    expect_status 1
    expect_value provider padded
    expect_value candidates.0.reason query
    run provider explain "$(lib base2)" --heads 24 --sink --native-sink
    expect_status 0
    expect_out '^builtin$' '^  variant2 +sink_native '
    run provider explain "$(lib base2)" --heads 24 --sink
    expect_out '^variant2$'
    run provider explain "$(lib padded)" --op attention_sparse --capture-unknown --backend padded
    expect_status 1
    expect_out 'capture: unknown'
    run provider explain "$(lib forms)" --op attention_sparse_decode --cache v4 --second-set --seq-tokens 2 --json
    expect_value provider forms
    run provider explain "$(lib forms)" --op attention_sparse_decode --cache v4 --seq-tokens 3 --json
    expect_value candidates.0.reason seq_tokens
    run provider explain "$(lib padded)" --op attention_sparse --second-set --backend padded --json
    expect_value candidates.0.reason second_set
    run provider explain "$(lib padded)" --op attention_sparse --cache v4 --backend padded --json
    expect_value candidates.0.reason cache
    run provider explain "$(lib base2)" --page-size 16 --keys 100000 --backend variant2 --json
    expect_value candidates.0.reason pages
    run provider explain "$(lib forms)" --page-size 16 --keys 100000 --json
    expect_value provider forms
    run provider explain --backend nobody
    expect_status 2
}

case_plan_tells_the_transient()
{
    run synth nano --preset nano
    run plan nano --json --max-num-batched-tokens 512 --provider "$(lib padded)"
    expect_status 0
    expect_value reserve.0.name provider.padded
    expect_value reserve.0.formula '512 tokens * 64 heads * 512 * 2'
    expect_value reserve.0.bytes 33554432
    run plan nano --json --max-num-batched-tokens 8195 --provider "$(lib padded)" --reserve padded
    expect_value reserve.0.bytes 537067520
    expect_out 'provider.padded'
    run plan nano --provider "$(ours)"
    expect_out '^provider.plimsoll +0 '
    run plan nano --provider "$(lib drift)"
    expect_status 2
    expect_err 'cannot be used: abi: '
}
