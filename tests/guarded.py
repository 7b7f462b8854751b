"""Kernels whose `edge` reads what tests change, and their sums by hand."""

import torch

import tiga as tg

SOURCES, TARGETS = torch.tensor([0, 1, 2, 2, 0]), torch.tensor([1, 1, 0, 2, 2])
X = torch.tensor([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]])
GRAPH = tg.Graph.from_coo(SOURCES, TARGETS)


class Base(tg.MessagePassing):
    """A kernel that is also checked by hand: sums of `edge` on plain tensors."""

    def expected(self, **params):
        class View:
            x = X[SOURCES]

        class Target:
            x = X[TARGETS]

        sent = type(self).edge(self, View, Target, None, **params)
        return torch.zeros(3, *sent.shape[1:]).index_add(0, TARGETS, sent)

    def check(self, **params):
        got = self(graph=GRAPH, src={"x": X}, dst={"x": X}, **params)
        torch.testing.assert_close(got, self.expected(**params))


class Attribute(Base):
    alpha = 2.0

    def edge(self, src, dst, edge):
        return src.x * self.alpha


class Flag(Base):
    on = True

    def edge(self, src, dst, edge):
        return src.x if self.on else dst.x


class Layer(Base, torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        self.norm = torch.nn.LayerNorm(2)
        self.register_buffer("shift", torch.ones(2))

    def edge(self, src, dst, edge):
        return self.norm(self.inner(src.x)) + self.shift
