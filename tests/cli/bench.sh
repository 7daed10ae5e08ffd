# plimsoll bench: shape of its results, not their size.

case_ops_one_shape_as_json()
{
    run bench ops --quick --seconds 0 --threads 2 --op linear_fp8 --shape 'm1 n256 k256' --json
    expect_status 0
    expect_json
    expect_empty err
    expect_value rows.0.op linear_fp8
    expect_value rows.0.shape 'm1 n256 k256'
    expect_value rows.0.limit read
    expect_value rows.0.threads 2
    for key in read_gbps_1 read_gbps fp32_gflops_1 fp32_gflops bf16_gflops_1 bf16_gflops; do
        value limits.$key | awk '{ exit !($1 > 0) }' || fail "limits.$key is not above 0"
    done
    # 256 * 256 codes and 2 * 2 scales; 2 operations for each weight
    printf '%s\n' "$(value rows.0.ns)" "$(value rows.0.gbps)" "$(value rows.0.gflops)" "$(value rows.0.limit_rate)" \
        "$(value rows.0.percent)" | awk '
        { v[NR] = $1 }
        function near(a, b) { return a > 0 && a / b > 0.99 && a / b < 1.01 }
        END { exit !(near(v[2] * v[1], 65540) && near(v[3] * v[1], 131072) && near(v[5], 100 * v[2] / v[4])) }' ||
        fail 'bytes, operations or percent do not belong together'
}

case_ops_products_are_bound_by_multiply_adds()
{
    run bench ops --quick --seconds 0 --threads 1 --level scalar --op linear_fp4 --shape 'm3 n128 k256' --json
    expect_status 0
    expect_json
    expect_value rows.0.limit fp32
    expect_value rows.0.level scalar
    expect_value rows.0.threads 1
    ! "$json" out rows.1 >/dev/null 2>&1 || fail 'more than one row'
}

case_ops_every_operator_runs()
{
    for shape in 'linear_fp8=m2 n128 k128' 'linear_fp8_a16=m1 n1024 k128' 'linear_fp4=m6 n16 k128' \
        'linear_bf16=m1 n16 k128' 'linear_fp4_grouped=m3 top2 e4 n16 k128' 'attention=h4 keys160 fp8' \
        'attention_varlen=h2 d64 q16 k24 causal' 'attention_sparse=h4 keys160 fp8' 'attention_sparse=h33 keys9 bf16' \
        'rope=t2 h2' 'hadamard=t3' 'swiglu7=t2 d128' 'map=n99 f2' 'kv_insert=t9 v4' 'kv_gather=t9 v32' \
        'indexer=h2 keys64 top8' 'index_query=t2 h2' 'compress=t9 ratio4 d512' 'rms_norm=t2 d128' \
        'quantise=t2 d128' 'q_norm_rope=t2 h2' 'unrope=t2 h2' 'hc_dots=t2 d128' 'hc_pre=t2 d128' \
        'hc_post=t2 d128' 'route=t2 top2 e8' 'swiglu=t2 d128' 'moe_sum=t2 top2 e8 d128'; do
        run bench ops --quick --seconds 0 --threads 2 --op "${shape%%=*}" --shape "${shape#*=}"
        expect_status 0
        expect_out "^${shape%%=*} +${shape#*=} "
    done
}

case_ops_refusals()
{
    run bench ops --op nothing
    expect_status 2
    expect_err 'unknown operator \(got .nothing., want linear_fp8, '
    run bench ops --shape 'm1 n16 k128'
    expect_status 2
    expect_err 'want --op NAME'
    run bench ops --op linear_fp8 --shape 'm1 n16'
    expect_status 2
    expect_err "want numbers behind each of m n k, as in 'm1 n8192 k4096'"
    run bench ops --quick --op linear_fp8 --shape 'm1 n16 k100'
    expect_status 2
    run bench ops --quick --op linear_bf16 --shape 'm1 n1048576 k8192'
    expect_status 2
    expect_err 'larger than the store'
    run bench ops --level f64
    expect_status 2
    run bench ops --level nothing
    expect_status 2
}

# 2 layers of nano: figures of each part, and arithmetic that holds between them.
case_latency()
{
    "$program" synth slice --layers 2 --ratios 4,128 >/dev/null || fail 'no model'
    run bench latency slice --threads 2 --seconds 0 --prefill 24,40 --contexts 128,256 --batches 1,3 \
        --depths 0,2 --batch-context 128 --max-num-batched-tokens 16 --svg chart.svg --json
    expect_status 0
    expect_json
    expect_empty err
    i=0
    for want in prefill,24,1,0 prefill,40,1,0 decode,128,1,0 decode,256,1,0 decode,128,1,0 decode,128,3,0 \
        verify,128,1,2 verify,128,1,2; do
        for part in layers head all; do
            got=$(value rows.$i.phase),$(value rows.$i.context),$(value rows.$i.batch),$(value rows.$i.k)
            [ "$got,$(value rows.$i.part)" = "$want,$part" ] || fail "row $i is $got, want $want $part"
            i=$((i + 1))
        done
    done
    ! "$json" out rows.$i >/dev/null 2>&1 || fail 'more rows than asked for'
    expect_value rows.0.synthetic false
    expect_value rows.6.synthetic true
    expect_value rows.18.experts routed
    expect_value rows.21.experts equal
    # parts add up; equal experts are those of one token; a sequence's tokens cost what those of three do
    printf '%s\n' "$(value rows.18.ms)" "$(value rows.19.ms)" "$(value rows.20.ms)" "$(value rows.12.bytes_touched)" \
        "$(value rows.21.bytes_touched)" "$(value rows.12.flops)" "$(value rows.15.flops)" \
        "$(value rows.12.tokens_per_s)" "$(value rows.12.ms)" | awk '
        { v[NR] = $1 }
        function near(a, b) { return a > 0 && a / b > 0.99 && a / b < 1.01 }
        END { exit !(near(v[1] + v[2], v[3]) && near(v[4], v[5]) && near(3 * v[6], v[7]) && near(v[8] * v[9], 1000)) }' ||
        fail 'times, bytes or operations do not belong together'
    for op in linear_fp8 linear_fp4 attention compress index_topk; do
        value rows.6.operators.$op | awk '{ exit !($1 > 0) }' || fail "operators.$op is not above 0"
    done
    value rows.6.regions_per_layer | awk '{ exit !($1 > 0) }' || fail 'no parallel regions'
    grep -q '^</svg>$' chart.svg || fail 'the picture is not whole'
    grep -q 'decode 256, batch 1<' chart.svg || fail 'the picture lacks a figure'
}

# Every depth is measured, and the choice is the one that the figures ask for.
case_latency_auto()
{
    "$program" synth nano >/dev/null || fail 'no model'
    run bench latency nano --threads 2 --seconds 0 --prefill 0 --contexts 128 --batches 1,2 --depths auto \
        --batch-context 128 --json
    expect_status 0
    expect_json
    expect_empty err
    : >depths
    for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do
        printf '%s %s %s %s\n' "$(value depths.$i.batch)" "$(value depths.$i.k)" "$(value depths.$i.verify_ms)" \
            "$(value depths.$i.draft_ms)" >>depths
    done
    ! "$json" out depths.18 >/dev/null 2>&1 || fail 'more depths than asked for'
    expect_value choices.1.acceptance 0.5
    expect_value choices.8.acceptance 0.5
    ! "$json" out choices.14 >/dev/null 2>&1 || fail 'more choices than asked for'
    for i in 0 6 7 13; do
        printf '%s %s %s %s %s\n' "$(value choices.$i.batch)" "$(value choices.$i.acceptance)" "$(value choices.$i.k)" \
            "$(value choices.$i.tokens_per_s)" "$(value choices.$i.gain)" | cat depths - | awk '
            NR <= 18 { bad = bad || $1 != (NR > 9) + 1 || $2 != (NR - 1) % 9 || $3 <= 0 || $4 <= 0
                       n[NR] = $1; k[NR] = $2; verify[NR] = $3; draft[NR] = $4 }
            function near(a, b) { return a / b > 0.999 && a / b < 1.001 }
            NR > 18 { for (i = 1; i <= 18; i++) if (n[i] == $1) {
                          tokens = chance = 1
                          for (d = 0; d < k[i]; d++) tokens += chance *= $2
                          rate = 1000 * n[i] * tokens / (verify[i] + draft[i])
                          best = rate > best ? rate : best; if (k[i] == $3) chosen = rate
                          if (!k[i]) plain = 1000 * n[i] / verify[i] } }
            END { exit bad || !near(chosen, best) || !near(best, $4) || !near(best / plain, $5) }' ||
            fail "choice $i is not what the figures ask for"
    done
    run bench latency nano --threads 2 --seconds 0 --prefill 0 --contexts 128 --batches 1 --depths auto --batch-context 128
    expect_status 0
    expect_out '^the depth that pays$' '^drafts: ms of a step$'
    "$program" synth plain --no-mtp >/dev/null || fail 'no model'
    run bench latency plain --depths auto
    expect_status 2
    expect_err 'auto wants a model that drafts \(got plain, which has no mtp block\)'
}

case_latency_refusals()
{
    "$program" synth nano >/dev/null || fail 'no model'
    run bench latency nano --contexts 100
    expect_status 2
    expect_err 'got 100, want multiples of 128'
    run bench latency nano --batches 4,1
    expect_status 2
    expect_err 'ascending'
    run bench latency nano --batches 65
    expect_status 2
    run bench latency nano --depths 1,x
    expect_status 2
    run bench latency nano --depths 0,9
    expect_status 2
    run bench latency nano --contexts 1g
    expect_status 2
    run bench latency nano --level f64
    expect_status 2
    run bench latency no-such-folder
    expect_status 2
    "$program" synth hollow --headers-only >/dev/null || fail 'no model'
    run bench latency hollow
    expect_status 2
    expect_err 'headers without data'
}

case_load()
{
    "$program" synth nano >/dev/null || fail 'no model'
    run bench load nano --threads 2 --repeat 1 --load buffered --json
    expect_status 0
    expect_json
    expect_value rows.0.mode buffered
    expect_value rows.0.refused null
    printf '%s %s %s\n' "$(value rows.0.gbps)" "$(value rows.0.plain_gbps)" "$(value rows.0.percent)" |
        awk '{ exit !($1 > 0 && $2 > 0 && $3 > 0) }' || fail 'a figure is not above 0'
    run bench load nano --repeat 1
    expect_status 0
    expect_out '^buffered ' '^direct '
    run bench load no-such-folder
    expect_status 2
}

# Both ways give the same bits and say which it was.
case_run_says_how_it_read()
{
    "$program" synth nano >/dev/null || fail 'no model'
    run run nano --tokens 1,2,3 --max-tokens 2 --json --load buffered
    expect_status 0
    expect_value timing.load_mode buffered
    first=$(value results.0.digest)
    run run nano --tokens 1,2,3 --max-tokens 2 --json --load direct
    if [ $status = 2 ]; then
        expect_err 'has no direct reads'
        run run nano --tokens 1,2,3 --max-tokens 2 --json --load auto
        expect_value timing.load_mode buffered
        expect_value timing.load_reason 'the file system has no direct reads'
    else
        expect_status 0
        expect_value timing.load_mode direct
    fi
    expect_value results.0.digest "$first"
    run run nano --tokens 1 --load sideways
    expect_status 2
}

# The program raises its own limit of open files as far as it may, and says what to do where that is too low.
case_many_shards_and_few_files()
{
    "$program" synth flash --preset flash --headers-only >/dev/null || fail 'no model'
    [ "$(ls flash/*.safetensors | wc -l)" -gt 30 ] || fail 'too few shards to tell'
    (ulimit -Sn 20 && exec "$program" inspect flash) >out 2>err || fail 'a soft limit stopped it'
    last_command='ulimit -n 20; plimsoll inspect flash'
    (ulimit -n 20 && exec "$program" inspect flash) >out 2>err
    status=$?
    check_promise
    expect_status 3
    expect_err 'Too many open files, want a higher limit: ulimit -n'
}

case_kinds()
{
    run bench
    expect_status 2
    run bench nothing
    expect_status 2
    expect_err "unknown kind \\(got 'nothing'\\)"
    run bench --help
    expect_status 0
    expect_out '^  ops ' '^  latency '
    run bench ops --help
    expect_status 0
    expect_out '^  --json '
}
