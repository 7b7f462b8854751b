"""`tg.save` and `tg.load`: tensors, and graphs, as checked safetensors files."""

import mmap
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiga.errors import InvalidFile, InvalidType
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU, check_device
from tiga.frontends.tensor.lazy import Cell, LazyNode, Leaf, here
from tiga.frontends.tensor.memory.absent import Absent, Layout
from tiga.frontends.tensor.moving import to
from tiga.runtime.buffer import Buffer
from tiga.runtime.container import Container, require_name, write_container
from tiga.runtime.container_header import Content, Entry, numpy_dtype
from tiga.runtime.device_array import row_major
from tiga.types import GLOBAL, Type, dtype_of_numpy

_ONE = "value"


def save(value: Any, path: Any, *, overwrite: bool = False) -> Path:
    """Write a tensor, a dict of tensors or a graph to a file; returns the path.

    The file is a safetensors file that any reader of those reads (complex numbers as pairs), with
    Tiga's own entry in its metadata. It appears under its name whole or not at all. Graphs go
    to the file that `Graph.open` and `tg.load` read; see `Graph.save`.

    Args:
        value: a tensor, a dict from names to tensors, or a `tg.Graph`.
        path: the file.
        overwrite: replace a file that is there; whoever has attached it keeps the old content.

    Raises:
        FileExistsError: there is a file, and no `overwrite`.
        InvalidType: something else than the above.
        OSError: the disk is full or not writable; nothing is left then.

    Example:
        >>> import tempfile, tiga as tg
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = tg.save({"x": tg.ones(2)}, folder + "/x.tiga")
        ...     tg.load(path)["x"].tolist()
        [1.0, 1.0]
    """
    if hasattr(value, "walk") and hasattr(value, "save"):
        return value.save(path, overwrite=overwrite)
    if isinstance(value, Tensor):
        return write_container(path, {_ONE: _content(value)}, "tensor", overwrite=overwrite)
    if not isinstance(value, Mapping) or not all(isinstance(v, Tensor) for v in value.values()):
        raise InvalidType(
            f"tg.save expected a tensor, a dict of tensors or a graph, got {value!r} ({here()})."
        )
    contents = {require_name(name): _content(tensor) for name, tensor in value.items()}
    return write_container(path, contents, "dict", overwrite=overwrite)


def _content(tensor: Tensor) -> Content:
    return Content.of(tensor._host(), tensor.dtype.name)


def load(path: Any, *, device: Any = None, verify: bool = True) -> Any:
    """What `tg.save` wrote to a file, attached: no bytes are read before they are used.

    Tensors are mapped from the file; writing to one in place changes it in memory only. A file
    that is replaced or removed meanwhile is still read as it was. The header is checked here, the
    bytes of each tensor at its first use.

    Args:
        path: the file.
        device: where the tensors are; on a GPU they are copied at once.
        verify: compare each tensor's checksum at its first use; False saves one pass over it.

    Raises:
        FileNotFoundError: there is no file.
        InvalidFile: it was cut, altered, not written by Tiga, or by a newer version; at the first
            use of a tensor: its bytes were altered.

    Example:
        >>> import tempfile, tiga as tg
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = tg.save(tg.ones(3), folder + "/ones.tiga")
        ...     tg.load(path).tolist()
        [1.0, 1.0, 1.0]
    """
    target = check_device(device)
    container = Container(path)
    if container.kind == "graph":
        container.close()
        from tiga.relations import Graph

        return Graph.open(path)
    if container.kind not in ("tensor", "dict"):
        raise InvalidFile(f"{path}: holds a {container.kind!r}, which tg.load does not know.")
    tensors = {name: _attach(container, e, verify) for name, e in container.entries.items()}
    if target != CPU:
        tensors = {name: to(tensor, target) for name, tensor in tensors.items()}
    return tensors[_ONE] if container.kind == "tensor" else tensors


class Attached:
    """An array in a snapshot, mapped when it is first used."""

    kind = "snapshot"
    tier = "host"

    def __init__(self, container: Container, entry: Entry, verify: bool) -> None:
        self._container, self._entry, self._verify = container, entry, verify

    def room(self) -> None:
        """None is needed: what is mapped is not charged."""

    def bring(self, room: None) -> np.ndarray:
        entry = self._entry
        if not entry.nbytes:
            return np.empty(0, np.uint8)
        skip = entry.offset % mmap.ALLOCATIONGRANULARITY
        # Private: what is written in memory does not reach the file.
        try:
            mapped = mmap.mmap(
                self._container.fd, skip + entry.nbytes, access=mmap.ACCESS_COPY,
                offset=entry.offset - skip,
            )  # fmt: skip
        except ValueError:
            raise InvalidFile(
                f"{self._container.path}: it was cut after it was attached."
            ) from None
        block = np.ndarray((entry.nbytes,), np.uint8, mapped, skip)
        if self._verify and zlib.crc32(block) != entry.crc32:
            raise InvalidFile(
                f"{self._container.path}: the bytes of {entry.name!r} do not have the checksum "
                "they were written with; the file was altered or damaged."
            )
        self._verify = False
        return block

    def close(self) -> None:
        """The file stays: it was not made for this tensor."""


def _attach(container: Container, entry: Entry, verify: bool) -> Tensor:
    dtype = numpy_dtype(entry.dtype)
    of = Type(dtype_of_numpy(dtype), entry.shape, GLOBAL)
    node = LazyNode(Leaf(of), (), of, None)
    node.cell = Cell(np.empty(0))
    tensor = Tensor(node, False)
    tensor._leaf = True
    backing = Attached(container, entry, verify)
    buffer = tensor._buffer = Buffer(None, entry.nbytes)
    buffer.origin = backing
    buffer.absent = Absent(buffer, backing, CPU)
    strides = row_major(entry.shape, dtype.itemsize)
    buffer.absent.add(tensor, Layout(0, entry.shape, strides, dtype))
    return tensor
