"""Functions whose expressions are built once and written down."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from tiga.frontends.tensor.application import Record
from tiga.frontends.tensor.build import result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.planned import keep
from tiga.frontends.tensor.storage import standing_for
from tiga.trace.node import Node
from tiga.types import DType

Function = TypeVar("Function", bound=Callable[..., Any])


def recorded(function: Function) -> Function:
    """A function from tensors and plain settings to one tensor, composed of many ops: recorded per
    types and settings. It must not look at values, nor return a view of an operand.

    Example:
        >>> import tiga as tg
        >>> @recorded
        ... def twice(x, scale=1.0):
        ...     return x * scale + x * scale
        >>> twice(tg.ones(2)).tolist(), twice(tg.ones(2), scale=3.0).tolist()
        ([2.0, 2.0], [6.0, 6.0])
    """
    records: dict[Any, Record | None] = {}

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        values = (*args, *options.values())
        tensors = [v for v in values if v.__class__ is Tensor]
        key = (len(args), *options, *[_setting(v) for v in values])
        if None in key or len({id(t._node) for t in tensors}) < len(tensors):
            return function(*args, **options)
        record = records.get(key, _UNKNOWN)
        if record is _UNKNOWN:
            record = _record_of(function, args, options)
            keep(records, key, record)
        if record is None:
            return function(*args, **options)
        (node,) = record.build([tensor._node for tensor in tensors])
        assert node is not None
        return result(node, *tensors)

    return call  # type: ignore[return-value]


def _record_of(function: Function, args: Any, options: Any) -> Record | None:
    """The record of a call; None if there is nothing to record.

    It is made on tensors without values: what is built on an operand itself may be folded with what
    that is made of, which other operands are not.
    """
    given: list[Node] = []

    def stand_in(value: Any) -> Any:
        if value.__class__ is not Tensor:
            return value
        made = standing_for(value._node.type, function.__name__, value._grad)
        given.append(made._node)
        return made

    made = function(*map(stand_in, args), **{k: stand_in(v) for k, v in options.items()})
    record = Record.of(given, [made._node]) if made.__class__ is Tensor else None
    return record if record is not None and record.steps else None


_UNKNOWN: Any = object()
_ABSENT = "absent"


def _setting(value: Any) -> Any:
    """What a record depends on of an argument; None if that cannot be told."""
    kind = value.__class__
    if kind is Tensor:
        return value._node.type
    if value is None:
        return _ABSENT
    if kind is float:
        return value.hex()
    if kind in (int, bool, str, DType):
        return kind, value
    if kind is tuple and all(v.__class__ is int for v in value):
        return value
    return None
