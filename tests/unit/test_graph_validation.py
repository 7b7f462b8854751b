"""`Graph`: bad input is refused with the edge, the value and the bound; edits are noticed."""

import threading

import numpy as np
import pytest
import torch

from tiga.errors import InvalidIndex, InvalidType, InvalidValue, StaleTopology
from tiga.relations import Graph

CHECKED = ["basic", "full"]


def both(*values):
    return [np.array(values), torch.tensor(values), list(values)]


@pytest.mark.parametrize("validate", CHECKED)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("dst", "message"),
    [
        ([1, 3], r"`dst`.* edge position 1 has value 3, allowed range 0\.\.2 \(num_dst=3\)"),
        ([-1, 1], r"`dst`.* edge position 0 has value -1, allowed range 0\.\.2 \(num_dst=3\)"),
    ],
)
def test_destination_out_of_range(validate, dtype, dst, message):
    ends = torch.tensor([0, 2], dtype=dtype), torch.tensor(dst, dtype=dtype)
    with pytest.raises(IndexError, match=message) as caught:
        Graph.from_coo(*ends, num_src=3, num_dst=3, validate=validate)
    assert isinstance(caught.value, InvalidIndex)
    with pytest.raises(IndexError, match=message):
        Graph.from_edge_index(torch.stack(ends), num_nodes=3, validate=validate)
    assert Graph.from_coo([0, 2], [1, 1], num_src=3, num_dst=3, validate=validate).num_edges == 2


@pytest.mark.parametrize("validate", CHECKED)
def test_the_first_bad_edge_is_named_whichever_end_it_is(validate):
    with pytest.raises(InvalidIndex, match=r"`src`.* edge position 1 has value 9"):
        Graph.from_coo([0, 9, 0], [2, 0, 8], num_src=3, num_dst=3, validate=validate)
    with pytest.raises(InvalidIndex, match=r"`dst`.* edge position 1 has value 8"):
        Graph.from_coo([0, 0, 9], [2, 8, 0], num_src=3, num_dst=3, validate=validate)
    with pytest.raises(InvalidIndex, match=r"`src`.* edge position 1 has value 9"):
        Graph.from_coo([0, 9, 0], [2, 8, 0], num_src=3, num_dst=3, validate=validate)


@pytest.mark.parametrize("validate", CHECKED)
@pytest.mark.parametrize("value", [2, -1, 2**31 - 1, -(2**31)])
def test_csr_source_out_of_range(validate, value):
    for dtype in (np.int32, np.int64):
        col_idx = np.array([0, 1, value, 1], dtype=dtype)
        message = rf"`col_idx`.* edge position 2 has value {value}, allowed range 0\.\.1 .*num_src"
        with pytest.raises(InvalidIndex, match=message):
            Graph.from_csr([0, 2, 4], col_idx, num_src=2, validate=validate)


@pytest.mark.parametrize("validate", CHECKED)
def test_negative_int32_is_refused_however_many_nodes_there_are(validate):
    col_idx = np.array([0, -1], dtype=np.int32)
    with pytest.raises(InvalidIndex, match="edge position 1 has value -1"):
        Graph.from_csr([0, 2], col_idx, num_src=2**32, validate=validate)


def test_negative_index_with_inferred_counts():
    with pytest.raises(
        InvalidIndex, match=r"`src`.* position 1 has value -2, allowed range 0\.\.4"
    ):
        Graph.from_coo([0, -2], [4, 1])
    with pytest.raises(InvalidIndex, match="position 0 has value -1, no index is allowed"):
        Graph.from_coo([-1], [-1])


def test_no_node_to_point_to():
    with pytest.raises(InvalidIndex, match=r"no index is allowed \(num_src=0\)"):
        Graph.from_csr([0, 1], [0], num_src=0)


def test_checks_can_be_skipped():
    assert Graph.from_csr([0, 1], [5], num_src=2, validate="none").num_src == 2
    with pytest.raises(InvalidValue, match="must end at"):
        Graph.from_csr([0, 2], [5], num_src=2, validate="none")


@pytest.mark.parametrize("validate", ["", "Full", None, True])
def test_unknown_validation(validate):
    with pytest.raises(InvalidValue, match='"basic", "full" or "none"'):
        Graph.from_coo([0], [0], validate=validate)


@pytest.mark.parametrize(
    ("row_ptr", "message"),
    [
        ([1, 2, 3], "must start at 0, got 1"),
        ([-1, 2, 3], "must start at 0, got -1"),
        ([0, 2, 1, 3], r"must not fall, got row_ptr\[1\] = 2 and row_ptr\[2\] = 1"),
        ([0, 5, 3], r"must not fall, got row_ptr\[1\] = 5"),
        ([0, 2], "must end at the number of edges, 3 .* got 2"),
        ([0, 4], "must end at the number of edges, 3 .* got 4"),
        ([0], "must end at the number of edges, 3 .* got 0"),
        ([], r"num_dst \+ 1 entries, got none"),
    ],
)
@pytest.mark.parametrize("validate", ["basic", "full", "none"])
def test_bad_row_pointers(row_ptr, message, validate):
    with pytest.raises(InvalidValue, match=message):
        Graph.from_csr(np.array(row_ptr, dtype=np.int64), [0, 0, 0], validate=validate)


def test_more_edges_than_int32_row_pointers_count():
    # Broadcast views: 2^31 entries in four bytes.
    many = torch.zeros(1, dtype=torch.int32).expand(2**31)
    row_ptr = torch.tensor([0, -(2**31)], dtype=torch.int32)
    with pytest.raises(InvalidValue, match=f"{2**31} edges need an int64 `row_ptr`"):
        Graph.from_csr(row_ptr, many, num_src=1, validate="none")


@pytest.mark.parametrize("make", [np.array, torch.tensor, list])
@pytest.mark.parametrize(
    ("values", "found"), [([0.0, 1.0], "float"), ([True, False], "bool"), ([0j], "complex")]
)
def test_indices_must_be_integers(make, values, found):
    with pytest.raises(InvalidType, match=f"`src` must hold int32 or int64 indices, got .*{found}"):
        Graph.from_coo(make(values), [0] * len(values))
    with pytest.raises(InvalidType, match="`row_ptr` must hold int32 or int64"):
        Graph.from_csr(make(values), [0])


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "uint32", "uint64", "object", "U1"])
def test_other_numpy_types(dtype):
    with pytest.raises(InvalidType, match="`dst` must hold int32 or int64"):
        Graph.from_coo([0], np.array([0]).astype(dtype))


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8, torch.bfloat16])
def test_other_torch_types(dtype):
    with pytest.raises(InvalidType, match=f"got {dtype}"):
        Graph.from_coo(torch.zeros(1, dtype=dtype), torch.zeros(1, dtype=torch.long))


@pytest.mark.parametrize("value", [None, "ab", object(), [None], [2**70]])
def test_what_is_no_array_at_all(value):
    with pytest.raises((InvalidType, InvalidValue), match="`src`"):
        Graph.from_coo(value, [0])


def test_ragged_lists():
    with pytest.raises(InvalidValue, match="`src` must be an array of integers, got a list"):
        Graph.from_coo([[0], [0, 1]], [0])
    with pytest.raises(InvalidValue, match="`edge_index` must be an array of integers"):
        Graph.from_edge_index([[0], [0, 1]])


def test_tensors_without_plain_data():
    indices = torch.zeros(2, dtype=torch.long)
    for odd in (indices.to("meta"), indices.to_sparse()):
        with pytest.raises(InvalidType, match="`src`"):
            Graph.from_coo(odd, odd)


def test_devices_must_agree():
    class Elsewhere(torch.Tensor):
        device = "cuda:1"

    elsewhere = torch.zeros(1, dtype=torch.long).as_subclass(Elsewhere)
    with pytest.raises(InvalidType, match="one device, got `src` on"):
        Graph.from_coo(elsewhere, np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize("shape", [(), (2, 2), (1, 2, 1)])
def test_one_axis(shape):
    for bad in (np.zeros(shape, dtype=np.int64), torch.zeros(shape, dtype=torch.long)):
        with pytest.raises(InvalidValue, match=r"`col_idx` must have one axis, got shape \("):
            Graph.from_csr([0, 2], bad)


@pytest.mark.parametrize("shape", [(), (2,), (3, 2), (2, 2, 1)])
def test_edge_index_shape(shape):
    for bad in (np.zeros(shape, dtype=np.int64), torch.zeros(shape, dtype=torch.long)):
        with pytest.raises(InvalidValue, match=r"shape \[2, num_edges\], got \["):
            Graph.from_edge_index(bad)


def test_ends_of_different_length():
    with pytest.raises(InvalidValue, match="one entry per edge each, got 2 and 3"):
        Graph.from_coo([0, 1], [0, 1, 2])


@pytest.mark.parametrize(
    ("count", "error", "message"),
    [
        (-1, InvalidValue, "`num_dst` must be at least 0, got -1"),
        (2**70, InvalidValue, r"`num_dst` must be below 2\^60, got 11805"),
        (2.0, InvalidType, "`num_dst` must be an integer, got float"),
        (True, InvalidType, "`num_dst` must be an integer, got True"),
        ("3", InvalidType, "`num_dst` must be an integer, got str"),
    ],
)
def test_counts(count, error, message):
    with pytest.raises(error, match=message):
        Graph.from_coo([0], [0], num_dst=count)


def test_num_nodes_excludes_the_other_counts():
    with pytest.raises(InvalidValue, match="not both"):
        Graph.from_edge_index([[0], [0]], num_nodes=1, num_src=1)


def test_numpy_arrays_are_copied_on_entry():
    src, dst = np.array([0, 1]), np.array([1, 0])
    graph = Graph.from_coo(src, dst)
    src[:], dst[:] = 9, -9
    assert [end.tolist() for end in graph.coo()] == [[0, 1], [1, 0]]
    assert graph.walk("src").index.tolist() == [1, 0]


def test_inference_tensors_are_copied_on_entry():
    with torch.inference_mode():
        index = torch.tensor([[0, 1], [1, 0]])
        graph = Graph.from_edge_index(index)
        token = graph.token()
        index.fill_(7)
        assert graph.check_unchanged(token)
    assert [end.tolist() for end in graph.coo()] == [[0, 1], [1, 0]]
    assert isinstance(graph.col_idx, torch.Tensor)


@pytest.mark.parametrize("inference", [False, True])
def test_edits_in_place_are_seen(inference):
    row_ptr, col_idx = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1])
    graph = Graph.from_csr(row_ptr, col_idx)
    before, token = graph.walk("src"), graph.token()
    transposed = graph.transpose()
    assert transposed.degree_statistics().maximum == 2
    with torch.inference_mode(inference):
        col_idx.copy_(torch.tensor([1, 1, 1]))
    assert not graph.check_unchanged(token)
    assert graph.walk("src") is not before
    assert graph.walk("src").row_ptr.tolist() == [0, 0, 3]
    assert graph.walk("dst").index.tolist() == [1, 1, 1]
    assert transposed.row_ptr.tolist() == [0, 0, 3]
    assert transposed.degree_statistics().maximum == 3
    row_ptr[1] = 1
    assert graph.degree_statistics().maximum == 2
    assert before.row_ptr.tolist() == [0, 1, 3]


def test_edits_of_an_edge_index_are_seen():
    index = torch.tensor([[0, 1], [1, 0]])
    for make in (torch.no_grad, torch.inference_mode):
        with make():
            graph = Graph.from_edge_index(index)
        token = graph.token()
        index[1, 0] = 0
        assert not graph.check_unchanged(token)
        assert graph.row_ptr.tolist() == [0, 2, 2]
        index[1, 0] = 1


def test_replaced_storage_is_seen():
    col_idx = torch.tensor([0, 1, 1])
    graph = Graph.from_csr(torch.tensor([0, 3]), col_idx)
    assert graph.num_src == 2
    token = graph.token()
    col_idx.data = torch.tensor([0, 1, 4])
    assert not graph.check_unchanged(token)
    assert graph.num_src == 5


def test_an_edit_is_checked_like_new_input():
    col_idx = torch.tensor([0, 1, 1])
    graph = Graph.from_csr(torch.tensor([0, 2, 3]), col_idx, num_src=2)
    graph.walk("dst")
    col_idx[2] = 2
    for _ in range(2):
        with pytest.raises(InvalidIndex, match="edge position 2 has value 2"):
            graph.walk("dst")
    with pytest.raises(InvalidIndex):
        graph.transpose().walk("dst")
    col_idx[2] = 0
    assert graph.walk("dst").index.tolist() == [0, 1, 0]


def test_a_resized_edit_is_checked():
    row_ptr, col_idx = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1])
    graph = Graph.from_csr(row_ptr, col_idx)
    col_idx.resize_(2)
    with pytest.raises(InvalidValue, match="must end at the number of edges, 2"):
        _ = graph.num_edges
    row_ptr.resize_(2)
    assert (graph.num_dst, graph.num_edges) == (1, 2)


def test_stale_topology():
    index = torch.tensor([[0, 1], [1, 0]])
    graph = Graph.from_edge_index(index)
    token = graph.token()
    graph.require_unchanged(token)
    assert graph.walk("src", token) is graph.walk("src")
    index[0, 0] = 1
    for call in (graph.require_unchanged, lambda t: graph.walk("dst", t)):
        with pytest.raises(StaleTopology, match="modified in place between") as caught:
            call(token)
        assert isinstance(caught.value, RuntimeError)
    assert graph.walk("dst", graph.token()).num_edges == 2


def test_threads_share_one_walk():
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(*rng.integers(0, 1000, (2, 20000)))
    barrier, walks = threading.Barrier(8), []

    def work():
        barrier.wait()
        walks.append(graph.walk("src"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(walk) for walk in walks}) == 1
