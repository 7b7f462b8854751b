"""One page of a walk as kernels see it, and the arrays that it takes a part of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tiga.paging.span import Span
from tiga.runtime.arena import Arena
from tiga.runtime.pages import Rows
from tiga.trace.node import Node
from tiga.types import Relation

WORD = 8

Fill = Callable[[Rows, np.ndarray, Arena], None]
Store = Callable[[Rows, np.ndarray], None]


@dataclass(frozen=True)
class Piece:
    """The part of an array that a page takes: `count` rows, which lie as far behind the start of a
    block of memory as row `first` does in the array; kernels see the first as number `origin`.

    `fill` reads them from where the array lies; where kernels make them, `stores` write them back
    instead. An array that kernels can address is left where it is, and begins at its row `shift`
    for them (None: it is staged all the same). `once`: what these do needs memory of the page.
    """

    node: Node
    count: int
    first: int
    origin: int
    fill: Fill | None = None
    stores: tuple[Store, ...] = ()
    shift: int | None = None
    once: bool = False

    @staticmethod
    def in_place(node: Node) -> "Piece":
        """An array that kernels address where it is."""
        return Piece(node, 0, 0, 0, shift=0)

    def place(self, page: "Page", home: Rows, arena: Arena) -> None:
        """Have it where kernels read it."""
        if self.shift is not None and home.address:
            page.addresses[self.node] = home.address + self.shift * home.row_bytes
            return
        block = arena.rows(self.count, home.row_bytes, self.first)
        page.addresses[self.node] = block.ctypes.data - self.origin * home.row_bytes
        page.staged.add(self.node)
        if self.fill is not None:
            self.fill(home, block, arena)
            return
        page.results.append(block)
        page.finish += [partial(store, home, block) for store in self.stores]


@dataclass
class Page:
    """A span with everything its kernel needs.

    Rows keep their numbers: the addresses of arrays over rows lie as far before the staged rows as
    the first row is from 0. Edges are numbered from the page's first on. `addresses` are those of
    arrays, and `staged` tells which of these lie with the page; `later` are the pieces that differ
    from call to call. `finish` writes back `results`.
    """

    span: Span
    row_ptr: np.ndarray
    index: np.ndarray
    edge_id: np.ndarray | None = None
    max_degree: int = 0
    addresses: dict[Node, int] = field(default_factory=dict)
    degrees: dict[tuple[Relation, str], int] = field(default_factory=dict)
    staged: set[Node] = field(default_factory=set)
    later: dict[Node, Piece] = field(default_factory=dict)
    finish: list[Callable[[], None]] = field(default_factory=list)
    results: list[np.ndarray] = field(default_factory=list)

    @property
    def rows(self) -> tuple[int, int]:
        return self.span.rows

    @property
    def row_ptr_address(self) -> int:
        return self.row_ptr.ctypes.data - self.rows[0] * WORD

    @property
    def repeats(self) -> bool:
        """Whether what is staged later needs nothing of what was staged before."""
        return not any(piece.once for piece in self.later.values())

    def has(self, node: Node) -> bool:
        """Whether an array is taken care of."""
        return node in self.addresses or node in self.later

    def inputs(self, homes: Mapping[Node, Rows], arena: Arena) -> None:
        """Stage what is read anew in each call."""
        for piece in self.later.values():
            if not piece.stores:
                piece.place(self, homes[piece.node], arena)

    def outputs(self, homes: Mapping[Node, Rows], arena: Arena) -> None:
        """Have room for what kernels make."""
        for piece in self.later.values():
            if piece.stores:
                piece.place(self, homes[piece.node], arena)


def read_range(low: int, home: Rows, block: np.ndarray, arena: Arena) -> None:
    """Fill a block with rows from number `low` on."""
    home.read_into(low, block)


def write_range(low: int, home: Rows, block: np.ndarray) -> None:
    """Store a block as rows from number `low` on."""
    home.write(low, block)
