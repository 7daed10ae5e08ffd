"""What the tests of the Python modules share: PyTorch or a skip, the float64 reference with its bounds, cases as TAP.

Bounds are those of the attention contracts, E6.1 and E6.2 with probabilities rounded to the inputs' type (c = 1), from
inputs as rounded.
"""
import os
import sys

if os.environ.get("PL_TORCH_PYTHON") and sys.executable != os.environ["PL_TORCH_PYTHON"]:
    os.execv(os.environ["PL_TORCH_PYTHON"], [os.environ["PL_TORCH_PYTHON"], *sys.argv])

LIBRARY, TOP = sys.argv[1:3]
os.environ["PLIMSOLL_FFI_LIBRARY"] = LIBRARY
sys.path.insert(0, os.path.join(TOP, "python"))
try:
    import torch
except ImportError:
    print("1..0 # SKIP torch is not installed (PL_TORCH_PYTHON: a Python that has it)")
    sys.exit(0)

INF = float("inf")
HALF_ULP = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}
# How many of each project's combinations are drawn, and from where on. The usual few are small; more have the projects' own sizes.
DRAWS = int(os.environ.get("PL_PYTHON_DRAWS", "8"))
SMALL = DRAWS <= 8
SEED = int(os.environ.get("PL_PYTHON_SEED", "7"))
rng = torch.Generator().manual_seed(SEED)


def randn(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=rng).to(dtype)


def draw(low, high):
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def pick(choices):
    return choices[draw(0, len(choices) - 1)]


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def allowed(p, v, out, size, dtype):
    """How far out [.., dv] may be off, from probabilities [.., keys], values [.., keys, dv] and score sizes [..]."""
    weight = p @ v.abs()
    off = HALF_ULP[dtype] * (out.abs() + weight) + 2.0**-21 * weight + 1e-30
    # What a score is off shows in the probabilities too.
    off = off + 2.0**-21 * size[..., None] * weight
    return off + (2.0**-25 if dtype == torch.float16 else 0)  # half of the smallest step


def allowed_lse(size):
    return 4e-6 + 2.0**-21 * size


def close(what, got, want, off):
    """Infinities in the same places and of the same sign, NaNs nowhere, the rest within bounds."""
    got = got.double()
    assert torch.equal(torch.isinf(got), torch.isinf(want)), f"{what}: infinities"
    infinite = torch.isinf(want)
    assert torch.equal(got[infinite], want[infinite]), f"{what}: signs of infinities"
    far = ~((got - want).abs() <= off) & ~infinite
    assert not far.any(), f"{what}: {int(far.sum())} of {far.numel()} too far, {(got - want).abs()[far].max()}"


def over(choices, case):
    """Draws from the product of `choices`; a failure tells which."""
    sizes = torch.tensor([len(c) for c in choices])
    total = int(sizes.prod())
    for number in torch.randperm(total, generator=rng)[:DRAWS].tolist():
        drawn = []
        for options in choices:
            number, at = divmod(number, len(options))
            drawn.append(options[at])
        try:
            case(*drawn)
        except Exception as e:  # whatever it was, these arguments brought it up
            raise AssertionError(f"seed {SEED}, {drawn}: {type(e).__name__}: {e}") from e


def refused(kind, word, call):
    try:
        call()
    except kind as e:
        assert word in str(e), f"{word!r} is not in {e}"
    else:
        raise AssertionError("not refused: " + word)


def workspace(module, name, context):
    """Aligned memory for a function of a TVM-FFI module."""
    work = torch.empty(getattr(module, name + "_workspace_size")(context) + 64, dtype=torch.uint8)
    start = -work.data_ptr() % 64
    return work[start:start + work.numel() - 64]


def run(cases):
    """All of them, or those that PL_PYTHON_CASES names."""
    wanted = os.environ.get("PL_PYTHON_CASES", "").split()
    cases = [case for case in cases if not wanted or case.__name__ in wanted]
    print(f"1..{len(cases)}")
    failed = 0
    for number, case in enumerate(cases, 1):
        try:
            case()
            print(f"ok {number} - {case.__name__}")
        except ModuleNotFoundError as e:
            print(f"ok {number} - {case.__name__} # SKIP {e}")
        except Exception as e:  # a case reports whatever went wrong with it
            failed += 1
            print(f"not ok {number} - {case.__name__}\n# {type(e).__name__}: {e}")
    sys.exit(failed > 0)
