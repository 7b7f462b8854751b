"""Arrays in the memory of a GPU: what a tensor of `device="cuda"` holds.

They have what views need of numpy's arrays (shape, dtype, strides, basic indexing), and nothing
that would read an element: whoever wants elements copies them to the host by name.
"""

import math
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tiga.errors import InvalidType
from tiga.runtime.layout import is_shown_as

LAUNCH_ALIGNMENT = 16
"""What kernels take of addresses: multiples of this."""


class Machine(Protocol):
    """A device as arrays need it; all work on it is in order."""

    index: int

    @property
    def platform(self) -> Any:
        """What programs over graphs need of it (`tiga.runtime.platform`)."""

    def allocate(self, nbytes: int) -> int: ...
    def free(self, address: int) -> None: ...
    def copy_in(self, device: int, host: int, nbytes: int) -> None: ...
    def copy_out(self, host: int, device: int, nbytes: int) -> None: ...
    def copy(self, to: int, source: int, nbytes: int) -> None: ...
    def zero(self, address: int, nbytes: int) -> None: ...
    def synchronize(self) -> None: ...
    def allocate_pinned(self, nbytes: int) -> int: ...
    def free_pinned(self, address: int) -> None: ...
    def event(self) -> Any: ...

    def lead(self, stream: int) -> None:
        """Keep a stream's later work until what was given to this machine is done."""


class DeviceMemory:
    """A block of a device's memory, given back with the object; `uncharge` then takes back that its
    bytes are charged. `owner` keeps memory of another library alive, which is not ours to free."""

    __slots__ = ("__weakref__", "_free", "address", "machine", "nbytes", "owner")

    def __init__(
        self, machine: Machine, nbytes: int, uncharge: Callable[[], None] | None = None,
        address: int | None = None, owner: Any = None,
    ) -> None:  # fmt: skip
        self.machine, self.nbytes, self.owner = machine, nbytes, owner
        if address is not None:
            self.address = address
            return
        try:
            self.address = machine.allocate(nbytes)
        except BaseException:
            if uncharge is not None:
                uncharge()
            raise
        self._free = weakref.finalize(self, _free, machine, self.address, uncharge)
        self._free.atexit = False  # the device's memory ends with the process

    def __reduce__(self) -> Any:
        raise InvalidType(
            "memory of a GPU is not pickled or copied deeply; copy the tensor to the CPU by name "
            "first: x.cpu()."
        )


def _free(machine: Machine, address: int, uncharge: Callable[[], None] | None) -> None:
    machine.free(address)
    if uncharge is not None:
        uncharge()


class DeviceArray:
    """Elements of `dtype` at an address, `strides` bytes apart along each axis.

    It views its memory as a numpy array would: `reshape` of contiguous arrays, `transpose`,
    `squeeze`, `np.expand_dims`, `np.broadcast_to` and basic indexing share it. Everything that
    would read elements on the host raises.
    """

    __slots__ = ("__weakref__", "address", "dtype", "memory", "shape", "strides")
    __array_ufunc__ = None  # arithmetic is for compiled programs

    def __init__(
        self, memory: DeviceMemory, shape: tuple[int, ...], dtype: Any,
        strides: tuple[int, ...] | None = None, address: int | None = None,
    ) -> None:  # fmt: skip
        self.memory, self.shape, self.dtype = memory, tuple(shape), np.dtype(dtype)
        self.strides = row_major(self.shape, self.dtype.itemsize) if strides is None else strides
        self.address = memory.address if address is None else address

    @property
    def machine(self) -> Machine:
        return self.memory.machine

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps."""
        expected = row_major(self.shape, self.itemsize)
        pairs = zip(self.shape, self.strides, expected, strict=True)
        return self.size <= 1 or all(n == 1 or own == wanted for n, own, wanted in pairs)

    @property
    def is_launchable(self) -> bool:
        """Whether kernels take it as it is."""
        return self.is_contiguous and self.address % LAUNCH_ALIGNMENT == 0

    # views

    def reshape(self, *shape: Any) -> "DeviceArray":
        """The elements under another shape, where they lie."""
        target = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        assert math.prod(target) == self.size, f"{self.shape} as {target}"
        if not self.is_contiguous:
            if not is_shown_as(self.shape, self.strides, target):
                raise InvalidType("reshape: elements on a device that must move need a copy.")
            return self.through(lambda a: a.reshape(target))
        return type(self)(self.memory, target, self.dtype, None, self.address)

    def transpose(self, *axes: Any) -> "DeviceArray":
        return self.through(lambda a: a.transpose(*axes))

    def squeeze(self, axes: Any = None) -> "DeviceArray":
        return self.through(lambda a: a.squeeze(axes))

    def __getitem__(self, index: Any) -> "DeviceArray":
        entries = index if isinstance(index, tuple) else (index,)
        if not all(
            e is None or e is ... or isinstance(e, (int, slice, np.integer)) for e in entries
        ):
            raise _refused("indexing with arrays")
        # With an ellipsis numpy gives a view, never an element.
        entries = entries if ... in entries else (*entries, ...)
        return self.through(lambda a: a[entries])

    def through(self, view: Callable[[np.ndarray], np.ndarray]) -> "DeviceArray":
        """What a function that only makes views of numpy arrays makes of this one."""
        nothing = np.empty((), self.dtype)
        like = np.lib.stride_tricks.as_strided(nothing, self.shape, self.strides)
        seen = view(like)
        offset = _address(seen) - _address(like)
        return type(self)(self.memory, seen.shape, self.dtype, seen.strides, self.address + offset)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in (np.expand_dims, np.broadcast_to) and args[0] is self:
            return self.through(lambda a: function(a, *args[1:], **kwargs))
        raise _refused(f"numpy.{function.__name__}")

    # other libraries

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise _refused("a numpy array")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "typestr": self.dtype.str, "strides": self.strides, "version": 3,
            "data": (self.address if self.size else 0, False), "stream": 1,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} on cuda:{self.machine.index}>"


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of a row-major array without gaps."""
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _refused(what: str) -> InvalidType:
    return InvalidType(
        f"{what} of a tensor on a GPU would need its elements on the CPU; copy it there by name: "
        "x.cpu()."
    )


def upload(array: np.ndarray, machine: Machine, memory: DeviceMemory) -> DeviceArray:
    """A host array's elements in device memory."""
    whole = np.ascontiguousarray(array)
    machine.copy_in(memory.address, _address(whole), whole.nbytes)
    return DeviceArray(memory, array.shape, array.dtype)


def download(array: DeviceArray) -> np.ndarray:
    """The elements of a contiguous device array on the host; waits for the work before."""
    assert array.is_contiguous, "only contiguous elements are copied"
    host = np.empty(array.shape, array.dtype)
    array.machine.copy_out(_address(host), array.address, array.nbytes)
    array.machine.synchronize()
    return host
