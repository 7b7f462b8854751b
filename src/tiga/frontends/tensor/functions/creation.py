"""New tensors from Python values, numpy arrays and other libraries."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.arguments import integer
from tiga.frontends.tensor.arrays import Array, device_of, duplicate, moved_to
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU, check_device
from tiga.frontends.tensor.dtypes import DEFAULT_FLOAT, check_dtype, kind_of, result_dtype
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.memory.absent import reserve
from tiga.frontends.tensor.scalars import SCALARS
from tiga.frontends.tensor.storage import charge, wrap
from tiga.runtime.scope import active
from tiga.types import DType, dtype_of_numpy

Extent = int | Sequence[int]


MOST = 2**60
"""Elements that no memory holds."""


def checked_shape(shape: Any) -> tuple[int, ...]:
    extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    found = tuple(integer(extent, "shape=", 0) for extent in extents)
    if math.prod(extent for extent in found if extent) >= MOST:
        raise InvalidValue(f"shape={found} has more elements than memory addresses ({here()}).")
    return found


def room_for(shape: Any, dtype: DType) -> tuple[int, ...]:
    """A shape for which the budget in force has room."""
    extents = checked_shape(shape)
    if active() is not None:
        reserve(math.prod(extents) * dtype.itemsize, f"a new tensor of shape {extents}")
    return extents


def finish(
    array: np.ndarray, requires_grad: bool, device: Any = None, shared: bool = False
) -> Tensor:
    """A leaf with this value; memory that is not `shared` is charged to the budget in force. On a
    GPU it is a copy."""
    target = check_device(device)
    if target != CPU and not (shared and device is None):
        array = moved_to(array, target)
    return new_leaf(array, requires_grad, shared)


def new_leaf(array: Array, requires_grad: bool, shared: bool = False) -> Tensor:
    """A leaf with this value, where it is; memory that is not `shared` is charged."""
    made = wrap(array)
    if not shared and active() is not None:
        charge(made)
    return made.requires_grad_() if requires_grad else made


def _leaves(data: Any, found: set[type]) -> tuple[int, ...]:
    """The shape of nested lists; the types of their numbers are added to `found`."""
    if isinstance(data, SCALARS):
        found.add(kind_of(data))
        return ()
    if isinstance(data, np.generic):
        found.add(bool if data.dtype == bool else type(data.item()))
        return ()
    if isinstance(data, Tensor) and not data.shape:
        found.add(type(data.item()))
        return ()
    if not isinstance(data, (list, tuple, range)):
        joined = "; tg.stack joins tensors" if isinstance(data, (Tensor, np.ndarray)) else ""
        raise InvalidType(
            f"tg.tensor expected numbers, nested lists or an array, got "
            f"{type(data).__name__} ({here()}){joined}."
        )
    shapes = {_leaves(item, found) for item in data}
    if len(shapes) > 1:
        raise InvalidValue(
            f"tg.tensor expected lists of equal lengths, got parts of shapes "
            f"{' and '.join(map(str, sorted(shapes)))} ({here()})."
        )
    return (len(data), *(shapes.pop() if shapes else ()))


def _inferred(found: set[type]) -> DType:
    for kind in (complex, float, int, bool):
        if kind in found:
            return result_dtype(kind())
    return DEFAULT_FLOAT


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor that holds a copy of `data`.

    Args:
        data: a number, nested lists of numbers, a tensor, a numpy array, a buffer of Python's, or
            anything with `__dlpack__` or `__array__`.
        dtype: the element type; by default the array's own, or for numbers complex64 where one
            is complex, else float32 where one is a float, else int64, else bool.
        device: "cpu", "cuda" or "cuda:N"; by default that of `tg.execution`, else the CPU.
        requires_grad: whether derivatives with respect to it can be asked for.

    Raises:
        InvalidValue: lists of unequal lengths, or numbers that do not fit.
        InvalidType: something that holds no numbers.

    Example:
        >>> import tiga as tg
        >>> tg.tensor([[1, 2], [3, 4]]).shape
        (2, 2)
    """
    wanted = None if dtype is None else check_dtype(dtype)
    if hasattr(data, "__dlpack__") and not isinstance(data, (Tensor, np.ndarray)):
        data = from_dlpack(data)
    data = _of_buffer(data)
    _require_unmasked(data)
    if isinstance(data, Tensor) and data.device != CPU:
        return _copied(data, wanted, device, requires_grad)
    if not hasattr(data, "__array__"):
        return finish(_of_lists(data, wanted), requires_grad, device)
    array = np.asarray(data)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    _known_dtype(array)
    target = array.dtype if wanted is None else wanted.numpy
    if array.dtype.kind == "c" and target.kind not in "cb":
        array = array.real
    room_for(array.shape, dtype_of_numpy(target))
    return finish(np.array(array, dtype=target, order="C"), requires_grad, device)


def _of_lists(data: Any, dtype: DType | None) -> np.ndarray:
    """Nested lists of numbers as an array, for which there is room."""
    found: set[type] = set()
    shape = _leaves(data, found)
    target = _inferred(found) if dtype is None else dtype
    room_for(shape, target)
    try:
        return np.array(data, dtype=target.numpy)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidValue(f"tg.tensor: {error} ({here()}).") from None


def _of_buffer(data: Any) -> Any:
    """The array of what shows its memory by Python's buffer protocol, anything else as it is."""
    if isinstance(data, (list, tuple, *SCALARS)) or hasattr(data, "__array__"):
        return data
    try:
        return np.asarray(memoryview(data))
    except TypeError:
        return data


def _copied(data: Tensor, dtype: DType | None, device: Any, requires_grad: bool) -> Tensor:
    """A leaf with the value of a tensor on a GPU, there unless another device is asked for."""
    from tiga.frontends.tensor.functions.selection import astype

    source = data if dtype is None else astype(data, dtype)
    source.realize()
    target = data.device if device is None else check_device(device)
    assert source._array is not None
    same = target == data.device
    array = duplicate(source._array) if same else moved_to(source._array, target)
    made = wrap(array)
    return made.requires_grad_() if requires_grad else made


def _require_unmasked(data: Any) -> None:
    """Refuse arrays of numpy some of whose elements are masked: no tensor knows of that."""
    masked = sys.modules.get("numpy.ma")  # importing it takes a tenth of the first compiled call
    if masked and isinstance(data, masked.MaskedArray) and masked.is_masked(data):
        raise InvalidValue(
            f"an array without masked elements was expected ({here()}); fill them with "
            "x.filled(value)."
        )


def _known_dtype(array: np.ndarray) -> DType:
    try:
        return dtype_of_numpy(array.dtype)
    except KeyError:
        raise InvalidType(
            f"no Tiga dtype holds numpy's {array.dtype} ({here()}); convert it with .astype first."
        ) from None


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """`obj` as a tensor, sharing memory where it can (`copy=True`: never, `False`: or fail).

    Example:
        >>> import tiga as tg
        >>> tg.asarray([1, 2]).tolist()
        [1, 2]
    """
    wanted = None if dtype is None else check_dtype(dtype)
    target = check_device(device)
    if isinstance(obj, Tensor):
        same = wanted in (None, obj.dtype) and (device is None or obj.device == target)
        if same and not copy:
            return obj
        _refuse_copy(copy)
        return tensor(obj, dtype=wanted, device=device)
    sharable = isinstance(obj, np.ndarray) and obj.flags.writeable and copy is not True
    if sharable and target == CPU and wanted in (None, _known_dtype(obj)):
        return from_numpy(obj)
    _refuse_copy(copy)
    return tensor(obj, dtype=wanted, device=device)


def _refuse_copy(copy: bool | None) -> None:
    if copy is False:
        raise InvalidValue(f"copy=False, but a copy is needed ({here()}).")


def from_numpy(array: np.ndarray, *, requires_grad: bool = False) -> Tensor:
    """A tensor that shares the memory of a numpy array; read-only arrays are copied.

    Raises:
        InvalidType: its dtype is none of Tiga's.

    Example:
        >>> import numpy as np, tiga as tg
        >>> a = np.zeros(2, np.float32)
        >>> x = tg.from_numpy(a)
        >>> a[0] = 5
        >>> x.tolist()
        [5.0, 0.0]
    """
    if not isinstance(array, np.ndarray):
        raise InvalidType(
            f"from_numpy expected a numpy array, got {type(array).__name__} ({here()}); tg.asarray "
            "takes tensors, numbers and lists."
        )
    _require_unmasked(array)
    array = np.asarray(array)  # operators of subclasses mean other things
    _known_dtype(array)
    negative = any(step < 0 or step % array.itemsize for step in array.strides)
    copied = negative or not array.flags.writeable or not array.dtype.isnative
    return finish(np.array(array, order="C") if copied else array, requires_grad, shared=not copied)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor that shares the memory of another library's array, by DLPack.

    Memory that its owner does not say may be written, such as JAX's, is refused to writes in place.

    Raises:
        InvalidType: it is no array, elsewhere, or of a dtype without counterpart.

    Example:
        >>> import numpy as np, tiga as tg
        >>> tg.from_dlpack(np.arange(3)).tolist()
        [0, 1, 2]
    """
    from tiga.frontends.dlpack import array_of

    array = array_of(x, copy)
    _known_dtype(array)
    if isinstance(array, np.ndarray):
        return finish(array, False, device, shared=True)
    target = device_of(array) if device is None else check_device(device)
    if target != device_of(array):
        return wrap(moved_to(array, target))
    return wrap(duplicate(array) if copy else array)


def from_torch(tensor: Any, *, requires_grad: bool | None = None, connect: bool = False) -> Tensor:
    """A tensor that shares the memory of a torch tensor on the CPU or a GPU, strides included.

    It inherits `requires_grad` unless told. The two libraries' histories are not connected, unless
    `connect`: then what is computed from it becomes one node of torch's graph by `.to_torch()`.

    Raises:
        InvalidType: its dtype is none of Tiga's, or it is not dense, or elsewhere.

    Example:
        >>> import torch, tiga as tg
        >>> tg.from_torch(torch.ones(2)).tolist()
        [1.0, 1.0]
    """
    from tiga.frontends.dlpack import array_of_torch

    if connect:
        from tiga.frontends.tensor.bridge import connect as connected

        return connected(tensor)
    if type(tensor).__module__.partition(".")[0] == "tiga" or not hasattr(tensor, "layout"):
        raise InvalidType(
            f"from_torch expected a torch tensor, got {type(tensor).__name__} ({here()})."
        )
    grad = tensor.requires_grad if requires_grad is None else requires_grad
    return wrap(array_of_torch(tensor)).requires_grad_(grad)
