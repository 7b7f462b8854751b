"""ATen views and data movement along feature axes."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from tiga.errors import InvalidIndex, InvalidType, InvalidValue
from tiga.frontends.torch.capture.aten.lookup import rows_of
from tiga.frontends.torch.capture.aten.table import (
    Call,
    aten,
    feature_axis,
    promoted,
    rank,
    to_dtype,
    torch_shape,
)
from tiga.frontends.torch.dtypes import dtype_of
from tiga.ops.align import expand_to
from tiga.ops.feature import concat, permute, put, reshape, take
from tiga.ops.leaf import constant, stop_gradient
from tiga.trace.node import Node
from tiga.types import GLOBAL, Shape, Space, Type


def split_extent(call: Call, sizes: Sequence[int]) -> tuple[Space, Shape]:
    """The space and the feature shape of a full shape, whose entity axis must come first."""
    sizes = tuple(int(s) for s in sizes)
    space = call.extents.get(sizes[0], GLOBAL) if sizes else GLOBAL
    features = sizes if space == GLOBAL else sizes[1:]
    if any(s in call.extents for s in features):
        raise call.refuse_axis(f"aten.{call.name} moves")
    return space, features


def _full_size(call: Call, x: Node) -> list[int]:
    if x.type.space == GLOBAL:
        return list(x.type.shape)
    extent = next(e for e, space in call.extents.items() if space == x.type.space)
    return [extent, *x.type.shape]


def _inferred(call: Call, x: Node, sizes: Sequence[int]) -> list[int]:
    """`sizes` with -1 replaced by what is left of the elements."""
    total = math.prod(_full_size(call, x))
    known = math.prod(s for s in sizes if s != -1)
    return [total // known if s == -1 and known else int(s) for s in sizes]


@aten("view", "_unsafe_view", "reshape", "_reshape_copy", "view_copy", "_reshape_alias")
def _view(call: Call, x: Node, sizes: Sequence[int], strides: Any = None) -> Node:
    full = _inferred(call, x, sizes)
    if x.type.space == GLOBAL:
        return reshape(x, tuple(full))
    keeps = bool(full) and call.extents.get(full[0]) == x.type.space
    if not keeps or math.prod(full[1:]) != x.type.size:
        raise call.refuse_axis(f"aten.{call.name} to {list(sizes)} merges or drops")
    return reshape(x, tuple(full[1:]))


@aten("alias", "contiguous", "clone", "positive", "lift_fresh", "lift")
def _same(call: Call, x: Node, memory_format: Any = None) -> Node:
    return x


@aten("detach")
def _detach(call: Call, x: Node) -> Node:
    return stop_gradient(x) if x.type.dtype.is_float else x


@aten("_to_copy")
def _to_copy(call: Call, x: Node, *, dtype: Any = None, device: Any = None, **layout: Any) -> Node:
    if device is not None and device.type not in ("cpu", "meta"):
        raise InvalidType(f"{call.where}: a value inside `edge` cannot move to device {device}.")
    return x if dtype is None else to_dtype(x, dtype_of(dtype, "a conversion"))


@aten("unsqueeze")
def _unsqueeze(call: Call, x: Node, dim: int) -> Node:
    axis = feature_axis(call, x, dim, extra=1)
    shape = x.type.shape
    return reshape(x, (*shape[:axis], 1, *shape[axis:]))


def _squeezed(x: Node, axes: Sequence[int]) -> Node:
    shape = x.type.shape
    kept = [n for i, n in enumerate(shape) if not (i in axes and n == 1)]
    return reshape(x, tuple(kept))


@aten("squeeze")
def _squeeze(call: Call, x: Node) -> Node:
    return _squeezed(x, range(len(x.type.shape)))


@aten("squeeze.dim")
def _squeeze_dim(call: Call, x: Node, dim: int) -> Node:
    return _squeezed(x, [feature_axis(call, x, dim)])


@aten("squeeze.dims")
def _squeeze_dims(call: Call, x: Node, dims: Sequence[int]) -> Node:
    return _squeezed(x, [feature_axis(call, x, d) for d in dims])


@aten("expand")
def _expand(call: Call, x: Node, sizes: Sequence[int], *, implicit: bool = False) -> Node:
    own = _full_size(call, x)
    lead = len(sizes) - len(own)
    full = [own[i - lead] if s == -1 else int(s) for i, s in enumerate(sizes)]
    space, features = split_extent(call, full)
    if x.type.space != GLOBAL and (space != x.type.space or lead):
        raise call.refuse_axis(f"aten.{call.name} to {list(sizes)} repeats")
    shape = x.type.shape
    if space != x.type.space and len(shape) == len(sizes):
        x = reshape(x, shape[1:])
    return expand_to(x, features, space)


@aten("repeat")
def _repeat(call: Call, x: Node, repeats: Sequence[int]) -> Node:
    lead = len(repeats) - rank(x)
    shape = (1,) * max(lead, 0) + x.type.shape
    if x.type.space == GLOBAL and repeats and repeats[0] in call.extents and shape[0] == 1:
        x = _repeat(call, reshape(x, shape[1:]), repeats[1:])
        return expand_to(x, x.type.shape, call.extents[repeats[0]])
    if x.type.space != GLOBAL:
        if lead or repeats[0] != 1:
            raise call.refuse_axis("aten.repeat repeats")
        repeats = repeats[1:]
    x = reshape(x, shape)
    for axis, times in enumerate(repeats):
        x = take(x, axis, tuple(range(shape[axis])) * times)
    return x


@aten("permute")
def _permute(call: Call, x: Node, dims: Sequence[int]) -> Node:
    axes = [d % rank(x) for d in dims]
    if x.type.space == GLOBAL:
        return permute(x, tuple(axes))
    if axes[0] != 0:
        raise call.refuse_axis("aten.permute moves")
    return permute(x, tuple(a - 1 for a in axes[1:]))


@aten("transpose.int")
def _transpose(call: Call, x: Node, dim0: int, dim1: int) -> Node:
    if not x.type.shape and x.type.space == GLOBAL:
        return x
    a, b = feature_axis(call, x, dim0), feature_axis(call, x, dim1)
    axes = list(range(len(x.type.shape)))
    axes[a], axes[b] = axes[b], axes[a]
    return permute(x, tuple(axes))


@aten("t")
def _t(call: Call, x: Node) -> Node:
    if x.type.space != GLOBAL:
        if rank(x) == 1:
            return x
        raise call.refuse_axis("aten.t transposes")
    return permute(x, (1, 0)) if rank(x) == 2 else x


def _pick(x: Node, axis: int, positions: Sequence[int]) -> Node:
    whole = tuple(positions) == tuple(range(x.type.shape[axis]))
    return x if whole else take(x, axis, tuple(positions))


def _drop(x: Node, axis: int) -> Node:
    return reshape(x, x.type.shape[:axis] + x.type.shape[axis + 1 :])


@aten("select.int")
def _select(call: Call, x: Node, dim: int, index: int) -> Node:
    axis = feature_axis(call, x, dim)
    extent = x.type.shape[axis]
    if not -extent <= index < extent:
        raise InvalidIndex(
            f"{call.where}: expected an index of axis {dim} from {-extent} to {extent - 1}, as the "
            f"value has shape {torch_shape(x)}; got {index}."
        )
    return _drop(take(x, axis, (index % extent,)), axis)


@aten("slice.Tensor")
def _slice(call: Call, x: Node, dim: int = 0, start: int | None = None, end: int | None = None,
           step: int = 1) -> Node:  # fmt: skip
    whole = start in (None, 0) and (end is None or end >= 2**62) and step == 1
    if whole and x.type.space != GLOBAL and dim % rank(x) == 0:
        return x
    axis = feature_axis(call, x, dim)
    picked = range(*slice(start, end, step).indices(x.type.shape[axis]))
    return _pick(x, axis, picked)


def _runs(x: Node, axis: int, sizes: Sequence[int]) -> list[Node]:
    stops = itertools.accumulate(sizes, initial=0)
    return [_pick(x, axis, range(lo, hi)) for lo, hi in itertools.pairwise(stops)]


@aten("split_with_sizes", "split.sizes", "unsafe_split_with_sizes")
def _split_sizes(call: Call, x: Node, sizes: Sequence[int], dim: int = 0) -> list[Node]:
    return _runs(x, feature_axis(call, x, dim), sizes)


@aten("split.Tensor", "unsafe_split.Tensor")
def _split(call: Call, x: Node, size: int, dim: int = 0) -> list[Node]:
    axis = feature_axis(call, x, dim)
    extent = x.type.shape[axis]
    starts = range(0, extent, size) if extent else (0,)  # of nothing, one piece
    return _runs(x, axis, [min(size, extent - lo) for lo in starts])


@aten("unbind.int")
def _unbind(call: Call, x: Node, dim: int = 0) -> list[Node]:
    axis = feature_axis(call, x, dim)
    return [_drop(take(x, axis, (i,)), axis) for i in range(x.type.shape[axis])]


def _joined(call: Call, parts: Sequence[Node]) -> list[Node]:
    """Parts of one dtype and space; a global part is given to every entity."""
    out = promoted(call, *parts)
    space = next((x.type.space for x in parts if x.type.space != GLOBAL), GLOBAL)
    if len({rank(x) for x in parts}) > 1:
        shapes = ", ".join(map(torch_shape, parts))
        raise InvalidValue(
            f"{call.where}: aten.{call.name} cannot join shapes {shapes}, whose axes differ in "
            f"number: give a per-entity scalar its feature axis with `x.unsqueeze(-1)` or "
            f"`x[:, None]`."
        )
    if space != GLOBAL and any(x.type.space != space for x in parts):
        shapes = ", ".join(map(torch_shape, parts))
        raise call.refuse_axis(f"aten.{call.name} of {shapes} needs the extent of")
    return [to_dtype(x, out) for x in parts]


@aten("cat")
def _cat(call: Call, tensors: Sequence[Node], dim: int = 0) -> Node:
    parts = _joined(call, tensors)
    return concat(feature_axis(call, parts[0], dim), *parts)


@aten("stack")
def _stack(call: Call, tensors: Sequence[Node], dim: int = 0) -> Node:
    parts = _joined(call, tensors)
    axis = feature_axis(call, parts[0], dim, extra=1)
    shape = parts[0].type.shape
    return concat(axis, *(reshape(x, (*shape[:axis], 1, *shape[axis:])) for x in parts))


@aten("flip")
def _flip(call: Call, x: Node, dims: Sequence[int]) -> Node:
    for dim in dims:
        axis = feature_axis(call, x, dim)
        x = _pick(x, axis, range(x.type.shape[axis])[::-1])
    return x


@aten("roll")
def _roll(call: Call, x: Node, shifts: Sequence[int], dims: Sequence[int] = ()) -> Node:
    if not dims:
        if x.type.space != GLOBAL:
            raise call.refuse_axis("aten.roll without dims moves elements along")
        flat = reshape(x, (x.type.size,))
        return reshape(_roll(call, flat, shifts, (0,)), x.type.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        axis = feature_axis(call, x, dim)
        extent = x.type.shape[axis]
        x = _pick(x, axis, [(i - shift) % extent for i in range(extent)])
    return x


@aten("constant_pad_nd")
def _pad(call: Call, x: Node, pad: Sequence[int], value: float = 0) -> Node:
    for i in range(0, len(pad), 2):
        axis = feature_axis(call, x, -1 - i // 2)
        x = _padded(call, x, axis, int(pad[i]), int(pad[i + 1]), value)
    return x


def _padded(call: Call, x: Node, axis: int, low: int, high: int, value: float) -> Node:
    if low < 0 or high < 0:
        extent = x.type.shape[axis]
        x = _pick(x, axis, range(max(-low, 0), extent - max(-high, 0)))
        low, high = max(low, 0), max(high, 0)
    extent = x.type.shape[axis]
    if value == 0:
        return put(x, axis, tuple(range(low, low + extent)), low + extent + high)
    parts = [x]
    for width, at in ((low, 0), (high, 2)):
        if width:
            shape = (*x.type.shape[:axis], width, *x.type.shape[axis + 1 :])
            parts.insert(at, constant(value, x.type.with_shape(shape)))
    return concat(axis, *parts)


def _static(call: Call, index: Any) -> list[int]:
    """The positions in a constant index tensor."""
    if isinstance(index, Node):
        raise call.unfusable("an index that is computed per edge")
    return [int(i) for i in index.reshape(-1).tolist()]


@aten("index_select")
def _index_select(call: Call, x: Node, dim: int, index: Any) -> Node:
    if isinstance(index, Node) and x.type.space == GLOBAL and dim % max(rank(x), 1) == 0:
        return rows_of(call, x, index, 0)
    return take(x, feature_axis(call, x, dim), tuple(_static(call, index)))


@aten("index.Tensor")
def _index(call: Call, x: Node, indices: Sequence[Any]) -> Node:
    """One static list of positions along a feature axis, as in `x[:, [0, 2]]`."""
    if x.type.space != GLOBAL and indices[0] is not None:
        raise call.refuse_axis("indexing picks along")
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) != 1:
        raise call.unfusable("indexing along several axes at once")
    dim, index = given[0]
    if isinstance(index, Node) and index.type.dtype.is_float:
        raise InvalidType(
            f"{call.where}: an index holds integers or bools; got {index.type.dtype}: convert it, "
            f"say with `.long()`."
        )
    if isinstance(index, Node) and dim == 0 and index.type.dtype.kind in "iu":
        return rows_of(call, x, index, -x.type.shape[0])
    if isinstance(index, Node) or index.dtype.is_floating_point or index.dim() != 1:
        raise call.unfusable("an index that is not a constant list of positions")
    axis = feature_axis(call, x, dim)
    extent = x.type.shape[axis]
    positions = _static(call, index)
    if str(index.dtype) == "torch.bool":
        positions = [i for i, wanted in enumerate(positions) if wanted]
    return take(x, axis, tuple(i % extent for i in positions))


@aten("new_full", "new_zeros")
def _new_full(call: Call, x: Node, sizes: Sequence[int], value: Any = 0, *, dtype: Any = None,
              **layout: Any) -> Node:  # fmt: skip
    space, features = split_extent(call, sizes)
    chosen = x.type.dtype if dtype is None else dtype_of(dtype)
    return constant(value, Type(chosen, features, space))


@aten("new_ones")
def _new_ones(call: Call, x: Node, sizes: Sequence[int], **options: Any) -> Node:
    return _new_full(call, x, sizes, 1, **options)


@aten("full_like", "zeros_like", "empty_like", "fill.Scalar", "zero")
def _full_like(call: Call, x: Node, value: Any = 0, *, dtype: Any = None, **layout: Any) -> Node:
    return constant(value, x.type if dtype is None else x.type.with_dtype(dtype_of(dtype)))


@aten("ones_like")
def _ones_like(call: Call, x: Node, **options: Any) -> Node:
    return _full_like(call, x, 1, **options)


@aten("copy")
def _copy(call: Call, x: Node, source: Node, non_blocking: bool = False) -> Node:
    if source.type.space not in (GLOBAL, x.type.space):
        raise call.refuse_axis("copying moves values between")
    return expand_to(to_dtype(source, x.type.dtype), x.type.shape, x.type.space)
