"""Reverse and forward differentiation of traces: one walk each over the ops' own rules."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from tiga.trace.node import Node, topological

Sum = Callable[[Node, Node], Node]
Conjugate = Callable[[Node], Node]


def _reaching(order: Sequence[Node], targets: Sequence[Node]) -> set[Node]:
    """Nodes of `order` through which a derivative can flow to one of `targets`."""
    reached: set[Node] = set(targets)
    for node in order:
        if node.type.dtype.is_differentiable and any(child in reached for child in node.inputs):
            reached.add(node)
    return reached


def _local(
    node: Node, cotangent: Node, conjugate: Conjugate | None, wanted: Sequence[bool]
) -> Sequence[Node | None]:
    """The op's cotangents of its inputs, of those that are wanted at least.

    Complex cotangents are conjugate Wirtinger derivatives. An op's rule multiplies the cotangent
    by the derivative, so where the op is holomorphic, conjugating before and after the rule
    multiplies by the derivative's conjugate.
    """
    if not node.type.dtype.is_complex or not node.op.holomorphic:
        return node.op.vjp_of(wanted, cotangent, node, *node.inputs)
    assert conjugate is not None, "complex traces need a conjugate"
    parts = node.op.vjp_of(wanted, conjugate(cotangent), node, *node.inputs)
    return [None if part is None else conjugate(part) for part in parts]


def vjp(
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    inputs: Sequence[Node],
    add: Sum,
    conjugate: Conjugate | None = None,
) -> list[Node | None]:
    """Gradients of `sum(outputs * cotangents)` with respect to `inputs`.

    `inputs` may be any nodes of the trace; None where no derivative flows. `add` builds the sum
    of two cotangents of one type, `conjugate` the complex conjugate (of complex traces).
    """
    order = topological(outputs)
    reached = _reaching(order, inputs)
    sums: dict[Node, Node] = {}

    def accumulate(node: Node, cotangent: Node | None) -> None:
        if cotangent is None or node not in reached:
            return
        assert cotangent.type == node.type, f"{cotangent.type} is no cotangent of {node!r}"
        known = sums.get(node)
        sums[node] = cotangent if known is None else add(known, cotangent)

    for output, seed in zip(outputs, cotangents, strict=True):
        accumulate(output, seed)
    wanted = set(inputs)
    for node in reversed(order):
        cotangent = sums.get(node)
        if cotangent is None or not any(c in reached for c in node.inputs):
            continue
        if node in wanted and not any(c in wanted or c in reached for c in node.inputs):
            continue
        needed = [child in reached for child in node.inputs]
        parts = _local(node, cotangent, conjugate, needed)
        for child, part in zip(node.inputs, parts, strict=True):
            accumulate(child, part)
    return [sums.get(node) for node in inputs]


def jvp(outputs: Sequence[Node], tangents: Mapping[Node, Node], add: Sum) -> list[Node | None]:
    """Directional derivatives of `outputs` for the given tangents of inputs."""
    known: dict[Node, Node | None] = dict(tangents)
    for node in topological(outputs):
        if node in known:
            continue
        parts = [known.get(child) for child in node.inputs]
        live = node.type.dtype.is_differentiable and any(part is not None for part in parts)
        terms = node.op.jvp(parts, node, *node.inputs) if live else []
        known[node] = reduce(add, terms) if terms else None
    return [known.get(output) for output in outputs]
