"""Row programs: what a program becomes once it is decided which walk computes what."""

from dataclasses import dataclass
from functools import cached_property

from tiga.errors import Unfusable
from tiga.ops.monoid import MONOIDS
from tiga.ops.scan import ScanAfter, ScanBefore
from tiga.trace.node import Node
from tiga.types import Relation, Space

LARGEST_PIECE = 1 << 16
"""Elements of a sum over edges of which each task may have a piece of its own."""

PAGED = "on a graph with edges in files"


def adds_up(node: Node) -> bool:
    """Whether a reduction is a sum of floats, whose error depends on the order of additions."""
    return node.op.monoid is MONOIDS["sum"] and node.type.dtype.is_float


def state_bytes(node: Node) -> int:
    """Bytes of the state that a reduction has at a row."""
    return node.type.size * node.type.dtype.compute.itemsize


@dataclass(frozen=True)
class ScanLoop:
    """A scan that a phase carries: `before` and `after` are its nodes, whichever is read."""

    before: Node
    after: Node

    @staticmethod
    def of(node: Node) -> "ScanLoop":
        """Both results of the scan that `node` is one of."""
        scan, inputs = node.op.scan, node.inputs
        return ScanLoop(ScanBefore(*scan)(*inputs), ScanAfter(*scan)(*inputs))

    @property
    def reverse(self) -> bool:
        return self.before.op.reverse

    @property
    def initial(self) -> Node:
        """The row value that the carry starts from."""
        return self.before.inputs[0]

    @property
    def elements(self) -> tuple[Node, ...]:
        return self.before.inputs[1:]


@dataclass(frozen=True)
class Phase:
    """One loop over a row's edges: what it accumulates, stores and carries.

    `reductions` end in the row; `stores` are edge values written; `outer_sums` add to a matrix;
    `scans` carry a value from edge to edge, all in one direction; `scatters` are reductions at the
    edges' other ends, of messages that only this walk can evaluate.
    """

    reductions: tuple[Node, ...]
    stores: tuple[Node, ...] = ()
    outer_sums: tuple[Node, ...] = ()
    scans: tuple[ScanLoop, ...] = ()
    scatters: tuple[Node, ...] = ()

    @property
    def edge_values(self) -> tuple[Node, ...]:
        """The edge values that the loop evaluates."""
        taken = (*self.reductions, *self.scatters, *self.outer_sums)
        elements = (e for scan in self.scans for e in scan.elements)
        return (*(n for node in taken for n in node.inputs), *self.stores, *elements)

    @property
    def row_results(self) -> tuple[Node, ...]:
        """What the loop leaves at the row."""
        return (*self.reductions, *(scan.after for scan in self.scans))

    @property
    def carries_only(self) -> bool:
        """Whether the loop does nothing but carry scans."""
        return not (self.reductions or self.stores or self.outer_sums or self.scatters)

    @property
    def reverse(self) -> bool:
        """Whether the loop runs from the last edge to the first."""
        return any(scan.reverse for scan in self.scans)


@dataclass(frozen=True)
class RowProgram:
    """One launch over the rows of a space.

    With a relation, each row walks its edges (rows are the `side` end) in phases; without one,
    rows are computed alone. After the last phase `stores` (row values) are written and `totals`
    (`reduce_all` nodes) accumulated. `reads` are the arrays it reads: inputs of the program and
    values that earlier steps stored.
    """

    space: Space
    relation: Relation | None
    side: str
    phases: tuple[Phase, ...]
    stores: tuple[Node, ...]
    totals: tuple[Node, ...]
    reads: tuple[Node, ...]

    @property
    def other_space(self) -> Space:
        """The space at the other end of the edges."""
        assert self.relation is not None
        return self.relation.other_end(self.side)

    @cached_property
    def writes(self) -> tuple[Node, ...]:
        """Every node that the program stores, in a fixed order."""
        edge_stores = (node for phase in self.phases for node in phase.stores)
        return (*self.stores, *edge_stores, *self.totals, *self.outer_sums, *self.scatters)

    @cached_property
    def outer_sums(self) -> tuple[Node, ...]:
        """The `outer_sum` nodes of all phases."""
        return tuple(node for phase in self.phases for node in phase.outer_sums)

    @property
    def has_sums(self) -> bool:
        """Whether it adds to sums over all its rows or edges."""
        return bool(self.totals or self.outer_sums)

    @cached_property
    def large_sums(self) -> frozenset[Node]:
        """Those of `outer_sums` that are the gradients of tables too large for many pieces."""
        return frozenset(
            node for node in self.outer_sums if node.op.by_index and node.type.size > LARGEST_PIECE
        )

    @property
    def fills_tables(self) -> bool:
        """Whether all that it adds up over edges are such gradients: rows add to them one after the
        other, wherever a task is interrupted."""
        large = self.large_sums
        return bool(large) and large.issuperset(self.outer_sums) and not self.totals

    def refuse_large_sums(self, where: str) -> None:
        """Raise Unfusable for the gradient of a large table."""
        for node in self.large_sums:
            place = f" ({node.where})" if node.where else ""
            raise Unfusable(f"the gradient of a table of {node.type.size} elements {where}{place}")

    @cached_property
    def scatters(self) -> tuple[Node, ...]:
        """The reductions at the other ends, of all phases."""
        return tuple(node for phase in self.phases for node in phase.scatters)

    @cached_property
    def scans(self) -> tuple[ScanLoop, ...]:
        """The scans of all phases."""
        return tuple(scan for phase in self.phases for scan in phase.scans)


@dataclass(frozen=True)
class LibraryCall:
    """One op that goes to a library whole: a dense product of node values and a matrix, the
    rearrangement of a global value, an op of whole tensors that no kernel takes; or a value without
    elements, which nobody computes."""

    node: Node

    @property
    def reads(self) -> tuple[Node, ...]:
        return self.node.inputs

    @property
    def writes(self) -> tuple[Node, ...]:
        return (self.node,)


Step = RowProgram | LibraryCall


@dataclass(frozen=True)
class Plan:
    """The steps of a program in execution order, with its inputs and outputs."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    steps: tuple[Step, ...]

    @cached_property
    def intermediates(self) -> tuple[Node, ...]:
        """Values stored by one step for later ones that are not outputs."""
        outputs = set(self.outputs)
        written = dict.fromkeys(n for step in self.steps for n in step.writes)
        return tuple(n for n in written if n not in outputs)
