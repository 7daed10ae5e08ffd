"""bench/peers/attention_torch.py: test_peer.py PROGRAM SCRIPT. TAP on standard output.

Without PyTorch it says why it is skipped; with it (PL_TORCH_PYTHON names a Python that has it) a small shape of each operator
gives both times and their ratio.
"""
import json
import os
import subprocess
import sys

PROGRAM, SCRIPT = sys.argv[1:3]
BLIND = "import sys; sys.modules['torch'] = None; import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
failed = 0
count = 0


def tap(name, problem):
    global count, failed
    count += 1
    failed += problem is not None
    print(f"{'not ok' if problem else 'ok'} {count} - {name}")
    if problem:
        print("# " + str(problem).replace("\n", "\n# "))


def call(python, *options, blind=False):
    command = [python, *(["-c", BLIND] if blind else []), SCRIPT, "--plimsoll", PROGRAM, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_json(python, *options, blind=False):
    done = call(python, *options, "--json", blind=blind)
    if done.returncode != 0:
        return None, f"status {done.returncode}: {done.stderr}"
    return json.loads(done.stdout), None


found, problem = run_json(sys.executable, blind=True)
tap("without PyTorch it is skipped with the reason", problem or (None if "torch" in found.get("skipped", "") else found))
done = call(sys.executable, "--rounds", "0")
tap("no rounds are refused", None if done.returncode == 2 and "--rounds" in done.stderr and not done.stdout else done)

python = os.environ.get("PL_TORCH_PYTHON", sys.executable)
has_torch = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0
for op, shape in (("attention_varlen", "h2 d64 q16 k24 causal"), ("attention_sparse", "h2 keys9 fp8")):
    name = f"{op}: both times and their ratio"
    if not has_torch:
        count += 1
        print(f"ok {count} - {name} # SKIP torch is not installed (PL_TORCH_PYTHON: a Python that has it)")
        continue
    found, problem = run_json(python, "--op", op, "--shape", shape, "--rounds", "1", "--seconds", "0", "--threads", "1")
    row = found["rows"][0] if found and len(found.get("rows", ())) == 1 else {}
    right = (row.get("op"), row.get("shape"), row.get("threads")) == (op, shape, 1) and min(
        row.get("plimsoll_ms", 0), row.get("torch_ms", 0)) > 0
    right = right and abs(row["ratio"] * row["plimsoll_ms"] / row["torch_ms"] - 1) < 1e-9
    tap(name, problem or (None if right else found))
print(f"1..{count}")
sys.exit(1 if failed else 0)
