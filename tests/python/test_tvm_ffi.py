"""Every exported function through apache-tvm-ffi, as any other host would call it: test_tvm_ffi.py LIBRARY TOP. TAP on standard
output.

A function that the library exports and that has no call here is a failure. Tensors go as DLTensor pointers and as tensor
objects; each argument is wrong on its own, and is told by its name, with nothing written.
"""
from common import LIBRARY, TOP, ints, randn, refused, rng, run

import ctypes
import json
import os
import subprocess
import sys

import torch

import plimsoll
from plimsoll._native import DLTENSOR, FLOAT, INT, NONE, OPAQUE, Library, _Any
from plimsoll._operators import memory_of

PREFIX = "__tvm_ffi_"


def exported():
    """Names of functions, without those that tell of them."""
    told = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    symbols = [line.split()[2] for line in told.splitlines()]
    return {s[len(PREFIX):] for s in symbols if s.startswith(PREFIX) and not s.startswith(PREFIX + "_metadata_")}


def unused(*shape, dtype=torch.bfloat16):
    """An output, and bytes that must not stay or must not change."""
    n = torch.Size(shape).numel() * dtype.itemsize
    return torch.full((n,), 0xA5, dtype=torch.uint8).view(dtype).view(shape)


def work_of(n):
    work = torch.full((n + 128,), 0xA5, dtype=torch.uint8)
    return work[-work.data_ptr() % 64:]


def varlen(c):
    return {"context": c, "q": randn(9, 4, 64), "k": randn(12, 2, 64), "v": randn(12, 2, 64), "cu_seqlens_q": ints(0, 4, 9),
            "cu_seqlens_k": ints(0, 6, 12), "page_table": None, "sink": torch.zeros(4), "softmax_scale": 0.0, "causal": True,
            "window_left": 4, "window_right": -1, "softcap": 15.0, "out": unused(9, 4, 64),
            "lse": unused(4, 9, dtype=torch.float32), "workspace": None}


def paged(c):
    return {**varlen(c), "k": randn(5, 4, 2, 64), "v": randn(5, 4, 2, 64), "page_table": ints(4, 0, 1, 3).view(2, 2)}


def sparse(c, **extra):
    return {"context": c, "q": randn(6, 16, 512), **extra, "cache": filled_cache(), "indices": slots_of(6, 64),
            "lengths": ints(64, 20, 0) if extra else ints(64, 20, 0, 1, 2, 3), "extra_cache": filled_cache(),
            "extra_indices": slots_of(6, 32), "extra_lengths": None, "sink": torch.randn(16, generator=rng), "softmax_scale": 0.1,
            "out": unused(6, 16, 512), "max_logits": unused(16, 6, dtype=torch.float32),
            "lse": unused(16, 6, dtype=torch.float32), "workspace": None}


def filled_cache(dtype=torch.float8_e4m3fn):
    cache = torch.zeros(4, 16, 1, 584, dtype=torch.uint8)
    plimsoll.kv_insert(cache, torch.arange(64).int(), randn(64, 512))
    return cache.view(dtype)


def slots_of(*shape):
    return torch.randint(-1, 64, shape, generator=rng).int()


def norm(c):
    return {"context": c, "x": randn(5, 256), "weight": randn(256), "eps": 1e-6, "y": unused(5, 256),
            "codes": unused(5, 256, dtype=torch.float8_e4m3fn), "scales": unused(5, 2, dtype=torch.uint8)}


def parts(c):
    codes, scales, rope = plimsoll.kv_unpack(filled_cache(torch.uint8), torch.arange(3).int())
    return {"context": c, "cache": unused(2, 8, 1, 584, dtype=torch.uint8), "slots": ints(3, -1, 9), "codes": codes, "scales": scales,
            "rope": rope}


def frequencies():
    return 10000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)


# Arguments of a call, and the tensors that it writes.
CALLS = {
    "attention_varlen": (varlen, ("out", "lse")),
    "attention_sparse_prefill": (sparse, ("out", "max_logits", "lse")),
    "attention_sparse_decode": (lambda c: sparse(c, seq_tokens=2), ("out", "max_logits", "lse")),
    "kv_insert": (lambda c: {"context": c, "cache": unused(2, 8, 1, 656, dtype=torch.uint8), "slots": ints(3, -1, 9),
                             "x": randn(3, 576)}, ("cache",)),
    "kv_gather": (lambda c: {"context": c, "cache": filled_cache(), "slots": ints(3, -1, 9), "x": unused(3, 512)}, ("x",)),
    "kv_pack": (parts, ("cache",)),
    "kv_unpack": (lambda c: {"context": c, "cache": filled_cache(), "slots": ints(3, -1, 9),
                             "codes": unused(3, 448, dtype=torch.uint8), "scales": unused(3, 8, dtype=torch.uint8),
                             "rope": unused(3, 64)}, ("codes", "scales", "rope")),
    "rms_norm": (norm, ("y", "codes", "scales")),
    "quantise": (lambda c: {k: norm(c)[k] for k in ("context", "x", "codes", "scales")}, ("codes", "scales")),
    "rope_frequencies": (lambda c: {"base": 10000.0, "factor": 16.0, "original_max_position": 4096.0, "beta_fast": 32.0,
                                    "beta_slow": 1.0, "frequencies": unused(32, dtype=torch.float32)}, ("frequencies",)),
    "rope": (lambda c: {"context": c, "x": randn(3, 4, 192)[..., :128], "frequencies": frequencies().float(),
                        "positions": ints(0, 7, 1000), "inverse": False}, ("x",)),
    "head_norm_rope": (lambda c: {"context": c, "q": randn(3, 4, 512), "frequencies": frequencies().float(),
                                  "positions": ints(0, 7, 1000), "eps": 1e-6}, ("q",)),
    "hadamard": (lambda c: {"context": c, "x": randn(4, 128), "y": unused(4, 128)}, ("y",)),
    "provider_describe": (lambda c: {"text": unused(4096, dtype=torch.uint8)}, ("text",)),
}
OTHERS = {"ops_context_create", "ops_context_destroy"}


class Host:
    """The module, and a context of it."""

    def __init__(self, workers=1):
        import tvm_ffi

        self.tvm_ffi, self.module = tvm_ffi, tvm_ffi.load_module(LIBRARY)
        self.context = self.module.ops_context_create(workers)

    def arguments(self, name, make=None):
        """The same each time; the workspace is as large as the function asks for."""
        rng.manual_seed(3)
        values = (make or CALLS[name][0])(self.context)
        if "workspace" in values:
            values["workspace"] = work_of(self.workspace_bytes(name))[:self.workspace_bytes(name)]
        return values

    def workspace_bytes(self, name):
        return getattr(self.module, name + "_workspace_size")(self.context)

    def call(self, name, values):
        return getattr(self.module, name)(*values.values())

    def call_with_pointers(self, name, values):
        """By the runtime's C ABI: tensors are DLTensor pointers, which Python's binding makes objects of."""
        runtime = self.tvm_ffi.libinfo.load_lib_ctypes("apache-tvm-ffi", "tvm_ffi", "RTLD_GLOBAL")
        function = self.module.get_function(name)
        args, keep, result = (_Any * len(values))(), [], _Any()
        for arg, (argument, value) in zip(args, values.items()):
            if isinstance(value, torch.Tensor):
                keep.append(memory_of(argument, value))
                arg.type_index, arg.v.ptr = DLTENSOR, ctypes.addressof(keep[-1].tensor)
            elif value is None:
                arg.type_index = NONE
            elif isinstance(value, float):
                arg.type_index, arg.v.f = FLOAT, value
            elif isinstance(value, int):
                arg.type_index, arg.v.i = INT, value
            else:
                arg.type_index, arg.v.ptr = OPAQUE, value.value
        assert runtime.TVMFFIFunctionCall(ctypes.c_void_p(function.__chandle__()), args, len(values), ctypes.byref(result)) == 0, name

    def close(self):
        self.module.ops_context_destroy(self.context)


def with_host(case):
    def wrapped():
        host = Host()
        case(host)
        host.close()

    wrapped.__name__ = case.__name__
    return wrapped


def types_of(told):
    """Of the arguments, as the runtime's own exports have it."""
    return json.loads(told["type_schema"])["args"][1:]


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


@with_host
def every_function_has_a_call(host):
    names = exported()
    queries = {name + "_workspace_size" for name in CALLS if name + "_workspace_size" in names}
    assert names == set(CALLS) | OTHERS | queries, names ^ (set(CALLS) | OTHERS | queries)
    for name in names:
        told = host.module.get_function_metadata(name)
        assert told["version"] == plimsoll.__version__
        arguments = list(CALLS[name][0](host.context)) if name in CALLS else ["n_workers" if "create" in name else "context"]
        assert told["arguments"] == arguments, f"{name}: {told['arguments']}"
        assert len(types_of(told)) == len(arguments), name
        assert host.tvm_ffi.core.TypeSchema.from_json_str(told["type_schema"]).origin == "Callable", name
    schema = host.tvm_ffi.core.TypeSchema.from_json_str(host.module.get_function_metadata("attention_varlen")["type_schema"])
    assert repr(schema).count("Tensor | None") == 3 and "bool, int, int, float" in repr(schema)


@with_host
def both_kinds_of_tensors(host):
    """Tensor objects and pointers to a DLTensor; and pointers without the runtime."""
    refused(TypeError, "type index 70,", lambda: host.module.ops_context_create(randn(2, 2)))
    own = plimsoll.Context(1, Library(LIBRARY))
    for name, (make, outputs) in {**CALLS, "attention_varlen, pages": (paged, ("out", "lse"))}.items():
        name, results = name.partition(",")[0], []
        for way in ("torch's", "objects", "pointers", "without"):
            before, values = host.arguments(name, make), host.arguments(name, make)
            if way == "torch's":
                host.call(name, values)
            elif way == "objects":
                host.call(name, {k: host.tvm_ffi.from_dlpack(v) if isinstance(v, torch.Tensor) else v for k, v in values.items()})
            elif way == "pointers":
                host.call_with_pointers(name, values)
            elif "context" in values:
                own.call(name, *(memory_of(k, v) if isinstance(v, torch.Tensor) else v for k, v in list(values.items())[1:]))
            else:
                own.library.call(name, *(memory_of(k, v) if isinstance(v, torch.Tensor) else v for k, v in values.items()))
            assert all(not torch.equal(bits(values[k]), bits(before[k])) for k in outputs), f"{name}: not written"
            for k, v in values.items():
                if isinstance(v, torch.Tensor) and k not in outputs and k != "workspace":
                    assert torch.equal(bits(v), bits(before[k])), f"{name}: {k} is no output"
            results.append([bits(values[k]) for k in outputs])
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other)), name
    own.close()


@with_host
def wrong_arguments_are_named(host):
    for name, (make, outputs) in CALLS.items():
        types = types_of(host.module.get_function_metadata(name))
        before, values = host.arguments(name), host.arguments(name)

        def call(**changed):
            return lambda: host.call(name, {**values, **changed})

        refused(TypeError, "number of arguments is wrong (got 0", lambda: getattr(host.module, name)())
        refused(TypeError, "number of arguments", lambda: getattr(host.module, name)(*values.values(), 1))
        for argument, kind in zip(values, types, strict=True):
            if argument == "page_table":  # keys have another shape beside one
                pages = host.arguments(name, paged)
                refused(TypeError, "page_table: wrong type", lambda: host.call(name, {**pages, "page_table": "text"}))
                refused(TypeError, "page_table: wrong element type", lambda: host.call(name, {**pages, "page_table": torch.zeros(2, 2)}))
                continue
            refused(TypeError, f"{argument}: wrong type", call(**{argument: "text"}))
            if kind["type"] != "Optional":
                refused(TypeError, f"{argument}: wrong type", call(**{argument: None}))
            tensor = values[argument]
            if not isinstance(tensor, torch.Tensor):
                continue
            refused(TypeError, f"{argument}: ", call(**{argument: torch.zeros(tensor.shape, dtype=torch.float64)}))
            deep = tensor.view(1, 1, 1, 1, *tensor.shape) if tensor.is_contiguous() else tensor[None, None]
            refused(ValueError, f"{argument}: number of dimensions is wrong", call(**{argument: deep}))
        for k in outputs:
            assert torch.equal(bits(values[k]), bits(before[k])), f"{name}: a refused call has written {k}"
        host.call(name, values)


@with_host
def workspaces_are_asked_for(host):
    """As many bytes as the query says are enough, no byte behind them is touched, and one less is refused."""
    more = Host(3)
    for name, (make, outputs) in CALLS.items():
        values = host.arguments(name)
        if "context" not in values:
            continue
        query = getattr(host.module, name + "_workspace_size")
        size = query(host.context)
        assert isinstance(size, int) and (size > 0) == ("workspace" in values), f"{name}: {size}"
        assert more.workspace_bytes(name) == 3 * size
        refused(TypeError, "context: wrong type", lambda: query(1))
        refused(TypeError, "number of arguments", lambda: query())
        if not size:
            continue
        whole = work_of(size)
        values["workspace"] = whole[:size]
        host.call(name, values)
        assert (whole[size:] == 0xA5).all() and len(whole) > size, name
        again = host.arguments(name)
        again["workspace"] = work_of(size)[:size - 1]
        refused(ValueError, "workspace_bytes", lambda: host.call(name, again))
        again["workspace"] = work_of(size + 8)[8:size + 8]
        refused(ValueError, "workspace", lambda: host.call(name, again))
        assert all((bits(again[k]) == 0xA5).all() for k in outputs), name
        other = more.arguments(name)
        more.call(name, other)
        assert all(torch.equal(bits(other[k]), bits(values[k])) for k in outputs), f"{name}: three workers"
    more.close()


@with_host
def caches_through_the_runtime(host):
    """Rows in, out, in parts and back, in every format, against the numbers themselves."""
    for row, dim in ((584, 512), (656, 576), (512, 512)):
        cache, other = ((torch.zeros(3, 5, 1, row, dtype=torch.uint8) if row > dim else torch.zeros(15, row).bfloat16())
                        for _ in range(2))
        slots, x, back, again = torch.randperm(15, generator=rng)[:9].int(), randn(9, dim), unused(9, dim), unused(9, dim)
        host.module.kv_insert(host.context, cache, slots, x)
        host.module.kv_gather(host.context, cache, slots, back)
        if row == dim:
            assert torch.equal(back, x)
            refused(ValueError, "cache: has no parts", lambda: host.module.kv_unpack(
                host.context, cache, slots, unused(9, 448, dtype=torch.uint8), unused(9, 8, dtype=torch.uint8), unused(9, 64)))
            continue
        nope, block = (448, 64) if dim == 512 else (512, 128)
        largest = x[:, :nope].double().unflatten(1, (-1, block)).abs().amax(2).repeat_interleave(block, 1)
        assert ((back - x)[:, :nope].double().abs() <= x[:, :nope].double().abs() / 15 + largest / 448 / 256).all()
        assert torch.equal(back[:, nope:], x[:, nope:])
        scales = unused(9, 8, dtype=torch.uint8) if dim == 512 else unused(9, 4, dtype=torch.float32)
        pieces = unused(9, nope, dtype=torch.uint8), scales, unused(9, 64)
        host.module.kv_unpack(host.context, cache, slots, *pieces)
        assert torch.equal(pieces[2], x[:, nope:])
        power = torch.exp2(scales.double()[:, :7] - 127) if dim == 512 else scales.double()
        numbers = pieces[0].view(torch.float8_e4m3fn).double().unflatten(1, (-1, block)) * power[..., None]
        assert torch.equal(numbers.flatten(1).bfloat16(), back[:, :nope])
        host.module.kv_pack(host.context, other, slots, *pieces)
        host.module.kv_gather(host.context, other, slots, again)
        assert torch.equal(again, back) and torch.equal(other, cache)
        refused(ValueError, "slots[0]: no such slot (got 15", lambda: host.module.kv_insert(host.context, cache, ints(15), x[:1]))
        refused(ValueError, "x, dims", lambda: host.module.kv_gather(host.context, cache, slots, unused(9, 64)))
        refused(ValueError, "codes: wrong shape", lambda: host.module.kv_pack(host.context, cache, slots, pieces[0][:, :64].contiguous(),
                                                                              *pieces[1:]))


@with_host
def norms_and_transforms_equal_float64(host):
    values = host.arguments("rms_norm")
    host.call("rms_norm", values)
    x, y = values["x"].double(), values["y"].double()
    want = x / (x.square().mean(1, keepdim=True) + 1e-6).sqrt() * values["weight"].double()
    assert ((y - want).abs() <= 2.0**-7 * want.abs() + 1e-30).all()
    for codes, scales in ((values["codes"], values["scales"]), quantised(host, values["y"])):
        power = torch.exp2(scales.double() - 127)
        back = (codes.double().unflatten(1, (2, 128)) * power[..., None]).flatten(1)
        assert ((back - y).abs() <= y.abs() / 16 + power.repeat_interleave(128, 1) * 2.0**-9).all()
        assert torch.equal(bits(codes), bits(values["codes"])) and torch.equal(scales, values["scales"])
    unit, z = torch.zeros(4, 128).bfloat16(), unused(4, 128)
    unit[range(4), [0, 1, 2, 64]] = 1
    host.module.hadamard(host.context, unit, z)
    signs = torch.tensor([[(-1.0) ** bin(i & j).count("1") for j in range(128)] for i in (0, 1, 2, 64)])
    assert torch.equal(z, (signs * 128**-0.5).bfloat16())


def quantised(host, y):
    values = {**host.arguments("quantise"), "x": y}
    host.call("quantise", values)
    return values["codes"], values["scales"]


def rotated(x, positions, inverse=False):
    """The last 64 numbers of x [n, h, d], pairs of neighbours, in float64."""
    angle = positions.double()[:, None, None] * frequencies() * (-1 if inverse else 1)
    a, b = x[..., -64::2], x[..., -63::2]
    out = x.clone()
    out[..., -64::2], out[..., -63::2] = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
    return out


@with_host
def rotations_equal_float64(host):
    def close(got, want, size):
        # Half a step of bf16, and what the product of a position of 1000 and a frequency may be off in float32.
        assert ((got.double() - want).abs() <= 2.0**-8 * want.abs() + 1e-4 * size.abs().amax() + 1e-30).all()

    table = unused(32, dtype=torch.float32)
    host.module.rope_frequencies(10000.0, 0.0, 0.0, 0.0, 0.0, table)
    assert ((table.double() - frequencies()).abs() <= 2.0**-22 * frequencies()).all()
    host.module.rope_frequencies(10000.0, 16.0, 4096.0, 32.0, 1.0, table)
    # Between the pairs that turn 32 times and once within 4096 positions, from the plain frequency to a 16th of it.
    turns = 64 * torch.log(torch.tensor([4096 / (32 * 2 * torch.pi), 4096 / (2 * torch.pi)]).double()) / (2 * torch.log(torch.tensor(1e4).double()))
    low, high = turns[0].floor(), turns[1].ceil()
    ramp = ((torch.arange(32).double() - low) / (high - low)).clamp(0, 1)
    want = frequencies() * (1 - ramp) + frequencies() / 16 * ramp
    assert ((table.double() - want).abs() <= 2.0**-20 * want).all() and 0 < low < high < 31
    for inverse in (False, True):
        values, before = host.arguments("rope"), host.arguments("rope")
        values["inverse"] = inverse
        host.call("rope", values)
        x = before["x"].double()
        close(values["x"], rotated(x, values["positions"], inverse), x)
        assert torch.equal(values["x"][..., :-64], before["x"][..., :-64])
    refused(ValueError, "positions", lambda: host.module.rope(host.context, values["x"], values["frequencies"], ints(0, -1, 1), False))
    refused(ValueError, "frequencies: wrong length", lambda: host.module.rope(
        host.context, values["x"], torch.zeros(31), values["positions"], False))
    values, before = host.arguments("head_norm_rope"), host.arguments("head_norm_rope")
    host.call("head_norm_rope", values)
    q = before["q"].double()
    q = q / (q.square().mean(2, keepdim=True) + 1e-6).sqrt()
    close(values["q"], rotated(q, values["positions"]), q)


@with_host
def contexts_and_descriptions(host):
    """What is no context is refused; the record of the provider is JSON, and comes whole or not at all."""
    for name in OTHERS:
        for wrong in ("text", None, randn(1)):
            refused(TypeError, "wrong type", lambda: getattr(host.module, name)(wrong))
    refused(ValueError, "n_workers", lambda: host.module.ops_context_create(-1))
    text = unused(4096, dtype=torch.uint8)
    n = host.module.provider_describe(text)
    record = json.loads(bytes(text[:n].tolist()))
    assert record["name"] == "plimsoll" and record["version"] == plimsoll.__version__ and (text[n:] == 0xA5).all()
    functions = exported()
    assert {o["function"] for o in record["operators"]} < functions
    for operator in record["operators"]:
        told = host.module.get_function_metadata(operator["function"])
        assert told["arguments"] == operator["parameters"]
    less = unused(n - 1, dtype=torch.uint8)
    assert host.module.provider_describe(less) == n and (less == 0xA5).all()


def nobody_tells_without_a_runtime():
    """The text of a function's metadata has no owner then, and the call says so."""
    script = ("import sys, plimsoll\ntry:\n    plimsoll.Library().call('_metadata_hadamard')\n"
              "except plimsoll.NativeError as e:\n    sys.exit('no runtime' not in str(e))\nsys.exit('a text')")
    assert subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.path.join(TOP, "python")},
                          check=False).returncode == 0


run([every_function_has_a_call, both_kinds_of_tensors, wrong_arguments_are_named, workspaces_are_asked_for,
     caches_through_the_runtime, norms_and_transforms_equal_float64, rotations_equal_float64, contexts_and_descriptions,
     nobody_tells_without_a_runtime])
