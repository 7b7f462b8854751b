"""What waits below a value that is not computed: which nodes, in how long chains, of what size."""

from collections.abc import Sequence

from tiga.frontends.tensor.lazy import LARGE, LazyNode, Leaf, Unbuilt
from tiga.trace.node import Node

CHAIN = 256
"""Longest chain of operations that waits for a value: longer ones are computed in pieces."""

COMPOSED = 1024
"""Nodes that are looked at to learn what waits below a value."""


def pending(roots: Sequence[Node]) -> list[Node]:
    """The nodes that must be computed for `roots`, each after its inputs."""
    order: list[Node] = []
    seen: set[int] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        key = id(node)
        if key in seen or node.cell is not None:
            stack.pop()
            continue
        waiting = [c for c in node.inputs if id(c) not in seen and c.cell is None]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        seen.add(key)
        order.append(node)
        stack.pop()
    return order


def stands_for_many(node: Node) -> bool:
    """Whether an expression depends on what stands for all edges, rows or examples."""
    return any(isinstance(below.op, Leaf) for below in pending([node]))


def extent_of(nodes: Sequence[Node]) -> tuple[int, int]:
    """The length of the longest chain that waits below `nodes`, and the size of the largest value
    there; LARGE if it takes long to find out."""
    depth = largest = 0
    for node in nodes:
        if node.__class__ is not LazyNode and node.__class__ is not Unbuilt:
            return _extent_of_any(nodes)
        if node.cell is None and node.depth > depth:
            depth = node.depth
        if node.largest > largest:
            largest = node.largest
    return depth, largest


def _extent_of_any(nodes: Sequence[Node]) -> tuple[int, int]:
    known: dict[int, int] = {}
    largest = 0
    stack = list(nodes)
    while stack:
        node = stack[-1]
        if isinstance(node, LazyNode):
            known[id(node)] = 0 if node.cell is not None else node.depth
            largest = node.largest if node.largest > largest else largest
            stack.pop()
            continue
        waiting = [child for child in node.inputs if id(child) not in known]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        known[id(node)] = 1 + max([known[id(child)] for child in node.inputs], default=0)
        largest = node.type.size if node.type.size > largest else largest
        if len(known) > COMPOSED:
            return CHAIN, LARGE
    return max([known[id(node)] for node in nodes], default=0), largest
