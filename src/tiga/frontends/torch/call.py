"""A call: find the program that fits, bind the tensors, run."""

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from tiga.errors import InvalidType, Unfusable
from tiga.frontends.message_passing import MessagePassing
from tiga.frontends.torch.autograd import permute, run
from tiga.frontends.torch.bounded import Bounded
from tiga.frontends.torch.bounds import Checked
from tiga.frontends.torch.capture import (
    Captured,
    FieldSource,
    ParamSource,
    Request,
    capture,
    discover,
)
from tiga.frontends.torch.draws import NodeOrder
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.frontends.torch.fields import extents_of, namespaces, refuse
from tiga.frontends.torch.gpu import device_of, may_stage
from tiga.frontends.torch.guards import Guards, Place, same
from tiga.frontends.torch.messages import EdgeOrder
from tiga.frontends.torch.repeat import NO_FIELDS, Repeat, settings
from tiga.frontends.torch.tree import tree_map
from tiga.frontends.torch.unit import Unit, unit_of
from tiga.knobs import current
from tiga.relations import Graph

_STATE = "_tiga_state"


@dataclass(eq=False)
class Variant:
    """One program of a kernel and what must hold for it to serve a call.

    `bounded` runs what no trace holds; `fallback` what a trace holds, but no kernel can run, or not
    with gradients.
    """

    guards: Guards
    params: Mapping[str, Any]
    captured: Captured | None = None
    unit: Unit | None = None
    bounded: Bounded | None = None
    fallback: Bounded | None = None

    def __post_init__(self) -> None:
        if self.captured is None:
            return
        sources = self.captured.sources
        nodes = self.captured.program.inputs
        self.tensors = [
            (source, torch_dtype(node.type.dtype), node.type.shape)
            for source, node in zip(sources, nodes, strict=True)
            if isinstance(source, Place) and node not in self.captured.numbers
        ]
        self.single = self.captured.result == 0

    def fits(self, params: Mapping[str, Any]) -> bool:
        """Whether the program serves a call with these parameters now."""
        for name, expected in self.params.items():
            if not same(params.get(name), expected):
                return False
        return self.guards.hold() and self._tensors_fit()

    def _tensors_fit(self) -> bool:
        if self.captured is None:
            return True
        for source, dtype, shape in self.tensors:
            value = source.get()
            if value.dtype is not dtype or value.shape != shape:
                return False
        return True


@dataclass(eq=False)
class State:
    """The programs of one kernel instance. Copies and pickles of the instance start afresh."""

    owner: Any
    variants: dict[Any, list[Variant]] = field(default_factory=dict)
    hits: int = 0
    misses: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    orders: Any = field(default_factory=weakref.WeakKeyDictionary)
    checked: Checked = field(default_factory=Checked)
    last: Repeat | None = None

    def __reduce__(self) -> Any:
        return _no_state, ()

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def all(self) -> list[Variant]:
        """Every variant, oldest first."""
        return [v for found in list(self.variants.values()) for v in found]


def _no_state() -> None:
    return None


def state_of(kernel: MessagePassing) -> State:
    """The state of this very instance, made at its first use."""
    state = vars(kernel).get(_STATE)
    if state is None or state.owner() is not kernel:
        state = State(weakref.ref(kernel))
        vars(kernel)[_STATE] = state
    return state


def call(
    kernel: MessagePassing, graph: Any, src: Any, dst: Any, edge: Any, ndata: Any,
    params: Mapping[str, Any],
) -> Any:  # fmt: skip
    """Run a kernel on a graph; see `MessagePassing`."""
    if torch.compiler.is_compiling():
        from tiga.frontends.torch.compiled import call_in_graph

        return call_in_graph(kernel, graph, src, dst, edge, ndata, params)
    state = state_of(kernel)
    given = (src, dst, edge, ndata)
    topology = graph.snapshot() if type(graph) is Graph and not graph.paged else None
    last = None if params or topology is None else state.last
    values: Sequence[Any] | None = None
    if last is not None and topology is not None and last.serves(topology, given):
        state.hits += 1
        variant, values = last.variant, last.values(given)
        fields = NO_FIELDS if values is not None else _by_namespace(*given)
    else:
        fields = namespaces(graph, *given)
        key = _signature(graph, fields, params)
        variant = find_variant(state, kernel, key, fields, params)
        if variant.bounded is not None:
            return _run_bounded(variant.bounded, kernel, graph, fields, params)
        if topology is not None and not params:
            state.last = Repeat.of(topology, given, device_of(graph), variant)
    try:
        if values is None:
            values = _values(state, variant, graph, fields, params)
        return _run(variant, graph, values, topology)
    except Unfusable as reason:
        if variant.fallback is None:
            variant.fallback = Bounded(reason, discover(kernel))
    return _run_bounded(variant.fallback, kernel, graph, fields or _by_namespace(*given), params)


def _by_namespace(src: Any, dst: Any, edge: Any, ndata: Any) -> dict[str, Mapping[str, Any]]:
    """As `namespaces`, for fields that are known to be right."""
    edge = NO_FIELDS if edge is None else edge
    if ndata is not None:
        return {"ndata": ndata, "edge": edge}
    return {
        "src": NO_FIELDS if src is None else src, "dst": NO_FIELDS if dst is None else dst,
        "edge": edge,
    }  # fmt: skip


def _run_bounded(
    bounded: Bounded, kernel: MessagePassing, graph: Graph, fields: Any, params: Any
) -> Any:
    if kernel.strict or current().strict:
        raise _refusal(bounded.reason)
    if graph.paged:
        from tiga.frontends.torch.paged import refuse_bounded

        refuse_bounded(bounded.reason)
    return bounded.run(kernel, graph, fields, params)


def _refusal(reason: Unfusable) -> Unfusable:
    return Unfusable(
        f"{reason}. Write it with ops that fuse, or leave out `strict` (or TIGA_STRICT) to run it "
        f"through torch in blocks of destinations."
    )


def _signature(
    graph: Graph, fields: Mapping[str, Mapping[str, torch.Tensor]], params: Mapping[str, Any]
) -> tuple[Any, ...]:
    """What a program is specialised to: names, dtypes and widths of fields, kinds of parameters."""
    extents, device = extents_of(graph), device_of(graph)
    parts: list[Any] = []
    try:
        for namespace, values in fields.items():
            extent = extents[namespace]
            parts.append(namespace)
            for name, tensor in values.items():
                shape = tensor.shape
                strided = tensor.layout is torch.strided
                lies = tensor.device == device or may_stage(graph, tensor.device)
                if shape[0] != extent or not lies or not strided:
                    refuse(graph, fields, extents)
                parts += (name, tensor.dtype, shape[1:])
    except (AttributeError, IndexError, TypeError):
        refuse(graph, fields, extents)
    return _finish_key(parts, params)


def key_of(fields: Mapping[str, Mapping[str, torch.Tensor]], params: Mapping[str, Any]) -> Any:
    """The signature of a call whose fields are known to be right."""
    parts: list[Any] = []
    for namespace, values in fields.items():
        parts.append(namespace)
        for name, tensor in values.items():
            parts += (name, tensor.dtype, tensor.shape[1:])
    return _finish_key(parts, params)


def _finish_key(parts: list[Any], params: Mapping[str, Any]) -> tuple[Any, ...]:
    for name, value in params.items():
        parts.append(name)
        tensor = isinstance(value, torch.Tensor)
        parts.append((value.dtype, value.shape) if tensor else type(value))
    return (*parts, *settings())


def find_variant(
    state: State, kernel: MessagePassing, key: Any, fields: Any, params: Mapping[str, Any]
) -> Variant:
    """The variant that serves a call, captured if there is none."""
    for variant in state.variants.get(key, ()):
        if variant.fits(params):
            state.hits += 1
            return variant
    with state.lock:
        for variant in state.variants.get(key, ()):
            if variant.fits(params):
                state.hits += 1
                return variant
        state.misses += 1
        variant = _make(Request(kernel, fields, params))
        state.variants[key] = [variant, *state.variants.get(key, ())]
    return variant


def _make(request: Request) -> Variant:
    try:
        # The trace of a call is the same under every transform.
        with temporarily_clear_interpreter_stack():
            captured = capture(request)
    except Unfusable as reason:
        if request.kernel.strict or current().strict:
            raise _refusal(reason) from None
        return _make_bounded(request, reason)
    return Variant(captured.guards, captured.params, captured, unit_of(captured.program))


def _make_bounded(request: Request, reason: Unfusable) -> Variant:
    """torch reads everything itself at each call, so only the reason can become outdated."""
    discovery = discover(request.kernel)
    values = {n: v for n, v in request.params.items() if not isinstance(v, torch.Tensor)}
    return Variant(discovery.guards, values, bounded=Bounded(reason, discovery))


def _bind(variant: Variant, graph: Graph, fields: Any, params: Any, state: State) -> list[Any]:
    values = []
    for source in variant.captured.sources:  # type: ignore[union-attr]
        kind = type(source)
        if kind is FieldSource:
            value = fields[source.namespace][source.name]
            if source.namespace == "edge" and graph.permutes_edges:
                value = permute(value, *_orders(state, graph))
        elif kind is ParamSource:
            value = params[source.name]
        elif kind is EdgeOrder:
            value = _edge_order(state, graph)
        elif kind is NodeOrder:
            value = torch.arange(graph.num_dst, device=device_of(graph))
        elif isinstance(source, torch.Tensor):
            value = source
        else:
            value = source.get()
        if isinstance(value, torch.Tensor) and not value.is_contiguous():
            value = value.contiguous()
        values.append(value)
    return values


def _field(source: Any, fields: Any, params: Any) -> tuple[torch.Tensor, str]:
    """The tensor of a source as the user gave it, and its name."""
    if isinstance(source, FieldSource):
        return fields[source.namespace][source.name], f"{source.namespace}.{source.name}"
    if isinstance(source, ParamSource):
        return params[source.name], source.name
    return source if isinstance(source, torch.Tensor) else source.get(), "the index"


def _orders(state: State, graph: Graph) -> tuple[torch.Tensor, torch.Tensor]:
    """The permutation from edge order to CSR order, and its inverse."""
    token = graph.token()
    found = state.orders.get(graph)
    if found is None or found[0] != token:
        given = graph.edge_permutation
        # A numpy permutation is read-only, which `as_tensor` warns about.
        order = given if isinstance(given, torch.Tensor) else torch.tensor(given)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order), dtype=order.dtype, device=order.device)
        found = state.orders[graph] = (token, order, inverse)
    return found[1], found[2]


def _edge_order(state: State, graph: Graph) -> torch.Tensor:
    """The user's number of each edge, in CSR order, as int64."""
    if graph.permutes_edges:
        return _orders(state, graph)[0].long()
    return torch.arange(graph.num_edges, device=device_of(graph))


def _values(
    state: State, variant: Variant, graph: Graph, fields: Any, params: Any
) -> Sequence[Any]:
    """The inputs of a variant's program, checked as far as a call has to."""
    assert variant.captured is not None
    for bound in variant.captured.bounds:
        state.checked.require(bound, *_field(bound.source, fields, params))
    return _bind(variant, graph, fields, params, state)


def _run(variant: Variant, graph: Graph, values: Sequence[Any], topology: Any) -> Any:
    assert variant.unit is not None
    assert variant.captured is not None
    outputs = run(variant.unit, graph, None, values, topology)
    if variant.single:
        return outputs[0]
    return tree_map(lambda i: outputs[i], variant.captured.result)


def reference(kernel: MessagePassing, *, graph: Any, src: Any = None, dst: Any = None,
              edge: Any = None, ndata: Any = None, **params: Any) -> Any:  # fmt: skip
    """The result of a call by the numpy oracle."""
    from tiga.frontends.torch.oracle import evaluate_program

    fields = namespaces(graph, src, dst, edge, ndata)
    state = state_of(kernel)
    variant = find_variant(state, kernel, _signature(graph, fields, params), fields, params)
    if variant.captured is None:
        raise InvalidType("the oracle evaluates programs, and this call runs on the bounded path.")
    with torch.no_grad():
        values = _bind(variant, graph, fields, params, state)
    outputs = evaluate_program(variant.captured.program, values, graph)
    return tree_map(lambda i: outputs[i], variant.captured.result)
