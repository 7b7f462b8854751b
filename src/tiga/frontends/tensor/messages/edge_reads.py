"""Rows of fields along edges of a graph in a file: numbers of rows are read anew for each use, so
that no expression keeps them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tiga.ops.dense import OuterCall
from tiga.ops.tensor_index import IndexAdd
from tiga.paging.numbers import bounds_of
from tiga.relations.paged import PagedGraph
from tiga.relations.row_blocks import PagedPointers, Rows
from tiga.runtime.scope import active
from tiga.trace.node import Node
from tiga.types import Type


@dataclass(frozen=True)
class EdgeEnd:
    """One end of the edges of a block, or the edges themselves."""

    graph: PagedGraph
    block: Rows
    end: str

    @property
    def count(self) -> int:
        """How many edges there are."""
        return self.block.last - self.block.first

    @property
    def span(self) -> tuple[int, int] | None:
        """The range of rows that they are, if they are one."""
        return (self.block.first, self.block.last) if self.end == "edge" else None

    def numbers(self) -> np.ndarray:
        """The row of each edge, int64; charged to the scope in force while they live.

        Raises:
            InvalidFile: the file names an edge that cannot be.
        """
        with self.graph.reading():
            numbers = self._read()
        scope = active()
        if scope is not None:
            scope.adopt(numbers, "numbers of edges of a call in blocks")
        return numbers

    def _read(self) -> np.ndarray:
        (low, high, first, last), walk = self.block, self.graph.walks["dst"]
        if self.end == "edge":
            return np.arange(first, last)
        if self.end == "dst":
            degrees = np.diff(PagedPointers(walk).between(low, high))
            return np.repeat(np.arange(low, high), degrees)
        sources = np.empty((last - first, 1), walk.dtype)
        walk.index.read_into(first, sources.view(np.uint8))
        bounds_of(sources, self.graph.num_src)
        return sources.reshape(-1).astype(np.int64)


@dataclass(frozen=True)
class ReadAtEdges(OuterCall):
    """The rows of a field that edges read."""

    name: ClassVar[str] = "read_at_edges"
    arity = 1
    of: EdgeEnd

    @property
    def form(self) -> tuple[Any, ...]:
        return self.name, self.of.end, self.of.count

    def infer(self, *types: Type) -> Type:
        (x,) = types
        return x.with_shape((self.of.count, *x.shape[1:]))

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        return np.take(x, self.of.numbers(), axis=0)

    def vjp(self, ct: Node, out: Node, *inputs: Node) -> Sequence[Node | None]:
        return (AddAtEdges(self.of, inputs[0].type.shape[0])(ct),)

    def jvp(self, tangents: Sequence[Node | None], out: Node, *inputs: Node) -> Sequence[Node]:
        return [] if tangents[0] is None else [self(tangents[0])]


@dataclass(frozen=True)
class AddAtEdges(OuterCall):
    """Values of edges, added to the rows that these read, of so many rows."""

    name: ClassVar[str] = "add_at_edges"
    arity = 1
    of: EdgeEnd
    rows: int

    @property
    def form(self) -> tuple[Any, ...]:
        return self.name, self.of.end, self.of.count, self.rows

    def infer(self, *types: Type) -> Type:
        (x,) = types
        return x.with_shape((self.rows, *x.shape[1:]))

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        return IndexAdd(0, self.rows).compute(x, self.of.numbers())

    def vjp(self, ct: Node, out: Node, *inputs: Node) -> Sequence[Node | None]:
        return (ReadAtEdges(self.of)(ct),)

    def jvp(self, tangents: Sequence[Node | None], out: Node, *inputs: Node) -> Sequence[Node]:
        return [] if tangents[0] is None else [self(tangents[0])]
