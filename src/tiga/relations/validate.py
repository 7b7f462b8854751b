"""Checks on topology: everything that a kernel would otherwise trust blindly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiga.errors import InvalidIndex, InvalidValue
from tiga.relations.indices import INT32_MAX

LEVELS = ("basic", "full", "none")


def require_level(validate: Any) -> str:
    """The validation level, if it is one."""
    if validate not in LEVELS:
        raise InvalidValue(
            f'Graph: `validate` must be "basic", "full" or "none", got {validate!r}.'
        )
    return validate


def require_row_ptr(row_ptr: np.ndarray, num_edges: int) -> None:
    """Refuse row pointers that do not cut `num_edges` edges into rows."""
    if row_ptr.size == 0:
        raise InvalidValue(
            "Graph.from_csr: `row_ptr` must hold num_dst + 1 entries, got none. "
            "A graph without destinations has row_ptr = [0]."
        )
    if num_edges > INT32_MAX and row_ptr.dtype == np.int32:
        raise InvalidValue(
            f"Graph.from_csr: {num_edges} edges need an int64 `row_ptr`: "
            f"int32 counts to {INT32_MAX}. Cast it before it overflows."
        )
    if row_ptr[0] != 0:
        raise InvalidValue(f"Graph.from_csr: `row_ptr` must start at 0, got {row_ptr[0]}.")
    falls = row_ptr[1:] < row_ptr[:-1]
    if falls.any():
        row = int(falls.argmax())
        raise InvalidValue(
            f"Graph.from_csr: `row_ptr` must not fall, got row_ptr[{row}] = {row_ptr[row]} "
            f"and row_ptr[{row + 1}] = {row_ptr[row + 1]}."
        )
    if row_ptr[-1] != num_edges:
        raise InvalidValue(
            f"Graph.from_csr: `row_ptr` must end at the number of edges, {num_edges} "
            f"(the length of `col_idx`), got {row_ptr[-1]}."
        )


def extent(indices: np.ndarray) -> int:
    """The least number of nodes that holds all indices; negative ones are not looked at."""
    return max(int(indices.max()) + 1, 0) if indices.size else 0


@dataclass(frozen=True)
class End:
    """One end of all edges: the argument's name, its indices and the nodes that there are."""

    name: str
    indices: np.ndarray
    count_name: str
    count: int

    @property
    def limit(self) -> int:
        """The least value that is out of range, read as an unsigned integer.

        As unsigned, negative indices are the largest of all: one comparison finds both faults.
        """
        return min(self.count, int(np.iinfo(self.indices.dtype).max) + 1)

    @property
    def unsigned(self) -> np.ndarray:
        return self.indices.view(np.uint32 if self.indices.dtype.itemsize == 4 else np.uint64)

    def is_in_range(self) -> bool:
        return self.indices.size == 0 or int(self.unsigned.max()) < self.limit

    def first_outside(self) -> int | None:
        """The position of the first index out of range."""
        outside = self.unsigned >= self.limit
        position = int(outside.argmax()) if outside.size else 0
        return position if outside.size and outside[position] else None

    def describe(self, position: int) -> str:
        allowed = f"allowed range 0..{self.count - 1}" if self.count else "no index is allowed"
        return (
            f"Graph: `{self.name}` names a node that does not exist: edge position {position} has "
            f"value {self.indices[position]}, {allowed} ({self.count_name}={self.count}). "
            f"Correct the edge, or pass the true `{self.count_name}`."
        )


def require_range(ends: Sequence[End], validate: str) -> None:
    """Refuse the first edge, in the user's order, of which an end is not in `0..count-1`.

    "basic" looks for the position only once the largest index shows that there is one; "full"
    looks at every edge; "none" trusts the caller.
    """
    if validate == "none":
        return
    suspects = [end for end in ends if validate == "full" or not end.is_in_range()]
    found = [(end.first_outside(), order) for order, end in enumerate(suspects)]
    faults = [(position, order) for position, order in found if position is not None]
    if faults:
        position, order = min(faults)
        raise InvalidIndex(suspects[order].describe(position))
