"""Take row values out of sums that are linear in them, so that walks pass over their edges once.

A sum over a row's edges that reads, per edge, what another sum over the same edges left at the row
needs a second pass. Where it is linear in that value, as the shares of a softmax are in the inverse
of their total, `sum(a + b * v[row]) = sum(a) + sum(b) * v`, and both sums go in one pass.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tiga.ops.base import Op
from tiga.ops.feature import reshape
from tiga.ops.leaf import constant
from tiga.ops.message import is_edge_sum
from tiga.ops.pointwise import (
    Add,
    Div,
    Mul,
    Neg,
    Sub,
    Where,
    add,
    cast,
    div,
    eq,
    mul,
    neg,
    sub,
    where,
)
from tiga.passes.base import Pass
from tiga.trace.node import Node, topological
from tiga.trace.origin import Origin
from tiga.trace.program import Program

MOST_CARRIED = 192
"""Elements of the sums that one pass may carry in place of two: with more, a GPU ran slower."""


def _rewritten(program: Program, with_rest: bool) -> Program:
    rule = partial(_rule, with_rest)
    return program.rewritten(rule)


def _carried(program: Program) -> list[int]:
    """The elements of the sums over the edges of each relation's rows."""
    found: Counter[tuple[object, str]] = Counter()
    for node in program.order:
        if is_edge_sum(node):
            found[node.op.relation, node.op.side] += node.type.size
    return list(found.values())


def _rule(with_rest: bool, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not is_edge_sum(node):
        return None
    total = node.op(*inputs, where=node.where)
    if not is_edge_sum(total) or total.type.dtype.itemsize < 4:
        return None
    return _without(total, with_rest)


def _without(total: Node, with_rest: bool) -> Node:
    """A sum without the values of its rows that only later passes know, as far as it is linear;
    one sum in its place, or two `with_rest`."""
    found = [n for n in topological(total.inputs) if _is_late(n, total)]
    if not found:
        return total
    latest = max(found, key=lambda n: _passes(n, total))
    parts = _Split(latest).of(total.inputs[0])
    if parts is None or parts.factor is None or parts.of_row is None:
        return total
    if parts.rest is not None and not with_rest:
        return total
    scale = _summed(total, parts.factor, with_rest)
    # No edge may have a factor where the row value is no number, as in rows without edges.
    none = constant(0, scale.type)
    product = where(eq(scale, none), none, mul(scale, parts.of_row))
    if parts.rest is None:
        return product
    return add(_summed(total, parts.rest, with_rest), product)


def _summed(total: Node, message: Node, with_rest: bool) -> Node:
    """The sum of other messages at the rows of `total`; of one shape, where it is only renamed."""
    while message.op.reshapes:
        message = message.inputs[0]
    return reshape(_without(total.op(message), with_rest), total.type.shape)


def _is_late(node: Node, total: Node) -> bool:
    """Whether an edge value is read at the row, and known after a pass over its edges."""
    if node.op.origin is not Origin.END:
        return False
    ends = (node.op.relation, node.op.side)
    return ends == (total.op.relation, total.op.side) and _passes(node, total) > 0


def _passes(node: Node, total: Node) -> int:
    """How many passes over the edges of `total` one after another a value takes."""
    passes: dict[Node, int] = {}
    for n in topological([node]):
        own = n.op.origin is Origin.ROW and (n.op.relation, n.op.side) == (
            total.op.relation, total.op.side,
        )  # fmt: skip
        passes[n] = max((passes[child] for child in n.inputs), default=0) + own
    return passes[node]


@dataclass(frozen=True)
class Parts:
    """`rest + factor * gather(of_row)`; a part that is None is not there."""

    rest: Node | None
    factor: Node | None = None
    of_row: Node | None = None


class _Split:
    """Splits edge values into what depends on one gathered value and what does not."""

    def __init__(self, gathered: Node) -> None:
        self.gathered = gathered
        self.known: dict[Node, Parts | None] = {}

    def of(self, node: Node) -> Parts | None:
        """The parts of a value; None where it is not linear in the gathered one."""
        if node not in self.known:
            self.known[node] = self._split(node)
        return self.known[node]

    def _split(self, node: Node) -> Parts | None:
        if node is self.gathered:
            return Parts(None, constant(1, node.type), node.inputs[0])
        if node.type.space != self.gathered.type.space or not node.inputs:
            return Parts(node)
        parts = [self.of(child) for child in node.inputs]
        if any(part is None for part in parts):
            return None
        given = [part for part in parts if part is not None]
        if all(part.factor is None for part in given):
            return Parts(node)
        if node.op.renames:
            return _each(given[0], node.op, node.op)
        combine = _COMBINE.get(type(node.op))
        return combine(node, *given) if combine else None


def _each(part: Parts, on_edge: Callable[[Node], Node], on_row: Callable[[Node], Node]) -> Parts:
    assert part.factor is not None
    assert part.of_row is not None
    rest = None if part.rest is None else on_edge(part.rest)
    return Parts(rest, on_edge(part.factor), on_row(part.of_row))


def _joined(node: Node, x: Parts, y: Parts) -> Parts | None:
    """Parts of a sum or difference."""
    if x.factor is not None and y.factor is not None and x.of_row is not y.of_row:
        return None
    added = node.op.signs == (1, 1)

    def of(a: Node | None, b: Node | None) -> Node | None:
        if a is None or b is None:
            return a if b is None else b if added else neg(b)
        return add(a, b) if added else sub(a, b)

    return Parts(of(x.rest, y.rest), of(x.factor, y.factor), x.of_row or y.of_row)


def _negated(node: Node, x: Parts) -> Parts:
    return _each(x, neg, lambda row: row)


def _product(node: Node, x: Parts, y: Parts) -> Parts | None:
    if x.factor is not None and y.factor is not None:
        return None
    linear, other = (x, y.rest) if x.factor is not None else (y, x.rest)
    assert other is not None
    return _each(linear, lambda part: mul(part, other), lambda row: row)


def _quotient(node: Node, x: Parts, y: Parts) -> Parts | None:
    if y.factor is None:
        below = y.rest
        assert below is not None
        return _each(x, lambda part: div(part, below), lambda row: row)
    if x.factor is not None or y.rest is not None or not _is_one(y.factor):
        return None
    assert y.of_row is not None
    return Parts(None, x.rest, div(constant(1, y.of_row.type), y.of_row))


def _is_one(node: Node) -> bool:
    while node.op.renames:
        (node,) = node.inputs
    return node.op.origin is Origin.NUMBER and node.op.value == 1


def _choice(node: Node, choice: Parts, x: Parts, y: Parts) -> Parts | None:
    if choice.factor is not None:
        return None
    if x.factor is not None and y.factor is not None and x.of_row is not y.of_row:
        return None
    condition = node.inputs[0]

    def of(a: Node | None, b: Node | None) -> Node | None:
        if a is None and b is None:
            return None
        if b is None and a is not None and _is_one(a):
            return cast(condition, node.type.dtype)  # as winners are counted
        none = constant(0, node.type)
        return where(condition, none if a is None else a, none if b is None else b)

    return Parts(of(x.rest, y.rest), of(x.factor, y.factor), x.of_row or y.of_row)


_COMBINE: dict[type[Op], Callable[..., Parts | None]] = {
    Add: _joined, Sub: _joined, Neg: _negated, Mul: _product, Div: _quotient, Where: _choice,
}  # fmt: skip


@dataclass(frozen=True)
class OnePass(Pass, name="gf-one-pass"):
    """Take values of rows out of sums that are linear in them: GPUs then pass over edges once."""

    def __call__(self, form: Program) -> Program:
        made = _rewritten(form, with_rest=True)
        if max(_carried(made), default=0) <= MOST_CARRIED:
            return made
        return _rewritten(form, with_rest=False)
