"""Extrema that a result of a reducer does not depend on: they only shift exponentials, and cancel.

No derivative need go through such a maximum, as in any softmax that people write by hand.
"""

from collections.abc import Callable, Iterable, Sequence

from tiga.reducers.algebra import ONE, Atom, Expr, exp, of_factor
from tiga.reducers.normal import Reader
from tiga.reducers.recognise import BEYOND, LEFT, OUT, Forms, at_lanes, hides, relabelled
from tiga.trace.node import Node


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
        if hides(whole, states):
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
        change = relabelled(there, {LEFT: OUT}) if here != there else ONE
        return of_factor(atom) * at_lanes(change, atom)

    return replace
