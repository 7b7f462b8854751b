"""The methods of `Tensor`, from the functions."""

from collections.abc import Callable
from typing import Any

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor import (
    along,
    copies,
    indexing,
    inplace,
    inspection,
    linear,
    losses,
    pieces,
    residency,
    snapshot,
    sorting,
    views,
)
from tiga.frontends.tensor import elementwise as e
from tiga.frontends.tensor import reductions as r
from tiga.frontends.tensor import selection as s
from tiga.frontends.tensor.arguments import normalize_axis
from tiga.frontends.tensor.build import same
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.operators import OPERATORS
from tiga.frontends.tensor.placement import to
from tiga.frontends.tensor.prepared import prepare


def _invert(x: Tensor) -> Any:
    return s.logical_not(x) if x.dtype.kind == "b" else e.bitwise_invert(x)


_SPECIAL: dict[str, Any] = {
    "__neg__": e.negative, "__pos__": same, "__abs__": s.abs, "__invert__": _invert,
    "__getitem__": indexing.getitem, "__setitem__": inplace.setitem,
}  # fmt: skip


def _permute(x: Tensor, *axes: Any) -> Tensor:
    """The axes in another order, as `permute_dims`."""
    return views.permute_dims(x, *axes)


def _swap(x: Tensor, dim0: int = -1, dim1: int = -2) -> Tensor:
    """Two axes exchanged; the last two by default."""
    return views.transpose(x, dim0, dim1)


def _clone(x: Tensor) -> Tensor:
    """A copy with storage of its own; derivatives flow through it."""
    return s.astype(x, x.dtype)


def _to(x: Tensor, target: Any = None, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The tensor on a device, of a dtype, or both."""
    if target is not None:
        if isinstance(target, str) and target.partition(":")[0] in ("cpu", "cuda", "gpu"):
            device = target
        elif hasattr(target, "mlir"):
            dtype = target
        else:
            device = target
    moved = x if device is None else to(x, device)
    return moved if dtype is None else s.astype(moved, dtype, copy=False)


def _to_device(x: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """`to(device)`, as the array API calls it. There is one stream per device: `stream` is None."""
    if stream is not None:
        raise InvalidValue(f"to_device: stream= expected None, got {stream!r} ({here()}).")
    return to(x, device)


def _size(x: Tensor, axis: int) -> int:
    """The extent of one axis."""
    return x.shape[normalize_axis(axis, x.ndim)]


def _split(x: Tensor, sizes: Any, axis: int = 0, *, dim: int | None = None) -> Any:
    """Pieces along an axis, of one size or of these; see `tg.split`."""
    return pieces.split(x, sizes, axis=axis, dim=dim)


def _reversed(x: Tensor) -> Tensor:
    """The axes in reversed order."""
    return views.permute_dims(x, tuple(reversed(range(x.ndim))))


def _positional_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction as a method: the axis may come without its name."""

    def method(x: Tensor, axis: Any = None, **options: Any) -> Any:
        return function(x, **options) if axis is None else function(x, axis=axis, **options)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


ARRAY_API = ("2021.12", "2022.12", "2023.12", "2024.12")
"""Versions of the array API standard whose functions there are."""

_REDUCTIONS = (
    r.sum, r.mean, r.var, r.std, r.prod, r.max, r.min, r.argmax, r.argmin, r.all, r.any,
    r.logsumexp, r.softmax, r.log_softmax, r.count_nonzero, along.cumulative_sum,
    along.cumulative_prod,
    sorting.sort, sorting.argsort,
)  # fmt: skip
_PLAIN = (
    s.abs, e.acos, e.acosh, s.angle, e.asin, e.asinh, s.astype, e.atan, e.atanh, e.ceil, s.clip,
    s.conj, e.cos, e.cosh, s.detach, e.erf, e.exp, e.expm1, e.floor, e.gelu, e.isfinite, e.isinf,
    e.isnan, e.log, e.log10, e.log1p, e.log2, s.pow, e.reciprocal, e.relu, e.round, e.rsqrt,
    e.sigmoid, s.sign, e.silu, e.sin, e.sinh, e.softplus, e.sqrt, e.square, e.tan, e.tanh, e.trunc,
    e.maximum, e.minimum, e.add, e.subtract, e.multiply, s.divide, e.negative,
    linear.matmul, losses.norm, indexing.gather, indexing.masked_fill, indexing.segment_sum,
    indexing.take, views.broadcast_to, views.expand_dims, views.flatten, pieces.flip, pieces.narrow,
    views.permute_dims, views.ravel, views.reshape, pieces.roll, views.squeeze, pieces.unstack,
    pieces.tile, pieces.repeat, along.cumsum, sorting.topk, inplace.add_, inplace.sub_,
    inplace.mul_, inplace.div_, inplace.copy_, inplace.fill_, inplace.zero_,
)  # fmt: skip
_NAMED: dict[str, Any] = {
    "permute": _permute, "transpose": _swap, "swapaxes": _swap, "expand": views.broadcast_to,
    "unsqueeze": views.expand_dims, "view": views.reshape, "clone": _clone, "copy": _clone,
    "to": _to, "to_device": _to_device, "extent": _size, "split": _split, "clamp": s.clip,
    "conjugate": s.conj,
    "segment_sum": indexing.scatter_add, "prepare": prepare, **inspection.METHODS,
}  # fmt: skip
_PROPERTIES: dict[str, Callable[[Tensor], Any]] = {
    "mT": views.matrix_transpose,
    "T": _reversed,
    "real": s.real,
    "imag": s.imag,
    "residency": residency.residency,
}


def cpu(x: Tensor) -> Tensor:
    """The tensor on the CPU: itself if it is there, else a copy with derivatives."""
    return to(x, "cpu").realize()


def cuda(x: Tensor, device: Any = "cuda") -> Tensor:
    """The tensor on a GPU: itself if it is there, else a copy with derivatives.

    Raises:
        InvalidValue: there is no such GPU here.
    """
    return to(x, f"cuda:{device}" if isinstance(device, int) else device)


def _save(x: Tensor, path: Any, *, overwrite: bool = False) -> Any:
    """Write the tensor to a file; see `tg.save`."""
    return snapshot.save(x, path, overwrite=overwrite)


def to_torch(x: Tensor, *, copy: bool = False) -> Any:
    """A torch tensor that shares the memory (or, with `copy`, has its own). What depends on
    connected torch tensors is part of torch's graph, with memory of its own."""
    from tiga.frontends.dlpack import torch_of
    from tiga.frontends.tensor.bridge import connected, to_torch_connected

    if nodes := connected(x) if x._grad else []:
        return to_torch_connected(x, nodes)
    if x.device != CPU:
        whole = s.astype(x, x.dtype) if copy else x
        return torch_of(whole._in_memory())
    array = x.numpy()
    return torch_of(array.copy() if copy or not array.flags.writeable else array)


def _dlpack(
    x: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
    copy: bool | None = None,
) -> Any:  # fmt: skip
    from tiga.frontends.dlpack import capsule, device_capsule

    if x.device != CPU:
        array: Any = x._in_memory()
        return device_capsule(
            array, stream, max_version=max_version, dl_device=dl_device, copy=copy
        )
    if stream is not None:
        raise InvalidValue(f"__dlpack__: expected no stream on the CPU, got {stream!r} ({here()}).")
    return capsule(x.numpy(), max_version=max_version, dl_device=dl_device, copy=copy)


def _dlpack_device(x: Tensor) -> tuple[int, int]:
    return (1, 0) if x.device == CPU else (2, x.device.index)


def _array_namespace(x: Tensor, /, *, api_version: str | None = None) -> Any:
    import tiga

    if api_version not in (None, *ARRAY_API):
        raise InvalidValue(
            f"api_version= expected one of {', '.join(ARRAY_API)}, got {api_version!r} ({here()})."
        )
    return tiga


def _gpu_indices(x: Tensor) -> Any:
    """The elements of a tensor on a GPU, as graphs take them; nobody else needs it."""
    from tiga.frontends.tensor.graph_indices import gpu_indices

    return gpu_indices(x)


def _index_template(x: Tensor) -> Any:
    """What makes tensors like this one of a graph's index arrays."""
    from tiga.frontends.tensor.graph_indices import index_template

    return index_template(x)


def _torch_function(
    cls: type, function: Any, types: Any, args: Any = (), kwargs: Any = None
) -> Any:  # fmt: skip
    """What torch asks for where one of its functions is given a native tensor: an error that says
    so, as torch would expect a `Tensor`, and not a `Tensor`."""
    import tiga

    name = function.__name__
    ours = f"tg.{name} on native tensors only, or " if hasattr(tiga, name) else ""
    raise InvalidType(
        f"torch's `{name}` expected torch tensors, got a native one ({here()}): use {ours}"
        "x.to_torch() on those."
    )


def install() -> None:
    """Give `Tensor` its methods."""
    for name, method in OPERATORS.items():
        setattr(Tensor, f"__{name}__", method)
    for function in _PLAIN:
        setattr(Tensor, function.__name__, function)
    for function in _REDUCTIONS:
        setattr(Tensor, function.__name__, _positional_axis(function))
    for name, special in {**_SPECIAL, **_NAMED, **copies.METHODS}.items():
        setattr(Tensor, name, special)
    for name, getter in _PROPERTIES.items():
        setattr(Tensor, name, property(getter))
    for name, dunder in {
        "cpu": cpu, "cuda": cuda, "save": _save, "spill": residency.spill,
        "_gpu_indices": _gpu_indices, "_index_template": _index_template,
        "to_torch": to_torch, "__dlpack__": _dlpack,
        "__dlpack_device__": _dlpack_device, "__array_namespace__": _array_namespace,
    }.items():  # fmt: skip
        setattr(Tensor, name, dunder)
    Tensor.__torch_function__ = classmethod(_torch_function)  # type: ignore[attr-defined]
    Tensor.__hash__ = object.__hash__  # type: ignore[method-assign, assignment]
