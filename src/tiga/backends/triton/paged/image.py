"""What a page is in every call: the rows of the graph's own file, its edges, and the lists that
kernels follow. An image can lie on the device, or be sent there as it is, to any place."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiga.backends.triton.paged.lists import WorkList
from tiga.paging.page import Page, Piece
from tiga.paging.span import Span
from tiga.trace.node import Node

_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True)
class Image:
    """The first `nbytes` of a page's memory. What kernels find there is told by its distance from
    the start: arrays, degrees, topology, and the lists that `work` counts. `later` are the arrays
    that each call stages for itself; `repeats` says whether that needs nothing of the page."""

    span: Span
    nbytes: int
    work: WorkList
    lists: Mapping[tuple[str, str], int]
    arrays: Mapping[Node, int]
    degrees: Mapping[Any, int]
    topology: Mapping[str, int]
    later: Mapping[Node, Piece]
    repeats: bool

    def begun(self) -> Page:
        """The page in another call, with nothing staged yet."""
        return Page(self.span, _NOTHING, _NOTHING, later=dict(self.later))


@dataclass(eq=False)
class Kept:
    """An image that stays somewhere: at `address` of a `block` of the device's memory, or in memory
    of the host, which may be pinned. `is_there` says whether it has come there yet, `call` is the
    number of the last call that used it."""

    image: Image
    tier: str
    ticket: int = 0
    block: Any = None
    address: int = 0
    host: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))
    is_there: bool = False
    call: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of it."""
        return self.image.nbytes
