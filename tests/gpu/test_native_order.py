"""Native tensors on a GPU: order, positions, masks and writes at them, against numpy; no torch."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tiga as tg
from tiga import errors

RNG = np.random.default_rng(0)
DTYPES = (np.float64, np.int64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.bool_)


def there(array: Any) -> tg.Tensor:
    return tg.tensor(np.asarray(array), device="cuda")


def numbers(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Numbers with ties; of floats also NaN, infinities and both zeros."""
    array = (RNG.normal(size=shape) * 50).astype(dtype)
    if np.dtype(dtype).kind in "fV":
        array.reshape(-1)[[3, 40, 41, 7, 60]] = np.nan, np.inf, -np.inf, -0.0, 0.0
    return array


@pytest.mark.parametrize(
    ("dtype", "descending"),
    [*((dtype, False) for dtype in DTYPES), (np.float64, True), (np.int8, True)],
)
def test_rows_of_any_length_are_sorted(dtype: Any, descending: bool) -> None:
    wide = np.dtype(dtype).itemsize == 8
    array = numbers((2, 700 if wide else 8200), dtype)
    want = tg.argsort(tg.tensor(array), descending=descending)
    got = tg.argsort(there(array), descending=descending)
    assert got.device == "cuda"
    assert (got.cpu().numpy() == want.numpy()).all()


def test_columns_of_long_numbers_are_sorted() -> None:
    array = RNG.integers(-(2**62), 2**62, (20, 3, 2))
    got = tg.sort(there(array), axis=0)
    assert (got.cpu().numpy() == np.sort(array, axis=0)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("side", ["left", "right"])
def test_searches(dtype: Any, side: Any) -> None:
    array, bounds = np.sort(numbers((500,), dtype)), numbers((7, 30), dtype)
    bounds[1] = array[10:40]
    got = tg.searchsorted(there(array), there(bounds), side=side)
    assert (got.cpu().numpy() == np.searchsorted(array, bounds, side=side)).all()


def test_positions_of_what_is_true() -> None:
    array = RNG.integers(0, 3, (30, 5, 7))
    found = tg.nonzero(there(array))
    for got, want in zip(found, np.nonzero(array), strict=True):
        assert (got.cpu().numpy() == want).all()
    assert found[0].execution is not None
    assert found[0].execution["waited_for"] == "the number of elements"
    assert [one.shape for one in tg.nonzero(there(np.zeros((3, 4))))] == [(0,), (0,)]


def test_masks_as_indices() -> None:
    array = RNG.normal(size=(30, 50)).astype(np.float32)
    whole, rows = array > 0.5, array[:, 0] > 0
    x = there(array)
    assert (x[there(whole)].cpu().numpy() == array[whole]).all()
    assert (x[there(rows)].cpu().numpy() == array[rows]).all()
    assert (x[there(rows), 3].cpu().numpy() == array[rows, 3]).all()
    leaf = tg.tensor(array, device="cuda", requires_grad=True)
    grad = tg.autograd.grad((leaf[there(whole)] * 2.0).sum(), leaf)
    assert (grad.cpu().numpy() == 2.0 * whole).all()


def test_what_is_distinct() -> None:
    for array in (RNG.integers(0, 9, (6, 40)), np.round(RNG.normal(size=200), 1), np.zeros(0)):
        got, want = tg.unique_all(there(array)), np.unique_all(array)
        for one, other in zip(got, want, strict=True):
            assert one.shape == other.shape
            assert (one.cpu().numpy() == other).all()
    assert tg.unique(there([np.nan, 1.0, np.nan])).shape == (3,)
    with pytest.raises(errors.InvalidType, match=r"have no order .*test_native_order"):
        tg.unique(there(np.ones(3, np.complex64)))


def test_writes_at_positions_and_masks() -> None:
    array = RNG.normal(size=(30, 50)).astype(np.float32)
    x = there(array)
    view, mask, rows = x[:, ::2], array > 0.2, array[:, 1] > 0
    x[there(mask)] = 0.5
    array[mask] = 0.5
    x[there(mask)] = tg.arange(int(mask.sum()), device="cuda").astype(tg.float32)
    array[mask] = np.arange(mask.sum())
    x[there(rows)] = 2.0
    array[rows] = 2.0
    given = RNG.normal(size=(4, 50)).astype(np.float32)
    x[there([3, -1, 3, 7])] = there(given)
    array[[3, -1, 3, 7]] = given  # of equal positions the last is stored
    assert (x.cpu().numpy() == array).all()
    view[there([0, 2])] = 9.0
    array[[0, 2], ::2] = 9.0
    assert (x.cpu().numpy() == array).all()
    assert x.version == 5
    with pytest.raises(errors.InvalidIndex, match=r"position 99 .*test_native_order"):
        x[there([1, 99])] = 1.0
    with pytest.raises(errors.InvalidIndex, match="mask of extent 2"):
        x[there([True, False])] = 1.0
    assert (x.cpu().numpy() == array).all()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running_sums_of_complex_numbers(axis: int) -> None:
    array = (RNG.normal(size=(3, 40, 4)) + 1j * RNG.normal(size=(3, 40, 4))).astype(np.complex64)
    got = tg.cumulative_sum(there(array), axis=axis)
    np.testing.assert_allclose(got.cpu().numpy(), np.cumsum(array, axis), rtol=1e-5, atol=1e-5)


def _entries() -> dict[str, tuple[Any, ...]]:
    """Indices of a 4 x 5 x 6 array, some of them arrays."""
    rng = np.random.default_rng(0)
    i, j, k = (rng.integers(-extent, extent, 7) for extent in (4, 5, 6))
    mask = rng.random((4, 5)) < 0.5
    return {
        "two": (i, j), "three": (i, j, k), "crossed": (i[:, None], j[None, :3]),
        "a slice between": (i, slice(None), k), "a slice before": (slice(1, 3), j, k),
        "steps": (slice(None, None, 2), j), "a number": (2, j, k), "a new axis": (None, i, j),
        "the last": (..., k), "a mask": (mask,), "a mask and more": (mask, k[: mask.sum()][:1]),
        "one": (i,), "a table of positions": (i.reshape(7, 1), slice(None), slice(2, 5)),
    }  # fmt: skip


@pytest.mark.parametrize("name", _entries())
def test_writes_at_several_tensors(name: str) -> None:
    entries = _entries()[name]
    want = np.arange(120, dtype=np.float32).reshape(4, 5, 6)
    x = tg.tensor(want, device="cuda")
    on_gpu = tuple(tg.tensor(e, device="cuda") if isinstance(e, np.ndarray) else e for e in entries)
    values = np.random.default_rng(1).normal(size=want[entries].shape).astype(np.float32)
    x[on_gpu] = tg.tensor(values, device="cuda")
    want[entries] = values
    assert x.tolist() == want.tolist()
    x[on_gpu] = -1.0
    want[entries] = -1.0
    assert x.tolist() == want.tolist()


def test_writes_at_positions_that_do_not_exist() -> None:
    x = tg.zeros((3, 4), device="cuda")
    i, j = tg.tensor([0, 1], device="cuda"), tg.tensor([1, 4], device="cuda")
    with pytest.raises(
        errors.InvalidIndex, match=r"position 4 for an extent of 4 .*test_native_order"
    ):
        x[i, j] = 1.0
    with pytest.raises(errors.InvalidIndex):
        x[i, j].tolist()
    assert x.sum().tolist() == 0.0


def _written(device: str) -> list[list[Any]]:
    """A tensor written at places of a table, two of which come twice, seen through a view."""
    rng = np.random.default_rng(2)
    w, v = (tg.tensor(rng.normal(size=s), device=device, requires_grad=True) for s in (12, (2, 3)))
    x = (w * w).reshape(3, 4)
    row = x[1]
    i = tg.tensor([[0, 1, 1], [2, 1, 1]], device=device)
    j = tg.tensor([[0, 1, -1], [2, 1, 0]], device=device)
    x[i, j] = v * 2.0
    x[tg.tensor([2], device=device)] = 0.5
    loss = (x * x).sum() + (row * row * row).sum()
    grads = tg.autograd.grad(loss, [w, v])
    return [t.tolist() for t in (x, row, *grads)]


def test_derivatives_pass_through_writes_at_tensors() -> None:
    for one, other in zip(_written("cuda"), _written("cpu"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("descending", [False, True])
def test_many_whole_numbers_are_sorted_by_their_range(descending: bool) -> None:
    """From one end of int64 to the other, and within a few bits."""
    for width in (2**62, 40):
        host = RNG.integers(-width, width, 2**16)
        host[::7] = host[0]
        if width > 40:
            host[:2] = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        order = tg.argsort(there(host), descending=descending).cpu().numpy()
        wide = host.astype(object) * (-1 if descending else 1)
        assert (order == np.argsort(wide, kind="stable")).all()
