"""Where most numbers of a task lie, from a sample: a few that are far off should not make a plan
expect the whole range."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tiga.runtime.pages import FileRows

PLACES, EACH = 6, 128
"""A task's sample: so many places, and numbers read at each."""

SHARES = (1.0, 0.97, 0.9, 0.75)
"""Shares of the sample that may make up the core."""

SPARSE = 2
"""A range with fewer numbers than so many times its edges is not looked at: it is full."""


@dataclass(frozen=True)
class Core:
    """Numbers [low, high) that most edges name, and how many edges name others."""

    low: int
    high: int
    outside: int

    @property
    def size(self) -> int:
        return self.high - self.low

    def joined(self, other: "Core") -> "Core":
        """The core of two tasks together."""
        if other.low >= other.high or self.low >= self.high:
            some = other if self.low >= self.high else self
            return Core(some.low, some.high, self.outside + other.outside)
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Core(low, high, self.outside + other.outside)


NOWHERE = Core(0, 0, 0)


def distinct(window: int, edges: int) -> int:
    """Distinct numbers that so many edges name in a window, if they were drawn at random.

    Example:
        >>> distinct(100, 1), distinct(100, 10_000)
        (1, 100)
    """
    if window <= 0 or edges <= 0:
        return 0
    return min(edges, window, round(window * -np.expm1(-edges / window)))


def core_of(
    numbers: FileRows, dtype: np.dtype, edges: tuple[int, int], low: int, high: int
) -> Core:
    """The core of the numbers at edge positions [edges[0], edges[1]), which lie in [low, high)."""
    count = edges[1] - edges[0]
    if high - low <= SPARSE * count or not count:
        return Core(low, high, 0)
    sample = np.sort(np.concatenate(list(sampled(numbers, dtype, edges))))
    found = [_share(sample, share, count, low, high) for share in SHARES]
    return min(found, key=lambda core: distinct(core.size, count - core.outside) + core.outside)


def sampled(numbers: FileRows, dtype: np.dtype, edges: tuple[int, int]) -> Iterator[np.ndarray]:
    """Numbers at a few places of a range of edge positions that is not empty."""
    start, end = edges
    firsts = [start + (end - start) * place // PLACES for place in range(PLACES)]
    numbers.expect((first, min(first + EACH, end)) for first in firsts)
    for first in firsts:
        part = np.empty(min(EACH, end - first), dtype)
        numbers.read_into(first, part.view(np.uint8).reshape(len(part), dtype.itemsize))
        yield part


def _share(sample: np.ndarray, share: float, count: int, low: int, high: int) -> Core:
    """The narrowest range that holds a share of the sample."""
    if share == 1.0:
        return Core(low, high, 0)
    inside = max(1, int(len(sample) * share))
    widths = sample[inside - 1 :] - sample[: len(sample) - inside + 1]
    first = int(widths.argmin())
    outside = round(count * (1 - inside / len(sample)))
    return Core(int(sample[first]), int(sample[first + inside - 1]) + 1, outside)
