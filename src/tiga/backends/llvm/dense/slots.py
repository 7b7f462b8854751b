"""What the table of a whole-tensor kernel holds: extents, strides, numbers and addresses."""

from tiga.passes.tensor_spec import Spec

SIZES = ("rows", "columns", "batch", "tile", "tiles")
"""The first slots: extents of the domain, rows and columns per task, tasks per batch of rows."""


def slot_names(spec: Spec) -> list[tuple]:
    """What every slot of the kernel's table holds, in order."""
    names: list[tuple] = [("size", name) for name in SIZES]
    for instruction in spec.instructions:
        if instruction.opcode in ("load", "gather"):
            number = int(instruction.text)
            names.append(("load", number))
            for dim in range(instruction.dims):
                names += [("extent", number, dim), ("step", number, dim)]
        if instruction.opcode == "argument":
            names.append(("argument", instruction.dims))
    names += [("store", place) for place in range(len(spec.stores))]
    names += [("fault",)] if spec.of("gather") else []
    return list(dict.fromkeys(names))
