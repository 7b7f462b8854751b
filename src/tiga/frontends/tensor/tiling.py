"""Values whose operands do not fit the budget together: computed some rows at a time.

Rows of a result that depend on the same rows of the operands alone are computed from those; what a
spill file holds is read from there. A reduction over the rows is folded tile by tile. Everything
else has to fit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from tiga import knobs
from tiga.errors import OutOfBudget
from tiga.frontends.tensor.core import Tensor, give_array
from tiga.frontends.tensor.evaluate import Evaluation, pending, run
from tiga.frontends.tensor.lazy import Cell, LazyNode, leaf
from tiga.frontends.tensor.residency import Absent, Spilled
from tiga.ops.base import Pointwise
from tiga.ops.feature import Broadcast, Reshape
from tiga.ops.leaf import Constant
from tiga.ops.tensor_reduce import Max, Min, Prod, Reduction, Sum
from tiga.runtime.scope import Scope, active
from tiga.trace.node import Node

SHARE = 4
"""Tiles take at most one part in so many of the budget."""

SMALL = 1 << 14
"""Bytes of an operand that is not worth cutting."""

FOLDS: dict[type, Callable[[Any, Any], Any]] = {
    Sum: np.add, Max: np.maximum, Min: np.minimum, Prod: np.multiply
}  # fmt: skip
"""How the reductions of tiles are joined."""


class NotTiled(Exception):
    """Something needs all of a value at once."""


def realize_in_tiles(tensor: Tensor) -> bool:
    """Give a tensor its value by tiles, within the budget in force; False if it has none that way.

    Raises:
        OutOfBudget: the result, or a tile, does not fit.
    """
    scope, root = active(), tensor._node
    if scope is None or scope.host.budget is None or tensor._source is not None or tensor._plan:
        return False
    start = perf_counter()
    try:
        array = np.ascontiguousarray(Tiles.of(root, scope).value(root))
    except NotTiled:
        return False
    give_array(tensor, array)
    tensor._execution = Evaluation(perf_counter() - start)
    root.cell = Cell(array)
    if not tensor._grad:
        tensor._node = leaf(array, root.type, root.place)
    return True


@dataclass
class Tiles:
    """An expression whose large values have `rows` rows; `cut` are the nodes that are computed in
    tiles, `whole` the values of others."""

    scope: Scope
    rows: int
    cut: set[int] = field(default_factory=set)
    whole: dict[int, np.ndarray] = field(default_factory=dict)

    @staticmethod
    def of(root: LazyNode, scope: Scope) -> "Tiles":
        """Raises NotTiled where a node needs all rows of others."""
        order = pending([root])
        leaves = [c for node in order for c in node.inputs if getattr(c, "cell", None) is not None]
        large = max(leaves, key=lambda node: node.type.row_bytes, default=None)
        if large is None or not large.type.shape:
            raise NotTiled
        tiles = Tiles(scope, large.type.shape[0])
        tiles.cut.update(id(n) for n in leaves if tiles._is_long(n) and n.type.row_bytes > SMALL)
        if not tiles.cut:
            raise NotTiled
        for node in order:
            if tiles._goes_by_rows(node):
                tiles.cut.add(id(node))
        return tiles

    def _is_long(self, node: Node) -> bool:
        return bool(node.type.shape) and node.type.shape[0] == self.rows

    def _goes_by_rows(self, node: Node) -> bool:
        """Whether a node's rows come from the same rows of its inputs."""
        cut = [id(child) in self.cut for child in node.inputs]
        op = node.op
        if isinstance(op, Broadcast):
            return self._broadcasts(node, op, any(cut))
        if isinstance(op, Constant):
            return self._is_long(node)
        if not any(cut):
            return False
        if isinstance(op, Reduction) and 0 in op.axes:
            if type(op) not in FOLDS:
                raise NotTiled
            return False
        by_rows = isinstance(op, (Pointwise, Reduction, Reshape)) and self._is_long(node)
        if not by_rows or not all(cut):
            raise NotTiled
        return True

    def _broadcasts(self, node: Node, op: Broadcast, cut: bool) -> bool:
        (x,) = node.inputs
        same = len(x.type.shape) == len(op.to) and self._is_long(x)
        if cut and not same:
            raise NotTiled
        return cut or (self._is_long(node) and not same)

    # values

    def value(self, node: Node) -> np.ndarray:
        """The whole value of a node."""
        if id(node) in self.cut:
            return self._assembled(node)
        cell = getattr(node, "cell", None)
        if cell is not None:
            value: np.ndarray = cell.array
            return value
        if id(node) not in self.whole:
            if isinstance(node.op, Reduction) and id(node.inputs[0]) in self.cut:
                self.whole[id(node)] = self._folded(node)
            else:
                inputs = [self._given(child, self.value(child)) for child in node.inputs]
                self.whole[id(node)] = _computed(node.op(*inputs))
        return self.whole[id(node)]

    def _assembled(self, node: Node) -> np.ndarray:
        shape, dtype = node.type.shape, node.type.dtype.numpy
        what = f"computing {node.type} in tiles"
        with self.scope.temporary(node.type.row_bytes, what):
            result = np.empty(shape, dtype)
            self._each(node, lambda low, high, part: result.__setitem__(slice(low, high), part))
        return result

    def _folded(self, node: Node) -> np.ndarray:
        """A reduction over rows: that of every tile, joined in order."""
        join = FOLDS[type(node.op)]
        found: list[Any] = []

        def add(low: int, high: int, part: np.ndarray) -> None:
            found[:] = [join(found[0], part) if found else part]

        self._each(node, add)
        return np.asarray(found[0], node.type.dtype.numpy)

    def _each(self, node: Node, take: Callable[[int, int, np.ndarray], None]) -> None:
        """Compute a node for all tiles."""
        self._prepare(node, set())
        row_bytes = max(1, self._row_bytes(node, set()))
        budget = self.scope.host.budget or 0
        rows = max(1, min(self.rows, budget // SHARE // row_bytes))
        while rows > 1 and not (self.scope.lru or self.scope.host.fits(rows * row_bytes)):
            rows = -(-rows // 2)
        with self.scope.temporary(rows * row_bytes, f"a tile of {rows} rows of {node.type}"):
            for low in range(0, self.rows, rows):
                high = min(low + rows, self.rows)
                take(low, high, _computed(self._tile(node, low, high, {})))

    def _prepare(self, node: Node, seen: set[int]) -> None:
        """Compute what tiles read whole, before there are any."""
        if id(node) in seen:
            return
        seen.add(id(node))
        for child in node.inputs if getattr(node, "cell", None) is None else ():
            if id(child) in self.cut:
                self._prepare(child, seen)
            else:
                self.value(child)

    def _row_bytes(self, node: Node, seen: set[int]) -> int:
        """Bytes per row of everything that computing a tile holds."""
        if id(node) in seen:
            return 0
        seen.add(id(node))
        own = node.type.row_bytes // self.rows if id(node) in self.cut else 0
        if getattr(node, "cell", None) is not None:
            return own
        return own + sum(self._row_bytes(child, seen) for child in node.inputs)

    # tiles

    def _tile(self, node: Node, low: int, high: int, known: dict[int, Node]) -> Node:
        """The expression of rows [low, high) of a node, or of its share in a reduction."""
        if id(node) in known:
            return known[id(node)]
        cell = getattr(node, "cell", None)
        if cell is not None:
            array = _rows_of(cell, low, high) if id(node) in self.cut else cell.array
            made: Node = self._given(node, array)
        elif id(node) in self.whole and id(node) not in self.cut:
            made = self._given(node, self.whole[id(node)])
        else:
            inputs = [self._tile(child, low, high, known) for child in node.inputs]
            op: Any = node.op
            if isinstance(op, (Broadcast, Reshape)):
                op = replace(op, to=(high - low, *op.to[1:]))
            if isinstance(op, Constant):
                op = replace(op, of=replace(op.of, shape=(high - low, *op.of.shape[1:])))
            made = op(*inputs)
        known[id(node)] = made
        return made

    @staticmethod
    def _given(node: Node, array: np.ndarray) -> Node:
        return leaf(array, replace(node.type, shape=array.shape), getattr(node, "place", None))


def _computed(node: Node) -> np.ndarray:
    (array,), _ = run((node,), knobs.read("tensor_backend"))
    return array


def _rows_of(cell: Cell, low: int, high: int) -> np.ndarray:
    """Rows of a value; from the spill file, if it is there."""
    absent = cell.absent
    if isinstance(absent, Absent) and isinstance(absent.backing, Spilled):
        layout = absent.layout_of(cell)
        if layout is not None and layout.is_contiguous:
            step = layout.strides[0]
            block = absent.backing.read(layout.offset + low * step, (high - low) * step)
            return block.view(layout.dtype).reshape(high - low, *layout.shape[1:])
    return cell.array[low:high]


def realize_each_in_tiles(tensors: Sequence[Tensor], error: OutOfBudget) -> None:
    """Compute by tiles what does not fit otherwise.

    Raises:
        OutOfBudget: the error that was met before, if that is not possible.
    """
    for tensor in tensors:
        if tensor._array is not None:
            continue
        try:
            done = realize_in_tiles(tensor)
        except OutOfBudget:
            done = False
        if not done:
            raise error
