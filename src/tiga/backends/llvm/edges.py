"""The loop over a range of a row's edges: one phase of a row program, in either layout."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from itertools import islice

from torch_mlir import ir
from torch_mlir.dialects import arith, scf

from tiga.backends.llvm.lanes import constant_of
from tiga.backends.llvm.layout import ARITHMETIC, EdgeLanes, FeatureLanes, join
from tiga.backends.llvm.loops import Step, loop
from tiga.backends.llvm.memory import Array, i64, lanes_type, load_word, register_element
from tiga.backends.llvm.products import OuterSums
from tiga.backends.llvm.scans import KeptCarries, run_step
from tiga.backends.llvm.scatters import scatter
from tiga.backends.llvm.scope import EdgeLanesScope, EdgeScope, KernelScope, RowScope
from tiga.backends.llvm.slots import SlotTable
from tiga.passes.rows import Phase, RowProgram, adds_up
from tiga.passes.schedule import Schedule
from tiga.relations.walk import STRETCH
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin
from tiga.types import int32, int64


class Lengths(Enum):
    """How many edges ranges have: at most a stretch, more in some, or in most. The values are
    what files of stages are named after."""

    SHORT = ""
    MIXED = "-long"
    LONG = "-all-long"

    @staticmethod
    def of(max_degree: int) -> "Lengths":
        """Those of rows with at most so many edges."""
        return Lengths.MIXED if max_degree > STRETCH else Lengths.SHORT


@dataclass(frozen=True)
class TaskState:
    """What lasts from row to row of a task: sums of outer products, room for the carries of a
    row, and the first entity of the task's scattered sums."""

    outer_sums: OuterSums
    kept: KeptCarries
    scattered: ir.Value | None = None


@dataclass(frozen=True)
class EdgeLoop:
    """One phase over edges [low, high) of a row.

    `starts` are carries by their `before` node, where scans go on from an earlier run of edges;
    `states` those of reductions that do. `others` has the arrays at the other ends, where they are
    not those of the rows.
    """

    table: SlotTable
    schedule: Schedule
    index_bits: int
    phase: Phase
    task: TaskState
    starts: Mapping[Node, ir.Value] = field(default_factory=dict)
    states: Mapping[Node, ir.Value] = field(default_factory=dict)
    others: KernelScope | None = None
    lengths: Lengths = Lengths.SHORT

    @property
    def program(self) -> RowProgram:
        return self.table.slots.program

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
        found = reached(self.phase.edge_values, lambda n: not n.type.on_edges)
        return tuple(n for n in found if n.type.on_edges)

    @property
    def _invariants(self) -> Iterator[Node]:
        """Row values that edges read: evaluated before the loop."""
        side = self.program.side
        gathers = (n for n in self._edge_nodes if n.op.origin is Origin.END and n.op.side == side)
        yield from (n.inputs[0] for n in gathers)
        yield from (s.initial for s in self.phase.scans if s.before not in self.starts)

    @cached_property
    def _gathered(self) -> tuple[Node, ...]:
        """Arrays that edges read at their other end."""
        side, reads = self.program.side, set(self.program.reads)
        ends = [n for n in self._edge_nodes if n.op.origin is Origin.END and n.op.side != side]
        return tuple(n for n in reached(ends, reads.__contains__) if n in reads)

    def _identity(self, node: Node, lanes: int) -> ir.Value:
        element = register_element(node.type.dtype)
        return constant_of(node.op.monoid.identity(node.type.dtype), lanes_type(element, lanes))

    # features across lanes

    def _by_features(self, row: RowScope, low: ir.Value, high: ir.Value) -> list[ir.Value]:
        starts = self._starts(row.kernel.layout)
        starts += [
            self.starts[s.before] if s.before in self.starts else row.value(s.initial)
            for s in self.phase.scans
        ]
        return self._edge_by_edge(row, low, high, starts)

    def _starts(self, layout: FeatureLanes) -> list[ir.Value]:
        return [
            self.states[n] if n in self.states else self._identity(n, layout.width(n.type))
            for n in self.phase.reductions
        ]

    def _edge_by_edge(
        self, row: RowScope, low: ir.Value, high: ir.Value, starts: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """The states with the edges from `low` to `high` combined one after the other."""
        phase = self.phase
        index = self.table.pointer("index")
        edge_ids = self.table.pointer("edge_id") if self._has_edge_ids else None
        mirror = arith.subi(arith.addi(low, high), i64(1))

        def step(position: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
            edge = arith.subi(mirror, position) if phase.reverse else position
            self._prefetch(row, index, edge)
            other = RowScope(self.others or row.kernel, load_word(index, edge, self.index_bits))
            place = edge if edge_ids is None else load_word(edge_ids, edge, self.index_bits)
            values = EdgeScope(row, other, place)
            within = arith.subi(edge, low)
            self._give_carries(values, within, states[len(phase.reductions) :])
            self._write_edge(values)
            return [*self._reduced(values, states), *self._carried(values, within)]

        results = self._loop(low, high, starts, step)
        for scan, carry in zip(phase.scans, results[len(phase.reductions) :], strict=True):
            row.values[scan.after] = carry
        return results[: len(phase.reductions)]

    def _loop(
        self, low: ir.Value, high: ir.Value, starts: Sequence[ir.Value], step: Step
    ) -> list[ir.Value]:
        """The loop over edges one by one. Ranges of several stretches have a loop of their own:
        what it takes to begin and end one would be a third of the time of a row of few edges."""
        several = self.lengths is not Lengths.SHORT and not self.states
        if (
            not several
            or self.schedule.lanes == "edges"
            or not any(map(adds_up, self.phase.reductions))
        ):
            return loop(low, high, 1, starts, step)
        if self.lengths is Lengths.LONG:
            return self._by_stretches(low, high, starts, step)
        many = arith.cmpi(_LESS, i64(STRETCH), arith.subi(high, low))
        branches = scf.IfOp(many, [start.type for start in starts], has_else=True)
        with ir.InsertionPoint(branches.then_block):
            scf.YieldOp(self._by_stretches(low, high, starts, step))
        with ir.InsertionPoint(branches.else_block):
            scf.YieldOp(loop(low, high, 1, starts, step))
        return list(branches.results)

    def _by_stretches(
        self, low: ir.Value, high: ir.Value, starts: Sequence[ir.Value], step: Step
    ) -> list[ir.Value]:
        """The loop, whose sums begin anew with every stretch and are added to those before."""
        sums = [*map(adds_up, self.phase.reductions), *(False for _ in self.phase.scans)]

        def stretch(first: ir.Value, totals: Sequence[ir.Value]) -> list[ir.Value]:
            last = arith.minsi(arith.addi(first, i64(STRETCH)), high)
            begin = [
                constant_of(0, total.type) if adds else total
                for total, adds in zip(totals, sums, strict=True)
            ]
            ended = loop(first, last, 1, begin, step)
            return [
                ARITHMETIC.add(total, state) if adds else state
                for total, state, adds in zip(totals, ended, sums, strict=True)
            ]

        return loop(low, high, STRETCH, starts, stretch)

    def _give_carries(
        self, values: EdgeScope, within: ir.Value, carries: Sequence[ir.Value]
    ) -> None:
        """The carries before this edge: of this phase's scans, and those kept from earlier."""
        for node in self._edge_nodes:
            if node in self.task.kept.arrays:
                values.values[node] = self.task.kept.load(node, within)
        for scan, carry in zip(self.phase.scans, carries, strict=True):
            values.values[scan.before] = carry

    def _reduced(self, values: EdgeScope, states: Sequence[ir.Value]) -> list[ir.Value]:
        return [
            node.op.monoid.combine(ARITHMETIC, state, values.value(node.inputs[0]))
            for node, state in zip(self.phase.reductions, states, strict=False)
        ]

    def _carried(self, values: EdgeScope, within: ir.Value) -> list[ir.Value]:
        """The carries after this edge."""
        layout, results = values.row.kernel.layout, []
        for scan in self.phase.scans:
            carry = values.values[scan.before]
            if scan.before in self.task.kept.arrays:
                self.task.kept.store(scan.before, within, carry)
            elements = [values.value(e) for e in scan.elements]
            results.append(run_step(layout, scan.before.op.step, [carry, *elements]))
        return results

    def _write_edge(self, values: EdgeScope) -> None:
        """What an edge writes outside of its row."""
        for node in self.phase.stores:
            values.store(node, self.table.array(node))
        for node in self.phase.outer_sums:
            self.task.outer_sums[node].add(*map(values.value, node.inputs))
        for node in self.phase.scatters:
            sums = self.table.state("scatter", node)
            message = values.value(node.inputs[0])
            scatter(sums, self.task.scattered, values.other.entity, message)

    def _prefetch(self, row: RowScope, index: ir.Value, edge: ir.Value) -> None:
        distance = self.schedule.prefetch
        if not self._wide(row.kernel.layout) or not distance:
            return
        last = arith.subi(self.table.number("num_edges"), i64(1))
        ahead = arith.minsi(arith.addi(edge, i64(distance)), last)
        self.ask_for(row.kernel, load_word(index, ahead, self.index_bits))

    def ask_for(self, others: KernelScope, entity: ir.Value) -> None:
        """Let the caches fetch what edges read at their other end."""
        for node in self._wide(others.layout):
            others.prefetch(node, entity)

    def _wide(self, layout: FeatureLanes) -> list[Node]:
        """What is read at the other end and takes a cache line or more."""
        return [n for n in self._gathered if layout.width(n.type) * n.type.dtype.itemsize >= 64]

    # edges across lanes

    def _by_edges(self, row: RowScope, low: ir.Value, high: ir.Value) -> list[ir.Value]:
        """Full sets of lanes, then the edges left: in a masked set, or one by one if few.

        Lane i takes the edges i, i + lanes, ...; the lanes are combined by halves, and then with
        the edges taken one by one. The order depends on the row's degree alone.
        """
        middle = arith.addi(low, arith.andi(arith.subi(high, low), i64(-self.schedule.edge_lanes)))
        end = middle
        if self._masks_edges:
            few = arith.cmpi(_LESS, arith.subi(high, middle), i64(self.schedule.few))
            end = arith.select(few, middle, high)
        states = self._starts(row.kernel.layout)
        any_set = scf.IfOp(arith.cmpi(_LESS, low, end), [s.type for s in states], has_else=True)
        with ir.InsertionPoint(any_set.then_block):
            scf.YieldOp(self._across(self._sets(row, low, middle, end)))
        with ir.InsertionPoint(any_set.else_block):
            scf.YieldOp(states)
        return self._edge_by_edge(row, end, high, list(any_set.results))

    @property
    def _masks_edges(self) -> bool:
        """Whether the edges left after the full sets are ever taken in a masked set."""
        return self.schedule.few < self.schedule.edge_lanes

    def _sets(
        self, row: RowScope, low: ir.Value, middle: ir.Value, end: ir.Value
    ) -> list[ir.Value]:
        """The lanes of every element: full sets from `low` to `middle`, a masked one to `end`."""
        count = self.schedule.edge_lanes
        states = [
            self._identity(n, count) for n in self.phase.reductions for _ in range(n.type.size)
        ]
        states = loop(low, middle, count, states, lambda e, s: self._edges(row, e, None, s))
        if not self._masks_edges:
            return states
        return loop(middle, end, count, states, lambda e, s: self._edges(row, e, end, s))

    def _edges(
        self, row: RowScope, edge: ir.Value, end: ir.Value | None, states: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """The states with the edges from `edge` to `end`, or as many as there are lanes."""
        values = self._lanes_scope(row, edge, end)
        for node in self.phase.stores:
            values.store(node, self.table.array(node))
        messages = [
            (node, element)
            for node in self.phase.reductions
            for element in values.value(node.inputs[0])
        ]
        return [
            self._accumulate(node, state, element, values.mask())
            for (node, element), state in zip(messages, states, strict=True)
        ]

    def _accumulate(
        self, node: Node, state: ir.Value, element: ir.Value, mask: ir.Value | None
    ) -> ir.Value:
        if mask is not None:
            element = arith.select(mask, element, self._identity(node, self.schedule.edge_lanes))
        return node.op.monoid.combine(ARITHMETIC, state, element)

    def _across(self, states: Sequence[ir.Value]) -> list[ir.Value]:
        """Combine the lanes of each element, by halves; row values, features across lanes."""
        left, whole, values = iter(states), FeatureLanes(), []
        for node in self.phase.reductions:
            combine = partial(node.op.monoid.combine, ARITHMETIC)
            elements = islice(left, node.type.size)
            shape = (self.schedule.edge_lanes,)
            values.append(join([whole.reduce_axis(e, shape, 0, combine) for e in elements]))
        return values

    def _lanes_scope(self, row: RowScope, edge: ir.Value, end: ir.Value | None) -> EdgeLanesScope:
        left = None if end is None else arith.subi(end, edge)
        scope = EdgeLanesScope(row, EdgeLanes(self.schedule.edge_lanes), edge, left)
        scope.others = self._load_indices("index", scope)
        if self._has_edge_ids:
            scope.edge_ids = self._load_indices("edge_id", scope)
        return scope

    def _load_indices(self, name: str, scope: EdgeLanesScope) -> ir.Value:
        dtype = int32 if self.index_bits == 32 else int64
        array = Array(self.table.pointer(name), dtype, 1)
        return array.load_run(scope.first, scope.layout.count, scope.mask())


_LESS = arith.CmpIPredicate.slt
