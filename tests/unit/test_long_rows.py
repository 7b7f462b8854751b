"""Sums over long rows: off by a few roundings, with the same bits for any number of threads."""

import numpy as np
import pytest
import torch

import tiga as tg

DEGREES = (1, 127, 128, 129, 256, 257, 1000, 4096, 5000, 70_000)
"""Around the ends of stretches of edges, below and above what is split."""

MOST = 48
"""Units of 2^-24 that a sum of equal messages is off by, whose roundings all go the same way: at
most 256 are added in sequence, where edges lie across lanes."""


class Weighted(tg.MessagePassing):
    reducer = tg.mean()

    def edge(self, src, dst, edge):
        return src.x * edge.w


class Deviation(tg.MessagePassing):
    reducer = tg.std()

    def edge(self, src, dst, edge):
        return src.x


def graph_of(degrees):
    rows, edges = len(degrees), sum(degrees)
    dst = torch.repeat_interleave(torch.arange(rows), torch.tensor(degrees))
    return tg.Graph.from_coo(torch.arange(edges), dst, num_src=edges, num_dst=rows), dst


@pytest.mark.parametrize("width", [1, 5])
def test_means_of_many_equal_messages(width):
    graph, dst = graph_of(DEGREES)
    x = torch.full((graph.num_edges, width), 0.1, requires_grad=True)
    w = torch.full((graph.num_edges, 1), 0.7, requires_grad=True)
    out = Weighted()(graph=graph, src={"x": x}, dst={}, edge={"w": w})
    want = x[0].double() * w[0].double()
    assert ((out / want - 1).abs().max() * 2.0**24).item() <= MOST
    slope = torch.autograd.grad(out.sum(), w)[0]
    per_edge = width * 0.1 / torch.tensor(DEGREES, dtype=torch.float64)[dst]
    torch.testing.assert_close(slope[:, 0].double(), per_edge, rtol=1e-6, atol=0)


def test_long_rows_of_any_numbers(monkeypatch):
    graph, _ = graph_of(DEGREES)
    random = np.random.default_rng(2)
    x = torch.from_numpy(100 + random.standard_normal((graph.num_edges, 5)).astype(np.float32))
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("TIGA_NUM_THREADS", threads)
        found.append(Deviation()(graph=graph, src={"x": x}, dst={}))
    assert torch.equal(found[0], found[1])
    rows = torch.split(x.double(), DEGREES)
    want = torch.stack([row.std(0, correction=0) for row in rows])
    # Distances from means carry a rounding of the messages, which are a hundred times as large.
    assert (found[0] - want).abs().max().item() <= 100 * MOST * 2.0**-24


class Rectified(tg.MessagePassing):
    def edge(self, src, dst, edge, w):
        return torch.relu((src.x * edge.w) @ w)


def test_gradients_of_matrices_of_many_equal_messages():
    graph, _ = graph_of((1000,) * 200)
    x, w = torch.full((graph.num_edges, 4), 0.1), torch.full((4, 4), 0.3, requires_grad=True)
    scale = torch.full((graph.num_edges, 1), 0.7)
    out = Rectified()(graph=graph, src={"x": x}, dst={}, edge={"w": scale}, w=w)
    slope = torch.autograd.grad(out.sum(), w)[0]
    want = graph.num_edges * (x[0, 0] * scale[0, 0]).double()
    assert ((slope / want - 1).abs().max() * 2.0**24).item() <= MOST
