"""From a program to its training form, its gradient program and its tangent program.

The training form also returns the row values that the gradient needs (a maximum, a softmax sum),
so that a gradient program walks again but never repeats a forward walk, and where it is asked to,
conditions of edges that would be dear to make again, as bits. As they are outputs, a derivative of
the gradient program flows through them back into the training program: derivatives of every order
are programs of the same kind.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tiga.trace.autodiff import jvp, vjp
from tiga.trace.kept_bits import kept_conditions
from tiga.trace.node import Node, reached, substitute, topological, users
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import Shape, Type

MakeInput = Callable[[str, Type], Node]


@dataclass(frozen=True)
class Rules:
    """What the trace level needs of the ops: how to add two values, how to make an input, how to
    keep a condition as bits, and how to get one of a shape from them."""

    add: Callable[[Node, Node], Node]
    make_input: MakeInput
    pack: Callable[[Node], Node]
    unpack: Callable[[Node, Shape], Node]


@dataclass(frozen=True)
class Gradient:
    """A gradient program and where its arguments come from.

    `arguments` holds `("input", i)`, `("output", i)` or `("cotangent", i)` of the training
    program per argument; `wanted` says of which inputs its outputs are the gradients, in order;
    inputs of `wanted` without a derivative are absent.
    """

    program: Program
    arguments: tuple[tuple[str, int], ...]
    wanted: tuple[int, ...]


RECOMPUTE_COST = 4
"""A value of a node that edges read is worth an array if some op that makes it costs as much."""


def _roots(order: Sequence[Node]) -> dict[Node, frozenset[Node]]:
    """For nodes off the edges that need a walk: the collecting nodes that they are made from."""
    found: dict[Node, frozenset[Node]] = {}
    for node in order:
        if node.type.on_edges:
            continue
        below = (found[child] for child in node.inputs if child in found)
        roots = frozenset().union(*below)
        if node.op.collects:
            found[node] = frozenset({node})
        elif roots:
            found[node] = roots
    return found


def _kept_for(
    order: Sequence[Node], roots: dict[Node, frozenset[Node]], outputs: set[Node]
) -> dict[Node, tuple[Node, ...]]:
    """What to keep so that each of the nodes of `roots` need not be walked for again.

    A value made from one kept value is cheap to make again from it, a joined one from its parts;
    one that combines several is kept itself, beneath mere casts and rearrangements.
    """
    found: dict[Node, tuple[Node, ...]] = {}
    for node in order:
        if node not in roots:
            continue
        below = [child for child in node.inputs if child in roots]
        kept = tuple(dict.fromkeys(n for child in below for n in found[child]))
        again = len(roots[node]) == 1 or len(below) == 1 or len(kept) == 1
        alone = node in outputs or node.op.collects
        again = (again or node.op.concatenates) and not alone
        found[node] = kept if again else (node,)
    return found


def _all_that_reads(
    node: Node, readers: dict[Node, list[Node]], roots: dict[Node, frozenset[Node]]
) -> Node:
    """The value that is all there is of `node` to its readers, if it is as large: a product with
    its bias is kept in place of the product, and not made again."""
    while len(readers.get(node, ())) == 1:
        (reader,) = readers[node]
        others = [child for child in reader.inputs if child is not node]
        alone = not any(child in roots for child in others)
        if reader.type != node.type or reader.op.collects or not alone:
            break
        node = reader
    return node


def _expanded(program: Program) -> list[Node]:
    """The nodes of a program, and those of what its derived ops stand for."""
    expanded = program.rewritten(lambda node, inputs: node.op.expand(*inputs))
    return topological((*program.outputs, *expanded.outputs))


def _reached(outputs: Sequence[Node], roots: dict[Node, frozenset[Node]]) -> list[Node]:
    """The nodes that `outputs` are made of, down to the first that need a walk."""
    return list(reached(outputs, roots.__contains__))


def _is_dear(node: Node, roots: dict[Node, frozenset[Node]]) -> bool:
    """Whether a value made from collected ones is worth more than making it again at each edge."""
    made = reached([node], lambda n: n.op.collects, lambda n: filter(roots.__contains__, n.inputs))
    return any(n.op.cost >= RECOMPUTE_COST and not n.op.collects for n in made)


def _new_input(program: Program, rules: Rules, label: str, of: Type) -> Node:
    """An input that `program` does not have: inputs of one label and type are one node, and the
    derivative of a gradient program has cotangents beside those of the first."""
    taken = {node.op.label for node in program.inputs}
    while label in taken:
        label += "'"
    return rules.make_input(label, of)


def _cotangents(program: Program, present: Sequence[int], rules: Rules) -> list[Node]:
    return [_new_input(program, rules, f"cotangent{i}", program.outputs[i].type) for i in present]


def training(
    program: Program, wanted: Sequence[int], rules: Rules, *, bits: bool = False
) -> Program:
    """`program` with the row values saved that the gradient of `wanted` inputs reads; with `bits`
    also the conditions of edges that are worth it."""
    present = [i for i, node in enumerate(program.outputs) if node.type.dtype.is_float]
    targets = [program.inputs[i] for i in wanted]
    outputs = [program.outputs[i] for i in present]
    cotangents = _cotangents(program, present, rules)
    found = vjp(outputs, cotangents, targets, rules.add)
    gradients = [g for g in found if g is not None]
    conditions = kept_conditions(gradients, cotangents) if bits else []
    packed = [rules.pack(condition) for condition in conditions]
    gradients = substitute(gradients, _unpacked(conditions, packed, rules))
    order = _expanded(program)
    roots = _roots(order)
    reached = _reached(gradients, roots)
    read = (child for node in reached if node.op.origin is Origin.END for child in node.inputs)
    dear = {child for child in read if child in roots and _is_dear(child, roots)}
    kept = _kept_for(order, roots, dear.union(program.outputs))
    saved = {n for node in reached if node in roots for n in kept[node]}
    readers = users(topological([*program.outputs, *gradients]))
    last = set(program.outputs)
    saved = {n if n in last else _all_that_reads(n, readers, roots) for n in saved}
    extra = [n for n in order if n in saved and n not in program.outputs]
    return Program(program.inputs, (*program.outputs, *extra, *packed))


def _unpacked(conditions: Sequence[Node], bits: Sequence[Node], rules: Rules) -> dict[Node, Node]:
    """What stands for some conditions where a gradient reads them from bits."""
    pairs = zip(conditions, bits, strict=True)
    return {condition: rules.unpack(words, condition.type.shape) for condition, words in pairs}


def gradient(
    program: Program, wanted: Sequence[int], present: Sequence[int], rules: Rules
) -> Gradient:
    """The gradient program of a training program for the outputs that have a cotangent."""
    cotangents = _cotangents(program, present, rules)
    outputs = [program.outputs[i] for i in present]
    found = vjp(outputs, cotangents, [program.inputs[i] for i in wanted], rules.add)
    kept = [(i, g) for i, g in zip(wanted, found, strict=True) if g is not None]
    walked = _roots(program.order)
    stored = {
        node: _new_input(program, rules, f"output{i}", node.type)
        for i, node in enumerate(program.outputs)
        if node in walked or node.op.packs
    }
    bits = [node for node in stored if node.op.packs]
    conditions = [node.inputs[0] for node in bits]
    known = _unpacked(conditions, [stored[node] for node in bits], rules)
    results = substitute([g for _, g in kept], stored | known)
    leaves = {
        **{node: ("input", i) for i, node in enumerate(program.inputs)},
        **{leaf: ("output", program.outputs.index(node)) for node, leaf in stored.items()},
        **{node: ("cotangent", i) for i, node in zip(present, cotangents, strict=True)},
    }
    needed = set(topological(results))
    used = [leaf for leaf in leaves if leaf in needed]
    return Gradient(
        Program(tuple(used), tuple(results)),
        tuple(leaves[leaf] for leaf in used),
        tuple(i for i, _ in kept),
    )


def tangent(program: Program, moving: Sequence[int], rules: Rules) -> tuple[Program, list[int]]:
    """The program of the outputs' tangents for tangents of the `moving` inputs.

    Its inputs are those of `program` followed by one tangent per moving input; the list says
    which outputs have a tangent at all.
    """
    tangents = [_new_input(program, rules, f"tangent{i}", program.inputs[i].type) for i in moving]
    known = {program.inputs[i]: t for i, t in zip(moving, tangents, strict=True)}
    found = jvp(program.outputs, known, rules.add)
    live = [i for i, t in enumerate(found) if t is not None]
    return Program((*program.inputs, *tangents), tuple(t for t in found if t is not None)), live
