"""Products of values with a matrix in memory, and sums of outer products of edge values.

Both run on matrix units, except for float64, in full precision of their dtype: float32 in parts of
bfloat16, as a product in float32 itself takes its operands from registers and spills them.
"""

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace

import numpy as np

from tiga.backends.triton.arithmetic import Term, dtype_text, literal, number_text, typed
from tiga.backends.triton.block import Block
from tiga.backends.triton.evaluate import ARITHMETIC, Evaluator, stored
from tiga.backends.triton.layout import box_map, padded
from tiga.backends.triton.writer import Value, Writer
from tiga.ops.arithmetic import round_to
from tiga.ops.feature import Permute, Reshape, Take, is_transpose
from tiga.trace.node import Node
from tiga.types import DType, Shape, float32, float64

LEAST = 16
"""Matrix units take no smaller extents: narrower values are spread out among zeros."""

UNSHARED = 32
"""Rows of a product that four warps compute without instructions that they share (wgmma), which
take 64."""

LARGEST_WHOLE = 8192
"""Elements of a matrix that is kept for a whole kernel: its thirds take 48 KiB of shared memory."""


LARGEST_HELD = 2048
"""Elements of a matrix that a kernel without matrix units holds in registers."""

MOST_KEPT = 3
"""Matrices that a kernel keeps in shared memory from its start, and more if they are small; others
are read when they are needed."""

KEPT_ELEMENTS = 16384
"""Elements of more matrices: 96 KiB in parts of bfloat16, beside which a second program fits."""

MOVES = (Take, Permute, Reshape)
"""Movements that kernels may read through, where what is left is a part of a matrix."""


@dataclass(frozen=True)
class View:
    """Where a matrix lies in an array: element [i, j] at `base + i * strides[0] + j * strides[1]`.
    `pointer` is what a kernel calls the array."""

    array: Node
    base: int
    strides: tuple[int, ...]
    pointer: str = ""

    @property
    def start(self) -> str:
        return f"{self.pointer} + {self.base}" if self.base else self.pointer


def view_of(matrix: Node, arrays: Collection[Node]) -> View | None:
    """A matrix as a part of one of the arrays, if it is one, with its axes in either order."""
    lanes, source = np.arange(matrix.type.size).reshape(matrix.type.shape), matrix
    while source not in arrays and isinstance(source.op, MOVES):
        (child,) = source.inputs
        lanes, source = source.op.lanes(child.type.shape).ravel()[lanes], child
    box = box_map(lanes) if source in arrays else None
    return None if box is None else View(source, box.base, box.strides)


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


def _matrix(writer: Writer, view: View, node: Node, dims: tuple[int, int]) -> Value:
    """A whole matrix [K, M], loaded once per kernel, padded with zeros to these extents: its rows
    as the elements of `_spread` values, its columns at the end."""
    if ("matrix", node) not in writer.shared:
        apart = dims[0] // padded(node.type.shape[0])
        rows = f"tl.arange(0, {dims[0]})[:, None]"
        loaded = _rows_of(writer, writer.prologue, view, node, rows, dims, apart)
        writer.shared["matrix", node] = loaded.text
    return Value(Term(writer.shared["matrix", node], node.type.dtype.compute), dims)


def _spread(writer: Writer, block: Block, value: Value) -> Value:
    """A matrix [count, K] with its columns apart, zeros between them, as wide as units need."""
    count, k = value.dims
    if k >= LEAST:
        return value
    apart = LEAST // k
    text = f"tl.broadcast_to({value.text}[:, :, None], [{count}, {k}, {apart}])"
    taken = f"tl.arange(0, {LEAST})[None, :] % {apart} == 0"
    text = f"tl.where({taken}, tl.reshape({text}, [{count}, {LEAST}]), 0.0)"
    return writer.named(block, "spread", Value(Term(text, value.dtype), (count, LEAST)))


def _first_columns(text: str, count: int, m: int) -> str:
    """The first `m` columns of a product [count, LEAST], of which the others count for nothing."""
    kept = f"tl.where(tl.arange(0, {LEAST})[None, :] < {m}, {text}, 0.0)"
    return f"tl.sum(tl.reshape({kept}, [{count}, {LEAST // m}, {m}]), 1)"


@dataclass(frozen=True)
class Factor:
    """The right factor of a product on matrix units: its text, or those of its thirds."""

    texts: tuple[str, ...]

    @property
    def transposed(self) -> "Factor":
        return Factor(tuple(f"tl.trans({text})" for text in self.texts))

    def times(self, left: str) -> str:
        """A matrix times this one."""
        if len(self.texts) == 1:
            return f"matmul({left}, {self.texts[0]})"
        return f"matmul_thirds({left}, {', '.join(self.texts)})"


def _factor(writer: Writer, block: Block, value: Value, dtype: DType, key: Hashable) -> Factor:
    """A matrix in registers as the right factor of products in `dtype`."""
    if dtype != float32:
        return Factor((stored(value.term, dtype).text,))
    if key in writer.thirds:
        return Factor(writer.thirds[key])
    names = tuple(writer.names.fresh(f"{value.text}_{part}") for part in ("high", "middle", "low"))
    block.add(f"{', '.join(names)} = thirds({value.text})")
    if key is not None:
        writer.thirds[key] = names
    return Factor(names)


def _has_units(dtype: DType, count: int) -> bool:
    return dtype != float64 and count >= LEAST


def multiply(
    evaluator: Evaluator, block: Block, node: Node, x: Value, view: Callable[[Node], View],
    matrices: Collection[Node], step: str | None = None,
) -> Value:  # fmt: skip
    """x [..., K] times a matrix [K, M]. `view` says where a matrix lies, `matrices` are all that
    the kernel multiplies with: one that is the transpose of another is no second one. `step` names
    where a loop is within which this is."""
    writer, matrix = evaluator.writer, node.inputs[1]
    source, dtype = node.inputs[0].type.shape, node.type.dtype
    left = _as_matrix(writer, block, x, source, "factor")
    count, m = left.dims[0], padded(matrix.type.shape[1])
    if _has_units(dtype, count):
        left = _spread(writer, block, left)
        text = _on_units(writer, block, left, matrix, view, matrices, dtype, step)
        text = text if m >= LEAST else _first_columns(text, count, m)
    else:
        text = _sum_of_products(writer, block, left, view(matrix), matrix)
    dims = (*x.dims[:2], *map(padded, node.type.shape))
    whole = Term(f"tl.reshape({text}, {list(dims)})", dtype.compute)
    return writer.named(block, "product", Value(round_to(ARITHMETIC, whole, dtype), dims))


def _on_units(
    writer: Writer, block: Block, left: Value, matrix: Node, view: Callable[[Node], View],
    matrices: Collection[Node], dtype: DType, step: str | None,
) -> str:  # fmt: skip
    k, m = left.dims[1], max(padded(matrix.type.shape[1]), LEAST)
    if k * m > LARGEST_WHOLE:
        return _sliced(writer, block, left, view(matrix), matrix, dtype)
    if not are_kept(matrices):
        # Not before the loop, to where Triton moves what is the same in all steps: together they
        # do not fit shared memory. No step is below 0.
        rows = (
            f"(tl.arange(0, {k}) + tl.minimum({step}, 0))[:, None]"
            if step
            else f"tl.arange(0, {k})[:, None]"
        )
        apart = k // padded(matrix.type.shape[0])
        value = _rows_of(writer, block, view(matrix), matrix, rows, (k, m), apart)
        return _factor(writer, block, value, dtype, None).times(stored(left.term, dtype).text)
    turned = _is_turned(matrix, matrices)
    base, dims = (matrix.inputs[0], (m, k)) if turned else (matrix, (k, m))
    value = _matrix(writer, view(base), base, dims)
    factor = _factor(writer, writer.prologue, value, dtype, base)
    return (factor.transposed if turned else factor).times(stored(left.term, dtype).text)


def _sliced(
    writer: Writer, block: Block, left: Value, view: View, matrix: Node, dtype: DType
) -> str:
    """A product with a large matrix, a slice of its rows at a time."""
    count, k = left.dims
    m = max(padded(matrix.type.shape[1]), LEAST)
    depth = max(LEAST, LARGEST_WHOLE // m)
    total, step = writer.names.fresh("product"), writer.names.fresh("slice")
    block.add(f"{total} = tl.full([{count}, {m}], 0.0, {dtype_text(left.dtype)})")
    parts = writer.names.fresh("parts")
    block.add(f"{parts} = tl.reshape({left.text}, [{count}, {k // depth}, {depth}])")
    loop = Block()
    here = f"tl.arange(0, {k // depth})[None, :, None] == {step}"
    part = Term(f"tl.sum(tl.where({here}, {parts}, 0.0), 1)", left.dtype)
    rows = f"({step} * {depth} + tl.arange(0, {depth}))[:, None]"
    value = _rows_of(writer, loop, view, matrix, rows, (depth, m))
    factor = _factor(writer, loop, value, dtype, None)
    loop.add(f"{total} += {factor.times(stored(part, dtype).text)}")
    block.nest(f"for {step} in range({k // depth}):", loop)
    return total


def _rows_of(
    writer: Writer, block: Block, view: View, matrix: Node, rows: str, dims: tuple[int, int],
    apart: int = 1,
) -> Value:  # fmt: skip
    """Some rows of a matrix, padding zero; with zeros between them if they are `apart`."""
    (inner, outer), dtype = matrix.type.shape, matrix.type.dtype
    columns = f"tl.arange(0, {dims[1]})[None, :]"
    places = rows if apart == 1 else f"{rows} // {apart}"
    conditions = [f"({places} < {inner})"] * (padded(inner) != inner)
    conditions += [f"({rows} % {apart} == 0)"] * (apart > 1)
    conditions += [f"({columns} < {outer})"] * (dims[1] != outer)
    mask = f", mask={' & '.join(conditions)}, other=0" if conditions else ""
    wide = f".to({dtype_text(dtype.compute)})" if dtype != dtype.compute else ""
    offsets = [_times(p, stride) for p, stride in zip((places, columns), view.strides, strict=True)]
    text = f"tl.load({view.start} + {' + '.join(offsets)}{mask}){wide}"
    return writer.named(block, "matrix", Value(Term(text, dtype.compute), dims))


def _times(place: str, stride: int) -> str:
    return place if stride == 1 else f"{place} * {stride}"


def are_kept(matrices: Collection[Node]) -> bool:
    """Whether a kernel keeps the matrices that it multiplies with for all its steps."""
    sizes = [
        max(padded(m.type.shape[0]), LEAST) * max(padded(m.type.shape[1]), LEAST)
        for m in matrices
        if not _is_turned(m, matrices)
    ]
    return len(sizes) <= MOST_KEPT or sum(sizes) <= KEPT_ELEMENTS


def _is_turned(matrix: Node, matrices: Collection[Node]) -> bool:
    """Whether a matrix is read as the transpose of another of them."""
    known = is_transpose(matrix) and matrix.inputs[0] in matrices
    return known and min(matrix.type.shape) >= LEAST


def _sum_of_products(writer: Writer, block: Block, left: Value, view: View, matrix: Node) -> str:
    """Column by column of the left: an order that no layout changes. Rows of a matrix that would
    fill the registers are read one by one."""
    (count, k), m = left.dims, padded(matrix.type.shape[1])
    dtype = left.dtype
    whole = None if k * m > LARGEST_HELD else _matrix(writer, view, matrix, (k, m))
    total = writer.names.fresh("product")
    zero = number_text(0.0)
    block.add(f"{total} = tl.full([{count}, {m}], {zero}, {dtype_text(dtype)})")
    inner, step = Block(), writer.names.fresh("k")
    column = f"tl.arange(0, {k})[None, :] == {step}"
    row = f"tl.arange(0, {k})[:, None] == {step}"
    left_column, right_row = writer.names.fresh("column"), writer.names.fresh("row")
    inner.add(f"{left_column} = tl.sum(tl.where({column}, {left.text}, 0.0), 1)[:, None]")
    if whole is None:
        right_row = _rows_of(writer, inner, view, matrix, step, (1, m)).text
    else:
        inner.add(f"{right_row} = tl.sum(tl.where({row}, {whole.text}, 0.0), 0)[None, :]")
    inner.add(f"{total} += {left_column} * {right_row}")
    block.nest(f"for {step} in range({k}):", inner)
    return total


def totals_of(total: str, node: Node, matrices: Collection[Node]) -> list[str]:
    """The names of the parts in which a kernel that multiplies with these matrices sums outer
    products: of few rows each, beside matrices that are read in each step."""
    inner, _ = node.type.shape
    whole = are_kept(matrices) or node.type.dtype == float64 or padded(inner) <= UNSHARED
    return [total] if whole else [f"{total}_{i}" for i in range(padded(inner) // UNSHARED)]


def outer_sum(
    writer: Writer, block: Block, node: Node, x: Value, y: Value, live: str, totals: list[str]
) -> None:
    """Add the outer products of a tile's live edges to [K, M], whose rows are in these parts."""
    parts = []
    for value, child in zip((x, y), node.inputs, strict=True):
        shape = child.type.shape
        tile = writer.tile
        value = writer.full(value, (tile.rows, tile.edges, *map(padded, shape)))
        mask = Term(f"{live}[:, :{', None' * len(shape)}]", value.dtype)
        value = replace(value, term=ARITHMETIC.select(mask, value.term, literal(0, value.dtype)))
        parts.append(_as_matrix(writer, block, value, shape, "side"))
    left, right = parts
    count, dtype = left.dims[0], node.inputs[0].type.dtype
    if _has_units(dtype, count):
        for total, part in zip(totals, _columns(writer, block, left, len(totals)), strict=True):
            block.add(f"{total} += {_outer_on_units(writer, block, part, right, dtype)}")
        return
    (total,) = totals
    inner, step = Block(), writer.names.fresh("edge")
    pick = f"tl.arange(0, {count})[:, None] == {step}"
    names = [writer.names.fresh(hint) for hint in ("left", "right")]
    for name, side in zip(names, (left, right), strict=True):
        inner.add(f"{name} = tl.sum(tl.where({pick}, {side.text}, 0.0), 0)")
    inner.add(f"{total} += {names[0]}[:, None] * {names[1]}[None, :]")
    block.nest(f"for {step} in range({count}):", inner)


def _columns(writer: Writer, block: Block, value: Value, count: int) -> list[Value]:
    """A matrix in so many parts of its columns, a power of two."""
    if count == 1:
        return [value]
    rows, half = value.dims[0], value.dims[1] // 2
    low, high = writer.names.fresh("low"), writer.names.fresh("high")
    pair = f"tl.permute(tl.reshape({value.text}, [{rows}, 2, {half}]), [0, 2, 1])"
    block.add(f"{low}, {high} = tl.split({pair})")
    halves = (Value(Term(name, value.dtype), (rows, half)) for name in (low, high))
    return [part for one in halves for part in _columns(writer, block, one, count // 2)]


def _outer_on_units(writer: Writer, block: Block, left: Value, right: Value, dtype: DType) -> str:
    """The sum of a tile's outer products, [K, M]."""
    k, m = left.dims[1], right.dims[1]
    left, right = _spread(writer, block, left), _spread(writer, block, right)
    factor = _factor(writer, block, right, dtype, None)
    text = factor.times(f"tl.trans({stored(left.term, dtype).text})")
    if min(k, m) >= LEAST:
        return text
    wide_k, wide_m = left.dims[1], right.dims[1]
    rows, columns = f"tl.arange(0, {wide_k})[:, None]", f"tl.arange(0, {wide_m})[None, :]"
    taken = f"({rows} % {wide_k // k} == 0) & ({columns} % {wide_m // m} == 0)"
    kept = f"tl.where({taken}, {text}, 0.0)"
    apart = f"tl.reshape({kept}, [{k}, {wide_k // k}, {m}, {wide_m // m}])"
    return f"tl.sum(tl.sum({apart}, 3), 1)"


def store_matrix(block: Block, pointer: str, piece: str, node: Node, totals: list[str]) -> None:
    """Store a sum of outer products, whose rows are in these parts, as one piece of its total."""
    inner, outer = node.type.shape
    k, m = padded(inner) // len(totals), padded(outer)
    columns = f"tl.arange(0, {m})[None, :]"
    for number, total in enumerate(totals):
        rows = f"tl.arange({number * k}, {(number + 1) * k})[:, None]"
        place = f"{pointer} + {piece} * {inner * outer} + {rows} * {outer} + {columns}"
        block.add(f"tl.store({place}, {total}, mask=({rows} < {inner}) & ({columns} < {outer}))")
