"""`MessagePassing` on native tensors: `edge` and `node` to one program, and its call.

They run at every call, on tensors that stand for all edges or nodes, so nothing they read can go
stale; what they build is looked up by its structure (`capture.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tiga.errors import InvalidType, InvalidValue, Unfusable, bare
from tiga.frontends.message_passing import FieldSets, MessagePassing, PerEdge
from tiga.frontends.signature import check_parameters, require_known, taken
from tiga.frontends.tensor.build import apply, as_tensor, extent_of
from tiga.frontends.tensor.calls import calls_of
from tiga.frontends.tensor.capture import (
    CapturedProgram,
    Field,
    Found,
    Given,
    Number,
    Place,
    ReducedRows,
    Sketch,
    plan_of,
    rows_of,
    sketch,
)
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.creation import from_numpy
from tiga.frontends.tensor.devices import CPU, Device
from tiga.frontends.tensor.entities import EDGES, NODES, require_no_extent
from tiga.frontends.tensor.fields import (
    REORDER,
    FieldView,
    edge_numbers,
    edge_orders,
    in_given_order,
    stand_in,
)
from tiga.frontends.tensor.graph_call import GraphCall, Walk
from tiga.frontends.tensor.lazy import LazyNode, here, leaf, user_place
from tiga.frontends.tensor.reduced import address, form_of
from tiga.frontends.trees import leaves_of, mapped
from tiga.paging.predicted import Prediction
from tiga.relations import Graph
from tiga.relations.paged import PagedField, not_fused
from tiga.trace.node import Node
from tiga.types import Relation, Shape, Space, Type, dtype_named

RELATION = Relation("edges", Space("src", "node"), Space("dst", "node"))
SQUARE = Relation("edges", Space("node", "node"), Space("node", "node"))


AT_ONCE = 32768
"""Elements up to which a field's values are put in order without an op of their own, which would
take longer to record than to do."""


class Spec(NamedTuple):
    """What a program is specialised to besides its structure: one field of the call."""

    namespace: str
    name: str
    dtype: str
    shape: Shape
    grad: bool


@dataclass(frozen=True, eq=False)
class Template:
    """What `edge` and `node` are called with, for fields of given names and types, and what was
    made of what they built."""

    relation: Relation
    edge_views: tuple[FieldView, ...]
    node_view: FieldView
    on_edges: dict[Node, Place]
    on_nodes: dict[Node, Place]
    rows: Found = field(default_factory=Found)


@lru_cache(maxsize=256)
def template_of(fields: tuple[Any, ...]) -> Template:
    """The template for fields, of which `Spec` says what they are."""
    specs = [Spec(*one) for one in fields]
    square = any(spec.namespace == "ndata" for spec in specs)
    relation = SQUARE if square else RELATION
    edges: dict[Node, Place] = {}
    nodes: dict[Node, Place] = {}

    def view(end: str, on_edges: bool) -> FieldView:
        values = {}
        for spec in specs:
            if spec.namespace != end and not (spec.namespace == "ndata" and end != "edge"):
                continue
            space = relation.edge if end == "edge" else relation.end(end)
            dtype = dtype_named(spec.dtype)
            made = stand_in(dtype, spec.shape, EDGES if on_edges else NODES, spec.grad)
            place = Place(Field(spec.namespace, spec.name), space, dtype, spec.shape, end, on_edges)
            (edges if on_edges else nodes)[made._node] = place
            values[spec.name] = made
        return FieldView(end, values)

    views = tuple(view(end, True) for end in ("src", "dst", "edge"))
    return Template(relation, views, view("dst", False), edges, nodes)


def _type_of(namespace: str, name: str, value: Any, extent: int) -> Type:
    """The type of a field, checked."""
    if not isinstance(value, Tensor):
        raise InvalidType(
            f"field `{namespace}.{name}` expected a native tensor beside others, got "
            f"{type(value).__name__} ({here()})."
        )
    kind = value._node.type
    if not kind.shape or kind.shape[0] != extent:
        raise InvalidValue(
            f"field `{namespace}.{name}` expected leading extent {extent}, got shape "
            f"{value.shape} ({here()})."
        )
    if kind.dtype.kind == "c":
        raise InvalidType(f"field `{namespace}.{name}` is complex, which no walk takes ({here()}).")
    return kind


def _fields(
    graph: Graph, topology: Any, given: Sequence[Any]
) -> tuple[dict[Any, Tensor], tuple[Any, ...]]:
    """The fields of a call by namespace and name, and what programs depend on of them: `Spec`s,
    as plain tuples."""
    src, dst, _, ndata = given
    if ndata is not None and (src or dst):
        raise InvalidType(f"ndata= stands for src= and dst=; give one or the other ({here()}).")
    fields: dict[Any, Tensor] = {}
    specs: list[Any] = []
    for namespace, values in zip(EXTENTS, given, strict=True):
        if values is None:
            continue
        if values.__class__ is not dict and not isinstance(values, Mapping):
            raise InvalidType(
                f"`{namespace}` expected a mapping from names to tensors, got "
                f"{type(values).__name__} ({here()})."
            )
        extent = getattr(topology, EXTENTS[namespace])
        for name, value in values.items():
            if value.__class__ is not Tensor:
                value = attached(value)
            kind = _type_of(namespace, name, value, extent)
            fields[namespace, name] = value
            specs.append((namespace, name, kind.dtype.name, kind.shape[1:], value._grad))
    return fields, tuple(specs)


def attached(value: Any) -> Any:
    """A field of a file as a tensor mapped from it."""
    return from_numpy(value.numpy()) if isinstance(value, PagedField) else value


EXTENTS = {"src": "num_src", "dst": "num_dst", "edge": "num_edges", "ndata": "num_dst"}
"""Which extent of a graph the fields of a namespace have."""


def _topology(graph: Any) -> Any:
    """The graph as it is now: looking at its index arrays again would take time."""
    if not isinstance(graph, Graph):
        raise InvalidType(f"graph= expected a tg.Graph, got {type(graph).__name__} ({here()}).")
    return graph if graph.paged else graph.snapshot()


@dataclass
class KernelCall:
    """One call of a kernel: what its program is, and what its inputs are now."""

    kernel: MessagePassing
    template: Template
    params: Mapping[str, Any]
    order: list[Node] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)
    grad: bool = False

    def plan(self) -> CapturedProgram:
        """The program of what `edge` and `node` build now."""
        template = self.template
        if self.params:
            require_known(self.kernel, self.params)
        sent = called(self.kernel, "edge", self.params, *template.edge_views)
        tree = address(self.kernel.reducer, sent)
        of = self._walk([value for one in leaves_of(tree) for value in one.values])
        rows = template.rows.get(form_of(tree), of, lambda variable: self._rows(tree, of, variable))
        if isinstance(rows, Unfusable):
            raise bare(rows)
        if type(self.kernel).node is MessagePassing.node:
            return rows.plan
        return self._node(rows)

    def _rows(self, tree: Any, of: Sketch, variable: bool) -> ReducedRows | Unfusable:
        template = self.template
        try:
            return rows_of(template.relation, template.on_edges, tree, of, variable)
        except Unfusable as reason:
            return bare(reason)

    def _node(self, rows: ReducedRows) -> CapturedProgram:
        template, grad = self.template, self.grad
        value = called(self.kernel, "node", self.params, template.node_view, rows.view(grad))
        made = mapped(_returned, value)
        of = self._walk([one for one in leaves_of(made) if not isinstance(one, PerEdge)])
        plan: CapturedProgram = rows.plans.get(
            (grad, form_of(made)), of,
            lambda variable: plan_of(rows, grad, template.on_nodes, made, of, variable),
            rows.variable,
        )  # fmt: skip
        return plan

    def _walk(self, values: list[Tensor]) -> Any:
        of = sketch([value._node for value in values])
        self.order += of.order
        for op in of.numbers:
            require_no_extent(op.value)
        self.numbers += of.numbers
        for value in values:
            self.grad = self.grad or value._grad
        return of


def called(kernel: Any, function: str, params: Mapping[str, Any], *given: Any) -> Any:
    """What `edge` or `node` returns, with the parameters of the call that it takes.

    Raises:
        InvalidType: it takes other arguments.
    """
    try:
        if not params:
            return getattr(kernel, function)(*given)
        return getattr(kernel, function)(*given, **taken(kernel, function, params))
    except TypeError:
        check_parameters(kernel, params)
        raise


def _returned(leaf: Any) -> Any:
    """One value that `node` returned."""
    return leaf if isinstance(leaf, PerEdge) else as_tensor(leaf, "`node`'s result")


def call(kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]) -> Any:
    """Run a kernel on a graph with native tensors; see `MessagePassing`."""
    topology = _topology(graph)
    fields, specs = _fields(graph, topology, given)
    run = KernelCall(kernel, template_of(specs), params)
    try:
        plan = run.plan()
    except Unfusable as reason:
        if graph.paged and graph.device != "cpu":
            raise not_fused(reason) from None
        from tiga.frontends.tensor.bounded import run_bounded

        calls_of(kernel).refuse(reason)
        return run_bounded(kernel, topology, fields, params, reason)
    calls_of(kernel).note(plan.launch)
    device = CPU if graph.paged else _device(fields)
    inputs = tuple([_source(source, run, fields, topology, device) for source in plan.sources])
    walk = Walk.of(plan.launch, graph, topology, run.grad)
    if graph.paged:
        from tiga.frontends.tensor.paged import made

        return made(walk, inputs, plan.tree, run.grad, fields.values())
    place = user_place()
    depth, largest = extent_of(inputs)

    def output(index: int) -> Tensor:
        kind = walk.launch.type_of(index, topology)
        size = kind.size if kind.size > largest else largest
        node = LazyNode(GraphCall(walk, index), inputs, kind, place, depth + 1, size)
        if plan.on_edges[index]:
            node = in_given_order(node, topology, device)
        return Tensor(node, run.grad and kind.dtype.is_differentiable)

    return output(0) if plan.tree == 0 else mapped(output, plan.tree)


def _device(fields: Mapping[Any, Tensor]) -> Device:
    """Where the fields are."""
    for tensor in fields.values():
        return tensor.device
    return CPU


def prepare(
    kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]
) -> Callable[[], Any]:
    """A call bound to memory; see `MessagePassing.prepare`."""
    from tiga.frontends.tensor.prepared import prepare_together

    result = call(kernel, graph, given, params)
    run = prepare_together(leaves_of(result))

    def launch() -> Any:
        run()
        return result

    launch.outputs = result  # type: ignore[attr-defined]
    return launch


class Captured(NamedTuple):
    """A call that is not made: its program, the program's inputs, the graph, and the device."""

    plan: CapturedProgram
    inputs: list[Node]
    topology: Any
    device: Device


def captured(
    kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]
) -> Captured:
    """What a call would run.

    Raises:
        Unfusable: no program computes it.
    """
    topology = _topology(graph)
    fields, specs = _fields(graph, topology, given)
    run = KernelCall(kernel, template_of(specs), params)
    plan, device = run.plan(), CPU if graph.paged else _device(fields)
    inputs = [_source(source, run, fields, topology, device) for source in plan.sources]
    return Captured(plan, inputs, topology, device)


def foretold(
    kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]
) -> tuple[list[str], list[Prediction]]:
    """Capture the program of a call that is not made: why there is none, and what it would take
    where the graph is in a file."""
    topology = _topology(graph)
    fields, specs = _fields(graph, topology, given)
    run = KernelCall(kernel, template_of(specs), params)
    try:
        plan = run.plan()
        calls_of(kernel).note(plan.launch)
        return [], list(_predicted(plan, run, fields, topology)) if graph.paged else []
    except Unfusable as reason:
        return [f"a call would not be fused: {reason}"], []


def _predicted(
    plan: CapturedProgram, run: KernelCall, fields: Mapping[Any, Tensor], topology: Any
) -> Iterator[Prediction]:
    from tiga.frontends.tensor.forecast import predict
    from tiga.frontends.tensor.paged import note_writes

    note_writes(fields.values())
    inputs = [_source(source, run, fields, topology, CPU) for source in plan.sources]
    walk = Walk.of(plan.launch, topology, topology, run.grad)
    return predict(walk, inputs, len(plan.program.outputs))


def told(
    kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]
) -> list[str]:
    """The lines that `explain` adds for a call that is not made."""
    what, predictions = foretold(kernel, graph, given, params)
    return [*what, *(line for prediction in predictions for line in prediction.told())]


def _field(given: Tensor, topology: Any, device: Device) -> Node:
    """The value of a field of edges in CSR order."""
    node = given._node
    orders = edge_orders(topology, device)
    if orders is None:
        return node
    if given._grad or node.cell is None or node.type.size > AT_ONCE or device is not CPU:
        return apply(REORDER, node, *orders)
    (order, _) = orders
    assert order.cell is not None
    return leaf(node.cell.array.take(order.cell.array, 0), node.type, node.place)


def _source(
    source: Any, run: KernelCall, fields: Mapping[Any, Tensor], topology: Any, device: Device
) -> Node:
    """The value of an input of the program."""
    kind = source.__class__
    if kind is Field:
        given = fields[source]
        return _field(given, topology, device) if source.namespace == "edge" else given._node
    if kind is Given:
        return run.order[source.place]
    if kind is Number:
        op = run.numbers[source.place]
        return leaf(np.asarray(op.value, op.of.dtype.numpy), op.of.with_shape(()))
    return edge_numbers(topology, device)
