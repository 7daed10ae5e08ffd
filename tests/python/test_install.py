"""pip puts packages and library where they find each other: test_install.py LIBRARY TOP. TAP on standard output.

A copy of the source tree's python/ is installed into a folder of its own, without a network; what is imported from there runs. Skips
where pip or what it builds with is not installed.
"""
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

if os.environ.get("PL_TORCH_PYTHON") and sys.executable != os.environ["PL_TORCH_PYTHON"]:
    os.execv(os.environ["PL_TORCH_PYTHON"], [os.environ["PL_TORCH_PYTHON"], *sys.argv])

LIBRARY, TOP = (pathlib.Path(p).resolve() for p in sys.argv[1:3])

PLAIN = """
import importlib.util, pathlib, sys
import plimsoll
assert pathlib.Path(plimsoll.__file__).parent.parent == pathlib.Path(sys.argv[1]).resolve(), plimsoll.__file__
assert "torch" not in sys.modules
context = plimsoll.Context(1)
assert context.workspace_bytes > 0
for name in ("flash_attn_interface", "flash_mla", "flash_mla.flash_mla_interface"):
    assert importlib.util.find_spec(name.partition(".")[0]).origin.startswith(sys.argv[1]), name
"""

WITH_TORCH = """
import torch
from flash_attn_interface import flash_attn_varlen_func
from flash_mla.flash_mla_interface import flash_mla_sparse_fwd
ends = torch.tensor([0, 1], dtype=torch.int32)
one = torch.ones(1, 1, 8)
out, lse = flash_attn_varlen_func(one, one, one, ends, ends, 1, 1, return_attn_probs=True)
assert torch.equal(out, one) and abs(float(lse) - 8 ** 0.5) < 1e-5
out, biggest, lse = flash_mla_sparse_fwd(torch.zeros(1, 1, 512).bfloat16(), torch.ones(1, 1, 512).bfloat16(),
                                         torch.zeros(1, 1, 1).int(), 1.0)
assert (out == 1).all() and float(biggest) == float(lse) == 0
"""


def missing():
    """What pip would not find, or None."""
    wanted = ["pip", "setuptools"]
    if all(importlib.util.find_spec(name) for name in wanted):
        if int(importlib.metadata.version("setuptools").partition(".")[0]) < 71:
            wanted.append("wheel")
    return next((name for name in wanted if not importlib.util.find_spec(name)), None)


def child(name, *args, **env):
    """Its text where it failed, else None."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL_", "PYTHONPATH"))}
    done = subprocess.run([sys.executable, *args], env={**inherited, **env}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, cwd=SCRATCH)
    print(("not ok" if done.returncode else "ok") + f" {name}")
    if done.returncode:
        print("".join("# " + line + "\n" for line in done.stdout.splitlines()), end="")
    return done.returncode


absent = missing()
if absent:
    print(f"1..0 # SKIP {absent} is not installed")
    sys.exit(0)
print("1..4")
with tempfile.TemporaryDirectory() as SCRATCH:
    source, target = os.path.join(SCRATCH, "python"), os.path.join(SCRATCH, "target")
    shutil.copytree(TOP / "python", source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    pip = ["-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--no-cache-dir",
           "--disable-pip-version-check", "--target", target, source]
    failed = child("1 - pip installs the source tree", *pip, PLIMSOLL_FFI_LIBRARY=str(LIBRARY))
    failed |= child("2 - it imports without torch and finds its library", "-c", PLAIN, target, PYTHONPATH=target)
    if importlib.util.find_spec("torch"):
        failed |= child("3 - its modules run", "-c", WITH_TORCH, PYTHONPATH=target)
    else:
        print("ok 3 - its modules run # SKIP torch is not installed")
    missing_so = os.path.join(SCRATCH, "not_there.so")
    refused = subprocess.run([sys.executable, *pip], env={**os.environ, "PLIMSOLL_FFI_LIBRARY": missing_so},
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    told = refused.returncode != 0 and f"{missing_so}: not there" in refused.stdout
    print(("ok" if told else "not ok") + " 4 - a library that is not there is named")
    failed |= not told
sys.exit(bool(failed))
