"""From a trace to the normal form of `algebra`: what each op means there, as data."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from tiga.ops.base import Op, Pointwise
from tiga.ops.feature import Movement
from tiga.ops.functions import Abs, Exp, Expm1, Log, Log1p, Pow, Sigmoid, Sqrt
from tiga.ops.message import Spread
from tiga.ops.pointwise import Add, Cast, Div, Gt, Maximum, Minimum, Mul, Neg, Sub, Where
from tiga.ops.tensor_functions import Hypot, Logaddexp
from tiga.reducers.algebra import ONE, Applied, Atom, Expr, exp, in_place, log, of_factor, of_number
from tiga.trace.node import Node
from tiga.trace.origin import Origin

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

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}

NEVER_BELOW = (("lt", "ge"), ("gt", "le"))
"""Comparisons with 1 that are settled for a value of at least 1, at the left and at the right."""

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
        if isinstance(node.op, Cast) and _widens(node):
            return self.read(node.inputs[0])
        if type(node.op) in MEANINGS and node.type.dtype.is_float:
            return MEANINGS[type(node.op)](*map(self.read, node.inputs))
        if not isinstance(node.op, Pointwise):
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
        name = condition.op.name
        if name == "constant":
            return bool(condition.op.value)
        if name in COMPARISONS:
            return self._compared(name, *condition.inputs)
        if name == "logical_not":
            truth = self.truth(condition.inputs[0])
            return None if truth is None else not truth
        if name not in ("logical_and", "logical_or"):
            return self.truth(condition.inputs[0]) if _moves(condition) else None
        parts = [self.truth(c) for c in condition.inputs]
        settles = name == "logical_or"
        if settles in parts:
            return settles
        return None if None in parts else not settles

    def _compared(self, name: str, a: Node, b: Node) -> bool | None:
        compare = COMPARISONS[name]
        one, other = _infinity(a), _infinity(b)
        if one or other:
            return compare(one or 0.0, other or 0.0)
        x, y = self.read(a), self.read(b)
        number = (x - y).number
        if number is not None:
            return compare(number, 0.0)
        low = self._bounded(name, x, y)
        if low is not None:
            return compare(*low)
        sign = self._sign(x - y)
        return compare(float(sign), 0.0) if sign else None

    def _bounded(self, name: str, x: Expr, y: Expr) -> tuple[float, float] | None:
        """Numbers that compare as a value of at least 1 does with a number that it is not below."""
        for value, limit, swap in ((x, y, False), (y, x, True)):
            number = limit.number
            names = {a.name for a in value.atoms()}
            is_atom = len(names) == 1 and value == of_factor(next(value.atoms()))
            if not is_atom or not names <= self.at_least_one or number is None:
                continue
            if number < 1 or (number == 1 and name in NEVER_BELOW[swap]):
                return (number, 1.0) if swap else (1.0, number)
        return None


def _widens(cast: Node) -> bool:
    """Whether a conversion keeps every value: one that rounds is more than algebra."""
    source = cast.inputs[0].type.dtype
    return source.is_float and cast.op.to.is_float and cast.op.to.itemsize >= source.itemsize


def _moves(node: Node) -> bool:
    """Whether every element of a node is one of its operand."""
    return isinstance(node.op, Movement) and not node.op.fills


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
