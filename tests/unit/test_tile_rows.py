"""Rows of values of whole tensors come from the rows that ops say: computed from these alone."""

import numpy as np
import pytest

from tiga.frontends.tensor.memory.tiling_rules import join_of, needs, of_rows
from tiga.ops.feature import Concat, FeatureSum, Permute, Put, Reshape, Take
from tiga.ops.leaf import Input
from tiga.ops.pointwise import add, where
from tiga.ops.tensor_index import AddAlong, ArgSort, IndexAdd, IndexTake, TakeAlong
from tiga.ops.tensor_matmul import Matmul
from tiga.ops.tensor_reduce import AllTrue, AnyTrue, ArgMax, Max, Min, Prod, Sum
from tiga.ops.tensor_scan import CumSum, Recurrence
from tiga.ops.tensor_views import Slice, Unslice
from tiga.types import GLOBAL, Type, bool_, dtype_of_numpy

RNG = np.random.default_rng(4)
X = RNG.random((6, 4))
CUBE = RNG.random((6, 4, 3))
LINES = RNG.integers(0, 4, (6, 4))
COLUMNS = RNG.integers(0, 4, 5)
BY_ROWS = {
    "add": (add, (X, X)),
    "where": (where, (X > 0.5, X, X)),
    "sum": (Sum((1,)), (X,)),
    "feature sum": (FeatureSum(1), (X,)),
    "argmax": (ArgMax(1), (X,)),
    "all": (AllTrue((1,)), (X > 0.1,)),
    "cumsum": (CumSum(1), (X,)),
    "recurrence": (Recurrence(1), (X, X)),
    "argsort": (ArgSort(1), (X,)),
    "concat": (Concat(1), (X, X)),
    "slice": (Slice(1, 3, 2, -2), (X,)),
    "unslice": (Unslice(1, 1, 2, 9), (X,)),
    "take": (Take(1, (2, 0)), (X,)),
    "put": (Put(1, (3, 1, 0, 4), 5), (X,)),
    "take along": (TakeAlong(1), (X, LINES)),
    "add along": (AddAlong(1, 7), (X, LINES)),
    "index take": (IndexTake(1), (X, COLUMNS)),
    "rows at positions": (IndexTake(0), (X, COLUMNS)),
    "index add": (IndexAdd(1, 6), (RNG.random((6, 5)), COLUMNS)),
    "product": (Matmul(), (X, RNG.random((4, 2)))),
    "products": (Matmul(), (CUBE, RNG.random((6, 3, 2)))),
    "permute": (Permute((0, 2, 1)), (CUBE,)),
    "reshape": (Reshape((6, 12)), (CUBE,)),
}
ACROSS = {
    "sum": (Sum((0,)), (X,)),
    "cumsum": (CumSum(0), (X,)),
    "argsort": (ArgSort(0), (X,)),
    "transpose": (Permute((1, 0)), (X,)),
    "reshape": (Reshape((4, 6)), (X,)),
    "index add": (IndexAdd(0, 6), (X, RNG.integers(0, 6, 6))),
    "one row": (IndexTake(0), (X, np.int64(2))),
}
JOINED = {
    "sum": (Sum((0, 1)), X), "product": (Prod((0,)), X), "max": (Max((0,)), X),
    "min": (Min((0,)), X), "all": (AllTrue((0,)), X > 0.2), "any": (AnyTrue((0, 1)), X > 0.99),
}  # fmt: skip


def applied(op, arrays):
    leaves = [Input(f"x{i}", Type(dtype_of_numpy(a.dtype), a.shape, GLOBAL))()
              for i, a in enumerate(arrays)]  # fmt: skip
    return op(*leaves)


def value(op, arrays):
    return op.reference(*(np.asarray(a)[None] for a in arrays))[0]


@pytest.mark.parametrize("name", BY_ROWS)
def test_rows_of_the_value_come_from_rows_of_operands(name):
    op, arrays = BY_ROWS[name]
    node, whole = applied(op, arrays), value(op, arrays)
    assert node.op == op
    cut = [a[2:5] if w else a for a, w in zip(arrays, needs(node), strict=True)]
    np.testing.assert_allclose(value(of_rows(op, 3), cut), whole[2:5], rtol=1e-12)


@pytest.mark.parametrize("name", ACROSS)
def test_rows_that_depend_on_others_are_told(name):
    op, arrays = ACROSS[name]
    assert needs(applied(op, [np.asarray(a) for a in arrays])) is None


@pytest.mark.parametrize("name", JOINED)
def test_values_of_parts_are_joined_to_that_of_all(name):
    op, x = JOINED[name]
    join = join_of(applied(op, [x]))
    found = join(value(op, [x[:2]]), value(op, [x[2:]]))
    assert (found.dtype == bool_.numpy) == (x.dtype == bool)
    np.testing.assert_allclose(found, value(op, [x]), rtol=1e-12)


def test_no_join_within_rows():
    assert join_of(applied(Sum((1,)), [X])) is None
    assert join_of(applied(ArgMax(0), [X])) is None
