# encode-chat and parse-output: every golden encoding through the program, and what users do wrong.

golden=$PL_GOLDEN_DIR/encoding

# document FILE: makes its JSON what `value` looks at. It wants a newline at the end, which these files and what
# parse-output prints do not have.
document()
{
    cat "$1" >document
    [ -z "$(tail -c 1 document)" ] || echo >>document
    mv document out
}

case_encode_golden()
{
    n=0
    for file in "$golden"/*.json; do
        case $(basename "$file") in
        input_?.json | parse_completions.json) continue ;;
        esac
        document "$file"
        value prompt >prompt
        truncate -s -1 prompt # the newline that `value` adds
        cp "$file" in
        run encode-chat
        expect_status 0
        expect_empty err
        expect_out_is prompt
        n=$((n + 1))
    done
    [ $n = 25 ] || fail "$n golden encodings, want 25"
}

case_encode_golden_of_the_vendor()
{
    for i in 1 2 3; do
        run encode-chat "$golden/input_$i.json"
        expect_status 0
        expect_out_is "$golden/output_$i.txt"
    done
    run encode-chat --mode chat "$golden/input_4.json"
    expect_status 0
    expect_out_is "$golden/output_4.txt"
}

case_encode_options_win_over_the_document()
{
    cp "$golden/effort0731_max.json" in
    run encode-chat - --encoding v4
    expect_status 0
    expect_out 'Absolute maximum'
    run encode-chat --encoding=v4 --effort high
    expect_out -n 'Reasoning Effort'
    run encode-chat --effort high
    expect_out 'Absolute maximum'
    run encode-chat --mode chat
    expect_out -n 'Reasoning Effort'
    cp "$golden/think_history_drop.json" in
    run encode-chat --keep-thinking --no-bos
    expect_out '^<｜User｜>a<｜Assistant｜><think>r1</think>b'
}

case_encode_segments()
{
    printf '[{"role":"user","content":"say </think> \\"\\\\\\n\\u0001"}]' >in
    run encode-chat --segments
    expect_status 0
    expect_json
    expect_value segments.0.kind markup
    expect_value segments.0.text '<｜begin▁of▁sentence｜><｜User｜>'
    expect_value segments.1.kind content
    printf 'say </think> "\\\n\001\n' >wanted
    value segments.1.text >got
    cmp -s wanted got || fail 'the content is not what was written'
    expect_value segments.2.text '<｜Assistant｜><think>'
    run encode-chat --segments --trust-special-tokens
    expect_json
    expect_value segments.0.kind markup
    ! value segments.1 2>/dev/null || fail 'a second segment'
}

case_encode_bad_input()
{
    run encode-chat
    expect_status 2
    expect_err '^plimsoll: conversation: no JSON value at byte 0 \(got the end, want a value\)$'
    printf '[{"role":"user","content":"a"},{"role":"user","content":"a"},{"role":"foo"}]' >in
    run encode-chat
    expect_status 2
    expect_err "^plimsoll: messages\[2\]\.role: unknown role \(got 'foo', want system, developer, user, assistant, tool, latest_reminder\)\$"
    printf '{"messages":[{"role":"user","content":"a"}],"options":{"thinking":true}}' >in
    run encode-chat
    expect_status 2
    expect_err "^plimsoll: options: unknown key \(got 'thinking'"
    printf '[{"role":"user","content":"a\377"}]' >in
    run encode-chat
    expect_status 2
    expect_err '^plimsoll: conversation: text is not UTF-8 at byte 28 \(got byte 0xff'
    run encode-chat missing.json
    expect_status 2
    expect_err '^plimsoll: missing\.json: cannot open'
    run encode-chat --encoding 0813
    expect_status 2
    run encode-chat .
    expect_status 2
    expect_err '^plimsoll: \.: is a folder'
}

case_encode_to_a_full_disk()
{
    [ -c /dev/full ] || skip 'no /dev/full'
    run_into /dev/full encode-chat "$golden/chat_single.json"
    expect_status 3
}

case_parse_golden()
{
    for i in 0 1 2; do
        document "$golden/parse_completions.json"
        mode=$(value $i.mode)
        value $i.text >in
        truncate -s -1 in
        run parse-output --mode "$mode"
        expect_status 0
        expect_empty err
        cp out parsed
        for key in role content reasoning_content; do
            document "$golden/parse_completions.json"
            wanted=$(value $i.message.$key)
            document parsed
            expect_value $key "$wanted"
        done
    done
    expect_value tool_calls.0.type function
    expect_value tool_calls.0.function.name f
    expect_value tool_calls.0.function.arguments '{"a": "x y\nz", "b": [1, {"k": null}]}'
    expect_value tool_calls.1.function.name g
    expect_value tool_calls.1.function.arguments '{}'
    ! value tool_calls.2 2>/dev/null || fail 'a third call'
}

case_parse_golden_errors()
{
    document "$golden/parse_completions.json"
    value 3.text >in
    truncate -s -1 in
    run parse-output --mode chat
    expect_status 2
    expect_err "^plimsoll: standard input: duplicate parameter name at byte [0-9]+ \(got 'a'\)\$"
    run parse-output --mode=chat --lenient -
    expect_status 0
    document out
    expect_value notes.0.note duplicate
    expect_value notes.0.text a
    ! value tool_calls.0 2>/dev/null || fail 'the malformed call is among the calls'
    printf 'never closes' >in
    run parse-output
    expect_status 2
    expect_err '^plimsoll: standard input: missing </think> at byte 12$'
    run parse-output --lenient
    expect_status 0
    document out
    expect_value reasoning_content 'never closes'
    expect_value content ''
    run parse-output --mode chat
    expect_status 0
    document out
    expect_value content 'never closes'
}
