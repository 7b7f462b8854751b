"""Kernels of one row program: whole rows, chunks of split rows, and what combines their states."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod

from tiga.backends.triton import products
from tiga.backends.triton.arithmetic import Term, literal, typed
from tiga.backends.triton.block import Block
from tiga.backends.triton.evaluate import Evaluator
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.loop import EdgeLoop, across, combined, over_edges
from tiga.backends.triton.online import OnlineLoop, recognise
from tiga.backends.triton.schedule import products as products_of
from tiga.backends.triton.scope import Entity, KernelScope, RowScope
from tiga.backends.triton.writer import KernelSource, Value, Writer, pointer_type
from tiga.passes.rows import RowProgram
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import DType, int64

COMBINE_LANES = 16
"""States of a split row that are combined side by side."""

COMBINE_ELEMENTS = 16384
"""Elements of these: with more, a kernel would take minutes to compile."""


@dataclass(frozen=True)
class Kernels:
    """Writes the kernels of a row program for one tile.

    `index` is the dtype of node and edge numbers; `wide` says that offsets need 64 bits;
    `ordered` holds the feature sums that must have the same order in every kernel.
    """

    program: RowProgram
    tile: Tile
    index: DType
    wide: bool
    ordered: frozenset[Node] = frozenset()

    def rows(self, name: str, mixed: bool) -> KernelSource:
        """Every phase of whole rows. If `mixed`, the first items are chunks of split rows, whose
        states are stored instead."""
        return self._kernel(name, self.tile).rows(mixed)

    def chunks(self, name: str, phase: int) -> KernelSource:
        """One phase of the chunks of split rows."""
        return self._kernel(name, self.tile).chunks(phase)

    def combine(self, name: str, phase: int) -> KernelSource:
        """The states of split rows after one phase; after the last, what rows store."""
        tile = self.tile
        nodes = self.program.phases[phase].reductions
        widest = max((prod(tile.extents(n.type)) for n in nodes), default=1)
        side_by_side = max(1, min(COMBINE_LANES, COMBINE_ELEMENTS // widest))
        lanes = replace(tile, rows=1, edges=side_by_side, registers=0, stages=0, ahead=0)
        return self._kernel(name, lanes).combine(phase)

    def split(self, name: str, phase: int) -> list[tuple[str, KernelSource]]:
        """The kernels of one phase of split rows, with what they are launched over."""
        return [
            ("chunks", self.chunks(f"{name}_chunks{phase}", phase)),
            ("hubs", self.combine(f"{name}_combine{phase}", phase)),
        ]

    def _kernel(self, name: str, tile: Tile) -> "Kernel":
        return Kernel(self, name, tile)


@dataclass
class Kernel:
    """One kernel under construction."""

    kernels: Kernels
    name: str
    tile: Tile
    body: Block = field(default_factory=Block)
    totals: dict[Node, str] = field(default_factory=dict)
    loops: bool = False
    """Whether a program takes one tile after another."""
    first: str = ""
    """The first item, where that is not 0: the last is before `num_items` even so."""

    def __post_init__(self) -> None:
        k = self.kernels
        self.program = k.program
        self.writer = Writer(self.tile, k.wide, k.index)
        evaluator = Evaluator(self.writer, k.ordered)
        reads = frozenset(self.program.reads)
        prologue = self.writer.prologue
        self.scope = KernelScope(self.program, self.writer, evaluator, prologue, reads)

    # the three kernels

    def rows(self, mixed: bool) -> KernelSource:
        self._begin(self.program.totals, self.program.outer_sums)
        if self.program.relation is None:
            row = self._plain_row()
            self._add_outer_sums(row)
        else:
            row = self._walked_row()
            self._phases(row, merge=not mixed)
        valid = "valid"
        if mixed:
            chunks = self.writer.frame_parameter("num_chunks")
            self.body.add(f"is_chunk = (item < {chunks})[:, None]")
            self._store_states("chunk", self._item("is_chunk"), row, len(self.program.phases))
            valid = self.writer.names.fresh("whole")
            self.body.add(f"{valid} = valid & (item >= {chunks})[:, None]")
        self._finish(row, valid)
        return self._end()

    def _add_outer_sums(self, row: RowScope) -> None:
        """Add the outer products of values of rows to their sums."""
        for node in self.program.outer_sums:
            x, y = (row.value(n) for n in node.inputs)
            parts = products.totals_of(self.totals[node], node, self.scope.matrices)
            products.outer_sum(self.writer, self.body, node, x, y, "valid", parts)

    def _phases(self, row: RowScope, merge: bool) -> None:
        """Every phase of whole rows, two in one pass where that is possible."""
        phase = 0
        while phase < len(self.program.phases):
            online = recognise(self.program, phase) if merge else None
            if online is not None:
                OnlineLoop(self._loop(), online, row).run()
                phase += 2
                continue
            row.values.update(self._loop().run(self.program.phases[phase], row, self.totals))
            phase += 1

    def chunks(self, phase: int) -> KernelSource:
        here = self.program.phases[phase]
        self._begin((), here.outer_sums)
        row = self._chunk_row(phase)
        row.values.update(self._loop().run(here, row, self.totals))
        self._store_states("chunk", self._item("valid"), row, phase + 1, phase)
        return self._end()

    def _chunk_row(self, phase: int) -> RowScope:
        """The rows of chunks, with what their first phases left."""
        row = self._walked_row()
        if phase:
            hub_of = self.writer.parameter("chunk_hub", "chunk_hub", pointer_type(int64))
            self.body.add(
                f"hub = tl.load({hub_of} + item, mask=item < num_items, other=0)[:, None]"
            )
            self._restore(row, Entity("hub", None, (self.tile.rows, 1)), phase)
        return row

    def combine(self, phase: int) -> KernelSource:
        last = phase + 1 == len(self.program.phases)
        self._begin(self.program.totals if last else (), ())
        row = self._hub_row()
        hub = self._item(None)
        self._restore(row, hub, phase)
        row.values.update(self._fold(phase))
        if last:
            self._finish(row, "valid")
        else:
            self._store_states("hub", hub, row, phase + 1, phase)
        return self._end()

    # tiles of items

    def _begin(self, totals: tuple[Node, ...], outer_sums: tuple[Node, ...]) -> None:
        for node in totals:
            dims = self.writer.dims(1, 1, node.type)
            self.writer.offset_of(node.type), self.writer.within(node.type)  # before any tile
            self._start_total(node, list(dims))
        for node in outer_sums:
            self._start_matrix(node)
        self.writer.frame_parameter("num_items")
        rows = self.tile.rows
        self.loops = self.loops or bool(self.totals) or self._keeps_matrices
        tile = "tile" if self.loops else "tl.program_id(0)"
        first = f"{self.first} + " if self.first else ""
        self.body.add(f"item = {first}{tile} * {rows} + tl.arange(0, {rows})")

    @property
    def _keeps_matrices(self) -> bool:
        """Whether rows without edges meet matrices: a program takes these from tile to tile."""
        return self.program.relation is None and bool(products_of(self.program))

    def _start_total(self, node: Node, dims: list[int]) -> None:
        name = self.totals[node] = self.writer.names.fresh("total")
        zero = self.writer.full(Value(literal(0, node.type.dtype.compute), ()), tuple(dims))
        self.writer.prologue.add(f"{name} = {zero.text}")

    def _start_matrix(self, node: Node) -> None:
        total = self.totals[node] = self.writer.names.fresh("total")
        parts = products.totals_of(total, node, self.scope.matrices)
        inner, outer = (products.padded(n) for n in node.type.shape)
        zero = Value(literal(0, node.type.dtype.compute), ())
        zero = self.writer.full(zero, (inner // len(parts), outer))
        for part in parts:
            self.writer.prologue.add(f"{part} = {zero.text}")

    def _item(self, mask: str | None) -> Entity:
        return Entity(self._wide("item[:, None]"), mask, (self.tile.rows, 1))

    def _wide(self, text: str) -> str:
        return f"{text}.to(tl.int64)" if self.kernels.wide else text

    def _plain_row(self) -> RowScope:
        self.body.add("valid = (item < num_items)[:, None]")
        self.body.add(f"row = {self._wide('item[:, None]')}")
        return RowScope(self.scope, self.body, Entity("row", "valid", (self.tile.rows, 1)))

    def _walked_row(self) -> RowScope:
        self.body.add("valid = (item < num_items)[:, None]")
        index = pointer_type(self.kernels.index)
        for name, hint, type_ in (
            ("row", "item_row", index), ("low", "item_low", index), ("count", "item_count", "*i32"),
        ):  # fmt: skip
            pointer = self.writer.parameter(hint, hint, type_)
            text = f"tl.load({pointer} + item, mask=item < num_items, other=0)"
            if name == "row" and self.program.has_sums:
                # Beyond the last item the last row: the first need not be in a page.
                text = f"tl.load({pointer} + tl.minimum(item, num_items - 1))"
            self.body.add(f"{name} = {text}" if name == "count" else f"{name} = {text}[:, None]")
        self.body.add("steps = tl.max(count, 0)")
        if self.kernels.wide:
            self.body.add("row = row.to(tl.int64)")
        return RowScope(self.scope, self.body, Entity("row", None, (self.tile.rows, 1)))

    def _hub_row(self) -> RowScope:
        self.body.add("valid = (item < num_items)[:, None]")
        pointer = self.writer.parameter("hub_rows", "hub_rows", pointer_type(int64))
        self.body.add(f"row = tl.load({pointer} + item)[:, None]")
        return RowScope(self.scope, self.body, Entity("row", None, (1, 1)))

    def _loop(self) -> EdgeLoop:
        return EdgeLoop(self.scope, self.body, self.kernels.index, self.kernels.wide)

    # states of split rows

    def _reductions(self, start: int, stop: int) -> Iterator[Node]:
        phases = self.program.phases[start:stop]
        return (node for phase in phases for node in phase.reductions)

    def _store_states(
        self, kind: str, entity: Entity, row: RowScope, stop: int, start: int = 0
    ) -> None:
        for node in self._reductions(start, stop):
            dtype = node.type.dtype.compute
            pointer = self.scope.state(kind, node)
            self.scope.store(self.body, pointer, node.type, dtype, entity, row.value(node))

    def _restore(self, row: RowScope, hub: Entity, phase: int) -> None:
        """Give a row the combined states of its first phases."""
        for node in self._reductions(0, phase):
            pointer, dtype = self.scope.state("hub", node), node.type.dtype.compute
            hint = f"row_{node.op.kind}"
            loaded = self.scope.load_from(self.body, pointer, node.type, dtype, hub, hint)
            row.values[node] = loaded

    def _fold(self, phase: int) -> dict[Node, Value]:
        """The states of a row's chunks combined: lane by lane in their order, then the lanes."""
        pointer = self.writer.parameter("hub_ptr", "hub_ptr", pointer_type(int64))
        self.body.add(f"low = tl.load({pointer} + item)[:, None]")
        self.body.add(f"count = tl.load({pointer} + item + 1) - tl.load({pointer} + item)")
        self.body.add("steps = tl.max(count, 0)")
        nodes = self.program.phases[phase].reductions
        inner = over_edges(self.writer)
        chunk = Entity("position", "live", (1, self.tile.edges))
        names = {}
        for node in nodes:
            state, dtype = self.scope.state("chunk", node), node.type.dtype.compute
            value = self.scope.load_from(inner, state, node.type, dtype, chunk, "state")
            names[node] = combined(self.writer, self.body, inner, node, value)
        self.body.nest(f"for start in range(0, steps, {self.tile.edges}):", inner)
        return {node: across(self.writer, self.body, node, value) for node, value in names.items()}

    # what rows store

    def _finish(self, row: RowScope, valid: str) -> None:
        """Store the rows' values, and add their share to the totals."""
        entity = Entity("row", valid, row.entity.dims)
        for node in self.program.stores:
            pointer, dtype = self.scope.array(node), node.type.dtype
            self.scope.store(self.body, pointer, node.type, dtype, entity, row.value(node))
        for node in self.program.totals:
            self._add_to_total(node, row.value(node.inputs[0]), valid)

    def _add_to_total(self, node: Node, value: Value, valid: str) -> None:
        rank = len(self.tile.features(node.type))
        value = self.writer.full(value, self.writer.dims(self.tile.rows, 1, node.type))
        mask = f"{valid}[:, :{', None' * rank}]" if rank else valid
        zero = literal(0, value.dtype).text
        share = f"tl.where({mask}, {typed(value.term).text}, {zero})"
        if self.tile.rows > 1:
            share = f"tl.sum({share}, 0, keep_dims=True)"
        self.body.add(f"{self.totals[node]} += {share}")

    def _end(self) -> KernelSource:
        block, writer = Block(list(self.writer.prologue.lines)), self.writer
        if not self.loops:
            block.lines += self.body.lines
        else:
            count = f"num_items - {self.first}" if self.first else "num_items"
            block.add(f"tiles = tl.cdiv({count}, {self.tile.rows})")
            header = "for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):"
            block.nest(header, self.body)
            if self.totals:
                self._store_totals(block)
        function = Block()
        parameters = tuple(writer.parameters.values())
        signature = ", ".join(p.name for p in parameters)
        function.nest(f"def {self.name}({signature}):", block)
        text = "@triton.jit\n" + "\n".join(function.lines) + "\n"
        tables = tuple(writer.tables)
        return KernelSource(self.name, text, parameters, tables, self.tile, self.loops)

    def _store_totals(self, block: Block) -> None:
        base = self.writer.parameter("piece_base", "piece_base", "i32")
        for node, total in self.totals.items():
            pointer = self.scope.state("piece", node)
            piece = f"({base} + tl.program_id(0)).to(tl.int64)"
            if node.op.origin is Origin.OUTER:
                parts = products.totals_of(total, node, self.scope.matrices)
                products.store_matrix(block, pointer, piece, node, parts)
                continue
            block.add(f"piece = tl.full([1, 1], 0, tl.int64) + {piece}")
            value = Value(Term(total, node.type.dtype.compute), self.writer.dims(1, 1, node.type))
            entity = Entity("piece", None, (1, 1))
            before = len(self.writer.prologue.lines)
            self.scope.store(block, pointer, node.type, value.dtype, entity, value)
            assert len(self.writer.prologue.lines) == before, "shared lines come before the tiles"
