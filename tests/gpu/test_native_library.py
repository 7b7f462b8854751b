"""What walks leave to a library, on memory of a GPU without torch, against numpy."""

from typing import Any

import numpy as np
import pytest

from tiga.backends.triton.machine import machine
from tiga.backends.triton.native_library import call_library
from tiga.ops.contract import contract, outer_sum
from tiga.ops.feature import concat, feature_max, feature_sum, permute
from tiga.ops.leaf import Input
from tiga.ops.lookup import index_sum
from tiga.runtime.device_array import DeviceArray, download
from tiga.trace.node import Node
from tiga.types import GLOBAL, DType, Space, Type, bfloat16, float32, float64, int64

NODES = Space("node", "node")
ERRORS = {float64: 1e-12, float32: 2e-5, bfloat16: 2e-2}


def numbers(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype.numpy)


def given(name: str, shape: tuple[int, ...], dtype: DType, space: Any = NODES) -> Node:
    return Input(name, Type(dtype, shape, space))()


def computed(node: Node, arrays: list[np.ndarray]) -> np.ndarray:
    """The node's value through the library, from arrays with an entity axis."""
    platform = machine(0).platform
    there = [platform.sent(a) for a in arrays]
    arena = platform.arena(max(node.type.row_bytes * (len(arrays[0]) + 1), 1))
    count = 1 if node.type.space == GLOBAL else len(arrays[0])
    out = DeviceArray(arena, (count, *node.type.shape), node.type.dtype.numpy)
    call_library(node, there, out)
    return download(out)


def agree(node: Node, arrays: list[np.ndarray]) -> None:
    wide = [a.astype(np.float64) if a.dtype.kind in "fV" else a for a in arrays]
    want = node.op.reference(*wide)
    got = computed(node, arrays).astype(np.float64)
    bound = ERRORS[node.type.dtype] * max(np.abs(want).max(), 1)
    np.testing.assert_allclose(got, want.reshape(got.shape), atol=bound)


@pytest.mark.parametrize("dtype", [float32, float64, bfloat16])
@pytest.mark.parametrize("rows", [1, 70, 1100])
def test_products(dtype: DType, rows: int) -> None:
    x, y = given("x", (5,), dtype), given("y", (7,), dtype)
    matrix = given("m", (5, 7), dtype, GLOBAL)
    a, b, m = numbers((rows, 5), dtype), numbers((rows, 7), dtype), numbers((1, 5, 7), dtype)
    agree(contract(x, matrix), [a, m])
    agree(outer_sum(x, y), [a, b])


@pytest.mark.parametrize("rows", [0, 60, 2000])
def test_sums_by_index(rows: int) -> None:
    index, y = given("i", (), int64), given("y", (3,), float32)
    places = np.random.default_rng(0).integers(-2, 9, rows)
    agree(index_sum(7, index, y), [places, numbers((rows, 3), float32)])


def test_global_values_rearranged() -> None:
    x, y = given("x", (3, 4), float32, GLOBAL), given("y", (3, 2), float32, GLOBAL)
    a, b = numbers((1, 3, 4), float32), numbers((1, 3, 2), float32)
    agree(permute(x, (1, 0)), [a])
    agree(concat(1, x, y), [a, b])
    agree(feature_sum(x, 1), [a])
    agree(feature_max(x, 0), [a])
