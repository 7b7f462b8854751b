"""Graphs of points that are near one another, with periodic boundaries along any of the axes."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tiga.backends.llvm.near import Binned, near_pairs
from tiga.errors import InvalidType, InvalidValue
from tiga.relations.csr import stable_order
from tiga.relations.graph import Graph
from tiga.relations.indices import as_array, is_tensor, to_kind

AXES = 3

BINS = 4
"""Bins for each point, at most: more would be empty."""


class RadiusGraph(NamedTuple):
    """A graph of near points, and the images that its edges come from; see `radius_graph`."""

    graph: Graph
    shift: Any


def radius_graph(
    position: Any,
    cutoff: float,
    *,
    cell: Any = None,
    periodic: bool | Sequence[bool] | None = None,
    batch: Any = None,
) -> RadiusGraph:
    """All pairs of points no farther apart than a cutoff: `graph` has an edge from j to i for each
    image of j that is near i.

    With a cell, an image of point j is at `position[j] + shift @ cell`, so that an edge's vector is
    `src.r + edge.shift @ cell - dst.r`. Positions may lie outside the cell, the cutoff may be
    longer than the cell, and a point may be its own neighbour, one period away. Every pair is there
    once in each direction, however many there are. Edges lie in the order of the graph's rows.

    Args:
        position: `[N, 3]` floats, a torch tensor or a numpy array.
        cutoff: the largest distance, in the unit of positions.
        cell: the three vectors of the cell, `[3, 3]`; with `batch`, also one for each, `[B, 3, 3]`.
        periodic: whether there are images along each vector, or along all; left out: with a cell.
            Along an axis that is not periodic points are taken as they are.
        batch: `[N]` integers, in any order: points of different numbers are no neighbours.

    Returns:
        The graph, and `shift` `[E, 3]`, whole numbers in the type of the positions. Both are of the
        kind of `position`; of tensors on a GPU the search is done on the host.

    Raises:
        InvalidValue: a shape is wrong; a position is not finite; the cutoff is not positive; axes
            are periodic without a cell; the vectors of a cell lie in a plane.
        InvalidType: positions are no floats; `batch` holds no integers.

    Example:
        >>> import numpy as np, tiga as tg
        >>> position = np.array([[0.1, 0, 0], [0.9, 0, 0]])
        >>> near = tg.radius_graph(position, 0.3, cell=np.eye(3), periodic=(True, False, False))
        >>> [end.tolist() for end in near.graph.coo()]
        [[1, 0], [0, 1]]
        >>> near.shift.tolist()
        [[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    points = _points(position)
    if not (np.isfinite(cutoff) and cutoff > 0):
        raise InvalidValue(f"radius_graph: `cutoff` must be positive and finite, got {cutoff!r}.")
    system = _systems(batch, len(points))
    axes = _axes(periodic, cell is not None)
    cells = _cells(cell, axes, int(system.max(initial=0)) + 1)
    binned = _Search(points, system, cells, axes, float(cutoff)).binned()
    row_ptr, src, shift = near_pairs(binned, float(cutoff))
    template = position.detach().new_empty(0) if is_tensor(position) else None
    ends = [to_kind(array, template) for array in (row_ptr, src)]
    graph = Graph.from_csr(*ends, num_src=len(points), validate="none")
    return RadiusGraph(graph, _like(shift, position, template))


def _points(position: Any) -> np.ndarray:
    given = position.detach().cpu().double().numpy() if is_tensor(position) else position
    array = as_array("position", given)
    if array.dtype.kind != "f":
        raise InvalidType(f"radius_graph: `position` must hold floats, got {array.dtype}.")
    if array.ndim != 2 or array.shape[1] != AXES:
        raise InvalidValue(
            f"radius_graph: `position` must have shape [N, {AXES}], got {list(array.shape)}. Give "
            "points in a plane a third coordinate, 0."
        )
    finite = np.isfinite(array).all(1)
    if not finite.all():
        where = int(finite.argmin())
        raise InvalidValue(f"radius_graph: point {where} is at {array[where].tolist()}.")
    return array.astype(np.float64, copy=False)


def _systems(batch: Any, count: int) -> np.ndarray:
    """The number of each point's system."""
    if batch is None:
        return np.zeros(count, np.int64)
    array = as_array("batch", batch.detach().cpu().numpy() if is_tensor(batch) else batch)
    if array.dtype.kind not in "iu":
        raise InvalidType(f"radius_graph: `batch` must hold integers, got {array.dtype}.")
    if array.shape != (count,):
        raise InvalidValue(
            f"radius_graph: `batch` must have shape [{count}], a number for each point, got "
            f"{list(array.shape)}."
        )
    if count and array.min() < 0:
        raise InvalidValue(f"radius_graph: `batch` must be at least 0, got {array.min()}.")
    return array.astype(np.int64)


def _axes(periodic: Any, has_cell: bool) -> np.ndarray:
    """Which axes are periodic."""
    if periodic is None:
        periodic = has_cell
    axes = np.broadcast_to(np.asarray(periodic, bool), (AXES,))
    if axes.any() and not has_cell:
        raise InvalidValue("radius_graph: `periodic` needs the `cell` that is repeated.")
    return axes


def _cells(cell: Any, axes: np.ndarray, systems: int) -> np.ndarray:
    """The cell of each system, `[systems, 3, 3]`."""
    if cell is None:
        return np.broadcast_to(np.eye(AXES), (systems, AXES, AXES))
    array = np.asarray(cell.detach().cpu() if is_tensor(cell) else cell, np.float64)
    if array.shape not in ((AXES, AXES), (systems, AXES, AXES)):
        raise InvalidValue(
            f"radius_graph: `cell` must have shape [{AXES}, {AXES}] or [{systems}, {AXES}, "
            f"{AXES}], got {list(array.shape)}."
        )
    found = np.broadcast_to(array, (systems, AXES, AXES))
    found = np.stack([_completed(one, axes) for one in found])
    lengths = np.linalg.norm(found, axis=2).prod(1)
    flat = ~(np.abs(np.linalg.det(found)) > 1e-10 * lengths)
    if flat.any():
        raise InvalidValue(
            f"radius_graph: the vectors of cell {int(flat.argmax())} lie in a plane: "
            f"{found[flat.argmax()].tolist()}."
        )
    return found


def _completed(cell: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """A cell whose vectors of zeros, along axes that are not periodic, are across the others."""
    missing = ~cell.any(1) & ~axes
    if not missing.any():
        return cell
    _, _, across = np.linalg.svd(cell)
    found = cell.copy()
    found[missing] = across[AXES - int(missing.sum()) :]
    return found


def _like(shift: np.ndarray, position: Any, template: Any) -> Any:
    if template is None:
        return shift.astype(np.asarray(position).dtype)
    return template.new_tensor(shift.astype(np.float64)).to(template.dtype)


@dataclass
class _Search:
    """Points in bins that are no narrower than the cutoff, as far as there are enough points: then
    only points of adjacent bins can be near."""

    points: np.ndarray
    system: np.ndarray
    cells: np.ndarray
    axes: np.ndarray
    cutoff: float

    def binned(self) -> Binned:
        """The points in their bins."""
        self._place()
        offsets = itertools.product(*(range(-int(r), int(r) + 1) for r in self.reach))
        return Binned(
            self.inside, self.order, self.system, self.bin, self.starts, self.cells, self.count,
            self.axes.astype(np.int64), np.array(list(offsets), np.int64), self.wraps,
        )  # fmt: skip

    def _place(self) -> None:
        """Move points into the cell along periodic axes, and put them into bins."""
        inverse = np.linalg.inv(self.cells)
        heights = 1 / np.linalg.norm(inverse, axis=1)
        place = np.einsum("na,nab->nb", self.points, inverse[self.system])
        self.wraps = np.where(self.axes, np.floor(place), 0).astype(np.int64)
        place -= self.wraps
        self.inside = self.points - self._moved(self.wraps)
        first, last = (self._extremes(place, of) for of in (np.minimum, np.maximum))
        lengths = np.where(self.axes, heights, np.maximum(last - first, 0) * heights)
        ends = lengths.min(0), lengths.max(0)
        length = np.where(self.axes, *ends)
        self.count = self._bins(length)
        reach = np.ceil(self.cutoff * self.count / np.maximum(length, 1e-300) - 1e-12)
        self.reach = np.where(self.axes, np.maximum(reach, 1), self.count > 1).astype(np.int64)
        width = np.where(self.axes, 1 / self.count, length / self.count / heights)[self.system]
        start = np.where(self.axes, 0, first)[self.system]
        ratio = (place - start) / np.where(width > 0, width, 1)
        self.bin = np.clip(np.floor(ratio).astype(np.int64), 0, self.count - 1)
        key = self._keys(self.bin)
        self.order = stable_order(key, int(key.max(initial=0)) + 1)
        self.starts = np.searchsorted(key[self.order], np.arange(self._total + 1))

    def _extremes(self, place: np.ndarray, of: Any) -> np.ndarray:
        """The least or largest coordinates of each system."""
        found = np.full((len(self.cells), AXES), np.inf if of is np.minimum else -np.inf)
        of.at(found, self.system, place)
        return np.where(np.isfinite(found), found, 0)

    def _bins(self, length: np.ndarray) -> np.ndarray:
        """Bins along each axis."""
        count = np.maximum(np.floor(np.minimum(length / self.cutoff, 2.0**20)), 1).astype(np.int64)
        while count.prod() * len(self.cells) > BINS * len(self.points) and count.max() > 1:
            count[count.argmax()] = (count.max() + 1) // 2
        return count

    @property
    def _total(self) -> int:
        return int(self.count.prod()) * len(self.cells)

    def _keys(self, bins: np.ndarray) -> np.ndarray:
        key = self.system
        for axis in range(AXES):
            key = key * self.count[axis] + bins[:, axis]
        return key

    def _moved(self, shift: np.ndarray) -> np.ndarray:
        return np.einsum("na,nab->nb", shift.astype(np.float64), self.cells[self.system])
