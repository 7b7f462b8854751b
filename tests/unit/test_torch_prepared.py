"""Calls with fixed buffers."""

import pytest
import torch

import tiga as tg
from tiga.errors import StaleTopology, Unfusable


class Weighted(tg.MessagePassing):
    def edge(self, src, dst, edge, scale=1.0):
        return edge.w[:, None] * (src.x - dst.x) * scale


@pytest.fixture
def call(rng):
    dst = torch.from_numpy(rng.integers(0, 9, 50))
    src = torch.from_numpy(rng.integers(0, 9, 50))
    graph = tg.Graph.from_coo(src, dst, num_src=9, num_dst=9)
    x = torch.from_numpy(rng.standard_normal((5, 9))).T  # not contiguous
    return {"graph": graph, "ndata": {"x": x}, "edge": {"w": torch.rand(50)}, "scale": 0.5}


def test_launches_read_tensors_as_they_are_then(call):
    kernel = Weighted()
    launch = kernel.prepare(**call)
    first = launch()
    assert torch.equal(first, kernel(**call))
    call["ndata"]["x"].mul_(3.0)
    call["edge"]["w"].add_(1.0)
    assert torch.equal(launch(), kernel(**call))
    assert launch() is first is launch.outputs


def test_results_keep_their_structure(call):
    class Both(tg.MessagePassing):
        reducer = tg.max()

        def edge(self, src, dst, edge):
            return src.x

        def node(self, dst, aggregate):
            return {"largest": aggregate, "twice": 2 * aggregate}

    del call["scale"]
    found, expected = Both().prepare(**call)(), Both()(**call)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[k], expected[k]) for k in expected)


def test_a_graph_that_changed_is_refused(call):
    ends = torch.tensor([0, 1, 2])
    graph = tg.Graph.from_coo(ends, ends.clone(), num_src=3, num_dst=3)
    fields = {"ndata": {"x": torch.rand(3, 2)}, "edge": {"w": torch.rand(3)}}
    launch = Weighted().prepare(graph=graph, **fields)
    ends[0] = 1
    with pytest.raises(StaleTopology):
        launch()


def test_what_no_kernel_runs_is_refused(call):
    class Sorted(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return torch.linalg.svdvals(src.x[:, :, None])

    del call["scale"]
    with pytest.raises(Unfusable, match="prepare"):
        Sorted().prepare(**call)
