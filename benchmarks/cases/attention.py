"""GAT and GATv2 layers, 64 → 4 heads × 16: forward and the gradients to features and weights."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.graphs import Csr, uniform
from benchmarks.harness import Call, Contestant, TimedCase, relative_norm
from benchmarks.plain import SLOPE, gat, gatv2
from benchmarks.results import AtLeast

NUM_NODES, DEGREE, WIDTH, HEADS, CHANNELS = 50_000, 20, 64, 4, 16

Weights = Mapping[str, torch.Tensor]
Layer = Callable[[torch.Tensor], torch.Tensor]

SHAPES = {
    "gat": {"lin": (WIDTH, WIDTH), "att_src": (HEADS, CHANNELS), "att_dst": (HEADS, CHANNELS)},
    "gatv2": {"lin_l": (WIDTH, WIDTH), "lin_r": (WIDTH, WIDTH), "att": (HEADS, CHANNELS)},
}
PLAIN = {"gat": gat, "gatv2": gatv2}


def _step(
    layer: Layer, x: torch.Tensor, weights: Sequence[torch.Tensor], seed: torch.Tensor
) -> Call:
    """Forward, then gradients to `x` and every weight under the cotangent `seed` [N, H · C]."""

    def step() -> Sequence[object]:
        out = layer(x).reshape(NUM_NODES, -1)
        return out.detach(), *torch.autograd.grad(out, (x, *weights), seed)

    return step


def _torch(
    name: str, graph: Csr, x: torch.Tensor, weights: Weights, seed: torch.Tensor, compiled: bool
) -> Call:
    source, destination = torch.from_numpy(graph.source), torch.from_numpy(graph.destination)
    run = torch.compile(PLAIN[name], dynamic=False) if compiled else PLAIN[name]
    return _step(lambda x: run(x, weights, source, destination), x, list(weights.values()), seed)


def _pyg(
    name: str, graph: Csr, x: torch.Tensor, weights: Weights, seed: torch.Tensor, compiled: bool
) -> Call:
    import torch_geometric.nn as pyg

    make = {"gat": pyg.GATConv, "gatv2": pyg.GATv2Conv}[name]
    conv = make(WIDTH, CHANNELS, HEADS, add_self_loops=False, bias=False, negative_slope=SLOPE)
    parameters = []
    with torch.no_grad():
        for key, value in weights.items():
            part = getattr(conv, key)
            parameter = part if isinstance(part, torch.Tensor) else part.weight
            parameter.copy_(value[None] if key.startswith("att") else value.T)
            parameters.append(parameter)
    edges = torch.stack([torch.from_numpy(graph.source), torch.from_numpy(graph.destination)])
    run = torch.compile(conv, dynamic=False) if compiled else conv
    step = _step(lambda x: run(x, edges), x, parameters, seed)

    def as_ours() -> Sequence[object]:
        out, dx, *gradients = step()
        shaped = [
            g[0] if key.startswith("att") else g.T  # type: ignore[index, attr-defined]
            for key, g in zip(weights, gradients, strict=True)
        ]
        return out, dx, *shaped

    return as_ours


def _tiga(name: str, graph: Csr, x: torch.Tensor, weights: Weights, seed: torch.Tensor) -> Call:
    from benchmarks.programs import attention, tiga_graph

    kernel, relation = attention(name, weights), tiga_graph(graph)
    layer: Any = lambda x: kernel(relation, x)  # noqa: E731
    return _step(layer, x, list(weights.values()), seed)


def _setup(name: str) -> tuple[Sequence[np.ndarray], Sequence[Contestant]]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    graph = uniform(NUM_NODES, DEGREE)
    x = torch.randn(NUM_NODES, WIDTH, requires_grad=True)
    weights = {
        key: (torch.randn(shape) / shape[-1] ** 0.5).requires_grad_()
        for key, shape in SHAPES[name].items()
    }
    seed = torch.randn(NUM_NODES, WIDTH)
    data = (name, graph, x, weights, seed)
    wide = {key: value.detach().double().requires_grad_() for key, value in weights.items()}
    wide_x = x.detach().double().requires_grad_()
    reference = _torch(name, graph, wide_x, wide, seed.double(), compiled=False)()
    contestants = [
        Contestant("tiga", partial(_tiga, *data), requires="tiga:softmax"),
        Contestant("PyG", partial(_pyg, *data, compiled=False), requires="torch_geometric"),
        Contestant("PyG compiled", partial(_pyg, *data, compiled=True), requires="torch_geometric"),
        Contestant("torch.compile", partial(_torch, *data, compiled=True)),
    ]
    return [np.asarray(part) for part in reference], contestants


CASES = tuple(
    TimedCase(
        name=f"attention/{name}",
        shape={"N": NUM_NODES, "E": NUM_NODES * DEGREE, "heads": HEADS, "channels": CHANNELS},
        setup=partial(_setup, name),
        bars=(AtLeast(("PyG", "PyG compiled"), bar),),
        tolerance=5e-3,
        error=relative_norm,
    )
    for name, bar in (("gat", 10.0), ("gatv2", 8.0))
)
