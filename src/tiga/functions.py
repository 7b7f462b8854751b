"""Functions that reduce a tensor when they are given one, and are reducers of messages otherwise.

tg.sum(x, axis=0)    the array function, of a native tensor or a torch tensor
tg.sum()             the reducer: what `MessagePassing.reducer` takes
"""

import sys
from typing import Any

from tiga import reducers
from tiga.errors import InvalidType, InvalidValue
from tiga.runtime.caller import user_line

_NOTHING: Any = object()


def _torch_call(name: str, x: Any, axis: Any, keepdims: bool, **options: Any) -> Any:
    """torch's function of this name on a torch tensor."""
    torch = sys.modules["torch"]
    given = {key: value for key, value in options.items() if value is not None}
    if axis is None and not keepdims:
        return getattr(torch, name)(x, **given)
    dim = tuple(range(x.dim())) if axis is None else axis
    return getattr(torch, name)(x, dim=dim, keepdim=keepdims, **given)


def _is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _axis(axis: Any, dim: Any) -> Any:
    if axis is not None and dim is not None:
        raise InvalidValue(f"axis= and dim= are one argument: give one of them ({user_line()}).")
    return dim if axis is None else axis


def _only_arrays(name: str, **given: Any) -> None:
    """Refuse array arguments of a reducer."""
    wrong = [key for key, value in given.items() if value is not None and value is not False]
    if wrong:
        raise InvalidType(f"tg.{name}: {wrong[0]}= needs a tensor; without one this is a reducer.")


def _reduce(name: str, torch_name: str, x: Any, axis: Any, keepdims: bool, **options: Any) -> Any:
    if _is_torch(x):
        return _torch_call(torch_name, x, axis, keepdims, **options)
    from tiga.frontends.tensor.functions import reductions

    given = {key: value for key, value in options.items() if value is not None}
    return getattr(reductions, name)(x, axis=axis, keepdims=keepdims, **given)


def sum(
    x: Any = _NOTHING, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False,
    dim: Any = None, keepdim: bool = False, empty: str = "default",
) -> Any:  # fmt: skip
    """The sum over axes of a tensor (all by default), or the summing reducer.

    Sums of floats add by blocks and pairs, 16-bit ones in float32; integers sum in int64. As a
    reducer: 0 for an empty row.

    Args:
        x: a tensor; without one the result is a reducer.
        axis, keepdims: which axes, and whether they stay with extent 1 (also `dim`, `keepdim`).
        dtype: the type to sum in.
        empty: for the reducer, what an empty row gives.

    Example:
        >>> import tiga as tg
        >>> tg.sum(tg.tensor([[1, 2], [3, 4]]), axis=0).tolist()
        [4, 6]
        >>> tg.sum()
        Sum(empty='default')
    """
    if x is _NOTHING:
        _only_arrays("sum", axis=axis, dtype=dtype, keepdims=keepdims, dim=dim, keepdim=keepdim)
        return reducers.Sum(empty=empty)
    return _reduce("sum", "sum", x, _axis(axis, dim), keepdims or keepdim, dtype=dtype)


def mean(
    x: Any = _NOTHING, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None,
    keepdim: bool = False, empty: str = "default",
) -> Any:  # fmt: skip
    """The mean over axes of a tensor (all by default), or the averaging reducer.

    Example:
        >>> import tiga as tg
        >>> tg.mean(tg.tensor([1.0, 3.0])).item()
        2.0
    """
    if x is _NOTHING:
        _only_arrays("mean", axis=axis, keepdims=keepdims, dim=dim, keepdim=keepdim)
        return reducers.Mean(empty=empty)
    return _reduce("mean", "mean", x, _axis(axis, dim), keepdims or keepdim)


def max(
    x: Any = _NOTHING, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None,
    keepdim: bool = False, empty: str = "default",
) -> Any:  # fmt: skip
    """The maximum over axes of a tensor (all by default), or the maximum reducer.

    NaN wins; ties share the derivative evenly. As a reducer: 0 for an empty row, or -inf with
    `empty="identity"`.

    Example:
        >>> import tiga as tg
        >>> tg.max(tg.tensor([1.0, 3.0, 2.0])).item()
        3.0
    """
    if x is _NOTHING:
        _only_arrays("max", axis=axis, keepdims=keepdims, dim=dim, keepdim=keepdim)
        return reducers.Max(empty=empty)
    return _reduce("max", "amax", x, _axis(axis, dim), keepdims or keepdim)


def min(
    x: Any = _NOTHING, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None,
    keepdim: bool = False, empty: str = "default",
) -> Any:  # fmt: skip
    """The minimum over axes of a tensor (all by default), or the minimum reducer; as `max`.

    Example:
        >>> import tiga as tg
        >>> tg.min(tg.tensor([3.0, 1.0, 2.0])).item()
        1.0
    """
    if x is _NOTHING:
        _only_arrays("min", axis=axis, keepdims=keepdims, dim=dim, keepdim=keepdim)
        return reducers.Min(empty=empty)
    return _reduce("min", "amin", x, _axis(axis, dim), keepdims or keepdim)


def prod(
    x: Any = _NOTHING, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False,
    dim: Any = None, keepdim: bool = False, empty: str = "default",
) -> Any:  # fmt: skip
    """The product over axes of a tensor (all by default), or the multiplying reducer.

    Derivatives are exact with any number of zeros. As a reducer: 1 for an empty row.

    Example:
        >>> import tiga as tg
        >>> tg.prod(tg.tensor([2.0, 3.0])).item()
        6.0
    """
    if x is _NOTHING:
        _only_arrays("prod", axis=axis, dtype=dtype, keepdims=keepdims, dim=dim, keepdim=keepdim)
        return reducers.Prod(empty=empty)
    return _reduce("prod", "prod", x, _axis(axis, dim), keepdims or keepdim, dtype=dtype)


def _whole(correction: Any) -> int:
    """The correction of a reducer: what rows of a graph are counted by."""
    if isinstance(correction, (int, float)) and float(correction).is_integer():
        return int(correction)
    raise InvalidValue(
        f"the reducers var and std expected a whole number as correction=, got {correction!r} "
        f"({user_line()})."
    )


def var(
    x: Any = _NOTHING, /, *, axis: Any = None, correction: float = 0, keepdims: bool = False,
    dim: Any = None, keepdim: bool = False, empty: str = "default",
) -> Any:  # fmt: skip
    """The variance over axes of a tensor (all by default), or the variance reducer.

    `correction` is subtracted from the count (0: of a population, 1: of a sample).

    Example:
        >>> import tiga as tg
        >>> tg.var(tg.tensor([1.0, 3.0])).item()
        1.0
    """
    if x is _NOTHING:
        _only_arrays("var", axis=axis, keepdims=keepdims, dim=dim, keepdim=keepdim)
        return reducers.Var(empty=empty, correction=_whole(correction))
    keep = keepdims or keepdim
    return _reduce("var", "var", x, _axis(axis, dim), keep, correction=correction)


def std(
    x: Any = _NOTHING, /, *, axis: Any = None, correction: float = 0, keepdims: bool = False,
    dim: Any = None, keepdim: bool = False, empty: str = "default",
) -> Any:  # fmt: skip
    """The standard deviation over axes of a tensor (all by default), or the reducer; as `var`.

    Its derivative where it is 0 is 0.

    Example:
        >>> import tiga as tg
        >>> tg.std(tg.tensor([1.0, 3.0])).item()
        1.0
    """
    if x is _NOTHING:
        _only_arrays("std", axis=axis, keepdims=keepdims, dim=dim, keepdim=keepdim)
        return reducers.Std(empty=empty, correction=_whole(correction))
    keep = keepdims or keepdim
    return _reduce("std", "std", x, _axis(axis, dim), keep, correction=correction)


def softmax(
    x: Any = _NOTHING, /, *, axis: Any = None, dim: Any = None, empty: str = "default"
) -> Any:
    """exp(x) / sum(exp(x)) along an axis of a tensor (the last by default), or the reducer that
    sums values weighted by the softmax of their scores.

    Example:
        >>> import tiga as tg
        >>> tg.softmax(tg.tensor([0.0, 0.0])).tolist()
        [0.5, 0.5]
    """
    if x is _NOTHING:
        _only_arrays("softmax", axis=axis, dim=dim)
        return reducers.Softmax(empty=empty)
    place = _axis(axis, dim)
    place = -1 if place is None else place
    if _is_torch(x):
        return sys.modules["torch"].softmax(x, place)
    from tiga.frontends.tensor.functions import reductions

    return reductions.softmax(x, axis=place)


def logsumexp(
    x: Any = _NOTHING, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None,
    keepdim: bool = False, empty: str = "default",
) -> Any:  # fmt: skip
    """log(sum(exp(x))) over axes of a tensor (all by default) without overflow, or the reducer.

    Example:
        >>> import tiga as tg
        >>> tg.logsumexp(tg.tensor([0.0, 0.0])).item()
        0.6931471824645996
    """
    if x is _NOTHING:
        _only_arrays("logsumexp", axis=axis, keepdims=keepdims, dim=dim, keepdim=keepdim)
        return reducers.LogSumExp(empty=empty)
    axis = _axis(axis, dim)
    if _is_torch(x) and axis is None:
        axis = tuple(range(x.dim()))
    return _reduce("logsumexp", "logsumexp", x, axis, keepdims or keepdim)


def argmax(
    x: Any = _NOTHING, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None,
    keepdim: bool = False,
) -> Any:  # fmt: skip
    """The position of the maximum along an axis of a tensor (of the flattened tensor by default),
    or the reducer that gives the number of the edge with the largest message.

    The first of ties. As a reducer: int64, counted in the order in which the graph's edges were
    given; -1 for an empty row.

    Example:
        >>> import tiga as tg
        >>> tg.argmax(tg.tensor([1.0, 3.0, 2.0])).item()
        1
    """
    return _position("argmax", reducers.ArgMax, x, _axis(axis, dim), keepdims or keepdim)


def argmin(
    x: Any = _NOTHING, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None,
    keepdim: bool = False,
) -> Any:  # fmt: skip
    """The position of the minimum along an axis, or the reducer; as `argmax`.

    Example:
        >>> import tiga as tg
        >>> tg.argmin(tg.tensor([3.0, 1.0, 2.0])).item()
        1
    """
    return _position("argmin", reducers.ArgMin, x, _axis(axis, dim), keepdims or keepdim)


def _position(name: str, reducer: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    if x is _NOTHING:
        _only_arrays(name, axis=axis, keepdims=keepdims)
        return reducer()
    if _is_torch(x):
        return getattr(sys.modules["torch"], name)(x, dim=axis, keepdim=keepdims)
    from tiga.frontends.tensor.functions import reductions

    return getattr(reductions, name)(x, axis=axis, keepdims=keepdims)
