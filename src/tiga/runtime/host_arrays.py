"""Arrays of indices on the host: plans for small graphs are made here, and sent in one copy."""

from collections.abc import Sequence

import numpy as np

ALIGNMENT = 128
"""Where arrays that are sent together begin, in bytes."""


class HostArrays:
    """Functions of numpy arrays; see `tiga.runtime.platform.IndexArrays`."""

    def numbers(self, values: Sequence[np.ndarray]) -> list[int]:
        return [int(value.reshape(())) for value in values]

    def minimum(self, x: np.ndarray) -> np.ndarray:
        return x.min(keepdims=True)

    def maximum(self, x: np.ndarray) -> np.ndarray:
        return x.max(keepdims=True)

    def total(self, x: np.ndarray) -> np.ndarray:
        return x.sum(dtype=np.int64, keepdims=True)

    def positions(self, like: np.ndarray, count: int) -> np.ndarray:
        return np.arange(count, dtype=np.int64)

    def full(self, like: np.ndarray, count: int, value: int) -> np.ndarray:
        return np.full(count, value, like.dtype)

    def cast(self, x: np.ndarray, bits: int) -> np.ndarray:
        return x.astype(np.int32 if bits == 32 else np.int64, copy=False)

    def contiguous(self, x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(x)

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts)

    def running_sums(self, x: np.ndarray) -> np.ndarray:
        return x.cumsum(dtype=np.int64)

    def where(self, mask: np.ndarray) -> np.ndarray:
        return mask.nonzero()[0]

    def put(self, target: np.ndarray, positions: np.ndarray, values: np.ndarray) -> np.ndarray:
        target[positions] = values
        return target

    def sort(self, keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        order = self.order(keys, count)
        return keys[order], order

    def order(self, keys: np.ndarray, count: int) -> np.ndarray:
        # numpy sorts 16 bits by counting, and stably.
        short = keys.astype(np.uint16) if count <= 2**16 else keys
        return short.argsort(kind="stable")

    def rows(self, starts: np.ndarray, total: int) -> np.ndarray:
        return np.repeat(np.arange(len(starts) - 1), np.diff(starts))

    def before(self, ordered: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        return ordered.searchsorted(bounds)

    def bits(self, positions: np.ndarray, count: int) -> np.ndarray:
        marks = np.zeros(count, np.uint8)
        marks[positions] = 1
        return np.packbits(marks, bitorder="little").view(np.int32)


HOST_ARRAYS = HostArrays()


def side_by_side(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, list[int]]:
    """The bytes of arrays in one block, and where each begins in it."""
    places, end = [], 0
    for array in arrays:
        places.append(end)
        end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    block = np.zeros(end, np.uint8)
    for array, place in zip(arrays, places, strict=True):
        block[place : place + array.nbytes].view(array.dtype)[:] = array
    return block, places
