"""A small graph, kernels that send an edge field, and folds of its rows by hand."""

import torch

import tiga as tg

SRC = torch.tensor([0, 3, 1, 2, 2, 0, 4, 1, 3, 3, 2])
DST = torch.tensor([1, 0, 1, 1, 3, 3, 0, 1, 3, 3, 4])
GRAPH = tg.Graph.from_coo(SRC, DST, num_src=5, num_dst=6)
ROWS = [[e for e in range(len(DST)) if DST[e] == row] for row in range(6)]


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


class Product(tg.Reducer):
    associative = commutative = True

    def identity(self):
        return 1.0

    def combine(self, left, right):
        return left * right


class Gated(tg.MessagePassing):
    """An edge function on the bounded path, by a reducer that is compiled."""

    def edge(self, src, dst, edge):
        return torch.special.i0(edge.m)


def by_rows(fold, empty):
    """The function of edge messages that `fold`s those of each row."""

    def function(*messages):
        rows = [fold(*(m[row] for m in messages)) if row else empty for row in ROWS]
        return torch.stack(torch.broadcast_tensors(*rows))

    return function


def weighted(score, value):
    return (torch.softmax(score, 0).unsqueeze(-1) * value).sum(0)


def call(kernel):
    """The kernel as a function of its edge fields m, and s before it if there are two."""

    def function(*values):
        names = ("m",) if len(values) == 1 else ("s", "m")
        return kernel(graph=GRAPH, edge=dict(zip(names, values, strict=True)))

    return function


ZERO = torch.zeros((), dtype=torch.float64)
