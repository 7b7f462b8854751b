"""What pages hold, and what a run does with them: predicted before the first is read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from tiga.passes.rows import LibraryCall
from tiga.runtime.tiers import size_text

PAGE_COST = 2**19
"""What a page costs beside its bytes, in bytes that are read meanwhile."""

SEEK_COST = 2**14
"""What reading a row alone costs beside its bytes."""


@dataclass(frozen=True)
class Span:
    """What one page holds: tasks [first, last), or a part of one task's rows.

    `parts` are ranges of edge positions, staged one after the other with `gap` unused places
    between them; `cut` where they are a part of one row's. The first `lead` edges are of rows
    before. `others_whole` and `edges_whole` say
    whether the windows of the other ends and of edge numbers are taken whole. `nbytes` is what it
    takes at most, `read` and `written` are bytes from and to files, `seeks` runs of few rows that
    are read alone.
    """

    first: int
    last: int
    rows: tuple[int, int]
    parts: tuple[tuple[int, int], ...]
    gap: int = 0
    cut: bool = False
    lead: int = 0
    others_whole: bool = True
    edges_whole: bool = True
    window: tuple[int, int] = (0, 0)
    numbers: tuple[int, int] = (0, 0)
    nbytes: int = 0
    read: int = 0
    written: int = 0
    seeks: int = 0

    @property
    def edges(self) -> int:
        """Places for edges."""
        return sum(high - low for low, high in self.parts) + self.gap * (len(self.parts) - 1)


@dataclass(frozen=True)
class LongRow:
    """A row whose edges do not fit a page: its chunks of `chunk` edges in pages, once for each
    phase, and the row itself."""

    task: int
    row: int
    degree: int
    parts: tuple[Span, ...]
    end: Span
    phases: int
    chunk: int

    @property
    def chunks(self) -> int:
        return -(-self.degree // self.chunk)

    @property
    def nbytes(self) -> int:
        return max(span.nbytes for span in (*self.parts, self.end))

    @property
    def read(self) -> int:
        return sum(span.read for span in self.parts) * self.phases + self.end.read

    @property
    def written(self) -> int:
        return sum(span.written for span in (*self.parts, self.end))

    @property
    def seeks(self) -> int:
        return sum(span.seeks for span in self.parts) * self.phases


@dataclass(frozen=True)
class Spans:
    """The pages of a step, of which `arenas` are in memory at a time; `whole` bytes of arrays are
    read whole from their files before, and `beside` bytes hold sums meanwhile. `stored` bytes
    lie in files of what it reads. `kept` bytes are written to a file by pages, read after the last
    and then stored in order, `ordered` bytes. `advice` is told with it."""

    pages: tuple[Span | LongRow, ...]
    arenas: int
    whole: int = 0
    beside: int = 0
    stored: int = 0
    kept: int = 0
    ordered: int = 0
    advice: str = ""

    @property
    def count(self) -> int:
        return len(self.pages)

    @property
    def told(self) -> str:
        """What it is cut into, in words."""
        return f"{self.count} pages"

    @property
    def remark(self) -> str:
        """What is told of it beside."""
        long = sum(isinstance(page, LongRow) for page in self.pages)
        return (f"; {long} rows in parts" if long else "") + self.advice

    @cached_property
    def arena_bytes(self) -> int:
        """Bytes that the largest page takes."""
        return max((page.nbytes for page in self.pages), default=0)

    @cached_property
    def read(self) -> int:
        return self.whole + self.kept + sum(page.read for page in self.pages)

    @cached_property
    def written(self) -> int:
        return self.ordered + sum(page.written for page in self.pages)

    @property
    def peak(self) -> int:
        """Bytes in memory at a time."""
        return self.resident + self.arenas * self.arena_bytes

    @property
    def resident(self) -> int:
        """Bytes in memory beside pages."""
        return self.whole + self.beside

    @property
    def cost(self) -> float:
        """Bytes moved, and what takes as long: memory asked of the system costs about as much as
        reading it."""
        fresh = self.arenas * self.arena_bytes
        moved = fresh + self.read + self.written
        seeks = sum(page.seeks for page in self.pages)
        return moved + PAGE_COST * len(self.pages) + SEEK_COST * seeks


class Course(Protocol):
    """How a step goes through its rows: `Spans`, or by blocks and tiles."""

    @property
    def arenas(self) -> int: ...

    @property
    def arena_bytes(self) -> int: ...

    @property
    def resident(self) -> int: ...

    @property
    def count(self) -> int: ...

    @property
    def read(self) -> int: ...

    @property
    def written(self) -> int: ...

    @property
    def stored(self) -> int: ...

    @property
    def kept(self) -> int: ...

    @property
    def told(self) -> str: ...

    @property
    def remark(self) -> str: ...


@dataclass(frozen=True)
class Held:
    """The memory that pages are staged in: so many arenas of so many bytes."""

    count: int = 0
    nbytes: int = 0

    def after(self, spans: Course, limit: int) -> "Held":
        """What is held for a step: the same as before, if it serves and leaves the room that the
        step takes beside."""
        serves = spans.arenas == self.count and spans.arena_bytes <= self.nbytes
        if serves and spans.resident + self.count * self.nbytes <= limit:
            return self
        return Held(spans.arenas, spans.arena_bytes)


NOTHING_HELD = Held()


@dataclass
class PagePlan:
    """What a run does with pages of at most `limit` bytes, per step: predicted before the first is
    read."""

    limit: int
    lines: list[str] = field(default_factory=list)
    pages: int = 0
    peak: int = 0
    read: int = 0
    written: int = 0
    kept: int = 0
    held: Held = NOTHING_HELD
    staged: int = 0
    """The most bytes of arenas."""

    def whole(self, nbytes: int, read: int, where: str = "the device") -> None:
        """Count arrays that go to a device, or near it, whole before the first step."""
        if nbytes:
            self.read += read
            self.lines.append(f"{size_text(nbytes)} to {where} whole, reads {size_text(read)}")

    def add(self, what: str, spans: Course) -> None:
        """Count the pages of one step, if it has some."""
        if not spans.count:
            return
        self.held = self.held.after(spans, self.limit)
        arenas = self.held.count * self.held.nbytes
        peak, self.staged = spans.resident + arenas, max(self.staged, arenas)
        self.pages += spans.count
        self.peak, self.kept = max(self.peak, peak), max(self.kept, spans.kept)
        self.read, self.written = self.read + spans.read, self.written + spans.written
        passes = f" ({spans.read / spans.stored:.1f} passes)" if spans.stored else ""
        self.lines.append(
            f"{what}: {spans.told}, at most {size_text(peak)} in memory, "
            f"reads {size_text(spans.read)}{passes}, writes {size_text(spans.written)}"
            f"{spans.remark}"
        )

    def found(self, pages: Sequence[Span], nbytes: int) -> None:
        """Count pages of the last step that an earlier call left, `nbytes` in all."""
        if not pages:
            return
        read = sum(page.read for page in pages)
        self.read -= read
        self.lines.append(
            f"  {len(pages)} of them were kept, {size_text(nbytes)}: reads {size_text(read)} less"
        )

    def told(self, when: str = "at the last call, over a graph in a file") -> list[str]:
        """The plan in words."""
        return [
            f"{when}: {self.pages} pages, at most {size_text(self.peak)} of them in memory, reads "
            f"{size_text(self.read)}, writes {size_text(self.written)}",
            *(f"  {line}" for line in self.lines),
        ]


def step_name(step: Any) -> str:
    """What a library call or a row program, the `program` of a step, is called in plans."""
    if isinstance(step, LibraryCall):
        return f"library call, {step.node.op.name}"
    if step.program.relation is None:
        return "rows without edges"
    return f"walk, rows = {step.program.side}"
