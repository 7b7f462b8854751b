"""Sums, products and differences along one axis."""

from typing import Any

from tiga.errors import InvalidValue
from tiga.frontends.tensor.arguments import integer, normalize_axis
from tiga.frontends.tensor.build import apply, as_tensor, convert, result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions.pieces import concat
from tiga.frontends.tensor.functions.reductions import sum_dtype
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.scalars import number
from tiga.ops import pointwise as p
from tiga.ops import tensor_scan as scans
from tiga.ops.feature import with_axis
from tiga.ops.tensor_functions import bitwise_xor
from tiga.ops.tensor_views import join, slice_
from tiga.trace.node import Node
from tiga.types import bool_


def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False,
    reverse: bool = False, dim: int | None = None,
) -> Tensor:  # fmt: skip
    """Inclusive sums along an axis, from its start or (`reverse`) its end.

    Example:
        >>> import tiga as tg
        >>> tg.cumulative_sum(tg.tensor([1, 2, 3]), include_initial=True).tolist()
        [0, 1, 3, 6]
    """
    tensor, axis = _one_axis(x, axis, dim)
    node = convert(tensor._node, sum_dtype(tensor.dtype, dtype))
    total = apply(scans.CumSum(axis, int(bool(reverse))), node)
    return result(_with_initial(total, axis, include_initial, 0), tensor)


def cumsum(
    x: Any, dim: int | None = None, *, axis: int | None = None, reverse: bool = False
) -> Any:
    """`cumulative_sum`, as torch calls it.

    Example:
        >>> import tiga as tg
        >>> tg.cumsum(tg.tensor([1, 2, 3])).tolist()
        [1, 3, 6]
    """
    return cumulative_sum(x, axis=axis, dim=dim, reverse=reverse)


def _one_axis(x: Any, axis: Any, dim: Any) -> tuple[Tensor, int]:
    tensor = as_tensor(x)
    axis = axis if dim is None else dim
    if axis is None:
        if tensor.ndim != 1:
            raise InvalidValue(f"axis= is needed for {tensor.ndim} axes ({here()}).")
        axis = 0
    return tensor, normalize_axis(axis, tensor.ndim)


def _with_initial(x: Node, axis: int, include: bool, value: int) -> Node:
    if not include:
        return x
    first = x.type.with_shape(with_axis(x.type.shape, axis, 1))
    return join(axis, number(value, first), x)


def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False,
    dim: int | None = None,
) -> Tensor:  # fmt: skip
    """Inclusive products along an axis, as a scan: derivatives are exact with zeros among x.

    Example:
        >>> import tiga as tg
        >>> tg.cumulative_prod(tg.tensor([2, 0, 4])).tolist()
        [2, 0, 0]
    """
    tensor, axis = _one_axis(x, axis, dim)
    node = convert(tensor._node, sum_dtype(tensor.dtype, dtype))
    wide = convert(node, node.type.dtype.compute)
    total = convert(apply(scans.CumProd(axis), wide), node.type.dtype)
    return result(_with_initial(total, axis, include_initial, 1), tensor)


def diff(
    x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Tensor:
    """Differences of neighbours along an axis, `n` times; of what is joined before and after `x`
    too, if it is given.

    Example:
        >>> import tiga as tg
        >>> x = tg.tensor([1, 4, 9])
        >>> tg.diff(x).tolist(), tg.diff(x, prepend=tg.tensor([0])).tolist()
        ([3, 5], [1, 3, 5])
    """
    given = [part for part in (prepend, x, append) if part is not None]
    tensor = as_tensor(x) if len(given) == 1 else concat(given, axis=axis)
    axis = normalize_axis(axis, tensor.ndim)
    node: Node = tensor._node
    for _ in range(integer(n, "n=", 0)):
        count = node.type.shape[axis] - 1
        if count < 0:
            raise InvalidValue(f"diff: too few elements along axis {axis} ({here()}).")
        later, earlier = slice_(node, axis, 1, count), slice_(node, axis, 0, count)
        node = bitwise_xor(later, earlier) if node.type.dtype == bool_ else p.sub(later, earlier)
    return result(node, tensor)
