"""Sums at the far ends of a walk's edges.

A walk that carries a value from edge to edge can sum messages that only it can evaluate at the
edges' other ends. Programs of a GPU that added to the same entity would have to take turns. So the
walk takes a block of its items at a time and stores the block's messages, whose memory stays the
same for all blocks; then the messages of each far entity are added to its sum, in a fixed order.

Of a graph in a file, whose pages are such blocks already, messages are stored as an array of edges,
which a walk of its own sums.
"""

from dataclasses import replace

from tiga.backends.triton.arithmetic import dtype_text
from tiga.backends.triton.layout import Tile, padded
from tiga.backends.triton.writer import KernelSource, Parameter, pointer_type
from tiga.passes.rows import Phase, Plan, RowProgram, Step
from tiga.trace.node import Node
from tiga.types import DType

MESSAGE, PARTIAL = "message", "partial"
"""The keys of scratch: messages of a block, and what pieces of a far entity's come to."""

FIRST, SLOT = "first_item", "item_slot"
"""The parameters of a walk that takes a block of items: its first, and where its messages go."""

PIECE = 64
"""Messages of an entity that one program adds: more go to several, whose sums are added then."""

WINDOW, ELEMENTS, MOST_ROWS, LANES = 128, 512, 128, 8

CLEARED, PIECES, ENTITIES = "cleared", "far pieces", "far rows"
"""What kernels of far sums are launched over: all far entities, or after every block some."""

Kernels = list[tuple[str, KernelSource]]


def messages(scatters: tuple[Node, ...]) -> tuple[Node, ...]:
    """The messages of sums, each once."""
    return tuple(dict.fromkeys(node.inputs[0] for node in scatters))


def far_sums(name: str, scatters: tuple[Node, ...], walks: Kernels, index: DType) -> Kernels:
    """The kernels of a walk with those of its sums at far ends, in launch order but for those that
    are launched after every block."""
    first, last = [], []
    for number, node in enumerate(scatters):
        own = f"{name}_far{number}"
        first.append((CLEARED, cleared(f"{own}_cleared", node)))
        last.append((PIECES, pieces(f"{own}_pieces", node, index)))
        last.append((ENTITIES, entities(f"{own}_rows", node, index)))
    return [*first, *walks, *last]


def cleared(name: str, node: Node) -> KernelSource:
    """Every sum starts at zero."""
    tile, value = _tile(node), pointer_type(node.type.dtype.compute)
    text = f"""@triton.jit
def {name}(sums, num_far):
{_rows(tile, "row", "num_far")}
    at = row[:, None].to(tl.int64) * {node.type.size} + f
    tl.store(sums + at, tl.full({_dims(tile)}, 0, {_compute(node)}), mask={_inside(node)})
"""
    parameters = (Parameter("sums", value, ("array", node)), Parameter("num_far", "i64", "num_far"))
    return KernelSource(name, text, parameters, (), tile)


def pieces(name: str, node: Node, index: DType) -> KernelSource:
    """Add up to `PIECE` messages to the sum of their entity. The first `spilled` pieces of a block
    are not all that their entities have: what they come to is stored by itself."""
    tile, size, compute = _tile(node), node.type.size, _compute(node)
    text = f"""@triton.jit
def {name}(messages, sums, partial, order, piece_row, piece_low, first_piece, stop_piece, spilled):
{_rows(tile, "piece", "stop_piece", "first_piece + ")}
    low = tl.load(piece_low + piece, mask=valid, other=0)
    count = tl.load(piece_low + piece + 1, mask=valid, other=0) - low
    added = tl.full({_dims(tile)}, 0, {compute})
    for step in range(0, tl.max(count, 0)):
        live = step < count
        slot = tl.load(order + low + step, mask=live, other=0).to(tl.int64)
        inside = {_inside(node, "live")}
        added += tl.load(messages + slot[:, None] * {size} + f, mask=inside, other=0)
    place = piece - first_piece
    alone = valid & (place >= spilled)
    row = tl.load(piece_row + piece, mask=alone, other=0).to(tl.int64)
    inside = {_inside(node, "alone")}
    at = sums + row[:, None] * {size} + f
    tl.store(at, tl.load(at, mask=inside, other=0) + added, mask=inside)
    part = valid & (place < spilled)
    tl.store(partial + place[:, None] * {size} + f, added, mask={_inside(node, "part")})
"""
    value, numbers = pointer_type(node.type.dtype.compute), pointer_type(index)
    parameters = (
        Parameter("messages", value, (MESSAGE, node.inputs[0])),
        Parameter("sums", value, ("array", node)),
        Parameter("partial", value, (PARTIAL, node)),
        *(Parameter(key, numbers, key) for key in ("order", "piece_row", "piece_low")),
        *(Parameter(key, "i64", key) for key in ("first_piece", "stop_piece", "spilled")),
    )
    return KernelSource(name, text, parameters, (), tile)


def entities(name: str, node: Node, index: DType) -> KernelSource:
    """Add the pieces of an entity to its sum, lane by lane in their order, then the lanes."""
    size, compute = node.type.size, _compute(node)
    tile = replace(_tile(node), rows=1, edges=LANES)
    text = f"""@triton.jit
def {name}(sums, partial, hub_row, hub_low, hub_high, first_piece, first_hub):
    hub = first_hub + tl.program_id(0)
    f = tl.program_id(1) * {tile.window} + tl.arange(0, {tile.window})[None, :]
    low, high = tl.load(hub_low + hub) - first_piece, tl.load(hub_high + hub) - first_piece
    added = tl.full([{LANES}, {tile.window}], 0, {compute})
    for start in range(low, high, {LANES}):
        place = start + tl.arange(0, {LANES})[:, None]
        inside = (place < high) & (f < {size})
        added += tl.load(partial + place * {size} + f, mask=inside, other=0)
    inside, at = f < {size}, sums + tl.load(hub_row + hub).to(tl.int64) * {size} + f
    added = tl.load(at, mask=inside, other=0) + tl.sum(added, 0, keep_dims=True)
    tl.store(at, added, mask=inside)
"""
    value, numbers = pointer_type(node.type.dtype.compute), pointer_type(index)
    parameters = (
        Parameter("sums", value, ("array", node)),
        Parameter("partial", value, (PARTIAL, node)),
        *(Parameter(key, numbers, key) for key in ("hub_row", "hub_low", "hub_high")),
        *(Parameter(key, "i64", key) for key in ("first_piece", "first_hub")),
    )
    return KernelSource(name, text, parameters, (), tile)


def _tile(node: Node) -> Tile:
    """Some entities side by side and a window of their elements."""
    window = min(padded(node.type.size), WINDOW)
    return Tile(min(ELEMENTS // window, MOST_ROWS), 1, 1, node.type.size, window)


def _compute(node: Node) -> str:
    return dtype_text(node.type.dtype.compute)


def _dims(tile: Tile) -> str:
    return f"[{tile.rows}, {tile.window}]"


def _rows(tile: Tile, name: str, stop: str, first: str = "") -> str:
    return f"""    f = tl.program_id(1) * {tile.window} + tl.arange(0, {tile.window})[None, :]
    {name} = {first}tl.program_id(0) * {tile.rows} + tl.arange(0, {tile.rows})
    valid = {name} < {stop}"""


def _inside(node: Node, mask: str = "valid") -> str:
    return f"{mask}[:, None] & (f < {node.type.size})"


# of graphs in files


def without_scatters(plan: Plan) -> Plan:
    """An equal plan none of whose walks sums at the far ends of its edges."""
    return replace(plan, steps=tuple(part for step in plan.steps for part in _parts(step)))


def _parts(step: Step) -> list[Step]:
    if not isinstance(step, RowProgram) or not step.scatters:
        return [step]
    return [replace(step, phases=tuple(map(_storing, step.phases))), _summing(step)]


def _storing(phase: Phase) -> Phase:
    """The phase, with the messages stored that it scattered."""
    stores = tuple(dict.fromkeys((*phase.stores, *messages(phase.scatters))))
    return replace(phase, stores=stores, scatters=())


def _summing(step: RowProgram) -> RowProgram:
    """The walk over the other ends."""
    side = "src" if step.side == "dst" else "dst"
    return RowProgram(
        space=step.other_space,
        relation=step.relation,
        side=side,
        phases=(Phase(step.scatters),),
        stores=step.scatters,
        totals=(),
        reads=messages(step.scatters),
    )
