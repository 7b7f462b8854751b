"""How a whole-tensor kernel walks its domain: lanes and rows that go together, values that are kept
between phases, stores past the caches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tiga.ops.monoid import COMBINED_BY
from tiga.passes.tensor_spec import (
    COLUMN,
    FULL,
    ROW,
    TOTAL,
    Apply,
    KernelStep,
    Position,
    Reduce,
    RowScan,
    Spec,
)
from tiga.trace.node import Node

if TYPE_CHECKING:
    from tiga.passes.tensor_draft import KernelDraft

STASH_COST = 16
"""Full values that cost less are made again in each phase rather than kept."""

STASH_COLUMNS = 8192
"""Columns up to which values of a row are kept: they lie on the stack."""

MANY_VALUES = 12
"""Full values beyond which two registers for each would be more than there are."""

DEAR = 20
"""The cost of an op whose lanes fill the machine by themselves."""

CACHE_LINE = 64
"""Bytes that are stored past the caches together."""

STREAMED_FROM = 12 * 2**20
"""Bytes of outputs from which they are stored past the caches."""

BLOCK_ROWS = 4
"""Rows that are walked together where they share what they read."""

SHARING_VALUES = 8
"""Full values per row up to which those of so many rows fit in registers."""


def block_of(spec: Spec) -> int:
    """How many rows go together: several where they share what they read, or where they add."""
    kinds = spec.reduced
    full = sum(one.kind == FULL for one in spec.instructions)
    if spec.flat or spec.stashed or spec.of(RowScan) or TOTAL in kinds:
        return 1
    if COLUMN in kinds:
        # Rows that come again in a later phase are in a cache by then; many that are read once
        # are more runs of memory than hardware follows.
        again = ROW in kinds
        return BLOCK_ROWS if again or full <= SHARING_VALUES else 2
    stored = any(spec.instructions[i].kind == FULL for i in spec.stores)
    shared = ROW in kinds and not stored and spec.common and full <= SHARING_VALUES
    return BLOCK_ROWS if shared else 1


def close(draft: "KernelDraft", outputs: Sequence[Node], relaxed: bool = True) -> KernelStep:
    """The kernel of a group that stores `outputs`; sums in lanes and blocks if `relaxed`."""
    reduces = any(isinstance(one, Reduce) for one in draft.instructions)
    ordered = reduces and not relaxed
    spec = Spec(
        draft.flat,
        tuple(draft.instructions),
        tuple(draft.index[node] for node in outputs),
        1 if ordered else _lanes(draft),
        ordered=ordered,
    )
    streaming = not ordered and _streams(spec, outputs, draft.columns)
    spec = replace(spec, stashed=_stashed(spec, draft.columns), streaming=streaming)
    spec = replace(spec, block=block_of(spec))
    return KernelStep(
        spec, draft.rows, draft.columns, tuple(draft.loads), tuple(draft.arguments),
        tuple(outputs), draft.group or draft.rows, tuple(draft.gathers.values()),
    )  # fmt: skip


def _streams(spec: Spec, outputs: Sequence[Node], columns: int) -> bool:
    """Whether outputs are too large for the caches, and their rows whole cache lines."""
    full = [
        n.type for n, i in zip(outputs, spec.stores, strict=True)
        if spec.instructions[i].kind == FULL
    ]  # fmt: skip
    large = sum(t.row_bytes for t in full) >= STREAMED_FROM
    return large and all(
        (spec.flat or columns * t.dtype.itemsize % CACHE_LINE == 0)
        and spec.lanes * t.dtype.itemsize % CACHE_LINE == 0
        for t in full
    )


def _lanes(draft: "KernelDraft") -> int:
    """How many columns go together."""
    made = draft.instructions
    full = [i for i in made if i.kind == FULL]
    wide = any(i.dtype.itemsize >= 8 and not isinstance(i, Position) for i in full)
    few = len(full) <= MANY_VALUES
    if few and any(isinstance(i, Reduce) and COMBINED_BY[i.combine].selects for i in made):
        # Extrema take several steps per element, each of which waits for the one before.
        lanes = 32 if wide else 64
    elif few and not any(isinstance(i, Apply | RowScan) and i.op.cost >= DEAR for i in made):
        lanes = 16 if wide else 32
    else:
        # Many values at once would not fit in registers, two of them each.
        lanes = 8 if wide else 16
    while lanes >= 2 * draft.columns and lanes > 1:
        lanes //= 2
    return lanes


def _stashed(spec: Spec, columns: int) -> tuple[int, ...]:
    """Costly full values of several phases: computed once per row and kept beside."""
    if spec.flat or columns > STASH_COLUMNS:
        return ()
    made, levels = spec.instructions, spec.levels
    cost = [0] * len(made)
    phases: list[set[int]] = [set() for _ in made]
    for i, one in enumerate(made):
        own = one.op.cost if isinstance(one, Apply) else 0
        cost[i] = own + sum(cost[j] for j in one.inputs if made[j].kind == FULL)
    for end in [*spec.stores, *spec.of(Reduce)]:
        place = levels[end] - (isinstance(made[end], Reduce) and made[end].kind == ROW)
        _mark(spec, end, place, phases)
    return tuple(
        i for i, one in enumerate(made)
        if one.kind == FULL and isinstance(one, Apply) and len(phases[i]) > 1
        and cost[i] >= STASH_COST and not one.dtype.is_complex
    )  # fmt: skip


def _mark(spec: Spec, end: int, phase: int, phases: list[set[int]]) -> None:
    """Note that the full values below `end` are used in a phase."""
    stack = list(spec.instructions[end].inputs)
    if spec.instructions[end].kind == FULL:
        stack.append(end)
    while stack:
        i = stack.pop()
        if spec.instructions[i].kind != FULL or phase in phases[i]:
            continue
        phases[i].add(phase)
        stack.extend(spec.instructions[i].inputs)
