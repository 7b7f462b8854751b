"""Sorting index arrays by the bits of their keys; stable, and the same in every run."""

from typing import Any

from tiga.backends.triton import radix
from tiga.backends.triton.index_arrays import IndexArray, empty, launch, positions, type_name
from tiga.backends.triton.radix import Digits, Sweep

LEAST_BITS, MOST_BITS = 8, 9
"""Bits of a digit: as many digits as a program has threads, or twice as many."""

_WORD = 64
"""Bits of a packed number."""

NARROW = 1 << 30
"""Below so many elements counts and their flags fit 32 bits."""

_APART = 4
"""Numbers from one ticket to the next."""

_COUNTERS = 512
"""Programs that count digits."""


def sorted_by(
    keys: IndexArray, bits: int, items: IndexArray | None = None, item_bits: int = 0
) -> tuple[IndexArray, IndexArray]:
    """Keys sorted by their `bits` lowest bits, equal ones in their order, and what goes with them:
    int64 `items`, not negative and of at most `item_bits` bits, or their places. Bits above those
    are not kept."""
    low = _place_bits(keys) if items is None else item_bits
    if keys.size > 1 and bits and bits + low <= _WORD:
        order, ordered = _packed(keys, 0, bits, items, low, keyed=True)
        return ordered, order
    order = sorted_order(keys, bits)
    return keys[order], order if items is None else items[order]


def sorted_order(
    keys: IndexArray, bits: int, items: IndexArray | None = None, item_bits: int = 0
) -> IndexArray:
    """The items of `sorted_by`."""
    if keys.size < 2 or not bits:
        return positions(keys.machine, keys.size) if items is None else items
    low = _place_bits(keys) if items is None else item_bits
    if bits + low <= _WORD:
        return _packed(keys, 0, bits, items, low)[0]
    # The lowest bits first, then the others in the order that these gave.
    half, low = bits // 2, _place_bits(keys)
    order = _packed(keys, 0, half, None, low)[0]
    order = _packed(keys[order], half, bits - half, order, low)[0]
    return order if items is None else items[order]


def _place_bits(keys: IndexArray) -> int:
    return max(keys.size - 1, 0).bit_length()


def _packed(
    keys: IndexArray, drop: int, bits: int, items: IndexArray | None, low: int, keyed: bool = False
) -> list[IndexArray]:
    """Items, of `low` bits, in the order of keys' bits from `drop` on; where `keyed`, these too."""
    machine, count = keys.machine, keys.size
    passes = -(-bits // MOST_BITS)
    digits = Digits(max(-(-bits // passes), LEAST_BITS), passes, count >= NARROW)
    tables = _Tables(digits, machine, count)
    mask = (1 << bits) - 1
    tables.count(keys, mask, drop)
    now = [keys] if items is None else [keys, items]
    for p in range(passes):
        first, last = p == 0, p == passes - 1
        key = type_name(keys) if first or (last and keyed) else "i64"
        of = Sweep(digits, key, first, last, first and items is None, last and keyed)
        targets = [empty(machine, count, _dtype(kind)) for kind in of.targets().values()]
        numbers = [mask, drop, low, p * digits.bits]
        launch(radix.sweep(of), count, [*now, *targets, *tables.of(p)], numbers)
        now = targets
    return now


def _dtype(kind: str) -> str:
    return kind.replace("i", "int")


class _Tables:
    """What programs tell one another: set to 0 first, and all in one piece of memory."""

    def __init__(self, digits: Digits, machine: Any, count: int) -> None:
        self.digits = digits
        self.tiles = -(-count // radix.TILE.edges)
        row = digits.count
        published = self.tiles * row
        self._bases = empty(machine, published, _dtype(digits.kind))
        parts = digits.passes * (row + published + _APART)
        self._counts = empty(machine, parts, _dtype(digits.kind))
        machine.zero(self._counts.address, self._counts.nbytes)

    def count(self, keys: IndexArray, mask: int, drop: int) -> None:
        """Count the digits of all passes."""
        programs = min(self.tiles, _COUNTERS)
        source = radix.count_digits(self.digits, type_name(keys))
        launch(
            source, keys.size, [keys, self._counts], [mask, drop, self.tiles, programs], programs
        )

    def of(self, p: int) -> list[IndexArray]:
        """The tables of a pass."""
        row, passes = self.digits.count, self.digits.passes
        published = self.tiles * row
        status, ticket = passes * row, passes * (row + published)
        return [
            self._counts[p * row : (p + 1) * row],
            self._counts[status + p * published : status + (p + 1) * published],
            self._bases,
            self._counts[ticket + p * _APART : ticket + (p + 1) * _APART],
        ]
