"""The methods of `Tensor`, from the functions."""

from collections.abc import Callable
from typing import Any

from tiga.frontends.tensor import copies, inplace, inspection, interchange, moving
from tiga.frontends.tensor.arguments import normalize_axis
from tiga.frontends.tensor.build import same
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions import along, indexing, linear, losses, pieces, sorting, views
from tiga.frontends.tensor.functions import elementwise as e
from tiga.frontends.tensor.functions import reductions as r
from tiga.frontends.tensor.functions import selection as s
from tiga.frontends.tensor.memory import residency, snapshot
from tiga.frontends.tensor.operators import OPERATORS
from tiga.frontends.tensor.prepared import prepare


def _invert(x: Tensor) -> Any:
    return s.logical_not(x) if x.dtype.kind == "b" else e.bitwise_invert(x)


def _permute(x: Tensor, *axes: Any) -> Tensor:
    """The axes in another order, as `permute_dims`."""
    return views.permute_dims(x, *axes)


def _swap(x: Tensor, dim0: int = -1, dim1: int = -2) -> Tensor:
    """Two axes exchanged; the last two by default."""
    return views.transpose(x, dim0, dim1)


def _clone(x: Tensor) -> Tensor:
    """A copy with storage of its own; derivatives flow through it."""
    return s.astype(x, x.dtype)


def _size(x: Tensor, axis: int) -> int:
    """The extent of one axis."""
    return x.shape[normalize_axis(axis, x.ndim)]


def _split(x: Tensor, sizes: Any, axis: int = 0, *, dim: int | None = None) -> Any:
    """Pieces along an axis, of one size or of these; see `tg.split`."""
    return pieces.split(x, sizes, axis=axis, dim=dim)


def _reversed(x: Tensor) -> Tensor:
    """The axes in reversed order."""
    return views.permute_dims(x, tuple(reversed(range(x.ndim))))


def _save(x: Tensor, path: Any, *, overwrite: bool = False) -> Any:
    """Write the tensor to a file; see `tg.save`."""
    return snapshot.save(x, path, overwrite=overwrite)


def _positional_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction as a method: the axis may come without its name."""

    def method(x: Tensor, axis: Any = None, **options: Any) -> Any:
        return function(x, **options) if axis is None else function(x, axis=axis, **options)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


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
    "__neg__": e.negative, "__pos__": same, "__abs__": s.abs, "__invert__": _invert,
    "__getitem__": indexing.getitem, "__setitem__": inplace.setitem,
    "permute": _permute, "transpose": _swap, "swapaxes": _swap, "expand": views.broadcast_to,
    "unsqueeze": views.expand_dims, "view": views.reshape, "clone": _clone, "copy": _clone,
    "extent": _size, "split": _split, "clamp": s.clip, "conjugate": s.conj,
    "segment_sum": indexing.scatter_add, "prepare": prepare, "save": _save,
    "spill": residency.spill,
}  # fmt: skip
_PROPERTIES: dict[str, Callable[[Tensor], Any]] = {
    "mT": views.matrix_transpose,
    "T": _reversed,
    "real": s.real,
    "imag": s.imag,
    "residency": residency.residency,
}


def install() -> None:
    """Give `Tensor` its methods."""
    given: dict[str, Any] = {
        **{f"__{name}__": method for name, method in OPERATORS.items()},
        **{function.__name__: function for function in _PLAIN},
        **{function.__name__: _positional_axis(function) for function in _REDUCTIONS},
        **{name: property(getter) for name, getter in _PROPERTIES.items()},
        **_NAMED, **copies.METHODS, **inspection.METHODS, **interchange.METHODS, **moving.METHODS,
    }  # fmt: skip
    for name, method in given.items():
        setattr(Tensor, name, method)
