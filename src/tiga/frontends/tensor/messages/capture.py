"""From what `edge` and `node` built to a program per edge and node, made once per structure.

`edge` and `node` run at every call, so nothing that they read can go stale; but what they build
is mostly what they built before. Expressions are compared by structure: only a new one becomes a
program. Python numbers in them belong to it at first; when a structure comes with other numbers,
its program takes them as arguments.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from tiga.frontends.message_passing import PerEdge
from tiga.frontends.tensor.messages.entities import EDGES, NODES, Entities
from tiga.frontends.tensor.messages.fields import stand_in
from tiga.frontends.tensor.messages.graph_call import Launch, launch_of
from tiga.frontends.tensor.messages.reduced import Sent, reduce_sent
from tiga.frontends.trees import leaves_of, mapped
from tiga.ops.align import expand_to
from tiga.ops.leaf import Constant, Input, stop_gradient
from tiga.ops.message import gather
from tiga.reducers.selection import ArgExtremum
from tiga.trace.node import Node, intern, topological
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import GLOBAL, DType, Relation, Shape, Space, Type, int64


class Field(NamedTuple):
    """A field of the call as a source of an input."""

    namespace: str
    name: str


class Given(NamedTuple):
    """A tensor that `edge` or `node` used, by its place in what was walked."""

    place: int


class Number(NamedTuple):
    """A Python number, by its place among the numbers."""

    place: int


class EdgeOrder(NamedTuple):
    """The user's number of every edge, in CSR order."""


Source = Field | Given | Number | EdgeOrder


class Sketch(NamedTuple):
    """The structure of expressions: `order` is what was walked, `numbers` the Python numbers."""

    parts: tuple[Any, ...]
    numbers: tuple[Any, ...]
    order: list[Node]


NUMBER = "number"


def sketch(roots: Sequence[Node]) -> Sketch:
    """What tells expressions from others, but for the values in memory; numbers apart."""
    places: dict[Node, int] = {}
    for root in roots:
        places.setdefault(root, len(places))
    order, numbers = list(places), []
    parts: list[Any] = [places[root] for root in roots]
    add, known = parts.append, places.get
    for node in order:
        op = node.op
        if node.cell is not None:
            if op.__class__ is Constant:
                numbers.append(op)
                add(NUMBER)
            add(node.type)
            continue
        add(op)
        for child in node.inputs:
            found = known(child)
            if found is None:
                found = places[child] = len(order)
                order.append(child)
            add(found)
    return Sketch(tuple(parts), tuple(numbers), order)


@dataclass
class ByStructure:
    """What was made per structure. `variable` has what takes its numbers as arguments."""

    exact: dict[Any, Any] = field(default_factory=dict)
    variable: dict[Any, Any] = field(default_factory=dict)
    last: tuple[Any, Any] = (None, None)

    def get(
        self, form: Any, of: Sketch, make: Callable[[bool], Any], variable: bool = False
    ) -> Any:
        """What `make(variable)` made for this structure, or makes now; `variable`: numbers are
        known to vary."""
        key = (form, of.parts)
        whole, found = self.last
        if whole == (key, of.numbers):  # takes less time than hashing it
            return found
        if variable:
            self.variable.setdefault(key, None)
        found = self.exact.get((key, of.numbers))
        if found is not None:
            self.last = (key, of.numbers), found
            return found
        if of.numbers and key in self.variable:
            if self.variable[key] is None:
                self.variable[key] = make(True)
            return self.variable[key]
        if len(self.exact) >= MOST:
            self.exact.clear()
            self.variable.clear()
        found = self.exact[key, of.numbers] = make(False)
        self.variable[key] = None
        return found


MOST = 1024
"""Structures kept of one kind."""


@dataclass(frozen=True)
class Place:
    """A field as `edge` or `node` sees it."""

    field: Field
    space: Space
    dtype: DType
    shape: Shape
    end: str
    on_edges: bool


@dataclass
class Capture:
    """Inputs of a program as they are met, and where each call finds them."""

    relation: Relation
    inputs: dict[Any, Node] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)

    def copy(self) -> "Capture":
        """Another one that goes on from here."""
        return Capture(self.relation, dict(self.inputs), list(self.sources))

    def input(self, source: Source, of: Type, where: str | None = None) -> Node:
        """The input for a source."""
        if source not in self.inputs:
            label = f"{type(source).__name__.lower()}:{'.'.join(map(str, source))}"
            self.inputs[source] = intern(Input(label, of), (), of, where)
            self.sources.append(source)
        return self.inputs[source]

    def entities(
        self, space: Space, extent: int, places: dict[Node, Place], of: Sketch,
        variable: bool, start: tuple[int, int] = (0, 0),
    ) -> Entities:  # fmt: skip
        """Expressions on stand-ins as values per entity; `start` counts what was walked before."""
        place_of = {id(node): i for i, node in enumerate(of.order)}

        def given(node: Node) -> Node:
            return self.input(Given(start[0] + place_of[id(node)]), node.type, node.where)

        entities = Entities(space, extent, given)
        for node, place in places.items():
            entities.values[node] = self.read(place)
        if variable:
            known = (n for n in of.order if n.cell)
            numbers = [n for n in known if n.op.origin is Origin.NUMBER]
            for i, node in enumerate(numbers):
                scalar = self.input(Number(start[1] + i), node.type.with_shape(()))
                entities.values[node] = _spread(stop_gradient(scalar), node.type, entities)
        return entities

    def read(self, place: Place) -> Node:
        """A field's value, on edges gathered from its end."""
        of = Type(place.dtype, place.shape, place.space)
        node = self.input(place.field, of)
        if place.on_edges and place.end != "edge":
            node = gather(self.relation, place.end, node)
        return node

    def position(self) -> Node:
        """The number of each edge."""
        return self.input(EdgeOrder(), Type(int64, (), self.relation.edge))


def _spread(scalar: Node, type_: Type, entities: Entities) -> Node:
    shape = type_.shape
    if shape and shape[0] == entities.extent:
        return expand_to(scalar, shape[1:], entities.space)
    return expand_to(scalar, shape, GLOBAL)


@dataclass
class ReducedRows:
    """Reduced messages: a tree of values of rows, and what they were made from."""

    capture: Capture
    tree: Any
    walked: tuple[int, int]
    variable: bool
    views: dict[bool, Any] = field(default_factory=dict)
    plans: ByStructure = field(default_factory=ByStructure)

    def view(self, grad: bool) -> Any:
        """The tree as `node` sees it: stand-ins."""
        if grad not in self.views:
            self.views[grad] = mapped(lambda row: self._seen(row, grad), self.tree)
        return self.views[grad]

    def _seen(self, row: Node, grad: bool) -> Any:
        if row.type.space == self.capture.relation.edge:
            return PerEdge(row)
        return stand_in(row.type.dtype, row.type.shape, NODES, grad)

    @cached_property
    def plan(self) -> "CapturedProgram":
        """The program of the rows themselves."""
        return CapturedProgram.of(self.capture, self.tree)


@dataclass(frozen=True)
class CapturedProgram:
    """A program, the sources of its inputs, and the tree of its outputs' numbers."""

    program: Program
    sources: tuple[Source, ...]
    tree: Any

    @cached_property
    def on_edges(self) -> tuple[bool, ...]:
        """Which outputs are values of edges."""
        return tuple(node.type.on_edges for node in self.program.outputs)

    @cached_property
    def launch(self) -> Launch:
        """The program compiled."""
        return launch_of(self.program)

    @staticmethod
    def of(capture: Capture, tree: Any) -> "CapturedProgram":
        """The program that computes a tree of values of rows."""
        outputs: list[Node] = []

        def number(node: Node) -> int:
            outputs.append(node)
            return len(outputs) - 1

        numbered = mapped(number, tree)
        needed = set(topological(outputs))
        used = [s for s in capture.sources if capture.inputs[s] in needed]
        inputs = tuple(capture.inputs[source] for source in used)
        return CapturedProgram(Program(inputs, tuple(outputs)), tuple(used), numbered)


def rows_of(
    relation: Relation, places: dict[Node, Place], tree: Any, of: Sketch, variable: bool
) -> ReducedRows:
    """What was sent, a tree of `Sent`, reduced."""
    capture = Capture(relation)
    edges = capture.entities(relation.edge, EDGES, places, of, variable)

    rows = capture.entities(relation.dst, NODES, {}, of, variable)

    def reduced(sent: Sent) -> Any:
        position = capture.position() if isinstance(sent.reducer, ArgExtremum) else None
        return reduce_sent(sent, relation, edges, rows, position)

    walked = len(of.order), len(of.numbers)
    return ReducedRows(capture, mapped(reduced, tree), walked, variable)


def plan_of(
    rows: ReducedRows, grad: bool, places: dict[Node, Place], tree: Any, of: Sketch, variable: bool
) -> CapturedProgram:
    """What `node` made of the rows."""
    capture = rows.capture.copy()
    relation = capture.relation
    nodes = capture.entities(relation.dst, NODES, places, of, variable, rows.walked)
    for row, made in zip(leaves_of(rows.tree), leaves_of(rows.view(grad)), strict=True):
        if not isinstance(made, PerEdge):
            nodes.values[made._node] = row

    def value_of(made: Any) -> Node:
        return made.value if isinstance(made, PerEdge) else nodes.each(made._node)

    return CapturedProgram.of(capture, mapped(value_of, tree))
