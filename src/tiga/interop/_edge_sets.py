"""The edges that layers make of those of a call: without loops, with a loop added per node.

A set is named by the parts that it has. Layers change edges only by dropping loops and adding
some, so programs range over parts of one derived graph, in which an edge knows its part.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tiga.errors import TigaError
from tiga.relations import Graph

OTHERS, LOOPS, ADDED = "others", "loops", "added"
"""Edges between two nodes; loops of the call; loops added, one at every node, in order."""

EdgeSet = frozenset[str]
GIVEN: EdgeSet = frozenset({OTHERS, LOOPS})

OWN_LOOP, ADDED_LOOP, FILLED_LOOP = "own loop", "added loop", "filled loop"
"""Fields of a derived graph's edges: whether an edge is a loop of the call, an added one, and an
added one at a node that had a loop before, whose fields it has. The last is missing where a node
had several."""


class NotWhole(TigaError):
    """No program can hold a layer's `forward`."""


class ParallelLoops(NotWhole):
    """Values of several loops of one node are written to it: torch's derivative goes to all."""


class AlongOther(BaseException):  # no handler of errors on the way is meant
    """Tells who traces a layer that its messages go along other edges than was supposed."""

    def __init__(self, edges: EdgeSet) -> None:
        super().__init__(edges)
        self.edges = edges


def loops_of(edges: EdgeSet) -> EdgeSet:
    """The part of a set that leads from a node to itself."""
    return edges - {OTHERS}


@dataclass(frozen=True)
class Derived:
    """A graph whose edges were made of those of a call.

    Attributes:
        graph: the edges.
        source: for each of them, the edge of the call whose fields it has; None for the edges of
            the call as they are, and where these have no fields.
        masks: the fields that tell parts, bool.
    """

    graph: Graph
    source: torch.Tensor | None
    masks: Mapping[str, torch.Tensor]

    def fields(self, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Fields of the call's edges as fields of these. Loops added where there was none get
        any value: programs do not use it."""
        return {**{name: self._moved(value) for name, value in given.items()}, **self.masks}

    @property
    def has_parallel_loops(self) -> bool:
        """Whether loops were added where a node has several already."""
        return ADDED_LOOP in self.masks and FILLED_LOOP not in self.masks

    def _moved(self, value: torch.Tensor) -> torch.Tensor:
        if self.source is None:
            return value
        if not len(value):
            return value.new_zeros((len(self.source), *value.shape[1:]))
        return value.index_select(0, self.source)


@torch.inference_mode(False)
def derive(
    src: torch.Tensor, dst: torch.Tensor, num_src: int, num_dst: int, edges: EdgeSet,
    has_fields: bool = True,
) -> Derived:  # fmt: skip
    """The graph of a set of edges, of the edges of a call.

    Args:
        src, dst: both ends of every edge of the call, `[E]`, integers.
        has_fields: whether edges have fields, which then are moved at every call: in the order of
            the walks at once.
    """
    if edges == GIVEN:
        return Derived(Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst), None, {})
    loop = src == dst
    if bool((loop & ((src < 0) | (src >= min(num_src, num_dst)))).any()):
        # A loop that is dropped names a node even so: the graph says what is wrong with it.
        Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst).snapshot()
    kept = ~loop if LOOPS not in edges else loop if OTHERS not in edges else torch.ones_like(loop)
    source = kept.nonzero().view(-1)
    columns = [src[source], dst[source], source, loop[source]]
    none = torch.zeros_like(source, dtype=torch.bool)
    columns += [none, none]
    if ADDED in edges:
        added = _added(src, loop, min(num_src, num_dst))
        columns = [torch.cat(pair) for pair in zip(columns, added, strict=True)]
    if has_fields:
        order = torch.argsort(columns[1], stable=True)
        columns = [column[order] for column in columns]
    src, dst, source, own, new, filled = columns
    graph = Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    masks = {OWN_LOOP: own, ADDED_LOOP: new, FILLED_LOOP: filled}
    if ADDED in edges and int(filled.sum()) != int(loop.sum()):
        del masks[FILLED_LOOP]
    if not has_fields:
        return Derived(graph, None, masks)
    narrow = len(loop) <= torch.iinfo(torch.int32).max
    return Derived(graph, source.int() if narrow else source, masks)


def _added(src: torch.Tensor, loop: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    """The columns of `derive` for one loop a node; the last of a node's own loops fills it."""
    at = torch.arange(count, dtype=src.dtype, device=src.device)
    own = loop.nonzero().view(-1)
    last = torch.full((count,), -1, dtype=torch.int64, device=src.device)
    last = last.scatter_reduce(0, src[own].long(), own, "amax")
    new = torch.ones_like(at, dtype=torch.bool)
    return at, at, last.clamp(min=0), ~new, new, last >= 0
