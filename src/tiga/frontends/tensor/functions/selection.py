"""Functions element by element whose result type or rule depends on the operands."""

from typing import Any

from tiga.errors import InvalidValue
from tiga.frontends.tensor.arguments import serves_torch
from tiga.frontends.tensor.build import (
    apply,
    as_tensor,
    binary,
    convert,
    operands,
    result,
    same,
    takes_tensor,
    truth,
    unary,
    view,
)
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.dtypes import as_float, check_dtype, promote, result_dtype
from tiga.frontends.tensor.functions.elementwise import (
    NUMERIC,
    REAL,
    Function,
    atan2,
    composed,
    documented,
    floor_divide,
    magnitude,
    sqrt,
    square,
    trunc,
)
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.scalars import number
from tiga.ops import functions as f
from tiga.ops import pointwise as p
from tiga.ops import tensor_complex as c
from tiga.ops import tensor_functions as t
from tiga.ops.base import Op
from tiga.ops.leaf import ones_like as ones
from tiga.ops.leaf import stop_gradient
from tiga.ops.leaf import zeros_like as zeros
from tiga.trace.node import Node
from tiga.types import bool_


@serves_torch
def abs(x: Any, /) -> Any:
    """|x|; the modulus, a real number, of a complex one. The derivative at 0 is 0.

    Example:
        >>> import tiga as tg
        >>> tg.abs(tg.tensor([-1, 2])).tolist()
        [1, 2]
    """
    tensor = as_tensor(x)
    if tensor.dtype.is_complex:
        return result(magnitude(tensor._node), tensor)
    return unary(f.abs_, tensor, REAL)


@serves_torch
def sign(x: Any, /) -> Any:
    """-1, 0 or 1 with the sign of x; x / |x| of a complex number.

    Example:
        >>> import tiga as tg
        >>> tg.sign(tg.tensor([-3, 0, 5])).tolist()
        [-1, 0, 1]
    """
    tensor = as_tensor(x)
    if not tensor.dtype.is_complex:
        return unary(f.sign, tensor, REAL)
    node = tensor._node
    size = convert(magnitude(node), node.type.dtype)
    none = p.eq(node, zeros(node))
    return result(p.where(none, zeros(node), p.div(node, p.where(none, ones(node), size))), tensor)


@serves_torch
def divide(x1: Any, x2: Any, /, *, rounding_mode: str | None = None) -> Any:
    """x1 / x2; integers give floats. `rounding_mode="floor"` or `"trunc"` rounds the quotient.

    Example:
        >>> import tiga as tg
        >>> tg.divide(tg.tensor([1, 3]), 2).tolist()
        [0.5, 1.5]
    """
    if x1.__class__ is Tensor and rounding_mode is None and x1.dtype.kind in "fc":
        return binary(p.div, x1, x2)
    if rounding_mode == "floor":
        return floor_divide(x1, x2)
    nodes, tensors = operands(x1, x2)
    dtype = as_float(nodes[0].type.dtype)
    quotient = result(apply(p.div, *(convert(n, dtype) for n in nodes)), *tensors)
    return trunc(quotient) if rounding_mode == "trunc" else quotient


@serves_torch
def pow(x1: Any, x2: Any, /) -> Any:
    """x1 to the power x2.

    Example:
        >>> import tiga as tg
        >>> tg.pow(tg.tensor([2, 3]), 2).tolist()
        [4, 9]
    """
    if isinstance(x2, (int, float)) and not isinstance(x2, bool) and isinstance(x1, Tensor):
        simple = _simple_power(x1, x2)
        if simple is not None:
            return simple
    return binary(f.pow_, x1, x2, NUMERIC)


def _simple_power(x: Tensor, exponent: float) -> Tensor | None:
    """Powers whose result needs no logarithm.

    Raises:
        InvalidValue: a negative power of integers, whose result would be 0 nearly everywhere.
    """
    if exponent < 0 and isinstance(exponent, int) and x.dtype.kind in "iu":
        raise InvalidValue(
            f"pow expected an exponent of at least 0 for {x.dtype}, got {exponent} ({here()}); "
            "cast with .astype(...)."
        )
    if result_dtype(x.dtype, exponent) != x.dtype:
        return None
    if exponent == 2:
        return square(x)
    if exponent == 0.5:
        return sqrt(x)
    return same(x) if exponent == 1 and isinstance(exponent, int) else None


def _logical(name: str, op: Op, text: str) -> Function:
    def call(x1: Any, x2: Any, /) -> Any:
        nodes, tensors = operands(x1, x2)
        return result(apply(op, *map(truth, nodes)), *tensors)

    return serves_torch(documented(call, name, text))


logical_and = _logical(
    "logical_and",
    p.logical_and,
    "Whether both operands are true (not 0). [0, 1, 2], True -> [False, True, True]",
)
logical_or = _logical(
    "logical_or", p.logical_or, "Whether an operand is true (not 0). [0, 1], False -> [False, True]"
)
logical_xor = _logical(
    "logical_xor",
    t.bitwise_xor,
    "Whether just one operand is true (not 0). [0, 1], True -> [True, False]",
)
logical_not = composed(
    "logical_not",
    "Whether x is false (0). [0, 2] -> [True, False]",
    lambda x: p.logical_not(truth(x)),
    floats=False,
)


@serves_torch
def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """x1 where the condition holds, else x2.

    Example:
        >>> import tiga as tg
        >>> x = tg.tensor([-1.0, 2.0])
        >>> tg.where(x > 0, x, 0.0).tolist()
        [0.0, 2.0]
    """
    flag = as_tensor(condition)
    (a, b), tensors = operands(x1, x2) if _some_tensor(x1, x2) else _scalar_pair(x1, x2)
    like = result(a, *tensors)
    (mask, _), _ = operands(flag, like, dtype=bool_)
    (a, _), _ = operands(like, flag, dtype=a.type.dtype)
    (b, _), _ = operands(result(b, *tensors), flag, dtype=b.type.dtype)
    return result(apply(p.where, mask, a, b), *tensors)


def _some_tensor(*values: Any) -> bool:
    return any(not isinstance(v, (bool, int, float, complex)) for v in values)


def _scalar_pair(x1: Any, x2: Any) -> tuple[list[Node], list[Tensor]]:
    dtype = promote(result_dtype(x1), result_dtype(x2))
    return [convert(as_tensor(v)._node, dtype) for v in (x1, x2)], []


@serves_torch
def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """x bounded by `min` and `max`, in x's dtype; NaN stays. Integers with bounds that are floats
    give floats.

    Example:
        >>> import tiga as tg
        >>> tg.clip(tg.tensor([-1.0, 5.0]), 0.0, 2.0).tolist()
        [0.0, 2.0]
    """
    tensor = as_tensor(x)
    bounded = tensor
    if min is not None:
        low, high = operands(bounded, min)[0]
        bounded = result(p.where(p.lt(low, high), high, low), bounded, *_tensors(min))
    if max is not None:
        low, high = operands(bounded, max)[0]
        bounded = result(p.where(p.gt(low, high), high, low), bounded, *_tensors(max))
    if bounded is tensor:
        return same(tensor)
    if bounded.dtype.is_differentiable != tensor.dtype.is_differentiable:
        return bounded
    return astype(bounded, tensor.dtype) if bounded.dtype != tensor.dtype else bounded


def _tensors(*values: Any) -> list[Tensor]:
    return [v for v in values if isinstance(v, Tensor)]


@serves_torch
def conj(x: Any, /) -> Any:
    """The complex conjugate; a real x itself.

    Example:
        >>> import tiga as tg
        >>> tg.conj(tg.tensor([1 + 2j])).tolist()
        [(1-2j)]
    """
    tensor = as_tensor(x)
    return unary(c._conj, tensor) if tensor.dtype.is_complex else tensor


@serves_torch
def real(x: Any, /) -> Any:
    """The real part; a real x itself.

    Example:
        >>> import tiga as tg
        >>> tg.real(tg.tensor([1 + 2j])).tolist()
        [1.0]
    """
    tensor = as_tensor(x)
    return unary(c.real, tensor) if tensor.dtype.is_complex else tensor


@serves_torch
def imag(x: Any, /) -> Any:
    """The imaginary part; zeros of a real x.

    Example:
        >>> import tiga as tg
        >>> tg.imag(tg.tensor([1 + 2j])).tolist()
        [2.0]
    """
    tensor = as_tensor(x)
    if tensor.dtype.is_complex:
        return unary(c.imag, tensor)
    return result(number(0, tensor._node.type), tensor)


@serves_torch
def angle(x: Any, /) -> Any:
    """The angle of a complex number; 0 or π of a real one.

    Example:
        >>> import tiga as tg
        >>> tg.angle(tg.tensor([1j, -1.0])).tolist()
        [1.5707..., 3.1415...]
    """
    return atan2(imag(x), real(x))


@takes_tensor
def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """x converted to `dtype`; `copy=False` gives x itself where it has it already.

    Complex numbers become real by their real parts, as numpy and torch have it; the array API
    refuses that.

    Example:
        >>> import tiga as tg
        >>> tg.astype(tg.tensor([1.7]), tg.int64).tolist()
        [1]
    """
    target = check_dtype(dtype)
    if target == x.dtype and not copy:
        return x
    return same(x) if target == x.dtype else unary(p.Cast(target), x)


@takes_tensor
def detach(x: Tensor, /) -> Tensor:
    """The same value, through which no derivative flows; it shares x's storage.

    What is written into it changes x's elements, but not what x depends on: a leaf that requires
    derivatives may be written so, a computed tensor that derivatives pass through may not.

    Example:
        >>> import tiga as tg
        >>> tg.detach(tg.tensor([1.0], requires_grad=True)).requires_grad
        False
    """
    made = view(x, apply(stop_gradient, x._node), lambda array: array)
    made._grad, made._apart = False, object()
    return made
