"""Kernels that no walk can hold: messages in memory, for so many destinations at a time as fit.

For derivatives they are made again, as many at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tiga.errors import Unfusable
from tiga.frontends.message_passing import MessagePassing
from tiga.frontends.signature import taken
from tiga.frontends.tensor.build import apply, result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU, Device
from tiga.frontends.tensor.functions.pieces import concat
from tiga.frontends.tensor.lazy import Cell
from tiga.frontends.tensor.messages.edge_order import edge_order, in_given_order, on_device
from tiga.frontends.tensor.messages.fields import Fields, FieldView
from tiga.frontends.tensor.messages.file_blocks import in_file_blocks
from tiga.frontends.tensor.messages.paged import note_writes
from tiga.frontends.tensor.messages.segments import in_segment
from tiga.frontends.tensor.messages.stored_messages import Stored, StoredMessages, rows_alone
from tiga.frontends.trees import leaves_of, mapped
from tiga.knobs import current
from tiga.ops.tensor_index import IndexTake
from tiga.ops.tensor_views import slice_
from tiga.reducers import Multi
from tiga.reducers.selection import ArgExtremum
from tiga.relations.paged import PagedGraph
from tiga.relations.row_blocks import PagedPointers, Pointers, PointersInMemory, Rows, cut_rows
from tiga.runtime.scope import active
from tiga.trace.node import Node

SHARE = 8
"""Blocks may take one part in so many of what a budget leaves."""


def run_bounded(
    kernel: MessagePassing, topology: Any, fields: Fields, params: Mapping[str, Any],
    reason: Unfusable,
) -> Any:  # fmt: skip
    """The result of a call whose `edge` cannot be fused, for `reason`.

    Raises:
        Unfusable: with `strict` (or TIGA_STRICT), and for reducers that return the positions of
            edges.
        OutOfBudget: over a graph in a file, what a block takes does not fit.
    """
    for value in fields.values():
        value.realize()  # what a field is made of is no part of any block
        if value._node.cell is None:
            value._node.cell = Cell(value._array)  # type: ignore[arg-type]
    named = isinstance(kernel.reducer, (ArgExtremum, Multi))
    if kernel.strict or current().strict or named:
        raise reason
    if isinstance(topology, PagedGraph):
        note_writes(fields.values())
        with topology.reading():
            blocks_in_file = tuple(_blocks(topology, fields))
            return in_file_blocks(kernel, topology, fields, params, blocks_in_file)
    blocks = [_block(kernel, topology, fields, params, rows)
              for rows in _blocks(topology, fields)]  # fmt: skip
    on_edges = blocks[0][1]
    device = device_of_fields(fields)
    columns = zip(*(leaves_of(made) for made, _ in blocks), strict=True)
    joined = [c[0] if len(c) == 1 else concat(list(c), axis=0) for c in columns]
    results = iter([
        result(in_given_order(x._node, topology, device), x) if on_edge else x
        for x, on_edge in zip(joined, on_edges, strict=True)
    ])  # fmt: skip
    return mapped(lambda _: next(results), blocks[0][0])


def device_of_fields(fields: Fields) -> Device:
    """Where the fields of a call on a graph in memory are."""
    return next((value.device for value in fields.values()), CPU)


def _blocks(topology: Any, fields: Fields) -> Iterator[Rows]:
    """Ranges of destinations whose edges' fields, twice, stay below the bound, and below a part of
    what a budget leaves."""
    width = sum(t._node.type.row_bytes // max(t.shape[0], 1) for t in fields.values())
    bound, scope = current().memory_bound, active()
    accounts = [] if scope is None else [scope.accounts[tier] for tier in ("host", "device")]
    for account in accounts if isinstance(topology, PagedGraph) else ():
        if account.budget is not None:
            bound = min(bound, (account.budget - account.live) // SHARE)
    most = max(1, bound // max(2 * width, 1))
    pointers: Pointers = (
        PagedPointers(topology.walks["dst"])
        if isinstance(topology, PagedGraph)
        else PointersInMemory(topology.csr.row_ptr)
    )
    return cut_rows(pointers, most, most)


def _block(
    kernel: MessagePassing, topology: Any, fields: Fields, params: Mapping[str, Any], block: Rows
) -> tuple[Any, list[bool]]:
    """The result at the destinations of a block, and which of its parts are on their edges."""
    views, reads = _views(topology, block, fields)
    sent = StoredMessages(block.last - block.first)
    tree = mapped(sent.stored, kernel.edge(*views, **taken(kernel, "edge", params)))
    inner, graph = Stored(kernel, tree), rows_alone(topology, block)
    named = {str(i): value for i, value in enumerate(sent.values)}
    rows = {name: _rows(value, block.low, block.high) for (end, name), value in fields.items()
            if end in ("dst", "ndata")}  # fmt: skip
    made = inner(graph=graph, dst=rows, edge=named)
    moving = [x for x in leaves_of(made) if x._grad]
    again = dict(zip(map(id, moving), _again(moving, reads, fields), strict=True))
    values = mapped(lambda x: again.get(id(x), x) if x._grad else _alone(x), made)
    return values, inner.on_edges


def _alone(x: Tensor) -> Tensor:
    """A value without what it was made of: small ones keep that, to be shown."""
    x.realize()
    x._expression = None
    return x


def _again(results: Sequence[Tensor], reads: Sequence[Node], fields: Fields) -> Sequence[Tensor]:
    """Results that derivatives are asked of, without the messages: they are made again."""
    if not results or any(value.device != CPU for value in fields.values()):
        return results
    still = [value for value in fields.values() if not value._grad]
    return in_segment(results, reads, still)


def _views(
    topology: Any, block: Rows, fields: Fields
) -> tuple[list[FieldView], list[Node]]:  # fmt: skip
    """What `edge` is called with for the edges of a block; and the numbers of what they read."""
    device = device_of_fields(fields)
    views: list[FieldView] = []
    reads: list[Node] = []
    for end in ("src", "dst", "edge"):
        index = on_device(_numbers(topology, block, end), device)
        values = {
            name: result(apply(IndexTake(0), value._node, index), value)
            for (namespace, name), value in fields.items()
            if namespace == end or (namespace == "ndata" and end != "edge")
        }
        views.append(FieldView(end, values))
        reads.append(index)
    return views, reads


def _numbers(topology: Any, block: Rows, end: str) -> np.ndarray:
    """The row that each edge of a block of a graph in memory reads."""
    low, high, first, last = block
    if end == "src":
        return np.asarray(topology.csr.col_idx[first:last])
    if end == "dst":
        return np.repeat(np.arange(low, high), np.diff(topology.csr.row_ptr[low : high + 1]))
    order = edge_order(topology)
    if order is None:
        return np.arange(first, last)
    assert order.cell is not None
    return np.asarray(order.cell.array[first:last])


def _rows(x: Tensor, low: int, high: int) -> Tensor:
    if (low, high) == (0, x.shape[0]):
        return x
    return result(slice_(x._node, 0, low, high - low, 1), x)
