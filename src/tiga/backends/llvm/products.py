"""Products of edge values with a matrix in memory, and sums of outer products of edge values.

Both keep the matrix in memory and the edge's vectors in scratch, and loop over the shared axis
with columns across lanes. The order of every sum is fixed by the shapes alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import arith, scf

from tiga.backends.llvm.lanes import constant_of, integer
from tiga.backends.llvm.layout import ARITHMETIC, FeatureLanes, join, select_lanes
from tiga.backends.llvm.loops import Step, for_each, loop
from tiga.backends.llvm.memory import Array, i64, lanes_type, register_element, splat
from tiga.ir import llvm
from tiga.ops.arithmetic import round_to
from tiga.trace.node import Node
from tiga.types import DType, float32, float64

COLUMNS = 64
"""Columns held in registers at a time: four 64-byte vectors of float32."""

FEW_COLUMNS = 4
"""Up to so many columns, the shared axis lies across lanes and is summed by halves."""

TILE_EDGES = 16
"""Edges whose outer products are added at once: the sum is loaded and stored once per tile."""

TILE_ROWS = 4
"""Rows of an outer product held in registers at a time."""

_WHOLE = FeatureLanes()

Allocate = Callable[[ir.Type, int], ir.Value]
"""`allocate(element, count)`: scratch of the kernel's own, the same at every use."""


def scratch_array(allocate: Allocate, dtype: DType, count: int, row: int) -> Array:
    """Scratch in register dtype, `row` elements per entity."""
    compute = dtype.compute
    return Array(allocate(register_element(dtype), count), compute, row)


def column_blocks(total: int) -> Iterator[tuple[int, int]]:
    """Blocks of columns: first column and width."""
    for first in range(0, total, COLUMNS):
        yield first, min(COLUMNS, total - first)


def multiply(node: Node, x: ir.Value, matrix: Array, allocate: Allocate) -> ir.Value:
    """x [..., K] times a matrix [K, M], for one entity."""
    inner, outer = node.inputs[1].type.shape
    lead = node.type.size // outer
    parts = [select_lanes(x, np.arange(i * inner, (i + 1) * inner)) for i in range(lead)]
    if outer <= FEW_COLUMNS:
        products = [few_columns(part, matrix, inner, outer) for part in parts]
    else:
        scratch = scratch_array(allocate, node.type.dtype, inner, inner)
        products = [_many_columns(part, matrix, scratch, inner, outer) for part in parts]
    return round_to(ARITHMETIC, join(products), node.type.dtype)


def few_columns(x: ir.Value, matrix: Array, inner: int, outer: int) -> ir.Value:
    """A product with a matrix of few columns, each in one register: a sum over lanes per column."""
    whole = matrix.load(i64(0), inner * outer)
    columns = (select_lanes(whole, np.arange(j, inner * outer, outer)) for j in range(outer))
    products = (ARITHMETIC.mul(x, column) for column in columns)
    return join([_WHOLE.reduce_axis(p, (inner,), 0, ARITHMETIC.add) for p in products])


def _many_columns(x: ir.Value, matrix: Array, scratch: Array, inner: int, outer: int) -> ir.Value:
    scratch.store(x, i64(0))
    blocks = [_block(matrix, scratch, inner, outer, *block) for block in column_blocks(outer)]
    return join(blocks)


def _block(
    matrix: Array, scratch: Array, inner: int, outer: int, first: int, width: int
) -> ir.Value:
    """Columns [first, first + width): the two halves of the shared axis are summed side by side,
    to have twice the independent sums in flight."""
    zero = constant_of(0, lanes_type(register_element(matrix.dtype), width))
    half = inner // 2

    def term(k: ir.Value, total: ir.Value) -> ir.Value:
        factor = scratch.load(k, 1)
        offset = arith.addi(arith.muli(k, i64(outer)), i64(first))
        factors = factor if width == 1 else splat(factor, width)
        return ARITHMETIC.fma(factors, matrix.load(offset, width), total)

    def step(k: ir.Value, totals: Sequence[ir.Value]) -> list[ir.Value]:
        low, high = totals
        return [term(k, low), term(arith.addi(k, i64(half)), high)]

    low, high = loop(i64(0), i64(half), 1, [zero, zero], step)
    if inner % 2:
        high = term(i64(inner - 1), high)
    return ARITHMETIC.add(low, high)


@dataclass(frozen=True)
class OuterAccumulator:
    """Adds outer products of edge vectors x [..., K] and y [..., M] to a matrix [K, M], `pairs` of
    them for each edge.

    Edges are gathered in a tile, across rows, and added tile by tile; `begin` clears the matrix
    and `end` adds what the last tile holds.
    """

    total: Array
    piece: ir.Value
    inner: int
    outer: int
    left: Array
    right: Array
    counter: ir.Value
    pairs: int

    @staticmethod
    def make(
        node: Node, total: Array, piece: ir.Value, allocate: Allocate, pairs: int = 1
    ) -> "OuterAccumulator":
        """The accumulator of an `outer_sum` node into a piece of `total`."""
        inner, outer = node.type.shape
        dtype = node.inputs[0].type.dtype
        left = scratch_array(allocate, dtype, TILE_EDGES * inner, inner)
        right = scratch_array(allocate, dtype, TILE_EDGES * outer, outer)
        counter = allocate(integer(64), 1)
        return OuterAccumulator(total, piece, inner, outer, left, right, counter, pairs)

    def begin(self) -> None:
        """Clear the piece of the total."""
        llvm.store(i64(0), self.counter)
        start = self.total.start(self.piece)
        for first, width in column_blocks(self.outer):
            zero = constant_of(0, lanes_type(register_element(self.total.dtype), width))

            def clear(row: ir.Value, zero: ir.Value = zero, first: int = first) -> None:
                at = arith.addi(arith.muli(row, i64(self.outer)), i64(first))
                self.total.store(zero, arith.addi(start, at))

            for_each(i64(0), i64(self.inner), 1, clear)

    def add(self, x: ir.Value, y: ir.Value) -> None:
        """Add one edge to the tile."""
        for i in range(self.pairs):
            at = llvm.load(integer(64), self.counter)
            pair = (
                (self.left, select_lanes(x, np.arange(i * self.inner, (i + 1) * self.inner))),
                (self.right, select_lanes(y, np.arange(i * self.outer, (i + 1) * self.outer))),
            )
            for scratch, value in pair:
                scratch.store(value, scratch.start(at))
            count = arith.addi(at, i64(1))
            llvm.store(count, self.counter)
            self._flush_if(arith.cmpi(arith.CmpIPredicate.eq, count, i64(TILE_EDGES)))

    def end(self) -> None:
        """Add what is left in the tile."""
        self._flush()

    def _flush_if(self, full: ir.Value) -> None:
        branch = scf.IfOp(full)
        with ir.InsertionPoint(branch.then_block):
            self._flush()
            scf.YieldOp([])

    def _flush(self) -> None:
        count = llvm.load(integer(64), self.counter)
        start = self.total.start(self.piece)
        full = self.inner - self.inner % TILE_ROWS
        for_each(i64(0), i64(full), TILE_ROWS, lambda k: self._add_rows(start, k, TILE_ROWS, count))
        if self.inner > full:
            self._add_rows(start, i64(full), self.inner - full, count)
        llvm.store(i64(0), self.counter)

    def _add_rows(self, start: ir.Value, k: ir.Value, rows: int, count: ir.Value) -> None:
        for first, width in column_blocks(self.outer):
            offsets = [
                arith.addi(
                    start,
                    arith.addi(arith.muli(arith.addi(k, i64(r)), i64(self.outer)), i64(first)),
                )
                for r in range(rows)
            ]
            # A tile's sum begins anew: of its edges one value is added in sequence.
            zero = constant_of(0, lanes_type(register_element(self.total.dtype), width))
            sums = loop(i64(0), count, 1, [zero] * rows, self._add_edge(k, first, width))
            for offset, tile in zip(offsets, sums, strict=True):
                self.total.store(ARITHMETIC.add(self.total.load(offset, width), tile), offset)

    def _add_edge(self, k: ir.Value, first: int, width: int) -> Step:
        def step(edge: ir.Value, totals: Sequence[ir.Value]) -> list[ir.Value]:
            y = self.right.load(arith.addi(self.right.start(edge), i64(first)), width)
            x_at = arith.addi(self.left.start(edge), k)
            results = []
            for r, total in enumerate(totals):
                x = self.left.load(arith.addi(x_at, i64(r)), 1)
                factors = x if width == 1 else splat(x, width)
                results.append(ARITHMETIC.fma(factors, y, total))
            return results

        return step


@dataclass(frozen=True)
class IndexAccumulator:
    """Adds rows y [K] to row `index` of a table, edge by edge, `pairs` of them for each."""

    total: Array
    piece: ir.Value
    extent: int
    row: int
    pairs: int

    def begin(self) -> None:
        """Clear the piece of the total."""
        zero = constant_of(0, lanes_type(register_element(self.total.dtype), self.row))
        for_each(i64(0), i64(self.extent), 1, lambda at: self.total.store(zero, self._start(at)))

    def _start(self, index: ir.Value) -> ir.Value:
        row = arith.muli(index, i64(self.row))
        return arith.addi(self.total.start(self.piece), row)

    def add(self, index: ir.Value, y: ir.Value) -> None:
        """Add the rows of one edge to theirs."""
        for i in range(self.pairs):
            at = select_lanes(index, np.array([i]))
            row = select_lanes(y, np.arange(i * self.row, (i + 1) * self.row))
            known, place = within(at, self.extent)
            start = self._start(place)
            total = self.total.load(start, self.row)
            added = ARITHMETIC.add(total, row)
            self.total.store(arith.select(known, added, total), start)

    def end(self) -> None:
        """Nothing is left."""


def within(index: ir.Value, extent: int) -> tuple[ir.Value, ir.Value]:
    """Whether an index is in [0, extent), and one that is: itself, or 0."""
    # As an unsigned number, a negative index is large.
    known = arith.cmpi(arith.CmpIPredicate.ult, index, i64(extent))
    return known, arith.select(known, index, i64(0))


def look_up(node: Node, index: ir.Value, table: Array) -> ir.Value:
    """The rows of a table [V, *K] that the lanes of `index` name."""
    source, by = node.inputs
    extent = source.type.shape[0]
    row = source.type.size // extent if extent else 0
    missing = constant_of(
        float("nan") if node.type.dtype.is_float else 0,
        lanes_type(register_element(node.type.dtype), row),
    )
    rows = []
    for i in range(by.type.size):
        known, place = within(select_lanes(index, np.array([i])), extent)
        found = table.load(arith.muli(place, i64(row)), row)
        rows.append(arith.select(known, found, missing))
    return join(rows)


def make_accumulator(
    node: Node, total: Array, piece: ir.Value, allocate: Allocate
) -> OuterAccumulator | IndexAccumulator:
    """What adds up a sum over edges into a piece of `total`."""
    extent, given = node.type.shape[0], node.inputs[0].type.size
    if node.op.by_index:
        return IndexAccumulator(total, piece, extent, node.type.size // extent, given)
    return OuterAccumulator.make(node, total, piece, allocate, given // extent)


OuterSums = Mapping[Node, OuterAccumulator | IndexAccumulator]
"""The accumulators of a kernel by their node."""


def add_pieces(pieces: Array, count: ir.Value, total: Array) -> None:
    """Store the sum of `count` pieces, in their order and in double precision, in `total`."""
    rest = total.row % COLUMNS
    full = total.row - rest
    for_each(
        i64(0), i64(full), COLUMNS,
        lambda at: total.store(_sum_pieces(pieces, count, at, COLUMNS), at),
    )  # fmt: skip
    if rest:
        total.store(_sum_pieces(pieces, count, i64(full), rest), i64(full))


def _sum_pieces(pieces: Array, count: ir.Value, at: ir.Value, width: int) -> ir.Value:
    plain = pieces.dtype
    wide = float64 if plain == float32 else plain
    zero = constant_of(0, lanes_type(register_element(wide), width))

    def step(piece: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
        value = pieces.load(arith.addi(pieces.start(piece), at), width)
        return [ARITHMETIC.add(carried[0], ARITHMETIC.cast(value, plain, wide))]

    return ARITHMETIC.cast(loop(i64(0), count, 1, [zero], step)[0], wide, plain)
