"""`Graph`: its constructors, orders, kinds of index and what it gives back."""

import copy
import doctest
import gc
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch

from tiga.errors import InvalidType, InvalidValue, MissingAttribute
from tiga.relations import Graph

SRC, DST = [2, 0, 1, 0, 2], [1, 0, 1, 3, 1]

KINDS = {
    "list": list,
    "tuple": tuple,
    "numpy32": lambda x: np.array(x, dtype=np.int32),
    "numpy64": lambda x: np.array(x, dtype=np.int64),
    "big-endian": lambda x: np.array(x, dtype=">i8"),
    "numpy-strided": lambda x: np.repeat(np.array(x, dtype=np.int64), 3)[::3],
    "numpy-reversed": lambda x: np.array(x[::-1], dtype=np.int32)[::-1],
    "torch32": lambda x: torch.tensor(x, dtype=torch.int32),
    "torch64": lambda x: torch.tensor(x, dtype=torch.int64),
    "torch-strided": lambda x: torch.tensor(x, dtype=torch.int64).repeat_interleave(2)[::2],
}


def lists(*arrays):
    return [array.tolist() for array in arrays]


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def test_coo_is_sorted_by_destination_and_stable(kind):
    graph = Graph.from_coo(kind(SRC), kind(DST))
    assert lists(graph.row_ptr, graph.col_idx) == [[0, 1, 4, 4, 5], [0, 2, 1, 2, 0]]
    assert graph.edge_permutation.tolist() == [1, 0, 2, 4, 3]
    assert lists(*graph.coo()) == [SRC, DST]
    assert (graph.num_src, graph.num_dst, graph.num_edges) == (4, 4, 5)


def test_csr_keeps_its_order(kind):
    graph = Graph.from_csr(kind([0, 2, 2, 3]), kind([1, 0, 1]), num_src=2)
    assert lists(graph.row_ptr, graph.col_idx) == [[0, 2, 2, 3], [1, 0, 1]]
    assert lists(*graph.coo()) == [[1, 0, 1], [0, 0, 2]]
    assert graph.edge_permutation is None
    assert not graph.permutes_edges
    assert (graph.num_src, graph.num_dst, graph.num_edges) == (2, 3, 3)


def test_edge_index_is_coo(kind):
    graph = Graph.from_edge_index([SRC, DST] if kind in (list, tuple) else stack(kind))
    assert lists(*graph.coo()) == [SRC, DST]
    assert graph.col_idx.tolist() == [0, 2, 1, 2, 0]


def stack(kind):
    rows = kind(SRC), kind(DST)
    return torch.stack(rows) if isinstance(rows[0], torch.Tensor) else np.stack(rows)


def test_edge_index_in_columns():
    pairs = torch.tensor([SRC, DST]).T.contiguous()
    graph = Graph.from_edge_index(pairs.T)
    assert lists(*graph.coo()) == [SRC, DST]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_results_have_the_kind_and_type_of_the_input(dtype):
    src, dst = torch.tensor(SRC, dtype=dtype), torch.tensor(DST, dtype=dtype)
    graph = Graph.from_coo(src, dst)
    for array in (graph.row_ptr, graph.col_idx, *graph.transpose().coo()):
        assert isinstance(array, torch.Tensor)
        assert array.dtype == dtype
    assert graph.edge_permutation.dtype == torch.int64
    assert graph.coo()[0] is src
    csr = Graph.from_csr(graph.row_ptr, graph.col_idx)
    assert csr.col_idx is graph.col_idx
    assert csr.coo()[1].dtype == dtype


def test_mixed_integer_types_and_kinds():
    src, dst = torch.tensor(SRC, dtype=torch.int32), np.array(DST, dtype=np.int64)
    graph = Graph.from_coo(src, dst)
    assert graph.col_idx.dtype == torch.int32
    assert graph.row_ptr.dtype == torch.int64
    transposed = graph.transpose()
    assert transposed.col_idx.dtype == torch.int64
    assert transposed.row_ptr.dtype == torch.int32
    csr = Graph.from_csr(np.array([0, 1, 2]), torch.tensor([0, 1], dtype=torch.int32))
    assert isinstance(csr.row_ptr, np.ndarray)
    assert isinstance(csr.col_idx, torch.Tensor)


def test_sorted_coo_needs_no_permutation():
    graph = Graph.from_coo([3, 1, 1], [0, 0, 2])
    assert not graph.permutes_edges
    assert graph.edge_permutation.tolist() == [0, 1, 2]
    assert Graph.from_coo([3, 1], [2, 0]).permutes_edges


def test_parallel_edges_and_self_loops_are_kept():
    graph = Graph.from_coo([0, 0, 1], [1, 1, 1])
    assert graph.num_edges == 3
    assert graph.row_ptr.tolist() == [0, 0, 3]
    assert graph.walk("src").row_ptr.tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({}, (4, 4)),
        ({"num_src": 3}, (3, 4)),
        ({"num_src": 7}, (7, 7)),
        ({"num_dst": 6}, (6, 6)),
        ({"num_src": 3, "num_dst": 6}, (3, 6)),
        ({"num_src": np.int64(3), "num_dst": np.int32(4)}, (3, 4)),
    ],
)
def test_counts_left_out(given, counts):
    graph = Graph.from_coo(SRC, DST, **given)
    assert (graph.num_src, graph.num_dst) == counts


def test_sources_of_csr_are_the_destinations_unless_more_are_needed():
    assert Graph.from_csr([0, 1, 1, 1], [0]).num_src == 3
    assert Graph.from_csr([0, 1], [4]).num_src == 5
    assert Graph.from_edge_index([[0], [1]], num_nodes=9).num_src == 9


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_empty_graphs(kind):
    none = (
        kind([]) if kind is list else kind([], dtype=np.int64 if kind is np.array else torch.int64)
    )
    for graph in (Graph.from_coo(none, none), Graph.from_csr(kind([0]), none)):
        assert (graph.num_src, graph.num_dst, graph.num_edges) == (0, 0, 0)
        assert graph.row_ptr.tolist() == [0]
        assert graph.degree_statistics().histogram == (0,)
    for graph in (Graph.from_coo(none, none, num_dst=3), Graph.from_csr(kind([0, 0, 0, 0]), none)):
        assert (graph.num_src, graph.num_dst, graph.num_edges) == (3, 3, 0)
        assert graph.row_ptr.tolist() == [0, 0, 0, 0]
        assert lists(*graph.transpose().coo()) == [[], []]


def test_empty_edge_index():
    assert Graph.from_edge_index([[], []], num_nodes=2).num_edges == 0
    assert Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long)).num_dst == 0


def test_transpose_keeps_edge_order():
    graph = Graph.from_coo(SRC, DST, num_src=3, num_dst=5)
    transposed = graph.transpose()
    assert (transposed.num_src, transposed.num_dst) == (5, 3)
    assert lists(*transposed.coo()) == [DST, SRC]
    order = transposed.edge_permutation
    assert np.array(DST)[order].tolist() == transposed.col_idx.tolist()
    assert np.array(SRC)[order].tolist() == [0, 0, 1, 2, 2]


def test_transpose_is_cached_and_undone_by_itself():
    graph = Graph.from_csr([0, 2, 3], [1, 0, 1])
    transposed = graph.transpose()
    assert graph.transpose() is transposed
    assert transposed.transpose() is graph
    assert transposed.walk("dst").index is graph.walk("src").index


def test_a_graph_and_its_transpose_are_freed_without_the_collector():
    gc.disable()
    try:
        graph = Graph.from_coo(SRC, DST)
        transposed = graph.transpose()
        transposed.walk("src")
        refs = weakref.ref(graph), weakref.ref(transposed)
        del graph, transposed
        assert [ref() for ref in refs] == [None, None]
    finally:
        gc.enable()


def test_the_transpose_keeps_its_base_alive():
    transposed = Graph.from_coo(SRC, DST).transpose()
    assert lists(*transposed.transpose().coo()) == [SRC, DST]


@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))]
)
@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_copies_are_equal(clone, kind):
    graph = Graph.from_coo(kind(SRC), kind(DST), num_src=6)
    graph.walk("src")
    for original in (graph, graph.transpose()):
        other = clone(original)
        assert other is not original
        assert lists(*other.coo()) == lists(*original.coo())
        assert lists(other.row_ptr, other.col_idx) == lists(original.row_ptr, original.col_idx)
        assert type(other.col_idx) is type(original.col_idx)
        assert (other.num_src, other.num_dst) == (original.num_src, original.num_dst)


def test_numpy_results_are_read_only():
    graph = Graph.from_coo(np.array(SRC), np.array(DST))
    for array in (graph.row_ptr, graph.col_idx, graph.edge_permutation, *graph.coo()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_degree_statistics():
    graph = Graph.from_csr(np.r_[0, 0, 1, 3, 6, 10, 5010], np.zeros(5010, dtype=np.int64))
    degrees = graph.degree_statistics()
    assert (degrees.num_rows, degrees.num_edges) == (6, 5010)
    assert (degrees.minimum, degrees.maximum, degrees.mean) == (0, 5000, 835.0)
    assert degrees.histogram == (1, 1, 2, 1, *[0] * 9, 1)
    assert degrees.num_hubs == 1
    outgoing = graph.degree_statistics("src")
    assert (outgoing.num_rows, outgoing.maximum, outgoing.minimum) == (6, 5010, 0)
    assert graph.degree_statistics() is degrees
    assert graph.degrees().tolist() == [0, 1, 2, 3, 4, 5000]
    assert graph.degrees("src").tolist() == [5010, 0, 0, 0, 0, 0]
    given = Graph.from_edge_index(torch.tensor([[0, 1], [1, 1]]))
    assert torch.equal(given.transpose().degrees("src"), torch.tensor([0, 2]))


def test_bytes_by_part():
    row_ptr, col_idx = torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1])
    graph = Graph.from_csr(row_ptr, col_idx)
    empty = {"transpose": 0, "edge_map": 0, "plan": 0, "converted": 0}
    assert graph.topology_bytes() == {"input": 48, "csr": 0, **empty}
    graph.walk("dst")
    assert graph.topology_bytes()["csr"] == 3 * 4  # sources narrowed to int32
    graph.walk("src")
    parts = graph.topology_bytes()
    assert (parts["transpose"], parts["edge_map"]) == (3 * 8 + 3 * 4, 3 * 4)
    assert parts["plan"] > 0
    graph.coo()
    assert graph.topology_bytes()["converted"] == 3 * 8
    assert graph.nbytes == sum(graph.topology_bytes().values())


def test_int32_arrays_are_shared_with_torch():
    col_idx = torch.tensor([1, 0, 1], dtype=torch.int32)
    graph = Graph.from_csr(torch.tensor([0, 2, 3]), col_idx)
    assert graph.walk("dst").index.ctypes.data == col_idx.data_ptr()
    assert graph.walk("dst").row_ptr.ctypes.data == graph.row_ptr.data_ptr()


def test_device_and_repr():
    graph = Graph.from_coo(torch.tensor(SRC), torch.tensor(DST))
    assert graph.device == Graph.from_coo(SRC, DST).device == "cpu"
    assert repr(graph) == "Graph(num_src=4, num_dst=4, num_edges=5)"


def test_the_constructor_itself_points_to_the_builders():
    with pytest.raises(InvalidType, match=r"Graph\.from_csr"):
        Graph([0, 1])


def test_sides_are_named():
    graph = Graph.from_coo(SRC, DST)
    for call in (graph.walk, graph.degree_statistics, graph.degrees):
        with pytest.raises(InvalidValue, match='"dst" or "src", got \'row\''):
            call("row")


def test_relations_load_no_torch():
    code = """if True:
        import sys
        from tiga.relations import Graph
        Graph.from_coo([1, 0], [0, 1]).transpose().walk("src")
        assert not {"torch", "torch_mlir", "triton"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_examples_in_the_docstrings():
    result = doctest.testmod(sys.modules[Graph.__module__])
    assert result.attempted >= 10
    assert result.failed == 0


def test_a_graph_for_another_device_keeps_what_was_sorted():
    src, dst = torch.randint(0, 9, (2, 40), generator=torch.Generator().manual_seed(0))
    graph = Graph.from_coo(src, dst, num_src=9, num_dst=12)
    moved = graph.to("meta")
    assert (graph.to("cpu") is graph, moved.device) == (True, "meta")
    assert moved.csr() is graph.csr()
    assert (moved.num_src, moved.num_dst, moved.num_edges) == (9, 12, 40)
    assert moved.col_idx.device.type == moved.coo()[0].device.type == "meta"
    turned = graph.transpose().to("meta")
    np.testing.assert_array_equal(turned.csr().row_ptr, graph.transpose().csr().row_ptr)
    src[0] = 8 - src[0]
    assert moved.csr() is not graph.csr()
    assert pickle.loads(pickle.dumps(moved)).device == "meta"


def test_a_graph_without_tensors_has_no_device_to_leave(tmp_path):
    graph = Graph.from_coo([0, 1], [1, 1])
    for one in (graph, Graph.open(graph.save(tmp_path / "graph"))):
        with pytest.raises(InvalidType, match="made of torch tensors"):
            one.to("cuda")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("num_nodes", "`num_src`"), ("edge_index", r"`coo\(\)`"), ("in_degrees", r"`degrees\(\)`"),
        ("ndata", "with each call"), ("add_edges", r"torch\.cat"), ("update_all", "MessagePassing"),
        ("membership", r"Graph\.batch"), ("nothing", "^Graph has no `nothing`\\.$"),
    ],
)  # fmt: skip
def test_what_graphs_of_other_libraries_have(name, says):
    graph = Graph.from_coo([0, 1], [1, 0])
    with pytest.raises(MissingAttribute, match=says):
        getattr(graph, name)
    assert not hasattr(graph, name)
