"""What the tests of the oracle share: comparisons, nano models, and a main that reports in TAP."""
import os
import sys
import tempfile
import time
import traceback

import numpy as np

import dsv4
import formats as fm
import synth

F32, F64 = np.float32, np.float64
FULL = "--full" in sys.argv
GOLDEN = os.environ.get("PL_GOLDEN_DIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
TESTS = []


class Skipped(Exception):
    """Raised by a test that cannot run here; the text says why."""


def test(fn):
    TESTS.append(fn)
    return fn


def close(a, b, rel=0.0, abs_=0.0):
    a, b = np.asarray(a, F64), np.asarray(b, F64)
    assert a.shape == b.shape, (a.shape, b.shape)
    err = np.abs(a - b)
    assert (err <= abs_ + rel * np.abs(b)).all(), "max error %g" % err.max()


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape, (a.shape, b.shape)
    diff = ~((a == b) | (np.isnan(a) & np.isnan(b))) if a.dtype.kind == "f" else a != b
    assert not diff.any(), "%d of %d differ" % (diff.sum(), diff.size)


def rng(seed):
    return np.random.Generator(np.random.PCG64(seed))


def bf(x):
    return fm.bf16_round(np.asarray(x, F32))


_models = {}


BASE = dict(expert_dtype="fp8", hidden_size=256, q_lora_rank=256, moe_intermediate_size=256)


def nano(mode, base=False):
    """Model on a shared temporary nano checkpoint; base: Base layout, two tiles per row."""
    if base not in _models:
        d = tempfile.TemporaryDirectory()
        synth.write_checkpoint(d.name, synth.make_config("nano", overrides=BASE if base else None), 3)
        _models[base] = d, dsv4.Weights(d.name)
    return dsv4.Model(None, mode, _models[base][1])


def nano_path(base=False):
    """Folder of the checkpoint of nano()."""
    nano("ref", base)
    return _models[base][0].name


def prompt(n, seed=0, V=512):
    return rng(seed).integers(0, V, n)


def golden_file(name):
    path = os.path.join(GOLDEN, name)
    if not os.path.exists(path):
        raise Skipped("no " + name)
    return fm.SafeFile(path)


def run_all():
    """Runs every test that was marked; the exit status."""
    failed = 0
    print("1..%d" % len(TESTS))
    for i, fn in enumerate(TESTS, 1):
        begun = time.monotonic()
        try:
            fn()
            print("ok %d - %s # %.1f s" % (i, fn.__name__, time.monotonic() - begun), flush=True)
        except Skipped as e:
            print("ok %d - %s # SKIP %s" % (i, fn.__name__, e), flush=True)
        except Exception:
            failed += 1
            print("not ok %d - %s" % (i, fn.__name__), flush=True)
            print("# " + traceback.format_exc().rstrip().replace("\n", "\n# "), flush=True)
    return 1 if failed else 0
