"""Read fewer values at the other ends of edges: what a walk gathers is most of what it costs.

Two rewrites of the messages of a sum, each exact in the set of values that it reads:

- *Regrouping.* A message that is made of products of values of one end each is a sum of products
  of one value per end: `b_j (p_j + q_i) + a_j` reads `b_j` and `(a + b p)_j`, not three values.
  As with products of matrices (`hoist`), narrow values such as coordinates keep their differences.
- *Bounds.* Whether a message is the extremum of a row decides nothing but which edges win. Where
  the message grows with one value `q` of its other end and depends on nothing else of the edge,
  the winners are those whose `q` reaches the smallest winning one: the row finds that bound in the
  walk that counts its winners, and other walks compare `q` with it instead of making the message
  again. Rounding keeps order, so the winners are the same.

Of a message and its rewritten forms, the one that reads the fewest bytes at other ends is taken.
"""

from dataclasses import dataclass

from tiga.ops.feature import reshape
from tiga.ops.leaf import constant
from tiga.ops.message import gather, is_edge_sum, reduce
from tiga.ops.monoid import MONOIDS
from tiga.ops.pointwise import Mul, add, eq, mul, neg, sub, where
from tiga.ops.winners import WINS
from tiga.passes.base import Pass
from tiga.passes.hoist import LEAST_SPLIT, hoisted
from tiga.trace.node import Node, reached, rewrite, topological
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import OPPOSITE


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not is_edge_sum(node):
        return None
    total = node.op(*inputs, where=node.where)
    return _with_fewest(total) if is_edge_sum(total) else total


def _with_fewest(total: Node) -> Node:
    (message,) = total.inputs
    bounded = _with_bounds(message, total.op.side)
    forms = [message, _regrouped(message, total.op.side), bounded]
    forms += [_regrouped(bounded, total.op.side)] if bounded is not message else []
    fewest = min(forms, key=lambda form: _bytes_read(form, total.op.side))
    return total if fewest is message else total.op(fewest, where=total.where)


def _bytes_read(message: Node, side: str) -> int:
    """Bytes that an edge reads at its other end than `side`."""
    return sum(n.type.row_bytes for n in _leaves(message) if _is_end(n, OPPOSITE[side]))


def _leaves(message: Node) -> list[Node]:
    """The gathers, spreads and edge inputs that a message is made of."""

    def is_leaf(node: Node) -> bool:
        return node.op.origin is Origin.END or node.op.is_uniform or not node.inputs

    return list(filter(is_leaf, reached([message], is_leaf)))


def _is_end(node: Node, side: str) -> bool:
    return node.op.origin is Origin.END and node.op.side == side


# regrouping


@dataclass(frozen=True)
class Term:
    """A product of what one value at the row, one at the other end give; None for nothing. What is
    the same at all edges counts to the row. `mixed` is a value that is no such product."""

    own: Node | None = None
    other: Node | None = None
    mixed: Node | None = None
    taken: bool = False
    """Whether it is taken away."""


def _regrouped(message: Node, side: str) -> Node:
    """The same sum with one value of the other end for each value of the row."""
    terms = _terms(message, side, {})
    groups: dict[Node | None, list[Term]] = {}
    for term in terms:
        if term.other is not None:
            groups.setdefault(term.own, []).append(term)
    if sum(map(len, groups.values())) == len(groups):
        return message
    parts: list[tuple[bool, Node]] = []
    for own, found in groups.items():
        other = _summed([(t.taken, t.other) for t in found if t.other is not None])
        parts.append((False, other if own is None else mul(own, other)))
    for term in terms:
        if term.other is None:
            value = term.own if term.mixed is None else term.mixed
            assert value is not None
            parts.append((term.taken, value))
    return _summed(parts)


def _summed(parts: list[tuple[bool, Node]]) -> Node:
    """The sum of parts, of which some are taken away; on nodes where all are of one end."""
    ordered = sorted(parts, key=lambda part: part[0])
    taken, total = ordered[0]
    total = hoisted(neg(total)) if taken else total
    for taken, part in ordered[1:]:
        total = hoisted((sub if taken else add)(total, part))
    return total


def _terms(x: Node, side: str, known: dict[Node, list[Term]]) -> list[Term]:
    """The terms whose sum is `x`; those of values that were met before are `known`."""
    if x not in known:
        known[x] = _terms_of(x, side, known)
    return known[x]


def _terms_of(x: Node, side: str, known: dict[Node, list[Term]]) -> list[Term]:
    if _is_end(x, OPPOSITE[side]):
        return [Term(other=x)]
    if _is_end(x, side) or _is_uniform(x):
        return [Term(own=x)]
    if x.op.signs:
        parts = [(s, _terms(y, side, known)) for s, y in zip(x.op.signs, x.inputs, strict=True)]
        return [term for sign, part in parts for term in (part if sign > 0 else _negated(part))]
    if x.op.reshapes:
        return [_reshaped(term, x.type.shape) for term in _terms(x.inputs[0], side, known)]
    if isinstance(x.op, Mul) and _may_split(x):
        first, second = (_terms(y, side, known) for y in x.inputs)
        if min(len(first), len(second)) == 1 and not any(t.mixed for t in (*first, *second)):
            return [_product(a, b) for a in first for b in second]
    return [Term(mixed=x)]


def _is_uniform(x: Node) -> bool:
    return x.op.is_uniform or (x.op.reshapes and _is_uniform(x.inputs[0]))


def _may_split(x: Node) -> bool:
    wide = bool(x.type.shape) and x.type.shape[-1] >= LEAST_SPLIT
    return wide and x.type.dtype.is_float and x.type.dtype.itemsize >= 4


def _negated(terms: list[Term]) -> list[Term]:
    return [Term(t.own, t.other, t.mixed, not t.taken) for t in terms]


def _reshaped(term: Term, shape: tuple[int, ...]) -> Term:
    def of(x: Node | None) -> Node | None:
        return None if x is None else hoisted(reshape(x, shape))

    if term.own is not None and term.other is not None:
        return Term(of(term.own), of(term.other), None, term.taken)
    return Term(of(term.own), of(term.other), of(term.mixed), term.taken)


def _product(a: Term, b: Term) -> Term:
    """A product of terms; what is the same at all edges goes to the other end, if there is one."""
    own, other = _times(a.own, b.own), _times(a.other, b.other)
    if own is not None and other is not None and _is_uniform(own):
        return Term(None, _scaled(other, own), None, a.taken != b.taken)
    return Term(own, other, None, a.taken != b.taken)


def _scaled(other: Node, uniform: Node) -> Node:
    """A gather times what is the same at all edges, on nodes."""
    shape = other.type.shape
    while uniform.op.reshapes:
        uniform = uniform.inputs[0]
    flat = hoisted(reshape(other, uniform.type.shape))
    return hoisted(reshape(hoisted(mul(flat, uniform)), shape))


def _times(a: Node | None, b: Node | None) -> Node | None:
    if a is None or b is None:
        return a if b is None else b
    return hoisted(mul(a, b))


# bounds


def _with_bounds(message: Node, side: str) -> Node:
    """The message with comparisons with extrema of the other ends' rows as those with bounds."""

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        return _bounded(node, side) if node.op.finds is not None else None

    inside = {n: n for n in topological([message]) if n.op.origin is Origin.END}
    return rewrite([message], rule, inside)[0]


def _bounded(wins: Node, side: str) -> Node | None:
    """Whether a message is the extremum of its other end's row, by a value at `side`."""
    message, best = wins.inputs
    if not _is_end(best, OPPOSITE[side]):
        return None
    found = _trend(message, side, {})
    if found is None or found.value is None or found.value.type.size != message.type.size:
        return None
    value = reshape(found.value, message.type.shape)
    largest = (wins.op.finds == "max") == found.grows
    kind = "min" if largest else "max"
    none = constant(MONOIDS[kind].identity(value.type.dtype), value.type)
    relation, end = best.op.relation, best.op.side
    bound = reduce(relation, end, kind, where(wins, value, none))
    (of_row,) = best.inputs
    if of_row.type != bound.type:
        return None
    # A row whose extremum is no number has no winner, and none may reach its bound.
    bound = where(eq(of_row, of_row), bound, of_row)
    return WINS["max" if largest else "min"](value, gather(relation, end, bound))


@dataclass(frozen=True)
class Trend:
    """That a value never falls (`grows`), or never rises, as the value of one gather grows; that
    is None where it does not depend on the row."""

    value: Node | None = None
    grows: bool = True


def _trend(x: Node, side: str, seen: dict[Node, Trend | None]) -> Trend | None:
    """How an edge value follows from the one value at `side` that it depends on; None if it depends
    on several, or on more of the edge than its ends. Values that were met before are `seen`."""
    if x not in seen:
        seen[x] = _trend_of(x, side, seen)
    return seen[x]


def _trend_of(x: Node, side: str, seen: dict[Node, Trend | None]) -> Trend | None:
    if _is_end(x, side):
        return Trend(x)
    if x.op.origin is Origin.END or x.op.is_uniform:
        return Trend()
    if not x.op.trends:
        return None
    signs = zip(x.inputs, x.op.trends, strict=True)
    below = ((_trend(y, side, seen), sign > 0) for y, sign in signs)
    found = [t and Trend(t.value, t.grows == same) for t, same in below]
    known = {t for t in found if t is None or t.value is not None}
    if not known:
        return Trend()
    return known.pop() if len(known) == 1 else None


@dataclass(frozen=True)
class FewerReads(Pass, name="gf-fewer-reads"):
    """Read fewer values at the other ends of edges: GPUs are bound by them."""

    def __call__(self, form: Program) -> Program:
        return form.rewritten(_rule)
