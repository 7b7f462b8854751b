"""Launch the kernels of a row program on pages: the same kernels as in memory, told other places.

Arrays over rows and edges are addressed as if the whole lay where the page's part does, so that
kernels see the numbers and positions of the whole graph.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from tiga.backends.triton.compiled import ALIGNMENT
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.loaded import DeviceKernel, Interpreted, Kernel
from tiga.backends.triton.paged.facts import WalkFacts
from tiga.backends.triton.paged.lists import Launches, WorkList
from tiga.backends.triton.preparation import Shape, loops
from tiga.backends.triton.scans import BLOCK, KEPT, MARK
from tiga.backends.triton.split_scans import states_of
from tiga.backends.triton.topology import CHUNK
from tiga.backends.triton.totals import PAGE
from tiga.backends.triton.writer import KernelSource
from tiga.passes.carries import kept_scans
from tiga.passes.rows import RowProgram
from tiga.runtime.functions import FreeLaunch
from tiga.runtime.platform import Platform
from tiga.trace.node import Node
from tiga.types import DType

State = tuple[str, Node]
"""Scratch of kernels: its kind, and the value that it holds parts of."""


@dataclass(frozen=True)
class Place:
    """Where a launch finds what varies from page to page: addresses of arrays, of row pointers (by
    relation and side) and of scratch; of topology (by parameter) and of `lists`, the arrays of the
    work list, distances from `start`."""

    work: WorkList
    arrays: Mapping[Node, int]
    degrees: Mapping[Any, int] = field(default_factory=dict)
    states: Mapping[State, int] = field(default_factory=dict)
    topology: Mapping[str, int] = field(default_factory=dict)
    lists: Mapping[tuple[str, str], int] = field(default_factory=dict)
    start: int = 0

    def with_states(self, states: Mapping[State, int]) -> "Place":
        """The same with more scratch."""
        return replace(self, states={**self.states, **states})

    def named(self, key: str, over: str) -> int:
        """The address of an array of the topology or the work list."""
        if key in self.topology:
            return self.topology[key] + self.start
        own = (over, key)
        return self.lists[own if own in self.lists else ("", key)] + self.start


@dataclass(frozen=True)
class Ready:
    """A kernel on a device: what its parameters stand for, and whether that is a name; parameters
    that are the same on each page; and how it is launched over a grid with its arguments."""

    keys: Sequence[tuple[Any, bool]]
    fixed: Mapping[str, int]
    start: Callable[[tuple[int, int, int], Sequence[int]], None]
    tables: Any

    @staticmethod
    def of(
        kernel: Kernel, form: DeviceKernel | Interpreted, platform: Platform, stream: int
    ) -> "Ready":
        """A kernel in the form that a device has of it."""
        keys = [(p.key, isinstance(p.key, str)) for p in kernel.source.parameters]
        tables = platform.constant(kernel.source.tables) if ("tables", True) in keys else None
        fixed = {} if tables is None else {"tables": platform.address(tables)}
        if isinstance(form, Interpreted):
            return Ready(keys, fixed, form.run, tables)
        launches = FreeLaunch(form.function, len(keys), form.hidden)
        return Ready(keys, fixed, partial(launches.run, ctypes.c_void_p(stream)), tables)


@dataclass(frozen=True)
class StepKernels:
    """The kernels of a step on a whole graph; `facts` is None for rows without edges."""

    step: RowStep
    platform: Platform
    facts: WalkFacts | None
    shape: Shape
    globals: Mapping[Node, int]
    _ready: dict[tuple[str, KernelSource], "Ready"] = field(default_factory=dict)

    @cached_property
    def kernels(self) -> tuple[tuple[str, Kernel], ...]:
        """What each is launched over, in order."""
        return self.step.variant(self.shape)

    @property
    def program(self) -> RowProgram:
        return self.step.program

    @property
    def tile(self) -> Tile:
        return self.shape.tile

    @cached_property
    def overs(self) -> frozenset[str]:
        """What kernels are launched over."""
        return frozenset(over for over, _ in self.kernels)

    @cached_property
    def launches(self) -> Launches:
        """What the work lists of pages are made for; sums over all rows take none twice."""
        dtype = np.dtype(np.int32 if self.shape.index_bits == 32 else np.int64)
        return Launches(self.overs, 1 if self.program.has_sums else self.tile.rows, dtype)

    @property
    def numbers(self) -> range:
        """Those of the kernels that take a page: the ones for totals come last."""
        return range(sum(over != "totals" for over, _ in self.kernels))

    def launch(self, place: Place, numbers: Sequence[int] | None = None) -> None:
        """The kernels on a page: all, or some by their numbers."""
        base = 0
        for number in self.numbers if numbers is None else numbers:
            over, kernel = self.kernels[number]
            programs = self._programs(kernel, place.work.counts.get(over, 0))
            self._launch(over, kernel, programs, place, {"piece_base": base})
            base += programs if kernel.adds else 0

    def totals(self, place: Place, pieces: int) -> None:
        """Add the pieces of totals."""
        for over, kernel in self.kernels[len(self.numbers) :]:
            self._launch(over, kernel, 1, place, {"num_pieces": pieces})

    def page_totals(self, place: Place, pieces: int) -> None:
        """Add up the pieces that a page left."""
        for kernel in self.step.page_totals:
            self._launch("totals", kernel, 1, place, {"num_pieces": pieces})

    def pieces(self, work: WorkList, numbers: Sequence[int] | None = None) -> int:
        """The pieces of totals that kernels leave on a page."""
        found = (self.kernels[i] for i in (self.numbers if numbers is None else numbers))
        return sum(self._programs(k, work.counts.get(o, 0)) for o, k in found if k.adds)

    def most_pieces(self, rows: int, edges: int) -> int:
        """The pieces that a page of so many rows and edges leaves, at most."""
        items = rows + edges // CHUNK + 1
        return sum(self._programs(kernel, items) for _, kernel in self.kernels if kernel.adds)

    @staticmethod
    def _programs(kernel: Kernel, count: int) -> int:
        tile = kernel.source.tile
        tiles = -(-count // tile.rows)
        return min(tiles, tile.groups) if loops(kernel) else tiles

    def _launch(
        self, over: str, kernel: Kernel, programs: int, place: Place, numbers: Mapping[str, int]
    ) -> None:
        if not programs:
            return
        ready = self._ready_for(over, kernel)
        count = place.work.counts.get(over, 0)
        known = {**ready.fixed, "num_items": count, **place.work.numbers, **numbers}
        ready.start((programs, kernel.source.tile.windows, 1), [
            known[key] if named and key in known else self._address(key, over, place)
            for key, named in ready.keys
        ])  # fmt: skip

    def _ready_for(self, over: str, kernel: Kernel) -> "Ready":
        """A kernel as it is launched on page after page."""
        found = self._ready.get((over, kernel.source))
        if found is None:
            form = kernel.form(
                self.platform.index, self.platform.capability, self._aligned(over, kernel)
            )
            stream = self.platform.stream()
            found = Ready.of(kernel, form, self.platform, stream)
            self._ready[over, kernel.source] = found
        return found

    def _address(self, key: Any, over: str, place: Place) -> int:
        if isinstance(key, str):
            return place.named(key, over)
        kind, *rest = key
        if kind == "array":
            node = rest[0]
            return self.globals[node] if node in self.globals else place.arrays[node]
        return place.degrees[tuple(rest)] if kind == "degree" else place.states[key]

    def _aligned(self, over: str, kernel: Kernel) -> tuple[bool, ...]:
        """Which parameters are told to be aligned: those that are in memory, so that a kernel is
        compiled to the same code."""
        return tuple(
            p.type.startswith("*") and self._is_aligned(over, p.key)
            for p in kernel.source.parameters
        )

    def _is_aligned(self, over: str, key: Any) -> bool:
        """Items of rows that are not split follow the chunks of those that are, the totals of pages
        one another."""
        if not isinstance(key, str) and key[0] == PAGE:
            return False
        if over != "whole" or not isinstance(key, str) or not key.startswith("item_"):
            return True
        assert self.facts is not None
        width = 4 if key == "item_count" else self.shape.index_bits // 8
        return self.facts.num_chunks * width % ALIGNMENT == 0

    # scratch

    def states(self, work: WorkList) -> Iterator[tuple[State, int, DType]]:
        """What the chunks of a page's split rows keep: how many numbers of each."""
        program, chunks, hubs = self.program, work.num_states, work.num_hubs
        if "hubs" not in self.overs:
            return
        for node in (n for phase in program.phases for n in phase.reductions):
            yield self._state("chunk", node, chunks)
            if len(program.phases) > 1:
                yield self._state("hub", node, hubs)
        for kind, node in states_of(program):
            yield self._state(kind, node, hubs if kind == "hub" else chunks)

    def row_states(self, chunks: int) -> Iterator[tuple[State, int, DType]]:
        """What so many chunks of one row keep that are in several pages; they fill their tiles."""
        filled = (-(-chunks // self.launches.tile) + 1) * self.launches.tile
        return self.states(WorkList({"hubs": 1}, {}, {"num_chunks": filled}))

    def pieces_states(self, count: int, kind: str = "piece") -> Iterator[tuple[State, int, DType]]:
        """So many pieces of totals."""
        for node in (*self.program.totals, *self.program.outer_sums):
            yield self._state(kind, node, max(count, 1))

    def kept_states(self) -> Iterator[tuple[State, int, DType]]:
        """What programs keep of scans for the block of edges that each is at."""
        for scan in kept_scans(self.program):
            yield self._state(KEPT, scan.before, self.tile.groups * self.tile.rows * BLOCK)

    def marks(self, rows: int, edges: tuple[int, int]) -> Iterator[tuple[State, int, DType]]:
        """The carries of scans before each block of edges."""
        for scan in kept_scans(self.program):
            yield self._state(MARK, scan.before, edges[1] // BLOCK - edges[0] // BLOCK + rows + 1)

    @staticmethod
    def _state(kind: str, node: Node, count: int) -> tuple[State, int, DType]:
        return (kind, node), count * node.type.size, node.type.dtype.compute


def state_bytes(states: Iterator[tuple[State, int, DType]]) -> int:
    """Bytes of scratch."""
    return sum(count * dtype.itemsize for _, count, dtype in states)
