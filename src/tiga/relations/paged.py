"""`PagedGraph`: a graph whose edges stay in a file, read a page of rows at a time."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tiga.errors import InvalidFile, InvalidValue, UnknownName, UnsupportedByBackend
from tiga.relations.csr import Csr
from tiga.relations.graph import Graph
from tiga.relations.indices import index_dtype
from tiga.relations.inputs import Token
from tiga.relations.spread import Core, core_of
from tiga.runtime.container import Container
from tiga.runtime.container_header import numpy_dtype
from tiga.runtime.mapped import map_file
from tiga.runtime.pages import Damaged, FileRows, Traffic, scratch_bytes


@dataclass(frozen=True)
class PagedWalk:
    """One orientation of a graph in a file.

    `tasks` is the table of `store.task_table`; the rest is read by ranges: `row_ptr` in rows of 8
    bytes, `index` and `edge_id` (None for the destination walk) in rows of `dtype`. `ascends` where
    indices do along each row, as far as the file says.
    """

    side: str
    num_rows: int
    num_edges: int
    dtype: np.dtype
    tasks: np.ndarray
    row_ptr: FileRows
    index: FileRows
    edge_id: FileRows | None
    ascends: bool = False

    @property
    def num_tasks(self) -> int:
        return len(self.tasks) - 1

    @cached_property
    def task_edges(self) -> np.ndarray:
        """int64 `[T + 1]`: the edge position at which each task starts."""
        return self.pointers(self.tasks[:, 0])

    @cached_property
    def cores(self) -> list[tuple[Core, Core]]:
        """Where most indices, and most edge numbers, of each task lie."""
        found = []
        edges_of = pairwise(self.task_edges.tolist())
        for edges, row in zip(edges_of, self.tasks.tolist(), strict=False):
            index = core_of(self.index, self.dtype, edges, row[1], row[2])
            numbers = Core(row[3], row[4], 0)
            if self.edge_id is not None:
                numbers = core_of(self.edge_id, self.dtype, edges, row[3], row[4])
            found.append((index, numbers))
        return found

    @cached_property
    def longest(self) -> int:
        """The most edges of a row; reads all row pointers."""
        most, step = 0, 2**16
        for low in range(0, self.num_rows, step):
            high = min(low + step, self.num_rows)
            most = max(most, int(np.diff(self.pointers(np.arange(low, high + 1))).max()))
        return most

    def joined(self, boundaries: np.ndarray) -> "PagedWalk":
        """The same walk with fewer tasks, of which `boundaries` are the first rows."""
        at = np.searchsorted(self.tasks[:, 0], boundaries)
        table = np.zeros((len(at), 5), np.int64)
        table[:, 0] = boundaries
        for task, (first, last) in enumerate(pairwise(at)):
            part = self.tasks[first:last, 1:]
            for column in (0, 2):
                used = part[part[:, column + 1] > part[:, column]]
                if len(used):
                    ends = used[:, column].min(), used[:, column + 1].max()
                    table[task, 1 + column : 3 + column] = ends
        return replace(self, tasks=table)

    def pointers(self, rows: np.ndarray) -> np.ndarray:
        """The row pointers at these rows, ascending, int64."""
        distinct, ranks = np.unique(rows, return_inverse=True)
        pointers = np.empty((len(distinct), 1), np.int64)
        scratch = np.empty(scratch_bytes(pointers.itemsize), np.uint8)
        self.row_ptr.take(distinct, pointers.view(np.uint8), scratch)
        return pointers.reshape(-1)[ranks.reshape(-1)]


class PagedField:
    """A field of a graph in a file: its rows are read when a page of them is needed.

    It can stand among the fields of a call as it is. `numpy()` maps it, for everything else; a
    tensor that shares that memory (`torch.from_numpy`) is still read by pages, and can require
    gradients.
    """

    def __init__(self, container: Container, name: str) -> None:
        self._container = container
        self._entry = container.entry(f"fields.{name}")
        self.name = name

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, then the feature axes."""
        return self._entry.shape

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        return self._entry.dtype

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self._entry.nbytes

    def numpy(self) -> np.ndarray:
        """The field, mapped from the file anew: memory is used for what is looked at. It is not to
        be written to: pages are read from the file."""
        entry = self._entry
        self._container.require_length(entry)
        block = map_file(self._container.fd, entry.offset, entry.nbytes, self._container, False)
        return block.view(numpy_dtype(entry.dtype)).reshape(entry.shape)

    def __repr__(self) -> str:
        return f"PagedField({self.name!r}, shape={self.shape}, dtype={self.dtype})"


class InFile:
    """The input of a graph in a file: no index array that a user gave."""

    template = row_ptr = col_idx = coo = None


class PagedGraph(Graph):
    """A graph in a file; made by `Graph.open`.

    It stands in for a graph in memory in calls of `MessagePassing`, forward and backward, with the
    same results bit for bit. Pages are as large as the budgets of the enclosing `tg.execution`
    allow, else TIGA_MEMORY_BOUND.

    `fields` holds its fields by namespace and name: `layer(graph=g, src=g.fields["src"], ...)`.
    """

    __slots__ = ("_container", "_counts", "_device", "_kept", "fields", "traffic", "walks")

    paged = True

    def __init__(self, path: Any, device: str = "cpu") -> None:
        container = Container(path)
        self._device, self._kept = device, dict[Any, Any]()
        if container.kind != "graph":
            raise InvalidFile(f"{path}: holds a {container.kind!r}, not a graph; use tg.load.")
        self._container, self.traffic, self.marks = container, Traffic(), None
        self.input: Any = InFile()
        counts = container.info
        self._counts = tuple(int(counts[n]) for n in ("num_src", "num_dst", "num_edges"))
        self.walks = {side: self._open_walk(side) for side in ("dst", "src")}
        self.fields = self._open_fields()

    @property
    def path(self) -> Path:
        """The file."""
        return self._container.path

    @property
    def num_src(self) -> int:
        """Number of sources."""
        return self._counts[0]

    @property
    def num_dst(self) -> int:
        """Number of destinations."""
        return self._counts[1]

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self._counts[2]

    @property
    def device(self) -> str:
        """Where it runs; its fields may lie there, on the CPU or in the file."""
        return self._device

    def keep(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once: something that follows from the edges."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The body of a `with` reads pages.

        Raises:
            InvalidFile: what they hold cannot be, or they are no longer there.
        """
        try:
            yield
        except Damaged as error:
            raise InvalidFile(f"{self.path}: {error}; it was damaged: write it again.") from None

    @property
    def permutes_edges(self) -> bool:
        """False: edge fields in the file, and in calls, follow CSR order."""
        return False

    @property
    def edge_permutation(self) -> Any:
        """None: edge order is CSR order."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return sum(entry.nbytes for entry in self._container.entries.values())

    def field(self, namespace: str, name: str) -> PagedField:
        """A field of the file.

        Raises:
            UnknownName: there is none of this name.
        """
        try:
            return self.fields[namespace][name]
        except KeyError:
            known = [f"{space}.{n}" for space, found in self.fields.items() for n in found]
            raise UnknownName(
                f"{self.path}: no field `{namespace}.{name}`; it has {known}."
            ) from None

    def verify(self) -> None:
        """Read the whole file and compare its checksums.

        Raises:
            InvalidFile: an array was altered.
        """
        self._container.verify()

    def in_memory(self) -> Graph:
        """The same graph with its edges in memory, checked; edge order is CSR order."""
        arrays = [self._container.read(f"dst.{name}") for name in ("row_ptr", "index")]
        return Graph.from_csr(*arrays, num_src=self.num_src)

    def token(self) -> Token:
        """Empty: the edges in the file do not change."""
        return ()

    def check_unchanged(self, token: Token) -> bool:
        return True

    def require_unchanged(self, token: Token) -> None:
        """Nothing to check."""

    def csr(self) -> Csr:
        raise self._elsewhere("its edges as arrays")

    def walk(self, side: str, token: Token | None = None) -> Any:
        raise self._elsewhere("a walk in memory")

    def save(self, path: Any, fields: Any = None, overwrite: bool = False) -> Path:
        raise self._elsewhere("saving it again (copy the file)")

    def _current(self) -> Any:
        raise self._elsewhere("this")

    def __repr__(self) -> str:
        src, dst, edges = self._counts
        return (
            f"PagedGraph(num_src={src}, num_dst={dst}, num_edges={edges}, path={str(self.path)!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return PagedGraph, (self.path, self._device)

    def _elsewhere(self, what: str) -> UnsupportedByBackend:
        return UnsupportedByBackend(
            f"a graph in a file ({self.path}) does not offer {what}; `graph.in_memory()` is the "
            "same graph in memory."
        )

    def _open_walk(self, side: str) -> PagedWalk:
        num_src, num_dst, num_edges = self._counts
        num_rows = num_dst if side == "dst" else num_src
        dtype = index_dtype(num_src, num_dst, num_edges)
        self._expect(f"{side}.row_ptr", "int64", (num_rows + 1,))
        self._expect(f"{side}.index", str(dtype), (num_edges,))
        if side == "src":
            self._expect("src.edge_id", str(dtype), (num_edges,))
        tasks = self._container.read(f"{side}.tasks")
        rising = tasks.ndim == 2 and tasks.shape[1] == 5 and (np.diff(tasks[:, 0]) > 0).all()
        if not rising or tasks[0, 0] != 0 or tasks[-1, 0] != num_rows:
            raise InvalidFile(f"{self.path}: `{side}.tasks` does not cut the rows into tasks.")
        edge_id = self._rows("src.edge_id") if side == "src" else None
        row_ptr, index = self._rows(f"{side}.row_ptr"), self._rows(f"{side}.index")
        # Edges to a source are in the order of all edges, which is that of destinations.
        ascends = side == "src" or bool(self._container.info.get("sources_ascend"))
        return PagedWalk(side, num_rows, num_edges, dtype, tasks, row_ptr, index, edge_id, ascends)

    def _expect(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        entry = self._container.entry(name)
        if (entry.dtype, entry.shape) != (dtype, shape):
            raise InvalidFile(
                f"{self.path}: `{name}` must be {dtype} {list(shape)}, got {entry.dtype} "
                f"{list(entry.shape)}."
            )

    def _rows(self, name: str) -> FileRows:
        entry = self._container.entry(name)
        return FileRows(
            self._container.fd, entry.offset, entry.shape[0], entry.row_bytes, self.traffic,
            self._container,
        )  # fmt: skip

    def _open_fields(self) -> Mapping[str, Mapping[str, PagedField]]:
        found: dict[str, dict[str, PagedField]] = {"src": {}, "dst": {}, "edge": {}}
        extents = dict(zip(("src", "dst", "edge"), self._counts, strict=True))
        for name, entry in self._container.entries.items():
            kind, _, label = name.partition(".")
            namespace, _, field = label.partition(".")
            if kind != "fields":
                continue
            if namespace not in found or not entry.shape or entry.shape[0] != extents[namespace]:
                raise InvalidFile(f"{self.path}: `{label}` is no field of this graph.")
            found[namespace][field] = PagedField(self._container, label)
        return found


def open_graph(path: Any, device: Any) -> PagedGraph:
    """Open a graph's file; see `Graph.open`."""
    named = re.fullmatch(r"cpu|cuda(:\d+)?", str(device))
    if named is None:
        known = "'cpu', 'cuda' or 'cuda:N'"
        raise InvalidValue(f"Graph.open: expected device {known}, got {device!r}.")
    return PagedGraph(path, f"{device}:0" if str(device) == "cuda" else str(device))
