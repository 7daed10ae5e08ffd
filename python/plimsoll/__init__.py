"""Plimsoll's operators on CPU tensors of PyTorch: nothing is copied, outputs may be the caller's.

The package alone needs no PyTorch: it is imported with the first operator that is asked for.
"""
from ._native import Context, Library, NativeError, default_context

_OPERATORS = ("attention_sparse_decode", "attention_sparse_prefill", "attention_varlen", "kv_gather", "kv_insert",
              "kv_pack", "kv_unpack")
__all__ = ["Context", "Library", "NativeError", "default_context", *_OPERATORS]
__version__ = "0.1.0"


def __getattr__(name):
    if name in _OPERATORS:
        from . import _operators

        return getattr(_operators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
