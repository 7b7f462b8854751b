"""Edges sorted by compiled kernels: the arrays that numpy gives, whatever the edges."""

from dataclasses import replace

import numpy as np
import pytest

import tiga as tg
from tiga.backends.llvm import sorts
from tiga.errors import InvalidIndex
from tiga.relations import sorting
from tiga.relations.csr import csr_of_coo
from tiga.relations.walk import ARRAYS, HUB_DEGREE, walk_destinations, walk_sources

CASES = {
    "few": (5, 7, 40),
    "many rows": (3000, 100_000, 500),
    "one source": (1, 60, 3000),
    "one row": (60, 1, 3000),
    "many": (400, 300, 9000),
    "tasks": (50, 20_000, 30_000),
}


@pytest.fixture(params=[1, 3], ids=["one block", "three blocks"])
def sorter(request, monkeypatch):
    """One that leaves nothing to numpy, and cuts even few edges."""
    blocks = request.param
    monkeypatch.setattr(sorts, "_blocks", lambda num_edges, num_rows: min(blocks, num_edges))
    return sorts.CompiledSorter(seen=sorts.COMPILED_AFTER)


def edges(case, dtype=np.int64):
    num_src, num_dst, num_edges = CASES[case]
    rng = np.random.default_rng(0)
    src, dst = (rng.integers(0, count, num_edges).astype(dtype) for count in (num_src, num_dst))
    return src, dst, num_src, num_dst


def agree(found, wanted):
    for name in ARRAYS:
        mine, theirs = getattr(found, name), getattr(wanted, name)
        assert (mine is None) == (theirs is None), name
        if mine is not None:
            np.testing.assert_array_equal(mine, theirs, err_msg=name)
            assert mine.dtype == theirs.dtype
    assert found.max_degree == wanted.max_degree


def agree_on_both_walks(sorter, src, dst, num_src, num_dst):
    found = sorter.by_destination(src, dst, num_src, num_dst)
    wanted = csr_of_coo(src, dst, num_src, num_dst)
    assert (found.permutation is None) == (wanted.permutation is None)
    if found.permutation is not None:
        np.testing.assert_array_equal(found.permutation, wanted.permutation)
    np.testing.assert_array_equal(found.col_idx, wanted.col_idx)
    agree(walk_destinations(found, found.plan), walk_destinations(wanted))
    agree(walk_destinations(wanted, sorter.plan(wanted.row_ptr)), walk_destinations(wanted))
    for csr in (found, replace(wanted, col_idx=wanted.col_idx.astype(np.int64))):
        agree(sorter.by_source(csr), walk_sources(wanted))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("case", CASES)
def test_as_numpy_sorts(sorter, case, dtype):
    agree_on_both_walks(sorter, *edges(case, dtype))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_edges_in_order_are_not_moved(sorter, dtype):
    src, dst, *counts = edges("many", dtype)
    agree_on_both_walks(sorter, src, np.sort(dst), *counts)


def test_strides_of_the_user(sorter):
    src, dst, *counts = edges("many")
    pairs = np.stack([src, dst], axis=1)[::-2]
    agree_on_both_walks(sorter, pairs[:, 0], pairs[:, 1], *counts)


@pytest.mark.parametrize("degree", [HUB_DEGREE, HUB_DEGREE + 1])
def test_long_rows_are_split_as_others_do(sorter, degree):
    src, dst, *counts = edges("many")
    agree_on_both_walks(sorter, src, np.where(np.arange(len(dst)) < degree, 7, dst), *counts)
    agree_on_both_walks(sorter, np.where(np.arange(len(dst)) < degree, 7, src), dst, *counts)


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("value", [-1, -(2**31), 400])
def test_an_end_that_does_not_exist_is_left_to_who_names_it(sorter, end, value):
    given = list(edges("many"))
    given[end] = given[end].copy()
    given[end][5000] = value
    assert sorter.by_destination(*given) is None


def test_what_it_leaves_to_numpy():
    given = edges("few")
    fresh = sorts.CompiledSorter()
    assert fresh.by_destination(*given) is None
    assert fresh.plan(np.array([0, 3])) is None
    used = sorts.CompiledSorter(seen=sorts.COMPILED_AFTER)
    assert used.by_destination(given[0].astype(np.int32), *given[1:]) is None
    assert used.by_destination(given[0][:0], given[1][:0], 5, 7) is None


def test_graphs_use_what_is_offered(monkeypatch):
    sorter = sorts.CompiledSorter(seen=sorts.COMPILED_AFTER)
    monkeypatch.setattr(sorting, "_CHOSEN", sorting._Chosen(sorter))
    src, dst, num_src, num_dst = edges("many")
    graph = tg.Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    assert graph.csr().plan is not None
    order = np.argsort(dst, kind="stable")
    np.testing.assert_array_equal(graph.col_idx, src[order])
    np.testing.assert_array_equal(graph.edge_permutation, order)
    back = order[np.argsort(src[order], kind="stable")]
    np.testing.assert_array_equal(graph.transpose().edge_permutation, back)
    src[17] = num_src
    with pytest.raises(InvalidIndex, match="edge position 17 has value 400"):
        tg.Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
