"""Kernels that fold a tile of the other ends into rows whose states wait in memory between tiles.

Where the other ends ascend along each row, the edges of a row that lie in one tile follow one
another, and tiles in order bring them in the row's own order. So a row goes on from its state with
the next edges, exactly as one loop over all of them would.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm, scf

from tiga.backends.llvm.edges import EdgeLoop, Lengths, TaskState
from tiga.backends.llvm.kernel import Kernels, Task
from tiga.backends.llvm.lanes import constant_of, integer
from tiga.backends.llvm.layout import ARITHMETIC, FeatureLanes
from tiga.backends.llvm.loops import for_each, loop, repeat
from tiga.backends.llvm.memory import CACHE_LINE, Array, element_pointer, i64, load_word
from tiga.backends.llvm.paged.tile_slots import CHUNKS, ROWS, Runs, TileSlots, state_or_identity
from tiga.backends.llvm.pieces import filled, load, store
from tiga.backends.llvm.scans import KeptCarries
from tiga.backends.llvm.scope import KernelScope, RowScope
from tiga.backends.llvm.slots import SlotTable
from tiga.backends.llvm.split_scans import chunk_edges
from tiga.backends.llvm.steps import RowStep
from tiga.backends.llvm.tasks import Function, Over
from tiga.passes.roles import roles_of
from tiga.passes.rows import adds_up
from tiga.relations.walk import STRETCH
from tiga.trace.node import Node

GROUP = 128
"""Edges that are looked for, and what they read asked for, before they are folded: as many as the
nearest cache holds the other ends of. Folding them in one loop, whatever their rows, spares a
processor to guess how many each row has."""

FINISH_ROWS = Function("finish_rows", Over.TASKS)
FINISH_HUBS = Function("finish", Over.HUBS)
TOTALS = Function("totals", Over.ALL)


def tile_of(phase: int) -> Function:
    """Folds a tile into rows."""
    return Function(f"tile{phase}", Over.TASKS)


def chunk_tile_of(phase: int) -> Function:
    """Folds a tile into the chunks of split rows."""
    return Function(f"chunk_tile{phase}", Over.CHUNKS)


def hubs_of(phase: int) -> Function:
    """Combines the chunks of split rows."""
    return Function(f"hubs{phase}", Over.HUBS)


@dataclass(frozen=True)
class TileKernels(Kernels):
    """Emits the functions that go through a walk tile by tile.

    For each phase `tile` folds a tile into rows, and where rows are split, `chunk_tile` into their
    chunks, which `hubs` combines; then `finish_rows`, and `finish` for split rows, store values.
    """

    @cached_property
    def slots(self) -> TileSlots:
        return TileSlots(self.program)

    def _emitters(self) -> dict[Function, Task]:
        emitters: dict[Function, Task] = {}
        for number, phase in enumerate(self.program.phases):
            emitters[tile_of(number)] = partial(self._rows_tile, number=number)
            if self.hub_degree:
                emitters[chunk_tile_of(number)] = partial(self._chunk_tile, number=number)
            if self.hub_degree and phase.reductions:
                emitters[hubs_of(number)] = partial(self._combine, phase=phase)
        emitters[FINISH_ROWS] = self._finish_rows
        if self.hub_degree:
            emitters[FINISH_HUBS] = self._finish_hub
        if self.program.has_sums:
            emitters[TOTALS] = self._totals
        return emitters

    # a tile

    def _rows_tile(self, table: SlotTable, task: ir.Value, number: int) -> None:
        task_ptr = table.pointer("task_ptr")
        low, high = load_word(task_ptr, task), load_word(task_ptr, arith.addi(task, i64(1)))
        self._tile(Tile(self, table, ROWS, number, self._light_range), low, high)

    def _chunk_tile(self, table: SlotTable, chunk: ir.Value, number: int) -> None:
        tile = Tile(self, table, CHUNKS, number, chunk_edges)
        self._tile(tile, chunk, arith.addi(chunk, i64(1)))

    def _tile(self, tile: "Tile", low: ir.Value, high: ir.Value) -> None:
        """Fold what the tile has of runs [low, high), a group of edges at a time."""

        def group(run: ir.Value) -> list[ir.Value]:
            after, count = tile.collect(run, high)
            self._windows(tile.table, lambda scope: tile.fold(scope, count))
            return [after]

        repeat([low], lambda run: arith.cmpi(_LESS, run, high), group)

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

    def rows_of(self, phase: int) -> tuple[Node, ...]:
        """Arrays that a phase's edges read at their rows."""
        part = replace(self.program, phases=(self.program.phases[phase],), stores=(), totals=())
        roles = roles_of(part)
        return tuple(n for n in self.program.reads if n in roles.rows)

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

    @cached_property
    def found(self) -> tuple[ir.Value, ir.Value]:
        """The runs and the positions of a group's edges."""
        runs, edges = (self.table.allocate(integer(64), GROUP) for _ in range(2))
        return runs, edges

    def collect(self, run: ir.Value, high: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Find the next edges in the tile, of the runs [run, high): the run to go on with, and how
        many they are. They count as taken."""
        scope, taken = self.kernels.first_scope(self.table), self.table.pointer(self.runs.taken)

        def goes_on(run: ir.Value, count: ir.Value) -> ir.Value:
            left = arith.cmpi(_LESS, run, high)
            return arith.andi(left, arith.cmpi(_LESS, count, i64(GROUP)))

        def step(run: ir.Value, count: ir.Value) -> list[ir.Value]:
            low, end = self.ends(self.table, run)
            start = arith.addi(low, load_word(taken, run, 32))
            after, count = self._of_run(scope, run, start, end, count)
            number = arith.trunci(integer(32), arith.subi(after, low))
            llvm.store(number, element_pointer(taken, run, integer(32)))
            # A full group may leave edges of this run.
            done = arith.cmpi(_LESS, count, i64(GROUP))
            return [arith.select(done, arith.addi(run, i64(1)), run), count]

        after, count = repeat([run, i64(0)], goes_on, step)
        return after, count

    def _of_run(
        self, scope: KernelScope, run: ir.Value, start: ir.Value, end: ir.Value, count: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """The next edges of one run: the one to go on with, and the length of the list."""
        (runs, edges), others = self.found, self.kernels.others(self.table, scope)

        def goes_on(edge: ir.Value, count: ir.Value) -> ir.Value:
            room = arith.cmpi(_LESS, count, i64(GROUP))
            left = arith.andi(room, arith.cmpi(_LESS, edge, end))
            test = scf.IfOp(left, [integer(1)], has_else=True)
            with ir.InsertionPoint(test.then_block):
                scf.YieldOp([self._in_tile(edge)])
            with ir.InsertionPoint(test.else_block):
                scf.YieldOp([constant_of(False, integer(1))])
            inside: ir.Value = test.results[0]
            return inside

        def step(edge: ir.Value, count: ir.Value) -> list[ir.Value]:
            self.edges.ask_for(others, self._other(edge))
            self._ask_for_row(scope, run)
            for array, value in ((runs, run), (edges, edge)):
                llvm.store(value, element_pointer(array, count, integer(64)))
            return [arith.addi(edge, i64(1)), arith.addi(count, i64(1))]

        after, count = repeat([start, count], goes_on, step)
        return after, count

    def _ask_for_row(self, scope: KernelScope, run: ir.Value) -> None:
        """Let the caches fetch the state of a row, and what edges read at it: rows of which a tile
        has nothing lie between."""
        if self.runs is CHUNKS:
            return
        states = [(self.table.state("state", n), n) for n in self.edges.phase.reductions]
        read = self.kernels.rows_of(self.number)
        for array, node in (*states, *((scope.arrays[n], n) for n in read)):
            width = scope.layout.width(node.type)
            if width * array.dtype.itemsize >= CACHE_LINE:
                array.prefetch(scope.offset(array, node, run), width)

    def _other(self, edge: ir.Value) -> ir.Value:
        return load_word(self.table.pointer("index"), edge, self.kernels.index_bits)

    def _in_tile(self, edge: ir.Value) -> ir.Value:
        """Whether an edge lies in the tile with all that is read and written for it, whatever the
        file says."""
        inside = self._within(self._other(edge), "tile")
        if self.kernels.program.side == "src" and self.kernels.uses_edges:
            number = load_word(self.table.pointer("edge_id"), edge, self.kernels.index_bits)
            inside = arith.andi(inside, self._within(number, "number"))
        return inside

    def _within(self, value: ir.Value, what: str) -> ir.Value:
        place = arith.subi(value, self.table.number(f"{what}_low"))
        return arith.cmpi(_BELOW, place, self.table.number(f"{what}_size"))

    def fold(self, scope: KernelScope, count: ir.Value) -> None:
        """Fold the edges that were found, one after the other, into the states of their runs."""
        others = self.kernels.others(self.table, scope)
        runs, edges = self.found

        def step(place: ir.Value) -> None:
            self._fold_edge(scope, others, load_word(runs, place), load_word(edges, place))

        for_each(i64(0), count, 1, step)

    def _fold_edge(
        self, scope: KernelScope, others: KernelScope, run: ir.Value, edge: ir.Value
    ) -> None:
        table, phase = self.table, self.edges.phase
        low, high = self.ends(table, run)
        within, summed = arith.subi(edge, low), self.summed
        begun, anew = arith.cmpi(_GT, edge, low), arith.cmpi(_GT, _in_stretch(within), i64(0))
        states = {
            node: state_or_identity(
                table, scope, self.runs, node, run, anew if node in summed else begun
            )
            for node in phase.reductions
        }
        edges = replace(self.edges, states=states, others=others)
        results = edges.run(self._row(scope, run), edge, arith.addi(edge, i64(1)))
        for node, value in results.items():
            store(table.state(self.runs.kind, node), scope, node, run, value)
        if summed:
            sums = {node: results[node] for node in summed}
            self._end_stretch(scope, run, (low, high), within, sums)

    @cached_property
    def summed(self) -> tuple[Node, ...]:
        """The reductions whose edges are added stretch by stretch."""
        if self.kernels.lengths is Lengths.SHORT:
            return ()
        return tuple(filter(adds_up, self.edges.phase.reductions))

    def _end_stretch(
        self, scope: KernelScope, run: ir.Value, ends: tuple[ir.Value, ir.Value],
        within: ir.Value, sums: Mapping[Node, ir.Value],
    ) -> None:  # fmt: skip
        """After the last of a stretch of edges, where there are several, add their sums to those of
        the stretches before; after the last edge of all the result is the state."""
        (low, high), one = ends, i64(1)
        count = arith.subi(high, low)
        last = arith.cmpi(_EQUAL, arith.addi(within, one), count)
        full = arith.cmpi(_EQUAL, _in_stretch(within), i64(STRETCH - 1))
        done = arith.andi(arith.cmpi(_GT, count, i64(STRETCH)), arith.ori(last, full))
        with ir.InsertionPoint(scf.IfOp(done).then_block):
            first = arith.cmpi(_LESS, within, i64(STRETCH))
            # Runs of several stretches start more than one apart.
            place = arith.divui(low, i64(STRETCH))
            for node, value in sums.items():
                before = load(self.table.state("stretch", node), scope, node, place)
                before = arith.select(first, filled(scope, node, 0), before)
                total = ARITHMETIC.add(before, value)
                store(self.table.state("stretch", node), scope, node, place, total)
                store(self.table.state(self.runs.kind, node), scope, node, run, total)
            scf.YieldOp([])

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


@dataclass
class TileStep(RowStep):
    """A row program compiled to go through its walk tile by tile."""

    def kernels(self, index_bits: int, hub_degree: int, lengths: Lengths) -> Kernels:
        return TileKernels(self.program, self.schedule, index_bits, hub_degree, lengths)

    @property
    def label(self) -> str:
        return f"{super().label}-tiles"


def tiled_step(step: RowStep) -> RowStep:
    """The same program, compiled so."""
    if step.tiled is None:
        slots = TileSlots(step.program)
        step.tiled = TileStep(step.program, step.schedule, slots, step.number, step.stages)
    return step.tiled


def _in_stretch(within: ir.Value) -> ir.Value:
    """An edge's place in its stretch, by that in its row or chunk."""
    return arith.andi(within, i64(STRETCH - 1))


_EQUAL = arith.CmpIPredicate.eq
_GT = arith.CmpIPredicate.sgt
_LESS = arith.CmpIPredicate.slt
_BELOW = arith.CmpIPredicate.ult
