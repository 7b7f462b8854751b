"""Where results of runs over graphs in files lie: in memory while they fit, else in files."""

from collections.abc import Mapping
from math import prod

import numpy as np

from tiga.passes.rows import Plan
from tiga.runtime.mapped import map_file
from tiga.runtime.pages import FileRows, Traffic
from tiga.runtime.scope import Extent, Scope
from tiga.trace.node import Node
from tiga.types import GLOBAL, Space


def spilled(
    scope: Scope, traffic: Traffic, count: int, row_bytes: int, alone: bool = False
) -> FileRows:
    """Rows in a scope's spill file, or one of their own, which last as long as they are used."""
    extent = Extent(scope, count * row_bytes, "a value of a call over a graph in a file", alone)
    return FileRows(extent.file.fd, extent.start, count, row_bytes, traffic, extent)


def spilled_array(
    scope: Scope, traffic: Traffic, shape: tuple[int, ...], dtype: np.dtype
) -> tuple[np.ndarray, FileRows]:
    """An array that is not empty, mapped from such rows."""
    nbytes = prod(shape) * dtype.itemsize
    rows = spilled(scope, traffic, shape[0], nbytes // shape[0], alone=True)
    block = map_file(rows.fd, rows.offset, nbytes, rows.owner, shared=True)
    return block.view(dtype).reshape(shape), rows


def stored_sizes(plan: Plan, extents: Mapping[Space, int]) -> dict[Node, int]:
    """The bytes of what a run of a plan of rows stores over entities."""
    stored = [n for n in (*plan.outputs, *plan.intermediates) if n.type.space != GLOBAL]
    return {n: extents[n.type.space] * n.type.row_bytes for n in stored}


def fitting(sizes: Mapping[Node, int], room: int) -> frozenset[Node]:
    """All values, if they fit; else those of edges that do: they may be stored in any order, and
    what lies between two of them in a file would be written again with them."""
    if sum(sizes.values()) <= room:
        return frozenset(sizes)
    found, held = [], 0
    for node in sizes:
        if node.type.on_edges and held + sizes[node] <= room:
            found.append(node)
            held += sizes[node]
    return frozenset(found)
