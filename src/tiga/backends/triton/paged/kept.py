"""What calls over a graph in a file leave for the next ones: memory for pages, and pages.

Both take memory that nobody else needs at the time, and give it back as soon as somebody does.
Calls walk the same pages in the same order, again and again. So pages stay as they come until
memory is full, rather than give way to the next: those that stay are found in every round.
"""

import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

from tiga.backends.triton.paged.image import Image, Kept
from tiga.backends.triton.paged.link import Link, PairedArena, copy_bytes
from tiga.paging.span import NOTHING_HELD, Held, LongRow, Span
from tiga.runtime.arena import anonymous
from tiga.runtime.floor import off_the_floor
from tiga.runtime.platform import Platform
from tiga.runtime.scope import Scope
from tiga.runtime.tiers import Account

TIERS = ("device", "host-pinned", "host")
"""Where pages are kept, the best place first."""

PAGES, MEMORY = 0, 1
"""What is worth more is given back later: to pin memory takes longer than to fill it."""

STALE = 64
"""Calls after which a page that none of them asked for makes room for others."""

UNBOUNDED = 2**63

Key = tuple[Hashable, Span]


@dataclass(frozen=True)
class Room:
    """How much may be kept: idle bytes of a scope's tiers, and no more of a tier than `most`."""

    scope: Scope
    most: Mapping[str, int]

    def holds(self, tier: str, nbytes: int) -> bool:
        """Whether so many bytes more may be kept, whatever the budget."""
        return self.scope.accounts[tier].idle + nbytes <= self.most.get(tier, UNBOUNDED)


@dataclass(eq=False)
class Tickets:
    """What is counted as kept, by account and ticket. It outlives what holds the memory, and drops
    what is left by then."""

    held: dict[tuple[int, int], Account] = field(default_factory=dict)

    def keep(
        self, room: Room, tier: str, nbytes: int, give_back: Callable[[], None], worth: int
    ) -> int:
        """Count bytes as kept: 0 if there is no room, else what `drop` takes."""
        scope, account = room.scope, room.scope.accounts[tier]
        ticket = account.keep(nbytes, give_back, worth)
        if ticket:
            self.held[id(account), ticket] = account
        if ticket and tier == "host" and account.budget is not None:
            scope.let_wait(max(0, account.budget - account.live - account.idle))
        return ticket

    def drop(self, room: Room, tier: str, ticket: int) -> None:
        """Count what was kept no longer."""
        account = self.held.pop((id(room.scope.accounts[tier]), ticket), None)
        if account is not None:
            account.drop(ticket)

    def drop_all(self) -> None:
        """Count nothing as kept any more."""
        for (_, ticket), account in list(self.held.items()):
            account.drop(ticket)


@dataclass(frozen=True)
class Parked:
    """What is kept, by which tickets, and how to free it."""

    what: Any
    tickets: Mapping[str, int]
    close: Callable[[], None]


@dataclass(eq=False)
class Keeper:
    """What is kept of one graph on one device, of calls within one scope on one stream."""

    pages: dict[Key, Kept] = field(default_factory=dict)
    others: dict[Hashable, "Parked"] = field(default_factory=dict)
    left: set[tuple[str, Key]] = field(default_factory=set)
    """What had to go from which tier."""
    calls: int = 0
    held: Held = NOTHING_HELD
    page_bytes: int = UNBOUNDED
    """Bytes that pages take in any step."""
    room: Room | None = None
    beside: int = 0
    """Pinned bytes of the pages that are under way, where nothing bounds the tier."""
    link: Link | None = None
    tickets: Tickets = field(default_factory=Tickets)
    _of: tuple[Any, int] | None = None
    _lock: Any = field(default_factory=Lock)

    def __post_init__(self) -> None:
        weakref.finalize(self, self.tickets.drop_all).atexit = False

    def begin(self, room: Room, stream: int, link: Callable[[], Link]) -> Link:
        """Start a call; what was kept in another scope, or for another stream, is given back."""
        known = (weakref.ref(room.scope), stream)
        if self.link is None or self._of != known:
            self.clear()
            self.link, self._of = link(), known
        self.room = room
        self.calls += 1
        return self.link

    def clear(self) -> None:
        """Give everything back."""
        for page in list(self.pages):
            self.drop(page)
        self.left.clear()
        self.page_bytes, self.held = UNBOUNDED, NOTHING_HELD
        for key in list(self.others):
            self._give_back(key)

    # what one call uses at a time

    def park(
        self, key: Hashable, what: Any, nbytes: Mapping[str, int],
        close: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Keep something for another call, if there is room for its bytes in all their tiers."""
        assert self.room is not None
        self._give_back(key)
        with self._lock:
            give_back = partial(_of, weakref.ref(self), Keeper._give_back, key)
            tickets = {t: self._keep(t, n, give_back, MEMORY) for t, n in nbytes.items()}
            self.others[key] = Parked(what, tickets, close)
        if not all(tickets.values()):
            self._give_back(key)

    def provided(self, now: Held, limit: int) -> None:
        """Note the memory of a step's pages, which together with them may take `limit` bytes: where
        it had to get smaller for that, all steps have no more from now on, so that one memory
        serves them."""
        last, self.held = self.held, now
        total = last.count * last.nbytes
        if now.count == last.count and now.nbytes < last.nbytes and total > limit:
            self.page_bytes = min(self.page_bytes, now.count * now.nbytes)

    def take(self, key: Hashable) -> Any:
        """What was parked, for whoever calls; None if it is not there."""
        with self._lock:
            found = self.others.pop(key, None)
        if found is None:
            return None
        self._uncount(found)
        return found.what

    def has(self, key: Hashable) -> bool:
        """Whether something is parked."""
        return key in self.others

    def _give_back(self, key: Hashable) -> None:
        with self._lock:
            found = self.others.pop(key, None)
        if found is not None:
            found.close()
            self._uncount(found)

    def _uncount(self, parked: "Parked") -> None:
        assert self.room is not None
        for tier, ticket in parked.tickets.items():
            self.tickets.drop(self.room, tier, ticket)

    def _keep(
        self, tier: str, nbytes: int, give_back: Callable[[], None], worth: int, beside: int = 0
    ) -> int:
        assert self.room is not None
        if not self.room.holds(tier, nbytes + beside):
            return 0
        return self.tickets.keep(self.room, tier, nbytes, give_back, worth)

    # pages

    def find(self, key: Key) -> Kept | None:
        """A page of an earlier call."""
        found = self.pages.get(key)
        if found is None or not found.is_there:
            return None
        found.call = self.calls
        return found

    def forget(self, step: Hashable, pages: Iterable[Any]) -> None:
        """Give back the pages of a step that are cut in another way by now."""
        known = set(pages)
        for key in [k for k in list(self.pages) if k[0] == step and k[1] not in known]:
            self.drop(key)

    def place(self, key: Key, image: Image) -> Kept | None:
        """A place for a page: the best that has room, and where it did not have to go before. What
        took its place in one round does so in the next."""
        self.drop(key)
        found = self._placed(key, image)
        if found is None and self._drop_stale():
            found = self._placed(key, image)
        return found

    def _drop_stale(self) -> bool:
        stale = [k for k, kept in list(self.pages.items()) if kept.call + STALE < self.calls]
        for key in stale:
            self.drop(key)
        return bool(stale)

    def _placed(self, key: Key, image: Image) -> Kept | None:
        with self._lock:
            for tier in sorted(TIERS, key=lambda tier: (tier, key) in self.left):
                beside = self.beside if tier == "host-pinned" else 0
                leave = partial(_of, weakref.ref(self), Keeper._leave, (tier, key))
                ticket = self._keep(tier, image.nbytes, leave, PAGES, beside)
                if ticket:
                    made = self.pages[key] = Kept(image, tier, ticket, call=self.calls)
                    return made
        return None

    def _leave(self, place: tuple[str, Key]) -> None:
        """Give a page back as something else needs the memory."""
        self.left.add(place)
        self.drop(place[1])

    def drop(self, key: Key) -> None:
        """Give a page back, if there is one."""
        with self._lock:
            found = self.pages.pop(key, None)
        if found is not None and self.room is not None:
            self.tickets.drop(self.room, found.tier, found.ticket)


def _of(keeper: "weakref.ref[Keeper]", give_back: Callable[..., None], key: Any) -> None:
    """Have a keeper give back, if there is one yet: whoever counts its memory does not hold it."""
    found = keeper()
    if found is not None:
        give_back(found, key)


def keeper_of(graph: Any, platform: Platform) -> Keeper:
    """What calls over a graph left on a device."""
    found: Keeper = graph.keep(("GPU kept", platform.name), Keeper)
    return found


@dataclass(frozen=True)
class StepPages:
    """The kept pages of one step, which `step` tells from those of others."""

    keeper: Keeper
    step: Hashable
    link: Link
    platform: Platform

    def find(self, span: Span) -> Kept | None:
        """A page of an earlier call."""
        return self.keeper.find((self.step, span))

    def among(self, pages: Iterable[Span | LongRow]) -> list[Kept]:
        """Those of these pages that earlier calls left."""
        found = (self.find(page) for page in pages if isinstance(page, Span))
        return [one for one in found if one is not None]

    def keep(self, image: Image, arena: PairedArena) -> Kept | None:
        """Keep a page that is staged in an arena, if it can be and there is room. It gets to the
        device's memory later."""
        if not image.repeats or not image.nbytes:
            return None
        made = self.keeper.place((self.step, image.span), image)
        if made is not None and made.tier != "device":
            self._copy(made, arena.address)
        return made

    def _copy(self, kept: Kept, source: int) -> None:
        nbytes = kept.image.nbytes
        pinned = kept.tier == "host-pinned"
        with off_the_floor():
            kept.host = self.link.pinned(nbytes) if pinned else anonymous(nbytes)
        copy_bytes(kept.host.ctypes.data, source, nbytes)
        kept.is_there = True

    def block(self, nbytes: int) -> Any:
        """Memory of the device."""
        return self.platform.arena(nbytes)

    def store(self, kept: Kept, arena: PairedArena) -> None:
        """Copy a page within the device, after what was launched."""
        try:
            kept.block = self.block(kept.image.nbytes)
        except (MemoryError, RuntimeError):  # the device is full, whatever the budget says
            self.keeper.drop((self.step, kept.image.span))
            return
        kept.address = self.platform.address(kept.block)
        self.link.double((kept.address, arena.device, kept.image.nbytes))
        kept.is_there = True
