"""FlashMLA's module of this name, for CPU tensors: names, arguments and results are its own."""
from .flash_mla_interface import (FlashMLASchedMeta, flash_attn_varlen_func, flash_attn_varlen_kvpacked_func,
                                  flash_attn_varlen_qkvpacked_func, flash_mla_sparse_fwd, flash_mla_with_kvcache,
                                  get_mla_metadata)

__all__ = ["FlashMLASchedMeta", "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func",
           "flash_attn_varlen_qkvpacked_func", "flash_mla_sparse_fwd", "flash_mla_with_kvcache", "get_mla_metadata"]
__version__ = "0.1.0"
