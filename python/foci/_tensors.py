"""Arrays of any maker as NumPy arrays over the same memory, and types of elements."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from . import _c
from ._errors import ArgumentError, DTypeError

try:
    import ml_dtypes

    bfloat16: Optional[np.dtype[Any]] = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    bfloat16 = None

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

CODES: dict[np.dtype[Any], int] = {np.dtype(np.float32): _c.F32, np.dtype(np.float16): _c.F16}
if bfloat16 is not None:
    CODES[bfloat16] = _c.BF16
NAMES = {"float32": _c.F32, "f32": _c.F32, "bfloat16": _c.BF16, "bf16": _c.BF16, "float16": _c.F16, "f16": _c.F16}
WORDS = ("float32", "bfloat16", "float16")  # by code
ACCEPTED = "foci computes in float32, bfloat16 and float16"


def dtype_code(dtype: Any) -> int:
    """The foci_dtype that a name ("bf16"), a NumPy type or one of PyTorch's stands for."""
    name = dtype if isinstance(dtype, str) else str(dtype)
    code = NAMES.get(name.rpartition(".")[2])  # "torch.bfloat16"
    if code is None:
        try:
            code = CODES.get(np.dtype(dtype))
        except TypeError:
            pass
    if code is None:
        raise DTypeError(f"dtype {name}: {ACCEPTED}")
    return code


def dtype_of(code: int) -> np.dtype[Any]:
    """The NumPy type of a foci_dtype."""
    if code == _c.BF16:
        if bfloat16 is None:
            raise DTypeError("bfloat16: NumPy has no such type by itself; pip install ml_dtypes")
        return bfloat16
    return np.dtype(np.float32 if code == _c.F32 else np.float16)


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", ctypes.POINTER(c_int64)),
                ("strides", ctypes.POINTER(c_int64)), ("byte_offset", c_uint64)]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]

_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}  # of DLPack
_BFLOAT = 4
_HOSTS = (1, 3, 11, 13)  # CPU, and pinned or managed memory of CUDA and ROCm that it reads
_DEVICES = {1: "cpu", 2: "cuda", 8: "metal", 10: "rocm", 14: "oneapi"}


class _Exported:
    """Memory that a capsule keeps: what NumPy makes an array of."""

    def __init__(self, capsule: Any, interface: dict[str, Any]) -> None:
        self.capsule = capsule
        self.__array_interface__ = interface


def _from_dlpack(value: Any, name: str) -> Array:
    kind, number = value.__dlpack_device__()
    if kind not in _HOSTS:
        raise DTypeError(f"{name} is on device {_DEVICES.get(kind, f'of type {kind}')}:{number}: this call reads "
                         "memory of the CPU; move the array there, or use foci.torch")
    negated = getattr(value, "is_neg", None)
    if negated is not None and negated():
        raise ArgumentError(f"{name} is a view of PyTorch's that is negated when it is read: {name}.resolve_neg() is a "
                            "tensor of these numbers")
    try:
        capsule = value.__dlpack__()
    except (BufferError, RuntimeError, TypeError) as error:
        more = "; foci.torch computes gradients" if type(value).__module__.partition(".")[0] == "torch" else ""
        raise ArgumentError(f"{name} cannot be shared by DLPack: {error}{more}") from error
    address = _pointer(capsule, b"dltensor")
    tensor = ctypes.cast(address, ctypes.POINTER(_DLTensor)).contents
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.code == _BFLOAT and tensor.bits == 16:
        typestr, dtype = "<u2", dtype_of(_c.BF16)
    elif tensor.code in _KINDS and tensor.lanes == 1:
        typestr = f"{'|' if tensor.bits == 8 else '<'}{_KINDS[tensor.code]}{tensor.bits // 8}"
        dtype = np.dtype(typestr)
    else:
        raise DTypeError(f"{name} has elements of DLPack's type {tensor.code} of {tensor.bits} bits: {ACCEPTED}")
    if 0 in shape or not tensor.data:
        return np.empty(shape, dtype)
    size = tensor.bits // 8
    strides = tuple(s * size for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    exported = _Exported(capsule, {"version": 3, "typestr": typestr, "shape": shape, "strides": strides,
                                   "data": (tensor.data + tensor.byte_offset, False)})
    return np.asarray(exported).view(dtype)


def array(value: Any, name: str) -> Array:
    """A NumPy array over the memory of what is given: no copy."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, name)
    raise DTypeError(f"{name} is a {type(value).__name__}: it has to be a NumPy array or have __dlpack__")


def listed(values: Any, name: str) -> Array:
    """An array of numbers in lists."""
    try:
        return np.asarray(values)
    except ValueError:
        raise ArgumentError(f"{name}: the lists in it differ in length; rows of an array have the same") from None


def float_array(value: Any, name: str) -> Array:
    """The same of a tensor, whose elements may be of three types."""
    found = array(value, name)
    if found.dtype not in CODES:
        refuse_dtype(found, name)
    return found


def refuse_dtype(found: Array, name: str) -> None:
    if found.dtype == np.uint16 or found.dtype.kind == "V":
        raise DTypeError(f"{name} has dtype {found.dtype}: whether these are bfloat16 cannot be seen; with ml_dtypes "
                         f"(pip install ml_dtypes) say {name}.view(ml_dtypes.bfloat16)")
    if not found.dtype.isnative:
        raise DTypeError(f"{name} has the other byte order ({found.dtype}); {name}.astype('float32') swaps it")
    raise DTypeError(f"{name} has dtype {found.dtype}: {ACCEPTED}; {name}.astype('float32') converts it")


def rows_adjacent(found: Array) -> Array:
    """The same array, or a packed copy where elements of a row are not adjacent, where they are
    not aligned as their type is, or where an axis runs backwards."""
    size = found.itemsize
    strides = found.strides
    if not found.ndim:
        return found
    if (found.shape[-1] == 1 or strides[-1] == size) and found.flags.aligned:
        for stride in strides[:-1]:
            if stride % size or stride < 0:
                return np.ascontiguousarray(found)
        return found
    return np.ascontiguousarray(found)


def floats(value: Any, name: str) -> Floats:
    """Packed float32, of numbers in lists too: the memory itself where it is that already."""
    found = listed(value, name) if isinstance(value, (list, tuple, int, float, np.generic)) else array(value, name)
    if found.dtype.kind not in "fiub" and found.dtype not in CODES:
        refuse_dtype(found, name)
    return np.asarray(found, np.float32, order="C")


def integers(value: Any, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Packed int32 of this shape, from whole numbers of any type."""
    found = listed(value, name) if isinstance(value, (list, tuple, int)) else array(value, name)
    if found.dtype.kind not in "iu":
        raise DTypeError(f"{name} has dtype {found.dtype}: whole numbers are needed, for instance int32")
    if found.shape != shape:
        raise ArgumentError(f"{name} has shape {found.shape}, not {shape}")
    if found.size and (found.min() < -(2**31) or found.max() >= 2**31):
        raise ArgumentError(f"{name} has numbers beyond those of int32")
    return np.ascontiguousarray(found, np.int32)


def address(found: Optional[Array]) -> int:
    """Where an array begins; 0: there is none."""
    if found is None:
        return 0
    start: int = found.__array_interface__["data"][0]
    return start
