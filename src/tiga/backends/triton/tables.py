"""Rows of a global table by integer values: read where the table lies."""

from tiga.backends.triton.arithmetic import Term, dtype_text
from tiga.backends.triton.block import Block
from tiga.backends.triton.layout import row_major
from tiga.backends.triton.writer import Value, Writer
from tiga.trace.node import Node


def looked_up(writer: Writer, block: Block, node: Node, index: Value, pointer: str) -> Value:
    """The rows that an index names in the table at `pointer`. One that names none gives NaN, or 0
    in dtypes without NaN."""
    table, number = node.inputs
    (rows, edges, *_), dtype = index.dims, table.type.dtype
    index = writer.full(index, writer.dims(rows, edges, number.type))
    name = writer.named(block, "index", index).text
    axes = 0 if writer.tile.is_flat else len(node.type.shape) - len(number.type.shape)
    spread = f"[{', '.join([':'] * len(index.dims) + ['None'] * axes)}]" if axes else ""
    extent = table.type.shape[0]
    address = [pointer, f"{name}{spread} * {table.type.size // max(extent, 1)}"]
    offset = _offset(writer, node, number)
    known = [f"({name} >= 0){spread}", f"({name} < {extent}){spread}"]
    mask = " & ".join([*known, *(f"({c})" for c in writer.within(node.type))])
    other = 'float("nan")' if dtype.is_float else "0"
    text = f"tl.load({' + '.join(address + offset)}, mask={mask}, other={other})"
    if dtype != dtype.compute:
        text += f".to({dtype_text(dtype.compute)})"
    value = Value(Term(text, dtype.compute), writer.dims(rows, edges, node.type))
    return writer.named(block, "row_value", value)


def _offset(writer: Writer, node: Node, index: Node) -> list[str]:
    """Where the elements of a row are: the axes of the index have chosen it."""
    if writer.tile.is_flat:
        found = writer.offset_of(node.type)
    else:
        shape, axes = node.type.shape, len(index.type.shape)
        strides = (0,) * axes + row_major(shape[axes:])
        found = writer.dot(shape, writer.tile.extents(node.type), strides)
    return [found] if found else []
