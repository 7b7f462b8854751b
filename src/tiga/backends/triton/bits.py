"""Booleans as bits of words, in registers."""

from tiga.backends.triton.arithmetic import Term
from tiga.backends.triton.layout import padded
from tiga.backends.triton.writer import Value, Writer
from tiga.ops.bits import WORD
from tiga.types import bool_, int32


def _places(writer: Writer, extents: tuple[int, int]) -> str:
    """The places of bits in their words, for values [rows, edges, words, bits]."""
    return writer.axis(1, 2, extents[1])


def _extents(size: int) -> tuple[int, int]:
    """Words of a value of so many elements, and bits that are used of each, in registers."""
    whole = padded(size)
    return max(1, whole // WORD), min(whole, WORD)


def packed(writer: Writer, value: Value, size: int) -> Value:
    """Flat booleans of so many elements as words; bits in the padding are 0."""
    lead, extents = value.dims[:2], _extents(size)
    whole = writer.full(value, (*lead, padded(size))).text
    if size != padded(size):
        whole = f"({whole} & ({writer.axis(0, 1, padded(size))} < {size}))"
    apart = f"tl.reshape({whole}, {[*lead, *extents]}).to(tl.int32)"
    text = f"tl.sum({apart} << {_places(writer, extents)}, 3)"
    return Value(Term(text, int32), (*lead, extents[0]))


def unpacked(writer: Writer, value: Value, size: int) -> Value:
    """The first booleans, so many, that words hold."""
    lead, extents = value.dims[:2], _extents(size)
    words = writer.full(value, (*lead, extents[0])).text
    apart = f"(({words}[:, :, :, None] >> {_places(writer, extents)}) & 1) != 0"
    text = f"tl.reshape({apart}, {[*lead, padded(size)]})"
    return Value(Term(text, bool_), (*lead, padded(size)))
