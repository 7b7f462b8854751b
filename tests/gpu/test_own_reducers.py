"""Reducers of one's own on tensors of a GPU, against loops in torch: values and two derivatives."""

import pytest
import torch

import tiga as tg

NODES, EDGES, WIDTH = 12, 50, 3


class Fading(tg.Reducer):
    """Half of what was, a bounded memory, and a sum that needs no order."""

    def identity(self):
        return 0.0, 0.1, 0.0

    def lift(self, message):
        return message, message, message

    def combine(self, left, right):
        return 0.5 * left[0] + right[0], torch.tanh(left[1] + right[1]), left[2] + right[2]

    def finalize(self, state):
        return state[0] * state[1] + state[2]


class Maps(tg.Reducer):
    """Maps x -> a x + b, one after the other, applied to 1."""

    associative = True

    def identity(self):
        return 1.0, 0.0

    def lift(self, message):
        return torch.sigmoid(message), message

    def combine(self, left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    def finalize(self, state):
        return state[0] + state[1]


class Send(tg.MessagePassing):
    def __init__(self, reducer):
        self.reducer = reducer

    def edge(self, src, dst, edge):
        return torch.sin(src.x) * dst.x * edge.w[..., None]


def by_loops(reducer, x, w, src, dst):
    sent = torch.sin(x[src]) * x[dst] * w[:, None]
    rows = []
    for node in range(NODES):
        state = tuple(torch.full_like(x[0], start) for start in reducer.identity())
        for edge in torch.nonzero(dst == node).flatten().tolist():
            state = reducer.combine(state, reducer.lift(sent[edge]))
        rows.append(reducer.finalize(state))
    return torch.stack(rows)


@pytest.mark.parametrize("reducer", [Fading, Maps])
def test_values_and_two_derivatives(where, reducer):
    torch.manual_seed(0)
    src, dst = (torch.randint(0, high, (EDGES,), device=where) for high in (NODES, NODES - 2))
    x = torch.randn(NODES, WIDTH, device=where, dtype=torch.float64, requires_grad=True)
    w = torch.randn(EDGES, device=where, dtype=torch.float64, requires_grad=True)
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    kernel, found = Send(reducer()), []
    for out in (
        kernel(graph=graph, ndata={"x": x}, edge={"w": w}),
        by_loops(kernel.reducer, x, w, src, dst),
    ):
        first = torch.autograd.grad(out.square().sum(), [x, w], create_graph=True)
        second = torch.autograd.grad(first[0].square().sum() + first[1].sum(), [x, w])
        found.append([out, *first, *second])
    assert not kernel.diagnostics
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)
    assert "folded in edge order" in kernel.explain()
    assert "tl.range" in kernel.code("triton")
