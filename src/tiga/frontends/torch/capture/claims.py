"""Whether a user's reducer is what it claims to be: `combine` on random states, by the oracle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from tiga.frontends.agreement import in_float64, widened
from tiga.frontends.claims import DRAWS, States, drawn, require_claims
from tiga.frontends.torch.oracle import to_numpy
from tiga.ops.align import expand_to
from tiga.ops.leaf import Input
from tiga.ops.pointwise import cast
from tiga.reducers import Fold
from tiga.trace.node import Node, topological
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import Type


def check_claims(traced: Any, messages: Sequence[Node], types: Sequence[Type], rule: Fold) -> None:
    """Try the claims on states lifted from random messages, in float64.

    Raises:
        InvalidValue: a claim does not hold (`require_claims`).
    """
    read = _now(traced, rule.read)
    start = _now(traced, rule.identity)
    samples = _samples(traced, messages, types)
    if read is None or start is None or samples is None:
        return  # recorded without values, as torch.compile does
    require_claims(traced.reducer, _Known(widened(rule).combine, read), start, samples)


@dataclass(frozen=True)
class _Known:
    """`combine`, and what it reads beside its states."""

    combine: Program
    read: States

    def __call__(self, left: States, right: States) -> States:
        return evaluate_on(self.combine, [*left, *right, *self.read])


def _now(traced: Any, nodes: Sequence[Node]) -> States | None:
    """Global values as they are at this call; None where tensors have no values yet."""
    inputs = tuple(n for n in topological(nodes) if n.op.origin is Origin.ARGUMENT)
    values = [traced.recorder.values.get(n, traced.recorder.inputs[n]) for n in inputs]
    if not all(map(_has_values, values)):
        return None
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        arrays = [to_numpy(v, n.type.dtype)[None] for v, n in zip(values, inputs, strict=True)]
    return evaluate_on(Program(inputs, tuple(nodes)), arrays)


def _has_values(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return isinstance(value, (int, float))
    plain = type(value) in (torch.Tensor, torch.nn.Parameter)
    return plain and not torch._C._functorch.is_functorch_wrapped_tensor(value)


def _samples(
    traced: Any, messages: Sequence[Node], types: Sequence[Type]
) -> Iterator[Sequence[States]] | None:
    """Three states each, from messages of any sign, of positive ones and of small integers; None
    if `lift` reads what has no values yet."""
    inputs = [Input(f"message{i}", m.type)() for i, m in enumerate(messages)]
    _, lifted = traced.lift(inputs, inputs[0].type.space)
    nodes = [shaped(n, t) for n, t in zip(lifted, types, strict=True)]
    read = [n for n in topological(nodes) if n.op.origin is Origin.ARGUMENT and n not in inputs]
    known = _now(traced, read)
    if known is None:
        return None
    wide = in_float64([*inputs, *read, *nodes])
    count = len(inputs) + len(read)
    program = Program(tuple(wide[:count]), tuple(wide[count:]))
    return _evaluated(program, known)


def _evaluated(program: Program, known: States) -> Iterator[Sequence[States]]:
    rng = np.random.default_rng(0)
    messages = program.inputs[: len(program.inputs) - len(known)]
    for draw in DRAWS:
        yield [
            evaluate_on(
                program, [*(drawn(draw, rng, n.type.dtype, n.type.shape) for n in messages), *known]
            )
            for _ in range(3)
        ]


def shaped(node: Node, of: Type) -> Node:
    """A component as a state holds it: broadcast, and of the state's dtype."""
    return expand_to(cast(node, of.dtype), of.shape, of.space)


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
