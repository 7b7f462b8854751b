"""Parts of tensors that are written: what is stored where, and which tensors show it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tiga.frontends.tensor.arrays import address_of, beside, part_shape, store
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import LazyNode, leaf
from tiga.types import GLOBAL, Type, dtype_of_numpy


class WrittenPart(Protocol):
    """A part of a tensor that is written; `what` is how messages call the write."""

    tensor: Tensor
    what: str

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the tensor, in its order."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is written into it."""

    def store(self, values: Any) -> None:
        """Write an array of the tensor's dtype, broadcast.

        Raises:
            InvalidIndex: there is no such part.
        """

    def shown_by(self, viewer: Tensor) -> tuple[LazyNode, LazyNode | None] | None:
        """For every element of a viewer the number of the written element that it shows, and which
        show one (None: all); None if none does."""


@dataclass
class IndexedPart:
    """The part that an index without tensors of a GPU names; `...`: all of it."""

    tensor: Tensor
    index: Any
    what: str

    @property
    def is_whole(self) -> bool:
        return self.index is ...

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return part_shape(self.tensor._in_memory(), self.index, self.what)

    def store(self, values: Any) -> None:
        store(self.tensor._array, self.index, values, self.what)

    def shown_by(self, viewer: Tensor) -> tuple[LazyNode, LazyNode | None] | None:
        origin = self._origin(viewer)
        written = origin >= 0
        if not written.any():
            return None
        places = _beside(np.where(written, origin, 0).reshape(-1), viewer)
        return places, None if written.all() else _beside(written, viewer)

    def _origin(self, viewer: Tensor) -> np.ndarray:
        """For every element of a viewer the number of the written one that it shows; -1: none."""
        shown, places = places_in_memory(viewer, self.tensor)
        places = places[self.index]
        table = np.full(int(max(shown.max(initial=0), places.max(initial=0))) + 1, -1, np.int64)
        table[places] = np.arange(places.size).reshape(places.shape)
        return table[shown]


def _beside(array: np.ndarray, tensor: Tensor) -> LazyNode:
    """A given value where a tensor is."""
    return leaf(
        beside(array, tensor._array), Type(dtype_of_numpy(array.dtype), array.shape, GLOBAL)
    )


def places_in_memory(*tensors: Tensor) -> list[np.ndarray]:
    """Where the elements of tensors that share memory are, counted from the first of all."""
    start = min(address_of(tensor._array) for tensor in tensors)
    return [_places(tensor, start) for tensor in tensors]


def _places(tensor: Tensor, start: int) -> np.ndarray:
    """Where every element is in memory, counted in elements from `start`."""
    array = tensor._array
    assert array is not None
    places = np.asarray((address_of(array) - start) // array.itemsize, np.int64)
    for extent, stride in zip(array.shape, array.strides, strict=True):
        places = places[..., None] + np.arange(extent) * (stride // array.itemsize)
    return places
