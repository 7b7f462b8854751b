"""Whether a user's reducer on native tensors is what it claims: its methods on random states."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tiga.frontends.claims import DRAWS, SAMPLES, States, drawn, require_claims
from tiga.frontends.tensor.build import as_tensor
from tiga.frontends.tensor.functions.creation import from_numpy
from tiga.frontends.trees import leaves_of, mapped, numbered
from tiga.reducers import CustomReducer
from tiga.types import DType, Type, float64


def check_claims(reducer: CustomReducer, messages: Sequence[Type], states: Sequence[Any]) -> None:
    """Call the reducer's methods on states lifted from random messages, in float64.

    Args:
        reducer: the reducer.
        messages: the types of its messages.
        states: dtype and shape of each component of a state.

    Raises:
        InvalidValue: a claim does not hold (`require_claims`).
    """

    def arrays(tree: Any) -> States:
        found = [as_tensor(leaf).astype(_wide(s.dtype)).numpy()
                 for leaf, s in zip(leaves_of(tree), states, strict=True)]  # fmt: skip
        return [np.broadcast_to(a, (len(a) if a.ndim > len(s.shape) else SAMPLES, *s.shape))
                for a, s in zip(found, states, strict=True)]  # fmt: skip

    def lifted(draw: Any, rng: np.random.Generator) -> Any:
        given = (drawn(draw, rng, _wide(m.dtype), m.shape) for m in messages)
        return reducer.lift(*map(from_numpy, given))

    def samples() -> Iterator[Sequence[States]]:
        rng = np.random.default_rng(0)
        for draw in DRAWS:
            yield [arrays(lifted(draw, rng)) for _ in range(3)]

    shape = numbered(reducer.identity())

    def combine(left: States, right: States) -> States:
        sides = ([from_numpy(np.array(a)) for a in side] for side in (left, right))
        return arrays(reducer.combine(*(mapped(side.__getitem__, shape) for side in sides)))

    start = [as_tensor(leaf).numpy() for leaf in leaves_of(reducer.identity())]
    require_claims(reducer, combine, start, samples())


def _wide(dtype: DType) -> DType:
    return float64 if dtype.is_float else dtype
