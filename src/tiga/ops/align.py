"""Bring operands to a common dtype, shape and space, as explicit ops."""

import numpy as np

from tiga.ops.feature import broadcast
from tiga.ops.message import spread
from tiga.ops.pointwise import cast
from tiga.trace.node import Node
from tiga.types import GLOBAL, DType, Shape, Space


def common_space(*nodes: Node) -> Space:
    """The one space that is not global among the nodes, or global."""
    spaces = {n.type.space for n in nodes} - {GLOBAL}
    assert len(spaces) <= 1, f"operands of different spaces: {spaces}"
    return spaces.pop() if spaces else GLOBAL


def expand_to(x: Node, shape: Shape, space: Space) -> Node:
    """`x` broadcast to `shape` and given to every entity of `space`."""
    return broadcast(spread(x, space), shape)


def align(*nodes: Node, dtype: DType | None = None) -> list[Node]:
    """The nodes with one shape (numpy broadcasting), one space and, if given, one dtype."""
    shape = np.broadcast_shapes(*(n.type.shape for n in nodes))
    space = common_space(*nodes)
    cast_nodes = [n if dtype is None else cast(n, dtype) for n in nodes]
    return [expand_to(n, tuple(map(int, shape)), space) for n in cast_nodes]
