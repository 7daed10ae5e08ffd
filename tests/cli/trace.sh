# plimsoll trace as its users see it; values are compared with golden files in tests/model.

model()
{
    [ -d m ] || run synth m --preset nano
    echo '5,6,7 8 9
10' >t
}

case_steps_and_threads_do_not_show()
{
    model
    for level in scalar f64; do
        run trace m --tokens-file t --level $level -o one
        expect_status 0
        expect_empty out
        expect_empty err
        run trace m --tokens-file t --level $level -o other --max-num-batched-tokens 1 --threads 3
        expect_status 0
        cmp one other || fail "level $level depends on steps or threads"
    done
    [ ! -e one.part ] || fail 'the unfinished file is still there'
}

case_levels_and_modes_differ()
{
    model
    run trace m --tokens-file t --level f64 --mode ref -o ref
    run trace m --tokens-file t --level f64 --mode rec -o rec
    run trace m --tokens-file t -o default
    cmp rec default || fail 'the default is not f64 in mode rec'
    ! cmp -s ref rec || fail 'modes ref and rec write the same'
    run trace m --tokens-file t --mode exact -o exact
    expect_status 0
}

case_misuse()
{
    model
    run trace m -o x
    expect_status 2
    expect_err '^plimsoll: --tokens-file: missing'
    run trace m --tokens-file t
    expect_status 2
    expect_err '^plimsoll: -o: missing'
    run trace m --tokens-file t --level scalar --mode ref -o x
    expect_status 2
    expect_err '--mode: level scalar has one mode'
    run trace m --tokens-file t --level mmx -o x
    expect_status 2
    expect_err 'mmx'
    echo 512 >t
    run trace m --tokens-file t -o x
    expect_status 2
    expect_err 'token id 512'
    echo '1 two' >t
    run trace m --tokens-file t -o x
    expect_status 2
    expect_err '^plimsoll: t: not a token id at byte 2'
    run trace nothing --tokens-file t -o x
    expect_status 2
    [ ! -e x ] || fail 'a file was written'
}

case_unwritable_output()
{
    model
    run trace m --tokens-file t -o none/x
    expect_status 3
    expect_err 'none/x.*cannot create'
}
