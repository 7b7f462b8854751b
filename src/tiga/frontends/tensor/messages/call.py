"""`MessagePassing` on native tensors: `edge` and `node` to one program, and its call.

They run at every call, on tensors that stand for all edges or nodes, so nothing they read can go
stale; what they build is looked up by its structure (`capture.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiga.errors import InvalidType, TigaError, Unfusable, bare
from tiga.frontends.message_passing import FieldSets, MessagePassing, PerEdge
from tiga.frontends.signature import check_parameters, require_known, taken
from tiga.frontends.tensor.build import as_tensor
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU, Device
from tiga.frontends.tensor.lazy import LazyNode, here, leaf, user_place
from tiga.frontends.tensor.messages.calls import calls_of
from tiga.frontends.tensor.messages.capture import (
    CapturedProgram,
    Field,
    Given,
    Number,
    ReducedRows,
    Sketch,
    plan_of,
    rows_of,
    sketch,
)
from tiga.frontends.tensor.messages.edge_order import edge_numbers, in_csr_order, in_given_order
from tiga.frontends.tensor.messages.entities import EDGES, NODES, require_no_extent
from tiga.frontends.tensor.messages.fields import Fields, fields_of
from tiga.frontends.tensor.messages.graph_call import GraphCall, Walk
from tiga.frontends.tensor.messages.reduced import address, form_of
from tiga.frontends.tensor.messages.template import Template, template_of
from tiga.frontends.tensor.waiting import extent_of
from tiga.frontends.trees import leaves_of, mapped
from tiga.relations import Graph
from tiga.trace.node import Node


@dataclass
class KernelCall:
    """One call of a kernel: what its program is, and what its inputs are now.

    `topology` is the graph as it is now, `order` and `numbers` what was met in what `edge` and
    `node` built, `grad` whether derivatives may be asked for.
    """

    kernel: MessagePassing
    topology: Any
    fields: Fields
    template: Template
    params: Mapping[str, Any]
    order: list[Node] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)
    grad: bool = False

    @staticmethod
    def of(
        kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]
    ) -> "KernelCall":
        """The call, its arguments checked."""
        if not isinstance(graph, Graph):
            raise InvalidType(f"graph= expected a tg.Graph, got {type(graph).__name__} ({here()}).")
        # A snapshot: looking at the graph's index arrays again would take time.
        topology = graph if graph.paged else graph.snapshot()
        fields, specs = fields_of(topology, given)
        return KernelCall(kernel, topology, fields, template_of(specs), params)

    @property
    def device(self) -> Device:
        """Where the program's inputs are."""
        if not isinstance(self.topology, Graph):
            for tensor in self.fields.values():
                return tensor.device
        return CPU

    def inputs(self, plan: CapturedProgram) -> tuple[Node, ...]:
        """The values of a program's inputs."""
        device = self.device
        return tuple([self._source(source, device) for source in plan.sources])

    def _source(self, source: Any, device: Device) -> Node:
        kind = source.__class__
        if kind is Field:
            given = self.fields[source]
            if source.namespace == "edge":
                return in_csr_order(given, self.topology, device)
            return given._node
        if kind is Given:
            return self.order[source.place]
        if kind is Number:
            op = self.numbers[source.place]
            return leaf(np.asarray(op.value, op.of.dtype.numpy), op.of.with_shape(()))
        return edge_numbers(self.topology, device)

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
    except TigaError as error:
        raise _readable(error) from None
    except TypeError:
        check_parameters(kernel, params)
        raise


def _readable(error: TigaError) -> TigaError:
    """The error with words for the made-up numbers of edges and nodes."""
    text = str(error)
    told = text.replace(str(EDGES), "E").replace(str(NODES), "N")
    return error if told == text else type(error)(told)


def _returned(leaf: Any) -> Any:
    """One value that `node` returned."""
    return leaf if isinstance(leaf, PerEdge) else as_tensor(leaf, "`node`'s result")


def call(kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]) -> Any:
    """Run a kernel on a graph with native tensors; see `MessagePassing`."""
    run = KernelCall.of(kernel, graph, given, params)
    try:
        plan = run.plan()
    except Unfusable as reason:
        return _in_blocks(run, reason)
    calls_of(kernel).note(plan.launch)
    inputs = run.inputs(plan)
    walk = Walk.of(plan.launch, graph, run.topology, run.grad)
    if graph.paged:
        from tiga.frontends.tensor.messages.paged import made

        return made(walk, inputs, plan.tree, run.grad, run.fields.values())
    return _outputs(run, plan, walk, inputs)


def _in_blocks(run: KernelCall, reason: Unfusable) -> Any:
    """The results of a call that is no program, for `reason`."""
    topology = run.topology
    from tiga.frontends.tensor.messages.bounded import run_bounded

    calls_of(run.kernel).refuse(reason)
    return run_bounded(run.kernel, topology, run.fields, run.params, reason)


def _outputs(run: KernelCall, plan: CapturedProgram, walk: Walk, inputs: tuple[Node, ...]) -> Any:
    """The results of a call, which wait: one, or a tree of them."""
    place, topology = user_place(), run.topology
    depth, largest = extent_of(inputs)

    def output(index: int) -> Tensor:
        kind = walk.launch.type_of(index, topology)
        size = kind.size if kind.size > largest else largest
        node = LazyNode(GraphCall(walk, index), inputs, kind, place, depth + 1, size)
        if plan.on_edges[index]:
            node = in_given_order(node, topology, run.device)
        return Tensor(node, run.grad and kind.dtype.is_differentiable)

    return output(0) if plan.tree == 0 else mapped(output, plan.tree)


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
