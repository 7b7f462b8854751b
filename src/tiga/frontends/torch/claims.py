"""Whether a user's reducer is what it claims to be: `combine` on random states, by the oracle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tiga.errors import InvalidValue
from tiga.frontends.torch.oracle import to_numpy
from tiga.ops.align import expand_to
from tiga.ops.leaf import Input
from tiga.ops.pointwise import cast
from tiga.reducers import CustomReducer
from tiga.trace.node import Node, topological
from tiga.trace.program import Program
from tiga.types import Type

SAMPLES = 64
States = list[np.ndarray]


def check_claims(traced: Any, messages: Sequence[Node], types: Sequence[Type], rule: Any) -> None:
    """Try the claims on states lifted from random messages.

    Raises:
        InvalidValue: `associative` or `commutative` is claimed and does not hold, or the
            `identity` of an associative reducer changes a state that it is combined with.
    """
    read = _constants(traced, rule.read)
    start = _constants(traced, rule.identity)
    if read is None or start is None:
        return  # they hold other values at other calls
    rule = _Known(rule.combine, read)
    for sample in _samples(traced, messages, types):
        a, b, c = sample
        if traced.reducer.commutative:
            _require(traced, rule, "commutative = True", (a, b), (b, a))
        if traced.reducer.associative:
            left, right = rule(a, b), rule(b, c)
            _require(traced, rule, "associative = True", (left, c), (a, right))
            begin = [np.broadcast_to(x, y.shape) for x, y in zip(start, a, strict=True)]
            _require(traced, rule, "identity", (begin, a), ((), a))


@dataclass(frozen=True)
class _Known:
    """`combine`, and what it reads beside its states."""

    combine: Program
    read: States

    def __call__(self, left: States, right: States) -> States:
        return evaluate_on(self.combine, [*left, *right, *self.read])


def _constants(traced: Any, nodes: Sequence[Node]) -> States | None:
    """Global values that are the same at every call; None if some are not."""
    inputs = tuple(n for n in topological(nodes) if n.op.name == "input")
    sources = [traced.recorder.inputs[n] for n in inputs]
    if not all(isinstance(source, torch.Tensor) for source in sources):
        return None
    arrays = [to_numpy(s, n.type.dtype)[None] for s, n in zip(sources, inputs, strict=True)]
    return evaluate_on(Program(inputs, tuple(nodes)), arrays)


def _samples(traced: Any, messages: Sequence[Node], types: Sequence[Type]) -> Iterator[Any]:
    """Three states each, from messages of any sign, of positive ones and of small integers."""
    inputs = [Input(f"message{i}", m.type)() for i, m in enumerate(messages)]
    _, lifted = traced.lift(inputs, inputs[0].type.space)
    nodes = tuple(shaped(n, t) for n, t in zip(lifted, types, strict=True))
    program = Program(tuple(inputs), nodes)
    rng = np.random.default_rng(0)
    draws = (
        lambda shape: rng.standard_normal(shape),
        lambda shape: rng.uniform(0.5, 1.5, shape),
        lambda shape: rng.integers(-2, 3, shape),
    )
    for draw in draws:
        yield [evaluate_on(program, [_drawn(draw, n.type) for n in inputs]) for _ in range(3)]


def shaped(node: Node, of: Type) -> Node:
    """A component as a state holds it: broadcast, and of the state's dtype."""
    return expand_to(cast(node, of.dtype), of.shape, of.space)


def method_line(reducer: CustomReducer, name: str) -> str:
    """`file:line` of a method of a reducer."""
    code = getattr(getattr(reducer, name), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else name


def _drawn(draw: Any, of: Type) -> np.ndarray:
    values = draw((SAMPLES, *of.shape))
    return (values > 0 if of.dtype.kind == "b" else values).astype(of.dtype.numpy)


def evaluate_on(program: Program, arrays: Sequence[np.ndarray]) -> States:
    """The outputs of a program without relations, one row per sample."""
    known: dict[Node, np.ndarray] = dict(zip(program.inputs, arrays, strict=True))
    with np.errstate(all="ignore"):
        for node in program.order:
            if node not in known:
                value = node.op.reference(*(known[i] for i in node.inputs))
                known[node] = value.astype(node.type.dtype.numpy)
    return [
        np.broadcast_to(known[n], (max(len(known[n]), 1), *n.type.shape)) for n in program.outputs
    ]


def _require(traced: Any, rule: _Known, claim: str, one: Any, other: Any) -> None:
    got = rule(*one)
    want = other[1] if not len(other[0]) else rule(*other)
    for x, y in zip(got, want, strict=True):
        rtol, atol = (1e-8, 1e-10) if x.dtype.itemsize == 8 else (1e-3, 1e-4)
        both = np.isfinite(x.astype(np.float64)) & np.isfinite(y.astype(np.float64))
        wrong = both & ~np.isclose(x, y, rtol, atol)
        if not wrong.any():
            continue
        at = tuple(np.argwhere(wrong)[0])
        raise InvalidValue(
            f"{method_line(traced.reducer, 'combine')}: {traced.name} says `{claim}`, but "
            f"{_LAWS[claim]} fails on random states: {x[at]} against {y[at]}. Correct `combine`, "
            f"or what the class says."
        )


_LAWS = {
    "identity": "combine(identity, a) == a",
    "commutative = True": "combine(a, b) == combine(b, a)",
    "associative = True": "combine(combine(a, b), c) == combine(a, combine(b, c))",
}
