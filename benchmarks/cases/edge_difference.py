"""`relu(x_src − x_dst)` reduced by sum, mean, max, std, and by four at once; both directions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

import tiga as tg
from benchmarks.graphs import Csr, regular
from benchmarks.harness import Call, Contestant, TimedCase, relative_error, relative_norm
from benchmarks.plain import (
    Torch,
    difference_four,
    difference_mean_by_count,
    difference_scatter,
    difference_std,
    difference_sum,
    with_gradient,
)
from benchmarks.programs import EdgeDifference, tiga_graph
from benchmarks.reference import outputs_and_gradients
from benchmarks.results import AtLeast

NUM_NODES, DEGREE, WIDTH = 20_000, 100, 64
PLAIN: dict[str, dict[str, Torch]] = {
    "sum": {"": difference_sum},
    "mean": {"": difference_scatter("mean"), " (sum / count)": difference_mean_by_count},
    "max": {"": difference_scatter("amax")},
    "std": {"": difference_std},
    "four": {"": difference_four},
}
REDUCERS: dict[str, Callable[[], Any]] = {
    "four": lambda: tg.multi(tg.sum(), tg.mean(), tg.max(), tg.min())
}
"""What is no single reducer of tiga's own name."""


def _tiga(graph: Csr, x: torch.Tensor, seed: torch.Tensor, reducer: str) -> Call:
    make = REDUCERS.get(reducer) or getattr(tg, reducer)
    kernel, relation = EdgeDifference(make()), tiga_graph(graph)

    def forward(x: torch.Tensor) -> torch.Tensor:
        out = kernel(graph=relation, ndata={"x": x})
        return torch.cat(out, -1) if isinstance(out, tuple) else out

    run = with_gradient(forward)
    return lambda: run(x, seed=seed)


def _torch(graph: Csr, x: torch.Tensor, seed: torch.Tensor, run: Torch, compiled: bool) -> Call:
    source, destination = torch.from_numpy(graph.source), torch.from_numpy(graph.destination)
    both = with_gradient(torch.compile(run, dynamic=False) if compiled else run)
    return lambda: both(x, source, destination, seed=seed)


def _setup(reducer: str) -> tuple[Sequence[np.ndarray], Sequence[Contestant]]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    graph = regular(NUM_NODES, DEGREE)
    x = torch.randn(NUM_NODES, WIDTH, requires_grad=True)
    seed = torch.randn(NUM_NODES, WIDTH * (4 if reducer == "four" else 1))
    ours = partial(_tiga, graph, x, seed, reducer)
    contestants = [Contestant("tiga", ours, f"tiga:{'multi' if reducer == 'four' else reducer}")]
    for suffix, run in PLAIN[reducer].items():
        compiled = partial(_torch, graph, x, seed, run, compiled=True)
        contestants.append(Contestant(f"torch.compile{suffix}", compiled))
    if reducer == "sum":  # eager takes seconds a call, so one reducer stands for it
        eager = partial(_torch, graph, x, seed, PLAIN[reducer][""], compiled=False)
        contestants.append(Contestant("eager", eager))
    return outputs_and_gradients(PLAIN[reducer][""], graph, [x], seed), contestants


BARS = {"sum": 4.0, "mean": 8.0, "max": 8.0, "std": 6.0, "four": 6.0}

CASES = tuple(
    TimedCase(
        name=f"edge_difference/{reducer}",
        shape={"N": NUM_NODES, "E": NUM_NODES * DEGREE, "F": WIDTH, "graph": "regular"},
        setup=partial(_setup, reducer),
        bars=(AtLeast(("torch.compile",), bar),),
        tolerance=5e-3 if reducer == "std" else 1e-4,  # one pass over squares cancels in float32
        error=relative_norm if reducer == "std" else relative_error,
    )
    for reducer, bar in BARS.items()
)
