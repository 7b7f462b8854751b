"""A small graph, and kernels made of plain functions."""

import torch

import tiga as tg

SOURCES = torch.tensor([0, 1, 2, 3, 3, 0, 2, 1])
TARGETS = torch.tensor([2, 0, 1, 1, 0, 0, 4, 1])
GRAPH = tg.Graph.from_coo(SOURCES, TARGETS, num_src=4, num_dst=5)


def field(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def kernel(edge, reducer=None, node=None, **attributes):
    """A kernel from functions of (src, dst, edge)."""
    body = {"edge": lambda self, src, dst, edge: edge_function(src, dst, edge), **attributes}
    edge_function = edge
    if node is not None:
        body["node"] = lambda self, dst, aggregate: node(dst, aggregate)
    made = type("Kernel", (tg.MessagePassing,), body)()
    if reducer is not None:
        made.reducer = reducer
    return made


def summed(messages, rows=5):
    return torch.zeros(rows, *messages.shape[1:], dtype=messages.dtype).index_add(
        0, TARGETS, messages
    )
