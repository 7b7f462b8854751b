"""Dense products of node values and global matrices, by a library, in fixed blocks of rows."""

import ctypes
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from tiga.trace.node import Node
from tiga.types import GLOBAL, Space

BLOCK_ROWS = 4096
"""Rows per call: results depend neither on the threads nor on how many rows there are beside."""

Matmul = Callable[[np.ndarray, np.ndarray, np.ndarray], None]
"""`matmul(a, b, out)` stores a @ b in out."""


def numpy_matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """numpy's product of matrices, into `out`."""
    np.matmul(a, b, out=out)


def array_at(node: Node, address: int, extent: int = 1) -> np.ndarray:
    """The array of a value at so many entities, `[extent, *shape]`."""
    buffer = (ctypes.c_ubyte * (extent * node.type.row_bytes)).from_address(address)
    view = np.frombuffer(memoryview(buffer), np.uint8).view(node.type.dtype.numpy)
    return view.reshape(extent, *node.type.shape)


def matrix_at(node: Node, address: int, extent: int = 1) -> np.ndarray:
    """The same as a matrix: entities and leading axes by the last axis."""
    rows = extent * node.type.size // max(node.type.shape[-1], 1)
    return array_at(node, address, extent).reshape(rows, node.type.shape[-1])


def call_library(
    node: Node, addresses: Mapping[Node, int], extents: Mapping[Space, int], matmul: Matmul
) -> None:
    """Compute a product of node values, or a rearranged global value, into its array."""
    if not node.op.stands_alone:
        _rearrange(node, addresses)
        return
    if node.op.by_index:
        _index_sum(node, addresses, extents)
        return

    def view(n: Node) -> np.ndarray:
        return matrix_at(n, addresses[n], extents[n.type.space])

    compute = node.type.dtype.compute.numpy
    a, b = (view(n) for n in node.inputs)
    out = view(node)
    if node.op.table is not None:
        contract_rows(a, b.astype(compute), out, matmul)
    else:
        assert node.type.space == GLOBAL
        rows = range(0, len(a), BLOCK_ROWS)
        outer_sum(((a[i : i + BLOCK_ROWS], b[i : i + BLOCK_ROWS]) for i in rows), out, matmul)


def contract_rows(a: np.ndarray, b: np.ndarray, out: np.ndarray, matmul: Matmul) -> None:
    """The product of rows with a matrix of the type to compute in, block by block."""
    for start in range(0, len(a), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        if out.dtype == b.dtype:
            matmul(a[rows], b, out[rows])
            continue
        wide = np.empty((len(a[rows]), b.shape[1]), b.dtype)
        matmul(a[rows].astype(b.dtype), b, wide)
        out[rows] = wide


def outer_sum(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]], out: np.ndarray, matmul: Matmul
) -> None:
    """Per block of BLOCK_ROWS rows, then the blocks in order."""
    dtype = np.promote_types(out.dtype, np.float32)
    total, piece = np.zeros(out.shape, dtype), np.empty(out.shape, dtype)
    for a, b in blocks:
        matmul(np.ascontiguousarray(a.T.astype(dtype)), b.astype(dtype), piece)
        total += piece
    out[...] = total


def _index_sum(node: Node, addresses: Mapping[Node, int], extents: Mapping[Space, int]) -> None:
    """In the order of the entities."""
    arrays = (array_at(n, addresses[n], extents[n.type.space]) for n in node.inputs)
    array_at(node, addresses[node])[...] = node.op.reference(*arrays)


def _rearrange(node: Node, addresses: Mapping[Node, int]) -> None:
    """A global value by its op's numpy reference."""
    given = ((array_at(n, addresses[n]), n.type.dtype.compute.numpy) for n in node.inputs)
    wide = [array.astype(dtype, copy=False) for array, dtype in given]
    result = node.op.reference(*wide)
    assert result.dtype == (node.type.dtype.compute if wide else node.type.dtype).numpy
    array_at(node, addresses[node])[...] = result
