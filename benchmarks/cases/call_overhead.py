"""What a call costs when there is next to nothing to compute: E=1000, F=8.

The kernel itself is part of tiga's reading, so the reading is an upper bound of the overhead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from benchmarks.graphs import Csr, regular
from benchmarks.harness import Call, Contestant, TimedCase
from benchmarks.plain import weighted_sum, with_gradient
from benchmarks.programs import WeightedSum, tiga_graph
from benchmarks.results import TIGA, AtLeast, AtMost

NUM_NODES, DEGREE, WIDTH = 100, 10, 8


def _tiga(
    graph: Csr, x: torch.Tensor, w: torch.Tensor, seed: torch.Tensor | None, compiled: bool
) -> Call:
    kernel, relation = WeightedSum(), tiga_graph(graph)

    def run(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = kernel(graph=relation, src={"x": x}, dst={}, edge={"w": w})
        return out

    return _call(torch.compile(run, fullgraph=True) if compiled else run, x, seed)


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


@dataclass(frozen=True)
class _Data:
    """What the contestants share; without a seed, no gradient is taken."""

    graph: Csr
    x: torch.Tensor
    w: torch.Tensor
    seed: torch.Tensor | None

    @staticmethod
    def make(gradient: bool) -> "_Data":
        torch._dynamo.reset()
        torch.manual_seed(0)
        graph = regular(NUM_NODES, DEGREE)
        x = torch.randn(NUM_NODES, WIDTH, requires_grad=gradient)
        w = torch.rand(graph.num_edges, 1)
        return _Data(graph, x, w, torch.randn(NUM_NODES, WIDTH) if gradient else None)

    def tiga(self, compiled: bool) -> Call:
        return _tiga(self.graph, self.x, self.w, self.seed, compiled)

    def torch(self, compiled: bool) -> Call:
        return _torch(self.graph, self.x, self.w, self.seed, compiled)

    def reference(self) -> Sequence[np.ndarray]:
        return [np.asarray(part) for part in self.torch(compiled=False)()]


def _setup(gradient: bool) -> tuple[Sequence[np.ndarray], Sequence[Contestant]]:
    data = _Data.make(gradient)
    return data.reference(), [
        Contestant(TIGA, partial(data.tiga, compiled=False)),
        Contestant("torch.compile", partial(data.torch, compiled=True)),
        Contestant("eager", partial(data.torch, compiled=False)),
    ]


def _setup_compiled() -> tuple[Sequence[np.ndarray], Sequence[Contestant]]:
    data = _Data.make(gradient=True)
    return data.reference(), [
        Contestant(TIGA, partial(data.tiga, compiled=True)),
        Contestant("uncompiled", partial(data.tiga, compiled=False)),
        Contestant("torch.compile", partial(data.torch, compiled=True)),
    ]


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
    TimedCase(
        name="call_overhead/forward_backward_compiled",
        shape=SHAPE,
        setup=_setup_compiled,
        bars=(AtLeast(("uncompiled",), 1 / 1.5),),
        unit="µs",
        notes=("tiga: within torch.compile; uncompiled: the same call without it",),
    ),
)
