"""What tiles of rows are asked of ops, beside what these declare (`Op.by_rows`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tiga.ops.feature import is_transpose
from tiga.ops.monoid import COMBINED_BY
from tiga.ops.tensor_matmul import Matmul
from tiga.trace.node import Node
from tiga.trace.origin import Origin


def needs(node: Node) -> tuple[bool, ...] | None:
    """For each input, whether a row of the node comes from the same row of it (else from all of
    it); None where rows depend on other rows."""
    found: tuple[bool, ...] | None = node.op.by_rows(*(child.type for child in node.inputs))
    return found


def join_of(node: Node) -> Callable[[Any, Any], Any] | None:
    """How what a node makes of some rows is joined with what it makes of others, if it is."""
    op = node.op
    if isinstance(op, Matmul) and is_transpose(node.inputs[0]):
        return COMBINED_BY["add"].ufunc
    if op.joined_by is None or 0 not in op.axes_of_fields:
        return None
    return COMBINED_BY[op.joined_by].ufunc


def of_rows(op: Any, rows: int) -> Any:
    """An op that tells the shape of its result, for so many rows."""
    if op.is_view:
        return replace(op, to=(rows, *op.to[1:]))
    if op.origin is Origin.NUMBER:
        return replace(op, of=replace(op.of, shape=(rows, *op.of.shape[1:])))
    return op
