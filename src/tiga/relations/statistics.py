"""How many edges the rows of a relation have: what schedules are chosen by."""

from dataclasses import dataclass

import numpy as np

from tiga.relations.walk import HUB_DEGREE


@dataclass(frozen=True)
class DegreeStatistics:
    """Degrees of all rows.

    `histogram[0]` counts empty rows, `histogram[k]` rows of 2^(k-1) to 2^k - 1 edges; it ends at
    the largest degree. `num_hubs` counts the rows that are split into chunks. A relation without
    rows has minimum, maximum and mean 0.
    """

    num_rows: int
    num_edges: int
    minimum: int
    maximum: int
    mean: float
    num_hubs: int
    histogram: tuple[int, ...]


def degree_statistics(row_ptr: np.ndarray) -> DegreeStatistics:
    """The statistics of rows cut by `row_ptr`, int64 `[num_rows + 1]`."""
    degree = np.diff(row_ptr)
    num_rows, num_edges = degree.shape[0], int(row_ptr[-1])
    if num_rows == 0:
        return DegreeStatistics(0, 0, 0, 0, 0.0, 0, (0,))
    # The exponent that frexp returns is the bit length of an integer, 0 for 0: exact to 2^53.
    bit_length = np.frexp(degree.astype(np.float64))[1]
    return DegreeStatistics(
        num_rows=num_rows,
        num_edges=num_edges,
        minimum=int(degree.min()),
        maximum=int(degree.max()),
        mean=num_edges / num_rows,
        num_hubs=int((degree > HUB_DEGREE).sum()),
        histogram=tuple(np.bincount(bit_length).tolist()),
    )
