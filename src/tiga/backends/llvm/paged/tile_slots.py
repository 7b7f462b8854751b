"""What kernels that go tile by tile are given, and the states that wait in memory."""

from dataclasses import dataclass
from functools import cached_property

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.pieces import filled, load
from tiga.backends.llvm.scope import KernelScope
from tiga.backends.llvm.slots import Slots, SlotTable
from tiga.passes.roles import roles_of
from tiga.passes.rows import adds_up
from tiga.trace.node import Node

TILE_SLOTS = ("tile_low", "tile_size", "number_low", "number_size")


@dataclass(frozen=True)
class Runs:
    """What is folded from tile to tile: rows, or the chunks of split rows. By slot: how many edges
    of each were taken, and the kind of its states."""

    taken: str
    kind: str


ROWS = Runs("taken", "state")
CHUNKS = Runs("chunk_taken", "chunk")


@dataclass(frozen=True)
class TileSlots(Slots):
    """Those of a row program, and: the tile's range of other ends and of edge numbers, counts of
    edges taken, `("state", node)` for the states of rows, `("stretch", node)` for the sums of
    earlier stretches of edges, by where a row or chunk starts, and, as the tile and the rows have
    memory of their own, `("other", node)` and `("other degree", relation, side)`."""

    @cached_property
    def names(self) -> tuple[object, ...]:
        roles = roles_of(self.program)
        counts = (ROWS.taken, CHUNKS.taken)
        states = (("state", node) for node in self.reductions)
        sums = (("stretch", node) for node in self.reductions if adds_up(node))
        others = (("other", node) for node in self.program.reads if node in roles.others)
        degrees = (("other degree", *ends) for ends in self.degrees)
        return (*super().names, *TILE_SLOTS, *counts, *states, *sums, *others, *degrees)


def state_or_identity(
    table: SlotTable, scope: KernelScope, runs: Runs, node: Node, run: ir.Value, begun: ir.Value
) -> ir.Value:
    """The state of a run that was begun, else what a fold starts from."""
    start = filled(scope, node, node.op.monoid.identity(node.type.dtype))
    return arith.select(begun, load(table.state(runs.kind, node), scope, node, run), start)
