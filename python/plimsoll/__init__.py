"""Plimsoll's operators on CPU tensors of PyTorch: nothing is copied, outputs may be the caller's."""
from ._native import Context, Library, NativeError, default_context
from ._operators import attention_varlen

__all__ = ["Context", "Library", "NativeError", "attention_varlen", "default_context"]
__version__ = "0.1.0"
