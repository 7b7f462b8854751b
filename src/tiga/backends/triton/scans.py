"""Loops that carry scans: one edge of every row of a tile at a time, the carries in registers.

Carries that a later loop reads (those of a reducer, in its derivatives) lie in memory between the
loops, by the position of the edge.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tiga.backends.triton.arithmetic import Term, typed
from tiga.backends.triton.block import Block
from tiga.backends.triton.evaluate import ARITHMETIC, Evaluator
from tiga.backends.triton.loop import EdgeLoop
from tiga.backends.triton.scope import EdgeScope, Entity, RowScope
from tiga.backends.triton.writer import Value, at_rank
from tiga.passes.carries import kept_scans, reads_carry
from tiga.passes.rows import Phase, ScanLoop
from tiga.trace.node import Node
from tiga.trace.program import Program

KEPT = "kept"
"""The key of carries in memory."""


def run_step(
    evaluator: Evaluator, block: Block, step: Program, arguments: Sequence[Value]
) -> Value:
    """A region of one output on values in registers."""
    known = dict(zip(step.inputs, arguments, strict=True))
    for node in step.order:
        if node in known:
            continue
        if node.op.name == "constant":
            known[node] = evaluator.constant(node)
        else:
            known[node] = evaluator.op(block, node, [known[n] for n in node.inputs])
    return known[step.outputs[0]]


Start = Callable[[ScanLoop, RowScope], Value]
"""What a carry is before the loop."""


def initial(scan: ScanLoop, row: RowScope) -> Value:
    """What a scan starts from at the end of a row."""
    return row.value(scan.initial)


@dataclass(frozen=True)
class ScanEdgeLoop(EdgeLoop):
    """Loops of a program with scans, from the first edge to the last or back. If it `keeps`,
    carries that later loops read are stored."""

    start: Start = initial
    keeps: bool = True

    def run(self, phase: Phase, row: RowScope, totals: Mapping[Node, str]) -> dict[Node, Value]:
        """The reduced values of a phase, and the carries after its scans."""
        inner = self._one_edge(phase.reverse)
        edges = self.edges(inner, row)
        carries = {scan: self._started(scan, row) for scan in phase.scans}
        edges.values.update((scan.before, carry) for scan, carry in carries.items())
        self._restore(inner, edges, phase)
        states = self.taken(phase, inner, edges, totals)
        self._carry(inner, edges, carries)
        # What a loop stores is read by others: no load may start ahead of its turn.
        self.body.nest("for start in tl.range(0, steps, num_stages=1):", inner)
        if any(map(self._stores, phase.scans)):
            self.body.add("tl.debug_barrier()")
        return {**states, **{scan.after: carry for scan, carry in carries.items()}}

    @cached_property
    def _kept(self) -> frozenset[ScanLoop]:
        return frozenset(kept_scans(self.program))

    def _stores(self, scan: ScanLoop) -> bool:
        return self.keeps and scan in self._kept

    @staticmethod
    def _one_edge(reverse: bool) -> Block:
        """The first lines of a loop over edges one by one; on the way back, rows join in at their
        last edge."""
        block = Block()
        block.add("step = steps - 1 - start" if reverse else "step = start")
        block.add("live = step < count[:, None]")
        block.add("position = low + step")
        return block

    def _started(self, scan: ScanLoop, row: RowScope) -> Value:
        """The name of a carry, which starts in the loop's surroundings."""
        type_ = scan.before.type
        dims = self.writer.dims(self.writer.tile.rows, 1, type_)
        start = self.writer.full(self.start(scan, row), dims)
        return self.writer.named(self.body, "carry", Value(typed(start.term), start.dims))

    def _carry(self, inner: Block, edges: EdgeScope, carries: Mapping[ScanLoop, Value]) -> None:
        """Keep the carries before the edge, and replace them by those after it."""
        following = []
        for scan, carry in carries.items():
            if self._stores(scan):
                self.scope.store(
                    inner, self._memory(scan), scan.before.type, carry.dtype, self._place, carry
                )
            elements = [edges.value(e) for e in scan.elements]
            step = scan.before.op.step
            after = run_step(self.scope.evaluator, inner, step, [carry, *elements])
            after = self.writer.full(Value(typed(after.term), after.dims), carry.dims)
            live = Term(at_rank("live", len(carry.dims) - 2), carry.dtype)
            chosen = ARITHMETIC.select(live, after.term, carry.term)
            following.append(self.writer.named(inner, "next", Value(chosen, carry.dims)))
        for carry, after in zip(carries.values(), following, strict=True):
            inner.add(f"{carry.text} = {after.text}")

    # carries in memory

    def _restore(self, inner: Block, edges: EdgeScope, phase: Phase) -> None:
        """The carries of earlier loops that this one reads."""
        own = {scan.before for scan in phase.scans}
        for scan in self._kept:
            before = scan.before
            if before not in own and reads_carry(phase.edge_values, before):
                edges.values[before] = self.scope.load_from(
                    inner, self._memory(scan), before.type, before.type.dtype.compute,
                    self._place, "kept",
                )  # fmt: skip

    def _memory(self, scan: ScanLoop) -> str:
        return self.scope.state(KEPT, scan.before)

    @property
    def _place(self) -> Entity:
        text = "position.to(tl.int64)" if self.wide else "position"
        return Entity(text, "live", (self.writer.tile.rows, 1))
