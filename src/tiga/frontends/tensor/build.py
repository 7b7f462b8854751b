"""Building expressions: operands to nodes, promotion, broadcasting, errors with the user's line."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar
from weakref import ref

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.core import Tensor, View
from tiga.frontends.tensor.dtypes import array_of, promote, promote_scalar, result_dtype
from tiga.frontends.tensor.lazy import LazyNode, here, user_place
from tiga.frontends.tensor.scalars import SCALARS, WEAK, number
from tiga.frontends.tensor.storage import share, wrap
from tiga.frontends.tensor.waiting import CHAIN, extent_of, stands_for_many
from tiga.ops.base import Op
from tiga.ops.feature import Broadcast, broadcast
from tiga.ops.pointwise import Cast, cast
from tiga.trace.node import Node
from tiga.types import GLOBAL, DType, Shape, Type, bool_

Function = TypeVar("Function", bound=Callable[..., Any])


@lru_cache(maxsize=4096)
def _inferred(op: Op, *types: Type) -> Type:
    """The type of the op's result: equal types are one object, which compares and hashes fast."""
    return op.infer(*types)


def apply(op: Op, *inputs: Node) -> LazyNode:
    """The node of `op`, its type inferred; nothing is folded."""
    inferred = _inferred(op, *[node.type for node in inputs])
    only = inputs[0] if len(inputs) == 1 else None
    if isinstance(only, LazyNode):
        depth, largest = (0 if only.cell is not None else only.depth), only.largest
    else:
        depth, largest = extent_of(inputs)
    return LazyNode(op, inputs, inferred, user_place(), depth + 1, max(largest, inferred.size))


def result(node: Node, *sources: Tensor) -> Tensor:
    """The tensor of a node that was built from `sources`."""
    grad = node.type.dtype.is_differentiable and any(source._grad for source in sources)
    lazy = node if isinstance(node, LazyNode) else relabel(node)
    made = Tensor(lazy, grad)
    if lazy.cell is None and lazy.depth > CHAIN:
        _cut(made)
    return made


def relabel(node: Node) -> LazyNode:
    """A plain node as a tensor's."""
    depth, largest = extent_of(node.inputs)
    largest = max(largest, node.type.size)
    return LazyNode(node.op, node.inputs, node.type, user_place(), depth + 1, largest)


def as_tensor(value: Any, what: str = "an operand") -> Tensor:
    """`value` as a tensor: a tensor, a number, or an array.

    Raises:
        InvalidType: it is something else.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, SCALARS):
        return wrap(array_of(value))
    if isinstance(value, (np.ndarray, np.generic)):
        from tiga.frontends.tensor.functions.creation import from_numpy

        return from_numpy(np.asanyarray(value))
    if type(value).__module__.partition(".")[0] == "torch":
        raise InvalidType(
            f"{what} expected a tensor of Tiga's or a number, got one of torch's ({here()}); make "
            "it one with tg.from_torch(x), or the others torch's with x.to_torch()."
        )
    raise InvalidType(
        f"{what} expected a tensor or a number, got {type(value).__name__} ({here()})."
    )


def takes_tensor(function: Function) -> Function:
    """A function of a tensor and more that takes a number or an array in the tensor's place."""

    @wraps(function)
    def call(x: Any, /, *args: Any, **options: Any) -> Any:
        tensor = x if x.__class__ is Tensor else as_tensor(x, function.__name__)
        return function(tensor, *args, **options)

    return call  # type: ignore[return-value]


def convert(x: Node, dtype: DType) -> Node:
    """`x` in another dtype."""
    return x if x.type.dtype == dtype else cast(x, dtype)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that shapes broadcast to, as in numpy.

    Raises:
        InvalidValue: they do not fit.
    """
    try:
        return tuple(map(int, np.broadcast_shapes(*shapes)))
    except ValueError:
        listed = " and ".join(map(str, shapes))
        raise InvalidValue(
            f"shapes {listed} do not broadcast ({here()}): aligned from the right, extents must "
            "be equal or 1."
        ) from None


@lru_cache(maxsize=4096)
def _fitting(x: Type, y: Type) -> tuple[tuple[tuple[Op, Type], ...], ...]:
    """For either of two types the ops, with their results' types, that bring a value to the type
    that both promote and broadcast to."""
    target = Type(promote(x.dtype, y.dtype), broadcast_shapes(x.shape, y.shape), GLOBAL)
    return _steps(x, target), _steps(y, target)


def _steps(given: Type, target: Type) -> tuple[tuple[Op, Type], ...]:
    steps: list[Op] = []
    if given.dtype != target.dtype:
        steps.append(Cast(target.dtype))
    if given.shape != target.shape:
        steps.append(Broadcast(target.shape))
    typed: list[tuple[Op, Type]] = []
    for op in steps:
        given = op.infer(given)
        typed.append((op, given))
    return tuple(typed)


def fitted(x: LazyNode, y: LazyNode) -> tuple[LazyNode, LazyNode]:
    """Two nodes in the dtype that they promote to and the shape that they broadcast to.

    Raises:
        InvalidValue: the shapes do not fit.
    """
    first, second = _fitting(x.type, y.type)
    return _fitted(x, first), _fitted(y, second)


def _fitted(node: LazyNode, steps: tuple[tuple[Op, Type], ...]) -> LazyNode:
    for op, kind in steps:
        depth = 1 if node.cell is not None else node.depth + 1
        largest = node.largest if node.largest > kind.size else kind.size
        node = LazyNode(op, (node,), kind, node.place, depth, largest)
    return node


def operands(*values: Any, dtype: DType | None = None) -> tuple[list[Node], list[Tensor]]:
    """Values as nodes of one shape and one dtype (by promotion unless given), and the tensors."""
    known = [v if isinstance(v, SCALARS) else as_tensor(v) for v in values]
    tensors = [v for v in known if isinstance(v, Tensor)]
    if dtype is None:
        dtype = result_dtype(*(v.dtype if isinstance(v, Tensor) else v for v in known))
    target = Type(dtype, broadcast_shapes(*(t.shape for t in tensors)), GLOBAL)
    nodes: list[Node] = []
    for value in known:
        if not isinstance(value, Tensor):
            nodes.append(number(value, target))
        elif value._node.type == target:
            nodes.append(value._node)
        else:
            nodes.append(broadcast(convert(value._node, dtype), target.shape))
    return nodes, tensors


def binary(op: Op, a: Any, b: Any, kinds: str | None = None) -> Tensor:
    """A pointwise op on two operands; `kinds` are the kinds of dtypes that it takes."""
    if a.__class__ is Tensor:
        x = a._node
        kind = x.type.dtype.kind
        if b.__class__ is Tensor:
            y = b._node
            if x.type is not y.type:
                x, y = fitted(x, y)
                kind = x.type.dtype.kind
            if kinds is None or kind in kinds:
                return joined(op, x, y, a._grad or b._grad)
        elif kind == WEAK.get(b.__class__) and (kinds is None or kind in kinds):
            return joined(op, x, number(b, x.type), a._grad)
    nodes, tensors = operands(a, b)
    check_kind(op.name, nodes[0].type.dtype, kinds)
    return result(apply(op, *nodes), *tensors)


def joined(op: Any, x: LazyNode, y: LazyNode, grad: bool) -> Tensor:
    """The short way of `result(apply(op, x, y))` for operands that need no preparation."""
    depth = 0 if x.cell is not None else x.depth
    if y.cell is None and y.depth > depth:
        depth = y.depth
    largest = x.largest if x.largest > y.largest else y.largest
    type_ = _inferred(op, x.type, y.type) if op.exact else x.type
    node = LazyNode(op, (x, y), type_, user_place(3), depth + 1, largest)
    made = Tensor(node, grad and type_.dtype.is_differentiable)
    if depth > CHAIN:
        _cut(made)
    return made


def _cut(tensor: Tensor) -> None:
    """Compute what ends a long chain, or count from it anew if it stands for many values."""
    if not stands_for_many(tensor._node):
        tensor.realize()
    tensor._node.depth = 0


def check_kind(name: str, dtype: DType, kinds: str | None) -> None:
    """Refuse a dtype whose kind is none of `kinds`."""
    if kinds is not None and dtype.kind not in kinds:
        names = {"b": "bool", "i": "integer", "f": "float", "c": "complex"}
        expected = " or ".join(names[k] for k in kinds if k in names)
        raise InvalidType(
            f"{_PUBLIC.get(name, name)} expected {expected} operands, got {dtype} ({here()}); cast "
            "with .astype(...)."
        )


_PUBLIC = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "rem": "fmod",
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "roundeven": "round",
}  # fmt: skip
"""Names of functions that are not those of their ops."""


def unary(op: Op, x: Any, kinds: str | None = None, *, floats: bool = False) -> Tensor:
    """A pointwise op on one operand; `floats` converts integers to the default float type."""
    tensor = x if x.__class__ is Tensor else as_tensor(x)
    node: Node = tensor._node
    if floats and node.type.dtype.kind not in "fc":
        node = cast(node, promote_scalar(node.type.dtype, float))
    check_kind(op.name, node.type.dtype, kinds)
    return result(apply(op, node), tensor)


def same(x: Tensor) -> Tensor:
    """x's value as one of its own: a write into either is not seen in the other."""
    return result(apply(Cast(x.dtype), x._node), x)


def view(x: Tensor, node: Node, through: View | None) -> Tensor:
    """A tensor that shows `x`'s memory in another way; without `through` it will be a copy."""
    made = result(node, x)
    if through is None or made._array is not None:
        return made
    made._apart = x._apart
    if x._array is not None:
        share(made, x, through)
        return made
    made._source = (x, through)
    if x._viewers is None:
        x._viewers = []
    x._viewers.append(ref(made))
    return made


def truth(x: Node) -> Node:
    """`x != 0` as a bool node."""
    return convert(x, bool_)
