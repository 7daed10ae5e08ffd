"""FlashMLA's calls over Plimsoll's operators.

Forward only, on the CPU; any number of heads up to 128 (none is padded), any page size, any length of a list. Where
FlashMLA gives an LSE of +inf, for a row without keys, so does this; sinks are never in the LSE.
"""
import dataclasses
from typing import Optional

import torch

from plimsoll import attention_sparse_decode, attention_sparse_prefill, attention_varlen
from plimsoll._names import named

VALUE_DIM = 512
_BYTES_OF_ROW = {512: 584, 576: 656}


@dataclasses.dataclass
class FlashMLASchedMeta:
    """What a first call was like; the calls that it is given to afterwards must be like that.

    Keys are never split and workers take what is there, so the two tensors of a schedule stay None.
    """

    @dataclasses.dataclass
    class Config:
        b: int
        s_q: int
        h_q: int
        page_block_size: int
        h_k: int
        causal: bool
        is_fp8_kvcache: bool
        topk: Optional[int]
        extra_page_block_size: Optional[int]
        extra_topk: Optional[int]

    have_initialized: bool = False
    config: Optional[Config] = None
    tile_scheduler_metadata: Optional[torch.Tensor] = None
    num_splits: Optional[torch.Tensor] = None


def get_mla_metadata(*args, **kwargs):
    """(an empty FlashMLASchedMeta, None), whatever the arguments."""
    return FlashMLASchedMeta(), None


# The library's names of arguments, and this module's.
_DECODE_NAMES = {"set[0].cache": "k_cache", "set[0].indices": "indices", "set[0].index_stride": "indices",
                 "set[0].n_indices": "indices", "set[0].lengths": "topk_length", "set[1].cache": "extra_k_cache",
                 "set[1].indices": "extra_indices_in_kvcache", "set[1].index_stride": "extra_indices_in_kvcache",
                 "set[1].n_indices": "extra_indices_in_kvcache", "set[1].lengths": "extra_topk_length",
                 "extra_cache": "extra_k_cache", "extra_indices": "extra_indices_in_kvcache",
                 "extra_lengths": "extra_topk_length", "cache": "k_cache", "lengths": "topk_length", "sink": "attn_sink"}
_PREFILL_NAMES = {**_DECODE_NAMES, "set[0].cache": "kv", "cache": "kv", "softmax_scale": "sm_scale"}


def _refuse(error, name, got, want):
    got = str(got).replace("\n", " ")
    raise error(f"{name}: not supported (got {got[:60]}, want {want})")


def _is_other(value, default):
    """A tensor says nothing clear to ==."""
    return isinstance(value, torch.Tensor) or value != default


def _tensor(name, tensor, n_dims):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: not a tensor (got {type(tensor).__name__}, want torch.Tensor)")
    if tensor.dim() != n_dims:
        raise ValueError(f"{name}: wrong number of dimensions (got {tensor.dim()}, want {n_dims})")


def _check_meta(meta, num_splits, config):
    if not isinstance(meta, FlashMLASchedMeta):
        raise TypeError(f"tile_scheduler_metadata: wrong type (got {type(meta).__name__}, want FlashMLASchedMeta)")
    if num_splits is not None:
        _refuse(ValueError, "num_splits", type(num_splits).__name__, "None")
    if meta.have_initialized and meta.config != config:
        raise ValueError(f"tile_scheduler_metadata: of another kind of call (got {config}, want {meta.config})")


def flash_mla_with_kvcache(q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, num_splits=None,
                           softmax_scale=None, causal=False, is_fp8_kvcache=False, indices=None, attn_sink=None,
                           extra_k_cache=None, extra_indices_in_kvcache=None, topk_length=None, extra_topk_length=None):
    """(out [b, s_q, h_q, 512], lse float32 [b, h_q, s_q]) of q [b, s_q, h_q, 512 or 576].

    With indices int32 [b, s_q, topk], sparse: k_cache [blocks, page, 1, 584 or 656] of 8 bits, q bfloat16. Without, dense:
    k_cache [blocks, page, h_k, dim] of q's dtype, block_table int32 [b, blocks of a sequence], cache_seqlens int32 [b].
    """
    _tensor("q", q, 4)
    _tensor("k_cache", k_cache, 4)
    if _is_other(head_dim_v, VALUE_DIM):
        _refuse(ValueError, "head_dim_v", head_dim_v, VALUE_DIM)
    for name, tensor in (("indices", indices), ("extra_indices_in_kvcache", extra_indices_in_kvcache)):
        if tensor is not None:
            _tensor(name, tensor, 3)
    if extra_k_cache is not None:
        _tensor("extra_k_cache", extra_k_cache, 4)
    config = FlashMLASchedMeta.Config(
        q.shape[0], q.shape[1], q.shape[2], k_cache.shape[1], k_cache.shape[2], bool(causal), bool(is_fp8_kvcache),
        None if indices is None else indices.shape[2], None if extra_k_cache is None else extra_k_cache.shape[1],
        None if extra_indices_in_kvcache is None else extra_indices_in_kvcache.shape[2])
    _check_meta(tile_scheduler_metadata, num_splits, config)
    if indices is not None:
        result = _sparse(q, softmax_scale, causal, is_fp8_kvcache, attn_sink, (k_cache, indices, topk_length),
                         (extra_k_cache, extra_indices_in_kvcache, extra_topk_length))
    else:
        for name, given in (("is_fp8_kvcache", is_fp8_kvcache or None), ("attn_sink", attn_sink),
                            ("extra_k_cache", extra_k_cache), ("extra_indices_in_kvcache", extra_indices_in_kvcache),
                            ("topk_length", topk_length), ("extra_topk_length", extra_topk_length)):
            if given is not None:
                _refuse(ValueError, name, type(given).__name__, "its default without indices")
        result = _dense(q, k_cache, block_table, cache_seqlens, softmax_scale, causal)
    tile_scheduler_metadata.have_initialized, tile_scheduler_metadata.config = True, config
    return result


def _token_view(tensor):
    """[b, s, ..] as [b * s, ..], or None where strides do not allow it."""
    try:
        return tensor.view(tensor.shape[0] * tensor.shape[1], *tensor.shape[2:])
    except RuntimeError:
        return None


def _by_batch(stat, b):
    """[h, b * s] as [b, h, s]."""
    return stat.view(stat.shape[0], b, -1).transpose(0, 1).contiguous() if b else stat.new_empty((0, stat.shape[0], 0))


def _sparse(q, softmax_scale, causal, is_fp8_kvcache, attn_sink, *sets):
    if causal:
        _refuse(ValueError, "causal", causal, "False with indices")
    if not is_fp8_kvcache:
        _refuse(ValueError, "is_fp8_kvcache", is_fp8_kvcache, "True with indices")
    row = _BYTES_OF_ROW.get(q.shape[3])
    if row is None:
        _refuse(ValueError, "q, the last dimension", q.shape[3], "512 or 576")
    for name, cache in (("k_cache", sets[0][0]), ("extra_k_cache", sets[1][0])):
        if cache is not None and (cache.element_size() != 1 or cache.shape[3] != row):
            _refuse(ValueError, name, f"{cache.dtype} rows of {cache.shape[3]}", f"{row} bytes for dim {q.shape[3]}")
    for name, tensor in (("indices", sets[0][1]), ("extra_indices_in_kvcache", sets[1][1])):
        if tensor is not None and tensor.shape[:2] != q.shape[:2]:
            raise ValueError(f"{name}: wrong shape (got {list(tensor.shape)}, want {list(q.shape[:2])} and a length)")
    out = torch.empty((*q.shape[:3], VALUE_DIM), dtype=q.dtype)
    flat = [None if t is None else _token_view(t) for t in (q, sets[0][1], sets[1][1])]
    if all(v is not None or t is None for v, t in zip(flat, (q, sets[0][1], sets[1][1]))):
        lse = _decode(flat[0], q.shape[1], out.flatten(0, 1), attn_sink, softmax_scale, (sets[0][0], flat[1], sets[0][2]),
                      (sets[1][0], flat[2], sets[1][2]))
        return out, _by_batch(lse, q.shape[0])
    lse = torch.empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    for b in range(q.shape[0]):  # strides that no flat list of tokens has: one sequence at a time, still in place
        one = [(cache, None if index is None else index[b], None if n is None else n[b:b + 1]) for cache, index, n in sets]
        lse[b] = _decode(q[b], q.shape[1], out[b], attn_sink, softmax_scale, *one)
    return out, lse


def _decode(q, seq_tokens, out, attn_sink, softmax_scale, keys, extra):
    with named(_DECODE_NAMES):
        return attention_sparse_decode(
            q, max(seq_tokens, 1), keys[0], keys[1], lengths=keys[2], extra_cache=extra[0], extra_indices=extra[1],
            extra_lengths=extra[2], sink=attn_sink, softmax_scale=softmax_scale, out=out)[2]


def _dense(q, k_cache, block_table, cache_seqlens, softmax_scale, causal):
    for name, tensor, n_dims in (("block_table", block_table, 2), ("cache_seqlens", cache_seqlens, 1)):
        _tensor(name, tensor, n_dims)
        if tensor.dtype != torch.int32 or tensor.shape[0] != q.shape[0]:
            raise ValueError(f"{name}: wrong dtype or length (got {tensor.dtype} [{tensor.shape[0]}], "
                             f"want torch.int32 [{q.shape[0]}])")
    heads, dim = q.shape[2:]
    if dim not in _BYTES_OF_ROW or k_cache.shape[3] != dim:
        _refuse(ValueError, "q and k_cache, the last dimensions", [dim, k_cache.shape[3]], "512 or 576, the same")
    if not k_cache.shape[2] or heads % k_cache.shape[2]:
        raise ValueError(f"k_cache: heads do not divide q's (got {k_cache.shape[2]}, want a divisor of {heads})")
    room = k_cache.shape[1] * block_table.shape[1]
    lengths = cache_seqlens.tolist()
    if any(not 0 <= n <= room for n in lengths):
        raise ValueError(f"cache_seqlens: out of range (got {lengths[:8]}, want 0 .. {room})")
    if dim == 576 and q.dtype != torch.bfloat16:
        _refuse(TypeError, "q", f"{q.dtype} with a dimension of 576", "torch.bfloat16, or 512")
    if k_cache.dtype != q.dtype:
        raise TypeError(f"k_cache: not q's dtype (got {k_cache.dtype}, want {q.dtype})")
    tokens = _token_view(q)
    if tokens is None:
        parts = [_dense(q[b:b + 1], k_cache, block_table[b:b + 1], cache_seqlens[b:b + 1], softmax_scale, causal)
                 for b in range(q.shape[0])]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
    out = torch.empty((*q.shape[:3], VALUE_DIM), dtype=q.dtype)
    run = _dense_pages if dim == 512 else _dense_lists
    lse = run(tokens, q.shape[1], k_cache, block_table, cache_seqlens, softmax_scale, causal, out.flatten(0, 1))
    return out, _by_batch(lse, q.shape[0])


def _dense_pages(q, s_q, k_cache, block_table, cache_seqlens, softmax_scale, causal, out):
    """Keys are values here: one cache, read as both."""
    ends = torch.zeros(cache_seqlens.shape[0] + 1, dtype=torch.int32)
    torch.cumsum(cache_seqlens, 0, out=ends[1:])
    starts = torch.arange(cache_seqlens.shape[0] + 1, dtype=torch.int32) * s_q
    with named({"k": "k_cache", "page_table": "block_table"}):
        lse = attention_varlen(q, k_cache, k_cache, cu_seqlens_q=starts, cu_seqlens_k=ends, page_table=block_table,
                               softmax_scale=softmax_scale, causal=causal, out=out)[1]
    return lse.masked_fill_(lse == float("-inf"), float("inf"))


def _dense_lists(q, s_q, k_cache, block_table, cache_seqlens, softmax_scale, causal, out):
    """576 numbers a key: the slots of each sequence become its list, cut where causality cuts it."""
    page, longest = k_cache.shape[1], int(cache_seqlens.max()) if cache_seqlens.numel() else 0
    at = torch.arange(longest)
    blocks = block_table.long()[:, at // page] if longest else block_table.long()[:, :0]
    seen = at < cache_seqlens[:, None]
    wrong = seen & ((blocks < 0) | (blocks >= k_cache.shape[0]))
    if wrong.any():
        raise ValueError(f"block_table: no such block (got {int(blocks[wrong][0])}, want 0 .. {k_cache.shape[0] - 1})")
    slots = torch.where(seen, blocks * page + at % page, -1).int().repeat_interleave(s_q, 0)
    counts = cache_seqlens[:, None] - (torch.arange(s_q - 1, -1, -1) if causal else torch.zeros(s_q, dtype=torch.int64))
    counts = counts.clamp_(min=0).int().flatten()
    lse = torch.empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    group = q.shape[1] // k_cache.shape[2]
    for h in range(k_cache.shape[2]):
        of = slice(h * group, (h + 1) * group)
        with named({**_PREFILL_NAMES, "set[0].cache": "k_cache", "cache": "k_cache", "softmax_scale": "softmax_scale"}):
            attention_sparse_prefill(q[:, of], k_cache[:, :, h:h + 1], slots, lengths=counts,
                                     softmax_scale=softmax_scale, out=out[:, of], lse=lse[of])
    return lse


def _dense_prefill(q, k, v, names, cu_seqlens_qo, cu_seqlens_kv, dropout_p, softmax_scale, causal, deterministic):
    if _is_other(dropout_p, 0.0):
        _refuse(NotImplementedError, "dropout_p", dropout_p, 0.0)
    if _is_other(deterministic, False):
        _refuse(NotImplementedError, "deterministic", deterministic, "False: it always is, and there is no backward pass")
    with named({**names, "cu_seqlens_q": cu_seqlens_qo[0], "cu_seqlens_k": cu_seqlens_kv[0]}):
        out, lse = attention_varlen(q, k, v, cu_seqlens_q=cu_seqlens_qo[1], cu_seqlens_k=cu_seqlens_kv[1],
                                    softmax_scale=softmax_scale, causal=causal)
    return out, lse.t()


def flash_attn_varlen_func(q, k, v, cu_seqlens_qo, cu_seqlens_kv, max_seqlen_qo, max_seqlen_kv, dropout_p=0.0,
                           softmax_scale=None, causal=False, deterministic=False, is_varlen=True):
    """(out [tokens, heads, value_dim], lse float32 [tokens, heads]) of packed sequences: the dense prefill call.

    Lengths are those of cu_seqlens; max_seqlen_qo, max_seqlen_kv and is_varlen, which choose a schedule, are not looked at. A row
    without keys is 0 with an LSE of -inf.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _tensor(name, tensor, 3)
    return _dense_prefill(q, k, v, {}, ("cu_seqlens_qo", cu_seqlens_qo), ("cu_seqlens_kv", cu_seqlens_kv), dropout_p,
                          softmax_scale, causal, deterministic)


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, head_dim_qk, dropout_p=0.0, softmax_scale=None,
                                     causal=False, deterministic=False, is_varlen=True):
    """The same of qkv [tokens, heads, head_dim_qk + head_dim_qk + value_dim]."""
    _tensor("qkv", qkv, 3)
    if not 0 < 2 * head_dim_qk < qkv.shape[2]:
        raise ValueError(f"head_dim_qk: does not fit qkv (got {head_dim_qk}, want twice of it below {qkv.shape[2]})")
    parts = qkv[..., :head_dim_qk], qkv[..., head_dim_qk:2 * head_dim_qk], qkv[..., 2 * head_dim_qk:]
    return _dense_prefill(*parts, {name: "qkv" for name in "qkv"}, ("cu_seqlens", cu_seqlens), ("cu_seqlens", cu_seqlens),
                          dropout_p, softmax_scale, causal, deterministic)


def flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens_qo, cu_seqlens_kv, max_seqlen_qo, max_seqlen_kv, head_dim_qk,
                                    dropout_p=0.0, softmax_scale=None, causal=False, deterministic=False,
                                    is_varlen=True):
    """The same of q and kv [keys, kv_heads, head_dim_qk + value_dim]."""
    _tensor("q", q, 3)
    _tensor("kv", kv, 3)
    if not 0 < head_dim_qk < kv.shape[2]:
        raise ValueError(f"head_dim_qk: does not fit kv (got {head_dim_qk}, want 1 .. {kv.shape[2] - 1})")
    return _dense_prefill(q, kv[..., :head_dim_qk], kv[..., head_dim_qk:], {"k": "kv", "v": "kv"},
                          ("cu_seqlens_qo", cu_seqlens_qo), ("cu_seqlens_kv", cu_seqlens_kv), dropout_p, softmax_scale,
                          causal, deterministic)


def flash_mla_sparse_fwd(q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None, indexer_topk=0):
    """(out bfloat16 [s_q, h_q, 512], max_logits and lse float32 [s_q, h_q]) of q bfloat16 [s_q, h_q, 512 or 576], kv
    bfloat16 [s_kv, 1, dim] and indices int32 [s_q, 1, topk], what is below 0 or at or past s_kv being no key."""
    for name, tensor in (("q", q), ("kv", kv), ("indices", indices)):
        _tensor(name, tensor, 3)
    if _is_other(d_v, VALUE_DIM):
        _refuse(ValueError, "d_v", d_v, VALUE_DIM)
    if _is_other(indexer_topk, 0):
        _refuse(NotImplementedError, "indexer_topk", indexer_topk, 0)
    if sm_scale is None:
        raise TypeError("sm_scale: missing (got None, want a float)")
    if kv.dtype != torch.bfloat16:
        raise TypeError(f"kv: wrong dtype (got {kv.dtype}, want torch.bfloat16)")
    with named(_PREFILL_NAMES):
        out, max_logits, lse = attention_sparse_prefill(q, kv, indices, lengths=topk_length, sink=attn_sink,
                                                        softmax_scale=sm_scale)
    return out, max_logits.t().contiguous(), lse.t().contiguous()
