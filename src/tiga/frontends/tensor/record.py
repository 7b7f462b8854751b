"""Functions whose expressions are built once and written down."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from tiga.frontends.tensor.application import Record
from tiga.frontends.tensor.build import result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import LazyNode
from tiga.frontends.tensor.planned import keep
from tiga.trace.origin import Origin
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
    records: dict[Any, Record] = {}

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        values = (*args, *options.values())
        tensors = [v for v in values if v.__class__ is Tensor]
        key = (len(args), *options, *[_setting(v) for v in values])
        if None in key or len({id(t._node) for t in tensors}) < len(tensors):
            return function(*args, **options)
        given = [tensor._node for tensor in tensors]
        record = records.get(key)
        if record is None:
            made = function(*args, **options)
            record = _record_of(given, made)
            if record is None or not record.steps:
                return made
            keep(records, key, record)
        (node,) = record.build(given)
        assert node is not None
        return result(node, *tensors)

    return call  # type: ignore[return-value]


def _record_of(given: list[LazyNode], made: Any) -> Record | None:
    """The record of what was made; None of numbers, which are folded into what is built on them."""
    numbers = any(node.op.origin is Origin.NUMBER for node in given)
    return None if numbers or made.__class__ is not Tensor else Record.of(given, [made._node])


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
