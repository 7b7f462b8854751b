"""Moves of cheap values: joins choose by position, slices and padding go below what is cheap.

The programs that come of it are equal. Their moves read memory, and so cost kernels nothing.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce

from tiga.ops.base import Op
from tiga.ops.feature import broadcast
from tiga.ops.leaf import constant
from tiga.ops.pointwise import ge, logical_and, lt, where
from tiga.ops.tensor_scan import Positions
from tiga.ops.tensor_views import Join, Slice, Unslice, unslice
from tiga.passes.tensor_fusable import is_pointwise, is_reduction, is_scan
from tiga.trace.node import Node, Rule, users
from tiga.trace.origin import Origin
from tiga.trace.program import Program

JOINED = 4
"""Parts up to which a join is a choice between windows: each element looks at all of them."""

MOVED_FROM = 2048
"""Elements from which it is worth it; numpy moves fewer faster than a kernel starts."""

NARROW = 16
"""Columns below which rows are too short to walk one by one."""

CHEAP = 8
"""Cost up to which a value is computed again where it is read, rather than stored."""

SPREAD = 1.25
"""How often an element of a cheap value may be read by slices that go below it."""


def sink_moves(program: Program, native: bool) -> Program:
    """An equal program with joins of a few parts as choices, and moves below cheap values."""
    readers = users(program.order)
    outputs = set(program.outputs)
    rules: dict[type[Op], Rule] = {
        Join: lambda node, inputs: (
            _choice(node, inputs) if _is_computed_with(node, readers) else None
        ),
        Slice: lambda node, inputs: (
            _sliced(node, inputs) if _only_sliced(node.inputs[0], readers, outputs) else None
        ),
        Unslice: _padding,
    }

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        moved = rules.get(type(node.op))
        worth_it = node.type.size and (native or node.type.size >= MOVED_FROM)
        return moved(node, inputs) if moved is not None and worth_it else None

    return program.rewritten(rule)


def _is_computed_with(node: Node, readers: Mapping[Node, Sequence[Node]]) -> bool:
    """Whether a kernel computes something of what is joined, or what is joined: numpy joins what
    is in memory, for memory, as fast."""
    return any(
        n.op.moves or is_pointwise(n) or is_reduction(n) or is_scan(n) for n in readers[node]
    ) or any(_is_cheap(x) for x in node.inputs)


def _only_sliced(
    x: Node, readers: Mapping[Node, Sequence[Node]], outputs: Collection[Node]
) -> bool:  # fmt: skip
    """Whether slices alone read a value, each of its elements about once."""
    found = readers[x]
    read = sum(reader.type.size for reader in found)
    sliced = all(isinstance(reader.op, Slice) for reader in found)
    return sliced and x not in outputs and read <= SPREAD * x.type.size


def _is_narrow(node: Node) -> bool:
    """Whether choosing by position would make rows too short."""
    return 1 < math.prod(node.type.shape[node.op.axis + 1 :]) < NARROW


def _choice(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    parts = [x for x in inputs if x.type.size]
    if len(parts) == 1:
        return parts[0]
    if len(parts) > JOINED or _is_narrow(node):
        return None
    shape, axis = node.type.shape, node.op.axis
    places = Positions(axis, shape)()
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + part.type.shape[axis])
    chosen = _padded(parts[-1], axis, starts[-2], shape[axis])
    for part, start, end in reversed(list(zip(parts[:-1], starts, starts[1:], strict=False))):
        mine = _padded(part, axis, start, shape[axis])
        chosen = where(lt(places, constant(end, places.type)), mine, chosen)
    return chosen


def _padding(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """Padding of a cheap value: the value of what is padded, where it is."""
    (x,) = inputs
    op = node.op
    if op.step != 1 or not _is_cheap(x) or _is_narrow(node):
        return None
    shape, end = node.type.shape, op.start + x.type.shape[op.axis]
    places = Positions(op.axis, shape)()
    inside = []
    if op.start:
        inside.append(ge(places, constant(op.start, places.type)))
    if end < op.extent:
        inside.append(lt(places, constant(end, places.type)))
    value = _padded(x, op.axis, op.start, op.extent)
    return where(reduce(logical_and, inside), value, constant(0, value.type)) if inside else value


def _padded(x: Node, axis: int, start: int, extent: int) -> Node:
    """A value that has `x` at its place along an axis, and anything elsewhere."""
    return _below(x, axis, extent, lambda leaf: unslice(leaf, axis, start, 1, extent), CHEAP)


def _sliced(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    (x,) = inputs
    op = node.op
    return _below(x, op.axis, op.count, op, CHEAP) if _is_cheap(x) else None


def _is_cheap(x: Node) -> bool:
    return bool(x.op.pointwise) and x.op.cost <= CHEAP


def _below(
    x: Node, axis: int, extent: int, move: Op | Callable[[Node], Node], budget: float
) -> Node:
    """A move along an axis, which will be of `extent`, below the cheap ops that make `x`."""
    shape = (*x.type.shape[:axis], extent, *x.type.shape[axis + 1 :])
    if x.op.origin is Origin.NUMBER:
        return constant(x.op.value, x.type.with_shape(shape))
    if x.op.broadcasts:
        (source,) = x.inputs
        lead = len(shape) - len(source.type.shape)
        if axis < lead or source.type.shape[axis - lead] == 1:
            return broadcast(source, shape)
    if x.op.pointwise and x.op.cost <= budget:
        left = budget - max(x.op.cost, 1)
        return x.op(*(_below(c, axis, extent, move, left) for c in x.inputs), where=x.where)
    return move(x)
