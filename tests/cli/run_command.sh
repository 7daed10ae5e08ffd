# plimsoll run: tokens and text out, the promised JSON, the line.

model()
{
    run synth nano --preset nano
    expect_status 0
}

# At or below the plan, and not far below. Sanitizers take memory that no plan knows of.
expect_peak_at_plan()
{
    grep -aqE '__asan_init|__tsan_init' "$program" && return
    plan=$(value memory.plan_bytes)
    peak=$(value memory.peak_resident_bytes)
    [ "$peak" -le "$plan" ] || fail "the peak, $peak, is above the plan, $plan"
    [ "$plan" -le $((peak * 101 / 100 + 8388608)) ] || fail "the plan, $plan, is far above the peak, $peak"
}

demo=$(cd "$(dirname "$program")/../models/demo" 2>/dev/null && pwd)

case_tokens()
{
    model
    run run nano --tokens 1,2,3 --max-tokens 5 --json
    expect_status 0
    expect_json
    expect_value results.0.prompt_tokens '[1,2,3]'
    expect_value results.0.finish_reason length
    expect_value results.0.text null
    expect_value usage.prompt_tokens 3
    expect_value usage.completion_tokens 5
    expect_value speculation.k 0
    # The first token comes with the prompt.
    expect_value speculation.steps 4
    expect_value numerics.version 1
    expect_value numerics.class 1
    value results.0.digest | grep -Eq '^[0-9a-f]{32}$' || fail 'digest is not 32 hex digits'
    expect_peak_at_plan
    digest=$(value results.0.digest)
    run inspect nano --json
    checkpoint=$(value digest)
    run run nano --tokens '1 2
3' --max-tokens 5 --json --threads 3 --max-num-batched-tokens 1
    expect_value results.0.digest "$digest"
    expect_value numerics.checkpoint "$checkpoint"
    printf '1, 2\t3\n' >ids
    run run nano --tokens-file ids --max-tokens 5 --json
    expect_value results.0.digest "$digest"
}

case_plan_and_run_agree()
{
    model
    for options in '' '--threads 3 --max-num-batched-tokens 17' '--max-num-seqs 5'; do
        run plan nano --json --max-model-len 8 --max-num-seqs 1 $options
        total=$(value total_bytes)
        run run nano --json --tokens 1,2,3 --max-tokens 5 $options
        expect_status 0
        expect_value memory.plan_bytes "$total"
    done
    # More prompts than places, drafts, ranks: all options alike, and the plan does not change.
    for options in '--max-num-seqs 1' '--max-num-seqs 2 --num-speculative-tokens 2' '--max-num-seqs 2 --ranks 3'; do
        run plan nano --json --max-model-len 300 $options
        total=$(value total_bytes)
        run run nano --json --max-model-len 300 --tokens 1,2,3 --tokens 4 --tokens 5,6 --tokens 7 --max-tokens 5 $options
        expect_status 0
        expect_value memory.plan_bytes "$total"
        expect_peak_at_plan
    done
}

# What prompts and results take beside the places is bounded by the plan; beyond that the smallest change is named.
case_more_prompts_than_the_plan_holds()
{
    model
    set --
    for i in 1 2 3 4 5 6 7 8 9; do
        set -- "$@" --tokens $i
    done
    run run nano "$@" --max-tokens 40000 --max-num-seqs 1 --ignore-eos
    expect_status 1
    [ ! -s out ] || fail 'standard output is not empty'
    expect_err '^plimsoll: run: 9 prompts and their results are more than heap.prompts .*--max-num-seqs [2-9] instead of 1$'
    enough=$(sed -n 's/.*--max-num-seqs \([0-9]*\) instead.*/\1/p' err)
    run run nano "$@" --max-tokens 40000 --max-num-seqs $((enough - 1)) --ignore-eos
    expect_status 1
    expect_err "got .*--max-num-seqs $enough instead of $((enough - 1))\$"
}

case_two_lines()
{
    model
    run run nano --tokens 1 --max-tokens 1 --memory 1GiB --memory-utilization 0.5
    expect_status 2
    expect_err '^plimsoll: --memory-utilization: a second line beside --memory'
    run serve nano --memory 1GiB --memory-utilization 0.5
    expect_status 2
    expect_err 'a second line beside --memory'
}

# in_group BYTES ARGUMENT...: as run, in a control group with that hard limit of memory; skips where none can be made.
in_group()
{
    limit=$1
    shift
    path=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
    if [ -n "$path" ]; then
        parent=/sys/fs/cgroup/memory$path
        limit_file=memory.limit_in_bytes
    else
        parent=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
        limit_file=memory.max
    fi
    group=$parent/plimsoll-test-$$
    mkdir "$group" 2>/dev/null || skip 'no control group can be made here'
    if [ ! -w "$group/$limit_file" ] || ! echo "$limit" 2>/dev/null >"$group/$limit_file"; then
        rmdir "$group"
        skip 'the control group has no limit of memory'
    fi
    last_command="plimsoll $* (in a control group of $limit bytes)"
    sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$program" "$@" </dev/null >out 2>err
    status=$?
    rmdir "$group"
}

# What the plan says a control group is charged is enough as its hard limit, page cache and kernel included; a line above
# what the group gives is refused before anything is taken.
case_hard_limit_of_a_control_group()
{
    grep -aqE '__asan_init|__tsan_init' "$program" && skip 'sanitizers take memory that no plan knows of'
    model
    for options in '--max-num-seqs 2' '--max-num-seqs 4 --ranks 2 --num-speculative-tokens 2 --max-num-batched-tokens 64'; do
        run plan nano --json --max-model-len 2000 $options
        total=$(value total_bytes)
        charged=$(value charged_bytes)
        run run nano --json --max-model-len 2000 --tokens 1,2,3 --max-tokens 12 $options
        expect_status 0
        digest=$(value results.0.digest)
        in_group "$charged" run nano --json --max-model-len 2000 --tokens 1,2,3 --max-tokens 12 --memory "$total" $options
        expect_status 0
        expect_value results.0.digest "$digest"
        expect_value memory.plan_bytes "$total"
        in_group $((total - 4096)) run nano --max-model-len 2000 --tokens 1,2,3 --memory "$total" $options
        expect_status 2
        expect_err '^plimsoll: --memory: more than this machine or its control group gives'
        [ ! -s out ] || fail 'standard output is not empty'
    done
}

case_several_prompts()
{
    model
    run run nano --tokens 4,5 --max-tokens 3 --json
    first=$(value results.0.digest)
    run run nano --tokens 6,7,8,9 --max-tokens 3 --json
    second=$(value results.0.digest)
    # Together, and queued behind each other.
    for seqs in 3 1; do
        run run nano --tokens 4,5 --tokens 6,7,8,9 --tokens 4,5 --max-tokens 3 --json --max-num-seqs $seqs
        expect_status 0
        expect_value results.0.digest "$first"
        expect_value results.1.digest "$second"
        expect_value results.2.digest "$first"
    done
    run run nano --tokens 4,5 --tokens 6 --max-tokens 2
    expect_status 0
    expect_out '^--- 1 ---$' '^--- 2 ---$' '^[0-9]+,[0-9]+$'
}

# The reference level narrows to fp32: other bits, and its own name in the report.
case_level_f64()
{
    model
    run run nano --tokens 4,5 --max-tokens 2 --json --level scalar
    expect_status 0
    expect_value numerics.level scalar
    scalar=$(value results.0.digest)
    run run nano --tokens 4,5 --max-tokens 2 --json --level f64
    expect_status 0
    expect_value numerics.level f64
    [ "$(value results.0.digest)" != "$scalar" ] || fail 'both levels have the same bits'
    expect_peak_at_plan
}

case_sampling()
{
    model
    run run nano --tokens 4,5 --max-tokens 8 --temperature 1.5 --seed 7 --json
    expect_status 0
    seven=$(value results.0.tokens)
    run run nano --tokens 4,5 --max-tokens 8 --temperature 1.5 --seed 7 --json --threads 1
    expect_value results.0.tokens "$seven"
    run run nano --tokens 4,5 --max-tokens 8 --temperature 1.5 --seed 8 --json
    [ "$(value results.0.tokens)" != "$seven" ] || fail 'the seed does not matter'
    run run nano --tokens 4,5 --max-tokens 8 --temperature 1.5 --seed 8 --json --top-k 1
    cp out one
    greedy=$(value results.0.tokens)
    run run nano --tokens 4,5 --max-tokens 8 --json
    expect_value results.0.tokens "$greedy"
}

case_the_demo_speaks()
{
    [ -n "$demo" ] || skip 'models/demo is not there'
    run run "$demo" --prompt 'Once upon a time' --max-tokens 6 --json
    expect_status 0
    expect_value results.0.prompt_tokens.0 0
    expect_peak_at_plan
    value results.0.text >text
    run run "$demo" --prompt 'Once upon a time' --max-tokens 6
    expect_status 0
    expect_out_is text
    run run "$demo" --chat 'What is 2 + 3?' --max-tokens 4 --json
    expect_status 0
    expect_value results.0.prompt_tokens.0 0
    # The stop token is among the tokens and not in the text.
    run run "$demo" --tokens 0,4054,3207,2527,1635,223,21,28,646,447,33,4055,4073 --max-tokens 60 --json
    expect_status 0
    expect_value results.0.finish_reason stop
    value results.0.tokens | grep -Eq ',1\]$' || fail 'the end token is not the last'
    value results.0.text | grep -q 'end▁of▁sentence' && fail 'the end token is in the text'
    :
}

case_refusals()
{
    model
    run run nano
    expect_status 2
    expect_err 'no prompt'
    run run nano --tokens ''
    expect_status 2
    run run nano --tokens 1,x
    expect_status 2
    expect_err 'not a token id at byte 2'
    run run nano --tokens 1,2147483648
    expect_status 2
    run run nano --tokens 512
    expect_status 2
    expect_err 'prompt 1: tokens: token 0 is not in the vocabulary \(got 512, want 0 to 511\)'
    run run nano --tokens-file nowhere
    expect_status 2
    run run nano --prompt hello
    expect_status 2
    expect_err 'tokenizer.json'
    run run nano --tokens 1 --top-p 0
    expect_status 2
    run run nowhere --tokens 1
    expect_status 2
    run run nano/config.json --tokens 1
    expect_status 2
    run run nano --tokens 1,2,3 --max-model-len 3
    expect_status 2
    expect_err 'prompt is too long'
    run synth bare --preset nano --headers-only
    run run bare --tokens 1
    expect_status 2
    expect_err 'without data'
}

case_lines()
{
    model
    run run nano --tokens 1 --memory 10MiB
    expect_status 1
    expect_empty out
    expect_err '^plimsoll: plan: does not fit .*would fit: .*memory_bytes'
    run run nano --tokens 1 --memory 1PiB
    expect_status 2
    expect_err '^plimsoll: --memory: more than this machine'
    run run nano --tokens 1 --memory-utilization 0.0001
    expect_status 1
    run run nano --tokens 1 --memory-utilization 0
    expect_status 2
    run run nano --tokens 1 --max-tokens 2 --kv-cache-memory-bytes 64MiB
    expect_status 0
    expect_err 'kv_cache_memory_bytes limits the caches'
}

case_full_disk()
{
    model
    run_into /dev/full run nano --tokens 1 --max-tokens 2 --json
    expect_status 3
}

case_prompt_from_standard_input()
{
    [ -d "$demo" ] || skip 'the demo model is not here'
    printf 'For God so loved' >in
    run run "$demo" --max-tokens 8 --json
    expect_status 0
    digest=$(value results.0.digest)
    rm in
    run run "$demo" --prompt 'For God so loved' --max-tokens 8 --json
    expect_value results.0.digest "$digest"
    run run "$demo"
    expect_status 2
    expect_err '^plimsoll: run: no prompt, and standard input is empty \(want --prompt'
    printf 'For\000God' >in
    run run "$demo"
    expect_status 2
    expect_err '^plimsoll: standard input: zero byte at 3 '
}

# The second of two equal prompts begins behind the last multiple of 128 of the first, with the same bits.
case_prefix_cache()
{
    model
    ids=$(seq -s , 3 262)
    run run nano --tokens "$ids" --tokens "$ids" --max-num-seqs 1 --max-tokens 3 --prefix-cache-memory 8MiB --json
    expect_status 0
    expect_json
    expect_value results.0.cached_tokens 0
    expect_value results.1.cached_tokens 256
    expect_value usage.prompt_tokens_details.cached_tokens 256
    expect_value results.1.digest "$(value results.0.digest)"
    run run nano --tokens 1 --prefix-cache-memory 100
    expect_status 2
    expect_err 'prefix_cache_memory_bytes: too little for one prefix'
}

case_stats()
{
    [ -d "$demo" ] || skip 'the demo model is not here'
    run run "$demo" --chat 'Who built the ark?' --max-tokens 20 --stats
    expect_status 0
    expect_out 'Noah built the ark\.$'
    expect_err '^[0-9]+ prompt tokens at [0-9.]+ tokens/s, [0-9]+ tokens at [0-9.]+ tokens/s.*; peak memory [0-9.]+ MB of [0-9.]+ MB planned$'
    # With drafts their fate, from the counts that --json has.
    run run "$demo" --chat 'Who built the ark?' --num-speculative-tokens 2 --json
    expect_status 0
    want=$(tr -d '\n' <out | sed -n 's/.*"steps": *\([0-9]*\), *"drafted": *\[\([0-9]*\), *\([0-9]*\)\], *"accepted": *\[\([0-9]*\), *\([0-9]*\)\].*/\1 \2 \3 \4 \5/p' |
        awk 'NF == 5 && $1 && $2 && $3 {
            printf "%d of %d drafts accepted, by position %.2f, %.2f; mean length %.2f, %.2f tokens a step", $4 + $5, $2 + $3, $4 / $2, $5 / $3, 1 + ($4 + $5) / $2, 7 / $1 }')
    [ -n "$want" ] || fail 'no counts in the JSON'
    expect_out '"completion_tokens": 8'
    run run "$demo" --chat 'Who built the ark?' --num-speculative-tokens 2 --stats
    expect_status 0
    grep -qF "$want" err || fail "want $want"
    expect_err -n 'chosen by measurement'
    run run "$demo" --chat 'Who built the ark?' --num-speculative-tokens auto --stats
    expect_status 0
    expect_out 'Noah built the ark\.$'
    expect_err '^drafts a step, chosen by measurement:( [0-8] in [0-9]+ steps,)+ now [0-8]$'
    run run "$demo" --chat 'Who built the ark?' --num-speculative-tokens auto --json
    expect_status 0
    expect_out '"k": 8' '"auto": true' '"depth": [0-8]' '"depth_steps": \['
}

# What became of drafts, of each result and in all: the total is the sum, and the two numbers follow from the counts.
case_speculation_by_result()
{
    model
    run run nano --tokens 1,2,3 --tokens 9,8,7,6 --max-tokens 20 --ignore-eos --num-speculative-tokens 2 --json
    expect_status 0
    expect_value speculation.sampling shared-noise
    for key in steps drafted.0 drafted.1 accepted.0 accepted.1; do
        expect_value "speculation.$key" \
            "$(($(value "results.0.speculation.$key") + $(value "results.1.speculation.$key")))"
    done
    for at in results.0. results.1. ''; do
        for key in drafted.0 drafted.1 accepted.0 accepted.1 acceptance mean_length; do
            value "${at}speculation.$key"
        done | tr '\n' ' ' >counts
        awk '{exit !(NF == 6 && sprintf("%.6f %.6f", ($3 + $4) / ($1 + $2), 1 + ($3 + $4) / $1) == sprintf("%.6f %.6f", $5, $6))}' \
            counts || fail "acceptance and mean length are not those of the counts: $(cat counts)"
    done
    run run nano --tokens 1,2,3 --max-tokens 2 --json
    expect_status 0
    expect_value speculation.k 0
    expect_out '"mean_length": 1\.000000'
    [ "$(grep -o '"speculation"' out | wc -l)" = 1 ] || fail 'results without drafts have counts'
}

# Rejection sampling says what it gives up, is in the plan, and wants drafts.
case_draft_sampling()
{
    model
    run run --help
    expect_out '--draft-sampling HOW .*rejection: samples depend on drafts and company'
    run run nano --tokens 1,2,3 --max-tokens 12 --temperature 1 --num-speculative-tokens 3 \
        --draft-sampling rejection --json
    expect_status 0
    expect_json
    expect_value speculation.sampling rejection
    expect_err '^plimsoll: plan: draft_sampling rejection: sampled tokens depend on drafts and on what shares a step$'
    expect_peak_at_plan
    run run nano --tokens 1,2,3 --max-tokens 12 --num-speculative-tokens 3 --draft-sampling rejection --stats
    expect_status 0
    expect_err 'tokens a step; rejection sampling$'
    run plan nano --num-speculative-tokens 3 --draft-sampling rejection --max-model-len 256
    expect_status 0
    expect_out 'engine.draft_probs'
    run run nano --tokens 1,2,3 --draft-sampling rejection
    expect_status 2
    expect_empty out
    expect_err 'draft_sampling: rejection wants drafts \(got num_speculative_tokens 0, want 1 to 8\)'
    run run nano --tokens 1,2,3 --num-speculative-tokens 3 --draft-sampling maybe
    expect_status 2
    expect_err "draft-sampling.*got 'maybe'"
}

# Long work says on a terminal how far it is, and nothing in a pipe.
case_progress_on_a_terminal()
{
    model
    command -v script >/dev/null || skip 'script (bsdutils) makes the terminal'
    script -qec "$program run nano --tokens 1,2,3 --max-tokens 3 && $program bench latency nano --contexts 128 --batches 1 --depths 0 --prefill 128 --batch-context 128 --seconds 0.1" \
        /dev/null </dev/null | tr '\r' '\n' >out
    status=0
    last_command='run, then bench latency, on a terminal'
    : >err
    expect_out '^reading weights [0-9]+ %' '^[0-9]+ tokens of prompts, [0-9]+ of answers' 'measuring decode, 128 tokens'
    run run nano --tokens 1,2,3 --max-tokens 3
    expect_status 0
    expect_empty err
}

# converse FILE: a conversation on a terminal, FILE typed into it; what the terminal shows goes to `screen`.
converse()
{
    command -v script >/dev/null || skip 'script (bsdutils) makes the terminal'
    script -qec "$program run $demo" /dev/null <"$1" | tr -d '\r' >screen
    last_command="a conversation, $1 typed"
    status=0
    cp screen out
    : >err
}

case_conversation()
{
    [ -d "$demo" ] || skip 'the demo model is not here'
    printf 'Who built the ark?\nRecite Genesis 1:1.\n/clear\n/help\n/quit\n' >typed
    converse typed
    expect_out '^> .*Noah built the ark\.$' 'In the beginning God created the heaven and the earth\.$' \
        'a new conversation' 'end an answer$'
}

case_conversation_goes_on_after_what_is_wrong()
{
    [ -d "$demo" ] || skip 'the demo model is not here'
    printf '\377\376\nHello\n/quit\n' >typed
    converse typed
    expect_out 'not UTF-8' 'Hello\. Ask me for a verse'
}

# seen PATTERN: waits until the terminal shows it, a minute at most.
seen()
{
    for _ in $(seq 600); do
        tr '\r' '\n' <screen | grep -q "$1" && return
        sleep 0.1
    done
}

# Each key is pressed when what it answers is on the screen. Where the answer ends depends on the moment, so the
# next one has a conversation of its own.
case_conversation_is_interrupted()
{
    [ -d "$demo" ] || skip 'the demo model is not here'
    command -v script >/dev/null || skip 'script (bsdutils) makes the terminal'
    : >screen
    {
        seen '^> '
        printf 'Continue: And the LORD spake unto Moses,\n'
        seen 'king of'
        printf '\003'
        seen 'ended by Ctrl-C'
        printf '/clear\nHello\n/quit\n'
    } | script -qefc "$program run $demo" screen >/dev/null
    tr -d '\r' <screen >out
    : >err
    status=0
    last_command='a conversation, interrupted'
    expect_out '^\(ended by Ctrl-C\)$' 'Hello\. Ask me for a verse'
}
