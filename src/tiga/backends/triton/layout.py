"""How values lie in a Triton tensor: [rows, edges, *features], each extent a power of two.

A value of a row has edges = 1, a global one rows = edges = 1, and a feature axis along which all
elements are equal may stay at extent 1: Triton broadcasts where operands meet.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiga.passes.wide_sums import padded as padded
from tiga.types import Shape, Type

Dims = tuple[int, ...]

WARP = 32
"""Threads of a warp."""


def first_axis(shape: Shape) -> int:
    """The first axis along which there is more than one element; their number if there is none."""
    return next((axis for axis, extent in enumerate(shape) if extent > 1), len(shape))


def sliced(shape: Shape, slices: int) -> Shape:
    """One of equal parts of that axis. A single number is in all of them."""
    axis = first_axis(shape)
    if slices == 1 or axis == len(shape):
        return shape
    return (*shape[:axis], shape[axis] // slices, *shape[axis + 1 :])


@dataclass(frozen=True)
class Tile:
    """What one program computes at a time: `rows` rows, `edges` edges of each, with `warps` warps.

    `window` elements of a value's `whole`, where every wide value of the kernel has that size and
    no element depends on another; 0 where values keep their feature axes. `groups` bounds the
    programs that run over all tiles and sum as they go; 0 where each program has one tile.
    `registers` bounds those of a thread, so that more programs run side by side; 0: no bound.
    `stages` is how far ahead loads for products start; 0 leaves it to Triton. `slices` are equal
    parts of the first axis of every wide value, such as some heads each, where no element depends
    on one of another part: a program holds one of them. `ahead` is how many steps of a loop over
    edges are on their way at once, in shared memory; 0: of the next step indices only.
    """

    rows: int
    edges: int
    warps: int
    whole: int = 0
    window: int = 0
    groups: int = 0
    registers: int = 0
    stages: int = 0
    slices: int = 1
    ahead: int = 0

    def __str__(self) -> str:
        features = f", {self.window} of {self.whole} features" if self.windows > 1 else ""
        if self.slices > 1:
            features = f", 1 of {self.slices} slices"
        return f"{self.rows} rows x {self.edges} edges{features}, {self.warps} warps"

    @property
    def is_flat(self) -> bool:
        return self.whole > 0

    @property
    def windows(self) -> int:
        """Programs side by side on one value."""
        return -(-self.whole // self.window) if self.whole > 1 else self.slices

    def features(self, type_: Type) -> Shape:
        """The feature axes that a value of this type has in the kernel."""
        if not self.is_flat:
            return sliced(type_.shape, self.slices)
        return () if self.whole == 1 else (type_.size,)

    def extents(self, type_: Type) -> Dims:
        """The extents of those axes in registers."""
        shape = self.features(type_)
        if self.is_flat and shape == (self.whole,):
            return (self.window,)
        return tuple(map(padded, shape))

    def is_windowed(self, type_: Type) -> bool:
        """Whether a program holds only a part of such a value."""
        if self.slices > 1:
            return type_.size > 1
        return self.windows > 1 and type_.size == self.whole


@dataclass(frozen=True)
class BoxMap:
    """A movement that is affine on a box.

    Element `coordinate` of the result, `low <= coordinate < high` on every axis, is element
    `base + sum(stride * coordinate)` of the source; others are 0.
    """

    base: int
    strides: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]


def box_map(lanes: np.ndarray) -> BoxMap | None:
    """The affine form of a lane map, if it has one. `lanes` has the shape of the result."""
    inside = np.argwhere(lanes >= 0)
    if not len(inside):
        return None
    low, high = inside.min(0), inside.max(0) + 1
    box = lanes[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
    if box.size != len(inside):
        return None
    corner = (0,) * box.ndim
    strides = []
    for axis in range(box.ndim):
        step = tuple(int(i == axis) for i in range(box.ndim))
        strides.append(int(box[step] - box[corner]) if box.shape[axis] > 1 else 0)
    base = int(box[corner]) - int(np.dot(strides, low))
    grid = np.indices(lanes.shape)
    fitted = base + sum(s * g for s, g in zip(strides, grid, strict=True))
    if not (np.broadcast_to(fitted, lanes.shape)[lanes >= 0] == lanes[lanes >= 0]).all():
        return None
    return BoxMap(base, tuple(strides), tuple(map(int, low)), tuple(map(int, high)))


def pad_positions(lanes: np.ndarray, source: Shape) -> np.ndarray:
    """Lane positions in a source of this shape as positions in its padded form."""
    if not source:
        return lanes
    flat = np.where(lanes >= 0, lanes, 0)
    inside = np.ravel_multi_index(np.unravel_index(flat, source), tuple(map(padded, source)))
    return np.where(lanes >= 0, inside, -1)


def pad_result(lanes: np.ndarray) -> np.ndarray:
    """A lane map with its result padded; padding takes nothing (-1)."""
    result = np.full(tuple(map(padded, lanes.shape)), -1, dtype=np.int64)
    result[tuple(slice(0, n) for n in lanes.shape)] = lanes
    return result


def keeps_places(source: Shape, target: Shape) -> bool:
    """Whether a reshape leaves every element at its place among the padded ones."""
    lanes = np.arange(int(np.prod(target))).reshape(target)
    places = pad_result(pad_positions(lanes, source))
    inside = places.ravel() >= 0
    same = (places.ravel()[inside] == np.arange(places.size)[inside]).all()
    return bool(same) and places.size == int(np.prod([padded(n) for n in source]))


def row_major(extents: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous array."""
    strides, step = [], 1
    for extent in reversed(extents):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
