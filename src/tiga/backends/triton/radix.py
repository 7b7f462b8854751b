"""Kernels that sort numbers by their bits, one digit at a time, from the lowest.

One kernel counts the digits of all passes. Then each pass reads and writes every number once: a
program puts those of its tile in order, and finds how many of each digit tiles before it have by
looking back at what their programs published. Programs take tiles in the order in which they start,
so whoever is waited for runs already.
"""

from dataclasses import dataclass
from functools import lru_cache

from tiga.backends.triton.index_kernels import source
from tiga.backends.triton.layout import WARP, Tile
from tiga.backends.triton.ranking import digest
from tiga.backends.triton.writer import KernelSource

TILE = Tile(1, 4096, 8, registers=128)
"""What one program puts in order."""

KEY = "(tl.load(keys + at, mask=inside, other=0).to(tl.int64) >> drop) & mask"
"""The bits of a key that are looked at."""

DIGIT = "(((value >> low) & mask) >> shift)"
"""A digit of a packed key, and what is above it."""

LOOK = 4
"""How many tiles a program looks back at, at once."""


@dataclass(frozen=True)
class Digits:
    """How keys are taken apart: `passes` digits of `bits` bits; `wide` if counts need 64 bits."""

    bits: int
    passes: int
    wide: bool

    @property
    def kind(self) -> str:
        """The type of counts."""
        return "i64" if self.wide else "i32"

    @property
    def dtype(self) -> str:
        """The same as Triton calls it."""
        return f"tl.int{self.kind[1:]}"

    @property
    def count(self) -> int:
        """How many digits there are."""
        return 1 << self.bits

    @property
    def flag(self) -> int:
        """The bit of a published count from which on is said what it counts."""
        return 62 if self.wide else 30

    def shifted(self, number: int) -> str:
        """A number in the bits of the flag."""
        return f"(tl.full([1], {number}, {self.dtype}) << {self.flag})"


@lru_cache(maxsize=64)
def count_digits(digits: Digits, key: str) -> KernelSource:
    """How many keys have each digit, added to `totals[pass, digit]`."""
    sums = [f"sum{p}" for p in range(digits.passes)]
    body = [
        f"number = tl.arange(0, {digits.count})",
        *(f"{name} = tl.zeros([{digits.count}], {digits.dtype})" for name in sums),
        "for tile in range(tl.program_id(0).to(tl.int64), tiles, programs):",
        *(f"    {line}" for line in _elements()),
        f"    key = {KEY}",
    ]
    for p, name in enumerate(sums):
        digit = f"(key >> {p * digits.bits}) & {digits.count - 1}"
        body += [
            f"    digit = tl.where(inside, {digit}, {digits.count}).to(tl.int32)",
            f"    {name} += {_counts(digits)}",
        ]
    for p, name in enumerate(sums):
        body.append(f"tl.atomic_add(totals + {p * digits.count} + number, {name}, sem='relaxed')")
    pointers = {"keys": key, "totals": digits.kind}
    numbers = ("count", "mask", "drop", "tiles", "programs")
    return _kernel("count_digits", digits, pointers, numbers, body)


@dataclass(frozen=True)
class Sweep:
    """One pass over numbers of 64 bits: an item in the `low` lowest ones, its key above. The
    `first` pass packs them; where `counted`, items are 0, 1, 2, ... The `last` one takes them
    apart; where `keyed`, it writes keys as well as items."""

    digits: Digits
    key: str
    first: bool
    last: bool
    counted: bool = False
    keyed: bool = False

    def sources(self) -> dict[str, str]:
        """The arrays that it reads."""
        if not self.first:
            return {"values": "i64"}
        return {"keys": self.key} | ({} if self.counted else {"items": "i64"})

    def targets(self) -> dict[str, str]:
        """The arrays that it writes."""
        if not self.last:
            return {"values_out": "i64"}
        return {"items_out": "i64"} | ({"keys_out": self.key} if self.keyed else {})

    def read(self) -> list[str]:
        """`value` at `at`."""
        if not self.first:
            return ["value = tl.load(values + at, mask=inside, other=0)"]
        item = "at" if self.counted else "tl.load(items + at, mask=inside, other=0)"
        return [f"key = {KEY}", f"value = (key << low) | {item}"]

    def written(self) -> list[str]:
        """Stores of `value` at `to`."""
        if not self.last:
            return ["tl.store(values_out + to, value, mask=inside)"]
        item = "value & ((tl.full([1], 1, tl.int64) << low) - 1)"
        items = f"tl.store(items_out + to, {item}, mask=inside)"
        keys = "tl.store(keys_out + to, (value >> low) & mask, mask=inside)"
        return [items, keys] if self.keyed else [items]


@lru_cache(maxsize=256)
def sweep(of: Sweep) -> KernelSource:
    """Numbers in the order of one digit, equal digits in their order."""
    digits = of.digits
    most = digits.count - 1
    body = [
        "tile = tl.atomic_add(ticket, 1, sem='relaxed').to(tl.int64)",
        *_elements(),
        *of.read(),
        f"digit = tl.where(inside, {DIGIT} & {most}, {digits.count}).to(tl.int32)",
        f"number = tl.arange(0, {digits.count})",
        f"counts = {_counts(digits)}",
        f"own = status + tile * {digits.count} + number",
        f"tl.atomic_xchg(own, counts | {digits.shifted(1)}, sem='relaxed')",
        *_look_back(digits),
        f"tl.atomic_xchg(own, (before + counts) | {digits.shifted(2)}, sem='relaxed')",
        "total = tl.load(totals + number)",
        "starts = tl.cumsum(total, 0) - total + before - (tl.cumsum(counts, 0) - counts)",
        f"own = bases + tile * {digits.count}",
        "tl.store(own + number, starts)",
        # What is outside comes last.
        f"digit = tl.minimum(digit, {most})",
        f"value = ordered(value, digit, i, {digits.bits}, {TILE.warps})",
        f"digit = ({DIGIT} & {most}).to(tl.int32)",
        "tl.debug_barrier()",
        "to = tl.load(own + digit).to(tl.int64) + i",
        *of.written(),
    ]
    tables = dict.fromkeys(("totals", "status", "bases", "ticket"), digits.kind)
    pointers = of.sources() | of.targets() | tables
    numbers = ("count", "mask", "drop", "low", "shift")
    return _kernel("sweep", digits, pointers, numbers, body)


def _kernel(
    name: str, digits: Digits, pointers: dict[str, str], numbers: tuple[str, ...], body: list[str]
) -> KernelSource:
    told = digest(TILE.edges // (WARP * TILE.warps), digits.bits, TILE.warps)
    return source(name, pointers, numbers, [f"# order within a tile: {told}", *body], TILE)


def _elements() -> list[str]:
    """Element `i` of a tile is number `at` of all, if there are so many."""
    return [
        f"i = tl.arange(0, {TILE.edges})",
        # Told nothing of neighbours, the compiler gives all steps one layout.
        f"at = tl.max_contiguous(tile * {TILE.edges} + i, [1])",
        "inside = at < count",
    ]


def _counts(digits: Digits) -> str:
    """How many elements of a tile have each digit."""
    counted = f"counted(digit, i, {digits.bits}, {TILE.warps})"
    shape = f"[{TILE.edges // digits.count}, {digits.count}]"
    return f"tl.sum(tl.reshape({counted}, {shape}), 0).to({digits.dtype})"


def _look_back(digits: Digits) -> list[str]:
    """`before`: how many elements of tiles before this one have each digit. A program publishes
    what its tile has (flag 1), then what all tiles up to it have (flag 2)."""
    body = [
        "before = counts * 0",
        "behind = tile - 1 + number * 0",
        "open = number >= 0",
        "while tl.max(open.to(tl.int32), 0) > 0:",
    ]
    for k in range(LOOK):
        asked = f"mask=open & (behind >= {k}), other={digits.shifted(2)}, volatile=True"
        place = f"status + (behind - {k}) * {digits.count} + number"
        body.append(f"    seen{k} = tl.load({place}, {asked})")
    body.append("    known = open")
    for k in range(LOOK):
        body += [
            f"    flag = (seen{k} >> {digits.flag}) & 3",
            "    known = known & (flag != 0)",
            f"    before += tl.where(known, seen{k} & ({digits.shifted(1)} - 1), 0)",
            "    open = open & ((known & (flag == 2)) == 0)",
            "    known = known & (flag == 1)",
            "    behind -= known.to(tl.int64)",
        ]
    return body
