"""From a trace to the normal form of `algebra`: what each op means there, as data."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from tiga.ops.base import Op
from tiga.ops.functions import Abs, Exp, Expm1, Log, Log1p, Pow, Sigmoid, Sqrt
from tiga.ops.message import Spread
from tiga.ops.pointwise import (
    Add,
    Compare,
    Div,
    Gt,
    Logical,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Sub,
    Where,
)
from tiga.ops.tensor_functions import Hypot, Logaddexp
from tiga.reducers.algebra import ONE, Applied, Atom, Expr, exp, in_place, log, of_factor, of_number
from tiga.trace.node import Node
from tiga.trace.origin import Origin

Comparison = Callable[..., Any]
"""Of two numbers: the meaning of a comparison op."""

INVERSE, HALF = Fraction(-1), Fraction(1, 2)

MEANINGS: dict[type[Op], Callable[..., Expr]] = {
    Add: Expr.__add__, Sub: Expr.__sub__, Mul: Expr.__mul__, Neg: Expr.__neg__,
    Div: lambda a, b: a * b.power(INVERSE), Exp: exp, Expm1: lambda a: exp(a) - ONE, Log: log,
    Log1p: lambda a: log(ONE + a), Sqrt: lambda a: a.power(HALF),
    Sigmoid: lambda a: (ONE + exp(-a)).power(INVERSE), Spread: lambda a: a,
    Logaddexp: lambda a, b: log(exp(a) + exp(b)), Hypot: lambda a, b: (a * a + b * b).power(HALF),
}  # fmt: skip
"""Ops whose laws the normal form knows: sums and products associate, commute and distribute, and
exponentials turn one into the other."""

HIDES_ONE = 37.0
"""Above it, 1 + exp(x) is exp(x) in every float type."""

MOST_CASES = 2
INFINITE = "infinite"


@dataclass
class Reader:
    """Reads nodes as expressions.

    `known` are the nodes that are atoms, with their names. Values are taken to be finite, which
    decides what guards against infinities; `decided` are further conditions taken as given,
    `signs` those of differences, and `at_least_one` names of atoms that are no smaller.
    """

    known: Mapping[Node, object]
    decided: Mapping[Node, bool] = field(default_factory=dict)
    signs: Mapping[Expr, int] = field(default_factory=dict)
    at_least_one: frozenset[object] = frozenset()
    done: dict[Node, Expr] = field(default_factory=dict)
    undecided: dict[Expr, None] = field(default_factory=dict)

    def read(self, node: Node) -> Expr:
        """The expression of a node."""
        if node not in self.done:
            self.done[node] = self._read(node)
        return self.done[node]

    def by_cases(self, node: Node) -> Expr:
        """The expression that holds whichever of the compared values is larger, if one does."""
        whole = self.read(node)
        open_ = list(self.undecided)
        if not 0 < len(open_) <= MOST_CASES:
            return whole
        found = {
            self._assuming(signs=dict(zip(open_, signs, strict=True))).read(node)
            for signs in itertools.product((-1, 1), repeat=len(open_))
        }
        return found.pop() if len(found) == 1 else whole

    def _assuming(
        self, decided: Mapping[Node, bool] | None = None, signs: Mapping[Expr, int] | None = None
    ) -> "Reader":
        decided, signs = {**self.decided, **(decided or {})}, {**self.signs, **(signs or {})}
        return replace(self, decided=decided, signs=signs, done={}, undecided=self.undecided)

    def _read(self, node: Node) -> Expr:
        if node in self.known:
            return of_factor(Atom(self.known[node], in_place(node.type.size)))
        if node.op.origin is Origin.NUMBER:
            return _constant(node)
        if _moves(node):
            (x,) = node.inputs
            return self.read(x).moved(node.op.lanes(x.type.shape).ravel())
        if isinstance(node.op, Where):
            return self._where(node)
        if node.op.converts and _widens(node):
            return self.read(node.inputs[0])
        if type(node.op) in MEANINGS and node.type.dtype.is_float:
            return MEANINGS[type(node.op)](*map(self.read, node.inputs))
        if not node.op.pointwise:
            return of_factor(Atom(node, in_place(node.type.size)))
        return self._pointwise(node)

    def _pointwise(self, node: Node) -> Expr:
        arguments = tuple(map(self.read, node.inputs))
        if isinstance(node.op, Abs):
            sign = self._sign(arguments[0])
            return arguments[0].scaled(sign) if sign else of_factor(Applied("abs", arguments))
        if isinstance(node.op, Maximum | Minimum):
            sign = self._sign(arguments[0] - arguments[1])
            largest = isinstance(node.op, Maximum)
            if sign:
                return arguments[0 if (sign > 0) == largest else 1]
            return of_factor(Applied(node.op.name, frozenset(arguments)))
        if isinstance(node.op, Pow) and arguments[1].number is not None:
            return arguments[0].power(Fraction(arguments[1].number))
        return of_factor(Applied(node.op, arguments))

    def _where(self, node: Node) -> Expr:
        condition, a, b = node.inputs
        truth = self.truth(condition)
        if truth is not None:
            return self.read(a if truth else b)
        taken = self._assuming({condition: True}).read(a)
        other = self._assuming({condition: False}).read(b)
        if taken == other or self._is_softplus(condition, taken, other):
            return other
        return of_factor(Applied("where", (self.read(condition), taken, other)))

    def _is_softplus(self, condition: Node, taken: Expr, other: Expr) -> bool:
        """log(1 + exp(x)), or x itself where that is the same number."""
        if not isinstance(condition.op, Gt) or other != log(ONE + exp(taken)):
            return False
        value, limit = map(self.read, condition.inputs)
        return value == taken and limit.number is not None and limit.number >= HIDES_ONE

    # what is known

    def _sign(self, difference: Expr) -> int:
        """The sign of a difference; 0 where it is not known."""
        number = difference.number
        if number is not None:
            return (number > 0) - (number < 0)
        if difference in self.signs:
            return self.signs[difference]
        if -difference in self.signs:
            return -self.signs[-difference]
        if -difference not in self.undecided:
            self.undecided[difference] = None
        return 0

    def truth(self, condition: Node) -> bool | None:
        """Whether a condition holds; None where that depends on the values."""
        if condition in self.decided:
            return self.decided[condition]
        op = condition.op
        if op.origin is Origin.NUMBER:
            return bool(op.value)
        if isinstance(op, Compare) and op.finds is None:
            return self._compared(op.reference, *condition.inputs)
        if isinstance(op, Logical):
            return self._combined(op, [self.truth(c) for c in condition.inputs])
        return self.truth(condition.inputs[0]) if _moves(condition) else None

    def _combined(self, op: Logical, parts: list[bool | None]) -> bool | None:
        """What truth values, of which some are not known, give whatever these are."""
        open_ = [(False, True) if part is None else (part,) for part in parts]
        found = {bool(op.reference(*map(np.asarray, case))) for case in itertools.product(*open_)}
        return found.pop() if len(found) == 1 else None

    def _compared(self, compare: Comparison, a: Node, b: Node) -> bool | None:
        one, other = _infinity(a), _infinity(b)
        if one or other:
            return bool(compare(one or 0.0, other or 0.0))
        x, y = self.read(a), self.read(b)
        number = (x - y).number
        if number is not None:
            return bool(compare(number, 0.0))
        low = self._bounded(compare, x, y)
        if low is not None:
            return bool(compare(*low))
        sign = self._sign(x - y)
        return bool(compare(float(sign), 0.0)) if sign else None

    def _bounded(self, compare: Comparison, x: Expr, y: Expr) -> tuple[float, float] | None:
        """Numbers that compare as a value of at least 1 does with a number that it is not below."""
        for value, limit, swap in ((x, y, False), (y, x, True)):
            number = limit.number
            names = {a.name for a in value.atoms()}
            is_atom = len(names) == 1 and value == of_factor(next(value.atoms()))
            if not is_atom or not names <= self.at_least_one or number is None:
                continue
            if number < 1 or (number == 1 and _is_settled(compare, swap)):
                return (number, 1.0) if swap else (1.0, number)
        return None


def _is_settled(compare: Comparison, swap: bool) -> bool:
    """Whether a comparison with 1, at the right or (`swap`) at the left, is the same for all values
    of at least 1."""
    above = compare(1.0, 2.0) if swap else compare(2.0, 1.0)
    return bool(above == compare(1.0, 1.0))


def _widens(cast: Node) -> bool:
    """Whether a conversion keeps every value: one that rounds is more than algebra."""
    source = cast.inputs[0].type.dtype
    return source.is_float and cast.op.to.is_float and cast.op.to.itemsize >= source.itemsize


def _moves(node: Node) -> bool:
    """Whether every element of a node is one of its operand."""
    return bool(node.op.moves and not node.op.fills and not node.op.concatenates)


def _infinity(node: Node) -> float | None:
    """An infinite constant's value."""
    while _moves(node):
        node = node.inputs[0]
    if node.op.origin is not Origin.NUMBER or not node.type.dtype.is_float:
        return None
    return node.op.value if math.isinf(node.op.value) else None


def _constant(node: Node) -> Expr:
    value = float(node.op.value)
    if math.isfinite(value):
        return of_number(value)
    return of_factor(Atom((INFINITE, repr(value)), in_place(node.type.size)))
