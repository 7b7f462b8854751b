"""DLPack capsules of ours for other libraries, and theirs for us.

numpy's own support ends at the CPU, and knows no bfloat16; the structures are those of DLPack 0.8,
which every later version still takes.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tiga.errors import InvalidType
from tiga.runtime.device_array import DeviceArray, DeviceMemory, Machine, row_major

CPU, CUDA = 1, 2
"""DLPack's names of the CPU and of NVIDIA's devices."""

LEGACY_STREAM = 1
"""DLPack's name of the default stream, on which all work of ours is."""

_NAME, _USED = b"dltensor", b"used_dltensor"
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_exported: dict[int, Any] = {}
"""What keeps exported memory alive, by the address of its structure, until its deleter runs."""


@_Deleter
def _delete(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _unused(capsule: int) -> None:
    """The destructor of a capsule: nobody has taken what it holds if it has its first name."""
    if _is_named(capsule, _NAME):
        _exported.pop(_pointer(capsule, _NAME), None)


_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# The functions that are called with a capsule which is being destroyed take its address.
_is_named = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _api)
)


def _code(dtype: np.dtype) -> int:
    return _BFLOAT if dtype == ml_dtypes.bfloat16 else _CODES[dtype.kind]


def exported(array: DeviceArray) -> Any:
    """A capsule that shares the memory of an array on a GPU."""
    return _capsule(array, array.address, CUDA, array.machine.index)


def exported_host(array: np.ndarray) -> Any:
    """A capsule that shares the memory of a numpy array."""
    return _capsule(array, array.__array_interface__["data"][0], CPU, 0)


def _capsule(array: Any, address: int, device: int, index: int) -> Any:
    rank = max(array.ndim, 1)
    shape = (ctypes.c_int64 * rank)(*array.shape)
    strides = (ctypes.c_int64 * rank)(*(s // array.itemsize for s in array.strides))
    tensor = _Tensor(
        address, device, index, array.ndim, _code(array.dtype), 8 * array.itemsize, 1, shape,
        strides, 0,
    )  # fmt: skip
    managed = _Managed(tensor, None, _delete)
    place = ctypes.addressof(managed)
    _exported[place] = (managed, shape, strides, array)
    return _new(place, _NAME, ctypes.cast(_unused, ctypes.c_void_p))


class _Borrowed:
    """Memory of another library, given back with the object."""

    def __init__(self, address: int) -> None:
        self._managed = _Managed.from_address(address)

    def __del__(self) -> None:
        if self._managed.deleter:
            self._managed.deleter(ctypes.byref(self._managed))


@dataclass(frozen=True)
class _Given:
    """What a capsule holds: where the first element is, and how the others lie."""

    owner: _Borrowed
    index: int
    start: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None

    @staticmethod
    def taken(capsule: Any, device: int, what: str) -> "_Given":
        """Take a capsule's memory, which must be on a kind of device."""
        if not _is_named(id(capsule), _NAME):
            raise InvalidType("from_dlpack expected a capsule that nobody has taken yet.")
        address = _pointer(id(capsule), _NAME)
        _rename(capsule, _USED)
        owner = _Borrowed(address)
        tensor = _Managed.from_address(address).tensor
        if tensor.device_type != device:
            raise InvalidType(f"from_dlpack expected memory of {what}.")
        dtype = _dtype(tensor)
        shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        strides = None
        if tensor.strides:
            strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
        start = (tensor.data or 0) + tensor.byte_offset
        return _Given(owner, tensor.device_id, start, dtype, shape, strides)


def imported(capsule: Any, machine_of: Any) -> DeviceArray:
    """The array of a capsule with memory of a GPU; `machine_of` gives the machine of an index.

    Raises:
        InvalidType: it is used already, not on a GPU, or of a dtype without counterpart.
    """
    given = _Given.taken(capsule, CUDA, "an NVIDIA GPU")
    machine: Machine = machine_of(given.index)
    size = _span(given.shape, given.strides, given.dtype)
    memory = DeviceMemory(machine, size, address=given.start, owner=given.owner)
    return DeviceArray(memory, given.shape, given.dtype, given.strides, given.start)


def imported_host(capsule: Any) -> np.ndarray:
    """The array of a capsule with memory of the CPU, not to be written.

    Raises:
        InvalidType: it is used already, elsewhere, or of a dtype without counterpart.
    """
    given = _Given.taken(capsule, CPU, "the CPU")
    strides = row_major(given.shape, given.dtype.itemsize) if given.strides is None else (
        given.strides)  # fmt: skip
    # Steps may be negative: the memory starts where the first of all elements is.
    low = sum((n - 1) * s for n, s in zip(given.shape, strides, strict=True) if s < 0 and n)
    reach = _span(given.shape, tuple(map(abs, strides)), given.dtype)
    memory = (ctypes.c_char * reach).from_address(given.start + low)
    memory.owner = given.owner  # type: ignore[attr-defined]
    array: np.ndarray = np.ndarray(given.shape, given.dtype, memoryview(memory), -low, strides)
    array.flags.writeable = False
    return array


def _span(shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: np.dtype) -> int:
    """Bytes from the first element to the end of the last."""
    if 0 in shape:
        return 0
    if strides is None:
        return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    reach = ((n - 1) * s for n, s in zip(shape, strides, strict=True))
    return sum(reach) + dtype.itemsize


def _dtype(tensor: _Tensor) -> np.dtype:
    if tensor.code == _BFLOAT and tensor.bits == 16:
        return np.dtype(ml_dtypes.bfloat16)
    kinds = {code: kind for kind, code in _CODES.items()}
    if tensor.lanes != 1 or tensor.code not in kinds:
        raise InvalidType(f"from_dlpack: no Tiga dtype has DLPack's code {tensor.code}.")
    kind = kinds[tensor.code]
    return np.dtype(bool) if kind == "b" else np.dtype(f"{kind}{tensor.bits // 8}")
