"""Vectors made of parts of one size, such as states of several components, in registers.

Parts of a vector that are as long as a power of two are joined and told apart where they lie: a
thread holds the same element of every part. Other movements go from thread to thread.
"""

from collections.abc import Sequence

from tiga.backends.triton.arithmetic import Term, literal
from tiga.backends.triton.block import Block
from tiga.backends.triton.layout import padded
from tiga.backends.triton.writer import Value, Writer
from tiga.ops.feature import Concat, Put, Take
from tiga.trace.node import Node

MOST = 8
"""Parts of a vector, at most."""


def part_size(node: Node) -> int:
    """The size of the parts that a movement joins or takes; 0 if it is another movement."""
    shapes = (node.type.shape, *(n.type.shape for n in node.inputs))
    if not isinstance(node.op, Concat | Take | Put) or any(len(shape) != 1 for shape in shapes):
        return 0
    if isinstance(node.op, Concat):
        sizes = {n.type.size for n in node.inputs}
        size, first, whole = max(sizes), 0, node.type.size
        in_order = len(sizes) == 1
    else:
        positions = node.op.positions
        size, first = len(positions), positions[0]
        whole = max(node.type.size, node.inputs[0].type.size)
        in_order = positions == tuple(range(first, first + size))
    fits = in_order and size == padded(size) and padded(whole) <= MOST * size
    return size if fits and first % size == 0 else 0


def by_parts(writer: Writer, block: Block, node: Node, args: Sequence[Value]) -> Value:
    """The result of a movement of parts."""
    size = part_size(node)
    if node.op.concatenates:
        return _joined(writer, block, args, size)
    number = node.op.positions[0] // size
    if isinstance(node.op, Take):
        count = padded(node.inputs[0].type.size) // size
        return _taken(writer, block, args[0], number, count)
    zero = Value(literal(0, args[0].dtype), ())
    parts = [args[0] if i == number else zero for i in range(padded(node.op.extent) // size)]
    return _joined(writer, block, parts, size)


def _joined(writer: Writer, block: Block, parts: Sequence[Value], size: int) -> Value:
    """Parts of one size after one another, zeros up to a power of two."""
    lead = tuple(max((p.dims[i] for p in parts if p.dims), default=1) for i in (0, 1))
    zero = Value(literal(0, next(p.dtype for p in parts if p.dims)), ())
    parts = [*parts, *[zero] * (padded(len(parts)) - len(parts))]
    level = [writer.full(part, (*lead, size)) for part in parts]
    while len(level) > 1:
        size *= 2
        level = [
            _pair(writer, block, *pair, (*lead, size))
            for pair in zip(level[::2], level[1::2], strict=True)
        ]
    return level[0]


def _pair(writer: Writer, block: Block, low: Value, high: Value, dims: tuple[int, ...]) -> Value:
    pair = f"tl.permute(tl.join({low.text}, {high.text}), [0, 1, 3, 2])"
    text = f"tl.reshape({pair}, {list(dims)})"
    return writer.named(block, "joined", Value(Term(text, low.dtype), dims))


def _taken(writer: Writer, block: Block, value: Value, number: int, count: int) -> Value:
    """One of so many parts."""
    lead, extent = value.dims[:2], value.dims[2]
    if extent == 1:
        return value  # all elements are the same
    value = writer.full(value, value.dims)
    while count > 1:
        count, extent = count // 2, extent // 2
        low, high = writer.names.fresh("low"), writer.names.fresh("high")
        pair = f"tl.permute(tl.reshape({value.text}, {[*lead, 2, extent]}), [0, 1, 3, 2])"
        block.add(f"{low}, {high} = tl.split({pair})")
        name = high if number >= count else low
        number %= count
        value = Value(Term(name, value.dtype), (*lead, extent))
    return value
