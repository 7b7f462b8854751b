"""Whether a user's reducer is what it claims to be: `combine` on random states, by the oracle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from tiga.errors import InvalidValue
from tiga.frontends.agreement import in_float64, widened
from tiga.frontends.torch.oracle import to_numpy
from tiga.ops.align import expand_to
from tiga.ops.leaf import Input
from tiga.ops.pointwise import cast
from tiga.reducers import CustomReducer, Fold
from tiga.trace.node import Node, topological
from tiga.trace.program import Program
from tiga.types import Type

SAMPLES = 64
States = list[np.ndarray]


def check_claims(traced: Any, messages: Sequence[Node], types: Sequence[Type], rule: Fold) -> None:
    """Try the claims on states lifted from random messages, in float64.

    Raises:
        InvalidValue: `associative` or `commutative` is claimed and does not hold, or the
            `identity` of an associative reducer changes a state that it is combined with. The
            message holds states that show it.
    """
    read = _now(traced, rule.read)
    start = _now(traced, rule.identity)
    samples = _samples(traced, messages, types)
    if read is None or start is None or samples is None:
        return  # recorded without values, as torch.compile does
    known = _Known(widened(rule).combine, read)
    for a, b, c in samples:
        if traced.reducer.commutative:
            _require(traced, "commutative = True", known(a, b), known(b, a), (a, b))
        if traced.reducer.associative:
            left, right = known(known(a, b), c), known(a, known(b, c))
            _require(traced, "associative = True", left, right, (a, b, c))
            begin = [np.broadcast_to(x, y.shape) for x, y in zip(start, a, strict=True)]
            _require(traced, "identity", known(begin, a), a, (a,))


@dataclass(frozen=True)
class _Known:
    """`combine`, and what it reads beside its states."""

    combine: Program
    read: States

    def __call__(self, left: States, right: States) -> States:
        return evaluate_on(self.combine, [*left, *right, *self.read])


def _now(traced: Any, nodes: Sequence[Node]) -> States | None:
    """Global values as they are at this call; None where tensors have no values yet."""
    inputs = tuple(n for n in topological(nodes) if n.op.name == "input")
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
    read = [n for n in topological(nodes) if n.op.name == "input" and n not in inputs]
    known = _now(traced, read)
    if known is None:
        return None
    wide = in_float64([*inputs, *read, *nodes])
    count = len(inputs) + len(read)
    program = Program(tuple(wide[:count]), tuple(wide[count:]))
    return _evaluated(program, known)


def _evaluated(program: Program, known: States) -> Iterator[Sequence[States]]:
    rng = np.random.default_rng(0)
    draws = (
        lambda shape: rng.standard_normal(shape),
        lambda shape: rng.uniform(0.5, 1.5, shape),
        lambda shape: rng.integers(-2, 3, shape),
    )
    drawn = program.inputs[: len(program.inputs) - len(known)]
    for draw in draws:
        yield [
            evaluate_on(program, [*(_drawn(draw, n.type) for n in drawn), *known]) for _ in range(3)
        ]


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


def _require(traced: Any, claim: str, got: States, want: States, states: Sequence[States]) -> None:
    for x, y in zip(got, want, strict=True):
        both = np.isfinite(x) & np.isfinite(y)
        wrong = both & ~np.isclose(x, y, 1e-8, 1e-10)
        if not wrong.any():
            continue
        at = tuple(np.argwhere(wrong)[0])
        given = (f"{n} = {_told(s, at[0])}" for n, s in zip("abc", states, strict=False))
        raise InvalidValue(
            f"{method_line(traced.reducer, 'combine')}: {traced.name} says `{claim}`, but "
            f"{_LAWS[claim]} fails: {x[at]:.6g} against {y[at]:.6g}, for {', '.join(given)}. "
            f"Correct `combine`, or what the class says."
        )


def _told(state: States, sample: int) -> str:
    """One state in short: its components, and the first elements of each."""
    parts = [np.array2string(x[sample], precision=6, threshold=8, separator=", ") for x in state]
    text = [" ".join(part.split()) for part in parts]
    return text[0] if len(text) == 1 else f"({', '.join(text)})"


_LAWS = {
    "identity": "combine(identity, a) == a",
    "commutative = True": "combine(a, b) == combine(b, a)",
    "associative = True": "combine(combine(a, b), c) == combine(a, combine(b, c))",
}
