"""Sums, and what is made of them, are off by a few roundings however many elements there are.

Errors are in units of 2^-24 (of 2^-53 in double precision) of what exact sums of absolute values
give. Equal terms are the worst case of adding in sequence: all roundings go the same way.
"""

import numpy as np
import pytest

import tiga as tg

LAYOUTS = {
    "everything": ((150_000, 2), None),
    "one row": ((300_000,), 0),
    "long rows": ((3, 100_000), 1),
    "many rows": ((100_000, 3), 0),
    "rows in the middle": ((2, 40_000, 4), 1),
}

TERMS = {
    "equal": lambda n: np.full(n, 0.1),
    "with an offset": lambda n: 1000 + np.random.default_rng(n).standard_normal(n),
    "of any size": lambda n: np.exp(3 * np.random.default_rng(n).standard_normal(n)),
    "of both signs": lambda n: np.where(np.arange(n) % 2, -1.0, 1.0) * (1 + np.arange(n) / n),
}

FUNCTIONS = {
    "sum": (lambda x, axis: tg.sum(x, axis=axis), lambda x, axis: x.sum(axis)),
    "mean": (lambda x, axis: tg.mean(x, axis=axis), lambda x, axis: x.mean(axis)),
    "norm": (
        lambda x, axis: tg.norm(x, axis=axis),
        lambda x, axis: np.sqrt((np.abs(x) ** 2).sum(axis)),
    ),
}

MOST = 16
"""Roundings that a sum may be off by: half the length of a run that is added in sequence, and those
of what is made of it."""


def terms(kind: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    made = TERMS[kind](int(np.prod(shape))).reshape(shape)
    return (made * (1 + 2j) if dtype == "complex64" else made).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float64"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("backend", ["native", "python"])
def test_sums_of_many_elements(backend, layout, dtype, monkeypatch):
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    shape, axis = LAYOUTS[layout]
    unit = 2.0**-53 if dtype == "float64" else 2.0**-24
    wide = {"float32": np.float64, "float64": np.longdouble, "complex64": np.complex128}[dtype]
    # What is left of a float64 sum has no wider type to go on in: its second level counts too.
    most = 4 * MOST if dtype == "float64" else MOST
    for kind in TERMS:
        given = terms(kind, shape, dtype)
        exact, size = given.astype(wide), np.abs(given).astype(np.longdouble)
        for name, (function, meaning) in FUNCTIONS.items():
            got = function(tg.from_numpy(given), axis).numpy()
            bound = np.abs(meaning(size, axis)) * most * unit
            assert (np.abs(got - meaning(exact, axis)) <= bound).all(), (kind, name)


SCANS = {
    "cumulative_sum": (tg.cumulative_sum, np.cumsum),
    "cumulative_prod": (tg.cumulative_prod, np.cumprod),
}


@pytest.mark.parametrize("backend", ["native", "python"])
@pytest.mark.parametrize("name", SCANS)
def test_scans_and_their_derivatives_carry_double_precision(name, backend, monkeypatch):
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    scan, meaning = SCANS[name]
    random = np.random.default_rng(3)
    given = np.exp(0.01 * random.standard_normal((2, 3000))).astype(np.float32)
    weights = random.standard_normal(given.shape).astype(np.float32)
    x = tg.from_numpy(given).requires_grad_()
    y = scan(x, axis=1)
    slope = tg.autograd.grad((y * tg.from_numpy(weights)).sum(), x)
    want = meaning(given.astype(np.float64), 1)
    later = np.flip(np.cumsum(np.flip(weights * want, 1), 1), 1) / given
    if name == "cumulative_sum":
        later = np.flip(np.cumsum(np.flip(weights.astype(np.float64), 1), 1), 1)
    assert np.abs(y.numpy() / want - 1).max() <= 2 * 2.0**-24
    assert np.abs(slope.numpy() - later).max() <= 4 * 2.0**-24 * np.abs(later).max()


def test_few_rows_that_take_many_values():
    x, places = tg.ones((3, 4), requires_grad=True), np.arange(200_000) % 2
    values = np.full((len(places), 4), 0.1, np.float32)
    picked = tg.take(x, tg.from_numpy(places), axis=0) * tg.from_numpy(values)
    slope = tg.autograd.grad(picked.sum(), x).numpy()
    want = np.zeros((3, 4))
    np.add.at(want, places, values.astype(np.float64))
    assert np.abs(slope - want).max() <= 2 * 2.0**-24 * want.max()
