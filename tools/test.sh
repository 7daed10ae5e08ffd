#!/bin/sh
# Builds and tests: sh tools/test.sh [options]; --help lists them. Installs the Debian packages that are missing. The
# last line is "N passed, N failed", counted in test cases; the exit status is 0 only when something ran
# and nothing failed. docs/TESTING.md says what each suite is for.
set -u
cd "$(dirname "$0")/.." || exit 3
program=tools/test.sh
. tools/lib.sh

# Suite, in which lists it is (u usual, a all, s soak), and what it does; in the order in which they run.
suites='
style      u a s  text rules, order of the folders, the test tools themselves
header     u a s  every header compiled alone, the public ones as C99 and C++
symbols    u a s  names that the library exports; what is installed: example, pkg-config, man pages
unit       u a s  unit tests, optimised build
model      u a s  the forward pass against stored golden files
engine     u a s  requests over small models: bits, plan, memory, lives of requests
cli        u a s  the program from outside
serve      u a s  the server from outside: fields, company, hostile clients
kernels    u a s  every kernel of every level, bit for bit against level scalar
fuzz       u a s  fuzz targets over their committed inputs
werror     - a s  debug build with gcc, warnings are errors, assertions on; unit tests
clang      - a s  the same with clang
asan       - a s  address and undefined-behaviour sanitizers; unit, cli, kernels, fuzz, one forward pass
tsan       - a s  thread sanitizer; the tests that start threads, one forward pass
golden     - a s  golden files that are not stored, recomputed and compared; what needs them
oracle     - a s  the tests of the oracle itself that take seconds
tidy       - a s  clang-tidy, no findings
qemu       - a s  levels on processors without AVX or AVX-512, as qemu-x86_64 has them
ranks      - - s  the forward pass by several ranks, on the models that take longer
slow       - - s  mode exact at true layer sizes; the tests of the oracle that take minutes
valgrind   - - s  memcheck over the unit tests
repeat     - - s  the unit tests again and again, twenty times, in both builds with assertions
configurations - - s  1,000 random configurations against their plans, 1,000 engines, all chunks and threads
fuzzing    - - s  libFuzzer, PL_FUZZ_SECONDS (600) each target
'

usage()
{
    say 'usage: sh tools/test.sh [--suite NAME]... [--all | --soak] [--list]

Without options: the usual suites, a few minutes.

  --suite NAME   this suite; may be repeated
  --all          everything that has to pass before a change lands, under 40 minutes on two cores
  --soak         that and hours of fuzzing, repetition and memcheck
  --list         the suites
  --help         this text'
}

list_suites()
{
    printf '%s\n' "$suites" | awk 'NF {
        when = $2 == "u" ? "usual" : $3 == "a" ? "--all" : "--soak"
        name = $1
        $1 = $2 = $3 = $4 = ""
        sub(/^ */, "")
        printf "%-9s %-7s %s\n", name, when, $0
    }'
}

# of_list COLUMN LETTER: names of the suites that have LETTER there.
of_list()
{
    printf '%s\n' "$suites" | awk -v column="$1" -v letter="$2" '$column == letter {print $1}'
}

# ---- arguments ----

mode=
chosen=
while [ $# -gt 0 ]; do
    case $1 in
    --suite | --suite=*)
        name=${1#--suite}
        name=${name#=}
        if [ -z "$name" ]; then
            [ $# -ge 2 ] || misuse '--suite: value is missing (want a name, see --list)'
            shift
            name=$1
        fi
        printf '%s\n' "$suites" | awk -v name="$name" '$1 == name {found = 1} END {exit !found}' ||
            misuse "--suite: unknown name (got '$name', want one of: $(of_list 4 s | tr '\n' ' '))"
        chosen="$chosen $name"
        ;;
    --all) mode=all ;;
    --soak) mode=soak ;;
    --list)
        list_suites
        exit 0
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) misuse "unknown argument (got '$1'); see --help" ;;
    esac
    shift
done
[ -z "$mode" ] || [ -z "$chosen" ] || misuse '--suite: not together with --all or --soak'
case $mode in
all) chosen=$(of_list 3 a) ;;
soak) chosen=$(of_list 4 s) ;;
*) [ -n "$chosen" ] || chosen=$(of_list 2 u) ;;
esac

# ---- running and counting ----

passed=0
failed=0
skipped=0
table=
started=$(date +%s)
log=$(mktemp) || exit 3
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

# add PASSED FAILED SKIPPED: to the suite that runs.
add()
{
    suite_passed=$((suite_passed + $1))
    suite_failed=$((suite_failed + $2))
    suite_skipped=$((suite_skipped + $3))
}

# one NAME COMMAND...: a command that is one case, silent unless it fails.
one()
{
    case_name=$1
    shift
    begun=$(date +%s)
    if "$@" >"$log" 2>&1; then
        say "  $case_name: ok, $(($(date +%s) - begun)) s"
        add 1 0 0
        return 0
    fi
    say "  $case_name: FAILED, $(($(date +%s) - begun)) s"
    tail -n 200 "$log"
    add 0 1 0
    return 1
}

# run_tests DIR MESON-ARGUMENT...: meson's tests of a build folder, counted by case. cmocka then reports in TAP. Time
# limits are for what hangs, so they are wide: the machine may be busy.
run_tests()
{
    dir=$1
    shift
    rm -f "$dir/meson-logs/counted.json"
    CMOCKA_MESSAGE_OUTPUT=TAP meson test -C "$dir" --print-errorlogs --logbase counted --timeout-multiplier 5 \
        --num-processes "$(jobs)" "$@" </dev/null 2>&1 |
        sed -n '/^ *[0-9]*\/[0-9]* /p; /^――/,/^――*$/p; /^[^0-9 >]*ERROR/p; /^No /p'
    if [ -s "$dir/meson-logs/counted.json" ]; then
        add $(awk -f tools/tally.awk "$dir/meson-logs/counted.json")
    else
        say "  no test ran: $*"
        add 0 1 0
    fi
}

# compile DIR [SUITE | TEST]...: builds what these tests need, or else everything but the checkpoints that tests read; as
# one case where that fails.
compile()
{
    # First build.ninja: the list of tests may be older than meson.build.
    { build "$1" build.ninja && targets=$(tools/test-targets "$@") && build "$1" $targets; } >"$log" 2>&1 || {
        say "  $1: does not build"
        cat "$log"
        add 0 1 0
        return 1
    }
}

# plain_build [SUITE]: what it needs in the optimised build; without a name everything.
plain_build()
{
    if [ -f build/build.ninja ] && [ ! -f build/.configured ]; then
        # Set up by hand: its options stay, but there must be tests.
        meson configure build -Dtests=true >/dev/null
    else
        configure build gcc --buildtype=release -Dtests=true
    fi
    compile build "$@"
}

# Debug information without the cost of -O0; assertions are on in every build that is not a release.
checked='--buildtype=debugoptimized -Dwerror=true -Dtests=true'

run_suite()
{
    case $1 in
    symbols)
        plain_build && run_tests build --suite symbols # what is installed is all of it
        ;;
    style | header | unit | engine | cli | serve | kernels | fuzz | tidy | oracle | ranks | slow)
        plain_build "$1" && run_tests build --suite "$1"
        ;;
    qemu)
        plain_build cli && plain_build kernels &&
            one 'levels under qemu' sh tests/kernels/qemu.sh build $([ "$mode" != soak ] || echo --long)
        ;;
    model)
        # Others are in suite golden: they need files that are not there yet.
        plain_build model && run_tests build --suite model
        ;;
    golden)
        plain_build golden && one 'golden files recomputed' ninja -C build golden-all &&
            run_tests build --suite golden
        ;;
    werror)
        configure build-werror gcc $checked -Dc_args=-Og
        compile build-werror && one 'no warnings' true && run_tests build-werror --suite unit
        ;;
    clang)
        configure build-clang clang-14 $checked
        compile build-clang && one 'no warnings' true &&
            run_tests build-clang --suite unit --suite kernels
        ;;
    asan)
        configure build-asan gcc $checked -Db_sanitize=address,undefined -Dc_args=-fno-sanitize-recover=all
        compile build-asan unit cli kernels fuzz digest-nano &&
            run_tests build-asan --suite unit --suite cli --suite kernels --suite fuzz --timeout-multiplier 15 &&
            run_tests build-asan --suite model --timeout-multiplier 15 digest-nano
        ;;
    tsan)
        configure build-tsan gcc $checked -Db_sanitize=thread
        compile build-tsan threads digest-nano &&
            run_tests build-tsan --suite threads --timeout-multiplier 20 &&
            run_tests build-tsan --suite model --timeout-multiplier 20 digest-nano
        ;;
    valgrind)
        configure build-werror gcc $checked -Dc_args=-Og
        compile build-werror unit &&
            run_tests build-werror --suite unit --timeout-multiplier 60 \
                --wrapper 'valgrind --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite'
        ;;
    repeat)
        for dir in build-werror build-clang; do
            configure $dir "$([ $dir = build-clang ] && echo clang-14 || echo gcc)" $checked
            compile $dir unit && run_tests $dir --suite unit --repeat 20
        done
        ;;
    configurations)
        plain_build engine && PL_ENGINE_FULL=1 run_tests build --suite engine --timeout-multiplier 4 line engine bits-nano bits-micro \
            speculation far rejection interplay prefixes
        plain_build serve && PL_SERVE_DRAWS=4000 PL_SERVE_FORMS=20 PL_SERVE_WAVES=20 run_tests build --suite serve --timeout-multiplier 20 \
            serve-batch serve-forms serve-waves
        ;;
    fuzzing) run_fuzzing ;;
    esac
}

# New inputs stay in build-fuzz/NAME; what is found (crash-..., timeout-...) in the top of that folder.
run_fuzzing()
{
    configure build-fuzz clang-14 --buildtype=debugoptimized -Dtests=true -Dfuzz=true -Db_lundef=false \
        -Db_sanitize=address,undefined -Dc_args='-fsanitize=fuzzer-no-link -fno-sanitize-recover=all'
    compile build-fuzz || return
    for target in build-fuzz/tests/fuzz/fuzz_*; do
        [ -x "$target" ] && [ -f "$target" ] || continue
        name=${target##*/fuzz_}
        mkdir -p "build-fuzz/$name"
        one "fuzzing $name" "$target" -max_total_time="${PL_FUZZ_SECONDS:-600}" -timeout=20 -rss_limit_mb=3000 \
            -artifact_prefix=build-fuzz/ -print_final_stats=1 "build-fuzz/$name" "tests/fuzz/corpus/$name"
    done
}

# ---- main ----

need_packages "$packages_build$packages_test"
case " $(echo $chosen) " in
*' clang '* | *' golden '* | *' oracle '* | *' tidy '* | *' qemu '* | *' fuzzing '* | *' repeat '* | \
*' slow '*)
    need_packages "$packages_all"
    ;;
esac
case " $(echo $chosen) " in
*' fuzzing '* | *' valgrind '*) need_packages "$packages_soak" ;;
esac

for suite in $chosen; do
    suite_passed=0
    suite_failed=0
    suite_skipped=0
    suite_started=$(date +%s)
    say "== $suite"
    run_suite "$suite"
    [ $((suite_passed + suite_failed + suite_skipped)) -gt 0 ] || suite_failed=1
    passed=$((passed + suite_passed))
    failed=$((failed + suite_failed))
    skipped=$((skipped + suite_skipped))
    table="$table$(printf '%-10s %8d %8d %8d %8d' "$suite" $suite_passed $suite_failed $suite_skipped \
        $(($(date +%s) - suite_started)))
"
done

say ''
printf '%-10s %8s %8s %8s %8s\n' suite passed failed skipped seconds
printf '%s' "$table"
printf '%-10s %8d %8d %8d %8d\n\n' all $passed $failed $skipped $(($(date +%s) - started))
say "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
