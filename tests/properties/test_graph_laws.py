"""Laws of `Graph` and its walks, against plain Python."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import graphs
from tiga.relations import Graph
from tiga.relations.walk import HUB_CHUNK, HUB_DEGREE, MAX_TASKS

KINDS = (
    lambda x: x,
    lambda x: x.astype(np.int32),
    lambda x: np.repeat(x, 2)[::2],
    lambda x: torch.from_numpy(x.copy()),
    lambda x: torch.from_numpy(x.astype(np.int32)),
    lambda x: x.tolist(),
)

kinds = st.sampled_from(KINDS)


def rows_of(src, dst, num_dst):
    """The oracle: for each destination its edges, in the order given."""
    rows = [[] for _ in range(num_dst)]
    for edge, row in enumerate(dst.tolist()):
        rows[row].append((edge, int(src[edge])))
    return rows


def cut(values, row_ptr):
    return [list(values[lo:hi]) for lo, hi in pairwise(row_ptr)]


@given(graphs(), kinds, kinds)
def test_coo_to_csr(coo, src_kind, dst_kind):
    src, dst, num_src, num_dst = coo
    graph = Graph.from_coo(src_kind(src), dst_kind(dst), num_src=num_src, num_dst=num_dst)
    edges = graph.edge_permutation.tolist()
    rows = cut(list(zip(edges, graph.col_idx.tolist(), strict=True)), graph.row_ptr.tolist())
    assert rows == rows_of(src, dst, num_dst)
    assert [end.tolist() if not isinstance(end, list) else end for end in graph.coo()] == [
        src.tolist(),
        dst.tolist(),
    ]
    assert graph.permutes_edges == (edges != sorted(edges))


@given(graphs(), kinds)
def test_csr_round_trip(coo, kind):
    src, dst, num_src, num_dst = coo
    first = Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    graph = Graph.from_csr(kind(first.row_ptr), kind(first.col_idx), num_src=num_src)
    assert graph.row_ptr.tolist() == first.row_ptr.tolist()
    src, dst = (np.asarray(end) for end in graph.coo())
    again = Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    assert not again.permutes_edges
    assert again.row_ptr.tolist() == first.row_ptr.tolist()
    assert again.col_idx.tolist() == first.col_idx.tolist()


@given(graphs(), st.booleans())
def test_transpose(coo, from_csr):
    src, dst, num_src, num_dst = coo
    graph = Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    if from_csr:
        graph = Graph.from_csr(graph.row_ptr, graph.col_idx, num_src=num_src)
        src, dst = graph.coo()
    transposed = graph.transpose()
    assert [end.tolist() for end in transposed.coo()] == [dst.tolist(), src.tolist()]
    edges = transposed.edge_permutation.tolist()
    ends = list(zip(edges, transposed.col_idx.tolist(), strict=True))
    rows = cut(ends, transposed.row_ptr.tolist())
    # Within a row, edges follow the CSR order of the graph that was transposed.
    position = np.empty(len(edges), dtype=np.int64)
    position[np.arange(len(edges)) if from_csr else graph.edge_permutation] = np.arange(len(edges))
    expected = [sorted(row, key=lambda e: position[e[0]]) for row in rows_of(dst, src, num_src)]
    assert rows == expected
    assert transposed.transpose() is graph


@given(graphs())
def test_source_walk_is_the_transpose(coo):
    src, dst, num_src, num_dst = coo
    graph = Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    src, dst = graph.col_idx, np.sort(dst)
    walk = graph.walk("src")
    assert (walk.num_rows, walk.num_edges) == (num_src, len(src))
    ends = list(zip(walk.edge_id.tolist(), walk.index.tolist(), strict=True))
    assert cut(ends, walk.row_ptr.tolist()) == rows_of(dst, src, num_src)


@given(graphs())
def test_degree_statistics(coo):
    src, dst, num_src, num_dst = coo
    graph = Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    for side, ends, count in (("dst", dst, num_dst), ("src", src, num_src)):
        degrees = [ends.tolist().count(row) for row in range(count)]
        statistics = graph.degree_statistics(side)
        assert statistics.minimum == min(degrees, default=0)
        assert statistics.maximum == max(degrees, default=0)
        assert statistics.mean == (len(ends) / count if count else 0)
        lengths = [degree.bit_length() for degree in degrees]
        expected = [lengths.count(n) for n in range(max(lengths, default=0) + 1)]
        assert list(statistics.histogram) == expected


def check_decomposition(walk):
    rows = [row for lo, hi in pairwise(walk.task_ptr) for row in range(lo, hi)]
    assert rows == list(range(walk.num_rows))
    assert (np.diff(walk.task_ptr) > 0).all()
    assert walk.num_tasks <= MAX_TASKS
    degree = np.diff(walk.row_ptr)
    assert walk.hub_rows.tolist() == [row for row in rows if degree[row] > HUB_DEGREE]
    for hub, row in enumerate(walk.hub_rows):
        chunks = range(walk.hub_ptr[hub], walk.hub_ptr[hub + 1])
        covered = [edge for c in chunks for edge in range(walk.chunk_lo[c], walk.chunk_hi[c])]
        assert covered == list(range(walk.row_ptr[row], walk.row_ptr[row + 1]))
        assert all(walk.chunk_row[c] == row for c in chunks)
        assert all(walk.chunk_hi[c] - walk.chunk_lo[c] <= HUB_CHUNK for c in chunks)
    assert walk.num_chunks == walk.hub_ptr[-1]


@pytest.mark.parametrize(
    ("max_nodes", "max_edges", "examples"), [(40, 200, 60), (20_000, 30_000, 25)]
)
def test_walks_cover_all_work_once(max_nodes, max_edges, examples):
    @settings(max_examples=examples, deadline=None)
    @given(graphs(max_nodes, max_edges))
    def check(coo):
        src, dst, num_src, num_dst = coo
        graph = Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
        for side in ("dst", "src"):
            walk = graph.walk(side)
            check_decomposition(walk)
            edges = range(walk.num_edges) if walk.edge_id is None else np.sort(walk.edge_id)
            assert list(edges) == list(range(len(src)))
            rows = np.repeat(np.arange(walk.num_rows), np.diff(walk.row_ptr))
            pairs = (walk.index, rows) if side == "dst" else (rows, walk.index)
            assert sorted(zip(*pairs, strict=True)) == sorted(zip(src, dst, strict=True))

    check()


@given(graphs(max_nodes=12, max_edges=60), st.data())
def test_the_first_bad_edge_is_named(coo, data):
    src, dst, num_src, num_dst = coo
    if not len(src):
        return
    ends = {"src": (src, num_src), "dst": (dst, num_dst)}
    faults = data.draw(
        st.lists(
            st.tuples(st.integers(0, len(src) - 1), st.sampled_from(["src", "dst"]), st.booleans()),
            min_size=1,
            max_size=4,
        )
    )
    for position, name, negative in faults:
        array, count = ends[name]
        array[position] = -1 - position if negative else count + position
    position = min(position for position, _, _ in faults)
    first = "src" if not 0 <= src[position] < num_src else "dst"
    value = ends[first][0][position]
    message = f"`{first}` .* edge position {position} has value {value}, allowed range 0"
    for validate in ("basic", "full"):
        with pytest.raises(IndexError, match=message):
            Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst, validate=validate)
