"""Operators on torch tensors."""
import torch

from ._native import Memory, default_context

# DLPack's code and bits.
_TYPES = {torch.bfloat16: (4, 16), torch.float16: (2, 16), torch.float32: (2, 32), torch.int32: (0, 32),
          torch.int8: (0, 8), torch.uint8: (1, 8), torch.float8_e4m3fn: (10, 8)}


def memory_of(name, tensor):
    """Describes a CPU tensor; it must outlive the call. Everything else is refused by its name."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: not a tensor (got {type(tensor).__name__}, want torch.Tensor)")
    if tensor.device.type != "cpu":
        raise ValueError(f"{name}: not on the CPU (got {tensor.device}, want cpu)")
    if tensor.dtype not in _TYPES:
        raise TypeError(f"{name}: wrong dtype (got {tensor.dtype}, want bfloat16, float16 or float32; int32 for lengths "
                        "and slots, uint8, int8 or float8_e4m3fn for caches)")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: requires a gradient (got True, want False or torch.no_grad(): forward only)")
    return Memory(tensor.data_ptr(), tensor.shape, tensor.stride(), *_TYPES[tensor.dtype])


def _optional(name, tensor):
    return None if tensor is None else memory_of(name, tensor)


def _scale(softmax_scale):
    """What the library takes: 0 is dim ** -0.5."""
    if softmax_scale is not None and not softmax_scale > 0:
        raise ValueError(f"softmax_scale: not a scale (got {softmax_scale}, want more than 0, or None)")
    return float(softmax_scale or 0.0)


def attention_varlen(q, k, v, *, cu_seqlens_q, cu_seqlens_k, page_table=None, sink=None, softmax_scale=None,
                     causal=False, window=(-1, -1), softcap=0.0, out=None, lse=None, context=None):
    """Attention over packed sequences: `pl_attention_varlen` of plimsoll/ops.h.

    q [tokens, heads, dim]; k and v [keys, kv_heads, dim], or [pages, page_size, kv_heads, dim] with page_table int32
    [sequences, pages]; cu_seqlens int32 [sequences + 1]; sink float32 [heads] or [n, heads], in the denominator alone.
    softmax_scale None: dim ** -0.5. Strides are free, the last dimension is adjacent. out [tokens, heads, value_dim] and
    lse float32 [heads, tokens] (natural logarithm, -inf for a row without keys) are new unless given. Returns both.
    """
    if out is None:
        out = torch.empty((q.shape[0], q.shape[1], v.shape[-1]), dtype=q.dtype)
    if lse is None:
        lse = torch.empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    context = context or default_context()
    context.call(
        "attention_varlen", memory_of("q", q), memory_of("k", k), memory_of("v", v),
        memory_of("cu_seqlens_q", cu_seqlens_q), memory_of("cu_seqlens_k", cu_seqlens_k),
        _optional("page_table", page_table), _optional("sink", sink), _scale(softmax_scale), bool(causal), window[0],
        window[1], float(softcap), memory_of("out", out), memory_of("lse", lse), context.workspace)
    return out, lse


def _attention_sparse(name, q, middle, cache, indices, lengths, extra_cache, extra_indices, extra_lengths, sink,
                      softmax_scale, out, max_logits, lse, context):
    q_memory = memory_of("q", q)
    if q.dim() != 3:
        raise ValueError(f"q: wrong number of dimensions (got {q.dim()}, want 3)")
    if out is None:
        out = torch.empty((*q.shape[:2], 512), dtype=q.dtype)
    stats = [torch.empty((q.shape[1], q.shape[0]), dtype=torch.float32) if t is None else t for t in (max_logits, lse)]
    context = context or default_context()
    context.call(
        name, q_memory, *middle, memory_of("cache", cache), memory_of("indices", indices), _optional("lengths", lengths),
        _optional("extra_cache", extra_cache), _optional("extra_indices", extra_indices),
        _optional("extra_lengths", extra_lengths), _optional("sink", sink), _scale(softmax_scale),
        memory_of("out", out), memory_of("max_logits", stats[0]), memory_of("lse", stats[1]), context.workspace)
    return out, stats[0], stats[1]


def attention_sparse_prefill(q, cache, indices, *, lengths=None, extra_cache=None, extra_indices=None,
                             extra_lengths=None, sink=None, softmax_scale=None, out=None, max_logits=None, lse=None,
                             context=None):
    """Attention over keys listed by slot: `pl_attention_sparse_prefill` of plimsoll/ops.h.

    q bfloat16 [tokens, heads, 512 or 576]. cache bfloat16 [rows, dim], [rows, 1, dim] or [pages, page_size, 1, dim], or
    of 8 bits [pages, page_size, 1, 584 or 656]; indices int32 [tokens, n], what is no slot being no key; lengths int32
    [tokens]: how many of a list count. A second cache, and lists, share the softmax. sink float32 [heads]. out
    [tokens, heads, 512], max_logits and lse float32 [heads, tokens] are new unless given. Returns the three; a token
    without keys has 0, -inf and +inf.
    """
    return _attention_sparse("attention_sparse_prefill", q, (), cache, indices, lengths, extra_cache, extra_indices,
                             extra_lengths, sink, softmax_scale, out, max_logits, lse, context)


def attention_sparse_decode(q, seq_tokens, cache, indices, *, lengths=None, extra_cache=None, extra_indices=None,
                            extra_lengths=None, sink=None, softmax_scale=None, out=None, max_logits=None, lse=None,
                            context=None):
    """The same bits where each seq_tokens tokens are a sequence, and lengths int32 [sequences]."""
    return _attention_sparse("attention_sparse_decode", q, (int(seq_tokens),), cache, indices, lengths, extra_cache,
                             extra_indices, extra_lengths, sink, softmax_scale, out, max_logits, lse, context)


def kv_insert(cache, slots, x, *, context=None):
    """Rows of x, bfloat16 [n, dim], into slots int32 [n] of a cache, quantised where it has 8 bits; slot -1 is skipped."""
    (context or default_context()).call("kv_insert", memory_of("cache", cache), memory_of("slots", slots),
                                        memory_of("x", x))


def kv_gather(cache, slots, *, x=None, context=None):
    """What attention reads in slots int32 [n]: bfloat16 [n, 512 or 576], new unless given; zeros for slot -1."""
    if x is None:
        width = cache.shape[-1]
        x = torch.empty((slots.shape[0], {584: 512, 656: 576}.get(width, width)), dtype=torch.bfloat16)
    (context or default_context()).call("kv_gather", memory_of("cache", cache), memory_of("slots", slots),
                                        memory_of("x", x))
    return x


def kv_pack(cache, slots, codes, scales, rope, *, context=None):
    """Parts into slots, byte for byte: codes uint8 [n, 448 or 512], scales uint8 [n, 8] or float32 [n, 4], rope
    bfloat16 [n, 64]."""
    (context or default_context()).call("kv_pack", memory_of("cache", cache), memory_of("slots", slots),
                                        memory_of("codes", codes), memory_of("scales", scales), memory_of("rope", rope))


def kv_unpack(cache, slots, *, codes=None, scales=None, rope=None, context=None):
    """The same out of them: codes, scales and rope, new unless given; zeros for slot -1."""
    n, v32 = slots.shape[0], cache.shape[-1] == 656
    codes = torch.empty((n, 512 if v32 else 448), dtype=torch.uint8) if codes is None else codes
    if scales is None:
        scales = torch.empty((n, 4), dtype=torch.float32) if v32 else torch.empty((n, 8), dtype=torch.uint8)
    rope = torch.empty((n, 64), dtype=torch.bfloat16) if rope is None else rope
    (context or default_context()).call("kv_unpack", memory_of("cache", cache), memory_of("slots", slots),
                                        memory_of("codes", codes), memory_of("scales", scales), memory_of("rope", rope))
    return codes, scales, rope
