"""How many rows of a whole-tensor kernel go together."""

from tiga.passes.tensor_spec import COLUMN, FULL, ROW, TOTAL, Spec

BLOCK_ROWS = 4
"""Rows that are walked together where they share what they read."""

SHARING_VALUES = 8
"""Full values per row up to which those of so many rows fit in registers."""


def block_of(spec: Spec) -> int:
    """How many rows go together: several where they share what they read, or where they add."""
    kinds = {one.kind for one in spec.instructions if one.opcode == "reduce"}
    full = sum(one.kind == FULL for one in spec.instructions)
    scans = any(one.opcode == "scan" for one in spec.instructions)
    if spec.flat or spec.stashed or scans or TOTAL in kinds:
        return 1
    if COLUMN in kinds:
        return 2 if full > SHARING_VALUES else BLOCK_ROWS
    stored = any(spec.instructions[i].kind == FULL for i in spec.stores)
    shared = ROW in kinds and not stored and spec.common and full <= SHARING_VALUES
    return BLOCK_ROWS if shared else 1
