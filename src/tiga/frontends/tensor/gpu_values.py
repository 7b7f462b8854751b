"""What looks at values on a GPU: where they are true, and which are distinct.

How many elements a result has is a value, so that its number is copied to the CPU, which waits for
it; `Tensor.execution` says so. The elements stay on the GPU.
"""

from typing import Any

from tiga.backends.triton.dense.moves import contiguous
from tiga.backends.triton.index_arrays import ARRAYS, IndexArray, index_array
from tiga.errors import InvalidType
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.graph_indices import plain
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.storage import wrap
from tiga.runtime.device_array import DeviceArray
from tiga.types import bool_


def _looked_at(array: DeviceArray, what: str) -> Tensor:
    """A tensor whose number of elements was waited for."""
    made = wrap(array)  # type: ignore[arg-type]
    made._execution = {
        "backend": "cuda-triton", "library_calls": (what,),
        "waited_for": "the number of elements", "saved_bytes": 0,
    }  # fmt: skip
    return made


def flat(x: Tensor) -> IndexArray:
    """A computed tensor's elements one after another."""
    array: Any = contiguous(x._in_memory())
    return index_array(array.reshape(array.size))


def _split(places: IndexArray, shape: tuple[int, ...]) -> list[IndexArray]:
    """Row-major positions as one position per axis."""
    found = []
    for extent in reversed(shape):
        above = places // max(extent, 1)
        found.append(places - above * max(extent, 1))
        places = above
    return found[::-1]


def true_positions(x: Tensor, what: str = "nonzero") -> tuple[Tensor, ...]:
    """The positions of elements that are not 0, one tensor per axis."""
    mask: Any = x if x.dtype == bool_ else x != 0
    places = ARRAYS.where(flat(mask))
    return tuple(_looked_at(plain(one), what) for one in _split(places, x.shape))


def distinct(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The distinct elements in order, where each is first, which of them each element is, and how
    often each is there.

    Raises:
        InvalidType: complex numbers, which have no order.
    """
    from tiga.frontends.tensor.functions.sorting import argsort

    if x.dtype.is_complex:
        raise InvalidType(f"unique of complex numbers on a GPU, which have no order ({here()}).")
    line = x.reshape(-1)
    order = argsort(line)
    ordered = line[order]
    where = flat(order)
    heads = flat(ordered[1:] != ordered[:-1]) if x.size > 1 else where[:0]
    starts = ARRAYS.where(heads) + 1
    if x.size:
        starts = ARRAYS.join([ARRAYS.full(where, 1, 0), starts])
    ends = ARRAYS.join([starts[1:], ARRAYS.full(where, min(x.size, 1), x.size)])
    ranks = ARRAYS.rows(ARRAYS.join([starts, ARRAYS.full(where, 1, x.size)]), x.size)
    inverse = ARRAYS.put(ARRAYS.full(where, x.size, 0), where, ranks)
    values = ordered[wrap(plain(starts))]  # type: ignore[arg-type]
    found = [_looked_at(plain(one), "unique") for one in (where[starts], inverse, ends - starts)]
    return values, found[0], found[1].reshape(x.shape), found[2]
