"""Copies in row-major memory are the arrays that they are made of."""

import numpy as np
import pytest

from tiga.runtime.layout import LARGE, row_major_array, row_major_copy

SHAPES = ((512, 1024), (1000, 1024), (2048, 520), (3, 512, 1024), (512, 3, 512), (2, 600, 2, 512))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "complex128", "int8"])
def test_copies_of_turned_arrays(shape: tuple[int, ...], dtype: str) -> None:
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    orders = {tuple(reversed(range(len(shape)))), (*range(1, len(shape)), 0),
              (len(shape) - 1, *range(len(shape) - 1))}  # fmt: skip
    for order in orders:
        turned = array.transpose(order)
        for view in (turned, turned[::-1], np.broadcast_to(turned, (2, *turned.shape))):
            copy = row_major_copy(view)
            assert copy.flags.c_contiguous
            assert not np.shares_memory(copy, view)
            np.testing.assert_array_equal(copy, view)


def test_what_is_in_order_is_not_copied() -> None:
    array = np.zeros(LARGE)
    assert row_major_array(array) is array
    assert row_major_array(array[::2]).flags.c_contiguous
