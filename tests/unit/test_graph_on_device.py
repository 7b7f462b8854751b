"""Topology made by the methods of tensors, as on a GPU, beside what numpy makes of it."""

import numpy as np
import pytest
import torch

from tiga.relations import Graph
from tiga.relations.inputs import CooInput, CsrInput
from tiga.relations.on_device import DeviceCsr, csr_of_ends, csr_of_rows, transpose
from tiga.relations.snapshot import Snapshot


def same(there: DeviceCsr, graph: Graph) -> None:
    here, csr = there.host(), graph.csr()
    assert (here.num_src, here.num_dst) == (csr.num_src, csr.num_dst)
    assert np.array_equal(here.row_ptr, csr.row_ptr)
    assert np.array_equal(here.col_idx, csr.col_idx)
    assert there.index_dtype == csr.index_dtype
    assert (here.permutation is None) == (csr.permutation is None)
    if csr.permutation is not None:
        assert np.array_equal(here.permutation, csr.permutation)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("counts", [(None, None), (9, None), (None, 12), (9, 12)])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_edges_by_both_ends(dtype, counts, is_sorted):
    torch.manual_seed(3)
    src, dst = torch.randint(0, 9, (2, 40)).to(dtype)
    dst = dst.sort().values if is_sorted else dst
    graph = Graph.from_coo(src, dst, num_src=counts[0], num_dst=counts[1])
    there = csr_of_ends(src, dst, *counts, "basic")
    same(there, graph)
    same(transpose(there), graph.transpose())


@pytest.mark.parametrize("num_src", [None, 9])
def test_edges_by_row_pointers(num_src):
    row_ptr, col_idx = torch.tensor([0, 2, 2, 5, 6]), torch.tensor([8, 0, 3, 3, 1, 7])
    graph = Graph.from_csr(row_ptr, col_idx, num_src=num_src)
    there = csr_of_rows(row_ptr, col_idx, num_src, "basic")
    same(there, graph)
    same(transpose(there), graph.transpose())


@pytest.mark.parametrize(("src", "dst"), [([0, 3], [1, 1]), ([0, -1], [1, 1]), ([0, 1], [1, 2])])
def test_an_index_out_of_range_is_left_to_the_check_that_names_it(src, dst):
    src, dst = torch.tensor(src), torch.tensor(dst)
    assert csr_of_ends(src, dst, 3, 2, "basic") is None
    assert csr_of_ends(src[:1], dst[:1], 3, 2, "basic") is not None


@pytest.mark.parametrize("row_ptr", [[1, 2, 2], [0, 3, 2], [0, 1, 3], [0, 2, 1], []], ids=repr)
def test_wrong_row_pointers_are_left_to_the_check_that_names_them(row_ptr):
    assert csr_of_rows(torch.tensor(row_ptr).long(), torch.tensor([0, 0]), 1, "basic") is None


def test_what_was_not_to_be_checked_is_trusted():
    src, dst = torch.tensor([0, 5]), torch.tensor([0, 0])
    assert csr_of_ends(src, dst, 1, 1, "none") is not None


def test_a_snapshot_copies_to_the_host_when_asked():
    src, dst = torch.tensor([2, 0, 1]), torch.tensor([1, 0, 1])
    snapshot = Snapshot((), csr_of_ends(src, dst, 3, 2, "basic"))
    assert (snapshot.num_src, snapshot.num_dst, snapshot.num_edges) == (3, 2, 3)
    assert "host" not in snapshot.derived
    assert snapshot.csr.col_idx.tolist() == [0, 2, 1]
    assert snapshot.csr is snapshot.csr
    assert snapshot.walk("src").index.tolist() == [0, 1, 1]


def test_indices_of_the_cpu_stay_there():
    edges = torch.tensor([[0, 1], [1, 1]])
    graph = Graph.from_edge_index(edges)
    assert isinstance(graph.input, CooInput)
    assert graph.input.build_on_gpu("basic") is None
    assert isinstance(Graph.from_csr([0, 1], [0]).input, CsrInput)
    assert graph.transpose().input.build_on_gpu("basic") is None
