"""`Graph.write_csr`: a graph's file from an edge list that need not fit in memory.

The list is kept as it comes, then cut by destination into buckets that fit, each of which is
sorted by itself; sorted edges go to the file and, cut by source, to the buckets of the transpose.
Every sort is stable, so the file is the one that `Graph.save` writes for the same list, unless the
edges of each destination are to be in order of their sources.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.relations.csr import stable_order
from tiga.relations.indices import as_count, index_dtype
from tiga.relations.long_rows import LongRow
from tiga.relations.spool import Column, ColumnFile, Spool
from tiga.relations.store import array_of, ascends, graph_info, range_of
from tiga.relations.walk import plan_rows
from tiga.runtime.container import require_name, write_container
from tiga.runtime.container_header import Content
from tiga.runtime.direct import BLOCK
from tiga.runtime.paths import as_path, to_write
from tiga.runtime.tiers import parse_size
from tiga.types import dtype_of_numpy

SORT_SCRATCH = 6
"""A bucket's sort holds its records, their order and copies: so many times its bytes."""

LEAST_ROWS = 4096
"""Edges that are handled at a time, however little memory is allowed."""

Progress = Callable[[str, float], None]


@dataclass
class Ranges:
    """The table of tasks of one walk, filled as its edges go by; see `store.task_table`."""

    row_ptr: np.ndarray

    def __post_init__(self) -> None:
        rows = plan_rows(self.row_ptr).task_ptr
        self.edges = self.row_ptr[rows]
        self.table = np.zeros((len(rows), 5), np.int64)
        self.table[:, 0] = rows
        self._seen = np.zeros(len(rows), np.bool_)

    def add(self, first: int, index: np.ndarray, edge_id: np.ndarray | None) -> None:
        """Take the edges from position `first` on."""
        last = first + len(index)
        task = int(np.searchsorted(self.edges, first, side="right")) - 1
        while task < len(self.edges) - 1 and self.edges[task] < last:
            low, high = max(first, int(self.edges[task])), min(last, int(self.edges[task + 1]))
            if low < high:
                self._widen(task, range_of(index, edge_id, low - first, high - first), first)
            task += 1

    def _widen(self, task: int, found: tuple[int, int, int, int], first: int) -> None:
        low, high, start, end = found
        if not self._seen[task]:
            self.table[task, 1:] = found
        row = self.table[task]
        row[1], row[2] = min(row[1], low), max(row[2], high)
        row[3], row[4] = min(row[3], start), max(row[4], end)
        self._seen[task] = True

    def finish(self, ordered: bool) -> np.ndarray:
        """The table; where edges are in their own order, their numbers are their positions."""
        if ordered:
            self.table[:-1, 3], self.table[:-1, 4] = self.edges[:-1], self.edges[1:]
        empty = ~self._seen[:-1]
        self.table[:-1][empty, 1:3] = 0
        self.table[:-1][empty, 3:] = self.edges[:-1][empty, None]
        return self.table


@dataclass
class Buckets:
    """Records cut by one of their columns into ranges of rows, each in a stretch of the files.

    With a number of `sources`, those of one row are put in order of the second column, sources.
    """

    row_ptr: np.ndarray
    files: list[ColumnFile]
    limit: int
    sources: int = 0
    bounds: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        cuts, row, rows = [0], 0, len(self.row_ptr) - 1
        while row < rows:
            reach = self.row_ptr[row] + self.limit
            row = max(row + 1, int(np.searchsorted(self.row_ptr, reach, side="right")) - 1)
            row = min(row, rows)
            cuts.append(row)
        self.bounds = np.array(cuts)
        self._next = self.row_ptr[self.bounds[:-1]].copy()

    def add(self, keys: np.ndarray, columns: list[np.ndarray]) -> None:
        """Append records, in their order, each to the bucket of its key."""
        bucket = np.searchsorted(self.bounds, keys, side="right") - 1
        order = stable_order(bucket, len(self.bounds))
        ends = np.cumsum(np.bincount(bucket, minlength=len(self._next)))
        low = 0
        columns = [column[order] for column in columns]
        for b, high in enumerate(ends.tolist()):
            if high > low:
                for file, column in zip(self.files, columns, strict=True):
                    file.write(int(self._next[b]), column[low:high])
                self._next[b] += high - low
            low = high

    def sorted(self) -> Iterator[tuple[int, list[np.ndarray]]]:
        """The records in order of the first column, with the position of the first of them."""
        for first_row, last_row in pairwise(self.bounds.tolist()):
            low, high = int(self.row_ptr[first_row]), int(self.row_ptr[last_row])
            if last_row == first_row + 1:  # one row, however long
                yield from self._row(low, high)
                continue
            columns = [file.read(low, high) for file in self.files]
            if self.sources:
                columns = _in_order(columns, 1, 0, self.sources)
            yield low, _in_order(columns, 0, first_row, last_row)

    def _row(self, low: int, high: int) -> Iterator[tuple[int, list[np.ndarray]]]:
        """The records of one row, in order as they are unless their sources are to be."""
        if self.sources:
            for columns in LongRow(self.files, low, high, self.limit).by_source(0, self.sources):
                yield low, columns
                low += len(columns[0])
            return
        for start in range(low, high, max(self.limit, 1)):
            end = min(start + self.limit, high)
            yield start, [file.read(start, end) for file in self.files]

    def close(self) -> None:
        """Remove the files."""
        for file in self.files:
            file.close(remove=True)


def _in_order(columns: list[np.ndarray], by: int, low: int, high: int) -> list[np.ndarray]:
    """Records in order of one of their columns, whose values are in [low, high)."""
    order = stable_order(columns[by].astype(np.int64) - low, high - low)
    return [column[order] for column in columns]


class Writer:
    """One graph on its way to a file.

    `info` is what the header tells. Whether sources ascend along each row is known when they were
    written: the header is written again then, as long as before. With `sorts` they are made to.
    """

    def __init__(self, spool: Spool, memory: int, progress: Progress, sorts: bool) -> None:
        self.spool, self.progress, self.sorts = spool, progress, sorts
        self._last = -1
        self.num_src, self.num_dst = spool.counts
        self.edges = spool.edges
        self.info = graph_info(self.num_src, self.num_dst, self.edges, ascend=True)
        self.index = index_dtype(self.num_src, self.num_dst, self.edges)
        self.fields = [column.column for column in spool.columns[2:]]
        record = 4 * self.index.itemsize + sum(column.row_bytes for column in self.fields)
        self.limit = max(LEAST_ROWS, memory // (record * SORT_SCRATCH))
        self.row_ptr = self._row_pointers()
        self.walks = {side: Ranges(pointers) for side, pointers in self.row_ptr.items()}
        self.sorted_fields = [
            spool.scratch(f"sorted{i}", column) for i, column in enumerate(self.fields)
        ]
        self.transposed = Buckets(
            self.row_ptr["src"],
            [spool.scratch(f"transposed-{n}", self._index_column(n)) for n in ("src", "dst", "id")],
            self.limit,
        )

    def contents(self) -> dict[str, Content]:
        """What the file holds; its pieces are made in this order, each of the ones before."""
        index, edges = str(self.index), (self.edges,)
        found = {
            "dst.row_ptr": Content.of(self.row_ptr["dst"], "int64"),
            "dst.index": Content(index, edges, self._dst_index()),
            "dst.tasks": self._tasks("dst"),
            "src.row_ptr": Content.of(self.row_ptr["src"], "int64"),
            "src.index": Content(index, edges, self._src_index()),
            "src.edge_id": Content(index, edges, self._src_edge_id()),
            "src.tasks": self._tasks("src"),
        }
        for column, file in zip(self.fields, self.sorted_fields, strict=True):
            shape = (self.edges, *column.shape)
            found[f"fields.edge.{column.name}"] = Content(column.dtype, shape, self._copied(file))
        return found

    def _index_column(self, name: str) -> Column:
        return Column(name, str(self.index))

    def _row_pointers(self) -> dict[str, np.ndarray]:
        degrees = {"src": np.zeros(self.num_src + 1, np.int64),
                   "dst": np.zeros(self.num_dst + 1, np.int64)}  # fmt: skip
        for src, dst, *_ in self.spool.pieces(self.limit):
            degrees["src"][1:] += np.bincount(src, minlength=self.num_src)
            degrees["dst"][1:] += np.bincount(dst, minlength=self.num_dst)
        return {side: np.cumsum(counts, out=counts) for side, counts in degrees.items()}

    def _dst_index(self) -> Iterator[np.ndarray]:
        columns = [Column("dst", str(self.index)), Column("src", str(self.index)), *self.fields]
        files = [self.spool.scratch(f"bucket{i}", c) for i, c in enumerate(columns)]
        sources = self.num_src if self.sorts else 0
        buckets = Buckets(self.row_ptr["dst"], files, self.limit, sources)
        done = 0
        for src, dst, *fields in self.spool.pieces(self.limit):
            buckets.add(dst, [dst, src, *fields])
            done += len(src)
            self.progress("partitioning", done / max(1, self.edges))
        for first, (dst, src, *fields) in buckets.sorted():
            for file, column in zip(self.sorted_fields, fields, strict=True):
                file.write(first, column)
            numbers = np.arange(first, first + len(src), dtype=self.index)
            self.transposed.add(src, [src, dst, numbers])
            self.walks["dst"].add(first, src, None)
            self._look(first, src)
            self.progress("sorting", (first + len(src)) / max(1, self.edges))
            yield src
        buckets.close()

    def _look(self, first: int, src: np.ndarray) -> None:
        """Note whether the edges from position `first` on are in order of their sources."""
        pointers = self.row_ptr["dst"]
        goes_on = pointers[np.searchsorted(pointers, first)] != first
        falls = bool(len(src)) and goes_on and int(src[0]) < self._last
        if falls or not ascends(src, pointers, first):
            self.info["sources_ascend"] = 0
        self._last = int(src[-1]) if len(src) else self._last

    def _src_index(self) -> Iterator[np.ndarray]:
        self.numbers = self.spool.scratch("edge-id", self._index_column("id"))
        for first, (_, dst, numbers) in self.transposed.sorted():
            self.numbers.write(first, numbers)
            self.walks["src"].add(first, dst, numbers)
            self.progress("transposing", (first + len(dst)) / max(1, self.edges))
            yield dst
        self.transposed.close()

    def _src_edge_id(self) -> Iterator[np.ndarray]:
        yield from self._copied(self.numbers)

    def _copied(self, file: ColumnFile) -> Iterator[np.ndarray]:
        for low in range(0, self.edges, self.limit):
            yield file.read(low, min(low + self.limit, self.edges))
        file.close(remove=True)

    def _tasks(self, side: str) -> Content:
        def pieces() -> Iterator[np.ndarray]:
            yield self.walks[side].finish(side == "dst")

        return Content("int64", self.walks[side].table.shape, pieces())


class Bar:
    """Progress on standard error: a line for each stage, printed anew when it changes."""

    def __init__(self, width: int = 30) -> None:
        self.width, self._shown = width, ""

    def __call__(self, what: str, share: float) -> None:
        filled = round(share * self.width)
        line = f"\r{what:<14}[{'#' * filled:<{self.width}}] {share:4.0%}"
        if line != self._shown:
            print(line, end="\n" if share >= 1 else "", file=sys.stderr)
        self._shown = line


def _silent(what: str, share: float) -> None:
    """No progress is told."""


def node_contents(counts: Mapping[str, int], fields: Any) -> dict[str, Content]:
    """Node fields of a graph to be written; numpy memory maps are read piece by piece."""
    found = {}
    for namespace, values in (fields or {}).items():
        if namespace not in counts:
            raise InvalidValue(
                f"Graph.write_csr: `fields` belong to src or dst, not to {namespace!r}; edge "
                "fields come with the chunks of edges."
            )
        for name, value in values.items():
            array = array_of(f"{namespace}.{require_name(name)}", value)
            if not array.ndim or array.shape[0] != counts[namespace]:
                raise InvalidValue(
                    f"Graph.write_csr: field `{namespace}.{name}` has shape {list(array.shape)}; "
                    f"its first axis must be {counts[namespace]}."
                )
            dtype = dtype_of_numpy(array.dtype).name
            found[f"fields.{namespace}.{name}"] = Content.of(array, dtype)
    return found


def _numbers_of_nodes(counts: tuple[Any, Any, Any]) -> tuple[int, int]:
    """Sources and destinations, from `num_nodes`, or `num_src` and `num_dst`."""
    num_nodes, num_src, num_dst = map(as_count, ("num_nodes", "num_src", "num_dst"), counts)
    if (num_nodes is None) == (num_src is None or num_dst is None):
        raise InvalidValue("Graph.write_csr: pass `num_nodes`, or both `num_src` and `num_dst`.")
    num_src = num_nodes if num_src is None else num_src
    num_dst = num_nodes if num_dst is None else num_dst
    assert num_src is not None
    assert num_dst is not None
    return num_src, num_dst


def write_graph(
    path: Any, edges: Iterable[Any], counts: tuple[Any, Any, Any], fields: Any, memory: Any,
    overwrite: bool, progress: Any, sort_sources: bool,
) -> Path:  # fmt: skip
    """Write a graph from chunks of edges; see `Graph.write_csr`."""
    path, budget = as_path(path), parse_size(memory)
    if not isinstance(edges, Iterable):
        raise InvalidType(
            "Graph.write_csr: `edges` expected an iterable of chunks (src, dst) or (src, dst, "
            f"fields), got {type(edges).__name__}."
        )
    num_src, num_dst = _numbers_of_nodes(counts)
    to_write(path, overwrite)  # refused before the edges are read
    nodes = node_contents({"src": num_src, "dst": num_dst}, fields)
    told: Progress = progress if callable(progress) else Bar() if progress else _silent
    spool = Spool(path, num_src, num_dst, str(index_dtype(num_src, num_dst)))
    try:
        spool.fill(edges)
        told("reading", 1.0)
        writer = Writer(spool, budget, told, sort_sources)
        contents = writer.contents() | nodes
        write_container(
            path, contents, "graph", writer.info, overwrite, spool.forget, alignment=BLOCK
        )
        spool.remove()
    finally:
        spool.close()
    return path
