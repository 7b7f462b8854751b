"""Row programs: what a program becomes once it is decided which walk computes what."""

from dataclasses import dataclass
from functools import cached_property

from tiga.trace.node import Node
from tiga.types import Relation, Space


@dataclass(frozen=True)
class Phase:
    """One loop over a row's edges: the reductions it accumulates, the edge values it stores and
    the `outer_sum` nodes of edge values to which it adds."""

    reductions: tuple[Node, ...]
    stores: tuple[Node, ...] = ()
    outer_sums: tuple[Node, ...] = ()

    @property
    def edge_values(self) -> tuple[Node, ...]:
        """The edge values that the loop evaluates."""
        summed = (n for node in self.outer_sums for n in node.inputs)
        return (*(n.inputs[0] for n in self.reductions), *self.stores, *summed)


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

    @cached_property
    def writes(self) -> tuple[Node, ...]:
        """Every node that the program stores, in a fixed order."""
        edge_stores = (node for phase in self.phases for node in phase.stores)
        return (*self.stores, *edge_stores, *self.totals, *self.outer_sums)

    @cached_property
    def outer_sums(self) -> tuple[Node, ...]:
        """The `outer_sum` nodes of all phases."""
        return tuple(node for phase in self.phases for node in phase.outer_sums)


@dataclass(frozen=True)
class LibraryCall:
    """One op that goes to a library whole: a dense product of node values and a matrix, or the
    rearrangement of a global value."""

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
