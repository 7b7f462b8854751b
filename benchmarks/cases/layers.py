"""PyG's layers, 64 → 64: forward and the gradients to features and parameters, through
`tiga.interop.pyg.compile`, as they are, and under torch.compile, which takes most of a run."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

import tiga.interop.pyg
from benchmarks.graphs import Csr, uniform
from benchmarks.harness import Call, Contestant, TimedCase, relative_norm
from benchmarks.results import AtLeast

NUM_NODES, DEGREE, WIDTH, HEADS = 10_000, 20, 64, 4


def _perceptron(width: int) -> torch.nn.Module:
    first, second = torch.nn.Linear(width, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    return torch.nn.Sequential(first, torch.nn.ReLU(), second)


def _pna(gnn: Any, graph: Csr) -> Any:
    degrees = torch.bincount(torch.from_numpy(graph.row_ptr).diff())
    ways, scalers = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
    return gnn.PNAConv(WIDTH, WIDTH, ways, scalers, degrees)


LAYERS: dict[str, Callable[[Any, Csr], Any]] = {
    "gat": lambda gnn, _: gnn.GATConv(WIDTH, WIDTH // HEADS, HEADS, add_self_loops=False),
    "gatv2": lambda gnn, _: gnn.GATv2Conv(WIDTH, WIDTH // HEADS, HEADS, add_self_loops=False),
    "transformer": lambda gnn, _: gnn.TransformerConv(WIDTH, WIDTH // HEADS, HEADS),
    "sage_mean": lambda gnn, _: gnn.SAGEConv(WIDTH, WIDTH, aggr="mean"),
    "sage_max": lambda gnn, _: gnn.SAGEConv(WIDTH, WIDTH, aggr="max"),
    "gin": lambda gnn, _: gnn.GINConv(_perceptron(WIDTH)),
    "edge_conv": lambda gnn, _: gnn.EdgeConv(_perceptron(2 * WIDTH)),
    "pna": _pna,
}
"""A layer of PyG's `nn` by a case's name; the graph's degrees are known to it."""

BARS = {
    "gat": 4.0, "gatv2": 3.0, "transformer": 1.7, "sage_mean": 2.0, "sage_max": 5.0, "gin": 1.8,
    "edge_conv": 5.0, "pna": 6.0,
}  # fmt: skip
"""How many times as long torch.compile must take: a little less than it took on one core, where it
adds without atomics."""


def _step(layer: Any, call: Any, x: torch.Tensor, edges: torch.Tensor, seed: torch.Tensor) -> Call:
    """Forward, then the gradients to `x` and to all parameters, these as one vector: of some, such
    as biases that a softmax cancels, the gradient is nothing but rounding."""
    parameters = list(layer.parameters())

    def step() -> Sequence[object]:
        out = call(x, edges)
        dx, *gradients = torch.autograd.grad(out, (x, *parameters), seed)
        return out.detach(), dx, torch.cat([g.reshape(-1) for g in gradients])

    return step


def _tiga(layer: Any, *given: torch.Tensor) -> Call:
    return _step(layer, tiga.interop.pyg.compile(layer), *given)


def _pyg(layer: Any, *given: torch.Tensor) -> Call:
    return _step(layer, torch.compile(layer, dynamic=False), *given)


def _setup(name: str) -> tuple[Sequence[np.ndarray], Sequence[Contestant]]:
    from torch_geometric import nn as gnn

    torch._dynamo.reset()
    torch.manual_seed(0)
    graph = uniform(NUM_NODES, DEGREE)
    edges = torch.stack([torch.from_numpy(graph.source), torch.from_numpy(graph.destination)])
    layer = LAYERS[name](gnn, graph)
    x, seed = torch.randn(NUM_NODES, WIDTH, requires_grad=True), torch.randn(NUM_NODES, WIDTH)
    wide = copy.deepcopy(layer).double()
    exact = _step(wide, wide, x.detach().double().requires_grad_(), edges, seed.double())
    contestants = [
        Contestant("tiga", partial(_tiga, layer, x, edges, seed)),
        Contestant("PyG", partial(_step, layer, layer, x, edges, seed)),
        Contestant("PyG compiled", partial(_pyg, layer, x, edges, seed)),
    ]
    return [np.asarray(part) for part in exact()], contestants


CASES = tuple(
    TimedCase(
        name=f"layers/{name}",
        shape={"N": NUM_NODES, "E": NUM_NODES * DEGREE, "F": WIDTH},
        setup=partial(_setup, name),
        bars=(AtLeast(("PyG compiled",), bar),),
        tolerance=5e-3,
        error=relative_norm,
        most_seconds=2.0,
    )
    for name, bar in BARS.items()
)
