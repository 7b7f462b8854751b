"""Execution scopes: budgets in force for a stretch of code, what was charged to them, and who can
make room.

A block of memory is charged to the innermost scope when it comes to be, and released when it is
freed, in whatever scope that happens: values outlive the scope that made them.
"""

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tiga.errors import OutOfBudget
from tiga.runtime.device_array import DeviceArray
from tiga.runtime.locks import Ordered
from tiga.runtime.pool import POOL, Pool
from tiga.runtime.spare_files import OwnFile, SpareFiles
from tiga.runtime.spill import SpillFile
from tiga.runtime.tiers import TIERS, Account

WAITS = 2**25
"""Bytes from which memory of pages and of their results waits for the next run."""

CLOSE = 1.25
"""It serves what takes as much but for so little: the pages of a walk and of its gradient, say."""

HISTORY = 20_000
"""Points of the plot of live bytes that a scope keeps; then every other one is dropped."""


@dataclass
class Counters:
    """What moved between tiers, and how long the program waited for it."""

    evictions: int = 0
    restores: int = 0
    bytes_spilled: int = 0
    bytes_restored: int = 0
    seconds_waiting: float = 0.0


@dataclass
class Resident:
    """A block that can be moved out: `evict` does, and says whether any memory was freed."""

    block: "weakref.ref[Any]"
    evict: Callable[[], bool]
    pins: int = 0
    tier: str = "host"


@dataclass(eq=False)
class Scope:
    """Accounts by tier, a spill file made at its first use, and the blocks in order of last use;
    `device` is where new tensors are, None for the CPU."""

    budgets: dict[str, int] = field(default_factory=dict)
    spill_dir: Any = None
    lru: bool = False
    page_rows: int | None = None
    prefetch_depth: int | None = None
    device: Any = None

    def __post_init__(self) -> None:
        names = [tier.name for tier in TIERS if tier.allocatable]
        self.accounts = {name: Account(name, self.budgets.get(name)) for name in names}
        self.counters = Counters()
        self.residents: OrderedDict[int, Resident] = OrderedDict()
        self.history: list[tuple[float, int, int]] = [(time.perf_counter(), 0, 0)]
        self.pool: Pool | None = None
        self.spares = SpareFiles(lambda: self.disk.peak - self.disk.live)
        self._file: SpillFile | None = None
        self._lock, self._making_file = Ordered("scope"), Ordered("spill file")

    @property
    def host(self) -> Account:
        """The account of ordinary memory."""
        return self.accounts["host"]

    @property
    def disk(self) -> Account:
        """The account of the disk."""
        return self.accounts["nvme"]

    @property
    def file(self) -> SpillFile:
        """The spill file."""
        with self._making_file:
            if self._file is None:
                self._file = SpillFile(self.spill_dir)
            return self._file

    def begin(self) -> None:
        """Let memory of pages and files of values that are gone wait for others, from now on."""
        self.spares.begin()
        if self.host.budget is not None:
            self.pool = Pool(self.host.budget, CLOSE)

    def end(self) -> None:
        """Give back what waits; what is in use yet goes with its values."""
        self.pool = None
        self.spares.end()

    def keeps(self, nbytes: int) -> bool:
        """Whether so many bytes of memory wait for others when they are not used any more."""
        return self.pool is not None and nbytes >= WAITS

    def memory(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array whose elements are not set, in memory that was used before if some waits. It is
        not charged."""
        pool = self.pool
        return np.empty(shape, dtype) if pool is None else pool.array(shape, dtype, WAITS)

    def let_wait(self, nbytes: int) -> None:
        """Let no more bytes of memory wait for use."""
        POOL.shrink(nbytes)
        if self.pool is not None and self.pool.waiting:
            self.pool.shrink(max(nbytes - POOL.waiting, 0))

    def own_file(self, nbytes: int) -> OwnFile:
        """A file for one value. Those in use and those that wait for one never take more than were
        in use at a time.

        Raises:
            OSError: the disk is full.
        """
        new = partial(OwnFile.new, self.spill_dir, nbytes)
        return self.spares.take(nbytes) or self._placed(new)

    def allocate(self, nbytes: int) -> int:
        """The offset of so many bytes in the spill file.

        Raises:
            OSError: the disk is full.
        """
        return self._placed(partial(self.file.allocate, nbytes))

    def _placed(self, place: Callable[[], Any]) -> Any:
        """What finds room on disk, where files that wait take none that is needed."""
        self.spares.shrink()
        try:
            return place()
        except OSError:
            if not self.spares.nbytes:
                raise
            self.spares.shrink(0)
            return place()

    def depth(self, usual: int) -> int:
        """Pages that are read ahead: `usual`, unless told otherwise."""
        return usual if self.prefetch_depth is None else self.prefetch_depth

    def reserve(self, nbytes: int, what: str, tier: str = "host") -> None:
        """Make sure that so many bytes of a tier can be allocated now.

        Raises:
            OutOfBudget: they do not fit, even with everything idle spilled.
        """
        account = self.accounts[tier]
        if tier == "host" and account.budget is not None:
            # What waits in a pool takes memory too, but is never why something does not fit.
            self.let_wait(max(account.budget - account.live - account.idle - nbytes, 0))
        if account.fits(nbytes) or (self.lru and self._make_room(nbytes, account)):
            return
        raise OutOfBudget(account.refusal(nbytes, what) + self._why_none_left())

    def charge(self, nbytes: int, what: str, tier: str = "host") -> int:
        """Count bytes of a tier as used, with room made for them that no other thread takes
        meanwhile; `release` of the tier's account takes the result.

        Raises:
            OutOfBudget: they do not fit, even with everything idle spilled.
        """
        with self._lock:
            self.reserve(nbytes, what, tier)
            return self.accounts[tier].charge(nbytes, what)

    def _why_none_left(self) -> str:
        """What kept values from leaving memory, where that is the disk's budget."""
        disk, movable = self.disk, [r.block() for r in list(self.residents.values()) if not r.pins]
        least = min((block.nbytes for block in movable if block is not None), default=0)
        if not self.lru or not least or disk.fits(least):
            return ""
        return (
            f" Nothing was moved to tier {disk.tier!r}: {disk.live} of its {disk.budget} bytes are "
            "in use."
        )

    def adopt(self, array: np.ndarray, what: str, evict: Callable[[], bool] | None = None) -> None:
        """Charge the memory that an array views, once, until it is freed."""
        block = block_of(array)
        with self._lock:
            key = id(block)
            if key in self.residents and self.residents[key].block() is block:
                return
            ticket = self.charge(block.nbytes, what)
            self.residents[key] = Resident(weakref.ref(block), evict or _stays)
            weakref.finalize(block, self._released, key, ticket).atexit = False
            self._note()

    def hold(self, block: Any, evict: Callable[[], bool], tier: str) -> None:
        """Let a block that is charged already be moved out when its tier needs room."""
        with self._lock:
            key = id(block)
            if key not in self.residents or self.residents[key].block() is not block:
                self.residents[key] = Resident(weakref.ref(block), evict, tier=tier)
                weakref.finalize(block, self.residents.pop, key, None).atexit = False

    @contextmanager
    def temporary(self, nbytes: int, what: str, tier: str = "host") -> Iterator[None]:
        """Charge bytes of a tier for the body of a `with`."""
        ticket = self.charge(nbytes, what, tier)
        self._note()
        try:
            yield
        finally:
            self.accounts[tier].release(ticket)
            self._note()

    @contextmanager
    def pinned(self, arrays: Iterable[Any]) -> Iterator[None]:
        """Keep the blocks of arrays in memory for the body of a `with`; they count as used now."""
        held = []
        with self._lock:
            for array in arrays:
                key = id(block_of(array))
                resident = self.residents.get(key)
                if resident is not None:
                    self.residents.move_to_end(key)
                    resident.pins += 1
                    held.append(resident)
        try:
            yield
        finally:
            with self._lock:
                for resident in held:
                    resident.pins -= 1

    def spill(self, data: Any, what: str) -> "Extent":
        """Write bytes to the spill file.

        Raises:
            OutOfBudget: they exceed the disk's budget.
            OSError: the disk is full.
        """
        start = time.perf_counter()
        extent = Extent(self, memoryview(data).nbytes, what)
        self.file.write(extent.start, data)
        self.counters.bytes_spilled += extent.nbytes
        self.counters.seconds_waiting += time.perf_counter() - start
        self._note()
        return extent

    def give_back_idle(self) -> None:
        """Free the memory that is kept for another use, in all tiers."""
        for account in self.accounts.values():
            account.give_back_idle()

    def _make_room(self, nbytes: int, account: Account) -> bool:
        """Whether so many bytes fit once what is idle has left: as no other thread takes yet what
        that freed."""
        with self._lock:
            self._evict_until_fits(nbytes, account)
            return account.fits(nbytes)

    def _evict_until_fits(self, nbytes: int, account: Account) -> None:
        for key in list(self.residents):
            if account.fits(nbytes):
                return
            resident = self.residents.get(key)
            if resident is None or resident.pins or resident.tier != account.tier:
                continue
            if resident.evict():
                self.counters.evictions += 1

    def _released(self, key: int, ticket: int) -> None:
        # In a finalizer, so without the lock: a thread that has it may wait for this one.
        self.residents.pop(key, None)
        self.host.release(ticket)
        self._note()

    def _note(self) -> None:
        if len(self.history) >= HISTORY:
            del self.history[1::2]
        self.history.append((time.perf_counter(), self.host.live, self.disk.live))


class Extent:
    """Bytes in a scope's spill file, charged to its disk; freed with the object.

    `alone`: in a file of their own, for memory that is mapped from them: a forked process may still
    have it when they are freed here.
    """

    def __init__(self, scope: Scope, nbytes: int, what: str, alone: bool = False) -> None:
        self.nbytes, self.scope = nbytes, scope
        ticket = scope.disk.charge(nbytes, what)
        try:
            self.file, self.start, give_back = self._place(alone)
        except BaseException:
            scope.disk.release(ticket)
            raise
        self._free = weakref.finalize(self, _free, scope, give_back, ticket)
        self._free.atexit = False

    def _place(self, alone: bool) -> tuple[SpillFile, int, Callable[[], None]]:
        """The file, where the bytes start in it, and what gives them back."""
        scope = self.scope
        if alone:
            own = scope.own_file(self.nbytes)
            return own.file, 0, partial(scope.spares.give, own)
        start = scope.allocate(self.nbytes)
        return scope.file, start, partial(scope.file.free, start, self.nbytes)

    def read(self, offset: int = 0, nbytes: int | None = None) -> np.ndarray:
        """The bytes, or `nbytes` of them from `offset` on, uint8."""
        start, count = time.perf_counter(), self.nbytes if nbytes is None else nbytes
        block = self.file.read(self.start + offset, count)
        self.scope.counters.restores += nbytes is None
        self.scope.counters.bytes_restored += count
        self.scope.counters.seconds_waiting += time.perf_counter() - start
        return block

    def close(self) -> None:
        """Free the bytes; a second time does nothing."""
        self._free()


def _free(scope: Scope, give_back: Callable[[], None], ticket: int) -> None:
    scope.disk.release(ticket)  # first: what is kept of it depends on what is in use
    give_back()


def _stays() -> bool:
    return False


def block_of(array: Any) -> Any:
    """What owns the memory that an array views: an array, or a block of a GPU's memory."""
    if isinstance(array, DeviceArray):
        return array.memory
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


_active: ContextVar[Scope | None] = ContextVar("tiga_scope", default=None)


def active() -> Scope | None:
    """The innermost scope of this thread or task."""
    return _active.get()


@contextmanager
def within(scope: Scope | None) -> Iterator[None]:
    """Make a scope the innermost one for the body of a `with`."""
    token = _active.set(scope)
    try:
        yield
    finally:
        _active.reset(token)


_default_lock = threading.Lock()
_default: list[Scope] = []


def fallback() -> Scope:
    """The scope of spills outside of any: no budget, the default directory."""
    with _default_lock:
        if not _default:
            _default.append(Scope())
        return _default[0]
