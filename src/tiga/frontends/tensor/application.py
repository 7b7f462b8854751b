"""Expressions built once and written down: built again, no rule or check runs a second time.

A record is applied to nodes by an `Application`, whose results stand for the nodes that would be
built: what is computed, and what derivatives it has, is told by the record and by what it was
applied to. Who looks at the op or the inputs of a result has them built.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import ref

from tiga.frontends.tensor.lazy import COMPILE_FROM, LazyNode, Place, Unbuilt, user_place
from tiga.frontends.tensor.waiting import extent_of
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import Type


class Step(NamedTuple):
    """One node: its inputs are numbers of given nodes, then of the record's constants, then of
    steps before it; `size` is that of its value."""

    op: Any
    type: Type
    inputs: tuple[int, ...]
    size: int


class Result(NamedTuple):
    """One of the results of an application, in the key of an expression."""

    number: int


class Inner(NamedTuple):
    """An application among what a record is applied to, whose nodes the record reads: its place
    there, and that of its first node among all given nodes."""

    place: int
    start: int


@dataclass(frozen=True, eq=False)
class Record:
    """The nodes that were built on given ones, and which of all are the results.

    It is applied to a sequence of nodes and applications. The given nodes are the nodes of that
    (it reads those at places `used`), then those of its applications (it reads those of `inner`);
    `given` is how many they are. `height` is the number of nodes in the longest chain of steps,
    `size` that of the largest value; `is_small` tells that this is small for all that it reads.
    """

    constants: tuple[Node, ...]
    steps: tuple[Step, ...]
    results: tuple[int | None, ...]
    given: int
    used: tuple[int, ...]
    inner: tuple[Inner, ...]
    height: int
    size: int
    marks: tuple[Result, ...]
    is_small: bool

    @staticmethod
    def of(given: Sequence["Node | Application"], found: Sequence[Node | None]) -> "Record | None":
        """The record of what was found from given nodes; None if it holds values of its own."""
        nodes, inner = _all_nodes(given)
        new = _above(nodes, [node for node in found if node is not None])
        constants = tuple(node for node in new if not node.inputs)
        if any(node.op.origin is not Origin.NUMBER for node in constants):
            return None
        made = [node for node in new if node.inputs]
        every = [*nodes, *constants, *made]
        # Of a node that was given twice the first place counts: it is there without being built.
        places = {node: place for place, node in reversed(list(enumerate(every)))}
        steps = tuple(
            Step(n.op, n.type, tuple(places[child] for child in n.inputs), n.type.size)
            for n in made
        )
        results = tuple(None if node is None else places[node] for node in found)
        read = {i for step in steps for i in step.inputs} | set(results)
        ends = [*[one.start for one in inner], len(nodes)][1:]
        used = tuple(i for i in range(len(given)) if i in read)
        read_of = tuple(
            one for one, end in zip(inner, ends, strict=True)
            if not read.isdisjoint(range(one.start, end))
        )  # fmt: skip
        size = max([node.type.size for node in (*constants, *made)], default=0)
        largest = max([size, *[nodes[i].type.size for i in used]])
        return Record(
            constants, steps, results, len(nodes), used, read_of,
            _height(steps, len(nodes) + len(constants)), size,
            tuple(map(Result, range(len(results)))), not read_of and largest < COMPILE_FROM,
        )  # fmt: skip

    def build(self, given: Sequence["Node | Application"]) -> list[Node | None]:
        """The results on other nodes; built at once where values are so small that numpy will
        compute them, node by node."""
        if not self.is_small:
            return Application(self, given, user_place()).results(given)
        values: list[Any] = [*given, *[None] * (self.given - len(given))]
        every: list[Node] = [*values, *self.nodes(values, user_place(), {})]
        return [None if i is None else every[i] for i in self.results]

    def nodes(
        self, values: list[Any], place: Place | None, handed: dict[int, Unbuilt]
    ) -> list[Node]:
        """The constants and the nodes of all steps, on given nodes; those by their numbers in
        `handed` become plain nodes."""
        nodes = [*values, *self.constants]
        depths, sizes = _extents(nodes)
        for op, type_, inputs, largest in self.steps:
            # Most nodes have one or two inputs, and records are what long expressions consist of.
            if len(inputs) == 1:
                (i,) = inputs
                below: tuple[Node, ...] = (nodes[i],)
                depth, size = depths[i], sizes[i]
            elif len(inputs) == 2:
                i, j = inputs
                below = (nodes[i], nodes[j])
                depth = depths[i] if depths[i] > depths[j] else depths[j]
                size = sizes[i] if sizes[i] > sizes[j] else sizes[j]
            else:
                below = tuple([nodes[i] for i in inputs])
                depth = max([depths[i] for i in inputs])
                size = max([sizes[i] for i in inputs])
            largest = size if size > largest else largest
            result = handed and handed.get(len(nodes))
            if result:
                result.become(op, below)
            nodes.append(result or LazyNode(op, below, type_, place, depth + 1, largest))
            depths.append(depth + 1)
            sizes.append(largest)
        return nodes[self.given :]


def _all_nodes(given: Sequence["Node | Application"]) -> tuple[list[Any], list[Inner]]:
    """Given nodes and those of given applications, which stand for themselves among the former."""
    nodes: list[Any] = list(given)
    inner = []
    for place, one in enumerate(given):
        if one.__class__ is Application:
            inner.append(Inner(place, len(nodes)))
            nodes += one.build()
    return nodes, inner


def _height(steps: Sequence[Step], first: int) -> int:
    heights: list[int] = []
    for step in steps:
        heights.append(1 + max([heights[i - first] for i in step.inputs if i >= first], default=0))
    return 1 + max(heights, default=0)


def _extents(nodes: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Of every node how long the longest chain below it is that waits, and the size of the largest
    value there."""
    depths: list[int] = []
    sizes: list[int] = []
    for node in nodes:
        if node is None:
            depth = size = 0
        elif node.__class__ in _MEASURED:
            depth, size = (0 if node.cell is not None else node.depth), node.largest
        else:
            depth, size = extent_of((node,)) if node.inputs else (1, node.type.size)
        depths.append(depth)
        sizes.append(size)
    return depths, sizes


def _above(given: Sequence[Node], found: Sequence[Node]) -> list[Node]:
    """The nodes that `found` need beside the given ones, each after its inputs."""
    order: list[Node] = []
    seen = set(given)
    stack = [(node, False) for node in reversed(found)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.inputs))
    return order


class Application:
    """A record on given nodes, which are its `children`, built when that is asked for. It is among
    the nodes of an expression: what results of it are made of."""

    __slots__ = ("_found", "_made", "children", "depth", "largest", "place", "record")

    cell = None
    type = None

    def __init__(
        self, record: Record, given: Sequence["Node | Application"], place: Place | None
    ) -> None:
        self.record = record
        self.place = place
        places = (*record.used, *[one.place for one in record.inner])
        self.children: tuple[Any, ...] = tuple([given[i] for i in places])
        depths, sizes = _extents(self.children)
        self.depth = max(depths, default=0) + record.height
        self.largest = max(record.size, *sizes) if sizes else record.size
        self._found: list[tuple[int, ref[Unbuilt]]] = []
        self._made: list[Node] | None = None

    @staticmethod
    def of_nothing(record: Record, place: Place | None) -> "Application":
        """One that is given its children later."""
        made = Application.__new__(Application)
        made.record, made.place = record, place
        made.children, made.depth, made.largest = (), 0, 0
        made._found, made._made = [], None
        return made

    def results(self, given: Sequence[Any]) -> list[Node | None]:
        """The record's results, on what it was applied to."""
        made: dict[int, Node] = {}
        for number, place in enumerate(self.record.results):
            if place is not None and place not in made:
                made[place] = self._result(number, place, given)
        return [None if place is None else made[place] for place in self.record.results]

    def _result(self, number: int, place: int, given: Sequence[Any]) -> Node:
        """The node at a place among all."""
        if place < len(given):
            found: Node = given[place]
            return found
        record = self.record
        first = record.given + len(record.constants)
        if place < first:
            every: list[Node] = [*self._values(), *record.constants]
            return every[place]
        kind = record.steps[place - first].type
        node = Unbuilt((self, number), kind, self.place, self.depth, self.largest)
        self._found.append((place, ref(node)))
        return node

    def result(self, number: int) -> Node:
        """One result, built."""
        place = self.record.results[number]
        assert place is not None
        return self.build()[place - self.record.given]

    @property
    def known(self) -> list[Node]:
        """Results that hold values in memory."""
        alive = [found() for _, found in self._found]
        return [node for node in alive if node is not None and node.cell is not None]

    def build(self) -> list[Node]:
        """The record's constants and the nodes of its steps. Results that are still known are
        among them."""
        if self._made is None:
            alive = [(place, found()) for place, found in self._found]
            handed = {place: node for place, node in alive if node.__class__ is Unbuilt}
            self._made = self.record.nodes(self._values(), self.place, handed)
        return self._made

    def _values(self) -> list[Any]:
        """The given nodes that the record reads, at their places among all."""
        record = self.record
        values: list[Any] = [None] * record.given
        for place, child in zip(record.used, self.children, strict=False):
            values[place] = child
        # What is deepest comes last, and is built first: then nothing recurses.
        inner = self.children[len(record.used) :]
        for one, application in reversed([*zip(record.inner, inner, strict=True)]):
            nodes = application.build()
            values[one.start : one.start + len(nodes)] = nodes
        return values


_MEASURED = (LazyNode, Unbuilt, Application)
"""What knows its depth and the size of the largest value in it."""


class Part(NamedTuple):
    """What tells a result, or an application, from others, and what it is made of."""

    mark: Result | Record
    children: tuple[Any, ...]


def part_of(one: "Unbuilt | Application") -> Part | None:
    """The part of an expression that a result or an application is; None for a result that was
    built in the meantime, which is a node like others."""
    if isinstance(one, Application):
        return Part(one.record, one.children)
    source = one.source
    if source is None:
        return None
    application, number = source
    return Part(application.record.marks[number], (application,))
