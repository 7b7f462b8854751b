"""The launches of one row program on a graph: what is fixed is prepared once, tensors per run."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from tiga.backends.triton.choice import Choose, choose
from tiga.backends.triton.edge_tiles import EdgeTile
from tiga.backends.triton.kernel import Kernels
from tiga.backends.triton.layout import Tile, padded
from tiga.backends.triton.loaded import Kernel
from tiga.backends.triton.preparation import Preparation, Prepared, Run, Shape
from tiga.backends.triton.scatters import far_sums
from tiga.backends.triton.segments import joined, segments
from tiga.backends.triton.split_scans import ScanKernels, splits
from tiga.backends.triton.table_sums import summed_by_index, table_sum
from tiga.backends.triton.topology import NO_EDGES, Degrees, DeviceWalk
from tiga.backends.triton.totals import sum_pieces
from tiga.backends.triton.writer import KernelSource
from tiga.passes.carries import kept_scans
from tiga.passes.rows import RowProgram
from tiga.trace.node import Node
from tiga.types import Space, int32, int64

LIMIT = 2**31
"""Elements of an array from which offsets need 64 bits."""

MOST_TILES = 256
"""Tiles are kept for so many kinds of graphs."""

MOST_EXTENTS = 64
"""Launches over rows without edges are kept for so many numbers of rows."""


@dataclass(eq=False)
class RowStep:
    """A row program with the kernels and the launches made so far."""

    program: RowProgram
    ordered: frozenset[Node]
    number: int
    choose: Choose = choose
    tiles: dict[Degrees, Tile] = field(default_factory=dict)
    measured: dict[Degrees, str] = field(default_factory=dict)
    kernels: dict[Shape, tuple[tuple[str, Kernel], ...]] = field(default_factory=dict)
    by_walk: WeakKeyDictionary = field(default_factory=WeakKeyDictionary)
    by_extent: dict[Any, Prepared] = field(default_factory=dict)

    def prepared(self, run: Run) -> Prepared:
        """The launches of the program on the topology of a run, worked out once."""
        program, wide = self.program, self.is_wide(run)
        walk: DeviceWalk | None = None
        known: dict[Any, Prepared] = self.by_extent
        key: Hashable = wide
        if program.relation is None:
            key = (run.extents[program.space], wide, run.platform)
            if len(known) > MOST_EXTENTS:
                known.clear()
        else:
            walk = run.walk(program.relation, program.side)
            known = self.by_walk.setdefault(walk, {})
        prepared = known.get(key)
        if prepared is None:
            tile = self.tile(walk.degrees if walk else NO_EDGES)
            making = Preparation(program, self.variant, run, walk, tile, wide)
            prepared = known[key] = making.prepare()
        return prepared

    def tile(self, degrees: Degrees) -> Tile:
        """The tile for rows of such degrees."""
        if degrees not in self.tiles:
            if len(self.tiles) > MOST_TILES:
                self.tiles.clear()
            self.tiles[degrees] = self.choose(self.program, degrees)
        return self.tiles[degrees]

    def use(self, walk: DeviceWalk, tile: Tile, why: str) -> None:
        """Take another tile for rows like those of a walk from now on."""
        self.tiles[walk.degrees] = tile
        self.measured[walk.degrees] = why
        self.by_walk.pop(walk, None)

    @cached_property
    def page_totals(self) -> tuple[Kernel, ...]:
        """What adds up the pieces that a page of a graph in a file leaves, one for each total."""
        nodes = (*self.program.totals, *self.program.outer_sums)
        return tuple(Kernel(sum_pieces(f"step{self.number}_page", n, of_page=True)) for n in nodes)

    @cached_property
    def _widest(self) -> tuple[tuple[Space, int], ...]:
        """The spaces of its arrays, and the most elements that one has for each entity."""
        kept = (n for scan in kept_scans(self.program) for n in (scan.before, scan.after))
        most: dict[Space, int] = {}
        for node in (*self.program.reads, *self.program.writes, *kept):
            space = node.type.space
            most[space] = max(most.get(space, 0), node.type.size)
        return tuple(most.items())

    def is_wide(self, run: Run) -> bool:
        """Whether offsets need 64 bits."""
        return any(run.extents[space] * size >= LIMIT for space, size in self._widest)

    def sources(self, shape: Shape) -> list[tuple[str, KernelSource]]:
        """The kernels' texts in launch order, with what each is launched over."""
        name = f"step{self.number}"
        summed = summed_by_index(self.program)
        if summed is not None:
            rows = table_sum(f"{name}_rows", summed, shape.tile)
            return [("items", rows), ("totals", sum_pieces(f"{name}_total", summed))]
        index = int32 if shape.index_bits == 32 else int64
        kind = ScanKernels if self.program.scans or self.program.scatters else Kernels
        kernels = kind(self.program, shape.tile, index, shape.wide, self.ordered)
        phases = len(self.program.phases)
        found = self._walks(kernels, name, phases, shape.has_chunks and phases > 0)
        totals = (*self.program.totals, *self.program.outer_sums)
        found += [("totals", sum_pieces(f"{name}_total", node)) for node in totals]
        return far_sums(name, self.program.scatters, found, index)

    @staticmethod
    def _walks(
        kernels: Kernels, name: str, phases: int, has_chunks: bool
    ) -> list[tuple[str, KernelSource]]:
        if isinstance(kernels.tile, EdgeTile):
            found = [("tiles", segments(kernels, f"{name}_segments", has_chunks))]
            return found + [("hubs", joined(kernels, f"{name}_joined"))] * has_chunks
        if not has_chunks:
            return [("items", kernels.rows(f"{name}_rows", mixed=False))]
        if phases == 1 and type(kernels) is Kernels:
            return [
                ("items", kernels.rows(f"{name}_rows", mixed=True)),
                ("hubs", kernels.combine(f"{name}_combine", 0)),
            ]
        found = [("whole", kernels.rows(f"{name}_rows", mixed=False))]
        for phase in range(phases):
            found += kernels.split(name, phase)
        return found

    def typical(self, mean_degree: int = 16, has_chunks: bool = True) -> Shape:
        """What decides the kernels for a graph with rows of about so many edges."""
        walks = self.program.relation is not None
        degree = padded(mean_degree)
        tile = self.choose(self.program, Degrees(degree, degree) if walks else NO_EDGES)
        return Shape(tile, 32, False, walks and has_chunks and splits(self.program))

    def variant(self, shape: Shape) -> tuple[tuple[str, Kernel], ...]:
        if shape not in self.kernels:
            self.kernels[shape] = tuple((o, Kernel(s)) for o, s in self.sources(shape))
        return self.kernels[shape]
