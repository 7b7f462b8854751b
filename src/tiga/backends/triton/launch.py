"""The launches of one row program on a graph: what is fixed is prepared once, tensors per run."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from tiga.backends.triton.choice import Choose, choose
from tiga.backends.triton.compiled import ALIGNMENT
from tiga.backends.triton.edge_tiles import EdgeTile, EdgeTiles, edge_tiles
from tiga.backends.triton.kernel import Kernels
from tiga.backends.triton.layout import Tile, padded
from tiga.backends.triton.loaded import Kernel
from tiga.backends.triton.scan_tiles import WholeRows, whole_rows
from tiga.backends.triton.scans import BLOCK, KEPT, MARK
from tiga.backends.triton.segments import joined, segments
from tiga.backends.triton.split_scans import ScanKernels, splits, states_of
from tiga.backends.triton.topology import NO_EDGES, Degrees, DeviceWalk, device_walk
from tiga.backends.triton.totals import sum_pieces
from tiga.backends.triton.writer import KernelSource
from tiga.passes.carries import kept_scans
from tiga.passes.rows import RowProgram
from tiga.runtime.platform import Platform
from tiga.trace.node import Node
from tiga.types import DType, Relation, Space, int32, int64

LIMIT = 2**31

MOST_TILES = 256
"""Tiles are kept for so many kinds of graphs."""

MOST_EXTENTS = 64
"""Launches over rows without edges are kept for so many numbers of rows."""


@dataclass(frozen=True)
class Shape:
    """What decides the kernels of a row program on a graph."""

    tile: Tile
    index_bits: int
    wide: bool
    has_chunks: bool


@dataclass
class Run:
    """What launches are prepared for: topologies, sizes, and where they run."""

    graphs: Mapping[Relation, Any]
    extents: Mapping[Space, int]
    platform: Platform

    def walk(self, relation: Relation, side: str) -> DeviceWalk:
        return device_walk(self.graphs[relation], side, self.platform)


@dataclass(frozen=True)
class Scratch:
    """A tensor that lives as long as a run: the states of split rows, the pieces of totals."""

    key: Hashable
    count: int
    dtype: DType
    zero: bool


@dataclass(frozen=True)
class Launch:
    """A kernel over a grid. `arguments` holds what is fixed; `slots` says where what goes."""

    kernel: Kernel
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]
    slots: tuple[tuple[int, Hashable], ...]
    aligned: tuple[bool, ...]


@dataclass(frozen=True)
class Prepared:
    """Everything about the launches of a row program that does not change between runs."""

    scratch: tuple[Scratch, ...]
    launches: tuple[Launch, ...]


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
            prepared = known[key] = Preparation(self, run, walk, tile, wide).prepare()
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
    def _arrays(self) -> tuple[tuple[Space, int], ...]:
        kept = (n for scan in kept_scans(self.program) for n in (scan.before, scan.after))
        nodes = (*self.program.reads, *self.program.writes, *kept)
        return tuple({(n.type.space, n.type.size): None for n in nodes})

    def is_wide(self, run: Run) -> bool:
        """Whether offsets need 64 bits."""
        return any(run.extents[space] * size >= LIMIT for space, size in self._arrays)

    def sources(self, shape: Shape) -> list[tuple[str, KernelSource]]:
        """The kernels' texts in launch order, with what each is launched over."""
        index = int32 if shape.index_bits == 32 else int64
        kind = ScanKernels if self.program.scans else Kernels
        kernels = kind(self.program, shape.tile, index, shape.wide, self.ordered)
        name, phases = f"step{self.number}", len(self.program.phases)
        found = self._walks(kernels, name, phases, shape.has_chunks and phases > 0)
        totals = (*self.program.totals, *self.program.outer_sums)
        return [*found, *(("totals", sum_pieces(f"{name}_total", node)) for node in totals)]

    @staticmethod
    def _walks(
        kernels: Kernels, name: str, phases: int, has_chunks: bool
    ) -> list[tuple[str, KernelSource]]:
        if isinstance(kernels.tile, EdgeTile):
            found = [("tiles", segments(kernels, f"{name}_segments", has_chunks))]
            return found + [("hubs", joined(kernels, f"{name}_joined"))] * has_chunks
        if not has_chunks:
            return [("items", kernels.rows(f"{name}_rows", mixed=False))]
        if phases == 1 and not kernels.program.scans:
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


@dataclass
class Preparation:
    """Works out the launches of a row program for a walk, or for a number of rows."""

    step: RowStep
    run: Run
    walk: DeviceWalk | None
    tile: Tile
    wide: bool

    @cached_property
    def plan(self) -> DeviceWalk | EdgeTiles | WholeRows | None:
        """How the walk is cut into what kernels are launched over."""
        program = self.step.program
        if self.walk is None or (splits(program) and not isinstance(self.tile, EdgeTile)):
            return self.walk
        assert program.relation is not None
        topology, platform = self.run.graphs[program.relation], self.run.platform
        if not splits(program):
            return whole_rows(topology, self.walk, program.side, platform)
        return edge_tiles(topology, self.walk, program.side, self.tile.edges, platform)

    def prepare(self) -> Prepared:
        walk, plan = self.walk, self.plan
        bits = walk.index.itemsize * 8 if walk else 32
        shape = Shape(self.tile, bits, self.wide, bool(plan and plan.num_chunks))
        kernels = self.step.variant(shape)
        base, launches = 0, []
        pieces = sum(self._programs(o, k) for o, k in kernels if adds(k))
        for over, kernel in kernels:
            programs = 1 if over == "totals" else self._programs(over, kernel)
            numbers = {
                "num_items": self._items(over),
                "num_chunks": plan.num_chunks if plan else 0,
                "piece_base": base,
                "num_pieces": pieces,
            }
            if isinstance(plan, EdgeTiles):
                numbers |= plan.numbers
            if programs:
                grid = (programs, kernel.source.tile.windows, 1)
                launches.append(self._launch(kernel, grid, over, numbers))
            base += programs if adds(kernel) else 0
        return Prepared(tuple(self._scratch(kernels, pieces)), tuple(launches))

    def _items(self, over: str) -> int:
        if self.plan is None:
            return self.run.extents[self.step.program.space] if over == "items" else 0
        return self.plan.count(over)

    def _programs(self, over: str, kernel: Kernel) -> int:
        tile = kernel.source.tile
        tiles = -(-self._items(over) // tile.rows)
        return min(tiles, tile.groups) if loops(kernel) else tiles

    def _scratch(self, kernels: tuple[tuple[str, Kernel], ...], pieces: int) -> list[Scratch]:
        program, plan = self.step.program, self.plan

        def states(kind: str, node: Node, count: int, zero: bool = False) -> Scratch:
            size = count * node.type.size
            return Scratch((kind, node), size, node.type.dtype.compute, zero)

        # Not every kernel adds to every total: what none wrote counts as zero.
        several = sum(adds(kernel) for _, kernel in kernels) > 1
        totals = (*program.totals, *program.outer_sums)
        found = [states("piece", node, max(pieces, 1), several) for node in totals]
        for scan in kept_scans(program):
            found.append(states(KEPT, scan.before, self.tile.groups * self.tile.rows * BLOCK))
            found.append(states(MARK, scan.before, self._marks))
        if plan is None or not plan.num_chunks:
            return found
        for node in (n for phase in program.phases for n in phase.reductions):
            found.append(states("chunk", node, plan.num_chunks))
            found += [states("hub", node, plan.num_hubs)] * (len(program.phases) > 1)
        counts = {"hub": plan.num_hubs}
        for kind, node in states_of(program):
            found.append(states(kind, node, counts.get(kind, plan.num_chunks)))
        return found

    @property
    def _marks(self) -> int:
        """The blocks of edges of all rows, at most."""
        assert self.walk is not None
        return self.walk.num_edges // BLOCK + self.walk.num_rows + 1

    def _launch(
        self, kernel: Kernel, grid: tuple[int, int, int], over: str, numbers: Mapping[str, int]
    ) -> Launch:
        arguments: list[Any] = []
        slots: list[tuple[int, Any]] = []
        for position, parameter in enumerate(kernel.source.parameters):
            key = parameter.key
            if not isinstance(key, str):
                slots.append((position, key))
                arguments.append(None)
            elif key in numbers:
                arguments.append(numbers[key])
            else:
                arguments.append(self._fixed(key, kernel, over))
        aligned = tuple(self._is_aligned(argument) for argument in arguments)
        return Launch(kernel, grid, tuple(arguments), tuple(slots), aligned)

    def _is_aligned(self, argument: Any) -> bool:
        if argument is None or isinstance(argument, int):
            return False
        return self.run.platform.address(argument) % ALIGNMENT == 0

    def _fixed(self, key: str, kernel: Kernel, over: str) -> Any:
        if key == "tables":
            return self.run.platform.constant(kernel.source.tables)
        assert self.plan is not None, f"{key} without a relation"
        return self.plan.array(key, over)


def loops(kernel: Kernel) -> bool:
    """Whether a program of a kernel takes one tile after another."""
    return adds(kernel) or any(
        isinstance(p.key, tuple) and p.key[0] == KEPT for p in kernel.source.parameters
    )


def adds(kernel: Kernel) -> bool:
    """Whether a kernel leaves pieces of totals."""
    return any(p.key == "piece_base" for p in kernel.source.parameters)
