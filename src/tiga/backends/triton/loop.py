"""The loop over a tile's edges: one phase of a row program."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from tiga.backends.triton import products
from tiga.backends.triton.arithmetic import Term, dtype_text, literal, typed
from tiga.backends.triton.block import Block
from tiga.backends.triton.evaluate import ARITHMETIC, reducing
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.scope import EdgeScope, Entity, KernelScope, RowScope
from tiga.backends.triton.writer import Value, Writer, at_rank, pointer_type
from tiga.passes.rows import Phase, RowProgram
from tiga.passes.schedule import cone
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import DType

WIDENED = "edge = position.to(tl.int64)"


def neutral(node: Node) -> Term:
    """The identity of a reduction, in its compute dtype."""
    dtype = node.type.dtype.compute
    return literal(node.op.monoid.identity(dtype), dtype)


def over_edges(writer: Writer) -> Block:
    """The first lines of a loop over positions [low, low + count): which of them are `live`."""
    lane = writer.once("lane", "lane", f"tl.arange(0, {writer.tile.edges})[None, :]")
    block = Block()
    block.add(f"step = start + {lane}")
    block.add("live = step < count[:, None]")
    block.add("position = low + step")
    return block


def edge_steps(tile: Tile) -> str:
    """The head of a loop over the edges of a tile's rows."""
    if tile.ahead:
        return f"for start in tl.range(0, steps, {tile.edges}, num_stages={tile.ahead}):"
    return f"for start in range(0, steps, {tile.edges}):"


def combined(
    writer: Writer, before: Block, inner: Block, node: Node, value: Value,
    state: Value | None = None,
) -> Value:  # fmt: skip
    """Accumulate a reduction of live edges: starts in `before`, unless it has a state already, and
    goes on in `inner`."""
    if state is None:
        dims = (writer.tile.rows, writer.tile.edges, *value.dims[2:])
        start = writer.full(Value(neutral(node), ()), dims)
        state = writer.named(before, f"row_{node.op.kind}", start)
    live = Term(at_rank("live", len(state.dims) - 2), value.dtype)
    kept = ARITHMETIC.select(live, typed(value.term), neutral(node))
    inner.add(f"{state.text} = {node.op.monoid.combine(ARITHMETIC, state.term, kept).text}")
    return state


def across(writer: Writer, block: Block, node: Node, state: Value) -> Value:
    """The row's value from the states of its edge lanes."""
    if state.dims[1] == 1:
        return state
    dims = (state.dims[0], 1, *state.dims[2:])
    combine, dtype = node.op.monoid.op, state.dtype
    if combine == "add":
        text = f"tl.sum({state.text}, 1, keep_dims=True)"
    else:
        text = f"tl.reduce({state.text}, 1, {reducing(combine, dtype)}, keep_dims=True)"
    if not dtype.is_float and dtype.itemsize < 4:
        text = f"{text}.to({dtype_text(dtype)})"
    return writer.named(block, f"{state.text}_all", Value(Term(text, dtype), dims))


@dataclass(frozen=True)
class EdgeLoop:
    """Loops over the edges of a tile of rows."""

    scope: KernelScope
    body: Block
    index: DType
    wide: bool

    @property
    def writer(self) -> Writer:
        return self.scope.writer

    @property
    def program(self) -> RowProgram:
        return self.scope.program

    def run(self, phase: Phase, row: RowScope, totals: Mapping[Node, str]) -> dict[Node, Value]:
        """The reduced values of a phase; edge values are stored on the way."""
        inner = over_edges(self.writer)
        states = self.taken(phase, inner, self.edges(inner, row, ahead=True), totals)
        self.body.nest(edge_steps(self.writer.tile), inner)
        return {n: across(self.writer, self.body, n, state) for n, state in states.items()}

    def taken(
        self, phase: Phase, inner: Block, edges: EdgeScope, totals: Mapping[Node, str],
        states: Mapping[Node, Value] = MappingProxyType({}),
    ) -> dict[Node, Value]:  # fmt: skip
        """What a loop does with its edges; the states of the reductions, which may have begun."""
        for node in phase.stores:
            self._store(inner, edges, node)
        for node in phase.outer_sums:
            x, y = (edges.value(n) for n in node.inputs)
            parts = products.totals_of(totals[node], node, self.scope.matrices)
            products.outer_sum(self.writer, inner, node, x, y, "live", parts)
        return {
            n: combined(self.writer, self.body, inner, n, edges.value(n.inputs[0]), states.get(n))
            for n in phase.reductions
        }

    def _store(self, inner: Block, edges: EdgeScope, node: Node) -> None:
        pointer, dtype = self.scope.array(node), node.type.dtype
        self.scope.store(inner, pointer, node.type, dtype, edges.edge, edges.value(node))

    def edges(
        self, inner: Block, row: RowScope, ahead: bool = False,
        known: Mapping[str, str] = MappingProxyType({}),
    ) -> EdgeScope:  # fmt: skip
        """The values of a tile's edges. If `ahead`, a loop over `step` asks for the ends of the
        next edges while it computes with these: what is read there waits for them. Where steps
        as a whole are ahead, Triton does so. `known` are numbers that have been asked for."""
        tile = self.writer.tile
        dims = (tile.rows, tile.edges)
        if self._reads_other and ahead and not tile.ahead:
            self._other_ahead(inner)
        elif self._reads_other:
            inner.add(f"other = {known.get('other') or self.numbers('index')}")
        place = "position"
        if self.program.side == "src" and self._reads_edges:
            place = "edge"
            inner.add(f"edge = {known.get('edge') or self.numbers('edge_id')}")
        elif self.widens_position:
            place = "edge"
            inner.add(WIDENED)
        other = RowScope(self.scope, inner, Entity("other", "live", dims))
        return EdgeScope(row, other, inner, Entity(place, "live", dims))

    def _other_ahead(self, inner: Block) -> None:
        pointer = self.writer.parameter("index", "index", pointer_type(self.index))
        wide = ".to(tl.int64)" if self.wide else ""
        lane = self.writer.once("lane", "lane", f"tl.arange(0, {self.writer.tile.edges})[None, :]")
        first = f"tl.load({pointer} + low + {lane}, mask={lane} < count[:, None], other=0)"
        self.body.add(f"following = {first}{wide}")
        inner.add("other = following")
        later = f"step + {self.writer.tile.edges}"
        mask = f"{later} < count[:, None]"
        inner.add(f"following = tl.load({pointer} + low + {later}, mask={mask}, other=0){wide}")

    def numbers(self, array: str, place: str = "position", mask: str = "live") -> str:
        """The numbers of nodes or edges at some places of the walk."""
        pointer = self.writer.parameter(array, array, pointer_type(self.index))
        wide = ".to(tl.int64)" if self.wide else ""
        return f"tl.load({pointer} + {place}, mask={mask}, other=0){wide}"

    @property
    def widens_position(self) -> bool:
        """Whether edges lie at their positions, which need 64 bits."""
        return self._reads_edges and self.wide and self.program.side != "src"

    @property
    def read_numbers(self) -> dict[str, str]:
        """The arrays of numbers that edges read, by the names of these in a loop."""
        by_id = self.program.side == "src" and self._reads_edges
        return {**({"other": "index"} if self._reads_other else {}),
                **({"edge": "edge_id"} if by_id else {})}  # fmt: skip

    @cached_property
    def _reads_other(self) -> bool:
        gathers = (n for n in cone(self.program) if n.op.origin is Origin.END)
        return any(n.op.side != self.program.side for n in gathers)

    @cached_property
    def _reads_edges(self) -> bool:
        assert self.program.relation is not None
        edge = self.program.relation.edge
        reads = any(n.type.space == edge for n in self.program.reads)
        reads = reads or any(n.op.origin is Origin.POSITION for n in cone(self.program))
        return reads or any(phase.stores for phase in self.program.phases)
