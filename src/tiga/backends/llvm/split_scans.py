"""Scans over rows that are split: the carries that each chunk starts from.

What a chunk needs of a scan is its carry before the chunk; the carries within are made again. Where
every scan of a phase joins, all chunks are scanned by themselves at once, and a loop over the
chunks of a row joins their results; otherwise one thread goes through the row. Either way the rest
of the phase then runs chunk by chunk on all threads, and a chunk's carries are kept no longer than
that, so what is stored is a state per chunk and not per edge.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.edges import EdgeLoop, TaskState
from tiga.backends.llvm.lanes import constant_of
from tiga.backends.llvm.layout import evaluate_op
from tiga.backends.llvm.loops import Step, loop
from tiga.backends.llvm.memory import i64, lanes_type, load_word, register_element
from tiga.backends.llvm.pieces import load, store
from tiga.backends.llvm.scans import keep_carries, run_step
from tiga.backends.llvm.scope import KernelScope, RowScope
from tiga.backends.llvm.slots import SlotTable
from tiga.backends.llvm.tasks import Function, Over
from tiga.passes.carries import joined_phases, kept_scans, levels, only_scans, reads_carry, root_of
from tiga.passes.rows import Phase, RowProgram, ScanLoop
from tiga.trace.node import Node
from tiga.trace.origin import Origin

if TYPE_CHECKING:
    from tiga.backends.llvm.kernel import Kernels


@dataclass(frozen=True)
class SplitScans:
    """Kernels for the scans of one phase of a program, over chunks and hubs."""

    kernels: "Kernels"
    number: int

    @property
    def program(self) -> RowProgram:
        return self.kernels.program

    @property
    def phase(self) -> Phase:
        return self.program.phases[self.number]

    def emitters(self) -> Iterator[tuple[Function, Callable[[SlotTable, ir.Value], None]]]:
        """The functions, and what emits a task of each, in launch order."""
        if self.number not in joined_phases(self.program):
            yield Function(f"hub_scans{self.number}", Over.HUBS), self._whole
            return
        for i in range(len(levels(self.phase))):
            name = f"{self.number}_{i}"
            yield Function(f"chunk_scans{name}", Over.CHUNKS), partial(self._alone, level=i)
            yield Function(f"hub_joins{name}", Over.HUBS), partial(self._join, level=i)

    # pieces

    def _loop(
        self, table: SlotTable, scans: Sequence[ScanLoop], task: TaskState,
        starts: dict[Node, ir.Value],
    ) -> EdgeLoop:  # fmt: skip
        phase = only_scans(self.phase, scans)
        return EdgeLoop(table, self.kernels.schedule, self.kernels.index_bits, phase, task, starts)

    def carry(
        self, table: SlotTable, scope: KernelScope, scan: ScanLoop, chunk: ir.Value
    ) -> ir.Value:
        """The carry before a chunk."""
        return load(table.state("carry", scan.before), scope, scan.before, chunk)

    def carries(
        self, table: SlotTable, scope: KernelScope, scans: Sequence[ScanLoop], chunk: ir.Value
    ) -> dict[Node, ir.Value]:
        """The carries before a chunk, by their nodes."""
        return {scan.before: self.carry(table, scope, scan, chunk) for scan in scans}

    def replay(self, table: SlotTable, base: RowScope, task: TaskState, chunk: ir.Value) -> None:
        """Make the carries of a chunk again that this phase reads of earlier ones."""
        low, high = chunk_edges(table, chunk)
        kept = {scan.before for scan in kept_scans(self.program)}
        for phase in self.program.phases[: self.number]:
            read = (s for s in phase.scans if s.before in kept)
            if not any(reads_carry(self.phase.edge_values, s.before) for s in read):
                continue
            starts = self.carries(table, base.kernel, phase.scans, chunk)
            row = RowScope(base.kernel, base.entity, dict(base.values))
            self._loop(table, phase.scans, task, starts).run(row, low, high)

    # chunks by themselves, and joined

    def _alone(self, table: SlotTable, chunk: ir.Value, level: int) -> None:
        """The scans of one level over one chunk alone; those of levels before are known."""
        scope = self.kernels.whole_scope(table)
        row = load_word(table.pointer("chunk_row"), chunk)
        hub = load_word(table.pointer("chunk_hub"), chunk)
        base = self.kernels.restore(table, scope, row, hub, self.number)
        groups = levels(self.phase)
        known = [scan for group in groups[:level] for scan in group]
        starts = self.carries(table, scope, known, chunk)
        starts |= {scan.before: self._neutral(base, scan) for scan in groups[level]}
        low, high = chunk_edges(table, chunk)
        with keep_carries(self.program, table.number("max_degree")) as kept:
            task = TaskState({}, kept)
            self.replay(table, base, task, chunk)
            scans = [scan for scan in self.phase.scans if scan.before in starts]
            self._loop(table, scans, task, starts).run(base, low, high)
        for scan in groups[level]:
            state = table.state("chunk", scan.after)
            store(state, scope, scan.after, chunk, base.values[scan.after])

    @staticmethod
    def _neutral(row: RowScope, scan: ScanLoop) -> ir.Value:
        """What a chunk's own scan starts from: the identity, or no derivative."""
        if scan.before.op.root < 0:
            return row.value(scan.initial)
        element = register_element(scan.before.type.dtype)
        return constant_of(0, lanes_type(element, scan.before.type.size))

    def _join(self, table: SlotTable, hub: ir.Value, level: int) -> None:
        """The carries before each chunk of a row, and after the row."""
        scope = self.kernels.whole_scope(table)
        row = load_word(table.pointer("hub_rows"), hub)
        base = self.kernels.restore(table, scope, row, hub, self.number)
        for scan in levels(self.phase)[level]:

            def step(
                chunk: ir.Value, carried: Sequence[ir.Value], scan: ScanLoop = scan
            ) -> list[ir.Value]:
                state = table.state("carry", scan.before)
                store(state, scope, scan.before, chunk, carried[0])
                return [self._joined(table, scope, scan, chunk, carried[0])]

            (last,) = self._over_chunks(table, hub, [base.value(scan.initial)], step)
            store(table.state("hub", scan.after), scope, scan.after, hub, last)

    def _joined(
        self, table: SlotTable, scope: KernelScope, scan: ScanLoop, chunk: ir.Value,
        carry: ir.Value,
    ) -> ir.Value:  # fmt: skip
        """The carry after a chunk."""

        def result(of: ScanLoop) -> ir.Value:
            return load(table.state("chunk", of.after), scope, of.after, chunk)

        run, root = result(scan), root_of(scan)
        before = carry if root is None else self.carry(table, scope, root, chunk)
        total = run if root is None else result(root)
        read = [self._uniform(scope, scan.elements[i]) for i in scan.before.op.read]
        return run_step(scope.layout, scan.before.op.join, [carry, run, before, total, *read])

    @staticmethod
    def _uniform(scope: KernelScope, node: Node) -> ir.Value:
        if node.op.origin is Origin.GLOBAL:
            return scope.value(node.inputs[0])
        return evaluate_op(scope.layout, node, [])

    def _over_chunks(
        self, table: SlotTable, hub: ir.Value, starts: Sequence[ir.Value], step: Step
    ) -> list[ir.Value]:
        """A loop over a row's chunks in the direction of the phase."""
        low, high = hub_chunks(table, hub)
        mirror = arith.subi(arith.addi(low, high), i64(1))
        reverse = self.phase.reverse

        def body(position: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            return step(arith.subi(mirror, position) if reverse else position, carried)

        return loop(low, high, 1, starts, body)

    # whole rows

    def _whole(self, table: SlotTable, hub: ir.Value) -> None:
        """All scans of the phase through all chunks of a row, one after the other."""
        scope = self.kernels.whole_scope(table)
        row = load_word(table.pointer("hub_rows"), hub)
        base = self.kernels.restore(table, scope, row, hub, self.number)
        scans = self.phase.scans
        starts = [base.value(scan.initial) for scan in scans]
        with keep_carries(self.program, table.number("max_degree")) as kept:
            task = TaskState({}, kept)

            def step(chunk: ir.Value, carried: Sequence[ir.Value]) -> list[ir.Value]:
                self.replay(table, base, task, chunk)
                for scan, carry in zip(scans, carried, strict=True):
                    state = table.state("carry", scan.before)
                    store(state, scope, scan.before, chunk, carry)
                given = {s.before: c for s, c in zip(scans, carried, strict=True)}
                values = RowScope(scope, row, dict(base.values))
                self._loop(table, scans, task, given).run(values, *chunk_edges(table, chunk))
                return [values.values[scan.after] for scan in scans]

            finals = self._over_chunks(table, hub, starts, step)
        for scan, value in zip(scans, finals, strict=True):
            store(table.state("hub", scan.after), scope, scan.after, hub, value)


def chunk_edges(table: SlotTable, chunk: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The range of edge positions of a chunk."""
    low, high = (load_word(table.pointer(name), chunk) for name in ("chunk_lo", "chunk_hi"))
    return low, high


def hub_chunks(table: SlotTable, hub: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The range of chunks of a split row."""
    hub_ptr = table.pointer("hub_ptr")
    return load_word(hub_ptr, hub), load_word(hub_ptr, arith.addi(hub, i64(1)))
