"""`plimsoll serve --unit`, and the server that it describes in a control group of its MemoryMax: test_unit.py PLIMSOLL MODEL."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from client import Server, run_cases, without_key

PROGRAM, MODEL = map(os.path.abspath, sys.argv[1:3])
OPTIONS = ["--port", "0", "--memory", "400MiB", "--max-connections", "64", "--max-num-seqs", "2"]


def unit(*options):
    return subprocess.run([PROGRAM, "serve", MODEL, *options, "--unit"], capture_output=True, text=True)


def setting(text, name):
    return re.search(rf"^{name}=(.*)$", text, re.M).group(1)


def command(text):
    """The words of ExecStart as systemd reads them."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(setting(text, "ExecStart"))]


def memory_group(limit):
    """A new control group with this limit, or None where none can be made."""
    with open("/proc/self/cgroup") as f:
        lines = f.read().splitlines()
    v1 = [line.split(":", 2)[2] for line in lines if ":memory:" in line]
    parent = "/sys/fs/cgroup/memory" + v1[0] if v1 else "/sys/fs/cgroup" + lines[0].split("::")[-1]
    group = os.path.join(parent, f"plimsoll-unit-{os.getpid()}")
    try:
        os.mkdir(group)
    except OSError:
        return None
    try:
        with open(os.path.join(group, "memory.limit_in_bytes" if v1 else "memory.max"), "w") as f:
            f.write(str(limit))
    except OSError:
        os.rmdir(group)
        return None
    return group


def the_command_has_the_plan_that_the_unit_names():
    text = unit(*OPTIONS).stdout
    words = command(text)
    assert os.path.isabs(words[0]) and words[1] == "serve" and os.path.isabs(words[2])
    assert "--unit" not in words and "400MiB" not in words
    again = subprocess.run([*words, "--unit"], capture_output=True, text=True).stdout
    assert again == text, "the unit of the unit's command is another"


def it_runs_in_a_control_group_of_that_limit():
    text = unit(*OPTIONS).stdout
    words, limit = command(text), int(setting(text, "MemoryMax"))
    group = memory_group(limit)
    if group:
        words = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group, *words]
    try:
        server = Server(words[0], None, command=words, env=without_key())
        plan = server.get("/v1/plan")[2]
        assert plan["charged_bytes"] == limit, (plan["charged_bytes"], limit)
        assert plan["total_bytes"] == int(words[words.index("--memory") + 1])
        answer = server.ok("/v1/completions", {"prompt": "In the beginning", "max_tokens": 8})
        assert answer["usage"]["completion_tokens"] == 8
        assert server.stop() == 0
    finally:
        if group:
            os.rmdir(group)
    return None if group else "it ran, but no control group can be made here"


def words_are_quoted_and_files_absolute():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "k e$y"), "w") as f:
            f.write("secret\n")
        os.chmod(f.name, 0o600)
        text = subprocess.run([PROGRAM, "serve", MODEL, "--api-key-file=k e$y", "--unit",
                               "--served-model-name", "a%b$c", *OPTIONS], cwd=folder, capture_output=True, text=True).stdout
        assert f'"--api-key-file={os.path.realpath(folder)}/k e$$y"' in text and '"a%%b$$c"' in text
        assert "secret" not in text


def what_cannot_be_written_is_refused():
    bad = unit(*OPTIONS, "--cors-origin", "a\nb")
    assert bad.returncode == 2 and bad.stdout == "" and "line break" in bad.stderr, bad
    small = unit("--memory", "1MiB")
    assert small.returncode == 1 and small.stdout == "" and "does not fit" in small.stderr, small


def what_the_line_leaves_is_for_prefixes():
    """Only of a line that was given; what the unit names is what its server would take."""
    words = command(unit(*OPTIONS, "--max-model-len", "1024").stdout)
    left = int(words[words.index("--prefix-cache-memory") + 1])
    assert left > 50 << 20, left
    text = unit(*OPTIONS, "--max-model-len", "1024").stdout
    assert int(setting(text, "MemoryMax")) <= 400 << 20
    off = unit(*OPTIONS, "--max-model-len", "1024", "--prefix-cache-memory", "0").stdout
    assert '"--prefix-cache-memory" "0"' in off and off.count("--prefix-cache-memory") == 1
    undrawn = unit("--max-model-len", "1024").stdout
    assert '"--prefix-cache-memory" "0"' in undrawn


def systemd_accepts_it():
    if not shutil.which("systemd-analyze"):
        return "systemd-analyze is not here"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plimsoll.service")
        with open(path, "w") as f:
            f.write(unit(*OPTIONS).stdout)
        done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
        assert done.returncode == 0 and "plimsoll.service" not in done.stderr, done.stderr
    return None


run_cases([the_command_has_the_plan_that_the_unit_names, it_runs_in_a_control_group_of_that_limit,
           words_are_quoted_and_files_absolute, what_cannot_be_written_is_refused,
           what_the_line_leaves_is_for_prefixes, systemd_accepts_it])
