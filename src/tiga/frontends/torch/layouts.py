"""How values are laid out in tensors of torch, on a graph whose sizes are known at a call."""

from dataclasses import dataclass

import torch

from tiga.frontends.spaces import EXTENTS
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.relations.snapshot import Snapshot
from tiga.types import GLOBAL, Type


@dataclass(frozen=True)
class ValueLayout:
    """How to allocate a value: dtype, which extent of the graph leads it, feature shape."""

    dtype: torch.dtype
    extent: str | None
    shape: tuple[int, ...]

    def of(self, topology: Snapshot) -> tuple[int, ...]:
        """The shape of the whole value on a graph."""
        if self.extent is None:
            return self.shape
        return (getattr(topology, self.extent), *self.shape)


def layout_of(of: Type) -> ValueLayout:
    """The layout of values of a type."""
    lead = None if of.space == GLOBAL else EXTENTS[of.space.name]
    return ValueLayout(torch_dtype(of.dtype), lead, of.shape)
