"""Arguments of functions of tensors, checked: integers, axes, and whose tensors they are."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from operator import index
from typing import Any

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import here
from tiga.types import Shape


def integer(value: Any, what: str, least: int | None = None) -> int:
    """`value` as an integer, checked.

    Raises:
        InvalidType: it is none.
        InvalidValue: it is below `least`.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        found = index(value)
    except TypeError:
        raise InvalidType(f"{what} expected an integer, got {value!r} ({here()}).") from None
    if least is not None and found < least:
        raise InvalidValue(f"{what} expected at least {least}, got {found} ({here()}).")
    return found


def normalize_axis(axis: Any, rank: int) -> int:
    """A non-negative axis.

    Raises:
        InvalidType: it is no integer.
        InvalidValue: there is no such axis.
    """
    axis = integer(axis, "axis=")
    if not -rank <= axis < rank:
        raise InvalidValue(f"axis={axis} is out of range for {rank} axes ({here()}).")
    return axis % rank


def normalize_axes(axis: Any, rank: int, dim: Any = None) -> Shape:
    """Ascending non-negative axes; None is all of them. `dim` is another spelling of `axis`."""
    if axis is not None and dim is not None:
        raise InvalidValue(f"axis= and dim= are one argument: give one of them ({here()}).")
    axis = dim if axis is None else axis
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = [normalize_axis(a, rank) for a in given]
    if len(set(axes)) != len(axes):
        raise InvalidValue(f"axis={axis} names an axis twice ({here()}).")
    return tuple(sorted(axes))


def torch_function(values: Sequence[Any], name: str) -> Any:
    """torch's function of this name if one of the values is a torch tensor, else None."""
    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(v, torch.Tensor) for v in values):
        return None
    homes = (torch, torch.nn.functional, torch.special)
    found = next((getattr(home, name) for home in homes if hasattr(home, name)), None)
    if found is None:
        raise InvalidType(f"torch has no {name}: give native tensors ({here()}).")
    return found


OWN = frozenset((Tensor, bool, int, float, complex))
"""Classes of operands that are certainly not torch's: asking torch takes longer."""


def serves_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or torch's of its name where a torch tensor is among the arguments."""
    name = function.__name__

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        for value in args:
            if value.__class__ not in OWN:
                if other := torch_function(args, name):
                    return other(*args, **options)
                break
        return function(*args, **options)

    return call
