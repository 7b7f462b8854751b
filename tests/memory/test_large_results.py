"""Results of native tensors that the budget does not hold, against numpy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.errors import InvalidState

ROWS, COLUMNS = 30_000, 16
NBYTES = ROWS * 4 * 4
BUDGET = 3 * NBYTES

RNG = np.random.default_rng(0)
A, B = (RNG.random((ROWS, 4), np.float32) for _ in range(2))
W = RNG.random((4, COLUMNS), np.float32)
V = RNG.random(ROWS).astype(np.float32)
WITH_TIES = np.round(RNG.standard_normal(4 * ROWS) * 3).astype(np.float32)
WITH_TIES[::1001] = np.nan

Expression = Callable[..., Any]


def wide(a: Any, w: Any) -> Any:
    return a @ w


def concat(m: Any, parts: list[Any], axis: int) -> Any:
    return np.concatenate(parts, axis) if m is np else tg.concat(parts, axis=axis)


MAPPED: dict[str, Expression] = {
    "product": lambda m, a, b, w, v: wide(a, w),
    "outer": lambda m, a, b, w, v: v[:, None] * v[None, :COLUMNS],
    "joined rows": lambda m, a, b, w, v: concat(m, [a, b, a + b, a], 0),
    "joined columns": lambda m, a, b, w, v: concat(m, [a, b, a, b], 1),
    "sorted rows": lambda m, a, b, w, v: m.sort(wide(a, w), axis=1),
    "sorted columns": lambda m, a, b, w, v: m.sort(wide(a, w), axis=0),
    "softmax": lambda m, a, b, w, v: m.exp(wide(a, w)) / m.exp(wide(a, w)).sum(1)[:, None],
    "scan": lambda m, a, b, w, v: m.cumsum(wide(a, w), 1) if m is np else tg.cumsum(wide(a, w), 1),
    "columns": lambda m, a, b, w, v: concat(m, [wide(a, w)[:, 1:16:2]] * 2, 1) * 2,
    "turned": lambda m, a, b, w, v: wide(a, w).T,
    "flat": lambda m, a, b, w, v: wide(a, w).reshape(-1) * 20 + 1,
    "sorted": lambda m, a, b, w, v: m.sort(wide(a, w).reshape(-1)),
}  # fmt: skip

SMALL: dict[str, Expression] = {
    "gram": lambda m, a, b, w, v: wide(a, w).T @ wide(b, w),
    "best": lambda m, a, b, w, v: m.argmax(wide(a, w), axis=1),
    "all": lambda m, a, b, w, v: m.all(wide(a, w) > -1),
    "none": lambda m, a, b, w, v: m.any(wide(a, w) > 1e9),
    "product": lambda m, a, b, w, v: m.prod(wide(a, w) * 1e-6 + 1),
    "twice": lambda m, a, b, w, v: wide(a, w) @ w.T,
    "pairs": lambda m, a, b, w, v: a.reshape(ROWS, 2, 2) @ b.reshape(ROWS, 2, 2),
}


def computed(expression: Expression, folder: Any) -> tuple[np.ndarray, str | None, int]:
    with tg.execution(memory={"host": BUDGET}, eviction="lru", spill_dir=folder) as run:
        found = expression(tg, *(tg.tensor(array) for array in (A, B, W, V)))
        values = np.array(found.numpy())
        return values, found.residency["backing"], run.memory_report()["peak_bytes"]["host"]


@pytest.mark.parametrize("name", [*MAPPED, *SMALL])
def test_an_expression_that_does_not_fit(name: str, tmp_path: Any) -> None:
    expression = MAPPED.get(name) if name in MAPPED else SMALL[name]
    assert expression is not None
    expected = expression(np, *(x.astype(np.float64) for x in (A, B, W, V)))
    found, backing, peak = computed(expression, tmp_path)
    assert found.shape == expected.shape
    assert np.allclose(found, expected, rtol=1e-4)
    assert peak <= BUDGET
    assert (backing == "mapped-spill") == (name in MAPPED)


@pytest.mark.parametrize("descending", [False, True])
def test_a_long_vector_is_sorted_in_runs(descending: bool, tmp_path: Any) -> None:
    """Ties keep their order and NaNs lie where they do in memory: the same positions."""
    small = tg.tensor(WITH_TIES)
    expected = tg.argsort(small, descending=descending).numpy()
    with tg.execution(memory={"host": 2 * WITH_TIES.nbytes}, eviction="lru", spill_dir=tmp_path):
        x = tg.tensor(WITH_TIES)
        order = tg.argsort(x, descending=descending)
        assert np.array_equal(order.numpy(), expected)
        assert order.residency["backing"] == "mapped-spill"
        assert np.array_equal(tg.sort(x, descending=descending).numpy(), WITH_TIES[expected],
                              equal_nan=True)  # fmt: skip


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(-1, 64), (-1, 2, 2), (-1, 1)])
def test_columns_are_sorted(shape: Any, descending: bool, tmp_path: Any) -> None:
    """Several at a time, or one that does not fit in runs."""
    table = WITH_TIES.reshape(shape)
    small = tg.tensor(table)
    expected = tg.argsort(small, axis=0, descending=descending).numpy()
    values = tg.sort(small, axis=0, descending=descending).numpy()
    with tg.execution(memory={"host": 2 * table.nbytes}, eviction="lru", spill_dir=tmp_path) as run:
        x = tg.tensor(table)
        order = tg.argsort(x, axis=0, descending=descending)
        assert np.array_equal(order.numpy(), expected)
        assert order.residency["backing"] == "mapped-spill"
        found = tg.sort(x, axis=0, descending=descending).numpy()
        assert np.array_equal(found, values, equal_nan=True)
        assert run.memory_report()["peak_bytes"]["host"] <= 2 * table.nbytes


def test_what_is_mapped_is_used_on_and_freed(tmp_path: Any) -> None:
    with tg.execution(memory={"host": BUDGET}, eviction="lru", spill_dir=tmp_path) as run:
        a, w = tg.tensor(A), tg.tensor(W)
        large = (a @ w).realize()
        assert not large.residency["resident"]
        assert run.memory_report()["live_bytes"]["nvme"] == ROWS * COLUMNS * 4
        assert (large * 2).sum().item() == pytest.approx(float((A @ W).sum()) * 2, rel=1e-4)
        large += 1
        assert np.allclose(large.numpy(), A @ W + 1)
        with pytest.raises(InvalidState, match="mapped from a file already"):
            large.spill()
        before = run.memory_report()["live_bytes"]["nvme"]
        del large
        assert run.memory_report()["live_bytes"]["nvme"] == before - ROWS * COLUMNS * 4


def test_what_cannot_be_cut_says_which_value_does_not_fit(tmp_path: Any) -> None:
    with tg.execution(memory={"host": BUDGET}, eviction="lru", spill_dir=tmp_path):
        a, w = tg.tensor(A), tg.tensor(W)
        with pytest.raises(MemoryError, match=r"computing float32\[30000,16\]"):
            tg.cumulative_sum(a @ w, axis=0).realize()
    with tg.execution(memory={"host": BUDGET}, spill_dir=tmp_path):
        a, w = tg.tensor(A), tg.tensor(W)
        with pytest.raises(MemoryError, match=r"computing float32\[30000,16\]"):
            (a @ w).realize()  # nothing is to be moved out
    budgets = {"host": BUDGET, "nvme": NBYTES}
    with tg.execution(memory=budgets, eviction="lru", spill_dir=tmp_path):
        a, w = tg.tensor(A), tg.tensor(W)
        with pytest.raises(MemoryError):
            (a @ w).realize()
