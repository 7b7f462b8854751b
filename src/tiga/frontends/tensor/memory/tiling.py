"""Values that do not fit the budget with their operands, or by themselves: computed some rows at a
time.

Rows of a result that depend on the same rows of the operands alone are computed from those; what a
spill file holds is read from there. Reductions over the rows, and products that add up over them,
are folded tile by tile; long vectors are sorted in runs. A result that does not fit goes to a file
of its own and is mapped from there, where the scope may move values out. All else has to fit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from tiga.errors import OutOfBudget
from tiga.frontends.tensor.by_numpy import Evaluation
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.evaluate import value_of
from tiga.frontends.tensor.lazy import Cell, LazyNode, leaf
from tiga.frontends.tensor.memory.absent import Absent
from tiga.frontends.tensor.memory.external_sort import Columns, Order, Runs, order_of, sort_vector
from tiga.frontends.tensor.memory.mapped_results import is_mapped, mapped_rows
from tiga.frontends.tensor.memory.tiling_rules import join_of, needs, of_rows
from tiga.frontends.tensor.storage import give_array
from tiga.frontends.tensor.waiting import pending
from tiga.ops.feature import is_transpose
from tiga.runtime.pages import MemoryRows, Rows
from tiga.runtime.scope import Scope, active
from tiga.trace.node import Node
from tiga.trace.origin import Origin

SHARE = 4
"""Tiles take at most one part in so many of the budget."""

SMALL = 1 << 14
"""Bytes of an operand that is not worth cutting."""


class NotTiled(Exception):
    """Everything would be computed at once."""


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
        array = _value(root, scope)
    except NotTiled:
        return False
    give_array(tensor, array)
    tensor._execution = Evaluation(perf_counter() - start)
    root.cell = Cell(array)
    if not tensor._grad:
        tensor._node = leaf(array, root.type, root.place)
    return True


def _value(root: LazyNode, scope: Scope) -> np.ndarray:
    if not _joins_rows(root):
        return np.ascontiguousarray(Tiles.of(root, scope).value(root))
    with ExitStack() as stack:
        array, rows = _room(root, scope, stack)
        low = 0
        for part in _joined(root):
            tiles = Tiles.of(part, scope)
            if id(part) in tiles.cut:
                tiles.store(part, rows, low)
            else:
                rows.write(low, np.ascontiguousarray(tiles.value(part)))
            low += part.type.shape[0]
    return array


def _joins_rows(node: Node) -> bool:
    return bool(node.op.concatenates) and node.op.axis == 0


def _joined(node: Node) -> Iterator[Node]:
    """What a value is joined of along its first axis, joins among it taken apart."""
    if node.cell is None and _joins_rows(node):
        for part in node.inputs:
            yield from _joined(part)
    else:
        yield node


def _room(node: Node, scope: Scope, stack: ExitStack) -> tuple[np.ndarray, Rows]:
    """Where the rows of a value go: memory that is charged while the stack is open, or a file."""
    of, what = node.type, f"computing {node.type} in tiles"
    budget = scope.host.budget or 0
    if scope.lru and of.row_bytes > budget - budget // SHARE:
        return mapped_rows(scope, of.shape, of.dtype.numpy, what)
    stack.enter_context(scope.temporary(of.row_bytes, what))
    array = np.empty(of.shape, of.dtype.numpy)
    return array, MemoryRows(array)


@dataclass
class Tiles:
    """An expression whose large values have `rows` rows; `cut` are the nodes that are computed in
    tiles, `turned` those whose columns are the rows of one, `whole` values that were computed."""

    scope: Scope
    rows: int
    cut: set[int] = field(default_factory=set)
    turned: set[int] = field(default_factory=set)
    whole: dict[int, np.ndarray] = field(default_factory=dict)

    @staticmethod
    def of(root: Node, scope: Scope) -> "Tiles":
        """Raises NotTiled where no node is computed in tiles."""
        order = pending([root]) if root.cell is None else []
        leaves = [c for node in order for c in node.inputs if c.cell is not None]
        largest = max((root, *leaves), key=lambda node: node.type.row_bytes)
        leaf_ = max(leaves, key=lambda node: node.type.row_bytes, default=root)
        for extent in {node.type.shape[:1]: None for node in (largest, leaf_, root)}:
            tiles = Tiles(scope, extent[0] if extent else 0)
            if tiles._places(order, leaves or [root]):
                return tiles
        raise NotTiled

    def _places(self, order: Sequence[Node], leaves: Sequence[Node]) -> bool:
        """Find which nodes are computed in tiles; False where none is."""
        self.cut.update(id(node) for node in leaves if self._is_long(node))
        for node in order:
            self._place(node)
        tiled = [node for node in (*leaves, *order) if id(node) in self.cut]
        return any(node.type.row_bytes > SMALL for node in tiled)

    def _is_long(self, node: Node) -> bool:
        return bool(node.type.shape) and node.type.shape[0] == self.rows

    def _place(self, node: Node) -> None:
        """Find how a node is computed: by rows, by what its tiles add up to, or whole."""
        cut = [id(child) in self.cut for child in node.inputs]
        if node.op.broadcasts:
            self._place_broadcast(node, cut[0])
        elif node.op.origin is Origin.NUMBER:
            self.cut.update([id(node)] * self._is_long(node))
        elif any(cut) and not self._folds(node):
            wanted = needs(node)
            if wanted is None or not self._is_long(node) or self._has_turned(node):
                self.turned.update([id(node)] * is_transpose(node))
            elif all(c for c, w in zip(cut, wanted, strict=True) if w):
                self.cut.add(id(node))

    def _place_broadcast(self, node: Node, cut: bool) -> None:
        (x,) = node.inputs
        same = len(x.type.shape) == len(node.type.shape) and self._is_long(x)
        if (cut and same) or (self._is_long(node) and not same and not cut):
            self.cut.add(id(node))

    def _has_turned(self, node: Node) -> bool:
        return any(id(child) in self.turned for child in node.inputs)

    def _folds(self, node: Node) -> bool:
        """Whether a node adds up over the rows of its operands, all of which are cut."""
        tiled = self.cut | self.turned
        return join_of(node) is not None and all(id(child) in tiled for child in node.inputs)

    # values

    def value(self, node: Node) -> np.ndarray:
        """The whole value of a node."""
        if node.cell is not None:
            return node.cell.array
        if id(node) not in self.whole:
            self.whole[id(node)] = self._made(node)
        return self.whole[id(node)]

    def _made(self, node: Node) -> np.ndarray:
        if id(node) in self.cut:
            with ExitStack() as stack:
                array, rows = _room(node, self.scope, stack)
                self.store(node, rows, 0)
            return array
        if self._folds(node):
            return self._folded(node)
        order = order_of(node)
        if order is not None and (id(order.of) in self.cut or is_mapped(self.value(order.of))):
            return self._sorted(node, order)
        if node.op.reshapes:
            return self.value(node.inputs[0]).reshape(node.type.shape)
        made = node.op(*(self._given(child, self.value(child)) for child in node.inputs))
        try:
            tiles = Tiles.of(made, self.scope)
        except NotTiled:
            return _computed_whole(made, self.scope)
        if id(made) in tiles.cut or tiles._folds(made):
            return tiles.value(made)
        return _computed_whole(made, self.scope)

    def store(self, node: Node, rows: Rows, first: int) -> None:
        """Compute a node's rows, and store them from row `first` on."""
        self._each(node, lambda low, part: rows.write(first + low, np.ascontiguousarray(part)))

    def _folded(self, node: Node) -> np.ndarray:
        """What adds up over rows: that of every tile, joined in order."""
        join: Any = join_of(node)
        found: list[Any] = []

        def add(low: int, part: np.ndarray) -> None:
            found[:] = [join(found[0], part) if found else part]

        self._each(node, add)
        return np.asarray(found[0], node.type.dtype.numpy)

    def _sorted(self, node: Node, order: Order) -> np.ndarray:
        """A value in order along its first axis, or its order."""
        given, down, back = order
        count, *rest = given.type.shape
        dtype = given.type.dtype.numpy

        def each(take: Callable[[int, np.ndarray], None]) -> None:
            if id(given) in self.cut:
                self._each(given, take, backwards=down)
            else:
                each_part(self.value(given), self.scope, take, backwards=down)

        with ExitStack() as stack:
            array, rows = _room(node, self.scope, stack)
            if not rest:
                sort_vector(Runs(self.scope, count, dtype), each, rows.write, down, back)
                return array
            columns = Columns(self.scope, count, prod(rest), dtype, down, back)
            each(columns.add)
            columns.sort()
            for low, part in columns.rows():
                rows.write(low, part)
        return array

    def _each(
        self, node: Node, take: Callable[[int, np.ndarray], None], backwards: bool = False
    ) -> None:
        """Compute a node for all tiles."""
        self._prepare(node, set())
        row_bytes = max(1, self._row_bytes(node, set()))
        budget = self.scope.host.budget or 0
        rows = max(1, min(self.rows, budget // SHARE // row_bytes))
        while rows > 1 and not (self.scope.lru or self.scope.host.fits(rows * row_bytes)):
            rows = -(-rows // 2)
        with self.scope.temporary(rows * row_bytes, f"a tile of {rows} rows of {node.type}"):
            lows = range(0, self.rows, rows)
            for low in reversed(lows) if backwards else lows:
                high = min(low + rows, self.rows)
                take(low, value_of(self._tile(node, low, high, {})))

    def _prepare(self, node: Node, seen: set[int]) -> None:
        """Compute what tiles read whole, before there are any."""
        if id(node) in seen or node.cell is not None:
            return
        seen.add(id(node))
        for child, tiled in zip(node.inputs, self._tiled(node), strict=True):
            if tiled:
                self._prepare(child, seen)
            else:
                array = self.value(child)
                if not is_mapped(array):
                    self.scope.adopt(array, f"an operand of {node.type}, computed in tiles")

    def _tiled(self, node: Node) -> list[bool]:
        """Which inputs a tile of a node takes by rows."""
        wanted = needs(node) if id(node) in self.cut else None
        tiled = [id(child) in self.cut or id(child) in self.turned for child in node.inputs]
        return tiled if wanted is None else [t and w for t, w in zip(tiled, wanted, strict=True)]

    def _row_bytes(self, node: Node, seen: set[int]) -> int:
        """Bytes per row of everything that computing a tile holds."""
        if id(node) in seen:
            return 0
        seen.add(id(node))
        cut = id(node) in self.cut or id(node) in self.turned
        own = node.type.row_bytes // self.rows if cut else 0
        if node.cell is not None:
            return own
        inputs = zip(node.inputs, self._tiled(node), strict=True)
        return own + sum(self._row_bytes(child, seen) for child, tiled in inputs if tiled)

    # tiles

    def _tile(self, node: Node, low: int, high: int, known: dict[int, Node]) -> Node:
        """The expression of rows [low, high) of a node, or of its share in what adds up."""
        if id(node) in known:
            return known[id(node)]
        if node.cell is not None:
            made: Node = self._given(node, _rows_of(node.cell, low, high))
        else:
            inputs = [
                self._tile(child, low, high, known)
                if tiled
                else self._given(child, self.value(child))
                for child, tiled in zip(node.inputs, self._tiled(node), strict=True)
            ]
            made = of_rows(node.op, high - low)(*inputs)
        known[id(node)] = made
        return made

    @staticmethod
    def _given(node: Node, array: np.ndarray) -> Node:
        return leaf(array, replace(node.type, shape=array.shape), getattr(node, "place", None))


def each_part(
    array: np.ndarray, scope: Scope, take: Callable[[int, np.ndarray], None], backwards: bool
) -> None:
    """Go through an array that is mapped from a file."""
    rows = max(1, (scope.host.budget or 0) // SHARE // SHARE * len(array) // array.nbytes)
    lows = range(0, len(array), rows)
    for low in reversed(lows) if backwards else lows:
        take(low, array[low : low + rows])


def _computed_whole(node: Node, scope: Scope) -> np.ndarray:
    with scope.temporary(node.type.row_bytes, f"computing {node.type}"):
        return value_of(node)


def _rows_of(cell: Cell, low: int, high: int) -> np.ndarray:
    """Rows of a value; from the spill file, if it is there."""
    absent = cell.absent
    rows = absent.rows_of(cell, low, high) if isinstance(absent, Absent) else None
    return cell.array[low:high] if rows is None else rows


def realize_each_in_tiles(tensors: Sequence[Tensor]) -> bool:
    """Compute by tiles what does not fit otherwise; whether all of it fits so."""
    for tensor in tensors:
        if tensor._array is not None:
            continue
        try:
            done = realize_in_tiles(tensor)
        except OutOfBudget:
            done = False
        if not done:
            return False
    return True
