"""How the kernels of a row program take its walk apart, whatever the pages."""

from tiga.backends.llvm.paged.scatters import group_bounds
from tiga.backends.llvm.paged.tables import table_bounds
from tiga.paging.plan import Division
from tiga.passes.carries import joined_phases, levels
from tiga.passes.rows import RowProgram
from tiga.relations.walk import HUB_CHUNK, HUB_DEGREE


def division_of(program: RowProgram, tasks: int) -> Division:
    """Where sums over rows depend on tasks, these stay whole; where sums are scattered, groups of
    tasks have pages of their own."""
    splits = program.fills_tables or not program.has_sums
    bounds = group_bounds(tasks) if program.scatters else [0, tasks]
    bounds = table_bounds(tasks) if program.fills_tables else bounds
    return Division(splits, HUB_DEGREE, HUB_CHUNK, chunk_kernels(program), tuple(bounds))


def chunk_kernels(program: RowProgram) -> int:
    """How often the chunks of a split row are gone through; 0 where one kernel needs them all."""
    joined, count = joined_phases(program), 0
    for number, phase in enumerate(program.phases):
        if phase.scans and number not in joined:
            return 0
        count += len(levels(phase)) if phase.scans else 0
        count += not phase.carries_only
    return count
