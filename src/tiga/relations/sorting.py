"""Who sorts the edges of graphs on the CPU: numpy, until a backend offers something faster."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tiga.relations.csr import Csr
from tiga.relations.walk import Decomposition, Walk, walk_destinations, walk_sources


class Sorter(Protocol):
    """Sorts edges. Every sort is stable, so all sorters give the same arrays."""

    def by_destination(
        self, src: np.ndarray, dst: np.ndarray, num_src: int, num_dst: int
    ) -> Csr | None:
        """The edges in the order of their destinations; None if one end does not exist, or if this
        sorter leaves them to others."""

    def plan(self, row_ptr: np.ndarray) -> Decomposition | None:
        """How rows are cut; None if this sorter leaves it to others."""

    def by_source(self, csr: Csr) -> Walk | None:
        """The walk over the sources of edges that are in the order of their destinations; None if
        this sorter leaves them to others."""


@dataclass
class _Chosen:
    sorter: Sorter | None = None


_CHOSEN = _Chosen()


def offer(sorter: Sorter) -> None:
    """Sort with this from now on."""
    _CHOSEN.sorter = sorter


def by_destination(
    src: np.ndarray, dst: np.ndarray, num_src: int, num_dst: int
) -> Csr | None:  # fmt: skip
    """See `Sorter`: None also where nobody but numpy sorts, which does not check."""
    sorter = _CHOSEN.sorter
    return None if sorter is None else sorter.by_destination(src, dst, num_src, num_dst)


def walk_of_destinations(csr: Csr) -> Walk:
    """The walk over destinations; see `Walk`."""
    sorter, plan = _CHOSEN.sorter, csr.plan
    if plan is None and sorter is not None:
        plan = sorter.plan(csr.row_ptr)
    return walk_destinations(csr, plan)


def walk_of_sources(csr: Csr) -> Walk:
    """The walk over sources; see `Walk`."""
    sorter = _CHOSEN.sorter
    found = None if sorter is None else sorter.by_source(csr)
    return walk_sources(csr) if found is None else found
