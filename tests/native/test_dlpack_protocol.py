"""DLPack as the array API writes it down: versions, copies and devices."""

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

import tiga as tg
from tiga import errors

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]


class Producer:
    """Another library's array; it notes what it is asked for."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**{k: v for k, v in options.items() if v is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


@pytest.mark.parametrize(
    ("version", "name"),
    [(None, b"dltensor"), ((0, 8), b"dltensor"), ((1, 0), b"dltensor_versioned"),
     ((1, 7), b"dltensor_versioned"), ((2, 0), b"dltensor_versioned")],
)  # fmt: skip
def test_the_newest_version_that_both_know(version: tuple[int, int] | None, name: bytes) -> None:
    assert _name(tg.ones(3).__dlpack__(max_version=version)) == name


@pytest.mark.parametrize("copy", [None, False, True])
def test_copies_as_asked(copy: bool | None) -> None:
    x = tg.tensor([1.0, 2.0, 3.0])
    there = np.from_dlpack(x, copy=copy)
    x.add_(1.0)
    assert there.tolist() == ([1.0, 2.0, 3.0] if copy else [2.0, 3.0, 4.0])


@pytest.mark.parametrize("copy", [None, False, True])
def test_copies_on_the_way_in(copy: bool | None) -> None:
    given = np.arange(3.0)
    x = tg.from_dlpack(Producer(given), copy=copy)
    given += 1.0
    assert x.tolist() == ([0.0, 1.0, 2.0] if copy else [1.0, 2.0, 3.0])


def test_devices_by_name() -> None:
    x = tg.ones((2, 2))
    assert x.__dlpack_device__() == (1, 0)
    assert _name(x.__dlpack__(dl_device=(1, 0), copy=False)) == b"dltensor"
    with pytest.raises(errors.InvalidType, match="on the CPU"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(errors.InvalidType, match="CPU or an NVIDIA GPU"):
        tg.from_dlpack(Producer(np.ones(2), device=(8, 0)))


@pytest.mark.parametrize(
    "view",
    [lambda x: x[1:, ::2], lambda x: x.T, lambda x: x[::-1], lambda x: x[0, 0],
     lambda x: tg.broadcast_to(x[0], (2, 4)), lambda x: x[:0]],
)  # fmt: skip
def test_views_keep_their_strides(view: Callable[[tg.Tensor], tg.Tensor]) -> None:
    x = tg.arange(12, dtype=tg.float32).reshape(3, 4)
    seen = view(x)
    there = np.from_dlpack(seen)
    np.testing.assert_array_equal(there, seen.numpy())
    if there.size > 1:
        assert np.shares_memory(there, seen.numpy())
        assert there.strides == tuple(4 * s for s in seen.strides)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64",
              "complex64", "complex128"],
)  # fmt: skip
def test_every_dtype_with_a_code(dtype: str) -> None:
    x = tg.ones((2, 3), dtype=getattr(tg, dtype))
    there = np.from_dlpack(x)
    assert there.dtype == np.dtype(dtype)
    back = tg.from_dlpack(Producer(there))
    assert back.dtype == x.dtype
    assert back.tolist() == x.tolist()


def test_lazy_values_are_computed_first() -> None:
    x = tg.ones(3) * 2.0
    assert np.from_dlpack(x).tolist() == [2.0, 2.0, 2.0]


def test_memory_outlives_its_tensor() -> None:
    there = np.from_dlpack(tg.arange(4) + 1)
    assert there.tolist() == [1, 2, 3, 4]


def test_derivatives_do_not_cross() -> None:
    x = tg.ones(2, requires_grad=True)
    assert not tg.from_dlpack(np.from_dlpack(x.detach())).requires_grad


class Old(Producer):
    """A producer from before DLPack 1.0: it takes no options."""

    def __dlpack__(self, stream: object = None) -> object:  # type: ignore[override]
        return self.array.__dlpack__()


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a.T, lambda a: a[::-1], lambda a: a[:0]])
def test_old_producers_lend_their_memory_to_read(view: Callable[[np.ndarray], np.ndarray]) -> None:
    given = np.arange(6.0).reshape(2, 3)
    x = tg.from_dlpack(Old(view(given)))
    given += 1.0
    assert x.tolist() == view(given).tolist()
    with pytest.raises(errors.InvalidValue, match="lends to read"):
        x.add_(1.0)
    assert tg.tensor(Old(given)).add_(1.0).tolist() == (given + 1.0).tolist()


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[:, ::2], lambda x: x[:0]])
def test_bfloat16_goes_both_ways(view: Callable[[tg.Tensor], tg.Tensor]) -> None:
    x = tg.arange(6, dtype=tg.bfloat16).reshape(2, 3)
    back = tg.from_dlpack(OnlyDLPack(view(x)))
    assert back.dtype == tg.bfloat16
    x.mul_(2.0)
    assert back.tolist() == view(x).tolist()


class OnlyDLPack:
    """What another library sees of a tensor."""

    def __init__(self, x: tg.Tensor) -> None:
        self.x = x

    def __dlpack__(self, **options: object) -> object:
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


def test_a_dtype_without_counterpart_is_named() -> None:
    with pytest.raises(errors.InvalidType, match="uint32"):
        tg.from_dlpack(np.zeros(3, np.uint32))
