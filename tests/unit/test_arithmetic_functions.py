"""Functions on lanes: accuracy against many more digits, special values, one result per lane.

Run with `-s` to see the largest error of each function, in units in the last place.
"""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import special

from tests.unit.elementwise import compiled
from tiga.backends.llvm.arithmetic import VectorArithmetic
from tiga.types import float32, float64

A = VectorArithmetic()
BOUND = {"float32": 2.0, "float64": 4.0}

NEAR_ZERO = (-1e-3, 1e-3)
UNIT = (-1.0, 1.0)
ANGLES = (UNIT, (-10.0, 10.0), (-3e4, 3e4), (-2e5, 2e5), (1e7, 1e9), (-1e38, 1e38))
CASES = {
    "exp": (np.exp, mpmath.exp, ((-103.0, 88.7), UNIT, NEAR_ZERO)),
    "expm1": (np.expm1, mpmath.expm1, ((-20.0, 88.7), (-2.0, 2.0), NEAR_ZERO)),
    "log": (np.log, mpmath.log, ((0.0, 1e-38), (1e-3, 5.0), (0.7, 1.5), (1.0, 1e38))),
    "log1p": (np.log1p, mpmath.log1p, (UNIT, (-0.5, 1.0), (0.0, 1e9), (1e20, 1e38), NEAR_ZERO)),
    "sin": (np.sin, mpmath.sin, ANGLES),
    "cos": (np.cos, mpmath.cos, ANGLES),
    "tanh": (np.tanh, mpmath.tanh, ((-10.0, 10.0), UNIT, (0.4, 0.7), NEAR_ZERO)),
    "erf": (special.erf, mpmath.erf, ((-5.0, 5.0), UNIT, (0.9, 1.2), NEAR_ZERO)),
}
WIDE = {
    "exp": ((-707.0, 709.0),),
    "expm1": ((-40.0, 709.0),),
    "log": ((0.0, 1e-307), (1.0, 1e307)),
    "log1p": ((1e20, 1e307),),
    "sin": ((-1e300, 1e300), (1e15, 1e17)),
    "cos": ((-1e300, 1e300), (1e15, 1e17)),
}
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 2.0, -2.0, 30.0, -30.0)


def unary(name, dtype, lanes=16):
    return compiled(getattr(A, name), [dtype], dtype, lanes)


def ulp_of_single(got, want):
    """Errors of float32 results in units in the last place; `want` is float64."""
    with np.errstate(over="ignore"):
        unit = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
    return np.max(np.abs(got.astype(np.float64) - want) / unit)


def ulp_of_double(got, exact):
    """The same for float64; `exact` are numbers of mpmath."""
    return max(
        float(abs(mpmath.mpf(float(g)) - e) / math.ulp(float(e)))
        for g, e in zip(got, exact, strict=True)
    )


@pytest.mark.parametrize("name", CASES)
def test_single_precision(name):
    reference, _, ranges = CASES[name]
    rng = np.random.default_rng(7)
    run = unary(name, float32)
    worst = 0.0
    for low, high in ranges:
        x = rng.uniform(low, high, 200_000).astype(np.float32)
        worst = max(worst, ulp_of_single(run(x), reference(x.astype(np.float64))))
    print(f"{name} float32: {worst:.2f} ulp")
    assert worst <= BOUND["float32"]


@pytest.mark.parametrize("name", CASES)
def test_double_precision(name):
    _, reference, ranges = CASES[name]
    rng = np.random.default_rng(8)
    run = unary(name, float64, 8)
    worst = 0.0
    with mpmath.workprec(160):
        for low, high in (*ranges, *WIDE.get(name, ())):
            x = rng.uniform(low, high, 400)
            exact = [reference(mpmath.mpf(v)) for v in x.tolist()]
            worst = max(worst, ulp_of_double(run(x), exact))
    print(f"{name} float64: {worst:.2f} ulp")
    assert worst <= BOUND["float64"]


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_special_values(name, dtype):
    info = np.finfo(dtype.numpy)
    tiny = float(info.smallest_subnormal)
    numbers = [*SPECIAL, tiny, -tiny, float(info.tiny) / 3, float(info.max), float(info.min)]
    x = np.array(numbers, dtype.numpy)
    with np.errstate(all="ignore"):
        want = CASES[name][0](x.astype(np.float64)).astype(dtype.numpy)
    got = unary(name, dtype)(x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))
    extreme = np.isinf(want) | (want == 0)
    np.testing.assert_array_equal(got[extreme], want[extreme])
    rest = ~extreme & number
    np.testing.assert_allclose(got[rest], want[rest], rtol=8 * info.eps)


def test_exp_underflows_gradually_and_overflows():
    x = np.linspace(-104.5, -87.0, 20_000, dtype=np.float32)
    want = np.exp(x.astype(np.float64)).astype(np.float32)
    gap = np.abs(unary("exp", float32)(x).view(np.int32) - want.view(np.int32))
    assert gap.max() <= 2
    top = np.array([88.72283, 88.72284, 89.0, 1e30], np.float32)
    assert np.isfinite(unary("exp", float32)(top)).tolist() == [True, False, False, False]
    double = unary("exp", float64)(np.array([709.78, 709.79, -745.1, -745.2]))
    assert np.isfinite(double).tolist() == [True, False, True, True]
    assert (double[2:] > 0).tolist() == [True, False]


def test_angles_next_to_multiples_of_half_pi():
    # 6381956970095103 · 2^797 is the float64 nearest, in proportion, to a multiple of pi/2.
    worst = math.ldexp(6381956970095103, 797)
    multiples = [float(np.float64(k * math.pi / 2)) for k in (1, 2, 3, 1e3, 12345678.0, 3e15)]
    x = np.array([worst, *multiples])
    with mpmath.workprec(1400):
        for name in ("sin", "cos"):
            exact = [CASES[name][1](mpmath.mpf(v)) for v in x.tolist()]
            assert ulp_of_double(unary(name, float64, 3)(x), exact) <= BOUND["float64"]
        single = x[1:].astype(np.float32)
        for name in ("sin", "cos"):
            exact = [float(CASES[name][1](mpmath.mpf(v))) for v in single.tolist()]
            assert ulp_of_single(unary(name, float32)(single), np.array(exact)) <= 2.0


POWERS = (
    ((0.0, 10.0), (-5.0, 5.0)),
    ((0.98, 1.02), (-2000.0, 2000.0)),
    ((1e-30, 1e30), (-1.2, 1.2)),
    ((0.0, 1e-38), (-0.9, 0.9)),
    ((0.5, 2.0), (-100.0, 100.0)),
)


def test_pow_single_precision():
    rng = np.random.default_rng(9)
    run = compiled(A.pow, [float32, float32], float32, 16)
    worst = 0.0
    for bases, exponents in POWERS:
        a = rng.uniform(*bases, 50_000).astype(np.float32)
        b = rng.uniform(*exponents, 50_000).astype(np.float32)
        want = np.power(a.astype(np.float64), b.astype(np.float64))
        kept = (want < 3e38) & (want > 1e-44)
        worst = max(worst, ulp_of_single(run(a, b)[kept], want[kept]))
    print(f"pow float32: {worst:.2f} ulp")
    assert worst <= BOUND["float32"]


def test_pow_double_precision():
    rng = np.random.default_rng(10)
    run = compiled(A.pow, [float64, float64], float64, 8)
    ends = (((0.5, 2.0), (-1000.0, 1000.0)), ((0.9999, 1.0001), (-7e6, 7e6)))
    worst = 0.0
    with mpmath.workprec(200):
        for bases, exponents in (*POWERS, *ends):
            a, b = rng.uniform(*bases, 500), rng.uniform(*exponents, 500)
            exact = [mpmath.power(mpmath.mpf(x), mpmath.mpf(y)) for x, y in zip(a, b, strict=True)]
            kept = [i for i, e in enumerate(exact) if 1e-307 < e < 1e308]
            worst = max(worst, ulp_of_double(run(a, b)[kept], [exact[i] for i in kept]))
    print(f"pow float64: {worst:.2f} ulp")
    assert worst <= BOUND["float64"]


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_pow_special_values(dtype):
    info = np.finfo(dtype.numpy)
    odd = 2.0 ** (info.nmant + 1) - 1
    numbers = [*SPECIAL, 3.0, -3.0, 2.5, -2.5, odd, -odd, 2 * odd, float(info.max), float(info.min)]
    numbers += [
        float(info.smallest_subnormal),
        -float(info.smallest_subnormal),
        1 + float(info.eps),
    ]
    table = np.array(list(itertools.product(numbers, numbers)), dtype.numpy)
    a, b = table[:, 0].copy(), table[:, 1].copy()
    with np.errstate(all="ignore"):
        want = np.power(a, b)
    got = compiled(A.pow, [dtype, dtype], dtype, 5)(a, b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    kept = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[kept]), np.signbit(want[kept]))
    np.testing.assert_allclose(got[kept], want[kept], rtol=4 * info.eps, atol=0)


def _bits(array):
    """Bits, with one pattern for every NaN."""
    clean = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return clean.view(np.int32 if array.dtype == np.float32 else np.int64)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("name", [*CASES, "pow"])
def test_a_lane_has_the_same_bits_at_every_width(name, dtype):
    rng = np.random.default_rng(11)
    scale = 10.0 ** rng.uniform(-20, 20, 400)
    x = np.concatenate([rng.standard_normal(400) * scale, rng.uniform(-80, 80, 400), SPECIAL])
    x = x.astype(dtype.numpy)
    inputs = (np.abs(x), np.roll(x, 1) / dtype.numpy.type(8)) if name == "pow" else (x,)
    types = [dtype] * len(inputs)
    scalar = compiled(getattr(A, name), types, dtype, 0)(*inputs)
    for lanes in (1, 3, 8, 16, 17):
        wide = compiled(getattr(A, name), types, dtype, lanes)(*inputs)
        np.testing.assert_array_equal(_bits(wide), _bits(scalar))
