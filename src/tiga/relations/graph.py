"""`Graph`: an immutable relation from sources to destinations."""

import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tiga.errors import InvalidType, InvalidValue, StaleTopology
from tiga.relations.combining import Combining
from tiga.relations.csr import Csr
from tiga.relations.indices import (
    Indices,
    as_count,
    as_given,
    as_indices,
    as_rows,
    require_same_device,
    to_kind,
)
from tiga.relations.inputs import CooInput, CsrInput, Input, Token, TransposedInput
from tiga.relations.memory import topology_bytes
from tiga.relations.on_device import DeviceCsr
from tiga.relations.snapshot import ROW_POINTERS, Snapshot, require_side
from tiga.relations.statistics import DegreeStatistics, degree_statistics
from tiga.relations.stored import Stored
from tiga.relations.traced import counts, is_tracing
from tiga.relations.validate import require_level
from tiga.relations.walk import Walk

T = TypeVar("T")


class Graph(Stored, Combining):
    """Directed edges from `num_src` sources to `num_dst` destinations.

    Build one with `from_csr`, `from_coo` or `from_edge_index`. Parallel edges and self-loops are
    kept, and no edge is ever added. Sources and destinations may be one set of nodes or two.

    Index inputs are tensors of torch or `tg`, numpy arrays or lists, int32 or int64, in any
    strides. A tensor of torch, or of `tg` on a GPU, is shared, not copied: writing to it in place
    is seen at the next use, when everything derived from it is checked and built again. Other
    inputs carry no version and are copied on entry. (Writes that torch itself cannot see, through
    `.numpy()` or `.data`, are not seen here either.)

    *Edge order* means the order in which the user gave the edges; edge fields follow it.
    *CSR order* sorts edges by destination, stably; `edge_permutation` leads from one to the other.

    `validate` says how indices are checked when a graph is built and after each in-place edit.
    "basic" (default) and "full" refuse the same graphs and name the first bad edge; "basic" takes
    one pass for the largest index and looks for the edge only if that is out of range, "full"
    looks at each edge. "none" trusts the indices: a wrong one then fails without explanation, or
    reads foreign memory.

    A graph can be pickled, copied and used from several threads.

    Example:
        >>> import tiga as tg
        >>> graph = tg.Graph.from_coo([0, 2, 1], [1, 0, 1])
        >>> graph
        Graph(num_src=3, num_dst=3, num_edges=3)
        >>> graph.row_ptr.tolist(), graph.col_idx.tolist()
        ([0, 1, 3, 3], [2, 0, 1])
        >>> graph.edge_permutation.tolist()
        [1, 0, 2]
    """

    __slots__ = ("__weakref__", "_lock", "_snapshot", "_validate", "input", "marks")

    input: Input
    marks: tuple[Any, ...] | None
    """What torch's compiler is to read instead, with extents marked to vary: tensors as long as
    there are sources and destinations, then the two index tensors or one that holds both."""

    def __init__(self, input: Input, validate: str = "basic") -> None:
        if not isinstance(input, (CsrInput, CooInput, TransposedInput)):
            raise InvalidType(
                "Graph: build one with Graph.from_csr, Graph.from_coo or Graph.from_edge_index."
            )
        self.input = input
        self._validate = require_level(validate)
        self._lock: Any = None if is_tracing() else threading.RLock()
        self._snapshot: Snapshot | None = None
        self.marks = None

    @classmethod
    def from_csr(
        cls, row_ptr: Any, col_idx: Any, *, num_src: int | None = None, validate: str = "basic"
    ) -> "Graph":
        """A graph from row pointers `[num_dst + 1]` and the sources `[num_edges]` of its edges.

        Row `d` holds the edges `row_ptr[d]` to `row_ptr[d + 1]`, all of which lead to destination
        `d`; edge order is CSR order. `num_src` left out is `num_dst`, or as many as the largest
        index needs if that is more.

        Raises:
            InvalidIndex: a source is negative or not below `num_src`.
            InvalidValue: `row_ptr` doesn't start at 0, falls, or doesn't end at the number of
                edges; an array hasn't one axis; 2^31 edges or more with an int32 `row_ptr`.
            InvalidType: an array doesn't hold int32 or int64; arrays lie on two devices.

        Example:
            >>> import tiga as tg
            >>> tg.Graph.from_csr([0, 2, 3, 3], [0, 1, 1], num_src=2)
            Graph(num_src=2, num_dst=3, num_edges=3)
        """
        pointers, sources = as_indices("row_ptr", row_ptr), as_indices("col_idx", col_idx)
        require_same_device(pointers, sources)
        return cls(CsrInput(pointers, sources, as_count("num_src", num_src)), validate)._checked()

    @classmethod
    def from_coo(
        cls,
        src: Any,
        dst: Any,
        *,
        num_src: int | None = None,
        num_dst: int | None = None,
        validate: str = "basic",
    ) -> "Graph":
        """A graph from the source and the destination `[num_edges]` of every edge, in any order.

        A count left out is the least that holds its indices and is no less than the other count:
        with neither given, sources and destinations are one set of nodes. Pass both for two sets.

        Raises:
            InvalidIndex: an index is negative or not below its count.
            InvalidValue: the arrays differ in length or haven't one axis.
            InvalidType: an array doesn't hold int32 or int64; arrays lie on two devices.

        Example:
            >>> import tiga as tg
            >>> tg.Graph.from_coo([0, 1, 2, 3, 3], [0, 0, 1, 3, 1], num_src=4, num_dst=6)
            Graph(num_src=4, num_dst=6, num_edges=5)
        """
        return cls._from_ends(
            as_indices("src", src), as_indices("dst", dst), num_src, num_dst, validate
        )

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Any,
        *,
        num_nodes: int | None = None,
        num_src: int | None = None,
        num_dst: int | None = None,
        validate: str = "basic",
    ) -> "Graph":
        """A graph from `edge_index` `[2, num_edges]`: sources, then destinations.

        `num_nodes` is the number of both sources and destinations. Otherwise as `from_coo`.

        Example:
            >>> import tiga as tg
            >>> tg.Graph.from_edge_index([[0, 2], [1, 3]], num_nodes=5)
            Graph(num_src=5, num_dst=5, num_edges=2)
        """
        if num_nodes is not None and (num_src is not None or num_dst is not None):
            raise InvalidValue(
                "Graph.from_edge_index: pass `num_nodes`, or `num_src` and `num_dst`, not both."
            )
        if num_nodes is not None:
            num_src = num_dst = as_count("num_nodes", num_nodes)
        src, dst = as_rows(edge_index)
        return cls._from_ends(src, dst, num_src, num_dst, validate)

    @classmethod
    def _from_ends(
        cls, src: Indices, dst: Indices, num_src: Any, num_dst: Any, validate: str
    ) -> "Graph":
        require_same_device(src, dst)
        counts = as_count("num_src", num_src), as_count("num_dst", num_dst)
        return cls(CooInput(src, dst, *counts), validate)._checked()

    @property
    def num_src(self) -> int:
        """Number of sources."""
        return counts(self)[0] if is_tracing() else self._current().num_src

    @property
    def num_dst(self) -> int:
        """Number of destinations."""
        return counts(self)[1] if is_tracing() else self._current().num_dst

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self._current().num_edges

    @property
    def device(self) -> str:
        """The device of the index arrays as torch spells it; "cpu" for numpy arrays."""
        place = self.input.place
        return "cpu" if place is None else str(place)

    @property
    def row_ptr(self) -> Any:
        """Row pointers `[num_dst + 1]`, in the kind and integer type of the input."""
        return self._derived("row_ptr", self.input.row_ptr)

    @property
    def col_idx(self) -> Any:
        """The source of every edge in CSR order `[num_edges]`, in the kind of the input."""
        return self._derived("col_idx", self.input.col_idx)

    @property
    def edge_permutation(self) -> Any:
        """int64 `[num_edges]`: `field[graph.edge_permutation]` puts an edge field in CSR order.

        Entry `p` is the position, in edge order, of the edge at CSR position `p`. None for a graph
        from CSR, where the two orders are one.
        """
        if isinstance(self.input, CsrInput):
            return None
        snapshot = self._current()
        return snapshot.keep("edge_permutation", lambda: self._permutation(snapshot))

    @property
    def permutes_edges(self) -> bool:
        """Whether edge order and CSR order differ; if not, edge fields can be read as they are."""
        return self._current().topology.permutation is not None

    def coo(self) -> tuple[Any, Any]:
        """Source and destination `[num_edges]` of every edge, in edge order.

        Example:
            >>> import tiga as tg
            >>> [end.tolist() for end in tg.Graph.from_csr([0, 2, 2, 3], [0, 1, 1]).coo()]
            [[0, 1, 1], [0, 0, 2]]
        """
        return self._derived("coo", self.input.coo)

    def transpose(self) -> "Graph":
        """The graph with every edge turned round.

        Edge order stays as it is: edge fields of this graph serve its transpose unchanged, and
        `transpose().coo()` is `coo()` swapped. `transpose().edge_permutation` maps the CSR order
        of the transpose to edge order. Transposing twice gives this graph itself. The transpose
        sees in-place edits of this graph's arrays.

        Example:
            >>> import tiga as tg
            >>> graph = tg.Graph.from_csr([0, 2, 3], [1, 0, 1]).transpose()
            >>> graph.row_ptr.tolist(), graph.col_idx.tolist(), graph.edge_permutation.tolist()
            ([0, 1, 3], [0, 0, 1], [1, 0, 2])
        """
        if isinstance(self.input, TransposedInput):
            return self.input.base
        if is_tracing():
            return Graph(TransposedInput(self), self._validate)
        with self._lock:
            derived = self._current().derived
            # Held weakly: the transpose holds this graph, and a cycle would outlive its last use.
            transposed = derived.get("transpose", lambda: None)()
            if transposed is None:
                transposed = Graph(TransposedInput(self), self._validate)
                derived["transpose"] = weakref.ref(transposed)
            return transposed

    def to(self, device: Any) -> "Graph":
        """The graph for fields on a device, "cuda" say; itself if it is there already.

        Its indices stay on the host, sorted as they are: nothing is copied back from a GPU.
        They are copied, so later edits of this graph's tensors are not seen. A graph that is not
        made of torch tensors raises InvalidType.

        Example:
            >>> import torch, tiga as tg
            >>> graph = tg.Graph.from_edge_index(torch.tensor([[0, 1], [1, 1]]))
            >>> graph.to("cpu") is graph
            True
        """
        from tiga.relations.placed import placed

        return placed(self, device)

    def degrees(self, side: str = "dst") -> Any:
        """Edges that come into each destination ("dst") or go out of each source ("src").

        int64 `[num_dst]` or `[num_src]`, in the kind of the input.

        Example:
            >>> import tiga as tg
            >>> tg.Graph.from_csr([0, 2, 2, 3], [0, 1, 1]).degrees().tolist()
            [2, 0, 1]
        """
        row_ptr = ROW_POINTERS[require_side(side)](self.csr())
        return to_kind(np.diff(row_ptr), self.input.template)

    def degree_statistics(self, side: str = "dst") -> DegreeStatistics:
        """Degrees of destinations ("dst", edges coming in) or sources ("src", going out).

        Example:
            >>> import tiga as tg
            >>> degrees = tg.Graph.from_csr([0, 2, 2, 3], [0, 1, 1]).degree_statistics()
            >>> degrees.minimum, degrees.maximum, degrees.mean, degrees.histogram
            (0, 2, 1.0, (1, 1, 1))
        """
        key = "degrees", require_side(side)
        return self._derived(key, lambda csr: degree_statistics(ROW_POINTERS[side](csr)))

    def walk(self, side: str, token: Token | None = None) -> Walk:
        """The relation seen from `side`: "dst" (rows are destinations) or "src" (the transpose).

        Built once per version of the index arrays. With `token`, raises StaleTopology unless the
        arrays are as they were when `token()` gave it.
        """
        if token is not None:
            self.require_unchanged(token)
        return self._current().walk(side)

    def snapshot(self) -> Snapshot:
        """The topology as the index arrays are now: it serves a run in place of the graph."""
        return self._current()

    def token(self) -> Token:
        """The versions of the index arrays: equal tokens of one graph mean equal topology."""
        return self.input.token()

    def check_unchanged(self, token: Token) -> bool:
        """Whether the index arrays are as they were when `token()` gave this token."""
        return self.input.token() == token

    def require_unchanged(self, token: Token) -> None:
        """Raise StaleTopology if the index arrays were written to since `token` was taken."""
        if self.input.token() != token:
            raise StaleTopology(
                "Graph: its index tensors were modified in place between a forward call and its "
                "backward, which needs the edges of the forward. Call backward first, or edit a "
                "copy and build another graph from that."
            )

    def topology_bytes(self) -> dict[str, int]:
        """Bytes that the graph holds now, by part; memory that parts share counts once.

        - `input`: index arrays as given, the user's own tensors included;
        - `csr`: row pointers, sources in the narrowest type, edge permutation;
        - `transpose`: row pointers and destinations of the walk over sources;
        - `edge_map`: from transposed to CSR positions;
        - `plan`: tasks and hub chunks, on a GPU work lists;
        - `converted`: arrays handed out in the kind and type of the input.
        """
        snapshot = self._current()
        return topology_bytes(self.input.arrays(), snapshot.topology, snapshot.derived)

    @property
    def nbytes(self) -> int:
        """The sum of `topology_bytes()`."""
        return sum(self.topology_bytes().values())

    def csr(self) -> Csr:
        """The checked topology in destination order, as numpy arrays that must not be written."""
        return self._current().csr

    def derived(self, key: Any, build: Callable[[Csr], T]) -> T:
        """What `build` makes of the checked topology, kept under `key` for this version of the
        index arrays: how a backend keeps its own form of a graph."""
        return self._derived(key, build)

    def __repr__(self) -> str:
        return f"Graph(num_src={self.num_src}, num_dst={self.num_dst}, num_edges={self.num_edges})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Graph, (self.input, self._validate)

    def _checked(self) -> "Graph":
        if not is_tracing():
            self._current()
        return self

    def _current(self) -> Snapshot:
        token = self.input.token()
        snapshot = self._snapshot
        if snapshot is not None and snapshot.token == token:
            return snapshot
        with self._lock:
            snapshot = self._snapshot
            if snapshot is None or snapshot.token != token:
                # Dropped first: old and new topology need not both fit in memory.
                self._snapshot = snapshot = None
                there = self.input.build_on_gpu(self._validate)
                topology = self.input.build(self._validate) if there is None else there
                snapshot = self._snapshot = Snapshot(token, topology)
        return snapshot

    def _derived(self, key: Any, build: Callable[[Csr], T]) -> T:
        return self._current().get(key, build)

    def _permutation(self, snapshot: Snapshot) -> Any:
        topology = snapshot.topology
        if isinstance(topology, DeviceCsr) and topology.permutation is not None:
            return as_given(topology.permutation, self.input.template)
        csr = snapshot.csr
        order = csr.permutation
        if order is None:
            order = np.arange(csr.num_edges, dtype=np.int64)
        return to_kind(order.astype(np.int64, copy=False), self.input.template)
