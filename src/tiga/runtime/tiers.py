"""Memory tiers, sizes and budgets: how much of each kind of memory may be used."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tiga.errors import InvalidType, InvalidValue, OutOfBudget
from tiga.runtime.turns import Turns


@dataclass(frozen=True)
class Tier:
    """A kind of memory; `aliases` are other spellings, `speed` ranks it, 0 the fastest."""

    name: str
    aliases: tuple[str, ...]
    speed: int
    allocatable: bool = True


TIERS = (
    Tier("register", ("rmem",), 0, allocatable=False),
    Tier("shared", ("smem",), 1, allocatable=False),
    Tier("device", ("hbm", "gmem", "cuda"), 2),
    Tier("host-pinned", ("pinned_ram", "host_pinned", "pinned"), 3),
    Tier("host", ("ram",), 4),
    Tier("nvme", ("ssd", "disk"), 5),
    Tier("remote", ("distributed",), 6, allocatable=False),
)
_BY_NAME = {name: tier for tier in TIERS for name in (tier.name, *tier.aliases)}

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
HOLDERS_SHOWN = 3


def tier_of(name: Any) -> Tier:
    """The tier that a name or an alias stands for.

    Raises:
        InvalidValue: there is no such tier; the message lists them.
    """
    found = _BY_NAME.get(name) if isinstance(name, str) else None
    if found is None:
        names = ", ".join(tier.name for tier in TIERS)
        raise InvalidValue(f"memory tier: expected one of {names}, got {name!r}.")
    return found


def parse_size(size: Any) -> int:
    """Bytes of a size: an int of at least 0, or a whole number with B, KiB, MiB, GiB or TiB.

    Raises:
        InvalidValue: it is neither; decimal units such as GB are refused, being ambiguous.

    Example:
        >>> parse_size("2MiB"), parse_size(17)
        (2097152, 17)
    """
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    if isinstance(size, str):
        text = size.strip()
        digits = text.rstrip("BKMGTi").rstrip()
        unit = text[len(digits) :].strip() or "B"
        if digits.isascii() and digits.isdecimal() and unit in _UNITS:
            return int(digits) * _UNITS[unit]
    raise InvalidValue(
        f"size: expected bytes as an int of at least 0, or text such as '512KiB', '64MiB' or "
        f"'1GiB' (units {', '.join(_UNITS)}), got {size!r}."
    )


def size_text(nbytes: int) -> str:
    """Bytes for people: exact below 1 KiB, else with one decimal.

    Example:
        >>> size_text(1536)
        '1.5 KiB'
    """
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if nbytes >= _UNITS[unit]:
            return f"{nbytes / _UNITS[unit]:.1f} {unit}"
    return f"{nbytes} B"


def memory_left() -> int:
    """Bytes that the machine has left for processes, or this one's group of them."""
    left = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        left = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvail"))
    with suppress(OSError, ValueError):  # a group without a bound says "max"
        most, used = (int((_GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        left = min(left, max(0, most - used + _cached()))
    return left


_GROUP = Path("/sys/fs/cgroup")


def _cached() -> int:
    """Bytes of files that the group is charged for, and that the system drops when it needs room:
    a group that has read much has no other memory left."""
    lines = (line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
    return sum(int(count) for name, count in lines if name in ("active_file", "inactive_file"))


def parse_budgets(budgets: Any) -> dict[str, int]:
    """Bytes by canonical tier name.

    Raises:
        InvalidType: no mapping.
        InvalidValue: an unknown tier, one tier under two names, or something that is no size.
    """
    if budgets is None:
        return {}
    if not isinstance(budgets, Mapping):
        raise InvalidType(
            f"memory budgets: expected a mapping such as {{'host': '1GiB'}}, got {budgets!r}."
        )
    parsed: dict[str, int] = {}
    for name, size in budgets.items():
        tier = tier_of(name)
        if tier.name in parsed:
            raise InvalidValue(f"memory budgets: {name!r} is {tier.name!r}, which is given twice.")
        parsed[tier.name] = parse_size(size)
    return parsed


@dataclass(frozen=True)
class Spare:
    """Idle memory: `give_back` frees it."""

    nbytes: int
    give_back: Callable[[], None]
    worth: int


@dataclass
class Account:
    """What lives in one tier, against its budget (None: no bound).

    Every charge has a holder, a short text for messages. Threads may charge at once. `idle` bytes
    beside those that are live hold what may be of use again, and gives way to what is charged.
    """

    tier: str
    budget: int | None = None
    live: int = 0
    peak: int = 0
    holders: dict[int, tuple[str, int]] = field(default_factory=dict)
    idle: int = 0
    _spare: "dict[int, Spare]" = field(default_factory=dict, repr=False)
    _next: int = 0
    _turns: Turns = field(default_factory=Turns, repr=False)

    def fits(self, nbytes: int) -> bool:
        """Whether so many bytes more stay within the budget."""
        with self._turns:
            return self._fits(nbytes)

    def _fits(self, nbytes: int) -> bool:
        return self.budget is None or self.live + nbytes <= self.budget

    def charge(self, nbytes: int, holder: str) -> int:
        """Count bytes as live; the result releases them.

        Raises:
            OutOfBudget: they do not fit; nothing is counted then.
        """
        while True:
            with self._turns:
                if not self._fits(nbytes):
                    raise OutOfBudget(self.refusal(nbytes, holder))
                if self._fits(nbytes + self.idle):
                    self._next += 1
                    self.holders[self._next] = (holder, nbytes)
                    self.live += nbytes
                    self._note_peak()
                    return self._next
            self._make_way()

    def keep(self, nbytes: int, give_back: Callable[[], None], worth: int = 0) -> int:
        """Count bytes as idle if there is room beside all else: 0 if not, else what `drop` takes.

        `give_back` frees the memory when something is charged that needs it. What is worth least
        goes first, and of that what came last: the next round begins with what came first.
        """
        with self._turns:
            if not self._fits(nbytes + self.idle):
                return 0
            self._next += 1
            self._spare[self._next] = Spare(nbytes, give_back, worth)
            self.idle += nbytes
            self._note_peak()
            return self._next

    def _note_peak(self) -> None:
        self.peak = max(self.peak, self.live + self.idle)

    def drop(self, ticket: int) -> None:
        """Count bytes as idle no longer; a second time does nothing. Finalizers may call it."""
        self._turns.later(partial(self._drop, ticket))

    def _drop(self, ticket: int) -> "Spare | None":
        found = self._spare.pop(ticket, None)
        self.idle -= found.nbytes if found else 0
        return found

    def _make_way(self) -> None:
        """Give back some idle memory, if there is any."""
        with self._turns:
            order = sorted(self._spare, key=lambda ticket: (self._spare[ticket].worth, -ticket))
            found = self._drop(order[0]) if order else None
        if found is not None:
            found.give_back()

    def give_back_idle(self) -> None:
        """Give back all idle memory."""
        while self._spare:
            self._make_way()

    def release(self, ticket: int) -> None:
        """Take a charge back; a second time does nothing. Finalizers may call it."""
        self._turns.later(partial(self._release, ticket))

    def _release(self, ticket: int) -> None:
        _, nbytes = self.holders.pop(ticket, ("", 0))
        self.live -= nbytes

    def refusal(self, nbytes: int, holder: str) -> str:
        """Why a charge does not fit."""
        largest = sorted(self.holders.values(), key=lambda h: -h[1])[:HOLDERS_SHOWN]
        held = ", ".join(f"{name} ({size_text(size)})" for name, size in largest) or "nothing"
        budget = self.budget if self.budget is not None else 0
        return (
            f"tier {self.tier!r}: {holder} needs {nbytes} bytes ({size_text(nbytes)}), but "
            f"{self.live} of {budget} bytes ({size_text(budget)}) are in use. Largest holders: "
            f"{held}. Free or spill some of them, or raise the budget."
        )
