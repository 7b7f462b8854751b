"""`MessagePassing.reference` on native tensors: a call by the numpy oracle, op by op."""

from collections.abc import Mapping
from typing import Any

from tiga.backends.reference import EdgeList, evaluate
from tiga.errors import InvalidType, Unfusable
from tiga.frontends.message_passing import FieldSets, MessagePassing
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions.creation import tensor
from tiga.frontends.tensor.lazy import LazyNode, here
from tiga.frontends.tensor.messages.call import KernelCall
from tiga.frontends.tensor.messages.edge_order import in_given_order
from tiga.frontends.trees import mapped
from tiga.trace.node import Node


def reference(
    kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]
) -> Any:
    """The result of a call, where its fields are and without derivatives.

    Raises:
        InvalidType: the call is no program; everything else as a call does.
    """
    try:
        run = KernelCall.of(kernel, graph, given, params)
        plan = run.plan()
    except Unfusable as reason:
        raise InvalidType(
            f"reference expected a call that is one program, got one that goes through memory "
            f"({here()}): {reason}"
        ) from None
    edges = EdgeList.of(graph.csr())
    arrays = [_value(node)._host() for node in run.inputs(plan)]
    found = evaluate(plan.program, arrays, dict.fromkeys(plan.program.relations, edges))

    def output(index: int) -> Tensor:
        made = tensor(found[index], device=run.device)
        if not plan.on_edges[index]:
            return made
        return _value(in_given_order(made._node, run.topology, run.device)).realize()

    return mapped(output, plan.tree)


def _value(node: Node) -> Tensor:
    assert isinstance(node, LazyNode)
    return Tensor(node, False)
