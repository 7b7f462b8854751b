"""New tensors with a structure: evenly spaced numbers, identities, grids."""

from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.arguments import integer
from tiga.frontends.tensor.build import as_tensor
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.dtypes import DEFAULT_FLOAT, DEFAULT_INT, check_dtype, result_dtype
from tiga.frontends.tensor.functions.creation import finish
from tiga.frontends.tensor.functions.views import broadcast_to, reshape
from tiga.frontends.tensor.lazy import here

LARGEST = 2**63
"""Bounds of grids, in size."""


def arange(
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The numbers from `start` (0 when only one bound is given) up to `stop`, `step` apart.

    Example:
        >>> import tiga as tg
        >>> tg.arange(1, 7, 2).tolist()
        [1, 3, 5]
    """
    if stop is None:
        start, stop = 0, start
    for value in (start, stop, step):
        if not isinstance(value, (int, float, np.integer, np.floating)):
            raise InvalidType(f"arange expected numbers, got {value!r} ({here()}).")
    if not all(abs(value) <= LARGEST for value in (start, stop, step)):  # NaN is not, either
        raise InvalidValue(
            f"arange expected numbers up to 2^63, got {start!r}, {stop!r}, {step!r} ({here()})."
        )
    if step == 0:
        raise InvalidValue(f"arange: step= must not be 0 ({here()}).")
    floats = any(isinstance(v, (float, np.floating)) for v in (start, stop, step))
    kind = (DEFAULT_FLOAT if floats else DEFAULT_INT) if dtype is None else check_dtype(dtype)
    return finish(np.arange(start, stop, step).astype(kind.numpy), requires_grad, device)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
    requires_grad: bool = False,
) -> Tensor:
    """`num` evenly spaced numbers from `start` to `stop`, which is included unless told.

    Example:
        >>> import tiga as tg
        >>> tg.linspace(0.0, 1.0, 3).tolist()
        [0.0, 0.5, 1.0]
    """
    num = integer(num, "num=", 0)
    for bound in (start, stop):
        if not isinstance(bound, (int, float, complex)):
            raise InvalidType(f"linspace expected numbers, got {bound!r} ({here()}).")
    kind = result_dtype(0.0 * start + 0.0 * stop) if dtype is None else check_dtype(dtype)
    values = np.linspace(start, stop, num, endpoint=endpoint)
    return finish(values.astype(kind.numpy), requires_grad, device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A matrix with ones on diagonal number `k`.

    Example:
        >>> import tiga as tg
        >>> tg.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    kind = DEFAULT_FLOAT if dtype is None else check_dtype(dtype)
    n_rows = integer(n_rows, "eye", 0)
    n_cols = n_rows if n_cols is None else integer(n_cols, "eye", 0)
    return finish(np.eye(n_rows, n_cols, k, kind.numpy), requires_grad, device)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """Coordinate tensors of a grid, from one axis of coordinates each.

    Example:
        >>> import tiga as tg
        >>> a, b = tg.meshgrid(tg.arange(2), tg.arange(3))
        >>> a.shape
        (3, 2)
    """
    if indexing not in ("xy", "ij"):
        raise InvalidValue(
            f"meshgrid: indexing= expected 'xy' or 'ij', got {indexing!r} ({here()})."
        )
    arrays = tuple([as_tensor(array, "meshgrid") for array in arrays])
    rank = len(arrays)
    places = list(range(rank))
    if indexing == "xy" and rank > 1:
        places[0], places[1] = 1, 0
    shape = [0] * rank
    for array, place in zip(arrays, places, strict=True):
        shape[place] = array.size
    grids = []
    for array, place in zip(arrays, places, strict=True):
        line = reshape(array, tuple(-1 if axis == place else 1 for axis in range(rank)))
        grids.append(broadcast_to(line, tuple(shape)))
    return grids
