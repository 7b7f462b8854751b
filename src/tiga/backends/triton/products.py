"""Products of values with a matrix in memory, and sums of outer products of edge values.

Both run on matrix units where all extents reach 16, in full precision of their dtype.
"""

from dataclasses import replace

from tiga.backends.triton.arithmetic import Term, dtype_text, literal, number_text, typed
from tiga.backends.triton.block import Block
from tiga.backends.triton.evaluate import ARITHMETIC, Evaluator, round_to, stored
from tiga.backends.triton.layout import padded
from tiga.backends.triton.writer import Value, Writer
from tiga.trace.node import Node
from tiga.types import DType, Shape, float64

LEAST = 16
"""Matrix units take no smaller extents."""


def _masked(writer: Writer, value: Value, shape: Shape) -> Value:
    """A value with zeros in its padding."""
    value = writer.full(value, (*value.dims[:2], *map(padded, shape)))
    conditions = [
        f"({writer.axis(i, len(shape), padded(n))} < {n})"
        for i, n in enumerate(shape)
        if padded(n) != n
    ]
    if not conditions:
        return value
    where = Term(" & ".join(conditions), value.dtype)
    return replace(value, term=ARITHMETIC.select(where, value.term, literal(0, value.dtype)))


def _as_matrix(writer: Writer, block: Block, value: Value, shape: Shape, hint: str) -> Value:
    """A value as [entities x leading axes, last axis], padding zero."""
    value = _masked(writer, value, shape)
    last = value.dims[-1]
    count = 1
    for extent in value.dims[:-1]:
        count *= extent
    text = f"tl.reshape({typed(value.term).text}, [{count}, {last}])"
    return writer.named(block, hint, Value(Term(text, value.dtype), (count, last)))


def _matrix(writer: Writer, pointer: str, node: Node) -> Value:
    """A whole matrix [K, M], loaded once per kernel, padding zero."""
    inner, outer = node.type.shape
    k, m = padded(inner), padded(outer)
    rows, columns = f"tl.arange(0, {k})[:, None]", f"tl.arange(0, {m})[None, :]"
    conditions = [f"({rows} < {inner})"] * (k != inner) + [f"({columns} < {outer})"] * (m != outer)
    mask = f", mask={' & '.join(conditions)}, other=0" if conditions else ""
    dtype = node.type.dtype
    wide = f".to({dtype_text(dtype.compute)})" if dtype != dtype.compute else ""
    text = f"tl.load({pointer} + {rows} * {outer} + {columns}{mask}){wide}"
    name = writer.once(("matrix", node), "matrix", text)
    return Value(Term(name, dtype.compute), (k, m))


def _dot(a: Value, b: Value, dtype: DType, transpose: bool = False) -> str:
    """a @ b, or its transpose @ b, accumulated in the compute dtype."""
    left, right = stored(a.term, dtype).text, stored(b.term, dtype).text
    left = f"tl.trans({left})" if transpose else left
    return f'tl.dot({left}, {right}, input_precision="ieee")'


def _fits_units(dtype: DType, *extents: int) -> bool:
    return dtype != float64 and min(extents) >= LEAST


def multiply(evaluator: Evaluator, block: Block, node: Node, x: Value, pointer: str) -> Value:
    """x [..., K] times a matrix [K, M] at `pointer`."""
    writer = evaluator.writer
    source, dtype = node.inputs[0].type.shape, node.type.dtype
    left = _as_matrix(writer, block, x, source, "factor")
    right = _matrix(writer, pointer, node.inputs[1])
    (count, k), m = left.dims, right.dims[1]
    if _fits_units(dtype, count, k, m):
        text = _dot(left, right, dtype)
    else:
        text = _sum_of_products(writer, block, left, right)
    dims = (*x.dims[:2], *map(padded, node.type.shape))
    value = Value(Term(f"tl.reshape({text}, {list(dims)})", dtype.compute), dims)
    return writer.named(block, "product", replace(value, term=round_to(value.term, dtype)))


def _sum_of_products(writer: Writer, block: Block, left: Value, right: Value) -> str:
    """Column by column of the left: an order that no layout changes."""
    (count, k), m = left.dims, right.dims[1]
    dtype = left.dtype
    total = writer.names.fresh("product")
    zero = number_text(0.0)
    block.add(f"{total} = tl.full([{count}, {m}], {zero}, {dtype_text(dtype)})")
    inner, step = Block(), writer.names.fresh("k")
    column = f"tl.arange(0, {k})[None, :] == {step}"
    row = f"tl.arange(0, {k})[:, None] == {step}"
    left_column, right_row = writer.names.fresh("column"), writer.names.fresh("row")
    inner.add(f"{left_column} = tl.sum(tl.where({column}, {left.text}, 0.0), 1)[:, None]")
    inner.add(f"{right_row} = tl.sum(tl.where({row}, {right.text}, 0.0), 0)[None, :]")
    inner.add(f"{total} += {left_column} * {right_row}")
    block.nest(f"for {step} in range({k}):", inner)
    return total


def outer_sum(
    writer: Writer, block: Block, node: Node, x: Value, y: Value, live: str, total: str
) -> None:
    """Add the outer products of a tile's live edges to `total`, [K, M]."""
    parts = []
    for value, child in zip((x, y), node.inputs, strict=True):
        shape = child.type.shape
        tile = writer.tile
        value = writer.full(value, (tile.rows, tile.edges, *map(padded, shape)))
        mask = Term(f"{live}[:, :{', None' * len(shape)}]", value.dtype)
        value = replace(value, term=ARITHMETIC.select(mask, value.term, literal(0, value.dtype)))
        parts.append(_as_matrix(writer, block, value, shape, "side"))
    left, right = parts
    (count, k), m = left.dims, right.dims[1]
    dtype = node.inputs[0].type.dtype
    if _fits_units(dtype, count, k, m):
        block.add(f"{total} += {_dot(left, right, dtype, transpose=True)}")
        return
    inner, step = Block(), writer.names.fresh("edge")
    pick = f"tl.arange(0, {count})[:, None] == {step}"
    names = [writer.names.fresh(hint) for hint in ("left", "right")]
    for name, side in zip(names, (left, right), strict=True):
        inner.add(f"{name} = tl.sum(tl.where({pick}, {side.text}, 0.0), 0)")
    inner.add(f"{total} += {names[0]}[:, None] * {names[1]}[None, :]")
    block.nest(f"for {step} in range({count}):", inner)


def store_matrix(block: Block, pointer: str, piece: str, node: Node, total: str) -> None:
    """Store a sum of outer products as one piece of its total."""
    inner, outer = node.type.shape
    k, m = padded(inner), padded(outer)
    rows, columns = f"tl.arange(0, {k})[:, None]", f"tl.arange(0, {m})[None, :]"
    place = f"{pointer} + {piece} * {inner * outer} + {rows} * {outer} + {columns}"
    block.add(f"tl.store({place}, {total}, mask=({rows} < {inner}) & ({columns} < {outer}))")
