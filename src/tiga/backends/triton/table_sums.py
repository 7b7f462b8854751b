"""Sums by an index into tables of few rows: a program adds to the whole table in its registers.

Rows of an array go by a few at a time, and each looks at every row of the table: this takes less
than sorting them by their index while tables have few rows. Programs leave a table each, which are
added in a fixed order as pieces of any total.
"""

from collections.abc import Iterator
from dataclasses import replace

from tiga.backends.triton.arithmetic import dtype_text
from tiga.backends.triton.index_sums import is_index_sum
from tiga.backends.triton.layout import WARP, Tile, padded
from tiga.backends.triton.writer import KernelSource, Parameter, pointer_type
from tiga.passes.rows import LibraryCall, Phase, Plan, RowProgram, Step
from tiga.trace.node import Node

MOST_ROWS = 32
"""Rows of a table, at most: with more, sorting takes less."""

LANE_ELEMENTS = 32
"""Elements of tables that a thread adds to, in all."""

WARPS, MOST_LANES = 4, 256

WINDOW = 128
"""Elements of a row that a program takes, at most."""

UNROLLED = 4
"""Steps of the loop that ask for their rows together."""

PROGRAMS = 1056
"""Programs, each with a table of its own: eight for each multiprocessor of an H200."""


def sums_in_registers(plan: Plan) -> Plan:
    """An equal plan whose library adds to no small tables: rows of steps without a walk do."""
    return replace(plan, steps=tuple(map(_step, plan.steps)))


def _step(step: Step) -> Step:
    if not isinstance(step, LibraryCall) or not _is_small(step.node):
        return step
    index, _ = step.node.inputs
    phases = (Phase((), outer_sums=(step.node,)),)
    return RowProgram(index.type.space, None, "dst", phases, (), (), step.node.inputs)


def _is_small(node: Node) -> bool:
    return is_index_sum(node) and node.op.extent <= MOST_ROWS and not node.inputs[0].type.shape


def summed_by_index(program: RowProgram) -> Node | None:
    """What a program of `sums_in_registers` sums, if it is one."""
    return next(_sums(program), None)


def _sums(program: RowProgram) -> Iterator[Node]:
    if program.relation is None:
        yield from filter(is_index_sum, program.outer_sums)


def table_tile(node: Node) -> Tile:
    """Some rows side by side, each of which meets all rows of the table."""
    size = node.type.size // node.op.extent
    window = min(padded(size), WINDOW)
    lanes = WARP * WARPS * LANE_ELEMENTS // (padded(node.op.extent) * window)
    lanes = max(1, min(MOST_LANES, lanes))
    return Tile(lanes * UNROLLED, 1, WARPS, size, window, groups=PROGRAMS)


def table_sum(name: str, node: Node, tile: Tile) -> KernelSource:
    """`piece[v, f] = sum of y[row, f]` over the rows of a program whose index is v."""
    index, y = node.inputs
    extent, size, lanes = node.op.extent, tile.whole, tile.rows // UNROLLED
    dtype, window = node.type.dtype, tile.window
    dims = [lanes, padded(extent), window]
    text = f"""@triton.jit
def {name}(index, y, pieces, num_items, piece_base):
    v = tl.arange(0, {dims[1]})[None, :, None]
    f = tl.program_id(1) * {window} + tl.arange(0, {window})[None, None, :]
    lane = tl.arange(0, {lanes})
    total = tl.full({dims}, 0, {dtype_text(dtype)})
    for tile in range(tl.program_id(0), tl.cdiv(num_items, {tile.rows}), tl.num_programs(0)):
        for part in tl.static_range({UNROLLED}):
            row = (tile * {UNROLLED} + part) * {lanes} + lane
            named = tl.load(index + row, mask=row < num_items, other=-1)
            named = tl.where((named >= 0) & (named < {extent}), named, -1).to(tl.int32)
            inside = (row < num_items)[:, None, None] & (f < {size})
            added = tl.load(y + row.to(tl.int64)[:, None, None] * {size} + f, mask=inside, other=0)
            total += tl.where(tl.broadcast_to(named[:, None, None], {dims}) == v, added, 0)
    piece = (piece_base + tl.program_id(0)).to(tl.int64) * {node.type.size}
    inside = (v < {extent}) & (f < {size})
    tl.store(pieces + piece + v * {size} + f, tl.sum(total, 0, keep_dims=True), mask=inside)
"""
    parameters = (
        Parameter("index", pointer_type(index.type.dtype), ("array", index)),
        Parameter("y", pointer_type(y.type.dtype), ("array", y)),
        Parameter("pieces", pointer_type(dtype), ("piece", node)),
        Parameter("num_items", "i64", "num_items"),
        Parameter("piece_base", "i32", "piece_base"),
    )
    return KernelSource(name, text, parameters, (), tile, loops=True)
