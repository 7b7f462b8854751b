"""What walks on a GPU leave to torch, on tensors of the CPU."""

import pytest
import torch

from tiga.backends.triton.library import MOST_TABLES, call_library, table_blocks
from tiga.ops.leaf import Input
from tiga.ops.lookup import index_sum
from tiga.types import Space, Type, float32, float64, int32, int64

EDGES = Space("edge", "edge")
ERRORS = {float32: 1e-5, float64: 1e-13, int32: 0, int64: 0}
TORCH = {t: getattr(torch, t.name) for t in ERRORS}


def summed(extent, index, y, dtype):
    """The library's sums of rows `y` [N, *I, *K] by `index` [N, *I]."""
    names = Input("i", Type(int64, index.shape[1:], EDGES))()
    rows = Input("y", Type(dtype, y.shape[1:], EDGES))()
    node = index_sum(extent, names, rows)
    out = torch.full((1, *node.type.shape), 77, dtype=TORCH[dtype])
    call_library(node, [index, y], out)
    return out[0]


def expected(extent, index, y):
    wide = torch.float64 if y.is_floating_point() else torch.int64
    total = torch.zeros(extent, *y.shape[index.ndim :], dtype=wide)
    known = (index >= 0) & (index < extent)
    return total.index_put((index[known],), y[known].to(wide), accumulate=True)


def numbers(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    return (10 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(TORCH[dtype])


def indices(shape, extent):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(-2, extent + 2, shape, generator=generator)


@pytest.mark.parametrize("dtype", ERRORS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    ("rows", "extent"), [(0, 3), (1, 3), (63, 3), (997, 1), (20_011, 5), (40_000, 5), (3000, 2000)]
)
def test_sums_by_index(rows, extent, dtype):
    index, y = indices((rows,), extent), numbers((rows, 6), dtype)
    got, want = summed(extent, index, y, dtype), expected(extent, index, y)
    scale = y.abs().sum(0).clamp(min=1) if rows else 1
    assert ((got - want).abs() <= ERRORS[dtype] * scale).all()
    assert torch.equal(got, summed(extent, index, y, dtype))


@pytest.mark.parametrize("inner", [(), (3,)])
def test_several_indices_of_an_edge_and_rows_without_features(inner):
    index, y = indices((2000, 2), 4), numbers((2000, 2, *inner), float64)
    assert torch.allclose(summed(4, index, y, float64), expected(4, index, y), atol=1e-9)


def test_rows_that_no_index_names_count_nowhere():
    y = torch.full((5000, 2), float("nan"))
    y[::5] = 1.0
    index = torch.full((5000,), -1)
    index[::5] = 2
    assert summed(3, index, y, float32).tolist() == [[0, 0], [0, 0], [1000, 1000]]


def test_tables_take_little_beside_the_rows():
    for rows in (0, 100, 10**5, 10**7):
        for extent in (1, 5, 300, 10**6):
            blocks = table_blocks(rows, extent)
            assert 1 <= blocks <= MOST_TABLES
            assert blocks == 1 or blocks * (extent + 1) <= rows / 16
