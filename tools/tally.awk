# Counts test cases in meson's testlog.json, one line per executable. TAP is counted where the executable printed
# any (cmocka does under CMOCKA_MESSAGE_OUTPUT=TAP), else the executable is one case. What decides is the exit
# status: an executable that failed, crashed or ran out of time has at least one failed case, and so has one
# that ended well before all the cases it had announced. Prints "PASSED FAILED SKIPPED".
#
# A case line need not begin a line: code under test may have printed half of one before it.

function count(text, pattern,    n)
{
    n = gsub(pattern, "", text)
    return n
}

{
    # "name": "...", "stdout": "...", "result": "OK", ...; inside strings a quote is always escaped.
    at = index($0, ", \"stdout\": \"")
    rest = at ? substr($0, at + 13) : ""
    end = index(rest, "\", \"result\": \"")
    out = end ? substr(rest, 1, end - 1) : ""
    if (!end) {
        end = index($0, ", \"result\": \"")
        result = substr($0, end + 13)
    } else {
        result = substr(rest, end + 14)
    }
    result = substr(result, 1, index(result, "\"") - 1)

    planned = 0
    text = out
    while (match(text, /(^|\\n)1\.\.[0-9]+/)) {
        plan = substr(text, RSTART, RLENGTH)
        sub(/.*\.\./, "", plan)
        planned += plan
        text = substr(text, RSTART + RLENGTH)
    }
    # cmocka writes "not ok 3 # SKIP name", others "ok 3 - name # SKIP why".
    skip = count(out, "ok [0-9]+ (- [^#\\\\]*)?# SKIP")
    bad = count(out, "not ok [0-9]+ - ")
    good = count(out, "ok [0-9]+ - ") - bad - count(out, "ok [0-9]+ - [^#\\\\]*# SKIP")

    if (planned == 0) {
        good = result == "OK"
        skip = result == "SKIP"
        bad = !good && !skip
    } else if (result == "SKIP" && good + bad + skip == 0) {
        skip = planned
    } else if (bad == 0 && (result != "OK" || good + skip < planned)) {
        bad = 1
        name = $0
        gsub(/^.*"name": "|".*$/, "", name)
        printf "%s: %d of %d cases reported, then %s\n", name, good + skip, planned, result | "cat >&2"
    }
    passed += good
    failed += bad
    skipped += skip
}

END { print passed + 0, failed + 0, skipped + 0 }
