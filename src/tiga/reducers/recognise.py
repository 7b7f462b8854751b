"""What the algebra of `combine` says about a fold: components that need no order of edges.

With x_1 ... x_n the states of a row's edges, a component is

- a reduction by a monoid, if combining is that monoid's operation;
- the logarithm of a sum of exponentials, if the exponential of combining is a sum;
- a scaled sum, sum of x_i W(state_i, result), if combining is `left W(left, out) + right W(right,
  out)` with W(a, b) W(b, c) = W(a, c): then what was scaled to one result is scaled to the next.
  W is exp(m - out_m) for the shifted sums of an online softmax, n / out_n for a running mean;
- the squared deviations from such a mean, if combining adds those of the runs' means.

Nothing here looks at names: only at what ops are applied to.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiga.ops.functions import exp as exp_op
from tiga.ops.leaf import Input, constant, is_constant, zeros_like
from tiga.ops.monoid import MONOIDS
from tiga.ops.pointwise import Div, Mul, neg
from tiga.reducers.algebra import (
    ONE,
    ZERO,
    Applied,
    Atom,
    Expr,
    Term,
    TooLong,
    exp,
    in_place,
    of_factor,
    renamed,
)
from tiga.reducers.fold import Fold
from tiga.reducers.normal import INVERSE, Reader
from tiga.trace.node import Node, rewrite, topological
from tiga.trace.origin import Origin
from tiga.types import Space

LEFT, RIGHT, OUT = "left", "right", "out"
EXTREMA = {monoid.op: kind for kind, monoid in MONOIDS.items() if monoid.selects}
BEYOND = (TooLong, RecursionError)
"""What says that an expression is too long or too deep to be read."""


@dataclass(frozen=True)
class Form:
    """How one component is computed: a kind of `MONOIDS`, `logsumexp`, `scaled` by W, or
    `deviations`, the squared ones from a mean.

    `weight` is W on the atoms (LEFT, k) and (OUT, k); `by` are the components k of OUT.
    """

    kind: str
    by: tuple[int, ...] = ()
    weight: Expr = ONE

    def __str__(self) -> str:
        if self.kind == "deviations":
            return f"squared deviations from component {self.by[0]}"
        if self.kind != "scaled":
            return self.kind
        return f"sum scaled by component {', '.join(map(str, self.by))}"


Forms = Mapping[int, Form]


@dataclass(frozen=True)
class Lifted:
    """Components that are 1, or 0, for every edge."""

    ones: frozenset[int] = frozenset()
    zeros: frozenset[int] = frozenset()

    @staticmethod
    def of(states: Sequence[Node]) -> "Lifted":
        """What is known of the states of edges."""
        found = (
            frozenset(i for i, state in enumerate(states) if is_constant(state, value))
            for value in (1.0, 0.0)
        )
        return Lifted(*found)


def recognise(rule: Fold, lifted: Lifted) -> dict[int, Form]:
    """The forms of components, by their number; those without one must be folded in order."""
    found = {i: _attempt(_plain, rule, i) for i in range(rule.width)}
    sums = frozenset(i for i, form in found.items() if form is not None and form.kind == "sum")
    counts = sums & lifted.ones
    for i in [i for i, form in found.items() if form is None]:
        found[i] = _attempt(_scaled, rule, i, sums, counts)
    for i in [i for i in lifted.zeros if found[i] is None]:
        pairs = [(j, n) for n in counts for j in found if found[j] == _mean_of(rule, n)]
        each = (_attempt(_deviations, rule, i, j, n) for j, n in pairs)
        found[i] = next((form for form in each if form is not None), None)
    return _settled(rule, {i: form for i, form in found.items() if form is not None})


def _attempt(find: Callable[..., Form | None], *facts: Any) -> Form | None:
    try:
        return find(*facts)
    except BEYOND:
        return None


def _settled(rule: Fold, forms: dict[int, Form]) -> dict[int, Form]:
    """The forms that depend on known components only: on one another in no circle, or on what is
    folded."""
    while True:
        folded = set(rule.closure([i for i in range(rule.width) if i not in forms]))
        known = {i for i, form in forms.items() if not form.by} | folded
        growing = True
        while growing:
            more = {i for i, f in forms.items() if i not in known and known.issuperset(f.by)}
            known |= more
            growing = bool(more)
        left = {i: form for i, form in forms.items() if i in known}
        if left == forms:
            return forms
        forms = left


def _atom(side: str, rule: Fold, k: int) -> Expr:
    return of_factor(Atom((side, k), in_place(rule.left[k].type.size)))


def _reader(rule: Fold, i: int, counts: Iterable[int] = ()) -> Reader:
    """Reads what component `i` becomes, with the other components' results as atoms.

    `counts` are sums of ones: once there is an edge, they are at least 1.
    """
    outputs = enumerate(rule.combine.outputs)
    known: dict[Node, object] = {node: (OUT, k) for k, node in outputs if k != i}
    known.pop(rule.combine.outputs[i], None)
    for side, nodes in ((LEFT, rule.left), (RIGHT, rule.right)):
        known.update({node: (side, k) for k, node in enumerate(nodes)})
    return Reader(known, at_least_one=frozenset((OUT, k) for k in counts))


def _plain(rule: Fold, i: int) -> Form | None:
    """The form of a component that combines by itself."""
    left, right = (_atom(side, rule, i) for side in (LEFT, RIGHT))
    combined = _reader(rule, i).by_cases(rule.combine.outputs[i])
    dtype = rule.left[i].type.dtype
    if dtype.kind == "b":
        return None
    for name, kind in EXTREMA.items():
        if combined == of_factor(Applied(name, frozenset({left, right}))):
            return Form(kind)
    for kind, result in (("sum", left + right), ("prod", left * right)):
        if combined == result and _starts_with(rule, i, MONOIDS[kind].identity(dtype)):
            return Form(kind)
    starts = dtype.is_float and rule.identity[i].op.origin is Origin.NUMBER
    sums = starts and _exponential(rule, i) == exp(left) + exp(right)
    return Form("logsumexp") if sums else None


def _exponential(rule: Fold, i: int) -> Expr:
    """exp of what component `i` becomes, whichever of the compared values is larger."""
    return _reader(rule, i).by_cases(exp_op(rule.combine.outputs[i]))


def _starts_with(rule: Fold, i: int, number: float) -> bool:
    start = rule.identity[i]
    return start.op.origin is Origin.NUMBER and bool(start.op.value == number)


def _scaled(rule: Fold, i: int, sums: frozenset[int], counts: frozenset[int]) -> Form | None:
    if not _starts_with(rule, i, 0.0) or not rule.left[i].type.dtype.is_float:
        return None
    combined = _reader(rule, i, counts).read(rule.combine.outputs[i])
    left, right = (_weight(combined, side, rule, i, sums) for side in (LEFT, RIGHT))
    own = [_atom(side, rule, i) for side in (LEFT, RIGHT)]
    if left is None or right is None or _without(combined, own).terms:
        return None
    if relabelled(left, {LEFT: RIGHT}) != right or not _composes(left):
        return None
    names = {atom.name for atom in left.atoms()}
    by = sorted(n[1] for n in names if isinstance(n, tuple) and n[0] == OUT)
    form = Form("scaled", tuple(by), left)
    return form if by and _has_summand(rule, i) else None


def _factor(atom: Expr) -> Atom:
    return next(atom.atoms())


def _without(e: Expr, atoms: Sequence[Expr]) -> Expr:
    """The terms that none of the atoms is a factor of."""
    factors = list(map(_factor, atoms))
    kept = (pair for pair in e.terms if not any(pair[0].power(f) for f in factors))
    return Expr(frozenset(kept))


def _weight(combined: Expr, side: str, rule: Fold, i: int, sums: frozenset[int]) -> Expr | None:
    """What component `i` of a side is multiplied with, if that holds neither component `i` nor the
    other side: of sums, the other side is the result less this one."""
    factor = _factor(_atom(side, rule, i))
    terms = [(term, number) for term, number in combined.terms if term.power(factor)]
    if not terms or any(term.power(factor) != 1 for term, _ in terms):
        return None
    rest = ((Term(t.powers - {(factor, t.power(factor))}, t.exponent), n) for t, n in terms)
    other = RIGHT if side == LEFT else LEFT
    weight = Expr(frozenset(rest)).replaced(lambda atom: _less(atom, other, side, sums))
    names = {atom.name for atom in weight.atoms()}
    crosses = any(isinstance(n, tuple) and n[0] == other for n in names)
    hidden = hides(weight, (*rule.left, *rule.right))
    return None if crosses or hidden or (side, i) in names else weight


def _less(atom: Atom, old: str, new: str, sums: Iterable[int]) -> Expr:
    """An atom, or for a side of a sum the result less the other side."""
    k = next((k for k in sums if atom.name == (old, k)), None)
    if k is None:
        return of_factor(atom)
    return of_factor(Atom((OUT, k), atom.lanes)) - of_factor(Atom((new, k), atom.lanes))


def _mean_of(rule: Fold, n: int) -> Form:
    """The form of a mean of runs of `n` edges."""
    return Form("scaled", (n,), _atom(LEFT, rule, n) * _atom(OUT, rule, n).power(INVERSE))


def _deviations(rule: Fold, i: int, j: int, n: int) -> Form | None:
    """Squared deviations from mean `j` of `n` edges: those of two runs, and how far the runs' own
    means are from the joint one."""
    if not _starts_with(rule, i, 0.0) or len({rule.left[k].type.size for k in (i, j, n)}) > 1:
        return None
    total, count = _atom(OUT, rule, n), _atom(LEFT, rule, n)
    numbers = {LEFT: count, RIGHT: total - count}
    share = total.power(INVERSE)
    left, right = (numbers[side] * share * _atom(side, rule, j) for side in numbers)
    mean, want = left + right, ZERO
    for side, number in numbers.items():
        gap = _atom(side, rule, j) - mean
        want = want + _atom(side, rule, i) + number * gap * gap

    def settled(atom: Atom) -> Expr:
        if atom.name == (OUT, j):
            return at_lanes(mean, atom)
        return _less(atom, RIGHT, LEFT, (n,))

    found = _reader(rule, i, (n,)).read(rule.combine.outputs[i]).replaced(settled)
    return Form("deviations", (j,)) if found == want else None


def hides(e: Expr, states: Sequence[Node]) -> bool:
    """Whether states are read within values that the algebra does not look into."""
    opaque = [atom.name for atom in e.atoms() if isinstance(atom.name, Node)]
    return not set(states).isdisjoint(topological(opaque))


def relabelled(e: Expr, sides: Mapping[str, str]) -> Expr:
    """An expression of other sides."""
    names = {atom.name for atom in e.atoms()}
    pairs = (n for n in names if isinstance(n, tuple) and n[0] in sides)
    return renamed(e, {name: (sides[name[0]], name[1]) for name in pairs})


def _composes(weight: Expr) -> bool:
    """W(a, b) W(b, c) = W(a, c)."""
    steps = relabelled(weight, {LEFT: "a", OUT: "b"}) * relabelled(weight, {LEFT: "b", OUT: "c"})
    return steps == relabelled(weight, {LEFT: "a", OUT: "c"})


def at_lanes(e: Expr, atom: Atom) -> Expr:
    """An expression where an atom stood, at the elements that it read."""
    return e.moved(np.frombuffer(atom.lanes, np.int64))


# the summand


def summand(
    rule: Fold, i: int, elements: Mapping[int, Node], results: Mapping[int, Node],
    read: Sequence[Node], space: Space,
) -> Node | None:  # fmt: skip
    """What an edge adds to scaled component `i`: `combine` with nothing at its other side. None if
    something of that is left."""
    given = {rule.combine.outputs[k]: node for k, node in results.items()}
    given |= dict(zip(rule.holes, read, strict=True))
    for side, other in ((rule.left, rule.right), (rule.right, rule.left)):
        own = {side[k]: node for k, node in elements.items()}
        found = _one_sided(rule, i, own | given, other, space)
        if found is not None:
            return found
    return None


def _one_sided(
    rule: Fold, i: int, given: dict[Node, Node], other: Sequence[Node], space: Space
) -> Node | None:
    blank = [Input(f"other{k}", n.type.with_space(space))() for k, n in enumerate(other)]
    given = given | dict(zip(other, blank, strict=True)) | {other[i]: zeros_like(blank[i])}

    def without(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node.op.origin is Origin.NUMBER:
            return constant(node.op.value, node.type.with_space(space))
        return _without_zeros(node, inputs)

    (found,) = rewrite([rule.combine.outputs[i]], without, given)
    return found if set(topological([found])).isdisjoint(blank) else None


def _without_zeros(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """Sums and products with zero, of values that are finite."""
    zeros = [n.op.origin is Origin.NUMBER and n.op.value == 0 for n in inputs]
    if not any(zeros):
        return None
    if isinstance(node.op, Mul) or (isinstance(node.op, Div) and zeros[0]):
        return inputs[zeros.index(True)]
    if not node.op.signs:
        return None
    rest = [i for i, zero in enumerate(zeros) if not zero]
    if len(rest) != 1:
        return inputs[0]
    return inputs[rest[0]] if node.op.signs[rest[0]] > 0 else neg(inputs[rest[0]])


def _has_summand(rule: Fold, i: int) -> bool:
    others = {k: n for k, n in enumerate(rule.combine.outputs) if k != i}
    return (
        summand(
            rule,
            i,
            dict(enumerate(rule.left)),
            _stand_ins(others),
            rule.holes,
            rule.left[i].type.space,
        )
        is not None
    )


def _stand_ins(nodes: Mapping[int, Node]) -> dict[int, Node]:
    return {k: Input(f"out{k}", n.type)() for k, n in nodes.items()}
