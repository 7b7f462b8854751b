"""Kernels that fold a tile of the other ends into rows whose states wait in memory between tiles.

Where the other ends ascend along each row, the edges of a row that lie in one tile follow one
another, and tiles in order bring them in the row's own order. So a row goes on from its state with
the next edges, exactly as one loop over all of them would.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm, scf

from tiga.backends.llvm.edges import EdgeLoop, TaskState
from tiga.backends.llvm.kernel import Kernels, Task
from tiga.backends.llvm.lanes import constant_of, integer
from tiga.backends.llvm.layout import FeatureLanes
from tiga.backends.llvm.loops import loop
from tiga.backends.llvm.memory import Array, element_pointer, i64, load_word
from tiga.backends.llvm.pieces import filled, load, store
from tiga.backends.llvm.scans import KeptCarries
from tiga.backends.llvm.scope import KernelScope, RowScope
from tiga.backends.llvm.slots import Slots, SlotTable
from tiga.backends.llvm.split_scans import chunk_edges
from tiga.backends.llvm.steps import RowStep
from tiga.passes.roles import roles_of
from tiga.trace.node import Node

GROUP = 64
"""Rows whose next edges are looked for, and what these read asked for, before they are folded: as
many as the nearest cache holds the sources of."""

TILE_SLOTS = ("tile_low", "tile_size", "number_low", "number_size")


@dataclass(frozen=True)
class Runs:
    """What is folded from tile to tile: rows, or the chunks of split rows. By slot: how many edges
    of each were taken before this tile and after it, and the kind of its states."""

    done: str
    after: str
    kind: str


ROWS = Runs("done", "after", "state")
CHUNKS = Runs("chunk_done", "chunk_after", "chunk")


@dataclass(frozen=True)
class TileSlots(Slots):
    """Those of a row program, and: the tile's range of other ends and of edge numbers, counts of
    edges taken, `("state", node)` for the states of rows, and, as the tile and the rows have
    memory of their own, `("other", node)` and `("other degree", relation, side)`."""

    @cached_property
    def names(self) -> tuple[object, ...]:
        roles = roles_of(self.program)
        counts = (name for runs in (ROWS, CHUNKS) for name in (runs.done, runs.after))
        states = (("state", node) for node in self.reductions)
        others = (("other", node) for node in self.program.reads if node in roles.others)
        degrees = (("other degree", *ends) for ends in self.degrees)
        return (*super().names, *TILE_SLOTS, *counts, *states, *others, *degrees)


@dataclass(frozen=True)
class TileKernels(Kernels):
    """Emits the functions that go through a walk tile by tile.

    For each phase `tile` folds a tile into rows, and where rows are split, `chunk_tile` into their
    chunks, which `hubs` combines; then `finish_rows`, and `finish` for split rows, store values.
    """

    @cached_property
    def slots(self) -> TileSlots:
        return TileSlots(self.program)

    def emit(self, prefix: str) -> tuple[str, ...]:
        emitters: dict[str, Task] = {}
        for number, phase in enumerate(self.program.phases):
            emitters[f"tile{number}"] = partial(self._rows_tile, number=number)
            if self.hub_degree:
                emitters[f"chunk_tile{number}"] = partial(self._chunk_tile, number=number)
            if self.hub_degree and phase.reductions:
                emitters[f"hubs{number}"] = partial(self._combine, phase=phase)
        emitters["finish_rows"] = self._finish_rows
        if self.hub_degree:
            emitters["finish"] = self._finish_hub
        if self.program.has_sums:
            emitters["totals"] = self._totals
        for name, body in emitters.items():
            self._function(f"{prefix}_{name}", body)
        return tuple(emitters)

    # a tile

    def _rows_tile(self, table: SlotTable, task: ir.Value, number: int) -> None:
        task_ptr = table.pointer("task_ptr")
        low, high = load_word(task_ptr, task), load_word(task_ptr, arith.addi(task, i64(1)))
        self._tile(Tile(self, table, ROWS, number, self._light_range), low, high)

    def _chunk_tile(self, table: SlotTable, chunk: ir.Value, number: int) -> None:
        tile = Tile(self, table, CHUNKS, number, chunk_edges)
        self._tile(tile, chunk, arith.addi(chunk, i64(1)))

    def _tile(self, tile: "Tile", low: ir.Value, high: ir.Value) -> None:
        def group(first: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            last = arith.minsi(arith.addi(first, i64(GROUP)), high)
            tile.seek(first, last)
            self._windows(tile.table, lambda scope: tile.fold(scope, first, last))
            return carried

        loop(low, high, GROUP, [], group)

    def _light_range(self, table: SlotTable, row: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The edges of a row; none of one that is split."""
        low, high = self._range(table, row)
        if self.hub_degree:
            is_hub = arith.cmpi(_GT, arith.subi(high, low), i64(self.hub_degree))
            high = arith.select(is_hub, low, high)
        return low, high

    def others(self, table: SlotTable, scope: KernelScope) -> KernelScope:
        """The scope of values at the other ends."""
        slots = table.slots.position
        named = ((n, ("other", n)) for n in self.program.reads)
        arrays = {
            n: Array(table.pointer(name), n.type.dtype, n.type.size)
            for n, name in named
            if name in slots
        }
        degrees = {ends: table.pointer(("other degree", *ends)) for ends in table.slots.degrees}
        return replace(scope, arrays={**scope.arrays, **arrays}, row_ptrs=degrees)

    def first_scope(self, table: SlotTable) -> KernelScope:
        """The scope of the first window of features."""
        window, whole = self.schedule.window, self.schedule.whole
        if not window:
            return self.whole_scope(table)
        return self._scope(table, FeatureLanes(whole, window), i64(0))

    @cached_property
    def uses_edges(self) -> bool:
        """Whether values of edges are read from arrays, or written to some."""
        program = self.program
        return bool(roles_of(program).edges or any(phase.stores for phase in program.phases))

    # the end

    def _finish_rows(self, table: SlotTable, task: ir.Value) -> None:
        task_ptr = table.pointer("task_ptr")
        first, last = load_word(task_ptr, task), load_word(task_ptr, arith.addi(task, i64(1)))

        def window(scope: KernelScope) -> None:
            def step(row: ir.Value, totals: Sequence[ir.Value]) -> Sequence[ir.Value]:
                return self._finish_light(table, scope, row, totals)

            totals = loop(first, last, 1, self._zero_totals(scope), step)
            self._store_totals(table, scope, task, totals)

        self._windows(table, window)

    def _finish_light(
        self, table: SlotTable, scope: KernelScope, row: ir.Value, totals: Sequence[ir.Value]
    ) -> Sequence[ir.Value]:
        """A row's values from its states; those of a row without edges were never stored."""
        low, high = self._range(table, row)
        degree, values, is_hub = arith.subi(high, low), RowScope(scope, row), None
        taken = arith.cmpi(_GT, degree, i64(0))
        if self.hub_degree:
            is_hub = arith.cmpi(_GT, degree, i64(self.hub_degree))
            light = arith.xori(is_hub, constant_of(True, is_hub.type))
            taken = arith.andi(taken, light)
        for node in self._row_results(len(self.program.phases)):
            values.values[node] = state_or_identity(table, scope, ROWS, node, row, taken)
        return self._finish_row(table, values, totals, is_hub)


@dataclass(frozen=True)
class Tile:
    """One phase over what a tile holds of runs of edges; `ends` gives the edges of a run."""

    kernels: TileKernels
    table: SlotTable
    runs: Runs
    number: int
    ends: Callable[[SlotTable, ir.Value], tuple[ir.Value, ir.Value]]

    @cached_property
    def edges(self) -> EdgeLoop:
        """The loop over a part of a row. What it reads was asked for when its edges were found."""
        kernels, phase = self.kernels, self.kernels.program.phases[self.number]
        schedule = replace(kernels.schedule, prefetch=0)
        nothing = TaskState({}, KeptCarries({}))
        return EdgeLoop(self.table, schedule, kernels.index_bits, phase, nothing)

    def seek(self, first: ir.Value, last: ir.Value) -> None:
        """Find how far the runs [first, last) go on in the tile."""
        table, runs = self.table, self.runs
        others = self.kernels.others(table, self.kernels.first_scope(table))

        def step(run: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            low, high = self.ends(table, run)
            start = arith.addi(low, load_word(table.pointer(runs.done), run, 32))
            taken = arith.subi(self._beyond(others, start, high), low)
            place = element_pointer(table.pointer(runs.after), run, integer(32))
            llvm.store(arith.trunci(integer(32), taken), place)
            return carried

        loop(first, last, 1, [], step)

    def _beyond(self, others: KernelScope, start: ir.Value, high: ir.Value) -> ir.Value:
        """The first edge from `start` on, before `high`, that is not in the tile."""
        word = integer(64)
        op = scf.WhileOp([word, word], [start])
        before, after = op.before.blocks.append(word), op.after.blocks.append(word, word)
        with ir.InsertionPoint(before):
            (edge,) = before.arguments
            left = arith.cmpi(_LESS, edge, high)
            test = scf.IfOp(left, [integer(1), word], has_else=True)
            with ir.InsertionPoint(test.then_block):
                scf.YieldOp(list(self._in_tile(edge)))
            with ir.InsertionPoint(test.else_block):
                scf.YieldOp([constant_of(False, integer(1)), i64(0)])
            inside, other = test.results
            scf.ConditionOp(inside, [edge, other])
        with ir.InsertionPoint(after):
            edge, other = after.arguments
            self.edges.ask_for(others, other)
            scf.YieldOp([arith.addi(edge, i64(1))])
        found: ir.Value = op.results[0]
        return found

    def _in_tile(self, edge: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Whether an edge lies in the tile with all that is read and written for it, whatever the
        file says; and its other end."""
        table, bits = self.table, self.kernels.index_bits
        other = load_word(table.pointer("index"), edge, bits)
        inside = self._within(other, "tile")
        if self.kernels.program.side == "src" and self.kernels.uses_edges:
            number = load_word(table.pointer("edge_id"), edge, bits)
            inside = arith.andi(inside, self._within(number, "number"))
        return inside, other

    def _within(self, value: ir.Value, what: str) -> ir.Value:
        place = arith.subi(value, self.table.number(f"{what}_low"))
        return arith.cmpi(_BELOW, place, self.table.number(f"{what}_size"))

    def fold(self, scope: KernelScope, first: ir.Value, last: ir.Value) -> None:
        """Fold what was found into the states of the runs."""
        others = self.kernels.others(self.table, scope)

        def step(run: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            done = load_word(self.table.pointer(self.runs.done), run, 32)
            taken = load_word(self.table.pointer(self.runs.after), run, 32)
            some = arith.cmpi(_GT, taken, done)
            with ir.InsertionPoint(scf.IfOp(some).then_block):
                self._fold_run(scope, others, run, done, taken)
                scf.YieldOp([])
            return carried

        loop(first, last, 1, [], step)

    def _fold_run(
        self, scope: KernelScope, others: KernelScope, run: ir.Value, done: ir.Value,
        taken: ir.Value,
    ) -> None:  # fmt: skip
        table, phase = self.table, self.edges.phase
        begun = arith.cmpi(_GT, done, i64(0))
        states = {
            node: state_or_identity(table, scope, self.runs, node, run, begun)
            for node in phase.reductions
        }
        low, _ = self.ends(table, run)
        edges = replace(self.edges, states=states, others=others)
        results = edges.run(self._row(scope, run), arith.addi(low, done), arith.addi(low, taken))
        for node, value in results.items():
            store(table.state(self.runs.kind, node), scope, node, run, value)

    def _row(self, scope: KernelScope, run: ir.Value) -> RowScope:
        """The row with what earlier phases left there; it has edges, so that they did."""
        table, kernels = self.table, self.kernels
        if self.runs is CHUNKS:
            row = load_word(table.pointer("chunk_row"), run)
            hub = load_word(table.pointer("chunk_hub"), run)
            return kernels.restore(table, scope, row, hub, self.number)
        values = RowScope(scope, run)
        for phase in kernels.program.phases[: self.number]:
            for node in phase.row_results:
                values.values[node] = load(table.state("state", node), scope, node, run)
        return values


def state_or_identity(
    table: SlotTable, scope: KernelScope, runs: Runs, node: Node, run: ir.Value, begun: ir.Value
) -> ir.Value:
    """The state of a run that was begun, else what a fold starts from."""
    start = filled(scope, node, node.op.monoid.identity(node.type.dtype))
    return arith.select(begun, load(table.state(runs.kind, node), scope, node, run), start)


@dataclass
class TileStep(RowStep):
    """A row program compiled to go through its walk tile by tile."""

    def kernels(self, index_bits: int, hub_degree: int) -> Kernels:
        return TileKernels(self.program, self.schedule, index_bits, hub_degree)

    @property
    def label(self) -> str:
        return f"{super().label}-tiles"


def tiled_step(step: RowStep) -> RowStep:
    """The same program, compiled so."""
    if step.tiled is None:
        slots = TileSlots(step.program)
        step.tiled = TileStep(step.program, step.schedule, slots, step.number, step.stages)
    return step.tiled


_GT = arith.CmpIPredicate.sgt
_LESS = arith.CmpIPredicate.slt
_BELOW = arith.CmpIPredicate.ult
