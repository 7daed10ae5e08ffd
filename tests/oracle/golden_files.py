"""Golden files that are recomputed instead of stored, and the parts of them that are stored.

    python3 golden_files.py make NAME.MODE DIR      write DIR/NAME.MODE.safetensors, unless it is there
    python3 golden_files.py cut FULL PART           write the stored part of a full file

The stored golden files of `ref` and `rec` hold bits that depend neither on the order of a sum nor on the
BLAS library, so some of them are left out of the repository and computed again where they are wanted.
What takes most of the time and few of the bytes, the noise figures and the speculative runs, is kept in
golden/NAME.MODE.part.safetensors.xz and put back. The result must have the SHA-256 listed in
golden/SHA256SUMS.recomputed; a file with any other bits is refused and removed.

Files of mode `exact` are always stored: their sums are float64 BLAS sums and may differ in the last place
from one library or processor to another.
"""
import argparse
import hashlib
import lzma
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# numpy picks faster exp and log per processor, some of which differ in the last place; libm's are the
# same on every machine with fused multiply-add. Has to be set before numpy is loaded.
os.environ["NPY_DISABLE_CPU_FEATURES"] = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"

import warnings  # noqa: E402

warnings.filterwarnings("ignore", message="During parsing environment variable")  # one that has none of these

import numpy as np  # noqa: E402

import formats as fm  # noqa: E402
import make_golden as mg  # noqa: E402
import synth  # noqa: E402


def is_kept(name):
    return name.startswith("spec.") or name == "noise" or ".noise." in name


def read(path):
    f = fm.SafeFile(path)
    types = {n: f.dtype(n) for n in f.names() if f.dtype(n).startswith("F8")}
    return {n: f.get(n) for n in f.names()}, types


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def wanted_digest(file_name):
    with open(os.path.join(HERE, "golden", "SHA256SUMS.recomputed")) as f:
        for line in f:
            sha, name = line.split()
            if name == file_name:
                return sha
    sys.exit("%s: not in golden/SHA256SUMS.recomputed" % file_name)


def stored_part(name):
    with tempfile.TemporaryDirectory() as tmp:
        plain = os.path.join(tmp, "part.safetensors")
        with lzma.open(os.path.join(HERE, "golden", name + ".part.safetensors.xz")) as f, open(plain, "wb") as g:
            g.write(f.read())
        return read(plain)[0]


def make(name, folder):
    file_name = name + ".safetensors"
    path, want = os.path.join(folder, file_name), wanted_digest(file_name)
    if os.path.exists(path) and digest(path) == want:
        return
    config, mode = name.rsplit(".", 1)
    spec = next(s for s in mg.SETS["shared"] if s["name"] == config)
    part = stored_part(name)
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as ckpt:
        synth.write_checkpoint(ckpt, synth.make_config(spec["preset"], overrides=spec.get("overrides")), spec["seed"])
        meta = mg.metadata(spec, ckpt)
        tensors = mg.golden_model(dict(spec, jitter_runs=0, spec=False), ckpt, mode)
    tensors = {n: t for n, t in tensors.items() if not is_kept(n)}
    tensors.update(part)
    fm.st_save(path + ".new", tensors, dict(meta, mode=mode))
    got = digest(path + ".new")
    if got != want:
        os.remove(path + ".new")
        sys.exit("%s: recomputed with numpy %s, other bits (got SHA-256 %s, want %s)"
                 % (file_name, np.__version__, got, want))
    os.replace(path + ".new", path)


def cut(full, part):
    tensors, types = read(full)
    fm.st_save(part, {n: t for n, t in tensors.items() if is_kept(n)}, types=types)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("what", choices=["make", "cut"])
    ap.add_argument("a")
    ap.add_argument("b")
    args = ap.parse_args()
    {"make": make, "cut": cut}[args.what](args.a, args.b)


if __name__ == "__main__":
    main()
