"""A Linear inside the edge function: per edge where it must be, after the sum where it can be."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.graphs import Csr, regular
from benchmarks.harness import Call, Contestant, TimedCase, relative_norm
from benchmarks.plain import edge_linear, pushed_linear, with_gradient
from benchmarks.programs import EdgeLinear, tiga_graph
from benchmarks.reference import outputs_and_gradients
from benchmarks.results import AtLeast

NUM_NODES, DEGREE, WIDTH = 20_000, 100, 64

PLAIN = {"stays": edge_linear, "pushed": pushed_linear}
BARS = {"stays": 3.0, "pushed": 4.0}


def _tiga(graph: Csr, x: torch.Tensor, weight: torch.Tensor, seed: torch.Tensor, name: str) -> Call:
    kernel, relation = EdgeLinear(weight, outer=name == "stays"), tiga_graph(graph)
    # The kernel holds the weight; it is passed along so that its gradient is returned as well.
    run = with_gradient(lambda x, held: kernel(graph=relation, ndata={"x": x}))
    return lambda: run(x, kernel.weight, seed=seed)


def _compiled(
    graph: Csr, x: torch.Tensor, weight: torch.Tensor, seed: torch.Tensor, name: str
) -> Call:
    source, destination = torch.from_numpy(graph.source), torch.from_numpy(graph.destination)
    run = with_gradient(torch.compile(PLAIN[name], dynamic=False))
    return lambda: run(x, weight, source, destination, seed=seed)


def _setup(name: str) -> tuple[Sequence[np.ndarray], Sequence[Contestant]]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    graph = regular(NUM_NODES, DEGREE)
    x = torch.randn(NUM_NODES, WIDTH, requires_grad=True)
    weight = (torch.randn(WIDTH, WIDTH) / WIDTH**0.5).requires_grad_()
    seed = torch.randn(NUM_NODES, WIDTH)
    contestants = [
        Contestant("tiga", partial(_tiga, graph, x, weight, seed, name)),
        Contestant("torch.compile", partial(_compiled, graph, x, weight, seed, name)),
    ]
    return outputs_and_gradients(PLAIN[name], graph, [x, weight], seed), contestants


CASES = tuple(
    TimedCase(
        name=f"edge_linear/{name}",
        shape={"N": NUM_NODES, "E": NUM_NODES * DEGREE, "F": WIDTH, "graph": "regular"},
        setup=partial(_setup, name),
        bars=(AtLeast(("torch.compile",), BARS[name]),),
        tolerance=5e-3,
        error=relative_norm,
    )
    for name in PLAIN
)
