"""Functions of native tensors that torch tensors may be given to: torch's own are called then.

Native functions have the array API's names and arguments; `CALLS` says each in torch's. So one
`edge` function serves both frontends. Functions element by element and reductions look for torch
tensors themselves.
"""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from tiga.frontends.tensor.core import Tensor

Call = Callable[..., Any]


def serving(name: str, native: Call) -> Call:
    """The native function, or torch's where a torch tensor is among its arguments."""
    other = CALLS[name]

    @wraps(native)
    def call(*args: Any, **options: Any) -> Any:
        if args and args[0].__class__ is not Tensor:
            torch = sys.modules.get("torch")
            if torch is not None and _has(args, torch.Tensor):
                return other(torch, *args, **options)
        return native(*args, **options)

    return call


def _has(args: Sequence[Any], kind: type) -> bool:
    """Whether some of the first arguments, or of a list among them, are of a kind."""
    for value in args[:3]:
        parts = value if isinstance(value, (list, tuple)) else (value,)
        if any(isinstance(part, kind) for part in parts):
            return True
    return False


def _renamed(torch_name: str, **names: str) -> Call:
    """torch's function of a name, whose arguments have other names; None is left out."""

    def call(torch: Any, *args: Any, **options: Any) -> Any:
        given = {names.get(k, k): v for k, v in options.items() if v is not None}
        return _found(torch, torch_name)(*args, **given)

    return call


def _found(torch: Any, name: str) -> Any:
    homes = (torch.nn.functional, torch, torch.linalg)
    return next(getattr(home, name) for home in homes if hasattr(home, name))


def _method(torch_name: str) -> Call:
    """A method of torch's tensors, which takes extents or axes as one sequence or one by one."""

    def call(torch: Any, x: Any, *args: Any, **options: Any) -> Any:
        return getattr(x, torch_name)(*args, **options)

    return call


def _by_place(torch_name: str) -> Call:
    """A function that goes along one axis, by default the last."""

    def call(torch: Any, x: Any, *args: Any, axis: int = -1, dim: Any = None, **rest: Any) -> Any:
        return _found(torch, torch_name)(x, *args, dim=axis if dim is None else dim, **rest)

    return call


def _over_axes(torch_name: str) -> Call:
    """A reduction over any axes, by default all."""

    def call(torch: Any, x: Any, *, axis: Any = None, dim: Any = None, keepdims: bool = False,
             keepdim: bool = False) -> Any:  # fmt: skip
        axes = dim if axis is None else axis
        axes = tuple(range(x.dim())) if axes is None else axes
        return _found(torch, torch_name)(x, dim=axes, keepdim=keepdims or keepdim)

    return call


def _joined(torch_name: str) -> Call:
    def call(torch: Any, arrays: Any, *, axis: int | None = 0, dim: int | None = None) -> Any:
        place = axis if dim is None else dim
        parts = list(arrays) if place is not None else [a.reshape(-1) for a in arrays]
        return getattr(torch, torch_name)(parts, dim=place or 0)

    return call


def _scan(torch_name: str) -> Call:
    def call(
        torch: Any, x: Any, dim: int | None = None, *, axis: int | None = None, dtype: Any = None,
        include_initial: bool = False, reverse: bool = False,
    ) -> Any:  # fmt: skip
        place = dim if axis is None else axis
        place = 0 if place is None and x.dim() == 1 else place
        turned = x.flip(place) if reverse else x
        found = getattr(torch, torch_name)(turned, dim=place, dtype=dtype)
        if include_initial:
            first = torch.full_like(found.narrow(place, 0, 1), torch_name == "cumprod")
            found = torch.cat([first, found], dim=place)
        return found.flip(place) if reverse else found

    return call


def _sorted(torch: Any, x: Any, *, axis: int = -1, descending: bool = False,
            stable: bool = True) -> Any:  # fmt: skip
    return torch.sort(x, dim=axis, descending=descending, stable=stable)


def _take(torch: Any, x: Any, indices: Any, *, axis: int | None = None) -> Any:
    axis = 0 if axis is None else axis % x.dim()
    flat = x.index_select(axis, indices.reshape(-1) % x.shape[axis])
    return flat.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _pad(torch: Any, x: Any, widths: Any, *, value: Any = 0) -> Any:
    flat = [width for pair in reversed(widths) for width in pair]
    return torch.nn.functional.pad(x, flat, value=value)


def _flip(torch: Any, x: Any, *, axis: Any = None, dims: Any = None) -> Any:
    axes = dims if axis is None else axis
    return x.flip(tuple(range(x.dim())) if axes is None else axes)


def _squeeze(torch: Any, x: Any, axis: Any = None, *, dim: Any = None) -> Any:
    place = axis if dim is None else dim
    return x.squeeze() if place is None else x.squeeze(place)


def _expand_dims(torch: Any, x: Any, axis: int = 0, *, dim: int | None = None) -> Any:
    return x.unsqueeze(axis if dim is None else dim)


def _layer_norm(torch: Any, x: Any, normalized_shape: Any = None, *args: Any, **rest: Any) -> Any:
    shape = x.shape[-1:] if normalized_shape is None else normalized_shape
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return torch.nn.functional.layer_norm(x, shape, *args, **rest)


def _norm(torch: Any, x: Any, *, ord: float = 2, axis: Any = None, keepdims: bool = False,
          dim: Any = None, keepdim: bool = False) -> Any:  # fmt: skip
    axes = dim if axis is None else axis
    return torch.linalg.vector_norm(x, ord, dim=axes, keepdim=keepdims or keepdim)


def _count(torch: Any, x: Any, **options: Any) -> Any:
    return _over_axes("sum")(torch, x != 0, **options)


def _gather(torch: Any, x: Any, index: Any, *, axis: int = 0, dim: int | None = None) -> Any:
    place = axis if dim is None else dim
    return _take(torch, x, index, axis=place)


def _triangle(torch_name: str) -> Call:
    def call(torch: Any, x: Any, *, k: int = 0) -> Any:
        return getattr(torch, torch_name)(x, diagonal=k)

    return call


CALLS: dict[str, Call] = {
    **{name: _renamed(name) for name in (
        "matmul", "einsum", "mse_loss", "huber_loss", "cross_entropy", "nll_loss",
        "binary_cross_entropy_with_logits", "outer", "moveaxis", "transpose", "one_hot", "tile",
        "flatten", "ravel", "masked_fill", "zeros_like", "ones_like", "full_like", "empty_like",
    )},
    **{name: _over_axes(name) for name in ("amax", "amin", "any", "all")},
    "argsort": _by_place("argsort"),
    "broadcast_to": _method("expand"),
    "concat": _joined("cat"),
    "count_nonzero": _count,
    "cumsum": _scan("cumsum"),
    "cumulative_prod": _scan("cumprod"),
    "cumulative_sum": _scan("cumsum"),
    "diff": _by_place("diff"),
    "expand": _method("expand"),
    "expand_dims": _expand_dims,
    "flip": _flip,
    "gather": _gather,
    "layer_norm": _layer_norm,
    "log_softmax": _by_place("log_softmax"),
    "matrix_transpose": lambda torch, x: x.mT,
    "nonzero": lambda torch, x: x.nonzero(as_tuple=True),
    "norm": _norm,
    "pad": _pad,
    "permute_dims": _method("permute"),
    "repeat": _renamed("repeat_interleave", axis="dim"),
    "reshape": _method("reshape"),
    "rms_norm": _renamed("rms_norm"),
    "roll": lambda torch, x, shift, *, axis=None: torch.roll(x, shift, axis),
    "sort": lambda *args, **options: _sorted(*args, **options).values,
    "split": lambda torch, x, sizes, *, axis=0, dim=None: torch.split(
        x, sizes, axis if dim is None else dim),
    "squeeze": _squeeze,
    "stack": _joined("stack"),
    "take": _take,
    "take_along_axis": lambda torch, x, indices, *, axis=-1: torch.take_along_dim(
        x, indices, dim=axis),
    "topk": lambda torch, x, k, *, axis=-1, largest=True: torch.topk(x, k, axis, largest),
    "tril": _triangle("tril"),
    "triu": _triangle("triu"),
    "unique_values": lambda torch, x: torch.unique(x),
    "unsqueeze": _expand_dims,
    "unstack": lambda torch, x, *, axis=0: torch.unbind(x, axis),
    "vecdot": lambda torch, x, y, *, axis=-1: torch.linalg.vecdot(x, y, dim=axis),
}  # fmt: skip
"""What is called instead of a native function, by its name; torch itself comes first."""
