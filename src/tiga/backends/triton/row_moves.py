"""Rows of an array in another order: torch's kernels take a block of threads for each row."""

from collections.abc import Sequence
from functools import lru_cache
from math import gcd

from tiga.backends.triton.compiled import ALIGNMENT
from tiga.backends.triton.layout import Tile, padded
from tiga.backends.triton.loaded import Interpreted, Kernel
from tiga.backends.triton.writer import KernelSource, Parameter
from tiga.runtime.functions import launch_once

ELEMENTS = 2048
"""Words of a program, about: eight to a thread."""

WORDS = {1: "*i8", 2: "*i16", 4: "*i32", 8: "*i64"}
"""The pointers to words of so many bytes."""


@lru_cache(maxsize=256)
def _kernel(row_bytes: int, index_bytes: int, alignment: int) -> Kernel:
    """The kernel for rows that begin at multiples of `alignment`."""
    word = next(n for n in sorted(WORDS, reverse=True) if row_bytes % n == alignment % n == 0)
    width = row_bytes // word
    extent = padded(width)
    rows = max(1, ELEMENTS // extent)
    inside, more = "(row < count)[:, None]", " & (f < WIDTH)" * (extent != width)
    text = "\n    ".join(
        [
            "@triton.jit\ndef move_rows(x, order, out, count):",
            f"row = tl.program_id(0).to(tl.int64) * {rows} + tl.arange(0, {rows})",
            "source = tl.load(order + row, mask=row < count, other=0).to(tl.int64)",
            f"f = tl.arange(0, {extent})[None, :]",
            f"mask = {inside}{more}",
            "value = tl.load(x + source[:, None] * WIDTH + f, mask=mask)",
            "tl.store(out + row[:, None] * WIDTH + f, value, mask=mask)",
        ]
    ).replace("WIDTH", str(width))
    pointers = {"x": WORDS[word], "order": WORDS[index_bytes], "out": WORDS[word]}
    parameters = (
        *(Parameter(name, type_, name) for name, type_ in pointers.items()),
        Parameter("count", "i64", "count"),
    )
    return Kernel(KernelSource("move_rows", text + "\n", parameters, (), Tile(rows, 1, 8)))


def move_rows(
    addresses: Sequence[int], count: int, row_bytes: int, index_bytes: int, device: int,
    capability: int, stream: int,
) -> None:  # fmt: skip
    """Row i of the result is row `order[i]` of an array, for `count` rows of so many bytes.

    Args:
        addresses: of the array, of the order (integers of `index_bytes`) and of the result.
        device, capability, stream: where; the device is the current one.
    """
    aligned = all(address % ALIGNMENT == 0 for address in addresses)
    alignment = ALIGNMENT if aligned else gcd(ALIGNMENT, addresses[0], addresses[2])
    kernel = _kernel(row_bytes, index_bytes, alignment)
    grid = (-(-count // kernel.source.tile.rows), 1, 1)
    form = kernel.form(device, capability, (*(aligned for _ in addresses), False))
    if isinstance(form, Interpreted):
        form.run(grid, [*addresses, count])
        return
    launch_once(form.function, grid, [*addresses, count], form.hidden, stream)
