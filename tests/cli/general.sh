# What holds for the program as a whole and for every command, whichever there are.

case_help_lists_commands()
{
    for option in --help -h help; do
        run $option
        expect_status 0
        expect_empty err
        expect_out '^usage: plimsoll COMMAND' '^commands:$' '^  version  *[a-z]'
    done
    [ "$(commands | wc -l)" -ge 1 ] || fail 'no command is listed'
    [ -z "$(commands | sort | uniq -d)" ] || fail 'a command is listed twice'
}

case_every_command_has_help()
{
    for command in $(commands); do
        for option in --help -h; do
            run "$command" $option
            expect_status 0
            expect_empty err
            expect_out "^usage: plimsoll $command( |$)" '^options:$' '^  --help '
            # Terminals are narrow; option help is one sentence.
            expect_out -n '[[:blank:]]$' '^.{121}'
        done
    done
}

case_every_option_is_explained()
{
    for command in $(commands); do
        run "$command" --help
        expect_out -n '^  --[a-z-]+( [A-Z]+)?[[:blank:]]*$'
        options=$(sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' out)
        [ -z "$(printf '%s\n' "$options" | sort | uniq -d)" ] || fail "$command lists an option twice"
    done
}

case_no_command()
{
    run
    expect_status 2
    expect_err '^plimsoll: no command given'
}

case_unknown_command()
{
    for word in nope '' ' ' --nope -x versio versions 'a
b'; do
        run "$word"
        expect_status 2
    done
    run nope
    expect_err "^plimsoll: unknown command \(got 'nope'\)"
}

case_unknown_option_of_every_command()
{
    for command in $(commands); do
        run "$command" --no-such-option
        expect_status 2
        expect_err "^plimsoll: $command: unknown option \(got '--no-such-option'\); see 'plimsoll $command --help'\$"
        run "$command" --no-such-option=1
        expect_status 2
        run "$command" -Z
        expect_status 2
    done
}

case_too_many_arguments_to_every_command()
{
    for command in $(commands); do
        run "$command" 1 2 3 4 5 6 7 8
        expect_status 2
        expect_err "^plimsoll: $command: "
    done
}

case_options_without_their_value()
{
    for command in $(commands); do
        run "$command" --help
        for option in $(sed -n 's/^  \(--[a-z-]*\) [A-Z].*/\1/p' out); do
            run "$command" "$option"
            expect_status 2
            expect_err "^plimsoll: $command: $option: value is missing"
        done
    done
}

case_version()
{
    run version
    expect_status 0
    expect_empty err
    expect_out '^plimsoll [0-9]+\.[0-9]+\.[0-9]+$'
    cp out first
    run --version
    expect_status 0
    expect_out_is first
}

case_full_disk_is_reported()
{
    for arguments in --help help version --version 'version --help'; do
        run_into /dev/full $arguments
        expect_status 3
        expect_err '^plimsoll: standard output: .*No space left on device'
    done
    for command in $(commands); do
        run_into /dev/full "$command" --help
        expect_status 3
    done
}

case_closed_output_is_reported()
{
    last_command='plimsoll version >&-'
    : >out
    "$program" version >&- 2>err
    status=$?
    check_promise
    expect_status 3
}

case_unprintable_arguments_stay_printable()
{
    run version "$(printf 'a\033[31mb\001c')"
    expect_status 2
    run "$(printf '\033[2Jx')"
    expect_status 2
    run version "--$(printf 'bad\033option')"
    expect_status 2
}

# Containers may have no /sys; the library that looks there must not speak in our place.
case_libraries_are_silent_without_sys()
{
    mkdir empty
    HWLOC_FSROOT=$PWD/empty
    export HWLOC_FSROOT
    run cpu
    expect_empty err
    run cpu --no-such-option
    expect_status 2
}
