"""What `x.shape` is inside `edge` and `node`: the entity axis can be restated, but not read."""

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from tiga.errors import InvalidValue, Unfusable
from tiga.frontends.torch.capture.where import asking_file

Where = Callable[[], str]

_TRANSFORMS = "_functorch"
"""The folder of torch's function transforms."""


class Extent(torch.SymInt):
    """The number of edges or nodes as far as a traced function may know it.

    Handing it back to torch as a leading extent, as in `x.view(x.shape[0], -1)`, is fine, and so is
    comparing it with itself; any other use is refused, because a program serves every number of
    edges. It is a SymInt so that torch's argument parser lets it pass to where calls are recorded.
    """

    def __init__(self, size: int, where: Where) -> None:
        self.size = size
        self._where = where

    def _refuse(self, *_: Any) -> NoReturn:
        raise InvalidValue(
            f"{self._where()}: this reads how many edges (or nodes) there are. One program serves "
            f"every graph, so `edge` and `node` cannot depend on that number; pass it as a "
            f"parameter of the call, `kernel(graph=..., n=graph.num_edges)`, if it is needed."
        )

    def _is_itself(self, other: Any) -> bool:
        return True if other is self else self._refuse()

    def _is_not_itself(self, other: Any) -> bool:
        return not self._is_itself(other)

    __eq__ = __le__ = __ge__ = _is_itself
    __ne__ = __lt__ = __gt__ = _is_not_itself
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __pow__ = __rpow__ = __neg__ = __abs__ = _refuse
    __int__ = __float__ = __index__ = __bool__ = __str__ = __repr__ = __format__ = _refuse
    __hash__ = object.__hash__

    @property
    def node(self) -> NoReturn:
        """What torch's own shape arithmetic, such as `torch.broadcast_shapes`, asks for."""
        if _TRANSFORMS in asking_file():
            raise Unfusable(f"torch.vmap over edges or nodes ({self._where()})")
        self._refuse()


class Shape(tuple[Any, ...]):
    """The shape of a traced value: an Extent first if it has an entity axis."""

    __slots__ = ()

    def __repr__(self) -> str:
        known = ("entities" if isinstance(extent, Extent) else str(extent) for extent in self)
        return f"[{', '.join(known)}]"

    def numel(self) -> int:
        """Number of elements, which counts entities unless the value is global."""
        total = 1
        for extent in self:
            total = extent * total
        return total
