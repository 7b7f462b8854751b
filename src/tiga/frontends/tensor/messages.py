"""`MessagePassing` on native tensors: `edge` and `node` to one program, and its call.

They run at every call, on tensors that stand for all edges or nodes, so nothing they read can go
stale; equal programs share their kernels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.message_passing import Masked, MessagePassing
from tiga.frontends.tensor.build import SCALARS, as_tensor, result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.creation import from_numpy
from tiga.frontends.tensor.entities import Entities
from tiga.frontends.tensor.graph_call import GraphCall, Walked
from tiga.frontends.tensor.indexing import take
from tiga.frontends.tensor.lazy import LazyNode, Leaf, here, user_place
from tiga.ops.align import align, expand_to
from tiga.ops.feature import reshape
from tiga.ops.leaf import Input, stop_gradient
from tiga.ops.message import gather
from tiga.ops.pointwise import where
from tiga.reducers import Bound, Messages, Reducer
from tiga.relations import Graph
from tiga.trace.node import Node, intern, rewrite
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space, Type, bool_

EDGES, NODES = 1_000_003, 1_000_033
"""Made-up extents that no feature axis has."""

RELATION = Relation("edges", Space("src", "node"), Space("dst", "node"))
SQUARE = Relation("edges", Space("node", "node"), Space("node", "node"))


class FieldView:
    """The fields of one end, or of the edges, as `edge` or `node` sees them."""

    def __init__(self, label: str, values: Mapping[str, Tensor]) -> None:
        self.__dict__.update(_label=label, _values=values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._values:
            there = ", ".join(self._values) or "none"
            raise InvalidValue(
                f"field `{self._label}.{name}` is read but was not passed ({here()}); "
                f"`{self._label}` has: {there}."
            )
        return self._values[name]

    __getitem__ = __getattr__

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def keys(self) -> Any:
        """The names of the fields."""
        return self._values.keys()

    def __setattr__(self, name: str, value: Any) -> None:
        raise InvalidValue(f"fields cannot be assigned ({here()}); use a variable.")


@dataclass
class Capture:
    """One run of `edge` and `node`: inputs of the program as they are met."""

    relation: Relation
    shared: dict[Node, Node] = field(default_factory=dict)
    inputs: list[Node] = field(default_factory=list)
    sources: list[Node] = field(default_factory=list)

    def input(self, source: Node, label: str, of: Type) -> Node:
        """The program's input for a value of the call."""
        made = Input(f"{label}:{len(self.sources)}", of)
        node = intern(made, (), of, source.where)
        self.inputs.append(node)
        self.sources.append(source)
        return node

    def leaf(self, node: Node) -> Node:
        """A tensor that `edge` or `node` uses beside its fields: the same for all entities."""
        if node not in self.shared:
            self.shared[node] = self.input(node, "global", node.type)
        return self.shared[node]

    def stand_in(self, like: Tensor, extent: int) -> Tensor:
        """A tensor that stands for a field of `extent` entities."""
        kind = like._node.type.with_shape((extent, *like.shape[1:]))
        made = Tensor(LazyNode(Leaf(kind, "edge or node"), (), kind, user_place()), like._grad)
        made._leaf = True
        return made


def _extents(graph: Graph) -> dict[str, int]:
    return {"src": graph.num_src, "dst": graph.num_dst, "edge": graph.num_edges,
            "ndata": graph.num_dst}  # fmt: skip


def _check(namespace: str, name: str, value: Any, extent: int) -> Tensor:
    if not isinstance(value, Tensor):
        raise InvalidType(
            f"field `{namespace}.{name}` expected a native tensor beside others, got "
            f"{type(value).__name__} ({here()})."
        )
    if not value.shape or value.shape[0] != extent:
        raise InvalidValue(
            f"field `{namespace}.{name}` expected leading extent {extent}, got shape "
            f"{value.shape} ({here()})."
        )
    if value.dtype.is_complex:
        raise InvalidType(f"field `{namespace}.{name}` is complex, which no walk takes ({here()}).")
    return value


def _fields(graph: Graph, given: Mapping[str, Any]) -> dict[str, dict[str, Tensor]]:
    if not isinstance(graph, Graph):
        raise InvalidType(f"graph= expected a tg.Graph, got {type(graph).__name__} ({here()}).")
    if given["ndata"] is not None and (given["src"] or given["dst"]):
        raise InvalidType(f"ndata= stands for src= and dst=; give one or the other ({here()}).")
    extents = _extents(graph)
    checked = {
        namespace: {n: _check(namespace, n, v, extents[namespace]) for n, v in values.items()}
        for namespace, values in given.items()
        if values
    }
    if graph.permutes_edges:
        order = from_numpy(np.array(graph.edge_permutation))
        edge = checked.get("edge", {})
        checked["edge"] = {name: take(value, order, axis=0) for name, value in edge.items()}
    return checked


@dataclass
class Kernel:
    """A message-passing kernel on the fields of one call."""

    kernel: MessagePassing
    fields: Mapping[str, Mapping[str, Tensor]]
    params: Mapping[str, Any]

    def __post_init__(self) -> None:
        relation = SQUARE if "ndata" in self.fields else RELATION
        self.capture = Capture(relation)
        self.relation = relation
        self.inputs: dict[tuple[str, str], Node] = {}

    def _input(self, namespace: str, name: str) -> Node:
        key = (namespace, name)
        if key not in self.inputs:
            source = self.fields[namespace][name]._node
            space = {"src": self.relation.src, "dst": self.relation.dst,
                     "ndata": self.relation.dst, "edge": self.relation.edge}[namespace]  # fmt: skip
            of = Type(source.type.dtype, source.type.shape[1:], space)
            self.inputs[key] = self.capture.input(source, f"{namespace}.{name}", of)
        return self.inputs[key]

    def _view(self, end: str, entities: Entities, on_edges: bool) -> FieldView:
        namespace = end if end in self.fields else "ndata" if end != "edge" else "edge"
        values = {}
        for name, tensor in self.fields.get(namespace, {}).items():
            made = self.capture.stand_in(tensor, entities.extent)
            node = self._input(namespace, name)
            if on_edges and end != "edge":
                node = gather(self.relation, end, node)
            entities.values[made._node] = node
            values[name] = made
        return FieldView(end, values)

    def _options(self, function: Callable[..., Any], taken: int) -> dict[str, Any]:
        code = getattr(function, "__func__", function).__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return {n: v for n, v in self.params.items() if n in names[taken:]}

    def outputs(self) -> Any:
        """What the kernel returns, as nodes of destinations, in the containers of the user."""
        edges = Entities(self.relation.edge, EDGES, self.capture.leaf)
        views = [self._view(end, edges, True) for end in ("src", "dst", "edge")]
        edge = self.kernel.edge
        sent = edge(*views, **self._options(edge, 4))
        rows = _mapped(lambda leaf: self._reduce(leaf, edges), sent)
        return self._finish(rows)

    def _finish(self, rows: Any) -> Any:
        """`node` on the reduced messages."""
        if type(self.kernel).node is MessagePassing.node:
            return rows
        nodes = Entities(self.relation.dst, NODES, self.capture.leaf)

        def stand_in(row: Node) -> Tensor:
            kind = Type(row.type.dtype, (NODES, *row.type.shape), GLOBAL)
            made = Tensor(LazyNode(Leaf(kind, "edge or node"), (), kind, user_place()), True)
            nodes.values[made._node] = row
            return made

        node = self.kernel.node
        value = node(self._view("dst", nodes, False), _mapped(stand_in, rows),
                     **self._options(node, 3))  # fmt: skip
        return _mapped(lambda leaf: nodes.each(as_tensor(leaf, "`node`'s result")._node), value)

    def _reduce(self, leaf: Any, edges: Entities) -> Node:
        keeps = []
        while isinstance(leaf, Masked):
            keeps.append(leaf.keep)
            leaf = leaf.value
        bound = leaf if isinstance(leaf, Bound) else self._address(leaf)
        parts = []
        for message in bound.messages:
            if isinstance(message, Masked):
                keeps.append(message.keep)
                message = message.value
            parts.append(edges.each(as_tensor(message, "a message")._node))
        if not keeps:
            return bound.reducer.rows(Messages(self.relation, tuple(parts)))
        keep = _mask([edges.each(as_tensor(k, "tg.mask")._node) for k in keeps], parts)
        guarded = _guarded(parts, keep)
        return bound.reducer.rows(Messages(self.relation, tuple(guarded), keep))

    def _address(self, message: Any) -> Bound:
        reducer = self.kernel.reducer
        if not isinstance(reducer, Reducer):
            raise InvalidType(f"`reducer` must be a reducer such as tg.sum(), got {reducer!r}.")
        if not hasattr(reducer, "rows") or getattr(reducer, "arguments", 1) != 1:
            raise InvalidType(
                f"{type(reducer).__name__} on native tensors expects `self.reducer(...)` with its "
                f"arguments ({here()})."
            )
        return Bound(reducer, (message,))


def _mask(keeps: list[Node], parts: list[Node]) -> Node:
    """All masks as one, with axes that broadcast to the largest message."""
    from tiga.ops.pointwise import logical_and

    shape = max((p.type.shape for p in parts), key=len)
    total: Node | None = None
    for keep in keeps:
        if keep.type.dtype != bool_:
            raise InvalidType(f"tg.mask: `keep` must hold bools, got {keep.type.dtype} ({here()}).")
        own = keep.type.shape
        if len(own) < len(shape) and own == shape[: len(own)]:
            keep = reshape(keep, (*own, *(1,) * (len(shape) - len(own))))
        total = keep if total is None else logical_and(*align(total, keep))
    assert total is not None
    return total


def _guarded(parts: list[Node], keep: Node) -> list[Node]:
    """`parts` such that no derivative reaches a leaf from an edge that does not count: zero times
    an infinite derivative would be NaN."""
    if keep.type.size != 1:
        return parts
    flag = reshape(keep, ())

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        on_edge = node.type.space == keep.type.space and node.type.dtype.is_float
        if not on_edge or node.op.name not in ("gather", "spread", "input"):
            return None
        counts = expand_to(flag, node.type.shape, node.type.space)
        return where(counts, node, stop_gradient(node))

    return rewrite(parts, rule)


def _mapped(apply: Callable[[Any], Any], tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _mapped(apply, value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)) and not isinstance(tree, SCALARS):
        return type(tree)(_mapped(apply, item) for item in tree)
    return apply(tree)


def call(
    kernel: MessagePassing, graph: Any, src: Any, dst: Any, edge: Any, ndata: Any,
    params: Mapping[str, Any],
) -> Any:  # fmt: skip
    """Run a kernel on a graph with native tensors; see `MessagePassing`."""
    fields = _fields(graph, {"src": src, "dst": dst, "edge": edge, "ndata": ndata})
    run = Kernel(kernel, fields, params)
    tree = run.outputs()
    flat: list[Node] = []

    def number(node: Node) -> int:
        flat.append(node)
        return len(flat) - 1

    numbered = _mapped(number, tree)
    capture = run.capture
    program = Program(tuple(capture.inputs), tuple(flat))
    walked = Walked(program, graph, graph.token())
    given = {id(t._node): t for values in fields.values() for t in values.values()}
    tensors = [given[id(s)] for s in capture.sources if id(s) in given]
    tensors += [v for v in params.values() if isinstance(v, Tensor)]
    grad = any(t._grad for t in tensors) or _tracked(kernel)

    def output(index: int) -> Tensor:
        node = GraphCall(walked, index)(*capture.sources, where=here())
        made = result(node, *tensors)
        made._grad = grad and node.type.dtype.is_differentiable
        return made

    return _mapped(output, numbered)


def _tracked(kernel: MessagePassing) -> bool:
    """Whether a tensor among the kernel's attributes takes part in derivatives."""
    return any(isinstance(v, Tensor) and v._grad for v in vars(kernel).values())
