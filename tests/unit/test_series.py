"""Functions as polynomials of the closed arithmetic, against many more digits."""

import mpmath
import numpy as np
import pytest
from scipy import special

from tests.unit.elementwise import compiled
from tests.unit.test_arithmetic_functions import ulp_of_double, ulp_of_single
from tiga.backends.llvm.arithmetic import VectorArithmetic
from tiga.ops import series
from tiga.types import float32, float64

A = VectorArithmetic()
UNIT, NEAR_ZERO = (-1.0, 1.0), (-1e-3, 1e-3)
CASES = {
    "asin": (np.arcsin, mpmath.asin, (UNIT, NEAR_ZERO, (0.45, 0.55), (0.999, 1.0))),
    "acos": (np.arccos, mpmath.acos, (UNIT, NEAR_ZERO, (-0.55, -0.45), (0.999, 1.0))),
    "atan": (np.arctan, mpmath.atan, (UNIT, NEAR_ZERO, (-30.0, 30.0), (0.3, 3.0), (1e5, 1e30))),
    "erfc": (special.erfc, mpmath.erfc, ((-6.0, 9.0), UNIT, NEAR_ZERO, (0.4, 0.6))),
}
BOUND = {"asin": (2.0, 4.0), "acos": (2.0, 4.0), "atan": (2.0, 4.0), "erfc": (5.0, 5.0)}
"""Units in the last place, in float32 and float64."""
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, -1.5, 40.0, -40.0)


def unary(name, dtype):
    return compiled(lambda x: getattr(series, name)(A, x), [dtype], dtype, 8)


@pytest.mark.parametrize("name", CASES)
def test_single_precision(name):
    reference, _, ranges = CASES[name]
    rng, run = np.random.default_rng(1), unary(name, float32)
    for low, high in ranges:
        x = rng.uniform(low, high, 100_000).astype(np.float32)
        assert ulp_of_single(run(x), reference(x.astype(np.float64))) <= BOUND[name][0]


@pytest.mark.parametrize("name", CASES)
def test_double_precision(name):
    _, reference, ranges = CASES[name]
    rng, run = np.random.default_rng(2), unary(name, float64)
    wide = ((9.0, 26.0),) if name == "erfc" else ()
    with mpmath.workprec(160):
        for low, high in (*ranges, *wide):
            x = rng.uniform(low, high, 300)
            exact = [reference(mpmath.mpf(v)) for v in x.tolist()]
            assert ulp_of_double(run(x), exact) <= BOUND[name][1]


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_special_values(name, dtype):
    x = np.array(SPECIAL, dtype.numpy)
    with np.errstate(all="ignore"):
        want = CASES[name][0](x.astype(np.float64)).astype(dtype.numpy)
    got = unary(name, dtype)(x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype.numpy).eps)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_atan2_in_every_direction(dtype):
    rng = np.random.default_rng(3)
    edges = np.array([0.0, -0.0, 1.0, -1.0, 1e-30, np.inf, -np.inf, np.nan], dtype.numpy)
    y, x = (g.ravel() for g in np.meshgrid(edges, edges))
    more = rng.standard_normal((2, 2000)).astype(dtype.numpy)
    y, x = np.concatenate([y, more[0]]), np.concatenate([x, more[1]])
    run = compiled(lambda a, b: series.atan2(A, a, b), [dtype, dtype], dtype, 8)
    got, want = run(y, x), np.arctan2(y, x)
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype.numpy).eps)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])
