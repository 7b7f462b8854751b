"""What the algebra of `combine` says about a fold: components that need no order of edges.

With x_1 ... x_n the states of a row's edges, a component is

- a reduction by a monoid, if combining is that monoid's operation;
- the logarithm of a sum of exponentials, if the exponential of combining is a sum;
- a scaled sum, sum of x_i W(state_i, result), if combining is `left W(left, out) + right W(right,
  out)` with W(a, b) W(b, c) = W(a, c): then what was scaled to one result is scaled to the next.
  W is exp(m - out_m) for the shifted sums of an online softmax, n / out_n for a running mean.

Nothing here looks at names: only at what ops are applied to.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tiga.ops.functions import exp as exp_op
from tiga.ops.leaf import Input, constant, zeros_like
from tiga.ops.monoid import MONOIDS
from tiga.ops.pointwise import neg
from tiga.reducers.algebra import (
    ONE,
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
from tiga.reducers.normal import Reader
from tiga.trace.node import Node, rewrite, topological
from tiga.types import Space

LEFT, RIGHT, OUT = "left", "right", "out"
EXTREMA = {"maximum": "max", "minimum": "min"}
BEYOND = (TooLong, RecursionError)
"""What says that an expression is too long or too deep to be read."""


@dataclass(frozen=True)
class Form:
    """How one component is computed: a kind of `MONOIDS`, `logsumexp`, or `scaled` by W.

    `weight` is W on the atoms (LEFT, k) and (OUT, k); `by` are the components k of OUT.
    """

    kind: str
    by: tuple[int, ...] = ()
    weight: Expr = ONE

    def __str__(self) -> str:
        if self.kind != "scaled":
            return self.kind
        return f"sum scaled by component {', '.join(map(str, self.by))}"


Forms = Mapping[int, Form]


def recognise(rule: Fold) -> dict[int, Form]:
    """The forms of components, by their number; those without one must be folded in order."""
    found = {i: _form(rule, i) for i in range(rule.width)}
    forms = {i: form for i, form in found.items() if form is not None}
    while True:
        scanned = set(rule.closure([i for i in range(rule.width) if i not in forms]))
        known = {i for i, form in forms.items() if not form.by} | scanned
        growing = True
        while growing:
            more = {i for i, f in forms.items() if i not in known and known.issuperset(f.by)}
            known |= more
            growing = bool(more)
        left = {i: form for i, form in forms.items() if i in known}
        if left == forms:
            return forms
        forms = left


def _form(rule: Fold, i: int) -> Form | None:
    try:
        return _plain(rule, i) or _scaled(rule, i)
    except BEYOND:
        return None


def _atom(side: str, rule: Fold, k: int) -> Expr:
    return of_factor(Atom((side, k), in_place(rule.left[k].type.size)))


def _reader(rule: Fold, i: int) -> Reader:
    """Reads what component `i` becomes, with the other components' results as atoms."""
    outputs = enumerate(rule.combine.outputs)
    known: dict[Node, object] = {node: (OUT, k) for k, node in outputs if k != i}
    known.pop(rule.combine.outputs[i], None)
    for side, nodes in ((LEFT, rule.left), (RIGHT, rule.right)):
        known.update({node: (side, k) for k, node in enumerate(nodes)})
    return Reader(known)


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
    starts = dtype.is_float and rule.identity[i].op.name == "constant"
    sums = starts and _exponential(rule, i) == exp(left) + exp(right)
    return Form("logsumexp") if sums else None


def _exponential(rule: Fold, i: int) -> Expr:
    """exp of what component `i` becomes, whichever of the compared values is larger."""
    return _reader(rule, i).by_cases(exp_op(rule.combine.outputs[i]))


def _starts_with(rule: Fold, i: int, number: float) -> bool:
    start = rule.identity[i]
    return start.op.name == "constant" and bool(start.op.value == number)


def _scaled(rule: Fold, i: int) -> Form | None:
    if not _starts_with(rule, i, 0.0) or not rule.left[i].type.dtype.is_float:
        return None
    combined = _reader(rule, i).read(rule.combine.outputs[i])
    weights = {side: _weight(combined, side, rule, i) for side in (LEFT, RIGHT)}
    left, right = weights[LEFT], weights[RIGHT]
    if left is None or right is None or len(combined.terms) != 2:
        return None
    if _relabelled(left, {LEFT: RIGHT}) != right or not _composes(left):
        return None
    names = {atom.name for atom in left.atoms()}
    by = sorted(n[1] for n in names if isinstance(n, tuple) and n[0] == OUT)
    form = Form("scaled", tuple(by), left)
    return form if by and _has_summand(rule, i) else None


def _weight(combined: Expr, side: str, rule: Fold, i: int) -> Expr | None:
    """W, if one term is `side` W and W holds neither component `i` nor the other side."""
    own = _atom(side, rule, i)
    ((factor, _),) = next(iter(own.terms))[0].powers
    terms = [term for term, number in combined.terms if term.power(factor) == 1 and number == 1]
    if len(terms) != 1:
        return None
    rest = Term(terms[0].powers - {(factor, terms[0].power(factor))}, terms[0].exponent)
    weight = Expr(frozenset({(rest, 1.0)}))
    foreign = {(s, i) for s in (LEFT, RIGHT)}
    other = RIGHT if side == LEFT else LEFT
    names = {atom.name for atom in weight.atoms()}
    crosses = any(isinstance(n, tuple) and n[0] == other for n in names)
    hidden = _hides(weight, (*rule.left, *rule.right))
    return None if crosses or hidden or names & foreign else weight


def _hides(e: Expr, states: Sequence[Node]) -> bool:
    """Whether states are read within values that the algebra does not look into."""
    opaque = [atom.name for atom in e.atoms() if isinstance(atom.name, Node)]
    return not set(states).isdisjoint(topological(opaque))


def _relabelled(e: Expr, sides: Mapping[str, str]) -> Expr:
    names = {atom.name for atom in e.atoms()}
    pairs = (n for n in names if isinstance(n, tuple) and n[0] in sides)
    return renamed(e, {name: (sides[name[0]], name[1]) for name in pairs})


def _composes(weight: Expr) -> bool:
    """W(a, b) W(b, c) = W(a, c)."""
    steps = _relabelled(weight, {LEFT: "a", OUT: "b"}) * _relabelled(weight, {LEFT: "b", OUT: "c"})
    return steps == _relabelled(weight, {LEFT: "a", OUT: "c"})


# the summand


def summand(
    rule: Fold, i: int, elements: Mapping[int, Node], results: Mapping[int, Node],
    read: Sequence[Node], space: Space,
) -> Node | None:  # fmt: skip
    """What an edge adds to scaled component `i`: `combine` with nothing at its right. None if
    something of the right state is left."""
    output = rule.combine.outputs[i]
    given = {rule.left[k]: node for k, node in elements.items()}
    given |= {rule.combine.outputs[k]: node for k, node in results.items()}
    given |= dict(zip(rule.holes, read, strict=True))
    right = [Input(f"right{k}", n.type.with_space(space))() for k, n in enumerate(rule.right)]
    given |= dict(zip(rule.right, right, strict=True))
    given[rule.right[i]] = zeros_like(right[i])

    def rule_(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node.op.name == "constant":
            return constant(node.op.value, node.type.with_space(space))
        return _without_zeros(node, inputs)

    (found,) = rewrite([output], rule_, given)
    return found if set(topological([found])).isdisjoint(right) else None


def _without_zeros(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """Sums and products with zero, of values that are finite."""
    zeros = [n.op.name == "constant" and n.op.value == 0 for n in inputs]
    if not any(zeros):
        return None
    if node.op.name == "mul" or (node.op.name == "div" and zeros[0]):
        return inputs[zeros.index(True)]
    if node.op.name == "add":
        return inputs[1 if zeros[0] else 0]
    if node.op.name == "sub":
        return inputs[0] if zeros[1] else neg(inputs[1])
    return inputs[0] if node.op.name == "neg" else None


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


# what a result does not depend on


def shifts_without_effect(
    forms: Forms, result: Node, states: Sequence[Node], ones: Iterable[int]
) -> frozenset[int]:
    """The extrema that cancel in a result: scaled sums with another shift give the same.

    `result` is made from `states`; `ones` are the components whose lifted value is 1, so that
    their sum, shifted by a maximum, is at least 1 where any edge counts.
    """
    known = {node: (OUT, k) for k, node in enumerate(states)}
    extrema = [i for i, form in forms.items() if form.kind in ("max", "min")]
    extrema = [m for m in extrema if not _scales_indirectly(forms, m)]
    least = frozenset((OUT, i) for i in ones if _peaks(forms, i))
    try:
        whole = Reader(known, at_least_one=least).read(result)
        if _hides(whole, states):
            return frozenset()
        return frozenset(m for m in extrema if whole == whole.replaced(_shift(forms, m)))
    except BEYOND:
        return frozenset()


def _scales_indirectly(forms: Forms, m: int) -> bool:
    """Whether a sum is scaled by another that `m` scales."""
    scaled = {i for i, form in forms.items() if m in form.by}
    return any(not scaled.isdisjoint(form.by) for form in forms.values())


def _peaks(forms: Forms, i: int) -> bool:
    """Whether the largest weight of a scaled sum is 1: it is exp(m - max of m)."""
    form = forms.get(i)
    if form is None or form.kind != "scaled" or len(form.by) != 1:
        return False
    (k,) = form.by
    names = {atom.name: atom for atom in form.weight.atoms()}
    if forms.get(k, form).kind != "max" or set(names) != {(LEFT, k), (OUT, k)}:
        return False
    difference = of_factor(names[LEFT, k]) - of_factor(names[OUT, k])
    return form.weight == exp(difference)


def _shift(forms: Forms, m: int) -> Callable[[Atom], Expr]:
    """Another value of extremum `m`, and what that makes of the sums that it scales."""

    def moved(atom: Atom) -> Expr:
        here = of_factor(atom)
        return here + of_factor(Atom("shift", atom.lanes)) if atom.name == (OUT, m) else here

    def replace(atom: Atom) -> Expr:
        if atom.name == (OUT, m):
            return moved(atom)
        form = next((f for i, f in forms.items() if atom.name == (OUT, i)), None)
        if form is None or form.kind != "scaled":
            return of_factor(atom)
        here, there = form.weight, form.weight.replaced(moved)
        # W(out, out') with out as left: the sum at the old shift, brought to the new one.
        change = _relabelled(there, {LEFT: OUT}) if here != there else ONE
        return of_factor(atom) * _at_lanes(change, atom)

    return replace


def _at_lanes(e: Expr, atom: Atom) -> Expr:
    return e.moved(np.frombuffer(atom.lanes, np.int64))
