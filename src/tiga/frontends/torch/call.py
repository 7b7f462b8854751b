"""A call: find the program that fits, bind the tensors, run."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tiga.errors import InvalidType, Unfusable
from tiga.frontends.message_passing import Fields, FieldSets, MessagePassing
from tiga.frontends.torch.autograd import run
from tiga.frontends.torch.binding import bind, in_given_order, source_value
from tiga.frontends.torch.blocks.bounded import Bounded
from tiga.frontends.torch.devices import device_of
from tiga.frontends.torch.fields import namespaces
from tiga.frontends.torch.repeat import NO_FIELDS, Repeat
from tiga.frontends.torch.variants import (
    State,
    Variant,
    find_variant,
    refusal,
    signature,
    state_of,
    variant_of,
)
from tiga.frontends.trees import mapped
from tiga.knobs import current
from tiga.relations import Graph
from tiga.runtime.caller import user_line


def call(kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]) -> Any:
    """Run a kernel on a graph; see `MessagePassing`."""
    if torch.compiler.is_compiling():
        from tiga.frontends.torch.compiled.call import call_in_graph

        return call_in_graph(kernel, graph, given, params)
    state = state_of(kernel)
    topology = graph.snapshot() if isinstance(graph, Graph) and not graph.paged else None
    last = None if params or topology is None else state.last
    values: Sequence[Any] | None = None
    if last is not None and topology is not None and last.topology() is not topology:
        last = last.on(topology, device_of(graph))
    if last is not None and topology is not None and last.serves(topology, given):
        state.hits += 1
        state.last = last
        variant, values = last.variant, last.values(given)
        fields = NO_FIELDS if values is not None else _by_namespace(given)
    else:
        fields = namespaces(graph, given)
        key = signature(graph, fields, params)
        variant = find_variant(state, kernel, key, fields, params)
        if variant.bounded is not None:
            return _run_bounded(variant.bounded, kernel, graph, fields, params)
        if topology is not None and not params:
            state.last = Repeat.of(topology, given, device_of(graph), variant)
    try:
        if values is None:
            values = values_of(state, variant, graph, fields, params)
        return _run(variant, graph, values, topology, state)
    except Unfusable as reason:
        fallback = variant.refuse(reason, kernel, params)
    return _run_bounded(fallback, kernel, graph, fields or _by_namespace(given), params)


def _by_namespace(given: FieldSets) -> dict[str, Fields]:
    """As `namespaces`, for fields that are known to be right."""
    src, dst, edge, ndata = given
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
        raise refusal(bounded.reason)
    return bounded.run(kernel, graph, fields, params)


def values_of(
    state: State, variant: Variant, graph: Graph, fields: Any, params: Any
) -> Sequence[Any]:
    """The inputs of a variant's program, checked as far as a call has to."""
    assert variant.captured is not None
    for bound in variant.captured.bounds:
        state.checked.require(bound, *source_value(bound.source, fields, params))
    return bind(variant.captured, graph, fields, params)


def _run(variant: Variant, graph: Graph, values: Sequence[Any], topology: Any, state: State) -> Any:
    assert variant.unit is not None
    assert variant.captured is not None
    outputs = run(variant.unit, graph, None, values, topology)
    if variant.on_edges:
        outputs = in_given_order(outputs, variant.on_edges, graph)
    if variant.single:
        return outputs[0]
    return mapped(lambda i: outputs[i], variant.captured.result)


def reference(
    kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]
) -> Any:
    """The result of a call by the numpy oracle."""
    from tiga.frontends.torch.oracle import evaluate_program

    fields = namespaces(graph, given)
    variant = variant_of(kernel, graph, fields, params)
    if variant.captured is None:
        raise InvalidType(
            "reference expected a call that is one program, got one that goes through memory "
            f"({user_line()}): {variant.bounded.reason if variant.bounded else 'it has no program'}"
        )
    with torch.no_grad():
        values = bind(variant.captured, graph, fields, params)
    outputs: Sequence[Any] = evaluate_program(variant.captured.program, values, graph)
    outputs = in_given_order(outputs, variant.on_edges, graph)
    return mapped(lambda i: outputs[i], variant.captured.result)
