"""Scans over rows that are split: the carries that each chunk starts from.

Where every scan of a program joins, chunks are scanned by themselves at once, one more kernel goes
through the chunks of a row and joins their results in order, and then the rest of the phase takes
chunk by chunk, from the right carries. Rows of other programs stay whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tiga.backends.triton.arithmetic import literal, typed
from tiga.backends.triton.block import Block
from tiga.backends.triton.kernel import Kernel, Kernels
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.scans import BLOCK, ScanEdgeLoop, Start, initial, read_scans, run_step
from tiga.backends.triton.scatters import FIRST, SLOT
from tiga.backends.triton.scope import Entity, RowScope
from tiga.backends.triton.topology import CHUNK
from tiga.backends.triton.writer import KernelSource, Value, pointer_type
from tiga.passes.carries import joined_phases, kept_scans, levels, only_scans, root_of
from tiga.passes.rows import RowProgram, ScanLoop
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import int64

MARKS_OF_CHUNK = CHUNK // BLOCK
CHUNK_MARKS = f"item[:, None] * {MARKS_OF_CHUNK}"


def splits(program: RowProgram) -> bool:
    """Whether long rows of a program are taken in chunks."""
    if not program.scans:
        return True
    scanned = {i for i, phase in enumerate(program.phases) if phase.scans}
    return scanned == joined_phases(program)


def states_of(program: RowProgram) -> Iterator[tuple[str, Node]]:
    """What chunks and split rows keep for scans, by its kind."""
    for scan in program.scans:
        yield from (("chunk", scan.after), ("carry", scan.before), ("hub", scan.after))


@dataclass(frozen=True)
class ScanKernels(Kernels):
    """Writes the kernels of a row program with scans."""

    def _kernel(self, name: str, tile: Tile) -> "ScanKernel":
        return ScanKernel(self, name, tile)

    def split(self, name: str, phase: int) -> list[tuple[str, KernelSource]]:
        """The kernels that find the carries before each chunk, then those that take the rest."""
        here, last = self.program.phases[phase], phase + 1 == len(self.program.phases)
        kept = set(kept_scans(self.program)).intersection(here.scans)
        chunks, combine = super().split(name, phase)
        found = self._scans(name, phase)
        found += [] if here.carries_only and not kept else [chunks]
        return [*found, combine] if here.reductions or last else found

    def _scans(self, name: str, phase: int) -> list[tuple[str, KernelSource]]:
        found = []
        one = replace(self.tile, rows=1, edges=1, groups=0)
        for level in range(len(levels(self.program.phases[phase]))):
            alone = self._kernel(f"{name}_scans{phase}_{level}", self.tile)
            join = self._kernel(f"{name}_joins{phase}_{level}", one)
            found += [("chunks", alone.alone(phase, level)), ("hubs", join.join(phase, level))]
        return found


@dataclass
class ScanKernel(Kernel):
    """One kernel of a row program with scans."""

    start: Start = initial
    keeps: bool = True
    marks: str = ScanEdgeLoop.marks
    slot: str = ""

    def rows(self, mixed: bool) -> KernelSource:
        self.loops = bool(kept_scans(self.program))
        if self.program.scatters:
            self._take_blocks()
            self.marks = f"{self.slot} // {BLOCK} + (item - {FIRST})[:, None]"
        return super().rows(mixed)

    def chunks(self, phase: int) -> KernelSource:
        here = self.program.phases[phase]
        self.loops = bool(read_scans(self.program, here))
        self.start, self.marks = self._before_chunk, self._marks_of_chunks
        if here.scatters:
            self._take_blocks()
        return super().chunks(phase)

    @property
    def _marks_of_chunks(self) -> str:
        """By the chunk, where rows have a block's marks only: by the row, all have a place."""
        return CHUNK_MARKS if self.program.scatters else ScanEdgeLoop.marks

    def _take_blocks(self) -> None:
        """Take one block of items at a time: its messages to far ends fit their memory."""
        self.first = self.writer.frame_parameter(FIRST)
        self.slot = self.writer.names.fresh("message_slot")

    def _walked_row(self) -> RowScope:
        if self.slot:
            pointer = self.writer.parameter(SLOT, SLOT, pointer_type(self.kernels.index))
            text = f"tl.load({pointer} + item, mask=item < num_items, other=0)[:, None]"
            self.body.add(f"{self.slot} = {text}")
        return super()._walked_row()

    def alone(self, phase: int, level: int) -> KernelSource:
        """The scans of one level over each chunk alone; those of levels before are known."""
        here = self.program.phases[phase]
        groups = levels(here)
        known = [scan for group in groups[:level] for scan in group]
        self.keeps, self.marks = False, self._marks_of_chunks
        self.start = lambda scan, row: (
            self._before_chunk(scan, row) if scan in known else self._neutral(scan, row)
        )
        scans = [scan for scan in here.scans if scan in (*known, *groups[level])]
        part = only_scans(here, scans)
        self.loops = bool(read_scans(self.program, part))
        self._begin((), ())
        row = self._chunk_row(phase)
        values = self._loop().run(part, row, {})
        for scan in groups[level]:
            self._store("chunk", scan.after, self._item("valid"), self.body, values[scan.after])
        return self._end()

    def join(self, phase: int, level: int) -> KernelSource:
        """The carries before each chunk of a split row, and after the row."""
        self._begin((), ())
        row, hub = self._hub_row(), self._item(None)
        self._restore(row, hub, phase)
        pointer = self.writer.parameter("hub_ptr", "hub_ptr", pointer_type(int64))
        self.body.add(f"low = tl.load({pointer} + item)[:, None]")
        self.body.add(f"steps = tl.max(tl.load({pointer} + item + 1), 0) - tl.max(low)")
        for scan in levels(self.program.phases[phase])[level]:
            self._store("hub", scan.after, hub, self.body, self._joined(scan, row))
        return self._end()

    # parts of kernels

    def _phases(self, row: RowScope, merge: bool) -> None:
        super()._phases(row, merge=False)

    def _loop(self) -> ScanEdgeLoop:
        k = self.kernels
        how = self.start, self.keeps, self.marks, self.slot
        return ScanEdgeLoop(self.scope, self.body, k.index, k.wide, *how)

    def _restore(self, row: RowScope, hub: Entity, phase: int) -> None:
        super()._restore(row, hub, phase)
        for before in range(phase):
            row.values.update(self._finals(before, hub))

    def _fold(self, phase: int) -> dict[Node, Value]:
        finals = self._finals(phase, self._item(None))
        folds = self.program.phases[phase].reductions
        return {**finals, **super()._fold(phase)} if folds else finals

    def _finals(self, phase: int, hub: Entity) -> dict[Node, Value]:
        """The carries after split rows."""
        scans = self.program.phases[phase].scans
        return {scan.after: self._load("hub", scan.after, hub, self.body) for scan in scans}

    def _joined(self, scan: ScanLoop, row: RowScope) -> Value:
        """The carry after a row, joined chunk by chunk."""
        writer, dims = self.writer, self.writer.dims(1, 1, scan.after.type)
        start = writer.full(initial(scan, row), dims)
        carry = writer.named(self.body, "carry", Value(typed(start.term), dims))
        inner, chunk = Block(), Entity("position", None, (1, 1))
        inner.add("position = low + " + ("steps - 1 - start" if scan.reverse else "start"))
        self._store("carry", scan.before, chunk, inner, carry)
        after = self._after_chunk(scan, carry, chunk, inner)
        inner.add(f"{carry.text} = {writer.full(after, dims).text}")
        self.body.nest("for start in tl.range(0, steps, num_stages=1):", inner)
        return carry

    def _after_chunk(self, scan: ScanLoop, carry: Value, chunk: Entity, block: Block) -> Value:
        op, root = scan.before.op, root_of(scan)
        run = self._load("chunk", scan.after, chunk, block)
        before, total = carry, run
        if root is not None:
            before = self._load("carry", root.before, chunk, block)
            total = self._load("chunk", root.after, chunk, block)
        read = [self._uniform(scan.elements[i]) for i in op.read]
        evaluator = self.scope.evaluator
        after = run_step(evaluator, block, op.join, [carry, run, before, total, *read])
        return Value(typed(after.term), after.dims)

    def _uniform(self, node: Node) -> Value:
        if node.op.origin is Origin.GLOBAL:
            return self.scope.value(node.inputs[0])
        return self.scope.evaluator.constant(node)

    # what a chunk starts from

    def _before_chunk(self, scan: ScanLoop, row: RowScope) -> Value:
        return self._load("carry", scan.before, self._item("valid"), self.body)

    @staticmethod
    def _neutral(scan: ScanLoop, row: RowScope) -> Value:
        """What a chunk's own scan starts from: the identity, or no derivative."""
        if scan.before.op.root < 0:
            return initial(scan, row)
        return Value(literal(0, scan.before.type.dtype.compute), ())

    # memory

    def _load(self, kind: str, node: Node, entity: Entity, block: Block) -> Value:
        pointer, dtype = self.scope.state(kind, node), node.type.dtype.compute
        return self.scope.load_from(block, pointer, node.type, dtype, entity, kind)

    def _store(self, kind: str, node: Node, entity: Entity, block: Block, value: Value) -> None:
        pointer, dtype = self.scope.state(kind, node), node.type.dtype.compute
        self.scope.store(block, pointer, node.type, dtype, entity, value)
