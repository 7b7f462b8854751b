"""What functions of derivatives are given, checked."""

from collections.abc import Sequence
from typing import Any

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import here
from tiga.ops.leaf import ones_like
from tiga.trace.node import Node


def as_sequence(values: Any) -> list[Any]:
    """One value, or a sequence of them, as a list."""
    return list(values) if isinstance(values, (list, tuple)) else [values]


def check_count(values: Any, expected: int, what: str) -> None:
    """Refuse another number of values."""
    if len(values) != expected:
        raise InvalidValue(f"{what}: expected {expected}, got {len(values)} ({here()}).")


def as_list(values: Any, what: str) -> tuple[list[Tensor], bool]:
    """Tensors given as one or as a sequence, and whether it was one."""
    if isinstance(values, Tensor):
        return [values], True
    found = list(values) if isinstance(values, (list, tuple)) else None
    if found is None or not all(isinstance(v, Tensor) for v in found):
        raise InvalidType(f"{what} expected tensors ({here()}), got {values!r}.")
    return found, False


def check_callable(function: Any, what: str) -> None:
    """Refuse what is no function."""
    if not callable(function):
        raise InvalidType(f"{what} expected a function, got {function!r} ({here()}).")


def check_inputs(inputs: Sequence[Tensor]) -> None:
    """Refuse inputs that carry no derivative."""
    for position, tensor in enumerate(inputs):
        if not tensor.dtype.is_differentiable:
            raise InvalidType(
                f"input {position} is {tensor.dtype}, built at {tensor.where} ({here()}): only "
                "floats and complex numbers have derivatives."
            )
        if not tensor.requires_grad:
            raise InvalidValue(
                f"input {position}, built at {tensor.where}, does not require derivatives "
                f"({here()}); make it with requires_grad=True."
            )


def cotangent_of(output: Tensor, grad_output: Any) -> Node:
    """The cotangent of an output: given, or 1 for a real scalar."""
    kind = output._node.type
    if not kind.dtype.is_differentiable:
        raise InvalidType(f"an output of {kind.dtype} has no derivative ({here()}).")
    if grad_output is None:
        if kind.shape or kind.dtype.is_complex:
            what = f"of shape {kind.shape}" if kind.shape else "that is complex"
            raise InvalidValue(
                f"an output {what}, built at {output.where}, needs grad_output ({here()}): give "
                "one, or reduce it to a real scalar, such as with .sum()."
            )
        return ones_like(output._node)
    if not isinstance(grad_output, Tensor) or grad_output._node.type != kind:
        got = grad_output._node.type if isinstance(grad_output, Tensor) else type(grad_output)
        raise InvalidValue(f"grad_output expected {kind}, got {got} ({here()}).")
    return grad_output._node
