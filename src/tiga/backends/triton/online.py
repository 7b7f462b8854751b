"""One pass where two would do: a maximum, then sums of exponentials shifted by it.

Both phases become one loop that carries the running maximum; when it rises, the sums so far are
scaled down. Recognised by structure alone: a maximum R of scores, and sums that are linear in one
edge value exp(score - gather(shift)) whose shift depends on R.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tiga.backends.triton.arithmetic import Term, literal, typed
from tiga.backends.triton.block import Block
from tiga.backends.triton.evaluate import ARITHMETIC
from tiga.backends.triton.loop import EdgeLoop, across, edge_steps, neutral, over_edges
from tiga.backends.triton.scope import EdgeScope, RowScope
from tiga.backends.triton.writer import Value, at_rank
from tiga.ops.functions import Exp
from tiga.ops.pointwise import Mul, Sub
from tiga.passes.rows import Phase, RowProgram
from tiga.trace.node import Node, topological
from tiga.trace.origin import Origin
from tiga.types import bool_


@dataclass(frozen=True)
class Online:
    """A pair of phases in one loop: the maximum `peak`, the edge value `shift` that is gathered
    from the row, and per sum the ops that lead from the weight to its message."""

    peak: Node
    shift: Node
    sums: Mapping[Node, tuple[Node, ...]]


def recognise(program: RowProgram, first: int) -> Online | None:
    """Phases `first` and the next as one loop, if they have the form."""
    if first + 1 >= len(program.phases):
        return None
    maximum, sums = program.phases[first : first + 2]
    if len(maximum.reductions) != 1 or not _only_reduces(maximum) or not _only_reduces(sums):
        return None
    (peak,) = maximum.reductions
    if peak.op.kind != "max" or any(n.op.kind != "sum" for n in sums.reductions):
        return None
    shifts = _shifts(program, peak, sums)
    weights = _weights(shifts, sums, peak) if len(shifts) == 1 else []
    if len(weights) != 1:
        return None
    paths = {node: _path(node.inputs[0], weights[0]) for node in sums.reductions}
    if any(path is None for path in paths.values()):
        return None
    return Online(peak, shifts[0], {n: path for n, path in paths.items() if path is not None})


def _only_reduces(phase: Phase) -> bool:
    return phase.edge_values == tuple(n.inputs[0] for n in phase.reductions)


def _shifts(program: RowProgram, peak: Node, sums: Phase) -> list[Node]:
    """Gathers from the row, read by the sums, of what depends on the maximum."""
    nodes = topological([n.inputs[0] for n in sums.reductions])
    own = [n for n in nodes if n.op.origin is Origin.END and n.op.side == program.side]
    return [n for n in own if peak in topological([n.inputs[0]])]


def _weights(shifts: list[Node], sums: Phase, peak: Node) -> list[Node]:
    """exp(score - shift), if that is all that reads the shift."""
    (shift,) = shifts
    nodes = topological([n.inputs[0] for n in sums.reductions])
    readers = [n for n in nodes if shift in n.inputs]
    if len(readers) != 1 or not isinstance(readers[0].op, Sub) or readers[0].inputs[1] is not shift:
        return []
    if plain(readers[0].inputs[0]) is not plain(peak.inputs[0]):
        return []
    found = [n for n in nodes if readers[0] in n.inputs]
    return found if all(isinstance(n.op, Exp) for n in found) else []


def plain(score: Node) -> Node:
    """A score without what says that no derivative goes through it."""
    while score.op.identity:
        (score,) = score.inputs
    return score


def _path(message: Node, weight: Node) -> tuple[Node, ...] | None:
    """The renaming ops between the weight and a message that is linear in it; None if it isn't."""
    path: list[Node] = []
    while message is not weight:
        linear = [n for n in message.inputs if weight in topological([n])]
        renames = message.op.is_view or message.op.converts or message.op.identity
        if len(linear) != 1 or not (renames or isinstance(message.op, Mul)):
            return None
        if renames:
            path.append(message)
        message = linear[0]
    return tuple(reversed(path))


@dataclass
class OnlineLoop:
    """The merged loop under construction."""

    loop: EdgeLoop
    online: Online
    row: RowScope

    def run(self) -> None:
        """Give the row the values of the maximum and of the sums."""
        writer, body, peak = self.loop.writer, self.loop.body, self.online.peak
        tile = writer.tile
        inner = over_edges(writer)
        edges = self.loop.edges(inner, self.row, ahead=True)
        score = edges.value(peak.inputs[0])
        dims = (tile.rows, tile.edges, *score.dims[2:])
        self._evaluate_beside_peak()
        state = self._start(body, "peak", Value(neutral(peak), ()), dims)
        before = self._shift(body, state)
        before = self._start(body, "shift", before, dims)
        live = Term(at_rank("live", len(dims) - 2), bool_)
        kept = ARITHMETIC.select(live, typed(score.term), neutral(peak))
        raised = writer.named(inner, "raised", Value(ARITHMETIC.maximum(state.term, kept), dims))
        after = writer.named(inner, "shift_now", writer.full(self._shift(inner, raised), dims))
        scale = self._scale(inner, state, before, after)
        edges.values[self.online.shift] = after
        sums = self._accumulate(inner, edges, scale)
        inner.add(f"{state.text} = {raised.text}")
        inner.add(f"{before.text} = {after.text}")
        body.nest(edge_steps(tile), inner)
        self._finish(state, before, sums)

    def _start(self, block: Block, hint: str, value: Value, dims: tuple[int, ...]) -> Value:
        return self.loop.writer.named(block, hint, self.loop.writer.full(value, dims))

    def _evaluate_beside_peak(self) -> None:
        """Give the row what the shift takes beside the maximum: once, not edge after edge."""
        late = {self.online.peak}
        for node in topological([self.online.shift.inputs[0]]):
            if late.isdisjoint(node.inputs):
                continue
            late.add(node)
            for child in node.inputs:
                if child not in late:
                    self.row.value(child)

    def _shift(self, block: Block, peak: Value) -> Value:
        """The shift that belongs to a running maximum."""
        values = {**self.row.values, self.online.peak: peak}
        scope = RowScope(self.row.kernel, block, self.row.entity, values)
        return scope.value(self.online.shift.inputs[0])

    def _scale(self, block: Block, peak: Value, before: Value, after: Value) -> Value:
        """What sums under the old shift are worth under the new one; 0 where they are empty."""
        factor = ARITHMETIC.exp(ARITHMETIC.sub(before.term, after.term))
        empty = ARITHMETIC.compare("eq", peak.term, neutral(self.online.peak))
        term = ARITHMETIC.select(empty, literal(0, peak.dtype), factor)
        return self.loop.writer.named(block, "scale", Value(term, peak.dims))

    def _along(self, block: Block, node: Node, scale: Value) -> Value:
        """A scale with the axes of a sum."""
        for step in self.online.sums[node]:
            if step.op.is_view and not self.loop.writer.tile.is_flat:
                renamed = self.row.kernel.evaluator.renamed(step, scale)
                assert renamed is not None, f"{step!r} does more than rename axes"
                scale = self.loop.writer.named(block, "scale", renamed)
        return scale

    def _accumulate(self, inner: Block, edges: EdgeScope, scale: Value) -> dict[Node, Value]:
        tile = self.loop.writer.tile
        sums = {}
        for node in self.online.sums:
            value = edges.value(node.inputs[0])
            dims = (tile.rows, tile.edges, *value.dims[2:])
            start = Value(neutral(node), ())
            total = self._start(self.loop.body, "row_sum", start, dims)
            here = Term(at_rank("live", len(dims) - 2), bool_)
            kept = ARITHMETIC.select(here, typed(value.term), neutral(node))
            scaled = ARITHMETIC.mul(total.term, self._along(inner, node, scale).term)
            inner.add(f"{total.text} = {ARITHMETIC.add(scaled, kept).text}")
            sums[node] = total
        return sums

    def _finish(self, peak: Value, shift: Value, sums: dict[Node, Value]) -> None:
        """Bring the edge lanes of a row under one maximum, and add them up."""
        writer, body = self.loop.writer, self.loop.body
        self.row.values[self.online.peak] = across(writer, body, self.online.peak, peak)
        if writer.tile.edges > 1:
            whole = self.row.value(self.online.shift.inputs[0])
            scale = self._scale(body, peak, shift, whole)
            for node, total in sums.items():
                along = self._along(body, node, scale)
                body.add(f"{total.text} = {ARITHMETIC.mul(total.term, along.term).text}")
        self.row.values.update({n: across(writer, body, n, t) for n, t in sums.items()})
