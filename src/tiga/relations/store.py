"""Graphs in files: both walks with their tasks, and fields, as one snapshot container.

`dst.row_ptr`, `dst.index` and `src.row_ptr`, `src.index`, `src.edge_id` are the arrays of the two
walks; `dst.tasks` and `src.tasks` hold per task its first row, and the range of its indices (and,
for sources, of its edge numbers), from which pages are planned without reading the edges. Fields
are `fields.<src|dst|edge>.<name>`; edge fields follow CSR order. The header says whether sources
ascend along each row of the destination walk, as destinations always do along those of the other.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.relations.walk import Walk
from tiga.runtime.container import require_name, write_container
from tiga.runtime.container_header import Content
from tiga.runtime.direct import BLOCK
from tiga.types import dtype_of_numpy

if TYPE_CHECKING:
    from tiga.relations.graph import Graph

NAMESPACES = {"src": "num_src", "dst": "num_dst", "edge": "num_edges"}
_PIECE = 2**20


def array_of(label: str, value: Any) -> np.ndarray:
    """A field as a numpy array: numpy arrays, and tensors of torch or of Tiga on the CPU."""
    if isinstance(value, np.ndarray):
        array = value
    elif str(getattr(value, "dtype", "")) == "torch.bfloat16":
        short = value.new_empty(0).short().dtype
        array = value.detach().contiguous().view(short).numpy().view(ml_dtypes.bfloat16)
    elif hasattr(value, "detach") and hasattr(value, "numpy"):
        array = value.detach().numpy()
    else:
        array = np.asarray(value)
    try:
        dtype_of_numpy(array.dtype)
    except KeyError:
        raise InvalidType(f"field `{label}`: no Tiga dtype holds {array.dtype}.") from None
    return array


def save_graph(graph: "Graph", path: Any, fields: Any, overwrite: bool) -> Path:
    """Write a graph in memory; see `Graph.save`."""
    csr = graph.csr()
    contents: dict[str, Content] = {}
    for side in ("dst", "src"):
        contents |= walk_contents(graph.walk(side))
    for label, array in checked_fields(graph, fields).items():
        order = csr.permutation if label.startswith("fields.edge.") else None
        dtype = dtype_of_numpy(array.dtype).name
        contents[label] = Content(dtype, array.shape, _rows_of(array, order))
    ascend = ascends(graph.walk("dst").index, csr.row_ptr)
    info = graph_info(csr.num_src, csr.num_dst, csr.num_edges, ascend)
    return write_container(path, contents, "graph", info, overwrite, alignment=BLOCK)


def graph_info(num_src: int, num_dst: int, num_edges: int, ascend: bool) -> dict[str, int]:
    """What a graph's file tells beside its arrays; `ascend` where sources do along each row."""
    counts = {"num_src": num_src, "num_dst": num_dst, "num_edges": num_edges}
    return {**counts, "sources_ascend": int(ascend)}


def ascends(index: np.ndarray, row_ptr: np.ndarray, first: int = 0) -> bool:
    """Whether no index is less than the one before it in its row; `index` is that of edges from
    position `first` on, of rows that `row_ptr` begins.

    Example:
        >>> ascends(np.array([1, 1, 4, 0]), np.array([0, 3, 4]))
        True
    """
    for low in range(0, len(index) - 1, _PIECE):
        part = index[low : low + _PIECE + 1]
        falls = part[1:] < part[:-1]
        start = first + low + 1
        rows = np.searchsorted(row_ptr, (start, start + len(falls)))
        falls[row_ptr[rows[0] : rows[1]] - start] = False
        if falls.any():
            return False
    return True


def walk_contents(walk: Walk) -> dict[str, Content]:
    """The arrays of one walk by name."""
    arrays = {"row_ptr": walk.row_ptr, "index": walk.index}
    if walk.edge_id is not None:
        arrays["edge_id"] = walk.edge_id
    arrays["tasks"] = task_table(walk)
    return {f"{walk.side}.{n}": Content.of(a, str(a.dtype)) for n, a in arrays.items()}


def task_table(walk: Walk) -> np.ndarray:
    """int64 `[T + 1, 5]`: first row of each task, and the ranges [low, high) of its indices and of
    its edge numbers; the last entry only ends the rows."""
    edges = walk.row_ptr[walk.task_ptr]
    table = np.zeros((len(walk.task_ptr), 5), np.int64)
    table[:, 0] = walk.task_ptr
    for task, (low, high) in enumerate(pairwise(edges)):
        table[task, 1:] = range_of(walk.index, walk.edge_id, int(low), int(high))
    return table


def range_of(
    index: np.ndarray, edge_id: np.ndarray | None, low: int, high: int
) -> tuple[int, int, int, int]:
    """The ranges of indices and of edge numbers at edge positions [low, high)."""
    if low == high:
        return 0, 0, low, low
    part = index[low:high]
    first, last = int(part.min()), int(part.max()) + 1
    if edge_id is None:
        return first, last, low, high
    numbers = edge_id[low:high]
    return first, last, int(numbers.min()), int(numbers.max()) + 1


def _rows_of(array: np.ndarray, order: np.ndarray | None) -> Iterator[np.ndarray]:
    step = max(1, _PIECE // max(1, array.nbytes // max(1, len(array))))
    for start in range(0, len(array), step):
        rows = slice(start, start + step)
        yield np.ascontiguousarray(array[rows] if order is None else array[order[rows]])


def checked_fields(graph: "Graph", fields: Any) -> dict[str, np.ndarray]:
    """Fields by their names in the file.

    Raises:
        InvalidType, InvalidValue: no mapping of mappings, an unknown namespace, a wrong leading
            extent, or a dtype that no Tiga type holds.
    """
    given = {} if fields is None else fields
    if not isinstance(given, Mapping) or not all(isinstance(v, Mapping) for v in given.values()):
        raise InvalidType('Graph.save: `fields` must be a mapping such as {"src": {"x": tensor}}.')
    found = {}
    for namespace, values in given.items():
        if namespace not in NAMESPACES:
            raise InvalidValue(
                f"Graph.save: fields belong to src, dst or edge, not to {namespace!r}."
            )
        extent = getattr(graph, NAMESPACES[namespace])
        for name, value in values.items():
            label = f"{namespace}.{require_name(name)}"
            array = array_of(label, value)
            if not array.ndim or array.shape[0] != extent:
                raise InvalidValue(
                    f"Graph.save: field `{label}` has shape {list(array.shape)}; its first axis "
                    f"must be graph.{NAMESPACES[namespace]} = {extent}."
                )
            found[f"fields.{label}"] = array
    return found
