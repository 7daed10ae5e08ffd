"""The FlashAttention-3 module against a float64 reference: test_flash_attn.py LIBRARY TOP. TAP on standard output."""
from common import (INF, LIBRARY, SMALL, allowed, allowed_lse, close, draw, ints, over, pick, randn, refused, rng, run,
                    workspace)

import torch

import flash_attn_interface as fa
import plimsoll


def visible(n_q, n_k, causal, window):
    """[n_q, n_k]; bottom right."""
    left, right = window
    right = 0 if causal else right
    at = torch.arange(n_q)[:, None] + n_k - n_q
    keys = torch.arange(n_k)[None, :]
    seen = torch.ones(n_q, n_k, dtype=torch.bool)
    if left >= 0:
        seen &= keys >= at - left
    if right >= 0:
        seen &= keys <= at + right
    return seen


def reference(q, k, v, causal=False, window=(-1, -1), softcap=0.0, scale=None, sink=None):
    """One sequence in float64: out [n, h, dv], lse [h, n], and how far each may be off. Head by head: they may be long."""
    group = q.shape[1] // k.shape[1]
    scale = q.shape[2] ** -0.5 if scale is None else scale
    seen = visible(q.shape[0], k.shape[0], causal, window)
    heads = [head_reference(q[:, h].double(), k[:, h // group].double(), v[:, h // group].double(), seen, softcap, scale,
                            None if sink is None else sink[h].double(), q.dtype) for h in range(q.shape[1])]
    out, lse, off, off_lse = zip(*heads)
    return torch.stack(out, 1), torch.stack(lse), torch.stack(off, 1), torch.stack(off_lse)


def head_reference(q, k, v, seen, softcap, scale, sink, dtype):
    n_q, n_k = seen.shape
    s = q @ k.t() * scale
    size = (q.abs() @ k.abs().t() * scale).amax(-1) if n_k else s.new_zeros(n_q)
    if softcap > 0:
        s = softcap * torch.tanh(s / softcap)
    s.masked_fill_(~seen, -INF)
    lse = torch.logsumexp(s, -1) if n_k else s.new_full((n_q,), -INF)
    p = torch.where(torch.isinf(lse)[:, None], 0.0, torch.exp(s - lse[:, None]))
    if sink is not None:
        p = p * torch.sigmoid(lse - sink)[:, None]
    out = p @ v
    return out, lse, allowed(p, v, out, size, dtype), allowed_lse(size)


def compare(got, lse, want):
    close("lse", lse, want[1], want[3])
    close("out", got, want[0], want[2])


def varlen_equals_float64():
    for trial in range(24):
        dtype = (torch.bfloat16, torch.float16, torch.float32)[trial % 3]
        heads_k, group = draw(1, 3), draw(1, 3)
        dim, dim_v = 8 * draw(1, 24), 8 * draw(1, 24)
        n_q = [draw(0, 9) for _ in range(3)] + [1]
        n_k = [draw(0, 40), 0, draw(1, 70), draw(1, 200)]
        heads = heads_k * group
        # A view into one tensor, as a fused projection gives it.
        q = randn(sum(n_q), heads, dim + 8, dtype=dtype)[:, :, :dim]
        k = randn(sum(n_k), heads_k, dim, dtype=dtype)
        v = randn(sum(n_k), heads_k, dim_v, dtype=dtype)
        cu_q, cu_k = (torch.tensor([0] + n).cumsum(0).int() for n in (n_q, n_k))
        how = {"causal": trial % 2 == 0, "softcap": (0.0, -1.0, 5.0)[trial // 2 % 3]}
        window = ((-1, -1), (7, 3), (0, 0), (20, -1))[trial % 4]
        out, lse = fa.flash_attn_varlen_func(q, k, v, cu_q, cu_k, max(n_q), max(n_k), window_size=window,
                                             return_softmax_lse=True, **how)
        assert lse.shape == (heads, sum(n_q)) and out.dtype == dtype
        for b in range(4):
            sq, sk = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
            compare(out[sq], lse[:, sq], reference(q[sq], k[sk], v[sk], window=window, **how))


# FlashAttention-3's own parameters: types, head counts for keys of 6 queries, caps, masks, dims with their values' dims, lengths.
COMMON = ((torch.bfloat16, torch.float16), (6, 2, 1), (0.0, 15.0), (False, True), (False, True))
DIMS = ((64, 64), (64, 256), (64, 512), (96, 96), (128, 128), (192, 192), (192, 128), (256, 256))
LENGTHS = ((1, 1), (64, 128), (128, 192), (256, 256), (239, 1), (113, 203), (113, 128), (128, 217), (113, 211), (108, 256))
LONG = ((799, 3), (256, 512), (384, 256), (640, 128), (512, 256), (1024, 1024), (1023, 1024), (1024, 1023), (4096, 4096),
        (4224, 4224))
CACHES = ((1, 128), (1, 339), (3, 799), (64, 256), (64, 800), (128, 128))
LONG_CACHES = ((3, 1024), (64, 2048), (16, 20000), (256, 512), (2048, 3577), (1, 128 * 1024), (16, 128 * 1024))


def options_of(softcap, local, causal, n_k):
    window = (draw(0, n_k - 1), draw(0, n_k - 1)) if local else (-1, -1)
    return {"softcap": softcap, "causal": causal, "window_size": window}


def queries(*shape, dtype, softcap):
    """So large that a cap matters."""
    return (randn(*shape, dtype=dtype) * (softcap / 4 if softcap > 0 else 1)).to(dtype)


def batch_of(n_k, few):
    return few if SMALL else 9 if n_k <= 2048 else 2


def expected(q, k, v, options):
    return reference(q, k, v, options["causal"], options["window_size"], options["softcap"])


def dense_case(dtype, heads_k, softcap, local, causal, dims, lengths):
    n_q, n_k = lengths
    batch = batch_of(n_k, 2)
    q = queries(batch, n_q, 6, dims[0], dtype=dtype, softcap=softcap)
    k, v = (randn(batch, n_k, heads_k, d, dtype=dtype) for d in dims)
    options = options_of(softcap, local, causal, n_k)
    out, lse = fa.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    assert out.shape == (batch, n_q, 6, dims[1]) and out.dtype == dtype and lse.shape == (batch, 6, n_q)
    for b in range(batch):
        compare(out[b], lse[b], expected(q[b], k[b], v[b], options))


def varlen_case(dtype, heads_k, softcap, local, causal, dims, lengths, used):
    batch = batch_of(lengths[1], 3)
    n_q, n_k = ([draw(max(1, n - 20), n) for _ in range(batch)] for n in lengths)
    n_k[draw(0, batch - 1)] = draw(0, 1) * n_k[0]
    q = queries(sum(n_q), 6, dims[0], dtype=dtype, softcap=softcap)
    k, v = (randn(sum(n_k), heads_k, d, dtype=dtype) for d in dims)
    cu_q, cu_k = (torch.tensor([0] + n).cumsum(0).int() for n in (n_q, n_k))
    options, cut = options_of(softcap, local, causal, lengths[1]), {}
    used_q, used_k = n_q, n_k
    if used:
        used_q, used_k = ([draw(0, n) for n in ns] for ns in (n_q, n_k))
        cut = {"seqused_q": ints(*used_q), "seqused_k": ints(*used_k)}
    out, lse = fa.flash_attn_varlen_func(q, k, v, cu_q, cu_k, max(n_q), max(n_k), return_softmax_lse=True, **cut, **options)
    assert lse.shape == (6, sum(n_q)) and out.dtype == dtype
    for b in range(batch):
        sq, sk = (slice(int(cu[b]), int(cu[b]) + n[b]) for cu, n in ((cu_q, used_q), (cu_k, used_k)))
        if sum(n_k):
            compare(out[sq], lse[:, sq], expected(q[sq], k[sk], v[sk], options))


def paged(caches, page, used, begins):
    """[pages, page, ..] of each cache, in random order, and a table whose tail nobody may read; the rest is NaN."""
    batch, room = caches[0].shape[:2]
    pages = -(-room // page)
    table = torch.randperm(batch * pages, generator=rng).int().view(batch, pages)
    made = []
    for cache in caches:
        padded = torch.full((batch, pages * page, *cache.shape[2:]), float("nan"), dtype=cache.dtype)
        padded[:, :room] = cache
        made.append(torch.empty((batch * pages, page, *cache.shape[2:]), dtype=cache.dtype))
        made[-1][table.long()] = padded.view(batch, pages, page, *cache.shape[2:])
    for b in range(batch):
        table[b, -(-used[b] // page):] = 2147480000
        table[b, :begins[b] // page] = 2147480000
    return made, table


def cache_case(dtype, heads_k, softcap, local, causal, dims, lengths, page, by_index, leftpad, packed):
    n_q, room = lengths
    if room > 20000:  # what a machine of 16 GB can hold beside the float64 of it
        dims = (128, 128)
    batch = 3 if SMALL or room > 20000 else 5
    rows = torch.randperm(batch * (1 + by_index), generator=rng)[:batch]
    used = [draw(1, room) for _ in range(batch)]
    begins = [draw(0, n - 1) if leftpad else 0 for n in used]
    caches = [randn(batch, room, heads_k, d, dtype=dtype) for d in dims]
    k, v = caches
    for b in range(batch):  # what is outside of the sequence reaches nothing
        for cache in caches:
            cache[b, used[b]:] = float("nan")
            cache[b, :begins[b]] = float("nan")
    q_lengths = [draw(1, n_q) for _ in range(batch)] if packed else [n_q] * batch
    q = queries(sum(q_lengths), 6, dims[0], dtype=dtype, softcap=softcap)
    options = options_of(softcap, local, causal, room)
    where = {"cache_seqlens": ints(*used)}
    if page is not None:
        caches, table = paged(caches, page, used, begins)
        where["page_table"] = table
        if by_index:
            where["page_table"] = torch.full((2 * batch, table.shape[1]), 2147480000, dtype=torch.int32)
            where["page_table"][rows] = table
    elif by_index:
        for i, cache in enumerate((k, v)):
            caches[i] = torch.full((2 * batch, *cache.shape[1:]), float("nan"), dtype=dtype)
            caches[i][rows] = cache
    if by_index:
        where["cache_batch_idx"] = rows.int()
    if leftpad:
        where["cache_leftpad"] = ints(*begins)
    cu = torch.tensor([0] + q_lengths).cumsum(0).int()
    if packed:
        where["cu_seqlens_q"], where["max_seqlen_q"] = cu, n_q
    out, lse, *rest = fa.flash_attn_with_kvcache(q if packed else q.view(batch, n_q, 6, dims[0]), *caches,
                                                 return_softmax_lse=True, **where, **options)
    assert rest == [None, None]
    if not packed:
        assert out.shape == (batch, n_q, 6, dims[1]) and lse.shape == (batch, 6, n_q)
        out, lse = out.flatten(0, 1), lse.transpose(0, 1).flatten(1)
    for b in range(batch):
        sq, sk = slice(int(cu[b]), int(cu[b + 1])), slice(begins[b], used[b])
        compare(out[sq], lse[:, sq], expected(q[sq], k[b, sk], v[b, sk], options))


def dense_over_upstreams_parameters():
    over((*COMMON, DIMS, LENGTHS if SMALL else LENGTHS + LONG), dense_case)


def varlen_over_upstreams_parameters():
    over((*COMMON, DIMS, LENGTHS if SMALL else LENGTHS + LONG, (False, True)), varlen_case)


def caches_over_upstreams_parameters():
    over((COMMON[0], (6, 3, 2, 1), *COMMON[2:], DIMS, CACHES if SMALL else CACHES + LONG_CACHES, (None, 1, 4, 64, 128),
          (False, True), (False, True), (False, True)), cache_case)


def packing_changes_no_bit():
    """One call for a batch, and one for each sequence where strides ask for it."""
    q, k, v = randn(3, 5, 6, 64), randn(3, 40, 2, 64), randn(3, 40, 2, 64)
    apart = q.transpose(0, 1).contiguous().transpose(0, 1)
    shared = k[:1].expand(3, 40, 2, 64)
    for keys in (k, shared):
        want = fa.flash_attn_func(q, keys.contiguous(), v, causal=True, return_attn_probs=True)
        for got in (fa.flash_attn_func(apart, keys, v, causal=True, return_attn_probs=True),
                    fa.flash_attn_func(q, keys, v, causal=True, return_attn_probs=True),
                    fa.flash_attn_with_kvcache(apart, keys, v, causal=True, return_softmax_lse=True),
                    fa.flash_attn_with_kvcache(q, keys, v, cache_seqlens=40, causal=True, return_softmax_lse=True),
                    fa.flash_attn_with_kvcache(q, keys, v, cache_leftpad=ints(0, 0, 0), causal=True,
                                               return_softmax_lse=True)):
            assert torch.equal(want[0], got[0]) and torch.equal(want[1], got[1])


def tokens_past_the_last_sequence():
    q, k, v = randn(9, 4, 64), randn(12, 2, 64), randn(12, 2, 64)
    k[10:], v[10:] = float("nan"), float("nan")
    out, lse = fa.flash_attn_varlen_func(q, k, v, ints(0, 3, 7), ints(0, 4, 10), 4, 6, return_attn_probs=True)
    compare(out[:3], lse[:, :3], reference(q[:3], k[:4], v[:4]))
    compare(out[3:7], lse[:, 3:7], reference(q[3:7], k[4:10], v[4:10]))
    assert out.shape == (9, 4, 64) and not out[7:].any() and (lse[:, 7:] == -INF).all()


def native_sinks_equal_float64():
    """MAGI-2's attention: heads of 1 to 8 ranks, dim 128, two packed branches, views of one projection, a cap of -1."""
    for heads in (24, 12, 6, 3):
        lengths = [1, 37, 40, 29]
        qkv = randn(sum(lengths), 3, heads, 128)
        q, k, v = qkv.unbind(1)
        cu = torch.tensor([0] + lengths).cumsum(0).int()
        sink = torch.randn(heads, generator=rng) * 2
        out, lse = plimsoll.attention_varlen(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, softcap=-1.0, sink=sink)
        plain = fa.flash_attn_varlen_func(q, k, v, cu, cu, 40, 40, softcap=-1.0, return_attn_probs=True)
        assert torch.equal(plain[1], lse), "the sink is not in the LSE"
        for b in range(4):
            s = slice(cu[b], cu[b + 1])
            compare(out[s], lse[:, s], reference(q[s], k[s], v[s], sink=sink))
            compare(plain[0][s], lse[:, s], reference(q[s], k[s], v[s]))


def used_lengths_cut_sequences():
    q, k, v = randn(6, 2, 64), randn(9, 1, 64), randn(9, 1, 64)
    k[3], v[3] = float("nan"), float("nan")
    cu_q, cu_k = torch.tensor([0, 2, 6]).int(), torch.tensor([0, 4, 9]).int()
    out, lse = fa.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 4, 5, seqused_q=torch.tensor([2, 3]).int(),
                                         seqused_k=torch.tensor([3, 5]).int(), causal=True, return_attn_probs=True)
    compare(out[:2], lse[:, :2], reference(q[:2], k[:3], v[:3], causal=True))
    compare(out[2:5], lse[:, 2:5], reference(q[2:5], k[4:], v[4:], causal=True))
    assert not out[5].any() and (lse[:, 5] == -INF).all()


def dense_lse_is_by_batch():
    q, k, v = randn(2, 5, 4, 64), randn(2, 7, 2, 64), randn(2, 7, 2, 64)
    alone = fa.flash_attn_func(q, k, v, causal=True)
    out, lse = fa.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert isinstance(alone, torch.Tensor) and torch.equal(alone, out)
    assert lse.shape == (2, 4, 5) and out.shape == (2, 5, 4, 64)
    for b in range(2):
        compare(out[b], lse[b], reference(q[b], k[b], v[b], causal=True))


def caches_by_pages_and_rows():
    lengths, page = [11, 0, 24], 8
    k, v = randn(3, 24, 2, 64), randn(3, 24, 2, 64)
    q = randn(3, 2, 4, 64)
    pages_k, pages_v = torch.full((9, page, 2, 64), float("nan")).bfloat16(), torch.full((9, page, 2, 64), float("nan")).bfloat16()
    table = torch.randperm(9, generator=rng).int().view(3, 3)
    for b, n in enumerate(lengths):
        for i in range(n):
            pages_k[table[b, i // page], i % page], pages_v[table[b, i // page], i % page] = k[b, i], v[b, i]
    seqlens = torch.tensor(lengths).int()
    paged = fa.flash_attn_with_kvcache(q, pages_k, pages_v, cache_seqlens=seqlens, page_table=table, causal=True,
                                       return_softmax_lse=True)
    rows = fa.flash_attn_with_kvcache(q, k.flip(0), v.flip(0), cache_seqlens=seqlens, causal=True,
                                      cache_batch_idx=torch.tensor([2, 1, 0]).int(), return_softmax_lse=True)
    assert len(paged) == 4 and paged[2] is None
    assert torch.equal(paged[0], rows[0]) and torch.equal(paged[1], rows[1]) and paged[1].shape == (3, 4, 2)
    for b, n in enumerate(lengths):
        compare(paged[0][b], paged[1][b], reference(q[b], k[b, :n], v[b, :n], causal=True))
    packed = fa.flash_attn_with_kvcache(q.flatten(0, 1), pages_k, pages_v, cache_seqlens=seqlens, page_table=table,
                                        cu_seqlens_q=torch.tensor([0, 2, 4, 6]).int(), max_seqlen_q=2, causal=True)
    assert torch.equal(packed, paged[0].flatten(0, 1))


def no_key_at_all_is_plus_infinity():
    cu_q, cu_k = torch.tensor([0, 3]).int(), torch.tensor([0, 0]).int()
    out, lse = fa.flash_attn_varlen_func(randn(3, 2, 64), randn(0, 2, 64), randn(0, 2, 64), cu_q, cu_k, 3, 0,
                                         return_attn_probs=True)
    assert not out.any() and (lse == INF).all()


def refuses_by_name():
    q, k, v = randn(3, 2, 64), randn(3, 2, 64), randn(3, 2, 64)
    cu = torch.tensor([0, 3]).int()

    def varlen(q=q, k=k, cu_q=cu, **options):
        return fa.flash_attn_varlen_func(q, k, v, cu_q, cu, 3, 3, **options)

    for name, value in (("qv", q), ("q_descale", q), ("attention_chunk", 4), ("num_splits", 3), ("pack_gqa", True),
                        ("deterministic", True), ("sm_margin", 1)):
        refused(NotImplementedError, name, lambda: varlen(**{name: value}))
    cache = randn(1, 4, 2, 64)
    for name in ("k", "rotary_cos", "scheduler_metadata", "cu_seqlens_k_new"):
        refused(NotImplementedError, name,
                lambda: fa.flash_attn_with_kvcache(q[None], cache, cache, **{name: cache}))
    refused(ValueError, "q: not on the CPU", lambda: varlen(q=q.to("meta")))
    refused(TypeError, "q: wrong dtype", lambda: varlen(q=q.double()))
    refused(TypeError, "k: not q's element type", lambda: varlen(k=k.half()))
    refused(ValueError, "cu_seqlens_q", lambda: varlen(cu_q=torch.tensor([0, 4]).int()))
    refused(ValueError, "k and q, dims", lambda: varlen(k=randn(3, 2, 72)))
    refused(ValueError, "gradient", lambda: varlen(q=q.float().requires_grad_(), k=k))
    out = q[:, :, :]
    refused(ValueError, "overlaps", lambda: plimsoll.attention_varlen(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, out=out))
    before = q.clone()
    assert torch.equal(q, before)


def workers_change_no_bit():
    q, k, v = randn(300, 4, 128), randn(300, 2, 128), randn(300, 2, 128)
    cu = torch.tensor([0, 170, 300]).int()
    results = [plimsoll.attention_varlen(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, causal=True,
                                         sink=torch.zeros(4), context=plimsoll.Context(n)) for n in (1, 3)]
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])


def the_runtime_gives_the_same_bits():
    """Through apache-tvm-ffi, as any other host would call it; its exceptions carry our texts."""
    import tvm_ffi

    q, k, v = randn(9, 4, 64), randn(12, 2, 64), randn(12, 2, 64)
    cu_q, cu_k = torch.tensor([0, 4, 9]).int(), torch.tensor([0, 6, 12]).int()
    want = plimsoll.attention_varlen(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, causal=True)
    module = tvm_ffi.load_module(LIBRARY)
    context = module.ops_context_create(1)
    work = workspace(module, "attention_varlen", context)
    out, lse = torch.zeros(9, 4, 64).bfloat16(), torch.zeros(4, 9)
    args = [context, q, k, v, cu_q, cu_k, None, None, 0.0, True, -1, -1, 0.0, out, lse, work]
    module.attention_varlen(*args)
    assert torch.equal(out, want[0]) and torch.equal(lse, want[1])
    refused(ValueError, "workspace_bytes", lambda: module.attention_varlen(*args[:-1], work[:64]))
    refused(TypeError, "number of arguments", lambda: module.attention_varlen(*args[:-1]))
    module.ops_context_destroy(context)


run([varlen_equals_float64, dense_over_upstreams_parameters, varlen_over_upstreams_parameters,
     caches_over_upstreams_parameters, packing_changes_no_bit, tokens_past_the_last_sequence, native_sinks_equal_float64,
     used_lengths_cut_sequences, dense_lse_is_by_batch, caches_by_pages_and_rows, no_key_at_all_is_plus_infinity,
     refuses_by_name, workers_change_no_bit, the_runtime_gives_the_same_bits])
