"""Kernels over tiles of consecutive edges, for values that are single numbers.

The edges of a tile are read in whole lines whatever rows they belong to. A scan that starts anew at
the first edge of each row leaves a row's value at its last edge, whose lane stores it. A row that
crosses tiles leaves a piece in each, and a second kernel combines them in their order. Rows without
edges follow the tiles.
"""

from dataclasses import dataclass

from tiga.backends.triton.arithmetic import Term, typed
from tiga.backends.triton.block import Block
from tiga.backends.triton.edge_tiles import WORD
from tiga.backends.triton.evaluate import ARITHMETIC
from tiga.backends.triton.kernel import Kernel, Kernels
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.loop import across, combined, neutral, over_edges
from tiga.backends.triton.scope import Entity, RowScope
from tiga.backends.triton.writer import KernelSource, Value, pointer_type
from tiga.passes.rows import RowProgram
from tiga.passes.schedule import cone
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin
from tiga.types import int64

COMBINED = Tile(32, 4, 1, 1, 1)
"""Rows that cross tiles, and pieces of each, that are combined side by side."""


def fits(program: RowProgram) -> bool:
    """Whether such kernels can run a program: one phase of reductions over single numbers that
    edges compute from the other end and from their own fields, and nothing stored per edge."""
    if program.relation is None or program.scans:
        return False
    if len(program.phases) != 1 or not _is_single(program):
        return False
    (phase,) = program.phases
    if phase.stores or phase.outer_sums or program.has_sums:
        return False
    return not any(_reads_row(node.inputs[0], program) for node in phase.reductions)


def _reads_row(message: Node, program: RowProgram) -> bool:
    """Whether a message depends on values of its row."""
    reads = set(program.reads)
    found = reached([message], lambda n: n in reads or n.op.origin is Origin.END)
    return any(n.op.origin is Origin.END and n.op.side == program.side for n in found)


def _is_single(program: RowProgram) -> bool:
    """Whether every value is a single number."""
    return all(node.type.size == 1 for node in cone(program))


def segments(kernels: Kernels, name: str, has_pieces: bool) -> KernelSource:
    """The rows that end in each tile; the pieces of those that cross tiles are stored apart."""
    return SegmentKernel(kernels, name, kernels.tile).segments(has_pieces)


def joined(kernels: Kernels, name: str) -> KernelSource:
    """The rows that cross tiles, from their pieces."""
    return SegmentKernel(kernels, name, COMBINED).joined()


@dataclass
class SegmentKernel(Kernel):
    """One kernel under construction."""

    def segments(self, has_pieces: bool) -> KernelSource:
        wide = self.kernels.wide or self.kernels.index == int64
        count = self.writer.parameter("num_tiles", "num_tiles", "i32")
        self.writer.parameter("num_edges", "num_edges", "i64" if wide else "i32")
        self.body.add(f"tile = tl.program_id(0){'.to(tl.int64)' if wide else ''}")
        self.body.add(f"step = tl.arange(0, {self.tile.edges})[None, :]")
        outer, self.body = self.body, Block()
        self._edge_tile(has_pieces)
        outer.nest(f"if tile < {count}:", self.body)
        self.body = Block()
        self._empty_rows(count)
        outer.nest("else:", self.body)
        self.body = outer
        return self._end()

    def _edge_tile(self, has_pieces: bool) -> None:
        """The rows that end in a tile of edges."""
        self.body.add(f"low = tile * {self.tile.edges}")
        self.body.add("position = low + step")
        states, started = self._scanned()
        end = self.writer.names.fresh("end")
        self.body.add(f"{end} = ({self._mark('(position + 1)', '(step + 1)')}) != 0")
        dims, valid = (1, self.tile.edges), end
        if has_pieces:
            self._store_tail(states)
            self._store_piece("head", f"{end} & ({started} == 0)", states)
            valid = self.writer.names.fresh("whole")
            self.body.add(f"{valid} = {end} & ({started} > 0)")
        rows = self.writer.parameter("full_rows", "full_rows", pointer_type(self.kernels.index))
        before = self.writer.parameter("full_before", "full_before", "*i64")
        self.body.add(
            f"row = tl.load({rows} + tl.load({before} + tile) + {started}, mask={valid}, other=0)"
        )
        row = self._row(valid, dims)
        row.values.update(states)
        self._finish(row, valid)

    def _row(self, valid: str, dims: tuple[int, int]) -> RowScope:
        if self.kernels.wide:
            self.body.add("row = row.to(tl.int64)")
        return RowScope(self.scope, self.body, Entity("row", valid, dims))

    def _empty_rows(self, tiles: str) -> None:
        """Rows without edges: what they store follows from the identity of every reduction."""
        count = self.writer.parameter("num_empty", "num_empty", "i32")
        rows = self.writer.parameter("empty_rows", "empty_rows", pointer_type(self.kernels.index))
        self.body.add(f"position = (tile - {tiles}) * {self.tile.edges} + step")
        self.body.add(f"valid = position < {count}")
        self.body.add(f"row = tl.load({rows} + position, mask=valid, other=0)")
        row = self._row("valid", (1, self.tile.edges))
        for node in self.program.phases[0].reductions:
            row.values[node] = Value(neutral(node), (1, 1))
        self._finish(row, "valid")

    def _scanned(self) -> tuple[dict[Node, Value], str]:
        """For every edge, the reductions of its row's edges up to it, within the tile, and how many
        rows began there."""
        (phase,) = self.program.phases
        names = {n: self.writer.names.fresh("message") for n in phase.reductions}
        whole, rest = Block(), Block()
        whole.add(f"live = tl.full([1, {self.tile.edges}], 1, tl.int1)")
        rest.add("live = position < num_edges")
        for block in (whole, rest):
            self._messages(block, names)
        self.body.nest(f"if low + {self.tile.edges} <= num_edges:", whole)
        self.body.nest("else:", rest)
        head, started = self.writer.names.fresh("head"), self.writer.names.fresh("started")
        self.body.add(f"{head} = {self._mark('position', 'step')}")
        states = {node: self._scan(node, name, head, started) for node, name in names.items()}
        return states, started

    def _mark(self, position: str, step: str) -> str:
        """1 where an edge is the first of its row."""
        words = self.writer.parameter("heads", "heads", "*i32")
        shift = (WORD - 1).bit_length()
        return f"(tl.load({words} + ({position} >> {shift})) >> ({step} & {WORD - 1})) & 1"

    def _messages(self, block: Block, names: dict[Node, str]) -> None:
        """What edges send, under these names; the identity where there is no edge."""
        row = RowScope(self.scope, block, Entity("0", None, (1, 1)))
        edges = self._loop().edges(block, row)
        for node, name in names.items():
            value = edges.value(node.inputs[0])
            live = Term("live", value.dtype)
            kept = ARITHMETIC.select(live, typed(value.term), neutral(node))
            dims = (1, self.tile.edges)
            block.add(f"{name} = {self.writer.full(Value(kept, value.dims), dims).text}")

    def _scan(self, node: Node, message: str, head: str, started: str) -> Value:
        state = self.writer.names.fresh(f"row_{node.op.kind}")
        kind, dtype = node.op.kind, node.type.dtype.compute
        whole = kind in ("max", "min") and not dtype.is_float
        function = f"segmented_{'int_' if whole else ''}{kind}"
        scan = f"tl.associative_scan(({message}, {head}), 1, {function})"
        self.body.add(f"{state}, {started} = {scan}")
        return Value(Term(state, dtype), (1, self.tile.edges))

    def _store_tail(self, states: dict[Node, Value]) -> None:
        """The piece of the row that goes on in the next tile: it lies at the last edge."""
        self._store_piece("tail", f"step == {self.tile.edges - 1}", states)

    def _store_piece(self, end: str, mask: str, states: dict[Node, Value]) -> None:
        """The piece of a row that crosses this end of the tile, if one does."""
        pointer = self.writer.parameter(f"{end}_slot", f"{end}_slot", "*i32")
        slot = self.writer.names.fresh(f"{end}_piece")
        self.body.add(f"{slot} = tl.load({pointer} + tile) + step * 0")
        for node, state in states.items():
            dims = (state.dims[0], state.dims[1])
            entity = Entity(slot, f"({mask}) & ({slot} >= 0)", dims)
            array, dtype = self.scope.state("chunk", node), node.type.dtype.compute
            self.scope.store(self.body, array, node.type, dtype, entity, state)

    # rows that cross tiles

    def joined(self) -> KernelSource:
        self._begin((), ())
        self.body.add("valid = (item < num_items)[:, None]")
        rows = self.writer.parameter("hub_rows", "hub_rows", pointer_type(int64))
        pointer = self.writer.parameter("hub_ptr", "hub_ptr", pointer_type(int64))
        masked, first = "mask=item < num_items, other=0", self.writer.names.fresh("first")
        self.body.add(f"row = tl.load({rows} + item, {masked})[:, None]")
        self.body.add(f"{first} = tl.load({pointer} + item, {masked})")
        self.body.add(f"low = {first}[:, None]")
        self.body.add(f"count = tl.load({pointer} + item + 1, {masked}) - {first}")
        self.body.add("steps = tl.max(count, 0)")
        row = RowScope(self.scope, self.body, Entity("row", "valid", (self.tile.rows, 1)))
        row.values.update(self._combined())
        self._finish(row, "valid")
        return self._end()

    def _combined(self) -> dict[Node, Value]:
        """The pieces of rows, in their order within lanes, then the lanes."""
        inner = over_edges(self.writer)
        piece = Entity("position", "live", (self.tile.rows, self.tile.edges))
        states = {}
        for node in self.program.phases[0].reductions:
            pointer, dtype = self.scope.state("chunk", node), node.type.dtype.compute
            value = self.scope.load_from(inner, pointer, node.type, dtype, piece, "state")
            states[node] = combined(self.writer, self.body, inner, node, value)
        self.body.nest(f"for start in range(0, steps, {self.tile.edges}):", inner)
        return {node: across(self.writer, self.body, node, s) for node, s in states.items()}
