"""Graphs side by side in one, made from what is known of each: no edge is sorted again."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.relations.csr import Csr
from tiga.relations.graph import Graph
from tiga.relations.indices import index_dtype, to_kind
from tiga.relations.inputs import CooInput, CsrInput
from tiga.relations.made import graph_of, input_of
from tiga.relations.snapshot import Snapshot
from tiga.relations.traced import is_tracing

OF = ("dst", "src", "edge")
"""What a graph has several of."""


class GraphBatch(Graph):
    """Graphs side by side as one graph; made by `Graph.batch`.

    Nodes and edges of each graph follow those of the graph before it. `of` says in all methods
    whether destinations ("dst"), sources ("src") or edges ("edge", in edge order) are meant.

    Example:
        >>> import torch, tiga as tg
        >>> class Total(tg.MessagePassing):
        ...     def edge(self, src, dst, edge):
        ...         return src.energy
        >>> path = tg.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> batch = tg.Graph.batch([path, path])
        >>> energy = torch.tensor([1.0, 2.0, 3.0, 10.0, 20.0, 30.0])
        >>> Total()(graph=batch.membership(), src={"energy": energy})
        tensor([ 6., 60.])
        >>> [piece.tolist() for piece in batch.unbatch(energy)]
        [[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]
    """

    __slots__ = ("_starts",)

    def __init__(self, input: CsrInput | CooInput, csr: Csr, starts: dict[str, np.ndarray]) -> None:
        super().__init__(input, "none")
        self._snapshot = Snapshot(self.token(), csr)
        self._starts = starts

    @property
    def num_graphs(self) -> int:
        """Number of graphs."""
        return len(self._starts["dst"]) - 1

    def counts(self, of: str = "dst") -> Any:
        """How many nodes or edges each graph has: int64 `[num_graphs]`, in the kind of the indices.

        Example:
            >>> import tiga as tg
            >>> batch = tg.Graph.batch([tg.Graph.from_coo([0], [2]), tg.Graph.from_coo([0], [0])])
            >>> batch.counts().tolist(), batch.counts("edge").tolist()
            ([3, 1], [1, 1])
        """
        return to_kind(np.diff(self._starts_of("counts", of)), self.input.template)

    def membership(self, of: str = "dst") -> Graph:
        """The relation from nodes, or edges, to the graphs that they belong to.

        A kernel over it reduces values of nodes to one for each graph, with any reducer and
        derivatives of every order; one over its transpose gives values of graphs to their nodes.
        It is made once, and kept with the batch.

        Example:
            >>> import tiga as tg
            >>> batch = tg.Graph.batch([tg.Graph.from_coo([0], [2]), tg.Graph.from_coo([0], [0])])
            >>> batch.membership()
            Graph(num_src=4, num_dst=2, num_edges=4)
            >>> [end.tolist() for end in batch.membership().coo()]
            [[0, 1, 2, 3], [0, 0, 0, 1]]
        """
        starts = self._starts_of("membership", of)
        return self.derived(("membership", of), lambda _: self._members(starts))

    def unbatch(self, values: Any, of: str = "dst") -> list[Any]:
        """The values of each graph's nodes, or edges: views of `values` along its first axis.

        Raises:
            InvalidValue: `values` hasn't one entry for each.

        Example:
            >>> import torch, tiga as tg
            >>> batch = tg.Graph.batch([tg.Graph.from_coo([0], [2]), tg.Graph.from_coo([0], [0])])
            >>> [piece.tolist() for piece in batch.unbatch(torch.tensor([5, 6]), "edge")]
            [[5], [6]]
        """
        starts = self._starts_of("unbatch", of)
        shape = tuple(getattr(values, "shape", ()))
        if not shape or shape[0] != starts[-1]:
            raise InvalidValue(
                f"GraphBatch.unbatch: expected {starts[-1]} values along the first axis, one for "
                f"each {_NAMES[of]}, got shape {list(shape)}. `of` says whose values they are."
            )
        if isinstance(values, np.ndarray):
            return np.split(values, starts[1:-1]) if self.num_graphs else []
        return list(values.split(np.diff(starts).tolist())) if self.num_graphs else []

    def to(self, device: Any) -> "GraphBatch":
        """The batch for fields on a device; see `Graph.to`."""
        from tiga.relations.placed import moved_input

        moved: Any = moved_input(self, device)
        return self if moved is None else GraphBatch(moved, self.csr(), self._starts)

    def __repr__(self) -> str:
        inner = super().__repr__().removeprefix("Graph(")
        return f"GraphBatch(num_graphs={self.num_graphs}, {inner}"

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphBatch, (self.input, self.csr(), self._starts)

    def _starts_of(self, method: str, of: Any) -> np.ndarray:
        if of not in OF:
            raise InvalidValue(
                f'GraphBatch.{method}: `of` must be "dst", "src" or "edge", got {of!r}.'
            )
        return self._starts[of]

    def _members(self, starts: np.ndarray) -> Graph:
        """The graph whose row number g has the nodes of graph number g."""
        count, dtype = int(starts[-1]), self.input.dtypes()[0]
        csr = Csr(count, len(starts) - 1, starts, np.arange(count, dtype=dtype))
        return graph_of(csr, dtype, self.input.template)


_NAMES = {"dst": "destination", "src": "source", "edge": "edge"}


def batched(graphs: Iterable[Any]) -> GraphBatch:
    """See `Graph.batch`."""
    if is_tracing():
        raise InvalidValue(
            "Graph.batch: inside torch.compile or torch.export the graphs have no data yet; make "
            "the batch outside of the compiled function and pass it to it."
        )
    if isinstance(graphs, Graph):
        raise InvalidType("Graph.batch: expected several graphs, got one: pass `[graph]`.")
    given = list(graphs)
    parts = [_topology(place, graph) for place, graph in enumerate(given)]
    _require_one_device(given)
    sizes = [(part.num_dst, part.num_src, part.num_edges) for part in parts]
    totals = np.zeros((len(OF), len(parts) + 1), np.int64)
    np.cumsum(np.array(sizes, np.int64).reshape(-1, len(OF)).T, axis=1, out=totals[:, 1:])
    starts = dict(zip(OF, totals, strict=True))
    csr = _joined(parts, starts)
    made = (graph.input.template for graph in given)
    template = next((one for one in made if one is not None), None)
    return GraphBatch(input_of(csr, _dtype(given, csr), template), csr, starts)


def _topology(place: int, graph: Any) -> Csr:
    """The checked edges of a graph, on the host."""
    if not isinstance(graph, Graph):
        raise InvalidType(
            f"Graph.batch: expected graphs, got {type(graph).__name__} at position {place}."
        )
    if graph.paged:
        raise InvalidType(
            f"Graph.batch: graph {place} is in a file, and a batch is in memory. Read it with "
            f"`graph.in_memory()`."
        )
    return graph.snapshot().csr


def _require_one_device(graphs: list[Graph]) -> None:
    places = [graph.input.place for graph in graphs]
    if all(place == places[0] for place in places):
        return
    devices = {graph.device: place for place, graph in enumerate(graphs)}
    if len(devices) > 1:
        found = ", ".join(f"graph {place} on {device}" for device, place in devices.items())
        raise InvalidType(f"Graph.batch: graphs must lie on one device, got {found}.")


def _dtype(graphs: list[Graph], csr: Csr) -> np.dtype:
    """The type of indices that the user is given."""
    dtypes = {dtype for graph in graphs for dtype in graph.input.dtypes()} or {np.dtype(np.int64)}
    return max(csr.index_dtype, *dtypes)


def _joined(parts: list[Csr], starts: dict[str, np.ndarray]) -> Csr:
    """The edges of all parts in the order of their destinations, which is that of the parts."""
    num_dst, num_src, num_edges = (int(starts[of][-1]) for of in OF)
    dtype = index_dtype(num_src, num_dst, num_edges)
    counts = {of: np.diff(starts[of]) for of in OF}
    row_ptr = np.zeros(num_dst + 1, np.int64)
    if parts:
        np.concatenate([part.row_ptr[1:] for part in parts], out=row_ptr[1:])
    row_ptr[1:] += np.repeat(starts["edge"][:-1], counts["dst"])
    col_idx = _concatenated([part.col_idx for part in parts], dtype)
    col_idx += np.repeat(starts["src"][:-1].astype(dtype), counts["edge"])
    if all(part.permutation is None for part in parts):
        return Csr(num_src, num_dst, row_ptr, col_idx)
    orders = [
        np.arange(part.num_edges, dtype=dtype) if part.permutation is None else part.permutation
        for part in parts
    ]
    permutation = _concatenated(orders, dtype)
    permutation += np.repeat(starts["edge"][:-1].astype(dtype), counts["edge"])
    return Csr(num_src, num_dst, row_ptr, col_idx, permutation)


def _concatenated(arrays: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    # Numbers of a part are small enough whatever type they came in.
    if not arrays:
        return np.empty(0, dtype)
    return np.concatenate(arrays, dtype=dtype, casting="same_kind")
