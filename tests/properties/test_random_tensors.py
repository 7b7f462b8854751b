"""Expressions of native tensors drawn at random, computed op by op and compiled; numbers of every
type beside tensors of every type."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiga as tg
from tests.interpreted import run_interpreted
from tests.random_tensors import check, drawn

some = settings(suppress_health_check=list(HealthCheck), deadline=None)


@settings(some, max_examples=120)
@drawn
def test_random_expressions(**expression: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIGA_TENSOR_BACKEND", "python")
        check(**expression)


@settings(some, max_examples=5)
@drawn
def test_random_kernels(**expression: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIGA_TENSOR_BACKEND", "native")
        check(**expression)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(some, max_examples=200)
@drawn
def test_many_random_kernels(**expression: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIGA_TENSOR_BACKEND", "native")
        check(**expression)


def test_random_kernels_of_a_gpu() -> None:
    """Interpreted."""
    pytest.importorskip("triton")
    run_interpreted("-m", "not slow", "tests/gpu/test_random_tensors.py")


DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32",
          "float64", "complex64", "complex128")  # fmt: skip
NUMBERS = (True, 0, 1, 3, 0.5, -1.5, float("nan"), float("inf"), 1j)
FUNCTIONS: dict[str, Any] = {
    "add": ("add", "add"), "multiply": ("multiply", "mul"), "divide": ("divide", "div"),
    "equal": ("equal", "eq"), "and": ("logical_and", "logical_and"),
    "or": ("logical_or", "logical_or"), "xor": ("logical_xor", "logical_xor"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@settings(some, max_examples=150)
@given(
    name=st.sampled_from(sorted(FUNCTIONS)), left=st.sampled_from(DTYPES),
    values=st.lists(st.integers(-3, 3), min_size=1, max_size=5),
    right=st.one_of(st.sampled_from(NUMBERS), st.sampled_from(DTYPES)), to=st.sampled_from(DTYPES),
)  # fmt: skip
def test_every_type(name: str, left: str, values: list[int], right: Any, to: str) -> None:
    """Functions of mixed types, and what they give in another type, as torch does."""
    native, other = FUNCTIONS[name]
    x = torch.tensor(values).abs().to(getattr(torch, left))
    second = torch.tensor(values).to(getattr(torch, right)) if isinstance(right, str) else right
    try:
        want = getattr(torch, other)(x, torch.as_tensor(second))
        mine = tg.from_torch(second) if isinstance(right, str) else right
        got = getattr(tg, native)(tg.from_torch(x), mine)
    except (RuntimeError, tg.errors.InvalidType, tg.errors.InvalidValue):
        return  # one of the two has no such mix
    # torch has a complex type of two halves, which native tensors lack.
    assert str(got.dtype) == str(want.dtype).removeprefix("torch.").replace(
        "complex32", "complex64"
    )
    if want.is_complex() and not isinstance(right, str) and not np.isfinite(right):
        return  # torch multiplies by one as a complex number, which makes a NaN of an infinity
    _same(got, want)
    if to in ("bool", "float64", "complex128"):  # numbers that are not whole fit no integer
        real = want.real if want.is_complex() and to == "float64" else want
        _same(got.astype(getattr(tg, to)), real.to(getattr(torch, to)))


def _same(got: tg.Tensor, want: torch.Tensor) -> None:
    wide = torch.complex128 if want.is_complex() else torch.float64
    tolerance = 1e-2 if want.dtype.itemsize < 4 else 1e-5
    torch.testing.assert_close(got.to_torch().to(wide), want.to(wide), rtol=tolerance,
                               atol=tolerance, equal_nan=True)  # fmt: skip
