"""Forward mode, and matrices of derivatives."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiga.autograd.arguments import as_list, as_sequence, check_callable, check_count
from tiga.autograd.batching import vmap
from tiga.autograd.reverse import check_fresh, grad, gradients, none_of, release, tracking
from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.build import result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions.views import reshape
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.storage import helper
from tiga.ops.pointwise import add
from tiga.trace import autodiff
from tiga.trace.node import Node


def jvp(
    function: Callable[..., Any], primals: Sequence[Tensor], tangents: Sequence[Tensor]
) -> tuple[Any, Any]:
    """The value of `function`, and its derivative in the direction of `tangents`.

    Example:
        >>> import tiga as tg
        >>> x, v = tg.tensor([3.0]), tg.tensor([2.0])
        >>> value, slope = tg.autograd.jvp(lambda x: x * x, (x,), (v,))
        >>> slope.tolist()
        [12.0]
    """
    check_callable(function, "jvp")
    primals, tangents = as_sequence(primals), as_sequence(tangents)
    check_count(tangents, len(primals), "jvp: tangents")
    tracked = [tracking(p) for p in primals]
    for position, (p, t) in enumerate(zip(tracked, tangents, strict=True)):
        if not isinstance(t, Tensor) or t._node.type != p._node.type:
            raise InvalidValue(f"tangent {position} expected {p._node.type}, got {t!r} ({here()}).")
    value = function(*tracked)
    outputs, single = as_list(value, "the function's result")
    moving: dict[Node, Node] = {p._node: t._node for p, t in zip(tracked, tangents, strict=True)}
    found = autodiff.jvp([o._node for o in outputs], moving, add)
    check_fresh([node for node in found if node is not None])
    made = [
        none_of(o) if node is None else result(node, o, *tangents)
        for o, node in zip(outputs, found, strict=True)
    ]
    release([*outputs, *made], primals, tracked)
    return value, made[0] if single else tuple(made)


def jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The derivatives of every element of the result by every element of x: the result's axes,
    then x's. Forward mode where x is the smaller.

    Example:
        >>> import tiga as tg
        >>> tg.autograd.jacobian(lambda x: x * x, tg.tensor([1.0, 2.0])).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """
    check_callable(function, "jacobian")
    tracked = tracking(x)
    value = function(tracked)
    if not isinstance(value, Tensor):
        raise InvalidType(f"jacobian expected a function to one tensor ({here()}).")
    if tracked.dtype.is_complex or value.dtype.is_complex:
        raise InvalidType(f"jacobian of complex functions is not defined here ({here()}).")
    shape = (*value.shape, *tracked.shape)
    if tracked.size < value.size:
        columns = vmap(lambda t: jvp(function, (tracked,), (t,))[1])(_units(tracked))
        flat = reshape(columns, (tracked.size, value.size))
        found = reshape(flat.transpose(0, 1), shape)
        release([found], [x], [tracked])
        return found

    def pull(ct: Tensor) -> Tensor:
        (node,) = gradients([value], [ct._node], [tracked])
        return none_of(tracked) if node is None else result(node, value, ct)

    found = reshape(vmap(pull)(_units(value)), shape)
    release([found], [x], [tracked])
    return found


def _units(like: Tensor) -> Tensor:
    """Every unit tensor of a shape, along a new leading axis."""
    units = helper(np.eye(like.size, dtype=like.dtype.numpy))
    return reshape(units, (like.size, *like.shape))


def hessian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The second derivatives of a scalar function: x's axes twice.

    Example:
        >>> import tiga as tg
        >>> tg.autograd.hessian(lambda x: (x * x * x).sum(), tg.tensor([1.0, 2.0])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    check_callable(function, "hessian")

    def slope(y: Tensor) -> Tensor:
        value = function(y)
        if not isinstance(value, Tensor):
            raise InvalidType(f"hessian expected a function to a tensor, got {value!r} ({here()}).")
        if value.shape:
            raise InvalidValue(f"hessian expected a scalar function, got {value.shape} ({here()}).")
        found = grad(value, y, allow_unused=True)
        return none_of(y) if found is None else found

    return jacobian(slope, x)
