"""Which rows a page names by number: a window of them, taken whole, or those that occur, picked
and numbered anew."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any

import numpy as np

from tiga.errors import UnsupportedByBackend
from tiga.runtime.arena import ALIGNMENT, Arena
from tiga.runtime.floor import off_the_floor
from tiga.runtime.pages import PIECE, Damaged, Rows, scratch_bytes

STEP = 1 << 16
"""Numbers that one numpy call handles: its temporary arrays stay small."""

SPREAD = 4
"""Where a window holds so many rows for each time one is named, numbers are sorted."""

CREW = 4
"""Threads that pick rows for one page: a disk answers several requests at a time."""

MANY = 1 << 22
"""Beyond so many numbers of a page several threads go through them: it is as large as a budget."""

TILE_ROWS = 1 << 13
"""Rows that a thread picks at a time, or more, of the bytes of a request, where they are narrow:
the arrays that it makes for that stay small, as memory that a thread allocates does not go back to
the system."""

MOST_ROWS = 1 << 14
"""Rows that a thread picks at a time, however narrow."""


def bounds_of(numbers: np.ndarray, extent: int) -> tuple[int, int]:
    """The range [low, high) of numbers that must lie below an extent.

    Raises:
        Damaged: one does not.
    """
    if not len(numbers):
        return 0, 0
    low, high = int(numbers.min()), int(numbers.max()) + 1
    if low < 0 or high > extent:
        raise Damaged(f"the file holds an index out of the range 0..{extent - 1}")
    return low, high


@dataclass(frozen=True)
class Marks:
    """Which numbers of a window occur, one byte each."""

    low: int
    used: np.ndarray

    @staticmethod
    def of(numbers: np.ndarray, low: int, high: int, arena: Arena) -> "Marks":
        used = arena.take(high - low, np.dtype(np.bool_))
        used[:] = False

        def mark(part: np.ndarray) -> None:
            used[part - low] = True

        _each(numbers, mark)
        return Marks(low, used)

    def tiles(self, size: int) -> Iterator[np.ndarray]:
        """The numbers that occur, ascending, some at a time."""
        for start in range(0, len(self.used), size):
            yield np.flatnonzero(self.used[start : start + size]) + (self.low + start)

    def runs(self, size: int) -> Iterator[np.ndarray | range]:
        """The same; those of which none is missing together, as ranges."""
        whole = range(0)
        for start in range(0, len(self.used), size):
            part, first = self.used[start : start + size], self.low + start
            if part.all():
                whole = range(whole.start if whole else first, first + len(part))
                continue
            if whole:
                yield whole
            whole = range(0)
            yield np.flatnonzero(part) + first
        if whole:
            yield whole


@dataclass(frozen=True)
class Window:
    """Rows [low, low + count), of which numbers stay what they are; `marks` where only those
    that occur may be written."""

    low: int
    count: int
    marks: Marks | None = None

    @property
    def origin(self) -> int:
        """The number of a block's first row."""
        return self.low

    def fill(self, home: Rows, out: np.ndarray, arena: Arena) -> None:
        home.read_into(self.low, out)

    def store(self, home: Rows, block: np.ndarray) -> None:
        assert self.marks is not None
        for ids in self.marks.runs(TILE_ROWS):
            if isinstance(ids, range):
                home.write(ids.start, block[ids.start - self.low : ids.stop - self.low])
            else:
                home.put(ids, _run_or_rows(block, ids - self.low))


@dataclass(frozen=True)
class Picks:
    """The rows that occur, in order, numbered anew from `origin` on."""

    origin: int
    count: int
    ids: "Marks | Distinct"

    def fill(self, home: Rows, out: np.ndarray, arena: Arena) -> None:
        """All tiles in their order; several threads, as reading waits for the disk."""
        size = min(max(TILE_ROWS, PIECE // max(1, home.row_bytes)), MOST_ROWS)
        tiles, lock, done = self.ids.tiles(size), Lock(), [0]

        def pick_next(scratch: np.ndarray) -> bool:
            with lock:
                ids = next(tiles, None)
                start = done[0]
                done[0] = start + (0 if ids is None else len(ids))
            if ids is not None:
                home.take(ids, out[start : start + len(ids)], scratch)
            return ids is not None

        used, count = arena.used, CREW if home.in_file and self.count > TILE_ROWS else 1
        room = scratch_bytes(home.row_bytes, out.nbytes)
        scratches = [arena.take(room, np.dtype(np.uint8)) for _ in range(count)]
        with off_the_floor():
            _share(pick_next, scratches)
        arena.back_to(used)

    def store(self, home: Rows, block: np.ndarray) -> None:
        start = 0
        for ids in self.ids.tiles(TILE_ROWS):
            home.put(ids, block[start : start + len(ids)])
            start += len(ids)


@dataclass(frozen=True)
class Distinct:
    """Distinct numbers in order."""

    numbers: np.ndarray

    def tiles(self, size: int) -> Iterator[np.ndarray]:
        for part in _steps(self.numbers, size):
            yield part.astype(np.int64)


def pick(numbers: np.ndarray, low: int, high: int, base: int, arena: Arena, expected: int) -> Picks:
    """The numbers that occur of [low, high); `numbers` are replaced by `base` plus their places.

    `expected` is the size of the window that memory was planned for.

    Raises:
        ArenaFull: they are more than there is room for.
    """
    if base + min(len(numbers), high - low) > np.iinfo(numbers.dtype).max:
        raise UnsupportedByBackend(
            f"rows are numbered beyond {numbers.dtype} in a page that starts at row {base} of a "
            "graph in a file; use `graph.in_memory()`."
        )
    if max(expected, high - low) > SPREAD * len(numbers):
        return _sorted_picks(numbers, base, arena)
    marks = Marks.of(numbers, low, high, arena)
    start = arena.used
    places = arena.take(high - low, numbers.dtype)
    np.cumsum(marks.used, dtype=places.dtype, out=places)
    count = int(places[-1]) if len(places) else 0
    places += numbers.dtype.type(base - 1)

    def renumber(part: np.ndarray) -> None:
        part[:] = places[part - low]

    _each(numbers, renumber)
    arena.back_to(start)
    return Picks(base, count, marks)


def _sorted_picks(numbers: np.ndarray, base: int, arena: Arena) -> Picks:
    """The numbers by sorting them: their window is too wide to be marked."""
    ordered = arena.take(len(numbers), numbers.dtype)
    ordered[:] = numbers
    ordered.sort()
    count = 0
    last = None
    for part in _steps(ordered):
        first = np.empty(len(part), np.bool_)
        first[:1] = last is None or part[0] != last
        np.not_equal(part[1:], part[:-1], out=first[1:])
        last, kept = part[-1], part[first]
        ordered[count : count + len(kept)] = kept
        count += len(kept)
    distinct = ordered[:count]
    for part in _steps(numbers):
        part[:] = np.searchsorted(distinct, part)
        part += numbers.dtype.type(base)
    return Picks(base, count, Distinct(distinct))


def _steps(numbers: np.ndarray, size: int = STEP) -> Iterator[np.ndarray]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def _run_or_rows(block: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Rows of a block; a view where they follow one another."""
    if len(places) and int(places[-1]) - int(places[0]) == len(places) - 1:
        return block[int(places[0]) : int(places[-1]) + 1]
    return block[places]


def _each(numbers: np.ndarray, work: Callable[[np.ndarray], None]) -> None:
    """Do it to every part of many numbers, by several threads: numpy lets others run meanwhile."""
    parts, lock = _steps(numbers), Lock()

    def work_next(_: int) -> bool:
        with lock:
            part = next(parts, None)
        if part is not None:
            work(part)
        return part is not None

    _share(work_next, range(CREW if len(numbers) > MANY else 1))


def _share(work_next: Callable[[Any], bool], given: Sequence[Any]) -> None:
    """Call it until it says that nothing is left: a thread for each of what it is given.

    Raises:
        What it raised first.
    """
    failed: list[BaseException] = []

    def serve(some: Any) -> None:
        try:
            while not failed and work_next(some):
                pass
        except BaseException as error:  # raised again by whom it works for
            failed.append(error)

    crew = _started(Thread(target=serve, args=(some,)) for some in given[1:])
    serve(given[0])
    for one in crew:
        one.join()
    try:
        if failed:
            raise failed[0]
    finally:
        failed.clear()  # an error holds on to all that the calls on its way did


def _started(threads: Iterable[Thread]) -> list[Thread]:
    """As many of them as the system gives: fewer do it too."""
    found = []
    for thread in threads:
        try:
            thread.start()
        except RuntimeError:
            break
        found.append(thread)
    return found


def crew_bytes(row_bytes: int, picked: int) -> int:
    """What picking rows takes for its threads."""
    return CREW * (scratch_bytes(row_bytes, picked) + ALIGNMENT)
