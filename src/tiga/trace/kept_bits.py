"""Which conditions of edges a run keeps for its gradient, as one bit per element.

The derivatives of relu, abs, clamps and maxima need of their operands only how these compare. Where
an operand is a product with a matrix, each walk of the gradient would multiply again for that, and
where it is made of values at the other ends of edges, gather them again. A bit costs a 32nd of a
float to store and to read.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tiga.trace.node import Node, reached, topological
from tiga.trace.origin import Origin
from tiga.types import bool_

DEAR = 64
"""Elements of a matrix up to which multiplying with it again is as cheap as reading bits."""

MUCH = 4
"""How many times the bytes of its bits, stored once and read by each loop, a condition is to spare
in gathers."""


@dataclass(frozen=True)
class Loop:
    """Edge values that a gradient evaluates together, for sums at the nodes of one `side`, or for a
    sum of outer products."""

    side: str
    values: tuple[Node, ...]

    def work(self, beyond: Collection[Node] = ()) -> set[Node]:
        """What takes long of it, but for what those `beyond` are made of: products, and reads at
        other ends than its side."""
        return _work(_cone(self.values, beyond), self.side)

    def spared(self, known: Collection[Node]) -> dict[Node, set[Node]]:
        """What it is spared if it has some conditions, by condition."""
        saved = self.work() - self.work(known)
        reached = (node for node in _cone(self.values, known) if node in known)
        found = ((node, saved & _work(_cone([node]), self.side)) for node in reached)
        return {node: work for node, work in found if work}


def kept_conditions(outputs: Sequence[Node], unknown: Collection[Node]) -> list[Node]:
    """The conditions of edges among the values that `outputs` are made of that are worth their
    bits. A run cannot keep what is made of the `unknown`: the cotangents. One that follows from a
    sum of its row takes the run another pass over the edges, which only a product is worth."""
    order = topological(outputs)
    late = _made_of(order, (n for n in order if n.op.origin is Origin.ROW))
    keepable = _conditions(order) - _made_of(order, unknown)
    spared: dict[Node, list[Node]] = {}
    readers: Counter[Node] = Counter()
    for loop in _loops(order):
        for node, work in loop.spared(keepable).items():
            spared.setdefault(node, []).extend(_products(work) if node in late else work)
            readers[node] += 1
    return [n for n in order if n in spared and _are_worth_it(n, spared[n], readers[n])]


def _are_worth_it(condition: Node, spared: Collection[Node], readers: int) -> bool:
    """Whether the bits of a condition cost less than products and far reads that they spare so many
    loops."""
    reads = sum(n.type.row_bytes for n in spared if n.op.origin is Origin.END)
    return bool(_products(spared)) or reads > MUCH * (readers + 1) * _bytes_of_bits(condition)


def _bytes_of_bits(node: Node) -> int:
    return 4 * -(-node.type.size // 32)


def _made_of(order: Sequence[Node], some: Iterable[Node]) -> set[Node]:
    """Some nodes, and those of `order` that are made of them."""
    found = set(some)
    for node in order:
        if any(child in found for child in node.inputs):
            found.add(node)
    return found


def _conditions(order: Sequence[Node]) -> set[Node]:
    """The conditions of edges that a loop finds; those of scans are found again in any case."""
    scans = _made_of(order, (n for n in order if n.op.origin is Origin.CARRY))
    found = (n for n in order if n.type.dtype == bool_ and _is_of_edges(n) and n.inputs)
    return {n for n in found if n not in scans and n.op.origin is Origin.OPERANDS}


def _loops(order: Sequence[Node]) -> list[Loop]:
    """The loops over edges: sums at the nodes of one side share one, each sum of outer products has
    its own."""
    rows: dict[str, list[Node]] = {}
    found = []
    for node in order:
        values = tuple(filter(_is_of_edges, node.inputs))
        if node.op.origin is Origin.ROW:
            rows.setdefault(node.op.side, []).extend(values)
        elif node.op.origin is Origin.OUTER and values:
            found.append(Loop("dst", values))
    return [*(Loop(side, tuple(values)) for side, values in rows.items()), *found]


def _is_of_edges(node: Node) -> bool:
    return node.type.on_edges


def _cone(values: Sequence[Node], beyond: Collection[Node] = ()) -> list[Node]:
    def below(node: Node) -> Iterable[Node]:
        return filter(_is_of_edges, node.inputs)

    return list(reached(filter(_is_of_edges, values), beyond.__contains__, below))


def _work(nodes: Collection[Node], side: str) -> set[Node]:
    """The products among some edge values, and their reads at other ends than `side`."""
    ends = {n for n in nodes if n.op.origin is Origin.END and n.op.side != side}
    return _products(nodes) | ends


def _products(nodes: Collection[Node]) -> set[Node]:
    """Those of some values that are products with a matrix of more than a few elements."""
    tables = ((n, n.inputs[n.op.table]) for n in nodes if n.op.table is not None)
    return {n for n, matrix in tables if not n.op.by_index and matrix.type.size > DEAR}
