"""The FlashMLA module against a float64 reference: test_flash_mla.py LIBRARY TOP. TAP on standard output.

Caches are made here, byte by byte as the contracts D3 lay them out, and what no list names in them is NaN.
"""
from common import (INF, LIBRARY, SMALL, allowed, allowed_lse, close, draw, ints, over, pick, randn, refused, rng, run,
                    workspace)

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
    data = torch.as_strided(memory, (pages, page, 656 if dim == 576 else 576), (stride, 656 if dim == 576 else 576, 1))
    at = used // page, used % page
    data[(*at, slice(0, nope))] = codes.view(torch.uint8)
    if dim == 576:
        data[(*at, slice(512, 528))] = scales.contiguous().view(torch.uint8)
        data[(*at, slice(528, 656))] = rope.view(torch.uint8)
    else:
        data[(*at, slice(448, 576))] = rope.view(torch.uint8)
        records = torch.as_strided(memory, (pages, page, 8), (stride, 8, 1), 576 * page)
        records[(*at, slice(0, 7))] = (scales.log2() + 127).to(torch.uint8)
    return torch.as_strided(memory, (pages, page, 1, row), (stride, row, row, 1)).view(dtype), keys


def reference(q, keys, listed, scale, sink=None):
    """q [t, h, d] and, for each token, keys [slots, d] at `listed` [t, n] (below 0: none): out, max, lse and bounds. Some
    tokens at a time: each has keys of its own."""
    step = max(2**24 // max(listed.shape[1] * q.shape[2], 1), 1)
    parts = [token_reference(q[i:i + step], keys, listed[i:i + step], scale, sink) for i in range(0, len(q), step)]
    return [torch.cat(part) for part in zip(*parts)]


def token_reference(q, keys, listed, scale, sink):
    seen = listed >= 0
    k = keys[listed.clamp(min=0).long()]
    k = torch.where(seen[..., None], k, 0.0)
    q = q.double()
    s = q @ k.transpose(1, 2) * scale
    size = (q.abs() @ k.abs().transpose(1, 2) * scale).amax(-1) if listed.shape[1] else s.new_zeros(s.shape[:2])
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


def looked_at(tokens, heads, keys):
    """All tokens, or some where float64 would take minutes: at least 8, and the first and the last."""
    n = max(2**26 // (heads * max(keys, 1)), 8)
    if n >= tokens:
        return torch.arange(tokens)
    return torch.cat([torch.tensor([0, tokens - 1]), torch.randperm(tokens, generator=rng)[:n]]).unique()


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


# FlashMLA's own parameters: slots of a sequence, entries of a list and page, for either cache; batches; tokens; heads.
SETS = ((512, 64, 2), (512, 64, 64), (512, 64, 69), (512, 64, 61), (1024, 576, 2), (1024, 576, 61), (650, 576, 53))
LONG_SETS = ((2046, 2048, 2), (2046, 2048, 64), (2046, 2048, 576))
DECODE = (
    (512, 576), (1, 2, 3), (64, 128, 8), SETS if SMALL else SETS + LONG_SETS, SETS if SMALL else SETS + LONG_SETS,
    ("none", "some", "special"), (False, True), (False, True), (False, True), ("some", "no key", "empty sequences"),
    (torch.uint8, torch.float8_e4m3fn, torch.int8), (1, 4) if SMALL else (4, 74, 321))


def decode_set(dim, tokens, s_q, batch, sizes, with_length, invalid, dtype):
    """A cache and lists into it: (cache, keys, what counts, what is given, lengths)."""
    s_k, topk, page = sizes
    slots = -(-s_k * min(batch, 4) // page) * page
    used = torch.randperm(slots, generator=rng)[:max(slots // 2, 1)]
    cache, keys = filled(slots // page, page, dim, used, dtype, pad=draw(0, 1))
    listed = lists(tokens, topk, used, slots)
    if invalid == "no key":
        listed.fill_(-1)
    elif invalid == "empty sequences":
        listed.view(batch, -1)[torch.rand(batch, generator=rng) < 0.3] = -1
    if not with_length:
        return cache, keys, listed, listed, None
    lengths = torch.randint(0, topk + 1, (batch,), generator=rng).int()
    free = torch.ones(slots, dtype=torch.bool)
    free[used] = False
    return (cache, keys, *cut(listed, lengths.repeat_interleave(s_q), int(free.nonzero()[0])), lengths)


def decode_case(dim, s_q, heads, sizes, extra_sizes, sink_kind, with_length, with_extra, with_extra_length, invalid, dtype, batch):
    tokens = batch * s_q
    q = randn(batch, s_q, heads, dim + 64)[..., :dim] if draw(0, 1) else randn(batch, s_q, heads, dim)
    sets = [decode_set(dim, tokens, s_q, batch, sizes, with_length, invalid, dtype)]
    extra = {}
    if with_extra:
        sets.append(decode_set(dim, tokens, s_q, batch, extra_sizes, with_extra_length, "some" if draw(0, 1) else invalid, dtype))
        extra = {"extra_k_cache": sets[1][0], "extra_indices_in_kvcache": sets[1][3].view(batch, s_q, -1),
                 "extra_topk_length": sets[1][4]}
    sink = sinks(heads, sink_kind)
    scale = pick((None, 0.05))
    meta, none = flash_mla.get_mla_metadata(1, 2, three=3)
    assert none is None and not meta.have_initialized
    out, lse = flash_mla.flash_mla_with_kvcache(
        q, sets[0][0], None, None, 512, meta, None, scale, is_fp8_kvcache=True, indices=sets[0][3].view(batch, s_q, -1),
        attn_sink=sink, topk_length=sets[0][4], **extra)
    assert meta.have_initialized and meta.config.topk == sizes[1] and meta.config.s_q == s_q
    assert out.shape == (batch, s_q, heads, 512) and out.dtype == torch.bfloat16
    assert lse.shape == (batch, heads, s_q) and lse.dtype == torch.float32
    bases = [0, len(sets[0][1])]
    counted = torch.cat([torch.where(s[2] >= 0, s[2] + base, -1) for s, base in zip(sets, bases)], 1)
    at = looked_at(tokens, heads, counted.shape[1])
    ref = reference(q.flatten(0, 1)[at], torch.cat([s[1] for s in sets]), counted[at], scale or dim**-0.5, sink)
    close("out", out.flatten(0, 1)[at], ref[0], ref[3])
    close("lse", lse.transpose(1, 2).flatten(0, 1)[at], ref[2], ref[4])
    assert not out.isnan().any() and not lse.isnan().any()


def sparse_decode_equals_float64():
    over(DECODE, decode_case)


# Keys and lists of upstream, lists longer than there are keys among them; keys that are 256 times as large as the others.
PREFILL = (
    (512, 576), (1, 62, 213), (64, 128, 24),
    ((128, 128), (256, 256), (512, 512), (592, 128), (1840, 256), (1592, 384), (1521, 512), (95, 128), (153, 256), (114, 384), (1, 64)),
    ("none", "some", "special"), (False, True), (False, True))


def prefill_case(dim, s_q, heads, sizes, sink_kind, with_length, amplified, all_invalid=False):
    s_kv, topk = sizes
    if SMALL:
        s_q = min(s_q, 17)
    q = randn(s_q, heads, dim)
    kv = randn(s_kv, 1, dim + 64)[..., :dim] if draw(0, 1) else randn(s_kv, 1, dim)
    if amplified:
        kv[torch.rand(s_kv, generator=rng) < 0.02] *= 256
    used = torch.randperm(s_kv, generator=rng)[:max(s_kv // 2, 1)]
    free = torch.ones(s_kv, dtype=torch.bool)
    free[used] = False
    kv[free] = float("nan")
    listed = lists(s_q, topk, used, s_kv)
    listed[torch.rand(s_q, topk, generator=rng) < 0.05] = s_kv
    listed[:, 0] = torch.where(listed[:, 0] < 0, 2147480000, listed[:, 0])
    if all_invalid:
        listed = torch.where(torch.rand(s_q, topk, generator=rng) < 0.5, -1, s_kv + 3).int()
    lengths, given = None, listed
    counted = torch.where(listed >= s_kv, -1, listed)
    if with_length:
        lengths = torch.randint(0, topk + 1, (s_q,), generator=rng).int()
        poison = int(free.nonzero()[0]) if s_kv > 1 else -1
        counted, given = cut(counted, lengths, poison)[0], cut(listed, lengths, poison)[1]
    sink = sinks(heads, sink_kind)
    scale = pick((dim**-0.5, 0.1352337788608801))
    out, biggest, lse = flash_mla.flash_mla_sparse_fwd(q, kv, given[:, None], scale, attn_sink=sink, topk_length=lengths)
    assert out.shape == (s_q, heads, 512) and biggest.shape == lse.shape == (s_q, heads)
    assert lse.dtype == biggest.dtype == torch.float32 and lse.is_contiguous()
    at = looked_at(s_q, heads, topk)
    want = reference(q[at], kv[:, 0].double(), counted[at], scale, sink)
    close("out", out[at], want[0], want[3])
    close("max_logits", biggest[at], want[1], want[4])
    close("lse", lse[at], want[2], want[4])
    assert not out.isnan().any() and not lse.isnan().any()
    if all_invalid:
        assert not out.any() and (lse == INF).all() and (biggest == -INF).all()


def sparse_prefill_equals_float64():
    over(PREFILL, prefill_case)


# Upstream's corners: (tokens, keys, list, no key in it). Its 70,000 tokens have fewer heads here, which the machine's memory asks for.
CORNERS = ((1, 128, 128, True), (1, 256, 256, True), (1, 32, 2048, False), (1, 64, 8192, False))
LONG_CORNERS = ((1234, 4321, 4096, True), (4096, 2048, 2048, True), (1024, 32, 2048, False), (1024, 64, 8192, False),
                (70000, 256, 256, False))


def corners_of_sparse_prefill():
    for s_q, s_kv, topk, invalid in CORNERS if SMALL else CORNERS + LONG_CORNERS:
        prefill_case(512, s_q, 8 if s_q > 9999 else pick((64, 128)), (s_kv, topk), "some", True, False, invalid)


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


run([sparse_decode_equals_float64, sparse_prefill_equals_float64, corners_of_sparse_prefill, rows_without_keys_are_plus_infinity,
     dense_equals_float64, strides_of_any_kind, refuses_by_name, caches_go_in_and_out,
     the_runtime_gives_the_same_bits])
