"""What a run over a graph in a file may take of each kind of memory on a GPU's machine."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from tiga.backends.triton.paged.kept import TIERS, Keeper, Room, keeper_of
from tiga.backends.triton.paged.link import Link, link_of
from tiga.backends.triton.paged.memory import LANES, PIECE, DeviceRows
from tiga.knobs import current
from tiga.runtime.platform import Platform
from tiga.runtime.pool import POOL
from tiga.runtime.scope import Scope, active, fallback
from tiga.runtime.tiers import memory_left
from tiga.types import DType

SHARE = 2
"""Results, and then inputs, stay on the device as far as they take up to one part in so many of
what is left of it; pages get the rest."""

KEPT_SHARE = 8
"""One part in so many of what is left is kept for later calls, where no budget bounds it."""

UNBOUNDED = 2**34
"""Bytes of a device that has no memory of its own: under Triton's interpreter."""


class Arrays(Protocol):
    """Arrays of a frontend on a device."""

    @property
    def platform(self) -> Platform:
        """The device; what it gives is not charged to a scope."""

    def free(self) -> int:
        """Bytes that the device has left."""

    def new(self, shape: tuple[int, ...], dtype: DType, what: str) -> Any:
        """An array on the device, charged to the scope in force while it lives."""

    def block(self, array: Any) -> tuple[Any, int]:
        """The arena, as the platform has them, that a contiguous array lies in, and where."""


@dataclass
class Budgets:
    """What is left of each tier for a run over a graph; `held` bytes of the device, and
    `held_on_host` and `pinned_held` of other memory, will be taken beside those that are now."""

    graph: Any
    library: Arrays
    _: KW_ONLY
    held: int = 0
    held_on_host: int = 0
    pinned_held: int = 0
    scope: Scope = field(default_factory=lambda: active() or fallback())

    @property
    def platform(self) -> Platform:
        return self.library.platform

    @cached_property
    def keeper(self) -> Keeper:
        """What earlier calls left of the graph on the device."""
        return keeper_of(self.graph, self.platform)

    @cached_property
    def link(self) -> Link:
        """What moves bytes to the device and back."""
        platform = self.platform
        return self.keeper.begin(
            self._room_to_keep(), platform.stream(), partial(link_of, platform)
        )

    def _room_to_keep(self) -> Room:
        """What may be kept for later calls: budgets hold it; where there is none, a part of what
        is left."""
        accounts, most = self.scope.accounts, {}
        unbounded = {tier for tier in TIERS if accounts[tier].budget is None}
        if "device" in unbounded:
            left = self.library.free() if self.platform.is_gpu else UNBOUNDED
            most["device"] = (left + accounts["device"].idle) // KEPT_SHARE
        if "host-pinned" in unbounded:
            most["host-pinned"] = max(0, current().memory_bound - self.pinned_held)
        if "host" in unbounded:
            most["host"] = memory_left() // KEPT_SHARE
        return Room(self.scope, most)

    @property
    def left(self) -> int:
        """Bytes of the device that may be taken now."""
        account = self.scope.accounts["device"]
        if account.budget is not None:
            return max(0, account.budget - account.live - self.held)
        if not self.platform.is_gpu:
            return UNBOUNDED
        return rounded(self.library.free() - self.held)

    @property
    def host_left(self) -> int:
        """Bytes of ordinary memory that results may take now: without a budget a part of what the
        machine has left, as of the device."""
        account = self.scope.host
        if account.budget is None:
            return memory_left() // SHARE
        return max(0, account.budget - account.live - self.held_on_host) // SHARE

    @property
    def pinned(self) -> int:
        """Bytes of pinned memory that may be taken now."""
        account = self.scope.accounts["host-pinned"]
        if account.budget is None:
            return max(0, current().memory_bound - self.pinned_held)
        return max(0, account.budget - account.live - self.pinned_held)

    def charge(self, tier: str, nbytes: int) -> Callable[[], None]:
        """Count bytes of a tier as used; what is returned takes that back."""
        if active() is None:
            return _nothing
        account = self.scope.accounts[tier]
        ticket = account.charge(nbytes, "pages of a graph in a file")
        return partial(account.release, ticket)

    def host_array(self, shape: tuple[int, ...], dtype: np.dtype, what: str) -> np.ndarray:
        """An array in ordinary memory, charged while it lives: what was used before, if there is
        some, as the system takes longer to give it than to copy there."""
        made = POOL.array(shape, dtype)
        if active() is not None:
            self.scope.adopt(made, what)
        return made

    def rows(self, array: Any, count: int, row_bytes: int) -> DeviceRows:
        """The rows of a contiguous array on the device."""
        block, offset = self.library.block(array)
        return DeviceRows(self.platform, self.link, block, count, row_bytes, offset)


def rounded(nbytes: int) -> int:
    """Bytes that a device has left, so that calls which find about as many plan alike."""
    step = 1 << max(0, nbytes.bit_length() - 6)
    return max(0, nbytes) // step * step


def loading_bytes(pinned: int, largest: int) -> int:
    """Bytes of pinned memory for moving arrays whole, of so many that may be taken."""
    return min(LANES * PIECE, pinned, largest)


def _nothing() -> None:
    """Nothing was charged."""
