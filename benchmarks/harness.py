"""Timing: every answer is checked first, then all contestants take turns in one process."""

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.results import TIGA, Bar, Measured, spread
from tiga._cli.measure import interleave

Call = Callable[[], Sequence[object]]
"""Runs the program once and returns its outputs: arrays or tensors."""


@dataclass(frozen=True)
class Contestant:
    """One way to run the program. `prepare` builds and compiles; what it returns is timed.

    `requires` is a module, or `module:name` for a name in it, without which it cannot take part.
    """

    name: str
    prepare: Callable[[], Call]
    requires: str | None = None


@dataclass(frozen=True)
class Options:
    """What the command line chose: seconds of timing per case and contestants to leave out."""

    seconds: float = 6.0
    skip: frozenset[str] = frozenset()


class WrongAnswer(Exception):
    """A contestant's outputs are not the reference's, so its time means nothing."""


def relative_error(output: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference over the largest expected value; inf where shapes differ."""
    if output.shape != expected.shape:
        return float("inf")
    if expected.size == 0:
        return 0.0
    scale = float(np.abs(expected).max()) or 1.0
    return float(np.abs(output.astype(np.float64) - expected).max()) / scale


def relative_norm(output: np.ndarray, expected: np.ndarray) -> float:
    """The norm of the difference over the norm of the expected; inf where shapes differ.

    For programs whose derivative jumps at a value that rounding decides: a few of many elements may
    then differ rightly.
    """
    if output.shape != expected.shape:
        return float("inf")
    scale = float(np.linalg.norm(expected)) or 1.0
    return float(np.linalg.norm(output.astype(np.float64) - expected)) / scale


@dataclass(frozen=True)
class TimedCase:
    """A program, its right answer and the contestants; `setup` makes their shared data."""

    name: str
    shape: Mapping[str, object]
    setup: Callable[[], tuple[Sequence[np.ndarray], Sequence[Contestant]]]
    bars: tuple[Bar, ...]
    tolerance: float = 1e-4
    error: Callable[[np.ndarray, np.ndarray], float] = relative_error
    unit: str = "ms"
    notes: tuple[str, ...] = field(default=())
    most_seconds: float = float("inf")
    """Seconds of timing that are enough, where a case of many takes long to prepare."""

    def run(self, options: Options) -> Measured:
        reference, contestants = self.setup()
        present, notes = _present(contestants, options)
        calls = {c.name: self._checked(c, reference) for c in present}
        rounds = interleave(calls, min(options.seconds, self.most_seconds))
        scale = {"ms": 1e3, "µs": 1e6}[self.unit]
        readings = {name: spread([t * scale for t in times]) for name, times in rounds.items()}
        ratios = _ratios(rounds)
        said = (*self.notes, *notes)
        return Measured(self.name, self.unit, self.shape, readings, ratios, self.bars, said)

    def _checked(self, contestant: Contestant, reference: Sequence[np.ndarray]) -> Call:
        call = contestant.prepare()
        outputs = call()
        if len(outputs) != len(reference):
            raise WrongAnswer(f"{contestant.name}: {len(outputs)} outputs, not {len(reference)}")
        for position, (output, expected) in enumerate(zip(outputs, reference, strict=True)):
            error = self.error(np.asarray(output), expected)
            if not error <= self.tolerance:
                raise WrongAnswer(
                    f"{contestant.name}: output {position} is off by {error:.2g}, relative; "
                    f"allowed {self.tolerance:g}"
                )
        return call


def _present(
    contestants: Iterable[Contestant], options: Options
) -> tuple[list[Contestant], list[str]]:
    present, notes = [], []
    for contestant in contestants:
        if contestant.name in options.skip:
            continue
        if contestant.requires and not _exists(contestant.requires):
            notes.append(f"{contestant.name}: there is no {contestant.requires} here")
            continue
        present.append(contestant)
    return present, notes


def _exists(requirement: str) -> bool:
    module, _, name = requirement.partition(":")
    if importlib.util.find_spec(module) is None:
        return False
    return not name or hasattr(importlib.import_module(module), name)


def _ratios(rounds: Mapping[str, Sequence[float]]) -> dict:
    own = rounds.get(TIGA)
    if own is None:
        return {}
    return {
        peer: spread([theirs / ours for theirs, ours in zip(times, own, strict=True)])
        for peer, times in rounds.items()
        if peer != TIGA
    }
