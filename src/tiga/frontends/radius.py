"""Graphs of points that are near one another, with periodic boundaries along any of the axes."""

import itertools
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tiga.backends.llvm.near import Binned, near_pairs
from tiga.errors import InvalidType, InvalidValue
from tiga.relations.csr import stable_order
from tiga.relations.graph import Graph
from tiga.relations.indices import as_array, is_native_on_gpu, is_tensor, to_kind

AXES = 3

BINS = 4
"""Bins for each point, at most: more would be empty."""

MARGIN = 1 + 1e-9
"""By how much the distance that bins are made for is longer than the cutoff: points just so far
apart may be rounded into bins one farther apart."""


class RadiusGraph(NamedTuple):
    """A graph of near points, and the images that its edges come from; see `radius_graph`."""

    graph: Graph
    shift: Any


def radius_graph(
    position: Any,
    cutoff: float,
    *,
    cell: Any = None,
    periodic: Any = None,
    batch: Any = None,
) -> RadiusGraph:
    """All pairs of points no farther apart than a cutoff: `graph` has an edge from j to i for each
    image of j that is near i.

    With a cell, an image of point j is at `position[j] + shift @ cell`, so that an edge's vector is
    `src.r + edge.shift @ cell - dst.r`. Positions may lie outside the cell, the cutoff may be
    longer than the cell, and a point may be its own neighbour, one period away. Every pair is there
    once in each direction, however many there are. Edges lie in the order of the graph's rows.

    Args:
        position: `[N, 3]` floats, a tensor of torch or `tg` or a numpy array.
        cutoff: the largest distance, in the unit of positions.
        cell: the three vectors of the cell, `[3, 3]`; with `batch`, also one for each system,
            `[B, 3, 3]`.
        periodic: whether there are images along each vector `[3]`, or along all; with `batch`, also
            for each system, `[B, 3]`. Left out: with a cell. Along an axis that is not periodic
            points are taken as they are.
        batch: `[N]` integers, in any order: points of different numbers are no neighbours.

    Returns:
        The graph, and `shift` `[E, 3]`, whole numbers in the type of the positions. Both are of the
        kind of `position` (beside native tensors on the CPU, indices are numpy's); of tensors on a
        GPU the search is done on the host.

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
    cells, axes = _cells(cell, periodic, int(system.max(initial=0)) + 1)
    distance = min(MARGIN * float(cutoff), np.finfo(np.float64).max)
    binned = _Search(points, system, cells, axes, distance).binned()
    row_ptr, src, shift = near_pairs(binned, float(cutoff))
    template = _template(position)
    ends = [to_kind(array, template) for array in (row_ptr, src)]
    graph = Graph.from_csr(*ends, num_src=len(points), validate="none")
    return RadiusGraph(graph, _like(shift, position, template))


def _is_native(value: Any) -> bool:
    core = sys.modules.get("tiga.frontends.tensor.core")
    return core is not None and isinstance(value, core.Tensor)


def _on_host(value: Any) -> Any:
    """What numpy can read, of what a user gives."""
    if is_tensor(value):
        return value.detach().cpu()
    return value.detach().cpu().numpy() if _is_native(value) else value


def _template(position: Any) -> Any:
    """In whose kind index arrays go back to the user; see `to_kind`."""
    if is_native_on_gpu(position):
        return position._index_template()
    return position.detach().new_empty(0) if is_tensor(position) else None


def _points(position: Any) -> np.ndarray:
    given = _on_host(position)
    array = as_array("position", given.double().numpy() if is_tensor(given) else given)
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
    array = as_array("batch", _on_host(batch))
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


def _per_system(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of this shape, or one with such an array for each system."""
    array = np.asarray(_on_host(value), dtype)
    if array.shape == shape or (array.ndim == len(shape) + 1 and array.shape[1:] == shape):
        return array
    extents = ", ".join(map(str, shape))
    raise InvalidValue(
        f"radius_graph: `{name}` must have shape [{extents}], or [B, {extents}] with one for each "
        f"system, got {list(array.shape)}."
    )


def _cells(cell: Any, periodic: Any, systems: int) -> tuple[np.ndarray, np.ndarray]:
    """The cell of each system, `[systems, 3, 3]`, and which of its axes are periodic,
    `[systems, 3]`. The last systems may be without points."""
    if periodic is None or np.ndim(periodic) == 0:
        periodic = (cell is not None if periodic is None else bool(periodic),) * AXES
    axes = _per_system("periodic", periodic, (AXES,), bool)
    if axes.any() and cell is None:
        raise InvalidValue("radius_graph: `periodic` needs the `cell` that is repeated.")
    found = _per_system("cell", np.eye(AXES) if cell is None else cell, (AXES, AXES), np.float64)
    told = [len(array) for array, rank in ((axes, 2), (found, 3)) if array.ndim == rank]
    systems = max(told, default=systems) if systems <= min(told, default=systems) else -1
    if any(count != systems for count in told):
        raise InvalidValue(
            f"radius_graph: `cell` and `periodic` must be told for every system that `batch` "
            f"names, got {' and '.join(map(str, told))} of them."
        )
    axes = np.broadcast_to(axes, (systems, AXES))
    if cell is None:
        return np.broadcast_to(found, (systems, AXES, AXES)), axes
    found = np.broadcast_to(found, (systems, AXES, AXES))
    found = np.stack([_completed(*one) for one in zip(found, axes, strict=True)])
    lengths = np.linalg.norm(found, axis=2).prod(1)
    flat = ~(np.abs(np.linalg.det(found)) > 1e-10 * lengths)
    if flat.any():
        raise InvalidValue(
            f"radius_graph: the vectors of cell {int(flat.argmax())} lie in a plane: "
            f"{found[flat.argmax()].tolist()}."
        )
    return found, axes


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
    if _is_native(position):
        from tiga.frontends.tensor.functions.creation import tensor

        return tensor(shift, dtype=position.dtype, device=position.device)
    if template is None:
        return shift.astype(np.asarray(position).dtype)
    return template.new_tensor(shift.astype(np.float64)).to(template.dtype)


@dataclass
class _Search:
    """Points in bins that are no narrower than a distance beyond the cutoff, as far as there are
    enough points: then only points of adjacent bins can be near."""

    points: np.ndarray
    system: np.ndarray
    cells: np.ndarray
    axes: np.ndarray
    distance: float

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
        self.wraps = np.where(self.axes[self.system], np.floor(place), 0).astype(np.int64)
        place -= self.wraps
        self.inside = self.points - self._moved(self.wraps)
        first, last = (self._extremes(place, of) for of in (np.minimum, np.maximum))
        extents = np.where(self.axes, 0, np.maximum(last - first, 0) * heights).max(0)
        least = np.where(self.axes, heights, np.inf).min(0)
        self.count = self._bins(np.where(self.axes.any(0), least, extents))
        reach = np.ceil(self.distance * self.count / least)  # 0 where no axis is periodic
        self.reach = np.maximum(reach, self.axes.any(0) | (self.count > 1)).astype(np.int64)
        # Bins of what is not periodic are no narrower than that: those beside one are enough.
        width = np.where(
            self.axes, 1 / self.count, np.maximum(extents / self.count, self.distance) / heights
        )
        start = np.where(self.axes, 0, first)
        ratio = (place - start[self.system]) / width[self.system]
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
        most = np.floor(np.minimum(length / self.distance, 2.0**20))
        count = np.maximum(most, 1).astype(np.int64)
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
