"""What a call costs when there is next to nothing to compute: E=1000, F=8.

The kernel itself is part of tiga's reading, so the reading is an upper bound of the overhead.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.graphs import Csr, regular
from benchmarks.harness import Call, Contestant, TimedCase
from benchmarks.plain import weighted_sum, with_gradient
from benchmarks.programs import WeightedSum, tiga_graph
from benchmarks.results import AtMost

NUM_NODES, DEGREE, WIDTH = 100, 10, 8


def _tiga(graph: Csr, x: torch.Tensor, w: torch.Tensor, seed: torch.Tensor | None) -> Call:
    kernel, relation = WeightedSum(), tiga_graph(graph)

    def run(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = kernel(graph=relation, src={"x": x}, dst={}, edge={"w": w})
        return out

    return _call(run, x, seed)


def _torch(
    graph: Csr, x: torch.Tensor, w: torch.Tensor, seed: torch.Tensor | None, compiled: bool
) -> Call:
    source, destination = torch.from_numpy(graph.source), torch.from_numpy(graph.destination)
    run = torch.compile(weighted_sum, dynamic=False) if compiled else weighted_sum
    return _call(lambda x: run(x, w, source, destination), x, seed)


def _call(
    run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, seed: torch.Tensor | None
) -> Call:
    if seed is None:
        return lambda: (run(x),)
    both = with_gradient(run)
    return lambda: both(x, seed=seed)


def _setup(gradient: bool) -> tuple[Sequence[np.ndarray], Sequence[Contestant]]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    graph = regular(NUM_NODES, DEGREE)
    x = torch.randn(NUM_NODES, WIDTH, requires_grad=gradient)
    w = torch.rand(graph.num_edges, 1)
    seed = torch.randn(NUM_NODES, WIDTH) if gradient else None
    reference = _torch(graph, x, w, seed, compiled=False)()
    contestants = [
        Contestant("tiga", partial(_tiga, graph, x, w, seed)),
        Contestant("torch.compile", partial(_torch, graph, x, w, seed, compiled=True)),
        Contestant("eager", partial(_torch, graph, x, w, seed, compiled=False)),
    ]
    return [np.asarray(part) for part in reference], contestants


SHAPE = {"N": NUM_NODES, "E": NUM_NODES * DEGREE, "F": WIDTH}

CASES = (
    TimedCase(
        name="call_overhead/forward",
        shape=SHAPE,
        setup=partial(_setup, gradient=False),
        bars=(AtMost(30.0),),
        unit="µs",
    ),
    TimedCase(
        name="call_overhead/forward_backward",
        shape=SHAPE,
        setup=partial(_setup, gradient=True),
        bars=(AtMost(200.0),),
        unit="µs",
    ),
)
