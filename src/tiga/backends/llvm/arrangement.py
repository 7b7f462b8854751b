"""What is known of a plan's runs before there is a graph: where arrays are, how steps are bound."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tiga.backends.llvm.binding import NOWHERE, Action, BoundPlan, Launches, LibraryRun, Product
from tiga.backends.llvm.node_products import ProductStep
from tiga.backends.llvm.steps import Graph, JointStep, RowStep
from tiga.passes.buffers import Placement
from tiga.passes.rows import LibraryCall, Plan
from tiga.trace.node import Node
from tiga.types import Relation, Space

AnyStep = RowStep | ProductStep | LibraryCall
Launchable = AnyStep | JointStep

Graphs = Mapping[Relation, Graph]
Sizes = Mapping[Space, int]
Binder = Callable[[Graphs, Sizes], Action]
"""Makes a step's action on a topology."""


@dataclass(frozen=True)
class Arrangement:
    """A plan on any topology; see `BoundPlan`, whose numbers of bytes are rows of a space here."""

    placed: Placement
    scratch: tuple[tuple[Space, int], ...]
    copies: tuple[tuple[int, int, Space, int], ...]
    binders: tuple[Binder, ...]

    def on(self, graphs: Graphs, sizes: Sizes) -> BoundPlan:
        """The plan on graphs, in spaces of these sizes."""
        scratch = [sizes[space] * nbytes for space, nbytes in self.scratch]
        copies = [(a, b, sizes[space] * nbytes) for a, b, space, nbytes in self.copies]
        actions = [bind(graphs, sizes) for bind in self.binders]
        return BoundPlan(sizes, self.placed, scratch, actions, copies)


def arrange(plan: Plan, placed: Placement, steps: Sequence[Launchable]) -> Arrangement:
    """The arrangement of a plan whose values between steps are placed, run in these steps."""
    positions: dict[Node, int] = {}
    copies: list[tuple[int, int, Space, int]] = []
    scratch: list[tuple[Space, int]] = []
    given = (*plan.inputs, *plan.outputs)
    for i, node in enumerate(given):
        if positions.setdefault(node, i) != i:
            copies.append((positions[node], i, node.type.space, node.type.row_bytes))
    for node, host in placed.hosts.items():
        if node is host:
            positions[node] = len(given) + len(scratch)
            scratch.append((node.type.space, node.type.row_bytes))
        else:
            positions[node] = positions[host]
    binders = tuple(_binder(step, positions) for step in steps)
    return Arrangement(placed, tuple(scratch), tuple(copies), binders)


def _binder(step: Launchable, positions: Mapping[Node, int]) -> Binder:
    if isinstance(step, JointStep):
        return _joint(step, positions)
    if isinstance(step, RowStep):
        return _rows(step, positions)
    if isinstance(step, LibraryCall):
        node, arrays = step.node, {n: positions[n] for n in (*step.node.inputs, step.node)}
        return lambda graphs, sizes: LibraryRun(node, arrays, sizes)
    return _product(step, positions)


def _rows(step: RowStep, positions: Mapping[Node, int]) -> Binder:
    arrays = _positions(step, positions)

    def bind(graphs: Graphs, sizes: Sizes) -> Launches:
        bound = step.bind(graphs, sizes)
        return Launches(((bound.fixed, arrays),), bound.states, bound.kernels, bound.tasks)

    return bind


def _joint(step: JointStep, positions: Mapping[Node, int]) -> Binder:
    first, second = (_positions(s, positions) for s in (step.first, step.second))

    def bind(graphs: Graphs, sizes: Sizes) -> Launches:
        bound = step.bind(graphs, sizes)
        slots = ((bound.first.fixed, first), (bound.second, second))
        return Launches(slots, (), bound.first.kernels, bound.first.tasks)

    return bind


def _product(step: ProductStep, positions: Mapping[Node, int]) -> Binder:
    a, b = step.node.inputs
    left, right, out = (positions[n] for n in (a, b, step.node))
    space, vectors = a.type.space, a.type.size // a.type.shape[-1]
    return lambda graphs, sizes: Product(step, (left, right, out), sizes[space] * vectors)


def _positions(step: RowStep, positions: Mapping[Node, int]) -> tuple[int, ...]:
    return tuple(positions.get(n, NOWHERE) for n in step.slots.nodes)
