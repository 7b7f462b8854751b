"""Run a plan on a GPU, step by step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiga.backends.triton.exactness import ordered_sums
from tiga.backends.triton.launch import ChooseTile, RowStep, Run, Shape
from tiga.backends.triton.layout import padded
from tiga.backends.triton.library import call_library
from tiga.backends.triton.schedule import choose_tile
from tiga.backends.triton.writer import KernelSource
from tiga.errors import UnsupportedByBackend
from tiga.passes.canonicalize import canonicalize
from tiga.passes.expand import Expand
from tiga.passes.form import form
from tiga.passes.hoist import hoist
from tiga.passes.rows import LibraryCall, Plan, Step
from tiga.runtime import cuda
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space


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
        sizes = {GLOBAL: 1, **(extents or {})}
        for relation, graph in zip(self.relations, graphs, strict=True):
            csr = graph.csr()
            sizes[relation.src], sizes[relation.dst] = csr.num_src, csr.num_dst
            sizes[relation.edge] = csr.num_edges
        tensors = dict(zip(self.plan.inputs, inputs, strict=True))
        tensors.update(zip(self.plan.outputs, outputs, strict=True))
        device = next(iter((*outputs, *inputs))).device
        for node in self.plan.intermediates:
            count = sizes[node.type.space] * node.type.size
            tensors[node] = cuda.empty(count, node.type.dtype, device)
        bound = dict(zip(self.relations, graphs, strict=True))
        with cuda.on(device):
            stream = cuda.current_stream(device)
            run = Run(bound, sizes, tensors, device, cuda.capability(device), stream)
            for step in self.steps:
                self._execute(step, run)

    @staticmethod
    def _execute(step: RowStep | LibraryCall, run: Run) -> None:
        if isinstance(step, RowStep):
            step.execute(run)
            return
        inputs = [run.tensors[n] for n in step.node.inputs]
        call_library(step.node, inputs, run.tensors[step.node])

    def sources(self, mean_degree: int = 16, has_chunks: bool = True) -> Iterator[KernelSource]:
        """The kernels that serve a graph with rows of about so many edges."""
        for step in self.steps:
            if isinstance(step, LibraryCall):
                continue
            walks = step.program.relation is not None
            tile = step.tile(padded(mean_degree) if walks else 1)
            for _, source in step.sources(Shape(tile, 32, False, walks and has_chunks)):
                yield source

    def code(self, mean_degree: int = 16) -> str:
        """The Triton source of the kernels that serve a graph of this mean degree."""
        parts = (f"# {s.name}: {s.tile}\n{s.text}" for s in self.sources(mean_degree))
        return "\n\n".join(parts)


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
    normal = canonicalize(hoist(canonicalize(Expand()(program))))
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
