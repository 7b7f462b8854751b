"""Element types of torch and of traces, and torch's rules of promotion."""

from collections.abc import Iterable

import torch

from tiga.errors import InvalidType, InvalidValue
from tiga.types import DTYPES, GLOBAL, DType, Type

_TO_TIGA = {getattr(torch, name): dtype for name, dtype in DTYPES.items()}
_TO_TORCH = {dtype: torch_dtype for torch_dtype, dtype in _TO_TIGA.items()}


def dtype_of(dtype: torch.dtype, what: str = "a value") -> DType:
    """The element type of a torch dtype; InvalidType when traces have none for it."""
    found = _TO_TIGA.get(dtype)
    if found is None:
        raise InvalidType(
            f"{what} has dtype {dtype}; supported are {', '.join(DTYPES)}. Convert it first."
        )
    return found


def global_type(tensor: torch.Tensor, what: str) -> Type:
    """The type of a tensor that belongs to no entity; `what` is its name for errors.

    Raises:
        InvalidType: traces have no such elements.
        InvalidValue: it is a parameter of a lazy module, and has no shape yet.
    """
    if torch.nn.parameter.is_lazy(tensor):
        raise InvalidValue(
            f"{what} has no shape yet: run the lazy module before the call, on a tensor of the "
            f"width that `edge` gives it, say torch.zeros(1, width)."
        )
    return Type(dtype_of(tensor.dtype, what), tuple(tensor.shape), GLOBAL)


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype with the same elements."""
    return _TO_TORCH[dtype]


def default_float() -> DType:
    """The dtype in which torch puts Python floats and quotients of integers."""
    return _TO_TIGA[torch.get_default_dtype()]


def _joined(dtypes: Iterable[DType]) -> DType | None:
    joined = None
    for dtype in dtypes:
        if joined is None:
            joined = dtype
        elif joined != dtype:
            joined = dtype_of(torch.promote_types(torch_dtype(joined), torch_dtype(dtype)))
    return joined


def _override(strong: DType | None, weak: DType | None) -> DType | None:
    """A weaker category decides only if its kind (bool < integer < float) is higher."""
    if strong is None or weak is None:
        return strong or weak
    if strong.is_float:
        return strong
    if strong.kind == "b" or weak.is_float:
        return _joined((strong, weak))
    return strong


def promote(arrays: Iterable[DType], scalars: Iterable[DType], numbers: Iterable[DType]) -> DType:
    """torch's result type for tensors with axes, tensors without axes, and Python numbers."""
    result = _override(_override(_joined(arrays), _joined(scalars)), _joined(numbers))
    assert result is not None
    return result
