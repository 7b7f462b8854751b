"""What an executable can tell: the text of its kernels at every stage, their tiles, its memory."""

from collections.abc import Iterator
from dataclasses import dataclass

from tiga.backends.triton.choice import why
from tiga.backends.triton.compiled import compile_kernel
from tiga.backends.triton.edge_tiles import EdgeTiles
from tiga.backends.triton.executable import Executable
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.scatter_blocks import FarBlocks
from tiga.backends.triton.scatters import CLEARED, ENTITIES, PIECES
from tiga.backends.triton.schedule import facts
from tiga.backends.triton.table_sums import summed_by_index
from tiga.backends.triton.topology import DeviceWalk
from tiga.backends.triton.writer import KernelSource
from tiga.errors import InvalidValue
from tiga.relations.snapshot import Snapshot

STAGES = ("triton", "ttir", "ptx")

OVER = {
    "items": "rows, and chunks of split rows",
    "whole": "rows that are not split",
    "chunks": "chunks of split rows",
    "hubs": "split rows, whose chunks it combines",
    "tiles": "edges, in their order",
    "totals": "pieces of a sum over all rows",
    CLEARED: "far ends of edges, whose sums start at zero",
    PIECES: "messages of a block of rows to the same far end",
    ENTITIES: "far ends that get several pieces from a block of rows",
}
"""What a kernel is launched over, in words."""


@dataclass(frozen=True)
class KernelSchedule:
    """The tile of one kernel, what it is launched over, and what the choice was made by."""

    kernel: str
    over: str
    tile: Tile
    why: str

    def __str__(self) -> str:
        return f"{self.kernel}: {self.tile}; over {self.over}; {self.why}"


def kernels(executable: Executable) -> Iterator[tuple[RowStep, str, KernelSource]]:
    """The kernels that graphs have needed so far; those of a typical graph if none has."""
    steps = [s for s in executable.steps if isinstance(s, RowStep)]
    if not any(step.kernels for step in steps):
        for step in steps:
            for over, source in step.sources(step.typical()):
                yield step, over, source
        return
    for step in steps:
        for made in list(step.kernels.values()):
            for over, kernel in made:
                yield step, over, kernel.source


def schedules(executable: Executable) -> tuple[KernelSchedule, ...]:
    """The schedules of the kernels, in launch order."""
    return tuple(
        KernelSchedule(source.name, OVER[over], source.tile, _why(step))
        for step, over, source in kernels(executable)
    )


def _why(step: RowStep) -> str:
    summed = summed_by_index(step.program)
    if summed is not None:
        return f"sums of rows by an index into {summed.op.extent}, in a fixed number of pieces"
    known = facts(step.program)
    parts = [f"widest value {known.whole or known.elements} elements, {known.read_size} bytes each"]
    if step.tiles:
        parts += sorted(
            {step.measured.get(d) or why(step.program, d, t) for d, t in step.tiles.items()}
        )
    if known.num_products:
        parts.append("products with a matrix")
    if known.has_totals:
        parts.append("sums over all rows in a fixed number of pieces")
    return ", ".join(parts)


def text(executable: Executable, stage: str, capability: int) -> str:
    """The kernels at a stage of compilation for a compute capability; needs no GPU.

    Raises:
        InvalidValue: there is no such stage.
        UnsupportedByBackend: Triton is not installed, and the stage is its own.
    """
    if stage not in STAGES:
        raise InvalidValue(f"expected one of {', '.join(STAGES)}, got {stage!r}")
    return "\n\n".join(
        f"{'#' if stage == 'triton' else '//'} {source.name}: {source.tile}\n"
        f"{_staged(source, stage, capability)}"
        for _, _, source in kernels(executable)
    )


def _staged(source: KernelSource, stage: str, capability: int) -> str:
    if stage == "triton":
        return source.text
    aligned = [p.type.startswith("*") for p in source.parameters]
    return str(compile_kernel(source, capability, aligned).asm[stage])


def explain(executable: Executable) -> str:
    """The kernels with their tiles, then the memory of the topologies that they ran on."""
    lines = [str(schedule) for schedule in schedules(executable)]
    for step in executable.steps:
        if not isinstance(step, RowStep):
            lines.append(f"library: {step.node.op.name} of node values")
    for number, topology in enumerate(list(executable.by_topology)):
        lines += [f"graph {number}, {line}" for line in _memory(topology)]
    between = [sum(r.nbytes for r in list(records.values())[:1])
               for records in list(executable.by_topology.values())]  # fmt: skip
    lines += [f"graph {i}: {n} bytes of scratch in a run" for i, n in enumerate(between)]
    return "\n".join(lines)


def _memory(topology: Snapshot) -> Iterator[str]:
    for key, walk in list(topology.derived.items()):
        if isinstance(walk, EdgeTiles):
            yield (
                f"rows of {key[1]} on {key[2]}: {walk.num_tiles} tiles of {walk.size} edges, "
                f"{walk.num_hubs} rows cross them; work list {walk.plan_bytes} bytes"
            )
        if isinstance(walk, FarBlocks):
            yield (
                f"sums at the far ends of rows of {key[1]} on {key[2]}: {len(walk.blocks)} blocks "
                f"of at most {walk.slots} edges; work list {walk.plan_bytes} bytes"
            )
        if isinstance(walk, DeviceWalk):
            yield (
                f"rows of {key[1]} on {key[2]}: {walk.num_rows} rows, {walk.num_edges} edges, "
                f"{walk.num_hubs} rows split in {walk.num_chunks} chunks; topology "
                f"{walk.nbytes - walk.plan_bytes} bytes, work list {walk.plan_bytes} bytes, "
                f"built in {1e3 * walk.seconds:.1f} ms"
                f"{', from arrays of the host' if walk.copied else ''}"
            )
