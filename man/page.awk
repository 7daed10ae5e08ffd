# What --help prints, as a man page: usage, one line of summary, paragraphs, and blocks with a heading of their own.
# A form feed begins the help of a kind (tools/make-man), which becomes a subsection of each part.

function roff(text)
{
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/)
        text = "\\&" text
    return text
}

function section(title)
{
    print (kind == "" ? ".SH " : ".SS ") title
    para = 0
}

# "  --name VALUE   text": one space before a value, more before the text.
function option(line,    name, value, rest)
{
    sub(/^ +/, "", line)
    match(line, /^[^ ]+/)
    name = substr(line, 1, RLENGTH)
    rest = substr(line, RLENGTH + 1)
    value = ""
    if (rest ~ /^ [^ ]/) {
        rest = substr(rest, 2)
        match(rest, /^[^ ]+/)
        value = substr(rest, 1, RLENGTH)
        rest = substr(rest, RLENGTH + 1)
    }
    sub(/^ +/, "", rest)
    print ".TP"
    print "\\fB" roff(name) "\\fR" (value == "" ? "" : " \\fI" roff(value) "\\fR")
    print roff(rest)
}

function verbatim(on)
{
    if (on != inside_verbatim)
        print on ? ".RS 4\n.nf" : ".fi\n.RE"
    inside_verbatim = on
}

function end_block()
{
    verbatim(0)
    block = "text"
    para = 1
}

BEGIN {
    upper = toupper(page)
    print ".\\\" Made by tools/make-man of what the program prints."
    print ".TH " roff(upper) " 1 \"2026-11-30\" \"" version "\" \"Plimsoll\""
    state = "usage"
}

/^\f/ {
    end_block()
    kind = substr($0, 2)
    print ".SH " roff(toupper("plimsoll " substr(page, 10) " " kind))
    state = "usage"
    next
}
state == "usage" {
    sub(/^usage: /, "")
    synopsis = $0
    state = "blank"
    next
}
state == "blank" {
    state = "summary"
    next
}
state == "summary" {
    if (kind == "") {
        if (page == "plimsoll") {
            summary = "DeepSeek-V4 inference server with an exact memory plan"
        } else
            summary = $0
        print ".SH NAME\n" roff(page) " \\- " roff(summary)
        print ".SH SYNOPSIS\n.B " roff(synopsis)
        print ".SH DESCRIPTION"
    } else {
        print ".B " roff(synopsis)
        print ".PP"
    }
    print roff($0)
    state = "body"
    block = "text"
    next
}
/^[a-z]+:$/ {
    end_block()
    block = substr($0, 1, length($0) - 1)
    section(toupper(block))
    next
}
/^$/ {
    if (block == "examples" || block == "options" || inside_verbatim)
        end_block()
    para = 1
    next
}
(block == "options" || block == "kinds" || block == "commands") && /^  / {
    option($0)
    para = 0
    next
}
block != "text" && block != "examples" && /^  [a-z]/ {
    option($0)
    next
}
/^ / || block == "examples" {
    verbatim(1)
    sub(/^  /, "")
    print roff($0)
    next
}
{
    if (block != "text")
        end_block()
    verbatim(0)
    if (para)
        print ".PP"
    para = 0
    print roff($0)
}

END {
    end_block()
    while ((getline line < sections) > 0) {
        if (line ~ /^@ /)
            mine = index(line " ", " " page " ") || line == "@ *"
        else if (mine && line !~ /^#/)
            print line
    }
}
