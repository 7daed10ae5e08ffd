#!/bin/sh
# See it work: sh tools/demo.sh [serve]. Builds (installing the Debian packages that are missing), shows the memory
# plan of the demo model, lets it speak and prints how fast and how large that was. Everything shown is measured here
# and now; nothing is kept but the build.
set -eu
cd "$(dirname "$0")/.."
program=tools/demo.sh
. tools/lib.sh

model=models/demo
prompt='For God so loved'
n_tokens=24

usage()
{
    say 'usage: sh tools/demo.sh [serve]

Installs what is missing of the Debian packages it needs, builds build/plimsoll, prints the memory plan of the
demo model (models/demo), a few answers of it, tokens per second, how many drafts were accepted and the peak of
memory against the plan. With "serve" it starts the server on the demo model instead, at port $PORT (8000), and prints
the address of its page and a request for curl; Ctrl-C ends it.'
}

case ${1:-} in
'') [ $# -eq 0 ] || misuse "argument is empty (want none or serve)" ;;
serve) ;;
-h | --help)
    usage
    exit 0
    ;;
*) misuse "unknown argument (got '$1', want none or serve); see --help" ;;
esac
[ $# -le 1 ] || misuse "too many arguments (got $#, want one at most)"

# step COMMAND...: shows a command as one would type it, then runs it.
step()
{
    printf '\n$ plimsoll'
    for word; do
        case $word in
        *[!A-Za-z0-9_./-]*) printf " '%s'" "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    build/plimsoll "$@"
}

sh tools/build.sh

# The address comes from the server itself, once it answers; its log stays on standard error.
if [ "${1:-}" = serve ]; then
    say "\$ plimsoll serve $model --port ${PORT:-8000} --num-speculative-tokens 2"
    pipe=$(mktemp -d)
    trap 'rm -rf "$pipe"' EXIT
    mkfifo "$pipe/address"
    build/plimsoll serve "$model" --port "${PORT:-8000}" --num-speculative-tokens 2 >"$pipe/address" &
    server=$!
    trap 'kill -TERM $server 2>/dev/null' INT TERM
    if read -r address <"$pipe/address"; then
        say "
the page, in a browser:  $address/
a request:
  curl $address/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Who built the ark?\"}]}'

Ctrl-C ends it.
"
    fi
    # A signal interrupts the first wait; the second waits for what runs to be answered.
    status=0
    wait $server || status=$?
    [ "$status" -le 128 ] || { status=0; wait $server || status=$?; }
    exit "$status"
fi

say '
1. What it will take, to the byte, before a weight is read:'
step plan "$model" --max-model-len 512 --max-num-seqs 1

say '
2. It speaks. A small model of the true architecture, trained on the King James Bible; greedy, so these bits every time:'
step run "$model" --prompt "$prompt" --max-tokens "$n_tokens" --stats
step run "$model" --chat 'Recite Genesis 1:1.' --stats
step run "$model" --chat 'Who built the ark?' --stats
say '
The same with drafts of the model itself: acceptance is how many of them were right; no bit changes.'
step run "$model" --chat 'Who built the ark?' --num-speculative-tokens 2 --stats

say '
3. The same bits alone and in company: the two prompts together give the digests of each alone.'
digests()
{
    build/plimsoll run "$model" "$@" --max-tokens 24 --json | tr ',{' '\n\n' | sed -n 's/.*"digest": *"\([0-9a-f]*\)".*/\1/p'
}
alone=$(digests --prompt "$prompt" && digests --chat 'Who built the ark?')
together=$(digests --prompt "$prompt" --chat 'Who built the ark?')
say "alone:    $(say "$alone" | tr '\n' ' ')"
say "together: $(say "$together" | tr '\n' ' ')"
[ -n "$alone" ] && [ "$alone" = "$together" ] || die 'the digests differ, which must never be: please report it with the output of plimsoll cpu'

say '
Next: sh tools/demo.sh serve, a server with a page; build/plimsoll --help; sh tools/test.sh, which runs the tests.'
