"""What a user's reducer claims to be, tried on states."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tiga.errors import InvalidValue
from tiga.frontends.reducer_methods import method_line
from tiga.reducers import CustomReducer
from tiga.types import DType, Shape

SAMPLES = 64
"""Triples of states that a claim is tried on at once."""

States = list[np.ndarray]
"""The components of states, each with a leading axis of samples."""

Combine = Callable[[States, States], States]

DRAWS: tuple[Callable[[np.random.Generator, Shape], np.ndarray], ...] = (
    lambda rng, shape: rng.standard_normal(shape),
    lambda rng, shape: rng.uniform(0.5, 1.5, shape),
    lambda rng, shape: rng.integers(-2, 3, shape),
)
"""Messages of any sign, positive ones, and small integers."""


def drawn(draw: Any, rng: np.random.Generator, dtype: DType, shape: Shape) -> np.ndarray:
    """Random messages, one for each sample."""
    values = draw(rng, (SAMPLES, *shape))
    return (values > 0 if dtype.kind == "b" else values).astype(dtype.numpy)


def require_claims(
    reducer: CustomReducer, combine: Combine, start: States, samples: Iterable[Sequence[States]]
) -> None:
    """Try what a reducer claims on triples of states.

    Args:
        reducer: the reducer, whose `associative` and `commutative` are claims.
        combine: two states as one; arrays have a leading axis of samples.
        start: the identity's components.
        samples: triples of states.

    Raises:
        InvalidValue: `associative` or `commutative` is claimed and does not hold, or the
            `identity` of an associative reducer changes a state that it is combined with. The
            message holds states that show it.
    """
    for a, b, c in samples:
        if reducer.commutative:
            _require(reducer, "commutative = True", combine(a, b), combine(b, a), (a, b))
        if reducer.associative:
            left, right = combine(combine(a, b), c), combine(a, combine(b, c))
            _require(reducer, "associative = True", left, right, (a, b, c))
            begin = [np.broadcast_to(x, y.shape) for x, y in zip(start, a, strict=True)]
            _require(reducer, "identity", combine(begin, a), a, (a,))


def _require(
    reducer: CustomReducer, claim: str, got: States, want: States, states: Sequence[States]
) -> None:
    for x, y in zip(got, want, strict=True):
        both = np.isfinite(x) & np.isfinite(y)
        wrong = both & ~np.isclose(x, y, 1e-8, 1e-10)
        if not wrong.any():
            continue
        at = tuple(np.argwhere(wrong)[0])
        given = (f"{n} = {_told(s, at[0])}" for n, s in zip("abc", states, strict=False))
        raise InvalidValue(
            f"{method_line(reducer, 'combine')}: {type(reducer).__name__} says `{claim}`, but "
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
