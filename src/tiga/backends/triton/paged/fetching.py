"""Results of calls over graphs in files, from a device to memory of the host, whole."""

from typing import Any

import numpy as np

from tiga.backends.triton.paged.budgets import loading_bytes
from tiga.backends.triton.paged.kept import keeper_of
from tiga.backends.triton.paged.link import link_of
from tiga.backends.triton.paged.memory import Mover
from tiga.knobs import current
from tiga.runtime.platform import Platform
from tiga.runtime.scope import active

MEMORY = "memory that results come through"
"""What it is kept by."""


def pinnable(nbytes: int) -> int:
    """Bytes of pinned memory that a result of so many bytes may come through now."""
    scope = active()
    account = None if scope is None else scope.accounts["host-pinned"]
    if account is None or account.budget is None:
        return loading_bytes(current().memory_bound, nbytes)
    return loading_bytes(max(0, account.budget - account.live), nbytes)


def fetch(address: int, out: np.ndarray, platform: Platform, graph: Any, pinned: int) -> None:
    """Fill a contiguous array with a result at an address of a device, through so much pinned
    memory: what an earlier call over the graph left, if it serves.

    Raises:
        OutOfBudget: there is not so much pinned memory.
    """
    keeper = keeper_of(graph, platform)
    scope, memory = active(), keeper.take(MEMORY)
    account = None if scope is None else scope.accounts["host-pinned"]
    ticket = 0 if account is None else account.charge(pinned, "a result on its way to the host")
    try:
        mover = Mover(keeper.link or link_of(platform), platform, pinned)
        if memory is not None and memory.nbytes <= pinned:
            mover.memory = memory
        mover.fetch(address, out.reshape(-1).view(np.uint8))
    finally:
        if account is not None:
            account.release(ticket)
    if keeper.room is not None:
        keeper.park(MEMORY, mover.memory, {"host-pinned": mover.memory.nbytes})
