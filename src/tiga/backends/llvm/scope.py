"""Where a value is evaluated: once per kernel, per row, per edge, or at the edge's other end.

A scope caches what it has evaluated, so that a value is computed once where it is invariant.
Scopes nest: an edge asks its row for what the row knows, and the kernel for global values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.layout import ARITHMETIC, EdgeLanes, FeatureLanes, evaluate_op
from tiga.backends.llvm.memory import Array, i64, load_word
from tiga.backends.llvm.products import Allocate, multiply
from tiga.passes.rows import RowProgram
from tiga.trace.node import Node
from tiga.types import int64


@dataclass
class KernelScope:
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

    def value(self, node: Node) -> Any:
        """A global value: an array of one entity, or computed from such."""
        if node not in self.values:
            self.values[node] = self._evaluate(node)
        return self.values[node]

    def _evaluate(self, node: Node) -> Any:
        if node in self.arrays:
            return self.load(node, i64(0))
        return evaluate_op(self.layout, node, [self.value(n) for n in node.inputs])

    def load(self, node: Node, entity: ir.Value) -> ir.Value:
        """The entity's elements, or those in the window."""
        array = self.arrays[node]
        return array.load(self.offset(node, entity), self.layout.width(node.type))

    def prefetch(self, node: Node, entity: ir.Value) -> None:
        """Ask for what `load` will read."""
        width = self.layout.width(node.type)
        self.arrays[node].prefetch(self.offset(node, entity), width)

    def offset(self, node: Node, entity: ir.Value) -> ir.Value:
        """The element offset of the entity's first element, or of its first in the window."""
        start = self.arrays[node].start(entity)
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
class RowScope:
    """Values of one entity: the row of the walk, or the entity at the other end of an edge."""

    kernel: KernelScope
    entity: ir.Value
    values: dict[Node, Any] = field(default_factory=dict)

    def value(self, node: Node) -> ir.Value:
        if node not in self.values:
            self.values[node] = self._evaluate(node)
        return self.values[node]

    def _evaluate(self, node: Node) -> ir.Value:
        if node in self.kernel.arrays:
            return self.kernel.load(node, self.entity)
        if node.op.name == "spread":
            return self.kernel.value(node.inputs[0])
        if node.op.name == "degree":
            return self.kernel.degree(node, self.entity)
        assert node.op.name != "reduce", f"{node!r} belongs to an earlier phase"
        return evaluate_op(self.kernel.layout, node, [self.value(n) for n in node.inputs])


@dataclass
class EdgeScope:
    """Values of one edge, features across lanes."""

    row: RowScope
    other: RowScope
    edge_id: ir.Value
    values: dict[Node, Any] = field(default_factory=dict)

    def value(self, node: Node) -> ir.Value:
        if node not in self.values:
            self.values[node] = self._evaluate(node)
        return self.values[node]

    def _evaluate(self, node: Node) -> ir.Value:
        kernel = self.row.kernel
        if node.op.name == "gather":
            same = node.op.side == kernel.program.side
            return (self.row if same else self.other).value(node.inputs[0])
        if node.op.name == "spread":
            return kernel.value(node.inputs[0])
        if node in kernel.arrays:
            return kernel.load(node, self.edge_id)
        if node.op.name == "contract":
            x, matrix = node.inputs
            return multiply(node, self.value(x), kernel.arrays[matrix], kernel.allocate)
        return evaluate_op(kernel.layout, node, [self.value(n) for n in node.inputs])

    def store(self, node: Node, array: Array) -> None:
        """Write an edge value to its place."""
        start = self.row.kernel.offset(node, self.edge_id)
        array.store(self.value(node), start)


@dataclass
class EdgeLanesScope:
    """Values of a run of edges, one edge per lane; lanes outside `mask` hold no edge."""

    row: RowScope
    layout: EdgeLanes
    others: ir.Value
    edge_ids: ir.Value
    first: ir.Value
    contiguous: bool
    mask: ir.Value
    values: dict[Node, Any] = field(default_factory=dict)
    other_values: dict[Node, Any] = field(default_factory=dict)

    def value(self, node: Node) -> tuple[ir.Value, ...]:
        if node not in self.values:
            self.values[node] = self._evaluate(node)
        return self.values[node]

    def _evaluate(self, node: Node) -> tuple[ir.Value, ...]:
        kernel = self.row.kernel
        if node.op.name == "gather":
            (source,) = node.inputs
            if node.op.side == kernel.program.side:
                return self.layout.spread(self.row.value(source))
            return self.other(source)
        if node.op.name == "spread":
            return self.layout.spread(kernel.value(node.inputs[0]))
        if node in kernel.arrays:
            return self._load_edges(node)
        return evaluate_op(self.layout, node, [self.value(n) for n in node.inputs])

    def other(self, node: Node) -> tuple[ir.Value, ...]:
        """A value at the other ends."""
        if node not in self.other_values:
            self.other_values[node] = self._evaluate_other(node)
        return self.other_values[node]

    def _evaluate_other(self, node: Node) -> tuple[ir.Value, ...]:
        kernel = self.row.kernel
        if node in kernel.arrays:
            return self._load_lanes(kernel.arrays[node], self.others)
        if node.op.name == "spread":
            return self.layout.spread(kernel.value(node.inputs[0]))
        if node.op.name == "degree":
            row_ptr = Array(kernel.row_ptrs[node.op.relation, node.op.side], int64, 1)
            after = ARITHMETIC.add(self.others, ARITHMETIC.constant(1, self.others))
            first = row_ptr.load_lanes(self.others, self.mask)
            count = ARITHMETIC.sub(row_ptr.load_lanes(after, self.mask), first)
            return (kernel.as_degree(node, count),)
        return evaluate_op(self.layout, node, [self.other(n) for n in node.inputs])

    def _load_lanes(self, array: Array, entities: ir.Value) -> tuple[ir.Value, ...]:
        start = array.start(entities)
        offsets = (ARITHMETIC.add(start, ARITHMETIC.constant(i, start)) for i in range(array.row))
        return tuple(array.load_lanes(offset, self.mask) for offset in offsets)

    def _load_edges(self, node: Node) -> tuple[ir.Value, ...]:
        array = self.row.kernel.arrays[node]
        if self.contiguous and array.row == 1:
            return (array.load_run(self.first, self.mask),)
        return self._load_lanes(array, self.edge_ids)

    def store(self, node: Node, array: Array) -> None:
        """Write edge values to their places."""
        value = self.value(node)
        if self.contiguous and array.row == 1:
            array.store_run(value[0], self.first, self.mask)
            return
        start = array.start(self.edge_ids)
        for i, element in enumerate(value):
            offsets = ARITHMETIC.add(start, ARITHMETIC.constant(i, start))
            array.store_lanes(element, offsets, self.mask)
