"""The loop over a range of a row's edges: one phase of a row program, in either layout."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.lanes import constant_of, integer
from tiga.backends.llvm.layout import ARITHMETIC, EdgeLanes, FeatureLanes, join
from tiga.backends.llvm.loops import loop
from tiga.backends.llvm.memory import (
    Array,
    i64,
    lanes_type,
    load_word,
    register_element,
    splat,
)
from tiga.backends.llvm.products import OuterSums
from tiga.backends.llvm.scope import EdgeLanesScope, EdgeScope, RowScope
from tiga.backends.llvm.slots import SlotTable
from tiga.passes.rows import Phase, RowProgram
from tiga.passes.schedule import Schedule
from tiga.trace.node import Node
from tiga.types import DType, int32, int64


@dataclass(frozen=True)
class EdgeLoop:
    """One phase over edges [low, high) of a row."""

    table: SlotTable
    schedule: Schedule
    index_bits: int
    phase: Phase
    outer_sums: OuterSums

    @property
    def program(self) -> RowProgram:
        return self.table.slots.program

    @property
    def _index_dtype(self) -> DType:
        return int32 if self.index_bits == 32 else int64

    @property
    def _has_edge_ids(self) -> bool:
        """In the destination walk an edge's place is its position."""
        return self.program.side == "src"

    def run(self, row: RowScope, low: ir.Value, high: ir.Value) -> dict[Node, ir.Value]:
        """The reduced values of the phase; edge values are stored on the way."""
        for node in self._invariants:
            row.value(node)
        by_edges = self.schedule.lanes == "edges"
        states = self._by_edges(row, low, high) if by_edges else self._by_features(row, low, high)
        return dict(zip(self.phase.reductions, states, strict=True))

    # what the loop needs

    @cached_property
    def _edge_nodes(self) -> tuple[Node, ...]:
        """The edge values of the phase."""
        seen: dict[Node, None] = {}
        stack = list(self.phase.edge_values)
        while stack:
            node = stack.pop()
            if node in seen or node.type.space.kind != "edge":
                continue
            seen[node] = None
            stack.extend(node.inputs)
        return tuple(seen)

    @property
    def _invariants(self) -> Iterator[Node]:
        """Row values that edges read: evaluated before the loop."""
        side = self.program.side
        gathers = (n for n in self._edge_nodes if n.op.name == "gather" and n.op.side == side)
        return (n.inputs[0] for n in gathers)

    @cached_property
    def _gathered(self) -> tuple[Node, ...]:
        """Arrays that edges read at their other end."""
        side, reads = self.program.side, set(self.program.reads)
        found: dict[Node, None] = {}
        stack = [n for n in self._edge_nodes if n.op.name == "gather" and n.op.side != side]
        while stack:
            node = stack.pop()
            if node in reads:
                found[node] = None
            else:
                stack.extend(node.inputs)
        return tuple(found)

    # features across lanes

    def _by_features(self, row: RowScope, low: ir.Value, high: ir.Value) -> list[ir.Value]:
        layout = row.kernel.layout
        starts = [
            self._identity(n, layout.width(n.type)) for n in self.phase.reductions
        ]
        index = self.table.pointer("index")
        edge_ids = self.table.pointer("edge_id") if self._has_edge_ids else None

        def step(edge: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
            self._prefetch(row, index, edge)
            other = RowScope(row.kernel, load_word(index, edge, self.index_bits))
            place = edge if edge_ids is None else load_word(edge_ids, edge, self.index_bits)
            values = EdgeScope(row, other, place)
            for node in self.phase.stores:
                values.store(node, self.table.array(node))
            for node in self.phase.outer_sums:
                self._add_outer(node, values)
            return [
                node.op.monoid.combine(ARITHMETIC, state, values.value(node.inputs[0]))
                for node, state in zip(self.phase.reductions, states, strict=True)
            ]

        return loop(low, high, 1, starts, step)

    def _add_outer(self, node: Node, values: EdgeScope) -> None:
        x, y = node.inputs
        lead = x.type.size // node.type.shape[0]
        self.outer_sums[node].add(values.value(x), values.value(y), lead)

    def _prefetch(self, row: RowScope, index: ir.Value, edge: ir.Value) -> None:
        layout, distance = row.kernel.layout, self.schedule.prefetch
        wide = [
            n for n in self._gathered if layout.width(n.type) * n.type.dtype.itemsize >= 64
        ]
        if not wide or not distance:
            return
        last = arith.subi(self.table.number("num_edges"), i64(1))
        ahead = arith.minsi(arith.addi(edge, i64(distance)), last)
        other = load_word(index, ahead, self.index_bits)
        for node in wide:
            row.kernel.prefetch(node, other)

    def _identity(self, node: Node, lanes: int) -> ir.Value:
        element = register_element(node.type.dtype)
        return constant_of(node.op.monoid.identity(node.type.dtype), lanes_type(element, lanes))

    # edges across lanes

    def _by_edges(self, row: RowScope, low: ir.Value, high: ir.Value) -> list[ir.Value]:
        count = self.schedule.edge_lanes
        sizes = [n.type.size for n in self.phase.reductions]
        starts = [
            self._identity(n, count) for n in self.phase.reductions for _ in range(n.type.size)
        ]

        def step(edge: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
            values = self._lanes_scope(row, edge, high)
            for node in self.phase.stores:
                values.store(node, self.table.array(node))
            messages = [
                (node, element)
                for node in self.phase.reductions
                for element in values.value(node.inputs[0])
            ]
            return [
                self._accumulate(node, state, element, values.mask)
                for (node, element), state in zip(messages, states, strict=True)
            ]

        flat = loop(low, high, count, starts, step)
        grouped = np.split(np.arange(len(flat)), np.cumsum(sizes)[:-1])
        return [
            self._across(node, [flat[i] for i in group])
            for node, group in zip(self.phase.reductions, grouped, strict=True)
        ]

    def _accumulate(
        self, node: Node, state: ir.Value, element: ir.Value, mask: ir.Value
    ) -> ir.Value:
        fill = self._identity(node, self.schedule.edge_lanes)
        kept = arith.select(mask, element, fill)
        return node.op.monoid.combine(ARITHMETIC, state, kept)

    def _across(self, node: Node, elements: list[ir.Value]) -> ir.Value:
        """Combine the lanes of each element, by halves; the row value, features across lanes."""
        count = self.schedule.edge_lanes

        def combine(a: ir.Value, b: ir.Value) -> ir.Value:
            return node.op.monoid.combine(ARITHMETIC, a, b)

        whole = FeatureLanes()
        return join([whole.reduce_axis(e, (count,), 0, combine) for e in elements])

    def _lanes_scope(self, row: RowScope, edge: ir.Value, high: ir.Value) -> EdgeLanesScope:
        count = self.schedule.edge_lanes
        left = arith.minsi(arith.subi(high, edge), i64(count))
        left = splat(arith.trunci(integer(32), left), count)
        mask = arith.cmpi(arith.CmpIPredicate.slt, _iota(count, 32), left)
        positions = arith.addi(splat(edge, count), _iota(count, 64))
        others = self._load_indices("index", edge, mask)
        ids = self._load_indices("edge_id", edge, mask) if self._has_edge_ids else positions
        return EdgeLanesScope(
            row, EdgeLanes(count), others, ids, edge, not self._has_edge_ids, mask
        )

    def _load_indices(self, name: str, edge: ir.Value, mask: ir.Value) -> ir.Value:
        dtype = self._index_dtype
        raw = Array(self.table.pointer(name), dtype, 1).load_run(edge, mask)
        return ARITHMETIC.cast(raw, dtype, int64)


def _iota(count: int, bits: int) -> ir.Value:
    """0, 1, 2, ... in the lanes."""
    type_ = ir.VectorType.get([count], integer(bits))
    values = np.arange(count, dtype=np.int32 if bits == 32 else np.int64)
    return arith.constant(type_, ir.DenseElementsAttr.get(values, type=type_))
