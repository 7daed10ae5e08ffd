"""OpenAI's own client for Node, unmodified: test_openai_node.py PLIMSOLL MODEL openai.cjs. PL_OPENAI_NODE names the folder whose
node_modules has the package `openai`; skips where Node or the package is missing."""

import os
import shutil
import subprocess
import sys

from client import Server, run_cases, without_key

PROGRAM, MODEL, SCRIPT = sys.argv[1:4]
NODE = shutil.which("node")
FOLDER = os.path.join(os.environ.get("PL_OPENAI_NODE") or os.path.dirname(os.path.abspath(SCRIPT)), "")


def skip(why):
    print(f"1..0 # SKIP {why}")
    sys.exit(0)


def node(*words):
    return subprocess.run([NODE, SCRIPT, FOLDER, *words], capture_output=True, text=True, timeout=250, check=False)


if not NODE:
    skip("node is not installed")
if node("look").returncode:
    skip("the package openai is not there (PL_OPENAI_NODE: a folder whose node_modules has it)")
server = Server(PROGRAM, MODEL, env=without_key())


def case(name):
    def run():
        done = node(server.url + "/v1", name)
        assert done.returncode == 0, done.stdout + done.stderr
    run.__name__ = name
    return run


run_cases([case(name) for name in ("models", "chat", "chat_stream", "reasoning", "tools", "completions", "errors")], [server])
