"""How long the first training step of a process takes, which compiles its kernels.

    python -m benchmarks.first_steps [--models name,name] [--processes 3]

Each model takes its first step in processes of its own: forward, backward, and for potentials the
derivative of forces. Given are the least wall and processor seconds of the step, and of a second.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import tiga as tg
from benchmarks.processes import run_child

NODES, DEGREE, WIDTH = 2000, 8, 64

Step = Callable[[], Any]


def _edges() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(NODES, (NODES * DEGREE,), generator=generator)
    return torch.stack([source, torch.arange(NODES).repeat_interleave(DEGREE)])


def _layer_step(name: str) -> Step:
    from torch_geometric import nn as pyg

    import tiga.interop.pyg

    degrees = torch.tensor([0] * DEGREE + [NODES])
    perceptron = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    ways, scalers = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
    made = {
        "gcn": lambda: pyg.GCNConv(WIDTH, WIDTH),
        "gat": lambda: pyg.GATConv(WIDTH, WIDTH // 4, heads=4),
        "edgeconv": lambda: pyg.EdgeConv(perceptron),
        "pna": lambda: pyg.PNAConv(WIDTH, WIDTH, ways, scalers, degrees),
    }
    layer = tiga.interop.pyg.compile(made[name]())
    x, edges = torch.randn(NODES, WIDTH, requires_grad=True), _edges()
    return lambda: layer(x, edges).square().mean().backward()


def _potential_step(name: str) -> Step:
    from benchmarks import potentials

    layer = {"schnet": potentials.SchNetLayer, "painn": potentials.PaiNNLayer}[name]
    model, kind = potentials.Potential(layer), torch.randint(8, (NODES,))
    position = 5 * torch.rand(NODES, 3)
    edges = _edges()
    graph = tg.Graph.from_edge_index(edges[:, edges[0] != edges[1]], num_nodes=NODES)
    return lambda: potentials.loss_of(model, graph, kind, position).backward()


MODELS: dict[str, Callable[[str], Step]] = {
    "gcn": _layer_step, "gat": _layer_step, "edgeconv": _layer_step, "pna": _layer_step,
    "schnet": _potential_step, "painn": _potential_step,
}  # fmt: skip


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _timed(step: Step) -> tuple[float, float]:
    start, used = time.perf_counter(), _processor()
    step()
    return time.perf_counter() - start, _processor() - used


def child(name: str) -> None:
    """Take two steps of a model and print what they took."""
    torch.manual_seed(0)
    step = MODELS[name](name)
    torch.nn.Linear(4, 4)(torch.randn(4, 4)).sum().backward()
    first, used = _timed(step)
    second, _ = _timed(step)
    print(json.dumps({"first": first, "processor": used, "second": second}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=lambda names: names.split(","), default=list(MODELS))
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return
    print("| model | first step s | processor s | second step s |\n|---|---|---|---|")
    for name in args.models:
        found = [
            run_child("benchmarks.first_steps", "--child", name) for _ in range(args.processes)
        ]
        least = {key: min(one[key] for one in found) for key in found[0]}
        print(f"| {name} | {least['first']:.2f} | {least['processor']:.2f} | "
              f"{least['second']:.3f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
