"""Operators on torch tensors."""
import torch

from ._native import Memory, default_context

_TYPES = {torch.bfloat16: (4, 16), torch.float16: (2, 16), torch.float32: (2, 32), torch.int32: (0, 32)}


def memory_of(name, tensor):
    """Describes a CPU tensor; it must outlive the call. Everything else is refused by its name."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: not a tensor (got {type(tensor).__name__}, want torch.Tensor)")
    if tensor.device.type != "cpu":
        raise ValueError(f"{name}: not on the CPU (got {tensor.device}, want cpu)")
    if tensor.dtype not in _TYPES:
        raise TypeError(f"{name}: wrong dtype (got {tensor.dtype}, want bfloat16, float16 or float32; int32 for lengths)")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: requires a gradient (got True, want False or torch.no_grad(): forward only)")
    return Memory(tensor.data_ptr(), tensor.shape, tensor.stride(), *_TYPES[tensor.dtype])


def attention_varlen(q, k, v, *, cu_seqlens_q, cu_seqlens_k, page_table=None, sink=None, softmax_scale=None,
                     causal=False, window=(-1, -1), softcap=0.0, out=None, lse=None, context=None):
    """Attention over packed sequences: `pl_attention_varlen` of plimsoll/ops.h.

    q [tokens, heads, dim]; k and v [keys, kv_heads, dim], or [pages, page_size, kv_heads, dim] with page_table int32
    [sequences, pages]; cu_seqlens int32 [sequences + 1]; sink float32 [heads] or [n, heads], in the denominator alone.
    softmax_scale None: dim ** -0.5. Strides are free, the last dimension is adjacent. out [tokens, heads, value_dim] and
    lse float32 [heads, tokens] (natural logarithm, -inf for a row without keys) are new unless given. Returns both.
    """
    if softmax_scale is not None and softmax_scale <= 0:
        raise ValueError(f"softmax_scale: not a scale (got {softmax_scale}, want more than 0, or None)")
    if out is None:
        out = torch.empty((q.shape[0], q.shape[1], v.shape[-1]), dtype=q.dtype)
    if lse is None:
        lse = torch.empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    context = context or default_context()
    context.call(
        "attention_varlen", memory_of("q", q), memory_of("k", k), memory_of("v", v),
        memory_of("cu_seqlens_q", cu_seqlens_q), memory_of("cu_seqlens_k", cu_seqlens_k),
        None if page_table is None else memory_of("page_table", page_table),
        None if sink is None else memory_of("sink", sink), float(softmax_scale or 0.0), bool(causal), window[0], window[1],
        float(softcap), memory_of("out", out), memory_of("lse", lse), context.workspace)
    return out, lse
