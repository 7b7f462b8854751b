"""Where a value is evaluated: once per kernel, per row, per edge, or at the edge's other end.

A scope caches what it has evaluated, so that a value is computed once where it is invariant.
Scopes nest: an edge asks its row for what the row knows, and the kernel for global values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.lanes import integer
from tiga.backends.llvm.layout import ARITHMETIC, EdgeLanes, FeatureLanes, evaluate_op
from tiga.backends.llvm.memory import Array, consecutive, i64, lane_numbers, load_word, splat
from tiga.backends.llvm.products import Allocate, look_up, multiply
from tiga.passes.rows import RowProgram
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.scope import ValueScope
from tiga.types import int64


@dataclass
class KernelScope(ValueScope[Any]):
    """Values that are the same for the whole kernel, and the arrays that it is given.

    `window` is the first feature of the current window; None where values are taken whole.
    """

    program: RowProgram
    arrays: Mapping[Node, Array]
    row_ptrs: Mapping[tuple[Any, str], ir.Value]
    layout: FeatureLanes
    allocate: Allocate
    window: ir.Value | None = None
    values: dict[Node, Any] = field(default_factory=dict)

    def _evaluate(self, node: Node) -> Any:
        """A global value: an array of one entity, or computed from such."""
        if node in self.arrays:
            return self.load(node, i64(0))
        return evaluate_op(self.layout, node, [self.value(n) for n in node.inputs])

    def within_entity(self, scope: ValueScope[ir.Value], node: Node) -> ir.Value:
        """An op on values of one entity, and on the table that it shares with the others."""
        op = node.op
        if op.table is None:
            return evaluate_op(self.layout, node, [scope.value(n) for n in node.inputs])
        table = self.arrays[node.inputs[op.table]]
        (x,) = (scope.value(n) for i, n in enumerate(node.inputs) if i != op.table)
        if op.by_index:
            return look_up(node, x, table)
        return multiply(node, x, table, self.allocate)

    def load(self, node: Node, entity: ir.Value) -> ir.Value:
        """The entity's elements, or those in the window."""
        array = self.arrays[node]
        return array.load(self.offset(array, node, entity), self.layout.width(node.type))

    def prefetch(self, node: Node, entity: ir.Value) -> None:
        """Ask for what `load` will read."""
        width = self.layout.width(node.type)
        array = self.arrays[node]
        array.prefetch(self.offset(array, node, entity), width)

    def offset(self, array: Array, node: Node, entity: ir.Value) -> ir.Value:
        """The element offset of the entity's first element, or of its first in the window."""
        start = array.start(entity)
        windowed = self.window is not None and node.type.size == self.layout.whole
        return arith.addi(start, self.window) if windowed else start

    def degree(self, node: Node, entity: ir.Value) -> ir.Value:
        """The number of edges at an entity, as the number that the node wants."""
        row_ptr = self.row_ptrs[node.op.relation, node.op.side]
        first = load_word(row_ptr, entity)
        count = arith.subi(load_word(row_ptr, arith.addi(entity, i64(1))), first)
        return self.as_degree(node, count)

    def as_degree(self, node: Node, count: ir.Value) -> ir.Value:
        """A count of edges in the dtype of a degree node."""
        dtype = node.type.dtype
        return ARITHMETIC.cast(ARITHMETIC.cast(count, int64, dtype), dtype, dtype.compute)


@dataclass
class RowScope(ValueScope[ir.Value]):
    """Values of one entity: the row of the walk, or the entity at the other end of an edge."""

    kernel: KernelScope
    entity: ir.Value
    values: dict[Node, Any] = field(default_factory=dict)

    def _evaluate(self, node: Node) -> ir.Value:
        if node in self.kernel.arrays:
            return self.kernel.load(node, self.entity)
        origin = node.op.origin
        if origin is Origin.GLOBAL:
            return self.kernel.value(node.inputs[0])
        if origin is Origin.DEGREE:
            return self.kernel.degree(node, self.entity)
        assert origin is not Origin.ROW, f"{node!r} belongs to an earlier phase"
        return self.kernel.within_entity(self, node)


@dataclass
class EdgeScope(ValueScope[ir.Value]):
    """Values of one edge, features across lanes."""

    row: RowScope
    other: RowScope
    edge_id: ir.Value
    values: dict[Node, Any] = field(default_factory=dict)

    def _evaluate(self, node: Node) -> ir.Value:
        kernel = self.row.kernel
        origin = node.op.origin
        if origin is Origin.END:
            same = node.op.side == kernel.program.side
            return (self.row if same else self.other).value(node.inputs[0])
        if origin is Origin.GLOBAL:
            return kernel.value(node.inputs[0])
        if node in kernel.arrays:
            return kernel.load(node, self.edge_id)
        if origin is Origin.POSITION:
            return self.edge_id
        return kernel.within_entity(self, node)

    def store(self, node: Node, array: Array) -> None:
        """Write an edge value to its place."""
        start = self.row.kernel.offset(array, node, self.edge_id)
        array.store(self.value(node), start)


@dataclass
class EdgeLanesScope(ValueScope[tuple[ir.Value, ...]]):
    """Values of a run of edges, one edge per lane.

    `others` and `edge_ids` are lanes of entities; without `edge_ids`, edge values lie in a run from
    position `first`. `left` is how many lanes hold an edge, None where all do; the others hold
    zeros, or what follows from zeros.
    """

    row: RowScope
    layout: EdgeLanes
    first: ir.Value
    left: ir.Value | None
    others: ir.Value | None = None
    edge_ids: ir.Value | None = None
    values: dict[Node, Any] = field(default_factory=dict)
    other_values: dict[Node, Any] = field(default_factory=dict)
    masks: dict[int, ir.Value] = field(default_factory=dict)

    def _evaluate(self, node: Node) -> tuple[ir.Value, ...]:
        kernel = self.row.kernel
        origin = node.op.origin
        if origin is Origin.END:
            (source,) = node.inputs
            if node.op.side == kernel.program.side:
                return self.layout.spread(self.row.value(source))
            return self.other(source)
        if origin is Origin.GLOBAL:
            return self.layout.spread(kernel.value(node.inputs[0]))
        if node in kernel.arrays:
            return self._load_edges(kernel.arrays[node])
        if origin is Origin.POSITION:
            return (self._positions(),)
        return evaluate_op(self.layout, node, [self.value(n) for n in node.inputs])

    def _positions(self) -> ir.Value:
        """The positions of the edges in CSR order, as i64."""
        type_ = ir.VectorType.get([self.layout.count], integer(64))
        if self.edge_ids is not None:
            wide = self.edge_ids.type == type_
            return self.edge_ids if wide else arith.extui(type_, self.edge_ids)
        return consecutive(self.first, self.layout.count)

    def other(self, node: Node) -> tuple[ir.Value, ...]:
        """A value at the other ends."""
        if node not in self.other_values:
            self.other_values[node] = self._evaluate_other(node)
        return self.other_values[node]

    def _evaluate_other(self, node: Node) -> tuple[ir.Value, ...]:
        kernel = self.row.kernel
        if node in kernel.arrays:
            return self._load_lanes(kernel.arrays[node], self.others)
        if node.op.origin is Origin.GLOBAL:
            return self.layout.spread(kernel.value(node.inputs[0]))
        if node.op.origin is Origin.DEGREE:
            row_ptr = Array(kernel.row_ptrs[node.op.relation, node.op.side], int64, 1)
            low = row_ptr.load_lanes(self.others, self.mask())
            high = row_ptr.load_lanes(self.others, self.mask(), at=1)
            return (kernel.as_degree(node, ARITHMETIC.sub(high, low)),)
        return evaluate_op(self.layout, node, [self.other(n) for n in node.inputs])

    def mask(self, size: int = 1) -> ir.Value | None:
        """Which elements of a run of values of `size` elements belong to edges; None for all."""
        if self.left is not None and size not in self.masks:
            count = self.layout.count * size
            self.masks[size] = first_lanes(arith.muli(self.left, i64(size)), count)
        return self.masks.get(size)

    def _load_lanes(self, array: Array, entities: ir.Value) -> tuple[ir.Value, ...]:
        return tuple(array.load_lanes(entities, self.mask(), i) for i in range(array.row))

    def _load_edges(self, array: Array) -> tuple[ir.Value, ...]:
        if self.edge_ids is not None:
            return self._load_lanes(array, self.edge_ids)
        count = self.layout.count * array.row
        run = array.load_run(array.start(self.first), count, self.mask(array.row))
        return self.layout.split(run)

    def store(self, node: Node, array: Array) -> None:
        """Write edge values to their places."""
        value = self.value(node)
        if self.edge_ids is None:
            run = self.layout.unsplit(value)
            array.store_run(run, array.start(self.first), self.mask(array.row))
            return
        for i, element in enumerate(value):
            array.store_lanes(element, self.edge_ids, self.mask(), i)


def first_lanes(number: ir.Value, count: int) -> ir.Value:
    """A mask of the first `number` of `count` lanes."""
    wanted = splat(arith.trunci(integer(32), number), count)
    return arith.cmpi(arith.CmpIPredicate.slt, lane_numbers(count, 32), wanted)
