"""Expressions of native tensors whose operands exceed the budget together, against numpy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tiga as tg

ROWS = 30_000
SHAPE = (ROWS, 4)
NBYTES = ROWS * 4 * 4
BUDGET = 2 * NBYTES + NBYTES // 2
"""Two of the arrays and the tiles: never both operands with a result."""

Expression = Callable[[Any, Any, Any], Any]

FITTING: dict[str, Expression] = {
    "sum": lambda m, a, b: (a + b).sum(),
    "max": lambda m, a, b: m.exp(a * b).max(),
    "min of rows": lambda m, a, b: (a - b).min(0),
    "mean": lambda m, a, b: (a * b).mean(),
    "spread": lambda m, a, b: ((a - a.mean()) * (b - b.mean())).sum(),
    "columns": lambda m, a, b: (a * b + a[0]).sum(0),
    "rows": lambda m, a, b: (a * b).sum(1),
    "two stages": lambda m, a, b: ((a - a.sum(0)) / b.max(0)).sum(),
    "pointwise": lambda m, a, b: a * 2 + b,
    "by rows": lambda m, a, b: m.tanh((a + b).reshape(ROWS, 2, 2)),
}


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random(SHAPE, np.float32) + 0.5 for _ in range(2)]


@pytest.mark.parametrize("eviction", ["lru", "error"])
@pytest.mark.parametrize("name", FITTING)
def test_operands_that_do_not_fit_go_by_tiles(name: str, eviction: str, tmp_path: Any) -> None:
    expected = FITTING[name](np, *(a.astype(np.float64) for a in arrays()))
    budget = {"host": BUDGET - NBYTES // 4}
    with tg.execution(memory=budget, eviction=eviction, spill_dir=tmp_path) as run:
        a, b = (tg.tensor(array).spill() for array in arrays())
        found = FITTING[name](tg, a, b).numpy().copy()
        assert run.memory_report()["peak_bytes"]["host"] <= BUDGET
    assert found.shape == expected.shape
    assert np.allclose(found, expected, rtol=2e-5)


def test_derivatives_go_through_tiles(tmp_path: Any) -> None:
    with tg.execution(memory={"host": BUDGET}, eviction="lru", spill_dir=tmp_path):
        a = tg.tensor(arrays()[0], requires_grad=True)
        b = tg.tensor(arrays()[1])
        loss = (a * b).sum()
        assert loss.item() == pytest.approx(float(np.prod(arrays(), 0).sum(dtype=np.float64)), 1e-5)
        gradient = tg.autograd.grad(loss, a)
        assert np.array_equal(gradient.numpy(), arrays()[1])


def test_what_needs_all_of_a_value_says_so(tmp_path: Any) -> None:
    with tg.execution(memory={"host": BUDGET}, eviction="lru", spill_dir=tmp_path):
        a, b = (tg.tensor(array) for array in arrays())
        with pytest.raises(MemoryError, match=r"computing float32\[60000,4\]"):
            tg.cumulative_sum(tg.concat([a, b]), axis=0).realize()
        assert (a + b).sum().item() > 0
    with tg.execution(memory={"host": NBYTES + NBYTES // 2}, spill_dir=tmp_path):
        c = tg.tensor(arrays()[0])
        with pytest.raises(MemoryError, match="computing float32"):
            (c + 1).realize()


def test_joins_of_joins_and_of_what_has_other_rows(tmp_path: Any) -> None:
    a = np.arange(9000.0)

    def results() -> list[np.ndarray]:
        x = tg.from_numpy(a.copy()).requires_grad_()
        tiled = tg.tile(tg.tile(x, (2,)), (2,))
        (slope,) = (tg.autograd.grad((tiled * tiled).sum(), x),)
        wide = tg.reshape(x, (3000, 3)) * 2
        joined = tg.concat([tg.reshape(wide, (-1, 2)), tg.reshape(x, (-1, 2))], axis=0)
        return [value.numpy().copy() for value in (tiled, slope, joined)]

    expected = results()
    np.testing.assert_array_equal(expected[1], 8 * a)
    with tg.execution(memory={"host": "256KiB"}, eviction="lru", spill_dir=tmp_path):
        for found, value in zip(results(), expected, strict=True):
            np.testing.assert_array_equal(found, value)
