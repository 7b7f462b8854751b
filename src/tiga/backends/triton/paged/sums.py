"""Sums over all rows or edges of a walk that takes several pages.

What a launch adds up to is kept, in the type that sums are computed in, as one more piece of the
whole; after the last page these are added, in their order. Where everything is one page, it is
added as it is in memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tiga.backends.triton.paged.launch import Place, State, StepKernels, state_bytes
from tiga.backends.triton.paged.lists import WorkList
from tiga.backends.triton.totals import PAGE
from tiga.paging.span import LongRow, Span

Page = Span | LongRow


class Launcher(Protocol):
    """What launches the kernels of pages."""

    def launch(self, place: Place, numbers: Sequence[int] | None = None) -> None:
        """The kernels on a page: all, or some by their numbers."""


class Memory(Protocol):
    """Scratch of the device."""

    def take(self, nbytes: int) -> int:
        """The address of so many bytes."""

    def clear(self, address: int, nbytes: int) -> None:
        """Set what was taken to zero, in order with kernels."""


@dataclass
class Sums:
    """The totals of a step, `memory` those of its pages."""

    kernels: StepKernels
    pages: Sequence[Page]
    memory: Memory
    done: int = 0
    _pieces: dict[State, int] = field(default_factory=dict)
    _totals: dict[State, int] = field(default_factory=dict)

    def prepare(self) -> None:
        """Take the memory for pieces of a page, and for the totals of pages."""
        most = most_pieces(self.kernels, self.pages)
        self._pieces = self._taken("piece", most)
        if not self.is_whole:
            self._totals = self._taken(PAGE, most_launches(self.kernels, self.pages))

    @property
    def is_whole(self) -> bool:
        """Whether one page holds everything."""
        return len(self.pages) == 1 and isinstance(self.pages[0], Span)

    def launch(self, place: Place, numbers: Sequence[int] | None = None) -> None:
        """The kernels on a page, and what adds up their pieces."""
        pieces = self.kernels.pieces(place.work, numbers)
        for state, count, dtype in self.kernels.pieces_states(pieces):
            self.memory.clear(self._pieces[state], count * dtype.itemsize)
        place = place.with_states(self._pieces)
        self.kernels.launch(place, numbers)
        if self.is_whole:
            self.kernels.totals(place, pieces)
        elif pieces:
            self.kernels.page_totals(place.with_states(self._next()), pieces)

    def _next(self) -> dict[State, int]:
        """Where the totals of the next page are."""
        ones = self.kernels.pieces_states(1, PAGE)
        found = {s: self._totals[s] + self.done * n * dtype.itemsize for s, n, dtype in ones}
        self.done += 1
        return found

    def finish(self) -> None:
        """Add the totals of pages."""
        if self.is_whole:
            return
        states = {("piece", node): at for (_, node), at in self._totals.items()}
        self.kernels.totals(Place(WorkList({}, {}, {}), {}, states=states), self.done)

    def _taken(self, kind: str, count: int) -> dict[State, int]:
        return {
            state: self.memory.take(size * dtype.itemsize)
            for state, size, dtype in self.kernels.pieces_states(count, kind)
        }


def most_pieces(kernels: StepKernels, pages: Iterable[Page]) -> int:
    """The pieces that a launch leaves, at most."""
    spans = [s for page in pages for s in ([page] if isinstance(page, Span) else page.parts)]
    return max((kernels.most_pieces(s.rows[1] - s.rows[0], s.edges) for s in spans), default=0)


def most_launches(kernels: StepKernels, pages: Iterable[Page]) -> int:
    """The launches that add to totals, at most: kernel after kernel where a row takes pages."""
    one, several = 1, len(kernels.numbers)
    return sum(one if isinstance(page, Span) else several * (len(page.parts) + 1) for page in pages)


def sums_bytes(kernels: StepKernels, pages: Sequence[Page]) -> int:
    """Bytes of scratch for totals."""
    if not kernels.program.has_sums:
        return 0
    count = most_pieces(kernels, pages) + most_launches(kernels, pages)
    return state_bytes(kernels.pieces_states(count))
