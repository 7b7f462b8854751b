"""Add the pieces of a sum over all rows, in a fixed order."""

from tiga.backends.triton.arithmetic import dtype_text
from tiga.backends.triton.layout import Tile, padded
from tiga.backends.triton.writer import KernelSource, Parameter, pointer_type
from tiga.trace.node import Node

LANES = 32
"""Pieces that are added at a time, at least."""

WINDOW = 128
"""Elements of a value that a program takes, at most."""

LARGE, NARROW = 1024, 32
"""Values of more elements go in narrower windows: there are enough of them for every
multiprocessor."""
ELEMENTS = 16384
"""Elements of pieces that a kernel adds at a time, where there are so many: narrow totals have many
pieces, and one program to add them."""


PAGE = "page"
"""What pages of a graph in a file add up to, each a piece of the whole."""


def sum_pieces(name: str, node: Node, of_page: bool = False) -> KernelSource:
    """`total[f] = sum over pieces of pieces[p, f]`: piece by piece in lanes, then the lanes. The
    total of a page stays in the type that sums are computed in."""
    size, compute = node.type.size, node.type.dtype.compute
    dtype = compute if of_page else node.type.dtype
    window = min(padded(size), WINDOW if size < LARGE else NARROW)
    lanes = max(LANES, min(ELEMENTS // window, 1024)) if size <= WINDOW else LANES
    text = f"""@triton.jit
def {name}(pieces, total, count):
    f = tl.program_id(1) * {window} + tl.arange(0, {window})[None, :]
    lane = tl.arange(0, {lanes})[:, None]
    added = tl.full([{lanes}, {window}], 0, {dtype_text(compute)})
    for start in range(0, count, {lanes}):
        piece = start + lane
        inside = (piece < count) & (f < {size})
        added += tl.load(pieces + piece.to(tl.int64) * {size} + f, mask=inside, other=0)
    value = tl.sum(added, 0, keep_dims=True).to({dtype_text(dtype)})
    tl.store(total + f, value, mask=f < {size})
"""
    parameters = (
        Parameter("pieces", pointer_type(compute), ("piece", node)),
        Parameter("total", pointer_type(dtype), (PAGE if of_page else "array", node)),
        Parameter("count", "i32", "num_pieces"),
    )
    warps = 4 if lanes == LANES else 8
    return KernelSource(name, text, parameters, (), Tile(1, lanes, warps, size, window))
