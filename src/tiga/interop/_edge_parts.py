"""What traced code does with parts of the edges: without loops, or with a loop added per node."""

from dataclasses import dataclass, field
from typing import Any

import torch

from tiga.errors import Unfusable
from tiga.frontends.sent import guard_leaves
from tiga.frontends.torch.capture.extent import Extent
from tiga.frontends.torch.capture.tracer import Recorder, Traced
from tiga.frontends.torch.capture.where import user_line
from tiga.interop._edge_sets import (
    ADDED,
    ADDED_LOOP,
    FILLED_LOOP,
    GIVEN,
    LOOPS,
    OTHERS,
    OWN_LOOP,
    AlongOther,
    EdgeSet,
    ParallelLoops,
)
from tiga.interop._indices import EdgeMask, EndIndex, EndIndices, NodeIndex
from tiga.ops.align import align, expand_to
from tiga.ops.leaf import constant
from tiga.ops.message import gather, spread
from tiga.ops.pointwise import Where, cast, logical_and, logical_not, logical_or, where
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Relation, Type, bool_

_PART_MASKS = {LOOPS: OWN_LOOP, ADDED: ADDED_LOOP}


@dataclass
class Parts:
    """The set of edges that a trace ranges over, and the fields that tell its parts.

    `masks` is the view of the edges' fields; `found` the union of all sets that were reduced over;
    `is_complete` whether all values of edges are known: within a trace of the wrong edges those of
    added loops are not, and such a trace is to be made again.
    """

    recorder: Recorder
    relation: Relation
    edges: EdgeSet = GIVEN
    masks: Any = None
    found: EdgeSet = frozenset()
    is_complete: bool = True
    at: EdgeSet | None = None
    """The edges along which messages go that are being traced; None elsewhere."""
    written: dict[int, tuple[Traced, Node, Node]] = field(default_factory=dict)
    """Values of nodes into which values of loops were written, by the identity of the first."""

    def require(self, edges: EdgeSet) -> None:
        """Refuse reductions over edges that the trace does not range over.

        Raises:
            AlongOther: a trace over other edges can hold them.
            Unfusable: none can.
        """
        self.found |= edges
        tells_parts = self.edges != GIVEN
        if self.found <= self.edges and (tells_parts or edges == GIVEN):
            return
        wanted = self.found | self.edges if tells_parts else self.found
        if wanted == self.edges or self.masks is None:
            raise Unfusable(f"{user_line()}: messages along all edges and along a part of them.")
        raise AlongOther(wanted)

    @property
    def are_all(self) -> bool:
        """Whether values of edges that are made now are those of all that the trace ranges over."""
        return self.edges in (GIVEN, self.at)

    def keep(self, edges: EdgeSet) -> Node | None:
        """Which edges belong to a set; None for all."""
        dropped = self.edges - edges
        if not dropped:
            return None
        if OTHERS in dropped:
            return self._any(self.edges & edges)
        return logical_not(self._any(dropped))

    def _any(self, parts: EdgeSet) -> Node:
        """Which edges are of some parts, not the edges between two nodes."""
        found = [self.mask(_PART_MASKS[part]) for part in sorted(parts)]
        if not found:
            return constant(False, Type(bool_, (), self.relation.edge))
        result = found[0]
        for other in found[1:]:
            result = logical_or(result, other)
        return result

    def mask(self, name: str) -> Node:
        """A field that tells parts."""
        if self.masks is None or name not in self.masks:
            if name == FILLED_LOOP and self.masks is not None and ADDED_LOOP in self.masks:
                raise ParallelLoops("a node has several loops, and the layer keeps one of them")
            self.is_complete = False
            return constant(False, Type(bool_, (), self.relation.edge))
        node: Node = self.masks[name].node
        return node

    # what traced code does

    def loops(self, num_nodes: Any) -> NodeIndex:
        """`torch.arange(num_nodes)`."""
        space = next((s for s, m in self.recorder.marks.items() if m is num_nodes), None)
        if space is None or space == self.relation.edge or not getattr(num_nodes, "is_fewer", True):
            raise Unfusable(f"{user_line()}: the numbers of edges, which depend on the graph.")
        return NodeIndex(space)

    def with_loops(self, indices: EndIndices, loops: NodeIndex) -> EndIndices:
        """`torch.cat([edge_index, loop_index], dim=1)`."""
        if loops.rows != 2 or ADDED in indices.edges:
            raise Unfusable(f"{user_line()}: joins the edges with something else than loops.")
        return indices.of(indices.edges | {ADDED})

    def picked(self, x: Any, mask: EdgeMask) -> Traced:
        """`x[mask]`. What added loops have is what their nodes have, where that can be said."""
        node = self._edge_value(x)
        at_nodes = None
        if mask.of(mask.edges) == {ADDED} and self.relation.src == self.relation.dst:
            at_nodes = _LoopValues(self.relation, self.mask(ADDED_LOOP)).of(node)
        return self.recorder.wrap(node if at_nodes is None else at_nodes)

    def put(self, x: Any, mask: EdgeMask, value: Any) -> None:
        """`x[mask] = value`."""
        node = self._edge_value(x)
        self._require_writable(x)
        if not isinstance(value, Traced):
            lifted = torch.as_tensor(value, dtype=x.dtype)
            new = constant(lifted.item(), node.type) if lifted.numel() == 1 else None
        else:
            new = self._at_edges(value.node)
        if new is None:
            raise Unfusable(f"{user_line()}: writes values of its own to a part of the edges.")
        keep = self.keep(mask.of(mask.edges))
        x.node = new if keep is None else self._chosen(keep, new, node)

    def put_loops(self, x: Any, index: EndIndex, value: Any) -> None:
        """`x[index] = value`: values of loops to their nodes. It may only be joined to others."""
        if not index.edges <= {LOOPS} or not isinstance(x, Traced) or x.node is None:
            raise Unfusable(f"{user_line()}: writes values of edges to nodes.")
        self._require_writable(x)
        self.written[id(x)] = (x, x.node, self._edge_value(value))
        x.node = None

    def joined(self, x: Traced, added: Traced) -> Traced:
        """`torch.cat([x, added])`: values of edges, and of the loops added to them."""
        node = self._edge_value(x)
        _, base, own = self.written.get(id(added), (None, added.node, None))
        loop = None if base is None else self._at_edges(base)
        if loop is None or loop.type.shape != node.type.shape:
            raise Unfusable(f"{user_line()}: joins values of edges with others than of loops.")
        new = self.mask(ADDED_LOOP)
        if own is node:
            unfilled = logical_and(new, logical_not(self.mask(FILLED_LOOP)))
            return self._wrapped(self._chosen(unfilled, loop, node))
        if own is not None:
            loop = self._chosen(self.mask(FILLED_LOOP), own, loop)
        return self._wrapped(self._chosen(new, loop, node))

    # their parts

    def _wrapped(self, node: Node) -> Traced:
        return self.recorder.wrap(self.recorder._located(node))

    def _edge_value(self, x: Any) -> Node:
        if not isinstance(x, Traced) or x.node is None or x.node.type.space != self.relation.edge:
            raise Unfusable(f"{user_line()}: a part of the edges of what is no value of them.")
        return x.node

    def _at_edges(self, node: Node | None) -> Node | None:
        """A value of edges, or that which loops have of their nodes or of all."""
        if node is None or node.type.space == self.relation.edge:
            return node
        if node.type.space == GLOBAL:
            return expand_to(node, node.type.shape, self.relation.edge)
        side = "dst" if node.type.space == self.relation.dst else "src"
        return gather(self.relation, side, node)

    def _chosen(self, condition: Node, one: Node, other: Node) -> Node:
        """`one` where a condition on edges holds; no derivative of it passes where not."""
        dtype = other.type.dtype
        one, other = cast(one, dtype), cast(other, dtype)
        one, other = align(one, other)
        if one is other:
            return one
        if not _is_plain(one):
            (one,) = guard_leaves([one], condition)
        if not _is_plain(other):
            (other,) = guard_leaves([other], logical_not(condition))
        return where(expand_to(condition, other.type.shape, other.type.space), one, other)

    def _require_writable(self, x: Traced) -> None:
        if x.storage.field is not None:
            raise Unfusable(f"{user_line()}: writes to `{x.storage.field}`, which is the caller's.")
        if x.storage.others(x):
            raise Unfusable(f"{user_line()}: writes to a value that has views.")


def is_extent(value: Any) -> bool:
    """Whether a value is a number of edges or nodes."""
    return isinstance(value, Extent)


def _is_plain(node: Node) -> bool:
    """Whether nothing is computed for a value."""
    return bool(node.op.is_read or node.op.is_uniform)


def _without_shape(node: Node) -> Node:
    """What was given to every feature of a value."""
    while node.op.is_view:
        (node,) = node.inputs
    return node


@dataclass
class _LoopValues:
    """Values of edges as those of nodes that added loops have; None where edges have their own.

    Both ends of a loop are its node, so whatever is read there is the node's.
    """

    relation: Relation
    added: Node
    known: dict[Node, Node | None] = field(default_factory=dict)

    def of(self, value: Node) -> Node | None:
        """The value of nodes that a value is at added loops."""
        if value.type.space != self.relation.edge:
            return value
        if value not in self.known:
            self.known[value] = self._made(value)
        return self.known[value]

    def _made(self, value: Node) -> Node | None:
        op, space = value.op, self.relation.dst
        if op.origin is Origin.END:
            return value.inputs[0]
        if op.origin is Origin.NUMBER:
            return constant(op.value, value.type.with_space(space))
        if op.origin is Origin.GLOBAL:
            return spread(value.inputs[0], space)
        if isinstance(op, Where) and _without_shape(value.inputs[0]) is self.added:
            return self.of(value.inputs[1])
        inputs = [self.of(child) for child in value.inputs]
        if not inputs or any(child is None for child in inputs):
            return None
        made: Node = op(*inputs, where=value.where)
        return made
