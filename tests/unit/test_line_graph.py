"""`Graph.line_graph`: pairs of edges that follow one another, and angles between them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiga as tg
from tests.strategies import graphs
from tiga.errors import InvalidType, InvalidValue
from tiga.relations import Graph


@given(graphs(8, 25), st.booleans(), st.booleans())
def test_pairs_of_edges(coo, backtracking, turned):
    src, dst, num_src, num_dst = coo
    nodes = max(num_src, num_dst)
    graph = Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes)
    if turned:
        graph, src, dst = graph.transpose(), dst, src
    found = graph.line_graph(backtracking=backtracking)
    assert found.num_src == found.num_dst == len(src)
    wanted = [
        (first, second)
        for second in range(len(src))
        for first in range(len(src))
        if dst[first] == src[second] and (backtracking or src[first] != dst[second])
    ]
    assert sorted(zip(*(end.tolist() for end in found.coo()), strict=True)) == sorted(wanted)
    assert found.csr().row_ptr[-1] == found.num_edges == len(wanted)


def test_kind_and_refusals(tmp_path):
    ends = torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    found = Graph.from_edge_index(ends).line_graph()
    assert found.col_idx.dtype == found.row_ptr.dtype == torch.int32
    with pytest.raises(InvalidValue, match="this graph has 2 and 3"):
        Graph.from_coo([0], [1], num_src=2, num_dst=3).line_graph()
    path = Graph.from_coo([0], [0]).save(tmp_path / "g")
    with pytest.raises(InvalidType, match="in_memory"):
        Graph.open(path).line_graph()


class Vector(tg.MessagePassing):
    reducer = tg.each()

    def edge(self, src, dst, edge):
        return dst.r - src.r


class Bend(tg.MessagePassing):
    """The energy of angles, at the second of their edges."""

    def edge(self, src, dst, edge):
        cosine = -(src.v * dst.v).sum(-1) / (src.v.norm(dim=-1) * dst.v.norm(dim=-1))
        return (cosine - 0.3) ** 2


def test_forces_of_angles_and_their_derivatives():
    generator = torch.Generator().manual_seed(0)
    r = torch.rand(6, 3, dtype=torch.float64, generator=generator).requires_grad_()
    graph = tg.radius_graph(r, 0.9).graph
    pairs, (src, dst) = graph.line_graph(backtracking=False), graph.coo()
    along = Vector()(graph=graph, ndata={"r": r})
    found = Bend()(graph=pairs, ndata={"v": along}).sum()
    v, (first, second) = r[dst] - r[src], pairs.coo()
    assert bool((dst[first] == src[second]).all())
    cosine = -(v[first] * v[second]).sum(-1) / (v[first].norm(dim=-1) * v[second].norm(dim=-1))
    wanted = ((cosine - 0.3) ** 2).sum()
    torch.testing.assert_close(found, wanted)
    forces = [torch.autograd.grad(e, r, create_graph=True)[0] for e in (found, wanted)]
    torch.testing.assert_close(*forces)
    torch.testing.assert_close(*(torch.autograd.grad(f.square().sum(), r) for f in forces))
