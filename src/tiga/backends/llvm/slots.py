"""The arguments of a kernel: one table of 8-byte slots, by name."""

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch_mlir import ir

from tiga.backends.llvm.arguments import Arguments
from tiga.backends.llvm.memory import Array
from tiga.passes.rows import RowProgram
from tiga.passes.schedule import cone
from tiga.relations.walk import ARRAYS
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import DType, Relation

SIZE_SLOTS = (
    "num_rows", "num_edges", "num_tasks", "num_hubs", "num_chunks", "num_others", "max_degree",
)  # fmt: skip


@dataclass(frozen=True)
class Slots:
    """Which slot holds what, for one row program.

    Names are strings for the walk and sizes, `("degree", relation, side)` for row pointers of
    degrees, nodes for the arrays read and written, `("partial", node)` for the pieces of a total,
    `("scatter", node)` for the groups' sums of a scattered reduction, `("chunk", node)` and
    `("hub", node)` for the states of split rows and of their chunks, `("carry", node)` for what a
    scan brings to each chunk.
    """

    program: RowProgram

    @cached_property
    def names(self) -> tuple[object, ...]:
        return tuple(dict.fromkeys(self._all()))

    def _all(self) -> Iterator[object]:
        yield from ARRAYS
        yield from SIZE_SLOTS
        yield from (("degree", *ends) for ends in self.degrees)
        yield from self.nodes
        yield from (("partial", node) for node in self.pieces)
        yield from (("scatter", node) for node in self.program.scatters)
        yield from ((kind, node) for kind in ("chunk", "hub") for node in self.reductions)
        yield from self.scan_states

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The arrays read and written."""
        return tuple(dict.fromkeys((*self.program.reads, *self.program.writes)))

    @property
    def pieces(self) -> tuple[Node, ...]:
        """The totals that are summed in pieces."""
        return (*self.program.totals, *self.program.outer_sums)

    @cached_property
    def reductions(self) -> tuple[Node, ...]:
        """Every reduction of the program."""
        return tuple(node for phase in self.program.phases for node in phase.reductions)

    @cached_property
    def scan_states(self) -> tuple[tuple[str, Node], ...]:
        """What is kept of scans over split rows: per chunk, per row, and the chunks' carries."""
        found = [(kind, s.after) for kind in ("chunk", "hub") for s in self.program.scans]
        return (*found, *(("carry", s.before) for s in self.program.scans))

    @cached_property
    def degrees(self) -> tuple[tuple[Relation, str], ...]:
        """The relations and sides whose degrees the program reads."""
        found = (n.op for n in cone(self.program) if n.op.origin is Origin.DEGREE)
        return tuple(dict.fromkeys((op.relation, op.side) for op in found))

    @property
    def fixed(self) -> int:
        """How many slots come before those of partial results."""
        named = (*ARRAYS, *SIZE_SLOTS)
        return len(named) + len(self.degrees) + len(self.nodes)

    def table(self, named: Mapping[Any, int]) -> ctypes.Array:
        """The table that has these numbers and addresses; 0 for what is not named."""
        return (ctypes.c_int64 * len(self.names))(*(named.get(name, 0) for name in self.names))

    @cached_property
    def position(self) -> dict[object, int]:
        return {name: i for i, name in enumerate(self.names)}


@dataclass(frozen=True)
class SlotTable(Arguments):
    """The arguments of a row program's kernel.

    They begin at slot `first` of the table. `local` are arrays that the kernel has itself.
    """

    slots: Slots
    first: int = 0
    local: Mapping[Node, Array] = field(default_factory=dict)

    def position(self, name: object) -> int:
        return self.first + self.slots.position[name]

    def number(self, name: str) -> ir.Value:
        """A whole number."""
        return self.word(name)

    def array(self, node: Node) -> Array:
        """The array of a value that the program reads or writes."""
        if node in self.local:
            return self.local[node]
        return Array(self.pointer(node), node.type.dtype, node.type.size)

    def state(self, kind: str, node: Node) -> Array:
        """The array of a reduction's states or of a total's pieces, in register dtype."""
        return Array(self.pointer((kind, node)), self.state_dtype(node), node.type.size)

    @staticmethod
    def state_dtype(node: Node) -> DType:
        return node.type.dtype.compute
