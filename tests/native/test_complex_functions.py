"""Compiled functions of complex numbers: special values of the standard, accuracy, derivatives."""

import itertools

import numpy as np
import pytest

import tiga as tg

FUNCTIONS = (
    "abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp",
    "expm1", "log", "log10", "log1p", "log2", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
NUMPY = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
         "atan": "arctan", "atanh": "arctanh", "reciprocal": "reciprocal"}  # fmt: skip
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 3.5, -700.0, 800.0, 88.9, 1e-30, -1e-3, np.inf, -np.inf,
           np.nan)  # fmt: skip
EPS = {"complex64": 6e-7, "complex128": 1e-15}
EXACT = {"complex64": np.complex128, "complex128": np.clongdouble}


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")


def grid(dtype: str) -> np.ndarray:
    parts = np.array(SPECIAL)
    array = np.empty((len(parts), len(parts)), dtype)
    array.real, array.imag = parts[:, None], parts[None, :]
    return array.ravel()


def compiled(name: str, *operands: tg.Tensor) -> np.ndarray:
    value = getattr(tg, name)(*operands)
    array = value.numpy()
    assert value.execution["library_calls"] == (), name
    return array


def _same_special(got: np.ndarray, want: np.ndarray, limit: float) -> np.ndarray:
    """Where parts agree: signs of zeros, infinities, NaN, and numbers within rounding."""
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= limit * np.abs(want)
    equal = (got == want) & (np.signbit(got) == np.signbit(want))
    return (np.isnan(got) & np.isnan(want)) | equal | (near & (want != 0))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("expm1", "log1p")])
def test_special_values(name: str, dtype: str) -> None:
    """As the C standard and numpy have them; numpy's expm1 and log1p have not."""
    x = grid(dtype)
    got = compiled(name, tg.tensor(x))
    rule = np.true_divide if name == "reciprocal" else getattr(np, NUMPY.get(name, name))
    wide = x.astype(np.complex128)
    with np.errstate(all="ignore"):
        want = (rule(1, wide) if name == "reciprocal" else rule(wide)).astype(got.dtype)
    # Beside NaN, and where e^z vanishes at no angle, the standard leaves signs of zeros open.
    unsigned = np.isnan(want.real) | np.isnan(want.imag) | ((want == 0) & ~np.isfinite(x.imag))
    for part in ("real", "imag"):
        a, b = getattr(got, part), getattr(want, part)
        same = _same_special(a, b, 4 * EPS[dtype]) | (unsigned & (a == b))
        assert same.all(), (part, x[~same], got[~same], want[~same])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_special_values_of_expm1_and_log1p(dtype: str) -> None:
    inf, nan = np.inf, np.nan
    cases = {
        "expm1": {complex(inf, 0): complex(inf, 0), complex(-inf, nan): complex(-1, 0),
                  complex(nan, 0): complex(nan, 0), complex(-inf, inf): complex(-1, 0),
                  complex(inf, inf): complex(inf, nan), complex(800, 0): complex(inf, 0)},
        "log1p": {complex(-1, 0): complex(-inf, 0), complex(inf, 1): complex(inf, 0),
                  complex(-inf, inf): complex(inf, 3 * np.pi / 4), complex(nan, inf):
                  complex(inf, nan), complex(1e-30, 1e-30): complex(1e-30, 1e-30)},
    }  # fmt: skip
    for name, values in cases.items():
        got = compiled(name, tg.tensor(np.array(list(values), dtype)))
        want = np.array(list(values.values()), dtype)
        for part in ("real", "imag"):
            same = _same_special(getattr(got, part), getattr(want, part), 4 * EPS[dtype])
            assert same.all(), (name, got, want)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    x = (rng.uniform(-3, 3, 3000) + 1j * rng.uniform(-3, 3, 3000)).astype(dtype)
    x[:200] = np.exp(1j * x[:200].real)  # near the unit circle, where logarithms are small
    x[200:400] *= 1e-5
    wide = x.astype(EXACT[dtype])
    rule = np.true_divide if name == "reciprocal" else getattr(np, NUMPY.get(name, name))
    if name == "expm1":
        half = np.sin(wide.imag / 2)
        real = np.expm1(wide.real) * np.cos(wide.imag) - 2 * half * half
        want = real + 1j * np.exp(wide.real) * np.sin(wide.imag)
    elif name == "log1p":
        real = np.log1p(wide.real * (2 + wide.real) + wide.imag**2) / 2
        want = real + 1j * np.arctan2(wide.imag, 1 + wide.real)
    else:
        want = rule(1, wide) if name == "reciprocal" else rule(wide)
    error = np.abs(compiled(name, tg.tensor(x)) - want) / np.abs(want)
    assert error.max() < 4 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_powers(dtype: str) -> None:
    rng = np.random.default_rng(4)
    z, w = ((rng.uniform(-2, 2, 2000) + 1j * rng.uniform(-2, 2, 2000)).astype(dtype) for _ in "zw")
    got = compiled("pow", tg.tensor(z), tg.tensor(w))
    want = np.power(z.astype(EXACT[dtype]), w.astype(EXACT[dtype]))
    limit = 2 if dtype == "complex64" else 20
    assert (np.abs(got - want) / np.abs(want)).max() < limit * np.finfo(dtype).eps
    zero, numbers = np.zeros(4, dtype), np.array([0, 2, -1, 1j], dtype)
    at_zero = compiled("pow", tg.tensor(zero), tg.tensor(numbers))
    assert at_zero[0] == 1
    assert at_zero[1] == 0
    assert np.isnan(at_zero[2:]).all()


def test_derivatives_are_those_of_torch_s_convention() -> None:
    """f'(z) conjugated times the cotangent, by central differences along both axes."""
    rng = np.random.default_rng(5)
    z = rng.uniform(0.3, 1.2, 40) + 1j * rng.uniform(-1.2, 1.2, 40)
    step = 1e-6
    for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "log",
                 "log1p", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"):  # fmt: skip
        x = tg.tensor(z, requires_grad=True)
        y = getattr(tg, name)(x)
        (got,) = tg.autograd.grad(y, [x], grad_output=tg.ones_like(y))

        def value(at: np.ndarray, name: str = name) -> np.ndarray:
            return getattr(tg, name)(tg.tensor(at)).numpy()

        slope = (value(z + step) - value(z - step)) / (2 * step)
        np.testing.assert_allclose(got.numpy(), np.conj(slope), rtol=1e-7, err_msg=name)


def test_casts_and_comparisons() -> None:
    z = tg.tensor(np.array([1 + 2j, 0, 3 - 1j]))
    other = tg.tensor(np.array([1 + 2j, 1, 3 + 1j]))
    assert compiled("equal", z, other).tolist() == [True, False, False]
    assert compiled("not_equal", z, other).tolist() == [False, True, True]
    for target, source in itertools.product(("complex64", "complex128", "bool"), (z, other)):
        made = source.astype(target)
        np.testing.assert_array_equal(made.numpy(), source.numpy().astype(target))
        assert made.execution["library_calls"] == ()
