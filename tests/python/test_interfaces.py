"""Names, arguments and defaults of FlashAttention-3 and FlashMLA, argument by argument: test_interfaces.py LIBRARY TOP. TAP on
standard output.

Every argument with a default is given that default, a value that works, or one that is refused by the argument's name; the
calls beside the three main ones are compared with those.
"""
from common import INF, allowed, allowed_lse, close, ints, randn, refused, rng, run

import inspect

import torch

import flash_attn_interface as fa
import flash_mla

bfloat16 = torch.bfloat16


def written(signature):
    """The parameters of a text."""
    return inspect.signature(eval(f"lambda {signature}: None")).parameters


# What upstream declares, and behind it what is accepted here besides.
FA3 = {
    "flash_attn_func": (
        "q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1), "
        "attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False",
        "return_softmax_lse"),
    "flash_attn_varlen_func": (
        "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, seqused_k=None, softmax_scale=None, "
        "causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0, "
        "num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False", "return_softmax_lse"),
    "flash_attn_qkvpacked_func": (
        "qkv, softmax_scale=None, causal=False, q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1), "
        "attention_chunk=0, softcap=0.0, deterministic=False, num_heads_q=None, sm_margin=0, return_attn_probs=False",
        "return_softmax_lse"),
    "flash_attn_with_kvcache": (
        "q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None, "
        "cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None, "
        "q_descale=None, k_descale=None, v_descale=None, softmax_scale=None, causal=False, window_size=(-1, -1), attention_chunk=0, "
        "softcap=0.0, rotary_interleaved=True, scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0, "
        "return_softmax_lse=False", "return_attn_probs"),
    "flash_attn_combine": ("out_partial, lse_partial, out=None, out_dtype=None", None),
    "get_scheduler_metadata": (
        "batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, cache_seqlens, qkv_dtype=bfloat16, "
        "headdim_v=None, cu_seqlens_q=None, cu_seqlens_k_new=None, cache_leftpad=None, page_size=None, max_seqlen_k_new=0, "
        "causal=False, window_size=(-1, -1), attention_chunk=0, has_softcap=False, num_splits=0, pack_gqa=None, sm_margin=0", None),
}
MLA = {
    "flash_mla_with_kvcache": (
        "q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, num_splits=None, softmax_scale=None, "
        "causal=False, is_fp8_kvcache=False, indices=None, attn_sink=None, extra_k_cache=None, extra_indices_in_kvcache=None, "
        "topk_length=None, extra_topk_length=None", None),
    "flash_mla_sparse_fwd": ("q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None, indexer_topk=0", None),
    "flash_attn_varlen_func": (
        "q, k, v, cu_seqlens_qo, cu_seqlens_kv, max_seqlen_qo, max_seqlen_kv, dropout_p=0.0, softmax_scale=None, causal=False, "
        "deterministic=False, is_varlen=True", None),
    "flash_attn_varlen_qkvpacked_func": (
        "qkv, cu_seqlens, max_seqlen, head_dim_qk, dropout_p=0.0, softmax_scale=None, causal=False, deterministic=False, "
        "is_varlen=True", None),
    "flash_attn_varlen_kvpacked_func": (
        "q, kv, cu_seqlens_qo, cu_seqlens_kv, max_seqlen_qo, max_seqlen_kv, head_dim_qk, dropout_p=0.0, softmax_scale=None, "
        "causal=False, deterministic=False, is_varlen=True", None),
    "get_mla_metadata": ("*args, **kwargs", None),
}


def signatures_are_upstreams():
    for module, functions in ((fa, FA3), (flash_mla, MLA)):
        assert set(functions) <= set(module.__all__), set(functions) - set(module.__all__)
        for name, (upstream, besides) in functions.items():
            got = list(inspect.signature(getattr(module, name)).parameters.values())
            if besides:
                assert got[-1].name == besides and got.pop().default is False, f"{name}: {besides}"
            want = [p.replace(kind=g.kind) for p, g in zip(written(upstream).values(), got)]
            assert got == want and len(got) == len(written(upstream)), f"{name}: {got}"


def steps(tensor):
    """Strides that mean something."""
    return [stride for stride, n in zip(tensor.stride(), tensor.shape) if n > 1]


def same(what, got, want):
    got, want = (r if isinstance(r, tuple) else (r,) for r in (got, want))
    assert len(got) == len(want), f"{what}: {len(got)} results"
    for a, b in zip(got, want):
        assert (a is None and b is None) or (torch.equal(a, b) and a.dtype == b.dtype and steps(a) == steps(b)), what


def odd_values(default):
    """Of other types than the default, or of its own."""
    if isinstance(default, bool):
        return [not default]
    if default is None:
        return [3, torch.ones(2, 2), (1,)]
    if isinstance(default, (int, float)):
        return [default + 7, torch.ones(2, 2)]
    return [(3,)]


def walk(function, given, works, leave=()):
    """`works`: an argument's other value; all the others with a default are refused by name. `leave`: not walked over."""
    parameters = inspect.signature(function).parameters
    plain = function(**given())
    assert set(works) <= set(parameters)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty or name in leave:
            continue
        same(f"{function.__name__} with {name} at its default", function(**{**given(), name: given().get(name, parameter.default)}), plain)
        if name in works:
            function(**{**given(), name: works[name]})
            continue
        for value in odd_values(parameter.default):
            try:
                function(**{**given(), name: value})
            except (NotImplementedError, TypeError, ValueError) as e:
                assert str(e).startswith(name + ": "), f"{function.__name__}, {name}: {e}"
                assert "\n" not in str(e), str(e)
            else:
                raise AssertionError(f"{function.__name__}: {name} = {value} is not refused")


def every_argument_of_flash_attention():
    q, k, v = randn(2, 5, 4, 64), randn(2, 8, 2, 64), randn(2, 8, 2, 64)
    cu_q, cu_k = ints(0, 5, 10), ints(0, 8, 16)
    numbers = {"softmax_scale": 0.1, "causal": True, "window_size": (3, 1), "softcap": 15.0, "return_attn_probs": True,
               "return_softmax_lse": True}
    splits = {"num_splits": 0}
    walk(fa.flash_attn_func, lambda: {"q": q, "k": k, "v": v}, {**numbers, **splits})
    walk(fa.flash_attn_varlen_func, lambda: {
        "q": q.flatten(0, 1), "k": k.flatten(0, 1), "v": v.flatten(0, 1), "cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k,
        "max_seqlen_q": 5, "max_seqlen_k": 8}, {**numbers, **splits, "seqused_q": ints(3, 5), "seqused_k": ints(8, 0)})
    walk(fa.flash_attn_qkvpacked_func, lambda: {"qkv": randn(2, 5, 3, 4, 64).zero_()}, numbers)
    walk(fa.flash_attn_with_kvcache, lambda: {"q": q, "k_cache": k, "v_cache": v}, {
        **numbers, "num_splits": 1, "cache_seqlens": ints(3, 8), "cache_batch_idx": ints(1, 1), "cache_leftpad": ints(0, 3),
        "max_seqlen_q": 5, "scheduler_metadata": fa.get_scheduler_metadata(2, 5, 8, 4, 2, 64, ints(3, 8))},
        leave=("page_table", "cu_seqlens_q"))
    walk(fa.get_scheduler_metadata, lambda: dict(batch_size=2, max_seqlen_q=5, max_seqlen_k=8, num_heads_q=4, num_heads_kv=2,
                                                 headdim=64, cache_seqlens=ints(3, 8)), {
        "qkv_dtype": torch.float16, "headdim_v": 128, "cu_seqlens_q": cu_q, "cache_leftpad": ints(0, 3), "page_size": 16,
        "max_seqlen_k_new": 1, "causal": True, "window_size": (3, 1), "has_softcap": True, "num_splits": 1})
    refused(NotImplementedError, "scheduler_metadata: not supported",
            lambda: fa.flash_attn_with_kvcache(q, k, v, scheduler_metadata=torch.zeros(4, dtype=torch.int32)))


def every_argument_of_flash_mla():
    q, cache = randn(2, 3, 8, 512), torch.zeros(4, 16, 1, 584, dtype=torch.uint8)
    listed = torch.randint(0, 64, (2, 3, 64), generator=rng).int()
    given = {"q": q, "k_cache": cache, "block_table": None, "cache_seqlens": None, "head_dim_v": 512, "is_fp8_kvcache": True,
             "indices": listed}

    def sparse():
        return {**given, "tile_scheduler_metadata": flash_mla.get_mla_metadata()[0]}

    # extra_k_cache comes with its lists: test_flash_mla.py has them together, and each without the other.
    walk(flash_mla.flash_mla_with_kvcache, sparse, {"softmax_scale": 0.1, "attn_sink": torch.zeros(8), "topk_length": ints(0, 64)},
         leave=("is_fp8_kvcache", "indices", "extra_k_cache"))

    def dense():
        return {**sparse(), "k_cache": randn(2, 8, 1, 512).zero_(), "block_table": ints(0, 1).view(2, 1),
                "cache_seqlens": ints(3, 8), "is_fp8_kvcache": False, "indices": None}

    walk(flash_mla.flash_mla_with_kvcache, dense, {"softmax_scale": 0.1, "causal": True}, leave=("indices",))
    walk(flash_mla.flash_mla_sparse_fwd, lambda: {"q": q.flatten(0, 1), "kv": randn(9, 1, 512).zero_(), "sm_scale": 0.1,
                                                  "indices": listed.view(6, 1, 64)},
         {"attn_sink": torch.zeros(8), "topk_length": ints(0, 1, 2, 3, 64, 5)})
    qkv, cu = randn(6, 4, 320), ints(0, 2, 6)
    works = {"softmax_scale": 0.1, "causal": True, "is_varlen": False}
    walk(flash_mla.flash_attn_varlen_func, lambda: dict(
        q=qkv[..., :128], k=qkv[..., 128:256], v=qkv[..., 256:], cu_seqlens_qo=cu, cu_seqlens_kv=cu, max_seqlen_qo=4,
        max_seqlen_kv=4), works)
    walk(flash_mla.flash_attn_varlen_qkvpacked_func, lambda: dict(qkv=qkv, cu_seqlens=cu, max_seqlen=4, head_dim_qk=128), works)
    walk(flash_mla.flash_attn_varlen_kvpacked_func, lambda: dict(
        q=qkv[..., :128], kv=qkv[..., 128:], cu_seqlens_qo=cu, cu_seqlens_kv=cu, max_seqlen_qo=4, max_seqlen_kv=4,
        head_dim_qk=128), works)


def flags_are_found_by_signature():
    """As consumers look: one prefers return_attn_probs, one return_softmax_lse, one gives whatever there is."""
    q, k, v = randn(5, 4, 64), randn(8, 2, 64), randn(8, 2, 64)
    args = q, k, v, ints(0, 5), ints(0, 8), 5, 8
    names = inspect.signature(fa.flash_attn_varlen_func).parameters
    flags = ("return_attn_probs", "return_softmax_lse")
    for order in (flags, flags[::-1]):
        flag = next(name for name in order if name in names)
        out, lse, *_ = fa.flash_attn_varlen_func(*args, **{flag: True})
        assert lse.shape == (4, 5) and lse.dtype == torch.float32 and out.shape == q.shape
    assert len(fa.flash_attn_varlen_func(*args, **{flag: True for flag in flags if flag in names})) == 2
    assert isinstance(fa.flash_attn_varlen_func(*args), torch.Tensor)
    for function in (fa.flash_attn_func, fa.flash_attn_with_kvcache, fa.flash_attn_qkvpacked_func):
        assert set(flags) <= set(inspect.signature(function).parameters)
    for flag in flags:
        assert len(fa.flash_attn_with_kvcache(q[None], k[None], v[None], **{flag: True})) == 4
    assert {"softcap", "window_size", "causal", "softmax_scale"} <= set(names)


def packed_calls_equal_the_plain_ones():
    options = {"causal": True, "softcap": 15.0, "window_size": (4, 0), "return_attn_probs": True}
    qkv = randn(2, 7, 3, 4, 64)
    same("qkv", fa.flash_attn_qkvpacked_func(qkv, **options), fa.flash_attn_func(*qkv.unbind(2), **options))
    qkv = randn(2, 7, 6 + 2 * 2, 64)
    parts = qkv[:, :, :6], qkv[:, :, 6:8], qkv[:, :, 8:]
    same("heads", fa.flash_attn_qkvpacked_func(qkv, num_heads_q=6, **options), fa.flash_attn_func(*parts, **options))
    for heads in (None, 5, 10, 0):
        refused(ValueError, "num_heads_q: does not fit", lambda: fa.flash_attn_qkvpacked_func(qkv, num_heads_q=heads))
    refused(ValueError, "qkv: wrong shape", lambda: fa.flash_attn_qkvpacked_func(randn(2, 7, 2, 4, 64)))
    refused(TypeError, "qkv, the part q: wrong dtype", lambda: fa.flash_attn_qkvpacked_func(randn(2, 7, 3, 4, 64).double()))

    q, kv, cu_q, cu_k = randn(9, 6, 192), randn(20, 2, 320), ints(0, 4, 9), ints(0, 20, 20)
    want = fa.flash_attn_varlen_func(q, kv[..., :192], kv[..., 192:], cu_q, cu_k, 5, 20, causal=True, return_attn_probs=True)
    out, lse = flash_mla.flash_attn_varlen_func(q, kv[..., :192], kv[..., 192:], cu_q, cu_k, 5, 20, causal=True)
    assert torch.equal(out, want[0]) and torch.equal(lse, want[1].t()) and lse.shape == (9, 6)
    same("kv", flash_mla.flash_attn_varlen_kvpacked_func(q, kv, cu_q, cu_k, 5, 20, 192, causal=True), (out, lse))
    qkv = randn(9, 4, 192 + 192 + 128)
    same("qkv", flash_mla.flash_attn_varlen_qkvpacked_func(qkv, cu_q, 5, 192, softmax_scale=0.05), flash_mla.flash_attn_varlen_func(
        qkv[..., :192], qkv[..., 192:384], qkv[..., 384:], cu_q, cu_q, 5, 5, softmax_scale=0.05))
    refused(ValueError, "head_dim_qk", lambda: flash_mla.flash_attn_varlen_qkvpacked_func(qkv, cu_q, 5, 256))
    refused(ValueError, "head_dim_qk", lambda: flash_mla.flash_attn_varlen_kvpacked_func(q, kv, cu_q, cu_k, 5, 20, 320))
    refused(ValueError, "cu_seqlens_kv", lambda: flash_mla.flash_attn_varlen_kvpacked_func(q, kv, cu_q, ints(0, 20, 21), 5, 20, 192))
    refused(ValueError, "kv and q, dims", lambda: flash_mla.flash_attn_varlen_kvpacked_func(q, kv, cu_q, cu_k, 5, 20, 128))


def parts_are_combined():
    """Keys in three calls, the last of which some rows do not see, put together: what one call gives, within the bounds of both."""
    q, k, v = randn(2, 9, 4, 64, dtype=torch.float32), randn(2, 40, 4, 64, dtype=torch.float32), randn(2, 40, 4, 64, dtype=torch.float32)
    parts = [fa.flash_attn_func(q, k[:, cut], v[:, cut], return_attn_probs=True) for cut in (slice(0, 7), slice(7, 36))]
    last = fa.flash_attn_func(q, k[:, 36:], v[:, 36:], causal=True, return_attn_probs=True)
    assert (last[1][:, :, :5] == -INF).all() and last[1][:, :, 5:].isfinite().all()
    parts.append(last)
    out, lse = fa.flash_attn_combine(torch.stack([p[0] for p in parts]), torch.stack([p[1] for p in parts]).transpose(2, 3))
    assert out.dtype == lse.dtype == torch.float32 and lse.shape == (2, 9, 4) and lse.stride() == (36, 1, 9)
    for b in range(2):
        q64, k64, v64 = (t[b].double().transpose(0, 1) for t in (q, k, v))
        s = q64 @ k64.transpose(1, 2) / 8
        s[:, :, 36:][:, torch.arange(4)[None] > torch.arange(9)[:, None] - 5] = -INF
        want = torch.logsumexp(s, -1)
        p = torch.exp(s - want[..., None])
        size = (q64.abs() @ k64.abs().transpose(1, 2)).amax(-1) / 8
        close("lse", lse[b].t(), want, 2 * allowed_lse(size))
        close("out", out[b].transpose(0, 1), p @ v64, 2 * allowed(p, v64, p @ v64, size, torch.float32))
    mine = torch.full(out.shape, 7.0).bfloat16()
    got = fa.flash_attn_combine(torch.stack([p[0] for p in parts]), torch.stack([p[1] for p in parts]).transpose(2, 3), mine)
    assert got[0] is mine and torch.equal(mine, out.bfloat16()) and torch.equal(got[1], lse)
    nothing = fa.flash_attn_combine(torch.full((3, 1, 2, 1, 8), float("nan")), torch.full((3, 1, 2, 1), -INF), out_dtype=torch.float16)
    assert not nothing[0].any() and nothing[0].dtype == torch.float16 and (nothing[1] == -INF).all()
    bad = torch.zeros(3, 1, 2, 1, 8)
    shown = fa.flash_attn_combine(bad, torch.tensor([0, float("nan"), 0]).view(3, 1, 1, 1).expand(3, 1, 2, 1))
    assert shown[0].isnan().all() and shown[1].isnan().all()
    for kind, word, args in ((TypeError, "out_partial: wrong dtype", (bad.double(), bad[..., 0])),
                             (ValueError, "out_partial: wrong number", (bad[0], bad[..., 0])),
                             (ValueError, "lse_partial: wrong shape", (bad, bad[:2, ..., 0])),
                             (ValueError, "out: wrong shape", (bad, bad[..., 0], bad[0, ..., :4])),
                             (TypeError, "out_dtype", (bad, bad[..., 0], None, torch.int32))):
        refused(kind, word, lambda: fa.flash_attn_combine(*args))


def rows_of_a_table_and_left_padding():
    """cache_batch_idx picks rows of page_table; cache_leftpad cuts keys of pages, whatever their strides."""
    k, v = randn(6, 8, 2, 64), randn(6, 8, 2, 128)
    table, q = torch.tensor([[5, 0, 3], [1, 4, 2]]).int(), randn(2, 3, 4, 64)
    wide = randn(6, 11, 2, 64)
    wide[:, :8] = k
    lengths, begins = [19, 24], [9, 3]
    rows = {"cache_seqlens": ints(*lengths), "page_table": table, "causal": True, "return_softmax_lse": True}
    want = [fa.flash_attn_func(q[b:b + 1], k[table[b].long()].flatten(0, 1)[None, begins[b]:lengths[b]],
                               v[table[b].long()].flatten(0, 1)[None, begins[b]:lengths[b]], causal=True, return_attn_probs=True)
            for b in range(2)]
    for keys in (k, wide[:, :8]):
        got = fa.flash_attn_with_kvcache(q, keys, v, cache_leftpad=ints(*begins), **rows)
        for b in range(2):
            same(f"row {b}", (got[0][b:b + 1], got[1][b:b + 1]), want[b])
    swapped = fa.flash_attn_with_kvcache(q.flip(0), k, v, cache_leftpad=ints(*begins[::-1]), cache_batch_idx=ints(1, 0),
                                         **{**rows, "cache_seqlens": ints(*lengths[::-1])})
    assert torch.equal(swapped[0].flip(0), got[0]) and torch.equal(swapped[1].flip(0), got[1])
    for word, changed in (("cache_batch_idx: no such rows", {"cache_batch_idx": ints(0, 2)}),
                          ("cache_leftpad: out of range", {"cache_leftpad": ints(20, 0)}),
                          ("cache_leftpad: wrong length", {"cache_leftpad": ints(0)}),
                          ("page_table: wrong length", {"page_table": table[:1]}),
                          ("page_table: no such page", {"page_table": table + 1, "cache_leftpad": ints(0, 0)})):
        refused(ValueError, word, lambda: fa.flash_attn_with_kvcache(q, k, v, **{**rows, **changed}))
    assert torch.equal(fa.flash_attn_with_kvcache(q, k, v, window_size=torch.tensor([4, 1]), page_table=table),
                       fa.flash_attn_with_kvcache(q, k, v, window_size=(4, 1), page_table=table))


run([signatures_are_upstreams, every_argument_of_flash_attention, every_argument_of_flash_mla, flags_are_found_by_signature,
     packed_calls_equal_the_plain_ones, parts_are_combined, rows_of_a_table_and_left_padding])
