"""The shared library and its TVM-FFI functions, called as their C ABI says (ctypes; the runtime is not needed).

An argument is a 16-byte value: a type index and what it holds. Tensors go as DLPack descriptions of memory that the
caller keeps for the length of the call.
"""
import ctypes
import os
import pathlib
import threading

NONE, INT, FLOAT, OPAQUE, DLTENSOR = 0, 1, 3, 4, 7
CPU = 1


class NativeError(RuntimeError):
    """A failure that is neither a wrong type nor a wrong value."""


class _Value(ctypes.Union):
    _fields_ = [("i", ctypes.c_int64), ("f", ctypes.c_double), ("ptr", ctypes.c_void_p)]


class _Any(ctypes.Structure):
    _fields_ = [("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("v", _Value)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("n_dims", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Memory:
    """What a tensor is to the library: address, shape, strides in elements, DLPack type code and bits."""

    def __init__(self, address, shape, strides, code, bits):
        n = len(shape)
        self.shape = (ctypes.c_int64 * n)(*shape)
        self.strides = (ctypes.c_int64 * n)(*strides)
        self.tensor = _Tensor(address, CPU, 0, n, code, bits, 1, self.shape, self.strides, 0)


_KINDS = {"TypeError": TypeError, "ValueError": ValueError, "MemoryError": MemoryError}


class Library:
    """The shared library at `path`: PLIMSOLL_FFI_LIBRARY, or the one beside this file."""

    def __init__(self, path=None):
        path = path or os.environ.get("PLIMSOLL_FFI_LIBRARY") or str(
            pathlib.Path(__file__).resolve().parent / "libplimsoll_ffi.so")
        if not os.path.exists(path):
            raise NativeError(f"{path}: not there (want libplimsoll_ffi.so; PLIMSOLL_FFI_LIBRARY may name it)")
        self._so = ctypes.CDLL(path)
        self._so.plimsoll_ffi_last_error.restype = ctypes.c_char_p

    def call(self, name, *args):
        """Calls function `name` with ints, floats, Memory, None, or an OpaquePtr as ctypes.c_void_p."""
        function = getattr(self._so, "__tvm_ffi_" + name)
        values, result = (_Any * len(args))(), _Any()
        for value, arg in zip(values, args):
            if arg is None:
                value.type_index = NONE
            elif isinstance(arg, Memory):
                value.type_index = DLTENSOR
                value.v.ptr = ctypes.addressof(arg.tensor)
            elif isinstance(arg, ctypes.c_void_p):
                value.type_index = OPAQUE
                value.v.ptr = arg
            elif isinstance(arg, float):
                value.type_index = FLOAT
                value.v.f = arg
            else:
                value.type_index = INT
                value.v.i = int(arg)
        if function(None, values, len(args), ctypes.byref(result)) == 0:
            if result.type_index == OPAQUE:
                return ctypes.c_void_p(result.v.ptr)
            return result.v.i if result.type_index == INT else None
        kind, _, text = self._so.plimsoll_ffi_last_error().decode().partition(": ")
        raise _KINDS.get(kind, NativeError)(text)


class Context:
    """Workers and kernels; used by one thread at a time, which a lock sees to."""

    def __init__(self, n_workers=0, library=None):
        self.library = library or Library()
        self.lock = threading.Lock()
        self._handle = None
        self._handle = self.library.call("ops_context_create", n_workers)
        self.workspace_bytes = max(self.library.call(name + "_workspace_size", self._handle) for name in (
            "attention_varlen", "attention_sparse_prefill", "attention_sparse_decode"))
        self._memory = ctypes.create_string_buffer(self.workspace_bytes + 64)
        start = -(-ctypes.addressof(self._memory) // 64) * 64
        self.workspace = Memory(start, [self.workspace_bytes], [1], 1, 8)

    def call(self, name, *args):
        with self.lock:
            return self.library.call(name, self._handle, *args)

    def close(self):
        if self._handle is not None:
            self.call("ops_context_destroy")
            self._handle = None

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()


_default, _default_lock = None, threading.Lock()


def default_context():
    """The context of this process: PLIMSOLL_THREADS workers, or one for each core. Made at the first call."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Context(int(os.environ.get("PLIMSOLL_THREADS", "0")))
        return _default
