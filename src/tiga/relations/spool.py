"""An edge list on its way to a graph's file: kept in a folder beside it, so that a writer that was
interrupted goes on where it was."""

import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiga.errors import InvalidFile, InvalidIndex, InvalidState, InvalidType, InvalidValue
from tiga.relations.store import array_of
from tiga.runtime.container import require_name
from tiga.runtime.container_header import numpy_dtype
from tiga.runtime.spill import pread_into, pwrite_all
from tiga.types import dtype_of_numpy

FORMAT = 1
SYNC_BYTES = 64 * 2**20
"""What may have to be read again after a crash: progress is recorded after so many bytes."""


_NOTED = {"format", "counts", "columns", "chunks", "edges", "done", "checksum"}


@dataclass(frozen=True)
class Column:
    """One array of the list: the edges' sources, destinations, or a field of theirs."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def numpy(self) -> np.dtype:
        return numpy_dtype(self.dtype)

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.numpy.itemsize


class ColumnFile:
    """The rows of a column in a file of their own."""

    def __init__(self, path: Path, column: Column) -> None:
        self.path, self.column = path, column
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, row: int, block: np.ndarray) -> None:
        """Store rows from number `row` on."""
        data = np.ascontiguousarray(block, dtype=self.column.numpy).reshape(-1).view(np.uint8)
        pwrite_all(self._fd, data, row * self.column.row_bytes)

    def read(self, low: int, high: int) -> np.ndarray:
        """Rows [low, high)."""
        block = np.empty((high - low, *self.column.shape), self.column.numpy)
        pread_into(self._fd, block, low * self.column.row_bytes)
        return block

    def cut(self, rows: int) -> None:
        """Drop the rows from number `rows` on."""
        os.ftruncate(self._fd, rows * self.column.row_bytes)

    def sync(self) -> None:
        """Return when everything is on the disk."""
        os.fdatasync(self._fd)

    def close(self, remove: bool = False) -> None:
        """Close the file, and remove it if told."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if remove:
            self.path.unlink(missing_ok=True)


class Spool:
    """The folder of a writer: columns as they came, and how many chunks of them are safe.

    One process at a time holds it. Opened again for the same path it takes up what is there.

    Raises:
        InvalidState: another process writes the same file.
        InvalidFile: what is there was begun with other counts of nodes.
    """

    def __init__(self, path: Path, num_src: int, num_dst: int, index: str) -> None:
        self.folder = path.parent / f".{path.name}.tiga-writing"
        self.counts, self.index = (num_src, num_dst), index
        self.columns: list[ColumnFile] = []
        self.chunks = self.edges = self.checksum = 0
        self.done = False
        self.folder.mkdir(exist_ok=True)
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise InvalidState(f"{path} is being written by another process.") from None
        try:
            self._take_up()
        except BaseException:
            self.close()
            raise

    def fill(self, edges: Iterable[Any]) -> None:
        """Take the chunks that are not there yet."""
        unsafe = checksum = seen = 0
        for number, chunk in enumerate(edges):
            seen += 1
            if number < self.chunks:
                checksum = _checksum(_parts(chunk, number), checksum)
                self._compare(seen, checksum)
                continue
            if self.done:
                break
            unsafe += self._append(number, chunk)
            if unsafe >= SYNC_BYTES:
                self._record()
                unsafe = 0
        if seen != self.chunks:
            raise self._differs()
        if not self.columns:
            self._create([Column("src", self.index), Column("dst", self.index)])
        self.done = True
        self._record()

    def forget(self) -> None:
        """Let no later writer take this list up: from here on the file itself is the result."""
        (self.folder / "state.json").unlink()

    def pieces(self, rows: int) -> Iterator[list[np.ndarray]]:
        """All columns, so many rows at a time."""
        for low in range(0, self.edges, rows):
            high = min(low + rows, self.edges)
            yield [column.read(low, high) for column in self.columns]

    def scratch(self, name: str, column: Column) -> ColumnFile:
        """An empty file in the folder."""
        (self.folder / name).unlink(missing_ok=True)
        return ColumnFile(self.folder / name, column)

    def remove(self) -> None:
        """Drop everything: the graph is written."""
        for column in self.columns:
            column.close()
        shutil.rmtree(self.folder)
        self.close()

    def close(self) -> None:
        """Leave the folder for a later writer; a second time does nothing."""
        for column in self.columns:
            column.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _compare(self, seen: int, checksum: int) -> None:
        if seen == self.chunks and checksum != self.checksum:
            raise self._differs()

    def _differs(self) -> InvalidFile:
        return InvalidFile(
            f"{self.folder}: holds an unfinished graph that was begun with other chunks of edges; "
            "give the same ones to finish it, or remove the folder."
        )

    def _append(self, number: int, chunk: Any) -> int:
        src, dst, fields = _parts(chunk, number)
        ends = [self._end("src", src, number), self._end("dst", dst, number)]
        arrays = {name: array_of(f"edge.{name}", value) for name, value in fields.items()}
        blocks = [*ends, *arrays.values()]
        found = [
            Column("src", self.index),
            Column("dst", self.index),
            *(Column(n, dtype_of_numpy(a.dtype).name, a.shape[1:]) for n, a in arrays.items()),
        ]
        if not self.columns:
            self._create(found)
        expected = [column.column for column in self.columns]
        if found != expected or len({len(block) for block in blocks}) > 1:
            raise InvalidValue(
                f"Graph.write_csr: chunk {number} holds {_told(found, blocks)}; expected equal "
                f"lengths, and the columns {_told(expected)} of the first chunk."
            )
        for column, block in zip(self.columns, blocks, strict=True):
            column.write(self.edges, block)
        self.edges += len(src)
        self.chunks = number + 1
        self.checksum = _checksum((src, dst, fields), self.checksum)
        return sum(block.nbytes for block in blocks)

    def _end(self, name: str, values: Any, number: int) -> np.ndarray:
        array = array_of(name, values)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InvalidType(
                f"Graph.write_csr: chunk {number}: `{name}` must be integers with one axis, got "
                f"{array.dtype} {list(array.shape)}."
            )
        count = self.counts[name == "dst"]
        outside = (array < 0) | (array >= count)
        if outside.any():
            at = int(outside.argmax())
            raise InvalidIndex(
                f"Graph.write_csr: `{name}` names a node that does not exist: edge position "
                f"{self.edges + at} (chunk {number}) has value {array[at]}, and there are {count} "
                "nodes."
            )
        return array

    def _create(self, columns: list[Column]) -> None:
        for i, column in enumerate(columns):
            self.columns.append(ColumnFile(self.folder / f"column{i}", column))

    def _record(self) -> None:
        """Make what was taken last: first the data, then the note of it."""
        for column in self.columns:
            column.sync()
        columns = [[c.column.name, c.column.dtype, list(c.column.shape)] for c in self.columns]
        state = {
            "format": FORMAT, "counts": self.counts, "columns": columns, "chunks": self.chunks,
            "edges": self.edges, "done": self.done, "checksum": self.checksum,
        }  # fmt: skip
        new = self.folder / "state.new"
        with new.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.folder / "state.json")

    def _state(self, path: Path) -> dict[str, Any]:
        """What an earlier writer noted.

        Raises:
            InvalidFile: it was altered.
        """
        try:
            state = json.loads(path.read_text())
        except ValueError:
            state = None
        if not isinstance(state, dict) or not state.keys() >= _NOTED:
            raise InvalidFile(
                f"{path}: expected the notes of an unfinished graph, which were altered; remove "
                f"the folder {self.folder} to begin anew."
            )
        return state

    def _take_up(self) -> None:
        path = self.folder / "state.json"
        if not path.exists():
            return
        state = self._state(path)
        if (state["format"], tuple(state["counts"])) != (FORMAT, self.counts):
            raise InvalidFile(
                f"{self.folder}: holds an unfinished graph with other counts of nodes "
                f"{state['counts']}; finish that, or remove the folder."
            )
        self._create([Column(n, d, tuple(s)) for n, d, s in state["columns"]])
        self.chunks, self.edges, self.done = state["chunks"], state["edges"], state["done"]
        self.checksum = state["checksum"]
        for column in self.columns:
            column.cut(self.edges)


def _parts(chunk: Any, number: int) -> tuple[Any, Any, Mapping[str, Any]]:
    parts = tuple(chunk) if isinstance(chunk, (tuple, list)) else ()
    fields = parts[2] if len(parts) == 3 else {}
    if len(parts) not in (2, 3) or not isinstance(fields, Mapping):
        raise InvalidType(
            f"Graph.write_csr: chunk {number}: expected (src, dst) or (src, dst, fields), with "
            f"fields a mapping from names to arrays, got {type(chunk).__name__}."
        )
    for name in fields:
        if require_name(name) in ("src", "dst"):
            raise InvalidValue(f"Graph.write_csr: an edge field cannot be called {name!r}.")
    return parts[0], parts[1], fields


def _checksum(parts: tuple[Any, Any, Mapping[str, Any]], start: int) -> int:
    """Of the ends and fields of a chunk, going on from those of the chunks before."""
    src, dst, fields = parts
    for value in (src, dst, *fields.values()):
        array = np.ascontiguousarray(array_of("chunk", value))
        start = zlib.crc32(array.reshape(-1).view(np.uint8).data, start)
    return start


def _told(columns: list[Column], blocks: list[np.ndarray] | None = None) -> str:
    lengths = [""] * len(columns) if blocks is None else [f" × {len(b)}" for b in blocks]
    texts = (
        f"{c.name} {c.dtype}{list(c.shape)}{length}"
        for c, length in zip(columns, lengths, strict=True)
    )
    return ", ".join(texts)
