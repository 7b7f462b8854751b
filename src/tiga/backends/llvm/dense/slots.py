"""What the table of a whole-tensor kernel holds: extents, strides, numbers and addresses."""

from tiga.passes.tensor_spec import COLUMN, TOTAL, Argument, Gather, Instruction, Read, Reduce, Spec
from tiga.types import DType, complex64, complex128, float32, float64

SIZES = ("rows", "columns", "batch", "tile", "tiles")
"""The first slots: extents of the domain, rows and columns per task, tasks per batch of rows."""

FINISH = ("parts", "width", "blocks", "tasks")
"""Those that combining parts of results takes: parts per group of rows, columns per task of it and
tasks per group, and how many tasks left parts of totals."""

STRETCH = 64
"""Values that are added in sequence before their sum goes on in a wider type."""

_WIDER = {float32: float64, complex64: complex128}


def wider(dtype: DType) -> DType:
    """The type that carries sums of a type: twice as wide, if there is one."""
    return _WIDER.get(dtype, dtype)


def part_dtype(spec: Spec, number: int) -> DType:
    """The type in which tasks leave parts of a reduction's result: such parts do not round."""
    one = spec.reduction(number)
    in_levels = spec.tall if one.kind == COLUMN else spec.tall or spec.long
    return wider(one.dtype.compute) if in_levels and one.adds else one.dtype.compute


def work_places(spec: Spec) -> tuple[int, ...]:
    """The stores of sums over rows whose tasks have several stretches: each adds one up beside."""
    sums = {i for i in spec.of(Reduce) if spec.reduction(i).adds} if spec.tall else set()
    kinds = spec.instructions
    return tuple(p for p, i in enumerate(spec.stores) if i in sums and kinds[i].kind == COLUMN)


def partial_places(spec: Spec) -> tuple[int, ...]:
    """The stores that take parts of results, which are combined when all are there."""
    kinds = (spec.instructions[i].kind for i in spec.stores)
    return tuple(place for place, kind in enumerate(kinds) if kind in (COLUMN, TOTAL))


def slot_names(spec: Spec) -> list[tuple]:
    """What every slot of the kernel's table holds, in order."""
    names: list[tuple] = [("size", name) for name in SIZES]
    for instruction in spec.instructions:
        names += _slots_of(instruction)
    names += [("store", place) for place in range(len(spec.stores))]
    if partial := partial_places(spec):
        names += [("size", name) for name in FINISH]
        names += [("result", place) for place in partial]
    names += [("size", "height")] if spec.tall else []
    names += [("work", place) for place in work_places(spec)]
    names += [("fault",)] if spec.of(Gather) else []
    return list(dict.fromkeys(names))


def _slots_of(instruction: Instruction) -> list[tuple]:
    """What one instruction reads of the table."""
    if isinstance(instruction, Argument):
        return [("argument", instruction.place)]
    if not isinstance(instruction, Read):
        return []
    number, dims = instruction.array, range(instruction.dims)
    return [("load", number), *((name, number, d) for d in dims for name in ("extent", "step"))]
