"""Which walks may be cut into slices of the first axis of their values, such as heads.

Heads do not meet: what a walk computes for some of them needs these alone. A program that takes a
slice gathers a part of each row, so that the parts of all rows that programs side by side gather
fit the L2 cache when whole rows would not.
"""

from math import gcd

from tiga.backends.triton.layout import first_axis, keeps_places, sliced
from tiga.backends.triton.schedule import far_reads, in_registers
from tiga.backends.triton.schedule import products as products_of
from tiga.ops.feature import Permute
from tiga.passes.rows import RowProgram
from tiga.trace.node import Node
from tiga.trace.origin import Origin

LINE = 128
"""Bytes that memory is read in: parts of wide rows should be no shorter."""

CACHED = 64 * 2**20
"""Bytes of gathered rows of which the L2 cache of an H200 (50 MB) holds the greater part."""


def slices(program: RowProgram, far: int) -> int:
    """How many parts a walk is cut into, with about so many entities at the other ends of edges.

    Two, where halves of what edges gather fit the cache and the whole does not: the walks of
    TransformerConv then took 7 to 13% less on an H200.
    """
    sizes = [array.type.row_bytes for array in far_reads(program)]
    gathered = far * sum(size for size in sizes if size >= 2 * LINE)
    if not CACHED < gathered <= 2 * CACHED:
        return 1
    return 2 if may_slice(program, 2) else 1


def heads(program: RowProgram) -> int:
    """How many parts a walk may be cut into, each by itself; 1 where features meet across all."""
    if program.relation is None or program.scans or program.scatters or program.has_sums:
        return 1
    nodes = in_registers(program)
    wide = [n for n in nodes if n.type.size > 1]
    if not wide or products_of(program):
        return 1
    made = [n for n in nodes if n not in set(program.reads)]
    if not all(map(_keeps_first_axis, made)):
        return 1
    return gcd(*(n.type.shape[first_axis(n.type.shape)] for n in wide))


def may_slice(program: RowProgram, slices: int) -> bool:
    """Whether kernels can hold a slice: its values are renamed where they lie."""
    if slices < 2 or heads(program) % slices:
        return False
    reads = set(program.reads)
    reshapes = (n for n in in_registers(program) if n.op.reshapes and n not in reads)
    return all(
        keeps_places(sliced(n.inputs[0].type.shape, slices), sliced(n.type.shape, slices))
        for n in reshapes
    )


def _keeps_first_axis(node: Node) -> bool:
    """Whether a part of the result along its first axis needs that part of the operands alone."""
    if node.type.size == 1 and all(n.type.size == 1 for n in node.inputs):
        return True
    if node.op.origin is not Origin.OPERANDS or node.op.pointwise or node.op.reshapes:
        return True
    source, target = node.inputs[0].type.shape, node.type.shape
    axis = first_axis(source)
    if node.op.reduces:
        return bool(node.op.axis != axis)
    if node.op.broadcasts:
        # Along the first axis nothing is repeated but single numbers.
        return axis == len(source) or axis + len(target) - len(source) == first_axis(target)
    return isinstance(node.op, Permute) and node.op.axes[first_axis(target)] == axis
