"""The FlashMLA module against a float64 reference: test_flash_mla.py LIBRARY TOP. TAP on standard output.

Caches are made here, byte by byte as the contracts D3 lay them out, and what no list names in them is NaN.
"""
from common import (INF, LIBRARY, SMALL, TOP, allowed, allowed_lse, close, draw, ints, over, pick, randn, refused, rng, run,
                    workspace)

import inspect
import os
import subprocess
import sys

import torch

import flash_mla
import plimsoll

NAN_BYTE = 0xFF  # in e4m3, in e8m0, and twice or four times in bf16 and fp32


def quantised(x, block):
    """e4m3 codes of x [n, d], and the power-of-two scales of `block` numbers each."""
    parts = x.float().unflatten(1, (-1, block))
    scales = torch.exp2(torch.ceil(torch.log2((parts.abs().amax(2) / 448).clamp(min=1e-4))))
    return (parts / scales[..., None]).flatten(1).to(torch.float8_e4m3fn), scales


def filled(pages, page, dim, used, dtype=torch.uint8, pad=0):
    """A cache whose slots `used` have keys, and those keys [slots, dim] in float64 (NaN elsewhere)."""
    row = 656 if dim == 576 else 584
    stride = -(-page * row // 576) * 576 + 576 * pad if dim == 512 else page * row + 656 * pad
    memory = torch.full((pages, stride), NAN_BYTE, dtype=torch.uint8)
    keys = torch.full((pages * page, dim), float("nan"), dtype=torch.float64)
    x = randn(len(used), dim)
    nope, block = (512, 128) if dim == 576 else (448, 64)
    codes, scales = quantised(x[:, :nope], block)
    rope = x[:, nope:].contiguous()
    if dim == 576:  # any scale is allowed there, not powers of two alone
        scales = scales * 1.375
    values = (codes.float().unflatten(1, (-1, block)) * scales[..., None]).bfloat16().flatten(1)
    keys[used] = torch.cat([values, rope], 1).double()
    for i, slot in enumerate(used.tolist()):
        at = memory[slot // page]
        offset = slot % page
        data = at[row * offset:] if dim == 576 else at[576 * offset:]
        data[:nope] = codes[i].view(torch.uint8)
        if dim == 576:
            data[512:528] = scales[i].contiguous().view(torch.uint8)
            data[528:656] = rope[i].view(torch.uint8)
        else:
            data[448:576] = rope[i].view(torch.uint8)
            at[576 * page + 8 * offset:][:7] = (scales[i].log2() + 127).to(torch.uint8)
    return torch.as_strided(memory, (pages, page, 1, row), (stride, row, row, 1)).view(dtype), keys


def reference(q, keys, listed, scale, sink=None):
    """q [t, h, d] and, for each token, keys [slots, d] at `listed` [t, n] (below 0: none): out, max, lse and bounds."""
    seen = listed >= 0
    k = keys[listed.clamp(min=0).long()]
    k = torch.where(seen[..., None], k, 0.0)
    s = torch.einsum("thd,tnd->thn", q.double(), k) * scale
    size = (torch.einsum("thd,tnd->thn", q.double().abs(), k.abs()) * scale).amax(-1) if listed.shape[1] else s.new_zeros(s.shape[:2])
    s = s.masked_fill(~seen[:, None], -INF)
    lonely = ~seen.any(1)
    biggest = s.amax(-1) if listed.shape[1] else torch.full(s.shape[:2], -INF, dtype=torch.float64)
    lse = torch.logsumexp(s, -1) if listed.shape[1] else biggest.clone()
    p = torch.where(torch.isinf(lse)[..., None], 0.0, torch.exp(s - lse[..., None]))
    if sink is not None:
        p = p * torch.where(torch.isinf(lse), 0.0, torch.sigmoid(lse - sink.double()))[..., None]
    v = k[..., :512]
    out = p @ v
    lse[lonely] = INF
    return out, biggest, lse, allowed(p, v, out, size, torch.bfloat16), allowed_lse(size)


def lists(tokens, n, used, slots):
    """int32 [tokens, n]: used slots, what is none in between, and a token that has nothing."""
    listed = used[torch.randint(0, len(used), (tokens, n), generator=rng)].int()
    listed[torch.rand(tokens, n, generator=rng) < 0.1] = -1
    if tokens > 2:
        listed[draw(0, tokens - 1)] = -1
    return listed


def cut(listed, lengths, poison):
    """What counts, by lengths [tokens]; past them the lists name a slot of NaNs."""
    past = torch.arange(listed.shape[1]) >= lengths[:, None]
    return torch.where(past, -1, listed), torch.where(past, poison, listed).int()


def sinks(heads, kind):
    if kind == "none":
        return None
    sink = torch.randn(heads, generator=rng) * 3
    if kind == "special" and heads > 1:
        sink[0], sink[-1] = INF, -INF
    return sink


DECODE = (
    (512, 576), (1, 2, 3), (64, 128, 8), (64, 2, 53, 61, 69, 576), (64, 128, 576), ("none", "some", "special"),
    (False, True), (False, True), (torch.uint8, torch.float8_e4m3fn, torch.int8))


def decode_case(dim, s_q, heads, page, topk, sink_kind, with_length, with_extra, dtype):
    batch = draw(1, 4) if heads < 128 else 2
    q = randn(batch, s_q, heads, dim + 64)[..., :dim] if draw(0, 1) else randn(batch, s_q, heads, dim)
    sets, want, keys_all, base = [], [], [], 0
    for n in (topk, 64)[:1 + with_extra]:
        p = page if n == topk else 5
        pages = -(-topk // p) + 2
        slots = pages * p
        used = torch.randperm(slots, generator=rng)[:max(slots // 2, 1)]
        cache, keys = filled(pages, p, dim, used, dtype, pad=draw(0, 1))
        listed = lists(batch * s_q, n, used, slots)
        lengths = None
        if with_length:
            lengths = torch.randint(0, n + 1, (batch,), generator=rng).int()
            free = torch.ones(slots, dtype=torch.bool)
            free[used] = False
            counted, listed = cut(listed, lengths.repeat_interleave(s_q), int(free.nonzero()[0]))
        else:
            counted = listed
        want.append(torch.where(counted >= 0, counted + base, -1))
        keys_all.append(keys)
        base += slots
        sets.append((cache, listed.view(batch, s_q, n), lengths))
    sink = sinks(heads, sink_kind)
    extra = {}
    if with_extra:
        extra = {"extra_k_cache": sets[1][0], "extra_indices_in_kvcache": sets[1][1], "extra_topk_length": sets[1][2]}
    scale = pick((None, 0.05))
    meta, none = flash_mla.get_mla_metadata(1, 2, three=3)
    assert none is None and not meta.have_initialized
    out, lse = flash_mla.flash_mla_with_kvcache(
        q, sets[0][0], None, None, 512, meta, None, scale, is_fp8_kvcache=True, indices=sets[0][1], attn_sink=sink,
        topk_length=sets[0][2], **extra)
    assert meta.have_initialized and meta.config.topk == topk and meta.config.s_q == s_q
    assert out.shape == (batch, s_q, heads, 512) and out.dtype == torch.bfloat16
    assert lse.shape == (batch, heads, s_q) and lse.dtype == torch.float32
    ref = reference(q.flatten(0, 1), torch.cat(keys_all), torch.cat(want, 1), scale or dim**-0.5, sink)
    close("out", out.flatten(0, 1), ref[0], ref[3])
    close("lse", lse.transpose(1, 2).flatten(0, 1), ref[2], ref[4])


def sparse_decode_equals_float64():
    over(DECODE, decode_case)


PREFILL = ((512, 576), (1, 62, 213), (64, 128, 24), (1, 45, 592, 1840), (64, 128, 512),
                                 ("none", "some", "special"), (False, True))


def prefill_case(dim, s_q, heads, s_kv, topk, sink_kind, with_length):
    if SMALL:
        s_q = min(s_q, 17)
    q = randn(s_q, heads, dim)
    kv = randn(s_kv, 1, dim + 64)[..., :dim] if draw(0, 1) else randn(s_kv, 1, dim)
    used = torch.randperm(s_kv, generator=rng)[:max(s_kv // 2, 1)]
    free = torch.ones(s_kv, dtype=torch.bool)
    free[used] = False
    kv[free] = float("nan")
    listed = lists(s_q, topk, used, s_kv)
    listed[torch.rand(s_q, topk, generator=rng) < 0.05] = s_kv
    listed[:, 0] = torch.where(listed[:, 0] < 0, 2147480000, listed[:, 0])
    lengths, given = None, listed
    counted = torch.where(listed >= s_kv, -1, listed)
    if with_length:
        lengths = torch.randint(0, topk + 1, (s_q,), generator=rng).int()
        counted, given = cut(counted, lengths, int(free.nonzero()[0]) if s_kv > 1 else -1)
    sink = sinks(heads, sink_kind)
    scale = pick((dim**-0.5, 0.1352337788608801))
    out, biggest, lse = flash_mla.flash_mla_sparse_fwd(q, kv, given[:, None], scale, attn_sink=sink, topk_length=lengths)
    assert out.shape == (s_q, heads, 512) and biggest.shape == lse.shape == (s_q, heads)
    assert lse.dtype == biggest.dtype == torch.float32 and lse.is_contiguous()
    want = reference(q, kv[:, 0].double(), counted, scale, sink)
    close("out", out, want[0], want[3])
    close("max_logits", biggest, want[1], want[4])
    close("lse", lse, want[2], want[4])


def sparse_prefill_equals_float64():
    over(PREFILL, prefill_case)


def rows_without_keys_are_plus_infinity():
    cache, _ = filled(2, 4, 512, torch.tensor([1]))
    q = randn(2, 1, 64, 512)
    listed = torch.full((2, 1, 64), -1, dtype=torch.int32)
    listed[1, 0, 5] = 1
    meta = flash_mla.get_mla_metadata()[0]
    out, lse = flash_mla.flash_mla_with_kvcache(q, cache, None, None, 512, meta, is_fp8_kvcache=True, indices=listed)
    assert not out[0].any() and (lse[0] == INF).all() and torch.isfinite(lse[1]).all() and out[1].any()
    out, biggest, lse = flash_mla.flash_mla_sparse_fwd(q[:, 0], randn(3, 1, 512), torch.full((2, 1, 64), 3).int(), 0.1)
    assert not out.any() and (lse == INF).all() and (biggest == -INF).all()


def dense_equals_float64():
    for dim, dtype, heads_k, s_q, page, causal in (
            (576, torch.bfloat16, 1, 1, 64, False), (576, torch.bfloat16, 1, 3, 64, True),
            (576, torch.bfloat16, 2, 2, 16, True), (512, torch.bfloat16, 1, 2, 64, True),
            (512, torch.float16, 2, 1, 64, False)):
        lengths = [130, 0, 1, 77]
        heads = 8 * heads_k
        pages = [-(-n // page) for n in lengths]
        cache = torch.full((sum(pages) + 2, page, heads_k, dim), float("nan")).to(dtype)
        table = torch.full((4, max(pages) + 1), 2147480000, dtype=torch.int32)
        order = torch.randperm(sum(pages) + 2, generator=rng).int()
        keys = [randn(n, heads_k, dim, dtype=dtype) for n in lengths]
        at = 0
        for b, n in enumerate(lengths):
            table[b, :pages[b]] = order[at:at + pages[b]]
            at += pages[b]
            for i in range(n):
                cache[table[b, i // page], i % page] = keys[b][i]
        q = randn(4, s_q, heads, dim, dtype=dtype)
        out, lse = flash_mla.flash_mla_with_kvcache(q, cache, table, ints(*lengths), 512, flash_mla.get_mla_metadata()[0],
                                                    causal=causal)
        assert out.shape == (4, s_q, heads, 512) and out.dtype == dtype and lse.shape == (4, heads, s_q)
        for b, n in enumerate(lengths):
            k = keys[b].double().repeat_interleave(8, 1).transpose(0, 1)
            q64 = q[b].double().transpose(0, 1)
            s = q64 @ k.transpose(1, 2) * dim**-0.5
            size = (q64.abs() @ k.abs().transpose(1, 2) * dim**-0.5).amax(-1) if n else torch.zeros(s.shape[:2])
            if causal:
                s = s.masked_fill(torch.arange(n)[None, :] > torch.arange(s_q)[:, None] + n - s_q, -INF)
            want = torch.logsumexp(s, -1) if n else torch.full(s.shape[:2], -INF, dtype=torch.float64)
            p = torch.where(torch.isinf(want)[..., None], 0.0, torch.exp(s - want[..., None]))
            want[want == -INF] = INF
            values = k[..., :512]
            close("lse", lse[b], want, allowed_lse(size))
            close("out", out[b].transpose(0, 1), p @ values, allowed(p, values, p @ values, size, dtype))


def strides_of_any_kind():
    """Queries and lists that no flat list of tokens has are read where they lie."""
    cache, _ = filled(4, 16, 512, torch.arange(64))
    q = randn(2, 3, 16, 512)
    listed = torch.randint(0, 64, (2, 3, 64), generator=rng).int()
    lengths = ints(64, 20)

    def call(q, listed):
        return flash_mla.flash_mla_with_kvcache(q, cache, None, None, 512, flash_mla.get_mla_metadata()[0],
                                                is_fp8_kvcache=True, indices=listed, topk_length=lengths)

    want = call(q, listed)
    for got in (call(q.transpose(0, 1).contiguous().transpose(0, 1), listed),
                call(q, listed.transpose(0, 1).contiguous().transpose(0, 1)),
                call(q.transpose(1, 2).contiguous().transpose(1, 2), listed)):
        assert torch.equal(want[0], got[0]) and torch.equal(want[1], got[1])


def names_are_upstreams():
    want = ("q k_cache block_table cache_seqlens head_dim_v tile_scheduler_metadata num_splits softmax_scale causal "
            "is_fp8_kvcache indices attn_sink extra_k_cache extra_indices_in_kvcache topk_length extra_topk_length")
    assert list(inspect.signature(flash_mla.flash_mla_with_kvcache).parameters) == want.split()
    got = inspect.signature(flash_mla.flash_mla_sparse_fwd).parameters
    assert list(got)[:7] == "q kv indices sm_scale d_v attn_sink topk_length".split() and got["d_v"].default == 512
    from flash_mla.flash_mla_interface import FlashMLASchedMeta
    assert FlashMLASchedMeta is flash_mla.FlashMLASchedMeta


def refuses_by_name():
    cache, _ = filled(2, 8, 512, torch.arange(16))
    q, listed = randn(2, 2, 64, 512), torch.zeros(2, 2, 64).int()
    right = {"q": q, "k_cache": cache, "block_table": None, "cache_seqlens": None, "head_dim_v": 512, "is_fp8_kvcache": True,
             "indices": listed}

    def decode(**changed):
        meta = changed.pop("tile_scheduler_metadata", flash_mla.get_mla_metadata()[0])
        return flash_mla.flash_mla_with_kvcache(**{**right, "tile_scheduler_metadata": meta, **changed})

    decode()
    for kind, word, changed in (
            (ValueError, "head_dim_v", {"head_dim_v": 256}), (ValueError, "num_splits", {"num_splits": ints(1)}),
            (ValueError, "causal", {"causal": True}), (ValueError, "is_fp8_kvcache", {"is_fp8_kvcache": False}),
            (TypeError, "tile_scheduler_metadata", {"tile_scheduler_metadata": ints(1)}),
            (ValueError, "q, the last dimension", {"q": q[..., :64]}),
            (TypeError, "q: wrong element type", {"q": q.half()}),
            (ValueError, "k_cache", {"k_cache": cache[..., :580]}),
            (ValueError, "k_cache: gaps between rows", {"k_cache": cache[:, ::2]}),
            (ValueError, "indices: wrong shape", {"indices": listed[:, :1]}),
            (TypeError, "indices: wrong", {"indices": listed.long()}),
            (ValueError, "topk_length[1]: out of range (got 65", {"topk_length": ints(1, 65)}),
            (ValueError, "topk_length: wrong length", {"topk_length": ints(1)}),
            (ValueError, "attn_sink: wrong length", {"attn_sink": torch.zeros(63)}),
            (TypeError, "attn_sink: wrong element type", {"attn_sink": torch.zeros(64).bfloat16()}),
            (ValueError, "extra_indices_in_kvcache: of no cache", {"extra_indices_in_kvcache": listed}),
            (TypeError, "extra_indices_in_kvcache: wrong type", {"extra_k_cache": cache}),
            (ValueError, "extra_topk_length: of no cache", {"extra_topk_length": ints(1, 1)}),
            (ValueError, "extra_topk_length[0]", {"extra_k_cache": cache, "extra_indices_in_kvcache": listed,
                                                  "extra_topk_length": ints(-1, 1)}),
            (ValueError, "softmax_scale", {"softmax_scale": 0.0}),
            (ValueError, "q: not on the CPU", {"q": q.to("meta")})):
        refused(kind, word, lambda: decode(**changed))
    meta = flash_mla.get_mla_metadata()[0]
    decode(tile_scheduler_metadata=meta)
    refused(ValueError, "tile_scheduler_metadata: of another kind",
            lambda: decode(tile_scheduler_metadata=meta, indices=listed[..., :32]))
    dense = {"indices": None, "k_cache": randn(2, 8, 1, 512), "block_table": ints(0, 1).view(2, 1),
             "cache_seqlens": ints(3, 8), "is_fp8_kvcache": False}
    decode(**dense)
    for kind, word, changed in (
            (ValueError, "is_fp8_kvcache", {"is_fp8_kvcache": True}), (ValueError, "attn_sink", {"attn_sink": torch.zeros(64)}),
            (ValueError, "topk_length", {"topk_length": ints(1, 1)}), (TypeError, "block_table", {"block_table": None}),
            (ValueError, "block_table", {"block_table": ints(0, 2).view(2, 1)}),
            (ValueError, "cache_seqlens", {"cache_seqlens": ints(3, 9)}),
            (TypeError, "k_cache: not q's dtype", {"k_cache": randn(2, 8, 1, 512).half()}),
            (TypeError, "q: not supported", {"q": randn(2, 2, 64, 576).half(), "k_cache": randn(2, 8, 1, 576).half()}),
            (ValueError, "block_table: no such block", {"q": randn(2, 2, 64, 576), "k_cache": randn(2, 8, 1, 576),
                                                        "block_table": ints(0, -1).view(2, 1)})):
        refused(kind, word, lambda: decode(**{**dense, **changed}))
    kv, listed = randn(9, 1, 512), listed.view(4, 1, 64)
    q = q.flatten(0, 1)
    for kind, word, options in (
            (ValueError, "d_v", {"d_v": 256}), (NotImplementedError, "indexer_topk", {"indexer_topk": 512}),
            (ValueError, "topk_length[0]", {"topk_length": ints(-1, 0, 0, 0)}), (ValueError, "sm_scale", {"sm_scale": 0})):
        refused(kind, word, lambda: flash_mla.flash_mla_sparse_fwd(q, kv, listed, **{"sm_scale": 1.0, **options}))
    refused(ValueError, "kv: number of key heads", lambda: flash_mla.flash_mla_sparse_fwd(q, randn(9, 2, 512), listed, 1.0))
    refused(ValueError, "kv.head_dim", lambda: flash_mla.flash_mla_sparse_fwd(q, randn(9, 1, 576), listed, 1.0))
    refused(ValueError, "indices: wrong shape", lambda: flash_mla.flash_mla_sparse_fwd(q, kv, listed.expand(4, 2, 64), 1.0))


def caches_go_in_and_out():
    for row, dim in ((584, 512), (656, 576)):
        cache = torch.full((3, 5, 1, row), NAN_BYTE, dtype=torch.uint8)
        slots = torch.randperm(15, generator=rng)[:9].int()
        x = randn(9, dim)
        plimsoll.kv_insert(cache, slots, x)
        got = plimsoll.kv_gather(cache, slots)
        nope, block = (448, 64) if dim == 512 else (512, 128)
        codes, scales = quantised(x[:, :nope], block)
        want = (codes.float().unflatten(1, (-1, block)) * scales[..., None]).bfloat16().flatten(1)
        step = 0.0625 * x[:, :nope].double().abs() + scales.repeat_interleave(block, 1).double() * 2.0**-9
        assert ((got[:, :nope].double() - x[:, :nope].double()).abs() <= step).all()
        assert torch.equal(got[:, nope:], x[:, nope:]) and (got[:, :nope] == want).float().mean() > 0.9
        other = torch.zeros(15, 1, 1, row, dtype=torch.uint8)
        parts = plimsoll.kv_unpack(cache, slots)
        plimsoll.kv_pack(other, torch.arange(9).int(), *parts)
        assert torch.equal(plimsoll.kv_gather(other, torch.arange(9).int()), got)
        assert torch.equal(parts[2], x[:, nope:]) and not plimsoll.kv_gather(cache, ints(-1)).any()
        refused(ValueError, "slots[0]: no such slot (got 15", lambda: plimsoll.kv_insert(cache, ints(15), x[:1]))
        refused(ValueError, "x, dims", lambda: plimsoll.kv_insert(cache, ints(1), x[:1, :64]))
        refused(ValueError, "codes: wrong shape", lambda: plimsoll.kv_pack(cache, ints(1), *parts))
    rows = torch.zeros(4, 1, 640).bfloat16()[..., :512]
    plimsoll.kv_insert(rows, ints(2), randn(1, 512))
    assert rows[2].any() and not rows[[0, 1, 3]].any()
    refused(ValueError, "cache: has no parts", lambda: plimsoll.kv_unpack(rows, ints(1)))


def the_runtime_gives_the_same_bits():
    """Through apache-tvm-ffi, as any other host would call it."""
    import tvm_ffi

    cache, _ = filled(4, 16, 512, torch.arange(64), torch.float8_e4m3fn)
    q, sink = randn(6, 16, 512), torch.randn(16, generator=rng)
    listed, lengths = torch.randint(-1, 64, (6, 64), generator=rng).int(), ints(64, 20, 0)
    kv = randn(64, 1, 512)
    module = tvm_ffi.load_module(LIBRARY)
    context = module.ops_context_create(1)
    work = workspace(module, "attention_sparse_decode", context)
    want = flash_mla.flash_mla_with_kvcache(
        q.view(3, 2, 16, 512), cache, None, None, 512, flash_mla.get_mla_metadata()[0], is_fp8_kvcache=True,
        indices=listed.view(3, 2, 64), attn_sink=sink, topk_length=lengths, extra_k_cache=cache,
        extra_indices_in_kvcache=listed.view(3, 2, 64))
    out, biggest, lse = torch.zeros(6, 16, 512).bfloat16(), torch.zeros(16, 6), torch.zeros(16, 6)
    module.attention_sparse_decode(context, q, 2, cache, listed, lengths, cache, listed, None, sink, 0.0, out, biggest, lse,
                                   work)
    assert torch.equal(out, want[0].flatten(0, 1))
    assert torch.equal(lse.view(16, 3, 2).transpose(0, 1), want[1])
    work = workspace(module, "attention_sparse_prefill", context)
    want = flash_mla.flash_mla_sparse_fwd(q, kv, listed[:, None], 0.1)
    module.attention_sparse_prefill(context, q, kv, listed[:, None], None, None, None, None, None, 0.1, out, biggest, lse,
                                    work)
    assert torch.equal(out, want[0]) and torch.equal(biggest.t(), want[1]) and torch.equal(lse.t(), want[2])
    assert module.kv_insert_workspace_size(context) == 0
    slots, x = ints(3, 9), torch.zeros(2, 512).bfloat16()
    module.kv_gather(context, cache, slots, x)
    assert torch.equal(x, plimsoll.kv_gather(cache, slots))
    refused(ValueError, "lengths: wrong length", lambda: module.attention_sparse_decode(
        context, q, 2, cache, listed, ints(1), None, None, None, None, 0.0, out, None, None, work))
    refused(ValueError, "seq_tokens", lambda: module.attention_sparse_decode(
        context, q, 4, cache, listed, None, None, None, None, None, 0.0, out, None, None, work))
    module.ops_context_destroy(context)


def the_runtime_tells_of_functions():
    """Types and names as apache-tvm-ffi reads them; without it loaded there is nobody who could own the text."""
    script = ("import sys, plimsoll\ntry:\n    plimsoll.Library().call('_metadata_hadamard')\n"
              "except plimsoll.NativeError as e:\n    sys.exit('no runtime' not in str(e))\nsys.exit('a text')")
    assert subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.path.join(TOP, "python")},
                          check=False).returncode == 0
    import tvm_ffi

    told = tvm_ffi.load_module(LIBRARY).get_function_metadata("attention_varlen")
    assert told["arguments"][:3] == ["context", "q", "k"] and told["version"] == plimsoll.__version__
    schema = tvm_ffi.core.TypeSchema.from_json_str(told["type_schema"])
    assert schema.origin == "Callable" and repr(schema).count("Tensor | None") == 3 and "bool, int, int, float" in repr(schema)


def rows_through_the_runtime():
    import tvm_ffi

    module = tvm_ffi.load_module(LIBRARY)
    context = module.ops_context_create(1)
    x, weight, y = randn(5, 256), randn(256), torch.zeros(5, 256).bfloat16()
    codes, scales = torch.zeros(5, 256).to(torch.float8_e4m3fn), torch.zeros(5, 2, dtype=torch.uint8)
    module.rms_norm(context, x, weight, 1e-6, y, codes, scales)
    want = x.double() / (x.double().square().mean(1, keepdim=True) + 1e-6).sqrt() * weight.double()
    assert ((y.double() - want).abs() <= 2.0**-7 * want.abs() + 1e-30).all()
    back = codes.double().unflatten(1, (2, 128)) * torch.exp2(scales.double() - 127)[..., None]
    step = y.double().abs() / 16 + torch.exp2(scales.double() - 127 - 9).repeat_interleave(128, 1)
    assert ((back.flatten(1) - y.double()).abs() <= step).all()
    z = torch.zeros(4, 128).bfloat16()
    unit = torch.zeros(4, 128).bfloat16()
    unit[range(4), [0, 1, 2, 64]] = 1
    module.hadamard(context, unit, z)
    signs = torch.tensor([[(-1.0) ** bin(i & j).count("1") for j in range(128)] for i in (0, 1, 2, 64)])
    assert torch.equal(z, (signs * 128**-0.5).bfloat16())
    module.ops_context_destroy(context)


run([sparse_decode_equals_float64, sparse_prefill_equals_float64, rows_without_keys_are_plus_infinity,
     dense_equals_float64, strides_of_any_kind, names_are_upstreams, refuses_by_name, caches_go_in_and_out,
     the_runtime_gives_the_same_bits, the_runtime_tells_of_functions, rows_through_the_runtime])
