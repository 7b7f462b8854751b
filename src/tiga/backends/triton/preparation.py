"""What launches of a row program take on a graph, worked out before any run."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tiga.backends.triton.compiled import ALIGNMENT
from tiga.backends.triton.edge_tiles import EdgeTile, EdgeTiles, edge_tiles
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.loaded import Kernel
from tiga.backends.triton.scan_tiles import LEAST_GROUPS, WholeRows, whole_rows
from tiga.backends.triton.scans import BLOCK, KEPT, MARK
from tiga.backends.triton.scatter_blocks import FarBlocks, MessageBlock, far_blocks, slots_for
from tiga.backends.triton.scatters import (
    CLEARED,
    ENTITIES,
    FIRST,
    MESSAGE,
    PARTIAL,
    PIECES,
    messages,
)
from tiga.backends.triton.split_scans import MARKS_OF_CHUNK, splits, states_of
from tiga.backends.triton.topology import DeviceWalk, device_walk
from tiga.passes.carries import kept_scans
from tiga.passes.rows import RowProgram
from tiga.runtime.platform import Platform
from tiga.trace.node import Node
from tiga.types import DType, Relation, Space


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
    arrays: dict[Hashable, tuple[Any, int]] = field(default_factory=dict)
    """Arrays that kernels take with their addresses, as steps share them."""

    def walk(self, relation: Relation, side: str) -> DeviceWalk:
        return device_walk(self.graphs[relation], side, self.platform)


@dataclass(frozen=True)
class Scratch:
    """A tensor that lives as long as a run: the states of split rows, the pieces of totals."""

    key: Hashable
    count: int
    dtype: DType
    zero: bool


@dataclass(eq=False)  # one is made for every kernel on every new graph
class Launch:
    """A kernel over a grid. `fixed` has its arguments as numbers, 0 where a run gives an array;
    `aligned` says which of them are arrays that lie well, and `held` has these arrays."""

    kernel: Kernel
    grid: tuple[int, int, int]
    fixed: Sequence[int]
    aligned: tuple[bool, ...]
    held: Sequence[Any]


@dataclass(frozen=True)
class Prepared:
    """Everything about the launches of a row program that does not change between runs."""

    scratch: tuple[Scratch, ...]
    launches: tuple[Launch, ...]


@dataclass(frozen=True)
class LaunchPart:
    """What one launch of a kernel takes, and the block of messages that it stores."""

    over: str
    kernel: Kernel
    programs: int
    numbers: Mapping[str, int] = field(default_factory=dict)
    block: MessageBlock | None = None


@dataclass
class Preparation:
    """Works out the launches of a row program for a walk, or for a number of rows."""

    program: RowProgram
    variant: Callable[[Shape], tuple[tuple[str, Kernel], ...]]
    run: Run
    walk: DeviceWalk | None
    tile: Tile
    wide: bool

    @cached_property
    def plan(self) -> DeviceWalk | EdgeTiles | WholeRows | None:
        """How the walk is cut into what kernels are launched over."""
        program = self.program
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
        kernels = self.variant(shape)
        added = [(over, kernel) for over, kernel in kernels if over in (PIECES, ENTITIES)]
        parts = [p for o, k in kernels if (o, k) not in added for p in self._parts(o, k)]
        base, launches = 0, []
        pieces = sum(part.programs for part in parts if part.kernel.adds)
        for part in parts:
            numbers = {
                **part.numbers,
                "num_chunks": plan.num_chunks if plan else 0,
                "piece_base": base,
                "num_pieces": pieces,
            }
            if isinstance(plan, EdgeTiles):
                numbers |= plan.numbers
            launches += self._launches(part, numbers)
            base += part.programs if part.kernel.adds else 0
            if part.block is not None:
                launches += self._added(part, added)
        return Prepared(tuple(self._scratch(kernels, pieces)), tuple(launches))

    def _parts(self, over: str, kernel: Kernel) -> list[LaunchPart]:
        """What launches of a kernel take: everything, or a block after another."""
        if over == "totals":
            return [LaunchPart(over, kernel, 1)]
        if over == CLEARED:
            count = self.run.extents[self.program.other_space]
            return [LaunchPart(over, kernel, _tiles(kernel, count), {"num_far": count})]
        if self.far is None or not takes_blocks(kernel):
            count = self._items(over)
            return [LaunchPart(over, kernel, self._programs(kernel, count), {"num_items": count})]
        blocks = self.far.of(over)
        return [
            LaunchPart(
                over, kernel, self._programs(kernel, stop - first, len(blocks)),
                {FIRST: first, "num_items": stop}, block,
            )
            for block in blocks for first, stop in [block.items]
        ]  # fmt: skip

    def _added(self, part: LaunchPart, kernels: list[tuple[str, Kernel]]) -> list[Launch]:
        """The launches that add the messages which a part stored to the sums of far entities."""
        block, stored = part.block, part.kernel.keys
        assert block is not None
        launches: list[Launch] = []
        for over, kernel in kernels:
            keys = kernel.keys
            own = [node for node in self.program.scatters if ("array", node) in keys]
            if all((MESSAGE, node.inputs[0]) in stored for node in own):
                programs = _tiles(kernel, block.count(over))
                launches += self._launches(LaunchPart(over, kernel, programs), block.numbers)
        return launches

    def _launches(self, part: LaunchPart, numbers: Mapping[str, int]) -> list[Launch]:
        if not part.programs:
            return []
        grid = (part.programs, part.kernel.source.tile.windows, 1)
        return [self._launch(part.kernel, grid, part.over, numbers)]

    def _items(self, over: str) -> int:
        if self.plan is None:
            return self.run.extents[self.program.space] if over == "items" else 0
        return self.plan.count(over)

    def _programs(self, kernel: Kernel, count: int, parts: int = 1) -> int:
        """Programs that take so many entities; each of several parts leaves pieces of totals."""
        tiles, groups = _tiles(kernel, count), kernel.source.tile.groups
        if kernel.adds and parts > 1:
            groups = max(min(groups, LEAST_GROUPS), groups // parts)
        return min(tiles, groups) if loops(kernel) else tiles

    def _scratch(self, kernels: tuple[tuple[str, Kernel], ...], pieces: int) -> list[Scratch]:
        program, plan = self.program, self.plan

        def states(kind: str, node: Node, count: int, zero: bool = False) -> Scratch:
            size = count * node.type.size
            return Scratch((kind, node), size, node.type.dtype.compute, zero)

        # Not every kernel adds to every total: what none wrote counts as zero.
        several = sum(kernel.adds for _, kernel in kernels) > 1
        totals = (*program.totals, *program.outer_sums)
        found = [states("piece", node, max(pieces, 1), several) for node in totals]
        for scan in kept_scans(program):
            found.append(states(KEPT, scan.before, self.tile.groups * self.tile.rows * BLOCK))
            found.append(states(MARK, scan.before, self._marks))
        if self.far is not None:
            found += self._of_blocks(self.far)
        if plan is None or not plan.num_chunks:
            return found
        for node in (n for phase in program.phases for n in phase.reductions):
            found.append(states("chunk", node, plan.num_chunks))
            found += [states("hub", node, plan.num_hubs)] * (len(program.phases) > 1)
        counts = {"hub": plan.num_hubs}
        for kind, node in states_of(program):
            found.append(states(kind, node, counts.get(kind, plan.num_chunks)))
        return found

    def _of_blocks(self, far: FarBlocks) -> list[Scratch]:
        """Memory for the messages of a block and what they come to."""
        scatters = self.program.scatters
        wanted = [(MESSAGE, node, far.slots) for node in messages(scatters)]
        wanted += [(PARTIAL, node, max(far.spilled, 1)) for node in scatters]
        return [
            Scratch((kind, node), count * node.type.size, node.type.dtype.compute, False)
            for kind, node, count in wanted
        ]

    @property
    def _marks(self) -> int:
        """The blocks of edges of rows that a launch takes, or of chunks, at most."""
        assert self.walk is not None
        if self.far is None:
            return self.walk.num_edges // BLOCK + self.walk.num_rows + 1
        return max(self.far.num_chunks * MARKS_OF_CHUNK, self.far.marks(BLOCK))

    @cached_property
    def far(self) -> FarBlocks | None:
        """The blocks in which a walk sums at the far ends of its edges."""
        program, walk, run = self.program, self.walk, self.run
        if not program.scatters:
            return None
        assert walk is not None
        assert program.relation is not None
        assert isinstance(self.plan, DeviceWalk | WholeRows)
        nodes = messages(program.scatters)
        nbytes = sum(n.type.size * n.type.dtype.compute.itemsize for n in nodes)
        slots = slots_for(walk.num_edges, nbytes)
        topology = run.graphs[program.relation]
        return far_blocks(topology, self.plan, program.side, slots, run.platform)

    def _launch(
        self, kernel: Kernel, grid: tuple[int, int, int], over: str, numbers: Mapping[str, int]
    ) -> Launch:
        count = len(kernel.source.parameters)
        fixed, aligned, held = [0] * count, [False] * count, []
        for position, key in kernel.fixed:
            number = numbers.get(key)
            if number is None:
                array, number = self._array(key, kernel, over)
                aligned[position] = number % ALIGNMENT == 0
                held.append(array)
            fixed[position] = number
        return Launch(kernel, grid, fixed, tuple(aligned), held)

    def _array(self, key: str, kernel: Kernel, over: str) -> tuple[Any, int]:
        """The array that a parameter stands for, and its address."""
        if key == "tables":
            tables = self.run.platform.constant(kernel.source.tables)
            return tables, self.run.platform.address(tables)
        assert self.plan is not None, f"{key} without a relation"
        holder: Any = self.far if self.far is not None and hasattr(self.far, key) else self.plan
        found = self.run.arrays.get((holder, key, over))
        if found is None:
            array = holder.array(key, over)
            found = self.run.arrays[holder, key, over] = array, self.run.platform.address(array)
        return found


def _tiles(kernel: Kernel, count: int) -> int:
    return -(-count // kernel.source.tile.rows)


def takes_blocks(kernel: Kernel) -> bool:
    """Whether a kernel takes its items a block at a time."""
    return FIRST in kernel.keys


def loops(kernel: Kernel) -> bool:
    """Whether a program of a kernel takes one tile after another."""
    return kernel.source.loops
