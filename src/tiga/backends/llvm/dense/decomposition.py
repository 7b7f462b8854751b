"""How the domain of a whole-tensor kernel falls into tasks, and its sums into stretches.

Both depend on extents alone, so no result depends on the number of threads.
"""

from dataclasses import dataclass, replace

from tiga.backends.llvm.dense.slots import STRETCH
from tiga.backends.llvm.memory import CACHE_LINE
from tiga.passes.tensor_spec import COLUMN, ROW, TOTAL, KernelStep, RowScan, Spec

TASK_ELEMENTS = 16384
"""Elements per task: enough to hide a launch, few enough to balance threads."""

MAX_PARTS = 64
"""Parts of a reduction over rows, which are added afterwards."""

SERIAL_BELOW = 32768
"""Elements of a domain below which one thread is faster."""


@dataclass(frozen=True)
class Decomposition:
    """How a domain falls into tasks: fixed by its extents."""

    batch: int
    tile: int
    batches: int
    tiles: int

    @property
    def tasks(self) -> int:
        return self.batches * self.tiles


def decompose(spec: Spec, rows: int, columns: int, group: int) -> Decomposition:
    """The tasks of a kernel on a domain of these extents; reductions add `group` rows."""
    kinds = spec.reduced
    if spec.ordered and kinds & {COLUMN, TOTAL}:
        return Decomposition(group, columns, -(-rows // group), 1)
    tile = columns
    if ROW not in kinds and not spec.of(RowScan) and columns > 2 * TASK_ELEMENTS:
        tile = TASK_ELEMENTS
    batch = max(1, TASK_ELEMENTS // max(tile, 1))
    if COLUMN in kinds:
        batch = _batch(rows, group, batch)
    return Decomposition(batch, tile, -(-rows // batch), -(-columns // tile))


def _batch(rows: int, group: int, batch: int) -> int:
    """Rows per task, none of which belong to two groups."""
    if group == rows:
        return max(batch, -(-rows // MAX_PARTS))
    parts = min(max(1, MAX_PARTS * group // rows), -(-group // batch))
    while group % parts:
        parts -= 1
    return group // parts


def stretch_rows(spec: Spec, cut: Decomposition) -> int:
    """Rows whose sums over rows add up in one stretch."""
    if COLUMN in spec.added:
        # Of rows that go together one sum is added; a stretch costs as much as adding two rows.
        return STRETCH * max(spec.block, 2)
    return max(1, STRETCH * spec.lanes // cut.tile)


def in_levels(spec: Spec, cut: Decomposition) -> Spec:
    """The kernel whose sums have as many levels as tasks of this extent ask for."""
    if spec.ordered:
        return spec
    kinds = spec.added
    along = bool(kinds & {ROW, TOTAL})
    long = along and (cut.tile > STRETCH * spec.lanes or COLUMN in kinds)
    over = COLUMN in kinds or (TOTAL in kinds and not long)
    return replace(spec, long=long, tall=over and cut.batch >= 2 * stretch_rows(spec, cut))


@dataclass(frozen=True)
class Finish:
    """How parts of results fall into tasks that combine them: fixed by extents, as are parts."""

    parts: int
    width: int
    blocks: int
    tasks: int
    grain: int

    @staticmethod
    def of(step: KernelStep, parts: Decomposition) -> "Finish":
        groups = step.rows // step.group
        each = max(1, parts.batches // groups)
        width = max(CACHE_LINE, SERIAL_BELOW // each // CACHE_LINE * CACHE_LINE)
        by_columns = any(step.spec.instructions[i].kind == COLUMN for i in step.spec.stores)
        blocks = -(-step.columns // width) if by_columns else 1
        tasks = groups * blocks if by_columns else 1
        grain = max(1, SERIAL_BELOW // (each * min(width, step.columns)))
        return Finish(each, width, blocks, tasks, grain)
