"""A block of a call that no walk holds, over a graph in a file: what it reads, and makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiga import knobs
from tiga.frontends.message_passing import MessagePassing
from tiga.frontends.signature import taken
from tiga.frontends.tensor.arrays import Array
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.evaluate import run
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.messages.block_rows import BlockRows, Place, Range, node_of, stored
from tiga.frontends.tensor.messages.edge_reads import EdgeEnd
from tiga.frontends.tensor.messages.stored_messages import Stored, StoredMessages, rows_alone
from tiga.frontends.tensor.program import program_of
from tiga.frontends.trees import leaves_of, mapped
from tiga.frontends.views import View
from tiga.relations.row_blocks import Rows
from tiga.trace.node import Node


@dataclass(frozen=True)
class Read:
    """Rows of an operand that a block took."""

    operand: int
    place: Place
    node: Node


class BlockView(View):
    """The fields of one end of a block's edges, or of its rows; what is read of them is noted."""

    def __init__(
        self, label: str, numbers: Mapping[str, int], place: Place, block: "Block"
    ) -> None:  # fmt: skip
        super().__init__(label, numbers, here)
        self.__dict__.update(_place=place, _block=block, _known={})

    def _made(self, name: str) -> Tensor:
        if name not in self._known:
            self._known[name] = self._block.read(self._values[name], self._place)
        known: Tensor = self._known[name]
        return known


@dataclass(frozen=True, eq=False)
class Call:
    """A call: what is computed, in which blocks. `names` are the fields, the first of its operands,
    and `grads` whether derivatives of them may be asked for; `others` the tensors that `edge` and
    `node` read, which come after them."""

    kernel: MessagePassing
    rows: BlockRows
    names: tuple[tuple[str, str], ...]
    grads: tuple[bool, ...]
    params: Mapping[str, Any]
    blocks: tuple[Rows, ...]
    others: tuple[Node, ...] = ()

    def end(self, end: str) -> dict[str, int]:
        """The numbers of the fields of an end, by name."""
        spaces = {end} | ({"ndata"} if end != "edge" else set())
        return {name: i for i, (space, name) in enumerate(self.names) if space in spaces}


@dataclass(eq=False)
class Block:
    """One block of a call on some operands: its results as expressions of what it read."""

    call: Call
    rows: Rows
    arrays: Sequence[Array]
    reads: list[Read] = field(default_factory=list)
    on_edges: list[bool] = field(default_factory=list)

    def read(self, operand: int, place: Place) -> Tensor:
        """Rows of an operand."""
        node = node_of(self.call.rows.taken(self.arrays[operand], place))
        self.reads.append(Read(operand, place, node))
        return Tensor(node, self.call.grads[operand])

    def made(self) -> Any:
        """What the call gives at the destinations of the block: a tree of tensors."""
        call, graph = self.call, self.call.rows.graph
        ends = {end: EdgeEnd(graph, self.rows, end) for end in ("src", "dst", "edge")}
        views = [BlockView(end, call.end(end), at, self) for end, at in ends.items()]
        sent = StoredMessages(self.rows.last - self.rows.first)
        given = call.kernel.edge(*views, **taken(call.kernel, "edge", call.params))
        inner = Stored(call.kernel, mapped(sent.stored, given))
        at_rows = Range(self.rows.low, self.rows.high)
        of_rows = {name: self.read(number, at_rows) for name, number in call.end("dst").items()}
        named = {str(i): value for i, value in enumerate(sent.values)}
        made = inner(graph=rows_alone(graph, self.rows), dst=of_rows, edge=named)
        self.on_edges = inner.on_edges
        return made

    def place(self, on_edges: bool) -> Range:
        """Where the block's rows, or its edges, are among all."""
        low, high, first, last = self.rows
        return Range(first, last) if on_edges else Range(low, high)


def values_of(nodes: Sequence[Node]) -> list[Any]:
    """The values of expressions."""
    distinct = list({id(node): node for node in nodes if node.cell is None}.values())
    arrays, _ = run(distinct, knobs.read("tensor_backend")) if distinct else ([], None)
    found: dict[int, Any] = dict(zip(map(id, distinct), arrays, strict=True))
    return [found[id(node)] if node.cell is None else node.cell.array for node in nodes]


@dataclass(eq=False)
class Results:
    """What a call gives: arrays of all blocks, the tree of the last block's tensors, which of them
    are on edges, and the tensors that expressions read beside what blocks did."""

    wholes: list[Array] = field(default_factory=list)
    made: Any = None
    on_edges: list[bool] = field(default_factory=list)
    others: dict[int, Node] = field(default_factory=dict)


def results(call: Call, arrays: Sequence[Array]) -> Results:
    """The results of a call on some operands, block by block.

    Raises:
        InvalidFile: the file names an edge that cannot be.
    """
    found, graph = Results(), call.rows.graph
    with graph.reading():
        for block in (Block(call, one, arrays) for one in call.blocks):
            found.made = block.made()
            found.on_edges = block.on_edges
            nodes = [tensor._node for tensor in leaves_of(found.made)]
            _note_others(block, nodes, found.others)
            pairs = zip(values_of(nodes), block.on_edges, strict=True)
            for k, (value, on_edges) in enumerate(pairs):
                if len(found.wholes) <= k:
                    extent = graph.num_edges if on_edges else graph.num_dst
                    shape = (extent, *value.shape[1:])
                    found.wholes.append(call.rows.whole(shape, np.dtype(value.dtype)))
                stored(found.wholes[k], block.place(on_edges), value)
    return found


def _note_others(block: Block, nodes: Sequence[Node], others: dict[int, Node]) -> None:
    own = {id(read.node) for read in block.reads}
    for leaf in program_of(nodes).leaves:
        if id(leaf) not in own and leaf.type.dtype.is_differentiable:
            others[id(leaf)] = leaf
