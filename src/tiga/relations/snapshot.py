"""The topology of a graph at one version of its index arrays."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tiga.errors import InvalidValue
from tiga.relations.csr import Csr, count_rows
from tiga.relations.inputs import Token
from tiga.relations.on_device import DeviceCsr
from tiga.relations.sorting import walk_of_destinations, walk_of_sources
from tiga.relations.walk import Walk

T = TypeVar("T")

MOST_PLANS = 1024

_WALKS: dict[str, Callable[[Csr], Walk]] = {
    "dst": walk_of_destinations,
    "src": walk_of_sources,
}
ROW_POINTERS: dict[str, Callable[[Csr], np.ndarray]] = {
    "dst": lambda csr: csr.row_ptr,
    "src": lambda csr: count_rows(csr.col_idx, csr.num_src),
}


@dataclass(eq=False)
class Snapshot:
    """The checked topology and whatever was derived from it.

    It serves a run in place of its graph: what it says stays true of this version, and needs no
    look at the index arrays.
    """

    token: Token
    topology: Csr | DeviceCsr
    lock: Any = field(default_factory=threading.RLock)
    derived: dict[Any, Any] = field(default_factory=dict)
    plans: dict[Any, Any] = field(default_factory=dict)
    """What programs worked out for runs on it."""

    def __post_init__(self) -> None:
        self.num_src = self.topology.num_src
        self.num_dst = self.topology.num_dst
        self.num_edges = self.topology.num_edges

    @property
    def csr(self) -> Csr:
        """The topology as numpy arrays; one on a GPU is copied at the first time."""
        topology = self.topology
        return topology if isinstance(topology, Csr) else self.keep("host", topology.host)

    def get(self, key: Any, build: Callable[[Csr], T]) -> T:
        """What `build` makes of the topology, kept under `key`."""
        return self.keep(key, lambda: build(self.csr))

    def keep(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` makes, kept under `key`."""
        found = self.derived.get(key)
        if found is not None:
            return found
        with self.lock:
            found = self.derived.get(key)
            if found is None:
                found = self.derived[key] = make()
        return found

    def keep_plan(self, key: Any, plan: T) -> T:
        """Keep what a program worked out for runs on it; those of programs that are gone are let
        go with all others, once there are many."""
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        self.plans[key] = plan
        return plan

    def walk(self, side: str) -> Walk:
        """See `Graph.walk`."""
        return self.get(("walk", require_side(side)), _WALKS[side])


def require_side(side: Any) -> Any:
    """The side itself; raises InvalidValue if it is none."""
    if side not in _WALKS:
        raise InvalidValue(f'Graph: `side` must be "dst" or "src", got {side!r}.')
    return side
