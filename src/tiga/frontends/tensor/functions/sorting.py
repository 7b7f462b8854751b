"""Order: sorting, positions, sets. On the CPU all of it runs in numpy."""

from typing import Any, NamedTuple

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.arguments import integer, normalize_axis
from tiga.frontends.tensor.build import apply, as_tensor, result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU
from tiga.frontends.tensor.functions.creation import from_numpy
from tiga.frontends.tensor.functions.indexing import take, take_along_axis
from tiga.frontends.tensor.functions.pieces import narrow
from tiga.frontends.tensor.lazy import here
from tiga.ops.tensor_index import ArgSort, SearchSorted
from tiga.types import bfloat16


class TopK(NamedTuple):
    """The largest (or smallest) elements in order, and their positions."""

    values: Tensor
    indices: Tensor


class UniqueAll(NamedTuple):
    """The distinct elements, where each is first, which of them each element is, and how often."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The distinct elements, and how often each is there."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The distinct elements, and which of them each element is."""

    values: Tensor
    inverse_indices: Tensor


def _ordered(x: Any, axis: int, what: str) -> tuple[Tensor, int]:
    tensor = as_tensor(x)
    if tensor.dtype.is_complex:
        raise InvalidType(f"{what} of complex numbers, which have no order ({here()}).")
    return tensor, normalize_axis(axis, tensor.ndim)


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Positions that sort x along an axis; equal elements keep their order, NaN comes last.

    Example:
        >>> import tiga as tg
        >>> tg.argsort(tg.tensor([3, 1, 2])).tolist()
        [1, 2, 0]
    """
    tensor, place = _ordered(x, axis, "argsort")
    return result(apply(ArgSort(place, int(bool(descending))), tensor._node), tensor)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """x sorted along an axis; derivatives go to where the elements came from.

    Example:
        >>> import tiga as tg
        >>> tg.sort(tg.tensor([3, 1, 2]), descending=True).tolist()
        [3, 2, 1]
    """
    tensor, place = _ordered(x, axis, "sort")
    return take_along_axis(
        tensor, argsort(tensor, axis=place, descending=descending), axis=place
    )  # fmt: skip


def topk(x: Any, k: int, /, *, axis: int = -1, largest: bool = True) -> TopK:
    """The k largest (or smallest) elements along an axis in order, and their positions.

    Example:
        >>> import tiga as tg
        >>> tg.topk(tg.tensor([3, 1, 2]), 2).values.tolist()
        [3, 2]
    """
    tensor, place = _ordered(x, axis, "topk")
    if not 0 <= integer(k, "k=") <= tensor.shape[place]:
        raise InvalidValue(f"topk: k={k} of {tensor.shape[place]} elements ({here()}).")
    indices = narrow(argsort(tensor, axis=place, descending=largest), place, 0, k)
    return TopK(take_along_axis(tensor, indices, axis=place), indices)


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Tensor:
    """Where x2's elements would go in sorted x1, before or after (`side="right"`) equal ones.

    Example:
        >>> import tiga as tg
        >>> tg.searchsorted(tg.tensor([1, 3, 5]), tg.tensor([3]), side="right").tolist()
        [2]
    """
    if side not in ("left", "right"):
        raise InvalidValue(f"side= expected 'left' or 'right', got {side!r} ({here()}).")
    x, values = as_tensor(x1), as_tensor(x2)
    if x.ndim != 1:
        raise InvalidValue(f"searchsorted expected sorted x1 of one axis, got {x.ndim} ({here()}).")
    x = x if sorter is None else take(x, sorter, axis=0)
    return result(apply(SearchSorted(int(side == "right")), x._node, values._node))


def nonzero(x: Any, /) -> tuple[Tensor, ...]:
    """The positions of elements that are not 0, one tensor per axis. Looks at the value.

    Example:
        >>> import tiga as tg
        >>> [part.tolist() for part in tg.nonzero(tg.tensor([[0, 7], [5, 0]]))]
        [[0, 1], [1, 0]]
    """
    tensor = as_tensor(x)
    if not tensor.ndim:
        raise InvalidValue(f"nonzero of a tensor without axes ({here()}).")
    return where_true(tensor)


def where_true(x: Tensor) -> tuple[Tensor, ...]:
    """The positions of elements that are not 0, where the tensor is; see `nonzero`."""
    if x.device != CPU:
        from tiga.frontends.tensor.gpu_values import true_positions

        return true_positions(x)
    return tuple(from_numpy(a.astype(np.int64)) for a in np.nonzero(x.numpy()))


def unique_all(x: Any, /) -> UniqueAll:
    """The distinct elements in order with positions and counts. Looks at the value.

    Example:
        >>> import tiga as tg
        >>> [part.tolist() for part in tg.unique_all(tg.tensor([2, 1, 2]))]
        [[1, 2], [1, 0], [1, 0, 1], [1, 2]]
    """
    tensor = as_tensor(x)
    if tensor.device != CPU:
        from tiga.frontends.tensor.gpu_values import distinct

        return UniqueAll(*distinct(tensor))
    array = tensor.numpy()
    if tensor.dtype is bfloat16:  # whose NaN numpy sorts anywhere
        array = array.astype(np.float32)
    found = np.unique_all(array)
    values, first, inverse, counts = (np.asarray(part) for part in found)
    numbers = (from_numpy(part.astype(np.int64)) for part in (first, inverse, counts))
    return UniqueAll(from_numpy(values.astype(tensor.dtype.numpy)), *numbers)


def unique_counts(x: Any, /) -> UniqueCounts:
    """The distinct elements in order, and how often each is there. Looks at the value.

    Example:
        >>> import tiga as tg
        >>> tg.unique_counts(tg.tensor([2, 1, 2])).counts.tolist()
        [1, 2]
    """
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The distinct elements in order, and which of them each element is. Looks at the value.

    Example:
        >>> import tiga as tg
        >>> tg.unique_inverse(tg.tensor([2, 1, 2])).inverse_indices.tolist()
        [1, 0, 1]
    """
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any, /) -> Tensor:
    """The distinct elements in order. Looks at the value.

    Example:
        >>> import tiga as tg
        >>> tg.unique_values(tg.tensor([2, 1, 2])).tolist()
        [1, 2]
    """
    return unique_all(x).values


unique = unique_values
