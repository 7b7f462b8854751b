"""Python numbers that stay variable in a trace."""

from collections.abc import Callable
from typing import Any

import torch

from tiga.errors import InvalidValue
from tiga.frontends.torch.capture.where import user_line
from tiga.ops import pointwise as p
from tiga.ops.functions import abs_, pow_
from tiga.ops.leaf import constant
from tiga.ops.pointwise import cast
from tiga.trace.node import Node
from tiga.types import GLOBAL, Type, float64, int64

Specialise = Callable[["Operand"], None]


def number_type(value: float | int) -> Type:
    """The type of the operand that stands for a Python number."""
    return Type(float64 if isinstance(value, float) else int64, (), GLOBAL)


def is_plain_number(value: Any) -> bool:
    """Whether a value is a Python number that can be an operand."""
    kind = type(value)
    return kind is float or (kind is int and -(2**63) <= value < 2**63)


def kept_value(what: str) -> InvalidValue:
    """The error for what outlived the run of `edge` or `node` that it belongs to."""
    return InvalidValue(
        f"{user_line()}: {what} of `edge` or `node` was kept and used after they returned. "
        f"Return it instead: what a call gives is a tensor, which any kernel can read as a field."
    )


class Operand:
    """A Python number read by `edge`: arithmetic with it is recorded, so that another value needs
    no other program. Used in any other way, it gives its value, and `specialise` is told, so that
    the value enters the program's key."""

    def __init__(
        self, value: float | int, node: Node, roots: frozenset[Any], specialise: Specialise
    ) -> None:
        self.value = value
        self.trace = node
        self.roots = roots
        self.specialise = specialise

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Code that asks `isinstance(x, float)` is told the truth about the number."""
        return type(self.value)

    def plain(self) -> float | int:
        """The value itself, from now on part of the key."""
        self.specialise(self)
        return self.value

    def _derive(self, value: Any, op: Any, *nodes: Node, roots: frozenset[Any]) -> Any:
        if not is_plain_number(value):
            return value
        wanted = number_type(value)
        node = op(*(cast(n, wanted.dtype) for n in nodes))
        return operand(value, node, roots, self.specialise)

    def __neg__(self) -> Any:
        return self._derive(-self.value, p.neg, self.trace, roots=self.roots)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._derive(abs(self.value), abs_, self.trace, roots=self.roots)

    def __float__(self) -> float:
        return float(self.plain())

    def __int__(self) -> int:
        return int(self.plain())

    def __index__(self) -> int:
        value = self.plain()
        return value.__index__()  # type: ignore[union-attr]

    def __bool__(self) -> bool:
        return bool(self.plain())

    def __hash__(self) -> int:
        return hash(self.plain())

    def __str__(self) -> str:
        return str(self.plain())

    def __repr__(self) -> str:
        return repr(self.plain())

    def __format__(self, spec: str) -> str:
        return format(self.plain(), spec)

    def is_integer(self) -> bool:
        """As `float.is_integer`."""
        return float(self.plain()).is_integer()


# torch's argument parser lets symbolic numbers pass to where calls are recorded.
class FloatOperand(Operand, torch.SymFloat):
    """A float that stays variable."""


class IntOperand(Operand, torch.SymInt):
    """An integer that stays variable."""


def operand(
    value: float | int, node: Node, roots: frozenset[Any], specialise: Specialise
) -> Operand:
    """The operand for a number and the node that computes it."""
    kind = FloatOperand if isinstance(value, float) else IntOperand
    return kind(value, node, roots, specialise)


def _binary(name: str, op: Any, when: Callable[[Any, Any], bool]) -> None:
    """Define an arithmetic operator: recorded where `when` allows, else on plain values."""

    def compute(left: Any, right: Any) -> Any:
        return getattr(_PLAIN, name)(left, right)

    def apply(self: Operand, other: Any, swapped: bool) -> Any:
        other_value = other.value if isinstance(other, Operand) else other
        if type(other_value) not in (int, float):
            return NotImplemented
        pair = (other_value, self.value) if swapped else (self.value, other_value)
        if not is_plain_number(other_value) or not when(*pair):
            other = other.plain() if isinstance(other, Operand) else other
            plain = self.plain()
            return compute(other, plain) if swapped else compute(plain, other)
        node, roots = self.trace, self.roots
        if isinstance(other, Operand):
            if other.specialise != self.specialise:
                raise kept_value(f"the number {other.value} or {self.value}")
            other_node, roots = other.trace, roots | other.roots
        else:
            other_node = constant(other_value, number_type(other_value))
        nodes = (other_node, node) if swapped else (node, other_node)
        return self._derive(compute(*pair), op, *nodes, roots=roots)

    setattr(Operand, f"__{name}__", lambda self, other: apply(self, other, False))
    setattr(Operand, f"__r{name}__", lambda self, other: apply(self, other, True))


class _PLAIN:
    """Operators on plain numbers."""

    add = staticmethod(lambda a, b: a + b)
    sub = staticmethod(lambda a, b: a - b)
    mul = staticmethod(lambda a, b: a * b)
    truediv = staticmethod(lambda a, b: a / b)
    pow = staticmethod(lambda a, b: a**b)
    floordiv = staticmethod(lambda a, b: a // b)
    mod = staticmethod(lambda a, b: a % b)


def _always(a: Any, b: Any) -> bool:
    return True


def _never(a: Any, b: Any) -> bool:
    return False


def _divides(a: Any, b: Any) -> bool:
    # A division by zero raises in Python; the value decides, so it belongs to the key.
    return b != 0


def _real_power(a: Any, b: Any) -> bool:
    return isinstance(a, float) and isinstance(b, (int, float)) and a > 0


_binary("add", p.add, _always)
_binary("sub", p.sub, _always)
_binary("mul", p.mul, _always)
_binary("truediv", p.div, _divides)
_binary("pow", pow_, _real_power)
_binary("floordiv", None, _never)
_binary("mod", None, _never)


def _comparison(name: str) -> None:
    def compare(self: Operand, other: Any) -> Any:
        other = other.plain() if isinstance(other, Operand) else other
        if type(other) not in (int, float, bool):
            return NotImplemented
        return getattr(self.plain(), name)(other)

    setattr(Operand, name, compare)


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    _comparison(_name)
