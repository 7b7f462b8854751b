"""The operators of `Tensor`, from the functions."""

from collections.abc import Callable
from typing import Any

from tiga.errors import InvalidType
from tiga.frontends.tensor.arguments import OWN
from tiga.frontends.tensor.build import fitted, joined
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions import elementwise as e
from tiga.frontends.tensor.functions import linear, reductions
from tiga.frontends.tensor.functions import selection as s
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.scalars import SCALARS, WEAK, number
from tiga.ops import pointwise as p
from tiga.ops.base import Op

Binary = Callable[[Any, Any], Any]


def _is_operand(value: Any) -> bool:
    known = value.__class__ in OWN or isinstance(value, SCALARS)
    return known or hasattr(value, "__array__")


def _operator(function: Binary) -> Binary:
    def operate(self: Tensor, other: Any) -> Any:
        return function(self, other) if _is_operand(other) else NotImplemented

    return operate


def _comparison(function: Binary) -> Binary:
    def operate(self: Tensor, other: Any) -> Any:
        if _is_operand(other):
            return function(self, other)
        if isinstance(other, (list, tuple)):  # Python would say that they are not one object
            raise InvalidType(
                f"{function.__name__} expected a tensor, an array or a number, got {other!r} "
                f"({here()}): write tg.tensor(...) around it."
            )
        return NotImplemented

    return operate


def _reflected(function: Binary) -> Binary:
    def operate(self: Tensor, other: Any) -> Any:
        return function(other, self) if _is_operand(other) else NotImplemented

    return operate


def _short(op: Op, kinds: str, function: Binary) -> Binary:
    """An operator that is one op on operands of these kinds: in one step where they need no
    preparation. Every call costs, and most expressions are made of these."""

    def operate(self: Tensor, other: Any) -> Any:
        x = self._node
        kind = other.__class__
        if kind is Tensor:
            y = other._node
            if y.type is not x.type:
                x, y = fitted(x, y)
            if x.type.dtype.kind in kinds:
                return joined(op, x, y, self._grad or other._grad)
        elif x.type.dtype.kind == WEAK.get(kind) and x.type.dtype.kind in kinds:
            return joined(op, x, number(other, x.type), self._grad)
        return function(self, other) if _is_operand(other) else NotImplemented

    return operate


_BINARY: dict[str, Binary] = {
    "add": e.add, "sub": e.subtract, "mul": e.multiply, "truediv": s.divide,
    "floordiv": e.floor_divide, "mod": e.remainder, "pow": s.pow, "matmul": linear.matmul,
    "and": e.bitwise_and, "or": e.bitwise_or, "xor": e.bitwise_xor,
    "lshift": e.bitwise_left_shift, "rshift": e.bitwise_right_shift,
}  # fmt: skip
_COMPARISONS: dict[str, Binary] = {
    "eq": e.equal, "ne": e.not_equal, "lt": e.less, "le": e.less_equal, "gt": e.greater,
    "ge": e.greater_equal,
}  # fmt: skip


def _contains(self: Tensor, value: Any) -> bool:
    """Whether an element is equal to `value`, as numpy and torch have `in`."""
    found = self == value
    return found if isinstance(found, bool) else bool(reductions.any(found))


OPERATORS: dict[str, Binary] = {
    **{name: _operator(function) for name, function in _BINARY.items()},
    **{name: _comparison(function) for name, function in _COMPARISONS.items()},
    **{f"r{name}": _reflected(function) for name, function in _BINARY.items()},
    "add": _short(p.add, e.NUMERIC, e.add),
    "sub": _short(p.sub, e.NUMERIC, e.subtract),
    "mul": _short(p.mul, e.NUMERIC, e.multiply),
    "truediv": _short(p.div, "fc", s.divide),
    "contains": _contains,
}
"""The binary operators by the names of their methods, without underscores."""
