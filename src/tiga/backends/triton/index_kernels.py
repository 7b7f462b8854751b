"""Kernels on index arrays: arithmetic, sums, searches and moves of integers."""

from functools import lru_cache

from tiga.backends.triton.layout import Tile
from tiga.backends.triton.writer import KernelSource, Parameter

BLOCK = 1024
"""Elements of a program."""

FORMULAS = {
    "add": "a + b", "sub": "a - b", "mul": "a * b", "floordiv": "a // b",
    "and": "(a & b).to(tl.int8)", "or": "(a | b).to(tl.int8)", "lt": "(a < b).to(tl.int8)",
    "le": "(a <= b).to(tl.int8)", "gt": "(a > b).to(tl.int8)", "ge": "(a >= b).to(tl.int8)",
    "ne": "(a != b).to(tl.int8)", "eq": "(a == b).to(tl.int8)",
}  # fmt: skip
"""What a kernel of two operands computes, in int64."""

NEUTRAL = {"sum": "0", "min": str(2**63 - 1), "max": str(-(2**63))}
"""What changes nothing in a reduction."""

JOIN = {
    "sum": "found + given",
    "min": "tl.minimum(found, given)",
    "max": "tl.maximum(found, given)",
}
"""What a reduction has found, with what is given besides."""


def kernel(
    name: str, pointers: dict[str, str], numbers: tuple[str, ...], body: list[str],
    warps: int = 4,
) -> KernelSource:  # fmt: skip
    """A kernel whose programs each have `BLOCK` elements `i`, `inside` if there are so many as
    `count`, its first number."""
    elements = [
        f"i = tl.program_id(0).to(tl.int64) * {BLOCK} + tl.arange(0, {BLOCK})",
        "inside = i < count",
    ]
    return source(name, pointers, numbers, [*elements, *body], Tile(1, BLOCK, warps))


def source(
    name: str, pointers: dict[str, str], numbers: tuple[str, ...], body: list[str], tile: Tile
) -> KernelSource:
    """A kernel on arrays. Each pointer is a multiple of 16 and has an offset beside it."""
    offsets = [f"{pointer}_at" for pointer in pointers]
    names = ", ".join([*pointers, *offsets, *numbers])
    lines = [f"{pointer} += {offset}" for pointer, offset in zip(pointers, offsets, strict=True)]
    text = "\n    ".join([f"@triton.jit\ndef {name}({names}):", *lines, *body]) + "\n"
    parameters = (
        *(Parameter(pointer, f"*{type_}", pointer) for pointer, type_ in pointers.items()),
        *(Parameter(name, "i64", name) for name in (*offsets, *numbers)),
    )
    return KernelSource(name, text, parameters, (), tile)


def _load(name: str, place: str = "i") -> str:
    return f"tl.load({name} + {place}, mask=inside, other=0).to(tl.int64)"


@lru_cache(maxsize=256)
def binary(name: str, x: str, y: str | None, out: str, swapped: bool) -> KernelSource:
    """Two arrays, or an array and a number (`y` is None), element by element."""
    pointers = {"x": x, "y": y, "out": out} if y else {"x": x, "out": out}
    b = _load("y") if y else "number"
    first, second = ("b", "a") if swapped else ("a", "b")
    body = [f"{first} = {_load('x')}", f"{second} = {b}",
            f"tl.store(out + i, {FORMULAS[name]}, mask=inside)"]  # fmt: skip
    return kernel(f"index_{name}", pointers, ("count", "number"), body)


@lru_cache(maxsize=64)
def copy(x: str, out: str) -> KernelSource:
    """The same integers in another type."""
    return kernel("index_cast", {"x": x, "out": out}, ("count",),
                  [f"tl.store(out + i, {_load('x')}, mask=inside)"])  # fmt: skip


@lru_cache(maxsize=16)
def fill(out: str) -> KernelSource:
    """`start`, and `step` more from element to element."""
    return kernel("index_fill", {"out": out}, ("count", "start", "step"),
                  ["tl.store(out + i, start + i * step, mask=inside)"])  # fmt: skip


@lru_cache(maxsize=64)
def reduction(kind: str, x: str) -> KernelSource:
    """The sum, the least or the largest of each program's elements, `steps` tiles after another."""
    body = [
        f"found = tl.full([{BLOCK}], {NEUTRAL[kind]}, tl.int64)",
        "for step in range(0, steps):",
        f"    i = (tl.program_id(0) * steps + step) * {BLOCK} + tl.arange(0, {BLOCK})",
        "    inside = i < count",
        f"    given = tl.where(inside, {_load('x')}, {NEUTRAL[kind]})",
        f"    found = {JOIN[kind]}",
        f"tl.store(out + tl.program_id(0), tl.{kind}(found, 0))",
    ]
    pointers = {"x": x, "out": "i64"}
    return source(f"index_{kind}", pointers, ("count", "steps"), body, Tile(1, BLOCK, 4))


_BEFORE = "before = tl.load(sums + tl.program_id(0) - 1, mask=tl.program_id(0) > 0, other=0)"
"""What programs before this one have; `sums` has the sums of all programs up to each."""


@lru_cache(maxsize=16)
def running(x: str) -> KernelSource:
    """Sums of the elements so far."""
    body = [_BEFORE, f"tl.store(out + i, before + tl.cumsum({_load('x')}, 0), mask=inside)"]
    return kernel("running_sums", {"x": x, "sums": "i64", "out": "i64"}, ("count",), body)


@lru_cache(maxsize=16)
def compact(mask: str) -> KernelSource:
    """The places of what is true, one after another."""
    body = [
        _BEFORE,
        f"keep = {_load('mask')}",
        "tl.store(out + before + tl.cumsum(keep, 0) - 1, i, mask=inside & (keep != 0))",
    ]
    return kernel("compact", {"mask": mask, "sums": "i64", "out": "i64"}, ("count",), body)


@lru_cache(maxsize=64)
def take(x: str, positions: str) -> KernelSource:
    """`out[i] = x[positions[i]]`."""
    body = [
        f"place = {_load('positions')}",
        f"tl.store(out + i, {_load('x', 'place')}, mask=inside)",
    ]
    return kernel("index_take", {"x": x, "positions": positions, "out": x}, ("count",), body)


@lru_cache(maxsize=64)
def put(out: str, positions: str, values: str) -> KernelSource:
    """`out[positions[i]] = values[i]`."""
    body = [f"place = {_load('positions')}",
            f"tl.store(out + place, {_load('values')}, mask=inside)"]  # fmt: skip
    pointers = {"positions": positions, "values": values, "out": out}
    return kernel("index_put", pointers, ("count",), body)


@lru_cache(maxsize=16)
def search(x: str, bounds: str | None) -> KernelSource:
    """How many elements of a rising `x` are less than each bound; without bounds, which row has
    place i, of rows that start at `x`."""
    pointers = {"x": x, "bounds": bounds, "out": "i64"} if bounds else {"x": x, "out": "i64"}
    body = [
        f"bound = {_load('bounds') if bounds else 'i + 1'}",
        "low = i * 0",
        "high = low + length",
        "for turn in range(0, turns):",
        "    middle = (low + high) // 2",
        "    open = inside & (low < high)",
        "    value = tl.load(x + middle, mask=open, other=0).to(tl.int64)",
        "    less = open & (value < bound)",
        "    high = tl.where(open & (less == 0), middle, high)",
        "    low = tl.where(less, middle + 1, low)",
        f"tl.store(out + i, {'low' if bounds else 'low - 1'}, mask=inside)",
    ]
    return kernel("index_search", pointers, ("count", "length", "turns"), body)


@lru_cache(maxsize=1)
def pack() -> KernelSource:
    """Words of 32 bits from bytes that are 0 or 1."""
    body = [
        "bit = tl.arange(0, 32)",
        "whole = tl.load(x + i[:, None] * 32 + bit[None, :], mask=inside[:, None], other=0)",
        "word = tl.sum(whole.to(tl.int64) << bit[None, :].to(tl.int64), 1)",
        "tl.store(out + i, word.to(tl.int32), mask=inside)",
    ]
    return kernel("pack_bits", {"x": "i8", "out": "i32"}, ("count",), body, warps=16)
