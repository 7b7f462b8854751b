"""The table of ATen ops that traces can express, and what its entries share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiga.errors import InvalidValue, Unfusable
from tiga.frontends.torch.dtypes import default_float, promote
from tiga.ops.align import expand_to
from tiga.ops.feature import reshape
from tiga.ops.leaf import constant
from tiga.ops.pointwise import cast, ne
from tiga.trace.node import Node
from tiga.types import GLOBAL, DType, Shape, Space, Type, bool_, int64

Number = float | int | bool
Value = Node | Number
Handler = Callable[..., Any]

TABLE: dict[str, Handler] = {}
"""From the name of an ATen overload, such as `mul.Tensor`, to what it means on nodes."""


def aten(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for ATen overloads; one without a suffix means `.default`."""

    def register(handler: Handler) -> Handler:
        for name in names:
            full = name if "." in name else f"{name}.default"
            assert full not in TABLE, f"{full} is in the table already"
            TABLE[full] = handler
        return handler

    return register


@dataclass(frozen=True)
class Call:
    """One recorded call: the overload's name, the user's line and what of the capture it needs.

    `numbers` are the nodes that stand for Python numbers, which promote as Python numbers do;
    `extents` are the made-up extents of entity axes, with the space that each stands for;
    `lift` turns a constant tensor into a node; `bounds` collects indices with the least and the
    largest value that they may have, and the user's line.
    """

    name: str
    where: str
    numbers: set[Node]
    extents: dict[int, Space]
    lift: Callable[[Any], Node]
    bounds: list[tuple[Node, int, int, str]] = field(default_factory=list)

    def bound(self, index: Node, low: int, high: int) -> None:
        """Ask that an index lies within bounds, at every call."""
        self.bounds.append((index, low, high, self.where))

    def unfusable(self, reason: str) -> Unfusable:
        return Unfusable(f"aten.{self.name}: {reason} ({self.where})")

    def refuse_axis(self, done: str) -> InvalidValue:
        """The error for what would mix or count entities."""
        return InvalidValue(
            f"{self.where}: {done} the first axis, which enumerates edges (or nodes). `edge` and "
            f"`node` describe one entity: work on the feature axes only (dim=-1, x[:, i], "
            f"x.view(-1, ...)); the reducer combines edges."
        )


def is_number(call: Call, value: Value) -> bool:
    """Whether a value is a Python number, or was one before it became an operand."""
    return not isinstance(value, Node) or value in call.numbers


def number_type(value: Value) -> DType:
    """The dtype that torch gives a Python number."""
    if isinstance(value, Node):
        return default_float() if value.type.dtype.is_float else value.type.dtype
    if isinstance(value, bool):
        return bool_
    return int64 if isinstance(value, int) else default_float()


def promoted(call: Call, *values: Value) -> DType:
    """torch's result type of the operands."""
    numbers = [number_type(v) for v in values if is_number(call, v)]
    nodes = [v for v in values if isinstance(v, Node) and v not in call.numbers]
    arrays = [n.type.dtype for n in nodes if rank(n)]
    scalars = [n.type.dtype for n in nodes if not rank(n)]
    return promote(arrays, scalars, numbers)


def rank(x: Node) -> int:
    """Number of axes of the torch tensor that the node stands for."""
    return len(x.type.shape) + (x.type.space != GLOBAL)


def as_node(value: Value, dtype: DType) -> Node:
    """The value in an element type; a Python number becomes a constant."""
    if isinstance(value, Node):
        return to_dtype(value, dtype)
    return constant(value, Type(dtype, (), GLOBAL))


def to_dtype(x: Node, dtype: DType) -> Node:
    """Conversion as torch does it: to bool means `!= 0`."""
    if dtype == bool_ and x.type.dtype != bool_:
        return ne(x, constant(0, x.type))
    return cast(x, dtype)


def torch_shape(x: Node) -> str:
    """The shape as a user would write it."""
    lead = [] if x.type.space == GLOBAL else ["E" if x.type.on_edges else "N"]
    return f"[{', '.join([*lead, *map(str, x.type.shape)])}]"


def _feature_shape(call: Call, x: Node, width: int, entities: bool) -> Shape:
    """The feature axes of an operand when all operands have `width` axes in torch's view."""
    shape = x.type.shape
    if not entities or (x.type.space == GLOBAL and len(shape) < width):
        return shape
    if x.type.space != GLOBAL and rank(x) == width:
        return shape
    if x.type.space == GLOBAL and len(shape) == width and shape[0] == 1:
        return shape[1:]
    raise ValueError


def aligned(call: Call, *nodes: Node) -> list[Node]:
    """The nodes broadcast to one shape and space, by torch's rule: axes align from the last."""
    spaces = {n.type.space for n in nodes} - {GLOBAL}
    if len(spaces) > 1:
        raise InvalidValue(
            f"{call.where}: a value of edges meets a value of nodes. Combine them in `edge`, "
            f"where `src` and `dst` give the nodes of an edge."
        )
    width = max(map(rank, nodes))
    try:
        shapes = [_feature_shape(call, n, width, bool(spaces)) for n in nodes]
        shape = tuple(map(int, np.broadcast_shapes(*shapes)))
    except ValueError:
        raise _mismatch(call, nodes) from None
    space = spaces.pop() if spaces else GLOBAL
    shaped = [reshape(n, s) for n, s in zip(nodes, shapes, strict=True)]
    return [expand_to(n, shape, space) for n in shaped]


_NO_FIELD = (
    " A tensor that is no field has feature axes only: pass values of nodes or edges as fields."
)


def _mismatch(call: Call, nodes: Sequence[Node]) -> InvalidValue:
    shapes = " and ".join(map(torch_shape, nodes))
    return InvalidValue(
        f"{call.where}: aten.{call.name} cannot broadcast shapes {shapes}. Axes align from the "
        f"last one, as everywhere in torch: give a per-entity scalar its feature axes with "
        f"`x.unsqueeze(-1)` or `x[:, None]`."
        f"{_NO_FIELD if any(n.type.space == GLOBAL for n in nodes) else ''}"
    )


def operands(call: Call, *values: Value, dtype: DType) -> list[Node]:
    """The values as nodes of one dtype, shape and space."""
    return aligned(call, *(as_node(v, dtype) for v in values))


def arithmetic(call: Call, op: Handler, *values: Value, dtype: DType | None = None) -> Node:
    """`op` on promoted operands. Runs in the compute type, rounded once, so that numbers beside
    16-bit tensors keep their bits as they do in torch."""
    out = dtype or promoted(call, *values)
    return cast(op(*operands(call, *values, dtype=out.compute)), out)


def floating(x: Node) -> DType:
    """The dtype of a function's result: that of the operand, or the default for integers."""
    return x.type.dtype if x.type.dtype.is_float else default_float()


def wide(x: Node) -> Node:
    """`x` in the type in which functions of it are computed."""
    return to_dtype(x, floating(x).compute)


def feature_axis(call: Call, x: Node, dim: int, extra: int = 0) -> int:
    """The feature axis that torch's `dim` names; `extra` counts axes that are being added."""
    axes = rank(x) + extra
    if not -max(axes, 1) <= dim < max(axes, 1):
        raise InvalidValue(
            f"{call.where}: aten.{call.name}: dim {dim} is out of range for a value of shape "
            f"{torch_shape(x)}."
        )
    axis = dim % max(axes, 1)
    if x.type.space == GLOBAL:
        return axis
    if axis == 0:
        raise call.refuse_axis(f"aten.{call.name} works along")
    return axis - 1


def feature_axes(call: Call, x: Node, dims: Sequence[int] | int | None) -> list[int]:
    """The feature axes of a reduction, descending; no dims means every axis."""
    given = [dims] if isinstance(dims, int) else list(dims or range(rank(x)))
    return sorted((feature_axis(call, x, d) for d in given), reverse=True)
