"""Copies of tensors by `copy` and `pickle`, and numbers in format strings."""

from typing import Any

import numpy as np

from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU
from tiga.frontends.tensor.functions.creation import tensor
from tiga.frontends.tensor.functions.views import reshape


def _copy(x: Tensor) -> Tensor:
    """Another tensor of the same memory."""
    return reshape(x, x.shape)


def _deepcopy(x: Tensor, memo: dict[int, Any]) -> Tensor:
    """A leaf with a copy of the value, on the same device."""
    memo[id(x)] = made = tensor(x.detach(), device=x.device, requires_grad=x.requires_grad)
    return made


def restored(array: np.ndarray, device: str, requires_grad: bool) -> Tensor:
    """The tensor that was pickled."""
    return tensor(array, device=device, requires_grad=requires_grad)


def _reduce(x: Tensor) -> tuple[Any, ...]:
    """How pickle makes the tensor anew: a leaf, on the device that it is on."""
    device = str(x.device) if x.device != CPU else "cpu"
    return restored, (np.array(x._host(), order="C"), device, x.requires_grad)


def _format(x: Tensor, specification: str) -> str:
    """A single number as numbers are formatted, anything else as it is printed."""
    return format(x.item(), specification) if specification and x.size == 1 else str(x)


METHODS: dict[str, Any] = {
    "__copy__": _copy, "__deepcopy__": _deepcopy, "__format__": _format, "__reduce__": _reduce,
}  # fmt: skip
