"""Kernels of one row program: the walk over tasks of rows, and the pieces for split rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial

from torch_mlir import ir
from torch_mlir.dialects import arith, scf

from tiga.backends.llvm.edges import EdgeLoop, Lengths, TaskState
from tiga.backends.llvm.lanes import constant_of
from tiga.backends.llvm.layout import ARITHMETIC, FeatureLanes
from tiga.backends.llvm.loops import for_each, loop
from tiga.backends.llvm.memory import i64, load_word
from tiga.backends.llvm.pieces import filled, fold, load, store
from tiga.backends.llvm.products import add_pieces, make_accumulator
from tiga.backends.llvm.scans import declare_allocator, keep_carries
from tiga.backends.llvm.scatters import SCATTER_GROUPS, combine_groups, tasks_of
from tiga.backends.llvm.scope import KernelScope, RowScope
from tiga.backends.llvm.slots import Slots, SlotTable
from tiga.backends.llvm.split_scans import SplitScans, chunk_edges, hub_chunks
from tiga.backends.llvm.task_function import task_function
from tiga.backends.llvm.tasks import Function, Over
from tiga.passes.carries import kept_scans
from tiga.passes.rows import Phase, RowProgram
from tiga.passes.schedule import Schedule, evaluated
from tiga.trace.node import Node
from tiga.trace.origin import Origin

Body = Callable[[KernelScope], None]
Task = Callable[[SlotTable, ir.Value], None]


@dataclass(frozen=True)
class Kernels:
    """Emits the functions of a row program into the module at the insertion point.

    `index_bits` is the width of the walk's indices, `lengths` are those of its rows; `hub_degree`
    splits rows with more edges than that, 0 where the graph has none.
    """

    program: RowProgram
    schedule: Schedule
    index_bits: int
    hub_degree: int = 0
    lengths: Lengths = Lengths.SHORT

    def emit(self, prefix: str) -> tuple[Function, ...]:
        """All functions, named after `prefix`, in launch order."""
        if kept_scans(self.program):
            declare_allocator()
        emitters = self._emitters()
        for function, body in emitters.items():
            task_function(f"{prefix}_{function.name}", partial(self._with_slots, body))
        return tuple(emitters)

    def _with_slots(self, body: Task, table: ir.Value) -> Callable[[ir.Value], None]:
        return partial(body, SlotTable(table, self.slots))

    def _emitters(self) -> dict[Function, Task]:
        """What emits a task of each function."""
        program = self.program
        emitters: dict[Function, Task] = {}
        if program.scatters:
            emitters[Function("rows", Over.GROUPS)] = self._group
        else:
            emitters[Function("rows", Over.TASKS)] = self._rows
        if self.hub_degree and program.phases:
            for number in range(len(program.phases)):
                emitters.update(self._split_phase(number))
            emitters[Function("finish", Over.HUBS)] = self._finish_hub
        if program.has_sums:
            emitters[Function("totals", Over.ALL)] = self._totals
        if program.scatters:
            emitters[Function("scatters", Over.OTHERS)] = self._scatters
        return emitters

    def _split_phase(self, number: int) -> Iterator[tuple[Function, Task]]:
        """The functions of one phase over split rows."""
        phase = self.program.phases[number]
        if phase.scans:
            yield from SplitScans(self, number).emitters()
        if phase.carries_only:
            return
        if phase.scatters or self.program.large_sums.intersection(phase.outer_sums):
            groups = Function(f"groups{number}", Over.GROUPS, phase.stores)
            yield groups, partial(self._chunk_group, phase=number)
        else:
            chunks = Function(f"chunks{number}", Over.CHUNKS, phase.stores)
            yield chunks, partial(self._chunk, phase=number)
        if phase.reductions:
            yield Function(f"hubs{number}", Over.HUBS), partial(self._combine, phase=phase)

    @cached_property
    def slots(self) -> Slots:
        """The arguments of all functions."""
        return Slots(self.program)

    # scopes

    def _scope(
        self, table: SlotTable, layout: FeatureLanes, window: ir.Value | None
    ) -> KernelScope:
        program = self.program
        arrays = {node: table.array(node) for node in program.reads}
        degrees = {ends: table.pointer(("degree", *ends)) for ends in table.slots.degrees}
        scope = KernelScope(program, arrays, degrees, layout, table.allocate, window)
        for node in self._globals:
            scope.value(node)  # before any loop, which could not hand it on
        return scope

    def whole_scope(self, table: SlotTable) -> KernelScope:
        """The scope of a kernel that takes values whole."""
        return self._scope(table, FeatureLanes(), None)

    @cached_property
    def _globals(self) -> tuple[Node, ...]:
        """Global values that rows or edges read."""
        spreads = (n for n in evaluated(self.program) if n.op.origin is Origin.GLOBAL)
        return tuple(dict.fromkeys(n.inputs[0] for n in spreads))

    def _windows(self, table: SlotTable, body: Body) -> None:
        """Run `body` for every window of features."""
        window, whole = self.schedule.window, self.schedule.whole
        if not window:
            body(self.whole_scope(table))
            return
        full = whole - whole % window

        def one(start: ir.Value) -> None:
            body(self._scope(table, FeatureLanes(whole, window), start))

        for_each(i64(0), i64(full), window, one)
        if whole > full:
            body(self._scope(table, FeatureLanes(whole, whole - full), i64(full)))

    # the walk

    def _group(self, table: SlotTable, group: ir.Value) -> None:
        """The tasks of a group, whose scattered sums are its own."""
        first = arith.muli(group, table.number("num_others"))
        low, high = tasks_of(group, table.number("num_tasks"))
        for_each(low, high, 1, lambda task: self._rows(table, task, first))

    def _scatters(self, table: SlotTable, task: ir.Value) -> None:
        for node in self.program.scatters:
            sums, result = table.state("scatter", node), table.array(node)
            combine_groups(node, sums, result, table.number("num_others"), task)

    def _rows(self, table: SlotTable, task: ir.Value, scattered: ir.Value | None = None) -> None:
        task_ptr = table.pointer("task_ptr")
        first = load_word(task_ptr, task)
        last = load_word(task_ptr, arith.addi(task, i64(1)))
        self.rows_between(table, task, first, last, scattered)

    def rows_between(
        self,
        table: SlotTable,
        task: ir.Value,
        first: ir.Value,
        last: ir.Value,
        scattered: ir.Value | None = None,
    ) -> None:
        """The rows [first, last), which belong to a task."""

        def window(scope: KernelScope) -> None:
            totals = self._zero_totals(scope)
            pieces = dict.fromkeys(self.program.outer_sums, task)
            with self._task_state(table, pieces, scattered) as state:
                totals = loop(
                    first, last, 1, totals, lambda r, t: self._row(table, scope, state, r, t)
                )
            self._store_totals(table, scope, task, totals)

        self._windows(table, window)

    def _row(
        self,
        table: SlotTable,
        scope: KernelScope,
        state: TaskState,
        row: ir.Value,
        totals: Sequence[ir.Value],
    ) -> Sequence[ir.Value]:
        values = RowScope(scope, row)
        is_hub = None
        if self.program.phases:
            low, high = self._range(table, row)
            if self.hub_degree:
                is_hub = arith.cmpi(_GT, arith.subi(high, low), i64(self.hub_degree))
                high = arith.select(is_hub, low, high)
            for phase in self.program.phases:
                self._run_phase(table, phase, state, values, low, high)
        return self._finish_row(table, values, totals, is_hub)

    def _range(self, table: SlotTable, row: ir.Value) -> tuple[ir.Value, ir.Value]:
        row_ptr = table.pointer("row_ptr")
        return load_word(row_ptr, row), load_word(row_ptr, arith.addi(row, i64(1)))

    def _run_phase(
        self,
        table: SlotTable,
        phase: Phase,
        state: TaskState,
        row: RowScope,
        low: ir.Value,
        high: ir.Value,
        starts: Mapping[Node, ir.Value] | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        edges = EdgeLoop(
            table, self.schedule, self.index_bits, phase, state, starts or {},
            lengths=lengths or self.lengths,
        )  # fmt: skip
        row.values.update(edges.run(row, low, high))

    @contextmanager
    def _task_state(
        self, table: SlotTable, pieces: Mapping[Node, ir.Value], scattered: ir.Value | None = None
    ) -> Iterator[TaskState]:
        """What lasts over the rows of a task; sums over edges go to these pieces of their totals,
        of which large ones are cleared when they are allocated."""
        sums = {
            node: make_accumulator(node, table.state("partial", node), piece, table.allocate)
            for node, piece in pieces.items()
        }
        for node, one in sums.items():
            if node not in self.program.large_sums:
                one.begin()
        with keep_carries(self.program, table.number("max_degree")) as kept:
            yield TaskState(sums, kept, scattered)
        for one in sums.values():
            one.end()

    def _finish_row(
        self,
        table: SlotTable,
        row: RowScope,
        totals: Sequence[ir.Value],
        is_hub: ir.Value | None = None,
    ) -> Sequence[ir.Value]:
        """Store the row's values; the totals with its share added.

        All values are evaluated before any is stored: one may take the place of what another reads.
        A hub's are left to the kernel that finishes it, as its chunks have yet to read the row.
        """
        stored = [(node, row.value(node)) for node in self.program.stores]
        shares = [row.value(node.inputs[0]) for node in self.program.totals]
        if is_hub is None:
            self._store_row(table, row, stored)
        else:
            whole = arith.xori(is_hub, constant_of(True, is_hub.type))
            with ir.InsertionPoint(scf.IfOp(whole).then_block):
                self._store_row(table, row, stored)
                scf.YieldOp([])
            shares = [arith.select(is_hub, constant_of(0, s.type), s) for s in shares]
        return [ARITHMETIC.add(t, s) for t, s in zip(totals, shares, strict=True)]

    def _store_row(
        self, table: SlotTable, row: RowScope, values: Sequence[tuple[Node, ir.Value]]
    ) -> None:
        for node, value in values:
            store(table.array(node), row.kernel, node, row.entity, value)

    # totals

    def _zero_totals(self, scope: KernelScope) -> list[ir.Value]:
        return [filled(scope, node, 0) for node in self.program.totals]

    def _store_totals(
        self, table: SlotTable, scope: KernelScope, piece: ir.Value, totals: Sequence[ir.Value]
    ) -> None:
        for node, value in zip(self.program.totals, totals, strict=True):
            store(table.state("partial", node), scope, node, piece, value)

    def _totals(self, table: SlotTable, task: ir.Value) -> None:
        """Add the pieces of every total in their order."""

        def window(scope: KernelScope) -> None:
            pieces = arith.addi(table.number("num_tasks"), table.number("num_hubs"))
            for node in self.program.totals:
                states = table.state("partial", node)
                total = fold(scope, node, states, i64(0), pieces, "sum")
                store(table.array(node), scope, node, i64(0), total)

        if self.program.totals:
            self._windows(table, window)
        tasks, chunks = table.number("num_tasks"), table.number("num_chunks")
        few = i64(SCATTER_GROUPS if self.hub_degree else 0)
        for node in self.program.outer_sums:
            pieces = arith.addi(tasks, few if node in self.program.large_sums else chunks)
            add_pieces(table.state("partial", node), pieces, table.array(node))

    # split rows

    def _row_results(self, before: int) -> Iterator[Node]:
        """What the phases before number `before` leave at the row."""
        return (node for phase in self.program.phases[:before] for node in phase.row_results)

    def restore(
        self, table: SlotTable, scope: KernelScope, row: ir.Value, hub: ir.Value, phases: int
    ) -> RowScope:
        """A row with the combined states of its first phases."""
        values = RowScope(scope, row)
        for node in self._row_results(phases):
            values.values[node] = load(table.state("hub", node), scope, node, hub)
        return values

    def _chunk_group(self, table: SlotTable, group: ir.Value, phase: int) -> None:
        """The chunks of a group, whose scattered and large sums are its own."""
        low, high = tasks_of(group, table.number("num_chunks"))
        for_each(low, high, 1, lambda chunk: self._chunk(table, chunk, phase, group))

    def _chunk(
        self, table: SlotTable, chunk: ir.Value, phase: int, group: ir.Value | None = None
    ) -> None:
        """One phase over one chunk of a split row; its states are stored by chunk."""
        row = load_word(table.pointer("chunk_row"), chunk)
        hub = load_word(table.pointer("chunk_hub"), chunk)
        low, high = chunk_edges(table, chunk)
        done, scans = self.program.phases[phase], SplitScans(self, phase)

        def window(scope: KernelScope) -> None:
            values = self.restore(table, scope, row, hub, phase)
            starts = scans.carries(table, scope, done.scans, chunk)
            with self._chunk_state(table, chunk, group, done.outer_sums) as state:
                scans.replay(table, values, state, chunk)
                self._run_phase(table, done, state, values, low, high, starts, Lengths.LONG)
            for node in done.reductions:
                states = table.state("chunk", node)
                store(states, scope, node, chunk, values.value(node))

        self._windows(table, window)

    def _chunk_state(
        self, table: SlotTable, chunk: ir.Value, group: ir.Value | None, sums: Sequence[Node]
    ) -> AbstractContextManager[TaskState]:
        """As of a task: a chunk has pieces of its own, of large sums those of its group."""
        tasks, large = table.number("num_tasks"), self.program.large_sums
        if group is None:
            return self._task_state(table, dict.fromkeys(sums, arith.addi(tasks, chunk)))
        pieces = {n: arith.addi(tasks, group if n in large else chunk) for n in sums}
        return self._task_state(table, pieces, arith.muli(group, table.number("num_others")))

    def _combine(self, table: SlotTable, hub: ir.Value, phase: Phase) -> None:
        """The states of a split row's chunks combined in their order."""
        low, high = hub_chunks(table, hub)

        def window(scope: KernelScope) -> None:
            for node in phase.reductions:
                pieces = table.state("chunk", node)
                total = fold(scope, node, pieces, low, high, node.op.kind)
                store(table.state("hub", node), scope, node, hub, total)

        self._windows(table, window)

    def _finish_hub(self, table: SlotTable, hub: ir.Value) -> None:
        row = load_word(table.pointer("hub_rows"), hub)

        def window(scope: KernelScope) -> None:
            values = self.restore(table, scope, row, hub, len(self.program.phases))
            totals = self._finish_row(table, values, self._zero_totals(scope))
            piece = arith.addi(table.number("num_tasks"), hub)
            self._store_totals(table, scope, piece, totals)

        self._windows(table, window)


_GT = arith.CmpIPredicate.sgt
