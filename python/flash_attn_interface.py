"""FlashAttention-3's module of this name, for CPU tensors: names, arguments and results are its own.

Forward only. An argument that has no meaning here is accepted at its default and otherwise refused by its name. Both
flags that ask for the LSE are accepted, since callers look for either in the signature. Where no key exists at all, the
LSE is +inf as there, and -inf for a row that sees none of the keys. Keys are never split, so a schedule is empty.
"""
import torch

from plimsoll import attention_varlen
from plimsoll._names import named

__all__ = ["flash_attn_combine", "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_with_kvcache", "get_scheduler_metadata"]


def _refuse(**given):
    for name, (value, default) in given.items():
        # A tensor is no default, and says nothing clear to ==.
        if value is not default and (isinstance(value, torch.Tensor) or value != default):
            got = f"{type(value).__name__} {str(value)[:40]}".replace("\n", " ")
            raise NotImplementedError(f"{name}: not supported (got {got}, want {default})")


def _refuse_common(qv, q_descale, k_descale, v_descale, attention_chunk, num_splits, pack_gqa, deterministic, sm_margin):
    _refuse(qv=(qv, None), q_descale=(q_descale, None), k_descale=(k_descale, None), v_descale=(v_descale, None),
            attention_chunk=(attention_chunk, 0), pack_gqa=(pack_gqa, None), deterministic=(deterministic, False),
            sm_margin=(sm_margin, 0))
    if isinstance(num_splits, torch.Tensor) or num_splits not in (0, 1):
        raise NotImplementedError(f"num_splits: not supported (got {num_splits}, want 0 or 1: keys are never split)")


def _dims(name, tensor, want):
    if tensor.dim() != want:
        raise ValueError(f"{name}: wrong number of dimensions (got {tensor.dim()}, want {want})")


def _options(softmax_scale, causal, window_size, softcap):
    """FA3 reads any negative window side as no bound, and a cap of 0 or less as none."""
    if len(window_size) != 2:
        raise ValueError(f"window_size: wrong length (got {len(window_size)}, want 2)")
    left, right = (-1 if w is None or w < 0 else int(w) for w in window_size)
    return {"softmax_scale": softmax_scale, "causal": causal, "window": (left, right), "softcap": max(softcap, 0.0)}


def _one(q, k, v, out, lse, options, **paged):
    """One sequence; lse [heads, tokens] may have gaps, then it is written by way of a copy."""
    ends = [torch.tensor([0, n], dtype=torch.int32) for n in (q.shape[0], paged.pop("n_keys", k.shape[0]))]
    target = lse if lse.is_contiguous() else torch.empty(lse.shape, dtype=torch.float32)
    attention_varlen(q, k, v, cu_seqlens_q=ends[0], cu_seqlens_k=ends[1], out=out, lse=target, **paged, **options)
    if target is not lse:
        lse.copy_(target)


def _ends(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0).int()


def _tokens(q):
    """[batch, tokens, ..] as [batch * tokens, ..], or None where strides do not allow it."""
    try:
        return q.view(q.shape[0] * q.shape[1], *q.shape[2:])
    except RuntimeError:
        return None


def _rows_are_pages(*caches):
    """Whether rows of the batch can be pages of one cache: they have tokens, and lie apart."""
    return all(c.shape[1] and (c.shape[0] < 2 or c.stride(0) >= c.shape[3]) for c in caches)


def _by_batch(lse, n):
    """[heads, n * tokens] as [n, heads, tokens]."""
    return lse.view(lse.shape[0], n, -1).transpose(0, 1).contiguous()


def _fill_empty(lse, n_keys):
    if n_keys == 0:
        lse.fill_(float("inf"))


def flash_attn_func(q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
                    window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None,
                    deterministic=False, sm_margin=0, return_attn_probs=False, return_softmax_lse=False):
    """q [batch, tokens, heads, dim], k and v [batch, keys, kv_heads, dim]; LSE [batch, heads, tokens]."""
    _refuse_common(qv, q_descale, k_descale, v_descale, attention_chunk, num_splits, pack_gqa, deterministic, sm_margin)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _dims(name, tensor, 4)
        if tensor.shape[0] != q.shape[0]:
            raise ValueError(f"{name}: batches differ (got {tensor.shape[0]}, want {q.shape[0]})")
    out = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype)
    options = _options(softmax_scale, causal, window_size, softcap)
    tokens, n = _tokens(q), q.shape[0]
    if n and tokens is not None and _rows_are_pages(k, v):
        _, lse = attention_varlen(tokens, k, v, cu_seqlens_q=_ends([q.shape[1]] * n), cu_seqlens_k=_ends([k.shape[1]] * n),
                                  page_table=torch.arange(n, dtype=torch.int32).view(n, 1), out=out.flatten(0, 1), **options)
        lse = _by_batch(lse, n)
    else:
        lse = torch.empty((n, q.shape[2], q.shape[1]), dtype=torch.float32)
        for b in range(n):
            _one(q[b], k[b], v[b], out[b], lse[b], options)
    _fill_empty(lse, k.shape[0] * k.shape[1])
    return (out, lse) if return_attn_probs or return_softmax_lse else out


def flash_attn_qkvpacked_func(qkv, softmax_scale=None, causal=False, q_descale=None, k_descale=None, v_descale=None,
                              window_size=(-1, -1), attention_chunk=0, softcap=0.0, deterministic=False,
                              num_heads_q=None, sm_margin=0, return_attn_probs=False, return_softmax_lse=False):
    """qkv [batch, tokens, 3, heads, dim], or [batch, tokens, num_heads_q + 2 * kv_heads, dim]: flash_attn_func on its parts."""
    if qkv.dim() == 5:
        _refuse(num_heads_q=(num_heads_q, None))
        if qkv.shape[2] != 3:
            raise ValueError(f"qkv: wrong shape (got {list(qkv.shape)}, want 3 as the third of five)")
        q, k, v = qkv.unbind(2)
    else:
        _dims("qkv", qkv, 4)
        rest = qkv.shape[2] - num_heads_q if isinstance(num_heads_q, int) else -1
        if rest < 2 or rest % 2 or num_heads_q < 1:
            raise ValueError(f"num_heads_q: does not fit qkv (got {num_heads_q}, want {qkv.shape[2]} less twice the heads of keys)")
        q, k, v = qkv.split([num_heads_q, rest // 2, rest // 2], 2)
    with named({name: f"qkv, the part {name}" for name in "qkv"}):
        return flash_attn_func(q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size,
                               attention_chunk, softcap, deterministic=deterministic, sm_margin=sm_margin,
                               return_attn_probs=return_attn_probs, return_softmax_lse=return_softmax_lse)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None,
                           seqused_k=None, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None,
                           v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1,
                           pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False,
                           return_softmax_lse=False):
    """q [tokens, heads, dim], k and v [keys, kv_heads, dim]; LSE [heads, tokens].

    max_seqlen_q and max_seqlen_k are not needed and not looked at. Tokens past seqused_q, or past the last sequence, are 0
    with an LSE of -inf.
    """
    _refuse_common(qv, q_descale, k_descale, v_descale, attention_chunk, num_splits, pack_gqa, deterministic, sm_margin)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _dims(name, tensor, 3)
    options = _options(softmax_scale, causal, window_size, softcap)
    if seqused_q is None and seqused_k is None:
        out, lse = _packed(q, k, v, cu_seqlens_q, cu_seqlens_k, options)
    else:
        out = torch.zeros((*q.shape[:2], v.shape[2]), dtype=q.dtype)
        lse = torch.full((q.shape[1], q.shape[0]), float("-inf"), dtype=torch.float32)
        at_q, at_k = _slots("q", cu_seqlens_q, seqused_q, q), _slots("k", cu_seqlens_k, seqused_k, k)
        if len(at_q) != len(at_k):
            raise ValueError(f"cu_seqlens_k: wrong length (got {len(at_k) + 1}, want {len(at_q) + 1})")
        for sq, sk in zip(at_q, at_k):
            _one(q[sq], k[sk], v[sk], out[sq], lse[:, sq], options)
    _fill_empty(lse, k.shape[0])
    return (out, lse) if return_attn_probs or return_softmax_lse else out


def _packed(q, k, v, cu_seqlens_q, cu_seqlens_k, options, **paged):
    """Tokens and keys past the last sequence are allowed: such tokens are 0, with an LSE of -inf."""
    n_q, n_k = (int(cu[-1]) if isinstance(cu, torch.Tensor) and cu.numel() else 0 for cu in (cu_seqlens_q, cu_seqlens_k))
    if not paged and 0 <= n_k < k.shape[0]:
        k, v = k[:n_k], v[:n_k]
    ends = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, **paged, **options}
    if not 0 <= n_q < q.shape[0]:
        return attention_varlen(q, k, v, **ends)
    out = torch.zeros((*q.shape[:2], v.shape[-1]), dtype=q.dtype)
    lse = torch.full((q.shape[1], q.shape[0]), float("-inf"), dtype=torch.float32)
    lse[:, :n_q] = attention_varlen(q[:n_q], k, v, out=out[:n_q], **ends)[1]
    return out, lse


def _slots(name, cu_seqlens, seqused, tensor):
    """Slices of the rows in use; what they say is checked, since they cut tensors here and not in the library."""
    cu = cu_seqlens.tolist()
    used = [b - a for a, b in zip(cu, cu[1:])] if seqused is None else seqused.tolist()
    if not cu or cu[0] != 0 or cu != sorted(cu) or cu[-1] > tensor.shape[0]:
        raise ValueError(f"cu_seqlens_{name}: does not ascend from 0 to at most {tensor.shape[0]} (got {cu[:8]})")
    if len(used) != len(cu) - 1 or any(not 0 <= n <= b - a for n, a, b in zip(used, cu, cu[1:])):
        raise ValueError(f"seqused_{name}: not within the sequences (got {used[:8]}, want at most their lengths)")
    return [slice(a, a + n) for a, n in zip(cu, used)]


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None,
                            cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, page_table=None,
                            cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None,
                            q_descale=None, k_descale=None, v_descale=None, softmax_scale=None, causal=False,
                            window_size=(-1, -1), attention_chunk=0, softcap=0.0, rotary_interleaved=True,
                            scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0,
                            return_softmax_lse=False, return_attn_probs=False):
    """q [batch, tokens, heads, dim] against caches [batch, keys, kv_heads, dim], or [pages, page_size, kv_heads, dim] with
    page_table int32 [batch, pages]; cache_batch_idx picks rows of the one or the other. With cu_seqlens_q, q is packed. The caches are read only: new keys and rotary
    embedding are refused. With an LSE the result has four parts, of which the last two are for split keys: None.
    """
    _refuse_common(qv, q_descale, k_descale, v_descale, attention_chunk, num_splits, pack_gqa, False, sm_margin)
    _refuse(k=(k, None), v=(v, None), rotary_cos=(rotary_cos, None), rotary_sin=(rotary_sin, None),
            cu_seqlens_k_new=(cu_seqlens_k_new, None), rotary_seqlens=(rotary_seqlens, None),
            rotary_interleaved=(rotary_interleaved, True))
    _check_schedule(scheduler_metadata)
    for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache)):
        _dims(name, tensor, 4)
    _dims("q", q, 4 if cu_seqlens_q is None else 3)
    options = _options(softmax_scale, causal, window_size, softcap)
    n = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    if page_table is not None:
        _dims("page_table", page_table, 2)
    lengths = _cache_lengths(cache_seqlens, n, k_cache, page_table)
    if page_table is not None:
        if cache_batch_idx is not None:
            page_table = page_table[_checked_rows(cache_batch_idx, n, page_table.shape[0]).long()]
        if page_table.shape[0] != n:
            raise ValueError(f"page_table: wrong length (got {page_table.shape[0]}, want {n})")
        if cache_leftpad is not None:
            begins = _begins(cache_leftpad, n, lengths)
            k_cache, v_cache, page_table = _without_leftpad(k_cache, v_cache, page_table, begins, lengths)
            lengths = [length - begin for length, begin in zip(lengths, begins)]
    elif cache_leftpad is None and _rows_are_pages(k_cache, v_cache):
        rows = cache_batch_idx if cache_batch_idx is not None else torch.arange(n, dtype=torch.int32)
        page_table = _checked_rows(rows, n, k_cache.shape[0]).view(n, 1)
    tokens = q if cu_seqlens_q is not None else _tokens(q)
    with named({"k": "k_cache", "v": "v_cache"}):
        if n < 1 or page_table is None or tokens is None:
            out, lse = _each(q, k_cache, v_cache, cu_seqlens_q, lengths, cache_batch_idx, cache_leftpad, page_table, options)
        else:
            starts = _ends([q.shape[1]] * n) if cu_seqlens_q is None else cu_seqlens_q
            out, lse = _packed(tokens, k_cache, v_cache, starts, _ends(lengths), options, page_table=page_table)
            if cu_seqlens_q is None:
                out, lse = out.view(*q.shape[:3], out.shape[2]), _by_batch(lse, n)
    return (out, lse, None, None) if return_softmax_lse or return_attn_probs else out


def _each(q, k_cache, v_cache, cu_seqlens_q, lengths, cache_batch_idx, cache_leftpad, page_table, options):
    """Sequence by sequence: what is no list of tokens against pages of one cache."""
    out = torch.zeros((*q.shape[:-1], v_cache.shape[3]), dtype=q.dtype)
    if cu_seqlens_q is None:
        lse = torch.empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
        rows, outs, lses = list(q), list(out), list(lse)
    else:
        lse = torch.full((q.shape[1], q.shape[0]), float("-inf"), dtype=torch.float32)
        slots = _slots("q", cu_seqlens_q, None, q)
        rows, outs, lses = [q[s] for s in slots], [out[s] for s in slots], [lse[:, s] for s in slots]
    if page_table is None:
        at = torch.arange(len(rows)) if cache_batch_idx is None else cache_batch_idx
        at = _checked_rows(at, len(rows), k_cache.shape[0]).tolist()
        begins = [0] * len(rows) if cache_leftpad is None else _begins(cache_leftpad, len(rows), lengths)
    for b, row in enumerate(rows):
        if page_table is not None:
            _one(row, k_cache, v_cache, outs[b], lses[b], options, page_table=page_table[b:b + 1], n_keys=lengths[b])
            continue
        keys = slice(begins[b], lengths[b])
        _one(row, k_cache[at[b], keys], v_cache[at[b], keys], outs[b], lses[b], options)
    return out, lse


def _checked_rows(rows, n, n_rows):
    bad = (rows < 0) | (rows >= n_rows)
    if rows.shape != (n,) or bad.any():
        raise ValueError(f"cache_batch_idx: no such rows (got {rows.tolist()[:8]}, want {n} of 0 .. {n_rows - 1})")
    return rows.int()


def _begins(cache_leftpad, n, lengths):
    begins = cache_leftpad.tolist()
    if len(begins) != n:
        raise ValueError(f"cache_leftpad: wrong length (got {len(begins)}, want {n})")
    for begin, length in zip(begins, lengths):
        if not 0 <= begin <= length:
            raise ValueError(f"cache_leftpad: out of range (got {begin}, want 0 .. {length})")
    return begins


def _without_leftpad(k_cache, v_cache, page_table, begins, lengths):
    """(k_cache, v_cache, page_table) in which every sequence begins with its first key: pages of one row each."""
    page = k_cache.shape[1]
    table = torch.zeros((len(begins), max([b - a for a, b in zip(begins, lengths)], default=0)), dtype=torch.int32)
    for row, begin, end, pages in zip(table, begins, lengths, page_table):
        at = torch.arange(begin, end)
        blocks = pages[at // page]
        wrong = (blocks < 0) | (blocks >= k_cache.shape[0])
        if wrong.any():
            raise ValueError(f"page_table: no such page (got {int(blocks[wrong][0])}, want 0 .. {k_cache.shape[0] - 1})")
        row[:end - begin] = blocks * page + at % page
    return _rows_as_pages(k_cache), _rows_as_pages(v_cache), table


def _rows_as_pages(cache):
    """[pages, page_size, ..] as [pages * page_size, 1, ..]: the same memory, but where no stride of rows says so."""
    try:
        return cache.view(cache.shape[0] * cache.shape[1], 1, *cache.shape[2:])
    except RuntimeError:
        return cache.reshape(cache.shape[0] * cache.shape[1], 1, *cache.shape[2:])


def _cache_lengths(cache_seqlens, n, k_cache, page_table):
    room = k_cache.shape[1] if page_table is None else k_cache.shape[1] * page_table.shape[1]
    if cache_seqlens is None:
        return [room] * n
    lengths = [int(cache_seqlens)] * n if isinstance(cache_seqlens, int) else cache_seqlens.tolist()
    if len(lengths) != n or any(not 0 <= length <= room for length in lengths):
        raise ValueError(f"cache_seqlens: out of range (got {lengths[:8]}, want {n} of 0 .. {room})")
    return lengths


def _check_schedule(scheduler_metadata):
    """What get_scheduler_metadata gives, or None."""
    empty = isinstance(scheduler_metadata, torch.Tensor) and not scheduler_metadata.numel()
    if not empty:
        _refuse(scheduler_metadata=(scheduler_metadata, None))


def get_scheduler_metadata(batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, cache_seqlens,
                           qkv_dtype=torch.bfloat16, headdim_v=None, cu_seqlens_q=None, cu_seqlens_k_new=None,
                           cache_leftpad=None, page_size=None, max_seqlen_k_new=0, causal=False, window_size=(-1, -1),
                           attention_chunk=0, has_softcap=False, num_splits=0, pack_gqa=None, sm_margin=0):
    """An empty schedule, int32 [0], which flash_attn_with_kvcache takes: keys are never split, workers take what is there."""
    _refuse_common(None, None, None, None, attention_chunk, num_splits, pack_gqa, False, sm_margin)
    _refuse(cu_seqlens_k_new=(cu_seqlens_k_new, None))
    return torch.empty(0, dtype=torch.int32)


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):
    """Partial results over disjoint keys, put together: (out [batch, tokens, heads, dim], lse [batch, tokens, heads]).

    out_partial float32 [splits, batch, tokens, heads, dim], lse_partial float32 [splits, batch, tokens, heads]; out is float32
    or of out_dtype, new unless given. Computed in double, rounded to float32 and from there to out's type; a row whose parts are
    all -inf is 0, with -inf.
    """
    for name, tensor, n_dims in (("out_partial", out_partial, 5), ("lse_partial", lse_partial, 4)):
        _dims(name, tensor, n_dims)
        if tensor.dtype != torch.float32:
            raise TypeError(f"{name}: wrong dtype (got {tensor.dtype}, want torch.float32)")
    if lse_partial.shape != out_partial.shape[:4] or not len(lse_partial):
        raise ValueError(f"lse_partial: wrong shape (got {list(lse_partial.shape)}, want {list(out_partial.shape[:4])}, one split or more)")
    dtype = out_dtype or (torch.float32 if out is None else out.dtype)
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise TypeError(f"out_dtype: not supported (got {dtype}, want torch.float32, torch.bfloat16 or torch.float16)")
    if out is None:
        out = torch.empty(out_partial.shape[1:], dtype=dtype)
    if out.shape != out_partial.shape[1:] or out.dtype != dtype:
        raise ValueError(f"out: wrong shape or dtype (got {list(out.shape)} {out.dtype}, want {list(out_partial.shape[1:])} {dtype})")
    lse = torch.logsumexp(lse_partial.double(), 0)
    weights = torch.where(lse == float("-inf"), 0.0, torch.exp(lse_partial.double() - lse))
    # What has no weight has none of its numbers either.
    parts = torch.where(weights[..., None] == 0, 0.0, out_partial.double())
    out.copy_((parts * weights[..., None]).sum(0))
    return out, lse.float().transpose(1, 2).contiguous().transpose(1, 2)
