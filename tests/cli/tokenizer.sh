# tokenize and detokenize: bytes in, ids out and back, and what users do wrong. Which ids are right is tested in
# tests/unit/test_tokenizer.c.

mini=$PL_GOLDEN_DIR/tokenizer/mini
demo=$(dirname "$file")/../../models/demo

# wanted TEXT: what follows is compared with it, no newline added.
wanted()
{
    printf '%s' "$1" >wanted.bytes
    expect_out_is wanted.bytes
}

case_tokenize()
{
    printf 'Hello, world!' >in
    for model in "$mini" "$mini/tokenizer.json"; do
        run tokenize "$model"
        expect_status 0
        expect_empty err
        wanted '1693 14 1005 3'
    done
    run tokenize "$mini" --json
    wanted '{"tokens": [1693, 14, 1005, 3]}'
    mv in text
    run tokenize "$mini" text --json
    wanted '{"tokens": [1693, 14, 1005, 3]}'
}

case_tokenize_added_tokens()
{
    printf '<think>x<|EOT|>' >in
    run tokenize "$mini"
    wanted '2033 90 2017'
    run tokenize "$mini" --plain --json
    expect_out -n '2033|2017'
}

case_tokenize_nothing()
{
    : >in
    run tokenize "$mini"
    expect_status 0
    expect_empty out
    run tokenize "$mini" --json
    wanted '{"tokens": []}'
    run detokenize "$mini"
    expect_status 0
    expect_empty out
    printf '{"tokens": []}' >in
    run detokenize "$mini"
    expect_status 0
    expect_empty out
}

# Every byte, in an order in which none is part of a character; line ends and a final newline are kept.
case_bytes_there_and_back()
{
    printf 'a\000b\r\n\tcaf\303\251 \346\227\245\n\n  x\n' >text
    cp text in
    for option in '' --plain --json; do
        cp text in
        run tokenize "$mini" $option
        expect_status 0
        mv out in
        run detokenize "$mini"
        expect_status 0
        expect_out_is text
    done
    printf 'caf\351\r\n' >in # Latin-1
    run tokenize "$mini"
    wanted '1217 1150 340'
    mv out in
    run detokenize "$mini"
    printf 'caf\357\277\275\r\n' >text
    expect_out_is text
}

case_detokenize_forms()
{
    for list in '1693 14 1005 3' '1693,14,1005,3' ' 1693, 14,
1005  3
' '{"tokens": [1693, 14, 1005, 3]}' '[1693,14,1005,3]' ' {"tokens":[1693,14,1005,3],"more":1}'; do
        printf '%s' "$list" >in
        run detokenize "$mini"
        expect_status 0
        expect_empty err
        wanted 'Hello, world!'
    done
    mv in list
    run detokenize "$mini/tokenizer.json" list
    wanted 'Hello, world!'
}

case_detokenize_special_and_raw()
{
    echo '67 1 2033 68 0' >in
    run detokenize "$mini"
    wanted 'a<｜end▁of▁sentence｜><think>b<｜begin▁of▁sentence｜>'
    run detokenize "$mini" --skip-special-tokens
    wanted 'a<think>b'
    echo '67 163 119 1 258' >in # a, two bytes of a character, end of sentence, the third
    run detokenize "$mini" --skip-special-tokens
    wanted 'a中'
    run detokenize "$mini"
    wanted 'a�<｜end▁of▁sentence｜>�'
    echo 163,119 >in
    run detokenize "$mini" --raw
    printf '\344\270' >bytes
    expect_out_is bytes
}

case_detokenize_bad_ids()
{
    for id in 2081 99999999999999999999999999 4294967296; do
        echo "67 $id" >in
        run detokenize "$mini"
        expect_status 2
        expect_err "standard input: token 1: no such id \\(got $id, want 0\\.\\.2080: the vocabulary has 2081\\)"
    done
    printf '{"tokens": [-1]}' >in
    run detokenize "$mini"
    expect_status 2
    expect_err 'token 0: no such id \(got -1, want 0\.\.2080'
    for list in x 1x 1.5 -1 '1;2' 0x10 '"1"'; do
        printf '%s' "$list" >in
        run detokenize "$mini"
        expect_status 2
        expect_err 'not a token id at byte [01]'
    done
    printf '{"ids": [1]}' >in
    run detokenize "$mini"
    expect_status 2
    expect_err 'no token ids'
    printf '[1.0]' >in
    run detokenize "$mini"
    expect_status 2
    expect_err 'token 0: not a whole number'
    printf '[1, 2' >in
    run detokenize "$mini"
    expect_status 2
    expect_err 'standard input: not JSON'
}

case_bad_models()
{
    for command in tokenize detokenize; do
        run $command nowhere
        expect_status 2
        expect_err 'nowhere: cannot open'
        mkdir -p empty
        run $command empty
        expect_status 2
        expect_err 'empty/tokenizer.json: cannot open'
        printf '{' >broken.json
        run $command broken.json
        expect_status 2
        expect_err 'broken.json: not JSON: .*line 1'
        sed 's/"BPE"/"WordPiece"/' "$mini/tokenizer.json" >other.json
        run $command other.json
        expect_status 2
        expect_err 'other.json: model.type: not supported \(got "WordPiece", want BPE\)'
        run $command "$mini" missing.txt
        expect_status 2
        expect_err 'missing.txt: cannot open'
        run $command
        expect_status 2
    done
}

case_full_disk()
{
    [ -c /dev/full ] || skip 'no /dev/full'
    printf 'Hello' >text
    run_into /dev/full tokenize "$mini" text
    expect_status 3
}

# The prompts and texts of the demo model were made by the reference library.
case_demo_model()
{
    [ -f "$demo/tokenizer.json" ] || fail "$demo has no tokenizer"
    for i in 0 1 2; do
        cp "$demo/golden.json" out
        value prompts.$i.text >text
        truncate -s -1 text # the newline that `value` adds
        value prompts.$i.tokens >in
        run detokenize "$demo"
        expect_status 0
        expect_out_is text
        cp "$demo/golden.json" out
        value prompts.$i.prompt >ids
        cp ids in
        run detokenize "$demo"
        cp out in
        run tokenize "$demo" --json
        echo >>out # which expect_value wants
        expect_value tokens "$(cat ids)"
    done
}
