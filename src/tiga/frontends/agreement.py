"""Whether what was recognised in a reducer computes what its fold computes: on random states."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tiga.backends.reference import EdgeList, evaluate
from tiga.ops.leaf import Input, constant
from tiga.ops.pointwise import cast
from tiga.reducers import Fold, Messages
from tiga.reducers.recognise import Form, Forms, Lifted, recognise
from tiga.reducers.rows import RowStates
from tiga.trace.node import Node, rewrite, topological
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import Relation, Space, Type, float64

DEGREES = (0, 1, 2, 4, 7)
RELATION = Relation("sample", Space("sample_src", "node"), Space("sample_dst", "node"))
RARE = 0.2
"""How often a state of the second and third sample is infinite, or no number."""


@lru_cache(maxsize=256)
def trusted_forms(rule: Fold, lifted: Lifted) -> Forms:
    """What is recognised in a reducer, if it agrees with the fold; else nothing."""
    forms = recognise(rule, lifted)
    return forms if agree(rule, forms, lifted) else {}


def agree(rule: Fold, forms: Forms, lifted: Lifted) -> bool:
    """Whether both ways give the same states in float64, for finite, infinite and NaN states.

    Where the fold itself gives NaN from infinite states, anything is right; also where it gives
    infinite squared deviations.
    """
    if not forms:
        return True
    types = (_wide(n.type).with_space(RELATION.edge) for n in rule.left)
    parts = [_state(i, of, lifted) for i, of in enumerate(types)]
    wide = widened(rule)
    messages = Messages(RELATION, tuple(parts))
    folded, formed = (RowStates(messages, wide, f).all() for f in ({}, forms))
    inputs = tuple(n for n in topological((*folded, *formed)) if n.op.origin is Origin.ARGUMENT)
    program = Program(inputs, (*folded, *formed))
    edges = np.repeat(np.arange(len(DEGREES)), DEGREES)
    topology = {RELATION: EdgeList(np.zeros_like(edges), edges, 1, len(DEGREES))}
    for arrays, nan_counts in _samples(inputs, len(edges)):
        found = evaluate(program, arrays, topology)
        wanted, got = found[: rule.width], found[rule.width :]
        if not all(_same(wanted[i], got[i], forms.get(i), nan_counts) for i in range(rule.width)):
            return False
    return True


def _state(i: int, of: Type, lifted: Lifted) -> Node:
    if i in lifted.ones:
        return constant(1, of)
    return constant(0, of) if i in lifted.zeros else Input(f"state{i}", of)()


def _same(want: np.ndarray, got: np.ndarray, form: Form | None, nan_counts: bool) -> bool:
    close = np.isclose(got, want, 1e-8, 1e-10, equal_nan=True)
    if nan_counts:
        return bool(np.all(close))
    # Infinite messages are at no distance from their mean: NaN, as torch says, or infinity.
    anything = ~np.isfinite(want) if form and form.kind == "deviations" else want != want
    return bool(np.all(close | anything))


def _wide(of: Type) -> Type:
    return of.with_dtype(float64) if of.dtype.is_float else of


def in_float64(nodes: Sequence[Node]) -> list[Node]:
    """The nodes with every float value in float64."""

    def widen(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if not node.type.dtype.is_float:
            return None
        if node.op.origin is Origin.NUMBER:
            return constant(node.op.value, _wide(node.type))
        if node.op.origin is Origin.ARGUMENT:
            return Input(node.op.label, _wide(node.type))()
        return cast(inputs[0], float64) if node.op.converts else None

    return rewrite(nodes, widen)


def widened(rule: Fold) -> Fold:
    """The rule with every float value in float64."""
    old = (rule.combine.inputs, rule.combine.outputs, rule.identity, rule.read)
    wide = iter(in_float64([node for part in old for node in part]))
    inputs, outputs, identity, read = (tuple(next(wide) for _ in part) for part in old)
    return replace(rule, combine=Program(inputs, outputs), identity=identity, read=read)


def _samples(inputs: Sequence[Node], edges: int) -> Iterator[tuple[list[np.ndarray], bool]]:
    """Arrays for the inputs, and whether a NaN in the fold's result must be one in the other."""
    rng = np.random.default_rng(0)
    rare: Mapping[bool, Callable[..., np.ndarray]] = {
        False: lambda shape: rng.choice([-np.inf, np.inf], shape),
        True: lambda shape: np.full(shape, np.nan),
    }
    draws = [_drawn(rng, n.type, edges) for n in inputs]
    yield draws, False
    for nan_counts, special in rare.items():
        yield [_mixed(rng, n, a, special) for n, a in zip(inputs, draws, strict=True)], nan_counts


def _drawn(rng: np.random.Generator, of: Type, edges: int) -> np.ndarray:
    shape = (edges, *of.shape) if of.space == RELATION.edge else of.shape
    if of.dtype.is_float and of.space != RELATION.edge:
        return rng.uniform(0.5, 1.5, shape)  # a temperature, say
    if of.dtype.is_float:
        return rng.standard_normal(shape)
    return rng.integers(0, 2 if of.dtype.kind == "b" else 5, shape).astype(of.dtype.numpy)


def _mixed(
    rng: np.random.Generator, node: Node, array: np.ndarray, special: Callable[..., np.ndarray]
) -> np.ndarray:
    """The array with some states replaced; what `combine` reads beside states stays finite."""
    if node.type.space != RELATION.edge or not node.type.dtype.is_float:
        return array
    return np.where(rng.random(array.shape) < RARE, special(array.shape), array)
