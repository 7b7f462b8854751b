"""Scans over a row's edges, in order: what a reducer needs whose `combine` is no known monoid.

A scan carries a value along the edges of a row: `carry = step(carry, *elements)`. It gives the
carry before each edge (`scan_before`) and the one after the last (`scan_after`). The derivative
of either is a scan in the opposite direction, whose elements include the carries before each
edge; so scans are closed under differentiation, to any order.

A scan by an associative step may take a row run of edges by run of edges: `join` says what a whole
run does to a carry. The derivatives of such a scan are linear in their carries, and what a run does
to them follows from the carry of the scan itself before the run and from its result over the run
alone; so they are taken run by run as well, and nothing is kept per edge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tiga.ops.base import Op
from tiga.ops.leaf import Input, constant, zeros_like
from tiga.ops.message import Topology
from tiga.ops.pointwise import add
from tiga.trace.autodiff import jvp, vjp
from tiga.trace.node import Node, rewrite, substitute, topological
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space, Type


def inline(step: Program, arguments: Sequence[Node], space: Space) -> tuple[Node, ...]:
    """The outputs of a region, which is written on global values, applied to values of `space`."""

    def retype(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node.op.origin is not Origin.NUMBER:
            return None
        return constant(node.op.value, node.type.with_space(space))

    given = dict(zip(step.inputs, arguments, strict=True))
    return tuple(rewrite(step.outputs, retype, given))


def region(outputs: Sequence[Node], inputs: Sequence[Node]) -> Program:
    """A region from values of any one space: the same program on global values."""
    holes = [Input(f"r{i}", n.type.with_space(GLOBAL))() for i, n in enumerate(inputs)]
    return Program(tuple(holes), inline(Program(tuple(inputs), tuple(outputs)), holes, GLOBAL))


Derivative = Callable[[Node, Node, Node], Node]
"""Of a result by a carry, in the direction of a third value or applied to it transposed."""

IN_ORDER = Program((), ())
"""The join of scans that take every edge in turn."""


@dataclass(frozen=True)
class Scan(Op):
    """Shared by both results. Inputs: the initial carry (a row value), then edge elements.

    `step` takes (carry, *elements) and returns the next carry; `reverse` walks from the last
    edge of the row to the first.

    `join`, unless it is `IN_ORDER`, takes (carry, run, before, total, *read): the carry before a
    run of edges, the scan's own result over the run (from the initial carry, or from zero if it is
    the derivative of a scan), and of the scan that it derives from the carry before the run and the
    result over the run alone. It returns the carry after the run. `root` is the element that is
    that scan's `scan_before`, -1 for a scan that is no derivative; `read` are elements which are
    the same for all edges.
    """

    carries = True
    relation: Relation
    side: str
    reverse: bool
    step: Program
    join: Program = IN_ORDER
    root: int = -1
    read: tuple[int, ...] = ()

    @property
    def scan(self) -> tuple[Relation, str, bool, Program, Program, int, tuple[int, ...]]:
        """What both results of one scan share."""
        return (
            self.relation, self.side, self.reverse, self.step, self.join, self.root, self.read
        )  # fmt: skip

    @property
    def joins(self) -> bool:
        """Whether runs of edges may be taken by themselves and joined."""
        return bool(self.join.outputs)

    def _check(self, initial: Type, elements: Sequence[Type]) -> None:
        assert initial.space == self.relation.end(self.side), f"scan from {initial}"
        assert all(e.space == self.relation.edge for e in elements), f"scan of {elements}"
        (result,) = self.step.outputs
        assert result.type == initial.with_space(GLOBAL), f"{result.type} is not {initial}"

    def _run(self, topology: Topology, initial: np.ndarray, elements: Sequence[np.ndarray]):
        """Carries before each edge and after each row."""
        rows, extent = topology.end(self.side), topology.extent(self.side)
        initial = np.broadcast_to(initial, (extent, *initial.shape[1:]))
        before = np.zeros((len(rows), *initial.shape[1:]), initial.dtype)
        after = np.array(initial)
        order = np.argsort(rows, kind="stable")
        for edge in order[::-1] if self.reverse else order:
            row = rows[edge]
            before[edge] = after[row]
            given = [e[edge if len(e) > 1 else 0][None] for e in elements]
            after[row] = _evaluate(self.step, [after[row][None], *given])[0]
        return before, after

    def _before(self, inputs: Sequence[Node]) -> Node:
        return ScanBefore(*self.scan)(*inputs)

    def _holes(self, inputs: Sequence[Node]) -> tuple[list[Node], Node]:
        """Region inputs (carry, *elements) and a cotangent of the carry."""
        types = [n.type.with_space(GLOBAL) for n in inputs]
        holes = [Input(f"p{i}", t)() for i, t in enumerate(types)]
        return holes, Input("ct", types[0])()

    def _adjoint(self, inputs: Sequence[Node], ct: Node, per_edge: bool) -> list[Node | None]:
        """Cotangents of the initial carry and the elements.

        `ct` belongs to the carry after the row, or (`per_edge`) to the carries before each edge.
        """
        initial, *elements = inputs
        holes, carry_ct = self._holes(inputs)
        results = inline(self.step, holes, GLOBAL)
        back, *parts = vjp(results, [carry_ct], holes, add)
        back = zeros_like(carry_ct) if back is None else back
        before = self._before(inputs)
        if per_edge:
            extra = Input("extra", carry_ct.type)()
            step = Program((carry_ct, *holes, extra), (add(back, extra),))
            start, given = zeros_like(initial), (before, *elements, ct)
        else:
            step = Program((carry_ct, *holes), (back,))
            start, given = ct, (before, *elements)
        adjoint = (self.relation, self.side, not self.reverse, step, *self._derived(_transposed))
        after_edge = ScanBefore(*adjoint)(start, *given)
        edge = self.relation.edge
        at_edge = (after_edge, before, *elements)
        gradients = [
            None if p is None else inline(Program((carry_ct, *holes), (p,)), at_edge, edge)[0]
            for p in parts
        ]
        return [ScanAfter(*adjoint)(start, *given), *gradients]

    def _derived(self, derivative: Derivative) -> tuple[Program, int, tuple[int, ...]]:
        """`join`, `root` and `read` of a scan that is a derivative of this one.

        Its elements are the carries of this one, then the elements of this one.
        """
        if not self.joins:
            return IN_ORDER, -1, ()
        carry, run, before, total, *read = self.join.inputs
        moving = Input("moving", carry.type)()
        slope = derivative(self.join.outputs[0], carry, moving)
        given = {carry: before, run: total} if self.root < 0 else {}
        (slope,) = substitute([slope], given)
        if not {carry, run}.isdisjoint(topological([slope])):
            return IN_ORDER, -1, ()
        join = region([add(slope, run)], [moving, run, before, total, *read])
        return join, max(self.root + 1, 0), tuple(i + 1 for i in self.read)

    def _tangent_step(self, inputs: Sequence[Node], tangents: Sequence[Node | None]) -> Program:
        """The step of the tangent's scan: elements are (before, *elements, *tangents)."""
        holes, _ = self._holes(inputs)
        carry, *rest = [Input(f"t{i}", h.type)() for i, h in enumerate(holes)]
        given = {holes[0]: carry}
        each = zip(holes[1:], rest, tangents[1:], strict=True)
        moving = [(hole, t) for hole, t, known in each if known]
        given.update(moving)
        (found,) = jvp(inline(self.step, holes, GLOBAL), given, add)
        found = zeros_like(carry) if found is None else found
        return Program((carry, *holes, *(t for _, t in moving)), (found,))

    def _tangent(
        self, result: type["Scan"], tangents: Sequence[Node | None], inputs: Sequence[Node]
    ):
        if all(t is None for t in tangents):
            return []
        initial, *elements = inputs
        start = zeros_like(initial) if tangents[0] is None else tangents[0]
        moving = [t for t in tangents[1:] if t is not None]
        step = self._tangent_step(inputs, tangents)
        scan = result(self.relation, self.side, self.reverse, step, *self._derived(_pushed))
        return [scan(start, self._before(inputs), *elements, *moving)]


def _transposed(result: Node, carry: Node, moving: Node) -> Node:
    (found,) = vjp([result], [moving], [carry], add)
    return zeros_like(moving) if found is None else found


def _pushed(result: Node, carry: Node, moving: Node) -> Node:
    (found,) = jvp([result], {carry: moving}, add)
    return zeros_like(moving) if found is None else found


def _evaluate(step: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    known = dict(zip(step.inputs, arrays, strict=True))
    for node in step.order:
        if node not in known:
            known[node] = node.op.reference(*(known[i] for i in node.inputs)).astype(
                node.type.dtype.compute.numpy
            )
    return [known[n] for n in step.outputs]


@dataclass(frozen=True)
class ScanBefore(Scan, name="scan_before"):
    """The carry before each edge."""

    origin = Origin.CARRY

    def infer(self, initial: Type, *elements: Type) -> Type:
        self._check(initial, elements)
        return initial.with_space(self.relation.edge)

    def reference(self, initial: np.ndarray, *elements: np.ndarray, topology: Topology):
        return self._run(topology, initial, elements)[0]

    def vjp(self, ct, out, *inputs):
        return self._adjoint(inputs, ct, per_edge=True)

    def jvp(self, tangents, out, *inputs):
        return self._tangent(ScanBefore, tangents, inputs)


@dataclass(frozen=True)
class ScanAfter(Scan, name="scan_after"):
    """The carry after the last edge of each row; the initial carry for an empty row."""

    origin = Origin.ROW

    def infer(self, initial: Type, *elements: Type) -> Type:
        self._check(initial, elements)
        return initial

    def reference(self, initial: np.ndarray, *elements: np.ndarray, topology: Topology):
        return self._run(topology, initial, elements)[1]

    def vjp(self, ct, out, *inputs):
        return self._adjoint(inputs, ct, per_edge=False)

    def jvp(self, tangents, out, *inputs):
        return self._tangent(ScanAfter, tangents, inputs)
