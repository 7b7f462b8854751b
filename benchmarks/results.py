"""What a measurement is: spreads of several readings, and the bars that they are held against."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Several readings of one quantity: median, 10th and 90th percentile."""

    median: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.median:.3g} [{self.low:.3g}–{self.high:.3g}]"


def spread(readings: Sequence[float]) -> Spread:
    """Summarise readings; there must be at least one."""
    low, median, high = (float(q) for q in np.quantile(readings, (0.1, 0.5, 0.9)))
    return Spread(median, low, high, len(readings))


@dataclass(frozen=True)
class AtLeast:
    """The fastest of `peers` must take at least `ratio` times as long as tiga."""

    peers: tuple[str, ...]
    ratio: float

    def judge(self, measured: "Measured") -> "Verdict":
        found = [measured.ratios[peer].median for peer in self.peers if peer in measured.ratios]
        text = f"≥ {self.ratio:g}× {' and '.join(self.peers)}"
        return _verdict(text, min(found, default=None), lambda value: value >= self.ratio)


@dataclass(frozen=True)
class AtMost:
    """Tiga's own reading must not exceed `bound` in the measurement's unit."""

    bound: float

    def judge(self, measured: "Measured") -> "Verdict":
        own = measured.readings.get(TIGA)
        text = f"≤ {self.bound:g} {measured.unit}"
        return _verdict(
            text, None if own is None else own.median, lambda value: value <= self.bound
        )


@dataclass(frozen=True)
class Verdict:
    """A bar, the value that was held against it, and whether it is met (None: not measured)."""

    bar: str
    value: float | None
    met: bool | None


def _verdict(text: str, value: float | None, test: Callable[[float], bool]) -> Verdict:
    return Verdict(text, value, None if value is None else test(value))


Bar = AtLeast | AtMost
TIGA = "tiga"


@dataclass(frozen=True)
class Measured:
    """One case's outcome.

    `readings` has one spread per contestant in `unit`; `ratios` has one per peer: its reading over
    tiga's of the same round.
    """

    name: str
    unit: str
    shape: Mapping[str, object]
    readings: Mapping[str, Spread]
    ratios: Mapping[str, Spread] = field(default_factory=dict)
    bars: tuple[Bar, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdicts(self) -> list[Verdict]:
        return [bar.judge(self) for bar in self.bars]
