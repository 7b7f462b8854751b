"""What Python and numpy give tensors, and what they ask of them: numbers, buffers, dtypes, `in`."""

import enum
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga import errors

WHOLE = tg.tensor([1, 2, 3])
HALF = np.float64(0.5)  # one of Python's floats by inheritance


class Level(enum.IntEnum):
    ONE = 1


class Matrix(np.ndarray):
    """As numpy's own matrices."""

    def __mul__(self, other: Any) -> Any:
        return self @ other


FLOATS: dict[str, tuple[Callable[[], Any], list[float]]] = {
    "a sum": (lambda: WHOLE + HALF, [1.5, 2.5, 3.5]),
    "a reflected product": (lambda: HALF * WHOLE, [0.5, 1.0, 1.5]),
    "a choice": (lambda: tg.where(WHOLE > 1, WHOLE, HALF), [0.5, 2.0, 3.0]),
    "an extremum": (lambda: tg.maximum(WHOLE, np.float64(2.5)), [2.5, 2.5, 3.0]),
    "a power": (lambda: np.float64(2.0) ** WHOLE, [2.0, 4.0, 8.0]),
    "a bound": (lambda: tg.clip(WHOLE, 1.5), [1.5, 2.0, 3.0]),
    "a list": (lambda: tg.tensor([np.float64(1.5), 2]), [1.5, 2.0]),
    "a grid": (lambda: tg.arange(np.float32(2.5)), [0.0, 1.0, 2.0]),
}


@pytest.mark.parametrize("name", sorted(FLOATS))
def test_floats_of_numpy_are_floats(name: str) -> None:
    function, wanted = FLOATS[name]
    got = function()
    assert got.dtype == tg.float32
    assert got.tolist() == wanted


def test_numbers_of_other_classes_are_what_they_inherit_from() -> None:
    assert (np.float64(1.5) <= WHOLE).tolist() == [False, True, True]
    assert (WHOLE + np.complex128(1j)).dtype == tg.complex64
    assert tg.tensor([np.complex128(1j), 1]).tolist() == [1j, 1]
    assert tg.result_type(tg.int8, np.float64(1.5)) == tg.float32
    for made in (tg.tensor([Level.ONE, 2]), WHOLE + Level.ONE, WHOLE * True):
        assert made.dtype == tg.int64
    assert (tg.zeros(1, dtype=tg.bfloat16) + 2**70).item() == 2.0**70
    with pytest.raises(errors.InvalidType, match="float32 values into int64"):
        tg.tensor([1, 2]).add_(HALF)


@pytest.mark.parametrize(
    "function",
    [lambda x: +x, tg.positive, tg.clip, tg.floor, tg.round, lambda x: x**1],
    ids=["+", "positive", "clip", "floor", "round", "power"],
)
def test_what_changes_no_element_is_no_view(function: Any) -> None:
    x = tg.tensor([1, 2])
    y = function(x)
    y.add_(1)
    assert x.tolist() == [1, 2]
    assert y.tolist() == [2, 3]


def test_buffers_ranges_and_dtypes_of_numpy() -> None:
    for given in (memoryview(np.arange(3.0)), array("d", [0, 1, 2])):
        assert tg.asarray(given).dtype == tg.float64
        assert tg.tensor(given).tolist() == [0, 1, 2]
    assert tg.tensor(bytearray(b"ab"), dtype=tg.int64).tolist() == [97, 98]
    assert tg.asarray(range(3)).tolist() == [0, 1, 2]
    assert tg.zeros(1, dtype=np.float16).dtype == tg.float16
    with pytest.raises(errors.InvalidType, match=r"tg\.stack joins"):
        tg.tensor([WHOLE, WHOLE])
    with pytest.raises(errors.InvalidType, match="uint32"):
        tg.zeros(1, dtype=np.uint32)


def test_subclasses_of_arrays_are_plain_or_refused() -> None:
    matrix = np.array([[1.0, 2.0], [3.0, 4.0]]).view(Matrix)
    for x in (tg.from_numpy(matrix), tg.tensor(matrix), tg.asarray(matrix)):
        assert (x * x).tolist() == [[1.0, 4.0], [9.0, 16.0]]
        assert type(x.numpy()) is np.ndarray
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for make in (tg.from_numpy, tg.tensor, tg.asarray, lambda a: tg.ones(2) + a):
        with pytest.raises(errors.InvalidValue, match=r"masked .*test_python_values.*filled"):
            make(masked)
    assert tg.tensor(np.ma.array([1.0, 2.0])).tolist() == [1.0, 2.0]


def test_in_and_comparisons_with_what_is_no_tensor() -> None:
    assert 3 in WHOLE.reshape(3, 1)
    assert 7 not in WHOLE
    assert None not in WHOLE
    assert (WHOLE == None) is False  # noqa: E711  as Python has it
    for compare in (lambda: WHOLE == [1, 2, 3], lambda: WHOLE != (1, 2), lambda: WHOLE < [1]):
        with pytest.raises(errors.InvalidType, match=r"test_python_values.*tg\.tensor\(\.\.\.\)"):
            compare()


def test_no_positions_are_positions() -> None:
    x = tg.ones((2, 3))
    assert x[[]].shape == (0, 3)
    assert tg.take(x, [], axis=1).shape == (2, 0)


def test_axis_and_dim_are_one_argument() -> None:
    with pytest.raises(errors.InvalidValue, match=r"axis= and dim= .*test_python_values"):
        tg.sum(tg.ones((2, 3)), axis=0, dim=1)


def test_classes_below_0_are_none() -> None:
    scores, labels = tg.ones((2, 3)), tg.tensor([0, 1])
    with pytest.raises(errors.InvalidIndex, match=r"classes from 0 to 2, got -1 .*test_python"):
        tg.cross_entropy(scores, tg.tensor([0, -1]))
    with pytest.raises(errors.InvalidIndex, match="test_python_values"):
        tg.cross_entropy(scores, labels - 1).item()
    assert tg.nll_loss(scores, labels).item() == -1.0
