"""How a whole-tensor kernel falls into programs of a grid: fixed by its extents alone."""

from dataclasses import dataclass

from tiga.backends.triton.layout import padded
from tiga.passes.tensor_spec import COLUMN, FULL, ROW, TOTAL, KernelStep, Load, Spec

LIMIT = 2**31 - 2**20
"""Elements from which offsets need 64 bits: what a tile reaches past the end counts too."""

PROGRAMS = 1056
"""Most programs that leave partial results: some for each of 132 multiprocessors, in one wave."""

TILE = 1024
"""Elements a program holds of each value, where nothing is reduced."""

TOTAL_TILE = 4096
"""Elements a program holds of each value at a time, where everything is added up."""

COLUMN_TILE, COLUMNS = 2048, 64
"""Elements, and columns of them, that a program holds where rows are added up: whole lines of
memory in each row, and as few partial results as there are programs."""

ROW_TILE = 1024
"""Elements a program holds of each value where rows are reduced, if a row has no more."""

WHOLE_ROW = 8192
"""Elements of a row up to which a program holds all of it, and reads it once."""

WINDOW = 4096
"""Elements of a longer row that a program holds at a time."""

UNIT = 16
"""Strides that are multiples of this are passed divided by it: loads of 16 bytes need to know."""

MANY_VALUES = 24
"""Full values from which tiles are halved, so that they fit in registers."""


@dataclass(frozen=True)
class DenseForm:
    """What the text of a kernel depends on beside its instructions.

    A program holds `rows` rows and `window` columns of each value at a time; it takes all columns
    in turn where `loops`, and many rows in turn where `adds`. `wide` says that offsets need 64
    bits, `unit` what strides and extents are multiples of, `even_rows` and `even_columns` that
    tiles fill the domain exactly, and `single` that one program sees everything.
    """

    rows: int
    window: int
    warps: int
    loops: bool = False
    adds: bool = False
    wide: bool = False
    unit: int = 1
    even_rows: bool = False
    even_columns: bool = False
    single: bool = False


@dataclass(frozen=True)
class DenseGrid:
    """A form and the programs it runs as: `groups` of rows by `windows` of columns, each program
    with `steps` tiles."""

    form: DenseForm
    groups: int
    windows: int
    steps: int

    @property
    def programs(self) -> tuple[int, int, int]:
        return self.groups, self.windows, 1


def decompose(step: KernelStep) -> DenseGrid:
    """The programs of a kernel on its domain."""
    spec, kinds = step.spec, step.spec.reduced
    rows, columns = step.rows, step.columns
    adds = bool(kinds & {COLUMN, TOTAL})
    held, window, loops = _tile(spec, rows, columns)
    windows = 1 if loops or ROW in kinds else -(-columns // window)
    tiles = -(-rows // held)
    if spec.flat:
        tiles, windows = windows, 1
    groups = min(tiles, max(1, PROGRAMS // windows)) if adds else tiles
    steps = -(-tiles // groups)
    groups = -(-tiles // steps)
    unit = UNIT if _is_multiple(step, UNIT) else 1
    form = DenseForm(
        held,
        window,
        _warps(spec, held * window),
        loops,
        adds,
        wide=2 * rows * columns >= LIMIT if _is_complex(spec) else rows * columns >= LIMIT,
        unit=unit,
        even_rows=spec.flat or rows == held * groups * steps,
        even_columns=columns == window * groups * steps if spec.flat else columns % window == 0,
        single=adds and groups * windows == 1 and not loops,
    )
    return DenseGrid(form, groups, windows, steps)


def _tile(spec: Spec, rows: int, columns: int) -> tuple[int, int, bool]:
    """Rows and columns that a program holds at once, and whether columns are taken in turn."""
    scale = 2 if any(i.dtype.itemsize >= 8 for i in spec.instructions) else 1
    scale *= 2 if sum(i.kind == FULL for i in spec.instructions) > MANY_VALUES else 1
    if ROW in spec.reduced:
        whole = padded(columns)
        if whole > WHOLE_ROW // scale:
            return 1, WINDOW // scale, True
        return min(max(1, ROW_TILE // scale // whole), padded(rows)), whole, False
    kinds = spec.reduced
    tile = (COLUMN_TILE if COLUMN in kinds else TOTAL_TILE if TOTAL in kinds else TILE) // scale
    if spec.flat:
        return 1, min(tile, padded(columns)), False
    window = min(COLUMNS if COLUMN in kinds else tile, padded(columns))
    return min(tile // window, padded(rows)), window, False


def _warps(spec: Spec, elements: int) -> int:
    """Warps for so many elements: 8 of each value per thread, 16 of 16-bit ones and where rows are
    added up."""
    loads = [i.dtype.itemsize for i in spec.instructions if isinstance(i, Load) and i.kind == FULL]
    narrow = bool(loads) and max(loads) <= 2
    each = 16 if narrow or COLUMN in spec.reduced else 8
    return max(1, min(16, elements // (32 * each)))


def _is_multiple(step: KernelStep, unit: int) -> bool:
    moving = {i.array for i in step.spec.instructions if isinstance(i, Load) and i.moves}
    steps = (s for number in moving for _, s in step.loads[number].strides)
    return step.columns % unit == 0 and all(s % unit == 0 for s in steps)


def _is_complex(spec: Spec) -> bool:
    return any(one.dtype.is_complex for one in spec.instructions)
