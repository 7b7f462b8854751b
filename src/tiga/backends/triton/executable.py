"""Run a plan on a GPU: bind tensors to kernels' parameters and launch step by step."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiga.backends.triton.compiled import Kernel
from tiga.backends.triton.exactness import ordered_sums
from tiga.backends.triton.kernel import Kernels
from tiga.backends.triton.layout import Tile, padded
from tiga.backends.triton.library import call_library
from tiga.backends.triton.schedule import choose_tile
from tiga.backends.triton.topology import DeviceWalk, device_walk
from tiga.backends.triton.totals import sum_pieces
from tiga.backends.triton.writer import KernelSource
from tiga.errors import UnsupportedByBackend
from tiga.passes.canonicalize import canonicalize
from tiga.passes.form import form
from tiga.passes.hoist import hoist
from tiga.passes.rows import LibraryCall, Plan, RowProgram, Step
from tiga.runtime import cuda
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space, int32, int64

LIMIT = 2**31

ChooseTile = Callable[[RowProgram, int], Tile]
"""The tile of a row program whose rows have about so many edges."""


@dataclass(frozen=True)
class Shape:
    """What decides the kernels of a row program on a graph."""

    tile: Tile
    index_bits: int
    wide: bool
    has_chunks: bool


@dataclass(frozen=True)
class Variant:
    """The kernels of a row program in launch order: what each covers, and the kernel."""

    launches: tuple[tuple[str, Kernel], ...]
    totals: tuple[tuple[Node, Kernel], ...]


@dataclass
class RowStep:
    """A row program with the variants of its kernels made so far."""

    program: RowProgram
    ordered: frozenset[Node]
    number: int
    choose: ChooseTile = choose_tile
    variants: dict[Shape, Variant] = field(default_factory=dict)

    def variant(self, shape: Shape) -> Variant:
        if shape not in self.variants:
            self.variants[shape] = self._make(shape)
        return self.variants[shape]

    def sources(self, shape: Shape) -> list[tuple[str, KernelSource]]:
        """The kernels' texts, with what each is launched over."""
        index = int32 if shape.index_bits == 32 else int64
        kernels = Kernels(self.program, shape.tile, index, shape.wide, self.ordered)
        name, phases = f"step{self.number}", len(self.program.phases)
        if not (shape.has_chunks and phases):
            return [("items", kernels.rows(f"{name}_rows", mixed=False))]
        if phases == 1:
            return [
                ("items", kernels.rows(f"{name}_rows", mixed=True)),
                ("hubs", kernels.combine(f"{name}_combine", 0)),
            ]
        found = [("whole", kernels.rows(f"{name}_rows", mixed=False))]
        for phase in range(phases):
            found.append(("chunks", kernels.chunks(f"{name}_chunks{phase}", phase)))
            found.append(("hubs", kernels.combine(f"{name}_combine{phase}", phase)))
        return found

    def _make(self, shape: Shape) -> Variant:
        launches = tuple((over, Kernel.of(source)) for over, source in self.sources(shape))
        totals = (*self.program.totals, *self.program.outer_sums)
        sums = tuple((n, Kernel.of(sum_pieces(f"step{self.number}_total", n))) for n in totals)
        return Variant(launches, sums)


@dataclass
class Run:
    """One execution: the tensor of every value."""

    graphs: Mapping[Relation, Any]
    extents: Mapping[Space, int]
    tensors: dict[Node, Any]
    device: Any
    capability: int

    def execute(self, step: "RowStep | LibraryCall") -> None:
        if isinstance(step, LibraryCall):
            inputs = [self.tensors[n] for n in step.node.inputs]
            call_library(step.node, inputs, self.tensors[step.node])
        else:
            RowLaunch(self, step).execute()

    def walk(self, relation: Relation, side: str) -> DeviceWalk:
        return device_walk(self.graphs[relation], side, self.device)


@dataclass
class RowLaunch:
    """The launches of one row program."""

    run: Run
    step: RowStep
    scratch: dict[Hashable, Any] = field(default_factory=dict)
    pieces: dict[Node, int] = field(default_factory=dict)

    def execute(self) -> None:
        program, run = self.step.program, self.run
        walk = run.walk(program.relation, program.side) if program.relation else None
        shape = self.shape(walk)
        variant = self.step.variant(shape)
        counts = self._counts(walk)
        launches = [(counts[over], over, kernel) for over, kernel in variant.launches]
        self._allocate(launches, walk)
        base = 0
        for items, over, kernel in launches:
            tile = kernel.source.tile
            programs = self._programs(tile, items, kernel)
            if programs:
                bound = self._bind(kernel, walk, over, items, base)
                kernel.launch((programs, tile.windows, 1), bound, run.capability)
            base += programs if self._adds(kernel) else 0
        for node, kernel in variant.totals:
            tile = kernel.source.tile
            self.scratch["num_pieces"] = self.pieces[node]
            bound = self._bind(kernel, walk, "totals", 0, 0)
            kernel.launch((1, tile.windows, 1), bound, run.capability)

    def shape(self, walk: DeviceWalk | None) -> Shape:
        """Which kernels serve this run."""
        mean = min(walk.mean_degree, 64) if walk else 1
        tile = self.step.choose(self.step.program, mean)
        bits = walk.index.element_size() * 8 if walk else 32
        return Shape(tile, bits, self._is_wide(), bool(walk and walk.num_chunks))

    def _is_wide(self) -> bool:
        program, extents = self.step.program, self.run.extents
        arrays = (*program.reads, *program.writes)
        return any(extents[n.type.space] * n.type.size >= LIMIT for n in arrays)

    def _counts(self, walk: DeviceWalk | None) -> dict[str, int]:
        if walk is None:
            return {"items": self.run.extents[self.step.program.space]}
        whole = walk.num_items - walk.num_chunks
        return {
            "items": walk.num_items,
            "whole": whole,
            "chunks": walk.num_chunks,
            "hubs": walk.hub_rows.shape[0],
        }

    @staticmethod
    def _adds(kernel: Kernel) -> bool:
        """Whether a kernel leaves pieces of totals."""
        return any(p.key == "piece_base" for p in kernel.source.parameters)

    def _programs(self, tile: Tile, items: int, kernel: Kernel) -> int:
        tiles = -(-items // tile.rows)
        return min(tiles, tile.groups) if self._adds(kernel) else tiles

    def _allocate(self, launches: Sequence[tuple[int, str, Kernel]], walk: Any) -> None:
        """Scratch for the states of split rows and the pieces of totals."""
        program, run = self.step.program, self.run
        totals = (*program.totals, *program.outer_sums)
        pieces = sum(self._programs(k.source.tile, n, k) for n, _, k in launches if self._adds(k))
        for node in totals:
            self.pieces[node] = pieces
            # Not every kernel adds to every total: what none wrote counts as zero.
            self.scratch["piece", node] = self._state(node, max(pieces, 1), zero=len(launches) > 1)
        if walk is None or not walk.num_chunks:
            return
        for node in (n for phase in program.phases for n in phase.reductions):
            self.scratch["chunk", node] = self._state(node, walk.num_chunks)
            if len(program.phases) > 1:
                self.scratch["hub", node] = self._state(node, walk.hub_rows.shape[0])
        del run

    def _state(self, node: Node, count: int, zero: bool = False) -> Any:
        dtype = node.type.dtype.compute
        return cuda.empty(count * node.type.size, dtype, self.run.device, zero)

    def _bind(
        self, kernel: Kernel, walk: DeviceWalk | None, over: str, items: int, base: int
    ) -> list[Any]:
        numbers = {
            "num_items": items,
            "num_chunks": walk.num_chunks if walk else 0,
            "piece_base": base,
        }
        arguments = []
        for parameter in kernel.source.parameters:
            key = parameter.key
            if key in numbers:
                arguments.append(numbers[key])
            elif key in self.scratch:
                arguments.append(self.scratch[key])
            else:
                arguments.append(self._tensor(key, kernel, walk, over))
        return arguments

    def _tensor(self, key: Hashable, kernel: Kernel, walk: DeviceWalk | None, over: str) -> Any:
        if key == "tables":
            return cuda.constant(kernel.source.tables, self.run.device)
        if isinstance(key, str):
            array = getattr(walk, key)
            skips = over == "whole" and key.startswith("item_")
            return array[walk.num_chunks :] if skips else array
        kind, *rest = key  # type: ignore[misc]
        if kind == "degree":
            return self.run.walk(*rest).row_ptr
        assert kind == "array", f"nothing bound to {key}"
        return self.run.tensors[rest[0]]


@dataclass(frozen=True)
class Executable:
    """A plan for NVIDIA GPUs. Kernels are compiled when a graph first needs them."""

    plan: Plan
    relations: tuple[Relation, ...]
    steps: tuple[RowStep | LibraryCall, ...]

    def run(
        self,
        graphs: Sequence[Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        extents: Mapping[Space, int] | None = None,
    ) -> None:
        """Compute the outputs on the current stream of their device.

        Args:
            graphs: one per relation of the program, in order.
            inputs, outputs: contiguous torch tensors on one device, entity axis first.
            extents: sizes of spaces that no relation of the program fixes.
        """
        run = self.bind(graphs, inputs, outputs, extents)
        for step in self.steps:
            run.execute(step)

    def bind(
        self,
        graphs: Sequence[Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        extents: Mapping[Space, int] | None = None,
    ) -> Run:
        """A run with every tensor in place, intermediates allocated."""
        sizes = {GLOBAL: 1, **(extents or {})}
        for relation, graph in zip(self.relations, graphs, strict=True):
            sizes[relation.src], sizes[relation.dst] = graph.num_src, graph.num_dst
            sizes[relation.edge] = graph.num_edges
        tensors = dict(zip(self.plan.inputs, inputs, strict=True))
        tensors.update(zip(self.plan.outputs, outputs, strict=True))
        device = next(iter((*outputs, *inputs))).device
        for node in self.plan.intermediates:
            count = sizes[node.type.space] * node.type.size
            tensors[node] = cuda.empty(count, node.type.dtype, device)
        bound = dict(zip(self.relations, graphs, strict=True))
        return Run(bound, sizes, tensors, device, cuda.capability(device))

    def sources(self, mean_degree: int = 16, has_chunks: bool = True) -> Iterator[KernelSource]:
        """The kernels that serve a graph with rows of about so many edges."""
        for step in self.steps:
            if isinstance(step, LibraryCall):
                continue
            walks = step.program.relation is not None
            tile = step.choose(step.program, padded(mean_degree) if walks else 1)
            for _, source in step.sources(Shape(tile, 32, False, walks and has_chunks)):
                yield source
            for _, kernel in step.variant(Shape(tile, 32, False, walks and has_chunks)).totals:
                yield kernel.source


def prepare(
    plan: Plan, relations: tuple[Relation, ...], choose: ChooseTile = choose_tile
) -> Executable:
    """The executable of a plan; its kernels are written and compiled when they are needed.

    Raises:
        Unfusable: a value is too wide for any tile.
        UnsupportedByBackend: the plan holds scans over a row's edges.
    """
    ordered = ordered_sums(plan)
    steps = tuple(_step(s, ordered, i, choose) for i, s in enumerate(plan.steps))
    return Executable(plan, relations, steps)


def compile_program(program: Program, choose: ChooseTile = choose_tile) -> Executable:
    """The executable of a program on NVIDIA GPUs. Needs no MLIR bindings."""
    normal = canonicalize(hoist(canonicalize(program)))
    return prepare(form(normal), program.relations, choose)


def _step(
    step: Step, ordered: frozenset[Node], number: int, choose: ChooseTile
) -> RowStep | LibraryCall:
    if isinstance(step, LibraryCall):
        return step
    if step.scans or step.scatters:
        raise UnsupportedByBackend(
            "a reducer that walks a row's edges in order (a user's own combine) does not run on "
            "GPUs yet; use a reducer made of sums, products, maxima and minima, or the CPU"
        )
    choose(step, 1)  # refuses what no tile holds
    return RowStep(step, ordered, number, choose)
