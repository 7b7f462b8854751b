"""Python's operators on tensors that stand for values, whose errors must reach the user.

torch answers an operator that raises a `TypeError`, as `InvalidType` is, with "ask the other one".
Python then says that there is no such operator, or, for `==`, that the two are not equal.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tiga.errors import InvalidType
from tiga.frontends.torch.capture.where import user_line

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "truediv": torch.true_divide,
    "floordiv": torch.floor_divide, "mod": torch.remainder, "pow": torch.pow,
}  # fmt: skip
OTHERS: dict[str, Callable[..., Any]] = {
    "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge, "eq": torch.eq, "ne": torch.ne,
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    "matmul": torch.matmul,
}  # fmt: skip
_NO_NUMBERS = (str, bytes, list, tuple, dict, type(None))
_MIRRORED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "matmul")


def install(traced: type) -> None:
    """Give a class of tensors operators that let no error of Tiga's get lost."""
    for name, function in {**ARITHMETIC, **OTHERS}.items():
        setattr(traced, f"__{name}__", _operator(f"__{name}__", function, name in ARITHMETIC))
    for name in _MIRRORED:
        function = {**ARITHMETIC, **OTHERS}[name]
        swapped = _swapped(function)
        setattr(traced, f"__r{name}__", _operator(f"__r{name}__", swapped, name in ARITHMETIC))


def _swapped(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda right, left: function(left, right)


def _operator(name: str, function: Callable[..., Any], numbers_only: bool) -> Any:
    compute = getattr(torch.Tensor, name)

    def method(self: Any, other: Any, *rest: Any) -> Any:
        if isinstance(other, np.ndarray):
            raise InvalidType(
                f"{user_line()}: a tensor meets a numpy array of shape {list(other.shape)} in "
                f"`{name.strip('_')}`; expected a tensor or a number. Make it a tensor outside of "
                f"`edge` and `node`, with torch.as_tensor, and keep that or pass it."
            )
        # Python would ask the tensor for an index, to repeat a str or list so many times.
        if numbers_only and isinstance(other, _NO_NUMBERS):
            raise InvalidType(
                f"{user_line()}: a tensor meets the {type(other).__name__} {other!r} in "
                f"`{name.strip('_')}`; expected a tensor or a number. Parameters of the call that "
                f"are neither are for choosing with `if`."
            )
        found = compute(self, other, *rest)
        lost = found is NotImplemented and isinstance(other, torch.Tensor)
        return function(self, other) if lost else found

    return method
