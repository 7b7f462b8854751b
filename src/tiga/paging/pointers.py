"""The row pointers of a page, and where the parts of its edges are staged."""

from collections.abc import Iterable

import numpy as np

from tiga.paging.numbers import STEP
from tiga.paging.span import Span
from tiga.runtime.pages import Damaged


def places(span: Span) -> Iterable[tuple[int, int, int]]:
    """Where each part of a span is staged, and its range."""
    at = 0
    for low, high in span.parts:
        yield at, low, high
        at += high - low + span.gap


def require_rising(row_ptr: np.ndarray, span: Span) -> int:
    """The most edges of a row.

    Raises:
        Damaged: the pointers do not cut the span's edges into rows.
    """
    first, last = int(row_ptr[0]), int(row_ptr[-1])
    most, least = 0, 0
    for low in range(0, len(row_ptr) - 1, STEP):
        degrees = np.diff(row_ptr[low : low + STEP + 1])
        most, least = max(most, int(degrees.max())), min(least, int(degrees.min()))
    start, end = span.parts[0][0] + span.lead, span.parts[-1][1]
    whole = (first, last) == (start, end) or (span.cut and first <= start and end <= last)
    if least < 0 or not whole:
        raise Damaged("the row pointers in the file do not cut its edges into rows")
    return most


def close_up(row_ptr: np.ndarray, span: Span) -> None:
    """Let pointers count places in the page: what lies between parts shrinks to the gap."""
    if len(span.parts) == 1:
        np.clip(row_ptr, *span.parts[0], out=row_ptr)
        row_ptr -= span.parts[0][0]
        return
    original = row_ptr.copy()
    for at, low, high in places(span):
        inside = (original >= low) & (original <= high)
        row_ptr[inside] = original[inside] - low + at
