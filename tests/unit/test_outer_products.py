"""Sums of outer products of node values on the CPU: right, and in one order however they are cut
into tiles."""

import numpy as np
import pytest

from tests.unit.test_ir_round_trip import make_input
from tiga.backends.llvm.node_products import ProductStep
from tiga.backends.llvm.products import COLUMNS, TILE_EDGES
from tiga.ops.contract import outer_sum
from tiga.types import Space, Type, float32

NODES = Space("node", "node")


def made(x, y):
    """The sum of outer products of rows of `x` and `y` by the kernel of their widths."""
    columns = (make_input(label, Type(float32, v.shape[1:], NODES)) for label, v in
               (("x", x), ("y", y)))  # fmt: skip
    step = ProductStep(outer_sum(*columns))
    out, kept = np.full(step.node.type.shape, np.nan, np.float32), []

    def allocate(nbytes):
        kept.append(np.full(nbytes, 255, np.uint8))
        return kept[-1].ctypes.data

    step.run(x.ctypes.data, y.ctypes.data, out.ctypes.data, len(x), 1, allocate)
    return out


def values(rows, width, seed):
    return np.random.default_rng(seed).standard_normal((rows, width), dtype=np.float32)


@pytest.mark.parametrize(("inner", "outer"), [(64, COLUMNS), (7, 2 * COLUMNS), (33, COLUMNS + 6)])
def test_the_sums_are_right_for_any_number_of_rows(inner, outer):
    for rows in (1, TILE_EDGES + 1, 8 * TILE_EDGES, 24 * TILE_EDGES + 5, 700):
        x, y = values(rows, inner, 0), values(rows, outer, 1)
        expected = x.astype(np.float64).T @ y
        np.testing.assert_allclose(made(x, y), expected, rtol=1e-5, atol=1e-4)


def test_sums_have_one_order_whatever_their_width():
    x, y = values(1000, 10, 2), values(1000, COLUMNS + 6, 3)
    whole = np.ascontiguousarray(y[:, :COLUMNS])
    assert np.array_equal(made(x, whole), made(x, y)[:, :COLUMNS])
