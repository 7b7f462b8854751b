"""Fit the polynomial tables of `tiga/backends/llvm/coefficients.py`.

Run `python tools/fit_functions.py > src/tiga/backends/llvm/coefficients.py` (needs mpmath; half a
minute). Each polynomial is the weighted minimax fit of its function: Remez exchange (E. Y. Remez,
1934; see W. J. Cody, "A survey of practical rational and polynomial approximation of functions",
SIAM Review 12, 1970) on Chebyshev-spaced points in 50-digit arithmetic. Coefficients are rounded
to their format from the lowest degree up, each time refitting those that remain, so that rounding
one coefficient is paid back by the next.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from mpmath import mp, mpf

mp.dps = 50
GRID = 1200
SQRT_HALF = mp.sqrt(mpf(1) / 2)


@dataclass(frozen=True)
class Fit:
    """`function` on [low, high], as a polynomial of `degree`, with errors scaled by `weight`."""

    name: str
    function: Callable[[mpf], mpf]
    weight: Callable[[mpf], mpf]
    low: mpf
    high: mpf
    degree: int
    single: bool


def rounded(value: mpf, single: bool) -> mpf:
    """`value` in float32 (from float64, far more exact than the fit) or float64."""
    number = float(value)
    return mpf(float(np.float32(number)) if single else number)


def points_of(fit: Fit) -> list[mpf]:
    """Chebyshev-spaced points of the interval."""
    middle, radius = (fit.high + fit.low) / 2, (fit.high - fit.low) / 2
    return [middle - radius * mp.cos(mp.pi * (i + mpf(1) / 2) / GRID) for i in range(GRID)]


def peaks_of(errors: list[mpf]) -> list[int]:
    """Where |error| is largest in each run of one sign."""
    peaks: list[int] = []
    for i, error in enumerate(errors):
        if peaks and (error > 0) == (errors[peaks[-1]] > 0):
            peaks[-1] = i if abs(error) > abs(errors[peaks[-1]]) else peaks[-1]
        else:
            peaks.append(i)
    return peaks


def largest_peaks(errors: list[mpf], count: int) -> list[int]:
    """At most `count` alternating peaks: small ones leave, from an end or in pairs."""
    peaks = peaks_of(errors)
    while len(peaks) > count:
        sizes = [abs(errors[i]) for i in peaks]
        if len(peaks) == count + 1:
            peaks.pop(0 if sizes[0] < sizes[-1] else -1)
            continue
        pairs = [max(a, b) for a, b in pairwise(sizes)]
        at = pairs.index(min(pairs))
        del peaks[at : at + 2]
    return peaks


def solve(rows: list[list[mpf]], right: list[mpf]) -> list[mpf]:
    return list(mp.lu_solve(mp.matrix(rows), mp.matrix(right)))


def remez(xs: Any, targets: Any, weights: Any, low_power: int, high_power: int) -> list[mpf]:
    """Minimax coefficients of the powers low..high: the best of the exchanges tried."""
    powers = range(low_power, high_power + 1)
    count = len(powers)
    # Not mirror images of each other: an odd power alone would make the first system singular.
    chosen = [round((len(xs) - 1) * (i + 0.37) / (count + 1)) for i in range(count + 1)]
    best: tuple[mpf, list[mpf]] = (mpf("inf"), [])
    for _ in range(12):
        rows = [
            [weights[i] * xs[i] ** p for p in powers] + [mpf((-1) ** k)]
            for k, i in enumerate(chosen)
        ]
        *found, level = solve(rows, [weights[i] * targets[i] for i in chosen])
        errors = [
            w * (t - x**low_power * mp.polyval(found[::-1], x))
            for x, t, w in zip(xs, targets, weights, strict=True)
        ]
        worst = max(abs(e) for e in errors)
        best = min(best, (worst, found), key=lambda pair: pair[0])
        chosen = largest_peaks(errors, count + 1)
        if len(chosen) <= count or worst < abs(level) * mpf("1.01"):
            break
    return best[1]


def run(fit: Fit) -> tuple[list[mpf], mpf]:
    """Rounded coefficients, lowest degree first, and the weighted error that they leave."""
    xs = points_of(fit)
    weights = [abs(fit.weight(x)) for x in xs]
    values = [fit.function(x) for x in xs]
    rest, done = list(values), []
    for power in range(fit.degree + 1):
        free = remez(xs, rest, weights, power, fit.degree)
        done.append(rounded(free[0], fit.single))
        rest = [r - done[-1] * x**power for r, x in zip(rest, xs, strict=True)]
    return done, max(abs(w * r) for w, r in zip(weights, rest, strict=True))


def log_tail(f: mpf) -> mpf:
    return (mp.log1p(f) - f + f * f / 2) / f**3


def atanh_tail(z: mpf) -> mpf:
    """(2 atanh(s) - 2 s) / (s z) with z = s²."""
    return 2 * (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def atanh_second_tail(z: mpf) -> mpf:
    """(atanh(s) / s - 1 - z/3) / z² with z = s²."""
    return (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1 - z / 3) / z**2


def sin_tail(z: mpf) -> mpf:
    return (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def cos_tail(z: mpf) -> mpf:
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def erf_excess(z: mpf) -> mpf:
    """erf(x) / x - 1 with z = x²."""
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1


def tanh_tail(z: mpf) -> mpf:
    """(tanh(x) / x - 1) / z with z = x²."""
    return (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def log_erfc(a: mpf) -> mpf:
    return mp.log(mp.erfc(a))


def fits() -> list[Fit]:
    half_ln2 = mp.log(2) / 2 * mpf("1.001")
    quarter_turn = (mp.pi / 4 * mpf("1.01")) ** 2
    f_low, f_high = SQRT_HALF - 1, 2 * SQRT_HALF - 1
    z_top = ((2 * SQRT_HALF - 1) / (2 * SQRT_HALF + 1)) ** 2 * mpf("1.001")
    tiny = mpf("1e-12")
    found = []
    for suffix, single, exp_degree, sin_degree, cos_degree in (
        ("F32", True, 4, 2, 2),
        ("F64", False, 10, 5, 5),
    ):
        found += [
            Fit(f"EXP_{suffix}", lambda r: (mp.expm1(r) - r) / r**2, lambda r: r,
                -half_ln2, half_ln2, exp_degree, single),
            Fit(f"SIN_{suffix}", sin_tail, lambda z: z, tiny, quarter_turn, sin_degree, single),
            Fit(f"COS_{suffix}", cos_tail, lambda z: z * z, tiny, quarter_turn, cos_degree, single),
        ]  # fmt: skip
    found += [
        Fit("LOG_F32", log_tail, lambda f: f**3 / mp.log1p(f), f_low, f_high, 7, True),
        Fit("LOG_F64", atanh_tail, lambda z: z / 2, tiny, z_top, 6, False),
        Fit("LOG_PAIR", atanh_second_tail, lambda z: z * z, tiny, z_top, 7, False),
        Fit("TANH_F32", tanh_tail, lambda z: z, tiny, mpf("0.55") ** 2, 4, True),
        Fit("ERF_F32", erf_excess, lambda z: 1 / (1 + erf_excess(z)), tiny, mpf(1), 6, True),
        Fit("ERF_F64", erf_excess, lambda z: 1 / (1 + erf_excess(z)), tiny, mpf(1), 11, False),
        Fit("LOG_ERFC_F32", lambda a: log_erfc(a), mp.erfc, mpf(1), mpf(4), 6, True),
        Fit("LOG_ERFC_F64", lambda a: log_erfc(a), mp.erfc, mpf(1), mpf(6), 17, False),
    ]
    return found


def split(value: mpf, single: bool) -> tuple[float, ...]:
    """`value` as a sum of three numbers of the format, each the nearest to what is left."""
    parts = []
    for _ in range(3):
        parts.append(rounded(value, single))
        value -= parts[-1]
    return tuple(float(part) for part in parts)


def two_over_pi_words() -> list[int]:
    """A zero word, then 2/pi in binary: words of 64 bits, enough for the largest float64."""
    mp.dps = 500
    words = 21
    digits = int(mp.floor(2 / mp.pi * mpf(2) ** (64 * (words - 1))))
    unsigned = [digits >> (64 * i) & (2**64 - 1) for i in reversed(range(words))]
    return [word - 2**64 if word >= 2**63 else word for word in unsigned]


def print_tuple(name: str, numbers: Iterable[float]) -> None:
    print(f"{name} = (")
    for number in numbers:
        print(f"    {number!r},")
    print(")")


def main() -> None:
    print('"""Polynomial coefficients, lowest first: printed by tools/fit_functions.py."""\n')
    for fit in fits():
        coefficients, error = run(fit)
        print(f"# weighted error 2^{float(mp.log(error, 2)):.1f}")
        print_tuple(fit.name, map(float, coefficients))
    print("# pi/2 as an unevaluated sum")
    print_tuple("HALF_PI_F32", split(mp.pi / 2, True))
    print_tuple("HALF_PI_F64", split(mp.pi / 2, False))
    print("# bits of 2/pi after a zero word, as signed 64-bit words")
    print_tuple("TWO_OVER_PI", two_over_pi_words())


if __name__ == "__main__":
    main()
