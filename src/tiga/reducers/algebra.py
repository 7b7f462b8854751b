"""Expressions in a normal form, in which equal algebra looks equal.

An expression is a sum of terms. A term is a number times powers of factors times the exponential
of an expression. A factor is an atom (an element-wise value that the algebra does not look into),
or an expression whose power has no expansion. Sums, products and exponentials expand; logarithms
of exponentials cancel.

`lanes` say which element of an atom each element of an expression reads, so that values that are
broadcast along different axes differ.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Union

import numpy as np

Lanes = bytes
"""Positions as int64, one per element of the expression."""


def in_place(size: int) -> Lanes:
    """Each element reads its own."""
    return np.arange(size).tobytes()


@dataclass(frozen=True)
class Atom:
    """An opaque value: anything hashable that names it, and the lanes of it that are read."""

    name: object
    lanes: Lanes


@dataclass(frozen=True)
class Applied:
    """A function of expressions, element by element; `symmetric` if their order does not matter."""

    function: object
    arguments: tuple["Expr", ...] | frozenset["Expr"]


Factor = Union[Atom, Applied, "Expr"]


@dataclass(frozen=True)
class Term:
    """Powers of factors times an exponential, without its number."""

    powers: frozenset[tuple[Factor, Fraction]]
    exponent: "Expr | None" = None

    def power(self, factor: Factor) -> Fraction:
        """The power of a factor, 0 if it is none."""
        return dict(self.powers).get(factor, Fraction(0))


@dataclass(frozen=True)
class Expr:
    """A sum of terms, each with its number."""

    terms: frozenset[tuple[Term, float]]

    def __add__(self, other: "Expr") -> "Expr":
        return _collected((*self.terms, *other.terms))

    def __mul__(self, other: "Expr") -> "Expr":
        products = (_product(a, b) for a in self.terms for b in other.terms)
        return reduce(Expr.__add__, products, ZERO)

    def __neg__(self) -> "Expr":
        return self.scaled(-1.0)

    def __sub__(self, other: "Expr") -> "Expr":
        return self + -other

    def scaled(self, number: float) -> "Expr":
        """The expression times a number."""
        return _collected((term, number * factor) for term, factor in self.terms)

    @property
    def number(self) -> float | None:
        """The value of a constant, None for other expressions."""
        if not self.terms:
            return 0.0
        ((term, number), *others) = self.terms
        return number if not others and term == UNIT else None

    def power(self, exponent: Fraction) -> "Expr":
        """The expression to a power. Roots of products stay whole: sqrt(x * x) is not x."""
        if len(self.terms) == 1 and exponent.denominator == 1:
            ((term, number),) = self.terms
            powers = frozenset((f, p * exponent) for f, p in term.powers)
            inside = term.exponent.scaled(float(exponent)) if term.exponent else None
            return Expr(frozenset({(Term(powers, inside), number ** int(exponent))}))
        if exponent.denominator == 1 and exponent > 0:
            return reduce(Expr.__mul__, [self] * int(exponent))
        return of_factor(self, exponent)

    def atoms(self) -> Iterator[Atom]:
        """Every atom in it, at any depth."""
        for term, _ in self.terms:
            for factor, _ in term.powers:
                yield from _atoms(factor)
            if term.exponent is not None:
                yield from term.exponent.atoms()

    def replaced(self, rule: Callable[[Atom], "Expr"]) -> "Expr":
        """The expression with another one for each atom."""
        return reduce(Expr.__add__, (_replaced(*term, rule) for term in self.terms), ZERO)

    def moved(self, lanes: np.ndarray) -> "Expr":
        """The expression whose elements are those of this one at `lanes`."""

        def rule(atom: Atom) -> Expr:
            old = np.frombuffer(atom.lanes, np.int64)
            return of_factor(Atom(atom.name, old[lanes].tobytes()))

        return self.replaced(rule)


class TooLong(Exception):
    """An expression of more than `LONGEST` terms."""


LONGEST = 64


def _collected(terms: Iterable[tuple[Term, float]]) -> Expr:
    numbers: dict[Term, float] = defaultdict(float)
    for term, number in terms:
        numbers[term] += number
    if len(numbers) > LONGEST:
        raise TooLong
    return Expr(frozenset((term, n) for term, n in numbers.items() if n))


UNIT = Term(frozenset())
ZERO = Expr(frozenset())
ONE = Expr(frozenset({(UNIT, 1.0)}))


def of_number(number: float) -> Expr:
    """A constant."""
    return ONE.scaled(number)


def of_factor(factor: Factor, power: Fraction = Fraction(1)) -> Expr:
    """One factor, to a power."""
    return Expr(frozenset({(Term(frozenset({(factor, power)})), 1.0)}))


def _product(a: tuple[Term, float], b: tuple[Term, float]) -> Expr:
    powers: dict[Factor, Fraction] = defaultdict(Fraction)
    for factor, power in (*a[0].powers, *b[0].powers):
        powers[factor] += power
    # A whole power of a sum is a sum again.
    whole = [f for f, p in powers.items() if isinstance(f, Expr) and p > 0 and p.denominator == 1]
    kept = frozenset((f, p) for f, p in powers.items() if p and f not in whole)
    inside = [e for e in (a[0].exponent, b[0].exponent) if e is not None]
    exponent = reduce(Expr.__add__, inside) if inside else ZERO
    term = Term(kept, exponent if exponent.terms else None)
    result = Expr(frozenset({(term, a[1] * b[1])}))
    for factor in whole:
        assert isinstance(factor, Expr)
        result = result * factor.power(powers[factor])
    return result


LOG = "log"


def exp(e: Expr) -> Expr:
    """The exponential: logarithms in it become powers."""
    result, rest = ONE, []
    for term, number in e.terms:
        inside = _is_log(term)
        if inside is not None and number == int(number):
            result = result * inside.power(Fraction(int(number)))
        else:
            rest.append((term, number))
    left = Expr(frozenset(rest))
    return result * Expr(frozenset({(Term(frozenset(), left if left.terms else None), 1.0)}))


def _is_log(term: Term) -> Expr | None:
    """What a term is the logarithm of, if it is one."""
    if term.exponent is not None or len(term.powers) != 1:
        return None
    ((factor, power),) = term.powers
    logarithm = isinstance(factor, Applied) and factor.function == LOG and power == 1
    return next(iter(factor.arguments)) if logarithm else None  # type: ignore[union-attr]


def log(e: Expr) -> Expr:
    """The logarithm: an exponential factor comes out of it."""
    if len(e.terms) == 1:
        ((term, number),) = e.terms
        if term.exponent is not None:
            rest = Expr(frozenset({(Term(term.powers), number)}))
            return term.exponent + log(rest)
    if e == ONE:
        return ZERO
    return of_factor(Applied(LOG, (e,)))


def _atoms(factor: Factor) -> Iterator[Atom]:
    if isinstance(factor, Atom):
        yield factor
    elif isinstance(factor, Expr):
        yield from factor.atoms()
    else:
        for argument in factor.arguments:
            yield from argument.atoms()


def _replaced(term: Term, number: float, rule: Callable[[Atom], Expr]) -> Expr:
    result = of_number(number)
    for factor, power in term.powers:
        result = result * _replaced_factor(factor, rule).power(power)
    return result if term.exponent is None else result * exp(term.exponent.replaced(rule))


def _replaced_factor(factor: Factor, rule: Callable[[Atom], Expr]) -> Expr:
    if isinstance(factor, Atom):
        return rule(factor)
    if isinstance(factor, Expr):
        return factor.replaced(rule)
    arguments = [argument.replaced(rule) for argument in factor.arguments]
    if factor.function == LOG:
        return log(arguments[0])
    return of_factor(Applied(factor.function, type(factor.arguments)(arguments)))


def renamed(e: Expr, names: Mapping[object, object]) -> Expr:
    """The expression with atoms under other names."""
    return e.replaced(lambda atom: of_factor(Atom(names.get(atom.name, atom.name), atom.lanes)))
